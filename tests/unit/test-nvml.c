/* SPDX-License-Identifier: Apache-2.0 */
/* Our NVML against a server of our own making: what it asks, what it makes of the answers, and of answers that lie. */
#include "api/nvml_protos.h"
#include "base/macro.h"
#include "wire/messages.h"
#include "wire/server.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define N_CARDS	    2U
#define TOTAL	    (1ULL << 30)
#define RESERVED    (16ULL << 20)
#define USED	    (300ULL << 20) /* of it, RESERVED included */
#define SAMPLE_TIME 1000000ULL

nvmlReturn_t nvmlInternalGetExportTable(void);
nvmlReturn_t nvmlDeviceGetEccMode(void);

static struct {
	char path[108];
	int listener;
	pthread_t thread;
	_Atomic unsigned n_procs;  /* on card 0 */
	_Atomic bool lies;	   /* about the number of processes */
	_Atomic bool dies;	   /* at the next question about a card's state */
	_Atomic unsigned sessions; /* accepted since the start */
} server;

static void answer_info(struct aq_conn *c, const struct aq_request *r)
{
	uint32_t card = ((const struct aq_req_card_info *)r->req)->card;
	struct aq_rep_card_info rep = {
		.pci_domain = 0,
		.pci_bus = 0x0a + card,
		.pci_device = 3,
		.pci_device_id = 0x12345678,
		.pci_subsystem_id = 0x9abcdef0,
		.minor = 7 + card,
		.memory_bytes = TOTAL,
		.memory_reserved = RESERVED,
		.max_clock_sm_mhz = 1400,
		.max_clock_mem_mhz = 1200,
		.max_power_mw = 250000,
		.n_attrs = AQ_WIRE_ATTRS,
	};

	(void)snprintf(rep.name, sizeof(rep.name), "Aliquot card %u (software)", card);
	(void)snprintf(rep.serial, sizeof(rep.serial), "SN%u", card);
	(void)snprintf(rep.vbios, sizeof(rep.vbios), "00.01");
	for (unsigned i = 0; i < sizeof(rep.uuid); i++)
		rep.uuid[i] = (uint8_t)(0x10 * card + i);
	rep.attrs[75] = 8; /* compute capability 8.6 */
	rep.attrs[76] = 6;
	rep.attrs[16] = 20; /* multiprocessors */
	aq_conn_reply(c, r->slot, AQ_OK, &rep, sizeof(rep));
}

static void answer_stat(struct aq_conn *c, const struct aq_request *r)
{
	struct aq_rep_card_stat rep = {
		.memory_used = USED,
		.memory_free = TOTAL - USED,
		.energy_mj = 123456,
		.util_gpu_pct = 42,
		.util_mem_pct = 17,
		.clock_sm_mhz = 1400,
		.clock_mem_mhz = 1200,
		.temperature_c = 50,
		.power_mw = 90000,
	};

	aq_conn_reply(c, r->slot, AQ_OK, &rep, sizeof(rep));
}

static void answer_procs(struct aq_conn *c, const struct aq_request *r)
{
	struct aq_rep_card_procs rep = { .n = 0 };
	const struct aq_req_card_procs *req = r->req;
	unsigned total = req->card == 0 ? server.n_procs : 0;

	rep.total = total;
	for (unsigned i = req->first; i < total && rep.n < AQ_WIRE_PROCS_MAX; i++) {
		rep.proc[rep.n++] = (struct aq_wire_proc){
			.pid = 1000 + i,
			.n_contexts = 1,
			.memory_bytes = (i + 1) * AQ_MIB,
			.sample_time_us = SAMPLE_TIME + i,
			.util_gpu_pct = i % 100,
		};
	}
	aq_conn_reply(c, r->slot, AQ_OK, &rep,
		      offsetof(struct aq_rep_card_procs, proc) + rep.n * sizeof(rep.proc[0]) -
			      (server.lies ? 1 : 0));
}

