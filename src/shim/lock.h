/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock in this process' own memory, never in shared memory. Not pthread's: that one moved between libraries and symbol versions, and this one can
 * be reset in a forked child by writing zero.
 */
#pragma once

#include "base/futex.h"
#include "base/macro.h"

#include <stdatomic.h>
#include <stdint.h>

/* 0: free, 1: held, 2: held and somebody sleeps. */
struct aq_lock {
	_Atomic uint32_t word;
};

static inline void aq_lock(struct aq_lock *l)
{
	uint32_t seen = 0;

	if (atomic_compare_exchange_strong_explicit(&l->word, &seen, 1, memory_order_acquire,
						    memory_order_relaxed))
		return;
	for (int i = 0; i < 100; i++) {
		seen = 0;
		if (atomic_compare_exchange_weak_explicit(&l->word, &seen, 1, memory_order_acquire,
							  memory_order_relaxed))
			return;
		aq_cpu_relax();
	}
	while (atomic_exchange_explicit(&l->word, 2, memory_order_acquire))
		(void)aq_futex_wait(&l->word, 2, UINT64_MAX);
}

static inline void aq_unlock(struct aq_lock *l)
{
	if (atomic_exchange_explicit(&l->word, 0, memory_order_release) == 2)
		aq_futex_wake(&l->word, 1);
}
