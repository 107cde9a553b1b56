// SPDX-License-Identifier: Apache-2.0
// Ties dlopen and its siblings to their first version. glibc 2.34 moved them into libc under a new version, and a
// library that is linked there would not load on the older systems whose wheel tag it could have.

#ifndef FLYDSL_GLIBC_SYMBOLS_H
#define FLYDSL_GLIBC_SYMBOLS_H

#include <dlfcn.h>

#if defined(__x86_64__) && defined(__GLIBC__)
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver dlclose,dlclose@GLIBC_2.2.5");
__asm__(".symver dlerror,dlerror@GLIBC_2.2.5");
#endif

#endif
