/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot ps`: vgpus and their programs. `aliquot` alone: GPUs and vgpus. */
#include "cli/cli.h"

#include "base/err.h"
#include "cli/daemon-link.h"
#include "cli/show.h"
#include "cli/verb.h"

#include <getopt.h>
#include <stdio.h>

int aq_cli_ps(int argc, char **argv)
{
	bool as_json = false;
	json_t *request;
	json_t *answer;
	int status;

	if (!aq_verb_options("ps", argc, argv, &as_json, 0, 1, "[VGPU]"))
		return AQ_EXIT_USAGE;
	request = json_pack("{s:s}", "op", "list");
	if (optind < argc)
		(void)json_object_set_new(request, "name", json_string(argv[optind]));
	answer = aq_verb_ask("ps", request);
	if (!answer)
		return AQ_EXIT_FAILED;
	if (as_json) {
		(void)json_object_del(answer, "ok");
		status = aq_show_json("ps", answer);
	} else {
		aq_show_vgpus(json_object_get(answer, "vgpus"));
		aq_show_strangers(json_object_get(answer, "strangers"));
		status = aq_show_done("ps");
	}
	json_decref(answer);
	return status;
}

int aq_cli_bare(void)
{
	struct aq_daemon daemon = AQ_DAEMON_NONE;
	struct aq_err err = { 0 };
	json_t *cards = NULL;
	json_t *list = NULL;
	char name[] = "gpus";
	char *gpus[] = { name, NULL };
	int status;

	/* Without a daemon there are no vgpus, but there may be GPUs. */
	if (aq_daemon_open(&daemon, &err) < 0)
		return aq_cli_gpus(1, gpus);
	if (aq_daemon_call(&daemon, json_pack("{s:s}", "op", "cards"), &cards, &err) < 0 ||
	    aq_daemon_call(&daemon, json_pack("{s:s}", "op", "list"), &list, &err) < 0) {
		aq_cli_error("%s", err.msg);
		status = AQ_EXIT_FAILED;
	} else {
		aq_show_cards(json_object_get(cards, "cards"));
		(void)printf("\n");
		aq_show_vgpus(json_object_get(list, "vgpus"));
		aq_show_strangers(json_object_get(list, "strangers"));
		status = aq_show_done("aliquot");
	}
	json_decref(cards);
	json_decref(list);
	aq_daemon_close(&daemon);
	return status;
}
