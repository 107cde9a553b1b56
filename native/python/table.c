// SPDX-License-Identifier: Apache-2.0
// Compiles the description of a launcher, which Python makes of the manifest, into tables for the calls.
// Everything that a call relies on is checked here: indices, ranks, widths.

#include "binding.h"

#include <string.h>

struct allocation {
  struct allocation *next;
  max_align_t memory[];
};

static void *allocate(struct launcher_table *table, size_t count, size_t size) {
  struct allocation *made = PyMem_Calloc(1, sizeof *made + (count ? count : 1) * size);
  if (!made) {
    PyErr_NoMemory();
    return NULL;
  }
  made->next = table->allocations;
  table->allocations = made;
  return made->memory;
}

void free_table(struct launcher_table *table) {
  if (!table) {
    return;
  }
  while (table->allocations) {
    struct allocation *next = table->allocations->next;
    PyMem_Free(table->allocations);
    table->allocations = next;
  }
  Py_XDECREF(table->description);
  PyMem_Free(table);
}

static int describe_dims(struct launcher_table *table, PyObject *dims, int32_t name_count, struct fdb_dim **out,
                         int32_t *rank) {
  Py_ssize_t count = PyTuple_Size(dims);
  if (count < 0 || count > FDB_MAX_RANK || !(*out = allocate(table, (size_t)count, sizeof **out))) {
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_ValueError, "rank %zd is more than %d", count, (int)FDB_MAX_RANK);
    }
    return -1;
  }
  *rank = (int32_t)count;
  for (Py_ssize_t d = 0; d < count; d++) {
    long long size;
    int name;
    unsigned divisor;
    if (!PyArg_ParseTuple(PyTuple_GetItem(dims, d), "LiI", &size, &name, &divisor)) {
      return -1;
    }
    if (name >= name_count || !divisor || (divisor & (divisor - 1))) {
      PyErr_SetString(PyExc_ValueError, "a dim is out of range");
      return -1;
    }
    (*out)[d] = (struct fdb_dim){.size = size, .name = name, .divisor = divisor};
  }
  return 0;
}

// Names of attributes, which messages show.
static bool is_path(PyObject *path) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(path); i++) {
    if (!PyUnicode_Check(PyTuple_GetItem(path, i))) {
      return false;
    }
  }
  return true;
}

// What read_scalar() makes bits of.
static bool is_scalar(uint32_t dtype) {
  uint32_t code = dtype >> 8, bits = dtype & 0xff;
  bool integer = code == FDB_DL_INT || code == FDB_DL_UINT, real = code == FDB_DL_FLOAT;
  return (code == FDB_DL_BOOL && bits == 8) || (code == FDB_DL_BFLOAT && bits == 16) || (integer && bits == 8) ||
         ((integer || real) && (bits == 16 || bits == 32 || bits == 64));
}

static int describe_argument(struct launcher_table *table, struct specialization *made, uint32_t i, PyObject *item) {
  struct fdb_argument *argument = &made->table.arguments[i];
  struct source *source = &made->sources[i];
  PyObject *shape, *strides;
  int kind, offsets_32, written;
  int32_t stride_rank;
  if (!PyArg_ParseTuple(item, "iiO!siIsO!O!Iii", &source->parameter, &source->view, &PyTuple_Type, &source->path,
                        &argument->label, &kind, &argument->dtype, &argument->expected, &PyTuple_Type, &shape,
                        &PyTuple_Type, &strides, &argument->align, &offsets_32, &written) ||
      describe_dims(table, shape, (int32_t)made->table.name_count, &argument->shape, &argument->rank) < 0 ||
      describe_dims(table, strides, (int32_t)made->table.name_count, &argument->strides, &stride_rank) < 0) {
    return -1;
  }
  source->depth = PyTuple_Size(source->path);
  argument->kind = (enum fdb_argument_kind)kind;
  argument->offsets_32 = offsets_32;
  argument->written = written;
  bool has_view = kind == FDB_TENSOR || kind == FDB_POINTER;
  if (kind < FDB_TENSOR || kind > FDB_STREAM || source->parameter < 0 || source->parameter >= table->parameter_count ||
      has_view != (source->view >= 0) || source->view >= table->view_count || stride_rank != argument->rank ||
      !argument->align || (argument->align & (argument->align - 1)) || !is_path(source->path) ||
      (kind == FDB_SCALAR && !is_scalar(argument->dtype))) {
    PyErr_SetString(PyExc_ValueError, "an argument is out of range");
    return -1;
  }
  if (kind == FDB_STREAM) {
    made->stream = (int)i;
  }
  return 0;
}

