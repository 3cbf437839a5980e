/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running warps. The lanes of a warp form groups with one pc each. The group in the deepest call goes first, then the one with the lowest
 * pc; since code is laid out so that lanes that took different ways meet at higher pcs (flow.h), groups catch up with each other and merge.
 * Two exceptions keep every lane moving. A group at a backward branch lets those go first that are still inside the loop it starts over, or a lock would
 * never be released whose holder is one of them. And after many backward branches the group that waited longest gets a turn.
 */
#include "gpud/soft/exec/exec.h"

#include "base/clock.h"
#include "base/macro.h"
#include "gpud/soft/exec/ops.h"
#include "gpud/soft/exec/state.h"

#include <stdlib.h>

#define WARP_SLICE 2048 /* warp instructions before the next warp of the block has its turn */
#define PATIENCE   4096 /* backward branches before another group has one */
#define HANG_NS	   (5 * AQ_NS_PER_MS)

void aq_warp_fault(struct aq_warp *w, const struct aq_insn *i, enum aq_status status, uint64_t va)
{
	struct aq_block *b = w->block;

	w->event = true;
	if (b->fault != AQ_OK)
		return;
	b->fault = status;
	b->fault_va = va;
	b->fault_line = i->line;
}

uint32_t aq_warp_pc(const struct aq_warp *w, const struct aq_insn *i)
{
	return (uint32_t)(i - w->group->frame->func->code);
}

struct aq_group *aq_group_add(struct aq_warp *w, uint32_t mask, uint32_t pc, struct aq_frame *frame)
{
	struct aq_group *g = NULL;

	for (uint32_t k = 0; k < w->n_groups && !g; k++)
		if (w->groups[k].mask == 0)
			g = &w->groups[k];
	if (!g)
		g = &w->groups[w->n_groups++];
	*g = (struct aq_group){ .mask = mask, .pc = pc, .frame = frame, .stamp = w->stamp };
	return g;
}

void aq_group_split(struct aq_warp *w, const struct aq_insn *i, uint32_t mask, bool rest_stays)
{
	struct aq_group *g = w->group;
	uint32_t pc = aq_warp_pc(w, i), rest = g->mask & ~mask;

	g->pc = pc;
	if (!rest)
		return;
	g->mask &= mask;
	(void)aq_group_add(w, rest, rest_stays ? pc : pc + 1, g->frame);
	w->event = true;
}

void aq_warp_exit(struct aq_warp *w, uint32_t mask)
{
	struct aq_frame *f = w->group->frame;

	w->event = true;
	w->group->mask &= ~mask;
	w->live &= ~mask;
	while (f) {
		struct aq_frame *up = f->up;

		f->lanes &= ~mask;
		if (f->lanes == 0)
			aq_frame_release(w, f);
		f = up;
	}
	/* Nobody waits for the dead. */
	for (uint32_t k = 0; k < w->n_groups; k++)
		if (w->groups[k].state == AQ_GROUP_SYNC) {
			w->groups[k].state = AQ_GROUP_RUN;
			w->groups[k].warp_bar = false;
		}
	if (w->live == 0)
		w->block->n_live--;
	aq_barriers_check(w->block);
}

/* Groups without lanes go; sleepers wake. */
static void tidy(struct aq_warp *w)
{
	uint64_t now = 0;

	for (uint32_t k = 0; k < w->n_groups;) {
		struct aq_group *g = &w->groups[k];

		if (g->mask == 0) {
			*g = w->groups[--w->n_groups];
			continue;
		}
		if (g->state == AQ_GROUP_SLEEP) {
			if (now == 0)
				now = aq_now_ns();
			if (now >= g->wake_ns)
				g->state = AQ_GROUP_RUN;
		}
		k++;
	}
}

/* Does a group behind a backward branch have to let others of the loop go first? */
static bool held(const struct aq_warp *w, const struct aq_group *g)
{
	if (g->late == 0)
		return false;
	for (uint32_t k = 0; k < w->n_groups; k++) {
		const struct aq_group *o = &w->groups[k];

		if (o != g && o->state == AQ_GROUP_RUN && o->mask && o->frame == g->frame &&
		    o->pc > g->pc && o->pc <= g->late)
			return true;
	}
	return false;
}

