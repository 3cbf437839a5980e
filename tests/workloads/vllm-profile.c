/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How vLLM starts and sleeps. It reads free memory, loads weights, runs a forward pass at the largest size, reads free memory again, stops if that
 * has risen, and takes what is left of 90 % of the card for its cache. Asleep it has given physical memory back and kept the addresses, which
 * recorded graphs hold.
 */
#include "caching.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define LAYERS 8

static CUdevice dev;

/*
 * Another thread that looks at free memory all the time: between two looks it may rise only if memory was allowed to be freed. The count is odd
 * while that is so.
 */
static struct {
	pthread_t thread;
	atomic_bool stop;
	atomic_uint frees;
	atomic_uint rises, reads, failures;
} watch;

static void watch_allow(bool frees)
{
	if (frees != (atomic_load(&watch.frees) & 1))
		atomic_fetch_add(&watch.frees, 1);
}

static void *watch_free(void *arg)
{
	unsigned since = atomic_load(&watch.frees);
	size_t last = SIZE_MAX;
	size_t total = 0;
	size_t now = 0;

	while (!atomic_load(&watch.stop)) {
		unsigned before = atomic_load(&watch.frees);

		if (cuMemGetInfo_v2(&now, &total) != CUDA_SUCCESS || now > total) {
			atomic_fetch_add(&watch.failures, 1);
			break;
		}
		if (now > last && !(since & 1) && atomic_load(&watch.frees) == since)
			atomic_fetch_add(&watch.rises, 1);
		last = now;
		since = before;
		atomic_fetch_add(&watch.reads, 1);
	}
	(void)arg;
	return NULL;
}

static void *watch_with_context(void *ctx)
{
	return cuCtxSetCurrent(ctx) == CUDA_SUCCESS ? watch_free(NULL) : NULL;
}

static void watch_begin(CUcontext ctx)
{
	atomic_store(&watch.stop, false);
	CHECK_INT(pthread_create(&watch.thread, NULL, watch_with_context, ctx), 0);
}

static void watch_end(void)
{
	atomic_store(&watch.stop, true);
	(void)pthread_join(watch.thread, NULL);
	CHECK_INT(atomic_load(&watch.rises), 0);
	CHECK_INT(atomic_load(&watch.failures), 0);
	CHECK(atomic_load(&watch.reads) > 0);
}

/* A pass through all layers: two activations live at a time, the largest in the middle. */
static void forward(struct caching *c, size_t largest)
{
	CUdeviceptr in = 0;
	CUdeviceptr out = 0;

	OK(caching_alloc(c, largest / 4, NULL, 0, &in));
	for (unsigned i = 0; i < LAYERS; i++) {
		OK(caching_alloc(c, i == LAYERS / 2 ? largest : largest / 4, NULL, 0, &out));
		OK(cuMemsetD8_v2(out, (unsigned char)i, 4096));
		caching_release(c, in);
		in = out;
	}
	OK(cuCtxSynchronize());
	caching_release(c, in);
}