static int describe_slot_dims(PyObject *dims, int32_t rank, uint8_t *out, uint8_t *count) {
  Py_ssize_t size = PyTuple_Size(dims);
  if (size > FDB_MAX_RANK) {
    PyErr_SetString(PyExc_ValueError, "a slot has too many dims");
    return -1;
  }
  *count = (uint8_t)size;
  for (Py_ssize_t d = 0; d < size; d++) {
    long dim = PyLong_AsLong(PyTuple_GetItem(dims, d));
    if (dim < 0 || dim >= rank) {
      if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "a slot has a dim that its tensor does not have");
      }
      return -1;
    }
    out[d] = (uint8_t)dim;
  }
  return 0;
}

static int describe_slot(struct specialization *made, uint32_t i, PyObject *item) {
  struct fdb_slot *slot = &made->table.slots[i];
  PyObject *shape_dims, *stride_dims;
  int kind;
  unsigned char shape_bits, stride_bits;
  if (!PyArg_ParseTuple(item, "iiIO!O!bb", &slot->argument, &kind, &slot->size, &PyTuple_Type, &shape_dims,
                        &PyTuple_Type, &stride_dims, &shape_bits, &stride_bits)) {
    return -1;
  }
  // What each kind of slot may be filled from, so that packing needs no check of its own.
  static const int source_of_slot[] = {FDB_TENSOR, FDB_TENSOR, FDB_SCALAR, FDB_POINTER, FDB_STREAM};
  bool none = slot->argument < 0;
  if (kind < FDB_SLOT_DATA || kind > FDB_SLOT_STREAM || (none && kind != FDB_SLOT_STREAM) ||
      (!none && ((uint32_t)slot->argument >= made->table.argument_count ||
                 (int)made->table.arguments[slot->argument].kind != source_of_slot[kind])) ||
      (shape_bits != 32 && shape_bits != 64) || (stride_bits != 32 && stride_bits != 64)) {
    PyErr_SetString(PyExc_ValueError, "a slot is out of range");
    return -1;
  }
  slot->kind = (enum fdb_slot_kind)kind;
  slot->shape_bytes = shape_bits / 8;
  slot->stride_bytes = stride_bits / 8;
  int32_t rank = none ? 0 : made->table.arguments[slot->argument].rank;
  if (describe_slot_dims(shape_dims, rank, slot->shape_dims, &slot->shape_count) < 0 ||
      describe_slot_dims(stride_dims, rank, slot->stride_dims, &slot->stride_count) < 0) {
    return -1;
  }
  uint32_t needed = kind == FDB_SLOT_LAYOUT
                        ? (uint32_t)(slot->shape_count * slot->shape_bytes + slot->stride_count * slot->stride_bytes)
                    : kind == FDB_SLOT_SCALAR ? (made->table.arguments[slot->argument].dtype & 0xff) / 8
                                              : 8;
  if (slot->size != needed) {
    PyErr_Format(PyExc_ValueError, "a slot has %u bytes where %u are packed", slot->size, needed);
    return -1;
  }
  if (none) {
    slot->offset = FDB_NULL_SLOT;
    return 0;
  }
  slot->offset = made->table.block_size;
  made->table.block_size += (slot->size + 15) & ~15U;
  if (made->table.block_size > FDB_MAX_BLOCK) {
    PyErr_SetString(PyExc_ValueError, "the arguments of a call are too large");
    return -1;
  }
  return 0;
}

