/* SPDX-License-Identifier: Apache-2.0 */
#include "caching.h"

#define ROUND	    512UL
#define SMALL_MAX   MIB
#define SMALL_CHUNK (2 * MIB)
#define LARGE_MIN   (10 * MIB)
#define LARGE_CHUNK (20 * MIB)

enum state {
	IDLE,
	USED,
	UNMAPPED, /* address space of an expandable segment with nothing behind it */
};

/* All blocks of all segments lie in one list, those of a segment behind each other in order of address. */
struct block {
	struct block *prev, *next;
	struct segment *segment;
	CUdeviceptr va;
	uint64_t size;
	enum state state;
};

struct segment {
	struct segment *next;
	CUstream stream;
	unsigned pool;
	bool small;
	CUdeviceptr va;
	uint64_t size;
	uint64_t chunk;			       /* 0: one piece, by cuMemAlloc */
	CUmemGenericAllocationHandle *handles; /* of the chunks; 0: none */
};

struct caching {
	CUdevice dev;
	bool expandable;
	struct block blocks; /* head */
	struct segment *segments;
	struct caching_stats stats;
};

struct caching *caching_new(CUdevice dev, bool expandable)
{
	struct caching *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->dev = dev;
	c->expandable = expandable;
	c->blocks.prev = c->blocks.next = &c->blocks;
	return c;
}

const struct caching_stats *caching_stats(const struct caching *c)
{
	return &c->stats;
}

/* ---- blocks ---- */

static struct block *block_add(struct block *after, struct segment *s, CUdeviceptr va,
			       uint64_t size, enum state state)
{
	struct block *b = calloc(1, sizeof(*b));

	if (!b)
		abort();
	*b = (struct block){ after, after->next, s, va, size, state };
	b->next->prev = b;
	after->next = b;
	return b;
}

static void block_remove(struct block *b)
{
	b->prev->next = b->next;
	b->next->prev = b->prev;
	free(b);
}

/* Cut b behind its first bytes. Returns the rest. */
static struct block *block_cut(struct block *b, uint64_t bytes)
{
	struct block *rest = block_add(b, b->segment, b->va + bytes, b->size - bytes, b->state);

	b->size = bytes;
	return rest;
}

/* One block out of those of a segment that touch and are in the same state. Returns the one that b is in now. */
static struct block *block_merge(struct block *b)
{
	if (b->next->segment == b->segment && b->next->state == b->state) {
		b->size += b->next->size;
		block_remove(b->next);
	}
	if (b->prev->segment == b->segment && b->prev->state == b->state) {
		b = b->prev;
		b->size += b->next->size;
		block_remove(b->next);
	}
	return b;
}

static bool serves(const struct segment *s, bool small, CUstream stream, unsigned pool)
{
	return s && s->small == small && s->stream == stream && s->pool == pool;
}

/* The smallest idle block that is large enough. */
static struct block *best_fit(struct caching *c, uint64_t size, bool small, CUstream stream,
			      unsigned pool)
{
	struct block *best = NULL;

	for (struct block *b = c->blocks.next; b != &c->blocks; b = b->next) {
		if (b->state == IDLE && b->size >= size &&
		    serves(b->segment, small, stream, pool) && (!best || b->size < best->size))
			best = b;
	}
	return best;
}

/* ---- segments of one piece ---- */

static struct segment *segment_add(struct caching *c, CUstream stream, unsigned pool, bool small,
				   CUdeviceptr va, uint64_t size)
{
	struct segment *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	*s = (struct segment){ c->segments, stream, pool, small, va, size, 0, NULL };
	c->segments = s;
	return s;
}

static void segment_remove(struct caching *c, struct segment *s)
{
	struct segment **at = &c->segments;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(s->handles);
	free(s);
}

