/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations. Small device allocations share slabs of 2 MiB, one set a session and card, as real drivers do; everything else has a segment of its own.
 * The card is charged for a slab when it comes into being, and for a large allocation in steps of 2 MiB.
 */
#include "base/cleanup.h"
#include "base/macro.h"
#include "gpud/soft/soft.h"

#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES     (2 * AQ_MIB)
#define SLAB_MAX_ALLOC (1 * AQ_MIB) /* smaller ones go into slabs */
#define GRANULE	       256ULL
#define SLAB_GRANULES  (SLAB_BYTES / GRANULE)
#define DEVICE_STEP    (2 * AQ_MIB)
#define MANAGED_STEP   (64 * AQ_KIB)
#define HOST_STEP      (4 * AQ_KIB)
#define MAX_ALLOC      (1ULL << 46)

struct aq_slab {
	struct aq_list link; /* in the session's slabs or full_slabs */
	uint64_t va;
	uint32_t card;
	uint32_t n_free;
	uint32_t first_free; /* no free granule below it */
	uint32_t too_big;    /* so many in a row were not found, and nothing has been freed since */
	uint64_t used[SLAB_GRANULES / 64];
};

/* ---- ranges ---- */

/* Give `seg` (reference taken over, on failure too) an address. */
static enum aq_status add_range(struct aq_soft_session *s, struct aq_seg *seg,
				const struct aq_range *what, uint64_t align, uint64_t *ret_va)
{
	uint64_t size = what->end; /* base is not known yet */
	struct aq_range *r = malloc(sizeof(*r));
	uint64_t va;

	if (!r || aq_vafree_take(&s->as.free, size, align, 0, &va) < 0) {
		free(r);
		aq_seg_unref(seg);
		return AQ_E_NO_MEMORY;
	}
	*r = *what;
	r->base = va;
	r->end = va + size;
	r->seg = seg;
	if (aq_aspace_add(&s->as, r) < 0) {
		aq_vafree_give(&s->as.free, va, size);
		free(r);
		aq_seg_unref(seg);
		return AQ_E_NO_MEMORY;
	}
	*ret_va = va;
	return AQ_OK;
}

static void drop_range(struct aq_soft_session *s, uint64_t base, uint64_t size)
{
	if (aq_aspace_remove(&s->as, base))
		aq_vafree_give(&s->as.free, base, size);
}

/* ---- slabs ---- */

/* The last used granule in [at, at + n), or -1. */
static int64_t last_used(const struct aq_slab *slab, uint32_t at, uint32_t n)
{
	for (uint32_t i = at + n; i-- > at;) {
		uint64_t word = slab->used[i / 64];

		if (word & (1ULL << (i % 64)))
			return i;
		if (word == 0)
			i &= ~63U; /* nothing in this word */
	}
	return -1;
}

static void granules_mark(struct aq_slab *slab, uint32_t at, uint32_t n, bool used)
{
	for (uint32_t i = at; i < at + n; i++) {
		if (used)
			slab->used[i / 64] |= 1ULL << (i % 64);
		else
			slab->used[i / 64] &= ~(1ULL << (i % 64));
	}
	slab->n_free += used ? -n : n;
	if (!used) {
		slab->first_free = AQ_MIN(slab->first_free, at);
		slab->too_big = UINT32_MAX;
	} else if (at == slab->first_free) {
		slab->first_free = at + n;
	}
}

/* First fit. Returns the granule, or SLAB_GRANULES. */
static uint32_t slab_find(struct aq_slab *slab, uint32_t n, uint32_t step)
{
	if (slab->n_free < n || n >= slab->too_big)
		return SLAB_GRANULES;
	for (uint32_t at = (uint32_t)aq_align_up(slab->first_free, step);
	     at + n <= SLAB_GRANULES;) {
		int64_t used = last_used(slab, at, n);

		if (used < 0)
			return at;
		at = (uint32_t)aq_align_up((uint64_t)used + 1, step);
	}
	if (step == 1)
		slab->too_big = n;
	return SLAB_GRANULES;
}

