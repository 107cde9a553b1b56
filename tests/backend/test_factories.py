# SPDX-License-Identifier: Apache-2.0
"""Factories of every form, from the declaration to the launch: `tests/packages/factories`, built once for two targets."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, call_hook, copy_project, manifest, members, run_script

if TYPE_CHECKING:
    from pathlib import Path

DEVICE = "gfx942:sramecc+:xnack-"


# --- the manifest ------------------------------------------------------------------------------------------------------

# The specializations of each launcher: parameters completed by plain defaults, which launcher, constexpr, parameters of its own.
SCALE = {"factor": 2.0, "store_stats": False}
PAIR = {"dtype_str": "f32"}
BACKWARD = ["X", "Y", "rows", "stream"]
SPECIALIZATIONS: dict[str, dict[str, tuple[dict[str, Any], str | None, dict[str, Any], list[str] | None]]] = {
    "build_scale": {
        **{f"build_scale-N{n}": ({"N": n, **SCALE}, None, {}, None) for n in (64, 128, 256, 512, 1024, 2048)},
        "build_scale-N64-store_stats_True-factor4_0": (
            {"N": 64, "factor": 4.0, "store_stats": True},
            None,
            {},
            ["X", "Stats", "rows", "stream"],
        ),
    },
    # backward has no `block`: for it, the two values are one specialization.
    "build_pair": {
        "build_pair-N64-block64-forward": ({"N": 64, **PAIR}, "forward", {"block": 64}, None),
        "build_pair-N64-block64-backward": ({"N": 64, **PAIR}, "backward", {}, BACKWARD),
        "build_pair-N64-block128-forward": ({"N": 64, **PAIR}, "forward", {"block": 128}, None),
        "build_pair-N128-block64-forward": ({"N": 128, **PAIR}, "forward", {"block": 64}, None),
        "build_pair-N128-block64-backward": ({"N": 128, **PAIR}, "backward", {}, BACKWARD),
        "build_pair-N128-block128-forward": ({"N": 128, **PAIR}, "forward", {"block": 128}, None),
    },
    "build_table": {"build_table-launch": ({}, "launch", {}, None)},
    "build_named": {"build_named-up": ({}, "up", {}, None), "build_named-down": ({}, "down", {}, None)},
    "Shift": {
        f"Shift-amount{str(amount).replace('.', '_')}-{element}": ({"amount": amount, "scale": 1.0}, element, {}, None)
        for amount in (1.0, 2.0)
        for element in ("run", "undo")
    },
    "Callable": {"Callable-amount3_0": ({"amount": 3.0}, None, {}, None)},
    "convert": {f"convert-{dtype}": ({}, None, {"dtype": dtype}, None) for dtype in ("f32", "i32")},
}
RETURNS = {
    "build_pair": {"form": "tuple", "names": ["forward", "backward"]},
    "build_table": {"form": "dict", "names": ["launch"]},
    "build_named": {"form": "namedtuple", "names": ["up", "down"]},
    "Shift": {"form": "object", "names": ["run", "undo"]},
}


def test_manifest(factories_wheel: Path) -> None:
    launchers = manifest(factories_wheel, "factory_kernels/_flydsl/made.json")["launchers"]
    found = {
        launcher["name"]: {
            one["name"]: (
                one["params"],
                one.get("element"),
                one["constexpr"],
                [parameter["name"] for parameter in one["parameters"]] if "parameters" in one else None,
            )
            for one in launcher["specializations"]
        }
        for launcher in launchers
    }
    assert found == SPECIALIZATIONS
    assert {launcher["name"]: launcher["returns"] for launcher in launchers if "returns" in launcher} == RETURNS
    assert {launcher["name"]: launcher["kind"] for launcher in launchers if launcher["kind"] != "factory"} == {"convert": "launcher"}
    (scale,) = (launcher for launcher in launchers if launcher["name"] == "build_scale")
    # Of `lanes`, each target has another default; `activation` is a function: both have no plain default.
    assert {parameter["name"]: parameter.get("default", "none") for parameter in scale["factory_parameters"]} == {
        "N": "none",
        "store_stats": False,
        "factor": 2.0,
        "lanes": None,
        "activation": None,
    }
    (dtype,) = (one for launcher in launchers for one in launcher["parameters"] if one["name"] == "dtype")
    assert (dtype["role"], dtype["default"]) == ("type", "f32")


# --- the interface -----------------------------------------------------------------------------------------------------

INTERFACE = '''
class _Bound_build_scale(_Bound, _Protocol):
    def update(self, **arguments: _Any) -> None: ...

class _Launcher_build_scale(_Launcher, _Protocol):
    def __call__(self, *args: _Any, **kwargs: _Any) -> None:
        """Launch what build_scale returned."""
    def bind(self, *args: _Any, **kwargs: _Any) -> _Bound_build_scale: ...

class _Bound_build_pair_forward(_Bound, _Protocol):
    def update(self, *, X: _Tensor = ..., rows: int = ..., block: int = ..., stream: _Stream = ...) -> None: ...

class _Launcher_build_pair_forward(_Launcher, _Protocol):
    def __call__(self, X: _Tensor, rows: int, block: int, stream: _Stream = None) -> None:
        """Launch forward of what build_pair returned."""
    def bind(self, X: _Tensor, rows: int, block: int, stream: _Stream = None) -> _Bound_build_pair_forward: ...

class _Bound_build_pair_backward(_Bound, _Protocol):
    def update(self, *, X: _Tensor = ..., Y: _Tensor = ..., rows: int = ..., stream: _Stream = ...) -> None: ...

class _Launcher_build_pair_backward(_Launcher, _Protocol):
    def __call__(self, X: _Tensor, Y: _Tensor, rows: int, stream: _Stream = None) -> None:
        """Launch backward of what build_pair returned."""
    def bind(self, X: _Tensor, Y: _Tensor, rows: int, stream: _Stream = None) -> _Bound_build_pair_backward: ...

class _Bound_build_table(_Bound, _Protocol):
    def update(self, *, X: _Tensor = ..., n: int = ..., stream: _Stream = ...) -> None: ...

class _Launcher_build_table(_Launcher, _Protocol):
    def __call__(self, X: _Tensor, n: int, stream: _Stream = None) -> None:
        """Launch one of what build_table returned."""
    def bind(self, X: _Tensor, n: int, stream: _Stream = None) -> _Bound_build_table: ...

class _Bound_build_named_up(_Bound, _Protocol):
    def update(self, *, X: _Tensor = ..., n: int = ..., stream: _Stream = ...) -> None: ...

class _Launcher_build_named_up(_Launcher, _Protocol):
    def __call__(self, X: _Tensor, n: int, stream: _Stream = None) -> None:
        """Launch up of what build_named returned."""
    def bind(self, X: _Tensor, n: int, stream: _Stream = None) -> _Bound_build_named_up: ...

class _Bound_build_named_down(_Bound, _Protocol):
    def update(self, *, X: _Tensor = ..., n: int = ..., stream: _Stream = ...) -> None: ...

class _Launcher_build_named_down(_Launcher, _Protocol):
    def __call__(self, X: _Tensor, n: int, stream: _Stream = None) -> None:
        """Launch down of what build_named returned."""
    def bind(self, X: _Tensor, n: int, stream: _Stream = None) -> _Bound_build_named_down: ...

class _Returned_build_named(_NamedTuple):
    up: _Launcher_build_named_up
    down: _Launcher_build_named_down

class _Bound_Shift_run(_Bound, _Protocol):
    def update(self, *, X: _Tensor = ..., n: int = ..., stream: _Stream = ...) -> None: ...

class _Launcher_Shift_run(_Launcher, _Protocol):
    def __call__(self, X: _Tensor, n: int, stream: _Stream = None) -> None:
        """Launch run of what Shift returned."""
    def bind(self, X: _Tensor, n: int, stream: _Stream = None) -> _Bound_Shift_run: ...

class _Bound_Shift_undo(_Bound, _Protocol):
    def update(self, *, X: _Tensor = ..., n: int = ..., stream: _Stream = ...) -> None: ...

class _Launcher_Shift_undo(_Launcher, _Protocol):
    def __call__(self, X: _Tensor, n: int, stream: _Stream = None) -> None:
        """Launch undo of what Shift returned."""
    def bind(self, X: _Tensor, n: int, stream: _Stream = None) -> _Bound_Shift_undo: ...

class _Returned_Shift(_Protocol):
    run: _Launcher_Shift_run
    undo: _Launcher_Shift_undo

class _Bound_Callable(_Bound, _Protocol):
    def update(self, *, X: _Tensor = ..., n: int = ..., stream: _Stream = ...) -> None: ...

class _Launcher_Callable(_Launcher, _Protocol):
    def __call__(self, X: _Tensor, n: int, stream: _Stream = None) -> None:
        """Launch what Callable returned."""
    def bind(self, X: _Tensor, n: int, stream: _Stream = None) -> _Bound_Callable: ...

class _Bound_convert(_Bound, _Protocol):
    def update(self, *, X: _Tensor = ..., Out: _Tensor = ..., n: int = ..., dtype: _Any = ..., stream: _Stream = ...) -> None: ...

class _Launcher_convert(_Launcher, _Protocol):
    def __call__(self, X: _Tensor, Out: _Tensor, n: int, dtype: _Any = "f32", stream: _Stream = None) -> None:
        """Write X to Out, converted."""
    def bind(self, X: _Tensor, Out: _Tensor, n: int, dtype: _Any = "f32", stream: _Stream = None) -> _Bound_convert: ...

convert: _Launcher_convert

def build_scale(N: int, store_stats: bool = False, factor: float = 2.0, *, lanes: _Any = None, activation: _Any = None) -> _Launcher_build_scale:
    """Return a launcher that multiplies rows of N by a factor.

    `lanes` differs between chips, and `activation` is a function."""

def build_pair(N: int, dtype_str: str = "f32") -> tuple[_Launcher_build_pair_forward, _Launcher_build_pair_backward]:
    """Return two launchers with different parameters."""

def build_table() -> dict[str, _Launcher_build_table]:
    """Return a launcher and its kernel."""

def build_named() -> _Returned_build_named:
    """Return the launchers of build_named."""

def Shift(amount: float, scale: float = 1.0) -> _Returned_Shift:
    """Launchers that add an amount, and take it away."""

def Callable(amount: float) -> _Launcher_Callable:
    """A class whose instances are launchers."""
'''

USER = """
import numpy as np

