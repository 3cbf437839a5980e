/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that the card reaches. Allocated memory is the server's memfd, mapped at the same address here. Registered memory is the
 * application's own: its pages are replaced by a memfd with the same contents, at the same address, and turned back when it is
 * unregistered.
 *
 * Registering rounds outward to whole pages. Two registrations therefore cannot share a page, and a thread that writes to the
 * range, or beside it in its first or last page, at the very moment of the call loses that write.
 */
#include "frontend/cuda/mem.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/macro.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t register_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult host_alloc(void **pp, size_t size, unsigned flags)
{
	struct aq_fe_ctx *ctx = NULL;
	uint64_t va = 0;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!pp || size == 0 ||
	    (flags & ~(unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
				 CU_MEMHOSTALLOC_WRITECOMBINED)))
		return CUDA_ERROR_INVALID_VALUE;
	res = aq_fe_mem_new(ctx, AQ_MEM_HOST, AQ_FE_RANGE_HOST, size, flags, &va);
	if (res == CUDA_SUCCESS)
		*pp = (void *)va;
	return res;
}

AQ_EXPORT CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return host_alloc(pp, bytesize, 0);
}

AQ_EXPORT CUresult cuMemAllocHost(void **pp, unsigned int bytesize)
{
	return host_alloc(pp, bytesize, 0);
}

AQ_EXPORT CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	return host_alloc(pp, bytesize, Flags);
}

AQ_EXPORT CUresult cuMemFreeHost(void *p)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_range r;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!aq_fe_range_find((uintptr_t)p, &r) || r.kind != AQ_FE_RANGE_HOST ||
	    r.va != (uintptr_t)p)
		return CUDA_ERROR_INVALID_VALUE;
	res = aq_fe_free_wait(ctx, r.ctx, r.ctx_uid);
	if (res != CUDA_SUCCESS)
		return res;
	if (!aq_fe_range_take((uintptr_t)p, AQ_FE_RANGE_HOST, &r))
		return CUDA_ERROR_INVALID_VALUE;
	return aq_fe_seg_free(r.va);
}

AQ_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_range r;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	/* With unified addressing all host memory is mapped, whatever its flags say. */
	if (!pdptr || Flags != 0 || !aq_fe_range_find((uintptr_t)p, &r) ||
	    !(r.kind & (AQ_FE_RANGE_HOST | AQ_FE_RANGE_REGISTERED)))
		return CUDA_ERROR_INVALID_VALUE;
	*pdptr = (uintptr_t)p;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_range r;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!pFlags || !aq_fe_range_find((uintptr_t)p, &r) || r.kind != AQ_FE_RANGE_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	*pFlags = r.flags;
	return CUDA_SUCCESS;
}

struct pages {
	uint64_t first, size;
};

static struct pages pages_of(uint64_t va, uint64_t size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t first = aq_align_down(va, page);

	return (struct pages){ first, aq_align_up(va + size, page) - first };
}

/* One line of /proc/self/maps that overlaps the range: may its pages be replaced? */
static CUresult line_check(const char *line, const char *perms)
{
	if (strstr(line, "[stack") || strstr(line, "[v") || perms[3] != 'p')
		return CUDA_ERROR_NOT_SUPPORTED;
	return perms[0] == 'r' && perms[1] == 'w' ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/*
 * Whether all of the pages are there, private and writable. Shared memory is already somebody's file, which this process cannot hand
 * on; the running stack cannot be replaced under its own feet.
 */
static CUresult pages_check(const struct pages *p)
{
	aq_auto_free char *line = NULL;
	uint64_t begin = 0, end = 0, at = p->first, here = (uintptr_t)__builtin_frame_address(0);
	char perms[8];
	size_t cap = 0;
	CUresult res = CUDA_ERROR_INVALID_VALUE; /* not mapped */
	FILE *f = NULL;

	if (here - p->first < p->size)
		return CUDA_ERROR_NOT_SUPPORTED;
	f = fopen("/proc/self/maps", "re");
	if (!f)
		return CUDA_ERROR_OPERATING_SYSTEM;
	while (getline(&line, &cap, f) > 0) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &begin, &end, perms) != 3 ||
		    end <= at)
			continue;
		if (begin > at) {
			res = CUDA_ERROR_INVALID_VALUE; /* a hole */
			break;
		}
		res = line_check(line, perms);
		at = end;
		if (res != CUDA_SUCCESS || at >= p->first + p->size)
			break;
	}
	(void)fclose(f);
	return res == CUDA_SUCCESS && at < p->first + p->size ? CUDA_ERROR_INVALID_VALUE : res;
}

/*
 * Copy whole pages, whatever lies in them: not by memcpy(), which the sanitizers watch for reads beside an object, and which they find
 * in a plain loop too.
 */
