/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that the client carries out: host functions, and copies between its pageable memory and a mapped segment. */
#include "base/clock.h"
#include "gpud/soft/soft.h"

#include <stdlib.h>

/* Hand started host functions to those who ask for them. aq_soft.lock. */
static void deliver(struct aq_soft_session *s)
{
	struct aq_cmd *cmd;

	aq_list_for_each(cmd, &s->host_funcs, work) {
		struct aq_rep_host_func_next rep = {
			.cookie = cmd->u.host.cookie,
			.ctx = cmd->stream->ctx->id,
			.stream = cmd->stream->id,
			.status = cmd->stream->ctx->status,
		};

		if (!s->n_next_slots)
			return;
		if (cmd->u.host.given)
			continue;
		cmd->u.host.given = true;
		aq_conn_reply(s->peer.conn, s->next_slots[--s->n_next_slots], AQ_OK, &rep,
			      sizeof(rep));
	}
}

void aq_host_start(struct aq_cmd *cmd)
{
	struct aq_soft_session *s = cmd->stream->ctx->session;

	if (cmd->kind == AQ_CMD_HOST_FUNC) {
		aq_list_push_back(&s->host_funcs, &cmd->work);
		deliver(s);
	} else {
		struct aq_rep_host_begin rep = { .ticket = ++s->next_ticket };
		uint64_t now = aq_now_ns();

		cmd->u.host_copy.ticket = rep.ticket;
		aq_list_push_back(&s->tickets, &cmd->work);
		aq_engine_copy_busy(cmd->stream->ctx->card, 1, now);
		aq_conn_reply(s->peer.conn, cmd->slot, AQ_OK, &rep, sizeof(rep));
		cmd->slot = AQ_WIRE_NO_SLOT;
	}
}

static void end_copy(struct aq_cmd *cmd)
{
	aq_engine_copy_busy(cmd->stream->ctx->card, -1, aq_now_ns());
	aq_cmd_complete(cmd, AQ_OK);
}

void aq_host_drop(struct aq_soft_ctx *ctx)
{
	struct aq_soft_session *s = ctx->session;
	struct aq_cmd *cmd;
	struct aq_cmd *tmp;

	aq_list_for_each_safe(cmd, tmp, &s->host_funcs, work) {
		/* One that the client runs goes on; one that it has not got is dropped, but for callbacks that want to hear of errors. */
		if (cmd->stream->ctx == ctx &&
		    (ctx->dying || (!cmd->u.host.given && !cmd->u.host.even_after_error)))
			aq_cmd_complete(cmd, ctx->status);
	}
	aq_list_for_each_safe(cmd, tmp, &s->tickets, work) {
		if (cmd->stream->ctx == ctx && ctx->dying)
			end_copy(cmd);
	}
}

int aq_soft_host_func(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_host_func *req = request->req;
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	struct aq_cmd *cmd;
	enum aq_status status = aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (status == AQ_OK)
		status = aq_queue_wait(s);
	if (status != AQ_OK)
		return (int)status;
	cmd = aq_cmd_new(st, AQ_CMD_HOST_FUNC, AQ_WIRE_NO_SLOT);
	if (!cmd)
		return AQ_E_NO_MEMORY;
	cmd->u.host.cookie = req->cookie;
	cmd->u.host.even_after_error = req->even_after_error != 0;
	return aq_cmd_submit(cmd);
}

int aq_soft_host_func_next(void *session, const struct aq_request *request,
			   struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	int rc = AQ_GPUD_LATER;

	(void)ans;
	if (request->slot == AQ_WIRE_NO_SLOT)
		return AQ_E_INVALID;
	(void)pthread_mutex_lock(&s->soft->lock);
	if (s->n_next_slots < sizeof(s->next_slots) / sizeof(s->next_slots[0])) {
		s->next_slots[s->n_next_slots++] = request->slot;
		deliver(s);
	} else {
		rc = AQ_E_BUSY;
	}
	(void)pthread_mutex_unlock(&s->soft->lock);
	return rc;
}

int aq_soft_host_func_done(void *session, const struct aq_request *request,
			   struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_host_func_done *req = request->req;
	struct aq_cmd *cmd;
	int rc = AQ_E_NOT_FOUND;

	(void)ans;
	(void)pthread_mutex_lock(&s->soft->lock);
	aq_list_for_each(cmd, &s->host_funcs, work) {
		if (cmd->u.host.given && cmd->u.host.cookie == req->cookie) {
			aq_cmd_complete(cmd, AQ_OK);
			aq_soft_pump(s->soft);
			rc = AQ_OK;
			break;
		}
	}
	(void)pthread_mutex_unlock(&s->soft->lock);
	return rc;
}

int aq_soft_host_begin(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_host_begin *req = request->req;
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	struct aq_cmd *cmd;
	enum aq_status status = aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (request->slot == AQ_WIRE_NO_SLOT)
		return AQ_E_INVALID;
	if (status == AQ_OK)
		status = aq_queue_wait(s);
	if (status != AQ_OK)
		return (int)status;
	cmd = aq_cmd_new(st, AQ_CMD_HOST_COPY, request->slot);
	if (!cmd)
		return AQ_E_NO_MEMORY;
	return aq_cmd_submit(cmd);
}

int aq_soft_host_end(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_host_end *req = request->req;
	struct aq_cmd *cmd;
	int rc = AQ_E_NOT_FOUND;

	(void)ans;
	(void)pthread_mutex_lock(&s->soft->lock);
	aq_list_for_each(cmd, &s->tickets, work) {
		if (cmd->u.host_copy.ticket == req->ticket) {
			end_copy(cmd);
			aq_soft_pump(s->soft);
			rc = AQ_OK;
			break;
		}
	}
	(void)pthread_mutex_unlock(&s->soft->lock);
	return rc;
}