from factory_kernels.made import Callable, Shift, build_named, build_pair, build_scale, build_table, convert

x = np.zeros((2, 64), np.float32)
build_scale(64, factor=2.0)(x, 2)
forward, backward = build_pair(64)
forward(x, 2, block=64)
backward(x, x, rows=2)
build_table()["launch"](x, 2)
up, down = build_named()
up(x, n=2)
build_named().down(x, n=2, stream=5)
shift = Shift(1.0)
shift.run(x, 2)
shift.undo.load()
Callable(3.0)(x, 2)
convert(x, x, 2, "i32")
"""

WRONG = """
from factory_kernels.made import Shift, build_named, build_pair

Shift(1.0).redo
build_pair(64)[2]
build_named().up()
"""


def test_interface(factories_wheel: Path) -> None:
    text = members(factories_wheel)["factory_kernels/made.pyi"].decode()
    assert text.partition("    def load(self, device: int | None = None) -> None: ...\n")[2] == INTERFACE


def test_type_checker(factories_site: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    (factories_site / "factory_kernels" / "py.typed").touch()
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", "cache", "user.py", "wrong.py"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"MYPYPATH": str(factories_site)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True)
    # The run time of a wheel has no types of the extension; where it is installed, mypy says nothing of it.
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("user.py", "wrong.py"))]
    assert [":".join(line.split(":")[:2]) for line in lines if "error" in line] == ["wrong.py:4", "wrong.py:5", "wrong.py:6"]


# --- calls -------------------------------------------------------------------------------------------------------------

PREAMBLE = """
import copy, inspect, pickle
import numpy as np
import fake_hip
from factory_kernels import made

