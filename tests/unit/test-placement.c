/* SPDX-License-Identifier: Apache-2.0 */
#include "core/placement.h"

#include "base/err.h"
#include "base/macro.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define ANY AQ_PLACE_ANY

/* 16 GiB, of which 128 MiB are the driver's and 512 MiB headroom. */
static struct aq_place_card card(uint64_t given_mib, unsigned pct)
{
	return (struct aq_place_card){
		.memory_bytes = 16 * AQ_GIB,
		.reserved_bytes = 128 * AQ_MIB,
		.headroom_bytes = AQ_HEADROOM_DEFAULT,
		.limits_bytes = given_mib * AQ_MIB,
		.compute_pct = pct,
		.max_instances = 20,
		.overcommit_pct = AQ_OVERCOMMIT_NONE,
	};
}

static struct aq_place_want want(uint64_t mib, unsigned pct, int on)
{
	return (struct aq_place_want){ mib * AQ_MIB, pct, on };
}

static void test_capacity(void **state)
{
	struct aq_place_card c = card(0, 0);

	(void)state;
	assert_int_equal(aq_place_capacity(&c), (16384 - 640) * AQ_MIB);
	c.headroom_bytes = UINT64_MAX;
	assert_int_equal(aq_place_capacity(&c), 0);
	c.headroom_bytes = 17 * AQ_GIB;
	assert_int_equal(aq_place_capacity(&c), 0);
}

static void test_exactly_full(void **state)
{
	struct aq_place_card c = card(15744 - 100, 0);
	struct aq_place_want w = want(100, 0, ANY);
	struct aq_err err;
	unsigned at = 99;

	(void)state;
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, &c, 1, &w, 1, &at, &err), 0);
	assert_int_equal(at, 0);
	w.mem_bytes++;
	at = 99;
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, &c, 1, &w, 1, &at, &err), -ENOSPC);
	assert_string_equal(err.msg, "GPU 0 has 100 MiB left to give, 101 MiB are wanted");
	assert_int_equal(at, 99);
}

static void test_binpack_and_spread(void **state)
{
	struct aq_place_card cards[] = { card(4000, 0), card(8000, 0), card(15000, 0),
					 card(1000, 0) };
	struct aq_place_want w = want(2000, 0, ANY);
	struct aq_err err;
	unsigned at;

	(void)state;
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 4, &w, 1, &at, &err), 0);
	assert_int_equal(at, 1);
	assert_int_equal(aq_place(AQ_PLACE_SPREAD, cards, 4, &w, 1, &at, &err), 0);
	assert_int_equal(at, 3);
	cards[3].cordoned = true;
	assert_int_equal(aq_place(AQ_PLACE_SPREAD, cards, 4, &w, 1, &at, &err), 0);
	assert_int_equal(at, 0);
}

static void test_compute_and_number_count_too(void **state)
{
	struct aq_place_card cards[] = { card(0, 80), card(0, 60) };
	struct aq_place_want w = want(100, 30, ANY);
	struct aq_err err;
	unsigned at;

	(void)state;
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, &w, 1, &at, &err), 0);
	assert_int_equal(at, 1);
	cards[1].n_instances = 20;
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, &w, 1, &at, &err), -ENOSPC);
	w.card = 0;
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, &w, 1, &at, &err), -ENOSPC);
	assert_string_equal(err.msg, "GPU 0 has 20% of its compute left to give, 30% are wanted");
	w.card = 1;
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, &w, 1, &at, &err), -ENOSPC);
	assert_string_equal(err.msg, "GPU 1 has 20 vgpus already, its maximum");
	/* Memory-only instances take no share. */
	w = want(100, 0, 0);
	cards[0].compute_pct = 100;
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, &w, 1, &at, &err), 0);
}

static void test_groups_take_different_cards(void **state)
{
	struct aq_place_card cards[] = { card(14000, 0), card(0, 0), card(10000, 0) };
	/* The small one first: it must not take the only card that the large one fits on. */
	struct aq_place_want w[] = { want(1000, 0, ANY), want(12000, 0, ANY), want(5000, 0, ANY) };
	struct aq_err err;
	unsigned at[3];

	(void)state;
	assert_int_equal(aq_place(AQ_PLACE_SPREAD, cards, 3, w, 3, at, &err), 0);
	assert_int_equal(at[0], 0);
	assert_int_equal(at[1], 1);
	assert_int_equal(at[2], 2);
	w[0].card = 1;
	assert_int_equal(aq_place(AQ_PLACE_SPREAD, cards, 3, w, 3, at, &err), -ENOSPC);
	w[1].card = 1;
	assert_int_equal(aq_place(AQ_PLACE_SPREAD, cards, 3, w, 3, at, &err), -EINVAL);
	assert_string_equal(err.msg, "GPU 1 is named twice");
}

static void test_overcommit_only_where_allowed(void **state)
{
	struct aq_place_card c = card(15744, 0);
	struct aq_place_want w = want(7000, 0, ANY);
	struct aq_err err;
	unsigned at;

	(void)state;
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, &c, 1, &w, 1, &at, &err), -ENOSPC);
	c.overcommit_pct = 150;
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, &c, 1, &w, 1, &at, &err), 0);
	/* Above capacity already, and no longer allowed: nothing new, no underflow. */
	c.limits_bytes = 20000 * AQ_MIB;
	c.overcommit_pct = AQ_OVERCOMMIT_NONE;
	w.mem_bytes = 1;
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, &c, 1, &w, 1, &at, &err), -ENOSPC);
}

static void test_nonsense(void **state)
{
	struct aq_place_card cards[] = { card(0, 0), card(0, 0) };
	struct aq_place_want w[17] = { { 0 } };
	struct aq_err err;
	unsigned at[17];

	(void)state;
	for (size_t i = 0; i < AQ_ARRAY_SIZE(w); i++)
		w[i] = want(1, 0, ANY);
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, w, 0, at, &err), -EINVAL);
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, w, 17, at, &err), -EINVAL);
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, w, 3, at, &err), -ENODEV);
	w[0] = want(0, 0, ANY);
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, w, 1, at, &err), -EINVAL);
	w[0] = want(1, 101, ANY);
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, w, 1, at, &err), -EINVAL);
	w[0] = want(1, 0, 2);
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, w, 1, at, &err), -ENODEV);
	assert_string_equal(err.msg, "there is no GPU 2, only 0 to 1");
	w[0] = want(1, 0, -7);
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, w, 1, at, &err), -ENODEV);
	w[0] = (struct aq_place_want){ UINT64_MAX, 0, ANY };
	assert_int_equal(aq_place(AQ_PLACE_BINPACK, cards, 2, w, 1, at, &err), -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_capacity),
		cmocka_unit_test(test_exactly_full),
		cmocka_unit_test(test_binpack_and_spread),
		cmocka_unit_test(test_compute_and_number_count_too),
		cmocka_unit_test(test_groups_take_different_cards),
		cmocka_unit_test(test_overcommit_only_where_allowed),
		cmocka_unit_test(test_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
