// SPDX-License-Identifier: Apache-2.0
// The native run time: driver table, code objects, launches, argument checks. No Python in here.
//
// Ownership. A pointer that goes into a function is borrowed for the call. What a function hands out belongs to the
// caller, unless it says "process": such memory is never freed, because a thread that launches may still read it.
// Threading. Every function may be called from any thread. A table and a published `fdr_loaded` are immutable; the only
// shared mutable words are atomics. The last error is thread-local. Nothing here takes a lock, and nothing here is
// called by a destructor, a finalizer or at exit.
// Errors. Functions return FDR_OK or another `fdr_code`; the text is then in fdr_last_error().

#ifndef FLYDSL_RUNTIME_H
#define FLYDSL_RUNTIME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "dlpack_abi.h"

enum {
  FDR_MAX_RANK = 16,
  FDR_MAX_DEVICES = 64,
  FDR_MAX_BLOCK = 64 * 1024, // bytes of packed arguments of one call, which lie on the stack
  FDR_MAX_ARGUMENTS = 512,   // of one call, whose views lie on the stack too
  FDR_NULL_SLOT = 16,        // a block begins with 16 bytes of scratch, then has the null stream
  FDR_FIRST_SLOT = 32,
};

// ---- status.c -------------------------------------------------------------------------------------------------------

enum fdr_code { FDR_OK, FDR_TYPE, FDR_VALUE, FDR_OVERFLOW, FDR_DRIVER, FDR_LAUNCH };

struct fdr_error {
  enum fdr_code code;
  int driver_code; // the driver's own number, 0 where the driver was not asked
  char name[64];   // the driver's name for it
  char text[1536];
};

struct fdr_driver;

