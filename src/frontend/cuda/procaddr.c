/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress: from a base name, a version and flags to the row of the generated table. */
#include "api/api.h"
#include "frontend/cuda/core.h"

#include <string.h>

#define KNOWN_FLAGS \
	(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)

/* The first row of a base name, or aq_api_procs_count. */
static size_t first_row(const char *base)
{
	size_t low = 0;
	size_t high = aq_api_procs_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (strcmp(aq_api_procs[mid].base, base) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low < aq_api_procs_count && strcmp(aq_api_procs[low].base, base) == 0
		       ? low
		       : aq_api_procs_count;
}

/*
 * The latest variant that `version` knows; of the twins, where per-thread streams are asked for and the name has any.
 */
static const struct aq_api_proc *best_row(size_t first, unsigned version, bool per_thread)
{
	const struct aq_api_proc *plain = NULL;
	const struct aq_api_proc *twin = NULL;

	for (size_t i = first;
	     i < aq_api_procs_count && strcmp(aq_api_procs[i].base, aq_api_procs[first].base) == 0;
	     i++) {
		const struct aq_api_proc *p = &aq_api_procs[i];

		if (p->since == 0 || p->since > version)
			continue;
		if (p->stream == AQ_API_PLAIN)
			plain = !plain || p->since >= plain->since ? p : plain;
		else
			twin = !twin || p->since >= twin->since ? p : twin;
	}
	return per_thread && twin ? twin : plain;
}

AQ_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **ret, int version,
				       cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	CUdriverProcAddressQueryResult what = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	const struct aq_api_proc *p = NULL;
	size_t first;

	if (!symbol || !ret || version > CUDA_VERSION || (flags & ~(cuuint64_t)KNOWN_FLAGS) ||
	    (flags & KNOWN_FLAGS) == KNOWN_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	first = first_row(symbol);
	if (first < aq_api_procs_count) {
		what = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
		p = best_row(first, version > 0 ? (unsigned)version : 0,
			     (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
	}
	if (p)
		what = CU_GET_PROC_ADDRESS_SUCCESS;
	if (status)
		*status = what;
	*ret = p ? (void *)p->fn : NULL;
	return p ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

AQ_EXPORT CUresult cuGetProcAddress(const char *symbol, void **ret, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, ret, version, flags, NULL);
}
