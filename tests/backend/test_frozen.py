# SPDX-License-Identifier: Apache-2.0
"""Programs that PyInstaller has frozen: everything that a stub loads is in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from building import TESTS

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import ctypes
from tiny_kernels.negate import negate

memory = (ctypes.c_float * 7)()


class Array:
    __cuda_array_interface__ = {"shape": (7,), "typestr": "<f4", "data": (ctypes.addressof(memory), False), "version": 3}


negate(Array(), 5)
print("launched", negate.specializations[0].targets)
"""


@pytest.fixture
def program(site: Path, tmp_path: Path) -> Path:
    """A program that launches a kernel, without what it is frozen from."""
    pytest.importorskip("PyInstaller")
    (tmp_path / "app.py").write_text(PROGRAM)
    return site


def freeze(site: Path, folder: Path, *words: str) -> Path:
    """Freeze the program in a folder; return what was made."""
    command = [sys.executable, "-P", "-m", "PyInstaller", "--noconfirm", "--log-level=WARN", *words]
    environ = {**os.environ, "PYTHONPATH": str(site), "PYINSTALLER_CONFIG_DIR": str(folder / "config")}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist" / "app"


def launched(frozen: Path, hip_library: Path) -> str:
    environ = {"FLYDSL_BUILD_HIP_LIBRARY": str(hip_library), "FAKE_HIP_TARGETS": "gfx942"}
    done = subprocess.run([str(frozen / "app")], env=environ, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_spec_of_the_readme(program: Path, tmp_path: Path, hip_library: Path) -> None:
    text = (TESTS.parent / "README.md").read_text(encoding="utf-8")
    (spec,) = re.findall(r"```python\n(from PyInstaller.*?)```", text, flags=re.DOTALL)
    (tmp_path / "app.spec").write_text(spec.replace("example_pkg", "tiny_kernels"))
    assert launched(freeze(program, tmp_path, "app.spec"), hip_library) == "launched ('gfx942',)\n"


@pytest.mark.parametrize("option", ["--collect-all", "--collect-data"])
def test_options(option: str, program: Path, tmp_path: Path, hip_library: Path) -> None:
    assert launched(freeze(program, tmp_path, option, "tiny_kernels", "app.py"), hip_library) == "launched ('gfx942',)\n"
