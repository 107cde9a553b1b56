# SPDX-License-Identifier: Apache-2.0
"""Write a wheel again in one fixed form, so that equal content is equal bytes.

setuptools takes times from SOURCE_DATE_EPOCH, but permissions from the files, so the builder's umask would show.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import stat
import time
import zipfile
from typing import TYPE_CHECKING

from flydsl_build.errors import ConfigError, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["read_members", "record_digest", "rewrite", "timestamp"]

# The earliest time a zip file can hold.
_ZIP_EPOCH = 315532800
# The latest: 2107-12-31T23:59:59.
_ZIP_END = 4354819199
_DEFAULT_TIME = _ZIP_EPOCH


def timestamp(environ: Mapping[str, str]) -> tuple[int, int, int, int, int, int]:
    """Return the time of every member: SOURCE_DATE_EPOCH, or the earliest that a zip file can hold.

    Raises
    ------
    ConfigError
        SOURCE_DATE_EPOCH is not a number of seconds, or is after the year 2107.
    """
    text = environ.get("SOURCE_DATE_EPOCH")
    if text is None:
        return time.gmtime(_DEFAULT_TIME)[:6]
    # Python takes more for a number than the specification of this variable does. Twelve digits are out of range in any case.
    seconds = int(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else None
    if seconds is None or seconds > _ZIP_END:
        raise ConfigError(
            Fault(
                where="SOURCE_DATE_EPOCH",
                what=f"{text!r} is not a number of seconds that a zip file can hold",
                fix="give seconds since 1970-01-01 UTC, or unset it",
            )
        )
    return time.gmtime(max(_ZIP_EPOCH, seconds))[:6]


def _order(name: str) -> tuple[bool, bool, str]:
    """Sort by name, metadata at the end and RECORD last, as PEP 427 recommends."""
    metadata = name.partition("/")[0].endswith(".dist-info")
    return metadata, name.endswith(".dist-info/RECORD"), name


def read_members(path: Path) -> dict[str, str]:
    """Return the names of a wheel's files, each mapped to itself, as `rewrite` takes them."""
    with zipfile.ZipFile(path) as archive:
        return {name: name for name in archive.namelist() if not name.endswith("/")}


def rewrite(source: Path, destination: Path, members: Mapping[str, str | bytes], environ: Mapping[str, str]) -> None:
    """Write a wheel of the files of another: sorted members, one time, permissions 0644 or 0755, deflate level 6, a RECORD of its own.

    Parameters
    ----------
    source, destination
        May be one path.
    members
        Name in the new wheel to the name in the old one, or to the content. RECORD, which must be among them, is made anew.
    """
    stamp = timestamp(environ)
    temporary = destination.with_suffix(".whl.partial")
    try:
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as new:
            rows: list[tuple[str, str, str]] = []
            for name in sorted(members, key=_order):
                origin = members[name]
                executable = not isinstance(origin, bytes) and old.getinfo(origin).external_attr >> 16 & stat.S_IXUSR
                info = zipfile.ZipInfo(name, stamp)
                info.create_system = 3
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
                if name.endswith(".dist-info/RECORD"):
                    new.writestr(info, _record([*rows, (name, "", "")]))
                    continue
                data = origin if isinstance(origin, bytes) else old.read(origin)
                rows.append((name, record_digest(data), str(len(data))))
                new.writestr(info, data)
        temporary.replace(destination)
    finally:
        temporary.unlink(missing_ok=True)


def record_digest(data: bytes) -> str:
    """Return a digest as RECORD has it: https://packaging.python.org/en/latest/specifications/recording-installed-packages/."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _record(rows: list[tuple[str, str, str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
