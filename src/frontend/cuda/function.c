/* SPDX-License-Identifier: Apache-2.0 */
/* Functions: kernels of a module in a context. */
#include "base/macro.h"
#include "frontend/cuda/core.h"

void aq_fe_function_defaults(struct aq_fe_function *f)
{
	int max = aq_fe_attr(f->ctx->dev, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);

	atomic_store(&f->max_dynamic_shared, AQ_MAX(max - (int)f->info.shared_bytes, 0));
	atomic_store(&f->carveout, -1);
	atomic_store(&f->cache_config, CU_FUNC_CACHE_PREFER_NONE);
}

CUresult aq_fe_function(CUfunction handle, struct aq_fe_ctx *ctx, struct aq_fe_function **ret)
{
	struct aq_fe_function *f = aq_fe_handle_get(AQ_FE_FUNCTION, handle);

	if (f) {
		*ret = f;
		return CUDA_SUCCESS;
	}
	return aq_fe_kernel_function((CUkernel)handle, ctx, ret);
}

CUresult aq_fe_function_attr(const struct aq_fe_function *f, CUfunction_attribute attr, int *ret)
{
	switch ((int)attr) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*ret = (int)f->info.max_threads;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*ret = (int)f->info.shared_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*ret = (int)f->info.const_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*ret = (int)f->info.local_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*ret = (int)f->info.registers;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*ret = (int)f->info.ptx_version;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*ret = (int)f->info.binary_version;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*ret = atomic_load(&f->max_dynamic_shared);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*ret = atomic_load(&f->carveout);
		return CUDA_SUCCESS;
	default:
		/* The rest is about caches and clusters, which there are none of. */
		if ((unsigned)attr >= CU_FUNC_ATTRIBUTE_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		*ret = 0;
		return CUDA_SUCCESS;
	}
}

CUresult aq_fe_function_set_attr(struct aq_fe_function *f, CUfunction_attribute attr, int value)
{
	int optin = aq_fe_attr(f->ctx->dev, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);

	switch ((int)attr) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || (int64_t)value + f->info.shared_bytes > optin)
			return CUDA_ERROR_INVALID_VALUE;
		atomic_store(&f->max_dynamic_shared, value);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		atomic_store(&f->carveout, value);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE; /* to be read only, or none */
	}
}

static CUresult enter_function(CUfunction handle, struct aq_fe_function **ret)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	return rc == CUDA_SUCCESS ? aq_fe_function(handle, ctx, ret) : rc;
}

AQ_EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attr, CUfunction handle)
{
	struct aq_fe_function *f;
	CUresult rc = enter_function(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	return value ? aq_fe_function_attr(f, attr, value) : CUDA_ERROR_INVALID_VALUE;
}

AQ_EXPORT CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attr, int value)
{
	struct aq_fe_function *f;
	CUresult rc = enter_function(handle, &f);

	return rc == CUDA_SUCCESS ? aq_fe_function_set_attr(f, attr, value) : rc;
}

AQ_EXPORT CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
	struct aq_fe_function *f;
	CUresult rc = enter_function(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	atomic_store(&f->cache_config, (int)config);
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
	struct aq_fe_function *f;
	CUresult rc = enter_function(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	return (unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuFuncGetModule(CUmodule *ret, CUfunction handle)
{
	struct aq_fe_function *f;
	CUresult rc = enter_function(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUmodule)f->module;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuFuncGetName(const char **ret, CUfunction handle)
{
	struct aq_fe_function *f;
	CUresult rc = enter_function(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = f->name;
	return CUDA_SUCCESS;
}

CUresult aq_fe_function_param(const struct aq_fe_function *f, size_t index, size_t *offset,
			      size_t *size)
{
	if (!offset || index >= f->info.n_params)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = f->params[index].offset;
	if (size)
		*size = f->params[index].size;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
	struct aq_fe_function *f;
	CUresult rc = enter_function(handle, &f);

	return rc == CUDA_SUCCESS ? aq_fe_function_param(f, index, offset, size) : rc;
}

/* A module is loaded whole, so a function that exists is loaded. */
AQ_EXPORT CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
	struct aq_fe_function *f;
	CUresult rc = enter_function(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuFuncLoad(CUfunction handle)
{
	struct aq_fe_function *f;

	return enter_function(handle, &f);
}
