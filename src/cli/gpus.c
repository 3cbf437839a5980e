/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `aliquot gpus`: the cards that programs would use here. Of a GPU server: what they are doing and for whom. Of this machine: what the daemon says
 * of them.
 */
#include "cli/cli.h"

#include "base/err.h"
#include "base/size.h"
#include "cli/daemon-link.h"
#include "cli/show.h"
#include "frontend/connect.h"
#include "wire/client.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu {
	struct aq_rep_card_info info;
	struct aq_rep_card_stat stat;
	struct aq_wire_proc *proc;
	uint32_t n_procs;
};

/* Append the process list, page by page; it may change meanwhile. Returns a status. */
static int read_procs(struct aq_client *c, uint32_t card, struct gpu *gpu,
		      struct aq_rep_card_procs *page)
{
	for (;;) {
		struct aq_req_card_procs req = { .card = card, .first = gpu->n_procs };
		struct aq_wire_proc *more;
		int rc = AQ_CALL(c, CARD_PROCS, card_procs, &req, page);

		if (rc != AQ_OK)
			return rc;
		if (page->n == 0 || page->n > AQ_WIRE_PROCS_MAX)
			return AQ_OK;
		more = realloc(gpu->proc, (gpu->n_procs + page->n) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		memcpy(more + gpu->n_procs, page->proc, page->n * sizeof(*more));
		gpu->proc = more;
		gpu->n_procs += page->n;
		if (gpu->n_procs >= page->total)
			return AQ_OK;
	}
}

static int read_gpu(struct aq_client *c, uint32_t card, struct gpu *gpu)
{
	struct aq_req_card_info info = { .card = card };
	struct aq_req_card_stat stat = { .card = card };
	struct aq_rep_card_procs *page;
	int rc = AQ_CALL(c, CARD_INFO, card_info, &info, &gpu->info);

	if (rc != AQ_OK)
		return rc;
	rc = AQ_CALL(c, CARD_STAT, card_stat, &stat, &gpu->stat);
	if (rc != AQ_OK)
		return rc;
	page = calloc(1, sizeof(*page));
	if (!page)
		return -ENOMEM;
	rc = read_procs(c, card, gpu, page);
	free(page);
	/* What comes from elsewhere ends where we say. */
	gpu->info.name[sizeof(gpu->info.name) - 1] = '\0';
	gpu->info.profile[sizeof(gpu->info.profile) - 1] = '\0';
	for (uint32_t i = 0; i < gpu->n_procs; i++)
		gpu->proc[i].name[sizeof(gpu->proc[i].name) - 1] = '\0';
	return rc;
}

static void print_table(const struct gpu *gpus, uint32_t n)
{
	(void)printf("%3s  %-30s  %10s  %10s  %5s  %9s\n", "GPU", "NAME", "USED", "MEMORY", "BUSY",
		     "PROCESSES");
	for (uint32_t i = 0; i < n; i++) {
		char used[24];
		char total[24];

		aq_size_format(gpus[i].stat.memory_used, used, sizeof(used));
		aq_size_format(gpus[i].info.memory_bytes, total, sizeof(total));
		(void)printf("%3u  %-30s  %10s  %10s  %4u%%  %9u\n", i, gpus[i].info.name, used,
			     total, gpus[i].stat.util_gpu_pct, gpus[i].n_procs);
	}
	for (uint32_t i = 0, lines = 0; i < n; i++) {
		for (uint32_t p = 0; p < gpus[i].n_procs; p++) {
			const struct aq_wire_proc *proc = &gpus[i].proc[p];
			char used[24];

			if (lines++ == 0)
				(void)printf("\n%3s  %8s  %-20s  %10s  %5s  %10s\n", "GPU", "PID",
					     "PROCESS", "USED", "BUSY", "GPU TIME");
			aq_size_format(proc->memory_bytes, used, sizeof(used));
			(void)printf("%3u  %8u  %-20s  %10s  %4u%%  %8.2f s\n", i, proc->pid,
				     proc->name, used, proc->util_gpu_pct,
				     (double)proc->busy_ns / 1e9);
		}
	}
}

static json_t *json_of_proc(const struct aq_wire_proc *p)
{
	return json_pack("{s:I, s:s+, s:I, s:I, s:f, s:I}", "pid", (json_int_t)p->pid, "name",
			 p->name, "", "contexts", (json_int_t)p->n_contexts, "memory_used_bytes",
			 (json_int_t)p->memory_bytes, "busy_seconds", (double)p->busy_ns / 1e9,
			 "utilization_percent", (json_int_t)p->util_gpu_pct);
}

static json_t *json_of_gpu(uint32_t index, const struct gpu *g)
{
	const uint8_t *u = g->info.uuid;
	const struct aq_rep_card_stat *s = &g->stat;
	json_t *procs = json_array();
	char uuid[48];
	char pci[24];

	for (uint32_t i = 0; i < g->n_procs; i++) {
		if (json_array_append_new(procs, json_of_proc(&g->proc[i])) < 0) {
			json_decref(procs);
			return NULL;
		}
	}
	(void)snprintf(uuid, sizeof(uuid),
		       "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		       u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
		       u[12], u[13], u[14], u[15]);
	(void)snprintf(pci, sizeof(pci), "%08x:%02x:%02x.0", g->info.pci_domain, g->info.pci_bus,
		       g->info.pci_device);
	return json_pack("{s:I, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, "
			 "s:I, s:f, s:o}",
			 "index", (json_int_t)index, "name", g->info.name, "uuid", uuid, "profile",
			 g->info.profile, "pci", pci, "memory_total_bytes",
			 (json_int_t)g->info.memory_bytes, "memory_used_bytes",
			 (json_int_t)s->memory_used, "memory_free_bytes",
			 (json_int_t)s->memory_free, "utilization_percent",
			 (json_int_t)s->util_gpu_pct, "busy_seconds", (double)s->busy_ns / 1e9,
			 "kernels", (json_int_t)s->kernels, "kernels_late", (json_int_t)s->late,
			 "clock_sm_mhz", (json_int_t)s->clock_sm_mhz, "clock_memory_mhz",
			 (json_int_t)s->clock_mem_mhz, "temperature_celsius",
			 (json_int_t)s->temperature_c, "power_watts", (double)s->power_mw / 1e3,
			 "processes", procs);
}

static int print_json(const struct gpu *gpus, uint32_t n)
{
	json_t *list = json_array();
	json_t *all = json_pack("{s:o}", "gpus", list);
	int rc = all ? 0 : -1;

	for (uint32_t i = 0; rc == 0 && i < n; i++)
		rc = json_array_append_new(list, json_of_gpu(i, &gpus[i]));
	if (rc == 0)
		rc = json_dumpf(all, stdout, JSON_INDENT(2));
	json_decref(all);
	if (rc < 0) {
		aq_cli_error(
			"gpus: cannot write the JSON (a name that is not UTF-8, or no memory)");
		return AQ_EXIT_FAILED;
	}
	(void)putchar('\n');
	return AQ_EXIT_OK;
}

static int list_gpus(struct aq_client *c, bool as_json)
{
	uint32_t n = aq_client_welcome(c)->n_cards;
	struct gpu *gpus;
	int status = AQ_EXIT_OK;

	if (n > AQ_WIRE_MAX_CARDS)
		n = AQ_WIRE_MAX_CARDS;
	gpus = calloc(n ? n : 1, sizeof(*gpus));
	if (!gpus) {
		aq_cli_error("gpus: no memory");
		return AQ_EXIT_FAILED;
	}
	for (uint32_t i = 0; i < n && status == AQ_EXIT_OK; i++) {
		int rc = read_gpu(c, i, &gpus[i]);

		if (rc == AQ_OK)
			continue;
		aq_cli_error("gpus: GPU %u does not answer: %s", i,
			     rc < 0 ? strerror(-rc) : "refused by the server");
		status = AQ_EXIT_FAILED;
	}
	if (status == AQ_EXIT_OK && as_json)
		status = print_json(gpus, n);
	else if (status == AQ_EXIT_OK)
		print_table(gpus, n);
	for (uint32_t i = 0; i < n; i++)
		free(gpus[i].proc);
	free(gpus);
	if (fflush(stdout) != 0) {
		aq_cli_error("gpus: cannot write: %s", strerror(errno));
		return AQ_EXIT_FAILED;
	}
	return status;
}

static json_t *json_of_card(const json_t *c)
{
	return json_pack("{s:O, s:O, s:O, s:O, s:O, s:O, s:O, s:O, s:O, s:O, s:O, s:O, s:O, s:O}",
			 "index", json_object_get(c, "index"), "name", json_object_get(c, "name"),
			 "uuid", json_object_get(c, "uuid"), "pci", json_object_get(c, "pci"),
			 "memory_total_bytes", json_object_get(c, "memory_bytes"),
			 "memory_used_bytes", json_object_get(c, "used_bytes"), "capacity_bytes",
			 json_object_get(c, "capacity_bytes"), "given_bytes",
			 json_object_get(c, "given_bytes"), "left_bytes",
			 json_object_get(c, "free_bytes"), "given_percent",
			 json_object_get(c, "given_pct"), "vgpus", json_object_get(c, "vgpus"),
			 "max_vgpus", json_object_get(c, "max_vgpus"), "present",
			 json_object_get(c, "present"), "blocked", json_object_get(c, "blocked"));
}

/* Returns an exit status. */
static int list_cards(struct aq_daemon *daemon, bool as_json)
{
	struct aq_err err = { 0 };
	json_t *answer = NULL;
	json_t *list;
	json_t *all;
	json_t *c;
	size_t i;
	int status;

	if (aq_daemon_call(daemon, json_pack("{s:s}", "op", "cards"), &answer, &err) < 0) {
		aq_cli_error("gpus: %s", err.msg);
		return AQ_EXIT_FAILED;
	}
	if (!as_json) {
		aq_show_cards(json_object_get(answer, "cards"));
		json_decref(answer);
		return aq_show_done("gpus");
	}
	list = json_array();
	json_array_foreach(json_object_get(answer, "cards"), i, c)
	{
		(void)json_array_append_new(list, json_of_card(c));
	}
	all = json_pack("{s:o}", "gpus", list);
	status = aq_show_json("gpus", all);
	json_decref(all);
	json_decref(answer);
	return status;
}

int aq_cli_gpus(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ 0 },
	};
	struct aq_err err = { 0 };
	struct aq_daemon daemon = AQ_DAEMON_NONE;
	struct aq_client *client = NULL;
	const char *gpud = getenv("ALIQUOT_GPUD");
	bool as_json = false;
	int status;
	int opt;

	optind = 1;
	while ((opt = getopt_long(argc, argv, "+:", options, NULL)) >= 0) {
		if (opt != 'j') {
			aq_cli_bad_option("gpus", argc, argv, opt);
			return AQ_EXIT_USAGE;
		}
		as_json = true;
	}
	if (optind < argc) {
		aq_cli_error("gpus: unexpected argument \"%s\"", argv[optind]);
		return AQ_EXIT_USAGE;
	}
	if (!gpud || !gpud[0]) {
		/* Its failure is no news where there are software cards, or nothing. */
		if (aq_daemon_open(&daemon, NULL) == 0) {
			status = list_cards(&daemon, as_json);
			aq_daemon_close(&daemon);
			return status;
		}
	}
	if (aq_frontend_connect(0, 0, &client, &err) < 0) {
		aq_cli_error("gpus: %s%s", err.msg,
			     err.code == -ENOENT ? "; start software cards with: aliquot soft serve"
						 : "");
		return AQ_EXIT_FAILED;
	}
	status = list_gpus(client, as_json);
	aq_client_close(client);
	return status;
}
