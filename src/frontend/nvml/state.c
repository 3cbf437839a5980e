/* SPDX-License-Identifier: Apache-2.0 */
/* What changes while a card works: memory, utilisation, clocks, temperature, power. Asked of the server at each call. */
#include "api/nvml_protos.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "frontend/nvml/nv.h"

#include <time.h>

/* Fixed for every profile: a software card does not get hot, but monitors want to draw the line somewhere. */
#define SHUTDOWN_C 95U
#define SLOWDOWN_C 90U
#define MEM_MAX_C  95U
#define GPU_MAX_C  85U

/* How long the rates are averaged; see struct aq_rep_card_stat. */
#define SAMPLING_US 1000000U

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
	struct aq_rep_card_stat stat;
	nvmlReturn_t status = call.status;

	if (status == NVML_SUCCESS && !memory)
		status = NVML_ERROR_INVALID_ARGUMENT;
	if (status == NVML_SUCCESS)
		status = aq_nv_stat(call.dev, &stat);
	if (status != NVML_SUCCESS)
		return status;
	memory->total = call.dev->info.memory_bytes;
	memory->free = stat.memory_free;
	memory->used = memory->total - memory->free;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
	struct aq_rep_card_stat stat;
	nvmlReturn_t status = call.status;

	if (status == NVML_SUCCESS && !memory)
		status = NVML_ERROR_INVALID_ARGUMENT;
	if (status == NVML_SUCCESS)
		status = AQ_NV_CHECK_VERSION(memory, 2);
	if (status == NVML_SUCCESS)
		status = aq_nv_stat(call.dev, &stat);
	if (status != NVML_SUCCESS)
		return status;
	/* total = reserved + used + free, unlike the first version, which has reserved in used. */
	memory->total = call.dev->info.memory_bytes;
	memory->reserved = call.dev->info.memory_reserved;
	memory->free = stat.memory_free;
	memory->used = memory->total - memory->free - memory->reserved;
	return NVML_SUCCESS;
}

/* The whole memory can be mapped. What is mapped at the moment is not counted. */
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	memory->bar1Total = call.dev->info.memory_bytes;
	memory->bar1Free = memory->bar1Total;
	memory->bar1Used = 0;
	return NVML_SUCCESS;
}

/* Most answers are one field of what the server says. ret_stat is filled on success; place is only checked. */
static nvmlReturn_t stat_for(nvmlDevice_t device, const void *place,
			     struct aq_rep_card_stat *ret_stat, struct aq_rep_card_info *ret_info)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!place)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (ret_info)
		*ret_info = call.dev->info;
	return aq_nv_stat(call.dev, ret_stat);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	struct aq_rep_card_stat stat;
	nvmlReturn_t status = stat_for(device, utilization, &stat, NULL);

	if (status != NVML_SUCCESS)
		return status;
	utilization->gpu = stat.util_gpu_pct;
	utilization->memory = stat.util_mem_pct;
	return NVML_SUCCESS;
}

/* Engines that software cards lack are idle. */
static nvmlReturn_t idle_engine(nvmlDevice_t device, unsigned *utilization, unsigned *period_us)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!utilization || !period_us)
		return NVML_ERROR_INVALID_ARGUMENT;
	*utilization = 0;
	*period_us = SAMPLING_US;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *util, unsigned *period)
{
	return idle_engine(device, util, period);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *util, unsigned *period)
{
	return idle_engine(device, util, period);
}

nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned *util, unsigned *period)
{
	return idle_engine(device, util, period);
}

nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned *util, unsigned *period)
{
	return idle_engine(device, util, period);
}

/* ---- clocks ---- */

