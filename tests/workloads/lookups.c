/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways in which programs come to the driver: by either name of the library, by cuGetProcAddress alone, from many threads at once, from exit
 * handlers, with a cleared environment, before and after fork, vfork and clone. Not linked with the library; each way is a process of its own, this
 * program again.
 */
#include "e2e/e2e.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * A sanitizer's runtime refuses to be loaded around by RTLD_DEEPBIND. And its leak checker takes for lost what a forked child leaves alone because it is
 * its parent's, and what the loader keeps of a library that came late: the programs that are linked with the library are looked at instead.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#	define SANITIZED 1
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}
#endif

#define MIB	(1024UL * 1024)
#define THREADS 24

static uint64_t limit; /* 0: none */
static char limit_text[32];

/* What one way of looking up has found. */
struct api {
	__typeof__(cuInit) *init;
	__typeof__(cuDeviceGet) *device_get;
	__typeof__(cuDeviceGetCount) *count;
	__typeof__(cuDevicePrimaryCtxRetain) *retain;
	__typeof__(cuCtxSetCurrent) *set_current;
	__typeof__(cuMemGetInfo_v2) *info;
	__typeof__(cuMemAlloc_v2) *alloc;
	__typeof__(cuMemFree_v2) *free;
	__typeof__(cuMemcpyHtoD_v2) *to_card;
	__typeof__(cuMemcpyDtoH_v2) *from_card;
};

typedef void *(*find_fn)(void *how, const char *base, const char *exported);

static bool api_find(struct api *a, find_fn find, void *how)
{
	const struct {
		const char *base, *exported;
		void *at;
	} names[] = {
		{ "cuInit", "cuInit", &a->init },
		{ "cuDeviceGet", "cuDeviceGet", &a->device_get },
		{ "cuDeviceGetCount", "cuDeviceGetCount", &a->count },
		{ "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", &a->retain },
		{ "cuCtxSetCurrent", "cuCtxSetCurrent", &a->set_current },
		{ "cuMemGetInfo", "cuMemGetInfo_v2", &a->info },
		{ "cuMemAlloc", "cuMemAlloc_v2", &a->alloc },
		{ "cuMemFree", "cuMemFree_v2", &a->free },
		{ "cuMemcpyHtoD", "cuMemcpyHtoD_v2", &a->to_card },
		{ "cuMemcpyDtoH", "cuMemcpyDtoH_v2", &a->from_card },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *fn = find(how, names[i].base, names[i].exported);

		CHECK(fn != NULL);
		if (!fn) {
			(void)printf("# %s\n", names[i].exported);
			return false;
		}
		memcpy(names[i].at, &fn, sizeof(fn));
	}
	return true;
}

static void *by_name(void *how, const char *base, const char *exported)
{
	(void)base;
	return dlsym(how, exported);
}

static CUresult open_card(const struct api *a)
{
	CUcontext ctx = NULL;
	CUdevice dev = -1;
	CUresult rc = a->init(0);

	if (rc == CUDA_SUCCESS)
		rc = a->device_get(&dev, 0);
	if (rc == CUDA_SUCCESS)
		rc = a->retain(&ctx, dev);
	return rc == CUDA_SUCCESS ? a->set_current(ctx) : rc;
}

