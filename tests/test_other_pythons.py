# SPDX-License-Identifier: Apache-2.0
"""The run time, a build and the editable hook on every supported Python that this machine has beside the one of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from building import PACKAGES, call_hook, copy_project, run_script, unpack
from environment import make_venv, pip_install

pytestmark = pytest.mark.pythons

LAUNCH = """
import site
site.addsitedir(argument)
import ctypes, numpy, fake_hip
import tiny_kernels.negate as m
m.negate(numpy.zeros(5, "f4"), 5)
(event,) = fake_hip.FakeHip("libamdhip64.so.7").events("launch")
try:
    m.negate(numpy.zeros(5, "f8"), 5)
except TypeError as error:
    refused = str(error)
print(json.dumps([sys.version_info[:2], event["kernel"], event["block"], refused, m.__file__]))
"""


def interpreter(minor: int) -> Path | None:
    """Return a Python 3.`minor` that works and can make virtual environments, of those on the path and pyenv's."""
    name = f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    folders = [*os.get_exec_path(), *(path / "bin" for path in sorted(pyenv.glob(f"3.{minor}.*")))]
    for path in (Path(folder, name) for folder in folders):
        # A shim of pyenv is there, and fails, where its version is not chosen. Debian's Python may have no ensurepip.
        code = "import sys, venv, ensurepip; print(sys.version_info.minor)"
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False) if path.is_file() else None
        if done and done.stdout.strip() == str(minor):
            return path
    return None


@dataclass(frozen=True, kw_only=True)
class Other:
    """A Python in a virtual environment, and whether FlyDSL has a wheel for it."""

    version: list[int]
    python: Path
    builds: bool


@pytest.fixture(scope="module", params=[minor for minor in range(11, 15) if minor != sys.version_info.minor], ids="3.{}".format)
def other(request: pytest.FixtureRequest, own_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Other:
    minor = request.param
    found = interpreter(minor)
    if found is None:
        pytest.skip(f"there is no Python 3.{minor}")
    python = make_venv(tmp_path_factory.mktemp(f"python3.{minor}") / "venv", found)
    pip_install(python, "numpy")
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{own_wheel}[build]"]
    done = subprocess.run([python, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "No matching distribution found for flydsl" in done.stderr, done.stderr
    return Other(version=[3, minor], python=python, builds=done.returncode == 0)


def check(other: Other, site: Path, hip: Path, **env: str) -> str:
    version, kernel, block, refused, file = run_script(LAUNCH, python=other.python, argument=str(site), hip=hip, targets="gfx942", **env)
    assert (version, kernel, block) == (other.version, "negate_kernel_0", [64, 1, 1])
    assert refused == "negate(): argument X must be f32[L], got f64[5 : 1]: the dtype is f64, not f32"
    return file


def test_a_wheel_of_this_python(other: Other, site: Path, hip_library: Path) -> None:
    assert check(other, site, hip_library) == str(site / "tiny_kernels" / "negate.py")


def test_a_wheel_of_its_own(other: Other, hip_library: Path, tiny_wheel: Path, tmp_path: Path) -> None:
    if not other.builds:
        pytest.skip("FlyDSL has no wheel for it")
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    wheel = tmp_path / call_hook(project, "build_wheel", tmp_path, python=other.python).value
    assert wheel.name == tiny_wheel.name
    check(other, unpack(tmp_path / "site", wheel), hip_library)


def test_editable(other: Other, hip_library: Path, tmp_path: Path) -> None:
    if not other.builds:
        pytest.skip("FlyDSL has no wheel for it")
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    wheel = tmp_path / call_hook(project, "build_editable", tmp_path, python=other.python).value
    site = unpack(tmp_path / "site", wheel)
    served = check(other, site, hip_library, PYTHONSAFEPATH="1")
    assert served.startswith(str(project / "build" / "flydsl-editable"))
    source = project / "tiny_kernels" / "negate.py"
    source.write_text(source.read_text() + "\n# Another text.\n")
    assert check(other, site, hip_library, PYTHONSAFEPATH="1") != served