static CUresult piece_new(struct caching *c, uint64_t size, bool small, CUstream stream,
			  unsigned pool, struct block **ret)
{
	uint64_t bytes = small ? SMALL_CHUNK : size < LARGE_MIN ? LARGE_CHUNK : (size + G - 1) & -G;
	CUdeviceptr va = 0;
	CUresult rc = cuMemAlloc_v2(&va, bytes);

	if (rc != CUDA_SUCCESS)
		return rc;
	*ret = block_add(c->blocks.prev, segment_add(c, stream, pool, small, va, bytes), va, bytes,
			 IDLE);
	c->stats.reserved += bytes;
	c->stats.segments++;
	return CUDA_SUCCESS;
}

/* ---- expandable segments ---- */

/* Map memory behind n chunks of a segment. On an error what was got is given back: all or nothing. */
static CUresult chunks_map(struct caching *c, struct segment *s, size_t first, size_t n)
{
	CUmemAllocationProp prop = wl_on_card(c->dev);
	CUresult rc = CUDA_SUCCESS;
	size_t i = first;

	for (; i < first + n && rc == CUDA_SUCCESS; i++)
		rc = cuMemCreate(&s->handles[i], s->chunk, &prop, 0);
	if (rc != CUDA_SUCCESS) {
		s->handles[--i] = 0;
		while (i-- > first) {
			OK(cuMemRelease(s->handles[i]));
			s->handles[i] = 0;
		}
		return rc;
	}
	for (i = first; i < first + n; i++)
		OK(cuMemMap(s->va + i * s->chunk, s->chunk, 0, s->handles[i], 0));
	OK(wl_allow(s->va + first * s->chunk, n * s->chunk, c->dev));
	c->stats.reserved += n * s->chunk;
	c->stats.segments++;
	return CUDA_SUCCESS;
}

static void chunks_unmap(struct caching *c, struct segment *s, size_t first, size_t n)
{
	OK(cuStreamSynchronize(s->stream));
	for (size_t i = first; i < first + n; i++) {
		OK(cuMemUnmap(s->va + i * s->chunk, s->chunk));
		OK(cuMemRelease(s->handles[i]));
		s->handles[i] = 0;
	}
	c->stats.reserved -= n * s->chunk;
}

static struct block *expandable_new(struct caching *c, bool small, CUstream stream, unsigned pool)
{
	uint64_t chunk = small ? SMALL_CHUNK : LARGE_CHUNK;
	uint64_t n = wl_total() / 8 * 9 / chunk + 1;
	CUdeviceptr va = 0;
	struct segment *s;

	OK(cuMemAddressReserve(&va, n * chunk, 0, 0, 0));
	s = segment_add(c, stream, pool, small, va, n * chunk);
	s->chunk = chunk;
	s->handles = calloc(n, sizeof(*s->handles));
	if (!s->handles)
		abort();
	return block_add(c->blocks.prev, s, va, n * chunk, UNMAPPED);
}

/* Address space without memory that, with the idle block before it, is large enough. */
static struct block *unmapped_fit(struct caching *c, uint64_t size, bool small, CUstream stream,
				  unsigned pool, uint64_t *ret_before)
{
	for (struct block *b = c->blocks.next; b != &c->blocks; b = b->next) {
		uint64_t before = 0;

		if (b->state != UNMAPPED || !serves(b->segment, small, stream, pool))
			continue;
		if (b->prev->segment == b->segment && b->prev->state == IDLE)
			before = b->prev->size;
		if (before + b->size >= size) {
			*ret_before = before;
			return b;
		}
	}
	*ret_before = 0;
	return NULL;
}

static CUresult expand(struct caching *c, uint64_t size, bool small, CUstream stream, unsigned pool,
		       struct block **ret)
{
	uint64_t before = 0;
	struct block *b = unmapped_fit(c, size, small, stream, pool, &before);
	struct segment *s;
	uint64_t bytes;
	CUresult rc;

	if (!b)
		b = expandable_new(c, small, stream, pool);
	s = b->segment;
	if (before + b->size < size)
		return CUDA_ERROR_OUT_OF_MEMORY; /* more than any card of this size has */
	bytes = (size - before + s->chunk - 1) / s->chunk * s->chunk;
	rc = chunks_map(c, s, (b->va - s->va) / s->chunk, bytes / s->chunk);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (b->size > bytes)
		(void)block_cut(b, bytes);
	b->state = IDLE;
	*ret = block_merge(b);
	return CUDA_SUCCESS;
}

