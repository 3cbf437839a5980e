/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/card-server.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/macro.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_TIMEOUT_MS 20000
#define STOP_TIMEOUT_NS	 (5 * AQ_NS_PER_S)

/* "<folder>/<rest>" when that file exists. */
static bool find_file(char *ret, size_t size, const char *folder, const char *rest)
{
	return snprintf(ret, size, "%s/%s", folder, rest) < (int)size && access(ret, F_OK) == 0;
}

static bool find_in_build_tree(const char *folder, struct aq_parts *ret)
{
	char nvml[PATH_MAX];
	size_t len;

	if (!find_file(ret->gpud, sizeof(ret->gpud), folder, "../gpud/aliquot-gpud") ||
	    !find_file(ret->libcuda, sizeof(ret->libcuda), folder, "../frontend/cuda/libcuda.so.1"))
		return false;
	len = (size_t)snprintf(ret->libdirs, sizeof(ret->libdirs), "%s/../frontend/cuda", folder);
	if (!find_file(nvml, sizeof(nvml), folder, "../frontend/nvml/libnvidia-ml.so.1"))
		return true;
	(void)snprintf(ret->libnvml, sizeof(ret->libnvml), "%s", nvml);
	return len + (size_t)snprintf(ret->libdirs + len, sizeof(ret->libdirs) - len,
				      ":%s/../frontend/nvml", folder) <
	       sizeof(ret->libdirs);
}

/* Under the prefix that we ourselves lie in; AQ_LIBDIR and AQ_BINDIR_UP are relative, so that a moved tree works. */
static bool find_installed(const char *folder, struct aq_parts *ret)
{
	char root[PATH_MAX];

	if (snprintf(root, sizeof(root), "%s/%s", folder, AQ_BINDIR_UP) >= (int)sizeof(root))
		return false;
	if (!find_file(ret->gpud, sizeof(ret->gpud), folder, "aliquot-gpud") &&
	    !find_file(ret->gpud, sizeof(ret->gpud), root, AQ_SBINDIR "/aliquot-gpud") &&
	    !find_file(ret->gpud, sizeof(ret->gpud), root, AQ_LIBEXECDIR "/aliquot-gpud"))
		return false;
	if (!find_file(ret->libcuda, sizeof(ret->libcuda), root, AQ_SOFTDIR "/libcuda.so.1"))
		return false;
	if (!find_file(ret->libnvml, sizeof(ret->libnvml), root, AQ_SOFTDIR "/libnvidia-ml.so.1"))
		ret->libnvml[0] = '\0';
	return snprintf(ret->libdirs, sizeof(ret->libdirs), "%s/" AQ_SOFTDIR, root) <
	       (int)sizeof(ret->libdirs);
}

int aq_parts_find(struct aq_parts *ret, struct aq_err *err)
{
	char folder[PATH_MAX / 2];
	struct aq_parts found = { 0 };
	ssize_t n = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
	char *slash;

	if (n < 0 || (size_t)n >= sizeof(folder) - 1)
		return aq_err_set(err, -ENOENT, "cannot find out where this command lies");
	folder[n] = '\0';
	slash = strrchr(folder, '/');
	if (slash)
		*slash = '\0';
	if (!find_in_build_tree(folder, &found) && !find_installed(folder, &found))
		return aq_err_set(err, -ENOENT,
				  "aliquot-gpud or its libcuda.so.1 is missing beside %s/aliquot",
				  folder);
	*ret = found;
	return 0;
}

/* Put `value` before or behind what the variable holds. */
static int add_to_variable(const char *name, const char *value, bool behind)
{
	aq_auto_free char *joined = NULL;
	const char *old = getenv(name);
	int n;

	if (!old || !old[0])
		return setenv(name, value, 1) < 0 ? -ENOMEM : 0;
	n = asprintf(&joined, "%s:%s", behind ? old : value, behind ? value : old);
	if (n < 0) {
		joined = NULL;
		return -ENOMEM;
	}
	return setenv(name, joined, 1) < 0 ? -ENOMEM : 0;
}

int aq_parts_set_environment(const struct aq_parts *parts, const char *socket)
{
	int rc = setenv("ALIQUOT_GPUD", socket, 1) < 0 ? -ENOMEM : 0;

	if (rc == 0)
		rc = add_to_variable("LD_LIBRARY_PATH", parts->libdirs, false);
	/* For programs with a search path of their own in front of ours: a library that is loaded already is found by its SONAME. */
	if (rc == 0 && AQ_PRELOAD)
		rc = add_to_variable("LD_PRELOAD", parts->libcuda, true);
	if (rc == 0 && AQ_PRELOAD && parts->libnvml[0])
		rc = add_to_variable("LD_PRELOAD", parts->libnvml, true);
	return rc;
}

void aq_describe_status(int status, char *buf, size_t size)
{
	if (WIFSIGNALED(status))
		(void)snprintf(buf, size, "was ended by signal %d (%s)", WTERMSIG(status),
			       strsignal(WTERMSIG(status)));
	else
		(void)snprintf(buf, size, "ended with status %d", WEXITSTATUS(status));
}

