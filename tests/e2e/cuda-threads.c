/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads of one program: on one context, on their own, and on contexts that others take away. */
#include "e2e.h"

#include "memory.ptx.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#define N(a)	  ((int)(sizeof(a) / sizeof((a)[0])))
#define N_THREADS 8

static CUcontext shared;
static CUlibrary library;
static CUkernel count;
static CUdeviceptr counter;
static _Atomic int in_callbacks;
static pthread_barrier_t start;

static void together(void *(*fn)(void *arg))
{
	pthread_t thread[N_THREADS];

	CHECK_INT(pthread_barrier_init(&start, NULL, N_THREADS), 0);
	for (intptr_t i = 0; i < N_THREADS; i++)
		CHECK_INT(pthread_create(&thread[i], NULL, fn, (void *)i), 0);
	for (int i = 0; i < N_THREADS; i++)
		(void)pthread_join(thread[i], NULL);
	(void)pthread_barrier_destroy(&start);
}

static void set_up(void)
{
	OK(cuInit(0));
	OK(cuCtxCreate_v2(&shared, 0, 0));
	OK(cuLibraryLoadData(&library, memory_ptx, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&count, library, "count"));
	OK(cuMemAlloc_v2(&counter, 4));
}

static void note(void *arg)
{
	(void)arg;
	atomic_fetch_add(&in_callbacks, 1);
}

/* Everybody adds to the same counter, from streams of all kinds. */
static void *adder(void *arg)
{
	void *params[] = { &counter };
	CUstream own = NULL;

	(void)pthread_barrier_wait(&start);
	OK(cuCtxSetCurrent(shared));
	OK(cuStreamCreate(&own, (intptr_t)arg % 2 ? CU_STREAM_NON_BLOCKING : 0));
	for (int i = 0; i < 60; i++) {
		CUstream s = i % 3 == 0 ? own : i % 3 == 1 ? CU_STREAM_PER_THREAD : NULL;
		CUevent e = NULL;

		OK(cuLaunchKernel((CUfunction)count, 2, 1, 1, 32, 1, 1, 0, s, params, NULL));
		OK(cuEventCreate(&e, 0));
		OK(cuEventRecord(e, s));
		if (i % 8 == 0)
			OK(cuLaunchHostFunc(s, note, NULL));
		if (i % 4 == 0)
			OK(cuEventSynchronize(e));
		OK(cuEventDestroy_v2(e));
	}
	OK(cuStreamSynchronize(own));
	OK(cuStreamDestroy_v2(own));
	return NULL;
}

static void one_context_for_all(void)
{
	int got = -1;

	OK(cuMemsetD8_v2(counter, 0, 4));
	atomic_store(&in_callbacks, 0);
	together(adder);
	OK(cuCtxSynchronize());
	OK(cuMemcpyDtoH_v2(&got, counter, 4));
	CHECK_INT(got, N_THREADS * 60 * 64);
	CHECK_INT(atomic_load(&in_callbacks), N_THREADS * 8);
}

/* Contexts of their own, made and destroyed beside each other; the library is loaded into each. */
static void *own_contexts(void *arg)
{
	(void)arg;
	(void)pthread_barrier_wait(&start);
	for (int i = 0; i < 6; i++) {
		CUcontext c = NULL;
		CUdeviceptr p = 0;
		CUfunction f = NULL;
		void *params[] = { &p };
		int got = -1;

		OK(cuCtxCreate_v2(&c, 0, i % 2));
		OK(cuMemAlloc_v2(&p, 4));
		OK(cuMemsetD8_v2(p, 0, 4));
		OK(cuLaunchKernel((CUfunction)count, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
		OK(cuKernelGetFunction(&f, count));
		OK(cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, CU_STREAM_PER_THREAD, params, NULL));
		OK(cuCtxSynchronize());
		OK(cuMemcpyDtoH_v2(&got, p, 4));
		CHECK_INT(got, 128);
		OK(cuCtxDestroy_v2(c));
	}
	return NULL;
}

static void contexts_of_their_own(void)
{
	together(own_contexts);
}

/* The primary context comes and goes as its users do. */
static void *primary_user(void *arg)
{
	(void)arg;
	(void)pthread_barrier_wait(&start);
	for (int i = 0; i < 20; i++) {
		CUcontext c = NULL;
		CUresult rc = cuDevicePrimaryCtxRetain(&c, 1);

		/* Its last life may just be ending. */
		if (rc == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
			(void)usleep(100);
			continue;
		}
		CHECK_RC(rc, CUDA_SUCCESS);
		OK(cuCtxPushCurrent_v2(c));
		OK(cuCtxSynchronize());
		OK(cuCtxPopCurrent_v2(NULL));
		OK(cuDevicePrimaryCtxRelease_v2(1));
	}
	return NULL;
}

static void the_primary_context_comes_and_goes(void)
{
	unsigned flags;
	int active = 1;

	together(primary_user);
	OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
	CHECK_INT(active, 0);
}

/* One thread destroys the context that the others are using: each call works or says what happened. */
static CUcontext doomed;

static void *user_of_doomed(void *arg)
{
	CUresult rc = cuCtxSetCurrent(doomed);

	(void)pthread_barrier_wait(&start);
	if ((intptr_t)arg == 0) {
		(void)usleep(3000);
		OK(cuCtxDestroy_v2(doomed));
		return NULL;
	}
	for (int i = 0; i < 200000 && rc == CUDA_SUCCESS; i++)
		rc = i % 2 ? cuCtxSynchronize() : cuStreamQuery(NULL);
	CHECK_RC(rc, CUDA_ERROR_CONTEXT_IS_DESTROYED);
	return NULL;
}

static void a_context_is_taken_away(void)
{
	for (int i = 0; i < 5; i++) {
		OK(cuCtxCreate_v2(&doomed, 0, 0));
		OK(cuCtxPopCurrent_v2(NULL));
		together(user_of_doomed);
	}
}

int main(void)
{
	static const struct e2e_test tests[] = {
		{ "set up", set_up },
		{ "one context for all", one_context_for_all },
		{ "contexts of their own", contexts_of_their_own },
		{ "the primary context comes and goes", the_primary_context_comes_and_goes },
		{ "a context is taken away", a_context_is_taken_away },
	};

	return e2e_run(tests, N(tests));
}
