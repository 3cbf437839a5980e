/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one copy routine, and the entry points that copy a row of bytes.
 *
 * Between ranges that the card reaches, the server copies. Pageable memory only the client reaches: little data goes inline through
 * the ring; much is copied by the client itself into a window, at the stream's turn (HOST_BEGIN .. HOST_END).
 */
#include "frontend/cuda/copy.h"

#include "base/macro.h"

#include <string.h>

/* Up to here the data is staged, as drivers do: a copy to the device returns when the source has been read. */
#define STAGED_MAX (64U * 1024)
/* Outside, no program has memory: an address there is a mistake, not pageable memory. */
#define LOWEST_HOST 4096U
#ifdef __x86_64__
#	define HIGHEST_HOST (1ULL << 47)
#else
#	define HIGHEST_HOST (1ULL << 52)
#endif

/* Where the C library prefers the string instruction to vectors; and a number of cache lines below that. */
#define STRING_MIN 2048U
#define STRING_MAX (512U * 1024)
#define PIECE	   1984U
/* More rows than this cost more as messages than a window does. */
#define STAGED_ROWS 64U

/* Whether host code may use addresses of this range. */
static bool on_host(const struct aq_fe_range *r)
{
	return (r->kind & AQ_FE_RANGE_ON_HOST) || r->managed_global || r->access_host != 0;
}

CUresult aq_fe_side_check(struct aq_fe_ctx *ctx, struct aq_fe_side *s, enum aq_fe_as as,
			  enum aq_fe_rw rw, uint64_t width, uint64_t height, uint64_t depth)
{
	struct aq_fe_range r;
	uint64_t extent = 0;
	CUresult res = CUDA_SUCCESS;

	if (s->addr == 0 || !aq_fe_extent(width, height, depth, s->pitch, s->slice, &extent) ||
	    s->addr + extent < s->addr)
		return CUDA_ERROR_INVALID_VALUE;
	s->pageable = as != AQ_FE_AS_DEVICE && !aq_fe_range_find(s->addr, &r);
	if (s->pageable)
		return s->addr < LOWEST_HOST || s->addr + extent > HIGHEST_HOST ||
				       aq_fe_in_arena(s->addr) ||
				       aq_fe_in_arena(s->addr + extent - 1)
			       ? CUDA_ERROR_INVALID_VALUE
			       : CUDA_SUCCESS;
	res = aq_fe_span_check(ctx, s->addr, extent, rw, &r);
	if (res != CUDA_SUCCESS)
		return res;
	if (as == AQ_FE_AS_HOST && !on_host(&r))
		return CUDA_ERROR_INVALID_VALUE;
	s->sync = on_host(&r) || r.sync_memops;
	return CUDA_SUCCESS;
}

/* Rows that follow each other without a gap on both sides are one long row. */
static void flatten(struct aq_fe_copy *c)
{
	if (c->height > 1 && c->dst.pitch == c->width && c->src.pitch == c->width) {
		c->width *= c->height;
		c->height = 1;
	}
	if (c->depth > 1 && c->height == 1 && c->dst.slice == c->width &&
	    c->src.slice == c->width) {
		c->width *= c->depth;
		c->depth = 1;
	}
}

static CUresult run_on_card(struct aq_fe_stream *stream, const struct aq_fe_copy *c)
{
	struct aq_req_copy req = {
		.ctx = stream->ctx->id,
		.stream = stream->id,
		.dst = c->dst.addr,
		.src = c->src.addr,
		.width = c->width,
		.height = c->height,
		.depth = c->depth,
		.dst_pitch = c->dst.pitch,
		.dst_slice = c->dst.slice,
		.src_pitch = c->src.pitch,
		.src_slice = c->src.slice,
	};

	return aq_fe_send(COPY, copy, &req);
}

typedef CUresult (*row_fn)(void *arg, uint64_t dst, uint64_t src, uint64_t bytes);

static CUresult each_row(const struct aq_fe_copy *c, row_fn fn, void *arg)
{
	CUresult res = CUDA_SUCCESS;

	for (uint64_t z = 0; z < c->depth; z++) {
		for (uint64_t y = 0; y < c->height && res == CUDA_SUCCESS; y++)
			res = fn(arg, c->dst.addr + z * c->dst.slice + y * c->dst.pitch,
				 c->src.addr + z * c->src.slice + y * c->src.pitch, c->width);
	}
	return res;
}

