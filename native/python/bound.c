// SPDX-License-Identifier: Apache-2.0
// The Python type `Bound`: what `launcher.bind(...)` returns. The arguments were checked and packed once; a call
// launches.

#include "binding.h"

#include <string.h>

// What one bind() or update() has packed. Never changed after that but for `driver` and `loaded`, so that an update may
// replace it while another thread, without the interpreter lock, launches with it: the last user frees it.
struct packed {
  Py_ssize_t users;
  PyObject *arguments; // tuple, by parameter
  PyObject *kept;      // tuple of what else has to live: DLPack capsules, fields of structs
  const struct specialization *specialization;
  const struct fdb_driver *driver;
  const struct fdb_loaded *loaded;
  int device;
  uint64_t stream;
  char *block;
  void *slots[];
};

// Begins as LauncherObject does, as call_vectorcall() wants.
typedef struct {
  PyObject ob_base;
  vectorcall_function vectorcall;
  PyObject *weakrefs;
  LauncherObject *launcher;
  struct packed *packed;
  char releases_gil;
} BoundObject;

PyTypeObject *bound_type;

static void release(struct packed *packed) {
  if (packed && --packed->users == 0) {
    Py_XDECREF(packed->arguments);
    Py_XDECREF(packed->kept);
    PyMem_Free(packed);
  }
}

static PyObject *tuple_of(PyObject *const *items, int count) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) {
    Py_INCREF(items[i]);
    PyTuple_SetItem(tuple, i, items[i]);
  }
  return tuple;
}

// Of what was read as a buffer, a memoryview, because array.array and bytearray move their memory unless one is held.
static int hold_buffers(const struct call *call, PyObject **held) {
  int count = 0;
  const struct specialization *specialization = call->specialization;
  for (uint32_t i = 0; i < specialization->table.argument_count; i++) {
    const struct source *source = &specialization->sources[i];
    const struct tensor_view *view = source->view < 0 ? NULL : &call->views[source->view];
    if (!view || view->state != VIEW_TENSOR) {
      continue;
    }
    PyObject *object = view->owner ? view->owner : call->bound[source->parameter];
    const struct route_entry *slot = route_slot(Py_TYPE(object));
    bool known = slot->type == Py_TYPE(object); // else another type took its place since
    if ((known && slot->route != ROUTE_BUFFER) || !PyObject_CheckBuffer(object)) {
      continue;
    }
    PyObject *memory = PyMemoryView_FromObject(object);
    Py_buffer buffer;
    if (!memory || PyObject_GetBuffer(memory, &buffer, PyBUF_FULL_RO) < 0) {
      Py_XDECREF(memory); // it was read by its array interface
      PyErr_Clear();
      continue;
    }
    bool moved = known && buffer.buf != view->tensor.data;
    PyBuffer_Release(&buffer);
    held[count++] = memory;
    if (moved) {
      PyErr_Format(PyExc_BufferError, "%s(): argument %s was resized while it was being bound", call->self->name_text,
                   specialization->table.arguments[i].label);
      while (count) {
        Py_DECREF(held[--count]);
      }
      return -1;
    }
  }
  return count;
}

static PyObject *keep_views(const struct call *call) {
  PyObject *kept[2 * call->table->view_count + call->specialization->table.argument_count + 1];
  kept[0] = NULL;
  int count = hold_buffers(call, kept), held = count;
  if (count < 0) {
    return NULL;
  }
  for (int i = 0; i < call->table->view_count; i++) {
    const struct tensor_view *view = &call->views[i];
    if (view->state != VIEW_UNREAD && view->keep) {
      kept[count++] = view->keep;
    }
    if (view->state != VIEW_UNREAD && view->owner) {
      kept[count++] = view->owner;
    }
  }
  PyObject *tuple = tuple_of(kept, count);
  while (held) {
    Py_DECREF(kept[--held]);
  }
  return tuple;
}

// The block of a call that was prepared, copied to where it lasts. NULL with a Python exception.
static struct packed *copy_packed(const struct call *call, PyObject *arguments) {
  const struct specialization *specialization = call->specialization;
  const struct fdb_table *table = &specialization->table;
  size_t head = (sizeof(struct packed) + table->slot_count * sizeof(void *) + 15) & ~(size_t)15;
  struct packed *packed = PyMem_Calloc(1, head + 16 + table->block_size);
  if (!packed) {
    PyErr_NoMemory();
    return NULL;
  }
  packed->users = 1;
  packed->specialization = specialization;
  packed->driver = call->driver;
  packed->loaded = call->loaded;
  packed->device = call->device;
  packed->stream = specialization->stream < 0 ? 0 : call->values[specialization->stream].bits;
  packed->block = (char *)(((uintptr_t)packed + head + 15) & ~(uintptr_t)15);
  memcpy(packed->block, call->block, table->block_size);
  fdb_point_slots(table, packed->block, packed->slots);
  Py_INCREF(arguments);
  packed->arguments = arguments;
  if (!(packed->kept = keep_views(call))) {
    release(packed);
    return NULL;
  }
  return packed;
}

