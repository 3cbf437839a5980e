/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macro.h"
#include "gpud/soft/exec/exec.h"
#include "gpud/soft/soft.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define WARP 32U
/* Registers are given out to a warp in steps of 256. */
#define REGISTER_STEP 8U

static enum aq_status lookup(void *opaque, uint64_t va, struct aq_view *ret)
{
	struct aq_soft_ctx *ctx = opaque;

	return aq_aspace_lookup(&ctx->session->as, va, 1ULL << ctx->card->index, ctx->peers, ret);
}

struct aq_mem_map *aq_launch_map_new(struct aq_soft_ctx *ctx)
{
	struct aq_mem_map *map = malloc(sizeof(*map));

	if (map)
		*map = (struct aq_mem_map){ .lookup = lookup, .opaque = ctx };
	return map;
}

static bool dims_ok(const struct aq_req_launch *req)
{
	uint64_t threads = (uint64_t)req->block[0] * req->block[1];

	if (!req->grid[0] || !req->grid[1] || !req->grid[2] || req->grid[0] > INT32_MAX ||
	    req->grid[1] > 65535 || req->grid[2] > 65535)
		return false;
	if (!req->block[0] || !req->block[1] || !req->block[2] || req->block[0] > 1024 ||
	    req->block[1] > 1024 || req->block[2] > 64)
		return false;
	return threads * req->block[2] <= AQ_BLOCK_THREADS;
}

/* What one block takes of a multiprocessor. False: more than there is. */
static bool block_need(const struct aq_req_launch *req, const struct aq_code_kernel *f,
		       struct aq_sm *ret)
{
	uint32_t threads = req->block[0] * req->block[1] * req->block[2];
	uint64_t shared = (uint64_t)f->shared_bytes + req->shared_bytes;

	if (threads > f->max_threads || shared > AQ_BLOCK_SHARED_OPTIN)
		return false;
	if (f->reqntid[0] && (req->block[0] != f->reqntid[0] || req->block[1] != f->reqntid[1] ||
			      req->block[2] != f->reqntid[2]))
		return false;
	threads = (uint32_t)aq_align_up(threads, WARP);
	*ret = (struct aq_sm){
		.threads = threads,
		.blocks = 1,
		.registers = threads * (uint32_t)aq_align_up(f->registers, REGISTER_STEP),
		.shared = (uint32_t)shared + AQ_BLOCK_SHARED_SYSTEM,
	};
	return ret->registers <= AQ_SM_REGISTERS;
}

static enum aq_status make_grid(struct aq_soft_ctx *ctx, struct aq_module *m,
				const struct aq_req_launch *req, const void *params,
				struct aq_grid **ret)
{
	struct aq_launch l = {
		.code = m->code,
		.kernel = req->func,
		.grid = { req->grid[0], req->grid[1], req->grid[2] },
		.block = { req->block[0], req->block[1], req->block[2] },
		.dyn_shared = req->shared_bytes,
		.params = params,
		.mem = ctx->map,
		.stack_bytes = ctx->limit[AQ_LIMIT_STACK] +
			       aq_code_kernel(m->code, req->func)->local_bytes,
		.n_sm = ctx->card->profile.sms,
		.clock_khz = ctx->card->profile.clock_sm_mhz * 1000,
		.id = atomic_fetch_add(&ctx->card->grids, 1) + 1,
	};

	return aq_grid_new(&l, ret);
}

static enum aq_status make_kernel(struct aq_soft_ctx *ctx, struct aq_module *m,
				  const struct aq_req_launch *req, const void *params,
				  struct aq_kernel **ret)
{
	struct aq_kernel *k = calloc(1, sizeof(*k));
	enum aq_status status;

	if (!k)
		return AQ_E_NO_MEMORY;
	aq_list_init(&k->link);
	k->ctx = ctx;
	k->priority = req->priority;
	k->cooperative = (req->flags & AQ_LAUNCH_COOPERATIVE) != 0;
	if (!block_need(req, aq_code_kernel(m->code, req->func), &k->need)) {
		free(k);
		return AQ_E_LAUNCH_RESOURCES;
	}
	status = make_grid(ctx, m, req, params, &k->grid);
	if (status != AQ_OK) {
		free(k);
		return status;
	}
	k->n_blocks = aq_grid_n_blocks(k->grid);
	if (k->cooperative && k->n_blocks > aq_kernel_capacity(ctx->card, &k->need)) {
		aq_grid_free(k->grid);
		free(k);
		return AQ_E_LAUNCH_RESOURCES;
	}
	*ret = k;
	return AQ_OK;
}

int aq_soft_launch(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_launch *req = request->req;
	struct aq_module *m = aq_idtab_get(&s->modules, req->module);
	struct aq_kernel *k = NULL;
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	struct aq_cmd *cmd;
	enum aq_status status = aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (status != AQ_OK)
		return (int)status;
	if (!m || m->ctx != ctx || req->func >= aq_code_n_kernels(m->code))
		return AQ_E_NOT_FOUND;
	if (!dims_ok(req) || req->param_bytes != aq_code_kernel(m->code, req->func)->param_bytes ||
	    req->param_bytes > request->data_len || (req->flags & ~(uint32_t)AQ_LAUNCH_COOPERATIVE))
		return AQ_E_INVALID;
	if (ctx->failed) {
		(void)pthread_mutex_lock(&s->soft->lock);
		status = ctx->status;
		(void)pthread_mutex_unlock(&s->soft->lock);
		return (int)status;
	}
	status = aq_queue_wait(s);
	if (status == AQ_OK)
		status = make_kernel(ctx, m, req, request->data, &k);
	if (status != AQ_OK)
		return (int)status;
	cmd = aq_cmd_new(st, AQ_CMD_KERNEL, AQ_WIRE_NO_SLOT);
	if (!cmd) {
		aq_kernel_free(k);
		return AQ_E_NO_MEMORY;
	}
	cmd->u.kernel = k;
	k->cmd = cmd;
	k->module = m;
	(void)pthread_mutex_lock(&s->soft->lock);
	m->refs++;
	(void)pthread_mutex_unlock(&s->soft->lock);
	return aq_cmd_submit(cmd);
}
