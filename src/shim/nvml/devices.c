/* SPDX-License-Identifier: Apache-2.0 */
/* Which cards there are: the instance's, in PCI order. */
#include "shim/nvml/shim.h"

#include "base/macro.h"

#include <string.h>

#define MAX_DEVICES 64

struct device {
	nvmlDevice_t handle;
	unsigned card; /* index in the control page */
	uint64_t pci;
};

static struct {
	struct aq_lock lock;
	bool known;
	unsigned n;
	struct device dev[AQ_INSTANCE_CARDS];
} table;

void aq_devices_reset(void)
{
	atomic_store(&table.lock.word, 0);
	table.known = false;
}

void aq_devices_forget(void)
{
	aq_lock(&table.lock);
	table.known = false;
	aq_unlock(&table.lock);
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "GPU-" or "MIG-", then 32 digits with hyphens. */
static bool parse_uuid(const char *text, uint8_t uuid[16])
{
	unsigned n = 0;

	memset(uuid, 0, 16);
	if (strlen(text) < 4)
		return false;
	for (text += 4; *text; text++) {
		if (*text == '-')
			continue;
		if (n == 32 || digit(*text) < 0)
			return false;
		uuid[n / 2] |= (uint8_t)(digit(*text) << (n % 2 ? 0 : 4));
		n++;
	}
	return n == 32;
}

static bool find_card(nvmlDevice_t handle, unsigned *ret)
{
	const struct aq_control_page *c = aq_attachment_here.control;
	uint8_t uuid[16];
	char text[96];

	if (AQ_CALL(nvmlDeviceGetUUID, handle, text, sizeof(text)) != NVML_SUCCESS ||
	    !parse_uuid(text, uuid))
		return false;
	for (unsigned i = 0; i < AQ_MIN(c->n_cards, AQ_INSTANCE_CARDS); i++) {
		if (memcmp(c->card[i].uuid, uuid, sizeof(uuid)) == 0) {
			*ret = i;
			return true;
		}
	}
	return false;
}

static uint64_t pci_of(nvmlDevice_t handle)
{
	nvmlPciInfo_t pci = { .domain = 0 };

	if (AQ_CALL(nvmlDeviceGetPciInfo_v3, handle, &pci) != NVML_SUCCESS &&
	    AQ_CALL(nvmlDeviceGetPciInfo_v2, handle, &pci) != NVML_SUCCESS)
		return UINT64_MAX;
	return (uint64_t)pci.domain << 32 | (uint64_t)(pci.bus & 0xffff) << 16 |
	       (pci.device & 0xffff);
}

/* Takes its place by PCI address; behind what was there first among equals. */
static void add_if_ours(nvmlDevice_t handle)
{
	struct device d = { .handle = handle };
	unsigned at = table.n;

	if (table.n == AQ_INSTANCE_CARDS || !find_card(handle, &d.card))
		return;
	d.pci = pci_of(handle);
	for (; at > 0 && table.dev[at - 1].pci > d.pci; at--)
		table.dev[at] = table.dev[at - 1];
	table.dev[at] = d;
	table.n++;
}

/* The instances that a card may be cut into, which have UUIDs of their own. */
static void add_parts(nvmlDevice_t handle)
{
	unsigned n = 0;

	if (AQ_CALL(nvmlDeviceGetMaxMigDeviceCount, handle, &n) != NVML_SUCCESS)
		return;
	for (unsigned i = 0; i < AQ_MIN(n, MAX_DEVICES); i++) {
		nvmlDevice_t part = NULL;

		if (AQ_CALL(nvmlDeviceGetMigDeviceHandleByIndex, handle, i, &part) == NVML_SUCCESS)
			add_if_ours(part);
	}
}

static nvmlReturn_t real_count(unsigned *ret)
{
	return aq_offers(AQ_SLOT_nvmlDeviceGetCount_v2) ? AQ_CALL(nvmlDeviceGetCount_v2, ret)
							: AQ_CALL(nvmlDeviceGetCount, ret);
}

static nvmlReturn_t real_by_index(unsigned index, nvmlDevice_t *ret)
{
	return aq_offers(AQ_SLOT_nvmlDeviceGetHandleByIndex_v2)
		       ? AQ_CALL(nvmlDeviceGetHandleByIndex_v2, index, ret)
		       : AQ_CALL(nvmlDeviceGetHandleByIndex, index, ret);
}

static nvmlReturn_t look_locked(void)
{
	unsigned count = 0;
	nvmlReturn_t rc;

	if (table.known)
		return NVML_SUCCESS;
	rc = real_count(&count);
	if (rc != NVML_SUCCESS)
		return rc;
	table.n = 0;
	for (unsigned i = 0; i < AQ_MIN(count, MAX_DEVICES); i++) {
		nvmlDevice_t handle = NULL;

		/* One that is lost or forbidden is not there for this program. */
		if (real_by_index(i, &handle) != NVML_SUCCESS)
			continue;
		add_if_ours(handle);
		add_parts(handle);
	}
	table.known = true;
	return NVML_SUCCESS;
}

/* All of the instance's devices, at most AQ_INSTANCE_CARDS. */
static nvmlReturn_t list(struct device *ret, unsigned *ret_n)
{
	nvmlReturn_t rc;

	aq_lock(&table.lock);
	rc = look_locked();
	if (rc == NVML_SUCCESS) {
		memcpy(ret, table.dev, table.n * sizeof(*ret));
		*ret_n = table.n;
	}
	aq_unlock(&table.lock);
	return rc;
}

/* Its place among the instance's; -1: none of them. */
static nvmlReturn_t place_of(nvmlDevice_t handle, int *ret_place, unsigned *ret_card)
{
	struct device dev[AQ_INSTANCE_CARDS];
	unsigned n = 0;
	nvmlReturn_t rc = list(dev, &n);

	*ret_place = -1;
	for (unsigned i = 0; rc == NVML_SUCCESS && i < n; i++) {
		if (dev[i].handle == handle) {
			*ret_place = (int)i;
			*ret_card = dev[i].card;
		}
	}
	return rc;
}

nvmlReturn_t aq_device_card(nvmlDevice_t device, unsigned *ret_card)
{
	nvmlReturn_t rc;
	int place;

	rc = place_of(device, &place, ret_card);
	if (rc != NVML_SUCCESS || place >= 0)
		return rc;
	return device ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_INVALID_ARGUMENT;
}

/* ---- how many, and which ---- */

static nvmlReturn_t counted(nvmlReturn_t rc, unsigned *count)
{
	struct device dev[AQ_INSTANCE_CARDS];
	unsigned n = 0;

	if (rc == NVML_SUCCESS)
		rc = count ? list(dev, &n) : NVML_ERROR_INVALID_ARGUMENT;
	if (rc == NVML_SUCCESS)
		*count = n;
	return rc;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
	unsigned n = 0;

	AQ_ENTER(nvmlDeviceGetCount_v2, count);
	return counted(AQ_CALL(nvmlDeviceGetCount_v2, count ? &n : NULL), count);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
	unsigned n = 0;

	AQ_ENTER(nvmlDeviceGetCount, count);
	return counted(AQ_CALL(nvmlDeviceGetCount, count ? &n : NULL), count);
}

static nvmlReturn_t by_index(unsigned slot, unsigned index, nvmlDevice_t *device)
{
	struct device dev[AQ_INSTANCE_CARDS];
	unsigned n = 0;
	nvmlReturn_t rc;

	if (!aq_offers(slot))
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	rc = list(dev, &n);
	if (rc != NVML_SUCCESS)
		return rc;
	if (!device || index >= n)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = dev[index].handle;
	return NVML_SUCCESS;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
	AQ_ENTER(nvmlDeviceGetHandleByIndex_v2, index, device);
	return by_index(AQ_SLOT_nvmlDeviceGetHandleByIndex_v2, index, device);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
	AQ_ENTER(nvmlDeviceGetHandleByIndex, index, device);
	return by_index(AQ_SLOT_nvmlDeviceGetHandleByIndex, index, device);
}

/* A handle that the provider has found (written by the call that gave rc): the program gets it when the card is the instance's. */
static nvmlReturn_t found(nvmlReturn_t rc, const nvmlDevice_t *handle, nvmlDevice_t *device)
{
	unsigned card;
	int place = -1;

	if (rc == NVML_SUCCESS)
		rc = place_of(*handle, &place, &card);
	if (rc != NVML_SUCCESS)
		return rc;
	if (place < 0 || !device)
		return device ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
	*device = *handle;
	return NVML_SUCCESS;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	nvmlDevice_t handle = NULL;

	AQ_ENTER(nvmlDeviceGetHandleByUUID, uuid, device);
	return found(AQ_CALL(nvmlDeviceGetHandleByUUID, uuid, device ? &handle : NULL), &handle,
		     device);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)
{
	nvmlDevice_t handle = NULL;

	AQ_ENTER(nvmlDeviceGetHandleByUUIDV, uuid, device);
	return found(AQ_CALL(nvmlDeviceGetHandleByUUIDV, uuid, device ? &handle : NULL), &handle,
		     device);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	nvmlDevice_t handle = NULL;

	AQ_ENTER(nvmlDeviceGetHandleBySerial, serial, device);
	return found(AQ_CALL(nvmlDeviceGetHandleBySerial, serial, device ? &handle : NULL), &handle,
		     device);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
	nvmlDevice_t handle = NULL;

	AQ_ENTER(nvmlDeviceGetHandleByPciBusId_v2, bus, device);
	return found(AQ_CALL(nvmlDeviceGetHandleByPciBusId_v2, bus, device ? &handle : NULL),
		     &handle, device);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *device)
{
	nvmlDevice_t handle = NULL;

	AQ_ENTER(nvmlDeviceGetHandleByPciBusId, bus, device);
	return found(AQ_CALL(nvmlDeviceGetHandleByPciBusId, bus, device ? &handle : NULL), &handle,
		     device);
}

/* Parts of a card that is the instance's are its own; of any other, those that it was given. */
AQ_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
							   nvmlDevice_t *mig)
{
	nvmlDevice_t handle = NULL;
	unsigned card;
	int place;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetMigDeviceHandleByIndex, device, index, mig);
	rc = AQ_CALL(nvmlDeviceGetMigDeviceHandleByIndex, device, index, mig ? &handle : NULL);
	if (rc != NVML_SUCCESS || !mig || place_of(device, &place, &card) != NVML_SUCCESS ||
	    place < 0)
		return found(rc, &handle, mig);
	*mig = handle;
	return NVML_SUCCESS;
}