// Checks and packs `arguments`, which have one item a parameter. NULL with a Python exception.
static struct packed *pack(LauncherObject *launcher, const struct launcher_table *table, PyObject *arguments) {
  PyObject *bound[table->parameter_count + 1];
  for (int i = 0; i < table->parameter_count; i++) {
    bound[i] = PyTuple_GetItem(arguments, i);
  }
  CALL_FRAME(call, launcher, table, bound);
  struct packed *packed = prepare_call(&call) == DONE ? copy_packed(&call, arguments) : NULL;
  release_views(&call);
  return packed;
}

// A forked child has the driver to open and the module to load, as at the first call.
static bool renew(BoundObject *self, struct packed *packed) {
  LauncherObject *launcher = self->launcher;
  if (!(packed->driver = fdb_driver()) && !(packed->driver = open_driver_for(launcher))) {
    return false;
  }
  const struct fdb_loaded *loaded = loaded_on(launcher->module, packed->device);
  if (!loaded && !(loaded = load_for(launcher, packed->device, packed->stream))) {
    return false;
  }
  uint32_t index = (uint32_t)packed->specialization->index;
  if (index >= loaded->entry_count || !loaded->entries[index].function) {
    PyErr_Format(PyExc_RuntimeError, "%s(): it was not built for %s (device %d)", launcher->name_text, loaded->target,
                 packed->device);
    return false;
  }
  packed->loaded = loaded;
  return true;
}

static PyObject *vectorcall_bound(PyObject *object, PyObject *const *args, size_t flagged, PyObject *keywords) {
  (void)args;
  BoundObject *self = (BoundObject *)object;
  struct packed *packed = self->packed;
  if (VECTORCALL_COUNT(flagged) || keywords || !packed) {
    PyErr_Format(PyExc_TypeError, "%s(): what bind() returned takes no arguments; its update() replaces them",
                 self->launcher ? self->launcher->name_text : "?");
    return NULL;
  }
  LauncherObject *launcher = self->launcher;
  packed->users++;
  enum outcome outcome = RAISED;
  if (LIKELY(loaded_on(launcher->module, packed->device) == packed->loaded) || renew(self, packed)) {
    outcome = launch_packed(launcher, packed->specialization, packed->driver, packed->loaded, packed->device,
                            packed->slots, self->releases_gil);
  }
  release(packed);
  if (outcome != DONE) {
    return NULL;
  }
  Py_RETURN_NONE;
}

PyObject *bind_launcher(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
  LauncherObject *launcher = (LauncherObject *)object;
  const struct launcher_table *table = table_of(launcher);
  if (!table) {
    return NULL;
  }
  PyObject *room[table->parameter_count + 1];
  PyObject *const *bound = bind_arguments(launcher, table, args, count, keywords, room);
  PyObject *arguments = bound ? tuple_of(bound, table->parameter_count) : NULL;
  struct packed *packed = arguments ? pack(launcher, table, arguments) : NULL;
  Py_XDECREF(arguments);
  if (!packed) {
    return NULL;
  }
  BoundObject *self = (BoundObject *)((allocfunc)PyType_GetSlot(bound_type, Py_tp_alloc))(bound_type, 0);
  if (!self) {
    release(packed);
    return NULL;
  }
  Py_INCREF(object);
  self->vectorcall = vectorcall_bound;
  self->launcher = launcher;
  self->packed = packed;
  self->releases_gil = true;
  return (PyObject *)self;
}

// ---- methods and attributes -----------------------------------------------------------------------------------------

static PyObject *bound_update(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
  BoundObject *self = (BoundObject *)object;
  LauncherObject *launcher = self->launcher;
  const struct launcher_table *table = launcher && self->packed ? table_of(launcher) : NULL;
  if (count || !table) {
    PyErr_SetString(PyExc_TypeError, "update() takes the arguments to replace by their names");
    return NULL;
  }
  PyObject *room[table->parameter_count + 1];
  for (int i = 0; i < table->parameter_count; i++) {
    room[i] = PyTuple_GetItem(self->packed->arguments, i);
  }
  Py_ssize_t keyword_count = keywords ? PyTuple_Size(keywords) : 0;
  for (Py_ssize_t k = 0; k < keyword_count; k++) {
    PyObject *name = PyTuple_GetItem(keywords, k);
    int parameter = find_parameter(table, name);
    if (parameter < 0) {
      PyErr_Format(PyExc_TypeError, "update() got an unexpected keyword argument '%U'; %s() has no such parameter",
                   name, launcher->name_text);
      return NULL;
    }
    room[parameter] = args[k];
  }
  PyObject *arguments = tuple_of(room, table->parameter_count);
  struct packed *packed = arguments ? pack(launcher, table, arguments) : NULL;
  Py_XDECREF(arguments);
  if (!packed) {
    return NULL; // what was bound before stays
  }
  struct packed *old = self->packed;
  self->packed = packed;
  release(old);
  Py_RETURN_NONE;
}

