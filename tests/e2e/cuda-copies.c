/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills of every shape, checked byte by byte, and those that are refused. */
#include "patterns.h"

#define MIB (1024UL * 1024)
#define BIG (3 * MIB + 17)

static unsigned char *src, *dst; /* pageable, BIG bytes */
static void *pinned;		 /* BIG bytes */
static CUdeviceptr a, b;	 /* device, BIG bytes */
static CUdeviceptr managed;	 /* BIG bytes */
static CUcontext ctx;
static CUstream stream;

static const size_t sizes[] = { 1,     2,     255,    4096, 49152,	 49153, 65535,
				65536, 65537, 131072, MIB,  2 * MIB + 1, BIG };
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void test_there_and_back(void)
{
	for (unsigned i = 0; i < N_SIZES; i++) {
		size_t n = sizes[i];

		put_pattern(src, n, i);
		memset(dst, 0, n + 1 <= BIG ? n + 1 : BIG);
		OK(cuMemcpyHtoD_v2(a, src, n));
		OK(cuMemcpyDtoD_v2(b, a, n));
		OK(cuMemcpyDtoH_v2(dst, b, n));
		CHECK(has_pattern(dst, n, i));
		CHECK(n == BIG || dst[n] == 0);
	}
}

static void test_async(void)
{
	for (unsigned i = 0; i < N_SIZES; i++) {
		size_t n = sizes[i];

		put_pattern(src, n, 100 + i);
		memset(dst, 0, n);
		OK(cuMemcpyHtoDAsync_v2(a, src, n, stream));
		memset(src, 0xee, n); /* staged: the source may change at once */
		OK(cuMemcpyDtoDAsync_v2(b, a, n, stream));
		OK(cuMemcpyDtoHAsync_v2(dst, b, n, stream));
		OK(cuStreamSynchronize(stream));
		CHECK(has_pattern(dst, n, 100 + i));
	}
	put_pattern(pinned, BIG, 1);
	OK(cuMemcpyHtoDAsync_v2(a, pinned, BIG, stream));
	OK(cuMemcpyDtoHAsync_v2(dst, a, BIG, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(has_pattern(dst, BIG, 1));
	CHECK_RC(cuMemcpyHtoDAsync_v2(a, src, 16, (CUstream)&ctx), CUDA_ERROR_INVALID_HANDLE);
}

/* Where an address is decides the direction. */
static void test_unified(void)
{
	CUdeviceptr place[] = { (uintptr_t)src, (uintptr_t)pinned, a, managed };
	CUdeviceptr to[] = { (uintptr_t)dst, (uintptr_t)pinned, b, managed };

	for (unsigned i = 0; i < 4; i++) {
		for (unsigned j = 0; j < 4; j++) {
			size_t n = 200000 + i * 10 + j;

			if (place[i] == to[j])
				continue;
			put_pattern(src, n, i * 4 + j);
			if (i > 0)
				OK(cuMemcpy(place[i], (uintptr_t)src, n));
			OK(cuMemcpy(to[j], place[i], n));
			memset(dst, 0, j > 0 ? n : 0);
			if (j > 0)
				OK(cuMemcpyAsync((uintptr_t)dst, to[j], n, stream));
			OK(cuStreamSynchronize(stream));
			CHECK(has_pattern(dst, n, i * 4 + j));
		}
	}
}

static void test_misuse(void)
{
	CUdeviceptr gone = 0;

	OK(cuMemAlloc_v2(&gone, 4096));
	OK(cuMemFree_v2(gone));
	INVALID(cuMemcpyHtoD_v2(a, src, BIG + 1));
	INVALID(cuMemcpyHtoD_v2(a + BIG, src, 1));
	INVALID(cuMemcpyHtoD_v2(a + 1, src, BIG));
	INVALID(cuMemcpyHtoD_v2(a, src, SIZE_MAX));
	INVALID(cuMemcpyHtoD_v2(0, src, 16));
	INVALID(cuMemcpyHtoD_v2(a, NULL, 16));
	INVALID(cuMemcpyHtoD_v2((uintptr_t)dst, src, 16));     /* no device address */
	INVALID(cuMemcpyHtoD_v2(a, (void *)(uintptr_t)b, 16)); /* no host address */
	INVALID(cuMemcpyDtoH_v2((void *)(uintptr_t)b, a, 16));
	INVALID(cuMemcpyDtoH_v2(dst, (uintptr_t)src, 16));
	INVALID(cuMemcpyDtoD_v2(a, (uintptr_t)src, 16));
	INVALID(cuMemcpyDtoH_v2(NULL, a, 16));
	INVALID(cuMemcpyDtoD_v2(gone, a, 16));
	INVALID(cuMemcpy((uintptr_t)dst, gone, 16));
	INVALID(cuMemcpy(UINT64_MAX - 3, a, 16));
	INVALID(cuMemcpyDtoH_v2((char *)pinned + BIG - 1, a,
				2)); /* across the end of pinned memory */
	OK(cuMemcpyHtoD_v2(a, src, 0));
	OK(cuMemcpyHtoD_v2(0, NULL, 0));
	OK(cuCtxSynchronize());
}

static void test_peer(void)
{
	CUcontext other = NULL;
	CUdeviceptr there = 0;
	int n = 0;

	OK(cuDeviceGetCount(&n));
	OK(cuCtxCreate_v2(&other, 0, n > 1));
	OK(cuMemAlloc_v2(&there, MIB));
	OK(cuCtxSetCurrent(ctx));
	put_pattern(src, MIB, 50);
	OK(cuMemcpyHtoD_v2(a, src, MIB));
	OK(cuMemcpyPeer(there, other, a, ctx, MIB));
	OK(cuMemsetD8_v2(a, 0, MIB));
	OK(cuMemcpyPeerAsync(b, ctx, there, other, MIB, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH_v2(dst, b, MIB));
	CHECK(has_pattern(dst, MIB, 50));
	CHECK_RC(cuMemcpyPeer(there, NULL, a, ctx, 16), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuMemcpyPeer(there, other, a, (CUcontext)src, 16), CUDA_ERROR_INVALID_CONTEXT);
	INVALID(cuMemcpyPeer(there + 1, other, a, ctx, MIB));
	INVALID(cuMemcpyPeer((uintptr_t)dst, other, a, ctx, 16));
	{
		CUDA_MEMCPY3D_PEER p = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
					 .srcDevice = b,
					 .srcContext = ctx,
					 .srcPitch = 64,
					 .srcHeight = 8,
					 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
					 .dstDevice = there,
					 .dstContext = other,
					 .dstPitch = 100,
					 .dstHeight = 9,
					 .WidthInBytes = 60,
					 .Height = 7,
					 .Depth = 3 };

		OK(cuMemcpy3DPeer(&p));
		OK(cuMemcpyDtoH_v2(dst, there + 2 * 900 + 6 * 100, 60));
		for (unsigned i = 0; i < 60; i++)
			CHECK(dst[i] == pattern_at(2 * 512 + 6 * 64 + i, 50));
		OK(cuMemcpy3DPeerAsync(&p, stream));
		OK(cuStreamSynchronize(stream));
		p.dstContext = NULL;
		CHECK_RC(cuMemcpy3DPeer(&p), CUDA_ERROR_INVALID_CONTEXT);
		INVALID(cuMemcpy3DPeer(NULL));
	}
	OK(cuCtxDestroy_v2(other));
	OK(cuCtxSetCurrent(ctx));
}

/* A rectangle out of the middle of one plane into the middle of another, by every way. */
static void rectangle(CUmemorytype from, CUmemorytype to, int call)
{
	enum {
		SP = 700,
		DP = 1024,
		W = 600,
		H = 300,
		SX = 30,
		SY = 4,
		DX = 8,
		DY = 2
	};
	CUDA_MEMCPY2D c = { .srcXInBytes = SX,
			    .srcY = SY,
			    .srcMemoryType = from,
			    .srcHost = src,
			    .srcDevice = from == CU_MEMORYTYPE_UNIFIED ? managed : a,
			    .srcPitch = SP,
			    .dstXInBytes = DX,
			    .dstY = DY,
			    .dstMemoryType = to,
			    .dstHost = dst,
			    .dstDevice = to == CU_MEMORYTYPE_UNIFIED ? (uintptr_t)pinned : b,
			    .dstPitch = DP,
			    .WidthInBytes = W,
			    .Height = H };
	size_t src_size = (size_t)SP * (SY + H), dst_size = (size_t)DP * (DY + H + 1);

	put_pattern(src, src_size, 9);
	OK(cuMemcpyHtoD_v2(a, src, src_size));
	OK(cuMemcpyHtoD_v2(managed, src, src_size));
	memset(dst, 0x55, dst_size);
	memset(pinned, 0x55, dst_size);
	OK(cuMemsetD8_v2(b, 0x55, dst_size));
	OK(cuCtxSynchronize()); /* the other stream does not wait for the legacy one */
	if (call == 0)
		OK(cuMemcpy2D_v2(&c));
	else if (call == 1)
		OK(cuMemcpy2DUnaligned_v2(&c));
	else
		OK(cuMemcpy2DAsync_v2(&c, stream));
	OK(cuStreamSynchronize(stream));
	if (to == CU_MEMORYTYPE_DEVICE)
		OK(cuMemcpyDtoH_v2(dst, b, dst_size));
	if (to == CU_MEMORYTYPE_UNIFIED)
		memcpy(dst, pinned, dst_size);
	for (size_t y = 0; y < DY + H + 1; y++) {
		for (size_t x = 0; x < DP; x++) {
			int in = x >= DX && x < DX + W && y >= DY && y < DY + H;
			uint8_t want = in ? pattern_at((y - DY + SY) * SP + x - DX + SX, 9) : 0x55;

			if (dst[y * DP + x] != want) {
				CHECK(dst[y * DP + x] == want);
				return;
			}
		}
	}
}

static void test_rectangles(void)
{
	CUmemorytype types[] = { CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED };

	for (unsigned i = 0; i < 3; i++) {
		for (unsigned j = 0; j < 3; j++) {
			for (int call = 0; call < 3; call++)
				rectangle(types[i], types[j], call);
		}
	}
}

static void test_rectangles_refused(void)
{
	CUDA_MEMCPY2D good = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			       .srcHost = src,
			       .srcPitch = 100,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = a,
			       .dstPitch = 128,
			       .WidthInBytes = 100,
			       .Height = 10 };
	CUDA_MEMCPY2D c = good;

	OK(cuMemcpy2D_v2(&c));
	INVALID(cuMemcpy2D_v2(NULL));
	c.dstPitch = 99;
	INVALID(cuMemcpy2D_v2(&c));
	c = good;
	c.srcPitch = 1;
	INVALID(cuMemcpy2D_v2(&c));
	c = good;
	c.Height = SIZE_MAX / 64;
	INVALID(cuMemcpy2D_v2(&c));
	c = good;
	c.dstY = SIZE_MAX - 1;
	INVALID(cuMemcpy2D_v2(&c));
	c = good;
	c.dstXInBytes = SIZE_MAX - 10;
	INVALID(cuMemcpy2D_v2(&c));
	c = good;
	c.dstPitch = 1UL << 33;
	INVALID(cuMemcpy2D_v2(&c));
	c = good;
	c.dstMemoryType = (CUmemorytype)9;
	INVALID(cuMemcpy2D_v2(&c));
	c = good;
	c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	CHECK_RC(cuMemcpy2D_v2(&c), CUDA_ERROR_INVALID_HANDLE);
	c = good;
	c.Height = BIG; /* beyond the allocation */
	INVALID(cuMemcpy2D_v2(&c));
	c = good;
	c.Height = 0;
	OK(cuMemcpy2D_v2(&c));
	c = good;
	c.Height = 1;
	c.srcPitch = c.dstPitch = 0;
	OK(cuMemcpy2D_v2(&c));
}

static void test_boxes(void)
{
	enum {
		P = 96,
		SH = 20,
		W = 64,
		H = 16,
		D = 5
	};
	CUDA_MEMCPY3D c = { .srcXInBytes = 5,
			    .srcY = 2,
			    .srcZ = 1,
			    .srcMemoryType = CU_MEMORYTYPE_HOST,
			    .srcHost = src,
			    .srcPitch = P,
			    .srcHeight = SH,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstDevice = a,
			    .dstPitch = W,
			    .dstHeight = H,
			    .WidthInBytes = W,
			    .Height = H,
			    .Depth = D };

	put_pattern(src, (size_t)P * SH * (D + 2), 21);
	OK(cuMemcpy3D_v2(&c));
	OK(cuMemcpyDtoH_v2(dst, a, (size_t)W * H * D));
	for (size_t z = 0; z < D; z++) {
		for (size_t y = 0; y < H; y++) {
			for (size_t x = 0; x < W; x++) {
				uint8_t want = pattern_at(((z + 1) * SH + y + 2) * P + x + 5, 21);

				if (dst[(z * H + y) * W + x] != want)
					e2e_failures++;
			}
		}
	}
	OK(cuMemcpy3DAsync_v2(&c, stream));
	OK(cuStreamSynchronize(stream));
	INVALID(cuMemcpy3D_v2(NULL));
	c.srcHeight = 3;
	INVALID(cuMemcpy3D_v2(&c));
	c.srcHeight = SH;
	c.srcLOD = 1;
	INVALID(cuMemcpy3D_v2(&c));
	c.srcLOD = 0;
	c.Depth = SIZE_MAX / 1024;
	INVALID(cuMemcpy3D_v2(&c));
}

static void test_fills(void)
{
	OK(cuMemsetD8_v2(a, 0, 4096));
	OK(cuMemsetD8_v2(a + 1, 0xab, 7));
	OK(cuMemsetD16_v2(a + 10, 0x1234, 5));
	OK(cuMemsetD32_v2(a + 100, 0xdeadbeef, 3));
	OK(cuMemsetD8Async(a + 200, 1, 2, stream));
	OK(cuMemsetD16Async(a + 202, 0x0203, 1, stream));
	OK(cuMemsetD32Async(a + 204, 0x04050607, 1, stream));
	OK(cuMemsetD2D8_v2(a + 1000, 32, 0x77, 10, 3));
	OK(cuMemsetD2D16_v2(a + 1200, 32, 0x8899, 4, 2));
	OK(cuMemsetD2D32_v2(a + 1400, 32, 0xaabbccdd, 2, 2));
	OK(cuMemsetD2D8Async(a + 1600, 16, 1, 1, 2, stream));
	OK(cuMemsetD2D16Async(a + 1700, 16, 2, 1, 2, stream));
	OK(cuMemsetD2D32Async(a + 1800, 16, 3, 1, 2, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH_v2(dst, a, 4096));
	CHECK(dst[0] == 0 && all_bytes(dst + 1, 7, 0xab) && dst[8] == 0);
	CHECK(dst[10] == 0x34 && dst[19] == 0x12 && dst[20] == 0);
	CHECK(dst[100] == 0xef && dst[111] == 0xde && dst[112] == 0);
	CHECK(dst[200] == 1 && dst[201] == 1 && dst[202] == 3 && dst[203] == 2 && dst[204] == 7);
	CHECK(all_bytes(dst + 1000, 10, 0x77) && all_bytes(dst + 1010, 22, 0));
	CHECK(all_bytes(dst + 1064, 10, 0x77) && all_bytes(dst + 1074, 22, 0));
	CHECK(dst[1200] == 0x99 && dst[1207] == 0x88 && dst[1208] == 0 && dst[1239] == 0x88);
	CHECK(dst[1400] == 0xdd && dst[1407] == 0xaa && dst[1408] == 0 && dst[1439] == 0xaa);
	CHECK(dst[1600] == 1 && dst[1616] == 1 && dst[1617] == 0);
	CHECK(dst[1700] == 2 && dst[1716] == 2 && dst[1800] == 3 && dst[1816] == 3);

	INVALID(cuMemsetD16_v2(a + 1, 0, 2));
	INVALID(cuMemsetD32_v2(a + 2, 0, 2));
	INVALID(cuMemsetD8_v2(a, 0, BIG + 1));
	INVALID(cuMemsetD32_v2(a, 0, SIZE_MAX / 2));
	INVALID(cuMemsetD8_v2(0, 0, 1));
	INVALID(cuMemsetD8_v2((uintptr_t)dst, 0, 1));
	INVALID(cuMemsetD2D8_v2(a, 5, 0, 10, 3));
	INVALID(cuMemsetD2D32_v2(a, 30, 0, 2, 3));
	INVALID(cuMemsetD2D8_v2(a, 1UL << 30, 0, 10, SIZE_MAX / 4));
	OK(cuMemsetD8_v2(0, 0, 0));
}

/* Many small pieces of one stream arrive in order. */
static void test_order(void)
{
	for (unsigned i = 0; i < 2000; i++)
		OK(cuMemcpyHtoDAsync_v2(a, &i, sizeof(i), stream));
	OK(cuMemcpyDtoHAsync_v2(pinned, a, 4, stream));
	OK(cuStreamSynchronize(stream));
	CHECK_INT(*(unsigned *)pinned, 1999);
}

static void test_batch(void)
{
	CUmemcpyAttributes attr[2] = { { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM },
				       { .srcAccessOrder =
						 CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL } };
	CUdeviceptr to[3] = { a, a + 1000, a + 100000 };
	CUdeviceptr from[3] = { (uintptr_t)src, (uintptr_t)pinned, (uintptr_t)src + 1000 };
	size_t size[3] = { 1000, 99000, 200000 }, first[2] = { 0, 1 }, fail = 7;

	put_pattern(src, 1000, 60);
	put_pattern(pinned, 99000, 61);
	put_pattern(src + 1000, 200000, 62);
	OK(cuMemcpyBatchAsync_v2(to, from, size, 3, attr, first, 2, stream));
	memset(pinned, 0, 99000); /* it was read during the call */
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH_v2(dst, a, 300000));
	CHECK(has_pattern(dst, 1000, 60) && has_pattern(dst + 1000, 99000, 61));
	CHECK(has_pattern(dst + 100000, 200000, 62));
	INVALID(cuMemcpyBatchAsync_v2(to, from, size, 3, attr, first, 2, NULL));
	INVALID(cuMemcpyBatchAsync_v2(to, from, size, 0, attr, first, 2, stream));
	INVALID(cuMemcpyBatchAsync_v2(to, from, size, 3, attr, first, 4, stream));
	first[1] = 0;
	INVALID(cuMemcpyBatchAsync_v2(to, from, size, 3, attr, first, 2, stream));
	first[1] = 3;
	INVALID(cuMemcpyBatchAsync_v2(to, from, size, 3, attr, first, 2, stream));
	first[1] = 1;
	to[2] = a + BIG;
	INVALID(cuMemcpyBatchAsync(to, from, size, 3, attr, first, 2, &fail, stream));
	CHECK_INT(fail, 2);
	attr[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
	INVALID(cuMemcpyBatchAsync(to, from, size, 3, attr, first, 2, &fail, stream));
	CHECK(fail == SIZE_MAX);
}

static void test_batch_boxes(void)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { 32, 16, 4, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0 };
	CUDA_MEMCPY3D_BATCH_OP op[2] = { 0 };
	CUarray array = NULL;
	size_t fail = 0;

	OK(cuArray3DCreate_v2(&array, &desc));
	put_pattern(src, 32 * 16 * 4 * 4, 70);
	op[0].src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
	op[0].src.op.ptr.ptr = (uintptr_t)src;
	op[0].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
	op[0].dst.op.array.array = array;
	op[0].extent = (CUextent3D){ 32, 16, 4 };
	op[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
	OK(cuMemcpy3DBatchAsync_v2(1, op, 0, stream));
	op[1].src = op[0].dst;
	op[1].src.op.array.offset = (CUoffset3D){ 2, 3, 1 };
	op[1].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
	op[1].dst.op.ptr.ptr = (uintptr_t)dst;
	op[1].dst.op.ptr.rowLength = 10;
	op[1].extent = (CUextent3D){ 5, 2, 2 };
	op[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
	OK(cuMemcpy3DBatchAsync_v2(1, &op[1], 0, stream));
	OK(cuStreamSynchronize(stream));
	for (size_t z = 0; z < 2; z++) {
		for (size_t y = 0; y < 2; y++)
			CHECK(memcmp(dst + (z * 2 + y) * 40,
				     src + (((z + 1) * 16 + y + 3) * 32 + 2) * 4, 20) == 0);
	}
	INVALID(cuMemcpy3DBatchAsync_v2(0, op, 0, stream));
	INVALID(cuMemcpy3DBatchAsync_v2(1, op, 1, stream));
	INVALID(cuMemcpy3DBatchAsync_v2(1, op, 0, NULL));
	op[1].extent.width = 0;
	INVALID(cuMemcpy3DBatchAsync(2, op, &fail, 0, stream));
	CHECK_INT(fail, 1);
	op[1].extent.width = 11; /* beyond rowLength */
	INVALID(cuMemcpy3DBatchAsync(2, op, &fail, 0, stream));
	OK(cuArrayDestroy(array));
}

static const struct e2e_test tests[] = {
	{ "there-and-back", test_there_and_back },
	{ "async", test_async },
	{ "unified", test_unified },
	{ "misuse", test_misuse },
	{ "peer", test_peer },
	{ "rectangles", test_rectangles },
	{ "rectangles-refused", test_rectangles_refused },
	{ "boxes", test_boxes },
	{ "fills", test_fills },
	{ "order", test_order },
	{ "batch", test_batch },
	{ "batch-boxes", test_batch_boxes },
};

int main(void)
{
	int rc = 0;

	ctx = open_context(0);
	src = malloc(BIG);
	dst = malloc(BIG + 1);
	NEED(cuMemAllocHost_v2(&pinned, BIG));
	NEED(cuMemAlloc_v2(&a, BIG));
	NEED(cuMemAlloc_v2(&b, BIG));
	NEED(cuMemAllocManaged(&managed, BIG, CU_MEM_ATTACH_GLOBAL));
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	rc = e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
	free(src);
	free(dst);
	return rc;
}
