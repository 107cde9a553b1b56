# SPDX-License-Identifier: Apache-2.0
"""`native/core` from a C program, without Python: the kernels of the example's wheel on the stand-in HIP library."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from building import unpack

if TYPE_CHECKING:
    from collections.abc import Callable

NATIVE = Path(__file__).parents[2] / "native"
SOURCES = [*sorted((NATIVE / "core").glob("*.c")), NATIVE / "drivers" / "hip.c", Path(__file__).with_name("c_caller.c")]
INIT = "example_pkg.device_state:init_module of example_pkg.scaled"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, with what sanitizers check."""
    made = tmp_path_factory.mktemp("c-caller") / "c_caller"
    flags = [
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsanitize=address,undefined",
        "-I",
        NATIVE / "core",
    ]
    subprocess.run([os.environ.get("CC", "cc"), *flags, *SOURCES, "-o", made, "-ldl", "-lpthread", "-lm"], check=True)
    needed = subprocess.run(["ldd", made], capture_output=True, text=True, check=True).stdout
    assert "python" not in needed
    return made


@pytest.fixture(scope="module")
def folder(example_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's `_flydsl` folder."""
    return unpack(tmp_path_factory.mktemp("c-site"), example_wheel) / "example_pkg" / "_flydsl"


@pytest.fixture
def run(program: Path, hip_library: Path, folder: Path) -> Callable[..., tuple[int, str]]:
    """Run a command of the program; return its status and what it prints."""

    def call(command: str, target: str = "gfx942:sramecc+:xnack-", where: Path = folder, **more: str) -> tuple[int, str]:
        environ = {**os.environ, "FAKE_HIP_TARGETS": target, "ASAN_OPTIONS": "detect_leaks=0", **more}
        done = subprocess.run([program, hip_library, where, command], env=environ, capture_output=True, text=True, check=False, timeout=60)
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout

    return call


def test_launches(run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """Nothing runs on the stand-in: the numbers are what was there before; what HIP was asked for is in its log."""
    log = tmp_path / "log"
    status, text = run("add", FAKE_HIP_LOG=str(log))
    assert text.splitlines() == [
        "-1 " * 15,
        "error: argument B must be f32[M, N : ?, 1], got f32[3, 6 : 5, 1]: N is 5 in A but 6 in B",
    ]
    assert status == 1
    calls = [line.split()[1] for line in log.read_text().splitlines()]
    assert calls.count("hipModuleLaunchKernel") == 1
    assert run("axpy") == (0, "1 1 1\n")


def test_init_functions(run: Callable[..., tuple[int, str]]) -> None:
    # Loading twice runs it once.
    assert run("scale") == (0, "init\n-1 -1 -1\n")
    missing = f"error: init function {INIT}: no function stands for it: register one with fdb_set_init()\n"
    assert run("noinit") == (1, missing)
    assert run("refuse") == (1, f"error: init function {INIT} on device 0 returned 7\n")


def test_what_cannot_be_loaded(run: Callable[..., tuple[int, str]], folder: Path, tmp_path: Path) -> None:
    targets = "gfx942, gfx950, gfx1100, gfx1201"
    assert run("add", target="gfx90a") == (
        1,
        f"error: example_pkg.elementwise: device 0 is gfx90a, and there is code only for {targets}\n",
    )
    assert run("add", target="")[1].endswith(": hipErrorNoDevice (HIP error 100)\n")
    assert run("add", where=tmp_path) == (1, f"error: {tmp_path}/elementwise.launchers.elf does not exist\n")
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    bundle = damaged / "elementwise.hipfb"
    data = bytearray(bundle.read_bytes())
    data[-1] ^= 1
    bundle.write_bytes(data)
    # The last of the bundle's code objects is that of gfx1201.
    assert run("add", target="gfx942:sramecc+:xnack-", where=damaged)[0] == 1
    assert run("add", target="gfx1201", where=damaged) == (
        1,
        f"error: {bundle} is not of the same build as the launcher library, or is damaged\n",
    )
    bundle.write_bytes(data[:5000])
    assert " bytes at " in run("add", target="gfx1201", where=damaged)[1]
    (damaged / "elementwise.launchers.elf").write_bytes(b"junk")
    assert run("add", where=damaged)[1].startswith(f"error: {damaged}/elementwise.launchers.elf: ")
