/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is given back all at once. Zero-initialised is empty; set `limit` to bound the sum of what is handed out. Not thread-safe. */
#pragma once

#include <stddef.h>

struct aq_arena_chunk;

struct aq_arena {
	struct aq_arena_chunk *chunks;
	size_t used;  /* bytes handed out or adopted */
	size_t limit; /* 0: no bound */
};

/* Zeroed memory aligned to 16; never NULL for size 0. NULL when memory or the limit is exhausted. */
void *aq_arena_alloc(struct aq_arena *a, size_t size);
/* The same for `n` objects of `size` bytes; NULL also when the product overflows. */
void *aq_arena_calloc(struct aq_arena *a, size_t n, size_t size);
void *aq_arena_memdup(struct aq_arena *a, const void *from, size_t size);
/* A copy with a NUL behind it. */
char *aq_arena_strndup(struct aq_arena *a, const char *text, size_t len);
/*
 * Take over `ptr`, which came from malloc() and holds `size` bytes: free()d with the arena. Returns 0, or -ENOMEM, and then the caller keeps it.
 */
int aq_arena_adopt(struct aq_arena *a, void *ptr, size_t size);
/* Give everything back; the arena is empty and may be used again. */
void aq_arena_done(struct aq_arena *a);
