/* SPDX-License-Identifier: Apache-2.0 */
/* What a program sees: its cards, their size, what is free. And what still answers when there is no instance. */
#include "shim/cuda/shim.h"

#include "base/macro.h"
#include "shim/lock.h"
#include "shim/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE "CUDA_VISIBLE_DEVICES"

/* The provider's cuInit with the instance's cards in the variable; the user's value comes back afterwards. */
static CUresult init_visible(unsigned flags)
{
	const struct aq_control_page *c = aq_attachment_here.control;
	unsigned n = AQ_MIN(c->n_cards, AQ_INSTANCE_CARDS);
	const char *user = getenv(VISIBLE);
	char value[AQ_INSTANCE_CARDS * 48];
	uint8_t uuid[AQ_INSTANCE_CARDS][16];
	char *old = user ? strdup(user) : NULL;
	CUresult rc;

	if (user && !old)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; i < n; i++)
		memcpy(uuid[i], c->card[i].uuid, sizeof(uuid[i]));
	(void)aq_visible_value(old, n, (const uint8_t(*)[16])uuid, value, sizeof(value));
	if (setenv(VISIBLE, value, 1) < 0) {
		free(old);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	rc = AQ_CALL(cuInit, flags);
	if (old)
		(void)setenv(VISIBLE, old, 1);
	else
		(void)unsetenv(VISIBLE);
	free(old);
	return rc;
}

static struct aq_lock init_lock;
static bool initialised; /* the variable counts for the first one that succeeds, in each process */

void aq_view_reset(void)
{
	atomic_store(&init_lock.word, 0);
	initialised = false;
}

AQ_EXPORT CUresult cuInit(unsigned flags)
{
	int saved = errno;
	CUresult rc;

	if (aq_depth)
		return AQ_REAL(cuInit)(flags);
	if (!aq_started()) {
		rc = aq_start(true);
		if (rc != CUDA_SUCCESS)
			return rc;
	}
	aq_lock(&init_lock);
	rc = initialised ? AQ_CALL(cuInit, flags) : init_visible(flags);
	initialised = initialised || rc == CUDA_SUCCESS;
	aq_unlock(&init_lock);
	errno = saved;
	return rc;
}

AQ_EXPORT CUresult cuDriverGetVersion(int *version)
{
	if (aq_depth || aq_started() || aq_start(false) == CUDA_SUCCESS)
		return AQ_REAL(cuDriverGetVersion)(version);
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

/* ---- names of errors: the ones that a program may meet before there is a provider to ask ---- */

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
	{ CUDA_SUCCESS, "CUDA_SUCCESS", "no error" },
	{ CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
	{ CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted" },
	{ CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
};

static CUresult own_error(CUresult code, const char **ret, bool name)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = NULL;
	for (unsigned i = 0; i < AQ_ARRAY_SIZE(errors); i++)
		if (errors[i].code == code)
			*ret = name ? errors[i].name : errors[i].text;
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

AQ_EXPORT CUresult cuGetErrorName(CUresult code, const char **ret)
{
	if (aq_depth || aq_started() || aq_start(false) == CUDA_SUCCESS)
		return AQ_REAL(cuGetErrorName)(code, ret);
	return own_error(code, ret, true);
}

AQ_EXPORT CUresult cuGetErrorString(CUresult code, const char **ret)
{
	if (aq_depth || aq_started() || aq_start(false) == CUDA_SUCCESS)
		return AQ_REAL(cuGetErrorString)(code, ret);
	return own_error(code, ret, false);
}

/* ---- memory ---- */

/* What there is and what is left, of a limited card; false: no limit, the real values stand. */
static bool instance_view(int card, uint64_t *ret_free, uint64_t *ret_total)
{
	uint64_t limit = aq_limit(card);
	uint64_t size;

	if (card == AQ_NO_CARD || limit == AQ_NO_LIMIT)
		return false;
	size = aq_attachment_here.control->card[card].card_bytes;
	*ret_total = size ? AQ_MIN(limit, size) : limit;
	if (ret_free) {
		(void)aq_pools_settle(card);
		*ret_free = AQ_MIN(aq_free_bytes(card), *ret_total);
	}
	return true;
}

AQ_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	uint64_t left;
	uint64_t all;
	CUresult rc;
	int card;

	AQ_ENTER(cuMemGetInfo_v2, free_bytes, total);
	rc = AQ_CALL(cuMemGetInfo_v2, free_bytes, total);
	if (rc != CUDA_SUCCESS || aq_card_current(&card) != CUDA_SUCCESS ||
	    !instance_view(card, &left, &all))
		return rc;
	if (free_bytes)
		*free_bytes = left;
	if (total)
		*total = all;
	return rc;
}

AQ_EXPORT CUresult cuMemGetInfo(unsigned *free_bytes, unsigned *total)
{
	uint64_t left;
	uint64_t all;
	CUresult rc;
	int card;

	AQ_ENTER(cuMemGetInfo, free_bytes, total);
	rc = AQ_CALL(cuMemGetInfo, free_bytes, total);
	if (rc != CUDA_SUCCESS || aq_card_current(&card) != CUDA_SUCCESS ||
	    !instance_view(card, &left, &all))
		return rc;
	if (free_bytes)
		*free_bytes = (unsigned)AQ_MIN(left, UINT32_MAX);
	if (total)
		*total = (unsigned)AQ_MIN(all, UINT32_MAX);
	return rc;
}

AQ_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	uint64_t all;
	CUresult rc;

	AQ_ENTER(cuDeviceTotalMem_v2, bytes, dev);
	rc = AQ_CALL(cuDeviceTotalMem_v2, bytes, dev);
	if (rc == CUDA_SUCCESS && bytes && instance_view(aq_card_of(dev), NULL, &all))
		*bytes = AQ_MIN(all, *bytes);
	return rc;
}

AQ_EXPORT CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice dev)
{
	uint64_t all;
	CUresult rc;

	AQ_ENTER(cuDeviceTotalMem, bytes, dev);
	rc = AQ_CALL(cuDeviceTotalMem, bytes, dev);
	if (rc == CUDA_SUCCESS && bytes && instance_view(aq_card_of(dev), NULL, &all))
		*bytes = (unsigned)AQ_MIN(all, *bytes);
	return rc;
}

/* ---- synchronising is when pools give memory back ---- */

static CUresult synchronised(CUresult rc)
{
	if (AQ_UNLIKELY(atomic_load_explicit(&aq_pools_stale, memory_order_relaxed)) &&
	    atomic_exchange(&aq_pools_stale, 0))
		(void)aq_pools_settle(AQ_NO_CARD);
	return rc;
}

AQ_EXPORT CUresult cuCtxSynchronize(void)
{
	AQ_ENTER(cuCtxSynchronize);
	return synchronised(AQ_CALL(cuCtxSynchronize));
}

AQ_EXPORT CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	AQ_ENTER(cuCtxSynchronize_v2, ctx);
	return synchronised(AQ_CALL(cuCtxSynchronize_v2, ctx));
}

AQ_EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
	AQ_ENTER(cuStreamSynchronize, stream);
	return synchronised(AQ_CALL(cuStreamSynchronize, stream));
}

AQ_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
	AQ_ENTER(cuStreamSynchronize_ptsz, stream);
	return synchronised(AQ_CALL(cuStreamSynchronize_ptsz, stream));
}

AQ_EXPORT CUresult cuEventSynchronize(CUevent event)
{
	AQ_ENTER(cuEventSynchronize, event);
	return synchronised(AQ_CALL(cuEventSynchronize, event));
}
