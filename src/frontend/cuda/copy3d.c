/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of boxes: what a place means, and the 3-D entry points. */
#include "frontend/cuda/copy.h"

#include "base/macro.h"
#include "frontend/cuda/handle.h"

/* What CU_DEVICE_ATTRIBUTE_MAX_PITCH says. */
#define MAX_PITCH 0x7fffffffULL

static CUresult array_side(const struct aq_fe_place *p, const struct aq_fe_box *box,
			   struct aq_fe_side *ret)
{
	const struct aq_fe_array *a = aq_fe_handle_get(AQ_FE_ARRAY, p->array);
	const struct aq_fe_array_layout *l = a ? &a->layout : NULL;
	uint64_t row = 0;

	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	row = l->width * l->element;
	if (p->x % l->element || box->width % l->element || p->x > row || box->width > row - p->x ||
	    p->y > l->rows || box->height > l->rows - p->y || p->z > l->slices ||
	    box->depth > l->slices - p->z)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (struct aq_fe_side){ .addr = a->va + p->z * l->slice + p->y * l->pitch + p->x,
				    .pitch = l->pitch,
				    .slice = l->slice };
	return CUDA_SUCCESS;
}

/* Pitch and slice of linear memory; where an extent is 1 they may be left 0. */
static CUresult strides(const struct aq_fe_place *p, const struct aq_fe_box *box,
			uint64_t *ret_pitch, uint64_t *ret_slice)
{
	uint64_t pitch = p->pitch, height = p->height, row = 0, rows = 0;

	if (__builtin_add_overflow(p->x, box->width, &row) ||
	    __builtin_add_overflow(p->y, box->height, &rows))
		return CUDA_ERROR_INVALID_VALUE;
	if (pitch == 0 && box->height == 1 && box->depth == 1 && p->y == 0 && p->z == 0)
		pitch = row;
	if (height == 0 && box->depth == 1 && p->z == 0)
		height = rows;
	if (pitch < row || (!box->any_pitch && pitch > MAX_PITCH) ||
	    ((box->depth > 1 || p->z > 0) && height < rows))
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(pitch, height, ret_slice)) {
		if (box->depth > 1 || p->z > 0)
			return CUDA_ERROR_INVALID_VALUE;
		*ret_slice = 0; /* not used */
	}
	*ret_pitch = pitch;
	return CUDA_SUCCESS;
}

static CUresult linear_side(struct aq_fe_ctx *ctx, const struct aq_fe_place *p,
			    const struct aq_fe_box *box, enum aq_fe_rw rw, struct aq_fe_side *ret)
{
	uint64_t base = p->type == CU_MEMORYTYPE_HOST ? p->host : p->device;
	uint64_t pitch = 0, slice = 0, dy = 0, dz = 0, addr = base;
	enum aq_fe_as as = AQ_FE_AS_UNIFIED;
	CUresult res = strides(p, box, &pitch, &slice);

	if (res != CUDA_SUCCESS)
		return res;
	if (base == 0 || __builtin_mul_overflow(p->z, slice, &dz) ||
	    __builtin_mul_overflow(p->y, pitch, &dy) || __builtin_add_overflow(addr, dz, &addr) ||
	    __builtin_add_overflow(addr, dy, &addr) || __builtin_add_overflow(addr, p->x, &addr))
		return CUDA_ERROR_INVALID_VALUE;
	if (p->type != CU_MEMORYTYPE_UNIFIED)
		as = p->type == CU_MEMORYTYPE_HOST ? AQ_FE_AS_HOST : AQ_FE_AS_DEVICE;
	*ret = (struct aq_fe_side){ .addr = addr, .pitch = pitch, .slice = slice };
	return aq_fe_side_check(ctx, ret, as, rw, box->width, box->height, box->depth);
}

static CUresult side(struct aq_fe_ctx *ctx, const struct aq_fe_place *p,
		     const struct aq_fe_box *box, enum aq_fe_rw rw, struct aq_fe_side *ret)
{
	if (p->lod != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->type == CU_MEMORYTYPE_ARRAY)
		return array_side(p, box, ret);
	if (p->type != CU_MEMORYTYPE_HOST && p->type != CU_MEMORYTYPE_DEVICE &&
	    p->type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	return linear_side(ctx, p, box, rw, ret);
}

CUresult aq_fe_box_run(struct aq_fe_ctx *dst_ctx, struct aq_fe_ctx *src_ctx,
		       struct aq_fe_stream *stream, const struct aq_fe_box *box, bool async)
{
	struct aq_fe_copy c = { .width = box->width, .height = box->height, .depth = box->depth };
	CUresult res = CUDA_SUCCESS;

	if (box->width == 0 || box->height == 0 || box->depth == 0)
		return CUDA_SUCCESS;
	res = side(dst_ctx, &box->dst, box, AQ_FE_WRITE, &c.dst);
	if (res == CUDA_SUCCESS)
		res = side(src_ctx, &box->src, box, AQ_FE_READ, &c.src);
	return res == CUDA_SUCCESS ? aq_fe_copy_run(stream, &c, async) : res;
}

/* The two structures differ only in what lies between the array and the pitch. */
#define PLACE_OF(p, side)                                          \
	((struct aq_fe_place){ .type = (p)->side##MemoryType,      \
			       .host = (uintptr_t)(p)->side##Host, \
			       .device = (p)->side##Device,        \
			       .array = (p)->side##Array,          \
			       .x = (p)->side##XInBytes,           \
			       .y = (p)->side##Y,                  \
			       .z = (p)->side##Z,                  \
			       .lod = (p)->side##LOD,              \
			       .pitch = (p)->side##Pitch,          \
			       .height = (p)->side##Height })
#define BOX_OF(p)                                        \
	((struct aq_fe_box){ .dst = PLACE_OF(p, dst),    \
			     .src = PLACE_OF(p, src),    \
			     .width = (p)->WidthInBytes, \
			     .height = (p)->Height,      \
			     .depth = (p)->Depth })

static CUresult copy3d(const CUDA_MEMCPY3D *p, CUstream handle, bool async)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	struct aq_fe_box box;
	CUresult res = aq_fe_copy_enter(handle, &ctx, &stream);

	if (res != CUDA_SUCCESS)
		return res;
	if (!p || p->reserved0 || p->reserved1)
		return CUDA_ERROR_INVALID_VALUE;
	box = BOX_OF(p);
	return aq_fe_box_run(ctx, ctx, stream, &box, async);
}

AQ_EXPORT CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
	return copy3d(pCopy, NULL, false);
}

AQ_EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
	return copy3d(pCopy, hStream, true);
}

static CUresult copy3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream handle, bool async)
{
	struct aq_fe_peer peer = { 0 };
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_box box;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	res = aq_fe_peer_enter(p->dstContext, p->srcContext, handle, async, &peer);
	if (res != CUDA_SUCCESS)
		return res;
	box = BOX_OF(p);
	res = aq_fe_box_run(peer.dst, peer.src, peer.stream, &box, async);
	if (res == CUDA_SUCCESS && !async)
		res = aq_fe_stream_sync(peer.stream);
	return res;
}

AQ_EXPORT CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
	return copy3d_peer(pCopy, NULL, false);
}

AQ_EXPORT CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
	return copy3d_peer(pCopy, hStream, true);
}
