// SPDX-License-Identifier: Apache-2.0
// Reads tensors, pointers, streams and scalars from Python objects, each by the cheapest route that its type has.

#include "dtypes.h"
#include "glibc_symbols.h"
#include "binding.h"

#include <math.h>
#include <string.h>

static struct {
  PyObject *exchange_api, *dlpack, *dlpack_device, *cuda_array_interface, *array_interface, *max_version, *stream;
  PyObject *cuda_stream, *cuda_stream_protocol, *value, *data_ptr, *data, *shape, *strides, *typestr, *mask, *dtype,
      *name;
  PyObject *version_kwargs, *version_stream_kwargs, *stream_kwargs;
  PyObject *empty;
} names;

int prepare_argument_readers(void) {
  if (names.empty) {
    return 0;
  }
  const struct {
    PyObject **where;
    const char *text;
  } wanted[] = {
      {&names.exchange_api, "__dlpack_c_exchange_api__"},
      {&names.dlpack, "__dlpack__"},
      {&names.dlpack_device, "__dlpack_device__"},
      {&names.cuda_array_interface, "__cuda_array_interface__"},
      {&names.array_interface, "__array_interface__"},
      {&names.max_version, "max_version"},
      {&names.stream, "stream"},
      {&names.cuda_stream, "cuda_stream"},
      {&names.cuda_stream_protocol, "__cuda_stream__"},
      {&names.value, "value"},
      {&names.data_ptr, "data_ptr"},
      {&names.data, "data"},
      {&names.shape, "shape"},
      {&names.strides, "strides"},
      {&names.typestr, "typestr"},
      {&names.mask, "mask"},
      {&names.dtype, "dtype"},
      {&names.name, "name"},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    if (!(*wanted[i].where = PyUnicode_InternFromString(wanted[i].text))) {
      return -1;
    }
  }
  names.version_kwargs = Py_BuildValue("{O(ii)}", names.max_version, 1, 3);
  names.version_stream_kwargs = Py_BuildValue("{O(ii)Oi}", names.max_version, 1, 3, names.stream, -1);
  names.stream_kwargs = Py_BuildValue("{Oi}", names.stream, -1);
  names.empty = PyTuple_New(0);
  return names.version_kwargs && names.version_stream_kwargs && names.stream_kwargs && names.empty ? 0 : -1;
}

// An attribute that may be absent: a new reference, or NULL with an exception only where the look-up itself went wrong.
static PyObject *optional_attribute(PyObject *object, PyObject *name) {
  PyObject *found = PyObject_GetAttr(object, name);
  if (!found && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
  }
  return found;
}

// An item of what a producer returned. Where there is none, a TypeError with the text.
static PyObject *item_of(PyObject *sequence, Py_ssize_t index, const char *otherwise) {
  PyObject *item = PySequence_GetItem(sequence, index);
  if (!item && (PyErr_ExceptionMatches(PyExc_IndexError) || PyErr_ExceptionMatches(PyExc_TypeError))) {
    PyErr_SetString(PyExc_TypeError, otherwise);
  }
  return item;
}

// NULL where nobody has imported it: a tensor that is here has brought its module. Never an exception.
static PyObject *loaded_module(const char *text) {
  PyObject *name = PyUnicode_FromString(text);
  PyObject *module = name ? PyImport_GetModule(name) : NULL;
  Py_XDECREF(name);
  PyErr_Clear();
  return module;
}

// ---- routes, remembered for each type -------------------------------------------------------------------------------

struct route_entry routes[ROUTE_SLOTS];

static int find_exchange(PyTypeObject *type, struct route_entry *entry) {
  PyObject *capsule = optional_attribute((PyObject *)type, names.exchange_api);
  if (!capsule) {
    return PyErr_Occurred() ? -1 : 0;
  }
  if (PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    // The table lives as long as the process, by DLPack's rule.
    const struct fdb_dlexchange *api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    while (api && api->major > 1) {
      api = api->previous;
    }
    if (api && api->major == 1 && api->to_dltensor) {
      entry->route = ROUTE_EXCHANGE;
      entry->to_dltensor = api->to_dltensor;
    }
  }
  Py_DECREF(capsule);
  return 0;
}

// numpy's published binary interface, which every extension that was compiled against numpy relies on: the head of an
// array is the same in 1.x and 2.x. https://numpy.org/doc/stable/reference/c-api/types-and-structures.html
struct numpy_dtype {
  PyObject ob_base;
  PyTypeObject *scalar;
  char kind, letter, byte_order, flags;
  int number;
};

struct numpy_array {
  PyObject ob_base;
  void *data;
  int rank;
  int64_t *shape, *strides; // in bytes
  PyObject *base;
  const struct numpy_dtype *dtype;
  int flags;
};
#define NUMPY_WRITEABLE 0x400
_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "numpy's extents are read as 64-bit integers");

// By NPY_TYPES; of other numbers, the buffer tells.
static const struct {
  uint8_t code, bits, shift;
} numpy_types[] = {
    {FDB_DL_BOOL, 8, 0},
    {FDB_DL_INT, 8, 0},
    {FDB_DL_UINT, 8, 0},
    {FDB_DL_INT, 16, 1},
    {FDB_DL_UINT, 16, 1},
    {FDB_DL_INT, 32, 2},
    {FDB_DL_UINT, 32, 2},
    {FDB_DL_INT, 64, 3},
    {FDB_DL_UINT, 64, 3},
    {FDB_DL_INT, 64, 3},
    {FDB_DL_UINT, 64, 3},
    {FDB_DL_FLOAT, 32, 2},
    {FDB_DL_FLOAT, 64, 3},
    {0, 0, 0},
    {FDB_DL_COMPLEX, 64, 3},
    {FDB_DL_COMPLEX, 128, 4},
    {0, 0, 0},
    {0, 0, 0},
    {0, 0, 0},
    {0, 0, 0},
    {0, 0, 0},
    {0, 0, 0},
    {0, 0, 0},
    {FDB_DL_FLOAT, 16, 1},
};

