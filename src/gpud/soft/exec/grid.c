/* SPDX-License-Identifier: Apache-2.0 */
/* Making grids and blocks. A grid of many blocks makes few: what one leaves, the next takes over. */
#include "gpud/soft/exec/exec.h"

#include "base/macro.h"
#include "gpud/soft/exec/state.h"

#include <stdlib.h>

static bool fill_tid(struct aq_grid *g)
{
	const uint32_t *d = g->launch.block;

	g->tid = malloc((size_t)g->n_warps * 3 * AQ_LANES * sizeof(uint32_t));
	if (!g->tid)
		return false;
	for (uint32_t t = 0; t < g->n_warps * AQ_LANES; t++) {
		uint32_t *row = g->tid + (size_t)(t / AQ_LANES) * 3 * AQ_LANES + t % AQ_LANES;

		row[0] = t % d[0];
		row[AQ_LANES] = t / d[0] % d[1];
		row[2 * AQ_LANES] = t / d[0] / d[1];
	}
	return true;
}

enum aq_status aq_grid_new(const struct aq_launch *l, struct aq_grid **ret)
{
	const struct aq_kernel *k = &l->code->kernels[l->kernel];
	uint64_t threads, shared;
	struct aq_grid *g;

	for (int a = 0; a < 3; a++)
		if (l->grid[a] == 0 || l->block[a] == 0 || l->block[a] > 1024 ||
		    (a > 0 && l->grid[a] > 65535) || l->grid[a] > INT32_MAX)
			return AQ_E_LAUNCH_RESOURCES;
	threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
	shared = (uint64_t)k->dynamic_shared + l->dyn_shared;
	if (threads > AQ_MAX_WARPS * AQ_LANES || threads > k->info.max_threads ||
	    shared > AQ_MAX_SHARED_BYTES ||
	    (threads + AQ_LANES - 1) / AQ_LANES * l->code->funcs[k->func].frame_bytes >
		    AQ_MAX_BLOCK_FRAMES)
		return AQ_E_LAUNCH_RESOURCES;
	g = calloc(1, sizeof(*g));
	if (!g)
		return AQ_E_NO_MEMORY;
	g->launch = *l;
	g->launch.params = NULL;
	g->code = l->code;
	g->kernel = k;
	g->func = &l->code->funcs[k->func];
	g->threads = (uint32_t)threads;
	g->n_warps = (g->threads + AQ_LANES - 1) / AQ_LANES;
	g->shared_bytes = (uint32_t)shared;
	g->n_blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
	g->local_limit = k->stack_bytes;
	if (k->unbounded_stack)
		g->local_limit += (uint32_t)AQ_MIN(l->stack_bytes, (uint64_t)AQ_MAX_LOCAL_BYTES);
	g->local_limit = (uint32_t)aq_align_up(g->local_limit, 16);
	g->params = malloc(k->info.param_bytes + 16);
	if (!g->params || !fill_tid(g)) {
		free(g->params);
		free(g);
		return AQ_E_NO_MEMORY;
	}
	memset(g->params, 0, k->info.param_bytes + 16);
	if (l->params)
		memcpy(g->params, l->params, k->info.param_bytes);
	pthread_mutex_init(&g->lock, NULL);
	*ret = g;
	return AQ_OK;
}

static void block_destroy(struct aq_block *b)
{
	for (uint32_t n = 0; n < b->n_warps; n++) {
		struct aq_warp *w = &b->warps[n];

		while (w->spare) {
			struct aq_frame *f = w->spare;

			w->spare = f->up;
			free(f->rows);
			free(f);
		}
		free(w->local);
	}
	free(b->memory);
	free(b);
}

void aq_grid_free(struct aq_grid *g)
{
	if (!g)
		return;
	while (g->spare) {
		struct aq_block *b = g->spare;

		g->spare = b->next_spare;
		block_destroy(b);
	}
	pthread_mutex_destroy(&g->lock);
	free(g->params);
	free(g->tid);
	free(g);
}

