/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation: when memory may be used again, what a pool holds, and what is refused. */
#include "patterns.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define MIB (1024UL * 1024)

static CUcontext ctx;
static CUstream one, two;
static CUmemoryPool def;

static cuuint64_t attr64(CUmemoryPool pool, CUmemPool_attribute attr)
{
	cuuint64_t value = 0;

	OK(cuMemPoolGetAttribute(pool, attr, &value));
	return value;
}

#define RESERVED(p) attr64(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
#define USED(p)	    attr64(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)

/* A stream that stands still until it is told to go on. */
static atomic_int may_go;

static void hold(void *arg)
{
	struct timespec ms = { .tv_nsec = 1000000 };

	(void)arg;
	while (!atomic_load(&may_go))
		(void)nanosleep(&ms, NULL);
}

static void test_contents(void)
{
	static unsigned char buf[300000], back[300000];
	CUdeviceptr p = 0;

	for (uint32_t i = 0; i < 20; i++) {
		put_pattern(buf, sizeof(buf), i);
		OK(cuMemAllocAsync(&p, sizeof(buf), one));
		OK(cuMemcpyHtoDAsync_v2(p, buf, sizeof(buf), one));
		OK(cuMemcpyDtoHAsync_v2(back, p, sizeof(back), one));
		OK(cuMemFreeAsync(p, one));
		OK(cuStreamSynchronize(one));
		CHECK(has_pattern(back, sizeof(back), i));
	}
	CHECK_INT(USED(def), 0);
}

