/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run in a vgpu: its limit, to the byte, by every way to get device memory. Argument: the limit in bytes.
 *
 * For each way: what is free can be taken and not one piece more, a refusal changes nothing, no other way gets past what one has taken, and what is
 * given back is there again.
 */
#include "e2e.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define MIB (1024UL * 1024)
#define G   (2 * MIB) /* pieces that every way takes without rounding */

static size_t limit;
static CUcontext context;
static size_t context_cost; /* of the first one */

static size_t free_now(void)
{
	size_t left = 0, total = 0;

	OK(cuMemGetInfo_v2(&left, &total));
	CHECK_INT(total, limit);
	CHECK(left <= total);
	return left;
}

/* ------------------------------------------------------------------------------------------------ the ways */

union held {
	CUdeviceptr ptr;
	CUarray array;
	CUmipmappedArray mipmaps;
	CUmemGenericAllocationHandle handle;
};

static CUresult take_plain(union held *h, size_t size)
{
	return cuMemAlloc_v2(&h->ptr, size);
}

static void give_plain(union held *h)
{
	OK(cuMemFree_v2(h->ptr));
}

static CUresult take_pitch(union held *h, size_t size)
{
	size_t pitch = 0;
	CUresult rc = cuMemAllocPitch_v2(&h->ptr, &pitch, 4096, size / 4096, 4);

	if (rc == CUDA_SUCCESS)
		CHECK_INT(pitch, 4096);
	return rc;
}

static CUresult take_managed(union held *h, size_t size)
{
	return cuMemAllocManaged(&h->ptr, size, CU_MEM_ATTACH_GLOBAL);
}

static CUresult take_array(union held *h, size_t size)
{
	CUDA_ARRAY_DESCRIPTOR d = { .Width = 8192,
				    .Height = size / (8192UL * 16),
				    .Format = CU_AD_FORMAT_FLOAT,
				    .NumChannels = 4 };

	return cuArrayCreate_v2(&h->array, &d);
}

static void give_array(union held *h)
{
	OK(cuArrayDestroy(h->array));
}

static CUresult take_cube(union held *h, size_t size)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 256,
				      .Height = 256,
				      .Depth = size / (256UL * 256 * 4),
				      .Format = CU_AD_FORMAT_FLOAT,
				      .NumChannels = 1 };

	return cuArray3DCreate_v2(&h->array, &d);
}

static CUresult take_physical(union held *h, size_t size)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };

	return cuMemCreate(&h->handle, size, &prop, 0);
}

static void give_physical(union held *h)
{
	OK(cuMemRelease(h->handle));
}

/* What a pool has reserved counts, so the pool gives back what it does not need before others look. */
static CUresult take_async(union held *h, size_t size)
{
	CUresult rc = cuMemAllocAsync(&h->ptr, size, NULL);

	OK(cuStreamSynchronize(NULL));
	return rc;
}

static void give_async(union held *h)
{
	CUmemoryPool pool = NULL;

	OK(cuMemFreeAsync(h->ptr, NULL));
	OK(cuStreamSynchronize(NULL));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolTrimTo(pool, 0));
}

static CUmemoryPool own_pool;

static CUresult take_pool(union held *h, size_t size)
{
	CUresult rc = cuMemAllocFromPoolAsync(&h->ptr, size, own_pool, NULL);

	OK(cuStreamSynchronize(NULL));
	return rc;
}

static void give_pool(union held *h)
{
	OK(cuMemFreeAsync(h->ptr, NULL));
	OK(cuStreamSynchronize(NULL));
	OK(cuMemPoolTrimTo(own_pool, 0));
}

static const struct way {
	const char *name;
	CUresult (*take)(union held *, size_t);
	void (*give)(union held *);
	size_t piece; /* sizes are multiples of this */
} ways[] = {
	{ "cuMemAlloc", take_plain, give_plain, G },
	{ "cuMemAllocPitch", take_pitch, give_plain, G },
	{ "cuMemAllocManaged", take_managed, give_plain, G },
	{ "cuArrayCreate", take_array, give_array, G },
	{ "cuArray3DCreate", take_cube, give_array, G },
	{ "cuMemCreate", take_physical, give_physical, G },
	{ "cuMemAllocAsync", take_async, give_async, 32 * MIB },
	{ "cuMemAllocFromPoolAsync", take_pool, give_pool, 32 * MIB },
};

