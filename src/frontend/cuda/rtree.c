/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/cuda/rtree.h"

/* splitmix64's finaliser: neighbouring addresses get unrelated priorities. */
static uint64_t priority(const struct aq_rnode *n)
{
	uint64_t x = n->va + 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* Split by address: all below va to *left, the rest to *right. */
static void split(struct aq_rnode *n, uint64_t va, struct aq_rnode **left, struct aq_rnode **right)
{
	while (n) {
		if (n->va < va) {
			*left = n;
			left = &n->right;
			n = n->right;
		} else {
			*right = n;
			right = &n->left;
			n = n->left;
		}
	}
	*left = *right = NULL;
}

static struct aq_rnode *merge(struct aq_rnode *a, struct aq_rnode *b)
{
	struct aq_rnode *root = NULL, **at = &root;

	while (a && b) {
		if (priority(a) > priority(b)) {
			*at = a;
			at = &a->right;
			a = a->right;
		} else {
			*at = b;
			at = &b->left;
			b = b->left;
		}
	}
	*at = a ? a : b;
	return root;
}

bool aq_rtree_insert(struct aq_rtree *t, struct aq_rnode *node)
{
	struct aq_rnode **at = &t->root;
	uint64_t prio = priority(node);

	if (node->size == 0 || node->va + node->size < node->va ||
	    aq_rtree_overlap(t, node->va, node->size))
		return false;
	while (*at && priority(*at) >= prio)
		at = node->va < (*at)->va ? &(*at)->left : &(*at)->right;
	split(*at, node->va, &node->left, &node->right);
	*at = node;
	t->count++;
	return true;
}

void aq_rtree_remove(struct aq_rtree *t, struct aq_rnode *node)
{
	struct aq_rnode **at = &t->root;

	while (*at && *at != node)
		at = node->va < (*at)->va ? &(*at)->left : &(*at)->right;
	if (!*at)
		return;
	*at = merge(node->left, node->right);
	node->left = node->right = NULL;
	t->count--;
}

struct aq_rnode *aq_rtree_find(const struct aq_rtree *t, uint64_t addr)
{
	struct aq_rnode *n = aq_rtree_at_or_above(t, addr);

	return n && n->va <= addr ? n : NULL;
}

struct aq_rnode *aq_rtree_at_or_above(const struct aq_rtree *t, uint64_t addr)
{
	struct aq_rnode *n = t->root, *best = NULL;

	while (n) {
		/* The ranges are disjoint: their ends are in the same order as their beginnings. */
		if (n->va + (n->size - 1) >= addr) {
			best = n;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return best;
}

struct aq_rnode *aq_rtree_overlap(const struct aq_rtree *t, uint64_t va, uint64_t size)
{
	struct aq_rnode *n = aq_rtree_at_or_above(t, va);

	return n && size > 0 && n->va <= va + (size - 1) ? n : NULL;
}
