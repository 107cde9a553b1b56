# SPDX-License-Identifier: Apache-2.0
"""Stubs: golden files, what they do when imported, and names and texts that must not get out of hand."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flydsl_build.bundle.manifest import (
    CodeObject,
    Distribution,
    HostEntry,
    LauncherEntry,
    Library,
    Manifest,
    Provenance,
    SpecializationEntry,
    Unit,
)
from flydsl_build.consumers.python_stub.render import render_stub
from flydsl_build.consumers.templates import StubError
from flydsl_build.declare.argument_types import Dim, PointerType, ScalarType, StreamType, StructType, TensorType
from flydsl_build.jobs.launcher import Parameter, Slot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from flydsl_build.bundle.manifest import Load
    from flydsl_build.jobs.launcher import ParameterKind, Role

GOLDEN = Path(__file__).parent / "golden"
DIGEST = "0123456789abcdef" * 4

TENSOR = TensorType(dtype="f32", shape=(Dim(name="M"),), strides=(Dim(size=1),), alignment=4)
STREAM = Slot(argument=None, kind="stream", size=8, align=8)


def parameter(name: str, role: Role = "tensor", kind: ParameterKind = "POSITIONAL_OR_KEYWORD", **default: Any) -> Parameter:
    return Parameter(name=name, kind=kind, annotation=None, role=role, **default)


def specialization(
    name: str, arguments: dict[str, Any], constexpr: dict[str, Any] | None = None, params: dict[str, Any] | None = None
) -> SpecializationEntry:
    return SpecializationEntry(
        name=name,
        constexpr=constexpr or {},
        params=params or {},
        targets=("gfx942",),
        arguments=arguments,
        slots=(STREAM,),
        entries={"gfx942": {"main": HostEntry(entry="fdb_0", kernels=())}},
        options={},
        source=None,
    )


def launcher(name: str, parameters: tuple[Parameter, ...], *specializations: SpecializationEntry, doc: str | None = None) -> LauncherEntry:
    return LauncherEntry(name=name, kind="launcher", doc=doc, parameters=parameters, specializations=specializations)


def module(name: str, *launchers: LauncherEntry, targets: tuple[str, ...] = ("gfx942",), load: Load = "import") -> Manifest:
    code_object = CodeObject(offset=4096, size=1, sha256="0" * 64, e_flags=0x54C, kernels=())
    return Manifest(
        module=name,
        distribution=Distribution(name="example-kernels", version="0.1.0"),
        load=load,
        targets=targets,
        axes={},
        library=Library(file="x.so", sha256="0" * 64, size=1),
        units=(Unit(name="main", axes={}, bundle="x.hipfb", init=(), globals=(), code_objects=dict.fromkeys(targets, code_object)),),
        launchers=launchers,
        provenance=Provenance(tools=(), bitcode=(), sources={}),
    )


def elementwise() -> Manifest:
    """Return two plain launchers, as in the example package."""
    tensors = {"A": TENSOR, "B": TENSOR, "C": TENSOR}
    vector_add = launcher(
        "vector_add",
        (parameter("A"), parameter("B"), parameter("C"), parameter("stream", "stream", default=None)),
        specialization("vector_add", {**tensors, "stream": StreamType()}),
        doc="Add two matrices.\n\n    A, B\n        Summands.\n    ",
    )
    axpy = launcher(
        "axpy",
        (parameter("alpha", "scalar"), parameter("X"), parameter("Y"), parameter("n", "scalar")),
        specialization("axpy", {"alpha": ScalarType(dtype="f32"), "X": TENSOR, "Y": TENSOR, "n": ScalarType(dtype="i32")}),
    )
    return module("example_pkg.elementwise", vector_add, axpy, targets=("gfx942", "gfx1100"))


def everything() -> Manifest:
    """Return all kinds of parameters, a factory, and texts that need escapes."""
    every = launcher(
        "every",
        (
            parameter("self", "pointer", "POSITIONAL_ONLY"),
            parameter("match", "struct"),
            parameter("flag", "scalar", default=True),
            parameter("bias", "tensor", default=None),
            parameter("mode", "constexpr", "KEYWORD_ONLY", default='a "quoted" \\ one'),
            parameter("dtype", "type", "KEYWORD_ONLY"),
            parameter("größe", "constexpr", "KEYWORD_ONLY", default=(1, 2)),
            parameter("stream", "stream", "KEYWORD_ONLY", default=None),
        ),
        *(
            specialization(
                f"every-{n}",
                {
                    "self": PointerType(dtype="f32", alignment=4),
                    "match": StructType(name="P", fields=()),
                    "flag": ScalarType(dtype="bool"),
                    "bias": TENSOR,
                    "stream": StreamType(),
                },
                {"mode": mode, "dtype": "f32", "größe": (1, 2)},
            )
            for n, mode in enumerate(["a", 5])
        ),
        doc='Say "quoted" \\ and """triple""" ünïcode "',
    )
    made = (parameter("N", "constexpr"), parameter("dtype_str", "constexpr", default="f32"), parameter("eps", "constexpr", default=1e-6))
    softmax = LauncherEntry(
        name="build_softmax",
        kind="factory",
        doc="Return a softmax over rows of N.",
        parameters=(parameter("A"), parameter("C"), parameter("rows", "scalar"), parameter("stream", "stream", default=None)),
        factory_parameters=made,
        specializations=tuple(
            specialization(
                f"build_softmax-N{n}",
                {"A": TENSOR, "C": TENSOR, "rows": ScalarType(dtype="i32"), "stream": StreamType()},
                params={"N": n, "dtype_str": "bf16", "eps": 1},
            )
            for n in (1024, 4096)
        ),
    )
    return module("example_pkg.sub.every", every, softmax, load="lazy")


DOCS = {"elementwise": "Element-wise kernels.\n\nThe shapes are dynamic.\n", "every": None}


def render(manifest: Manifest) -> tuple[str, str]:
    name = manifest.module.split(".")[-1]
    depth = manifest.module.count(".") - 1
    file = "../" * depth + "_flydsl/" + "/".join(manifest.module.split(".")[1:]) + ".json"
    return render_stub(
        manifest, manifest_sha256=DIGEST, manifest_file=file, runtime_package="example_pkg._flydsl.runtime", module_doc=DOCS.get(name)
    )


@pytest.mark.parametrize("manifest", [elementwise(), everything()], ids=["elementwise", "every"])
def test_golden_files(manifest: Manifest) -> None:
    """To make them anew after a change that is meant: FLYDSL_BUILD_GOLDEN=write, then read the diff."""
    name = manifest.module.split(".")[-1]
    for text, suffix in zip(render(manifest), ("py", "pyi"), strict=True):
        path = GOLDEN / f"{name}.{suffix}.txt"
        if os.environ.get("FLYDSL_BUILD_GOLDEN") == "write":
            path.write_text(text, encoding="utf-8")
        assert text.encode() == path.read_bytes()


RUNTIME = '''
"""A stand-in for the run time that notes what a stub calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

