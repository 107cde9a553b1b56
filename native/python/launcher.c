// SPDX-License-Identifier: Apache-2.0
// The Python type `Launcher`: binds the arguments of a call, chooses the specialization, and launches.

#include "binding.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static PyObject *vectorcall_launcher(PyObject *object, PyObject *const *args, size_t flagged, PyObject *keywords);

// Replaces what compile_table() raised by what the handle says of a manifest that is wrong.
static void blame_manifest(LauncherObject *self) {
  PyObject *kind, *value, *trace;
  PyErr_Fetch(&kind, &value, &trace);
  PyErr_NormalizeException(&kind, &value, &trace);
  PyObject *result = PyObject_CallMethod(self->handle, "_refuse_description", "OO", self->name, value);
  Py_XDECREF(result);
  if (PyErr_Occurred()) {
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
  } else {
    PyErr_Restore(kind, value, trace);
  }
}

static const struct launcher_table *make_table(LauncherObject *self) {
  PyObject *description = PyObject_CallMethod(self->handle, "_describe", "O", self->name);
  struct launcher_table *table = description ? compile_table(description, self->module->tables) : NULL;
  if (description && !table) {
    blame_manifest(self);
  }
  Py_XDECREF(description);
  if (!table) {
    return NULL;
  }
  if (self->table) { // another thread was faster, while this one ran Python code
    free_table(table);
  } else {
    self->table = table;
  }
  return self->table;
}

const struct launcher_table *table_of(LauncherObject *self) { return self->table ? self->table : make_table(self); }

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