static bool goes_before(const struct aq_group *a, const struct aq_group *b)
{
	if ((a->boost > 0) != (b->boost > 0))
		return a->boost > 0;
	if (a->frame->depth != b->frame->depth)
		return a->frame->depth > b->frame->depth;
	return a->pc < b->pc;
}

/* After much going round in circles: the group that waited longest goes first for as long. */
static void take_turns(struct aq_warp *w)
{
	struct aq_group *oldest = NULL;

	w->spins = 0;
	for (uint32_t k = 0; k < w->n_groups; k++) {
		struct aq_group *g = &w->groups[k];

		if (g->state != AQ_GROUP_RUN)
			continue;
		g->boost = 0;
		if (!oldest || g->stamp < oldest->stamp)
			oldest = g;
	}
	if (!oldest)
		return;
	oldest->boost = PATIENCE;
	oldest->late = 0;
}

/* The group to run, with those at the same place merged into it; NULL: all wait. */
static struct aq_group *pick(struct aq_warp *w)
{
	struct aq_group *best = NULL;

	tidy(w);
	if (w->spins >= PATIENCE)
		take_turns(w);
	for (uint32_t k = 0; k < w->n_groups; k++) {
		struct aq_group *g = &w->groups[k];

		if (g->state == AQ_GROUP_RUN && (!best || goes_before(g, best)) && !held(w, g))
			best = g;
	}
	if (!best)
		return NULL;
	for (uint32_t k = 0; k < w->n_groups && w->n_groups > 1; k++) {
		struct aq_group *g = &w->groups[k];

		if (g == best || g->state != AQ_GROUP_RUN || g->frame != best->frame ||
		    g->pc != best->pc)
			continue;
		best->mask |= g->mask;
		best->boost = AQ_MAX(best->boost, g->boost);
		g->mask = 0;
	}
	best->late = 0;
	best->stamp = ++w->stamp;
	return best;
}

/* The next place ahead where another group waits to be joined. */
static const struct aq_insn *next_meeting(const struct aq_warp *w, const struct aq_group *g)
{
	uint32_t pc = UINT32_MAX;

	for (uint32_t k = 0; k < w->n_groups; k++) {
		const struct aq_group *o = &w->groups[k];

		if (o != g && o->mask && o->state == AQ_GROUP_RUN && o->frame == g->frame &&
		    o->pc > g->pc)
			pc = AQ_MIN(pc, o->pc);
	}
	return pc == UINT32_MAX ? NULL : g->frame->func->code + pc;
}

/* At a backward branch with other groups about: true if another one should go on now. */
static bool yield_at_branch(struct aq_warp *w, struct aq_group *g, uint32_t pc, uint32_t target)
{
	for (uint32_t k = 0; k < w->n_groups; k++) {
		const struct aq_group *o = &w->groups[k];

		if (o != g && o->mask && o->state == AQ_GROUP_RUN && o->frame == g->frame &&
		    o->pc > target && o->pc <= pc) {
			g->late = pc;
			return true;
		}
	}
	if (g->boost > 0 && --g->boost == 0)
		return true;
	return ++w->spins >= PATIENCE;
}

/* Some lanes of the group take the branch, others do not. */
static void diverge(struct aq_warp *w, struct aq_group *g, uint32_t pc, uint32_t target,
		    uint32_t taken)
{
	struct aq_group *o;

	g->mask &= ~taken;
	g->pc = pc + 1;
	o = aq_group_add(w, taken, target, g->frame);
	o->boost = g->boost = g->boost / 2;
	if (target <= pc)
		o->late = pc;
}

/*
 * Run a warp for about `budget` instructions. Returns how many it ran; 0: it waits.
 */
