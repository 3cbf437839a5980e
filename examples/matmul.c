/* SPDX-License-Identifier: Apache-2.0 */
/* C = A B for square matrices, tile by tile in shared memory. Arguments: side (a multiple of 16), launches. */
#include "demo.h"

#include "matmul.ptx.h"

#include <stdio.h>
#include <stdlib.h>

#define TILE 16

static void multiply(unsigned n, const float *a, const float *b, float *c)
{
	for (unsigned row = 0; row < n; row++)
		for (unsigned k = 0; k < n; k++)
			for (unsigned column = 0; column < n; column++)
				c[row * n + column] += a[row * n + k] * b[k * n + column];
}

int main(int argc, char **argv)
{
	unsigned n = demo_argument(argc, argv, 1, 192);
	unsigned times = demo_argument(argc, argv, 2, 1);
	struct demo_grid grid = { n / TILE, n / TILE, TILE, TILE };
	size_t size = (size_t)n * n * sizeof(float);
	CUdeviceptr device_a;
	CUdeviceptr device_b;
	CUdeviceptr device_c;
	size_t wrong = 0;
	float *a;
	float *b;
	float *c;
	float *want;
	double ms;

	if (n % TILE || n > 8192) {
		fprintf(stderr, "matmul: the side must be a multiple of %d up to 8192\n", TILE);
		return 2;
	}
	a = malloc(size);
	b = malloc(size);
	c = malloc(size);
	want = calloc(1, size);
	if (!a || !b || !c || !want)
		return 1;
	/* Small whole numbers: sums are exact in any order. */
	for (size_t i = 0; i < (size_t)n * n; i++) {
		a[i] = (float)(demo_random() % 16);
		b[i] = (float)(demo_random() % 16);
	}
	demo_open("matmul", matmul_ptx, "matmul");
	device_a = demo_upload(a, size);
	device_b = demo_upload(b, size);
	device_c = demo_upload(NULL, size);
	ms = demo_run(&grid, (void *[]){ &n, &device_a, &device_b, &device_c }, times);
	demo_download(c, device_c, size);
	demo_download(b, device_b, size);
	demo_download(a, device_a, size);
	demo_close();

	multiply(n, a, b, want);
	for (size_t i = 0; i < (size_t)n * n; i++)
		wrong += c[i] != want[i];
	demo_verdict(wrong, "%u x %u floats: %.1f ms, %.3f GFLOP/s", n, n, ms,
		     2e-6 * n * n * n / ms);
	free(a);
	free(b);
	free(c);
	free(want);
	return 0;
}
