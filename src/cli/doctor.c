/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot doctor`: what is missing, and how to mend it. */
#include "cli/cli.h"

#include "cli/checks.h"
#include "cli/show.h"
#include "cli/variables.h"
#include "cli/verb.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static int show(const json_t *list)
{
	unsigned failed = 0;
	unsigned warnings = 0;
	const json_t *c;
	size_t i;

	json_array_foreach(list, i, c)
	{
		const char *state = aq_show_text(c, "state");
		const char *remedy = json_string_value(json_object_get(c, "remedy"));

		failed += strcmp(state, "failed") == 0;
		warnings += strcmp(state, "warning") == 0;
		(void)printf("%-8s  %-13s  %s\n", state, aq_show_text(c, "about"),
			     aq_show_text(c, "text"));
		if (remedy)
			(void)printf("%-8s  %-13s  mend: %s\n", "", "", remedy);
	}
	(void)printf("\n%u failed, %u warnings\n", failed, warnings);
	return failed ? AQ_EXIT_FAILED : AQ_EXIT_OK;
}

int aq_cli_doctor(int argc, char **argv)
{
	static const struct option options[] = {
		{ "device", no_argument, NULL, 'd' },
		{ "json", no_argument, NULL, 'j' },
		{ 0 },
	};
	bool as_json = false;
	json_t *list;
	int status;
	int opt;

	optind = 1;
	while ((opt = getopt_long(argc, argv, ":", options, NULL)) >= 0) {
		if (opt == 'd') {
			aq_cli_error("doctor: --device is not in this version; "
				     "tools/check-gpu.sh of the source tree tries a real card");
			return AQ_EXIT_FAILED;
		}
		if (opt != 'j') {
			aq_cli_bad_option("doctor", argc, argv, opt);
			return AQ_EXIT_USAGE;
		}
		as_json = true;
	}
	if (!aq_verb_arguments("doctor", argc, argv, 0, 0, ""))
		return AQ_EXIT_USAGE;
	(void)aq_variables_warn("doctor");
	list = aq_checks_run();
	if (as_json) {
		json_t *all = json_pack("{s:O}", "checks", list);

		status = aq_show_json("doctor", all);
		json_decref(all);
		for (size_t i = 0; i < json_array_size(list); i++) {
			if (strcmp(aq_show_text(json_array_get(list, i), "state"), "failed") == 0)
				status = AQ_EXIT_FAILED;
		}
	} else {
		status = show(list);
		if (aq_show_done("doctor") != AQ_EXIT_OK)
			status = AQ_EXIT_FAILED;
	}
	json_decref(list);
	return status;
}
