/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/verb.h"

#include "base/err.h"
#include "cli/cli.h"

#include <getopt.h>
#include <stdlib.h>

bool aq_verb_arguments(const char *verb, int argc, char **argv, int least, int most,
		       const char *arguments)
{
	if (argc - optind < least) {
		aq_cli_error("%s: an argument is missing: aliquot %s %s", verb, verb, arguments);
		return false;
	}
	if (argc - optind > most) {
		aq_cli_error("%s: unexpected argument \"%s\"", verb, argv[optind + most]);
		return false;
	}
	return true;
}

bool aq_verb_options(const char *verb, int argc, char **argv, bool *ret_json, int least, int most,
		     const char *arguments)
{
	static const struct option with_json[] = {
		{ "json", no_argument, NULL, 'j' },
		{ 0 },
	};
	int opt;

	optind = 1;
	while ((opt = getopt_long(argc, argv, ":", ret_json ? with_json : with_json + 1, NULL)) >=
	       0) {
		if (opt != 'j') {
			aq_cli_bad_option(verb, argc, argv, opt);
			return false;
		}
		*ret_json = true;
	}
	return aq_verb_arguments(verb, argc, argv, least, most, arguments);
}

json_t *aq_verb_ask(const char *verb, json_t *request)
{
	struct aq_daemon daemon = AQ_DAEMON_NONE;
	struct aq_err err = { 0 };
	json_t *answer = NULL;

	if (aq_daemon_open(&daemon, &err) < 0) {
		json_decref(request);
		aq_cli_error("%s: %s", verb, err.msg);
		return NULL;
	}
	if (aq_daemon_call(&daemon, request, &answer, &err) < 0)
		aq_cli_error("%s: %s", verb, err.msg);
	aq_daemon_close(&daemon);
	return answer;
}
