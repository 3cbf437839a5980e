/* SPDX-License-Identifier: Apache-2.0 */
/* Streams. The per-thread default stream is an ordinary blocking one that each thread makes for each context when it first needs it. */
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <stdlib.h>

struct aq_fe_thread_stream {
	struct aq_fe_thread_stream *next;
	struct aq_fe_ctx *ctx;
	unsigned long long ctx_id; /* tells two lives of a context apart */
	struct aq_fe_stream *stream;
	unsigned long long stream_id;
};

/* ---- making and ending ---- */

/* Later streams of a context that waits for an event (cuCtxWaitEvent) wait for it too. */
static CUresult send_create(struct aq_fe_stream *s)
{
	struct aq_req_stream_create req = { .ctx = s->ctx->id,
					    .stream = s->id,
					    .flags = s->flags & CU_STREAM_NON_BLOCKING
							     ? AQ_STREAM_NON_BLOCKING
							     : 0,
					    .priority = s->priority };
	struct aq_req_stream_wait_event wait = { .ctx = s->ctx->id, .stream = s->id };
	CUresult rc = aq_fe_send(STREAM_CREATE, stream_create, &req);

	wait.event = s->ctx->gate_event;
	if (rc == CUDA_SUCCESS && wait.event != 0)
		rc = aq_fe_send(STREAM_WAIT_EVENT, stream_wait_event, &wait);
	return rc;
}

CUresult aq_fe_stream_new(struct aq_fe_ctx *ctx, unsigned flags, int priority,
			  struct aq_fe_stream **ret)
{
	struct aq_fe_stream *s = aligned_alloc(16, aq_align_up(sizeof(*s), 16));
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;

	if (!s)
		return rc;
	*s = (struct aq_fe_stream){ .ctx = ctx,
				    .id = aq_fe_id_new(AQ_FE_ID_STREAM),
				    .flags = flags,
				    .priority = priority,
				    .unique_id = aq_fe_unique_id() };
	aq_list_init(&s->in_ctx);
	if (s->id != 0 && aq_fe_handle_add(AQ_FE_STREAM, s)) {
		(void)pthread_mutex_lock(&ctx->lock);
		aq_list_push_back(&ctx->streams, &s->in_ctx);
		rc = send_create(s);
		if (rc != CUDA_SUCCESS)
			aq_list_remove(&s->in_ctx);
		(void)pthread_mutex_unlock(&ctx->lock);
		if (rc != CUDA_SUCCESS)
			(void)aq_fe_handle_remove(AQ_FE_STREAM, s);
	}
	if (rc != CUDA_SUCCESS) {
		aq_fe_id_free(AQ_FE_ID_STREAM, s->id);
		free(s);
		return rc;
	}
	*ret = s;
	return CUDA_SUCCESS;
}

/* Of a stream whose handle the caller has removed. */
static CUresult stream_end(struct aq_fe_stream *s)
{
	struct aq_fe_ctx *ctx = s->ctx;
	struct aq_req_stream_destroy req = { .ctx = ctx->id, .stream = s->id };
	CUresult rc;

	aq_fe_pool_stream_gone(s);
	(void)pthread_mutex_lock(&ctx->lock);
	aq_list_remove(&s->in_ctx);
	(void)pthread_mutex_unlock(&ctx->lock);
	rc = aq_fe_send(STREAM_DESTROY, stream_destroy, &req);
	aq_fe_id_free(AQ_FE_ID_STREAM, s->id);
	aq_fe_stream_attrs_free(s);
	free(s);
	return rc;
}

void aq_fe_streams_ctx_gone(struct aq_fe_ctx *ctx)
{
	struct aq_fe_stream *s;
	struct aq_fe_stream *next;

	(void)pthread_mutex_lock(&ctx->lock);
	aq_list_for_each_safe(s, next, &ctx->streams, in_ctx) {
		aq_list_remove(&s->in_ctx);
		(void)aq_fe_handle_remove(AQ_FE_STREAM, s);
		aq_fe_id_free(AQ_FE_ID_STREAM, s->id);
		aq_fe_stream_attrs_free(s);
		free(s);
	}
	aq_fe_stream_attrs_free(&ctx->legacy);
	(void)pthread_mutex_unlock(&ctx->lock);
}

void aq_fe_stream_forked(void)
{
}

/* ---- the per-thread default stream ---- */

