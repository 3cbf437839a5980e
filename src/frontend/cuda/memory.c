/* SPDX-License-Identifier: Apache-2.0 */
/* Linear device and managed memory, and the table of ranges. */
#include "frontend/cuda/copy.h"

#include "base/macro.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PITCH_ALIGN 512U

struct range_node {
	struct aq_rnode node;
	struct aq_fe_range r;
};

static struct {
	pthread_rwlock_t lock;
	struct aq_rtree tree;
	unsigned long long next_buffer_id;
} table = { .lock = PTHREAD_RWLOCK_INITIALIZER };

#define entry(n) aq_container_of(n, struct range_node, node)

static void range_node_free(struct range_node *n)
{
	aq_fe_advice_free(n->r.advice);
	free(n);
}

bool aq_fe_range_add(struct aq_fe_range *r)
{
	struct range_node *n = calloc(1, sizeof(*n));
	struct aq_rnode *stale = NULL;
	bool ok = false;

	if (!n)
		return false;
	n->node.va = r->va;
	n->node.size = r->size;
	(void)pthread_rwlock_wrlock(&table.lock);
	/*
	 * The server hands out an address only when its last owner is gone: whatever is still here belongs to a context that is just
	 * being destroyed in another thread.
	 */
	while (aq_fe_in_arena(r->va) && (stale = aq_rtree_overlap(&table.tree, r->va, r->size)) &&
	       r->ctx_uid != 0 && entry(stale)->r.ctx_uid != r->ctx_uid) {
		aq_rtree_remove(&table.tree, stale);
		range_node_free(entry(stale));
	}
	r->buffer_id = ++table.next_buffer_id;
	n->r = *r;
	ok = aq_rtree_insert(&table.tree, &n->node);
	(void)pthread_rwlock_unlock(&table.lock);
	if (!ok)
		free(n);
	return ok;
}

bool aq_fe_range_find(uint64_t addr, struct aq_fe_range *ret)
{
	struct aq_rnode *n = NULL;

	(void)pthread_rwlock_rdlock(&table.lock);
	n = aq_rtree_find(&table.tree, addr);
	if (n)
		*ret = entry(n)->r;
	(void)pthread_rwlock_unlock(&table.lock);
	return n != NULL;
}

bool aq_fe_range_take(uint64_t va, unsigned kinds, struct aq_fe_range *ret)
{
	struct aq_rnode *n = NULL;

	(void)pthread_rwlock_wrlock(&table.lock);
	n = aq_rtree_find(&table.tree, va);
	if (n && (n->va != va || !(entry(n)->r.kind & kinds)))
		n = NULL;
	if (n)
		aq_rtree_remove(&table.tree, n);
	(void)pthread_rwlock_unlock(&table.lock);
	if (!n)
		return false;
	*ret = entry(n)->r;
	ret->advice = NULL;
	range_node_free(entry(n));
	return true;
}

bool aq_fe_range_update(uint64_t addr, void (*fn)(struct aq_fe_range *r, void *arg), void *arg)
{
	struct aq_rnode *n = NULL;

	(void)pthread_rwlock_wrlock(&table.lock);
	n = aq_rtree_find(&table.tree, addr);
	if (n)
		fn(&entry(n)->r, arg);
	(void)pthread_rwlock_unlock(&table.lock);
	return n != NULL;
}

bool aq_fe_range_overlaps(uint64_t va, uint64_t size)
{
	bool hit = false;

	(void)pthread_rwlock_rdlock(&table.lock);
	hit = aq_rtree_overlap(&table.tree, va, size) != NULL;
	(void)pthread_rwlock_unlock(&table.lock);
	return hit;
}

bool aq_fe_in_arena(uint64_t addr)
{
	return addr - aq_fe.arena_base < aq_fe.arena_size;
}

static bool may_access(const struct aq_fe_ctx *ctx, const struct aq_fe_range *r, enum aq_fe_rw rw)
{
	if (r->kind != AQ_FE_RANGE_MAPPING)
		return true;
	return (r->access_cards >> (2 * ctx->dev->card) & (uint32_t)rw) != 0;
}

CUresult aq_fe_span_check(struct aq_fe_ctx *ctx, uint64_t va, uint64_t size, enum aq_fe_rw rw,
			  struct aq_fe_range *ret)
{
	struct aq_fe_range r;
	uint64_t room = 0;

