# SPDX-License-Identifier: Apache-2.0
"""Custom ops of torch, from the declaration to the launch: `tests/packages/torch_ops`, built once."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, call_hook, copy_project, manifest, members, run_script, unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEVICE = "gfx942:sramecc+:xnack-"


@pytest.fixture(scope="session")
def ops_build(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The wheel and the output of its build."""
    folder = tmp_path_factory.mktemp("torch-ops")
    project = copy_project(PACKAGES / "torch_ops", folder / "source")
    (dist := folder / "dist").mkdir()
    answer = call_hook(project, "build_wheel", dist)
    return dist / answer.value, answer.output


@pytest.fixture(scope="session")
def ops_site(ops_build: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("torch-ops-site"), ops_build[0])


# --- the wheel ---------------------------------------------------------------------------------------------------------


def test_generated_modules(ops_build: tuple[Path, str]) -> None:
    modules = {name for name in members(ops_build[0]) if name.startswith("op_kernels/") and "/_flydsl/" not in name}
    names = ("forms", "forms_torch", "made", "made_torch")
    assert modules == {"op_kernels/__init__.py", *(f"op_kernels/{name}{suffix}" for name in names for suffix in (".py", ".pyi"))}


def test_what_is_left_out_is_said(ops_build: tuple[Path, str]) -> None:
    warnings = [line for line in ops_build[1].splitlines() if "_torch" in line and "warning" in line]
    assert warnings == [
        "flydsl-build: warning: op_kernels/forms_torch.py does not have with_struct: config is a struct, for which an op of torch has no type"
    ]


def test_manifest(ops_build: tuple[Path, str]) -> None:
    launchers = {
        launcher["name"]: {one.get("element"): one["out"] for one in launcher["specializations"]}
        for name in ("forms", "made")
        for launcher in manifest(ops_build[0], f"op_kernels/_flydsl/{name}.json")["launchers"]
    }
    assert launchers == {
        "add": {None: ["C"]},
        "fill": {None: ["X"]},
        "convert": {None: ["Out"]},
        "without_stream": {None: ["X"]},
        "effect": {None: []},
        "with_struct": {None: ["X"]},
        "build_scale": {None: ["Out"]},
        "build_typed": {None: ["X"]},
        "build_pair": {"forward": ["X"], "backward": ["Y"]},
        "build_table": {"launch": ["X"]},
        "build_named": {"up": ["X"], "down": ["X"]},
        "Shift": {"run": ["X"], "undo": ["X"]},
    }


def test_without_the_setting_there_is_no_module_and_out_is_recorded(build: Callable[..., Any]) -> None:
    files = {path.relative_to(PACKAGES / "tiny").as_posix(): path.read_text() for path in (PACKAGES / "tiny").rglob("*") if path.is_file()}
    files["pyproject.toml"] += '\nout = ["X"]\n'
    done = build(files)
    assert done.status == 0, done.output
    assert not [name for name in members(done.wheel) if "_torch" in name]
    (launcher,) = manifest(done.wheel, "tiny_kernels/_flydsl/negate.json")["launchers"]
    assert [one["out"] for one in launcher["specializations"]] == [["X"]]


def test_kept_modules(tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "source")
    table = project / "pyproject.toml"
    without = table.read_text()
    table.write_text(without.replace("archs", "torch-ops = true\narchs") + 'out = ["X"]\n')
    env = {"FLYDSL_BUILD_CACHE": "true", "FLYDSL_BUILD_CACHE_DIR": str(tmp_path / "cache")}
    wheels, jobs = [], []
    for number in range(3):
        if number == 2:
            table.write_text(without + 'out = ["X"]\n')
        (dist := tmp_path / str(number)).mkdir()
        answer = call_hook(project, "build_wheel", dist, env={**env, "SOURCE_DATE_EPOCH": "1700000000"})
        wheels.append(dist / answer.value)
        jobs.append(next(line.rpartition(", ")[2] for line in answer.output.splitlines() if "from the cache" in line))
    assert jobs == ["1 compiled", "0 compiled", "0 compiled"]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    # What an earlier build has generated is not in the wheel of a build without it.
    lost = {"tiny_kernels/negate_torch.py", "tiny_kernels/negate_torch.pyi"}
    assert members(wheels[0]).keys() - members(wheels[2]).keys() == lost


