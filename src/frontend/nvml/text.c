/* SPDX-License-Identifier: Apache-2.0 */
/* Texts and lists as NVML hands them out, and what its results mean. */
#include "api/nvml_protos.h"
#include "base/format.h"
#include "base/macro.h"
#include "frontend/nvml/nv.h"

#include <string.h>

nvmlReturn_t aq_nv_text(const char *text, char *buf, unsigned size)
{
	size_t len = strlen(text) + 1;

	if (!buf)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (len > size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(buf, text, len);
	return NVML_SUCCESS;
}

void aq_nv_uuid(const struct aq_nv_device *dev, char buf[static AQ_NV_UUID_SIZE])
{
	const uint8_t *u = dev->info.uuid;

	(void)aq_format(buf, AQ_NV_UUID_SIZE,
			"GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
			u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
			u[12], u[13], u[14], u[15]);
}

nvmlReturn_t aq_nv_list(unsigned *count, const void *entries, unsigned have)
{
	unsigned fits;

	if (!count || (*count > 0 && !entries))
		return NVML_ERROR_INVALID_ARGUMENT;
	fits = *count;
	*count = have;
	return have <= fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

/* clang-format off */
static const struct {
	nvmlReturn_t result;
	const char *text;
} results[] = {
	{ NVML_SUCCESS, "Success" },
	{ NVML_ERROR_UNINITIALIZED, "Uninitialized" },
	{ NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument" },
	{ NVML_ERROR_NOT_SUPPORTED, "Not Supported" },
	{ NVML_ERROR_NO_PERMISSION, "Insufficient Permissions" },
	{ NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized" },
	{ NVML_ERROR_NOT_FOUND, "Not Found" },
	{ NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size" },
	{ NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power" },
	{ NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded" },
	{ NVML_ERROR_TIMEOUT, "Timeout" },
	{ NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue" },
	{ NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found" },
	{ NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found" },
	{ NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM" },
	{ NVML_ERROR_GPU_IS_LOST, "GPU is lost" },
	{ NVML_ERROR_RESET_REQUIRED, "GPU requires reset" },
	{ NVML_ERROR_OPERATING_SYSTEM, "GPU access blocked by the operating system" },
	{ NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch" },
	{ NVML_ERROR_IN_USE, "In use by another client" },
	{ NVML_ERROR_MEMORY, "Insufficient Memory" },
	{ NVML_ERROR_NO_DATA, "No data" },
	{ NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, "ECC is not supported with vGPU" },
	{ NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient resources" },
	{ NVML_ERROR_FREQ_NOT_SUPPORTED, "Frequency not supported" },
	{ NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch" },
	{ NVML_ERROR_DEPRECATED, "Deprecated" },
	{ NVML_ERROR_NOT_READY, "Not ready" },
	{ NVML_ERROR_GPU_NOT_FOUND, "No GPUs found" },
	{ NVML_ERROR_INVALID_STATE, "Invalid state" },
	{ NVML_ERROR_RESET_TYPE_NOT_SUPPORTED, "Reset type not supported" },
	{ NVML_ERROR_UNKNOWN, "Unknown Error" },
};
/* clang-format on */

const char *nvmlErrorString(nvmlReturn_t result)
{
	for (size_t i = 0; i < AQ_ARRAY_SIZE(results); i++) {
		if (results[i].result == result)
			return results[i].text;
	}
	return "Unknown Error";
}