static CUresult row_host(void *arg, uint64_t dst, uint64_t src, uint64_t bytes)
{
	(void)arg;
	memmove((void *)dst, (const void *)src, bytes);
	return CUDA_SUCCESS;
}

static CUresult row_write(void *arg, uint64_t dst, uint64_t src, uint64_t bytes)
{
	const struct aq_fe_stream *stream = arg;
	struct aq_req_write req = { stream->ctx->id, stream->id, dst, 0 };
	struct aq_client_msg msg = { AQ_OP_WRITE, &req, sizeof(req), NULL, 0 };
	CUresult res = CUDA_SUCCESS;

	while (bytes > 0 && res == CUDA_SUCCESS) {
		req.size = AQ_MIN(bytes, AQ_WIRE_MAX_INLINE);
		msg.data = (const void *)src;
		msg.data_len = req.size;
		res = aq_fe_result(aq_client_send(aq_fe.client, &msg));
		req.dst += req.size;
		src += req.size;
		bytes -= req.size;
	}
	return res;
}

static CUresult row_read(void *arg, uint64_t dst, uint64_t src, uint64_t bytes)
{
	const struct aq_fe_stream *stream = arg;
	struct aq_req_read req = { stream->ctx->id, stream->id, src, 0 };
	struct aq_client_msg msg = { AQ_OP_READ, &req, sizeof(req), NULL, 0 };
	size_t got = 0;
	CUresult res = CUDA_SUCCESS;

	while (bytes > 0 && res == CUDA_SUCCESS) {
		req.size = AQ_MIN(bytes, AQ_WIRE_MAX_INLINE);
		res = aq_fe_result(aq_client_call(aq_fe.client, &msg, (void *)dst, req.size, &got));
		if (res == CUDA_SUCCESS && got != req.size)
			res = CUDA_ERROR_UNKNOWN;
		dst += req.size;
		req.src += req.size;
		bytes -= req.size;
	}
	return res;
}

/*
 * memcpy(), but not in the sizes for which the C library takes the string instruction: that is slower by a factor of ten and more when
 * the destination lies a few bytes further in its page than the source, as what malloc() gives does to a page. Shorter pieces are moved by vectors.
 */
static void copy_bytes(void *dst, const void *src, uint64_t n)
{
	uint64_t piece = PIECE;
	char *d = dst;
	const char *s = src;

	if (n < STRING_MIN || n >= STRING_MAX) {
		memcpy(d, s, n);
		return;
	}
	/* A size that the compiler knows it would copy by the string instruction itself. */
	__asm__("" : "+r"(piece));
	for (; n > piece; n -= piece, d += piece, s += piece)
		memcpy(d, s, piece);
	memcpy(d, s, n);
}

static CUresult row_into_window(void *arg, uint64_t dst, uint64_t src, uint64_t bytes)
{
	uint64_t room = 0;
	char *to = NULL;

	for (; bytes > 0; dst += room, src += room, bytes -= room) {
		to = aq_fe_window_at(arg, dst, &room);
		room = AQ_MIN(room, bytes);
		copy_bytes(to, (const void *)src, room);
	}
	return CUDA_SUCCESS;
}

static CUresult row_from_window(void *arg, uint64_t dst, uint64_t src, uint64_t bytes)
{
	uint64_t room = 0;
	const char *from = NULL;

	for (; bytes > 0; dst += room, src += room, bytes -= room) {
		from = aq_fe_window_at(arg, src, &room);
		room = AQ_MIN(room, bytes);
		copy_bytes((void *)dst, from, room);
	}
	return CUDA_SUCCESS;
}

static CUresult run_by_ring(struct aq_fe_stream *stream, const struct aq_fe_copy *c, bool async)
{
	CUresult res = CUDA_SUCCESS;

	if (!c->src.pageable)
		return each_row(c, row_read, stream);
	res = each_row(c, row_write, stream);
	return res == CUDA_SUCCESS && !async ? aq_fe_stream_sync(stream) : res;
}

static CUresult run_by_window(struct aq_fe_stream *stream, const struct aq_fe_copy *c,
			      struct aq_fe_window *w, bool async)
{
	bool to_device = c->src.pageable;
	struct aq_req_host_begin begin = { .ctx = stream->ctx->id,
					   .stream = stream->id,
					   .bytes = c->width * c->height * c->depth,
					   .to_device = to_device };
	struct aq_rep_host_begin ticket;
	struct aq_req_host_end end = { 0 };
	struct aq_rep_host_end rep;
	CUresult res = aq_fe_call(HOST_BEGIN, host_begin, &begin, &ticket);

