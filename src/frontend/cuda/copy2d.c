/* SPDX-License-Identifier: Apache-2.0 */
/* 2-D copies: boxes of depth 1. */
#include "frontend/cuda/copy.h"

#define PLACE_OF(p, side)                                          \
	((struct aq_fe_place){ .type = (p)->side##MemoryType,      \
			       .host = (uintptr_t)(p)->side##Host, \
			       .device = (p)->side##Device,        \
			       .array = (p)->side##Array,          \
			       .x = (p)->side##XInBytes,           \
			       .y = (p)->side##Y,                  \
			       .pitch = (p)->side##Pitch })

static CUresult copy2d(const CUDA_MEMCPY2D *p, CUstream handle, bool any_pitch, bool async)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	struct aq_fe_box box;
	CUresult res = aq_fe_copy_enter(handle, &ctx, &stream);

	if (res != CUDA_SUCCESS)
		return res;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	box = (struct aq_fe_box){ .dst = PLACE_OF(p, dst),
				  .src = PLACE_OF(p, src),
				  .width = p->WidthInBytes,
				  .height = p->Height,
				  .depth = 1,
				  .any_pitch = any_pitch };
	return aq_fe_box_run(ctx, ctx, stream, &box, async);
}

AQ_EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
	return copy2d(pCopy, NULL, false, false);
}

AQ_EXPORT CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
	return copy2d(pCopy, NULL, true, false);
}

AQ_EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
	return copy2d(pCopy, hStream, false, true);
}
