# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build doctor`: exit status 1 where a build could not work, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from calling import run_command

if TYPE_CHECKING:
    from pathlib import Path


def marks(output: str) -> dict[str, str]:
    """Return the mark of each line by its name."""
    return {line[4:24].strip(): line[:2] for line in output.splitlines() if line[:4] in {"ok  ", "--  ", "!!  "}}


def test_here(tmp_path: Path) -> None:
    done = run_command("doctor", cwd=tmp_path)
    found = marks(done.stdout)
    needed = ["system", "Python", "flydsl-build", "setuptools", "jinja2", "numpy", "flydsl", "flydsl imports", "linker", "temporary folder"]
    assert {name: found[name] for name in needed} == dict.fromkeys(needed, "ok"), done.stdout
    assert set(found) == {*needed, "device bitcode", "llvm-objdump", "torch", "ziglang", "rich", "platformdirs", "HIP library, device"}
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "a build can work here")
    assert f"({sys.executable})" in done.stdout


def test_no_linker(tmp_path: Path) -> None:
    done = run_command("doctor", cwd=tmp_path, env={"FLYDSL_BUILD_LLD": str(tmp_path / "none"), "FLYDSL_BUILD_HIP_LIBRARY": "/no/such.so"})
    assert done.returncode == 1
    assert {name for name, mark in marks(done.stdout).items() if mark == "!!"} == {"linker"}
    assert f"lld setting: does not run ([Errno 2] No such file or directory: '{tmp_path / 'none'}')" in done.stdout
    assert "/no/such.so" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("a build would fail here: 1 of these (!!)")


@pytest.mark.parametrize(("version", "mark"), [("0.4.9", "!!"), ("0.6.0", "!!"), ("0.5.7", "ok")])
def test_versions(tmp_path: Path, version: str, mark: str) -> None:
    folder = tmp_path / "site" / f"flydsl-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: flydsl\nVersion: {version}\n")
    done = run_command("doctor", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "site")})
    assert marks(done.stdout)["flydsl"] == mark
    assert (f'{version} is not supported: pip install "flydsl>=0.5,<0.6"' in done.stdout) == (mark == "!!")
