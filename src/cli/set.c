/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot set VGPU`: new limits for a vgpu whose programs go on. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/size.h"
#include "cli/show.h"
#include "cli/verb.h"
#include "cli/vgpu-options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The limit of each GPU now, and what is wrong with it. */
static void tell(const json_t *vgpu)
{
	const json_t *c;
	size_t k;

	json_array_foreach(json_object_get(vgpu, "cards"), k, c)
	{
		long long held =
			aq_show_number(c, "used_bytes") + aq_show_number(c, "overhead_bytes") +
			aq_show_number(c, "pending_bytes") + aq_show_number(c, "releasing_bytes");
		char limit[24];
		char used[24];

		if (held <= aq_show_number(c, "limit_bytes"))
			continue;
		aq_size_format((uint64_t)held, used, sizeof(used));
		aq_cli_error("set: \"%s\" holds %s of GPU %lld, more than its new limit of %s: "
			     "it gets nothing more until it has freed enough",
			     aq_show_text(vgpu, "name"), used, aq_show_number(c, "card"),
			     aq_show_size(c, "limit_bytes", limit));
	}
}

static json_t *make_request(const struct aq_vgpu_options *want, const char *name,
			    struct aq_err *err)
{
	json_t *r = json_pack("{s:s, s:s}", "op", "set", "name", name);

	if (want->mem_bytes)
		(void)json_object_set_new(r, "mem_bytes",
					  json_integer((json_int_t)want->mem_bytes));
	if (want->compute_pct >= 0)
		(void)json_object_set_new(r, "compute_pct", json_integer(want->compute_pct));
	if (want->priority)
		(void)json_object_set_new(r, "priority", json_string(want->priority));
	if (want->n_named == 1 && !want->named[0].mem_bytes) {
		uint64_t k = 0;

		if (aq_uint_parse(want->named[0].name, "--card", AQ_VGPU_CARDS - 1, &k, err) < 0) {
			json_decref(r);
			return NULL;
		}
		(void)json_object_set_new(r, "card", json_integer((json_int_t)k));
	}
	return r;
}

int aq_cli_set(int argc, char **argv)
{
	static const struct option options[] = {
		{ "mem", required_argument, NULL, AQ_OPT_MEM },
		{ "compute", required_argument, NULL, AQ_OPT_COMPUTE },
		{ "priority", required_argument, NULL, AQ_OPT_PRIORITY },
		{ "card", required_argument, NULL, AQ_OPT_CARD },
		{ "json", no_argument, NULL, 'j' },
		{ 0 },
	};
	struct aq_vgpu_options want = AQ_VGPU_OPTIONS_NONE;
	struct aq_err err = { 0 };
	bool as_json = false;
	int status = AQ_EXIT_OK;
	json_t *request;
	json_t *answer;
	int opt;

	optind = 1;
	while ((opt = getopt_long(argc, argv, ":", options, NULL)) >= 0) {
		int rc = opt == 'j' ? 0 : aq_vgpu_option(&want, opt, optarg, &err);

		as_json = as_json || opt == 'j';
		if (rc == -ENOENT)
			aq_cli_bad_option("set", argc, argv, opt);
		else if (rc < 0)
			aq_cli_error("set: %s", err.msg);
		if (rc < 0)
			return AQ_EXIT_USAGE;
	}
	if (!aq_verb_arguments("set", argc, argv, 1, 1, "VGPU --mem SIZE"))
		return AQ_EXIT_USAGE;
	if (!want.mem_bytes && want.compute_pct < 0 && !want.priority) {
		aq_cli_error("set: nothing to set: --mem SIZE, --compute PERCENT or --priority");
		return AQ_EXIT_USAGE;
	}
	if (want.n_named > 1 || (want.n_named == 1 && want.named[0].mem_bytes)) {
		aq_cli_error("set: --card takes one of the vgpu's GPUs, 0 for its first; "
			     "--mem has the size");
		return AQ_EXIT_USAGE;
	}
	request = make_request(&want, argv[optind], &err);
	if (!request) {
		aq_cli_error("set: %s", err.msg);
		return AQ_EXIT_USAGE;
	}
	answer = aq_verb_ask("set", request);
	if (!answer)
		return AQ_EXIT_FAILED;
	aq_vgpu_tell_unenforced("set", want.compute_pct, want.priority);
	tell(json_object_get(answer, "vgpu"));
	if (as_json) {
		(void)json_object_del(answer, "ok");
		status = aq_show_json("set", answer);
	}
	json_decref(answer);
	return status;
}
