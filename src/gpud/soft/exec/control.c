/* SPDX-License-Identifier: Apache-2.0 */
/* Calls, the end of lanes, jumps through tables, barriers, sleep. */
#include "gpud/soft/exec/ops.h"
#include "gpud/soft/exec/state.h"

#include "base/clock.h"
#include "base/macro.h"

#include <stdlib.h>

#define MAX_NANOSLEEP 1000000u

/* A frame of the warp's own spares, or a new one. */
static struct aq_frame *frame_new(struct aq_warp *w, const struct aq_func *func)
{
	struct aq_frame **at = &w->spare, *f;

	for (; *at; at = &(*at)->up)
		if ((*at)->cap >= func->frame_bytes) {
			f = *at;
			*at = f->up;
			return f;
		}
	if (w->block->frame_bytes + func->frame_bytes > AQ_MAX_BLOCK_FRAMES)
		return NULL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->cap = aq_align_up(func->frame_bytes, 64);
	f->rows = aligned_alloc(64, f->cap);
	if (!f->rows) {
		free(f);
		return NULL;
	}
	memset(f->rows, 0, f->cap);
	w->block->frame_bytes += f->cap;
	return f;
}

void aq_frame_release(struct aq_warp *w, struct aq_frame *f)
{
	if (f == &w->entry)
		return;
	f->up = w->spare;
	w->spare = f;
}

/* Word k of a place, for all lanes. */
static void get_word(const struct aq_regs *r, const struct aq_loc *loc, uint32_t k, uint32_t *v)
{
	if (loc->kind == AQ_LOC_REG64) {
		const uint64_t *row = aq_row64(r, loc->row);

		for (int l = 0; l < AQ_LANES; l++)
			v[l] = (uint32_t)(row[l] >> (k ? 32 : 0));
		return;
	}
	memcpy(v, aq_row32(r, loc->row + k * AQ_LANES * 4), AQ_LANES * 4);
}

static void put_word(const struct aq_regs *r, const struct aq_loc *loc, uint32_t k,
		     const uint32_t *v, uint32_t mask)
{
	if (loc->kind == AQ_LOC_REG64) {
		uint64_t *row = aq_row64(r, loc->row);

		for (uint32_t m = mask; m; m &= m - 1) {
			int l = __builtin_ctz(m);

			row[l] = k ? (uint32_t)row[l] | (uint64_t)v[l] << 32
				   : (row[l] & ~0xffffffffULL) | v[l];
		}
		return;
	}
	aq_store32(r, loc->row + k * AQ_LANES * 4, v, mask);
}

static void copy_loc(const struct aq_regs *to_regs, const struct aq_loc *to,
		     const struct aq_regs *from_regs, const struct aq_loc *from, uint32_t mask)
{
	uint32_t n = (AQ_MIN(to->bytes, from->bytes) + 3) / 4, v[AQ_LANES];

	for (uint32_t k = 0; k < n; k++) {
		get_word(from_regs, from, k, v);
		put_word(to_regs, to, k, v, mask);
	}
}

static bool fits(const struct aq_loc *a, const struct aq_loc *b)
{
	return (a->bytes + 3) / 4 == (b->bytes + 3) / 4;
}

/* The function at an address, if this call can go there. */
static const struct aq_func *callee(const struct aq_warp *w, const struct aq_call *c,
				    uint64_t address)
{
	const struct aq_code *code = w->block->grid->code;
	uint64_t index = address & 0xffffffff;
	const struct aq_func *f;

	if (c->func >= 0)
		return &code->funcs[c->func];
	if (address >> AQ_WINDOW_SHIFT != AQ_WINDOW_FUNC || index >= code->ptx->n_funcs)
		return NULL;
	f = &code->funcs[index];
	if (f->n_code == 0 || f->ptx->is_entry || f->n_params != c->n_args ||
	    f->n_rets != c->n_rets)
		return NULL;
	for (uint32_t k = 0; k < c->n_args; k++)
		if (!fits(&f->params[k], &c->args[k]))
			return NULL;
	for (uint32_t k = 0; k < c->n_rets; k++)
		if (!fits(&f->rets[k], &c->rets[k]))
			return NULL;
	return f;
}

