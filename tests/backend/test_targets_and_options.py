# SPDX-License-Identifier: Apache-2.0
"""Generic targets, compile options, IR dumps, clusters, and declarations in Python: what each does to the wheel."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fake_hip
import pytest
from building import PACKAGES, call_hook, copy_project, run_script, unpack
from elf_oracle import check_code_object

from flydsl_build.targets.offload_bundle import read_bundle

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Build

PYPROJECT = (PACKAGES / "tiny" / "pyproject.toml").read_text(encoding="utf-8")
NEGATE = (PACKAGES / "tiny" / "tiny_kernels" / "negate.py").read_text(encoding="utf-8")
HEAD = PYPROJECT[: PYPROJECT.index("[tool.flydsl-build]")]
TARGETS = ["gfx942", "gfx9-4-generic", "gfx10-3-generic", "gfx11-generic", "gfx12-generic", "gfx90a", "gfx1151"]
# From LLVM's AMDGPUUsage, "ELF Header e_flags": processor, xnack any, sramecc any, generic version 1.
E_FLAGS = {
    "gfx942": 0x54C,
    "gfx9-4-generic": 0x0100055F,
    "gfx10-3-generic": 0x01000053,
    "gfx11-generic": 0x01000054,
    "gfx12-generic": 0x01000059,
    "gfx90a": 0x53F,
    "gfx1151": 0x4A,
}
DECLARATIONS = """
def kernels():
    print("what an author prints is no answer")
    yield "tiny_kernels.negate:negate", {"args": {"X": "f32[L]"}, "options": {"waves-per-eu": [1, 4]}}
"""
SETTINGS = f"""
[tool.flydsl-build]
archs = {json.dumps(TARGETS)}
kernels-from = "tiny_kernels.declarations:kernels"
options = {{ opt-level = 3, debug-lines = true, llvm-options = {{ amdgpu-early-inline-all = true }}, gfx942 = {{ fast-fp-math = true }} }}
"""


def manifest_of(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        return json.loads(archive.read("tiny_kernels/_flydsl/negate.json"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel for generic and native targets with every option, and the folder of its IR."""
    folder = tmp_path_factory.mktemp("options")
    project = copy_project(PACKAGES / "tiny", folder / "a project")
    (project / "pyproject.toml").write_text(HEAD + SETTINGS, encoding="utf-8")
    (project / "tiny_kernels" / "declarations.py").write_text(DECLARATIONS, encoding="utf-8")
    dist = folder / "dist"
    dist.mkdir()
    return dist / call_hook(project, "build_wheel", dist, {"dump-ir": "ir"}).value, project / "ir"


def test_generic_and_native_code_objects(built: tuple[Path, Path]) -> None:
    manifest = manifest_of(built[0])
    assert manifest["targets"] == TARGETS
    flags = {target: code["e_flags"] for unit in manifest["units"] for target, code in unit["code_objects"].items()}
    assert flags == E_FLAGS
    # Options keep specializations apart only where there are others without them.
    assert [unit["name"] for unit in manifest["units"]] == ["main"]


def test_options_are_recorded(built: tuple[Path, Path]) -> None:
    assert manifest_of(built[0])["launchers"][0]["specializations"][0]["options"] == {
        "debug-lines": True,
        "gfx942.fast-fp-math": True,
        "llvm-options.amdgpu-early-inline-all": True,
        "opt-level": 3,
        "waves-per-eu": [1, 4],
    }


def test_line_tables_name_no_folder_of_the_builder(built: tuple[Path, Path]) -> None:
    manifest = manifest_of(built[0])
    with zipfile.ZipFile(built[0]) as archive:
        for unit in manifest["units"]:
            data = archive.read(f"tiny_kernels/_flydsl/{unit['bundle']}")
            for target, entry in read_bundle(data).entries.items():
                code = data[entry.offset : entry.offset + entry.size]
                # Other programs read the same in what FlyDSL makes.
                assert check_code_object(code).elf.e_flags == E_FLAGS[target]
                assert b".debug_line\0" in code
                assert b"negate.py\0" in code
                assert str(built[1].parent).encode() not in code


def test_dumped_files_sort_by_stage(built: tuple[Path, Path]) -> None:
    folder = built[1] / "tiny_kernels.negate" / "negate"
    assert sorted(path.name for path in folder.iterdir()) == sorted(TARGETS)
    names = sorted(path.name for path in (folder / "gfx942").iterdir())
    assert names[0] == "00_origin.mlir"
    assert [name.partition("_")[2] for name in names[-2:]] == ["llvm_ir.ll", "isa.s"]
    assert [int(name.partition("_")[0]) for name in names] == list(range(len(names)))
    assert "define amdgpu_kernel void @negate_kernel_0" in (folder / "gfx942" / names[-2]).read_text(encoding="utf-8")
    assert "amdgcn-amd-amdhsa--gfx942" in (folder / "gfx942" / names[-1]).read_text(encoding="utf-8").replace("unknown-", "-")


