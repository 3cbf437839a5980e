/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: address reservations, physical allocations, and mappings of the one into the other. A mapping is an entry of
 * the range table and holds a reference of its physical allocation; so does the application's handle.
 */
#include "frontend/cuda/mem.h"

#include "base/macro.h"
#include "frontend/cuda/handle.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct aq_fe_phys {
	uint32_t id; /* on the wire */
	bool host;
	uint64_t size;
	CUmemAllocationProp prop;
	struct aq_fe_device *dev; /* NULL: host memory */
	unsigned handles;	  /* how often the application holds it */
	unsigned refs;		  /* the handles together count once, each mapping once */
	uint64_t unique_id;
};

struct reservation {
	struct aq_rnode node;
};

static struct {
	pthread_mutex_t lock;
	struct aq_rtree reservations;
	uint64_t next_unique_id;
} vmm = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void lock(void)
{
	(void)pthread_mutex_lock(&vmm.lock);
}

static CUresult leave(CUresult res)
{
	(void)pthread_mutex_unlock(&vmm.lock);
	return res;
}

void aq_fe_vmm_forked(void)
{
	(void)pthread_mutex_init(&vmm.lock, NULL);
	vmm.reservations = (struct aq_rtree){ 0 };
}

static bool is_granular(uint64_t value)
{
	return value % AQ_FE_GRANULARITY == 0;
}

/* ---- reservations ---- */

bool aq_fe_reservation_find(uint64_t addr, uint64_t *ret_va, uint64_t *ret_size)
{
	struct aq_rnode *n = NULL;

	lock();
	n = aq_rtree_find(&vmm.reservations, addr);
	if (n) {
		*ret_va = n->va;
		*ret_size = n->size;
	}
	(void)leave(CUDA_SUCCESS);
	return n != NULL;
}

AQ_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
				       CUdeviceptr addr, unsigned long long flags)
{
	struct aq_req_va_reserve req = { .size = size, .align = alignment, .hint = addr };
	struct aq_req_va_release undo = { .size = size };
	struct aq_rep_va_release undone;
	struct aq_rep_va_reserve rep;
	struct reservation *r = NULL;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (!ptr || size == 0 || !is_granular(size) || flags != 0 ||
	    (alignment & (alignment - 1)) || addr % (uint64_t)sysconf(_SC_PAGESIZE))
		return CUDA_ERROR_INVALID_VALUE;
	if (size > aq_fe.arena_size || alignment > aq_fe.arena_size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	req.align = AQ_MAX(req.align, AQ_FE_GRANULARITY);
	r = calloc(1, sizeof(*r));
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = aq_fe_call(VA_RESERVE, va_reserve, &req, &rep);
	if (res != CUDA_SUCCESS) {
		free(r);
		return res;
	}
	r->node.va = rep.va;
	r->node.size = size;
	lock();
	if (aq_rtree_insert(&vmm.reservations, &r->node)) {
		*ptr = rep.va;
		return leave(CUDA_SUCCESS);
	}
	(void)leave(CUDA_SUCCESS);
	free(r);
	undo.va = rep.va;
	(void)aq_fe_call(VA_RELEASE, va_release, &undo, &undone);
	return CUDA_ERROR_UNKNOWN;
}

AQ_EXPORT CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	struct aq_req_va_release req = { .va = ptr, .size = size };
	struct aq_rep_va_release rep;
	struct aq_rnode *n = NULL;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	lock();
	n = aq_rtree_find(&vmm.reservations, ptr);
	if (!n || n->va != ptr || n->size != size || aq_fe_range_overlaps(ptr, size))
		return leave(CUDA_ERROR_INVALID_VALUE);
	res = aq_fe_call(VA_RELEASE, va_release, &req, &rep);
	if (res != CUDA_SUCCESS)
		return leave(res);
	aq_rtree_remove(&vmm.reservations, n);
	free(aq_container_of(n, struct reservation, node));
	return leave(CUDA_SUCCESS);
}

/* ---- physical allocations ---- */

static void unref_locked(struct aq_fe_phys *p)
{
	struct aq_req_phys_release req = { .phys = p->id };
	struct aq_rep_phys_release rep;

	if (--p->refs > 0)
		return;
	(void)aq_fe_call(PHYS_RELEASE, phys_release, &req, &rep);
	aq_fe_id_free(AQ_FE_ID_PHYS, p->id);
	free(p);
}

