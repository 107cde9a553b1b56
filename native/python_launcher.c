// SPDX-License-Identifier: Apache-2.0
// The Python type `Launcher`: binds the arguments of a call, chooses the specialization, and launches.

#include "python_binding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Python 3.11 has the flag, but shows it to the limited API only from 3.12 on.
#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#define VECTORCALL_COUNT(n) ((Py_ssize_t)((n) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))

typedef PyObject *(*vectorcall_function)(PyObject *, PyObject *const *, size_t, PyObject *);

// ---- the compiled description ---------------------------------------------------------------------------------------

enum parameter_kind { POSITIONAL_ONLY, POSITIONAL_OR_KEYWORD, KEYWORD_ONLY };

struct parameter {
  PyObject *name; // interned
  int kind;
  PyObject *fallback; // the default, or NULL
};

// Where an argument of a specialization is found in the bound parameters.
struct source {
  int parameter;
  int view;         // index among the tensor views of a call, -1 for other kinds
  PyObject *path;   // tuple of attribute names inside a struct
  Py_ssize_t depth; // its length; 0 for the parameter itself
};

struct constant {
  int parameter;
  PyObject *value;
};

struct specialization {
  struct fdr_table table;
  struct source *sources;
  struct constant *constants;
  int constant_count;
  int index;  // among all specializations of the module
  int stream; // the argument that is the stream, or -1
  const char *name;
};

// Immutable once made. All strings and objects in it are borrowed from `description`.
struct launcher_table {
  PyObject *description;
  struct allocation *allocations;
  struct parameter *parameters;
  struct specialization *specializations;
  int parameter_count, positional_count, specialization_count, view_count;
  uint32_t max_arguments, max_slots, max_names, max_block;
};

typedef struct {
  PyObject ob_base;
  vectorcall_function vectorcall;
  PyObject *dict, *weakrefs;
  PyObject
      *handle; // the Python object of the module: `_describe(name)`, `_open_driver()`, `_load_for_call(device, stream)`
  ModuleObject *module;
  PyObject *name;
  const char *name_text;
  struct launcher_table *table; // NULL before the first call
} LauncherObject;

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

static void free_table(struct launcher_table *table) {
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

static int describe_dims(struct launcher_table *table, PyObject *dims, int32_t name_count, struct fdr_dim **out,
                         int32_t *rank) {
  Py_ssize_t count = PyTuple_Size(dims);
  if (count < 0 || count > FDR_MAX_RANK || !(*out = allocate(table, (size_t)count, sizeof **out))) {
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_ValueError, "rank %zd is more than %d", count, (int)FDR_MAX_RANK);
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
    (*out)[d] = (struct fdr_dim){.size = size, .name = name, .divisor = divisor};
  }
  return 0;
}

static int describe_argument(struct launcher_table *table, struct specialization *made, uint32_t i, PyObject *item) {
  struct fdr_argument *argument = &made->table.arguments[i];
  struct source *source = &made->sources[i];
  PyObject *shape, *strides;
  int kind, offsets_32;
  int32_t stride_rank;
  if (!PyArg_ParseTuple(item, "iiO!siIsO!O!Ii", &source->parameter, &source->view, &PyTuple_Type, &source->path,
                        &argument->label, &kind, &argument->dtype, &argument->expected, &PyTuple_Type, &shape,
                        &PyTuple_Type, &strides, &argument->align, &offsets_32) ||
      describe_dims(table, shape, (int32_t)made->table.name_count, &argument->shape, &argument->rank) < 0 ||
      describe_dims(table, strides, (int32_t)made->table.name_count, &argument->strides, &stride_rank) < 0) {
    return -1;
  }
  source->depth = PyTuple_Size(source->path);
  argument->kind = (enum fdr_argument_kind)kind;
  argument->offsets_32 = offsets_32;
  bool has_view = kind == FDR_TENSOR || kind == FDR_POINTER;
  if (kind < FDR_TENSOR || kind > FDR_STREAM || source->parameter < 0 || source->parameter >= table->parameter_count ||
      has_view != (source->view >= 0) || source->view >= table->view_count || stride_rank != argument->rank ||
      !argument->align || (argument->align & (argument->align - 1))) {
    PyErr_SetString(PyExc_ValueError, "an argument is out of range");
    return -1;
  }
  if (kind == FDR_STREAM) {
    made->stream = (int)i;
  }
  return 0;
}

