# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the whole tree: the own wheel, wheels of the example and of the tiny projects, and a quick way to build one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
import fake_hip
from building import PACKAGES, call_hook, copy_project, unpack
from costs import COSTS, costs_of, forbid_builds
from environment import build_own_wheel, make_venv, pip_install

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out the tests that cost something, and let the others start no build")


def pytest_configure(config: pytest.Config) -> None:
    for cost, meaning in COSTS.items():
        config.addinivalue_line("markers", f"{cost}: {meaning}")
    if config.getoption("--fast"):
        forbid_builds()
    # What a shell runs in the background ignores this signal, and would hand that on to the processes that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = [one.func for found in item._fixtureinfo.name2fixturedefs.values() for one in found]
        for cost in costs_of([item.function, *fixtures]):
            item.add_marker(cost)
    if config.getoption("--fast"):
        cheap = [item for item in items if not any(map(item.get_closest_marker, COSTS))]
        config.hook.pytest_deselected(items=[item for item in items if item not in cheap])
        items[:] = cheap


@pytest.fixture(scope="session")
def own_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of flydsl-build: the one `run.py` installed, else a new one."""
    given = os.environ.get("FLYDSL_BUILD_TEST_WHEEL")
    if given:
        return Path(given)
    return build_own_wheel(Path(sys.executable), tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="session")
def example_wheel(own_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's wheel, built once a test run in a real isolated build."""
    folder = tmp_path_factory.mktemp("example")
    source = copy_project(ROOT / "example_pkg", folder / "source")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--find-links", own_wheel.parent, "--wheel-dir", folder / "dist", source]
    environ = {**os.environ, "FLYDSL_BUILD_CACHE": "false"}
    done = subprocess.run([str(word) for word in command], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def example_python(example_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a clean virtual environment that has numpy and the example's wheel, and nothing else."""
    python = make_venv(tmp_path_factory.mktemp("clean") / "venv")
    pip_install(python, "numpy", str(example_wheel))
    return python


@dataclass(frozen=True, kw_only=True)
class Build:
    """What a build did."""

    status: int
    output: str
    wheel: Path | None
    project: Path


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Build]:
    """Build a project given as files, without isolation, through the PEP 517 hook; return what happened.

    Call as `build({"pyproject.toml": …, "pkg/mod.py": …}, config={"archs": "gfx942"}, env={…})`.
    """

    def run(
        files: Mapping[str, str] | Path,
        *,
        config: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        folder: str = "project",
        python_path: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> Build:
        project = tmp_path / folder
        if isinstance(files, Path):
            copy_project(files, project)
        else:
            for name, text in files.items():
                path = project / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(textwrap.dedent(text), encoding="utf-8")
        dist = tmp_path / f"{folder}-dist"
        dist.mkdir(exist_ok=True)
        answer = call_hook(
            project,
            "build_wheel",
            dist,
            dict(config or {}),
            env=env,
            python_path=python_path or tmp_path / "no-torch",
            prefix=prefix,
            ok=False,
        )
        wheels = list(dist.glob("*"))
        wheel = wheels[0] if answer.status == 0 and len(wheels) == 1 else None
        if answer.status:
            assert wheels == [], "a failed build left something behind"
        return Build(status=answer.status, output=answer.output, wheel=wheel, project=project)

    return run


def _build(name: str, folder: Path) -> Path:
    project = copy_project(PACKAGES / name, folder / name)
    dist = folder / "dist"
    dist.mkdir()
    return dist / call_hook(project, "build_wheel", dist).value


@pytest.fixture(scope="session")
def hip_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in HIP library."""
    return fake_hip.build(tmp_path_factory.mktemp("hip"))


@pytest.fixture(scope="session")
def tiny_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `tests/packages/tiny`: one kernel for gfx942."""
    return _build("tiny", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def layouts_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `tests/packages/layouts`: modules at every place where a module can be."""
    return _build("layouts", tmp_path_factory.mktemp("layouts"))


@pytest.fixture(scope="session")
def second_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `tests/packages/second`: another distribution in the same namespace package, for two targets."""
    return _build("second", tmp_path_factory.mktemp("second"))


@pytest.fixture(scope="session")
def factories_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `tests/packages/factories`: factories of every form, for two targets."""
    return _build("factories", tmp_path_factory.mktemp("factories"))


@pytest.fixture(scope="session")
def factories_site(factories_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package of factories is installed."""
    return unpack(tmp_path_factory.mktemp("factories-site"), factories_wheel)


@pytest.fixture
def site(tiny_wheel: Path, tmp_path: Path) -> Path:
    """A folder of this test's own in which the tiny package is installed."""
    return unpack(tmp_path / "site", tiny_wheel)
