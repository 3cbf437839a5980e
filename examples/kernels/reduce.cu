/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of n floats: a partial sum a block, by shuffles inside each warp and through shared memory between them. */
#include "device.h"

KERNEL reduce(unsigned n, const float *x, float *partial)
{
	__shared__ float of_warp[32];
	unsigned thread = THREAD_X;
	float sum = 0;

	for (unsigned i = BLOCK_X * WIDTH_X + thread; i < n; i += WIDTH_X * GRID_X)
		sum += x[i];
	for (int by = 16; by > 0; by /= 2)
		sum += SHUFFLE_DOWN(sum, by);
	if (thread % 32 == 0)
		of_warp[thread / 32] = sum;
	BARRIER();
	if (thread >= 32)
		return;
	sum = thread < WIDTH_X / 32 ? of_warp[thread] : 0;
	for (int by = 16; by > 0; by /= 2)
		sum += SHUFFLE_DOWN(sum, by);
	if (thread == 0)
		partial[BLOCK_X] = sum;
}
