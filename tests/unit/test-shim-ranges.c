/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in's table of addresses against a plain array, and its cost as it fills. */
#include "base/clock.h"
#include "shim/cuda/ranges.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct aq_ranges table;

static void insert(uint64_t key, uint64_t size)
{
	struct aq_range e = { .key = key, .size = size, .kind = AQ_RANGE_LINEAR };
	struct aq_range old;
	bool replaced;

	assert_int_equal(aq_ranges_insert(&table, &e, &old, &replaced), 0);
	assert_false(replaced);
}

static void test_one(void **state)
{
	struct aq_range e = { .key = 512, .size = 7 };
	struct aq_range old;
	bool replaced;

	(void)state;
	assert_false(aq_ranges_take(&table, 512, &old));
	assert_false(aq_ranges_take(&table, 0, &old));
	assert_false(aq_ranges_find(&table, 0, &old));
	insert(512, 1);
	assert_true(aq_ranges_find(&table, 512, &old));
	assert_int_equal(old.size, 1);
	/* The same address again: the old entry comes back. */
	assert_int_equal(aq_ranges_insert(&table, &e, &old, &replaced), 0);
	assert_true(replaced);
	assert_int_equal(old.size, 1);
	assert_true(aq_ranges_take(&table, 512, &old));
	assert_int_equal(old.size, 7);
	assert_int_equal(aq_ranges_count(&table), 0);
	aq_ranges_reset(&table);
}

/* Random insertions and removals of keys that collide in many ways; a plain array knows better. */
static void test_random(void **state)
{
	enum {
		KEYS = 4096,
		ROUNDS = 400000
	};
	static uint64_t size_of[KEYS];
	uint32_t seed = 4711;

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		struct aq_range e;
		uint32_t k;
		uint64_t key;

		seed = seed * 1664525 + 1013904223;
		k = (seed >> 8) % KEYS;
		key = ((uint64_t)k + 1) << (k % 3 == 0 ? 9 : k % 3 == 1 ? 21 : 33);
		if (size_of[k]) {
			assert_true(aq_ranges_take(&table, key, &e));
			assert_int_equal(e.size, size_of[k]);
			size_of[k] = 0;
		} else {
			struct aq_range found;

			assert_false(aq_ranges_find(&table, key, &found));
			insert(key, size_of[k] = seed | 1);
		}
	}
	for (uint32_t s = 0; s < AQ_RANGE_STRIPES; s++) {
		uint32_t n = 0;
		struct aq_range *copy = aq_ranges_copy(&table, s, &n);
		struct aq_range e;

		for (uint32_t i = 0; i < n; i++)
			assert_true(aq_ranges_take(&table, copy[i].key, &e));
		aq_ranges_drop(copy, n);
	}
	assert_int_equal(aq_ranges_count(&table), 0);
	aq_ranges_reset(&table);
}

static void *churn(void *arg)
{
	uint64_t base = (uintptr_t)arg << 40;
	struct aq_range e;

	for (uint64_t i = 1; i <= 20000; i++) {
		struct aq_range mine = { .key = base + (i << 9), .size = i };
		bool replaced;

		if (aq_ranges_insert(&table, &mine, &e, &replaced) < 0 || replaced)
			return (void *)1;
		if (i > 100 &&
		    (!aq_ranges_take(&table, base + ((i - 100) << 9), &e) || e.size != i - 100))
			return (void *)2;
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t t[4];
	void *bad;

	(void)state;
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, churn, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(t[i], &bad), 0);
		assert_null(bad);
	}
	assert_int_equal(aq_ranges_count(&table), 400);
	aq_ranges_reset(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
