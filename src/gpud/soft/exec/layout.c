/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of a function: rows of registers, parameters of calls, predicates; and its local memory. */
#include "gpud/soft/exec/lower.h"

#include "base/macro.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdlib.h>

/* Places in a thread's local memory and in the area of parameters. */
struct layout {
	uint64_t local, area;
	bool bad; /* a parameter in a register that cannot be one */
};

static struct aq_loc formal_loc(struct aq_lower *l, struct aq_ptx_var *v, const int32_t *regs,
				uint32_t k, struct layout *lay)
{
	struct aq_loc loc = { .bytes = (uint32_t)v->size, .kind = AQ_LOC_AREA };

	if (regs && regs[k] >= 0 && (uint32_t)regs[k] < l->pf->n_regs) {
		enum aq_ptx_type type = l->pf->regs[regs[k]].type;
		enum aq_row_class class = aq_row_class_of(type);

		if ((class != AQ_ROW_32 && class != AQ_ROW_64) || l->pf->regs[regs[k]].vec > 1)
			lay->bad = true;
		loc.kind = class == AQ_ROW_64 ? AQ_LOC_REG64 : AQ_LOC_REG32;
		loc.bytes = aq_ptx_type_size(type);
		return loc; /* row: when rows have their places */
	}
	v->offset = lay->area;
	lay->area += aq_align_up(v->size, 4);
	return loc;
}

static bool layout_formals(struct aq_lower *l, struct layout *lay)
{
	const struct aq_ptx_func *pf = l->pf;
	struct aq_func *f = l->f;

	f->params = calloc((size_t)pf->n_params + 1, sizeof(*f->params));
	f->rets = calloc((size_t)pf->n_rets + 1, sizeof(*f->rets));
	if (!f->params || !f->rets)
		return aq_lower_no_memory(l);
	f->n_params = pf->n_params;
	f->n_rets = pf->n_rets;
	for (uint32_t k = 0; k < pf->n_params; k++)
		f->params[k] = formal_loc(l, &pf->params[k], pf->param_regs, k, lay);
	for (uint32_t k = 0; k < pf->n_rets; k++)
		f->rets[k] = formal_loc(l, &pf->rets[k], pf->ret_regs, k, lay);
	return true;
}

/* A parameter whose address is taken by mov lives in local memory while the function runs. */
static void find_taken(struct aq_lower *l, struct layout *lay)
{
	const struct aq_ptx_func *pf = l->pf;

	for (uint32_t n = 0; n < pf->n_insns; n++) {
		const struct aq_ptx_insn *in = &pf->insns[n];

		if (strcmp(in->name, "call") == 0)
			continue;
		for (uint8_t k = 0; k < in->n_operands; k++) {
			const struct aq_ptx_operand *op = &in->operands[k];
			bool is_ret = false;
			int formal = op->kind == AQ_PTX_OPERAND_VAR
					     ? aq_formal_index(l, op->var, &is_ret)
					     : -1;
			uint32_t *place;

			if (formal < 0)
				continue;
			place = &l->formal_local[(is_ret ? (int)pf->n_params : 0) + formal];
			if (*place != UINT32_MAX)
				continue;
			lay->local = aq_align_up(lay->local, AQ_MAX(op->var->align, 8u));
			*place = (uint32_t)lay->local;
			lay->local += aq_align_up(op->var->size, 4);
		}
	}
}

/* Where the variables of calls are mentioned: first and last instruction, and whether all is in one block. */
struct mention {
	uint32_t first, last;
	bool apart;
};

static void mention_operand(const struct aq_lower *l, const struct aq_ptx_operand *op, uint32_t n,
			    struct mention *mentions)
{
	for (uint32_t k = 0; k < op->n_sub; k++)
		mention_operand(l, &op->sub[k], n, mentions);
	if (!op->var || op->var->space != AQ_PTX_PARAM || op->var->offset >= l->pf->n_vars ||
	    l->pf->vars[op->var->offset] != op->var)
		return;
	struct mention *m = &mentions[op->var->offset];

	if (m->first == UINT32_MAX)
		m->first = n;
	else if (l->flow.block_of[m->first] != l->flow.block_of[n])
		m->apart = true;
	m->last = n;
}

/*
 * Variables that calls pass values in. A compiler opens a scope for each call, so there are many and each lives for a few instructions: those
 * whose mentions all lie in one block share their places with those of later calls.
 */
