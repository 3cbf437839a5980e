/* SPDX-License-Identifier: Apache-2.0 */
/* From operands of the text to rows. */
#include "gpud/soft/exec/lower.h"

#include "gpud/soft/exec/ops.h"

uint32_t aq_reg_row(const struct aq_lower *l, int32_t reg, int8_t elem)
{
	uint32_t v = l->rows.first[reg] + (uint32_t)(elem > 0 ? elem : 0), n = l->rows.row[v];

	switch (l->rows.class[v]) {
	case AQ_ROW_64:
		return l->rows64 + n * 256;
	case AQ_ROW_32:
		return l->rows32 + n * 128;
	default:
		return l->preds + n * 4;
	}
}

enum aq_ptx_type aq_reg_type(const struct aq_lower *l, const struct aq_ptx_operand *op)
{
	if (op->kind != AQ_PTX_OPERAND_REG || op->reg < 0 || (uint32_t)op->reg >= l->pf->n_regs)
		return AQ_PTX_NOTYPE;
	return l->pf->regs[op->reg].type;
}

/* A register that one value fits in: not a whole vector, of a type that rows can hold. */
static bool check_reg(struct aq_lower *l, const struct aq_ptx_operand *op)
{
	const struct aq_ptx_reg *r;

	if (op->reg < 0 || (uint32_t)op->reg >= l->pf->n_regs)
		return aq_lower_refuse(l, "names a register that does not exist");
	r = &l->pf->regs[op->reg];
	if ((r->vec > 1) != (op->elem >= 0) || op->elem >= r->vec)
		return aq_lower_refuse(l, "cannot take register %s as a scalar", r->name);
	if (aq_row_class_of(r->type) == AQ_ROW_BAD)
		return aq_lower_refuse(l, "uses register %s of unsupported type .%s", r->name,
				       aq_ptx_type_name(r->type));
	return true;
}

static bool imm_bits(struct aq_lower *l, const struct aq_ptx_operand *op, enum aq_ptx_type type,
		     uint64_t *ret)
{
	unsigned size = aq_ptx_type_size(type);
	bool to32 = type == AQ_PTX_F32 || (op->imm_kind != AQ_PTX_IMM_INT && size == 4);
	bool to64 = type == AQ_PTX_F64 || (op->imm_kind != AQ_PTX_IMM_INT && size == 8);
	double d;
	float s;

	if (!to32 && !to64) {
		if (op->imm_kind != AQ_PTX_IMM_INT)
			return aq_lower_refuse(l,
					       "has a floating-point constant where .%s is wanted",
					       aq_ptx_type_name(type));
		*ret = size < 8 ? op->imm & ((1ULL << (size * 8)) - 1) : op->imm;
		return true;
	}
	if (op->imm_kind == AQ_PTX_IMM_F32) {
		uint32_t bits = (uint32_t)op->imm;

		if (to32) { /* bit for bit: a signalling NaN stays one */
			*ret = bits;
			return true;
		}
		memcpy(&s, &bits, 4);
		d = (double)s;
	} else if (op->imm_kind == AQ_PTX_IMM_F64) {
		memcpy(&d, &op->imm, 8);
	} else if (to32) {
		s = (float)(int64_t)op->imm;
		*ret = 0;
		memcpy(ret, &s, 4);
		return true;
	} else {
		d = (double)(int64_t)op->imm;
	}
	if (to32) {
		s = (float)d;
		*ret = 0;
		memcpy(ret, &s, 4);
	} else {
		memcpy(ret, &d, 8);
	}
	return true;
}

bool aq_imm(struct aq_lower *l, const struct aq_ptx_operand *op, uint64_t *ret)
{
	if (op->kind != AQ_PTX_OPERAND_IMM || op->imm_kind != AQ_PTX_IMM_INT)
		return aq_lower_refuse(l, "wants an integer constant");
	*ret = op->imm;
	return true;
}

/* The address of a variable in its own space, or of a function, as a row of `class`. */
static bool src_address(struct aq_lower *l, const struct aq_ptx_operand *op,
			enum aq_row_class class, uint32_t *ret)
{
	const struct aq_ptx_var *v = op->var;
	struct aq_insn *i;
	bool is_ret;
	int formal;