calls: list[Any] = []


class Launcher:
    def __init__(self, function: Callable[..., Any], kind: str) -> None:
        wrapper: Any = self
        functools.update_wrapper(wrapper, function)
        self.kind = kind

    def __call__(self, *arguments: Any, **keywords: Any) -> None: ...


class Specialization:
    name: str


class ModuleHandle:
    archs: tuple[str, ...] = ()

    def launcher(self, function: Callable[..., Any]) -> Launcher:
        calls.append(("launcher", function.__name__))
        return Launcher(function, "launcher")

    def factory(self, function: Callable[..., Any]) -> Launcher:
        calls.append(("factory", function.__name__))
        return Launcher(function, "factory")

    def on_import(self) -> None:
        calls.append("on_import")

    def is_loaded(self, device: int | None = None) -> bool:
        return device is None


def attach(name: str, file: str, manifest: str, sha256: str, *, archs: tuple[str, ...], load: str) -> ModuleHandle:
    calls.append(("attach", name, file, manifest, sha256, archs, load))
    return ModuleHandle()
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write a package with both stubs and the stand-in, and put it on the import path."""
    runtime = tmp_path / "example_pkg" / "_flydsl" / "runtime"
    runtime.mkdir(parents=True)
    (tmp_path / "example_pkg" / "sub").mkdir()
    for folder in (runtime, runtime.parent, tmp_path / "example_pkg", tmp_path / "example_pkg" / "sub"):
        (folder / "__init__.py").write_text("", encoding="utf-8")
    (runtime / "__init__.py").write_text(RUNTIME, encoding="utf-8")
    (tmp_path / "example_pkg" / "py.typed").write_text("", encoding="utf-8")
    for manifest in (elementwise(), everything()):
        path = tmp_path / manifest.module.replace(".", "/")
        for text, suffix in zip(render(manifest), (".py", ".pyi"), strict=True):
            path.with_suffix(suffix).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "example_pkg"]:
        del sys.modules[name]


def imported(name: str) -> tuple[ModuleType, list[Any]]:
    return importlib.import_module(name), importlib.import_module("example_pkg._flydsl.runtime").calls


def test_import_of_a_stub(project: Path) -> None:
    stub, calls = imported("example_pkg.elementwise")
    file = str(project / "example_pkg" / "elementwise.py")
    assert calls == [
        ("attach", "example_pkg.elementwise", file, "_flydsl/elementwise.json", DIGEST, ("gfx942", "gfx1100"), "import"),
        ("launcher", "vector_add"),
        ("launcher", "axpy"),
        "on_import",
    ]
    assert stub.__doc__ == DOCS["elementwise"]
    assert stub.__all__ == ["axpy", "vector_add"]
    assert str(inspect.signature(stub.vector_add)) == "(A, B, C, stream=None)"
    assert str(inspect.signature(stub.axpy)) == "(alpha, X, Y, n)"
    assert inspect.getdoc(stub.vector_add) == "Add two matrices.\n\nA, B\n    Summands."
    assert stub.axpy.__doc__ == "Launch axpy."
    assert (stub.vector_add.__module__, stub.vector_add.__qualname__) == ("example_pkg.elementwise", "vector_add")


def test_import_of_everything(project: Path) -> None:
    del project
    stub, calls = imported("example_pkg.sub.every")
    assert calls[0][3] == "../_flydsl/sub/every.json"
    assert calls[0][5:] == (("gfx942",), "lazy")
    assert calls[1:] == [("launcher", "every"), ("factory", "build_softmax"), "on_import"]
    signature = inspect.signature(stub.every)
    assert str(signature) == ("(self, /, match, flag=True, bias=None, *, mode='a \"quoted\" \\\\ one', dtype, größe=(1, 2), stream=None)")
    assert signature.parameters["mode"].default == 'a "quoted" \\ one'
    assert stub.every.__doc__ == 'Say "quoted" \\ and """triple""" ünïcode "'
    assert str(inspect.signature(stub.build_softmax)) == "(N, dtype_str='f32', eps=1e-06)"
    assert stub.build_softmax.kind == "factory"


def test_a_stub_imports_nothing_but_the_run_time() -> None:
    for manifest in (elementwise(), everything()):
        tree = ast.parse(render(manifest)[0])
        found = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert found == ["from example_pkg._flydsl.runtime import attach as _attach"]


USER = """
from typing import assert_type