/* Lanes whose target is that of the first one; its address. */
static uint32_t same_target(const struct aq_warp *w, const struct aq_insn *i, uint32_t mask,
			    uint64_t *ret)
{
	const uint64_t *a = aq_row64(&w->r, i->a);
	uint32_t same = 0;

	*ret = a[__builtin_ctz(mask)];
	for (unsigned l = 0; l < AQ_LANES; l++)
		same |= (uint32_t)(a[l] == *ret) << l;
	return same & mask;
}

void aq_op_call(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	struct aq_frame *up = w->group->frame, *f;
	const struct aq_call *c = &up->func->calls[i->more];
	uint64_t address = 0, local;
	struct aq_regs regs;
	const struct aq_func *func;

	aq_group_split(w, i, mask, false);
	if (c->func < 0) {
		mask = same_target(w, i, mask, &address);
		aq_group_split(w, i, mask, true);
	}
	func = callee(w, c, address);
	if (!func) {
		aq_warp_fault(w, i, AQ_E_ILLEGAL_INSN, address);
		return;
	}
	local = up->local_off + aq_align_up(up->func->local_bytes + AQ_FRAME_CHARGE, 16);
	f = NULL;
	if (local + func->local_bytes + AQ_FRAME_CHARGE <= w->block->grid->local_limit)
		f = frame_new(w, func);
	if (!f) {
		aq_warp_fault(w, i, AQ_E_HW_STACK, 0);
		return;
	}
	f->up = up;
	f->func = func;
	f->lanes = mask;
	f->ret_pc = aq_warp_pc(w, i);
	f->depth = up->depth + 1;
	f->local_off = (uint32_t)local;
	regs = (struct aq_regs){ .base = { f->rows, func->pool } };
	for (uint32_t k = 0; k < c->n_args; k++)
		copy_loc(&regs, &func->params[k], &w->r, &c->args[k], mask);
	w->group->frame = f;
	w->group->pc = 0;
	w->group->late = 0;
	w->event = true;
}

void aq_op_ret(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	struct aq_frame *f = w->group->frame, *up = f->up;
	const struct aq_call *c = &up->func->calls[up->func->code[f->ret_pc].more];
	struct aq_regs regs = { .base = { up->rows, up->func->pool } };

	aq_group_split(w, i, mask, false);
	for (uint32_t k = 0; k < c->n_rets; k++)
		copy_loc(&regs, &c->rets[k], &w->r, &f->func->rets[k], mask);
	w->group->frame = up;
	w->group->pc = f->ret_pc + 1;
	w->group->late = 0;
	w->event = true;
	f->lanes &= ~mask;
	if (f->lanes == 0)
		aq_frame_release(w, f);
}

void aq_op_exit(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	aq_group_split(w, i, mask, false);
	aq_warp_exit(w, mask);
}

void aq_op_brx(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	const struct aq_switch *sw = &w->group->frame->func->switches[i->more];
	const uint32_t *a = aq_row32(&w->r, i->a);
	uint32_t first = a[__builtin_ctz(mask)], same = 0;

	aq_group_split(w, i, mask, false);
	for (unsigned l = 0; l < AQ_LANES; l++)
		same |= (uint32_t)(a[l] == first) << l;
	aq_group_split(w, i, mask & same, true);
	if (first >= sw->n_targets) {
		aq_warp_fault(w, i, AQ_E_ILLEGAL_INSN, first);
		return;
	}
	w->spins += sw->targets[first] <= w->group->pc;
	w->group->pc = sw->targets[first];
	w->event = true;
}

void aq_op_trap(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	(void)mask;
	aq_warp_fault(w, i, AQ_E_TRAP, 0);
}

void aq_op_nanosleep(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	const uint32_t *a = aq_row32(&w->r, i->a);
	uint32_t ns = 0;

	for (uint32_t m = mask; m; m &= m - 1)
		ns = AQ_MAX(ns, a[__builtin_ctz(m)]);
	if (ns == 0)
		return;
	aq_group_split(w, i, mask, false);
	w->group->pc = aq_warp_pc(w, i) + 1;
	w->group->state = AQ_GROUP_SLEEP;
	w->group->wake_ns = aq_now_ns() + AQ_MIN(ns, MAX_NANOSLEEP);
	w->event = true;
}