enum { NUMPY_VERSION = 0, NUMPY_ARRAY_TYPE = 2 }; // positions in numpy's table of C functions

// Whether `type` is numpy's own array, of a known binary interface.
static bool is_numpy(PyTypeObject *type) {
  static const char *const homes[] = {"numpy._core._multiarray_umath", "numpy.core._multiarray_umath"};
  PyObject *home = NULL;
  for (int i = 0; !home && i < 2; i++) {
    home = loaded_module(homes[i]);
  }
  PyObject *capsule = home ? PyObject_GetAttrString(home, "_ARRAY_API") : NULL;
  Py_XDECREF(home);
  bool known = false;
  if (capsule && PyCapsule_IsValid(capsule, NULL)) {
    void **table = PyCapsule_GetPointer(capsule, NULL);
    unsigned version = ((unsigned (*)(void))table[NUMPY_VERSION])();
    known = table[NUMPY_ARRAY_TYPE] == type && (version == 0x01000009 || version == 0x02000000);
  }
  Py_XDECREF(capsule);
  PyErr_Clear();
  return known;
}

static int has_attribute(PyTypeObject *type, PyObject *name) {
  PyObject *found = optional_attribute((PyObject *)type, name);
  if (!found) {
    return PyErr_Occurred() ? -1 : 0;
  }
  int present = found != Py_None;
  Py_DECREF(found);
  return present;
}

static bool comes_from(PyTypeObject *type, const char *module) {
  PyObject *name = PyObject_GetAttrString((PyObject *)type, "__module__");
  PyObject *head = name && PyUnicode_Check(name) ? PyUnicode_Substring(name, 0, (Py_ssize_t)strlen(module)) : NULL;
  bool found = head && PyUnicode_CompareWithASCIIString(head, module) == 0;
  Py_XDECREF(head);
  Py_XDECREF(name);
  PyErr_Clear();
  return found;
}

// Whether `type` is the one of this name, or a subclass of it. Never an exception.
static bool is_a(PyTypeObject *type, const char *module, const char *name) {
  PyObject *home = loaded_module(module);
  PyObject *wanted = home ? PyObject_GetAttrString(home, name) : NULL;
  bool found = wanted && PyType_Check(wanted) && PyType_IsSubtype(type, (PyTypeObject *)wanted);
  Py_XDECREF(wanted);
  Py_XDECREF(home);
  PyErr_Clear();
  return found;
}

static bool never_negated(const void *tensor) {
  (void)tensor;
  return false;
}

static bool perhaps_negated(const void *tensor) {
  (void)tensor;
  return true;
}

// Of a tensor with the negative bit, the memory has the negated values, and DLPack does not say so. torch's own
// function is called where its library has it: the method of Python takes as long as a launch, and lets other threads
// run.
// torch's C++ tensor is one pointer, which is in the Python object, and `_cdata` tells.
static void find_negative_test(PyObject *tensor_type, struct route_entry *entry) {
  static struct route_entry known;
  if (!known.may_be_negated) {
    known.may_be_negated = perhaps_negated;
    void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "_ZN2at6native6is_negERKNS_6TensorE") : NULL;
    PyObject *tensor = symbol ? PyObject_CallObject(tensor_type, NULL) : NULL;
    PyObject *number = tensor ? PyObject_GetAttrString(tensor, "_cdata") : NULL;
    const void *wanted = number ? PyLong_AsVoidPtr(number) : NULL;
    for (size_t at = sizeof(PyObject); wanted && at <= sizeof(PyObject) + sizeof wanted; at += sizeof wanted) {
      if (!memcmp((const char *)tensor + at, &wanted, sizeof wanted)) {
        known.tensor_at = (uint16_t)at;
        memcpy(&known.may_be_negated, &symbol, sizeof symbol);
      }
    }
    Py_XDECREF(number);
    Py_XDECREF(tensor);
    if (library) {
      dlclose(library);
    }
  }
  entry->tensor_at = known.tensor_at;
  entry->may_be_negated = known.may_be_negated;
}

static void mark_torch(PyTypeObject *type, struct route_entry *entry) {
  PyObject *torch = loaded_module("torch");
  PyObject *tensor = torch ? PyObject_GetAttrString(torch, "Tensor") : NULL;
  if (tensor && PyType_Check(tensor) && PyType_IsSubtype(type, (PyTypeObject *)tensor)) {
    entry->torch = true;
    find_negative_test(tensor, entry);
  }
  Py_XDECREF(tensor);
  Py_XDECREF(torch);
  PyErr_Clear();
}

static int choose_route(PyObject *object, PyTypeObject *type, struct route_entry *entry) {
  mark_torch(type, entry);
  if (comes_from(type, "torch._subclasses.fake_tensor")) { // it has all protocols, and a null pointer
    entry->route = ROUTE_FAKE;
    return 0;
  }
  if (find_exchange(type, entry) < 0) {
    return -1;
  }
  if (entry->route != ROUTE_NONE) {
    return 0;
  }
  if (is_numpy(type)) {
    entry->route = ROUTE_NUMPY;
    return 0;
  }
  int found = has_attribute(type, names.array_interface); // numpy and its kin: their buffer is cheaper than a capsule
  if (found < 0) {
    return -1;
  }
  bool array = found;
  // numpy's scalars have a buffer and an array interface, of memory that is only as old as the value.
  if (array && is_a(type, "numpy", "generic")) {
    return 0;
  }
  if (array && is_a(type, "numpy.ma", "MaskedArray")) { // whose buffer and interface leave out the mask
    entry->route = ROUTE_MASKED;
    return 0;
  }
  if ((found = has_attribute(type, names.dlpack)) < 0) {
    return -1;
  }
  if (array || (!found && PyObject_CheckBuffer(object))) {
    entry->route = ROUTE_BUFFER;
    return 0;
  }
  if (found) {
    entry->route = ROUTE_DLPACK;
    // JAX takes -1 for the handle of a stream, and its own streams are not to be had: without a stream, it waits on the
    // host.
    entry->waits = comes_from(type, "jaxlib");
    return 0;
  }
  if ((found = has_attribute(type, names.cuda_array_interface)) < 0) {
    return -1;
  }
  entry->route = found ? ROUTE_CUDA_ARRAY : ROUTE_NONE;
  return 0;
}

