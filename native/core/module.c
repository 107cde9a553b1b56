// SPDX-License-Identifier: Apache-2.0
// A module without Python: its launcher library is opened, its code objects are loaded on a device, its kernels launched.

#include "runtime.h"

#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct init {
  const char *reference;
  fdb_init_function function; // NULL: none is registered
};

struct fdb_module {
  struct fdb_tables *tables;
  char *folder;
  void *library;
  uint32_t init_count;
  struct init *inits;
  struct fdb_loaded *loaded[FDB_MAX_DEVICES];
};

// ---- opening --------------------------------------------------------------------------------------------------------

static struct init *find_init(const struct fdb_module *module, const char *reference) {
  for (uint32_t i = 0; i < module->init_count; i++) {
    if (!strcmp(module->inits[i].reference, reference)) {
      return &module->inits[i];
    }
  }
  return NULL;
}

static enum fdb_code list_inits(struct fdb_module *module) {
  const struct fdb_tables *tables = module->tables;
  uint32_t count = 0;
  for (uint32_t u = 0; u < tables->unit_count; u++) {
    count += tables->units[u].init_count;
  }
  if (!(module->inits = calloc((size_t)count + 1, sizeof *module->inits))) {
    return fdb_fail(FDB_VALUE, "out of memory");
  }
  for (uint32_t u = 0; u < tables->unit_count; u++) {
    for (uint32_t i = 0; i < tables->units[u].init_count; i++) {
      if (!find_init(module, tables->units[u].init[i])) {
        module->inits[module->init_count++].reference = tables->units[u].init[i];
      }
    }
  }
  return FDB_OK;
}

static void free_module(struct fdb_module *module) {
  if (module->library) {
    dlclose(module->library);
  }
  fdb_free_tables(module->tables);
  free(module->inits);
  free(module->folder);
  free(module);
}

static enum fdb_code open_library(struct fdb_module *module, const char *library) {
  if (!(module->folder = realpath(library, NULL))) {
    return fdb_fail(FDB_VALUE, "%s does not exist", library);
  }
  module->library = dlopen(module->folder, RTLD_NOW | RTLD_LOCAL);
  if (!module->library) {
    const char *why = dlerror();
    return fdb_fail(FDB_VALUE, "%s: %s", library, why ? why : "cannot be opened");
  }
  const struct fdb_table_header *header = dlsym(module->library, FDB_TABLE_SYMBOL);
  if (!header) {
    return fdb_fail(FDB_VALUE, "%s has no %s: it is no launcher library, or of an older build", library,
                    FDB_TABLE_SYMBOL);
  }
  *strrchr(module->folder, '/') = 0;
  enum fdb_code failed = fdb_read_tables(header, header->size, &module->tables);
  return failed ? failed : list_inits(module);
}

enum fdb_code fdb_open_module(const char *library, struct fdb_module **out) {
  struct fdb_module *module = calloc(1, sizeof *module);
  if (!module) {
    return fdb_fail(FDB_VALUE, "out of memory");
  }
  enum fdb_code failed = open_library(module, library);
  if (failed) {
    free_module(module);
    return failed;
  }
  *out = module;
  return FDB_OK;
}

enum fdb_code fdb_set_init(struct fdb_module *module, const char *reference, fdb_init_function function) {
  struct init *found = find_init(module, reference);
  if (!found) {
    return fdb_fail(FDB_VALUE, "%s has no init function %s", module->tables->module, reference);
  }
  found->function = function;
  return FDB_OK;
}

const struct fdb_specialization *fdb_find_specialization(const struct fdb_module *module, const char *name) {
  for (uint32_t i = 0; i < module->tables->specialization_count; i++) {
    if (!strcmp(module->tables->specializations[i].name, name)) {
      return &module->tables->specializations[i];
    }
  }
  return NULL;
}

// ---- loading --------------------------------------------------------------------------------------------------------

// One load on its way.
struct load {
  struct fdb_module *module;
  const struct fdb_driver *driver;
  int device;
  char target[64];
  uint32_t chosen;
  void **handles; // by unit; NULL: not loaded
};

static const char *target_name(const struct load *load) { return load->module->tables->targets[load->chosen].name; }

static enum fdb_code path_of(const struct load *load, const struct fdb_unit *unit, uint32_t target, char *path) {
  const char *place = strstr(unit->bundle, "{target}");
  const char *name = load->module->tables->targets[target].name;
  int length = place ? snprintf(path, PATH_MAX, "%s/%.*s%s%s", load->module->folder, (int)(place - unit->bundle),
                                unit->bundle, name, place + strlen("{target}"))
                     : snprintf(path, PATH_MAX, "%s/%s", load->module->folder, unit->bundle);
  return length < PATH_MAX ? FDB_OK : fdb_fail(FDB_VALUE, "the path of %s is too long", unit->bundle);
}