static CUresult thread_stream(struct aq_fe_ctx *ctx, struct aq_fe_stream **ret)
{
	struct aq_fe_thread *t = &aq_fe_self;
	struct aq_fe_thread_stream *node;
	CUresult rc;

	aq_fe_thread_register();
	for (node = t->streams; node; node = node->next) {
		if (node->ctx == ctx && node->ctx_id == ctx->unique_id) {
			*ret = node->stream;
			return CUDA_SUCCESS;
		}
		if (node->ctx == ctx)
			break; /* of an earlier life: its stream is gone */
	}
	if (!node) {
		node = calloc(1, sizeof(*node));
		if (!node)
			return CUDA_ERROR_OUT_OF_MEMORY;
		node->next = t->streams;
		t->streams = node;
	}
	node->ctx = ctx;
	node->ctx_id = 0;
	rc = aq_fe_stream_new(ctx, CU_STREAM_DEFAULT, AQ_FE_PRIORITY_LEAST, &node->stream);
	if (rc != CUDA_SUCCESS)
		return rc;
	node->ctx_id = ctx->unique_id;
	node->stream_id = node->stream->unique_id;
	*ret = node->stream;
	return CUDA_SUCCESS;
}

/*
 * The stream of a node may have gone with its context, and its address may be another stream's by now: the identifier tells. A context that is
 * just being destroyed takes its streams along by itself.
 */
void aq_fe_thread_streams_done(struct aq_fe_thread *t)
{
	(void)pthread_mutex_lock(&aq_fe_ctx_lock);
	while (t->streams) {
		struct aq_fe_thread_stream *node = t->streams;
		struct aq_fe_stream *s = aq_fe_handle_get(AQ_FE_STREAM, node->stream);

		t->streams = node->next;
		if (s && s->unique_id == node->stream_id && atomic_load(&s->ctx->alive) &&
		    aq_fe_handle_remove(AQ_FE_STREAM, s))
			(void)stream_end(s);
		free(node);
	}
	(void)pthread_mutex_unlock(&aq_fe_ctx_lock);
}

CUresult aq_fe_stream(CUstream handle, struct aq_fe_ctx *ctx, struct aq_fe_stream **ret_stream)
{
	struct aq_fe_stream *s;

	if (handle == CU_STREAM_PER_THREAD || (!handle && aq_fe_ptds))
		return thread_stream(ctx, ret_stream);
	if (!handle || handle == CU_STREAM_LEGACY) {
		*ret_stream = &ctx->legacy;
		return CUDA_SUCCESS;
	}
	s = aq_fe_handle_get(AQ_FE_STREAM, handle);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!atomic_load_explicit(&s->ctx->alive, memory_order_acquire))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_stream = s;
	return CUDA_SUCCESS;
}

/* The stream and, where it is another context's, that one's sticky error. */
static CUresult enter_stream(CUstream handle, struct aq_fe_stream **ret_stream)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_stream(handle, ctx, ret_stream);
	if (rc == CUDA_SUCCESS && (*ret_stream)->ctx != ctx)
		rc = aq_fe_ctx_status((*ret_stream)->ctx);
	return rc;
}

/* ---- entry points ---- */

AQ_EXPORT CUresult cuStreamCreateWithPriority(CUstream *ret, unsigned flags, int priority)
{
	struct aq_fe_ctx *ctx;
	struct aq_fe_stream *s;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	priority = AQ_MIN(AQ_MAX(priority, AQ_FE_PRIORITY_GREATEST), AQ_FE_PRIORITY_LEAST);
	rc = aq_fe_stream_new(ctx, flags, priority, &s);
	if (rc == CUDA_SUCCESS)
		*ret = (CUstream)s;
	return rc;
}

AQ_EXPORT CUresult cuStreamCreate(CUstream *ret, unsigned flags)
{
	return cuStreamCreateWithPriority(ret, flags, AQ_FE_PRIORITY_LEAST);
}

