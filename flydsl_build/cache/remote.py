# SPDX-License-Identifier: Apache-2.0
"""A cache that several machines share, in any store that fsspec opens (https://filesystem-spec.readthedocs.io/).

It has the two steps of the local cache in as many requests: the record of a job, and one file with everything that belongs to
the result. Many jobs are asked for at a time, so a build waits for two round trips, not for two for each job.

`v1/requests/ab/cdef…`  the SHA-256 of the second line, and JSON in that: the results of a request, latest first
`v1/packs/ab/cdef…`     a result and its files, named by its SHA-256

The store is data that may be lost, damaged or out of reach: then this build does without, and says so once. Whoever can
write to it decides what code ends up in wheels.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import queue
import threading
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from flydsl_build.cache.records import PackedResult, read_record, write_record
from flydsl_build.codec import DecodeError
from flydsl_build.errors import ConfigError, Fault
from flydsl_build.jobs.results import checked_result, pack_files, unpack_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["RemoteCache", "fsspec_requirement", "require_fsspec", "shown_url"]

_PLACE = "tool.flydsl-build.remote-cache"
_VERSION = "v1"
# At one time: what a build waits for is the way there and back.
_READERS = 16
_WRITERS = 4
# Seconds without any answer after which a store is taken to be out of reach.
_PATIENCE = 30.0
# Results of one request: branches of a project that are built by turns.
_RESULTS = 16
_SHOWN = 200
# Protocols, and the extra of fsspec that brings what they need.
_EXTRAS = {
    "abfs": "abfs",
    "abfss": "abfs",
    "adl": "adl",
    "az": "abfs",
    "gcs": "gcs",
    "gs": "gcs",
    "http": "http",
    "https": "http",
    "oci": "oci",
    "s3": "s3",
    "s3a": "s3",
    "sftp": "ssh",
    "smb": "smb",
    "ssh": "ssh",
}


def fsspec_requirement(url: str) -> str:
    """Return what must be installed for a URL."""
    extra = _EXTRAS.get(url.partition("://")[0].rpartition("::")[2])
    return f"fsspec[{extra}]>=2024.2" if extra else "fsspec>=2024.2"


def require_fsspec(url: str) -> None:
    """Raise a ConfigError if fsspec is not installed."""
    if importlib.util.find_spec("fsspec") is None:
        raise ConfigError(
            Fault(
                where=_PLACE,
                what="fsspec is not installed, and a remote cache needs it",
                fix=f'add "flydsl-build[remote]" or "{fsspec_requirement(url)}" to build-system.requires',
            )
        )


def shown_url(url: str) -> str:
    """Return a URL without user and password."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return scheme + separator + host.rpartition("@")[2] + slash + path


