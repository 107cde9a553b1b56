# SPDX-License-Identifier: Apache-2.0
"""Where modules can be, several packages in one process, and builds on top of earlier ones."""

from __future__ import annotations

import subprocess
import sys
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, call_hook, copy_project, manifest, members, run_script, unpack

if TYPE_CHECKING:
    from pathlib import Path

RUNTIME = [
    "__init__.py",
    "_native.abi3.so",
    "annotations.py",
    "code_objects.py",
    "description.py",
    "driver.py",
    "dtypes.py",
    "enums.py",
    "errors.py",
    "factory.py",
    "launcher.py",
    "module.py",
    "process.py",
    "shape.py",
    "struct.py",
    "torch_ops.py",
]


def anchor(folder: str) -> list[str]:
    """Return the members of one `_flydsl` folder beside the artefacts of modules."""
    return [f"{folder}/__init__.py", *(f"{folder}/runtime/{name}" for name in RUNTIME)]


def artefacts(stem: str) -> list[str]:
    return [f"{stem}.hipfb", f"{stem}.json", f"{stem}.launchers.elf"]


def code(wheel: Path) -> list[str]:
    """Return the members of a wheel without its metadata."""
    return sorted(name for name in members(wheel) if ".dist-info/" not in name)


# module: (launcher, workgroup size, manifest)
MODULES = {
    "top_kernels": ("add_one", 32, "_flydsl_top_kernels/top_kernels.json"),
    "outer": ("add_two", 64, "outer/_flydsl/__init__.json"),
    "outer.inner.deep": ("add_three", 96, "outer/_flydsl/inner/deep.json"),
    "space.shared": ("add_four", 128, "space/_flydsl_shared/shared.json"),
    "space.regular.own": ("add_five", 160, "space/regular/_flydsl/own.json"),
}


def test_members(layouts_wheel: Path) -> None:
    assert code(layouts_wheel) == sorted(
        [
            # In no package: a folder of its own beside the module.
            "top_kernels.py",
            "top_kernels.pyi",
            *anchor("_flydsl_top_kernels"),
            *artefacts("_flydsl_top_kernels/top_kernels"),
            # A package's own module, and one of its sub-package: one folder at the topmost package.
            "outer/__init__.py",
            "outer/__init__.pyi",
            "outer/inner/__init__.py",
            "outer/inner/deep.py",
            "outer/inner/deep.pyi",
            *anchor("outer/_flydsl"),
            *artefacts("outer/_flydsl/__init__"),
            *artefacts("outer/_flydsl/inner/deep"),
            # A namespace package belongs to nobody, so nothing in it may have a name that another distribution could use.
            "space/shared.py",
            "space/shared.pyi",
            *anchor("space/_flydsl_shared"),
            *artefacts("space/_flydsl_shared/shared"),
            "space/regular/__init__.py",
            "space/regular/own.py",
            "space/regular/own.pyi",
            *anchor("space/regular/_flydsl"),
            *artefacts("space/regular/_flydsl/own"),
        ]
    )


@pytest.mark.parametrize("module", MODULES)
def test_manifest(layouts_wheel: Path, module: str) -> None:
    launcher, _, name = MODULES[module]
    facts = manifest(layouts_wheel, name)
    assert facts["module"] == module
    assert [one["name"] for one in facts["launchers"]] == [launcher]