/* One session, until the client leaves or the server is told to die. */
static void serve_session(struct aq_conn *c)
{
	struct aq_request r;

	while (aq_conn_next(c, &r, NULL) > 0) {
		if (r.op == AQ_OP_CARD_INFO)
			answer_info(c, &r);
		else if (r.op == AQ_OP_CARD_STAT && server.dies)
			return;
		else if (r.op == AQ_OP_CARD_STAT)
			answer_stat(c, &r);
		else if (r.op == AQ_OP_CARD_PROCS)
			answer_procs(c, &r);
		else
			aq_conn_reply(c, r.slot, AQ_E_NOT_SUPPORTED, NULL, 0);
	}
}

static void *serve_thread(void *arg)
{
	struct aq_conn *c = arg;

	serve_session(c);
	aq_conn_free(c);
	return NULL;
}

static void *accept_loop(void *arg)
{
	static const struct aq_conn_config config = {
		.caps = AQ_CAP_SHM | AQ_CAP_FDS,
		.n_cards = N_CARDS,
		.driver_version = 13000,
		.server_name = "test",
	};
	(void)arg;

	for (;;) {
		int sock = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
		struct aq_conn *c = NULL;
		pthread_t thread;

		if (sock < 0)
			return NULL;
		if (aq_conn_accept(sock, &config, &c, NULL) < 0)
			continue;
		server.sessions++;
		if (pthread_create(&thread, NULL, serve_thread, c) == 0)
			(void)pthread_detach(thread);
	}
}

static int start_server(void **state)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	(void)state;

	(void)snprintf(server.path, sizeof(server.path), "/tmp/test-nvml-%d.sock", (int)getpid());
	(void)unlink(server.path);
	memcpy(sa.sun_path, server.path, strlen(server.path) + 1);
	server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(server.listener, (const struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    listen(server.listener, 8) < 0)
		return -1;
	(void)setenv("ALIQUOT_GPUD", server.path, 1);
	return pthread_create(&server.thread, NULL, accept_loop, NULL);
}

static int stop_server(void **state)
{
	(void)state;
	(void)shutdown(server.listener, SHUT_RDWR);
	(void)pthread_join(server.thread, NULL);
	(void)close(server.listener);
	(void)unlink(server.path);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	server.n_procs = 3;
	server.lies = false;
	server.dies = false;
	return nvmlInit_v2() == NVML_SUCCESS ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return nvmlShutdown() == NVML_SUCCESS ? 0 : -1;
}

static nvmlDevice_t card(unsigned index)
{
	nvmlDevice_t device = NULL;

	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(index, &device), NVML_SUCCESS);
	return device;
}

static void test_uninitialised(void **state)
{
	unsigned n;
	char text[80];
	(void)state;

	assert_int_equal(nvmlDeviceGetCount_v2(&n), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlDeviceGetCount_v2(NULL), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlDeviceGetName(NULL, text, sizeof(text)), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlDeviceGetEccMode(), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlInitWithFlags(0x80), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlInternalGetExportTable(), NVML_ERROR_FUNCTION_NOT_FOUND);
	assert_int_equal(nvmlSystemGetNVMLVersion(text, sizeof(text)), NVML_SUCCESS);
	assert_string_equal(nvmlErrorString(NVML_ERROR_UNINITIALIZED), "Uninitialized");
	assert_string_equal(nvmlErrorString((nvmlReturn_t)4711), "Unknown Error");
}

static void test_no_server(void **state)
{
	(void)state;
	(void)setenv("ALIQUOT_GPUD", "/nonexistent/gpud.sock", 1);
	assert_int_equal(nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
	(void)setenv("ALIQUOT_GPUD", server.path, 1);
}

static void test_references(void **state)
{
	unsigned n = 0, before = server.sessions;
	(void)state;

	assert_int_equal(nvmlInit(), NVML_SUCCESS);
	assert_int_equal(nvmlInitWithFlags(NVML_INIT_FLAG_NO_GPUS), NVML_SUCCESS);
	assert_int_equal(server.sessions, before + 1); /* one session serves all */
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceGetCount(&n), NVML_SUCCESS);
	assert_int_equal(n, N_CARDS);
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceGetCount(&n), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
}