static enum aq_status slab_new(struct aq_soft_session *s, struct aq_card *card,
			       struct aq_slab **ret)
{
	struct aq_range what = { .end = SLAB_BYTES, .kind = AQ_RANGE_PLAIN, .card = card->index };
	struct aq_slab *slab = calloc(1, sizeof(*slab));
	struct aq_seg *seg = NULL;
	enum aq_status status;

	if (!slab)
		return AQ_E_NO_MEMORY;
	status = aq_seg_new(s, card, SLAB_BYTES, &seg);
	if (status == AQ_OK)
		status = add_range(s, seg, &what, SLAB_BYTES, &slab->va);
	if (status != AQ_OK) {
		free(slab);
		return status;
	}
	slab->card = card->index;
	slab->n_free = SLAB_GRANULES;
	slab->too_big = UINT32_MAX;
	aq_list_push_front(&s->slabs[card->index], &slab->link);
	*ret = slab;
	return AQ_OK;
}

static enum aq_status slab_alloc(struct aq_soft_session *s, struct aq_card *card, uint64_t size,
				 uint32_t align, struct aq_alloc *a)
{
	uint32_t n = (uint32_t)(aq_align_up(size, GRANULE) / GRANULE);
	uint32_t step = (uint32_t)AQ_MAX(align / GRANULE, 1ULL);
	uint32_t at = SLAB_GRANULES;
	struct aq_slab *slab;

	aq_list_for_each(slab, &s->slabs[card->index], link) {
		at = slab_find(slab, n, step);
		if (at < SLAB_GRANULES)
			break;
	}
	if (at == SLAB_GRANULES) {
		enum aq_status status = slab_new(s, card, &slab);

		if (status != AQ_OK)
			return status;
		at = 0;
	}
	granules_mark(slab, at, n, true);
	if (slab->n_free == 0) {
		aq_list_remove(&slab->link);
		aq_list_push_back(&s->full_slabs[card->index], &slab->link);
	}
	a->slab = slab;
	a->va = slab->va + at * GRANULE;
	a->size = n * GRANULE;
	return AQ_OK;
}

static void slab_release(struct aq_soft_session *s, struct aq_alloc *a, struct aq_rep_mem_free *ret)
{
	struct aq_slab *slab = a->slab;

	granules_mark(slab, (uint32_t)((a->va - slab->va) / GRANULE), (uint32_t)(a->size / GRANULE),
		      false);
	aq_list_remove(&slab->link);
	if (slab->n_free < SLAB_GRANULES) {
		aq_list_push_front(&s->slabs[slab->card], &slab->link);
		return;
	}
	drop_range(s, slab->va, SLAB_BYTES);
	ret->unmap_va = slab->va;
	ret->unmap_size = SLAB_BYTES;
	free(slab);
}

/* ---- allocations ---- */

static enum aq_status large_alloc(struct aq_soft_ctx *ctx, uint64_t size, uint32_t align,
				  struct aq_alloc *a)
{
	struct aq_soft_session *s = ctx->session;
	bool is_host = a->kind == AQ_MEM_HOST;
	bool is_shared = is_host || a->kind == AQ_MEM_MANAGED;
	uint64_t step = is_host ? HOST_STEP : is_shared ? MANAGED_STEP : DEVICE_STEP;
	struct aq_range what = {
		.end = aq_align_up(size, step),
		.kind = is_shared ? AQ_RANGE_SHARED : AQ_RANGE_PLAIN,
		.card = ctx->card->index,
	};
	struct aq_seg *seg = NULL;
	enum aq_status status = aq_seg_new(s, is_host ? NULL : ctx->card, what.end, &seg);

	if (status == AQ_OK)
		status = add_range(s, seg, &what, AQ_MAX(step, align), &a->va);
	if (status != AQ_OK)
		return status;
	a->size = what.end;
	a->range_base = a->va;
	return AQ_OK;
}

/* Put the finished allocation into the session's table and its context's list. */
static enum aq_status register_alloc(struct aq_soft_ctx *ctx, struct aq_alloc *a)
{
	struct aq_soft_session *s = ctx->session;

