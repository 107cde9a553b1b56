# SPDX-License-Identifier: Apache-2.0
"""Results of jobs on disk: the build process holds neither code objects nor all descriptions at one time."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.codec import DecodeError, decode, parse
from flydsl_build.errors import Fault
from flydsl_build.jobs.job import JobResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flydsl_build.jobs.job import Job

__all__ = [
    "StoredResult",
    "checked_result",
    "facts_of",
    "files_of",
    "is_file_name",
    "pack_files",
    "pack_result",
    "stored_result",
    "unpack_files",
    "write_result",
]

_FILE = "result.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredResult:
    """What one job made, in the job's output folder.

    Parameters
    ----------
    cached
        Whether it was made by an earlier build, or by another one.
    digest
        Of the description and the code; empty without a cache.
    init
        The init functions of its code objects.
    symbols
        The extern functions that its kernels call.
    warnings
        What the compile process warned of.
    dependencies
        What the result depends on besides the job, with fingerprints; None if that is not known.
    """

    module: str
    target: str
    folder: str
    cached: bool
    digest: str
    init: tuple[str, ...]
    symbols: tuple[str, ...]
    warnings: tuple[str, ...]
    dependencies: Mapping[str, str | None] | None

    @property
    def file(self) -> Path:
        """The description; the code is in files beside it."""
        return Path(self.folder, _FILE)

    def load(self) -> JobResult:
        """Read the description; the code stays in files."""
        result: JobResult = decode(JobResult, self.raw(), where=str(self.file))
        return result

    def raw(self) -> dict[str, Any]:
        """Read the description as it is in JSON."""
        data: dict[str, Any] = json.loads(self.file.read_bytes())
        return {**data, "output": self.folder}


def pack_result(result: dict[str, Any]) -> bytes:
    """Return a result's JSON without what differs between two runs of one job: where it was written."""
    return json.dumps({**result, "output": ""}, separators=(",", ":")).encode()


def facts_of(result: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what is asked of every result, as JSON values: a cache keeps it apart from the description."""
    return {
        "init": list(dict.fromkeys(init for built in result["code_objects"] for init in built.get("init", ()))),
        "symbols": list(result.get("symbols", ())),
        "warnings": list(result.get("warnings", ())),
    }


def stored_result(
    job: Job, facts: Mapping[str, Any], *, cached: bool, digest: str, dependencies: Mapping[str, str | None] | None
) -> StoredResult:
    """Describe a result whose files are in the job's output folder, or will be."""
    return StoredResult(
        module=job.module,
        target=job.target,
        folder=job.output,
        cached=cached,
        digest=digest,
        init=tuple(facts["init"]),
        symbols=tuple(facts["symbols"]),
        warnings=tuple(facts["warnings"]),
        dependencies=dependencies,
    )


def write_result(job: Job, packed: bytes, files: Mapping[str, bytes]) -> None:
    """Write a packed result and the code that belongs to it into the job's output folder."""
    folder = Path(job.output)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {_FILE: packed, **files}.items():
        (folder / name).write_bytes(data)


def files_of(result: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the files that belong to a result."""
    yield from dict.fromkeys(one["file"] for one in result["code_objects"])
    yield from dict.fromkeys(one["host_object"] for one in result["specializations"])


def checked_result(packed: bytes, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the JSON of a packed result that a cache has.

    Raises
    ------
    DecodeError
        It is something else, or other files belong to it.
    """
    found: dict[str, Any] = parse(dict[str, Any], packed, where=_FILE)
    decode(JobResult, found, where=_FILE)
    if set(files_of(found)) != files.keys() or not all(map(is_file_name, files)) or _FILE in files:
        raise DecodeError(Fault(where=_FILE, what=f"other files than {', '.join(map(repr, files))} belong to it"))
    return found


def is_file_name(name: str) -> bool:
    """Tell whether this names a file in a folder, whatever the folder is."""
    return "/" not in name and name not in {"", ".", ".."} and name.isprintable()


def pack_files(head: bytes, files: Mapping[str, bytes]) -> bytes:
    """Return something and files that belong to it as one: names and sizes as a line of JSON, then the content, all compressed."""
    sizes = {"": len(head)} | {name: len(data) for name, data in files.items()}
    return zlib.compress(b"".join([json.dumps(sizes, separators=(",", ":")).encode(), b"\n", head, *files.values()]), 6)


def unpack_files(data: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Read what `pack_files` gave.

    Raises
    ------
    DecodeError
        It is something else.
    """
    try:
        head, _, rest = zlib.decompress(data).partition(b"\n")
    except zlib.error as error:
        raise DecodeError(Fault(where="pack", what=str(error))) from None
    sizes: dict[str, int] = parse(dict[str, int], head, where="pack")
    if sum(sizes.values()) != len(rest) or not all(name == "" or is_file_name(name) for name in sizes) or "" not in sizes:
        raise DecodeError(Fault(where="pack", what="has other files than it says"))
    found: dict[str, bytes] = {}
    start = 0
    for name, size in sizes.items():
        found[name] = rest[start : start + size]
        start += size
    return found.pop(""), found
