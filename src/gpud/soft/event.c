/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. Each record of an event is an object of its own: who waits, waits for the record that was the latest when he came, whatever happens to
 * the event later.
 */
#include "base/clock.h"
#include "gpud/soft/soft.h"

#include <errno.h>
#include <stdlib.h>

void aq_record_unref(struct aq_record *r)
{
	if (r && --r->refs == 0)
		free(r);
}

void aq_record_done(struct aq_record *r, enum aq_status status)
{
	struct aq_waiter *w;
	struct aq_waiter *wtmp;
	struct aq_cmd *cmd;
	struct aq_cmd *ctmp;

	r->done = true;
	r->status = status;
	r->time_ns = aq_now_ns();
	aq_list_for_each_safe(cmd, ctmp, &r->cmds, wait_link) {
		aq_list_remove(&cmd->wait_link);
		aq_stream_kick(cmd->stream);
	}
	aq_list_for_each_safe(w, wtmp, &r->waiters, link)
		aq_waiter_answer(w, status);
}

struct aq_event_core *aq_event_core_ref(struct aq_event_core *core)
{
	core->refs++;
	return core;
}

void aq_event_core_unref(struct aq_event_core *core)
{
	if (--core->refs)
		return;
	aq_record_unref(core->record);
	free(core);
}

int aq_event_add(struct aq_soft_ctx *ctx, uint32_t id, struct aq_event_core *core)
{
	struct aq_soft_session *s = ctx->session;
	struct aq_event *ev;
	int rc;

	if (!aq_idtab_is_free(&s->events, id))
		return -EINVAL;
	ev = calloc(1, sizeof(*ev));
	if (!ev)
		return -ENOMEM;
	rc = aq_idtab_set(&s->events, id, ev);
	if (rc < 0) {
		free(ev);
		return rc;
	}
	ev->id = id;
	ev->ctx = ctx;
	(void)pthread_mutex_lock(&s->soft->lock);
	if (core)
		ev->core = aq_event_core_ref(core);
	else
		ev->core = calloc(1, sizeof(*ev->core));
	if (ev->core) {
		ev->core->refs += core ? 0 : 1;
		aq_list_push_back(&ctx->events, &ev->ctx_link);
	}
	(void)pthread_mutex_unlock(&s->soft->lock);
	if (ev->core)
		return 0;
	aq_idtab_clear(&s->events, id);
	free(ev);
	return -ENOMEM;
}

/* The session's thread, no lock held. */
void aq_event_free(struct aq_soft_session *s, struct aq_event *ev)
{
	aq_idtab_clear(&s->events, ev->id);
	if (ev->export)
		aq_export_free(s->soft, ev->export);
	(void)pthread_mutex_lock(&s->soft->lock);
	aq_list_remove(&ev->ctx_link);
	aq_event_core_unref(ev->core);
	(void)pthread_mutex_unlock(&s->soft->lock);
	free(ev);
}

/* ---- messages ---- */

int aq_soft_event_create(void *session, const struct aq_request *request,
			 struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_event_create *req = request->req;
	struct aq_soft_ctx *ctx = aq_ctx_get(s, req->ctx);
	int rc;

	(void)ans;
	if (!ctx)
		return AQ_E_CONTEXT_GONE;
	rc = aq_event_add(ctx, req->event, NULL);
	if (rc < 0)
		return rc == -ENOMEM ? AQ_E_NO_MEMORY : AQ_E_INVALID;
	return AQ_OK;
}

int aq_soft_event_destroy(void *session, const struct aq_request *request,
			  struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_event_destroy *req = request->req;
	struct aq_event *ev = aq_idtab_get(&s->events, req->event);

	(void)ans;
	if (!ev)
		return AQ_E_NOT_FOUND;
	aq_event_free(s, ev);
	return AQ_OK;
}

