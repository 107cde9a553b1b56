// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of a call against a table and packs them into the block that the launcher library reads.

#include "dtypes.h"
#include "runtime.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *fdb_dtype_name(uint32_t dtype) {
  for (size_t i = 0; i < sizeof fdb_dtypes / sizeof *fdb_dtypes; i++) {
    if (fdb_dtypes[i].dtype == dtype) {
      return fdb_dtypes[i].name;
    }
  }
  return dtype == FDB_DTYPE(FDB_DL_COMPLEX, 64)    ? "complex64"
         : dtype == FDB_DTYPE(FDB_DL_COMPLEX, 128) ? "complex128"
                                                   : "an unknown dtype";
}

static uint32_t dtype_of(const struct fdb_dltensor *tensor) { return FDB_DTYPE(tensor->code, tensor->bits); }

static uint32_t element_of(const struct fdb_dltensor *tensor) {
  uint32_t element;
  memcpy(&element, &tensor->code, sizeof element);
  return element;
}

static uintptr_t address_of(const struct fdb_dltensor *tensor) {
  return (uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset;
}

static uint32_t lanes_of(const struct fdb_dltensor *tensor) { return tensor->lanes & ~FDB_READ_ONLY; }

// Elements below 8 bits and the floats of 8 are also kept as bytes, in frameworks without such a dtype.
static bool same_dtype(const struct fdb_argument *argument, const struct fdb_dltensor *tensor) {
  uint32_t want = argument->dtype, have = dtype_of(tensor);
  if (have == want) {
    return lanes_of(tensor) == 1 || (tensor->bits < 8 && argument->kind == FDB_POINTER);
  }
  bool byte = have == FDB_DTYPE(FDB_DL_UINT, 8) || have == FDB_DTYPE(FDB_DL_INT, 8);
  return lanes_of(tensor) == 1 && byte && ((want & 0xff) < 8 || want >> 8 > FDB_DL_BOOL);
}

// ---- messages -------------------------------------------------------------------------------------------------------

struct text {
  char *at;
  size_t left;
};

static void append(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(struct text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int count = vsnprintf(text->at, text->left, format, arguments);
  va_end(arguments);
  if (count > 0) {
    size_t step = (size_t)count < text->left ? (size_t)count : text->left - 1;
    text->at += step;
    text->left -= step;
  }
}

static void describe(char *buffer, size_t size, const struct fdb_dltensor *tensor) {
  struct text text = {buffer, size};
  append(&text, "%s[", fdb_dtype_name(dtype_of(tensor)));
  for (int d = 0; d < tensor->rank && d < FDB_MAX_RANK; d++) {
    append(&text, "%s%" PRId64, d ? ", " : "", tensor->shape[d]);
  }
  for (int d = 0; d < tensor->rank && d < FDB_MAX_RANK; d++) {
    append(&text, "%s%" PRId64, d ? ", " : " : ", tensor->strides[d]);
  }
  append(&text, "]");
}

struct check {
  const struct fdb_argument *argument;
  const struct fdb_table *table;
  const struct fdb_dltensor *tensor; // NULL for an argument that came as a bare pointer
  struct fdb_name_value *names;
  bool quiet;
};

static enum fdb_code wrong(const struct check *check, enum fdb_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static enum fdb_code wrong(const struct check *check, enum fdb_code code, const char *format, ...) {
  if (check->quiet) {
    return code;
  }
  char got[640], why[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, sizeof why, format, arguments);
  va_end(arguments);
  if (check->tensor) {
    describe(got, sizeof got, check->tensor);
  } else {
    snprintf(got, sizeof got, "a pointer");
  }
  return fdb_fail(code, "argument %s must be %s, got %s: %s", check->argument->label, check->argument->expected, got,
                  why);
}

// ---- checks ---------------------------------------------------------------------------------------------------------

static enum fdb_code explain_dim(const struct check *check, const struct fdb_dim *dim, const char *what, int d,
                                 int64_t value) {
  if (dim->size >= 0) {
    return wrong(check, FDB_VALUE, "%s %d is %" PRId64 ", not %" PRId64, what, d, value, dim->size);
  }
  if (value & (int64_t)(dim->divisor - 1)) {
    return wrong(check, FDB_VALUE, "%s %d is %" PRId64 ", which is not divisible by %u", what, d, value, dim->divisor);
  }
  const struct fdb_name_value *known = &check->names[dim->name];
  return wrong(check, FDB_VALUE, "%s is %" PRId64 " in %s but %" PRId64 " in %s", check->table->names[dim->name],
               known->value, check->table->arguments[known->argument].label, value, check->argument->label);
}

// On the path of every call, so it only says whether; explain_dim() says why.
static inline bool fits_dim(struct fdb_name_value *names, int32_t argument, const struct fdb_dim *dim, int64_t value) {
  if (dim->size >= 0) {
    return value == dim->size;
  }
  if (value & (int64_t)(dim->divisor - 1)) {
    return false;
  }
  if (dim->name < 0) {
    return true;
  }
  struct fdb_name_value *known = &names[dim->name];
  if (known->argument < 0) {
    known->value = value;
    known->argument = argument;
    return true;
  }
  return value == known->value;
}

static enum fdb_code check_pointer(const struct check *check, uintptr_t address) {
  if (address & (check->argument->align - 1)) {
    return wrong(check, FDB_VALUE, "the data is at 0x%" PRIxPTR ", which is not aligned to %u bytes", address,
                 check->argument->align);
  }
  return FDB_OK;
}

static enum fdb_code refuse_no_data(const struct check *check) { // torch's FakeTensor, for one
  return wrong(check, FDB_VALUE, "it has no data");
}

static enum fdb_code refuse_overlap(const struct check *check, int d) {
  return wrong(check, FDB_VALUE, "stride %d is 0, so its elements share memory, and the launcher writes it", d);
}

bool fdb_is_empty(const struct fdb_dltensor *tensor) {
  bool empty = false;
  for (int d = 0; d < tensor->rank; d++) {
    empty |= tensor->shape[d] == 0;
  }
  return empty;
}

static bool reaches_within_32_bits(const struct fdb_dltensor *tensor) {
  int64_t last = 0, reach; // the offset of the last element from the first
  for (int d = 0; d < tensor->rank; d++) {
    int64_t steps = tensor->shape[d] - 1;
    if (steps &&
        (__builtin_mul_overflow(steps, tensor->strides[d], &reach) || __builtin_add_overflow(last, reach, &last))) {
      return false;
    }
  }
  return last <= INT32_MAX;
}

static enum fdb_code check_tensor(const struct check *check) {
  const struct fdb_argument *argument = check->argument;
  const struct fdb_dltensor *tensor = check->tensor;
  if (!same_dtype(argument, tensor)) {
    return wrong(check, FDB_TYPE, "the dtype is %s%s, not %s", fdb_dtype_name(dtype_of(tensor)),
                 lanes_of(tensor) == 1 ? "" : " in vectors", fdb_dtype_name(argument->dtype));
  }
  if (argument->written && (tensor->lanes & FDB_READ_ONLY)) {
    return wrong(check, FDB_VALUE, "it is read-only, and the launcher writes it");
  }
  if (argument->kind == FDB_POINTER) {
    if (fdb_is_empty(tensor)) {
      return check_pointer(check, address_of(tensor));
    }
    for (int d = 0; d < tensor->rank; d++) {
      if (tensor->shape[d] > 1 && tensor->strides[d] < 0) { // elements lie before the address, and none behind it
        return wrong(check, FDB_VALUE,
                     "stride %d is negative, of which a pointer says nothing; pass a contiguous copy, or an address as "
                     "an int",
                     d);
      }
      if (tensor->shape[d] > 1 && !tensor->strides[d] && argument->written) {
        return refuse_overlap(check, d);
      }
    }
    return tensor->data ? check_pointer(check, address_of(tensor)) : refuse_no_data(check);
  }
  if (tensor->rank != argument->rank) {
    return wrong(check, FDB_TYPE, "the rank is %d, not %d", tensor->rank, argument->rank);
  }
  // Copies in registers: a store to `names` could change what lies behind any pointer.
  struct fdb_name_value *names = check->names;
  const int32_t index = (int32_t)(argument - check->table->arguments), rank = tensor->rank;
  const int64_t *shape = tensor->shape, *strides = tensor->strides;
  bool empty = false;
  for (int d = 0; d < rank; d++) {
    int64_t extent = shape[d];
    if (!fits_dim(names, index, &argument->shape[d], extent)) {
      return explain_dim(check, &argument->shape[d], "extent", d, extent);
    }
    if (extent < 0) {
      return wrong(check, FDB_VALUE, "extent %d is negative", d);
    }
    if (extent > INT32_MAX) {
      return wrong(check, FDB_OVERFLOW, "extent %d does not fit in 32 bits", d);
    }
    empty |= extent == 0;
  }
  if (empty) {
    return FDB_OK; // nothing is read, so neither strides nor address mean anything
  }
  for (int d = 0; d < rank; d++) {
    if (shape[d] == 1) {
      continue; // never multiplied by anything but 0; frameworks put any value there
    }
    int64_t stride = strides[d];
    if (!fits_dim(names, index, &argument->strides[d], stride)) {
      return explain_dim(check, &argument->strides[d], "stride", d, stride);
    }
    if (stride < 0) {
      return wrong(check, FDB_VALUE, "stride %d is negative", d);
    }
    if (!stride && argument->written && argument->strides[d].size) { // not where the declaration says so
      return refuse_overlap(check, d);
    }
  }
  if (argument->offsets_32 && !reaches_within_32_bits(tensor)) {
    return wrong(
        check, FDB_OVERFLOW,
        "the last element is more than 2^31 - 1 elements from the first, and the kernel was compiled for 32-bit "
        "strides");
  }
  if (!tensor->data) {
    return refuse_no_data(check);
  }
  return check_pointer(check, address_of(tensor));
}

static uint32_t type_of(const struct fdb_dltensor *tensor) {
  return tensor->device_type > 0 && tensor->device_type < 32 ? 1U << tensor->device_type : 0;
}

// Managed memory is every device's, and what the CUDA array interface names goes by that, since it names no device.
static bool may_be_pageable(const struct fdb_driver *driver, uint32_t type) {
  return type & driver->host_types & ~(1U << FDB_DL_CUDA_MANAGED);
}

enum fdb_code fdb_check_host_memory(const struct fdb_driver *driver, const struct fdb_table *table,
                                    const struct fdb_value *values, int device) {
  for (uint32_t i = 0; driver->reads_host && i < table->argument_count; i++) {
    const struct fdb_dltensor *tensor = values[i].tensor;
    if (tensor && may_be_pageable(driver, type_of(tensor)) && !fdb_is_empty(tensor) &&
        !driver->reads_host(device, (const void *)address_of(tensor))) {
      return fdb_fail(FDB_TYPE,
                      "argument %s is in host memory, which device %d cannot read; move it to the device, or allocate "
                      "it pinned",
                      table->arguments[i].label, device);
    }
  }
  return FDB_OK;
}

enum fdb_code fdb_find_device(const struct fdb_driver *driver, const struct fdb_table *table,
                              const struct fdb_value *values, int *device, bool *host) {
  int32_t first = -1;
  int32_t known_type = -1, known_id = -1;
  *device = -1;
  *host = false;
  for (uint32_t i = 0; i < table->argument_count; i++) {
    const struct fdb_argument *argument = &table->arguments[i];
    const struct fdb_dltensor *tensor = values[i].tensor;
    if (!tensor) {
      continue;
    }
    if (tensor->device_type == known_type && tensor->device_id == known_id) {
      continue;
    }
    known_type = tensor->device_type;
    known_id = tensor->device_id;
    uint32_t type = type_of(tensor);
    if (type & driver->host_types) {
      *host |= may_be_pageable(driver, type);
      continue;
    }
    if (!(type & driver->device_types)) {
      return fdb_fail(FDB_VALUE, "argument %s is on a device of DLPack type %d, which %s does not reach",
                      argument->label, tensor->device_type, driver->name);
    }
    if (first >= 0 && tensor->device_id != *device) {
      return fdb_fail(FDB_VALUE, "argument %s is on device %d, but argument %s is on device %d", argument->label,
                      tensor->device_id, table->arguments[first].label, *device);
    }
    if (tensor->device_id < 0 || tensor->device_id >= FDB_MAX_DEVICES) {
      return fdb_fail(FDB_VALUE, "argument %s is on device %d; this run time serves devices 0 to %d", argument->label,
                      tensor->device_id, FDB_MAX_DEVICES - 1);
    }
    *device = tensor->device_id;
    first = first < 0 ? (int32_t)i : first;
  }
  return FDB_OK;
}

// ---- packing --------------------------------------------------------------------------------------------------------

// Little-endian, as everything that this run time serves. Of constant sizes, memcpy is one store.
static inline void put(char *at, uint64_t value, uint32_t bytes) {
  switch (bytes) {
  case 8:
    memcpy(at, &value, 8);
    break;
  case 4:
    memcpy(at, &value, 4);
    break;
  case 2:
    memcpy(at, &value, 2);
    break;
  default:
    memcpy(at, &value, 1);
    break;
  }
}

static inline void put_dim(char *block, const struct fdb_dim *dim, int64_t value) {
  if (dim->wide) {
    memcpy(block + dim->at, &value, 8);
  } else {
    memcpy(block + dim->at, &value, 4);
  }
}

static void pack_tensor(const struct fdb_argument *argument, const struct fdb_dltensor *tensor, char *block) {
  put(block + argument->at, address_of(tensor), 8);
  for (int d = 0; argument->kind == FDB_TENSOR && d < argument->rank; d++) {
    put_dim(block, &argument->shape[d], tensor->shape[d]);
    put_dim(block, &argument->strides[d], tensor->strides[d]);
  }
}

// Packs slot by slot, whatever fdb_check_and_pack() has packed before.
static void pack_repeats(const struct fdb_table *table, const struct fdb_value *values, char *block) {
  for (uint32_t i = 0; i < table->slot_count; i++) {
    const struct fdb_slot *slot = &table->slots[i];
    char *at = block + slot->offset;
    if (slot->argument < 0) {
      continue;
    }
    const struct fdb_value *value = &values[slot->argument];
    if (slot->kind != FDB_SLOT_LAYOUT) {
      put(at, value->tensor ? address_of(value->tensor) : value->bits, slot->size);
      continue;
    }
    for (int d = 0; d < slot->shape_count; d++, at += slot->shape_bytes) {
      put(at, (uint64_t)value->tensor->shape[slot->shape_dims[d]], slot->shape_bytes);
    }
    for (int d = 0; d < slot->stride_count; d++, at += slot->stride_bytes) {
      put(at, (uint64_t)value->tensor->strides[slot->stride_dims[d]], slot->stride_bytes);
    }
  }
}

// Gives a dim its place; one that has a place already is left to pack_repeats().
static void place(struct fdb_table *table, struct fdb_dim *dim, uint32_t at, uint8_t bytes) {
  if (dim->at) {
    table->repeats = true;
  }
  dim->at = at;
  dim->wide = bytes == 8;
}

void fdb_finish_table(struct fdb_table *table) {
  for (uint32_t i = 0; i < table->argument_count; i++) {
    struct fdb_argument *argument = &table->arguments[i];
    const struct fdb_dltensor like = {
        .code = (uint8_t)(argument->dtype >> 8), .bits = (uint8_t)argument->dtype, .lanes = 1};
    argument->element = element_of(&like);
    const struct fdb_dltensor read_only = {.lanes = FDB_READ_ONLY};
    argument->matters = argument->written ? UINT32_MAX : ~element_of(&read_only);
    argument->size = 8;
  }
  for (uint32_t i = 0; i < table->slot_count; i++) {
    const struct fdb_slot *slot = &table->slots[i];
    if (slot->argument < 0) {
      continue;
    }
    struct fdb_argument *argument = &table->arguments[slot->argument];
    if (slot->kind != FDB_SLOT_LAYOUT) {
      table->repeats |= argument->at != 0;
      argument->at = slot->offset;
      argument->size = (uint8_t)slot->size;
      continue;
    }
    uint32_t at = slot->offset;
    for (int d = 0; d < slot->shape_count; d++, at += slot->shape_bytes) {
      place(table, &argument->shape[slot->shape_dims[d]], at, slot->shape_bytes);
    }
    for (int d = 0; d < slot->stride_count; d++, at += slot->stride_bytes) {
      place(table, &argument->strides[slot->stride_dims[d]], at, slot->stride_bytes);
    }
  }
}

// ---- both at once, for every call -----------------------------------------------------------------------------------

// Checks and packs a tensor of the very dtype, with data. False: it has to be looked at closely, which may still find
// nothing wrong. What it then leaves in `names` and `block` is what check_tensor() and pack_tensor() put there, too.
static inline bool take_tensor(const struct fdb_argument *argument, const struct fdb_dltensor *tensor, int32_t index,
                               struct fdb_name_value *names, char *block) {
  const int32_t rank = argument->rank;
  if ((element_of(tensor) & argument->matters) != argument->element || tensor->rank != rank) {
    return false;
  }
  // Copies in registers: a store could change what lies behind any pointer.
  const struct fdb_dim *dims = argument->shape;
  const int64_t *shape = tensor->shape, *strides = tensor->strides;
  uint64_t odd = 0; // above bit 30: an extent is 0, negative or too large; then bit 63: a stride is negative, or
                    // 0 where the elements are written
  for (int d = 0; d < rank; d++) {
    int64_t extent = shape[d];
    if (!fits_dim(names, index, &dims[d], extent)) {
      return false;
    }
    odd |= (uint64_t)extent | (uint64_t)(extent - 1);
    put_dim(block, &dims[d], extent);
  }
  if (odd >> 31) {
    return false; // of an empty tensor, the strides must not give their names a value
  }
  odd = 0;
  dims = argument->strides;
  for (int d = 0; d < rank; d++) {
    int64_t stride = strides[d];
    if (shape[d] != 1) { // see check_tensor()
      if (!fits_dim(names, index, &dims[d], stride)) {
        return false;
      }
      odd |= (uint64_t)stride | ((uint64_t)stride - argument->written);
    }
    put_dim(block, &dims[d], stride);
  }
  uintptr_t address = address_of(tensor);
  if (odd >> 63 || !tensor->data || (address & (argument->align - 1)) ||
      (argument->offsets_32 && !reaches_within_32_bits(tensor))) {
    return false;
  }
  memcpy(block + argument->at, &address, 8);
  return true;
}

static enum fdb_code take_closely(const struct fdb_table *table, uint32_t i, const struct fdb_value *value,
                                  struct fdb_name_value *names, char *block, bool quiet) {
  const struct check check = {&table->arguments[i], table, value->tensor, names, quiet};
  enum fdb_code failed = value->tensor ? check_tensor(&check) : check_pointer(&check, (uintptr_t)value->bits);
  if (failed) {
    return failed;
  }
  if (value->tensor) {
    pack_tensor(check.argument, value->tensor, block);
  } else {
    put(block + check.argument->at, value->bits, 8);
  }
  return FDB_OK;
}

enum fdb_code fdb_check_and_pack(const struct fdb_table *table, const struct fdb_value *values,
                                 struct fdb_name_value *names, char *block, bool quiet) {
  memset(block + FDB_NULL_SLOT, 0, 8);
  for (uint32_t i = 0; i < table->name_count; i++) {
    names[i].argument = -1;
  }
  const struct fdb_argument *argument = table->arguments;
  const struct fdb_value *value = values;
  for (uint32_t i = 0, count = table->argument_count; i < count; i++, argument++, value++) {
    if (argument->kind == FDB_TENSOR) {
      if (take_tensor(argument, value->tensor, (int32_t)i, names, block)) {
        continue;
      }
    } else if (argument->kind != FDB_POINTER) {
      put(block + argument->at, value->bits, argument->size);
      continue;
    }
    enum fdb_code failed = take_closely(table, i, value, names, block, quiet);
    if (failed) {
      return failed;
    }
  }
  if (table->repeats) {
    pack_repeats(table, values, block);
  }
  return FDB_OK;
}

bool fdb_round_float(double value, unsigned exponent_bits, unsigned fraction_bits, uint64_t *bits) {
  int bias = (1 << (exponent_bits - 1)) - 1;
  uint64_t sign = (uint64_t)(signbit(value) != 0) << (exponent_bits + fraction_bits);
  uint64_t infinity = (uint64_t)(2 * bias + 1) << fraction_bits;
  if (isnan(value)) {
    *bits = sign | infinity | (uint64_t)1 << (fraction_bits - 1);
    return true;
  }
  if (isinf(value) || value == 0) {
    *bits = sign | (isinf(value) ? infinity : 0);
    return true;
  }
  uint64_t raw;
  memcpy(&raw, &value, sizeof raw);
  int exponent = (int)(raw >> 52 & 0x7ff) - 1023;
  uint64_t fraction = (raw & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
  // Subnormal doubles are far below half of the smallest subnormal of every narrower format.
  int drop = 52 - (int)fraction_bits;
  if (exponent < 1 - bias) {
    drop += 1 - bias - exponent;
    exponent = -bias;
  }
  uint64_t kept = 0;
  if (drop <= 54) {
    uint64_t half = (uint64_t)1 << (drop - 1), rest = fraction & (((uint64_t)1 << drop) - 1);
    kept = fraction >> drop;
    kept += rest > half || (rest == half && (kept & 1));
  }
  // A carry out of the fraction raises the exponent by itself.
  uint64_t magnitude = exponent == -bias ? kept : kept + ((uint64_t)(exponent + bias - 1) << fraction_bits);
  *bits = sign | magnitude;
  return magnitude < infinity;
}