def _without_secrets(text: str, url: str) -> str:
    """Return one line of what a library said, with the user and password of the URL blotted out."""
    credentials = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    parts = {credentials, *credentials.split(":")}
    with contextlib.suppress(ValueError):
        split = urlsplit(url)
        parts |= {split.username or "", split.password or ""}
    for secret in sorted({one for part in parts for one in (part, unquote(part)) if one}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return " ".join(text.split())[:_SHOWN]


class RemoteCache:
    """One build's view of the store.

    Parameters
    ----------
    writes
        Whether fresh results are put there.
    say
        Called with a line for people.
    patience
        Seconds to wait for a sign of life.
    """

    def __init__(self, url: str, *, writes: bool, say: Callable[[str], None], patience: float = _PATIENCE) -> None:
        self.url = url
        self.writes = writes
        self._say = say
        self._patience = patience
        self._files: Any = None
        self._root = ""
        self._reachable = True
        self._writable = True
        self._damage_is_said = False
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[tuple[str, Mapping[str, str | None], Path, Sequence[str]]] = queue.SimpleQueue()
        self._written: queue.Queue[BaseException | None] = queue.Queue()
        self._writers = 0
        self._unfinished = 0

    # --- reading -----------------------------------------------------------------------------------------------------------

    def records(self, keys: Sequence[str]) -> dict[str, tuple[PackedResult, ...]]:
        """Return the results of each request that has any."""
        found: dict[str, tuple[PackedResult, ...]] = {}
        for key, data in self._read("requests", keys):
            entries = self._record(key, data)
            if entries:
                found[key] = entries
        return found

    def packs(self, digests: Sequence[str]) -> Iterator[tuple[str, dict[str, Any], dict[str, bytes]]]:
        """Yield digest, result and files of each pack that is there and whole, in the order in which they come."""
        for digest, data in self._read("packs", digests):
            try:
                packed, files = unpack_files(data)
                result = checked_result(packed, files)
            except DecodeError:
                result = None
            if result is None or hashlib.sha256(data).hexdigest() != digest:
                self._damaged("packs", digest)
            else:
                yield digest, result, files

    def _record(self, key: str, data: bytes) -> tuple[PackedResult, ...]:
        try:
            found: tuple[PackedResult, ...] = read_record(data, tuple[PackedResult, ...], where=key)
        except DecodeError:
            self._damaged("requests", key)
            return ()
        return found

    def _damaged(self, kind: str, key: str) -> None:
        with self._lock:
            known, self._damage_is_said = self._damage_is_said, True
        if not known:
            self._say(
                f"warning: the remote cache {shown_url(self.url)} has damaged files, such as {_VERSION}/{kind}/{key[:2]}/{key[2:]}: "
                "they are not used, and what they held is compiled"
            )

    def _read(self, kind: str, keys: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the content of each file that there is."""
        if not self._open():
            return

        def read(key: str) -> bytes | None:
            try:
                data: bytes = self._files.cat_file(self._path(kind, key))
            except FileNotFoundError:
                return None
            return data

        for key, outcome in self._all(read, keys):
            if isinstance(outcome, BaseException):
                self._give_up(outcome)
                return
            if outcome is not None:
                yield key, outcome

    # --- writing -----------------------------------------------------------------------------------------------------------

    def write(self, key: str, dependencies: Mapping[str, str | None], result: Path, files: Sequence[str]) -> None:
        """Begin to put a result there; `finish` waits for it.

        Parameters
        ----------
        result
            A file, read later, as are those of `files` beside it.
        """
        if not self.writes or not self._writable or not self._open():
            return
        self._waiting.put((key, dependencies, result, files))
        self._unfinished += 1
        if self._writers < _WRITERS:
            self._writers += 1
            # Whatever such a thread hangs in must not keep the build from ending.
            threading.Thread(target=self._write_all, daemon=True, name="flydsl-build-remote-cache").start()

    def finish(self) -> None:
        """Wait until everything is there, or until there is no sign of life."""
        while self._unfinished and self._writable:
            try:
                error = self._written.get(timeout=self._patience)
            except queue.Empty:
                error = TimeoutError(f"no answer for {self._patience:g} s")
            self._unfinished -= 1
            if error is not None:
                self._writable = False
                self._warn("written", error, "nothing more is added to it")

    def _write_all(self) -> None:
        while self._writable:
            key, dependencies, result, files = self._waiting.get()
            try:
                pack = pack_files(result.read_bytes(), {name: result.with_name(name).read_bytes() for name in files})
                self._write_one(key, dependencies, pack)
            except Exception as error:  # noqa: BLE001 - libraries of stores raise anything; told by `finish`
                self._written.put(error)
            else:
                self._written.put(None)

    def _write_one(self, key: str, dependencies: Mapping[str, str | None], pack: bytes) -> None:
        # The record last: it must not refer to what is not there.
        digest = hashlib.sha256(pack).hexdigest()
        self._put(self._path("packs", digest), pack)
        path = self._path("requests", key)
        try:
            others = self._record(key, self._files.cat_file(path))
        except FileNotFoundError:
            others = ()
        # Of two that write one record at a time, one result is lost: a job will be compiled that need not be.
        latest = PackedResult(dependencies=dict(dependencies), pack=digest)
        entries = [latest, *(one for one in others if one.dependencies != latest.dependencies)]
        self._put(path, write_record(entries[:_RESULTS]))

    def _put(self, path: str, data: bytes) -> None:
        # Object stores show a file when it is whole; a folder shows it while it is written.
        protocol = self._files.protocol
        in_folder = "file" in ([protocol] if isinstance(protocol, str) else protocol)
        place = f"{path}.{uuid.uuid4().hex}" if in_folder else path
        try:
            self._files.pipe_file(place, data)
        except FileNotFoundError:
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(place, data)
        if in_folder:
            self._files.mv(place, path)

    # --- the store ---------------------------------------------------------------------------------------------------------

    def _path(self, kind: str, key: str) -> str:
        return f"{self._root}/{_VERSION}/{kind}/{key[:2]}/{key[2:]}"

    def _open(self) -> bool:
        """Tell whether the store can be used; open it at the first call."""
        if self._files is None and self._reachable:
            import fsspec.core

            for _, outcome in self._all(fsspec.core.url_to_fs, [self.url]):
                if isinstance(outcome, (ImportError, ValueError)):
                    raise ConfigError(
                        Fault(
                            where=_PLACE,
                            what=f"{shown_url(self.url)} cannot be opened ({_without_secrets(str(outcome), self.url)})",
                            fix=f'add "{fsspec_requirement(self.url)}", or the package that has the protocol, to build-system.requires',
                        )
                    )
                if isinstance(outcome, BaseException):
                    self._give_up(outcome)
                else:
                    self._files, root = outcome
                    self._root = root.rstrip("/")
        return self._reachable

    def _give_up(self, error: BaseException) -> None:
        self._reachable = self._writable = False
        self._warn("used", error, "this build does without it")

    def _warn(self, done: str, error: BaseException, consequence: str) -> None:
        why = _without_secrets(str(error), self.url) or type(error).__name__
        self._say(f"warning: the remote cache {shown_url(self.url)} cannot be {done} ({why}): {consequence}")

    def _all(self, call: Callable[[str], Any], items: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Call for each item, several at a time; yield each with what was returned or raised, or a TimeoutError at the end."""
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        done: queue.Queue[tuple[str, Any]] = queue.Queue()
        stopped = threading.Event()
        for item in items:
            waiting.put(item)

        def work() -> None:
            while not stopped.is_set():
                try:
                    item = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    done.put((item, call(item)))
                except Exception as error:  # noqa: BLE001 - libraries of stores raise anything; the caller looks at it
                    done.put((item, error))

        for _ in range(min(_READERS, len(items))):
            threading.Thread(target=work, daemon=True, name="flydsl-build-remote-cache").start()
        try:
            for _ in items:
                yield done.get(timeout=self._patience)
        except queue.Empty:
            yield "", TimeoutError(f"no answer for {self._patience:g} s")
        finally:
            stopped.set()
