/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuGetProcAddress: the provider decides whether a name is there and which variant is meant; for a managed name the program gets the wrapper of that variant,
 * whose target is the pointer that the provider gave.
 */
#include "shim/cuda/shim.h"

#include "base/macro.h"
#include "shim/log.h"

#include <string.h>

/* The first row of a base name; NULL: not in the table. */
static const struct aq_slot_proc *first_row(const char *base)
{
	size_t low = 0;
	size_t high = aq_slot_procs_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (strcmp(aq_slot_procs[mid].base, base) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low < aq_slot_procs_count && strcmp(aq_slot_procs[low].base, base) == 0
		       ? &aq_slot_procs[low]
		       : NULL;
}

static bool more(const struct aq_slot_proc *p, const struct aq_slot_proc *first)
{
	return p < aq_slot_procs + aq_slot_procs_count && strcmp(p->base, first->base) == 0;
}

static bool any_managed(const struct aq_slot_proc *first)
{
	for (const struct aq_slot_proc *p = first; more(p, first); p++)
		if (p->managed)
			return true;
	return false;
}

/* The latest variant that `version` knows; of the twins, where per-thread streams are asked for and the name has any. */
static const struct aq_slot_proc *best_row(const struct aq_slot_proc *first, unsigned version,
					   bool per_thread)
{
	const struct aq_slot_proc *plain = NULL;
	const struct aq_slot_proc *twin = NULL;

	for (const struct aq_slot_proc *p = first; more(p, first); p++) {
		if (p->since == 0 || p->since > version)
			continue;
		if (p->stream == AQ_API_PLAIN)
			plain = p;
		else
			twin = p;
	}
	return per_thread && twin ? twin : plain;
}

/*
 * The row that a pointer of the provider's is: by version and flag; but a provider that is older than the table may have given an earlier variant, which
 * then is one of its exports.
 */
static const struct aq_slot_proc *row_of(const struct aq_slot_proc *first, unsigned version,
					 bool per_thread, const void *fn)
{
	const struct aq_slot_proc *best = best_row(first, version, per_thread);

	for (const struct aq_slot_proc *p = first; more(p, first); p++)
		if (__atomic_load_n(&aq_slots[p->slot], __ATOMIC_RELAXED) == fn ||
		    (const void *)p->fn == fn)
			return p;
	/* Pointers need not be the exported ones; then a variant that the provider does not export cannot be the one. */
	while (best && best > first && !aq_offers(best->slot) && best[-1].stream == best->stream)
		best--;
	return best;
}

/* A name that no table of ours has: what may allocate or launch is not let through under a limit. */
static bool looks_dangerous(const char *name)
{
	static const char *const parts[] = { "Alloc",	  "alloc",	"Launch",   "launch",
					     "MemCreate", "MemMap",	"Import",   "ArrayCreate",
					     "CtxCreate", "PoolCreate", "Multicast" };

	if (strncmp(name, "cu", 2) != 0)
		return false;
	for (unsigned i = 0; i < AQ_ARRAY_SIZE(parts); i++)
		if (strstr(name, parts[i]))
			return true;
	return false;
}

/* Without a provider: what the table says. */
static CUresult from_table(const char *symbol, void **ret, int version, cuuint64_t flags,
			   CUdriverProcAddressQueryResult *status)
{
	const struct aq_slot_proc *first;
	const struct aq_slot_proc *p = NULL;

	if (!symbol || !ret)
		return CUDA_ERROR_INVALID_VALUE;
	first = first_row(symbol);
	if (first)
		p = best_row(first, (unsigned)AQ_MAX(version, 0),
			     flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	*ret = p ? (void *)p->fn : NULL;
	if (status && p)
		*status = CU_GET_PROC_ADDRESS_SUCCESS;
	else if (status)
		*status = first ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				: CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return p ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* The provider's answer, by whichever version of the call it has. */
static CUresult ask(const char *symbol, void **ret, int version, cuuint64_t flags,
		    CUdriverProcAddressQueryResult *status)
{
	CUresult rc;

	if (aq_offers(AQ_SLOT_cuGetProcAddress_v2))
		return AQ_CALL(cuGetProcAddress_v2, symbol, ret, version, flags, status);
	rc = AQ_CALL(cuGetProcAddress, symbol, ret, version, flags);
	if (status)
		*status = rc == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS
					     : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return rc;
}

static CUresult managed(const struct aq_slot_proc *first, const char *symbol, void **ret,
			int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	int least = AQ_MIN(version, CUDA_VERSION);
	const struct aq_slot_proc *row;
	void *fn = NULL;
	CUresult rc = ask(symbol, &fn, least, flags, status);

	if (rc != CUDA_SUCCESS || !fn) {
		*ret = NULL;
		return rc;
	}
	row = row_of(first, (unsigned)AQ_MAX(least, 0), per_thread, fn);
	if (!row) {
		/* The provider has a variant that the table says cannot be: under a limit it stays hidden. */
		static _Atomic bool told;

		if (!atomic_exchange(&told, true))
			aq_shim_log("%s: the driver has a variant that is not known here", symbol);
		*ret = aq_limited() ? NULL : fn;
		if (status && !*ret)
			*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
		return *ret ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
	}
	if (!row->managed) {
		*ret = fn;
		return CUDA_SUCCESS;
	}
	/* A provider that is linked so that its names can be replaced gives our own function: it must not become its own target. */
	if (fn != (void *)row->fn)
		__atomic_store_n(&aq_slots[row->slot], fn, __ATOMIC_RELEASE);
	*ret = (void *)row->fn;
	return CUDA_SUCCESS;
}

static CUresult look_up(const char *symbol, void **ret, int version, cuuint64_t flags,
			CUdriverProcAddressQueryResult *status)
{
	const struct aq_slot_proc *first = first_row(symbol);

	if (first && any_managed(first))
		return managed(first, symbol, ret, version, flags, status);
	if (!first && aq_limited() && looks_dangerous(symbol)) {
		static _Atomic bool told;

		if (!atomic_exchange(&told, true))
			aq_shim_log(
				"%s: unknown here, and this GPU has a memory limit: not offered",
				symbol);
		*ret = NULL;
		if (status)
			*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
		return CUDA_ERROR_NOT_FOUND;
	}
	return ask(symbol, ret, version, flags, status);
}

AQ_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **ret, int version,
				       cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	if (aq_depth)
		return AQ_REAL(cuGetProcAddress_v2)(symbol, ret, version, flags, status);
	if (!aq_started() && aq_start(false) != CUDA_SUCCESS)
		return from_table(symbol, ret, version, flags, status);
	if (!symbol || !ret)
		return AQ_CALL(cuGetProcAddress_v2, symbol, ret, version, flags, status);
	return look_up(symbol, ret, version, flags, status);
}

AQ_EXPORT CUresult cuGetProcAddress(const char *symbol, void **ret, int version, cuuint64_t flags)
{
	if (aq_depth)
		return AQ_REAL(cuGetProcAddress)(symbol, ret, version, flags);
	if (!aq_started() && aq_start(false) != CUDA_SUCCESS)
		return from_table(symbol, ret, version, flags, NULL);
	if (!symbol || !ret)
		return AQ_CALL(cuGetProcAddress, symbol, ret, version, flags);
	return look_up(symbol, ret, version, flags, NULL);
}
