# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build build`: the wheel that pip builds, and what a build says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from calling import Built, run_command
from front_end import PACKAGES, call_hook, copy_project, members

if TYPE_CHECKING:
    from pathlib import Path


def test_output(second: Built) -> None:
    lines = second.output.splitlines()
    assert lines[-1] == f"flydsl-build: wrote {second.wheel}"
    jobs = [line for line in lines if line.startswith("[")]
    assert [re.sub(r"gfx\d+: [\d.]+ s.*", "T: N s", line) for line in jobs] == ["[1/2] space.halve, T: N s", "[2/2] space.halve, T: N s"]
    start = next(index for index, line in enumerate(lines) if line.startswith("specialization "))
    header, *rows = [line.split() for line in lines[start : start + 3]]
    assert header == ["specialization", "target", "kernel", "seconds", "code", "B", "VGPR", "AGPR", "SGPR", "LDS", "B", "spills", "waves"]
    assert [row[:3] for row in rows] == [["space.halve:halve", target, "halve_kernel_0"] for target in ("gfx942", "gfx1100")]
    assert all(float(row[3]) > 0 for row in rows)
    assert [row[-1] for row in rows] == ["8", "15"]
    assert not [line for line in lines if "warning" in line]


def test_same_wheel_as_the_hook(tiny: Built, tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "tiny")
    name = call_hook(project, "build_wheel", tmp_path, None, None).value
    assert name == tiny.wheel.name
    assert members(tmp_path / name) == members(tiny.wheel)


def test_bad_projects(call: Any, tmp_path: Path) -> None:
    assert call("build", tmp_path / "none", "-o", tmp_path).err.startswith(f"flydsl-build: {tmp_path / 'none'}: does not exist\n")
    assert call("build", tmp_path).status == 2
    project = copy_project(PACKAGES / "tiny", tmp_path / "tiny")
    done = run_command("build", project, "-o", tmp_path / "dist", "-C", "archs=gfx9000", cwd=tmp_path)
    assert done.returncode == 1
    assert 'flydsl-build: configuration failed: -C archs: unknown architecture "gfx9000"' in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "dist").iterdir()) == []
    (tmp_path / "file").write_text("")
    answer = call("build", project, "-o", tmp_path / "file" / "dist")
    assert answer.err.splitlines()[0] == f"flydsl-build: {tmp_path / 'file' / 'dist'}: cannot be made: Not a directory"


def test_other_back_end(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "other"\n[tool.flydsl-build]\nnothing = 1\n')
    done = run_command("build", ".", "-o", "dist", cwd=tmp_path)
    assert 'warning: build-backend is other: pip builds no kernels until it is "flydsl_build.backend"\n' in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("base", "missing", "install"),
    [
        ("", "setuptools, jinja2, flydsl", '"setuptools>=77" "jinja2>=3.1" "flydsl>=0.5,<0.6"'),
        ("setuptools.build_meta", "setuptools, jinja2, flydsl", '"setuptools>=77" "jinja2>=3.1" "flydsl>=0.5,<0.6"'),
        ("hatchling.build", "jinja2, flydsl", '"jinja2>=3.1" "flydsl>=0.5,<0.6"'),
    ],
)
def test_what_is_not_installed(base: str, missing: str, install: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.flydsl-build]\n" + (f'base = "{base}"\n' if base else ""))
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name in {'setuptools', 'jinja2', 'flydsl'} else find(name, *rest)\n"
    )
    done = run_command("build", ".", "-o", "dist", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr == (
        f"flydsl-build: {missing}: not installed here, and this command builds without isolation\n"
        f"    -> pip install {install}, or build with pip wheel\n"
    )
