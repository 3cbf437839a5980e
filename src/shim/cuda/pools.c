/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered pools. What counts is what a pool has reserved, which only the provider knows: it grows in chunks when something is allocated, and
 * shrinks when the process synchronises or trims.
 *
 * An allocation reserves the most by which the pool may grow. Afterwards the pool is read and what it has grown by is committed. Several threads
 * may be between the two, and whoever reads first sees the growth that others have caused: so their reservations lie in one bag a pool.
 */
#include "shim/cuda/shim.h"

#include "base/macro.h"
#include "shim/log.h"

#include <errno.h>
#include <string.h>

#define MAX_POOLS 1024U
#define CHUNK	  (2 * AQ_MIB)	/* the unit by which a pool grows */
#define STEP	  (32 * AQ_MIB) /* the least by which it does, until it has shown what that is */

struct pool {
	CUmemoryPool handle; /* NULL: a free place */
	int card;	     /* AQ_NO_CARD: not memory of a card */
	uint64_t charged;    /* of `used`: what the pool had reserved when it was last read */
	uint64_t bag;	     /* of `pending`: reserved for growth */
	uint64_t wanted;     /* by the threads that are allocating */
	uint64_t step;	     /* the least by which it grows, as far as is known */
};

static struct pool pools[MAX_POOLS];
static _Atomic unsigned n_pools;
static struct aq_lock lock;

_Atomic uint32_t aq_pools_stale;

#define MAX_ORPHANS \
	256U /* an owner below is no pool's handle but the number of one of these, counted from 1 */

/* The charge of a destroyed pool, until the last of its allocations has been freed. */
static struct {
	uint64_t charged;
	uint32_t left;
	int card;
} orphans[MAX_ORPHANS];

void aq_pools_reset(void)
{
	memset(pools, 0, sizeof(pools[0]) * atomic_load(&n_pools));
	atomic_store(&n_pools, 0);
	atomic_store(&lock.word, 0);
	atomic_store(&aq_pools_stale, 0);
	memset(orphans, 0, sizeof(orphans));
}

/* The pool's place, made where needed; NULL when all are taken. Under the lock. */
static struct pool *find(CUmemoryPool handle, int card, bool make)
{
	struct pool *unused = NULL;
	unsigned n = atomic_load(&n_pools);

	for (unsigned i = 0; i < n; i++) {
		if (pools[i].handle == handle)
			return &pools[i];
		if (!pools[i].handle && !unused)
			unused = &pools[i];
	}
	if (!make)
		return NULL;
	if (!unused && n < MAX_POOLS) {
		unused = &pools[n];
		atomic_store(&n_pools, n + 1);
	}
	if (unused)
		*unused = (struct pool){ .handle = handle, .card = card, .step = STEP };
	return unused;
}

static bool read_attribute(CUmemoryPool handle, CUmemPool_attribute what, uint64_t *ret)
{
	CUstreamCaptureMode mode = aq_capture_relax();
	cuuint64_t value = 0;
	bool ok = AQ_CALL(cuMemPoolGetAttribute, handle, what, &value) == CUDA_SUCCESS;

	aq_capture_restore(mode);
	*ret = value;
	return ok;
}

/*
 * Bring the charge to what the pool has reserved. Growth comes out of the bag; what the bag does not hold is charged whatever the limit says,
 * since the provider has taken it: returns by how much then, for the caller to undo. Under the lock.
 */
static uint64_t settle(struct pool *p)
{
	uint64_t reserved;
	uint64_t over = 0;

	if (p->card == AQ_NO_CARD ||
	    !read_attribute(p->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved))
		return 0;
	if (reserved > p->charged) {
		uint64_t grown = reserved - p->charged;
		uint64_t covered = AQ_MIN(grown, p->bag);

		if (covered)
			aq_commit(p->card, covered);
		p->bag -= covered;
		over = grown - covered;
		if (over && aq_try_reserve(p->card, over) == 0) {
			aq_commit(p->card, over);
			over = 0;
		} else if (over) {
			aq_force(p->card, over);
		}
	} else if (reserved < p->charged) {
		aq_uncharge(p->card, p->charged - reserved);
	}
	p->charged = reserved;
	return over;
}

