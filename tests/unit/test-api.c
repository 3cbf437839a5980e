/* SPDX-License-Identifier: Apache-2.0 */
/* The generated lists of entry points: complete, sorted, and true about each other. */
#include "api/api.h"
#include "base/macro.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct aq_api_entry *find(const char *symbol)
{
	for (size_t i = 0; i < aq_api_cuda_count; i++) {
		if (strcmp(aq_api_cuda[i].symbol, symbol) == 0)
			return &aq_api_cuda[i];
	}
	return NULL;
}

static void assert_sorted(const struct aq_api_entry *entries, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		if (strcmp(entries[i - 1].symbol, entries[i].symbol) >= 0)
			fail_msg("%s before %s", entries[i - 1].symbol, entries[i].symbol);
	}
}

/* The driver library of CUDA 13.0 exports 637 names. */
static void test_cuda_is_complete(void **state)
{
	(void)state;
	assert_int_equal(aq_api_cuda_count, 637);
	assert_sorted(aq_api_cuda, aq_api_cuda_count);
	assert_non_null(find("cuInit"));
	assert_non_null(find("cuMemcpyHtoD_v2_ptds"));
}

/* What is refused for the legacy stream is refused for the thread's own, and the other way round. */
static void test_twins_agree(void **state)
{
	size_t twins = 0;
	(void)state;

	for (size_t i = 0; i < aq_api_cuda_count; i++) {
		const struct aq_api_entry *twin = &aq_api_cuda[i];
		size_t len = strlen(twin->symbol);
		char plain[96];

		if (len < 6 || (strcmp(twin->symbol + len - 5, "_ptsz") != 0 &&
				strcmp(twin->symbol + len - 5, "_ptds") != 0))
			continue;
		assert_true(len < sizeof(plain));
		memcpy(plain, twin->symbol, len - 5);
		plain[len - 5] = '\0';
		if (!find(plain) || find(plain)->status != twin->status)
			fail_msg("%s and %s differ", twin->symbol, plain);
		twins++;
	}
	assert_int_equal(twins, 97);
}

static void test_nvml_is_sorted(void **state)
{
	(void)state;
	assert_true(aq_api_nvml_count > 400);
	assert_sorted(aq_api_nvml, aq_api_nvml_count);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cuda_is_complete),
		cmocka_unit_test(test_twins_agree),
		cmocka_unit_test(test_nvml_is_sorted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
