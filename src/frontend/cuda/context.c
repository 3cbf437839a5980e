/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: their life, the primary ones, and each thread's stack.
 *
 * A context lives while `alive` is set; its object lives while anybody refers to it: the living context itself, and every place in a thread's
 * stack. So a context that another thread has destroyed is told from an address that never was one. Objects of primary contexts are never freed: their
 * handles stay the same from one retain to the next.
 */
#include "base/macro.h"
#include "frontend/cuda/core.h"
#include "wire/shm.h"

#include <stdlib.h>
#include <string.h>

#define API_VERSION_1 3010
#define API_VERSION_2 3020

static _Atomic unsigned long long next_unique_id = 1;
static uint64_t error_slots[AQ_WIRE_ERROR_SLOTS / 64]; /* behind aq_fe_ctx_lock; bit set: taken */

unsigned long long aq_fe_unique_id(void)
{
	return atomic_fetch_add_explicit(&next_unique_id, 1, memory_order_relaxed);
}

void aq_fe_ctx_forked(void)
{
	memset(error_slots, 0, sizeof(error_slots));
}

void aq_fe_ctx_ref(struct aq_fe_ctx *ctx)
{
	atomic_fetch_add_explicit(&ctx->refs, 1, memory_order_relaxed);
}

void aq_fe_ctx_unref(struct aq_fe_ctx *ctx)
{
	if (atomic_fetch_sub_explicit(&ctx->refs, 1, memory_order_acq_rel) != 1)
		return;
	aq_fe_stream_attrs_free(&ctx->legacy);
	(void)pthread_mutex_destroy(&ctx->lock);
	free(ctx);
}

/* ---- looking up ---- */

CUresult aq_fe_ctx_status(struct aq_fe_ctx *ctx)
{
	enum aq_status status;

	if (!atomic_load_explicit(&ctx->alive, memory_order_acquire))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	status = aq_client_ctx_error(aq_fe.client, ctx->error_slot);
	return __builtin_expect(status == AQ_OK, 1) ? CUDA_SUCCESS : aq_fe_result((int)status);
}

static struct aq_fe_ctx *current_ctx(void)
{
	struct aq_fe_thread *t = &aq_fe_self;

	if (t->depth == 0 || t->generation != aq_fe_generation)
		return NULL;
	return t->stack[t->depth - 1];
}

CUresult aq_fe_ctx_get(CUcontext handle, struct aq_fe_ctx **ret_ctx)
{
	struct aq_fe_ctx *ctx = handle ? aq_fe_handle_get(AQ_FE_CTX, handle) : current_ctx();

	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!atomic_load_explicit(&ctx->alive, memory_order_acquire))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_ctx = ctx;
	return CUDA_SUCCESS;
}

CUresult aq_fe_enter_ctx(struct aq_fe_ctx **ret_ctx)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_ctx *ctx;

	if (rc != CUDA_SUCCESS)
		return rc;
	ctx = current_ctx();
	if (__builtin_expect(!ctx, 0))
		return CUDA_ERROR_INVALID_CONTEXT;
	rc = aq_fe_ctx_status(ctx);
	if (rc == CUDA_SUCCESS)
		*ret_ctx = ctx;
	return rc;
}

struct aq_fe_ctx *aq_fe_primary(struct aq_fe_device *dev)
{
	struct aq_fe_ctx *ctx;

	(void)pthread_mutex_lock(&aq_fe_ctx_lock);
	ctx = dev->primary;
	(void)pthread_mutex_unlock(&aq_fe_ctx_lock);
	return ctx;
}

/* ---- birth and death ---- */

static bool flags_are_valid(unsigned flags)
{
	unsigned sched = flags & CU_CTX_SCHED_MASK;

	return !(flags & ~(unsigned)CU_CTX_FLAGS_MASK) &&
	       (sched == CU_CTX_SCHED_AUTO || sched == CU_CTX_SCHED_SPIN ||
		sched == CU_CTX_SCHED_YIELD || sched == CU_CTX_SCHED_BLOCKING_SYNC);
}

static struct aq_fe_ctx *ctx_new(struct aq_fe_device *dev, unsigned flags, unsigned api_version)
{
	struct aq_fe_ctx *ctx = aligned_alloc(16, aq_align_up(sizeof(*ctx), 16));

