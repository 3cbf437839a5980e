/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bandwidth of copies, as a share of what plain memcpy does with the same number of bytes in the same run. Run it on a card:
 *   aliquot soft -- bench-copies [LARGEST_MIB]
 */
#include "api/cuda_protos.h"
#include "base/clock.h"
#include "base/macro.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_NS	  (60 * AQ_NS_PER_MS) /* for one number */
#define MIN_TIMES 5

static unsigned char *pageable[2];
static void *pinned;
static CUdeviceptr device[2];

static void need(CUresult rc, const char *what)
{
	if (rc == CUDA_SUCCESS)
		return;
	(void)fprintf(stderr, "%s: result %d\n", what, (int)rc);
	exit(1);
}

#define NEED(call) need(call, #call)

static void run_memcpy(size_t n)
{
	memcpy(pageable[1], pageable[0], n);
	__asm__ volatile("" : : "r"(pageable[1]) : "memory");
}

static void run_htod(size_t n)
{
	NEED(cuMemcpyHtoD_v2(device[0], pageable[0], n));
}

static void run_dtoh(size_t n)
{
	NEED(cuMemcpyDtoH_v2(pageable[1], device[0], n));
}

static void run_htod_pinned(size_t n)
{
	NEED(cuMemcpyHtoD_v2(device[0], pinned, n));
}

static void run_dtoh_pinned(size_t n)
{
	NEED(cuMemcpyDtoH_v2(pinned, device[0], n));
}

static void run_dtod(size_t n)
{
	NEED(cuMemcpyDtoD_v2(device[1], device[0], n));
	NEED(cuStreamSynchronize(NULL));
}

/* The median time of one copy. */
static double median_ns(void (*fn)(size_t), size_t n)
{
	static uint64_t t[4096];
	uint64_t begin = 0, key = 0;
	unsigned k = 0;

	fn(n);
	begin = aq_now_ns();
	while (k < AQ_ARRAY_SIZE(t) && (k < MIN_TIMES || aq_now_ns() - begin < MIN_NS)) {
		uint64_t at = aq_now_ns();

		fn(n);
		t[k++] = aq_now_ns() - at;
	}
	for (unsigned i = 1, j = 0; i < k; i++) {
		key = t[i];
		for (j = i; j > 0 && t[j - 1] > key; j--)
			t[j] = t[j - 1];
		t[j] = key;
	}
	return (double)t[k / 2];
}

static const struct {
	const char *name;
	void (*fn)(size_t);
} ways[] = {
	{ "HtoD", run_htod },
	{ "DtoH", run_dtoh },
	{ "HtoD pinned", run_htod_pinned },
	{ "DtoH pinned", run_dtoh_pinned },
	{ "DtoD", run_dtod },
};

int main(int argc, char **argv)
{
	size_t largest = (argc > 1 ? strtoul(argv[1], NULL, 10) : 256) * AQ_MIB;
	CUcontext ctx = NULL;

	NEED(cuInit(0));
	NEED(cuDevicePrimaryCtxRetain(&ctx, 0));
	NEED(cuCtxSetCurrent(ctx));
	for (int i = 0; i < 2; i++) {
		pageable[i] = malloc(largest);
		if (!pageable[i])
			return 1;
		memset(pageable[i], i, largest);
		NEED(cuMemAlloc_v2(&device[i], largest));
		NEED(cuMemsetD8_v2(device[i], 0, largest));
	}
	NEED(cuMemAllocHost_v2(&pinned, largest));
	memset(pinned, 0, largest);
	(void)printf("%10s %14s", "KiB", "memcpy GB/s");
	for (unsigned i = 0; i < AQ_ARRAY_SIZE(ways); i++)
		(void)printf(" %18s", ways[i].name);
	(void)printf("\n");
	for (size_t n = 4 * AQ_KIB; n <= largest; n *= 4) {
		double plain = median_ns(run_memcpy, n);

		(void)printf("%10zu %14.2f", n >> 10, (double)n / plain);
		for (unsigned i = 0; i < AQ_ARRAY_SIZE(ways); i++) {
			double ns = median_ns(ways[i].fn, n);

			(void)printf(" %7.2f %5.0f %% %3s", (double)n / ns, plain / ns * 100, "");
		}
		(void)printf("\n");
		(void)fflush(stdout);
	}
	free(pageable[0]);
	free(pageable[1]);
	return 0;
}
