/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/keeper.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/macro.h"
#include "cli/shim-parts.h"
#include "proto/control.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_TIMEOUT_MS 20000
#define STOP_TIMEOUT_NS	 (5 * AQ_NS_PER_S)
#define LOOK_MS		 200 /* how often the keeper looks when nothing wakes it */
#define RESTARTS	 5   /* in a row, each within a second */

/* ------------------------------------------------------------------------------------------------ the folder */

/* FNV-1a: tells the servers apart that ALIQUOT_GPUD names. */
static uint64_t hash_text(const char *text)
{
	uint64_t h = 14695981039346656037ULL;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 1099511628211ULL;
	return h;
}

int aq_keeper_folder(char *buf, size_t size, struct aq_err *err)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	const char *gpud = getenv("ALIQUOT_GPUD");
	char parent[PATH_MAX / 2];
	int n;

	/* A socket's path has 107 characters; ours adds 50 to the place. */
	if (runtime && runtime[0] == '/' && strlen(runtime) < 55)
		(void)snprintf(parent, sizeof(parent), "%s/aliquot", runtime);
	else
		(void)snprintf(parent, sizeof(parent), "/tmp/aliquot-%u", geteuid());
	if (gpud && gpud[0])
		n = snprintf(buf, size, "%s/daemon-%016llx", parent,
			     (unsigned long long)hash_text(gpud));
	else
		n = snprintf(buf, size, "%s/daemon", parent);
	return n < (int)size ? 0 : aq_err_set(err, -ENAMETOOLONG, "%s is too long", parent);
}

/* A folder of ours alone: what others may write to is not to be trusted. */
static int make_folder(const char *path, struct aq_err *err)
{
	struct stat st;

	if (mkdir(path, 0700) == 0)
		return 0;
	if (errno != EEXIST)
		return aq_err_set(err, -errno, "cannot make %s: %s", path, strerror(errno));
	if (lstat(path, &st) < 0)
		return aq_err_set(err, -errno, "%s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
		return aq_err_set(err, -EPERM,
				  "%s is not a folder that only user %u may write to; remove it",
				  path, geteuid());
	return 0;
}

static void parent_of(const char *folder, char *ret, size_t size)
{
	char *slash;

	(void)snprintf(ret, size, "%s", folder);
	slash = strrchr(ret, '/');
	if (slash)
		*slash = '\0';
}

static int open_in(const char *folder, const char *name)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

/* Whether the file that is open is still the one in the folder. */
static bool is_current(const char *folder, const char *name, int fd)
{
	char path[PATH_MAX];
	struct stat a;
	struct stat b;

	return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) &&
	       stat(path, &a) == 0 && fstat(fd, &b) == 0 && a.st_ino == b.st_ino &&
	       a.st_dev == b.st_dev;
}

