/* SPDX-License-Identifier: Apache-2.0 */
/* Memory calls with whatever may be wrong: freed, foreign and odd addresses, sizes up to 2^64. None crashes, none harms what is good. */
#include "patterns.h"

#define MIB (1024UL * 1024)

static uint64_t state = 88172645463325252ULL;

static uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static CUcontext ctx;
static CUstream stream;
static unsigned char *pageable;
static CUdeviceptr good, canary, freed, managed, reserved;
static void *pinned;
static CUarray array, dead_array;

/* An address of a card, or what may be taken for one; never ordinary memory. */
static CUdeviceptr bad_device(void)
{
	const CUdeviceptr base[] = { 0,	       good,	   freed,     managed, (uintptr_t)pinned,
				     reserved, UINT64_MAX, 1UL << 63, 4096,    good + MIB };
	const uint64_t offset[] = { 0, 1, 255, 256, 4096, MIB - 1, MIB, MIB + 1, UINT64_MAX };

	return base[rnd() % 10] + offset[rnd() % 9];
}

/* Mostly outside: the extents of `good` are a mebibyte. */
static size_t bad_size(void)
{
	const size_t size[] = { 0,	   1,	      MIB - 1,	 MIB,	       MIB + 1,
				1UL << 31, 1UL << 32, 1UL << 40, SIZE_MAX / 2, SIZE_MAX - 511,
				SIZE_MAX };

	return size[rnd() % 11];
}

/* Ordinary memory only with sizes that it has. */
static void one_copy(void)
{
	size_t n = bad_size(), small = rnd() % MIB;
	CUdeviceptr d = bad_device(), s = bad_device();

	/* None of these may write to the canary: no address above leads there. */
	switch (rnd() % 8) {
	case 0:
		(void)cuMemcpyHtoD_v2(d, pageable, small);
		break;
	case 1:
		(void)cuMemcpyDtoH_v2(pageable, s, small);
		break;
	case 2:
		(void)cuMemcpyDtoD_v2(d, s, n);
		break;
	case 3:
		if (d > 16 * MIB) /* below it may be taken for ordinary memory */
			(void)cuMemcpyAsync(d, good, n, stream);
		break;
	case 4:
		(void)cuMemcpyPeerAsync(d, ctx, s, ctx, n, stream);
		break;
	case 5:
		(void)cuMemsetD8_v2(d, 1, n);
		break;
	case 6:
		(void)cuMemsetD32Async(d, 1, n, stream);
		break;
	default:
		(void)cuMemsetD2D16_v2(d, bad_size(), 1, bad_size(), bad_size());
		break;
	}
}

static CUmemorytype bad_type(void)
{
	const int type[] = { CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, 0,
			     77 };

	return (CUmemorytype)type[rnd() % 5];
}

static CUarray bad_array(void)
{
	CUarray a[] = { array, dead_array, NULL, (CUarray)pageable, (CUarray)ctx };

	return a[rnd() % 5];
}

static void one_box(void)
{
	CUDA_MEMCPY3D c = { .srcMemoryType = bad_type(),
			    .srcDevice = bad_device(),
			    .srcArray = bad_array(),
			    .srcXInBytes = rnd() % 2 ? 0 : bad_size(),
			    .srcY = rnd() % 2 ? 0 : bad_size(),
			    .srcZ = rnd() % 2 ? 0 : bad_size(),
			    .srcPitch = bad_size(),
			    .srcHeight = bad_size(),
			    .dstMemoryType = bad_type(),
			    .dstDevice = bad_device(),
			    .dstArray = bad_array(),
			    .dstXInBytes = rnd() % 2 ? 0 : bad_size(),
			    .dstY = rnd() % 2 ? 0 : bad_size(),
			    .dstZ = rnd() % 2 ? 0 : bad_size(),
			    .dstPitch = bad_size(),
			    .dstHeight = bad_size(),
			    .WidthInBytes = rnd() % 2 ? 64 : bad_size(),
			    .Height = rnd() % 2 ? 4 : bad_size(),
			    .Depth = rnd() % 2 ? 1 : bad_size() };

	(void)cuMemcpy3DAsync_v2(&c, stream);
}

static void one_query(void)
{
	CUdeviceptr p = bad_device(), base = 0;
	uint64_t value = 0;
	unsigned flags = 0;
	size_t size = 0;
	int out[4];

	(void)cuMemGetAddressRange_v2(&base, &size, p);
	(void)cuPointerGetAttribute(&value, (CUpointer_attribute)(rnd() % 30), p);
	(void)cuMemHostGetFlags(&flags, (void *)(uintptr_t)p);
	(void)cuMemHostGetDevicePointer_v2(&base, (void *)(uintptr_t)p, (unsigned)(rnd() % 2));
	(void)cuMemRangeGetAttribute(out, sizeof(out[0]) * (rnd() % 5),
				     (CUmem_range_attribute)(rnd() % 10), p, bad_size());
	(void)cuMemAdvise_v2(p, bad_size(), (CUmem_advise)(rnd() % 8),
			     (CUmemLocation){ (CUmemLocationType)(rnd() % 6),
					      (int)(rnd() % 3) - 1 });
	(void)cuMemPrefetchAsync(p, bad_size(), (int)(rnd() % 4) - 1, stream);
}

