// SPDX-License-Identifier: Apache-2.0
// The function that the host code of a launcher calls for each kernel.

#include "runtime.h"

#include <inttypes.h>

static enum fdb_code refuse(struct fdb_call *call, const struct fdb_kernel *kernel, const char *what,
                            const int64_t size[3], const char *rule) {
  return fdb_fail(FDB_LAUNCH, "launch of kernel %s on %s (device %d): %s (%" PRId64 ", %" PRId64 ", %" PRId64 ") %s",
                  kernel->symbol, call->loaded->target, call->loaded->device, what, size[0], size[1], size[2], rule);
}

static inline bool has_block(const struct fdb_kernel *kernel, const int64_t config[10]) {
  return config[3] == kernel->block[0] && config[4] == kernel->block[1] && config[5] == kernel->block[2];
}

// Says what is wrong with a launch that check_dims() refuses.
static enum fdb_code explain_dims(struct fdb_call *call, const struct fdb_kernel *kernel, const int64_t config[10]) {
  const int64_t *grid = config, *block = config + 3, *cluster = config + 6;
  bool wide = false; // such a block is what is wrong, whatever the grid is
  for (int d = 0; d < 3; d++) {
    wide |= block[d] > UINT16_MAX || block[d] > (int64_t)kernel->max_workgroup;
  }
  for (int d = 0; d < 3; d++) {
    if (grid[d] < 0) {
      return refuse(call, kernel, "grid", grid, "is negative");
    }
    if (block[d] <= 0) {
      return refuse(call, kernel, "block", block, "must be positive");
    }
    if (cluster[d] < 0 || cluster[d] > UINT16_MAX) {
      return refuse(call, kernel, "cluster", cluster, "is out of range");
    }
    // Both factors are below 2^32, so the product does not wrap.
    if (!wide && (grid[d] > UINT32_MAX || grid[d] * block[d] > UINT32_MAX)) {
      return refuse(call, kernel, "grid", grid, "times the block is more than 2^32 - 1 work-items in one dimension");
    }
  }
  if (config[9] < 0 || config[9] > INT32_MAX) {
    return fdb_fail(FDB_LAUNCH, "launch of kernel %s on %s (device %d): %" PRId64 " bytes of dynamic LDS",
                    kernel->symbol, call->loaded->target, call->loaded->device, config[9]);
  }
  if (kernel->block[0] && !has_block(kernel, config)) {
    return fdb_fail(FDB_LAUNCH,
                    "launch of kernel %s on %s (device %d): block (%" PRId64 ", %" PRId64 ", %" PRId64
                    ") is not the (%u, %u, %u) that the kernel was compiled for",
                    kernel->symbol, call->loaded->target, call->loaded->device, block[0], block[1], block[2],
                    kernel->block[0], kernel->block[1], kernel->block[2]);
  }
  return fdb_fail(FDB_LAUNCH,
                  "launch of kernel %s on %s (device %d): block (%" PRId64 ", %" PRId64 ", %" PRId64
                  ") has more work-items than the %u that the kernel was compiled for",
                  kernel->symbol, call->loaded->target, call->loaded->device, block[0], block[1], block[2],
                  kernel->max_workgroup);
}

static inline bool check_dims(const struct fdb_kernel *kernel, const int64_t config[10], struct fdb_dims *dims) {
  const uint64_t *grid = (const uint64_t *)config, *block = grid + 3, *cluster = grid + 6;
  // Negative numbers have high bits. The packet holds the grid in work-items, in 32 bits a dimension.
  uint64_t high = (grid[0] | grid[1] | grid[2]) >> 32 | (block[0] | block[1] | block[2]) >> 16 |
                  (cluster[0] | cluster[1] | cluster[2]) >> 16 | (uint64_t)config[9] >> 31;
  if (high) {
    return false;
  }
  uint64_t volume = block[0] * block[1] * block[2];
  for (int d = 0; d < 3; d++) {
    high |= grid[d] * block[d] >> 32;
    dims->grid[d] = (uint32_t)grid[d];
    dims->block[d] = (uint32_t)block[d];
    dims->cluster[d] = (uint32_t)cluster[d];
  }
  dims->dynamic_lds = (uint32_t)config[9];
  return !high && volume && volume <= kernel->max_workgroup && (!kernel->block[0] || has_block(kernel, config));
}

