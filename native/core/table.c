// SPDX-License-Identifier: Apache-2.0
// Reads the call table of a launcher library into what calls use. Everything that a call relies on is checked here:
// offsets, indices, ranks, widths.

#include "runtime.h"

#include <stdlib.h>
#include <string.h>

struct reader {
  const char *data;
  size_t size;
  struct fdb_tables *tables;
};

struct fdb_allocation {
  struct fdb_allocation *next;
  max_align_t memory[];
};

static void *allocate(struct reader *reader, size_t count, size_t size) {
  struct fdb_allocation *made = calloc(1, sizeof *made + (count + 1) * size);
  if (!made) {
    fdb_fail(FDB_VALUE, "out of memory");
    return NULL;
  }
  made->next = reader->tables->allocations;
  reader->tables->allocations = made;
  return made->memory;
}

void fdb_free_tables(struct fdb_tables *tables) {
  while (tables && tables->allocations) {
    struct fdb_allocation *next = tables->allocations->next;
    free(tables->allocations);
    tables->allocations = next;
  }
  free(tables);
}

static enum fdb_code wrong(const char *what) { return fdb_fail(FDB_VALUE, "the call table is damaged: %s", what); }

// NULL, with the error said, where the table ends before.
static const void *records(const struct reader *reader, struct fdb_span span, size_t size, size_t align) {
  if (span.at % align || span.at > reader->size || (reader->size - span.at) / size < span.count) {
    wrong("an array is not inside of it");
    return NULL;
  }
  return reader->data + span.at;
}

static const char *text(const struct reader *reader, uint32_t at) {
  if (at >= reader->size || !memchr(reader->data + at, 0, reader->size - at)) {
    wrong("a text is not inside of it");
    return NULL;
  }
  return reader->data + at;
}

static const char **texts(struct reader *reader, struct fdb_span span) {
  const uint32_t *found = records(reader, span, sizeof *found, _Alignof(uint32_t));
  const char **made = found ? allocate(reader, span.count, sizeof *made) : NULL;
  for (uint32_t i = 0; made && i < span.count; i++) {
    if (!(made[i] = text(reader, found[i]))) {
      return NULL;
    }
  }
  return made;
}

#define RECORDS(reader, span, type) ((const type *)records(reader, span, sizeof(type), _Alignof(type)))

// ---- arguments and slots --------------------------------------------------------------------------------------------

// What can be made bits of.
static bool is_scalar(uint32_t dtype) {
  uint32_t code = dtype >> 8, bits = dtype & 0xff;
  bool integer = code == FDB_DL_INT || code == FDB_DL_UINT, real = code == FDB_DL_FLOAT;
  return (code == FDB_DL_BOOL && bits == 8) || (code == FDB_DL_BFLOAT && bits == 16) || (integer && bits == 8) ||
         ((integer || real) && (bits == 16 || bits == 32 || bits == 64));
}

static struct fdb_dim *read_dims(struct reader *reader, uint32_t at, uint32_t rank, uint32_t name_count) {
  const struct fdb_table_dim *found = RECORDS(reader, ((struct fdb_span){rank, at}), struct fdb_table_dim);
  struct fdb_dim *made = found ? allocate(reader, rank, sizeof *made) : NULL;
  for (uint32_t d = 0; made && d < rank; d++) {
    if (found[d].name >= (int64_t)name_count || !found[d].divisor || (found[d].divisor & (found[d].divisor - 1))) {
      wrong("a dim is out of range");
      return NULL;
    }
    made[d] = (struct fdb_dim){.size = found[d].size, .name = found[d].name, .divisor = found[d].divisor};
  }
  return made;
}

