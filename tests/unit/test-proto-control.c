/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/control.h"

#include "base/err.h"
#include "base/fd.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void test_frame(void **state)
{
	uint8_t buf[16] = { 0 };
	uint32_t len = 0;

	(void)state;
	aq_control_frame_put(buf, 5);
	assert_memory_equal(buf, "\5\0\0\0", 4);
	for (size_t have = 0; have < 4; have++) {
		assert_int_equal(aq_control_frame(buf, have, 100, &len), 0);
		assert_int_equal(len, 4 - have);
	}
	for (size_t have = 4; have < 9; have++) {
		assert_int_equal(aq_control_frame(buf, have, 100, &len), 0);
		assert_int_equal(len, 9 - have);
	}
	for (size_t have = 9; have < 16; have++) {
		assert_int_equal(aq_control_frame(buf, have, 100, &len), 1);
		assert_int_equal(len, 5);
	}
	assert_int_equal(aq_control_frame(buf, 16, 4, &len), -EMSGSIZE);
	aq_control_frame_put(buf, 0);
	assert_int_equal(aq_control_frame(buf, 4, 100, &len), -EPROTO);
	aq_control_frame_put(buf, UINT32_MAX);
	assert_int_equal(aq_control_frame(buf, 4, 100, &len), -EMSGSIZE);
	aq_control_frame_put(buf, 0x01020304);
	assert_memory_equal(buf, "\4\3\2\1", 4);
}

/* What a peer sends in answer to one request of ten bytes. */
struct peer {
	int sock;
	const void *answer;
	size_t len;
};

static void *answer(void *opaque)
{
	struct peer *p = opaque;
	char request[14];

	if (aq_fd_recv(p->sock, request, sizeof(request), NULL) == 0)
		(void)aq_fd_send(p->sock, p->answer, p->len, -1);
	(void)close(p->sock);
	return NULL;
}

static int call(const void *text, size_t len, char **ret, struct aq_err *err)
{
	struct peer p = { .answer = text, .len = len };
	pthread_t thread;
	int sv[2];
	int rc;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	p.sock = sv[1];
	assert_int_equal(pthread_create(&thread, NULL, answer, &p), 0);
	rc = aq_control_call(sv[0], "0123456789", ret, err);
	(void)pthread_join(thread, NULL);
	(void)close(sv[0]);
	return rc;
}

static void test_call(void **state)
{
	struct aq_err err = { 0 };
	char *text = NULL;

	(void)state;
	assert_int_equal(call("\3\0\0\0abc", 7, &text, &err), 0);
	assert_string_equal(text, "abc");
	free(text);
	text = NULL;
	assert_int_equal(call("\3\0\0\0ab", 6, &text, &err), -ECONNRESET);
	assert_int_equal(call("\3\0", 2, &text, &err), -ECONNRESET);
	assert_int_equal(call("", 0, &text, &err), -ECONNRESET);
	assert_int_equal(call("\0\0\0\0", 4, &text, &err), -EPROTO);
	assert_int_equal(call("\377\377\377\377", 4, &text, &err), -EPROTO);
	assert_null(text);
	assert_true(err.msg[0] != '\0');
}

static void test_own_requests(void **state)
{
	struct aq_err err = { 0 };
	char *big = malloc(AQ_CONTROL_REQUEST_MAX + 2);
	char *text = NULL;

	(void)state;
	assert_non_null(big);
	memset(big, 'x', AQ_CONTROL_REQUEST_MAX + 1);
	big[AQ_CONTROL_REQUEST_MAX + 1] = '\0';
	assert_int_equal(aq_control_call(-1, big, &text, &err), -EMSGSIZE);
	assert_int_equal(aq_control_call(-1, "", &text, &err), -EMSGSIZE);
	assert_int_equal(aq_control_call(-1, "{}", &text, &err), -EBADF);
	free(big);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frame),
		cmocka_unit_test(test_call),
		cmocka_unit_test(test_own_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