/* One thread's allocation is over: what the bag holds beyond what the others want goes back. */
static void empty_bag(struct pool *p, uint64_t wanted)
{
	p->wanted -= wanted;
	if (p->bag > p->wanted) {
		aq_withdraw(p->card, p->bag - p->wanted);
		p->bag = p->wanted;
	}
}

static bool settle_all(int card)
{
	bool shrunk = false;

	for (unsigned i = 0; i < atomic_load(&n_pools); i++) {
		uint64_t before = pools[i].charged;

		if (!pools[i].handle || (card != AQ_NO_CARD && pools[i].card != card))
			continue;
		(void)settle(&pools[i]);
		shrunk = shrunk || pools[i].charged < before;
	}
	return shrunk;
}

/* Have the pools give back what they keep unused, as a driver does when memory is short. Under the lock. */
static bool trim_all(int card)
{
	CUstreamCaptureMode mode = aq_capture_relax();

	for (unsigned i = 0; i < atomic_load(&n_pools); i++)
		if (pools[i].handle && pools[i].card == card && pools[i].charged)
			(void)AQ_CALL(cuMemPoolTrimTo, pools[i].handle, 0);
	aq_capture_restore(mode);
	return settle_all(card);
}

bool aq_pools_trim(int card)
{
	bool shrunk;

	if (!atomic_load(&n_pools))
		return false;
	aq_lock(&lock);
	shrunk = trim_all(card);
	aq_unlock(&lock);
	return shrunk;
}

bool aq_pools_settle(int card)
{
	bool shrunk;

	if (!atomic_load(&n_pools))
		return false;
	aq_lock(&lock);
	shrunk = settle_all(card);
	aq_unlock(&lock);
	return shrunk;
}

/* ---- what a destroyed pool leaves behind ---- */

static void orphan_freed(uint64_t number)
{
	aq_lock(&lock);
	if (orphans[number - 1].left && --orphans[number - 1].left == 0) {
		aq_uncharge(orphans[number - 1].card, orphans[number - 1].charged);
		orphans[number - 1].charged = 0;
	}
	aq_unlock(&lock);
}

static void orphan(CUmemoryPool handle, int card, uint64_t charged)
{
	unsigned number = 0;
	uint32_t left = 0;

	aq_lock(&lock);
	while (number < MAX_ORPHANS && orphans[number].charged)
		number++;
	if (number < MAX_ORPHANS) {
		orphans[number].charged = charged;
		orphans[number].card = card;
		orphans[number].left = UINT32_MAX; /* until they are counted */
	}
	aq_unlock(&lock);
	/* With none left it stays charged until the process ends: too much, never too little. */
	if (number == MAX_ORPHANS || !charged)
		return;
	for (unsigned s = 0; s < AQ_RANGE_STRIPES; s++) {
		uint32_t n = 0;
		struct aq_range *copy = aq_ranges_copy(&aq_held, s, &n);

		for (uint32_t i = 0; i < n; i++) {
			struct aq_range e;
			struct aq_range old;
			bool replaced;

			if (copy[i].kind != AQ_RANGE_POOLED || copy[i].owner != (uintptr_t)handle ||
			    !aq_ranges_take(&aq_held, copy[i].key, &e))
				continue;
			e.owner = number + 1;
			left += aq_ranges_insert(&aq_held, &e, &old, &replaced) == 0;
		}
		aq_ranges_drop(copy, n);
	}
	aq_lock(&lock);
	/* Those freed while this was counting are missing from UINT32_MAX. */
	left -= AQ_MIN(left, UINT32_MAX - orphans[number].left);
	orphans[number].left = left + 1;
	aq_unlock(&lock);
	orphan_freed(number + 1);
}

void aq_pool_freed(const struct aq_range *entry)
{
	if (entry->owner && entry->owner <= MAX_ORPHANS)
		orphan_freed(entry->owner);
	atomic_store_explicit(&aq_pools_stale, 1, memory_order_relaxed);
}

/* Whether the pool may serve that much without growing. */
static bool has_unused(const struct pool *p, uint64_t bytes)
{
	uint64_t reserved = 0;
	uint64_t used = 0;

	return read_attribute(p->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) &&
	       read_attribute(p->handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) &&
	       reserved >= used && reserved - used >= bytes;
}

/*
 * Prepare for an allocation of `bytes` out of a pool: reserve what it may grow by. *ret_wanted goes to after(). Where that does not fit, but the
 * pool holds enough unused memory, the provider is asked all the same: it may well not grow.
 */
