/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For programs that allocate as real software does. The same program runs on a bare card and in an instance with a memory limit
 * (--limit BYTES): then the limit is all that it may see of the card.
 */
#pragma once

#include "e2e/patterns.h"

#include <stdbool.h>

#define MIB (1024UL * 1024)
#define GIB (1024UL * MIB)
#define G   (2 * MIB) /* granularity of physical allocations */

static uint64_t wl_limit; /* 0: none */

/* Its limit from the command line. Returns the index of the first argument behind it. */
static inline int wl_parse(int argc, char **argv)
{
	if (argc < 3 || strcmp(argv[1], "--limit") != 0)
		return 1;
	wl_limit = strtoull(argv[2], NULL, 0);
	return 3;
}

static inline size_t wl_total(void)
{
	size_t left = 0;
	size_t total = 0;

	OK(cuMemGetInfo_v2(&left, &total));
	CHECK(left <= total);
	if (wl_limit)
		CHECK_INT(total, wl_limit);
	return total;
}

static inline size_t wl_free(void)
{
	size_t left = 0;
	size_t total = 0;

	OK(cuMemGetInfo_v2(&left, &total));
	CHECK(left <= total);
	if (wl_limit)
		CHECK_INT(total, wl_limit);
	return left;
}

/*
 * All that was taken in odd sizes is back. What a card takes by rounding up beyond what the account has becomes overhead of an instance once the
 * daemon sees it, and overhead stays.
 */
static inline void wl_all_back(size_t at_first)
{
	size_t now = wl_free();

	if (!wl_limit)
		CHECK_INT(now, at_first);
	else
		CHECK(now <= at_first && now >= at_first - at_first / 8);
}

/* ---- contents: both ends of an allocation, the places where a wrong size shows ---- */

#define WL_STAMP 1024

static inline void wl_stamp(CUdeviceptr p, size_t size, uint32_t seed)
{
	size_t n = size < WL_STAMP ? size : WL_STAMP;
	uint8_t buf[WL_STAMP];

	put_pattern(buf, n, seed);
	OK(cuMemcpyHtoD_v2(p, buf, n));
	OK(cuMemcpyHtoD_v2(p + size - n, buf, n));
}

static inline int wl_stamped(CUdeviceptr p, size_t size, uint32_t seed)
{
	size_t n = size < WL_STAMP ? size : WL_STAMP;
	uint8_t buf[WL_STAMP] = { 0 };

	OK(cuMemcpyDtoH_v2(buf, p + size - n, n));
	if (!has_pattern(buf, n, seed))
		return 0;
	OK(cuMemcpyDtoH_v2(buf, p, n));
	return has_pattern(buf, n, seed) || size < 2 * n;
}

static inline uint32_t wl_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* ---- physical memory at an address, as every user of virtual memory management writes it ---- */

static inline CUmemAllocationProp wl_on_card(CUdevice dev)
{
	return (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .location = { CU_MEM_LOCATION_TYPE_DEVICE, dev } };
}

static inline CUresult wl_allow(CUdeviceptr va, size_t size, CUdevice dev)
{
	CUmemAccessDesc rw = { { CU_MEM_LOCATION_TYPE_DEVICE, dev },
			       CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	return cuMemSetAccess(va, size, &rw, 1);
}

/* New physical memory at a reserved address. On an error nothing is left behind. */
static inline CUresult wl_back(CUdeviceptr va, size_t size, CUdevice dev,
			       CUmemGenericAllocationHandle *ret)
{
	CUmemAllocationProp prop = wl_on_card(dev);
	CUmemGenericAllocationHandle h = 0;
	CUresult rc = cuMemCreate(&h, size, &prop, 0);

	if (rc != CUDA_SUCCESS)
		return rc;
	OK(cuMemMap(va, size, 0, h, 0));
	OK(wl_allow(va, size, dev));
	*ret = h;
	return CUDA_SUCCESS;
}
