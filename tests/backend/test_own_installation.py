# SPDX-License-Identifier: Apache-2.0
"""Building with an editable installation of flydsl-build itself, and with one that has no native part."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from building import PACKAGES, TESTS, build_environment, call_hook, copy_project, members, run_script, unpack

import flydsl_build

OWN = ("pyproject.toml", "README.md", "LICENSE", "flydsl_build", "native", "templates")

HOOKS = """
import json, sys, flydsl_build, flydsl_build.backend as backend
dist = sys.argv[1]  # setuptools changes the list
print(json.dumps([flydsl_build.__file__, backend.build_wheel(dist), backend.build_editable(dist)]))
"""


def test_an_editable_installation_builds(tmp_path: Path, hip_library: Path) -> None:
    pytest.importorskip("scikit_build_core")
    source = tmp_path / "own"
    source.mkdir()
    for name in OWN:
        path = TESTS.parent / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "build"))
        else:
            shutil.copy(path, source)
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv").glob("lib/python3*/site-packages"))
    # Everything that this environment has; what is installed editably is found before it.
    folders = [path for path in sys.path if path.endswith("-packages") and Path(path).is_dir()]
    (site / "zz_shared.pth").write_text("\n".join(folders) + "\n")
    environ = build_environment(tmp_path)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-build-isolation", "--no-deps", "--no-index", "-e"]
    done = subprocess.run([*pip, str(source)], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(source.rglob("*.so"))

    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    (tmp_path / "dist").mkdir()
    command = [str(python), "-P", "-c", HOOKS, str(tmp_path / "dist")]
    done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    own, wheel, editable = json.loads(done.stdout.splitlines()[-1])
    assert own == str(source / "flydsl_build" / "__init__.py")
    inside = members(tmp_path / "dist" / wheel)
    runtime = sorted(path.name for path in (source / "flydsl_build" / "runtime").glob("*.py"))
    names = [name.rpartition("/")[2] for name in inside if "/runtime/" in name]
    assert sorted(names) == sorted([*runtime, "_native.abi3.so"])

    use = """
import numpy, fake_hip, site
site.addsitedir(argument)
from tiny_kernels.negate import negate
negate(numpy.zeros(7, "f4"), 5)
print(json.dumps([event["kernel"] for event in fake_hip.FakeHip("libamdhip64.so.7").events("launch")]))
"""
    for name, one in {"wheel": wheel, "editable": editable}.items():
        folder = unpack(tmp_path / name, tmp_path / "dist" / one)
        # Where it was installed: another installation of flydsl-build would compile again.
        assert run_script(use, python=python, argument=str(folder), hip=hip_library, targets="gfx942") == ["negate_kernel_0"]
    done = subprocess.run(
        [str(python), "-m", "flydsl_build", "doctor"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    (line,) = [line for line in done.stdout.splitlines() if line[4:].startswith("flydsl-build ")]
    assert line.startswith("ok "), done.stdout


@pytest.mark.parametrize("hook", ["build_wheel", "build_editable"])
def test_without_the_native_part_nothing_is_compiled(hook: str, tmp_path: Path) -> None:
    package = tmp_path / "lib" / "flydsl_build"
    shutil.copytree(Path(flydsl_build.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "_native*.so"))
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    (tmp_path / "dist").mkdir()
    answer = call_hook(project, hook, tmp_path / "dist", None, None, env={"PYTHONPATH": str(tmp_path / "lib")}, ok=False)
    assert answer.output.rpartition("\nflydsl-build: ")[2] == (
        f"build failed: {package / 'runtime'}: this installation of flydsl-build has no native run time\n"
        "    -> reinstall it: pip install --force-reinstall flydsl-build\n"
    )
    assert " specializations in " not in answer.output
