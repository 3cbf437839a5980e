/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot freeze VGPU…`, `aliquot thaw VGPU…`: stop a vgpu's programs and let them go on. */
#include "cli/cli.h"

#include "base/err.h"
#include "cli/verb.h"

#include <getopt.h>
#include <limits.h>

static int each(const char *op, int argc, char **argv)
{
	struct aq_daemon daemon = AQ_DAEMON_NONE;
	struct aq_err err = { 0 };
	int status = AQ_EXIT_OK;

	if (!aq_verb_options(op, argc, argv, NULL, 1, INT_MAX, "VGPU..."))
		return AQ_EXIT_USAGE;
	if (aq_daemon_open(&daemon, &err) < 0) {
		aq_cli_error("%s: %s", op, err.msg);
		return AQ_EXIT_FAILED;
	}
	for (int i = optind; i < argc; i++) {
		json_t *answer = NULL;

		if (aq_daemon_call(&daemon, json_pack("{s:s, s:s}", "op", op, "name", argv[i]),
				   &answer, &err) < 0) {
			aq_cli_error("%s: %s", op, err.msg);
			status = AQ_EXIT_FAILED;
		}
		json_decref(answer);
	}
	aq_daemon_close(&daemon);
	return status;
}

int aq_cli_freeze(int argc, char **argv)
{
	return each("freeze", argc, argv);
}

int aq_cli_thaw(int argc, char **argv)
{
	return each("thaw", argc, argv);
}
