# SPDX-License-Identifier: Apache-2.0
"""Write a wheel again in one fixed form, so that equal content is equal bytes.

setuptools takes times from SOURCE_DATE_EPOCH, but permissions from the files, so the builder's umask would show.
"""

from __future__ import annotations

import base64
import csv
import email.parser
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

__all__ = ["add_members", "metadata_of", "normalize", "record_line", "timestamp"]

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


def normalize(path: Path, environ: Mapping[str, str]) -> None:
    """Rewrite the wheel at `path`: sorted members, one time, permissions 0644 or 0755, deflate level 6."""
    stamp = timestamp(environ)
    temporary = path.with_suffix(".whl.partial")
    try:
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as target:
            for name in sorted(source.namelist(), key=_order):
                if name.endswith("/"):
                    continue
                executable = source.getinfo(name).external_attr >> 16 & stat.S_IXUSR
                info = zipfile.ZipInfo(name, stamp)
                info.create_system = 3
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
                target.writestr(info, source.read(name))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def record_line(name: str, data: bytes) -> str:
    """Return the line of a file in RECORD: https://packaging.python.org/en/latest/specifications/recording-installed-packages/."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([name, f"sha256={digest}", len(data)])
    return line.getvalue()


def add_members(path: Path, files: Mapping[str, bytes]) -> None:
    """Add files to the wheel at `path`, and to its RECORD."""
    temporary = path.with_suffix(".whl.partial")
    try:
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as target:
            for info in source.infolist():
                data = source.read(info)
                if info.filename.endswith(".dist-info/RECORD"):
                    data = "".join(record_line(name, added) for name, added in files.items()).encode() + data
                target.writestr(info, data)
            for name, added in files.items():
                target.writestr(name, added)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def metadata_of(path: Path) -> tuple[str, str]:
    """Return the name and version of the distribution in a wheel."""
    with zipfile.ZipFile(path) as archive:
        (name,) = [one for one in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one)]
        metadata = email.parser.BytesHeaderParser().parsebytes(archive.read(name))
    return str(metadata["Name"]), str(metadata["Version"])
