/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver says against what the clients say. A reading of the driver takes a moment during which clients go on, so nothing is held
 * against anybody that a single reading shows.
 */
#include "daemon/daemon.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/macro.h"
#include "daemon/probe-link.h"
#include "daemon/slots.h"
#include "util/log.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

/* Readings that were asked for in a hurry do not count as further evidence. */
#define HISTORY_STEP_NS (100 * AQ_NS_PER_MS)
#define SETTLE_LIMIT_NS (2 * AQ_NS_PER_S)
/* A hurry may be caused by any client as often as it likes. */
#define HURRY_US 2000ULL

const char *aqd_action_name(enum aqd_action action)
{
	switch (action) {
	case AQD_FREEZE:
		return "frozen";
	case AQD_KILL:
		return "killed";
	case AQD_REPORT:
		break;
	}
	return "reported";
}

/* Which of the instance's cards that is, or -1. */
static int instance_card(const struct aqd_instance *i, unsigned card)
{
	for (unsigned k = 0; k < i->n_cards; k++) {
		if (i->cards[k].card == (int)card)
			return (int)k;
	}
	return -1;
}

static const struct aqd_usage *find_usage(const struct aqd_usage *usage, unsigned n, pid_t pid,
					  int card)
{
	for (unsigned i = 0; i < n; i++) {
		if (usage[i].pid == pid && (card < 0 || usage[i].card == (unsigned)card))
			return &usage[i];
	}
	return NULL;
}

void aqd_watchdog_before(struct aqd *d)
{
	struct aqd_instance *i;
	struct aqd_client *c;

	aq_list_for_each(i, &d->instances, link) {
		aq_list_for_each(c, &i->clients, link) {
			for (unsigned k = 0; k < i->n_cards; k++)
				c->before[k] = aqd_client_counted(c, k);
		}
	}
}

/*
 * A context costs what the driver holds beyond what was counted. Learned for this instance alone, since a client's word is part of it.
 */
static void learn_context(const struct aqd_client *c, unsigned k, uint64_t bytes)
{
	struct aq_control_card *card = &c->instance->control->card[k];
	uint64_t counted = aqd_client_counted(c, k);
	uint64_t more = bytes > counted ? bytes - counted : 0;

	if (more > atomic_load(&card->context_bytes))
		atomic_store(&card->context_bytes, AQ_MIN(more, card->card_bytes / 4));
}

static void answer_settles(struct aqd_client *c, uint64_t began_ns, bool known,
			   const struct aqd_usage *usage, unsigned n)
{
	struct aqd_conn *conn;
	struct aqd_conn *tmp;

	aq_list_for_each_safe(conn, tmp, &c->connections, link) {
		for (unsigned k = 0; k < c->instance->n_cards; k++) {
			int card = c->instance->cards[k].card;
			const struct aqd_usage *u;

			if (!conn->settle[k].waiting)
				continue;
			if (known && conn->settle[k].since_ns <= began_ns && card >= 0) {
				u = find_usage(usage, n, c->pid, card);
				if (u && u->bytes != UINT64_MAX)
					learn_context(c, k, u->bytes);
				aqd_conn_settled(conn, k, u && u->bytes != UINT64_MAX,
						 u && u->bytes != UINT64_MAX ? u->bytes : 0);
			} else if (aq_now_ns() - conn->settle[k].since_ns > SETTLE_LIMIT_NS) {
				aqd_conn_settled(conn, k, false, 0);
			}
		}
	}
}

/* What three readings in a row have shown becomes overhead; never a reason to end anything. */
static void check_excess(struct aqd_client *c, unsigned k, uint64_t bytes, bool step)
{
	struct aq_account *a = &c->instance->report->account[k][c->slot];
	uint64_t counted = AQ_MAX(c->before[k], aqd_client_counted(c, k));
	uint64_t excess = bytes > counted ? bytes - counted : 0;
	uint64_t sure = AQ_MIN(excess, AQ_MIN(c->excess[k][0], c->excess[k][1]));
	uint64_t now;

	if (sure) {
		now = atomic_load(&a->overhead);
		/* The client raises it too. */
		while (now <= UINT64_MAX - sure &&
		       !atomic_compare_exchange_weak(&a->overhead, &now, now + sure))
			;
		c->excess[k][0] = c->excess[k][1] = 0;
		if (!c->excess_logged)
			aqd_note(
				c->instance->d, c->instance->name,
				"process %d (%s) holds %llu MiB that it has not accounted for; counted as overhead",
				c->pid, c->program,
				(unsigned long long)((sure + AQ_MIB - 1) / AQ_MIB));
		c->excess_logged = true;
		return;
	}
	if (!excess) {
		c->excess[k][0] = c->excess[k][1] = 0;
	} else if (step) {
		c->excess[k][1] = c->excess[k][0];
		c->excess[k][0] = excess;
	}
}

