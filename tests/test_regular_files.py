# SPDX-License-Identifier: Apache-2.0
"""Nothing that is opened by a name waits for the writer of a pipe, or reads a device."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from flydsl_build.bundle.manifest import ManifestError, read_manifest
from flydsl_build.bundle.verify import verify_bundles
from flydsl_build.cache.folder import CacheFolder
from flydsl_build.command_line.arguments import project_document
from flydsl_build.command_line.contents import Contents, open_contents
from flydsl_build.command_line.source_search import search_sources
from flydsl_build.config import read_settings
from flydsl_build.editable.freshness import declared_modules
from flydsl_build.editable.installation import read_json
from flydsl_build.editable.resolution import digest_of_file
from flydsl_build.errors import BuildError, ConfigError
from flydsl_build.regular_files import read_regular
from flydsl_build.toolchain.discovery import _identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _with_an_end() -> Iterator[None]:
    """End what waits with an error."""

    def stop(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["pipe", "device"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder whose `special` is no regular file."""
    if request.param == "pipe":
        os.mkfifo(tmp_path / "special")
    else:
        (tmp_path / "special").symlink_to("/dev/zero")
    return tmp_path / "special"


def test_reading(special: Path) -> None:
    with pytest.raises(OSError, match="it is no regular file"):
        read_regular(special)
    link = special.with_name("link")
    link.symlink_to("file")
    special.with_name("file").write_bytes(b"content")
    assert read_regular(link) == b"content"
    with pytest.raises(IsADirectoryError):
        read_regular(special.parent)


def test_pyproject(special: Path) -> None:
    special.rename(special.with_name("pyproject.toml"))
    with pytest.raises(ConfigError) as caught:
        read_settings(special.parent, None, {})
    assert str(caught.value) == "pyproject.toml: cannot be read: it is no regular file"
    assert project_document(special.parent) == {}
    assert declared_modules(str(special.parent)) == []


def test_sources(special: Path) -> None:
    special.rename(special.with_name("mod.py"))
    assert search_sources(special.parent, [special.parent]).unreadable == (("mod.py", "it is no regular file"),)


def test_packages(special: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        read_manifest(special)
    assert str(caught.value) == "special: cannot be read: it is no regular file"
    with pytest.raises(BuildError, match=r"^special: cannot be read: it is no regular file\n"):
        Contents(special.parent, None).read("special")
    with pytest.raises(BuildError, match=r"special: is not a wheel \(it is no regular file\)\n"), open_contents(special):
        pass
    special.rename(special.with_name("m.gfx942.hipfb"))
    assert [str(one).partition("\n")[0] for one in verify_bundles(special.parent)] == [
        "m.gfx942.hipfb: cannot be read: it is no regular file"
    ]


def test_linkers(special: Path) -> None:
    assert _identity((str(special),)) == ""


def test_dependencies(special: Path) -> None:
    assert digest_of_file(special) is None
    assert read_json(str(special)) is None


def test_caches(special: Path) -> None:
    cache = CacheFolder(special.parent / "cache", limit=10**9, say=pytest.fail)
    digest = cache.add_blob(b"data")
    cache.set_record("memos", digest, 1)
    for kind in ("blobs", "memos"):
        path = cache.folder / "v1" / kind / digest[:2] / digest[2:]
        path.unlink()
        path.symlink_to(special)
    assert cache.blob(digest) is None
    assert cache.record("memos", digest) is None
    cache.prune()
    assert cache.add_blob(b"data") == digest
    assert cache.blob(digest) == b"data"
