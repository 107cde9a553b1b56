# SPDX-License-Identifier: Apache-2.0
"""Annotations of what is copied into wheels and of what is generated can be evaluated, and hold when they are checked at run time."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import PACKAGES, call_hook, copy_project, run_script, unpack

import flydsl_build

# Evaluates what is written in modules: also of nested functions and of assignments in functions, which instrumented code checks.
CHECK = """
import ast, importlib, inspect, pkgutil, types, typing

def evaluate(name, text, names):
    found = 0
    for node in ast.walk(ast.parse(text)):
        some = [getattr(node, field, None) for field in ("annotation", "returns")]
        for one in filter(None, some):
            found += 1
            text = one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else ast.unparse(one)
            try:
                eval(text, names)
            except Exception as error:
                faults.append(f"{name}: {text}: {error!r}")
    return found

def ask(value, seen):
    if id(value) in seen or not inspect.getmodule(value) is module:
        return
    seen.add(id(value))
    if isinstance(value, type):
        for one in vars(value).values():
            for part in (one, getattr(one, "__func__", None), getattr(one, "fget", None)):
                if isinstance(part, (type, types.FunctionType)):
                    ask(part, seen)
    try:
        typing.get_type_hints(value)
        if isinstance(value, types.FunctionType):
            inspect.signature(value, eval_str=True)
    except Exception as error:
        faults.append(f"{module.__name__}.{value.__qualname__}: {error!r}")

faults, counts = [], {}
for name in argument["modules"]:
    module = importlib.import_module(name)
    with open(module.__file__) as file:
        counts[name] = evaluate(name, file.read(), vars(module))
    for value in list(vars(module).values()):
        if callable(value) and hasattr(value, "__wrapped__"):
            inspect.signature(value, eval_str=True)
        if isinstance(value, (type, types.FunctionType)):
            ask(value, set())
for path in argument.get("interfaces", ()):
    names = {"__name__": "interface"}
    with open(path) as file:
        text = file.read()
    exec("from __future__ import annotations\\n" + text, names)
    counts[path] = evaluate(path, text, names)
print(json.dumps([faults, counts]))
"""


@pytest.fixture(scope="module")
def ops_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a package with ops of torch is installed."""
    folder = tmp_path_factory.mktemp("ops")
    project = copy_project(PACKAGES / "torch_ops", folder / "project")
    wheel = call_hook(project, "build_wheel", folder, None, None).value
    return unpack(folder / "site", folder / wheel)


def _modules(folder: Path, package: str) -> list[str]:
    return [package, *(f"{package}.{path.stem}" for path in sorted(folder.glob("*.py")) if path.stem != "__init__")]


def test_run_time_and_hook(factories_site: Path) -> None:
    runtime = "factory_kernels._flydsl.runtime"
    names = _modules(factories_site / runtime.replace(".", "/"), runtime)
    hook = _modules(Path(flydsl_build.__file__).parent / "editable", "flydsl_build.editable")
    faults, counts = run_script(CHECK, site=factories_site, argument={"modules": [*names, *hook]})
    assert faults == []
    assert {*names, *hook} == set(counts)
    assert sum(counts.values()) > 300


def test_stubs(factories_site: Path) -> None:
    stubs = sorted((factories_site / "factory_kernels").glob("*.pyi"))
    assert len(stubs) > 1
    argument = {"modules": [f"factory_kernels.{path.stem}" for path in stubs], "interfaces": list(map(str, stubs))}
    faults, counts = run_script(CHECK, site=factories_site, argument=argument)
    assert faults == []
    assert min(counts[str(path)] for path in stubs) > 5


def test_modules_of_ops(ops_site: Path) -> None:
    pytest.importorskip("torch")
    interfaces = sorted((ops_site / "op_kernels").glob("*_torch.pyi"))
    argument = {"modules": [f"op_kernels.{path.stem}" for path in interfaces], "interfaces": list(map(str, interfaces))}
    faults, counts = run_script(CHECK, site=ops_site, argument=argument, FLYDSL_BUILD_LOAD="lazy")
    assert faults == []
    assert min(counts[str(path)] for path in interfaces) > 2


CHECKED = {
    "typeguard": "from typeguard import install_import_hook; install_import_hook(argument)",
    "beartype": "from beartype.claw import beartype_package; beartype_package(argument)",
}

USE = """
import numpy, fake_hip, warnings
warnings.simplefilter("error")
{install}
from tiny_kernels.negate import negate
import tiny_kernels.negate as module
negate(numpy.zeros(7, "f4"), 5)
negate.bind(numpy.zeros(7, "f4"), 5)()
errors = []
for wrong in (lambda: negate(numpy.zeros(7, "f8"), 5), lambda: module.__flydsl__.load("x")):
    try:
        wrong()
    except Exception as error:
        errors.append(type(error).__name__)
module.__flydsl__.reinitialize()
runtime = sys.modules["tiny_kernels._flydsl.runtime.module"]
launches = [event["kernel"] for event in fake_hip.FakeHip("libamdhip64.so.7").events("launch")]
print(json.dumps([launches, errors, type(runtime.__loader__).__name__, str(negate.specializations)]))
"""


@pytest.mark.parametrize(("tool", "loader"), [("typeguard", "TypeguardLoader"), ("beartype", "BeartypeSourceFileLoader")])
def test_checked_at_run_time(tool: str, loader: str, site: Path, hip_library: Path) -> None:
    pytest.importorskip(tool)
    script = USE.replace("{install}", CHECKED[tool])
    launches, errors, found, text = run_script(script, site=site, hip=hip_library, targets="gfx942", argument="tiny_kernels")
    assert launches == ["negate_kernel_0"] * 2
    # What is wrong of an argument with an annotation, its checker says before we do.
    assert errors == ["TypeError", {"typeguard": "TypeCheckError", "beartype": "BeartypeCallHintParamViolation"}[tool]]
    assert (found, text) == (loader, "(<negate(X: f32[L], n: i32, stream: a stream) for gfx942>,)")


FACTORIES = """
import numpy, warnings
warnings.simplefilter("error")
{install}
import factory_kernels.made as made
names = [name for name in made.__all__ if hasattr(getattr(made, name), "specializations")]
made_of = []
for name in names:
    factory = getattr(made, name)
    for one in factory.specializations:
        try:
            made_of.append(repr(factory(**one.params)))
        except TypeError:
            pass
    try:
        factory(no_such_parameter=1)
    except TypeError:
        pass
print(json.dumps(len(made_of)))
"""


@pytest.mark.parametrize("tool", CHECKED)
def test_factories_checked_at_run_time(tool: str, factories_site: Path, hip_library: Path) -> None:
    pytest.importorskip(tool)
    script = FACTORIES.replace("{install}", CHECKED[tool])
    assert run_script(script, site=factories_site, hip=hip_library, targets="gfx942", argument="factory_kernels") > 5
