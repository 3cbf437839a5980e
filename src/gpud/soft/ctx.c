/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macro.h"
#include "gpud/soft/soft.h"

#include <stdatomic.h>
#include <stdlib.h>

#define STACK_DEFAULT  1024ULL
#define STACK_MAX      (512 * AQ_KIB)
#define PRINTF_DEFAULT (1 * AQ_MIB)
#define HEAP_DEFAULT   (8 * AQ_MIB)
#define LIMIT_MAX      (1 * AQ_GIB)

struct aq_soft_ctx *aq_ctx_get(struct aq_soft_session *s, uint32_t id)
{
	return aq_idtab_get(&s->ctxs, id);
}

static void init_lists(struct aq_soft_ctx *ctx)
{
	aq_list_init(&ctx->allocs);
	aq_list_init(&ctx->modules);
	aq_list_init(&ctx->streams);
	aq_list_init(&ctx->busy);
	aq_list_init(&ctx->events);
	aq_list_init(&ctx->waiters);
	ctx->legacy.ctx = ctx;
	ctx->legacy.legacy = true;
	aq_list_init(&ctx->legacy.ctx_link);
	aq_list_init(&ctx->legacy.queue);
	aq_list_init(&ctx->legacy.busy);
	aq_list_init(&ctx->legacy.kick);
}

static enum aq_status ctx_new(struct aq_soft_session *s, const struct aq_req_ctx_create *req,
			      struct aq_card *card)
{
	struct aq_soft_ctx *ctx = calloc(1, sizeof(*ctx));
	enum aq_status status;

	if (!ctx)
		return AQ_E_NO_MEMORY;
	ctx->id = req->ctx;
	ctx->session = s;
	ctx->card = card;
	ctx->error_slot = req->error_slot;
	ctx->flags = req->flags;
	ctx->peers = 1ULL << card->index;
	ctx->limit[AQ_LIMIT_STACK] = STACK_DEFAULT;
	ctx->limit[AQ_LIMIT_PRINTF] = PRINTF_DEFAULT;
	ctx->limit[AQ_LIMIT_HEAP] = HEAP_DEFAULT;
	init_lists(ctx);
	status = aq_card_charge(card, s, card->profile.context_bytes);
	if (status != AQ_OK) {
		free(ctx);
		return status;
	}
	if (aq_engine_ctx_init(ctx) < 0 || aq_idtab_set(&s->ctxs, ctx->id, ctx) < 0) {
		aq_engine_ctx_done(ctx);
		aq_card_uncharge(card, s, card->profile.context_bytes);
		free(ctx);
		return AQ_E_NO_MEMORY;
	}
	(void)pthread_mutex_lock(&s->soft->lock);
	card->n_ctxs++;
	s->usage[card->index].n_ctxs++;
	(void)pthread_mutex_unlock(&s->soft->lock);
	aq_conn_set_ctx_error(s->peer.conn, ctx->error_slot, AQ_OK);
	return AQ_OK;
}

int aq_soft_ctx_create(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_ctx_create *req = request->req;
	struct aq_rep_ctx_create *rep = (void *)ans->data;
	struct aq_card *card = aq_soft_card(s->soft, req->card);
	enum aq_status status;

	if (!card || !aq_idtab_is_free(&s->ctxs, req->ctx))
		return AQ_E_INVALID;
	if (s->ctxs.n >= AQ_SOFT_MAX_CTXS)
		return AQ_E_NO_MEMORY;
	status = ctx_new(s, req, card);
	if (status != AQ_OK)
		return (int)status;
	rep->memory_bytes = card->profile.context_bytes;
	ans->len = sizeof(*rep);
	return AQ_OK;
}

/* Drop what has not been started, stop what has, let the streams run dry. */
static void drop_work(struct aq_soft_ctx *ctx)
{
	struct aq_stream *st;

	aq_engine_abort_ctx(ctx);
	aq_host_drop(ctx);
	aq_stream_kick(&ctx->legacy);
	aq_list_for_each(st, &ctx->streams, ctx_link)
		aq_stream_kick(st);
}

void aq_ctx_fail(struct aq_soft_ctx *ctx, enum aq_status status)
{
	if (ctx->status != AQ_OK)
		return;
	ctx->status = status;
	ctx->failed = true;
	aq_conn_set_ctx_error(ctx->session->peer.conn, ctx->error_slot, status);
	drop_work(ctx);
}

