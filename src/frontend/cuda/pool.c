/* SPDX-License-Identifier: Apache-2.0 */
/* How pools work; the entry points are in pool_api.c. */
#include "frontend/cuda/pool.h"

#include "base/macro.h"
#include "frontend/cuda/handle.h"

#include <stdatomic.h>
#include <stdlib.h>

#define CHUNK	   (32ULL << 20) /* by which a pool grows */
#define CHUNK_UNIT (2ULL << 20)
#define SCAN	   256 /* pending blocks looked at for reuse in their own stream */
#define POLLS	   16  /* events asked about at once, when the newest is not done */

/* A place in a stream. Shared by the pieces of a block that was pending behind it. */
struct mark {
	uint32_t event;
	unsigned refs;
	unsigned long long ctx_uid;
	bool done;
	bool gone; /* the event went with its context */
};

/* What was freed in one stream, oldest first. Work of a stream completes in order, and so do the marks here. */
struct queue {
	struct aq_list link;
	struct aq_list pending;
	unsigned long long ctx_uid, stream_uid;
	uint32_t stream_id;
};

/* cuMemFreeAsync of memory that is not of a pool. */
struct deferred {
	struct aq_list link;
	uint64_t va;
	unsigned long long owner; /* context whose memory it is */
	bool lost;		  /* it went with that context */
	struct mark *mark;
};

pthread_mutex_t aq_fe_pool_lock = PTHREAD_MUTEX_INITIALIZER;

static struct aq_list pools = { &pools, &pools };
static struct aq_list deferred_frees = { &deferred_frees, &deferred_frees };
static struct aq_fe_pool *default_pool[AQ_WIRE_MAX_CARDS];
static struct aq_fe_pool *current_pool[AQ_WIRE_MAX_CARDS];

/* Whether synchronisation has anything to look at here: read without the lock. */
static _Atomic size_t in_pools;

#define block_of(l) aq_list_entry(l, struct aq_sub_block, link)

/* ---- marks ---- */

static void mark_put(struct mark *m)
{
	struct aq_req_event_destroy req = { .event = m->event };

	if (--m->refs > 0)
		return;
	if (!m->gone)
		(void)aq_fe_send(EVENT_DESTROY, event_destroy, &req);
	aq_fe_id_free(AQ_FE_ID_EVENT, m->event);
	free(m);
}

static struct mark *mark_new(struct aq_fe_stream *stream)
{
	struct mark *m = calloc(1, sizeof(*m));
	struct aq_req_event_create create = { .ctx = stream->ctx->id,
					      .flags = CU_EVENT_DISABLE_TIMING };
	struct aq_req_event_record record = { .ctx = stream->ctx->id, .stream = stream->id };

	if (!m)
		return NULL;
	m->event = aq_fe_id_new(AQ_FE_ID_EVENT);
	if (m->event == 0) {
		free(m);
		return NULL;
	}
	m->refs = 1;
	m->ctx_uid = stream->ctx->unique_id;
	create.event = record.event = m->event;
	if (aq_fe_send(EVENT_CREATE, event_create, &create) == CUDA_SUCCESS &&
	    aq_fe_send(EVENT_RECORD, event_record, &record) == CUDA_SUCCESS)
		return m;
	mark_put(m);
	return NULL;
}

static bool mark_is_done(struct mark *m)
{
	struct aq_req_event_query req = { .event = m->event };
	struct aq_rep_event_query rep;

	/* Whatever else the answer is: after a fault nothing runs any more. */
	if (!m->done && !m->gone &&
	    aq_fe_call(EVENT_QUERY, event_query, &req, &rep) == CUDA_ERROR_NOT_READY)
		return false;
	m->done = true;
	return true;
}

/* ---- queues ---- */

static struct queue *queue_of(struct aq_fe_pool *p, const struct aq_fe_stream *s, bool make)
{
	struct queue *q = NULL;

