/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: addresses, physical memory and the rights between them, each on its own. */
#include "base/cleanup.h"
#include "base/macro.h"
#include "gpud/soft/soft.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define GRANULARITY (2 * AQ_MIB)
#define MAX_SIZE    (1ULL << 46)

/* A handle to physical memory. */
struct phys {
	struct aq_seg *seg;
	uint32_t card; /* or AQ_CARD_HOST */
};

static bool is_size(uint64_t size)
{
	return size && size <= MAX_SIZE && size % GRANULARITY == 0;
}

static bool is_span(uint64_t va, uint64_t size)
{
	return is_size(size) && va % GRANULARITY == 0 && va + size > va;
}

/* ---- addresses ---- */

int aq_soft_va_reserve(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_va_reserve *req = request->req;
	struct aq_rep_va_reserve *rep = (void *)ans->data;
	uint64_t align = AQ_MAX(req->align, GRANULARITY);
	uint64_t va;

	if (!is_size(req->size) || (align & (align - 1)))
		return AQ_E_INVALID;
	if (s->reservations.n >= AQ_SOFT_MAX_PHYS ||
	    aq_vafree_take(&s->as.free, req->size, align, req->hint, &va) < 0)
		return AQ_E_NO_MEMORY;
	if (aq_vatab_insert(&s->reservations, va, va + req->size, s) < 0) {
		aq_vafree_give(&s->as.free, va, req->size);
		return AQ_E_NO_MEMORY;
	}
	rep->va = va;
	ans->len = sizeof(*rep);
	return AQ_OK;
}

static bool has_range(const struct aq_soft_session *s, uint64_t va, uint64_t size)
{
	const struct aq_vatab *t = &s->as.ranges;
	size_t i = aq_vatab_first(t, va);

	return i < t->n && t->entry[i].base < va + size;
}

int aq_soft_va_release(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_va_release *req = request->req;
	struct aq_va_entry *e = aq_vatab_find(&s->reservations, req->va);

	(void)ans;
	if (!e || e->base != req->va || e->end - e->base != req->size)
		return AQ_E_INVALID;
	if (has_range(s, req->va, req->size))
		return AQ_E_BUSY;
	(void)aq_vatab_remove(&s->reservations, req->va);
	aq_vafree_give(&s->as.free, req->va, req->size);
	return AQ_OK;
}

/* ---- physical memory ---- */

static enum aq_status add_phys(struct aq_soft_session *s, uint32_t id, struct aq_seg *seg,
			       uint32_t card)
{
	struct phys *p = malloc(sizeof(*p));

	if (!p || aq_idtab_set(&s->phys, id, p) < 0) {
		free(p);
		aq_seg_unref(seg);
		return AQ_E_NO_MEMORY;
	}
	p->seg = seg;
	p->card = card;
	return AQ_OK;
}

int aq_soft_phys_create(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_phys_create *req = request->req;
	struct aq_card *card = aq_soft_card(s->soft, req->card);
	struct aq_seg *seg = NULL;
	enum aq_status status;

	(void)ans;
	if ((!card && req->card != AQ_CARD_HOST) || req->size == 0 || req->size % GRANULARITY ||
	    !aq_idtab_is_free(&s->phys, req->phys))
		return AQ_E_INVALID;
	if (req->size > MAX_SIZE || s->phys.n >= AQ_SOFT_MAX_PHYS)
		return AQ_E_NO_MEMORY;
	status = aq_seg_new(s, card, req->size, &seg);
	if (status != AQ_OK)
		return (int)status;
	return (int)add_phys(s, req->phys, seg, req->card);
}

int aq_soft_phys_release(void *session, const struct aq_request *request,
			 struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_phys_release *req = request->req;
	struct phys *p = aq_idtab_get(&s->phys, req->phys);

	(void)ans;
	if (!p)
		return AQ_E_NOT_FOUND;
	aq_idtab_clear(&s->phys, req->phys);
	aq_seg_unref(p->seg);
	free(p);
	return AQ_OK;
}

int aq_soft_phys_export(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_phys_export *req = request->req;
	struct aq_rep_phys_export *rep = (void *)ans->data;
	struct phys *p = aq_idtab_get(&s->phys, req->phys);
	struct stat st;

	if (!p)
		return AQ_E_NOT_FOUND;
	if (fstat(p->seg->fd, &st) < 0)
		return AQ_E_NO_MEMORY;
	(void)pthread_mutex_lock(&s->soft->mem_lock);
	if (!p->seg->exported) {
		p->seg->exported = true;
		p->seg->dev = st.st_dev;
		p->seg->ino = st.st_ino;
		aq_list_push_back(&s->soft->exported, &p->seg->exported_link);
	}
	(void)pthread_mutex_unlock(&s->soft->mem_lock);
	rep->size = p->seg->size;
	ans->len = sizeof(*rep);
	ans->fd = p->seg->fd;
	return AQ_OK;
}

