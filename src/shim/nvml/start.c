/* SPDX-License-Identifier: Apache-2.0 */
/* The first call of any entry point: attach, load the provider, fill the slots. Again in a forked child, and after a failure. */
#include "shim/nvml/shim.h"

#include "base/err.h"
#include "base/macro.h"
#include "shim/log.h"
#include "shim/provider.h"

#include <errno.h>

__thread unsigned aq_depth;

/* Written under the start lock. */
static void *provider;
static bool failed; /* the next initialisation tries again, nobody else */

static nvmlReturn_t lacking(void)
{
	return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static nvmlReturn_t not_started(void)
{
	return NVML_ERROR_UNINITIALIZED;
}

bool aq_offers(unsigned slot)
{
	return __atomic_load_n(&aq_slots[slot], __ATOMIC_RELAXED) != (void *)lacking;
}

static int start_locked(struct aq_err *err)
{
	int rc = aq_attach(0, err);

	if (rc < 0)
		return rc;
	/* What a forked child inherits is its parent's. */
	aq_devices_reset();
	if (provider)
		return 0;
	if (!aq_attachment_here.nvml_provider[0])
		return aq_err_set(err, -ENOENT, "the daemon knows no NVML library");
	provider = aq_provider_open(aq_attachment_here.nvml_provider, err);
	if (!provider)
		return err->code;
	(void)aq_provider_resolve(provider, aq_slot_names, AQ_SLOTS, (void *)lacking, aq_slots);
	return 0;
}

nvmlReturn_t aq_start(bool init)
{
	struct aq_err err = { 0 };
	int rc;

	/* A provider that calls us while it is being loaded. */
	if (aq_depth)
		return NVML_ERROR_UNINITIALIZED;
	rc = aq_attach_prepare(&err);
	if (rc == 0) {
		struct aq_attach_private *p = aq_attach_private;

		aq_lock(&p->start_lock);
		aq_depth++;
		if (!aq_started()) {
			if (failed && !init) {
				aq_depth--;
				aq_unlock(&p->start_lock);
				return NVML_ERROR_UNINITIALIZED;
			}
			rc = start_locked(&err);
			failed = rc < 0;
			if (rc == 0)
				atomic_store_explicit(&p->ready, 1, memory_order_release);
		}
		aq_depth--;
		aq_unlock(&p->start_lock);
	}
	if (rc == 0)
		return NVML_SUCCESS;
	aq_shim_log("no GPU for this program: %s", err.msg);
	return init ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_UNINITIALIZED;
}

void *aq_slot_start(unsigned slot)
{
	if (aq_depth || aq_start(false) != NVML_SUCCESS)
		return (void *)not_started;
	return __atomic_load_n(&aq_slots[slot], __ATOMIC_ACQUIRE);
}

/* ---- initialisation ---- */

static nvmlReturn_t begin(void)
{
	int saved = errno;
	nvmlReturn_t rc = aq_started() ? NVML_SUCCESS : aq_start(true);

	errno = saved;
	return rc;
}

static nvmlReturn_t initialised(nvmlReturn_t rc)
{
	if (rc == NVML_SUCCESS)
		aq_devices_forget();
	return rc;
}

AQ_EXPORT nvmlReturn_t nvmlInit(void)
{
	nvmlReturn_t rc = aq_depth ? NVML_SUCCESS : begin();

	return rc == NVML_SUCCESS ? initialised(AQ_CALL(nvmlInit)) : rc;
}

AQ_EXPORT nvmlReturn_t nvmlInit_v2(void)
{
	nvmlReturn_t rc = aq_depth ? NVML_SUCCESS : begin();

	return rc == NVML_SUCCESS ? initialised(AQ_CALL(nvmlInit_v2)) : rc;
}

AQ_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
	nvmlReturn_t rc = aq_depth ? NVML_SUCCESS : begin();

	return rc == NVML_SUCCESS ? initialised(AQ_CALL(nvmlInitWithFlags, flags)) : rc;
}

AQ_EXPORT nvmlReturn_t nvmlShutdown(void)
{
	if (aq_depth)
		return AQ_REAL(nvmlShutdown)();
	/* What has not been started has not been initialised: nothing to attach for. */
	if (!aq_started())
		return NVML_ERROR_UNINITIALIZED;
	aq_devices_forget();
	return AQ_CALL(nvmlShutdown);
}

/* ---- texts: needed by the program whose initialisation has just failed, when there is no provider to ask ---- */

static const struct {
	nvmlReturn_t code;
	const char *text;
} errors[] = {
	{ NVML_SUCCESS, "Success" },
	{ NVML_ERROR_UNINITIALIZED, "Uninitialized" },
	{ NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument" },
	{ NVML_ERROR_NOT_SUPPORTED, "Not Supported" },
	{ NVML_ERROR_NO_PERMISSION, "Insufficient Permissions" },
	{ NVML_ERROR_NOT_FOUND, "Not Found" },
	{ NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded" },
	{ NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found" },
};

AQ_EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
	if ((aq_depth || aq_started()) && aq_offers(AQ_SLOT_nvmlErrorString))
		return AQ_REAL(nvmlErrorString)(code);
	for (unsigned i = 0; i < AQ_ARRAY_SIZE(errors); i++)
		if (errors[i].code == code)
			return errors[i].text;
	return "Unknown Error";
}
