/* SPDX-License-Identifier: Apache-2.0 */
/* C = A B for square matrices whose side is a multiple of the tile's: each block computes a tile of C, in shared memory. */
#include "device.h"

#define TILE 16

KERNEL matmul(unsigned n, const float *a, const float *b, float *c)
{
	__shared__ float tile_a[TILE][TILE];
	__shared__ float tile_b[TILE][TILE];
	unsigned tx = THREAD_X;
	unsigned ty = THREAD_Y;
	unsigned row = BLOCK_Y * TILE + ty;
	unsigned column = BLOCK_X * TILE + tx;
	float sum = 0;

	for (unsigned first = 0; first < n; first += TILE) {
		tile_a[ty][tx] = a[row * n + first + tx];
		tile_b[ty][tx] = b[(first + ty) * n + column];
		BARRIER();
		for (unsigned k = 0; k < TILE; k++)
			sum += tile_a[ty][k] * tile_b[k][tx];
		BARRIER();
	}
	c[row * n + column] = sum;
}