	if (s->allocs.n >= AQ_SOFT_MAX_ALLOCS ||
	    aq_vatab_insert(&s->allocs, a->va, a->va + a->size, a) < 0)
		return AQ_E_NO_MEMORY;
	a->ctx = ctx;
	aq_list_push_back(&ctx->allocs, &a->ctx_link);
	return AQ_OK;
}

static void undo_alloc(struct aq_soft_session *s, struct aq_alloc *a)
{
	struct aq_rep_mem_free ignored = { 0 };

	if (a->slab)
		slab_release(s, a, &ignored);
	else
		drop_range(s, a->va, a->size);
}

enum aq_status aq_mem_alloc(struct aq_soft_ctx *ctx, uint32_t kind, uint64_t size, uint32_t align,
			    struct aq_alloc **ret)
{
	struct aq_soft_session *s = ctx->session;
	bool is_device = kind == AQ_MEM_DEVICE || kind == AQ_MEM_ARRAY;
	struct aq_alloc *a;
	enum aq_status status;

	if (size > MAX_ALLOC)
		return AQ_E_NO_MEMORY;
	a = calloc(1, sizeof(*a));
	if (!a)
		return AQ_E_NO_MEMORY;
	a->kind = kind;
	if (is_device && size < SLAB_MAX_ALLOC)
		status = slab_alloc(s, ctx->card, size, align, a);
	else
		status = large_alloc(ctx, size, align, a);
	if (status == AQ_OK) {
		status = register_alloc(ctx, a);
		if (status != AQ_OK)
			undo_alloc(s, a);
	}
	if (status != AQ_OK) {
		free(a);
		return status;
	}
	*ret = a;
	return AQ_OK;
}

void aq_mem_release(struct aq_soft_session *s, struct aq_alloc *a, struct aq_rep_mem_free *ret)
{
	(void)aq_vatab_remove(&s->allocs, a->va);
	aq_list_remove(&a->ctx_link);
	if (a->export)
		aq_export_free(s->soft, a->export);
	if (a->slab) {
		slab_release(s, a, ret);
	} else {
		struct aq_range *r = aq_aspace_find(&s->as, a->range_base);
		uint64_t size = r ? r->end - r->base : 0;

		ret->unmap_va = a->range_base;
		ret->unmap_size = size;
		if (a->registered)
			(void)aq_aspace_remove(&s->as, a->range_base);
		else
			drop_range(s, a->range_base, size);
	}
	free(a);
}

void aq_mem_release_ctx(struct aq_soft_ctx *ctx)
{
	struct aq_rep_mem_free ignored;
	struct aq_alloc *a;
	struct aq_alloc *tmp;

	aq_list_for_each_safe(a, tmp, &ctx->allocs, ctx_link)
		aq_mem_release(ctx->session, a, &ignored);
}

/* Every context is gone, and every allocation with it; slabs are empty and so gone too. */
void aq_mem_session_done(struct aq_soft_session *s)
{
	struct aq_seg *seg;
	struct aq_seg *tmp;

	aq_vatab_done(&s->allocs);
	(void)pthread_mutex_lock(&s->soft->mem_lock);
	/* What others have imported stays on the card without an owner. */
	aq_list_for_each_safe(seg, tmp, &s->segs, owned) {
		seg->owner = NULL;
		aq_list_remove(&seg->owned);
	}
	(void)pthread_mutex_unlock(&s->soft->mem_lock);
}

/* ---- messages ---- */

