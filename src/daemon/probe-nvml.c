/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/probe.h"

#include "api/nvml_abi.h"
#include "base/macro.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CARDS     64U
#define MAX_PROCESSES 1024U

/* What we call of NVML; some drivers lack the later ones. */
static struct {
	bool ready;
	nvmlReturn_t (*init)(void);
	const char *(*error)(nvmlReturn_t);
	nvmlReturn_t (*count)(unsigned *);
	nvmlReturn_t (*handle)(unsigned, nvmlDevice_t *);
	nvmlReturn_t (*uuid)(nvmlDevice_t, char *, unsigned);
	nvmlReturn_t (*name)(nvmlDevice_t, char *, unsigned);
	nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t *);
	nvmlReturn_t (*memory2)(nvmlDevice_t, nvmlMemory_v2_t *);
	nvmlReturn_t (*pci)(nvmlDevice_t, nvmlPciInfo_t *);
	nvmlReturn_t (*running[3])(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);
} nv;

static const struct {
	void *slot;
	const char *names[3]; /* the newest first */
	bool needed;
} entries[] = {
	{ &nv.init, { "nvmlInit_v2" }, true },
	{ &nv.error, { "nvmlErrorString" }, true },
	{ &nv.count, { "nvmlDeviceGetCount_v2" }, true },
	{ &nv.handle, { "nvmlDeviceGetHandleByIndex_v2" }, true },
	{ &nv.uuid, { "nvmlDeviceGetUUID" }, true },
	{ &nv.name, { "nvmlDeviceGetName" }, true },
	{ &nv.memory, { "nvmlDeviceGetMemoryInfo" }, true },
	{ &nv.memory2, { "nvmlDeviceGetMemoryInfo_v2" }, false },
	{ &nv.pci, { "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2" }, false },
	/* _v2 and _v3 share their structure, an older one does not. */
	{ &nv.running[0],
	  { "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2" },
	  false },
	{ &nv.running[1],
	  { "nvmlDeviceGetGraphicsRunningProcesses_v3",
	    "nvmlDeviceGetGraphicsRunningProcesses_v2" },
	  false },
	{ &nv.running[2],
	  { "nvmlDeviceGetMPSComputeRunningProcesses_v3",
	    "nvmlDeviceGetMPSComputeRunningProcesses_v2" },
	  false },
};

static json_t *failed(const char *what, const char *why)
{
	return json_pack("{s:o}", "error", json_sprintf("%s: %s", what, why ? why : "?"));
}

/* NULL, or the failure. */
static json_t *load(const char *library)
{
	void *handle;
	nvmlReturn_t rc;

	if (nv.ready)
		return NULL;
	handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return failed("cannot load the driver's NVML", dlerror());
	for (size_t i = 0; i < AQ_ARRAY_SIZE(entries); i++) {
		void *fn = NULL;

		for (unsigned k = 0; k < AQ_ARRAY_SIZE(entries[i].names) && !fn; k++) {
			if (entries[i].names[k])
				fn = dlsym(handle, entries[i].names[k]);
		}
		if (!fn && entries[i].needed)
			return failed(library, entries[i].names[0]);
		memcpy(entries[i].slot, &fn, sizeof(fn));
	}
	rc = nv.init();
	if (rc != NVML_SUCCESS)
		return failed("NVML does not start", nv.error(rc));
	nv.ready = true;
	return NULL;
}

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)AQ_MIN(n, (uint64_t)INT64_MAX));
}

