// SPDX-License-Identifier: Apache-2.0
// The Python type `Module`: what is loaded of a module, for each device. Launchers read it without a lock.

#include "binding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *make_type(PyObject *module, const char *name, size_t size, unsigned flags, PyType_Slot *slots) {
  char full[512];
  const char *package = PyModule_GetName(module); // private copies in other wheels have other names
  if (!package) {
    return NULL;
  }
  snprintf(full, sizeof full, "%s.%s", package, name);
  PyType_Spec spec = {.name = full, .basicsize = (int)size, .flags = flags, .slots = slots};
  return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}

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

static void free_loaded(struct fdb_loaded *loaded) {
  for (uint32_t i = 0; i < loaded->entry_count; i++) {
    for (uint32_t k = 0; k < loaded->entries[i].kernel_count; k++) {
      free((void *)loaded->entries[i].kernels[k].symbol);
    }
    free(loaded->entries[i].kernels);
  }
  free(loaded);
}

// Whoever launches holds a launcher, which holds its module: so nobody reads the tables any more. The driver is not
// asked.
static void module_dealloc(PyObject *object) {
  ModuleObject *self = (ModuleObject *)object;
  PyTypeObject *type = Py_TYPE(object);
  for (int device = 0; device < FDB_MAX_DEVICES; device++) {
    struct fdb_loaded *loaded = atomic_load_explicit(&self->loaded[device], memory_order_relaxed);
    if (loaded) {
      free_loaded(loaded);
    }
  }
  fdb_free_tables(self->tables);
  Py_XDECREF(self->launch_error);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF((PyObject *)type);
}

static int publish_entry(struct fdb_entry *entry, PyObject *item) {
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
    struct fdb_kernel *kernel = &entry->kernels[entry->kernel_count];
    unsigned long long handle;
    const char *symbol;
    if (!PyArg_ParseTuple(PyTuple_GetItem(kernels, entry->kernel_count), "KsI(III)", &handle, &symbol,
                          &kernel->max_workgroup, &kernel->block[0], &kernel->block[1], &kernel->block[2])) {
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
  entry->function = (fdb_entry_function)(uintptr_t)function;
  return 0;
}

static int read_device(PyObject *object) {
  long device = PyLong_AsLong(object);
  if ((device < 0 || device >= FDB_MAX_DEVICES) && !PyErr_Occurred()) {
    PyErr_Format(PyExc_ValueError, "device %ld; this run time serves devices 0 to %d", device, FDB_MAX_DEVICES - 1);
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
  struct fdb_loaded *loaded = calloc(1, sizeof *loaded + (size_t)count * sizeof *loaded->entries);
  if (!loaded) {
    return PyErr_NoMemory();
  }
  loaded->generation = fdb_generation();
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

// The table stays, as after a fork: a thread may be launching with it.
static PyObject *module_withdraw(PyObject *object, PyObject *argument) {
  int device = read_device(argument);
  if (device < 0) {
    return NULL;
  }
  atomic_store_explicit(&((ModuleObject *)object)->loaded[device], NULL, memory_order_release);
  Py_RETURN_NONE;
}

static PyObject *module_is_loaded(PyObject *object, PyObject *argument) {
  int device = read_device(argument);
  if (device < 0) {
    return NULL;
  }
  const struct fdb_loaded *loaded =
      atomic_load_explicit(&((ModuleObject *)object)->loaded[device], memory_order_acquire);
  return PyBool_FromLong(loaded && loaded->generation == fdb_generation());
}

// The library is never closed, so the table that lies in it lives as long as the process.
static PyObject *module_read_tables(PyObject *object, PyObject *args) {
  ModuleObject *self = (ModuleObject *)object;
  unsigned long long address;
  if (!PyArg_ParseTuple(args, "K", &address)) {
    return NULL;
  }
  const struct fdb_table_header *header = (const void *)(uintptr_t)address;
  struct fdb_tables *tables;
  if (self->tables) {
    Py_RETURN_NONE;
  }
  if (fdb_read_tables(header, header->size, &tables)) {
    PyErr_SetString(PyExc_ValueError, fdb_last_error()->text);
    return NULL;
  }
  self->tables = tables;
  Py_RETURN_NONE;
}

static PyObject *module_expected(PyObject *object, PyObject *args) {
  const struct fdb_tables *tables = ((ModuleObject *)object)->tables;
  unsigned position;
  if (!PyArg_ParseTuple(args, "I", &position)) {
    return NULL;
  }
  if (!tables || position >= tables->specialization_count) {
    PyErr_Format(PyExc_ValueError, "the call table has no specialization %u", position);
    return NULL;
  }
  const struct fdb_table *table = &tables->specializations[position].table;
  PyObject *found = PyDict_New();
  for (uint32_t i = 0; found && i < table->argument_count; i++) {
    PyObject *text = PyUnicode_FromString(table->arguments[i].expected);
    if (!text || PyDict_SetItemString(found, table->arguments[i].label, text) < 0) {
      Py_CLEAR(found);
    }
    Py_XDECREF(text);
  }
  return found;
}

static PyMethodDef module_methods[] = {
    {"publish", module_publish, METH_VARARGS,
     "publish(device, target, entries)\n\nMake a loaded module callable. An entry, by the position of the "
     "specialization: None, or (function, ((kernel, symbol, max_workgroup, block), ...))."},
    {"read_tables", module_read_tables, METH_VARARGS,
     "read_tables(address)\n\nRead the call table of the launcher library, which must stay open."},
    {"expected", module_expected, METH_VARARGS,
     "expected(position)\n\nReturn what each argument of a specialization must be, by its name."},
    {"withdraw", module_withdraw, METH_O,
     "withdraw(device)\n\nMake a loaded module one that the next call has to load."},
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
