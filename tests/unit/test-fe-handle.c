/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/cuda/handle.h"

#include "base/macro.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_OBJECTS 5000

struct object {
	long x[2];
} __attribute__((aligned(16)));

static struct object objects[N_OBJECTS];

static void what_was_added_is_found_under_its_kind(void **state)
{
	(void)state;
	assert_null(aq_fe_handle_get(AQ_FE_CTX, &objects[0]));
	assert_true(aq_fe_handle_add(AQ_FE_CTX, &objects[0]));
	assert_ptr_equal(aq_fe_handle_get(AQ_FE_CTX, &objects[0]), &objects[0]);
	assert_null(aq_fe_handle_get(AQ_FE_STREAM, &objects[0]));
	assert_null(aq_fe_handle_get(AQ_FE_CTX, &objects[1]));
	assert_true(aq_fe_handle_remove(AQ_FE_CTX, &objects[0]));
	assert_null(aq_fe_handle_get(AQ_FE_CTX, &objects[0]));
	assert_false(aq_fe_handle_remove(AQ_FE_CTX, &objects[0]));
}

static void no_address_crashes(void **state)
{
	(void)state;
	assert_null(aq_fe_handle_get(AQ_FE_CTX, NULL));
	for (uintptr_t bit = 1; bit; bit <<= 1) {
		assert_null(aq_fe_handle_get(AQ_FE_CTX, (void *)bit));
		assert_null(aq_fe_handle_get(AQ_FE_LINK, (void *)(bit - 1)));
		assert_false(aq_fe_handle_remove(AQ_FE_CTX, (void *)bit));
	}
	assert_false(aq_fe_handle_add(AQ_FE_CTX, NULL));
	assert_false(aq_fe_handle_add(AQ_FE_CTX, (char *)objects + 1));
}

static void many_come_and_go(void **state)
{
	(void)state;
	for (int i = 0; i < N_OBJECTS; i++)
		assert_true(aq_fe_handle_add(AQ_FE_EVENT, &objects[i]));
	for (int i = 0; i < N_OBJECTS; i += 2)
		assert_true(aq_fe_handle_remove(AQ_FE_EVENT, &objects[i]));
	for (int i = 0; i < N_OBJECTS; i++)
		assert_int_equal(aq_fe_handle_get(AQ_FE_EVENT, &objects[i]) != NULL, i % 2);
	/* Coming and going for long must not fill the table with what is gone. */
	for (int round = 0; round < 100000; round++) {
		struct object *o = &objects[round * 2 % N_OBJECTS];

		assert_true(aq_fe_handle_add(AQ_FE_EVENT, o));
		assert_true(aq_fe_handle_remove(AQ_FE_EVENT, o));
	}
	for (int i = 1; i < N_OBJECTS; i += 2)
		assert_true(aq_fe_handle_remove(AQ_FE_EVENT, &objects[i]));
}

/* ---- readers beside writers ---- */

static _Atomic bool stop;
static _Atomic unsigned long n_missed;

static void *reader(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop))
		for (int i = 0; i < 64; i++)
			if (!aq_fe_handle_get(AQ_FE_STREAM, &objects[i]))
				atomic_fetch_add(&n_missed, 1);
	return NULL;
}

static void *writer(void *arg)
{
	const int base = 64 + (int)(intptr_t)arg * 1000;

	for (int round = 0; round < 200; round++) {
		for (int i = base; i < base + 1000; i++)
			(void)aq_fe_handle_add(AQ_FE_STREAM, &objects[i]);
		for (int i = base; i < base + 1000; i++)
			(void)aq_fe_handle_remove(AQ_FE_STREAM, &objects[i]);
	}
	return NULL;
}

static void a_living_handle_is_found_while_others_come_and_go(void **state)
{
	pthread_t thread[4];

	(void)state;
	for (int i = 0; i < 64; i++)
		assert_true(aq_fe_handle_add(AQ_FE_STREAM, &objects[i]));
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, reader, NULL), 0);
	for (int i = 2; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, writer,
						(void *)(intptr_t)(i - 2)),
				 0);
	for (int i = 2; i < 4; i++)
		(void)pthread_join(thread[i], NULL);
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		(void)pthread_join(thread[i], NULL);
	assert_int_equal(atomic_load(&n_missed), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_added_is_found_under_its_kind),
		cmocka_unit_test(no_address_crashes),
		cmocka_unit_test(many_come_and_go),
		cmocka_unit_test(a_living_handle_is_found_while_others_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
