/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of one to three dimensions, layered, cube and mipmapped: made, described, copied and refused. */
#include "patterns.h"

static unsigned char *src, *dst;
static CUdeviceptr dev;
static CUstream stream;

#define BUF (4UL * 1024 * 1024)

static CUarray make(size_t w, size_t h, size_t d, CUarray_format format, unsigned channels,
		    unsigned flags)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { w, h, d, format, channels, flags };
	CUarray a = NULL;

	OK(cuArray3DCreate_v2(&a, &desc));
	return a;
}

static void test_describe(void)
{
	CUDA_ARRAY_DESCRIPTOR d2 = { 100, 50, CU_AD_FORMAT_FLOAT, 4 }, seen2 = { 0 };
	CUDA_ARRAY3D_DESCRIPTOR seen = { 0 };
	CUDA_ARRAY_MEMORY_REQUIREMENTS req = { 0 };
	size_t free0 = 0, free1 = 0, total = 0;
	CUarray a = NULL, b = NULL;

	OK(cuMemGetInfo_v2(&free0, &total));
	OK(cuArrayCreate_v2(&a, &d2));
	OK(cuArrayGetDescriptor_v2(&seen2, a));
	CHECK(seen2.Width == 100 && seen2.Height == 50 && seen2.NumChannels == 4);
	OK(cuArray3DGetDescriptor_v2(&seen, a));
	CHECK(seen.Width == 100 && seen.Depth == 0 && seen.Format == CU_AD_FORMAT_FLOAT);
	OK(cuArrayGetMemoryRequirements(&req, a, 0));
	CHECK(req.size >= 100 * 50 * 16 && req.alignment >= 256);
	b = make(10, 20, 30, CU_AD_FORMAT_HALF, 2, CUDA_ARRAY3D_SURFACE_LDST);
	OK(cuArray3DGetDescriptor_v2(&seen, b));
	CHECK(seen.Depth == 30 && seen.Flags == CUDA_ARRAY3D_SURFACE_LDST);
	INVALID(cuArrayGetDescriptor_v2(&seen2, b));
	OK(cuArrayDestroy(a));
	CHECK_RC(cuArrayDestroy(a), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuArrayDestroy((CUarray)&d2), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuArrayDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuArray3DGetDescriptor_v2(&seen, a), CUDA_ERROR_INVALID_HANDLE);
	OK(cuArrayDestroy(b));
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free0 == free1);
	CHECK_RC(cuArrayGetPlane(&a, b, 0), CUDA_ERROR_NOT_SUPPORTED);
}

static void refuse(size_t w, size_t h, size_t d, int format, unsigned channels, unsigned flags,
		   CUresult want)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { w, h, d, (CUarray_format)format, channels, flags };
	CUarray a = NULL;

	CHECK_RC(cuArray3DCreate_v2(&a, &desc), want);
	CHECK(a == NULL);
}

static void test_refused(void)
{
	const int u8 = CU_AD_FORMAT_UNSIGNED_INT8;

	refuse(0, 0, 0, u8, 1, 0, CUDA_ERROR_INVALID_VALUE);
	refuse(10, 0, 5, u8, 1, 0, CUDA_ERROR_INVALID_VALUE);
	refuse(10, 10, 0, u8, 3, 0, CUDA_ERROR_INVALID_VALUE);
	refuse(10, 10, 0, u8, 0, 0, CUDA_ERROR_INVALID_VALUE);
	refuse(10, 10, 0, 0x7777, 1, 0, CUDA_ERROR_NOT_SUPPORTED);
	refuse(10, 10, 0, CU_AD_FORMAT_NV12, 1, 0, CUDA_ERROR_NOT_SUPPORTED);
	refuse(10, 10, 0, u8, 1, CUDA_ARRAY3D_SPARSE, CUDA_ERROR_NOT_SUPPORTED);
	refuse(10, 10, 0, u8, 1, 0x8000, CUDA_ERROR_INVALID_VALUE);
	refuse(1UL << 40, 0, 0, u8, 1, 0, CUDA_ERROR_INVALID_VALUE);
	refuse(SIZE_MAX, SIZE_MAX, SIZE_MAX, u8, 1, 0, CUDA_ERROR_INVALID_VALUE);
	refuse(16, 15, 6, u8, 1, CUDA_ARRAY3D_CUBEMAP, CUDA_ERROR_INVALID_VALUE);
	refuse(16, 16, 5, u8, 1, CUDA_ARRAY3D_CUBEMAP, CUDA_ERROR_INVALID_VALUE);
	refuse(16, 16, 0, u8, 1, CUDA_ARRAY3D_LAYERED, CUDA_ERROR_INVALID_VALUE);
	refuse(16384, 16384, 16384, CU_AD_FORMAT_FLOAT, 4, 0, CUDA_ERROR_OUT_OF_MEMORY);
	INVALID(cuArray3DCreate_v2(NULL, NULL));
	INVALID(cuArrayCreate_v2((CUarray[]){ NULL }, NULL));
}

