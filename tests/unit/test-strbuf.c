/* SPDX-License-Identifier: Apache-2.0 */
#include "util/strbuf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void empty_reads_as_empty(void **state)
{
	struct aq_strbuf b = { 0 };

	(void)state;
	assert_string_equal(aq_strbuf_text(&b), "");
	aq_strbuf_done(&b);
	aq_strbuf_done(&b);
}

static void grows_over_many_additions(void **state)
{
	struct aq_strbuf b = { 0 };

	(void)state;
	for (int i = 0; i < 1000; i++)
		aq_strbuf_printf(&b, "%03d,", i);
	assert_int_equal(b.len, 4000);
	assert_int_equal(strlen(aq_strbuf_text(&b)), 4000);
	assert_memory_equal(aq_strbuf_text(&b) + 3996, "999,", 4);
	assert_false(b.failed);
	aq_strbuf_done(&b);
}

static void one_text_above_the_stack_buffer(void **state)
{
	struct aq_strbuf b = { 0 };

	(void)state;
	aq_strbuf_printf(&b, "%2000d", 5);
	assert_int_equal(b.len, 2000);
	assert_int_equal(aq_strbuf_text(&b)[1999], '5');
	aq_strbuf_done(&b);
}

static void bound_is_kept_and_reported(void **state)
{
	struct aq_strbuf b = { .max = 10 };

	(void)state;
	aq_strbuf_add(&b, "12345678", 8);
	assert_false(b.failed);
	aq_strbuf_add(&b, "abcd", 4);
	assert_true(b.failed);
	assert_string_equal(aq_strbuf_text(&b), "12345678ab");
	aq_strbuf_add(&b, "x", 1);
	assert_int_equal(b.len, 10);
	aq_strbuf_done(&b);
	assert_int_equal(b.max, 10);
	assert_false(b.failed);
}

static void bytes_with_nul_are_kept(void **state)
{
	struct aq_strbuf b = { 0 };

	(void)state;
	aq_strbuf_add(&b, "a\0b", 3);
	assert_int_equal(b.len, 3);
	assert_memory_equal(aq_strbuf_text(&b), "a\0b\0", 4);
	aq_strbuf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_reads_as_empty),
		cmocka_unit_test(grows_over_many_additions),
		cmocka_unit_test(one_text_above_the_stack_buffer),
		cmocka_unit_test(bound_is_kept_and_reported),
		cmocka_unit_test(bytes_with_nul_are_kept),
	};

	return cmocka_run_group_tests_name("strbuf", tests, NULL, NULL);
}