static void check_client(struct aqd_client *c, const struct aqd_usage *usage, unsigned n, bool step)
{
	for (unsigned k = 0; k < c->instance->n_cards; k++) {
		int card = c->instance->cards[k].card;
		const struct aqd_usage *u = card < 0 ? NULL : find_usage(usage, n, c->pid, card);

		if (u && u->bytes != UINT64_MAX)
			check_excess(c, k, u->bytes, step);
	}
}

/* For the next daemon. */
static void snapshot(const struct aqd_client *c)
{
	struct aq_slot_entry *e = &c->instance->slots->entry[c->slot];

	for (unsigned k = 0; k < c->instance->n_cards; k++) {
		struct aq_account *a = &c->instance->report->account[k][c->slot];

		e->used[k] = atomic_load(&a->used) + atomic_load(&a->pending);
		e->overhead[k] = atomic_load(&a->overhead);
	}
}

static bool is_back(const struct aqd_client *c, uint64_t began_ns, bool known,
		    const struct aqd_usage *usage, unsigned n)
{
	bool any_card = false;

	for (unsigned k = 0; k < c->instance->n_cards; k++)
		any_card |= c->instance->cards[k].card >= 0;
	if (known && any_card)
		return c->ended_ns < began_ns && !find_usage(usage, n, c->pid, -1);
	return aq_now_ns() - c->ended_ns > AQD_RELEASE_GRACE_NS;
}

/* A process of the same number that lives has taken over what the driver lists. */
static bool is_superseded(struct aqd *d, const struct aqd_client *c)
{
	return aqd_client_by_pid(d, c->pid) != c &&
	       aq_now_ns() - c->ended_ns > AQD_RELEASE_GRACE_NS;
}

static void check_instance(struct aqd_instance *i, uint64_t began_ns, bool known,
			   const struct aqd_usage *usage, unsigned n, bool step)
{
	struct aqd_client *c;
	struct aqd_client *tmp;

	aq_list_for_each_safe(c, tmp, &i->clients, link) {
		answer_settles(c, began_ns, known, usage, n);
		if (c->ended_ns) {
			if (is_back(c, began_ns, known, usage, n) || is_superseded(i->d, c))
				aqd_client_release(c);
			continue;
		}
		if (known)
			check_client(c, usage, n, step);
		if (step)
			snapshot(c);
	}
}

/* ------------------------------------------------------------------------------------------------ strangers */

static bool is_managed(const struct aqd *d, unsigned card)
{
	const struct aqd_instance *i;

	if (!d->cfg.private_mode)
		return d->cards[card].lock_fd >= 0;
	aq_list_for_each(i, &d->instances, link) {
		if (instance_card(i, card) >= 0)
			return true;
	}
	return false;
}

static struct aqd_stranger *find_stranger(struct aqd *d, pid_t pid, unsigned card)
{
	for (unsigned i = 0; i < d->n_strangers; i++) {
		if (d->strangers[i].pid == pid && d->strangers[i].card == card)
			return &d->strangers[i];
	}
	return NULL;
}

static bool is_mps(const char *program)
{
	/* The kernel cuts names at 15 characters. */
	return strncmp(program, "nvidia-cuda-mps", 15) == 0;
}

/* Stop or end it, if it is still the process that was read. */
static enum aqd_action act_on(const struct aqd *d, const struct aqd_stranger *s)
{
	enum aqd_action action = s->mps ? AQD_REPORT : d->cfg.strangers;
	struct aqd_process_id id;
	char name[32];
	int pidfd;
	int rc;

	if (action == AQD_REPORT)
		return action;
	pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
	if (pidfd < 0)
		return AQD_REPORT;
	aqd_process_name(s->pid, name, sizeof(name));
	rc = aqd_process_identify(s->pid, &id);
	if (rc == 0 && strcmp(name, s->program) == 0)
		rc = (int)syscall(SYS_pidfd_send_signal, pidfd,
				  action == AQD_KILL ? SIGKILL : SIGSTOP, NULL, 0);
	else
		rc = -1;
	(void)close(pidfd);
	return rc == 0 ? action : AQD_REPORT;
}