@pytest.mark.parametrize(
    ("device", "chosen"),
    [
        ("gfx942:sramecc+:xnack-", "gfx942"),
        ("gfx950:sramecc+:xnack-", "gfx9-4-generic"),
        ("gfx1100", "gfx11-generic"),
        ("gfx1151", "gfx1151"),
        ("gfx1200", "gfx12-generic"),
        ("gfx1030", "gfx10-3-generic"),
        ("gfx908", None),
    ],
)
def test_native_wins_over_generic(device: str, chosen: str | None, built: tuple[Path, Path], hip_library: Path, tmp_path: Path) -> None:
    site = unpack(tmp_path / "site", built[0])
    script = (
        "import json\ntry:\n import tiny_kernels.negate as n\n print(json.dumps(n.__flydsl__.capability().chosen))\n"
        "except ImportError: print(json.dumps(None))\n"
    )
    assert run_script(script, site=site, hip=hip_library, targets=device) == chosen


FP8 = """
from flydsl.expr import arith, rocdl
from flydsl.expr.typing import T


@flyc.kernel
def multiply_kernel(X: fx.Tensor):
    index = fx.thread_idx.x
    operand = fx.Int64(index).ir_value()
    zero = arith.constant_vector(0.0, T.f32x4)
    X[index] = fx.Vector(rocdl.mfma_f32_16x16x32_fp8_fp8(T.f32x4, [operand, operand, zero, 0, 0, 0]))[0]


@flyc.jit
def multiply(X: fx.Tensor, stream: fx.Stream = fx.Stream(None)):
    multiply_kernel(X).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)
"""


def test_what_a_generic_target_cannot_express(build: Callable[..., Build]) -> None:
    """LLVM ends the process there, without a word of the kernel; of two kernels, the right one is named."""
    where = 'tool.flydsl-build.kernels."tiny_kernels.negate:multiply"'
    done = build(
        {
            "pyproject.toml": PYPROJECT.replace('"gfx942"', '"gfx942", "gfx9-4-generic"') + f'[{where}]\nargs = {{ X = "f32[L]" }}\n',
            "tiny_kernels/__init__.py": "",
            "tiny_kernels/negate.py": NEGATE + FP8,
        }
    )
    assert done.status == 1
    assert done.output[done.output.index("flydsl-build: compile failed:") :].strip() == (
        f"flydsl-build: compile failed: {where}, gfx9-4-generic: multiply: the generic target gfx9-4-generic cannot express it\n"
        '    -> leave gfx9-4-generic out, and declare the chips that it is to run on: archs = ["gfx942", "gfx950"]\n'
        "    | LLVM ERROR: Cannot select: intrinsic %llvm.amdgcn.mfma.f32.16x16x32.fp8.fp8"
    )


