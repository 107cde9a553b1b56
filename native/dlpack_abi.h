// SPDX-License-Identifier: Apache-2.0
// The binary interface of DLPack 1.x (https://dmlc.github.io/dlpack/latest/c_api.html), as far as a consumer needs it.

#ifndef FLYDSL_DLPACK_ABI_H
#define FLYDSL_DLPACK_ABI_H

#include <stdint.h>

enum {
  FDR_DL_CPU = 1,
  FDR_DL_CUDA = 2,
  FDR_DL_CUDA_HOST = 3,
  FDR_DL_ROCM = 10,
  FDR_DL_ROCM_HOST = 11,
  FDR_DL_CUDA_MANAGED = 13,
};

enum {
  FDR_DL_INT = 0,
  FDR_DL_UINT = 1,
  FDR_DL_FLOAT = 2,
  FDR_DL_BFLOAT = 4,
  FDR_DL_COMPLEX = 5,
  FDR_DL_BOOL = 6,
  FDR_DL_FLOAT8_E4M3 = 8,
  FDR_DL_FLOAT8_E4M3B11FNUZ = 9,
  FDR_DL_FLOAT8_E4M3FN = 10,
  FDR_DL_FLOAT8_E4M3FNUZ = 11,
  FDR_DL_FLOAT8_E5M2 = 12,
  FDR_DL_FLOAT8_E5M2FNUZ = 13,
  FDR_DL_FLOAT8_E8M0FNU = 14,
  FDR_DL_FLOAT6_E2M3FN = 15,
  FDR_DL_FLOAT6_E3M2FN = 16,
  FDR_DL_FLOAT4_E2M1FN = 17,
};

struct fdr_dltensor {
  void *data;
  int32_t device_type, device_id;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape;
  int64_t *strides; // in elements; NULL before DLPack 1.2: contiguous
  uint64_t byte_offset;
};

struct fdr_dlmanaged {
  struct fdr_dltensor tensor;
  void *context;
  void (*deleter)(struct fdr_dlmanaged *);
};

#define FDR_DL_FLAG_READ_ONLY 1U
#define FDR_DL_FLAG_IS_COPIED 2U
#define FDR_DL_FLAG_PADDED 4U // elements below 8 bits have a byte each

// Not of DLPack: set in `lanes` by our readers where the memory must not be written. No dtype has so many lanes.
#define FDR_READ_ONLY 0x8000U

struct fdr_dlmanaged_versioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct fdr_dlmanaged_versioned *);
  uint64_t flags;
  struct fdr_dltensor tensor;
};

// The C exchange table of a tensor type (`__dlpack_c_exchange_api__`, DLPack 1.2 and later).
struct fdr_dlexchange {
  uint32_t major, minor;
  struct fdr_dlexchange *previous;
  void *allocate, *to_managed, *from_managed;
  int (*to_dltensor)(void *object, struct fdr_dltensor *out); // may be NULL; the view lives as long as the object
  void *current_stream;
};

#endif
