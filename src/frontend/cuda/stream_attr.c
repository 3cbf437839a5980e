/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of streams: remembered, so that they can be read back and copied; only the priority has an effect. */
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <stdlib.h>
#include <string.h>

struct aq_fe_stream_attrs {
	CUaccessPolicyWindow window;
	CUsynchronizationPolicy sync_policy;
	CUlaunchMemSyncDomainMap domain_map;
	CUlaunchMemSyncDomain domain;
};

static const struct aq_fe_stream_attrs defaults = {
	.sync_policy = CU_SYNC_POLICY_AUTO,
	.domain_map = { .default_ = 0, .remote = 1 },
};

void aq_fe_stream_attrs_free(struct aq_fe_stream *s)
{
	free(s->attrs);
	s->attrs = NULL;
}

static CUresult enter(CUstream handle, struct aq_fe_stream **ret)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	return rc == CUDA_SUCCESS ? aq_fe_stream(handle, ctx, ret) : rc;
}

AQ_EXPORT CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attr,
					CUstreamAttrValue *value)
{
	const struct aq_fe_stream_attrs *a = &defaults;
	struct aq_fe_stream *s;
	CUresult rc = enter(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&s->ctx->lock);
	if (s->attrs)
		a = s->attrs;
	switch ((int)attr) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		value->accessPolicyWindow = a->window;
		break;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		value->syncPolicy = a->sync_policy;
		break;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		value->priority = s->priority;
		break;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		value->memSyncDomainMap = a->domain_map;
		break;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		value->memSyncDomain = a->domain;
		break;
	default:
		rc = CUDA_ERROR_INVALID_VALUE;
		break;
	}
	(void)pthread_mutex_unlock(&s->ctx->lock);
	return rc;
}

static bool window_is_valid(const struct aq_fe_ctx *ctx, const CUaccessPolicyWindow *w)
{
	int max = aq_fe_attr(ctx->dev, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE);

	return w->num_bytes <= (size_t)AQ_MAX(max, 0) && w->hitRatio >= 0.0F &&
	       w->hitRatio <= 1.0F && (unsigned)w->hitProp <= CU_ACCESS_PROPERTY_PERSISTING &&
	       (unsigned)w->missProp <= CU_ACCESS_PROPERTY_STREAMING;
}

static CUresult set_locked(struct aq_fe_stream *s, CUstreamAttrID attr,
			   const CUstreamAttrValue *value)
{
	struct aq_fe_stream_attrs *a = s->attrs;

	switch ((int)attr) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		if (!window_is_valid(s->ctx, &value->accessPolicyWindow))
			return CUDA_ERROR_INVALID_VALUE;
		a->window = value->accessPolicyWindow;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
		    value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)
			return CUDA_ERROR_INVALID_VALUE;
		a->sync_policy = value->syncPolicy;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		s->priority = AQ_MIN(AQ_MAX(value->priority, AQ_FE_PRIORITY_GREATEST),
				     AQ_FE_PRIORITY_LEAST);
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		a->domain_map = value->memSyncDomainMap;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		if ((unsigned)value->memSyncDomain > CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE)
			return CUDA_ERROR_INVALID_VALUE;
		a->domain = value->memSyncDomain;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static bool has_attrs_locked(struct aq_fe_stream *s)
{
	if (!s->attrs) {
		s->attrs = malloc(sizeof(*s->attrs));
		if (s->attrs)
			*s->attrs = defaults;
	}
	return s->attrs;
}

AQ_EXPORT CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attr,
					const CUstreamAttrValue *value)
{
	struct aq_fe_stream *s;
	CUresult rc = enter(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&s->ctx->lock);
	rc = has_attrs_locked(s) ? set_locked(s, attr, value) : CUDA_ERROR_OUT_OF_MEMORY;
	(void)pthread_mutex_unlock(&s->ctx->lock);
	return rc;
}

AQ_EXPORT CUresult cuStreamCopyAttributes(CUstream dst_handle, CUstream src_handle)
{
	struct aq_fe_stream *dst;
	struct aq_fe_stream *src;
	struct aq_fe_stream_attrs copy = defaults;
	int priority;
	CUresult rc = enter(dst_handle, &dst);

	if (rc == CUDA_SUCCESS)
		rc = enter(src_handle, &src);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (dst->ctx != src->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	(void)pthread_mutex_lock(&src->ctx->lock);
	if (src->attrs)
		copy = *src->attrs;
	priority = src->priority;
	if (has_attrs_locked(dst)) {
		*dst->attrs = copy;
		dst->priority = priority;
	} else {
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	}
	(void)pthread_mutex_unlock(&src->ctx->lock);
	return rc;
}
