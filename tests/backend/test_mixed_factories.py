# SPDX-License-Identifier: Apache-2.0
"""What factories return beside launchers, objects that select a specialization, launchers inside of functions and classes.

All of it is in `factory_kernels.mixed` of `tests/packages/factories`, built once for two targets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, call_hook, copy_project, manifest, members, run_script

if TYPE_CHECKING:
    from pathlib import Path

DEVICES = {"gfx942": "gfx942:sramecc+:xnack-", "gfx1100": "gfx1100"}


@pytest.fixture(scope="module")
def recorded(factories_wheel: Path) -> dict[str, Any]:
    return manifest(factories_wheel, "factory_kernels/_flydsl/mixed.json")


# --- the manifest ------------------------------------------------------------------------------------------------------


def specializations(recorded: dict[str, Any], name: str) -> list[dict[str, Any]]:
    (found,) = (launcher["specializations"] for launcher in recorded["launchers"] if launcher["name"] == name)
    return found


def test_values_are_recorded(recorded: dict[str, Any]) -> None:
    (small, _) = specializations(recorded, "build_gemm")
    values = {
        "bias": None,
        "block": 64,
        "blocks": [64, 128],
        "dtype": {"dtype": "bf16"},
        "flag": True,
        "list": {"list": [1, 2]},
        "order": "row",
        "share": 0.5,
    }
    assert small["values"] == {"gfx942": values, "gfx1100": values}
    assert [one["values"] for one in specializations(recorded, "build_waves")] == [
        {"gfx942": {"threads": 64 * waves}, "gfx1100": {"threads": 32 * waves}} for waves in (1, 2)
    ]
    (launcher,) = (one for one in recorded["launchers"] if one["name"] == "build_gemm")
    names = ["launch", "block", "blocks", "list", "dtype", "bias", "order", "share", "flag"]
    assert launcher["returns"] == {"form": "tuple", "names": names}


def test_objects_are_recorded_as_tables(recorded: dict[str, Any]) -> None:
    scales = {"first": 1.0, "second": 2.0}
    assert [one["params"] for one in specializations(recorded, "build_configured")] == [
        {"config": {"tile": 4, "name": "plain", "dtype": "f32", "scales": scales, "sizes": [1, 2]}, "other": None},
        {"config": {"tile": 8, "name": "wide", "dtype": "bf16", "scales": {**scales, "first": 3.0}, "sizes": [1, 2]}, "other": None},
    ]
    first, _ = specializations(recorded, "blend")
    assert first["constexpr"] == {"blend": {"steps": 1, "tile": {"rows": 2, "wide": True}}}
    assert first["arguments"]["blend"] == {
        "kind": "struct",
        "type": "Blend",
        "fields": {"factor": {"kind": "scalar", "dtype": "f32"}, "tile": {"kind": "struct", "type": "Tile", "fields": {}}},
    }
    # Placeholders reach into tables.
    assert [one["arguments"]["X"]["shape"] for one in specializations(recorded, "tiled")] == [["L%16"], ["L%16"], ["L%32"]]
    assert {name: [field["name"] for field in fields] for name, fields in recorded["classes"].items()} == {
        "Blend": ["factor", "tile", "steps"],
        "Config": ["tile", "name", "dtype", "scales", "sizes"],
        "Scales": ["first", "second"],
        "Tile": ["rows", "wide"],
    }


# --- calls -------------------------------------------------------------------------------------------------------------

PREAMBLE = """
import copy, pickle
from dataclasses import dataclass
from typing import NamedTuple
import numpy as np
import fake_hip
from factory_kernels import mixed

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
        return f"{type(error).__name__}: {error}"
    raise AssertionError("not refused")

