/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: queues of commands, started in order when nothing is in their way.
 *
 * Every command has a number in its context. A command of the legacy stream waits until each blocking stream has finished everything with
 * a smaller number, and a command of a blocking stream until the legacy stream has; a stream finishes in order, so its oldest command says it all.
 *
 * Completing a command marks the streams that may go on (kicks them); aq_soft_pump() then starts what can start. It is a loop, not a recursion.
 */
#include "base/macro.h"
#include "gpud/soft/soft.h"

#include <stdlib.h>

/* A copy up to this size is carried out by the thread that submits it, if its turn has come: quicker than waking another. */
#define INLINE_BYTES (64 * AQ_KIB)

static struct aq_cmd *head_of(const struct aq_stream *st)
{
	return aq_list_is_empty(&st->queue) ? NULL
					    : aq_list_entry(st->queue.next, struct aq_cmd, link);
}

/* Everything before number `seq` in the stream is done. */
static bool done_before(const struct aq_stream *st, uint64_t seq)
{
	const struct aq_cmd *head = head_of(st);

	return !head || head->seq >= seq;
}

static bool blocking_done_before(const struct aq_soft_ctx *ctx, uint64_t seq)
{
	const struct aq_stream *st;

	aq_list_for_each(st, &ctx->streams, ctx_link) {
		if (st->blocking && !done_before(st, seq))
			return false;
	}
	return true;
}

bool aq_stream_is_busy(const struct aq_stream *st)
{
	if (head_of(st))
		return true;
	return st->legacy && !blocking_done_before(st->ctx, UINT64_MAX);
}

void aq_stream_kick(struct aq_stream *st)
{
	if (aq_list_is_empty(&st->kick))
		aq_list_push_back(&st->ctx->session->soft->kicked, &st->kick);
}

/* ---- waiters ---- */

struct aq_waiter *aq_waiter_new(struct aq_soft_session *s, struct aq_list *list, uint16_t slot)
{
	struct aq_waiter *w = s->n_waiters < AQ_SOFT_MAX_WAITERS ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return NULL;
	s->n_waiters++;
	w->session = s;
	w->slot = slot;
	aq_list_push_back(list, &w->link);
	aq_list_push_back(&s->waiters, &w->session_link);
	return w;
}

void aq_waiter_answer(struct aq_waiter *w, enum aq_status status)
{
	aq_conn_reply(w->session->peer.conn, w->slot, status, NULL, 0);
	aq_list_remove(&w->link);
	aq_list_remove(&w->session_link);
	w->session->n_waiters--;
	free(w);
}

static bool is_satisfied(const struct aq_soft_ctx *ctx, const struct aq_stream *st, uint64_t seq)
{
	const struct aq_stream *other;

	if (st && !done_before(st, seq))
		return false;
	if (st)
		return !st->legacy || blocking_done_before(ctx, seq);
	if (!done_before(&ctx->legacy, seq))
		return false;
	aq_list_for_each(other, &ctx->streams, ctx_link) {
		if (!done_before(other, seq))
			return false;
	}
	return true;
}

static void check_waiters(struct aq_soft_ctx *ctx)
{
	struct aq_waiter *w;
	struct aq_waiter *tmp;

	aq_list_for_each_safe(w, tmp, &ctx->waiters, link) {
		if (is_satisfied(ctx, w->stream, w->seq))
			aq_waiter_answer(w, ctx->status);
	}
}

int aq_ctx_wait(struct aq_soft_ctx *ctx, struct aq_stream *stream, uint16_t slot)
{
	uint64_t seq = ctx->seq + 1;
	struct aq_waiter *w;

	if (is_satisfied(ctx, stream, seq))
		return (int)ctx->status;
	w = aq_waiter_new(ctx->session, &ctx->waiters, slot);
	if (!w)
		return AQ_E_NO_MEMORY;
	w->stream = stream;
	w->seq = seq;
	return AQ_GPUD_LATER;
}

/* ---- commands ---- */

static bool is_copy(enum aq_cmd_kind kind)
{
	return kind == AQ_CMD_COPY || kind == AQ_CMD_FILL || kind == AQ_CMD_WRITE ||
	       kind == AQ_CMD_READ;
}

static bool is_host(enum aq_cmd_kind kind)
{
	return kind == AQ_CMD_HOST_FUNC || kind == AQ_CMD_HOST_COPY;
}

struct aq_cmd *aq_cmd_new(struct aq_stream *st, enum aq_cmd_kind kind, uint16_t slot)
{
	struct aq_cmd *cmd = calloc(1, sizeof(*cmd));

	if (!cmd)
		return NULL;
	aq_list_init(&cmd->link);
	aq_list_init(&cmd->work);
	aq_list_init(&cmd->wait_link);
	cmd->stream = st;
	cmd->kind = kind;
	cmd->slot = slot;
	return cmd;
}

void aq_cmd_free(struct aq_cmd *cmd)
{
	if (!cmd)
		return;
	if (cmd->kind == AQ_CMD_KERNEL)
		aq_kernel_free(cmd->u.kernel);
	else if (cmd->kind == AQ_CMD_WRITE || cmd->kind == AQ_CMD_READ)
		free(cmd->u.rw.data);
	else if (cmd->kind == AQ_CMD_RECORD || cmd->kind == AQ_CMD_WAIT)
		aq_record_unref(cmd->u.record);
	free(cmd);
}

