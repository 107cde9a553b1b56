# SPDX-License-Identifier: Apache-2.0
"""Fuzzer of the ELF reader: headers, symbols, versions, notes, and the metadata in them. Started by test_fuzzers.py."""

from __future__ import annotations

from pathlib import Path

from fuzzing import fuzz, mutated
from hypothesis import strategies as st

from flydsl_build.targets.code_object import describe_e_flags, read_code_object
from flydsl_build.targets.elf import EM_AMDGPU, ElfError, read_elf

FILES = [path.read_bytes() for path in sorted((Path(__file__).parent / "data").glob("*.elf"))]


def read(data: bytes) -> None:
    if read_elf(data).machine == EM_AMDGPU:
        code_object = read_code_object(data)
        assert len({kernel.symbol for kernel in code_object.kernels}) == len(code_object.kernels)
        assert describe_e_flags(code_object.elf.e_flags)


def with_metadata(data: bytes) -> st.SearchStrategy[bytes]:
    """Return files in which only the metadata differs, in its old length, so that the rest stays what it is."""
    start = data.index(b"AMDGPU\0\0") + 8
    size = int.from_bytes(data[start - 16 : start - 12], "little")
    return mutated([data[start : start + size]]).map(lambda made: data[:start] + made[:size].ljust(size, b"\0") + data[start + size :])


def test_elf() -> None:
    code_objects = [data for data in FILES if b"AMDGPU\0\0" in data]
    assert len(code_objects) == 3
    for data in FILES:
        read(data)
    fuzz(st.one_of(mutated(FILES), *map(with_metadata, code_objects)), read, (ElfError,))
