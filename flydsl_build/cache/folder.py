# SPDX-License-Identifier: Apache-2.0
"""A folder of data that may be lost at any time: blobs named by their digest, and small records that refer to them.

Many processes use one folder at a time, and each may be killed at any moment. So a file is written under a temporary name and
renamed, nothing is changed in place, every read checks a digest, and no reader minds that a file is gone. What a killed process
leaves behind is a temporary file, which `prune` removes.

The layout, below `v1`, which is changed when the format is:

`blobs/ab/cdef…`      content, named by its SHA-256
`requests/ab/cdef…`   records: the SHA-256 of the second line, and JSON in that
`memos/ab/cdef…`      the same
`locks/…`             empty files to lock
`clock`               its time is the last one that was given to a file
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.cache.records import read_record, write_record
from flydsl_build.codec import DecodeError
from flydsl_build.regular_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

__all__ = ["CacheFolder", "CacheInfo", "Lock", "default_folder"]

_VERSION = "v1"
_TEMPORARY = ".tmp-"
_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# Compiled kernels of flydsl-build; everything in here can be made again.\n"
    "# See https://bford.info/cachedir/\n"
)
# Down to this part of the limit is evicted, so that not every build has to.
_LOW_WATER = 0.9
_HOUR = 3600 * 10**9


def default_folder() -> Path:
    """Return the folder in the user's cache folder (https://specifications.freedesktop.org/basedir-spec/latest/).

    It is worked out here, so that it is the same one whoever asks, with whatever installed.

    Raises
    ------
    RuntimeError
        The user has no home folder.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "flydsl-build"


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheInfo:
    """What is in a folder: bytes, and how many there are of each kind of file."""

    size: int
    requests: int
    blobs: int
    garbage: int


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int
    stamp: int


