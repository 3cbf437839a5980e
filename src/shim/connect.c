/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/connect.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/format.h"
#include "base/macro.h"
#include "shm/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define TIMEOUT_NS (10 * AQ_NS_PER_S)

_Static_assert(AQ_CONNECT_PATH == sizeof(((struct sockaddr_un *)0)->sun_path), "path of a socket");

uint64_t aq_connect_timeout_ns(void)
{
	const char *text = secure_getenv("ALIQUOT_ATTACH_TIMEOUT_MS");
	uint64_t ms = 0;

	if (!text || !text[0])
		return TIMEOUT_NS;
	for (; *text >= '0' && *text <= '9'; text++)
		ms = AQ_MIN(ms * 10 + (uint64_t)(*text - '0'), TIMEOUT_NS / AQ_NS_PER_MS);
	return *text ? TIMEOUT_NS : ms * AQ_NS_PER_MS;
}

static const char *directory(void)
{
	const char *named = secure_getenv(AQ_ATTACH_DIR_ENV);

	return named && named[0] ? named : AQ_ATTACH_DIR;
}

bool aq_connect_is(int fd, const char *path)
{
	struct sockaddr_un a;
	socklen_t len = sizeof(a);

	memset(&a, 0, sizeof(a));
	return getpeername(fd, (struct sockaddr *)&a, &len) == 0 && a.sun_family == AF_UNIX &&
	       strncmp(a.sun_path, path, sizeof(a.sun_path)) == 0;
}

/* The instance's directory, by a short name: its own, or that of an open fd when it is longer than a socket's address can be. */
static int short_path(int dir, const char *name, char *ret, size_t size)
{
	if (aq_format(ret, size, "%s/" AQ_ATTACH_SOCKET, name) < size)
		return 0;
	return aq_format(ret, size, "/proc/self/fd/%d/" AQ_ATTACH_SOCKET, dir) < size
		       ? 0
		       : -ENAMETOOLONG;
}

static int connect_once(int dir, const char *name, uint64_t deadline_ns)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	uint64_t now = aq_now_ns();
	uint64_t left = deadline_ns > now ? deadline_ns - now : 1;
	struct timeval limit = { .tv_sec = (time_t)(left / AQ_NS_PER_S),
				 .tv_usec = (long)(left % AQ_NS_PER_S / AQ_NS_PER_US) + 1 };
	int fd;

	if (short_path(dir, name, a.sun_path, sizeof(a.sun_path)) < 0)
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (limit.tv_usec >= 1000000)
		limit.tv_usec = 999999;
	/* A full queue of the listener makes connect() wait. */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0) {
		int rc = -errno;

		(void)close(fd);
		return rc;
	}
	return fd;
}

static int say_hello(int fd, const struct aq_connect_again *again)
{
	struct aq_attach_hello hello = { .h = { AQ_ATTACH_MAGIC, AQ_ATTACH_HELLO, sizeof(hello) },
					 .version_min = AQ_ATTACH_VERSION_MIN,
					 .version = AQ_ATTACH_VERSION,
					 .pid = (uint32_t)getpid(),
					 .pages_version = AQ_PAGES_VERSION };

	if (again) {
		hello.flags = AQ_HELLO_REATTACH;
		hello.slot = again->slot;
		hello.epoch = again->epoch;
	}
	(void)aq_format(hello.program, sizeof(hello.program), "%s", program_invocation_short_name);
	return send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello) ? 0 : -errno;
}

/* Take the fds out of a message; more than fit, or another number than two, are closed. Returns how many came. */
static unsigned take_fds(struct msghdr *msg, int *control, int *report)
{
	int fds[4];
	unsigned n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i + sizeof(int) <= bytes; i += sizeof(int)) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i, sizeof(fd));
			if (n < AQ_ARRAY_SIZE(fds))
				fds[n++] = fd;
			else
				(void)close(fd);
		}
	}
	if (n == 2) {
		*control = fds[0];
		*report = fds[1];
		return n;
	}
	for (unsigned i = 0; i < n; i++)
		(void)close(fds[i]);
	return n;
}

