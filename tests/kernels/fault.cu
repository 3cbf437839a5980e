/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that go wrong on purpose, each in one way. */
#include "device.h"

KERNEL store_at(unsigned long long address, int value)
{
	*(volatile int *)address = value;
}

KERNEL load_at(unsigned long long address, int *out)
{
	*out = *(volatile int *)address;
}

KERNEL atomic_at(unsigned long long address)
{
	ATOMIC_ADD((int *)address, 1);
}

/* Only this thread of this block traps; the others write 1. */
KERNEL trap_in(unsigned block, unsigned thread, int *out)
{
	if (BLOCK_X == block && THREAD_X == thread)
		asm volatile("trap;");
	out[BLOCK_X * WIDTH_X + THREAD_X] = 1;
}

/* Beyond the block's shared memory. */
KERNEL shared_at(unsigned index, int *out)
{
	__shared__ int part[32];

	part[THREAD_X % 32] = 5;
	BARRIER();
	out[0] = ((volatile int *)part)[index];
}
