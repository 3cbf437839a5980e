/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts and code: what the driver takes for itself. A learned maximum is reserved before a context is made, and what it really took is overhead
 * before the call returns.
 */
#include "shim/cuda/shim.h"

/* Reserve what a context takes on a device. *ret_card is AQ_NO_CARD for a device that is not there: the provider says so. */
static CUresult before_context(CUdevice dev, int *ret_card, uint64_t *ret_reserved)
{
	*ret_card = aq_card_of(dev);
	*ret_reserved = aq_context_bytes(*ret_card);
	if (*ret_card == AQ_NO_CARD)
		return dev >= 0 && (unsigned)dev < aq_cards_devices() ? CUDA_ERROR_NOT_PERMITTED
								      : CUDA_SUCCESS;
	return aq_reserve(*ret_card, *ret_reserved);
}

static CUresult after_context(CUresult rc, int card, uint64_t reserved)
{
	if (card == AQ_NO_CARD)
		return rc;
	/* Overhead first: between the two the bytes count twice, never not at all. */
	if (rc == CUDA_SUCCESS)
		aq_settle(card, AQ_SETTLE_CONTEXT, reserved);
	aq_withdraw(card, reserved);
	return rc;
}

AQ_EXPORT CUresult cuCtxCreate(CUcontext *ctx, unsigned flags, CUdevice dev)
{
	uint64_t reserved;
	CUresult rc;
	int card;

	AQ_ENTER(cuCtxCreate, ctx, flags, dev);
	rc = before_context(dev, &card, &reserved);
	if (rc != CUDA_SUCCESS)
		return rc;
	return after_context(AQ_CALL(cuCtxCreate, ctx, flags, dev), card, reserved);
}

AQ_EXPORT CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice dev)
{
	uint64_t reserved;
	CUresult rc;
	int card;

	AQ_ENTER(cuCtxCreate_v2, ctx, flags, dev);
	rc = before_context(dev, &card, &reserved);
	if (rc != CUDA_SUCCESS)
		return rc;
	return after_context(AQ_CALL(cuCtxCreate_v2, ctx, flags, dev), card, reserved);
}

AQ_EXPORT CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params, int n,
				  unsigned flags, CUdevice dev)
{
	uint64_t reserved;
	CUresult rc;
	int card;

	AQ_ENTER(cuCtxCreate_v3, ctx, params, n, flags, dev);
	rc = before_context(dev, &card, &reserved);
	if (rc != CUDA_SUCCESS)
		return rc;
	return after_context(AQ_CALL(cuCtxCreate_v3, ctx, params, n, flags, dev), card, reserved);
}

AQ_EXPORT CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned flags,
				  CUdevice dev)
{
	uint64_t reserved;
	CUresult rc;
	int card;

	AQ_ENTER(cuCtxCreate_v4, ctx, params, flags, dev);
	rc = before_context(dev, &card, &reserved);
	if (rc != CUDA_SUCCESS)
		return rc;
	return after_context(AQ_CALL(cuCtxCreate_v4, ctx, params, flags, dev), card, reserved);
}

AQ_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
	unsigned flags = 0;
	int active = 0;
	uint64_t reserved;
	CUresult rc;
	int card;

	AQ_ENTER(cuDevicePrimaryCtxRetain, ctx, dev);
	/* Only the first one makes it. */
	if (AQ_CALL(cuDevicePrimaryCtxGetState, dev, &flags, &active) == CUDA_SUCCESS && active)
		return AQ_CALL(cuDevicePrimaryCtxRetain, ctx, dev);
	rc = before_context(dev, &card, &reserved);
	if (rc != CUDA_SUCCESS)
		return rc;
	return after_context(AQ_CALL(cuDevicePrimaryCtxRetain, ctx, dev), card, reserved);
}

/* ---- the end of one: its memory is gone without anybody having freed it ---- */

AQ_EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	CUresult rc;

	AQ_ENTER(cuCtxDestroy_v2, ctx);
	rc = AQ_CALL(cuCtxDestroy_v2, ctx);
	if (rc == CUDA_SUCCESS)
		aq_context_gone(ctx);
	return rc;
}

AQ_EXPORT CUresult cuCtxDestroy(CUcontext ctx)
{
	CUresult rc;

	AQ_ENTER(cuCtxDestroy, ctx);
	rc = AQ_CALL(cuCtxDestroy, ctx);
	if (rc == CUDA_SUCCESS)
		aq_context_gone(ctx);
	return rc;
}

AQ_EXPORT CUresult cuCtxDetach(CUcontext ctx)
{
	unsigned version = 0;
	CUresult rc;

	AQ_ENTER(cuCtxDetach, ctx);
	rc = AQ_CALL(cuCtxDetach, ctx);
	/* It may have been the last reference or not. */
	if (rc == CUDA_SUCCESS && AQ_CALL(cuCtxGetApiVersion, ctx, &version) != CUDA_SUCCESS)
		aq_context_gone(ctx);
	return rc;
}