static bool layout_call_vars(struct aq_lower *l, struct layout *lay)
{
	const struct aq_ptx_func *pf = l->pf;
	struct mention *ms = malloc(((size_t)pf->n_vars + 1) * sizeof(*ms));
	uint64_t at = lay->area, end = lay->area;
	uint32_t group_first = 0, group_last = 0;

	if (!ms)
		return aq_lower_no_memory(l);
	for (uint32_t k = 0; k < pf->n_vars; k++) {
		ms[k] = (struct mention){ .first = UINT32_MAX };
		if (pf->vars[k]->space == AQ_PTX_PARAM)
			pf->vars[k]->offset = k;
	}
	for (uint32_t n = 0; n < pf->n_insns; n++)
		for (uint8_t k = 0; k < pf->insns[n].n_operands; k++)
			mention_operand(l, &pf->insns[n].operands[k], n, ms);
	for (uint32_t k = 0; k < pf->n_vars; k++) {
		if (pf->vars[k]->space != AQ_PTX_PARAM)
			continue;
		ms[k].apart |= ms[k].first == UINT32_MAX || ms[k].first < group_first;
		if (ms[k].apart)
			continue;
		if (ms[k].first > group_last) {
			at = lay->area;
			group_first = ms[k].first;
		}
		group_last = AQ_MAX(group_last, ms[k].last);
		pf->vars[k]->offset = at;
		at += aq_align_up(pf->vars[k]->size, 4);
		end = AQ_MAX(end, at);
	}
	for (uint32_t k = 0; k < pf->n_vars; k++) {
		if (pf->vars[k]->space != AQ_PTX_PARAM || !ms[k].apart)
			continue;
		pf->vars[k]->offset = end;
		end += aq_align_up(pf->vars[k]->size, 4);
	}
	lay->area = end;
	free(ms);
	return true;
}

static void layout_local_vars(struct aq_lower *l, struct layout *lay)
{
	for (uint32_t k = 0; k < l->pf->n_vars; k++) {
		struct aq_ptx_var *v = l->pf->vars[k];

		if (v->space != AQ_PTX_LOCAL)
			continue;
		lay->local = aq_align_up(lay->local, v->align ? v->align : 1);
		v->offset = lay->local;
		lay->local += v->size;
	}
}

int aq_lower_layout(struct aq_lower *l)
{
	const struct aq_ptx_func *pf = l->pf;
	struct layout lay = { 0 };
	struct aq_func *f = l->f;
	uint64_t at;

	l->formal_local = malloc(((size_t)pf->n_params + pf->n_rets + 1) * 4);
	if (!l->formal_local)
		return -ENOMEM;
	memset(l->formal_local, 0xff, ((size_t)pf->n_params + pf->n_rets + 1) * 4);
	if (!l->is_kernel) {
		if (!layout_formals(l, &lay))
			return -ENOMEM;
		find_taken(l, &lay);
	}
	if (lay.bad) {
		aq_strbuf_printf(l->log,
				 "line %u: function '%s' has parameters of unsupported types\n",
				 pf->line, pf->name);
		return -EINVAL;
	}
	if (!layout_call_vars(l, &lay))
		return -ENOMEM;
	layout_local_vars(l, &lay);
	if (lay.area > AQ_MAX_FRAME_BYTES / 32) {
		aq_strbuf_printf(l->log, "line %u: function '%s' passes too many parameters\n",
				 pf->line, pf->name);
		return -EINVAL;
	}
	if (lay.local > AQ_MAX_LOCAL_BYTES) {
		aq_strbuf_printf(l->log,
				 "line %u: function '%s' needs more than %u KiB of local memory\n",
				 pf->line, pf->name, AQ_MAX_LOCAL_BYTES / 1024);
		return -EINVAL;
	}
	f->local_bytes = (uint32_t)aq_align_up(lay.local, 16);
	at = (uint64_t)l->rows.count[AQ_ROW_64] * 256;
	l->rows32 = (uint32_t)at;
	at += (uint64_t)l->rows.count[AQ_ROW_32] * 128;
	l->scratch = (uint32_t)at;
	at += AQ_N_SCRATCH * 256 + lay.area * 32;
	l->area = l->scratch + AQ_N_SCRATCH * 256;
	l->preds = (uint32_t)at;
	at += (uint64_t)l->rows.count[AQ_ROW_PRED] * 4;
	l->scratch_preds = (uint32_t)at;
	at = aq_align_up(at + AQ_N_SCRATCH_PRED * 4, 64);
	if (at > AQ_MAX_FRAME_BYTES) {
		aq_strbuf_printf(l->log, "line %u: function '%s' has too many registers\n",
				 pf->line, pf->name);
		return -EINVAL;
	}
	f->frame_bytes = (uint32_t)at;
	f->n_regs = l->rows.count[AQ_ROW_32] + 2 * l->rows.count[AQ_ROW_64];
	for (uint32_t k = 0; !l->is_kernel && k < f->n_params + f->n_rets; k++) {
		bool is_ret = k >= f->n_params;
		struct aq_loc *loc = is_ret ? &f->rets[k - f->n_params] : &f->params[k];
		const int32_t *regs = is_ret ? pf->ret_regs : pf->param_regs;
		const struct aq_ptx_var *v = is_ret ? &pf->rets[k - f->n_params] : &pf->params[k];

		loc->row = loc->kind == AQ_LOC_AREA
				   ? l->area + (uint32_t)v->offset * 32
				   : aq_reg_row(l, regs[is_ret ? k - f->n_params : k], -1);
	}
	return 0;
}