/* The place in the list above. (The minor number stays the card's own: it names the device file.) */
AQ_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
	unsigned real = 0;
	unsigned card;
	int place;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetIndex, device, index);
	rc = AQ_CALL(nvmlDeviceGetIndex, device, index ? &real : NULL);
	if (rc == NVML_SUCCESS)
		rc = place_of(device, &place, &card);
	if (rc != NVML_SUCCESS)
		return rc;
	if (place < 0 || !index)
		return index ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_INVALID_ARGUMENT;
	*index = (unsigned)place;
	return NVML_SUCCESS;
}

/* ---- neighbours in the machine: those of the instance alone ---- */

static nvmlReturn_t only_ours(nvmlReturn_t rc, const nvmlDevice_t *all, unsigned n, unsigned *count,
			      nvmlDevice_t *devices)
{
	nvmlDevice_t ours[MAX_DEVICES];
	unsigned have = 0;
	unsigned fits;

	for (unsigned i = 0; rc == NVML_SUCCESS && i < AQ_MIN(n, MAX_DEVICES); i++) {
		unsigned card;
		int place;

		rc = place_of(all[i], &place, &card);
		if (rc == NVML_SUCCESS && place >= 0)
			ours[have++] = all[i];
	}
	if (rc != NVML_SUCCESS || !count)
		return rc != NVML_SUCCESS ? rc : NVML_ERROR_INVALID_ARGUMENT;
	fits = *count;
	*count = have;
	if (!devices)
		return NVML_SUCCESS;
	if (fits < have)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(devices, ours, have * sizeof(*ours));
	return NVML_SUCCESS;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device,
							nvmlGpuTopologyLevel_t level,
							unsigned *count, nvmlDevice_t *devices)
{
	nvmlDevice_t all[MAX_DEVICES];
	unsigned n = MAX_DEVICES;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetTopologyNearestGpus, device, level, count, devices);
	rc = AQ_CALL(nvmlDeviceGetTopologyNearestGpus, device, level, count ? &n : NULL, all);
	return only_ours(rc, all, n, count, devices);
}

AQ_EXPORT nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *count,
						   nvmlDevice_t *devices)
{
	nvmlDevice_t all[MAX_DEVICES];
	unsigned n = MAX_DEVICES;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlSystemGetTopologyGpuSet, cpu, count, devices);
	rc = AQ_CALL(nvmlSystemGetTopologyGpuSet, cpu, count ? &n : NULL, all);
	return only_ours(rc, all, n, count, devices);
}
