/* SPDX-License-Identifier: Apache-2.0 */
/* The ways in which PyTorch gets device memory: cached segments, expandable segments, private pools, and the driver's stream-ordered pools. */
#include "caching.h"

#define N_TENSORS 96
#define N_STREAMS 3

static CUdevice dev;
static CUstream streams[N_STREAMS];

#define DONE(c)                                 \
	do {                                    \
		CHECK_INT(caching_done(c), 0);  \
		CHECK_INT(wl_free(), at_first); \
	} while (0)

static void test_segments(void)
{
	size_t at_first = wl_free();
	struct caching *c = caching_new(dev, false);
	CUdeviceptr p[8] = { 0 };

	/* What the driver loses is what was asked of it. */
	OK(caching_alloc(c, 1, NULL, 0, &p[0]));
	CHECK_INT(at_first - wl_free(), 2 * MIB);
	OK(caching_alloc(c, MIB, NULL, 0, &p[1]));
	CHECK_INT(at_first - wl_free(), 2 * MIB);
	CHECK_INT(p[1] - p[0], 512);
	OK(caching_alloc(c, MIB + 1, NULL, 0, &p[2]));
	CHECK_INT(at_first - wl_free(), 22 * MIB);
	OK(caching_alloc(c, 9 * MIB, NULL, 0, &p[3]));
	CHECK_INT(at_first - wl_free(), 22 * MIB);
	OK(caching_alloc(c, 10 * MIB + 1, NULL, 0, &p[4]));
	CHECK_INT(at_first - wl_free(), 34 * MIB);
	/* Another stream has segments of its own. */
	OK(caching_alloc(c, 1, streams[0], 0, &p[5]));
	CHECK_INT(at_first - wl_free(), 36 * MIB);
	/* Given back to the cache, not to the driver. */
	for (int i = 0; i < 6; i++)
		caching_release(c, p[i]);
	CHECK_INT(at_first - wl_free(), 36 * MIB);
	OK(caching_alloc(c, 12 * MIB, NULL, 0, &p[0]));
	CHECK_INT(at_first - wl_free(), 36 * MIB);
	caching_empty(c, 0);
	CHECK_INT(at_first - wl_free(), 12 * MIB);
	DONE(c);
}

/* Tensors of all sizes come and go; each keeps what was written to it. */
static void train(struct caching *c, unsigned steps, size_t largest)
{
	struct {
		CUdeviceptr p;
		size_t size;
		uint32_t seed;
	} t[N_TENSORS] = { 0 };
	uint32_t state = 12345;

	for (unsigned i = 0; i < steps; i++) {
		uint32_t r = wl_random(&state);
		unsigned k = r % N_TENSORS;
		/* Each order of magnitude as often. */
		size_t size = 1 + wl_random(&state) % (largest >> (wl_random(&state) % 20));

		if (t[k].p) {
			CHECK(wl_stamped(t[k].p, t[k].size, t[k].seed));
			caching_release(c, t[k].p);
			t[k].p = 0;
			continue;
		}
		if (caching_alloc(c, size, streams[r / N_TENSORS % N_STREAMS], 0, &t[k].p) !=
		    CUDA_SUCCESS) {
			t[k].p = 0;
			continue;
		}
		t[k].size = size;
		t[k].seed = i;
		wl_stamp(t[k].p, size, i);
		if (i % 100 == 0)
			caching_empty(c, 0);
	}
	for (unsigned k = 0; k < N_TENSORS; k++) {
		if (!t[k].p)
			continue;
		CHECK(wl_stamped(t[k].p, t[k].size, t[k].seed));
		caching_release(c, t[k].p);
	}
	CHECK_INT(caching_stats(c)->allocated, 0);
}

static void train_and_empty(bool expandable, size_t largest)
{
	size_t at_first = wl_free();
	struct caching *c = caching_new(dev, expandable);

	train(c, 1500, largest);
	CHECK_INT(at_first - wl_free(), caching_stats(c)->reserved);
	caching_empty(c, 0);
	CHECK_INT(caching_stats(c)->reserved, 0);
	CHECK_INT(wl_free(), at_first);
	DONE(c);
}

