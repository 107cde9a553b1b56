# SPDX-License-Identifier: Apache-2.0
"""The ELF reader: right values of real files, and nothing but `ElfError` on anything else."""

from __future__ import annotations

import contextlib
import struct
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from elf_oracle import check_code_object, check_elf
from hypothesis import given, settings
from hypothesis import strategies as st

from flydsl_build.targets.code_object import AmdgpuKernel, KernelArgument, KernelDescriptor, describe_e_flags, read_code_object
from flydsl_build.targets.elf import EM_AMDGPU, EM_X86_64, ElfError, Symbol, elf_machine, read_elf

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parent / "data"
FILES = sorted(path.name for path in DATA.glob("*.elf"))


def argument(offset: int, size: int, *, hidden: bool = False) -> KernelArgument:
    return KernelArgument(offset=offset, size=size, is_hidden=hidden)


@pytest.mark.parametrize("name", FILES)
def test_other_readers_say_the_same(name: str) -> None:
    content = (DATA / name).read_bytes()
    check_elf(content)
    if elf_machine(content) == EM_AMDGPU:
        check_code_object(content)


def test_libraries_of_this_machine() -> None:
    """Real host libraries, with versions, TLS, indirect functions and what else compilers make."""
    folders = [Path(sysconfig.get_path("platlib")) / "numpy", Path(sysconfig.get_path("platlib")) / "flydsl_build"]
    files = [path for folder in folders for path in sorted(folder.rglob("*.so")) if path.stat().st_size < 1 << 20]
    assert len(files) > 3
    contents = [path.read_bytes() for path in files]
    for content in contents:
        check_elf(content)
    assert any(read_elf(content).needed_versions for content in contents)


def test_code_object_gfx942(data: Callable[[str], bytes]) -> None:
    code_object = read_code_object(data("two_kernels.gfx942.elf"))
    elf = code_object.elf
    assert (elf.machine, elf.os_abi, elf.abi_version, elf.e_flags) == (EM_AMDGPU, 64, 4, 0x54C)
    assert elf.dynamic_symbols == tuple(
        Symbol(name=name, binding="GLOBAL", type=kind, is_undefined=False, address=address, size=size)
        for name, kind, address, size in [
            ("add_0", "FUNC", 0x1900, 116),
            ("add_0.kd", "OBJECT", 0x7C0, 64),
            ("double_1", "FUNC", 0x1A00, 84),
            ("double_1.kd", "OBJECT", 0x800, 64),
        ]
    )
    assert len(elf.static_symbols) == 9
    assert (elf.needed, elf.needed_versions, elf.undefined) == ((), (), ())
    assert code_object.target == "amdgcn-amd-amdhsa-unknown-gfx942"
    add, double = code_object.kernels
    assert add == AmdgpuKernel(
        symbol="add_0",
        kernarg_size=52,
        arguments=(argument(0, 8), argument(8, 16), argument(24, 8), argument(32, 16), argument(48, 4)),
        group_segment_size=0,
        private_segment_size=0,
        vgpr=6,
        agpr=0,
        sgpr=12,
        vgpr_spills=0,
        sgpr_spills=0,
        wavefront=64,
        max_workgroup=256,
        reqd_workgroup=(256, 1, 1),
        code_size=116,
        descriptor=KernelDescriptor(group_segment_size=0, private_segment_size=0, kernarg_size=52, entry=0x1900),
    )
    assert (double.symbol, double.kernarg_size, double.reqd_workgroup, double.code_size) == ("double_1", 28, (64, 1, 1), 84)
    assert double.explicit_arguments == double.arguments


def test_code_object_gfx1100(data: Callable[[str], bytes]) -> None:
    code_object = read_code_object(data("two_kernels.gfx1100.elf"))
    assert code_object.elf.e_flags == 0x41
    assert [(kernel.symbol, kernel.wavefront, kernel.vgpr, kernel.sgpr, kernel.code_size) for kernel in code_object.kernels] == [
        ("add_0", 32, 4, 18, 148),
        ("double_1", 32, 3, 18, 112),
    ]


def test_hidden_arguments_globals_and_undefined_symbols(data: Callable[[str], bytes]) -> None:
    code_object = read_code_object(data("globals.gfx942.elf"))
    (kernel,) = code_object.kernels
    assert kernel.explicit_arguments == (argument(0, 8), argument(8, 4), argument(12, 4))
    assert len(kernel.arguments) == 22
    assert kernel.arguments[3] == argument(16, 4, hidden=True)
    assert (kernel.kernarg_size, kernel.reqd_workgroup, kernel.vgpr, kernel.sgpr) == (272, None, 42, 46)
    assert code_object.elf.undefined == ("missing_function",)
    found = {symbol.name: (symbol.binding, symbol.type, symbol.size) for symbol in code_object.elf.dynamic_symbols}
    assert found["factor"] == ("GLOBAL", "OBJECT", 8)
    assert found["weak_state"] == ("WEAK", "OBJECT", 4)
    assert "folded" not in found
    assert {symbol.name: symbol.binding for symbol in code_object.elf.static_symbols}["folded"] == "LOCAL"


def test_host_library(data: Callable[[str], bytes]) -> None:
    elf = read_elf(data("needs_glibc.x86_64.elf"))
    assert elf.machine == EM_X86_64
    assert elf.needed == ("libc.so.6",)
    assert elf.needed_versions == ("GLIBC_2.34", "GLIBC_2.2.5")
    assert elf.undefined == ("puts", "dlopen", "not_defined_here")
    assert [symbol.name for symbol in elf.dynamic_symbols if not symbol.is_undefined] == ["fdb_entry"]
    bare = read_elf(data("two_entries.x86_64.elf"))
    assert (bare.needed, bare.needed_versions, bare.undefined) == ((), (), ())