// A copy, because what runs when a type is forgotten may make calls of its own, and take the place.
static int route_of(PyObject *object, struct route_entry *entry) {
  PyTypeObject *type = Py_TYPE(object);
  struct route_entry *slot = route_slot(type);
  if (slot->type == type) {
    *entry = *slot;
    return 0;
  }
  *entry = (struct route_entry){.type = type, .may_be_negated = never_negated};
  if (choose_route(object, type, entry) < 0) {
    return -1;
  }
  PyTypeObject *old = slot->type;
  Py_INCREF((PyObject *)type);
  *slot = *entry;
  Py_XDECREF((PyObject *)old);
  return 0;
}

// Whether an attribute of the object is true, or what it returns where it can be called with `argument`.
static bool says(PyObject *object, const char *attribute, PyObject *argument) {
  PyObject *found = object ? PyObject_GetAttrString(object, attribute) : NULL;
  PyObject *answer = found;
  if (found && PyCallable_Check(found)) {
    answer = PyObject_CallFunctionObjArgs(found, argument, NULL);
    Py_DECREF(found);
  }
  bool truth = answer == Py_True;
  Py_XDECREF(answer);
  PyErr_Clear();
  return truth;
}

// ---- DLPack ---------------------------------------------------------------------------------------------------------

static int refuse_rank(int rank) {
  PyErr_Format(PyExc_TypeError, "a tensor of rank %d; this run time reads up to %d", rank, (int)FDB_MAX_RANK);
  return -1;
}

static void mark_read_only(struct fdb_dltensor *tensor, bool read_only) {
  tensor->lanes = (uint16_t)(tensor->lanes | (read_only ? FDB_READ_ONLY : 0));
}

static int64_t twice(int64_t value) {
  int64_t result;
  return __builtin_mul_overflow(value, 2, &result) ? INT64_MAX : result;
}

// Counts elements where torch counts pairs, of 4 bits in a byte: kernels are declared and compiled in elements, and JAX
// counts them. Pairs that do not lie side by side stay pairs, which no tensor of a kernel has.
static void count_elements(struct tensor_view *view) {
  struct fdb_dltensor *tensor = &view->tensor;
  int inner = tensor->rank - 1;
  while (inner >= 0 && tensor->strides[inner] != 1) {
    inner--;
  }
  if (inner < 0) {
    return;
  }
  for (int d = 0; d < tensor->rank; d++) {
    view->dims[FDB_MAX_RANK + d] = d == inner ? 1 : twice(tensor->strides[d]);
    view->dims[d] = d == inner ? twice(tensor->shape[d]) : tensor->shape[d];
  }
  tensor->shape = view->dims;
  tensor->strides = view->dims + FDB_MAX_RANK;
  tensor->lanes = (uint16_t)(tensor->lanes - 1);
}

// Gives a tensor without strides (DLPack before 1.2) those of a contiguous one.
static int complete_strides(struct tensor_view *view) {
  struct fdb_dltensor *tensor = &view->tensor;
  if (tensor->rank < 0 || tensor->rank > FDB_MAX_RANK) {
    return refuse_rank(tensor->rank);
  }
  if (tensor->rank && !tensor->shape) {
    PyErr_Format(PyExc_BufferError, "a tensor of rank %d without a shape", tensor->rank);
    return -1;
  }
  if (!tensor->strides) {
    tensor->strides = view->dims + FDB_MAX_RANK;
    int64_t stride = 1;
    for (int d = tensor->rank - 1; d >= 0; d--) {
      tensor->strides[d] = stride;
      if (__builtin_mul_overflow(stride, tensor->shape[d] ? tensor->shape[d] : 1, &stride)) {
        stride = INT64_MAX;
      }
    }
  }
  if (tensor->bits == 4 && (tensor->lanes & ~FDB_READ_ONLY) == 2) {
    count_elements(view);
  }
  return 0;
}

static int read_capsule(PyObject *capsule, struct tensor_view *view) {
  bool read_only = false;
  // The capsule keeps its name, and so its ownership: its destructor calls the producer's deleter.
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    struct fdb_dlmanaged_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed->major != 1) {
      PyErr_Format(PyExc_BufferError, "a DLPack %u tensor; this run time reads version 1", managed->major);
      return -1;
    }
    if (managed->flags & FDB_DL_FLAG_IS_COPIED) {
      PyErr_SetString(PyExc_BufferError, "its __dlpack__ made a copy, which a kernel would write to for nothing");
      return -1;
    }
    if (managed->flags & FDB_DL_FLAG_PADDED) {
      PyErr_SetString(PyExc_BufferError, "its elements are padded to a byte each, and kernels read them packed");
      return -1;
    }
    view->tensor = managed->tensor;
    read_only = managed->flags & FDB_DL_FLAG_READ_ONLY;
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    struct fdb_dlmanaged *managed = PyCapsule_GetPointer(capsule, "dltensor");
    view->tensor = managed->tensor;
  } else {
    PyErr_SetString(PyExc_BufferError, "its __dlpack__ did not return a DLPack capsule");
    return -1;
  }
  // A dtype of so many lanes is no dtype of a kernel, with or without our bit in them.
  view->tensor.lanes = view->tensor.lanes & FDB_READ_ONLY ? 0 : view->tensor.lanes;
  mark_read_only(&view->tensor, read_only);
  return complete_strides(view);
}

static PyObject *call_dlpack(PyObject *method, bool on_device) {
  // stream=-1: no synchronisation; the caller's stream orders the kernel. A tensor in host memory has no stream.
  PyObject *capsule =
      PyObject_Call(method, names.empty, on_device ? names.version_stream_kwargs : names.version_kwargs);
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) { // a producer older than DLPack 1.0
    PyErr_Clear();
    capsule = PyObject_Call(method, names.empty, on_device ? names.stream_kwargs : NULL);
  }
  return capsule;
}