class Lock:
    """Held until it is released or the process ends, however it ends."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let others have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class CacheFolder:
    """The folder.

    Parameters
    ----------
    limit
        Bytes that may stay in it.
    say
        Called with one line for people when something is wrong. Nothing raises: a cache that does not work makes a build slower.
    """

    def __init__(self, folder: Path, *, limit: int, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.limit = limit
        self._root = folder / _VERSION
        self._say = say
        self._writable = True
        self._grown = False
        self._stamp: int | None = None

    # --- blobs -----------------------------------------------------------------------------------------------------------

    def blob(self, digest: str) -> bytes | None:
        """Return the content with this digest, or None. A damaged file is removed."""
        path = self._path("blobs", digest)
        try:
            data = read_regular(path)
        except OSError:
            return None
        if hashlib.sha256(data).hexdigest() != digest:
            self._remove_damaged(path)
            return None
        self._touch(path)
        return data

    def add_blob(self, data: bytes) -> str:
        """Keep content; return its digest, also where it could not be kept."""
        digest = hashlib.sha256(data).hexdigest()
        path = self._path("blobs", digest)
        try:
            # Read, not only looked for: what is there may be damaged.
            known = read_regular(path) == data
        except OSError:
            known = False
        if known:
            self._touch(path)
        else:
            self._write(path, data)
        return digest

    # --- records -----------------------------------------------------------------------------------------------------------

    def record(self, kind: str, key: str, form: Any = Any) -> Any:
        """Return what is in a record, or None. One that is damaged, or that has not this form, is removed; see `cache.records`."""
        path = self._path(kind, key)
        try:
            value = read_record(read_regular(path), form, where=path.name)
        except OSError:
            return None
        except DecodeError:
            self._remove_damaged(path)
            return None
        self._touch(path)
        return value

    def set_record(self, kind: str, key: str, value: Any) -> None:
        """Write a record; what it refers to must have been written before."""
        self._write(self._path(kind, key), write_record(value))

    # --- locks -------------------------------------------------------------------------------------------------------------

    def try_lock(self, key: str) -> Lock | None:
        """Return the lock of this name, or None if another process, or another part of this one, has it.

        Where locks do not work, everybody gets one: work is done twice, and the result is the same.
        """
        path = self._root / "locks" / key
        while True:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError:
                return Lock(None)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except OSError:
                os.close(descriptor)
                return Lock(None)
            # Whoever cleans up may have removed the file meanwhile: then this is the lock of a name that nobody else comes to.
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return Lock(descriptor)
            os.close(descriptor)

    # --- files -------------------------------------------------------------------------------------------------------------

    def _path(self, kind: str, key: str) -> Path:
        return self._root / kind / key[:2] / key[2:]

    def _write(self, path: Path, data: bytes) -> None:
        if not self._writable:
            return
        temporary = ""
        try:
            self._make_root()
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
            with os.fdopen(descriptor, "wb") as file:
                # Tells `prune` that the writer lives.
                with contextlib.suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.write(data)
                file.flush()
                os.utime(descriptor, ns=(self._now(), self._now()))
                Path(temporary).rename(path)
            self._grown = True
        except OSError as error:
            if temporary:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
            # Said once; a full disk may have room again for the next build.
            self._writable = False
            self._say(f"warning: the cache {self.folder} cannot be written ({error.strerror}): nothing is added to it")

    def _make_root(self) -> None:
        if not self._root.is_dir():
            # Who can write here decides what code ends up in wheels.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._root.mkdir(exist_ok=True)
            tag = self.folder / "CACHEDIR.TAG"
            if not tag.exists():
                tag.write_text(_TAG, encoding="ascii")

    def _remove_damaged(self, path: Path) -> None:
        self._say(f"the cache file {path.relative_to(self.folder)} is damaged: it is removed and made again")
        with contextlib.suppress(OSError):
            path.unlink()

    def _now(self) -> int:
        """Return the time for files that this process uses: later than all before it, whatever the clock says."""
        if self._stamp is None:
            clock = self._root / "clock"
            self._stamp = time.time_ns()
            with contextlib.suppress(OSError):
                descriptor = os.open(clock, os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    status = os.fstat(descriptor)
                    self._stamp = max(self._stamp, status.st_mtime_ns + 1) if status.st_size else self._stamp
                    # An empty file is new: its time is the clock's.
                    os.pwrite(descriptor, b"+", 0)
                    os.utime(descriptor, ns=(self._stamp, self._stamp))
                finally:
                    os.close(descriptor)
        return self._stamp

    def _touch(self, path: Path) -> None:
        # A cache that can only be read keeps no order.
        with contextlib.suppress(OSError):
            os.utime(path, ns=(self._now(), self._now()))

    def _files(self, kind: str) -> Iterator[_File]:
        """Yield the files of one kind; temporary ones too."""
        pending = [str(self._root / kind)]
        while pending:
            with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        with contextlib.suppress(OSError):
                            status = entry.stat(follow_symlinks=False)
                            yield _File(entry.path, status.st_size, status.st_mtime_ns)

    # --- keeping it small ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Bring the folder below its limit, if this process has added to it."""
        if self._grown:
            self._grown = False
            size = sum(one.size for kind in ("requests", "memos", "blobs") for one in self._files(kind))
            if size > self.limit:
                self._evict(int(self.limit * _LOW_WATER), garbage_before=self._now() - _HOUR)

    def prune(self, limit: int | None = None) -> int:
        """Remove what no record refers to, what killed processes left, and what is over the limit; return the bytes removed."""
        for one in self._files("locks"):
            lock = self.try_lock(Path(one.path).name)
            if lock is not None:
                with lock:
                    self._unlink(one)
        return self._evict(self.limit if limit is None else limit, garbage_before=None)

    def _evict(self, limit: int, *, garbage_before: int | None) -> int:
        """Remove records, least recently used first, and the blobs that no record is left to refer to.

        Parameters
        ----------
        garbage_before
            Blobs without a record are removed if they are older: another process may be about to write the record.
        """
        before = after = 0
        blobs: dict[str, _File] = {}
        records: list[tuple[_File, list[str]]] = []
        for kind in ("blobs", "requests", "memos"):
            for one in self._files(kind):
                before += one.size
                path = Path(one.path)
                if path.name.startswith(_TEMPORARY):
                    after += 0 if self._unlink_abandoned(one) else one.size
                    continue
                after += one.size
                if kind == "blobs":
                    blobs[path.parent.name + path.name] = one
                else:
                    records.append((one, [digest for digest in _digests_in(one.path) if digest in blobs]))
        users = Counter(digest for _, used in records for digest in used)
        for digest, one in blobs.items():
            if not users[digest] and (garbage_before is None or one.stamp < garbage_before):
                after -= self._unlink(one)
        for one, used in sorted(records, key=lambda pair: pair[0].stamp):
            if after <= limit:
                break
            after -= self._unlink(one)
            users.subtract(used)
            after -= sum(self._unlink(blobs[digest]) for digest in used if not users[digest])
        return before - after

    @staticmethod
    def _unlink(one: _File) -> int:
        try:
            Path(one.path).unlink()
        except OSError:
            return 0
        return one.size

    def _unlink_abandoned(self, one: _File) -> bool:
        """Remove a temporary file unless the process that writes it lives."""
        try:
            descriptor = os.open(one.path, os.O_RDONLY)
        except OSError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            if one.stamp > time.time_ns() - _HOUR:
                return False
        finally:
            os.close(descriptor)
        return bool(self._unlink(one)) or not Path(one.path).exists()

    def clear(self) -> int:
        """Remove everything; return the bytes removed."""
        size = self.info().size
        shutil.rmtree(self._root, ignore_errors=True)
        return size - self.info().size

    def info(self) -> CacheInfo:
        """Count what is there."""
        files = {kind: list(self._files(kind)) for kind in ("requests", "memos", "blobs")}
        everything = [one for some in files.values() for one in some]
        garbage = [one for one in everything if Path(one.path).name.startswith(_TEMPORARY)]
        return CacheInfo(
            size=sum(one.size for one in everything),
            requests=len(files["requests"]),
            blobs=len(files["blobs"]),
            garbage=len(garbage),
        )


def _digests_in(path: str) -> set[str]:
    """Return everything in a record that may be the digest of a blob."""
    try:
        value = read_record(read_regular(Path(path)), Any, where=path)
    except (OSError, DecodeError):
        return set()
    found: set[str] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            found.add(one)
        elif isinstance(one, dict):
            pending += one.values()
        elif isinstance(one, list):
            pending += one
    return found