__attribute__((no_sanitize("address", "thread"))) static void copy_pages(void *dst, const void *src,
									 uint64_t size)
{
	uint64_t *d = dst;
	const uint64_t *s = src;

	for (uint64_t i = 0; i < size / sizeof(*d); i += 8) {
		for (unsigned k = 0; k < 8; k++)
			d[i + k] = s[i + k];
		__asm__ volatile("" : : : "memory");
	}
}

/* Nothing between the copy and the mapping may touch the pages: no allocation, no message. */
static CUresult pages_replace(const struct pages *p, int fd)
{
	void *tmp = mmap(NULL, p->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	void *got = NULL;

	if (tmp == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	copy_pages(tmp, (const void *)p->first, p->size);
	got = mmap((void *)p->first, p->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		   0);
	(void)munmap(tmp, p->size);
	return got == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

void aq_fe_host_unpin(uint64_t va, uint64_t size)
{
	struct pages p = pages_of(va, size);
	void *tmp = mmap(NULL, p.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (tmp == MAP_FAILED)
		return; /* the pages stay shared with nobody: the server has let go of them */
	copy_pages(tmp, (const void *)p.first, p.size);
	if (mremap(tmp, p.size, p.size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)p.first) ==
	    MAP_FAILED)
		(void)munmap(tmp, p.size);
}

static CUresult register_locked(struct aq_fe_ctx *ctx, uint64_t va, uint64_t size, unsigned flags)
{
	struct aq_fe_range r = { .va = va,
				 .size = size,
				 .kind = AQ_FE_RANGE_REGISTERED,
				 .flags = flags,
				 .ctx = ctx,
				 .ctx_uid = ctx->unique_id,
				 .dev = ctx->dev };
	struct pages p = pages_of(va, size);
	struct aq_req_host_register req = { ctx->id, flags, p.first, p.size };
	struct aq_client_msg msg = { AQ_OP_HOST_REGISTER, &req, sizeof(req), NULL, 0 };
	struct aq_rep_host_register rep;
	aq_auto_close int fd = -1;
	CUresult res = CUDA_SUCCESS;

	if (aq_fe_range_overlaps(p.first, p.size))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	res = pages_check(&p);
	if (res != CUDA_SUCCESS)
		return res;
	fd = aq_fd_memfd("aliquot-registered", p.size);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = aq_fe_result(
		aq_client_call_fd(aq_fe.client, &msg, &rep, sizeof(rep), NULL, fd, NULL));
	if (res != CUDA_SUCCESS)
		return res;
	res = pages_replace(&p, fd);
	if (res == CUDA_SUCCESS && aq_fe_range_add(&r))
		return CUDA_SUCCESS;
	(void)aq_fe_seg_free(p.first);
	if (res != CUDA_SUCCESS)
		return res;
	aq_fe_host_unpin(va, size);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

AQ_EXPORT CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_range r;
	uint64_t va = (uintptr_t)p;
	unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
			 CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	/* Addresses end far below 2^64, with room for the rounding. */
	if (!p || bytesize == 0 || (Flags & ~known) || bytesize > (1ULL << 56) || va > (1ULL << 56))
		return CUDA_ERROR_INVALID_VALUE;
	if (Flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (va < aq_fe.arena_base + aq_fe.arena_size && va + bytesize > aq_fe.arena_base)
		return aq_fe_range_find(va, &r) && r.kind == AQ_FE_RANGE_HOST
			       ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
			       : CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&register_lock);
	res = register_locked(ctx, va, bytesize, Flags);
	(void)pthread_mutex_unlock(&register_lock);
	return res;
}

AQ_EXPORT CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	return cuMemHostRegister_v2(p, bytesize, Flags);
}

AQ_EXPORT CUresult cuMemHostUnregister(void *p)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_range r;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (!aq_fe_range_find((uintptr_t)p, &r) || r.kind != AQ_FE_RANGE_REGISTERED)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	if (r.va != (uintptr_t)p)
		return CUDA_ERROR_INVALID_VALUE; /* inside, not at its beginning */
	res = aq_fe_free_wait(ctx, r.ctx, r.ctx_uid);
	if (res != CUDA_SUCCESS)
		return res;
	(void)pthread_mutex_lock(&register_lock);
	if (aq_fe_range_take((uintptr_t)p, AQ_FE_RANGE_REGISTERED, &r)) {
		res = aq_fe_seg_free(pages_of(r.va, r.size).first);
		aq_fe_host_unpin(r.va, r.size);
	} else {
		res = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED; /* another thread was faster */
	}
	(void)pthread_mutex_unlock(&register_lock);
	return res;
}

void aq_fe_host_forked(void)
{
	(void)pthread_mutex_init(&register_lock, NULL);
}
