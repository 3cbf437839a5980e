/* SPDX-License-Identifier: Apache-2.0 */
/* Branches, calls, barriers of a block. */
#include "gpud/soft/exec/lower.h"
#include "gpud/soft/exec/ops.h"

#include "base/macro.h"

#include <stdlib.h>

static bool only_mods(struct aq_lower *l, const char *const *known, size_t n)
{
	for (uint8_t k = 0; k < l->in->n_mods; k++) {
		bool ok = false;

		for (size_t j = 0; j < n && !ok; j++)
			ok = strcmp(l->in->mods[k], known[j]) == 0;
		if (!ok)
			return aq_lower_refuse(l, "is not supported: modifier .%s", l->in->mods[k]);
	}
	return true;
}

static bool lower_bra(struct aq_lower *l)
{
	static const char *const known[] = { "uni" };
	const struct aq_ptx_insn *in = l->in;
	struct aq_insn *i;

	if (!only_mods(l, known, AQ_ARRAY_SIZE(known)))
		return false;
	if (in->n_operands != 1 || in->operands[0].kind != AQ_PTX_OPERAND_LABEL ||
	    aq_target(l, in->operands[0].label) == UINT32_MAX)
		return aq_lower_refuse(l, "wants a label");
	i = aq_emit(l, AQ_INSN_BRA);
	if (!i)
		return false;
	i->target = aq_target(l, in->operands[0].label);
	return true;
}

static bool lower_brx(struct aq_lower *l)
{
	static const char *const known[] = { "idx", "uni" };
	const struct aq_ptx_insn *in = l->in;
	struct aq_func *f = l->f;
	const struct aq_ptx_label *table;
	struct aq_switch *sw;
	struct aq_insn *i;
	uint32_t a;

	if (!only_mods(l, known, AQ_ARRAY_SIZE(known)))
		return false;
	if (in->n_operands != 2 || in->operands[1].kind != AQ_PTX_OPERAND_LABEL ||
	    in->operands[1].label < 0 || (uint32_t)in->operands[1].label >= l->pf->n_labels)
		return aq_lower_refuse(l, "wants an index and a table of targets");
	table = &l->pf->labels[in->operands[1].label];
	if (table->n_targets == 0)
		return aq_lower_refuse(l, "has a table without targets");
	if (!aq_src(l, &in->operands[0], AQ_PTX_U32, false, &a))
		return false;
	if (f->n_switches == l->cap_switches) {
		uint32_t cap = l->cap_switches ? l->cap_switches * 2 : 8;

		sw = realloc(f->switches, cap * sizeof(*sw));
		if (!sw)
			return aq_lower_no_memory(l);
		f->switches = sw;
		l->cap_switches = cap;
	}
	sw = &f->switches[f->n_switches];
	*sw = (struct aq_switch){ .targets = calloc(table->n_targets, sizeof(uint32_t)) };
	if (!sw->targets)
		return aq_lower_no_memory(l);
	f->n_switches++;
	for (uint32_t t = 0; t < table->n_targets; t++) {
		uint32_t to = aq_target(l, table->targets[t]);

		if (to == UINT32_MAX)
			return aq_lower_refuse(l, "has a table with something that is no label");
		sw->targets[sw->n_targets++] = to;
	}
	i = aq_emit_op(l, aq_op_brx);
	if (!i)
		return false;
	i->a = a;
	i->more = f->n_switches - 1;
	return true;
}

/* Where an argument or a result of a call is, on the caller's side. */
static bool call_loc(struct aq_lower *l, const struct aq_ptx_operand *op, bool is_result,
		     unsigned formal_size, struct aq_loc *ret)
{
	enum aq_ptx_type type = aq_reg_type(l, op);
	struct aq_dst d;
	bool is_ret;

	*ret = (struct aq_loc){ .kind = AQ_LOC_AREA };
	if ((op->kind == AQ_PTX_OPERAND_VAR) && op->var->space == AQ_PTX_PARAM && op->addend == 0) {
		if (l->is_kernel && aq_formal_index(l, op->var, &is_ret) >= 0)
			return aq_lower_refuse(l, "passes %s, a parameter of the kernel",
					       op->var->name);
		ret->row = l->area + (uint32_t)op->var->offset * 32;
		ret->bytes = (uint32_t)op->var->size;
		return true;
	}
	if (type == AQ_PTX_NOTYPE) /* a constant, or _ */
		type = formal_size == 8 ? AQ_PTX_B64 : AQ_PTX_B32;
	ret->kind = aq_row_class_of(type) == AQ_ROW_64 ? AQ_LOC_REG64 : AQ_LOC_REG32;
	ret->bytes = aq_ptx_type_size(type);
	if (ret->bytes == 0)
		return aq_lower_refuse(l, "passes a predicate");
	if (!is_result)
		return aq_src(l, op, type, false, &ret->row);
	if (!aq_dst(l, op, type, false, true, &d))
		return false;
	ret->row = d.row;
	return true;
}

