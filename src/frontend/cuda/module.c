/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: PTX goes to the server, which answers with kernels and variables. */
#include "base/clock.h"
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <stdlib.h>
#include <string.h>

/* PTX ISA that no parser of ours knows: CUDA tells this apart from text that is wrong. */
#define PTX_NEWEST 89U

/* The session has one upload buffer and one log: from the first BLOB_WRITE to the last MODULE_LOG. */
static pthread_mutex_t upload_lock = PTHREAD_MUTEX_INITIALIZER;

void aq_fe_module_forked(void)
{
	(void)pthread_mutex_init(&upload_lock, NULL);
}

/* ---- loading ---- */

static int send_blob(const char *data, size_t len)
{
	int rc = 0;

	for (size_t at = 0; at < len && rc == 0; at += AQ_WIRE_MAX_INLINE) {
		struct aq_req_blob_write req = { .offset = at };
		struct aq_client_msg msg = { AQ_OP_BLOB_WRITE, &req, sizeof(req), data + at,
					     AQ_MIN(len - at, (size_t)AQ_WIRE_MAX_INLINE) };

		rc = aq_client_send(aq_fe.client, &msg);
	}
	return rc;
}

static void fetch_log(struct aq_fe_jit *jit)
{
	struct aq_req_module_log req = { 0 };
	struct aq_client_msg msg = { AQ_OP_MODULE_LOG, &req, sizeof(req), NULL, 0 };
	const size_t cap = sizeof(struct aq_rep_module_log) + AQ_WIRE_MAX_INLINE;
	struct aq_rep_module_log *rep;

	if (jit->error_size == 0)
		return;
	rep = malloc(cap);
	while (rep) {
		size_t len = 0;

		if (aq_client_call(aq_fe.client, &msg, rep, cap, &len) != AQ_OK ||
		    len <= sizeof(*rep))
			break;
		len = AQ_MIN(len, cap) - sizeof(*rep);
		aq_fe_jit_append(jit, rep->text, len);
		req.offset += len;
		if (req.offset >= rep->total)
			break;
	}
	free(rep);
}

static CUresult load_error(int status, const struct aq_fe_image *image)
{
	if (status == AQ_E_NO_SYMBOL)
		return CUDA_ERROR_INVALID_PTX;
	if (status == AQ_E_PTX && aq_fe_ptx_version(image->ptx, image->len) > PTX_NEWEST)
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	return aq_fe_result(status);
}

static CUresult upload(struct aq_fe_ctx *ctx, uint32_t id, const struct aq_fe_image *image,
		       struct aq_fe_jit *jit, struct aq_rep_module_load *rep)
{
	struct aq_req_module_load req = { .ctx = ctx->id,
					  .module = id,
					  .size = image->len,
					  .max_registers = jit->max_registers,
					  .opt_level = jit->opt_level };
	int status;

	if (image->len > AQ_WIRE_MAX_BLOB) {
		aq_fe_jit_error(jit, "PTX of %zu bytes is larger than the %u accepted", image->len,
				AQ_WIRE_MAX_BLOB);
		return CUDA_ERROR_INVALID_PTX;
	}
	(void)pthread_mutex_lock(&upload_lock);
	status = send_blob(image->ptx, image->len);
	if (status == 0)
		status = AQ_CALL(aq_fe.client, MODULE_LOAD, module_load, &req, rep);
	if (status == AQ_E_PTX || status == AQ_E_NO_SYMBOL)
		fetch_log(jit);
	(void)pthread_mutex_unlock(&upload_lock);
	return load_error(status, image);
}

static char *copy_text(const uint8_t *text, size_t len)
{
	char *copy = malloc(len + 1);

	if (copy) {
		memcpy(copy, text, len);
		copy[len] = '\0';
	}
	return copy;
}

