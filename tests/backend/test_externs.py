# SPDX-License-Identifier: Apache-2.0
"""Externs and init functions from the project to the launch: what a build refuses, and what its wheel does on the fake HIP."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, TESTS, call_hook, copy_project, run_script, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from conftest import Build

# Each of these is refused by FlyDSL in a bitcode path, and a build's folder can have all of them.
ODD_FOLDER = 'it\'s a "new", {odd} checkout'


def manifest(site: Path, module: str) -> dict[str, Any]:
    package, _, name = module.partition(".")
    found: dict[str, Any] = json.loads((site / package / "_flydsl" / f"{name}.json").read_text())
    return found


def changed(site: Path, folder: Path, module: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """Copy what a wheel installs, and change the manifest of one module and the digest of it in the stub."""
    shutil.copytree(site, folder)
    package, _, name = module.partition(".")
    path = folder / package / "_flydsl" / f"{name}.json"
    old = path.read_bytes()
    data = json.loads(old)
    change(data)
    path.write_text(json.dumps(data))
    stub = folder / package / f"{name}.py"
    digests = [hashlib.sha256(one).hexdigest() for one in (old, path.read_bytes())]
    assert digests[0] in stub.read_text()
    stub.write_text(stub.read_text().replace(*digests))
    return folder


@pytest.fixture(scope="session")
def device_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed distribution, device-library-kit, with an init function."""
    site = tmp_path_factory.mktemp("library")
    files = {
        "device_library/__init__.py": "",
        "device_library/state.py": "calls = []\n\n\ndef init(module):\n    calls.append(module)\n    return 0\n",
        "device_library_kit-3.dist-info/METADATA": "Metadata-Version: 2.1\nName: device-library-kit\nVersion: 3\n",
        "device_library_kit-3.dist-info/RECORD": "device_library/__init__.py,,\n",
    }
    for name, text in files.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text)
    return site


@pytest.fixture(scope="session")
def extern_site(tmp_path_factory: pytest.TempPathFactory, device_library: Path) -> Path:
    """What the wheel of tests/packages/externs installs; it is built with a virtual environment in the project's folder."""
    folder = tmp_path_factory.mktemp("externs")
    project = copy_project(PACKAGES / "externs", folder / "project")
    environment = shutil.copytree(device_library, project / ".venv" / "lib" / "python3" / "site-packages")
    name = call_hook(project, "build_wheel", folder, env={"PYTHONPATH": str(environment)}).value
    return unpack(folder / "site", folder / name)


@pytest.fixture(scope="session")
def shmem_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/packages/shmem, under a name that is hard to pass on."""
    return copy_project(PACKAGES / "shmem", tmp_path_factory.mktemp("shmem") / ODD_FOLDER / "project")


@pytest.fixture(scope="session")
def shmem_site(shmem_project: Path) -> Path:
    """What the wheel of tests/packages/shmem installs; its temporary folders have a hard name too."""
    temporary = shmem_project.parent / "a, tmp"
    temporary.mkdir()
    name = call_hook(shmem_project, "build_wheel", shmem_project.parent, env={"TMPDIR": str(temporary)}).value
    assert list(temporary.iterdir()) == []
    return unpack(shmem_project.parents[1] / "site", shmem_project.parent / name)


PRELUDE = """
import os, sys, threading
import numpy
import fake_hip

hip = fake_hip.FakeHip("libamdhip64.so.7")
x = numpy.ones(3, numpy.float32)

