/* SPDX-License-Identifier: Apache-2.0 */
/* In front of the NVML of provider-nvml.c: what it lacks is not offered, what it has is the instance's, which is a part of a card here. */
#include "e2e/e2e.h"

#include "api/nvml_protos.h"

#include <unistd.h>

#define MIB	(1ULL << 20)
#define LACKING NVML_ERROR_FUNCTION_NOT_FOUND

static void test_lacking(void)
{
	nvmlMemory_v2_t memory = { .version = AQ_NVML_VERSION(memory, 2) };
	nvmlProcessInfo_t infos[4];
	nvmlDevice_t d = NULL;
	char text[96];
	unsigned n = 4;

	CHECK_INT(nvmlInit_v2(), LACKING);
	CHECK_INT(nvmlInit(), NVML_SUCCESS);
	CHECK_INT(nvmlDeviceGetCount_v2(&n), LACKING);
	CHECK_INT(nvmlDeviceGetHandleByIndex_v2(0, &d), LACKING);
	CHECK_INT(nvmlDeviceGetHandleByIndex(0, &d), NVML_SUCCESS);
	CHECK_INT(nvmlDeviceGetMemoryInfo_v2(d, &memory), LACKING);
	CHECK_INT(nvmlDeviceGetComputeRunningProcesses_v3(d, &n, infos), LACKING);
	CHECK_INT(nvmlSystemGetDriverVersion(text, sizeof(text)), LACKING);
	CHECK(strcmp(nvmlErrorString(LACKING), "Function Not Found") == 0);
}

static void test_part_of_a_card(void)
{
	nvmlMemory_t memory = { 0, 0, 0 };
	nvmlDevice_t d = NULL;
	char uuid[96] = "";
	unsigned n = 0;

	CHECK_INT(nvmlDeviceGetCount(&n), NVML_SUCCESS);
	CHECK_INT(n, 1);
	CHECK_INT(nvmlDeviceGetHandleByIndex(1, &d), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_INT(nvmlDeviceGetHandleByIndex(0, &d), NVML_SUCCESS);
	CHECK_INT(nvmlDeviceGetUUID(d, uuid, sizeof(uuid)), NVML_SUCCESS);
	CHECK(strncmp(uuid, "MIG-", 4) == 0);
	CHECK_INT(nvmlDeviceGetMemoryInfo(d, &memory), NVML_SUCCESS);
	CHECK_INT(memory.total, 64 * MIB);
	CHECK_INT(memory.free, 64 * MIB);
	CHECK_INT(memory.used, 0);
}

static void test_processes(void)
{
	nvmlProcessInfo_v1_t infos[4];
	nvmlUtilization_t u = { 7, 7 };
	nvmlDevice_t d = NULL;
	unsigned n = 4;

	CHECK_INT(nvmlDeviceGetHandleByIndex(0, &d), NVML_SUCCESS);
	CHECK_INT(nvmlDeviceGetComputeRunningProcesses(d, &n, infos), NVML_SUCCESS);
	CHECK_INT(n, 1);
	CHECK_INT(infos[0].pid, getpid());
	CHECK_INT(infos[0].usedGpuMemory, 0);
	/* Nobody says whose the card's utilisation is. */
	CHECK_INT(nvmlDeviceGetUtilizationRates(d, &u), NVML_ERROR_NOT_SUPPORTED);
	CHECK_INT(u.gpu, 7);
	CHECK_INT(nvmlShutdown(), NVML_SUCCESS);
}

int main(void)
{
	static const struct e2e_test tests[] = {
		{ "what the driver lacks is not offered", test_lacking },
		{ "a part of a card", test_part_of_a_card },
		{ "processes by the oldest list", test_processes },
	};

	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
