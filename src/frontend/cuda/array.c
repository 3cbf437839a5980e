/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays: device memory whose layout only the front end knows. */
#include "frontend/cuda/mem.h"

#include "base/macro.h"
#include "frontend/cuda/handle.h"

#include <stdlib.h>
#include <string.h>

/* All of them, so that those of a dying context are forgotten with it. */
static struct {
	pthread_mutex_t lock;
	struct aq_fe_array *arrays;
	struct aq_fe_mipmap *mipmaps;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

#define UNLINK(head, object)                     \
	do {                                     \
		__typeof__(head) *at_ = &(head); \
		while (*at_ && *at_ != (object)) \
			at_ = &(*at_)->next;     \
		if (*at_)                        \
			*at_ = (object)->next;   \
	} while (0)

static void array_link(struct aq_fe_array *a)
{
	(void)pthread_mutex_lock(&all.lock);
	a->next = all.arrays;
	all.arrays = a;
	(void)pthread_mutex_unlock(&all.lock);
}

static void array_free(struct aq_fe_array *a)
{
	if (!a)
		return;
	(void)aq_fe_handle_remove(AQ_FE_ARRAY, a);
	(void)pthread_mutex_lock(&all.lock);
	UNLINK(all.arrays, a);
	(void)pthread_mutex_unlock(&all.lock);
	free(a);
}

/* An array object without memory; registered and listed. */
static struct aq_fe_array *array_new(struct aq_fe_ctx *ctx, const CUDA_ARRAY3D_DESCRIPTOR *desc,
				     const struct aq_fe_array_layout *layout)
{
	struct aq_fe_array *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->layout = *layout;
	a->desc = *desc;
	a->ctx = ctx;
	a->ctx_uid = ctx->unique_id;
	a->dev = ctx->dev;
	if (!aq_fe_handle_add(AQ_FE_ARRAY, a)) {
		free(a);
		return NULL;
	}
	array_link(a);
	return a;
}

static CUresult array_memory(struct aq_fe_ctx *ctx, uint64_t size, uint64_t *ret_va)
{
	struct aq_rep_mem_alloc rep;
	CUresult res = CUDA_SUCCESS;

	if (size > ctx->dev->info.memory_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = aq_fe_seg_alloc(ctx, AQ_MEM_ARRAY, size, &rep);
	if (res == CUDA_ERROR_OUT_OF_MEMORY && aq_fe_pool_release(ctx->dev))
		res = aq_fe_seg_alloc(ctx, AQ_MEM_ARRAY, size, &rep);
	if (res == CUDA_SUCCESS)
		*ret_va = rep.va;
	return res;
}

static CUresult array_create(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	struct aq_fe_array_layout layout;
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_array *a = NULL;
	uint64_t va = 0;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!ret || !desc)
		return CUDA_ERROR_INVALID_VALUE;
	res = aq_fe_array_layout(desc, &layout);
	if (res == CUDA_SUCCESS)
		res = array_memory(ctx, layout.size, &va);
	if (res != CUDA_SUCCESS)
		return res;
	a = array_new(ctx, desc, &layout);
	if (!a) {
		(void)aq_fe_seg_free(va);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->va = va;
	*ret = (CUarray)a;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { 0 };

	if (!pAllocateArray)
		return array_create(pHandle, NULL);
	desc.Width = pAllocateArray->Width;
	desc.Height = pAllocateArray->Height;
	desc.Format = pAllocateArray->Format;
	desc.NumChannels = pAllocateArray->NumChannels;
	return array_create(pHandle, &desc);
}

AQ_EXPORT CUresult cuArray3DCreate_v2(CUarray *pHandle,
				      const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	return array_create(pHandle, pAllocateArray);
}

/* The current context and the array that a handle means. */
static CUresult array_enter(CUarray handle, struct aq_fe_array **ret)
{
	struct aq_fe_ctx *ctx = NULL;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	*ret = aq_fe_handle_get(AQ_FE_ARRAY, handle);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult mipmap_enter(CUmipmappedArray handle, struct aq_fe_mipmap **ret)
{
	struct aq_fe_ctx *ctx = NULL;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	*ret = aq_fe_handle_get(AQ_FE_MIPMAP, handle);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

AQ_EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	struct aq_fe_array *a = NULL;
	CUresult res = array_enter(hArray, &a);

	if (res != CUDA_SUCCESS)
		return res;
	/* A 3-D or layered array has a depth that this descriptor cannot say. */
	if (!pArrayDescriptor || a->desc.Depth != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){ .Width = a->desc.Width,
						     .Height = a->desc.Height,
						     .Format = a->desc.Format,
						     .NumChannels = a->desc.NumChannels };
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor,
					     CUarray hArray)
{
	struct aq_fe_array *a = NULL;
	CUresult res = array_enter(hArray, &a);

	if (res != CUDA_SUCCESS)
		return res;
	if (!pArrayDescriptor)
		return CUDA_ERROR_INVALID_VALUE;
	*pArrayDescriptor = a->desc;
	return CUDA_SUCCESS;
}

static CUresult free_wait(struct aq_fe_ctx *owner, unsigned long long owner_uid)
{
	struct aq_fe_ctx *ctx = NULL;
	CUresult res = aq_fe_enter_ctx(&ctx);

	return res == CUDA_SUCCESS ? aq_fe_free_wait(ctx, owner, owner_uid) : res;
}

AQ_EXPORT CUresult cuArrayDestroy(CUarray hArray)
{
	struct aq_fe_array *a = NULL;
	uint64_t va = 0;
	CUresult res = array_enter(hArray, &a);

	if (res != CUDA_SUCCESS)
		return res;
	if (a->mipmap) /* a level belongs to its mipmapped array */
		return CUDA_ERROR_INVALID_VALUE;
	res = free_wait(a->ctx, a->ctx_uid);
	if (res != CUDA_SUCCESS)
		return res;
	if (!aq_fe_handle_remove(AQ_FE_ARRAY, a))
		return CUDA_ERROR_INVALID_HANDLE;
	va = a->va;
	array_free(a);
	return aq_fe_seg_free(va);
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret, uint64_t size, CUdevice device)
{
	struct aq_fe_device *dev = NULL;
	CUresult res = aq_fe_device(device, &dev);

	if (res != CUDA_SUCCESS)
		return res;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUDA_ARRAY_MEMORY_REQUIREMENTS){ .size = size, .alignment = AQ_FE_ARRAY_ALIGN };
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
						CUarray array, CUdevice device)
{
	struct aq_fe_array *a = NULL;
	CUresult res = array_enter(array, &a);

	return res == CUDA_SUCCESS ? requirements(memoryRequirements, a->layout.size, device) : res;
}

AQ_EXPORT CUresult
cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
				      CUmipmappedArray mipmap, CUdevice device)
{
	struct aq_fe_mipmap *m = NULL;
	CUresult res = mipmap_enter(mipmap, &m);

	return res == CUDA_SUCCESS ? requirements(memoryRequirements, m->size, device) : res;
}

static void mipmap_free(struct aq_fe_mipmap *m)
{
	(void)aq_fe_handle_remove(AQ_FE_MIPMAP, m);
	for (unsigned i = 0; i < m->n_levels; i++)
		array_free(m->level[i]);
	(void)pthread_mutex_lock(&all.lock);
	UNLINK(all.mipmaps, m);
	(void)pthread_mutex_unlock(&all.lock);
	free(m);
}

/* Lay the levels out one behind the other; their addresses are offsets until there is memory. */
static CUresult mipmap_levels(struct aq_fe_ctx *ctx, struct aq_fe_mipmap *m, unsigned n)
{
	struct aq_fe_array_layout layout;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	struct aq_fe_array *a = NULL;
	CUresult res = CUDA_SUCCESS;

	for (unsigned i = 0; i < n; i++) {
		aq_fe_mip_level(&m->desc, i, &desc);
		res = aq_fe_array_layout(&desc, &layout);
		if (res != CUDA_SUCCESS)
			return res;
		a = array_new(ctx, &desc, &layout);
		if (!a)
			return CUDA_ERROR_OUT_OF_MEMORY;
		a->mipmap = m;
		a->level = i;
		a->va = m->size;
		m->size += layout.size;
		m->level[m->n_levels++] = a;
	}
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
					  const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
					  unsigned int numMipmapLevels)
{
	struct aq_fe_array_layout layout;
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_mipmap *m = NULL;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!pHandle || !pMipmappedArrayDesc)
		return CUDA_ERROR_INVALID_VALUE;
	res = aq_fe_array_layout(pMipmappedArrayDesc, &layout);
	if (res != CUDA_SUCCESS)
		return res;
	if (numMipmapLevels == 0)
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->desc = *pMipmappedArrayDesc;
	m->ctx = ctx;
	m->ctx_uid = ctx->unique_id;
	m->dev = ctx->dev;
	(void)pthread_mutex_lock(&all.lock);
	m->next = all.mipmaps;
	all.mipmaps = m;
	(void)pthread_mutex_unlock(&all.lock);
	/* More levels than the extents have are clamped, as documented. */
	res = mipmap_levels(ctx, m, AQ_MIN(numMipmapLevels, aq_fe_mip_count(&m->desc)));
	if (res == CUDA_SUCCESS)
		res = array_memory(ctx, m->size, &m->va);
	if (res != CUDA_SUCCESS) {
		mipmap_free(m);
		return res;
	}
	for (unsigned i = 0; i < m->n_levels; i++)
		m->level[i]->va += m->va;
	if (!aq_fe_handle_add(AQ_FE_MIPMAP, m)) {
		(void)aq_fe_seg_free(m->va);
		mipmap_free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*pHandle = (CUmipmappedArray)m;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
					    unsigned int level)
{
	struct aq_fe_mipmap *m = NULL;
	CUresult res = mipmap_enter(hMipmappedArray, &m);

	if (res != CUDA_SUCCESS)
		return res;
	if (!pLevelArray || level >= m->n_levels)
		return CUDA_ERROR_INVALID_VALUE;
	*pLevelArray = (CUarray)m->level[level];
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	struct aq_fe_mipmap *m = NULL;
	uint64_t va = 0;
	CUresult res = mipmap_enter(hMipmappedArray, &m);

	if (res != CUDA_SUCCESS)
		return res;
	res = free_wait(m->ctx, m->ctx_uid);
	if (res != CUDA_SUCCESS)
		return res;
	if (!aq_fe_handle_remove(AQ_FE_MIPMAP, m))
		return CUDA_ERROR_INVALID_HANDLE;
	va = m->va;
	mipmap_free(m);
	return aq_fe_seg_free(va);
}

void aq_fe_array_ctx_gone(unsigned long long ctx_uid)
{
	struct aq_fe_array *a = NULL;
	struct aq_fe_mipmap *m = NULL;

	do {
		(void)pthread_mutex_lock(&all.lock);
		for (m = all.mipmaps; m && m->ctx_uid != ctx_uid; m = m->next)
			;
		(void)pthread_mutex_unlock(&all.lock);
		if (m)
			mipmap_free(m);
	} while (m);
	do {
		(void)pthread_mutex_lock(&all.lock);
		for (a = all.arrays; a && a->ctx_uid != ctx_uid; a = a->next)
			;
		(void)pthread_mutex_unlock(&all.lock);
		array_free(a);
	} while (a);
}

void aq_fe_array_forked(void)
{
	(void)pthread_mutex_init(&all.lock, NULL);
	all.arrays = NULL;
	all.mipmaps = NULL;
}