/* The fd is the proof that its holder may use the memory; which memory it is, its inode says. */
int aq_soft_phys_import(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_phys_import *req = request->req;
	struct aq_rep_phys_import *rep = (void *)ans->data;
	aq_auto_close int fd = aq_conn_recv_fd(s->peer.conn);
	struct aq_seg *found = NULL;
	struct aq_seg *seg;
	enum aq_status status;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !aq_idtab_is_free(&s->phys, req->phys))
		return AQ_E_INVALID;
	if (s->phys.n >= AQ_SOFT_MAX_PHYS)
		return AQ_E_NO_MEMORY;
	(void)pthread_mutex_lock(&s->soft->mem_lock);
	aq_list_for_each(seg, &s->soft->exported, exported_link) {
		if (seg->dev == st.st_dev && seg->ino == st.st_ino) {
			found = aq_seg_ref(seg);
			break;
		}
	}
	(void)pthread_mutex_unlock(&s->soft->mem_lock);
	if (!found)
		return AQ_E_NOT_FOUND;
	*rep = (struct aq_rep_phys_import){
		.size = found->size,
		.card = found->card ? found->card->index : AQ_CARD_HOST,
	};
	status = add_phys(s, req->phys, found, rep->card);
	ans->len = sizeof(*rep);
	return (int)status;
}

/* ---- mappings ---- */

int aq_soft_va_map(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_va_map *req = request->req;
	struct phys *p = aq_idtab_get(&s->phys, req->phys);
	struct aq_va_entry *e = aq_vatab_find(&s->reservations, req->va);
	struct aq_range *r;

	(void)ans;
	if (!p)
		return AQ_E_NOT_FOUND;
	if (!is_span(req->va, req->size) || !e || req->va + req->size > e->end ||
	    req->offset % GRANULARITY || req->offset > p->seg->size ||
	    req->size > p->seg->size - req->offset)
		return AQ_E_INVALID;
	r = calloc(1, sizeof(*r));
	if (!r)
		return AQ_E_NO_MEMORY;
	*r = (struct aq_range){ .base = req->va,
				.end = req->va + req->size,
				.seg = aq_seg_ref(p->seg),
				.offset = req->offset,
				.kind = AQ_RANGE_MAPPED,
				.card = p->card };
	if (aq_aspace_add(&s->as, r) < 0) {
		aq_seg_unref(p->seg);
		free(r);
		return AQ_E_BUSY;
	}
	return AQ_OK;
}

/* [va, va + size) is made of whole mapped ranges, without gaps. */
static bool is_covered(const struct aq_soft_session *s, uint64_t va, uint64_t size)
{
	const struct aq_vatab *t = &s->as.ranges;
	uint64_t end = va + size;

	for (size_t i = aq_vatab_first(t, va); va < end; i++) {
		const struct aq_range *r = i < t->n ? t->entry[i].object : NULL;

		if (!r || r->base != va || r->end > end || r->kind != AQ_RANGE_MAPPED)
			return false;
		va = r->end;
	}
	return true;
}

int aq_soft_va_unmap(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_va_unmap *req = request->req;
	uint64_t va = req->va;

	(void)ans;
	if (!is_span(req->va, req->size) || !is_covered(s, req->va, req->size))
		return AQ_E_INVALID;
	while (va < req->va + req->size) {
		uint64_t next = aq_aspace_find(&s->as, va)->end;

		(void)aq_aspace_remove(&s->as, va);
		va = next;
	}
	return AQ_OK;
}

int aq_soft_va_access(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_va_access *req = request->req;

	(void)ans;
	if (!is_span(req->va, req->size) || !is_covered(s, req->va, req->size) ||
	    (!aq_soft_card(s->soft, req->card) && req->card != AQ_CARD_HOST) ||
	    (req->prot != 0 && req->prot != 1 && req->prot != 3))
		return AQ_E_INVALID;
	for (uint64_t va = req->va; va < req->va + req->size;) {
		struct aq_range *r = aq_aspace_find(&s->as, va);

		va = r->end;
		aq_aspace_set_rights(&s->as, r, req->card, req->prot);
	}
	return AQ_OK;
}

void aq_vmm_session_done(struct aq_soft_session *s)
{
	for (uint32_t id = 0; (id = aq_idtab_next(&s->phys, id)) != 0;) {
		struct phys *p = aq_idtab_get(&s->phys, id);

		aq_seg_unref(p->seg);
		free(p);
	}
	aq_idtab_done(&s->phys);
	aq_vatab_done(&s->reservations);
}
