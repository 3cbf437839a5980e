/* SPDX-License-Identifier: Apache-2.0 */
/* How often each byte value occurs: atomics in shared memory, then one addition a bin and block to the result. */
#include "device.h"

KERNEL histogram(unsigned n, const unsigned char *data, int *bins)
{
	__shared__ int mine[256];

	for (unsigned b = THREAD_X; b < 256; b += WIDTH_X)
		mine[b] = 0;
	BARRIER();
	for (unsigned i = BLOCK_X * WIDTH_X + THREAD_X; i < n; i += WIDTH_X * GRID_X)
		ATOMIC_ADD(&mine[data[i]], 1);
	BARRIER();
	for (unsigned b = THREAD_X; b < 256; b += WIDTH_X)
		if (mine[b])
			ATOMIC_ADD(&bins[b], mine[b]);
}
