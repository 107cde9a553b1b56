# SPDX-License-Identifier: Apache-2.0
"""Read ELF files: AMDGPU code objects and x86-64 host libraries.

The reader trusts nothing: every offset is checked against the file, every table is bounded by the file's size, and the only
exception that leaves this module is `ElfError`. It reads what the project has to know and no more.

Sources: the System V ABI (generic ELF), the AMDGPU back end guide of LLVM (https://llvm.org/docs/AMDGPUUsage.html: code
object, metadata note, kernel descriptor) and the Linux Standard Base (symbol versions).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flydsl_build.targets.processors import target_of_machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TypeAlias

    _Value: TypeAlias = "dict[str, _Value] | list[_Value] | str | int | float | bool | None"

__all__ = [
    "EM_AMDGPU",
    "EM_X86_64",
    "AmdgpuCodeObject",
    "AmdgpuKernel",
    "ElfError",
    "ElfFile",
    "KernelArgument",
    "KernelDescriptor",
    "Symbol",
    "VersionNeed",
    "describe_e_flags",
    "elf_machine",
    "read_code_object",
    "read_elf",
]

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
_DT_SONAME: Final = 14
_DT_VERNEED: Final = 0x6FFF_FFFE
_DT_VERNEEDNUM: Final = 0x6FFF_FFFF
_SHN_UNDEF: Final = 0
_NT_AMDGPU_METADATA: Final = 32

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
_DESCRIPTOR: Final = struct.Struct("<IIIIq")
_DESCRIPTOR_SIZE: Final = 64

_BINDINGS: Final = {0: "LOCAL", 1: "GLOBAL", 2: "WEAK", 10: "UNIQUE"}
_TYPES: Final = {0: "NOTYPE", 1: "OBJECT", 2: "FUNC", 3: "SECTION", 4: "FILE", 5: "COMMON", 6: "TLS", 10: "IFUNC"}

# Symbol names share one string table, so a small file can name a megabyte twenty thousand times. No real table comes near this.
_NAME_BYTES_MIN: Final = 1 << 20
_NAME_BYTES_PER_FILE_BYTE: Final = 8
_MAX_SEGMENTS: Final = 1024
_MAX_NOTES: Final = 1024
_MAX_DEPTH: Final = 32


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
    visibility
        The low two bits of st_other: 0 default, 1 internal, 2 hidden, 3 protected.
    section
        Section index; 0 is undefined.
    address, size
        Virtual address and size in bytes.
    """

    name: str
    binding: str
    type: str
    visibility: int
    section: int
    address: int
    size: int

    @property
    def is_undefined(self) -> bool:
        """Whether another object has to define it."""
        return self.section == _SHN_UNDEF


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionNeed:
    """One symbol version that a library needs of another, e.g. `GLIBC_2.17` of `libc.so.6`."""

    library: str
    version: str


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
    machine, kind, os_abi, abi_version, e_flags
        Fields of the header: e_machine, e_type, EI_OSABI, EI_ABIVERSION, e_flags.
    dynamic_symbols
        `.dynsym` without its null entry.
    static_symbols
        `.symtab` without its null entry; empty where it was stripped.
    needed
        DT_NEEDED, in file order.
    soname
        DT_SONAME.
    version_needs
        DT_VERNEED, in file order.
    """

    machine: int
    kind: int
    os_abi: int
    abi_version: int
    e_flags: int
    dynamic_symbols: tuple[Symbol, ...]
    static_symbols: tuple[Symbol, ...]
    needed: tuple[str, ...]
    soname: str | None
    version_needs: tuple[VersionNeed, ...]

    @property
    def undefined(self) -> tuple[str, ...]:
        """Names of the undefined dynamic symbols, in file order."""
        return tuple(symbol.name for symbol in self.dynamic_symbols if symbol.is_undefined)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelArgument:
    """One argument of a kernel: offset and size in the kernarg segment, in bytes, and its `.value_kind`."""

    offset: int
    size: int
    value_kind: str

    @property
    def is_hidden(self) -> bool:
        """Whether the HIP run time supplies it, not the caller."""
        return self.value_kind.startswith("hidden_")


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelDescriptor:
    """The fields of the 64 bytes at `<name>.kd` that must agree with the metadata; sizes in bytes, `entry` an address."""

    group_segment_size: int
    private_segment_size: int
    kernarg_size: int
    entry: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AmdgpuKernel:
    """One kernel of the metadata note.

    Parameters
    ----------
    symbol
        The function's name.
    descriptor_symbol
        `<name>.kd`.
    kernarg_size, kernarg_align
        Of the kernarg segment, hidden arguments included, in bytes.
    arguments
        All arguments, the hidden ones included.
    group_segment_size, private_segment_size
        Static LDS of a workgroup and scratch of a work item, in bytes.
    vgpr, agpr, sgpr, vgpr_spills, sgpr_spills
        Register counts.
    wavefront
        32 or 64.
    max_workgroup
        Most work items in a workgroup.
    reqd_workgroup
        The workgroup size the kernel was compiled for, or None where any up to `max_workgroup` will do.
    code_size
        Size of the function in bytes; 0 where `.dynsym` does not have it.
    descriptor
        The descriptor itself, or None where `.dynsym` does not have it.
    """

    symbol: str
    descriptor_symbol: str
    kernarg_size: int
    kernarg_align: int
    arguments: tuple[KernelArgument, ...]
    group_segment_size: int
    private_segment_size: int
    vgpr: int
    agpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    wavefront: int
    max_workgroup: int
    reqd_workgroup: tuple[int, int, int] | None
    code_size: int
    descriptor: KernelDescriptor | None

    @property
    def explicit_arguments(self) -> tuple[KernelArgument, ...]:
        """The arguments the caller passes, in order."""
        return tuple(argument for argument in self.arguments if not argument.is_hidden)


@dataclass(frozen=True, kw_only=True, slots=True)
class AmdgpuCodeObject:
    """An AMDGPU ELF and its metadata: `target` is `amdhsa.target`, e.g. `amdgcn-amd-amdhsa--gfx942`."""

    elf: ElfFile
    target: str
    kernels: tuple[AmdgpuKernel, ...]


def describe_e_flags(e_flags: int) -> str:
    """Return the e_flags of an AMDGPU code object in words, e.g. `gfx942, xnack any, sramecc any (e_flags 0x54c)`.

    The layout is that of code object version 6: bits 0 to 7 the chip, 8 and 9 xnack, 10 and 11 sramecc, 24 to 31 the version of a
    generic target. A feature that the chip does not have is not mentioned.
    """
    states = ("", " any", " off", " on")
    target = target_of_machine(e_flags)
    words = [target.name if target else f"unknown chip {e_flags & 0xFF:#x}"]
    words += [name + states[state] for name, state in (("xnack", e_flags >> 8 & 3), ("sramecc", e_flags >> 10 & 3)) if state]
    if e_flags >> 24:
        words.append(f"generic version {e_flags >> 24}")
    return f"{', '.join(words)} (e_flags {e_flags:#x})"


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
    return _Reader(data).elf()


def read_code_object(data: bytes) -> AmdgpuCodeObject:
    """Read an AMDGPU code object with its metadata note.

    Parameters
    ----------
    data
        The whole file.

    Raises
    ------
    ElfError
        The bytes are not an ELF64 little-endian file for AMDGPU, or have not exactly one readable metadata note.
    """
    reader = _Reader(data)
    elf = reader.elf()
    if elf.machine != EM_AMDGPU:
        msg = f"e_machine is {elf.machine}, an AMDGPU code object has {EM_AMDGPU}"
        raise ElfError(msg)
    notes = [note for note in reader.notes() if note[0] == b"AMDGPU\0" and note[1] == _NT_AMDGPU_METADATA]
    if len(notes) != 1:
        msg = f"the file has {len(notes)} AMDGPU metadata notes, a code object has one"
        raise ElfError(msg)
    metadata = _MessagePack(notes[0][2]).document()
    root = _Fields(metadata, "metadata")
    dynamic = {symbol.name: symbol for symbol in elf.dynamic_symbols if not symbol.is_undefined}
    kernels = tuple(
        _kernel(_Fields(item, f"metadata amdhsa.kernels[{n}]"), dynamic, reader)
        for n, item in enumerate(root.array("amdhsa.kernels", default=()))
    )
    names = [kernel.symbol for kernel in kernels]
    if len(set(names)) != len(names):
        msg = "two kernels of the metadata have one name"
        raise ElfError(msg)
    return AmdgpuCodeObject(elf=elf, target=root.text("amdhsa.target", default=""), kernels=kernels)


def _kernel(fields: _Fields, dynamic: Mapping[str, Symbol], reader: _Reader) -> AmdgpuKernel:
    arguments = []
    for n, item in enumerate(fields.array(".args", default=())):
        argument = _Fields(item, f"{fields.path}.args[{n}]")
        arguments.append(
            KernelArgument(offset=argument.count(".offset"), size=argument.count(".size"), value_kind=argument.text(".value_kind"))
        )
    symbol = fields.text(".name")
    descriptor_symbol = fields.text(".symbol")
    function = dynamic.get(symbol)
    descriptor = dynamic.get(descriptor_symbol)
    return AmdgpuKernel(
        symbol=symbol,
        descriptor_symbol=descriptor_symbol,
        kernarg_size=fields.count(".kernarg_segment_size"),
        kernarg_align=fields.count(".kernarg_segment_align"),
        arguments=tuple(arguments),
        group_segment_size=fields.count(".group_segment_fixed_size"),
        private_segment_size=fields.count(".private_segment_fixed_size"),
        vgpr=fields.count(".vgpr_count"),
        agpr=fields.count(".agpr_count", default=0),
        sgpr=fields.count(".sgpr_count"),
        vgpr_spills=fields.count(".vgpr_spill_count", default=0),
        sgpr_spills=fields.count(".sgpr_spill_count", default=0),
        wavefront=fields.count(".wavefront_size"),
        max_workgroup=fields.count(".max_flat_workgroup_size"),
        reqd_workgroup=fields.triple(".reqd_workgroup_size"),
        code_size=function.size if function else 0,
        descriptor=reader.descriptor(descriptor) if descriptor else None,
    )


class _Reader:
    """The tables of one file, each read once."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.name_bytes_left = max(_NAME_BYTES_MIN, _NAME_BYTES_PER_FILE_BYTE * len(data))
        self.ident()
        header = self.unpack(_HEADER, _IDENT_SIZE, "the ELF header")
        (self.kind, self.machine, _, _, phoff, shoff, self.e_flags, _, phentsize, phnum, shentsize, shnum, _) = header
        self.segments = self.read_segments(phoff, phnum, phentsize)
        self.sections = self.read_sections(shoff, shnum, shentsize)

    def ident(self) -> None:
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

    def table(self, layout: struct.Struct, offset: int, count: int, what: str) -> Iterator[tuple[int, ...]]:
        return layout.iter_unpack(self.span(offset, count * layout.size, what))

    def read_segments(self, offset: int, count: int, entry_size: int) -> tuple[_Segment, ...]:
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
            for kind, _, start, address, _, file_size, _, _ in self.table(_PROGRAM_HEADER, offset, count, "the program header table")
        )

    def read_sections(self, offset: int, count: int, entry_size: int) -> tuple[_Section, ...]:
        if offset == 0:
            return ()
        if entry_size != _SECTION_HEADER.size:
            msg = f"section headers have {entry_size} bytes, not {_SECTION_HEADER.size}"
            raise ElfError(msg)
        if count == 0:  # Extended numbering: the count is in the size field of the first header.
            count = self.unpack(_SECTION_HEADER, offset, "the section header table")[5]
        return tuple(
            _Section(kind=kind, offset=start, size=size, link=link, entry_size=each)
            for _, kind, _, _, start, size, link, _, _, each in self.table(_SECTION_HEADER, offset, count, "the section header table")
        )

    def elf(self) -> ElfFile:
        needed, soname, version_needs = self.dynamic()
        return ElfFile(
            machine=self.machine,
            kind=self.kind,
            os_abi=self.data[7],
            abi_version=self.data[8],
            e_flags=self.e_flags,
            dynamic_symbols=self.symbols(_SHT_DYNSYM, ".dynsym"),
            static_symbols=self.symbols(_SHT_SYMTAB, ".symtab"),
            needed=needed,
            soname=soname,
            version_needs=version_needs,
        )

    def string(self, strings: _StringTable, offset: int, what: str) -> str:
        start = strings.start + offset
        if start >= strings.end:
            msg = f"{what} lies outside of its string table"
            raise ElfError(msg)
        end = self.data.find(b"\0", start, strings.end)
        if end < 0:
            msg = f"{what} does not end inside its string table"
            raise ElfError(msg)
        self.name_bytes_left -= end - start
        if self.name_bytes_left < 0:
            msg = "the names in the file are many times longer than the file"
            raise ElfError(msg)
        # Symbol names are bytes; one that is not UTF-8 must still be comparable and printable.
        return self.data[start:end].decode("utf-8", "backslashreplace")

    def strings(self, offset: int, size: int, what: str) -> _StringTable:
        self.span(offset, size, what)
        return _StringTable(start=offset, end=offset + size)

    def symbols(self, kind: int, name: str) -> tuple[Symbol, ...]:
        tables = [section for section in self.sections if section.kind == kind]
        if not tables:
            return ()
        if len(tables) > 1:
            msg = f"the file has {len(tables)} {name} sections"
            raise ElfError(msg)
        table = tables[0]
        if table.entry_size != _SYMBOL.size or table.size % _SYMBOL.size:
            msg = f"the entries of {name} do not have {_SYMBOL.size} bytes"
            raise ElfError(msg)
        if table.link >= len(self.sections):
            msg = f"the string table of {name} does not exist"
            raise ElfError(msg)
        linked = self.sections[table.link]
        strings = self.strings(linked.offset, linked.size, f"the string table of {name}")
        found = []
        for name_offset, info, other, section, address, size in self.table(_SYMBOL, table.offset, table.size // _SYMBOL.size, name):
            binding, kind_of_symbol = info >> 4, info & 15
            found.append(
                Symbol(
                    name=self.string(strings, name_offset, f"a name in {name}"),
                    binding=_BINDINGS.get(binding, str(binding)),
                    type=_TYPES.get(kind_of_symbol, str(kind_of_symbol)),
                    visibility=other & 3,
                    section=section,
                    address=address,
                    size=size,
                )
            )
        return tuple(found[1:])

    def file_offset(self, address: int, size: int, what: str) -> int:
        """Return where the bytes at a virtual address stand in the file."""
        for segment in self.segments:
            if segment.kind == _PT_LOAD and segment.address <= address and address + size <= segment.address + segment.file_size:
                return segment.offset + address - segment.address
        msg = f"{what} lies outside of what the file loads"
        raise ElfError(msg)

    def dynamic(self) -> tuple[tuple[str, ...], str | None, tuple[VersionNeed, ...]]:
        """Read DT_NEEDED, DT_SONAME and DT_VERNEED by way of the program headers, as the loader does."""
        found = [segment for segment in self.segments if segment.kind == _PT_DYNAMIC]
        if not found:
            return (), None, ()
        if len(found) > 1:
            msg = f"the file has {len(found)} dynamic segments"
            raise ElfError(msg)
        values: dict[int, int] = {}
        needed_at: list[int] = []
        for tag, value in self.table(_DYNAMIC, found[0].offset, found[0].file_size // _DYNAMIC.size, "the dynamic segment"):
            if tag == _DT_NULL:
                break
            if tag == _DT_NEEDED:
                needed_at.append(value)
            else:
                values.setdefault(tag, value)
        if not needed_at and _DT_SONAME not in values and _DT_VERNEED not in values:
            return (), None, ()
        if _DT_STRTAB not in values or _DT_STRSZ not in values:
            msg = "the dynamic segment has no string table"
            raise ElfError(msg)
        what = "the dynamic string table"
        size = values[_DT_STRSZ]
        strings = self.strings(self.file_offset(values[_DT_STRTAB], size, what), size, what)
        needed = tuple(self.string(strings, offset, "a DT_NEEDED name") for offset in needed_at)
        soname = self.string(strings, values[_DT_SONAME], "the DT_SONAME name") if _DT_SONAME in values else None
        needs = tuple(self.version_needs(values[_DT_VERNEED], values.get(_DT_VERNEEDNUM, 0), strings)) if _DT_VERNEED in values else ()
        return needed, soname, needs

    def version_needs(self, address: int, count: int, strings: _StringTable) -> Iterator[VersionNeed]:
        what = "the table of needed versions"
        at = self.file_offset(address, 0, what)
        # The entries are chained by offsets and may overlap; no honest table has more of them than fit in the file.
        left = len(self.data) // _VERNAUX.size
        for _ in range(count):
            version, aux_count, file_name, aux_offset, next_offset = self.unpack(_VERNEED, at, what)
            if version != 1:
                msg = f"{what} has version {version}, only 1 is known"
                raise ElfError(msg)
            library = self.string(strings, file_name, "a needed library's name")
            aux_at = at + aux_offset
            for _ in range(aux_count):
                left -= 1
                if left < 0:
                    msg = f"{what} has more entries than fit in the file"
                    raise ElfError(msg)
                _, _, _, name, aux_next = self.unpack(_VERNAUX, aux_at, what)
                yield VersionNeed(library=library, version=self.string(strings, name, "a needed version's name"))
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
        for segment in self.segments:
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

    def descriptor(self, symbol: Symbol) -> KernelDescriptor:
        what = f"the kernel descriptor {symbol.name}"
        at = self.file_offset(symbol.address, _DESCRIPTOR_SIZE, what)
        group, private, kernarg, _, entry = self.unpack(_DESCRIPTOR, at, what)
        return KernelDescriptor(group_segment_size=group, private_segment_size=private, kernarg_size=kernarg, entry=symbol.address + entry)


def _aligned(size: int) -> int:
    return size + 3 & ~3


class _Fields:
    """One map of the metadata with typed access; faults name the place."""

    def __init__(self, value: _Value, path: str) -> None:
        if not isinstance(value, dict):
            msg = f"{path} is not a map"
            raise ElfError(msg)
        self.value = value
        self.path = path

    def get(self, key: str) -> _Value:
        if key not in self.value:
            msg = f"{self.path} has no {key}"
            raise ElfError(msg)
        return self.value[key]

    def count(self, key: str, *, default: int | None = None) -> int:
        if default is not None and key not in self.value:
            return default
        value = self.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            msg = f"{self.path}{key} is not a count"
            raise ElfError(msg)
        return value

    def text(self, key: str, *, default: str | None = None) -> str:
        if default is not None and key not in self.value:
            return default
        value = self.get(key)
        if not isinstance(value, str):
            msg = f"{self.path}{key} is not text"
            raise ElfError(msg)
        return value

    def array(self, key: str, *, default: tuple[()]) -> list[_Value]:
        if key not in self.value:
            return list(default)
        value = self.value[key]
        if not isinstance(value, list):
            msg = f"{self.path} {key} is not an array"
            raise ElfError(msg)
        return value

    def triple(self, key: str) -> tuple[int, int, int] | None:
        if key not in self.value:
            return None
        value = self.value[key]
        numbers = [item for item in value if isinstance(item, int) and not isinstance(item, bool)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(value) != 3 or len(numbers) != 3 or min(numbers) < 0:
            msg = f"{self.path}{key} is not three counts"
            raise ElfError(msg)
        return numbers[0], numbers[1], numbers[2]


class _MessagePack:
    """A MessagePack document of maps, arrays, text, numbers, booleans and nil (https://github.com/msgpack/msgpack/blob/master/spec.md).

    Byte strings and extensions do not stand in AMDGPU metadata and are refused. Nothing is allocated ahead of the bytes
    that justify it, and nesting is limited.
    """

    _SIZED: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
    _NUMBERS: Final = {0xCA + n: struct.Struct(">" + layout) for n, layout in enumerate("fdBHIQbhiq")}
    _CONSTANTS: Final[Mapping[int, _Value]] = {0xC0: None, 0xC2: False, 0xC3: True}

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def document(self) -> _Value:
        value = self.value(0)
        # The note's descriptor may be padded to four bytes with zeros, nothing else may follow.
        if any(self.data[self.at :]):
            msg = "the metadata goes on after its end"
            raise ElfError(msg)
        return value

    def take(self, size: int) -> memoryview:
        if self.at + size > len(self.data):
            msg = "the metadata ends early"
            raise ElfError(msg)
        part = self.data[self.at : self.at + size]
        self.at += size
        return part

    def value(self, depth: int) -> _Value:  # noqa: C901, PLR0911 - one line a MessagePack type
        if depth > _MAX_DEPTH:
            msg = f"the metadata is nested more than {_MAX_DEPTH} deep"
            raise ElfError(msg)
        code = self.take(1)[0]
        if code < 0x80:
            return code
        if code < 0x90:
            return self.map(code & 0x0F, depth)
        if code < 0xA0:
            return self.array(code & 0x0F, depth)
        if code < 0xC0:
            return self.text(code & 0x1F)
        if code >= 0xE0:
            return code - 0x100
        if code in self._CONSTANTS:
            return self._CONSTANTS[code]
        if code in self._NUMBERS:
            layout = self._NUMBERS[code]
            number: int | float = layout.unpack(self.take(layout.size))[0]
            return number
        if code not in self._SIZED:
            msg = f"the metadata holds a value of kind {code:#x}"
            raise ElfError(msg)
        size = int.from_bytes(self.take(self._SIZED[code]), "big")
        if code <= 0xDB:
            return self.text(size)
        return self.array(size, depth) if code <= 0xDD else self.map(size, depth)

    def text(self, size: int) -> str:
        try:
            return bytes(self.take(size)).decode()
        except UnicodeDecodeError:
            msg = "the metadata holds text that is not UTF-8"
            raise ElfError(msg) from None

    def array(self, count: int, depth: int) -> list[_Value]:
        return [self.value(depth + 1) for _ in range(count)]

    def map(self, count: int, depth: int) -> dict[str, _Value]:
        found: dict[str, _Value] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            if not isinstance(key, str):
                msg = "the metadata has a key that is not text"
                raise ElfError(msg)
            if key in found:
                msg = f"the metadata has the key {key} twice"
                raise ElfError(msg)
            found[key] = self.value(depth + 1)
        return found
