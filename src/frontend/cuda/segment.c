/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings of the server's memory in this process. The server may give an address to somebody else as soon as it has freed it,
 * so MEM_FREE and the unmapping that follows from it happen under one lock, and a new mapping takes the same lock.
 *
 * Segments also go when a context or a module does, which nobody tells us. A mapping kept for later is therefore never believed by its
 * address alone: MEM_SHARE is asked for the segment that is there now, and the file behind both must be the same. An entry of the range
 * table remembers the mapping that was found good for it, which stays good as long as the entry lives.
 */
#include "frontend/cuda/mem.h"

#include "base/cleanup.h"
#include "base/macro.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct aq_fe_seg {
	struct aq_rnode node; /* device addresses */
	char *at;	      /* where it is in this process */
	ino_t ino;	      /* of its memfd: unique while something holds it open or mapped */
	uint64_t offset;      /* in the memfd */
	uint64_t serial;      /* never used again */
	unsigned long long ctx_uid; /* direct: of the owner, 0 unknown */
	unsigned pins;		    /* open windows */
	bool dead;		    /* somebody waits for the pins to go and unmaps it */
};

/* `alias` is what windows see; `direct` is mapped at the device address itself (host, managed). */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t unpinned;
	struct aq_rtree alias;
	struct aq_rtree direct;
	uint64_t next_serial;
} maps = { .lock = PTHREAD_MUTEX_INITIALIZER, .unpinned = PTHREAD_COND_INITIALIZER };

#define seg_of(n) aq_container_of(n, struct aq_fe_seg, node)

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A range that the server named: page-aligned and inside the arena. */
static bool is_sane(uint64_t va, uint64_t size)
{
	uint64_t mask = page_size() - 1, off = va - aq_fe.arena_base;

	return size > 0 && !((va | size) & mask) && off < aq_fe.arena_size &&
	       size <= aq_fe.arena_size - off;
}