// 1: the object says that it is in device memory. 0: it does not. -1: a Python exception is set.
static int is_on_device(PyObject *object) {
  PyObject *method = optional_attribute(object, names.dlpack_device);
  if (!method) {
    return PyErr_Occurred() ? -1 : 0;
  }
  PyObject *device = PyObject_Call(method, names.empty, NULL);
  Py_DECREF(method);
  PyObject *first = device ? item_of(device, 0, "its __dlpack_device__ did not return (type, device)") : NULL;
  Py_XDECREF(device);
  long type = first ? PyLong_AsLong(first) : -1;
  Py_XDECREF(first);
  if (type == -1 && PyErr_Occurred()) {
    return -1;
  }
  return type == FDB_DL_CUDA || type == FDB_DL_ROCM;
}

static int read_dlpack(PyObject *object, struct tensor_view *view, bool waits) {
  int on_device = waits ? 0 : is_on_device(object);
  PyObject *method = on_device < 0 ? NULL : PyObject_GetAttr(object, names.dlpack);
  if (!method) {
    return -1;
  }
  PyObject *capsule = call_dlpack(method, on_device);
  Py_DECREF(method);
  if (!capsule) {
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    if (waits && says(object, "is_deleted", NULL)) {
      Py_XDECREF(kind);
      Py_XDECREF(value);
      Py_XDECREF(trace);
      PyErr_SetString(PyExc_ValueError, "it is a deleted array of JAX, which has no data; was it donated?");
    } else {
      PyErr_Restore(kind, value, trace);
    }
    return -1;
  }
  if (read_capsule(capsule, view) < 0) {
    Py_DECREF(capsule);
    return -1;
  }
  view->keep = capsule;
  return 0;
}

// ---- buffers and array interfaces -----------------------------------------------------------------------------------

static bool set_dtype(struct fdb_dltensor *tensor, unsigned code, size_t bytes) {
  tensor->code = (uint8_t)code;
  tensor->bits = (uint8_t)(8 * bytes);
  tensor->lanes = 1;
  return bytes && bytes <= 16 && !(bytes & (bytes - 1));
}

// `kind` is a letter of the array interface: i u f b c.
static bool dtype_from_kind(char kind, size_t bytes, struct fdb_dltensor *tensor) {
  switch (kind) {
  case 'i':
    return set_dtype(tensor, FDB_DL_INT, bytes);
  case 'u':
    return set_dtype(tensor, FDB_DL_UINT, bytes);
  case 'f':
    return bytes > 1 && set_dtype(tensor, FDB_DL_FLOAT, bytes); // ml_dtypes' float8_e5m2 is '<f1', and named
  case 'b':
    return set_dtype(tensor, FDB_DL_BOOL, bytes);
  case 'c':
    return set_dtype(tensor, FDB_DL_COMPLEX, bytes);
  default:
    return false;
  }
}

static int refuse_byte_order(const char *format) {
  PyErr_Format(PyExc_TypeError, "its elements are byte-swapped (format '%s')", format);
  return -1;
}

static int dtype_from_format(const char *format, size_t bytes, struct fdb_dltensor *tensor) {
  const char *letter = format;
  if (*letter == '>' || *letter == '!') {
    if (bytes > 1) {
      return refuse_byte_order(format);
    }
    letter++;
  } else if (*letter == '<' || *letter == '=' || *letter == '@') {
    letter++;
  }
  bool complex = *letter == 'Z';
  letter += complex;
  char kind = 0;
  if (*letter == 'f' && !letter[1]) { // what nearly every call has
    kind = 'f';
  } else if (*letter && !letter[1]) {
    kind = complex                      ? 'c'
           : strchr("bhilqn", *letter)  ? 'i'
           : strchr("BHILQNc", *letter) ? 'u'
           : strchr("efd", *letter)     ? 'f'
           : *letter == '?'             ? 'b'
                                        : 0;
  }
  if (!kind || !dtype_from_kind(kind, bytes, tensor)) {
    PyErr_Format(PyExc_TypeError, "its elements have the format '%s', which is no dtype of a kernel", format);
    return -1;
  }
  return 0;
}

static int strides_from_bytes(struct tensor_view *view, size_t bytes) {
  // Elements have 1, 2, 4, 8 or 16 bytes, and a division would be the dearest instruction of the whole call.
  unsigned shift = (unsigned)__builtin_ctzl(bytes);
  for (int d = 0; d < view->tensor.rank; d++) {
    int64_t *stride = &view->dims[FDB_MAX_RANK + d];
    if (*stride & (int64_t)(bytes - 1)) {
      if (view->dims[d] > 1) {
        PyErr_Format(PyExc_ValueError, "its stride %d of %lld bytes is not a multiple of the element size %zu", d,
                     (long long)*stride, bytes);
        return -1;
      }
      *stride = (int64_t)bytes;
    }
    *stride >>= shift;
  }
  return 0;
}

static int read_interface(PyObject *object, PyObject *interface, int32_t device_type, struct tensor_view *view);

static int read_buffer(PyObject *object, struct tensor_view *view) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(object, &buffer, PyBUF_RECORDS_RO) < 0) {
    // numpy has no buffer format for the dtypes of other packages (ml_dtypes), but its array interface names them.
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    PyObject *interface = optional_attribute(object, names.array_interface);
    if (!interface) {
      PyErr_Clear();
      PyErr_Restore(kind, value, trace);
      return -1;
    }
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    int result = read_interface(object, interface, FDB_DL_CPU, view);
    Py_DECREF(interface);
    return result;
  }
  struct fdb_dltensor *tensor = &view->tensor;
  int result = -1;
  if (buffer.ndim > FDB_MAX_RANK) {
    refuse_rank(buffer.ndim);
  } else if (buffer.ndim && !buffer.shape) {
    PyErr_Format(PyExc_BufferError, "its buffer has %d dimensions, but no shape", buffer.ndim);
  } else if (dtype_from_format(buffer.format ? buffer.format : "B", (size_t)buffer.itemsize, tensor) == 0) {
    tensor->data = buffer.buf;
    tensor->device_type = FDB_DL_CPU;
    tensor->device_id = 0;
    tensor->rank = buffer.ndim;
    tensor->byte_offset = 0;
    mark_read_only(tensor, buffer.readonly);
    tensor->shape = view->dims;
    tensor->strides = buffer.strides ? view->dims + FDB_MAX_RANK : NULL; // ctypes has none, though it was asked
    for (int d = 0; d < buffer.ndim; d++) {
      view->dims[d] = buffer.shape[d];
      view->dims[FDB_MAX_RANK + d] = buffer.strides ? buffer.strides[d] : 0;
    }
    result = buffer.strides ? strides_from_bytes(view, (size_t)buffer.itemsize) : complete_strides(view);
  }
  // The object owns the memory, and the caller's reference keeps it for the call.
  PyBuffer_Release(&buffer);
  return result;
}

