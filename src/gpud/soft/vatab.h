/* SPDX-License-Identifier: Apache-2.0 */
/* Disjoint address ranges, sorted, each with an object: lookup by binary search. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct aq_va_entry {
	uint64_t base, end; /* [base, end) */
	void *object;
};

struct aq_vatab {
	struct aq_va_entry *entry;
	size_t n, cap;
};

/* The entry that holds va, or NULL. Valid until the next change. */
struct aq_va_entry *aq_vatab_find(const struct aq_vatab *t, uint64_t va);
/* The index of the first entry that ends above va; n when none does. */
size_t aq_vatab_first(const struct aq_vatab *t, uint64_t va);
/* Returns 0, -EEXIST when it would overlap, -ENOMEM. */
int aq_vatab_insert(struct aq_vatab *t, uint64_t base, uint64_t end, void *object);
/* Remove the entry that begins at base; its object, or NULL. */
void *aq_vatab_remove(struct aq_vatab *t, uint64_t base);
void aq_vatab_done(struct aq_vatab *t);

/* Free address space: a list of extents, first fit. */
struct aq_vafree {
	struct aq_vatab free;
};

int aq_vafree_init(struct aq_vafree *f, uint64_t base, uint64_t end);
/* A range of `size` at a multiple of `align` (power of two); at `hint` when that is free. Returns 0 or -ENOMEM. */
int aq_vafree_take(struct aq_vafree *f, uint64_t size, uint64_t align, uint64_t hint,
		   uint64_t *ret_va);
/* Give back what was taken. */
void aq_vafree_give(struct aq_vafree *f, uint64_t va, uint64_t size);
void aq_vafree_done(struct aq_vafree *f);
