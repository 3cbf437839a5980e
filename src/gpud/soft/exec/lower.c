/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/exec/lower.h"

#include "base/macro.h"
#include "gpud/soft/exec/ops.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void insn_text(const struct aq_ptx_insn *in, char *buf, size_t size)
{
	size_t n = (size_t)snprintf(buf, size, "%s", in->name);

	for (uint8_t i = 0; i < in->n_mods && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, ".%s", in->mods[i]);
}

bool aq_lower_refuse(struct aq_lower *l, const char *fmt, ...)
{
	char text[160], why[160];
	va_list ap;

	l->failed = true;
	if (++*l->n_errors > AQ_MAX_ERRORS)
		return false;
	insn_text(l->in, text, sizeof(text));
	va_start(ap, fmt);
	(void)vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	aq_strbuf_printf(l->log, "line %u: instruction '%s' %s\n", l->in->line, text, why);
	return false;
}

bool aq_lower_no_memory(struct aq_lower *l)
{
	l->failed = l->no_memory = true;
	return false;
}

bool aq_has_mod(const struct aq_ptx_insn *in, const char *mod)
{
	for (uint8_t i = 0; i < in->n_mods; i++)
		if (strcmp(in->mods[i], mod) == 0)
			return true;
	return false;
}

/* Index of v in an array of n variables, or -1. */
static int index_in(const struct aq_ptx_var *v, const struct aq_ptx_var *array, uint32_t n)
{
	uintptr_t at = (uintptr_t)v - (uintptr_t)array;

	return at < n * sizeof(*v) ? (int)(at / sizeof(*v)) : -1;
}

int aq_formal_index(const struct aq_lower *l, const struct aq_ptx_var *v, bool *ret_is_ret)
{
	int k = index_in(v, l->pf->params, l->pf->n_params);

	*ret_is_ret = k < 0;
	return k >= 0 ? k : index_in(v, l->pf->rets, l->pf->n_rets);
}

struct aq_insn *aq_emit_free(struct aq_lower *l, enum aq_insn_kind kind)
{
	struct aq_insn *i;

	if (l->f->n_code == l->cap_code) {
		uint32_t cap = l->cap_code ? l->cap_code * 2 : 64;
		struct aq_insn *code = realloc(l->f->code, (size_t)cap * sizeof(*code));

		if (!code) {
			(void)aq_lower_no_memory(l);
			return NULL;
		}
		l->f->code = code;
		l->cap_code = cap;
	}
	i = &l->f->code[l->f->n_code++];
	memset(i, 0, sizeof(*i));
	i->kind = (uint8_t)kind;
	i->guard = AQ_OPERAND_IN_POOL; /* the pool begins with a predicate of ones */
	i->line = l->in ? l->in->line : l->pf->line;
	return i;
}

struct aq_insn *aq_emit(struct aq_lower *l, enum aq_insn_kind kind)
{
	struct aq_insn *i = aq_emit_free(l, kind);

	if (i) {
		i->guard = l->guard;
		i->guard_flip = l->guard_flip;
	}
	return i;
}

struct aq_insn *aq_emit_op(struct aq_lower *l, aq_op_fn fn)
{
	struct aq_insn *i = aq_emit(l, AQ_INSN_OP);

	if (i)
		i->fn.op = fn;
	return i;
}

bool aq_scratch(struct aq_lower *l, uint32_t *ret)
{
	if (l->n_scratch == AQ_N_SCRATCH)
		return aq_lower_refuse(l, "has too many operands");
	*ret = l->scratch + 256 * l->n_scratch++;
	return true;
}

bool aq_scratch_pred(struct aq_lower *l, uint32_t *ret)
{
	if (l->n_scratch_pred == AQ_N_SCRATCH_PRED)
		return aq_lower_refuse(l, "has too many operands");
	*ret = l->scratch_preds + 4 * l->n_scratch_pred++;
	return true;
}