/* The primary context of a device, while it is there; NULL otherwise. Its handle is needed before it goes. */
static CUcontext primary_of(CUdevice dev)
{
	CUcontext ctx = NULL;
	unsigned flags = 0;
	int active = 0;

	if (AQ_CALL(cuDevicePrimaryCtxGetState, dev, &flags, &active) != CUDA_SUCCESS || !active ||
	    AQ_CALL(cuDevicePrimaryCtxRetain, &ctx, dev) != CUDA_SUCCESS)
		return NULL;
	(void)(aq_offers(AQ_SLOT_cuDevicePrimaryCtxRelease_v2)
		       ? AQ_CALL(cuDevicePrimaryCtxRelease_v2, dev)
		       : AQ_CALL(cuDevicePrimaryCtxRelease, dev));
	return ctx;
}

static CUresult after_primary(CUresult rc, CUdevice dev, CUcontext ctx)
{
	unsigned flags = 0;
	int active = 0;

	if (rc != CUDA_SUCCESS || !ctx)
		return rc;
	if (AQ_CALL(cuDevicePrimaryCtxGetState, dev, &flags, &active) == CUDA_SUCCESS && !active) {
		aq_context_gone(ctx);
		(void)aq_pools_settle(aq_card_of(dev));
	}
	return rc;
}

AQ_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUcontext ctx;

	AQ_ENTER(cuDevicePrimaryCtxRelease_v2, dev);
	ctx = primary_of(dev);
	return after_primary(AQ_CALL(cuDevicePrimaryCtxRelease_v2, dev), dev, ctx);
}

AQ_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	CUcontext ctx;

	AQ_ENTER(cuDevicePrimaryCtxRelease, dev);
	ctx = primary_of(dev);
	return after_primary(AQ_CALL(cuDevicePrimaryCtxRelease, dev), dev, ctx);
}

/* A reset context may be there again at once, empty: its arrays are gone all the same. */
static CUresult after_reset(CUresult rc, CUdevice dev, CUcontext ctx)
{
	if (rc == CUDA_SUCCESS && ctx) {
		aq_context_gone(ctx);
		(void)aq_pools_settle(aq_card_of(dev));
	}
	return rc;
}

AQ_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	CUcontext ctx;

	AQ_ENTER(cuDevicePrimaryCtxReset_v2, dev);
	ctx = primary_of(dev);
	return after_reset(AQ_CALL(cuDevicePrimaryCtxReset_v2, dev), dev, ctx);
}

AQ_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	CUcontext ctx;

	AQ_ENTER(cuDevicePrimaryCtxReset, dev);
	ctx = primary_of(dev);
	return after_reset(AQ_CALL(cuDevicePrimaryCtxReset, dev), dev, ctx);
}

/* ---- limits of a context that are device memory ---- */

AQ_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	uint64_t grown;
	size_t now = 0;
	CUresult rc;
	int card;

	AQ_ENTER(cuCtxSetLimit, limit, value);
	if ((limit != CU_LIMIT_MALLOC_HEAP_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE) ||
	    AQ_CALL(cuCtxGetLimit, &now, limit) != CUDA_SUCCESS || value <= now ||
	    aq_card_current(&card) != CUDA_SUCCESS)
		return AQ_CALL(cuCtxSetLimit, limit, value);
	grown = value - now;
	rc = aq_reserve(card, grown);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = AQ_CALL(cuCtxSetLimit, limit, value);
	if (rc == CUDA_SUCCESS)
		aq_take_overhead(card, grown);
	aq_withdraw(card, grown);
	return rc;
}

/* ---- code: it takes what it takes; the books follow ---- */

static CUresult loaded(CUresult rc)
{
	int card;

	if (rc == CUDA_SUCCESS && aq_card_current(&card) == CUDA_SUCCESS)
		aq_settle_lazily(card);
	return rc;
}

AQ_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
	AQ_ENTER(cuModuleLoad, module, path);
	return loaded(AQ_CALL(cuModuleLoad, module, path));
}

AQ_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	AQ_ENTER(cuModuleLoadData, module, image);
	return loaded(AQ_CALL(cuModuleLoadData, module, image));
}

AQ_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n,
				      CUjit_option *options, void **values)
{
	AQ_ENTER(cuModuleLoadDataEx, module, image, n, options, values);
	return loaded(AQ_CALL(cuModuleLoadDataEx, module, image, n, options, values));
}

AQ_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	AQ_ENTER(cuModuleLoadFatBinary, module, image);
	return loaded(AQ_CALL(cuModuleLoadFatBinary, module, image));
}

AQ_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
				     void **jit_values, unsigned n_jit, CUlibraryOption *options,
				     void **values, unsigned n)
{
	AQ_ENTER(cuLibraryLoadData, library, code, jit, jit_values, n_jit, options, values, n);
	return loaded(AQ_CALL(cuLibraryLoadData, library, code, jit, jit_values, n_jit, options,
			      values, n));
}

AQ_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit,
					 void **jit_values, unsigned n_jit,
					 CUlibraryOption *options, void **values, unsigned n)
{
	AQ_ENTER(cuLibraryLoadFromFile, library, path, jit, jit_values, n_jit, options, values, n);
	return loaded(AQ_CALL(cuLibraryLoadFromFile, library, path, jit, jit_values, n_jit, options,
			      values, n));
}
