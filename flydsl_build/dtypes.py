# SPDX-License-Identifier: Apache-2.0
"""The element types of tensors, pointers and scalars, by the names FlyDSL's IR has for them."""

from __future__ import annotations

import difflib
from typing import NamedTuple

__all__ = ["DTYPES", "DTYPE_TABLE", "FLOAT_DTYPES", "HALF_BYTES", "NOT_INDEXED", "SCALAR_DTYPES", "Dtype", "dtype_hint", "element_bytes"]


class Dtype(NamedTuple):
    """An element type.

    The run time has copies, `runtime/dtypes.py` and `native/dtypes.h`, which `tests/test_dtypes.py` writes and compares.

    Parameters
    ----------
    name
        As in the declarations and the manifest.
    bits
        Of an element in memory. FlyDSL's `Boolean` is one bit wide as a value and one byte in memory.
    code
        DLPack's type code. https://dmlc.github.io/dlpack/latest/c_api.html
    framework
        What torch, and numpy with ml_dtypes, call it; empty where no framework has it with these bits in memory.
    flydsl
        FlyDSL's class of it; empty: none.
    scalar
        Whether it can be passed by value.
    indexed
        Whether FlyDSL 0.5 takes single elements of it out of memory, as `A[i]` does.
    """

    name: str
    bits: int
    code: int
    framework: str
    flydsl: str
    scalar: bool = False
    indexed: bool = True


DTYPE_TABLE = (
    Dtype("f64", 64, 2, "float64", "Float64", scalar=True),
    Dtype("f32", 32, 2, "float32", "Float32", scalar=True),
    Dtype("f16", 16, 2, "float16", "Float16", scalar=True),
    Dtype("bf16", 16, 4, "bfloat16", "BFloat16", scalar=True),
    Dtype("i64", 64, 0, "int64", "Int64", scalar=True),
    Dtype("i32", 32, 0, "int32", "Int32", scalar=True),
    Dtype("i16", 16, 0, "int16", "Int16", scalar=True),
    Dtype("i8", 8, 0, "int8", "Int8", scalar=True),
    Dtype("i4", 4, 0, "", "Int4", indexed=False),
    Dtype("u64", 64, 1, "uint64", "Uint64", scalar=True),
    Dtype("u32", 32, 1, "uint32", "Uint32", scalar=True),
    Dtype("u16", 16, 1, "uint16", "Uint16", scalar=True),
    Dtype("u8", 8, 1, "uint8", "Uint8", scalar=True),
    Dtype("bool", 8, 6, "bool", "Boolean", scalar=True),
    Dtype("f8e4m3fn", 8, 10, "float8_e4m3fn", "Float8E4M3FN"),
    Dtype("f8e4m3fnuz", 8, 11, "float8_e4m3fnuz", "Float8E4M3FNUZ", indexed=False),
    Dtype("f8e4m3b11fnuz", 8, 9, "float8_e4m3b11fnuz", "Float8E4M3B11FNUZ"),
    Dtype("f8e4m3", 8, 8, "float8_e4m3", "Float8E4M3"),
    Dtype("f8e5m2", 8, 12, "float8_e5m2", "Float8E5M2"),
    Dtype("f8e5m2fnuz", 8, 13, "float8_e5m2fnuz", "", indexed=False),
    Dtype("f8e8m0fnu", 8, 14, "float8_e8m0fnu", "Float8E8M0FNU"),
    Dtype("f6e2m3fn", 6, 15, "", "Float6E2M3FN", indexed=False),
    Dtype("f6e3m2fn", 6, 16, "", "Float6E3M2FN", indexed=False),
    Dtype("f4e2m1fn", 4, 17, "float4_e2m1fn_x2", "Float4E2M1FN", indexed=False),
)
"""All that tensors and pointers may have. Every other table of dtypes is made from this one."""

DTYPES = {dtype.name: dtype.bits for dtype in DTYPE_TABLE}
"""Bits of an element in memory."""

SCALAR_DTYPES = tuple(dtype.name for dtype in DTYPE_TABLE if dtype.scalar)
"""The types that can be passed by value."""

FLOAT_DTYPES = tuple(dtype.name for dtype in DTYPE_TABLE if dtype.code not in {0, 1, 6})
"""The types that are neither integers nor bool, by DLPack's type codes."""

NOT_INDEXED = tuple(dtype.name for dtype in DTYPE_TABLE if not dtype.indexed)
"""The types of which FlyDSL takes no single elements, or the wrong ones."""

HALF_BYTES = tuple(dtype.name for dtype in DTYPE_TABLE if dtype.bits == 4)
"""The types of which memory has two elements in a byte."""

_OTHER_NAMES = {
    "double": "f64",
    "float64": "f64",
    "fp64": "f64",
    "float": "f32",
    "float32": "f32",
    "fp32": "f32",
    "float16": "f16",
    "fp16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "bfloat": "bf16",
    "int": "i32",
    "int64": "i64",
    "long": "i64",
    "int32": "i32",
    "int16": "i16",
    "short": "i16",
    "int8": "i8",
    "char": "i8",
    "int4": "i4",
    "si64": "i64",
    "si32": "i32",
    "si16": "i16",
    "si8": "i8",
    "uint": "u32",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "ui64": "u64",
    "ui32": "u32",
    "ui16": "u16",
    "ui8": "u8",
    "byte": "u8",
    "boolean": "bool",
    "i1": "bool",
    "fp8": "f8e4m3fn",
    "f8": "f8e4m3fn",
    "float8": "f8e4m3fn",
    "fp8e4m3": "f8e4m3fn",
    "fp8e4m3fn": "f8e4m3fn",
    "fp8e4m3fnuz": "f8e4m3fnuz",
    "fp8e5m2": "f8e5m2",
    "fp8e5m2fnuz": "f8e5m2fnuz",
    "bf8": "f8e5m2",
    "float8e4m3fn": "f8e4m3fn",
    "float8e4m3fnuz": "f8e4m3fnuz",
    "float8e4m3b11fnuz": "f8e4m3b11fnuz",
    "float8e4m3": "f8e4m3",
    "float8e5m2": "f8e5m2",
    "float8e5m2fnuz": "f8e5m2fnuz",
    "float8e8m0fnu": "f8e8m0fnu",
    "e8m0": "f8e8m0fnu",
    "float6e2m3fn": "f6e2m3fn",
    "float6e3m2fn": "f6e3m2fn",
    "fp6": "f6e3m2fn",
    "float4e2m1fn": "f4e2m1fn",
    "float4e2m1fnx2": "f4e2m1fn",
    "fp4": "f4e2m1fn",
    "f4": "f4e2m1fn",
    "fp4e2m1": "f4e2m1fn",
}
"""What torch, numpy, ml_dtypes and C call these types, without underscores, in lower case."""


def element_bytes(dtype: str) -> int:
    """Return the bytes that an element's alignment is counted in: its size, at least 1 (two f4 share a byte)."""
    return (DTYPES[dtype] + 7) // 8


def dtype_hint(name: str) -> str:
    """Return what to write instead of an unknown dtype."""
    plain = name.rpartition(".")[2].replace("_", "").lower()
    right = plain if plain in DTYPES else _OTHER_NAMES.get(plain, "")
    if not right:
        near = difflib.get_close_matches(plain, DTYPES, n=1, cutoff=0.6)
        right = near[0] if near else ""
    if right:
        return f'Did you mean "{right}"?'
    return "Allowed: " + ", ".join(DTYPES) + "."