/* Frees of what is not to be freed, at any address but the base of something good. */
static void one_free(void)
{
	CUdeviceptr p = bad_device();

	if (p == good || p == managed || p == (uintptr_t)pinned || p == reserved)
		return;
	if (p != 0)
		INVALID(cuMemFree_v2(p));
	CHECK(cuMemFreeAsync(p, stream) != CUDA_SUCCESS);
	CHECK(cuMemFreeHost((void *)(uintptr_t)p) != CUDA_SUCCESS);
	CHECK(cuMemHostUnregister((void *)(uintptr_t)p) != CUDA_SUCCESS);
	CHECK(cuIpcCloseMemHandle(p) != CUDA_SUCCESS);
	CHECK(cuMemUnmap(p, bad_size()) != CUDA_SUCCESS);
	CHECK(cuMemAddressFree(p, bad_size()) != CUDA_SUCCESS);
	CHECK(cuMemRelease(p) != CUDA_SUCCESS);
	CHECK(cuMemMap(p, bad_size(), bad_size(), bad_device(), 0) != CUDA_SUCCESS);
	CHECK(cuArrayDestroy((CUarray)(uintptr_t)p) != CUDA_SUCCESS);
	CHECK(cuMemPoolDestroy((CUmemoryPool)(uintptr_t)p) != CUDA_SUCCESS);
}

static void one_allocation(void)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { bad_size(),
				      bad_size(),
				      bad_size(),
				      (CUarray_format)(rnd() % 0x40),
				      (unsigned)(rnd() % 6),
				      (unsigned)(rnd() % 0x200) };
	size_t n = bad_size(), pitch = 0;
	CUdeviceptr p = 0;
	CUarray a = NULL;
	void *host = NULL;

	if (cuMemAlloc_v2(&p, n) == CUDA_SUCCESS)
		OK(cuMemFree_v2(p));
	if (cuMemAllocPitch_v2(&p, &pitch, n, bad_size(), 4) == CUDA_SUCCESS)
		OK(cuMemFree_v2(p));
	if (cuMemAllocAsync(&p, n, stream) == CUDA_SUCCESS)
		OK(cuMemFreeAsync(p, stream));
	if (n <= MIB && cuMemAllocHost_v2(&host, n) == CUDA_SUCCESS)
		OK(cuMemFreeHost(host));
	if (cuMemAddressReserve(&p, n, bad_size(), bad_device(), 0) == CUDA_SUCCESS)
		OK(cuMemAddressFree(p, n));
	if (cuArray3DCreate_v2(&a, &d) == CUDA_SUCCESS)
		OK(cuArrayDestroy(a));
}

static void canary_lives(void)
{
	static unsigned char back[MIB];

	OK(cuCtxSynchronize());
	OK(cuMemcpyDtoH_v2(back, canary, MIB));
	CHECK(has_pattern(back, MIB, 99));
}

#define TEST(what, times)                         \
	static void test_##what(void)             \
	{                                         \
		for (int i = 0; i < (times); i++) \
			one_##what();             \
		canary_lives();                   \
	}

TEST(copy, 5000)
TEST(box, 20000)
TEST(query, 3000)
TEST(free, 500)
TEST(allocation, 300)

static const struct e2e_test tests[] = {
	{ "copies", test_copy },
	{ "boxes", test_box },
	{ "queries", test_query },
	{ "frees", test_free },
	{ "allocations", test_allocation },
};

int main(void)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { 64, 32, 4, CU_AD_FORMAT_FLOAT, 1, 0 };

	ctx = open_context(0);
	pageable = calloc(1, MIB);
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	NEED(cuMemAlloc_v2(&good, MIB));
	NEED(cuMemAlloc_v2(&freed, 3 * MIB)); /* between those two */
	NEED(cuMemAlloc_v2(&canary, MIB));
	NEED(cuMemFree_v2(freed));
	NEED(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
	NEED(cuMemAllocHost_v2(&pinned, MIB));
	NEED(cuMemAddressReserve(&reserved, 4 * MIB, 0, 0, 0));
	NEED(cuArray3DCreate_v2(&array, &d));
	NEED(cuArray3DCreate_v2(&dead_array, &d));
	NEED(cuArrayDestroy(dead_array));
	put_pattern(pageable, MIB, 99);
	NEED(cuMemcpyHtoD_v2(canary, pageable, MIB));
	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
