/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory objects of virtual memory management. An object is charged from its creation until its last handle has been released and its last mapping
 * undone, in whatever order. One that has been exported stays charged until the process ends: nobody tells when the last descriptor or importer of it is
 * gone. An imported object is its exporter's.
 *
 * These calls are rare: one lock guards the books, and is never held during a call of the provider.
 */
#include "shim/cuda/shim.h"

#include "base/macro.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

struct object {
	uint64_t size; /* charged; 0 for imported ones and host memory */
	uint32_t handles, mappings;
	int16_t card;
	bool exported;
	bool in_use;
};

/* A table of objects that grows and never moves down; entries of `handles` and `mappings` name objects by index + 1 (owner). */
static struct object *objects;
static uint32_t n_objects;
static struct aq_ranges handles;
static struct aq_ranges mappings;
static struct aq_lock lock;

void aq_vmm_reset(void)
{
	if (objects)
		(void)munmap(objects, n_objects * sizeof(*objects));
	objects = NULL;
	n_objects = 0;
	aq_ranges_reset(&handles);
	aq_ranges_reset(&mappings);
	atomic_store(&lock.word, 0);
}

/* Index of an unused object, or -ENOMEM. */
static int unused_object(void)
{
	uint32_t wider = n_objects ? n_objects * 2 : 256;
	uint32_t first = n_objects;
	int saved = errno;
	void *p;

	for (uint32_t i = 0; i < n_objects; i++)
		if (!objects[i].in_use)
			return (int)i;
	p = mmap(NULL, wider * sizeof(*objects), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	errno = saved;
	if (p == MAP_FAILED)
		return -ENOMEM;
	if (objects) {
		memcpy(p, objects, n_objects * sizeof(*objects));
		(void)munmap(objects, n_objects * sizeof(*objects));
	}
	objects = p;
	n_objects = wider;
	return (int)first;
}

/* Under the lock: settle an object that may have lost its last reference. */
static void unref(uint32_t index)
{
	struct object *o = &objects[index];

	if (o->handles || o->mappings || !o->in_use)
		return;
	if (o->size && !o->exported)
		aq_uncharge(o->card, o->size);
	memset(o, 0, sizeof(*o));
}

/* Remember a handle of a new object; the charge has been reserved. */
static int add_object(uint64_t handle, int card, uint64_t size)
{
	struct aq_range entry = { .key = handle };
	struct aq_range old;
	bool replaced = false;
	int index;
	int rc;

	aq_lock(&lock);
	index = unused_object();
	rc = index;
	if (index >= 0) {
		entry.owner = (uint64_t)index + 1;
		rc = aq_ranges_insert(&handles, &entry, &old, &replaced);
	}
	if (rc >= 0) {
		objects[index] = (struct object){
			.size = size, .handles = 1, .card = (int16_t)card, .in_use = true
		};
		if (size)
			aq_commit(card, size);
		if (replaced) {
			/* Cannot be, unless the provider gives a handle out twice: then it means both. */
			struct object *o = &objects[old.owner - 1];

			o->handles -= o->handles > 0;
			unref((uint32_t)old.owner - 1);
		}
	}
	aq_unlock(&lock);
	return rc < 0 ? rc : 0;
}

AQ_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
			       const CUmemAllocationProp *prop, unsigned long long flags)
{
	uint64_t charge = size;
	CUresult rc;
	int card = AQ_NO_CARD;

	AQ_ENTER(cuMemCreate, handle, size, prop, flags);
	if (!handle || !size || !prop)
		return AQ_CALL(cuMemCreate, handle, size, prop, flags);
	if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		card = aq_card_of(prop->location.id);
	else
		charge = 0;
	if (charge && card == AQ_NO_CARD)
		/* No device of this process: the provider says so. */
		return aq_cards_devices() > (unsigned)prop->location.id
			       ? CUDA_ERROR_NOT_PERMITTED
			       : AQ_CALL(cuMemCreate, handle, size, prop, flags);
	rc = charge ? aq_reserve(card, charge) : CUDA_SUCCESS;
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = AQ_CALL(cuMemCreate, handle, size, prop, flags);
	if (rc == CUDA_SUCCESS && add_object(*handle, card, charge) < 0) {
		(void)AQ_CALL(cuMemRelease, *handle);
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (rc != CUDA_SUCCESS && charge)
		aq_withdraw(card, charge);
	return rc;
}

/* Take one reference of a handle away before the provider is asked. Returns the object's index + 1, 0: not known. */
static uint64_t drop_handle(uint64_t handle)
{
	struct aq_range entry;
	uint64_t owner = 0;

	aq_lock(&lock);
	if (aq_ranges_find(&handles, handle, &entry)) {
		owner = entry.owner;
		if (objects[owner - 1].handles <= 1)
			(void)aq_ranges_take(&handles, handle, &entry);
	}
	aq_unlock(&lock);
	return owner;
}

AQ_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct aq_range old;
	uint64_t owner;
	CUresult rc;

	AQ_ENTER(cuMemRelease, handle);
	owner = drop_handle(handle);
	rc = AQ_CALL(cuMemRelease, handle);
	if (!owner)
		return rc;
	aq_lock(&lock);
	if (rc == CUDA_SUCCESS) {
		objects[owner - 1].handles -= objects[owner - 1].handles > 0;
		unref((uint32_t)owner - 1);
	} else if (!aq_ranges_find(&handles, handle, &old)) {
		struct aq_range entry = { .key = handle, .owner = owner };
		bool replaced;

		(void)aq_ranges_insert(&handles, &entry, &old, &replaced);
	}
	aq_unlock(&lock);
	return rc;
}

