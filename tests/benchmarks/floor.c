// SPDX-License-Identifier: Apache-2.0
// Floors for the cost of a call: limited-API functions that take the arguments of vector_add, read pointer, dtype,
// shape and strides of each tensor by the cheapest route of its type, and return; and functions of no arguments.

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../native/dlpack_abi.h"

static int (*to_dltensor)(void *, struct fdb_dltensor *);
volatile int64_t fdb_floor_sink;

static PyObject *set_type(PyObject *self, PyObject *type) {
  (void)self;
  PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  const struct fdb_dlexchange *api = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
  Py_XDECREF(capsule);
  if (!api) {
    return NULL;
  }
  to_dltensor = api->to_dltensor;
  Py_RETURN_NONE;
}

static PyObject *three(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
  (void)self;
  (void)count;
  (void)keywords;
  int64_t sum = 0;
  for (int i = 0; i < 3; i++) {
    struct fdb_dltensor tensor;
    if (to_dltensor(args[i], &tensor)) {
      return NULL;
    }
    sum += (int64_t)tensor.data + tensor.code + tensor.bits;
    for (int d = 0; d < tensor.rank; d++) {
      sum += tensor.shape[d] + tensor.strides[d];
    }
  }
  fdb_floor_sink = sum + PyLong_AsLongLong(args[3]);
  Py_RETURN_NONE;
}

static PyObject *three_buffers(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
  (void)self;
  (void)count;
  (void)keywords;
  int64_t sum = 0;
  for (int i = 0; i < 3; i++) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(args[i], &buffer, PyBUF_RECORDS_RO) < 0) {
      return NULL;
    }
    sum += (int64_t)buffer.buf + buffer.format[0];
    for (int d = 0; d < buffer.ndim; d++) {
      sum += buffer.shape[d] + buffer.strides[d];
    }
    PyBuffer_Release(&buffer);
  }
  fdb_floor_sink = sum + PyLong_AsLongLong(args[3]);
  Py_RETURN_NONE;
}

// Of the protocols that are calls into Python, the floor is those calls.
static PyObject *three_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
  (void)self;
  (void)count;
  (void)keywords;
  int64_t sum = 0;
  for (int i = 0; i < 3; i++) {
    PyObject *capsule = PyObject_CallMethod(args[i], "__dlpack__", NULL);
    const struct fdb_dlmanaged *managed = capsule ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
    if (!managed) {
      Py_XDECREF(capsule);
      return NULL;
    }
    sum += (int64_t)managed->tensor.data + managed->tensor.code;
    for (int d = 0; d < managed->tensor.rank; d++) {
      sum += managed->tensor.shape[d];
    }
    Py_DECREF(capsule);
  }
  fdb_floor_sink = sum + PyLong_AsLongLong(args[3]);
  Py_RETURN_NONE;
}

static PyObject *three_interfaces(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
  (void)self;
  (void)count;
  (void)keywords;
  int64_t sum = 0;
  for (int i = 0; i < 3; i++) {
    PyObject *interface = PyObject_GetAttrString(args[i], "__cuda_array_interface__");
    PyObject *data = interface ? PyDict_GetItemString(interface, "data") : NULL;
    if (!data) {
      Py_XDECREF(interface);
      return NULL;
    }
    sum += (int64_t)PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    sum += PyTuple_Size(PyDict_GetItemString(interface, "shape"));
    Py_DECREF(interface);
  }
  fdb_floor_sink = sum + PyLong_AsLongLong(args[3]);
  Py_RETURN_NONE;
}

static PyObject *nothing(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  Py_RETURN_NONE;
}

// What a function that may wait has to do, and no more.
static PyObject *unlocked(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  Py_BEGIN_ALLOW_THREADS;
  fdb_floor_sink = 1;
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_type", set_type, METH_O, NULL},
    {"three", (PyCFunction)(void (*)(void))three, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"three_buffers", (PyCFunction)(void (*)(void))three_buffers, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"three_dlpack", (PyCFunction)(void (*)(void))three_dlpack, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"three_interfaces", (PyCFunction)(void (*)(void))three_interfaces, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"nothing", nothing, METH_NOARGS, NULL},
    {"unlocked", unlocked, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "launch_floor", .m_methods = methods};
PyMODINIT_FUNC PyInit_launch_floor(void) { return PyModule_Create(&definition); }
