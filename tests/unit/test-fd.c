/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

static void make_pair(int s[2])
{
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), errno);
}

static void close_pair(const int s[2])
{
	(void)close(s[0]);
	(void)close(s[1]);
}

static int count_open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void memfd_has_size_and_cloexec(void **state)
{
	struct stat st;
	int fd = aq_fd_memfd("test", 12345);

	(void)state;
	assert_return_code(fd, errno);
	assert_return_code(fstat(fd, &st), errno);
	assert_int_equal(st.st_size, 12345);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_return_code(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), errno);
	(void)close(fd);
	assert_int_equal(aq_fd_memfd("test", UINT64_MAX), -EFBIG);
}

static void bytes_and_an_fd_arrive(void **state)
{
	int before = count_open_fds();
	char text[6] = "";
	int s[2];
	int fd = aq_fd_memfd("test", 100);
	int got = -1;
	struct stat st;

	(void)state;
	make_pair(s);
	assert_int_equal(aq_fd_send(s[0], "hello", 6, fd), 0);
	assert_int_equal(aq_fd_recv(s[1], text, 6, &got), 0);
	assert_string_equal(text, "hello");
	assert_true(got >= 0);
	assert_int_equal(fcntl(got, F_GETFD), FD_CLOEXEC);
	assert_return_code(fstat(got, &st), errno);
	assert_int_equal(st.st_size, 100);
	assert_int_equal(aq_fd_send(s[0], "again", 6, -1), 0);
	(void)close(got);
	assert_int_equal(aq_fd_recv(s[1], text, 6, &got), 0);
	assert_int_equal(got, -1);
	(void)close(fd);
	close_pair(s);
	assert_int_equal(count_open_fds(), before);
}

/* A peer that sends descriptors nobody asked for must not fill our table. */
static void unwanted_fds_are_closed(void **state)
{
	int before = count_open_fds();
	int s[2];
	int got = -1;
	char c[2];

	(void)state;
	make_pair(s);
	assert_int_equal(aq_fd_send(s[0], "a", 1, s[0]), 0);
	assert_int_equal(aq_fd_recv(s[1], c, 1, NULL), 0);
	assert_int_equal(count_open_fds(), before + 2);
	/* Two messages, each with an fd, read as one: the first is kept, the second closed. */
	assert_int_equal(aq_fd_send(s[0], "a", 1, s[0]), 0);
	assert_int_equal(aq_fd_send(s[0], "b", 1, s[0]), 0);
	assert_int_equal(aq_fd_recv(s[1], c, 2, &got), 0);
	assert_true(got >= 0);
	assert_int_equal(count_open_fds(), before + 3);
	(void)close(got);
	close_pair(s);
}

static void end_of_file_closes_what_came(void **state)
{
	int before = count_open_fds();
	char text[8];
	int s[2];
	int got = -1;

	(void)state;
	make_pair(s);
	assert_int_equal(aq_fd_send(s[0], "half", 4, s[0]), 0);
	assert_return_code(shutdown(s[0], SHUT_WR), errno);
	assert_int_equal(aq_fd_recv(s[1], text, sizeof(text), &got), -ECONNRESET);
	assert_int_equal(got, -1);
	close_pair(s);
	assert_int_equal(count_open_fds(), before);
}

static void failures_have_codes(void **state)
{
	struct timeval tv = { .tv_usec = 20000 };
	char path[200];
	char c;
	int s[2];

	(void)state;
	make_pair(s);
	assert_return_code(setsockopt(s[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), errno);
	assert_int_equal(aq_fd_recv(s[1], &c, 1, NULL), -ETIMEDOUT);
	(void)close(s[1]);
	/* No SIGPIPE: the program would be gone. */
	assert_int_equal(aq_fd_send(s[0], "x", 1, -1), -EPIPE);
	(void)close(s[0]);
	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(aq_fd_connect_unix(path), -ENAMETOOLONG);
	assert_int_equal(aq_fd_connect_unix("/nonexistent/socket"), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memfd_has_size_and_cloexec),
		cmocka_unit_test(bytes_and_an_fd_arrive),
		cmocka_unit_test(unwanted_fds_are_closed),
		cmocka_unit_test(end_of_file_closes_what_came),
		cmocka_unit_test(failures_have_codes),
	};

	return cmocka_run_group_tests_name("fd", tests, NULL, NULL);
}