static bool is_installed(const struct load *load, uint32_t target) {
  char path[PATH_MAX];
  for (uint32_t u = 0; u < load->module->tables->unit_count; u++) {
    const struct fdb_unit *unit = &load->module->tables->units[u];
    if (fdb_code_object_for(unit, target) &&
        (!strstr(unit->bundle, "{target}") || (!path_of(load, unit, target, path) && !access(path, R_OK)))) {
      return true;
    }
  }
  return false;
}

static enum fdb_code choose(struct load *load) {
  const struct fdb_tables *tables = load->module->tables;
  bool is_there[tables->target_count + 1];
  for (uint32_t i = 0; i < tables->target_count; i++) {
    is_there[i] = is_installed(load, i);
  }
  bool fits = fdb_choose_target(tables, is_there, load->target, &load->chosen);
  for (uint32_t u = 0; fits && u < tables->unit_count; u++) {
    const struct fdb_code_object *object = fdb_code_object_for(&tables->units[u], load->chosen);
    fits = !object || fdb_flags_fit(object->e_flags, load->target);
  }
  if (fits) {
    return FDB_OK;
  }
  char names[512] = "nothing";
  size_t used = 0;
  for (uint32_t i = 0; i < tables->target_count && used < sizeof names; i++) {
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", tables->targets[i].name);
  }
  return fdb_fail(FDB_VALUE, "%s: device %d is %s, and there is code only for %s", tables->module, load->device,
                  load->target, names);
}

// Whether the unit is the one of this machine's axis values, which the environment names.
static enum fdb_code has_axes(const struct load *load, const struct fdb_unit *unit, bool *is_mine) {
  *is_mine = true;
  for (uint32_t i = 0; i < unit->axis_count; i++) {
    char variable[256] = "FLYDSL_BUILD_AXIS_";
    size_t at = strlen(variable);
    for (const char *name = unit->axes[2 * i]; *name && at + 1 < sizeof variable; name++) {
      variable[at++] = (char)toupper((unsigned char)*name);
    }
    const char *value = getenv(variable);
    if (!value || !*value) {
      return fdb_fail(FDB_VALUE, "%s: nothing says which value of the axis %s this machine has: set %s",
                      load->module->tables->module, unit->axes[2 * i], variable);
    }
    *is_mine = *is_mine && !strcmp(value, unit->axes[2 * i + 1]);
  }
  return FDB_OK;
}

static enum fdb_code check_image(const char *image, const struct fdb_code_object *object, const char *path) {
  enum { ELF_HEADER = 64, MACHINE_AT = 18, FLAGS_AT = 48, EM_AMDGPU = 224 };
  uint8_t digest[32];
  uint16_t machine;
  uint32_t e_flags;
  if (object->size < ELF_HEADER || memcmp(image, "\x7f" "ELF\x02\x01", 6)) {
    return fdb_fail(FDB_VALUE, "%s has no 64-bit little-endian ELF file at %llu", path,
                    (unsigned long long)object->offset);
  }
  memcpy(&machine, image + MACHINE_AT, sizeof machine);
  memcpy(&e_flags, image + FLAGS_AT, sizeof e_flags);
  fdb_sha256(image, object->size, digest);
  if (machine != EM_AMDGPU || e_flags != object->e_flags || memcmp(digest, object->sha256, sizeof digest)) {
    return fdb_fail(FDB_VALUE, "%s is not of the same build as the launcher library, or is damaged", path);
  }
  return FDB_OK;
}

// Maps the code object and checks it. What HIP was given to load it may look at again: it stays mapped.
static enum fdb_code map_image(const char *path, const struct fdb_code_object *object, const char **image) {
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  if (file < 0) {
    return fdb_fail(FDB_VALUE, "%s cannot be opened", path);
  }
  uint64_t first = object->offset - object->offset % 4096, end = object->offset + object->size;
  bool fits = !fstat(file, &status) && S_ISREG(status.st_mode) && end >= object->offset &&
              end <= (uint64_t)status.st_size && object->size;
  char *mapped = fits ? mmap(NULL, end - first, PROT_READ, MAP_PRIVATE, file, (off_t)first) : MAP_FAILED;
  close(file);
  if (mapped == MAP_FAILED) {
    return fdb_fail(FDB_VALUE, "%s has no %llu bytes at %llu", path, (unsigned long long)object->size,
                    (unsigned long long)object->offset);
  }
  *image = mapped + (object->offset - first);
  enum fdb_code failed = check_image(*image, object, path);
  if (failed) {
    munmap(mapped, end - first);
  }
  return failed;
}