	if (!ctx)
		return NULL;
	memset(ctx, 0, sizeof(*ctx));
	ctx->dev = dev;
	ctx->flags = flags;
	ctx->api_version = api_version;
	ctx->legacy = (struct aq_fe_stream){ .ctx = ctx, .id = AQ_STREAM_LEGACY };
	aq_list_init(&ctx->legacy.in_ctx);
	aq_list_init(&ctx->streams);
	aq_list_init(&ctx->events);
	aq_list_init(&ctx->modules);
	(void)pthread_mutex_init(&ctx->lock, NULL);
	atomic_store(&ctx->refs, 1);
	if (aq_fe_handle_add(AQ_FE_CTX, ctx))
		return ctx;
	aq_fe_ctx_unref(ctx);
	return NULL;
}

static void set_defaults(struct aq_fe_ctx *ctx)
{
	static const size_t limits[AQ_ARRAY_SIZE(ctx->limit)] = {
		[CU_LIMIT_STACK_SIZE] = 1024,
		[CU_LIMIT_PRINTF_FIFO_SIZE] = AQ_MIB,
		[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 * AQ_MIB,
		[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
		[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
		[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
	};

	memcpy(ctx->limit, limits, sizeof(limits));
	ctx->cache_config = CU_FUNC_CACHE_PREFER_NONE;
	ctx->peers = 0;
	ctx->gate_event = ctx->gate_stream = 0;
	ctx->attach_count = 1;
	ctx->unique_id = aq_fe_unique_id();
	ctx->legacy.unique_id = aq_fe_unique_id();
}

static bool error_slot_take(uint32_t *ret)
{
	for (uint32_t w = 0; w < AQ_ARRAY_SIZE(error_slots); w++) {
		if (error_slots[w] == UINT64_MAX)
			continue;
		*ret = w * 64 + (uint32_t)__builtin_ctzll(~error_slots[w]);
		error_slots[w] |= 1ULL << (*ret % 64);
		return true;
	}
	return false;
}

static void error_slot_give(uint32_t slot)
{
	error_slots[slot / 64] &= ~(1ULL << (slot % 64));
}

/* Make the server side. Behind aq_fe_ctx_lock. */
static CUresult ctx_open_locked(struct aq_fe_ctx *ctx)
{
	uint32_t id = aq_fe_id_new(AQ_FE_ID_CTX);
	struct aq_req_ctx_create req = { .ctx = id, .card = ctx->dev->card, .flags = ctx->flags };
	struct aq_rep_ctx_create rep;
	CUresult rc;

	if (id == 0 || !error_slot_take(&req.error_slot)) {
		aq_fe_id_free(AQ_FE_ID_CTX, id);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	rc = aq_fe_call(CTX_CREATE, ctx_create, &req, &rep);
	if (rc != CUDA_SUCCESS) {
		error_slot_give(req.error_slot);
		aq_fe_id_free(AQ_FE_ID_CTX, id);
		return rc;
	}
	ctx->id = id;
	ctx->error_slot = req.error_slot;
	set_defaults(ctx);
	atomic_store_explicit(&ctx->alive, true, memory_order_release);
	return CUDA_SUCCESS;
}

/*
 * Destroy the server side and all objects. `alive` has been cleared by the caller, who is therefore the only one. Takes aq_fe_ctx_lock, but not
 * while the server finishes the context's work.
 */
static CUresult ctx_close(struct aq_fe_ctx *ctx)
{
	struct aq_req_ctx_destroy req = { .ctx = ctx->id };
	struct aq_rep_ctx_destroy rep;
	CUresult rc = aq_fe_call(CTX_DESTROY, ctx_destroy, &req, &rep);

	(void)pthread_mutex_lock(&aq_fe_ctx_lock);
	aq_fe_memory_ctx_gone(ctx);
	aq_fe_hostfunc_ctx_gone(ctx);
	aq_fe_libraries_ctx_gone(ctx);
	aq_fe_modules_ctx_gone(ctx);
	aq_fe_events_ctx_gone(ctx);
	aq_fe_streams_ctx_gone(ctx);
	aq_fe_id_free(AQ_FE_ID_EVENT, ctx->gate_event);
	aq_fe_id_free(AQ_FE_ID_STREAM, ctx->gate_stream);
	error_slot_give(ctx->error_slot);
	aq_fe_id_free(AQ_FE_ID_CTX, ctx->id);
	ctx->id = 0;
	(void)pthread_mutex_unlock(&aq_fe_ctx_lock);
	/* The context's own sticky error is no failure of its destruction. */
	return rc == CUDA_ERROR_DEVICE_UNAVAILABLE ? rc : CUDA_SUCCESS;
}

/* ---- the stack ---- */

static CUresult push(struct aq_fe_ctx *ctx)
{
	struct aq_fe_thread *t = &aq_fe_self;

	aq_fe_thread_register();
	if (t->depth == t->cap) {
		unsigned cap = t->cap ? t->cap * 2 : 8;
		struct aq_fe_ctx **stack = realloc(t->stack, cap * sizeof(struct aq_fe_ctx *));

		if (!stack)
			return CUDA_ERROR_OUT_OF_MEMORY;
		t->stack = stack;
		t->cap = cap;
	}
	aq_fe_ctx_ref(ctx);
	t->stack[t->depth++] = ctx;
	return CUDA_SUCCESS;
}

static bool pop(CUcontext *ret)
{
	struct aq_fe_thread *t = &aq_fe_self;
	struct aq_fe_ctx *ctx = current_ctx();

	if (!ctx)
		return false;
	t->depth--;
	if (ret)
		*ret = (CUcontext)ctx;
	aq_fe_ctx_unref(ctx);
	return true;
}

void aq_fe_thread_stack_done(struct aq_fe_thread *t)
{
	while (t->depth > 0)
		aq_fe_ctx_unref(t->stack[--t->depth]);
}

/* ---- cuCtxCreate and its kin ---- */

static CUresult create(CUcontext *ret, unsigned flags, CUdevice ordinal, unsigned api_version)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_device *dev;
	struct aq_fe_ctx *ctx;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret || !flags_are_valid(flags))
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_device(ordinal, &dev);
	if (rc != CUDA_SUCCESS)
		return rc;
	ctx = ctx_new(dev, flags, api_version);
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(void)pthread_mutex_lock(&aq_fe_ctx_lock);
	rc = ctx_open_locked(ctx);
	(void)pthread_mutex_unlock(&aq_fe_ctx_lock);
	if (rc == CUDA_SUCCESS) {
		rc = push(ctx);
		if (rc != CUDA_SUCCESS) {
			atomic_store(&ctx->alive, false);
			(void)ctx_close(ctx);
		}
	}
	if (rc != CUDA_SUCCESS) {
		(void)aq_fe_handle_remove(AQ_FE_CTX, ctx);
		aq_fe_ctx_unref(ctx);
		return rc;
	}
	*ret = (CUcontext)ctx;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuCtxCreate(CUcontext *pctx, unsigned flags, CUdevice dev)
{
	return create(pctx, flags, dev, API_VERSION_1);
}

AQ_EXPORT CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned flags, CUdevice dev)
{
	return create(pctx, flags, dev, API_VERSION_2);
}

/* Execution affinity exists behind a multi-process service only, which a software card has not. */
AQ_EXPORT CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *params, int n,
				  unsigned flags, CUdevice dev)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	if (n < 0 || (n > 0 && !params))
		return CUDA_ERROR_INVALID_VALUE;
	if (n > 0)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(pctx, flags, dev, API_VERSION_2);
}

AQ_EXPORT CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *params, unsigned flags,
				  CUdevice dev)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	if (params && params->execAffinityParams && params->cigParams)
		return CUDA_ERROR_INVALID_VALUE;
	if (params && params->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (params && params->numExecAffinityParams > 0)
		return params->execAffinityParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
						  : CUDA_ERROR_INVALID_VALUE;
	return create(pctx, flags, dev, API_VERSION_2);
}

