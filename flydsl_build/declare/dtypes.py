# SPDX-License-Identifier: Apache-2.0
"""The element types of tensors, pointers and scalars, by the names FlyDSL's IR has for them."""

from __future__ import annotations

import difflib

__all__ = ["DTYPES", "SCALAR_DTYPES", "dtype_hint", "element_bytes"]

DTYPES: dict[str, int] = {
    "f64": 64,
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "i64": 64,
    "i32": 32,
    "i16": 16,
    "i8": 8,
    "i4": 4,
    "u64": 64,
    "u32": 32,
    "u16": 16,
    "u8": 8,
    "bool": 8,
    "f8e4m3fn": 8,
    "f8e4m3fnuz": 8,
    "f8e4m3b11fnuz": 8,
    "f8e4m3": 8,
    "f8e5m2": 8,
    "f8e5m2fnuz": 8,
    "f8e8m0fnu": 8,
    "f6e2m3fn": 6,
    "f6e3m2fn": 6,
    "f4e2m1fn": 4,
}
"""Bits of an element in memory. FlyDSL's `Boolean` is one bit wide as a value and one byte in memory."""

SCALAR_DTYPES: tuple[str, ...] = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "bool")
"""The types that can be passed by value."""

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
