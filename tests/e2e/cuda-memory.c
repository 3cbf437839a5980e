/* SPDX-License-Identifier: Apache-2.0 */
/* Device, managed and host memory: what is allocated, what is refused, and what is known about addresses. */
#include "patterns.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024UL * 1024)

static CUcontext shared_ctx;

static void test_alloc(void)
{
	CUdeviceptr a = 0, b = 0, base = 0;
	size_t size = 0, free0 = 0, free1 = 0, total = 0;
	int on_stack = 0;

	INVALID(cuMemAlloc_v2(NULL, 16));
	INVALID(cuMemAlloc_v2(&a, 0));
	CHECK(a == 0);
	OK(cuMemGetInfo_v2(&free0, &total));
	CHECK(free0 <= total && total > 0);
	CHECK_RC(cuMemAlloc_v2(&a, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_RC(cuMemAlloc_v2(&a, SIZE_MAX - 511), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_RC(cuMemAlloc_v2(&a, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(a == 0);
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free0 == free1);

	OK(cuMemAlloc_v2(&a, 4 * MIB));
	OK(cuMemAlloc_v2(&b, 1));
	CHECK(a % 256 == 0 && b % 256 == 0 && a != b);
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free1 + 4 * MIB <= free0);
	OK(cuMemGetAddressRange_v2(&base, &size, a + 12345));
	CHECK(base == a && size == 4 * MIB);
	OK(cuMemGetAddressRange_v2(NULL, NULL, a));
	CHECK_RC(cuMemGetAddressRange_v2(&base, &size, a + 4 * MIB + 1), CUDA_ERROR_NOT_FOUND);
	CHECK_RC(cuMemGetAddressRange_v2(&base, &size, (uintptr_t)&on_stack), CUDA_ERROR_NOT_FOUND);

	OK(cuMemFree_v2(0));
	INVALID(cuMemFree_v2(a + 256));
	INVALID(cuMemFree_v2((uintptr_t)&on_stack));
	INVALID(cuMemFree_v2(UINT64_MAX));
	OK(cuMemFree_v2(a));
	INVALID(cuMemFree_v2(a));
	OK(cuMemFree_v2(b));
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free1 == free0);
	INVALID(cuMemGetInfo_v2(NULL, NULL));
}

static void test_pitch(void)
{
	CUdeviceptr a = 0;
	size_t pitch = 0;

	INVALID(cuMemAllocPitch_v2(&a, &pitch, 100, 10, 3));
	INVALID(cuMemAllocPitch_v2(&a, &pitch, 0, 10, 4));
	INVALID(cuMemAllocPitch_v2(&a, &pitch, 100, 0, 4));
	INVALID(cuMemAllocPitch_v2(&a, NULL, 100, 10, 4));
	CHECK_RC(cuMemAllocPitch_v2(&a, &pitch, SIZE_MAX, 10, 4), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_RC(cuMemAllocPitch_v2(&a, &pitch, 1UL << 33, 1UL << 33, 16),
		 CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAllocPitch_v2(&a, &pitch, 100, 10, 4));
	CHECK(pitch >= 100 && pitch % 32 == 0);
	OK(cuMemsetD2D8_v2(a, pitch, 7, 100, 10));
	OK(cuMemFree_v2(a));
}

static void test_out_of_memory(void)
{
	CUdeviceptr p[64] = { 0 }, small = 0;
	size_t free0 = 0, free1 = 0, total = 0, n = 0;
	CUresult rc = CUDA_SUCCESS;

	OK(cuMemGetInfo_v2(&free0, &total));
	while (n < 64 && (rc = cuMemAlloc_v2(&p[n], total / 16)) == CUDA_SUCCESS)
		n++;
	CHECK(rc == CUDA_ERROR_OUT_OF_MEMORY && n > 10);
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free1 < total / 16);
	OK(cuMemAlloc_v2(&small, 4096)); /* a failed allocation breaks nothing */
	OK(cuMemFree_v2(small));
	while (n > 0)
		OK(cuMemFree_v2(p[--n]));
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free1 == free0);
}

static void test_managed(void)
{
	CUdeviceptr a = 0;
	unsigned char *host = NULL, back[256];
	int managed = 0;

	INVALID(cuMemAllocManaged(&a, 0, CU_MEM_ATTACH_GLOBAL));
	INVALID(cuMemAllocManaged(&a, 4096, 0));
	INVALID(cuMemAllocManaged(&a, 4096, CU_MEM_ATTACH_SINGLE));
	INVALID(cuMemAllocManaged(NULL, 4096, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemAllocManaged(&a, 3 * MIB + 5, CU_MEM_ATTACH_GLOBAL));
	host = (unsigned char *)(uintptr_t)a;
	host[3 * MIB] = 42;
	OK(cuMemsetD8_v2(a, 9, 3 * MIB));
	CHECK(host[0] == 9 && host[3 * MIB - 1] == 9 && host[3 * MIB] == 42);
	put_pattern(host, 256, 3);
	OK(cuMemcpyDtoH_v2(back, a, 256));
	CHECK(has_pattern(back, 256, 3));
	OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, a + 77));
	CHECK(managed == 1);
	OK(cuMemFree_v2(a));
	INVALID(cuMemFree_v2(a));
	OK(cuMemAllocManaged(&a, 100, CU_MEM_ATTACH_HOST));
	OK(cuMemFree_v2(a));
}