static PyObject *bound_arguments(PyObject *object, void *closure) {
  (void)closure;
  BoundObject *self = (BoundObject *)object;
  PyObject *result = PyDict_New();
  const struct launcher_table *table = self->packed ? table_of(self->launcher) : NULL;
  for (int i = 0; result && table && i < table->parameter_count; i++) {
    if (PyDict_SetItem(result, table->parameters[i].name, PyTuple_GetItem(self->packed->arguments, i)) < 0) {
      Py_CLEAR(result);
    }
  }
  return result;
}

static PyObject *bound_device(PyObject *object, void *closure) {
  (void)closure;
  BoundObject *self = (BoundObject *)object;
  return PyLong_FromLong(self->packed ? self->packed->device : -1);
}

static PyObject *bound_specialization(PyObject *object, void *closure) {
  (void)closure;
  BoundObject *self = (BoundObject *)object;
  return PyUnicode_FromString(self->packed ? self->packed->specialization->name : "");
}

static PyObject *bound_repr(PyObject *object) {
  BoundObject *self = (BoundObject *)object;
  if (!self->packed) {
    return PyUnicode_FromString("<FlyDSL launch>");
  }
  return PyUnicode_FromFormat("<FlyDSL launch of %s on device %d, bound to %R>", self->packed->specialization->name,
                              self->packed->device, (PyObject *)self->launcher);
}

static int bound_traverse(PyObject *object, visitproc visit, void *arg) {
  BoundObject *self = (BoundObject *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->launcher);
  // References of a launch in another thread are not this object's alone.
  if (self->packed && self->packed->users == 1) {
    Py_VISIT(self->packed->arguments);
    Py_VISIT(self->packed->kept);
  }
  return 0;
}

static int bound_clear(PyObject *object) {
  BoundObject *self = (BoundObject *)object;
  struct packed *packed = self->packed;
  self->packed = NULL;
  release(packed);
  return 0;
}

static void bound_dealloc(PyObject *object) {
  BoundObject *self = (BoundObject *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs) {
    PyObject_ClearWeakRefs(object);
  }
  bound_clear(object);
  Py_XDECREF((PyObject *)self->launcher);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF((PyObject *)type);
}

static PyMemberDef bound_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(BoundObject, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(BoundObject, weakrefs), READONLY, NULL},
    {"launcher", T_OBJECT_EX, offsetof(BoundObject, launcher), READONLY, "The launcher."},
    {"releases_gil", T_BOOL, offsetof(BoundObject, releases_gil), 0,
     "Whether other Python threads run while the launch is made: True unless it is set. Without, a call costs half as "
     "much; but a launch that waits for a place in the queue then stops all Python code, for ever if what it waits for "
     "is a host callback in Python."},
    {0},
};

static PyGetSetDef bound_getset[] = {
    {"arguments", bound_arguments, NULL, "The arguments, by parameter.", NULL},
    {"device", bound_device, NULL, "The device that it launches on.", NULL},
    {"specialization", bound_specialization, NULL, "The name of the specialization that the arguments fit.", NULL},
    {0},
};

static PyMethodDef bound_methods[] = {
    {"update", (PyCFunction)(void (*)(void))bound_update, METH_FASTCALL | METH_KEYWORDS,
     "update($self, /, **arguments)\n--\n\nReplace arguments, after the same checks; where they fail, nothing "
     "changes."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot bound_slots[] = {
    {Py_tp_dealloc, bound_dealloc},
    {Py_tp_traverse, bound_traverse},
    {Py_tp_clear, bound_clear},
    {Py_tp_call, call_vectorcall},
    {Py_tp_repr, bound_repr},
    {Py_tp_members, bound_members},
    {Py_tp_getset, bound_getset},
    {Py_tp_methods, bound_methods},
    {Py_tp_doc, "A call with its arguments checked and packed: calling it launches. It keeps its arguments alive."},
    {0, NULL},
};

PyTypeObject *make_bound_type(PyObject *module) {
  return make_type(module, "Bound", sizeof(BoundObject),
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                       Py_TPFLAGS_DISALLOW_INSTANTIATION,
                   bound_slots);
}
