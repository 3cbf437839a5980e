/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation as the application sees it. Sharing pools between processes is refused. */
#include "frontend/cuda/copy.h"
#include "frontend/cuda/handle.h"
#include "frontend/cuda/pool.h"

static CUresult alloc_async(CUdeviceptr *dptr, size_t size, bool own, CUmemoryPool handle,
			    CUstream stream_handle)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	struct aq_fe_pool *p = NULL;
	uint64_t va = 0;
	CUresult res = aq_fe_copy_enter(stream_handle, &ctx, &stream);

	if (res != CUDA_SUCCESS)
		return res;
	if (!dptr || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&aq_fe_pool_lock);
	if (own) {
		p = aq_fe_handle_get(AQ_FE_POOL, handle);
		res = p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	} else {
		p = aq_fe_pool_current_locked(stream->ctx->dev);
		res = p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (res == CUDA_SUCCESS && p->access[stream->ctx->dev->ordinal] == 0)
		res = CUDA_ERROR_INVALID_VALUE;
	if (res == CUDA_SUCCESS)
		res = aq_fe_pool_alloc_locked(p, stream, size, &va);
	(void)pthread_mutex_unlock(&aq_fe_pool_lock);
	if (res == CUDA_SUCCESS)
		*dptr = va;
	return res;
}

AQ_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return alloc_async(dptr, bytesize, false, NULL, hStream);
}

AQ_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
					   CUstream hStream)
{
	return alloc_async(dptr, bytesize, true, pool, hStream);
}

AQ_EXPORT CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_stream *stream = NULL;
	struct aq_fe_range r;
	CUresult res = aq_fe_copy_enter(hStream, &ctx, &stream);

	if (res != CUDA_SUCCESS)
		return res;
	(void)pthread_mutex_lock(&aq_fe_pool_lock);
	if (aq_fe_range_take(dptr, AQ_FE_RANGE_POOL | AQ_FE_RANGE_DEVICE | AQ_FE_RANGE_MANAGED, &r))
		res = aq_fe_pool_free_locked(&r, stream);
	else
		res = CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_unlock(&aq_fe_pool_lock);
	return res;
}

/* ---- pools of a device ---- */

static CUresult device_pool(CUmemoryPool *ret, CUdevice ordinal, bool current)
{
	struct aq_fe_device *dev = NULL;
	struct aq_fe_pool *p = NULL;
	CUresult res = aq_fe_enter();

	if (res == CUDA_SUCCESS)
		res = aq_fe_device(ordinal, &dev);
	if (res != CUDA_SUCCESS)
		return res;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&aq_fe_pool_lock);
	p = current ? aq_fe_pool_current_locked(dev) : aq_fe_pool_default_locked(dev);
	(void)pthread_mutex_unlock(&aq_fe_pool_lock);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret = (CUmemoryPool)p;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	return device_pool(pool_out, dev, false);
}

AQ_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	return device_pool(pool, dev, true);
}

AQ_EXPORT CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool)
{
	struct aq_fe_device *dev = NULL;
	struct aq_fe_pool *p = NULL;
	CUresult res = aq_fe_enter();

	if (res == CUDA_SUCCESS)
		res = aq_fe_device(ordinal, &dev);
	if (res != CUDA_SUCCESS)
		return res;
	(void)pthread_mutex_lock(&aq_fe_pool_lock);
	p = aq_fe_handle_get(AQ_FE_POOL, pool);
	if (!p || p->dev != dev)
		res = CUDA_ERROR_INVALID_VALUE;
	else
		aq_fe_pool_set_current_locked(dev, p);
	(void)pthread_mutex_unlock(&aq_fe_pool_lock);
	return res;
}

/* Pools exist for pinned memory of devices. */
static CUresult location_check(const CUmemLocation *location, CUmemAllocationType type)
{
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (!location)
		return CUDA_ERROR_INVALID_VALUE;
	if (type == CU_MEM_ALLOCATION_TYPE_MANAGED)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->type == CU_MEM_LOCATION_TYPE_HOST ||
	    location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
	    location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		return CUDA_ERROR_NOT_SUPPORTED;
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_SUCCESS
							     : CUDA_ERROR_INVALID_VALUE;
}

AQ_EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
					  CUmemAllocationType type)
{
	CUresult res = location_check(location, type);

	return res == CUDA_SUCCESS ? device_pool(pool_out, location->id, false) : res;
}

AQ_EXPORT CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location,
				   CUmemAllocationType type)
{
	CUresult res = location_check(location, type);

	return res == CUDA_SUCCESS ? device_pool(pool, location->id, true) : res;
}

AQ_EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
				   CUmemoryPool pool)
{
	CUresult res = location_check(location, type);

	return res == CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, pool) : res;
}

/* ---- pools of the application ---- */