int find_parameter(const struct launcher_table *table, PyObject *name) {
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

// Remembers a call that was bound without an error, so that the next of its shape needs no look at any name.
static void remember_shape(LauncherObject *self, const struct launcher_table *table, Py_ssize_t count,
                           PyObject *keywords, Py_ssize_t keyword_count) {
  if (keyword_count > SHAPE_KEYWORDS || table->parameter_count > UINT8_MAX) {
    return;
  }
  struct call_shape shape = {.keywords = keywords, .positional = count, .keyword_count = (uint8_t)keyword_count};
  for (Py_ssize_t k = 0; k < keyword_count; k++) {
    shape.parameter[k] = (uint8_t)find_parameter(table, PyTuple_GetItem(keywords, k));
  }
  struct call_shape *slot = &self->shapes[((uintptr_t)keywords >> 4) % CALL_SHAPES];
  PyObject *old = slot->keywords;
  Py_INCREF(keywords); // so that its address cannot come to mean another tuple
  *slot = shape;
  Py_XDECREF(old);
}

static PyObject *const *bind_slowly(LauncherObject *self, const struct launcher_table *table, PyObject *const *args,
                                    Py_ssize_t count, PyObject *keywords, PyObject **room) {
  if (count > table->positional_count) {
    raise_too_many(self, table, count);
    return NULL;
  }
  // Positional parameters come first, so position i is parameter i.
  for (int i = 0; i < table->parameter_count; i++) {
    room[i] = i < count ? args[i] : NULL;
  }
  Py_ssize_t keyword_count = keywords ? PyTuple_Size(keywords) : 0;
  for (Py_ssize_t k = 0; k < keyword_count; k++) {
    if (bind_keyword(self, table, PyTuple_GetItem(keywords, k), args[count + k], room) < 0) {
      return NULL;
    }
  }
  bool missing = false;
  for (int i = 0; i < table->parameter_count; i++) {
    if (!room[i]) {
      room[i] = table->parameters[i].fallback;
      missing |= !room[i];
    }
  }
  if (missing) {
    raise_missing(self, table, room);
    return NULL;
  }
  if (keyword_count) {
    remember_shape(self, table, count, keywords, keyword_count);
  }
  return room;
}

inline PyObject *const *bind_arguments(LauncherObject *self, const struct launcher_table *table, PyObject *const *args,
                                       Py_ssize_t count, PyObject *keywords, PyObject **room) {
  const struct call_shape *shape = NULL;
  if (keywords) {
    shape = &self->shapes[((uintptr_t)keywords >> 4) % CALL_SHAPES];
    if (shape->keywords != keywords || shape->positional != count) {
      return bind_slowly(self, table, args, count, keywords, room);
    }
  } else if (count < table->enough_count || count > table->positional_count) {
    return bind_slowly(self, table, args, count, keywords, room);
  } else if (count == table->parameter_count) {
    return args;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    room[i] = args[i];
  }
  for (Py_ssize_t i = count; i < table->parameter_count; i++) {
    room[i] = table->parameters[i].fallback;
  }
  for (Py_ssize_t k = 0; shape && k < shape->keyword_count; k++) {
    room[shape->parameter[k]] = args[count + k];
  }
  return room;
}

// ---- one call -------------------------------------------------------------------------------------------------------

static PyObject *exception_of(enum fdb_code code) {
  return code == FDB_TYPE ? PyExc_TypeError : code == FDB_OVERFLOW ? PyExc_OverflowError : PyExc_ValueError;
}

static enum outcome raise_last_error(const LauncherObject *self) {
  const struct fdb_error *error = fdb_last_error();
  if (error->code == FDB_DRIVER || error->code == FDB_LAUNCH) {
    // A factory's launcher has all of its parameters in its name.
    PyObject *prefix = PyUnicode_FromFormat("%s(): ", self->name_text);
    const char *text = prefix ? PyUnicode_AsUTF8AndSize(prefix, NULL) : NULL;
    if (text) {
      raise_driver_error(self->module->launch_error, text);
    }
    Py_XDECREF(prefix);
  } else {
    PyErr_Format(exception_of(error->code), "%s(): %s", self->name_text, error->text);
  }
  return RAISED;
}

// `object` is of another kind than the argument, of which another specialization may have made something else.
static enum outcome refuse_kind(const struct fdb_argument *argument, PyObject *object) {
  PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
  const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  PyErr_Clear();
  fdb_fail(FDB_TYPE, "argument %s must be %s, got a value of type %s", argument->label, argument->expected,
           text ? text : "?");
  Py_XDECREF(name);
  return MISFIT;
}

// The text of an exception, whose own code may fail: then, the name of its type.
static PyObject *text_of(PyObject *exception) {
  PyObject *text = PyObject_Str(exception);
  if (!text && PyErr_ExceptionMatches(PyExc_Exception)) {
    PyErr_Clear();
    text = PyObject_GetAttrString((PyObject *)Py_TYPE(exception), "__name__");
  }
  return text;
}

// Raises the exception that is set as one of `type` which names the argument. Of Python code, it is the cause.
static void restate(const struct call *call, const struct fdb_argument *argument, PyObject *type) {
  PyObject *kind, *value, *trace;
  PyErr_Fetch(&kind, &value, &trace);
  PyErr_NormalizeException(&kind, &value, &trace);
  PyObject *text = value ? text_of(value) : NULL;
  if (text) {
    PyErr_Format(type, "%s(): argument %s must be %s: %U", call->self->name_text, argument->label, argument->expected,
                 text);
  }
  Py_XDECREF(text);
  if (trace && PyErr_Occurred()) {
    PyObject *new_kind, *new_value, *new_trace;
    PyException_SetTraceback(value, trace);
    PyErr_Fetch(&new_kind, &new_value, &new_trace);
    PyErr_NormalizeException(&new_kind, &new_value, &new_trace);
    Py_INCREF(value);
    PyException_SetCause(new_value, value);
    PyErr_Restore(new_kind, new_value, new_trace);
  }
  Py_XDECREF(kind);
  Py_XDECREF(value);
  Py_XDECREF(trace);
}

// An exception of another type stays what it is, but its traceback names the argument.
static void add_note(const struct call *call, const struct fdb_argument *argument) {
  PyObject *kind, *value, *trace;
  PyErr_Fetch(&kind, &value, &trace);
  PyErr_NormalizeException(&kind, &value, &trace);
  PyObject *note =
      PyUnicode_FromFormat("%s(): argument %s must be %s", call->self->name_text, argument->label, argument->expected);
  PyObject *result = note ? PyObject_CallMethod(value, "add_note", "O", note) : NULL;
  Py_XDECREF(result);
  Py_XDECREF(note);
  PyErr_Clear();
  PyErr_Restore(kind, value, trace);
}

// Says of which argument an exception speaks that came from reading it.
static enum outcome refuse_unreadable(const struct call *call, const struct fdb_argument *argument, PyObject *object,
                                      int result) {
  if (result == 1) {
    return refuse_kind(argument, object);
  }
  PyObject *ours = PyErr_ExceptionMatches(PyExc_BufferError)     ? PyExc_BufferError
                   : PyErr_ExceptionMatches(PyExc_OverflowError) ? PyExc_OverflowError
                   : PyErr_ExceptionMatches(PyExc_ValueError)    ? PyExc_ValueError
                   : PyErr_ExceptionMatches(PyExc_TypeError)     ? PyExc_TypeError
                                                                 : NULL;
  if (ours) {
    restate(call, argument, ours);
  } else if (PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_RecursionError) &&
             !PyErr_ExceptionMatches(PyExc_MemoryError)) {
    add_note(call, argument);
  }
  return RAISED;
}

