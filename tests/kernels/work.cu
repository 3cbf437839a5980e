/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that take time: by the card's clock, asleep, or computing. */
#include "device.h"

__device__ static unsigned long long now(void)
{
	unsigned long long ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

/* For so long on the card's clock, mostly asleep: long for the card, cheap to run. out[0] and out[1] are its beginning and end. */
KERNEL nap(unsigned long long ns, unsigned long long *out)
{
	unsigned long long begin = now();

	while (now() < begin + ns)
		asm volatile("nanosleep.u32 20000;");
	if (out && THREAD_X == 0 && BLOCK_X == 0) {
		out[0] = begin;
		out[1] = now();
	}
}

/* Until *flag is not 0: another kernel or the processor must come in between. */
KERNEL wait_flag(const int *flag)
{
	while (*(const volatile int *)flag == 0)
		asm volatile("nanosleep.u32 20000;");
}

KERNEL set_flag(int *flag)
{
	*(volatile int *)flag = 1;
}

/* rounds × 8 multiply-adds a thread. */
KERNEL fma_loop(unsigned rounds, float a, float *out)
{
	float x[8];

	for (int k = 0; k < 8; k++)
		x[k] = (float)(int)THREAD_X + (float)k;
	for (unsigned i = 0; i < rounds; i++)
#pragma unroll
		for (int k = 0; k < 8; k++)
			x[k] = x[k] * a + 1.0f;
	for (int k = 1; k < 8; k++)
		x[0] += x[k];
	out[BLOCK_X * WIDTH_X + THREAD_X] = x[0];
}

/* rounds × 4 steps of a generator of pseudo-random numbers a thread, six integer instructions each. */
KERNEL int_loop(unsigned rounds, unsigned seed, unsigned *out)
{
	unsigned x = seed ^ (BLOCK_X * WIDTH_X + THREAD_X + 1);

	for (unsigned i = 0; i < rounds; i++)
#pragma unroll
		for (int k = 0; k < 4; k++) {
			x ^= x << 13;
			x ^= x >> 17;
			x ^= x << 5;
		}
	out[BLOCK_X * WIDTH_X + THREAD_X] = x;
}

KERNEL nothing(void)
{
}
