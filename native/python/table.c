// SPDX-License-Identifier: Apache-2.0
// Joins the call table of the launcher library with what only Python knows of a launcher: its parameters, its constexpr
// values, and where in the parameters each argument is found.

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

// Names of attributes, which messages show.
static bool is_path(PyObject *path) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(path); i++) {
    if (!PyUnicode_Check(PyTuple_GetItem(path, i))) {
      return false;
    }
  }
  return true;
}

static int describe_source(const struct launcher_table *table, struct specialization *made, uint32_t i, PyObject *item) {
  const struct fdb_argument *argument = &made->table.arguments[i];
  struct source *source = &made->sources[i];
  if (!PyArg_ParseTuple(item, "iiO!", &source->parameter, &source->view, &PyTuple_Type, &source->path)) {
    return -1;
  }
  source->depth = PyTuple_Size(source->path);
  bool has_view = argument->kind == FDB_TENSOR || argument->kind == FDB_POINTER;
  if (source->parameter < 0 || source->parameter >= table->parameter_count || has_view != (source->view >= 0) ||
      source->view >= table->view_count || !is_path(source->path)) {
    PyErr_SetString(PyExc_ValueError, "an argument is out of range");
    return -1;
  }
  if (argument->kind == FDB_STREAM) {
    made->stream = (int)i;
  }
  return 0;
}

static int describe_specialization(struct launcher_table *table, const struct fdb_tables *tables,
                                   struct specialization *made, PyObject *item) {
  PyObject *constants, *sources;
  if (!PyArg_ParseTuple(item, "isO!O!", &made->index, &made->name, &PyTuple_Type, &constants, &PyTuple_Type,
                        &sources)) {
    return -1;
  }
  if (made->index < 0 || (uint32_t)made->index >= tables->specialization_count ||
      strcmp(tables->specializations[made->index].name, made->name) != 0) {
    PyErr_Format(PyExc_ValueError, "the call table has no specialization %s at %d", made->name, made->index);
    return -1;
  }
  made->table = tables->specializations[made->index].table;
  made->stream = -1;
  made->constant_count = (int)PyTuple_Size(constants);
  if ((Py_ssize_t)made->table.argument_count != PyTuple_Size(sources)) {
    PyErr_Format(PyExc_ValueError, "%s has %zd arguments, and %u in the call table", made->name, PyTuple_Size(sources),
                 made->table.argument_count);
    return -1;
  }
  made->constants = allocate(table, (size_t)made->constant_count, sizeof *made->constants);
  made->sources = allocate(table, made->table.argument_count, sizeof *made->sources);
  if (!made->constants || !made->sources) {
    return -1;
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
    if (describe_source(table, made, i, PyTuple_GetItem(sources, (Py_ssize_t)i)) < 0) {
      return -1;
    }
  }
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
struct launcher_table *compile_table(PyObject *description, const struct fdb_tables *tables) {
  if (!tables) {
    PyErr_SetString(PyExc_ValueError, "the call table was not read");
    return NULL;
  }
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
    failed = describe_specialization(table, tables, &table->specializations[i], PyTuple_GetItem(specializations, i)) < 0;
  }
  if (failed || describe_index(table, index) < 0) {
    free_table(table);
    return NULL;
  }
  return table;
}
