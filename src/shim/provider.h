/* SPDX-License-Identifier: Apache-2.0 */
/* The library behind a stand-in. */
#pragma once

#include <stddef.h>

struct aq_err;

/* Open the library at `path` for this library alone (RTLD_LOCAL) and for good. Returns its handle or NULL. */
void *aq_provider_open(const char *path, struct aq_err *err);

/*
 * Look all names up and put what is found into slots[]; a name that the provider lacks gets `missing`. Returns how many were found.
 */
size_t aq_provider_resolve(void *handle, const char *const *names, size_t n, void *missing,
			   void **slots);