	aq_list_for_each(q, &p->queues, link) {
		if (q->ctx_uid == s->ctx->unique_id && q->stream_id == s->id &&
		    q->stream_uid == s->unique_id)
			return q;
	}
	q = make ? calloc(1, sizeof(*q)) : NULL;
	if (!q)
		return NULL;
	q->ctx_uid = s->ctx->unique_id;
	q->stream_uid = s->unique_id;
	q->stream_id = s->id;
	aq_list_init(&q->pending);
	aq_list_push_front(&p->queues, &q->link);
	return q;
}

static void unpend(struct aq_fe_pool *p, struct aq_sub_block *b)
{
	aq_list_remove(&b->link);
	p->n_pending--;
	(void)atomic_fetch_sub_explicit(&in_pools, 1, memory_order_relaxed);
}

static void settle(struct aq_fe_pool *p, struct aq_sub_block *b)
{
	mark_put(b->mark);
	unpend(p, b);
	aq_sub_release(&p->sub, b);
}

/* Settle what is known or found to be done. */
static void queue_poll(struct aq_fe_pool *p, struct queue *q)
{
	if (aq_list_is_empty(&q->pending))
		return;
	if (mark_is_done(block_of(q->pending.prev)->mark)) {
		while (!aq_list_is_empty(&q->pending))
			settle(p, block_of(q->pending.next));
		return;
	}
	for (int i = 0; i < POLLS && mark_is_done(block_of(q->pending.next)->mark); i++)
		settle(p, block_of(q->pending.next));
}

static void poll_all(struct aq_fe_pool *p)
{
	struct queue *q = NULL, *tmp = NULL;

	aq_list_for_each_safe(q, tmp, &p->queues, link) {
		queue_poll(p, q);
		if (aq_list_is_empty(&q->pending)) {
			aq_list_remove(&q->link);
			free(q);
		}
	}
}

static void deferred_poll(void)
{
	struct deferred *d = NULL, *tmp = NULL;

	aq_list_for_each_safe(d, tmp, &deferred_frees, link) {
		if (!mark_is_done(d->mark))
			continue;
		if (!d->lost)
			(void)aq_fe_seg_free(d->va);
		mark_put(d->mark);
		aq_list_remove(&d->link);
		(void)atomic_fetch_sub_explicit(&in_pools, 1, memory_order_relaxed);
		free(d);
	}
}

/* ---- pools ---- */

struct aq_fe_pool *aq_fe_pool_new_locked(struct aq_fe_device *dev, const CUmemPoolProps *props)
{
	struct aq_fe_pool *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->dev = dev;
	p->props = *props;
	p->follow_events = p->opportunistic = p->internal_deps = true;
	p->access[dev->ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	aq_sub_init(&p->sub);
	aq_list_init(&p->queues);
	if (!aq_fe_handle_add(AQ_FE_POOL, p)) {
		free(p);
		return NULL;
	}
	aq_list_push_back(&pools, &p->link);
	return p;
}

static void chunk_drop(struct aq_fe_pool *p, struct aq_sub_chunk *c)
{
	aq_sub_chunk_remove(&p->sub, c);
	(void)atomic_fetch_sub_explicit(&in_pools, 1, memory_order_relaxed);
}

void aq_fe_pool_trim_locked(struct aq_fe_pool *p, uint64_t keep)
{
	struct aq_sub_chunk *c = NULL, *tmp = NULL;
	uint64_t va = 0;

	poll_all(p);
	aq_list_for_each_safe(c, tmp, &p->sub.chunks, link) {
		if (!aq_sub_chunk_is_idle(c) || p->sub.reserved - c->size < keep)
			continue;
		va = c->va;
		chunk_drop(p, c);
		(void)aq_fe_seg_free(va);
	}
}

/* What synchronisation does: give back what is above the threshold, bury what is dead. */
static void tidy(struct aq_fe_pool *p)
{
	struct aq_sub_chunk *c = NULL, *tmp = NULL;
	uint64_t va = 0;

	aq_list_for_each_safe(c, tmp, &p->sub.chunks, link) {
		if (p->sub.reserved <= p->threshold && !p->dead)
			break;
		if (!aq_sub_chunk_is_idle(c))
			continue;
		va = c->va;
		chunk_drop(p, c);
		(void)aq_fe_seg_free(va);
	}
	if (!p->dead || !aq_list_is_empty(&p->sub.chunks))
		return;
	poll_all(p); /* frees the empty queues */
	aq_list_remove(&p->link);
	free(p);
}

void aq_fe_pool_destroy_locked(struct aq_fe_pool *p)
{
	for (unsigned i = 0; i < AQ_WIRE_MAX_CARDS; i++) {
		if (current_pool[i] == p)
			current_pool[i] = default_pool[i];
	}
	p->dead = true;
	poll_all(p);
	tidy(p);
}

struct aq_fe_pool *aq_fe_pool_default_locked(struct aq_fe_device *dev)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, dev->ordinal } };
	struct aq_fe_pool **at = &default_pool[dev->ordinal];

	if (!*at) {
		*at = aq_fe_pool_new_locked(dev, &props);
		if (*at)
			(*at)->is_default = true;
	}
	return *at;
}

