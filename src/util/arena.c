/* SPDX-License-Identifier: Apache-2.0 */
#include "util/arena.h"

#include "base/macro.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_MIN   (4 * AQ_KIB)
#define CHUNK_MAX   (256 * AQ_KIB)
#define ARENA_ALIGN 16

struct aq_arena_chunk {
	struct aq_arena_chunk *next;
	void *adopted; /* memory taken over, else NULL */
	size_t fill, cap;
	_Alignas(ARENA_ALIGN) unsigned char data[];
};

static bool fits_limit(const struct aq_arena *a, size_t size)
{
	return !a->limit || (a->used <= a->limit && size <= a->limit - a->used);
}

/* calloc, so that a large object costs only the pages that are touched. */
static struct aq_arena_chunk *new_chunk(size_t cap)
{
	struct aq_arena_chunk *c = calloc(1, sizeof(*c) + cap);

	if (c)
		c->cap = cap;
	return c;
}

void *aq_arena_alloc(struct aq_arena *a, size_t size)
{
	struct aq_arena_chunk *c = a->chunks;
	size_t cap;
	void *ret;

	if (size > SIZE_MAX / 2 || !fits_limit(a, size))
		return NULL;
	size = aq_align_up(size ? size : 1, ARENA_ALIGN);
	if (!c || c->cap - c->fill < size) {
		cap = AQ_MIN(AQ_MAX(c ? c->cap * 2 : CHUNK_MIN, CHUNK_MIN), CHUNK_MAX);
		c = new_chunk(AQ_MAX(cap, size));
		if (!c)
			return NULL;
		if (size > cap / 4 && a->chunks) {
			/* A large object does not end the chunk that is being filled. */
			c->next = a->chunks->next;
			a->chunks->next = c;
		} else {
			c->next = a->chunks;
			a->chunks = c;
		}
	}
	ret = c->data + c->fill;
	c->fill += size;
	a->used += size;
	return ret;
}

void *aq_arena_calloc(struct aq_arena *a, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		return NULL;
	return aq_arena_alloc(a, bytes);
}

void *aq_arena_memdup(struct aq_arena *a, const void *from, size_t size)
{
	void *ret = aq_arena_alloc(a, size);

	if (ret && size)
		memcpy(ret, from, size);
	return ret;
}

char *aq_arena_strndup(struct aq_arena *a, const char *text, size_t len)
{
	char *ret = len < SIZE_MAX ? aq_arena_alloc(a, len + 1) : NULL;

	if (ret && len)
		memcpy(ret, text, len);
	return ret;
}

int aq_arena_adopt(struct aq_arena *a, void *ptr, size_t size)
{
	struct aq_arena_chunk *c;

	if (!fits_limit(a, size))
		return -ENOMEM;
	c = new_chunk(0);
	if (!c)
		return -ENOMEM;
	c->adopted = ptr;
	if (a->chunks) {
		c->next = a->chunks->next;
		a->chunks->next = c;
	} else {
		a->chunks = c;
	}
	a->used += size;
	return 0;
}

void aq_arena_done(struct aq_arena *a)
{
	struct aq_arena_chunk *c = a->chunks;

	while (c) {
		struct aq_arena_chunk *next = c->next;

		free(c->adopted);
		free(c);
		c = next;
	}
	*a = (struct aq_arena){ .limit = a->limit };
}