int aq_soft_event_record(void *session, const struct aq_request *request,
			 struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_event_record *req = request->req;
	struct aq_event *ev = aq_idtab_get(&s->events, req->event);
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	struct aq_record *r;
	struct aq_cmd *cmd;
	enum aq_status status = aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (status != AQ_OK || !ev)
		return status != AQ_OK ? (int)status : AQ_E_NOT_FOUND;
	status = aq_queue_wait(s);
	if (status != AQ_OK)
		return (int)status;
	cmd = aq_cmd_new(st, AQ_CMD_RECORD, AQ_WIRE_NO_SLOT);
	r = calloc(1, sizeof(*r));
	if (!cmd || !r) {
		free(cmd);
		free(r);
		return AQ_E_NO_MEMORY;
	}
	r->refs = 2; /* the command's and the event's */
	aq_list_init(&r->cmds);
	aq_list_init(&r->waiters);
	cmd->u.record = r;
	(void)pthread_mutex_lock(&s->soft->lock);
	aq_record_unref(ev->core->record);
	ev->core->record = r;
	(void)pthread_mutex_unlock(&s->soft->lock);
	return aq_cmd_submit(cmd);
}

int aq_soft_stream_wait_event(void *session, const struct aq_request *request,
			      struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_stream_wait_event *req = request->req;
	struct aq_event *ev = aq_idtab_get(&s->events, req->event);
	struct aq_record *r;
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	struct aq_cmd *cmd;
	enum aq_status status = aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (status != AQ_OK || !ev)
		return status != AQ_OK ? (int)status : AQ_E_NOT_FOUND;
	status = aq_queue_wait(s);
	if (status != AQ_OK)
		return (int)status;
	cmd = aq_cmd_new(st, AQ_CMD_WAIT, AQ_WIRE_NO_SLOT);
	if (!cmd)
		return AQ_E_NO_MEMORY;
	(void)pthread_mutex_lock(&s->soft->lock);
	r = ev->core->record;
	if (r && r->done)
		r = NULL;
	if (r)
		r->refs++;
	(void)pthread_mutex_unlock(&s->soft->lock);
	if (!r) {
		free(cmd);
		return AQ_OK;
	}
	cmd->u.record = r;
	return aq_cmd_submit(cmd);
}

int aq_soft_event_sync(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_event_sync *req = request->req;
	struct aq_event *ev = aq_idtab_get(&s->events, req->event);
	struct aq_record *r;
	int rc = AQ_OK;

	(void)ans;
	if (request->slot == AQ_WIRE_NO_SLOT)
		return AQ_E_INVALID;
	if (!ev)
		return AQ_E_NOT_FOUND;
	(void)pthread_mutex_lock(&s->soft->lock);
	r = ev->core->record;
	if (r && r->done)
		rc = (int)r->status;
	else if (r)
		rc = aq_waiter_new(s, &r->waiters, request->slot) ? AQ_GPUD_LATER : AQ_E_NO_MEMORY;
	(void)pthread_mutex_unlock(&s->soft->lock);
	return rc;
}

int aq_soft_event_query(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_event_query *req = request->req;
	struct aq_event *ev = aq_idtab_get(&s->events, req->event);
	struct aq_record *r;
	int rc = AQ_OK;

	(void)ans;
	if (!ev)
		return AQ_E_NOT_FOUND;
	(void)pthread_mutex_lock(&s->soft->lock);
	r = ev->core->record;
	if (r)
		rc = r->done ? (int)r->status : AQ_E_NOT_READY;
	(void)pthread_mutex_unlock(&s->soft->lock);
	return rc;
}

int aq_soft_event_elapsed(void *session, const struct aq_request *request,
			  struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_event_elapsed *req = request->req;
	struct aq_event *start = aq_idtab_get(&s->events, req->start);
	struct aq_event *end = aq_idtab_get(&s->events, req->end);
	struct aq_rep_event_elapsed *rep = (void *)ans->data;
	const struct aq_record *a;
	const struct aq_record *b;
	int rc = AQ_OK;

	if (!start || !end)
		return AQ_E_NOT_FOUND;
	(void)pthread_mutex_lock(&s->soft->lock);
	a = start->core->record;
	b = end->core->record;
	if (!a || !b)
		rc = AQ_E_INVALID;
	else if (!a->done || !b->done)
		rc = AQ_E_NOT_READY;
	else if (a->status != AQ_OK || b->status != AQ_OK)
		rc = (int)(a->status != AQ_OK ? a->status : b->status);
	else
		rep->ns = (int64_t)(b->time_ns - a->time_ns);
	(void)pthread_mutex_unlock(&s->soft->lock);
	if (rc == AQ_OK)
		ans->len = sizeof(*rep);
	return rc;
}
