/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One program in an instance with 64 MiB beside its context (AQ_TEST_TOTAL: bytes in all, where contexts cost something): every way to get
 * device memory stops at the limit, and every way to give it back counts.
 */
#include "e2e/e2e.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB   (1ULL << 20)
#define LIMIT (64 * MIB)

static uint64_t
	room; /* what is free when nothing is allocated: less by what a second context has cost */
static CUdevice dev;
static CUcontext ctx;

static uint64_t total_bytes(void)
{
	const char *text = getenv("AQ_TEST_TOTAL");

	return text ? strtoull(text, NULL, 10) : LIMIT;
}

static size_t free_now(void)
{
	size_t left = 0;
	size_t total = 0;

	OK(cuMemGetInfo_v2(&left, &total));
	CHECK_INT(total, total_bytes());
	return left;
}

#define ALL_FREE() CHECK_INT(free_now(), room)

static void test_view(void)
{
	size_t bytes = 0;
	unsigned v1 = 0;

	OK(cuDeviceTotalMem_v2(&bytes, dev));
	CHECK_INT(bytes, total_bytes());
	OK(cuDeviceTotalMem(&v1, dev));
	CHECK_INT(v1, total_bytes());
	room = free_now();
	CHECK_INT(room, LIMIT);
	ALL_FREE();
}

