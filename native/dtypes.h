// SPDX-License-Identifier: Apache-2.0
// The element types. Made from flydsl_build/dtypes.py by tests/test_dtypes.py.

#ifndef FLYDSL_DTYPES_H
#define FLYDSL_DTYPES_H

#include <stdint.h>

static const struct {
  uint32_t dtype; // DLPack's type code << 8 | bits
  const char *name, *framework;
} fdr_dtypes[] = {
    {2 << 8 | 64, "f64", "float64"},
    {2 << 8 | 32, "f32", "float32"},
    {2 << 8 | 16, "f16", "float16"},
    {4 << 8 | 16, "bf16", "bfloat16"},
    {0 << 8 | 64, "i64", "int64"},
    {0 << 8 | 32, "i32", "int32"},
    {0 << 8 | 16, "i16", "int16"},
    {0 << 8 | 8, "i8", "int8"},
    {0 << 8 | 4, "i4", ""},
    {1 << 8 | 64, "u64", "uint64"},
    {1 << 8 | 32, "u32", "uint32"},
    {1 << 8 | 16, "u16", "uint16"},
    {1 << 8 | 8, "u8", "uint8"},
    {6 << 8 | 8, "bool", "bool"},
    {10 << 8 | 8, "f8e4m3fn", "float8_e4m3fn"},
    {11 << 8 | 8, "f8e4m3fnuz", "float8_e4m3fnuz"},
    {9 << 8 | 8, "f8e4m3b11fnuz", "float8_e4m3b11fnuz"},
    {8 << 8 | 8, "f8e4m3", "float8_e4m3"},
    {12 << 8 | 8, "f8e5m2", "float8_e5m2"},
    {13 << 8 | 8, "f8e5m2fnuz", "float8_e5m2fnuz"},
    {14 << 8 | 8, "f8e8m0fnu", "float8_e8m0fnu"},
    {15 << 8 | 6, "f6e2m3fn", ""},
    {16 << 8 | 6, "f6e3m2fn", ""},
    {17 << 8 | 4, "f4e2m1fn", "float4_e2m1fn_x2"},
};

#endif