static void test_host(void)
{
	void *p = NULL, *q = NULL;
	CUdeviceptr d = 0, dev = 0;
	unsigned flags = 77;

	INVALID(cuMemAllocHost_v2(&p, 0));
	INVALID(cuMemAllocHost_v2(NULL, 16));
	INVALID(cuMemHostAlloc(&p, 16, 0x80));
	CHECK_RC(cuMemAllocHost_v2(&p, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAllocHost_v2(&p, 2 * MIB));
	OK(cuMemHostAlloc(&q, 5000, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
	put_pattern(p, 2 * MIB, 5);
	OK(cuMemHostGetDevicePointer_v2(&d, p, 0));
	CHECK(d == (uintptr_t)p);
	INVALID(cuMemHostGetDevicePointer_v2(&d, p, 1));
	INVALID(cuMemHostGetDevicePointer_v2(&d, &flags, 0));
	OK(cuMemHostGetFlags(&flags, q));
	CHECK(flags == (CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
	INVALID(cuMemHostGetFlags(&flags, &flags));
	OK(cuMemAlloc_v2(&dev, 2 * MIB));
	OK(cuMemcpyHtoD_v2(dev, p, 2 * MIB));
	OK(cuMemsetD8_v2((uintptr_t)p, 0, 2 * MIB)); /* waits: the host sees it */
	CHECK(all_bytes(p, 2 * MIB, 0));
	OK(cuMemcpyDtoH_v2(p, dev, 2 * MIB));
	CHECK(has_pattern(p, 2 * MIB, 5));
	INVALID(cuMemFree_v2((uintptr_t)p));
	INVALID(cuMemFreeHost((char *)p + 4096));
	INVALID(cuMemFreeHost(&flags));
	OK(cuMemFreeHost(p));
	INVALID(cuMemFreeHost(p));
	OK(cuMemFreeHost(q));
	OK(cuMemFree_v2(dev));
}

static void test_register(void)
{
	char *p = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *hole =
		mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static char in_bss[64 * 1024];
	char *heap = malloc(300000);
	CUdeviceptr d = 0, dev = 0;
	int on_stack = 0;
	unsigned type = 0;

	put_pattern(p, 4 * MIB, 8);
	INVALID(cuMemHostRegister_v2(NULL, 4096, 0));
	INVALID(cuMemHostRegister_v2(p, 0, 0));
	INVALID(cuMemHostRegister_v2(p, SIZE_MAX, 0));
	INVALID(cuMemHostRegister_v2(p, 4096, 0x100));
	CHECK_RC(cuMemHostRegister_v2(p, 4096, CU_MEMHOSTREGISTER_IOMEMORY),
		 CUDA_ERROR_NOT_SUPPORTED);
	CHECK_RC(cuMemHostRegister_v2(shared, 4096, 0), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_RC(cuMemHostRegister_v2(&on_stack, sizeof(on_stack), 0), CUDA_ERROR_NOT_SUPPORTED);
	(void)munmap(hole + 4096, 4096);
	INVALID(cuMemHostRegister_v2(hole, 3 * 4096, 0));
	CHECK_RC(cuMemHostUnregister(p), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);

	OK(cuMemHostRegister_v2(p + 100, 3 * MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(has_pattern(p, 4 * MIB, 8));
	CHECK_RC(cuMemHostRegister_v2(p + 100, 3 * MIB, 0),
		 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CHECK_RC(cuMemHostRegister_v2(p + MIB, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(cuMemHostGetDevicePointer_v2(&d, p + 200, 0));
	CHECK(d == (uintptr_t)p + 200);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)p + 200));
	CHECK(type == CU_MEMORYTYPE_HOST);
	OK(cuMemAlloc_v2(&dev, 3 * MIB));
	OK(cuMemcpyHtoD_v2(dev, p + 100, 3 * MIB));
	INVALID(cuMemcpyHtoD_v2(dev, p + 100 + MIB, 2 * MIB + 1)); /* across its end */
	OK(cuMemsetD8_v2((uintptr_t)p + 100, 1, 3 * MIB));
	CHECK(p[99] != 1 || has_pattern(p, 100, 8));
	CHECK(all_bytes(p + 100, 3 * MIB, 1) && has_pattern(p, 100, 8));
	OK(cuMemcpyDtoH_v2(p + 100, dev, 3 * MIB));
	CHECK(has_pattern(p, 4 * MIB, 8));
	INVALID(cuMemHostUnregister(p + 101));
	OK(cuMemHostUnregister(p + 100));
	CHECK(has_pattern(p, 4 * MIB, 8));
	CHECK_RC(cuMemHostUnregister(p + 100), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);

	memset(heap, 3, 300000);
	OK(cuMemHostRegister_v2(heap, 300000, 0));
	OK(cuMemHostRegister_v2(in_bss, sizeof(in_bss), 0));
	free(malloc(100)); /* the heap around it still works */
	OK(cuMemsetD8_v2((uintptr_t)in_bss, 4, sizeof(in_bss)));
	CHECK(all_bytes(in_bss, sizeof(in_bss), 4) && all_bytes(heap, 300000, 3));
	OK(cuMemHostUnregister(in_bss));
	OK(cuMemHostUnregister(heap));
	CHECK(all_bytes(in_bss, sizeof(in_bss), 4) && all_bytes(heap, 300000, 3));
	free(heap);
	INVALID(cuMemHostRegister_v2((void *)(uintptr_t)dev, 0x1000000000UL, 0));
	OK(cuMemFree_v2(dev));
	(void)munmap(p, 4 * MIB);
}

static void test_pointer(void)
{
	CUdeviceptr a = 0, dptr = 0, start = 0;
	CUcontext c = NULL;
	CUmemoryPool pool = (CUmemoryPool)1;
	unsigned type = 0, on = 1, ipc = 0, mapped = 0;
	int ordinal = -7, managed = -7;
	unsigned long long id = 0, id2 = 0;
	size_t size = 0;
	void *host = NULL;
	CUpointer_attribute attrs[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					CU_POINTER_ATTRIBUTE_HOST_POINTER,
					CU_POINTER_ATTRIBUTE_RANGE_SIZE };
	void *data[] = { &type, &ordinal, &host, &size };

	OK(cuMemAlloc_v2(&a, 1000));
	OK(cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, a));
	CHECK(c == shared_ctx);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 999));
	CHECK(type == CU_MEMORYTYPE_DEVICE);
	OK(cuPointerGetAttribute(&dptr, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, a + 5));
	CHECK(dptr == a + 5);
	INVALID(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, a));
	OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, a));
	OK(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, a));
	OK(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, a));
	OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, a + 10));
	OK(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
	CHECK(managed == 0 && ipc == 1 && mapped == 1 && start == a && !pool);
	OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	on = 0;
	OK(cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	CHECK(on == 1);
	INVALID(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	INVALID(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	INVALID(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_CONTEXT, a));
	INVALID(cuPointerGetAttribute(&id2, (CUpointer_attribute)999, a));
	INVALID(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, 0));
	INVALID(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, (uintptr_t)&id2));
	INVALID(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, a + 1000));

	OK(cuPointerGetAttributes(4, attrs, data, a));
	CHECK(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && host == NULL && size == 1000);
	OK(cuPointerGetAttributes(4, attrs, data, (uintptr_t)&id2));
	CHECK(type == 0 && size == 0);
	INVALID(cuPointerGetAttributes(0, attrs, data, a));
	INVALID(cuPointerGetAttributes(4, NULL, data, a));
	OK(cuMemFree_v2(a));
	OK(cuMemAlloc_v2(&a, 1000));
	OK(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	CHECK(id2 > id);
	OK(cuMemFree_v2(a));
}

