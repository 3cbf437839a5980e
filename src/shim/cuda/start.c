/* SPDX-License-Identifier: Apache-2.0 */
/* The first call of any entry point: attach, load the provider, fill the slots. Again in a forked child, and after a failure. */
#include "shim/cuda/shim.h"

#include "base/err.h"
#include "shim/log.h"
#include "shim/provider.h"

#include <errno.h>

__thread unsigned aq_depth;

/* Written under the start lock. */
static void *provider;
static bool failed; /* the next initialisation tries again, nobody else */

static CUresult lacking(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult not_started(void)
{
	return CUDA_ERROR_NOT_INITIALIZED;
}

bool aq_offers(unsigned slot)
{
	return __atomic_load_n(&aq_slots[slot], __ATOMIC_RELAXED) != (void *)lacking;
}

static int start_locked(struct aq_err *err)
{
	int rc = aq_attach(AQ_ATTACH_OWNER, err);

	if (rc < 0)
		return rc;
	/* What a forked child inherits is its parent's. */
	aq_ranges_reset(&aq_held);
	aq_cards_reset();
	aq_view_reset();
	aq_pools_reset();
	aq_vmm_reset();
	if (provider)
		return 0;
	provider = aq_provider_open(aq_attachment_here.cuda_provider, err);
	if (!provider)
		return err->code;
	(void)aq_provider_resolve(provider, aq_slot_names, AQ_SLOTS, (void *)lacking, aq_slots);
	return 0;
}

CUresult aq_start(bool init)
{
	struct aq_err err = { 0 };
	int rc;

	/* A provider that calls us while it is being loaded. */
	if (aq_depth)
		return CUDA_ERROR_NOT_INITIALIZED;
	rc = aq_attach_prepare(&err);
	if (rc == 0) {
		struct aq_attach_private *p = aq_attach_private;

		aq_lock(&p->start_lock);
		aq_depth++;
		if (!aq_started()) {
			if (failed && !init) {
				aq_depth--;
				aq_unlock(&p->start_lock);
				return CUDA_ERROR_NOT_INITIALIZED;
			}
			rc = start_locked(&err);
			failed = rc < 0;
			if (rc == 0)
				atomic_store_explicit(&p->ready, 1, memory_order_release);
		}
		aq_depth--;
		aq_unlock(&p->start_lock);
	}
	if (rc < 0)
		aq_shim_log("no GPU for this program: %s", err.msg);
	return rc < 0 ? (init ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_NOT_INITIALIZED)
		      : CUDA_SUCCESS;
}

void *aq_slot_start(unsigned slot)
{
	if (aq_depth || aq_start(false) != CUDA_SUCCESS)
		return (void *)not_started;
	return __atomic_load_n(&aq_slots[slot], __ATOMIC_ACQUIRE);
}
