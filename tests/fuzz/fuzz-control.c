/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in on the control socket: framing, JSON, and every operation, on a daemon with two cards, no probe, and a folder of its own. */
#include "base/err.h"
#include "daemon/control.h"
#include "daemon/daemon.h"
#include "proto/control.h"
#include "util/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct aqd *d;
static char dir[40];

static void clean_up(void)
{
	char command[64];

	aqd_free(d);
	d = NULL;
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command) != 0) /* NOLINT(cert-env33-c): a fixed command */
		(void)fprintf(stderr, "%s is left behind\n", dir);
}

static void set_up(void)
{
	static const struct aqd_card_report cards[] = {
		{ "GPU-00000000-0000-0000-0000-000000000001", "Card", "00:01.0", 1ULL << 34, 0, 0 },
		{ "GPU-00000000-0000-0000-0000-000000000002", "Card", "00:02.0", 1ULL << 34, 0, 0 },
	};
	static struct aqd_config cfg = {
		.private_mode = true,
		.max_instances = 20,
		.overcommit_pct = 100,
		.user_instances = 8,
		.poll_ms = 10000,
		.ready_fd = -1,
		.probe = "/bin/false",
	};
	struct aq_err err = { 0 };

	if (d)
		return;
	aq_log_init("fuzz", AQ_LOG_ERROR);
	(void)snprintf(dir, sizeof(dir), "/tmp/aliquot-fuzz.XXXXXX");
	if (!mkdtemp(dir))
		abort();
	(void)snprintf(cfg.dir, sizeof(cfg.dir), "%s", dir);
	(void)snprintf(cfg.state, sizeof(cfg.state), "%s/state.json", dir);
	if (aqd_new(&cfg, &d, &err) < 0)
		abort();
	aqd_cards_update(d, cards, 2);
	(void)atexit(clean_up);
}

static void remove_all(void)
{
	struct aqd_instance *i;
	struct aqd_instance *tmp;

	aq_list_for_each_safe(i, tmp, &d->instances, link) {
		unsigned killed;
		bool gone;

		(void)aqd_instance_remove(i, true, &gone, &killed, NULL);
	}
}

static void serve(const uint8_t *text, uint32_t len)
{
	const struct aqd_caller caller = { .uid = 1000, .full = true };
	json_t *request = json_loadb((const char *)text, len, JSON_REJECT_DUPLICATES, NULL);
	const char *op = json_string_value(json_object_get(request, "op"));
	json_t *answer = NULL;
	char *out = NULL;

	/* These two need a connection to answer to, and to end with. */
	if (request && !json_object_get(request, "ephemeral") &&
	    !(op && strcmp(op, "symbols") == 0)) {
		answer = aqd_op(d, &caller, request);
		out = json_dumps(answer, JSON_COMPACT);
		if (!out)
			abort();
	}
	free(out);
	json_decref(answer);
	json_decref(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t len;

	set_up();
	while (aq_control_frame(data, size, AQ_CONTROL_REQUEST_MAX, &len) == 1) {
		serve(data + 4, len);
		data += 4 + (size_t)len;
		size -= 4 + (size_t)len;
	}
	remove_all();
	return 0;
}