static void restore_reservation(uint64_t va, uint64_t size)
{
	/* Should the kernel refuse, the old pages stay: nobody looks at them any more. */
	(void)mmap((void *)va, size, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void drop_alias_locked(struct aq_fe_seg *s)
{
	bool mine = !s->dead;

	s->dead = true;
	if (!mine)
		return; /* the first to want it gone unmaps it */
	while (s->pins > 0)
		(void)pthread_cond_wait(&maps.unpinned, &maps.lock);
	aq_rtree_remove(&maps.alias, &s->node);
	(void)munmap(s->at, s->node.size);
	free(s);
	(void)pthread_cond_broadcast(&maps.unpinned);
}

/* Wait until no dead segment overlaps; drop the live ones. The lock is let go of meanwhile. */
static void drop_locked(uint64_t va, uint64_t size)
{
	struct aq_rnode *n = NULL;

	while ((n = aq_rtree_overlap(&maps.alias, va, size))) {
		if (seg_of(n)->dead)
			(void)pthread_cond_wait(&maps.unpinned, &maps.lock);
		else
			drop_alias_locked(seg_of(n));
	}
	while ((n = aq_rtree_overlap(&maps.direct, va, size))) {
		aq_rtree_remove(&maps.direct, n);
		restore_reservation(n->va, n->size);
		free(seg_of(n));
	}
}

/* What an fd is: two segments with the same are the same. */
static ino_t ino_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static struct aq_fe_seg *seg_new(uint64_t va, uint64_t size, char *at, int fd, uint64_t offset)
{
	struct aq_fe_seg *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->node.va = va;
	s->node.size = size;
	s->at = at;
	s->ino = ino_of(fd);
	s->offset = offset;
	s->serial = ++maps.next_serial;
	return s;
}

static bool is_same(const struct aq_rnode *n, uint64_t va, uint64_t size, int fd, uint64_t offset)
{
	const struct aq_fe_seg *s = aq_container_of(n, const struct aq_fe_seg, node);

	return n->va == va && n->size == size && s->offset == offset && s->ino != 0 &&
	       s->ino == ino_of(fd);
}

/* Map an fd over the reservation, at the device address. */
static CUresult map_direct_locked(uint64_t va, uint64_t size, int prot, int fd, uint64_t offset,
				  unsigned long long ctx_uid)
{
	struct aq_rnode *n = aq_rtree_overlap(&maps.direct, va, size);
	struct aq_fe_seg *s = NULL;

	/* Several ranges may share one segment, which is then there already. */
	if (n && is_same(n, va, size, fd, offset))
		return mprotect((void *)va, size, prot) == 0 ? CUDA_SUCCESS
							     : CUDA_ERROR_OUT_OF_MEMORY;
	drop_locked(va, size);
	s = seg_new(va, size, (char *)va, fd, offset);
	if (!s ||
	    mmap((void *)va, size, prot, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) == MAP_FAILED) {
		free(s);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	s->ctx_uid = ctx_uid;
	(void)aq_rtree_insert(&maps.direct, &s->node);
	return CUDA_SUCCESS;
}

static CUresult alloc_shared(struct aq_fe_ctx *ctx, const struct aq_client_msg *msg,
			     struct aq_rep_mem_alloc *ret)
{
	aq_auto_close int fd = -1;
	CUresult res = aq_fe_result(
		aq_client_call_fd(aq_fe.client, msg, ret, sizeof(*ret), NULL, -1, &fd));

	if (res != CUDA_SUCCESS)
		return res;
	if (!is_sane(ret->share_va, ret->share_size))
		return CUDA_ERROR_UNKNOWN;
	(void)pthread_mutex_lock(&maps.lock);
	res = map_direct_locked(ret->share_va, ret->share_size, PROT_READ | PROT_WRITE, fd, 0,
				ctx->unique_id);
	(void)pthread_mutex_unlock(&maps.lock);
	if (res != CUDA_SUCCESS)
		(void)aq_fe_seg_free(ret->va);
	return res;
}

CUresult aq_fe_seg_alloc(struct aq_fe_ctx *ctx, enum aq_mem_kind kind, uint64_t size,
			 struct aq_rep_mem_alloc *ret)
{
	struct aq_req_mem_alloc req = {
		.ctx = ctx->id, .kind = (uint32_t)kind, .size = size, .align = 512
	};
	struct aq_client_msg msg = { AQ_OP_MEM_ALLOC, &req, sizeof(req), NULL, 0 };

	if (kind == AQ_MEM_MANAGED || kind == AQ_MEM_HOST)
		return alloc_shared(ctx, &msg, ret);
	return aq_fe_call(MEM_ALLOC, mem_alloc, &req, ret);
}

CUresult aq_fe_seg_free(uint64_t va)
{
	struct aq_req_mem_free req = { .va = va };
	struct aq_rep_mem_free rep = { 0 };
	CUresult res = CUDA_SUCCESS;

	(void)pthread_mutex_lock(&maps.lock);
	res = aq_fe_call(MEM_FREE, mem_free, &req, &rep);
	if (res == CUDA_SUCCESS && rep.unmap_size > 0 && is_sane(rep.unmap_va, rep.unmap_size))
		drop_locked(rep.unmap_va, rep.unmap_size);
	(void)pthread_mutex_unlock(&maps.lock);
	return res;
}

void aq_fe_seg_unmap(uint64_t va, uint64_t size)
{
	(void)pthread_mutex_lock(&maps.lock);
	drop_locked(va, size);
	(void)pthread_mutex_unlock(&maps.lock);
}

static CUresult share_locked(uint64_t va, struct aq_rep_mem_share *ret, int *ret_fd)
{
	struct aq_req_mem_share req = { .va = va };
	struct aq_client_msg msg = { AQ_OP_MEM_SHARE, &req, sizeof(req), NULL, 0 };
	CUresult res = aq_fe_result(
		aq_client_call_fd(aq_fe.client, &msg, ret, sizeof(*ret), NULL, -1, ret_fd));

	if (res != CUDA_SUCCESS)
		return res;
	if (is_sane(ret->share_va, ret->share_size) && va - ret->share_va < ret->share_size &&
	    !(ret->offset & (page_size() - 1)))
		return CUDA_SUCCESS;
	(void)close(*ret_fd);
	*ret_fd = -1;
	return CUDA_ERROR_UNKNOWN;
}

CUresult aq_fe_seg_map_host(uint64_t va, uint64_t size, int prot)
{
	uint64_t first = aq_align_down(va, page_size());
	uint64_t end = aq_align_up(va + size, page_size());
	struct aq_rep_mem_share rep;
	CUresult res = CUDA_SUCCESS;
	int fd = -1;

	(void)pthread_mutex_lock(&maps.lock);
	res = share_locked(va, &rep, &fd);
	if (res == CUDA_SUCCESS) {
		if (first < rep.share_va || end > rep.share_va + rep.share_size)
			res = CUDA_ERROR_INVALID_VALUE;
		else
			res = map_direct_locked(first, end - first, prot, fd,
						rep.offset + (first - rep.share_va), 0);
		(void)close(fd);
	}
	(void)pthread_mutex_unlock(&maps.lock);
	return res;
}

void aq_fe_seg_ctx_gone(unsigned long long ctx_uid)
{
	struct aq_rnode *n = NULL;
	uint64_t at = 0;

	(void)pthread_mutex_lock(&maps.lock);
	/* Aliases are only a cache. Those in use stay: they are of other contexts. */
	for (at = 0; (n = aq_rtree_at_or_above(&maps.alias, at));) {
		at = n->va + n->size; /* inside the arena: does not wrap */
		if (seg_of(n)->pins == 0 && !seg_of(n)->dead)
			drop_alias_locked(seg_of(n));
	}
	for (at = 0; (n = aq_rtree_at_or_above(&maps.direct, at));) {
		at = n->va + n->size;
		if (seg_of(n)->ctx_uid == ctx_uid)
			drop_locked(n->va, n->size);
	}
	(void)pthread_mutex_unlock(&maps.lock);
}

/* The alias of the segment that is at va now; mapped if need be. `serial` is one that was good before, or 0. */
static CUresult alias_get_locked(uint64_t va, uint64_t serial, struct aq_fe_seg **ret)
{
	struct aq_rep_mem_share rep;
	struct aq_rnode *n = NULL;
	struct aq_fe_seg *s = NULL;
	CUresult res = CUDA_SUCCESS;
	void *at = NULL;
	int fd = -1;

	n = serial ? aq_rtree_find(&maps.alias, va) : NULL;
	if (n && !seg_of(n)->dead && seg_of(n)->serial == serial) {
		*ret = seg_of(n);
		return CUDA_SUCCESS;
	}
	res = share_locked(va, &rep, &fd);
	if (res != CUDA_SUCCESS)
		return res;
	while ((n = aq_rtree_overlap(&maps.alias, rep.share_va, rep.share_size))) {
		if (!seg_of(n)->dead && is_same(n, rep.share_va, rep.share_size, fd, rep.offset)) {
			(void)close(fd);
			*ret = seg_of(n);
			return CUDA_SUCCESS;
		}
		drop_locked(rep.share_va, rep.share_size);
	}
	at = mmap(NULL, rep.share_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)rep.offset);
	s = at == MAP_FAILED ? NULL : seg_new(rep.share_va, rep.share_size, at, fd, rep.offset);
	(void)close(fd);
	if (!s) {
		/* Too many mappings, or no memory: the data then goes through the ring. */
		if (at != MAP_FAILED)
			(void)munmap(at, rep.share_size);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	(void)aq_rtree_insert(&maps.alias, &s->node);
	*ret = s;
	return CUDA_SUCCESS;
}

struct found_good {
	unsigned long long buffer_id;
	uint64_t serial;
};

static void remember(struct aq_fe_range *r, void *arg)
{
	const struct found_good *g = arg;

	if (r->buffer_id == g->buffer_id)
		r->seg_serial = g->serial;
}

/* The pane that shows va. */
static CUresult pane_open(uint64_t va, struct aq_fe_pane *ret)
{
	struct aq_fe_range r = { 0 };
	struct found_good good = { 0 };
	struct aq_fe_seg *s = NULL;
	bool known = aq_fe_range_find(va, &r);
	CUresult res = CUDA_SUCCESS;

	if (known && (r.kind & AQ_FE_RANGE_ON_HOST)) {
		*ret = (struct aq_fe_pane){ r.va, r.size, (char *)r.va, NULL };
		return CUDA_SUCCESS;
	}
	(void)pthread_mutex_lock(&maps.lock);
	res = alias_get_locked(va, r.seg_serial, &s);
	if (res == CUDA_SUCCESS) {
		s->pins++;
		good = (struct found_good){ r.buffer_id, s->serial };
		*ret = (struct aq_fe_pane){ s->node.va, s->node.size, s->at, s };
	}
	(void)pthread_mutex_unlock(&maps.lock);
	if (res == CUDA_SUCCESS && known && good.serial != r.seg_serial)
		(void)aq_fe_range_update(va, remember, &good);
	return res;
}

CUresult aq_fe_window_open(uint64_t va, uint64_t size, struct aq_fe_window *w)
{
	uint64_t end = va + size;
	CUresult res = CUDA_SUCCESS;

	for (w->n = 0; va < end; w->n++) {
		res = w->n < AQ_FE_WINDOW_MAX ? pane_open(va, &w->pane[w->n])
					      : CUDA_ERROR_NOT_SUPPORTED;
		if (res != CUDA_SUCCESS) {
			aq_fe_window_close(w);
			return res;
		}
		va = w->pane[w->n].va + w->pane[w->n].size;
	}
	return CUDA_SUCCESS;
}

void aq_fe_window_close(struct aq_fe_window *w)
{
	bool wake = false;

	(void)pthread_mutex_lock(&maps.lock);
	for (unsigned i = 0; i < w->n; i++) {
		if (w->pane[i].seg) {
			w->pane[i].seg->pins--;
			wake = wake || w->pane[i].seg->dead;
		}
	}
	if (wake)
		(void)pthread_cond_broadcast(&maps.unpinned);
	(void)pthread_mutex_unlock(&maps.lock);
	w->n = 0;
}

char *aq_fe_window_at(const struct aq_fe_window *w, uint64_t va, uint64_t *ret_room)
{
	const struct aq_fe_pane *p = w->pane;

	while (va - p->va >= p->size)
		p++;
	*ret_room = p->size - (va - p->va);
	return p->at + (va - p->va);
}

void aq_fe_seg_forked(void)
{
	(void)pthread_mutex_init(&maps.lock, NULL);
	(void)pthread_cond_init(&maps.unpinned, NULL);
	maps.alias = maps.direct = (struct aq_rtree){ 0 };
}