static bool alu_sources(struct aq_lower *l, const struct aq_alu_shape *s, uint32_t *rows,
			uint64_t *imm)
{
	const struct aq_ptx_insn *in = l->in;
	unsigned n = 0;

	for (unsigned k = 0; k < (unsigned)s->n_src + s->n_opt; k++) {
		enum aq_ptx_type type = (enum aq_ptx_type)s->src[k];
		bool given = k + 1 < in->n_operands;

		if ((int)k == s->imm_src) {
			if (given && !aq_imm(l, &in->operands[k + 1], imm))
				return false;
			continue;
		}
		if (n == 4)
			return aq_lower_refuse(l, "has too many operands");
		if (given ? !aq_src(l, &in->operands[k + 1], type, s->relaxed, &rows[n])
			  : !aq_pool_value(l, aq_row_class_of(type),
					   type == AQ_PTX_PRED ? AQ_FULL_MASK : 0, &rows[n]))
			return false;
		n++;
	}
	return true;
}

static bool lower_alu(struct aq_lower *l)
{
	const struct aq_ptx_insn *in = l->in;
	struct aq_alu_shape s = { .imm_src = -1 };
	const char *why = NULL;
	aq_alu_fn fn = aq_alu_select(in, &s, &why);
	uint32_t rows[4] = { 0 }, dst2 = 0;
	uint64_t imm = 0;
	struct aq_dst d;
	struct aq_insn *i;

	if (!fn)
		return aq_lower_refuse(l, "is not supported%s%s", why ? ": " : "", why ? why : "");
	if (in->n_operands < 1u + s.n_src || in->n_operands > 1u + s.n_src + s.n_opt)
		return aq_lower_refuse(l, "has %u operands, which is the wrong number",
				       in->n_operands);
	if (!alu_sources(l, &s, rows, &imm) ||
	    !aq_dst(l, &in->operands[0], (enum aq_ptx_type)s.dst, s.relaxed, s.sink_dst, &d))
		return false;
	if (in->operands[0].has_pair) {
		if (s.dst2 == AQ_PTX_NOTYPE || in->operands[0].n_sub < 1)
			return aq_lower_refuse(l, "cannot have two destinations");
		if (!aq_dst_row(l, &in->operands[0].sub[0], (enum aq_ptx_type)s.dst2, &dst2))
			return false;
		if (dst2 == d.row)
			return aq_lower_refuse(l, "has the same destination twice");
	} else if (s.dst2 != AQ_PTX_NOTYPE &&
		   (s.dst2 == AQ_PTX_PRED ? !aq_scratch_pred(l, &dst2) : !aq_scratch(l, &dst2))) {
		return false;
	}
	i = aq_emit(l, AQ_INSN_ALU);
	if (!i)
		return false;
	i->fn.alu = fn;
	i->dst = d.row;
	i->dst2 = dst2;
	i->a = rows[0];
	i->b = rows[1];
	i->c = rows[2];
	i->d = rows[3];
	i->imm = imm;
	return aq_dst_finish(l, &d);
}

static bool set_guard(struct aq_lower *l)
{
	const struct aq_ptx_operand op = {
		.kind = AQ_PTX_OPERAND_REG,
		.reg = l->in->guard,
		.elem = -1,
	};

	l->guard = AQ_OPERAND_IN_POOL;
	l->guard_flip = 0;
	l->n_scratch = l->n_scratch_pred = 0;
	if (!l->in->has_guard)
		return true;
	l->guard_flip = l->in->guard_negated ? AQ_FULL_MASK : 0;
	return aq_src_pred(l, &op, &l->guard);
}

static const struct aq_lower_part *const parts[] = {
	aq_lower_memory_parts,
	aq_lower_control_parts,
	aq_lower_warp_parts,
};

const char *aq_lower_name(unsigned index)
{
	for (size_t k = 0; k < AQ_ARRAY_SIZE(parts); k++)
		for (const struct aq_lower_part *p = parts[k]; p->name; p++)
			if (index-- == 0)
				return p->name;
	return NULL;
}

static void lower_insn(struct aq_lower *l, const struct aq_ptx_insn *in)
{
	l->in = in;
	if (!set_guard(l) || aq_lower_mov(l) != 0)
		return;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(parts); k++)
		for (const struct aq_lower_part *p = parts[k]; p->name; p++)
			if (strcmp(in->name, p->name) == 0) {
				(void)p->lower(l);
				return;
			}
	(void)lower_alu(l);
}

