# SPDX-License-Identifier: Apache-2.0
"""The element types. Made from flydsl_build/dtypes.py by tests/test_dtypes.py."""

from __future__ import annotations

__all__ = ["DTYPES", "FRAMEWORK_NAMES", "KEPT_IN_BYTES", "TYPE_NAMES"]

DTYPES = {
    "f64": 2 << 8 | 64,
    "f32": 2 << 8 | 32,
    "f16": 2 << 8 | 16,
    "bf16": 4 << 8 | 16,
    "i64": 0 << 8 | 64,
    "i32": 0 << 8 | 32,
    "i16": 0 << 8 | 16,
    "i8": 0 << 8 | 8,
    "i4": 0 << 8 | 4,
    "u64": 1 << 8 | 64,
    "u32": 1 << 8 | 32,
    "u16": 1 << 8 | 16,
    "u8": 1 << 8 | 8,
    "bool": 6 << 8 | 8,
    "f8e4m3fn": 10 << 8 | 8,
    "f8e4m3fnuz": 11 << 8 | 8,
    "f8e4m3b11fnuz": 9 << 8 | 8,
    "f8e4m3": 8 << 8 | 8,
    "f8e5m2": 12 << 8 | 8,
    "f8e5m2fnuz": 13 << 8 | 8,
    "f8e8m0fnu": 14 << 8 | 8,
    "f6e2m3fn": 15 << 8 | 6,
    "f6e3m2fn": 16 << 8 | 6,
    "f4e2m1fn": 17 << 8 | 4,
}
"""DLPack's type code << 8 | bits."""

FRAMEWORK_NAMES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "bool",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e4m3b11fnuz": "f8e4m3b11fnuz",
    "float8_e4m3": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
    "float4_e2m1fn_x2": "f4e2m1fn",
}
"""The dtype by the name that torch and numpy have for it."""

TYPE_NAMES = {
    "Float64": "f64",
    "Float32": "f32",
    "Float16": "f16",
    "BFloat16": "bf16",
    "Int64": "i64",
    "Int32": "i32",
    "Int16": "i16",
    "Int8": "i8",
    "Int4": "i4",
    "Uint64": "u64",
    "Uint32": "u32",
    "Uint16": "u16",
    "Uint8": "u8",
    "Boolean": "bool",
    "Float8E4M3FN": "f8e4m3fn",
    "Float8E4M3FNUZ": "f8e4m3fnuz",
    "Float8E4M3B11FNUZ": "f8e4m3b11fnuz",
    "Float8E4M3": "f8e4m3",
    "Float8E5M2": "f8e5m2",
    "Float8E8M0FNU": "f8e8m0fnu",
    "Float6E2M3FN": "f6e2m3fn",
    "Float6E3M2FN": "f6e3m2fn",
    "Float4E2M1FN": "f4e2m1fn",
}
"""FlyDSL's types, which the process may have or not, by class name."""

KEPT_IN_BYTES = {
    "i4",
    "f8e4m3fn",
    "f8e4m3fnuz",
    "f8e4m3b11fnuz",
    "f8e4m3",
    "f8e5m2",
    "f8e5m2fnuz",
    "f8e8m0fnu",
    "f6e2m3fn",
    "f6e3m2fn",
    "f4e2m1fn",
}
"""What a call takes as bytes too, from frameworks without such a dtype."""