static int choose_socket(struct aq_card_server *s, const struct aq_card_options *options,
			 struct aq_err *err)
{
	const char *places[] = { getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp" };

	if (options->socket) {
		if (snprintf(s->socket, sizeof(s->socket), "%s", options->socket) >=
		    (int)sizeof(s->socket))
			return aq_err_set(err, -ENAMETOOLONG, "socket path is too long");
		return 0;
	}
	for (size_t i = 0; i < AQ_ARRAY_SIZE(places); i++) {
		/* A socket's path has 107 characters; ours adds 29 to the place. */
		if (!places[i] || !places[i][0] || strlen(places[i]) > 70)
			continue;
		(void)snprintf(s->folder, sizeof(s->folder), "%s/aliquot-soft-XXXXXX", places[i]);
		if (!mkdtemp(s->folder))
			continue;
		(void)snprintf(s->socket, sizeof(s->socket), "%.*s/gpud.sock", 100, s->folder);
		return 0;
	}
	s->folder[0] = '\0';
	return aq_err_set(err, -errno, "cannot make a private folder in %s: %s", "/tmp",
			  strerror(errno));
}

bool aq_card_options_add_profile(struct aq_card_options *options, const char *profile)
{
	if (options->n_profiles == AQ_CARD_PROFILES)
		return false;
	options->profiles[options->n_profiles++] = profile;
	return true;
}

/* In the child: become the server. */
static void exec_server(const struct aq_parts *parts, const struct aq_card_options *options,
			const char *socket, int ready_fd, pid_t parent)
{
	const char *argv[8 + 2 * AQ_CARD_PROFILES] = { "aliquot-gpud", "--socket", socket };
	size_t n = 3;
	char fd_text[16];
	sigset_t none;

	(void)setpgid(0, 0);
	/* If we are killed there is nobody left who would end it. */
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)fcntl(ready_fd, F_SETFD, 0);
	(void)snprintf(fd_text, sizeof(fd_text), "%d", ready_fd);
	argv[n++] = "--ready-fd";
	argv[n++] = fd_text;
	for (size_t i = 0; i < options->n_profiles; i++) {
		argv[n++] = "--profile";
		argv[n++] = options->profiles[i];
	}
	if (options->cards) {
		argv[n++] = "--cards";
		argv[n++] = options->cards;
	}
	argv[n] = NULL;
	(void)execv(parts->gpud, (char *const *)(uintptr_t)argv);
	(void)fprintf(stderr, "aliquot: cannot run %s: %s\n", parts->gpud, strerror(errno));
	_exit(1);
}

/* One byte says ready; end of file says that the server is gone. */
static int wait_ready(struct aq_card_server *s, int fd, struct aq_err *err)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t deadline = aq_now_ns() + READY_TIMEOUT_MS * AQ_NS_PER_MS;
	char text[100];
	ssize_t n;
	int rc;

	do {
		uint64_t now = aq_now_ns();

		rc = poll(&p, 1, now < deadline ? (int)((deadline - now) / AQ_NS_PER_MS) + 1 : 0);
	} while (rc < 0 && errno == EINTR);
	if (rc < 0)
		return aq_err_set(err, -errno, "poll: %s", strerror(errno));
	if (rc == 0)
		return aq_err_set(err, -ETIMEDOUT, "aliquot-gpud is not ready after %d s",
				  READY_TIMEOUT_MS / 1000);
	do {
		n = read(fd, text, 1);
	} while (n < 0 && errno == EINTR);
	if (n > 0)
		return 0;
	if (waitpid(s->pid, &s->status, 0) == s->pid)
		s->pid = 0;
	aq_describe_status(s->status, text, sizeof(text));
	return aq_err_set(err, -ECONNREFUSED, "aliquot-gpud %s", text);
}

int aq_card_server_start(struct aq_card_server *s, const struct aq_parts *parts,
			 const struct aq_card_options *options, struct aq_err *err)
{
	aq_auto_close int read_end = -1;
	pid_t parent = getpid();
	int ends[2];
	int rc;

	*s = (struct aq_card_server){ 0 };
	rc = choose_socket(s, options, err);
	if (rc < 0)
		return rc;
	if (pipe2(ends, O_CLOEXEC) < 0) {
		rc = aq_err_set(err, -errno, "pipe: %s", strerror(errno));
		aq_card_server_stop(s);
		return rc;
	}
	read_end = ends[0];
	s->pid = fork();
	if (s->pid == 0)
		exec_server(parts, options, s->socket, ends[1], parent);
	(void)close(ends[1]);
	if (s->pid < 0) {
		s->pid = 0;
		rc = aq_err_set(err, -errno, "fork: %s", strerror(errno));
	} else {
		rc = wait_ready(s, read_end, err);
	}
	if (rc < 0)
		aq_card_server_stop(s);
	return rc;
}

void aq_card_server_stop(struct aq_card_server *s)
{
	uint64_t deadline = aq_now_ns() + STOP_TIMEOUT_NS;

	if (s->pid > 0) {
		(void)kill(s->pid, SIGTERM);
		while (waitpid(s->pid, &s->status, WNOHANG) == 0) {
			if (aq_now_ns() > deadline)
				(void)kill(s->pid, SIGKILL);
			(void)poll(NULL, 0, 5);
		}
		s->pid = 0;
	}
	if (s->folder[0]) {
		(void)unlink(s->socket);
		(void)rmdir(s->folder);
		s->folder[0] = '\0';
	}
}
