// SPDX-License-Identifier: Apache-2.0
// A stand-in libamdhip64 for tests: it loads code objects as HIP does, keeps device globals, and writes down each
// launch with the bytes of its kernel arguments. Nothing is run. Failures can be ordered.
//
// Environment: FAKE_HIP_TARGETS: target IDs, one a device, comma-separated; empty: no device. FAKE_HIP_NULL=1: a launch
// returns at once. FAKE_HIP_FREE=1: an unload frees the memory. FAKE_HIP_LOG: a file that gets a line for each call of
// an entry point, also of calls at exit. FAKE_HIP_PAGEABLE=0: devices read no pageable memory.
// Build variants: -DFAKE_HIP_OLD (HIP 5: old properties only, hipStreamGetDevice not yet there), -DFAKE_HIP_NO_CLUSTER,
// -DFAKE_HIP_NO_ATTRIBUTES, -DFAKE_HIP_BROKEN (a required symbol is missing).

#define _GNU_SOURCE
#include <elf.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ARGS = 64, MAX_KERNELS = 64, MAX_FAILURES = 16, MAX_STREAMS = 16, MAX_MEMORIES = 16 };

struct kernel {
  char name[256];
  struct module *module;
  unsigned kernarg_size, max_workgroup, arg_count;
  unsigned arg_size[MAX_ARGS];
};

