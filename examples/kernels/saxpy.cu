/* SPDX-License-Identifier: Apache-2.0 */
/* y = a x + y, an element a thread. */
#include "device.h"

KERNEL saxpy(unsigned n, float a, const float *x, float *y)
{
	unsigned i = BLOCK_X * WIDTH_X + THREAD_X;

	if (i < n)
		y[i] = a * x[i] + y[i];
}
