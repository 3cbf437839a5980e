/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefetching of and advice about managed memory. Both sides share the pages, so nothing moves; what was said about which bytes is
 * kept and told when asked.
 */
#include "frontend/cuda/copy.h"

#include "base/macro.h"

#include <stdlib.h>
#include <string.h>

struct opinion {
	uint64_t begin, end;
	bool read_mostly;
	bool accessed_by_host;
	uint32_t accessed_by;		     /* bit per ordinal */
	CUmemLocation preferred, prefetched; /* type INVALID: none */
};

/* In order, without gaps. */
struct aq_fe_advice {
	unsigned n;
	struct opinion *of;
};

struct aq_fe_advice *aq_fe_advice_new(uint64_t va, uint64_t size)
{
	struct aq_fe_advice *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->of = calloc(1, sizeof(*a->of));
	if (!a->of) {
		free(a);
		return NULL;
	}
	a->n = 1;
	a->of[0].begin = va;
	a->of[0].end = va + size;
	return a;
}

void aq_fe_advice_free(struct aq_fe_advice *a)
{
	if (!a)
		return;
	free(a->of);
	free(a);
}

/* Have a border at `at`. False: no memory. */
static bool split_at(struct aq_fe_advice *a, uint64_t at)
{
	struct opinion *more = NULL;
	unsigned i = 0;

	while (i < a->n && a->of[i].end <= at)
		i++;
	if (i == a->n || a->of[i].begin == at)
		return true;
	more = realloc(a->of, (a->n + 1) * sizeof(*more));
	if (!more)
		return false;
	a->of = more;
	memmove(&more[i + 1], &more[i], (a->n - i) * sizeof(*more));
	more[i].end = more[i + 1].begin = at;
	a->n++;
	return true;
}

static bool same_location(const CUmemLocation *a, const CUmemLocation *b)
{
	return a->type == b->type && (a->type == CU_MEM_LOCATION_TYPE_INVALID ||
				      a->type == CU_MEM_LOCATION_TYPE_HOST || a->id == b->id);
}

static bool same_opinion(const struct opinion *a, const struct opinion *b)
{
	return a->read_mostly == b->read_mostly && a->accessed_by == b->accessed_by &&
	       a->accessed_by_host == b->accessed_by_host &&
	       same_location(&a->preferred, &b->preferred) &&
	       same_location(&a->prefetched, &b->prefetched);
}

/* Neighbours that say the same become one, so that the list does not grow with every call. */
static void join(struct aq_fe_advice *a)
{
	unsigned kept = 0;

	for (unsigned i = 1; i < a->n; i++) {
		if (same_opinion(&a->of[kept], &a->of[i]))
			a->of[kept].end = a->of[i].end;
		else
			a->of[++kept] = a->of[i];
	}
	a->n = kept + 1;
}

/* What to do to a part of a managed allocation. */
struct change {
	uint64_t va, size;
	bool is_prefetch;
	CUmem_advise advice;
	CUmemLocation location;
	CUresult res;
};

static void change_one(struct opinion *o, const struct change *c)
{
	bool host = c->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
	/* Of other advice the location has not been checked. */
	bool is_access = !c->is_prefetch && (c->advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
					     c->advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY);
	uint32_t bit = host || !is_access ? 0 : 1U << c->location.id;

	if (c->is_prefetch) {
		o->prefetched = c->location;
		return;
	}
	switch (c->advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		o->read_mostly = c->advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		o->preferred = c->location;
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		o->preferred.type = CU_MEM_LOCATION_TYPE_INVALID;
		break;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
		o->accessed_by |= bit;
		o->accessed_by_host = o->accessed_by_host || host;
		break;
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		o->accessed_by &= ~bit;
		o->accessed_by_host = o->accessed_by_host && !host;
		break;
	default:
		break;
	}
}

static bool covers(const struct aq_fe_range *r, uint64_t va, uint64_t size)
{
	return r->advice && size > 0 && size <= r->size - (va - r->va);
}

static void change_range(struct aq_fe_range *r, void *arg)
{
	struct change *c = arg;

	c->res = CUDA_ERROR_INVALID_VALUE;
	if (!covers(r, c->va, c->size))
		return;
	c->res = CUDA_ERROR_OUT_OF_MEMORY;
	if (!split_at(r->advice, c->va) || !split_at(r->advice, c->va + c->size))
		return;
	for (unsigned i = 0; i < r->advice->n; i++) {
		if (r->advice->of[i].begin >= c->va && r->advice->of[i].end <= c->va + c->size)
			change_one(&r->advice->of[i], c);
	}
	join(r->advice);
	c->res = CUDA_SUCCESS;
}

