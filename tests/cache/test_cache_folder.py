# SPDX-License-Identifier: Apache-2.0
"""The folder of the cache: what is read is what was written, whoever was killed or wrote at the same time."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flydsl_build.cache.folder import CacheFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = [hashlib.sha256(bytes([number])).hexdigest() for number in range(8)]
BIG = 10**9


class Opened(CacheFolder):
    """A folder that keeps what it says."""

    def __init__(self, folder: Path, limit: int = BIG) -> None:
        self.said: list[str] = []
        super().__init__(folder, limit=limit, say=self.said.append)


@pytest.fixture
def folder(tmp_path: Path) -> Opened:
    return Opened(tmp_path / "cache")


def file_of(folder: CacheFolder, kind: str, key: str) -> Path:
    return folder.folder / "v1" / kind / key[:2] / key[2:]


def files(folder: CacheFolder, kind: str) -> set[str]:
    return {path.parent.name + path.name for path in (folder.folder / "v1" / kind).rglob("*") if path.is_file()}


def test_round_trip(folder: Opened) -> None:
    digest = folder.add_blob(b"code")
    assert digest == hashlib.sha256(b"code").hexdigest()
    folder.set_record("requests", KEYS[0], [{"files": {"a": digest}}])
    other = Opened(folder.folder)
    assert other.blob(digest) == b"code"
    assert other.record("requests", KEYS[0]) == [{"files": {"a": digest}}]
    assert other.record("requests", KEYS[1]) is None
    assert other.blob(KEYS[1]) is None
    assert (other.said, folder.said) == ([], [])
    assert (folder.folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert folder.folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda _: b"", lambda data: data[:4] + b"\xff" + data[5:]])
@pytest.mark.parametrize("kind", ["blobs", "requests"])
def test_damage_is_found_and_removed(folder: Opened, kind: str, damage: Any) -> None:
    digest = folder.add_blob(b"some machine code")
    folder.set_record("requests", KEYS[0], {"files": [digest]})
    path = file_of(folder, kind, digest if kind == "blobs" else KEYS[0])
    path.write_bytes(damage(path.read_bytes()))
    assert (folder.blob(digest) if kind == "blobs" else folder.record("requests", KEYS[0])) is None
    assert folder.said == [f"the cache file {path.relative_to(folder.folder)} is damaged: it is removed and made again"]
    assert not path.exists()


@pytest.mark.parametrize("damaged", [b"", b"some machine c0de"], ids=["as after a power cut", "of the same size"])
def test_a_damaged_file_in_the_place_of_a_blob_is_written_again(folder: Opened, damaged: bytes) -> None:
    digest = folder.add_blob(b"some machine code")
    file_of(folder, "blobs", digest).write_bytes(damaged)
    folder.add_blob(b"some machine code")
    assert folder.blob(digest) == b"some machine code"


# --- size --------------------------------------------------------------------------------------------------------------------


def fill(folder: CacheFolder, numbers: range) -> None:
    for number in numbers:
        CacheFolder(folder.folder, limit=BIG, say=pytest.fail).set_record(
            "requests", KEYS[number], [CacheFolder(folder.folder, limit=BIG, say=pytest.fail).add_blob(bytes([number]) * 1000)]
        )


def test_least_recently_used_goes_first(folder: Opened) -> None:
    fill(folder, range(5))
    Opened(folder.folder).record("requests", KEYS[0])
    last = Opened(folder.folder, limit=4000)
    last.set_record("requests", KEYS[5], [last.add_blob(bytes([5]) * 1000)])
    last.close()
    assert files(folder, "requests") == {KEYS[0], KEYS[4], KEYS[5]}
    assert len(files(folder, "blobs")) == 3
    assert last.info().size <= 4000 * 0.9


@pytest.mark.parametrize("jump", [-50 * 365 * 86400, +50 * 365 * 86400])
def test_the_order_is_that_of_use_when_the_clock_jumps(folder: Opened, monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    fill(folder, range(2))
    real = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real() + jump * 10**9)
        fill(folder, range(2, 4))
    fill(folder, range(4, 6))
    last = Opened(folder.folder)
    assert last.prune(limit=2400) > 0
    assert files(folder, "requests") == {KEYS[4], KEYS[5]}


def test_nothing_is_looked_through_without_a_reason(folder: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder, range(3))
    reader = Opened(folder.folder, limit=1)
    assert reader.record("requests", KEYS[0]) is not None
    monkeypatch.setattr(reader, "_files", lambda kind: pytest.fail(f"{kind} is listed"))
    reader.close()


def test_clear(folder: Opened) -> None:
    fill(folder, range(3))
    assert folder.clear() > 3000
    assert (folder.info().size, folder.info().requests, folder.info().blobs) == (0, 0, 0)
    fill(folder, range(1))


# --- what killed processes leave -----------------------------------------------------------------------------------------------

WRITER = """
import os, sys, tempfile, pathlib
from flydsl_build.cache.folder import CacheFolder
folder = CacheFolder(pathlib.Path(sys.argv[1]), limit=10**9, say=print)
folder.add_blob(b"whole")
rename = pathlib.Path.rename
def stop(path, target):
    print("writing", flush=True)
    sys.stdin.read()