#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void check_way(const struct way *w)
{
	size_t before = free_now();
	size_t fit = before / w->piece * w->piece;
	union held all = { 0 }, more = { 0 };

	CHECK_RC(w->take(&more, fit + w->piece), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_INT(free_now(), before);
	CHECK_RC(w->take(&all, fit), CUDA_SUCCESS);
	CHECK_INT(free_now(), before - fit);
	/* Nobody else gets a piece more than is left. */
	for (size_t i = 0; i < WAYS; i++) {
		size_t piece = ways[i].piece;

		if (before - fit >= piece)
			continue;
		CHECK_RC(ways[i].take(&more, piece), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_INT(free_now(), before - fit);
	}
	w->give(&all);
	CHECK_INT(free_now(), before);
}

#define WAY(n)                         \
	static void test_way_##n(void) \
	{                              \
		check_way(&ways[n]);   \
	}
WAY(0)
WAY(1)
WAY(2)
WAY(3)
WAY(4)
WAY(5)
WAY(6)
WAY(7)

/* ------------------------------------------------------------------------------------------------ more of it */

static void test_view(void)
{
	size_t bytes = 0;

	OK(cuDeviceTotalMem_v2(&bytes, 0));
	CHECK_INT(bytes, limit);
	(void)free_now();
}

/* The same figures from NVML, where the stand-in for it is there. */
static void test_nvml(void)
{
	struct {
		unsigned long long total, free, used;
	} memory = { 0 };
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	int (*init)(void);
	int (*by_index)(unsigned, void **);
	int (*info)(void *, void *);
	void *device = NULL;

	if (!getenv("AQ_NVML_SHIM"))
		return;
	CHECK(lib != NULL);
	if (!lib)
		return;
	*(void **)&init = dlsym(lib, "nvmlInit_v2");
	*(void **)&by_index = dlsym(lib, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&info = dlsym(lib, "nvmlDeviceGetMemoryInfo");
	CHECK_INT(init(), 0);
	CHECK_INT(by_index(0, &device), 0);
	CHECK_INT(info(device, &memory), 0);
	CHECK_INT(memory.total, limit);
	CHECK_INT(memory.free, free_now());
	CHECK_INT(memory.used, limit - memory.free);
}

/* Physical memory stays charged until its mapping is gone, too, in either order. */
static void test_mapped(void)
{
	CUmemAccessDesc rw = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
			       CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	size_t before = free_now();

	for (int release_first = 0; release_first < 2; release_first++) {
		union held h = { 0 };
		CUdeviceptr at = 0;

		OK(take_physical(&h, 4 * G));
		OK(cuMemAddressReserve(&at, 4 * G, 0, 0, 0));
		OK(cuMemMap(at, 4 * G, 0, h.handle, 0));
		OK(cuMemSetAccess(at, 4 * G, &rw, 1));
		CHECK_INT(free_now(), before - 4 * G);
		if (release_first)
			give_physical(&h);
		else
			OK(cuMemUnmap(at, 4 * G));
		CHECK_INT(free_now(), before - 4 * G);
		if (release_first)
			OK(cuMemUnmap(at, 4 * G));
		else
			give_physical(&h);
		CHECK_INT(free_now(), before);
		OK(cuMemAddressFree(at, 4 * G));
	}
}

/* What a graph's allocations take, from instantiation until the graph memory is trimmed. */
static void test_graph(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = { .poolProps = {
						 .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
						 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } } };
	size_t before = free_now();
	CUgraphNode alloc, release;
	CUgraphExec exec = NULL;
	CUgraph graph;
	CUresult rc;

	p.bytesize = before + G;
	rc = cuGraphCreate(&graph, 0);
	if (rc == CUDA_ERROR_NOT_SUPPORTED)
		return; /* a card without graphs */
	OK(rc);
	rc = cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &p);
	if (rc == CUDA_ERROR_NOT_SUPPORTED) {
		/* Refused in a vgpu: nothing to get past the limit by. */
		OK(cuGraphDestroy(graph));
		CHECK_INT(free_now(), before);
		return;
	}
	OK(rc);
	OK(cuGraphAddMemFreeNode(&release, graph, &alloc, 1, p.dptr));
	rc = cuGraphInstantiateWithFlags(&exec, graph, 0);
	if (rc == CUDA_SUCCESS)
		rc = cuGraphLaunch(exec, NULL);
	CHECK(rc == CUDA_ERROR_OUT_OF_MEMORY || rc == CUDA_ERROR_NOT_SUPPORTED);
	if (exec)
		OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuDeviceGraphMemTrim(0));
	CHECK_INT(free_now(), before);
}