uint64_t aq_grid_n_blocks(const struct aq_grid *g)
{
	return g->n_blocks;
}

/* Memory of a block, all zero: nothing of another session's is in it. */
static struct aq_block *block_make(struct aq_grid *g)
{
	size_t frame = aq_align_up(g->func->frame_bytes, 64);
	size_t warps = aq_align_up(g->n_warps * sizeof(struct aq_warp), 64);
	size_t bytes = warps + g->n_warps * frame + aq_align_up(g->shared_bytes, 64) + 64;
	struct aq_block *b = calloc(1, sizeof(*b));
	uint8_t *p;

	if (!b)
		return NULL;
	b->memory = calloc(1, bytes + 64);
	if (!b->memory) {
		free(b);
		return NULL;
	}
	p = (uint8_t *)aq_align_up((uintptr_t)b->memory, 64);
	b->grid = g;
	b->n_warps = g->n_warps;
	b->warps = (struct aq_warp *)(void *)p;
	for (uint32_t n = 0; n < g->n_warps; n++) {
		b->warps[n].entry.rows = p + warps + n * frame;
		b->warps[n].entry.cap = frame;
	}
	b->shared = p + warps + g->n_warps * frame;
	return b;
}

static void block_start(struct aq_block *b, uint64_t index, uint32_t smid)
{
	const struct aq_grid *g = b->grid;

	b->ctaid[0] = (uint32_t)(index % g->launch.grid[0]);
	b->ctaid[1] = (uint32_t)(index / g->launch.grid[0] % g->launch.grid[1]);
	b->ctaid[2] = (uint32_t)(index / g->launch.grid[0] / g->launch.grid[1]);
	b->smid = smid;
	b->n_live = b->n_warps;
	b->turn = 0;
	b->fault = AQ_OK;
	b->n_views = b->next_view = 0;
	memset(b->barriers, 0, sizeof(b->barriers));
	for (uint32_t n = 0; n < b->n_warps; n++) {
		struct aq_warp *w = &b->warps[n];
		uint32_t lanes = AQ_MIN(g->threads - n * AQ_LANES, (uint32_t)AQ_LANES);

		w->block = b;
		w->index = (uint8_t)n;
		w->live = lanes == AQ_LANES ? AQ_FULL_MASK : (1u << lanes) - 1;
		w->r.cc = 0;
		w->n_groups = 0;
		w->spins = 0;
		w->stamp = 0;
		w->entry.up = NULL;
		w->entry.func = g->func;
		w->entry.lanes = w->live;
		w->entry.depth = 0;
		w->entry.local_off = 0;
		(void)aq_group_add(w, w->live, 0, &w->entry);
	}
}

struct aq_block *aq_block_new(struct aq_grid *g, uint64_t index, uint32_t smid)
{
	struct aq_block *b;

	pthread_mutex_lock(&g->lock);
	b = g->spare;
	if (b)
		g->spare = b->next_spare;
	pthread_mutex_unlock(&g->lock);
	if (!b)
		b = block_make(g);
	if (b)
		block_start(b, index, smid);
	return b;
}

/* Frames of lanes that never returned, after a fault or a kill, go back to their warps. */
static void reclaim_frames(struct aq_warp *w)
{
	for (uint32_t k = 0; k < w->n_groups; k++) {
		struct aq_frame *f = w->groups[k].mask ? w->groups[k].frame : NULL;

		while (f && f != &w->entry) {
			struct aq_frame *up = f->up;

			f->lanes &= ~w->groups[k].mask;
			if (f->lanes == 0)
				aq_frame_release(w, f);
			f = up;
		}
	}
	w->n_groups = 0;
}

void aq_block_free(struct aq_block *b)
{
	struct aq_grid *g;

	if (!b)
		return;
	g = b->grid;
	for (uint32_t n = 0; n < b->n_warps; n++)
		reclaim_frames(&b->warps[n]);
	pthread_mutex_lock(&g->lock);
	b->next_spare = g->spare;
	g->spare = b;
	pthread_mutex_unlock(&g->lock);
}
