/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/attach.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define HEADER(o, s)                                             \
	{                                                        \
		.magic = AQ_ATTACH_MAGIC, .op = (o), .size = (s) \
	}

static void test_sizes(void **state)
{
	static const struct {
		unsigned op;
		uint32_t size;
	} ops[] = {
		{ AQ_ATTACH_HELLO, sizeof(struct aq_attach_hello) },
		{ AQ_ATTACH_WELCOME, sizeof(struct aq_attach_welcome) },
		{ AQ_ATTACH_SETTLE, sizeof(struct aq_attach_settle) },
		{ AQ_ATTACH_SETTLED, sizeof(struct aq_attach_settled) },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		char packet[AQ_ATTACH_MAX] = { 0 };
		struct aq_attach_header h = HEADER((uint16_t)ops[i].op, (uint16_t)ops[i].size);

		memcpy(packet, &h, sizeof(h));
		assert_int_equal(aq_attach_check(packet, ops[i].size), ops[i].op);
		/* What follows the message is none of its business. */
		assert_int_equal(aq_attach_check(packet, ops[i].size + 1), ops[i].op);
		/* Half of it. */
		assert_int_equal(aq_attach_check(packet, ops[i].size - 1), -EPROTO);
		h.size--;
		memcpy(packet, &h, sizeof(h));
		assert_int_equal(aq_attach_check(packet, ops[i].size), -EPROTO);
		/* A later version's. */
		h.size = (uint16_t)(ops[i].size + 64);
		memcpy(packet, &h, sizeof(h));
		assert_int_equal(aq_attach_check(packet, ops[i].size + 64), ops[i].op);
		assert_int_equal(aq_attach_check(packet, ops[i].size), -EPROTO);
	}
}

static void test_nonsense(void **state)
{
	static const struct aq_attach_header headers[] = {
		HEADER(0, 4096),
		HEADER(99, 4096),
		{ .magic = 0, .op = AQ_ATTACH_HELLO, .size = 512 },
		HEADER(AQ_ATTACH_HELLO, 0),
		HEADER(AQ_ATTACH_HELLO, 65535),
	};
	char packet[AQ_ATTACH_MAX + 1] = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
		memcpy(packet, &headers[i], sizeof(headers[i]));
		for (uint32_t len = 0; len <= AQ_ATTACH_MAX; len += 61)
			assert_int_equal(aq_attach_check(packet, len), -EPROTO);
	}
	memcpy(packet, &(struct aq_attach_header)HEADER(AQ_ATTACH_HELLO, 512),
	       sizeof(struct aq_attach_header));
	assert_int_equal(aq_attach_check(packet, AQ_ATTACH_MAX), AQ_ATTACH_HELLO);
	assert_int_equal(aq_attach_check(packet, AQ_ATTACH_MAX + 1), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
