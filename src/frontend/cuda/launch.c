/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches. The way of an ordinary one: a few loads and compares, the parameters packed on the stack, one message into the ring. Everything that a
 * driver answers at once is answered here; what goes wrong while the kernel runs becomes the context's error.
 */
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <string.h>

struct launch {
	unsigned grid[3], block[3];
	unsigned shared;
	bool cooperative;
	bool has_priority;
	int priority;
	struct aq_fe_event *done[2]; /* events that the launch's attributes name */
	unsigned n_done;
};

/* ---- what is wrong with it at once ---- */

static CUresult check_shape(const struct aq_fe_function *f, const struct launch *l)
{
	const int32_t *attrs = f->ctx->dev->info.attrs;
	uint64_t threads = 1;

	for (int i = 0; i < 3; i++) {
		if (l->grid[i] == 0 || l->block[i] == 0 ||
		    l->grid[i] > (unsigned)attrs[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i] ||
		    l->block[i] > (unsigned)attrs[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i])
			return CUDA_ERROR_INVALID_VALUE;
		threads *= l->block[i];
		if (f->info.reqntid[0] != 0 && l->block[i] != AQ_MAX(f->info.reqntid[i], 1U))
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (threads > (unsigned)attrs[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK])
		return CUDA_ERROR_INVALID_VALUE;
	if (l->shared >
	    (unsigned)atomic_load_explicit(&f->max_dynamic_shared, memory_order_relaxed))
		return CUDA_ERROR_INVALID_VALUE;
	if (threads > f->info.max_threads ||
	    threads * f->info.registers >
		    (unsigned)attrs[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK])
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	return CUDA_SUCCESS;
}

static CUresult check_cooperative(const struct aq_fe_function *f, const struct launch *l)
{
	const struct aq_fe_device *dev = f->ctx->dev;
	uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1];
	uint64_t room;

	if (!aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH))
		return CUDA_ERROR_NOT_SUPPORTED;
	room = (uint64_t)aq_fe_occupancy(f, l->block[0] * l->block[1] * l->block[2], l->shared) *
	       (unsigned)aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	return blocks > room || blocks * l->grid[2] > room ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
							   : CUDA_SUCCESS;
}

/* ---- parameters ---- */

static CUresult pack_list(const struct aq_fe_function *f, void **list, uint8_t *buf)
{
	for (uint32_t i = 0; i < f->info.n_params; i++) {
		const struct aq_wire_param *p = &f->params[i];

		if (!list[i])
			return CUDA_ERROR_INVALID_VALUE;
		if (p->size == 8)
			memcpy(buf + p->offset, list[i], 8);
		else if (p->size == 4)
			memcpy(buf + p->offset, list[i], 4);
		else
			memcpy(buf + p->offset, list[i], p->size);
	}
	return CUDA_SUCCESS;
}

