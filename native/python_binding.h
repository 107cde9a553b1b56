// SPDX-License-Identifier: Apache-2.0
// What the three Python-facing files share. The only place that includes Python.h: limited API of Python 3.11.
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

// ---- python_launcher.c ----------------------------------------------------------------------------------------------

typedef struct {
  PyObject ob_base;
  PyObject *launch_error; // exception class of a failed launch
  _Atomic(struct fdr_loaded *) loaded[FDR_MAX_DEVICES];
} ModuleObject;

extern PyTypeObject *module_type;
extern PyTypeObject *driver_error_type;
PyTypeObject *make_launcher_type(PyObject *module);
PyTypeObject *make_module_type(PyObject *module);
// Raises `type(text, code, name)` from the last error.
void raise_driver_error(PyObject *type, const char *prefix);

#endif
