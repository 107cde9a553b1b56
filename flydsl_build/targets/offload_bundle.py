# SPDX-License-Identifier: Apache-2.0
"""Write and read uncompressed clang offload bundles.

The format (https://clang.llvm.org/docs/ClangOffloadBundler.html), all integers little-endian 64-bit: the magic, the number of
entries, then for each entry offset, size, length of its id and the id; the objects follow at their offsets. Compressed bundles
exist in three layouts and break across ROCm versions, so they are neither written nor read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flydsl_build.errors import BuildError, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ALIGNMENT", "HEADER_LIMIT", "BundleEntry", "OffloadBundle", "OffloadBundleError", "read_bundle", "write_bundle"]

_MAGIC: Final = b"__CLANG_OFFLOAD_BUNDLE__"
_HOST_ID: Final = "host-x86_64-unknown-linux-gnu-"
# Two dashes before the target: the environment field of the triple is empty.
_DEVICE_ID_PREFIX: Final = "hipv4-amdgcn-amd-amdhsa--"
ALIGNMENT: Final = 4096
# HIP hands the first 4096 bytes to its parser: entries beyond are not seen.
HEADER_LIMIT: Final = 4096

_COUNT: Final = struct.Struct("<Q")
_ENTRY: Final = struct.Struct("<QQQ")


class OffloadBundleError(BuildError):
    """A bundle that cannot be written as asked, or bytes that are not a bundle."""

    stage = "bundle"


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleEntry:
    """One entry of a bundle: its id, and the place of its object in the file, in bytes."""

    id: str
    offset: int
    size: int

    @property
    def target(self) -> str | None:
        """The target ID of a HIP device entry (`gfx942`, `gfx942:xnack+`), None for the host and for other offload kinds."""
        return self.id[len(_DEVICE_ID_PREFIX) :] if self.id.startswith(_DEVICE_ID_PREFIX) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class OffloadBundle:
    """The bytes of a bundle and where its objects stand; `entries` has the device entries by target, in file order."""

    data: bytes
    entries: Mapping[str, BundleEntry]


def write_bundle(objects: Mapping[str, bytes], *, where: str = "offload bundle") -> OffloadBundle:
    """Write a bundle of code objects.

    Native targets come before generic ones, whatever the order of `objects`, because a loader that takes the first entry that
    fits must not find the slower one first. Otherwise the order is kept.

    Parameters
    ----------
    objects
        Target (`gfx942`, `gfx9-4-generic`) to the bytes of its code object.
    where
        The bundle's file name, for faults.

    Raises
    ------
    OffloadBundleError
        No object, an empty object, or more targets than the header has room for.
    """
    faults = [Fault(where=where, what=f"the code object of {target} is empty") for target, data in objects.items() if not data]
    if not objects:
        faults.append(Fault(where=where, what="there is no code object to bundle", fix="name at least one target in archs"))
    order = sorted(objects, key=lambda target: target.endswith("-generic"))
    header_size = len(_MAGIC) + _COUNT.size + sum(_ENTRY.size + len(bundle_id) for bundle_id in [_HOST_ID, *map(_device_id, order)])
    if header_size > HEADER_LIMIT:
        what = f"the entry table of {len(objects)} targets has {header_size} bytes, HIP reads {HEADER_LIMIT}"
        faults.append(Fault(where=where, what=what, fix="name fewer targets in archs"))
    if faults:
        raise OffloadBundleError(*faults)
    offset = ALIGNMENT
    entries: dict[str, BundleEntry] = {}
    for target in order:
        entries[target] = BundleEntry(id=_device_id(target), offset=offset, size=len(objects[target]))
        offset = _aligned(offset + len(objects[target]))
    # LLVM's own bundler crashes on a bundle without a host entry, and on one whose host entry has offset 0.
    table = [BundleEntry(id=_HOST_ID, offset=ALIGNMENT, size=0), *entries.values()]
    data = bytearray(_MAGIC + _COUNT.pack(len(table)))
    for entry in table:
        data += _ENTRY.pack(entry.offset, entry.size, len(entry.id)) + entry.id.encode("ascii")
    for target, entry in entries.items():
        data += bytes(entry.offset - len(data)) + objects[target]
    return OffloadBundle(data=bytes(data), entries=entries)


def read_bundle(data: bytes, *, where: str = "offload bundle") -> OffloadBundle:  # noqa: C901, PLR0912 - a list of checks
    """Read the entry table of an uncompressed bundle.

    Parameters
    ----------
    data
        The whole file.
    where
        Its name, for faults.

    Raises
    ------
    OffloadBundleError
        The bytes are not such a bundle, an entry lies outside of the file or inside the entry table, or two entries have one id.
    """
    if data[:4] == b"CCOB":
        raise _error(where, "is a compressed offload bundle", "only uncompressed bundles are read; build it with --no-offload-compress")
    if data[: len(_MAGIC)] != _MAGIC:
        raise _error(where, "is not an offload bundle: it does not start with the magic")
    at = len(_MAGIC)
    if at + _COUNT.size > len(data):
        raise _error(where, "ends inside the entry table")
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    entries: list[BundleEntry] = []
    # The count is not believed: each round reads bytes that are there.
    for _ in range(count):
        if at + _ENTRY.size > len(data):
            raise _error(where, "ends inside the entry table")
        offset, size, id_size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if at + id_size > len(data):
            raise _error(where, "ends inside the entry table")
        raw = data[at : at + id_size]
        at += id_size
        if not raw.isascii() or not raw.decode("ascii").isprintable():
            raise _error(where, f"entry {len(entries)} has an id that is not printable ASCII")
        entries.append(BundleEntry(id=raw.decode("ascii"), offset=offset, size=size))
        if at > HEADER_LIMIT:
            raise _error(where, f"the entry table does not end within {HEADER_LIMIT} bytes, which is all HIP reads")
    for entry in entries:
        if entry.offset + entry.size > len(data):
            raise _error(where, f"the object of {entry.id} lies outside of the file", "the file was cut short: build or install it again")
        if entry.size and entry.offset < at:
            raise _error(where, f"the object of {entry.id} overlaps the entry table")
    seen: set[str] = set()
    for entry in entries:
        if entry.id in seen:
            raise _error(where, f"has more than one entry {entry.id}")
        seen.add(entry.id)
    return OffloadBundle(data=data, entries={entry.target: entry for entry in entries if entry.target is not None})


def _error(where: str, what: str, fix: str = "") -> OffloadBundleError:
    return OffloadBundleError(Fault(where=where, what=what, fix=fix))


def _device_id(target: str) -> str:
    return _DEVICE_ID_PREFIX + target


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
