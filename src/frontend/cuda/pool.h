/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered pools. A pool cuts chunks of device memory into blocks and knows when a freed block may be used again: in the stream that
 * freed it at once; elsewhere when the event recorded behind the free has completed.
 */
#pragma once

#include "frontend/cuda/mem.h"
#include "frontend/cuda/suballoc.h"

struct aq_fe_pool {
	struct aq_list link;
	struct aq_fe_device *dev;
	CUmemPoolProps props;
	struct aq_suballoc sub;
	struct aq_list queues; /* of pending blocks, one a stream */
	bool is_default;
	bool dead; /* destroyed; goes when its last block does */
	bool follow_events, opportunistic, internal_deps;
	uint64_t threshold;
	uint64_t reserved_high, used, used_high;
	size_t n_pending;
	uint8_t access[AQ_WIRE_MAX_CARDS]; /* CUmemAccess_flags by ordinal */
};

/* Guards all pools. Taken before any other lock of the memory files. */
extern pthread_mutex_t aq_fe_pool_lock;

struct aq_fe_pool *aq_fe_pool_new_locked(struct aq_fe_device *dev, const CUmemPoolProps *props);
void aq_fe_pool_destroy_locked(struct aq_fe_pool *p);

/* The default pool of a device, made at the first need; and its current one. NULL: no memory. */
struct aq_fe_pool *aq_fe_pool_default_locked(struct aq_fe_device *dev);
struct aq_fe_pool *aq_fe_pool_current_locked(struct aq_fe_device *dev);
void aq_fe_pool_set_current_locked(struct aq_fe_device *dev, struct aq_fe_pool *p);

/* A block for work that comes behind everything in the stream so far. Enters the table. */
CUresult aq_fe_pool_alloc_locked(struct aq_fe_pool *p, struct aq_fe_stream *stream, uint64_t size,
				 uint64_t *ret_va);

/* Free what the table has already forgotten, behind everything in the stream so far. */
CUresult aq_fe_pool_free_locked(const struct aq_fe_range *r, struct aq_fe_stream *stream);

/* Give idle chunks back while at least `keep` bytes stay reserved. */
void aq_fe_pool_trim_locked(struct aq_fe_pool *p, uint64_t keep);
