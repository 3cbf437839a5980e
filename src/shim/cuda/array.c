/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of all shapes, and what goes with a context. */
#include "shim/cuda/shim.h"

#include "base/macro.h"

/* How drivers lay arrays out: rows in blocks of 64 bytes by 8, the whole in multiples of 512 bytes. */
#define ROW_UNIT    64U
#define ROWS_UNIT   8U
#define ARRAY_UNIT  512U
#define MAX_LEVELS  32U
#define MAX_ELEMENT 16U

static unsigned format_bytes(CUarray_format format)
{
	switch ((unsigned)format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
	case CU_AD_FORMAT_UNORM_INT8X1:
	case CU_AD_FORMAT_UNORM_INT8X2:
	case CU_AD_FORMAT_UNORM_INT8X4:
	case CU_AD_FORMAT_SNORM_INT8X1:
	case CU_AD_FORMAT_SNORM_INT8X2:
	case CU_AD_FORMAT_SNORM_INT8X4:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
	case CU_AD_FORMAT_UNORM_INT16X1:
	case CU_AD_FORMAT_UNORM_INT16X2:
	case CU_AD_FORMAT_UNORM_INT16X4:
	case CU_AD_FORMAT_SNORM_INT16X1:
	case CU_AD_FORMAT_SNORM_INT16X2:
	case CU_AD_FORMAT_SNORM_INT16X4:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		/* Packed, planar and compressed ones: none takes more for an element with all its channels. */
		return MAX_ELEMENT;
	}
}

static uint64_t mul(uint64_t a, uint64_t b)
{
	uint64_t r;

	return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint64_t up(uint64_t v, uint64_t unit)
{
	return v > UINT64_MAX - unit ? v : aq_align_up(v, unit);
}

/* Bytes of one level; extents of 0 are the dimensions that an array does not have. */
static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level)
{
	bool layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	uint64_t width = AQ_MAX(d->Width >> level, 1U);
	uint64_t height = AQ_MAX(d->Height >> level, 1U);
	uint64_t depth = layered ? AQ_MAX(d->Depth, 1U) : AQ_MAX(d->Depth >> level, 1U);
	unsigned element = format_bytes(d->Format);

	if (element != MAX_ELEMENT)
		element *= AQ_MAX(d->NumChannels, 1U);
	if (d->Height > 1)
		height = up(height, ROWS_UNIT);
	return mul(mul(up(mul(width, element), ROW_UNIT), height), depth);
}

/* 0 also for extents that no memory could hold: the provider has its own error for those. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
	uint64_t sum = 0;

	/* Sparse ones and those that are mapped later have no memory of their own. */
	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return 0;
	for (unsigned i = 0; i < AQ_MIN(levels, MAX_LEVELS); i++)
		if (__builtin_add_overflow(sum, level_bytes(d, i), &sum))
			return 0;
	return sum > UINT64_MAX / 4 ? 0 : up(sum, ARRAY_UNIT);
}

/* An array that is being made. */
struct making {
	uint64_t size, reserved;
	CUcontext ctx;
	int card;
};

/*
 * What all ways to make an array begin with: the card and the context, and the reservation. What is larger than the card is the provider's to refuse, who has
 * an error of its own for extents that no array can have.
 */
static CUresult begin(struct making *m, uint64_t size)
{
	CUresult rc = aq_card_current(&m->card);

	m->size = size;
	m->ctx = NULL;
	if (rc == CUDA_SUCCESS)
		rc = AQ_CALL(cuCtxGetCurrent, &m->ctx);
	if (rc == CUDA_SUCCESS && !m->ctx)
		rc = CUDA_ERROR_INVALID_CONTEXT;
	if (rc != CUDA_SUCCESS)
		return rc;
	m->reserved = size <= aq_card_bytes(m->card) ? size : 0;
	return aq_reserve(m->card, m->reserved);
}

/* The provider has answered. Anything but CUDA_SUCCESS after its success: the array has to go again. */
static CUresult finish(struct making *m, CUresult rc, uint64_t key, enum aq_range_kind kind)
{
	if (rc != CUDA_SUCCESS) {
		aq_withdraw(m->card, m->reserved);
		return rc;
	}
	rc = aq_adjust(m->card, m->reserved, m->size);
	if (rc == CUDA_SUCCESS && aq_hold(key, kind, m->card, m->size, (uintptr_t)m->ctx) < 0)
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	return rc;
}

static CUresult finish_array(struct making *m, CUresult rc, CUarray *array)
{
	CUresult done = finish(m, rc, rc == CUDA_SUCCESS ? (uintptr_t)*array : 0, AQ_RANGE_ARRAY);

	if (rc == CUDA_SUCCESS && done != CUDA_SUCCESS)
		(void)AQ_CALL(cuArrayDestroy, *array);
	return done;
}

AQ_EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	struct making m;
	CUresult rc;

	AQ_ENTER(cuArray3DCreate_v2, array, desc);
	if (!array || !desc)
		return AQ_CALL(cuArray3DCreate_v2, array, desc);
	rc = begin(&m, array_bytes(desc, 1));
	if (rc != CUDA_SUCCESS)
		return rc;
	return finish_array(&m, AQ_CALL(cuArray3DCreate_v2, array, desc), array);
}

