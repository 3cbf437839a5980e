/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory there is and what is left: the same numbers as cuMemGetInfo. */
#include "shim/nvml/shim.h"

#include "base/macro.h"
#include "core/ledger.h"

bool aq_limited(unsigned card)
{
	return atomic_load_explicit(&aq_attachment_here.control->card[card].limit_bytes,
				    memory_order_relaxed) != AQ_NO_LIMIT;
}

static uint64_t total_of(unsigned card)
{
	const struct aq_control_card *c = &aq_attachment_here.control->card[card];
	uint64_t limit = atomic_load(&c->limit_bytes);

	return c->card_bytes ? AQ_MIN(limit, c->card_bytes) : limit;
}

static uint64_t free_of(unsigned card, uint64_t total)
{
	struct aq_attachment *a = &aq_attachment_here;
	uint64_t left;

	aq_attach_enter();
	left = aq_ledger_free(
		&(struct aq_ledger){ a->report->account[card], &a->control->slots_high,
				     &a->control->card[card].limit_bytes, atomic_load(&a->slot) });
	aq_attach_leave();
	return AQ_MIN(left, total);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlMemory_t real = { 0, 0, 0 };
	unsigned card;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetMemoryInfo, device, memory);
	rc = AQ_CALL(nvmlDeviceGetMemoryInfo, device, memory ? &real : NULL);
	if (rc == NVML_SUCCESS)
		rc = memory ? aq_device_card(device, &card) : NVML_ERROR_INVALID_ARGUMENT;
	if (rc != NVML_SUCCESS)
		return rc;
	*memory = real;
	if (aq_limited(card)) {
		memory->total = total_of(card);
		memory->free = free_of(card, memory->total);
		memory->used = memory->total - memory->free;
	}
	return NVML_SUCCESS;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlMemory_v2_t real = { 0 };
	unsigned card;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetMemoryInfo_v2, device, memory);
	if (memory)
		real.version = memory->version;
	rc = AQ_CALL(nvmlDeviceGetMemoryInfo_v2, device, memory ? &real : NULL);
	if (rc == NVML_SUCCESS)
		rc = memory ? aq_device_card(device, &card) : NVML_ERROR_INVALID_ARGUMENT;
	if (rc != NVML_SUCCESS)
		return rc;
	*memory = real;
	if (aq_limited(card)) {
		memory->total = total_of(card);
		memory->free = free_of(card, memory->total);
		memory->used = memory->total - memory->free;
		/* The driver's own share lies outside the limit. */
		memory->reserved = 0;
	}
	return NVML_SUCCESS;
}

/* The window that all programs of the card share: nobody says what of it is whose. */
AQ_EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
	nvmlBAR1Memory_t real = { 0, 0, 0 };
	unsigned card;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetBAR1MemoryInfo, device, memory);
	rc = AQ_CALL(nvmlDeviceGetBAR1MemoryInfo, device, memory ? &real : NULL);
	if (rc == NVML_SUCCESS)
		rc = memory ? aq_device_card(device, &card) : NVML_ERROR_INVALID_ARGUMENT;
	if (rc == NVML_SUCCESS && aq_limited(card))
		rc = NVML_ERROR_NOT_SUPPORTED;
	if (rc == NVML_SUCCESS)
		*memory = real;
	return rc;
}

/* Sizes of a part of a card; the first version has no memory in it. */
AQ_EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device,
						  nvmlDeviceAttributes_t *attributes)
{
	unsigned card;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetAttributes_v2, device, attributes);
	rc = AQ_CALL(nvmlDeviceGetAttributes_v2, device, attributes);
	if (rc == NVML_SUCCESS && attributes && aq_device_card(device, &card) == NVML_SUCCESS &&
	    aq_limited(card))
		attributes->memorySizeMB = AQ_MIN(attributes->memorySizeMB, total_of(card) >> 20);
	return rc;
}