static int describe_slot_dims(PyObject *dims, int32_t rank, uint8_t *out, uint8_t *count) {
  Py_ssize_t size = PyTuple_Size(dims);
  if (size > FDR_MAX_RANK) {
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
  struct fdr_slot *slot = &made->table.slots[i];
  PyObject *shape_dims, *stride_dims;
  int kind;
  unsigned char shape_bits, stride_bits;
  if (!PyArg_ParseTuple(item, "iiIO!O!bb", &slot->argument, &kind, &slot->size, &PyTuple_Type, &shape_dims,
                        &PyTuple_Type, &stride_dims, &shape_bits, &stride_bits)) {
    return -1;
  }
  // What each kind of slot may be filled from, so that packing needs no check of its own.
  static const int source_of_slot[] = {FDR_TENSOR, FDR_TENSOR, FDR_SCALAR, FDR_POINTER, FDR_STREAM};
  bool none = slot->argument < 0;
  if (kind < FDR_SLOT_DATA || kind > FDR_SLOT_STREAM || (none && kind != FDR_SLOT_STREAM) ||
      (!none && ((uint32_t)slot->argument >= made->table.argument_count ||
                 (int)made->table.arguments[slot->argument].kind != source_of_slot[kind])) ||
      (shape_bits != 32 && shape_bits != 64) || (stride_bits != 32 && stride_bits != 64)) {
    PyErr_SetString(PyExc_ValueError, "a slot is out of range");
    return -1;
  }
  slot->kind = (enum fdr_slot_kind)kind;
  slot->shape_bytes = shape_bits / 8;
  slot->stride_bytes = stride_bits / 8;
  int32_t rank = none ? 0 : made->table.arguments[slot->argument].rank;
  if (describe_slot_dims(shape_dims, rank, slot->shape_dims, &slot->shape_count) < 0 ||
      describe_slot_dims(stride_dims, rank, slot->stride_dims, &slot->stride_count) < 0) {
    return -1;
  }
  uint32_t needed = kind == FDR_SLOT_LAYOUT
                        ? (uint32_t)(slot->shape_count * slot->shape_bytes + slot->stride_count * slot->stride_bytes)
                    : kind == FDR_SLOT_SCALAR ? (made->table.arguments[slot->argument].dtype & 0xff) / 8
                                              : 8;
  if (slot->size != needed) {
    PyErr_Format(PyExc_ValueError, "a slot has %u bytes where %u are packed", slot->size, needed);
    return -1;
  }
  slot->offset = made->table.block_size;
  made->table.block_size += (slot->size + 15) & ~15U;
  if (made->table.block_size > FDR_MAX_BLOCK) {
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
  made->constant_count = (int)PyTuple_Size(constants);
  made->table.argument_count = (uint32_t)PyTuple_Size(arguments);
  made->table.slot_count = (uint32_t)PyTuple_Size(slots);
  made->table.name_count = (uint32_t)PyTuple_Size(dim_names);
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
#define RAISE_TO(field, value) table->field = table->field > (value) ? table->field : (value)
  RAISE_TO(max_arguments, made->table.argument_count);
  RAISE_TO(max_slots, made->table.slot_count);
  RAISE_TO(max_names, made->table.name_count);
  RAISE_TO(max_block, made->table.block_size);
#undef RAISE_TO
  return 0;
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
  }
  return 0;
}

// The description is made by `describe_launcher` of runtime/description.py, which documents its shape.
static struct launcher_table *compile_table(PyObject *description) {
  struct launcher_table *table = PyMem_Calloc(1, sizeof *table);
  if (!table) {
    PyErr_NoMemory();
    return NULL;
  }
  Py_INCREF(description);
  table->description = description;
  PyObject *parameters, *specializations;
  if (!PyTuple_Check(description) || !PyArg_ParseTuple(description, "O!O!i", &PyTuple_Type, &parameters, &PyTuple_Type,
                                                       &specializations, &table->view_count)) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_TypeError, "a description is a tuple");
    }
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
  if (failed) {
    free_table(table);
    return NULL;
  }
  return table;
}

static struct launcher_table *table_of(LauncherObject *self) {
  if (self->table) {
    return self->table;
  }
  PyObject *description = PyObject_CallMethod(self->handle, "_describe", "O", self->name);
  struct launcher_table *table = description ? compile_table(description) : NULL;
  Py_XDECREF(description);
  if (table && self->table) { // another thread was faster, while this one ran Python code
    free_table(table);
  } else {
    self->table = table;
  }
  return self->table;
}