/* What an allocation's properties mean. *ret_dev is NULL for host memory. */
static CUresult prop_check(const CUmemAllocationProp *prop, struct aq_fe_device **ret_dev)
{
	*ret_dev = NULL;
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->type == CU_MEM_ALLOCATION_TYPE_MANAGED)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    prop->allocFlags.usage || prop->allocFlags.gpuDirectRDMACapable)
		return CUDA_ERROR_NOT_SUPPORTED;
	switch (prop->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return aq_fe_device(prop->location.id, ret_dev);
	case CU_MEM_LOCATION_TYPE_HOST:
		return prop->requestedHandleTypes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		/* One node, whatever the machine has: the server's memory is not bound to any. */
		return prop->location.id ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_INVALID:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
	case CU_MEM_LOCATION_TYPE_MAX:
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

AQ_EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity,
						 const CUmemAllocationProp *prop,
						 CUmemAllocationGranularity_flags option)
{
	struct aq_fe_device *dev = NULL;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
			     option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	res = prop_check(prop, &dev);
	if (res == CUDA_SUCCESS)
		*granularity = AQ_FE_GRANULARITY;
	return res;
}

/* An object with an identifier, not yet known to the server nor registered. */
static struct aq_fe_phys *phys_new(void)
{
	struct aq_fe_phys *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->id = aq_fe_id_new(AQ_FE_ID_PHYS);
	if (p->id == 0) {
		free(p);
		return NULL;
	}
	p->handles = p->refs = 1;
	lock();
	p->unique_id = ++vmm.next_unique_id;
	(void)leave(CUDA_SUCCESS);
	return p;
}

