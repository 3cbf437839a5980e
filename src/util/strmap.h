/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash map from strings to pointers. Zero-initialised is empty. Keys are borrowed: they live as long as the map. The hash is keyed with a random seed, so
 * that chosen names cannot make it slow. Not thread-safe.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct aq_strmap_slot;

struct aq_strmap {
	struct aq_strmap_slot *slots;
	size_t n_slots; /* 0 or a power of two */
	size_t n;
	uint64_t seed;
};

/* The value, or NULL when the key is not in the map. */
void *aq_strmap_get(const struct aq_strmap *m, const char *key, size_t len);
/* Add or replace; `value` is not NULL. Returns 0 or -ENOMEM. */
int aq_strmap_put(struct aq_strmap *m, const char *key, size_t len, void *value);
void aq_strmap_done(struct aq_strmap *m);