x = np.zeros(128, np.float32)
"""

VALUES = """
launch, *values = mixed.build_gemm()
other = mixed.build_gemm(block=128)
plan, tiled, table = mixed.build_plan(), mixed.Tiled(8), mixed.build_dict()
BFloat16 = type("BFloat16", (), {})
print(json.dumps({
    "kernel": launched(launch, x, 128),
    "values": repr(values),
    "dtype": [values[3] == BFloat16, values[3] != BFloat16, values[3] == "bf16"],
    "other": repr(other[1:3]),
    "same": mixed.build_gemm(64) is mixed.build_gemm() and mixed.build_gemm()[0] is launch,
    "pickled": pickle.loads(pickle.dumps(mixed.build_gemm()))[1:] == tuple(values),
    "waves": [launched(mixed.build_waves(2)[0], x, 128), mixed.build_waves(2)[1], mixed.build_waves(1)[1]],
    "plan": [launched(plan.launch, x, 128), plan.lanes, plan.name, plan._fields, pickle.loads(pickle.dumps(plan)) is plan],
    "object": [launched(tiled.run, x, 128), tiled.tile, repr(tiled), pickle.loads(pickle.dumps(tiled)) is tiled],
    "dict": [launched(table["launch"], x, 128), sorted(table), table["tile"]],
    "loaded": sorted({name.partition(".")[0] for name in sys.modules} & {"flydsl", "torch", "flydsl_build"}),
}))
"""


@pytest.mark.parametrize(("target", "lanes"), [("gfx942", 64), ("gfx1100", 32)])
def test_values_are_those_of_the_source(target: str, lanes: int, factories_site: Path, hip_library: Path) -> None:
    answer = run_script(
        "import sys\n" + PREAMBLE + VALUES, site=factories_site, hip=hip_library, targets=DEVICES[target], argument=str(hip_library)
    )
    assert answer == {
        "kernel": "add_kernel_0",
        "values": "[64, (64, 128), [1, 2], 'bf16', None, 'row', 0.5, True]",
        "dtype": [True, False, True],
        "other": "(128, (128, 256))",
        "same": True,
        "pickled": True,
        "waves": ["add_kernel_0__build_waves_waves2_launch", 2 * lanes, lanes],
        "plan": ["add_kernel_0__build_plan_launch", lanes, "plan", ["launch", "lanes", "name"], True],
        "object": ["add_kernel_0__Tiled_tile8_run", 8, "<run, tile of factory_kernels.mixed.Tiled(tile=8)>", True],
        "dict": ["add_kernel_0__build_dict_launch", ["launch", "tile"], 6],
        "loaded": [],
    }


WITHOUT = """
from factory_kernels import mixed
answers = [mixed.build_gemm(64)[1]]
try:
    mixed.build_waves(1)
except Exception as error:
    answers.append(type(error).__name__)
print(json.dumps(answers))
"""


def test_values_that_depend_on_the_chip_need_a_device(factories_site: Path) -> None:
    assert run_script(WITHOUT, site=factories_site) == [64, "NoDeviceError"]


TWO = """
answers = []
for device in (0, 1):
    hip._library.hipSetDevice(device)
    launch, threads = mixed.build_waves(1)
    answers.append([threads, mixed.build_waves(1)[1]])
print(json.dumps(answers))
"""


def test_values_are_those_of_the_current_device(factories_site: Path, hip_library: Path) -> None:
    targets = f"{DEVICES['gfx942']},{DEVICES['gfx1100']}"
    answer = run_script(PREAMBLE + TWO, site=factories_site, hip=hip_library, targets=targets, argument=str(hip_library))
    assert answer == [[64, 64], [32, 32]]


OBJECTS = """
@dataclass(frozen=True)
class Foreign:
    tile: int = 4
    name: str = "plain"
    dtype: object = type("Float32", (), {})
    scales: object = mixed.Scales()
    sizes: tuple = (1, 2)

class Pair(NamedTuple):
    rows: int
    wide: bool

class Mine:
    def __init__(self, **fields):
        self.__dict__.update(fields)