static void test_versions(void **state)
{
	char text[80];
	int version = 0;
	nvmlSystemDriverBranchInfo_t branch = { .version = AQ_NVML_VERSION(branch, 1) };
	(void)state;

	assert_int_equal(nvmlSystemGetDriverVersion(text, sizeof(text)), NVML_SUCCESS);
	assert_memory_equal(text, "580.", 4);
	assert_int_equal(nvmlSystemGetDriverVersion(text, 4), NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(nvmlSystemGetDriverVersion(NULL, 80), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlSystemGetCudaDriverVersion_v2(&version), NVML_SUCCESS);
	assert_int_equal(version, 13000);
	assert_int_equal(nvmlSystemGetDriverBranch(&branch, 80), NVML_SUCCESS);
	branch.version++;
	assert_int_equal(nvmlSystemGetDriverBranch(&branch, 80),
			 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	assert_int_equal(nvmlSystemGetProcessName((unsigned)getpid(), text, sizeof(text)),
			 NVML_SUCCESS);
	assert_int_equal(text[0], '/');
	assert_int_equal(nvmlSystemGetProcessName((unsigned)getpid(), text, 3), NVML_SUCCESS);
	assert_int_equal(strlen(text), 2);
	assert_int_equal(nvmlSystemGetProcessName(0x7fffffff, text, sizeof(text)),
			 NVML_ERROR_NOT_FOUND);
	assert_int_equal(nvmlSystemGetProcessName(1, text, 0), NVML_ERROR_INVALID_ARGUMENT);
}

static void test_handles(void **state)
{
	nvmlDevice_t a = card(0), b = card(1), found = NULL;
	unsigned index = 9;
	(void)state;

	assert_ptr_not_equal(a, b);
	assert_int_equal(nvmlDeviceGetIndex(b, &index), NVML_SUCCESS);
	assert_int_equal(index, 1);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(N_CARDS, &found),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, NULL), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetIndex(NULL, &index), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetIndex((nvmlDevice_t)((char *)a + 1), &index),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetIndex((nvmlDevice_t)&index, &index),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetIndex((nvmlDevice_t)((char *)b + ((char *)b - (char *)a)),
					    &index),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetHandleBySerial("SN1", &found), NVML_SUCCESS);
	assert_ptr_equal(found, b);
	assert_int_equal(nvmlDeviceGetHandleBySerial("SN", &found), NVML_ERROR_NOT_FOUND);
	assert_int_equal(nvmlDeviceGetHandleBySerial(NULL, &found), NVML_ERROR_INVALID_ARGUMENT);
}

