/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/exec/graph.h"

#include "base/macro.h"

#include <errno.h>
#include <stdlib.h>

/* A chain of calls longer than this counts as recursion: its stack is bounded by the launch. */
#define MAX_DEPTH 128
#define MAX_WORK  200000000ULL

/* Callees are kept once: `seen` of a node is, while scanning, its last caller. */
static int add_callee(struct aq_graph *g, uint32_t caller, int32_t func)
{
	struct aq_func *f = &g->code->funcs[caller];
	int32_t *callees;

	if (g->nodes[func].seen == caller + 1)
		return 0;
	g->nodes[func].seen = caller + 1;
	if ((f->n_callees & (f->n_callees - 1)) == 0) { /* grows at powers of two */
		size_t cap = f->n_callees ? (size_t)f->n_callees * 2 : 1;

		callees = realloc(f->callees, cap * sizeof(*callees));
		if (!callees)
			return -ENOMEM;
		f->callees = callees;
	}
	f->callees[f->n_callees++] = func;
	return 0;
}

static int scan_operand(struct aq_graph *g, uint32_t caller, const struct aq_ptx_operand *op,
			bool is_target)
{
	struct aq_func *f = &g->code->funcs[caller];
	int r = 0;

	if (op->kind == AQ_PTX_OPERAND_FUNC) {
		if (is_target)
			r = add_callee(g, caller, op->func);
		else
			g->code->funcs[op->func].address_taken = true;
	}
	if (op->var && op->var->space == AQ_PTX_SHARED && !op->var->is_extern &&
	    !g->code->ptx->funcs[caller].is_entry)
		f->uses_common_shared = true;
	for (uint32_t k = 0; k < op->n_sub && r == 0; k++)
		r = scan_operand(g, caller, &op->sub[k], false);
	return r;
}

static int scan_func(struct aq_graph *g, uint32_t index)
{
	const struct aq_ptx_func *pf = &g->code->ptx->funcs[index];
	int r = 0;

	for (uint32_t n = 0; n < pf->n_insns; n++) {
		const struct aq_ptx_insn *in = &pf->insns[n];
		bool call = strcmp(in->name, "call") == 0;
		/* The target is the first operand that is no list. */
		unsigned target =
			call && in->n_operands > 0 && in->operands[0].kind == AQ_PTX_OPERAND_LIST;

		for (unsigned k = 0; k < in->n_operands && r == 0; k++)
			r = scan_operand(g, index, &in->operands[k], call && k == target);
		if (r < 0)
			return r;
		if (call && target < in->n_operands &&
		    in->operands[target].kind != AQ_PTX_OPERAND_FUNC)
			g->code->funcs[index].calls_indirect = true;
	}
	return 0;
}

int aq_graph_init(struct aq_graph *g, struct aq_code *code)
{
	size_t n = (size_t)code->ptx->n_funcs + 1;
	int r = 0;

	*g = (struct aq_graph){ .code = code };
	g->nodes = calloc(n, sizeof(*g->nodes));
	g->todo = calloc(n, sizeof(*g->todo));
	if (!g->nodes || !g->todo)
		r = -ENOMEM;
	for (uint32_t f = 0; f < code->ptx->n_funcs && r == 0; f++)
		r = scan_func(g, f);
	g->epoch = code->ptx->n_funcs + 1; /* above what scanning left in `seen` */
	if (r < 0)
		aq_graph_done(g);
	return r;
}

void aq_graph_done(struct aq_graph *g)
{
	free(g->nodes);
	free(g->todo);
	*g = (struct aq_graph){ 0 };
}

static void reach_add(struct aq_graph *g, uint32_t func)
{
	g->work++;
	if (g->nodes[func].seen == g->epoch)
		return;
	g->nodes[func].seen = g->epoch;
	g->todo[g->n_todo++] = func;
}

static uint64_t measure(struct aq_graph *g, uint32_t func, unsigned level, bool *ret_unbounded)
{
	const struct aq_func *f = &g->code->funcs[func];
	struct aq_graph_node *node = &g->nodes[func];
	uint64_t own = f->local_bytes + AQ_FRAME_CHARGE, deepest = 0;

	g->work++;
	if (node->measured == g->epoch)
		return node->stack;
	if (node->open || level > MAX_DEPTH) {
		*ret_unbounded = true;
		return own;
	}
	node->open = true;
	for (uint32_t k = 0; k < f->n_callees; k++) {
		uint64_t below = measure(g, (uint32_t)f->callees[k], level + 1, ret_unbounded);

		deepest = AQ_MAX(deepest, below);
	}
	node->open = false;
	node->measured = g->epoch;
	node->stack = own + deepest;
	return node->stack;
}

int aq_graph_reach(struct aq_graph *g, uint32_t func, struct aq_reach *ret)
{
	const struct aq_code *c = g->code;

	*ret = (struct aq_reach){ 0 };
	g->epoch++;
	reach_add(g, func);
	while (g->n_todo > 0 && g->work < MAX_WORK) {
		const struct aq_func *f = &c->funcs[g->todo[--g->n_todo]];

		for (uint32_t k = 0; k < f->n_callees; k++)
			reach_add(g, (uint32_t)f->callees[k]);
		ret->common_shared |= f->uses_common_shared;
		ret->n_regs = AQ_MAX(ret->n_regs, f->n_regs);
		if (!f->calls_indirect || ret->indirect)
			continue;
		ret->indirect = true;
		for (uint32_t k = 0; k < c->ptx->n_funcs; k++)
			if (c->funcs[k].address_taken)
				reach_add(g, k);
		g->work += c->ptx->n_funcs;
	}
	ret->stack_bytes = measure(g, func, 0, &ret->unbounded);
	return g->work < MAX_WORK ? 0 : -E2BIG;
}