static inline enum outcome read_view(const struct call *call, const struct fdb_argument *argument,
                                     const struct source *source, PyObject *object, struct fdb_value *value) {
  struct tensor_view *view = &call->views[source->view];
  if (view->state == VIEW_UNREAD) {
    int result;
    if (argument->kind == FDB_TENSOR) {
      result = read_tensor(object, view);
      view->state = VIEW_TENSOR;
    } else {
      result = read_pointer(object, view);
    }
    view->owner = NULL;
    if (!LIKELY(result == 0)) {
      view->state = VIEW_UNREAD;
      Py_CLEAR(view->keep);
      return refuse_unreadable(call, argument, object, result);
    }
    if (source->depth) {
      Py_INCREF(object);
      view->owner = object;
    }
  }
  if (argument->kind == FDB_TENSOR && view->state != VIEW_TENSOR) { // read for a pointer of another specialization
    return refuse_kind(argument, object);
  }
  value->tensor = view->state == VIEW_TENSOR ? &view->tensor : NULL;
  value->bits = (uintptr_t)view->tensor.data;
  return DONE;
}

static enum outcome read_argument(const struct call *call, const struct fdb_argument *argument,
                                  const struct source *source, PyObject *object, struct fdb_value *value) {
  value->tensor = NULL;
  switch (argument->kind) {
  case FDB_TENSOR:
  case FDB_POINTER:
    return read_view(call, argument, source, object, value);
  case FDB_SCALAR:
    if (LIKELY(read_scalar(object, argument->dtype, argument->label, &value->bits) == FDB_OK)) {
      return DONE;
    }
    return PyErr_Occurred() ? RAISED : MISFIT;
  case FDB_STREAM: {
    int result = read_stream(object, &value->bits);
    return result ? refuse_unreadable(call, argument, object, result) : DONE;
  }
  }
  return MISFIT;
}

// `object`, which is at `depth` inside the struct, lacks the next field of the path: another specialization may fit.
static enum outcome refuse_struct(const struct call *call, const struct source *source, Py_ssize_t depth,
                                  PyObject *object) {
  PyErr_Clear();
  PyObject *place = call->table->parameters[source->parameter].name;
  Py_INCREF(place);
  for (Py_ssize_t i = 0; place && i < depth; i++) {
    PyObject *longer = PyUnicode_FromFormat("%U.%U", place, PyTuple_GetItem(source->path, i));
    Py_DECREF(place);
    place = longer;
  }
  PyObject *type = place ? PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__") : NULL;
  PyObject *text = type ? PyUnicode_FromFormat("argument %U must have a field %U, got a value of type %S", place,
                                               PyTuple_GetItem(source->path, depth), type)
                        : NULL;
  Py_XDECREF(place);
  Py_XDECREF(type);
  const char *bytes = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  if (bytes) {
    fdb_fail(FDB_TYPE, "%s", bytes);
  }
  Py_XDECREF(text);
  return bytes ? MISFIT : RAISED;
}

