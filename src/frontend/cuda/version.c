/* SPDX-License-Identifier: Apache-2.0 */
/* What answers without a card: the version, and the profiler that is not there. */
#include "frontend/cuda/core.h"

AQ_EXPORT CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

/* Private tables, by which parts of NVIDIA's own software talk to each other: there are none here. */
AQ_EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

/* Profiling is switched on and off for a tool that listens; without one the driver succeeds too. */
AQ_EXPORT CUresult cuProfilerStart(void)
{
	struct aq_fe_ctx *ctx;

	return aq_fe_enter_ctx(&ctx);
}

AQ_EXPORT CUresult cuProfilerStop(void)
{
	struct aq_fe_ctx *ctx;

	return aq_fe_enter_ctx(&ctx);
}
