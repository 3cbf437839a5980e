/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: PTX text comes in pieces, is parsed and lowered, its variables are placed in device memory. */
#include "base/macro.h"
#include "gpud/soft/exec/exec.h"
#include "gpud/soft/ptx/ptx.h"
#include "gpud/soft/soft.h"

#include <stdlib.h>
#include <string.h>

#define LOG_MAX (1 * AQ_MIB)

int aq_soft_blob_write(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_blob_write *req = request->req;
	uint64_t n = request->data_len;

	(void)ans;
	if (req->offset == 0)
		s->blob_size = 0;
	if (req->offset != s->blob_size || n > AQ_WIRE_MAX_BLOB - s->blob_size)
		return AQ_E_INVALID;
	if (s->blob_size + n > s->blob_cap) {
		uint64_t cap = AQ_MAX(s->blob_cap * 2, s->blob_size + n);
		uint8_t *p = realloc(s->blob, cap);

		if (!p)
			return AQ_E_NO_MEMORY;
		s->blob = p;
		s->blob_cap = cap;
	}
	if (n)
		memcpy(s->blob + s->blob_size, request->data, n);
	s->blob_size += n;
	return AQ_OK;
}

static void drop_blob(struct aq_soft_session *s)
{
	free(s->blob);
	s->blob = NULL;
	s->blob_size = s->blob_cap = 0;
}

/* ---- placing variables ---- */

static struct aq_alloc *new_alloc(struct aq_module *m, uint32_t kind, uint64_t size, uint32_t align)
{
	struct aq_alloc *a = NULL;

	if (aq_mem_alloc(m->ctx, kind, AQ_MAX(size, 1ULL), AQ_MAX(align, 256U), &a) != AQ_OK)
		return NULL;
	a->internal = true;
	m->allocs[m->n_allocs++] = a;
	m->charged += a->size;
	return a;
}

/* Managed variables each have a segment, since the client maps them; all others lie in one allocation. */
static enum aq_status place(struct aq_module *m, struct aq_code_symbol *sym, uint32_t n)
{
	uint64_t total = 0;
	uint32_t align = 256;
	struct aq_alloc *a = NULL;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t own = AQ_MAX(sym[i].align, 1U);

		if (own > 2 * AQ_MIB || (own & (own - 1)) || sym[i].size > AQ_GIB)
			return AQ_E_INVALID;
		if (sym[i].is_managed) {
			a = new_alloc(m, AQ_MEM_MANAGED, sym[i].size, own);
			if (!a)
				return AQ_E_NO_MEMORY;
			sym[i].va = a->va;
			continue;
		}
		align = AQ_MAX(align, own);
		total = aq_align_up(total, own);
		sym[i].va = total; /* for now the offset */
		total += AQ_MAX(sym[i].size, 1ULL);
	}
	if (!total)
		return AQ_OK;
	a = new_alloc(m, AQ_MEM_DEVICE, total, align);
	if (!a)
		return AQ_E_NO_MEMORY;
	for (uint32_t i = 0; i < n; i++) {
		if (!sym[i].is_managed)
			sym[i].va += a->va;
	}
	return AQ_OK;
}

/* Memory may have been used before: variables without initialiser are zeroed. */
static enum aq_status init_data(struct aq_module *m, const struct aq_code_symbol *sym, uint32_t n)
{
	static const uint8_t zeros[4096];

	for (uint32_t i = 0; i < n; i++) {
		enum aq_status status = AQ_OK;

		if (sym[i].init)
			status = aq_copy_in(m->ctx, sym[i].va, sym[i].init, sym[i].size);
		for (uint64_t at = 0; !sym[i].init && at < sym[i].size && status == AQ_OK;
		     at += sizeof(zeros))
			status = aq_copy_in(m->ctx, sym[i].va + at, zeros,
					    AQ_MIN(sizeof(zeros), sym[i].size - at));
		if (status != AQ_OK)
			return status;
	}
	return AQ_OK;
}

/* ---- life ---- */

