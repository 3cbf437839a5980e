/* SPDX-License-Identifier: Apache-2.0 */
/* How cards relate to each other and to processors: all live in one process of this machine, so all are equally near. */
#include "api/nvml_protos.h"
#include "base/cleanup.h"
#include "frontend/nvml/nv.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Two handles, both checked. */
static struct aq_nv_call enter_pair(nvmlDevice_t a, nvmlDevice_t b, const struct aq_nv_device **ret)
{
	struct aq_nv_call call = aq_nv_enter_device(a);

	if (call.status != NVML_SUCCESS)
		return call;
	*ret = aq_nv_device(b);
	if (!*ret) {
		aq_nv_leave(&call);
		call.status = NVML_ERROR_INVALID_ARGUMENT;
	}
	return call;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *same)
{
	const struct aq_nv_device *other = NULL;
	aq_auto(aq_nv_leave) struct aq_nv_call call = enter_pair(a, b, &other);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!same)
		return NVML_ERROR_INVALID_ARGUMENT;
	*same = call.dev == other;
	return NVML_SUCCESS;
}

/* Kernels of one card reach the memory of another once cuCtxEnablePeerAccess was called; atomics there are not offered. */
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t index,
				    nvmlGpuP2PStatus_t *p2p)
{
	const struct aq_nv_device *other = NULL;
	aq_auto(aq_nv_leave) struct aq_nv_call call = enter_pair(a, b, &other);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!p2p || (unsigned)index >= NVML_P2P_CAPS_INDEX_UNKNOWN || call.dev == other)
		return NVML_ERROR_INVALID_ARGUMENT;
	*p2p = index == NVML_P2P_CAPS_INDEX_READ || index == NVML_P2P_CAPS_INDEX_WRITE
		       ? NVML_P2P_STATUS_OK
		       : NVML_P2P_STATUS_NOT_SUPPORTED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b,
						 nvmlGpuTopologyLevel_t *level)
{
	const struct aq_nv_device *other = NULL;
	aq_auto(aq_nv_leave) struct aq_nv_call call = enter_pair(a, b, &other);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!level)
		return NVML_ERROR_INVALID_ARGUMENT;
	*level = call.dev == other ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_NODE;
	return NVML_SUCCESS;
}

/* Handles of all cards but `except` (NULL: all). Here *count is what fits even when the array is NULL. */
static nvmlReturn_t list_cards(const struct aq_nv_device *except, unsigned *count,
			       nvmlDevice_t *devices)
{
	unsigned have = aq_nv_count() - (except ? 1 : 0);
	unsigned fits;

	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	fits = devices ? *count : 0;
	*count = have;
	if (!devices)
		return NVML_SUCCESS;
	if (fits < have)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned i = 0, n = 0; i < aq_nv_count(); i++) {
		if (aq_nv_at(i) != except)
			devices[n++] = aq_nv_handle(aq_nv_at(i));
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
					      unsigned *count, nvmlDevice_t *devices)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (level == NVML_TOPOLOGY_NODE)
		return list_cards(call.dev, count, devices);
	if (level > NVML_TOPOLOGY_SYSTEM || level % 10 != 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *count, nvmlDevice_t *devices)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter();

	if (call.status != NVML_SUCCESS)
		return call.status;
	if ((long)cpu >= sysconf(_SC_NPROCESSORS_CONF))
		return NVML_ERROR_INVALID_ARGUMENT;
	return list_cards(NULL, count, devices);
}

/* Every processor of the machine, as far as the caller's words reach. */
nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned words,
						 unsigned long *set, nvmlAffinityScope_t scope)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
	const unsigned bits = sizeof(*set) * CHAR_BIT;
	long n = sysconf(_SC_NPROCESSORS_CONF);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!set || words == 0 || scope > NVML_AFFINITY_SCOPE_SOCKET)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(set, 0, words * sizeof(*set));
	for (long i = 0; i < n && i / bits < words; i++)
		set[i / bits] |= 1UL << (i % bits);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned words, unsigned long *set)
{
	return nvmlDeviceGetCpuAffinityWithinScope(device, words, set, NVML_AFFINITY_SCOPE_NODE);
}
