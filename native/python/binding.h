// SPDX-License-Identifier: Apache-2.0
// What the Python-facing files share. The only place that includes Python.h: limited API of Python 3.11.
//
// Everything in those files runs with the interpreter lock held, except the call into a launcher library, and that too
// where a bound launch was told so. Their static
// variables are therefore guarded by that lock; the module refuses to be imported in a sub-interpreter.

#ifndef FLYDSL_PYTHON_BINDING_H
#define FLYDSL_PYTHON_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "runtime.h"

// Python 3.11 has the flag, but shows it to the limited API only from 3.12 on.
#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#define VECTORCALL_COUNT(n) ((Py_ssize_t)((n) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)

// ---- python_arguments.c: Python objects to values -------------------------------------------------------------------

enum view_state { VIEW_UNREAD, VIEW_TENSOR, VIEW_ADDRESS };

// One tensor of a call. The view's shape and strides point into the object, or to `dims`; `keep` and `owner`
// are strong references to what must live until the launch has been made, or NULL. A bare address, which a pointer
// parameter takes too, is in tensor.data.
struct tensor_view {
  enum view_state state;
  struct fdb_dltensor tensor;
  PyObject *keep, *owner;
  int64_t dims[2 * FDB_MAX_RANK];
};

// How tensors of one type are read, remembered in a table that is indexed by the type's address.
enum route {
  ROUTE_NONE,
  ROUTE_EXCHANGE,
  ROUTE_NUMPY,
  ROUTE_BUFFER,
  ROUTE_DLPACK,
  ROUTE_CUDA_ARRAY,
  ROUTE_FAKE,
  ROUTE_MASKED,
};

struct route_entry {
  PyTypeObject *type; // a strong reference, so that the address cannot come to mean another type
  enum route route;
  bool waits; // DLPack without a stream: the producer waits until its data is there
  bool torch;
  uint16_t tensor_at; // where in the object torch's own C++ tensor is
  int (*to_dltensor)(void *, struct fdb_dltensor *);
  bool (*may_be_negated)(const void *tensor); // never NULL; what says yes is asked in Python
};

enum { ROUTE_SLOTS = 64 };
extern struct route_entry routes[ROUTE_SLOTS];
static inline struct route_entry *route_slot(PyTypeObject *type) {
  return &routes[((uintptr_t)type >> 4) % ROUTE_SLOTS];
}

int prepare_argument_readers(void);
// 0: `view` is filled. -1: a Python exception is set. 1: `object` is not a tensor, no exception.
int read_tensor_anyhow(PyObject *object, struct tensor_view *view);
static inline int read_tensor(PyObject *object, struct tensor_view *view) {
  const struct route_entry *slot = route_slot(Py_TYPE(object));
  if (slot->type == Py_TYPE(object) && slot->route == ROUTE_EXCHANGE) { // torch: what most calls have
    view->keep = NULL;
    if (LIKELY(!slot->to_dltensor(object, &view->tensor))) {
      if (LIKELY((uint32_t)view->tensor.rank <= FDB_MAX_RANK && view->tensor.strides && view->tensor.shape &&
                 view->tensor.data && view->tensor.lanes == 1 &&
                 !slot->may_be_negated((const char *)object + slot->tensor_at))) {
        return 0;
      }
    } else {
      PyErr_Clear(); // it is read again, to say why
    }
  }
  return read_tensor_anyhow(object, view);
}
// The same for what a pointer parameter takes, and sets view->state.
int read_pointer(PyObject *object, struct tensor_view *view);
// The same for a stream.
int read_stream(PyObject *object, uint64_t *stream);
// Of a failure that is not the scalar's own, a Python exception is set.
enum fdb_code read_scalar(PyObject *object, uint32_t dtype, const char *label, uint64_t *bits);

// ---- python_table.c: the call table with what Python knows --------------------------------------------------------

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
  struct fdb_table table;
  struct source *sources;
  struct constant *constants;
  int constant_count;
  int index;  // among all specializations of the module
  int stream; // the argument that is the stream, or -1
  const char *name;
};

// Immutable once made. All strings and objects in it are borrowed from `description` and from the module's call table.
struct launcher_table {
  PyObject *description;
  struct allocation *allocations;
  struct parameter *parameters;
  struct specialization *specializations;
  int parameter_count, positional_count, enough_count, specialization_count, view_count;
  uint32_t max_arguments, max_slots, max_names, max_block;
  // Of many specializations: a dict from the values of the parameters `index_parameters` to a tuple of positions, or
  // NULL.
  PyObject *index;
  int *index_parameters;
  int index_parameter_count;
};

// NULL with a Python exception. `description` is kept for as long as the table lives.
// `tables` is kept by who holds the result.
struct launcher_table *compile_table(PyObject *description, const struct fdb_tables *tables);
void free_table(struct launcher_table *table);

