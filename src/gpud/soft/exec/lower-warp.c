/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions between the lanes of a warp. Those with .sync end in a mask of the lanes that take part. */
#include "gpud/soft/exec/lower.h"
#include "gpud/soft/exec/ops.h"

#include "base/macro.h"

static int find(const struct aq_ptx_insn *in, const char *const *names, unsigned n)
{
	for (unsigned k = 0; k < n; k++)
		if (aq_has_mod(in, names[k]))
			return (int)k;
	return -1;
}

/* All modifiers are .sync, .<op>, .<type>: as many as there should be and of no other name. */
static bool check_mods(struct aq_lower *l, bool sync, const char *op, const char *type)
{
	unsigned n = 0;

	for (uint8_t k = 0; k < l->in->n_mods; k++) {
		const char *m = l->in->mods[k];

		if ((!sync || strcmp(m, "sync") != 0) && (!op || strcmp(m, op) != 0) &&
		    (!type || strcmp(m, type) != 0))
			return aq_lower_refuse(l, "is not supported: modifier .%s", m);
		n++;
	}
	if (n != (unsigned)sync + (op != NULL) + (type != NULL))
		return aq_lower_refuse(l, "is not supported");
	return true;
}

static bool want_operands(struct aq_lower *l, unsigned n)
{
	if (l->in->n_operands != n)
		return aq_lower_refuse(l, "has %u operands, which is the wrong number",
				       l->in->n_operands);
	return true;
}

static bool finish(struct aq_lower *l, aq_op_fn fn, bool sync, struct aq_insn **ret)
{
	const struct aq_ptx_insn *in = l->in;
	uint32_t d = 0;

	if (sync && !aq_src(l, &in->operands[in->n_operands - 1], AQ_PTX_B32, false, &d))
		return false;
	*ret = aq_emit_op(l, fn);
	if (!*ret)
		return false;
	(*ret)->d = d;
	(*ret)->imm = sync ? 0 : 1;
	return true;
}

/* The second destination, behind |: its row, or a scratch predicate. */
static bool second_pred(struct aq_lower *l, uint32_t *ret)
{
	const struct aq_ptx_operand *op = &l->in->operands[0];

	if (op->has_pair && op->n_sub > 0)
		return aq_dst_row(l, &op->sub[0], AQ_PTX_PRED, ret);
	return aq_scratch_pred(l, ret);
}

static bool no_pair(struct aq_lower *l)
{
	return l->in->operands[0].has_pair ? aq_lower_refuse(l, "cannot have two destinations")
					   : true;
}

static bool lower_vote(struct aq_lower *l)
{
	static const char *const ops[] = { "all", "any", "uni", "ballot" };
	bool sync = aq_has_mod(l->in, "sync");
	int op = find(l->in, ops, AQ_ARRAY_SIZE(ops));
	bool ballot = op == AQ_VOTE_BALLOT;
	uint32_t dst, a;
	struct aq_insn *i;

	if (op < 0)
		return aq_lower_refuse(l, "is not supported");
	if (!check_mods(l, sync, ops[op], ballot ? "b32" : "pred") ||
	    !want_operands(l, 2u + sync) || !no_pair(l) ||
	    !aq_src_pred(l, &l->in->operands[1], &a) ||
	    !aq_dst_row(l, &l->in->operands[0], ballot ? AQ_PTX_B32 : AQ_PTX_PRED, &dst) ||
	    !finish(l, aq_op_vote, sync, &i))
		return false;
	i->a = a;
	i->dst = dst;
	i->size = (uint8_t)op;
	return true;
}

static bool lower_shfl(struct aq_lower *l)
{
	static const char *const ops[] = { "up", "down", "bfly", "idx" };
	bool sync = aq_has_mod(l->in, "sync");
	int op = find(l->in, ops, AQ_ARRAY_SIZE(ops));
	uint32_t dst, dst2, rows[3];
	struct aq_insn *i;

	if (op < 0)
		return aq_lower_refuse(l, "is not supported");
	if (!check_mods(l, sync, ops[op], "b32") || !want_operands(l, 4u + sync))
		return false;
	for (int k = 0; k < 3; k++)
		if (!aq_src(l, &l->in->operands[k + 1], AQ_PTX_B32, false, &rows[k]))
			return false;
	if (!aq_dst_row(l, &l->in->operands[0], AQ_PTX_B32, &dst) || !second_pred(l, &dst2) ||
	    !finish(l, aq_op_shfl, sync, &i))
		return false;
	i->dst = dst;
	i->dst2 = dst2;
	i->a = rows[0];
	i->b = rows[1];
	i->c = rows[2];
	i->size = (uint8_t)op;
	return true;
}

