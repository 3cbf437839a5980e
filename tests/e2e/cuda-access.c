/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on every kind of memory, and what happens to memory that is freed under them. */
#include "patterns.h"

#include <sys/mman.h>

#define N   65536U /* words */
#define G   (2UL << 20)
#define MIB (1024UL * 1024)

static const char ptx[] =
	".version 6.0\n.target sm_70\n.address_size 64\n"
	".visible .global .align 4 .u32 counter = 5;\n"
	".visible .global .attribute(.managed) .align 4 .u32 shared_counter = 9;\n"
	".visible .const .align 4 .u32 factor = 3;\n"
	/* p[i] = p[i] * factor + i */
	".visible .entry change(.param .u64 p, .param .u32 n)\n{\n"
	"	.reg .b32 %r<8>;\n	.reg .b64 %rd<4>;\n	.reg .pred %q;\n"
	"	ld.param.u64 %rd1, [p];\n	ld.param.u32 %r1, [n];\n"
	"	mov.u32 %r2, %ctaid.x;\n	mov.u32 %r3, %ntid.x;\n	mov.u32 %r4, %tid.x;\n"
	"	mad.lo.s32 %r5, %r2, %r3, %r4;\n"
	"	setp.ge.u32 %q, %r5, %r1;\n	@%q ret;\n"
	"	mul.wide.u32 %rd2, %r5, 4;\n	add.s64 %rd3, %rd1, %rd2;\n"
	"	ld.u32 %r6, [%rd3];\n	ld.const.u32 %r7, [factor];\n"
	"	mad.lo.u32 %r6, %r6, %r7, %r5;\n	st.u32 [%rd3], %r6;\n	ret;\n}\n"
	".visible .entry count()\n{\n	.reg .b32 %r<3>;\n"
	"	atom.global.add.u32 %r1, [counter], 1;\n"
	"	atom.global.add.u32 %r2, [shared_counter], 1;\n	ret;\n}\n"
	/* for a while, then one store */
	".visible .entry late(.param .u64 p)\n{\n	.reg .b32 %r<3>;\n	.reg .b64 %rd<2>;\n"
	"	.reg .pred %q;\n	ld.param.u64 %rd1, [p];\n	mov.u32 %r1, 0;\n"
	"$L:	nanosleep.u32 1000000;\n	add.u32 %r1, %r1, 1;\n	setp.lt.u32 %q, %r1, 100;\n"
	"	@%q bra $L;\n	mov.u32 %r2, 7;\n	st.u32 [%rd1], %r2;\n	ret;\n}\n";

static CUcontext ctx;
static CUstream stream;
static CUmodule module;
static CUfunction change, count, late;

static void run(CUdeviceptr p)
{
	unsigned n = N;
	void *args[] = { &p, &n };

	OK(cuLaunchKernel(change, N / 256, 1, 1, 256, 1, 1, 0, stream, args, NULL));
}

static int is_changed(const uint32_t *w)
{
	for (uint32_t i = 0; i < N; i++) {
		if (w[i] != (i + 1) * 3 + i)
			return 0;
	}
	return 1;
}

/* Fill, run, fetch, check: by whatever copy suits the place. */
static void try_memory(CUdeviceptr p)
{
	static uint32_t buf[N];

	for (uint32_t i = 0; i < N; i++)
		buf[i] = i + 1;
	OK(cuMemcpyAsync(p, (uintptr_t)buf, sizeof(buf), stream));
	run(p);
	memset(buf, 0, sizeof(buf));
	OK(cuMemcpyAsync((uintptr_t)buf, p, sizeof(buf), stream));
	OK(cuStreamSynchronize(stream));
	CHECK(is_changed(buf));
}

static void test_device(void)
{
	CUdeviceptr p = 0;

	OK(cuMemAlloc_v2(&p, N * 4));
	try_memory(p);
	OK(cuMemFree_v2(p));
	OK(cuMemAllocAsync(&p, N * 4, stream));
	try_memory(p);
	OK(cuMemFreeAsync(p, stream));
	OK(cuStreamSynchronize(stream));
}

static void test_managed(void)
{
	CUdeviceptr p = 0;
	uint32_t *w = NULL;

	OK(cuMemAllocManaged(&p, N * 4, CU_MEM_ATTACH_GLOBAL));
	w = (uint32_t *)(uintptr_t)p;
	for (uint32_t i = 0; i < N; i++)
		w[i] = i + 1;
	run(p);
	OK(cuStreamSynchronize(stream));
	CHECK(is_changed(w));
	try_memory(p);
	OK(cuMemFree_v2(p));
}