static void test_exact(void)
{
	CUdeviceptr a = 0;
	CUdeviceptr b = 0;

	CHECK_RC(cuMemAlloc_v2(&a, LIMIT + 1), CUDA_ERROR_OUT_OF_MEMORY);
	ALL_FREE();
	OK(cuMemAlloc_v2(&a, LIMIT));
	CHECK_INT(free_now(), 0);
	CHECK_RC(cuMemAlloc_v2(&b, 1), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(a));
	ALL_FREE();
	CHECK_RC(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuMemAlloc_v2(&a, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuMemAlloc_v2(&a, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_RC(cuMemFree_v2(0x1234567), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(0));
	ALL_FREE();
}

static void test_linear(void)
{
	CUdeviceptr p = 0;
	size_t pitch = 0;

	OK(cuMemAllocManaged(&p, 48 * MIB, CU_MEM_ATTACH_GLOBAL));
	CHECK_INT(free_now(), 16 * MIB);
	CHECK_RC(cuMemAllocPitch_v2(&p, &pitch, 1 << 20, 17, 4), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(p));
	OK(cuMemAllocPitch_v2(&p, &pitch, 1000, 1000, 4));
	CHECK_INT(free_now(), LIMIT - ((pitch * 1000 + 511) & ~511ULL));
	OK(cuMemFree_v2(p));
	ALL_FREE();
}

static void test_host(void)
{
	void *p = NULL;

	/* Host memory is not device memory. */
	OK(cuMemAllocHost_v2(&p, 80 * MIB));
	ALL_FREE();
	OK(cuMemFreeHost(p));
	OK(cuMemHostAlloc(&p, 80 * MIB, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemFreeHost(p));
}

static void test_arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR one = { .Width = 65536,
				      .Format = CU_AD_FORMAT_FLOAT,
				      .NumChannels = 4 };
	CUDA_ARRAY3D_DESCRIPTOR three = { .Width = 512,
					  .Height = 512,
					  .Depth = 512,
					  .Format = CU_AD_FORMAT_FLOAT,
					  .NumChannels = 1 };
	CUarray a[70];
	CUmipmappedArray m = NULL;
	int n = 0;

	/* One-dimensional: its height is 0, its size is not. */
	while (n < 70 && cuArrayCreate_v2(&a[n], &one) == CUDA_SUCCESS)
		n++;
	CHECK_INT(n, 64);
	CHECK_INT(free_now(), 0);
	while (n > 0)
		OK(cuArrayDestroy(a[--n]));
	ALL_FREE();
	CHECK_RC(cuArray3DCreate_v2(&a[0], &three), CUDA_ERROR_OUT_OF_MEMORY);
	three.Depth = 32;
	OK(cuArray3DCreate_v2(&a[0], &three));
	CHECK_INT(free_now(), LIMIT - 32 * MIB);
	OK(cuArrayDestroy(a[0]));
	three.Depth = 0;
	three.Width = three.Height = 4096;
	CHECK_RC(cuMipmappedArrayCreate(&m, &three, 13), CUDA_ERROR_OUT_OF_MEMORY);
	three.Width = three.Height = 1024;
	OK(cuMipmappedArrayCreate(&m, &three, 11));
	CHECK(free_now() <= LIMIT - 4 * MIB * 4 / 3);
	OK(cuMipmappedArrayDestroy(m));
	ALL_FREE();
}

static void test_pools(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, dev } };
	CUmemoryPool pool = NULL;
	CUmemoryPool def = NULL;
	CUdeviceptr p = 0;
	CUdeviceptr q = 0;
	cuuint64_t keep = UINT64_MAX;

	CHECK_RC(cuMemAllocAsync(&p, 65 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAllocAsync(&p, 40 * MIB, NULL));
	CHECK(free_now() <= 24 * MIB);
	CHECK_RC(cuMemAlloc_v2(&q, 30 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	/* Legal: the other kind's call. */
	OK(cuMemFree_v2(p));
	OK(cuStreamSynchronize(NULL));
	OK(cuDeviceGetDefaultMemPool(&def, dev));
	OK(cuMemPoolTrimTo(def, 0));
	ALL_FREE();
	OK(cuMemAlloc_v2(&q, 60 * MIB));
	OK(cuMemFreeAsync(q, NULL));
	OK(cuStreamSynchronize(NULL));
	ALL_FREE();

	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemAllocFromPoolAsync(&p, 33 * MIB, pool, NULL));
	CHECK_RC(cuMemAllocFromPoolAsync(&q, 33 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFreeAsync(p, NULL));
	OK(cuStreamSynchronize(NULL));
	/* The pool keeps it, so it counts; and what the pool has unused needs no room. */
	CHECK(free_now() <= 31 * MIB);
	OK(cuMemAllocFromPoolAsync(&q, 33 * MIB, pool, NULL));
	OK(cuMemFreeAsync(q, NULL));
	OK(cuStreamSynchronize(NULL));
	OK(cuMemPoolTrimTo(pool, 0));
	ALL_FREE();
	/* A pool that goes before its memory. */
	OK(cuMemAllocFromPoolAsync(&p, 10 * MIB, pool, NULL));
	OK(cuMemPoolDestroy(pool));
	CHECK(free_now() <= 54 * MIB);
	OK(cuMemFreeAsync(p, NULL));
	OK(cuCtxSynchronize());
	ALL_FREE();
}

/* A pool that would have to grow over the limit for something small: refused, and nothing stays. */
static void test_pool_growth(void)
{
	CUdeviceptr big = 0;
	CUdeviceptr p[3] = { 0 };
	size_t left;

	OK(cuMemAlloc_v2(&big, room - 3 * MIB));
	for (int i = 0; i < 3; i++) {
		CUresult rc = cuMemAllocAsync(&p[i], MIB, NULL);

		CHECK(rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK((rc == CUDA_SUCCESS) == (p[i] != 0));
	}
	left = free_now();
	CHECK(left <= 3 * MIB);
	for (int i = 0; i < 3; i++)
		if (p[i])
			OK(cuMemFreeAsync(p[i], NULL));
	OK(cuMemFree_v2(big));
	OK(cuStreamSynchronize(NULL));
	ALL_FREE();
}

static void *pool_race(void *arg)
{
	CUstream stream = NULL;
	CUdeviceptr held[16];
	int n = 0;
	unsigned seed = (unsigned)(uintptr_t)arg;

	OK(cuCtxSetCurrent(ctx));
	OK(cuStreamCreate(&stream, 0));
	for (int round = 0; round < 100; round++) {
		seed = seed * 1103515245 + 12345;
		if (n < 16 && (seed >> 16) % 3) {
			CUresult rc =
				cuMemAllocAsync(&held[n], ((seed >> 18) % 8 + 1) * MIB, stream);

			CHECK(rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY);
			n += rc == CUDA_SUCCESS;
		} else if (n > 0) {
			OK(cuMemFreeAsync(held[--n], stream));
		}
		if (round % 10 == 0)
			OK(cuStreamSynchronize(stream));
	}
	while (n > 0)
		OK(cuMemFreeAsync(held[--n], stream));
	OK(cuStreamSynchronize(stream));
	OK(cuStreamDestroy_v2(stream));
	return NULL;
}

static void test_pool_threads(void)
{
	CUmemoryPool def = NULL;
	pthread_t t[4];

	for (uintptr_t i = 0; i < 4; i++)
		CHECK_INT(pthread_create(&t[i], NULL, pool_race, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++)
		(void)pthread_join(t[i], NULL);
	OK(cuDeviceGetDefaultMemPool(&def, dev));
	OK(cuMemPoolTrimTo(def, 0));
	ALL_FREE();
}

static CUmemGenericAllocationHandle object(size_t size, CUresult want)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, dev } };
	CUmemGenericAllocationHandle h = 0;

	CHECK_RC(cuMemCreate(&h, size, &prop, 0), want);
	return h;
}

static void test_vmm(void)
{
	CUmemGenericAllocationHandle h[4];
	CUmemGenericAllocationHandle again = 0;
	CUdeviceptr va = 0;

	(void)object(66 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAddressReserve(&va, 64 * MIB, 0, 0, 0));
	ALL_FREE();
	/* As llama.cpp's pool does: the handle goes at once, the mapping holds the memory. */
	for (int i = 0; i < 4; i++) {
		h[i] = object(16 * MIB, CUDA_SUCCESS);
		OK(cuMemMap(va + (CUdeviceptr)i * 16 * MIB, 16 * MIB, 0, h[i], 0));
		OK(cuMemRelease(h[i]));
	}
	CHECK_INT(free_now(), 0);
	(void)object(2 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemUnmap(va, 64 * MIB));
	ALL_FREE();
	/* The other order, and a handle more. */
	h[0] = object(32 * MIB, CUDA_SUCCESS);
	OK(cuMemMap(va, 32 * MIB, 0, h[0], 0));
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)va));
	OK(cuMemUnmap(va, 32 * MIB));
	CHECK_INT(free_now(), 32 * MIB);
	OK(cuMemRelease(h[0]));
	CHECK_INT(free_now(), 32 * MIB);
	OK(cuMemRelease(again));
	ALL_FREE();
	OK(cuMemAddressFree(va, 64 * MIB));
}