static CUresult destroy(struct aq_fe_ctx *ctx)
{
	CUresult rc;

	if (!aq_fe_handle_remove(AQ_FE_CTX, ctx))
		return CUDA_ERROR_INVALID_CONTEXT; /* another thread was faster */
	atomic_store_explicit(&ctx->alive, false, memory_order_release);
	if (current_ctx() == ctx)
		(void)pop(NULL);
	rc = ctx_close(ctx);
	aq_fe_ctx_unref(ctx);
	return rc;
}

AQ_EXPORT CUresult cuCtxDestroy_v2(CUcontext handle)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_ctx *ctx;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_ctx_get(handle, &ctx);
	if (rc != CUDA_SUCCESS)
		return rc;
	return ctx->is_primary ? CUDA_ERROR_INVALID_CONTEXT : destroy(ctx);
}

AQ_EXPORT CUresult cuCtxDestroy(CUcontext handle)
{
	return cuCtxDestroy_v2(handle);
}

AQ_EXPORT CUresult cuCtxAttach(CUcontext *pctx, unsigned flags)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!pctx || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (ctx->is_primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	(void)pthread_mutex_lock(&ctx->lock);
	ctx->attach_count++;
	(void)pthread_mutex_unlock(&ctx->lock);
	*pctx = (CUcontext)ctx;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuCtxDetach(CUcontext handle)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_ctx *ctx;
	bool last;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_ctx_get(handle, &ctx);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (ctx->is_primary || current_ctx() != ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	(void)pthread_mutex_lock(&ctx->lock);
	last = --ctx->attach_count == 0;
	(void)pthread_mutex_unlock(&ctx->lock);
	return last ? destroy(ctx) : CUDA_SUCCESS;
}

/* ---- the primary context ---- */

AQ_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice ordinal)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_device *dev;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_device(ordinal, &dev);
	if (rc != CUDA_SUCCESS)
		return rc;
	(void)pthread_mutex_lock(&aq_fe_ctx_lock);
	if (!dev->primary) {
		dev->primary = ctx_new(dev, dev->primary_flags, API_VERSION_2);
		if (dev->primary)
			dev->primary->is_primary = true;
		else
			rc = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (rc == CUDA_SUCCESS && !atomic_load(&dev->primary->alive)) {
		/* Its last life may still be ending on another thread. */
		if (dev->primary->id != 0) {
			rc = CUDA_ERROR_CONTEXT_IS_DESTROYED;
		} else {
			dev->primary->flags = dev->primary_flags;
			rc = ctx_open_locked(dev->primary);
		}
	}
	if (rc == CUDA_SUCCESS) {
		dev->primary->primary_refs++;
		*pctx = (CUcontext)dev->primary;
	}
	(void)pthread_mutex_unlock(&aq_fe_ctx_lock);
	return rc;
}