static bool lower_match(struct aq_lower *l)
{
	bool all = aq_has_mod(l->in, "all"), wide = aq_has_mod(l->in, "b64");
	uint32_t dst, dst2 = 0, a;
	struct aq_insn *i;

	if (!check_mods(l, true, all ? "all" : "any", wide ? "b64" : "b32") ||
	    !want_operands(l, 3) || (!all && !no_pair(l)) ||
	    !aq_src(l, &l->in->operands[1], wide ? AQ_PTX_B64 : AQ_PTX_B32, false, &a) ||
	    !aq_dst_row(l, &l->in->operands[0], AQ_PTX_B32, &dst) ||
	    (all && !second_pred(l, &dst2)) ||
	    !finish(l, all ? aq_op_match_all : aq_op_match_any, true, &i))
		return false;
	i->a = a;
	i->dst = dst;
	i->dst2 = dst2;
	i->size = wide ? 8 : 4;
	return true;
}

static bool lower_redux(struct aq_lower *l)
{
	static const char *const ops[] = { "and", "or", "xor", "add", "min", "max" };
	static const uint8_t op_unsigned[] = { AQ_ATOM_AND, AQ_ATOM_OR,	 AQ_ATOM_XOR,
					       AQ_ATOM_ADD, AQ_ATOM_MIN, AQ_ATOM_MAX };
	static const uint8_t op_signed[] = { 0, 0, 0, AQ_ATOM_ADD, AQ_ATOM_MINS, AQ_ATOM_MAXS };
	int op = find(l->in, ops, AQ_ARRAY_SIZE(ops));
	bool is_signed = aq_has_mod(l->in, "s32");
	uint32_t dst, a;
	struct aq_insn *i;

	if (op < 0)
		return aq_lower_refuse(l, "is not supported");
	if (!check_mods(l, true, ops[op],
			op < 3	    ? "b32"
			: is_signed ? "s32"
				    : "u32") ||
	    !want_operands(l, 3) || !no_pair(l) ||
	    !aq_src(l, &l->in->operands[1], AQ_PTX_B32, false, &a) ||
	    !aq_dst_row(l, &l->in->operands[0], AQ_PTX_B32, &dst) ||
	    !finish(l, aq_op_redux, true, &i))
		return false;
	i->a = a;
	i->dst = dst;
	i->size = is_signed && op >= 3 ? op_signed[op] : op_unsigned[op];
	return true;
}

static bool lower_activemask(struct aq_lower *l)
{
	uint32_t dst;
	struct aq_insn *i;

	if (!check_mods(l, false, NULL, "b32") || !want_operands(l, 1) || !no_pair(l) ||
	    !aq_dst_row(l, &l->in->operands[0], AQ_PTX_B32, &dst) ||
	    !finish(l, aq_op_activemask, false, &i))
		return false;
	i->dst = dst;
	return true;
}

/* elect.sync d|p, membermask */
static bool lower_elect(struct aq_lower *l)
{
	uint32_t dst, dst2;
	struct aq_insn *i;

	if (!check_mods(l, true, NULL, NULL) || !want_operands(l, 2) ||
	    !aq_dst_row(l, &l->in->operands[0], AQ_PTX_B32, &dst) || !second_pred(l, &dst2) ||
	    !finish(l, aq_op_elect, true, &i))
		return false;
	i->dst = dst;
	i->dst2 = dst2;
	return true;
}

const struct aq_lower_part aq_lower_warp_parts[] = {
	{ "vote", lower_vote },
	{ "shfl", lower_shfl },
	{ "match", lower_match },
	{ "redux", lower_redux },
	{ "activemask", lower_activemask },
	{ "elect", lower_elect },
	{ 0 },
};