# --- faults ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def refused(build: Callable[..., Any]) -> Callable[..., str]:
    """Build the tiny package with more in its table, and more files; return the fault."""

    def run(kernel: str = "", settings: str = "", **more: str) -> str:
        tiny = PACKAGES / "tiny"
        files = {path.relative_to(tiny).as_posix(): path.read_text() for path in tiny.rglob("*") if path.suffix in {".py", ".toml"}}
        project = files["pyproject.toml"].replace("[tool.flydsl-build]\n", f"[tool.flydsl-build]\n{settings}\n")
        files |= {"pyproject.toml": f"{project}\n{kernel}\n", **{f"tiny_kernels/{name}.py": text for name, text in more.items()}}
        done = build(files)
        assert done.status == 1, done.output
        return str(done.output.rpartition("\nflydsl-build: ")[2])

    return run


def test_ops_need_to_know_what_is_written(refused: Callable[..., str]) -> None:
    assert refused(settings="torch-ops = true") == (
        'configuration failed: tool.flydsl-build.kernels."tiny_kernels.negate:negate".out: '
        "missing: an op of torch-ops says which arguments are written\n"
        '    -> add out = ["C"] with the names of the tensors and pointers that are written; [] for none\n'
    )


def test_unknown_names(refused: Callable[..., str]) -> None:
    assert refused('out = ["x"]') == (
        'compile failed: tool.flydsl-build.kernels."tiny_kernels.negate:negate", gfx942: out.x: negate has no parameter x\n'
        '    -> Did you mean "X"?\n'
    )


def test_what_cannot_be_written(refused: Callable[..., str]) -> None:
    assert refused('out = ["n"]') == (
        'compile failed: tool.flydsl-build.kernels."tiny_kernels.negate:negate", gfx942: '
        "out.n: n is a scalar parameter, which a launcher cannot write\n"
        "    -> name tensors, pointers or structs\n"
    )


def test_a_module_of_the_author_stands_there(refused: Callable[..., str]) -> None:
    assert refused('out = ["X"]', "torch-ops = true", negate_torch="") == (
        "build failed: tiny_kernels/negate_torch.py: the project has a module of this name, which is where torch-ops puts the ops of "
        "tiny_kernels.negate\n    -> rename it\n"
    )


def test_two_modules_of_one_namespace(refused: Callable[..., str]) -> None:
    table = '\n[tool.flydsl-build.kernels."tiny_kernels.größe:f"]\nout = []\n[tool.flydsl-build.kernels."tiny_kernels.gr__e:f"]\nout = []'
    assert refused('out = ["X"]' + table, "torch-ops = true", größe="", gr__e="") == (
        "build failed: module tiny_kernels.gr__e: its ops would be in torch.ops.tiny_kernels_gr__e, as those of tiny_kernels.größe\n"
        "    -> rename one of the modules\n"
    )


# --- types -------------------------------------------------------------------------------------------------------------

USER = """
import torch

from op_kernels.forms_torch import add, convert, effect, fill
from op_kernels.made_torch import Shift, build_named, build_pair, build_scale, build_table, build_typed

x = torch.zeros(2, 64)
add(x, x, C=x)
fill(x, 1.0, 3, tile=(2, 2), mode="one")
convert(x, x, 2, torch.int32)
effect(x, 2)
build_scale(64)(x, x, rows=2)
build_typed(torch.float32)(x)
forward, backward = build_pair((2, 64))
backward(x, x, 2)
build_table()["launch"](x, 2)
build_named().up(x, n=2)
Shift(1.0).undo(x, 2)
"""
WRONG = """
from op_kernels.forms_torch import add, with_struct
from op_kernels.made_torch import build_pair, build_scale
import torch

add(torch.zeros(2), 1.0, torch.zeros(2))
build_scale("64")
build_pair((2, 64))[2]
add(torch.zeros(2), torch.zeros(2), torch.zeros(2), stream=None)
"""


