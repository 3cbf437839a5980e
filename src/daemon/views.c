/* SPDX-License-Identifier: Apache-2.0 */
/* What the control socket shows: the objects of docs/control.md. */
#include "daemon/control.h"

#include "base/clock.h"
#include "base/macro.h"
#include "base/size.h"
#include "daemon/daemon.h"
#include "daemon/names.h"
#include "daemon/probe-link.h"
#include "proto/control.h"

#include <stdio.h>
#include <string.h>

/* Foreign figures may be anything. */
static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)AQ_MIN(n, (uint64_t)INT64_MAX));
}

static uint64_t add(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static json_t *text_or_null(const char *text)
{
	return text && text[0] ? json_string(text) : json_null();
}

json_t *aqd_view_version(const struct aqd *d)
{
	return json_pack("{s:s, s:i, s:i, s:i, s:i, s:s, s:s, s:i, s:s, s:s}", "version",
			 AQ_VERSION, "protocol", (int)AQ_CONTROL_PROTOCOL, "attach_protocol",
			 (int)AQ_ATTACH_VERSION, "pages", (int)AQ_PAGES_VERSION, "pid",
			 (int)getpid(), "mode", d->cfg.private_mode ? "private" : "system", "dir",
			 d->cfg.dir, "epoch", (int)d->epoch, "cuda_provider", d->cfg.cuda_provider,
			 "nvml_provider", d->cfg.nvml_provider);
}

json_t *aqd_view_cards(const struct aqd *d)
{
	struct aq_place_card place[AQD_MAX_CARDS];
	json_t *list = json_array();

	aqd_cards_for_placement(d, NULL, place);
	for (unsigned i = 0; i < d->n_cards; i++) {
		const struct aqd_card *c = &d->cards[i];
		uint64_t capacity = aq_place_capacity(&place[i]);
		uint64_t give =
			place[i].overcommit_pct == AQ_OVERCOMMIT_NONE
				? capacity
				: capacity / AQ_MIB * place[i].overcommit_pct / 100 * AQ_MIB;
		json_t *o =
			json_pack("{s:i, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
				  "index", (int)i, "uuid", c->uuid, "name", c->name, "pci", c->pci,
				  "memory_bytes", number(c->memory_bytes), "reserved_bytes",
				  number(c->reserved_bytes), "used_bytes", number(c->used_bytes),
				  "headroom_bytes", number(place[i].headroom_bytes),
				  "capacity_bytes", number(capacity), "given_bytes",
				  number(place[i].limits_bytes), "free_bytes",
				  number(give > place[i].limits_bytes ? give - place[i].limits_bytes
								      : 0));
		json_t *more =
			json_pack("{s:i, s:i, s:i, s:b, s:b, s:o}", "given_pct",
				  (int)place[i].compute_pct, "vgpus", (int)place[i].n_instances,
				  "max_vgpus", (int)place[i].max_instances, "software",
				  (int)c->software, "present", (int)c->present, "blocked",
				  text_or_null(c->blocked));

		(void)json_object_update_missing(o, more);
		json_decref(more);
		(void)json_array_append_new(list, o);
	}
	return list;
}

json_t *aqd_view_probe(const struct aqd *d)
{
	struct aq_probe_status s;

	aq_probe_get_status(d->probe, &s);
	return json_pack("{s:s, s:o, s:i, s:o, s:b}", "state", s.state, "error",
			 text_or_null(s.error), "restarts", (int)s.restarts, "age_ms",
			 s.read_ns ? number((aq_now_ns() - s.read_ns) / AQ_NS_PER_MS) : json_null(),
			 "processes", (int)s.processes);
}

/* What one client counts on one card. */
struct figures {
	uint64_t used, overhead, pending, spill;
};

static struct figures read_figures(const struct aqd_client *c, unsigned k)
{
	struct aq_account *a = &c->instance->report->account[k][c->slot];

	return (struct figures){
		.pending = atomic_load(&a->pending),
		.used = atomic_load(&a->used),
		.overhead = atomic_load(&a->overhead),
		.spill = atomic_load(&a->spill),
	};
}

static json_t *view_client(const struct aqd_client *c)
{
	struct figures sum = { 0 };
	json_t *cards = json_array();

	for (unsigned k = 0; k < c->instance->n_cards; k++) {
		struct figures f = read_figures(c, k);

		sum.used = add(sum.used, f.used);
		sum.overhead = add(sum.overhead, f.overhead);
		sum.pending = add(sum.pending, f.pending);
		(void)json_array_append_new(cards, json_pack("{s:o, s:o, s:o}", "used_bytes",
							     number(f.used), "overhead_bytes",
							     number(f.overhead), "pending_bytes",
							     number(f.pending)));
	}
	return json_pack("{s:i, s:I, s:i, s:s, s:s, s:o, s:o, s:o, s:o}", "pid", (int)c->pid, "uid",
			 (json_int_t)c->uid, "slot", (int)c->slot, "program", c->program, "state",
			 c->ended_ns	    ? "releasing"
			 : c->n_connections ? "attached"
					    : "detached",
			 "used_bytes", number(sum.used), "overhead_bytes", number(sum.overhead),
			 "pending_bytes", number(sum.pending), "cards", cards);
}

static json_t *view_card(const struct aqd_instance *i, unsigned k)
{
	const struct aqd_instance_card *ic = &i->cards[k];
	struct figures sum = { 0 };
	const struct aqd_client *c;
	uint64_t releasing = 0;
	uint64_t all;

	aq_list_for_each(c, &i->clients, link) {
		struct figures f = read_figures(c, k);

		if (c->ended_ns) {
			releasing = add(releasing, aqd_client_counted(c, k));
			continue;
		}
		sum.used = add(sum.used, f.used);
		sum.overhead = add(sum.overhead, f.overhead);
		sum.pending = add(sum.pending, f.pending);
		sum.spill = add(sum.spill, f.spill);
	}
	all = add(add(sum.used, sum.overhead), add(sum.pending, releasing));
	return json_pack("{s:o, s:s, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "card",
			 ic->card < 0 ? json_null() : json_integer(ic->card), "uuid", ic->uuid,
			 "limit_bytes", number(ic->limit_bytes), "compute_pct",
			 (int)ic->compute_pct, "used_bytes", number(sum.used), "overhead_bytes",
			 number(sum.overhead), "pending_bytes", number(sum.pending),
			 "releasing_bytes", number(releasing), "spill_bytes", number(sum.spill),
			 "free_bytes", number(ic->limit_bytes > all ? ic->limit_bytes - all : 0));
}

struct refusals {
	uint64_t count, last_bytes, last_ns;
	uint32_t last_card;
};

static struct refusals sum_refusals(const struct aqd_instance *i)
{
	struct refusals sum = {
		.count = i->refusals,
		.last_ns = i->refused_ns,
		.last_bytes = i->refused_bytes,
		.last_card = i->refused_card,
	};
	const struct aqd_client *c;

	aq_list_for_each(c, &i->clients, link) {
		struct aq_report_client *r = &i->report->client[c->slot];
		uint64_t at = atomic_load(&r->refused_ns);

		sum.count = add(sum.count, atomic_load(&r->refusals));
		if (at > sum.last_ns && at <= aq_now_ns()) {
			sum.last_ns = at;
			sum.last_bytes = atomic_load(&r->refused_bytes);
			sum.last_card = atomic_load(&r->refused_card);
		}
	}
	return sum;
}

static json_t *view_refusals(const struct aqd_instance *i)
{
	struct refusals r = sum_refusals(i);

	return json_pack("{s:o, s:o, s:I, s:o}", "count", number(r.count), "last_bytes",
			 number(r.last_bytes), "last_card", (json_int_t)r.last_card, "last_ms",
			 r.last_ns ? number((aq_now_ns() - r.last_ns) / AQ_NS_PER_MS)
				   : json_null());
}

json_t *aqd_view_instance(const struct aqd_instance *i)
{
	json_t *cards = json_array();
	json_t *clients = json_array();
	const struct aqd_client *c;

	for (unsigned k = 0; k < i->n_cards; k++)
		(void)json_array_append_new(cards, view_card(i, k));
	aq_list_for_each(c, &i->clients, link)
		(void)json_array_append_new(clients, view_client(c));
	return json_pack("{s:s, s:s, s:I, s:s, s:s, s:b, s:s, s:o, s:o, s:o}", "name", i->name,
			 "dir", i->dir, "owner", (json_int_t)i->owner, "access",
			 i->access_any ? "any" : "owner", "priority",
			 aqd_priority_name(i->priority), "ephemeral", (int)i->ephemeral, "state",
			 i->removing ? "removing"
			 : i->frozen ? "frozen"
				     : "ready",
			 "cards", cards, "clients", clients, "refusals", view_refusals(i));
}

json_t *aqd_view_strangers(const struct aqd *d)
{
	json_t *list = json_array();

	for (unsigned k = 0; k < d->n_strangers; k++) {
		const struct aqd_stranger *s = &d->strangers[k];

		(void)json_array_append_new(list,
					    json_pack("{s:i, s:i, s:s, s:o, s:s, s:b, s:o, s:s}",
						      "pid", (int)s->pid, "card", (int)s->card,
						      "uuid", d->cards[s->card].uuid, "bytes",
						      s->bytes == UINT64_MAX ? json_null()
									     : number(s->bytes),
						      "program", s->program, "mps", (int)s->mps,
						      "since_ms",
						      number((aq_now_ns() - s->since_ns) /
							     AQ_NS_PER_MS),
						      "action", aqd_action_name(s->action)));
	}
	return list;
}

json_t *aqd_view_events(const struct aqd *d, const char *vgpu, uint64_t after)
{
	uint64_t first = d->next_event > AQD_EVENTS ? d->next_event - AQD_EVENTS : 0;
	json_t *list = json_array();

	for (uint64_t n = AQ_MAX(first, after); n < d->next_event; n++) {
		const struct aqd_event *e = &d->events[n % AQD_EVENTS];

		if (vgpu && strcmp(vgpu, e->vgpu) != 0)
			continue;
		(void)json_array_append_new(list,
					    json_pack("{s:I, s:f, s:o, s:s}", "id",
						      (json_int_t)e->id, "time", e->time, "vgpu",
						      text_or_null(e->vgpu), "text", e->text));
	}
	return list;
}

static void add_option(json_t *list, const char *name, const char *value)
{
	if (value && value[0])
		(void)json_array_append_new(list, json_sprintf("--%s %s", name, value));
}

json_t *aqd_view_options(const struct aqd *d)
{
	const struct aqd_config *c = &d->cfg;
	json_t *list = json_array();

	if (c->private_mode)
		(void)json_array_append_new(list, json_string("--private"));
	add_option(list, "dir", c->dir);
	add_option(list, "state", c->state);
	add_option(list, "lock-dir", c->lock_dir);
	add_option(list, "probe", c->probe);
	add_option(list, "provider-cuda", c->cuda_provider);
	add_option(list, "provider-nvml", c->nvml_provider);
	add_option(list, "group", c->group);
	add_option(list, "strangers",
		   c->strangers == AQD_KILL	? "kill"
		   : c->strangers == AQD_FREEZE ? "freeze"
						: "report");
	if (c->headroom_given)
		(void)json_array_append_new(list,
					    json_sprintf("--headroom %llu",
							 (unsigned long long)(c->headroom_bytes /
									      AQ_MIB)));
	(void)json_array_append_new(list, json_sprintf("--max-vgpus %u", c->max_instances));
	(void)json_array_append_new(list, json_sprintf("--overcommit %u", c->overcommit_pct));
	(void)json_array_append_new(list, json_sprintf("--user-vgpus %u", c->user_instances));
	(void)json_array_append_new(list, json_sprintf("--poll-ms %u", c->poll_ms));
	if (c->allow_software)
		(void)json_array_append_new(list, json_string("--allow-software"));
	return list;
}

static void reason_memory(const struct aqd_instance *i, unsigned k, json_t *list)
{
	json_t *card = view_card(i, k);
	uint64_t left = (uint64_t)json_integer_value(json_object_get(card, "free_bytes"));
	uint64_t releasing = (uint64_t)json_integer_value(json_object_get(card, "releasing_bytes"));
	uint64_t overhead = (uint64_t)json_integer_value(json_object_get(card, "overhead_bytes"));
	char limit[32];
	char free_text[32];
	char text[32];

	aq_size_format(i->cards[k].limit_bytes, limit, sizeof(limit));
	aq_size_format(left, free_text, sizeof(free_text));
	if (i->cards[k].card < 0)
		(void)json_array_append_new(
			list, json_sprintf("GPU %s is not there: nothing can run on it",
					   i->cards[k].uuid));
	else
		(void)json_array_append_new(list, json_sprintf("GPU %d: %s of %s are left",
							       i->cards[k].card, free_text, limit));
	if (overhead) {
		aq_size_format(overhead, text, sizeof(text));
		(void)json_array_append_new(
			list,
			json_sprintf(
				"GPU %d: %s of the limit are taken by contexts and code, not by allocations",
				i->cards[k].card, text));
	}
	if (releasing) {
		aq_size_format(releasing, text, sizeof(text));
		(void)json_array_append_new(
			list,
			json_sprintf(
				"GPU %d: %s belong to ended programs; the driver has not given them back yet",
				i->cards[k].card, text));
	}
	json_decref(card);
}

json_t *aqd_view_reasons(const struct aqd_instance *i)
{
	struct refusals r = sum_refusals(i);
	json_t *list = json_array();
	char text[32];

	if (i->removing)
		(void)json_array_append_new(list,
					    json_string(
						    "it is being removed: no program can attach"));
	if (i->frozen)
		(void)json_array_append_new(
			list,
			json_sprintf(
				"it is frozen: its programs are stopped; \"aliquot thaw %s\" lets them go on",
				i->name));
	for (unsigned k = 0; k < i->n_cards; k++)
		reason_memory(i, k, list);
	if (r.count) {
		aq_size_format(r.last_bytes, text, sizeof(text));
		(void)json_array_append_new(
			list, json_sprintf("%llu allocations were refused, the last one of %s",
					   (unsigned long long)r.count, text));
	}
	return list;
}
