/* SPDX-License-Identifier: Apache-2.0 */
/* NVML and CUDA in the same programs, two cards, two processes: each card's memory and each process where it is. */
#include "e2e.h"

#include "api/nvml_protos.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB	  (1024UL * 1024)
#define MAX_PROCS 16U

#define NV(call) CHECK_INT((call), NVML_SUCCESS)

static nvmlDevice_t card[2];

static unsigned long long used(unsigned i)
{
	nvmlMemory_t memory = { 0, 0, 0 };

	NV(nvmlDeviceGetMemoryInfo(card[i], &memory));
	return memory.used;
}

/* Bytes that the process has on the card; -1: it is not listed. */
static long long bytes_of(pid_t pid, unsigned i)
{
	nvmlProcessInfo_t infos[MAX_PROCS];
	unsigned n = MAX_PROCS;

	NV(nvmlDeviceGetComputeRunningProcesses_v3(card[i], &n, infos));
	for (unsigned k = 0; k < n; k++) {
		if (infos[k].pid == (unsigned)pid)
			return (long long)infos[k].usedGpuMemory;
	}
	return -1;
}

static void sleep_ms(long ms)
{
	const struct timespec ts = { .tv_nsec = ms * 1000000 };

	(void)nanosleep(&ts, NULL);
}

static void test_cards(void)
{
	char uuid[2][64] = { "", "" };
	nvmlPciInfo_t pci[2];
	unsigned n = 0, index = 9, minor[2] = { 9, 9 };
	CUuuid cuda;
	char text[4];

	NV(nvmlInit_v2());
	NV(nvmlDeviceGetCount_v2(&n));
	CHECK_INT(n, 2);
	OK(cuInit(0));
	for (unsigned i = 0; i < 2; i++) {
		NV(nvmlDeviceGetHandleByIndex_v2(i, &card[i]));
		NV(nvmlDeviceGetIndex(card[i], &index));
		CHECK_INT(index, i);
		NV(nvmlDeviceGetUUID(card[i], uuid[i], sizeof(uuid[i])));
		NV(nvmlDeviceGetPciInfo_v3(card[i], &pci[i]));
		NV(nvmlDeviceGetMinorNumber(card[i], &minor[i]));
		OK(cuDeviceGetUuid_v2(&cuda, (CUdevice)i));
		(void)snprintf(text, sizeof(text), "%02x", (unsigned char)cuda.bytes[15]);
		CHECK(strcmp(uuid[i] + 38, text) == 0);
	}
	CHECK(strcmp(uuid[0], uuid[1]) != 0);
	CHECK(strcmp(pci[0].busId, pci[1].busId) != 0);
	CHECK(minor[0] != minor[1]);
}

static void test_memory_is_each_cards_own(void)
{
	unsigned long long before[2] = { used(0), used(1) }, with_context;
	CUcontext ctx = NULL;
	CUdeviceptr p = 0;

	CHECK_INT(bytes_of(getpid(), 1), -1);
	OK(cuCtxCreate_v2(&ctx, 0, 1));
	with_context = used(1);
	CHECK(with_context > before[1]);
	OK(cuMemAlloc_v2(&p, 48 * MIB));
	CHECK_INT(used(1) - with_context, 48 * MIB);
	CHECK_INT(used(0), before[0]);
	CHECK(bytes_of(getpid(), 1) >= (long long)(48 * MIB));
	CHECK_INT(bytes_of(getpid(), 0), -1);
	OK(cuCtxDestroy_v2(ctx));
	CHECK_INT(used(1), before[1]);
	CHECK_INT(bytes_of(getpid(), 1), -1);
}

/* In the child, which begins without a session of either library. */
static int hold_memory(int told, int tell)
{
	CUcontext ctx = NULL;
	CUdeviceptr p = 0;
	unsigned n = 0;
	char byte = 'x';

	if (nvmlDeviceGetCount_v2(&n) != NVML_ERROR_UNINITIALIZED)
		return 1;
	if (cuInit(0) || cuCtxCreate_v2(&ctx, 0, 0) || cuMemAlloc_v2(&p, 32 * MIB))
		return 2;
	if (write(tell, &byte, 1) != 1 || read(told, &byte, 1) != 1)
		return 3;
	/* Ends without freeing: the server does it. */
	return 0;
}

static void test_two_processes(void)
{
	unsigned long long before = used(0);
	int to_child[2], to_parent[2], status = -1;
	CUcontext ctx = NULL;
	char byte = 'x';
	pid_t child;

	CHECK_INT(pipe(to_child), 0);
	CHECK_INT(pipe(to_parent), 0);
	child = fork();
	if (child == 0)
		_exit(hold_memory(to_child[0], to_parent[1]));
	OK(cuCtxCreate_v2(&ctx, 0, 0));
	CHECK_INT(read(to_parent[0], &byte, 1), 1);
	CHECK(bytes_of(getpid(), 0) > 0);
	CHECK_INT(bytes_of(child, 0) - bytes_of(getpid(), 0), 32 * MIB);
	CHECK_INT(write(to_child[1], &byte, 1), 1);
	CHECK_INT(waitpid(child, &status, 0), child);
	CHECK_INT(status, 0);
	OK(cuCtxDestroy_v2(ctx));
	for (unsigned tries = 0; tries < 250 && used(0) != before; tries++)
		sleep_ms(20);
	CHECK_INT(used(0), before);
	CHECK_INT(bytes_of(child, 0), -1);
}

static void test_shutdown(void)
{
	unsigned n = 0;

	NV(nvmlShutdown());
	CHECK_INT(nvmlDeviceGetCount_v2(&n), NVML_ERROR_UNINITIALIZED);
	NV(nvmlInit_v2());
	NV(nvmlDeviceGetCount_v2(&n));
	NV(nvmlShutdown());
}

int main(void)
{
	static const struct e2e_test tests[] = {
		{ "both libraries list the same two cards", test_cards },
		{ "memory is each card's own", test_memory_is_each_cards_own },
		{ "two processes on one card", test_two_processes },
		{ "shutdown and again", test_shutdown },
	};

	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
