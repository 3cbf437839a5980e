/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing memory and events between processes by cookies, which nobody can guess and which are good for one user only. */
#include "base/macro.h"
#include "gpud/soft/soft.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct aq_export *aq_export_new(struct aq_soft_session *s)
{
	struct aq_export *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	if (getrandom(e->cookie, sizeof(e->cookie), 0) != (ssize_t)sizeof(e->cookie)) {
		free(e);
		return NULL;
	}
	e->uid = s->peer.uid;
	return e;
}

static void publish(struct aq_soft *soft, struct aq_export *e)
{
	(void)pthread_mutex_lock(&soft->mem_lock);
	aq_list_push_back(&soft->exports, &e->link);
	(void)pthread_mutex_unlock(&soft->mem_lock);
}

void aq_export_free(struct aq_soft *soft, struct aq_export *e)
{
	(void)pthread_mutex_lock(&soft->mem_lock);
	aq_list_remove(&e->link);
	(void)pthread_mutex_unlock(&soft->mem_lock);
	aq_seg_unref(e->seg);
	if (e->event) {
		(void)pthread_mutex_lock(&soft->lock);
		aq_event_core_unref(e->event);
		(void)pthread_mutex_unlock(&soft->lock);
	}
	free(e);
}

/* A copy of the entry, with a reference of its own to what it stands for. aq_soft.lock is held, so that events can be referred to. */
static bool find_export(struct aq_soft_session *s, const uint8_t *cookie, bool want_event,
			struct aq_export *ret)
{
	struct aq_soft *soft = s->soft;
	struct aq_export *e;
	bool found = false;

	(void)pthread_mutex_lock(&soft->mem_lock);
	aq_list_for_each(e, &soft->exports, link) {
		if (memcmp(e->cookie, cookie, sizeof(e->cookie)) != 0)
			continue;
		if (e->uid == s->peer.uid && want_event == (e->event != NULL)) {
			*ret = *e;
			if (e->seg)
				(void)aq_seg_ref(e->seg);
			if (e->event)
				(void)aq_event_core_ref(e->event);
			found = true;
		}
		break;
	}
	(void)pthread_mutex_unlock(&soft->mem_lock);
	return found;
}

int aq_soft_mem_export(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_mem_export *req = request->req;
	struct aq_rep_mem_export *rep = (void *)ans->data;
	struct aq_va_entry *entry = aq_vatab_find(&s->allocs, req->va);
	struct aq_alloc *a = entry ? entry->object : NULL;

	if (!a)
		return AQ_E_NOT_FOUND;
	if (a->imported || a->registered || (a->kind != AQ_MEM_DEVICE && a->kind != AQ_MEM_ARRAY))
		return AQ_E_NOT_SUPPORTED;
	if (!a->export) {
		struct aq_range *r = aq_aspace_find(&s->as, a->va);
		struct aq_export *e = aq_export_new(s);

		if (!e)
			return AQ_E_NO_MEMORY;
		e->seg = aq_seg_ref(r->seg);
		e->offset = r->offset + (a->va - r->base);
		e->size = a->size;
		e->card = r->card;
		a->export = e;
		publish(s->soft, e);
	}
	memcpy(rep->cookie, a->export->cookie, sizeof(rep->cookie));
	rep->offset = req->va - a->va;
	ans->len = sizeof(*rep);
	return AQ_OK;
}

/* Map the whole segment, as the exporter has it, and remember the piece. */
static enum aq_status import_mem(struct aq_soft_ctx *ctx, struct aq_export *e,
				 struct aq_alloc **ret)
{
	struct aq_soft_session *s = ctx->session;
	struct aq_alloc *a = calloc(1, sizeof(*a));
	struct aq_range *r = calloc(1, sizeof(*r));
	uint64_t size = e->seg->size;
	uint64_t va;

