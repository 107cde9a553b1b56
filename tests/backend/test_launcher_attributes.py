# SPDX-License-Identifier: Apache-2.0
"""What the source sets on its launchers is there in the wheel; what the program sets stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, call_hook, copy_project, members, run_script, unpack

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """
[tool.flydsl-build.kernels."tiny_kernels.negate:Group.inner"]
args = { X = "f32[L]" }

[tool.flydsl-build.kernels."tiny_kernels.negate:build"]
params = { tile = [1, 2] }
args = { X = "f32[L]" }

[tool.flydsl-build.kernels."tiny_kernels.negate:build_around"]
params = {}
args = { X = "f32[L]" }
launcher = "launch"

[tool.flydsl-build.kernels."tiny_kernels.negate:build_two"]
params = {}
returns = ["first", "second"]
args = { first = { X = "f32[L]" }, second = { X = "f32[L]" } }
"""

SOURCE = """

import enum
import pathlib

from flydsl.runtime.device import get_rocm_arch, get_warp_size


class Mode(enum.Enum):
    FAST = 1


negate._tn = 64
negate.names = ["a", ("b", None)]
negate.mode = Mode.FAST
negate.dtype = fx.BFloat16
negate.limit = float("inf")
negate.lanes = get_warp_size()
if get_rocm_arch() == "gfx1100":
    negate.only = True
# What is nothing that a manifest could say, or only true here, is not in the wheel.
negate.function = len
negate.table = {"a": 1}
negate.file = __file__
negate.folders = [str(pathlib.Path(__file__).parent)]
# What FlyDSL and the run time have themselves.
negate.compile_hints["waves_per_eu"] = 2
negate.cache_manager = None
negate.load = 5


