/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot soft … -- PROGRAM …`: a program on software cards of its own. */
#include "cli/cli.h"

#include "base/err.h"
#include "cli/card-server.h"
#include "cli/program.h"

#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

/* The server should outlive the program; when it does not, say so at once. */
static void check_server(void *data)
{
	struct aq_card_server *server = data;
	char text[100];

	if (server->pid <= 0 || waitpid(server->pid, &server->status, WNOHANG) <= 0)
		return;
	server->pid = 0;
	aq_describe_status(server->status, text, sizeof(text));
	aq_cli_error("soft: aliquot-gpud %s while the program ran", text);
}

static int run_program(const struct aq_card_options *options, char **argv)
{
	struct aq_err err = { 0 };
	struct aq_card_server server;
	struct aq_parts parts;
	sigset_t watched;
	sigset_t before;
	int exit_status;
	pid_t pid;

	aq_program_signals(&watched);
	(void)sigprocmask(SIG_BLOCK, &watched, &before);
	if (aq_parts_find(&parts, &err) < 0 ||
	    aq_card_server_start(&server, &parts, options, &err) < 0) {
		aq_cli_error("soft: %s", err.msg);
		return AQ_EXIT_OWN;
	}
	if (aq_parts_set_environment(&parts, server.socket) < 0) {
		aq_cli_error("soft: no memory for the environment");
		aq_card_server_stop(&server);
		return AQ_EXIT_OWN;
	}
	pid = aq_program_start("soft", argv, &before, &exit_status);
	if (pid > 0)
		exit_status = aq_program_wait(pid, &watched, check_server, &server);
	aq_card_server_stop(&server);
	return exit_status;
}

int aq_cli_soft(int argc, char **argv)
{
	enum {
		OPT_PROFILE = 256,
		OPT_CARDS,
		OPT_COVERAGE
	};
	static const struct option options[] = {
		{ "profile", required_argument, NULL, OPT_PROFILE },
		{ "cards", required_argument, NULL, OPT_CARDS },
		{ "coverage", no_argument, NULL, OPT_COVERAGE },
		{ 0 },
	};
	struct aq_card_options card = { 0 };
	bool coverage = false;
	int opt;

	if (argc > 1 && strcmp(argv[1], "serve") == 0)
		return aq_cli_soft_serve(argc - 1, argv + 1);
	optind = 1;
	while ((opt = getopt_long(argc, argv, "+:", options, NULL)) >= 0) {
		switch (opt) {
		case OPT_PROFILE:
			if (aq_card_options_add_profile(&card, optarg))
				break;
			aq_cli_error("soft: more than %d profiles", AQ_CARD_PROFILES);
			return AQ_EXIT_OWN;
		case OPT_CARDS:
			card.cards = optarg;
			break;
		case OPT_COVERAGE:
			coverage = true;
			break;
		default:
			aq_cli_bad_option("soft", argc, argv, opt);
			return AQ_EXIT_OWN;
		}
	}
	if (coverage) {
		if (optind == argc)
			return aq_cli_soft_coverage();
		aq_cli_error("soft: --coverage runs no program; leave out \"%s\"", argv[optind]);
		return AQ_EXIT_USAGE;
	}
	if (optind == argc) {
		aq_cli_error("soft: no program given: aliquot soft -- PROGRAM [ARGUMENT...]");
		return AQ_EXIT_OWN;
	}
	return run_program(&card, argv + optind);
}
