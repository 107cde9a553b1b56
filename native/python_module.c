// SPDX-License-Identifier: Apache-2.0
// The extension module `_native`: the driver and code objects for the Python side of the run time.

#include "python_binding.h"

#include <string.h>

#include "glibc_symbols.h"

PyTypeObject *module_type;
PyTypeObject *driver_error_type;
static PyTypeObject *launcher_type;

void raise_driver_error(PyObject *type, const char *prefix) {
  const struct fdr_error *error = fdr_last_error();
  PyObject *text = PyUnicode_FromFormat("%s%s", prefix, error->text);
  PyObject *args = text ? Py_BuildValue("(Ois)", text, error->driver_code, error->name) : NULL;
  if (args) {
    PyErr_SetObject(type, args);
  }
  Py_XDECREF(args);
  Py_XDECREF(text);
}

static PyObject *failed(void) {
  raise_driver_error((PyObject *)driver_error_type, "");
  return NULL;
}

static const struct fdr_driver *need_driver(void) {
  const struct fdr_driver *driver = fdr_driver();
  if (!driver) {
    fdr_fail(FDR_DRIVER, "no driver library is open");
    failed();
  }
  return driver;
}

static PyObject *open_driver(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *path; // bytes: a path need not be UTF-8
  int mapped;
  if (!PyArg_ParseTuple(args, "O&p", PyUnicode_FSConverter, &path, &mapped)) {
    return NULL;
  }
  const char *text = PyBytes_AsString(path);
  const struct fdr_driver *driver = NULL;
  enum fdr_code code;
  Py_BEGIN_ALLOW_THREADS;
  code = fdr_open_hip(text, mapped, &driver);
  Py_END_ALLOW_THREADS;
  Py_DECREF(path);
  if (code) {
    return failed();
  }
  fdr_set_driver(driver);
  Py_RETURN_NONE;
}

static PyObject *is_open(PyObject *self, PyObject *args) {
  (void)self;
  (void)args;
  return PyBool_FromLong(fdr_driver() != NULL);
}

static PyObject *device_count(PyObject *self, PyObject *args) {
  (void)self;
  (void)args;
  const struct fdr_driver *driver = need_driver();
  int count = 0;
  if (!driver) {
    return NULL;
  }
  int error = driver->device_count(&count);
  if (error) {
    fdr_fail_driver(driver, FDR_DRIVER, error, "the devices cannot be counted");
    return failed();
  }
  return PyLong_FromLong(count);
}

static PyObject *current_device(PyObject *self, PyObject *args) {
  (void)self;
  (void)args;
  const struct fdr_driver *driver = need_driver();
  int device = 0;
  if (!driver) {
    return NULL;
  }
  int error = driver->current_device(&device);
  if (error) {
    fdr_fail_driver(driver, FDR_DRIVER, error, "the current device is unknown");
    return failed();
  }
  return PyLong_FromLong(device);
}

static PyObject *set_device(PyObject *self, PyObject *args) {
  (void)self;
  const struct fdr_driver *driver = need_driver();
  int device;
  if (!driver || !PyArg_ParseTuple(args, "i", &device)) {
    return NULL;
  }
  int error = driver->set_device(device);
  if (error) {
    fdr_fail_driver(driver, FDR_DRIVER, error, "device %d cannot be made current", device);
    return failed();
  }
  Py_RETURN_NONE;
}

static PyObject *target(PyObject *self, PyObject *args) {
  (void)self;
  const struct fdr_driver *driver = need_driver();
  int device;
  char text[256];
  if (!driver || !PyArg_ParseTuple(args, "i", &device)) {
    return NULL;
  }
  int error = driver->target(device, text, sizeof text);
  if (error) {
    fdr_fail_driver(driver, FDR_DRIVER, error, "the target of device %d is unknown", device);
    return failed();
  }
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *load_code_object(PyObject *self, PyObject *args) {
  (void)self;
  const struct fdr_driver *driver = need_driver();
  Py_buffer image;
  if (!driver || !PyArg_ParseTuple(args, "y*", &image)) {
    return NULL;
  }
  void *module = NULL;
  int error;
  Py_BEGIN_ALLOW_THREADS;
  error = driver->load(&module, image.buf);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&image);
  if (error) {
    fdr_fail_driver(driver, FDR_DRIVER, error, "the code object does not load");
    return failed();
  }
  return PyLong_FromVoidPtr(module);
}

