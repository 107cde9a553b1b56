# SPDX-License-Identifier: Apache-2.0
"""What makes two jobs one request, and which of its earlier results answers it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sample_result import RESULT

from flydsl_build.cache.build_cache import BuildCache, toolchain_digest
from flydsl_build.cache.dependencies import Fingerprints
from flydsl_build.cache.folder import CacheFolder
from flydsl_build.config import CompileOptions
from flydsl_build.config.tables import ExternTable
from flydsl_build.declare.specialization import Specialization
from flydsl_build.editable.resolution import digest_of_file
from flydsl_build.jobs.frontend import frontend_of
from flydsl_build.jobs.job import Job, Linker, Toolkit

if TYPE_CHECKING:
    from pathlib import Path

ONE = Specialization(name="f", frontend="flydsl", module="pkg.mod", attribute="f", where="here", targets=("gfx942",), params=(("N", 1),))
RULE = ExternTable(symbol="s_*", where="there", bitcode=("lib/{arch}.bc",))


class Place:
    """A project and a cache; each call of `cache` is another build."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.environ: dict[str, str] = {}
        self.count = 0
        self.said: list[str] = []

    def cache(self, toolchain: str = "") -> BuildCache:
        cache = BuildCache(
            CacheFolder(self.folder / "cache", limit=10**9, say=self.said.append), project=self.project, environ=self.environ
        )
        cache.use_toolchain(toolchain)
        return cache

    def job(self, **changes: Any) -> Job:
        self.count += 1
        output = self.folder / str(self.count)
        output.mkdir()
        job = Job(module="pkg.mod", target="gfx942", output=str(output), specializations=(ONE,), project=str(self.project), externs=(RULE,))
        return replace(job, **changes)

    def keep(self, dependencies: dict[str, str | None] | None, code: bytes = b"code", **changes: Any) -> Job:
        job = self.job(**changes)
        for name, data in (("main.hsaco", code), ("f.o", b"host")):
            (self.folder / job.output / name).write_bytes(data)
        self.cache().store(job, RESULT, dependencies)
        return job

    def found(self, toolchain: str = "", **changes: Any) -> bytes | None:
        """Return the code object that is found for a job, or None."""
        job = self.job(**changes)
        result = self.cache(toolchain).lookup(job)
        if result is None:
            return None
        assert result.cached
        assert result.raw() == {**RESULT, "output": job.output}
        assert (self.folder / job.output / "f.o").read_bytes() == b"host"
        return (self.folder / job.output / "main.hsaco").read_bytes()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def changed(**changes: Any) -> tuple[Specialization, ...]:
    return (replace(ONE, **changes),)


EQUAL: dict[str, dict[str, Any]] = {
    "places in messages": {"specializations": changed(where="elsewhere"), "externs": (replace(RULE, where="elsewhere"),)},
    "other targets": {"specializations": changed(targets=("gfx942", "gfx1100"))},
    "options of other targets": {"specializations": changed(options=CompileOptions(targets=(("gfx1100", CompileOptions(opt_level=1)),)))},
    "a project somewhere else": {"project": "/elsewhere"},
}
OTHER: dict[str, dict[str, Any]] = {
    "module": {"module": "pkg.other"},
    "target": {"target": "gfx1100"},
    "axes": {"axes": (("nic", "x"),)},
    "environment": {"environment": (("NAME", "value"),)},
    "an integer for a boolean": {"specializations": changed(params=(("N", True),))},
    "a number for an integer": {"specializations": changed(params=(("N", 1.0),))},
    "options": {"specializations": changed(options=CompileOptions(opt_level=1))},
    "options of this target": {"specializations": changed(options=CompileOptions(targets=(("gfx942", CompileOptions(opt_level=1)),)))},
    "one more specialization": {"specializations": (ONE, replace(ONE, name="g", params=(("N", 2),)))},
    "extern": {"externs": (replace(RULE, compatible=("gfx942",)),)},
}


def test_the_same_job(place: Place) -> None:
    place.keep({})
    assert place.found() == b"code"
    assert place.found(toolchain="another") is None
    assert place.said == []


@pytest.mark.parametrize("case", EQUAL)
def test_what_does_not_matter(case: str, place: Place) -> None:
    place.keep({})
    assert place.found(**EQUAL[case]) == b"code"


@pytest.mark.parametrize("case", OTHER)
def test_what_matters(case: str, place: Place) -> None:
    place.keep({})
    assert place.found(**OTHER[case]) is None


