/* SPDX-License-Identifier: Apache-2.0 */
#include "util/strmap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_empty(void **state)
{
	struct aq_strmap m = { 0 };

	(void)state;
	assert_null(aq_strmap_get(&m, "x", 1));
	aq_strmap_done(&m);
}

static void test_many(void **state)
{
	static char keys[5000][16];
	struct aq_strmap m = { 0 };

	(void)state;
	for (int i = 0; i < 5000; i++) {
		(void)snprintf(keys[i], sizeof(keys[i]), "key%d", i * 7919);
		assert_int_equal(aq_strmap_put(&m, keys[i], strlen(keys[i]), keys[i]), 0);
	}
	assert_int_equal(m.n, 5000);
	for (int i = 0; i < 5000; i++)
		assert_ptr_equal(aq_strmap_get(&m, keys[i], strlen(keys[i])), keys[i]);
	assert_null(aq_strmap_get(&m, "key1", 4));
	assert_null(aq_strmap_get(&m, "key", 3));
	aq_strmap_done(&m);
	assert_null(aq_strmap_get(&m, keys[0], strlen(keys[0])));
}

/* Keys are bytes with a length: a prefix is another key, a NUL a character like others. */
static void test_keys_are_bytes(void **state)
{
	struct aq_strmap m = { 0 };
	int v[4];

	(void)state;
	assert_int_equal(aq_strmap_put(&m, "", 0, &v[0]), 0);
	assert_int_equal(aq_strmap_put(&m, "\0", 1, &v[1]), 0);
	assert_int_equal(aq_strmap_put(&m, "\0\0", 2, &v[2]), 0);
	assert_int_equal(aq_strmap_put(&m, "\0", 1, &v[3]), 0);
	assert_int_equal(m.n, 3);
	assert_ptr_equal(aq_strmap_get(&m, "", 0), &v[0]);
	assert_ptr_equal(aq_strmap_get(&m, "\0", 1), &v[3]);
	assert_ptr_equal(aq_strmap_get(&m, "\0\0", 2), &v[2]);
	aq_strmap_done(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_keys_are_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
