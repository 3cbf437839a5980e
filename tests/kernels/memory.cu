/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that show where memory is: every state space, module variables, vectors, atomics. */
#include "device.h"

#define __constant__ __attribute__((constant))

extern "C" __device__ int counter = 7;
extern "C" __device__ int squares[8] = { 0, 1, 4, 9, 16, 25, 36, 49 };
extern "C" __constant__ int factors[4] = { 2, 3, 5, 7 };

struct quad {
	int a, b, c, d;
} __attribute__((aligned(16)));

/* p[i] = value + i */
KERNEL fill(unsigned n, int value, int *p)
{
	unsigned i = BLOCK_X * WIDTH_X + THREAD_X;

	if (i < n)
		p[i] = value + (int)i;
}

/* p[i] += value */
KERNEL add(unsigned n, int value, int *p)
{
	unsigned i = BLOCK_X * WIDTH_X + THREAD_X;

	if (i < n)
		p[i] += value;
}

/* Every thread adds one. */
KERNEL count(int *p)
{
	ATOMIC_ADD(p, 1);
}

/* Every thread adds one to the module's counter. */
KERNEL count_global(void)
{
	ATOMIC_ADD(&counter, 1);
}

/* p[i] = squares[i % 8] * factors[i % 4] */
KERNEL tables(unsigned n, int *p)
{
	unsigned i = BLOCK_X * WIDTH_X + THREAD_X;

	if (i < n)
		p[i] = squares[i % 8] * factors[i % 4];
}

/* Reverses each block's part, through shared memory whose size the launch gives: 4 bytes a thread. */
KERNEL reverse(int *p)
{
	extern __shared__ int part[];
	unsigned first = BLOCK_X * WIDTH_X;

	part[THREAD_X] = p[first + THREAD_X];
	BARRIER();
	p[first + THREAD_X] = part[WIDTH_X - 1 - THREAD_X];
}

/* Through an array of the thread's own, which is indexed by data: it lives in local memory. */
KERNEL local(unsigned n, const int *in, int *out)
{
	unsigned i = BLOCK_X * WIDTH_X + THREAD_X;
	int own[16];

	if (i >= n)
		return;
	for (int k = 0; k < 16; k++)
		own[k] = k * k;
	own[in[i] & 15] += (int)i;
	out[i] = own[in[i] & 15] + own[(in[i] + 1) & 15];
}

/* 16 bytes at a time. */
KERNEL copy_quads(unsigned n, const struct quad *in, struct quad *out)
{
	unsigned i = BLOCK_X * WIDTH_X + THREAD_X;

	if (i < n)
		out[i] = in[i];
}

/* A structure by value. */
KERNEL store_quad(struct quad q, int *out)
{
	out[0] = q.a;
	out[1] = q.b;
	out[2] = q.c;
	out[3] = q.d;
}