struct aq_fe_pool *aq_fe_pool_current_locked(struct aq_fe_device *dev)
{
	struct aq_fe_pool *p = current_pool[dev->ordinal];

	return p ? p : aq_fe_pool_default_locked(dev);
}

void aq_fe_pool_set_current_locked(struct aq_fe_device *dev, struct aq_fe_pool *p)
{
	current_pool[dev->ordinal] = p;
}

/* ---- allocation ---- */

/* The smallest of the recently freed blocks of the stream's own that fits. */
static struct aq_sub_block *take_own(struct aq_fe_pool *p, struct aq_fe_stream *stream,
				     uint64_t size)
{
	struct queue *q = queue_of(p, stream, false);
	struct aq_sub_block *b = NULL, *best = NULL, *rest = NULL;
	struct mark *m = NULL;
	struct aq_list *at = NULL;
	int n = 0;

	if (!q)
		return NULL;
	for (at = q->pending.prev; at != &q->pending && n < SCAN; at = at->prev, n++) {
		b = block_of(at);
		if (b->node.size >= size && (!best || b->node.size < best->node.size))
			best = b;
		if (b->node.size == size)
			break;
	}
	if (!best)
		return NULL;
	m = best->mark;
	at = best->link.prev;
	if (!aq_sub_revive(&p->sub, best, size, &rest))
		return NULL;
	unpend(p, best);
	if (!rest) {
		mark_put(m);
		return best;
	}
	/* The rest waits in the same place of the queue, behind the same mark. */
	aq_list_insert_after(at, &rest->link);
	p->n_pending++;
	(void)atomic_fetch_add_explicit(&in_pools, 1, memory_order_relaxed);
	return best;
}

/* Make the stream wait for somebody else's free, and take its block. */
static struct aq_sub_block *take_behind(struct aq_fe_pool *p, struct aq_fe_stream *stream,
					uint64_t size)
{
	struct aq_req_stream_wait_event req = { .ctx = stream->ctx->id, .stream = stream->id };
	struct aq_sub_block *b = NULL, *rest = NULL;
	struct aq_list *at = NULL;
	struct queue *q = NULL;
	struct mark *m = NULL;

	aq_list_for_each(q, &p->queues, link) {
		if (q->ctx_uid != stream->ctx->unique_id)
			continue;
		aq_list_for_each(b, &q->pending, link) {
			if (b->node.size < size)
				continue;
			m = b->mark;
			req.event = m->event;
			at = b->link.prev;
			if (aq_fe_send(STREAM_WAIT_EVENT, stream_wait_event, &req) !=
				    CUDA_SUCCESS ||
			    !aq_sub_revive(&p->sub, b, size, &rest))
				return NULL;
			unpend(p, b);
			if (!rest) {
				mark_put(m);
				return b;
			}
			aq_list_insert_after(at, &rest->link);
			p->n_pending++;
			(void)atomic_fetch_add_explicit(&in_pools, 1, memory_order_relaxed);
			return b;
		}
	}
	return NULL;
}

