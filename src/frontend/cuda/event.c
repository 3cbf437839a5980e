/* SPDX-License-Identifier: Apache-2.0 */
/* Events, and the two calls that record or await one for a whole context. */
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <stdlib.h>

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

CUresult aq_fe_event_new(struct aq_fe_ctx *ctx, unsigned flags, struct aq_fe_event **ret_event)
{
	struct aq_fe_event *e = aligned_alloc(16, aq_align_up(sizeof(*e), 16));

	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*e = (struct aq_fe_event){ .ctx = ctx, .id = aq_fe_id_new(AQ_FE_ID_EVENT), .flags = flags };
	aq_list_init(&e->in_ctx);
	if (e->id == 0 || !aq_fe_handle_add(AQ_FE_EVENT, e)) {
		aq_fe_id_free(AQ_FE_ID_EVENT, e->id);
		free(e);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	(void)pthread_mutex_lock(&ctx->lock);
	aq_list_push_back(&ctx->events, &e->in_ctx);
	(void)pthread_mutex_unlock(&ctx->lock);
	*ret_event = e;
	return CUDA_SUCCESS;
}

/* The handle has been removed. */
static void event_end(struct aq_fe_event *e)
{
	(void)pthread_mutex_lock(&e->ctx->lock);
	aq_list_remove(&e->in_ctx);
	(void)pthread_mutex_unlock(&e->ctx->lock);
	aq_fe_id_free(AQ_FE_ID_EVENT, e->id);
	free(e);
}

void aq_fe_event_free(struct aq_fe_event *e)
{
	if (aq_fe_handle_remove(AQ_FE_EVENT, e))
		event_end(e);
}

void aq_fe_events_ctx_gone(struct aq_fe_ctx *ctx)
{
	struct aq_fe_event *e;
	struct aq_fe_event *next;

	(void)pthread_mutex_lock(&ctx->lock);
	aq_list_for_each_safe(e, next, &ctx->events, in_ctx) {
		aq_list_remove(&e->in_ctx);
		(void)aq_fe_handle_remove(AQ_FE_EVENT, e);
		aq_fe_id_free(AQ_FE_ID_EVENT, e->id);
		free(e);
	}
	(void)pthread_mutex_unlock(&ctx->lock);
}

CUresult aq_fe_event_get(CUevent handle, struct aq_fe_event **ret_event)
{
	struct aq_fe_event *e = aq_fe_handle_get(AQ_FE_EVENT, handle);

	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_event = e;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuEventCreate(CUevent *ret, unsigned flags)
{
	struct aq_req_event_create req = { 0 };
	struct aq_fe_ctx *ctx;
	struct aq_fe_event *e;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret || (flags & ~(unsigned)EVENT_FLAGS) ||
	    ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_event_new(ctx, flags, &e);
	if (rc != CUDA_SUCCESS)
		return rc;
	req.ctx = ctx->id;
	req.event = e->id;
	req.flags = flags;
	rc = aq_fe_send(EVENT_CREATE, event_create, &req);
	if (rc != CUDA_SUCCESS) {
		aq_fe_event_free(e);
		return rc;
	}
	*ret = (CUevent)e;
	return CUDA_SUCCESS;
}

/* Needs no current context: the event knows its own. */
static CUresult enter_event(CUevent handle, struct aq_fe_event **ret)
{
	CUresult rc = aq_fe_enter();

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_event_get(handle, ret);
	return rc == CUDA_SUCCESS ? aq_fe_ctx_status((*ret)->ctx) : rc;
}

AQ_EXPORT CUresult cuEventDestroy_v2(CUevent handle)
{
	struct aq_req_event_destroy req = { 0 };
	struct aq_fe_event *e = NULL;
	CUresult rc = enter_event(handle, &e);
	CUresult sent;

	if (!e || rc == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return rc;
	if (!aq_fe_handle_remove(AQ_FE_EVENT, e))
		return CUDA_ERROR_INVALID_HANDLE;
	req.event = e->id;
	sent = aq_fe_send(EVENT_DESTROY, event_destroy, &req);
	event_end(e);
	return rc != CUDA_SUCCESS ? rc : sent;
}

AQ_EXPORT CUresult cuEventDestroy(CUevent handle)
{
	return cuEventDestroy_v2(handle);
}

AQ_EXPORT CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags)
{
	struct aq_req_event_record req = { 0 };
	struct aq_fe_ctx *ctx;
	struct aq_fe_stream *s;
	struct aq_fe_event *e;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_event_get(handle, &e);
	if (rc == CUDA_SUCCESS)
		rc = aq_fe_stream(stream_handle, ctx, &s);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (flags != CU_EVENT_RECORD_DEFAULT) /* "external" means something while capturing only */
		return CUDA_ERROR_INVALID_VALUE;
	if (e->ctx != s->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	req.ctx = s->ctx->id;
	req.stream = s->id;
	req.event = e->id;
	rc = aq_fe_send(EVENT_RECORD, event_record, &req);
	if (rc == CUDA_SUCCESS)
		atomic_store_explicit(&e->recorded, true, memory_order_release);
	return rc;
}

AQ_EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream_handle)
{
	return cuEventRecordWithFlags(handle, stream_handle, CU_EVENT_RECORD_DEFAULT);
}

AQ_EXPORT CUresult cuEventQuery(CUevent handle)
{
	struct aq_req_event_query req = { 0 };
	struct aq_rep_event_query rep;
	struct aq_fe_event *e;
	CUresult rc = enter_event(handle, &e);

	if (rc != CUDA_SUCCESS)
		return rc;
	req.event = e->id;
	return aq_fe_call(EVENT_QUERY, event_query, &req, &rep);
}

AQ_EXPORT CUresult cuEventSynchronize(CUevent handle)
{
	struct aq_req_event_sync req = { 0 };
	struct aq_rep_event_sync rep;
	struct aq_fe_event *e;
	CUresult rc = enter_event(handle, &e);

	if (rc != CUDA_SUCCESS)
		return rc;
	req.event = e->id;
	return aq_fe_call(EVENT_SYNC, event_sync, &req, &rep);
}

AQ_EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	struct aq_req_event_elapsed req = { 0 };
	struct aq_rep_event_elapsed rep;
	struct aq_fe_event *a;
	struct aq_fe_event *b;
	CUresult rc = enter_event(start, &a);

	if (rc == CUDA_SUCCESS)
		rc = enter_event(end, &b);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	if ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	if (a->ctx != b->ctx || !atomic_load(&a->recorded) || !atomic_load(&b->recorded))
		return CUDA_ERROR_INVALID_HANDLE;
	req.start = a->id;
	req.end = b->id;
	rc = aq_fe_call(EVENT_ELAPSED, event_elapsed, &req, &rep);
	if (rc == CUDA_SUCCESS)
		*ms = (float)((double)rep.ns / 1e6);
	return rc;
}

AQ_EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	return cuEventElapsedTime_v2(ms, start, end);
}