static enum outcome read_field(const struct call *call, const struct fdb_argument *argument,
                               const struct source *source, struct fdb_value *value) {
  PyObject *object = call->bound[source->parameter];
  if (!source->depth) {
    return read_argument(call, argument, source, object, value);
  }
  Py_INCREF(object);
  for (Py_ssize_t i = 0; i < source->depth; i++) {
    PyObject *field = PyObject_GetAttr(object, PyTuple_GetItem(source->path, i));
    if (!field) {
      enum outcome outcome =
          PyErr_ExceptionMatches(PyExc_AttributeError) ? refuse_struct(call, source, i, object) : RAISED;
      Py_DECREF(object);
      return outcome;
    }
    Py_DECREF(object);
    object = field;
  }
  enum outcome outcome = read_argument(call, argument, source, object, value);
  Py_DECREF(object);
  return outcome;
}

enum number { NO_NUMBER, BOOL, INTEGER, REAL };

static enum number number_of(PyObject *object) {
  if (PyBool_Check(object)) {
    return BOOL;
  }
  if (PyLong_CheckExact(object)) { // a member of an enum is no number
    return INTEGER;
  }
  return PyFloat_Check(object) ? REAL : NO_NUMBER;
}

// What a scalar of numpy's holds, as Python's number; arrays, of which a single one may be equal to a number, hold none.
static PyObject *item_of(PyObject *object) {
  PyObject *item = PySequence_Check(object) ? NULL : PyObject_CallMethod(object, "item", NULL);
  if (!item) {
    PyErr_Clear();
  }
  return item;
}

static bool same_sign(PyObject *given, PyObject *value) {
  double number = PyFloat_AsDouble(given), built = PyFloat_AsDouble(value);
  return isnan(built) || !signbit(number) == !signbit(built);
}

bool same_number(PyObject *given, PyObject *value) {
  if (given == value) {
    return true;
  }
  if (PyTuple_Check(given) && PyTuple_Check(value)) {
    Py_ssize_t size = PyTuple_Size(given);
    bool same = size == PyTuple_Size(value);
    for (Py_ssize_t i = 0; same && i < size; i++) {
      same = same_number(PyTuple_GetItem(given, i), PyTuple_GetItem(value, i));
    }
    return same;
  }
  enum number number = number_of(value);
  if (number == NO_NUMBER) {
    return true;
  }
  PyObject *item = number_of(given) == NO_NUMBER ? item_of(given) : Py_NewRef(given);
  enum number found = item ? number_of(item) : NO_NUMBER;
  bool same = found == number;
  if (number == REAL && (found == REAL || found == INTEGER)) {
    same = same_sign(item, value); // an int is taken for a float, as by type checkers
  }
  Py_XDECREF(item);
  return same;
}

// Whether two equal values are also of one type, where both may be meant.
static bool same_type(PyObject *given, PyObject *value) {
  if (given == value) {
    return true;
  }
  // What is equal to text may be more than that: a type by its name, a member of an enum.
  if (number_of(given) != number_of(value) || PyUnicode_CheckExact(given) != PyUnicode_CheckExact(value)) {
    return false;
  }
  if (PyTuple_Check(given) && PyTuple_Check(value)) {
    Py_ssize_t size = PyTuple_Size(given);
    bool same = size == PyTuple_Size(value);
    for (Py_ssize_t i = 0; same && i < size; i++) {
      same = same_type(PyTuple_GetItem(given, i), PyTuple_GetItem(value, i));
    }
    return same;
  }
  return true;
}

