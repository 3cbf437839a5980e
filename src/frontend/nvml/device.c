/* SPDX-License-Identifier: Apache-2.0 */
/* Finding cards, and what never changes about one: all from the snapshot. */
#include "api/cuda_abi.h"
#include "api/nvml_protos.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "frontend/nvml/nv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter();

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = aq_nv_count();
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
	return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter();

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!device || !aq_nv_at(index))
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = aq_nv_handle(aq_nv_at(index));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

typedef bool (*match_fn)(const struct aq_nv_device *dev, const void *key);

static nvmlReturn_t find(match_fn matches, const void *key, nvmlDevice_t *device)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter();

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!key || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < aq_nv_count(); i++) {
		if (matches(aq_nv_at(i), key)) {
			*device = aq_nv_handle(aq_nv_at(i));
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

static bool has_serial(const struct aq_nv_device *dev, const void *key)
{
	return strcmp(dev->info.serial, key) == 0;
}

static bool has_uuid_text(const struct aq_nv_device *dev, const void *key)
{
	char uuid[AQ_NV_UUID_SIZE];

	aq_nv_uuid(dev, uuid);
	return strcasecmp(uuid, key) == 0;
}

static bool has_uuid_bytes(const struct aq_nv_device *dev, const void *key)
{
	return memcmp(dev->info.uuid, key, sizeof(dev->info.uuid)) == 0;
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	return find(has_serial, serial, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	return find(has_uuid_text, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)
{
	char text[sizeof(uuid->value.str) + 1];

	if (!uuid)
		return find(has_uuid_text, NULL, device);
	if (AQ_NV_CHECK_VERSION(uuid, 1) != NVML_SUCCESS)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (uuid->type == NVML_UUID_TYPE_BINARY)
		return find(has_uuid_bytes, uuid->value.bytes, device);
	if (uuid->type != NVML_UUID_TYPE_ASCII)
		return NVML_ERROR_INVALID_ARGUMENT;
	memcpy(text, uuid->value.str, sizeof(uuid->value.str));
	text[sizeof(text) - 1] = '\0';
	return find(has_uuid_text, text, device);
}

struct pci_address {
	unsigned long domain, bus, device, function;
};

/* "[domain:]bus:device.function", hexadecimal. */
static bool parse_pci(const char *text, struct pci_address *ret)
{
	unsigned long part[4];
	unsigned n = 0;
	const char *at = text;
	char *end;

	for (;;) {
		part[n] = strtoul(at, &end, 16);
		if (end == at || *at == '-' || *at == '+' || *at == ' ')
			return false;
		n++;
		if (*end != ':' || n == 3)
			break;
		at = end + 1;
	}
	if (n < 2)
		return false;
	*ret = (struct pci_address){ .domain = n == 3 ? part[0] : 0,
				     .bus = part[n - 2],
				     .device = part[n - 1] };
	if (*end == '\0')
		return true;
	at = end + 1;
	if (*end != '.')
		return false;
	ret->function = strtoul(at, &end, 16);
	return end != at && *end == '\0';
}

static bool has_pci(const struct aq_nv_device *dev, const void *key)
{
	const struct pci_address *a = key;

	return a->function == 0 && a->domain == dev->info.pci_domain &&
	       a->bus == dev->info.pci_bus && a->device == dev->info.pci_device;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
	struct pci_address address;

	if (!bus_id)
		return find(has_pci, NULL, device);
	/* The session is asked for before the text is judged, as for every other argument. */
	if (!parse_pci(bus_id, &address)) {
		aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter();

		return call.status != NVML_SUCCESS ? call.status : NVML_ERROR_INVALID_ARGUMENT;
	}
	return find(has_pci, &address, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	return aq_nv_text(call.dev->info.name, name, length);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	return aq_nv_text(call.dev->info.serial, serial, length);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned length)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	return aq_nv_text(call.dev->info.vbios, version, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
	char text[AQ_NV_UUID_SIZE];

	if (call.status != NVML_SUCCESS)
		return call.status;
	aq_nv_uuid(call.dev, text);
	return aq_nv_text(text, uuid, length);
}

static void fill_bus_id(const struct aq_nv_device *dev, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%08X:%02X:%02X.0", dev->info.pci_domain,
		       dev->info.pci_bus & 0xff, dev->info.pci_device & 0x1f);
}

/* The part that every version of the structure has; what follows differs. */
static nvmlReturn_t pci_info(nvmlDevice_t device, nvmlPciInfo_t *pci, size_t known)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
	nvmlPciInfo_t full = { .domain = 0 };

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	full.domain = call.dev->info.pci_domain;
	full.bus = call.dev->info.pci_bus;
	full.device = call.dev->info.pci_device;
	full.pciDeviceId = call.dev->info.pci_device_id;
	full.pciSubSystemId = call.dev->info.pci_subsystem_id;
	(void)snprintf(full.busIdLegacy, sizeof(full.busIdLegacy), "%04X:%02X:%02X.0",
		       full.domain & 0xffff, full.bus & 0xff, full.device & 0x1f);
	fill_bus_id(call.dev, full.busId, sizeof(full.busId));
	memcpy(pci, &full, known);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info(device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info(device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info(device, pci, sizeof(*pci));
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (AQ_NV_CHECK_VERSION(pci, 1) != NVML_SUCCESS)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	pci->domain = call.dev->info.pci_domain;
	pci->bus = call.dev->info.pci_bus;
	pci->device = call.dev->info.pci_device;
	pci->pciDeviceId = call.dev->info.pci_device_id;
	pci->pciSubSystemId = call.dev->info.pci_subsystem_id;
	pci->baseClass = 0x03; /* display controller */
	pci->subClass = 0x02;  /* 3D, without a display */
	fill_bus_id(call.dev, pci->busId, sizeof(pci->busId));
	return NVML_SUCCESS;
}