AQ_EXPORT CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
			    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct aq_range known;
	struct aq_range entry = { .key = ptr, .size = size };
	CUresult rc;

	AQ_ENTER(cuMemMap, ptr, size, offset, handle, flags);
	/* The mapping counts before the provider makes it: the handle may be released by another thread meanwhile. */
	aq_lock(&lock);
	if (ptr && aq_ranges_find(&handles, handle, &known)) {
		entry.owner = known.owner;
		objects[known.owner - 1].mappings++;
	}
	aq_unlock(&lock);
	rc = AQ_CALL(cuMemMap, ptr, size, offset, handle, flags);
	if (!entry.owner)
		return rc;
	aq_lock(&lock);
	if (rc == CUDA_SUCCESS) {
		bool replaced;

		/* Without memory for this entry the object stays charged for good: too much, never too little. */
		(void)aq_ranges_insert(&mappings, &entry, &known, &replaced);
	} else {
		objects[entry.owner - 1].mappings--;
		unref((uint32_t)entry.owner - 1);
	}
	aq_unlock(&lock);
	return rc;
}

/* Under the lock: how many mappings fill [ptr, ptr + size), one behind the other. */
static uint32_t count_mappings(uint64_t ptr, uint64_t size)
{
	uint64_t end = ptr + size;
	struct aq_range entry;
	uint32_t n = 0;

	while (ptr < end && aq_ranges_find(&mappings, ptr, &entry) && entry.size &&
	       entry.size <= end - ptr) {
		ptr += entry.size;
		n++;
	}
	return n;
}

/* Their entries, taken out before the provider unmaps: the addresses may be mapped anew the moment that it has. */
static void take_mappings(uint64_t ptr, struct aq_range *ret, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		(void)aq_ranges_take(&mappings, ptr, &ret[i]);
		ptr += ret[i].size;
	}
}

static void finish_unmap(const struct aq_range *taken, uint32_t n, CUresult rc)
{
	struct aq_range old;
	bool replaced;

	aq_lock(&lock);
	for (uint32_t i = 0; i < n; i++) {
		struct object *o = &objects[taken[i].owner - 1];

		if (rc != CUDA_SUCCESS) {
			(void)aq_ranges_insert(&mappings, &taken[i], &old, &replaced);
			continue;
		}
		o->mappings -= o->mappings > 0;
		unref((uint32_t)taken[i].owner - 1);
	}
	aq_unlock(&lock);
}

