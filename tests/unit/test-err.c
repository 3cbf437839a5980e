/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void set_records_and_returns_the_code(void **state)
{
	struct aq_err err = { 0 };

	(void)state;
	assert_int_equal(aq_err_set(&err, -EINVAL, "limit \"%s\" is %d", "x", 7), -EINVAL);
	assert_int_equal(err.code, -EINVAL);
	assert_string_equal(err.msg, "limit \"x\" is 7");
}

static void null_record_is_allowed(void **state)
{
	(void)state;
	assert_int_equal(aq_err_set(NULL, -ENOENT, "nobody reads this"), -ENOENT);
	assert_int_equal(aq_err_prefix(NULL, "prefix"), 0);
}

static void long_messages_are_cut(void **state)
{
	struct aq_err err;
	char text[1000];

	(void)state;
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)aq_err_set(&err, -EIO, "%s", text);
	assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
	assert_int_equal(aq_err_prefix(&err, "%s", "card 0"), -EIO);
	assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
	assert_memory_equal(err.msg, "card 0: aaa", 11);
}

static void prefix_goes_in_front(void **state)
{
	struct aq_err err;

	(void)state;
	(void)aq_err_set(&err, -ENOENT, "no such file");
	assert_int_equal(aq_err_prefix(&err, "profile \"%s\"", "p"), -ENOENT);
	assert_int_equal(aq_err_prefix(&err, "card %u", 3U), -ENOENT);
	assert_string_equal(err.msg, "card 3: profile \"p\": no such file");
}

static void prefix_that_fills_the_record(void **state)
{
	struct aq_err err;
	char text[sizeof(err.msg) + 20];

	(void)state;
	memset(text, 'p', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)aq_err_set(&err, -EIO, "cause");
	assert_int_equal(aq_err_prefix(&err, "%s", text), -EIO);
	assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(set_records_and_returns_the_code),
		cmocka_unit_test(null_record_is_allowed),
		cmocka_unit_test(long_messages_are_cut),
		cmocka_unit_test(prefix_goes_in_front),
		cmocka_unit_test(prefix_that_fills_the_record),
	};

	return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