/* Bytes of parameter k of a known callee; 0 when there is none. */
static unsigned formal_size(const struct aq_ptx_func *callee, uint32_t k, bool is_ret)
{
	const int32_t *regs;

	if (!callee || k >= (is_ret ? callee->n_rets : callee->n_params))
		return 0;
	regs = is_ret ? callee->ret_regs : callee->param_regs;
	if (regs && regs[k] >= 0 && (uint32_t)regs[k] < callee->n_regs)
		return aq_ptx_type_size(callee->regs[regs[k]].type);
	return (unsigned)(is_ret ? callee->rets : callee->params)[k].size;
}

static bool call_list(struct aq_lower *l, const struct aq_ptx_operand *list, bool is_result,
		      const struct aq_ptx_func *callee, struct aq_loc **ret, uint32_t *ret_n)
{
	uint32_t n = list ? list->n_sub : 0;

	*ret = calloc((size_t)n + 1, sizeof(**ret));
	if (!*ret)
		return aq_lower_no_memory(l);
	*ret_n = n;
	for (uint32_t k = 0; k < n; k++) {
		unsigned size = formal_size(callee, k, is_result);

		if (!call_loc(l, &list->sub[k], is_result, size, &(*ret)[k]))
			return false;
		if (callee && (size + 3) / 4 != ((*ret)[k].bytes + 3) / 4)
			return aq_lower_refuse(
				l, "has a value of %u bytes where function %s has one of %u",
				(*ret)[k].bytes, callee->name, size);
	}
	return true;
}

static struct aq_call *new_call(struct aq_lower *l)
{
	struct aq_func *f = l->f;

	if (f->n_calls == l->cap_calls) {
		uint32_t cap = l->cap_calls ? l->cap_calls * 2 : 8;
		struct aq_call *c = realloc(f->calls, cap * sizeof(*c));

		if (!c) {
			(void)aq_lower_no_memory(l);
			return NULL;
		}
		f->calls = c;
		l->cap_calls = cap;
	}
	f->calls[f->n_calls] = (struct aq_call){ .func = -1 };
	return &f->calls[f->n_calls++];
}

static bool check_callee(struct aq_lower *l, int32_t func, uint32_t n_args, uint32_t n_rets)
{
	const struct aq_ptx_func *callee = &l->code->ptx->funcs[func];

	if (callee->is_entry)
		return aq_lower_refuse(l, "calls kernel %s", callee->name);
	if (!callee->has_body)
		return aq_lower_refuse(l, "refers to unresolved extern function '%s'",
				       callee->name);
	if (callee->n_params != n_args || callee->n_rets != n_rets)
		return aq_lower_refuse(l,
				       "passes %u values and takes %u; function %s has %u and %u",
				       n_args, n_rets, callee->name, callee->n_params,
				       callee->n_rets);
	return true;
}

/* call{.uni} {(rets),} target {, (args)} {, prototype or list of targets} */
static bool lower_call(struct aq_lower *l)
{
	static const char *const known[] = { "uni" };
	const struct aq_ptx_insn *in = l->in;
	const struct aq_ptx_operand *rets = NULL, *args = NULL, *target;
	const struct aq_ptx_func *callee = NULL;
	struct aq_call *c;
	struct aq_insn *i;
	uint32_t a = 0, index;
	unsigned k = 0;
	bool is64 = true;

	if (!only_mods(l, known, AQ_ARRAY_SIZE(known)))
		return false;
	if (k < in->n_operands && in->operands[k].kind == AQ_PTX_OPERAND_LIST)
		rets = &in->operands[k++];
	if (k == in->n_operands)
		return aq_lower_refuse(l, "wants a function");
	target = &in->operands[k++];
	if (k < in->n_operands && in->operands[k].kind == AQ_PTX_OPERAND_LIST)
		args = &in->operands[k++];
	if (k < in->n_operands && in->operands[k].kind == AQ_PTX_OPERAND_LABEL)
		k++;
	if (k != in->n_operands)
		return aq_lower_refuse(l, "has operands that are not understood");
	c = new_call(l);
	if (!c)
		return false;
	index = l->f->n_calls - 1;
	if (target->kind == AQ_PTX_OPERAND_FUNC) {
		callee = &l->code->ptx->funcs[target->func];
		if (!check_callee(l, target->func, args ? args->n_sub : 0, rets ? rets->n_sub : 0))
			return false;
		c->func = target->func;
	} else if (!aq_src_any(l, target, &a, &is64)) {
		return false;
	}
	if (!call_list(l, args, false, callee, &c->args, &c->n_args) ||
	    !call_list(l, rets, true, callee, &c->rets, &c->n_rets))
		return false;
	i = aq_emit_op(l, aq_op_call);
	if (!i)
		return false;
	i->a = a;
	i->more = index;
	i->size = is64 ? 8 : 4;
	return true;
}