struct module {
  int device;
  pid_t process;
  char *memory;
  const Elf64_Sym *symbols;
  const char *names;
  size_t symbol_count;
  unsigned kernel_count;
  struct kernel kernels[MAX_KERNELS];
  char target[128];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *events;
static size_t events_used, events_size;
static _Atomic int null_launch = -1;
static pid_t initialised;
static _Thread_local int current_device;
static void *capturing_stream = (void *)-1;
static struct {
  void *handle;
  int device;
} streams[MAX_STREAMS];
static struct {
  const char *address;
  size_t size;
  int type;
} memories[MAX_MEMORIES];
static _Thread_local int last_error;
static struct {
  char name[64];
  int code, skip;
} failures[MAX_FAILURES];

static _Atomic int failures_left; // a call with none ordered costs next to nothing, as benchmarks need

// ---- control, for tests ---------------------------------------------------------------------------------------------

static void event(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void event(const char *format, ...) {
  va_list arguments;
  pthread_mutex_lock(&lock);
  for (;;) {
    va_start(arguments, format);
    int count = vsnprintf(events ? events + events_used : NULL, events_size - events_used, format, arguments);
    va_end(arguments);
    if (events_used + (size_t)count + 1 <= events_size) {
      events_used += (size_t)count;
      break;
    }
    events_size = 2 * (events_used + (size_t)count + 1);
    events = realloc(events, events_size);
  }
  pthread_mutex_unlock(&lock);
}

const char *fake_hip_events(void) { return events ? events : ""; }
void fake_hip_clear(void) {
  pthread_mutex_lock(&lock);
  events_used = 0;
  if (events) {
    events[0] = 0;
  }
  pthread_mutex_unlock(&lock);
}
void fake_hip_capture(void *stream) { capturing_stream = stream; }
void fake_hip_null(int on) { null_launch = on; }
// Each recorded launch calls `function` and writes down what it returns; NULL: none.
static int (*probe)(void);
void fake_hip_probe(int (*function)(void)) { probe = function; }
// Makes `handle` a stream of a device; all other handles are unknown to hipStreamGetDevice.
void fake_hip_stream(void *handle, int device) {
  for (int i = 0; i < MAX_STREAMS; i++) {
    if (!streams[i].handle || streams[i].handle == handle) {
      streams[i].handle = handle;
      streams[i].device = device;
      return;
    }
  }
  abort();
}
// Makes memory known to HIP, of a number of hipMemoryType; all other memory is pageable.
void fake_hip_memory(const void *address, size_t size, int type) {
  for (int i = 0; i < MAX_MEMORIES; i++) {
    if (!memories[i].size) {
      memories[i].address = address;
      memories[i].size = size;
      memories[i].type = type;
      return;
    }
  }
  abort();
}
// The next call of `name`, after `skip` others, returns `code`.
void fake_hip_fail(const char *name, int code, int skip) {
  for (int i = 0; i < MAX_FAILURES; i++) {
    if (!failures[i].name[0]) {
      snprintf(failures[i].name, sizeof failures[i].name, "%s", name);
      failures[i].code = code;
      failures[i].skip = skip;
      failures_left++;
      return;
    }
  }
  abort();
}

// To a file, because nobody can ask a process after its end.
static void log_call(const char *name) {
  static _Atomic int wanted = -1;
  if (wanted < 0) {
    wanted = getenv("FAKE_HIP_LOG") != NULL;
  }
  FILE *file = wanted ? fopen(getenv("FAKE_HIP_LOG"), "a") : NULL;
  if (file) {
    fprintf(file, "%d %s\n", getpid(), name);
    fclose(file);
  }
}

// As HIP does, remembers what a thread was last told.
static int failed(int code) { return last_error = code; }

static int ordered(const char *name) {
  log_call(name);
  if (!failures_left) {
    return 0;
  }
  for (int i = 0; i < MAX_FAILURES; i++) {
    if (failures[i].name[0] && !strcmp(failures[i].name, name)) {
      if (failures[i].skip-- == 0) {
        failures[i].name[0] = 0;
        failures_left--;
        return failures[i].code;
      }
    }
  }
  return 0;
}

#define ORDERED()                                                                                                      \
  do {                                                                                                                 \
    int code = ordered(__func__);                                                                                      \
    if (code) {                                                                                                        \
      return failed(code);                                                                                             \
    }                                                                                                                  \
  } while (0)

// ---- devices --------------------------------------------------------------------------------------------------------

static int device_total(void) {
  static _Atomic int total = -1;
  if (total < 0) {
    const char *targets = getenv("FAKE_HIP_TARGETS");
    int count = targets && *targets;
    for (; targets && *targets; targets++) {
      count += *targets == ',';
    }
    total = count;
  }
  return total;
}

static void target_of(int device, char *out, size_t size) {
  const char *targets = getenv("FAKE_HIP_TARGETS");
  for (; device > 0; device--) {
    targets = strchr(targets, ',') + 1;
  }
  snprintf(out, size, "%.*s", (int)strcspn(targets, ","), targets);
}

int hipInit(unsigned flags) {
  (void)flags;
  ORDERED();
  event("{\"event\": \"init\"}\n");
  initialised = getpid();
  return device_total() ? 0 : failed(100);
}

int hipGetDeviceCount(int *count) {
  ORDERED();
  *count = device_total();
  return *count ? 0 : failed(100);
}

int hipGetDevice(int *device) {
  ORDERED();
  *device = current_device;
  return device_total() ? 0 : failed(100);
}

int hipSetDevice(int device) {
  ORDERED();
  if (device < 0 || device >= device_total()) {
    return failed(101);
  }
  event("{\"event\": \"set_device\", \"device\": %d}\n", device);
  current_device = device;
  return 0;
}

static int properties(void *out, int device, size_t size, size_t offset) {
  if (device < 0 || device >= device_total()) {
    return failed(101);
  }
  memset(out, 0, size);
  target_of(device, (char *)out + offset, 256);
  return 0;
}

#ifndef FAKE_HIP_OLD
int hipGetDevicePropertiesR0600(void *out, int device) {
  ORDERED();
  return properties(out, device, 1472, 1160);
}
#endif
int hipGetDeviceProperties(void *out, int device) {
  ORDERED();
  return properties(out, device, 792, 396);
}

// ---- code objects ---------------------------------------------------------------------------------------------------

static const char *const generics[][8] = {
    {"gfx9-4-generic", "gfx942", "gfx950"},
    {"gfx10-3-generic", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"},
    {"gfx11-generic", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151"},
    {"gfx12-generic", "gfx1200", "gfx1201"},
};

static bool chip_runs(const char *code, size_t code_length, const char *device, size_t device_length) {
  if (code_length == device_length && !memcmp(code, device, code_length)) {
    return true;
  }
  for (size_t i = 0; i < sizeof generics / sizeof *generics; i++) {
    if (strlen(generics[i][0]) == code_length && !memcmp(generics[i][0], code, code_length)) {
      for (int c = 1; c < 8 && generics[i][c]; c++) {
        if (strlen(generics[i][c]) == device_length && !memcmp(generics[i][c], device, device_length)) {
          return true;
        }
      }
    }
  }
  return false;
}

static bool compatible(const char *code, const char *device) {
  size_t code_length = strcspn(code, ":"), device_length = strcspn(device, ":");
  if (!chip_runs(code, code_length, device, device_length)) {
    return false;
  }
  for (const char *feature = code + code_length; *feature;) {
    size_t length = 1 + strcspn(feature + 1, ":");
    char opposite[32];
    snprintf(opposite, sizeof opposite, "%.*s", (int)length, feature);
    opposite[length - 1] = opposite[length - 1] == '+' ? '-' : '+';
    if (strstr(device, opposite)) {
      return false;
    }
    feature += length;
  }
  return true;
}

// Just enough of msgpack to walk the metadata of a code object. https://github.com/msgpack/msgpack/blob/master/spec.md
struct reader {
  const uint8_t *at, *end;
};

static uint64_t big_endian(struct reader *in, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes && in->at < in->end; i++) {
    value = value << 8 | *in->at++;
  }
  return value;
}

enum { NUMBER, TEXT, ARRAY, MAP, OTHER };
struct item {
  int kind;
  uint64_t number; // the value, the length or the count
  const char *text;
};

static struct item next(struct reader *in) {
  if (in->at >= in->end) {
    return (struct item){OTHER, 0, NULL};
  }
  uint8_t tag = *in->at++;
  struct item item = {NUMBER, tag, NULL};
  if (tag < 0x80 || tag >= 0xe0) {
    return item;
  }
  if ((tag & 0xf0) == 0x80 || tag == 0xde || tag == 0xdf) {
    item.kind = MAP;
    item.number = tag == 0xde ? big_endian(in, 2) : tag == 0xdf ? big_endian(in, 4) : tag & 15U;
  } else if ((tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd) {
    item.kind = ARRAY;
    item.number = tag == 0xdc ? big_endian(in, 2) : tag == 0xdd ? big_endian(in, 4) : tag & 15U;
  } else if ((tag & 0xe0) == 0xa0 || (tag >= 0xd9 && tag <= 0xdb)) {
    item.kind = TEXT;
    item.number = (tag & 0xe0) == 0xa0 ? tag & 31U : big_endian(in, 1 << (tag - 0xd9));
    item.text = (const char *)in->at;
    in->at += item.number;
  } else if (tag >= 0xcc && tag <= 0xcf) {
    item.number = big_endian(in, 1 << (tag - 0xcc));
  } else if (tag >= 0xd0 && tag <= 0xd3) {
    item.number = big_endian(in, 1 << (tag - 0xd0));
  } else {
    item.kind = OTHER;
  }
  return item;
}

static void skip(struct reader *in) {
  struct item item = next(in);
  uint64_t count = item.kind == MAP ? 2 * item.number : item.kind == ARRAY ? item.number : 0;
  while (count-- && in->at < in->end) {
    skip(in);
  }
}

static bool is(const struct item *item, const char *text) {
  return item->kind == TEXT && item->number == strlen(text) && !memcmp(item->text, text, strlen(text));
}

static void copy_text(char *out, size_t size, const struct item *item) {
  snprintf(out, size, "%.*s", (int)item->number, item->text ? item->text : "");
}

static void read_arguments(struct reader *in, struct kernel *kernel) {
  uint64_t count = next(in).number;
  for (uint64_t i = 0; i < count; i++) {
    unsigned size = 0;
    bool hidden = false;
    for (uint64_t pairs = next(in).number; pairs; pairs--) {
      struct item key = next(in);
      if (is(&key, ".size")) {
        size = (unsigned)next(in).number;
      } else if (is(&key, ".value_kind")) {
        struct item kind = next(in);
        hidden = kind.number >= 6 && !memcmp(kind.text, "hidden", 6);
      } else {
        skip(in);
      }
    }
    if (!hidden && kernel->arg_count < MAX_ARGS) {
      kernel->arg_size[kernel->arg_count++] = size;
    }
  }
}

static void read_kernel(struct reader *in, struct module *module) {
  struct kernel *kernel = &module->kernels[module->kernel_count++];
  kernel->module = module;
  for (uint64_t pairs = next(in).number; pairs; pairs--) {
    struct item key = next(in);
    if (is(&key, ".name")) {
      struct item name = next(in);
      copy_text(kernel->name, sizeof kernel->name, &name);
    } else if (is(&key, ".kernarg_segment_size")) {
      kernel->kernarg_size = (unsigned)next(in).number;
    } else if (is(&key, ".max_flat_workgroup_size")) {
      kernel->max_workgroup = (unsigned)next(in).number;
    } else if (is(&key, ".args")) {
      read_arguments(in, kernel);
    } else {
      skip(in);
    }
  }
}

static void read_metadata(struct reader *in, struct module *module) {
  for (uint64_t pairs = next(in).number; pairs; pairs--) {
    struct item key = next(in);
    if (is(&key, "amdhsa.target")) {
      struct item target = next(in);
      char text[128];
      copy_text(text, sizeof text, &target);
      // The environment of the triple stands between the system and the target: empty, or "unknown" with newer LLVM.
      const char *environment = strstr(text, "amdhsa-");
      const char *dash = environment ? strchr(environment + 7, '-') : NULL;
      snprintf(module->target, sizeof module->target, "%s", dash ? dash + 1 : text);
    } else if (is(&key, "amdhsa.kernels")) {
      for (uint64_t count = next(in).number; count && module->kernel_count < MAX_KERNELS; count--) {
        read_kernel(in, module);
      }
    } else {
      skip(in);
    }
  }
}

static const void *pick_from_bundle(const char *image, const char *device) {
  uint64_t count;
  memcpy(&count, image + 24, 8);
  const char *at = image + 32, *generic = NULL;
  for (; count; count--) {
    uint64_t entry[3];
    memcpy(entry, at, sizeof entry);
    char id[128];
    snprintf(id, sizeof id, "%.*s", (int)entry[2], at + 24);
    at += 24 + entry[2];
    const char *dashes = strstr(id, "amdhsa--");
    if (dashes && entry[1] && compatible(dashes + 8, device)) {
      if (!strstr(dashes, "generic")) {
        return image + entry[0];
      }
      generic = image + entry[0];
    }
  }
  return generic;
}

static int read_elf(struct module *module, const char *image) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
  const Elf64_Phdr *segments = (const Elf64_Phdr *)(image + header->e_phoff);
  size_t size = 0;
  for (int i = 0; i < header->e_phnum; i++) {
    size_t end = segments[i].p_vaddr + segments[i].p_memsz;
    if (segments[i].p_type == PT_LOAD && end > size) {
      size = end;
    }
  }
  module->memory = calloc(1, size + 1);
  for (int i = 0; i < header->e_phnum; i++) {
    const Elf64_Phdr *segment = &segments[i];
    if (segment->p_type == PT_LOAD) {
      memcpy(module->memory + segment->p_vaddr, image + segment->p_offset, segment->p_filesz);
    } else if (segment->p_type == PT_NOTE) {
      const Elf64_Nhdr *note = (const Elf64_Nhdr *)(image + segment->p_offset);
      const uint8_t *text = (const uint8_t *)(note + 1) + ((note->n_namesz + 3U) & ~3U);
      struct reader in = {text, text + note->n_descsz};
      read_metadata(&in, module);
    }
  }
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + header->e_shoff);
  for (int i = 0; i < header->e_shnum; i++) {
    if (sections[i].sh_type == SHT_DYNSYM) {
      // The caller may free its image: keep copies of the symbols and their names.
      const Elf64_Shdr *names = &sections[sections[i].sh_link];
      char *copy = malloc(sections[i].sh_size + names->sh_size + 1);
      memcpy(copy, image + sections[i].sh_offset, sections[i].sh_size);
      memcpy(copy + sections[i].sh_size, image + names->sh_offset, names->sh_size);
      module->symbols = (const Elf64_Sym *)copy;
      module->names = copy + sections[i].sh_size;
      module->symbol_count = sections[i].sh_size / sizeof(Elf64_Sym);
    }
  }
  for (size_t i = 1; i < module->symbol_count; i++) {
    if (module->symbols[i].st_shndx == SHN_UNDEF && ELF64_ST_BIND(module->symbols[i].st_info) != STB_WEAK) {
      return failed(302);
    }
  }
  return 0;
}

int hipModuleLoadData(void **out, const void *image) {
  *out = (void *)0xbad; // a failed load of HIP's can leave a garbage handle
  ORDERED();
  if (initialised != getpid()) {
    return failed(303);
  }
  if (capturing_stream != (void *)-1) {
    return failed(900);
  }
  char device[256];
  target_of(current_device, device, sizeof device);
  if (!memcmp(image, "__CLANG_OFFLOAD_BUNDLE__", 24) && !(image = pick_from_bundle(image, device))) {
    return failed(209);
  }
  const Elf64_Ehdr *header = image;
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_machine != 224) {
    return failed(200);
  }
  struct module *module = calloc(1, sizeof *module);
  module->device = current_device;
  module->process = getpid();
  int error = read_elf(module, image);
  if (!error && !compatible(module->target, device)) {
    error = 209;
  }
  if (error) {
    return failed(error);
  }
  event("{\"event\": \"load\", \"device\": %d, \"target\": \"%s\", \"module\": %llu}\n", current_device, module->target,
        (unsigned long long)(uintptr_t)module);
  *out = module;
  return 0;
}

int hipModuleUnload(void *handle) {
  ORDERED();
  struct module *module = handle;
  if (!module || module->process != getpid()) {
    return failed(400);
  }
  event("{\"event\": \"unload\", \"module\": %llu}\n", (unsigned long long)(uintptr_t)module);
  module->process = 0;
  if (getenv("FAKE_HIP_FREE")) { // else a use after the unload is an error that tests see
    free(module->memory);
    free((void *)module->symbols);
    free(module);
  }
  return 0;
}

int hipModuleGetFunction(void **out, void *handle, const char *name) {
  ORDERED();
  struct module *module = handle;
  if (module->process != getpid()) {
    return failed(400);
  }
  for (unsigned i = 0; i < module->kernel_count; i++) {
    if (!strcmp(module->kernels[i].name, name)) {
      *out = &module->kernels[i];
      return 0;
    }
  }
  return failed(500);
}

int hipModuleGetGlobal(void **address, size_t *size, void *handle, const char *name) {
  ORDERED();
  struct module *module = handle;
  for (size_t i = 1; i < module->symbol_count; i++) {
    const Elf64_Sym *symbol = &module->symbols[i];
    if (!strcmp(module->names + symbol->st_name, name)) {
      *address = module->memory + symbol->st_value;
      *size = symbol->st_size;
      return 0;
    }
  }
  return failed(500);
}

int hipMemcpyHtoD(void *address, void *source, size_t size) {
  ORDERED();
  memcpy(address, source, size);
  event("{\"event\": \"copy\", \"size\": %zu}\n", size);
  return 0;
}

// ---- launches -------------------------------------------------------------------------------------------------------

static int record(void *function, const unsigned *dims, const unsigned *cluster, unsigned lds, void *stream,
                  void **args) {
  struct kernel *kernel = function;
  if (kernel->module->process != getpid() || kernel->module->device != current_device) {
    return failed(400);
  }
  uint64_t threads = (uint64_t)dims[3] * dims[4] * dims[5];
  if (!dims[0] || !dims[1] || !dims[2] || !threads) {
    return failed(9);
  }
  if (threads > kernel->max_workgroup) {
    return failed(1);
  }
  char text[16384];
  size_t used = 0;
  for (unsigned i = 0; i < kernel->arg_count; i++) {
    used += (size_t)snprintf(text + used, sizeof text - used, "%s\"", i ? ", " : "");
    for (unsigned b = 0; b < kernel->arg_size[i] && used + 8 < sizeof text; b++) {
      used += (size_t)snprintf(text + used, sizeof text - used, "%02x", ((unsigned char *)args[i])[b]);
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "\"");
  }
  text[used] = 0;
  char probed[32] = "";
  if (probe) {
    snprintf(probed, sizeof probed, ", \"probe\": %d", probe());
  }
  event("{\"event\": \"launch\", \"kernel\": \"%s\", \"device\": %d, \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], "
        "\"cluster\": [%u, %u, %u], \"lds\": %u, \"stream\": %llu, \"args\": [%s]%s}\n",
        kernel->name, current_device, dims[0], dims[1], dims[2], dims[3], dims[4], dims[5], cluster[0], cluster[1],
        cluster[2], lds, (unsigned long long)(uintptr_t)stream, text, probed);
  return 0;
}

#ifndef FAKE_HIP_BROKEN
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned lds, void *stream, void **args, void **extra) {
  (void)extra;
  if (null_launch < 0) {
    null_launch = getenv("FAKE_HIP_NULL") != NULL;
  }
  if (null_launch) {
    return 0;
  }
  ORDERED();
  const unsigned dims[6] = {gx, gy, gz, bx, by, bz}, cluster[3] = {0, 0, 0};
  return record(function, dims, cluster, lds, stream, args);
}
#endif

