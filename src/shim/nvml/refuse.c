/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers about the whole card, or about processes of anybody, that cannot be told apart: NOT_SUPPORTED, which tools print as N/A. Figures of a card
 * without a limit stand; lists of processes never do.
 */
#include "shim/nvml/shim.h"

/* NVML_SUCCESS: the program may have what the provider says. */
static nvmlReturn_t whole_card(nvmlDevice_t device)
{
	unsigned card;
	nvmlReturn_t rc = aq_device_card(device, &card);

	return rc == NVML_SUCCESS && aq_limited(card) ? NVML_ERROR_NOT_SUPPORTED : rc;
}

static nvmlReturn_t anybodys(nvmlDevice_t device)
{
	unsigned card;
	nvmlReturn_t rc = aq_device_card(device, &card);

	return rc == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : rc;
}

/* Kinds of samples: power and clocks are the card's, the rest is somebody's work. */
static bool is_work(unsigned type)
{
	return (type >= 1 && type <= 4) || type >= 8;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned type,
					    unsigned long long since, unsigned *value_type,
					    unsigned *count, void *samples)
{
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetSamples, device, type, since, value_type, count, samples);
	rc = is_work(type) ? whole_card(device) : NVML_SUCCESS;
	return rc == NVML_SUCCESS ? AQ_CALL(nvmlDeviceGetSamples, device, type, since, value_type,
					    count, samples)
				  : rc;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, void *info)
{
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetDynamicPstatesInfo, device, info);
	rc = whole_card(device);
	return rc == NVML_SUCCESS ? AQ_CALL(nvmlDeviceGetDynamicPstatesInfo, device, info) : rc;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device,
								    nvmlMemory_t *memory)
{
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetConfComputeProtectedMemoryUsage, device, memory);
	rc = whole_card(device);
	return rc == NVML_SUCCESS
		       ? AQ_CALL(nvmlDeviceGetConfComputeProtectedMemoryUsage, device, memory)
		       : rc;
}

AQ_EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, struct nvmlGpmSample_st *sample)
{
	nvmlReturn_t rc;

	AQ_ENTER(nvmlGpmSampleGet, device, sample);
	rc = whole_card(device);
	return rc == NVML_SUCCESS ? AQ_CALL(nvmlGpmSampleGet, device, sample) : rc;
}

AQ_EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gpu_instance,
					   struct nvmlGpmSample_st *sample)
{
	nvmlReturn_t rc;

	AQ_ENTER(nvmlGpmMigSampleGet, device, gpu_instance, sample);
	rc = whole_card(device);
	return rc == NVML_SUCCESS ? AQ_CALL(nvmlGpmMigSampleGet, device, gpu_instance, sample) : rc;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count,
						   unsigned *pids)
{
	AQ_ENTER(nvmlDeviceGetAccountingPids, device, count, pids);
	return anybodys(device);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, void *stats)
{
	AQ_ENTER(nvmlDeviceGetAccountingStats, device, pid, stats);
	return anybodys(device);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned *count,
						    void *infos)
{
	AQ_ENTER(nvmlDeviceGetEncoderSessions, device, count, infos);
	return anybodys(device);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned *count,
						 unsigned *fps, unsigned *latency)
{
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetEncoderStats, device, count, fps, latency);
	rc = whole_card(device);
	return rc == NVML_SUCCESS ? AQ_CALL(nvmlDeviceGetEncoderStats, device, count, fps, latency)
				  : rc;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned *count, void *infos)
{
	AQ_ENTER(nvmlDeviceGetFBCSessions, device, count, infos);
	return anybodys(device);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, void *stats)
{
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetFBCStats, device, stats);
	rc = whole_card(device);
	return rc == NVML_SUCCESS ? AQ_CALL(nvmlDeviceGetFBCStats, device, stats) : rc;
}