AQ_EXPORT CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct aq_range few[32];
	struct aq_range *taken = few;
	uint32_t n;
	int saved = errno;
	CUresult rc;

	AQ_ENTER(cuMemUnmap, ptr, size);
	aq_lock(&lock);
	n = count_mappings(ptr, size);
	if (n > AQ_ARRAY_SIZE(few)) {
		taken = mmap(NULL, n * sizeof(*taken), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		errno = saved;
		if (taken == MAP_FAILED) {
			aq_unlock(&lock);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	take_mappings(ptr, taken, n);
	aq_unlock(&lock);
	rc = AQ_CALL(cuMemUnmap, ptr, size);
	finish_unmap(taken, n, rc);
	if (taken != few)
		(void)munmap(taken, n * sizeof(*taken));
	errno = saved;
	return rc;
}

/* ---- more handles of an object, here and elsewhere ---- */

/* Under the lock: the object whose mapping an address lies in, + 1; 0: none. Walks: this call is for debuggers and allocators that start up. */
static uint64_t object_at(uint64_t address)
{
	uint64_t owner = 0;

	for (unsigned s = 0; s < AQ_RANGE_STRIPES && !owner; s++) {
		uint32_t n = 0;
		struct aq_range *copy = aq_ranges_copy(&mappings, s, &n);

		for (uint32_t i = 0; i < n && !owner; i++)
			if (address >= copy[i].key && address - copy[i].key < copy[i].size)
				owner = copy[i].owner;
		aq_ranges_drop(copy, n);
	}
	return owner;
}

AQ_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct aq_range entry;
	uint64_t owner;
	CUresult rc;

	AQ_ENTER(cuMemRetainAllocationHandle, handle, addr);
	rc = AQ_CALL(cuMemRetainAllocationHandle, handle, addr);
	if (rc != CUDA_SUCCESS)
		return rc;
	aq_lock(&lock);
	if (aq_ranges_find(&handles, *handle, &entry)) {
		objects[entry.owner - 1].handles++;
	} else if ((owner = object_at((uintptr_t)addr))) {
		struct aq_range old;
		bool replaced;

		/* The value of a handle that was released, or one of its own. */
		entry = (struct aq_range){ .key = *handle, .owner = owner };
		if (aq_ranges_insert(&handles, &entry, &old, &replaced) == 0)
			objects[owner - 1].handles++;
		else
			objects[owner - 1].exported = true;
	}
	aq_unlock(&lock);
	return rc;
}

AQ_EXPORT CUresult cuMemExportToShareableHandle(void *ret, CUmemGenericAllocationHandle handle,
						CUmemAllocationHandleType type,
						unsigned long long flags)
{
	struct aq_range entry;
	CUresult rc;

	AQ_ENTER(cuMemExportToShareableHandle, ret, handle, type, flags);
	rc = AQ_CALL(cuMemExportToShareableHandle, ret, handle, type, flags);
	if (rc != CUDA_SUCCESS)
		return rc;
	aq_lock(&lock);
	if (aq_ranges_find(&handles, handle, &entry))
		objects[entry.owner - 1].exported = true;
	aq_unlock(&lock);
	return rc;
}

/* Its exporter pays. It is known here so that its handle and mappings are not taken for others'. */
AQ_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os,
						  CUmemAllocationHandleType type)
{
	struct aq_range entry;
	CUresult rc;

	AQ_ENTER(cuMemImportFromShareableHandle, handle, os, type);
	rc = AQ_CALL(cuMemImportFromShareableHandle, handle, os, type);
	if (rc != CUDA_SUCCESS)
		return rc;
	aq_lock(&lock);
	if (aq_ranges_find(&handles, *handle, &entry)) {
		/* The provider knows its own memory again and has given the handle that it already has. */
		objects[entry.owner - 1].handles++;
		aq_unlock(&lock);
		return rc;
	}
	aq_unlock(&lock);
	if (add_object(*handle, AQ_NO_CARD, 0) < 0) {
		(void)AQ_CALL(cuMemRelease, *handle);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return rc;
}