static bool lower_end(struct aq_lower *l, aq_op_fn fn)
{
	struct aq_insn *i;

	if (l->in->n_operands != 0 || (l->in->n_mods && !aq_has_mod(l->in, "uni")))
		return aq_lower_refuse(l, "is not supported in this form");
	if (fn == aq_op_ret) {
		if (l->is_kernel)
			fn = aq_op_exit;
		else if (!aq_lower_spill_formals(l, true))
			return false;
	}
	i = aq_emit_op(l, fn);
	return i != NULL;
}

/*
 * bar{.cta}.sync a{, b}; .arrive a, b; .red.op d, a{, b}, {!}c; barrier likewise. bar.warp.sync is a warp's.
 */
static bool lower_bar(struct aq_lower *l)
{
	static const char *const known[] = {
		"cta", "sync", "arrive", "red", "aligned", "popc", "and", "or", "u32", "pred",
	};
	const struct aq_ptx_insn *in = l->in;
	enum aq_bar op = AQ_BAR_SYNC;
	bool red = aq_has_mod(in, "red"), arrive = aq_has_mod(in, "arrive");
	unsigned k = 0, n = in->n_operands;
	uint32_t a, b, c = 0, dst = 0;
	struct aq_insn *i;

	if (!only_mods(l, known, AQ_ARRAY_SIZE(known)))
		return false;
	if (red + arrive + aq_has_mod(in, "sync") != 1)
		return aq_lower_refuse(l, "is not supported");
	if (red)
		op = aq_has_mod(in, "popc")  ? AQ_BAR_POPC
		     : aq_has_mod(in, "and") ? AQ_BAR_AND
					     : AQ_BAR_OR;
	else if (arrive)
		op = AQ_BAR_ARRIVE;
	if (n < (red ? 3u : arrive ? 2u : 1u) || n > (red ? 4u : 2u))
		return aq_lower_refuse(l, "has %u operands, which is the wrong number", n);
	if (red &&
	    !aq_dst_row(l, &in->operands[k++], op == AQ_BAR_POPC ? AQ_PTX_U32 : AQ_PTX_PRED, &dst))
		return false;
	if (!aq_src(l, &in->operands[k++], AQ_PTX_U32, false, &a))
		return false;
	if (n - k > (red ? 1u : 0u)) {
		if (!aq_src(l, &in->operands[k++], AQ_PTX_U32, false, &b))
			return false;
	} else if (!aq_pool_value(l, AQ_ROW_32, 0, &b)) {
		return false;
	}
	if (red && !aq_src_pred(l, &in->operands[k], &c))
		return false;
	i = aq_emit_op(l, aq_op_bar);
	if (!i)
		return false;
	i->a = a;
	i->b = b;
	i->c = c;
	i->dst = dst;
	i->size = (uint8_t)op;
	return true;
}

static bool lower_warp_bar(struct aq_lower *l)
{
	static const char *const known[] = { "warp", "sync" };
	uint32_t d;
	struct aq_insn *i;

	if (!only_mods(l, known, AQ_ARRAY_SIZE(known)))
		return false;
	if (l->in->n_operands != 1)
		return aq_lower_refuse(l, "wants a mask of lanes");
	if (!aq_src(l, &l->in->operands[0], AQ_PTX_B32, false, &d) ||
	    !(i = aq_emit_op(l, aq_op_warp_bar)))
		return false;
	i->d = d;
	return true;
}

static bool lower_nanosleep(struct aq_lower *l)
{
	static const char *const known[] = { "u32" };
	uint32_t a;
	struct aq_insn *i;

	if (!only_mods(l, known, AQ_ARRAY_SIZE(known)))
		return false;
	if (l->in->n_operands != 1)
		return aq_lower_refuse(l, "wants a time");
	if (!aq_src(l, &l->in->operands[0], AQ_PTX_U32, false, &a) ||
	    !(i = aq_emit_op(l, aq_op_nanosleep)))
		return false;
	i->a = a;
	return true;
}

static bool lower_ret(struct aq_lower *l)
{
	return lower_end(l, aq_op_ret);
}

static bool lower_exit(struct aq_lower *l)
{
	return lower_end(l, aq_op_exit);
}

static bool lower_trap(struct aq_lower *l)
{
	return lower_end(l, aq_op_trap);
}

static bool lower_barrier(struct aq_lower *l)
{
	return aq_has_mod(l->in, "warp") ? lower_warp_bar(l) : lower_bar(l);
}

/* No grid starts before another ends; there are no counters. */
static bool lower_nothing(struct aq_lower *l)
{
	return aq_emit_op(l, aq_op_nop) != NULL;
}

const struct aq_lower_part aq_lower_control_parts[] = {
	{ "bra", lower_bra },
	{ "brx", lower_brx },
	{ "call", lower_call },
	{ "ret", lower_ret },
	{ "exit", lower_exit },
	{ "trap", lower_trap },
	{ "brkpt", lower_trap },
	{ "bar", lower_barrier },
	{ "barrier", lower_bar },
	{ "nanosleep", lower_nanosleep },
	{ "griddepcontrol", lower_nothing },
	{ "pmevent", lower_nothing },
	{ 0 },
};