AQ_EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	struct making m;
	CUresult rc;

	AQ_ENTER(cuArrayCreate_v2, array, desc);
	if (!array || !desc)
		return AQ_CALL(cuArrayCreate_v2, array, desc);
	d = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = desc->Width,
				       .Height = desc->Height,
				       .Format = desc->Format,
				       .NumChannels = desc->NumChannels };
	rc = begin(&m, array_bytes(&d, 1));
	if (rc != CUDA_SUCCESS)
		return rc;
	return finish_array(&m, AQ_CALL(cuArrayCreate_v2, array, desc), array);
}

/* The 32-bit interface of CUDA 2. */
AQ_EXPORT CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	struct making m;
	CUresult rc;

	AQ_ENTER(cuArray3DCreate, array, desc);
	if (!array || !desc)
		return AQ_CALL(cuArray3DCreate, array, desc);
	d = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = desc->Width,
				       .Height = desc->Height,
				       .Depth = desc->Depth,
				       .Format = desc->Format,
				       .NumChannels = desc->NumChannels,
				       .Flags = desc->Flags };
	rc = begin(&m, array_bytes(&d, 1));
	if (rc != CUDA_SUCCESS)
		return rc;
	return finish_array(&m, AQ_CALL(cuArray3DCreate, array, desc), array);
}

AQ_EXPORT CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *desc)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	struct making m;
	CUresult rc;

	AQ_ENTER(cuArrayCreate, array, desc);
	if (!array || !desc)
		return AQ_CALL(cuArrayCreate, array, desc);
	d = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = desc->Width,
				       .Height = desc->Height,
				       .Format = desc->Format,
				       .NumChannels = desc->NumChannels };
	rc = begin(&m, array_bytes(&d, 1));
	if (rc != CUDA_SUCCESS)
		return rc;
	return finish_array(&m, AQ_CALL(cuArrayCreate, array, desc), array);
}

AQ_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *array,
					  const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels)
{
	struct making m;
	CUresult rc;
	CUresult done;

	AQ_ENTER(cuMipmappedArrayCreate, array, desc, levels);
	if (!array || !desc || !levels)
		return AQ_CALL(cuMipmappedArrayCreate, array, desc, levels);
	rc = begin(&m, array_bytes(desc, levels));
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = AQ_CALL(cuMipmappedArrayCreate, array, desc, levels);
	done = finish(&m, rc, rc == CUDA_SUCCESS ? (uintptr_t)*array : 0, AQ_RANGE_MIPMAP);
	if (rc == CUDA_SUCCESS && done != CUDA_SUCCESS)
		(void)AQ_CALL(cuMipmappedArrayDestroy, *array);
	return done;
}

static CUresult destroyed(CUresult rc, bool known, const struct aq_range *entry)
{
	struct aq_range old;
	bool replaced = false;

	if (known && rc == CUDA_SUCCESS)
		aq_uncharge(entry->card, entry->size);
	else if (known)
		(void)aq_ranges_insert(&aq_held, entry, &old, &replaced);
	return rc;
}

AQ_EXPORT CUresult cuArrayDestroy(CUarray array)
{
	struct aq_range entry;
	bool known;

	AQ_ENTER(cuArrayDestroy, array);
	known = aq_ranges_take(&aq_held, (uintptr_t)array, &entry);
	return destroyed(AQ_CALL(cuArrayDestroy, array), known, &entry);
}

AQ_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	struct aq_range entry;
	bool known;

	AQ_ENTER(cuMipmappedArrayDestroy, array);
	known = aq_ranges_take(&aq_held, (uintptr_t)array, &entry);
	return destroyed(AQ_CALL(cuMipmappedArrayDestroy, array), known, &entry);
}

/* Whether the entry has gone with `ctx`: arrays by their context, addresses by asking the provider, which keeps what belongs to other contexts. */
static bool is_gone(const struct aq_range *e, CUcontext ctx)
{
	unsigned type = 0;

	switch ((enum aq_range_kind)e->kind) {
	case AQ_RANGE_ARRAY:
	case AQ_RANGE_MIPMAP:
		return e->owner == (uintptr_t)ctx;
	case AQ_RANGE_LINEAR:
	case AQ_RANGE_POOLED:
		/* A context that has died by a fault cannot be asked: then nothing is known to be gone. */
		return AQ_CALL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
			       e->key) == CUDA_ERROR_INVALID_VALUE;
	default:
		return false;
	}
}

void aq_context_gone(CUcontext ctx)
{
	CUstreamCaptureMode mode = aq_capture_relax();
	struct aq_range entry;

	for (unsigned s = 0; s < AQ_RANGE_STRIPES; s++) {
		uint32_t n = 0;
		struct aq_range *copy = aq_ranges_copy(&aq_held, s, &n);

		for (uint32_t i = 0; i < n; i++)
			if (is_gone(&copy[i], ctx) && aq_ranges_take(&aq_held, copy[i].key, &entry))
				aq_uncharge(entry.card, entry.size);
		aq_ranges_drop(copy, n);
	}
	aq_capture_restore(mode);
}
