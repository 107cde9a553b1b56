// SPDX-License-Identifier: Apache-2.0
// The native run time: driver table, code objects, launches, argument checks. No Python in here.
//
// Ownership. A pointer that goes into a function is borrowed for the call. What a function hands out belongs to the
// caller, unless it says "process": such memory is never freed, because a thread that launches may still read it.
// Threading. Every function may be called from any thread. A table and a published `fdb_loaded` are immutable; the only
// shared mutable words are atomics. The last error is thread-local. Nothing here takes a lock, and nothing here is
// called by a destructor, a finalizer or at exit.
// Errors. Functions return FDB_OK or another `fdb_code`; the text is then in fdb_last_error().

#ifndef FLYDSL_CORE_RUNTIME_H
#define FLYDSL_CORE_RUNTIME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "call_table.h"
#include "dlpack_abi.h"

enum {
  FDB_MAX_RANK = 16,
  FDB_MAX_DEVICES = 64,
  FDB_MAX_BLOCK = 64 * 1024, // bytes of packed arguments of one call, which lie on the stack
  FDB_MAX_ARGUMENTS = 512,   // of one call, whose views lie on the stack too
  FDB_NULL_SLOT = 16,        // a block begins with 16 bytes of scratch, then has the null stream
  FDB_FIRST_SLOT = 32,
};

// ---- status.c -------------------------------------------------------------------------------------------------------

enum fdb_code { FDB_OK, FDB_TYPE, FDB_VALUE, FDB_OVERFLOW, FDB_DRIVER, FDB_LAUNCH };

struct fdb_error {
  enum fdb_code code;
  int driver_code; // the driver's own number, 0 where the driver was not asked
  char name[64];   // the driver's name for it
  char text[1536];
};

struct fdb_driver;

