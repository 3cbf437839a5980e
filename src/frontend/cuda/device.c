/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: answered from the snapshot that cuInit took of each card. */
#include "base/format.h"
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <string.h>

#define PCI_TEXT_SIZE 13 /* "0000:3b:00.0" */

CUresult aq_fe_device(CUdevice ordinal, struct aq_fe_device **ret_dev)
{
	if (ordinal < 0 || ordinal >= aq_fe.n_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*ret_dev = &aq_fe.device[ordinal];
	return CUDA_SUCCESS;
}

/* What nearly every query begins with: has_out says whether its output pointers are there. */
static CUresult enter_device(bool has_out, CUdevice ordinal, struct aq_fe_device **ret_dev)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!has_out)
		return CUDA_ERROR_INVALID_VALUE;
	return aq_fe_device(ordinal, ret_dev);
}

AQ_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(device, ordinal, &dev);

	if (rc == CUDA_SUCCESS)
		*device = dev->ordinal;
	return rc;
}

AQ_EXPORT CUresult cuDeviceGetCount(int *count)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = aq_fe.n_devices;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(name && len > 0, ordinal, &dev);

	if (rc == CUDA_SUCCESS)
		(void)aq_format(name, (size_t)len, "%s", dev->info.name);
	return rc;
}

AQ_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(uuid, ordinal, &dev);

	if (rc == CUDA_SUCCESS)
		memcpy(uuid, dev->info.uuid, sizeof(dev->info.uuid));
	return rc;
}

AQ_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice ordinal)
{
	return cuDeviceGetUuid_v2(uuid, ordinal);
}

/* Locally unique identifiers are Windows' way of naming adapters. */
/* NOLINTNEXTLINE(readability-non-const-parameter): the driver's signature */
AQ_EXPORT CUresult cuDeviceGetLuid(char *luid, unsigned *node_mask, CUdevice ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(luid && node_mask, ordinal, &dev);

	return rc == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : rc;
}

AQ_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(bytes, ordinal, &dev);

	if (rc == CUDA_SUCCESS)
		*bytes = dev->info.memory_bytes;
	return rc;
}

AQ_EXPORT CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice ordinal)
{
	size_t all = 0;
	CUresult rc = cuDeviceTotalMem_v2(bytes ? &all : NULL, ordinal);

	if (rc == CUDA_SUCCESS)
		*bytes = (unsigned)AQ_MIN(all, UINT32_MAX);
	return rc;
}

AQ_EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attr, CUdevice ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(value, ordinal, &dev);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (attr < 1 || attr >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)attr) {
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*value = (int)dev->info.pci_bus;
		break;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
		*value = (int)dev->info.pci_device;
		break;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
		*value = (int)dev->info.pci_domain;
		break;
	case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID:
		*value = (int)dev->info.pci_device_id;
		break;
	case CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID:
		*value = (int)dev->info.pci_subsystem_id;
		break;
	default:
		*value = aq_fe_attr(dev, attr);
		break;
	}
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(major && minor, ordinal, &dev);

	if (rc == CUDA_SUCCESS) {
		*major = aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
		*minor = aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	}
	return rc;
}

AQ_EXPORT CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(prop, ordinal, &dev);

	if (rc != CUDA_SUCCESS)
		return rc;
	*prop = (CUdevprop){
		.maxThreadsPerBlock = aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
		.maxThreadsDim = { aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
				   aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
				   aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z) },
		.maxGridSize = { aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
				 aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
				 aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z) },
		.sharedMemPerBlock =
			aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
		.totalConstantMemory = aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
		.SIMDWidth = aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_WARP_SIZE),
		.memPitch = aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MAX_PITCH),
		.regsPerBlock = aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
		.clockRate = aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
		.textureAlign = aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
	};
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuDeviceGetPCIBusId(char *text, int len, CUdevice ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(text && len >= PCI_TEXT_SIZE, ordinal, &dev);

	if (rc == CUDA_SUCCESS)
		(void)aq_format(text, (size_t)len, "%04x:%02x:%02x.0", dev->info.pci_domain,
				dev->info.pci_bus, dev->info.pci_device);
	return rc;
}