AQ_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	struct aq_fe_device *dev = NULL;
	struct aq_fe_pool *p = NULL;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (!pool || !poolProps)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < sizeof(poolProps->reserved); i++) {
		if (poolProps->reserved[i])
			return CUDA_ERROR_INVALID_VALUE;
	}
	res = location_check(&poolProps->location, poolProps->allocType);
	if (res == CUDA_SUCCESS)
		res = aq_fe_device(poolProps->location.id, &dev);
	if (res != CUDA_SUCCESS)
		return res;
	if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE || poolProps->usage != 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	(void)pthread_mutex_lock(&aq_fe_pool_lock);
	p = aq_fe_pool_new_locked(dev, poolProps);
	(void)pthread_mutex_unlock(&aq_fe_pool_lock);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*pool = (CUmemoryPool)p;
	return CUDA_SUCCESS;
}

/* Locks, and finds the pool: the caller unlocks in any case. */
static CUresult pool_enter(CUmemoryPool handle, struct aq_fe_pool **ret)
{
	CUresult res = aq_fe_enter();

	(void)pthread_mutex_lock(&aq_fe_pool_lock);
	if (res != CUDA_SUCCESS)
		return res;
	*ret = aq_fe_handle_get(AQ_FE_POOL, handle);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult pool_leave(CUresult res)
{
	(void)pthread_mutex_unlock(&aq_fe_pool_lock);
	return res;
}

AQ_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	struct aq_fe_pool *p = NULL;
	CUresult res = pool_enter(pool, &p);

	if (res != CUDA_SUCCESS)
		return pool_leave(res);
	if (p->is_default)
		return pool_leave(CUDA_ERROR_INVALID_VALUE);
	(void)aq_fe_handle_remove(AQ_FE_POOL, p);
	aq_fe_pool_destroy_locked(p);
	return pool_leave(CUDA_SUCCESS);
}

AQ_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	struct aq_fe_pool *p = NULL;
	CUresult res = pool_enter(pool, &p);

	if (res == CUDA_SUCCESS)
		aq_fe_pool_trim_locked(p, minBytesToKeep);
	return pool_leave(res);
}

static bool *flag_of(struct aq_fe_pool *p, CUmemPool_attribute attr)
{
	switch ((int)attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
		return &p->follow_events;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
		return &p->opportunistic;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		return &p->internal_deps;
	default:
		return NULL;
	}
}

static CUresult set_attribute(struct aq_fe_pool *p, CUmemPool_attribute attr, const void *value)
{
	bool *flag = flag_of(p, attr);

	if (flag) {
		*flag = *(const int *)value != 0;
		return CUDA_SUCCESS;
	}
	switch ((int)attr) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		p->threshold = *(const cuuint64_t *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		if (*(const cuuint64_t *)value != 0)
			return CUDA_ERROR_INVALID_VALUE;
		p->reserved_high = p->sub.reserved;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		if (*(const cuuint64_t *)value != 0)
			return CUDA_ERROR_INVALID_VALUE;
		p->used_high = p->used;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

AQ_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct aq_fe_pool *p = NULL;
	CUresult res = pool_enter(pool, &p);

	if (res == CUDA_SUCCESS)
		res = value ? set_attribute(p, attr, value) : CUDA_ERROR_INVALID_VALUE;
	return pool_leave(res);
}

static CUresult get_attribute(struct aq_fe_pool *p, CUmemPool_attribute attr, void *value)
{
	const bool *flag = flag_of(p, attr);

	if (flag) {
		*(int *)value = *flag;
		return CUDA_SUCCESS;
	}
	switch ((int)attr) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(cuuint64_t *)value = p->threshold;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*(cuuint64_t *)value = p->sub.reserved;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*(cuuint64_t *)value = p->reserved_high;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(cuuint64_t *)value = p->used;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)value = p->used_high;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

AQ_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct aq_fe_pool *p = NULL;
	CUresult res = pool_enter(pool, &p);

	if (res == CUDA_SUCCESS)
		res = value ? get_attribute(p, attr, value) : CUDA_ERROR_INVALID_VALUE;
	return pool_leave(res);
}

static CUresult access_check(const struct aq_fe_pool *p, const CUmemAccessDesc *d)
{
	struct aq_fe_device *dev = NULL;

	if (d->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    (d->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
	     d->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
	     d->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
		return CUDA_ERROR_INVALID_VALUE;
	if (aq_fe_device(d->location.id, &dev) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_DEVICE;
	/* The pool's own device always has all access. */
	if (dev == p->dev && d->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_DEVICE;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	struct aq_fe_pool *p = NULL;
	CUresult res = pool_enter(pool, &p);

	if (res == CUDA_SUCCESS && (!map || count == 0))
		res = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; res == CUDA_SUCCESS && i < count; i++)
		res = access_check(p, &map[i]);
	for (size_t i = 0; res == CUDA_SUCCESS && i < count; i++)
		p->access[map[i].location.id] = (uint8_t)map[i].flags;
	return pool_leave(res);
}

AQ_EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool,
				      CUmemLocation *location)
{
	struct aq_fe_device *dev = NULL;
	struct aq_fe_pool *p = NULL;
	CUresult res = pool_enter(memPool, &p);

	if (res == CUDA_SUCCESS &&
	    (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE))
		res = CUDA_ERROR_INVALID_VALUE;
	if (res == CUDA_SUCCESS)
		res = aq_fe_device(location->id, &dev);
	if (res == CUDA_SUCCESS)
		*flags = (CUmemAccess_flags)p->access[dev->ordinal];
	return pool_leave(res);
}