def test_the_result_whose_dependencies_are_what_they_were(place: Place) -> None:
    source = place.project / "mod.py"
    for text in ("one", "two"):
        source.write_text(text)
        place.keep({"file:mod.py": digest_of_file(source)}, code=text.encode())
        assert place.found() == text.encode()
    source.write_text("three")
    assert place.found() is None
    source.write_text("one")
    assert place.found() == b"one"
    source.unlink()
    assert place.found() is None


def test_of_many_results_the_latest_are_kept(place: Place) -> None:
    source = place.project / "mod.py"
    for number in range(20):
        source.write_text(str(number))
        place.keep({"file:mod.py": digest_of_file(source)})
    source.write_text("19")
    assert place.found() is not None
    source.write_text("0")
    assert place.found() is None


def test_a_result_of_unknown_dependencies_is_not_kept(place: Place) -> None:
    place.keep(None)
    assert place.found() is None


def test_fingerprints(place: Place) -> None:
    (place.project / "folder").mkdir()
    (place.project / "folder" / "a").write_text("")
    first = Fingerprints(str(place.project), {"SET": "1"})
    names = ["file:folder/a", "file:absent", "list:folder", "list:absent", "env:SET", "env:UNSET", "dist:pytest", "dist:no-such-thing"]
    known = {name: first[name] for name in names}
    assert [name for name, digest in known.items() if digest is None] == ["file:absent", "list:absent", "env:UNSET", "dist:no-such-thing"]
    assert Fingerprints(str(place.project), {"SET": "1"}).agree(known)
    (place.project / "folder" / "b").write_text("")
    (place.project / "absent").write_text("")
    later = Fingerprints(str(place.project), {"SET": "2", "UNSET": ""})
    assert [name for name in names if later[name] != known[name]] == ["file:absent", "list:folder", "env:SET", "env:UNSET"]


def test_seconds_are_those_of_the_last_time_for_as_many(place: Place) -> None:
    assert place.cache().seconds(place.job()) is None
    place.keep(None)
    assert place.cache("another").seconds(place.job()) == 2.0
    assert place.cache().seconds(place.job(specializations=(ONE, ONE, ONE))) == 6.0


def test_small_things_with_dependencies(place: Place) -> None:
    cache = place.cache()
    cache.remember(b"data", "key", 1, dependencies={"env:NAME": None})
    assert place.cache().recall("key", 1) == b"data"
    assert place.cache().recall("key", "1") is None
    place.environ["NAME"] = "set"
    assert place.cache().recall("key", 1) is None


def test_no_cache(place: Place) -> None:
    cache = BuildCache(None, project=place.project, environ={})
    job = place.job()
    cache.remember(b"data", "key")
    assert (cache.recall("key"), cache.lookup(job), cache.seconds(job)) == (None, None, None)
    for name in ("main.hsaco", "f.o"):
        (place.folder / job.output / name).write_bytes(b"")
    assert not cache.store(job, RESULT, {}).cached
    assert cache.try_lock(job) is not None
    cache.close()


def test_two_builds_do_not_do_one_job_at_once(place: Place) -> None:
    first, second, job = place.cache(), place.cache(), place.job()
    lock = first.try_lock(job)
    assert lock is not None
    with lock:
        assert second.try_lock(place.job()) is None
        other = place.job()
        second.give_up_lock(other)
        assert second.try_lock(other) is not None
    assert second.try_lock(place.job()) is not None


def test_a_job_depends_on_the_compiler_of_its_own_front_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    described = frontend_of("flydsl")
    digests = {"flydsl": "1", "other": "1"}
    known = {name: replace(described, name=name, digest=lambda name=name: digests[name]) for name in digests}
    monkeypatch.setattr("flydsl_build.jobs.frontend.frontend_of", known.__getitem__)
    place.keep({})
    digests["other"] = "2"
    assert place.cache().peek(place.job()) is not None
    digests["flydsl"] = "2"
    assert place.cache().peek(place.job()) is None


def test_the_toolchain(tmp_path: Path) -> None:
    bitcode = tmp_path / "toolkit" / "amdgcn" / "bitcode"
    bitcode.mkdir(parents=True)
    (bitcode / "ocml.bc").write_bytes(b"one")
    toolkit = Toolkit(folder=str(tmp_path / "toolkit"), linker="LLD 19.1.7", has_device_bitcode=True, trace=())
    linker = Linker(command=("ld.lld",), version="LLD 19.1.7", identity="a")

    def digest(linker: Linker = linker, root: str = "src") -> str:
        return toolchain_digest(toolkit, linker, project=tmp_path, package_roots=[str(tmp_path / root)])

    first = digest()
    assert digest(replace(linker, command=("/another/ld.lld",))) == first
    assert len({first, digest(replace(linker, identity="b")), digest(root="lib")}) == 3
    (bitcode / "ocml.bc").write_bytes(b"two")
    assert digest() != first