AQ_EXPORT CUresult cuStreamDestroy_v2(CUstream handle)
{
	CUresult rc = aq_fe_enter();
	struct aq_fe_stream *s;
	CUresult status;

	if (rc != CUDA_SUCCESS)
		return rc;
	s = aq_fe_handle_get(AQ_FE_STREAM, handle);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	status = aq_fe_ctx_status(s->ctx);
	if (status == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return status;
	if (!aq_fe_handle_remove(AQ_FE_STREAM, s))
		return CUDA_ERROR_INVALID_HANDLE;
	rc = stream_end(s);
	return status != CUDA_SUCCESS ? status : rc;
}

AQ_EXPORT CUresult cuStreamDestroy(CUstream handle)
{
	return cuStreamDestroy_v2(handle);
}

AQ_EXPORT CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
	struct aq_fe_stream *s;
	CUresult rc = enter_stream(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!priority)
		return CUDA_ERROR_INVALID_VALUE;
	*priority = s->priority;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned *flags)
{
	struct aq_fe_stream *s;
	CUresult rc = enter_stream(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = s->flags;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
	struct aq_fe_stream *s;
	CUresult rc = enter_stream(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = s->unique_id;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
	struct aq_fe_stream *s;
	CUresult rc = enter_stream(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = s->ctx->dev->ordinal;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *pctx, CUgreenCtx *pgreen)
{
	struct aq_fe_stream *s;
	CUresult rc = enter_stream(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = (CUcontext)s->ctx;
	if (pgreen)
		*pgreen = NULL;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *pctx)
{
	return cuStreamGetCtx_v2(handle, pctx, NULL);
}

AQ_EXPORT CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *pgreen)
{
	struct aq_fe_stream *s;
	CUresult rc = enter_stream(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!pgreen)
		return CUDA_ERROR_INVALID_VALUE;
	*pgreen = NULL;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags)
{
	struct aq_req_stream_wait_event req = { 0 };
	struct aq_fe_stream *s;
	struct aq_fe_event *e;
	CUresult rc = enter_stream(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	rc = aq_fe_event_get(event_handle, &e);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (flags != CU_EVENT_WAIT_DEFAULT) /* "external" means something while capturing only */
		return CUDA_ERROR_INVALID_VALUE;
	if (!e->imported && !atomic_load_explicit(&e->recorded, memory_order_acquire))
		return CUDA_SUCCESS;
	req.ctx = s->ctx->id;
	req.stream = s->id;
	req.event = e->id;
	return aq_fe_send(STREAM_WAIT_EVENT, stream_wait_event, &req);
}

AQ_EXPORT CUresult cuStreamQuery(CUstream handle)
{
	struct aq_req_stream_query req = { 0 };
	struct aq_rep_stream_query rep;
	struct aq_fe_stream *s;
	CUresult rc = enter_stream(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	req.ctx = s->ctx->id;
	req.stream = s->id;
	rc = aq_fe_call(STREAM_QUERY, stream_query, &req, &rep);
	if (rc == CUDA_SUCCESS)
		aq_fe_pool_stream_synced(s);
	return rc;
}

CUresult aq_fe_stream_sync(struct aq_fe_stream *s)
{
	struct aq_req_stream_sync req = { .ctx = s->ctx->id, .stream = s->id };
	struct aq_rep_stream_sync rep;
	CUresult rc = aq_fe_call(STREAM_SYNC, stream_sync, &req, &rep);

	if (rc == CUDA_SUCCESS)
		aq_fe_pool_stream_synced(s);
	return rc;
}

AQ_EXPORT CUresult cuStreamSynchronize(CUstream handle)
{
	struct aq_fe_stream *s;
	CUresult rc = enter_stream(handle, &s);

	return rc == CUDA_SUCCESS ? aq_fe_stream_sync(s) : rc;
}

/* ---- capture: there are no graphs yet, so nothing ever captures ---- */

AQ_EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	struct aq_fe_stream *s;
	CUresult rc = enter_stream(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

/* Nothing but the status is written for a stream that does not capture. */
AQ_EXPORT CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status,
					  cuuint64_t *id)
{
	(void)id;
	return cuStreamIsCapturing(handle, status);
}

AQ_EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status,
					     cuuint64_t *id, CUgraph *graph,
					     const CUgraphNode **dependencies, size_t *n)
{
	(void)id;
	(void)graph;
	(void)dependencies;
	(void)n;
	return cuStreamIsCapturing(handle, status);
}

AQ_EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status,
					     cuuint64_t *id, CUgraph *graph,
					     const CUgraphNode **dependencies,
					     const CUgraphEdgeData **edges, size_t *n)
{
	(void)id;
	(void)graph;
	(void)dependencies;
	(void)edges;
	(void)n;
	return cuStreamIsCapturing(handle, status);
}

AQ_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	static __thread CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
	CUresult rc = aq_fe_enter();
	CUstreamCaptureMode old = current;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	current = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