import numpy as np

from example_pkg import elementwise
from example_pkg.elementwise import axpy, vector_add
from example_pkg.sub.every import build_softmax, every

a = np.zeros((2, 3), np.float32)
vector_add(a, a, C=a, stream=5)
vector_add(a, a, a)
axpy(2, a, a, n=3)
assert_type(elementwise.__flydsl__.is_loaded(), bool)
vector_add.load(device=1)
softmax = build_softmax(1024, dtype_str="bf16")
softmax(a, a, rows=2, stream=None)
assert_type(softmax.specializations[0].name, str)
every(5, object(), dtype="f32", mode=5)
bound = vector_add.bind(a, a, C=a)
bound()
bound.update(B=a, stream=5)
bound.update()
bound.releases_gil = False
assert_type(bound.specialization, str)
every.bind(5, object(), dtype="f32").update(self=7, mode="fast")
softmax.bind(a, a, 2).update(rows=3)
"""

WRONG = """
from example_pkg.elementwise import axpy, vector_add
from example_pkg.sub.every import build_softmax

vector_add(1, 2, 3)
vector_add()
axpy("x", None, None, 1)
build_softmax("x")
bound = axpy.bind(1.0, vector_add, None, 1)
bound(1)
bound.update(1.0)
bound.update(beta=1.0)
bound.update(n="3")
"""


def run_mypy(project: Path, source: str) -> str:
    pytest.importorskip("mypy")
    (project / "user.py").write_text(source, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir",
        str(project / "cache"),
        "user.py",
        "example_pkg",
    ]
    environment = {name: value for name, value in os.environ.items() if name not in {"MYPYPATH", "PYTHONPATH"}}
    done = subprocess.run(command, cwd=project, env=environment, check=False, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_type_checker_accepts_right_calls(project: Path) -> None:
    assert run_mypy(project, USER) == ""


def test_type_checker_refuses_wrong_calls(project: Path) -> None:
    lines = [line for line in run_mypy(project, WRONG).splitlines() if "error" in line]
    assert sorted({int(line.split(":")[1]) for line in lines}) == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert {line.split(":")[0] for line in lines} == {"user.py"}


@given(doc=st.text(st.characters(codec=None) | st.sampled_from("\"\\\n \t\r\f\0'{}%#")))
def test_any_docstring(doc: str) -> None:
    entry = dataclasses.replace(elementwise().launchers[1], doc=doc)
    source, interface = render_stub(
        module("example_pkg.x", entry),
        manifest_sha256=DIGEST,
        manifest_file="x.json",
        runtime_package="example_pkg._flydsl.runtime",
        module_doc=doc,
    )
    tree = ast.parse(source)
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if doc:
        assert ast.get_docstring(tree, clean=False) == doc
        assert ast.get_docstring(function) == inspect.cleandoc(doc)
    assert len(tree.body) == 6
    assert len(ast.parse(interface).body) == len(ast.parse(render(module("example_pkg.x", elementwise().launchers[1]))[1]).body)


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda each: st.lists(each, max_size=3).map(tuple),
    )
)
def test_any_default(value: Any) -> None:
    entry = launcher("f", (parameter("x", "constexpr", default=value),), specialization("f", {}, {"x": value}))
    source, _ = render(module("example_pkg.x", entry))
    (function,) = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert ast.literal_eval(function.args.defaults[0]) == value


@pytest.mark.parametrize(
    ("name", "parameter_name", "what"),
    [
        ("Softmax.class", "A", '"Softmax.class" is not a Python name, so the stub cannot define it'),
        ("_attach.run", "A", "the name _attach.run is taken by the stub itself"),
        ("Softmax.__run", "A", "the name Softmax.__run is taken by the stub itself"),
        ("class", "A", '"class" is not a Python name, so the stub cannot define it'),
        ("x\nimport os", "A", '"x\nimport os" is not a Python name, so the stub cannot define it'),
        ("__all__", "A", "the name __all__ is taken by the stub itself"),
        ("_attach", "A", "the name _attach is taken by the stub itself"),
        ("_Launcher_x", "A", "the name _Launcher_x is taken by the stub itself"),
        ("run", "lambda", 'the parameter "lambda" is not a Python name'),
        ("run", "a=print()", 'the parameter "a=print()" is not a Python name'),
    ],
)
def test_names_that_cannot_stand_in_a_module(name: str, parameter_name: str, what: str) -> None:
    entry = launcher(name, (parameter(parameter_name),), specialization("x", {parameter_name: TENSOR}))
    with pytest.raises(StubError) as caught:
        render(module("example_pkg.x", entry))
    (fault,) = caught.value.faults
    assert (fault.where, fault.what) == (f"example_pkg.x:{name}", what)


def test_module_names_are_checked() -> None:
    with pytest.raises(StubError, match='"x-y" cannot be imported'):
        render(module("example_pkg.x-y", *elementwise().launchers))