def told(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ok"

def kinds(*wanted):
    return [event["event"] for event in hip.events(*wanted)]
"""


@pytest.fixture
def run(hip_library: Path) -> Callable[..., list[Any]]:
    """Run a script after `PRELUDE` with a wheel's files on the path; return the values that it put into the list `out`."""

    def start(site: Path, script: str, *more: Path, targets: str = "gfx942:sramecc+:xnack-", **env: str) -> list[Any]:
        paths = os.pathsep.join(map(str, (site, *more, TESTS)))
        code = f"{PRELUDE}\nout = []\n{script}\nprint(json.dumps(out))\n"
        values: list[Any] = run_script(code, hip=hip_library, targets=targets, **{"PYTHONPATH": paths, **env})
        return values

    return start


LAZY = {"FLYDSL_BUILD_LOAD": "lazy"}

# ---- what a build refuses --------------------------------------------------------------------------------------------

PYPROJECT = """
[build-system]
requires = ["flydsl-build"]
build-backend = "flydsl_build.backend"

[project]
name = "faulty"
version = "1.0"

[tool.setuptools]
packages = ["faulty"]

[tool.flydsl-build]
archs = ["gfx942"]
"""
KERNEL = """
import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.compiler.extern_link import link_extern
from flydsl.expr.extern import ffi
"""
LAUNCHER = """

@flyc.kernel
def {name}_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        value = X[index]
{calls}
        X[index] = value


@flyc.jit
def {name}(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    {name}_kernel(X, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)
"""


def table(*names: str) -> str:
    """Declare launchers, `module:attribute`."""
    return "".join(f'\n[tool.flydsl-build.kernels."faulty.{name}"]\nargs = {{ X = "f32[L]" }}\n' for name in names)


def launcher(name: str, *externs: str) -> str:
    return LAUNCHER.format(name=name, calls="\n".join(f"        value = fx.Float32({extern}(value))" for extern in externs))


def device_code(*lines: str, cpu: str = "gfx942", version: int = 600) -> str:
    body = "\n".join(line.replace(" {", " #0 {", 1) if line.startswith("define") else line for line in lines)
    flags = f'!llvm.module.flags = !{{!0}}\n!0 = !{{i32 1, !"amdhsa_code_object_version", i32 {version}}}\n'
    return f'target triple = "amdgcn-amd-amdhsa"\n{body}\nattributes #0 = {{ nounwind "target-cpu"="{cpu}" }}\n{flags}'


def identity(name: str) -> str:
    return f"define float @{name}(float %x) {{ ret float %x }}"


def message(build: Build) -> str:
    """The back end's words."""
    assert build.status == 1, build.output
    assert "Traceback (most recent call last)" not in build.output, build.output
    return build.output[build.output.index("flydsl-build: ") :].partition("failed: ")[2]


def test_tables_of_symbols_that_no_kernel_calls(build: Callable[..., Build], tmp_path: Path) -> None:
    """What such a table says would have no effect, and nothing would tell."""
    source = KERNEL + 'scaled = link_extern(ffi("scaled", ["float32"], "float32"), bitcode_path="device.ll")\n' + launcher("a", "scaled")

    def files(*tables: str) -> dict[str, str]:
        externs = "".join(f'\n[tool.flydsl-build.externs."{name}"]\nbitcode = "device.ll"\n' for name in tables)
        pyproject = PYPROJECT + table("a:a") + externs
        return {
            "pyproject.toml": pyproject,
            "faulty/__init__.py": "",
            "faulty/a.py": source,
            "device.ll": device_code(identity("scaled")),
        }

    place = "tool.flydsl-build.externs"
    assert message(build(files("scalled", "*_get", "other"), folder="several")) == (
        "3 faults:\n"
        f"  1. {place}.scalled: no kernel calls an extern function scalled\n"
        '    -> Did you mean "scaled"?\n'
        f'  2. {place}."*_get": no kernel calls an extern function *_get\n'
        "    -> kernels call scaled\n"
        f"  3. {place}.other: no kernel calls an extern function other\n"
        "    -> kernels call scaled\n"
    )
    cached = {"FLYDSL_BUILD_CACHE": "true", "FLYDSL_BUILD_CACHE_DIR": str(tmp_path / "cache")}
    for folder, found in {"hidden": "0 from the cache", "hidden-again": "1 from the cache"}.items():
        refused = build(files("sc*", "scaled"), folder=folder, env=cached)
        assert found in refused.output
        assert message(refused) == (
            f'{place}.scaled: {place}."sc*" stands before it and is for scaled too\n    -> put the narrower table first\n'
        )
    # A build for some of the targets may leave out those that call it.
    narrow = build(files("scaled", "other"), folder="narrow", config={"archs": "gfx942"})
    assert narrow.status == 0, narrow.output
    assert f"flydsl-build: warning: {place}.other: no kernel calls an extern function other\n" in narrow.output


def test_no_kernel_calls_an_extern(build: Callable[..., Build]) -> None:
    pyproject = PYPROJECT + table("a:a") + '\n[tool.flydsl-build.externs.x]\nbitcode = "device.ll"\n'
    files = {"pyproject.toml": pyproject, "faulty/__init__.py": "", "faulty/a.py": KERNEL + launcher("a")}
    assert message(build(files)) == (
        "tool.flydsl-build.externs.x: no kernel calls an extern function x\n    -> no kernel calls one: remove the table\n"
    )


def test_faults_that_show_in_the_code_object(build: Callable[..., Build]) -> None:
    """LLVM says nothing of these: the code object is made, and only the GPU, or wrong results, would tell."""
    device = device_code(
        "@stored = addrspace(1) global float 1.0",
        "@read = addrspace(1) global float 1.0",
        "@kept = addrspace(1) externally_initialized global float 0.0",
        "@used = addrspace(1) global float 0.0",
        (
            "@llvm.used = appending addrspace(1) global [1 x ptr] [ptr addrspacecast (ptr addrspace(1) @used to ptr)], "
            'section "llvm.metadata"'
        ),
        "declare float @of_another_library(float)",
        "define float @store(float %x) {",
        "  %old = load float, ptr addrspace(1) @stored",
        "  store float %x, ptr addrspace(1) @stored",
        "  ret float %old",
        "}",
        *(
            f"define float @{name}(float %x) {{\n  %state = load float, ptr addrspace(1) @{state}\n"
            "  %sum = fadd float %x, %state\n  ret float %sum\n}"
            for name, state in (("fold", "read"), ("keep", "kept"), ("use", "used"))
        ),
        "define float @call(float %x) {",
        "  %result = call float @of_another_library(float %x)",
        "  ret float %result",
        "}",
    )
    names = ("store", "fold", "keep", "use", "call")
    source = KERNEL + "".join(f'{name} = ffi("{name}", ["float32"], "float32")\n' for name in names)
    globals_ = '["stored", "read", "kept", "used", "nowhere", "keep"]'
    built = build(
        {
            "pyproject.toml": (
                f'{PYPROJECT}{table("a:a", "b:b")}\n[tool.flydsl-build.externs."*"]\nbitcode = "device.ll"\nglobals = {globals_}\n'
            ),
            "device.ll": device,
            "faulty/__init__.py": "",
            "faulty/a.py": source + launcher("a", *names),
            "faulty/b.py": source + launcher("b", "call"),
        }
    )
    keep = (
        "    -> declare it as a HIP __device__ variable, or in LLVM IR as externally_initialized with external linkage, or list it in "
        "@llvm.used; otherwise the linker of bitcode makes it local or folds it away\n"
    )
    gone = f"is not in the code object: no bitcode defines it, or it was folded away\n{keep}"
    undefined = (
        "undefined symbol of_another_library: no bitcode defines it\n"
        "    -> give the bitcode that defines it; clang -x hip drops unused __device__ functions unless it is called with -fgpu-rdc\n"
    )
    text = message(built)
    assert f"faulty.a, gfx942: {undefined}" in text
    assert f"faulty.a, gfx942, global stored: is local to the code object, so no init function can find it\n{keep}" in text
    assert f"faulty.a, gfx942, global read: {gone}" in text
    assert f"faulty.a, gfx942, global nowhere: {gone}" in text
    assert "faulty.a, gfx942, global kept" not in text
    assert "faulty.a, gfx942, global used" not in text
    # All modules' faults come together.
    assert f"faulty.b, gfx942: {undefined}" in text


def test_faults_of_bitcode_over_targets(build: Callable[..., Build]) -> None:
    source = KERNEL + (
        'old = ffi("old", ["float32"], "float32")\n'
        'gone = link_extern(ffi("gone", ["float32"], "float32"), bitcode_path="lib/gone.bc")\n'
        'local = link_extern(ffi("local", ["float32"], "float32"), bitcode_path="good.ll", module_init_fn=lambda module: None)\n'
        'narrow = ffi("narrow", ["float32"], "float32")\n'
        'first = link_extern(ffi("twice", ["float32"], "float32"), bitcode_path="first.ll")\n'
        'second = link_extern(ffi("twice", ["float32"], "float32"), bitcode_path="second.ll")\n'
    )
    built = build(
        {
            "pyproject.toml": (
                PYPROJECT.replace('"gfx942"', '"gfx942", "gfx950"')
                + table("a:a", "a:b", "a:c", "d:d", "d:e")
                + '\n[tool.flydsl-build.externs.old]\nbitcode = "old.ll"\n'
                + '\n[tool.flydsl-build.externs.narrow]\nbitcode = "narrow.ll"\ncompatible = ["gfx950"]\n'
            ),
            "old.ll": device_code(identity("old"), version=500),
            "good.ll": device_code(identity("local")),
            "narrow.ll": device_code("define float @narrow(half %x) { ret float 0.0 }"),
            "first.ll": device_code(identity("twice"), cpu="generic"),
            "second.ll": device_code("define float @twice(float %x) { ret float 0.0 }", cpu="generic"),
            "faulty/__init__.py": "",
            "faulty/a.py": source + launcher("a", "old", "gone") + launcher("b", "local") + launcher("c", "narrow"),
            "faulty/d.py": source + launcher("d", "first") + launcher("e", "second"),
        }
    )
    text = message(built)
    faults = [line.strip().partition(". ")[2] for line in text.splitlines() if line.startswith("  ") and line.strip()[0].isdigit()]
    assert faults == [
        "extern old, gfx942, gfx950: bitcode old.ll is for code object version 5, FlyDSL compiles version 6",
        "extern gone, gfx942, gfx950: bitcode lib/gone.bc does not exist",
        "extern local, gfx942, gfx950: its init function is a lambda, which has no name to import it by",
        (
            "extern narrow, gfx942, gfx950: the ffi declaration (float32) -> float32 does not fit the function in narrow.ll, "
            "which is float (half)"
        ),
        "extern local, gfx950: bitcode good.ll was compiled for gfx942",
        "extern twice, gfx942, gfx950: is defined in first.ll and in second.ll",
    ]
    assert text.startswith("6 faults:\n")


def test_bitcode_that_llvm_alone_refuses(build: Callable[..., Build]) -> None:
    """The linker reads a copy with another name; the message has the author's."""
    source = KERNEL + 'wrong = link_extern(ffi("wrong", ["float32"], "float32"), bitcode_path="lib/wrong.ll")\n'
    built = build(
        {
            "pyproject.toml": f"{PYPROJECT}{table('a:a')}",
            "lib/wrong.ll": device_code("define float @wrong(float %x) {\n  frobnicate float %x\n}"),
            "faulty/__init__.py": "",
            "faulty/a.py": source + launcher("a", "wrong"),
        }
    )
    text = message(built)
    assert "Failed loading file from lib/wrong.ll, error: expected instruction opcode\n" in text


def test_functions_that_the_wheel_will_not_have(build: Callable[..., Build]) -> None:
    source = KERNEL + "from build_support import outside\n\n\ndef inside(module):\n    return 0\n\n"
    for name in ("inside", "outside"):
        source += (
            f'{name}_extern = link_extern(ffi("{name}_extern", ["float32"], "float32"), bitcode_path="device.ll", module_init_fn={name})\n'
        )
    built = build(
        {
            "pyproject.toml": (
                f'{PYPROJECT}{table("a:a")}\n[tool.flydsl-build.axes.nic]\nvalues = ["x"]\nselect = "build_support:select"\n'
            ),
            "build_support.py": "def outside(module):\n    return 0\n\n\ndef select():\n    return 'x'\n",
            "device.ll": device_code(identity("inside_extern"), identity("outside_extern")),
            "faulty/__init__.py": "",
            "faulty/a.py": source + launcher("a", "inside_extern", "outside_extern"),
        }
    )
    missing = (
        "its module build_support is in the project, but not among those that setuptools installs\n"
        "    -> add it to [tool.setuptools] packages or py-modules"
    )
    assert message(built).strip() == (
        "3 faults:\n"
        "  1. init function faulty.a:inside: it is in faulty.a, which is declared: "
        "in the wheel a stub that has its launchers alone takes the place of its source\n"
        "    -> move it to a module without kernels that are declared\n"
        f"  2. init function build_support:outside: {missing}\n"
        f"  3. tool.flydsl-build.axes.nic.select, build_support:select: {missing}"
    )


# ---- what a build makes ----------------------------------------------------------------------------------------------


def provenance(project: Path, *files: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "file": name,
            "sha256": hashlib.sha256((project / name).read_bytes()).hexdigest(),
            "size": (project / name).stat().st_size,
            "code_object_version": 6,
            "targets": [target],
        }
        for name, target in files
    ]


