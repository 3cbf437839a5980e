/* SPDX-License-Identifier: Apache-2.0 */
/* Peer access between contexts: whose kernels may reach whose card's memory. */
#include "frontend/cuda/core.h"

static CUresult set_peer(struct aq_fe_ctx *ctx, struct aq_fe_ctx *peer, bool enable)
{
	struct aq_req_ctx_peer req = { .ctx = ctx->id, .peer_ctx = peer->id, .enable = enable };
	struct aq_rep_ctx_peer rep;
	uint32_t bit = 1U << peer->dev->ordinal;
	CUresult rc;

	(void)pthread_mutex_lock(&ctx->lock);
	if (!!(ctx->peers & bit) == enable) {
		rc = enable ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
			    : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	} else {
		rc = aq_fe_call(CTX_PEER, ctx_peer, &req, &rep);
		if (rc == CUDA_SUCCESS)
			ctx->peers ^= bit;
	}
	(void)pthread_mutex_unlock(&ctx->lock);
	return rc;
}

/* Both contexts, which must differ; no NULL means "current" here. */
static CUresult enter_pair(CUcontext handle, struct aq_fe_ctx **ret_ctx,
			   struct aq_fe_ctx **ret_peer)
{
	CUresult rc = aq_fe_enter_ctx(ret_ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!handle)
		return CUDA_ERROR_INVALID_CONTEXT;
	rc = aq_fe_ctx_get(handle, ret_peer);
	if (rc == CUDA_SUCCESS && *ret_ctx == *ret_peer)
		rc = CUDA_ERROR_INVALID_CONTEXT;
	return rc;
}

AQ_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags)
{
	struct aq_fe_ctx *ctx;
	struct aq_fe_ctx *peer;
	CUresult rc = enter_pair(handle, &ctx, &peer);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (ctx->dev == peer->dev)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	return set_peer(ctx, peer, true);
}

AQ_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
	struct aq_fe_ctx *ctx;
	struct aq_fe_ctx *peer;
	CUresult rc = enter_pair(handle, &ctx, &peer);

	return rc == CUDA_SUCCESS ? set_peer(ctx, peer, false) : rc;
}