static void test_advise(void)
{
	CUmemLocation dev0 = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
	CUmemLocation host = { CU_MEM_LOCATION_TYPE_HOST, 0 };
	CUmemLocation bad = { CU_MEM_LOCATION_TYPE_DEVICE, 99 };
	CUdeviceptr a = 0, plain = 0;
	int v = -9, list[3] = { 5, 5, 5 };

	OK(cuMemAllocManaged(&a, MIB, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemAlloc_v2(&plain, MIB));
	OK(cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, a, MIB));
	CHECK(v == CU_DEVICE_INVALID);
	OK(cuMemPrefetchAsync_v2(a, MIB / 2, dev0, 0, NULL));
	OK(cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, a,
				  MIB / 2));
	CHECK(v == 0);
	OK(cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, a, MIB));
	CHECK(v == CU_DEVICE_INVALID);
	OK(cuMemPrefetchAsync(a, MIB, CU_DEVICE_CPU, NULL));
	OK(cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, a, MIB));
	CHECK(v == CU_DEVICE_CPU);
	INVALID(cuMemPrefetchAsync_v2(a, 0, dev0, 0, NULL));
	INVALID(cuMemPrefetchAsync_v2(a, MIB + 1, dev0, 0, NULL));
	INVALID(cuMemPrefetchAsync_v2(plain, MIB, dev0, 0, NULL));
	CHECK_RC(cuMemPrefetchAsync_v2(a, MIB, bad, 0, NULL), CUDA_ERROR_INVALID_DEVICE);

	OK(cuMemAdvise_v2(a, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, bad));
	OK(cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a + 100, 500));
	CHECK(v == 1);
	OK(cuMemAdvise_v2(a, 4096, CU_MEM_ADVISE_UNSET_READ_MOSTLY, dev0));
	OK(cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, MIB));
	CHECK(v == 0);
	OK(cuMemAdvise(a, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
	OK(cuMemAdvise_v2(a, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
	OK(cuMemRangeGetAttribute(list, 12, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, a, MIB));
	CHECK(list[0] == 0 && list[1] == CU_DEVICE_CPU && list[2] == CU_DEVICE_INVALID);
	OK(cuMemAdvise_v2(a, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
	OK(cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, a, MIB));
	CHECK(v == CU_DEVICE_CPU);
	OK(cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, a, MIB));
	CHECK(v == CU_MEM_LOCATION_TYPE_HOST);
	OK(cuMemAdvise_v2(a, MIB, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, bad));
	INVALID(cuMemAdvise_v2(a, MIB, (CUmem_advise)77, dev0));
	INVALID(cuMemAdvise_v2(plain, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, dev0));
	INVALID(cuMemRangeGetAttribute(&v, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, MIB));
	INVALID(cuMemRangeGetAttribute(&v, 4, (CUmem_range_attribute)77, a, MIB));
	OK(cuMemFree_v2(a));
	OK(cuMemFree_v2(plain));
}

static void test_advise_batches(void)
{
	CUmemLocation place[2] = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   { CU_MEM_LOCATION_TYPE_HOST, 0 } };
	CUdeviceptr p[2] = { 0 };
	size_t size[2] = { MIB, MIB }, first[2] = { 0, 1 };
	CUstream s = NULL;
	int v = -9;

	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocManaged(&p[0], MIB, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemAllocManaged(&p[1], MIB, CU_MEM_ATTACH_HOST));
	OK(cuMemPrefetchBatchAsync(p, size, 2, place, first, 2, 0, s));
	OK(cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p[0], MIB));
	CHECK_INT(v, 0);
	OK(cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p[1], MIB));
	CHECK_INT(v, CU_DEVICE_CPU);
	OK(cuMemDiscardBatchAsync(p, size, 2, 0, s));
	OK(cuMemDiscardAndPrefetchBatchAsync(p, size, 2, place, first, 1, 0, s));
	INVALID(cuMemPrefetchBatchAsync(p, size, 2, place, first, 2, 0, NULL));
	INVALID(cuMemPrefetchBatchAsync(p, size, 0, place, first, 2, 0, s));
	INVALID(cuMemDiscardBatchAsync(p, size, 2, 1, s));
	size[1] = MIB + 1;
	INVALID(cuMemDiscardBatchAsync(p, size, 2, 0, s));

	OK(cuStreamAttachMemAsync(s, p[1], 0, CU_MEM_ATTACH_SINGLE));
	OK(cuStreamAttachMemAsync(s, p[1], MIB, CU_MEM_ATTACH_GLOBAL));
	INVALID(cuStreamAttachMemAsync(NULL, p[1], 0, CU_MEM_ATTACH_SINGLE));
	INVALID(cuStreamAttachMemAsync(s, p[1], 4096, CU_MEM_ATTACH_GLOBAL));
	INVALID(cuStreamAttachMemAsync(s, p[1], 0, 9));
	INVALID(cuStreamAttachMemAsync(s, 0, 0, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemFree_v2(p[0]));
	OK(cuMemFree_v2(p[1]));
	OK(cuStreamDestroy_v2(s));
}

/* Memory goes with its context, and only that memory. */
static void test_contexts(void)
{
	CUcontext other = NULL;
	CUdeviceptr mine = 0, theirs = 0;
	void *host = NULL;
	unsigned char byte = 0, *own = malloc(MIB);

	OK(cuMemAlloc_v2(&mine, 1000));
	OK(cuMemsetD8_v2(mine, 6, 1000));
	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuMemAlloc_v2(&theirs, 1000));
	OK(cuMemAllocHost_v2(&host, 4096));
	put_pattern(own, MIB, 90);
	OK(cuMemHostRegister_v2(own, MIB, 0));
	OK(cuMemcpyDtoD_v2(theirs, mine,
			   1000)); /* unified addresses: across contexts of one device */
	OK(cuMemcpyDtoH_v2(&byte, theirs, 1));
	CHECK(byte == 6);
	OK(cuCtxDestroy_v2(other));
	OK(cuCtxSetCurrent(shared_ctx));
	INVALID(cuMemFree_v2(theirs));
	INVALID(cuMemFreeHost(host));
	INVALID(cuMemsetD8_v2(theirs, 0, 1));
	CHECK(has_pattern(own, MIB, 90)); /* the application's own memory stays */
	CHECK_RC(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	OK(cuMemHostRegister_v2(own, MIB, 0));
	OK(cuMemHostUnregister(own));
	CHECK(has_pattern(own, MIB, 90));
	free(own);
	byte = 0;
	OK(cuMemcpyDtoH_v2(&byte, mine + 999, 1));
	CHECK(byte == 6);
	OK(cuCtxSetCurrent(NULL));
	CHECK_RC(cuMemAlloc_v2(&theirs, 16), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuMemFree_v2(mine), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxSetCurrent(shared_ctx));
	OK(cuMemFree_v2(mine));
}

#define MANY 100000

static double seconds(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Time and memory of an allocation do not depend on how many there are. */
static void test_many(void)
{
	CUdeviceptr *p = calloc(MANY, sizeof(*p)), base = 0;
	size_t size = 0, free0 = 0, free1 = 0, total = 0;
	double t0 = 0, first = 0, last = 0;
	CUcontext other = NULL;

	OK(cuMemGetInfo_v2(&free0, &total));
	OK(cuCtxCreate_v2(&other, 0, 0));
	for (size_t i = 0; i < MANY; i++) {
		if (i % (MANY / 10) == 0)
			t0 = seconds();
		NEED(cuMemAlloc_v2(&p[i], 256));
		if (i + 1 == MANY / 10)
			first = seconds() - t0;
	}
	last = seconds() - t0;
	(void)printf("# %d allocations: first tenth %.3f s, last %.3f s\n", MANY, first, last);
	CHECK(last < 4 * first + 0.5);
	t0 = seconds();
	for (size_t i = 0; i < MANY; i++) {
		if (cuMemGetAddressRange_v2(&base, &size, p[i] + 100) != CUDA_SUCCESS ||
		    base != p[i])
			e2e_failures++;
	}
	(void)printf("# look-up: %.0f ns\n", (seconds() - t0) / MANY * 1e9);
	for (size_t i = 0; i < MANY; i += 20)
		NEED(cuMemFree_v2(p[i]));
	OK(cuCtxDestroy_v2(other)); /* and the rest with it */
	OK(cuCtxSetCurrent(shared_ctx));
	CHECK_RC(cuMemGetAddressRange_v2(&base, &size, p[MANY - 1]), CUDA_ERROR_NOT_FOUND);
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free1 == free0);
	free(p);
}

/* Allocate, copy, check and free beside others that do the same. */
static void *hammer(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg;
	unsigned char *buf = malloc(300000), *back = malloc(300000);
	uintptr_t bad = cuCtxSetCurrent(shared_ctx) != CUDA_SUCCESS;
	CUdeviceptr p = 0;
	void *host = NULL;

	for (unsigned i = 0; i < 60 && !bad; i++) {
		size_t size = (i * 7919 + seed * 104729) % 299999 + 1;

		put_pattern(buf, size, seed + i);
		bad |= cuMemAlloc_v2(&p, size) != CUDA_SUCCESS;
		bad |= cuMemcpyHtoD_v2(p, buf, size) != CUDA_SUCCESS;
		bad |= cuMemAllocHost_v2(&host, size) != CUDA_SUCCESS;
		bad |= cuMemcpy((uintptr_t)host, p, size) != CUDA_SUCCESS;
		bad |= !has_pattern(host, size, seed + i);
		bad |= cuMemcpyDtoH_v2(back, p, size) != CUDA_SUCCESS;
		bad |= !has_pattern(back, size, seed + i);
		bad |= cuMemFree_v2(p) != CUDA_SUCCESS;
		bad |= cuMemFreeHost(host) != CUDA_SUCCESS;
	}
	free(buf);
	free(back);
	return (void *)bad;
}

static void test_threads(void)
{
	pthread_t t[6];
	void *bad = NULL;

	for (uintptr_t i = 0; i < 6; i++)
		CHECK(pthread_create(&t[i], NULL, hammer, (void *)(i * 1000)) == 0);
	for (unsigned i = 0; i < 6; i++) {
		CHECK(pthread_join(t[i], &bad) == 0);
		CHECK(bad == NULL);
	}
}

static const struct e2e_test tests[] = {
	{ "alloc", test_alloc },
	{ "pitch", test_pitch },
	{ "out-of-memory", test_out_of_memory },
	{ "managed", test_managed },
	{ "host", test_host },
	{ "register", test_register },
	{ "pointer", test_pointer },
	{ "advise", test_advise },
	{ "advise-batches", test_advise_batches },
	{ "contexts", test_contexts },
	{ "threads", test_threads },
	{ "many", test_many },
};

int main(void)
{
	CUdeviceptr p = 0;

	if (cuMemAlloc_v2(&p, 16) != CUDA_ERROR_NOT_INITIALIZED)
		(void)printf("Bail out! memory before cuInit\n");
	shared_ctx = open_context(0);
	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