/* Drop one use (or none: reset) and end the context's life if that was the last, or if it is to be reset. */
static CUresult primary_drop(CUdevice ordinal, bool reset)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_device *dev;
	struct aq_fe_ctx *ctx;
	bool close = false;

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_device(ordinal, &dev);
	if (rc != CUDA_SUCCESS)
		return rc;
	(void)pthread_mutex_lock(&aq_fe_ctx_lock);
	ctx = dev->primary;
	if (!reset && (!ctx || ctx->primary_refs == 0))
		rc = CUDA_ERROR_INVALID_CONTEXT;
	else if (ctx)
		close = reset || --ctx->primary_refs == 0;
	if (close)
		close = atomic_exchange(&ctx->alive, false);
	(void)pthread_mutex_unlock(&aq_fe_ctx_lock);
	return close ? ctx_close(ctx) : rc;
}

AQ_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return primary_drop(dev, false);
}

AQ_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return primary_drop(dev, false);
}

AQ_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return primary_drop(dev, true);
}

AQ_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	return primary_drop(dev, true);
}

static CUresult primary_flags(CUdevice ordinal, unsigned flags, bool may_be_active)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_device *dev;

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_device(ordinal, &dev);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (!flags_are_valid(flags))
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&aq_fe_ctx_lock);
	if (dev->primary && atomic_load(&dev->primary->alive)) {
		if (may_be_active)
			dev->primary->flags = flags;
		else if (flags != dev->primary_flags)
			rc = CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
	}
	if (rc == CUDA_SUCCESS)
		dev->primary_flags = flags;
	(void)pthread_mutex_unlock(&aq_fe_ctx_lock);
	return rc;
}

AQ_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags)
{
	return primary_flags(dev, flags, false);
}

AQ_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags)
{
	return primary_flags(dev, flags, true);
}

AQ_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *active)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_device *dev;

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_device(ordinal, &dev);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&aq_fe_ctx_lock);
	*flags = dev->primary_flags;
	*active = dev->primary && atomic_load(&dev->primary->alive);
	(void)pthread_mutex_unlock(&aq_fe_ctx_lock);
	return CUDA_SUCCESS;
}

/* ---- the current context ---- */

AQ_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_ctx *ctx;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_ctx_get(handle, &ctx);
	return rc == CUDA_SUCCESS ? push(ctx) : rc;
}

AQ_EXPORT CUresult cuCtxPushCurrent(CUcontext handle)
{
	return cuCtxPushCurrent_v2(handle);
}

AQ_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	return pop(pctx) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

AQ_EXPORT CUresult cuCtxPopCurrent(CUcontext *pctx)
{
	return cuCtxPopCurrent_v2(pctx);
}

AQ_EXPORT CUresult cuCtxSetCurrent(CUcontext handle)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_ctx *ctx;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!handle) {
		(void)pop(NULL);
		return CUDA_SUCCESS;
	}
	rc = aq_fe_ctx_get(handle, &ctx);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (current_ctx() == ctx)
		return CUDA_SUCCESS;
	aq_fe_ctx_ref(ctx);
	(void)pop(NULL);
	rc = push(ctx);
	aq_fe_ctx_unref(ctx);
	return rc;
}

AQ_EXPORT CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = (CUcontext)current_ctx();
	return CUDA_SUCCESS;
}
