# SPDX-License-Identifier: Apache-2.0
"""Equal sources, settings, FlyDSL and linker give equal bytes, wherever and however they are built."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
from building import PACKAGES, TESTS, call_hook, copy_project, members

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = 1_700_000_001
STAMP = (2023, 11, 14, 22, 13, 20)  # a zip file counts in two seconds
TWO_TARGETS = {"archs": "gfx942,gfx1100"}


def one_way(folder: Path, **epoch: str) -> Path:
    project = copy_project(PACKAGES / "tiny", folder / "one" / "project")
    env = {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1", **epoch}
    return folder / "one" / call_hook(project, "build_wheel", folder / "one", {**TWO_TARGETS, "jobs": "1"}, env=env).value


def another_way(folder: Path, **epoch: str) -> Path:
    place = folder / "another place, of a longer name" / "tiny-1.0"
    project = copy_project(PACKAGES / "tiny", place)
    for path in (project, *project.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    env = {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2", "HOME": str(folder), **epoch}
    answer = call_hook(project, "build_wheel", place.parent, {**TWO_TARGETS, "jobs": "2"}, env=env, umask=0o077)
    return place.parent / answer.value


@pytest.fixture(scope="module")
def with_epoch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the tiny package for two targets, at a given time."""
    return one_way(tmp_path_factory.mktemp("epoch"), SOURCE_DATE_EPOCH=str(EPOCH))