first = mixed.build_configured(mixed.Config(4))
tile = mixed.Tile(2, True)
print(json.dumps({
    "configured": launched(first, x, 128),
    "by keyword": mixed.build_configured(config=mixed.Config(tile=4, scales=mixed.Scales(second=2.0)), other=None) is first,
    "foreign": mixed.build_configured(Foreign()) is first,
    "wide": launched(mixed.build_configured(mixed.Config(8, "wide", "bf16", mixed.Scales(3.0))), x, 128),
    "pickled": pickle.loads(pickle.dumps(first)) is first,
    "repr": repr(first),
    "blend": [launched(mixed.blend, x, 128, mixed.Blend(0.5, tile, steps)) for steps in (1, 2)],
    "blend of another class": launched(mixed.blend, x, 128, blend=Mine(factor=0.5, tile=Mine(rows=2, wide=True), steps=2)),
    "tiled": [launched(mixed.tiled, x, 128, mixed.Tile(rows, wide)) for rows, wide in ((16, False), (16, True), (32, False))],
    "tiled of a named tuple": launched(mixed.tiled, x, 128, Pair(16, True)),
    "refused": {
        "parameters": refused(mixed.build_configured, mixed.Config(5)),
        "no object": refused(mixed.build_configured, 4),
        "steps": refused(mixed.blend, x, 128, mixed.Blend(0.5, tile, 3)),
        "no field": refused(mixed.blend, x, 128, Mine(factor=0.5, steps=1)),
        "run-time field": refused(mixed.blend, x, 128, mixed.Blend("a", tile, 1)),
        "tile": refused(mixed.tiled, x, 128, mixed.Tile(64, False)),
    },
}))
"""


def test_objects_select_specializations(factories_site: Path, hip_library: Path) -> None:
    answer = run_script(PREAMBLE + OBJECTS, site=factories_site, hip=hip_library, targets=DEVICES["gfx942"], argument=str(hip_library))
    refused = answer.pop("refused")
    tiled = [f"add_kernel_0__tiled_tile_rows{rows}_wide_{wide}" for rows, wide in ((16, False), (16, True), (32, False))]
    config = "config=(dtype='f32', name='plain', scales=(first=1.0, second=2.0), sizes=(1, 2), tile=4)"
    assert answer == {
        "configured": "add_kernel_0__build_configured_config_tile4",
        "by keyword": True,
        "foreign": True,
        "wide": "add_kernel_0__build_configured_config_bf16_wide_scales_first3_0_tile8",
        "pickled": True,
        "repr": f"<FlyDSL launcher factory_kernels.mixed.build_configured({config}, other=None)>",
        "blend": ["blend_kernel_0", "blend_kernel_0__blend_blend_steps2_tile_rows2_wide_True"],
        "blend of another class": "blend_kernel_0__blend_blend_steps2_tile_rows2_wide_True",
        "tiled": tiled,
        "tiled of a named tuple": tiled[1],
    }
    parameters = refused["parameters"].splitlines()
    assert parameters[1] == f"    build_configured({config}, other=None)"
    assert parameters[-1] == (
        '    -> add them where the wheel is built: [tool.flydsl-build.kernels."factory_kernels.mixed:build_configured"] params = { config = '
        '[..., { dtype = "f32", name = "plain", scales = { first = 1.0, second = 2.0 }, sizes = [1, 2], tile = 5 }] }'
    )
    assert refused["no object"].endswith("config=4 is nothing that can be declared: strings, numbers, booleans and lists of these can be")
    assert refused["steps"] == (
        "ValueError: blend(blend=Blend(factor=0.5, tile=Tile(rows=2, wide=True), steps=3)): the wheel was not built for these constexpr values, "
        "only for:\n"
        "    blend(blend=(steps=1, tile=(rows=2, wide=True)))\n"
        "    blend(blend=(steps=2, tile=(rows=2, wide=True)))\n"
        '    -> add them where the wheel is built: [tool.flydsl-build.kernels."factory_kernels.mixed:blend"] '
        "constexpr = { blend = [..., { steps = 3, tile = { rows = 2, wide = true } }] }"
    )
    assert refused["no field"].startswith("ValueError: blend(blend=")
    assert "is nothing that can be declared" in refused["no field"]
    assert "argument blend.factor must be f32" in refused["run-time field"]
    assert refused["tile"].startswith(
        "ValueError: tiled(tile=Tile(rows=64, wide=False)): the wheel was not built for these constexpr values"
    )
    assert refused["tile"].endswith('"factory_kernels.mixed:tiled"] constexpr = { tile = [..., { rows = 64, wide = false }] }')


INSIDE = """
launch, seven = mixed.build_chosen(31.0)
Gemm = mixed.Gemm
made = Gemm.build(13.0)
print(json.dumps({
    "wrapped": launched(mixed.build_wrapped(21.0), x, 128),
    "chosen": [launched(launch, x, 128), seven],
    "module": launched(mixed.negated, x, 128),
    "class": [launched(Gemm.run, x, 128), launched(Gemm.Inner.run, x, n=128), launched(made, x, 128), launched(Gemm.build(14.0), x, 128)],
    "instance": launched(Gemm().run, x, 128),
    "pickled": [
        pickle.loads(pickle.dumps(one, protocol)) is one
        for one in (Gemm.run, Gemm.Inner.run, Gemm.build, made) for protocol in (2, pickle.HIGHEST_PROTOCOL)
    ],
    "copied": copy.deepcopy(Gemm.run) is Gemm.run,
    "names": [Gemm.Inner.run.__name__, Gemm.Inner.run.__qualname__, repr(Gemm.Inner.run), repr(Gemm.build), repr(made)],
    "docs": [mixed.negated.__doc__, mixed.build_wrapped.__doc__, Gemm.build.__doc__],
    "refused": refused(Gemm.build, 15.0),
}))
"""


def test_launchers_inside_of_functions_and_classes(factories_site: Path, hip_library: Path) -> None:
    answer = run_script(PREAMBLE + INSIDE, site=factories_site, hip=hip_library, targets=DEVICES["gfx942"], argument=str(hip_library))
    refused = answer.pop("refused")
    assert answer == {
        "wrapped": "add_kernel_0__build_wrapped_amount21_0",
        "chosen": ["add_kernel_0__build_chosen_amount31_0_launch", 7],
        "module": "add_kernel_0__negated",
        "class": [f"add_kernel_0__Gemm_{name}" for name in ("run", "Inner_run", "build_amount13_0", "build_amount14_0")],
        "instance": "add_kernel_0__Gemm_run",
        "pickled": [True] * 8,
        "copied": True,
        "names": [
            "run",
            "Gemm.Inner.run",
            "<FlyDSL launcher factory_kernels.mixed.Gemm.Inner.run>",
            "<FlyDSL factory factory_kernels.mixed.Gemm.build>",
            "<FlyDSL launcher factory_kernels.mixed.Gemm.build(amount=13.0)>",
        ],
        "docs": ["Call a launcher of the module.", "Return a function that fills in a default.", "Return a launcher that adds an amount."],
    }
    assert refused.endswith('[tool.flydsl-build.kernels."factory_kernels.mixed:Gemm.build"] params = { amount = [..., 15.0] }')


# --- the interface -----------------------------------------------------------------------------------------------------

USER = """
import numpy as np

