/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/program.h"

#include "base/cleanup.h"
#include "base/macro.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a program may be told through us. */
static const int passed_on[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT };

void aq_program_signals(sigset_t *ret)
{
	(void)sigemptyset(ret);
	(void)sigaddset(ret, SIGCHLD);
	for (size_t i = 0; i < AQ_ARRAY_SIZE(passed_on); i++)
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

pid_t aq_program_start(const char *verb, char **argv, const sigset_t *mask, int *ret_exit)
{
	aq_auto_close int read_end = -1;
	int cause = 0;
	int ends[2];
	ssize_t n;
	pid_t pid;

	*ret_exit = AQ_EXIT_OWN;
	if (pipe2(ends, O_CLOEXEC) < 0) {
		aq_cli_error("%s: pipe: %s", verb, strerror(errno));
		return -1;
	}
	read_end = ends[0];
	pid = fork();
	if (pid == 0)
		exec_program(argv, mask, ends[1]);
	(void)close(ends[1]);
	if (pid < 0) {
		aq_cli_error("%s: fork: %s", verb, strerror(errno));
		return -1;
	}
	do {
		n = read(read_end, &cause, sizeof(cause));
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(cause))
		return pid; /* closed by a successful exec */
	(void)waitpid(pid, NULL, 0);
	aq_cli_error("%s: cannot run \"%s\": %s", verb, argv[0], strerror(cause));
	*ret_exit = cause == ENOENT ? AQ_EXIT_NOT_FOUND : AQ_EXIT_NOT_EXECUTABLE;
	return -1;
}

int aq_program_wait(pid_t pid, const sigset_t *watched, void (*on_child)(void *), void *data)
{
	for (;;) {
		siginfo_t info;
		int status;
		int sig;

		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
		if (on_child)
			on_child(data);
		sig = sigwaitinfo(watched, &info);
		/* What the terminal's keys send reaches the program by itself: it is in our process group. */
		if (sig > 0 && sig != SIGCHLD && info.si_code != SI_KERNEL)
			(void)kill(pid, sig);
	}
}