/* The clock of a domain at its highest; 0 for one that does not exist. The video clock follows the graphics clock. */
static unsigned max_clock(const struct aq_nv_device *dev, nvmlClockType_t type)
{
	switch (type) {
	case NVML_CLOCK_GRAPHICS:
	case NVML_CLOCK_SM:
	case NVML_CLOCK_VIDEO:
		return dev->info.max_clock_sm_mhz;
	case NVML_CLOCK_MEM:
		return dev->info.max_clock_mem_mhz;
	case NVML_CLOCK_COUNT:
	default:
		return 0;
	}
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned *clock)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!clock || (unsigned)type >= NVML_CLOCK_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*clock = max_clock(call.dev, type);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned *clock)
{
	struct aq_rep_card_stat stat;
	nvmlReturn_t status;

	if (clock && (unsigned)type >= NVML_CLOCK_COUNT)
		clock = NULL;
	status = stat_for(device, clock, &stat, NULL);
	if (status == NVML_SUCCESS)
		*clock = type == NVML_CLOCK_MEM ? stat.clock_mem_mhz : stat.clock_sm_mhz;
	return status;
}

/* Clocks cannot be set: target, default and boost are the highest. */
nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t type,
					    unsigned *clock)
{
	return nvmlDeviceGetMaxClockInfo(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t type,
						   unsigned *clock)
{
	return nvmlDeviceGetMaxClockInfo(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t type,
						unsigned *clock)
{
	return nvmlDeviceGetMaxClockInfo(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id,
				unsigned *clock)
{
	if (id == NVML_CLOCK_ID_CURRENT)
		return nvmlDeviceGetClockInfo(device, type, clock);
	if ((unsigned)id >= NVML_CLOCK_ID_COUNT)
		clock = NULL;
	return nvmlDeviceGetMaxClockInfo(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count,
						unsigned *clocks)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
	nvmlReturn_t status = call.status;

	if (status == NVML_SUCCESS)
		status = aq_nv_list(count, clocks, 1);
	if (status == NVML_SUCCESS)
		clocks[0] = call.dev->info.max_clock_mem_mhz;
	return status;
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory_mhz,
						  unsigned *count, unsigned *clocks)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
	nvmlReturn_t status = call.status;

	if (status == NVML_SUCCESS && memory_mhz != call.dev->info.max_clock_mem_mhz)
		status = NVML_ERROR_NOT_FOUND;
	if (status == NVML_SUCCESS)
		status = aq_nv_list(count, clocks, 1);
	if (status == NVML_SUCCESS)
		clocks[0] = call.dev->info.max_clock_sm_mhz;
	return status;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
						    unsigned long long *reasons)
{
	struct aq_rep_card_stat stat;
	nvmlReturn_t status = stat_for(device, reasons, &stat, NULL);

	if (status == NVML_SUCCESS)
		*reasons = stat.util_gpu_pct ? NVML_CLOCKS_EVENT_REASON_NONE
					     : NVML_CLOCKS_EVENT_REASON_GPU_IDLE;
	return status;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
						       unsigned long long *reasons)
{
	return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device,
						      unsigned long long *reasons)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!reasons)
		return NVML_ERROR_INVALID_ARGUMENT;
	*reasons = NVML_CLOCKS_EVENT_REASON_GPU_IDLE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device,
							 unsigned long long *reasons)
{
	return nvmlDeviceGetSupportedClocksEventReasons(device, reasons);
}

/* Two states: at the highest clock, or not. */
nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *state)
{
	struct aq_rep_card_stat stat;
	struct aq_rep_card_info info;
	nvmlReturn_t status = stat_for(device, state, &stat, &info);

	if (status == NVML_SUCCESS)
		*state = stat.clock_sm_mhz >= info.max_clock_sm_mhz ? NVML_PSTATE_0 : NVML_PSTATE_8;
	return status;
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *state)
{
	return nvmlDeviceGetPerformanceState(device, state);
}

