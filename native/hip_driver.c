// SPDX-License-Identifier: Apache-2.0
// The driver table for AMD's HIP, filled from libamdhip64 by dlopen. The only file that knows HIP.

#include "flydsl_runtime.h"
#include "glibc_symbols.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// https://rocm.docs.amd.com/projects/HIP/en/latest/doxygen/html/group___global_defs.html
static const struct {
  int code;
  const char *name;
} error_names[] = {
    {0, "hipSuccess"},
    {1, "hipErrorInvalidValue"},
    {2, "hipErrorOutOfMemory"},
    {3, "hipErrorNotInitialized"},
    {4, "hipErrorDeinitialized"},
    {9, "hipErrorInvalidConfiguration"},
    {17, "hipErrorInvalidDevicePointer"},
    {35, "hipErrorInsufficientDriver"},
    {98, "hipErrorInvalidDeviceFunction"},
    {100, "hipErrorNoDevice"},
    {101, "hipErrorInvalidDevice"},
    {200, "hipErrorInvalidImage"},
    {201, "hipErrorInvalidContext"},
    {209, "hipErrorNoBinaryForGpu"},
    {218, "hipErrorInvalidKernelFile"},
    {300, "hipErrorInvalidSource"},
    {301, "hipErrorFileNotFound"},
    {302, "hipErrorSharedObjectSymbolNotFound"},
    {303, "hipErrorSharedObjectInitFailed"},
    {304, "hipErrorOperatingSystem"},
    {400, "hipErrorInvalidHandle"},
    {401, "hipErrorIllegalState"},
    {500, "hipErrorNotFound"},
    {600, "hipErrorNotReady"},
    {700, "hipErrorIllegalAddress"},
    {701, "hipErrorLaunchOutOfResources"},
    {702, "hipErrorLaunchTimeOut"},
    {709, "hipErrorContextIsDestroyed"},
    {719, "hipErrorLaunchFailure"},
    {720, "hipErrorCooperativeLaunchTooLarge"},
    {801, "hipErrorNotSupported"},
    {900, "hipErrorStreamCaptureUnsupported"},
    {901, "hipErrorStreamCaptureInvalidated"},
    {906, "hipErrorStreamCaptureImplicit"},
    {999, "hipErrorUnknown"},
};

// hipDeviceProp_t has two layouts. From HIP 6 on there is an entry point for each; before, there was only the old one.
enum { PROPERTIES_SIZE = 8192, TARGET_OFFSET_R0600 = 1160, TARGET_OFFSET_R0000 = 396, TARGET_SIZE = 256 };

struct launch_attribute {
  uint32_t id, pad;
  union {
    uint32_t dims[3];
    char bytes[64];
  } value;
};

struct launch_config {
  uint32_t grid[3], block[3], dynamic_lds;
  void *stream;
  struct launch_attribute *attributes;
  uint32_t attribute_count;
};

struct pointer_attributes {
  int type, device;
  void *device_pointer, *host_pointer;
  int managed;
  unsigned flags;
  char room[64]; // for what a later release adds
};

enum { DEVICE_PAGEABLE_MEMORY_ACCESS = 65, MEMORY_UNREGISTERED = 0, INVALID_VALUE = 1 };
enum { ATTRIBUTE_CLUSTER_DIMENSION = 4, FUNCTION_MAX_DYNAMIC_LDS = 8 };
enum { OUT_OF_MEMORY = 2, NO_DEVICE = 100, CAPTURE_IMPLICIT = 906 };

static struct {
  int (*init)(unsigned);
  int (*device_count)(int *);
  int (*get_device)(int *);
  int (*set_device)(int);
  int (*properties_r0600)(void *, int);
  int (*properties_r0000)(void *, int);
  int (*load_data)(void **, const void *);
  int (*unload)(void *);
  int (*get_function)(void **, void *, const char *);
  int (*get_global)(void **, size_t *, void *, const char *);
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
  int (*launch_ex)(const struct launch_config *, void *, void **, void **);
  int (*set_attribute)(const void *, int, int);
  int (*copy_to_device)(void *, void *, size_t);
  int (*is_capturing)(void *, int *);
  int (*stream_device)(void *, int *);
  int (*device_attribute)(int *, int, int);
  int (*pointer_attributes)(struct pointer_attributes *, const void *);
  int (*last_error)(void);
  const char *(*error_name)(int);
  const char *(*error_text)(int);
} hip;