// ---- binding, with the words of Python's own errors -----------------------------------------------------------------

static int raise_too_many(LauncherObject *self, const struct launcher_table *table, Py_ssize_t given) {
  int required = 0;
  for (int i = 0; i < table->positional_count; i++) {
    required += !table->parameters[i].fallback;
  }
  char range[48];
  if (required == table->positional_count) {
    snprintf(range, sizeof range, "%d", required);
  } else {
    snprintf(range, sizeof range, "from %d to %d", required, table->positional_count);
  }
  PyErr_Format(PyExc_TypeError, "%s() takes %s positional argument%s but %zd %s given", self->name_text, range,
               table->positional_count == 1 ? "" : "s", given, given == 1 ? "was" : "were");
  return -1;
}

static int raise_missing(LauncherObject *self, const struct launcher_table *table, PyObject *const *bound) {
  bool keyword_only = true;
  for (int i = 0; i < table->parameter_count; i++) {
    if (!bound[i] && table->parameters[i].kind != KEYWORD_ONLY) {
      keyword_only = false;
    }
  }
  char text[512] = "";
  size_t used = 0;
  int total = 0, seen = 0;
  for (int i = 0; i < table->parameter_count; i++) {
    total += !bound[i] && (table->parameters[i].kind == KEYWORD_ONLY) == keyword_only;
  }
  for (int i = 0; i < table->parameter_count; i++) {
    if (bound[i] || (table->parameters[i].kind == KEYWORD_ONLY) != keyword_only) {
      continue;
    }
    const char *name = PyUnicode_AsUTF8AndSize(table->parameters[i].name, NULL);
    const char *joint = seen == 0 ? "" : seen + 1 < total ? ", " : total > 2 ? ", and " : " and ";
    int count = snprintf(text + used, sizeof text - used, "%s'%s'", joint, name ? name : "?");
    used += (size_t)count < sizeof text - used ? (size_t)count : sizeof text - used - 1;
    seen++;
  }
  PyErr_Format(PyExc_TypeError, "%s() missing %d required %s argument%s: %s", self->name_text, total,
               keyword_only ? "keyword-only" : "positional", total == 1 ? "" : "s", text);
  return -1;
}

static int find_parameter(const struct launcher_table *table, PyObject *name) {
  for (int i = 0; i < table->parameter_count; i++) {
    if (table->parameters[i].name == name) {
      return i;
    }
  }
  for (int i = 0; i < table->parameter_count; i++) { // a name that is not interned
    if (PyUnicode_Compare(table->parameters[i].name, name) == 0) {
      return i;
    }
  }
  return -1;
}

static int bind_keyword(LauncherObject *self, const struct launcher_table *table, PyObject *name, PyObject *value,
                        PyObject **bound) {
  int i = find_parameter(table, name);
  if (i < 0) {
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", self->name_text, name);
    return -1;
  }
  if (table->parameters[i].kind == POSITIONAL_ONLY) {
    PyErr_Format(PyExc_TypeError, "%s() got some positional-only arguments passed as keyword arguments: '%U'",
                 self->name_text, name);
    return -1;
  }
  if (bound[i]) {
    PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", self->name_text, name);
    return -1;
  }
  bound[i] = value;
  return 0;
}

static int bind(LauncherObject *self, const struct launcher_table *table, PyObject *const *args, Py_ssize_t count,
                PyObject *keywords, PyObject **bound) {
  if (count > table->positional_count) {
    return raise_too_many(self, table, count);
  }
  // Positional parameters come first, so position i is parameter i.
  for (int i = 0; i < table->parameter_count; i++) {
    bound[i] = i < count ? args[i] : NULL;
  }
  Py_ssize_t keyword_count = keywords ? PyTuple_Size(keywords) : 0;
  for (Py_ssize_t k = 0; k < keyword_count; k++) {
    if (bind_keyword(self, table, PyTuple_GetItem(keywords, k), args[count + k], bound) < 0) {
      return -1;
    }
  }
  bool missing = false;
  for (int i = 0; i < table->parameter_count; i++) {
    if (!bound[i]) {
      bound[i] = table->parameters[i].fallback;
      missing |= !bound[i];
    }
  }
  return missing ? raise_missing(self, table, bound) : 0;
}

// ---- one call -------------------------------------------------------------------------------------------------------