static json_t *describe(nvmlDevice_t dev, json_t **ret_card)
{
	nvmlMemory_v2_t m2 = { .version = AQ_NVML_VERSION(nvmlMemory_v2_t, 2) };
	nvmlMemory_t m = { 0 };
	nvmlPciInfo_t pci = { 0 };
	char uuid[96] = "";
	char name[96] = "";
	nvmlReturn_t rc = nv.uuid(dev, uuid, sizeof(uuid));

	if (rc != NVML_SUCCESS)
		return failed("nvmlDeviceGetUUID", nv.error(rc));
	if (nv.name(dev, name, sizeof(name)) != NVML_SUCCESS)
		name[0] = '\0';
	rc = nv.memory(dev, &m);
	/* Cards without memory of their own have no figure; they get no limit either. */
	if (rc != NVML_SUCCESS && rc != NVML_ERROR_NOT_SUPPORTED)
		return failed("nvmlDeviceGetMemoryInfo", nv.error(rc));
	if (nv.memory2 && nv.memory2(dev, &m2) == NVML_SUCCESS)
		m.used = m2.used;
	else
		m2.reserved = 0;
	if (nv.pci)
		(void)nv.pci(dev, &pci);
	pci.busId[sizeof(pci.busId) - 1] = '\0';
	*ret_card = json_pack("{s:s%, s:s%, s:s%, s:o, s:o, s:o}", "uuid", uuid, strlen(uuid),
			      "name", name, strlen(name), "pci", pci.busId, strlen(pci.busId),
			      "memory_bytes", number(m.total), "reserved_bytes",
			      number(m2.reserved), "used_bytes", number(m.used));
	return *ret_card ? NULL : failed("a card", "its texts are not UTF-8");
}

struct process {
	unsigned pid;
	uint64_t bytes; /* UINT64_MAX: not available */
};

/* A process is in the lists of compute and of graphics when it does both, each time with all its memory. */
static unsigned merge(struct process *all, unsigned n, const nvmlProcessInfo_t *p)
{
	uint64_t bytes = p->usedGpuMemory; /* all ones: not available */

	for (unsigned i = 0; i < n; i++) {
		if (all[i].pid != p->pid)
			continue;
		if (all[i].bytes == UINT64_MAX || (bytes != UINT64_MAX && bytes > all[i].bytes))
			all[i].bytes = bytes;
		return n;
	}
	if (n == MAX_PROCESSES)
		return n;
	all[n] = (struct process){ .pid = p->pid, .bytes = bytes };
	return n + 1;
}

/* Adds to `usage`; false when the driver does not tell. */
static bool list_processes(nvmlDevice_t dev, unsigned card, json_t *usage)
{
	static nvmlProcessInfo_t infos[MAX_PROCESSES];
	static struct process all[MAX_PROCESSES];
	bool told = false;
	unsigned n = 0;

	for (unsigned k = 0; k < AQ_ARRAY_SIZE(nv.running); k++) {
		unsigned count = MAX_PROCESSES;

		if (!nv.running[k] || nv.running[k](dev, &count, infos) != NVML_SUCCESS)
			continue;
		told |= k == 0;
		for (unsigned i = 0; i < AQ_MIN(count, MAX_PROCESSES); i++)
			n = merge(all, n, &infos[i]);
	}
	for (unsigned i = 0; i < n; i++) {
		json_t *bytes = all[i].bytes == UINT64_MAX ? json_null() : number(all[i].bytes);

		(void)json_array_append_new(usage,
					    json_pack("{s:i, s:i, s:o}", "card", (int)card, "pid",
						      (int)all[i].pid, "bytes", bytes));
	}
	return told;
}

json_t *aq_probe_read_cards(const char *library)
{
	json_t *cards = json_array();
	json_t *usage = json_array();
	json_t *error = load(library);
	bool told = true;
	unsigned n = 0;
	nvmlReturn_t rc = error ? NVML_SUCCESS : nv.count(&n);

	if (rc != NVML_SUCCESS)
		error = failed("nvmlDeviceGetCount", nv.error(rc));
	for (unsigned i = 0; !error && i < AQ_MIN(n, MAX_CARDS); i++) {
		nvmlDevice_t dev;
		json_t *card = NULL;

		rc = nv.handle(i, &dev);
		if (rc == NVML_SUCCESS)
			error = describe(dev, &card);
		else
			error = failed("nvmlDeviceGetHandleByIndex", nv.error(rc));
		if (error)
			break;
		(void)json_array_append_new(cards, card);
		told &= list_processes(dev, i, usage);
	}
	if (error) {
		json_decref(cards);
		json_decref(usage);
		return error;
	}
	return json_pack("{s:o, s:o, s:b}", "cards", cards, "usage", usage, "processes", (int)told);
}
