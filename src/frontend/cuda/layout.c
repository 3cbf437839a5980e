/* SPDX-License-Identifier: Apache-2.0 */
/* How arrays lie in memory: rows of elements, padded; slices of rows; levels one after the other. And extents of copies. Pure. */
#include "frontend/cuda/mem.h"

#include "base/macro.h"

#define ROW_ALIGN 32U

/* What the attributes of the software card say. */
#define MAX_1D		131072U
#define MAX_2D_WIDTH	131072U
#define MAX_2D_HEIGHT	65536U
#define MAX_3D		16384U
#define MAX_LAYERED_1D	32768U
#define MAX_LAYERED_2D	32768U
#define MAX_LAYERS	2048U
#define MAX_CUBE	32768U
#define MAX_CUBE_LAYERS 2046U

static const struct {
	CUarray_format format;
	uint8_t bytes, channels;
} formats[] = {
	{ CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 },  { CU_AD_FORMAT_UNSIGNED_INT16, 2, 0 },
	{ CU_AD_FORMAT_UNSIGNED_INT32, 4, 0 }, { CU_AD_FORMAT_SIGNED_INT8, 1, 0 },
	{ CU_AD_FORMAT_SIGNED_INT16, 2, 0 },   { CU_AD_FORMAT_SIGNED_INT32, 4, 0 },
	{ CU_AD_FORMAT_HALF, 2, 0 },	       { CU_AD_FORMAT_FLOAT, 4, 0 },
	{ CU_AD_FORMAT_UNORM_INT8X1, 1, 1 },   { CU_AD_FORMAT_UNORM_INT8X2, 1, 2 },
	{ CU_AD_FORMAT_UNORM_INT8X4, 1, 4 },   { CU_AD_FORMAT_UNORM_INT16X1, 2, 1 },
	{ CU_AD_FORMAT_UNORM_INT16X2, 2, 2 },  { CU_AD_FORMAT_UNORM_INT16X4, 2, 4 },
	{ CU_AD_FORMAT_SNORM_INT8X1, 1, 1 },   { CU_AD_FORMAT_SNORM_INT8X2, 1, 2 },
	{ CU_AD_FORMAT_SNORM_INT8X4, 1, 4 },   { CU_AD_FORMAT_SNORM_INT16X1, 2, 1 },
	{ CU_AD_FORMAT_SNORM_INT16X2, 2, 2 },  { CU_AD_FORMAT_SNORM_INT16X4, 2, 4 },
};

unsigned aq_fe_format_bytes(CUarray_format format, unsigned *ret_channels)
{
	for (unsigned i = 0; i < AQ_ARRAY_SIZE(formats); i++) {
		if (formats[i].format == format) {
			*ret_channels = formats[i].channels;
			return formats[i].bytes;
		}
	}
	return 0;
}

/* Extents and flags that make one of the shapes CUDA knows. */
static bool shape_is_valid(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	bool layered = d->Flags & CUDA_ARRAY3D_LAYERED, cube = d->Flags & CUDA_ARRAY3D_CUBEMAP;

	if (d->Width == 0)
		return false;
	if (cube && layered)
		return d->Width == d->Height && d->Width <= MAX_CUBE && d->Depth >= 6 &&
		       d->Depth % 6 == 0 && d->Depth <= MAX_CUBE_LAYERS;
	if (cube)
		return d->Width == d->Height && d->Width <= MAX_CUBE && d->Depth == 6;
	if (layered && d->Height == 0)
		return d->Width <= MAX_LAYERED_1D && d->Depth > 0 && d->Depth <= MAX_LAYERS;
	if (layered)
		return d->Width <= MAX_LAYERED_2D && d->Height <= MAX_LAYERED_2D && d->Depth > 0 &&
		       d->Depth <= MAX_LAYERS;
	if (d->Depth > 0)
		return d->Height > 0 && d->Width <= MAX_3D && d->Height <= MAX_3D &&
		       d->Depth <= MAX_3D;
	if (d->Height > 0)
		return d->Width <= MAX_2D_WIDTH && d->Height <= MAX_2D_HEIGHT;
	return d->Width <= MAX_1D;
}

CUresult aq_fe_array_layout(const CUDA_ARRAY3D_DESCRIPTOR *desc, struct aq_fe_array_layout *ret)
{
	const unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
			       CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
			       CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT;
	const unsigned refused = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING |
				 CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
	unsigned fixed = 0, bytes = 0;

	if (desc->Flags & ~(known | refused))
		return CUDA_ERROR_INVALID_VALUE;
	bytes = aq_fe_format_bytes(desc->Format, &fixed);
	if ((desc->Flags & refused) || bytes == 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (desc->NumChannels != 1 && desc->NumChannels != 2 && desc->NumChannels != 4)
		return CUDA_ERROR_INVALID_VALUE;
	if ((fixed && desc->NumChannels != fixed) || !shape_is_valid(desc))
		return CUDA_ERROR_INVALID_VALUE;
	if ((desc->Flags & CUDA_ARRAY3D_TEXTURE_GATHER) && (desc->Height == 0 || desc->Depth != 0))
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (struct aq_fe_array_layout){ .element = bytes * desc->NumChannels,
					    .width = desc->Width,
					    .height = desc->Height,
					    .depth = desc->Depth };
	ret->rows = AQ_MAX(desc->Height, 1U);
	ret->slices = AQ_MAX(desc->Depth, 1U);
	/* Bounded by the shapes: at most 2^17 * 16 * 2^16 or 2^14 * 16 * 2^14 * 2^14. */
	ret->pitch = aq_align_up(ret->width * ret->element, ROW_ALIGN);
	ret->slice = ret->pitch * ret->rows;
	ret->size = aq_align_up(ret->slice * ret->slices, AQ_FE_ARRAY_ALIGN);
	return CUDA_SUCCESS;
}

static size_t half(size_t extent, unsigned level)
{
	return extent == 0 ? 0 : AQ_MAX(extent >> level, 1U);
}

void aq_fe_mip_level(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level,
		     CUDA_ARRAY3D_DESCRIPTOR *ret)
{
	/* Layers and faces stay as many on every level. */
	bool fixed_depth = desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);

	*ret = *desc;
	ret->Width = half(desc->Width, level);
	ret->Height = half(desc->Height, level);
	if (!fixed_depth)
		ret->Depth = half(desc->Depth, level);
}

unsigned aq_fe_mip_count(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	size_t longest = AQ_MAX(desc->Width, desc->Height);
	unsigned n = 1;

	if (!(desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
		longest = AQ_MAX(longest, desc->Depth);
	for (; longest > 1; longest >>= 1)
		n++;
	return n;
}

bool aq_fe_extent(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch, uint64_t slice,
		  uint64_t *ret)
{
	uint64_t rows = 0, slices = 0, sum = 0;

	if (__builtin_mul_overflow(height - 1, pitch, &rows) ||
	    __builtin_mul_overflow(depth - 1, slice, &slices) ||
	    __builtin_add_overflow(rows, slices, &sum) || __builtin_add_overflow(sum, width, &sum))
		return false;
	*ret = sum;
	return true;
}