static void test_reuse(void)
{
	CUdeviceptr p = 0, q = 0, r = 0;

	/* In the same stream at once, while it is still busy. */
	atomic_store(&may_go, 0);
	OK(cuMemAllocAsync(&p, 5 * MIB, one));
	OK(cuLaunchHostFunc(one, hold, NULL));
	OK(cuMemFreeAsync(p, one));
	OK(cuMemAllocAsync(&q, 5 * MIB, one));
	CHECK(p == q);
	/* Not in another one, unless dependencies may be made up. */
	OK(cuMemFreeAsync(q, one));
	{
		int no = 0, yes = 1;

		OK(cuMemPoolSetAttribute(def, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
					 &no));
		OK(cuMemAllocAsync(&r, 5 * MIB, two));
		CHECK(r != p);
		OK(cuMemFreeAsync(r, two));
		OK(cuStreamSynchronize(two));
		CHECK_RC(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
		atomic_store(&may_go, 1);
		OK(cuStreamSynchronize(one));
		OK(cuMemPoolSetAttribute(def, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
					 &yes));
	}
	/* After its stream has passed the free, in any. */
	OK(cuMemAllocAsync(&p, 5 * MIB, one));
	OK(cuMemFreeAsync(p, one));
	while (cuStreamQuery(one) == CUDA_ERROR_NOT_READY)
		;
	OK(cuMemAllocAsync(&q, 5 * MIB, two));
	CHECK(p == q);
	OK(cuMemFreeAsync(q, two));
	OK(cuCtxSynchronize());
}

static void test_reserve(void)
{
	CUdeviceptr p[10] = { 0 };
	cuuint64_t keep = UINT64_MAX, none = 0;
	size_t free0 = 0, free1 = 0, total = 0;

	OK(cuCtxSynchronize());
	CHECK_INT(RESERVED(def), 0);
	OK(cuMemGetInfo_v2(&free0, &total));
	for (int i = 0; i < 10; i++)
		OK(cuMemAllocAsync(&p[i], 10 * MIB, one));
	CHECK(USED(def) >= 100 * MIB && RESERVED(def) >= USED(def));
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free0 - free1 >= RESERVED(def));
	CHECK(attr64(def, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 100 * MIB);
	CHECK(attr64(def, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 100 * MIB);
	OK(cuMemPoolSetAttribute(def, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	for (int i = 0; i < 10; i++)
		OK(cuMemFreeAsync(p[i], one));
	CHECK_INT(USED(def), 0);
	OK(cuStreamSynchronize(one));
	CHECK(RESERVED(def) >= 100 * MIB); /* kept */
	OK(cuMemPoolTrimTo(def, 64 * MIB));
	CHECK(RESERVED(def) >= 64 * MIB && RESERVED(def) < 100 * MIB);
	OK(cuMemPoolSetAttribute(def, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
	OK(cuStreamSynchronize(one));
	CHECK_INT(RESERVED(def), 0);
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free1 == free0);
	OK(cuMemPoolSetAttribute(def, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
	CHECK_INT(attr64(def, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
	INVALID(cuMemPoolSetAttribute(def, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &keep));
	INVALID(cuMemPoolSetAttribute(def, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &none));
	INVALID(cuMemPoolSetAttribute(def, (CUmemPool_attribute)99, &none));
	INVALID(cuMemPoolGetAttribute(def, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, NULL));
}

/* What a pool keeps unused does not make another allocation fail. */
static void test_pressure(void)
{
	CUdeviceptr p = 0, q = 0;
	cuuint64_t keep = UINT64_MAX, none = 0;
	size_t free0 = 0, total = 0;

	OK(cuMemGetInfo_v2(&free0, &total));
	OK(cuMemPoolSetAttribute(def, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemAllocAsync(&p, free0 / 4 * 3, one));
	OK(cuMemFreeAsync(p, one));
	OK(cuStreamSynchronize(one));
	CHECK(RESERVED(def) >= free0 / 4 * 3);
	OK(cuMemAlloc_v2(&q, free0 / 2));
	OK(cuMemFree_v2(q));
	CHECK_RC(cuMemAllocAsync(&p, total + 1, one), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemPoolSetAttribute(def, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
	OK(cuStreamSynchronize(one));
}

/* Either free takes what either allocation gave. */
static void test_mixed(void)
{
	CUdeviceptr p = 0, q = 0;
	size_t free0 = 0, free1 = 0, total = 0;

	OK(cuCtxSynchronize());
	OK(cuMemGetInfo_v2(&free0, &total));
	OK(cuMemAllocAsync(&p, 1000, one));
	OK(cuStreamSynchronize(one));
	OK(cuMemFree_v2(p));
	INVALID(cuMemFree_v2(p));
	INVALID(cuMemFreeAsync(p, one));
	OK(cuMemAlloc_v2(&q, 8 * MIB));
	OK(cuMemsetD8Async(q, 1, 8 * MIB, one));
	OK(cuMemFreeAsync(q, one));
	INVALID(cuMemFree_v2(q));
	OK(cuStreamSynchronize(one));
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free1 == free0);
	INVALID(cuMemFreeAsync(0, one));
	INVALID(cuMemFreeAsync((uintptr_t)&p, one));
	INVALID(cuMemAllocAsync(&p, 0, one));
	INVALID(cuMemAllocAsync(NULL, 16, one));
	CHECK_RC(cuMemAllocAsync(&p, SIZE_MAX, one), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_RC(cuMemAllocAsync(&p, 16, (CUstream)&p), CUDA_ERROR_INVALID_HANDLE);
}

static void test_own_pool(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				 .maxSize = 64 * MIB };
	CUmemLocation loc = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
	CUmemLocation host = { CU_MEM_LOCATION_TYPE_HOST, 0 };
	CUmemAccessDesc desc = { { CU_MEM_LOCATION_TYPE_DEVICE, 1 },
				 CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	CUmemoryPool pool = NULL, seen = NULL;
	CUdeviceptr p = 0, q = 0;

	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&p, 40 * MIB, pool, one));
	CHECK_RC(cuMemAllocFromPoolAsync(&q, 40 * MIB, pool, one), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
	CHECK(seen == pool);
	CHECK_INT(USED(pool), 40 * MIB);
	CHECK_INT(USED(def), 0);

	OK(cuDeviceSetMemPool(0, pool));
	OK(cuDeviceGetMemPool(&seen, 0));
	CHECK(seen == pool);
	OK(cuMemAllocAsync(&q, MIB, one));
	CHECK_INT(USED(pool), 41 * MIB);
	OK(cuMemGetDefaultMemPool(&seen, &loc, CU_MEM_ALLOCATION_TYPE_PINNED));
	CHECK(seen == def);
	OK(cuMemGetMemPool(&seen, &loc, CU_MEM_ALLOCATION_TYPE_PINNED));
	CHECK(seen == pool);
	CHECK_RC(cuMemGetMemPool(&seen, &host, CU_MEM_ALLOCATION_TYPE_PINNED),
		 CUDA_ERROR_NOT_SUPPORTED);
	OK(cuMemSetMemPool(&loc, CU_MEM_ALLOCATION_TYPE_PINNED, def));

	OK(cuMemPoolGetAccess(&flags, pool, &loc));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(cuMemPoolSetAccess(pool, &desc, 1));
	OK(cuMemPoolGetAccess(&flags, pool, &desc.location));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	desc.location.id = 0;
	desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	CHECK_RC(cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
	INVALID(cuDeviceSetMemPool(1, pool));

	/* A destroyed pool lives on until its last allocation is freed. */
	OK(cuMemPoolDestroy(pool));
	INVALID(cuMemPoolDestroy(pool));
	INVALID(cuMemAllocFromPoolAsync(&q, 16, pool, one));
	OK(cuMemsetD8Async(p, 1, 40 * MIB, one));
	OK(cuMemFreeAsync(p, one));
	OK(cuMemFreeAsync(q, one));
	OK(cuStreamSynchronize(one));
	INVALID(cuMemPoolDestroy(def));
	props.location.id = 99;
	CHECK_RC(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_DEVICE);
	INVALID(cuMemPoolCreate(NULL, &props));
	props.location = host;
	CHECK_RC(cuMemPoolCreate(&pool, &props), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_RC(cuMemPoolExportPointer(NULL, p), CUDA_ERROR_NOT_SUPPORTED);
}

/* A stream destroyed with frees still pending, and a context with memory in a pool. */
static void test_gone(void)
{
	CUcontext other = NULL;
	CUstream s = NULL;
	CUdeviceptr p = 0;

	atomic_store(&may_go, 0);
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&p, MIB, s));
	OK(cuLaunchHostFunc(s, hold, NULL));
	OK(cuMemFreeAsync(p, s));
	OK(cuStreamDestroy_v2(s));
	atomic_store(&may_go, 1);
	OK(cuCtxSynchronize());
	CHECK_INT(RESERVED(def), 0);

	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuMemAllocAsync(&p, MIB, NULL));
	OK(cuCtxDestroy_v2(other));
	OK(cuCtxSetCurrent(ctx));
	CHECK_INT(RESERVED(def), 0);
	CHECK_INT(USED(def), 0);
	INVALID(cuMemFreeAsync(p, one));
}

static void *churn(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg;
	CUdeviceptr p[16] = { 0 };
	uint32_t back = 0;
	CUstream s = NULL;
	uintptr_t bad = cuCtxSetCurrent(ctx) != CUDA_SUCCESS;

	bad |= cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
	for (uint32_t i = 0; i < 2000 && !bad; i++) {
		CUdeviceptr *at = &p[i % 16];

		seed = seed * 1664525U + 1013904223U;
		if (*at) {
			bad |= cuMemcpyDtoHAsync_v2(&back, *at, 4, s) != CUDA_SUCCESS;
			bad |= back != (uint32_t)(*at >> 8);
			bad |= cuMemFreeAsync(*at, s) != CUDA_SUCCESS;
		}
		bad |= cuMemAllocAsync(at, (seed >> 12) + 4, s) != CUDA_SUCCESS;
		bad |= cuMemsetD32Async(*at, (uint32_t)(*at >> 8), 1, s) != CUDA_SUCCESS;
		if (i % 100 == 99)
			bad |= cuStreamSynchronize(s) != CUDA_SUCCESS;
	}
	for (int i = 0; i < 16; i++)
		bad |= cuMemFreeAsync(p[i], s) != CUDA_SUCCESS;
	bad |= cuStreamSynchronize(s) != CUDA_SUCCESS;
	bad |= cuStreamDestroy_v2(s) != CUDA_SUCCESS;
	return (void *)bad;
}

static void test_threads(void)
{
	pthread_t t[4];
	void *bad = NULL;

	for (uintptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, churn, (void *)(i + 1)) == 0);
	for (int i = 0; i < 4; i++) {
		CHECK(pthread_join(t[i], &bad) == 0);
		CHECK(bad == NULL);
	}
	OK(cuCtxSynchronize());
	CHECK_INT(USED(def), 0);
	CHECK_INT(RESERVED(def), 0);
}

static const struct e2e_test tests[] = {
	{ "contents", test_contents }, { "reuse", test_reuse },	    { "reserve", test_reserve },
	{ "pressure", test_pressure }, { "mixed", test_mixed },	    { "own-pool", test_own_pool },
	{ "gone", test_gone },	       { "threads", test_threads },
};

int main(void)
{
	ctx = open_context(0);
	NEED(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	NEED(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	NEED(cuDeviceGetDefaultMemPool(&def, 0));
	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