int aq_soft_mem_alloc(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_mem_alloc *req = request->req;
	struct aq_soft_ctx *ctx = aq_ctx_get(s, req->ctx);
	struct aq_rep_mem_alloc *rep = (void *)ans->data;
	struct aq_alloc *a = NULL;
	struct aq_range *r;
	enum aq_status status;

	if (!ctx)
		return AQ_E_CONTEXT_GONE;
	if (req->size == 0 || req->kind > AQ_MEM_ARRAY || req->align < GRANULE ||
	    req->align > SLAB_BYTES || (req->align & (req->align - 1)))
		return AQ_E_INVALID;
	aq_module_reap(ctx);
	status = aq_mem_alloc(ctx, req->kind, req->size, req->align, &a);
	if (status != AQ_OK)
		return (int)status;
	r = aq_aspace_find(&s->as, a->va);
	*rep = (struct aq_rep_mem_alloc){
		.va = a->va,
		.size = a->size,
		.share_va = r->base,
		.share_size = r->end - r->base,
	};
	if (a->kind == AQ_MEM_MANAGED || a->kind == AQ_MEM_HOST)
		ans->fd = r->seg->fd;
	ans->len = sizeof(*rep);
	return AQ_OK;
}

int aq_soft_mem_free(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_mem_free *req = request->req;
	struct aq_rep_mem_free *rep = (void *)ans->data;
	struct aq_va_entry *e = aq_vatab_find(&s->allocs, req->va);
	struct aq_alloc *a = e ? e->object : NULL;

	if (!a || a->va != req->va || a->internal)
		return AQ_E_NOT_FOUND;
	*rep = (struct aq_rep_mem_free){ 0 };
	aq_mem_release(s, a, rep);
	ans->len = sizeof(*rep);
	return AQ_OK;
}

int aq_soft_mem_share(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_mem_share *req = request->req;
	struct aq_rep_mem_share *rep = (void *)ans->data;
	struct aq_range *r = aq_aspace_find(&s->as, req->va);

	if (!r)
		return AQ_E_NOT_FOUND;
	*rep = (struct aq_rep_mem_share){
		.share_va = r->base,
		.share_size = r->end - r->base,
		.offset = r->offset,
	};
	ans->fd = r->seg->fd;
	ans->len = sizeof(*rep);
	return AQ_OK;
}

static bool in_arena(const struct aq_soft_session *s, uint64_t va, uint64_t size)
{
	return va < s->peer.arena_base + s->peer.arena_size && va + size > s->peer.arena_base;
}

static enum aq_status register_host(struct aq_soft_ctx *ctx, uint64_t va, uint64_t size, int fd)
{
	struct aq_soft_session *s = ctx->session;
	aq_auto_free struct aq_range *r = calloc(1, sizeof(*r));
	aq_auto_free struct aq_alloc *a = calloc(1, sizeof(*a));
	struct aq_seg *seg = NULL;
	enum aq_status status;

	if (!r || !a)
		return AQ_E_NO_MEMORY;
	status = aq_seg_from_fd(s, fd, size, &seg);
	if (status != AQ_OK)
		return status;
	*r = (struct aq_range){ .base = va, .end = va + size, .seg = seg, .kind = AQ_RANGE_SHARED };
	if (aq_aspace_add(&s->as, r) < 0) {
		aq_seg_unref(seg);
		return AQ_E_INVALID;
	}
	(void)aq_take_ptr(r);
	*a = (struct aq_alloc){
		.va = va, .size = size, .kind = AQ_MEM_HOST, .registered = true, .range_base = va
	};
	aq_list_init(&a->ctx_link);
	status = register_alloc(ctx, a);
	if (status != AQ_OK) {
		(void)aq_aspace_remove(&s->as, va);
		return status;
	}
	(void)aq_take_ptr(a);
	return AQ_OK;
}

int aq_soft_host_register(void *session, const struct aq_request *request,
			  struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_host_register *req = request->req;
	struct aq_soft_ctx *ctx = aq_ctx_get(s, req->ctx);
	/* Taken in any case: it has been sent. */
	aq_auto_close int fd = aq_conn_recv_fd(s->peer.conn);

	(void)ans;
	if (fd < 0)
		return AQ_E_INVALID;
	if (!ctx)
		return AQ_E_CONTEXT_GONE;
	if (req->size == 0 || req->size > MAX_ALLOC || req->va % 4096 || req->size % 4096 ||
	    req->va + req->size < req->va || in_arena(s, req->va, req->size))
		return AQ_E_INVALID;
	return (int)register_host(ctx, req->va, req->size, fd);
}
