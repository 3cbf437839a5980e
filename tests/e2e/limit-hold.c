/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program in a vgpu that does what its standard input says, a line each, and answers with a line. Memory is filled with a pattern of its own,
 * so that a neighbour's reach would show.
 *
 *   alloc BYTES   ok, or the name of the error
 *   free          the latest one
 *   fill BYTES    alloc until refused, in pieces of BYTES; answers how many bytes that were
 *   check         ok when every byte that is held is what was written
 *   info          free and total bytes
 *   race N        N threads alloc and free pieces at random for a while
 */
#include "e2e.h"

#include <pthread.h>

#define MAX_HELD 4096

static struct {
	CUdeviceptr at;
	size_t size;
	unsigned char pattern;
} held[MAX_HELD];
static unsigned n_held;
static CUcontext context;

static CUresult take(size_t size)
{
	unsigned char pattern = (unsigned char)(1 + rand() % 255);
	CUdeviceptr at = 0;
	CUresult rc;

	if (n_held == MAX_HELD)
		return CUDA_ERROR_INVALID_VALUE;
	rc = cuMemAlloc_v2(&at, size);
	if (rc == CUDA_SUCCESS)
		rc = cuMemsetD8_v2(at, pattern, size);
	if (rc != CUDA_SUCCESS)
		return rc;
	held[n_held].at = at;
	held[n_held].size = size;
	held[n_held++].pattern = pattern;
	return CUDA_SUCCESS;
}

/* Whether its first and last mebibyte are as they were written. */
static CUresult check(void)
{
	static unsigned char back[1 << 20];

	for (unsigned i = 0; i < n_held; i++) {
		size_t n = held[i].size < sizeof(back) ? held[i].size : sizeof(back);
		CUdeviceptr ends[2] = { held[i].at, held[i].at + held[i].size - n };

		for (unsigned k = 0; k < 2; k++) {
			CUresult rc = cuMemcpyDtoH_v2(back, ends[k], n);

			if (rc != CUDA_SUCCESS)
				return rc;
			for (size_t b = 0; b < n; b++) {
				if (back[b] != held[i].pattern)
					return CUDA_ERROR_ILLEGAL_ADDRESS;
			}
		}
	}
	return CUDA_SUCCESS;
}

static void *race(void *arg)
{
	unsigned seed = (unsigned)(size_t)arg;

	(void)cuCtxSetCurrent(context);
	for (unsigned i = 0; i < 400; i++) {
		CUdeviceptr at;

		seed = seed * 1664525U + 1013904223U;
		if (cuMemAlloc_v2(&at, (1 + (seed >> 24) % 64) << 20) == CUDA_SUCCESS)
			(void)cuMemFree_v2(at);
	}
	return NULL;
}

static void run_race(unsigned n)
{
	pthread_t thread[64];
	unsigned started = 0;

	while (started < n && started < 64 &&
	       pthread_create(&thread[started], NULL, race, (void *)(size_t)(started + 1)) == 0)
		started++;
	for (unsigned i = 0; i < started; i++)
		(void)pthread_join(thread[i], NULL);
}

static void answer(CUresult rc)
{
	(void)printf("%s\n", rc == CUDA_SUCCESS ? "ok" : e2e_name(rc));
}

static void obey(const char *word, size_t number)
{
	if (strcmp(word, "alloc") == 0) {
		answer(take(number));
	} else if (strcmp(word, "free") == 0) {
		answer(n_held ? cuMemFree_v2(held[--n_held].at) : CUDA_ERROR_INVALID_VALUE);
	} else if (strcmp(word, "fill") == 0) {
		size_t sum = 0;

		while (take(number) == CUDA_SUCCESS)
			sum += number;
		(void)printf("%zu\n", sum);
	} else if (strcmp(word, "check") == 0) {
		answer(check());
	} else if (strcmp(word, "race") == 0) {
		run_race((unsigned)number);
		answer(CUDA_SUCCESS);
	} else if (strcmp(word, "info") == 0) {
		size_t left = 0, total = 0;
		CUresult rc = cuMemGetInfo_v2(&left, &total);

		if (rc != CUDA_SUCCESS)
			answer(rc);
		else
			(void)printf("%zu %zu\n", left, total);
	} else {
		(void)printf("what is \"%s\"?\n", word);
	}
}

int main(void)
{
	char line[100];
	CUresult rc = cuInit(0);

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (rc == CUDA_SUCCESS)
		rc = cuDevicePrimaryCtxRetain(&context, 0);
	if (rc == CUDA_SUCCESS)
		rc = cuCtxSetCurrent(context);
	answer(rc);
	while (rc == CUDA_SUCCESS && fgets(line, sizeof(line), stdin)) {
		char word[20] = "";
		size_t number = 0;

		if (sscanf(line, "%19s %zu", word, &number) >= 1)
			obey(word, number);
	}
	return rc != CUDA_SUCCESS;
}