CALL = """
import importlib, numpy
import fake_hip
x = numpy.zeros(7, "f4")
answer = {}
for module, launcher in argument.items():
    getattr(importlib.import_module(module), launcher)(x, 5)
hip = fake_hip.FakeHip("libamdhip64.so.7")
def events(kind):
    return [{key: value for key, value in event.items() if key != "module"} for event in hip.events(kind)]
paths = sorted(line.split()[-1] for line in open("/proc/self/maps") if "_native" in line and "r-x" in line)
natives = [module for name, module in sys.modules.items() if name.endswith("runtime._native")]
errors = {module.CorruptFileError for name, module in sys.modules.items() if name.endswith("_flydsl.runtime.errors")}
print(json.dumps({
    "address": x.ctypes.data,
    "loads": events("load"),
    "inits": len(events("init")),
    "launches": events("launch"),
    "runtimes": sorted(name for name in sys.modules if name.endswith(".runtime")),
    "natives": len({id(module) for module in natives}),
    "launcher types": len({id(module.Launcher) for module in natives}),
    "paths": paths,
    "imported": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""


def launch(kernel: str, block: int, address: int) -> dict[str, Any]:
    """Return what the stand-in writes down for a launch over seven elements, five of them to be changed."""
    return {
        "event": "launch",
        "kernel": kernel,
        "device": 0,
        "grid": [1, 1, 1],
        "block": [block, 1, 1],
        "cluster": [0, 0, 0],
        "lds": 0,
        "stream": 0,
        "args": [pack("<Q", address).hex(), pack("<i", 7).hex(), pack("<i", 5).hex()],
    }


@pytest.mark.parametrize("module", MODULES)
def test_each_module_alone(layouts_wheel: Path, hip_library: Path, tmp_path: Path, module: str) -> None:
    launcher, block, name = MODULES[module]
    site = unpack(tmp_path / "site", layouts_wheel)
    answer = run_script(CALL, site=site, hip=hip_library, targets="gfx942:sramecc+:xnack-", argument={module: launcher})
    # `outer` has kernels of its own, and comes with its sub-package.
    loads = 2 if module == "outer.inner.deep" else 1
    assert answer["loads"] == [{"event": "load", "device": 0, "target": "gfx942"}] * loads
    assert answer["launches"] == [launch(f"{launcher}_kernel_0", block, answer["address"])]
    assert answer["runtimes"] == [f"{name.rpartition('/')[0].removesuffix('/inner').replace('/', '.')}.runtime"]


def test_several_distributions_in_one_process(
    layouts_wheel: Path, second_wheel: Path, tiny_wheel: Path, hip_library: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    words = ["install", "--no-index", "--no-deps", "--no-compile", "--quiet", "--target", site, tiny_wheel, second_wheel, layouts_wheel]
    done = subprocess.run([sys.executable, "-m", "pip", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    calls = {
        "tiny_kernels.negate": ("negate", 64),
        "space.halve": ("halve", 192),
        **{module: (launcher, block) for module, (launcher, block, _) in MODULES.items()},
    }
    argument = {module: launcher for module, (launcher, _) in calls.items()}
    answer = run_script(CALL, site=site, hip=hip_library, targets="gfx942:sramecc+:xnack-", argument=argument)
    assert answer["launches"] == [launch(f"{launcher}_kernel_0", block, answer["address"]) for launcher, block in calls.values()]
    assert len(answer["loads"]) == len(calls)
    # Each anchor has a run time of its own: its Python modules, its extension, its types, its own opening of HIP.
    assert answer["runtimes"] == [
        "_flydsl_top_kernels.runtime",
        "outer._flydsl.runtime",
        "space._flydsl_halve.runtime",
        "space._flydsl_shared.runtime",
        "space.regular._flydsl.runtime",
        "tiny_kernels._flydsl.runtime",
    ]
    assert answer["natives"] == answer["launcher types"] == answer["inits"] == 6
    assert answer["paths"] == sorted(str(site / name.replace(".", "/") / "_native.abi3.so") for name in answer["runtimes"])
    assert not {"flydsl", "flydsl_build", "torch", "jinja2", "setuptools"} & set(answer["imported"])


def test_one_distribution_fails_and_the_other_works(second_wheel: Path, tiny_wheel: Path, hip_library: Path, tmp_path: Path) -> None:
    site = unpack(tmp_path / "site", tiny_wheel, second_wheel)
    script = """
import numpy, fake_hip
try:
    import tiny_kernels.negate
except ImportError as error:
    first = str(error)
