/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a launch costs: the client's CPU time for an asynchronous one, and the latency of launch and synchronise against a ping-pong of two
 * processes over futexes in the same run. Run it on a card: aliquot soft -- bench-launch
 */
#include "api/cuda_protos.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/macro.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS	20000
#define BATCH	400 /* below the depth of the queue, so that no launch waits */
#define BATCHES 100

static const char ptx[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry nothing(.param .u64 p)\n{\n\tret;\n}\n";

static void need(CUresult rc, const char *what)
{
	if (rc == CUDA_SUCCESS)
		return;
	(void)fprintf(stderr, "%s: result %d\n", what, (int)rc);
	exit(1);
}

#define NEED(call) need(call, #call)

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static double median(uint64_t *t, size_t n)
{
	qsort(t, n, sizeof(*t), by_size);
	return (double)t[n / 2];
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * AQ_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Wait for the word to become `want`, asleep. */
static void await(_Atomic uint32_t *word, uint32_t want)
{
	uint32_t seen = 0;

	while ((seen = atomic_load(word)) != want)
		(void)aq_futex_wait(word, seen, UINT64_MAX);
}

/* The round trip of two processes that do nothing but wake each other. */
static double ping_pong_ns(void)
{
	static uint64_t t[ROUNDS];
	_Atomic uint32_t *word =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = 0;

	if (word == MAP_FAILED)
		return 0;
	pid = fork();
	if (pid == 0) {
		for (uint32_t i = 0;; i++) {
			await(&word[0], i + 1);
			atomic_store(&word[16], i + 1);
			aq_futex_wake(&word[16], 1);
		}
	}
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t at = aq_now_ns();

		atomic_store(&word[0], i + 1);
		aq_futex_wake(&word[0], 1);
		await(&word[16], i + 1);
		t[i] = aq_now_ns() - at;
	}
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	(void)munmap((void *)word, 4096);
	return median(t, ROUNDS);
}

int main(void)
{
	static uint64_t sync_ns[ROUNDS], launch_ns[BATCHES];
	double ping_pong =
		ping_pong_ns(); /* before there is a session that a child would inherit */
	CUcontext ctx = NULL;
	CUmodule module = NULL;
	CUfunction f = NULL;
	uint64_t arg = 0;
	void *args[] = { &arg };

	NEED(cuInit(0));
	NEED(cuDevicePrimaryCtxRetain(&ctx, 0));
	NEED(cuCtxSetCurrent(ctx));
	NEED(cuModuleLoadData(&module, ptx));
	NEED(cuModuleGetFunction(&f, module, "nothing"));
	for (int i = 0; i < BATCHES; i++) {
		uint64_t at = cpu_ns();

		for (int k = 0; k < BATCH; k++)
			NEED(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
		launch_ns[i] = (cpu_ns() - at) / BATCH;
		NEED(cuCtxSynchronize());
	}
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t at = aq_now_ns();

		NEED(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
		NEED(cuStreamSynchronize(NULL));
		sync_ns[i] = aq_now_ns() - at;
	}
	{
		double latency = median(sync_ns, ROUNDS);

		(void)printf("launch, client CPU      %8.0f ns\n", median(launch_ns, BATCHES));
		(void)printf("launch and synchronise  %8.0f ns\n", latency);
		(void)printf("futex ping-pong         %8.0f ns\n", ping_pong);
		(void)printf("ratio                   %8.2f\n", latency / ping_pong);
	}
	return 0;
}