/* Nothing refers to it any more. The session's thread. */
static void module_free(struct aq_module *m)
{
	struct aq_soft_session *s = m->ctx->session;
	struct aq_card *card = m->ctx->card;
	struct aq_rep_mem_free ignored;

	for (uint32_t i = 0; i < m->n_allocs; i++)
		aq_mem_release(s, m->allocs[i], &ignored);
	if (m->code_bytes)
		aq_card_uncharge(card, s, m->code_bytes);
	if (m->code)
		aq_code_free(m->code);
	aq_list_remove(&m->link);
	free(m->allocs);
	free(m->globals);
	free(m);
}

void aq_module_reap(struct aq_soft_ctx *ctx)
{
	struct aq_soft *soft = ctx->session->soft;
	struct aq_module *m;
	struct aq_module *tmp;

	aq_list_for_each_safe(m, tmp, &ctx->modules, link) {
		bool unused;

		if (!m->unloaded)
			continue;
		(void)pthread_mutex_lock(&soft->lock);
		unused = m->refs == 0;
		(void)pthread_mutex_unlock(&soft->lock);
		if (unused)
			module_free(m);
	}
}

void aq_module_free_all(struct aq_soft_ctx *ctx)
{
	struct aq_module *m;
	struct aq_module *tmp;

	aq_list_for_each_safe(m, tmp, &ctx->modules, link) {
		if (!m->unloaded)
			aq_idtab_clear(&ctx->session->modules, m->id);
		module_free(m);
	}
}

static enum aq_status place_all_symbols(struct aq_module *m, struct aq_strbuf *log)
{
	uint32_t n = 0;
	struct aq_code_symbol *sym = aq_code_symbols(m->code, &n);
	enum aq_status status;

	m->allocs = calloc((size_t)n + 1, sizeof(m->allocs[0]));
	m->globals = calloc((size_t)n + 1, sizeof(m->globals[0]));
	if (!m->allocs || !m->globals)
		return AQ_E_NO_MEMORY;
	status = place(m, sym, n);
	if (status != AQ_OK)
		return status;
	if (aq_code_relocate(m->code, log) < 0)
		return AQ_E_NO_SYMBOL;
	for (uint32_t i = 0; i < n; i++) {
		if (sym[i].is_visible)
			m->globals[m->n_globals++] = &sym[i];
	}
	return init_data(m, sym, n);
}

/* Parse, lower and place. The module is in the context's list, so that a failure is undone by module_free(). */
static enum aq_status module_build(struct aq_module *m, const char *text, size_t len)
{
	struct aq_soft_session *s = m->ctx->session;
	uint64_t code_bytes = m->ctx->card->profile.manners.module_code_bytes;
	struct aq_ptx_module *ptx = aq_ptx_parse(text, len, &s->module_log);
	enum aq_status status;

	if (!ptx)
		return AQ_E_PTX;
	m->code = aq_code_build(ptx, m->ctx->card->profile.sm, &s->module_log);
	if (!m->code)
		return AQ_E_PTX;
	if (code_bytes) {
		status = aq_card_charge(m->ctx->card, s, code_bytes);
		if (status != AQ_OK)
			return status;
		m->code_bytes = code_bytes;
		m->charged += code_bytes;
	}
	return place_all_symbols(m, &s->module_log);
}

int aq_soft_module_load(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_module_load *req = request->req;
	struct aq_rep_module_load *rep = (void *)ans->data;
	struct aq_soft_ctx *ctx = aq_ctx_get(s, req->ctx);
	struct aq_module *m;
	enum aq_status status;

	if (!ctx)
		return AQ_E_CONTEXT_GONE;
	if (!aq_idtab_is_free(&s->modules, req->module) || req->size != s->blob_size || !req->size)
		return AQ_E_INVALID;
	aq_module_reap(ctx);
	if (s->modules.n >= AQ_SOFT_MAX_MODULES)
		return AQ_E_NO_MEMORY;
	m = calloc(1, sizeof(*m));
	if (!m)
		return AQ_E_NO_MEMORY;
	m->id = req->module;
	m->ctx = ctx;
	aq_list_push_back(&ctx->modules, &m->link);
	aq_strbuf_done(&s->module_log);
	s->module_log = (struct aq_strbuf){ .max = LOG_MAX };
	status = module_build(m, (const char *)s->blob, s->blob_size);
	drop_blob(s);
	if (status == AQ_OK && aq_idtab_set(&s->modules, m->id, m) < 0)
		status = AQ_E_NO_MEMORY;
	if (status != AQ_OK) {
		module_free(m);
		return (int)status;
	}
	*rep = (struct aq_rep_module_load){
		.n_funcs = aq_code_n_kernels(m->code),
		.n_globals = m->n_globals,
		.memory_bytes = m->charged,
	};
	ans->len = sizeof(*rep);
	return AQ_OK;
}