static CUresult before(CUmemoryPool handle, int card, uint64_t bytes, uint64_t *ret_wanted)
{
	uint64_t want = bytes > UINT64_MAX - CHUNK ? UINT64_MAX : aq_align_up(bytes, CHUNK);
	CUresult rc = CUDA_SUCCESS;
	struct pool *p;

	*ret_wanted = 0;
	aq_lock(&lock);
	p = find(handle, card, true);
	if (!p) {
		aq_shim_log("more than %u memory pools: refused", MAX_POOLS);
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	} else if (p->card != AQ_NO_CARD) {
		want = AQ_MAX(want, p->step);
		/* The reserved attribute is read again before anything is refused. */
		if (aq_try_reserve(p->card, want) == 0 ||
		    (settle_all(p->card) && aq_try_reserve(p->card, want) == 0) ||
		    (!has_unused(p, bytes) && trim_all(p->card) &&
		     aq_try_reserve(p->card, want) == 0)) {
			p->bag += want;
			p->wanted += want;
			*ret_wanted = want;
		} else if (!has_unused(p, bytes)) {
			aq_refused(p->card, bytes);
			rc = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	aq_unlock(&lock);
	return rc;
}

/* After the provider's answer. Returns whether the pool has grown beyond the limit, so that the allocation has to be undone. */
static bool after(CUmemoryPool handle, uint64_t wanted, uint64_t bytes)
{
	uint64_t over = 0;
	struct pool *p;

	aq_lock(&lock);
	p = find(handle, AQ_NO_CARD, false);
	if (p && p->card != AQ_NO_CARD) {
		uint64_t before_it = p->charged;
		bool alone = p->wanted == wanted;

		over = settle(p);
		/* What something small makes it grow by is its step. */
		if (alone && bytes <= CHUNK && p->charged > before_it)
			p->step = p->charged - before_it;
		empty_bag(p, wanted);
	}
	aq_unlock(&lock);
	return over != 0;
}

/* An allocation that took the pool over the limit: free it in its stream; trimming takes effect as soon as the stream gets there. */
static CUresult undo(CUmemoryPool handle, CUdeviceptr *ptr, CUstream stream, bool per_thread,
		     uint64_t bytes)
{
	CUstreamCaptureMode mode = aq_capture_relax();
	struct pool *p;

	(void)(per_thread ? AQ_CALL(cuMemFreeAsync_ptsz, *ptr, stream)
			  : AQ_CALL(cuMemFreeAsync, *ptr, stream));
	*ptr = 0;
	(void)(per_thread ? AQ_CALL(cuStreamSynchronize_ptsz, stream)
			  : AQ_CALL(cuStreamSynchronize, stream));
	(void)AQ_CALL(cuMemPoolTrimTo, handle, 0);
	aq_capture_restore(mode);
	aq_lock(&lock);
	p = find(handle, AQ_NO_CARD, false);
	if (p) {
		(void)settle(p);
		aq_refused(p->card, bytes);
	}
	aq_unlock(&lock);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult finish(CUresult rc, CUmemoryPool handle, uint64_t wanted, CUdeviceptr *ptr,
		       CUstream stream, bool per_thread, uint64_t bytes)
{
	bool over = after(handle, wanted, bytes);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (over)
		return undo(handle, ptr, stream, per_thread, bytes);
	/* Charged with the pool; remembered so that a free by either call is known for what it is. Without memory for that it works, too. */
	(void)aq_hold(*ptr, AQ_RANGE_POOLED, AQ_NO_CARD, 0, (uintptr_t)handle);
	return CUDA_SUCCESS;
}

static CUresult device_of(CUstream stream, bool per_thread, CUdevice *ret)
{
	CUcontext ctx = NULL;
	CUcontext popped;
	CUresult rc;

	if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
	    aq_cards_devices() < 2)
		return AQ_CALL(cuCtxGetDevice, ret);
	rc = per_thread ? AQ_CALL(cuStreamGetCtx_ptsz, stream, &ctx)
			: AQ_CALL(cuStreamGetCtx, stream, &ctx);
	if (rc == CUDA_SUCCESS)
		rc = AQ_CALL(cuCtxPushCurrent_v2, ctx);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = AQ_CALL(cuCtxGetDevice, ret);
	(void)AQ_CALL(cuCtxPopCurrent_v2, &popped);
	return rc;
}

/* The pool that cuMemAllocAsync() takes from: the current one of the stream's device. */
static CUresult current_pool(CUstream stream, bool per_thread, CUmemoryPool *ret, int *ret_card)
{
	CUdevice dev = -1;
	CUresult rc = device_of(stream, per_thread, &dev);

	if (rc == CUDA_SUCCESS)
		rc = AQ_CALL(cuDeviceGetMemPool, ret, dev);
	if (rc == CUDA_SUCCESS)
		*ret_card = aq_card_of(dev);
	return rc;
}

static CUresult alloc_async(CUdeviceptr *dptr, size_t bytesize, CUstream stream, bool per_thread)
{
	CUmemoryPool pool = NULL;
	uint64_t wanted;
	int card = AQ_NO_CARD;
	CUresult rc = current_pool(stream, per_thread, &pool, &card);

	/* A device that is none of the instance's cards. */
	if (rc == CUDA_SUCCESS && card == AQ_NO_CARD)
		rc = CUDA_ERROR_NOT_PERMITTED;
	if (rc == CUDA_SUCCESS)
		rc = aq_capture_check(stream, per_thread, AQ_SLOT_cuMemAllocAsync);
	if (rc == CUDA_SUCCESS)
		rc = before(pool, card, bytesize, &wanted);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = per_thread ? AQ_CALL(cuMemAllocAsync_ptsz, dptr, bytesize, stream)
			: AQ_CALL(cuMemAllocAsync, dptr, bytesize, stream);
	return finish(rc, pool, wanted, dptr, stream, per_thread, bytesize);
}

AQ_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream stream)
{
	AQ_ENTER(cuMemAllocAsync, dptr, bytesize, stream);
	if (!dptr || !bytesize)
		return AQ_CALL(cuMemAllocAsync, dptr, bytesize, stream);
	return alloc_async(dptr, bytesize, stream, false);
}

AQ_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream stream)
{
	AQ_ENTER(cuMemAllocAsync_ptsz, dptr, bytesize, stream);
	if (!dptr || !bytesize)
		return AQ_CALL(cuMemAllocAsync_ptsz, dptr, bytesize, stream);
	return alloc_async(dptr, bytesize, stream, true);
}

