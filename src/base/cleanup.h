/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locals that release themselves. Always initialise where declared: an uninitialised one releases garbage
 * (tools/check-style refuses it).
 */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static inline void aq_free_ptr(void *p)
{
	free(*(void **)p);
}

static inline void aq_close_ptr(const int *fd)
{
	if (*fd >= 0) {
		int saved = errno;

		(void)close(*fd);
		errno = saved;
	}
}

#define aq_auto_free  __attribute__((cleanup(aq_free_ptr)))
#define aq_auto_close __attribute__((cleanup(aq_close_ptr)))
#define aq_auto(fn)   __attribute__((cleanup(fn)))

/* Hand an owned pointer on: yields it and leaves NULL behind. */
#define aq_take_ptr(p)                         \
	({                                     \
		__typeof__(p) aq_taken_ = (p); \
		(p) = NULL;                    \
		aq_taken_;                     \
	})

/* Hand an owned file descriptor on: yields it and leaves -1 behind. */
#define aq_take_fd(fd)                \
	({                            \
		int aq_taken_ = (fd); \
		(fd) = -1;            \
		aq_taken_;            \
	})
