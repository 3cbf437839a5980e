/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of copies. Nothing is promised about the order within one, so they are done one after the other; the hints about places and
 * overlap have nothing to say here.
 */
#include "frontend/cuda/copy.h"

#include "frontend/cuda/handle.h"

/* A batch goes to a stream of its own, never to the legacy one. */
static CUresult batch_enter(CUstream handle, struct aq_fe_ctx **ret_ctx,
			    struct aq_fe_stream **ret_stream)
{
	CUresult res = aq_fe_copy_enter(handle, ret_ctx, ret_stream);

	if (res != CUDA_SUCCESS)
		return res;
	return (*ret_stream)->id == AQ_STREAM_LEGACY ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static bool order_is_valid(CUmemcpySrcAccessOrder order)
{
	return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
	       order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
	       order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

bool aq_fe_batch_indices(const size_t *first, size_t n, size_t count)
{
	if (!first || n == 0 || n > count || first[0] != 0)
		return false;
	for (size_t i = 1; i < n; i++) {
		if (first[i] <= first[i - 1] || first[i] >= count)
			return false;
	}
	return true;
}

static CUresult batch_check(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes,
			    size_t count, const CUmemcpyAttributes *attrs, const size_t *first,
			    size_t n_attrs)
{
	if (!dsts || !srcs || !sizes || count == 0 || !attrs ||
	    !aq_fe_batch_indices(first, n_attrs, count))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n_attrs; i++) {
		if (!order_is_valid(attrs[i].srcAccessOrder) ||
		    (attrs[i].flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* Whether a source has to be read before the call returns. Pageable memory always is; memory that the card reads is not. */
static bool during_call(const CUmemcpyAttributes *attrs, const size_t *first, size_t n, size_t at)
{
	while (n > 1 && first[n - 1] > at)
		n--;
	return attrs[n - 1].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
}

AQ_EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
				      size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs,
				      size_t numAttrs, size_t *failIdx, CUstream hStream)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	bool wait = false;
	CUresult res = batch_enter(hStream, &ctx, &stream);

	if (failIdx)
		*failIdx = SIZE_MAX; /* the fault is no single copy's */
	if (res == CUDA_SUCCESS)
		res = batch_check(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs);
	for (size_t i = 0; res == CUDA_SUCCESS && i < count; i++) {
		res = aq_fe_copy_linear(ctx, stream, dsts[i], AQ_FE_AS_UNIFIED, srcs[i],
					AQ_FE_AS_UNIFIED, sizes[i], true);
		wait = wait || during_call(attrs, attrsIdxs, numAttrs, i);
		if (res != CUDA_SUCCESS && failIdx)
			*failIdx = i;
	}
	return res == CUDA_SUCCESS && wait ? aq_fe_stream_sync(stream) : res;
}

AQ_EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
					 size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs,
					 size_t numAttrs, CUstream hStream)
{
	return cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL,
				  hStream);
}

/* ---- boxes ---- */

/* Bytes of an element: that of the array, if there is one; two arrays must agree. 0: they do not, or one is none. */
static uint64_t element_of(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	const CUmemcpy3DOperand *side[] = { &op->src, &op->dst };
	const struct aq_fe_array *a = NULL;
	uint64_t element = 0;

	for (int i = 0; i < 2; i++) {
		if (side[i]->type != CU_MEMCPY_OPERAND_TYPE_ARRAY)
			continue;
		a = aq_fe_handle_get(AQ_FE_ARRAY, side[i]->op.array.array);
		if (!a || (element && element != a->layout.element))
			return 0;
		element = a->layout.element;
	}
	return element ? element : 1;
}

static CUresult place_of(const CUmemcpy3DOperand *o, const CUextent3D *extent, uint64_t element,
			 struct aq_fe_place *ret)
{
	uint64_t row = o->op.ptr.rowLength ? o->op.ptr.rowLength : extent->width;
	uint64_t height = o->op.ptr.layerHeight ? o->op.ptr.layerHeight : extent->height;

	if (o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		*ret = (struct aq_fe_place){ .type = CU_MEMORYTYPE_ARRAY,
					     .array = o->op.array.array,
					     .y = o->op.array.offset.y,
					     .z = o->op.array.offset.z };
		return __builtin_mul_overflow(o->op.array.offset.x, element, &ret->x)
			       ? CUDA_ERROR_INVALID_VALUE
			       : CUDA_SUCCESS;
	}
	if (o->type != CU_MEMCPY_OPERAND_TYPE_POINTER || row < extent->width ||
	    height < extent->height)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (struct aq_fe_place){ .type = CU_MEMORYTYPE_UNIFIED,
				     .device = o->op.ptr.ptr,
				     .height = height };
	return __builtin_mul_overflow(row, element, &ret->pitch) ? CUDA_ERROR_INVALID_VALUE
								 : CUDA_SUCCESS;
}

static CUresult box_of(const CUDA_MEMCPY3D_BATCH_OP *op, struct aq_fe_box *ret)
{
	const CUextent3D *e = &op->extent;
	uint64_t element = element_of(op);
	CUresult res = CUDA_SUCCESS;

	if (element == 0 || e->width == 0 || e->height == 0 || e->depth == 0 ||
	    !order_is_valid(op->srcAccessOrder) ||
	    (op->flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE) ||
	    __builtin_mul_overflow(e->width, element, &ret->width))
		return CUDA_ERROR_INVALID_VALUE;
	ret->height = e->height;
	ret->depth = e->depth;
	ret->any_pitch = true;
	res = place_of(&op->src, e, element, &ret->src);
	return res == CUDA_SUCCESS ? place_of(&op->dst, e, element, &ret->dst) : res;
}

AQ_EXPORT CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
					size_t *failIdx, unsigned long long flags, CUstream hStream)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	struct aq_fe_box box;
	bool wait = false;
	CUresult res = batch_enter(hStream, &ctx, &stream);

	if (failIdx)
		*failIdx = SIZE_MAX;
	if (res == CUDA_SUCCESS && (numOps == 0 || !opList || flags != 0))
		res = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; res == CUDA_SUCCESS && i < numOps; i++) {
		res = box_of(&opList[i], &box);
		if (res == CUDA_SUCCESS)
			res = aq_fe_box_run(ctx, ctx, stream, &box, true);
		wait = wait ||
		       opList[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
		if (res != CUDA_SUCCESS && failIdx)
			*failIdx = i;
	}
	return res == CUDA_SUCCESS && wait ? aq_fe_stream_sync(stream) : res;
}

AQ_EXPORT CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
					   unsigned long long flags, CUstream hStream)
{
	return cuMemcpy3DBatchAsync(numOps, opList, NULL, flags, hStream);
}
