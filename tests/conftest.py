# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the whole tree: the own wheel, the example's wheel, and a quick way to build a tiny project."""

from __future__ import annotations

import os
import shutil
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
sys.path.insert(0, str(TESTS))

from environment import build_own_wheel, make_venv, pip_install

NO_TORCH = """
import importlib.util
_find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *package: None if name == "torch" else _find(name, *package)
"""

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def pytest_configure() -> None:
    # What a shell runs in the background ignores this signal, and would hand that on to the processes that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
    source = shutil.copytree(ROOT / "example_pkg", folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
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
            shutil.copytree(files, project, ignore=shutil.ignore_patterns("build", "*.egg-info"))
        else:
            for name, text in files.items():
                path = project / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(textwrap.dedent(text), encoding="utf-8")
        dist = tmp_path / f"{folder}-dist"
        dist.mkdir(exist_ok=True)
        code = f"import flydsl_build.backend as b; print('WHEEL', b.build_wheel({str(dist)!r}, {dict(config or {})!r}))"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("FLYDSL_BUILD_")}
        environ["FLYDSL_BUILD_CACHE"] = "false"
        environ.update(env or {})
        # As in an isolated build, and because a worker that imports torch needs seconds.
        shim = python_path or tmp_path / "no-torch"
        shim.mkdir(exist_ok=True)
        site = shim / "sitecustomize.py"
        given = site.read_text(encoding="utf-8") if site.is_file() else ""
        site.write_text(given.replace(NO_TORCH, "") + NO_TORCH, encoding="utf-8")
        environ["PYTHONPATH"] = str(shim)
        done = subprocess.run(
            [*prefix, sys.executable, "-c", code], cwd=project, env=environ, capture_output=True, text=True, check=False, timeout=300
        )
        wheels = list(dist.glob("*"))
        wheel = wheels[0] if done.returncode == 0 and len(wheels) == 1 else None
        if done.returncode:
            assert wheels == [], "a failed build left something behind"
        return Build(status=done.returncode, output=done.stdout + done.stderr, wheel=wheel, project=project)

    return run