static CUresult change(struct change *c)
{
	return aq_fe_range_update(c->va, change_range, c) ? c->res : CUDA_ERROR_INVALID_VALUE;
}

/* A place that memory can be in; HOST_NUMA_CURRENT becomes the only node. */
static CUresult location_check(CUmemLocation *l)
{
	struct aq_fe_device *dev = NULL;

	switch (l->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return aq_fe_device(l->id, &dev);
	case CU_MEM_LOCATION_TYPE_HOST:
		return CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return l->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		l->type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
		l->id = 0;
		return CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_INVALID:
	case CU_MEM_LOCATION_TYPE_MAX:
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* The first versions of these calls named a device or CU_DEVICE_CPU. */
static CUmemLocation location_of(CUdevice device)
{
	if (device == CU_DEVICE_CPU)
		return (CUmemLocation){ CU_MEM_LOCATION_TYPE_HOST, 0 };
	return (CUmemLocation){ CU_MEM_LOCATION_TYPE_DEVICE, device };
}

AQ_EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
					 unsigned int flags, CUstream hStream)
{
	struct change c = {
		.va = devPtr, .size = count, .is_prefetch = true, .location = location
	};
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	CUresult res = aq_fe_copy_enter(hStream, &ctx, &stream);

	if (res != CUDA_SUCCESS)
		return res;
	if (count == 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	res = location_check(&c.location);
	return res == CUDA_SUCCESS ? change(&c) : res;
}

AQ_EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
				      CUstream hStream)
{
	return cuMemPrefetchAsync_v2(devPtr, count, location_of(dstDevice), 0, hStream);
}

AQ_EXPORT CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
				  CUmemLocation location)
{
	struct change c = { .va = devPtr, .size = count, .advice = advice, .location = location };
	struct aq_fe_ctx *ctx = NULL;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	switch (advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		break; /* the location is ignored */
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		if (location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
		    location.type != CU_MEM_LOCATION_TYPE_HOST)
			return CUDA_ERROR_INVALID_VALUE;
		res = location_check(&c.location);
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		res = location_check(&c.location);
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return res == CUDA_SUCCESS ? change(&c) : res;
}

AQ_EXPORT CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
			       CUdevice device)
{
	return cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

/* ---- batches ---- */

static CUresult batch_enter(CUstream handle, const CUdeviceptr *dptrs, const size_t *sizes,
			    size_t count, unsigned long long flags)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	CUresult res = aq_fe_copy_enter(handle, &ctx, &stream);

	if (res != CUDA_SUCCESS)
		return res;
	return !dptrs || !sizes || count == 0 || flags != 0 || stream->id == AQ_STREAM_LEGACY
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
					   CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
					   size_t numPrefetchLocs, unsigned long long flags,
					   CUstream hStream)
{
	size_t at = 0;
	CUresult res = batch_enter(hStream, dptrs, sizes, count, flags);

	if (res == CUDA_SUCCESS &&
	    (!prefetchLocs || !aq_fe_batch_indices(prefetchLocIdxs, numPrefetchLocs, count)))
		res = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; res == CUDA_SUCCESS && i < count; i++) {
		if (at + 1 < numPrefetchLocs && prefetchLocIdxs[at + 1] == i)
			at++;
		res = cuMemPrefetchAsync_v2(dptrs[i], sizes[i], prefetchLocs[at], 0, hStream);
	}
	return res;
}

static void check_covered(struct aq_fe_range *r, void *arg)
{
	struct change *c = arg;

	c->res = covers(r, c->va, c->size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Discarded contents may be anything, so they may also stay. */
AQ_EXPORT CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
					  unsigned long long flags, CUstream hStream)
{
	struct change c = { 0 };
	CUresult res = batch_enter(hStream, dptrs, sizes, count, flags);

	for (size_t i = 0; res == CUDA_SUCCESS && i < count; i++) {
		c.va = dptrs[i];
		c.size = sizes[i];
		res = aq_fe_range_update(c.va, check_covered, &c) ? c.res
								  : CUDA_ERROR_INVALID_VALUE;
	}
	return res;
}

AQ_EXPORT CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes,
						     size_t count, CUmemLocation *prefetchLocs,
						     size_t *prefetchLocIdxs,
						     size_t numPrefetchLocs,
						     unsigned long long flags, CUstream hStream)
{
	return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
				       numPrefetchLocs, flags, hStream);
}