static enum fdb_code read_argument(struct reader *reader, const struct fdb_table_argument *found,
                                   const struct fdb_table *table, struct fdb_argument *argument) {
  if (found->kind > FDB_STREAM || found->rank > FDB_MAX_RANK || !found->align || (found->align & (found->align - 1)) ||
      (found->kind == FDB_SCALAR && !is_scalar(found->dtype))) {
    return wrong("an argument is out of range");
  }
  argument->kind = (enum fdb_argument_kind)found->kind;
  argument->dtype = found->dtype;
  argument->align = found->align;
  argument->rank = (int32_t)found->rank;
  argument->offsets_32 = found->flags & FDB_TABLE_OFFSETS_32;
  argument->written = found->flags & FDB_TABLE_WRITTEN;
  argument->label = text(reader, found->label);
  argument->expected = text(reader, found->expected);
  argument->shape = read_dims(reader, found->shape, found->rank, table->name_count);
  argument->strides = read_dims(reader, found->strides, found->rank, table->name_count);
  bool is_whole = argument->label && argument->expected && argument->shape && argument->strides;
  return is_whole ? FDB_OK : fdb_last_error()->code;
}

static bool has_dims(const uint8_t *dims, uint8_t count, int32_t rank) {
  for (int d = 0; d < count; d++) {
    if (dims[d] >= rank) {
      return false;
    }
  }
  return true;
}

static enum fdb_code read_slot(const struct fdb_table_slot *found, struct fdb_table *table, struct fdb_slot *slot) {
  // What each kind of slot may be filled from, so that packing needs no check of its own.
  static const int source_of_slot[] = {FDB_TENSOR, FDB_TENSOR, FDB_SCALAR, FDB_POINTER, FDB_STREAM};
  bool none = found->argument < 0;
  if (found->kind > FDB_SLOT_STREAM || (none && found->kind != FDB_SLOT_STREAM) ||
      (!none && ((uint32_t)found->argument >= table->argument_count ||
                 (int)table->arguments[found->argument].kind != source_of_slot[found->kind]))) {
    return wrong("a slot is out of range");
  }
  const struct fdb_argument *argument = none ? NULL : &table->arguments[found->argument];
  int32_t rank = none ? 0 : argument->rank;
  if (found->shape_count > FDB_MAX_RANK || found->stride_count > FDB_MAX_RANK ||
      (found->shape_bytes != 4 && found->shape_bytes != 8) || (found->stride_bytes != 4 && found->stride_bytes != 8) ||
      !has_dims(found->shape_dims, found->shape_count, rank) ||
      !has_dims(found->stride_dims, found->stride_count, rank)) {
    return wrong("a slot has a dim that its tensor does not have");
  }
  uint32_t packed = (uint32_t)(found->shape_count * found->shape_bytes + found->stride_count * found->stride_bytes);
  uint32_t needed = found->kind == FDB_SLOT_LAYOUT   ? packed
                    : found->kind == FDB_SLOT_SCALAR ? (argument->dtype & 0xff) / 8
                                                     : 8;
  if (found->size != needed) {
    return fdb_fail(FDB_VALUE, "the call table is damaged: a slot has %u bytes where %u are packed", found->size,
                    needed);
  }
  *slot = (struct fdb_slot){.kind = (enum fdb_slot_kind)found->kind,
                            .argument = found->argument,
                            .size = found->size,
                            .offset = none ? FDB_NULL_SLOT : table->block_size,
                            .shape_count = found->shape_count,
                            .stride_count = found->stride_count,
                            .shape_bytes = found->shape_bytes,
                            .stride_bytes = found->stride_bytes};
  memcpy(slot->shape_dims, found->shape_dims, sizeof slot->shape_dims);
  memcpy(slot->stride_dims, found->stride_dims, sizeof slot->stride_dims);
  table->block_size += none ? 0 : (slot->size + 15) & ~15U;
  return table->block_size > FDB_MAX_BLOCK ? wrong("the arguments of a call are too large") : FDB_OK;
}

