/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and events shared between processes by 64-byte handles. The server checks the cookie in them. */
#include "frontend/cuda/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC_MEM   0x4d495141U /* "AQIM" */
#define MAGIC_EVENT 0x45495141U /* "AQIE" */

struct wire_handle {
	uint32_t magic;
	uint32_t pid; /* of the exporter: the handle is for others */
	uint8_t cookie[AQ_WIRE_COOKIE];
	uint64_t reserved;
};

_Static_assert(sizeof(struct wire_handle) == CU_IPC_HANDLE_SIZE, "IPC handle");

/* What this process has opened: a handle opened again in its context is the same address. */
struct opened {
	struct opened *next;
	uint8_t cookie[AQ_WIRE_COOKIE];
	uint64_t va;
	unsigned long long ctx_uid;
	unsigned count;
};

static struct {
	pthread_mutex_t lock;
	struct opened *list;
} ipc = { .lock = PTHREAD_MUTEX_INITIALIZER };

AQ_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct wire_handle h = { .magic = MAGIC_MEM, .pid = (uint32_t)getpid() };
	struct aq_req_mem_export req = { 0 };
	struct aq_rep_mem_export rep;
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_range r;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!pHandle || !aq_fe_range_find(dptr, &r) || r.kind != AQ_FE_RANGE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	req.va = r.va;
	res = aq_fe_call(MEM_EXPORT, mem_export, &req, &rep);
	if (res != CUDA_SUCCESS)
		return res;
	memcpy(h.cookie, rep.cookie, sizeof(h.cookie));
	memcpy(pHandle, &h, sizeof(h));
	return CUDA_SUCCESS;
}

/* A cookie that nobody knows (any more) makes an invalid handle. */
static CUresult cookie_result(int rc)
{
	return rc == AQ_E_NOT_FOUND ? CUDA_ERROR_INVALID_HANDLE : aq_fe_result(rc);
}

