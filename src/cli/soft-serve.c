/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot soft serve`: software cards for several programs, until a signal. */
#include "cli/cli.h"

#include "base/err.h"
#include "cli/card-server.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* The place where programs of this user look by themselves; NULL when there is none. */
static const char *usual_socket(char *buf, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (!runtime || !runtime[0] ||
	    snprintf(buf, size, "%s/aliquot", runtime) >= (int)size - (int)sizeof("/gpud.sock"))
		return NULL;
	if (mkdir(buf, 0700) < 0 && errno != EEXIST)
		return NULL;
	(void)strncat(buf, "/gpud.sock", size - strlen(buf) - 1);
	return buf;
}

static void print_variable(const char *name)
{
	const char *value = getenv(name);

	if (!value)
		return;
	(void)printf("export %s='", name);
	for (; *value; value++) {
		if (*value == '\'')
			(void)fputs("'\\''", stdout);
		else
			(void)putchar(*value);
	}
	(void)puts("'");
}

/* Until a signal asks for the end, or the server ends by itself. Returns the exit status. */
static int wait_for_end(struct aq_card_server *server, const sigset_t *watched)
{
	for (;;) {
		char text[100];

		if (waitpid(server->pid, &server->status, WNOHANG) > 0) {
			server->pid = 0;
			aq_describe_status(server->status, text, sizeof(text));
			aq_cli_error("soft: serve: aliquot-gpud %s", text);
			return AQ_EXIT_FAILED;
		}
		switch (sigwaitinfo(watched, NULL)) {
		case SIGINT:
		case SIGTERM:
		case SIGHUP:
			return AQ_EXIT_OK;
		default:
			break;
		}
	}
}

static int serve(const struct aq_card_options *options)
{
	struct aq_err err = { 0 };
	struct aq_card_server server;
	struct aq_parts parts;
	sigset_t watched;
	int status;

	(void)sigemptyset(&watched);
	(void)sigaddset(&watched, SIGCHLD);
	(void)sigaddset(&watched, SIGINT);
	(void)sigaddset(&watched, SIGTERM);
	(void)sigaddset(&watched, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &watched, NULL);
	if (aq_parts_find(&parts, &err) < 0 ||
	    aq_card_server_start(&server, &parts, options, &err) < 0) {
		aq_cli_error("soft: serve: %s", err.msg);
		return AQ_EXIT_FAILED;
	}
	if (aq_parts_set_environment(&parts, server.socket) < 0) {
		aq_cli_error("soft: serve: no memory for the environment");
		aq_card_server_stop(&server);
		return AQ_EXIT_FAILED;
	}
	print_variable("ALIQUOT_GPUD");
	print_variable("LD_LIBRARY_PATH");
	print_variable("LD_PRELOAD");
	(void)fflush(stdout);
	status = wait_for_end(&server, &watched);
	aq_card_server_stop(&server);
	return status;
}

int aq_cli_soft_serve(int argc, char **argv)
{
	enum {
		OPT_PROFILE = 256,
		OPT_CARDS,
		OPT_SOCKET
	};
	static const struct option options[] = {
		{ "profile", required_argument, NULL, OPT_PROFILE },
		{ "cards", required_argument, NULL, OPT_CARDS },
		{ "socket", required_argument, NULL, OPT_SOCKET },
		{ 0 },
	};
	struct aq_card_options card = { 0 };
	char usual[108];
	int opt;

	optind = 1;
	while ((opt = getopt_long(argc, argv, "+:", options, NULL)) >= 0) {
		switch (opt) {
		case OPT_PROFILE:
			if (aq_card_options_add_profile(&card, optarg))
				break;
			aq_cli_error("soft: serve: more than %d profiles", AQ_CARD_PROFILES);
			return AQ_EXIT_USAGE;
		case OPT_CARDS:
			card.cards = optarg;
			break;
		case OPT_SOCKET:
			card.socket = optarg;
			break;
		default:
			aq_cli_bad_option("soft: serve", argc, argv, opt);
			return AQ_EXIT_USAGE;
		}
	}
	if (optind < argc) {
		aq_cli_error("soft: serve: unexpected argument \"%s\"", argv[optind]);
		return AQ_EXIT_USAGE;
	}
	if (!card.socket)
		card.socket = usual_socket(usual, sizeof(usual));
	return serve(&card);
}
