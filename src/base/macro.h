/* SPDX-License-Identifier: Apache-2.0 */
/* Small macros that every folder may use. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define AQ_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define AQ_MIN(a, b)	 ((a) < (b) ? (a) : (b))
#define AQ_MAX(a, b)	 ((a) > (b) ? (a) : (b))

/* The object of type `type` whose member `member` is at `ptr`. */
#define aq_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define AQ_KIB (1024ULL)
#define AQ_MIB (1024ULL * 1024)
#define AQ_GIB (1024ULL * 1024 * 1024)

#define AQ_NS_PER_US 1000ULL
#define AQ_NS_PER_MS 1000000ULL
#define AQ_NS_PER_S  1000000000ULL

/* Round up to a power of two; the caller knows that it does not overflow. */
static inline uint64_t aq_align_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) & ~(align - 1);
}

static inline uint64_t aq_align_down(uint64_t value, uint64_t align)
{
	return value & ~(align - 1);
}

/* One hint to the core that this is a spin loop. */
static inline void aq_cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}