static void test_uuid(void **state)
{
	nvmlUUID_t key = { .version = AQ_NVML_VERSION(key, 1), .type = NVML_UUID_TYPE_BINARY };
	nvmlDevice_t found = NULL;
	char text[80];
	(void)state;

	assert_int_equal(nvmlDeviceGetUUID(card(1), text, sizeof(text)), NVML_SUCCESS);
	assert_string_equal(text, "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
	assert_int_equal(nvmlDeviceGetUUID(card(1), text, 40), NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(nvmlDeviceGetUUID(card(1), text, 41), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceGetHandleByUUID(text, &found), NVML_SUCCESS);
	assert_ptr_equal(found, card(1));
	text[10] ^= 1;
	assert_int_equal(nvmlDeviceGetHandleByUUID(text, &found), NVML_ERROR_NOT_FOUND);

	for (unsigned i = 0; i < 16; i++)
		key.value.bytes[i] = (unsigned char)i;
	assert_int_equal(nvmlDeviceGetHandleByUUIDV(&key, &found), NVML_SUCCESS);
	assert_ptr_equal(found, card(0));
	key.type = NVML_UUID_TYPE_ASCII;
	memset(key.value.str, 'x', sizeof(key.value.str)); /* without an end */
	assert_int_equal(nvmlDeviceGetHandleByUUIDV(&key, &found), NVML_ERROR_NOT_FOUND);
	key.type = 7;
	assert_int_equal(nvmlDeviceGetHandleByUUIDV(&key, &found), NVML_ERROR_INVALID_ARGUMENT);
	key.version = 0;
	assert_int_equal(nvmlDeviceGetHandleByUUIDV(&key, &found),
			 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

static void test_pci(void **state)
{
	static const char *const good[] = { "0:b:3", "0000:0B:03.0", "00000000:0B:03.0",
					    "0b:03.0" };
	static const char *const bad[] = {
		"", ":", "b", "0000:0B:03.", "0:b:3:1", "-1:b:3", "x:b:3"
	};
	nvmlPciInfo_t pci, older;
	nvmlPciInfoExt_t ext = { .version = AQ_NVML_VERSION(ext, 1) };
	nvmlDevice_t found = NULL;
	(void)state;

	assert_int_equal(nvmlDeviceGetPciInfo_v3(card(1), &pci), NVML_SUCCESS);
	assert_string_equal(pci.busId, "00000000:0B:03.0");
	assert_string_equal(pci.busIdLegacy, "0000:0B:03.0");
	assert_int_equal(pci.pciDeviceId, 0x12345678);
	assert_int_equal(nvmlDeviceGetPciInfoExt(card(1), &ext), NVML_SUCCESS);
	assert_string_equal(ext.busId, pci.busId);

	/* Older versions must not write behind what their callers have. */
	memset(&older, 0x5a, sizeof(older));
	assert_int_equal(nvmlDeviceGetPciInfo_v2(card(1), &older), NVML_SUCCESS);
	assert_int_equal(older.pciSubSystemId, 0x9abcdef0);
	assert_int_equal(older.busId[0], 0x5a);
	memset(&older, 0x5a, sizeof(older));
	assert_int_equal(nvmlDeviceGetPciInfo(card(1), &older), NVML_SUCCESS);
	assert_int_equal(older.pciSubSystemId, 0x5a5a5a5a);
	assert_int_equal(nvmlDeviceGetPciInfo(card(1), NULL), NVML_ERROR_INVALID_ARGUMENT);

	for (unsigned i = 0; i < AQ_ARRAY_SIZE(good); i++) {
		assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2(good[i], &found), NVML_SUCCESS);
		assert_ptr_equal(found, card(1));
	}
	for (unsigned i = 0; i < AQ_ARRAY_SIZE(bad); i++)
		assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2(bad[i], &found),
				 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetHandleByPciBusId("0000:0B:03.1", &found),
			 NVML_ERROR_NOT_FOUND);
}

static void test_fixed(void **state)
{
	nvmlDevice_t d = card(0);
	nvmlDeviceArchitecture_t arch = 0;
	nvmlDeviceAttributes_t attributes, older;
	char name[96];
	int major = 0, minor = 0;
	unsigned n = 9;
	(void)state;

	assert_int_equal(nvmlDeviceGetName(d, name, sizeof(name)), NVML_SUCCESS);
	assert_string_equal(name, "Aliquot card 0 (software)");
	assert_int_equal(nvmlDeviceGetName(d, name, 25), NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(nvmlDeviceGetName(d, NULL, 96), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetCudaComputeCapability(d, &major, &minor), NVML_SUCCESS);
	assert_int_equal(10 * major + minor, 86);
	assert_int_equal(nvmlDeviceGetArchitecture(d, &arch), NVML_SUCCESS);
	assert_int_equal(arch, NVML_DEVICE_ARCH_AMPERE);
	assert_int_equal(nvmlDeviceGetMinorNumber(d, &n), NVML_SUCCESS);
	assert_int_equal(n, 7);
	assert_int_equal(nvmlDeviceGetNumFans(d, &n), NVML_SUCCESS);
	assert_int_equal(n, 0);
	assert_int_equal(nvmlDeviceGetAttributes_v2(d, &attributes), NVML_SUCCESS);
	assert_int_equal(attributes.multiprocessorCount, 20);
	assert_int_equal(attributes.memorySizeMB, TOTAL / AQ_MIB);
	memset(&older, 0x5a, sizeof(older));
	assert_int_equal(nvmlDeviceGetAttributes(d, &older), NVML_SUCCESS);
	assert_int_equal(older.gpuInstanceSliceCount, 0x5a5a5a5a);
	assert_int_equal(nvmlDeviceGetEccMode(), NVML_ERROR_NOT_SUPPORTED);
}

static void test_memory(void **state)
{
	nvmlMemory_t v1;
	nvmlMemory_v2_t v2 = { .version = AQ_NVML_VERSION(v2, 2) };
	(void)state;

	assert_int_equal(v2.version, 33554472); /* what programs have compiled in */
	assert_int_equal(nvmlDeviceGetMemoryInfo(card(0), &v1), NVML_SUCCESS);
	assert_int_equal(v1.total, TOTAL);
	assert_int_equal(v1.used, USED);
	assert_int_equal(v1.free, TOTAL - USED);
	assert_int_equal(nvmlDeviceGetMemoryInfo_v2(card(0), &v2), NVML_SUCCESS);
	assert_int_equal(v2.reserved, RESERVED);
	assert_int_equal(v2.used, USED - RESERVED);
	assert_int_equal(v2.total, v2.reserved + v2.used + v2.free);
	v2.version = AQ_NVML_VERSION(v2, 1);
	assert_int_equal(nvmlDeviceGetMemoryInfo_v2(card(0), &v2),
			 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	assert_int_equal(nvmlDeviceGetMemoryInfo(card(0), NULL), NVML_ERROR_INVALID_ARGUMENT);
}

static void test_sensors(void **state)
{
	nvmlDevice_t d = card(0);
	nvmlUtilization_t util;
	nvmlTemperature_t temperature = { .version = AQ_NVML_VERSION(temperature, 1) };
	nvmlPstates_t pstate = NVML_PSTATE_UNKNOWN;
	nvmlFieldValue_t fields[3] = { { .fieldId = NVML_FI_DEV_POWER_INSTANT },
				       { .fieldId = NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION },
				       { .fieldId = 1 } };
	unsigned long long energy = 0, reasons = 9;
	unsigned n = 0, m = 0;
	(void)state;

	assert_int_equal(nvmlDeviceGetUtilizationRates(d, &util), NVML_SUCCESS);
	assert_int_equal(util.gpu, 42);
	assert_int_equal(util.memory, 17);
	assert_int_equal(nvmlDeviceGetClockInfo(d, NVML_CLOCK_MEM, &n), NVML_SUCCESS);
	assert_int_equal(n, 1200);
	assert_int_equal(nvmlDeviceGetClockInfo(d, NVML_CLOCK_COUNT, &n),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetClock(d, NVML_CLOCK_SM, NVML_CLOCK_ID_COUNT, &n),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetClock(d, NVML_CLOCK_SM, NVML_CLOCK_ID_CURRENT, &n),
			 NVML_SUCCESS);
	assert_int_equal(n, 1400);
	n = 0;
	assert_int_equal(nvmlDeviceGetSupportedMemoryClocks(d, &n, NULL),
			 NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(n, 1);
	assert_int_equal(nvmlDeviceGetSupportedMemoryClocks(d, &n, &m), NVML_SUCCESS);
	assert_int_equal(m, 1200);
	assert_int_equal(nvmlDeviceGetSupportedGraphicsClocks(d, 999, &n, &m),
			 NVML_ERROR_NOT_FOUND);
	assert_int_equal(nvmlDeviceGetTemperature(d, NVML_TEMPERATURE_GPU, &n), NVML_SUCCESS);
	assert_int_equal(n, 50);
	assert_int_equal(nvmlDeviceGetTemperatureV(d, &temperature), NVML_SUCCESS);
	assert_int_equal(temperature.temperature, 50);
	assert_int_equal(nvmlDeviceGetPowerUsage(d, &n), NVML_SUCCESS);
	assert_int_equal(n, 90000);
	assert_int_equal(nvmlDeviceGetPowerManagementLimitConstraints(d, &n, &m), NVML_SUCCESS);
	assert_int_equal(m, 250000);
	assert_int_equal(nvmlDeviceGetPowerManagementLimitConstraints(d, &n, NULL),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetTotalEnergyConsumption(d, &energy), NVML_SUCCESS);
	assert_int_equal(energy, 123456);
	assert_int_equal(nvmlDeviceGetPerformanceState(d, &pstate), NVML_SUCCESS);
	assert_int_equal(pstate, NVML_PSTATE_0);
	assert_int_equal(nvmlDeviceGetCurrentClocksThrottleReasons(d, &reasons), NVML_SUCCESS);
	assert_int_equal(reasons, 0);

	assert_int_equal(nvmlDeviceGetFieldValues(d, 3, fields), NVML_SUCCESS);
	assert_int_equal(fields[0].nvmlReturn, NVML_SUCCESS);
	assert_int_equal(fields[0].value.uiVal, 90000);
	assert_int_equal(fields[1].value.ullVal, 123456);
	assert_int_equal(fields[2].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(nvmlDeviceGetFieldValues(d, -1, fields), NVML_ERROR_INVALID_ARGUMENT);
}

static void test_processes(void **state)
{
	nvmlDevice_t d = card(0);
	nvmlProcessInfo_v1_t v1[3];
	nvmlProcessInfo_t v3[4];
	nvmlProcessDetail_v1_t detail[3];
	nvmlProcessDetailList_t list = { .version = AQ_NVML_VERSION(list, 1),
					 .numProcArrayEntries = 3,
					 .procArray = detail };
	unsigned n = 0;
	(void)state;

	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(d, &n, NULL),
			 NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(n, 3);
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(d, &n, NULL),
			 NVML_ERROR_INVALID_ARGUMENT);
	n = 4;
	memset(v3, 0x5a, sizeof(v3));
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(d, &n, v3), NVML_SUCCESS);
	assert_int_equal(n, 3);
	assert_int_equal(v3[2].pid, 1002);
	assert_int_equal(v3[2].usedGpuMemory, 3 * AQ_MIB);
	assert_int_equal(v3[2].gpuInstanceId, NVML_NO_INSTANCE);
	assert_int_equal(v3[3].pid, 0x5a5a5a5a);
	n = 2;
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v2(d, &n, v3),
			 NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(n, 3);
	n = 3;
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses(d, &n, v1), NVML_SUCCESS);
	assert_int_equal(v1[2].pid, 1002);
	assert_int_equal(v1[2].usedGpuMemory, 3 * AQ_MIB);
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses(d, NULL, v1),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetRunningProcessDetailList(d, &list), NVML_SUCCESS);
	assert_int_equal(list.numProcArrayEntries, 3);
	assert_int_equal(detail[1].pid, 1001);
	list.mode = 3;
	assert_int_equal(nvmlDeviceGetRunningProcessDetailList(d, &list),
			 NVML_ERROR_INVALID_ARGUMENT);
	n = 0;
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(card(1), &n, NULL), NVML_SUCCESS);
	n = 4;
	assert_int_equal(nvmlDeviceGetGraphicsRunningProcesses_v3(d, &n, v3), NVML_SUCCESS);
	assert_int_equal(n, 0);
	n = 4;
	assert_int_equal(nvmlDeviceGetMPSComputeRunningProcesses(d, &n, v1), NVML_SUCCESS);
	assert_int_equal(n, 0);
}

/* More than one answer of the server holds. */
static void test_many_processes(void **state)
{
	static nvmlProcessInfo_t infos[700];
	unsigned n = 700;
	(void)state;

	server.n_procs = 600;
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(card(0), &n, infos), NVML_SUCCESS);
	assert_int_equal(n, 600);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(infos[i].pid, 1000 + i);
}

