/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process holds, by address (or handle): O(1), flat to hundreds of thousands of entries. Striped: two threads meet only by chance.
 * Memory comes from mmap() when a stripe doubles, never from malloc(), which may be the very program that is calling us.
 */
#pragma once

#include "shim/lock.h"

#include <stdbool.h>
#include <stdint.h>

enum aq_range_kind {
	AQ_RANGE_LINEAR = 1, /* freed by address, charged by itself */
	AQ_RANGE_POOLED,     /* out of a pool: `owner` is its index; the pool is what is charged */
	AQ_RANGE_ARRAY,	     /* by handle; `owner` is the context */
	AQ_RANGE_MIPMAP,
};

struct aq_range {
	uint64_t key; /* address or handle; 0 marks an empty place */
	uint64_t size;
	uint64_t owner;
	uint16_t kind; /* enum aq_range_kind */
	int16_t card;  /* index in the control page */
	uint32_t reserved;
};

#define AQ_RANGE_STRIPES 64U

struct aq_ranges {
	struct aq_range_stripe {
		struct aq_lock lock;
		uint32_t used;
		uint32_t mask; /* places - 1 */
		struct aq_range *place;
	} stripe[AQ_RANGE_STRIPES];
};

/*
 * Remember an entry (key != 0). When the key is known already, the old entry is given back in ret_old (true): the provider gave the same address
 * again, so what was there is gone. Returns 0 or -ENOMEM.
 */
int aq_ranges_insert(struct aq_ranges *r, const struct aq_range *entry, struct aq_range *ret_old,
		     bool *ret_replaced);

/* Take an entry out. Returns whether there was one. */
bool aq_ranges_take(struct aq_ranges *r, uint64_t key, struct aq_range *ret);

/* Look at an entry. */
bool aq_ranges_find(struct aq_ranges *r, uint64_t key, struct aq_range *ret);

/*
 * A copy of the entries of one stripe, for walks over everything; what comes and goes meanwhile may be missed. NULL: nothing there, or no memory.
 * Give it back with aq_ranges_drop().
 */
struct aq_range *aq_ranges_copy(struct aq_ranges *r, unsigned stripe, uint32_t *ret_n);
void aq_ranges_drop(struct aq_range *copy, uint32_t n);

uint64_t aq_ranges_count(struct aq_ranges *r);

/* Forget everything and unlock every lock: in a forked child, which has nothing. */
void aq_ranges_reset(struct aq_ranges *r);