static void test_nonsense(void)
{
	size_t before = free_now();
	union held h = { 0 };

	CHECK_RC(cuMemAlloc_v2(&h.ptr, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_RC(cuMemAlloc_v2(&h.ptr, SIZE_MAX - before), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_RC(cuMemAlloc_v2(&h.ptr, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuMemAlloc_v2(NULL, G), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuMemAllocPitch_v2(&h.ptr, &before, SIZE_MAX / 2, SIZE_MAX / 2, 4),
		 CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuMemFree_v2(12345) != CUDA_SUCCESS);
	OK(cuMemFree_v2(0));
}

/* Small pieces until nothing is left: they are never more than the limit, and all come back. */
static void test_small(void)
{
	static CUdeviceptr piece[8192];
	size_t before = free_now(), left;
	union held most_of_it = { 0 };
	unsigned n = 0;
	CUresult rc = CUDA_SUCCESS;

	OK(take_plain(&most_of_it, (before - 8 * G) / G * G));
	left = free_now();
	while (n < sizeof(piece) / sizeof(piece[0])) {
		rc = cuMemAlloc_v2(&piece[n], 4096);
		if (rc != CUDA_SUCCESS)
			break;
		n++;
	}
	CHECK_RC(rc, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(n * 4096UL <= left && n * 4096UL + G > left);
	CHECK(free_now() < 4096 + G);
	for (unsigned i = 0; i < n; i++)
		OK(cuMemFree_v2(piece[i]));
	CHECK_INT(free_now(), left);
	give_plain(&most_of_it);
	CHECK_INT(free_now(), before);
}

#define THREADS 8

static _Atomic size_t held_by_threads;
static _Atomic size_t most;

static void *grab(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	if (cuCtxSetCurrent(context) != CUDA_SUCCESS)
		return arg;
	for (unsigned i = 0; i < 300; i++) {
		size_t size;
		CUdeviceptr p;

		seed = seed * 1664525U + 1013904223U;
		size = (1 + (seed >> 24) % 32) * G;
		if (cuMemAlloc_v2(&p, size) == CUDA_SUCCESS) {
			size_t sum = __atomic_add_fetch((size_t *)&held_by_threads, size,
							__ATOMIC_SEQ_CST);
			size_t seen = most;

			while (sum > seen &&
			       !__atomic_compare_exchange_n((size_t *)&most, &seen, sum, false,
							    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
				;
			(void)__atomic_sub_fetch((size_t *)&held_by_threads, size,
						 __ATOMIC_SEQ_CST);
			if (cuMemFree_v2(p) != CUDA_SUCCESS)
				return arg;
		}
	}
	return NULL;
}

/* Threads that take and give at once: together never more than was free, and nothing is lost. */
static void test_threads(void)
{
	size_t before = free_now();
	pthread_t thread[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_INT(pthread_create(&thread[i], NULL, grab, (void *)(i + 1)), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		void *failed = NULL;

		CHECK_INT(pthread_join(thread[i], &failed), 0);
		CHECK(failed == NULL);
	}
	CHECK(most <= before);
	CHECK_INT(free_now(), before);
}

/* Another context costs, and gives back, what it costs. */
static void test_contexts(void)
{
	size_t before = free_now();
	CUcontext second = NULL;
	size_t with;

	OK(cuCtxCreate_v2(&second, 0, 0));
	with = free_now();
	/* Before the creating call returns, not when the watchdog comes by. */
	CHECK(context_cost > 0 && before - with >= context_cost);
	OK(cuCtxDestroy_v2(second));
	OK(cuCtxSetCurrent(context));
	/* Overhead is corrected only upwards; never does what is free rise by what was not freed. */
	CHECK(free_now() <= before);
}

int main(int argc, char **argv)
{
	static const struct e2e_test tests[] = {
		{ "what the program sees", test_view },
		{ "the same from NVML", test_nvml },
		{ "cuMemAlloc", test_way_0 },
		{ "cuMemAllocPitch", test_way_1 },
		{ "cuMemAllocManaged", test_way_2 },
		{ "cuArrayCreate", test_way_3 },
		{ "cuArray3DCreate", test_way_4 },
		{ "cuMemCreate", test_way_5 },
		{ "cuMemAllocAsync", test_way_6 },
		{ "cuMemAllocFromPoolAsync", test_way_7 },
		{ "physical memory and its mapping", test_mapped },
		{ "graphs", test_graph },
		{ "sizes that make no sense", test_nonsense },
		{ "small pieces", test_small },
		{ "threads", test_threads },
		{ "another context", test_contexts },
	};
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	size_t left = 0;

	if (argc != 2 || cuInit(0) != CUDA_SUCCESS ||
	    cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
	    cuCtxSetCurrent(context) != CUDA_SUCCESS ||
	    cuMemGetInfo_v2(&left, &limit) != CUDA_SUCCESS ||
	    cuMemPoolCreate(&own_pool, &props) != CUDA_SUCCESS) {
		(void)printf("Bail out! no card, or no limit given\n");
		return 1;
	}
	context_cost = limit - left;
	limit = strtoul(argv[1], NULL, 10);
	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