static int lock(int fd, int how)
{
	while (flock(fd, how) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

int aq_keeper_hold(const char *folder, struct aq_err *err)
{
	char parent[PATH_MAX];

	parent_of(folder, parent, sizeof(parent));
	for (unsigned tries = 0; tries < 100; tries++) {
		aq_auto_close int fd = -1;
		int rc = make_folder(parent, err);

		if (rc == 0)
			rc = make_folder(folder, err);
		if (rc == -ENOENT)
			continue; /* the parent has just been removed */
		if (rc < 0)
			return rc;
		fd = open_in(folder, "users");
		if (fd == -ENOENT)
			continue;
		if (fd < 0)
			return aq_err_set(err, fd, "%s/users: %s", folder, strerror(-fd));
		rc = lock(fd, LOCK_SH);
		if (rc < 0)
			return aq_err_set(err, rc, "cannot lock %s/users: %s", folder,
					  strerror(-rc));
		if (is_current(folder, "users", fd))
			return aq_take_fd(fd);
	}
	return aq_err_set(err, -EBUSY, "%s changes all the time", folder);
}

/* ------------------------------------------------------------------------------------------------ the keeper */

struct keeper {
	const char *folder;
	const struct aq_shim_parts *parts;
	int users_fd, keeper_fd;
	pid_t daemon; /* 0: not running */
	uint64_t started_ns;
	unsigned restarts;
};

static int connect_control(const char *folder)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/" AQ_CONTROL_SOCKET, folder) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	return aq_fd_connect_unix(path);
}

/* In the child: become the daemon. */
static void exec_daemon(const struct keeper *k, int ready_fd, pid_t parent)
{
	char locks[PATH_MAX];
	const char *argv[20] = { "aliquotd", "--private", "--log-level",
				 "warning",  "--dir",	  k->folder };
	const char *gpud = getenv("ALIQUOT_GPUD");
	char fd_text[16];
	size_t n = 6;
	sigset_t none;

	/* If the keeper is killed there is nobody left who would end it. */
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (gpud && gpud[0]) {
		argv[n++] = "--provider-cuda";
		argv[n++] = k->parts->soft_libcuda;
		argv[n++] = "--provider-nvml";
		argv[n++] = k->parts->soft_libnvml;
		/* Cards of another server may have the same names. */
		(void)snprintf(locks, sizeof(locks), "%s/cards", k->folder);
		argv[n++] = "--lock-dir";
		argv[n++] = locks;
	}
	if (k->parts->probe[0]) {
		argv[n++] = "--probe";
		argv[n++] = k->parts->probe;
	}
	if (ready_fd >= 0) {
		(void)fcntl(ready_fd, F_SETFD, 0);
		(void)snprintf(fd_text, sizeof(fd_text), "%d", ready_fd);
		argv[n++] = "--ready-fd";
		argv[n++] = fd_text;
	}
	argv[n] = NULL;
	(void)execv(k->parts->daemon, (char *const *)(uintptr_t)argv);
	(void)dprintf(STDERR_FILENO, "cannot run %s: %s\n", k->parts->daemon, strerror(errno));
	_exit(1);
}

static int start_daemon(struct keeper *k, int ready_fd)
{
	pid_t parent = getpid();

	k->started_ns = aq_now_ns();
	k->daemon = fork();
	if (k->daemon == 0)
		exec_daemon(k, ready_fd, parent);
	if (k->daemon < 0) {
		k->daemon = 0;
		return -errno;
	}
	return 0;
}

static void stop_daemon(struct keeper *k)
{
	uint64_t deadline = aq_now_ns() + STOP_TIMEOUT_NS;

	if (!k->daemon)
		return;
	(void)kill(k->daemon, SIGTERM);
	while (waitpid(k->daemon, NULL, WNOHANG) == 0) {
		if (aq_now_ns() > deadline)
			(void)kill(k->daemon, SIGKILL);
		(void)poll(NULL, 0, 5);
	}
	k->daemon = 0;
}

/* Whether the daemon says that it has no vgpu. What does not answer is not idle. */
static bool daemon_idle(const char *folder)
{
	aq_auto_close int fd = connect_control(folder);
	aq_auto_free char *text = NULL;
	json_t *answer;
	json_t *vgpus;
	bool idle;

	if (fd < 0 || aq_control_call(fd, "{\"op\": \"list\"}", &text, NULL) < 0)
		return false;
	answer = json_loads(text, 0, NULL);
	vgpus = json_object_get(answer, "vgpus");
	idle = json_is_array(vgpus) && json_array_size(vgpus) == 0;
	json_decref(answer);
	return idle;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	if (at->level > 1 || (at->level == 1 && strcmp(path + at->base, "users") != 0))
		(void)remove(path);
	return 0;
}

/*
 * With the exclusive lock on "users", which goes last: until then whoever comes waits for the lock, afterwards they find or make another file, and
 * the folder stays theirs.
 */
static void remove_folder(const char *folder)
{
	char path[PATH_MAX];

	(void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	if (snprintf(path, sizeof(path), "%s/users", folder) < (int)sizeof(path))
		(void)unlink(path);
	(void)rmdir(folder);
	parent_of(folder, path, sizeof(path));
	(void)rmdir(path); /* stays while it is not empty */
}

/* Whether the server that had the GPUs has ended: vgpus on them are of no use to anybody. */
static bool gpus_gone(void)
{
	const char *gpud = getenv("ALIQUOT_GPUD");
	aq_auto_close int fd = gpud && gpud[0] ? aq_fd_connect_unix(gpud) : -1;

	return gpud && gpud[0] && (fd == -ENOENT || fd == -ENOTDIR || fd == -ECONNREFUSED);
}

/* True while there is hope. One that ends by itself has said why; one that was killed is wanted still. */
static bool see_to_daemon(struct keeper *k)
{
	int status;

	if (waitpid(k->daemon, &status, WNOHANG) != k->daemon)
		return true;
	k->daemon = 0;
	if (!WIFSIGNALED(status))
		return false;
	k->restarts = aq_now_ns() - k->started_ns < AQ_NS_PER_S ? k->restarts + 1 : 1;
	if (k->restarts > RESTARTS) {
		(void)dprintf(STDERR_FILENO, "aliquotd was killed %d times in a row; giving up\n",
			      RESTARTS);
		return false;
	}
	(void)dprintf(STDERR_FILENO, "aliquotd was ended by signal %d; starting it again\n",
		      WTERMSIG(status));
	return start_daemon(k, -1) == 0;
}

static void keep(struct keeper *k)
{
	struct timespec pause = { .tv_nsec = LOOK_MS * (long)AQ_NS_PER_MS };
	sigset_t watched;

	(void)sigemptyset(&watched);
	(void)sigaddset(&watched, SIGCHLD);
	(void)sigaddset(&watched, SIGTERM);
	(void)sigaddset(&watched, SIGUSR1);
	for (;;) {
		int sig = sigtimedwait(&watched, NULL, &pause);

		if (sig == SIGTERM) {
			stop_daemon(k);
			return;
		}
		if (!see_to_daemon(k))
			return;
		if (flock(k->users_fd, LOCK_EX | LOCK_NB) < 0)
			continue;
		if (!is_current(k->folder, "users", k->users_fd)) {
			stop_daemon(k);
			return; /* somebody has removed the folder */
		}
		if (daemon_idle(k->folder) || gpus_gone()) {
			stop_daemon(k);
			remove_folder(k->folder);
			return;
		}
		(void)flock(k->users_fd, LOCK_UN);
	}
}

static void redirect(const char *folder)
{
	char path[PATH_MAX];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int log;

	(void)snprintf(path, sizeof(path), "%s/log", folder);
	log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (null >= 0) {
		(void)dup2(null, STDIN_FILENO);
		(void)dup2(null, STDOUT_FILENO);
	}
	if (log >= 0 || null >= 0)
		(void)dup2(log >= 0 ? log : null, STDERR_FILENO);
}

/* The keeper's whole life, in a process whose parent has ended. */
static void run_keeper(const char *folder, const struct aq_shim_parts *parts, int ready_fd)
{
	struct keeper k = { .folder = folder, .parts = parts };
	sigset_t all;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	(void)prctl(PR_SET_NAME, "aliquot-keeper");
	if (chdir("/") < 0)
		_exit(1);
	redirect(folder);
	/* What else was open is the caller's, the lock on "users" among it. */
	if (ready_fd != 3) {
		(void)dup2(ready_fd, 3);
		ready_fd = 3;
		(void)fcntl(ready_fd, F_SETFD, FD_CLOEXEC);
	}
	(void)close_range(4, ~0U, 0);
	k.keeper_fd = open_in(folder, "keeper");
	k.users_fd = open_in(folder, "users");
	if (k.keeper_fd < 0 || k.users_fd < 0 || flock(k.keeper_fd, LOCK_EX | LOCK_NB) < 0 ||
	    ftruncate(k.keeper_fd, 0) < 0 || dprintf(k.keeper_fd, "%d\n", getpid()) < 0)
		_exit(1);
	if (aq_shim_clear_environment(parts) < 0 || start_daemon(&k, ready_fd) < 0)
		_exit(1);
	(void)close(ready_fd);
	keep(&k);
	_exit(0);
}

/* ------------------------------------------------------------------------------------------------ its users */

/* What the log of a daemon that did not start says last. */
static void last_words(const char *folder, char *buf, size_t size)
{
	aq_auto_close int fd = open_in(folder, "log");
	off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
	off_t from = end > (off_t)size - 1 ? end - (off_t)size + 1 : 0;
	ssize_t n = end > 0 ? pread(fd, buf, size - 1, from) : 0;
	const char *line;

	while (n > 0 && buf[n - 1] == '\n')
		n--;
	buf[n > 0 ? n : 0] = '\0';
	line = strrchr(buf, '\n');
	if (line)
		memmove(buf, line + 1, strlen(line + 1) + 1);
	if (!buf[0])
		(void)snprintf(buf, size, "it said nothing");
}

/* A byte says ready; end of file that the daemon, which has the only other end, is gone. */
static int wait_ready(const char *folder, int fd, struct aq_err *err)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t deadline = aq_now_ns() + READY_TIMEOUT_MS * AQ_NS_PER_MS;
	char text[180];
	ssize_t n;
	int rc;

	do {
		uint64_t now = aq_now_ns();

		rc = poll(&p, 1, now < deadline ? (int)((deadline - now) / AQ_NS_PER_MS) + 1 : 0);
	} while (rc < 0 && errno == EINTR);
	if (rc == 0)
		return aq_err_set(err, -ETIMEDOUT, "the private daemon is not ready after %d s",
				  READY_TIMEOUT_MS / 1000);
	do {
		n = read(fd, text, 1);
	} while (n < 0 && errno == EINTR);
	if (n > 0)
		return 0;
	last_words(folder, text, sizeof(text));
	return aq_err_set(err, -ECONNREFUSED, "the private daemon did not start: %s", text);
}

static int start_keeper(const char *folder, struct aq_err *err)
{
	struct aq_shim_parts parts;
	const char *gpud = getenv("ALIQUOT_GPUD");
	aq_auto_close int read_end = -1;
	int ends[2];
	pid_t pid;
	int rc = aq_shim_parts_find(&parts, err);

	if (rc < 0)
		return rc;
	if (gpud && gpud[0] && (!parts.soft_libcuda[0] || !parts.soft_libnvml[0]))
		return aq_err_set(
			err, -ENOENT,
			"ALIQUOT_GPUD is set, but the software card's libraries are not installed");
	if (pipe2(ends, O_CLOEXEC) < 0)
		return aq_err_set(err, -errno, "pipe: %s", strerror(errno));
	read_end = ends[0];
	pid = fork();
	if (pid == 0) {
		(void)setsid();
		if (fork() == 0)
			run_keeper(folder, &parts, ends[1]);
		_exit(0);
	}
	(void)close(ends[1]);
	if (pid < 0)
		return aq_err_set(err, -errno, "fork: %s", strerror(errno));
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return wait_ready(folder, read_end, err);
}

/* A keeper that lives restarts its daemon: give it time. */
static bool answers(const char *folder)
{
	aq_auto_close int keeper = open_in(folder, "keeper");

	for (unsigned tries = 0; tries < 200; tries++) {
		aq_auto_close int fd = connect_control(folder);

		if (fd >= 0)
			return true;
		if (keeper < 0 || flock(keeper, LOCK_SH | LOCK_NB) == 0)
			return false;
		(void)poll(NULL, 0, 25);
	}
	return false;
}

int aq_keeper_ensure(const char *folder, struct aq_err *err)
{
	aq_auto_close int start = open_in(folder, "start");
	int rc = start < 0 ? start : lock(start, LOCK_EX);

	if (rc < 0)
		return aq_err_set(err, rc, "%s/start: %s", folder, strerror(-rc));
	return answers(folder) ? 0 : start_keeper(folder, err);
}

/* Ours is the last lock on "users": take away what a daemon that never was has left. */
void aq_keeper_abandon(const char *folder, int users_fd)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/state.json", folder) < (int)sizeof(path) &&
	    access(path, F_OK) < 0 && flock(users_fd, LOCK_EX | LOCK_NB) == 0)
		remove_folder(folder);
	(void)close(users_fd);
}

/* The number in the locked file is the keeper's, which lives. */
static void wake(int keeper_fd)
{
	char text[16] = "";
	long pid;

	if (pread(keeper_fd, text, sizeof(text) - 1, 0) <= 0)
		return;
	pid = strtol(text, NULL, 10);
	if (pid > 1 && pid <= INT32_MAX)
		(void)kill((pid_t)pid, SIGUSR1);
}

void aq_keeper_wait_end(const char *folder, unsigned timeout_ms)
{
	uint64_t deadline = aq_now_ns() + timeout_ms * AQ_NS_PER_MS;
	char path[PATH_MAX];
	aq_auto_close int fd = -1;

	if (snprintf(path, sizeof(path), "%s/keeper", folder) >= (int)sizeof(path))
		return;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	while (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && aq_now_ns() < deadline) {
		wake(fd);
		(void)poll(NULL, 0, 10);
	}
}
