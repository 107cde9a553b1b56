// SPDX-License-Identifier: Apache-2.0
// What the Python-facing files share. The only place that includes Python.h: limited API of Python 3.11.
//
// Everything in those files runs with the interpreter lock held, except the call into a launcher library. Their static
// variables are therefore guarded by that lock; the module refuses to be imported in a sub-interpreter.

#ifndef FLYDSL_PYTHON_BINDING_H
#define FLYDSL_PYTHON_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "flydsl_runtime.h"

// ---- python_arguments.c: Python objects to values -------------------------------------------------------------------

// One tensor of a call. The view's shape and strides point into the object, or to `dims`; `keep` and `owner`
// are strong references to what must live until the launch has been made, or NULL.
struct tensor_view {
  struct fdr_dltensor tensor;
  PyObject *keep, *owner;
  int64_t dims[2 * FDR_MAX_RANK];
};

int prepare_argument_readers(void);
// 0: `view` is filled. -1: a Python exception is set. 1: `object` is not a tensor, no exception.
int read_tensor(PyObject *object, struct tensor_view *view);
// The same for what a pointer parameter takes; a bare address leaves view->tensor.rank at -1 and goes to `address`.
int read_pointer(PyObject *object, struct tensor_view *view, uint64_t *address);
// 0, or -1 with a Python exception.
int read_stream(PyObject *object, uint64_t *stream);
enum fdr_code read_scalar(PyObject *object, uint32_t dtype, const char *label, uint64_t *bits);

// ---- python_table.c: the description of a launcher, compiled
// ----------------------------------------------------------

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

// NULL with a Python exception. `description` is kept for as long as the table lives.
struct launcher_table *compile_table(PyObject *description);
void free_table(struct launcher_table *table);

// ---- python_launcher.c, python_state.c
// ----------------------------------------------------------------------------------------------

typedef struct {
  PyObject ob_base;
  PyObject *launch_error; // exception class of a failed launch
  _Atomic(struct fdr_loaded *) loaded[FDR_MAX_DEVICES];
} ModuleObject;

// Makes a heap type `<the extension's name>.<name>`.
PyTypeObject *make_type(PyObject *module, const char *name, size_t size, unsigned flags, PyType_Slot *slots);
extern PyTypeObject *module_type;
extern PyTypeObject *driver_error_type;
PyTypeObject *make_launcher_type(PyObject *module);
PyTypeObject *make_module_type(PyObject *module);
// Raises `type(text, code, name)` from the last error.
void raise_driver_error(PyObject *type, const char *prefix);

#endif
