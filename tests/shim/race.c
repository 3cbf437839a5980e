/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes and threads that allocate and free at random in one instance of 64 MiB: at no moment do they hold a byte more
 * together. The driver does nothing, so all time is spent where the races are.
 */
#include "e2e/e2e.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT	  (64LL << 20)
#define PROCESSES 6
#define THREADS	  3
#define ROUNDS	  20000
#define HELD	  24

static struct {
	_Atomic long long held; /* granted, and not yet given back */
	_Atomic long refused, granted, over;
	_Atomic int ready;
} * shared;

static void *work(void *arg)
{
	CUdeviceptr ptr[HELD];
	long long size[HELD];
	unsigned seed = (unsigned)(uintptr_t)arg * 2654435761U + (unsigned)getpid();
	int n = 0;

	for (int i = 0; i < ROUNDS; i++) {
		seed = seed * 1103515245 + 12345;
		if (n < HELD && (seed >> 16) % 5 < 3) {
			long long bytes = ((seed >> 8) % 8192 + 1) * 512LL;

			if (cuMemAlloc_v2(&ptr[n], (size_t)bytes) != CUDA_SUCCESS) {
				shared->refused++;
				continue;
			}
			shared->granted++;
			size[n++] = bytes;
			if (atomic_fetch_add(&shared->held, bytes) + bytes > LIMIT)
				shared->over++;
		} else if (n > 0) {
			int k = (int)((seed >> 16) % (unsigned)n);

			shared->held -= size[k];
			if (cuMemFree_v2(ptr[k]) != CUDA_SUCCESS)
				shared->over++;
			ptr[k] = ptr[--n];
			size[k] = size[n];
		}
	}
	while (n > 0) {
		shared->held -= size[--n];
		(void)cuMemFree_v2(ptr[n]);
	}
	return NULL;
}

static int child(void)
{
	pthread_t t[THREADS];
	size_t left = 0;

	if (cuInit(0) != CUDA_SUCCESS)
		return 1;
	/* All at once. */
	shared->ready++;
	while (shared->ready < PROCESSES)
		(void)usleep(100);
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, work, (void *)(i + 1)) != 0)
			return 2;
	for (int i = 0; i < THREADS; i++)
		(void)pthread_join(t[i], NULL);
	return cuMemGetInfo_v2(&left, &(size_t){ 0 }) == CUDA_SUCCESS ? 0 : 3;
}

static void test_race(void)
{
	int status = 0;

	for (int i = 0; i < PROCESSES; i++)
		if (fork() == 0)
			_exit(child());
	for (int i = 0; i < PROCESSES; i++) {
		CHECK(wait(&status) > 0);
		CHECK_INT(status, 0);
	}
	CHECK_INT(shared->over, 0);
	CHECK_INT(shared->held, 0);
	CHECK(shared->granted > 1000);
	CHECK(shared->refused > 100);
}

/* All have gone, so all is free; and one may have it all. */
static void test_after(void)
{
	size_t left = 0;
	CUdeviceptr p = 0;

	OK(cuInit(0));
	for (int i = 0; i < 100; i++) {
		OK(cuMemGetInfo_v2(&left, &(size_t){ 0 }));
		if (left == LIMIT)
			break;
		(void)usleep(10000);
	}
	CHECK_INT(left, LIMIT);
	OK(cuMemAlloc_v2(&p, LIMIT));
	OK(cuMemFree_v2(p));
}

int main(void)
{
	static const struct e2e_test tests[] = { { "nobody passes the limit", test_race },
						 { "nothing stays", test_after } };

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	return e2e_run(tests, 2);
}