static enum fdb_code load_unit(struct load *load, uint32_t u, struct fdb_kernel *kernels) {
  const struct fdb_unit *unit = &load->module->tables->units[u];
  const struct fdb_code_object *object = fdb_code_object_for(unit, load->chosen);
  const struct fdb_driver *driver = load->driver;
  char path[PATH_MAX];
  const char *image = NULL;
  enum fdb_code failed = path_of(load, unit, load->chosen, path);
  if (failed || (failed = map_image(path, object, &image))) {
    return failed;
  }
  int error = driver->load(&load->handles[u], image);
  if (error) {
    return fdb_fail_driver(driver, FDB_DRIVER, error, "%s, entry %s, on device %d (%s)", path, target_name(load),
                           load->device, load->target);
  }
  for (uint32_t k = 0; k < object->kernel_count; k++) {
    kernels[k] = object->kernels[k];
    if ((error = driver->function(&kernels[k].function, load->handles[u], kernels[k].symbol))) {
      return fdb_fail_driver(driver, FDB_DRIVER, error, "%s: kernel %s", path, kernels[k].symbol);
    }
  }
  for (uint32_t i = 0; i < unit->global_count; i++) {
    void *address;
    size_t size;
    if ((error = driver->global(&address, &size, load->handles[u], unit->globals[i].name))) {
      return fdb_fail_driver(driver, FDB_DRIVER, error, "%s: device global %s", path, unit->globals[i].name);
    }
    if (size != unit->globals[i].size) {
      return fdb_fail(FDB_VALUE, "%s: device global %s has %zu bytes, the build saw %llu", path, unit->globals[i].name,
                      size, (unsigned long long)unit->globals[i].size);
    }
  }
  return FDB_OK;
}

static enum fdb_code run_inits(const struct load *load, uint32_t u) {
  const struct fdb_unit *unit = &load->module->tables->units[u];
  for (uint32_t i = 0; i < unit->init_count; i++) {
    const struct init *init = find_init(load->module, unit->init[i]);
    if (!init->function) {
      return fdb_fail(FDB_VALUE, "init function %s of %s: no function stands for it: register one with fdb_set_init()",
                      unit->init[i], load->module->tables->module);
    }
    int status = init->function(load->handles[u]);
    if (status) {
      return fdb_fail(FDB_VALUE, "init function %s of %s on device %d returned %d", unit->init[i],
                      load->module->tables->module, load->device, status);
    }
  }
  return FDB_OK;
}

static enum fdb_code make_entry(const struct load *load, const struct fdb_specialization *specialization,
                                struct fdb_kernel *const *kernels, struct fdb_entry *entry) {
  for (uint32_t i = 0; i < specialization->entry_count; i++) {
    const struct fdb_entry_place *place = &specialization->entries[i];
    if (place->target != load->chosen || !load->handles[place->unit]) {
      continue;
    }
    void *symbol = dlsym(load->module->library, place->symbol);
    entry->kernels = calloc((size_t)place->kernel_count + 1, sizeof *entry->kernels);
    if (!symbol || !entry->kernels) {
      return fdb_fail(FDB_VALUE, "the launcher library has no symbol %s", place->symbol);
    }
    for (; entry->kernel_count < place->kernel_count; entry->kernel_count++) {
      entry->kernels[entry->kernel_count] = kernels[place->unit][place->kernels[entry->kernel_count]];
    }
    memcpy(&entry->function, &symbol, sizeof symbol);
    return FDB_OK;
  }
  return FDB_OK; // it was not built for this target
}

static void free_loaded(struct fdb_loaded *loaded) {
  for (uint32_t i = 0; loaded && i < loaded->entry_count; i++) {
    free(loaded->entries[i].kernels);
  }
  free(loaded);
}

static enum fdb_code load_all(struct load *load, struct fdb_kernel **kernels) {
  const struct fdb_tables *tables = load->module->tables;
  enum fdb_code failed = choose(load);
  uint32_t count = 0;
  for (uint32_t u = 0; !failed && u < tables->unit_count; u++) {
    const struct fdb_code_object *object = fdb_code_object_for(&tables->units[u], load->chosen);
    bool is_mine = object != NULL;
    if (!object || (failed = has_axes(load, &tables->units[u], &is_mine)) || !is_mine) {
      continue;
    }
    if (!(kernels[u] = calloc((size_t)object->kernel_count + 1, sizeof **kernels))) {
      return fdb_fail(FDB_VALUE, "out of memory");
    }
    failed = load_unit(load, u, kernels[u]);
    count++;
  }
  if (failed || !count) {
    return failed ? failed
                  : fdb_fail(FDB_VALUE, "%s: no code object is for %s and the axes of this machine", tables->module,
                             target_name(load));
  }
  struct fdb_loaded *loaded = calloc(1, sizeof *loaded + tables->specialization_count * sizeof *loaded->entries);
  if (!loaded) {
    return fdb_fail(FDB_VALUE, "out of memory");
  }
  loaded->generation = fdb_generation();
  loaded->device = load->device;
  snprintf(loaded->target, sizeof loaded->target, "%s", load->target);
  for (; !failed && loaded->entry_count < tables->specialization_count; loaded->entry_count++) {
    failed = make_entry(load, &tables->specializations[loaded->entry_count], kernels,
                        &loaded->entries[loaded->entry_count]);
  }
  for (uint32_t u = 0; !failed && u < tables->unit_count; u++) {
    failed = load->handles[u] ? run_inits(load, u) : FDB_OK;
  }
  if (failed) {
    free_loaded(loaded);
    return failed;
  }
  load->module->loaded[load->device] = loaded;
  return FDB_OK;
}

