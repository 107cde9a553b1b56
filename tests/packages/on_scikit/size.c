/* An extension module that the kernels' module imports. */
#include <Python.h>

static PyObject *threads(PyObject *self, PyObject *ignored) {
  (void)self, (void)ignored;
  return PyLong_FromLong(96);
}

static PyMethodDef methods[] = {{"threads", threads, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_size", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__size(void) { return PyModule_Create(&definition); }