/* The group at a barrier of kind .red gets its result. */
static void bar_result(struct aq_warp *w, const struct aq_group *g, const struct aq_barrier *bar)
{
	const struct aq_insn *i = &g->frame->func->code[g->pc];
	struct aq_regs regs = { .base = { g->frame->rows, g->frame->func->pool } };
	uint32_t v[AQ_LANES];

	(void)w;
	switch ((enum aq_bar)i->size) {
	case AQ_BAR_POPC:
		for (int l = 0; l < AQ_LANES; l++)
			v[l] = bar->n_true;
		aq_store32(&regs, i->dst, v, g->mask);
		break;
	case AQ_BAR_AND:
		aq_pred_store(&regs, i->dst, bar->n_true == bar->n_votes ? AQ_FULL_MASK : 0,
			      g->mask);
		break;
	case AQ_BAR_OR:
		aq_pred_store(&regs, i->dst, bar->n_true ? AQ_FULL_MASK : 0, g->mask);
		break;
	case AQ_BAR_SYNC:
	case AQ_BAR_ARRIVE:
	default:
		break;
	}
}

static void bar_open(struct aq_block *b, unsigned id)
{
	struct aq_barrier *bar = &b->barriers[id];

	for (uint32_t n = 0; n < b->n_warps; n++)
		for (uint32_t k = 0; k < b->warps[n].n_groups; k++) {
			struct aq_group *g = &b->warps[n].groups[k];

			if (g->state != AQ_GROUP_BAR || g->bar != id)
				continue;
			bar_result(&b->warps[n], g, bar);
			g->state = AQ_GROUP_RUN;
			g->pc++;
		}
	memset(bar, 0, sizeof(*bar));
}

/* Threads count by warps, as hardware does it: once a warp's living lanes are there, it counts 32. Exited lanes have arrived. */
static bool bar_complete(const struct aq_block *b, const struct aq_barrier *bar)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < b->n_warps; k++) {
		uint32_t live = b->warps[k].live, arrived = bar->arrived[k];

		if (bar->expected == 0 && (arrived & live) != live)
			return false;
		if (arrived)
			n += (uint32_t)__builtin_popcount(arrived | ~live);
	}
	return bar->expected == 0 || n >= bar->expected;
}

void aq_barriers_check(struct aq_block *b)
{
	for (unsigned id = 0; id < AQ_N_BARRIERS; id++)
		if (b->barriers[id].pending && bar_complete(b, &b->barriers[id]))
			bar_open(b, id);
}

void aq_op_bar(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	struct aq_block *b = w->block;
	const uint32_t *ids = aq_row32(&w->r, i->a);
	uint32_t first = (uint32_t)__builtin_ctz(mask), id = ids[first], same = 0;
	uint32_t expected = aq_row32(&w->r, i->b)[first], pc = aq_warp_pc(w, i);
	struct aq_barrier *bar;

	if (id >= AQ_N_BARRIERS || expected % AQ_LANES || expected > AQ_MAX_WARPS * AQ_LANES) {
		aq_warp_fault(w, i, AQ_E_ILLEGAL_INSN, id);
		return;
	}
	for (unsigned l = 0; l < AQ_LANES; l++)
		same |= (uint32_t)(ids[l] == id) << l;
	aq_group_split(w, i, mask, false);
	mask &= same;
	aq_group_split(w, i, mask, true);
	bar = &b->barriers[id];
	bar->pending = true;
	bar->expected = expected;
	bar->arrived[w->index] |= mask;
	if (i->size >= AQ_BAR_POPC) {
		bar->n_true += (uint32_t)__builtin_popcount(*aq_pred(&w->r, i->c) & mask);
		bar->n_votes += (uint32_t)__builtin_popcount(mask);
	}
	w->event = true;
	w->group->pc = pc;
	if (i->size == AQ_BAR_ARRIVE) {
		w->group->pc = pc + 1;
	} else {
		w->group->state = AQ_GROUP_BAR;
		w->group->bar = (uint8_t)id;
	}
	if (bar_complete(b, bar))
		bar_open(b, id);
}
