/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the instance's cards a device of this process is: by UUID, once, after the provider's cuInit. */
#include "shim/cuda/shim.h"

#include "base/macro.h"

#include <string.h>

#define MAX_DEVICES 64

/* known: how many devices + 1; 0: not looked at. The table is complete before it is published. */
static struct {
	_Atomic unsigned known;
	_Atomic int all_same; /* the card, when there is only one; else AQ_NO_CARD */
	int8_t card[MAX_DEVICES];
	struct aq_lock lock;
} devices = { .all_same = AQ_NO_CARD };

void aq_cards_reset(void)
{
	atomic_store(&devices.known, 0);
	atomic_store(&devices.all_same, AQ_NO_CARD);
	atomic_store(&devices.lock.word, 0);
}

static int find_card(CUdevice dev)
{
	const struct aq_control_page *c = aq_attachment_here.control;
	unsigned n = AQ_MIN(c->n_cards, AQ_INSTANCE_CARDS);
	CUuuid uuid;
	CUresult rc;

	/* The second version tells MIG instances apart; older drivers lack it. */
	rc = AQ_CALL(cuDeviceGetUuid_v2, &uuid, dev);
	if (rc != CUDA_SUCCESS)
		rc = AQ_CALL(cuDeviceGetUuid, &uuid, dev);
	if (rc != CUDA_SUCCESS)
		return AQ_NO_CARD;
	for (unsigned i = 0; i < n; i++)
		if (memcmp(c->card[i].uuid, uuid.bytes, sizeof(uuid.bytes)) == 0)
			return (int)i;
	return AQ_NO_CARD;
}

/* Returns the number of devices, 0 when the provider is not initialised. */
static unsigned look(void)
{
	unsigned known = atomic_load_explicit(&devices.known, memory_order_acquire);
	int count = 0;

	if (AQ_LIKELY(known))
		return known - 1;
	aq_lock(&devices.lock);
	known = atomic_load(&devices.known);
	if (!known && AQ_CALL(cuDeviceGetCount, &count) == CUDA_SUCCESS) {
		count = AQ_MIN(count, MAX_DEVICES);
		for (int i = 0; i < count; i++) {
			CUdevice dev = i;

			/* Devices are ordinals in every driver; were one not, it would be no card of ours. */
			devices.card[i] = AQ_CALL(cuDeviceGet, &dev, i) == CUDA_SUCCESS && dev == i
						  ? (int8_t)find_card(dev)
						  : AQ_NO_CARD;
		}
		if (count == 1)
			atomic_store(&devices.all_same, devices.card[0]);
		known = (unsigned)count + 1;
		atomic_store_explicit(&devices.known, known, memory_order_release);
	}
	aq_unlock(&devices.lock);
	return known ? known - 1 : 0;
}

unsigned aq_cards_devices(void)
{
	return look();
}

int aq_card_of(CUdevice dev)
{
	unsigned n = look();

	return dev >= 0 && (unsigned)dev < n ? devices.card[dev] : AQ_NO_CARD;
}

CUresult aq_card_current(int *ret_card)
{
	int same = atomic_load_explicit(&devices.all_same, memory_order_acquire);
	CUdevice dev = -1;
	CUresult rc;

	if (AQ_LIKELY(same != AQ_NO_CARD)) {
		*ret_card = same;
		return CUDA_SUCCESS;
	}
	rc = AQ_CALL(cuCtxGetDevice, &dev);
	if (rc != CUDA_SUCCESS)
		return rc;
	*ret_card = aq_card_of(dev);
	return CUDA_SUCCESS;
}

CUresult aq_card_of_stream(CUstream stream, bool per_thread, int *ret_card)
{
	CUcontext ctx = NULL;
	CUcontext popped;
	CUresult rc;

	if (atomic_load(&devices.all_same) != AQ_NO_CARD || !stream || stream == CU_STREAM_LEGACY ||
	    stream == CU_STREAM_PER_THREAD)
		return aq_card_current(ret_card);
	rc = per_thread ? AQ_CALL(cuStreamGetCtx_ptsz, stream, &ctx)
			: AQ_CALL(cuStreamGetCtx, stream, &ctx);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = AQ_CALL(cuCtxPushCurrent_v2, ctx);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = aq_card_current(ret_card);
	(void)AQ_CALL(cuCtxPopCurrent_v2, &popped);
	return rc;
}
