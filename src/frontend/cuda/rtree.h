/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disjoint address ranges, ordered: find the one that holds an address, in O(log n). A treap whose priorities come from the
 * address itself, so that the shape does not depend on the order of insertion. Pure: no lock, no allocation; the
 * caller embeds the node and guards the tree.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct aq_rnode {
	struct aq_rnode *left, *right;
	uint64_t va;
	uint64_t size; /* > 0, and va + size does not wrap */
};

struct aq_rtree {
	struct aq_rnode *root;
	size_t count;
};

/* False, and nothing changed, when the range is empty, wraps or overlaps one that is there. */
bool aq_rtree_insert(struct aq_rtree *t, struct aq_rnode *node);

/* The node must be in the tree. */
void aq_rtree_remove(struct aq_rtree *t, struct aq_rnode *node);

/* The range that holds addr, or NULL. */
struct aq_rnode *aq_rtree_find(const struct aq_rtree *t, uint64_t addr);

/* The first range, by address, that reaches beyond addr (holds it or lies above it), or NULL. */
struct aq_rnode *aq_rtree_at_or_above(const struct aq_rtree *t, uint64_t addr);

/* Some range that overlaps [va, va + size), or NULL. */
struct aq_rnode *aq_rtree_overlap(const struct aq_rtree *t, uint64_t va, uint64_t size);