pathlib.Path.rename = stop
folder.add_blob(b"half of it")
"""


def test_prune_removes_what_a_killed_writer_left_and_nothing_of_a_live_one(folder: Opened) -> None:
    command = [sys.executable, "-c", WRITER, str(folder.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        assert folder.info().garbage == 1
        folder.prune()
        assert folder.info().garbage == 1
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert folder.prune() >= len(b"half of it")
    assert folder.info().garbage == 0


def test_prune_removes_blobs_without_a_record(folder: Opened) -> None:
    kept = folder.add_blob(b"kept")
    folder.set_record("memos", KEYS[0], {"": kept})
    folder.add_blob(b"left by a build that was killed before it wrote the record")
    assert folder.prune() > 0
    assert files(folder, "blobs") == {kept}


BUSY_WRITER = """
import hashlib, pathlib, sys
from flydsl_build.cache.folder import CacheFolder
folder = CacheFolder(pathlib.Path(sys.argv[1]), limit=200_000, say=print)
for number in range(10**9):
    digest = folder.add_blob(b"%d" % number * 2000)
    folder.set_record("requests", hashlib.sha256(b"%d" % (number % 50)).hexdigest(), [{"files": {"a": digest}}])
    if number % 20 == 0:
        folder.close()
    if number == 0:
        print("began", flush=True)
"""


def test_whenever_a_writer_is_killed_nothing_half_is_read(folder: Opened) -> None:
    command = [sys.executable, "-c", BUSY_WRITER, str(folder.folder)]
    chance = random.Random(1)
    for _ in range(12):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "began\n"
            time.sleep(chance.uniform(0, 0.1))
            writer.kill()
            # All that it said is that it began.
            assert writer.stdout.read() == ""
        records = [folder.record("requests", key) for key in files(folder, "requests") if ".tmp-" not in key]
        assert records
        for record in records:
            content = folder.blob(record[0]["files"]["a"])
            assert content is None or len(content) >= 2000
        assert folder.said == []
    folder.prune()
    assert folder.info().garbage == 0


# --- locks -----------------------------------------------------------------------------------------------------------------------

HOLDER = """
import sys, pathlib
from flydsl_build.cache.folder import CacheFolder
lock = CacheFolder(pathlib.Path(sys.argv[1]), limit=10**9, say=print).try_lock("name")
print("held" if lock is not None else "busy", flush=True)
sys.stdin.read()
"""


def test_a_lock_dies_with_its_holder(folder: Opened) -> None:
    command = [sys.executable, "-c", HOLDER, str(folder.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert folder.try_lock("name") is None
        assert folder.try_lock("another") is not None
        folder.prune()  # does not take the file away under the holder
        assert folder.try_lock("name") is None
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    lock = folder.try_lock("name")
    assert lock is not None
    with lock:
        assert folder.try_lock("name") is None
    assert folder.try_lock("name") is not None


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(folder: Opened, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert folder.try_lock("name") is not None
    assert folder.try_lock("name") is not None
    digest = folder.add_blob(b"code")
    assert folder.blob(digest) == b"code"
    folder.set_record("memos", KEYS[0], [digest])
    folder.prune()
    assert folder.blob(digest) == b"code"


# --- folders that do not work ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_folder_that_cannot_be_written(folder: Opened, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    kept = folder.add_blob(b"before")

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "mkstemp", fails)
    monkeypatch.setattr(os, "utime", fails)
    assert folder.add_blob(b"after") == hashlib.sha256(b"after").hexdigest()
    folder.set_record("memos", KEYS[0], {})
    assert folder.said == [f"warning: the cache {folder.folder} cannot be written ({os.strerror(number)}): nothing is added to it"]
    assert folder.blob(kept) == b"before"


def test_the_disk_fills_up_in_the_middle(folder: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "rename", fails)
    folder.add_blob(b"code")
    assert len(folder.said) == 1
    assert folder.info().garbage == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 256 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    if shutil.which("mount") is None or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    folder = Opened(small_disk / "cache")
    contents = [bytes([number]) * 40_000 for number in range(10)]
    digests = [folder.add_blob(content) for content in contents]
    folder.set_record("memos", KEYS[0], digests)
    folder.close()
    assert folder.said == [f"warning: the cache {folder.folder} cannot be written (No space left on device): nothing is added to it"]
    found = [folder.blob(digest) for digest in digests]
    kept = [one for one in found if one is not None]
    assert kept == contents[: len(kept)]
    assert 1 <= len(kept) < 7
    assert folder.info().garbage == 0


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    folder = Opened(tmp_path / "cache")
    assert folder.blob(folder.add_blob(b"code")) is None
    assert folder.try_lock("name") is not None
    assert len(folder.said) == 1
    assert folder.info().size == folder.prune() == folder.clear() == 0
