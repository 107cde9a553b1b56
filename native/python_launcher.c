// SPDX-License-Identifier: Apache-2.0
// The Python type `Launcher`: binds the arguments of a call, chooses the specialization, and launches.

#include "python_binding.h"

#include <stdio.h>
#include <string.h>

// Python 3.11 has the flag, but shows it to the limited API only from 3.12 on.
#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#define VECTORCALL_COUNT(n) ((Py_ssize_t)((n) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))

typedef PyObject *(*vectorcall_function)(PyObject *, PyObject *const *, size_t, PyObject *);

typedef struct {
  PyObject ob_base;
  vectorcall_function vectorcall;
  PyObject *dict, *weakrefs;
  // The Python object of the module: `_describe(name)`, `_open_driver()`, `_load_for_call(device, stream)`.
  PyObject *handle;
  ModuleObject *module;
  PyObject *name;
  const char *name_text;
  struct launcher_table *table; // NULL before the first call
} LauncherObject;

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

PyTypeObject *make_launcher_type(PyObject *module) {
  return make_type(module, "Launcher", sizeof(LauncherObject),
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, launcher_slots);
}
