/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML in an instance: its cards, its memory, its processes. What the card itself says is asked of the provider beside the stand-in (AQ_TEST_NVML is its path).
 *
 * AQ_TEST_CARDS: how many of the two cards are the instance's. AQ_TEST_UNLIMITED: no limit. AQ_TEST_BARE: LD_LIBRARY_PATH of a program outside.
 */
#include "e2e/e2e.h"

#include "api/nvml_protos.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB	  (1ULL << 20)
#define MAX_PROCS 16U

#define NV(call) CHECK_INT((call), NVML_SUCCESS)

/* The provider's own function. */
#define REAL(name) ((__typeof__(&name))real_fn(#name))

static void *provider;
static nvmlDevice_t card[2]; /* of the machine */
static unsigned n_ours;
static bool limited;

static void *real_fn(const char *name)
{
	void *fn = dlsym(provider, name);

	if (!fn) {
		(void)printf("Bail out! %s: %s\n", name, dlerror());
		exit(1);
	}
	return fn;
}

static void test_cards(void)
{
	nvmlDevice_t d = NULL;
	char uuid[96] = "";
	char text[8];
	unsigned n = 0;
	unsigned index = 9;
	unsigned minor[2] = { 7, 8 };
	nvmlPciInfo_t pci;
	CUuuid cuda;

	NV(nvmlInit_v2());
	NV(nvmlDeviceGetCount_v2(&n));
	CHECK_INT(n, n_ours);
	NV(nvmlDeviceGetCount(&n));
	CHECK_INT(n, n_ours);
	CHECK_INT(nvmlDeviceGetCount_v2(NULL), NVML_ERROR_INVALID_ARGUMENT);
	NV(REAL(nvmlDeviceGetCount_v2)(&n));
	CHECK_INT(n, 2);
	for (unsigned i = 0; i < 2; i++)
		NV(REAL(nvmlDeviceGetHandleByIndex_v2)(i, &card[i]));
	for (unsigned i = 0; i < 2; i++) {
		bool ours = i < n_ours;

		d = NULL;
		CHECK_INT(nvmlDeviceGetHandleByIndex_v2(i, &d),
			  ours ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT);
		CHECK(d == (ours ? card[i] : NULL));
		NV(REAL(nvmlDeviceGetUUID)(card[i], uuid, sizeof(uuid)));
		NV(REAL(nvmlDeviceGetPciInfo_v3)(card[i], &pci));
		CHECK_INT(nvmlDeviceGetHandleByUUID(uuid, &d),
			  ours ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND);
		CHECK_INT(nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &d),
			  ours ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND);
		CHECK_INT(nvmlDeviceGetIndex(card[i], &index),
			  ours ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION);
		if (!ours)
			continue;
		CHECK_INT(index, i);
		NV(nvmlDeviceGetMinorNumber(card[i], &minor[0]));
		NV(REAL(nvmlDeviceGetMinorNumber)(card[i], &minor[1]));
		CHECK_INT(minor[0], minor[1]);
		OK(cuDeviceGetUuid_v2(&cuda, (CUdevice)i));
		(void)snprintf(text, sizeof(text), "%02x", (unsigned char)cuda.bytes[15]);
		CHECK(strcmp(uuid + 38, text) == 0);
	}
	CHECK_INT(nvmlDeviceGetHandleByIndex_v2(0, NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_INT(nvmlDeviceGetHandleByUUID("GPU-none", &d), NVML_ERROR_NOT_FOUND);
	n = 2;
	NV(nvmlDeviceGetTopologyNearestGpus(card[0], NVML_TOPOLOGY_NODE, &n, &d));
	CHECK_INT(n, n_ours - 1);
}

/* The three ways to ask give the same numbers. Returns what is free. */
static size_t agree(void)
{
	nvmlMemory_t v1 = { 0, 0, 0 };
	nvmlMemory_v2_t v2 = { .version = AQ_NVML_VERSION(v2, 2) };
	size_t left = 0;
	size_t total = 0;

	OK(cuMemGetInfo_v2(&left, &total));
	NV(nvmlDeviceGetMemoryInfo(card[0], &v1));
	NV(nvmlDeviceGetMemoryInfo_v2(card[0], &v2));
	if (limited) {
		CHECK_INT(v1.total, total);
		CHECK_INT(v1.free, left);
		CHECK_INT(v1.used, total - left);
		CHECK_INT(v2.total, total);
		CHECK_INT(v2.free, left);
		CHECK_INT(v2.used, total - left);
		CHECK_INT(v2.reserved, 0);
	} else {
		nvmlMemory_t real;

		NV(REAL(nvmlDeviceGetMemoryInfo)(card[0], &real));
		CHECK_INT(v1.total, real.total);
		CHECK_INT(v1.used, real.used);
		CHECK_INT(v1.free, real.free);
	}
	return left;
}

static void test_memory(void)
{
	nvmlMemory_t m = { 0, 0, 0 };
	nvmlMemory_v2_t wrong = { .version = 17 };
	size_t before = agree();
	CUdeviceptr p = 0;

	OK(cuMemAlloc_v2(&p, 10 * MIB));
	CHECK_INT(agree(), before - 10 * MIB);
	OK(cuMemFree_v2(p));
	CHECK_INT(agree(), before);
	CHECK_INT(nvmlDeviceGetMemoryInfo(card[0], NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_INT(nvmlDeviceGetMemoryInfo(NULL, &m), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_INT(nvmlDeviceGetMemoryInfo_v2(card[0], &wrong),
		  NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	if (n_ours < 2)
		CHECK_INT(nvmlDeviceGetMemoryInfo(card[1], &m), NVML_ERROR_NO_PERMISSION);
	CHECK_INT(m.total, 0);
}

/* What the whole card says must not be had of a limited one. */
static void test_whole_card(void)
{
	nvmlReturn_t want = limited ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
	nvmlBAR1Memory_t bar1;
	nvmlUtilization_t u;
	unsigned pct = 0;
	unsigned period = 0;

	CHECK_INT(nvmlDeviceGetBAR1MemoryInfo(card[0], &bar1), want);
	NV(nvmlDeviceGetUtilizationRates(card[0], &u));
	CHECK(u.gpu <= 100 && u.memory <= 100);
	NV(nvmlDeviceGetEncoderUtilization(card[0], &pct, &period));
	NV(nvmlDeviceGetOfaUtilization(card[0], &pct, &period));
	CHECK_INT(pct, 0);
}

/* ---- processes ---- */

struct helper {
	pid_t pid;
	int in, out;
};

/* Another program that holds `bytes` until told to end: in the instance, or outside any. */
static struct helper start_helper(bool outside, const char *bytes)
{
	struct helper h = { -1, -1, -1 };
	int to[2];
	int from[2];
	char byte = 0;

	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
		return h;
	h.pid = fork();
	if (h.pid == 0) {
		(void)dup2(to[0], 0);
		(void)dup2(from[1], 1);
		(void)close(to[1]);
		(void)close(from[0]);
		(void)setenv("AQ_TEST_HOLD", bytes, 1);
		if (outside) {
			(void)setenv("AQ_TEST_BUSY", "1", 1);
			(void)unsetenv("LD_PRELOAD");
			(void)unsetenv("ALIQUOT_VGPU_DIR");
			(void)setenv("LD_LIBRARY_PATH", getenv("AQ_TEST_BARE"), 1);
		}
		(void)execl("/proc/self/exe", "holder", (char *)NULL);
		_exit(127);
	}
	(void)close(to[0]);
	(void)close(from[1]);
	h.in = to[1];
	h.out = from[0];
	CHECK_INT(read(h.out, &byte, 1), 1);
	CHECK_INT(byte, '+');
	return h;
}

static void end_helper(struct helper *h)
{
	int status = -1;

	(void)close(h->in);
	(void)waitpid(h->pid, &status, 0);
	(void)close(h->out);
	CHECK_INT(status, 0);
}

/* Loops for `rounds` of a millisecond: long on the card, cheap to interpret. */
static const char idle_ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
			       ".visible .entry idle(.param .u32 rounds)\n"
			       "{\n"
			       ".reg .pred p;\n"
			       ".reg .u32 r;\n"
			       "ld.param.u32 r, [rounds];\n"
			       "again:\n"
			       "nanosleep.u32 1000000;\n"
			       "sub.u32 r, r, 1;\n"
			       "setp.ne.u32 p, r, 0;\n"
			       "@p bra again;\n"
			       "ret;\n"
			       "}\n";

static bool keep_busy(void)
{
	CUmodule module = NULL;
	CUfunction fn = NULL;
	unsigned rounds = 20000;
	void *args[] = { &rounds };

	return cuModuleLoadData(&module, idle_ptx) == CUDA_SUCCESS &&
	       cuModuleGetFunction(&fn, module, "idle") == CUDA_SUCCESS &&
	       cuLaunchKernel(fn, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL) == CUDA_SUCCESS;
}

/* The helper's side. */
static int hold(const char *bytes)
{
	CUcontext ctx = NULL;
	CUdeviceptr p = 0;
	char byte;
	bool ok = cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&ctx, 0) == CUDA_SUCCESS &&
		  cuCtxSetCurrent(ctx) == CUDA_SUCCESS &&
		  cuMemAlloc_v2(&p, strtoull(bytes, NULL, 10)) == CUDA_SUCCESS &&
		  (!getenv("AQ_TEST_BUSY") || keep_busy());

	(void)!write(1, ok ? "+" : "-", 1);
	(void)!read(0, &byte, 1);
	/* Whatever still runs ends with the process. */
	_exit(ok ? 0 : 1);
}

/* Bytes that the process has on the card, by all three versions; -1: it is not listed. */
static long long bytes_of(pid_t pid)
{
	nvmlProcessInfo_v1_t v1[MAX_PROCS];
	nvmlProcessInfo_v2_t v2[MAX_PROCS];
	nvmlProcessInfo_t v3[MAX_PROCS];
	unsigned n1 = MAX_PROCS;
	unsigned n2 = MAX_PROCS;
	unsigned n3 = MAX_PROCS;
	long long bytes = -1;

	NV(nvmlDeviceGetComputeRunningProcesses(card[0], &n1, v1));
	NV(nvmlDeviceGetComputeRunningProcesses_v2(card[0], &n2, v2));
	NV(nvmlDeviceGetComputeRunningProcesses_v3(card[0], &n3, v3));
	CHECK_INT(n1, n3);
	CHECK_INT(n2, n3);
	for (unsigned i = 0; i < n3; i++) {
		CHECK_INT(v1[i].pid, v3[i].pid);
		CHECK_INT(v1[i].usedGpuMemory, v3[i].usedGpuMemory);
		CHECK_INT(v2[i].usedGpuMemory, v3[i].usedGpuMemory);
		if (v3[i].pid == (unsigned)pid)
			bytes = (long long)v3[i].usedGpuMemory;
	}
	return bytes;
}

static bool really_listed(pid_t pid)
{
	nvmlProcessInfo_t infos[MAX_PROCS];
	unsigned n = MAX_PROCS;

	NV(REAL(nvmlDeviceGetComputeRunningProcesses_v3)(card[0], &n, infos));
	for (unsigned i = 0; i < n; i++)
		if (infos[i].pid == (unsigned)pid)
			return true;
	return false;
}

static void check_samples(pid_t stranger)
{
	nvmlProcessUtilizationSample_t s[MAX_PROCS];
	nvmlProcessUtilizationInfo_v1_t list[MAX_PROCS];
	nvmlProcessesUtilizationInfo_t info = { AQ_NVML_VERSION(info, 1), MAX_PROCS, 0, list };
	unsigned n = MAX_PROCS;
	nvmlReturn_t rc = nvmlDeviceGetProcessUtilization(card[0], s, &n, 0);

	CHECK(rc == NVML_SUCCESS || rc == NVML_ERROR_NOT_FOUND);
	for (unsigned i = 0; rc == NVML_SUCCESS && i < n; i++)
		CHECK(s[i].pid != (unsigned)stranger);
	CHECK_INT(nvmlDeviceGetProcessesUtilizationInfo(card[0], &info), rc);
	for (unsigned i = 0; rc == NVML_SUCCESS && i < info.processSamplesCount; i++)
		CHECK(list[i].pid != (unsigned)stranger);
}

/* A neighbour's work is not ours. */
static void check_utilisation(void)
{
	const struct timespec pause = { .tv_nsec = 20000000 };
	nvmlUtilization_t real = { 0, 0 };
	nvmlUtilization_t own = { 0, 0 };

	for (int i = 0; i < 200 && !real.gpu; i++) {
		(void)nanosleep(&pause, NULL);
		NV(REAL(nvmlDeviceGetUtilizationRates)(card[0], &real));
	}
	CHECK(real.gpu > 0);
	NV(nvmlDeviceGetUtilizationRates(card[0], &own));
	if (limited)
		CHECK_INT(own.gpu, 0);
	else
		CHECK(own.gpu > 0);
}

static void test_processes(void)
{
	struct helper neighbour = start_helper(true, "33554432");
	struct helper sibling = start_helper(false, "8388608");
	nvmlProcessDetail_v1_t detail[MAX_PROCS];
	nvmlProcessDetailList_t list = { AQ_NVML_VERSION(list, 1), 0, MAX_PROCS, detail };
	nvmlProcessInfo_t one[1];
	size_t left = agree();
	unsigned n = 0;

	CHECK(really_listed(neighbour.pid) && really_listed(sibling.pid));
	CHECK_INT(bytes_of(neighbour.pid), -1);
	CHECK(bytes_of(sibling.pid) >= (long long)(8 * MIB));
	CHECK(bytes_of(getpid()) >= 0);
	NV(nvmlDeviceGetRunningProcessDetailList(card[0], &list));
	CHECK_INT(list.numProcArrayEntries, 2);
	/* How many, and a list that is too short. */
	CHECK_INT(nvmlDeviceGetComputeRunningProcesses_v3(card[0], &n, NULL),
		  NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_INT(n, 2);
	n = 1;
	CHECK_INT(nvmlDeviceGetComputeRunningProcesses_v3(card[0], &n, one),
		  NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_INT(n, 2);
	CHECK_INT(nvmlDeviceGetComputeRunningProcesses_v3(card[0], NULL, one),
		  NVML_ERROR_INVALID_ARGUMENT);
	n = MAX_PROCS;
	NV(nvmlDeviceGetGraphicsRunningProcesses_v3(card[0], &n, one));
	CHECK_INT(n, 0);
	check_samples(neighbour.pid);
	check_utilisation();
	/* Its end gives us nothing, and takes nothing. */
	end_helper(&neighbour);
	if (limited)
		CHECK_INT(agree(), left);
	end_helper(&sibling);
}

/* A forked child is a client of its own, and has to initialise for itself. */
static void test_fork(void)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		nvmlDevice_t d = NULL;
		nvmlMemory_t m = { 0, 0, 0 };
		unsigned n = 0;

		if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetCount_v2(&n) != NVML_SUCCESS ||
		    n != n_ours || nvmlDeviceGetHandleByIndex_v2(0, &d) != NVML_SUCCESS ||
		    nvmlDeviceGetMemoryInfo(d, &m) != NVML_SUCCESS || m.total == 0)
			_exit(1);
		_exit(0);
	}
	(void)waitpid(pid, &status, 0);
	CHECK_INT(status, 0);
	(void)agree();
}

static size_t memory_left(void)
{
	nvmlMemory_t memory = { 0, 0, 0 };

	NV(nvmlDeviceGetMemoryInfo(card[0], &memory));
	return memory.free;
}

/* Both libraries attach again by themselves, to the same slot of the new pages. */
static void test_restart(void)
{
	const struct timespec pause = { .tv_nsec = 400000000 };
	const char *host = getenv("AQ_HOST_PID");
	CUdeviceptr p = 0;
	size_t left;

	/* Only the small daemon of these tests restarts on demand. */
	if (!host)
		return;
	OK(cuMemAlloc_v2(&p, 10 * MIB));
	left = agree();
	CHECK_INT(kill((pid_t)strtol(host, NULL, 10), SIGUSR1), 0);
	(void)nanosleep(&pause, NULL);
	/* A busy machine may take longer. */
	for (int i = 0; limited && i < 20 && memory_left() != left; i++)
		(void)nanosleep(&pause, NULL);
	if (limited) {
		CHECK_INT(agree(), left);
		CHECK(bytes_of(getpid()) >= (long long)(10 * MIB));
	}
	OK(cuMemFree_v2(p));
	(void)agree();
}

static void test_shutdown(void)
{
	unsigned n = 0;

	NV(nvmlInitWithFlags(0));
	NV(nvmlShutdown());
	NV(nvmlDeviceGetCount_v2(&n));
	NV(nvmlShutdown());
	CHECK_INT(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
	CHECK_INT(nvmlDeviceGetCount_v2(&n), NVML_ERROR_UNINITIALIZED);
	CHECK_INT(nvmlDeviceGetHandleByIndex_v2(0, &card[0]), NVML_ERROR_UNINITIALIZED);
	NV(nvmlInit());
	NV(nvmlDeviceGetHandleByIndex(0, &card[0]));
	(void)agree();
	NV(nvmlShutdown());
}

int main(void)
{
	static const struct e2e_test tests[] = {
		{ "cards", test_cards },
		{ "memory", test_memory },
		{ "what only the whole card has", test_whole_card },
		{ "processes", test_processes },
		{ "fork", test_fork },
		{ "the daemon restarts", test_restart },
		{ "shutdown", test_shutdown },
	};
	const char *ours = getenv("AQ_TEST_CARDS");
	CUcontext ctx = NULL;

	if (getenv("AQ_TEST_HOLD"))
		return hold(getenv("AQ_TEST_HOLD"));
	n_ours = ours ? (unsigned)strtoul(ours, NULL, 10) : 1;
	limited = !getenv("AQ_TEST_UNLIMITED");
	provider = dlopen(getenv("AQ_TEST_NVML"), RTLD_NOW | RTLD_LOCAL);
	if (!provider || cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx)) {
		(void)printf("Bail out! no provider, or no card\n");
		return 1;
	}
	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
