/* SPDX-License-Identifier: Apache-2.0 */
/* futex(2) on words in memory that two processes share. errno is left as it was. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/*
 * Sleep while *word == expected, at most timeout_ns (UINT64_MAX: no limit). Returns 0 when woken or when the word has
 * another value, -ETIMEDOUT, -EINTR.
 */
int aq_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);

/* Wake at most `count` sleepers. */
void aq_futex_wake(_Atomic uint32_t *word, int count);