static void test_context(void)
{
	CUDA_ARRAY_DESCRIPTOR one = { .Width = 65536,
				      .Format = CU_AD_FORMAT_FLOAT,
				      .NumChannels = 4 };
	CUcontext other = NULL;
	CUdeviceptr p = 0;
	CUarray a = NULL;

	OK(cuCtxCreate_v2(&other, 0, dev));
	/* What it costs stays: overhead is only corrected upwards. */
	room = free_now();
	OK(cuMemAlloc_v2(&p, 20 * MIB));
	OK(cuArrayCreate_v2(&a, &one));
	CHECK_INT(free_now(), room - 21 * MIB);
	OK(cuCtxDestroy_v2(other));
	OK(cuCtxSetCurrent(ctx));
	ALL_FREE();
	OK(cuMemAlloc_v2(&p, room));
	OK(cuMemFree_v2(p));
}

static void test_procaddr(void)
{
	CUdriverProcAddressQueryResult status;
	CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	void *fn = NULL;

	CHECK(lib != NULL);
	*(void **)&get = dlsym(lib, "cuGetProcAddress_v2");
	OK(get("cuMemAlloc", &fn, 12000, 0, &status));
	CHECK(fn == dlsym(lib, "cuMemAlloc_v2"));
	OK(get("cuMemAllocAsync", &fn, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
	       &status));
	CHECK(fn == dlsym(lib, "cuMemAllocAsync_ptsz"));
	OK(get("cuCtxCreate", &fn, 12000, 0, &status));
	CHECK(fn == dlsym(lib, "cuCtxCreate_v3"));
	/* Newer than the table. */
	OK(get("cuMemAlloc", &fn, 13000, 0, &status));
	CHECK_RC(get("cuMemAllocOnMars", &fn, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	CHECK(fn == NULL);
	CHECK_INT(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	CHECK_RC(get("cuNoSuchThing", &fn, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
}

static void test_refused(void)
{
	CUmemGenericAllocationHandle h = 0;
	CUmulticastObjectProp prop = { .numDevices = 2, .size = 2 * MIB };
	CUexternalMemory ext = NULL;

	CHECK_RC(cuMulticastCreate(&h, &prop), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_RC(cuImportExternalMemory(&ext, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

static _Atomic int got;

static void *race(void *arg)
{
	CUdeviceptr held[64];
	int n = 0;

	(void)arg;
	OK(cuCtxSetCurrent(ctx));
	for (int round = 0; round < 200; round++) {
		if (n < 64 && cuMemAlloc_v2(&held[n], MIB) == CUDA_SUCCESS) {
			n++;
			CHECK(++got <= (int)(room / MIB));
		} else if (n > 0) {
			got--;
			OK(cuMemFree_v2(held[--n]));
		}
	}
	while (n > 0) {
		got--;
		OK(cuMemFree_v2(held[--n]));
	}
	return NULL;
}

static void test_threads(void)
{
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		CHECK_INT(pthread_create(&t[i], NULL, race, NULL), 0);
	for (int i = 0; i < 4; i++)
		(void)pthread_join(t[i], NULL);
	ALL_FREE();
}

static void test_set_limit(void)
{
	size_t heap = 0;

	OK(cuCtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE));
	CHECK_RC(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + 65 * MIB),
		 CUDA_ERROR_OUT_OF_MEMORY);
}

/* A restart of the daemon: new pages, the numbers come along. */
static void test_restart(void)
{
	pid_t host = (pid_t)strtol(getenv("AQ_HOST_PID"), NULL, 10);
	CUdeviceptr p = 0;
	CUdeviceptr q = 0;

	OK(cuMemAlloc_v2(&p, 40 * MIB));
	CHECK_INT(kill(host, SIGUSR1), 0);
	(void)usleep(300000);
	CHECK_INT(free_now(), 24 * MIB);
	CHECK_RC(cuMemAlloc_v2(&q, 25 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(p));
	ALL_FREE();
}

/* Live: half the limit from now on. Below use: nothing underflows, new ones are refused. Last, for it stays. */
static void test_resize(void)
{
	pid_t host = (pid_t)strtol(getenv("AQ_HOST_PID"), NULL, 10);
	CUdeviceptr p = 0;
	CUdeviceptr q = 0;
	size_t left = 1;
	size_t total = 0;

	OK(cuMemAlloc_v2(&p, 40 * MIB));
	CHECK_INT(kill(host, SIGUSR2), 0);
	(void)usleep(100000);
	OK(cuMemGetInfo_v2(&left, &total));
	CHECK_INT(total, 32 * MIB);
	CHECK_INT(left, 0);
	CHECK_RC(cuMemAlloc_v2(&q, 1), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(p));
	OK(cuMemAlloc_v2(&q, 32 * MIB));
	OK(cuMemFree_v2(q));
}

/* A process that is forked before cuInit is its own client; its parent's books do not count in it, and its end is not its parent's. */
static void test_fork(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		CUdeviceptr p = 0;
		CUdeviceptr q = 0;
		int bad = cuInit(0) != CUDA_SUCCESS;

		bad |= cuDevicePrimaryCtxRetain(&ctx, 0) != CUDA_SUCCESS ||
		       cuCtxSetCurrent(ctx) != CUDA_SUCCESS;
		bad |= (cuMemAlloc_v2(&p, 48 * MIB) != CUDA_SUCCESS) << 1;
		bad |= (cuMemAlloc_v2(&q, 48 * MIB) != CUDA_ERROR_OUT_OF_MEMORY) << 2;
		_exit(bad);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(status, 0);
}

int main(void)
{
	static const struct e2e_test tests[] = {
		{ "view", test_view },
		{ "exact", test_exact },
		{ "linear", test_linear },
		{ "host memory", test_host },
		{ "arrays", test_arrays },
		{ "pools", test_pools },
		{ "growth of a pool", test_pool_growth },
		{ "threads on a pool", test_pool_threads },
		{ "virtual memory", test_vmm },
		{ "context", test_context },
		{ "cuGetProcAddress", test_procaddr },
		{ "refused", test_refused },
		{ "threads", test_threads },
		{ "limits of a context", test_set_limit },
		{ "restart", test_restart },
		{ "resize", test_resize },
	};
	static const struct e2e_test before[] = { { "fork before init", test_fork } };
	int version = 0;

	/* The library starts, the driver does not. */
	(void)cuDriverGetVersion(&version);
	if (getenv("AQ_TEST_FORK"))
		return e2e_run(before, 1);
	if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&dev, 0) != CUDA_SUCCESS ||
	    cuDevicePrimaryCtxRetain(&ctx, dev) != CUDA_SUCCESS ||
	    cuCtxSetCurrent(ctx) != CUDA_SUCCESS) {
		(void)printf("Bail out! no context\n");
		return 1;
	}
	/* The last two need a daemon that takes orders by signals. */
	return e2e_run(tests,
		       (int)(sizeof(tests) / sizeof(tests[0])) - (getenv("AQ_HOST_PID") ? 0 : 2));
}
