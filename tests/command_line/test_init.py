# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build init`: launchers found in source that is not imported, and a table that is never written over."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.compiler import jit as compiled
raise SystemExit("never imported")

@flyc.kernel
def kernel(X: fx.Tensor): ...

@flyc.jit
def add(A: fx.Tensor, B: "fx.Tensor", n: fx.Int32, alpha: float, BLOCK: fx.Constexpr[int], stream: fx.Stream = fx.Stream(None)): ...

@compiled(some="option")
def fill(P: fx.Pointer, other): ...

def build(N: int, dtype: str = "f32", *, tile):
    @flyc.jit
    def launch(X: fx.Tensor, rows: fx.Int32): ...
    return launch

def helper():
    def jit(function): ...
    @jit
    def inner(): ...

class Holder:
    pass
"""
PROJECT = '[project]\nname = "p"\nversion = "1"\n'
TABLE = """\
[tool.flydsl-build]
# The gfx targets to build for; there is no default.
# archs = ["gfx942", "gfx950"]

[tool.flydsl-build.kernels."pkg.mod:add"]
# args = { A = "f32[M, N]", B = "f32[M, N]", alpha = "f32" }
# constexpr = { BLOCK = [] }

[tool.flydsl-build.kernels."pkg.mod:fill"]
# args = { P = "ptr<f32>", other = "f32[M, N]" }

[tool.flydsl-build.kernels."pkg.mod:build"]
# params = { N = [], tile = [] }
# args = { X = "f32[M, N]" }
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("src/pkg", "tests", "src/pkg/_flydsl"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/pkg/mod.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "src/pkg/__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "src/pkg/_flydsl/stub.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "tests/test.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    return tmp_path


def test_dry_run(call: Any, project: Path) -> None:
    answer = call("init", project, "--dry-run")
    assert (answer.status, answer.out) == (0, TABLE)
    assert answer.err == (
        "found launcher pkg.mod:add (src/pkg/mod.py:11)\n"
        "found launcher pkg.mod:fill (src/pkg/mod.py:14)\n"
        "found factory of launchers pkg.mod:build (src/pkg/mod.py:16)\n"
    )
    assert (project / "pyproject.toml").read_text() == PROJECT


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_write(call: Any, project: Path, newline: str) -> None:
    path = project / "pyproject.toml"
    text = (PROJECT + "# the end, without a newline").replace("\n", newline)
    path.write_bytes(text.encode())
    path.chmod(0o640)
    answer = call("init", project)
    assert answer.status == 0
    assert 'still to do: [build-system] requires = ["flydsl-build"], build-backend = "flydsl_build.backend"\n' in answer.out
    written = path.read_bytes().decode()
    assert written == text + (("\n\n" + TABLE).replace("\n", newline))
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in project.iterdir()) == ["pyproject.toml", "src", "tests"]
    assert list(tomllib.loads(written)["tool"]["flydsl-build"]["kernels"]) == ["pkg.mod:add", "pkg.mod:fill", "pkg.mod:build"]
    # What was written is a table that the back end reads: nothing but the targets is missing.
    assert "archs" in call("plan", project).err
    assert call("plan", project, "-C", "archs=gfx942").out.endswith("1 job, 3 specializations, targets: gfx942\n")
    again = call("init", project)
    assert (again.status, again.out) == (1, "")
    assert again.err == (
        "flydsl-build: pyproject.toml: has a [tool.flydsl-build] table already\n    -> remove it first, or take what you need from --dry-run\n"
    )
    assert path.read_bytes().decode() == written


def test_files_that_cannot_be_read(call: Any, project: Path) -> None:
    (project / "src/pkg/old.py").write_text("print 'python 2'\n", encoding="utf-8")
    answer = call("init", project, "--dry-run")
    assert (answer.status, answer.out) == (0, TABLE)
    assert answer.err.startswith("flydsl-build: warning: src/pkg/old.py was left out: SyntaxError: ")


def test_bad_projects(call: Any, project: Path, tmp_path: Path) -> None:
    path = project / "pyproject.toml"
    path.write_text("tool = {}\n", encoding="utf-8")
    answer = call("init", project)
    assert answer.status == 1
    assert answer.err.splitlines()[-1] == "    -> add the table of --dry-run by hand"
    path.write_text("[tool", encoding="utf-8")
    assert call("init", project).err.endswith("    -> correct it first\n")
    path.unlink()
    assert call("init", project).err == f"flydsl-build: {path}: does not exist\n    -> write one with a [project] table first\n"
    path.write_text(PROJECT, encoding="utf-8")
    (project / "src/pkg/mod.py").write_text("", encoding="utf-8")
    answer = call("init", project)
    assert answer.err == f"flydsl-build: {tmp_path}: no function decorated with @flyc.jit was found\n    -> name the project's folder\n"
    assert path.read_text() == PROJECT