struct fdb_error *fdb_last_error(void);
enum fdb_code fdb_fail(enum fdb_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Records `<text>: <name> (<driver> error <number>: <the driver's text>)`.
enum fdb_code fdb_fail_driver(const struct fdb_driver *driver, enum fdb_code code, int driver_code, const char *format,
                              ...) __attribute__((format(printf, 4, 5)));

// ---- the driver table: one file fills it (drivers/hip.c), all others call through it -------------------------------

struct fdb_dims {
  uint32_t grid[3], block[3], cluster[3], dynamic_lds;
};

// Functions return the driver's own number, 0 for success. Entries marked "optional" may be NULL.
struct fdb_driver {
  const char *name;          // the word for messages
  const char *cluster_entry; // the entry point that a cluster launch needs
  uint32_t device_types;     // bit set of DLPack device types: memory of a numbered device
  uint32_t host_types;       // bit set of DLPack device types: memory of no device, which reads_host() tells more about
  int devices;               // how many there are
  int (*device_count)(int *count);
  int (*current_device)(int *device);
  int (*set_device)(int device);
  int (*target)(int device, char *text, size_t size);
  int (*load)(void **module, const void *image);
  int (*unload)(void *module);
  int (*function)(void **function, void *module, const char *name);
  int (*global)(void **address, size_t *size, void *module, const char *name);
  int (*copy_to_device)(void *address, const void *source, size_t size);
  int (*launch)(void *function, const struct fdb_dims *dims, void *stream, void **args);
  int (*launch_cluster)(void *function, const struct fdb_dims *dims, void *stream, void **args); // optional
  int (*raise_lds_limit)(void *function, int bytes);                                             // optional
  int (*stream_capturing)(void *stream, int *capturing);                                         // optional
  int (*stream_device)(void *stream, int *device);                                               // optional
  bool (*reads_host)(int device, const void *address);                                           // optional
  const char *(*error_name)(int code);
  const char *(*error_text)(int code);
};

// Opens the driver library at `path` and initialises it; `mapped_only` takes only a copy that the process already has.
// FDB_DRIVER with driver_code 0: not a usable library; else it is one, but it cannot be initialised or has no device.
enum fdb_code fdb_open_hip(const char *path, bool mapped_only, const struct fdb_driver **driver);

// The driver of this process, or NULL before fdb_set_driver(). `driver` is process memory.
const struct fdb_driver *fdb_driver(void);
void fdb_set_driver(const struct fdb_driver *driver);

// ---- launch.c -------------------------------------------------------------------------------------------------------

struct fdb_kernel {
  void *function;
  const char *symbol;
  uint32_t max_workgroup;
  uint32_t block[3]; // the one it was compiled for; 0 0 0: any up to max_workgroup
};

struct fdb_call;
typedef int32_t (*fdb_entry_function)(struct fdb_call *call, void **slots);

struct fdb_entry {
  fdb_entry_function function; // NULL: this specialization was not built for the target
  uint32_t kernel_count;
  struct fdb_kernel *kernels;
};

// All that a launch needs to know of a module on one device.
struct fdb_loaded {
  unsigned generation; // of the process that loaded it: a forked child must not use its parent's handles
  int device;
  char target[64];
  uint32_t entry_count;
  struct fdb_entry entries[]; // by the position of the specialization in the manifest
};

// The first two fields are the ABI of the launcher libraries; the rest is private.
struct fdb_call {
  void (*launch)(struct fdb_call *call, int32_t kernel, const int64_t config[10], void **args, int32_t count,
                 void *stream);
  int32_t status;
  const struct fdb_driver *driver;
  const struct fdb_loaded *loaded;
  const struct fdb_entry *entry;
};
_Static_assert(offsetof(struct fdb_call, status) == 8, "the launcher libraries read status at byte 8");

void fdb_launch(struct fdb_call *call, int32_t kernel, const int64_t config[10], void **args, int32_t count,
                void *stream);

// Calls a host function of the launcher library with `device` current, and makes current again what was so before.
enum fdb_code fdb_enter(const struct fdb_driver *driver, const struct fdb_loaded *loaded, const struct fdb_entry *entry,
                        int device, void **slots);

// Counts the forks between the first process and this one.
extern atomic_uint fdb_forks;
static inline unsigned fdb_generation(void) { return atomic_load_explicit(&fdb_forks, memory_order_relaxed); }
int fdb_watch_forks(void);

// ---- arguments.c ----------------------------------------------------------------------------------------------------

enum fdb_argument_kind { FDB_TENSOR, FDB_POINTER, FDB_SCALAR, FDB_STREAM };
enum fdb_slot_kind { FDB_SLOT_DATA, FDB_SLOT_LAYOUT, FDB_SLOT_SCALAR, FDB_SLOT_POINTER, FDB_SLOT_STREAM };

// A dtype is (DLPack type code << 8 | bits).
#define FDB_DTYPE(code, bits) ((uint32_t)(code) << 8 | (uint32_t)(bits))

struct fdb_dim {
  int64_t size; // -1: dynamic
  int32_t name; // -1: none
  uint32_t divisor;
  uint32_t at; // where in the block it is packed; one that is not packed goes to the block's scratch
  bool wide;   // in 8 bytes, else in 4
};

struct fdb_argument {
  enum fdb_argument_kind kind;
  uint32_t dtype;
  uint32_t align;
  int32_t rank;
  uint32_t element; // code, bits and lanes as they lie in a DLPack tensor
  uint32_t matters; // the bits of `element` that count: not FDB_READ_ONLY, if the kernels do not write the argument
  uint32_t at;      // where in the block the address or the value is packed
  uint8_t size;     // of a packed value
  bool offsets_32;  // element offsets are computed in 32 bits
  bool written;     // read-only memory is refused
  const char *label;
  const char *expected; // in the grammar of the declarations
  struct fdb_dim *shape, *strides;
};

struct fdb_slot {
  enum fdb_slot_kind kind;
  int32_t argument; // -1: the null stream
  uint32_t size, offset;
  uint8_t shape_count, stride_count;
  uint8_t shape_bytes, stride_bytes;
  uint8_t shape_dims[FDB_MAX_RANK], stride_dims[FDB_MAX_RANK];
};

struct fdb_table {
  uint32_t argument_count, slot_count, name_count;
  uint32_t block_size; // bytes of the packed block, a multiple of 16
  bool repeats;        // some argument or dim has more than one place in the block
  struct fdb_argument *arguments;
  struct fdb_slot *slots;
  const char **names;
};

// The value of one argument: a tensor's view (also where a tensor was given for a pointer), or else the bits of a
// pointer, scalar or stream in the low bytes.
struct fdb_value {
  const struct fdb_dltensor *tensor;
  uint64_t bits;
};

struct fdb_name_value {
  int64_t value;
  int32_t argument; // the first argument that gave the name its value; -1: none yet
};

bool fdb_is_empty(const struct fdb_dltensor *tensor);
// Fills in what fdb_check_and_pack() reads beside the description itself; the table is complete then.
void fdb_finish_table(struct fdb_table *table);
// Checks every tensor and pointer of `table` and packs all values into `block` (block_size bytes, aligned to 16).
// `names` has table->name_count elements, undefined before the call. `quiet` leaves out the text of the error, for a
// try among several specializations.
enum fdb_code fdb_check_and_pack(const struct fdb_table *table, const struct fdb_value *values,
                                 struct fdb_name_value *names, char *block, bool quiet);
// The slots as the launcher library takes them.
static inline void fdb_point_slots(const struct fdb_table *table, char *block, void **slots) {
  for (uint32_t i = 0; i < table->slot_count; i++) {
    slots[i] = block + table->slots[i].offset;
  }
}
// Finds the one device that all tensors are on, or -1 where all are in host memory; whether some are in `host` memory.
enum fdb_code fdb_find_device(const struct fdb_driver *driver, const struct fdb_table *table,
                              const struct fdb_value *values, int *device, bool *host);
// Refuses tensors in host memory that `device` cannot read.
enum fdb_code fdb_check_host_memory(const struct fdb_driver *driver, const struct fdb_table *table,
                                    const struct fdb_value *values, int device);

// ---- table.c: the call table of a launcher library, read ------------------------------------------------------------

struct fdb_target {
  const char *name;
  uint32_t member_count;
  const char **members; // the processors of a generic target
};

struct fdb_global {
  const char *name;
  uint64_t size;
};

struct fdb_code_object {
  uint32_t target, e_flags;
  uint64_t offset, size; // in the bundle's file
  uint8_t sha256[32];
  uint32_t kernel_count;
  struct fdb_kernel *kernels; // without functions
};

// The kernels that share compile options and axis values.
struct fdb_unit {
  const char *name, *bundle; // {target} in the name of the file stands for the target
  uint32_t axis_count, init_count, global_count, code_object_count;
  const char **axes; // name, value, name, value
  const char **init;
  struct fdb_global *globals;
  struct fdb_code_object *code_objects;
};

struct fdb_entry_place {
  uint32_t target, unit;
  const char *symbol; // of the launcher library
  uint32_t kernel_count;
  const uint32_t *kernels; // of the code object
};

struct fdb_specialization {
  const char *name;
  struct fdb_table table;
  uint32_t entry_count;
  struct fdb_entry_place *entries;
};

struct fdb_allocation;
struct fdb_tables {
  const char *module;
  uint32_t target_count, unit_count, specialization_count;
  struct fdb_target *targets;
  struct fdb_unit *units;
  struct fdb_specialization *specializations;
  struct fdb_allocation *allocations;
};

// Reads a call table, aligned to 8 bytes, into which the result points: it must live as long. FDB_VALUE: it is damaged,
// or of another version.
enum fdb_code fdb_read_tables(const void *data, size_t size, struct fdb_tables **tables);
void fdb_free_tables(struct fdb_tables *tables);
// NULL: the unit has none for the target, which is given by its number.
const struct fdb_code_object *fdb_code_object_for(const struct fdb_unit *unit, uint32_t target);
// Finds the target that the device of this target ID runs, by HIP's rules, among those that are there (NULL: all).
bool fdb_choose_target(const struct fdb_tables *tables, const bool *is_there, const char *device, uint32_t *chosen);
// Whether the features that a code object names are those of the device; an unnamed feature fits any.
bool fdb_flags_fit(uint32_t e_flags, const char *device);

// ---- module.c: a module without Python ------------------------------------------------------------------------------

struct fdb_module;

// An init function of the module: takes the driver's handle of the loaded code object, returns 0 or its own error.
typedef int (*fdb_init_function)(void *module);

// Opens the launcher library of a module; its bundles lie beside it. The driver must be set by then.
enum fdb_code fdb_open_module(const char *library, struct fdb_module **module);
// Names the function that stands for the init function `module:qualname` of the source. FDB_VALUE: it has none such.
enum fdb_code fdb_set_init(struct fdb_module *module, const char *reference, fdb_init_function function);
// Loads it on a device and runs its init functions, unless that has been done. Not thread-safe.
enum fdb_code fdb_load_module(struct fdb_module *module, int device);
// The call of a specialization, with what its arguments must be; NULL: there is none of this name.
const struct fdb_specialization *fdb_find_specialization(const struct fdb_module *module, const char *name);
// Checks the values, one for each argument of the specialization, and launches on a device that the module is loaded on.
enum fdb_code fdb_call_module(const struct fdb_module *module, int device, const struct fdb_specialization *callee,
                              const struct fdb_value *values);

// ---- sha256.c -------------------------------------------------------------------------------------------------------

// FIPS 180-4.
void fdb_sha256(const void *data, size_t size, uint8_t digest[32]);

const char *fdb_dtype_name(uint32_t dtype);
// Rounds to nearest even into an IEEE-like format; false: finite, but too large for the format.
bool fdb_round_float(double value, unsigned exponent_bits, unsigned fraction_bits, uint64_t *bits);

#endif
