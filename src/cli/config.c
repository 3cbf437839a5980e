/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot config`: what can be set, and what holds now. */
#include "cli/cli.h"

#include "base/err.h"
#include "cli/show.h"
#include "cli/variables.h"
#include "cli/verb.h"

#include <stdio.h>
#include <stdlib.h>

static json_t *variables(void)
{
	json_t *list = json_array();

	for (size_t i = 0; i < aq_variables_count; i++) {
		const struct aq_variable *v = &aq_variables[i];
		const char *value = getenv(v->name);

		(void)json_array_append_new(list, json_pack("{s:s, s:s?, s:s, s:s}", "name",
							    v->name, "value", value, "default",
							    v->otherwise, "text", v->text));
	}
	return list;
}

/* NULL where none runs. */
static json_t *daemon_options(void)
{
	struct aq_daemon daemon = AQ_DAEMON_NONE;
	struct aq_err err = { 0 };
	json_t *answer = NULL;
	json_t *ret = NULL;

	if (aq_daemon_open(&daemon, &err) < 0)
		return NULL;
	if (aq_daemon_call(&daemon, json_pack("{s:s}", "op", "report"), &answer, &err) < 0)
		aq_cli_error("config: %s", err.msg);
	else
		ret = json_pack("{s:s, s:O}", "socket", daemon.socket, "options",
				json_object_get(answer, "options"));
	json_decref(answer);
	aq_daemon_close(&daemon);
	return ret;
}

static void show(const json_t *list, const json_t *daemon)
{
	const json_t *v;
	size_t i;

	(void)printf("Environment\n");
	json_array_foreach(list, i, v)
	{
		const char *value = json_string_value(json_object_get(v, "value"));

		(void)printf("  %-26s %s%s\n  %-26s %s\n", aq_show_text(v, "name"),
			     value ? value : aq_show_text(v, "default"), value ? "" : " (default)",
			     "", aq_show_text(v, "text"));
	}
	if (!daemon) {
		(void)printf("\nNo daemon runs.\n");
		return;
	}
	(void)printf("\nDaemon at %s\n", aq_show_text(daemon, "socket"));
	json_array_foreach(json_object_get(daemon, "options"), i, v)
	{
		(void)printf("  %s\n", json_string_value(v) ? json_string_value(v) : "?");
	}
}

int aq_cli_config(int argc, char **argv)
{
	bool as_json = false;
	json_t *list;
	json_t *daemon;
	int status;

	if (!aq_verb_options("config", argc, argv, &as_json, 0, 0, ""))
		return AQ_EXIT_USAGE;
	(void)aq_variables_warn("config");
	list = variables();
	daemon = daemon_options();
	if (as_json) {
		json_t *all = json_pack("{s:O, s:O?}", "variables", list, "daemon", daemon);

		status = aq_show_json("config", all);
		json_decref(all);
	} else {
		show(list, daemon);
		status = aq_show_done("config");
	}
	json_decref(list);
	json_decref(daemon);
	return status;
}