static int describe_specialization(struct launcher_table *table, struct specialization *made, PyObject *item) {
  PyObject *constants, *arguments, *slots, *dim_names;
  if (!PyArg_ParseTuple(item, "isO!O!O!O!", &made->index, &made->name, &PyTuple_Type, &constants, &PyTuple_Type,
                        &arguments, &PyTuple_Type, &slots, &PyTuple_Type, &dim_names)) {
    return -1;
  }
  made->stream = -1;
  made->table.block_size = FDB_FIRST_SLOT;
  made->constant_count = (int)PyTuple_Size(constants);
  made->table.argument_count = (uint32_t)PyTuple_Size(arguments);
  made->table.slot_count = (uint32_t)PyTuple_Size(slots);
  made->table.name_count = (uint32_t)PyTuple_Size(dim_names);
  if (made->table.argument_count > FDB_MAX_ARGUMENTS || made->table.slot_count > 2 * FDB_MAX_ARGUMENTS ||
      made->table.name_count > 2 * FDB_MAX_ARGUMENTS) {
    PyErr_Format(PyExc_ValueError, "%s has %u arguments, %u slots and %u names of dims", made->name,
                 made->table.argument_count, made->table.slot_count, made->table.name_count);
    return -1;
  }
  made->constants = allocate(table, (size_t)made->constant_count, sizeof *made->constants);
  made->sources = allocate(table, made->table.argument_count, sizeof *made->sources);
  made->table.arguments = allocate(table, made->table.argument_count, sizeof *made->table.arguments);
  made->table.slots = allocate(table, made->table.slot_count, sizeof *made->table.slots);
  made->table.names = allocate(table, made->table.name_count, sizeof *made->table.names);
  if (!made->constants || !made->sources || !made->table.arguments || !made->table.slots || !made->table.names) {
    return -1;
  }
  for (uint32_t i = 0; i < made->table.name_count; i++) {
    if (!(made->table.names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(dim_names, (Py_ssize_t)i), NULL))) {
      return -1;
    }
  }
  for (int i = 0; i < made->constant_count; i++) {
    struct constant *constant = &made->constants[i];
    if (!PyArg_ParseTuple(PyTuple_GetItem(constants, i), "iO", &constant->parameter, &constant->value)) {
      return -1;
    }
    if (constant->parameter < 0 || constant->parameter >= table->parameter_count) {
      PyErr_SetString(PyExc_ValueError, "a constexpr value is out of range");
      return -1;
    }
  }
  for (uint32_t i = 0; i < made->table.argument_count; i++) {
    if (describe_argument(table, made, i, PyTuple_GetItem(arguments, (Py_ssize_t)i)) < 0) {
      return -1;
    }
  }
  for (uint32_t i = 0; i < made->table.slot_count; i++) {
    if (describe_slot(made, i, PyTuple_GetItem(slots, (Py_ssize_t)i)) < 0) {
      return -1;
    }
  }
  fdb_finish_table(&made->table);
#define RAISE_TO(field, value) table->field = table->field > (value) ? table->field : (value)
  RAISE_TO(max_arguments, made->table.argument_count);
  RAISE_TO(max_slots, made->table.slot_count);
  RAISE_TO(max_names, made->table.name_count);
  RAISE_TO(max_block, made->table.block_size);
#undef RAISE_TO
  return 0;
}

