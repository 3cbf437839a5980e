/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked of a context and set in it. */
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <stddef.h>

AQ_EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_ctx *ctx;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_ctx_get(handle, &ctx);
	if (rc == CUDA_SUCCESS)
		*device = ctx->dev->ordinal;
	return rc;
}

AQ_EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
	return cuCtxGetDevice_v2(device, NULL);
}

AQ_EXPORT CUresult cuCtxGetFlags(unsigned *flags)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = ctx->flags;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuCtxSetFlags(unsigned flags)
{
	unsigned sched = flags & CU_CTX_SCHED_MASK;
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) || (sched & (sched - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	ctx->flags = flags;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_ctx *ctx;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_ctx_get(handle, &ctx);
	if (rc == CUDA_SUCCESS)
		*id = ctx->unique_id;
	return rc;
}

AQ_EXPORT CUresult cuCtxGetApiVersion(CUcontext handle, unsigned *version)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_ctx *ctx;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_ctx_get(handle, &ctx);
	if (rc == CUDA_SUCCESS)
		*version = ctx->api_version;
	return rc;
}

static CUresult synchronize(struct aq_fe_ctx *ctx)
{
	struct aq_req_ctx_sync req = { .ctx = ctx->id };
	struct aq_rep_ctx_sync rep;
	CUresult rc = aq_fe_call(CTX_SYNC, ctx_sync, &req, &rep);

	if (rc == CUDA_SUCCESS)
		aq_fe_pool_ctx_synced(ctx);
	return rc;
}

AQ_EXPORT CUresult cuCtxSynchronize(void)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	return rc == CUDA_SUCCESS ? synchronize(ctx) : rc;
}

AQ_EXPORT CUresult cuCtxSynchronize_v2(CUcontext handle)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_ctx *ctx;

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_ctx_get(handle, &ctx);
	if (rc == CUDA_SUCCESS)
		rc = aq_fe_ctx_status(ctx);
	return rc == CUDA_SUCCESS ? synchronize(ctx) : rc;
}

/* ---- limits ---- */

enum limit_kind {
	LIMIT_UNKNOWN = 0,
	LIMIT_SERVER, /* the server has a say */
	LIMIT_HINT,   /* remembered */
	LIMIT_OLD,    /* below compute capability 9.0 only */
	LIMIT_NONE    /* of contexts that do not exist here */
};

static enum limit_kind limit_kind(CUlimit limit)
{
	static const enum limit_kind kinds[] = {
		[CU_LIMIT_STACK_SIZE] = LIMIT_SERVER,
		[CU_LIMIT_PRINTF_FIFO_SIZE] = LIMIT_SERVER,
		[CU_LIMIT_MALLOC_HEAP_SIZE] = LIMIT_SERVER,
		[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = LIMIT_OLD,
		[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = LIMIT_HINT,
		[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = LIMIT_HINT,
		[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = LIMIT_HINT,
		[CU_LIMIT_SHMEM_SIZE] = LIMIT_NONE,
		[CU_LIMIT_CIG_ENABLED] = LIMIT_NONE,
		[CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED] = LIMIT_NONE,
	};

	return (unsigned)limit < AQ_ARRAY_SIZE(kinds) ? kinds[limit] : LIMIT_UNKNOWN;
}

static CUresult check_limit(const struct aq_fe_ctx *ctx, CUlimit limit)
{
	enum limit_kind kind = limit_kind(limit);

	if (kind == LIMIT_UNKNOWN)
		return CUDA_ERROR_INVALID_VALUE;
	if (kind == LIMIT_NONE || (kind == LIMIT_OLD && aq_fe_sm(ctx->dev) >= 90))
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	return CUDA_SUCCESS;
}

static size_t clamp_hint(const struct aq_fe_ctx *ctx, CUlimit limit, size_t value)
{
	size_t max = value;

	if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY)
		max = 128;
	else if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
		max = (size_t)aq_fe_attr(ctx->dev,
					 CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE);
	else if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)
		max = 24;
	return AQ_MIN(value, max);
}

AQ_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc == CUDA_SUCCESS)
		rc = check_limit(ctx, limit);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (limit_kind(limit) == LIMIT_SERVER) {
		struct aq_req_ctx_limit req = { ctx->id, (uint32_t)limit, value };
		struct aq_rep_ctx_limit rep;

		rc = aq_fe_call(CTX_LIMIT, ctx_limit, &req, &rep);
		if (rc == CUDA_SUCCESS)
			ctx->limit[limit] = rep.value;
		return rc;
	}
	ctx->limit[limit] = clamp_hint(ctx, limit, value);
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	rc = check_limit(ctx, limit);
	if (rc == CUDA_SUCCESS)
		*value = ctx->limit[limit];
	return rc;
}

AQ_EXPORT CUresult cuCtxResetPersistingL2Cache(void)
{
	struct aq_fe_ctx *ctx;

	return aq_fe_enter_ctx(&ctx);
}

/* ---- preferences; a software card has no cache to divide ---- */

AQ_EXPORT CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = ctx->cache_config;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	ctx->cache_config = config;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if ((unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);
	bool has;

	if (rc != CUDA_SUCCESS)
		return rc;
	has = aq_fe_attr(ctx->dev, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED) != 0;
	if (least)
		*least = AQ_FE_PRIORITY_LEAST;
	if (greatest)
		*greatest = has ? AQ_FE_PRIORITY_GREATEST : AQ_FE_PRIORITY_LEAST;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!affinity || (unsigned)type >= CU_EXEC_AFFINITY_TYPE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	affinity->type = type;
	affinity->param.smCount.val =
		(unsigned)aq_fe_attr(ctx->dev, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	return CUDA_SUCCESS;
}
