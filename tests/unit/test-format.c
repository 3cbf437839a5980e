/* SPDX-License-Identifier: Apache-2.0 */
#include "base/format.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Our formatter must agree with the C library's on everything that it understands. */
#define SAME_AS_LIBC(...)                                                \
	do {                                                             \
		char ours[128];                                          \
		char libc[128];                                          \
		int want = snprintf(libc, sizeof(libc), __VA_ARGS__);    \
		size_t got = aq_format(ours, sizeof(ours), __VA_ARGS__); \
                                                                         \
		assert_string_equal(ours, libc);                         \
		assert_int_equal(got, want);                             \
	} while (0)

static void numbers_match_libc(void **state)
{
	(void)state;
	SAME_AS_LIBC("%d %i %u %x", -5, 7, 9U, 0xbeefU);
	SAME_AS_LIBC("%d|%d|%d", INT_MIN, INT_MAX, 0);
	SAME_AS_LIBC("%ld %lu %lx", LONG_MIN, ULONG_MAX, ULONG_MAX);
	SAME_AS_LIBC("%lld %llu %llx", LLONG_MIN, ULLONG_MAX, ULLONG_MAX);
	SAME_AS_LIBC("%zu %zd", SIZE_MAX, (ssize_t)-1);
	SAME_AS_LIBC("%hd %hu %hhd %hhu", (short)-3, (unsigned short)65535, (signed char)-1,
		     (unsigned char)255);
}

static void widths_match_libc(void **state)
{
	(void)state;
	SAME_AS_LIBC("[%5d] [%-5d] [%05d] [%-5u]", 42, 42, -42, 42U);
	SAME_AS_LIBC("[%08x] [%2x] [%16llx]", 0x12U, 0xabcdU, 0x1234ULL);
	SAME_AS_LIBC("[%10s] [%-10s] [%.3s] [%10.2s]", "text", "text", "text", "text");
	SAME_AS_LIBC("[%.*s] [%*d]", 2, "text", 6, 17);
	SAME_AS_LIBC("[%c%c] 100%%", 'a', 'b');
}

/* Formats that the compiler would rightly warn of: through a variable, so that it does not see them. */
static size_t format_unseen(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	va_start(ap, fmt);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	n = aq_vformat(buf, size, fmt, ap);
#pragma GCC diagnostic pop
	va_end(ap);
	return n;
}

static void pointers_and_null(void **state)
{
	char buf[64];

	(void)state;
	(void)aq_format(buf, sizeof(buf), "%p", (void *)0x1234);
	assert_string_equal(buf, "0x1234");
	(void)format_unseen(buf, sizeof(buf), "%s", (const char *)NULL);
	assert_string_equal(buf, "(null)");
}

static void string_precision_reads_no_further(void **state)
{
	const char unterminated[3] = { 'a', 'b', 'c' };
	char buf[16];

	(void)state;
	assert_int_equal(aq_format(buf, sizeof(buf), "%.3s", unterminated), 3);
	assert_string_equal(buf, "abc");
	assert_int_equal(aq_format(buf, sizeof(buf), "%.0s", unterminated), 0);
}

static void cut_at_the_end_of_the_buffer(void **state)
{
	char buf[8] = "garbage";

	(void)state;
	assert_int_equal(aq_format(buf, 4, "%s", "abcdef"), 6);
	assert_string_equal(buf, "abc");
	assert_int_equal(buf[4], 'a');
	assert_int_equal(aq_format(buf, 1, "%d", 12), 2);
	assert_string_equal(buf, "");
	assert_int_equal(aq_format(NULL, 0, "%d", 12345), 5);
}

static void unknown_conversions_show(void **state)
{
	char buf[32];

	(void)state;
	assert_int_equal(format_unseen(buf, sizeof(buf), "a%qb"), 4);
	assert_string_equal(buf, "a%qb");
	assert_int_equal(format_unseen(buf, sizeof(buf), "end%"), 4);
	assert_string_equal(buf, "end%");
	assert_int_equal(format_unseen(buf, sizeof(buf), "end%5"), 5);
	assert_string_equal(buf, "end%5");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_match_libc),
		cmocka_unit_test(widths_match_libc),
		cmocka_unit_test(pointers_and_null),
		cmocka_unit_test(string_precision_reads_no_further),
		cmocka_unit_test(cut_at_the_end_of_the_buffer),
		cmocka_unit_test(unknown_conversions_show),
	};

	return cmocka_run_group_tests_name("format", tests, NULL, NULL);
}
