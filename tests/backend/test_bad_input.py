# SPDX-License-Identifier: Apache-2.0
"""What a project can get wrong: each with its own message, and no wheel left behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from building import WITHOUT_ROOTS_RIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Build

TINY = Path(__file__).resolve().parents[1] / "packages" / "tiny"
PYPROJECT = (TINY / "pyproject.toml").read_text(encoding="utf-8")
NEGATE = (TINY / "tiny_kernels" / "negate.py").read_text(encoding="utf-8")
KEY = 'tool.flydsl-build.kernels."tiny_kernels.negate:negate"'


def project(pyproject: str = PYPROJECT, negate: str = NEGATE, **more: str) -> dict[str, str]:
    return {"pyproject.toml": pyproject, "tiny_kernels/__init__.py": "", "tiny_kernels/negate.py": negate, **more}


def message(build: Build) -> str:
    """The back end's words, without setuptools' log."""
    assert build.status == 1, build.output
    assert "Traceback (most recent call last)" not in build.output, build.output
    return build.output[build.output.index("flydsl-build: ") :].partition("failed: ")[2]


CONFIGURATION = {
    "no archs": (PYPROJECT.replace('archs = ["gfx942"]\n', ""), ["archs", "-C archs=", "FLYDSL_BUILD_ARCHS"]),
    "unknown arch": (PYPROJECT.replace("gfx942", "gfx9999"), ["gfx9999", "unknown"]),
    "nvidia": (PYPROJECT.replace("gfx942", "sm_90"), ["sm_90", "NVIDIA"]),
    "feature": (PYPROJECT.replace("gfx942", "gfx942:xnack+"), ["gfx942:xnack+", 'write "gfx942"']),
    "unknown key": (PYPROJECT.replace("args =", "arg ="), [f"{KEY}.arg", 'Did you mean "args"?']),
    "argument does not parse": (PYPROJECT.replace("f32[L]", "f32[L"), [f"{KEY}.args.X", "^"]),
}


@pytest.mark.parametrize("case", CONFIGURATION)
def test_configuration(case: str, build: Callable[..., Build]) -> None:
    pyproject, words = CONFIGURATION[case]
    text = message(build(project(pyproject)))
    for word in words:
        assert word in text


COMPILE = {
    "module not found": (
        project(PYPROJECT.replace("tiny_kernels.negate:", "tiny_kernels.nought:")),
        ["module tiny_kernels.nought is not among the modules that setuptools installs"],
    ),
    "import fails": (
        project(negate="import math\n\ndef half():\n    return 1 / 0\n\nHALF = half()\n"),
        [
            f"{KEY}, gfx942: importing tiny_kernels.negate failed",
            (
                "| tiny_kernels/negate.py:6: HALF = half()\n"
                "    | tiny_kernels/negate.py:4: return 1 / 0\n"
                "    | ZeroDivisionError: division by zero\n"
            ),
        ],
    ),
    "syntax error": (
        project(negate="def f(:\n"),
        ["importing tiny_kernels.negate failed", "tiny_kernels/negate.py:1: def f(:", "SyntaxError"],
    ),
    "needs a distribution": (
        project(negate="import no_such_thing\n"),
        [
            "needs no_such_thing, which is not installed in the build environment",
            "build-system.requires",
            "negate.py:1: import no_such_thing",
        ],
    ),
    "no such attribute": (
        project(PYPROJECT.replace("negate:negate", "negate:negat")),
        ["module tiny_kernels.negate has no attribute negat", 'Did you mean "negate"?'],
    ),
    "not a launcher": (
        project(PYPROJECT.replace("negate:negate", "negate:THREADS"), NEGATE + "\nTHREADS = 3\n"),
        ["THREADS is not a FlyDSL launcher but a int", "declare a @flyc.jit function"],
    ),
    "a kernel": (
        project(PYPROJECT.replace("negate:negate", "negate:negate_kernel")),
        ["negate_kernel is not a FlyDSL launcher but a KernelFunction", "the @flyc.jit function that launches it"],
    ),
    "missing argument": (
        project(PYPROJECT.replace('X = "f32[L]"', "")),
        ["args has no entry for parameter X of negate(X, n, stream)", 'args = { X = "f32[M, N]" }'],
    ),
    "no such argument": (
        project(PYPROJECT.replace('X = "f32[L]"', 'X = "f32[L]", Y = "f32[L]"')),
        ["args.Y: negate has no parameter Y"],
    ),
    "contradicts the annotation": (
        project(PYPROJECT.replace('X = "f32[L]"', 'X = "f32[L]", n = "i64"')),
        ["args.n: declared as i64, but the parameter is annotated as Int32", "remove the entry"],
    ),
    "a constexpr without value": (
        project(negate=NEGATE.replace("n: fx.Int32, stream", "n: fx.Int32, W: fx.Constexpr[int], stream")),
        ["constexpr parameter W of negate has no value", "add constexpr = { W = … }"],
    ),
    "does not compile": (
        project(negate=NEGATE.replace("X[index] = -X[index]", "X[index] = X.no_such_attribute")),
        ["FlyDSL could not compile it", "tiny_kernels/negate.py:", "X[index] = X.no_such_attribute", "AttributeError"],
    ),
    "dies": (
        project(
            negate=NEGATE.replace(
                "    index = fx.block", "    import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n    index = fx.block"
            )
        ),
        ["tiny_kernels.negate, gfx942: the kernel process died by SIGSEGV while compiling negate"],
    ),
    "hangs": (
        project(PYPROJECT.replace('archs = ["gfx942"]', 'archs = ["gfx942"]\ntimeout = 8'), "import time\ntime.sleep(600)\n"),
        ["the kernel process took longer than 8 s", "raise `timeout`"],
    ),
    "bad lld": (
        project(PYPROJECT.replace('archs = ["gfx942"]', 'archs = ["gfx942"]\nlld = "no/such/ld.lld"')),
        ["lld: ", "no/such/ld.lld does not exist\n    -> correct the path, or leave the setting out to have it searched for\n"],
    ),
    "a folder for lld": (
        project(PYPROJECT.replace('archs = ["gfx942"]', 'archs = ["gfx942"]\nlld = "tiny_kernels"')),
        ["lld: ", "tiny_kernels is no file\n    -> correct the path"],
    ),
    "another program for lld": (
        project(PYPROJECT.replace('archs = ["gfx942"]', 'archs = ["gfx942"]\nlld = "/bin/true"')),
        ["lld: /bin/true is not LLD (exit status 0)\n    -> correct the path"],
    ),
    "bad rocm-path": (
        project(PYPROJECT.replace('archs = ["gfx942"]', 'archs = ["gfx942"]\nrocm-path = "no/rocm"')),
        ["rocm-path: ", "no/rocm does not exist\n    -> correct the path, or leave the setting out to have it searched for\n"],
    ),
}


@pytest.mark.parametrize("case", COMPILE)
def test_compile(case: str, build: Callable[..., Build]) -> None:
    files, words = COMPILE[case]
    text = message(build(files))
    for word in words:
        assert word in text


def test_faults_of_all_kernels_come_together(build: Callable[..., Build]) -> None:
    second = '\n[tool.flydsl-build.kernels."tiny_kernels.other:gone"]\n'
    files = project(PYPROJECT.replace('X = "f32[L]"', "") + second, **{"tiny_kernels/other.py": "VALUE = 1\n"})
    text = message(build(files, config={"archs": "gfx942,gfx1100"}))
    assert text.startswith("2 faults:\n")
    assert f"1. {KEY}, gfx942, gfx1100: args has no entry for parameter X" in text
    assert "module tiny_kernels.other has no attribute gone" in text


def test_public_names_that_the_stub_does_not_have(build: Callable[..., Build]) -> None:
    built = build(project(negate=NEGATE + "\n\ndef spare():\n    return fx\n"))
    assert built.status == 0, built.output
    assert (
        "flydsl-build: warning: the stub of tiny_kernels.negate does not have these public names of its source: spare\n"
        "    -> move what others import to a module without declared kernels; give what is for this one alone a leading underscore\n"
    ) in built.output


def test_unknown_config_setting(build: Callable[..., Build]) -> None:
    text = message(build(project(), config={"arch": "gfx942"}))
    assert 'Did you mean "archs"?' in text


def test_no_linker_lists_every_place(build: Callable[..., Build], tmp_path: Path) -> None:
    hidden = tmp_path / "hide"
    hidden.mkdir()
    # ziglang is installed for the tests: a finder that says it is not stands for a machine without it.
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\nu.find_spec = lambda name, *a: None if name == 'ziglang' else find(name, *a)\n"
    )
    text = message(build(project(), env={"PATH": str(tmp_path), "ROCM_PATH": "/no/rocm"}, python_path=hidden))
    assert "no LLD was found" in text
    for place in ("ROCM_PATH (/no/rocm/llvm/bin/ld.lld): not found", "/opt/rocm", "on PATH: not found", "PyPI package ziglang: not found"):
        assert place in text


def test_unwritable_build_folder(build: Callable[..., Build], tmp_path: Path) -> None:
    (tmp_path / "project" / "build").mkdir(parents=True, mode=0o500)
    output = build(project(), prefix=WITHOUT_ROOTS_RIGHTS).output
    assert (
        "setuptools writes into the project's folder, which cannot be written\n    -> build from a copy of the project; for a wheel, setuptools can"
        in output
    )


def test_no_space_left_for_the_wheel(build: Callable[..., Build], tmp_path: Path) -> None:
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(
        "import errno, zipfile\n"
        "write = zipfile.ZipFile.writestr\n"
        "def full(archive, *arguments, **options):\n"
        "    if str(archive.filename).endswith('.partial'):\n"
        "        raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "    return write(archive, *arguments, **options)\n"
        "zipfile.ZipFile.writestr = full\n"
    )
    text = message(build(project(), python_path=shim))
    assert (
        "the wheel cannot be written there (No space left on device)\n    -> name a folder that can be written, on a disk with room" in text
    )


def test_no_space_left(build: Callable[..., Build], tmp_path: Path) -> None:
    # /dev/full takes the place of a file on a full disk: opening works, writing does not.
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(
        "import errno, pathlib\n"
        "write = pathlib.Path.write_bytes\n"
        "def full(path, data):\n"
        "    if path.suffix == '.hipfb' and 'build' in path.parts:\n"
        "        raise OSError(errno.ENOSPC, 'No space left on device', str(path))\n"
        "    return write(path, data)\n"
        "pathlib.Path.write_bytes = full\n"
    )
    text = message(build(project(), python_path=shim))
    assert "cannot be written (No space left on device)" in text
    assert not list((tmp_path / "project").rglob("_flydsl"))
