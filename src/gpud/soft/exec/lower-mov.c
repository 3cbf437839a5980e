/* SPDX-License-Identifier: Apache-2.0 */
/* The forms of mov that are not plain arithmetic: vectors packed and unpacked, special registers. */
#include "gpud/soft/exec/lower.h"
#include "gpud/soft/exec/ops.h"

static enum aq_ptx_type bits_type(unsigned size)
{
	switch (size) {
	case 1:
		return AQ_PTX_B8;
	case 2:
		return AQ_PTX_B16;
	case 4:
		return AQ_PTX_B32;
	default:
		return AQ_PTX_B64;
	}
}

/* Size of the elements of `vector` if together they make up `type`, else 0. */
static unsigned element_size(struct aq_lower *l, const struct aq_ptx_operand *vector,
			     enum aq_ptx_type type)
{
	unsigned whole = aq_ptx_type_size(type), size;

	if (vector->n_sub != 2 && vector->n_sub != 4) {
		(void)aq_lower_refuse(l, "has a vector of %u elements", vector->n_sub);
		return 0;
	}
	size = whole / vector->n_sub;
	if ((whole != 4 && whole != 8) || size == 0) {
		(void)aq_lower_refuse(l, "is not supported: vectors of .%s",
				      aq_ptx_type_name(type));
		return 0;
	}
	return size;
}

static bool pack(struct aq_lower *l, enum aq_ptx_type type)
{
	const struct aq_ptx_operand *dst = &l->in->operands[0], *src = &l->in->operands[1];
	unsigned size = element_size(l, src, type);
	uint32_t rows[4] = { 0 }, d;
	struct aq_insn *i;

	if (size == 0)
		return false;
	for (uint32_t k = 0; k < src->n_sub; k++)
		if (!aq_src(l, &src->sub[k], bits_type(size), false, &rows[k]))
			return false;
	if (!aq_dst_row(l, dst, type, &d) || !(i = aq_emit(l, AQ_INSN_ALU)))
		return false;
	i->fn.alu = aq_alu_pack;
	i->dst = d;
	i->a = rows[0];
	i->b = rows[1];
	i->c = rows[2];
	i->d = rows[3];
	i->vec = (uint8_t)src->n_sub;
	i->size = (uint8_t)size;
	i->more = aq_ptx_type_size(type) == 8 ? AQ_MEM_WIDE : 0;
	return true;
}

static bool unpack(struct aq_lower *l, enum aq_ptx_type type)
{
	const struct aq_ptx_operand *dst = &l->in->operands[0], *src = &l->in->operands[1];
	unsigned size = element_size(l, dst, type);
	uint32_t rows[4] = { 0 }, a;
	struct aq_insn *i;

	if (size == 0 || !aq_src(l, src, type, false, &a))
		return false;
	for (uint32_t k = 0; k < dst->n_sub; k++)
		if (!aq_dst_row(l, &dst->sub[k], bits_type(size), &rows[k]))
			return false;
	for (uint32_t k = 1; k < dst->n_sub; k++)
		for (uint32_t j = 0; j < k; j++)
			if (rows[k] == rows[j])
				return aq_lower_refuse(l, "has the same destination twice");
	i = aq_emit(l, AQ_INSN_ALU);
	if (!i)
		return false;
	i->fn.alu = aq_alu_unpack;
	i->a = a;
	i->dst = rows[0];
	i->dst2 = rows[1];
	i->c = rows[2];
	i->d = rows[3];
	i->vec = (uint8_t)dst->n_sub;
	i->size = (uint8_t)size;
	i->more = aq_ptx_type_size(type) == 8 ? AQ_MEM_WIDE : 0;
	return true;
}

static bool special(struct aq_lower *l, enum aq_ptx_type type)
{
	const struct aq_ptx_operand *src = &l->in->operands[1];
	enum aq_ptx_type have;
	unsigned id = aq_special_find(src->name, src->elem, &have);
	struct aq_insn *i;
	uint32_t d;

	if (id == 0)
		return aq_lower_refuse(l, "uses special register %%%s, which is not supported",
				       src->name);
	if (!aq_dst_row(l, &l->in->operands[0], type, &d) || !(i = aq_emit_op(l, aq_op_special)))
		return false;
	i->dst = d;
	i->imm = id;
	return true;
}

int aq_lower_mov(struct aq_lower *l)
{
	const struct aq_ptx_insn *in = l->in;
	enum aq_ptx_type type, have;

	if (strcmp(in->name, "mov") != 0 || in->n_mods != 1 || in->n_operands != 2)
		return 0;
	type = aq_ptx_type_parse(in->mods[0]);
	if (type == AQ_PTX_NOTYPE || type == AQ_PTX_PRED)
		return 0;
	if (in->operands[0].kind == AQ_PTX_OPERAND_VECTOR)
		return unpack(l, type) ? 1 : -1;
	if (in->operands[1].kind == AQ_PTX_OPERAND_VECTOR)
		return pack(l, type) ? 1 : -1;
	/* A narrower destination takes the general way, through a scratch row. */
	if (in->operands[1].kind == AQ_PTX_OPERAND_SPECIAL &&
	    (!aq_special_find(in->operands[1].name, in->operands[1].elem, &have) ||
	     aq_ptx_type_size(have) == aq_ptx_type_size(type)))
		return special(l, type) ? 1 : -1;
	return 0;
}
