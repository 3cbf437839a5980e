/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot rm VGPU…`: remove vgpus. */
#include "cli/cli.h"

#include "base/err.h"
#include "cli/daemon-link.h"
#include "cli/show.h"
#include "cli/verb.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int remove_one(struct aq_daemon *daemon, const char *name, bool force)
{
	struct aq_err err = { 0 };
	json_t *answer = NULL;
	int rc = aq_daemon_call(daemon,
				json_pack("{s:s, s:s, s:b}", "op", "remove", "name", name, "force",
					  (int)force),
				&answer, &err);

	if (rc < 0)
		aq_cli_error("rm: %s%s", err.msg,
			     strcmp(daemon->code, "EBUSY") == 0 && !force
				     ? "; --force kills its programs"
				     : "");
	else if (aq_show_number(answer, "killed") > 0)
		aq_cli_error("rm: \"%s\": %lld programs killed", name,
			     aq_show_number(answer, "killed"));
	json_decref(answer);
	return rc;
}

int aq_cli_rm(int argc, char **argv)
{
	static const struct option options[] = {
		{ "force", no_argument, NULL, 'f' },
		{ 0 },
	};
	struct aq_daemon daemon = AQ_DAEMON_NONE;
	struct aq_err err = { 0 };
	bool force = false;
	int status = AQ_EXIT_OK;
	int opt;

	optind = 1;
	while ((opt = getopt_long(argc, argv, ":f", options, NULL)) >= 0) {
		if (opt != 'f') {
			aq_cli_bad_option("rm", argc, argv, opt);
			return AQ_EXIT_USAGE;
		}
		force = true;
	}
	if (!aq_verb_arguments("rm", argc, argv, 1, INT_MAX, "[--force] VGPU..."))
		return AQ_EXIT_USAGE;
	if (aq_daemon_open(&daemon, &err) < 0) {
		aq_cli_error("rm: %s", err.msg);
		return AQ_EXIT_FAILED;
	}
	daemon.wait_end = true;
	for (int i = optind; i < argc; i++) {
		if (remove_one(&daemon, argv[i], force) < 0)
			status = AQ_EXIT_FAILED;
	}
	aq_daemon_close(&daemon);
	return status;
}