// Python's ==, but for values that have none, such as arrays: those are not equal to what a wheel was built for.
static int equals(PyObject *given, PyObject *value) {
  // In this order, because values that stand for others, such as types by their names, know what they are equal to.
  int equal = PyObject_RichCompareBool(value, given, Py_EQ);
  if (equal < 0 && !PyErr_ExceptionMatches(PyExc_RecursionError) &&
      (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_TypeError) ||
       PyErr_ExceptionMatches(PyExc_RuntimeError))) { // torch's
    PyErr_Clear();
    equal = 0;
  }
  return equal;
}

// Whether some specialization was compiled for the very value, and not only for an equal one. -1: an exception.
static int has_exactly(const struct launcher_table *table, int parameter, PyObject *given) {
  int found = 0;
  for (int i = 0; !found && i < table->specialization_count; i++) {
    const struct specialization *specialization = &table->specializations[i];
    for (int k = 0; !found && k < specialization->constant_count; k++) {
      const struct constant *constant = &specialization->constants[k];
      if (constant->parameter == parameter && same_type(given, constant->value)) {
        found = same_number(given, constant->value) ? equals(given, constant->value) : 0;
      }
    }
  }
  return found;
}

// Compares the constexpr parameters and types with the values that the specialization was compiled for. Quiet: another
// one may fit, so no text is made of a difference.
static enum outcome check_constants(const struct call *call, const struct specialization *specialization, bool quiet) {
  for (int i = 0; i < specialization->constant_count; i++) {
    const struct constant *constant = &specialization->constants[i];
    PyObject *given = call->bound[constant->parameter];
    int equal = equals(given, constant->value);
    equal = equal > 0 ? same_number(given, constant->value) : equal;
    if (equal > 0 && call->table->specialization_count > 1 && !same_type(given, constant->value)) {
      int exactly = has_exactly(call->table, constant->parameter, given);
      equal = exactly < 0 ? -1 : !exactly;
    }
    if (equal < 0) {
      return RAISED;
    }
    // The manifest holds a type by its name.
    if (!equal && PyType_Check(given) && PyUnicode_CheckExact(constant->value)) {
      PyObject *name = PyObject_GetAttrString(given, "__name__");
      equal = name ? PyObject_RichCompareBool(name, constant->value, Py_EQ) : -1;
      Py_XDECREF(name);
      if (equal < 0) {
        return RAISED;
      }
    }
    if (!equal && quiet) {
      return MISFIT;
    }
    if (!equal) {
      PyObject *text = PyUnicode_FromFormat("constexpr %U is %R, not %R",
                                            call->table->parameters[constant->parameter].name, given, constant->value);
      const char *bytes = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
      if (!bytes) {
        Py_XDECREF(text);
        return RAISED;
      }
      fdb_fail(FDB_VALUE, "%s", bytes);
      Py_DECREF(text);
      return MISFIT;
    }
  }
  return DONE;
}

static enum outcome fit(const struct call *call, const struct specialization *specialization, bool quiet) {
  enum outcome outcome = specialization->constant_count ? check_constants(call, specialization, quiet) : DONE;
  const struct fdb_argument *argument = specialization->table.arguments;
  const struct source *source = specialization->sources;
  struct fdb_value *value = call->values;
  for (uint32_t i = 0; outcome == DONE && i < specialization->table.argument_count;
       i++, argument++, source++, value++) {
    if (LIKELY(argument->kind == FDB_TENSOR && !source->depth)) {
      outcome = read_view(call, argument, source, call->bound[source->parameter], value);
    } else {
      outcome = read_field(call, argument, source, value);
    }
  }
  if (outcome != DONE) {
    return outcome;
  }
  return fdb_check_and_pack(&specialization->table, call->values, call->names, call->block, quiet) ? MISFIT : DONE;
}

