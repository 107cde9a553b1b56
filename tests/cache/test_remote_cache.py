# SPDX-License-Identifier: Apache-2.0
"""A cache that several machines share: what one puts there another takes, and nothing that is wrong with it stops a build."""

from __future__ import annotations

import builtins
import importlib.util
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from sample_result import RESULT

from flydsl_build.cache.build_cache import open_cache
from flydsl_build.cache.remote import RemoteCache, fsspec_requirement, shown_url
from flydsl_build.config.tables import Settings
from flydsl_build.declare.specialization import Specialization
from flydsl_build.editable.resolution import digest_of_file
from flydsl_build.errors import ConfigError
from flydsl_build.jobs.job import Job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flydsl_build.cache.build_cache import BuildCache
    from flydsl_build.jobs.results import StoredResult

pytest.importorskip("fsspec")

ONE = Specialization(name="f", frontend="flydsl", module="pkg.mod", attribute="f", where="here", targets=("gfx942",))


class Machine:
    """A project with one source, and a local cache of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.said: list[str] = []
        self.count = 0
        (folder / "project").mkdir(parents=True)
        self.source.write_text("one")

    @property
    def source(self) -> Path:
        return self.folder / "project" / "mod.py"

    def open(self, *, writes: bool = True, **changes: Any) -> BuildCache:
        given = {"cache_dir": self.folder / "cache", "remote_cache": self.url, "remote_cache_write": writes, **changes}
        cache = open_cache(Settings(project_dir=self.folder / "project", **given), {}, self.said.append)
        if cache.remote is not None:
            cache.remote._patience = 5.0
        return cache

    def job(self, module: str = "pkg.mod") -> Job:
        self.count += 1
        output = self.folder / str(self.count)
        output.mkdir()
        return Job(module=module, target="gfx942", output=str(output), specializations=(ONE,), project="")

    def compile(self, code: bytes, module: str = "pkg.mod", cache: BuildCache | None = None) -> None:
        cache, job = cache or self.open(), self.job(module)
        for name, data in (("main.hsaco", code), ("f.o", b"host")):
            (self.folder / job.output / name).write_bytes(data)
        cache.store(job, RESULT, {"file:mod.py": digest_of_file(self.source)})
        cache.settle()

    def fetch(self, *modules: str, **changes: Any) -> dict[str, bytes]:
        """Return the code that the remote cache has, by module."""
        cache = self.open(**changes)
        jobs = dict(enumerate(self.job(module) for module in modules or ("pkg.mod",)))
        found: dict[int, StoredResult] = dict(cache.fetch(jobs))
        for number, result in found.items():
            assert result.cached
            assert result.raw() == {**RESULT, "output": jobs[number].output}
            assert (self.folder / result.folder / "f.o").read_bytes() == b"host"
        return {jobs[number].module: (self.folder / result.folder / "main.hsaco").read_bytes() for number, result in found.items()}

    def lookup(self) -> bytes | None:
        job = self.job()
        found = self.open().lookup(job)
        return None if found is None else (self.folder / job.output / "main.hsaco").read_bytes()


class Store(ThreadingHTTPServer):
    """An HTTP server that keeps what is put."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.together = self.most = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://somebody:s3cret@127.0.0.1:{self.server_address[1]}/cache"