/* ---- temperature ---- */

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
				      unsigned *temperature)
{
	struct aq_rep_card_stat stat;
	nvmlReturn_t status;

	if (sensor != NVML_TEMPERATURE_GPU)
		temperature = NULL;
	status = stat_for(device, temperature, &stat, NULL);
	if (status == NVML_SUCCESS)
		*temperature = stat.temperature_c;
	return status;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
	struct aq_rep_card_stat stat;
	nvmlReturn_t status = stat_for(device, temperature, &stat, NULL);

	if (status != NVML_SUCCESS)
		return status;
	if (AQ_NV_CHECK_VERSION(temperature, 1) != NVML_SUCCESS)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (temperature->sensorType != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	temperature->temperature = (int)stat.temperature_c;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
					       nvmlTemperatureThresholds_t which,
					       unsigned *temperature)
{
	static const unsigned degrees[NVML_TEMPERATURE_THRESHOLD_COUNT] = {
		[NVML_TEMPERATURE_THRESHOLD_SHUTDOWN] = SHUTDOWN_C,
		[NVML_TEMPERATURE_THRESHOLD_SLOWDOWN] = SLOWDOWN_C,
		[NVML_TEMPERATURE_THRESHOLD_MEM_MAX] = MEM_MAX_C,
		[NVML_TEMPERATURE_THRESHOLD_GPU_MAX] = GPU_MAX_C,
	};
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!temperature || (unsigned)which >= NVML_TEMPERATURE_THRESHOLD_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (degrees[which] == 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*temperature = degrees[which];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *margin)
{
	struct aq_rep_card_stat stat;
	nvmlReturn_t status = stat_for(device, margin, &stat, NULL);

	if (status != NVML_SUCCESS)
		return status;
	if (AQ_NV_CHECK_VERSION(margin, 1) != NVML_SUCCESS)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	margin->marginTemperature = (int)SLOWDOWN_C - (int)stat.temperature_c;
	return NVML_SUCCESS;
}

/* ---- power ---- */

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *power)
{
	struct aq_rep_card_stat stat;
	nvmlReturn_t status = stat_for(device, power, &stat, NULL);

	if (status == NVML_SUCCESS)
		*power = stat.power_mw;
	return status;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy)
{
	struct aq_rep_card_stat stat;
	nvmlReturn_t status = stat_for(device, energy, &stat, NULL);

	if (status == NVML_SUCCESS)
		*energy = stat.energy_mj;
	return status;
}

/* The limit cannot be set: default, lowest, highest and enforced are one. */
nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *limit)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!limit)
		return NVML_ERROR_INVALID_ARGUMENT;
	*limit = call.dev->info.max_power_mw;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *lowest,
							  unsigned *highest)
{
	nvmlReturn_t status = nvmlDeviceGetPowerManagementLimit(device, highest ? lowest : NULL);

	if (status == NVML_SUCCESS)
		*highest = *lowest;
	return status;
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned *limit)
{
	return nvmlDeviceGetPowerManagementLimit(device, limit);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *limit)
{
	return nvmlDeviceGetPowerManagementLimit(device, limit);
}

/* ---- field values ---- */

static void fill_field(nvmlFieldValue_t *field, const struct aq_rep_card_info *info,
		       const struct aq_rep_card_stat *stat)
{
	field->nvmlReturn = NVML_SUCCESS;
	field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
	field->value.ullVal = 0;
	switch (field->fieldId) {
	case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
	case NVML_FI_DEV_ENERGY:
		field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
		field->value.ullVal = stat->energy_mj;
		break;
	case NVML_FI_DEV_POWER_AVERAGE:
	case NVML_FI_DEV_POWER_INSTANT:
		field->value.uiVal = stat->power_mw;
		break;
	case NVML_FI_DEV_POWER_MIN_LIMIT:
	case NVML_FI_DEV_POWER_MAX_LIMIT:
	case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
	case NVML_FI_DEV_POWER_CURRENT_LIMIT:
	case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
		field->value.uiVal = info->max_power_mw;
		break;
	default:
		field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		break;
	}
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
	struct aq_rep_card_stat stat;
	struct aq_rep_card_info info;
	struct timespec before, after;
	nvmlReturn_t status;

	(void)clock_gettime(CLOCK_REALTIME, &before);
	status = stat_for(device, count > 0 ? values : NULL, &stat, &info);
	(void)clock_gettime(CLOCK_REALTIME, &after);
	if (status != NVML_SUCCESS)
		return status;
	for (int i = 0; i < count; i++) {
		values[i].timestamp = (long long)after.tv_sec * 1000000 + after.tv_nsec / 1000;
		values[i].latencyUsec = ((long long)after.tv_sec - before.tv_sec) * 1000000 +
					(after.tv_nsec - before.tv_nsec) / 1000;
		fill_field(&values[i], &info, &stat);
	}
	return NVML_SUCCESS;
}
