/* SPDX-License-Identifier: Apache-2.0 */
/* Who uses a card, and how much. Process ids are those of the server's pid namespace. */
#include "api/nvml_protos.h"
#include "base/cleanup.h"
#include "frontend/nvml/nv.h"

#include <stdlib.h>

/* Software cards run compute contexts only: nobody draws, nobody goes through MPS. */
enum list_mode {
	LIST_COMPUTE = 0, /* as in nvmlProcessDetailList_t */
	LIST_GRAPHICS = 1,
	LIST_MPS = 2,
};

/* Writes entry i of the caller's array, of whichever version. */
typedef void (*fill_fn)(void *entries, unsigned i, const struct aq_wire_proc *proc);

static void fill_v1(void *entries, unsigned i, const struct aq_wire_proc *proc)
{
	((nvmlProcessInfo_v1_t *)entries)[i] = (nvmlProcessInfo_v1_t){
		.pid = proc->pid,
		.usedGpuMemory = proc->memory_bytes,
	};
}

static void fill_v2(void *entries, unsigned i, const struct aq_wire_proc *proc)
{
	((nvmlProcessInfo_t *)entries)[i] = (nvmlProcessInfo_t){
		.pid = proc->pid,
		.usedGpuMemory = proc->memory_bytes,
		.gpuInstanceId = NVML_NO_INSTANCE,
		.computeInstanceId = NVML_NO_INSTANCE,
	};
}

static void fill_detail(void *entries, unsigned i, const struct aq_wire_proc *proc)
{
	((nvmlProcessDetail_v1_t *)entries)[i] = (nvmlProcessDetail_v1_t){
		.pid = proc->pid,
		.usedGpuMemory = proc->memory_bytes,
		.gpuInstanceId = NVML_NO_INSTANCE,
		.computeInstanceId = NVML_NO_INSTANCE,
	};
}

static nvmlReturn_t running(nvmlDevice_t device, enum list_mode mode, unsigned *count,
			    void *entries, fill_fn fill)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
	aq_auto_free struct aq_wire_proc *procs = NULL;
	nvmlReturn_t status = call.status;
	unsigned n = 0;

	if (status == NVML_SUCCESS && (!count || (*count > 0 && !entries)))
		status = NVML_ERROR_INVALID_ARGUMENT;
	if (status == NVML_SUCCESS && mode == LIST_COMPUTE)
		status = aq_nv_procs(call.dev, &procs, &n);
	if (status == NVML_SUCCESS)
		status = aq_nv_list(count, entries, n);
	if (status != NVML_SUCCESS)
		return status;
	for (unsigned i = 0; i < n; i++)
		fill(entries, i, &procs[i]);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
						  nvmlProcessInfo_v1_t *infos)
{
	return running(device, LIST_COMPUTE, count, infos, fill_v1);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
						     nvmlProcessInfo_v2_t *infos)
{
	return running(device, LIST_COMPUTE, count, infos, fill_v2);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
						     nvmlProcessInfo_t *infos)
{
	return running(device, LIST_COMPUTE, count, infos, fill_v2);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned *count,
						   nvmlProcessInfo_v1_t *infos)
{
	return running(device, LIST_GRAPHICS, count, infos, fill_v1);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
						      nvmlProcessInfo_v2_t *infos)
{
	return running(device, LIST_GRAPHICS, count, infos, fill_v2);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
						      nvmlProcessInfo_t *infos)
{
	return running(device, LIST_GRAPHICS, count, infos, fill_v2);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
						     nvmlProcessInfo_v1_t *infos)
{
	return running(device, LIST_MPS, count, infos, fill_v1);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
							nvmlProcessInfo_v2_t *infos)
{
	return running(device, LIST_MPS, count, infos, fill_v2);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
							nvmlProcessInfo_t *infos)
{
	return running(device, LIST_MPS, count, infos, fill_v2);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
						   nvmlProcessDetailList_t *list)
{
	if (!list)
		return running(device, LIST_COMPUTE, NULL, NULL, NULL);
	if (AQ_NV_CHECK_VERSION(list, 1) != NVML_SUCCESS)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (list->mode > LIST_MPS)
		return NVML_ERROR_INVALID_ARGUMENT;
	return running(device, (enum list_mode)list->mode, &list->numProcArrayEntries,
		       list->procArray, fill_detail);
}

/*
 * The processes with a sample younger than `since`, moved to the front of the list. NOT_FOUND when there are none, as NVIDIA documents it.
 */
static nvmlReturn_t samples(const struct aq_nv_device *dev, unsigned long long since,
			    struct aq_wire_proc **ret, unsigned *ret_n)
{
	unsigned n = 0, kept = 0;
	nvmlReturn_t status = aq_nv_procs(dev, ret, &n);

	if (status != NVML_SUCCESS)
		return status;
	for (unsigned i = 0; i < n; i++) {
		if ((*ret)[i].sample_time_us > since)
			(*ret)[kept++] = (*ret)[i];
	}
	*ret_n = kept;
	return kept ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
					     nvmlProcessUtilizationSample_t *utilization,
					     unsigned *count, unsigned long long since)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
	aq_auto_free struct aq_wire_proc *procs = NULL;
	nvmlReturn_t status = call.status;
	unsigned n = 0;

	if (status == NVML_SUCCESS && !count)
		status = NVML_ERROR_INVALID_ARGUMENT;
	if (status == NVML_SUCCESS)
		status = samples(call.dev, since, &procs, &n);
	if (status != NVML_SUCCESS)
		return status;
	/* Without an array the call asks for its length, whatever *count says. */
	if (!utilization) {
		*count = n;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	status = aq_nv_list(count, utilization, n);
	if (status != NVML_SUCCESS)
		return status;
	for (unsigned i = 0; i < n; i++) {
		utilization[i] = (nvmlProcessUtilizationSample_t){
			.pid = procs[i].pid,
			.timeStamp = procs[i].sample_time_us,
			.smUtil = procs[i].util_gpu_pct,
			.memUtil = procs[i].util_mem_pct,
		};
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
						   nvmlProcessesUtilizationInfo_t *info)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
	aq_auto_free struct aq_wire_proc *procs = NULL;
	nvmlReturn_t status = call.status;
	unsigned n = 0;

	if (status == NVML_SUCCESS && !info)
		status = NVML_ERROR_INVALID_ARGUMENT;
	if (status == NVML_SUCCESS)
		status = AQ_NV_CHECK_VERSION(info, 1);
	if (status == NVML_SUCCESS)
		status = samples(call.dev, info->lastSeenTimeStamp, &procs, &n);
	if (status != NVML_SUCCESS)
		return status;
	if (!info->procUtilArray)
		info->processSamplesCount = 0;
	status = aq_nv_list(&info->processSamplesCount, info->procUtilArray, n);
	if (status != NVML_SUCCESS)
		return status;
	for (unsigned i = 0; i < n; i++) {
		info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
			.timeStamp = procs[i].sample_time_us,
			.pid = procs[i].pid,
			.smUtil = procs[i].util_gpu_pct,
			.memUtil = procs[i].util_mem_pct,
		};
	}
	return NVML_SUCCESS;
}
