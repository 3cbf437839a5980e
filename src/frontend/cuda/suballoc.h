/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cutting chunks of address space into blocks: what a stream-ordered pool needs, without its streams. Pure: no lock, no server. A block is
 * used, idle, or pending: freed, but not yet known to be out of use. Idle neighbours are joined; pending ones are left alone.
 */
#pragma once

#include "frontend/cuda/rtree.h"
#include "util/list.h"

#define AQ_SUB_ALIGN 512U
#define AQ_SUB_BINS  48U

enum aq_sub_state {
	AQ_SUB_IDLE,
	AQ_SUB_USED,
	AQ_SUB_PENDING
};

struct aq_sub_chunk {
	struct aq_list link;   /* in the suballocator */
	struct aq_list blocks; /* by address */
	uint64_t va, size;
	uint64_t idle_bytes;
	unsigned long long owner; /* the caller's */
};

struct aq_sub_block {
	struct aq_rnode node; /* address and size; in `used` while it is used */
	struct aq_sub_chunk *chunk;
	struct aq_list in_chunk;
	struct aq_list link; /* idle: in a bin; pending: in the caller's queue */
	enum aq_sub_state state;
	void *mark; /* pending: the caller's */
};

struct aq_suballoc {
	struct aq_list chunks;
	struct aq_list bin[AQ_SUB_BINS];
	struct aq_rtree used;
	uint64_t reserved; /* bytes of all chunks */
};

void aq_sub_init(struct aq_suballoc *s);

/* A new chunk, all idle. Aligned to AQ_SUB_ALIGN. NULL: no memory. */
struct aq_sub_chunk *aq_sub_chunk_add(struct aq_suballoc *s, uint64_t va, uint64_t size,
				      unsigned long long owner);

/* Forget a chunk with all its blocks; pending ones are taken out of their queues by the caller before. */
void aq_sub_chunk_remove(struct aq_suballoc *s, struct aq_sub_chunk *c);

static inline bool aq_sub_chunk_is_idle(const struct aq_sub_chunk *c)
{
	return c->idle_bytes == c->size;
}

/* A used block of exactly `size` bytes (a multiple of AQ_SUB_ALIGN) from what is idle, or NULL. */
struct aq_sub_block *aq_sub_take(struct aq_suballoc *s, uint64_t size);

/*
 * Make a pending block used again, cut to `size`. *ret_rest is what is left of it, pending with the same mark and not yet linked anywhere, or NULL. The
 * block must be big enough, and is in no queue any more. False: no memory, nothing changed.
 */
bool aq_sub_revive(struct aq_suballoc *s, struct aq_sub_block *b, uint64_t size,
		   struct aq_sub_block **ret_rest);

/* The used block that begins at va, or NULL. */
struct aq_sub_block *aq_sub_find(const struct aq_suballoc *s, uint64_t va);

/* Used -> pending. The caller links it into a queue. */
void aq_sub_pend(struct aq_suballoc *s, struct aq_sub_block *b, void *mark);

/* Used, or pending and unlinked -> idle. The block may be joined with others: the pointer is dead. */
void aq_sub_release(struct aq_suballoc *s, struct aq_sub_block *b);
