/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* By syscall: glibc's wrapper came with 2.27, above the symbol ceiling of what runs inside applications. */
#define MEMFD_CLOEXEC	    1U
#define MEMFD_ALLOW_SEALING 2U

int aq_fd_memfd(const char *name, uint64_t size)
{
	aq_auto_close int fd =
		(int)syscall(SYS_memfd_create, name, MEMFD_CLOEXEC | MEMFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (size > INT64_MAX)
		return -EFBIG;
	if (ftruncate(fd, (off_t)size) < 0)
		return -errno;
	return aq_take_fd(fd);
}

static ssize_t send_part(int sock, const void *buf, size_t len, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (fd >= 0) {
		struct cmsghdr *c;

		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	do {
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

int aq_fd_send(int sock, const void *buf, size_t len, int fd)
{
	const char *p = buf;

	while (len) {
		ssize_t n = send_part(sock, p, len, fd);

		if (n < 0)
			return (int)n;
		p += n;
		len -= (size_t)n;
		fd = -1; /* it went with the first byte */
	}
	return 0;
}

static void keep_fds(struct msghdr *msg, int *ret_fd)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (ret_fd && *ret_fd < 0)
				*ret_fd = fd;
			else
				(void)close(fd);
		}
	}
}

int aq_fd_recv(int sock, void *buf, size_t len, int *ret_fd)
{
	aq_auto_close int got = -1;
	char *p = buf;

	while (len) {
		char control[CMSG_SPACE(sizeof(int) * 4)];
		struct iovec iov = { .iov_base = p, .iov_len = len };
		struct msghdr msg = { .msg_iov = &iov,
				      .msg_iovlen = 1,
				      .msg_control = control,
				      .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		}
		keep_fds(&msg, &got);
		if (n == 0)
			return -ECONNRESET;
		p += n;
		len -= (size_t)n;
	}
	if (ret_fd)
		*ret_fd = aq_take_fd(got);
	return 0;
}

int aq_fd_connect_unix(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	aq_auto_close int fd = -1;

	if (strlen(path) >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	strcpy(sa.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -errno;
	return aq_take_fd(fd);
}