#ifndef FAKE_HIP_NO_CLUSTER
struct attribute {
  int id, pad;
  unsigned value[16];
};
struct config {
  unsigned dims[6], lds;
  void *stream;
  struct attribute *attributes;
  unsigned attribute_count;
};
int hipDrvLaunchKernelEx(const struct config *config, void *function, void **args, void **extra) {
  (void)extra;
  ORDERED();
  if (config->attribute_count != 1 || config->attributes->id != 4) {
    return failed(1);
  }
  return record(function, config->dims, config->attributes->value, config->lds, config->stream, args);
}
#endif

int hipFuncSetAttribute(const void *function, int attribute, int value) {
  (void)function;
  ORDERED();
  event("{\"event\": \"attribute\", \"attribute\": %d, \"value\": %d}\n", attribute, value);
  return 0;
}

int hipStreamIsCapturing(void *stream, int *status) {
  ORDERED();
  if (!stream && capturing_stream != (void *)-1) {
    return failed(906);
  }
  *status = stream == capturing_stream;
  return 0;
}

/* What FlyDSL's own run time calls beside the above, so that its launches can be compared with ours. */
const char *hipGetErrorName(int code) {
  static _Thread_local char name[32];
  snprintf(name, sizeof name, "fake error %d", code);
  return name;
}