from space.halve import halve
halve(numpy.zeros(1, "f4"), 1)
hip = fake_hip.FakeHip("libamdhip64.so.7")
print(json.dumps([first, [event["kernel"] for event in hip.events("launch")]]))
"""
    text, launches = run_script(script, site=site, hip=hip_library, targets="gfx1100")
    assert text.startswith("tiny_kernels.negate: device 0 is gfx1100, and tiny-kernels 1.0 has code only for gfx942\n")
    assert launches == ["halve_kernel_0"]


# --- builds on top of earlier ones --------------------------------------------------------------------------------------------

DECLARATIONS = """
[tool.flydsl-build.kernels."tiny_kernels.double:double"]
args = { X = "f32[L]" }

[tool.flydsl-build.kernels."alone:treble"]
args = { X = "f32[L]" }
"""


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheels of one project folder, one after another: three modules; the same again; one of them, for another target.

    The last time one of the others is not declared any more, and one is deleted.
    """
    folder = tmp_path_factory.mktemp("rebuild")
    project = copy_project(PACKAGES / "tiny", folder / "project")
    source = (project / "tiny_kernels" / "negate.py").read_text()
    double, alone, settings = project / "tiny_kernels" / "double.py", project / "alone.py", project / "pyproject.toml"
    double.write_text(source.replace("negate", "double").replace("-X[index]", "X[index] * 2.0"))
    alone.write_text(source.replace("negate", "treble").replace("-X[index]", "X[index] * 3.0"))
    last = settings.read_text()
    first = last.replace("[tool.setuptools]", '[tool.setuptools]\npy-modules = ["alone"]') + DECLARATIONS
    wheels = {}
    for name, text, config in (("all", first, {}), ("again", first, {}), ("one", last, {"archs": "gfx1100"})):
        settings.write_text(text)
        if name == "one":
            alone.unlink()
        dist = folder / name
        dist.mkdir()
        wheels[name] = dist / call_hook(project, "build_wheel", dist, config).value
        assert (project / "tiny_kernels" / "negate.py").read_text() == source
    wheels["source"] = double
    return wheels


NEGATE = ["tiny_kernels/negate.py", "tiny_kernels/negate.pyi", *artefacts("tiny_kernels/_flydsl/negate")]
DOUBLE = ["tiny_kernels/double.py", "tiny_kernels/double.pyi", *artefacts("tiny_kernels/_flydsl/double")]


ALONE = ["alone.py", "alone.pyi", *anchor("_flydsl_alone"), *artefacts("_flydsl_alone/alone")]


def test_first_build(rebuilt: dict[str, Path]) -> None:
    assert code(rebuilt["all"]) == sorted(["tiny_kernels/__init__.py", *anchor("tiny_kernels/_flydsl"), *NEGATE, *DOUBLE, *ALONE])


def test_second_build_is_byte_equal(rebuilt: dict[str, Path]) -> None:
    assert rebuilt["again"].read_bytes() == rebuilt["all"].read_bytes()


def test_removed_declaration_brings_the_source_back(rebuilt: dict[str, Path]) -> None:
    wheel = rebuilt["one"]
    assert code(wheel) == sorted(["tiny_kernels/__init__.py", "tiny_kernels/double.py", *anchor("tiny_kernels/_flydsl"), *NEGATE])
    assert members(wheel)["tiny_kernels/double.py"] == rebuilt["source"].read_bytes()


def test_other_archs_leave_nothing_of_the_old(rebuilt: dict[str, Path]) -> None:
    facts = manifest(rebuilt["one"], "tiny_kernels/_flydsl/negate.json")
    assert facts["targets"] == ["gfx1100"]
    assert [list(unit["code_objects"]) for unit in facts["units"]] == [["gfx1100"]]
    bundle = members(rebuilt["one"])["tiny_kernels/_flydsl/negate.hipfb"]
    assert b"gfx1100" in bundle
    assert b"gfx942" not in bundle
    stub = members(rebuilt["one"])["tiny_kernels/negate.py"]
    assert b'"gfx1100"' in stub
    assert b"gfx942" not in stub