static CUresult phys_publish(struct aq_fe_phys *p, CUmemGenericAllocationHandle *ret)
{
	if (!aq_fe_handle_add(AQ_FE_PHYS, p)) {
		lock();
		unref_locked(p);
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*ret = (uintptr_t)p;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
			       const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct aq_req_phys_create req = { .size = size };
	struct aq_rep_phys_create rep;
	struct aq_fe_device *dev = NULL;
	struct aq_fe_phys *p = NULL;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (!handle || size == 0 || !is_granular(size) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	res = prop_check(prop, &dev);
	if (res != CUDA_SUCCESS)
		return res;
	if (size > (dev ? dev->info.memory_bytes : aq_fe.arena_size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = phys_new();
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->dev = dev;
	p->host = dev == NULL;
	p->size = size;
	p->prop = *prop;
	p->prop.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE; /* a wish, not granted */
	req.phys = p->id;
	req.card = dev ? dev->card : AQ_CARD_HOST;
	res = aq_fe_call(PHYS_CREATE, phys_create, &req, &rep);
	if (res == CUDA_ERROR_OUT_OF_MEMORY && dev && aq_fe_pool_release(dev))
		res = aq_fe_call(PHYS_CREATE, phys_create, &req, &rep);
	if (res != CUDA_SUCCESS) {
		aq_fe_id_free(AQ_FE_ID_PHYS, p->id);
		free(p);
		return res;
	}
	return phys_publish(p, handle);
}

static struct aq_fe_phys *phys_get(CUmemGenericAllocationHandle handle)
{
	return aq_fe_handle_get(AQ_FE_PHYS, (const void *)(uintptr_t)handle);
}

AQ_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct aq_fe_phys *p = NULL;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	lock();
	p = phys_get(handle);
	if (!p)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (--p->handles == 0) {
		(void)aq_fe_handle_remove(AQ_FE_PHYS, p);
		unref_locked(p);
	}
	return leave(CUDA_SUCCESS);
}

AQ_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct aq_fe_range r;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	lock();
	if (!handle || !aq_fe_range_find((uintptr_t)addr, &r) || r.kind != AQ_FE_RANGE_MAPPING)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (r.phys->handles == 0) {
		if (!aq_fe_handle_add(AQ_FE_PHYS, r.phys))
			return leave(CUDA_ERROR_OUT_OF_MEMORY);
		r.phys->refs++;
	}
	r.phys->handles++;
	*handle = (uintptr_t)r.phys;
	return leave(CUDA_SUCCESS);
}

AQ_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
							  CUmemGenericAllocationHandle handle)
{
	struct aq_fe_phys *p = NULL;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	lock();
	p = phys_get(handle);
	if (!prop || !p)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*prop = p->prop;
	return leave(CUDA_SUCCESS);
}

/* ---- mappings ---- */

static CUresult map_locked(uint64_t va, uint64_t size, uint64_t offset, struct aq_fe_phys *p)
{
	struct aq_rnode *n = aq_rtree_find(&vmm.reservations, va);
	struct aq_fe_range r = { .va = va,
				 .size = size,
				 .kind = AQ_FE_RANGE_MAPPING,
				 .dev = p->dev,
				 .phys = p,
				 .phys_id = p->unique_id,
				 .handle_types = (unsigned)p->prop.requestedHandleTypes,
				 .host_phys = p->host };
	struct aq_req_va_map req = { .va = va, .size = size, .offset = offset, .phys = p->id };
	struct aq_req_va_unmap undo = { .va = va, .size = size };
	struct aq_rep_va_unmap undone;
	struct aq_rep_va_map rep;
	CUresult res = CUDA_SUCCESS;

	if (!n || size > n->size - (va - n->va) || aq_fe_range_overlaps(va, size))
		return CUDA_ERROR_INVALID_VALUE;
	res = aq_fe_call(VA_MAP, va_map, &req, &rep);
	if (res != CUDA_SUCCESS)
		return res;
	if (!aq_fe_range_add(&r)) {
		(void)aq_fe_call(VA_UNMAP, va_unmap, &undo, &undone);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	p->refs++;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
			    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct aq_fe_phys *p = NULL;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	lock();
	p = phys_get(handle);
	if (!p || size == 0 || !is_granular(ptr) || !is_granular(size) || !is_granular(offset) ||
	    flags != 0 || offset > p->size || size > p->size - offset)
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(map_locked(ptr, size, offset, p));
}

/* Whether [va, va + size) is a row of whole mappings without a hole. */
static CUresult whole_mappings(uint64_t va, uint64_t size)
{
	struct aq_fe_range r;
	uint64_t left = size;

	if (size == 0 || va + size < va)
		return CUDA_ERROR_INVALID_VALUE;
	while (left > 0) {
		if (!aq_fe_range_find(va, &r) || r.kind != AQ_FE_RANGE_MAPPING || r.va != va ||
		    r.size > left)
			return CUDA_ERROR_INVALID_VALUE;
		va += r.size;
		left -= r.size;
	}
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct aq_req_va_unmap req = { .va = ptr, .size = size };
	struct aq_rep_va_unmap rep;
	struct aq_fe_range r;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	lock();
	res = whole_mappings(ptr, size);
	if (res == CUDA_SUCCESS)
		res = aq_fe_call(VA_UNMAP, va_unmap, &req, &rep);
	if (res != CUDA_SUCCESS)
		return leave(res);
	for (uint64_t va = ptr; va < ptr + size; va += r.size) {
		if (!aq_fe_range_take(va, AQ_FE_RANGE_MAPPING, &r))
			break; /* cannot be: the lock is held since the check */
		unref_locked(r.phys);
	}
	aq_fe_seg_unmap(ptr, size);
	return leave(CUDA_SUCCESS);
}

struct grant {
	unsigned shift; /* in access_cards */
	bool host;
	uint32_t prot;
};

static void grant_apply(struct aq_fe_range *r, void *arg)
{
	const struct grant *g = arg;

	if (g->host)
		r->access_host = g->prot;
	else
		r->access_cards = (r->access_cards & ~(3U << g->shift)) | g->prot << g->shift;
}

static bool is_host_location(const CUmemLocation *l)
{
	return l->type == CU_MEM_LOCATION_TYPE_HOST ||
	       (l->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && l->id == 0);
}

/* The application's own access to host memory; that of a card is out of its reach. */
static CUresult host_access(uint64_t va, uint64_t size, uint32_t prot)
{
	int host_prot = (prot & 1 ? PROT_READ : 0) | (prot & 2 ? PROT_WRITE : 0);
	struct aq_fe_range r;
	CUresult res = CUDA_SUCCESS;

	for (uint64_t at = va; at < va + size; at += r.size) {
		if (!aq_fe_range_find(at, &r) || !r.host_phys)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	for (uint64_t at = va; at < va + size && res == CUDA_SUCCESS; at += r.size) {
		(void)aq_fe_range_find(at, &r);
		res = aq_fe_seg_map_host(at, r.size, host_prot);
	}
	return res;
}

static CUresult set_access_locked(uint64_t va, uint64_t size, const CUmemAccessDesc *d)
{
	struct grant g = { .host = is_host_location(&d->location), .prot = (uint32_t)d->flags };
	struct aq_req_va_access req = { .va = va, .size = size, .prot = g.prot };
	struct aq_rep_va_access rep;
	struct aq_fe_device *dev = NULL;
	struct aq_fe_range r;
	CUresult res = CUDA_SUCCESS;

	if (d->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
	    d->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
	    d->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!g.host) {
		if (d->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_INVALID_VALUE;
		res = aq_fe_device(d->location.id, &dev);
		if (res != CUDA_SUCCESS)
			return res;
		g.shift = 2 * dev->card;
	}
	req.card = dev ? dev->card : AQ_CARD_HOST;
	if (g.host)
		res = host_access(va, size, g.prot);
	if (res == CUDA_SUCCESS)
		res = aq_fe_call(VA_ACCESS, va_access, &req, &rep);
	for (uint64_t at = va; at < va + size && res == CUDA_SUCCESS; at += r.size) {
		(void)aq_fe_range_find(at, &r);
		(void)aq_fe_range_update(at, grant_apply, &g);
	}
	return res;
}

AQ_EXPORT CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
				  size_t count)
{
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (!desc || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	lock();
	res = whole_mappings(ptr, size);
	for (size_t i = 0; i < count && res == CUDA_SUCCESS; i++)
		res = set_access_locked(ptr, size, &desc[i]);
	return leave(res);
}

AQ_EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
				  CUdeviceptr ptr)
{
	struct aq_fe_device *dev = NULL;
	struct aq_fe_range r;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (!flags || !location || !aq_fe_range_find(ptr, &r) || r.kind != AQ_FE_RANGE_MAPPING)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_host_location(location)) {
		*flags = r.access_host;
		return CUDA_SUCCESS;
	}
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	res = aq_fe_device(location->id, &dev);
	if (res == CUDA_SUCCESS)
		*flags = r.access_cards >> (2 * dev->card) & 3U;
	return res;
}

/* ---- sharing ---- */

AQ_EXPORT CUresult cuMemExportToShareableHandle(void *shareableHandle,
						CUmemGenericAllocationHandle handle,
						CUmemAllocationHandleType handleType,
						unsigned long long flags)
{
	struct aq_req_phys_export req = { 0 };
	struct aq_client_msg msg = { AQ_OP_PHYS_EXPORT, &req, sizeof(req), NULL, 0 };
	struct aq_rep_phys_export rep;
	struct aq_fe_phys *p = NULL;
	CUresult res = aq_fe_enter();
	int fd = -1;

	if (res != CUDA_SUCCESS)
		return res;
	lock();
	p = phys_get(handle);
	if (!shareableHandle || !p || flags != 0 ||
	    handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !(p->prop.requestedHandleTypes & handleType))
		return leave(CUDA_ERROR_INVALID_VALUE);
	req.phys = p->id;
	res = aq_fe_result(aq_client_call_fd(aq_fe.client, &msg, &rep, sizeof(rep), NULL, -1, &fd));
	if (res == CUDA_SUCCESS)
		*(int *)shareableHandle = fd;
	return leave(res);
}

static struct aq_fe_device *device_of_card(uint32_t card)
{
	for (int i = 0; i < aq_fe.n_devices; i++) {
		if (aq_fe.device[i].card == card)
			return &aq_fe.device[i];
	}
	return NULL;
}

AQ_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
						  void *osHandle,
						  CUmemAllocationHandleType shHandleType)
{
	struct aq_req_phys_import req = { 0 };
	struct aq_client_msg msg = { AQ_OP_PHYS_IMPORT, &req, sizeof(req), NULL, 0 };
	struct aq_rep_phys_import rep;
	struct aq_fe_phys *p = NULL;
	int fd = (int)(uintptr_t)osHandle;
	CUresult res = aq_fe_enter();

	if (res != CUDA_SUCCESS)
		return res;
	if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    fcntl(fd, F_GETFD) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	p = phys_new();
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	req.phys = p->id;
	res = aq_fe_result(
		aq_client_call_fd(aq_fe.client, &msg, &rep, sizeof(rep), NULL, fd, NULL));
	if (res != CUDA_SUCCESS) {
		aq_fe_id_free(AQ_FE_ID_PHYS, p->id);
		free(p);
		return res;
	}
	p->host = rep.card == AQ_CARD_HOST;
	p->dev = p->host ? NULL : device_of_card(rep.card);
	p->size = rep.size;
	p->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	p->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	p->prop.location.type =
		p->host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
	p->prop.location.id = p->dev ? p->dev->ordinal : 0;
	if (p->host || p->dev)
		return phys_publish(p, handle);
	lock();
	unref_locked(p);
	return leave(CUDA_ERROR_INVALID_DEVICE); /* on a card that this process does not see */
}