static bool is_ready(const struct aq_cmd *cmd)
{
	const struct aq_stream *st = cmd->stream;
	const struct aq_soft_ctx *ctx = st->ctx;

	if (ctx->status != AQ_OK)
		return true;
	if (st->legacy && !blocking_done_before(ctx, cmd->seq))
		return false;
	if (st->blocking && !done_before(&ctx->legacy, cmd->seq))
		return false;
	return cmd->kind != AQ_CMD_WAIT || cmd->u.record->done;
}

static void start(struct aq_cmd *cmd)
{
	struct aq_soft_ctx *ctx = cmd->stream->ctx;
	struct aq_soft *soft = ctx->session->soft;
	bool is_callback = cmd->kind == AQ_CMD_HOST_FUNC && cmd->u.host.even_after_error;

	if (ctx->status != AQ_OK && (!is_callback || ctx->dying)) {
		aq_cmd_complete(cmd, ctx->status);
		return;
	}
	if (cmd->kind == AQ_CMD_RECORD || cmd->kind == AQ_CMD_WAIT) {
		aq_cmd_complete(cmd, AQ_OK);
		return;
	}
	cmd->started = true;
	if (cmd->kind == AQ_CMD_KERNEL)
		aq_engine_start(cmd->u.kernel);
	else if (is_host(cmd->kind))
		aq_host_start(cmd);
	else if (cmd == soft->inline_cmd)
		soft->inline_started = true;
	else
		aq_engine_copy(ctx->card, cmd);
}

static void stream_free(struct aq_stream *st)
{
	aq_list_remove(&st->ctx_link);
	aq_list_remove(&st->kick);
	free(st);
}

void aq_soft_pump(struct aq_soft *soft)
{
	while (!aq_list_is_empty(&soft->kicked)) {
		struct aq_stream *st = aq_list_entry(soft->kicked.next, struct aq_stream, kick);
		struct aq_cmd *cmd;

		while ((cmd = head_of(st)) != NULL && !cmd->started && is_ready(cmd))
			start(cmd);
		aq_list_remove(&st->kick);
		if (st->destroyed && !cmd)
			stream_free(st);
	}
}

static void kick_others(struct aq_stream *st)
{
	struct aq_soft_ctx *ctx = st->ctx;
	struct aq_stream *other;

	if (st->blocking && head_of(&ctx->legacy))
		aq_stream_kick(&ctx->legacy);
	if (!st->legacy)
		return;
	aq_list_for_each(other, &ctx->streams, ctx_link) {
		if (other->blocking && head_of(other))
			aq_stream_kick(other);
	}
}

void aq_cmd_complete(struct aq_cmd *cmd, enum aq_status status)
{
	struct aq_stream *st = cmd->stream;
	struct aq_soft_ctx *ctx = st->ctx;
	struct aq_soft_session *s = ctx->session;

	if (ctx->status != AQ_OK)
		status = ctx->status;
	aq_list_remove(&cmd->link);
	aq_list_remove(&cmd->work);
	aq_list_remove(&cmd->wait_link);
	if (!head_of(st))
		aq_list_remove(&st->busy);
	ctx->unfinished--;
	s->unfinished--;
	if (is_host(cmd->kind))
		s->host_pending--;
	if (cmd->kind == AQ_CMD_RECORD)
		aq_record_done(cmd->u.record, status);
	if (cmd->kind == AQ_CMD_READ && status == AQ_OK)
		aq_conn_reply(s->peer.conn, cmd->slot, status, cmd->u.rw.data, cmd->u.rw.size);
	else
		aq_conn_reply(s->peer.conn, cmd->slot, status, NULL, 0);
	aq_stream_kick(st);
	kick_others(st);
	if (!aq_list_is_empty(&ctx->waiters))
		check_waiters(ctx);
	(void)pthread_cond_broadcast(&s->changed);
	aq_cmd_free(cmd);
}

enum aq_status aq_queue_wait(struct aq_soft_session *s)
{
	struct aq_soft *soft = s->soft;
	uint32_t depth = soft->card[0]->profile.manners.queue_depth;
	enum aq_status status = AQ_OK;

	depth = depth ? depth : AQ_SOFT_QUEUE;
	(void)pthread_mutex_lock(&soft->lock);
	/* While the client has a host function to run or a copy to make, it must be heard, or nothing would ever move. */
	while (s->unfinished >= depth && !s->host_pending && !s->interrupted)
		(void)pthread_cond_wait(&s->changed, &soft->lock);
	if (s->unfinished >= AQ_SOFT_QUEUE_HARD)
		status = AQ_E_NO_MEMORY;
	(void)pthread_mutex_unlock(&soft->lock);
	return status;
}

