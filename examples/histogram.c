/* SPDX-License-Identifier: Apache-2.0 */
/* How often each byte occurs, by atomics in shared and in device memory. Arguments: bytes, launches. */
#include "demo.h"

#include "histogram.ptx.h"

#include <stdlib.h>

#define BINS 256

int main(int argc, char **argv)
{
	unsigned n = demo_argument(argc, argv, 1, 1U << 20);
	unsigned times = demo_argument(argc, argv, 2, 1);
	struct demo_grid grid = { 64, 1, 256, 1 };
	unsigned char *data = malloc(n);
	unsigned want[BINS] = { 0 };
	unsigned bins[BINS];
	CUdeviceptr device_data;
	CUdeviceptr device_bins;
	size_t wrong = 0;
	double ms;

	if (!data)
		return 1;
	/* Not uniform: neighbours often meet in one bin, which is what makes atomics work hard. */
	for (unsigned i = 0; i < n; i++) {
		data[i] = (unsigned char)(demo_random() & (demo_random() >> 4));
		want[data[i]] += times;
	}
	demo_open("histogram", histogram_ptx, "histogram");
	device_data = demo_upload(data, n);
	device_bins = demo_upload(NULL, sizeof(bins));
	ms = demo_run(&grid, (void *[]){ &n, &device_data, &device_bins }, times);
	demo_download(bins, device_bins, sizeof(bins));
	demo_download(data, device_data, n);
	demo_close();

	for (unsigned i = 0; i < BINS; i++)
		wrong += bins[i] != want[i];
	demo_verdict(wrong, "%u bytes into %u bins: %.1f ms, %.3f GB/s", n, BINS, ms,
		     1e-6 * n / ms);
	free(data);
	return 0;
}
