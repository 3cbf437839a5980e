/* SPDX-License-Identifier: Apache-2.0 */
/* What the copy entry points share beyond mem.h. */
#pragma once

#include "frontend/cuda/mem.h"

/* The current context and the stream that the handle means in it. */
CUresult aq_fe_copy_enter(CUstream handle, struct aq_fe_ctx **ret_ctx,
			  struct aq_fe_stream **ret_stream);

/* CTX_SYNC, and what waits for it in the pools. */
CUresult aq_fe_ctx_wait(struct aq_fe_ctx *ctx);

struct aq_fe_peer {
	struct aq_fe_ctx *dst, *src;
	struct aq_fe_stream *stream; /* of the current context */
};

/* The contexts of a peer copy, and its stream; a synchronous one also waits for the work of both. */
CUresult aq_fe_peer_enter(CUcontext dst, CUcontext src, CUstream handle, bool async,
			  struct aq_fe_peer *ret);

/* One side of a 2-D or 3-D copy as the application describes it; 2-D ones leave z, lod and height 0. */
struct aq_fe_place {
	CUmemorytype type;
	uint64_t host, device;
	CUarray array;
	uint64_t x, y, z, lod;
	uint64_t pitch, height;
};

struct aq_fe_box {
	struct aq_fe_place dst, src;
	uint64_t width, height, depth;
	bool any_pitch; /* cuMemcpy2DUnaligned: no limit on pitches */
};

/* Check both sides (against the card of their own context) and copy. */
CUresult aq_fe_box_run(struct aq_fe_ctx *dst_ctx, struct aq_fe_ctx *src_ctx,
		       struct aq_fe_stream *stream, const struct aq_fe_box *box, bool async);

/* Whether first[0..n) says which of `count` operations each of n attributes begins to apply to: from 0, growing, below count. */
bool aq_fe_batch_indices(const size_t *first, size_t n, size_t count);
