# SPDX-License-Identifier: Apache-2.0
"""Find, check and map the code object of one target in a clang offload bundle.

Formats: https://clang.llvm.org/docs/ClangOffloadBundler.html (bundle), https://llvm.org/docs/AMDGPUUsage.html (target IDs,
e_flags).
"""

from __future__ import annotations

import os
from io import BufferedReader
from stat import S_ISREG

from .annotations import Any, Iterable, Mapping
from .errors import CorruptFileError

__all__ = ["bundle_entries", "choose_target", "flags_fit", "map_code_object", "open_file", "parse_target"]

_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_ID_PREFIX = "hipv4-amdgcn-amd-amdhsa--"
_HEADER_LIMIT = 4096  # HIP's own parser reads no more of a bundle
_PAGE = 4096
_ELF_HEADER = 64
_EM_AMDGPU = 224
_OSABI_AMDGPU_HSA = 64

# HIP prefers a native code object over a generic one.
_GENERIC = {
    "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9-4-generic": ("gfx940", "gfx941", "gfx942", "gfx950"),
    "gfx10-1-generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10-3-generic": ("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    "gfx11-generic": ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    "gfx12-generic": ("gfx1200", "gfx1201"),
}
# Bits 0 to 7 of e_flags: the processor. As in flydsl_build.targets.processors, which a wheel does not hold.
_MACHINES = {
    "gfx90a": 0x3F, "gfx90c": 0x32, "gfx942": 0x4C, "gfx950": 0x4F, "gfx9-4-generic": 0x5F,
    "gfx1010": 0x33, "gfx1011": 0x34, "gfx1012": 0x35, "gfx1013": 0x42,
    "gfx1030": 0x36, "gfx1031": 0x37, "gfx1032": 0x38, "gfx1033": 0x39, "gfx1034": 0x3E, "gfx1035": 0x3D, "gfx1036": 0x45,
    "gfx1100": 0x41, "gfx1101": 0x46, "gfx1102": 0x47, "gfx1103": 0x44, "gfx1150": 0x43, "gfx1151": 0x4A, "gfx1152": 0x55,
    "gfx1153": 0x58, "gfx1154": 0x57, "gfx1170": 0x5D, "gfx1171": 0x5E, "gfx1172": 0x5C, "gfx10-3-generic": 0x53,
    "gfx11-generic": 0x54, "gfx1200": 0x48, "gfx1201": 0x4E, "gfx12-generic": 0x59, "gfx1250": 0x49, "gfx1251": 0x5A,
}  # fmt: skip
# Bits of e_flags: the shift of the two-bit field of each feature; 0 unsupported, 1 any, 2 off, 3 on.
_FEATURE_SHIFT = {"xnack": 8, "sramecc": 10}
_FEATURE_SIGN = {2: "-", 3: "+"}


def parse_target(target: str) -> tuple[str, dict[str, str]]:
    """Split a target ID: `gfx942:sramecc+:xnack-` is `("gfx942", {"sramecc": "+", "xnack": "-"})`."""
    chip, *features = target.split(":")
    return chip, {feature[:-1]: feature[-1] for feature in features if feature}


def flags_fit(e_flags: int, device: str) -> bool:
    """Say whether the features that a code object names are those of the device; an unnamed feature fits any."""
    _, features = parse_target(device)
    for feature, shift in _FEATURE_SHIFT.items():
        sign = _FEATURE_SIGN.get(e_flags >> shift & 3)
        if sign is not None and features.get(feature, sign) != sign:
            return False
    return True


def choose_target(targets: Iterable[str], device: str) -> str | None:
    """Return the wheel's target that the device runs, by HIP's rules, or None.

    Parameters
    ----------
    targets
        Target IDs in the wheel: chips, chips with features, generic targets.
    device
        The device's own target ID, e.g. `gfx942:sramecc+:xnack-`.
    """
    chip, features = parse_target(device)
    best: tuple[tuple[bool, int], str] | None = None
    for target in targets:
        base, wanted = parse_target(target)
        native = base == chip
        if not native and chip not in _GENERIC.get(base, ()):
            continue
        if any(features.get(feature, sign) != sign for feature, sign in wanted.items()):
            continue
        rank = (native, len(wanted))
        if best is None or rank > best[0]:
            best = (rank, target)
    return None if best is None else best[1]


def bundle_entries(header: bytes, file_size: int, file: str) -> dict[str, tuple[int, int]]:
    """Read the header of a bundle: (offset, size) for each target ID.

    Parameters
    ----------
    header
        The first 4096 bytes of the file, or all of a shorter one.
    file_size
        Bytes in the file.
    file
        Its path, for errors.

    Raises
    ------
    CorruptFileError
        If it is no bundle, or points outside of the file.
    """

    def number(at: int) -> int:
        if at + 8 > len(header):
            raise CorruptFileError(file, "the header of the offload bundle is cut off")
        return int.from_bytes(header[at : at + 8], "little")

    if header[: len(_MAGIC)] != _MAGIC:
        raise CorruptFileError(file, "this is no clang offload bundle")
    entries: dict[str, tuple[int, int]] = {}
    at = len(_MAGIC) + 8
    # Each entry has 24 bytes at least, so a wild count ends at the end of the header.
    for _ in range(number(len(_MAGIC))):
        offset, size, length = number(at), number(at + 8), number(at + 16)
        at += 24 + length
        if at > len(header):
            raise CorruptFileError(file, "the header of the offload bundle is cut off")
        name = header[at - length : at].decode("ascii", "replace")
        if offset + size > file_size:
            raise CorruptFileError(file, f"entry {name} ends at byte {offset + size} of a file of {file_size} bytes")
        if name.startswith(_ID_PREFIX):
            target = name[len(_ID_PREFIX) :]
            if target in entries:
                raise CorruptFileError(file, f"entry {name} is there twice")
            entries[target] = (offset, size)
    return entries


def _check_elf(image: memoryview, facts: Mapping[str, Any], target: str, file: str) -> None:
    if len(image) < _ELF_HEADER or bytes(image[:6]) != b"\x7fELF\x02\x01":
        raise CorruptFileError(file, f"entry {target} is no 64-bit little-endian ELF file")
    machine = int.from_bytes(image[18:20], "little")
    if machine != _EM_AMDGPU or image[7] != _OSABI_AMDGPU_HSA:
        raise CorruptFileError(file, f"entry {target} is no AMDGPU code object (ELF machine {machine}, OS ABI {image[7]})")
    e_flags = int.from_bytes(image[48:52], "little")
    if e_flags != facts["e_flags"]:
        raise CorruptFileError(file, f"entry {target} has e_flags {e_flags:#x}, its manifest says {facts['e_flags']:#x}")
    chip, _ = parse_target(target)
    if e_flags & 0xFF != _MACHINES.get(chip, e_flags & 0xFF):
        raise CorruptFileError(file, f"entry {target} is code of another processor: its e_flags are {e_flags:#x}")


def open_file(file: str) -> BufferedReader:
    """Open a file of the package. To open a pipe would wait for who writes to it, and a device may never end.

    Raises
    ------
    CorruptFileError
        If it is no regular file.
    OSError
        If it cannot be opened.
    """
    stream = open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK))  # noqa: SIM115 - the caller closes it
    if not S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise CorruptFileError(file, "it is no regular file")
    return stream


