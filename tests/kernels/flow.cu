/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels whose threads part and meet again: data-dependent loops, calls, recursion, barriers, warp votes. */
#include "device.h"

#define NOINLINE __device__ __attribute__((noinline)) static

/* Steps of the 3n + 1 sequence of each thread's number: every thread leaves the loop at another time. */
KERNEL collatz(unsigned n, unsigned *out)
{
	unsigned i = BLOCK_X * WIDTH_X + THREAD_X;
	unsigned long long x = i + 1;
	unsigned steps = 0;

	if (i >= n)
		return;
	while (x != 1) {
		x = x % 2 ? 3 * x + 1 : x / 2;
		steps++;
	}
	out[i] = steps;
}

NOINLINE unsigned fibonacci(unsigned n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

/* Recursion whose depth differs between the threads of a warp. */
KERNEL recursion(unsigned *out)
{
	out[BLOCK_X * WIDTH_X + THREAD_X] = fibonacci(THREAD_X % 10);
}

/* A switch that compilers make a branch table of, and a loop with two ways out. */
KERNEL branches(unsigned n, const unsigned *in, unsigned *out)
{
	unsigned i = BLOCK_X * WIDTH_X + THREAD_X;
	unsigned sum = 0;

	if (i >= n)
		return;
	for (unsigned k = 0; k < 100; k++) {
		switch ((in[i] + k) % 8) {
		case 0:
			sum += 1;
			break;
		case 1:
			sum *= 3;
			break;
		case 2:
			sum ^= k;
			break;
		case 3:
			continue;
		case 4:
			sum += in[i];
			break;
		case 5:
			sum -= k;
			break;
		case 6:
			if (sum > 1000000)
				goto out;
			break;
		default:
			sum = sum << 1 | sum >> 31;
			break;
		}
	}
out:
	out[i] = sum;
}

/* The largest of a block's numbers, by halves in shared memory: a barrier that all threads must reach, in a loop. */
KERNEL block_max(const unsigned *in, unsigned *out)
{
	__shared__ unsigned best[256];
	unsigned t = THREAD_X;

	best[t] = in[BLOCK_X * WIDTH_X + t];
	BARRIER();
	for (unsigned half = WIDTH_X / 2; half > 0; half /= 2) {
		if (t < half && best[t + half] > best[t])
			best[t] = best[t + half];
		BARRIER();
	}
	if (t == 0)
		out[BLOCK_X] = best[0];
}

/* Which threads of the warp have an odd number, and how many are active when the others sleep. */
KERNEL votes(const unsigned *in, unsigned *ballots, unsigned *active)
{
	unsigned i = BLOCK_X * WIDTH_X + THREAD_X;

	ballots[i] = __nvvm_vote_ballot_sync(0xffffffffu, in[i] % 2);
	active[i] = 0;
	if (in[i] % 2) {
		unsigned mask;

		asm volatile("activemask.b32 %0;" : "=r"(mask));
		active[i] = mask;
	}
}