static void test_train(void)
{
	train_and_empty(false, 16 * MIB);
}

/* The same with more than there is: requests fail, and nothing else does. */
static void test_train_hard(void)
{
	train_and_empty(false, wl_total() / 6);
}

static void test_train_expandable(void)
{
	train_and_empty(true, 16 * MIB);
}

static void test_train_expandable_hard(void)
{
	train_and_empty(true, wl_total() / 6);
}

/* Take blocks of a size until the driver has no more. Returns how many. */
static unsigned fill(struct caching *c, size_t size, CUdeviceptr *p, unsigned max)
{
	unsigned n = 0;
	CUresult rc = CUDA_SUCCESS;

	while (n < max && (rc = caching_alloc(c, size, NULL, 0, &p[n])) == CUDA_SUCCESS) {
		wl_stamp(p[n], size, n);
		n++;
	}
	CHECK_RC(rc, CUDA_ERROR_OUT_OF_MEMORY);
	return n;
}

/* The cache holds enough, in pieces that are too small: they go back to the driver and the request is met. */
static void test_retry(void)
{
	size_t at_first = wl_free();
	struct caching *c = caching_new(dev, false);
	unsigned max = (unsigned)(at_first / (12 * MIB) + 1);
	CUdeviceptr *p = calloc(max, sizeof(*p));
	CUdeviceptr big = 0;
	unsigned retries;
	unsigned n = fill(c, 12 * MIB, p, max);

	CHECK_INT(n, at_first / (12 * MIB));
	CHECK_INT(caching_stats(c)->ooms, 1);
	for (unsigned i = 0; i < n; i += 2)
		caching_release(c, p[i]);
	retries = caching_stats(c)->retries;
	OK(caching_alloc(c, 24 * MIB, NULL, 0, &big));
	CHECK_INT(caching_stats(c)->retries, retries + 1);
	wl_stamp(big, 24 * MIB, 9999);
	for (unsigned i = 1; i < n; i += 2)
		CHECK(wl_stamped(p[i], 12 * MIB, i));
	CHECK(wl_stamped(big, 24 * MIB, 9999));
	free(p);
	DONE(c);
}