struct call {
  LauncherObject *self;
  const struct launcher_table *table;
  PyObject *const *bound;
  struct tensor_view *views;
  uint8_t *seen; // for each view: 0 not read, 1 a tensor, 2 a bare address (in tensor.data)
  struct fdr_value *values;
  struct fdr_name_value *names;
};

enum outcome { DONE, MISFIT, RAISED };

static PyObject *exception_of(enum fdr_code code) {
  return code == FDR_TYPE ? PyExc_TypeError : code == FDR_OVERFLOW ? PyExc_OverflowError : PyExc_ValueError;
}

static enum outcome raise_last_error(const struct call *call) {
  const struct fdr_error *error = fdr_last_error();
  if (error->code == FDR_DRIVER || error->code == FDR_LAUNCH) {
    char prefix[256];
    snprintf(prefix, sizeof prefix, "%s(): ", call->self->name_text);
    raise_driver_error(call->self->module->launch_error, prefix);
  } else {
    PyErr_Format(exception_of(error->code), "%s(): %s", call->self->name_text, error->text);
  }
  return RAISED;
}

// Says of which argument an exception speaks that came from reading it.
static enum outcome raise_unreadable(const struct call *call, const struct fdr_argument *argument, PyObject *object,
                                     int result) {
  if (result == 1) {
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    if (type) {
      PyErr_Format(PyExc_TypeError, "%s(): argument %s must be %s, got a value of type %S", call->self->name_text,
                   argument->label, argument->expected, type);
      Py_DECREF(type);
    }
    return RAISED;
  }
  PyObject *ours = PyErr_ExceptionMatches(PyExc_BufferError)     ? PyExc_BufferError
                   : PyErr_ExceptionMatches(PyExc_OverflowError) ? PyExc_OverflowError
                   : PyErr_ExceptionMatches(PyExc_ValueError)    ? PyExc_ValueError
                   : PyErr_ExceptionMatches(PyExc_TypeError)     ? PyExc_TypeError
                                                                 : NULL;
  if (ours) {
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_Format(ours, "%s(): argument %s must be %s: %S", call->self->name_text, argument->label, argument->expected,
                 value ? value : Py_None);
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
  }
  return RAISED;
}

static enum outcome read_view(const struct call *call, const struct fdr_argument *argument, const struct source *source,
                              PyObject *object, struct fdr_value *value) {
  struct tensor_view *view = &call->views[source->view];
  uint8_t *seen = &call->seen[source->view];
  if (!*seen) {
    view->owner = NULL;
    int result;
    if (argument->kind == FDR_TENSOR) {
      result = read_tensor(object, view);
      *seen = 1;
    } else {
      uint64_t address = 0;
      result = read_pointer(object, view, &address);
      *seen = view->tensor.rank >= 0 ? 1 : 2;
      if (*seen == 2) {
        view->tensor.data = (void *)(uintptr_t)address;
      }
    }
    if (result) {
      return raise_unreadable(call, argument, object, result);
    }
    if (source->depth) {
      Py_INCREF(object);
      view->owner = object;
    }
  }
  value->tensor = *seen == 1 ? &view->tensor : NULL;
  value->bits = (uintptr_t)view->tensor.data;
  return DONE;
}

static enum outcome read_argument(const struct call *call, const struct fdr_argument *argument,
                                  const struct source *source, PyObject *object, struct fdr_value *value) {
  value->tensor = NULL;
  switch (argument->kind) {
  case FDR_TENSOR:
  case FDR_POINTER:
    return read_view(call, argument, source, object, value);
  case FDR_SCALAR:
    return read_scalar(object, argument->dtype, argument->label, &value->bits) ? MISFIT : DONE;
  case FDR_STREAM: {
    int result = read_stream(object, &value->bits);
    return result ? raise_unreadable(call, argument, object, result) : DONE;
  }
  }
  return MISFIT;
}

static enum outcome read_field(const struct call *call, const struct fdr_argument *argument,
                               const struct source *source, struct fdr_value *value) {
  PyObject *object = call->bound[source->parameter];
  if (!source->depth) {
    return read_argument(call, argument, source, object, value);
  }
  Py_INCREF(object);
  for (Py_ssize_t i = 0; i < source->depth; i++) {
    PyObject *field = PyObject_GetAttr(object, PyTuple_GetItem(source->path, i));
    Py_DECREF(object);
    if (!field) {
      return RAISED;
    }
    object = field;
  }
  enum outcome outcome = read_argument(call, argument, source, object, value);
  Py_DECREF(object);
  return outcome;
}