// ---- python_launcher.c, python_bound.c, python_state.c --------------------------------------------------------------

typedef struct {
  PyObject ob_base;
  PyObject *launch_error;    // exception class of a failed launch
  struct fdb_tables *tables; // of the launcher library; NULL: not read yet
  _Atomic(struct fdb_loaded *) loaded[FDB_MAX_DEVICES];
} ModuleObject;

typedef PyObject *(*vectorcall_function)(PyObject *, PyObject *const *, size_t, PyObject *);

enum { CALL_SHAPES = 4, SHAPE_KEYWORDS = 8 };

// How the keywords of a call site are bound. A call site passes the same tuple of names each time.
struct call_shape {
  PyObject *keywords; // a strong reference, or NULL
  Py_ssize_t positional;
  uint8_t keyword_count, parameter[SHAPE_KEYWORDS];
};

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
  struct call_shape shapes[CALL_SHAPES];
} LauncherObject;

// One call on its way: what was given, and from prepare_call() on, what will be launched.
struct call {
  LauncherObject *self;
  const struct launcher_table *table;
  PyObject *const *bound; // by parameter
  struct tensor_view *views;
  struct fdb_value *values;
  struct fdb_name_value *names;
  char *block;
  const struct specialization *specialization;
  const struct fdb_driver *driver;
  const struct fdb_loaded *loaded;
  int device;
};

enum outcome { DONE, MISFIT, RAISED };

// Declares, in the caller's frame, all that `call` points to.
#define CALL_FRAME(call, launcher, compiled, parameters)                                                               \
  struct tensor_view frame_views[(compiled)->view_count + 1];                                                          \
  struct fdb_value frame_values[(compiled)->max_arguments + 1];                                                        \
  struct fdb_name_value frame_names[(compiled)->max_names + 1];                                                        \
  _Alignas(16) char frame_block[(compiled)->max_block + 16];                                                           \
  for (int view = 0; view < (compiled)->view_count; view++) {                                                          \
    frame_views[view].state = VIEW_UNREAD;                                                                             \
  }                                                                                                                    \
  struct call call = {.self = (launcher),                                                                              \
                      .table = (compiled),                                                                             \
                      .bound = (parameters),                                                                           \
                      .views = frame_views,                                                                            \
                      .values = frame_values,                                                                          \
                      .names = frame_names,                                                                            \
                      .block = (char *)(((uintptr_t)frame_block + 15) & ~(uintptr_t)15)}

// NULL with a Python exception.
const struct launcher_table *table_of(LauncherObject *self);
// -1: there is none.
int find_parameter(const struct launcher_table *table, PyObject *name);
// Binds arguments to parameters: `room` has one place a parameter, and the result is it or `args`; NULL: an exception.
PyObject *const *bind_arguments(LauncherObject *self, const struct launcher_table *table, PyObject *const *args,
                                Py_ssize_t count, PyObject *keywords, PyObject **room);
// Chooses the specialization, checks and packs, finds the device, loads: DONE or RAISED.
enum outcome prepare_call(struct call *call);
void release_views(const struct call *call);
enum outcome launch_packed(LauncherObject *self, const struct specialization *specialization,
                           const struct fdb_driver *driver, const struct fdb_loaded *loaded, int device, void **slots,
                           bool release_gil);
// Whether two equal values are also numbers of one kind: 1, 1.0 and True are equal in Python, and so are 0.0 and -0.0, but
// they make different kernels. An int is taken for a float that was built. Built values that are no numbers are not told
// apart here.
bool same_number(PyObject *given, PyObject *value);

const struct fdb_driver *open_driver_for(LauncherObject *self);
const struct fdb_loaded *load_for(LauncherObject *self, int device, uint64_t stream);
static inline const struct fdb_loaded *loaded_on(const ModuleObject *module, int device) {
  const struct fdb_loaded *loaded = atomic_load_explicit(&module->loaded[device], memory_order_acquire);
  return loaded && loaded->generation == fdb_generation() ? loaded : NULL;
}
// Serves `tp_call` of a type with a vectorcall function; PyVectorcall_Call came to the limited API with 3.12.
PyObject *call_vectorcall(PyObject *self, PyObject *args, PyObject *keywords);

// Makes a heap type `<the extension's name>.<name>`.
PyTypeObject *make_type(PyObject *module, const char *name, size_t size, unsigned flags, PyType_Slot *slots);
extern PyTypeObject *module_type;
extern PyTypeObject *driver_error_type;
extern PyTypeObject *bound_type;
PyTypeObject *make_launcher_type(PyObject *module);
PyTypeObject *make_bound_type(PyObject *module);
// The launcher's method `bind`.
PyObject *bind_launcher(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyTypeObject *make_module_type(PyObject *module);
// Raises `type(text, code, name)` from the last error.
void raise_driver_error(PyObject *type, const char *prefix);

#endif
