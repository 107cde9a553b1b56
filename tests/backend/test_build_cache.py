# SPDX-License-Identifier: Apache-2.0
"""Builds of one project again and again: what is compiled is what changed, and the wheel is that of a build without a cache."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, Answer, build_environment, call_hook, copy_project, members

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

JOBS = 4  # two modules, two targets
COUNTS = re.compile(r"^flydsl-build: (\d+) jobs: (\d+) from the cache, (\d+) compiled$", re.MULTILINE)
COMPILED = re.compile(r"^\[\d+/\d+\] ([\w.]+), (gfx\w+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A copy of the project, and a cache of its own."""

    project: Path
    cache: Path
    dist: Path

    def build(self, config: Mapping[str, str] | None = None, *, ok: bool = True, **env: str) -> Built:
        shutil.rmtree(self.dist, ignore_errors=True)
        self.dist.mkdir()
        environ = {"FLYDSL_BUILD_CACHE": "true", "FLYDSL_BUILD_CACHE_DIR": str(self.cache), **env}
        answer = call_hook(self.project, "build_wheel", self.dist, dict(config or {}), env=environ, ok=ok)
        if not ok:
            return Built(answer=answer, wheel=b"", jobs=0, cached=0, compiled=set())
        (counts,) = COUNTS.findall(answer.output)
        jobs, cached, compiled = map(int, counts)
        named = set(COMPILED.findall(answer.output))
        assert jobs == cached + compiled
        assert compiled == len(named)
        return Built(answer=answer, wheel=(self.dist / answer.value).read_bytes(), jobs=jobs, cached=cached, compiled=named)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.project / name
        text = path.read_text()
        assert text.count(old) == 1
        # A .pyc would be valid still: nothing but the content tells.
        status = path.stat()
        path.write_text(text.replace(old, new))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@dataclass(frozen=True, kw_only=True)
class Built:
    answer: Answer
    wheel: bytes
    jobs: int
    cached: int
    compiled: set[tuple[str, str]]

    @property
    def workers(self) -> int:
        return sum("flydsl_build.frontends.worker" in command[-1] for command in self.answer.spawned)


def both_targets(module: str) -> set[tuple[str, str]]:
    return {(f"two_kernels.{module}", target) for target in ("gfx942", "gfx1100")}


FIRST, SECOND = both_targets("first"), both_targets("second")


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A cache in which the project's build has left everything, and its wheel."""
    folder = tmp_path_factory.mktemp("warm")
    project = copy_project(PACKAGES / "two", folder / "project")
    built = Place(project=project, cache=folder / "cache", dist=folder / "dist").build()
    assert (built.jobs, built.compiled) == (JOBS, FIRST | SECOND)
    return folder / "cache", built.wheel


@pytest.fixture
def place(warm: tuple[Path, bytes], tmp_path: Path) -> Place:
    """Another copy of the project, at another place, with a copy of that cache."""
    project = copy_project(PACKAGES / "two", tmp_path / "elsewhere, with another name" / "two")
    shutil.copytree(warm[0], tmp_path / "cache")
    return Place(project=project, cache=tmp_path / "cache", dist=tmp_path / "dist")


@pytest.fixture(scope="module")
def cold_wheel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Place], bytes]:
    """Builds the wheel of a place without a cache."""

    def build(place: Place, *arguments: Any) -> bytes:
        folder = tmp_path_factory.mktemp("cold")
        project = copy_project(place.project, folder / "project")
        answer = call_hook(project, "build_wheel", folder, *arguments)
        return (folder / answer.value).read_bytes()

    return build


# --- nothing changed --------------------------------------------------------------------------------------------------------------


def test_an_unchanged_project_starts_no_process(place: Place, warm: tuple[Path, bytes]) -> None:
    built = place.build()
    assert (built.cached, built.compiled) == (JOBS, set())
    assert built.answer.spawned == []
    assert not {"flydsl", "jinja2"} & built.answer.imported
    assert built.wheel == warm[1]
    # The build folder has stubs in the place of the sources now.
    again = place.build()
    assert (again.compiled, again.answer.spawned, again.wheel) == (set(), [], warm[1])


def test_hot_and_cold_wheels_are_equal(place: Place, warm: tuple[Path, bytes], cold_wheel: Any) -> None:
    assert cold_wheel(place) == warm[1]


def test_without_the_cache_everything_is_compiled(place: Place, warm: tuple[Path, bytes]) -> None:
    before = sorted(place.cache.rglob("*"))
    built = place.build({"cache": "false"})
    assert (built.compiled, built.wheel) == (FIRST | SECOND, warm[1])
    assert sorted(place.cache.rglob("*")) == before


