# SPDX-License-Identifier: Apache-2.0
"""The records of both caches: what is in them, and how they are written and read.

A record is the SHA-256 of its second line, and JSON in that. One whose digest or whose form is wrong is as good as none: whoever reads
it catches the DecodeError, and what it held is made again.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flydsl_build.codec import DecodeError, encode, join, parse
from flydsl_build.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CompileTime", "KeptFiles", "KeptResult", "PackedResult", "check_dependencies", "read_record", "write_record"]

_SHA256 = re.compile(r"[0-9a-f]{64}")
# The forms of `cache.dependencies`. Names of files that are no UTF-8 have surrogates from U+DC80 on.
_DEPENDENCY = re.compile(r"(?:file|list|exists|env|dist|import):[^\0\ud800-\udc7f\udd00-\udfff]*")
_MOST = 10**9


def check_dependencies(value: dict[str, str | None] | None) -> Iterator[tuple[str, object, str]]:
    """Yield what is wrong with the names of dependencies, for the codec."""
    for name in value or ():
        if not _DEPENDENCY.fullmatch(name):
            yield " (key)", name, "the name of a dependency"


def _check_digest(value: str, place: str = "") -> Iterator[tuple[str, object, str]]:
    if not _SHA256.fullmatch(value):
        yield place, value, "a SHA-256 digest in hexadecimal"


def _check_digests(value: dict[str, str]) -> Iterator[tuple[str, object, str]]:
    for name, digest in value.items():
        yield from _check_digest(digest, join(".", name)[1:])


def _check_size(value: float) -> Iterator[tuple[str, object, str]]:
    if not 0 <= value <= _MOST:
        yield "", value, f"at most {_MOST}"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptResult:
    """A result of a request in the local cache.

    Parameters
    ----------
    dependencies
        What it depends on, with fingerprints.
    result, files
        The digests of its description, and by name of the files that belong to it.
    init, symbols, warnings
        See `StoredResult`.
    """

    dependencies: dict[str, str | None] = field(metadata={"check": check_dependencies})
    result: str = field(metadata={"check": _check_digest})
    files: dict[str, str] = field(metadata={"check": _check_digests})
    init: tuple[str, ...]
    symbols: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedResult:
    """A result of a request in the remote cache; `pack` is the digest of the file that has it."""

    dependencies: dict[str, str | None] = field(metadata={"check": check_dependencies})
    pack: str = field(metadata={"check": _check_digest})


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptFiles:
    """Things that were remembered together: by name, the digests of their content."""

    dependencies: dict[str, str | None] = field(metadata={"check": check_dependencies})
    files: dict[str, str] = field(metadata={"check": _check_digests})


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileTime:
    """How long a job took, in seconds, and how many specializations it had."""

    seconds: float = field(metadata={"check": _check_size})
    specializations: int = field(metadata={"check": _check_size})


def write_record(value: object) -> bytes:
    """Return what the file of a record holds."""
    data = json.dumps(encode(value), separators=(",", ":")).encode()
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def read_record(data: bytes, form: Any, *, where: str) -> Any:
    """Read what `write_record` gave.

    Parameters
    ----------
    form
        What is in it, as an annotation for the codec.
    where
        The file, for faults.

    Raises
    ------
    DecodeError
        It is damaged, or has another form.
    """
    digest, _, text = data.partition(b"\n")
    if digest.decode(errors="replace") != hashlib.sha256(text).hexdigest():
        raise DecodeError(Fault(where=where, what="its digest is another"))
    return parse(form, text, where=where)