def test_several_files_and_init_functions(extern_site: Path) -> None:
    found = manifest(extern_site, "extern_kernels.several")
    (unit,) = found["units"]
    assert unit["init"] == ["extern_kernels.state:first", "extern_kernels.state:second"]
    assert unit["globals"] == [{"name": "first_state", "size": 4}, {"name": "second_state", "size": 12}]
    assert found["provenance"]["bitcode"] == provenance(
        PACKAGES / "externs",
        *((f"lib/{name}_{target}.ll", target) for target in ("gfx942", "gfx1100") for name in ("stateless", "first", "second")),
    )
    assert found["provenance"]["distributions"] == {}
    plain = manifest(extern_site, "extern_kernels.other")
    assert plain["provenance"]["bitcode"] == []
    assert [one["init"] for one in plain["units"]] == [[]]


def test_distribution_of_an_init_function(extern_site: Path) -> None:
    found = manifest(extern_site, "extern_kernels.foreign")
    assert [one["init"] for one in found["units"]] == [["device_library.state:init"]]
    assert found["provenance"]["distributions"] == {"device_library": "device-library-kit"}


CARDS = ("mlx5", "bnxt", "ionic")


def test_wrappers_made_at_import(shmem_site: Path) -> None:
    """89 wrappers, of which a kernel calls three; only what it calls is linked, and only it is built for each card."""
    found = manifest(shmem_site, "shmem_kernels.put")
    assert found["axes"] == {"nic": {"values": list(CARDS), "select": "shmem_kernels.nic:detect"}}
    units = {one["name"]: one for one in found["units"]}
    assert set(units) == {"main", *(f"nic-{card}" for card in CARDS)}
    assert {name: one["axes"] for name, one in units.items()} == {"main": {}, **{f"nic-{card}": {"nic": card} for card in CARDS}}
    for name, one in units.items():
        assert set(one["code_objects"]) == {"gfx942", "gfx1100"}
        assert one["init"] == ([] if name == "main" else ["shmem_kernels.state:module_init"])
        assert one["globals"] == ([] if name == "main" else [{"name": "shmem_state", "size": 8}])
    objects = [one["code_objects"][target]["sha256"] for one in units.values() for target in ("gfx942", "gfx1100")]
    assert len(set(objects)) == 8
    files = [(f"lib/libshmem_{target}_{card}.ll", target) for target in ("gfx942", "gfx1100") for card in CARDS]
    by_file = sorted(found["provenance"]["bitcode"], key=lambda one: one["file"])
    assert by_file == sorted(provenance(PACKAGES / "shmem", *files), key=lambda one: one["file"])