static enum fdb_code read_call(struct reader *reader, const struct fdb_table_specialization *found,
                               struct fdb_table *table) {
  const struct fdb_table_argument *arguments = RECORDS(reader, found->arguments, struct fdb_table_argument);
  const struct fdb_table_slot *slots = RECORDS(reader, found->slots, struct fdb_table_slot);
  if (!arguments || !slots) {
    return fdb_last_error()->code;
  }
  if (found->arguments.count > FDB_MAX_ARGUMENTS || found->slots.count > 2 * FDB_MAX_ARGUMENTS ||
      found->names.count > 2 * FDB_MAX_ARGUMENTS * FDB_MAX_RANK) {
    return wrong("a call has too many arguments");
  }
  *table = (struct fdb_table){.argument_count = found->arguments.count,
                              .slot_count = found->slots.count,
                              .name_count = found->names.count,
                              .block_size = FDB_FIRST_SLOT,
                              .names = texts(reader, found->names),
                              .arguments = allocate(reader, found->arguments.count, sizeof *table->arguments),
                              .slots = allocate(reader, found->slots.count, sizeof *table->slots)};
  if (!table->names || !table->arguments || !table->slots) {
    return fdb_last_error()->code;
  }
  enum fdb_code failed = FDB_OK;
  for (uint32_t i = 0; !failed && i < table->argument_count; i++) {
    failed = read_argument(reader, &arguments[i], table, &table->arguments[i]);
  }
  for (uint32_t i = 0; !failed && i < table->slot_count; i++) {
    failed = read_slot(&slots[i], table, &table->slots[i]);
  }
  if (!failed) {
    fdb_finish_table(table);
  }
  return failed;
}

// ---- code objects and entries ---------------------------------------------------------------------------------------

static enum fdb_code read_code_object(struct reader *reader, const struct fdb_table_code_object *found,
                                      struct fdb_code_object *object) {
  const struct fdb_table_kernel *kernels = RECORDS(reader, found->kernels, struct fdb_table_kernel);
  if (!kernels || found->target >= reader->tables->target_count) {
    return kernels ? wrong("a code object is for no target") : fdb_last_error()->code;
  }
  *object = (struct fdb_code_object){.target = found->target,
                                     .e_flags = found->e_flags,
                                     .offset = found->offset,
                                     .size = found->size,
                                     .kernel_count = found->kernels.count,
                                     .kernels = allocate(reader, found->kernels.count, sizeof *object->kernels)};
  memcpy(object->sha256, found->sha256, sizeof object->sha256);
  for (uint32_t i = 0; object->kernels && i < object->kernel_count; i++) {
    struct fdb_kernel *kernel = &object->kernels[i];
    kernel->symbol = text(reader, kernels[i].symbol);
    kernel->max_workgroup = kernels[i].max_workgroup;
    memcpy(kernel->block, kernels[i].block, sizeof kernel->block);
    if (!kernel->symbol) {
      return fdb_last_error()->code;
    }
  }
  return object->kernels ? FDB_OK : fdb_last_error()->code;
}

static enum fdb_code read_unit(struct reader *reader, const struct fdb_table_unit *found, struct fdb_unit *unit) {
  const struct fdb_table_global *globals = RECORDS(reader, found->globals, struct fdb_table_global);
  const struct fdb_table_code_object *objects = RECORDS(reader, found->code_objects, struct fdb_table_code_object);
  if (!globals || !objects) {
    return fdb_last_error()->code;
  }
  *unit = (struct fdb_unit){.name = text(reader, found->name),
                            .bundle = text(reader, found->bundle),
                            .axis_count = found->axes.count / 2,
                            .axes = texts(reader, found->axes),
                            .init_count = found->init.count,
                            .init = texts(reader, found->init),
                            .global_count = found->globals.count,
                            .globals = allocate(reader, found->globals.count, sizeof *unit->globals),
                            .code_object_count = found->code_objects.count,
                            .code_objects = allocate(reader, found->code_objects.count, sizeof *unit->code_objects)};
  if (!unit->name || !unit->bundle || !unit->axes || !unit->init || !unit->globals || !unit->code_objects) {
    return fdb_last_error()->code;
  }
  for (uint32_t i = 0; i < unit->global_count; i++) {
    unit->globals[i] = (struct fdb_global){.name = text(reader, globals[i].name), .size = globals[i].size};
    if (!unit->globals[i].name) {
      return fdb_last_error()->code;
    }
  }
  enum fdb_code failed = FDB_OK;
  for (uint32_t i = 0; !failed && i < unit->code_object_count; i++) {
    failed = read_code_object(reader, &objects[i], &unit->code_objects[i]);
  }
  return failed;
}