from factory_kernels.mixed import Blend, Config, Gemm, Scales, Tile, Tiled, blend, build_configured, build_gemm, build_plan, build_waves

x = np.zeros(128, np.float32)
launch, block, blocks, items, dtype, bias, order, share, flag = build_gemm(64)
launch(x, block + blocks[1] + len(items), stream=None if flag else 3)
run, threads = build_waves(1)
run(x, threads + len(order) + int(share))
build_plan().launch(x, build_plan().lanes)
Tiled(8).run(x, Tiled(8).tile)
build_configured(Config(4, scales=Scales(1.0)))(x, 3)
blend(x, 128, Blend(0.5, Tile(2, wide=True), steps=1))
Gemm.run(x, 3)
Gemm.Inner.run(x, n=3)
Gemm.build(13.0)(x, 3)
"""

WRONG = """
from factory_kernels.mixed import Config, Gemm, build_gemm

build_gemm(64)[1](3)
Config()
Gemm.run()
Gemm.build()
"""


def test_type_checker(factories_site: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    (factories_site / "factory_kernels" / "py.typed").touch()
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", "cache", "user.py", "wrong.py"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"MYPYPATH": str(factories_site)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("user.py", "wrong.py"))]
    assert [":".join(line.split(":")[:2]) for line in lines if "error" in line] == [f"wrong.py:{line}" for line in (4, 5, 6, 7)]


def test_results(factories_wheel: Path) -> None:
    text = members(factories_wheel)["factory_kernels/mixed.pyi"].decode()
    lines = text.splitlines()
    assert (
        "def build_gemm(block: int = 64) -> tuple[_Launcher_build_gemm_launch, int, tuple[int, int], list[_Any], str, None, str, float, bool]:"
        in lines
    )
    assert "def build_dict() -> dict[str, _Any]:" in lines
    assert (
        '    def __init__(self, tile: int, name: str = "plain", dtype: _Any = "f32", scales: _Any = ..., sizes: _Any = (1, 2)) -> None: ...'
        in lines
    )
    assert text.endswith('''
class Gemm:
    """Launchers of Gemm."""

    run: _Launcher_Gemm_run

    @staticmethod
    def build(amount: float) -> _Launcher_Gemm_build:
        """Return a launcher that adds an amount."""

    class Inner:
        """Launchers of Gemm.Inner."""

        run: _Launcher_Gemm_Inner_run
''')


# --- what the build says -----------------------------------------------------------------------------------------------

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
"""


