# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the back-end tests: wheels of the tiny projects, each built once, and the stand-in HIP library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import fake_hip
from front_end import PACKAGES, call_hook, copy_project, unpack


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
