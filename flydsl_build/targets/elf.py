# SPDX-License-Identifier: Apache-2.0
"""Read ELF files: what the loader and the linker see of x86-64 host libraries and of code objects.

The reader trusts nothing: every offset is checked against the file, every table is bounded by the file's size, and the only
exception that leaves this module is `ElfError`. It reads what the project has to know and no more; the tests compare it with
pyelftools.

Sources: the System V ABI (generic ELF) and the Linux Standard Base (symbol versions).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EM_AMDGPU", "EM_X86_64", "ElfError", "ElfFile", "ElfReader", "Symbol", "elf_machine", "read_elf"]

EM_X86_64: Final = 62
EM_AMDGPU: Final = 224

_SHT_SYMTAB: Final = 2
_SHT_DYNSYM: Final = 11
_PT_LOAD: Final = 1
_PT_DYNAMIC: Final = 2
_PT_NOTE: Final = 4
_DT_NULL: Final = 0
_DT_NEEDED: Final = 1
_DT_STRTAB: Final = 5
_DT_STRSZ: Final = 10
_DT_VERNEED: Final = 0x6FFF_FFFE
_DT_VERNEEDNUM: Final = 0x6FFF_FFFF
_SHN_UNDEF: Final = 0

_IDENT_SIZE: Final = 16
_CLASS_64: Final = 2
_HEADER: Final = struct.Struct("<HHIQQQIHHHHHH")
_PROGRAM_HEADER: Final = struct.Struct("<IIQQQQQQ")
_SECTION_HEADER: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_DYNAMIC: Final = struct.Struct("<qQ")
_NOTE: Final = struct.Struct("<III")
_VERNEED: Final = struct.Struct("<HHIII")
_VERNAUX: Final = struct.Struct("<IHHII")

_BINDINGS: Final = {0: "LOCAL", 1: "GLOBAL", 2: "WEAK", 10: "UNIQUE"}
_TYPES: Final = {0: "NOTYPE", 1: "OBJECT", 2: "FUNC", 3: "SECTION", 4: "FILE", 5: "COMMON", 6: "TLS", 10: "IFUNC"}

# Symbol names share one string table, so a small file can name a megabyte twenty thousand times. No real table comes near this.
_NAME_BYTES_MIN: Final = 1 << 20
_NAME_BYTES_PER_FILE_BYTE: Final = 8
_MAX_SEGMENTS: Final = 1024
_MAX_NOTES: Final = 1024


class ElfError(ValueError):
    """Bytes that are not the ELF file they should be; the message says what is wrong, without the file's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbol:
    """One symbol of `.dynsym` or `.symtab`.

    Parameters
    ----------
    name
        Its name, "" for none.
    binding, type
        `LOCAL`, `GLOBAL`, `WEAK`, …; `FUNC`, `OBJECT`, …; a number in text for those without a name.
    is_undefined
        Whether another object has to define it.
    address, size
        Virtual address and size in bytes.
    """

    name: str
    binding: str
    type: str
    is_undefined: bool
    address: int
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    file_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int
    entry_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _StringTable:
    """File offsets of its first byte and of the byte after its last."""

    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfFile:
    """What was read of one ELF64 little-endian file.

    Parameters
    ----------
    machine, os_abi, abi_version, e_flags
        Fields of the header: e_machine, EI_OSABI, EI_ABIVERSION, e_flags.
    dynamic_symbols
        `.dynsym` without its null entry.
    static_symbols
        `.symtab` without its null entry; empty where it was stripped.
    needed
        DT_NEEDED, in file order.
    needed_versions
        The symbol versions that it needs of other libraries (DT_VERNEED), such as `GLIBC_2.17`, in file order.
    """

    machine: int
    os_abi: int
    abi_version: int
    e_flags: int
    dynamic_symbols: tuple[Symbol, ...]
    static_symbols: tuple[Symbol, ...]
    needed: tuple[str, ...]
    needed_versions: tuple[str, ...]

    @property
    def undefined(self) -> tuple[str, ...]:
        """Names of the undefined dynamic symbols, in file order."""
        return tuple(symbol.name for symbol in self.dynamic_symbols if symbol.is_undefined)


def elf_machine(data: bytes) -> int | None:
    """Return e_machine of an ELF file of any class, or None if the bytes do not start as a little-endian ELF file does."""
    if len(data) < _IDENT_SIZE + 4 or data[:4] != b"\x7fELF" or data[5] != 1:
        return None
    return int.from_bytes(data[_IDENT_SIZE + 2 : _IDENT_SIZE + 4], "little")


def read_elf(data: bytes) -> ElfFile:
    """Read an ELF64 little-endian file.

    Parameters
    ----------
    data
        The whole file.

    Raises
    ------
    ElfError
        The bytes are not such a file, or a table of it lies outside of the file.
    """
    return ElfReader(data).elf