def test_no_trace_of_the_build_folder(shmem_site: Path) -> None:
    for path in shmem_site.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not any(word in data for word in (b"checkout", b"a, tmp")), path


def test_source_distribution_has_the_bitcode(shmem_project: Path, shmem_site: Path, tmp_path: Path) -> None:
    del shmem_site  # The build folder of the wheel must not get into the archive.
    with tarfile.open(tmp_path / call_hook(shmem_project, "build_sdist", tmp_path).value) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {name for name in names if name.startswith("lib/")} == {
        f"lib/libshmem_{target}_{card}.ll" for target in ("gfx942", "gfx1100") for card in CARDS
    }
    assert not any("_flydsl" in name for name in names)


@pytest.mark.parametrize("value", [".", "./", "..", "/", "", "off", "{arch}{nic}", "x{arch}{nic}y", "{{arch}}", "a//b", "[", "**"])
def test_source_distribution_with_any_environment(value: str, tmp_path: Path) -> None:
    from types import SimpleNamespace

    from flydsl_build.package.source_files import extern_files

    (tmp_path / "gfx942mlx5").write_text("")
    (tmp_path / "{arch}").write_text("")
    settings: Any = SimpleNamespace(externs=(), env={"ANY": value})
    expected = {"{arch}{nic}": ["gfx942mlx5", "{arch}"], "{{arch}}": ["{arch}"]}
    assert extern_files(settings, tmp_path) == expected.get(value, [])


