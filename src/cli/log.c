/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot log [VGPU]`: what the daemon has seen. */
#include "cli/cli.h"

#include "base/err.h"
#include "cli/show.h"
#include "cli/verb.h"

#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

#define FOLLOW_MS 300

static void show_event(const json_t *e)
{
	const char *vgpu = json_string_value(json_object_get(e, "vgpu"));
	double at = json_number_value(json_object_get(e, "time"));
	time_t seconds = (time_t)at;
	struct tm local;
	char text[32] = "?";

	if (localtime_r(&seconds, &local))
		(void)strftime(text, sizeof(text), "%F %T", &local);
	(void)printf("%s.%03d  %-16s  %s\n", text, (int)((at - (double)seconds) * 1000),
		     vgpu ? vgpu : "-", aq_show_text(e, "text"));
}

/* Returns the greatest number seen, or -1 when the daemon does not answer. */
static long long show_since(struct aq_daemon *daemon, const char *vgpu, long long after,
			    bool as_json)
{
	json_t *request = json_pack("{s:s, s:I}", "op", "log", "after", (json_int_t)after);
	struct aq_err err = { 0 };
	json_t *answer = NULL;
	const json_t *e;
	size_t i;

	if (vgpu)
		(void)json_object_set_new(request, "name", json_string(vgpu));
	if (aq_daemon_call(daemon, request, &answer, &err) < 0) {
		aq_cli_error("log: %s", err.msg);
		return -1;
	}
	json_array_foreach(json_object_get(answer, "events"), i, e)
	{
		if (!as_json)
			show_event(e);
		if (aq_show_number(e, "id") > after)
			after = aq_show_number(e, "id");
	}
	if (as_json) {
		(void)json_object_del(answer, "ok");
		(void)aq_show_json("log", answer);
	}
	json_decref(answer);
	return after;
}

int aq_cli_log(int argc, char **argv)
{
	static const struct option options[] = {
		{ "follow", no_argument, NULL, 'f' },
		{ "json", no_argument, NULL, 'j' },
		{ 0 },
	};
	struct aq_daemon daemon = AQ_DAEMON_NONE;
	struct aq_err err = { 0 };
	bool as_json = false;
	bool follow = false;
	long long seen;
	int opt;

	optind = 1;
	while ((opt = getopt_long(argc, argv, ":f", options, NULL)) >= 0) {
		if (opt == 'f')
			follow = true;
		else if (opt == 'j')
			as_json = true;
		else {
			aq_cli_bad_option("log", argc, argv, opt);
			return AQ_EXIT_USAGE;
		}
	}
	if (!aq_verb_arguments("log", argc, argv, 0, 1, "[VGPU]"))
		return AQ_EXIT_USAGE;
	if (follow && as_json) {
		aq_cli_error("log: --follow and --json: events that go on are not one JSON text; "
			     "leave out one of them");
		return AQ_EXIT_USAGE;
	}
	if (aq_daemon_open(&daemon, &err) < 0) {
		aq_cli_error("log: %s", err.msg);
		return AQ_EXIT_FAILED;
	}
	seen = show_since(&daemon, optind < argc ? argv[optind] : NULL, 0, as_json);
	while (follow && seen >= 0 && aq_show_done("log") == AQ_EXIT_OK) {
		(void)poll(NULL, 0, FOLLOW_MS);
		seen = show_since(&daemon, optind < argc ? argv[optind] : NULL, seen, false);
	}
	aq_daemon_close(&daemon);
	return seen < 0 ? AQ_EXIT_FAILED : aq_show_done("log");
}