const struct fdb_driver *open_driver_for(LauncherObject *self) {
  PyObject *result = PyObject_CallMethod(self->handle, "_open_driver", NULL);
  Py_XDECREF(result);
  const struct fdb_driver *driver = result ? fdb_driver() : NULL;
  if (!driver && !PyErr_Occurred()) {
    PyErr_SetString(PyExc_RuntimeError, "the driver was not opened");
  }
  return driver;
}

const struct fdb_loaded *load_for(LauncherObject *self, int device, uint64_t stream) {
  PyObject *result = PyObject_CallMethod(self->handle, "_load_for_call", "iK", device, (unsigned long long)stream);
  if (!result) {
    return NULL;
  }
  Py_DECREF(result);
  const struct fdb_loaded *loaded = loaded_on(self->module, device);
  if (!loaded) {
    PyErr_SetString(PyExc_RuntimeError, "the module was not loaded");
  }
  return loaded;
}

enum outcome launch_packed(LauncherObject *self, const struct specialization *specialization,
                           const struct fdb_driver *driver, const struct fdb_loaded *loaded, int device, void **slots,
                           bool release_gil) {
  // A launch can wait for a place in the queue, and what empties the queue may need the interpreter lock.
  PyThreadState *state = LIKELY(release_gil) ? PyEval_SaveThread() : NULL;
  enum fdb_code failed = fdb_enter(driver, loaded, &loaded->entries[specialization->index], device, slots);
  if (LIKELY(state)) {
    PyEval_RestoreThread(state);
  }
  return LIKELY(!failed) ? DONE : raise_last_error(self);
}

// A kernel of one device in the queue of another is an error that HIP may notice late, or not at all.
static enum outcome check_stream(const struct call *call, const struct specialization *specialization) {
  uint64_t stream = call->values[specialization->stream].bits;
  int device = -1;
  if (call->driver->stream_device((void *)(uintptr_t)stream, &device) || device < 0 || device == call->device) {
    return DONE; // a stream that the driver does not know is an error of the launch
  }
  PyErr_Format(PyExc_ValueError, "%s(): argument %s is a stream of device %d, but the launch is on device %d",
               call->self->name_text, specialization->table.arguments[specialization->stream].label, device,
               call->device);
  return RAISED;
}

static enum outcome find_device(struct call *call, const struct specialization *specialization) {
  const struct fdb_driver *driver = call->driver;
  bool host;
  if (fdb_find_device(driver, &specialization->table, call->values, &call->device, &host)) {
    return raise_last_error(call->self);
  }
  if (driver->devices == 1 && call->device < 0) {
    call->device = 0;
  }
  if (call->device < 0) {
    int error = driver->current_device(&call->device);
    if (error) {
      fdb_fail_driver(driver, FDB_LAUNCH, error, "the current device is unknown");
      return raise_last_error(call->self);
    }
    if (call->device >= FDB_MAX_DEVICES) {
      fdb_fail(FDB_VALUE, "device %d is current; this run time serves devices 0 to %d", call->device,
               FDB_MAX_DEVICES - 1);
      return raise_last_error(call->self);
    }
  }
  if (host && fdb_check_host_memory(driver, &specialization->table, call->values, call->device)) {
    return raise_last_error(call->self);
  }
  bool ask = driver->devices > 1 && specialization->stream >= 0 && driver->stream_device;
  return ask ? check_stream(call, specialization) : DONE;
}