static enum fdb_code load_here(struct load *load) {
  uint32_t units = load->module->tables->unit_count;
  void *handles[units + 1];
  struct fdb_kernel *kernels[units + 1];
  memset(handles, 0, sizeof handles);
  memset(kernels, 0, sizeof kernels);
  load->handles = handles;
  enum fdb_code failed = load_all(load, kernels);
  for (uint32_t u = units; u-- > 0;) {
    free(kernels[u]);
    if (failed && handles[u]) {
      load->driver->unload(handles[u]); // the error on its way says more than one from here could
    }
  }
  return failed;
}

static const struct fdb_loaded *loaded_on(const struct fdb_module *module, int device) {
  const struct fdb_loaded *loaded = device >= 0 && device < FDB_MAX_DEVICES ? module->loaded[device] : NULL;
  return loaded && loaded->generation == fdb_generation() ? loaded : NULL;
}

enum fdb_code fdb_load_module(struct fdb_module *module, int device) {
  struct load load = {.module = module, .driver = fdb_driver(), .device = device};
  if (!load.driver || device < 0 || device >= load.driver->devices || device >= FDB_MAX_DEVICES) {
    return load.driver ? fdb_fail(FDB_VALUE, "there is no device %d; %s has %d", device, load.driver->name,
                                  load.driver->devices)
                       : fdb_fail(FDB_VALUE, "no driver is open");
  }
  if (loaded_on(module, device)) {
    return FDB_OK;
  }
  int current = device, error = load.driver->current_device(&current);
  if (error || (error = load.driver->set_device(device)) ||
      (error = load.driver->target(device, load.target, sizeof load.target))) {
    return fdb_fail_driver(load.driver, FDB_DRIVER, error, "device %d cannot be used", device);
  }
  enum fdb_code failed = load_here(&load);
  if (current != device && (error = load.driver->set_device(current)) && !failed) {
    failed = fdb_fail_driver(load.driver, FDB_DRIVER, error, "device %d cannot be made current again", current);
  }
  return failed;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

enum fdb_code fdb_call_module(const struct fdb_module *module, int device, const struct fdb_specialization *callee,
                              const struct fdb_value *values) {
  const struct fdb_loaded *loaded = loaded_on(module, device);
  const struct fdb_table *table = &callee->table;
  uint32_t position = (uint32_t)(callee - module->tables->specializations);
  if (!loaded || !loaded->entries[position].function) {
    return loaded ? fdb_fail(FDB_VALUE, "%s was not built for %s (device %d)", callee->name, loaded->target, device)
                  : fdb_fail(FDB_VALUE, "%s is not loaded on device %d", module->tables->module, device);
  }
  const struct fdb_driver *driver = fdb_driver();
  struct fdb_name_value names[table->name_count + 1];
  _Alignas(16) char block[table->block_size];
  void *slots[table->slot_count + 1];
  for (uint32_t i = 0; i < table->argument_count; i++) {
    if (table->arguments[i].kind == FDB_TENSOR && !values[i].tensor) {
      return fdb_fail(FDB_TYPE, "argument %s must be %s, got no tensor", table->arguments[i].label,
                      table->arguments[i].expected);
    }
  }
  int found = -1;
  bool host = false;
  enum fdb_code failed = fdb_check_and_pack(table, values, names, block, false);
  if (failed || (failed = fdb_find_device(driver, table, values, &found, &host)) ||
      (host && (failed = fdb_check_host_memory(driver, table, values, device)))) {
    return failed;
  }
  if (found >= 0 && found != device) {
    return fdb_fail(FDB_VALUE, "the tensors are on device %d, the call is on device %d", found, device);
  }
  fdb_point_slots(table, block, slots);
  return fdb_enter(driver, loaded, &loaded->entries[position], device, slots);
}