/* ---- events of a whole context ----
 *
 * A hidden stream of the context, blocking nobody, gathers: it waits for a passing event in each stream, and what is recorded in it then is
 * complete when they all are. It is made at the first need; gate_event is what streams made later wait for.
 */
static CUresult gate_make_locked(struct aq_fe_ctx *ctx)
{
	struct aq_req_stream_create sreq = { .ctx = ctx->id, .flags = AQ_STREAM_NON_BLOCKING };

	if (ctx->gate_stream != 0)
		return CUDA_SUCCESS;
	ctx->gate_stream = aq_fe_id_new(AQ_FE_ID_STREAM);
	if (ctx->gate_stream == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sreq.stream = ctx->gate_stream;
	return aq_fe_send(STREAM_CREATE, stream_create, &sreq);
}

static CUresult event_make(struct aq_fe_ctx *ctx, uint32_t *ret_id)
{
	struct aq_req_event_create req = { .ctx = ctx->id,
					   .event = aq_fe_id_new(AQ_FE_ID_EVENT),
					   .flags = CU_EVENT_DISABLE_TIMING };

	if (req.event == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_id = req.event;
	return aq_fe_send(EVENT_CREATE, event_create, &req);
}

static CUresult record(struct aq_fe_ctx *ctx, uint32_t stream, uint32_t event)
{
	struct aq_req_event_record req = { .ctx = ctx->id, .stream = stream, .event = event };

	return aq_fe_send(EVENT_RECORD, event_record, &req);
}

static CUresult await(struct aq_fe_ctx *ctx, uint32_t stream, uint32_t event)
{
	struct aq_req_stream_wait_event req = { .ctx = ctx->id, .stream = stream, .event = event };

	return aq_fe_send(STREAM_WAIT_EVENT, stream_wait_event, &req);
}

static CUresult gather_locked(struct aq_fe_ctx *ctx, uint32_t target)
{
	struct aq_req_event_destroy destroy = { 0 };
	struct aq_fe_stream *s;
	uint32_t passing = 0;
	CUresult rc = gate_make_locked(ctx);

	if (rc == CUDA_SUCCESS)
		rc = event_make(ctx, &passing);
	if (rc == CUDA_SUCCESS)
		rc = record(ctx, AQ_STREAM_LEGACY, passing);
	if (rc == CUDA_SUCCESS)
		rc = await(ctx, ctx->gate_stream, passing);
	aq_list_for_each(s, &ctx->streams, in_ctx) {
		if (rc == CUDA_SUCCESS)
			rc = record(ctx, s->id, passing);
		if (rc == CUDA_SUCCESS)
			rc = await(ctx, ctx->gate_stream, passing);
	}
	if (rc == CUDA_SUCCESS)
		rc = record(ctx, ctx->gate_stream, target);
	if (passing != 0) {
		destroy.event = passing;
		(void)aq_fe_send(EVENT_DESTROY, event_destroy, &destroy);
		aq_fe_id_free(AQ_FE_ID_EVENT, passing);
	}
	return rc;
}

static CUresult enter_ctx_event(CUcontext handle, CUevent event, struct aq_fe_ctx **ret_ctx,
				struct aq_fe_event **ret_event)
{
	CUresult rc = aq_fe_enter();

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_ctx_get(handle, ret_ctx);
	if (rc == CUDA_SUCCESS)
		rc = aq_fe_ctx_status(*ret_ctx);
	return rc == CUDA_SUCCESS ? aq_fe_event_get(event, ret_event) : rc;
}

AQ_EXPORT CUresult cuCtxRecordEvent(CUcontext handle, CUevent event)
{
	struct aq_fe_ctx *ctx;
	struct aq_fe_event *e;
	CUresult rc = enter_ctx_event(handle, event, &ctx, &e);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (e->ctx != ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	(void)pthread_mutex_lock(&ctx->lock);
	rc = gather_locked(ctx, e->id);
	(void)pthread_mutex_unlock(&ctx->lock);
	if (rc == CUDA_SUCCESS)
		atomic_store_explicit(&e->recorded, true, memory_order_release);
	return rc;
}

static CUresult await_everywhere_locked(struct aq_fe_ctx *ctx, uint32_t event)
{
	struct aq_fe_stream *s;
	CUresult rc = gate_make_locked(ctx);

	if (rc == CUDA_SUCCESS && ctx->gate_event == 0)
		rc = event_make(ctx, &ctx->gate_event);
	if (rc == CUDA_SUCCESS)
		rc = await(ctx, AQ_STREAM_LEGACY, event);
	aq_list_for_each(s, &ctx->streams, in_ctx)
		if (rc == CUDA_SUCCESS)
			rc = await(ctx, s->id, event);
	if (rc == CUDA_SUCCESS)
		rc = await(ctx, ctx->gate_stream, event);
	return rc == CUDA_SUCCESS ? record(ctx, ctx->gate_stream, ctx->gate_event) : rc;
}

AQ_EXPORT CUresult cuCtxWaitEvent(CUcontext handle, CUevent event)
{
	struct aq_fe_ctx *ctx;
	struct aq_fe_event *e;
	CUresult rc = enter_ctx_event(handle, event, &ctx, &e);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!e->imported && !atomic_load_explicit(&e->recorded, memory_order_acquire))
		return CUDA_SUCCESS;
	(void)pthread_mutex_lock(&ctx->lock);
	rc = await_everywhere_locked(ctx, e->id);
	(void)pthread_mutex_unlock(&ctx->lock);
	return rc;
}
