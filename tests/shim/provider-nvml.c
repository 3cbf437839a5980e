/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NVML of long ago, as far as names go: first versions only, no texts, no samples. Two cards that are nobody's, the second of which has a part
 * that is the card of provider-body.h. A hundred processes. It calls its own exports through the symbol table.
 */
#include "api/nvml_protos.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static char device[3]; /* the last one is the part */

static nvmlDevice_t handle(unsigned i)
{
	return (nvmlDevice_t)&device[i];
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t parent, unsigned index,
						 nvmlDevice_t *mig);

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 2;
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit(void)
{
	unsigned n = 0;

	/* The driver's own question is about the machine. */
	return nvmlDeviceGetCount(&n) == NVML_SUCCESS && n == 2 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *ret)
{
	*ret = handle(index);
	return index < 2 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t parent, unsigned *count)
{
	if (parent != handle(1))
		return NVML_ERROR_NOT_SUPPORTED;
	*count = 7;
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t parent, unsigned index,
							nvmlDevice_t *mig)
{
	if (parent != handle(1) || index != 3)
		return NVML_ERROR_NOT_FOUND;
	*mig = handle(2);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *text, unsigned size)
{
	static const char *const uuid[] = {
		"GPU-00000000-0000-0000-0000-000000000001",
		"GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5b",
		"MIG-5A5A5A5A-5a5a-5a5a-5a5a-5a5a5a5a5a5a",
	};

	for (unsigned i = 0; i < 3; i++)
		if (d == handle(i))
			return snprintf(text, size, "%s", uuid[i]) < (int)size
				       ? NVML_SUCCESS
				       : NVML_ERROR_INSUFFICIENT_SIZE;
	return NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *memory)
{
	(void)d;
	*memory = (nvmlMemory_t){ 1ULL << 40, 1ULL << 39, 1ULL << 39 };
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u)
{
	(void)d;
	*u = (nvmlUtilization_t){ 90, 80 };
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t d, unsigned *count,
							 nvmlProcessInfo_v1_t *infos)
{
	const unsigned n = 100;
	unsigned fits = *count;

	(void)d;
	*count = n;
	if (fits < n)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < n; i++)
		infos[i] =
			(nvmlProcessInfo_v1_t){ i == 77 ? (unsigned)getpid() : 5000000 + i, 1000 };
	return NVML_SUCCESS;
}
