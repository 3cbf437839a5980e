/* SPDX-License-Identifier: Apache-2.0 */
/* Copies to and from one-dimensional arrays, by byte offset. */
#include "frontend/cuda/copy.h"

#include "frontend/cuda/handle.h"

static CUresult array_side(CUarray handle, uint64_t offset, uint64_t size, struct aq_fe_side *ret,
			   unsigned *ret_element)
{
	const struct aq_fe_array *a = aq_fe_handle_get(AQ_FE_ARRAY, handle);
	const struct aq_fe_array_layout *l = a ? &a->layout : NULL;
	uint64_t row = 0;

	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	row = l->width * l->element;
	if (l->rows != 1 || l->slices != 1 || offset % l->element || size % l->element ||
	    offset > row || size > row - offset)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (struct aq_fe_side){ .addr = a->va + offset };
	*ret_element = l->element;
	return CUDA_SUCCESS;
}

enum direction {
	TO_ARRAY,
	FROM_ARRAY
};

static CUresult with_linear(enum direction dir, CUarray array, uint64_t offset, uint64_t addr,
			    enum aq_fe_as as, uint64_t size, CUstream handle, bool async)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	struct aq_fe_copy c = { .width = size, .height = 1, .depth = 1 };
	struct aq_fe_side *linear = dir == TO_ARRAY ? &c.src : &c.dst;
	unsigned element = 0;
	CUresult res = aq_fe_copy_enter(handle, &ctx, &stream);

	if (res == CUDA_SUCCESS)
		res = array_side(array, offset, size, dir == TO_ARRAY ? &c.dst : &c.src, &element);
	if (res != CUDA_SUCCESS || size == 0)
		return res;
	linear->addr = addr;
	res = aq_fe_side_check(ctx, linear, as, dir == TO_ARRAY ? AQ_FE_READ : AQ_FE_WRITE, size, 1,
			       1);
	return res == CUDA_SUCCESS ? aq_fe_copy_run(stream, &c, async) : res;
}

AQ_EXPORT CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
				   size_t ByteCount)
{
	return with_linear(TO_ARRAY, dstArray, dstOffset, srcDevice, AQ_FE_AS_DEVICE, ByteCount,
			   NULL, false);
}

AQ_EXPORT CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
				   size_t ByteCount)
{
	return with_linear(FROM_ARRAY, srcArray, srcOffset, dstDevice, AQ_FE_AS_DEVICE, ByteCount,
			   NULL, false);
}

AQ_EXPORT CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
				   size_t ByteCount)
{
	return with_linear(TO_ARRAY, dstArray, dstOffset, (uintptr_t)srcHost, AQ_FE_AS_HOST,
			   ByteCount, NULL, false);
}

AQ_EXPORT CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
					size_t ByteCount, CUstream hStream)
{
	return with_linear(TO_ARRAY, dstArray, dstOffset, (uintptr_t)srcHost, AQ_FE_AS_HOST,
			   ByteCount, hStream, true);
}

AQ_EXPORT CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset,
				   size_t ByteCount)
{
	return with_linear(FROM_ARRAY, srcArray, srcOffset, (uintptr_t)dstHost, AQ_FE_AS_HOST,
			   ByteCount, NULL, false);
}

AQ_EXPORT CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset,
					size_t ByteCount, CUstream hStream)
{
	return with_linear(FROM_ARRAY, srcArray, srcOffset, (uintptr_t)dstHost, AQ_FE_AS_HOST,
			   ByteCount, hStream, true);
}

AQ_EXPORT CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray,
				   size_t srcOffset, size_t ByteCount)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	struct aq_fe_copy c = { .width = ByteCount, .height = 1, .depth = 1 };
	unsigned dst_element = 0, src_element = 0;
	CUresult res = aq_fe_copy_enter(NULL, &ctx, &stream);

	if (res == CUDA_SUCCESS)
		res = array_side(dstArray, dstOffset, ByteCount, &c.dst, &dst_element);
	if (res == CUDA_SUCCESS)
		res = array_side(srcArray, srcOffset, ByteCount, &c.src, &src_element);
	if (res != CUDA_SUCCESS)
		return res;
	if (dst_element != src_element)
		return CUDA_ERROR_INVALID_VALUE;
	return ByteCount == 0 ? CUDA_SUCCESS : aq_fe_copy_run(stream, &c, false);
}