static void meet_stranger(struct aqd *d, const struct aqd_usage *u)
{
	struct aqd_stranger *s = find_stranger(d, u->pid, u->card);

	if (!s) {
		if (d->n_strangers == AQD_STRANGERS)
			return;
		s = &d->strangers[d->n_strangers++];
		*s = (struct aqd_stranger){
			.pid = u->pid,
			.card = u->card,
			.since_ns = aq_now_ns(),
		};
		aqd_process_name(u->pid, s->program, sizeof(s->program));
		s->mps = is_mps(s->program);
		s->action = act_on(d, s);
		aqd_note(d, NULL, "process %d (%s) uses GPU %u and never attached: %s", s->pid,
			 s->program, s->card, aqd_action_name(s->action));
	}
	s->bytes = u->bytes;
	s->seen = true;
}

static void check_strangers(struct aqd *d, const struct aqd_usage *usage, unsigned n)
{
	unsigned left = 0;

	for (unsigned i = 0; i < d->n_strangers; i++)
		d->strangers[i].seen = false;
	for (unsigned i = 0; i < n; i++) {
		if (usage[i].card < d->n_cards && is_managed(d, usage[i].card) &&
		    !aqd_client_by_pid(d, usage[i].pid))
			meet_stranger(d, &usage[i]);
	}
	for (unsigned i = 0; i < d->n_strangers; i++) {
		if (d->strangers[i].seen)
			d->strangers[left++] = d->strangers[i];
	}
	d->n_strangers = left;
}

/* Vgpus that wait for nothing more. */
static void sweep(struct aqd *d)
{
	struct aqd_instance *i;
	struct aqd_instance *tmp;
	uint64_t now = aq_now_ns();

	aq_list_for_each_safe(i, tmp, &d->instances, link) {
		struct aq_err err = { 0 };
		unsigned killed;
		bool gone;

		if (i->n_clients)
			continue;
		if (i->removing)
			(void)aqd_instance_reap(i);
		else if (i->orphaned_ns && now > i->orphaned_ns &&
			 aqd_instance_remove(i, false, &gone, &killed, &err) < 0)
			aq_log_debug("vgpu \"%s\" stays: %s", i->name, err.msg);
	}
}

void aqd_watchdog_reading(struct aqd *d, uint64_t began_ns, bool known,
			  const struct aqd_usage *usage, unsigned n)
{
	bool step = began_ns - d->history_ns >= HISTORY_STEP_NS;
	struct aqd_instance *i;

	if (step)
		d->history_ns = began_ns;
	/* Strangers first: a client that has just ended is listed still, and is none. */
	if (known)
		check_strangers(d, usage, n);
	aq_list_for_each(i, &d->instances, link)
		check_instance(i, began_ns, known, usage, n, step);
	sweep(d);
}

void aqd_watchdog_hurry(struct aqd *d)
{
	uint64_t soon = 0;
	uint64_t at = 0;

	if (!d->watchdog || sd_event_now(d->event, CLOCK_MONOTONIC, &soon) < 0 ||
	    sd_event_source_get_time(d->watchdog, &at) < 0)
		return;
	if (at > soon + HURRY_US)
		(void)sd_event_source_set_time(d->watchdog, soon + HURRY_US);
}

static int on_period(sd_event_source *src, uint64_t usec, void *opaque)
{
	struct aqd *d = opaque;
	struct aqd_instance *i;
	struct aqd_client *c;

	(void)usec;
	(void)sd_event_source_set_time_relative(src, (uint64_t)d->cfg.poll_ms * 1000);
	(void)sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
	/* Those that wait for a probe that does not answer. */
	aq_list_for_each(i, &d->instances, link) {
		aq_list_for_each(c, &i->clients, link)
			answer_settles(c, 0, false, NULL, 0);
	}
	aq_probe_read(d->probe);
	return 0;
}

int aqd_watchdog_start(struct aqd *d, struct aq_err *err)
{
	int rc = sd_event_add_time_relative(d->event, &d->watchdog, CLOCK_MONOTONIC,
					    (uint64_t)d->cfg.poll_ms * 1000, 1000, on_period, d);

	return rc < 0 ? aq_err_set(err, rc, "cannot start the watchdog: %s", strerror(-rc)) : 0;
}