// Compares the constexpr parameters and types with the values that the specialization was compiled for.
static enum outcome check_constants(const struct call *call, const struct specialization *specialization) {
  for (int i = 0; i < specialization->constant_count; i++) {
    const struct constant *constant = &specialization->constants[i];
    PyObject *given = call->bound[constant->parameter];
    int equal = PyObject_RichCompareBool(given, constant->value, Py_EQ);
    if (equal < 0) {
      return RAISED;
    }
    // The manifest holds a type by its name.
    if (!equal && PyType_Check(given) && PyUnicode_Check(constant->value)) {
      PyObject *name = PyObject_GetAttrString(given, "__name__");
      equal = name ? PyObject_RichCompareBool(name, constant->value, Py_EQ) : -1;
      Py_XDECREF(name);
      if (equal < 0) {
        return RAISED;
      }
    }
    if (!equal) {
      PyObject *text = PyUnicode_FromFormat("constexpr %U is %R, not %R",
                                            call->table->parameters[constant->parameter].name, given, constant->value);
      const char *bytes = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
      if (!bytes) {
        Py_XDECREF(text);
        return RAISED;
      }
      fdr_fail(FDR_VALUE, "%s", bytes);
      Py_DECREF(text);
      return MISFIT;
    }
  }
  return DONE;
}

static enum outcome fit(const struct call *call, const struct specialization *specialization, bool quiet) {
  enum outcome outcome = check_constants(call, specialization);
  for (uint32_t i = 0; outcome == DONE && i < specialization->table.argument_count; i++) {
    outcome = read_field(call, &specialization->table.arguments[i], &specialization->sources[i], &call->values[i]);
  }
  if (outcome != DONE) {
    return outcome;
  }
  return fdr_check(&specialization->table, call->values, call->names, quiet) ? MISFIT : DONE;
}

static const struct fdr_driver *open_driver(const struct call *call) {
  PyObject *result = PyObject_CallMethod(call->self->handle, "_open_driver", NULL);
  Py_XDECREF(result);
  const struct fdr_driver *driver = result ? fdr_driver() : NULL;
  if (!driver && !PyErr_Occurred()) {
    PyErr_SetString(PyExc_RuntimeError, "the driver was not opened");
  }
  return driver;
}

static const struct fdr_loaded *load(const struct call *call, const struct specialization *specialization, int device) {
  unsigned long long stream = specialization->stream < 0 ? 0 : call->values[specialization->stream].bits;
  PyObject *result = PyObject_CallMethod(call->self->handle, "_load_for_call", "iK", device, stream);
  if (!result) {
    return NULL;
  }
  Py_DECREF(result);
  const struct fdr_loaded *loaded = atomic_load_explicit(&call->self->module->loaded[device], memory_order_acquire);
  if (!loaded || loaded->generation != fdr_generation()) {
    PyErr_SetString(PyExc_RuntimeError, "the module was not loaded");
    return NULL;
  }
  return loaded;
}

static enum outcome run(const struct call *call, const struct specialization *specialization,
                        const struct fdr_driver *driver, const struct fdr_loaded *loaded, int device, int current) {
  const struct fdr_table *table = &specialization->table;
  char memory[call->table->max_block + 16];
  char *block = (char *)(((uintptr_t)memory + 15) & ~(uintptr_t)15);
  void *slots[call->table->max_slots + 1];
  fdr_pack(table, call->values, block, slots);
  struct fdb_call invocation = {
      .launch = fdr_launch, .driver = driver, .loaded = loaded, .entry = &loaded->entries[specialization->index]};
  int error = device == current ? 0 : driver->set_device(device);
  if (error) {
    fdr_fail_driver(driver, FDR_LAUNCH, error, "device %d cannot be made current", device);
    return raise_last_error(call);
  }
  // A launch can wait for a place in the queue, and what empties the queue may need the interpreter lock.
  PyThreadState *state = PyEval_SaveThread();
  int32_t returned = invocation.entry->function(&invocation, slots);
  if (device != current) {
    error = driver->set_device(current);
  }
  PyEval_RestoreThread(state);
  if (invocation.status) {
    return raise_last_error(call);
  }
  if (returned) {
    fdr_fail(FDR_LAUNCH, "the launcher library returned %d", returned);
    return raise_last_error(call);
  }
  if (error) {
    fdr_fail_driver(driver, FDR_LAUNCH, error, "device %d cannot be made current again", current);
    return raise_last_error(call);
  }
  return DONE;
}

