/* SPDX-License-Identifier: Apache-2.0 */
/* Linear memory: reserved before the provider is asked, committed when it has given, uncharged after it has taken back. */
#include "shim/cuda/shim.h"

#include "base/macro.h"

#include <errno.h>

/* Drivers hand linear memory out in multiples of this. */
#define LINEAR_UNIT 512U

static uint64_t rounded(uint64_t bytes)
{
	return bytes > UINT64_MAX - LINEAR_UNIT ? bytes : aq_align_up(bytes, LINEAR_UNIT);
}

/* After a successful allocation of our own books' failing: nothing may stay. */
static CUresult give_back(CUdeviceptr *ptr)
{
	(void)AQ_CALL(cuMemFree_v2, *ptr);
	*ptr = 0;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult held(CUdeviceptr *ptr, int card, uint64_t size)
{
	return AQ_LIKELY(aq_hold(*ptr, AQ_RANGE_LINEAR, card, size, 0) == 0) ? CUDA_SUCCESS
									     : give_back(ptr);
}

AQ_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	uint64_t size = rounded(bytesize);
	CUresult rc;
	int card;

	AQ_ENTER(cuMemAlloc_v2, dptr, bytesize);
	if (AQ_UNLIKELY(!dptr || !bytesize))
		return AQ_CALL(cuMemAlloc_v2, dptr, bytesize);
	rc = aq_card_current(&card);
	if (rc == CUDA_SUCCESS)
		rc = aq_reserve(card, size);
	if (AQ_UNLIKELY(rc != CUDA_SUCCESS))
		return rc;
	rc = AQ_CALL(cuMemAlloc_v2, dptr, bytesize);
	if (AQ_UNLIKELY(rc != CUDA_SUCCESS)) {
		aq_withdraw(card, size);
		return rc;
	}
	return held(dptr, card, size);
}

AQ_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned flags)
{
	uint64_t size = rounded(bytesize);
	CUresult rc;
	int card;

	AQ_ENTER(cuMemAllocManaged, dptr, bytesize, flags);
	if (!dptr || !bytesize)
		return AQ_CALL(cuMemAllocManaged, dptr, bytesize, flags);
	rc = aq_card_current(&card);
	if (rc == CUDA_SUCCESS)
		rc = aq_reserve(card, size);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = AQ_CALL(cuMemAllocManaged, dptr, bytesize, flags);
	if (rc != CUDA_SUCCESS) {
		aq_withdraw(card, size);
		return rc;
	}
	return held(dptr, card, size);
}

/* How much a pitched allocation takes shows only when the provider has chosen the pitch: reserve the least, then what is missing. */
AQ_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
				      unsigned element)
{
	uint64_t guess;
	uint64_t size;
	CUresult rc;
	int card;

	AQ_ENTER(cuMemAllocPitch_v2, dptr, pitch, width, height, element);
	if (!dptr || !pitch || !width || !height)
		return AQ_CALL(cuMemAllocPitch_v2, dptr, pitch, width, height, element);
	if (__builtin_mul_overflow(rounded(width), height, &guess))
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = aq_card_current(&card);
	if (rc == CUDA_SUCCESS)
		rc = aq_reserve(card, guess);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = AQ_CALL(cuMemAllocPitch_v2, dptr, pitch, width, height, element);
	if (rc != CUDA_SUCCESS) {
		aq_withdraw(card, guess);
		return rc;
	}
	size = rounded((uint64_t)*pitch * height);
	rc = aq_adjust(card, guess, size);
	if (rc != CUDA_SUCCESS) {
		(void)give_back(dptr);
		return rc;
	}
	return held(dptr, card, size);
}

/* The 32-bit interface of CUDA 2. */
AQ_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned bytesize)
{
	uint64_t size = rounded(bytesize);
	CUresult rc;
	int card;

	AQ_ENTER(cuMemAlloc, dptr, bytesize);
	if (!dptr || !bytesize)
		return AQ_CALL(cuMemAlloc, dptr, bytesize);
	rc = aq_card_current(&card);
	if (rc == CUDA_SUCCESS)
		rc = aq_reserve(card, size);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = AQ_CALL(cuMemAlloc, dptr, bytesize);
	if (rc != CUDA_SUCCESS) {
		aq_withdraw(card, size);
	} else if (aq_hold(*dptr, AQ_RANGE_LINEAR, card, size, 0) < 0) {
		(void)AQ_CALL(cuMemFree, *dptr);
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return rc;
}

AQ_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned *pitch, unsigned width,
				   unsigned height, unsigned element)
{
	uint64_t guess = rounded(width) * height;
	uint64_t size;
	CUresult rc;
	int card;

	AQ_ENTER(cuMemAllocPitch, dptr, pitch, width, height, element);
	if (!dptr || !pitch || !width || !height)
		return AQ_CALL(cuMemAllocPitch, dptr, pitch, width, height, element);
	rc = aq_card_current(&card);
	if (rc == CUDA_SUCCESS)
		rc = aq_reserve(card, guess);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = AQ_CALL(cuMemAllocPitch, dptr, pitch, width, height, element);
	if (rc != CUDA_SUCCESS) {
		aq_withdraw(card, guess);
		return rc;
	}
	size = rounded((uint64_t)*pitch * height);
	rc = aq_adjust(card, guess, size);
	if (rc == CUDA_SUCCESS && aq_hold(*dptr, AQ_RANGE_LINEAR, card, size, 0) < 0)
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	if (rc != CUDA_SUCCESS)
		(void)AQ_CALL(cuMemFree, *dptr);
	return rc;
}

/* ---- freeing: either kind by either call ---- */

/*
 * The address leaves the table before the provider may give it to another thread. Afterwards: `freed` settles what was taken out, or puts it
 * back when the provider has refused.
 */
static void freed(bool known, const struct aq_range *entry, CUresult rc)
{
	struct aq_range old;
	bool replaced = false;

	if (!known)
		return;
	if (rc != CUDA_SUCCESS)
		(void)aq_ranges_insert(&aq_held, entry, &old, &replaced);
	else if (entry->kind == AQ_RANGE_POOLED)
		aq_pool_freed(entry);
	else
		aq_uncharge(entry->card, entry->size);
}

AQ_EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct aq_range entry;
	CUresult rc;
	bool known;

	AQ_ENTER(cuMemFree_v2, dptr);
	known = aq_ranges_take(&aq_held, dptr, &entry);
	rc = AQ_CALL(cuMemFree_v2, dptr);
	freed(known, &entry, rc);
	return rc;
}

AQ_EXPORT CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
	struct aq_range entry;
	CUresult rc;
	bool known;

	AQ_ENTER(cuMemFree, dptr);
	known = aq_ranges_take(&aq_held, dptr, &entry);
	rc = AQ_CALL(cuMemFree, dptr);
	freed(known, &entry, rc);
	return rc;
}

AQ_EXPORT CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream)
{
	struct aq_range entry;
	CUresult rc;
	bool known;

	AQ_ENTER(cuMemFreeAsync, dptr, stream);
	known = aq_ranges_take(&aq_held, dptr, &entry);
	rc = AQ_CALL(cuMemFreeAsync, dptr, stream);
	freed(known, &entry, rc);
	return rc;
}

AQ_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream)
{
	struct aq_range entry;
	CUresult rc;
	bool known;

	AQ_ENTER(cuMemFreeAsync_ptsz, dptr, stream);
	known = aq_ranges_take(&aq_held, dptr, &entry);
	rc = AQ_CALL(cuMemFreeAsync_ptsz, dptr, stream);
	freed(known, &entry, rc);
	return rc;
}