/* buf: of AQ_WIRE_MAX_PAYLOAD bytes, for the answer. */
static CUresult fetch_function(struct aq_fe_module *m, uint32_t index, uint8_t *buf)
{
	struct aq_req_func_info req = { .module = m->id, .index = index };
	struct aq_client_msg msg = { AQ_OP_FUNC_INFO, &req, sizeof(req), NULL, 0 };
	struct aq_fe_function *f = &m->funcs[index];
	size_t len = 0;
	size_t params;
	CUresult rc =
		aq_fe_result(aq_client_call(aq_fe.client, &msg, buf, AQ_WIRE_MAX_PAYLOAD, &len));

	if (rc != CUDA_SUCCESS)
		return rc;
	if (len < sizeof(f->info) || len > AQ_WIRE_MAX_PAYLOAD)
		return CUDA_ERROR_UNKNOWN;
	memcpy(&f->info, buf, sizeof(f->info));
	params = (size_t)f->info.n_params * sizeof(struct aq_wire_param);
	if (f->info.n_params > AQ_WIRE_MAX_PAYLOAD || f->info.name_len > AQ_WIRE_MAX_PAYLOAD ||
	    sizeof(f->info) + params + f->info.name_len > len ||
	    f->info.param_bytes > AQ_WIRE_PARAMS_MAX)
		return CUDA_ERROR_UNKNOWN;
	f->module = m;
	f->ctx = m->ctx;
	f->index = index;
	f->name = copy_text(buf + sizeof(f->info) + params, f->info.name_len);
	f->params = malloc(params ? params : 1);
	if (!f->name || !f->params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(f->params, buf + sizeof(f->info), params);
	for (uint32_t i = 0; i < f->info.n_params; i++)
		if (f->params[i].size > f->info.param_bytes ||
		    f->params[i].offset > f->info.param_bytes - f->params[i].size)
			return CUDA_ERROR_UNKNOWN;
	aq_fe_function_defaults(f);
	return CUDA_SUCCESS;
}

static CUresult fetch_global(struct aq_fe_module *m, uint32_t index, uint8_t *buf)
{
	struct aq_req_global_info req = { .module = m->id, .index = index };
	struct aq_client_msg msg = { AQ_OP_GLOBAL_INFO, &req, sizeof(req), NULL, 0 };
	struct aq_fe_global *g = &m->globals[index];
	struct aq_rep_global_info info;
	size_t len = 0;
	CUresult rc =
		aq_fe_result(aq_client_call(aq_fe.client, &msg, buf, AQ_WIRE_MAX_PAYLOAD, &len));

	if (rc != CUDA_SUCCESS)
		return rc;
	if (len < sizeof(info) || len > AQ_WIRE_MAX_PAYLOAD)
		return CUDA_ERROR_UNKNOWN;
	memcpy(&info, buf, sizeof(info));
	if (info.name_len > len - sizeof(info))
		return CUDA_ERROR_UNKNOWN;
	g->name = copy_text(buf + sizeof(info), info.name_len);
	if (!g->name)
		return CUDA_ERROR_OUT_OF_MEMORY;
	g->va = info.va;
	g->size = info.size;
	g->is_const = info.is_const != 0;
	g->is_managed = info.is_managed != 0;
	return CUDA_SUCCESS;
}

static void module_free(struct aq_fe_module *m)
{
	for (uint32_t i = 0; m->funcs && i < m->n_funcs; i++) {
		if (m->funcs[i].registered)
			(void)aq_fe_handle_remove(AQ_FE_FUNCTION, &m->funcs[i]);
		free(m->funcs[i].name);
		free(m->funcs[i].params);
		free(m->funcs[i].legacy);
	}
	for (uint32_t i = 0; m->globals && i < m->n_globals; i++)
		free(m->globals[i].name);
	free(m->funcs);
	free(m->globals);
	aq_fe_id_free(AQ_FE_ID_MODULE, m->id);
	free(m);
}

static CUresult fetch_contents(struct aq_fe_module *m, const struct aq_rep_module_load *rep)
{
	uint8_t *buf;
	CUresult rc = CUDA_SUCCESS;

	if (rep->n_funcs > AQ_WIRE_MAX_BLOB / 8 || rep->n_globals > AQ_WIRE_MAX_BLOB / 8)
		return CUDA_ERROR_UNKNOWN;
	buf = calloc(1, AQ_WIRE_MAX_PAYLOAD);
	m->funcs = aligned_alloc(16, (rep->n_funcs + 1) * sizeof(*m->funcs));
	m->globals = calloc(rep->n_globals + 1, sizeof(*m->globals));
	if (buf && m->funcs && m->globals) {
		memset(m->funcs, 0, (rep->n_funcs + 1) * sizeof(*m->funcs));
		m->n_funcs = rep->n_funcs;
		m->n_globals = rep->n_globals;
	} else {
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (uint32_t i = 0; rc == CUDA_SUCCESS && i < m->n_funcs; i++)
		rc = fetch_function(m, i, buf);
	for (uint32_t i = 0; rc == CUDA_SUCCESS && i < m->n_globals; i++)
		rc = fetch_global(m, i, buf);
	free(buf);
	return rc;
}

static void send_unload(const struct aq_fe_module *m)
{
	struct aq_req_module_unload req = { .module = m->id };
	struct aq_rep_module_unload rep;

	(void)aq_fe_call(MODULE_UNLOAD, module_unload, &req, &rep);
}

static void describe(const struct aq_fe_module *m, struct aq_fe_jit *jit)
{
	for (uint32_t i = 0; jit->verbose && i < m->n_funcs; i++) {
		const struct aq_fe_function *f = &m->funcs[i];

		aq_fe_jit_info(jit,
			       "info : '%s': %u registers, %u bytes shared, %u bytes constant, "
			       "%u bytes local\n",
			       f->name, f->info.registers, f->info.shared_bytes,
			       f->info.const_bytes, f->info.local_bytes);
	}
}

CUresult aq_fe_module_load(struct aq_fe_ctx *ctx, const struct aq_fe_image *image,
			   struct aq_fe_jit *jit, struct aq_fe_module **ret)
{
	struct aq_fe_module *m = aligned_alloc(16, aq_align_up(sizeof(*m), 16));
	struct aq_rep_module_load rep = { 0 };
	uint64_t t0 = aq_now_ns();
	CUresult rc;

	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(m, 0, sizeof(*m));
	m->ctx = ctx;
	m->id = aq_fe_id_new(AQ_FE_ID_MODULE);
	aq_list_init(&m->in_ctx);
	rc = m->id != 0 ? upload(ctx, m->id, image, jit, &rep) : CUDA_ERROR_OUT_OF_MEMORY;
	jit->wall_ms += (float)((double)(aq_now_ns() - t0) / 1e6);
	if (rc != CUDA_SUCCESS) {
		module_free(m);
		return rc;
	}
	rc = fetch_contents(m, &rep);
	if (rc == CUDA_SUCCESS && !aq_fe_handle_add(AQ_FE_MODULE, m))
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	if (rc != CUDA_SUCCESS) {
		send_unload(m);
		module_free(m);
		return rc;
	}
	for (uint32_t i = 0; i < m->n_globals; i++)
		aq_fe_memory_add_global(ctx, m->globals[i].va, m->globals[i].size,
					m->globals[i].is_managed);
	(void)pthread_mutex_lock(&ctx->lock);
	aq_list_push_back(&ctx->modules, &m->in_ctx);
	(void)pthread_mutex_unlock(&ctx->lock);
	describe(m, jit);
	*ret = m;
	return CUDA_SUCCESS;
}

/* The handle has been removed. */
static void module_end(struct aq_fe_module *m, bool tell_server)
{
	for (uint32_t i = 0; i < m->n_globals; i++)
		aq_fe_memory_remove_global(m->globals[i].va);
	if (tell_server)
		send_unload(m);
	module_free(m);
}

void aq_fe_module_unload(struct aq_fe_module *m)
{
	if (!aq_fe_handle_remove(AQ_FE_MODULE, m))
		return;
	(void)pthread_mutex_lock(&m->ctx->lock);
	aq_list_remove(&m->in_ctx);
	(void)pthread_mutex_unlock(&m->ctx->lock);
	module_end(m, true);
}

void aq_fe_modules_ctx_gone(struct aq_fe_ctx *ctx)
{
	struct aq_fe_module *m;
	struct aq_fe_module *next;

	(void)pthread_mutex_lock(&ctx->lock);
	aq_list_for_each_safe(m, next, &ctx->modules, in_ctx) {
		aq_list_remove(&m->in_ctx);
		if (aq_fe_handle_remove(AQ_FE_MODULE, m))
			module_end(m, false);
	}
	(void)pthread_mutex_unlock(&ctx->lock);
}

struct aq_fe_function *aq_fe_module_find(struct aq_fe_module *m, const char *name)
{
	for (uint32_t i = 0; i < m->n_funcs; i++)
		if (strcmp(m->funcs[i].name, name) == 0)
			return &m->funcs[i];
	return NULL;
}

struct aq_fe_global *aq_fe_module_global(struct aq_fe_module *m, const char *name)
{
	for (uint32_t i = 0; i < m->n_globals; i++)
		if (strcmp(m->globals[i].name, name) == 0)
			return &m->globals[i];
	return NULL;
}

/* ---- entry points ---- */

/* len: SIZE_MAX when the application gave an address only. */
static CUresult load(CUmodule *ret, const void *image, size_t len, unsigned n,
		     const CUjit_option *options, void **values)
{
	struct aq_fe_image found;
	struct aq_fe_module *m;
	struct aq_fe_ctx *ctx;
	struct aq_fe_jit jit;
	const char *reason;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret || !image)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_jit_parse(n, options, values, &jit);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = aq_fe_image_find(image, len, aq_fe_sm(ctx->dev), &found, &reason);
	if (rc != CUDA_SUCCESS)
		aq_fe_jit_error(&jit, "error : %s\n", reason);
	else
		rc = aq_fe_module_load(ctx, &found, &jit, &m);
	aq_fe_jit_finish(&jit, n, options, values);
	if (rc == CUDA_SUCCESS)
		*ret = (CUmodule)m;
	return rc;
}

AQ_EXPORT CUresult cuModuleLoadDataEx(CUmodule *ret, const void *image, unsigned n,
				      CUjit_option *options, void **values)
{
	return load(ret, image, SIZE_MAX, n, options, values);
}

AQ_EXPORT CUresult cuModuleLoadData(CUmodule *ret, const void *image)
{
	return load(ret, image, SIZE_MAX, 0, NULL, NULL);
}

AQ_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *ret, const void *image)
{
	return load(ret, image, SIZE_MAX, 0, NULL, NULL);
}

