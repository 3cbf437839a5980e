/* SPDX-License-Identifier: Apache-2.0 */
/* Launches as before CUDA 4: shape and parameters are set in the function, then it is launched. Kept in terms of today's. */
#include "frontend/cuda/core.h"

#include <stdlib.h>
#include <string.h>

struct aq_fe_legacy {
	unsigned block[3], shared;
	size_t size;
	uint8_t params[AQ_WIRE_PARAMS_MAX];
};

/* The function with its state, made at the first need, and its context locked. */
static CUresult enter(CUfunction handle, struct aq_fe_function **ret)
{
	struct aq_fe_ctx *ctx;
	struct aq_fe_function *f;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_function(handle, ctx, &f);
	if (rc != CUDA_SUCCESS)
		return rc;
	(void)pthread_mutex_lock(&f->ctx->lock);
	if (!f->legacy) {
		f->legacy = calloc(1, sizeof(*f->legacy));
		if (!f->legacy) {
			(void)pthread_mutex_unlock(&f->ctx->lock);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		f->legacy->block[0] = f->legacy->block[1] = f->legacy->block[2] = 1;
	}
	*ret = f;
	return CUDA_SUCCESS;
}

static CUresult leave(struct aq_fe_function *f, CUresult rc)
{
	(void)pthread_mutex_unlock(&f->ctx->lock);
	return rc;
}

AQ_EXPORT CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z)
{
	struct aq_fe_function *f;
	CUresult rc = enter(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (x <= 0 || y <= 0 || z <= 0)
		return leave(f, CUDA_ERROR_INVALID_VALUE);
	f->legacy->block[0] = (unsigned)x;
	f->legacy->block[1] = (unsigned)y;
	f->legacy->block[2] = (unsigned)z;
	return leave(f, CUDA_SUCCESS);
}

AQ_EXPORT CUresult cuFuncSetSharedSize(CUfunction handle, unsigned bytes)
{
	struct aq_fe_function *f;
	CUresult rc = enter(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	f->legacy->shared = bytes;
	return leave(f, CUDA_SUCCESS);
}

AQ_EXPORT CUresult cuParamSetSize(CUfunction handle, unsigned bytes)
{
	struct aq_fe_function *f;
	CUresult rc = enter(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (bytes > AQ_WIRE_PARAMS_MAX)
		return leave(f, CUDA_ERROR_INVALID_VALUE);
	f->legacy->size = bytes;
	return leave(f, CUDA_SUCCESS);
}

AQ_EXPORT CUresult cuParamSetv(CUfunction handle, int offset, void *data, unsigned bytes)
{
	struct aq_fe_function *f;
	CUresult rc = enter(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (offset < 0 || offset > (int)AQ_WIRE_PARAMS_MAX || (!data && bytes > 0) ||
	    bytes > AQ_WIRE_PARAMS_MAX - (unsigned)offset)
		return leave(f, CUDA_ERROR_INVALID_VALUE);
	if (bytes > 0)
		memcpy(f->legacy->params + offset, data, bytes);
	return leave(f, CUDA_SUCCESS);
}

AQ_EXPORT CUresult cuParamSeti(CUfunction handle, int offset, unsigned value)
{
	return cuParamSetv(handle, offset, &value, sizeof(value));
}

AQ_EXPORT CUresult cuParamSetf(CUfunction handle, int offset, float value)
{
	return cuParamSetv(handle, offset, &value, sizeof(value));
}

AQ_EXPORT CUresult cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream)
{
	struct aq_fe_legacy now;
	struct aq_fe_function *f;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, now.params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &now.size, CU_LAUNCH_PARAM_END };
	CUresult rc = enter(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	now = *f->legacy;
	(void)leave(f, CUDA_SUCCESS);
	if (width <= 0 || height <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	return cuLaunchKernel(handle, (unsigned)width, (unsigned)height, 1, now.block[0],
			      now.block[1], now.block[2], now.shared, stream, NULL, extra);
}

AQ_EXPORT CUresult cuLaunchGrid(CUfunction handle, int width, int height)
{
	return cuLaunchGridAsync(handle, width, height, NULL);
}

AQ_EXPORT CUresult cuLaunch(CUfunction handle)
{
	return cuLaunchGridAsync(handle, 1, 1, NULL);
}