static const struct {
  const char *name;
  size_t offset;
  bool required;
} entry_points[] = {
#define ENTRY(name, field, required) {name, offsetof(__typeof__(hip), field), required}
    ENTRY("hipInit", init, true),
    ENTRY("hipGetDeviceCount", device_count, true),
    ENTRY("hipGetDevice", get_device, true),
    ENTRY("hipSetDevice", set_device, true),
    ENTRY("hipGetDevicePropertiesR0600", properties_r0600, false),
    ENTRY("hipGetDeviceProperties", properties_r0000, false),
    ENTRY("hipModuleLoadData", load_data, true),
    ENTRY("hipModuleUnload", unload, true),
    ENTRY("hipModuleGetFunction", get_function, true),
    ENTRY("hipModuleGetGlobal", get_global, true),
    ENTRY("hipModuleLaunchKernel", launch, true),
    ENTRY("hipDrvLaunchKernelEx", launch_ex, false),
    ENTRY("hipFuncSetAttribute", set_attribute, false),
    ENTRY("hipMemcpyHtoD", copy_to_device, true),
    ENTRY("hipStreamIsCapturing", is_capturing, false),
    ENTRY("hipStreamGetDevice", stream_device, false),
    ENTRY("hipDeviceGetAttribute", device_attribute, false),
    ENTRY("hipPointerGetAttributes", pointer_attributes, false),
    ENTRY("hipGetLastError", last_error, false),
    ENTRY("hipGetErrorName", error_name, false),
    ENTRY("hipGetErrorString", error_text, false),
#undef ENTRY
};

// A thread's last error stays until somebody asks for it: the next to ask, such as torch after a launch of its own, would
// take for its own what is answered or reported here.
// https://rocm.docs.amd.com/projects/HIP/en/latest/hip-7-changes.html
static int handled(int error) {
  if (error && hip.last_error) {
    hip.last_error();
  }
  return error;
}

static int device_count(int *count) { return handled(hip.device_count(count)); }

static int current_device(int *device) { return handled(hip.get_device(device)); }

static int set_device(int device) { return handled(hip.set_device(device)); }

static int target(int device, char *text, size_t size) {
  // The structure grows from release to release; the room is several times what any release has written.
  char *properties = calloc(1, PROPERTIES_SIZE);
  if (!properties) {
    return OUT_OF_MEMORY;
  }
  bool new_layout = hip.properties_r0600 != NULL;
  int error = (new_layout ? hip.properties_r0600 : hip.properties_r0000)(properties, device);
  if (!error) {
    const char *name = properties + (new_layout ? TARGET_OFFSET_R0600 : TARGET_OFFSET_R0000);
    snprintf(text, size, "%.*s", (int)strnlen(name, TARGET_SIZE), name);
  }
  free(properties);
  return handled(error);
}

static int load(void **module, const void *image) {
  *module = NULL;
  int error = handled(hip.load_data(module, image));
  if (error) {
    *module = NULL; // a failed load can leave a garbage handle
  }
  return error;
}

static int unload(void *module) { return handled(hip.unload(module)); }

static int function(void **found, void *module, const char *name) {
  return handled(hip.get_function(found, module, name));
}

static int global(void **address, size_t *size, void *module, const char *name) {
  return handled(hip.get_global(address, size, module, name));
}

static int launch(void *function, const struct fdr_dims *dims, void *stream, void **args) {
  return handled(hip.launch(function, dims->grid[0], dims->grid[1], dims->grid[2], dims->block[0], dims->block[1],
                            dims->block[2], dims->dynamic_lds, stream, args, NULL));
}

static int launch_cluster(void *function, const struct fdr_dims *dims, void *stream, void **args) {
  struct launch_attribute attribute = {.id = ATTRIBUTE_CLUSTER_DIMENSION};
  struct launch_config config = {.dynamic_lds = dims->dynamic_lds, .stream = stream};
  for (int d = 0; d < 3; d++) {
    attribute.value.dims[d] = dims->cluster[d] ? dims->cluster[d] : 1;
    config.grid[d] = dims->grid[d];
    config.block[d] = dims->block[d];
  }
  config.attributes = &attribute;
  config.attribute_count = 1;
  return handled(hip.launch_ex(&config, function, args, NULL));
}

static int raise_lds_limit(void *function, int bytes) {
  return handled(hip.set_attribute(function, FUNCTION_MAX_DYNAMIC_LDS, bytes));
}

static int copy_to_device(void *address, const void *source, size_t size) {
  return handled(hip.copy_to_device(address, (void *)source, size));
}

static int stream_capturing(void *stream, int *capturing) {
  int error = handled(hip.is_capturing(stream, capturing));
  // HIP refuses the question for the null stream while any other stream captures, which is an answer too.
  if (error == CAPTURE_IMPLICIT) {
    *capturing = 1;
    return 0;
  }
  return error;
}

enum { LAST_SPECIAL_STREAM = 2 }; // the null stream, hipStreamLegacy, hipStreamPerThread: of whatever device is current

