/* SPDX-License-Identifier: Apache-2.0 */
/* The half of the driver API that is about execution, as a program uses and misuses it. Needs two cards. */
#include "e2e.h"

#include "fault.ptx.h"
#include "memory.ptx.h"
#include "work.ptx.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#define GARBAGE(type) ((type)(uintptr_t)0x1234567890a0ULL)

#define N(a) ((int)(sizeof(a) / sizeof((a)[0])))

static CUcontext ctx; /* current in every test that does not say otherwise */
static CUmodule memory, work;

static CUfunction function(CUmodule m, const char *name)
{
	CUfunction f = NULL;

	OK(cuModuleGetFunction(&f, m, name));
	return f;
}

static CUdeviceptr ints(int n)
{
	CUdeviceptr p = 0;

	OK(cuMemAlloc_v2(&p, (size_t)n * sizeof(int)));
	OK(cuMemsetD8_v2(p, 0, (size_t)n * sizeof(int)));
	return p;
}

static int read_int(CUdeviceptr p)
{
	int value = -1;

	OK(cuMemcpyDtoH_v2(&value, p, sizeof(value)));
	return value;
}

static CUresult launch_fill(CUfunction f, unsigned n, int value, CUdeviceptr p, CUstream s)
{
	void *params[] = { &n, &value, &p };

	return cuLaunchKernel(f, (n + 127) / 128, 1, 1, 128, 1, 1, 0, s, params, NULL);
}

/* The card is busy for so long. */
static CUresult launch_nap(unsigned long long ns, CUstream s)
{
	CUdeviceptr none = 0;
	void *params[] = { &ns, &none };

	return cuLaunchKernel(function(work, "nap"), 1, 1, 1, 1, 1, 1, 0, s, params, NULL);
}

/* ---- devices ---- */