static PyObject *unload(PyObject *self, PyObject *args) {
  (void)self;
  const struct fdr_driver *driver = need_driver();
  unsigned long long module;
  if (!driver || !PyArg_ParseTuple(args, "K", &module)) {
    return NULL;
  }
  int error;
  Py_BEGIN_ALLOW_THREADS;
  error = driver->unload((void *)(uintptr_t)module);
  Py_END_ALLOW_THREADS;
  if (error) {
    fdr_fail_driver(driver, FDR_DRIVER, error, "the module does not unload");
    return failed();
  }
  Py_RETURN_NONE;
}

static PyObject *function(PyObject *self, PyObject *args) {
  (void)self;
  const struct fdr_driver *driver = need_driver();
  unsigned long long module;
  const char *name;
  void *found = NULL;
  if (!driver || !PyArg_ParseTuple(args, "Ks", &module, &name)) {
    return NULL;
  }
  int error = driver->function(&found, (void *)(uintptr_t)module, name);
  if (error) {
    fdr_fail_driver(driver, FDR_DRIVER, error, "kernel %s is not found", name);
    return failed();
  }
  return PyLong_FromVoidPtr(found);
}

static PyObject *global_variable(PyObject *self, PyObject *args) {
  (void)self;
  const struct fdr_driver *driver = need_driver();
  unsigned long long module;
  const char *name;
  void *address = NULL;
  size_t size = 0;
  if (!driver || !PyArg_ParseTuple(args, "Ks", &module, &name)) {
    return NULL;
  }
  int error = driver->global(&address, &size, (void *)(uintptr_t)module, name);
  if (error) {
    fdr_fail_driver(driver, FDR_DRIVER, error, "device global %s is not found", name);
    return failed();
  }
  return Py_BuildValue("(Nn)", PyLong_FromVoidPtr(address), (Py_ssize_t)size);
}

static PyObject *copy_to_device(PyObject *self, PyObject *args) {
  (void)self;
  const struct fdr_driver *driver = need_driver();
  unsigned long long address;
  Py_buffer data;
  if (!driver || !PyArg_ParseTuple(args, "Ky*", &address, &data)) {
    return NULL;
  }
  int error;
  Py_BEGIN_ALLOW_THREADS;
  error = driver->copy_to_device((void *)(uintptr_t)address, data.buf, (size_t)data.len);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&data);
  if (error) {
    fdr_fail_driver(driver, FDR_DRIVER, error, "the copy to the device failed");
    return failed();
  }
  Py_RETURN_NONE;
}

static PyObject *stream_is_capturing(PyObject *self, PyObject *args) {
  (void)self;
  const struct fdr_driver *driver = need_driver();
  unsigned long long stream;
  if (!driver || !PyArg_ParseTuple(args, "K", &stream)) {
    return NULL;
  }
  int status = 0;
  // A stream that the driver does not know is an error of the launch, not of this question.
  int error = driver->stream_capturing ? driver->stream_capturing((void *)(uintptr_t)stream, &status) : 0;
  return PyBool_FromLong(!error && status);
}

static PyObject *open_library(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *path;
  if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) {
    return NULL;
  }
  void *library = dlopen(PyBytes_AsString(path), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    fdr_fail(FDR_DRIVER, "%s", why ? why : PyBytes_AsString(path));
  }
  Py_DECREF(path);
  return library ? PyLong_FromVoidPtr(library) : failed();
}

static PyObject *library_symbol(PyObject *self, PyObject *args) {
  (void)self;
  unsigned long long library;
  const char *name;
  if (!PyArg_ParseTuple(args, "Ks", &library, &name)) {
    return NULL;
  }
  void *symbol = dlsym((void *)(uintptr_t)library, name);
  if (!symbol) {
    fdr_fail(FDR_DRIVER, "it has no symbol %s", name);
    return failed();
  }
  return PyLong_FromVoidPtr(symbol);
}

