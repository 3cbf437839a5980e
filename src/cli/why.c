/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot why VGPU`: what stands in its way. */
#include "cli/cli.h"

#include "cli/show.h"
#include "cli/verb.h"

#include <getopt.h>
#include <stdio.h>

static void show_refusals(const json_t *vgpu)
{
	const json_t *r = json_object_get(vgpu, "refusals");
	char size[24];
	char ago[24];

	if (aq_show_number(r, "count") == 0) {
		(void)printf("no allocation was refused\n");
		return;
	}
	if (!json_is_integer(json_object_get(r, "last_ms")))
		return; /* of programs that are gone; the reasons have the number */
	aq_show_ago(aq_show_number(r, "last_ms"), ago, sizeof(ago));
	(void)printf("last refused: %s on GPU %lld of the vgpu, %s ago\n",
		     aq_show_size(r, "last_bytes", size), aq_show_number(r, "last_card"), ago);
}

int aq_cli_why(int argc, char **argv)
{
	bool as_json = false;
	int status;
	json_t *answer;
	json_t *list;
	json_t *text;
	size_t i;

	if (!aq_verb_options("why", argc, argv, &as_json, 1, 1, "VGPU"))
		return AQ_EXIT_USAGE;
	answer = aq_verb_ask("why", json_pack("{s:s, s:s}", "op", "why", "name", argv[optind]));
	if (!answer)
		return AQ_EXIT_FAILED;
	if (as_json) {
		(void)json_object_del(answer, "ok");
		status = aq_show_json("why", answer);
	} else {
		list = json_array();
		(void)json_array_append(list, json_object_get(answer, "vgpu"));
		aq_show_vgpus(list);
		json_decref(list);
		(void)printf("\n");
		json_array_foreach(json_object_get(answer, "reasons"), i, text)
		{
			(void)printf("%s\n",
				     json_string_value(text) ? json_string_value(text) : "?");
		}
		show_refusals(json_object_get(answer, "vgpu"));
		status = aq_show_done("why");
	}
	json_decref(answer);
	return status;
}
