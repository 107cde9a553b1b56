// SPDX-License-Identifier: Apache-2.0
// The constant data `flydsl_call_table` of a launcher library, version 1. flydsl_build/bundle/call_table.py writes it.
//
// Little-endian. `struct fdb_span` is an array in the table: its count, and where it begins, in bytes from the beginning
// of the table. A text is where it begins, and ends with a zero byte.

#ifndef FLYDSL_CORE_CALL_TABLE_H
#define FLYDSL_CORE_CALL_TABLE_H

#include <stdint.h>

#define FDB_TABLE_SYMBOL "flydsl_call_table"
#define FDB_TABLE_MAGIC "FDBTABLE"
enum { FDB_TABLE_VERSION = 1, FDB_TABLE_OFFSETS_32 = 1, FDB_TABLE_WRITTEN = 2 };

struct fdb_span {
  uint32_t count, at;
};

struct fdb_table_header {
  char magic[8];
  uint32_t version, size; // of all of the table, in bytes
  uint32_t module;        // text
  struct fdb_span targets, units, specializations;
  uint32_t reserved;
};

struct fdb_table_target {
  uint32_t name;            // text: a target ID, such as gfx942:xnack-
  struct fdb_span members;  // texts: the processors of a generic target, else none
};

struct fdb_table_unit {
  uint32_t name, bundle;    // texts; the bundle's file name may have {target} in it
  struct fdb_span axes;     // texts: name, value, name, value
  struct fdb_span init;     // texts
  struct fdb_span globals, code_objects;
};

struct fdb_table_global {
  uint32_t name, reserved;
  uint64_t size;
};

struct fdb_table_code_object {
  uint32_t target, e_flags;
  uint64_t offset, size; // in the bundle's file
  uint8_t sha256[32];
  struct fdb_span kernels;
};

struct fdb_table_kernel {
  uint32_t symbol; // text
  uint32_t max_workgroup, block[3];
};

struct fdb_table_specialization {
  uint32_t name; // text
  struct fdb_span arguments, slots;
  struct fdb_span names; // texts: of dims
  struct fdb_span entries;
};

struct fdb_table_argument {
  uint32_t label, expected; // texts
  uint32_t kind;            // enum fdb_argument_kind
  uint32_t dtype;           // DLPack's type code << 8 | bits
  uint32_t align, flags, rank;
  uint32_t shape, strides;  // where `rank` dims begin
};

struct fdb_table_dim {
  int64_t size; // -1: dynamic
  int32_t name; // -1: none
  uint32_t divisor;
};

struct fdb_table_slot {
  uint32_t kind; // enum fdb_slot_kind
  int32_t argument;
  uint32_t size;
  uint8_t shape_count, stride_count, shape_bytes, stride_bytes;
  uint8_t shape_dims[16], stride_dims[16];
};

struct fdb_table_entry {
  uint32_t target, unit;
  uint32_t symbol;         // text
  struct fdb_span kernels; // of the code object, by the entry's own numbers
};

#endif