def test_a_host_library_is_no_code_object(data: Callable[[str], bytes]) -> None:
    with pytest.raises(ElfError, match=r"^e_machine is 62, an AMDGPU code object has 224$"):
        read_code_object(data("two_entries.x86_64.elf"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not start with the ELF magic"),
        (b"\x7fELF", "ends inside the ELF header"),
        (b"\x7fELF\x01\x01" + bytes(60), "ELF class is 1, only 64-bit"),
        (b"\x7fELF\x02\x02" + bytes(60), "data encoding is 2, only little-endian"),
        (b"\x7fELF\x02\x01" + bytes(20), "the ELF header lies outside of the file"),
    ],
)
def test_not_elf(content: bytes, message: str) -> None:
    with pytest.raises(ElfError, match=message):
        read_elf(content)


def test_machine(data: Callable[[str], bytes]) -> None:
    assert elf_machine(data("two_kernels.gfx942.elf")[:20]) == EM_AMDGPU
    assert elf_machine(data("two_entries.x86_64.elf")) == EM_X86_64
    assert elf_machine(b"\x7fELF") is None
    assert elf_machine(b"__CLANG_OFFLOAD_BUNDLE__" + bytes(100)) is None


@pytest.mark.parametrize(
    ("e_flags", "words"),
    [
        (0x54C, "gfx942, xnack any, sramecc any (e_flags 0x54c)"),
        (0x41, "gfx1100 (e_flags 0x41)"),
        (0x0100055F, "gfx9-4-generic, xnack any, sramecc any, generic version 1 (e_flags 0x100055f)"),
        (0xA3F, "gfx90a, xnack off, sramecc off (e_flags 0xa3f)"),
        (0x7F, "unknown chip 0x7f (e_flags 0x7f)"),
    ],
)
def test_e_flags_in_words(e_flags: int, words: str) -> None:
    assert describe_e_flags(e_flags) == words


def read_any(content: bytes) -> None:
    for read in (read_elf, read_code_object):
        with contextlib.suppress(ElfError):
            read(content)


@pytest.mark.parametrize("name", FILES)
def test_every_prefix(name: str) -> None:
    content = (DATA / name).read_bytes()
    for end in range(len(content)):
        read_any(content[:end])


@pytest.mark.parametrize("name", FILES)
@given(changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_changed_bytes(name: str, changes: list[tuple[int, int]]) -> None:
    content = bytearray((DATA / name).read_bytes())
    for at, value in changes:
        content[at % len(content)] = value
    read_any(bytes(content))


@pytest.mark.parametrize("name", FILES)
@given(at=st.integers(0, 1 << 16), value=st.sampled_from([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, (1 << 64) - 1]))
@settings(max_examples=150, deadline=None)
def test_changed_words(name: str, at: int, value: int) -> None:
    content = bytearray((DATA / name).read_bytes())
    struct.pack_into("<Q", content, at % (len(content) - 8), value)
    read_any(bytes(content))


def test_names_longer_than_the_file_are_refused(data: Callable[[str], bytes]) -> None:
    """A string table of one long name, shared by thousands of symbols, would take gigabytes."""
    long_name = b"x" * (1 << 20) + b"\0"
    count = 4096
    symbols = b"".join(struct.pack("<IBBHQQ", n, 0, 0, 1, 0, 0) for n in range(count))
    strings_at = 64 + 3 * 64
    symbols_at = strings_at + len(long_name)
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64, 0, 64, 56, 0, 64, 3, 0)
    sections = struct.pack("<IIQQQQIIQQ", *[0] * 10)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, strings_at, len(long_name), 0, 0, 0, 0)
    sections += struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, symbols_at, len(symbols), 1, 0, 0, 24)
    with pytest.raises(ElfError, match="the names in the file are many times longer than the file"):
        read_elf(header + sections + long_name + symbols)
    del data


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (b"\xdd\xff\xff\xff\xff", "ends early"),
        (b"\x91" * 200 + b"\xc0", "nested more than 32 deep"),
        (b"\x80" + b"\x01" * 4, "goes on after its end"),
        (b"\x82\xa1a\x01\xa1a\x02", "has the key a twice"),
        (b"\x81\x01\x02", "a key that is not text"),
        (b"\xa1\xff", "not UTF-8"),
        (b"\xc4\x01a", "a value of kind 0xc4"),
        (b"\x81\xaeamdhsa.kernels\x05", "amdhsa.kernels is not an array"),
        (b"\x81\xaeamdhsa.kernels\x91\x80", r"amdhsa.kernels\[0\] has no .name"),
        (b"\x93\x01\x02\x03", "metadata is not a map"),
    ],
)
def test_bad_metadata(metadata: bytes, message: str) -> None:
    note = struct.pack("<III", 7, len(metadata), 32) + b"AMDGPU\0\0" + metadata + bytes(-len(metadata) % 4)
    header = b"\x7fELF\x02\x01\x01\x40\x04" + bytes(7) + struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, 0, 0x54C, 64, 56, 1, 64, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 4, 4, 120, 120, 120, len(note), len(note), 4)
    with pytest.raises(ElfError, match=message):
        read_code_object(header + segment + note)