/* Stop the context's work and wait until no thread has any of it. */
static void ctx_drain(struct aq_soft_ctx *ctx)
{
	struct aq_soft_session *s = ctx->session;
	struct aq_soft *soft = s->soft;
	struct aq_stream *st;
	struct aq_stream *tmp;

	(void)pthread_mutex_lock(&soft->lock);
	ctx->dying = true;
	if (ctx->status == AQ_OK)
		ctx->status = AQ_E_CONTEXT_GONE;
	ctx->failed = true;
	drop_work(ctx);
	aq_soft_pump(soft);
	while (ctx->unfinished)
		(void)pthread_cond_wait(&s->changed, &soft->lock);
	aq_list_for_each_safe(st, tmp, &ctx->streams, ctx_link) {
		aq_idtab_clear(&s->streams, st->id);
		aq_list_remove(&st->ctx_link);
		free(st);
	}
	ctx->card->n_ctxs--;
	s->usage[ctx->card->index].n_ctxs--;
	(void)pthread_mutex_unlock(&soft->lock);
}

void aq_ctx_destroy(struct aq_soft_ctx *ctx)
{
	struct aq_soft_session *s = ctx->session;
	struct aq_event *ev;
	struct aq_event *tmp;

	ctx_drain(ctx);
	aq_idtab_clear(&s->ctxs, ctx->id);
	aq_list_for_each_safe(ev, tmp, &ctx->events, ctx_link)
		aq_event_free(s, ev);
	aq_module_free_all(ctx);
	aq_mem_release_ctx(ctx);
	aq_engine_ctx_done(ctx);
	aq_card_uncharge(ctx->card, s, ctx->card->profile.context_bytes);
	free(ctx);
}

int aq_soft_ctx_destroy(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_ctx_destroy *req = request->req;
	struct aq_soft_ctx *ctx = aq_ctx_get(s, req->ctx);

	(void)ans;
	if (!ctx)
		return AQ_E_CONTEXT_GONE;
	/*
	 * As drivers do, let the work end first. Not if the client has a host function to run or a copy to make: it could not say so while this thread
	 * waits.
	 */
	(void)pthread_mutex_lock(&s->soft->lock);
	while (ctx->unfinished && ctx->status == AQ_OK && !s->host_pending && !s->interrupted)
		(void)pthread_cond_wait(&s->changed, &s->soft->lock);
	(void)pthread_mutex_unlock(&s->soft->lock);
	aq_ctx_destroy(ctx);
	return AQ_OK;
}

int aq_soft_ctx_sync(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_ctx_sync *req = request->req;
	struct aq_soft_ctx *ctx = aq_ctx_get(s, req->ctx);
	int rc;

	(void)ans;
	if (request->slot == AQ_WIRE_NO_SLOT)
		return AQ_E_INVALID;
	if (!ctx)
		return AQ_E_CONTEXT_GONE;
	(void)pthread_mutex_lock(&s->soft->lock);
	rc = aq_ctx_wait(ctx, NULL, request->slot);
	(void)pthread_mutex_unlock(&s->soft->lock);
	return rc;
}

int aq_soft_ctx_limit(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_ctx_limit *req = request->req;
	struct aq_rep_ctx_limit *rep = (void *)ans->data;
	struct aq_soft_ctx *ctx = aq_ctx_get(s, req->ctx);
	uint64_t max = req->limit == AQ_LIMIT_STACK ? STACK_MAX : LIMIT_MAX;

	if (!ctx)
		return AQ_E_CONTEXT_GONE;
	if (req->limit >= AQ_LIMITS)
		return AQ_E_NOT_SUPPORTED;
	if (req->value > max)
		return AQ_E_INVALID;
	ctx->limit[req->limit] = aq_align_up(AQ_MAX(req->value, 16ULL), 16);
	rep->value = ctx->limit[req->limit];
	ans->len = sizeof(*rep);
	return AQ_OK;
}

int aq_soft_ctx_peer(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_ctx_peer *req = request->req;
	struct aq_soft_ctx *ctx = aq_ctx_get(s, req->ctx);
	struct aq_soft_ctx *peer = aq_ctx_get(s, req->peer_ctx);
	uint64_t bit;

	(void)ans;
	if (!ctx || !peer)
		return AQ_E_CONTEXT_GONE;
	if (ctx->card == peer->card)
		return AQ_E_INVALID;
	bit = 1ULL << peer->card->index;
	/* Workers read it without the lock. */
	if (req->enable)
		atomic_fetch_or(&ctx->peers, bit);
	else
		atomic_fetch_and(&ctx->peers, ~bit);
	return AQ_OK;
}