static enum outcome try_specialization(const struct call *call, const struct specialization *specialization,
                                       bool quiet) {
  enum outcome outcome = fit(call, specialization, quiet);
  if (outcome != DONE) {
    return outcome;
  }
  const struct fdr_driver *driver = fdr_driver();
  if (!driver && !(driver = open_driver(call))) {
    return RAISED;
  }
  int device, current;
  if (fdr_find_device(driver, &specialization->table, call->values, &device)) {
    return raise_last_error(call);
  }
  int error = driver->current_device(&current);
  if (error) {
    fdr_fail_driver(driver, FDR_LAUNCH, error, "the current device is unknown");
    return raise_last_error(call);
  }
  device = device < 0 ? current : device;
  if (device >= FDR_MAX_DEVICES) {
    fdr_fail(FDR_VALUE, "device %d is current; this run time serves devices 0 to %d", device, FDR_MAX_DEVICES - 1);
    return raise_last_error(call);
  }
  const struct fdr_loaded *loaded = atomic_load_explicit(&call->self->module->loaded[device], memory_order_acquire);
  if (!loaded || loaded->generation != fdr_generation()) {
    if (!(loaded = load(call, specialization, device))) {
      return RAISED;
    }
  }
  if ((uint32_t)specialization->index >= loaded->entry_count || !loaded->entries[specialization->index].function) {
    fdr_fail(FDR_VALUE, "it was not built for %s (device %d)", loaded->target, device);
    return MISFIT;
  }
  return run(call, specialization, driver, loaded, device, current);
}

// The arguments fit none of several specializations: one line for each, with the reason.
static enum outcome raise_no_fit(const struct call *call) {
  PyObject *text = PyUnicode_FromFormat("%s(): the arguments fit none of the %d specializations in this wheel:",
                                        call->self->name_text, call->table->specialization_count);
  for (int i = 0; text && i < call->table->specialization_count; i++) {
    const struct specialization *specialization = &call->table->specializations[i];
    enum outcome outcome = fit(call, specialization, false);
    if (outcome == RAISED) {
      Py_DECREF(text);
      return RAISED;
    }
    PyObject *longer =
        PyUnicode_FromFormat("%U\n  %s: %s", text, specialization->name,
                             outcome == DONE ? "it was not built for this device" : fdr_last_error()->text);
    Py_DECREF(text);
    text = longer;
  }
  if (text) {
    PyErr_SetObject(PyExc_TypeError, text);
    Py_DECREF(text);
  }
  return RAISED;
}

static enum outcome dispatch(const struct call *call) {
  int count = call->table->specialization_count;
  for (int i = 0; i < count; i++) {
    enum outcome outcome = try_specialization(call, &call->table->specializations[i], count > 1);
    if (outcome != MISFIT) {
      return outcome;
    }
  }
  return count == 1 ? raise_last_error(call) : raise_no_fit(call);
}

static PyObject *launcher_vectorcall(PyObject *object, PyObject *const *args, size_t flagged, PyObject *keywords) {
  LauncherObject *self = (LauncherObject *)object;
  const struct launcher_table *table = table_of(self);
  if (!table) {
    return NULL;
  }
  PyObject *bound[table->parameter_count + 1];
  if (bind(self, table, args, VECTORCALL_COUNT(flagged), keywords, bound) < 0) {
    return NULL;
  }
  struct tensor_view views[table->view_count + 1];
  uint8_t seen[table->view_count + 1];
  struct fdr_value values[table->max_arguments + 1];
  struct fdr_name_value dim_names[table->max_names + 1];
  memset(seen, 0, sizeof seen);
  struct call call = {self, table, bound, views, seen, values, dim_names};
  enum outcome outcome = dispatch(&call);
  for (int i = 0; i < table->view_count; i++) {
    if (seen[i]) {
      Py_XDECREF(views[i].keep);
      Py_XDECREF(views[i].owner);
    }
  }
  if (outcome != DONE) {
    return NULL;
  }
  Py_RETURN_NONE;
}