def made(tile):
    @flyc.jit
    def launch(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        negate_kernel(X, n).launch(grid=((n + 63) // 64, tile, 1), block=(64, 1, 1), stream=stream)

    launch.tile = tile
    return launch


class Group:
    inner = made(7)


def build(tile):
    launch = made(tile)
    launch.compile_hints = {"fast_fp_math": True}
    if tile == 2:
        launch.wide = "yes"
    return launch


def build_around():
    launch = made(3)

    def run(X):
        launch(X, 5)

    run.tile = 30
    run.around = True
    return run


def build_two():
    return made(11), made(12)
"""

CALL = """
import pickle
import tiny_kernels.negate as m
n = m.negate
one, two, around, (first, second) = m.build(1), m.build(2), m.build_around(), m.build_two()

def missing(launcher, name):
    try:
        getattr(launcher, name)
    except AttributeError as error:
        return [str(error), error.name, error.obj is launcher]

found = {
    "plain": [n._tn, list(n.names), n.limit == float("inf"), str(n.dtype)],
    "enum": n.mode is m.Mode.FAST,
    "made": [m.Group.inner.tile, one.tile, two.tile, two.wide, hasattr(one, "wide"), first.tile, second.tile],
    "around": [around.tile, around.around],
    "not there": [hasattr(n, name) for name in ("function", "table", "file", "folders", "cache_manager", "__no__")],
    "missing": missing(n, "nothing"),
    "methods": [callable(n.load), callable(n.bind)],
    "hints": [dict(n.compile_hints), dict(one.compile_hints)],
}
n.names.append("c")
n.compile_hints["x"] = 1
one.compile_hints = {"y": 2}
n._tn, n.mine, one.tile = 65, [1], 100
found["set"] = [n.names, n.compile_hints, one.compile_hints, two.compile_hints, n._tn, n.mine, m.build(1).tile, two.tile]
found["pickled"] = pickle.loads(pickle.dumps(n)) is n and pickle.loads(pickle.dumps(one)) is one
found["loaded"] = n._handle.is_loaded()
print(json.dumps(found))
"""

ON_DEVICE = """
import tiny_kernels.negate as m
answers = []
for name in ("lanes", "only"):
    try:
        answers.append(getattr(m.negate, name))
    except Exception as error:
        answers.append([type(error).__name__, str(error)])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny project for two targets, with attributes on launchers of all kinds."""
    folder = tmp_path_factory.mktemp("attributes")
    project = copy_project(PACKAGES / "tiny", folder / "project")
    settings, source = project / "pyproject.toml", project / "tiny_kernels" / "negate.py"
    settings.write_text(settings.read_text().replace('"gfx942"', '"gfx942", "gfx1100"') + TABLE)
    source.write_text(source.read_text() + SOURCE)
    answer = call_hook(project, "build_wheel", folder)
    return folder / str(answer.value)


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    """A folder with the installed wheel."""
    return unpack(wheel.parent / "site", wheel)


def test_attributes_are_those_of_the_source(site: Path) -> None:
    assert run_script(CALL, site=site) == {
        "plain": [64, ["a", ["b", None]], True, "bf16"],
        "enum": True,
        "made": [7, 1, 2, "yes", False, 11, 12],
        "around": [30, True],
        "not there": [False] * 6,
        "missing": ["<FlyDSL launcher tiny_kernels.negate.negate> has no attribute 'nothing'", "nothing", True],
        "methods": [True, True],
        "hints": [{}, {}],
        "set": [["a", ["b", None], "c"], {"x": 1}, {"y": 2}, {}, 65, [1], 100, 2],
        "pickled": True,
        "loaded": False,
    }


NO_SUCH = "<FlyDSL launcher tiny_kernels.negate.negate> has no attribute 'only'"


@pytest.mark.parametrize(
    ("target", "values"),
    [("gfx942:sramecc+:xnack-", [64, ["AttributeError", NO_SUCH]]), ("gfx1100", [32, True])],
    ids=["gfx942", "gfx1100"],
)
def test_what_depends_on_the_chip_is_that_of_the_device(target: str, values: list[Any], site: Path, hip_library: Path) -> None:
    assert run_script(ON_DEVICE, site=site, hip=hip_library, targets=target) == values


def test_what_depends_on_the_chip_needs_a_device(site: Path, hip_library: Path) -> None:
    assert [kind for kind, _ in run_script(ON_DEVICE, site=site)] == ["NoDeviceError"] * 2
    (kind, text), _ = run_script(ON_DEVICE, site=site, hip=hip_library, targets="gfx1201", FLYDSL_BUILD_LOAD="lazy")
    assert kind == "UnsupportedTargetError"
    assert text.startswith("tiny_kernels.negate: device 0 is gfx1201, and tiny-kernels 1.0 has code only for gfx942, gfx1100\n")


def test_manifest(wheel: Path) -> None:
    launchers = json.loads(members(wheel)["tiny_kernels/_flydsl/negate.json"])["launchers"]
    recorded = {one["name"]: [each.get("attributes") for each in one["specializations"]] for one in launchers}
    both = [{target: {"tile": tile} for target in ("gfx942", "gfx1100")} for tile in (7, 1, 11, 12)]
    assert recorded["Group.inner"] == both[:1]
    assert recorded["build"][0] == both[1]
    assert recorded["build_two"] == both[2:]
    common = {
        "_tn": 64,
        "names": {"list": ["a", ["b", None]]},
        "mode": {"$member": "tiny_kernels.negate:Mode.FAST"},
        "dtype": {"dtype": "bf16"},
        "limit": {"$float": "inf"},
        "load": 5,
    }
    (negate,) = recorded["negate"]
    assert negate == {"gfx942": common | {"lanes": 64}, "gfx1100": common | {"lanes": 32, "only": True}}


USER = """
from tiny_kernels.negate import build, negate

number: int = negate._tn + negate.lanes
text: str = build(2).wide
negate.compile_hints["waves_per_eu"] = 2
negate.compile_hints = {}
wrong: str = negate._tn
"""


def test_type_checker(site: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    (site / "tiny_kernels" / "py.typed").touch()
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", "cache", "user.py"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"MYPYPATH": str(site)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("user.py")]
    assert [line.split(":")[1] for line in lines if "error" in line] == ["8"]