static enum fdb_code launch(struct fdb_call *call, int32_t index, const int64_t config[10], void **args, void *stream) {
  if (index < 0 || (uint32_t)index >= call->entry->kernel_count) {
    return fdb_fail(FDB_LAUNCH, "the launcher library asks for kernel %d of %u", index, call->entry->kernel_count);
  }
  const struct fdb_kernel *kernel = &call->entry->kernels[index];
  const struct fdb_driver *driver = call->driver;
  struct fdb_dims dims;
  if (!check_dims(kernel, config, &dims)) {
    return explain_dims(call, kernel, config);
  }
  // Launchers compute an empty grid for empty tensors, and the driver refuses one.
  if (!dims.grid[0] || !dims.grid[1] || !dims.grid[2]) {
    return FDB_OK;
  }
  bool clustered = dims.cluster[0] > 1 || dims.cluster[1] > 1 || dims.cluster[2] > 1;
  if (clustered && !driver->launch_cluster) {
    return fdb_fail(FDB_LAUNCH,
                    "launch of kernel %s on %s (device %d): a cluster of %ux%ux%u workgroups needs %s, which this "
                    "driver library does not have",
                    kernel->symbol, call->loaded->target, call->loaded->device, dims.cluster[0], dims.cluster[1],
                    dims.cluster[2], driver->cluster_entry);
  }
  // Without a request for more, the driver allows 64 KiB, which is less than the LDS of newer chips.
  if (dims.dynamic_lds > 65536 && driver->raise_lds_limit) {
    driver->raise_lds_limit(kernel->function, (int)dims.dynamic_lds);
  }
  int error = (clustered ? driver->launch_cluster : driver->launch)(kernel->function, &dims, stream, args);
  if (error) {
    return fdb_fail_driver(driver, FDB_LAUNCH, error,
                           "launch of kernel %s on %s (device %d), grid (%u, %u, %u), block (%u, %u, %u), %u bytes of "
                           "dynamic LDS",
                           kernel->symbol, call->loaded->target, call->loaded->device, dims.grid[0], dims.grid[1],
                           dims.grid[2], dims.block[0], dims.block[1], dims.block[2], dims.dynamic_lds);
  }
  return FDB_OK;
}

void fdb_launch(struct fdb_call *call, int32_t kernel, const int64_t config[10], void **args, int32_t count,
                void *stream) {
  (void)count;
  if (!call->status) {
    call->status = (int32_t)launch(call, kernel, config, args, stream);
  }
}

enum fdb_code fdb_enter(const struct fdb_driver *driver, const struct fdb_loaded *loaded, const struct fdb_entry *entry,
                        int device, void **slots) {
  struct fdb_call call = {.launch = fdb_launch, .driver = driver, .loaded = loaded, .entry = entry};
  int current = device, error = 0;
  if (driver->devices > 1) { // of a single device, there is nothing to ask
    if ((error = driver->current_device(&current))) {
      return fdb_fail_driver(driver, FDB_LAUNCH, error, "the current device is unknown");
    }
    if (device != current && (error = driver->set_device(device))) {
      return fdb_fail_driver(driver, FDB_LAUNCH, error, "device %d cannot be made current", device);
    }
  }
  int32_t returned = entry->function(&call, slots);
  if (device != current) {
    error = driver->set_device(current);
  }
  if (__builtin_expect(!(call.status | returned | error), 1)) {
    return FDB_OK;
  }
  if (call.status) { // the error is said
    return (enum fdb_code)call.status;
  }
  return returned ? fdb_fail(FDB_LAUNCH, "the launcher library returned %d", returned)
                  : fdb_fail_driver(driver, FDB_LAUNCH, error, "device %d cannot be made current again", current);
}