static int describe_index(struct launcher_table *table, PyObject *described) {
  PyObject *parameters;
  if (described == Py_None) {
    return 0;
  }
  if (!PyTuple_Check(described) ||
      !PyArg_ParseTuple(described, "O!O!", &PyTuple_Type, &parameters, &PyDict_Type, &table->index)) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_TypeError, "an index is a tuple");
    }
    return -1;
  }
  table->index_parameter_count = (int)PyTuple_Size(parameters);
  table->index_parameters = allocate(table, (size_t)table->index_parameter_count, sizeof *table->index_parameters);
  if (!table->index_parameters) {
    return -1;
  }
  bool wrong = table->index_parameter_count < 1;
  for (int i = 0; i < table->index_parameter_count; i++) {
    long parameter = PyLong_AsLong(PyTuple_GetItem(parameters, i));
    wrong |= parameter < 0 || parameter >= table->parameter_count;
    table->index_parameters[i] = (int)parameter;
  }
  PyObject *key, *positions;
  Py_ssize_t place = 0;
  while (PyDict_Next(table->index, &place, &key, &positions)) {
    bool is_tuple = PyTuple_Check(positions);
    wrong |= !is_tuple;
    for (Py_ssize_t i = 0; is_tuple && i < PyTuple_Size(positions); i++) {
      long position = PyLong_AsLong(PyTuple_GetItem(positions, i));
      wrong |= position < 0 || position >= table->specialization_count;
    }
  }
  if (wrong && !PyErr_Occurred()) {
    PyErr_SetString(PyExc_ValueError, "an index is out of range");
  }
  return wrong ? -1 : 0;
}

static int describe_parameters(struct launcher_table *table, PyObject *parameters) {
  for (int i = 0; i < table->parameter_count; i++) {
    struct parameter *parameter = &table->parameters[i];
    int has_default;
    PyObject *fallback;
    if (!PyArg_ParseTuple(PyTuple_GetItem(parameters, i), "UipO", &parameter->name, &parameter->kind, &has_default,
                          &fallback)) {
      return -1;
    }
    parameter->fallback = has_default ? fallback : NULL;
    if (parameter->kind < POSITIONAL_ONLY || parameter->kind > KEYWORD_ONLY) {
      PyErr_SetString(PyExc_ValueError, "a parameter is out of range");
      return -1;
    }
    table->positional_count += parameter->kind != KEYWORD_ONLY;
    // So many positional arguments need no keyword beside them.
    table->enough_count = parameter->fallback ? table->enough_count : i + 1;
  }
  return 0;
}

// The description is made by `describe_launcher` of runtime/description.py, which documents its shape.
struct launcher_table *compile_table(PyObject *description) {
  struct launcher_table *table = PyMem_Calloc(1, sizeof *table);
  if (!table) {
    PyErr_NoMemory();
    return NULL;
  }
  Py_INCREF(description);
  table->description = description;
  PyObject *parameters, *specializations, *index;
  if (!PyTuple_Check(description) || !PyArg_ParseTuple(description, "O!O!iO", &PyTuple_Type, &parameters, &PyTuple_Type,
                                                       &specializations, &table->view_count, &index)) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_TypeError, "a description is a tuple");
    }
    free_table(table);
    return NULL;
  }
  if (PyTuple_Size(parameters) > FDB_MAX_ARGUMENTS || table->view_count < 0 || table->view_count > FDB_MAX_ARGUMENTS) {
    PyErr_Format(PyExc_ValueError, "%zd parameters and %d tensors; this run time passes up to %d",
                 PyTuple_Size(parameters), table->view_count, (int)FDB_MAX_ARGUMENTS);
    free_table(table);
    return NULL;
  }
  table->parameter_count = (int)PyTuple_Size(parameters);
  table->specialization_count = (int)PyTuple_Size(specializations);
  table->parameters = allocate(table, (size_t)table->parameter_count, sizeof *table->parameters);
  table->specializations = allocate(table, (size_t)table->specialization_count, sizeof *table->specializations);
  bool failed = !table->parameters || !table->specializations || describe_parameters(table, parameters) < 0;
  for (int i = 0; !failed && i < table->specialization_count; i++) {
    failed = describe_specialization(table, &table->specializations[i], PyTuple_GetItem(specializations, i)) < 0;
  }
  if (failed || describe_index(table, index) < 0) {
    free_table(table);
    return NULL;
  }
  return table;
}