uint32_t aq_target(const struct aq_lower *l, int32_t label)
{
	if (label < 0 || (uint32_t)label >= l->pf->n_labels)
		return UINT32_MAX;
	return l->flow.block_of[l->pf->labels[label].insn];
}

static bool emit_bra(struct aq_lower *l, uint32_t block)
{
	struct aq_insn *i = aq_emit_free(l, AQ_INSN_BRA);

	if (!i)
		return false;
	i->target = block;
	return true;
}

static bool emit_end(struct aq_lower *l)
{
	struct aq_insn *i;

	if (!l->is_kernel && !aq_lower_spill_formals(l, true))
		return false;
	i = aq_emit_free(l, AQ_INSN_OP);
	if (!i)
		return false;
	i->fn.op = l->is_kernel ? aq_op_exit : aq_op_ret;
	return true;
}

static bool lower_blocks(struct aq_lower *l)
{
	const struct aq_flow *fl = &l->flow;

	for (uint32_t k = 0; k < fl->n_blocks; k++) {
		uint32_t b = fl->order[k];
		const struct aq_flow_block *fb = &fl->blocks[b];

		l->block_pc[b] = l->f->n_code;
		for (uint32_t n = fb->first; n < fb->end; n++)
			lower_insn(l, &l->pf->insns[n]);
		if (l->no_memory)
			return false;
		if (aq_insn_ends(&l->pf->insns[fb->end - 1]))
			continue;
		if (b + 1 == fl->n_blocks) {
			if (!emit_end(l))
				return false;
		} else if ((k + 1 == fl->n_blocks || fl->order[k + 1] != b + 1) &&
			   !emit_bra(l, b + 1)) {
			return false;
		}
	}
	/* A label may stand behind the last instruction. */
	l->block_pc[fl->n_blocks] = l->f->n_code;
	l->n_scratch = 0;
	return emit_end(l);
}

static void patch_targets(struct aq_lower *l)
{
	for (uint32_t k = 0; k < l->f->n_code; k++)
		if (l->f->code[k].kind == AQ_INSN_BRA)
			l->f->code[k].target = l->block_pc[l->f->code[k].target];
	for (uint32_t s = 0; s < l->f->n_switches; s++)
		for (uint32_t t = 0; t < l->f->switches[s].n_targets; t++)
			l->f->switches[s].targets[t] = l->block_pc[l->f->switches[s].targets[t]];
}

static int lower_body(struct aq_lower *l)
{
	uint32_t ones;
	int r = aq_flow_init(&l->flow, l->pf);

	if (r == 0)
		r = aq_rows_init(&l->rows, l->pf, &l->flow);
	if (r == 0)
		r = aq_lower_layout(l);
	if (r < 0)
		return r;
	l->block_pc = calloc((size_t)l->flow.n_blocks + 1, sizeof(*l->block_pc));
	if (!l->block_pc || !aq_pool_value(l, AQ_ROW_PRED, AQ_FULL_MASK, &ones))
		return -ENOMEM;
	l->guard = ones;
	if (!l->is_kernel && !aq_lower_spill_formals(l, false))
		return -ENOMEM;
	(void)lower_blocks(l);
	if (l->no_memory)
		return -ENOMEM;
	if (l->failed)
		return -EINVAL;
	patch_targets(l);
	return 0;
}

int aq_lower_func(struct aq_code *code, uint32_t func, struct aq_strbuf *log, uint32_t *n_errors)
{
	struct aq_lower l = {
		.code = code,
		.f = &code->funcs[func],
		.pf = &code->ptx->funcs[func],
		.log = log,
		.n_errors = n_errors,
		.is_kernel = code->ptx->funcs[func].is_entry,
	};
	int r;

	l.f->ptx = l.pf;
	r = lower_body(&l);
	aq_flow_done(&l.flow);
	aq_rows_done(&l.rows);
	free(l.block_pc);
	free(l.keys);
	free(l.formal_local);
	return r;
}
