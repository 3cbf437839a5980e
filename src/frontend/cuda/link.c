/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linker, for programs that compile PTX in two steps: add PTX, complete, load the result. What it hands out is an image that our own loader
 * reads, the PTX itself; several inputs would need a real linker and are refused, as is machine code.
 */
#include "base/cleanup.h"
#include "frontend/cuda/core.h"

#include <stdlib.h>
#include <string.h>

struct aq_fe_link {
	unsigned sm;
	unsigned n_options;
	CUjit_option *options;
	void **values; /* the application's: outputs are written on completion */
	struct aq_fe_jit jit;
	char *ptx; /* NUL-terminated */
	size_t len;
	bool failed;
};

static void link_free(struct aq_fe_link *l)
{
	free(l->options);
	free(l->ptx);
	free(l);
}

static CUresult link_new(unsigned n, const CUjit_option *options, void **values,
			 struct aq_fe_link **ret)
{
	struct aq_fe_link *l = calloc(1, sizeof(*l));
	CUresult rc;

	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = aq_fe_jit_parse(n, options, values, &l->jit);
	l->options = rc == CUDA_SUCCESS ? calloc(n + 1U, sizeof(*l->options)) : NULL;
	if (!l->options) {
		free(l);
		return rc != CUDA_SUCCESS ? rc : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (n > 0)
		memcpy(l->options, options, n * sizeof(*options));
	l->values = values;
	l->n_options = n;
	*ret = l;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuLinkCreate_v2(unsigned n, CUjit_option *options, void **values,
				   CUlinkState *ret)
{
	struct aq_fe_link *l;
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	rc = link_new(n, options, values, &l);
	if (rc != CUDA_SUCCESS)
		return rc;
	l->sm = aq_fe_sm(ctx->dev);
	if (!aq_fe_handle_add(AQ_FE_LINK, l)) {
		link_free(l);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = (CUlinkState)l;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuLinkCreate(unsigned n, CUjit_option *options, void **values, CUlinkState *ret)
{
	return cuLinkCreate_v2(n, options, values, ret);
}

static CUresult enter(CUlinkState handle, struct aq_fe_link **ret)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	*ret = aq_fe_handle_get(AQ_FE_LINK, handle);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fail(struct aq_fe_link *l, CUresult rc, const char *name, const char *reason)
{
	l->failed = true;
	aq_fe_jit_error(&l->jit, "error : %s: %s\n", name ? name : "<unnamed>", reason);
	aq_fe_jit_finish(&l->jit, l->n_options, l->options, l->values);
	return rc;
}

static CUresult add(struct aq_fe_link *l, CUjitInputType type, const void *data, size_t size,
		    const char *name)
{
	struct aq_fe_image image;
	const char *reason;
	CUresult rc;

	if ((unsigned)type >= CU_JIT_NUM_INPUT_TYPES)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY)
		return fail(l, CUDA_ERROR_NO_BINARY_FOR_GPU, name,
			    "the software card executes PTX, no machine code");
	if (l->ptx)
		return fail(l, CUDA_ERROR_NOT_SUPPORTED, name,
			    "the software card does not link several inputs");
	rc = aq_fe_image_find(data, size, l->sm, &image, &reason);
	if (rc != CUDA_SUCCESS)
		return fail(l, type == CU_JIT_INPUT_PTX ? CUDA_ERROR_INVALID_PTX : rc, name,
			    reason);
	l->ptx = malloc(image.len + 1);
	if (!l->ptx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(l->ptx, image.ptx, image.len);
	l->ptx[image.len] = '\0';
	l->len = image.len;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void *data,
				    size_t size, const char *name, unsigned n,
				    CUjit_option *options, void **values)
{
	struct aq_fe_link *l;
	struct aq_fe_jit unused;
	CUresult rc = enter(handle, &l);

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_jit_parse(n, options, values, &unused);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (!data || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	return add(l, type, data, size, name);
}

AQ_EXPORT CUresult cuLinkAddData(CUlinkState handle, CUjitInputType type, void *data, size_t size,
				 const char *name, unsigned n, CUjit_option *options, void **values)
{
	return cuLinkAddData_v2(handle, type, data, size, name, n, options, values);
}

AQ_EXPORT CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char *path,
				    unsigned n, CUjit_option *options, void **values)
{
	aq_auto_free char *data = NULL;
	struct aq_fe_link *l;
	struct aq_fe_jit unused;
	size_t len;
	CUresult rc = enter(handle, &l);

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_jit_parse(n, options, values, &unused);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_file_read(path, &data, &len);
	return rc == CUDA_SUCCESS ? add(l, type, data, len, path) : rc;
}

AQ_EXPORT CUresult cuLinkAddFile(CUlinkState handle, CUjitInputType type, const char *path,
				 unsigned n, CUjit_option *options, void **values)
{
	return cuLinkAddFile_v2(handle, type, path, n, options, values);
}

/* Whether the card takes it is found out here, where a program expects to hear of it: by loading it for a moment. */
static CUresult try_it(struct aq_fe_link *l)
{
	const struct aq_fe_image image = { .ptx = l->ptx, .len = l->len };
	struct aq_fe_module *m;
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_module_load(ctx, &image, &l->jit, &m);
	if (rc == CUDA_SUCCESS)
		aq_fe_module_unload(m);
	aq_fe_jit_finish(&l->jit, l->n_options, l->options, l->values);
	return rc;
}

AQ_EXPORT CUresult cuLinkComplete(CUlinkState handle, void **ret_image, size_t *ret_size)
{
	struct aq_fe_link *l;
	CUresult rc = enter(handle, &l);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret_image || !l->ptx || l->failed)
		return CUDA_ERROR_INVALID_VALUE;
	rc = try_it(l);
	if (rc != CUDA_SUCCESS)
		return rc;
	*ret_image = l->ptx;
	if (ret_size)
		*ret_size = l->len + 1;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuLinkDestroy(CUlinkState handle)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!aq_fe_handle_remove(AQ_FE_LINK, handle))
		return CUDA_ERROR_INVALID_HANDLE;
	link_free((struct aq_fe_link *)handle);
	return CUDA_SUCCESS;
}