# ---- init functions at run time --------------------------------------------------------------------------------------

COUNT = "import extern_kernels.state as state, extern_kernels.several as m\n"
WHERE = "init function extern_kernels.state:first of extern_kernels.several on device 0"


def test_init_runs_once_before_the_first_launch(extern_site: Path, run: Any) -> None:
    out = run(
        extern_site,
        COUNT + "handle = hip.events('load')[0]['module']\nout += [kinds(), state.calls == [('first', handle), ('second', handle)]]\n"
        "hip.clear(); m.several(x, 3); m.plain(x, 3); m.several(x, 3); out += [kinds(), len(state.calls)]",
    )
    assert out == [["init", "load", "copy", "copy"], True, ["device_attribute", "launch", "launch", "launch"], 2]


def test_lazy_import_touches_nothing(extern_site: Path, run: Any) -> None:
    script = COUNT + "out += [hip.events(), list(state.calls)]\nm.several(x, 3)\nout += [kinds(), len(state.calls)]"
    assert run(extern_site, script, **LAZY) == [[], [], ["init", "device_attribute", "load", "copy", "copy", "launch"], 2]


def test_init_that_raises(extern_site: Path, run: Any) -> None:
    script = COUNT + (
        "def fail(_): raise ValueError('no peers')\n"
        "state.orders['first'] = [fail]\n"
        "out += [told(m.several, x, 3), kinds(), m.__flydsl__.is_loaded()]; hip.clear()\n"
        "out += [told(m.several, x, 3), kinds(), m.__flydsl__.is_loaded(), [name for name, _ in state.calls]]"
    )
    assert run(extern_site, script, **LAZY) == [
        f"InitError: {WHERE} raised ValueError: no peers",
        ["init", "device_attribute", "load", "unload"],
        False,
        "ok",
        ["load", "copy", "copy", "launch"],
        True,
        ["first", "first", "second"],
    ]


def test_second_init_that_raises(extern_site: Path, run: Any) -> None:
    """Nothing of the failed load counts as done."""
    script = COUNT + (
        "def fail(_): raise ValueError('no peers')\n"
        "state.orders['second'] = [fail]\n"
        "out += [told(m.plain, x, 3), told(m.plain, x, 3), kinds('load', 'unload', 'launch'), [name for name, _ in state.calls]]"
    )
    assert run(extern_site, script, **LAZY) == [
        f"InitError: {WHERE.replace('first', 'second')} raised ValueError: no peers",
        "ok",
        ["load", "unload", "load", "launch"],
        ["first", "second", "first", "second"],
    ]


def test_init_that_raises_while_importing(extern_site: Path, run: Any) -> None:
    script = (
        "import extern_kernels.state as state\n"
        "def fail(_): raise ValueError('no peers')\n"
        "state.orders['first'] = [fail]\n"
        "load = lambda: __import__('extern_kernels.several')\n"
        "out += [told(load), 'extern_kernels.several' in sys.modules, told(load), kinds('load', 'unload'), len(state.calls)]"
    )
    assert run(extern_site, script) == [f"InitError: {WHERE} raised ValueError: no peers", False, "ok", ["load", "unload", "load"], 3]


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("0", "ok"),
        ("None", "ok"),
        ("True", "ok"),
        ("'text'", "ok"),
        ("-1", f"InitError: {WHERE} returned -1"),
        ("3", f"InitError: {WHERE} returned 3"),
        ("numpy.int32(-1)", f"InitError: {WHERE} returned -1"),
        ("numpy.int32(0)", "ok"),
    ],
)
def test_init_that_returns(extern_site: Path, run: Any, value: str, answer: str) -> None:
    script = COUNT + (
        f"state.orders['first'] = [lambda _: {value}]\n"
        "out += [told(m.several, x, 3), kinds('load', 'unload', 'launch'), told(m.several, x, 3)]"
    )
    events = ["load", "launch"] if answer == "ok" else ["load", "unload"]
    assert run(extern_site, script, **LAZY) == [answer, events, "ok"]


@pytest.mark.parametrize("mode", ["lazy", "import"])
def test_init_that_launches_another_module(extern_site: Path, run: Any, mode: str) -> None:
    script = (
        "import extern_kernels.state as state\n"
        "def call(_):\n    from extern_kernels.other import other\n    other(x, 3)\n"
        "state.orders['first'] = [call]\n"
        "import extern_kernels.several as m\n"
        "m.several(x, 3)\n"
        "out += [[event.get('kernel') for event in hip.events('launch')], kinds('load'), len(state.calls)]"
    )
    kernels, loads, calls = run(extern_site, script, FLYDSL_BUILD_LOAD=mode)
    assert (kernels, loads, calls) == (["other_kernel_0", "several_kernel_0"], ["load", "load"], 2)


@pytest.mark.parametrize("mode", ["lazy", "import"])
def test_init_that_launches_its_own_module(extern_site: Path, run: Any, mode: str) -> None:
    script = (
        "import extern_kernels.state as state\n"
        "def call(_):\n    from extern_kernels.several import plain\n    plain(x, 3)\n"
        "state.orders['first'] = [call]\n"
        "def use():\n    from extern_kernels.several import several\n    several(x, 3)\n"
        "out += [told(use), kinds('load', 'unload', 'launch'), told(use), kinds('launch')]"
    )
    assert run(extern_site, script, FLYDSL_BUILD_LOAD=mode) == [
        (
            f"InitError: {WHERE} raised LoadError: extern_kernels.several is called from its own init function on device 0: "
            "a kernel cannot be launched before the init functions of its module are done"
        ),
        ["load", "unload"],
        "ok",
        ["launch"],
    ]