def test_clusters(hip_library: Path, tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    (project / "pyproject.toml").write_text(PYPROJECT.replace("gfx942", "gfx1250"), encoding="utf-8")
    source = NEGATE.replace("block=(64, 1, 1), stream", "block=(64, 1, 1), cluster=(2, 1, 1), stream")
    (project / "tiny_kernels" / "negate.py").write_text(source, encoding="utf-8")
    dist = tmp_path / "dist"
    dist.mkdir()
    site = unpack(tmp_path / "site", dist / call_hook(project, "build_wheel", dist).value)
    script = (
        f"import sys, json; sys.path.append({str(Path(fake_hip.__file__).parents[1])!r})\n"
        "import fake_hip, numpy, tiny_kernels.negate as n\n"
        f"hip = fake_hip.FakeHip({str(hip_library)!r}); hip.clear()\n"
        "n.negate(numpy.zeros(100, 'f4'), 90); print(json.dumps(hip.events('launch')))\n"
    )
    (launch,) = run_script(script, site=site, hip=hip_library, targets="gfx1250")
    assert (launch["grid"], launch["block"], launch["cluster"]) == ([2, 1, 1], [64, 1, 1], [2, 1, 1])


FAULTS = {
    "declarations raise": (
        "def kernels():\n    raise KeyError('tile')\n",
        ["tool.flydsl-build.kernels-from", "tiny_kernels.declarations:kernels failed: KeyError: 'tile'", "declarations.py:2"],
    ),
    "declarations are wrong": (
        "def kernels():\n    return {'tiny_kernels.negate:negate': {'arg': {'X': 'f32[L]'}}}\n",
        ['tiny_kernels.declarations:kernels[0] "tiny_kernels.negate:negate".arg: unknown key', 'Did you mean "args"?'],
    ),
    "declarations are not of TOML's kinds": (
        (
            "from pathlib import Path\n\ndef kernels():\n    loop = {}\n    loop['a'] = loop\n"
            "    yield 'tiny_kernels.negate:negate', {'constexpr': {'tile': [1, {'a': Path()}]}, 'options': {3: {1, 2}}}\n    yield loop\n"
        ),
        [
            (
                "configuration failed: 3 faults:\n"
                '  1. tiny_kernels.declarations:kernels[0] "tiny_kernels.negate:negate".constexpr.tile[1].a: found a PosixPath\n'
                "    -> yield what TOML has: strings, numbers, booleans, lists and tables, and members of enums that a module defines; numpy's values "
                "have `item()` and `tolist()`\n"
                '  2. tiny_kernels.declarations:kernels[0] "tiny_kernels.negate:negate".options.3: found a set\n'
            ),
            f"  3. tiny_kernels.declarations:kernels[1]{'.a' * 31}: lists and tables are nested more than 30 deep\n",
        ],
    ),
    "declarations without end": (
        "import itertools\n\ndef kernels():\n    return ((f'm:f{n}', {}) for n in itertools.count())\n",
        ["tiny_kernels.declarations:kernels yields more than 10,000 kernels\n    -> correct the function\n"],
    ),
    "declarations call themselves": (
        "def kernels():\n    return kernels()\n",
        ["| tiny_kernels/declarations.py:2: return kernels() (9"],
    ),
    "declarations are nowhere": ("", ["module 'tiny_kernels.declarations' has no attribute 'kernels'\n    -> correct the function\n"]),
    "declarations need what is not there": (
        "import no_such_module\n",
        [
            "tiny_kernels.declarations:kernels needs no_such_module, which is not installed in the build environment\n",
            '    -> add "no_such_module" to build-system.requires in pyproject.toml, or the distribution that has it if that is named otherwise\n',
        ],
    ),
    "declarations are no table": ("def kernels():\n    return 3\n", ["returned int, not a dict and not (key, table) pairs"]),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_of_declarations(case: str, build: Callable[..., Build]) -> None:
    text, words = FAULTS[case]
    done = build(
        {
            "pyproject.toml": HEAD + '[tool.flydsl-build]\narchs = ["gfx942"]\nkernels-from = "tiny_kernels.declarations:kernels"\n',
            "tiny_kernels/__init__.py": "",
            "tiny_kernels/negate.py": NEGATE,
            "tiny_kernels/declarations.py": text,
        }
    )
    assert done.status == 1
    for word in words:
        assert word in done.output


@pytest.mark.parametrize(("package", "looked"), [("tiny_kernels", "its own folder"), ("src/tiny_kernels", "src")])
def test_declarations_that_are_not_in_a_package(package: str, looked: str, build: Callable[..., Build]) -> None:
    head = HEAD if package == "tiny_kernels" else HEAD.replace("[tool.setuptools]", '[tool.setuptools]\npackage-dir = { "" = "src" }')
    done = build(
        {
            "pyproject.toml": head + '[tool.flydsl-build]\narchs = ["gfx942"]\nkernels-from = "declared.here:kernels"\n',
            f"{package}/__init__.py": "",
            f"{package}/negate.py": NEGATE,
        }
    )
    assert done.status == 1
    assert (
        "configuration failed: tool.flydsl-build.kernels-from: module declared.here was not found\n"
        f"    -> modules of the project are looked for in {looked}: put it there, or correct the name\n"
    ) in done.output


def test_unknown_llvm_option(build: Callable[..., Build]) -> None:
    options = "options = { llvm-options = { no-such-option = true, amdgpu-early-inline-all = 'maybe', inline-threshold = 99999999999 } }\n"
    done = build({"pyproject.toml": PYPROJECT + options, "tiny_kernels/__init__.py": "", "tiny_kernels/negate.py": NEGATE})
    assert done.status == 1
    assert "Traceback" not in done.output
    text = done.output.replace(re.findall(r"LLVM (\d\S+) does", done.output)[0], "24")
    for words in (
        (
            "options.llvm-options.no-such-option: LLVM 24 does not take it: Unknown LLVM option: no-such-option\n"
            "    -> correct the name, or write a value of its type: true, 3 or text\n"
        ),
        (
            "options.llvm-options.amdgpu-early-inline-all: LLVM 24 does not take it: "
            "LLVM option 'amdgpu-early-inline-all' is not a string option\n"
        ),
        "options.llvm-options.inline-threshold: 99999999999 is out of range\n    -> write an integer of 32 bits\n",
    ):
        assert words in text
