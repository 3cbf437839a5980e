/* SPDX-License-Identifier: Apache-2.0 */
/* What providers with oddities make of the stand-in: odd NAME, in an instance of 64 MiB. */
#include "e2e/e2e.h"

#include <dlfcn.h>

#define MIB (1ULL << 20)

static size_t left(void)
{
	size_t l = 0;
	size_t t = 0;

	OK(cuMemGetInfo_v2(&l, &t));
	return l;
}

static void test_limit(void)
{
	CUdeviceptr p = 0;
	CUdeviceptr q = 0;

	OK(cuInit(0));
	OK(cuMemAlloc_v2(&p, 64 * MIB));
	CHECK_RC(cuMemAlloc_v2(&q, 1), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(p));
	CHECK_INT(left(), 64 * MIB);
}

/* Names that the driver lacks answer, and are not offered. */
static void test_old(void)
{
	CUdeviceptr p = 0;
	void *fn = NULL;

	CHECK_RC(cuMemAllocAsync(&p, MIB, NULL), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_RC(cuMemCreate(&p, MIB, &(CUmemAllocationProp){ .location = { 1, 0 } }, 0),
		 CUDA_ERROR_NOT_SUPPORTED);
	CHECK_RC(cuStreamQuery(NULL), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_INT(left(), 64 * MIB);
	CHECK_RC(cuGetProcAddress("cuMemAllocAsync", &fn, 11000, 0), CUDA_ERROR_NOT_FOUND);
	CHECK(fn == NULL);
	OK(cuGetProcAddress("cuMemAlloc", &fn, 11000, 0));
	CHECK(fn == (void *)cuMemAlloc_v2);
	/* It has the first version of the call only; the second one is served by it. */
	OK(cuGetProcAddress_v2("cuMemFree", &fn, 11000, 0, NULL));
	CHECK(fn == (void *)cuMemFree_v2);
}

static void test_extra(void)
{
	void *fn = NULL;

	CHECK_RC(cuGetProcAddress_v2("cuMemAllocNew", &fn, 13000, 0, NULL), CUDA_ERROR_NOT_FOUND);
	OK(cuGetProcAddress_v2("cuHarmless", &fn, 13000, 0, NULL));
	CHECK(fn != NULL);
	/* Exports that we do not have do not show. */
	CHECK(dlsym(RTLD_DEFAULT, "cuNewIn14") == NULL);
}

/* The wrapper is found by name and version, and what it calls is the pointer that the driver gave. */
static void test_twisted(void)
{
	CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
	CUdeviceptr p = 0;

	OK(cuGetProcAddress_v2("cuMemAlloc", (void **)&alloc, 13000, 0, NULL));
	CHECK(alloc == cuMemAlloc_v2);
	OK(alloc(&p, MIB));
	CHECK_INT(left(), 63 * MIB);
	CHECK_RC(alloc(&p, 64 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

/* It calls itself through us: counted once. */
static void test_open(void)
{
	CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
	CUdeviceptr p = 0;
	size_t pitch = 0;

	OK(cuMemAllocPitch_v2(&p, &pitch, 1024, 1024, 4));
	CHECK_INT(left(), 63 * MIB);
	OK(cuMemFree_v2(p));
	CHECK_INT(left(), 64 * MIB);
	/* The pointer that it gives is ours, and must not become its own target. */
	OK(cuGetProcAddress_v2("cuMemAlloc", (void **)&alloc, 13000, 0, NULL));
	CHECK(alloc == cuMemAlloc_v2);
	OK(alloc(&p, MIB));
	CHECK_INT(left(), 63 * MIB);
}

int main(int argc, char **argv)
{
	static const struct e2e_test all[] = { { "old", test_old },
					       { "extra", test_extra },
					       { "twisted", test_twisted },
					       { "open", test_open } };
	struct e2e_test tests[2] = { { "limit", test_limit } };

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (argc > 1 && strcmp(argv[1], all[i].name) == 0)
			tests[1] = all[i];
	return tests[1].fn ? e2e_run(tests, 2) : 2;
}
