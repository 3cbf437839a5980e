/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the control socket. */
#include "daemon/control.h"

#include "base/err.h"
#include "base/macro.h"
#include "daemon/daemon.h"
#include "daemon/names.h"
#include "daemon/probe-link.h"

#include <errno.h>
#include <string.h>

struct op {
	struct aqd *d;
	const struct aqd_caller *caller;
	const json_t *req;
	json_t *answer; /* an object; the operation adds to it */
	bool later;
};

typedef int (*op_fn)(struct op *o, struct aq_err *err);

static const char *get_text(const json_t *req, const char *key)
{
	return json_string_value(json_object_get(req, key));
}

/* An optional number. 0 and *ret untouched when absent. */
static int get_number(const json_t *req, const char *key, uint64_t least, uint64_t most,
		      uint64_t *ret, bool *ret_given, struct aq_err *err)
{
	const json_t *v = json_object_get(req, key);
	json_int_t n;

	if (ret_given)
		*ret_given = v != NULL && !json_is_null(v);
	if (!v || json_is_null(v))
		return 0;
	n = json_integer_value(v);
	if (!json_is_integer(v) || n < 0 || (uint64_t)n < least || (uint64_t)n > most)
		return aq_err_set(err, -EINVAL, "%s is not a whole number from %llu to %llu", key,
				  (unsigned long long)least, (unsigned long long)most);
	*ret = (uint64_t)n;
	return 0;
}

static int get_bool(const json_t *req, const char *key, bool *ret, struct aq_err *err)
{
	const json_t *v = json_object_get(req, key);

	if (v && !json_is_boolean(v))
		return aq_err_set(err, -EINVAL, "%s is neither true nor false", key);
	*ret = json_is_true(v);
	return 0;
}

/* One of the texts, NULL-terminated; the first when absent. Its number or -EINVAL. */
static int get_choice(const json_t *req, const char *key, const char *const *choices,
		      struct aq_err *err)
{
	const json_t *v = json_object_get(req, key);
	const char *text = json_string_value(v);

	if (!v || json_is_null(v))
		return 0;
	for (int i = 0; text && choices[i]; i++) {
		if (strcmp(choices[i], text) == 0)
			return i;
	}
	return aq_err_set(err, -EINVAL, "%s is \"%.40s\", which is not among its values", key,
			  text ? text : "?");
}

/* NULL with the reason in err. */
static struct aqd_instance *find_named(struct op *o, struct aq_err *err)
{
	const char *name = get_text(o->req, "name");
	struct aqd_instance *i = name ? aqd_instance_find(o->d, name) : NULL;

	if (!name)
		(void)aq_err_set(err, -EINVAL, "name is missing");
	else if (!i)
		(void)aq_err_set(err, -ENOENT, "there is no vgpu \"%.63s\"", name);
	return i;
}

/* For operations that change one. */
static struct aqd_instance *find_own(struct op *o, struct aq_err *err)
{
	struct aqd_instance *i = find_named(o, err);

	if (i && !o->caller->full && i->owner != o->caller->uid) {
		(void)aq_err_set(err, -EACCES, "vgpu \"%s\" belongs to user %u, you are user %u",
				 i->name, i->owner, o->caller->uid);
		return NULL;
	}
	if (i && i->removing) {
		(void)aq_err_set(err, -EBUSY, "vgpu \"%s\" is being removed", i->name);
		return NULL;
	}
	return i;
}

static void put(struct op *o, const char *key, json_t *value)
{
	(void)json_object_set_new(o->answer, key, value);
}

static int op_version(struct op *o, struct aq_err *err)
{
	json_t *v = aqd_view_version(o->d);

	(void)err;
	(void)json_object_update(o->answer, v);
	json_decref(v);
	return 0;
}

static int op_cards(struct op *o, struct aq_err *err)
{
	(void)err;
	put(o, "cards", aqd_view_cards(o->d));
	put(o, "probe", aqd_view_probe(o->d));
	return 0;
}

static json_t *view_all(struct aqd *d)
{
	const struct aqd_instance *i;
	json_t *list = json_array();

	aq_list_for_each(i, &d->instances, link)
		(void)json_array_append_new(list, aqd_view_instance(i));
	return list;
}

