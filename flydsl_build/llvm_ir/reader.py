# SPDX-License-Identifier: Apache-2.0
"""Read an LLVM IR module, bitcode or text, without LLVM, and say what a file is that is none.

External bitcode is checked before FlyDSL links it, because LLVM passes over most of what can be wrong with it: code of another
chip, functions that are not there, globals that become internal.
"""

from __future__ import annotations

import struct
from typing import Final

from flydsl_build.llvm_ir.bitcode import BITCODE_MAGIC, WRAPPER_MAGIC, read_bitcode
from flydsl_build.llvm_ir.model import IRError, IRFunction, IRGlobal, IRModule
from flydsl_build.llvm_ir.text import read_ir_text

__all__ = ["IRError", "IRFunction", "IRGlobal", "IRModule", "read_ir"]

_BUNDLE: Final = (
    "is not LLVM IR: it is a clang offload bundle; compile for one target with --cuda-device-only -emit-llvm, "
    "or take one entry out with clang-offload-bundler"
)
_UNPACK: Final = "unpack it first"

# First bytes, and what a file is that begins with them.
_OTHER_KINDS: Final = (
    (b"__CLANG_OFFLOAD_BUNDLE__", _BUNDLE),
    (b"; __CLANG_OFFLOAD_BUNDLE__", _BUNDLE),
    (b"CCOB", f"is not LLVM IR: it is a compressed clang offload bundle; {_BUNDLE.partition('; ')[2]}"),
    (b"\x10\xff\x10\xad", "is not LLVM IR: it is an LLVM offload binary; take the image out with llvm-offload-binary"),
    (b"!<arch>\n", "is not LLVM IR: it is an archive; name the bitcode file in it (llvm-ar x) or link its members with llvm-link"),
    (b"!<thin>\n", "is not LLVM IR: it is a thin archive; name the bitcode file itself"),
    (b"ML\xefR", "is not LLVM IR: it is MLIR bytecode; translate it with mlir-translate --mlir-to-llvmir"),
    (b"\x03\x02\x23\x07", "is not LLVM IR: it is SPIR-V"),
    (b"\x1f\x8b", f"is not LLVM IR: it is gzip data; {_UNPACK}"),
    (b"\x28\xb5\x2f\xfd", f"is not LLVM IR: it is Zstandard data; {_UNPACK}"),
    (b"\xfd7zXZ\x00", f"is not LLVM IR: it is xz data; {_UNPACK}"),
    (b"BZh", f"is not LLVM IR: it is bzip2 data; {_UNPACK}"),
    (b"PK\x03\x04", f"is not LLVM IR: it is a zip archive; {_UNPACK}"),
    (b"MZ", "is not LLVM IR: it is a Windows program or library"),
    (b"version https://git-lfs.github.com/", "is not LLVM IR: it is a Git LFS pointer; get the file itself with git lfs pull"),
)
_ELF_MAGIC: Final = b"\x7fELF"
_ELF_MACHINE: Final = 18
_EM_AMDGPU: Final = 224
_CONTROL: Final = frozenset(range(0x20)) - frozenset(b"\t\n\r\f\v")
_SHOWN: Final = 8


def read_ir(data: bytes) -> IRModule:
    """Read an LLVM IR module in either form.

    Parameters
    ----------
    data
        The whole file.

    Raises
    ------
    IRError
        The data is not LLVM IR (the message says what it looks like), is truncated, malformed, or too old to be read.
    """
    if data.startswith((BITCODE_MAGIC, WRAPPER_MAGIC)):
        return read_bitcode(data)
    _refuse_other_kinds(data)
    return read_ir_text(data)


def _refuse_other_kinds(data: bytes) -> None:
    if not data.strip():
        msg = "is empty" if not data else "is empty but for white space"
        raise IRError(msg)
    if data.startswith(_ELF_MAGIC):
        raise IRError(_describe_elf(data))
    for magic, what in _OTHER_KINDS:
        if data.startswith(magic):
            raise IRError(what)
    if len(data) < len(BITCODE_MAGIC) and BITCODE_MAGIC.startswith(data):
        msg = "is truncated: it ends in the magic number of LLVM bitcode"
        raise IRError(msg)
    if not _CONTROL.isdisjoint(data):
        msg = f"is not LLVM IR: it is binary data of an unknown kind that begins with {data[:_SHOWN].hex(' ')}"
        raise IRError(msg)


def _describe_elf(data: bytes) -> str:
    machine = struct.unpack_from("<H", data, _ELF_MACHINE)[0] if len(data) >= _ELF_MACHINE + 2 else 0
    if machine == _EM_AMDGPU:
        return "is not LLVM IR: it is an AMDGPU code object (ELF), already compiled; give clang -emit-llvm to get bitcode"
    return "is not LLVM IR: it is an ELF object, already compiled; give clang -emit-llvm to get bitcode"