def test_type_checker(ops_site: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    pytest.importorskip("torch")
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    # What of torch is used; its own types take minutes to read.
    (tmp_path / "torch.pyi").write_text(
        "class dtype: ...\nclass Tensor: ...\nint32: dtype\nfloat32: dtype\ndef zeros(*size: int) -> Tensor: ...\n", encoding="utf-8"
    )
    (ops_site / "op_kernels" / "py.typed").touch()
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", "cache", "user.py", "wrong.py"]
    environ = {"MYPYPATH": f"{tmp_path}:{ops_site}"}
    done = subprocess.run(command, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("user.py", "wrong.py"))]
    places = [":".join(line.split(":")[:2]) for line in lines if "error" in line]
    assert places == ["wrong.py:2", "wrong.py:6", "wrong.py:7", "wrong.py:8", "wrong.py:9"]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copies of a package with the ops `add` and `effect`: another kernel, a corrected `out`, both with that of the other op."""
    kernels = {"first": {}, "newer": {"add_kernel": "sum_kernel"}, "corrected": {'["A"]': '["C"]'}}
    kernels["other"] = {"add_kernel": "sum_kernel", "out = []": 'out = ["X"]'}
    found = {}
    for name, changes in kernels.items():
        folder = tmp_path_factory.mktemp(name)
        project = copy_project(PACKAGES / "torch_ops", folder / "source")
        head, *tables = (project / "pyproject.toml").read_text().split("[tool.flydsl-build.kernels.")
        tables = [table for table in tables if table.startswith(('"op_kernels.forms:add"', '"op_kernels.forms:effect"'))]
        texts = {"pyproject.toml": "[tool.flydsl-build.kernels.".join([head, *tables]).replace('["C"]', '["A"]')}
        texts["op_kernels/forms.py"] = (project / "op_kernels" / "forms.py").read_text()
        for path, text in texts.items():
            changed = text
            for old, new in changes.items():
                changed = changed.replace(old, new)
            (project / path).write_text(changed)
        (dist := folder / "dist").mkdir()
        found[name] = unpack(folder / "site", dist / call_hook(project, "build_wheel", dist).value)
    return found


# --- calls -------------------------------------------------------------------------------------------------------------

PREAMBLE = """
import gc, importlib, logging, pickle, warnings
import torch
import fake_hip
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

logging.disable(logging.CRITICAL)  # torch logs the exceptions of fake implementations
from op_kernels import forms_torch as forms, made_torch as made

hip = fake_hip.FakeHip(argument)
ops = torch.ops.op_kernels_forms
a, b, c = torch.ones(2, 64), torch.ones(2, 64), torch.zeros(2, 64)
line, whole, half = torch.zeros(128), torch.zeros(128, dtype=torch.int32), torch.zeros(128, dtype=torch.float16)

def launches(function, *args, **kwargs):
    hip.clear()
    function(*args, **kwargs)
    return [event["kernel"] for event in hip.events("launch")]

def refused(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    raise AssertionError("not refused")

def overload(packet):
    (name,) = packet.overloads()
    return getattr(packet, name)

def compiled(function, backend, dynamic=None):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic)
"""

CALLS = """
class Float32: pass