def build(folder: Path, tables: str, *, count: int = 1, ok: bool = True) -> str:
    project = copy_project(PACKAGES / "factories", folder / "source")
    archs = "" if tables.startswith("archs") else 'archs = ["gfx942"]\n'
    (project / "pyproject.toml").write_text(DECLARATIONS + archs + tables, encoding="utf-8")
    for number in range(count):
        (project / "factory_kernels" / f"wrong{number}.py").write_text(WRONG_MODULE, encoding="utf-8")
    (folder / "dist").mkdir()
    return call_hook(project, "build_wheel", folder / "dist", ok=ok).output


WRONG_MODULE = """
import enum
import functools
from dataclasses import dataclass
from typing import Type
import flydsl.compiler as flyc
import flydsl.expr as fx
from factory_kernels.mixed import LANES, Tile, build_chosen, build_wrapped, adder


class Kind(enum.Enum):
    row = 1


@dataclass
class Config:
    tile: int
    kind: object = None


def enumerated():
    class Reason(enum.Enum):
        row = 1

    return adder(1.0), Reason.row


def complicated():
    return adder(1.0), 1j


def values():
    return 1, 2


def around():
    return build_wrapped(1.0), 5


def alone():
    return build_wrapped(1.0)


def empty():
    return print


def chosen():
    return build_chosen(1.0)[0]


def partial():
    return functools.partial(build_wrapped(1.0), n=3)


class Holder:
    def __init__(self):
        self.inner = adder(1.0)

    def call(self, X):
        return self.inner(X, 1)


def method():
    return Holder().call


def configured(config: Config, plain=None):
    return adder(1.0)


@flyc.jit
def tiled(X: fx.Tensor, tile: Tile, block: fx.Constexpr[int] = 1):
    pass


@flyc.jit
def typed(X: fx.Tensor, dtype: Type[fx.Numeric]):
    pass


@flyc.jit
def nothing(stream: fx.Stream = fx.Stream(None)):
    scalar_kernel(fx.Int32(1)).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.kernel
def scalar_kernel(n: fx.Int32):
    index = fx.thread_idx.x + n


def uneven():
    return adder(1.0), nothing if LANES == 64 else 7


def declared(X):
    return adder_of_module(X)


adder_of_module = adder(1.0)


class Both:
    run = staticmethod(adder(1.0))
"""

