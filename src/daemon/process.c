/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int aqd_process_start_time(pid_t pid, uint64_t *ret)
{
	char buf[1024];
	char *p;

	if (read_proc(pid, "stat", buf, sizeof(buf)) <= 0)
		return -ESRCH;
	/* The name, in parentheses, may hold anything; after it come the fields 3 and on. */
	p = strrchr(buf, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p)
		return -ESRCH;
	*ret = strtoull(p + 1, NULL, 10);
	return 0;
}

pid_t aqd_process_inner_pid(pid_t pid)
{
	char buf[4096];
	char *line;
	char *end;
	char *last;

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