/* A framework prints what it was told, catches the error and goes on. */
static void test_out_of_memory(void)
{
	size_t at_first = wl_free();
	struct caching *c = caching_new(dev, false);
	const char *text = NULL;
	const char *name = NULL;
	CUdeviceptr p = 0x77;
	CUdeviceptr q = 0;

	OK(caching_alloc(c, 4 * MIB, NULL, 0, &q));
	wl_stamp(q, 4 * MIB, 1);
	for (int i = 0; i < 100; i++)
		CHECK_RC(caching_alloc(c, at_first, NULL, 0, &p), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(p == 0x77);
	OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
	OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
	CHECK(name && strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
	CHECK(text && strcmp(text, "out of memory") == 0);
	CHECK_INT(at_first - wl_free(), 20 * MIB);
	/* The context is well, and all but what is held can be had. */
	OK(cuCtxSynchronize());
	CHECK(wl_stamped(q, 4 * MIB, 1));
	OK(caching_alloc(c, (wl_free() & -G), NULL, 0, &p));
	wl_stamp(p, at_first - 22 * MIB, 2);
	CHECK(wl_free() < G);
	CHECK(wl_stamped(q, 4 * MIB, 1));
	DONE(c);
}

/* Memory of a recorded graph: nobody else gets it, whether used or not, while the graph lives. */
static void test_private_pool(void)
{
	size_t at_first = wl_free();
	struct caching *c = caching_new(dev, false);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr graph = 0;
	CUdeviceptr other = 0;

	/* As an allocator does around a request that comes while a stream records. */
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(caching_alloc(c, 30 * MIB, streams[0], 1, &graph));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK_INT(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	wl_stamp(graph, 30 * MIB, 5);
	caching_release(c, graph);
	OK(caching_alloc(c, 30 * MIB, streams[0], 0, &other));
	CHECK(other != graph);
	wl_stamp(other, 30 * MIB, 6);
	caching_release(c, other);
	caching_empty(c, 0);
	CHECK_INT(at_first - wl_free(), 30 * MIB);
	CHECK(wl_stamped(graph, 30 * MIB, 5)); /* a replay writes there: it is still ours */
	OK(caching_alloc(c, 30 * MIB, streams[0], 1, &other));
	CHECK(other == graph);
	caching_release(c, other);
	caching_empty(c, 1);
	CHECK_INT(wl_free(), at_first);
	DONE(c);
}

/* Growth in place: what 12 MiB pieces would not allow. */
static void test_expandable(void)
{
	size_t at_first = wl_free();
	struct caching *c = caching_new(dev, true);
	CUdeviceptr p[4] = { 0 };
	CUdeviceptr again = 0;

	for (unsigned i = 0; i < 4; i++) {
		OK(caching_alloc(c, 20 * MIB, NULL, 0, &p[i]));
		wl_stamp(p[i], 20 * MIB, i);
		CHECK_INT(p[i] - p[0], i * 20 * MIB);
	}
	CHECK_INT(at_first - wl_free(), 80 * MIB);
	/* A hole: unmapped, its addresses kept. */
	caching_release(c, p[1]);
	caching_empty(c, 0);
	CHECK_INT(at_first - wl_free(), 60 * MIB);
	CHECK_RC(cuMemsetD8_v2(p[1], 0, 16), CUDA_ERROR_INVALID_VALUE);
	CHECK(wl_stamped(p[0], 20 * MIB, 0) && wl_stamped(p[2], 20 * MIB, 2));
	OK(caching_alloc(c, 19 * MIB, NULL, 0, &again));
	CHECK(again == p[1]);
	CHECK_INT(at_first - wl_free(), 80 * MIB);
	wl_stamp(again, 19 * MIB, 7);
	/* One tensor across pieces of memory that were got one by one. */
	caching_release(c, again);
	caching_release(c, p[2]);
	OK(caching_alloc(c, 40 * MIB, NULL, 0, &again));
	CHECK(again == p[1]);
	CHECK_INT(at_first - wl_free(), 80 * MIB);
	OK(cuMemsetD8_v2(again, 0x5a, 40 * MIB));
	OK(cuCtxSynchronize());
	CHECK(wl_stamped(p[0], 20 * MIB, 0) && wl_stamped(p[3], 20 * MIB, 3));
	DONE(c);
}

/* The driver runs out in the middle of a request: what it gave goes back, and the request is met when others leave. */
static void test_expandable_out_of_memory(void)
{
	size_t at_first = wl_free();
	struct caching *c = caching_new(dev, true);
	size_t half = at_first / 2 / (20 * MIB) * 20 * MIB;
	CUdeviceptr raw = 0;
	CUdeviceptr p = 0;
	CUdeviceptr q = 0;

	OK(caching_alloc(c, half, NULL, 0, &p));
	wl_stamp(p, half, 1);
	OK(cuMemAlloc_v2(&raw, 40 * MIB));
	CHECK_RC(caching_alloc(c, half + 20 * MIB, NULL, 0, &q), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_INT(at_first - wl_free(), half + 40 * MIB);
	CHECK(wl_stamped(p, half, 1));
	caching_release(c, p);
	CHECK_RC(caching_alloc(c, at_first, NULL, 0, &q), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_INT(at_first - wl_free(), 40 * MIB);
	OK(cuMemFree_v2(raw));
	OK(caching_alloc(c, half + 20 * MIB, NULL, 0, &q));
	wl_stamp(q, half + 20 * MIB, 2);
	CHECK(wl_stamped(q, half + 20 * MIB, 2));
	DONE(c);
}

/* ---- the driver's own pool ---- */

static uint64_t pool_attr(CUmemoryPool pool, CUmemPool_attribute what)
{
	cuuint64_t value = 0;

	OK(cuMemPoolGetAttribute(pool, what, &value));
	return value;
}

/* How large a request can be: halved until it is met, as a framework finds the size of a workspace. */
static size_t probe_largest(CUstream stream, size_t guess)
{
	CUdeviceptr p = 0;
	CUresult rc;

	while ((rc = cuMemAllocAsync(&p, guess, stream)) == CUDA_ERROR_OUT_OF_MEMORY && guess > 1)
		guess /= 2;
	OK(rc);
	if (rc == CUDA_SUCCESS)
		OK(cuMemFreeAsync(p, stream));
	return guess;
}

static void test_async(void)
{
	size_t at_first = wl_free();
	cuuint64_t keep = UINT64_MAX;
	cuuint64_t none = 0;
	CUmemoryPool pool = NULL;
	CUdeviceptr p[16] = { 0 };
	CUdeviceptr raw = 0;
	CUevent used = NULL;
	size_t cached;

	OK(cuDeviceGetDefaultMemPool(&pool, dev));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuEventCreate(&used, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < 16; i++) {
		OK(cuMemAllocAsync(&p[i], 5 * MIB, streams[i % N_STREAMS]));
		OK(cuStreamSynchronize(streams[i % N_STREAMS]));
		wl_stamp(p[i], 5 * MIB, i);
	}
	CHECK_INT(pool_attr(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 80 * MIB);
	CHECK(at_first - wl_free() >= 80 * MIB);
	for (unsigned i = 0; i < 16; i++) {
		CHECK(wl_stamped(p[i], 5 * MIB, i));
		/* Freed on another stream than its own, behind its use. */
		OK(cuEventRecord(used, streams[i % N_STREAMS]));
		OK(cuStreamWaitEvent(streams[(i + 1) % N_STREAMS], used, 0));
		OK(cuMemFreeAsync(p[i], streams[(i + 1) % N_STREAMS]));
	}
	OK(cuCtxSynchronize());
	CHECK_INT(pool_attr(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	CHECK(pool_attr(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 80 * MIB);
	cached = pool_attr(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
	CHECK(cached >= 80 * MIB);
	/* The pool keeps it: free does not rise before it is trimmed. */
	CHECK_INT(at_first - wl_free(), cached);
	OK(cuMemPoolTrimTo(pool, 0));
	CHECK_INT(pool_attr(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	CHECK_INT(wl_free(), at_first);

	/* Errors, and what a pool keeps is there for others. */
	CHECK_RC(cuMemAllocAsync(&p[0], wl_total() + 1, streams[0]), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(probe_largest(streams[0], wl_total()) >= at_first / 2 - 40 * MIB);
	OK(cuStreamSynchronize(streams[0]));
	OK(cuMemAlloc_v2(&raw, at_first / 4 * 3));
	OK(cuMemFree_v2(raw));
	OK(cuMemPoolTrimTo(pool, 0));
	CHECK_INT(wl_free(), at_first);
	/* Freed by the other kind's calls. */
	OK(cuMemAllocAsync(&p[0], MIB, streams[0]));
	OK(cuMemFree_v2(p[0]));
	OK(cuMemAlloc_v2(&p[0], MIB));
	OK(cuMemFreeAsync(p[0], streams[0]));
	OK(cuStreamSynchronize(streams[0]));
	OK(cuMemPoolTrimTo(pool, 0));
	CHECK_INT(wl_free(), at_first);
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
	OK(cuEventDestroy_v2(used));
}

int main(int argc, char **argv)
{
	static const struct e2e_test tests[] = {
		{ "segments of a caching allocator", test_segments },
		{ "tensors come and go", test_train },
		{ "more tensors than there is memory for", test_train_hard },
		{ "out of memory, cache given back, met", test_retry },
		{ "out of memory and well", test_out_of_memory },
		{ "private pools", test_private_pool },
		{ "expandable segments", test_expandable },
		{ "expandable segments out of memory", test_expandable_out_of_memory },
		{ "tensors come and go in expandable segments", test_train_expandable },
		{ "more than there is in expandable segments", test_train_expandable_hard },
		{ "the driver's own pool", test_async },
	};

	(void)wl_parse(argc, argv);
	(void)open_context(0);
	NEED(cuDeviceGet(&dev, 0));
	for (unsigned i = 0; i < N_STREAMS; i++)
		NEED(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	return e2e_run(tests, (int)(sizeof(tests) / sizeof(tests[0])));
}