THREADS = """
barrier = threading.Barrier(16)
answers = []

def work():
    barrier.wait()
    answers.append(told(use))

threads = [threading.Thread(target=work) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(30)
out += [answers == ["ok"] * 16, kinds("load", "unload"), len(hip.events("launch")), [name for name, _ in state.calls]]
out.append(kinds("load", "copy", "launch")[:4])
"""


@pytest.mark.parametrize("mode", ["lazy", "import"])
def test_first_call_in_16_threads(extern_site: Path, run: Any, mode: str) -> None:
    script = "import extern_kernels.state as state, time\n"
    script += "state.orders['first'] = [lambda _: time.sleep(0.2)]\n"
    script += "import extern_kernels.several as m\n" if mode == "lazy" else ""
    script += "def use():\n    from extern_kernels.several import several\n    several(x, 3)\n"
    out = run(extern_site, script + THREADS, FLYDSL_BUILD_LOAD=mode)
    assert out == [True, ["load"], 16, ["first", "second"], ["load", "copy", "launch", "launch"]]


def test_16_threads_after_an_init_that_fails(extern_site: Path, run: Any) -> None:
    """Who waited tries again: one thread gets the error, the next loads."""
    script = COUNT + "def fail(_): raise ValueError('once')\nstate.orders['first'] = [fail]\ndef use(): m.several(x, 3)\n" + THREADS
    script += "out.append(sorted(answers)[0])"
    same, loads, launches, calls, _, first = run(extern_site, script, **LAZY)
    assert (same, loads, launches) == (False, ["load", "unload", "load"], 15)
    assert calls == ["first", "first", "second"]
    assert first == f"InitError: {WHERE} raised ValueError: once"


def test_two_devices(extern_site: Path, run: Any) -> None:
    script = COUNT + (
        "m.several(x, 3); hip._library.hipSetDevice(1); m.several(x, 3); m.several(x, 3); hip._library.hipSetDevice(0); m.several(x, 3)\n"
        "loads = hip.events('load')\n"
        "out += [[event['device'] for event in loads], [event['target'] for event in loads]]\n"
        "out += [[name for name, module in state.calls if module == event['module']] for event in loads]\n"
        "out += [[event['device'] for event in hip.events('launch')]]\n"
        "m.__flydsl__.load(2); out += [len(state.calls), m.__flydsl__.is_loaded(2), m.__flydsl__.is_loaded()]"
    )
    out = run(extern_site, script, targets="gfx942:sramecc+:xnack-,gfx1100,gfx942:sramecc+:xnack-", **LAZY)
    assert out == [[0, 1], ["gfx942", "gfx1100"], ["first", "second"], ["first", "second"], [0, 1, 1, 0], 6, True, True]


def test_init_that_fails_on_one_device(extern_site: Path, run: Any) -> None:
    script = COUNT + (
        "m.several(x, 3); state.orders['first'] = [lambda _: -1]\n"
        "out += [told(m.__flydsl__.load, 1), m.__flydsl__.is_loaded(0), m.__flydsl__.is_loaded(1), told(m.several, x, 3)]"
    )
    text = f"InitError: {WHERE.replace('device 0', 'device 1')} returned -1"
    assert run(extern_site, script, targets="gfx1100,gfx1100", **LAZY) == [text, True, False, "ok"]


FORK = """
pid = os.fork()
if pid == 0:
    hip.clear()
    before = (m.__flydsl__.is_loaded(), len(state.calls))
    m.several(x, 3)
    fine = before == (False, {called}) and len(state.calls) == {called} + 2
    fine = fine and kinds("load", "unload", "launch") == ["load", "launch"]
    os._exit(0 if fine else 9)
out.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
hip.clear()
m.several(x, 3)
out += [kinds("load", "copy", "launch"), len(state.calls)]
"""


def test_fork(extern_site: Path, run: Any) -> None:
    out = run(extern_site, COUNT + "m.several(x, 3)\n" + FORK.format(called=2), FLYDSL_BUILD_LOAD="import")
    assert out == [0, ["launch"], 2]
    assert run(extern_site, COUNT + FORK.format(called=0), **LAZY) == [0, ["load", "copy", "copy", "launch"], 2]


def test_reinitialize(extern_site: Path, run: Any) -> None:
    script = COUNT + (
        "m.__flydsl__.reinitialize(); out += [kinds('load', 'copy'), len(state.calls)]\n"
        "m.__flydsl__.reinitialize(); out += [kinds('load', 'copy'), len(state.calls), len({module for _, module in state.calls})]\n"
        "state.orders['second'] = [lambda _: 7]\n"
        "out += [told(m.__flydsl__.reinitialize), m.__flydsl__.is_loaded(), told(m.several, x, 3), kinds('unload')]"
    )
    loaded = ["load", "copy", "copy"]
    failed = f"InitError: {WHERE.replace('first', 'second')} returned 7"
    out = run(extern_site, script, **LAZY)
    # What failed is made up for by the next call, on what is loaded.
    assert out == [loaded, 2, [*loaded, "copy", "copy"], 4, 1, failed, False, "ok", []]