/* Launches that are still under way keep the code and the variables. */
int aq_soft_module_unload(void *session, const struct aq_request *request,
			  struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_module_unload *req = request->req;
	struct aq_module *m = aq_idtab_get(&s->modules, req->module);

	(void)ans;
	if (!m)
		return AQ_E_NOT_FOUND;
	aq_idtab_clear(&s->modules, req->module);
	m->unloaded = true;
	aq_module_reap(m->ctx);
	return AQ_OK;
}

int aq_soft_module_log(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_module_log *req = request->req;
	struct aq_rep_module_log *rep = (void *)ans->data;
	uint64_t n;

	rep->total = s->module_log.len;
	n = s->module_log.len - AQ_MIN(req->offset, (uint64_t)s->module_log.len);
	n = AQ_MIN(n, (uint64_t)AQ_WIRE_MAX_INLINE);
	if (n)
		memcpy(rep->text, s->module_log.text + req->offset, n);
	ans->len = sizeof(*rep) + n;
	return AQ_OK;
}

/* ---- what is in a module ---- */

int aq_soft_func_info(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_func_info *req = request->req;
	struct aq_rep_func_info *rep = (void *)ans->data;
	struct aq_module *m = aq_idtab_get(&s->modules, req->module);
	const struct aq_code_kernel *k;
	size_t params;
	size_t name;

	if (!m || req->index >= aq_code_n_kernels(m->code))
		return AQ_E_NOT_FOUND;
	k = aq_code_kernel(m->code, req->index);
	name = strlen(k->name);
	params = k->n_params * sizeof(k->params[0]);
	if (sizeof(*rep) + params + name > AQ_WIRE_MAX_PAYLOAD)
		return AQ_E_NOT_SUPPORTED;
	*rep = (struct aq_rep_func_info){
		.n_params = k->n_params,
		.name_len = (uint32_t)name,
		.param_bytes = k->param_bytes,
		.registers = k->registers,
		.shared_bytes = k->shared_bytes,
		.const_bytes = k->const_bytes,
		.local_bytes = k->local_bytes,
		.max_threads = k->max_threads,
		.ptx_version = k->ptx_version,
		.binary_version = m->ctx->card->profile.sm,
		.reqntid = { k->reqntid[0], k->reqntid[1], k->reqntid[2] },
	};
	if (params)
		memcpy(ans->data + sizeof(*rep), k->params, params);
	memcpy(ans->data + sizeof(*rep) + params, k->name, name);
	ans->len = sizeof(*rep) + params + name;
	return AQ_OK;
}

int aq_soft_global_info(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_global_info *req = request->req;
	struct aq_rep_global_info *rep = (void *)ans->data;
	struct aq_module *m = aq_idtab_get(&s->modules, req->module);
	const struct aq_code_symbol *sym;
	size_t name;

	if (!m || req->index >= m->n_globals)
		return AQ_E_NOT_FOUND;
	sym = m->globals[req->index];
	name = strlen(sym->name);
	if (sizeof(*rep) + name > AQ_WIRE_MAX_PAYLOAD)
		return AQ_E_NOT_SUPPORTED;
	*rep = (struct aq_rep_global_info){
		.va = sym->va,
		.size = sym->size,
		.is_const = sym->is_const,
		.is_managed = sym->is_managed,
		.name_len = (uint32_t)name,
	};
	memcpy(ans->data + sizeof(*rep), sym->name, name);
	ans->len = sizeof(*rep) + name;
	return AQ_OK;
}
