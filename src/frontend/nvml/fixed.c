/* SPDX-License-Identifier: Apache-2.0 */
/* What is the same for every software card, or for as long as one lives: modes, limits, capabilities. */
#include "api/cuda_abi.h"
#include "api/nvml_protos.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "frontend/nvml/nv.h"

#include <string.h>

static int32_t attribute(const struct aq_nv_device *dev, CUdevice_attribute attr)
{
	return (unsigned)attr < dev->info.n_attrs && (unsigned)attr < AQ_WIRE_ATTRS
		       ? dev->info.attrs[attr]
		       : 0;
}

/* One number into a checked place. Enumerations of the ABI have the size of an unsigned. */
static nvmlReturn_t answer(nvmlDevice_t device, void *place, unsigned value)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!place)
		return NVML_ERROR_INVALID_ARGUMENT;
	memcpy(place, &value, sizeof(value));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand)
{
	return answer(device, brand, NVML_BRAND_UNKNOWN);
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned *is_multi)
{
	return answer(device, is_multi, 0);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	return answer(device, mode, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *active)
{
	return answer(device, active, NVML_FEATURE_DISABLED);
}

/* The card stays when its last client leaves: the server holds it. */
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	return answer(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
	return answer(device, mode, NVML_COMPUTEMODE_DEFAULT);
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *mode)
{
	return answer(device, mode, NVML_GPU_VIRTUALIZATION_MODE_NONE);
}

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	return answer(device, mode, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t device, nvmlPowerSource_t *source)
{
	return answer(device, source, NVML_POWER_SOURCE_AC);
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	return answer(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
	return answer(device, is_mig, 0);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
	return answer(device, count, 0);
}

nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned *count)
{
	return answer(device, count, 0);
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!types)
		return NVML_ERROR_INVALID_ARGUMENT;
	*types = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!index)
		return NVML_ERROR_INVALID_ARGUMENT;
	*index = call.dev->card;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!minor)
		return NVML_ERROR_INVALID_ARGUMENT;
	*minor = call.dev->info.minor;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!major || !minor)
		return NVML_ERROR_INVALID_ARGUMENT;
	*major = attribute(call.dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	*minor = attribute(call.dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	return NVML_SUCCESS;
}

/* The architecture that introduced a compute capability. */
static nvmlDeviceArchitecture_t architecture(int cc)
{
	static const struct {
		int from;
		nvmlDeviceArchitecture_t arch;
	} table[] = {
		{ 100, NVML_DEVICE_ARCH_BLACKWELL }, { 90, NVML_DEVICE_ARCH_HOPPER },
		{ 89, NVML_DEVICE_ARCH_ADA },	     { 80, NVML_DEVICE_ARCH_AMPERE },
		{ 75, NVML_DEVICE_ARCH_TURING },     { 70, NVML_DEVICE_ARCH_VOLTA },
		{ 60, NVML_DEVICE_ARCH_PASCAL },     { 50, NVML_DEVICE_ARCH_MAXWELL },
		{ 30, NVML_DEVICE_ARCH_KEPLER },
	};

	for (size_t i = 0; i < AQ_ARRAY_SIZE(table); i++) {
		if (cc >= table[i].from)
			return table[i].arch;
	}
	return NVML_DEVICE_ARCH_UNKNOWN;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch)
{
	int major, minor;
	nvmlReturn_t status = nvmlDeviceGetCudaComputeCapability(device, &major, &minor);

	if (status != NVML_SUCCESS)
		return status;
	if (!arch)
		return NVML_ERROR_INVALID_ARGUMENT;
	*arch = architecture(10 * major + minor);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned *bits)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!bits)
		return NVML_ERROR_INVALID_ARGUMENT;
	*bits = (unsigned)attribute(call.dev, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
	return NVML_SUCCESS;
}

static nvmlReturn_t attributes(nvmlDevice_t device, nvmlDeviceAttributes_t *ret, size_t known)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
	nvmlDeviceAttributes_t all = { .multiprocessorCount = 0 };

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!ret)
		return NVML_ERROR_INVALID_ARGUMENT;
	all.multiprocessorCount =
		(unsigned)attribute(call.dev, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	all.sharedCopyEngineCount =
		(unsigned)attribute(call.dev, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
	all.memorySizeMB = call.dev->info.memory_bytes / AQ_MIB;
	memcpy(ret, &all, known);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *ret)
{
	return attributes(device, ret, offsetof(nvmlDeviceAttributes_t, gpuInstanceSliceCount));
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *ret)
{
	return attributes(device, ret, sizeof(*ret));
}