class ElfReader:
    """The tables of one file, for readers of what is in it; `elf` is what all of them need.

    Raises
    ------
    ElfError
        As `read_elf`.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._name_bytes_left = max(_NAME_BYTES_MIN, _NAME_BYTES_PER_FILE_BYTE * len(data))
        self._ident()
        header = self.unpack(_HEADER, _IDENT_SIZE, "the ELF header")
        (_, machine, _, _, phoff, shoff, e_flags, _, phentsize, phnum, shentsize, shnum, _) = header
        self._segments = self._read_segments(phoff, phnum, phentsize)
        self._sections = self._read_sections(shoff, shnum, shentsize)
        needed, needed_versions = self._dynamic()
        self.elf = ElfFile(
            machine=machine,
            os_abi=data[7],
            abi_version=data[8],
            e_flags=e_flags,
            dynamic_symbols=self._symbols(_SHT_DYNSYM, ".dynsym"),
            static_symbols=self._symbols(_SHT_SYMTAB, ".symtab"),
            needed=needed,
            needed_versions=needed_versions,
        )

    def _ident(self) -> None:
        data = self.data
        if data[:4] != b"\x7fELF":
            msg = "the file does not start with the ELF magic"
            raise ElfError(msg)
        if len(data) < _IDENT_SIZE:
            msg = "the file ends inside the ELF header"
            raise ElfError(msg)
        if data[4] != _CLASS_64:
            msg = f"ELF class is {data[4]}, only 64-bit files (2) are read"
            raise ElfError(msg)
        if data[5] != 1:
            msg = f"ELF data encoding is {data[5]}, only little-endian files (1) are read"
            raise ElfError(msg)

    def unpack(self, layout: struct.Struct, offset: int, what: str) -> tuple[int, ...]:
        """Return the numbers of a structure at an offset of the file."""
        if offset < 0 or offset + layout.size > len(self.data):
            msg = f"{what} lies outside of the file"
            raise ElfError(msg)
        return layout.unpack_from(self.data, offset)

    def span(self, offset: int, size: int, what: str) -> memoryview:
        """Return bytes of the file without a copy."""
        if offset + size > len(self.data):
            msg = f"{what} lies outside of the file"
            raise ElfError(msg)
        return memoryview(self.data)[offset : offset + size]

    def _table(self, layout: struct.Struct, offset: int, count: int, what: str) -> Iterator[tuple[int, ...]]:
        return layout.iter_unpack(self.span(offset, count * layout.size, what))

    def _read_segments(self, offset: int, count: int, entry_size: int) -> tuple[_Segment, ...]:
        if count == 0:
            return ()
        if count > _MAX_SEGMENTS:
            msg = f"the file has {count} program headers, more than {_MAX_SEGMENTS}"
            raise ElfError(msg)
        if entry_size != _PROGRAM_HEADER.size:
            msg = f"program headers have {entry_size} bytes, not {_PROGRAM_HEADER.size}"
            raise ElfError(msg)
        return tuple(
            _Segment(kind=kind, offset=start, address=address, file_size=file_size)
            for kind, _, start, address, _, file_size, _, _ in self._table(_PROGRAM_HEADER, offset, count, "the program header table")
        )

    def _read_sections(self, offset: int, count: int, entry_size: int) -> tuple[_Section, ...]:
        if offset == 0:
            return ()
        if entry_size != _SECTION_HEADER.size:
            msg = f"section headers have {entry_size} bytes, not {_SECTION_HEADER.size}"
            raise ElfError(msg)
        if count == 0:  # Extended numbering: the count is in the size field of the first header.
            count = self.unpack(_SECTION_HEADER, offset, "the section header table")[5]
        return tuple(
            _Section(kind=kind, offset=start, size=size, link=link, entry_size=each)
            for _, kind, _, _, start, size, link, _, _, each in self._table(_SECTION_HEADER, offset, count, "the section header table")
        )

    def _string(self, strings: _StringTable, offset: int, what: str) -> str:
        start = strings.start + offset
        if start >= strings.end:
            msg = f"{what} lies outside of its string table"
            raise ElfError(msg)
        end = self.data.find(b"\0", start, strings.end)
        if end < 0:
            msg = f"{what} does not end inside its string table"
            raise ElfError(msg)
        self._name_bytes_left -= end - start
        if self._name_bytes_left < 0:
            msg = "the names in the file are many times longer than the file"
            raise ElfError(msg)
        # Symbol names are bytes; one that is not UTF-8 must still be comparable and printable.
        return self.data[start:end].decode("utf-8", "backslashreplace")

    def _strings(self, offset: int, size: int, what: str) -> _StringTable:
        self.span(offset, size, what)
        return _StringTable(start=offset, end=offset + size)

    def _symbols(self, kind: int, name: str) -> tuple[Symbol, ...]:
        tables = [section for section in self._sections if section.kind == kind]
        if not tables:
            return ()
        if len(tables) > 1:
            msg = f"the file has {len(tables)} {name} sections"
            raise ElfError(msg)
        table = tables[0]
        if table.entry_size != _SYMBOL.size or table.size % _SYMBOL.size:
            msg = f"the entries of {name} do not have {_SYMBOL.size} bytes"
            raise ElfError(msg)
        if table.link >= len(self._sections):
            msg = f"the string table of {name} does not exist"
            raise ElfError(msg)
        linked = self._sections[table.link]
        strings = self._strings(linked.offset, linked.size, f"the string table of {name}")
        found = []
        for name_offset, info, _, section, address, size in self._table(_SYMBOL, table.offset, table.size // _SYMBOL.size, name):
            binding, kind_of_symbol = info >> 4, info & 15
            found.append(
                Symbol(
                    name=self._string(strings, name_offset, f"a name in {name}"),
                    binding=_BINDINGS.get(binding, str(binding)),
                    type=_TYPES.get(kind_of_symbol, str(kind_of_symbol)),
                    is_undefined=section == _SHN_UNDEF,
                    address=address,
                    size=size,
                )
            )
        return tuple(found[1:])

    def file_offset(self, address: int, size: int, what: str) -> int:
        """Return where the bytes at a virtual address stand in the file."""
        for segment in self._segments:
            if segment.kind == _PT_LOAD and segment.address <= address and address + size <= segment.address + segment.file_size:
                return segment.offset + address - segment.address
        msg = f"{what} lies outside of what the file loads"
        raise ElfError(msg)

    def _dynamic(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Read DT_NEEDED and DT_VERNEED by way of the program headers, as the loader does."""
        found = [segment for segment in self._segments if segment.kind == _PT_DYNAMIC]
        if not found:
            return (), ()
        if len(found) > 1:
            msg = f"the file has {len(found)} dynamic segments"
            raise ElfError(msg)
        values: dict[int, int] = {}
        needed_at: list[int] = []
        for tag, value in self._table(_DYNAMIC, found[0].offset, found[0].file_size // _DYNAMIC.size, "the dynamic segment"):
            if tag == _DT_NULL:
                break
            if tag == _DT_NEEDED:
                needed_at.append(value)
            else:
                values.setdefault(tag, value)
        if not needed_at and _DT_VERNEED not in values:
            return (), ()
        if _DT_STRTAB not in values or _DT_STRSZ not in values:
            msg = "the dynamic segment has no string table"
            raise ElfError(msg)
        what = "the dynamic string table"
        size = values[_DT_STRSZ]
        strings = self._strings(self.file_offset(values[_DT_STRTAB], size, what), size, what)
        needed = tuple(self._string(strings, offset, "a DT_NEEDED name") for offset in needed_at)
        versions = self._needed_versions(values[_DT_VERNEED], values.get(_DT_VERNEEDNUM, 0), strings) if _DT_VERNEED in values else ()
        return needed, tuple(versions)

    def _needed_versions(self, address: int, count: int, strings: _StringTable) -> Iterator[str]:
        what = "the table of needed versions"
        at = self.file_offset(address, 0, what)
        # The entries are chained by offsets and may overlap; no honest table has more of them than fit in the file.
        left = len(self.data) // _VERNAUX.size
        for _ in range(count):
            version, aux_count, _, aux_offset, next_offset = self.unpack(_VERNEED, at, what)
            if version != 1:
                msg = f"{what} has version {version}, only 1 is known"
                raise ElfError(msg)
            aux_at = at + aux_offset
            for _ in range(aux_count):
                left -= 1
                if left < 0:
                    msg = f"{what} has more entries than fit in the file"
                    raise ElfError(msg)
                _, _, _, name, aux_next = self.unpack(_VERNAUX, aux_at, what)
                yield self._string(strings, name, "a needed version's name")
                if aux_next == 0:
                    break
                aux_at += aux_next
            if next_offset == 0:
                break
            at += next_offset

    def notes(self) -> Iterator[tuple[bytes, int, memoryview]]:
        """Give name (with its terminator), type and descriptor of each note."""
        what = "a note"
        left = _MAX_NOTES
        for segment in self._segments:
            if segment.kind != _PT_NOTE:
                continue
            self.span(segment.offset, segment.file_size, "a note segment")
            at, end = segment.offset, segment.offset + segment.file_size
            while at + _NOTE.size <= end:
                left -= 1
                if left < 0:
                    msg = f"the file has more than {_MAX_NOTES} notes"
                    raise ElfError(msg)
                name_size, size, kind = self.unpack(_NOTE, at, what)
                name_at = at + _NOTE.size
                descriptor_at = name_at + _aligned(name_size)
                if descriptor_at + size > end:
                    msg = "a note reaches beyond its segment"
                    raise ElfError(msg)
                # Longer names belong to others and would be copied for nothing.
                name = bytes(self.span(name_at, min(name_size, 16), what))
                yield name, kind, self.span(descriptor_at, size, what)
                at = descriptor_at + _aligned(size)


def _aligned(size: int) -> int:
    return size + 3 & ~3