// What is unusual, or wrong, is left to the buffer, which has the words for it.
static int read_numpy(PyObject *object, struct tensor_view *view) {
  const struct numpy_array *array = (const struct numpy_array *)object;
  const struct numpy_dtype *dtype = array->dtype;
  unsigned number = (unsigned)dtype->number;
  if (number >= sizeof numpy_types / sizeof *numpy_types || !numpy_types[number].bits || dtype->byte_order == '>' ||
      array->rank > FDB_MAX_RANK) {
    return read_buffer(object, view);
  }
  struct fdb_dltensor *tensor = &view->tensor;
  tensor->data = array->data;
  tensor->device_type = FDB_DL_CPU;
  tensor->device_id = 0;
  tensor->rank = array->rank;
  tensor->code = numpy_types[number].code;
  tensor->bits = numpy_types[number].bits;
  tensor->lanes = 1;
  mark_read_only(tensor, !(array->flags & NUMPY_WRITEABLE));
  tensor->byte_offset = 0;
  tensor->shape = array->shape;
  tensor->strides = view->dims;
  unsigned shift = numpy_types[number].shift;
  int64_t odd = 0;
  for (int d = 0; d < array->rank; d++) {
    int64_t stride = array->strides[d];
    odd |= stride;
    view->dims[d] = stride >> shift;
  }
  return odd & ((1 << shift) - 1) ? read_buffer(object, view) : 0;
}

static int dtype_from_name(PyObject *object, const char *typestr, size_t size, struct fdb_dltensor *tensor) {
  PyObject *dtype = optional_attribute(object, names.dtype);
  PyObject *name = dtype ? optional_attribute(dtype, names.name) : NULL;
  Py_XDECREF(dtype);
  PyObject *bytes = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8String(name) : NULL;
  Py_XDECREF(name);
  if (!bytes) {
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_TypeError, "its elements have the typestr '%s', which is no dtype of a kernel", typestr);
    }
    return -1;
  }
  int result = -1;
  const char *text = PyBytes_AsString(bytes);
  for (size_t i = 0; i < sizeof fdb_dtypes / sizeof *fdb_dtypes; i++) {
    uint32_t dtype = fdb_dtypes[i].dtype;
    if (!strcmp(text, fdb_dtypes[i].framework) && (dtype & 0xff) == 8 * size) {
      tensor->code = (uint8_t)(dtype >> 8);
      tensor->bits = (uint8_t)dtype;
      tensor->lanes = 1;
      result = 0;
    }
  }
  if (result) {
    PyErr_Format(PyExc_TypeError, "its dtype %s of typestr '%s' is no dtype of a kernel", text, typestr);
  }
  Py_DECREF(bytes);
  return result;
}

// Reads a tuple of integers into `out`; the length, or -1.
static int read_integers(PyObject *tuple, int64_t *out) {
  Py_ssize_t count = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
  if (count < 0) {
    PyErr_SetString(PyExc_TypeError, "its array interface has a shape or strides that are not a tuple");
    return -1;
  }
  if (count > FDB_MAX_RANK) {
    return refuse_rank((int)count);
  }
  for (Py_ssize_t d = 0; d < count; d++) {
    out[d] = PyLong_AsLongLong(PyTuple_GetItem(tuple, d));
    if (out[d] == -1 && PyErr_Occurred()) {
      return -1;
    }
  }
  return (int)count;
}

// '<f4': byte order, kind, bytes.
static int read_typestr(PyObject *object, PyObject *typestr, struct fdb_dltensor *tensor, size_t *bytes) {
  static const char *const sizes[] = {"1", "2", "4", "8", "16"};
  PyObject *encoded = PyUnicode_Check(typestr) ? PyUnicode_AsUTF8String(typestr) : NULL;
  if (!encoded) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_TypeError, "its array interface has no typestr");
    }
    return -1;
  }
  const char *text = PyBytes_AsString(encoded);
  *bytes = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes && strlen(text) > 2 && strchr("<>|=", *text); i++) {
    if (!strcmp(text + 2, sizes[i])) {
      *bytes = (size_t)1 << i;
    }
  }
  int result = -1;
  if (!*bytes) {
    PyErr_Format(PyExc_TypeError, "its array interface has the typestr '%s'", text);
  } else if (*text == '>' && *bytes > 1) {
    refuse_byte_order(text);
  } else if (dtype_from_kind(text[1], *bytes, tensor)) {
    result = 0;
  } else {
    result = dtype_from_name(object, text, *bytes, tensor);
  }
  Py_DECREF(encoded);
  return result;
}

struct interface_items {
  PyObject *data, *shape, *strides, *typestr, *mask;
};

