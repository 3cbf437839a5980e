/* SPDX-License-Identifier: Apache-2.0 */
#include "base/size.h"

#include "base/err.h"
#include "base/macro.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void sizes_as_people_write_them(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 },
		{ "1", AQ_MIB },
		{ "512", 512 * AQ_MIB },
		{ "512MiB", 512 * AQ_MIB },
		{ "128Mi", 128 * AQ_MIB },
		{ "16m", 16 * AQ_MIB },
		{ "16M", 16 * AQ_MIB },
		{ "64k", 64 * AQ_KIB },
		{ "64KiB", 64 * AQ_KIB },
		{ "4GiB", 4 * AQ_GIB },
		{ "4Gi", 4 * AQ_GIB },
		{ "4g", 4 * AQ_GIB },
		{ "4 GiB", 4 * AQ_GIB },
		{ "1TiB", 1024 * AQ_GIB },
		{ "4096b", 4096 },
		{ "17592186044415", 17592186044415 * AQ_MIB },
	};

	(void)state;
	for (size_t i = 0; i < AQ_ARRAY_SIZE(good); i++) {
		struct aq_err err = { 0 };
		uint64_t bytes = 1;

		assert_int_equal(aq_size_parse(good[i].text, &bytes, &err), 0);
		assert_true(bytes == good[i].bytes);
	}
}

static void wrong_sizes_say_why(void **state)
{
	static const struct {
		const char *text;
		int code;
		const char *says;
	} bad[] = {
		{ "", -EINVAL, "does not begin with a digit" },
		{ "-1", -EINVAL, "does not begin with a digit" },
		{ "+1", -EINVAL, "does not begin with a digit" },
		{ "MiB", -EINVAL, "does not begin with a digit" },
		{ "4GB", -EINVAL, "say GiB" },
		{ "4MB", -EINVAL, "say MiB" },
		{ "4mb", -EINVAL, "say miB" },
		{ "4x", -EINVAL, "unknown unit \"x\"" },
		{ "4 GiB/s", -EINVAL, "unknown unit" },
		{ "1.5g", -EINVAL, "unknown unit" },
		{ "18446744073709551616", -ERANGE, "too large" },
		{ "17592186044416", -ERANGE, "too large" },
		{ "99999999999TiB", -ERANGE, "too large" },
	};

	(void)state;
	for (size_t i = 0; i < AQ_ARRAY_SIZE(bad); i++) {
		struct aq_err err = { 0 };
		uint64_t bytes = 77;

		assert_int_equal(aq_size_parse(bad[i].text, &bytes, &err), bad[i].code);
		assert_int_equal(err.code, bad[i].code);
		assert_non_null(strstr(err.msg, bad[i].says));
		assert_true(bytes == 77);
	}
}

static void sizes_are_printed_short(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{ 0, "0 B" },
		{ 1023, "1023 B" },
		{ 1024, "1 KiB" },
		{ 1536, "1.5 KiB" },
		{ 512 * AQ_MIB, "512 MiB" },
		{ 3 * AQ_GIB / 2, "1.5 GiB" },
		{ 16 * AQ_GIB, "16 GiB" },
		{ UINT64_MAX, "16777215.9 TiB" },
	};

	(void)state;
	for (size_t i = 0; i < AQ_ARRAY_SIZE(cases); i++) {
		char buf[32];

		aq_size_format(cases[i].bytes, buf, sizeof(buf));
		assert_string_equal(buf, cases[i].text);
	}
}

static void percents(void **state)
{
	static const char *const bad[] = { "", "%", "101", "1000", "-1", "5 %", "5%%", "abcdefgh" };
	unsigned pct = 7;

	(void)state;
	assert_int_equal(aq_percent_parse("0", &pct, NULL), 0);
	assert_int_equal(pct, 0);
	assert_int_equal(aq_percent_parse("100%", &pct, NULL), 0);
	assert_int_equal(pct, 100);
	for (size_t i = 0; i < AQ_ARRAY_SIZE(bad); i++) {
		struct aq_err err = { 0 };

		assert_true(aq_percent_parse(bad[i], &pct, &err) < 0);
		assert_non_null(strstr(err.msg, "percentage"));
		assert_int_equal(pct, 100);
	}
}

static void numbers(void **state)
{
	struct aq_err err = { 0 };
	uint64_t v = 5;

	(void)state;
	assert_int_equal(aq_uint_parse("16", "--cards", 16, &v, &err), 0);
	assert_true(v == 16);
	assert_int_equal(aq_uint_parse("17", "--cards", 16, &v, &err), -ERANGE);
	assert_string_equal(err.msg, "--cards \"17\" is above 16");
	assert_int_equal(aq_uint_parse("1x", "--cards", 16, &v, &err), -EINVAL);
	assert_string_equal(err.msg, "--cards \"1x\" has \"x\" behind the number");
	assert_int_equal(aq_uint_parse("", "--cards", 16, &v, &err), -EINVAL);
	assert_int_equal(aq_uint_parse("18446744073709551615", "n", UINT64_MAX, &v, &err), 0);
	assert_true(v == UINT64_MAX);
	assert_int_equal(aq_uint_parse("18446744073709551616", "n", UINT64_MAX, &v, &err), -ERANGE);
	assert_true(v == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_as_people_write_them),
		cmocka_unit_test(wrong_sizes_say_why),
		cmocka_unit_test(sizes_are_printed_short),
		cmocka_unit_test(percents),
		cmocka_unit_test(numbers),
	};

	return cmocka_run_group_tests_name("size", tests, NULL, NULL);
}