/* A pool that no call of ours has made or named: a device's default one. AQ_NO_CARD: it is something else. */
static int card_of_default(CUmemoryPool pool)
{
	for (unsigned i = 0; i < aq_cards_devices(); i++) {
		CUmemoryPool other = NULL;

		if (AQ_CALL(cuDeviceGetDefaultMemPool, &other, (CUdevice)i) == CUDA_SUCCESS &&
		    other == pool)
			return aq_card_of((CUdevice)i);
	}
	return AQ_NO_CARD;
}

/* Whether the pool can be accounted; *ret_card counts for a pool that is new here. */
static bool is_accountable(CUmemoryPool pool, int *ret_card)
{
	bool known;

	*ret_card = AQ_NO_CARD;
	aq_lock(&lock);
	known = find(pool, AQ_NO_CARD, false) != NULL;
	aq_unlock(&lock);
	if (!known)
		*ret_card = card_of_default(pool);
	return known || *ret_card != AQ_NO_CARD;
}

static CUresult alloc_from(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream stream,
			   bool per_thread)
{
	uint64_t wanted;
	int card;
	CUresult rc = aq_capture_check(stream, per_thread, AQ_SLOT_cuMemAllocFromPoolAsync);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!is_accountable(pool, &card) && aq_limited()) {
		cuuint64_t value = 0;

		/* A handle that is none gets the provider's own error. */
		rc = AQ_CALL(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
			     &value);
		if (rc != CUDA_SUCCESS)
			return rc;
		return aq_refuse(AQ_SLOT_cuMemAllocFromPoolAsync, "a pool of unknown origin");
	}
	rc = before(pool, card, bytesize, &wanted);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = per_thread ? AQ_CALL(cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool, stream)
			: AQ_CALL(cuMemAllocFromPoolAsync, dptr, bytesize, pool, stream);
	return finish(rc, pool, wanted, dptr, stream, per_thread, bytesize);
}

