/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA_VISIBLE_DEVICES in all its forms, over the cards of an instance. */
#include "shim/cuda/shim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define A "GPU-a0000000-0000-0000-0000-000000000001"
#define B "GPU-b0000000-0000-0000-0000-000000000002"
#define C "GPU-c0000000-0000-0000-0000-000000000003"

static const uint8_t uuid[3][16] = { { [0] = 0xa0, [15] = 1 },
				     { [0] = 0xb0, [15] = 2 },
				     { [0] = 0xc0, [15] = 3 } };

static void test_forms(void **state)
{
	static const char *const cases[][2] = {
		{ NULL, A "," B "," C },
		{ "", "" },
		{ "0", A },
		{ "2,0", C "," A },
		{ " 1 , 2 ", B "," C },
		{ "-1", "" },
		{ "0,-1,1", A },
		{ "0,0", A },
		{ "3", "" },
		{ "0,3,1", A },
		{ "GPU-b", B },
		{ "gpu-C0,0", C "," A },
		{ A "," C, A "," C },
		{ "GPU-", "" },
		{ "GPU-d", "" },
		{ "MIG-a", A },
		{ "all", "" },
		{ "NoDevFiles", "" },
		{ "0,", A },
		{ "99999", "" },
		{ "0x1", "" },
	};
	char buf[160];

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t n = aq_visible_value(cases[i][0], 3, uuid, buf, sizeof(buf));

		assert_string_equal(buf, cases[i][1]);
		assert_int_equal(n, strlen(cases[i][1]));
	}
	/* What does not fit is cut, and said. */
	assert_int_equal(aq_visible_value(NULL, 3, uuid, buf, 10), 122);
	assert_int_equal(strlen(buf), 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_forms) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