	if (op->kind == AQ_PTX_OPERAND_FUNC && !l->code->ptx->funcs[op->func].has_body)
		return aq_lower_refuse(l, "refers to unresolved extern function '%s'",
				       l->code->ptx->funcs[op->func].name);
	if (op->kind == AQ_PTX_OPERAND_FUNC)
		return aq_pool_value(l, class, AQ_WINDOW_BASE(AQ_WINDOW_FUNC) | (uint32_t)op->func,
				     ret);
	switch (v->space) {
	case AQ_PTX_GLOBAL:
	case AQ_PTX_CONST:
		return aq_pool_symbol(l, class, (uint32_t)v->offset, op->addend, ret);
	case AQ_PTX_SHARED:
		if (!v->is_extern || l->is_kernel)
			return aq_pool_value(l, class, v->offset + (uint64_t)op->addend, ret);
		break;
	case AQ_PTX_PARAM:
		if (l->is_kernel)
			return aq_pool_value(l, class, v->offset + (uint64_t)op->addend, ret);
		break;
	case AQ_PTX_LOCAL:
		break;
	case AQ_PTX_GENERIC:
	case AQ_PTX_REG:
	default:
		return aq_lower_refuse(l, "cannot take the address of %s", v->name);
	}
	if (!aq_scratch(l, ret) || !(i = aq_emit_free(l, AQ_INSN_OP)))
		return false;
	i->dst = *ret;
	i->size = class == AQ_ROW_64 ? 8 : 4;
	i->imm = (v->space == AQ_PTX_LOCAL ? v->offset : 0) + (uint64_t)op->addend;
	i->fn.op = v->space == AQ_PTX_SHARED ? aq_op_dynamic_address : aq_op_local_address;
	if (v->space != AQ_PTX_PARAM)
		return true;
	formal = aq_formal_index(l, v, &is_ret);
	if (formal < 0)
		return aq_lower_refuse(l, "cannot take the address of parameter %s of a call",
				       v->name);
	i->imm = l->formal_local[(is_ret ? (int)l->pf->n_params : 0) + formal] +
		 (uint64_t)op->addend;
	return true;
}

/* The low half of a row of 64 bits. */
static bool truncate_row(struct aq_lower *l, uint32_t from, uint32_t *ret)
{
	struct aq_insn *i;

	if (!aq_scratch(l, ret) || !(i = aq_emit_free(l, AQ_INSN_ALU)))
		return false;
	i->fn.alu = aq_alu_low_half;
	i->dst = *ret;
	i->a = from;
	return true;
}

static bool src_special(struct aq_lower *l, const struct aq_ptx_operand *op,
			enum aq_ptx_type *ret_type, uint32_t *ret)
{
	unsigned id = aq_special_find(op->name, op->elem, ret_type);
	struct aq_insn *i;

	if (id == 0)
		return aq_lower_refuse(l, "uses special register %%%s, which is not supported",
				       op->name);
	if (!aq_scratch(l, ret) || !(i = aq_emit_free(l, AQ_INSN_OP)))
		return false;
	i->fn.op = aq_op_special;
	i->dst = *ret;
	i->imm = id;
	return true;
}

bool aq_src(struct aq_lower *l, const struct aq_ptx_operand *op, enum aq_ptx_type type,
	    bool relaxed, uint32_t *ret)
{
	enum aq_row_class class = aq_row_class_of(type);
	enum aq_ptx_type have;
	uint64_t bits = 0;

	if (class == AQ_ROW_PRED)
		return aq_src_pred(l, op, ret);
	if (class == AQ_ROW_BAD)
		return aq_lower_refuse(l, "has operands of unsupported type .%s",
				       aq_ptx_type_name(type));
	switch (op->kind) {
	case AQ_PTX_OPERAND_IMM:
		return imm_bits(l, op, type, &bits) && aq_pool_value(l, class, bits, ret);
	case AQ_PTX_OPERAND_VAR:
	case AQ_PTX_OPERAND_FUNC:
		if (aq_ptx_type_size(type) < 4)
			return aq_lower_refuse(l, "has no room for an address");
		return src_address(l, op, class, ret);
	case AQ_PTX_OPERAND_SPECIAL:
		if (!src_special(l, op, &have, ret))
			return false;
		relaxed = true;
		break;
	case AQ_PTX_OPERAND_REG:
		if (!check_reg(l, op))
			return false;
		if (op->negated)
			return aq_lower_refuse(l, "cannot negate a register");
		have = aq_reg_type(l, op);
		*ret = aq_reg_row(l, op->reg, op->elem);
		break;
	case AQ_PTX_OPERAND_NONE:
	case AQ_PTX_OPERAND_LABEL:
	case AQ_PTX_OPERAND_ADDR:
	case AQ_PTX_OPERAND_VECTOR:
	case AQ_PTX_OPERAND_SINK:
	case AQ_PTX_OPERAND_LIST:
	case AQ_PTX_OPERAND_TEXADDR:
	default:
		return aq_lower_refuse(l, "has an operand of the wrong kind");
	}
	if (have == AQ_PTX_PRED || aq_ptx_type_size(have) < aq_ptx_type_size(type) ||
	    (!relaxed && aq_ptx_type_size(have) != aq_ptx_type_size(type)))
		return aq_lower_refuse(l, "has an operand of type .%s where .%s is wanted",
				       aq_ptx_type_name(have), aq_ptx_type_name(type));
	if (class == AQ_ROW_32 && aq_row_class_of(have) == AQ_ROW_64)
		return truncate_row(l, *ret, ret);
	return true;
}

