# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build build`: the wheel that pip builds, and what a build says."""

from __future__ import annotations

import importlib.metadata
import re
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, call_hook, copy_project, members
from calling import Built, run_command

from flydsl_build.jobs.frontend import FRONTENDS

if TYPE_CHECKING:
    from pathlib import Path


def test_output(second: Built) -> None:
    lines = second.output.splitlines()
    assert lines[-1] == f"flydsl-build: wrote {second.wheel}"
    jobs = [line for line in lines if line.startswith("[")]
    assert [re.sub(r"gfx\d+: [\d.]+ s.*", "T: N s", line) for line in jobs] == ["[1/2] space.halve, T: N s", "[2/2] space.halve, T: N s"]
    start = next(index for index, line in enumerate(lines) if line.startswith("specialization "))
    # Last of all, below what setuptools says.
    assert start == len(lines) - 4
    assert [line for line in lines[:start] if line.startswith("adding ")] != []
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


KERNEL = '[tool.flydsl-build]\narchs = ["gfx942"]\n{}[tool.flydsl-build.kernels."m:f"]\n'
OTHERS = '"flydsl-build[build]", which brings all that is needed; builds with isolation install it themselves'


@pytest.mark.parametrize(
    ("base", "missing", "install"),
    [
        ("", ["setuptools", "jinja2", "flydsl"], '"setuptools>=77" "jinja2>=3.1" "flydsl>=0.5,<0.6"'),
        ("setuptools.build_meta", ["setuptools", "jinja2", "flydsl"], '"setuptools>=77" "jinja2>=3.1" "flydsl>=0.5,<0.6"'),
        ("hatchling.build", ["jinja2", "flydsl"], '"jinja2>=3.1" "flydsl>=0.5,<0.6"'),
    ],
)
def test_what_is_not_installed(base: str, missing: list[str], install: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(KERNEL.format(f'base = "{base}"\n' if base else ""))
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name in {'setuptools', 'jinja2', 'flydsl'} else find(name, *rest)\n"
    )
    done = run_command("build", ".", "-o", "dist", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr.partition("\nflydsl-build: ")[2] == (
        f"toolchain failed: build environment: {'; '.join(f'{name} is not installed' for name in missing)}\n"
        f"    -> pip install {install}, or {OTHERS}\n"
    )


def outdated(folder: Path, **versions: str) -> dict[str, str]:
    """Return an environment in which distributions have other versions."""
    for name, version in versions.items():
        info = folder / "site" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return {"PYTHONPATH": str(folder / "site")}


# In the order in which pip calls them.
HOOKS = ["prepare_metadata_for_build_wheel", "build_wheel", "build_sdist", "prepare_metadata_for_build_editable", "build_editable"]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_setuptools_that_is_too_old(hook: str, tmp_path: Path) -> None:
    """One without the command `bdist_wheel`, which is there since setuptools 70.1, and without what the hooks use of later ones."""
    project = copy_project(PACKAGES / "tiny", tmp_path / "tiny")
    env = outdated(tmp_path, setuptools="65.5.0")
    answer = call_hook(project, hook, tmp_path, None, env=env, ok=False)
    assert answer.output == (
        "\nflydsl-build: toolchain failed: build environment: setuptools 65.5.0 is not supported\n"
        f'    -> pip install "setuptools>=77", or {OTHERS}\n'
    )
    # An isolated build is asked what it needs before that is installed.
    requires = call_hook(project, f"get_requires_for_{hook.removeprefix('prepare_metadata_for_')}", None, env=env).value
    assert requires[0] == "setuptools>=77"


@pytest.mark.parametrize("hook", ["build_wheel", "build_editable"])
def test_everything_that_a_build_needs_is_checked_first(hook: str, tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "tiny")
    env = {
        **outdated(tmp_path, setuptools="65.5.0", flydsl="0.4.9", jinja2="3.0.3"),
        "FLYDSL_BUILD_LLD": str(tmp_path / "no-lld"),
    }
    answer = call_hook(project, hook, tmp_path, None, env=env, hidden=["numpy"], ok=False)
    packages, _, linker = answer.output.partition("  2. ")
    assert packages == (
        "\nflydsl-build: toolchain failed: 2 faults:\n"
        "  1. build environment: setuptools 65.5.0 is not supported; jinja2 3.0.3 is not supported; flydsl 0.4.9 is not supported; "
        "numpy is not installed\n"
        f'    -> pip install "setuptools>=77" "jinja2>=3.1" "flydsl>=0.5,<0.6" "numpy", or {OTHERS}\n'
    )
    assert linker.startswith(f"lld: {tmp_path / 'no-lld'} does not exist\n    -> correct the path, or leave the setting out")
    assert not (project / "build").exists()


def test_a_package_without_kernels_needs_no_compiler(tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "tiny")
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(text.partition("[tool.flydsl-build")[0] + "[tool.flydsl-build]\nallow-empty = true\n")
    env = {**outdated(tmp_path, flydsl="0.4.9"), "FLYDSL_BUILD_LLD": str(tmp_path / "no-lld")}
    assert call_hook(project, "build_wheel", tmp_path, None, env=env, hidden=["jinja2"]).value == "tiny_kernels-1.0-py3-none-any.whl"


def test_the_extra_brings_what_a_build_needs() -> None:
    from flydsl_build.backend import hooks

    extra = [one.partition(";")[0].strip() for one in importlib.metadata.requires("flydsl-build") or [] if 'extra == "build"' in one]
    needed = [hooks.SETUPTOOLS, *hooks.kernel_requirements(FRONTENDS), hooks.ZIGLANG]
    # Whoever writes metadata may sort bounds and have blanks.
    assert [sorted(one.replace(" ", "").split(",")) for one in map(bounds_last, extra)] == [
        sorted(one.split(",")) for one in map(bounds_last, needed)
    ]


def bounds_last(requirement: str) -> str:
    """Return a requirement with a comma behind the name."""
    return re.sub(r"(?<=[a-z0-9])\s*(?=[<>])", ",", requirement, count=1)
