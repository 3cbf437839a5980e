/* SPDX-License-Identifier: Apache-2.0 */
#include "util/arena.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_alloc(void **state)
{
	struct aq_arena a = { 0 };
	unsigned char *p[2000];

	(void)state;
	for (size_t i = 0; i < 2000; i++) {
		size_t size = i % 100 == 99 ? 10000 : i % 50;

		p[i] = aq_arena_alloc(&a, size);
		assert_non_null(p[i]);
		assert_int_equal((uintptr_t)p[i] % 16, 0);
		for (size_t k = 0; k < size; k++)
			assert_int_equal(p[i][k], 0);
		memset(p[i], (int)(i % 251), size);
	}
	for (size_t i = 0; i < 2000; i++) {
		size_t size = i % 100 == 99 ? 10000 : i % 50;

		for (size_t k = 0; k < size; k++)
			assert_int_equal(p[i][k], i % 251);
	}
	aq_arena_done(&a);
	assert_int_equal(a.used, 0);
}

static void test_limit(void **state)
{
	struct aq_arena a = { .limit = 1000 };

	(void)state;
	assert_non_null(aq_arena_alloc(&a, 900));
	assert_null(aq_arena_alloc(&a, 200));
	assert_non_null(aq_arena_alloc(&a, 50));
	aq_arena_done(&a);
	assert_int_equal(a.limit, 1000);
	assert_null(aq_arena_alloc(&a, SIZE_MAX));
	assert_null(aq_arena_calloc(&a, SIZE_MAX / 2, 4));
	assert_null(aq_arena_strndup(&a, "", SIZE_MAX));
	aq_arena_done(&a);
}

static void test_copies(void **state)
{
	struct aq_arena a = { 0 };

	(void)state;
	assert_string_equal(aq_arena_strndup(&a, "hello", 4), "hell");
	assert_string_equal(aq_arena_strndup(&a, NULL, 0), "");
	assert_memory_equal(aq_arena_memdup(&a, "abc", 3), "abc", 3);
	assert_non_null(aq_arena_memdup(&a, NULL, 0));
	aq_arena_done(&a);
}

static void test_adopt(void **state)
{
	struct aq_arena a = { .limit = 1000 };
	void *p = malloc(500), *q = malloc(500);

	(void)state;
	assert_int_equal(aq_arena_adopt(&a, p, 500), 0);
	assert_non_null(aq_arena_alloc(&a, 100));
	assert_int_equal(aq_arena_adopt(&a, q, 500), -ENOMEM);
	free(q);
	aq_arena_done(&a); /* the leak checker says whether p went with it */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alloc),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_adopt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
