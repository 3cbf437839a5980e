/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/vgpu-options.h"

#include "base/err.h"
#include "base/macro.h"
#include "base/size.h"
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "1", "GPU-6a2f…", "1=2GiB" */
static int add_card(struct aq_vgpu_options *o, char *value, struct aq_err *err)
{
	char *size = strchr(value, '=');
	uint64_t bytes = 0;

	if (o->n_named == AQ_VGPU_CARDS)
		return aq_err_set(err, -EINVAL, "a vgpu has at most %d GPUs", AQ_VGPU_CARDS);
	if (size) {
		*size++ = '\0';
		if (aq_size_parse(size, &bytes, err) < 0)
			return aq_err_prefix(err, "--card %s", value);
	}
	if (!value[0])
		return aq_err_set(err, -EINVAL, "--card names no GPU; aliquot gpus lists them");
	o->named[o->n_named].name = value;
	o->named[o->n_named++].mem_bytes = bytes;
	return 0;
}

static int check_word(const char *option, const char *value, const char *a, const char *b,
		      const char *c, struct aq_err *err)
{
	if (strcmp(value, a) == 0 || strcmp(value, b) == 0 || (c && strcmp(value, c) == 0))
		return 0;
	return aq_err_set(err, -EINVAL, "--%s is \"%.40s\"; it is %s%s%s or %s", option, value, a,
			  c ? ", " : "", c ? c : "", b);
}

int aq_vgpu_option(struct aq_vgpu_options *o, int opt, char *value, struct aq_err *err)
{
	uint64_t number = 0;
	unsigned pct = 0;
	int rc;

	switch (opt) {
	case AQ_OPT_MEM:
		rc = aq_size_parse(value, &o->mem_bytes, err);
		if (rc == 0 && o->mem_bytes == 0)
			rc = aq_err_set(err, -EINVAL, "a limit of 0 leaves nothing");
		return rc < 0 ? aq_err_prefix(err, "--mem") : 0;
	case AQ_OPT_COMPUTE:
		rc = aq_percent_parse(value, &pct, err);
		o->compute_pct = (int)pct;
		return rc < 0 ? aq_err_prefix(err, "--compute") : 0;
	case AQ_OPT_CARD:
		return add_card(o, value, err);
	case AQ_OPT_CARDS:
		rc = aq_uint_parse(value, "--cards", AQ_VGPU_CARDS, &number, err);
		if (rc == 0 && number == 0)
			rc = aq_err_set(err, -EINVAL, "--cards is 0, 1 to %d are possible",
					AQ_VGPU_CARDS);
		o->n_cards = (unsigned)number;
		return rc;
	case AQ_OPT_PRIORITY:
		o->priority = value;
		return check_word("priority", value, "low", "high", "normal", err);
	case AQ_OPT_PLACEMENT:
		o->placement = value;
		return check_word("placement", value, "binpack", "spread", NULL, err);
	default:
		return -ENOENT;
	}
}

bool aq_vgpu_options_given(const struct aq_vgpu_options *o)
{
	return o->mem_bytes || o->compute_pct >= 0 || o->n_cards || o->n_named || o->priority ||
	       o->placement;
}

static bool all_digits(const char *text)
{
	for (; *text; text++) {
		if (!isdigit((unsigned char)*text))
			return false;
	}
	return true;
}

static int check_complete(const struct aq_vgpu_options *o, struct aq_err *err)
{
	bool each = o->n_named > 0;

	for (unsigned i = 0; i < o->n_named; i++)
		each = each && o->named[i].mem_bytes;
	if (o->n_cards && o->n_named)
		return aq_err_set(err, -EINVAL,
				  "--cards %u and --card %s: give a number of GPUs or name them",
				  o->n_cards, o->named[0].name);
	if (!o->mem_bytes && !each)
		return aq_err_set(err, -EINVAL, "no limit given: --mem SIZE, 512MiB for example");
	return 0;
}

/* New references throughout; jansson passes a NULL on. */
static json_t *named_cards(const struct aq_vgpu_options *o)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < o->n_named; i++) {
		const char *name = o->named[i].name;
		json_t *card = json_object();

		(void)json_object_set_new(card, "card",
					  all_digits(name) && strlen(name) < 9
						  ? json_integer(strtol(name, NULL, 10))
						  : json_string(name));
		if (o->named[i].mem_bytes)
			(void)json_object_set_new(card, "mem_bytes",
						  json_integer((json_int_t)o->named[i].mem_bytes));
		(void)json_array_append_new(list, card);
	}
	return list;
}

json_t *aq_vgpu_create_request(const struct aq_vgpu_options *o, const char *name,
			       struct aq_err *err)
{
	json_t *r;

	if (check_complete(o, err) < 0)
		return NULL;
	r = json_pack("{s:s}", "op", "create");
	if (name)
		(void)json_object_set_new(r, "name", json_string(name));
	if (o->mem_bytes)
		(void)json_object_set_new(r, "mem_bytes", json_integer((json_int_t)o->mem_bytes));
	if (o->compute_pct >= 0)
		(void)json_object_set_new(r, "compute_pct", json_integer(o->compute_pct));
	if (o->n_named)
		(void)json_object_set_new(r, "cards", named_cards(o));
	else if (o->n_cards)
		(void)json_object_set_new(r, "cards", json_integer(o->n_cards));
	if (o->priority)
		(void)json_object_set_new(r, "priority", json_string(o->priority));
	if (o->placement)
		(void)json_object_set_new(r, "placement", json_string(o->placement));
	if (!r)
		(void)aq_err_set(err, -ENOMEM, "no memory for a request");
	return r;
}

void aq_vgpu_tell_unenforced(const char *verb, int compute_pct, const char *priority)
{
	if (compute_pct > 0)
		aq_cli_error("%s: --compute %d is recorded and shown, but not enforced yet: "
			     "every program may use the whole GPU's time",
			     verb, compute_pct);
	if (priority && strcmp(priority, "normal") != 0)
		aq_cli_error("%s: --priority %s is recorded and shown, but not enforced yet", verb,
			     priority);
}