static void test_lines(void)
{
	CUarray a = make(5000, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0);
	CUarray b = make(5000, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0);
	CUarray c = make(5000, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0);
	CUarray plane = make(64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0);

	put_pattern(src, 20000, 4);
	OK(cuMemcpyHtoA_v2(a, 0, src, 20000));
	OK(cuMemcpyAtoA_v2(b, 0, a, 4000, 16000));
	OK(cuMemcpyAtoD_v2(dev, b, 0, 16000));
	OK(cuMemcpyDtoH_v2(dst, dev, 16000));
	CHECK(memcmp(dst, src + 4000, 16000) == 0);
	OK(cuMemcpyDtoA_v2(b, 8, dev, 400));
	OK(cuMemcpyAtoH_v2(dst, b, 8, 400));
	CHECK(memcmp(dst, src + 4000, 400) == 0);
	OK(cuMemcpyHtoAAsync_v2(a, 16, src, 1000, stream));
	OK(cuMemcpyAtoHAsync_v2(dst, a, 16, 1000, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(memcmp(dst, src, 1000) == 0);
	INVALID(cuMemcpyHtoA_v2(a, 4, src, 20000));
	INVALID(cuMemcpyHtoA_v2(a, 2, src, 4));	     /* within an element */
	INVALID(cuMemcpyAtoA_v2(c, 0, a, 0, 4));     /* elements of another size */
	INVALID(cuMemcpyHtoA_v2(plane, 0, src, 64)); /* not one-dimensional */
	INVALID(cuMemcpyHtoA_v2(a, SIZE_MAX - 3, src, 8));
	INVALID(cuMemcpyHtoA_v2(a, 0, NULL, 8));
	CHECK_RC(cuMemcpyHtoA_v2(NULL, 0, src, 8), CUDA_ERROR_INVALID_HANDLE);
	OK(cuArrayDestroy(a));
	OK(cuArrayDestroy(b));
	OK(cuArrayDestroy(c));
	OK(cuArrayDestroy(plane));
}

static void test_planes(void)
{
	enum {
		W = 333 * 4,
		H = 100
	};
	CUarray a = make(333, H, 0, CU_AD_FORMAT_FLOAT, 1, 0);
	CUarray b = make(333, H, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0);
	CUDA_MEMCPY2D in = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			     .srcHost = src,
			     .srcPitch = W,
			     .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			     .dstArray = a,
			     .WidthInBytes = W,
			     .Height = H };
	CUDA_MEMCPY2D across = { .srcXInBytes = 40,
				 .srcY = 10,
				 .srcMemoryType = CU_MEMORYTYPE_ARRAY,
				 .srcArray = a,
				 .dstMemoryType = CU_MEMORYTYPE_ARRAY,
				 .dstArray = b,
				 .WidthInBytes = 400,
				 .Height = 20 };
	CUDA_MEMCPY2D out = { .srcMemoryType = CU_MEMORYTYPE_ARRAY,
			      .srcArray = b,
			      .dstMemoryType = CU_MEMORYTYPE_HOST,
			      .dstHost = dst,
			      .dstPitch = 512,
			      .WidthInBytes = 400,
			      .Height = 20 };

	put_pattern(src, (size_t)W * H, 6);
	OK(cuMemcpy2D_v2(&in));
	OK(cuMemcpy2DAsync_v2(&across, stream));
	OK(cuMemcpy2DAsync_v2(&out, stream));
	OK(cuStreamSynchronize(stream));
	for (int y = 0; y < 20; y++)
		CHECK(memcmp(dst + 512 * y, src + (size_t)(y + 10) * W + 40, 400) == 0);
	across.srcXInBytes = 42;
	INVALID(cuMemcpy2D_v2(&across));
	across.srcXInBytes = W - 396;
	INVALID(cuMemcpy2D_v2(&across));
	across.srcXInBytes = 0;
	across.srcY = H - 19;
	INVALID(cuMemcpy2D_v2(&across));
	OK(cuArrayDestroy(a));
	OK(cuArrayDestroy(b));
}

static void box(size_t w, size_t h, size_t d, unsigned flags)
{
	CUarray a = make(w, h, d, CU_AD_FORMAT_SIGNED_INT16, 2, flags);
	size_t rows = h ? h : 1;
	CUDA_MEMCPY3D c = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			    .srcHost = src,
			    .srcPitch = w * 4,
			    .srcHeight = rows,
			    .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			    .dstArray = a,
			    .WidthInBytes = w * 4,
			    .Height = rows,
			    .Depth = d };
	size_t size = w * 4 * rows * d;

	put_pattern(src, size, 12);
	memset(dst, 0, size);
	OK(cuMemcpy3D_v2(&c));
	memset(&c, 0, sizeof(c));
	c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	c.srcArray = a;
	c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	c.dstDevice = dev;
	c.dstPitch = w * 4;
	c.dstHeight = rows;
	c.WidthInBytes = w * 4;
	c.Height = rows;
	c.Depth = d;
	OK(cuMemcpy3DAsync_v2(&c, stream));
	OK(cuMemcpyDtoHAsync_v2(dst, dev, size, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(has_pattern(dst, size, 12));
	c.srcZ = 1;
	INVALID(cuMemcpy3D_v2(&c));
	OK(cuArrayDestroy(a));
}

static void test_boxes(void)
{
	box(50, 40, 30, 0);
	box(50, 40, 30, CUDA_ARRAY3D_LAYERED);
	box(500, 0, 30, CUDA_ARRAY3D_LAYERED);
	box(32, 32, 6, CUDA_ARRAY3D_CUBEMAP);
	box(16, 16, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED);
}

static void test_mipmaps(void)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { 64, 32, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0 }, seen = { 0 };
	CUDA_ARRAY_MEMORY_REQUIREMENTS req = { 0 };
	CUmipmappedArray m = NULL;
	CUarray level[7] = { NULL }, none = NULL;

	OK(cuMipmappedArrayCreate(&m, &d, 99)); /* as many as there can be */
	OK(cuMipmappedArrayGetMemoryRequirements(&req, m, 0));
	CHECK(req.size >= 64 * 32 * 4);
	for (unsigned i = 0; i < 7; i++) {
		OK(cuMipmappedArrayGetLevel(&level[i], m, i));
		OK(cuArray3DGetDescriptor_v2(&seen, level[i]));
		CHECK(seen.Width == 64U >> i && seen.Height == (32U >> i ? 32U >> i : 1));
	}
	INVALID(cuMipmappedArrayGetLevel(&none, m, 7));
	for (unsigned i = 0; i < 7; i++) {
		CUDA_MEMCPY2D c = { .srcMemoryType = CU_MEMORYTYPE_HOST,
				    .srcHost = src,
				    .srcPitch = 256,
				    .dstMemoryType = CU_MEMORYTYPE_ARRAY,
				    .dstArray = level[i],
				    .WidthInBytes = 256U >> i,
				    .Height = 32U >> i ? 32U >> i : 1 };

		memset(src, (int)i + 1, 8192);
		OK(cuMemcpy2D_v2(&c));
	}
	for (unsigned i = 0; i < 7; i++) {
		CUDA_MEMCPY2D c = { .srcMemoryType = CU_MEMORYTYPE_ARRAY,
				    .srcArray = level[i],
				    .dstMemoryType = CU_MEMORYTYPE_HOST,
				    .dstHost = dst,
				    .dstPitch = 256U >> i,
				    .WidthInBytes = 256U >> i,
				    .Height = 32U >> i ? 32U >> i : 1 };

		OK(cuMemcpy2D_v2(&c));
		CHECK(all_bytes(dst, c.WidthInBytes * c.Height, (uint8_t)(i + 1)));
	}
	INVALID(cuArrayDestroy(level[1]));
	OK(cuMipmappedArrayDestroy(m));
	CHECK_RC(cuMipmappedArrayDestroy(m), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuArray3DGetDescriptor_v2(&seen, level[0]), CUDA_ERROR_INVALID_HANDLE);
	INVALID(cuMipmappedArrayCreate(&m, &d, 0));
	INVALID(cuMipmappedArrayCreate(NULL, &d, 1));
}

static const struct e2e_test tests[] = {
	{ "describe", test_describe }, { "refused", test_refused }, { "lines", test_lines },
	{ "planes", test_planes },     { "boxes", test_boxes },	    { "mipmaps", test_mipmaps },
};

int main(void)
{
	(void)open_context(0);
	src = malloc(BUF);
	dst = malloc(BUF);
	NEED(cuMemAlloc_v2(&dev, BUF));
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
