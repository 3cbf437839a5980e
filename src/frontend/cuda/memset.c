/* SPDX-License-Identifier: Apache-2.0 */
/* Fills. Asynchronous with respect to the host, except where the host reaches the memory. */
#include "frontend/cuda/copy.h"

#define MAX_PITCH 0x7fffffffULL

struct fill {
	uint64_t dst, pitch, width, height; /* width in elements */
	unsigned element;
	uint32_t value;
};

static CUresult fill(const struct fill *f, CUstream handle, bool async)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	struct aq_fe_side s = { .addr = f->dst, .pitch = f->pitch };
	struct aq_req_fill req = { .dst = f->dst,
				   .width = f->width,
				   .height = f->height,
				   .pitch = f->pitch,
				   .element = f->element,
				   .value = f->value };
	uint64_t row = 0;
	CUresult res = aq_fe_copy_enter(handle, &ctx, &stream);

	if (res != CUDA_SUCCESS || f->width == 0 || f->height == 0)
		return res;
	if (f->dst % f->element || __builtin_mul_overflow(f->width, f->element, &row))
		return CUDA_ERROR_INVALID_VALUE;
	if (f->height > 1 && (f->pitch < row || f->pitch % f->element || f->pitch > MAX_PITCH))
		return CUDA_ERROR_INVALID_VALUE;
	res = aq_fe_side_check(ctx, &s, AQ_FE_AS_DEVICE, AQ_FE_WRITE, row, f->height, 1);
	if (res != CUDA_SUCCESS)
		return res;
	req.ctx = stream->ctx->id;
	req.stream = stream->id;
	res = aq_fe_send(FILL, fill, &req);
	if (res == CUDA_SUCCESS && !async && s.sync)
		res = aq_fe_stream_sync(stream);
	return res;
}

static CUresult fill1d(uint64_t dst, unsigned element, uint32_t value, uint64_t n, CUstream handle,
		       bool async)
{
	struct fill f = { dst, 0, n, 1, element, value };

	return fill(&f, handle, async);
}

AQ_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	return fill1d(dstDevice, 1, uc, N, NULL, false);
}

AQ_EXPORT CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	return fill1d(dstDevice, 2, us, N, NULL, false);
}

AQ_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	return fill1d(dstDevice, 4, ui, N, NULL, false);
}

AQ_EXPORT CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N,
				   CUstream hStream)
{
	return fill1d(dstDevice, 1, uc, N, hStream, true);
}

AQ_EXPORT CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N,
				    CUstream hStream)
{
	return fill1d(dstDevice, 2, us, N, hStream, true);
}

AQ_EXPORT CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N,
				    CUstream hStream)
{
	return fill1d(dstDevice, 4, ui, N, hStream, true);
}

AQ_EXPORT CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
				   size_t Width, size_t Height)
{
	struct fill f = { dstDevice, dstPitch, Width, Height, 1, uc };

	return fill(&f, NULL, false);
}

AQ_EXPORT CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
				    size_t Width, size_t Height)
{
	struct fill f = { dstDevice, dstPitch, Width, Height, 2, us };

	return fill(&f, NULL, false);
}

AQ_EXPORT CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
				    size_t Width, size_t Height)
{
	struct fill f = { dstDevice, dstPitch, Width, Height, 4, ui };

	return fill(&f, NULL, false);
}

AQ_EXPORT CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
				     size_t Width, size_t Height, CUstream hStream)
{
	struct fill f = { dstDevice, dstPitch, Width, Height, 1, uc };

	return fill(&f, hStream, true);
}

AQ_EXPORT CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
				      size_t Width, size_t Height, CUstream hStream)
{
	struct fill f = { dstDevice, dstPitch, Width, Height, 2, us };

	return fill(&f, hStream, true);
}

AQ_EXPORT CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
				      size_t Width, size_t Height, CUstream hStream)
{
	struct fill f = { dstDevice, dstPitch, Width, Height, 4, ui };

	return fill(&f, hStream, true);
}
