/* SPDX-License-Identifier: Apache-2.0 */
/* The books of a card: memory, time, and what monitors ask for. */
#include "base/clock.h"
#include "base/macro.h"
#include "gpud/soft/soft.h"

#include <stdio.h>
#include <string.h>

void aq_util_add(struct aq_util *u, uint64_t from_ns, uint64_t to_ns)
{
	while (from_ns < to_ns) {
		uint64_t w = from_ns / AQ_UTIL_WINDOW_NS;
		uint64_t end = AQ_MIN(to_ns, (w + 1) * AQ_UTIL_WINDOW_NS);

		/* A long stretch fills whole windows; only the last two matter. */
		if (to_ns - from_ns > 3 * AQ_UTIL_WINDOW_NS) {
			uint64_t skip = (to_ns / AQ_UTIL_WINDOW_NS - 1) * AQ_UTIL_WINDOW_NS;

			u->total_ns += skip - from_ns;
			from_ns = skip;
			continue;
		}
		if (w != u->window) {
			u->last_ns = w == u->window + 1 ? u->cur_ns : 0;
			u->cur_ns = 0;
			u->window = w;
		}
		u->cur_ns = AQ_MIN(u->cur_ns + (end - from_ns), AQ_UTIL_WINDOW_NS);
		u->total_ns += end - from_ns;
		from_ns = end;
	}
}

uint32_t aq_util_pct(struct aq_util *u, uint64_t now_ns)
{
	uint64_t w = now_ns / AQ_UTIL_WINDOW_NS;

	if (w != u->window) {
		u->last_ns = w == u->window + 1 ? u->cur_ns : 0;
		u->cur_ns = 0;
		u->window = w;
	}
	return (uint32_t)(u->last_ns * 100 / AQ_UTIL_WINDOW_NS);
}

enum aq_status aq_card_charge(struct aq_card *card, struct aq_soft_session *s, uint64_t bytes)
{
	struct aq_soft *soft = card->soft;
	uint64_t room = card->profile.memory_bytes - card->profile.reserved_bytes;
	enum aq_status status = AQ_E_NO_MEMORY;

	(void)pthread_mutex_lock(&soft->mem_lock);
	if (bytes <= room - card->used_bytes) {
		card->used_bytes += bytes;
		s->usage[card->index].memory_bytes += bytes;
		status = AQ_OK;
	}
	(void)pthread_mutex_unlock(&soft->mem_lock);
	return status;
}

void aq_card_uncharge(struct aq_card *card, struct aq_soft_session *s, uint64_t bytes)
{
	(void)pthread_mutex_lock(&card->soft->mem_lock);
	card->used_bytes -= bytes;
	s->usage[card->index].memory_bytes -= bytes;
	(void)pthread_mutex_unlock(&card->soft->mem_lock);
}

int aq_soft_card_info(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_card_info *req = request->req;
	struct aq_card *card = aq_soft_card(s->soft, req->card);

	if (!card)
		return AQ_E_INVALID;
	memcpy(ans->data, &card->info, sizeof(card->info));
	ans->len = sizeof(card->info);
	return AQ_OK;
}

/*
 * The processes with contexts on the card, from number `first` on, at most `max`. Returns how many there are in all. Quadratic in the number of sessions,
 * which is bounded by 256. aq_soft.lock.
 */