static PyObject *is_same_number(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *given, *value;
  if (!PyArg_ParseTuple(args, "OO", &given, &value)) {
    return NULL;
  }
  return PyBool_FromLong(same_number(given, value));
}

static PyObject *generation(PyObject *self, PyObject *args) {
  (void)self;
  (void)args;
  return PyLong_FromUnsignedLong(fdr_generation());
}

// Each raises DriverError(text, code, name) where the driver, or the system's loader, refuses.
static PyMethodDef methods[] = {
    {"open_driver", open_driver, METH_VARARGS,
     "open_driver(path, mapped_only)\n\nOpen and initialise the driver library of this process."},
    {"is_open", is_open, METH_NOARGS, "is_open()\n\nSay whether this process has opened its driver library."},
    {"device_count", device_count, METH_NOARGS, "device_count()\n\nCount the devices."},
    {"current_device", current_device, METH_NOARGS, "current_device()\n\nReturn this thread's current device."},
    {"set_device", set_device, METH_VARARGS, "set_device(device)\n\nMake a device current in this thread."},
    {"target", target, METH_VARARGS, "target(device)\n\nReturn a device's target ID."},
    {"load_code_object", load_code_object, METH_VARARGS,
     "load_code_object(image)\n\nLoad an ELF image on the current device; return the module handle."},
    {"unload", unload, METH_VARARGS, "unload(module)\n\nUnload a module."},
    {"function", function, METH_VARARGS, "function(module, symbol)\n\nReturn the handle of a kernel."},
    {"global_variable", global_variable, METH_VARARGS,
     "global_variable(module, symbol)\n\nReturn address and size in bytes of a device global."},
    {"copy_to_device", copy_to_device, METH_VARARGS, "copy_to_device(address, data)\n\nCopy bytes to the device."},
    {"stream_is_capturing", stream_is_capturing, METH_VARARGS,
     "stream_is_capturing(stream)\n\nSay whether a graph is being captured."},
    {"open_library", open_library, METH_VARARGS, "open_library(path)\n\nOpen a launcher library; return its handle."},
    {"library_symbol", library_symbol, METH_VARARGS,
     "library_symbol(library, name)\n\nReturn the address of an entry of a launcher library."},
    {"same_number", is_same_number, METH_VARARGS,
     "same_number(given, built)\n\nSay whether equal numbers are of one kind: bool, int or float."},
    {"generation", generation, METH_NOARGS, "generation()\n\nCount the forks since the first process."},
    {NULL, NULL, 0, NULL},
};

// Types and route cache are made once in a process; a second import of the module shares them.
static int make_types(PyObject *module) {
  if (driver_error_type) {
    return 0;
  }
  PyObject *name = PyUnicode_FromFormat("%s.DriverError", PyModule_GetName(module));
  const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  module_type = make_module_type(module);
  launcher_type = make_launcher_type(module);
  bound_type = make_bound_type(module);
  PyObject *error = text ? PyErr_NewException(text, PyExc_RuntimeError, NULL) : NULL;
  Py_XDECREF(name);
  if (!module_type || !launcher_type || !bound_type || !error) {
    return -1;
  }
  if (fdr_watch_forks()) {
    PyErr_SetString(PyExc_OSError, "pthread_atfork failed");
    return -1;
  }
  driver_error_type = (PyTypeObject *)error;
  return 0;
}

static int execute(PyObject *module) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    PyErr_SetString(PyExc_ImportError, "the run time of a FlyDSL kernel wheel works in the main interpreter only, "
                                       "not in a sub-interpreter");
    return -1;
  }
  if (prepare_argument_readers() < 0 || make_types(module) < 0 ||
      PyModule_AddObjectRef(module, "Launcher", (PyObject *)launcher_type) < 0 ||
      PyModule_AddObjectRef(module, "Bound", (PyObject *)bound_type) < 0 ||
      PyModule_AddObjectRef(module, "Module", (PyObject *)module_type) < 0 ||
      PyModule_AddObjectRef(module, "DriverError", (PyObject *)driver_error_type) < 0) {
    return -1;
  }
  return PyModule_AddIntConstant(module, "MAX_DEVICES", FDR_MAX_DEVICES);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_doc = "The native run time of FlyDSL kernel wheels.",
    .m_methods = methods,  .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