static CUresult import_locked(struct aq_fe_ctx *ctx, const struct wire_handle *h, uint64_t *ret_va)
{
	struct aq_fe_range r = { .kind = AQ_FE_RANGE_IPC, .ctx = ctx, .dev = ctx->dev };
	struct aq_req_mem_import req = { .ctx = ctx->id };
	struct aq_rep_mem_import rep;
	struct opened *o = NULL;
	int rc = AQ_OK;

	for (o = ipc.list; o; o = o->next) {
		if (o->ctx_uid == ctx->unique_id &&
		    memcmp(o->cookie, h->cookie, sizeof(o->cookie)) == 0) {
			o->count++;
			*ret_va = o->va;
			return CUDA_SUCCESS;
		}
	}
	o = calloc(1, sizeof(*o));
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(req.cookie, h->cookie, sizeof(req.cookie));
	rc = AQ_CALL(aq_fe.client, MEM_IMPORT, mem_import, &req, &rep);
	if (rc != AQ_OK) {
		free(o);
		return cookie_result(rc);
	}
	r.va = rep.va;
	r.size = rep.size;
	r.ctx_uid = ctx->unique_id;
	if (!aq_fe_range_add(&r)) {
		(void)aq_fe_seg_free(rep.va);
		free(o);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(o->cookie, h->cookie, sizeof(o->cookie));
	o->va = rep.va;
	o->ctx_uid = ctx->unique_id;
	o->count = 1;
	o->next = ipc.list;
	ipc.list = o;
	*ret_va = rep.va;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle,
					 unsigned int Flags)
{
	struct aq_fe_ctx *ctx = NULL;
	struct wire_handle h;
	uint64_t va = 0;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	memcpy(&h, &handle, sizeof(h));
	if (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	if (h.magic != MAGIC_MEM)
		return CUDA_ERROR_INVALID_HANDLE;
	if (h.pid == (uint32_t)getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	(void)pthread_mutex_lock(&ipc.lock);
	res = import_locked(ctx, &h, &va);
	(void)pthread_mutex_unlock(&ipc.lock);
	if (res == CUDA_SUCCESS)
		*pdptr = va;
	return res;
}

/* The older entry point checks the same. */
AQ_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

static CUresult close_locked(uint64_t va)
{
	struct opened **at = &ipc.list, *o = NULL;
	struct aq_fe_range r;

	while (*at && (*at)->va != va)
		at = &(*at)->next;
	o = *at;
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	if (--o->count > 0)
		return CUDA_SUCCESS;
	*at = o->next;
	free(o);
	(void)aq_fe_range_take(va, AQ_FE_RANGE_IPC, &r);
	return aq_fe_seg_free(va);
}

AQ_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct aq_fe_ctx *ctx = NULL;
	struct aq_fe_range r;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	if (!aq_fe_range_find(dptr, &r) || r.kind != AQ_FE_RANGE_IPC)
		return CUDA_ERROR_INVALID_VALUE;
	res = aq_fe_free_wait(ctx, r.ctx, r.ctx_uid);
	if (res != CUDA_SUCCESS)
		return res;
	(void)pthread_mutex_lock(&ipc.lock);
	res = close_locked(dptr);
	(void)pthread_mutex_unlock(&ipc.lock);
	return res;
}

void aq_fe_ipc_ctx_gone(unsigned long long ctx_uid)
{
	struct opened **at = &ipc.list, *o = NULL;

	(void)pthread_mutex_lock(&ipc.lock);
	while ((o = *at)) {
		if (o->ctx_uid == ctx_uid) {
			*at = o->next;
			free(o);
		} else {
			at = &o->next;
		}
	}
	(void)pthread_mutex_unlock(&ipc.lock);
}

void aq_fe_ipc_forked(void)
{
	(void)pthread_mutex_init(&ipc.lock, NULL);
	ipc.list = NULL;
}

/* ---- events ---- */

AQ_EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
	struct wire_handle h = { .magic = MAGIC_EVENT, .pid = (uint32_t)getpid() };
	struct aq_req_event_export req = { 0 };
	struct aq_rep_event_export rep;
	struct aq_fe_event *e = NULL;
	struct aq_fe_ctx *ctx = NULL;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res == CUDA_SUCCESS)
		res = aq_fe_event_get(event, &e);
	if (res != CUDA_SUCCESS)
		return res;
	if (!pHandle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(e->flags & CU_EVENT_INTERPROCESS))
		return CUDA_ERROR_INVALID_HANDLE;
	req.event = e->id;
	res = aq_fe_call(EVENT_EXPORT, event_export, &req, &rep);
	if (res != CUDA_SUCCESS)
		return res;
	memcpy(h.cookie, rep.cookie, sizeof(h.cookie));
	memcpy(pHandle, &h, sizeof(h));
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	struct aq_req_event_import req = { 0 };
	struct aq_rep_event_import rep;
	struct aq_fe_event *e = NULL;
	struct aq_fe_ctx *ctx = NULL;
	struct wire_handle h;
	int rc = AQ_OK;
	CUresult res = aq_fe_enter_ctx(&ctx);

	if (res != CUDA_SUCCESS)
		return res;
	memcpy(&h, &handle, sizeof(h));
	if (!phEvent)
		return CUDA_ERROR_INVALID_VALUE;
	if (h.magic != MAGIC_EVENT)
		return CUDA_ERROR_INVALID_HANDLE;
	if (h.pid == (uint32_t)getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	res = aq_fe_event_new(ctx, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, &e);
	if (res != CUDA_SUCCESS)
		return res;
	e->imported = true;
	req.ctx = ctx->id;
	req.event = e->id;
	memcpy(req.cookie, h.cookie, sizeof(req.cookie));
	rc = AQ_CALL(aq_fe.client, EVENT_IMPORT, event_import, &req, &rep);
	if (rc != AQ_OK) {
		aq_fe_event_free(e);
		return cookie_result(rc);
	}
	*phEvent = (CUevent)e;
	return CUDA_SUCCESS;
}
