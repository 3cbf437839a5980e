/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that moved from libdl and libpthread into libc with glibc 2.34, bound to the versions that they have had since 2.2.5 (x86-64) and
 * 2.17 (arm64): the libraries load on both sides of the move. They are linked against libdl.so.2 and libpthread.so.0 by name, which
 * newer systems keep as empty shells.
 */
#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#if defined(__x86_64__)
#	define AQ_OLD_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#	define AQ_OLD_GLIBC "GLIBC_2.17"
#endif

#if defined(__GLIBC__) && defined(AQ_OLD_GLIBC)
__asm__(".symver dlopen, dlopen@" AQ_OLD_GLIBC);
__asm__(".symver dlsym, dlsym@" AQ_OLD_GLIBC);
__asm__(".symver dlerror, dlerror@" AQ_OLD_GLIBC);
__asm__(".symver pthread_create, pthread_create@" AQ_OLD_GLIBC);
__asm__(".symver pthread_detach, pthread_detach@" AQ_OLD_GLIBC);
__asm__(".symver pthread_sigmask, pthread_sigmask@" AQ_OLD_GLIBC);
#endif
