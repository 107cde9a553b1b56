// SPDX-License-Identifier: Apache-2.0
// The last error of each thread, the driver of the process, and the count of forks.

#include "runtime.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct fdb_error last_error;
static _Atomic(const struct fdb_driver *) process_driver;
atomic_uint fdb_forks;

struct fdb_error *fdb_last_error(void) { return &last_error; }

static void record(enum fdb_code code, const char *format, va_list arguments) {
  last_error.code = code;
  last_error.driver_code = 0;
  last_error.name[0] = 0;
  vsnprintf(last_error.text, sizeof last_error.text, format, arguments);
}

enum fdb_code fdb_fail(enum fdb_code code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  record(code, format, arguments);
  va_end(arguments);
  return code;
}

enum fdb_code fdb_fail_driver(const struct fdb_driver *driver, enum fdb_code code, int driver_code, const char *format,
                              ...) {
  va_list arguments;
  va_start(arguments, format);
  record(code, format, arguments);
  va_end(arguments);
  const char *text = driver->error_text(driver_code);
  last_error.driver_code = driver_code;
  snprintf(last_error.name, sizeof last_error.name, "%s", driver->error_name(driver_code));
  size_t used = strlen(last_error.text);
  snprintf(last_error.text + used, sizeof last_error.text - used, ": %s (%s error %d%s%s)", last_error.name,
           driver->name, driver_code, *text ? ": " : "", text);
  return code;
}

const struct fdb_driver *fdb_driver(void) { return atomic_load_explicit(&process_driver, memory_order_acquire); }

void fdb_set_driver(const struct fdb_driver *driver) {
  atomic_store_explicit(&process_driver, driver, memory_order_release);
}

// The child has to initialise the driver and load its modules again.
static void in_child(void) {
  atomic_fetch_add_explicit(&fdb_forks, 1, memory_order_relaxed);
  atomic_store_explicit(&process_driver, NULL, memory_order_release);
}

int fdb_watch_forks(void) { return pthread_atfork(NULL, NULL, in_child); }
