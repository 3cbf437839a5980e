/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot soft … -- PROGRAM …`: a program on software cards of its own. */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "cli/card-server.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a program may be told through us. */
static const int passed_on[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT };

static void watched_signals(sigset_t *ret)
{
	(void)sigemptyset(ret);
	(void)sigaddset(ret, SIGCHLD);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		(void)sigaddset(ret, passed_on[i]);
}

/* In the child: become the program, or tell why not. */
static void exec_program(char **argv, const sigset_t *mask, int report_fd)
{
	int cause;

	(void)sigprocmask(SIG_SETMASK, mask, NULL);
	(void)execvp(argv[0], argv);
	cause = errno;
	if (write(report_fd, &cause, sizeof(cause)) < 0)
		_exit(AQ_EXIT_OWN);
	_exit(AQ_EXIT_OWN);
}

/* Returns the program's pid, or -1 with *ret_exit set and the cause printed. */
static pid_t start_program(char **argv, const sigset_t *mask, int *ret_exit)
{
	aq_auto_close int read_end = -1;
	int cause = 0;
	int ends[2];
	ssize_t n;
	pid_t pid;

	*ret_exit = AQ_EXIT_OWN;
	if (pipe2(ends, O_CLOEXEC) < 0) {
		aq_cli_error("soft: pipe: %s", strerror(errno));
		return -1;
	}
	read_end = ends[0];
	pid = fork();
	if (pid == 0)
		exec_program(argv, mask, ends[1]);
	(void)close(ends[1]);
	if (pid < 0) {
		aq_cli_error("soft: fork: %s", strerror(errno));
		return -1;
	}
	do {
		n = read(read_end, &cause, sizeof(cause));
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(cause))
		return pid; /* closed by a successful exec */
	(void)waitpid(pid, NULL, 0);
	aq_cli_error("soft: cannot run \"%s\": %s", argv[0], strerror(cause));
	*ret_exit = cause == ENOENT ? AQ_EXIT_NOT_FOUND : AQ_EXIT_NOT_EXECUTABLE;
	return -1;
}

/* Wait for the program, passing on what others send us. Returns its wait status. */
static int wait_program(pid_t pid, struct aq_card_server *server, const sigset_t *watched)
{
	for (;;) {
		siginfo_t info;
		int status;
		int sig;

		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		if (server->pid > 0 && waitpid(server->pid, &server->status, WNOHANG) > 0) {
			char text[100];

			server->pid = 0;
			aq_describe_status(server->status, text, sizeof(text));
			aq_cli_error("soft: aliquot-gpud %s while the program ran", text);
		}
		sig = sigwaitinfo(watched, &info);
		/* What the terminal's keys send reaches the program by itself: it is in our process group. */
		if (sig > 0 && sig != SIGCHLD && info.si_code != SI_KERNEL)
			(void)kill(pid, sig);
	}
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

	watched_signals(&watched);
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
	pid = start_program(argv, &before, &exit_status);
	if (pid > 0) {
		int status = wait_program(pid, &server, &watched);

		exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	}
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