/* A pool that the provider has named by its location: known from now on. */
static void meet(CUmemoryPool pool, const CUmemLocation *location)
{
	int card = AQ_NO_CARD;

	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
		card = aq_card_of(location->id);
		if (card == AQ_NO_CARD)
			return;
	}
	aq_lock(&lock);
	(void)find(pool, card, true);
	aq_unlock(&lock);
}

AQ_EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
					  CUmemAllocationType type)
{
	CUresult rc;

	AQ_ENTER(cuMemGetDefaultMemPool, pool, location, type);
	rc = AQ_CALL(cuMemGetDefaultMemPool, pool, location, type);
	if (rc == CUDA_SUCCESS)
		meet(*pool, location);
	return rc;
}

AQ_EXPORT CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location,
				   CUmemAllocationType type)
{
	CUresult rc;

	AQ_ENTER(cuMemGetMemPool, pool, location, type);
	rc = AQ_CALL(cuMemGetMemPool, pool, location, type);
	if (rc == CUDA_SUCCESS)
		meet(*pool, location);
	return rc;
}

AQ_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
					   CUstream stream)
{
	AQ_ENTER(cuMemAllocFromPoolAsync, dptr, bytesize, pool, stream);
	if (!dptr || !bytesize || !pool)
		return AQ_CALL(cuMemAllocFromPoolAsync, dptr, bytesize, pool, stream);
	return alloc_from(dptr, bytesize, pool, stream, false);
}

AQ_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize,
						CUmemoryPool pool, CUstream stream)
{
	AQ_ENTER(cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool, stream);
	if (!dptr || !bytesize || !pool)
		return AQ_CALL(cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool, stream);
	return alloc_from(dptr, bytesize, pool, stream, true);
}

/* ---- pools themselves ---- */

AQ_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	struct pool *p;
	int card = AQ_NO_CARD;
	CUresult rc;

	AQ_ENTER(cuMemPoolCreate, pool, props);
	if (props && props->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
		card = aq_card_of(props->location.id);
		if (card == AQ_NO_CARD && props->location.id >= 0 &&
		    (unsigned)props->location.id < aq_cards_devices())
			return CUDA_ERROR_NOT_PERMITTED;
	}
	rc = AQ_CALL(cuMemPoolCreate, pool, props);
	if (rc != CUDA_SUCCESS)
		return rc;
	aq_lock(&lock);
	/* A handle that is known is one whose pool is gone. */
	p = find(*pool, card, false);
	if (p && p->charged)
		aq_uncharge(p->card, p->charged);
	if (p)
		*p = (struct pool){ .handle = *pool, .card = card, .step = STEP };
	else
		p = find(*pool, card, true);
	aq_unlock(&lock);
	if (!p) {
		aq_shim_log("more than %u memory pools: refused", MAX_POOLS);
		(void)AQ_CALL(cuMemPoolDestroy, *pool);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/*
 * The provider keeps the memory of a destroyed pool until its last allocation has been freed, and the pool cannot be read any more. So its charge moves
 * to what it still holds, by address.
 */
AQ_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	uint64_t used = 0;
	struct pool *p;
	struct pool old = { 0 };
	CUresult rc;

	AQ_ENTER(cuMemPoolDestroy, pool);
	aq_lock(&lock);
	p = pool ? find(pool, AQ_NO_CARD, false) : NULL;
	if (p) {
		(void)settle(p);
		(void)read_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
		old = *p;
		/* Taken out before the handle can be given out again. */
		p->handle = NULL;
	}
	aq_unlock(&lock);
	rc = AQ_CALL(cuMemPoolDestroy, pool);
	if (!old.handle || old.card == AQ_NO_CARD)
		return rc;
	if (rc != CUDA_SUCCESS) {
		aq_lock(&lock);
		p = find(pool, old.card, true);
		if (p)
			*p = old;
		aq_unlock(&lock);
	} else if (used == 0) {
		aq_uncharge(old.card, old.charged);
	} else {
		orphan(pool, old.card, old.charged);
	}
	return rc;
}

AQ_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	struct pool *p;
	CUresult rc;

	AQ_ENTER(cuMemPoolTrimTo, pool, keep);
	rc = AQ_CALL(cuMemPoolTrimTo, pool, keep);
	aq_lock(&lock);
	p = pool ? find(pool, AQ_NO_CARD, false) : NULL;
	if (p)
		(void)settle(p);
	aq_unlock(&lock);
	return rc;
}