struct fdr_error *fdr_last_error(void);
enum fdr_code fdr_fail(enum fdr_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Records `<text>: <name> (<driver> error <number>: <the driver's text>)`.
enum fdr_code fdr_fail_driver(const struct fdr_driver *driver, enum fdr_code code, int driver_code, const char *format,
                              ...) __attribute__((format(printf, 4, 5)));

// ---- the driver table: one file fills it (hip_driver.c), all others call through it ---------------------------------

struct fdr_dims {
  uint32_t grid[3], block[3], cluster[3], dynamic_lds;
};

// Functions return the driver's own number, 0 for success. Entries marked "optional" may be NULL.
struct fdr_driver {
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
  int (*launch)(void *function, const struct fdr_dims *dims, void *stream, void **args);
  int (*launch_cluster)(void *function, const struct fdr_dims *dims, void *stream, void **args); // optional
  int (*raise_lds_limit)(void *function, int bytes);                                             // optional
  int (*stream_capturing)(void *stream, int *capturing);                                         // optional
  int (*stream_device)(void *stream, int *device);                                               // optional
  bool (*reads_host)(int device, const void *address);                                           // optional
  const char *(*error_name)(int code);
  const char *(*error_text)(int code);
};

// Opens the driver library at `path` and initialises it; `mapped_only` takes only a copy that the process already has.
// FDR_DRIVER with driver_code 0: not a usable library; else it is one, but it cannot be initialised or has no device.
enum fdr_code fdr_open_hip(const char *path, bool mapped_only, const struct fdr_driver **driver);

// The driver of this process, or NULL before fdr_set_driver(). `driver` is process memory.
const struct fdr_driver *fdr_driver(void);
void fdr_set_driver(const struct fdr_driver *driver);

// ---- launch.c -------------------------------------------------------------------------------------------------------

struct fdr_kernel {
  void *function;
  const char *symbol;
  uint32_t max_workgroup;
  uint32_t block[3]; // the one it was compiled for; 0 0 0: any up to max_workgroup
};

struct fdb_call;
typedef int32_t (*fdr_entry_function)(struct fdb_call *call, void **slots);

struct fdr_entry {
  fdr_entry_function function; // NULL: this specialization was not built for the target
  uint32_t kernel_count;
  struct fdr_kernel *kernels;
};

// All that a launch needs to know of a module on one device.
struct fdr_loaded {
  unsigned generation; // of the process that loaded it: a forked child must not use its parent's handles
  int device;
  char target[64];
  uint32_t entry_count;
  struct fdr_entry entries[]; // by the position of the specialization in the manifest
};

// The first two fields are the ABI of the launcher libraries; the rest is private.
struct fdb_call {
  void (*launch)(struct fdb_call *call, int32_t kernel, const int64_t config[10], void **args, int32_t count,
                 void *stream);
  int32_t status;
  const struct fdr_driver *driver;
  const struct fdr_loaded *loaded;
  const struct fdr_entry *entry;
};
_Static_assert(offsetof(struct fdb_call, status) == 8, "the launcher libraries read status at byte 8");

void fdr_launch(struct fdb_call *call, int32_t kernel, const int64_t config[10], void **args, int32_t count,
                void *stream);

// Counts the forks between the first process and this one.
extern atomic_uint fdr_forks;
static inline unsigned fdr_generation(void) { return atomic_load_explicit(&fdr_forks, memory_order_relaxed); }
int fdr_watch_forks(void);

// ---- arguments.c ----------------------------------------------------------------------------------------------------

enum fdr_argument_kind { FDR_TENSOR, FDR_POINTER, FDR_SCALAR, FDR_STREAM };
enum fdr_slot_kind { FDR_SLOT_DATA, FDR_SLOT_LAYOUT, FDR_SLOT_SCALAR, FDR_SLOT_POINTER, FDR_SLOT_STREAM };

// A dtype is (DLPack type code << 8 | bits).
#define FDR_DTYPE(code, bits) ((uint32_t)(code) << 8 | (uint32_t)(bits))

struct fdr_dim {
  int64_t size; // -1: dynamic
  int32_t name; // -1: none
  uint32_t divisor;
  uint32_t at; // where in the block it is packed; one that is not packed goes to the block's scratch
  bool wide;   // in 8 bytes, else in 4
};

struct fdr_argument {
  enum fdr_argument_kind kind;
  uint32_t dtype;
  uint32_t align;
  int32_t rank;
  uint32_t element; // code, bits and lanes as they lie in a DLPack tensor
  uint32_t matters; // the bits of `element` that count: not FDR_READ_ONLY, if the kernels do not write the argument
  uint32_t at;      // where in the block the address or the value is packed
  uint8_t size;     // of a packed value
  bool offsets_32;  // element offsets are computed in 32 bits
  bool written;     // read-only memory is refused
  const char *label;
  const char *expected; // in the grammar of the declarations
  struct fdr_dim *shape, *strides;
};

struct fdr_slot {
  enum fdr_slot_kind kind;
  int32_t argument; // -1: the null stream
  uint32_t size, offset;
  uint8_t shape_count, stride_count;
  uint8_t shape_bytes, stride_bytes;
  uint8_t shape_dims[FDR_MAX_RANK], stride_dims[FDR_MAX_RANK];
};

struct fdr_table {
  uint32_t argument_count, slot_count, name_count;
  uint32_t block_size; // bytes of the packed block, a multiple of 16
  bool repeats;        // some argument or dim has more than one place in the block
  struct fdr_argument *arguments;
  struct fdr_slot *slots;
  const char **names;
};

// The value of one argument: a tensor's view (also where a tensor was given for a pointer), or else the bits of a
// pointer, scalar or stream in the low bytes.
struct fdr_value {
  const struct fdr_dltensor *tensor;
  uint64_t bits;
};

struct fdr_name_value {
  int64_t value;
  int32_t argument; // the first argument that gave the name its value; -1: none yet
};

bool fdr_is_empty(const struct fdr_dltensor *tensor);
// Fills in what fdr_check_and_pack() reads beside the description itself; the table is complete then.
void fdr_finish_table(struct fdr_table *table);
// Checks every tensor and pointer of `table` and packs all values into `block` (block_size bytes, aligned to 16).
// `names` has table->name_count elements, undefined before the call. `quiet` leaves out the text of the error, for a
// try among several specializations.
enum fdr_code fdr_check_and_pack(const struct fdr_table *table, const struct fdr_value *values,
                                 struct fdr_name_value *names, char *block, bool quiet);
// The slots as the launcher library takes them.
static inline void fdr_point_slots(const struct fdr_table *table, char *block, void **slots) {
  for (uint32_t i = 0; i < table->slot_count; i++) {
    slots[i] = block + table->slots[i].offset;
  }
}
// Finds the one device that all tensors are on, or -1 where all are in host memory; whether some are in `host` memory.
enum fdr_code fdr_find_device(const struct fdr_driver *driver, const struct fdr_table *table,
                              const struct fdr_value *values, int *device, bool *host);
// Refuses tensors in host memory that `device` cannot read.
enum fdr_code fdr_check_host_memory(const struct fdr_driver *driver, const struct fdr_table *table,
                                    const struct fdr_value *values, int device);

const char *fdr_dtype_name(uint32_t dtype);
// Rounds to nearest even into an IEEE-like format; false: finite, but too large for the format.
bool fdr_round_float(double value, unsigned exponent_bits, unsigned fraction_bits, uint64_t *bits);

#endif