	if (!aq_fe_range_find(va, &r) || !may_access(ctx, &r, rw))
		return CUDA_ERROR_INVALID_VALUE;
	*ret = r;
	for (;;) {
		room = r.va + r.size - va;
		if (size <= room)
			return CUDA_SUCCESS;
		/* Only mappings continue each other: two allocations that touch are still two. */
		size -= room;
		va += room;
		if (r.kind != AQ_FE_RANGE_MAPPING || !aq_fe_range_find(va, &r) ||
		    r.kind != AQ_FE_RANGE_MAPPING || !may_access(ctx, &r, rw))
			return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult aq_fe_mem_new(struct aq_fe_ctx *ctx, enum aq_mem_kind kind, enum aq_fe_range_kind as,
		       uint64_t size, unsigned flags, uint64_t *ret_va)
{
	struct aq_fe_range r = { .size = size, .kind = as, .flags = flags, .ctx = ctx };
	struct aq_rep_mem_alloc rep;
	CUresult res = CUDA_SUCCESS;

	if (size > (kind == AQ_MEM_HOST ? aq_fe.arena_size : ctx->dev->info.memory_bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r.ctx_uid = ctx->unique_id;
	r.dev = ctx->dev;
	res = aq_fe_seg_alloc(ctx, kind, size, &rep);
	if (res == CUDA_ERROR_OUT_OF_MEMORY && kind != AQ_MEM_HOST && aq_fe_pool_release(ctx->dev))
		res = aq_fe_seg_alloc(ctx, kind, size, &rep);
	if (res != CUDA_SUCCESS)
		return res;
	r.va = rep.va;
	if (as == AQ_FE_RANGE_MANAGED) {
		r.advice = aq_fe_advice_new(r.va, size);
		if (!r.advice) {
			(void)aq_fe_seg_free(rep.va);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	if (!aq_fe_range_add(&r)) {
		aq_fe_advice_free(r.advice);
		(void)aq_fe_seg_free(rep.va);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_va = rep.va;
	return CUDA_SUCCESS;
}

CUresult aq_fe_free_wait(struct aq_fe_ctx *ctx, struct aq_fe_ctx *owner,
			 unsigned long long owner_uid)
{
	struct aq_fe_ctx *live = NULL;
	CUresult res = aq_fe_ctx_wait(ctx);

	if (res == CUDA_SUCCESS && owner && owner_uid != ctx->unique_id &&
	    aq_fe_ctx_get((CUcontext)owner, &live) == CUDA_SUCCESS && live->unique_id == owner_uid)
		(void)aq_fe_ctx_wait(live); /* its error is its own */
	return res;
}

AQ_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct aq_fe_ctx *ctx = NULL;
	uint64_t va = 0;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!dptr || bytesize == 0)
		return CUDA_ERROR_INVALID_VALUE;
	res = aq_fe_mem_new(ctx, AQ_MEM_DEVICE, AQ_FE_RANGE_DEVICE, bytesize, 0, &va);
	if (res == CUDA_SUCCESS)
		*dptr = va;
	return res;
}

AQ_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
				      size_t Height, unsigned int ElementSizeBytes)
{
	struct aq_fe_ctx *ctx = NULL;
	uint64_t va = 0, pitch = 0, size = 0;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!dptr || !pPitch || WidthInBytes == 0 || Height == 0 ||
	    (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
		return CUDA_ERROR_INVALID_VALUE;
	if (WidthInBytes > ctx->dev->info.memory_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pitch = aq_align_up(WidthInBytes, PITCH_ALIGN);
	if (__builtin_mul_overflow(pitch, Height, &size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = aq_fe_mem_new(ctx, AQ_MEM_DEVICE, AQ_FE_RANGE_DEVICE, size, 0, &va);
	if (res == CUDA_SUCCESS) {
		*dptr = va;
		*pPitch = pitch;
	}
	return res;
}

AQ_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct aq_fe_ctx *ctx = NULL;
	uint64_t va = 0;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!dptr || bytesize == 0 ||
	    (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	res = aq_fe_mem_new(ctx, AQ_MEM_MANAGED, AQ_FE_RANGE_MANAGED, bytesize, flags, &va);
	if (res == CUDA_SUCCESS)
		*dptr = va;
	return res;
}

AQ_EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_range r;
	unsigned kinds = AQ_FE_RANGE_DEVICE | AQ_FE_RANGE_MANAGED | AQ_FE_RANGE_POOL;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS || dptr == 0)
		return res;
	if (!aq_fe_range_find(dptr, &r) || r.va != dptr || !(r.kind & kinds))
		return CUDA_ERROR_INVALID_VALUE;
	/* Of stream-ordered memory its user knows that it is idle. */
	if (r.kind != AQ_FE_RANGE_POOL)
		res = aq_fe_free_wait(ctx, r.ctx, r.ctx_uid);
	if (res != CUDA_SUCCESS)
		return res;
	/* Out of the table first: once the server has freed it, the address may be anybody's. */
	if (!aq_fe_range_take(dptr, kinds, &r))
		return CUDA_ERROR_INVALID_VALUE;
	return r.kind == AQ_FE_RANGE_POOL ? aq_fe_pool_free_now(&r) : aq_fe_seg_free(r.va);
}

AQ_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_req_card_stat req = { 0 };
	struct aq_rep_card_stat rep;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!free_bytes || !total)
		return CUDA_ERROR_INVALID_VALUE;
	req.card = ctx->dev->card;
	res = aq_fe_call(CARD_STAT, card_stat, &req, &rep);
	if (res != CUDA_SUCCESS)
		return res;
	*free_bytes = rep.memory_free;
	*total = ctx->dev->info.memory_bytes;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_range r;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!aq_fe_range_find(dptr, &r))
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = r.va;
	if (psize)
		*psize = r.size;
	return CUDA_SUCCESS;
}

void aq_fe_memory_ctx_gone(struct aq_fe_ctx *ctx)
{
	struct aq_rnode *n = NULL, *mine = NULL;
	uint64_t at = 0;

	(void)pthread_rwlock_wrlock(&table.lock);
	while ((n = aq_rtree_at_or_above(&table.tree, at))) {
		at = n->va + (n->size - 1);
		if (entry(n)->r.ctx_uid == ctx->unique_id) {
			aq_rtree_remove(&table.tree, n);
			n->right = mine;
			mine = n;
		}
		if (at == UINT64_MAX)
			break;
		at++;
	}
	(void)pthread_rwlock_unlock(&table.lock);
	while ((n = mine)) {
		mine = n->right;
		if (entry(n)->r.kind == AQ_FE_RANGE_REGISTERED)
			aq_fe_host_unpin(n->va, n->size);
		range_node_free(entry(n));
	}
	aq_fe_pool_ctx_gone(ctx);
	aq_fe_array_ctx_gone(ctx->unique_id);
	aq_fe_ipc_ctx_gone(ctx->unique_id);
	aq_fe_seg_ctx_gone(ctx->unique_id);
}

void aq_fe_memory_add_global(struct aq_fe_ctx *ctx, CUdeviceptr va, size_t size, bool is_managed)
{
	struct aq_fe_range r = { .va = va,
				 .size = size,
				 .kind = AQ_FE_RANGE_GLOBAL,
				 .managed_global = is_managed,
				 .ctx = ctx,
				 .ctx_uid = ctx->unique_id,
				 .dev = ctx->dev };

	if (size == 0)
		return;
	if (is_managed) {
		(void)aq_fe_seg_map_host(va, size, PROT_READ | PROT_WRITE);
		r.advice = aq_fe_advice_new(va, size);
	}
	/* Without memory for the entry kernels still reach the variable; copies to it then fail with INVALID_VALUE. */
	if (!aq_fe_range_add(&r))
		aq_fe_advice_free(r.advice);
}

void aq_fe_memory_remove_global(CUdeviceptr va)
{
	struct aq_fe_range r;

	(void)aq_fe_range_take(va, AQ_FE_RANGE_GLOBAL, &r);
}

void aq_fe_memory_forked(void)
{
	(void)pthread_rwlock_init(&table.lock, NULL);
	table.tree = (struct aq_rtree){ 0 };
	aq_fe_host_forked();
	aq_fe_seg_forked();
	aq_fe_array_forked();
	aq_fe_ipc_forked();
	aq_fe_vmm_forked();
}