bool aq_src_any(struct aq_lower *l, const struct aq_ptx_operand *op, uint32_t *ret, bool *ret_is64)
{
	enum aq_ptx_type type = aq_reg_type(l, op);

	*ret_is64 = type == AQ_PTX_NOTYPE || aq_ptx_type_size(type) == 8;
	if (type != AQ_PTX_NOTYPE && aq_ptx_type_size(type) < 4)
		return aq_lower_refuse(l, "has an address in a register of type .%s",
				       aq_ptx_type_name(type));
	return aq_src(l, op, *ret_is64 ? AQ_PTX_B64 : AQ_PTX_B32, false, ret);
}

bool aq_src_pred(struct aq_lower *l, const struct aq_ptx_operand *op, uint32_t *ret)
{
	uint32_t row;
	struct aq_insn *i;

	if (op->kind == AQ_PTX_OPERAND_IMM && op->imm_kind == AQ_PTX_IMM_INT)
		return aq_pool_value(l, AQ_ROW_PRED,
				     (op->imm != 0) != op->negated ? AQ_FULL_MASK : 0, ret);
	if (op->kind != AQ_PTX_OPERAND_REG)
		return aq_lower_refuse(
			l, "has an operand of the wrong kind where a predicate is wanted");
	if (!check_reg(l, op))
		return false;
	if (aq_reg_type(l, op) != AQ_PTX_PRED)
		return aq_lower_refuse(l, "has an operand of type .%s where .pred is wanted",
				       aq_ptx_type_name(aq_reg_type(l, op)));
	row = aq_reg_row(l, op->reg, op->elem);
	if (op->negated) {
		uint32_t scratch = 0;

		if (!aq_scratch_pred(l, &scratch) || !(i = aq_emit_free(l, AQ_INSN_ALU)))
			return false;
		i->fn.alu = aq_alu_not_pred;
		i->dst = scratch;
		i->a = row;
		row = scratch;
	}
	*ret = row;
	return true;
}

bool aq_dst(struct aq_lower *l, const struct aq_ptx_operand *op, enum aq_ptx_type type,
	    bool relaxed, bool may_sink, struct aq_dst *ret)
{
	enum aq_row_class class = aq_row_class_of(type);

	*ret = (struct aq_dst){ .type = type, .reg_type = type };
	if (class == AQ_ROW_BAD)
		return aq_lower_refuse(l, "has a result of unsupported type .%s",
				       aq_ptx_type_name(type));
	if (op->kind == AQ_PTX_OPERAND_SINK) {
		if (!may_sink)
			return aq_lower_refuse(l, "cannot have _ as its destination");
		return class == AQ_ROW_PRED ? aq_scratch_pred(l, &ret->row)
					    : aq_scratch(l, &ret->row);
	}
	if (op->kind != AQ_PTX_OPERAND_REG || op->negated)
		return aq_lower_refuse(l, "wants a register as its destination");
	if (!check_reg(l, op))
		return false;
	ret->reg_type = aq_reg_type(l, op);
	ret->row = ret->reg_row = aq_reg_row(l, op->reg, op->elem);
	unsigned have = aq_ptx_type_size(ret->reg_type), want = aq_ptx_type_size(type);
	bool pred = class == AQ_ROW_PRED;

	if (pred != (ret->reg_type == AQ_PTX_PRED) || have < want || (have > want && !relaxed))
		return aq_lower_refuse(l, "has a destination of type .%s where .%s is wanted",
				       aq_ptx_type_name(ret->reg_type), aq_ptx_type_name(type));
	if (class == AQ_ROW_32 && aq_row_class_of(ret->reg_type) == AQ_ROW_64)
		return aq_scratch(l, &ret->row);
	return true;
}

bool aq_dst_finish(struct aq_lower *l, const struct aq_dst *d)
{
	bool is_signed = d->type == AQ_PTX_S8 || d->type == AQ_PTX_S16 || d->type == AQ_PTX_S32;
	unsigned want = aq_ptx_type_size(d->type), have = aq_ptx_type_size(d->reg_type);
	struct aq_insn *i;

	if (d->type == AQ_PTX_PRED || have <= want)
		return true;
	i = aq_emit(l, AQ_INSN_ALU);
	if (!i)
		return false;
	i->fn.alu = aq_alu_extend;
	i->dst = d->reg_row;
	i->a = d->row;
	i->size = (uint8_t)want;
	i->more = (is_signed ? AQ_MEM_SIGNED : 0) |
		  (aq_row_class_of(d->reg_type) == AQ_ROW_64 ? AQ_MEM_WIDE : 0);
	return true;
}

bool aq_dst_row(struct aq_lower *l, const struct aq_ptx_operand *op, enum aq_ptx_type type,
		uint32_t *ret)
{
	struct aq_dst d;

	if (!aq_dst(l, op, type, false, true, &d))
		return false;
	*ret = d.row;
	return true;
}