# ---- import locks ----------------------------------------------------------------------------------------------------


def test_init_that_imports_while_others_import_the_stub(extern_site: Path, run: Any, tmp_path: Path) -> None:
    (tmp_path / "needed.py").write_text("import time\ntime.sleep(0.3)\nVALUE = 3\n")
    script = (
        "import extern_kernels.state as state\n"
        "state.orders['first'] = [lambda _: __import__('needed').VALUE - 3]\n"
        "def use():\n    from extern_kernels.several import several\n    several(x, 3)\n"
    ) + THREADS
    out = run(extern_site, script, tmp_path)
    assert out[:3] == [True, ["load"], 16]


@pytest.mark.parametrize("first", ["the call", "the import"])
def test_import_that_launches_what_its_module_initializes(extern_site: Path, run: Any, tmp_path: Path, first: str) -> None:
    """A lock of ours and one of Python's, taken in both orders: an error, and no hang."""
    (tmp_path / "crossing.py").write_text("import __main__\n__main__.imported()\n__main__.m.several(__main__.x, 3)\n")
    script = COUNT + (
        "begun, go = threading.Event(), threading.Event()\n"
        "def init(_):\n    begun.set(); go.wait(20); import crossing\n"
        "state.orders['first'] = [init]\n"
        "answers = {}\n"
        "def call():\n    answers['call'] = told(m.several, x, 3)\n"
        "def load():\n    begun.wait(20); answers['import'] = told(__import__, 'crossing')\n"
        "def imported():\n    go.set(); WAIT\n"
        "threads = [threading.Thread(target=one, daemon=True) for one in (call, load)]\n"
        "[one.start() for one in threads]; [one.join(20) for one in threads]\n"
        "out += [any(one.is_alive() for one in threads), answers.get('import'), answers.get('call'), told(m.several, x, 3)]"
    ).replace("WAIT", "__import__('time').sleep(0.5)" if first == "the call" else "None")
    hangs, of_import, of_call, later = run(extern_site, script, tmp_path, **LAZY)
    assert not hangs
    assert of_import == (
        "LoadError: extern_kernels.several is called by an import that its init function, in another thread, waits for on device 0: "
        "a kernel cannot be launched before the init functions of its module are done"
    )
    # What the init function's own import gives it is Python's affair: the module that failed, or the error of a second try.
    assert of_call == "ok" or of_call.startswith(
        f"InitError: {WHERE} raised LoadError: extern_kernels.several is called from its own init function"
    )
    assert later == "ok"


def test_stub_and_module_that_import_each_other(extern_site: Path, run: Any, tmp_path: Path) -> None:
    """Python breaks this deadlock of its own locks; afterwards everything can be used."""
    (tmp_path / "crossing.py").write_text("import __main__\n__main__.go.set()\nfrom extern_kernels.several import several\nVALUE = 0\n")
    script = (
        "import extern_kernels.state as state\n"
        "begun, go = threading.Event(), threading.Event()\n"
        "def init(_):\n    begun.set(); go.wait(20); from crossing import VALUE; return VALUE\n"
        "state.orders['first'] = [init]\n"
        "def stub():\n    told(__import__, 'extern_kernels.several')\n"
        "def load():\n    begun.wait(20); told(__import__, 'crossing')\n"
        "threads = [threading.Thread(target=one, daemon=True) for one in (stub, load)]\n"
        "[one.start() for one in threads]; [one.join(20) for one in threads]\n"
        "from extern_kernels.several import several\n"
        "out += [any(one.is_alive() for one in threads), told(several, x, 3)]"
    )
    assert run(extern_site, script, tmp_path) == [False, "ok"]


# ---- init functions of other distributions ---------------------------------------------------------------------------


def test_init_function_of_another_distribution(extern_site: Path, run: Any, device_library: Path, tmp_path: Path) -> None:
    script = "import extern_kernels.foreign as m\nout.append(told(m.foreign, x, 3))"
    assert run(extern_site, script, device_library, **LAZY) == ["ok"]
    missing = (
        "InitError: init function device_library.state:init of extern_kernels.foreign needs the module {}, which is not installed\n"
        '    -> install it: pip install "device-library-kit"'
    )
    assert run(extern_site, script, **LAZY) == [missing.format("device_library")]
    (tmp_path / "device_library").mkdir()
    (tmp_path / "device_library" / "__init__.py").write_text("")
    assert run(extern_site, script, tmp_path, **LAZY) == [missing.format("device_library.state")]
    (tmp_path / "device_library" / "state.py").write_text("import absent_thing\n")
    text = "needs the module absent_thing, which is not installed\n    -> install the distribution that has absent_thing"
    assert run(extern_site, script, tmp_path, **LAZY)[0].endswith(text)
    (tmp_path / "device_library" / "state.py").write_text("")
    assert run(extern_site, script, tmp_path, **LAZY) == [
        (
            "InitError: init function device_library.state:init of extern_kernels.foreign cannot be imported: "
            "AttributeError: module 'device_library.state' has no attribute 'init'"
        )
    ]


# ---- the second axis -------------------------------------------------------------------------------------------------