/* A context on the pool's card, to allocate in. */
static struct aq_fe_ctx *ctx_for(struct aq_fe_pool *p, struct aq_fe_stream *stream)
{
	struct aq_fe_ctx *primary = NULL;

	if (stream->ctx->dev == p->dev)
		return stream->ctx;
	/* Not aq_fe_primary(): its lock comes before the pools'. Once made, a primary context stays. */
	primary = __atomic_load_n(&p->dev->primary, __ATOMIC_ACQUIRE);
	return primary && aq_fe_ctx_status(primary) == CUDA_SUCCESS ? primary : NULL;
}

static CUresult grow(struct aq_fe_pool *p, struct aq_fe_stream *stream, uint64_t size)
{
	uint64_t exact = aq_align_up(size, CHUNK_UNIT), want = AQ_MAX(exact, CHUNK);
	uint64_t limit = p->props.maxSize ? p->props.maxSize : UINT64_MAX;
	struct aq_fe_ctx *ctx = ctx_for(p, stream);
	struct aq_rep_mem_alloc rep;
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (exact > limit || p->sub.reserved > limit - exact)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (want <= limit && p->sub.reserved <= limit - want)
		res = aq_fe_seg_alloc(ctx, AQ_MEM_DEVICE, want, &rep);
	if (res == CUDA_ERROR_OUT_OF_MEMORY && exact < want) {
		want = exact;
		res = aq_fe_seg_alloc(ctx, AQ_MEM_DEVICE, want, &rep);
	}
	if (res != CUDA_SUCCESS)
		return res;
	if (!aq_sub_chunk_add(&p->sub, rep.va, want, ctx->unique_id)) {
		(void)aq_fe_seg_free(rep.va);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	(void)atomic_fetch_add_explicit(&in_pools, 1, memory_order_relaxed);
	p->reserved_high = AQ_MAX(p->reserved_high, p->sub.reserved);
	return CUDA_SUCCESS;
}

static bool release_locked(const struct aq_fe_device *dev)
{
	struct aq_fe_pool *p = NULL;
	uint64_t before = 0;
	bool any = false;

	deferred_poll();
	aq_list_for_each(p, &pools, link) {
		if (p->dev != dev)
			continue;
		before = p->sub.reserved;
		aq_fe_pool_trim_locked(p, 0);
		any = any || p->sub.reserved != before;
	}
	return any;
}

bool aq_fe_pool_release(const struct aq_fe_device *dev)
{
	bool any = false;

	if (atomic_load_explicit(&in_pools, memory_order_relaxed) == 0)
		return false;
	(void)pthread_mutex_lock(&aq_fe_pool_lock);
	any = release_locked(dev);
	(void)pthread_mutex_unlock(&aq_fe_pool_lock);
	return any;
}

static CUresult find_block(struct aq_fe_pool *p, struct aq_fe_stream *stream, uint64_t size,
			   struct aq_sub_block **ret)
{
	CUresult res = CUDA_SUCCESS;

	*ret = take_own(p, stream, size);
	if (!*ret)
		*ret = aq_sub_take(&p->sub, size);
	if (!*ret && p->opportunistic && p->n_pending > 0) {
		poll_all(p);
		*ret = aq_sub_take(&p->sub, size);
	}
	if (!*ret && p->internal_deps)
		*ret = take_behind(p, stream, size);
	if (*ret)
		return CUDA_SUCCESS;
	res = grow(p, stream, size);
	if (res == CUDA_ERROR_OUT_OF_MEMORY && release_locked(p->dev))
		res = grow(p, stream, size);
	if (res == CUDA_SUCCESS)
		*ret = aq_sub_take(&p->sub, size);
	return *ret || res != CUDA_SUCCESS ? res : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult aq_fe_pool_alloc_locked(struct aq_fe_pool *p, struct aq_fe_stream *stream, uint64_t size,
				 uint64_t *ret_va)
{
	struct aq_fe_range r = { .size = size, .kind = AQ_FE_RANGE_POOL, .dev = p->dev, .pool = p };
	struct aq_sub_block *b = NULL;
	CUresult res = CUDA_SUCCESS;

	if (size > p->dev->info.memory_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = find_block(p, stream, aq_align_up(size, AQ_SUB_ALIGN), &b);
	if (res != CUDA_SUCCESS)
		return res;
	r.va = b->node.va;
	r.ctx = stream->ctx;
	r.ctx_uid = b->chunk->owner;
	if (!aq_fe_range_add(&r)) {
		aq_sub_release(&p->sub, b);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	p->used += b->node.size;
	p->used_high = AQ_MAX(p->used_high, p->used);
	*ret_va = r.va;
	return CUDA_SUCCESS;
}

/* ---- freeing ---- */

/* For want of a mark. Not aq_fe_stream_sync(): that would come back here for the lock. */
static CUresult drain(const struct aq_fe_stream *stream)
{
	struct aq_req_stream_sync req = { stream->ctx->id, stream->id };
	struct aq_rep_stream_sync rep;

	return aq_fe_call(STREAM_SYNC, stream_sync, &req, &rep);
}

static CUresult free_deferred(const struct aq_fe_range *r, struct aq_fe_stream *stream)
{
	struct deferred *d = calloc(1, sizeof(*d));

	if (d)
		d->mark = mark_new(stream);
	if (!d || !d->mark) {
		free(d);
		(void)drain(stream);
		return aq_fe_seg_free(r->va);
	}
	d->va = r->va;
	d->owner = r->ctx_uid;
	aq_list_push_back(&deferred_frees, &d->link);
	(void)atomic_fetch_add_explicit(&in_pools, 1, memory_order_relaxed);
	return CUDA_SUCCESS;
}

CUresult aq_fe_pool_free_locked(const struct aq_fe_range *r, struct aq_fe_stream *stream)
{
	struct aq_fe_pool *p = r->pool;
	struct aq_sub_block *b = NULL;
	struct queue *q = NULL;
	struct mark *m = NULL;

	if (r->kind != AQ_FE_RANGE_POOL)
		return free_deferred(r, stream);
	b = aq_sub_find(&p->sub, r->va);
	if (!b)
		return CUDA_ERROR_INVALID_VALUE;
	p->used -= b->node.size;
	q = queue_of(p, stream, true);
	m = q ? mark_new(stream) : NULL;
	if (!m) {
		(void)drain(stream);
		aq_sub_release(&p->sub, b);
		return CUDA_SUCCESS;
	}
	aq_sub_pend(&p->sub, b, m);
	aq_list_push_back(&q->pending, &b->link);
	p->n_pending++;
	(void)atomic_fetch_add_explicit(&in_pools, 1, memory_order_relaxed);
	return CUDA_SUCCESS;
}

/* cuMemFree of stream-ordered memory: its user has seen to it that nothing uses it any more. */
CUresult aq_fe_pool_free_now(const struct aq_fe_range *r)
{
	struct aq_fe_pool *p = r->pool;
	struct aq_sub_block *b = NULL;

	(void)pthread_mutex_lock(&aq_fe_pool_lock);
	b = aq_sub_find(&p->sub, r->va);
	if (b) {
		p->used -= b->node.size;
		aq_sub_release(&p->sub, b);
		tidy(p);
	}
	(void)pthread_mutex_unlock(&aq_fe_pool_lock);
	return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- what others tell ---- */

static void synced(unsigned long long ctx_uid, const struct aq_fe_stream *stream)
{
	struct aq_fe_pool *p = NULL, *next_pool = NULL;
	struct queue *q = NULL, *tmp = NULL;

	if (atomic_load_explicit(&in_pools, memory_order_relaxed) == 0)
		return;
	(void)pthread_mutex_lock(&aq_fe_pool_lock);
	deferred_poll();
	aq_list_for_each_safe(p, next_pool, &pools, link) {
		/* That the stream is idle now was true a moment ago; another thread may have freed since. So the marks are asked. */
		aq_list_for_each_safe(q, tmp, &p->queues, link) {
			if (q->ctx_uid == ctx_uid &&
			    (!stream ||
			     (q->stream_id == stream->id && q->stream_uid == stream->unique_id)))
				queue_poll(p, q);
		}
		tidy(p);
	}
	(void)pthread_mutex_unlock(&aq_fe_pool_lock);
}

void aq_fe_pool_stream_synced(struct aq_fe_stream *stream)
{
	synced(stream->ctx->unique_id, stream);
}

void aq_fe_pool_ctx_synced(struct aq_fe_ctx *ctx)
{
	synced(ctx->unique_id, NULL);
}

static void chunk_of_dead_ctx(struct aq_fe_pool *p, struct aq_sub_chunk *c)
{
	struct aq_sub_block *b = NULL, *tmp = NULL;

	aq_list_for_each_safe(b, tmp, &c->blocks, in_chunk) {
		if (b->state == AQ_SUB_USED)
			p->used -= b->node.size;
		if (b->state != AQ_SUB_PENDING)
			continue;
		mark_put(b->mark);
		unpend(p, b);
	}
	chunk_drop(p, c);
}

/* The server has freed the context's memory and events; its marks are done. */
void aq_fe_pool_ctx_gone(struct aq_fe_ctx *ctx)
{
	struct aq_fe_pool *p = NULL, *next_pool = NULL;
	struct aq_sub_chunk *c = NULL, *next_chunk = NULL;
	struct aq_sub_block *b = NULL;
	struct deferred *d = NULL;
	struct queue *q = NULL;

	(void)pthread_mutex_lock(&aq_fe_pool_lock);
	aq_list_for_each(d, &deferred_frees, link) {
		d->lost = d->lost || d->owner == ctx->unique_id;
		if (d->mark->ctx_uid == ctx->unique_id)
			d->mark->gone = true;
	}
	aq_list_for_each_safe(p, next_pool, &pools, link) {
		aq_list_for_each(q, &p->queues, link) {
			if (q->ctx_uid != ctx->unique_id)
				continue;
			aq_list_for_each(b, &q->pending, link)
				((struct mark *)b->mark)->gone = true;
		}
		aq_list_for_each_safe(c, next_chunk, &p->sub.chunks, link) {
			if (c->owner == ctx->unique_id)
				chunk_of_dead_ctx(p, c);
		}
		poll_all(p);
		tidy(p);
	}
	deferred_poll();
	(void)pthread_mutex_unlock(&aq_fe_pool_lock);
}

void aq_fe_pool_forked(void)
{
	(void)pthread_mutex_init(&aq_fe_pool_lock, NULL);
	aq_list_init(&pools);
	aq_list_init(&deferred_frees);
	for (unsigned i = 0; i < AQ_WIRE_MAX_CARDS; i++)
		default_pool[i] = current_pool[i] = NULL;
	atomic_store_explicit(&in_pools, 0, memory_order_relaxed);
}

/* Queues know streams by number only; what was freed in this one becomes usable elsewhere when its marks are done. */
void aq_fe_pool_stream_gone(struct aq_fe_stream *stream)
{
	(void)stream;
}