static void test_host(void)
{
	uint32_t *w = NULL;
	CUdeviceptr p = 0;
	void *pinned = NULL;

	OK(cuMemHostAlloc(&pinned, N * 4, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer_v2(&p, pinned, 0));
	w = pinned;
	for (uint32_t i = 0; i < N; i++)
		w[i] = i + 1;
	run(p);
	OK(cuStreamSynchronize(stream));
	CHECK(is_changed(w));
	OK(cuMemFreeHost(pinned));

	w = (uint32_t *)((char *)malloc(N * 4 + 64) + 12); /* not aligned to anything */
	for (uint32_t i = 0; i < N; i++)
		w[i] = i + 1;
	OK(cuMemHostRegister_v2(w, N * 4, CU_MEMHOSTREGISTER_DEVICEMAP));
	OK(cuMemHostGetDevicePointer_v2(&p, w, 0));
	run(p);
	OK(cuStreamSynchronize(stream));
	CHECK(is_changed(w));
	OK(cuMemHostUnregister(w));
	CHECK(is_changed(w));
	free((char *)w - 12);
}

static void test_mapping(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc rw = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
			       CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h[2] = { 0 };
	CUdeviceptr va = 0;

	OK(cuMemAddressReserve(&va, 2 * G, 0, 0, 0));
	for (int i = 0; i < 2; i++) {
		OK(cuMemCreate(&h[i], G, &prop, 0));
		OK(cuMemMap(va + (unsigned)i * G, G, 0, h[i], 0));
	}
	OK(cuMemSetAccess(va, 2 * G, &rw, 1));
	try_memory(va + G - N * 2); /* across both */
	OK(cuMemUnmap(va, 2 * G));
	OK(cuMemRelease(h[0]));
	OK(cuMemRelease(h[1]));
	OK(cuMemAddressFree(va, 2 * G));
}

static void test_variables(void)
{
	CUdeviceptr p = 0, m = 0;
	size_t size = 0;
	uint32_t value = 0;
	int managed = 0;

	OK(cuModuleGetGlobal_v2(&p, &size, module, "counter"));
	CHECK_INT(size, 4);
	OK(cuModuleGetGlobal_v2(&m, &size, module, "shared_counter"));
	OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, m));
	CHECK_INT(managed, 1);
	OK(cuMemcpyDtoH_v2(&value, p, 4));
	CHECK_INT(value, 5);
	CHECK_INT(*(uint32_t *)(uintptr_t)m, 9); /* the host reads it as it is */
	*(uint32_t *)(uintptr_t)m = 100;
	value = 50;
	OK(cuMemcpyHtoD_v2(p, &value, 4));
	OK(cuLaunchKernel(count, 2, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH_v2(&value, p, 4));
	CHECK_INT(value, 114);
	CHECK_INT(*(uint32_t *)(uintptr_t)m, 164);
	OK(cuModuleGetGlobal_v2(&p, &size, module, "factor"));
	value = 3;
	OK(cuMemcpyHtoD_v2(p, &value, 4));
	INVALID(cuMemcpyHtoD_v2(p, &value, 400));
	INVALID(cuMemFree_v2(p));
	OK(cuMemPrefetchAsync_v2(m, 4, (CUmemLocation){ CU_MEM_LOCATION_TYPE_DEVICE, 0 }, 0, NULL));
}

/* Freeing waits for the work that may still use the memory. */
static void test_free_waits(void)
{
	CUdeviceptr p = 0, q = 0;
	void *args[] = { &p };
	void *host = NULL, *host_args[] = { &host };

	OK(cuMemAlloc_v2(&p, 4 * MIB));
	OK(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	OK(cuMemFree_v2(p));
	OK(cuStreamQuery(stream));
	OK(cuMemAllocHost_v2(&host, 4096));
	OK(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, stream, host_args, NULL));
	OK(cuMemFreeHost(host));
	OK(cuStreamQuery(stream));
	/* In stream order nothing waits. */
	OK(cuMemAllocAsync(&p, 4 * MIB, stream));
	OK(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	OK(cuMemFreeAsync(p, stream));
	CHECK_RC(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	OK(cuMemAlloc_v2(&q, 4 * MIB));
	OK(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, stream, &(void *){ &q }, NULL));
	OK(cuMemFreeAsync(q, stream));
	CHECK_RC(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	OK(cuStreamSynchronize(stream));
}

/* A kernel that uses freed memory has an error of its own context's, which stays. */
static void test_freed(void)
{
	CUcontext other = NULL;
	CUmodule m = NULL;
	CUfunction f = NULL;
	CUdeviceptr p = 0;
	void *args[] = { &p };

	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuModuleLoadData(&m, ptx));
	OK(cuModuleGetFunction(&f, m, "late"));
	OK(cuMemAlloc_v2(&p, 4 * MIB));
	OK(cuMemFree_v2(p));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_RC(cuMemAlloc_v2(&p, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_RC(cuMemcpyDtoH_v2(&p, p, 8), CUDA_ERROR_ILLEGAL_ADDRESS);
	(void)cuCtxDestroy_v2(other);
	OK(cuCtxSetCurrent(ctx));
	test_device();
}

static const struct e2e_test tests[] = {
	{ "device", test_device },	 { "managed", test_managed },
	{ "host", test_host },		 { "mapping", test_mapping },
	{ "variables", test_variables }, { "free-waits", test_free_waits },
	{ "freed", test_freed },
};

int main(void)
{
	ctx = open_context(0);
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	NEED(cuModuleLoadData(&module, ptx));
	NEED(cuModuleGetFunction(&change, module, "change"));
	NEED(cuModuleGetFunction(&count, module, "count"));
	NEED(cuModuleGetFunction(&late, module, "late"));
	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