AQ_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
	CUresult rc = aq_fe_enter();
	unsigned domain;
	unsigned bus;
	unsigned slot;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!device || !text || !aq_fe_pci_parse(text, &domain, &bus, &slot))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < aq_fe.n_devices; i++) {
		const struct aq_rep_card_info *info = &aq_fe.device[i].info;

		if (info->pci_domain == domain && info->pci_bus == bus &&
		    info->pci_device == slot) {
			*device = i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

AQ_EXPORT CUresult cuDeviceGetExecAffinitySupport(int *value, CUexecAffinityType type,
						  CUdevice ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(value, ordinal, &dev);

	if (rc != CUDA_SUCCESS)
		return rc;
	if ((unsigned)type >= CU_EXEC_AFFINITY_TYPE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0;
	return CUDA_SUCCESS;
}

static unsigned format_bytes(CUarray_format format)
{
	switch ((int)format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

AQ_EXPORT CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format,
						      unsigned channels, CUdevice ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(width, ordinal, &dev);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (format_bytes(format) == 0 || (channels != 1 && channels != 2 && channels != 4))
		return CUDA_ERROR_INVALID_VALUE;
	*width = (size_t)aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH);
	return CUDA_SUCCESS;
}

/* ---- atomic operations across a link ---- */

/* Which of `operations` are native where `native` says that any are: the software card runs them with the host's own. */
static CUresult atomic_capabilities(unsigned *capabilities, const CUatomicOperation *operations,
				    unsigned count, bool native)
{
	const unsigned integer = CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED |
				 CU_ATOMIC_CAPABILITY_REDUCTION | CU_ATOMIC_CAPABILITY_SCALAR_32 |
				 CU_ATOMIC_CAPABILITY_SCALAR_64;

	if (count == 0 || !capabilities || !operations)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++)
		if ((unsigned)operations[i] >= CU_ATOMIC_OPERATION_MAX)
			return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++) {
		unsigned mask = integer;

		if (operations[i] >= CU_ATOMIC_OPERATION_FLOAT_ADD)
			mask = CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_REDUCTION;
		else if (operations[i] >= CU_ATOMIC_OPERATION_EXCHANGE)
			mask &= ~(unsigned)CU_ATOMIC_CAPABILITY_REDUCTION;
		capabilities[i] = native ? mask : 0;
	}
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuDeviceGetHostAtomicCapabilities(unsigned *capabilities,
						     const CUatomicOperation *operations,
						     unsigned count, CUdevice ordinal)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(true, ordinal, &dev);

	if (rc != CUDA_SUCCESS)
		return rc;
	return atomic_capabilities(capabilities, operations, count,
				   aq_fe_attr(dev,
					      CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED) !=
					   0);
}

/* ---- peers ---- */

static CUresult enter_pair(CUdevice a, CUdevice b)
{
	struct aq_fe_device *dev;
	CUresult rc = enter_device(true, a, &dev);

	return rc == CUDA_SUCCESS ? aq_fe_device(b, &dev) : rc;
}

AQ_EXPORT CUresult cuDeviceGetP2PAtomicCapabilities(unsigned *capabilities,
						    const CUatomicOperation *operations,
						    unsigned count, CUdevice src, CUdevice dst)
{
	CUresult rc = enter_pair(src, dst);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (src == dst)
		return CUDA_ERROR_INVALID_DEVICE;
	return atomic_capabilities(capabilities, operations, count, true);
}

AQ_EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer)
{
	CUresult rc = enter_pair(ordinal, peer);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	*can = ordinal != peer;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attr, CUdevice src,
					   CUdevice dst)
{
	CUresult rc = enter_pair(src, dst);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (src == dst)
		return CUDA_ERROR_INVALID_DEVICE;
	switch ((int)attr) {
	case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
	case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
		*value = 0;
		return CUDA_SUCCESS;
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
		*value = 1;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
