/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama.cpp's memory: weights in a few buffers; scratch memory of each kind of work on a stack in an address range of 32 GiB, into which
 * physical memory is mapped as it grows, each handle released right behind its mapping; and, where there is no virtual memory management, a list
 * of buffers that are kept.
 */
#include "workload.h"

#define RESERVE	  (32 * GIB)
#define ALIGNMENT 128UL

static CUdevice dev;

/* ---- the stack ---- */

struct pool {
	CUdeviceptr va;
	size_t mapped, used;
};

static void pool_init(struct pool *p)
{
	*p = (struct pool){ 0 };
	OK(cuMemAddressReserve(&p->va, RESERVE, 0, 0, 0));
}

static CUresult pool_alloc(struct pool *p, size_t size, CUdeviceptr *ret)
{
	size_t granularity = 0;
	CUmemAllocationProp prop = wl_on_card(dev);
	CUmemGenericAllocationHandle h = 0;

	size = (size + ALIGNMENT - 1) & -ALIGNMENT;
	if (size > p->mapped - p->used) {
		size_t more = size - (p->mapped - p->used);
		CUresult rc;

		OK(cuMemGetAllocationGranularity(&granularity, &prop,
						 CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
		more = (more + granularity - 1) / granularity * granularity;
		rc = cuMemCreate(&h, more, &prop, 0);
		if (rc != CUDA_SUCCESS)
			return rc;
		OK(cuMemMap(p->va + p->mapped, more, 0, h, 0));
		OK(cuMemRelease(h));
		OK(wl_allow(p->va + p->mapped, more, dev));
		p->mapped += more;
	}
	*ret = p->va + p->used;
	p->used += size;
	return CUDA_SUCCESS;
}

static void pool_pop(struct pool *p, CUdeviceptr ptr)
{
	CHECK(ptr >= p->va && ptr < p->va + p->used);
	p->used = ptr - p->va;
}

static void pool_done(struct pool *p)
{
	if (p->mapped)
		OK(cuMemUnmap(p->va, p->mapped));
	OK(cuMemAddressFree(p->va, RESERVE));
}

/* Handles that are gone do not make memory that is mapped free: four times more than fits must not fit. */
static void test_beyond(void)
{
	size_t at_first = wl_free();
	size_t step = at_first / 8 / G * G;
	struct pool p;
	CUdeviceptr a[40] = { 0 };
	CUdeviceptr raw = 0;
	unsigned n = 0;
	CUresult rc = CUDA_SUCCESS;

	pool_init(&p);
	CHECK_INT(wl_free(), at_first); /* address space is no memory */
	while (n < 40 && (rc = pool_alloc(&p, step, &a[n])) == CUDA_SUCCESS) {
		wl_stamp(a[n], step, n);
		n++;
		CHECK_INT(at_first - wl_free(), n * step);
	}
	CHECK_RC(rc, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_INT(n, at_first / step);
	CHECK_INT(p.mapped, n * step);
	CHECK_RC(cuMemAlloc_v2(&raw, wl_free() + 1), CUDA_ERROR_OUT_OF_MEMORY);
	for (unsigned i = 0; i < n; i++)
		CHECK(wl_stamped(a[i], step, i));
	/* The stack shrinks, the mapping stays; it serves again without the driver. */
	while (n > 0)
		pool_pop(&p, a[--n]);
	CHECK_INT(at_first - wl_free(), p.mapped);
	OK(pool_alloc(&p, p.mapped, &a[0]));
	CHECK(a[0] == p.va);
	OK(cuMemsetD8_v2(a[0] + step - MIB, 0x33, 2 * MIB));
	OK(cuCtxSynchronize());
	pool_done(&p);
	CHECK_INT(wl_free(), at_first);
	CHECK_RC(cuMemsetD8_v2(a[0], 0, 1), CUDA_ERROR_INVALID_VALUE);
}

/* Small steps: as many mappings as there are. */
static void test_many(void)
{
	size_t at_first = wl_free();
	unsigned max = (unsigned)(at_first / G);
	struct pool p;
	CUdeviceptr a = 0;
	unsigned n = 0;
	static uint8_t buf[64];

	pool_init(&p);
	while (n < max && pool_alloc(&p, G - ALIGNMENT, &a) == CUDA_SUCCESS)
		n++;
	CHECK_INT(n, max);
	CHECK_INT(at_first - wl_free(), p.mapped);
	/* Across the border of each two. */
	for (unsigned i = 1; i < n; i++) {
		put_pattern(buf, sizeof(buf), i);
		OK(cuMemcpyHtoD_v2(p.va + i * G - 32, buf, sizeof(buf)));
	}
	for (unsigned i = 1; i < n; i++) {
		OK(cuMemcpyDtoH_v2(buf, p.va + i * G - 32, sizeof(buf)));
		CHECK(has_pattern(buf, sizeof(buf), i));
	}
	pool_done(&p);
	CHECK_INT(wl_free(), at_first);
}

/* A context of the library for each request of a server: pools come and go. */
static void test_contexts(void)
{
	size_t at_first = wl_free();
	uint32_t state = 99;

	for (unsigned i = 0; i < 40; i++) {
		struct pool p[3];
		CUdeviceptr a = 0;
		CUdeviceptr b = 0;
		size_t mapped = 0;

		for (unsigned k = 0; k < 3; k++) {
			size_t size = 1 + wl_random(&state) % (at_first / 8);

			pool_init(&p[k]);
			OK(pool_alloc(&p[k], size, &a));
			OK(pool_alloc(&p[k], size / 3 + 1, &b));
			wl_stamp(a, size, i);
			wl_stamp(b, size / 3 + 1, i + 1);
			CHECK(wl_stamped(a, size, i) && wl_stamped(b, size / 3 + 1, i + 1));
			pool_pop(&p[k], b);
			pool_pop(&p[k], a);
			mapped += p[k].mapped;
		}
		CHECK_INT(at_first - wl_free(), mapped);
		for (unsigned k = 0; k < 3; k++)
			pool_done(&p[k]);
		CHECK_INT(wl_free(), at_first);
	}
}

/* ---- the list of buffers ---- */

#define N_BUFFERS 256

static struct {
	CUdeviceptr p;
	size_t size;
} idle[N_BUFFERS];

static CUresult legacy_alloc(size_t want, CUdeviceptr *ret, size_t *ret_size)
{
	size_t ahead = (want + want / 20 + 255) & -256UL;
	int best = -1;
	CUresult rc;

	for (int i = 0; i < N_BUFFERS; i++)
		if (idle[i].p && idle[i].size >= want &&
		    (best < 0 || idle[i].size < idle[best].size))
			best = i;
	if (best >= 0) {
		*ret = idle[best].p;
		*ret_size = idle[best].size;
		idle[best].p = 0;
		return CUDA_SUCCESS;
	}
	rc = cuMemAlloc_v2(ret, ahead);
	if (rc == CUDA_SUCCESS)
		*ret_size = ahead;
	return rc;
}

static void legacy_free(CUdeviceptr p, size_t size)
{
	for (int i = 0; i < N_BUFFERS; i++) {
		if (!idle[i].p) {
			idle[i].p = p;
			idle[i].size = size;
			return;
		}
	}
	OK(cuMemFree_v2(p));
}

static void legacy_clear(void)
{
	for (int i = 0; i < N_BUFFERS; i++) {
		if (idle[i].p)
			OK(cuMemFree_v2(idle[i].p));
		idle[i].p = 0;
	}
}

static void test_legacy(void)
{
	size_t at_first = wl_free();
	uint32_t state = 4711;
	CUdeviceptr p = 0;
	size_t size = 0;

	for (unsigned i = 0; i < 600; i++) {
		size_t want = 1 + wl_random(&state) % (at_first / 12 >> wl_random(&state) % 12);
		CUresult rc = legacy_alloc(want, &p, &size);

		if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
			legacy_clear();
			wl_all_back(at_first);
			rc = legacy_alloc(want, &p, &size);
		}
		OK(rc);
		if (rc != CUDA_SUCCESS)
			break;
		wl_stamp(p, size, i);
		CHECK(wl_stamped(p, size, i));
		legacy_free(p, size);
	}
	legacy_clear();
	wl_all_back(at_first);
}

/* A model in as many layers as fit, the rest in host memory: what a loader decides by free memory must be what it gets. */
static void test_layers(void)
{
	size_t at_first = wl_free();
	size_t layer = at_first / 21 & -512UL;
	unsigned fit = (unsigned)(at_first / ((layer + G - 1) & -G));
	CUdeviceptr on_card[32] = { 0 };
	void *on_host[32] = { 0 };

	for (unsigned i = 0; i < 32; i++) {
		if (i < fit) {
			OK(cuMemAlloc_v2(&on_card[i], layer));
			wl_stamp(on_card[i], layer, i);
			continue;
		}
		/* Pinned memory is the host's. */
		size_t before = wl_free();

		OK(cuMemHostAlloc(&on_host[i], layer, CU_MEMHOSTALLOC_PORTABLE));
		CHECK(wl_free() <= before);
		if (!on_host[i])
			continue;
		put_pattern(on_host[i], WL_STAMP, i);
		put_pattern((char *)on_host[i] + layer - WL_STAMP, WL_STAMP, i);
	}
	/* A layer of the host visits the card. */
	OK(cuMemFree_v2(on_card[0]));
	OK(cuMemAlloc_v2(&on_card[0], layer));
	for (unsigned i = fit; i < 32 && on_host[i]; i++) {
		OK(cuMemcpyHtoD_v2(on_card[0], on_host[i], layer));
		CHECK(wl_stamped(on_card[0], layer, i));
		OK(cuMemFreeHost(on_host[i]));
	}
	for (unsigned i = 0; i < fit; i++) {
		CHECK(i == 0 || wl_stamped(on_card[i], layer, i));
		OK(cuMemFree_v2(on_card[i]));
	}
	wl_all_back(at_first);
}

int main(int argc, char **argv)
{
	static const struct e2e_test tests[] = {
		{ "a pool grows until there is no more", test_beyond },
		{ "many small steps", test_many },
		{ "pools come and go", test_contexts },
		{ "buffers that are kept", test_legacy },
		{ "layers on the card and on the host", test_layers },
	};

	(void)wl_parse(argc, argv);
	(void)open_context(0);
	NEED(cuDeviceGet(&dev, 0));
	return e2e_run(tests, (int)(sizeof(tests) / sizeof(tests[0])));
}