	if (res != CUDA_SUCCESS)
		return res;
	(void)each_row(c, to_device ? row_into_window : row_from_window, w);
	end.ticket = ticket.ticket;
	if (to_device && async)
		return aq_fe_send(HOST_END, host_end, &end);
	return aq_fe_call(HOST_END, host_end, &end, &rep);
}

static CUresult run_pageable(struct aq_fe_stream *stream, const struct aq_fe_copy *c, bool async)
{
	const struct aq_fe_side *card = c->src.pageable ? &c->dst : &c->src;
	struct aq_fe_window w;
	/* Each answer to READ takes a round trip; WRITE has none. */
	uint64_t rows = 0, extent = 0, staged = c->src.pageable ? STAGED_MAX : AQ_WIRE_MAX_INLINE;
	CUresult res = CUDA_SUCCESS;

	if (c->width <= staged && !__builtin_mul_overflow(c->height, c->depth, &rows) &&
	    rows <= STAGED_ROWS && c->width * rows <= staged)
		return run_by_ring(stream, c, async);
	(void)aq_fe_extent(c->width, c->height, c->depth, card->pitch, card->slice, &extent);
	res = aq_fe_window_open(card->addr, extent, &w);
	if (res == CUDA_ERROR_NOT_SUPPORTED)
		return run_by_ring(stream, c, async);
	if (res != CUDA_SUCCESS)
		return res;
	res = run_by_window(stream, c, &w, async);
	aq_fe_window_close(&w);
	return res;
}

CUresult aq_fe_copy_run(struct aq_fe_stream *stream, struct aq_fe_copy *c, bool async)
{
	CUresult res = CUDA_SUCCESS;

	flatten(c);
	if (c->src.pageable && c->dst.pageable) {
		res = aq_fe_stream_sync(stream);
		return res == CUDA_SUCCESS ? each_row(c, row_host, NULL) : res;
	}
	if (c->src.pageable || c->dst.pageable)
		return run_pageable(stream, c, async);
	res = run_on_card(stream, c);
	/* Device to device is asynchronous even in the synchronous calls. */
	if (res == CUDA_SUCCESS && !async && (c->src.sync || c->dst.sync))
		res = aq_fe_stream_sync(stream);
	return res;
}

CUresult aq_fe_copy_linear(struct aq_fe_ctx *ctx, struct aq_fe_stream *stream, uint64_t dst,
			   enum aq_fe_as dst_as, uint64_t src, enum aq_fe_as src_as, uint64_t size,
			   bool async)
{
	struct aq_fe_copy c = { .dst = { .addr = dst },
				.src = { .addr = src },
				.width = size,
				.height = 1,
				.depth = 1 };
	CUresult res = CUDA_SUCCESS;

	if (size == 0)
		return CUDA_SUCCESS;
	res = aq_fe_side_check(ctx, &c.dst, dst_as, AQ_FE_WRITE, size, 1, 1);
	if (res == CUDA_SUCCESS)
		res = aq_fe_side_check(ctx, &c.src, src_as, AQ_FE_READ, size, 1, 1);
	return res == CUDA_SUCCESS ? aq_fe_copy_run(stream, &c, async) : res;
}

CUresult aq_fe_copy_enter(CUstream handle, struct aq_fe_ctx **ret_ctx,
			  struct aq_fe_stream **ret_stream)
{
	CUresult res = aq_fe_enter_ctx(ret_ctx);

	return res == CUDA_SUCCESS ? aq_fe_stream(handle, *ret_ctx, ret_stream) : res;
}

/* Synchronous calls go to the default stream: the legacy one, or the thread's own behind a _ptds entry. */
static CUresult linear(uint64_t dst, enum aq_fe_as dst_as, uint64_t src, enum aq_fe_as src_as,
		       uint64_t size, CUstream handle, bool async)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	CUresult res = aq_fe_copy_enter(handle, &ctx, &stream);

	if (res != CUDA_SUCCESS)
		return res;
	return aq_fe_copy_linear(ctx, stream, dst, dst_as, src, src_as, size, async);
}

AQ_EXPORT CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return linear(dst, AQ_FE_AS_UNIFIED, src, AQ_FE_AS_UNIFIED, ByteCount, NULL, false);
}