const struct fdb_code_object *fdb_code_object_for(const struct fdb_unit *unit, uint32_t target) {
  for (uint32_t i = 0; i < unit->code_object_count; i++) {
    if (unit->code_objects[i].target == target) {
      return &unit->code_objects[i];
    }
  }
  return NULL;
}

static enum fdb_code read_entry(struct reader *reader, const struct fdb_table_entry *found,
                                struct fdb_entry_place *entry) {
  const uint32_t *kernels = RECORDS(reader, found->kernels, uint32_t);
  if (!kernels || !(entry->symbol = text(reader, found->symbol))) {
    return fdb_last_error()->code;
  }
  const struct fdb_tables *tables = reader->tables;
  const struct fdb_code_object *object = found->unit < tables->unit_count
                                             ? fdb_code_object_for(&tables->units[found->unit], found->target)
                                             : NULL;
  if (!object) {
    return wrong("an entry is of no code object");
  }
  for (uint32_t i = 0; i < found->kernels.count; i++) {
    if (kernels[i] >= object->kernel_count) {
      return wrong("an entry launches a kernel that its code object does not have");
    }
  }
  entry->target = found->target;
  entry->unit = found->unit;
  entry->kernel_count = found->kernels.count;
  entry->kernels = kernels;
  return FDB_OK;
}

static enum fdb_code read_specialization(struct reader *reader, const struct fdb_table_specialization *found,
                                         struct fdb_specialization *made) {
  const struct fdb_table_entry *entries = RECORDS(reader, found->entries, struct fdb_table_entry);
  if (!entries || !(made->name = text(reader, found->name)) ||
      !(made->entries = allocate(reader, found->entries.count, sizeof *made->entries))) {
    return fdb_last_error()->code;
  }
  made->entry_count = found->entries.count;
  enum fdb_code failed = read_call(reader, found, &made->table);
  for (uint32_t i = 0; !failed && i < made->entry_count; i++) {
    failed = read_entry(reader, &entries[i], &made->entries[i]);
  }
  return failed;
}

static enum fdb_code read_all(struct reader *reader) {
  const struct fdb_table_header *header = (const void *)reader->data;
  struct fdb_tables *tables = reader->tables;
  const struct fdb_table_target *targets = RECORDS(reader, header->targets, struct fdb_table_target);
  const struct fdb_table_unit *units = RECORDS(reader, header->units, struct fdb_table_unit);
  const struct fdb_table_specialization *specializations =
      RECORDS(reader, header->specializations, struct fdb_table_specialization);
  if (!targets || !units || !specializations || !(tables->module = text(reader, header->module)) ||
      !(tables->targets = allocate(reader, header->targets.count, sizeof *tables->targets)) ||
      !(tables->units = allocate(reader, header->units.count, sizeof *tables->units)) ||
      !(tables->specializations =
            allocate(reader, header->specializations.count, sizeof *tables->specializations))) {
    return fdb_last_error()->code;
  }
  tables->target_count = header->targets.count;
  for (uint32_t i = 0; i < tables->target_count; i++) {
    struct fdb_target *target = &tables->targets[i];
    target->member_count = targets[i].members.count;
    if (!(target->name = text(reader, targets[i].name)) || !(target->members = texts(reader, targets[i].members))) {
      return fdb_last_error()->code;
    }
  }
  enum fdb_code failed = FDB_OK;
  for (; !failed && tables->unit_count < header->units.count; tables->unit_count++) {
    failed = read_unit(reader, &units[tables->unit_count], &tables->units[tables->unit_count]);
  }
  for (uint32_t i = 0; !failed && i < header->specializations.count; i++) {
    failed = read_specialization(reader, &specializations[i], &tables->specializations[i]);
    tables->specialization_count = i + 1;
  }
  return failed;
}