// Only for callers that do not know of vectorcall; PyVectorcall_Call came to the limited API with 3.12.
static PyObject *launcher_call(PyObject *self, PyObject *args, PyObject *keywords) {
  Py_ssize_t count = PyTuple_Size(args), keyword_count = keywords ? PyDict_Size(keywords) : 0;
  PyObject **all = PyMem_Calloc((size_t)(count + keyword_count + 1), sizeof *all);
  PyObject *names = keyword_count ? PyTuple_New(keyword_count) : NULL;
  PyObject *result = NULL;
  if (!all || (keyword_count && !names)) {
    PyErr_NoMemory();
  } else {
    for (Py_ssize_t i = 0; i < count; i++) {
      all[i] = PyTuple_GetItem(args, i);
    }
    PyObject *key, *value;
    Py_ssize_t position = 0;
    for (Py_ssize_t k = 0; keyword_count && PyDict_Next(keywords, &position, &key, &value); k++) {
      Py_INCREF(key);
      PyTuple_SetItem(names, k, key);
      all[count + k] = value;
    }
    result = launcher_vectorcall(self, all, (size_t)count, names);
  }
  Py_XDECREF(names);
  PyMem_Free(all);
  return result;
}

// ---- the type -------------------------------------------------------------------------------------------------------

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  static char *words[] = {"handle", "module", "name", NULL};
  PyObject *handle, *module, *name;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO!U", words, &handle, module_type, &module, &name)) {
    return NULL;
  }
  const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
  allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  LauncherObject *self = text ? (LauncherObject *)make(type, 0) : NULL;
  if (self) {
    Py_INCREF(handle);
    Py_INCREF(module);
    Py_INCREF(name);
    self->vectorcall = launcher_vectorcall;
    self->handle = handle;
    self->module = (ModuleObject *)module;
    self->name = name;
    self->name_text = text;
  }
  return (PyObject *)self;
}

static int launcher_traverse(PyObject *object, visitproc visit, void *arg) {
  LauncherObject *self = (LauncherObject *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->dict);
  Py_VISIT(self->handle);
  Py_VISIT((PyObject *)self->module);
  if (self->table) {
    Py_VISIT(self->table->description);
  }
  return 0;
}

static int launcher_clear(PyObject *object) {
  LauncherObject *self = (LauncherObject *)object;
  Py_CLEAR(self->dict);
  return 0;
}

static void launcher_dealloc(PyObject *object) {
  LauncherObject *self = (LauncherObject *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs) {
    PyObject_ClearWeakRefs(object);
  }
  Py_XDECREF(self->dict);
  Py_XDECREF(self->handle);
  Py_XDECREF((PyObject *)self->module);
  Py_XDECREF(self->name);
  free_table(self->table);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF((PyObject *)type);
}

static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(LauncherObject, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(LauncherObject, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(LauncherObject, weakrefs), READONLY, NULL},
    {"_handle", T_OBJECT_EX, offsetof(LauncherObject, handle), READONLY, NULL},
    {"_name", T_OBJECT_EX, offsetof(LauncherObject, name), READONLY, NULL},
    {0},
};

static PyGetSetDef launcher_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {0},
};

static PyType_Slot launcher_slots[] = {
    {Py_tp_new, launcher_new},           {Py_tp_dealloc, launcher_dealloc},
    {Py_tp_traverse, launcher_traverse}, {Py_tp_clear, launcher_clear},
    {Py_tp_call, launcher_call},         {Py_tp_members, launcher_members},
    {Py_tp_getset, launcher_getset},     {0, NULL},
};

static PyTypeObject *make_type(PyObject *module, const char *name, size_t size, unsigned flags, PyType_Slot *slots) {
  char full[512];
  const char *package = PyModule_GetName(module); // private copies in other wheels have other names
  if (!package) {
    return NULL;
  }
  snprintf(full, sizeof full, "%s.%s", package, name);
  PyType_Spec spec = {.name = full, .basicsize = (int)size, .flags = flags, .slots = slots};
  return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}

PyTypeObject *make_launcher_type(PyObject *module) {
  return make_type(module, "Launcher", sizeof(LauncherObject),
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, launcher_slots);
}

// ---- Module: what is loaded, for each device ------------------------------------------------------------------------

static PyObject *module_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  static char *words[] = {"launch_error", NULL};
  PyObject *launch_error;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O", words, &launch_error)) {
    return NULL;
  }
  ModuleObject *self = (ModuleObject *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self) {
    Py_INCREF(launch_error);
    self->launch_error = launch_error;
  }
  return (PyObject *)self;
}

static void module_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  Py_XDECREF(((ModuleObject *)object)->launch_error);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF((PyObject *)type);
}

