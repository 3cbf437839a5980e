/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/cuda/suballoc.h"

#include <stdlib.h>

/* How many blocks of the fitting bin are looked at before a bigger one is cut. */
#define SCAN 64

static unsigned bin_of(uint64_t size)
{
	return 63U - (unsigned)__builtin_clzll(size / AQ_SUB_ALIGN);
}

void aq_sub_init(struct aq_suballoc *s)
{
	*s = (struct aq_suballoc){ 0 };
	aq_list_init(&s->chunks);
	for (unsigned i = 0; i < AQ_SUB_BINS; i++)
		aq_list_init(&s->bin[i]);
}

static struct aq_sub_block *block_new(struct aq_sub_chunk *c, uint64_t va, uint64_t size)
{
	struct aq_sub_block *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->chunk = c;
	b->node.va = va;
	b->node.size = size;
	aq_list_init(&b->in_chunk);
	aq_list_init(&b->link);
	return b;
}

static void make_idle(struct aq_suballoc *s, struct aq_sub_block *b)
{
	b->state = AQ_SUB_IDLE;
	b->mark = NULL;
	b->chunk->idle_bytes += b->node.size;
	aq_list_push_front(&s->bin[bin_of(b->node.size)], &b->link);
}

static void leave_idle(struct aq_sub_block *b)
{
	b->chunk->idle_bytes -= b->node.size;
	aq_list_remove(&b->link);
}

static void make_used(struct aq_suballoc *s, struct aq_sub_block *b)
{
	b->state = AQ_SUB_USED;
	b->mark = NULL;
	(void)aq_rtree_insert(&s->used, &b->node);
}

struct aq_sub_chunk *aq_sub_chunk_add(struct aq_suballoc *s, uint64_t va, uint64_t size,
				      unsigned long long owner)
{
	struct aq_sub_chunk *c = calloc(1, sizeof(*c));
	struct aq_sub_block *b = c ? block_new(c, va, size) : NULL;

	if (!b) {
		free(c);
		return NULL;
	}
	c->va = va;
	c->size = size;
	c->owner = owner;
	aq_list_init(&c->blocks);
	aq_list_push_back(&c->blocks, &b->in_chunk);
	aq_list_push_back(&s->chunks, &c->link);
	s->reserved += size;
	make_idle(s, b);
	return c;
}

void aq_sub_chunk_remove(struct aq_suballoc *s, struct aq_sub_chunk *c)
{
	struct aq_sub_block *b = NULL, *tmp = NULL;

	aq_list_for_each_safe(b, tmp, &c->blocks, in_chunk) {
		if (b->state == AQ_SUB_USED)
			aq_rtree_remove(&s->used, &b->node);
		aq_list_remove(&b->link);
		free(b);
	}
	s->reserved -= c->size;
	aq_list_remove(&c->link);
	free(c);
}

/* Cut b to `size`; the rest comes behind it, in no state yet. False: no memory. */
static bool cut(struct aq_sub_block *b, uint64_t size, struct aq_sub_block **ret_rest)
{
	*ret_rest = NULL;
	if (b->node.size == size)
		return true;
	*ret_rest = block_new(b->chunk, b->node.va + size, b->node.size - size);
	if (!*ret_rest)
		return false;
	b->node.size = size;
	aq_list_insert_after(&b->in_chunk, &(*ret_rest)->in_chunk);
	return true;
}

static struct aq_sub_block *find_idle(struct aq_suballoc *s, uint64_t size)
{
	unsigned own = bin_of(size);
	struct aq_sub_block *b = NULL;
	int seen = 0;

	aq_list_for_each(b, &s->bin[own], link) {
		if (b->node.size >= size)
			return b;
		if (++seen == SCAN)
			break;
	}
	for (unsigned i = own + 1; i < AQ_SUB_BINS; i++) {
		if (!aq_list_is_empty(&s->bin[i]))
			return aq_list_entry(s->bin[i].next, struct aq_sub_block, link);
	}
	aq_list_for_each(b, &s->bin[own], link) {
		if (b->node.size >= size)
			return b;
	}
	return NULL;
}

struct aq_sub_block *aq_sub_take(struct aq_suballoc *s, uint64_t size)
{
	struct aq_sub_block *b = find_idle(s, size), *rest = NULL;

	if (!b)
		return NULL;
	leave_idle(b);
	if (!cut(b, size, &rest)) {
		make_idle(s, b);
		return NULL;
	}
	if (rest)
		make_idle(s, rest);
	make_used(s, b);
	return b;
}

bool aq_sub_revive(struct aq_suballoc *s, struct aq_sub_block *b, uint64_t size,
		   struct aq_sub_block **ret_rest)
{
	if (!cut(b, size, ret_rest))
		return false;
	if (*ret_rest) {
		(*ret_rest)->state = AQ_SUB_PENDING;
		(*ret_rest)->mark = b->mark;
	}
	make_used(s, b);
	return true;
}

struct aq_sub_block *aq_sub_find(const struct aq_suballoc *s, uint64_t va)
{
	struct aq_rnode *n = aq_rtree_find(&s->used, va);

	return n && n->va == va ? aq_container_of(n, struct aq_sub_block, node) : NULL;
}

void aq_sub_pend(struct aq_suballoc *s, struct aq_sub_block *b, void *mark)
{
	aq_rtree_remove(&s->used, &b->node);
	b->state = AQ_SUB_PENDING;
	b->mark = mark;
}

/* Join `b` with the block behind it, if that is idle. */
static void join_next(struct aq_sub_block *b)
{
	struct aq_sub_block *n = NULL;

	if (b->in_chunk.next == &b->chunk->blocks)
		return;
	n = aq_list_entry(b->in_chunk.next, struct aq_sub_block, in_chunk);
	if (n->state != AQ_SUB_IDLE)
		return;
	leave_idle(n);
	aq_list_remove(&n->in_chunk);
	b->node.size += n->node.size;
	free(n);
}

void aq_sub_release(struct aq_suballoc *s, struct aq_sub_block *b)
{
	struct aq_sub_block *p = NULL;

	if (b->state == AQ_SUB_USED)
		aq_rtree_remove(&s->used, &b->node);
	b->state = AQ_SUB_USED; /* not to be taken for idle by its neighbours meanwhile */
	join_next(b);
	if (b->in_chunk.prev != &b->chunk->blocks) {
		p = aq_list_entry(b->in_chunk.prev, struct aq_sub_block, in_chunk);
		if (p->state == AQ_SUB_IDLE) {
			leave_idle(p);
			p->node.size += b->node.size;
			aq_list_remove(&b->in_chunk);
			free(b);
			b = p;
		}
	}
	make_idle(s, b);
}