int aq_cmd_submit(struct aq_cmd *cmd)
{
	struct aq_stream *st = cmd->stream;
	struct aq_soft_ctx *ctx = st->ctx;
	struct aq_soft *soft = ctx->session->soft;
	int rc = cmd->slot != AQ_WIRE_NO_SLOT ? AQ_GPUD_LATER : AQ_OK;
	struct aq_card *card = ctx->card;
	bool is_kernel = cmd->kind == AQ_CMD_KERNEL;
	bool is_inline;

	(void)pthread_mutex_lock(&soft->lock);
	cmd->seq = ++ctx->seq;
	ctx->unfinished++;
	ctx->session->unfinished++;
	if (is_host(cmd->kind))
		ctx->session->host_pending++;
	if (cmd->kind == AQ_CMD_WAIT && !cmd->u.record->done)
		aq_list_push_back(&cmd->u.record->cmds, &cmd->wait_link);
	if (!head_of(st) && !st->legacy)
		aq_list_push_back(&ctx->busy, &st->busy);
	aq_list_push_back(&st->queue, &cmd->link);
	if (is_kernel || (is_copy(cmd->kind) && aq_copy_bytes(cmd) <= INLINE_BYTES))
		soft->inline_cmd = cmd;
	aq_stream_kick(st);
	aq_soft_pump(soft);
	is_inline = soft->inline_started;
	soft->inline_cmd = NULL;
	soft->inline_started = false;
	(void)pthread_mutex_unlock(&soft->lock);
	if (is_inline && is_kernel)
		aq_engine_help(card);
	else if (is_inline)
		aq_copy_finish(cmd, aq_copy_run(cmd));
	return rc;
}

/* ---- messages ---- */

enum aq_status aq_stream_get(struct aq_soft_session *s, uint32_t ctx_id, uint32_t stream_id,
			     struct aq_soft_ctx **ret_ctx, struct aq_stream **ret_stream)
{
	struct aq_soft_ctx *ctx = aq_ctx_get(s, ctx_id);
	struct aq_stream *st;

	if (!ctx)
		return AQ_E_CONTEXT_GONE;
	st = stream_id == AQ_STREAM_LEGACY ? &ctx->legacy : aq_idtab_get(&s->streams, stream_id);
	if (!st || st->ctx != ctx)
		return AQ_E_NOT_FOUND;
	*ret_ctx = ctx;
	*ret_stream = st;
	return AQ_OK;
}

int aq_soft_stream_create(void *session, const struct aq_request *request,
			  struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_stream_create *req = request->req;
	struct aq_soft_ctx *ctx = aq_ctx_get(s, req->ctx);
	struct aq_stream *st;

	(void)ans;
	if (!ctx)
		return AQ_E_CONTEXT_GONE;
	if (!aq_idtab_is_free(&s->streams, req->stream) ||
	    (req->flags & ~(uint32_t)AQ_STREAM_NON_BLOCKING))
		return AQ_E_INVALID;
	if (s->streams.n >= AQ_SOFT_MAX_STREAMS)
		return AQ_E_NO_MEMORY;
	st = calloc(1, sizeof(*st));
	if (!st || aq_idtab_set(&s->streams, req->stream, st) < 0) {
		free(st);
		return AQ_E_NO_MEMORY;
	}
	st->id = req->stream;
	st->ctx = ctx;
	st->blocking = !(req->flags & AQ_STREAM_NON_BLOCKING);
	st->priority = req->priority;
	aq_list_init(&st->queue);
	aq_list_init(&st->kick);
	aq_list_init(&st->busy);
	(void)pthread_mutex_lock(&s->soft->lock);
	aq_list_push_back(&ctx->streams, &st->ctx_link);
	(void)pthread_mutex_unlock(&s->soft->lock);
	return AQ_OK;
}

int aq_soft_stream_destroy(void *session, const struct aq_request *request,
			   struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_stream_destroy *req = request->req;
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	enum aq_status status = aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (status != AQ_OK)
		return (int)status;
	if (st->legacy)
		return AQ_E_INVALID;
	aq_idtab_clear(&s->streams, req->stream);
	(void)pthread_mutex_lock(&s->soft->lock);
	st->destroyed = true;
	aq_stream_kick(st);
	aq_soft_pump(s->soft);
	(void)pthread_mutex_unlock(&s->soft->lock);
	return AQ_OK;
}

int aq_soft_stream_sync(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_stream_sync *req = request->req;
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	int rc = (int)aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (rc != AQ_OK)
		return rc;
	if (request->slot == AQ_WIRE_NO_SLOT)
		return AQ_E_INVALID;
	(void)pthread_mutex_lock(&s->soft->lock);
	rc = aq_ctx_wait(ctx, st, request->slot);
	(void)pthread_mutex_unlock(&s->soft->lock);
	return rc;
}

int aq_soft_stream_query(void *session, const struct aq_request *request,
			 struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_stream_query *req = request->req;
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	int rc = (int)aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (rc != AQ_OK)
		return rc;
	(void)pthread_mutex_lock(&s->soft->lock);
	rc = (int)ctx->status;
	if (rc == AQ_OK && aq_stream_is_busy(st))
		rc = AQ_E_NOT_READY;
	(void)pthread_mutex_unlock(&s->soft->lock);
	return rc;
}