class Handler(BaseHTTPRequestHandler):
    server: Store

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.requests.append(f"GET {self.path.split('/')[3]}")
            self.server.together += 1
            self.server.most = max(self.server.most, self.server.together)
        time.sleep(0.05)
        with self.server.lock:
            self.server.together -= 1
        data = self.server.files.get(urlsplit(self.path).path)
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.files[urlsplit(self.path).path] = data
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def http_store() -> Iterator[Store]:
    pytest.importorskip("aiohttp")
    with Store() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(params=["file", "memory", "http"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "http":
        server: Store = request.getfixturevalue("http_store")
        return server.url
    return f"file://{tmp_path}/shared" if request.param == "file" else f"memory://{tmp_path.name}"


def test_what_one_machine_compiled_another_takes(url: str, tmp_path: Path) -> None:
    one, two = Machine(tmp_path / "one", url), Machine(tmp_path / "two", url)
    assert two.fetch() == {}
    one.compile(b"code")
    assert two.lookup() is None
    assert two.fetch(writes=False) == {"pkg.mod": b"code"}
    # From now on it is in the local cache.
    assert two.lookup() == b"code"
    two.source.write_text("two")
    assert two.fetch() == {}
    two.compile(b"other code")
    # Both results are kept; each is found by whoever has the source.
    assert one.fetch() == {"pkg.mod": b"code"}
    one.source.write_text("two")
    assert one.fetch() == {"pkg.mod": b"other code"}
    assert one.said == two.said == []


def test_without_leave_nothing_is_written(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "one", f"file://{tmp_path}/shared")
    machine.compile(b"code", cache=machine.open(writes=False))
    assert not (tmp_path / "shared").exists()


def test_many_jobs_wait_for_two_round_trips(http_store: Store, tmp_path: Path) -> None:
    one, two = Machine(tmp_path / "one", http_store.url), Machine(tmp_path / "two", http_store.url)
    modules = [f"pkg.m{number}" for number in range(12)]
    cache = one.open()
    for module in modules:
        one.compile(module.encode(), module, cache)
    http_store.requests.clear()
    http_store.most = 0
    assert two.fetch(*modules, "pkg.absent") == {module: module.encode() for module in modules}
    assert http_store.requests == ["GET requests"] * 13 + ["GET packs"] * 12
    assert http_store.most > 4


def test_a_store_needs_no_local_cache(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/shared"
    (tmp_path / "file").write_text("")
    Machine(tmp_path / "one", url).compile(b"code")
    machine = Machine(tmp_path / "two", url)
    assert machine.fetch(cache_dir=tmp_path / "file" / "cache") == {"pkg.mod": b"code"}
    assert machine.fetch(cache=False) == {}


def damaged_files(folder: Path, kind: str) -> list[Path]:
    return [path for path in sorted((folder / "v1" / kind).rglob("*")) if path.is_file()]


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda _: b"", lambda data: data[:-3] + b"\xff" + data[-2:]])
@pytest.mark.parametrize("kind", ["packs", "requests"])
def test_damage_is_said_once_and_made_good(kind: str, damage: Any, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/shared"
    one, two = Machine(tmp_path / "one", url), Machine(tmp_path / "two", url)
    one.compile(b"code", "pkg.a")
    one.compile(b"code, too", "pkg.b")
    for path in damaged_files(tmp_path / "shared", kind):
        path.write_bytes(damage(path.read_bytes()))
    assert two.fetch("pkg.a", "pkg.b") == {}
    (line,) = two.said
    names = [str(path.relative_to(tmp_path / "shared")) for path in damaged_files(tmp_path / "shared", kind)]
    assert line in {
        f"warning: the remote cache {url} has damaged files, such as {name}: they are not used, and what they held is compiled"
        for name in names
    }
    two.compile(b"code", "pkg.a")
    two.compile(b"code, too", "pkg.b")
    assert Machine(tmp_path / "three", url).fetch("pkg.a", "pkg.b") == {"pkg.a": b"code", "pkg.b": b"code, too"}


# --- stores that do not work ---------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_a_store_that_refuses(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    port = free_port()
    machine = Machine(tmp_path / "one", f"http://somebody:s3cret@127.0.0.1:{port}/cache")
    cache = machine.open()
    jobs = {number: machine.job(f"pkg.m{number}") for number in range(20)}
    assert list(cache.fetch(jobs)) == []
    machine.compile(b"code", cache=cache)
    assert machine.lookup() == b"code"
    (line,) = machine.said
    assert line.startswith(
        f"warning: the remote cache http://127.0.0.1:{port}/cache cannot be used (Cannot connect to host 127.0.0.1:{port}"
    )
    assert line.endswith("): this build does without it")
    assert "s3cret" not in line
    assert "somebody" not in line


def test_a_store_that_does_not_answer(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/cache"
        machine = Machine(tmp_path / "one", url)
        cache = machine.open()
        assert cache.remote is not None
        cache.remote._patience = 0.3
        started = time.monotonic()
        assert list(cache.fetch({0: machine.job()})) == []
        assert time.monotonic() - started < 3
        assert machine.said == [f"warning: the remote cache {url} cannot be used (no answer for 0.3 s): this build does without it"]


def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    url = f"file://{tmp_path}/file/shared"
    machine = Machine(tmp_path / "one", url)
    machine.compile(b"code")
    assert machine.lookup() == b"code"
    (line,) = machine.said
    assert line.startswith(f"warning: the remote cache {url} cannot be written ([Errno 20] Not a directory")
    assert line.endswith("): nothing more is added to it")


def test_a_protocol_that_needs_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__
    monkeypatch.setattr(
        builtins, "__import__", lambda name, *rest: (_ for _ in ()).throw(ImportError(name)) if name == "s3fs" else real(name, *rest)
    )
    machine = Machine(tmp_path / "one", "s3://somebody:s3cret@bucket/prefix")
    with pytest.raises(ConfigError) as caught:
        list(machine.open().fetch({0: machine.job()}))
    assert str(caught.value) == (
        "tool.flydsl-build.remote-cache: s3://bucket/prefix cannot be opened (Install s3fs to access S3)\n"
        '    -> add "fsspec[s3]>=2024.2", or the package that has the protocol, to build-system.requires'
    )


def test_an_unknown_protocol(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "one", "nosuch://place")
    with pytest.raises(ConfigError, match=r"nosuch://place cannot be opened \(Protocol not known: nosuch\)"):
        list(machine.open().fetch({0: machine.job()}))


def test_without_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "fsspec" else real(name, *rest))
    with pytest.raises(ConfigError) as caught:
        Machine(tmp_path / "one", "gs://bucket/prefix").open()
    assert str(caught.value) == (
        "tool.flydsl-build.remote-cache: fsspec is not installed, and a remote cache needs it\n"
        '    -> add "flydsl-build[remote]" or "fsspec[gcs]>=2024.2" to build-system.requires'
    )


@pytest.mark.parametrize(
    ("url", "shown", "requirement"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix", "fsspec[s3]>=2024.2"),
        ("https://me:pass@host:80/a", "https://host:80/a", "fsspec[http]>=2024.2"),
        ("file:///mnt/a@b", "file:///mnt/a@b", "fsspec>=2024.2"),
        ("simplecache::gs://k:s@bucket", "simplecache::gs://bucket", "fsspec[gcs]>=2024.2"),
    ],
)
def test_urls(url: str, shown: str, requirement: str) -> None:
    assert (shown_url(url), fsspec_requirement(url)) == (shown, requirement)


def test_what_libraries_say_is_shown_without_secrets() -> None:
    said: list[str] = []
    cache = RemoteCache("s3://user:p%40ss@bucket", writes=True, say=said.append)
    cache._give_up(OSError("cannot open s3://user:p%40ss@bucket\nwith p@ss"))
    assert said == [
        "warning: the remote cache s3://bucket cannot be used (cannot open s3://***@bucket with ***): this build does without it"
    ]