def everything(a, b, c, line, whole, half, n):
    forms.add(a * 2, b, c)
    forms.fill(line, 1.5, n, tile=(2, 2))
    forms.fill(line, 1.5, n, False, tile=[4, 4], mode="one")
    forms.fill(half, 1.5, count=n, tile=(2, 2))
    forms.convert(line, whole, n, torch.int32)
    forms.convert(line, whole, n, dtype="i32")
    forms.convert(line, line, n)
    forms.convert(line, line, n, Float32)
    forms.without_stream(line, n)
    forms.effect(line, n)
    made.build_scale(a.shape[1], 4.0)(a, c, rows=n)
    made.build_typed(torch.int32)(whole)
    made.build_typed("f32")(line)
    forward, backward = made.build_pair([2, 64])
    forward(line, n)
    backward(line, line, n=n)
    made.build_table()["launch"](line, n)
    ways = made.build_named()
    ways.up(line, n)
    ways[1](line, n)
    shift = made.Shift(1.0)
    shift.run(line, n)
    shift.undo(line, n)
    return a + 1

tensors = (a, b, c, line, whole, half)
eager = launches(everything, *tensors, 3)
print(json.dumps({
    "eager": eager,
    "compiled": {
        f"{backend} {dynamic}": launches(compiled(everything, backend, dynamic), *tensors, 3) == eager
        for backend in ("eager", "aot_eager") for dynamic in (None, True)
    },
    "same value of another type": [
        made.build_scale(64) is made.build_scale(64, 2.0),
        made.build_scale(64, 2) is made.build_scale(64, 2.0),
        made.build_scale(64, factor=4) is made.build_scale(N=64, factor=4.0),
    ],
    "schemas": [str(overload(getattr(ops, name))._schema) for name in ("add", "fill", "convert", "without_stream", "effect")],
    "made": sorted(name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("op_kernels_made::")),
    "opcheck": {
        name: opcheck(op, given) for name, op, given in (
            ("add", overload(ops.add), (a, b, c.clone())),
            ("add of what requires a gradient", overload(ops.add), (a.clone().requires_grad_(), b, c.clone())),
            ("fill", overload(ops.fill), (line, 1.5, 3, True, [2, 2], "zero")),
            ("convert", overload(ops.convert), (line, whole, 128, "i32")),
            ("effect", overload(ops.effect), (line, 3)),
            ("made", overload(torch.ops.op_kernels_made.build_scale_N64_factor4_0), (a, c.clone(), 2)),
        )
    },
    "refused": {
        "dtype": refused(forms.add, a.double(), b, c),
        "unbuilt": refused(made.build_scale, 65),
        "unbuilt, compiled": refused(torch.compile(lambda x: made.build_scale(65)(x, x, 1), backend="eager"), a),
        "constexpr": refused(forms.fill, line, 1.5, 3, tile=(3, 3)),
        "left out": refused(made.build_scale, 64, activation=None),
    },
    "pickled": pickle.loads(pickle.dumps(forms.add)) is forms.add,
}))
"""

SEVERAL = """
class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        out = torch.empty_like(a)
        forms.add(a, b, out)
        return out

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient

@torch.library.custom_op("user::add", mutates_args=())
def functional(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    forms.add(a, b, out)
    return out

functional.register_fake(lambda a, b: torch.empty_like(a))
functional.register_autograd(lambda ctx, gradient: (gradient, gradient))

def gradient(function, backend):
    call = function if backend is None else compiled(function, backend)
    x = torch.ones(2, 64, requires_grad=True)
    return [launches(lambda: (call(x, b) * 3).sum().backward()), x.grad.unique().tolist()]

def fake(*tensors):
    with FakeTensorMode() as mode:
        forms.add(*map(mode.from_tensor, tensors))

def fake_fill(tensor, mode):
    with FakeTensorMode() as fakes:
        forms.fill(fakes.from_tensor(tensor), 1.5, 3, tile=(2, 2), mode=mode)

before, version = launches(forms.add, a, b, c), c._version
forms.add(a, b, c)
with torch.inference_mode():
    inference = launches(forms.add, a, b, torch.empty(2, 64))
answer = {
    "gradients": {
        f"{name} {backend}": gradient(function, backend)
        for name, function in (("Function", Add.apply), ("custom_op", functional)) for backend in (None, "eager", "aot_eager")
    },
    "fakes": [
        refused(fake, a.double(), b, c),
        refused(fake, a, b[0], c),
        refused(fake_fill, whole, "zero"),
        refused(fake_fill, line, "two"),
        fake(a, b, c),
    ],
    "inference": inference,
    "versions": [a._version, c._version - version],
}
old = forms
importlib.reload(forms)
answer["reloaded"] = launches(forms.add, a, b, c)
for name in [name for name in sys.modules if name.startswith("op_kernels")]:
    del sys.modules[name]
from op_kernels import forms_torch as again
answer["again"] = [again is not old, launches(again.add, a, b, c)]
del again
gc.collect()
answer["old"] = launches(old.add, a, b, c)

class Model(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        forms.add(x, y, out)
        return out

program = torch.export.export(Model(), (a, b))
answer["exported"] = [str(node.target) for node in program.graph.nodes if "op_kernels" in str(node.target)]
answer["others"] = refused(lambda: __import__("op_kernels._flydsl.runtime.torch_ops", fromlist=["Ops"]).Ops(torch, "other.forms", "op_kernels_forms"))
print(json.dumps(answer))
"""

ALONE = """
import importlib.util
_find = importlib.util.find_spec
import builtins
_import = builtins.__import__
def without_torch(name, *more):
    if name.partition(".")[0] == "torch":
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    return _import(name, *more)
builtins.__import__ = without_torch
import numpy as np
import fake_hip
from op_kernels.forms import add
hip = fake_hip.FakeHip(argument)
x = np.zeros((2, 64), np.float32)
add(x, x, x)
try:
    import op_kernels.forms_torch
except ModuleNotFoundError as error:
    text = str(error)
print(json.dumps([len(hip.events("launch")), "torch" in sys.modules, text]))
"""


# The kernel's work, which the stand-in HIP library does not do; before the module of ops is imported.
WORKING = """
import torch
import fake_hip
from op_kernels import forms as launchers

class Adding:
    def __init__(self, launcher):
        self.launcher, self._name, self._handle = launcher, launcher._name, launcher._handle

    def __call__(self, A, B, C, stream):
        self.launcher(A, B, C, stream)
        C.copy_(A + B)

launchers.add = Adding(launchers.add)
from op_kernels.forms_torch import add

hip = fake_hip.FakeHip(argument)
backends = ("aot_eager", "inductor")

def values(function, backend, dynamic=None):
    torch._dynamo.reset()
    call = torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic) if backend else function
    return call(torch.ones(4, 4)).unique().tolist()
"""

VALUES = """
def given(x):
    d = x + 1
    add(d, d, x)
    return x + d

def rows(x):
    d = x + 1
    add(d[:2], d[:2], x[:2])
    return x + d

def made(x):
    y = x * 1
    d = y + 1
    add(d, d, y)
    return y + d

def new(x):
    d, out = x + 1, torch.empty_like(x)
    add(d, d, out)
    return out + d

def twice(x):
    d = x + 1
    add(d, d, x)
    e = x + d
    add(e, d, x)
    return x + d + e

def in_place(x):
    d = x + 1
    add(x, d, x)
    add(d, x, d)
    return x + d

def columns(x):
    d = (x.t() + 1).contiguous()
    add(d, d, x)
    return x + d

def negated(x):
    d = x + 1
    add(torch._neg_view(d), d, x)
    return x + d

def written_negated(x):
    d = x + 1
    add(d, d, torch._neg_view(x))
    return x + d

def refused(function):
    try:
        return values(function, "inductor")
    except ValueError as error:
        return str(error)

functions = (given, rows, made, new, twice, in_place, negated, written_negated)
print(json.dumps({
    "values": {
        function.__name__: [values(function, None), *(values(function, backend, dynamic) for backend in backends for dynamic in (None, True))]
        for function in functions
    },
    "columns": [values(columns, None), values(columns, "aot_eager"), refused(columns)],
    "tags": sorted(str(tag) for tag in overload(torch.ops.op_kernels_forms.add).tags),
}))
"""

STALE = """
from torch._dynamo.utils import counters

def sums(x):
    out = torch.zeros_like(x)
    add(x, x, out)
    return out + 1

found = [values(sums, backend) for backend in backends]
print(json.dumps([*found, counters["aot_autograd"]["autograd_cache_hit"], counters["inductor"]["fxgraph_cache_hit"]]))
"""

COPIES = """
def copy(name):
    sys.path[0] = argument[1][name]
    importlib.invalidate_caches()
    for each in [each for each in sys.modules if each.startswith("op_kernels")]:
        del sys.modules[each]
    return importlib.import_module("op_kernels.forms_torch")

sys.path.insert(0, "")
first = copy("first")
answer = {"first": launches(first.add, a, b, c)}
importlib.reload(first)
answer["reloaded"] = launches(first.add, a, b, c)
newer = copy("newer")
answer["newer"] = [launches(module.add, a, b, c) for module in (first, newer)]
again = copy("first")
answer["purged"] = [launches(module.add, a, b, c) for module in (first, newer, again)]
answer["refused"] = [refused(copy, name) for name in ("corrected", "other")]
answer["afterwards"] = [launches(module.add, a, b, c) for module in (first, newer, again)]
print(json.dumps(answer))
"""


def run_ops(script: str, site: Path, hip_library: Path) -> Any:
    pytest.importorskip("torch")
    return run_script(PREAMBLE + script, site=site, hip=hip_library, targets=DEVICE, argument=str(hip_library))


@pytest.fixture(scope="module")
def answer(ops_site: Path, hip_library: Path) -> Any:
    return run_ops(CALLS, ops_site, hip_library)


@pytest.fixture(scope="module")
def second_answer(ops_site: Path, hip_library: Path) -> Any:
    return run_ops(SEVERAL, ops_site, hip_library)


def test_each_op_launches_its_specialization(answer: Any) -> None:
    assert answer["eager"] == [
        "add_kernel_0",
        "fill_kernel_0",
        "fill_kernel_0__fill_tile4x4_one_args0",
        "fill_kernel_0__fill_tile2x2_zero_args1",
        "convert_kernel_0__convert_i32",
        "convert_kernel_0__convert_i32",
        "convert_kernel_0",
        "convert_kernel_0",
        "touch_kernel_0",
        "touch_kernel_0__effect",
        "scale_kernel_0__build_scale_N64_factor4_0",
        "one_kernel_0__build_typed_i32",
        "one_kernel_0",
        "add_kernel_0",
        "copy_kernel_0",
        "add_kernel_0__build_table_launch",
        "add_kernel_0__build_named_up",
        "add_kernel_0__build_named_down",
        "add_kernel_0__Shift_amount1_0_run",
        "add_kernel_0__Shift_amount1_0_undo",
    ]


def test_compiled_code_launches_the_same(answer: Any) -> None:
    assert answer["compiled"] == dict.fromkeys(("eager None", "eager True", "aot_eager None", "aot_eager True"), True)


def test_values_that_are_equal_and_of_other_types(answer: Any) -> None:
    assert answer["same value of another type"] == [True, False, True]


def test_schemas(answer: Any) -> None:
    assert answer["schemas"] == [
        "op_kernels_forms::add.s95f26563(Tensor A, Tensor B, Tensor(a2!) C) -> ()",
        "op_kernels_forms::fill.s5bca58f8(Tensor(a0!) X, float value, SymInt count, bool flag, int[] tile, str mode_) -> ()",
        "op_kernels_forms::convert.sef0d29c9(Tensor X, Tensor(a1!) Out, SymInt n, str dtype) -> ()",
        "op_kernels_forms::without_stream.saf0ccabd(Tensor(a0!) X, SymInt n) -> ()",
        "op_kernels_forms::effect.s7b51879b(Tensor X, SymInt n) -> ()",
    ]
    assert answer["made"] == [
        f"op_kernels_made::{name}"
        for name in (
            "Shift_amount1_0_run",
            "Shift_amount1_0_undo",
            "Shift_amount2_0_run",
            "Shift_amount2_0_undo",
            "build_named_down",
            "build_named_up",
            "build_pair_shape2x64_backward",
            "build_pair_shape2x64_forward",
            "build_scale_N64",
            "build_scale_N64_factor2",
            "build_scale_N64_factor4_0",
            "build_table_launch",
            "build_typed_f32",
            "build_typed_i32",
        )
    ]


def test_opcheck(answer: Any) -> None:
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    names = ("add", "add of what requires a gradient", "fill", "convert", "effect", "made")
    assert answer["opcheck"] == {name: dict.fromkeys(tests, "SUCCESS") for name in names}


def test_refused_calls(answer: Any) -> None:
    refusals = answer["refused"]
    assert refusals["dtype"] == [
        "TypeError",
        "add(): argument A must be f32[M, N : ?, 1], got f64[2, 64 : 64, 1]: the dtype is f64, not f32",
    ]
    unbuilt = "build_scale(N=65, factor=2.0): the wheel was not built for these parameters, only for:\n"
    assert [refusals[name][1].startswith(unbuilt) for name in ("unbuilt", "unbuilt, compiled")] == [True, True]
    assert refusals["left out"][1].startswith("build_scale(N=64, factor=2.0, activation=None): the wheel was not built")
    assert refusals["constexpr"][0] == "ValueError"
    assert "tile=(3, 3)" in refusals["constexpr"][1]
    assert refusals["constexpr"][1].endswith('"op_kernels.forms:fill"] constexpr = { tile = [..., [3, 3]] }')


def test_host_memory(ops_site: Path, hip_library: Path) -> None:
    """On a device that reads no pageable memory, an op refuses it as the launcher does."""
    script = (
        'import os\nos.environ["FAKE_HIP_PAGEABLE"] = "0"\nprint(json.dumps([*refused(forms.add, a, b, c), len(hip.events("launch"))]))'
    )
    kind, text, launches = run_ops(script, ops_site, hip_library)
    assert (kind, launches) == ("TypeError", 0)
    assert text == "add(): argument A is in host memory, which device 0 cannot read; move it to the device, or allocate it pinned"


def test_pickled_by_reference(answer: Any) -> None:
    assert answer["pickled"]


def test_autograd(second_answer: Any) -> None:
    assert second_answer["gradients"] == {
        f"{name} {backend}": [["add_kernel_0"], [3.0]] for name in ("Function", "custom_op") for backend in (None, "eager", "aot_eager")
    }


def test_fake_implementations_refuse_what_no_specialization_is_for(second_answer: Any) -> None:
    fill = "fill(): the arguments fit none of the 8 specializations in this wheel:\n"
    assert second_answer["fakes"][:2] == [
        ["TypeError", "add(): argument A must be f32[M, N : ?, 1], got f64[2, 64]: the dtype is f64, not f32"],
        ["TypeError", "add(): argument B must be f32[M, N : ?, 1], got f32[64]: the rank is 1, not 2"],
    ]
    dtype, mode = (text for _, text in second_answer["fakes"][2:4])
    assert dtype.startswith(fill)
    assert "\n  fill-tile2x2-zero-args1: argument X must be ptr<f16>, got i32[128]: the dtype is i32, not f16\n" in dtype
    assert "\n  fill-tile4x4-zero-args0: constexpr tile is (2, 2), not (4, 4)\n" in dtype
    assert mode.startswith("fill(mode='two', tile=(2, 2)): the wheel was not built for these constexpr values, only for:\n")
    assert second_answer["fakes"][4] is None


def test_export(second_answer: Any) -> None:
    assert second_answer["exported"] == ["op_kernels_forms.add.s95f26563"]


def test_written_tensors_get_a_new_version(second_answer: Any) -> None:
    assert second_answer["versions"] == [0, 1]
    assert second_answer["inference"] == ["add_kernel_0"]


def test_an_op_is_defined_once(second_answer: Any) -> None:
    assert second_answer["reloaded"] == second_answer["old"] == ["add_kernel_0"]
    assert second_answer["again"] == [True, ["add_kernel_0"]]
    assert second_answer["others"] == [
        "ImportError",
        "torch.ops.op_kernels_forms has the ops of op_kernels.forms: those of other.forms cannot be defined in one process with them",
    ]


def test_the_newest_import_is_launched(sites: dict[str, Path], hip_library: Path) -> None:
    pytest.importorskip("torch")
    places = {name: str(site) for name, site in sites.items()}
    script = PREAMBLE.replace("from op_kernels import forms_torch as forms, made_torch as made", "").replace("(argument)", "(argument[0])")
    script = script.replace("ops = torch.ops.op_kernels_forms\n", "") + COPIES
    answer = run_script(script, hip=hip_library, targets=DEVICE, argument=[str(hip_library), places])
    old, new = ["add_kernel_0"], ["sum_kernel_0"]
    assert (answer["first"], answer["reloaded"]) == (old, old)
    assert answer["newer"] == [new, new]
    assert answer["purged"] == answer["afterwards"] == [old, old, old]
    told = "in this process, where its module has been imported before, and now"
    rest = "torch cannot define it again\n    -> restart the process"
    assert answer["refused"] == [
        ["ImportError", f"torch.ops.op_kernels_forms.{name} is {was} -> () {told} {now} -> (): {rest}"]
        # The second fails at `effect`, so that `add` stays what it was.
        for name, was, now in (
            ("add", "(Tensor(a0!) A, Tensor B, Tensor C)", "(Tensor A, Tensor B, Tensor(a2!) C)"),
            ("effect", "(Tensor X, SymInt n)", "(Tensor(a0!) X, SymInt n)"),
        )
    ]


def test_values_of_compiled_code(sites: dict[str, Path], hip_library: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    overload = PREAMBLE[PREAMBLE.index("def overload") : PREAMBLE.index("def compiled")]
    answer = run_script(
        WORKING + overload + VALUES,
        site=sites["corrected"],
        hip=hip_library,
        targets=DEVICE,
        argument=str(hip_library),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
    )
    expected = {"given": [6.0], "rows": [3.0, 6.0], "made": [6.0], "new": [6.0], "twice": [16.0], "in_place": [8.0]}
    expected |= {"negated": [2.0], "written_negated": [-2.0]}
    assert answer["values"] == {name: [values] * 5 for name, values in expected.items()}
    # Inductor chooses the strides of what compiled code makes; here it takes `contiguous` for done.
    refused = "add(): argument A must be f32[M, N : ?, 1], got f32[4, 4 : 1, 4]: stride 1 is 4, not 1"
    assert answer["columns"] == [[6.0], [6.0], refused]
    assert answer["tags"] == ["Tag.flexible_layout", "Tag.pt2_compliant_tag"]


def test_caches_of_another_declaration(sites: dict[str, Path], hip_library: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    runs = [
        run_script(
            WORKING + STALE,
            site=sites[name],
            hip=hip_library,
            targets=DEVICE,
            argument=str(hip_library),
            TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
        )
        for name in ("first", "first", "corrected")
    ]
    # To compiled code, `out` of the first declaration says that `C` is as it was. Its second run is served by the cache.
    (wrong, again, right) = runs
    assert wrong[1] == again[1] == [1.0]
    assert again[2:] == [1, 1]
    assert right == [[3.0], [3.0], 0, 0]


def test_without_torch(ops_site: Path, hip_library: Path) -> None:
    answer = run_script(ALONE, site=ops_site, hip=hip_library, targets=DEVICE, argument=str(hip_library))
    assert answer == [1, False, "No module named 'torch'"]