int hipGetLastError(void) {
  int error = last_error;
  last_error = 0;
  return error;
}

#ifndef FAKE_HIP_NO_ATTRIBUTES
int hipDeviceGetAttribute(int *value, int attribute, int device) {
  ORDERED();
  event("{\"event\": \"device_attribute\", \"attribute\": %d, \"device\": %d}\n", attribute, device);
  const char *pageable = getenv("FAKE_HIP_PAGEABLE");
  *value = attribute == 65 && (!pageable || strcmp(pageable, "0") != 0);
  return 0;
}

int hipPointerGetAttributes(void *out, const void *address) {
  ORDERED();
  event("{\"event\": \"pointer_attributes\"}\n");
  memset(out, 0, 40);
  for (int i = 0; i < MAX_MEMORIES; i++) {
    if ((uintptr_t)address - (uintptr_t)memories[i].address < memories[i].size) {
      memcpy(out, &memories[i].type, sizeof memories[i].type);
      return 0;
    }
  }
#ifdef FAKE_HIP_OLD
  return failed(1);
#else
  return 0;
#endif
}
#endif

#ifndef FAKE_HIP_OLD
int hipStreamGetDevice(void *stream, int *device) {
  ORDERED();
  event("{\"event\": \"stream_device\", \"stream\": %llu}\n", (unsigned long long)(uintptr_t)stream);
  for (int i = 0; i < MAX_STREAMS; i++) {
    if (streams[i].handle && streams[i].handle == stream) {
      *device = streams[i].device;
      return 0;
    }
  }
  return failed(400);
}
#endif