/* Memory works, shows the limit and keeps to it. */
static void use(const struct api *a)
{
	size_t left = 0;
	size_t total = 0;
	CUdeviceptr p = 0;
	CUdeviceptr q = 0x55;
	uint64_t in = 0x1122334455667788;
	uint64_t out = 0;
	int n = 0;

	CHECK_INT(a->count(&n), CUDA_SUCCESS);
	if (limit)
		CHECK_INT(n, 1); /* of the two that there are */
	CHECK_INT(a->info(&left, &total), CUDA_SUCCESS);
	CHECK(left <= total);
	if (limit)
		CHECK_INT(total, limit);
	CHECK_INT(a->alloc(&p, MIB), CUDA_SUCCESS);
	CHECK_INT(a->to_card(p + MIB - 8, &in, 8), CUDA_SUCCESS);
	CHECK_INT(a->from_card(&out, p + MIB - 8, 8), CUDA_SUCCESS);
	CHECK(in == out);
	CHECK_INT(a->alloc(&q, total), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(q == 0x55);
	CHECK_INT(a->free(p), CUDA_SUCCESS);
}

static void open_and_use(const struct api *a)
{
	CHECK_INT(open_card(a), CUDA_SUCCESS);
	if (!e2e_failures)
		use(a);
}

static void *library(const char *name, int flags)
{
	void *lib = dlopen(name, flags);

	if (!lib)
		(void)printf("# %s\n", dlerror());
	CHECK(lib != NULL);
	return lib;
}

static bool api_open(struct api *a)
{
	void *lib = library("libcuda.so.1", RTLD_NOW);

	return lib && api_find(a, by_name, lib);
}

/* ---- names of the library ---- */

static void use_library(const char *name, int flags)
{
	void *lib = library(name, flags);
	struct api a;

	if (lib && api_find(&a, by_name, lib))
		open_and_use(&a);
}

static void way_soname(void)
{
	use_library("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
}

static void way_devel_name(void)
{
	use_library("libcuda.so", RTLD_LAZY | RTLD_LOCAL);
}

#if !defined(SANITIZED)
static void way_deepbind(void)
{
	use_library("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND);
}
#endif

/* One library under both names: two would have two accounts. */
static void way_both_names(void)
{
	void *a = library("libcuda.so", RTLD_NOW);
	void *b = library("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	struct api api;

	CHECK(a && b && dlsym(a, "cuMemAlloc_v2") == dlsym(b, "cuMemAlloc_v2"));
	CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == dlsym(b, "cuMemAlloc_v2"));
	CHECK(a && dlclose(a) == 0);
	if (b && api_find(&api, by_name, b))
		open_and_use(&api);
	/* As far as this program is concerned it is gone; it must not be in earnest. */
	CHECK(b && dlclose(b) == 0);
	b = library("libcuda.so.1", RTLD_NOW);
	if (b && api_find(&api, by_name, b))
		open_and_use(&api);
}

/* ---- cuGetProcAddress ---- */

static void *by_v1(void *how, const char *base, const char *exported)
{
	__typeof__(cuGetProcAddress) *get = NULL;
	void *fn = NULL;

	(void)exported;
	memcpy(&get, how, sizeof(get));
	CHECK_INT(get(base, &fn, 11030, CU_GET_PROC_ADDRESS_DEFAULT), CUDA_SUCCESS);
	return fn;
}

static void *by_v2(void *how, const char *base, const char *exported)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	__typeof__(cuGetProcAddress_v2) *get = NULL;
	void *fn = NULL;

	(void)exported;
	memcpy(&get, how, sizeof(get));
	CHECK_INT(get(base, &fn, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status), CUDA_SUCCESS);
	CHECK_INT(status, CU_GET_PROC_ADDRESS_SUCCESS);
	return fn;
}

static void way_proc_address_v1(void)
{
	void *lib = library("libcuda.so.1", RTLD_NOW);
	void *get = lib ? dlsym(lib, "cuGetProcAddress") : NULL;
	struct api a;

	CHECK(get != NULL);
	if (get && api_find(&a, by_v1, &get))
		open_and_use(&a);
}

/* As the runtime does: the first function gives the second, which gives all. */
static void way_proc_address_v2(void)
{
	void *lib = library("libcuda.so.1", RTLD_NOW);
	void *first = lib ? dlsym(lib, "cuGetProcAddress_v2") : NULL;
	void *get = first ? by_v2(&first, "cuGetProcAddress", NULL) : NULL;
	struct api a;

	CHECK(get != NULL && get == first);
	if (get && api_find(&a, by_v2, &get))
		open_and_use(&a);
}

struct variant {
	const char *base;
	int since;
	const char *plain, *per_thread; /* exported names */
};

static const struct variant variants[] = {
	{ "cuInit", 2000, "cuInit", "cuInit" },
	{ "cuMemAlloc", 3020, "cuMemAlloc_v2", "cuMemAlloc_v2" },
	{ "cuMemFree", 3020, "cuMemFree_v2", "cuMemFree_v2" },
	{ "cuMemGetInfo", 3020, "cuMemGetInfo_v2", "cuMemGetInfo_v2" },
	{ "cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2", "cuDeviceTotalMem_v2" },
	{ "cuMemcpyHtoD", 3020, "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds" },
	{ "cuMemAllocAsync", 11020, "cuMemAllocAsync", "cuMemAllocAsync_ptsz" },
	{ "cuMemAllocFromPoolAsync", 11020, "cuMemAllocFromPoolAsync",
	  "cuMemAllocFromPoolAsync_ptsz" },
	{ "cuMemFreeAsync", 11020, "cuMemFreeAsync", "cuMemFreeAsync_ptsz" },
	{ "cuMemCreate", 10020, "cuMemCreate", "cuMemCreate" },
	{ "cuLaunchKernel", 4000, "cuLaunchKernel", "cuLaunchKernel_ptsz" },
	{ "cuLaunchKernelEx", 11060, "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz" },
	{ "cuGraphLaunch", 10000, "cuGraphLaunch", "cuGraphLaunch_ptsz" },
	{ "cuCtxCreate", 3020, "cuCtxCreate_v2", "cuCtxCreate_v2" },
	{ "cuCtxCreate", 11040, "cuCtxCreate_v3", "cuCtxCreate_v3" },
	{ "cuCtxCreate", 12050, "cuCtxCreate_v4", "cuCtxCreate_v4" },
	{ "cuGetProcAddress", 11030, "cuGetProcAddress", "cuGetProcAddress" },
	{ "cuGetProcAddress", 12000, "cuGetProcAddress_v2", "cuGetProcAddress_v2" },
};

#define N_VARIANTS (sizeof(variants) / sizeof(variants[0]))

/* The latest variant that a version has; NULL: none. */
static const struct variant *variant_for(const char *base, int version)
{
	const struct variant *best = NULL;

	for (size_t i = 0; i < N_VARIANTS; i++)
		if (strcmp(variants[i].base, base) == 0 && variants[i].since <= version)
			best = &variants[i];
	return best;
}

/* A stand-in gives its own function, or that of the driver behind it where it has nothing to add. */
static bool is_function(void *lib, const void *fn, const char *exported)
{
	Dl_info info = { 0 };

	return fn && (fn == dlsym(lib, exported) || (dladdr(fn, &info) && info.dli_sname && limit &&
						     strcmp(info.dli_sname, exported) == 0));
}

static void check_variant(void *lib, const char *base, int version, cuuint64_t flags)
{
	const struct variant *v = variant_for(base, version);
	CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
	__typeof__(cuGetProcAddress_v2) *get = NULL;
	const char *exported = v ? v->plain : NULL;
	void *fn = &fn;
	void *symbol = dlsym(lib, "cuGetProcAddress_v2");
	CUresult rc;

	memcpy(&get, &symbol, sizeof(get));
	if (v && (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
		exported = v->per_thread;
	rc = get(base, &fn, version, flags, &status);
	if (rc != (v ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND) ||
	    (v ? !is_function(lib, fn, exported) : fn != NULL) ||
	    status != (v ? CU_GET_PROC_ADDRESS_SUCCESS
			 : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)) {
		(void)printf("# %s of %d with flags %d is not %s: result %d, status %d\n", base,
			     version, (int)flags, exported ? exported : "missing", (int)rc,
			     (int)status);
		e2e_failures++;
	}
}

/* Every version that a program may have been built for, with streams of either kind: a variant for another version would be called with other arguments. */
static void way_versions(void)
{
	static const int versions[] = { 11000, 11010, 11020, 11030, 11040, 11050, 11060,
					11070, 11080, 12000, 12010, 12020, 12030, 12040,
					12050, 12060, 12080, 12090, 13000 };
	void *lib = library("libcuda.so.1", RTLD_NOW);
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
	__typeof__(cuGetProcAddress_v2) *get = NULL;
	void *symbol = lib ? dlsym(lib, "cuGetProcAddress_v2") : NULL;
	void *fn = &fn;
	struct api a;

	CHECK(symbol != NULL);
	if (!symbol)
		return;
	memcpy(&get, &symbol, sizeof(get));
	/* Before the driver has been initialised, and after. */
	for (int round = 0; round < 2; round++) {
		for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++)
			for (size_t i = 0; i < N_VARIANTS; i++)
				for (cuuint64_t flags = 0; flags < 3; flags++)
					check_variant(lib, variants[i].base, versions[v], flags);
		CHECK_INT(get("cuNoSuchThing", &fn, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
		CHECK(fn == NULL);
		CHECK_INT(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
		CHECK_INT(get("", &fn, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
		CHECK_INT(get(NULL, &fn, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
		CHECK_INT(get("cuInit", NULL, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
		CHECK_INT(get("cuInit", &fn, 13000, 0, NULL), CUDA_SUCCESS);
		CHECK(fn == dlsym(lib, "cuInit"));
		if (round == 0 && api_find(&a, by_name, lib))
			open_and_use(&a);
	}
	/* What the look-ups of other variants have left behind still works. */
	if (!e2e_failures)
		use(&a);
}

/* ---- the environment ---- */

static void way_clear_after(void)
{
	struct api a;

	if (!api_open(&a))
		return;
	CHECK_INT(open_card(&a), CUDA_SUCCESS);
	CHECK(clearenv() == 0);
	if (!e2e_failures)
		use(&a);
	open_and_use(&a);
}

/* Nothing says any more where the card or the limit is: no card, and never one without the limit. */
static void way_clear_before(void)
{
	struct api a;
	CUresult rc;

	CHECK(clearenv() == 0);
	CHECK(setenv("ALIQUOT_ATTACH_TIMEOUT_MS", "100", 1) == 0);
	(void)close(STDERR_FILENO); /* says why there: not of interest */
	if (!api_open(&a))
		return;
	rc = a.init(0);
	if (rc == CUDA_SUCCESS && limit)
		open_and_use(&a);
	else
		CHECK_INT(rc, limit ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_NO_DEVICE);
}

/* ---- threads, exit handlers ---- */

static struct {
	struct api api;
	pthread_barrier_t barrier;
	atomic_uint wrong;
	__typeof__(cuDriverGetVersion) *version;
	__typeof__(cuGetProcAddress) *get;
} at_once;

static void *first_call(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	void *fn = NULL;
	int n = 0;
	CUdeviceptr p = 0;
	CUresult rc = CUDA_SUCCESS;

	(void)pthread_barrier_wait(&at_once.barrier);
	if (i % 4 == 1)
		rc = at_once.version(&n);
	else if (i % 4 == 2)
		rc = at_once.get("cuMemAlloc", &fn, 12000, 0);
	else if (i % 4 == 3) /* whoever is first with this is too early */
		rc = at_once.api.count(&n) == CUDA_ERROR_NOT_INITIALIZED || n == 1 ? 0 : 1;
	if (rc == CUDA_SUCCESS)
		rc = open_card(&at_once.api);
	if (rc == CUDA_SUCCESS)
		rc = at_once.api.alloc(&p, MIB);
	if (rc == CUDA_SUCCESS)
		rc = at_once.api.free(p);
	if (rc != CUDA_SUCCESS) {
		(void)printf("# thread %u: %d\n", i, (int)rc);
		atomic_fetch_add(&at_once.wrong, 1);
	}
	return NULL;
}

static void way_threads(void)
{
	void *lib = library("libcuda.so.1", RTLD_NOW);
	pthread_t t[THREADS];
	void *fn;

	if (!lib || !api_find(&at_once.api, by_name, lib))
		return;
	fn = dlsym(lib, "cuDriverGetVersion");
	memcpy(&at_once.version, &fn, sizeof(fn));
	fn = dlsym(lib, "cuGetProcAddress");
	memcpy(&at_once.get, &fn, sizeof(fn));
	(void)pthread_barrier_init(&at_once.barrier, NULL, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_INT(pthread_create(&t[i], NULL, first_call, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		(void)pthread_join(t[i], NULL);
	CHECK_INT(atomic_load(&at_once.wrong), 0);
	open_and_use(&at_once.api);
}

static struct {
	struct api api;
	CUdeviceptr p;
	bool armed;
} left;

/* The library may be closing itself down; what it answers is CUDA's affair, but it answers. */
static void late(void)
{
	size_t unused = 0;
	size_t total = 0;
	uint64_t out = 0;
	CUresult rc;

	if (!left.armed)
		return;
	rc = left.api.info(&unused, &total);
	if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_DEINITIALIZED)
		_exit(3);
	rc = left.api.from_card(&out, left.p, 8);
	if ((rc != CUDA_SUCCESS || out != 42) && rc != CUDA_ERROR_DEINITIALIZED)
		_exit(4);
	rc = left.api.free(left.p);
	if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_DEINITIALIZED)
		_exit(5);
	rc = left.api.alloc(&left.p, MIB);
	if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_DEINITIALIZED)
		_exit(6);
	rc = left.api.to_card(left.p, &(uint64_t){ 42 }, 8);
	if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_DEINITIALIZED)
		_exit(7);
}

__attribute__((destructor)) static void very_late(void)
{
	late();
}

/* Handlers that were there before the library, and after, and a destructor. */
static void way_exit(void)
{
	CHECK(atexit(late) == 0);
	if (!api_open(&left.api))
		return;
	open_and_use(&left.api);
	CHECK_INT(left.api.alloc(&left.p, MIB), CUDA_SUCCESS);
	CHECK_INT(left.api.to_card(left.p, &(uint64_t){ 42 }, 8), CUDA_SUCCESS);
	CHECK(atexit(late) == 0);
	left.armed = true;
}

/* The library's first call of all comes when the program ends. */
static void first_at_exit(void)
{
	open_and_use(&left.api);
	if (e2e_failures)
		_exit(8);
}

static void way_first_at_exit(void)
{
	if (api_open(&left.api))
		CHECK(atexit(first_at_exit) == 0);
}

/* ---- fork and its relatives ---- */

static void join(pid_t pid)
{
	int status = -1;

	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
}

static void way_fork_before(void)
{
	struct api a;
	pid_t pid[4];

	if (!api_open(&a))
		return;
	for (int i = 0; i < 4; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			open_and_use(&a);
			exit(e2e_failures != 0);
		}
	}
	open_and_use(&a);
	for (int i = 0; i < 4; i++)
		join(pid[i]);
}

static pid_t by_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

/* The child has nothing of its parent's; whatever it does, the parent's memory stays. */
static void fork_after(pid_t (*make)(void))
{
	struct api a;
	CUdeviceptr p = 0;
	uint64_t in = 7;
	uint64_t out = 0;
	pid_t pid;

	if (!api_open(&a))
		return;
	open_and_use(&a);
	CHECK_INT(a.alloc(&p, MIB), CUDA_SUCCESS);
	CHECK_INT(a.to_card(p, &in, 8), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++) {
		pid = make();
		if (pid == 0) {
			CHECK(a.from_card(&out, p, 8) != CUDA_SUCCESS);
			CHECK(a.free(p) != CUDA_SUCCESS);
			if (i == 1)
				open_and_use(&a);
			if (i == 2)
				_exit(e2e_failures != 0);
			exit(e2e_failures != 0);
		}
		join(pid);
		CHECK_INT(a.from_card(&out, p, 8), CUDA_SUCCESS);
		CHECK_INT(out, in++);
		CHECK_INT(a.to_card(p, &in, 8), CUDA_SUCCESS);
		use(&a);
	}
	CHECK_INT(a.free(p), CUDA_SUCCESS);
}

static void way_fork_after(void)
{
	fork_after(fork);
}

static void way_clone_after(void)
{
	fork_after(by_clone);
}

static pid_t start_way(const char *way, bool share)
{
	pid_t pid = share ? vfork() : fork();

	if (pid == 0) {
		(void)execl("/proc/self/exe", "lookups", "--limit", limit_text, way, NULL);
		_exit(127);
	}
	return pid;
}

static void way_vfork(void)
{
	char words[3][12] = { "lookups", "--limit", "soname" };
	char *argv[] = { words[0], words[1], limit_text, words[2], NULL };
	extern char **environ;
	struct api a;
	CUdeviceptr p = 0;
	uint64_t in = 99;
	uint64_t out = 0;
	pid_t pid = 0;

	if (!api_open(&a))
		return;
	open_and_use(&a);
	CHECK_INT(a.alloc(&p, MIB), CUDA_SUCCESS);
	CHECK_INT(a.to_card(p, &in, 8), CUDA_SUCCESS);
	join(start_way("soname", true));
	CHECK_INT(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
	join(pid);
	/* A child that fails to become another program. */
	pid = vfork();
	if (pid == 0) {
		(void)execl("/nonexistent", "nonexistent", NULL);
		_exit(0);
	}
	join(pid);
	CHECK_INT(a.from_card(&out, p, 8), CUDA_SUCCESS);
	CHECK_INT(out, in);
	use(&a);
	CHECK_INT(a.free(p), CUDA_SUCCESS);
}

/* The program becomes another one with the library open. */
static void way_exec(void)
{
	struct api a;
	CUdeviceptr p = 0;

	if (!api_open(&a))
		return;
	open_and_use(&a);
	CHECK_INT(a.alloc(&p, MIB), CUDA_SUCCESS);
	if (!e2e_failures)
		(void)execl("/proc/self/exe", "lookups", "--limit", limit_text, "whole", NULL);
	CHECK(!"exec");
}

/* All of the limit: nothing is left charged of what was there before. */
static void way_whole(void)
{
	struct api a;
	size_t unused = 0;
	size_t total = 0;
	CUdeviceptr p = 0;
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;

	if (!api_open(&a))
		return;
	open_and_use(&a);
	/* The one before may be seen to be gone a moment later. */
	for (int i = 0; i < 100 && rc == CUDA_ERROR_OUT_OF_MEMORY; i++) {
		CHECK_INT(a.info(&unused, &total), CUDA_SUCCESS);
		rc = unused + 64 * MIB > total ? a.alloc(&p, unused) : CUDA_ERROR_OUT_OF_MEMORY;
		if (rc != CUDA_SUCCESS)
			(void)usleep(10000);
	}
	CHECK_INT(rc, CUDA_SUCCESS);
	CHECK_INT(a.free(p), CUDA_SUCCESS);
}

static atomic_bool stop;

static void *keep_using(void *arg)
{
	struct api *a = arg;
	CUdeviceptr p = 0;
	unsigned wrong = 0;

	wrong += open_card(a) != CUDA_SUCCESS;
	while (!atomic_load(&stop)) {
		wrong += a->alloc(&p, MIB) != CUDA_SUCCESS;
		wrong += a->free(p) != CUDA_SUCCESS;
	}
	return (void *)(uintptr_t)wrong;
}

/* fork() while other threads are in the library: the child must not wait for their locks. */
static void way_fork_threads(void)
{
	struct api a;
	pthread_t t[3];
	void *wrong = NULL;

	if (!api_open(&a))
		return;
	open_and_use(&a);
	for (int i = 0; i < 3; i++)
		CHECK_INT(pthread_create(&t[i], NULL, keep_using, &a), 0);
	for (int i = 0; i < 20; i++) {
		pid_t pid = i % 2 ? by_clone() : fork();

		if (pid == 0) {
			(void)alarm(20);
			if (open_card(&a) != CUDA_SUCCESS)
				_exit(2);
			_exit(a.alloc(&(CUdeviceptr){ 0 }, MIB) != CUDA_SUCCESS);
		}
		join(pid);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 3; i++) {
		(void)pthread_join(t[i], &wrong);
		CHECK_INT((uintptr_t)wrong, 0);
	}
}

/* ---- */

static const struct {
	const char *name;
	void (*fn)(void);
	const char *text;
} ways[] = {
	{ "soname", way_soname, "libcuda.so.1" },
	{ "devel-name", way_devel_name, "libcuda.so" },
	{ "both-names", way_both_names, "both names are one library, which stays" },
#if !defined(SANITIZED)
	{ "deepbind", way_deepbind, "RTLD_DEEPBIND" },
#endif
	{ "proc-address-v1", way_proc_address_v1, "cuGetProcAddress alone" },
	{ "proc-address-v2", way_proc_address_v2, "cuGetProcAddress_v2 alone" },
	{ "versions", way_versions, "all versions and flags" },
	{ "clear-after", way_clear_after, "the environment cleared behind cuInit" },
	{ "clear-before", way_clear_before, "the environment cleared before" },
	{ "threads", way_threads, "the first call from many threads" },
	{ "exit", way_exit, "calls from exit handlers" },
	{ "first-at-exit", way_first_at_exit, "the first call from an exit handler" },
	{ "fork-before", way_fork_before, "fork before the first call" },
	{ "fork-after", way_fork_after, "fork behind cuInit" },
	{ "clone-after", way_clone_after, "clone behind cuInit" },
	{ "vfork", way_vfork, "vfork and posix_spawn" },
	{ "fork-threads", way_fork_threads, "fork while other threads allocate" },
	{ "exec", way_exec, "exec with memory held" },
	{ "whole", way_whole, "all that there is" },
};

#define N_WAYS (sizeof(ways) / sizeof(ways[0]))

int main(int argc, char **argv)
{
	int failed = 0;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 2 && strcmp(argv[1], "--limit") == 0)
		limit = strtoull(argv[2], NULL, 0);
	(void)snprintf(limit_text, sizeof(limit_text), "%llu", (unsigned long long)limit);
	if (argc == 4) {
		(void)alarm(60);
		for (size_t i = 0; i < N_WAYS; i++)
			if (strcmp(ways[i].name, argv[3]) == 0)
				ways[i].fn();
		return e2e_failures != 0;
	}
	(void)printf("1..%d\n", (int)N_WAYS);
	for (size_t i = 0; i < N_WAYS; i++) {
		int status = -1;

		(void)waitpid(start_way(ways[i].name, false), &status, 0);
		if (status)
			(void)printf("# status %#x\n", (unsigned)status);
		(void)printf("%sok %d - %s\n", status ? "not " : "", (int)i + 1, ways[i].text);
		failed += status != 0;
	}
	return failed != 0;
}
