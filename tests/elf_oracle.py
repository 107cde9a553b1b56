# SPDX-License-Identifier: Apache-2.0
"""What other programs' readers say of ELF files and code objects: pyelftools, and msgpack for the metadata note."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest

from flydsl_build.targets.code_object import AmdgpuCodeObject, AmdgpuKernel, KernelArgument, KernelDescriptor, read_code_object
from flydsl_build.targets.elf import EM_AMDGPU, ElfFile, Symbol, read_elf

__all__ = ["check_code_object", "check_elf"]

# pyelftools names bindings and types for the system of the file, which for 10 is another one.
NAMES = {"STB_LOOS": "UNIQUE", "STT_LOOS": "IFUNC"}


def check_elf(data: bytes) -> None:
    """Compare every fact of an ELF file."""
    assert read_elf(data) == elf_by_pyelftools(data)


def check_code_object(data: bytes) -> AmdgpuCodeObject:
    """Compare every fact of a code object, and return it."""
    read = read_code_object(data)
    assert read == code_object_by_others(data)
    return read


def _file(data: bytes) -> Any:
    return pytest.importorskip("elftools.elf.elffile").ELFFile(io.BytesIO(data))


def _name(text: Any) -> str:
    return NAMES.get(text) or str(text).partition("_")[2]


def _symbols(file: Any, kind: str) -> tuple[Symbol, ...]:
    return tuple(
        Symbol(
            name=one.name,
            binding=_name(one["st_info"]["bind"]),
            type=_name(one["st_info"]["type"]),
            is_undefined=one["st_shndx"] == "SHN_UNDEF",
            address=one["st_value"],
            size=one["st_size"],
        )
        for section in file.iter_sections()
        if section["sh_type"] == kind
        for number, one in enumerate(section.iter_symbols())
        if number
    )


def elf_by_pyelftools(data: bytes) -> ElfFile:
    """Return what pyelftools says of an ELF file."""
    file = _file(data)
    dynamic = [tag for segment in file.iter_segments() if segment["p_type"] == "PT_DYNAMIC" for tag in segment.iter_tags()]
    needs = [one for section in file.iter_sections() if section["sh_type"] == "SHT_GNU_verneed" for one in section.iter_versions()]
    return ElfFile(
        machine=struct.unpack_from("<H", data, 18)[0],
        os_abi=data[7],
        abi_version=file["e_ident"]["EI_ABIVERSION"],
        e_flags=file["e_flags"],
        dynamic_symbols=_symbols(file, "SHT_DYNSYM"),
        static_symbols=_symbols(file, "SHT_SYMTAB"),
        needed=tuple(tag.needed for tag in dynamic if tag["d_tag"] == "DT_NEEDED"),
        needed_versions=tuple(version.name for _library, versions in needs for version in versions),
    )


def code_object_by_others(data: bytes) -> AmdgpuCodeObject:
    """Return what pyelftools and msgpack say of a code object."""
    file, elf = _file(data), elf_by_pyelftools(data)
    assert elf.machine == EM_AMDGPU
    segments = [segment for segment in file.iter_segments() if segment["p_type"] == "PT_NOTE"]
    (note,) = (one for segment in segments for one in segment.iter_notes() if one["n_name"] == "AMDGPU" and one["n_type"] == 32)
    document = pytest.importorskip("msgpack").unpackb(note["n_desc"])
    symbols = {one.name: one for one in elf.dynamic_symbols}

    def descriptor(symbol: Symbol) -> KernelDescriptor:
        (at,) = file.address_offsets(symbol.address, 64)
        group, private, kernarg, _, entry = struct.unpack_from("<IIIIq", data, at)
        return KernelDescriptor(group_segment_size=group, private_segment_size=private, kernarg_size=kernarg, entry=symbol.address + entry)

    def kernel(one: dict[str, Any]) -> AmdgpuKernel:
        required = one.get(".reqd_workgroup_size")
        return AmdgpuKernel(
            symbol=one[".name"],
            kernarg_size=one[".kernarg_segment_size"],
            arguments=tuple(
                KernelArgument(offset=each[".offset"], size=each[".size"], is_hidden=each[".value_kind"].startswith("hidden"))
                for each in one.get(".args", ())
            ),
            group_segment_size=one[".group_segment_fixed_size"],
            private_segment_size=one[".private_segment_fixed_size"],
            vgpr=one[".vgpr_count"],
            agpr=one.get(".agpr_count", 0),
            sgpr=one[".sgpr_count"],
            vgpr_spills=one[".vgpr_spill_count"],
            sgpr_spills=one[".sgpr_spill_count"],
            wavefront=one[".wavefront_size"],
            max_workgroup=one[".max_flat_workgroup_size"],
            reqd_workgroup=None if required is None else (required[0], required[1], required[2]),
            code_size=symbols[one[".name"]].size,
            descriptor=descriptor(symbols[one[".symbol"]]),
        )

    return AmdgpuCodeObject(
        elf=elf, target=document["amdhsa.target"], kernels=tuple(map(kernel, document["amdhsa.kernels"])), symbols=symbols
    )
