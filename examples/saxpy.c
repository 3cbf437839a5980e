/* SPDX-License-Identifier: Apache-2.0 */
/* y = a x + y. Arguments: elements, launches. The smallest complete CUDA driver program of the four. */
#include "demo.h"

#include "saxpy.ptx.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
	unsigned n = demo_argument(argc, argv, 1, 1U << 20);
	unsigned times = demo_argument(argc, argv, 2, 1);
	struct demo_grid grid = { (n + 255) / 256, 1, 256, 1 };
	float *x = calloc(n, sizeof(*x));
	float *y = calloc(n, sizeof(*y));
	float *want = calloc(n, sizeof(*want));
	float a = 3;
	CUdeviceptr device_x;
	CUdeviceptr device_y;
	size_t wrong = 0;
	double ms;

	if (!x || !y || !want)
		return 1;
	/* Small whole numbers: every step is exact, so that the results must be equal. */
	for (unsigned i = 0; i < n; i++) {
		x[i] = (float)(demo_random() % 100);
		y[i] = (float)(demo_random() % 100);
		want[i] = y[i] + (float)times * a * x[i];
	}
	demo_open("saxpy", saxpy_ptx, "saxpy");
	device_x = demo_upload(x, n * sizeof(*x));
	device_y = demo_upload(y, n * sizeof(*y));
	ms = demo_run(&grid, (void *[]){ &n, &a, &device_x, &device_y }, times);
	demo_download(y, device_y, n * sizeof(*y));
	demo_download(x, device_x, n * sizeof(*x));
	demo_close();

	for (unsigned i = 0; i < n; i++)
		wrong += y[i] != want[i];
	demo_verdict(wrong, "%u elements: %.1f ms, %.3f GB/s", n, ms, 12e-6 * n / ms);
	free(x);
	free(y);
	free(want);
	return 0;
}