LOADED = """
import hashlib
import shmem_kernels._flydsl.runtime as runtime
native = sys.modules["shmem_kernels._flydsl.runtime._native"]
original, images = native.load_code_object, []

def load(image):
    images.append(hashlib.sha256(image).hexdigest())
    return original(image)

native.load_code_object = load
import shmem_kernels.put as m
"""


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize(
    ("env", "card"),
    [
        *(({"FLYDSL_BUILD_AXIS_NIC": card}, card) for card in CARDS),
        *(({"SHMEM_NIC": card}, card) for card in CARDS),
        ({}, "mlx5"),
        ({"SHMEM_NIC": "bnxt", "FLYDSL_BUILD_AXIS_NIC": "ionic"}, "ionic"),
        ({"SHMEM_NIC": "bnxt", "FLYDSL_BUILD_AXIS_NIC": ""}, "bnxt"),
    ],
)
def test_axis_chooses_the_code_object(shmem_site: Path, run: Any, target: str, env: Mapping[str, str], card: str) -> None:
    units = {one["name"]: one["code_objects"][target]["sha256"] for one in manifest(shmem_site, "shmem_kernels.put")["units"]}
    script = LOADED + (
        "m.put(x, 3); m.fill(x, 3)\n"
        "out += [sorted(images), [event['kernel'] for event in hip.events('launch')], len(sys.modules['shmem_kernels.state'].calls)]"
    )
    assert run(shmem_site, script, targets=target, **env) == [
        sorted([units["main"], units[f"nic-{card}"]]),
        ["put_kernel_0", "fill_kernel_0"],
        1,
    ]


PUT = "import shmem_kernels.put as m\nout += [told(m.put, x, 3), kinds('load')]"


def test_axis_value_that_was_not_built(shmem_site: Path, run: Any) -> None:
    built = "and the wheel was built for mlx5, bnxt, ionic\n    -> build it for this value too, or set FLYDSL_BUILD_AXIS_NIC"
    assert run(shmem_site, PUT, FLYDSL_BUILD_AXIS_NIC="efa", **LAZY) == [
        f"LoadError: shmem_kernels.put: the axis nic is 'efa' by FLYDSL_BUILD_AXIS_NIC, {built}",
        [],
    ]
    assert run(shmem_site, PUT, SHMEM_NIC="MLX5", **LAZY) == [
        f"LoadError: shmem_kernels.put: the axis nic is 'MLX5' by shmem_kernels.nic:detect, {built}",
        [],
    ]


def test_selector_that_raises(shmem_site: Path, run: Any) -> None:
    script = "import shmem_kernels.nic as nic\ndef fail(): raise OSError('no card')\nnic.detect = fail\n" + PUT
    assert run(shmem_site, script, **LAZY) == [
        (
            "LoadError: shmem_kernels.put: shmem_kernels.nic:detect, which selects the axis nic, raised OSError: no card\n"
            "    -> FLYDSL_BUILD_AXIS_NIC names the value without it"
        ),
        [],
    ]
    assert run(shmem_site, script, FLYDSL_BUILD_AXIS_NIC="bnxt", **LAZY) == ["ok", ["load", "load"]]


def test_axis_without_selector(shmem_site: Path, run: Any, tmp_path: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        data["axes"]["nic"]["select"] = None

    site = changed(shmem_site, tmp_path / "site", "shmem_kernels.put", change)
    assert run(site, PUT, **LAZY) == [
        (
            "LoadError: shmem_kernels.put: nothing says which value of the axis nic this machine has\n"
            "    -> set FLYDSL_BUILD_AXIS_NIC to one of mlx5, bnxt, ionic"
        ),
        [],
    ]
    assert run(site, PUT, FLYDSL_BUILD_AXIS_NIC="bnxt", **LAZY) == ["ok", ["load", "load"]]


def test_init_functions_and_no_module(shmem_site: Path, run: Any, tmp_path: Path) -> None:
    """Without a code object to load, no init function runs, and that is an error."""

    def change(data: dict[str, Any]) -> None:
        data["units"] = [one for one in data["units"] if one["name"] == "nic-mlx5"]
        for one in data["launchers"]:
            one["specializations"] = []

    site = changed(shmem_site, tmp_path / "site", "shmem_kernels.put", change)
    script = "import shmem_kernels.put as m\nout += [told(m.__flydsl__.load), m.__flydsl__.is_loaded()]"
    assert run(site, script, SHMEM_NIC="bnxt", **LAZY) == [
        "LoadError: shmem_kernels.put: no code object of the wheel is for gfx942 and {'nic': 'bnxt'}",
        False,
    ]


def test_size_of_a_global(extern_site: Path, run: Any, tmp_path: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        data["units"][0]["globals"][1]["size"] = 16

    site = changed(extern_site, tmp_path / "site", "extern_kernels.several", change)
    script = COUNT + "out += [told(m.several, x, 3), kinds('load', 'unload', 'copy'), state.calls]"
    answer, events, calls = run(site, script, **LAZY)
    assert answer.startswith("LoadError: extern_kernels.several: ")
    assert answer.endswith("several.hipfb: device global second_state has 12 bytes on device 0 (gfx942:sramecc+:xnack-), the build saw 16")
    assert (events, calls) == (["load", "unload"], [])