enum fdb_code fdb_read_tables(const void *data, size_t size, struct fdb_tables **out) {
  struct fdb_table_header header;
  if (size < sizeof header || (uintptr_t)data % _Alignof(max_align_t) % 8) {
    return wrong("it is too short");
  }
  memcpy(&header, data, sizeof header);
  if (memcmp(header.magic, FDB_TABLE_MAGIC, sizeof header.magic) || header.size > size ||
      header.size < sizeof header) {
    return wrong("it has no header");
  }
  if (header.version != FDB_TABLE_VERSION) {
    return fdb_fail(FDB_VALUE, "the call table has version %u, this run time reads %d", header.version,
                    FDB_TABLE_VERSION);
  }
  struct fdb_tables *tables = calloc(1, sizeof *tables);
  if (!tables) {
    return fdb_fail(FDB_VALUE, "out of memory");
  }
  struct reader reader = {data, header.size, tables};
  enum fdb_code failed = read_all(&reader);
  if (failed) {
    fdb_free_tables(tables);
    return failed;
  }
  *out = tables;
  return FDB_OK;
}

// ---- which target ---------------------------------------------------------------------------------------------------

// Whether the device has the features that follow the processor's name in a target ID, such as :xnack-.
static bool features_fit(const char *wanted, const char *device, int *count) {
  *count = 0;
  while (*wanted == ':') {
    const char *name = wanted + 1;
    size_t length = strcspn(name, ":");
    for (const char *has = strchr(device, ':'); has && length > 1; has = strchr(has + 1, ':')) {
      if (!strncmp(has + 1, name, length - 1) && strcspn(has + 1, ":") == length && has[length] != name[length - 1]) {
        return false;
      }
    }
    *count += 1;
    wanted = name + length;
  }
  return true;
}

bool fdb_choose_target(const struct fdb_tables *tables, const bool *is_there, const char *device, uint32_t *chosen) {
  size_t length = strcspn(device, ":");
  int best = -1;
  for (uint32_t i = 0; i < tables->target_count; i++) {
    const struct fdb_target *target = &tables->targets[i];
    size_t own = strcspn(target->name, ":");
    bool native = own == length && !strncmp(target->name, device, length), runs = native;
    for (uint32_t k = 0; !runs && k < target->member_count; k++) {
      runs = strlen(target->members[k]) == length && !strncmp(target->members[k], device, length);
    }
    int features;
    if (runs && (!is_there || is_there[i]) && features_fit(target->name + own, device, &features)) {
      // HIP prefers a native code object over a generic one, and the one that names more features.
      int rank = native * 1000 + features;
      if (rank > best) {
        best = rank;
        *chosen = i;
      }
    }
  }
  return best >= 0;
}

bool fdb_flags_fit(uint32_t e_flags, const char *device) {
  // Bits of e_flags, https://llvm.org/docs/AMDGPUUsage.html: 0 unsupported, 1 any, 2 off, 3 on.
  static const struct {
    const char *off, *on;
    int shift;
  } features[] = {{":xnack-", ":xnack+", 8}, {":sramecc-", ":sramecc+", 10}};
  for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
    uint32_t sign = e_flags >> features[i].shift & 3;
    if ((sign == 2 && strstr(device, features[i].on)) || (sign == 3 && strstr(device, features[i].off))) {
      return false;
    }
  }
  return true;
}