AQ_EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount,
				 CUstream hStream)
{
	return linear(dst, AQ_FE_AS_UNIFIED, src, AQ_FE_AS_UNIFIED, ByteCount, hStream, true);
}

AQ_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	return linear(dstDevice, AQ_FE_AS_DEVICE, (uintptr_t)srcHost, AQ_FE_AS_HOST, ByteCount,
		      NULL, false);
}

AQ_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost,
					size_t ByteCount, CUstream hStream)
{
	return linear(dstDevice, AQ_FE_AS_DEVICE, (uintptr_t)srcHost, AQ_FE_AS_HOST, ByteCount,
		      hStream, true);
}

AQ_EXPORT CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return linear((uintptr_t)dstHost, AQ_FE_AS_HOST, srcDevice, AQ_FE_AS_DEVICE, ByteCount,
		      NULL, false);
}

AQ_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
					CUstream hStream)
{
	return linear((uintptr_t)dstHost, AQ_FE_AS_HOST, srcDevice, AQ_FE_AS_DEVICE, ByteCount,
		      hStream, true);
}

AQ_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return linear(dstDevice, AQ_FE_AS_DEVICE, srcDevice, AQ_FE_AS_DEVICE, ByteCount, NULL,
		      false);
}

AQ_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice,
					size_t ByteCount, CUstream hStream)
{
	return linear(dstDevice, AQ_FE_AS_DEVICE, srcDevice, AQ_FE_AS_DEVICE, ByteCount, hStream,
		      true);
}

CUresult aq_fe_ctx_wait(struct aq_fe_ctx *ctx)
{
	struct aq_req_ctx_sync req = { ctx->id, 0 };
	struct aq_rep_ctx_sync rep;
	CUresult res = aq_fe_call(CTX_SYNC, ctx_sync, &req, &rep);

	if (res == CUDA_SUCCESS)
		aq_fe_pool_ctx_synced(ctx);
	return res;
}

/*
 * A peer copy is ordered against the work of three contexts. The synchronous form waits for the other two before and for the copy
 * afterwards; the asynchronous one is ordered by its stream alone.
 */
CUresult aq_fe_peer_enter(CUcontext dst, CUcontext src, CUstream handle, bool async,
			  struct aq_fe_peer *ret)
{
	struct aq_fe_ctx *ctx = NULL;
	CUresult res = aq_fe_copy_enter(handle, &ctx, &ret->stream);

	if (res != CUDA_SUCCESS)
		return res;
	if (!dst || !src)
		return CUDA_ERROR_INVALID_CONTEXT;
	res = aq_fe_ctx_get(dst, &ret->dst);
	if (res == CUDA_SUCCESS)
		res = aq_fe_ctx_get(src, &ret->src);
	if (res != CUDA_SUCCESS || async)
		return res;
	if (ret->dst != ctx)
		res = aq_fe_ctx_wait(ret->dst);
	if (res == CUDA_SUCCESS && ret->src != ctx && ret->src != ret->dst)
		res = aq_fe_ctx_wait(ret->src);
	return res;
}

static CUresult peer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
		     size_t size, CUstream handle, bool async)
{
	struct aq_fe_copy c = { .dst = { .addr = dst },
				.src = { .addr = src },
				.width = size,
				.height = 1,
				.depth = 1 };
	struct aq_fe_peer p = { 0 };
	CUresult res = aq_fe_peer_enter(dst_ctx, src_ctx, handle, async, &p);

	if (res != CUDA_SUCCESS || size == 0)
		return res;
	res = aq_fe_side_check(p.dst, &c.dst, AQ_FE_AS_DEVICE, AQ_FE_WRITE, size, 1, 1);
	if (res == CUDA_SUCCESS)
		res = aq_fe_side_check(p.src, &c.src, AQ_FE_AS_DEVICE, AQ_FE_READ, size, 1, 1);
	if (res == CUDA_SUCCESS)
		res = aq_fe_copy_run(p.stream, &c, async);
	if (res == CUDA_SUCCESS && !async)
		res = aq_fe_stream_sync(p.stream);
	return res;
}

AQ_EXPORT CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
				CUcontext srcContext, size_t ByteCount)
{
	return peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, NULL, false);
}

AQ_EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext,
				     CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount,
				     CUstream hStream)
{
	return peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream, true);
}