static int check_welcome(struct aq_connected *c, unsigned n_fds, struct aq_err *err)
{
	struct aq_attach_welcome *w = &c->welcome;

	w->message[sizeof(w->message) - 1] = '\0';
	w->cuda_provider[sizeof(w->cuda_provider) - 1] = '\0';
	w->nvml_provider[sizeof(w->nvml_provider) - 1] = '\0';
	if (w->status < 0)
		return aq_err_set(err, w->status, "the daemon refuses: %s", w->message);
	if (w->version < AQ_ATTACH_VERSION_MIN || w->version > AQ_ATTACH_VERSION)
		return aq_err_set(err, -EPROTO, "the daemon speaks version %u", w->version);
	if (n_fds != 2 || w->slot >= AQ_MAX_CLIENTS ||
	    w->control_size < sizeof(struct aq_control_page) ||
	    w->report_size < sizeof(struct aq_report_page))
		return aq_err_set(err, -EPROTO, "the daemon's answer makes no sense");
	return 0;
}

static int take_welcome(struct aq_connected *c, uint64_t deadline_ns, struct aq_err *err)
{
	_Alignas(8) char packet[AQ_ATTACH_MAX];
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
	struct iovec iov = { packet, sizeof(packet) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct pollfd p = { .fd = c->sock, .events = POLLIN };
	unsigned n_fds;
	uint64_t now;
	ssize_t n;
	int rc;

	do {
		now = aq_now_ns();
		if (now >= deadline_ns)
			return aq_err_set(err, -ETIMEDOUT, "the daemon does not answer");
		rc = poll(&p, 1, (int)((deadline_ns - now) / AQ_NS_PER_MS) + 1);
	} while (rc <= 0);
	n = recvmsg(c->sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n <= 0)
		return n < 0 ? -errno : -ECONNRESET;
	n_fds = take_fds(&msg, &c->control, &c->report);
	if (aq_attach_check(packet, (uint32_t)n) != AQ_ATTACH_WELCOME)
		rc = aq_err_set(err, -EPROTO, "the daemon's answer makes no sense");
	else {
		memcpy(&c->welcome, packet, sizeof(c->welcome));
		rc = check_welcome(c, n_fds, err);
	}
	if (rc < 0 && n_fds == 2) {
		(void)close(c->control);
		(void)close(c->report);
	}
	return rc;
}

static int try_once(int dir, const char *name, uint64_t deadline_ns,
		    const struct aq_connect_again *again, struct aq_connected *ret,
		    struct aq_err *err)
{
	struct sockaddr_un a;
	socklen_t len = sizeof(a);
	int rc;

	ret->sock = connect_once(dir, name, deadline_ns);
	if (ret->sock < 0)
		return ret->sock;
	memset(&a, 0, sizeof(a));
	rc = getpeername(ret->sock, (struct sockaddr *)&a, &len) < 0 ? -errno : 0;
	memcpy(ret->path, a.sun_path, sizeof(ret->path));
	if (rc == 0)
		rc = say_hello(ret->sock, again);
	if (rc == 0)
		rc = take_welcome(ret, deadline_ns, err);
	if (rc < 0)
		(void)close(ret->sock);
	return rc;
}

/* Failures that a daemon which is just starting or restarting explains. */
static bool may_pass(int rc)
{
	return rc == -ENOENT || rc == -ECONNREFUSED || rc == -ECONNRESET || rc == -EPIPE ||
	       rc == -EAGAIN || rc == -EINTR;
}

int aq_connect(uint64_t deadline_ns, const struct aq_connect_again *again, struct aq_connected *ret,
	       struct aq_err *err)
{
	const char *name = directory();
	struct timespec pause = { .tv_nsec = (long)AQ_NS_PER_MS };
	aq_auto_close int dir = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (dir < 0)
		return aq_err_set(err, -errno, "no instance at %s", name);
	for (;;) {
		struct aq_err why = { 0 };

		rc = try_once(dir, name, deadline_ns, again, ret, &why);
		if (rc == 0)
			return 0;
		if (!may_pass(rc) || aq_now_ns() >= deadline_ns) {
			if (why.msg[0])
				return aq_err_set(err, rc, "%s (%s)", why.msg, name);
			return aq_err_set(err, rc, "nobody answers at %s/" AQ_ATTACH_SOCKET " (%d)",
					  name, -rc);
		}
		(void)nanosleep(&pause, NULL);
		if (pause.tv_nsec < 100 * (long)AQ_NS_PER_MS)
			pause.tv_nsec *= 2;
	}
}
