/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of an array, by shuffles and shared memory. Arguments: elements, launches. */
#include "demo.h"

#include "reduce.ptx.h"

#include <stdlib.h>

#define BLOCKS 64

int main(int argc, char **argv)
{
	unsigned n = demo_argument(argc, argv, 1, 1U << 20);
	unsigned times = demo_argument(argc, argv, 2, 1);
	struct demo_grid grid = { BLOCKS, 1, 256, 1 };
	float *x = malloc(n * sizeof(*x));
	float partial[BLOCKS];
	CUdeviceptr device_x;
	CUdeviceptr device_partial;
	double want = 0;
	double sum = 0;
	double ms;

	if (!x)
		return 1;
	/* 0 or 1: partial sums stay below 2^24, where floats are exact in any order. */
	for (unsigned i = 0; i < n; i++) {
		x[i] = (float)(demo_random() % 2);
		want += (double)x[i];
	}
	demo_open("reduce", reduce_ptx, "reduce");
	device_x = demo_upload(x, n * sizeof(*x));
	device_partial = demo_upload(NULL, sizeof(partial));
	ms = demo_run(&grid, (void *[]){ &n, &device_x, &device_partial }, times);
	demo_download(partial, device_partial, sizeof(partial));
	demo_download(x, device_x, n * sizeof(*x));
	demo_close();

	for (unsigned i = 0; i < BLOCKS; i++)
		sum += (double)partial[i];
	demo_verdict(sum != want, "sum of %u floats is %.0f: %.1f ms, %.3f GB/s", n, sum, ms,
		     4e-6 * n / ms);
	free(x);
	return 0;
}
