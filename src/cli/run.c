/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot run … -- PROGRAM …`: a program in a vgpu, its own or one that exists. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/macro.h"
#include "cli/daemon-link.h"
#include "cli/program.h"
#include "cli/shim-parts.h"
#include "cli/show.h"
#include "cli/vgpu-options.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RELEASE_TIMEOUT_NS (2 * AQ_NS_PER_S)

struct run {
	struct aq_vgpu_options want;
	const char *vgpu;
	struct aq_daemon daemon;
	bool ours; /* the vgpu goes when the program has ended */
	char name[80];
	char dir[PATH_MAX];
};

/* Remember what an answer says of the vgpu. */
static int take_vgpu(struct run *r, const json_t *vgpu, struct aq_err *err)
{
	const char *name = json_string_value(json_object_get(vgpu, "name"));
	const char *dir = json_string_value(json_object_get(vgpu, "dir"));

	if (!name || !dir || snprintf(r->dir, sizeof(r->dir), "%s", dir) >= (int)sizeof(r->dir) ||
	    snprintf(r->name, sizeof(r->name), "%s", name) >= (int)sizeof(r->name))
		return aq_err_set(err, -EPROTO,
				  "the daemon's answer names no vgpu or no directory of it");
	return 0;
}

static int ask_for(struct run *r, const char *name, json_t **ret_answer, struct aq_err *err)
{
	return aq_daemon_call(&r->daemon, json_pack("{s:s, s:s}", "op", "list", "name", name),
			      ret_answer, err);
}

/* Bytes that ended programs have left there and the driver has not returned yet. */
static long long releasing(const json_t *answer)
{
	const json_t *vgpu = json_array_get(json_object_get(answer, "vgpus"), 0);
	const json_t *card;
	long long sum = 0;
	size_t k;

	json_array_foreach(json_object_get(vgpu, "cards"), k, card)
	{
		sum += aq_show_number(card, "releasing_bytes");
	}
	return sum;
}

/* A program that follows another one in the same vgpu finds what that one had. */
static void wait_released(struct run *r, json_t **answer)
{
	uint64_t deadline = aq_now_ns() + RELEASE_TIMEOUT_NS;

	while (releasing(*answer) > 0 && aq_now_ns() < deadline) {
		json_t *next = NULL;

		(void)poll(NULL, 0, 10);
		if (ask_for(r, r->vgpu, &next, NULL) < 0)
			return;
		json_decref(*answer);
		*answer = next;
	}
}

static int use_existing(struct run *r, struct aq_err *err)
{
	json_t *answer = NULL;
	int rc = aq_daemon_open(&r->daemon, err);

	if (rc == 0)
		rc = ask_for(r, r->vgpu, &answer, err);
	if (rc == 0)
		wait_released(r, &answer);
	if (rc == 0)
		rc = take_vgpu(r, json_array_get(json_object_get(answer, "vgpus"), 0), err);
	else if (strcmp(r->daemon.code, "ENOENT") == 0)
		(void)aq_err_set(err, rc,
				 "there is no vgpu \"%.63s\"; with --mem SIZE one is made for "
				 "this program, aliquot create makes one that stays",
				 r->vgpu);
	json_decref(answer);
	return rc;
}

static int make_own(struct run *r, struct aq_err *err)
{
	json_t *request = aq_vgpu_create_request(&r->want, r->vgpu, err);
	json_t *answer = NULL;
	int rc;

	if (!request)
		return err->code;
	(void)json_object_set_new(request, "ephemeral", json_true());
	rc = aq_daemon_open_or_start(&r->daemon, err);
	if (rc < 0) {
		json_decref(request);
		return rc;
	}
	rc = aq_daemon_call(&r->daemon, request, &answer, err);
	if (rc == 0)
		rc = take_vgpu(r, json_object_get(answer, "vgpu"), err);
	else if (strcmp(r->daemon.code, "EEXIST") == 0)
		(void)aq_err_set(err, rc,
				 "vgpu \"%.63s\" exists; leave out --mem and its like to use it, "
				 "aliquot set changes it",
				 r->vgpu ? r->vgpu : "?");
	r->ours = rc == 0;
	json_decref(answer);
	return rc;
}

/* Until the driver has given back what the program held, the vgpu's share is not free for the next one. */
static void wait_removed(struct run *r)
{
	uint64_t deadline = aq_now_ns() + RELEASE_TIMEOUT_NS;
	json_t *answer = NULL;

	while (aq_now_ns() < deadline && ask_for(r, r->name, &answer, NULL) == 0) {
		json_decref(answer);
		answer = NULL;
		(void)poll(NULL, 0, 10);
	}
}

/* If this fails the daemon removes it by itself once its programs have ended: our connection's end tells it. */
static void remove_own(struct run *r)
{
	for (unsigned tries = 0; tries < 2; tries++) {
		json_t *answer = NULL;
		int rc = aq_daemon_call(&r->daemon,
					json_pack("{s:s, s:s}", "op", "remove", "name", r->name),
					&answer, NULL);

		if (rc == 0 && json_is_false(json_object_get(answer, "removed")))
			wait_removed(r);
		json_decref(answer);
		if (rc == 0 || rc == -EREMOTEIO || aq_daemon_reopen(&r->daemon, NULL) < 0)
			return;
	}
}

static int run_program(struct run *r, char **argv)
{
	struct aq_err err = { 0 };
	struct aq_shim_parts parts;
	sigset_t watched;
	sigset_t before;
	int status = AQ_EXIT_OWN;
	pid_t pid;

	aq_program_signals(&watched);
	(void)sigprocmask(SIG_BLOCK, &watched, &before);
	if (aq_shim_parts_find(&parts, &err) < 0 ||
	    (aq_vgpu_options_given(&r->want) ? make_own(r, &err) : use_existing(r, &err)) < 0) {
		aq_cli_error("run: %s", err.msg);
		aq_daemon_close(&r->daemon);
		return AQ_EXIT_OWN;
	}
	aq_vgpu_tell_unenforced("run", r->want.compute_pct, r->want.priority);
	if (aq_shim_set_environment(&parts, r->dir) < 0) {
		aq_cli_error("run: no memory for the environment");
	} else {
		pid = aq_program_start("run", argv, &before, &status);
		if (pid > 0)
			status = aq_program_wait(pid, &watched, NULL, NULL);
	}
	if (r->ours)
		remove_own(r);
	aq_daemon_close(&r->daemon);
	return status;
}

int aq_cli_run(int argc, char **argv)
{
	enum {
		OPT_VGPU = 256
	};
	static const struct option options[] = {
		AQ_VGPU_LONG_OPTIONS,
		{ "vgpu", required_argument, NULL, OPT_VGPU },
		{ 0 },
	};
	struct run r = { .want = AQ_VGPU_OPTIONS_NONE, .daemon = AQ_DAEMON_NONE };
	struct aq_err err = { 0 };
	int opt;

	optind = 1;
	while ((opt = getopt_long(argc, argv, "+:", options, NULL)) >= 0) {
		if (opt == OPT_VGPU) {
			r.vgpu = optarg;
			continue;
		}
		switch (aq_vgpu_option(&r.want, opt, optarg, &err)) {
		case 0:
			break;
		case -ENOENT:
			aq_cli_bad_option("run", argc, argv, opt);
			return AQ_EXIT_OWN;
		default:
			aq_cli_error("run: %s", err.msg);
			return AQ_EXIT_OWN;
		}
	}
	if (optind == argc) {
		aq_cli_error(
			"run: no program given: aliquot run --mem SIZE -- PROGRAM [ARGUMENT...]");
		return AQ_EXIT_OWN;
	}
	if (!r.vgpu && !aq_vgpu_options_given(&r.want)) {
		aq_cli_error(
			"run: no limit given: --mem SIZE, 512MiB for example, or --vgpu NAME of "
			"one that exists");
		return AQ_EXIT_OWN;
	}
	return run_program(&r, argv + optind);
}