static void test_process_utilisation(void **state)
{
	nvmlDevice_t d = card(0);
	nvmlProcessUtilizationSample_t samples[3];
	nvmlProcessUtilizationInfo_v1_t entries[3];
	nvmlProcessesUtilizationInfo_t info = { .version = AQ_NVML_VERSION(info, 1) };
	unsigned n = 0;
	(void)state;

	assert_int_equal(nvmlDeviceGetProcessUtilization(d, NULL, &n, 0),
			 NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(n, 3);
	assert_int_equal(nvmlDeviceGetProcessUtilization(d, samples, &n, 0), NVML_SUCCESS);
	assert_int_equal(samples[1].pid, 1001);
	assert_int_equal(samples[1].timeStamp, SAMPLE_TIME + 1);
	assert_int_equal(samples[1].smUtil, 1);
	assert_int_equal(nvmlDeviceGetProcessUtilization(d, samples, &n, SAMPLE_TIME + 1),
			 NVML_SUCCESS);
	assert_int_equal(n, 1);
	assert_int_equal(samples[0].pid, 1002);
	assert_int_equal(nvmlDeviceGetProcessUtilization(d, samples, &n, SAMPLE_TIME + 2),
			 NVML_ERROR_NOT_FOUND);
	assert_int_equal(nvmlDeviceGetProcessUtilization(d, samples, NULL, 0),
			 NVML_ERROR_INVALID_ARGUMENT);

	assert_int_equal(nvmlDeviceGetProcessesUtilizationInfo(d, &info),
			 NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(info.processSamplesCount, 3);
	info.procUtilArray = entries;
	assert_int_equal(nvmlDeviceGetProcessesUtilizationInfo(d, &info), NVML_SUCCESS);
	assert_int_equal(entries[2].pid, 1002);
	assert_int_equal(entries[2].smUtil, 2);
}

static void test_topology(void **state)
{
	nvmlDevice_t near[2] = { NULL, NULL };
	nvmlGpuTopologyLevel_t level = NVML_TOPOLOGY_SYSTEM;
	nvmlGpuP2PStatus_t p2p = NVML_P2P_STATUS_NOT_SUPPORTED;
	unsigned long cpus[2] = { 0, 0 };
	unsigned n = 0;
	(void)state;

	assert_int_equal(nvmlDeviceGetTopologyCommonAncestor(card(0), card(1), &level),
			 NVML_SUCCESS);
	assert_int_equal(level, NVML_TOPOLOGY_NODE);
	assert_int_equal(nvmlDeviceGetTopologyCommonAncestor(card(0), NULL, &level),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetTopologyNearestGpus(card(0), NVML_TOPOLOGY_NODE, &n, NULL),
			 NVML_SUCCESS);
	assert_int_equal(n, 1);
	assert_int_equal(nvmlDeviceGetTopologyNearestGpus(card(0), NVML_TOPOLOGY_NODE, &n, near),
			 NVML_SUCCESS);
	assert_ptr_equal(near[0], card(1));
	assert_int_equal(nvmlDeviceGetP2PStatus(card(0), card(1), NVML_P2P_CAPS_INDEX_READ, &p2p),
			 NVML_SUCCESS);
	assert_int_equal(p2p, NVML_P2P_STATUS_OK);
	assert_int_equal(nvmlDeviceGetP2PStatus(card(0), card(0), NVML_P2P_CAPS_INDEX_READ, &p2p),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetCpuAffinity(card(0), 2, cpus), NVML_SUCCESS);
	assert_true(cpus[0] & 1);
	assert_int_equal(nvmlDeviceGetCpuAffinity(card(0), 0, cpus), NVML_ERROR_INVALID_ARGUMENT);
}

static void test_lying_server(void **state)
{
	nvmlProcessInfo_t infos[3];
	unsigned n = 3;
	(void)state;

	server.lies = true;
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(card(0), &n, infos),
			 NVML_ERROR_UNKNOWN);
}

static void test_dead_server(void **state)
{
	nvmlDevice_t d = card(0);
	nvmlMemory_t memory;
	(void)state;

	server.dies = true;
	assert_int_equal(nvmlDeviceGetMemoryInfo(d, &memory), NVML_ERROR_GPU_IS_LOST);
	assert_int_equal(nvmlDeviceGetMemoryInfo(d, &memory), NVML_ERROR_GPU_IS_LOST);
	server.dies = false;
	/* A new session finds the cards again. */
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
	assert_int_equal(nvmlInit_v2(), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceGetMemoryInfo(d, &memory), NVML_SUCCESS);
}

/* What the child found: bit by bit. */
static int in_child(void)
{
	nvmlMemory_t memory;
	nvmlDevice_t d = NULL;
	unsigned n = 0;

	if (nvmlDeviceGetCount_v2(&n) != NVML_ERROR_UNINITIALIZED)
		return 1;
	if (nvmlInit_v2() != NVML_SUCCESS)
		return 2;
	if (nvmlDeviceGetHandleByIndex_v2(1, &d) != NVML_SUCCESS)
		return 3;
	if (nvmlDeviceGetMemoryInfo(d, &memory) != NVML_SUCCESS || memory.used != USED)
		return 4;
	return nvmlShutdown() == NVML_SUCCESS ? 0 : 5;
}

static void test_fork(void **state)
{
	nvmlMemory_t memory;
	int status = -1;
	pid_t child;
	(void)state;

	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(in_child());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(nvmlDeviceGetMemoryInfo(card(0), &memory), NVML_SUCCESS);
}

static void *ask_and_ask(void *arg)
{
	unsigned *wrong = arg;

	for (unsigned i = 0; i < 300; i++) {
		nvmlDevice_t d = NULL;
		nvmlUtilization_t util = { 0, 0 };

		if (nvmlInit_v2() != NVML_SUCCESS ||
		    nvmlDeviceGetHandleByIndex_v2(0, &d) != NVML_SUCCESS ||
		    nvmlDeviceGetUtilizationRates(d, &util) != NVML_SUCCESS || util.gpu != 42 ||
		    nvmlShutdown() != NVML_SUCCESS)
			(*wrong)++;
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t thread[4];
	unsigned wrong[4] = { 0 };
	(void)state;

	for (unsigned i = 0; i < AQ_ARRAY_SIZE(thread); i++)
		assert_int_equal(pthread_create(&thread[i], NULL, ask_and_ask, &wrong[i]), 0);
	for (unsigned i = 0; i < AQ_ARRAY_SIZE(thread); i++) {
		assert_int_equal(pthread_join(thread[i], NULL), 0);
		assert_int_equal(wrong[i], 0);
	}
}

#define WITH_SESSION(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uninitialised),
		cmocka_unit_test(test_no_server),
		cmocka_unit_test(test_references),
		WITH_SESSION(test_versions),
		WITH_SESSION(test_handles),
		WITH_SESSION(test_uuid),
		WITH_SESSION(test_pci),
		WITH_SESSION(test_fixed),
		WITH_SESSION(test_memory),
		WITH_SESSION(test_sensors),
		WITH_SESSION(test_processes),
		WITH_SESSION(test_many_processes),
		WITH_SESSION(test_process_utilisation),
		WITH_SESSION(test_topology),
		WITH_SESSION(test_lying_server),
		WITH_SESSION(test_dead_server),
		WITH_SESSION(test_fork),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, start_server, stop_server);
}