@pytest.fixture(scope="module")
def without_epoch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without a time."""
    return one_way(tmp_path_factory.mktemp("no-epoch"))


def times(wheel: Path) -> set[tuple[int, ...]]:
    with zipfile.ZipFile(wheel) as archive:
        return {one.date_time for one in archive.infolist()}


def test_with_source_date_epoch(with_epoch: Path, tmp_path: Path) -> None:
    other = another_way(tmp_path, SOURCE_DATE_EPOCH=str(EPOCH))
    assert other.name == with_epoch.name
    assert members(other) == members(with_epoch)  # says what differs
    assert other.read_bytes() == with_epoch.read_bytes()
    assert times(with_epoch) == {STAMP}


def test_without_source_date_epoch(without_epoch: Path, tmp_path: Path) -> None:
    other = another_way(tmp_path)
    assert other.read_bytes() == without_epoch.read_bytes()
    assert times(without_epoch) == {(1980, 1, 1, 0, 0, 0)}


def test_the_epoch_changes_times_alone(with_epoch: Path, without_epoch: Path) -> None:
    assert members(with_epoch) == members(without_epoch)


@pytest.fixture(scope="module")
def stranger() -> list[str]:
    """A command that runs another as a user with another number and no name; none where the kernel lets nobody be another."""
    tool = shutil.which("unshare")
    command = [tool or "unshare", "--user", "--map-user=4321", "--map-group=4321"]
    done = subprocess.run([*command, "id", "-u"], capture_output=True, text=True, check=False) if tool else None
    return command if done is not None and done.stdout == "4321\n" else []


def test_everything_at_once(with_epoch: Path, stranger: list[str], tmp_path: Path) -> None:
    """Another path, user, umask, locale, time zone and number of jobs, with a cold cache and with a hot one."""
    env = {
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "FLYDSL_BUILD_CACHE": "true",
        "FLYDSL_BUILD_CACHE_DIR": str(tmp_path / "cache"),
        "HOME": str(tmp_path / "home"),
        "LC_ALL": "tr_TR.UTF-8",
        "LANG": "tr_TR.UTF-8",
        "TZ": "Pacific/Chatham",
        "PYTHONHASHSEED": "77",
        "USER": "somebody",
    }
    for state, cached in (("cold", 0), ("hot", 2)):
        project = copy_project(PACKAGES / "tiny", tmp_path / f"ein anderer Ort ({state})" / "tiny")
        settings = {**TWO_TARGETS, "jobs": "2"}
        answer = call_hook(project, "build_wheel", project.parent, settings, env=env, umask=0o027, prefix=stranger)
        assert f"2 jobs: {cached} from the cache, {2 - cached} compiled" in answer.output
        wheel = project.parent / answer.value
        assert wheel.name == with_epoch.name
        assert members(wheel) == members(with_epoch)  # says what differs
        assert wheel.read_bytes() == with_epoch.read_bytes()


@pytest.mark.parametrize("epoch", ["0", "315532799"])
def test_epoch_before_zip_files(epoch: str, tmp_path: Path, tiny_wheel: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    other = tmp_path / call_hook(project, "build_wheel", tmp_path, env={"SOURCE_DATE_EPOCH": epoch}).value
    assert other.read_bytes() == tiny_wheel.read_bytes()


def test_epoch_that_is_no_number(tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    dist = tmp_path / "dist"
    dist.mkdir()
    answer = call_hook(project, "build_wheel", dist, env={"SOURCE_DATE_EPOCH": "yesterday"}, ok=False)
    assert answer.status == 1
    assert "SOURCE_DATE_EPOCH: 'yesterday' is not a number of seconds" in answer.output
    assert "Traceback" not in answer.output
    assert list(dist.iterdir()) == []


def test_torch_makes_no_difference(tiny_wheel: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    other = tmp_path / call_hook(project, "build_wheel", tmp_path, torch=True).value
    assert other.read_bytes() == tiny_wheel.read_bytes()


# --- source distributions -------------------------------------------------------------------------------------------------


def sdist(project: Path, folder: Path) -> tuple[Path, list[str]]:
    """Make and unpack a source distribution; return the unpacked project and the names of its files."""
    answer = call_hook(project, "build_sdist", folder)
    assert answer.spawned == []
    with tarfile.open(folder / answer.value) as archive:
        archive.extractall(folder, filter="data")
        names = [one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()]
    return folder / answer.value.removesuffix(".tar.gz"), names


TINY_SDIST = [
    "PKG-INFO",
    "pyproject.toml",
    "setup.cfg",
    "tiny_kernels.egg-info/PKG-INFO",
    "tiny_kernels.egg-info/SOURCES.txt",
    "tiny_kernels.egg-info/dependency_links.txt",
    "tiny_kernels.egg-info/top_level.txt",
    "tiny_kernels/__init__.py",
    "tiny_kernels/negate.py",
]


def test_wheel_from_sdist(tiny_wheel: Path, tmp_path: Path) -> None:
    project, names = sdist(copy_project(PACKAGES / "tiny", tmp_path / "project"), tmp_path)
    assert sorted(names) == TINY_SDIST
    dist = tmp_path / "dist"
    dist.mkdir()
    other = dist / call_hook(project, "build_wheel", dist).value
    assert members(other) == members(tiny_wheel)
    assert other.read_bytes() == tiny_wheel.read_bytes()


EXAMPLE_SDIST = [
    "PKG-INFO",
    "pyproject.toml",
    "setup.cfg",
    "src/example_kernels.egg-info/PKG-INFO",
    "src/example_kernels.egg-info/SOURCES.txt",
    "src/example_kernels.egg-info/dependency_links.txt",
    "src/example_kernels.egg-info/top_level.txt",
    "src/example_pkg/__init__.py",
    "src/example_pkg/device/scale_gfx1100.ll",
    "src/example_pkg/device/scale_gfx1201.ll",
    "src/example_pkg/device/scale_gfx942.ll",
    "src/example_pkg/device/scale_gfx950.ll",
    "src/example_pkg/device_state.py",
    "src/example_pkg/elementwise.py",
    "src/example_pkg/reduce.py",
    "src/example_pkg/scaled.py",
]


def test_example_from_sdist(example_wheel: Path, tmp_path: Path) -> None:
    project, names = sdist(copy_project(TESTS.parent / "example_pkg", tmp_path / "project"), tmp_path)
    assert sorted(names) == EXAMPLE_SDIST
    dist = tmp_path / "dist"
    dist.mkdir()
    other = dist / call_hook(project, "build_wheel", dist).value
    assert other.name == example_wheel.name

    # The other wheel is from an isolated build, whose setuptools may be another release: it signs WHEEL and writes METADATA.
    def code(wheel: Path) -> dict[str, bytes]:
        return {name: data for name, data in members(wheel).items() if not name.startswith("example_kernels-0.1.0.dist-info/")}

    assert list(members(other)) == list(members(example_wheel))
    assert not [name for name in members(other) if name.endswith(".ll")]
    assert code(other) == code(example_wheel)


# --- layouts of the project -----------------------------------------------------------------------------------------------


def test_src_layout_gives_the_same_wheel(tiny_wheel: Path, tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    (project / "src").mkdir()
    (project / "tiny_kernels").rename(project / "src" / "tiny_kernels")
    settings = project / "pyproject.toml"
    text = settings.read_text()
    assert 'packages = ["tiny_kernels"]' in text
    settings.write_text(text.replace("[tool.setuptools]", '[tool.setuptools]\npackage-dir = { "" = "src" }'))
    other = tmp_path / call_hook(project, "build_wheel", tmp_path).value
    assert members(other) == members(tiny_wheel)
    assert other.read_bytes() == tiny_wheel.read_bytes()


def test_found_packages_give_the_same_wheel(tiny_wheel: Path, tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace('[tool.setuptools]\npackages = ["tiny_kernels"]\n', ""))
    other = tmp_path / call_hook(project, "build_wheel", tmp_path).value
    assert other.read_bytes() == tiny_wheel.read_bytes()
