/* SPDX-License-Identifier: Apache-2.0 */
/* What the front end knows about an address. */
#include "frontend/cuda/mem.h"

#include "base/macro.h"

#include <string.h>

/* What an address is: in a range, in a reservation only, or nothing. */
struct known {
	bool found; /* in a range */
	bool reserved;
	struct aq_fe_range r;
	uint64_t reserve_va, reserve_size;
};

static void look_up(uint64_t ptr, struct known *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->found = aq_fe_range_find(ptr, &ret->r);
	ret->reserved = aq_fe_reservation_find(ptr, &ret->reserve_va, &ret->reserve_size);
}

static bool is_host_memory(const struct aq_fe_range *r)
{
	return (r->kind & (AQ_FE_RANGE_HOST | AQ_FE_RANGE_REGISTERED)) || r->host_phys;
}

static bool is_managed(const struct aq_fe_range *r)
{
	return r->kind == AQ_FE_RANGE_MANAGED || r->managed_global;
}

static bool host_reaches(const struct aq_fe_range *r)
{
	return (r->kind & AQ_FE_RANGE_ON_HOST) || r->managed_global || r->access_host != 0;
}

/* Bytes that an attribute takes, 0 for one that does not exist or is not offered. */
static size_t size_of(CUpointer_attribute attr)
{
	switch ((int)attr) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		return 4;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return 8;
	default:
		return 0;
	}
}

static CUresult access_flags(const struct aq_fe_range *r, uint64_t *ret)
{
	struct aq_fe_ctx *ctx = NULL;
	CUresult res = CUDA_SUCCESS;

	*ret = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	if (r->kind != AQ_FE_RANGE_MAPPING)
		return CUDA_SUCCESS;
	res = aq_fe_enter_ctx(&ctx);
	if (res == CUDA_SUCCESS)
		*ret = r->access_cards >> (2 * ctx->dev->card) & 3U;
	return res;
}

static CUresult of_device_pointer(uint64_t ptr, uint64_t *ret)
{
	struct aq_fe_ctx *ctx = NULL;
	CUresult res = aq_fe_enter_ctx(&ctx);

	*ret = ptr;
	return res;
}

/* Mappings and pools belong to no context. */
static uint64_t context_of(const struct aq_fe_range *r)
{
	return r->kind & (AQ_FE_RANGE_MAPPING | AQ_FE_RANGE_POOL) ? 0 : (uintptr_t)r->ctx;
}

/* Identifiers of physical allocations and of ranges are numbered apart. */
static uint64_t block_id(const struct aq_fe_range *r)
{
	return r->kind == AQ_FE_RANGE_MAPPING ? 1ULL << 63 | r->phys_id : r->buffer_id;
}

/* The value of an attribute of an address in a range. */
static CUresult value_of(const struct known *k, CUpointer_attribute attr, uint64_t ptr,
			 uint64_t *ret)
{
	const struct aq_fe_range *r = &k->r;

	switch ((int)attr) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*ret = context_of(r);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*ret = is_host_memory(r) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return of_device_pointer(ptr, ret);
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*ret = ptr;
		return host_reaches(r) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*ret = r->sync_memops;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*ret = r->buffer_id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*ret = is_managed(r);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*ret = (uint32_t)(r->dev ? r->dev->ordinal : CU_DEVICE_CPU);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*ret = r->kind == AQ_FE_RANGE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*ret = k->reserved ? k->reserve_va : r->va;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*ret = k->reserved ? k->reserve_size : r->size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*ret = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*ret = r->handle_types;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return access_flags(r, ret);
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*ret = r->kind == AQ_FE_RANGE_POOL ? (uintptr_t)r->pool : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*ret = r->size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*ret = r->va;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*ret = block_id(r);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*ret = 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Of a reserved address without a mapping. */
static CUresult value_unmapped(const struct known *k, CUpointer_attribute attr, uint64_t *ret)
{
	switch ((int)attr) {
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*ret = k->reserve_va;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*ret = k->reserve_size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*ret = 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult query(const struct known *k, CUpointer_attribute attr, uint64_t ptr, void *data)
{
	uint64_t value = 0;
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	if (k->found)
		res = value_of(k, attr, ptr, &value);
	else if (k->reserved)
		res = value_unmapped(k, attr, &value);
	if (res == CUDA_SUCCESS)
		memcpy(data, &value, size_of(attr)); /* little-endian: the low bytes */
	return res;
}

AQ_EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct known k;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
		return CUDA_ERROR_NOT_SUPPORTED; /* for kernel modules, which have no part in this */
	if (!data || size_of(attribute) == 0)
		return CUDA_ERROR_INVALID_VALUE;
	look_up(ptr, &k);
	return query(&k, attribute, ptr, data);
}

/* An address nobody knows, or an attribute it does not have, is answered with zeroes here. */
AQ_EXPORT CUresult cuPointerGetAttributes(unsigned int numAttributes,
					  CUpointer_attribute *attributes, void **data,
					  CUdeviceptr ptr)
{
	struct known k;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (numAttributes == 0 || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < numAttributes; i++) {
		if (!data[i] || size_of(attributes[i]) == 0)
			return CUDA_ERROR_INVALID_VALUE;
	}
	look_up(ptr, &k);
	for (unsigned i = 0; i < numAttributes; i++) {
		if (query(&k, attributes[i], ptr, data[i]) == CUDA_SUCCESS)
			continue;
		memset(data[i], 0, size_of(attributes[i]));
		if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = CU_DEVICE_INVALID;
	}
	return CUDA_SUCCESS;
}

static void set_sync(struct aq_fe_range *r, void *arg)
{
	r->sync_memops = *(const bool *)arg;
}

AQ_EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
					 CUdeviceptr ptr)
{
	bool on = false;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	on = *(const unsigned *)value != 0;
	return aq_fe_range_update(ptr, set_sync, &on) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