static CUresult pack_extra(const struct aq_fe_function *f, void **extra, uint8_t *buf)
{
	const void *from = NULL;
	const size_t *size = NULL;
	uint32_t need = 0;

	for (unsigned i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (i > 2)
			return CUDA_ERROR_INVALID_VALUE;
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			from = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = extra[i + 1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (uint32_t i = 0; i < f->info.n_params; i++)
		need = AQ_MAX(need, f->params[i].offset + f->params[i].size);
	if (need == 0)
		return CUDA_SUCCESS;
	if (!from || !size || *size < need)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(buf, from, need);
	return CUDA_SUCCESS;
}

static CUresult send_launch(const struct aq_fe_function *f, const struct aq_fe_stream *s,
			    const struct launch *l, void **params, void **extra)
{
	uint8_t buf[AQ_WIRE_PARAMS_MAX] __attribute__((aligned(16)));
	struct aq_req_launch req = {
		.ctx = s->ctx->id,
		.stream = s->id,
		.module = f->module->id,
		.func = f->index,
		.grid = { l->grid[0], l->grid[1], l->grid[2] },
		.block = { l->block[0], l->block[1], l->block[2] },
		.shared_bytes = l->shared,
		.flags = l->cooperative ? AQ_LAUNCH_COOPERATIVE : 0,
		.param_bytes = f->info.param_bytes,
		.priority = l->has_priority ? l->priority : s->priority,
	};
	struct aq_client_msg msg = { AQ_OP_LAUNCH, &req, sizeof(req), buf, f->info.param_bytes };
	CUresult rc;

	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (f->info.n_params > 0) {
		if (!params && !extra)
			return CUDA_ERROR_INVALID_VALUE;
		memset(buf, 0, f->info.param_bytes); /* what lies between parameters */
		rc = params ? pack_list(f, params, buf) : pack_extra(f, extra, buf);
		if (rc != CUDA_SUCCESS)
			return rc;
	}
	return aq_fe_result(aq_client_send(aq_fe.client, &msg));
}

static CUresult launch(CUfunction handle, CUstream stream_handle, const struct launch *l,
		       void **params, void **extra)
{
	struct aq_fe_function *f;
	struct aq_fe_stream *s;
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_stream(stream_handle, ctx, &s);
	if (rc == CUDA_SUCCESS)
		rc = aq_fe_function(handle, s->ctx, &f);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (f->ctx != s->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	rc = check_shape(f, l);
	if (rc == CUDA_SUCCESS && l->cooperative)
		rc = check_cooperative(f, l);
	return rc == CUDA_SUCCESS ? send_launch(f, s, l, params, extra) : rc;
}

AQ_EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
				  unsigned by, unsigned bz, unsigned shared, CUstream stream,
				  void **params, void **extra)
{
	const struct launch l = { .grid = { gx, gy, gz },
				  .block = { bx, by, bz },
				  .shared = shared };

	return launch(f, stream, &l, params, extra);
}

AQ_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
					     unsigned bx, unsigned by, unsigned bz, unsigned shared,
					     CUstream stream, void **params)
{
	const struct launch l = { .grid = { gx, gy, gz },
				  .block = { bx, by, bz },
				  .shared = shared,
				  .cooperative = true };

	return launch(f, stream, &l, params, NULL);
}

/* ---- launches with attributes ---- */

static CUresult take_cluster(unsigned x, unsigned y, unsigned z)
{
	return x <= 1 && y <= 1 && z <= 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

/*
 * An event that may come as soon as all blocks have begun or said so: with the whole kernel done it is late, which the interface allows.
 */
static CUresult take_event(struct launch *l, CUevent handle)
{
	struct aq_fe_event *e;
	CUresult rc = aq_fe_event_get(handle, &e);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (l->n_done == AQ_ARRAY_SIZE(l->done))
		return CUDA_ERROR_INVALID_VALUE;
	l->done[l->n_done++] = e;
	return CUDA_SUCCESS;
}

static CUresult take_attribute(struct launch *l, const CUlaunchAttribute *a)
{
	switch ((int)a->id) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		l->cooperative = a->value.cooperative != 0;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		return take_cluster(a->value.clusterDim.x, a->value.clusterDim.y,
				    a->value.clusterDim.z);
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
		return take_cluster(a->value.preferredClusterDim.x, a->value.preferredClusterDim.y,
				    a->value.preferredClusterDim.z);
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		l->has_priority = true;
		l->priority = AQ_MIN(AQ_MAX(a->value.priority, AQ_FE_PRIORITY_GREATEST),
				     AQ_FE_PRIORITY_LEAST);
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		return take_event(l, a->value.programmaticEvent.event);
	case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
		return take_event(l, a->value.launchCompletionEvent.event);
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: /* graphs only */
		return a->value.deviceUpdatableKernelNode.deviceUpdatable ? CUDA_ERROR_NOT_SUPPORTED
									  : CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: /* may overlap; need not */
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
	case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

AQ_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params,
				    void **extra)
{
	CUresult rc = aq_fe_enter();
	struct launch l;

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!c || (c->numAttrs > 0 && !c->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	l = (struct launch){ .grid = { c->gridDimX, c->gridDimY, c->gridDimZ },
			     .block = { c->blockDimX, c->blockDimY, c->blockDimZ },
			     .shared = c->sharedMemBytes };
	for (unsigned i = 0; i < c->numAttrs; i++) {
		rc = take_attribute(&l, &c->attrs[i]);
		if (rc != CUDA_SUCCESS)
			return rc;
	}
	rc = launch(f, c->hStream, &l, params, extra);
	for (unsigned i = 0; rc == CUDA_SUCCESS && i < l.n_done; i++)
		rc = cuEventRecordWithFlags((CUevent)l.done[i], c->hStream, 0);
	return rc;
}