AQ_EXPORT CUresult cuModuleLoad(CUmodule *ret, const char *path)
{
	struct aq_fe_ctx *ctx;
	char *data;
	size_t len;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret || !path)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_file_read(path, &data, &len);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = load(ret, data, len, 0, NULL, NULL);
	free(data);
	return rc;
}

static CUresult enter_module(CUmodule handle, struct aq_fe_module **ret)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	*ret = aq_fe_handle_get(AQ_FE_MODULE, handle);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

AQ_EXPORT CUresult cuModuleUnload(CUmodule handle)
{
	struct aq_fe_module *m;
	CUresult rc = enter_module(handle, &m);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (m->of_library)
		return CUDA_ERROR_NOT_PERMITTED;
	aq_fe_module_unload(m);
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	const char *env = getenv("CUDA_MODULE_LOADING");
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = env && strcmp(env, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

/* Functions become handles when somebody asks for them. */
CUresult aq_fe_function_register(struct aq_fe_function *f)
{
	CUresult rc = CUDA_SUCCESS;

	(void)pthread_mutex_lock(&f->ctx->lock);
	if (!f->registered) {
		f->registered = aq_fe_handle_add(AQ_FE_FUNCTION, f);
		if (!f->registered)
			rc = CUDA_ERROR_OUT_OF_MEMORY;
	}
	(void)pthread_mutex_unlock(&f->ctx->lock);
	return rc;
}

AQ_EXPORT CUresult cuModuleGetFunction(CUfunction *ret, CUmodule handle, const char *name)
{
	struct aq_fe_function *f;
	struct aq_fe_module *m;
	CUresult rc = enter_module(handle, &m);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret || !name)
		return CUDA_ERROR_INVALID_VALUE;
	f = aq_fe_module_find(m, name);
	if (!f)
		return CUDA_ERROR_NOT_FOUND;
	rc = aq_fe_function_register(f);
	if (rc == CUDA_SUCCESS)
		*ret = (CUfunction)f;
	return rc;
}

AQ_EXPORT CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule handle)
{
	struct aq_fe_module *m;
	CUresult rc = enter_module(handle, &m);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = m->n_funcs;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned n, CUmodule handle)
{
	struct aq_fe_module *m;
	CUresult rc = enter_module(handle, &m);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!functions || n == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n && i < m->n_funcs; i++) {
		rc = aq_fe_function_register(&m->funcs[i]);
		if (rc != CUDA_SUCCESS)
			return rc;
		functions[i] = (CUfunction)&m->funcs[i];
	}
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule handle,
					const char *name)
{
	struct aq_fe_global *g;
	struct aq_fe_module *m;
	CUresult rc = enter_module(handle, &m);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!name || (!dptr && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	g = aq_fe_module_global(m, name);
	if (!g)
		return CUDA_ERROR_NOT_FOUND;
	if (dptr)
		*dptr = g->va;
	if (bytes)
		*bytes = g->size;
	return CUDA_SUCCESS;
}