static int op_list(struct op *o, struct aq_err *err)
{
	if (json_object_get(o->req, "name")) {
		const struct aqd_instance *i = find_named(o, err);

		if (!i)
			return err->code;
		put(o, "vgpus", json_pack("[o]", aqd_view_instance(i)));
	} else {
		put(o, "vgpus", view_all(o->d));
	}
	put(o, "strangers", aqd_view_strangers(o->d));
	return 0;
}

/* ------------------------------------------------------------------------------------------------ create */

static int check_known(const json_t *object, const char *const *keys, struct aq_err *err)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)object, key, value)
	{
		unsigned i = 0;

		while (keys[i] && strcmp(keys[i], key) != 0)
			i++;
		if (!keys[i])
			return aq_err_set(err, -EINVAL, "field \"%.40s\" is not understood", key);
	}
	return 0;
}

static int parse_card(const struct op *o, const json_t *v, int *ret, struct aq_err *err)
{
	int found;

	*ret = AQ_PLACE_ANY;
	if (!v || json_is_null(v))
		return 0;
	if (json_is_integer(v)) {
		json_int_t n = json_integer_value(v);

		if (n < 0 || n >= (json_int_t)o->d->n_cards)
			return aq_err_set(err, -ENODEV, "there is no GPU %lld; there are %u",
					  (long long)n, o->d->n_cards);
		*ret = (int)n;
		return 0;
	}
	if (!json_is_string(v))
		return aq_err_set(err, -EINVAL, "card is neither a number nor a text");
	found = aqd_card_find(o->d, json_string_value(v), err);
	if (found < 0)
		return found;
	*ret = found;
	return 0;
}

static int parse_want(const struct op *o, const json_t *from, struct aqd_want *want,
		      struct aq_err *err)
{
	uint64_t pct = want->compute_pct;
	int rc = get_number(from, "mem_bytes", 1, INT64_MAX, &want->mem_bytes, NULL, err);

	if (rc == 0)
		rc = get_number(from, "compute_pct", 0, 100, &pct, NULL, err);
	want->compute_pct = (unsigned)pct;
	if (rc == 0)
		rc = parse_card(o, json_object_get(from, "card"), &want->card, err);
	if (rc == 0 && want->mem_bytes == 0)
		return aq_err_set(err, -EINVAL, "mem_bytes is missing: a vgpu has a memory limit");
	return rc;
}