static inline enum outcome prepare_specialization(struct call *call, const struct specialization *specialization,
                                                  bool quiet) {
  enum outcome outcome = fit(call, specialization, quiet);
  if (outcome != DONE) {
    return outcome;
  }
  if (!(call->driver = fdb_driver()) && !(call->driver = open_driver_for(call->self))) {
    return RAISED;
  }
  if ((outcome = find_device(call, specialization)) != DONE) {
    return outcome;
  }
  const struct fdb_loaded *loaded = loaded_on(call->self->module, call->device);
  if (!loaded) {
    uint64_t stream = specialization->stream < 0 ? 0 : call->values[specialization->stream].bits;
    if (!(loaded = load_for(call->self, call->device, stream))) {
      return RAISED;
    }
  }
  if ((uint32_t)specialization->index >= loaded->entry_count || !loaded->entries[specialization->index].function) {
    fdb_fail(FDB_VALUE, "it was not built for %s (device %d)", loaded->target, call->device);
    return MISFIT;
  }
  call->loaded = loaded;
  call->specialization = specialization;
  return DONE;
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
                             outcome == DONE ? "it was not built for this device" : fdb_last_error()->text);
    Py_DECREF(text);
    text = longer;
  }
  if (text) {
    PyErr_SetObject(PyExc_TypeError, text);
    Py_DECREF(text);
  }
  return RAISED;
}

// Raises that no specialization was compiled for the constants of a call. MISFIT: some was, and something else is
// wrong.
static enum outcome raise_unbuilt(const struct call *call) {
  const struct launcher_table *table = call->table;
  for (int i = 0; i < table->specialization_count; i++) {
    enum outcome outcome = check_constants(call, &table->specializations[i], true);
    if (outcome != MISFIT) {
      return outcome == DONE ? MISFIT : RAISED;
    }
  }
  PyObject *given = PyDict_New();
  const struct specialization *first = table->specializations; // all have values of the same parameters
  for (int i = 0; given && i < first->constant_count; i++) {
    int parameter = first->constants[i].parameter;
    if (PyDict_SetItem(given, table->parameters[parameter].name, call->bound[parameter]) < 0) {
      Py_CLEAR(given);
    }
  }
  PyObject *result =
      given ? PyObject_CallMethod(call->self->handle, "_refuse_constants", "OO", call->self->name, given) : NULL;
  Py_XDECREF(given);
  Py_XDECREF(result);
  return RAISED;
}

// The positions of the specializations that were compiled for the constants of a call; NULL if there are none, or if
// the values cannot be looked up: then all specializations are tried, which finds types by their names, and says what
// does not fit. An exception may be set.
static PyObject *look_up(const struct call *call) {
  const struct launcher_table *table = call->table;
  PyObject *key = call->bound[table->index_parameters[0]];
  if (table->index_parameter_count == 1) {
    Py_INCREF(key);
  } else if ((key = PyTuple_New(table->index_parameter_count))) {
    for (int i = 0; i < table->index_parameter_count; i++) {
      PyObject *value = call->bound[table->index_parameters[i]];
      Py_INCREF(value);
      PyTuple_SetItem(key, i, value);
    }
  }
  PyObject *positions = key ? PyDict_GetItemWithError(table->index, key) : NULL;
  Py_XDECREF(key);
  // Arrays have no hash, and no truth of being equal.
  if (!positions && PyErr_Occurred() &&
      (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError))) {
    PyErr_Clear();
  }
  return positions;
}

static enum outcome raise_misfit(const struct call *call) {
  enum outcome outcome = raise_unbuilt(call);
  if (outcome != MISFIT) {
    return outcome;
  }
  return call->table->specialization_count == 1 ? raise_last_error(call->self) : raise_no_fit(call);
}

static enum outcome prepare_looked_up(struct call *call) {
  PyObject *positions = look_up(call);
  if (!positions) {
    return PyErr_Occurred() ? RAISED : MISFIT;
  }
  enum outcome outcome = MISFIT;
  for (Py_ssize_t i = 0; outcome == MISFIT && i < PyTuple_Size(positions); i++) {
    long position = PyLong_AsLong(PyTuple_GetItem(positions, i));
    outcome = prepare_specialization(call, &call->table->specializations[position], true);
  }
  return outcome;
}

inline enum outcome prepare_call(struct call *call) {
  int count = call->table->specialization_count;
  if (call->table->index) {
    enum outcome outcome = prepare_looked_up(call);
    if (outcome != MISFIT) {
      return outcome;
    }
  }
  for (int i = 0; i < count; i++) {
    enum outcome outcome = prepare_specialization(call, &call->table->specializations[i], count > 1);
    if (LIKELY(outcome != MISFIT)) {
      return outcome;
    }
  }
  return raise_misfit(call);
}