static void free_loaded(struct fdr_loaded *loaded) {
  for (uint32_t i = 0; i < loaded->entry_count; i++) {
    for (uint32_t k = 0; k < loaded->entries[i].kernel_count; k++) {
      free((void *)loaded->entries[i].kernels[k].symbol);
    }
    free(loaded->entries[i].kernels);
  }
  free(loaded);
}

static int publish_entry(struct fdr_entry *entry, PyObject *item) {
  if (item == Py_None) {
    return 0;
  }
  unsigned long long function;
  PyObject *kernels;
  if (!PyArg_ParseTuple(item, "KO!", &function, &PyTuple_Type, &kernels)) {
    return -1;
  }
  Py_ssize_t count = PyTuple_Size(kernels);
  if (!(entry->kernels = calloc((size_t)count + 1, sizeof *entry->kernels))) {
    PyErr_NoMemory();
    return -1;
  }
  for (; entry->kernel_count < count; entry->kernel_count++) {
    struct fdr_kernel *kernel = &entry->kernels[entry->kernel_count];
    unsigned long long handle;
    const char *symbol;
    if (!PyArg_ParseTuple(PyTuple_GetItem(kernels, entry->kernel_count), "KsI", &handle, &symbol,
                          &kernel->max_workgroup)) {
      return -1;
    }
    char *copy = malloc(strlen(symbol) + 1);
    if (!copy) {
      PyErr_NoMemory();
      return -1;
    }
    kernel->symbol = strcpy(copy, symbol);
    kernel->function = (void *)(uintptr_t)handle;
  }
  entry->function = (fdr_entry_function)(uintptr_t)function;
  return 0;
}

static int read_device(PyObject *object) {
  long device = PyLong_AsLong(object);
  if ((device < 0 || device >= FDR_MAX_DEVICES) && !PyErr_Occurred()) {
    PyErr_Format(PyExc_ValueError, "device %ld; this run time serves devices 0 to %d", device, FDR_MAX_DEVICES - 1);
  }
  return PyErr_Occurred() ? -1 : (int)device;
}

static PyObject *module_publish(PyObject *object, PyObject *args) {
  PyObject *device_object, *entries;
  const char *target;
  if (!PyArg_ParseTuple(args, "OsO!", &device_object, &target, &PyTuple_Type, &entries)) {
    return NULL;
  }
  int device = read_device(device_object);
  if (device < 0) {
    return NULL;
  }
  Py_ssize_t count = PyTuple_Size(entries);
  struct fdr_loaded *loaded = calloc(1, sizeof *loaded + (size_t)count * sizeof *loaded->entries);
  if (!loaded) {
    return PyErr_NoMemory();
  }
  loaded->generation = fdr_generation();
  loaded->device = device;
  snprintf(loaded->target, sizeof loaded->target, "%s", target);
  for (; loaded->entry_count < count; loaded->entry_count++) {
    if (publish_entry(&loaded->entries[loaded->entry_count], PyTuple_GetItem(entries, loaded->entry_count)) < 0) {
      loaded->entry_count++;
      free_loaded(loaded);
      return NULL;
    }
  }
  // What was there before is of a parent process, and stays: a thread may be launching with it at this moment.
  atomic_store_explicit(&((ModuleObject *)object)->loaded[device], loaded, memory_order_release);
  Py_RETURN_NONE;
}

static PyObject *module_is_loaded(PyObject *object, PyObject *argument) {
  int device = read_device(argument);
  if (device < 0) {
    return NULL;
  }
  const struct fdr_loaded *loaded =
      atomic_load_explicit(&((ModuleObject *)object)->loaded[device], memory_order_acquire);
  return PyBool_FromLong(loaded && loaded->generation == fdr_generation());
}

static PyMethodDef module_methods[] = {
    {"publish", module_publish, METH_VARARGS,
     "publish(device, target, entries)\n\nMake a loaded module callable. An entry, by the position of the "
     "specialization: None, or (function, ((kernel, symbol, max_workgroup), ...))."},
    {"is_loaded", module_is_loaded, METH_O, "is_loaded(device)\n\nSay whether this process has it on the device."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot module_slots[] = {
    {Py_tp_new, module_new},
    {Py_tp_dealloc, module_dealloc},
    {Py_tp_methods, module_methods},
    {0, NULL},
};

PyTypeObject *make_module_type(PyObject *module) {
  return make_type(module, "Module", sizeof(ModuleObject), Py_TPFLAGS_DEFAULT, module_slots);
}
