/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/backend.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/macro.h"
#include "gpud/soft/soft.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* ---- sessions ---- */

static void init_lists(struct aq_soft_session *s)
{
	for (uint32_t i = 0; i < AQ_WIRE_MAX_CARDS; i++) {
		aq_list_init(&s->slabs[i]);
		aq_list_init(&s->full_slabs[i]);
	}
	aq_list_init(&s->segs);
	aq_list_init(&s->waiters);
	aq_list_init(&s->host_funcs);
	aq_list_init(&s->tickets);
}

static int soft_open(void *backend, const struct aq_gpud_peer *peer, void **ret_session)
{
	struct aq_soft *soft = backend;
	struct aq_soft_session *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->soft = soft;
	s->peer = *peer;
	(void)snprintf(s->name, sizeof(s->name), "%s", peer->name);
	s->peer.name = s->name;
	init_lists(s);
	if (aq_aspace_init(&s->as, peer->arena_base, peer->arena_size) < 0) {
		free(s);
		return -ENOMEM;
	}
	(void)pthread_cond_init(&s->changed, NULL);
	(void)pthread_mutex_lock(&soft->lock);
	aq_list_push_back(&soft->sessions, &s->link);
	(void)pthread_mutex_unlock(&soft->lock);
	*ret_session = s;
	return 0;
}

static void soft_interrupt(void *session)
{
	struct aq_soft_session *s = session;

	(void)pthread_mutex_lock(&s->soft->lock);
	s->interrupted = true;
	(void)pthread_cond_broadcast(&s->changed);
	(void)pthread_mutex_unlock(&s->soft->lock);
}

/* Waiters on events of other sessions. */
static void drop_waiters(struct aq_soft_session *s)
{
	struct aq_waiter *w;
	struct aq_waiter *tmp;

	(void)pthread_mutex_lock(&s->soft->lock);
	aq_list_for_each_safe(w, tmp, &s->waiters, session_link)
		aq_waiter_answer(w, AQ_E_CONTEXT_GONE);
	aq_list_remove(&s->link);
	(void)pthread_mutex_unlock(&s->soft->lock);
}

static void soft_close(void *session)
{
	struct aq_soft_session *s = session;

	for (uint32_t id = 0; (id = aq_idtab_next(&s->ctxs, id)) != 0;)
		aq_ctx_destroy(aq_ctx_get(s, id));
	drop_waiters(s);
	aq_vmm_session_done(s);
	aq_mem_session_done(s);
	aq_aspace_done(&s->as);
	aq_idtab_done(&s->ctxs);
	aq_idtab_done(&s->streams);
	aq_idtab_done(&s->events);
	aq_idtab_done(&s->modules);
	aq_strbuf_done(&s->module_log);
	free(s->blob);
	(void)pthread_cond_destroy(&s->changed);
	free(s);
}

/* Whether the request begins with the number of a context, whose error its failure is. */
static bool begins_with_ctx(enum aq_op op)
{
	static const bool yes[AQ_OP_COUNT] = {
		[AQ_OP_CTX_LIMIT] = true,
		[AQ_OP_CTX_PEER] = true,
		[AQ_OP_STREAM_CREATE] = true,
		[AQ_OP_STREAM_DESTROY] = true,
		[AQ_OP_STREAM_WAIT_EVENT] = true,
		[AQ_OP_EVENT_CREATE] = true,
		[AQ_OP_EVENT_RECORD] = true,
		[AQ_OP_HOST_FUNC] = true,
		[AQ_OP_MODULE_LOAD] = true,
		[AQ_OP_LAUNCH] = true,
		[AQ_OP_COPY] = true,
		[AQ_OP_FILL] = true,
		[AQ_OP_WRITE] = true,
	};

	return yes[op];
}

static void soft_failed(void *session, const struct aq_request *rq, enum aq_status status)
{
	struct aq_soft_session *s = session;
	struct aq_soft_ctx *ctx;
	uint32_t id;

	if (!begins_with_ctx(rq->op))
		return;
	memcpy(&id, rq->req, sizeof(id));
	ctx = aq_ctx_get(s, id);
	if (!ctx)
		return;
	(void)pthread_mutex_lock(&s->soft->lock);
	aq_ctx_fail(ctx, status);
	aq_soft_pump(s->soft);
	(void)pthread_mutex_unlock(&s->soft->lock);
}

static const struct aq_gpud_ops soft_ops = {
	.name = "soft",
	.open = soft_open,
	.close = soft_close,
	.interrupt = soft_interrupt,
	.failed = soft_failed,
	.op = {
#define X(NAME, name) [AQ_OP_##NAME] = aq_soft_##name,
		AQ_WIRE_OPS(X)
#undef X
	},
};

/* ---- cards ---- */

static int add_card(struct aq_soft *soft, const struct aq_soft_config *cfg, uint32_t index)
{
	struct aq_card *card = calloc(1, sizeof(*card));
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned workers = cfg->workers ? cfg->workers : (unsigned)AQ_MAX(cores, 1L);

	if (!card)
		return -ENOMEM;
	card->soft = soft;
	card->index = index;
	card->profile = cfg->profiles[index];
	card->start_ns = aq_now_ns();
	aq_profile_info(&card->profile, index, cfg->seed, &card->info);
	soft->card[soft->n_cards++] = card;
	return aq_engine_init(card, AQ_MIN(workers, card->profile.sms));
}

int aq_soft_new(const struct aq_soft_config *cfg, struct aq_soft **ret, struct aq_err *err)
{
	struct aq_soft *soft;
	struct sysinfo si;

	if (cfg->n_cards == 0 || cfg->n_cards > AQ_WIRE_MAX_CARDS)
		return aq_err_set(err, -EINVAL, "%u cards; 1 to %u are possible", cfg->n_cards,
				  AQ_WIRE_MAX_CARDS);
	soft = calloc(1, sizeof(*soft));
	if (!soft)
		return aq_err_set(err, -ENOMEM, "no memory for the cards");
	(void)pthread_mutex_init(&soft->lock, NULL);
	(void)pthread_mutex_init(&soft->mem_lock, NULL);
	aq_list_init(&soft->sessions);
	aq_list_init(&soft->kicked);
	aq_list_init(&soft->exports);
	aq_list_init(&soft->exported);
	soft->host_limit = cfg->host_limit;
	if (!soft->host_limit && sysinfo(&si) == 0)
		soft->host_limit = (uint64_t)si.totalram * si.mem_unit;
	for (uint32_t i = 0; i < cfg->n_cards; i++) {
		int rc = add_card(soft, cfg, i);

		if (rc < 0) {
			aq_soft_free(soft);
			return aq_err_set(err, rc, "cannot make card %u: %s", i, strerror(-rc));
		}
	}
	*ret = soft;
	return 0;
}

void aq_soft_free(struct aq_soft *soft)
{
	if (!soft)
		return;
	for (uint32_t i = 0; i < soft->n_cards; i++) {
		aq_engine_stop(soft->card[i]);
		free(soft->card[i]);
	}
	(void)pthread_mutex_destroy(&soft->lock);
	(void)pthread_mutex_destroy(&soft->mem_lock);
	free(soft);
}

struct aq_gpud_backend aq_soft_backend(struct aq_soft *soft)
{
	return (struct aq_gpud_backend){
		.ops = &soft_ops,
		.opaque = soft,
		.n_cards = soft->n_cards,
	};
}