static int parse_wants(const struct op *o, struct aqd_request *r, struct aq_err *err)
{
	static const char *const keys[] = { "card", "mem_bytes", "compute_pct", NULL };
	const json_t *cards = json_object_get(o->req, "cards");
	struct aqd_want common = { .card = AQ_PLACE_ANY };
	uint64_t pct = 0;
	uint64_t n = 1;
	int rc = get_number(o->req, "mem_bytes", 1, INT64_MAX, &common.mem_bytes, NULL, err);

	if (rc == 0)
		rc = get_number(o->req, "compute_pct", 0, 100, &pct, NULL, err);
	if (rc < 0)
		return rc;
	common.compute_pct = (unsigned)pct;
	if (json_is_array(cards)) {
		n = json_array_size(cards);
		if (n == 0 || n > AQ_INSTANCE_CARDS)
			return aq_err_set(err, -EINVAL, "a vgpu has 1 to %u GPUs, not %llu",
					  AQ_INSTANCE_CARDS, (unsigned long long)n);
	} else {
		rc = get_number(o->req, "cards", 1, AQ_INSTANCE_CARDS, &n, NULL, err);
		if (rc < 0)
			return rc;
	}
	r->n_wants = (unsigned)n;
	for (unsigned k = 0; k < n; k++) {
		const json_t *e = json_is_array(cards) ? json_array_get(cards, k) : NULL;

		r->wants[k] = common;
		if (e && !json_is_object(e))
			return aq_err_set(err, -EINVAL, "an element of cards is not an object");
		rc = e ? check_known(e, keys, err) : 0;
		if (rc == 0)
			rc = parse_want(o, e, &r->wants[k], err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int check_ceiling(const struct op *o, struct aq_err *err)
{
	const struct aqd_instance *i;
	unsigned n = 0;

	if (o->caller->full)
		return 0;
	aq_list_for_each(i, &o->d->instances, link)
		n += i->owner == o->caller->uid;
	if (n < o->d->cfg.user_instances)
		return 0;
	return aq_err_set(err, -EDQUOT, "user %u has %u vgpus already, the most one user may have",
			  o->caller->uid, n);
}

static int op_create(struct op *o, struct aq_err *err)
{
	static const char *const placements[] = { "binpack", "spread", NULL };
	static const char *const accesses[] = { "owner", "any", NULL };
	struct aqd_request r = { .name = get_text(o->req, "name"), .owner = o->caller->uid };
	struct aqd_instance *i;
	int placement = get_choice(o->req, "placement", placements, err);
	int access = placement < 0 ? placement : get_choice(o->req, "access", accesses, err);
	int rc = access < 0 ? access : parse_wants(o, &r, err);

	if (rc == 0)
		rc = get_bool(o->req, "ephemeral", &r.ephemeral, err);
	if (rc == 0 && aqd_priority_parse(get_text(o->req, "priority"), &r.priority) < 0)
		rc = aq_err_set(err, -EINVAL, "priority is none of low, normal, high");
	if (rc == 0 && json_object_get(o->req, "name") && !r.name)
		rc = aq_err_set(err, -EINVAL, "name is not a text");
	if (rc == 0)
		rc = check_ceiling(o, err);
	if (rc < 0)
		return rc;
	r.placement = placement ? AQ_PLACE_SPREAD : AQ_PLACE_BINPACK;
	r.access_any = access == 1;
	rc = aqd_instance_create(o->d, &r, &i, err);
	if (rc < 0)
		return rc;
	if (i->ephemeral && aq_control_bind(o->caller->conn, i->name) < 0) {
		bool gone;
		unsigned killed;

		(void)aqd_instance_remove(i, false, &gone, &killed, NULL);
		return aq_err_set(err, -ENOMEM, "too many vgpus depend on this connection");
	}
	put(o, "vgpu", aqd_view_instance(i));
	return 0;
}

/* ------------------------------------------------------------------------------------------------ the others */

static int op_remove(struct op *o, struct aq_err *err)
{
	struct aqd_instance *i = find_own(o, err);
	unsigned killed = 0;
	bool gone = false;
	bool force = false;
	int rc;

	if (!i)
		return err->code;
	rc = get_bool(o->req, "force", &force, err);
	if (rc == 0)
		rc = aqd_instance_remove(i, force, &gone, &killed, err);
	if (rc < 0)
		return rc;
	put(o, "removed", json_boolean(gone));
	put(o, "killed", json_integer(killed));
	return 0;
}

static int op_set(struct op *o, struct aq_err *err)
{
	struct aqd_change c = { .mask = UINT32_MAX, .compute_pct = -1, .priority = -1 };
	struct aqd_instance *i = find_own(o, err);
	uint64_t number = 0;
	bool given = false;
	int rc;

	if (!i)
		return err->code;
	rc = get_number(o->req, "mem_bytes", 1, INT64_MAX, &c.mem_bytes, &c.set_mem, err);
	if (rc == 0)
		rc = get_number(o->req, "compute_pct", 0, 100, &number, &given, err);
	if (rc < 0)
		return rc;
	if (given)
		c.compute_pct = (int)number;
	rc = get_number(o->req, "card", 0, i->n_cards - 1, &number, &given, err);
	if (rc < 0)
		return rc;
	if (given)
		c.mask = 1U << number;
	if (json_object_get(o->req, "priority")) {
		enum aqd_priority p;

		if (!get_text(o->req, "priority") ||
		    aqd_priority_parse(get_text(o->req, "priority"), &p) < 0)
			return aq_err_set(err, -EINVAL, "priority is none of low, normal, high");
		c.priority = (int)p;
	}
	if (!c.set_mem && c.compute_pct < 0 && c.priority < 0)
		return aq_err_set(err, -EINVAL,
				  "nothing to set: mem_bytes, compute_pct or priority is needed");
	rc = aqd_instance_set(i, &c, err);
	if (rc < 0)
		return rc;
	put(o, "vgpu", aqd_view_instance(i));
	return 0;
}

static int op_why(struct op *o, struct aq_err *err)
{
	const struct aqd_instance *i = find_named(o, err);

	if (!i)
		return err->code;
	put(o, "vgpu", aqd_view_instance(i));
	put(o, "reasons", aqd_view_reasons(i));
	return 0;
}

static int op_log(struct op *o, struct aq_err *err)
{
	uint64_t after = 0;
	int rc = get_number(o->req, "after", 0, INT64_MAX, &after, NULL, err);

	if (rc < 0)
		return rc;
	/* A vgpu that is gone still has its history. */
	put(o, "events", aqd_view_events(o->d, get_text(o->req, "name"), after));
	return 0;
}

static int freeze_or_thaw(struct op *o, bool freeze, struct aq_err *err)
{
	struct aqd_instance *i = find_own(o, err);
	int rc;

	if (!i)
		return err->code;
	rc = aqd_instance_freeze(i, freeze, err);
	if (rc < 0)
		return rc;
	put(o, "vgpu", aqd_view_instance(i));
	return 0;
}

static int op_freeze(struct op *o, struct aq_err *err)
{
	return freeze_or_thaw(o, true, err);
}

static int op_thaw(struct op *o, struct aq_err *err)
{
	return freeze_or_thaw(o, false, err);
}

static int op_report(struct op *o, struct aq_err *err)
{
	(void)err;
	put(o, "version", aqd_view_version(o->d));
	put(o, "cards",
	    json_pack("{s:o, s:o}", "cards", aqd_view_cards(o->d), "probe", aqd_view_probe(o->d)));
	put(o, "list",
	    json_pack("{s:o, s:o}", "vgpus", view_all(o->d), "strangers",
		      aqd_view_strangers(o->d)));
	put(o, "log", json_pack("{s:o}", "events", aqd_view_events(o->d, NULL, 0)));
	put(o, "options", aqd_view_options(o->d));
	return 0;
}

static void on_symbols(void *conn, const json_t *libraries)
{
	json_t *answer;

	if (libraries)
		answer = json_pack("{s:b, s:O}", "ok", 1, "libraries", libraries);
	else
		answer = json_pack("{s:b, s:s, s:s}", "ok", 0, "error", "the probe failed", "code",
				   "EIO");
	aq_control_answer(conn, answer);
}

static int op_symbols(struct op *o, struct aq_err *err)
{
	int rc = aq_probe_symbols(o->d->probe, on_symbols, o->caller->conn);

	if (rc < 0)
		return aq_err_set(err, rc,
				  rc == -EBUSY ? "somebody else asks the probe for symbols now"
					       : "the probe does not run");
	o->later = true;
	return 0;
}

static const char *const none[] = { "op", NULL };
static const char *const name_only[] = { "op", "name", NULL };
static const char *const create_keys[] = { "op",	"name",	    "mem_bytes", "compute_pct",
					   "cards",	"priority", "placement", "access",
					   "ephemeral", NULL };
static const char *const remove_keys[] = { "op", "name", "force", NULL };
static const char *const set_keys[] = { "op",	"name",	    "mem_bytes", "compute_pct",
					"card", "priority", NULL };
static const char *const log_keys[] = { "op", "name", "after", NULL };

static const struct {
	const char *name;
	op_fn fn;
	const char *const *keys;
} ops[] = {
	{ "cards", op_cards, none },	    { "create", op_create, create_keys },
	{ "freeze", op_freeze, name_only }, { "list", op_list, name_only },
	{ "log", op_log, log_keys },	    { "remove", op_remove, remove_keys },
	{ "report", op_report, none },	    { "set", op_set, set_keys },
	{ "symbols", op_symbols, none },    { "thaw", op_thaw, name_only },
	{ "version", op_version, none },    { "why", op_why, name_only },
};

static int dispatch(struct op *o, struct aq_err *err)
{
	const char *name = get_text(o->req, "op");

	if (!json_is_object(o->req) || !name)
		return aq_err_set(err, -EINVAL, "the request is not an object with an op");
	for (size_t k = 0; k < AQ_ARRAY_SIZE(ops); k++) {
		int rc;

		if (strcmp(ops[k].name, name) != 0)
			continue;
		rc = check_known(o->req, ops[k].keys, err);
		return rc < 0 ? rc : ops[k].fn(o, err);
	}
	return aq_err_set(err, -EOPNOTSUPP, "there is no operation \"%.40s\"", name);
}

json_t *aqd_op(struct aqd *d, const struct aqd_caller *caller, const json_t *request)
{
	struct op o = {
		.d = d,
		.caller = caller,
		.req = request,
		.answer = json_pack("{s:b}", "ok", 1),
	};
	struct aq_err err = { 0 };
	int rc = dispatch(&o, &err);

	if (rc < 0) {
		json_decref(o.answer);
		aqd_printable(err.msg);
		return json_pack("{s:b, s:s, s:s}", "ok", 0, "error", err.msg, "code",
				 aqd_errno_name(rc));
	}
	if (o.later) {
		json_decref(o.answer);
		return NULL;
	}
	return o.answer;
}