hip = fake_hip.FakeHip(argument)

def launched(launcher, *args, **kwargs):
    hip.clear()
    launcher(*args, **kwargs)
    (event,) = hip.events("launch")
    return event["kernel"]

def refused(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    raise AssertionError("not refused")

x, y, s = np.zeros((2, 64), np.float32), np.zeros((2, 64), np.float32), np.zeros(2, np.float32)
line, whole = np.zeros(128, np.float32), np.zeros(128, np.int32)
"""

CALLS = """
pair = made.build_pair(64)
named = made.build_named()
shift = made.Shift(1.0)
table = made.build_table()
stats = made.build_scale(64, True, 4.0)
Float32, Int32, Int64 = (type(name, (), {}) for name in ("Float32", "Int32", "Int64"))
print(json.dumps({
    "kernels": {
        "scale": launched(made.build_scale(64), x, 2),
        "stats": launched(stats, x, s, rows=2),
        "forward 64": launched(pair[0], x, 2, 64),
        "forward 128": launched(pair[0], x, 2, block=128),
        "backward": launched(pair[1], x, y, 2),
        "table": launched(table["launch"], line, 128),
        "up": launched(named.up, line, 128),
        "down": launched(named.down, line, 128),
        "run 1": launched(shift.run, line, 128),
        "run 2": launched(made.Shift(2).run, line, 128),
        "undo 1": launched(shift.undo, line, 128),
        "callable": launched(made.Callable(3.0), line, 128),
        "convert": launched(made.convert, line, line, 128),
        "convert by name": launched(made.convert, line, whole, 128, "i32"),
        "convert by class": launched(made.convert, line, whole, 128, dtype=Int32),
        "convert by default class": launched(made.convert, line, line, 128, dtype=Float32),
    },
    "same": {
        "default by keyword": made.build_scale(64) is made.build_scale(N=64, factor=2.0, store_stats=False),
        "default by position": made.build_scale(64) is made.build_scale(64, False, 2),
        "other parameters": made.build_scale(64) is not made.build_scale(128),
        "tuple": pair is made.build_pair(64, "f32") and type(pair) is tuple,
        "unpacked": made.build_pair(64)[0] is pair[0] and pair[0] is not made.build_pair(128)[0],
        "dict": made.build_table() is table and list(table) == ["launch"],
        "named": tuple(named) == (named.up, named.down) and named._fields == ("up", "down"),
        "object": made.Shift(amount=1.0, scale=1.0) is shift and list(vars(shift)) == ["run", "undo"],
        "pickled launcher": pickle.loads(pickle.dumps(shift.undo)) is shift.undo,
        "pickled item": pickle.loads(pickle.dumps(pair)) == pair,
        "pickled object": pickle.loads(pickle.dumps(shift)) is shift and copy.deepcopy(shift) is shift,
        "pickled named": pickle.loads(pickle.dumps(named)) is named,
    },
    "texts": {
        "shift": repr(shift),
        "forward": repr(pair[0]),
        "launch": repr(table["launch"]),
        "undo": repr(shift.undo),
        "doc": shift.undo.__doc__,
        "stats": str(inspect.signature(stats)),
        "scale": str(inspect.signature(made.build_scale(64))),
        "backward": str(inspect.signature(pair[1])),
        "factory": str(inspect.signature(made.build_scale)),
        "class": made.Shift.__doc__,
        "elements": [one.element for one in made.build_pair.specializations],
        "chosen": [one.name for one in pair[1].specializations],
    },
    "refused": {
        "attribute": refused(getattr, shift, "redo"),
        "own parameter": refused(stats, x, 2),
        "constexpr": refused(pair[0], x, 2, 32),
        "class": refused(made.convert, line, whole, 128, Int64),
        "dtype": refused(made.convert, line, whole, 128, "f32"),
        "type": refused(made.build_scale),
    },
}))
"""


@pytest.fixture(scope="module")
def answer(factories_site: Path, hip_library: Path) -> Any:
    return run_script(PREAMBLE + CALLS, site=factories_site, hip=hip_library, targets=DEVICE, argument=str(hip_library))


def test_each_specialization_launches_its_own_kernel(answer: Any) -> None:
    kernels = answer["kernels"]
    assert len({*kernels.values()}) == len(kernels) - 2
    assert kernels["convert by class"] == kernels["convert by name"] != kernels["convert"] == kernels["convert by default class"]
    families = {name: kernel.rpartition("_kernel_")[0] for name, kernel in kernels.items()}
    assert families["stats"] == "scale_and_count"
    assert families["backward"] == "backward"


def test_same_parameters_give_same_objects(answer: Any) -> None:
    assert answer["same"] == dict.fromkeys(answer["same"], True)


def test_texts(answer: Any) -> None:
    assert answer["texts"] == {
        "shift": "<run, undo of factory_kernels.made.Shift(amount=1.0, scale=1.0)>",
        "forward": "<FlyDSL launcher factory_kernels.made.build_pair(N=64, dtype_str='f32')[0]>",
        "launch": "<FlyDSL launcher factory_kernels.made.build_table()['launch']>",
        "undo": "<FlyDSL launcher factory_kernels.made.Shift(amount=1.0, scale=1.0).undo>",
        "doc": "Launch what Shift(amount=1.0, scale=1.0).undo returned.",
        "stats": "(X, Stats, rows, stream=None)",
        "scale": "(X, rows, stream=None)",
        "backward": "(X, Y, rows, stream=None)",
        "factory": "(N, store_stats=False, factor=2.0, *, lanes=None, activation=None)",
        "class": "Launchers that add an amount, and take it away.",
        "elements": ["forward", "backward", "forward"] * 2,
        "chosen": ["build_pair-N64-block64-backward"],
    }


def test_refusals(answer: Any) -> None:
    refused = answer["refused"]
    assert refused["attribute"] == [
        "AttributeError",
        (
            "Shift(amount=1.0, scale=1.0) has no redo: the wheel was built with run, undo\n"
            "    -> what is returned has to be named in `returns` of the declaration of Shift"
        ),
    ]
    assert refused["own parameter"][0] == "TypeError"
    assert "rows" in refused["own parameter"][1]
    assert refused["constexpr"] == [
        "ValueError",
        (
            "build_pair(N=64, dtype_str='f32')[0](block=32): the wheel was not built for these constexpr values, only for:\n"
            "    build_pair(N=64, dtype_str='f32')[0](block=64)\n"
            "    build_pair(N=64, dtype_str='f32')[0](block=128)\n"
            '    -> add them where the wheel is built: [tool.flydsl-build.kernels."factory_kernels.made:build_pair"] '
            "constexpr = { block = [..., 32] }"
        ),
    ]
    assert refused["class"][0] == "ValueError"
    assert "(dtype=<class '__main__.Int64'>): the wheel was not built for these constexpr values" in refused["class"][1]
    assert refused["class"][1].endswith('"factory_kernels.made:convert"] constexpr = { dtype = [..., "i64"] }')
    assert "argument Out must be f32[L], got i32" in refused["dtype"][1]
    assert "missing a required argument: 'N'" in refused["type"][1]


UNBUILT = """
print(json.dumps([
    refused(made.build_scale, 2000),
    refused(made.build_scale, 64, True),
    refused(made.build_scale, 64, lanes=64),
    refused(made.build_scale, 64, activation=print),
    refused(made.build_pair, np.int64(96), dtype_str="bf16"),
    refused(made.Shift, amount=None),
]))
"""


def test_parameters_that_were_not_built(factories_site: Path, hip_library: Path) -> None:
    texts = run_script(PREAMBLE + UNBUILT, site=factories_site, hip=hip_library, targets=DEVICE, argument=str(hip_library))
    assert {name for name, _ in texts} == {"ValueError"}
    far, stats, lanes, function, several, nothing = (text for _, text in texts)
    key = '    -> add them where the wheel is built: [tool.flydsl-build.kernels."factory_kernels.made:build_scale"] '
    # Equal parameters first, then the distance of numbers; five of the seven.
    assert far == "\n".join(
        [
            (
                "build_scale(N=2000, store_stats=False, factor=2.0): the wheel was not built for these parameters, but for 7 others, "
                "the nearest of which are:"
            ),
            *(f"    build_scale(N={n}, store_stats=False, factor=2.0)" for n in (2048, 1024, 512, 256, 128)),
            key + "params = { N = [..., 2000] }",
        ]
    )
    assert stats.splitlines()[1] == "    build_scale(N=64, store_stats=True, factor=4.0)"
    assert stats.endswith(key + "params = { factor = [..., 2.0] }")
    # A default that cannot be compared can only be left out, or declared.
    assert lanes.startswith("build_scale(N=64, store_stats=False, factor=2.0, lanes=64): the wheel was not built")
    assert lanes.endswith(key + "params = [..., { N = 64, store_stats = false, factor = 2.0, lanes = 64 }]")
    assert "-> activation=<built-in function print> is nothing that can be declared" in function
    assert several.endswith(':build_pair"] params = [..., { N = 96, dtype_str = "bf16" }]')
    assert nothing.startswith("Shift(amount=None, scale=1.0): the wheel was not built for these parameters, only for:\n")


# --- faults of the build -----------------------------------------------------------------------------------------------

DECLARATIONS = """
[build-system]
requires = ["flydsl-build"]
build-backend = "flydsl_build.backend"

[project]
name = "factory-kernels"
version = "1.0"

[tool.setuptools]
packages = ["factory_kernels"]

[tool.flydsl-build]
archs = ["gfx942"]

[tool.flydsl-build.kernels."factory_kernels.made:build_pair"]
params = { N = 64 }

[tool.flydsl-build.kernels."factory_kernels.made:build_table"]
params = {}

[tool.flydsl-build.kernels."factory_kernels.made:build_named"]
params = {}
returns = ["up", "dwon"]
args = { up = { X = "f32[L]" } }

[tool.flydsl-build.kernels."factory_kernels.made:Shift"]
args = { X = "f32[L]" }

[tool.flydsl-build.kernels."factory_kernels.made:Callable"]
params = { amuont = 1.0 }

[tool.flydsl-build.kernels."factory_kernels.made:build_scale"]
params = { factor = 1.0 }

[tool.flydsl-build.kernels."factory_kernels.made:convert"]
constexpr = { dtype = "f31" }
args = { X = "f32[L]", Out = "f32[L]" }

[tool.flydsl-build.kernels."factory_kernels.wrong:three"]
params = {}
returns = ["a", "b"]

[tool.flydsl-build.kernels."factory_kernels.wrong:mixed"]
params = {}

[tool.flydsl-build.kernels."factory_kernels.wrong:single"]
params = {}
returns = ["a"]

[tool.flydsl-build.kernels."factory_kernels.wrong:broken"]
params = { N = 1 }

[tool.flydsl-build.kernels."factory_kernels.wrong:starred"]
params = { sizes = [1] }

[tool.flydsl-build.kernels."factory_kernels.wrong:starred_too"]
params = { size = 1 }

[tool.flydsl-build.kernels."factory_kernels.wrong:bare"]
params = { N = 1 }

[tool.flydsl-build.kernels."factory_kernels.wrong:any_number"]
args = { X = "f32[L]" }

[tool.flydsl-build.kernels."factory_kernels.wrong:by_position"]
params = { second = 5 }

[tool.flydsl-build.kernels."factory_kernels.wrong:pair"]
params = {}
returns = ["a", "b"]
constexpr = { blokc = 64 }
args = { a = { X = "f32[L]" }, b = { X = "f32[L]" } }

[tool.flydsl-build.kernels."factory_kernels.wrong:written"]
params = { size = 1 }
constexpr = { block = 64 }
args = { X = "f32[L]" }
out = ["size"]
"""

WRONG_MODULE = """
import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.jit
def launcher(X: fx.Tensor, block: fx.Constexpr[int]):
    pass


def three():
    return launcher, launcher, launcher


def mixed():
    return launcher, 5


def single():
    return launcher


def written(size):
    return launcher


def broken(N):
    raise ValueError("no " + str(N))


def pair():
    return [launcher, launcher]


def starred(*sizes):
    return launcher


def starred_too(*sizes, wide=False):
    return launcher


def by_position(first=1, second=2, /):
    raise ValueError(f"{first} and {second}")


def bare():
    return launcher


@flyc.jit
def any_number(X: fx.Tensor, **others):
    pass
"""

FAULTS = {
    "made:build_pair": (
        "the factory build_pair returned a tuple, not a FlyDSL launcher",
        'name what it returns: returns = ["forward", "backward"]',
    ),
    "made:build_table": ("the factory build_table returned a dict, not a FlyDSL launcher", 'name what it returns: returns = ["launch"]'),
    "made:build_named": ("the factory build_named returned a Ways without dwon", 'Did you mean "down"?'),
    "made:Shift": (
        "Shift is not a FlyDSL launcher but a type",
        'if its methods are launchers, give the constructor\'s arguments and their names: params = { … }, returns = ["run", "undo"]',
    ),
    "made:Callable": ("params.amuont: Callable(amount) has no parameter amuont", 'Did you mean "amount"?'),
    "made:build_scale": (
        "params gives no value for N of build_scale(N, store_stats, factor, lanes, activation)",
        "add N to params; only what has a default may be left out",
    ),
    "made:convert": ('constexpr.dtype: "f31" is not the name of a FlyDSL type. Did you mean "f32"?', "write the name of a FlyDSL type"),
    "wrong:three": (
        "the factory three returned 3 items, and `returns` names 2",
        'name every item: returns = ["launcher", "launcher_1", "launcher_2"]',
    ),
    "wrong:mixed": ("the factory mixed returned a tuple, not a FlyDSL launcher", 'name what it returns: returns = ["launcher", "value_1"]'),
    "wrong:single": ("the factory single returned one launcher, and `returns` names a", "remove `returns`"),
    "wrong:broken": ("the factory broken failed", "see the author's lines below"),
    "wrong:by_position": ("the factory by_position failed", "ValueError: 1 and 5"),
    "wrong:written": ("out.size: the launcher of written has no parameter size", "Allowed: X."),
    "wrong:starred": (
        "params.sizes: *sizes of starred(*sizes) takes any number of arguments, which cannot be declared\n",
        "declare a factory that takes sizes as one parameter, without the star, or remove it",
    ),
    "wrong:starred_too": ("params.size: starred_too(*sizes, wide) has no parameter size", "Allowed: wide."),
    "wrong:bare": ("params.N: bare() has no parameter N", "-> remove it\n"),
    "wrong:any_number": (
        "parameter **others of any_number(X, **others) takes any number of arguments",
        "give the launcher a fixed signature",
    ),
    "wrong:pair": ("constexpr.blokc: pair.a has no parameter blokc", 'Did you mean "block"?'),
}


@pytest.fixture(scope="module")
def wrong_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("wrong")
    project = copy_project(PACKAGES / "factories", folder / "source")
    (project / "pyproject.toml").write_text(DECLARATIONS, encoding="utf-8")
    (project / "factory_kernels" / "wrong.py").write_text(WRONG_MODULE, encoding="utf-8")
    (folder / "dist").mkdir()
    return call_hook(project, "build_wheel", folder / "dist", ok=False).output


@pytest.mark.parametrize("key", FAULTS)
def test_faults(wrong_output: str, key: str) -> None:
    what, fix = FAULTS[key]
    _, *others = wrong_output.split(f'tool.flydsl-build.kernels."factory_kernels.{key}"')
    texts = [text.partition("tool.flydsl-build")[0] for text in others]
    # The second one of the pair has a fault of its own.
    assert len(texts) == (2 if key == "wrong:pair" else 1)
    assert what in texts[0]
    assert fix in texts[0]


def test_the_authors_line_is_shown(wrong_output: str) -> None:
    assert 'factory_kernels/wrong.py:28: raise ValueError("no " + str(N))' in wrong_output
    assert "ValueError: no 1" in wrong_output
    assert "Traceback" not in wrong_output