static int read_interface_items(PyObject *object, const struct interface_items *items, int32_t device_type,
                                struct tensor_view *view) {
  struct fdb_dltensor *tensor = &view->tensor;
  PyObject *data = items->data;
  if (!data || !items->shape || !items->typestr || !PyTuple_Check(data) || PyTuple_Size(data) < 1) {
    PyErr_SetString(PyExc_TypeError, "its array interface lacks data, shape or typestr");
    return -1;
  }
  if (items->mask && items->mask != Py_None) {
    PyErr_SetString(PyExc_TypeError, "its array interface has a mask, which a kernel does not see");
    return -1;
  }
  size_t bytes;
  if (read_typestr(object, items->typestr, tensor, &bytes) < 0 ||
      (tensor->rank = read_integers(items->shape, view->dims)) < 0) {
    return -1;
  }
  tensor->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
  if (!tensor->data && PyErr_Occurred()) {
    return -1;
  }
  int read_only = PyTuple_Size(data) > 1 ? PyObject_IsTrue(PyTuple_GetItem(data, 1)) : 0;
  if (read_only < 0) {
    return -1;
  }
  mark_read_only(tensor, read_only);
  tensor->device_type = device_type;
  tensor->device_id = 0;
  tensor->byte_offset = 0;
  tensor->shape = view->dims;
  tensor->strides = NULL;
  if (!items->strides || items->strides == Py_None) {
    return complete_strides(view);
  }
  tensor->strides = view->dims + FDB_MAX_RANK;
  int count = read_integers(items->strides, tensor->strides);
  if (count >= 0 && count != tensor->rank) {
    PyErr_SetString(PyExc_TypeError, "its array interface has shape and strides of different lengths");
  }
  return count == tensor->rank ? strides_from_bytes(view, bytes) : -1;
}

static int read_interface(PyObject *object, PyObject *interface, int32_t device_type, struct tensor_view *view) {
  if (!PyDict_Check(interface)) {
    PyErr_SetString(PyExc_TypeError, "its array interface is not a dict");
    return -1;
  }
  struct interface_items items = {0};
  const struct {
    PyObject **where, *name;
  } wanted[] = {
      {&items.data, names.data},       {&items.shape, names.shape}, {&items.strides, names.strides},
      {&items.typestr, names.typestr}, {&items.mask, names.mask},
  };
  const size_t count = sizeof wanted / sizeof *wanted;
  int result = 0;
  for (size_t i = 0; !result && i < count; i++) {
    // A reference, because an `__index__` among the items may change the dict.
    *wanted[i].where = PyDict_GetItemWithError(interface, wanted[i].name);
    Py_XINCREF(*wanted[i].where);
    result = !*wanted[i].where && PyErr_Occurred() ? -1 : 0;
  }
  if (!result) {
    result = read_interface_items(object, &items, device_type, view);
  }
  for (size_t i = 0; i < count; i++) {
    Py_XDECREF(*wanted[i].where);
  }
  return result;
}

static int read_cuda_array(PyObject *object, struct tensor_view *view) {
  PyObject *interface = PyObject_GetAttr(object, names.cuda_array_interface);
  if (!interface) {
    return -1;
  }
  // The interface does not name its device; the driver finds an address of another one by itself.
  int result = read_interface(object, interface, FDB_DL_CUDA_MANAGED, view);
  view->keep = interface;
  return result;
}

// Of objects whose type has no protocol, some have one of their own: a namespace, a proxy of a tensor.
static int read_instance(PyObject *object, struct tensor_view *view) {
  PyObject *const protocols[] = {names.dlpack, names.cuda_array_interface};
  for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
    PyObject *found = optional_attribute(object, protocols[i]);
    bool present = found && found != Py_None;
    Py_XDECREF(found);
    if (present) {
      return protocols[i] == names.dlpack ? read_dlpack(object, view, false) : read_cuda_array(object, view);
    }
    if (PyErr_Occurred()) {
      return -1;
    }
  }
  return 1;
}

static int read_by_route(const struct route_entry *entry, PyObject *object, struct tensor_view *view) {
  switch (entry->route) {
  case ROUTE_EXCHANGE:
    return entry->to_dltensor(object, &view->tensor) ? -1 : complete_strides(view);
  case ROUTE_NUMPY:
    return read_numpy(object, view);
  case ROUTE_BUFFER:
    return read_buffer(object, view);
  case ROUTE_DLPACK:
    return read_dlpack(object, view, entry->waits);
  case ROUTE_CUDA_ARRAY:
    return read_cuda_array(object, view);
  case ROUTE_FAKE:
    PyErr_SetString(PyExc_TypeError,
                    "it is a fake tensor of torch, which has no data; what torch.compile and torch.export take is the "
                    "launcher's op: build the wheel with torch-ops = true");
    return -1;
  case ROUTE_MASKED:
    PyErr_SetString(PyExc_TypeError, "it is a masked array of numpy, whose mask a kernel does not see; its filled() or "
                                     "data is one that a kernel can read");
    return -1;
  case ROUTE_NONE:
    break;
  }
  return read_instance(object, view);
}

// ---- tensors of torch that a kernel cannot read ---------------------------------------------------------------------

// NULL without an exception: it is nothing that is known here.
static const char *kind_of_tensor(PyObject *object) {
  static const struct {
    const char *module, *question, *kind;
  } kinds[] = {
      {NULL, "is_meta", "it is a meta tensor of torch, which has no data"},
      {NULL, "is_nested",
       "it is a nested tensor of torch; torch.nested.to_padded_tensor() makes one that a kernel can read"},
      {NULL, "is_quantized",
       "it is a quantized tensor of torch; its int_repr() or dequantize() makes one that a kernel can read"},
      {NULL, "_is_zerotensor",
       "it is a zero tensor of torch, which has no data; its clone() makes one that a kernel can read"},
      {"torch._C._functorch", "is_functorch_wrapped_tensor",
       "it is a tensor in a transform of torch.func (vmap, grad, ...), which has no data; launch outside of the "
       "transform"},
      {"torch", "_is_functional_tensor",
       "it is a functional tensor of torch, which has no data; launch outside of the transform"},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    PyObject *module = kinds[i].module ? loaded_module(kinds[i].module) : NULL;
    bool is = kinds[i].module ? says(module, kinds[i].question, object) : says(object, kinds[i].question, NULL);
    Py_XDECREF(module);
    if (is) {
      return kinds[i].kind;
    }
  }
  return NULL;
}