def test_dumps_are_written_by_compiling(place: Place, tmp_path: Path) -> None:
    built = place.build({"dump-ir": str(tmp_path / "ir"), "archs": "gfx942"})
    assert built.cached == 0
    assert list((tmp_path / "ir").rglob("*_isa.s"))


# --- one thing changed --------------------------------------------------------------------------------------------------------------

CHANGES: dict[str, tuple[str, str, str, set[tuple[str, str]]]] = {
    "a kernel": ("two_kernels/second.py", "shift(X[index])", "shift(X[index] * 2.0)", SECOND),
    "its comment": ("two_kernels/second.py", '"""Shift the', '"""Move the', SECOND),
    "a helper of both": ("two_kernels/helper.py", "THREADS = 64", "THREADS = 32", FIRST | SECOND),
    "a package that both are in": ("two_kernels/__init__.py", "Apache-2.0\n", "Apache-2.0\nNAME = 1\n", FIRST | SECOND),
    "a comment elsewhere": ("two_kernels/unrelated.py", "# A comment.", "# Another one.", set()),
    "a data file": ("two_kernels/data/factor.json", "3.0", "4.0", FIRST),
    "bitcode of one target": (
        "lib/shift_gfx942.ll",
        "fadd float %value, 1.0",
        "fadd float %value, 2.0",
        {("two_kernels.second", "gfx942")},
    ),
    "an option of one kernel": ("pyproject.toml", 'first:first"]\n', 'first:first"]\noptions = { opt-level = 1 }\n', FIRST),
    "an option of one target": (
        "pyproject.toml",
        'first:first"]\n',
        'first:first"]\noptions = { gfx942 = { opt-level = 1 } }\n',
        {("two_kernels.first", "gfx942")},
    ),
    "an argument type": ("pyproject.toml", 'second:second"]\nargs = { X = "f32[L]"', 'second:second"]\nargs = { X = "f32[L]@16"', SECOND),
    "the environment table": (
        "pyproject.toml",
        "[tool.flydsl-build.externs",
        '[tool.flydsl-build.env]\nX = "1"\n\n[tool.flydsl-build.externs',
        FIRST | SECOND,
    ),
    "targets of one kernel": ("pyproject.toml", 'second:second"]\n', 'second:second"]\narchs = ["gfx942"]\n', set()),
    "the version": ("pyproject.toml", 'version = "1.0"', 'version = "1.1"', set()),
    "when it is loaded": ("pyproject.toml", "[tool.flydsl-build]\n", '[tool.flydsl-build]\nload = "lazy"\n', set()),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_changed_is_compiled(case: str, place: Place, cold_wheel: Any) -> None:
    name, old, new, expected = CHANGES[case]
    place.edit(name, old, new)
    built = place.build()
    assert built.compiled == expected
    if case in {"a helper of both", "bitcode of one target", "targets of one kernel", "when it is loaded"}:
        assert built.wheel == cold_wheel(place)
    again = place.build()
    assert (again.compiled, again.wheel) == (set(), built.wheel)


def test_the_stub_follows_the_targets_of_other_modules(place: Place, cold_wheel: Any) -> None:
    """A module's stub has the targets that only others have; nothing is compiled where those change, and what was kept is not served."""

    def others(wheel: bytes) -> list[list[str]]:
        place.dist.joinpath("built.whl").write_bytes(wheel)
        texts = [members(place.dist / "built.whl")[f"two_kernels/{name}.py"].decode() for name in ("first", "second")]
        return [re.findall(r"gfx\w+", text.partition("other_archs=(")[2].partition(")")[0]) for text in texts]

    assert others(place.build().wheel) == [[], []]
    place.edit("pyproject.toml", 'first:first"]\n', 'first:first"]\narchs = ["gfx1100"]\n')
    narrowed = place.build()
    assert (narrowed.compiled, others(narrowed.wheel)) == (set(), [["gfx942"], []])
    place.edit("pyproject.toml", 'second:second"]\n', 'second:second"]\narchs = ["gfx942"]\n')
    apart = place.build()
    assert (apart.compiled, others(apart.wheel)) == (set(), [["gfx942"], ["gfx1100"]])
    assert apart.wheel == cold_wheel(place)
    place.edit("pyproject.toml", 'archs = ["gfx1100"]\n', 'archs = ["gfx942"]\n')
    together = place.build()
    assert (together.compiled, others(together.wheel)) == (set(), [[], []])
    place.edit("pyproject.toml", 'first:first"]\narchs = ["gfx942"]\n', 'first:first"]\n')
    # What a build leaves out is in no other module of its wheel.
    assert others(place.build().wheel) == [[], ["gfx1100"]]
    assert others(place.build({"archs": "gfx942"}).wheel) == [[], []]


def test_back_to_what_was_built_before(place: Place, warm: tuple[Path, bytes]) -> None:
    place.edit("two_kernels/second.py", "shift(X[index])", "shift(X[index] * 2.0)")
    assert place.build().compiled == SECOND
    place.edit("two_kernels/second.py", "shift(X[index] * 2.0)", "shift(X[index])")
    built = place.build()
    assert (built.compiled, built.wheel) == (set(), warm[1])


def test_an_environment_variable_that_a_module_reads(place: Place) -> None:
    assert place.build(TWO_KERNELS_TWICE="1").compiled == FIRST
    assert place.build(TWO_KERNELS_TWICE="1").compiled == set()
    assert place.build(TWO_KERNELS_ONCE="1").compiled == set()


def test_a_file_that_hides_an_imported_one(place: Place) -> None:
    helper = place.project / "two_kernels" / "helper"
    helper.mkdir()
    shutil.copyfile(place.project / "two_kernels" / "helper.py", helper / "__init__.py")
    place.edit("pyproject.toml", '["two_kernels"]', '["two_kernels", "two_kernels.helper"]')
    assert place.build().compiled == FIRST | SECOND


def test_another_linker(place: Place, tmp_path: Path) -> None:
    linker = shutil.which("ld.lld-19") or shutil.which("ld.lld")
    if linker is None:
        pytest.skip("no ld.lld on PATH")
    tool = tmp_path / "ld.lld"
    tool.write_text(f'#!/bin/sh\n# Says that it is another one.\nexec {linker} "$@"\n')
    tool.chmod(0o755)
    assert place.build({"lld": str(tool)}).compiled == FIRST | SECOND
    assert place.build({"lld": str(tool)}).compiled == set()


def test_one_more_target(place: Place) -> None:
    text = (place.project / "lib" / "shift_gfx1100.ll").read_text()
    (place.project / "lib" / "shift_gfx1201.ll").write_text(text.replace("gfx1100", "gfx1201"))
    # What was compiled for the others does not depend on it.
    built = place.build({"archs": "gfx942,gfx1100,gfx1201"})
    assert (built.jobs, built.compiled) == (6, {("two_kernels.first", "gfx1201"), ("two_kernels.second", "gfx1201")})


# --- files that modules find at run time --------------------------------------------------------------------------------------------

DYNAMIC = """
import importlib
import os
import pkgutil
from pathlib import Path

LISTED = len(os.listdir(Path(__file__).parent / "data"))
OPTIONAL = Path(__file__).parent / "optional.txt"
try:
    TEXT = OPTIONAL.read_text()
except FileNotFoundError:
    TEXT = ""
WIDTH = importlib.import_module("two_kernels." + "widths").WIDTH
DATA = pkgutil.get_data("two_kernels", "data/packaged.txt")
THREADS = 64


def scaled(value, factor):
    return value * factor * WIDTH
"""


@pytest.fixture
def dynamic(tmp_path: Path) -> Place:
    """A project whose helper looks around; built once."""
    project = copy_project(PACKAGES / "two", tmp_path / "two")
    package = project / "two_kernels"
    (package / "helper.py").write_text(DYNAMIC)
    (package / "widths.py").write_text("WIDTH = 1.0\n")
    (package / "data" / "packaged.txt").write_text("1")
    place = Place(project=project, cache=tmp_path / "cache", dist=tmp_path / "dist")
    assert place.build({"archs": "gfx942"}).compiled == {("two_kernels.first", "gfx942"), ("two_kernels.second", "gfx942")}
    assert place.build({"archs": "gfx942"}).compiled == set()
    return place


@pytest.mark.parametrize("name", ["optional.txt", "data/more.txt", "data/packaged.txt", "widths.py"])
def test_files_found_at_run_time(dynamic: Place, name: str) -> None:
    (dynamic.project / "two_kernels" / name).write_text("WIDTH = 2.0\n")
    # Either module's job may have been the one in which the helper ran; the other uses it as well.
    assert dynamic.build({"archs": "gfx942"}).compiled == {("two_kernels.first", "gfx942"), ("two_kernels.second", "gfx942")}


def test_declarations_in_python(tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "two", tmp_path / "two")
    settings = project / "pyproject.toml"
    text = settings.read_text()
    text = text.replace('[tool.flydsl-build.kernels."two_kernels.second:second"]\nargs = { X = "f32[L]" }\n', "")
    settings.write_text(text.replace('archs = ["gfx942", "gfx1100"]', 'archs = ["gfx942"]\nkernels-from = "declared:kernels"'))
    (project / "declared.py").write_text(
        'from pathlib import Path\nTYPE = Path("type.txt").read_text()\n'
        'def kernels():\n    return {"two_kernels.second:second": {"args": {"X": TYPE}}}\n'
    )
    (project / "type.txt").write_text("f32[L]")
    place = Place(project=project, cache=tmp_path / "cache", dist=tmp_path / "dist")
    first = place.build()
    assert len(first.compiled) == 2
    again = place.build()
    assert (again.compiled, again.answer.spawned, again.wheel) == (set(), [], first.wheel)
    (project / "type.txt").write_text("f32[L]@16")
    assert place.build().compiled == {("two_kernels.second", "gfx942")}


# --- other machines ---------------------------------------------------------------------------------------------------------------------


def test_a_cache_that_machines_share(place: Place, warm: tuple[Path, bytes], tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    shutil.rmtree(place.cache)
    remote = {"remote-cache": f"file://{tmp_path}/shared"}
    assert place.build({**remote, "remote-cache-write": "true"}).compiled == FIRST | SECOND
    other = replace(place, cache=tmp_path / "other-cache")
    built = other.build(remote)
    assert (built.compiled, built.workers, built.wheel) == (set(), 0, warm[1])
    # Now it is in the local cache, and nobody asks further.
    shutil.rmtree(tmp_path / "shared")
    again = other.build(remote)
    assert (again.compiled, again.answer.spawned) == (set(), [])
    assert "fsspec" not in again.answer.imported


def test_a_shared_cache_out_of_reach(place: Place) -> None:
    pytest.importorskip("aiohttp")
    place.edit("two_kernels/second.py", "shift(X[index])", "shift(X[index] * 2.0)")
    built = place.build({"remote-cache": "http://me:secret@127.0.0.1:9/x", "remote-cache-write": "true"})
    assert built.compiled == SECOND
    assert (
        built.answer.output.count("warning: the remote cache http://127.0.0.1:9/x cannot be used (Cannot connect to host 127.0.0.1:9") == 1
    )
    assert "secret" not in built.answer.output


# --- what goes wrong -------------------------------------------------------------------------------------------------------------------


def blobs(place: Place) -> list[Path]:
    return [path for path in sorted((place.cache / "v1" / "blobs").rglob("*")) if path.is_file()]


def test_damaged_files_are_made_again(place: Place, warm: tuple[Path, bytes]) -> None:
    for path in blobs(place):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    built = place.build()
    assert (built.compiled, built.wheel) == (FIRST | SECOND, warm[1])
    assert "is damaged: it is removed and made again" in built.answer.output
    again = place.build()
    assert (again.compiled, again.wheel) == (set(), warm[1])
    assert "is damaged" not in again.answer.output


def test_lost_files_are_made_again(place: Place, warm: tuple[Path, bytes]) -> None:
    for path in blobs(place)[::2]:
        path.unlink()
    built = place.build()
    assert built.wheel == warm[1]
    assert place.build().compiled == set()


def test_a_cache_that_cannot_be(place: Place, warm: tuple[Path, bytes], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    built = place.build({"cache-dir": str(tmp_path / "file" / "cache")})
    assert (built.compiled, built.wheel) == (FIRST | SECOND, warm[1])
    assert built.answer.output.count("cannot be written (Not a directory): nothing is added to it") == 1


def test_a_limit_that_is_too_small(place: Place, warm: tuple[Path, bytes]) -> None:
    place.edit("two_kernels/second.py", "shift(X[index])", "shift(X[index] * 2.0)")
    place.build({"cache-size": "1 kB"})
    assert sum(path.stat().st_size for path in blobs(place)) < 1000
    place.edit("two_kernels/second.py", "shift(X[index] * 2.0)", "shift(X[index])")
    assert place.build().wheel == warm[1]


# --- builds that are stopped, and builds at the same time -----------------------------------------------------------------------------------


def start(place: Place, restrict: Callable[[], None] | None = None, **env: str) -> subprocess.Popen[str]:
    place.dist.mkdir(exist_ok=True)
    shim = place.dist.parent / "shim"
    shim.mkdir(exist_ok=True)
    environ = {**build_environment(shim), "FLYDSL_BUILD_CACHE": "true", "FLYDSL_BUILD_CACHE_DIR": str(place.cache), **env}
    code = f"import flydsl_build.backend as b; b.build_wheel({str(place.dist)!r}, {{'jobs': '1'}})"
    return subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        cwd=place.project,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=restrict,  # noqa: PLW1509 - no threads here
    )


def without_override() -> None:
    """Make root obey permissions, from the next program on: https://man7.org/linux/man-pages/man7/capabilities.7.html."""
    set_bounding_drop, dac_override = 24, 1
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(set_bounding_drop, dac_override, 0, 0, 0)


def test_a_cache_that_can_only_be_read(place: Place, warm: tuple[Path, bytes]) -> None:
    folders = [path for path in (place.cache, *place.cache.rglob("*")) if path.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with start(place, restrict=without_override) as process:
            output = process.communicate()[0]
        assert "4 jobs: 4 from the cache, 0 compiled" in output
        assert next(place.dist.glob("*.whl")).read_bytes() == warm[1]
        place.edit("two_kernels/second.py", "shift(X[index])", "shift(X[index] * 2.0)")
        with start(place, restrict=without_override) as process:
            output = process.communicate()[0]
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert "4 jobs: 2 from the cache, 2 compiled" in output
    # Those of the module that an earlier build made count as well.
    assert re.findall(r"^\[\d+/\d+\]", output, re.MULTILINE) == ["[3/4]", "[4/4]"]
    assert output.count("cannot be written (Permission denied): nothing is added to it") == 1


def read_until(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return "".join(lines)
    pytest.fail("".join(lines))


def workers_of(marker: Path) -> list[int]:
    """Return the processes that have the marker in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"TEST_MARKER={marker}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_build_that_is_stopped_in_the_middle(number: signal.Signals, place: Place, warm: tuple[Path, bytes], tmp_path: Path) -> None:
    shutil.rmtree(place.cache)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with start(place, TEST_MARKER=str(place.dist), TMPDIR=str(temporary)) as process:
        read_until(process, "[1/4]")
        assert list(temporary.iterdir()) != []
        process.send_signal(number)
        process.communicate()
    if number != signal.SIGKILL:
        assert list(temporary.iterdir()) == []
    if number != signal.SIGINT:
        # Whoever sent it sees that it was obeyed.
        assert process.returncode == -number
    deadline = time.monotonic() + 10
    while workers_of(place.dist) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers_of(place.dist) == []
    assert list(place.dist.rglob("*.whl")) == []
    if number == signal.SIGINT:
        assert list(place.dist.iterdir()) == []
    built = place.build()
    # The build goes on where it was.
    assert built.cached >= 1
    assert built.cached + len(built.compiled) == JOBS
    assert built.wheel == warm[1]


def test_two_builds_at_once_share_the_work(place: Place, warm: tuple[Path, bytes], tmp_path: Path) -> None:
    shutil.rmtree(place.cache)
    other = Place(project=copy_project(place.project, tmp_path / "other"), cache=place.cache, dist=tmp_path / "other-dist")
    with start(place) as one, start(other) as two:
        outputs = [one.communicate()[0], two.communicate()[0]]
    assert (one.returncode, two.returncode) == (0, 0), "\n".join(outputs)
    wheels = [next(folder.glob("*.whl")).read_bytes() for folder in (place.dist, other.dist)]
    assert wheels == [warm[1], warm[1]]
    compiled = [COMPILED.findall(output) for output in outputs]
    assert sorted(compiled[0] + compiled[1]) == sorted(FIRST | SECOND)


# --- workers --------------------------------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal
from pathlib import Path
marker = Path({marker!r})
if {condition}:
    marker.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("always", [False, True])
def test_a_worker_that_is_killed_is_tried_again_alone(always: bool, place: Place, tmp_path: Path) -> None:
    shutil.rmtree(place.cache)
    path = place.project / "two_kernels" / "second.py"
    code = KILLED.format(marker=str(tmp_path / "marker"), condition="True" if always else "not marker.exists()")
    path.write_text(path.read_text() + code)
    built = place.build({"archs": "gfx942"}, ok=not always)
    if always:
        assert built.answer.status == 1
        assert "two_kernels.second, gfx942: the kernel process died by SIGKILL" in built.answer.output
        assert "it was tried again with no other beside it" in built.answer.output
        assert re.findall(r"^\[(.+?)\] [\w.]+, gfx942: (failed)?", built.answer.output, re.MULTILINE) == [
            ("1/2", ""),
            ("2/2, 1 failed", "failed"),
        ]
        assert "flydsl-build: 2 jobs: 0 from the cache, 1 compiled, 1 failed\n" in built.answer.output
    else:
        assert built.compiled == {("two_kernels.first", "gfx942"), ("two_kernels.second", "gfx942")}
    # What was compiled beside it is kept.
    path.write_text(path.read_text().replace(code, ""))
    assert ("two_kernels.first", "gfx942") not in place.build({"archs": "gfx942"}).compiled