static void devices(void)
{
	CUdevice dev = -1;
	char name[96];
	char pci[16];
	CUuuid uuid;
	CUuuid other;
	size_t total = 0;
	int count = 0;
	int v = 0;

	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	CHECK_INT(count, 2);
	CHECK_RC(cuDeviceGetCount(NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuDeviceGet(&dev, 1));
	CHECK_INT(dev, 1);
	CHECK_RC(cuDeviceGet(&dev, 2), CUDA_ERROR_INVALID_DEVICE);
	CHECK_RC(cuDeviceGet(&dev, -1), CUDA_ERROR_INVALID_DEVICE);
	CHECK_RC(cuDeviceGet(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuDeviceGetName(name, sizeof(name), 0));
	CHECK(strlen(name) > 10 && strcmp(name + strlen(name) - 10, "(software)") == 0);
	OK(cuDeviceGetName(name, 5, 0));
	CHECK_INT(strlen(name), 4);
	CHECK_RC(cuDeviceGetName(name, 0, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuDeviceGetUuid_v2(&uuid, 0));
	OK(cuDeviceGetUuid(&other, 1));
	CHECK(memcmp(&uuid, &other, sizeof(uuid)) != 0);
	OK(cuDeviceTotalMem_v2(&total, 0));
	CHECK(total >= 64U << 20);
	CHECK_RC(cuDeviceTotalMem_v2(&total, 7), CUDA_ERROR_INVALID_DEVICE);
	for (int a = 1; a < CU_DEVICE_ATTRIBUTE_MAX; a++)
		OK(cuDeviceGetAttribute(&v, (CUdevice_attribute)a, 0));
	CHECK_RC(cuDeviceGetAttribute(&v, (CUdevice_attribute)0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
	CHECK_INT(v, 32);
	OK(cuDeviceGetPCIBusId(pci, sizeof(pci), 1));
	dev = -1;
	OK(cuDeviceGetByPCIBusId(&dev, pci));
	CHECK_INT(dev, 1);
	CHECK_RC(cuDeviceGetPCIBusId(pci, 12, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuDeviceGetByPCIBusId(&dev, "ffff:ff:1f.0"), CUDA_ERROR_INVALID_DEVICE);
	CHECK_RC(cuDeviceGetByPCIBusId(&dev, "nonsense"), CUDA_ERROR_INVALID_VALUE);
}

static void device_details(void)
{
	CUatomicOperation op = CU_ATOMIC_OPERATION_INTEGER_ADD;
	unsigned mask = 0;
	CUdevprop prop;
	size_t width = 0;
	int major = 0;
	int minor = 0;
	int v = -1;
	int w = -1;

	OK(cuDeviceComputeCapability(&major, &minor, 0));
	CHECK_INT(major, 8);
	OK(cuDeviceGetProperties(&prop, 0));
	OK(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0));
	CHECK_INT(prop.maxThreadsPerBlock, v);
	CHECK_INT(prop.SIMDWidth, 32);
	OK(cuDeviceCanAccessPeer(&v, 0, 1));
	OK(cuDeviceGetP2PAttribute(&w, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
	CHECK_INT(v, w);
	OK(cuDeviceCanAccessPeer(&v, 1, 1));
	CHECK_INT(v, 0);
	CHECK_RC(cuDeviceGetP2PAttribute(&v, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1),
		 CUDA_ERROR_INVALID_DEVICE);
	CHECK_RC(cuDeviceGetP2PAttribute(&v, (CUdevice_P2PAttribute)99, 0, 1),
		 CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuDeviceCanAccessPeer(&v, 0, 2), CUDA_ERROR_INVALID_DEVICE);
	OK(cuDeviceGetExecAffinitySupport(&v, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
	CHECK_INT(v, 0);
	OK(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 4, 0));
	CHECK_RC(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 3, 0),
		 CUDA_ERROR_INVALID_VALUE);
	OK(cuDeviceGetHostAtomicCapabilities(&mask, &op, 1, 0));
	op = (CUatomicOperation)99;
	CHECK_RC(cuDeviceGetHostAtomicCapabilities(&mask, &op, 1, 0), CUDA_ERROR_INVALID_VALUE);
}

/* ---- contexts ---- */

static void context_stack(void)
{
	CUcontext a = NULL;
	CUcontext b = NULL;
	CUcontext c = NULL;
	CUdevice dev = -1;
	unsigned version = 0;
	unsigned long long id_a = 0;
	unsigned long long id_b = 0;

	CHECK_RC(cuCtxGetDevice(&dev), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuCtxPopCurrent_v2(&c), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxGetCurrent(&c));
	CHECK(c == NULL);
	CHECK_RC(cuCtxCreate_v2(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuCtxCreate_v2(&a, 3, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuCtxCreate_v2(&a, 0x100, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuCtxCreate_v2(&a, 0, 2), CUDA_ERROR_INVALID_DEVICE);
	OK(cuCtxCreate_v2(&a, CU_CTX_SCHED_YIELD, 0));
	OK(cuCtxCreate_v4(&b, NULL, 0, 1));
	OK(cuCtxGetCurrent(&c));
	CHECK(c == b);
	OK(cuCtxGetDevice(&dev));
	CHECK_INT(dev, 1);
	OK(cuCtxGetDevice_v2(&dev, a));
	CHECK_INT(dev, 0);
	OK(cuCtxGetId(NULL, &id_b));
	OK(cuCtxGetId(a, &id_a));
	CHECK(id_a != id_b);
	OK(cuCtxGetApiVersion(a, &version));
	CHECK_INT(version, 3020);
	OK(cuCtxPopCurrent_v2(&c));
	CHECK(c == b);
	OK(cuCtxGetCurrent(&c));
	CHECK(c == a);
	OK(cuCtxSetCurrent(b));
	OK(cuCtxGetCurrent(&c));
	CHECK(c == b);
	OK(cuCtxSetCurrent(NULL));
	OK(cuCtxGetCurrent(&c));
	CHECK(c == NULL);
	OK(cuCtxPushCurrent_v2(a));
	OK(cuCtxPushCurrent_v2(a));
	OK(cuCtxSynchronize_v2(b));
	OK(cuCtxDestroy_v2(b));
	CHECK_RC(cuCtxDestroy_v2(b), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuCtxSetCurrent(b), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuCtxPushCurrent_v2(GARBAGE(CUcontext)), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuCtxDestroy_v2(NULL), CUDA_ERROR_INVALID_VALUE);
	/* Destroying the current one pops it once; it is below still, and gone. */
	OK(cuCtxDestroy_v2(a));
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_RC(cuCtxGetDevice(&dev), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuCtxPopCurrent_v2(NULL));
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}

static void context_versions(void)
{
	CUexecAffinityParam affinity = { .type = CU_EXEC_AFFINITY_TYPE_SM_COUNT };
	CUctxCreateParams params = { .execAffinityParams = &affinity, .numExecAffinityParams = 1 };
	CUctxCigParam cig = { 0 };
	CUcontext c = NULL;
	unsigned version = 0;

	OK(cuCtxCreate(&c, 0, 0));
	OK(cuCtxGetApiVersion(c, &version));
	CHECK_INT(version, 3010);
	OK(cuCtxAttach(&c, 0));
	OK(cuCtxDetach(c));
	OK(cuCtxSynchronize());
	OK(cuCtxDetach(c));
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuCtxCreate_v3(&c, &affinity, 1, 0, 0), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
	OK(cuCtxCreate_v3(&c, NULL, 0, 0, 0));
	OK(cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
	CHECK(affinity.param.smCount.val > 0);
	OK(cuCtxDestroy(c));
	CHECK_RC(cuCtxCreate_v4(&c, &params, 0, 0), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
	params.cigParams = &cig;
	CHECK_RC(cuCtxCreate_v4(&c, &params, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

static void primary_contexts(void)
{
	CUcontext a = NULL;
	CUcontext b = NULL;
	CUdeviceptr p = 0;
	unsigned flags = 99;
	int active = 99;

	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK_INT(active, 0);
	CHECK_RC(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuDevicePrimaryCtxRetain(&a, 9), CUDA_ERROR_INVALID_DEVICE);
	OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
	OK(cuDevicePrimaryCtxRetain(&a, 0));
	OK(cuDevicePrimaryCtxRetain(&b, 0));
	CHECK(a == b);
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK_INT(active, 1);
	CHECK_INT(flags, CU_CTX_SCHED_BLOCKING_SYNC);
	CHECK_RC(cuDevicePrimaryCtxSetFlags(0, 0), CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
	CHECK_RC(cuCtxDestroy_v2(a), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxSetCurrent(a));
	OK(cuMemAlloc_v2(&p, 64));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuMemsetD8_v2(p, 0, 64));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	CHECK_RC(cuMemAlloc_v2(&p, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_RC(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	/* The same handle lives again. */
	OK(cuDevicePrimaryCtxRetain(&b, 0));
	CHECK(a == b);
	OK(cuMemAlloc_v2(&p, 64));
	OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_RC(cuMemAlloc_v2(&p, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxSetFlags_v2(0, 0));
	OK(cuCtxSetCurrent(NULL));
}

static void limits_and_preferences(void)
{
	CUfunc_cache cache;
	CUsharedconfig config;
	size_t value = 0;
	unsigned flags = 0;
	int least = 9;
	int greatest = 9;

	for (int l = 0; l < 7; l++)
		OK(cuCtxGetLimit(&value, (CUlimit)l));
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4000));
	OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	CHECK(value >= 4000);
	OK(cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 1000));
	OK(cuCtxGetLimit(&value, CU_LIMIT_MAX_L2_FETCH_GRANULARITY));
	CHECK_INT(value, 128);
	CHECK_RC(cuCtxSetLimit((CUlimit)77, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuCtxGetLimit(&value, CU_LIMIT_SHMEM_SIZE), CUDA_ERROR_UNSUPPORTED_LIMIT);
	CHECK_RC(cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE), CUDA_ERROR_INVALID_VALUE);
	OK(cuCtxGetFlags(&flags));
	OK(cuCtxSetFlags(CU_CTX_SCHED_SPIN));
	OK(cuCtxGetFlags(&flags));
	CHECK_INT(flags, CU_CTX_SCHED_SPIN);
	CHECK_RC(cuCtxSetFlags(3), CUDA_ERROR_INVALID_VALUE);
	OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
	OK(cuCtxGetCacheConfig(&cache));
	CHECK_INT(cache, CU_FUNC_CACHE_PREFER_L1);
	CHECK_RC(cuCtxSetCacheConfig((CUfunc_cache)9), CUDA_ERROR_INVALID_VALUE);
	OK(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
	OK(cuCtxGetSharedMemConfig(&config));
	OK(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(greatest <= least);
	OK(cuCtxGetStreamPriorityRange(NULL, NULL));
	OK(cuCtxResetPersistingL2Cache());
	OK(cuProfilerStart());
	OK(cuProfilerStop());
}

static void *other_thread(void *arg)
{
	CUcontext c = NULL;
	CUdeviceptr p = 0;

	(void)arg;
	OK(cuCtxGetCurrent(&c));
	CHECK(c == NULL);
	CHECK_RC(cuMemAlloc_v2(&p, 16), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxSetCurrent(ctx));
	p = ints(16);
	OK(launch_fill(function(memory, "fill"), 16, 5, p, CU_STREAM_PER_THREAD));
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	CHECK_INT(read_int(p + 60), 20);
	OK(cuMemFree_v2(p));
	return NULL;
}

static void threads_have_stacks_of_their_own(void)
{
	pthread_t t;

	for (int i = 0; i < 3; i++) {
		CHECK_INT(pthread_create(&t, NULL, other_thread, NULL), 0);
		(void)pthread_join(t, NULL);
	}
}

/* ---- streams and events ---- */

static void streams(void)
{
	unsigned long long id_a = 0;
	unsigned long long id_b = 0;
	CUstream a = NULL;
	CUstream b = NULL;
	CUcontext c = NULL;
	CUdevice dev = -1;
	unsigned flags = 99;
	int priority = 99;

	CHECK_RC(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuStreamCreate(&a, 2), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreateWithPriority(&b, CU_STREAM_DEFAULT, -1000));
	OK(cuStreamGetFlags(a, &flags));
	CHECK_INT(flags, CU_STREAM_NON_BLOCKING);
	OK(cuStreamGetPriority(b, &priority));
	CHECK_INT(priority, -5);
	OK(cuStreamGetCtx(a, &c));
	CHECK(c == ctx);
	OK(cuStreamGetDevice(a, &dev));
	CHECK_INT(dev, 0);
	OK(cuStreamGetId(a, &id_a));
	OK(cuStreamGetId(b, &id_b));
	CHECK(id_a != id_b);
	OK(cuStreamGetId(NULL, &id_a));
	OK(cuStreamGetId(CU_STREAM_LEGACY, &id_b));
	CHECK_INT(id_a, id_b);
	OK(cuStreamGetId(CU_STREAM_PER_THREAD, &id_b));
	CHECK(id_a != id_b);
	OK(cuStreamGetId_ptsz(NULL, &id_a));
	CHECK_INT(id_a, id_b);
	OK(cuStreamQuery(a));
	OK(cuStreamSynchronize(NULL));
	OK(launch_nap(20000000, a));
	CHECK_RC(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
	OK(cuStreamQuery(b));
	OK(cuStreamSynchronize(a));
	OK(cuStreamQuery(a));
	OK(cuStreamDestroy_v2(a));
	CHECK_RC(cuStreamDestroy_v2(a), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuStreamSynchronize(a), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuStreamDestroy_v2(NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuStreamDestroy_v2(CU_STREAM_LEGACY), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuStreamQuery(GARBAGE(CUstream)), CUDA_ERROR_INVALID_HANDLE);
	OK(cuStreamDestroy(b));
}

static void stream_attributes(void)
{
	CUstreamAttrValue value = { .priority = -3 };
	CUstream a = NULL;
	CUstream b = NULL;
	int priority = 0;

	OK(cuStreamCreate(&a, 0));
	OK(cuStreamCreate(&b, 0));
	OK(cuStreamSetAttribute(a, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	OK(cuStreamGetPriority(a, &priority));
	CHECK_INT(priority, -3);
	OK(cuStreamCopyAttributes(b, a));
	memset(&value, 0, sizeof(value));
	OK(cuStreamGetAttribute(b, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	CHECK_INT(value.priority, -3);
	OK(cuStreamGetAttribute(b, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
	CHECK_INT(value.syncPolicy, CU_SYNC_POLICY_AUTO);
	CHECK_RC(cuStreamSetAttribute(a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value),
		 CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuStreamGetAttribute(a, CU_LAUNCH_ATTRIBUTE_PRIORITY, NULL),
		 CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamDestroy_v2(a));
	OK(cuStreamDestroy_v2(b));
}

static void nothing_captures(void)
{
	CUstreamCaptureStatus status = (CUstreamCaptureStatus)9;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	cuuint64_t id = 0;

	OK(cuStreamIsCapturing(NULL, &status));
	CHECK_INT(status, CU_STREAM_CAPTURE_STATUS_NONE);
	status = (CUstreamCaptureStatus)9;
	OK(cuStreamGetCaptureInfo_v3(NULL, &status, &id, NULL, NULL, NULL, NULL));
	CHECK_INT(status, CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK_INT(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK_INT(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK_RC(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
		 CUDA_ERROR_NOT_SUPPORTED);
}

static void events(void)
{
	CUevent a = NULL;
	CUevent b = NULL;
	CUevent untimed = NULL;
	CUstream s = NULL;
	float ms = -1;

	CHECK_RC(cuEventCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuEventCreate(&a, 8), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuEventCreate(&a, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
	OK(cuEventCreate(&a, 0));
	OK(cuEventCreate(&b, CU_EVENT_BLOCKING_SYNC));
	OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuEventQuery(a));
	OK(cuEventSynchronize(a));
	CHECK_RC(cuEventElapsedTime_v2(&ms, a, b), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventRecord(a, s));
	OK(launch_nap(30000000, s));
	OK(cuEventRecordWithFlags(b, s, CU_EVENT_RECORD_DEFAULT));
	CHECK_RC(cuEventRecordWithFlags(b, s, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuEventQuery(b), CUDA_ERROR_NOT_READY);
	CHECK_RC(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
	OK(cuEventSynchronize(b));
	OK(cuEventElapsedTime(&ms, a, b));
	CHECK(ms >= 29.9F && ms < 5000.0F);
	OK(cuEventRecord(untimed, s));
	OK(cuEventSynchronize(untimed));
	CHECK_RC(cuEventElapsedTime_v2(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuEventElapsedTime_v2(NULL, a, b), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuEventRecord(NULL, s), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuEventRecord(a, GARBAGE(CUstream)), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventDestroy_v2(a));
	CHECK_RC(cuEventDestroy_v2(a), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuEventQuery(a), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventDestroy_v2(b));
	OK(cuEventDestroy(untimed));
	OK(cuStreamDestroy_v2(s));
}

/* Work of `late` comes behind work of `first`, and of nobody else's. */
static void one_stream_waits_for_another(void)
{
	CUfunction fill = function(memory, "fill");
	CUfunction add = function(memory, "add");
	CUdeviceptr p = ints(128);
	unsigned n = 128;
	int value = 1;
	void *params[] = { &n, &value, &p };
	CUstream first = NULL;
	CUstream late = NULL;
	CUevent e = NULL;

	OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&late, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamWaitEvent(late, e, 0)); /* never recorded: nothing to wait for */
	OK(launch_nap(20000000, first));
	OK(launch_fill(fill, 128, 100, p, first));
	OK(cuEventRecord(e, first));
	OK(cuStreamWaitEvent(late, e, 0));
	OK(cuLaunchKernel(add, 1, 1, 1, 128, 1, 1, 0, late, params, NULL));
	CHECK_RC(cuStreamWaitEvent(late, e, 7), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuStreamWaitEvent(late, NULL, 0), CUDA_ERROR_INVALID_HANDLE);
	OK(cuStreamSynchronize(late));
	CHECK_INT(read_int(p), 101);
	OK(cuEventDestroy_v2(e));
	OK(cuStreamDestroy_v2(first));
	OK(cuStreamDestroy_v2(late));
	OK(cuMemFree_v2(p));
}

static void a_context_can_be_recorded_and_made_to_wait(void)
{
	CUdeviceptr p = ints(16);
	CUstream a = NULL;
	CUstream b = NULL;
	CUstream c = NULL;
	CUevent e = NULL;

	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, 0));
	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(launch_nap(20000000, a));
	OK(launch_nap(10000000, b));
	OK(cuCtxRecordEvent(ctx, e));
	CHECK_RC(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	OK(cuEventSynchronize(e));
	OK(cuStreamQuery(a));
	OK(cuStreamQuery(b));
	OK(launch_nap(20000000, a));
	OK(launch_fill(function(memory, "fill"), 16, 7, p, a));
	OK(cuEventRecord(e, a));
	OK(cuCtxWaitEvent(ctx, e));
	OK(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING)); /* made later, waits too */
	OK(launch_nap(1000, c));
	OK(cuStreamSynchronize(c));
	OK(cuStreamQuery(a));
	CHECK_INT(read_int(p), 7);
	CHECK_RC(cuCtxRecordEvent(GARBAGE(CUcontext), e), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuCtxWaitEvent(ctx, NULL), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventDestroy_v2(e));
	OK(cuStreamDestroy_v2(a));
	OK(cuStreamDestroy_v2(b));
	OK(cuStreamDestroy_v2(c));
	OK(cuMemFree_v2(p));
}

/* ---- modules ---- */

static void modules(void)
{
	CUfunction functions[64];
	CUmodule m = NULL;
	CUmodule of = NULL;
	CUfunction f = NULL;
	CUdeviceptr p = 0;
	const char *name = NULL;
	size_t size = 0;
	size_t offset = 0;
	unsigned count = 0;
	CUmoduleLoadingMode mode;

	OK(cuModuleLoadData(&m, memory_ptx));
	OK(cuModuleGetFunctionCount(&count, m));
	CHECK(count > 5 && count < 64);
	OK(cuModuleEnumerateFunctions(functions, 64, m));
	OK(cuFuncGetName(&name, functions[0]));
	CHECK(strcmp(name, "fill") == 0);
	OK(cuModuleGetFunction(&f, m, "fill"));
	CHECK(f == functions[0]);
	OK(cuFuncGetModule(&of, f));
	CHECK(of == m);
	OK(cuFuncGetParamInfo(f, 2, &offset, &size));
	CHECK_INT(offset, 8);
	CHECK_INT(size, 8);
	CHECK_RC(cuFuncGetParamInfo(f, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuModuleGetFunction(&f, m, "no_such"), CUDA_ERROR_NOT_FOUND);
	CHECK_RC(cuModuleGetFunction(&f, m, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuModuleGetFunction(&f, NULL, "fill"), CUDA_ERROR_INVALID_HANDLE);
	OK(cuModuleGetGlobal_v2(&p, &size, m, "squares"));
	CHECK_INT(size, 8 * sizeof(int));
	CHECK_INT(read_int(p + 12), 9);
	OK(cuModuleGetGlobal_v2(NULL, &size, m, "counter"));
	OK(cuModuleGetGlobal_v2(&p, NULL, m, "factors"));
	CHECK_RC(cuModuleGetGlobal_v2(&p, &size, m, "fill"), CUDA_ERROR_NOT_FOUND);
	OK(cuModuleGetLoadingMode(&mode));
	f = functions[0];
	OK(cuModuleUnload(m));
	CHECK_RC(cuModuleUnload(m), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuFuncGetName(&name, f), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuModuleLoadData(NULL, memory_ptx), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuModuleLoadData(&m, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuModuleLoadData(&m, "what is this"), CUDA_ERROR_INVALID_IMAGE);
	CHECK_RC(cuModuleLoadData(&m, "\177ELF"), CUDA_ERROR_NO_BINARY_FOR_GPU);
	CHECK_RC(cuModuleLoad(&m, "/no/such/file"), CUDA_ERROR_FILE_NOT_FOUND);
	CHECK_RC(cuModuleLoad(&m, "/"), CUDA_ERROR_FILE_NOT_FOUND);
}

static void bad_ptx_is_explained(void)
{
	static const char bad[] =
		".version 7.0\n.target sm_70\n.address_size 64\n"
		".visible .entry k()\n{\n\t.reg .u32 %r;\n\tfrobnicate.u32 %r;\n\tret;\n}\n";
	char log[400] = "";
	char info[400] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_WALL_TIME,	    CU_JIT_LOG_VERBOSE };
	void *values[] = { log,	 (void *)sizeof(log), info, (void *)sizeof(info),
			   NULL, (void *)(uintptr_t)1 };
	CUmodule m = NULL;

	CHECK_RC(cuModuleLoadDataEx(&m, bad, N(options), options, values), CUDA_ERROR_INVALID_PTX);
	CHECK(strstr(log, "frobnicate") != NULL);
	CHECK(strstr(log, "7") != NULL);
	CHECK_INT((uintptr_t)values[1], strlen(log));
	if (e2e_failures)
		(void)printf("# log: %s\n", log);
	values[1] = (void *)sizeof(log);
	values[3] = (void *)sizeof(info);
	OK(cuModuleLoadDataEx(&m, memory_ptx, N(options), options, values));
	CHECK(strstr(info, "fill") != NULL);
	CHECK_INT((uintptr_t)values[3], strlen(info));
	CHECK_INT((uintptr_t)values[1], 0);
	OK(cuModuleUnload(m));
	CHECK_RC(cuModuleLoadData(&m, ".version 20.0\n.target sm_70\n.address_size 64\n"),
		 CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
	/* The session goes on. */
	OK(cuCtxSynchronize());
}

static size_t make_fat(uint8_t *fat, const char *ptx, uint32_t arch)
{
	uint64_t size = (strlen(ptx) + 8) & ~7ULL;
	uint64_t all = size + 64;
	uint32_t magic = 0xba55ed50U;
	uint16_t words[2] = { 1, 16 };
	uint16_t kind = 1;
	uint32_t header = 64;

	memset(fat, 0, 16 + all);
	memcpy(fat, &magic, 4);
	memcpy(fat + 4, words, 4);
	memcpy(fat + 8, &all, 8);
	memcpy(fat + 16, &kind, 2);
	memcpy(fat + 20, &header, 4);
	memcpy(fat + 24, &size, 8);
	memcpy(fat + 44, &arch, 4);
	memcpy(fat + 80, ptx, strlen(ptx));
	return 16 + all;
}

static void fat_binaries(void)
{
	static uint8_t fat[sizeof(memory_ptx) + 128];
	struct {
		uint32_t magic, version;
		const void *data, *more;
	} wrapper = { 0x466243b1U, 1, fat, NULL };
	char path[] = "/tmp/aliquot-e2e-XXXXXX";
	size_t len = make_fat(fat, memory_ptx, 70);
	CUmodule m = NULL;
	int fd;

	OK(cuModuleLoadFatBinary(&m, fat));
	OK(cuModuleUnload(m));
	OK(cuModuleLoadData(&m, &wrapper));
	OK(cuModuleUnload(m));
	fd = mkstemp(path);
	CHECK(fd >= 0 && write(fd, fat, len) == (ssize_t)len);
	OK(cuModuleLoad(&m, path));
	OK(cuModuleUnload(m));
	CHECK(ftruncate(fd, (off_t)len - 64) == 0);
	CHECK_RC(cuModuleLoad(&m, path), CUDA_ERROR_INVALID_IMAGE);
	(void)close(fd);
	(void)unlink(path);
	(void)make_fat(fat, memory_ptx, 90);
	CHECK_RC(cuModuleLoadData(&m, fat), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

static void linked_in_two_steps(void)
{
	char log[200] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)sizeof(log) };
	CUlinkState link = NULL;
	CUmodule m = NULL;
	void *image = NULL;
	size_t size = 0;

	OK(cuLinkCreate_v2(0, NULL, NULL, &link));
	CHECK_RC(cuLinkComplete(link, &image, &size), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, NULL, 4, NULL, 0, NULL, NULL),
		 CUDA_ERROR_INVALID_VALUE);
	OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, (void *)memory_ptx, strlen(memory_ptx), "a.ptx",
			    0, NULL, NULL));
	OK(cuLinkComplete(link, &image, &size));
	CHECK(size > 0);
	OK(cuModuleLoadData(&m, image));
	OK(cuLinkDestroy(link));
	(void)function(m, "fill");
	OK(cuModuleUnload(m));
	CHECK_RC(cuLinkDestroy(link), CUDA_ERROR_INVALID_HANDLE);
	OK(cuLinkCreate_v2(N(options), options, values, &link));
	CHECK_RC(cuLinkAddData_v2(link, CU_JIT_INPUT_CUBIN, (void *)"\177ELF", 4, "b.cubin", 0,
				  NULL, NULL),
		 CUDA_ERROR_NO_BINARY_FOR_GPU);
	CHECK(strstr(log, "b.cubin") != NULL);
	CHECK_RC(cuLinkComplete(link, &image, &size), CUDA_ERROR_INVALID_VALUE);
	OK(cuLinkDestroy(link));
	CHECK_RC(cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, "/no/such", 0, NULL, NULL),
		 CUDA_ERROR_INVALID_HANDLE);
}

static void function_attributes(void)
{
	CUfunction f = function(memory, "reverse");
	CUfunctionLoadingState state;
	int optin = 0;
	int v = -1;

	for (int a = 0; a < CU_FUNC_ATTRIBUTE_MAX; a++)
		OK(cuFuncGetAttribute(&v, (CUfunction_attribute)a, f));
	CHECK_RC(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX, f), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuFuncGetAttribute(NULL, CU_FUNC_ATTRIBUTE_NUM_REGS, f), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, GARBAGE(CUfunction)),
		 CUDA_ERROR_INVALID_HANDLE);
	OK(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
	CHECK_INT(v, 1024);
	OK(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
	CHECK(v > 0 && v <= 255);
	OK(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_PTX_VERSION, f));
	CHECK_INT(v, 70);
	OK(cuDeviceGetAttribute(&optin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
	OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, optin));
	CHECK_RC(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, optin + 1),
		 CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1),
		 CUDA_ERROR_INVALID_VALUE);
	OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
	OK(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, f));
	CHECK_INT(v, 50);
	CHECK_RC(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NUM_REGS, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuFuncSetCacheConfig(f, CU_FUNC_CACHE_PREFER_SHARED));
	OK(cuFuncSetSharedMemConfig(f, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
	OK(cuFuncIsLoaded(&state, f));
	CHECK_INT(state, CU_FUNCTION_LOADING_STATE_LOADED);
	OK(cuFuncLoad(f));
}

static size_t four_a_thread(int threads)
{
	return (size_t)threads * 4;
}

static void occupancy(void)
{
	CUfunction f = function(memory, "reverse");
	size_t room = 0;
	int blocks = 0;
	int fewer = 0;
	int grid = 0;
	int block = 0;

	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 128, 0));
	CHECK(blocks >= 1 && blocks <= 32);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&fewer, f, 128, 40000, 0));
	CHECK(fewer >= 1 && fewer <= blocks);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1025, 0));
	CHECK_INT(blocks, 0);
	CHECK_RC(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 0, 0),
		 CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, f, 32, 0),
		 CUDA_ERROR_INVALID_VALUE);
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, f, four_a_thread, 0, 0));
	CHECK(block >= 32 && block <= 1024 && grid >= 1);
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, f, NULL, 0, 100));
	CHECK(block >= 1 && block <= 100);
	OK(cuOccupancyAvailableDynamicSMemPerBlock(&room, f, 2, 128));
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 128, room));
	CHECK(blocks >= 2);
	CHECK_RC(cuOccupancyAvailableDynamicSMemPerBlock(&room, f, 1000, 128),
		 CUDA_ERROR_INVALID_VALUE);
}

/* ---- libraries ---- */

static void libraries(void)
{
	CUkernel kernels[64];
	CUkernel fill = NULL;
	CUlibrary lib = NULL;
	CUlibrary of = NULL;
	CUfunction f = NULL;
	CUmodule m = NULL;
	CUdeviceptr p = 0;
	CUdeviceptr in_other = 0;
	CUcontext other = NULL;
	const char *name = NULL;
	size_t size = 0;
	unsigned count = 0;
	int v = 0;

	/* Without a context there are names. */
	OK(cuCtxPopCurrent_v2(NULL));
	OK(cuLibraryLoadData(&lib, memory_ptx, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernelCount(&count, lib));
	CHECK(count > 5 && count < 64);
	OK(cuLibraryEnumerateKernels(kernels, 64, lib));
	OK(cuLibraryGetKernel(&fill, lib, "fill"));
	CHECK(fill == kernels[0]);
	OK(cuKernelGetName(&name, fill));
	CHECK(strcmp(name, "fill") == 0);
	OK(cuKernelGetLibrary(&of, fill));
	CHECK(of == lib);
	CHECK_RC(cuLibraryGetKernel(&fill, lib, "nope"), CUDA_ERROR_NOT_FOUND);
	CHECK_RC(cuLibraryGetModule(&m, lib), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1000, fill, 0));
	OK(cuCtxPushCurrent_v2(ctx));

	/* Each context has its own. */
	OK(cuKernelGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, fill, 0));
	CHECK_INT(v, 1000);
	OK(cuLibraryGetModule(&m, lib));
	CHECK_RC(cuModuleUnload(m), CUDA_ERROR_NOT_PERMITTED);
	OK(cuKernelGetFunction(&f, fill));
	OK(cuFuncGetName(&name, f));
	CHECK(strcmp(name, "fill") == 0);
	OK(cuKernelGetParamInfo(fill, 0, &size, NULL));
	OK(cuLibraryGetGlobal(&p, &size, lib, "counter"));
	CHECK_INT(read_int(p), 7);
	CHECK_RC(cuLibraryGetManaged(&p, &size, lib, "counter"), CUDA_ERROR_NOT_FOUND);
	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuLibraryGetGlobal(&in_other, &size, lib, "counter"));
	CHECK(in_other != p);
	OK(cuCtxDestroy_v2(other));

	p = ints(32);
	OK(launch_fill((CUfunction)fill, 32, 3, p, NULL));
	OK(launch_fill(f, 32, 4, p, NULL));
	CHECK_INT(read_int(p), 4);
	OK(cuMemFree_v2(p));
	OK(cuKernelSetCacheConfig(fill, CU_FUNC_CACHE_PREFER_NONE, 0));
	OK(cuLibraryUnload(lib));
	CHECK_RC(cuLibraryUnload(lib), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuKernelGetName(&name, fill), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(launch_fill((CUfunction)fill, 1, 1, 0, NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuLibraryLoadData(&lib, "rubbish", NULL, NULL, 0, NULL, NULL, 0),
		 CUDA_ERROR_INVALID_IMAGE);
	CHECK_RC(cuLibraryLoadFromFile(&lib, "/no/such", NULL, NULL, 0, NULL, NULL, 0),
		 CUDA_ERROR_FILE_NOT_FOUND);
}

/* ---- launches ---- */

static void launches(void)
{
	CUfunction fill = function(memory, "fill");
	unsigned n = 64;
	int value = 9;
	CUdeviceptr p = ints(64);
	void *params[] = { &n, &value, &p };
	struct {
		unsigned n;
		int value;
		CUdeviceptr p;
	} packed = { n, 20, p };
	size_t size = sizeof(packed);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &size, CU_LAUNCH_PARAM_END };
	CUlaunchConfig config = { 1, 1, 1, 64, 1, 1, 0, NULL, NULL, 0 };
	CUlaunchAttribute attrs[3] = { { .id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -2 },
				       { .id = CU_LAUNCH_ATTRIBUTE_IGNORE },
				       { .id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT } };
	struct {
		int a, b, c, d;
	} quad = { 1, 2, 3, 4 };
	void *by_value[] = { &quad, &p };

	OK(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	CHECK_INT(read_int(p + 4), 10);
	OK(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra));
	CHECK_INT(read_int(p + 4), 21);
	OK(cuLaunchKernel_ptsz(fill, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	OK(cuStreamSynchronize_ptsz(NULL));
	CHECK_INT(read_int(p + 4), 10);
	OK(cuLaunchKernelEx(&config, fill, params, NULL));
	OK(cuEventCreate(&attrs[2].value.launchCompletionEvent.event, CU_EVENT_DISABLE_TIMING));
	config.attrs = attrs;
	config.numAttrs = 3;
	OK(cuLaunchKernelEx(&config, fill, NULL, extra));
	OK(cuEventSynchronize(attrs[2].value.launchCompletionEvent.event));
	CHECK_INT(read_int(p + 4), 21);
	OK(cuEventDestroy_v2(attrs[2].value.launchCompletionEvent.event));
	OK(cuLaunchCooperativeKernel(fill, 1, 1, 1, 64, 1, 1, 0, NULL, params));
	CHECK_INT(read_int(p + 8), 11);
	OK(cuLaunchKernel(function(memory, "store_quad"), 1, 1, 1, 1, 1, 1, 0, NULL, by_value,
			  NULL));
	CHECK_INT(read_int(p + 12), 4);
	OK(cuLaunchKernel(function(work, "nothing"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	OK(cuCtxSynchronize());
	OK(cuMemFree_v2(p));
}

static void launches_as_before_cuda_4(void)
{
	CUfunction fill = function(memory, "fill");
	CUdeviceptr p = ints(64);

	OK(cuFuncSetBlockShape(fill, 64, 1, 1));
	OK(cuFuncSetSharedSize(fill, 0));
	OK(cuParamSetSize(fill, 16));
	OK(cuParamSeti(fill, 0, 64));
	OK(cuParamSeti(fill, 4, 70));
	OK(cuParamSetv(fill, 8, &p, sizeof(p)));
	OK(cuLaunch(fill));
	CHECK_INT(read_int(p + 4), 71);
	OK(cuParamSeti(fill, 4, 80));
	OK(cuLaunchGrid(fill, 2, 1));
	CHECK_INT(read_int(p + 4), 81);
	CHECK_RC(cuFuncSetBlockShape(fill, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuParamSetv(fill, 4090, &p, 8), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuParamSetv(fill, -1, &p, 8), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuParamSetSize(fill, 5000), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuLaunchGrid(fill, 0, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuParamSetSize(fill, 8));
	CHECK_RC(cuLaunch(fill), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(p));
}

static void wrong_launches_are_refused_at_once(void)
{
	CUfunction fill = function(memory, "fill");
	CUdeviceptr p = ints(4);
	unsigned n = 4;
	int value = 1;
	void *params[] = { &n, &value, &p };
	void *holes[] = { &n, NULL, &p };
	size_t size = 15;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &size, CU_LAUNCH_PARAM_END };
	void *endless[] = { CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			    CU_LAUNCH_PARAM_BUFFER_SIZE, &size };
	void *unknown[] = { (void *)7, params, CU_LAUNCH_PARAM_END };
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
				   .value.clusterDim = { 2, 1, 1 } };
	CUlaunchConfig config = { 1, 1, 1, 1, 1, 1, 0, NULL, &attr, 1 };
	const CUresult bad = CUDA_ERROR_INVALID_VALUE;

	CHECK_RC(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
		 CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuLaunchKernel(GARBAGE(CUfunction), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
		 CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, GARBAGE(CUstream), params, NULL),
		 CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuLaunchKernel(fill, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 65536, 1, 1, 1, 1, 0, NULL, params, NULL), bad);
	CHECK_RC(cuLaunchKernel(fill, 0xffffffffU, 1, 1, 1, 1, 1, 0, NULL, params, NULL), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1, 0, 1, 0, NULL, params, NULL), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1025, 1, 1, 0, NULL, params, NULL), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 512, 2, 2, 0, NULL, params, NULL), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 65, 0, NULL, params, NULL), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 1U << 20, NULL, params, NULL), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0xffffffffU, NULL, params, NULL), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, holes, NULL), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, endless), bad);
	CHECK_RC(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, unknown), bad);
	CHECK_RC(cuLaunchKernelEx(NULL, fill, params, NULL), bad);
	CHECK_RC(cuLaunchKernelEx(&config, fill, params, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	attr.id = (CUlaunchAttributeID)99;
	CHECK_RC(cuLaunchKernelEx(&config, fill, params, NULL), bad);
	config.attrs = NULL;
	CHECK_RC(cuLaunchKernelEx(&config, fill, params, NULL), bad);
	CHECK_RC(cuLaunchCooperativeKernel(fill, 1000000, 1, 1, 1, 1, 1, 0, NULL, params),
		 CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	CHECK_INT(read_int(p), 0);
	OK(cuMemFree_v2(p));
}

/* ---- host functions ---- */

static _Atomic int called;
static CUresult inside;
static CUresult told;

static void host_function(void *arg)
{
	CUcontext c;

	inside = cuCtxGetCurrent(&c);
	atomic_fetch_add(&called, *(int *)arg);
}

static void stream_callback(CUstream s, CUresult status, void *arg)
{
	(void)s;
	told = status;
	atomic_fetch_add(&called, *(int *)arg);
}

static void host_functions(void)
{
	CUstream s = NULL;
	int one = 1;
	int ten = 10;

	OK(cuStreamCreate(&s, 0));
	atomic_store(&called, 0);
	told = CUDA_ERROR_UNKNOWN;
	OK(launch_nap(10000000, s));
	OK(cuLaunchHostFunc(s, host_function, &one));
	OK(cuStreamAddCallback(s, stream_callback, &ten, 0));
	OK(cuStreamSynchronize(s));
	CHECK_INT(atomic_load(&called), 11);
	CHECK_INT(inside, CUDA_ERROR_NOT_PERMITTED);
	CHECK_INT(told, CUDA_SUCCESS);
	for (int i = 0; i < 100; i++)
		OK(cuLaunchHostFunc(i % 2 ? s : CU_STREAM_PER_THREAD, host_function, &one));
	OK(cuCtxSynchronize());
	CHECK_INT(atomic_load(&called), 111);
	CHECK_RC(cuLaunchHostFunc(s, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuStreamAddCallback(s, NULL, NULL, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuStreamAddCallback(s, stream_callback, &ten, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamDestroy_v2(s));
}

/* ---- errors that stay ---- */

static void faults_are_sticky(void)
{
	CUcontext bad = NULL;
	CUmodule m = NULL;
	CUmodule naps = NULL;
	CUstream s = NULL;
	CUevent e = NULL;
	CUdeviceptr p = 0;
	unsigned long long where = 0x10;
	unsigned long long ns = 20000000;
	int value = 1;
	int ten = 10;
	void *params[] = { &where, &value };
	void *nap_params[] = { &ns, &p };
	CUfunction f = NULL;

	OK(cuCtxCreate_v2(&bad, 0, 0));
	OK(cuModuleLoadData(&m, fault_ptx));
	OK(cuModuleGetFunction(&f, m, "store_at"));
	OK(cuStreamCreate(&s, 0));
	OK(cuEventCreate(&e, 0));
	OK(cuModuleLoadData(&naps, work_ptx));
	atomic_store(&called, 0);
	told = CUDA_SUCCESS;
	OK(cuLaunchKernel(function(naps, "nap"), 1, 1, 1, 1, 1, 1, 0, s, nap_params, NULL));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
	/* A callback is told; a host function is left out. */
	OK(cuStreamAddCallback(s, stream_callback, &ten, 0));
	OK(cuLaunchHostFunc(s, host_function, &value));
	CHECK_RC(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
	for (int i = 0; i < 1000 && atomic_load(&called) == 0; i++)
		(void)usleep(1000);
	CHECK_INT(atomic_load(&called), 10);
	CHECK_INT(told, CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_RC(cuMemAlloc_v2(&p, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_RC(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL),
		 CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_RC(cuEventRecord(e, s), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_RC(cuEventQuery(e), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_RC(cuStreamQuery(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_RC(cuStreamDestroy_v2(s), CUDA_ERROR_ILLEGAL_ADDRESS);
	/* Nobody else's business, and gone with the context. */
	OK(cuCtxPushCurrent_v2(ctx));
	OK(cuCtxSynchronize());
	OK(cuCtxPopCurrent_v2(NULL));
	OK(cuCtxDestroy_v2(bad));
	CHECK_RC(cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuModuleUnload(m), CUDA_ERROR_INVALID_HANDLE);
	OK(cuCtxSynchronize());
}

/* ---- two cards ---- */

static void peers(void)
{
	CUfunction fill = function(memory, "fill");
	CUdeviceptr there = 0;
	CUcontext second = NULL;

	OK(cuCtxCreate_v2(&second, 0, 1));
	there = ints(16);
	OK(cuCtxPopCurrent_v2(NULL));
	CHECK_RC(cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	CHECK_RC(cuCtxEnablePeerAccess(second, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_RC(cuCtxEnablePeerAccess(ctx, 0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuCtxEnablePeerAccess(GARBAGE(CUcontext), 0), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxEnablePeerAccess(second, 0));
	CHECK_RC(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	OK(launch_fill(fill, 16, 30, there, NULL));
	OK(cuCtxSynchronize());
	OK(cuCtxPushCurrent_v2(second));
	CHECK_INT(read_int(there + 4), 31);
	CHECK_RC(launch_fill(fill, 16, 1, there, NULL), CUDA_ERROR_INVALID_HANDLE);
	OK(cuCtxPopCurrent_v2(NULL));
	OK(cuCtxDisablePeerAccess(second));
	OK(cuCtxDestroy_v2(second));
}

/* ---- children ---- */

/* What fn finds wrong in a forked child counts. */
static void in_child(void (*fn)(void))
{
	pid_t pid;
	int status = -1;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		e2e_failures = 0;
		fn();
		(void)fflush(stdout);
		_exit(e2e_failures != 0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
}

static void child_starts_afresh(void)
{
	CUcontext c = NULL;
	CUmodule m = NULL;
	CUdeviceptr p = 0;
	int count = 0;

	CHECK_RC(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RC(cuCtxSetCurrent(ctx), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxCreate_v2(&c, 0, 0));
	OK(cuModuleLoadData(&m, memory_ptx));
	p = ints(16);
	OK(launch_fill(function(m, "fill"), 16, 1, p, NULL));
	CHECK_INT(read_int(p + 4), 2);
	atomic_store(&called, 0);
	OK(cuLaunchHostFunc(NULL, host_function, &count));
	OK(cuCtxSynchronize());
	CHECK_INT(atomic_load(&called), count);
	OK(cuCtxDestroy_v2(c));
}

static void forked_children_start_afresh(void)
{
	CUdeviceptr p = ints(16);

	in_child(child_starts_afresh);
	OK(launch_fill(function(memory, "fill"), 16, 1, p, NULL));
	CHECK_INT(read_int(p + 4), 2);
	OK(cuMemFree_v2(p));
}

/* A parent that is killed is gone, though a child of it that never heard of us lives on. */
static void an_orphan_holds_nothing(void)
{
	size_t before = 0;
	size_t after = 0;
	size_t total = 0;
	pid_t child = -1;
	pid_t orphan = 0;
	CUdeviceptr p;
	CUcontext c;
	int fd[2];

	OK(cuMemGetInfo_v2(&before, &total));
	CHECK_INT(pipe(fd), 0);
	(void)fflush(stdout);
	child = fork();
	if (child == 0) {
		if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&c, 0, 0) != CUDA_SUCCESS ||
		    cuMemAlloc_v2(&p, 1U << 20) != CUDA_SUCCESS)
			_exit(1);
		orphan = fork();
		if (orphan != 0)
			(void)!write(fd[1], &orphan, sizeof(orphan));
		for (;;)
			(void)pause();
	}
	CHECK_INT(read(fd[0], &orphan, sizeof(orphan)), sizeof(orphan));
	OK(cuMemGetInfo_v2(&after, &total));
	CHECK(after < before);
	CHECK_INT(kill(child, SIGKILL), 0);
	CHECK_INT(waitpid(child, NULL, 0), child);
	for (int i = 0; i < 2000 && after != before; i++) {
		(void)usleep(1000);
		OK(cuMemGetInfo_v2(&after, &total));
	}
	CHECK_INT(after, before);
	CHECK_INT(kill(orphan, SIGKILL), 0);
	(void)close(fd[0]);
	(void)close(fd[1]);
}

static int devices_seen(const char *visible, CUresult want)
{
	int n = 0;

	CHECK_INT(setenv("CUDA_VISIBLE_DEVICES", visible, 1), 0);
	CHECK_RC(cuInit(0), want);
	if (want == CUDA_SUCCESS)
		OK(cuDeviceGetCount(&n));
	return n;
}

static CUuuid second_uuid;

static void child_sees_none(void)
{
	CHECK_INT(devices_seen("", CUDA_ERROR_NO_DEVICE), 0);
	CHECK_INT(devices_seen("-1", CUDA_ERROR_NO_DEVICE), 0);
	/* The next init tries again. */
	CHECK_INT(devices_seen("1,0", CUDA_SUCCESS), 2);
}

static void child_sees_the_second(void)
{
	CUuuid uuid;
	char text[64] = "GPU-";

	for (int i = 0; i < 8; i++)
		(void)snprintf(text + 4 + 2 * i, 3, "%02x", (unsigned char)second_uuid.bytes[i]);
	CHECK_INT(devices_seen(text, CUDA_SUCCESS), 1);
	OK(cuDeviceGetUuid_v2(&uuid, 0));
	CHECK(memcmp(&uuid, &second_uuid, sizeof(uuid)) == 0);
}

static void child_sees_them_in_order(void)
{
	CUuuid uuid;

	CHECK_INT(devices_seen("1,0,5,0", CUDA_SUCCESS), 2);
	OK(cuDeviceGetUuid_v2(&uuid, 0));
	CHECK(memcmp(&uuid, &second_uuid, sizeof(uuid)) == 0);
}

static void visible_devices(void)
{
	OK(cuDeviceGetUuid_v2(&second_uuid, 1));
	in_child(child_sees_none);
	in_child(child_sees_the_second);
	in_child(child_sees_them_in_order);
}

static void use_main_context(void)
{
	OK(cuCtxCreate_v2(&ctx, 0, 0));
	OK(cuModuleLoadData(&memory, memory_ptx));
	OK(cuModuleLoadData(&work, work_ptx));
}

static void contexts_leave_nothing_behind(void)
{
	size_t before = 0;
	size_t after = 0;
	size_t total = 0;
	CUcontext c = NULL;
	CUstream s = NULL;
	CUevent e = NULL;
	CUdeviceptr p = 0;

	OK(cuMemGetInfo_v2(&before, &total));
	for (int i = 0; i < 200; i++) {
		OK(cuCtxCreate_v2(&c, 0, 0));
		OK(cuStreamCreate(&s, 0));
		OK(cuEventCreate(&e, 0));
		OK(cuEventRecord(e, s));
		OK(cuMemAlloc_v2(&p, 1U << 20));
		OK(cuCtxDestroy_v2(c));
	}
	OK(cuMemGetInfo_v2(&after, &total));
	CHECK_INT(after, before);
}

int main(void)
{
	static const struct e2e_test tests[] = {
		{ "devices", devices },
		{ "device details", device_details },
		{ "context stack", context_stack },
		{ "context versions", context_versions },
		{ "primary contexts", primary_contexts },
		{ "a context for the rest", use_main_context },
		{ "limits and preferences", limits_and_preferences },
		{ "threads have stacks of their own", threads_have_stacks_of_their_own },
		{ "streams", streams },
		{ "stream attributes", stream_attributes },
		{ "nothing captures", nothing_captures },
		{ "events", events },
		{ "one stream waits for another", one_stream_waits_for_another },
		{ "a context can be recorded and made to wait",
		  a_context_can_be_recorded_and_made_to_wait },
		{ "modules", modules },
		{ "bad PTX is explained", bad_ptx_is_explained },
		{ "fat binaries", fat_binaries },
		{ "linked in two steps", linked_in_two_steps },
		{ "function attributes", function_attributes },
		{ "occupancy", occupancy },
		{ "libraries", libraries },
		{ "launches", launches },
		{ "launches as before CUDA 4", launches_as_before_cuda_4 },
		{ "wrong launches are refused at once", wrong_launches_are_refused_at_once },
		{ "host functions", host_functions },
		{ "faults are sticky", faults_are_sticky },
		{ "peers", peers },
		{ "forked children start afresh", forked_children_start_afresh },
		{ "an orphan holds nothing", an_orphan_holds_nothing },
		{ "visible devices", visible_devices },
		{ "contexts leave nothing behind", contexts_leave_nothing_behind },
	};

	return e2e_run(tests, N(tests));
}