static uint64_t warp_run(struct aq_warp *w, uint64_t budget)
{
	struct aq_block *b = w->block;
	uint64_t total = 0;

	while (total < budget && b->fault == AQ_OK) {
		struct aq_group *g = pick(w);
		const struct aq_insn *code, *i, *start, *stop;
		uint64_t n = 0;
		uint32_t active;

		if (!g)
			break;
		w->group = g;
		w->event = false;
		code = g->frame->func->code;
		w->r.base[0] = g->frame->rows;
		w->r.base[1] = g->frame->func->pool;
		active = g->mask;
		i = start = code + g->pc;
		stop = w->n_groups > 1 ? next_meeting(w, g) : NULL;
		for (;;) {
			uint32_t mask;

			if (i == stop) {
				g->pc = (uint32_t)(i - code);
				n += (uint64_t)(i - start);
				break;
			}
			mask = active & (*aq_pred(&w->r, i->guard) ^ i->guard_flip);
			if (mask == 0) {
				i++;
				continue;
			}
			if (i->kind == AQ_INSN_ALU) {
				i->fn.alu(&w->r, i, mask);
				i++;
				continue;
			}
			if (i->kind == AQ_INSN_OP) {
				i->fn.op(w, i, mask);
				i++;
				if (!w->event)
					continue;
				n += (uint64_t)(i - start);
				break;
			}
			n += (uint64_t)(i - start) + 1;
			if (mask != active) {
				diverge(w, g, (uint32_t)(i - code), i->target, mask);
				break;
			}
			start = code + i->target;
			if (start <= i) {
				if (total + n >= budget ||
				    (w->n_groups > 1 &&
				     yield_at_branch(w, g, (uint32_t)(i - code), i->target))) {
					g->pc = i->target;
					break;
				}
			} else if (stop && start > stop) {
				g->pc = i->target;
				break;
			}
			i = start;
		}
		total += n;
		b->lane_insns += n * (uint64_t)__builtin_popcount(active);
	}
	b->insns += total;
	return total;
}

/* Nothing ran: when to look again. */
static uint64_t wake_time(const struct aq_block *b)
{
	uint64_t wake = UINT64_MAX;

	for (uint32_t n = 0; n < b->n_warps; n++)
		for (uint32_t k = 0; k < b->warps[n].n_groups; k++) {
			const struct aq_group *g = &b->warps[n].groups[k];

			if (g->mask && g->state == AQ_GROUP_SLEEP)
				wake = AQ_MIN(wake, g->wake_ns);
		}
	/* A block that waits for itself hangs, as it would on hardware; its owner may look at it now and then. */
	return wake == UINT64_MAX ? aq_now_ns() + HANG_NS : wake;
}

enum aq_run aq_block_run(struct aq_block *b, uint64_t max_insns, struct aq_run_result *ret)
{
	uint32_t idle = 0;
	enum aq_run r = AQ_RUN_YIELD;

	*ret = (struct aq_run_result){ .fault = AQ_OK };
	b->n_views = 0;
	b->insns = b->lane_insns = 0;
	while (b->n_live > 0 && b->insns < max_insns && b->fault == AQ_OK) {
		struct aq_warp *w = &b->warps[b->turn];
		uint64_t left = max_insns - b->insns;

		b->turn = b->turn + 1 < b->n_warps ? b->turn + 1 : 0;
		if (w->live && warp_run(w, AQ_MIN(left, (uint64_t)WARP_SLICE)) > 0)
			idle = 0;
		else if (++idle >= b->n_warps)
			break;
	}
	if (b->fault != AQ_OK) {
		r = AQ_RUN_FAULT;
		ret->fault = b->fault;
		ret->fault_va = b->fault_va;
		ret->fault_line = b->fault_line;
	} else if (b->n_live == 0) {
		r = AQ_RUN_DONE;
	} else if (idle >= b->n_warps) {
		r = AQ_RUN_SLEEP;
		ret->wake_ns = wake_time(b);
	}
	ret->insns = b->insns;
	ret->lane_insns = b->lane_insns;
	return r;
}