static uint32_t list_procs(struct aq_soft *soft, struct aq_card *card, uint32_t first, uint32_t max,
			   struct aq_wire_proc *ret, uint32_t *ret_n)
{
	uint64_t now = aq_now_ns();
	struct timespec ts;
	struct aq_soft_session *s;
	uint32_t total = 0;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	*ret_n = 0;
	aq_list_for_each(s, &soft->sessions, link) {
		struct aq_wire_proc p = { .pid = (uint32_t)s->peer.pid };
		struct aq_soft_session *o;
		bool seen = false;

		if (!s->usage[card->index].n_ctxs)
			continue;
		aq_list_for_each(o, &soft->sessions, link) {
			struct aq_soft_usage *u = &o->usage[card->index];

			if (o->peer.pid != s->peer.pid || !u->n_ctxs)
				continue;
			if (p.n_contexts == 0 && o != s) {
				seen = true; /* listed with its first session */
				break;
			}
			p.n_contexts += u->n_ctxs;
			(void)pthread_mutex_lock(&soft->mem_lock);
			p.memory_bytes += u->memory_bytes;
			(void)pthread_mutex_unlock(&soft->mem_lock);
			p.busy_ns += u->busy.total_ns;
			p.util_gpu_pct += aq_util_pct(&u->busy, now);
		}
		if (seen)
			continue;
		if (total++ < first || *ret_n >= max)
			continue;
		p.sample_time_us = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
		p.util_gpu_pct = AQ_MIN(p.util_gpu_pct, 100U);
		p.util_mem_pct = (uint32_t)(p.memory_bytes * 100 / card->profile.memory_bytes);
		(void)snprintf(p.name, sizeof(p.name), "%s", s->name);
		ret[(*ret_n)++] = p;
	}
	return total;
}

int aq_soft_card_procs(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_card_procs *req = request->req;
	struct aq_card *card = aq_soft_card(s->soft, req->card);
	struct aq_rep_card_procs *rep = (void *)ans->data;

	if (!card)
		return AQ_E_INVALID;
	(void)pthread_mutex_lock(&s->soft->lock);
	aq_engine_account(card, aq_now_ns());
	rep->total = list_procs(s->soft, card, req->first, AQ_WIRE_PROCS_MAX, rep->proc, &rep->n);
	(void)pthread_mutex_unlock(&s->soft->lock);
	ans->len = offsetof(struct aq_rep_card_procs, proc) + rep->n * sizeof(rep->proc[0]);
	return AQ_OK;
}

/* Power, temperature and energy follow the utilisation: plausible, not measured. aq_soft.lock. */
static void fill_sensors(struct aq_card *card, struct aq_rep_card_stat *rep, uint64_t now)
{
	const struct aq_profile *p = &card->profile;
	uint64_t span_mw = p->power_max_mw - p->power_idle_mw;
	uint64_t up_us = (now - card->start_ns) / 1000;

	rep->power_mw = (uint32_t)(p->power_idle_mw + span_mw * rep->util_gpu_pct / 100);
	rep->temperature_c = 32 + rep->util_gpu_pct * 40 / 100;
	/* mW × µs is nJ; in mJ. */
	rep->energy_mj = (p->power_idle_mw * up_us + span_mw * (rep->busy_ns / 1000)) / 1000000;
	rep->clock_sm_mhz = rep->util_gpu_pct ? p->clock_sm_mhz : p->clock_sm_mhz / 5;
	rep->clock_mem_mhz = p->clock_mem_mhz;
}

int aq_soft_card_stat(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_card_stat *req = request->req;
	struct aq_card *card = aq_soft_card(s->soft, req->card);
	struct aq_rep_card_stat rep = { 0 };
	uint64_t now;
	uint32_t n;

	if (!card)
		return AQ_E_INVALID;
	(void)pthread_mutex_lock(&s->soft->mem_lock);
	rep.memory_used = card->used_bytes + card->profile.reserved_bytes;
	(void)pthread_mutex_unlock(&s->soft->mem_lock);
	rep.memory_free = card->profile.memory_bytes - rep.memory_used;
	(void)pthread_mutex_lock(&s->soft->lock);
	now = aq_now_ns();
	aq_engine_account(card, now);
	aq_engine_copy_busy(card, 0, now);
	rep.now_ns = now;
	rep.util_gpu_pct = aq_util_pct(&card->busy, now);
	rep.util_mem_pct = aq_util_pct(&card->copying, now);
	rep.busy_ns = card->busy.total_ns;
	rep.copy_ns = card->copying.total_ns;
	rep.kernels = card->kernels;
	rep.late = card->late;
	rep.n_contexts = card->n_ctxs;
	rep.n_procs = list_procs(s->soft, card, 0, 0, NULL, &n);
	fill_sensors(card, &rep, now);
	(void)pthread_mutex_unlock(&s->soft->lock);
	memcpy(ans->data, &rep, sizeof(rep));
	ans->len = sizeof(rep);
	return AQ_OK;
}
