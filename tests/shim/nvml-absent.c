/* SPDX-License-Identifier: Apache-2.0 */
/* NVML without a daemon: no cards, a reason, and another try at the next initialisation. AQ_TEST_LATE: it comes in the end. */
#include "e2e/e2e.h"

#include "api/nvml_protos.h"

#include <time.h>

static void test_refused(void)
{
	nvmlDevice_t d = NULL;
	unsigned n = 7;
	char text[96] = "";

	CHECK_INT(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
	CHECK(strcmp(nvmlErrorString(NVML_ERROR_NO_PERMISSION), "Insufficient Permissions") == 0);
	CHECK_INT(nvmlInit_v2(), NVML_ERROR_NO_PERMISSION);
	CHECK_INT(nvmlDeviceGetCount_v2(&n), NVML_ERROR_UNINITIALIZED);
	CHECK_INT(nvmlDeviceGetHandleByIndex_v2(0, &d), NVML_ERROR_UNINITIALIZED);
	CHECK_INT(nvmlSystemGetDriverVersion(text, sizeof(text)), NVML_ERROR_UNINITIALIZED);
	CHECK_INT(n, 7);
	CHECK(strcmp(nvmlErrorString(NVML_ERROR_UNINITIALIZED), "Uninitialized") == 0);
	CHECK(nvmlErrorString((nvmlReturn_t)12345) != NULL);
}

static void test_later(void)
{
	const struct timespec pause = { .tv_nsec = 50000000 };
	nvmlReturn_t rc = NVML_ERROR_UNKNOWN;
	unsigned n = 0;

	if (!getenv("AQ_TEST_LATE")) {
		CHECK_INT(nvmlInitWithFlags(0), NVML_ERROR_NO_PERMISSION);
		return;
	}
	for (int i = 0; i < 100 && rc != NVML_SUCCESS; i++) {
		(void)nanosleep(&pause, NULL);
		rc = nvmlInit();
	}
	CHECK_INT(rc, NVML_SUCCESS);
	CHECK_INT(nvmlDeviceGetCount_v2(&n), NVML_SUCCESS);
	CHECK(n > 0);
	CHECK_INT(nvmlShutdown(), NVML_SUCCESS);
}

int main(void)
{
	static const struct e2e_test tests[] = {
		{ "refused", test_refused },
		{ "the next initialisation tries again", test_later },
	};

	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