// A subclass that sees each operation of torch, and holds its data in tensors of its own: DTensor, for one.
static bool is_wrapper(PyObject *object) {
  PyObject *torch = loaded_module("torch");
  PyObject *tensor = torch ? PyObject_GetAttrString(torch, "Tensor") : NULL;
  PyObject *usual = tensor ? PyObject_GetAttrString(tensor, "__torch_dispatch__") : NULL;
  PyObject *own = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__torch_dispatch__");
  bool differs = usual && own && own != usual;
  Py_XDECREF(own);
  Py_XDECREF(usual);
  Py_XDECREF(tensor);
  Py_XDECREF(torch);
  PyErr_Clear();
  return differs;
}

// Whether there is more to say of a tensor that cannot be read: then that is set as an exception.
static bool name_tensor(PyObject *object) {
  const char *kind = kind_of_tensor(object);
  PyObject *layout = PyObject_GetAttrString(object, "layout");
  PyObject *text = layout ? PyObject_Str(layout) : NULL;
  PyErr_Clear();
  if (kind) {
    PyErr_SetString(PyExc_TypeError, kind);
  } else if (text && PyUnicode_CompareWithASCIIString(text, "torch.strided")) {
    PyErr_Format(PyExc_TypeError, "it is a tensor of layout %U; its to_dense() makes one that a kernel can read", text);
  } else if (is_wrapper(object)) {
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    PyErr_Format(PyExc_TypeError, "it is a %S, which has no data of its own; pass the tensor that it holds", name);
    Py_XDECREF(name);
  }
  Py_XDECREF(text);
  Py_XDECREF(layout);
  return PyErr_Occurred();
}

// Replaces what torch says of a tensor that it does not export, with where in its source it says so.
static void say_why_not(PyObject *object) {
  PyObject *kind, *value, *trace;
  PyErr_Fetch(&kind, &value, &trace);
  if (!name_tensor(object)) {
    PyErr_NormalizeException(&kind, &value, &trace);
    PyObject *text = PyObject_Str(value);
    PyObject *lines = text ? PyUnicode_Splitlines(text, 0) : NULL;
    PyObject *first = lines ? PyList_GetItem(lines, 0) : NULL;
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "torch does not export it: %S", first ? first : Py_None);
    Py_XDECREF(lines);
    Py_XDECREF(text);
  }
  Py_XDECREF(kind);
  Py_XDECREF(value);
  Py_XDECREF(trace);
}

static int check_torch(const struct route_entry *entry, PyObject *object, const struct tensor_view *view) {
  if (!view->tensor.data && !fdb_is_empty(&view->tensor) && name_tensor(object)) {
    return -1;
  }
  if (entry->may_be_negated((const char *)object + entry->tensor_at) && says(object, "is_neg", NULL)) {
    PyErr_SetString(PyExc_TypeError,
                    "its negative bit is set, so its memory has its values negated; its resolve_neg() makes a tensor "
                    "that a kernel can read");
    return -1;
  }
  return 0;
}

int read_tensor_anyhow(PyObject *object, struct tensor_view *view) {
  view->keep = NULL;
  struct route_entry entry;
  if (route_of(object, &entry) < 0) {
    return -1;
  }
  int result = read_by_route(&entry, object, view);
  if (!entry.torch || result == 1) {
    return result;
  }
  if (!result) {
    return check_torch(&entry, object, view);
  }
  if (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_RuntimeError)) {
    say_why_not(object);
  }
  return -1;
}
static int address_from_integer(PyObject *object, uint64_t *address) {
  if (Py_IS_TYPE(object, &PyLong_Type)) {
    *address = PyLong_AsUnsignedLongLong(object);
    return *address == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
  }
  PyObject *index = PyNumber_Index(object);
  if (!index) {
    return -1;
  }
  *address = PyLong_AsUnsignedLongLong(index);
  Py_DECREF(index);
  return *address == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

static int read_address(PyObject *integer, struct tensor_view *view) {
  uint64_t address;
  if (address_from_integer(integer, &address) < 0) {
    return -1;
  }
  view->state = VIEW_ADDRESS;
  view->tensor.data = (void *)(uintptr_t)address;
  return 0;
}

int read_pointer(PyObject *object, struct tensor_view *view) {
  view->keep = NULL;
  if (PyLong_Check(object)) {
    return PyBool_Check(object) ? 1 : read_address(object, view);
  }
  // ctypes objects have a buffer too, so their `value` comes first; those of other types have no `value` of an integer.
  PyObject *value = optional_attribute(object, names.value);
  if (!value && PyErr_Occurred()) {
    return -1;
  }
  int result = 1;
  if (value == Py_None) { // how ctypes spells c_void_p(0)
    view->state = VIEW_ADDRESS;
    view->tensor.data = NULL;
    result = 0;
  } else if (value && PyLong_Check(value)) {
    result = read_address(value, view);
  }
  Py_XDECREF(value);
  if (result != 1) {
    return result;
  }
  result = read_tensor(object, view);
  if (result != 1) {
    view->state = VIEW_TENSOR;
    return result;
  }
  PyObject *method = optional_attribute(object, names.data_ptr);
  if (!method) {
    return PyErr_Occurred() ? -1 : PyIndex_Check(object) ? read_address(object, view) : 1;
  }
  PyObject *number = PyObject_Call(method, names.empty, NULL);
  Py_DECREF(method);
  result = number ? read_address(number, view) : -1;
  Py_XDECREF(number);
  return result;
}

// ---- streams --------------------------------------------------------------------------------------------------------

// 1: not a handle.
static int handle_from_integer(PyObject *object, uint64_t *stream) {
  if (object == Py_None) {
    *stream = 0;
    return 0;
  }
  if (!Py_IS_TYPE(object, &PyLong_Type) && (!PyLong_Check(object) || PyBool_Check(object))) {
    return 1;
  }
  return address_from_integer(object, stream);
}

static int read_stream_level(PyObject *object, uint64_t *stream, int depth) {
  int result = handle_from_integer(object, stream);
  if (result != 1) {
    return result;
  }
  PyObject *handle = optional_attribute(object, names.cuda_stream);
  if (handle) {
    result = handle_from_integer(handle, stream);
    Py_DECREF(handle);
    return result;
  }
  if (PyErr_Occurred()) {
    return -1;
  }
  PyObject *method = optional_attribute(object, names.cuda_stream_protocol);
  if (method) {
    PyObject *pair = PyObject_Call(method, names.empty, NULL); // (version, handle)
    Py_DECREF(method);
    handle = pair ? item_of(pair, 1, "its __cuda_stream__ did not return (version, handle)") : NULL;
    Py_XDECREF(pair);
    result = handle ? handle_from_integer(handle, stream) : -1;
    Py_XDECREF(handle);
    return result;
  }
  if (PyErr_Occurred()) {
    return -1;
  }
  if (depth == 0) { // what FlyDSL's own Stream holds
    PyObject *value = optional_attribute(object, names.value);
    if (value) {
      result = read_stream_level(value, stream, 1);
      Py_DECREF(value);
      return result;
    }
  }
  return PyErr_Occurred() ? -1 : 1;
}

int read_stream(PyObject *object, uint64_t *stream) { return read_stream_level(object, stream, 0); }

// ---- scalars --------------------------------------------------------------------------------------------------------

// Leaves no exception behind: a scalar that does not fit one specialization may fit the next. What is not about its
// type, such as a KeyboardInterrupt in its __index__, stays set.
static enum fdb_code refuse_type(PyObject *object, uint32_t dtype, const char *label) {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) {
    return FDB_TYPE;
  }
  PyErr_Clear();
  PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
  PyObject *name = type ? PyUnicode_AsUTF8String(type) : NULL;
  enum fdb_code code = fdb_fail(FDB_TYPE, "argument %s must be %s, got a value of type %s", label,
                                fdb_dtype_name(dtype), name ? PyBytes_AsString(name) : "?");
  Py_XDECREF(name);
  Py_XDECREF(type);
  PyErr_Clear();
  return code;
}