/* ---- attachment ---- */

/* The devices reach managed memory while the host does, so to which stream it is attached changes nothing. */
AQ_EXPORT CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
					  unsigned int flags)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	struct aq_fe_range r;
	CUresult res = aq_fe_copy_enter(hStream, &ctx, &stream);

	if (res != CUDA_SUCCESS)
		return res;
	if ((flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
	     flags != CU_MEM_ATTACH_SINGLE) ||
	    (flags == CU_MEM_ATTACH_SINGLE && stream->id == AQ_STREAM_LEGACY))
		return CUDA_ERROR_INVALID_VALUE;
	if (!aq_fe_range_find(dptr, &r) || !r.advice || r.va != dptr ||
	    (length != 0 && length != r.size))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* ---- questions ---- */

struct question {
	uint64_t va, size;
	CUresult res;
	struct opinion common; /* what holds for every byte asked about */
};

static void ask_range(struct aq_fe_range *r, void *arg)
{
	struct question *q = arg;
	const struct opinion *o = NULL;
	bool first = true;

	q->res = CUDA_ERROR_INVALID_VALUE;
	if (!covers(r, q->va, q->size))
		return;
	q->res = CUDA_SUCCESS;
	for (unsigned i = 0; i < r->advice->n; i++) {
		o = &r->advice->of[i];
		if (o->end <= q->va || o->begin >= q->va + q->size)
			continue;
		if (first)
			q->common = *o;
		first = false;
		q->common.read_mostly = q->common.read_mostly && o->read_mostly;
		q->common.accessed_by &= o->accessed_by;
		q->common.accessed_by_host = q->common.accessed_by_host && o->accessed_by_host;
		if (!same_location(&q->common.preferred, &o->preferred))
			q->common.preferred.type = CU_MEM_LOCATION_TYPE_INVALID;
		if (!same_location(&q->common.prefetched, &o->prefetched))
			q->common.prefetched.type = CU_MEM_LOCATION_TYPE_INVALID;
	}
}

static int device_of(const CUmemLocation *l)
{
	if (l->type == CU_MEM_LOCATION_TYPE_INVALID)
		return CU_DEVICE_INVALID;
	return l->type == CU_MEM_LOCATION_TYPE_DEVICE ? l->id : CU_DEVICE_CPU;
}

static CUresult answer_accessed_by(const struct opinion *o, int *data, size_t size)
{
	size_t n = size / sizeof(int), k = 0;

	if (n == 0 || size % sizeof(int))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < aq_fe.n_devices && k < n; i++) {
		if (o->accessed_by >> i & 1)
			data[k++] = i;
	}
	if (o->accessed_by_host && k < n)
		data[k++] = CU_DEVICE_CPU;
	while (k < n)
		data[k++] = CU_DEVICE_INVALID;
	return CUDA_SUCCESS;
}

static CUresult answer(const struct opinion *o, CUmem_range_attribute attr, int *data, size_t size)
{
	if (attr == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
		return answer_accessed_by(o, data, size);
	if (size != sizeof(int))
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)attr) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		*data = o->read_mostly;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		*data = device_of(&o->preferred);
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		*data = device_of(&o->prefetched);
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		*data = (int)o->preferred.type;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		*data = o->preferred.id;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		*data = (int)o->prefetched.type;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		*data = o->prefetched.id;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

AQ_EXPORT CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes,
					   CUmem_range_attribute *attributes, size_t numAttributes,
					   CUdeviceptr devPtr, size_t count)
{
	struct question q = { .va = devPtr, .size = count };
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (!data || !dataSizes || !attributes || numAttributes == 0 || count == 0 ||
	    !aq_fe_range_update(devPtr, ask_range, &q))
		return CUDA_ERROR_INVALID_VALUE;
	res = q.res;
	for (size_t i = 0; i < numAttributes && res == CUDA_SUCCESS; i++)
		res = data[i] ? answer(&q.common, attributes[i], data[i], dataSizes[i])
			      : CUDA_ERROR_INVALID_VALUE;
	return res;
}

AQ_EXPORT CUresult cuMemRangeGetAttribute(void *data, size_t dataSize,
					  CUmem_range_attribute attribute, CUdeviceptr devPtr,
					  size_t count)
{
	return cuMemRangeGetAttributes(&data, &dataSize, &attribute, 1, devPtr, count);
}