static void test_profile(void)
{
	size_t at_first = wl_free();
	size_t total = wl_total();
	struct caching *c = caching_new(dev, false);
	CUcontext ctx = NULL;
	CUdeviceptr weights[LAYERS] = { 0 };
	CUdeviceptr cache[LAYERS] = { 0 };
	CUdeviceptr p = 0;
	size_t weight = total / 4 / LAYERS & -512UL;
	size_t loaded;
	size_t profiled;
	size_t used;
	size_t block;

	OK(cuCtxGetCurrent(&ctx));
	watch_begin(ctx);
	for (unsigned i = 0; i < LAYERS; i++) {
		OK(caching_alloc(c, weight, NULL, 0, &weights[i]));
		wl_stamp(weights[i], weight, i);
	}
	loaded = wl_free();
	CHECK_INT(at_first - loaded, caching_stats(c)->reserved);
	forward(c, total / 8);
	profiled = wl_free();
	CHECK(profiled <= loaded);
	watch_allow(true);
	caching_empty(c, 0);
	watch_allow(false);
	CHECK(wl_free() >= profiled && wl_free() <= loaded);

	/* The cache: nine tenths of all, less the highest use so far. */
	used = total - at_first + caching_stats(c)->peak;
	CHECK(total * 9 / 10 > used);
	block = (total * 9 / 10 - used) / LAYERS & -G;
	for (unsigned i = 0; i < LAYERS; i++) {
		OK(caching_alloc(c, block, NULL, 0, &cache[i]));
		wl_stamp(cache[i], block, 100 + i);
	}
	/* What was measured is there: the pass runs beside the cache, again and again (an allocator may give idle segments back for it). */
	watch_allow(true);
	for (unsigned i = 0; i < 5; i++)
		forward(c, total / 8);
	CHECK_INT(caching_stats(c)->ooms, 0);
	for (unsigned i = 0; i < LAYERS; i++) {
		CHECK(wl_stamped(weights[i], weight, i));
		CHECK(wl_stamped(cache[i], block, 100 + i));
	}
	/* And no more than there is. */
	CHECK_RC(caching_alloc(c, total / 2, NULL, 0, &p), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_INT(caching_done(c), 0);
	watch_end();
	CHECK_INT(wl_free(), at_first);
}

/* ---- sleep ---- */

struct tensor {
	CUdeviceptr va;
	size_t size;
	CUmemGenericAllocationHandle handle;
	bool kept; /* its contents outlive the sleep */
	void *host;
};

static CUresult tensor_new(struct tensor *t, size_t size, bool kept)
{
	CUresult rc;

	*t = (struct tensor){ .size = size, .kept = kept };
	OK(cuMemAddressReserve(&t->va, size, 0, 0, 0));
	rc = wl_back(t->va, size, dev, &t->handle);
	if (rc != CUDA_SUCCESS)
		OK(cuMemAddressFree(t->va, size));
	return rc;
}

static void tensor_sleep(struct tensor *t)
{
	if (t->kept) {
		OK(cuMemAllocHost_v2(&t->host, t->size));
		OK(cuMemcpyDtoH_v2(t->host, t->va, t->size));
	}
	OK(cuCtxSynchronize());
	OK(cuMemUnmap(t->va, t->size));
	OK(cuMemRelease(t->handle));
	t->handle = 0;
}

static CUresult tensor_wake(struct tensor *t)
{
	CUresult rc = wl_back(t->va, t->size, dev, &t->handle);

	if (rc == CUDA_SUCCESS && t->kept) {
		OK(cuMemcpyHtoD_v2(t->va, t->host, t->size));
		OK(cuMemFreeHost(t->host));
		t->host = NULL;
	}
	return rc;
}

static void tensor_free(struct tensor *t)
{
	OK(cuMemUnmap(t->va, t->size));
	OK(cuMemRelease(t->handle));
	OK(cuMemAddressFree(t->va, t->size));
}

static void test_sleep(void)
{
	size_t at_first = wl_free();
	size_t size = 16 * MIB;
	struct tensor t[LAYERS] = { 0 };
	CUdeviceptr other = 0;
	size_t awake;

	for (unsigned i = 0; i < LAYERS; i++) {
		OK(tensor_new(&t[i], size, i % 2 == 0));
		wl_stamp(t[i].va, size, i);
	}
	awake = wl_free();
	CHECK_INT(at_first - awake, LAYERS * size);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < LAYERS; i++)
			tensor_sleep(&t[i]);
		CHECK_INT(wl_free(), at_first);
		CHECK_RC(cuMemsetD8_v2(t[0].va, 0, 16), CUDA_ERROR_INVALID_VALUE);
		/* Somebody else has the memory meanwhile: a trainer in the same process. */
		OK(cuMemAlloc_v2(&other, at_first - 2 * size));
		wl_stamp(other, at_first - 2 * size, 77);
		OK(tensor_wake(&t[0]));
		OK(tensor_wake(&t[1]));
		CHECK_RC(tensor_wake(&t[2]), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_INT(wl_free(), 0);
		CHECK(wl_stamped(other, at_first - 2 * size, 77));
		OK(cuMemFree_v2(other));
		for (unsigned i = 2; i < LAYERS; i++)
			OK(tensor_wake(&t[i]));
		CHECK_INT(wl_free(), awake);
		for (unsigned i = 0; i < LAYERS; i++) {
			if (!t[i].kept)
				wl_stamp(t[i].va, size, i);
			CHECK(wl_stamped(t[i].va, size, i));
		}
	}
	for (unsigned i = 0; i < LAYERS; i++)
		tensor_free(&t[i]);
	CHECK_INT(wl_free(), at_first);
}

/* The handle released first, the mapping last, and the reverse: memory is gone with the later of the two. */
static void test_order(void)
{
	size_t at_first = wl_free();
	struct tensor t;

	OK(tensor_new(&t, 8 * G, false));
	OK(cuMemRelease(t.handle));
	CHECK_INT(at_first - wl_free(), 8 * G);
	wl_stamp(t.va, t.size, 1);
	CHECK(wl_stamped(t.va, t.size, 1));
	OK(cuMemUnmap(t.va, t.size));
	CHECK_INT(wl_free(), at_first);
	OK(wl_back(t.va, t.size, dev, &t.handle));
	OK(cuMemUnmap(t.va, t.size));
	CHECK_INT(at_first - wl_free(), 8 * G);
	OK(cuMemMap(t.va, t.size, 0, t.handle, 0));
	OK(wl_allow(t.va, t.size, dev));
	tensor_free(&t);
	CHECK_INT(wl_free(), at_first);
}

int main(int argc, char **argv)
{
	static const struct e2e_test tests[] = {
		{ "profiling run and cache", test_profile },
		{ "sleep and wake", test_sleep },
		{ "handles and mappings in either order", test_order },
	};

	(void)wl_parse(argc, argv);
	(void)open_context(0);
	NEED(cuDeviceGet(&dev, 0));
	return e2e_run(tests, (int)(sizeof(tests) / sizeof(tests[0])));
}