ARGS = 'args = { launch = { X = "f32[L]" } }'
FAULTS = {
    'enumerated"]\nparams = {}': (
        "the factory enumerated returned a tuple, not a FlyDSL launcher",
        (
            "item 1 is a Reason, neither a launcher nor a plain value (strings, numbers, booleans, None, members of enums, FlyDSL types, and "
            "tuples and lists of these): return launchers and plain values"
        ),
    ),
    f'complicated"]\nparams = {{}}\nreturns = ["launch", "limit"]\n{ARGS}': (
        "limit of what the factory complicated returned is a complex, neither a FlyDSL launcher nor a plain value",
        "plain values are strings, numbers, booleans, None, members of enums, FlyDSL types, and tuples and lists of these",
    ),
    'values"]\nparams = {}\nreturns = ["a", "b"]': (
        "the factory values returned no launcher under the names of `returns`: a, b",
        "return a launcher",
    ),
    f'around"]\nparams = {{}}\nreturns = ["launch", "five"]\n{ARGS}': (
        "launch of what the factory around returned is a function, neither a FlyDSL launcher nor a plain value",
        (
            'ship a launcher from inside of it, without the Python around it: launcher = { launch = "launch_add" }. '
            "Inside are launch_add(X, n, stream)"
        ),
    ),
    'around"]\nparams = {}\nreturns = ["launch", "five"]\nlauncher = { launch = "launch_add" }\nargs = { launch = { X = "f32[L]" }, five = { X = "f32[L]" } }': (
        "args.five: five of what the factory around returned is a plain value",
        "remove the table, as it takes no arguments; if it is a launcher on other targets, return one on all",
    ),
    'alone"]\nparams = {}': (
        "the factory alone returned a function, not a FlyDSL launcher",
        'ship a launcher from inside of it, without the Python around it: launcher = "launch_add". Inside are launch_add(X, n, stream)',
    ),
    **{
        f'{name}"]\nparams = {{}}': (
            f"the factory {name} returned a {kind}, not a FlyDSL launcher",
            (
                f'ship a launcher from inside of it, without the Python around it: launcher = "{inside[0]}". '
                f"Inside are {', '.join(f'{path}(X, n, stream)' for path in inside)}"
            ),
        )
        for name, kind, inside in (
            ("chosen", "function", ("large.launch_add", "small.launch_add")),
            ("partial", "partial", ("func.launch_add",)),
            ("method", "method", ("inner",)),
        )
    },
    'alone"]\nparams = {}\nlauncher = "launch_ad"': (
        "launcher: what the factory alone returned is a function, in which there is no launch_ad",
        "launchers inside of it: launch_add",
    ),
    'alone"]\nparams = {}\nlauncher = "launch_add.kernel.amount"': (
        "launcher: what the factory alone returned is a function, in which there is no kernel",
        "launchers inside of it: launch_add",
    ),
    'empty"]\nparams = {}\nlauncher = "run"': (
        "launcher: what the factory empty returned is a builtin_function_or_method, in which there is no run",
        "there is no launcher inside of it",
    ),
    'declared"]\nargs = { X = "f32[L]" }': (
        "declared is not a FlyDSL launcher but a function",
        (
            "if it is a factory that returns the launcher, give its parameters with `params = {...}`; if it is Python around a launcher, ship a "
            'launcher from inside of it, without the Python around it: launcher = "adder_of_module". '
            "Inside are adder_of_module(X, n, stream)"
        ),
    ),
    'adder_of_module"]\nlauncher = "run"\nargs = { X = "f32[L]" }': (
        "launcher: adder_of_module is a launcher itself, not a Python function around run",
        "remove it",
    ),
    'configured"]\nparams = { config = { tlie = 1 } }\nargs = { X = "f32[L]" }': (
        'params.config: Config has no field tlie. Did you mean "tile"?',
        "correct the table",
    ),
    'configured"]\nparams = { config = { kind = 1 } }\nargs = { X = "f32[L]" }': (
        "params.config: Config cannot be made of these fields: TypeError: Config.__init__() missing 1 required positional argument: 'tile'",
        "correct the table",
    ),
    'configured"]\nparams = { config = { tile = 1 }, plain = { a = 1 } }\nargs = { X = "f32[L]" }': (
        "params.plain: found a table, and it is not annotated with a dataclass, named tuple or fx.struct",
        "annotate it with the class that the table is to make an object of",
    ),
    'tiled"]\nargs = { X = "f32[L]" }': (
        "constexpr.tile: rows, wide of struct Tile have no value",
        "give the constexpr fields in a table: constexpr = { tile = { … } }",
    ),
    'tiled"]\nconstexpr = { tile = { rows = 1, wide = true, hgih = 2 } }\nargs = { X = "f32[L]" }': (
        "constexpr.tile: hgih is no field of struct Tile. Allowed: rows, wide.",
        "give the constexpr fields in a table: constexpr = { tile = { … } }",
    ),
    'tiled"]\nconstexpr = { tile = { rows = 1.5, wide = true } }\nargs = { X = "f32[L]" }': (
        "constexpr.tile: field rows of struct Tile: 1.5 is no Constexpr[int], as which it is annotated",
        "write a whole number",
    ),
    'typed"]\nconstexpr = { dtype = 32 }\nargs = { X = "f32[L]" }': (
        "constexpr.dtype: 32 is not the name of a FlyDSL type",
        "write the name of a FlyDSL type",
    ),
    'typed"]\nconstexpr = { dtype = "Config" }\nargs = { X = "f32[L]" }': (
        (
            'constexpr.dtype: "Config" is not the name of a FlyDSL type. Allowed: bf16, bool, f16, f32, f4e2m1fn, f64, f6e2m3fn, f6e3m2fn, f8e4m3, '
            "f8e4m3b11fnuz, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e8m0fnu, i16, i32, i4, i64, i8, u16, u32, u64, u8."
        ),
        "write the name of a FlyDSL type",
    ),
    'tiled"]\nconstexpr = { tile = 1 }\nargs = { X = "f32[L]" }': (
        "constexpr.tile: tile is a struct, and its value is 1",
        "give the constexpr fields in a table: constexpr = { tile = { … } }",
    ),
    'tiled"]\nconstexpr = { tile = { rows = 1, wide = true }, block = { a = 1 } }\nargs = { X = "f32[L]" }': (
        "constexpr.block: found a table, but block of tiled is a constexpr parameter",
        "write a plain value",
    ),
}


