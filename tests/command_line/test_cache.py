# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build cache`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from flydsl_build.cache.folder import CacheFolder

PROJECT = '[tool.flydsl-build]\ncache-dir = "own"\ncache-size = "1 MB"\n[tool.flydsl-build.kernels."m:f"]\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of builds in the current folder; it has two entries of 1000 bytes, the second used last."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLYDSL_BUILD_CACHE_DIR", "kept")
    for number in (1, 2):
        cache = CacheFolder(tmp_path / "kept", limit=10**9, say=pytest.fail)
        cache.set_record("requests", str(number) * 64, [cache.add_blob(bytes([number]) * 1000)])
    return tmp_path / "kept"


def test_info(call: Any, folder: Path) -> None:
    lines = call("cache", "info").out.splitlines()
    assert lines == [f"folder   {folder}", "size     2.3 kB of at most 5.0 GB", "entries  2 jobs, 2 files"]
    found = json.loads(call("cache", "info", "--json").out)
    assert found == {"folder": str(folder), "size": 2266, "limit": 5 * 10**9, "jobs": 2, "files": 2, "garbage": 0}


def test_prune(call: Any, folder: Path) -> None:
    assert call("cache", "prune").out.startswith("0 B removed, 2.3 kB left\n")
    assert call("cache", "prune", "--size", "1.5 kB").out.startswith("1.1 kB removed, 1.1 kB left\n")
    assert [path.parent.name for path in (folder / "v1" / "requests").rglob("*") if path.is_file()] == ["22"]
    assert call("cache", "prune", "--size", "0").out.startswith("1.1 kB removed, 0 B left\n")


BUILD = """
import sys
from flydsl_build.toolchain.discovery import safe_temporary_folder
with safe_temporary_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_prune_removes_the_temporary_folder_of_a_killed_build(call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder.parent))
    env = {**os.environ, "TMPDIR": str(folder.parent)}
    with subprocess.Popen([sys.executable, "-c", BUILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as build:
        assert build.stdout is not None
        made = Path(build.stdout.readline().strip())
        assert made.parent == folder.parent
        assert str(made) not in call("cache", "prune").out
        assert made.is_dir()
        build.kill()
        build.wait()
    assert f"{made} removed: the build that made it was killed\n" in call("cache", "prune").out
    assert not made.exists()


def test_clear(call: Any, folder: Path) -> None:
    assert call("cache", "clear").out == "2.3 kB removed\n"
    assert call("cache", "info").out.splitlines()[1:] == ["size     0 B of at most 5.0 GB", "entries  0 jobs, 0 files"]
    assert call("cache", "clear").out == "0 B removed\n"
    assert folder.is_dir()


def test_the_folder_of_a_project(call: Any, folder: Path) -> None:
    (folder.parent / "pyproject.toml").write_text(PROJECT)
    # The environment wins, as it does in a build.
    assert json.loads(call("cache", "info", "--json").out)["folder"] == str(folder)
    found = json.loads(call("cache", "info", "--json", "--cache-dir", "given").out)
    assert (found["folder"], found["limit"], found["size"]) == ("given", 10**6, 0)


def test_the_project_names_the_folder(call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLYDSL_BUILD_CACHE_DIR")
    (folder.parent / "pyproject.toml").write_text(PROJECT)
    assert json.loads(call("cache", "info", "--json").out)["folder"] == str(folder.parent / "own")


def test_another_project(call: Any, folder: Path) -> None:
    (folder.parent / "pyproject.toml").write_text('[project]\nname = "without-kernels"\n')
    assert json.loads(call("cache", "info", "--json").out)["folder"] == str(folder)


def test_the_folder_of_the_user(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLYDSL_BUILD_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for given, expected in {
        str(tmp_path / "xdg"): tmp_path / "xdg",
        "": tmp_path / "home" / ".cache",
        "relative": tmp_path / "home" / ".cache",
    }.items():
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        for there in (False, True):
            # What else is installed does not matter.
            monkeypatch.setitem(sys.modules, "platformdirs", SimpleNamespace(user_cache_dir=lambda *_, **__: "/another") if there else None)
            assert json.loads(call("cache", "info", "--json").out)["folder"] == str(expected / "flydsl-build")


def test_no_folder_is_known(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLYDSL_BUILD_CACHE_DIR", raising=False)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", Mock(side_effect=KeyError))
    answer = call("cache", "info")
    assert (answer.status, answer.err) == (
        1,
        (
            "flydsl-build: cache: the user has no home folder, so no folder is known\n"
            "    -> set HOME or XDG_CACHE_HOME, or name it: --cache-dir DIR\n"
        ),
    )


def test_a_size_that_is_none(call: Any, folder: Path) -> None:
    answer = call("cache", "prune", "--size", "much")
    assert (answer.status, answer.err) == (
        1,
        'flydsl-build: --size: found "much"\n    -> write a number of bytes above 0, or text such as "500 MB" or "5 GB"\n',
    )
    assert folder.is_dir()


@pytest.mark.parametrize("action", ["info", "prune", "clear"])
def test_a_folder_that_cannot_be_read(call: Any, action: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    answer = call("cache", action, "--cache-dir", str(path))
    assert (answer.status, answer.err) == (
        1,
        f"flydsl-build: {path}: cannot be read (Not a directory)\n    -> see who may read it, or name another: --cache-dir DIR\n",
    )
    assert path.is_file()