static enum fdb_code refuse_range(PyObject *object, uint32_t dtype, const char *label) {
  PyErr_Clear();
  PyObject *text = PyObject_Repr(object);
  PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
  enum fdb_code code = fdb_fail(FDB_OVERFLOW, "argument %s must be %s, got %.80s, which is out of its range", label,
                                fdb_dtype_name(dtype), bytes ? PyBytes_AsString(bytes) : "a number");
  Py_XDECREF(bytes);
  Py_XDECREF(text);
  PyErr_Clear();
  return code;
}

static enum fdb_code read_integer(PyObject *object, uint32_t dtype, const char *label, uint64_t *bits) {
  PyObject *index = object;
  if (Py_IS_TYPE(object, &PyLong_Type)) {
    Py_INCREF(index);
  } else if (!(index = PyNumber_Index(object))) {
    return refuse_type(object, dtype, label);
  }
  unsigned width = dtype & 0xff;
  bool fits;
  if (dtype >> 8 == FDB_DL_UINT) {
    *bits = PyLong_AsUnsignedLongLong(index);
    fits = !(*bits == (uint64_t)-1 && PyErr_Occurred()) && (width == 64 || *bits >> width == 0);
  } else {
    int overflow;
    int64_t value = PyLong_AsLongLongAndOverflow(index, &overflow);
    int64_t limit = (int64_t)(((uint64_t)1 << (width - 1)) - 1);
    fits = !overflow && value <= limit && value >= -limit - 1;
    *bits = (uint64_t)value;
  }
  Py_DECREF(index);
  return fits ? FDB_OK : refuse_range(object, dtype, label);
}

static enum fdb_code read_bool(PyObject *object, uint32_t dtype, const char *label, uint64_t *bits) {
  if (PyBool_Check(object)) {
    *bits = object == Py_True;
    return FDB_OK;
  }
  PyObject *index = PyNumber_Index(object);
  if (index) {
    long value = PyLong_AsLong(index);
    Py_DECREF(index);
    *bits = (uint64_t)value;
    return value == 0 || value == 1 ? FDB_OK : refuse_range(object, dtype, label);
  }
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
    return FDB_TYPE;
  }
  PyErr_Clear();
  // numpy's bool is neither a Python bool nor an integer.
  PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
  bool known = name && (PyUnicode_CompareWithASCIIString(name, "bool") == 0 ||
                        PyUnicode_CompareWithASCIIString(name, "bool_") == 0);
  Py_XDECREF(name);
  int truth = known ? PyObject_IsTrue(object) : -1;
  if (truth < 0) {
    return refuse_type(object, dtype, label);
  }
  *bits = (uint64_t)truth;
  return FDB_OK;
}

enum fdb_code read_scalar(PyObject *object, uint32_t dtype, const char *label, uint64_t *bits) {
  unsigned code = dtype >> 8, width = dtype & 0xff;
  if (code == FDB_DL_BOOL) {
    return read_bool(object, dtype, label, bits);
  }
  if (PyBool_Check(object)) {
    return refuse_type(object, dtype, label);
  }
  if (code == FDB_DL_INT || code == FDB_DL_UINT) {
    return read_integer(object, dtype, label, bits);
  }
  double value = PyFloat_AsDouble(object);
  if (value == -1 && PyErr_Occurred()) {
    return PyErr_ExceptionMatches(PyExc_OverflowError) ? refuse_range(object, dtype, label)
                                                       : refuse_type(object, dtype, label);
  }
  bool fits = true;
  if (width == 64) {
    memcpy(bits, &value, sizeof value);
  } else if (width == 32) {
    float narrow = (float)value;
    uint32_t raw;
    memcpy(&raw, &narrow, sizeof raw);
    *bits = raw;
    fits = !isinf(narrow) || isinf(value);
  } else {
    fits = fdb_round_float(value, code == FDB_DL_BFLOAT ? 8 : 5, code == FDB_DL_BFLOAT ? 7 : 10, bits);
    if (!fits && isinf(value)) {
      fits = true;
    }
  }
  return fits ? FDB_OK : refuse_range(object, dtype, label);
}