/* Unmap the whole chunks in an idle block. Returns the last block that came of it. */
static struct block *contract(struct caching *c, struct block *b)
{
	struct segment *s = b->segment;
	uint64_t first = (b->va - s->va + s->chunk - 1) / s->chunk;
	uint64_t end = (b->va + b->size - s->va) / s->chunk;
	uint64_t head = s->va + first * s->chunk - b->va;

	if (end <= first)
		return b;
	chunks_unmap(c, s, first, end - first);
	if (head)
		b = block_cut(b, head);
	if (b->size > (end - first) * s->chunk)
		(void)block_cut(b, (end - first) * s->chunk);
	b->state = UNMAPPED;
	return block_merge(b);
}

/* ---- the allocator ---- */

void caching_empty(struct caching *c, unsigned pool)
{
	OK(cuCtxSynchronize());
	for (struct block *b = c->blocks.next, *next; b != &c->blocks; b = next) {
		struct segment *s = b->segment;

		next = b->next;
		if (b->state != IDLE || s->pool != pool)
			continue;
		if (s->chunk) {
			next = contract(c, b)->next;
		} else if (b->size == s->size) {
			OK(cuMemFree_v2(s->va));
			c->stats.reserved -= s->size;
			block_remove(b);
			segment_remove(c, s);
		}
	}
}

static CUresult grow(struct caching *c, uint64_t size, bool small, CUstream stream, unsigned pool,
		     struct block **ret)
{
	return c->expandable ? expand(c, size, small, stream, pool, ret)
			     : piece_new(c, size, small, stream, pool, ret);
}

CUresult caching_alloc(struct caching *c, size_t size, CUstream stream, unsigned pool,
		       CUdeviceptr *ret)
{
	uint64_t rounded = size < ROUND ? ROUND : (size + ROUND - 1) & -ROUND;
	bool small = rounded <= SMALL_MAX;
	struct block *b = best_fit(c, rounded, small, stream, pool);
	CUresult rc = CUDA_SUCCESS;

	if (!b)
		rc = grow(c, rounded, small, stream, pool, &b);
	if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
		c->stats.retries++;
		caching_empty(c, 0);
		rc = grow(c, rounded, small, stream, pool, &b);
	}
	if (rc != CUDA_SUCCESS) {
		c->stats.ooms++;
		return rc;
	}
	if (small || c->expandable ? b->size - rounded >= ROUND : b->size - rounded > SMALL_MAX)
		(void)block_cut(b, rounded);
	b->state = USED;
	c->stats.allocated += b->size;
	if (c->stats.allocated > c->stats.peak)
		c->stats.peak = c->stats.allocated;
	*ret = b->va;
	return CUDA_SUCCESS;
}

void caching_release(struct caching *c, CUdeviceptr p)
{
	struct block *b = c->blocks.next;

	while (b != &c->blocks && (b->va != p || b->state != USED))
		b = b->next;
	if (b == &c->blocks)
		abort();
	c->stats.allocated -= b->size;
	b->state = IDLE;
	(void)block_merge(b);
}

int caching_done(struct caching *c)
{
	int wrong;

	OK(cuCtxSynchronize());
	while (c->blocks.next != &c->blocks)
		block_remove(c->blocks.next);
	while (c->segments) {
		struct segment *s = c->segments;

		for (size_t i = 0; s->chunk && i < s->size / s->chunk; i++)
			if (s->handles[i])
				chunks_unmap(c, s, i, 1);
		if (s->chunk)
			OK(cuMemAddressFree(s->va, s->size));
		else
			OK(cuMemFree_v2(s->va));
		segment_remove(c, s);
	}
	free(c);
	wrong = e2e_failures;
	e2e_failures = 0;
	return wrong;
}
