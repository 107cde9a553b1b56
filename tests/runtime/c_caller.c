// SPDX-License-Identifier: Apache-2.0
// Launches kernels of the example's wheel without Python: c_caller HIP-LIBRARY FOLDER COMMAND...
// Prints what it reads back, or the text of an error. On a stand-in that runs nothing, the numbers stay what they were.

#include "runtime.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum fdb_code fdb_open_hip(const char *path, bool mapped_only, const struct fdb_driver **driver);

enum { ROWS = 3, COLUMNS = 5, LENGTH = 100 };

static int fail(void) {
  printf("error: %s\n", fdb_last_error()->text);
  return 1;
}

// What an author's init function does: example_pkg.device_state:init_module.
static int init_module(void *module) {
  const float factor = 2.5F;
  void *address;
  size_t size;
  int error = fdb_driver()->global(&address, &size, module, "example_factor");
  printf("init\n");
  return error ? error : fdb_driver()->copy_to_device(address, &factor, size);
}

static int refuse_module(void *module) {
  (void)module;
  return 7;
}

static struct fdb_dltensor vector(float *data, int64_t *shape) {
  static int64_t one[] = {1};
  return (struct fdb_dltensor){
      .data = data, .device_type = FDB_DL_ROCM, .rank = 1, .code = FDB_DL_FLOAT, .bits = 32, .lanes = 1, .shape = shape, .strides = one};
}

static int (*wait)(void);

static int call(struct fdb_module *module, const char *name, const struct fdb_value *values) {
  const struct fdb_specialization *callee = fdb_find_specialization(module, name);
  if (!callee) {
    printf("error: there is no %s\n", name);
    return 1;
  }
  return fdb_call_module(module, 0, callee, values) ? fail() : wait ? wait() : 0;
}

static uint64_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static int open_and_load(const char *folder, const char *name, fdb_init_function init, struct fdb_module **module) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.launchers.elf", folder, name);
  return fdb_open_module(path, module) ||
         (init && fdb_set_init(*module, "example_pkg.device_state:init_module", init)) || fdb_load_module(*module, 0);
}

static int add(const char *folder, float *memory) {
  struct fdb_module *module;
  if (open_and_load(folder, "elementwise", NULL, &module)) {
    return fail();
  }
  float *a = memory, *b = memory + 64, *c = memory + 128;
  int64_t shape[] = {ROWS, COLUMNS}, strides[] = {COLUMNS, 1};
  struct fdb_dltensor tensors[3];
  for (int i = 0; i < 3; i++) {
    tensors[i] = vector(memory + 64 * i, shape);
    tensors[i].rank = 2;
    tensors[i].strides = strides;
  }
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    a[i] = (float)i;
    b[i] = 0.5F * (float)i;
    c[i] = -1;
  }
  if (call(module, "vector_add", (struct fdb_value[]){{&tensors[0], 0}, {&tensors[1], 0}, {&tensors[2], 0}, {0}})) {
    return 1;
  }
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    printf("%g ", (double)c[i]);
  }
  printf("\n");
  // What does not fit is refused, as from Python.
  int64_t other[] = {ROWS, COLUMNS + 1};
  tensors[1].shape = other;
  return call(module, "vector_add", (struct fdb_value[]){{&tensors[0], 0}, {&tensors[1], 0}, {&tensors[2], 0}, {0}});
}

static int scale(const char *folder, float *memory, fdb_init_function init) {
  struct fdb_module *module;
  if (open_and_load(folder, "scaled", init, &module) || fdb_load_module(module, 0)) {
    return fail();
  }
  int64_t shape[] = {LENGTH};
  struct fdb_dltensor out = vector(memory, shape), x = vector(memory + 128, shape);
  for (int i = 0; i < LENGTH; i++) {
    memory[i] = -1;
    memory[128 + i] = (float)i;
  }
  if (call(module, "scale", (struct fdb_value[]){{&x, 0}, {&out, 0}, {NULL, 1}, {NULL, LENGTH}, {0}})) {
    return 1;
  }
  printf("%g %g %g\n", (double)memory[0], (double)memory[1], (double)memory[LENGTH - 1]);
  return 0;
}

static int axpy(const char *folder, float *memory) {
  struct fdb_module *module;
  if (open_and_load(folder, "elementwise", NULL, &module)) {
    return fail();
  }
  int64_t shape[] = {LENGTH};
  struct fdb_dltensor x = vector(memory, shape), y = vector(memory + 128, shape);
  for (int i = 0; i < LENGTH; i++) {
    memory[i] = (float)i;
    memory[128 + i] = 1;
  }
  if (call(module, "axpy", (struct fdb_value[]){{NULL, bits_of(0.5F)}, {&x, 0}, {&y, 0}, {NULL, LENGTH}, {0}})) {
    return 1;
  }
  printf("%g %g %g\n", (double)memory[128], (double)memory[129], (double)memory[128 + LENGTH - 1]);
  return 0;
}

int main(int count, char **words) {
  const struct fdb_driver *driver;
  if (count != 4) {
    return 2;
  }
  const char *folder = words[2], *command = words[3];
  if (fdb_open_hip(words[1], false, &driver)) {
    return fail();
  }
  fdb_set_driver(driver);
  // Memory of the device, where the library has such; the stand-ins take any.
  float *memory = NULL;
  driver->set_device(0);
  void *hip = dlopen(words[1], RTLD_NOW | RTLD_NOLOAD);
  int (*allocate)(void **, size_t, unsigned) = (int (*)(void **, size_t, unsigned))dlsym(hip, "hipMallocManaged");
  wait = (int (*)(void))dlsym(hip, "hipDeviceSynchronize");
  if (allocate ? allocate((void **)&memory, 4096, 1) : !(memory = calloc(1024, sizeof *memory))) {
    return 3;
  }
  return !strcmp(command, "add")      ? add(folder, memory)
         : !strcmp(command, "axpy")   ? axpy(folder, memory)
         : !strcmp(command, "scale")  ? scale(folder, memory, init_module)
         : !strcmp(command, "noinit") ? scale(folder, memory, NULL)
         : !strcmp(command, "refuse") ? scale(folder, memory, refuse_module)
                                      : 2;
}
