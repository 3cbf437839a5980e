/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of memory: an open context, and contents that are recognised. */
#pragma once

#include "e2e.h"

#include <stdint.h>

#define INVALID(call) CHECK_RC(call, CUDA_ERROR_INVALID_VALUE)

/* What the rest cannot go on without. */
#define NEED(call)                                                                             \
	do {                                                                                   \
		CUresult rc_ = (call);                                                         \
		if (rc_ != CUDA_SUCCESS) {                                                     \
			(void)printf("Bail out! %s:%d: %s is %s\n", __FILE__, __LINE__, #call, \
				     e2e_name(rc_));                                           \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

static inline CUcontext open_context(CUdevice ordinal)
{
	CUcontext ctx = NULL;
	CUdevice dev = 0;

	NEED(cuInit(0));
	NEED(cuDeviceGet(&dev, ordinal));
	NEED(cuDevicePrimaryCtxRetain(&ctx, dev));
	NEED(cuCtxSetCurrent(ctx));
	return ctx;
}

static inline uint8_t pattern_at(size_t i, uint32_t seed)
{
	return (uint8_t)((i * 2654435761U + seed * 40503U) >> 13);
}

/* Bytes that differ at every place of a few megabytes. */
static inline void put_pattern(void *buf, size_t size, uint32_t seed)
{
	uint8_t *p = buf;

	for (size_t i = 0; i < size; i++)
		p[i] = pattern_at(i, seed);
}

static inline int has_pattern(const void *buf, size_t size, uint32_t seed)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < size; i++) {
		if (p[i] != pattern_at(i, seed))
			return 0;
	}
	return 1;
}

static inline int all_bytes(const void *buf, size_t size, uint8_t value)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < size; i++) {
		if (p[i] != value)
			return 0;
	}
	return 1;
}
