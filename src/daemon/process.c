/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The file /proc/PID/`what`, NUL-terminated. Its length, or -errno. */
static ssize_t read_proc(pid_t pid, const char *what, char *buf, size_t size)
{
	char path[64];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
	aq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return n;
}

/* Field `n` of /proc/PID/stat, counted as in proc(5), from behind the name; NULL when it ends before. */
static const char *stat_field(const char *after_name, int n)
{
	const char *p = after_name;

	for (int field = 2; p && field < n; field++)
		p = strchr(p + 1, ' ');
	return p;
}

int aqd_process_identify(pid_t pid, struct aqd_process_id *ret)
{
	char buf[1024];
	const char *p;
	const char *start;
	const char *stack;

	if (read_proc(pid, "stat", buf, sizeof(buf)) <= 0)
		return -ESRCH;
	/* The name, in parentheses, may hold anything; after it come the fields 3 and on. */
	p = strrchr(buf, ')');
	start = p ? stat_field(p, 22) : NULL;
	if (!start)
		return -ESRCH;
	/* 0 when we may not look into the process. */
	stack = stat_field(p, 28);
	ret->start_time = strtoull(start, NULL, 10);
	ret->image = stack ? strtoull(stack, NULL, 10) : 0;
	return 0;
}

/* Cheaper than to read its numbers; only where we may look. */
static bool is_in_our_namespace(pid_t pid)
{
	static struct stat ours; /* never changes */
	struct stat its;
	char path[64];

	if (!ours.st_ino && stat("/proc/self/ns/pid", &ours) < 0)
		return false;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
	return stat(path, &its) == 0 && its.st_ino == ours.st_ino && its.st_dev == ours.st_dev;
}

pid_t aqd_process_inner_pid(pid_t pid)
{
	char buf[4096];
	char *line;
	char *end;
	char *last;

	if (is_in_our_namespace(pid))
		return pid;
	if (read_proc(pid, "status", buf, sizeof(buf)) <= 0)
		return -1;
	line = strstr(buf, "\nNSpid:");
	if (!line)
		return -1;
	line += strlen("\nNSpid:");
	end = strchr(line, '\n');
	if (end)
		*end = '\0';
	last = strrchr(line, '\t');
	return last ? (pid_t)strtol(last + 1, NULL, 10) : -1;
}

void aqd_printable(char *text)
{
	for (; *text; text++) {
		if (*text < ' ' || *text > '~')
			*text = '?';
	}
}

void aqd_process_name(pid_t pid, char *buf, size_t size)
{
	ssize_t n = read_proc(pid, "comm", buf, size);

	if (n <= 0) {
		(void)snprintf(buf, size, "?");
		return;
	}
	if (buf[n - 1] == '\n')
		buf[n - 1] = '\0';
	aqd_printable(buf);
}
