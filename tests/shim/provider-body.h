/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that does nothing, as a body for small providers: one device, addresses that are never used twice, a context that is always there. A provider
 * says what is odd about it by the macros before it includes this:
 *   PROVIDER_OLD      exports no cuDeviceGetUuid_v2, cuMemAllocAsync, …: a driver that lacks names
 *   PROVIDER_EXTRA    answers cuGetProcAddress for names that no table knows
 *   PROVIDER_TWISTED  gives other pointers than its exports
 *   PROVIDER_OPEN     calls its own exports through the symbol table (link without -Bsymbolic)
 */
#pragma once

#include "api/cuda_abi.h"
#include "api/cuda_protos.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static _Atomic uint64_t next_address = 0x700000000000;
_Atomic int provider_allocs;

EXPORT CUresult cuInit(unsigned flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
#ifdef PROVIDER_OLD
	*version = 11000;
#else
	*version = 13000;
#endif
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *n)
{
	*n = 1;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *dev, int n)
{
	*dev = n;
	return n == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	memset(uuid, 0x5a, sizeof(*uuid));
	return dev == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	*bytes = 1ULL << 40;
	return dev == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *dev)
{
	*dev = 0;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
	*left = *total = 1ULL << 40;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	*ptr = atomic_fetch_add_explicit(&next_address, (bytes + 511) & ~511ULL,
					 memory_order_relaxed);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	(void)ptr;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
			       unsigned by, unsigned bz, unsigned shared, CUstream stream,
			       void **params, void **extra)
{
	(void)f;
	(void)shared;
	(void)stream;
	(void)params;
	(void)extra;
	return gx && gy && gz && bx && by && bz ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
				   unsigned element)
{
	(void)element;
	*pitch = (width + 511) & ~511ULL;
#ifdef PROVIDER_OPEN
	/* Through the symbol table: with a stand-in in front this comes back to it. */
	return cuMemAlloc_v2(ptr, *pitch * height);
#else
	*ptr = atomic_fetch_add(&next_address, *pitch * height);
	return CUDA_SUCCESS;
#endif
}

#ifndef PROVIDER_OLD
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	memset(uuid, 0x5a, sizeof(*uuid));
	return dev == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
#endif

#ifdef PROVIDER_TWISTED
static CUresult twisted_alloc(CUdeviceptr *ptr, size_t bytes)
{
	provider_allocs++;
	return cuMemAlloc_v2(ptr, bytes);
}
#endif

#ifdef PROVIDER_EXTRA
static CUresult extra(void)
{
	return CUDA_SUCCESS;
}

/* An export that no table lists. */
EXPORT CUresult cuNewIn14(void);

EXPORT CUresult cuNewIn14(void)
{
	return CUDA_SUCCESS;
}
#endif

static void *address(const char *symbol)
{
#ifdef PROVIDER_TWISTED
	if (strcmp(symbol, "cuMemAlloc") == 0)
		return (void *)twisted_alloc;
#endif
#ifdef PROVIDER_EXTRA
	if (strcmp(symbol, "cuMemAllocNew") == 0 || strcmp(symbol, "cuHarmless") == 0)
		return (void *)extra;
#endif
	if (strcmp(symbol, "cuMemAlloc") == 0)
		return (void *)cuMemAlloc_v2;
	if (strcmp(symbol, "cuMemFree") == 0)
		return (void *)cuMemFree_v2;
	if (strcmp(symbol, "cuLaunchKernel") == 0)
		return (void *)cuLaunchKernel;
	return NULL;
}

#ifdef PROVIDER_OLD
EXPORT CUresult cuGetProcAddress(const char *symbol, void **ret, int version, cuuint64_t flags)
{
	(void)flags;
	*ret = version > 11000 ? NULL : address(symbol);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
#else
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **ret, int version, cuuint64_t flags,
				    CUdriverProcAddressQueryResult *status)
{
	(void)version;
	(void)flags;
	*ret = address(symbol);
	if (status)
		*status = *ret ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
#endif
