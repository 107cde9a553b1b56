# SPDX-License-Identifier: Apache-2.0
"""Read AMDGPU code objects: the ELF file, its metadata note, and the descriptors of its kernels.

Source: the AMDGPU back end guide of LLVM (https://llvm.org/docs/AMDGPUUsage.html: code object, metadata note, kernel descriptor).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flydsl_build.targets.elf import EM_AMDGPU, ElfError, ElfReader
from flydsl_build.targets.processors import target_of_machine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from flydsl_build.targets.elf import ElfFile, Symbol

    _Value: TypeAlias = "dict[str, _Value] | list[_Value] | str | int | float | bool | None"

__all__ = ["AmdgpuCodeObject", "AmdgpuKernel", "KernelArgument", "KernelDescriptor", "describe_e_flags", "read_code_object"]

_NT_AMDGPU_METADATA: Final = 32
_DESCRIPTOR: Final = struct.Struct("<IIIIq")
_DESCRIPTOR_SIZE: Final = 64
_MAX_DEPTH: Final = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelArgument:
    """One argument of a kernel: offset and size in the kernarg segment, in bytes, and whether the HIP run time supplies it."""

    offset: int
    size: int
    is_hidden: bool = False


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
    kernarg_size
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
    kernarg_size: int
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
    """An AMDGPU ELF file and its metadata.

    Parameters
    ----------
    elf
        The file.
    target
        `amdhsa.target`, e.g. `amdgcn-amd-amdhsa--gfx942`.
    kernels
        Those of the metadata, in its order.
    symbols
        The dynamic symbols by name: functions, descriptors, device globals, and what is undefined.
    """

    elf: ElfFile
    target: str
    kernels: tuple[AmdgpuKernel, ...]
    symbols: Mapping[str, Symbol]


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
    reader = ElfReader(data)
    elf = reader.elf
    if elf.machine != EM_AMDGPU:
        msg = f"e_machine is {elf.machine}, an AMDGPU code object has {EM_AMDGPU}"
        raise ElfError(msg)
    notes = [note for note in reader.notes() if note[0] == b"AMDGPU\0" and note[1] == _NT_AMDGPU_METADATA]
    if len(notes) != 1:
        msg = f"the file has {len(notes)} AMDGPU metadata notes, a code object has one"
        raise ElfError(msg)
    metadata = _MessagePack(notes[0][2]).document()
    root = _Fields(metadata, "metadata")
    symbols = {symbol.name: symbol for symbol in elf.dynamic_symbols}
    kernels = tuple(
        _kernel(_Fields(item, f"metadata amdhsa.kernels[{n}]"), symbols, reader)
        for n, item in enumerate(root.array("amdhsa.kernels", default=()))
    )
    names = [kernel.symbol for kernel in kernels]
    if len(set(names)) != len(names):
        msg = "two kernels of the metadata have one name"
        raise ElfError(msg)
    return AmdgpuCodeObject(elf=elf, target=root.text("amdhsa.target", default=""), kernels=kernels, symbols=symbols)


def _kernel(fields: _Fields, symbols: Mapping[str, Symbol], reader: ElfReader) -> AmdgpuKernel:
    arguments = []
    for n, item in enumerate(fields.array(".args", default=())):
        argument = _Fields(item, f"{fields.path}.args[{n}]")
        is_hidden = argument.text(".value_kind").startswith("hidden_")
        arguments.append(KernelArgument(offset=argument.count(".offset"), size=argument.count(".size"), is_hidden=is_hidden))
    symbol = fields.text(".name")
    function = symbols.get(symbol)
    descriptor = symbols.get(fields.text(".symbol"))
    return AmdgpuKernel(
        symbol=symbol,
        kernarg_size=fields.count(".kernarg_segment_size"),
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
        code_size=0 if function is None or function.is_undefined else function.size,
        descriptor=None if descriptor is None or descriptor.is_undefined else _descriptor(descriptor, reader),
    )


def _descriptor(symbol: Symbol, reader: ElfReader) -> KernelDescriptor:
    what = f"the kernel descriptor {symbol.name}"
    at = reader.file_offset(symbol.address, _DESCRIPTOR_SIZE, what)
    group, private, kernarg, _, entry = reader.unpack(_DESCRIPTOR, at, what)
    return KernelDescriptor(group_segment_size=group, private_segment_size=private, kernarg_size=kernarg, entry=symbol.address + entry)


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
