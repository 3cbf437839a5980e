/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caching allocator of the kind that PyTorch documents: requests are rounded to 512 bytes and cut out of segments (2 MiB for requests up to
 * 1 MiB, 20 MiB below 10 MiB, else the request in steps of 2 MiB) that belong to one stream and one pool; when the driver is out of memory
 * it gets back all segments that lie idle and is asked again. Segments come from cuMemAlloc, or are address ranges larger than the card that
 * physical memory is mapped into ("expandable segments").
 */
#pragma once

#include "workload.h"

struct caching;

struct caching_stats {
	uint64_t reserved;  /* bytes of the driver */
	uint64_t allocated; /* bytes handed out */
	uint64_t peak;	    /* highest allocated */
	unsigned segments;  /* times that the driver was asked and gave */
	unsigned retries;   /* times that the driver was asked again */
	unsigned ooms;	    /* requests that failed */
};

struct caching *caching_new(CUdevice dev, bool expandable);

/* Gives all to the driver, whoever uses it. Returns how many of its calls of the driver had a wrong result. */
int caching_done(struct caching *c);

/* pool 0 is everybody's, others are private. CUDA_SUCCESS, or what the driver said. */
CUresult caching_alloc(struct caching *c, size_t size, CUstream stream, unsigned pool,
		       CUdeviceptr *ret);
void caching_release(struct caching *c, CUdeviceptr p);

/* Give idle memory of a pool back to the driver ("empty_cache"). */
void caching_empty(struct caching *c, unsigned pool);

const struct caching_stats *caching_stats(const struct caching *c);