@pytest.fixture(scope="module")
def faults_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of one build, in which every table is of a module of its own."""
    tables = [f'[tool.flydsl-build.kernels."factory_kernels.wrong{number}:{table}' for number, table in enumerate(FAULTS)]
    return build(tmp_path_factory.mktemp("faults"), "\n".join(tables), count=len(tables), ok=False)


@pytest.mark.parametrize("table", FAULTS)
def test_faults(table: str, faults_output: str) -> None:
    what, fix = FAULTS[table]
    key = f'tool.flydsl-build.kernels."factory_kernels.wrong{list(FAULTS).index(table)}:{table.partition(chr(34))[0]}"'
    (text,) = faults_output.split(key)[1:]
    assert f": {what}\n    -> {fix}\n" in text.partition("tool.flydsl-build")[0]


def test_faults_show_no_traceback(faults_output: str) -> None:
    assert "Traceback" not in faults_output


def test_launchers_differ_between_targets(tmp_path: Path) -> None:
    tables = (
        'archs = ["gfx942", "gfx1100"]\n[tool.flydsl-build.kernels."factory_kernels.wrong0:uneven"]\nparams = {}\nreturns = ["first", "second"]\n'
        'args = { first = { X = "f32[L]" } }\n'
    )
    output = build(tmp_path, tables, ok=False)
    assert (
        'tool.flydsl-build.kernels."factory_kernels.wrong0:uneven", gfx1100: what the factory returns as plain values differs between targets: '
        "none and second\n    -> return launchers under the same names for all targets"
    ) in output


def test_a_class_and_its_attribute_cannot_both_be_declared(tmp_path: Path) -> None:
    tables = (
        '[tool.flydsl-build.kernels."factory_kernels.wrong0:Both"]\nparams = {}\nreturns = ["run"]\nargs = { run = { X = "f32[L]" } }\n'
        '[tool.flydsl-build.kernels."factory_kernels.wrong0:Both.run"]\nargs = { X = "f32[L]" }\n'
    )
    assert (
        "factory_kernels.wrong0:Both.run: Both is declared, too, so the stub cannot have a class Both with it\n"
        "    -> declare Both alone, with `returns`, or its attributes alone"
    ) in build(tmp_path, tables, ok=False)


def test_what_is_not_shipped_is_said(tmp_path: Path) -> None:
    tables = (
        '[tool.flydsl-build.kernels."factory_kernels.mixed:build_wrapped"]\nparams = { amount = [1.0, 2.0] }\nlauncher = "launch_add"\n'
        'args = { X = "f32[L]" }\n'
    )
    output = build(tmp_path, tables)
    warning = (
        "warning: factory_kernels.mixed:build_wrapped is the launcher launch_add(X, n, stream=…) in the wheel, and in the source the Python "
        "function launch(X, n=64, stream=None) around it: what the function does (defaults, conversions, compile hints) is not in the wheel"
    )
    assert output.count(warning) == 1