def map_code_object(file: str, target: str, facts: Mapping[str, Any]) -> memoryview:
    """Map one code object of a bundle, and nothing else of the file.

    Parameters
    ----------
    file
        Path of the bundle.
    target
        The entry's target ID.
    facts
        The manifest's entry: `offset`, `size`, `sha256`, `e_flags`.

    Raises
    ------
    CorruptFileError
        If anything differs from the manifest.
    """
    from hashlib import sha256
    from mmap import ACCESS_READ, mmap

    try:
        with open_file(file) as bundle:
            header = bundle.read(_HEADER_LIMIT)
            file_size = bundle.seek(0, 2)
            entries = bundle_entries(header, file_size, file)
            if target not in entries:
                raise CorruptFileError(file, f"it has no entry for {target}, only for {', '.join(sorted(entries)) or 'none'}")
            offset, size = entries[target]
            if (offset, size) != (facts["offset"], facts["size"]):
                where = f"entry {target} is {size} bytes at {offset}, its manifest says {facts['size']} bytes at {facts['offset']}"
                raise CorruptFileError(file, where)
            if not size:
                raise CorruptFileError(file, f"entry {target} is empty")
            first = offset - offset % _PAGE
            mapping = mmap(bundle.fileno(), offset - first + size, access=ACCESS_READ, offset=first)
    except OSError as error:
        raise CorruptFileError(file, f"it cannot be read: {error.strerror or error}") from error
    image = memoryview(mapping)[offset - first :]
    if sha256(image).hexdigest() != facts["sha256"]:
        raise CorruptFileError(file, f"the SHA-256 of entry {target} is not the one in the manifest")
    _check_elf(image, facts, target, file)
    return image
