# SPDX-License-Identifier: Apache-2.0
"""Records of every kind whose digest is right and whose form is wrong: they are a miss, and are written again."""

from __future__ import annotations

import copy
import hashlib
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_result import FILES, RESULT

from flydsl_build.bundle.manifest import Kernel
from flydsl_build.bundle.placement import Placement
from flydsl_build.cache.build_cache import BuildCache, compilers_digest, python_digest
from flydsl_build.cache.folder import CacheFolder
from flydsl_build.cache.remote import RemoteCache
from flydsl_build.codec import encode
from flydsl_build.config.tables import Settings
from flydsl_build.declare.specialization import Specialization
from flydsl_build.jobs.job import Job, JobResult, Linker
from flydsl_build.jobs.results import files_of, unpack_files
from flydsl_build.package.declared import collect_declarations
from flydsl_build.package.module_cache import ModuleKeeper, _About
from flydsl_build.package.summary import KernelRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flydsl_build.jobs.results import StoredResult

ONE = Specialization(name="f", frontend="flydsl", module="pkg.mod", attribute="f", where="here", targets=("gfx942",))
DEPENDENCIES: dict[str, str | None] = {"file:mod.py": None, "env:NAME": None}
DECLARED = {"pairs": [["pkg.mod:f", {"params": {"N": [1, 2]}}]], "dependencies": DEPENDENCIES}
KERNEL = Kernel(
    symbol="k", kernarg_size=8, code_size=64, lds=0, private=0, vgpr=8, agpr=0, sgpr=8, vgpr_spills=0, sgpr_spills=0, wavefront=64,
    max_workgroup=64, reqd_workgroup=(64, 1, 1), args=(),
)  # fmt: skip
ABOUT = _About(
    files=("mod.json", "mod.hsaco"),
    unexported=("g",),
    generated={"pkg/mod.py": "text"},
    warnings=("warning",),
    rows=(KernelRow(module="pkg.mod", specialization="f", unit="main", axes={}, target="gfx942", index=0, kernel=KERNEL, occupancy=8),),
)
# In the place of anything in a record.
STRANGE = (
    None, True, 0, -1, 1.5, 10**400, float("inf"), float("nan"), "", "x", "..", "a/b", "\0", "\ud800", "nonsense:x", "file:\0", "0" * 64,
    [], [1], [[]], [None], {}, {"x": 1}, {"": None}, {"a/b": "0" * 64}, {"file:\0": None}, {"nonsense:x": None},
)  # fmt: skip
GONE = object()


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value in a JSON value, the whole first."""
    yield ()
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        for rest in places(one):
            yield (key, *rest)


def mutated(value: Any, draw: Callable[[Any], Any]) -> Any:
    """Return a JSON value in which something is gone, is there under another name, or is something else."""
    place = draw(st.sampled_from(list(places(value))))
    new = draw(st.sampled_from([GONE, *STRANGE]))
    if not place:
        return None if new is GONE else new
    changed = copy.deepcopy(value)
    parent = changed
    for key in place[:-1]:
        parent = parent[key]
    if isinstance(parent, dict) and draw(st.booleans()):
        name = draw(st.sampled_from(["x", "", "\0", "a/b", "..", "file:\0", "nonsense:x"]))
        parent[name] = parent.pop(place[-1])
    elif new is GONE:
        del parent[place[-1]]
    else:
        parent[place[-1]] = new
    return changed


def record_file(root: Path, kind: str) -> Path:
    (path,) = (one for one in (root / "v1" / kind).rglob("*") if one.is_file())
    return path


def read(path: Path) -> Any:
    return json.loads(path.read_bytes().partition(b"\n")[2])


def write(path: Path, value: Any) -> None:
    data = json.dumps(value).encode()
    path.write_bytes(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)


def add_blob(root: Path, data: bytes) -> str:
    return CacheFolder(root, limit=10**9, say=lambda _: None).add_blob(data)


class Place:
    """A project, a cache and a remote one, each in a folder; each call of `cache` is another build."""

    def __init__(self, folder: str) -> None:
        self.root = Path(folder)
        self.local = self.root / "cache"
        self.remote = self.root / "remote"
        self.remote.mkdir()
        self.count = 0

    def cache(self, *, remote: bool = False, local: bool = True) -> BuildCache:
        return BuildCache(
            CacheFolder(self.local, limit=10**9, say=lambda _: None) if local else None,
            project=self.root,
            environ={},
            remote=RemoteCache(f"file://{self.remote}", writes=True, say=lambda _: None) if remote else None,
        )

    def job(self) -> Job:
        self.count += 1
        return Job(module="pkg.mod", target="gfx942", output=str(self.root / f"job{self.count}"), specializations=(ONE,))

    def store(self, *, remote: bool = False, local: bool = True) -> None:
        cache, job = self.cache(remote=remote, local=local), self.job()
        Path(job.output).mkdir()
        for name, data in FILES.items():
            Path(job.output, name).write_bytes(data)
        cache.store(job, RESULT, DEPENDENCIES)
        cache.settle()


def check_result(found: StoredResult | None) -> bool:
    """See whether a result that was found can be used; return whether one was."""
    if found is None:
        return False
    assert isinstance(found.load(), JobResult)
    assert {name: found.file.with_name(name).read_bytes() for name in files_of(found.raw())} == FILES
    assert all(isinstance(one, str) for one in (*found.init, *found.symbols, *found.warnings))
    return True


def local_result(place: Place, draw: Callable[[Any], Any]) -> None:
    place.store()
    path = record_file(place.local, "requests")
    write(path, mutated(read(path), draw))
    peeked = place.cache().peek(place.job())
    assert check_result(place.cache().lookup(place.job())) or peeked is None or peeked.cached
    place.store()
    assert check_result(place.cache().lookup(place.job()))


def local_description(place: Place, draw: Callable[[Any], Any]) -> None:
    place.store()
    path = record_file(place.local, "requests")
    (entry,) = read(path)
    changed = json.dumps(mutated({**RESULT, "output": ""}, draw)).encode()
    write(path, [{**entry, "result": add_blob(place.local, changed)}])
    check_result(place.cache().lookup(place.job()))
    place.store()
    assert check_result(place.cache().lookup(place.job()))


def compile_time(place: Place, draw: Callable[[Any], Any]) -> None:
    place.store()
    path = record_file(place.local, "memos")
    write(path, mutated(read(path), draw))
    known = place.cache().seconds(place.job())
    assert known is None or 0 <= known < 10**10
    place.store()
    assert place.cache().seconds(place.job()) == 2.0


def remote_result(place: Place, draw: Callable[[Any], Any]) -> None:
    place.store(remote=True, local=False)
    path = record_file(place.remote, "requests")
    write(path, mutated(read(path), draw))
    fetched(place)
    place.store(remote=True, local=False)
    assert fetched(place)


def remote_pack(place: Place, draw: Callable[[Any], Any]) -> None:
    import zlib

    place.store(remote=True, local=False)
    path = record_file(place.remote, "requests")
    (entry,) = read(path)
    pack = place.remote / "v1" / "packs" / entry["pack"][:2] / entry["pack"][2:]
    packed, files = unpack_files(pack.read_bytes())
    sizes: Any = {"": len(packed), **{name: len(data) for name, data in files.items()}}
    if draw(st.booleans()):
        packed = json.dumps(mutated(json.loads(packed), draw)).encode()
        sizes[""] = len(packed)
    else:
        sizes = mutated(sizes, draw)
    data = zlib.compress(json.dumps(sizes).encode() + b"\n" + packed + b"".join(files.values()))
    digest = hashlib.sha256(data).hexdigest()
    other = place.remote / "v1" / "packs" / digest[:2] / digest[2:]
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(data)
    write(path, [{**entry, "pack": digest}])
    fetched(place)
    place.store(remote=True, local=False)
    assert fetched(place)


def fetched(place: Place) -> bool:
    return [check_result(found) for _, found in place.cache(remote=True, local=False).fetch({0: place.job()})] == [True]


def memo(place: Place, draw: Callable[[Any], Any]) -> None:
    place.cache().remember(b"data", "key", dependencies=DEPENDENCIES)
    path = record_file(place.local, "memos")
    write(path, mutated(read(path), draw))
    assert place.cache().recall("key") in {None, b"data"}
    place.cache().remember(b"data", "key", dependencies=DEPENDENCIES)
    assert place.cache().recall("key") == b"data"


def declarations(place: Place, draw: Callable[[Any], Any]) -> None:
    (place.root / "declaring.py").write_text("def kernels():\n    yield 'pkg.mod:f', {}\n")
    settings = Settings(project_dir=place.root, kernels_from="declaring:kernels")
    made_by = python_digest(project=place.root, package_roots=[str(place.root)])
    key = ("declarations", made_by, compilers_digest(settings.frontends), settings.kernels_from)
    changed = mutated(DECLARED, draw)
    place.cache().remember(json.dumps(changed).encode(), *key, dependencies=DEPENDENCIES)
    cache, made = place.cache(), []
    with pytest.MonkeyPatch.context() as patch:
        fresh = json.dumps({"pairs": [], "dependencies": {}})
        patch.setattr("subprocess.run", lambda *_, **__: made.append(1) or SimpleNamespace(stdout="\n" + fresh, stderr="", returncode=0))
        found = collect_declarations(settings, package_roots=[str(place.root)], project=place.root, cache=cache)
    assert isinstance(found.pairs, tuple)
    assert found.dependencies is None or isinstance(found.dependencies, dict)
    assert made or json.dumps(found.pairs) == json.dumps(changed["pairs"])


def module(place: Place, draw: Callable[[Any], Any]) -> None:
    project: Any = SimpleNamespace(root=place.root, name="pkg", version="1")
    placement = Placement(
        module="pkg.mod", source=Path("pkg/mod.py"), anchor=Path("pkg/_flydsl_mod"), folder=Path("pkg/_flydsl_mod"), stem="mod"
    )
    cache = place.cache()
    keeper = ModuleKeeper(
        settings=Settings(project_dir=place.root),
        project=project,
        linker=Linker(command=("ld",), version="20", identity="ld"),
        cache=cache,
        folder=place.root / "modules",
    )
    key = keeper._key(placement, [], [])
    files = {"mod.json": b"manifest", "mod.hsaco": b"code", "/about": json.dumps(mutated(encode(ABOUT), draw)).encode()}
    if draw(st.booleans()):
        files["/about"] = json.dumps(encode(ABOUT)).encode()
        del files[draw(st.sampled_from(list(files)))]
        files |= dict.fromkeys(draw(st.sampled_from([[], ["a/b"], [".."], ["more"]])), b"")
    cache.remember_files(files, *key)
    found = keeper.recall(placement, [], [])
    if found is not None:
        assert dict(found.files()) == {"mod.json": b"manifest", "mod.hsaco": b"code"}
        assert all(isinstance(one, str) for one in (*found.unexported, *found.warnings, *found.generated, *found.generated.values()))
        assert all(one.kernel.args == () or one.title for one in found.rows)


KINDS = {
    "a result": local_result,
    "the description of a result": local_description,
    "a compile time": compile_time,
    "a result in the remote cache": remote_result,
    "a pack in the remote cache": remote_pack,
    "what is remembered": memo,
    "declarations": declarations,
    "an assembled module": module,
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, database=None)
@given(data=st.data())
def test_a_record_of_another_form_is_a_miss(kind: str, data: st.DataObject) -> None:
    if "remote" in kind:
        pytest.importorskip("fsspec")
    with tempfile.TemporaryDirectory() as folder:
        KINDS[kind](Place(folder), data.draw)


def test_of_a_record_of_another_form_is_told(tmp_path: Path) -> None:
    place, said = Place(str(tmp_path)), []
    place.cache().remember(b"data", "key")
    path = record_file(place.local, "memos")
    write(path, [{"dependencies": 5, "files": {}}])
    cache = BuildCache(CacheFolder(place.local, limit=10**9, say=said.append), project=tmp_path, environ={})
    assert cache.recall("key") is None
    assert said == [f"the cache file {path.relative_to(place.local)} is damaged: it is removed and made again"]
    assert not path.exists()
