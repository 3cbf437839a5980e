/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot create [NAME]`: a vgpu that stays until it is removed. Prints its name. */
#include "cli/cli.h"

#include "base/err.h"
#include "cli/daemon-link.h"
#include "cli/show.h"
#include "cli/verb.h"
#include "cli/vgpu-options.h"

#include <errno.h>
#include <stdio.h>

static int create(const struct aq_vgpu_options *want, const char *name, bool access_any,
		  bool as_json)
{
	struct aq_daemon daemon = AQ_DAEMON_NONE;
	struct aq_err err = { 0 };
	json_t *answer = NULL;
	json_t *request = aq_vgpu_create_request(want, name, &err);
	int status = AQ_EXIT_FAILED;

	if (!request) {
		aq_cli_error("create: %s", err.msg);
		return AQ_EXIT_USAGE;
	}
	if (access_any)
		(void)json_object_set_new(request, "access", json_string("any"));
	if (aq_daemon_open_or_start(&daemon, &err) < 0) {
		json_decref(request);
		aq_cli_error("create: %s", err.msg);
		return AQ_EXIT_FAILED;
	}
	if (aq_daemon_call(&daemon, request, &answer, &err) < 0) {
		aq_cli_error("create: %s", err.msg);
	} else {
		aq_vgpu_tell_unenforced("create", want->compute_pct, want->priority);
		if (as_json) {
			(void)json_object_del(answer, "ok");
			status = aq_show_json("create", answer);
		} else {
			(void)printf("%s\n", aq_show_text(json_object_get(answer, "vgpu"), "name"));
			status = aq_show_done("create");
		}
	}
	json_decref(answer);
	aq_daemon_close(&daemon);
	return status;
}

int aq_cli_create(int argc, char **argv)
{
	static const struct option options[] = {
		AQ_VGPU_LONG_OPTIONS,
		{ "json", no_argument, NULL, 'j' },
		{ "share", no_argument, NULL, 's' },
		{ 0 },
	};
	struct aq_vgpu_options want = AQ_VGPU_OPTIONS_NONE;
	struct aq_err err = { 0 };
	bool as_json = false;
	bool access_any = false;
	int opt;

	optind = 1;
	while ((opt = getopt_long(argc, argv, ":", options, NULL)) >= 0) {
		int rc = 0;

		if (opt == 'j')
			as_json = true;
		else if (opt == 's')
			access_any = true;
		else
			rc = aq_vgpu_option(&want, opt, optarg, &err);
		if (rc == -ENOENT)
			aq_cli_bad_option("create", argc, argv, opt);
		else if (rc < 0)
			aq_cli_error("create: %s", err.msg);
		if (rc < 0)
			return AQ_EXIT_USAGE;
	}
	if (!aq_verb_arguments("create", argc, argv, 0, 1, "[NAME]"))
		return AQ_EXIT_USAGE;
	return create(&want, optind < argc ? argv[optind] : NULL, access_any, as_json);
}
