# SPDX-License-Identifier: Apache-2.0
"""Compute a wheel's compatibility tag from the ELF files in it.

PEP 425 gives the form of a tag, PEP 600 the meaning of `manylinux_2_X_x86_64`: it runs wherever glibc is 2.X or newer, and needs no
other library than those every such system has. What a file needs is read from its version needs and DT_NEEDED, not assumed from the
machine that linked it: gcc on a new Debian binds `dlopen` to GLIBC_2.34.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from flydsl_build.errors import Fault, VerifyError
from flydsl_build.targets.elf import EM_X86_64, ElfError, elf_machine, read_elf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from flydsl_build.targets.elf import ElfFile

__all__ = ["platform_tag", "wheel_tag"]

# Everything a wheel may need from the system under PEP 600 that C and C++ code commonly needs; the lists of other libraries (X11, GL,
# glib) that the profiles also allow are of no use to kernels.
_SYSTEM_LIBRARIES: Final = frozenset(
    {
        "ld-linux-x86-64.so.2",
        "libc.so.6",
        "libdl.so.2",
        "libgcc_s.so.1",
        "libm.so.6",
        "libpthread.so.0",
        "librt.so.1",
        "libstdc++.so.6",
    }
)
# manylinux2014, the oldest profile in use for CPython 3.11 and newer.
_MINIMUM: Final = 17
# Newest version that each profile's C++ and compiler libraries have, from auditwheel's manylinux policy for x86-64:
# prefix -> (last version, minor of glibc), ascending.
_PROFILES: Final[Mapping[str, tuple[tuple[tuple[int, ...], int], ...]]] = {
    "GLIBCXX": (
        ((3, 4, 19), 17),
        ((3, 4, 22), 24),
        ((3, 4, 24), 27),
        ((3, 4, 28), 31),
        ((3, 4, 29), 34),
        ((3, 4, 30), 35),
        ((3, 4, 33), 39),
    ),
    "CXXABI": (((1, 3, 7), 17), ((1, 3, 10), 24), ((1, 3, 11), 27), ((1, 3, 12), 31), ((1, 3, 13), 34), ((1, 3, 15), 39)),
    "GCC": (((4, 8, 0), 17), ((7, 0, 0), 27), ((12, 0, 0), 35), ((14, 0, 0), 39)),
}
# Versions that are words.
_WORDS: Final = {"CXXABI_TM_1": 17, "CXXABI_FLOAT128": 24, "GLIBC_ABI_DT_RELR": 36}
_VERSION: Final = re.compile(r"([A-Z]+)_([0-9]{1,6}(?:\.[0-9]{1,6})*)")

_OTHER_HOSTS: Final = {3: "i386", 20: "PowerPC", 21: "PowerPC 64", 22: "S390", 40: "Arm", 183: "AArch64", 243: "RISC-V", 258: "LoongArch"}

# The private run time's extension is built against the limited API of this version.
_RUNTIME_PYTHON: Final = (3, 11)
_INTERPRETER: Final = re.compile(r"cp3([0-9]+)")


def platform_tag(files: Iterable[Path]) -> str:
    """Return the platform tag that a wheel's files call for.

    Code objects and other ELF files that no x86-64 loader would load are passed over, and so is everything that is not ELF.

    Parameters
    ----------
    files
        The wheel's files; only x86-64 ELF files are read whole.

    Returns
    -------
    str
        `any` without a host ELF file; `manylinux_2_X_x86_64` with the X that the most demanding one needs; `linux_x86_64` if one needs
        a library or a version that PEP 600 has no place for.

    Raises
    ------
    VerifyError
        A file that cannot be read, or an ELF file for another processor.
    """
    faults: list[Fault] = []
    glibc: int | None = _MINIMUM
    hosts = 0
    for path in files:
        try:
            data = _host_elf(path)
            if data is None:
                continue
            hosts += 1
            needs = _glibc_minor(read_elf(data))
        except OSError as error:
            faults.append(Fault(where=str(path), what=f"cannot be read: {error.strerror or error}"))
        except ElfError as error:
            faults.append(
                Fault(where=str(path), what=f"is no sound ELF file: {error}", fix="build it again, or leave it out of the package")
            )
        else:
            glibc = None if glibc is None or needs is None else max(glibc, needs)
    if faults:
        raise VerifyError(*faults)
    if not hosts:
        return "any"
    return "linux_x86_64" if glibc is None else f"manylinux_2_{glibc}_x86_64"


def _host_elf(path: Path) -> bytes | None:
    """Return the content of an x86-64 ELF file, None for a file that has no say in the tag."""
    with path.open("rb") as file:
        head = file.read(64)
        machine = elf_machine(head)
        if machine in _OTHER_HOSTS:
            msg = f"it is for {_OTHER_HOSTS[machine]}, and wheels are built for x86-64"
            raise ElfError(msg)
        return head + file.read() if machine == EM_X86_64 else None


def wheel_tag(existing_tag: str, files: Iterable[Path]) -> str:
    """Return the tag of a wheel: `existing_tag`, corrected by what its files need.

    Parameters
    ----------
    existing_tag
        What setuptools chose before the kernels were added, `python-abi-platform`.
    files
        The wheel's files, the private run time included.

    Returns
    -------
    str
        For a wheel without extension modules of its own `cp311-abi3-<platform>`: the run time in it uses the limited API. For one with
        them, their interpreter and ABI, raised to CPython 3.11 where they use the limited API of an older one. Without any host ELF
        file the tag stays as it is.

    Raises
    ------
    VerifyError
        As `platform_tag`; and extension modules for an interpreter that the run time cannot run in.
    """
    parts = existing_tag.split("-")
    if len(parts) != 3:
        msg = f"{existing_tag!r} is not a wheel tag"
        raise ValueError(msg)
    python, abi, _ = parts
    platform = platform_tag(files)
    if platform == "any":
        return existing_tag
    if abi == "none":
        return f"{_runtime_interpreter()}-abi3-{platform}"
    interpreter = _INTERPRETER.fullmatch(python)
    if interpreter and abi == "abi3":
        return f"cp3{max(int(interpreter[1]), _RUNTIME_PYTHON[1])}-abi3-{platform}"
    # The limited API and the free-threaded build exclude each other (PEP 703).
    if interpreter and int(interpreter[1]) >= _RUNTIME_PYTHON[1] and not abi.endswith("t"):
        return f"{python}-{abi}-{platform}"
    what = f"the extension modules of this project are built for {python}-{abi}"
    raise VerifyError(Fault(where="wheel tag", what=what, fix="build with CPython 3.11 or newer, with the global interpreter lock"))


def _runtime_interpreter() -> str:
    return "cp" + "".join(map(str, _RUNTIME_PYTHON))


def _glibc_minor(elf: ElfFile) -> int | None:
    """Return the least minor version of glibc 2 that has all a file needs, or None if no profile of PEP 600 has."""
    if not set(elf.needed) <= _SYSTEM_LIBRARIES:
        return None
    minors = [_version_minor(version) for version in elf.needed_versions]
    found = [minor for minor in minors if minor is not None]
    return max(found, default=0) if len(found) == len(minors) else None


def _version_minor(version: str) -> int | None:
    if version in _WORDS:
        return _WORDS[version]
    match = _VERSION.fullmatch(version)
    if not match:
        return None  # GLIBC_PRIVATE and the like.
    numbers = tuple(map(int, match[2].split(".")))
    if match[1] == "GLIBC":
        return numbers[1] if len(numbers) > 1 and numbers[0] == 2 else None
    return next((minor for last, minor in _PROFILES.get(match[1], ()) if numbers <= last), None)