inline void release_views(const struct call *call) {
  for (int i = 0; i < call->table->view_count; i++) {
    if (call->views[i].state != VIEW_UNREAD) {
      Py_XDECREF(call->views[i].keep);
      Py_XDECREF(call->views[i].owner);
    }
  }
}

static PyObject *vectorcall_launcher(PyObject *object, PyObject *const *args, size_t flagged, PyObject *keywords) {
  LauncherObject *self = (LauncherObject *)object;
  const struct launcher_table *table = table_of(self);
  if (!table) {
    return NULL;
  }
  PyObject *room[table->parameter_count + 1];
  PyObject *const *bound = bind_arguments(self, table, args, VECTORCALL_COUNT(flagged), keywords, room);
  if (!bound) {
    return NULL;
  }
  CALL_FRAME(call, self, table, bound);
  enum outcome outcome = prepare_call(&call);
  if (LIKELY(outcome == DONE)) {
    void *slots[table->max_slots + 1];
    fdb_point_slots(&call.specialization->table, call.block, slots);
    outcome = launch_packed(self, call.specialization, call.driver, call.loaded, call.device, slots, true);
  }
  release_views(&call);
  if (outcome != DONE) {
    return NULL;
  }
  Py_RETURN_NONE;
}

PyObject *call_vectorcall(PyObject *self, PyObject *args, PyObject *keywords) {
  Py_ssize_t count = PyTuple_Size(args), keyword_count = keywords ? PyDict_Size(keywords) : 0;
  PyObject **all = PyMem_Calloc((size_t)(count + keyword_count + 1), sizeof *all);
  PyObject *names = keyword_count ? PyTuple_New(keyword_count) : NULL;
  PyObject *result = NULL;
  bool only_strings = true;
  if (!all || (keyword_count && !names)) {
    PyErr_NoMemory();
  } else {
    for (Py_ssize_t i = 0; i < count; i++) {
      all[i] = PyTuple_GetItem(args, i);
    }
    PyObject *key, *value;
    Py_ssize_t position = 0;
    for (Py_ssize_t k = 0; keyword_count && PyDict_Next(keywords, &position, &key, &value); k++) {
      only_strings &= PyUnicode_Check(key);
      Py_INCREF(key);
      PyTuple_SetItem(names, k, key);
      all[count + k] = value;
    }
    if (only_strings) {
      // Both types that use it have the function at this place.
      result = ((LauncherObject *)self)->vectorcall(self, all, (size_t)count, names);
    } else {
      PyErr_SetString(PyExc_TypeError, "keywords must be strings");
    }
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
    self->vectorcall = vectorcall_launcher;
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
  for (int i = 0; i < CALL_SHAPES; i++) {
    Py_XDECREF(self->shapes[i].keywords);
  }
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

static PyMethodDef launcher_methods[] = {
    {"bind", (PyCFunction)(void (*)(void))bind_launcher, METH_FASTCALL | METH_KEYWORDS,
     "bind($self, /, *args, **kwargs)\n--\n\nCheck and pack the arguments of a call once; return what launches with "
     "them each time it is called without arguments."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef launcher_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {0},
};

static PyType_Slot launcher_slots[] = {
    {Py_tp_new, launcher_new},       {Py_tp_dealloc, launcher_dealloc}, {Py_tp_traverse, launcher_traverse},
    {Py_tp_clear, launcher_clear},   {Py_tp_call, call_vectorcall},     {Py_tp_members, launcher_members},
    {Py_tp_getset, launcher_getset}, {Py_tp_methods, launcher_methods}, {0, NULL},
};

PyTypeObject *make_launcher_type(PyObject *module) {
  return make_type(module, "Launcher", sizeof(LauncherObject),
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, launcher_slots);
}