	if (!a || !r || s->allocs.n >= AQ_SOFT_MAX_ALLOCS ||
	    aq_vafree_take(&s->as.free, size, 2 * AQ_MIB, 0, &va) < 0)
		goto fail;
	*r = (struct aq_range){
		.base = va, .end = va + size, .seg = e->seg, .kind = AQ_RANGE_PLAIN, .card = e->card
	};
	if (aq_aspace_add(&s->as, r) < 0) {
		aq_vafree_give(&s->as.free, va, size);
		goto fail;
	}
	r = NULL; /* and the reference with it */
	*a = (struct aq_alloc){ .va = va + e->offset,
				.size = e->size,
				.kind = AQ_MEM_DEVICE,
				.ctx = ctx,
				.imported = true,
				.range_base = va };
	if (aq_vatab_insert(&s->allocs, a->va, a->va + a->size, a) < 0) {
		(void)aq_aspace_remove(&s->as, va);
		aq_vafree_give(&s->as.free, va, size);
		free(a);
		return AQ_E_NO_MEMORY;
	}
	aq_list_push_back(&ctx->allocs, &a->ctx_link);
	*ret = a;
	return AQ_OK;
fail:
	aq_seg_unref(e->seg);
	free(r);
	free(a);
	return AQ_E_NO_MEMORY;
}

int aq_soft_mem_import(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_mem_import *req = request->req;
	struct aq_soft_ctx *ctx = aq_ctx_get(s, req->ctx);
	struct aq_rep_mem_import *rep = (void *)ans->data;
	struct aq_alloc *a = NULL;
	struct aq_export e;
	enum aq_status status;
	bool found;

	if (!ctx)
		return AQ_E_CONTEXT_GONE;
	(void)pthread_mutex_lock(&s->soft->lock);
	found = find_export(s, req->cookie, false, &e);
	(void)pthread_mutex_unlock(&s->soft->lock);
	if (!found)
		return AQ_E_NOT_FOUND;
	status = import_mem(ctx, &e, &a);
	if (status != AQ_OK)
		return (int)status;
	rep->va = a->va;
	rep->size = a->size;
	ans->len = sizeof(*rep);
	return AQ_OK;
}

int aq_soft_event_export(void *session, const struct aq_request *request,
			 struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_event_export *req = request->req;
	struct aq_event *ev = aq_idtab_get(&s->events, req->event);
	struct aq_rep_event_export *rep = (void *)ans->data;

	if (!ev)
		return AQ_E_NOT_FOUND;
	if (!ev->export) {
		struct aq_export *e = aq_export_new(s);

		if (!e)
			return AQ_E_NO_MEMORY;
		(void)pthread_mutex_lock(&s->soft->lock);
		e->event = aq_event_core_ref(ev->core);
		(void)pthread_mutex_unlock(&s->soft->lock);
		ev->export = e;
		publish(s->soft, e);
	}
	memcpy(rep->cookie, ev->export->cookie, sizeof(rep->cookie));
	ans->len = sizeof(*rep);
	return AQ_OK;
}

int aq_soft_event_import(void *session, const struct aq_request *request,
			 struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_event_import *req = request->req;
	struct aq_soft_ctx *ctx = aq_ctx_get(s, req->ctx);
	struct aq_export e;
	bool found;
	int rc;

	(void)ans;
	if (!ctx)
		return AQ_E_CONTEXT_GONE;
	if (!aq_idtab_is_free(&s->events, req->event))
		return AQ_E_INVALID;
	(void)pthread_mutex_lock(&s->soft->lock);
	found = find_export(s, req->cookie, true, &e);
	(void)pthread_mutex_unlock(&s->soft->lock);
	if (!found)
		return AQ_E_NOT_FOUND;
	rc = aq_event_add(ctx, req->event, e.event);
	(void)pthread_mutex_lock(&s->soft->lock);
	aq_event_core_unref(e.event);
	(void)pthread_mutex_unlock(&s->soft->lock);
	return rc < 0 ? AQ_E_NO_MEMORY : AQ_OK;
}