static int stream_device(void *stream, int *device) {
  *device = -1;
  return (uintptr_t)stream <= LAST_SPECIAL_STREAM ? 0 : handled(hip.stream_device(stream, device));
}

// Whether a device reads all host memory, of which HIP is asked once.
static bool reads_pageable(int device) {
  static atomic_uchar known[FDR_MAX_DEVICES]; // 0: not asked yet; 1: no; 2: yes
  unsigned char answer = atomic_load_explicit(&known[device], memory_order_relaxed);
  if (!answer) {
    int value = 0, error = handled(hip.device_attribute(&value, DEVICE_PAGEABLE_MEMORY_ACCESS, device));
    answer = !error && value ? 2 : 1;
    atomic_store_explicit(&known[device], answer, memory_order_relaxed);
  }
  return answer == 2;
}

static bool reads_host(int device, const void *address) {
  struct pointer_attributes attributes = {.type = -1};
  if (reads_pageable(device)) {
    return true;
  }
  int error = handled(hip.pointer_attributes(&attributes, address));
  if (error) {
    return error != INVALID_VALUE; // HIP 5's answer to memory that it does not know
  }
  return !hip.properties_r0600 || attributes.type != MEMORY_UNREGISTERED; // HIP 5 has this number for pinned memory
}

static const char *error_name(int code) {
  for (size_t i = 0; i < sizeof error_names / sizeof *error_names; i++) {
    if (error_names[i].code == code) {
      return error_names[i].name;
    }
  }
  const char *name = hip.error_name ? hip.error_name(code) : NULL;
  return name ? name : "hipErrorUnknown";
}

static const char *error_text(int code) {
  const char *text = hip.error_text ? hip.error_text(code) : NULL;
  return text && strcmp(text, error_name(code)) ? text : "";
}

static struct fdr_driver table = {
    .name = "HIP",
    .cluster_entry = "hipDrvLaunchKernelEx",
    // torch says CUDA for AMD's devices too, depending on its version.
    .device_types = 1U << FDR_DL_CUDA | 1U << FDR_DL_ROCM,
    .host_types = 1U << FDR_DL_CPU | 1U << FDR_DL_CUDA_HOST | 1U << FDR_DL_ROCM_HOST | 1U << FDR_DL_CUDA_MANAGED,
    .device_count = device_count,
    .current_device = current_device,
    .set_device = set_device,
    .target = target,
    .load = load,
    .unload = unload,
    .function = function,
    .global = global,
    .launch = launch,
    .copy_to_device = copy_to_device,
    .error_name = error_name,
    .error_text = error_text,
};

enum fdr_code fdr_open_hip(const char *path, bool mapped_only, const struct fdr_driver **driver) {
  // Once HIP has been initialised, the handle is never closed: HIP does not survive being unmapped.
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | (mapped_only ? RTLD_NOLOAD : 0));
  if (!library) {
    const char *why = dlerror();
    return fdr_fail(FDR_DRIVER, "%s", mapped_only ? "is not mapped into this process" : why ? why : "cannot be opened");
  }
  for (size_t i = 0; i < sizeof entry_points / sizeof *entry_points; i++) {
    void *symbol = dlsym(library, entry_points[i].name);
    if (!symbol && entry_points[i].required) {
      dlclose(library); // or it would count as the copy that the process already has
      return fdr_fail(FDR_DRIVER, "%s has no symbol %s", path, entry_points[i].name);
    }
    memcpy((char *)&hip + entry_points[i].offset, &symbol, sizeof symbol);
  }
  if (!hip.properties_r0600 && !hip.properties_r0000) {
    dlclose(library);
    return fdr_fail(FDR_DRIVER, "%s has no symbol hipGetDeviceProperties", path);
  }
  table.launch_cluster = hip.launch_ex ? launch_cluster : NULL;
  table.raise_lds_limit = hip.set_attribute ? raise_lds_limit : NULL;
  table.stream_capturing = hip.is_capturing ? stream_capturing : NULL;
  table.stream_device = hip.stream_device ? stream_device : NULL;
  table.reads_host = hip.device_attribute && hip.pointer_attributes ? reads_host : NULL;
  // Without it, hipModuleLoadData can fail with error 303.
  int error = handled(hip.init(0));
  if (error) {
    return fdr_fail_driver(&table, FDR_DRIVER, error, "hipInit of %s", path);
  }
  int count = 0;
  error = device_count(&count);
  if (error || count < 1) {
    return fdr_fail_driver(&table, FDR_DRIVER, error ? error : NO_DEVICE, "hipGetDeviceCount of %s", path);
  }
  table.devices = count;
  *driver = &table;
  return FDR_OK;
}
