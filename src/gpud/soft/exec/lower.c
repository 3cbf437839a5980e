/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/exec/lower.h"

#include "base/macro.h"
#include "gpud/soft/exec/ops.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_POOL_BYTES (256ULL * 1024 * 1024)

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

int aq_formal_index(const struct aq_lower *l, const struct aq_ptx_var *v, bool *ret_is_ret)
{
	if (v >= l->pf->params && v < l->pf->params + l->pf->n_params) {
		*ret_is_ret = false;
		return (int)(v - l->pf->params);
	}
	if (v >= l->pf->rets && v < l->pf->rets + l->pf->n_rets) {
		*ret_is_ret = true;
		return (int)(v - l->pf->rets);
	}
	return -1;
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

/* Room for `bytes` at the end of the pool, 64-byte aligned and zero. */
static bool pool_grow(struct aq_lower *l, uint32_t bytes, uint32_t *ret)
{
	struct aq_func *f = l->f;

	bytes = (uint32_t)aq_align_up(bytes, 64);
	if (l->code->pool_bytes + bytes > MAX_POOL_BYTES)
		return aq_lower_refuse(l, "brings one constant too many");
	if (f->pool_bytes + bytes > l->cap_pool) {
		uint32_t cap = l->cap_pool ? l->cap_pool * 2 : 4096;
		uint8_t *pool = aligned_alloc(64, cap);

		if (!pool)
			return aq_lower_no_memory(l);
		if (f->pool_bytes)
			memcpy(pool, f->pool, f->pool_bytes);
		memset(pool + f->pool_bytes, 0, cap - f->pool_bytes);
		free(f->pool);
		f->pool = pool;
		l->cap_pool = cap;
	}
	*ret = f->pool_bytes;
	f->pool_bytes += bytes;
	l->code->pool_bytes += bytes;
	return true;
}

static uint32_t key_hash(const struct aq_pool_key *k)
{
	uint64_t h =
		(k->value ^ ((uint64_t)k->symbol_plus1 << 32) ^ k->class) * 0x9e3779b97f4a7c15ULL;

	return (uint32_t)(h >> 32);
}

static bool keys_grow(struct aq_lower *l)
{
	uint32_t cap = l->cap_keys ? l->cap_keys * 2 : 256;
	struct aq_pool_key *keys = calloc(cap, sizeof(*keys));

	if (!keys)
		return aq_lower_no_memory(l);
	for (uint32_t i = 0; i < l->cap_keys; i++) {
		uint32_t h;

		if (l->keys[i].class == AQ_ROW_NONE)
			continue;
		for (h = key_hash(&l->keys[i]) & (cap - 1); keys[h].class; h = (h + 1) & (cap - 1))
			;
		keys[h] = l->keys[i];
	}
	free(l->keys);
	l->keys = keys;
	l->cap_keys = cap;
	return true;
}

/* The place of `key`, made if it is new. */
static bool pool_find(struct aq_lower *l, struct aq_pool_key *key, bool *ret_is_new)
{
	uint32_t h;

	if (l->n_keys * 2 >= l->cap_keys && !keys_grow(l))
		return false;
	for (h = key_hash(key) & (l->cap_keys - 1); l->keys[h].class;
	     h = (h + 1) & (l->cap_keys - 1)) {
		const struct aq_pool_key *k = &l->keys[h];

		if (k->value == key->value && k->symbol_plus1 == key->symbol_plus1 &&
		    k->class == key->class) {
			key->offset = k->offset;
			*ret_is_new = false;
			return true;
		}
	}
	if (!pool_grow(l,
		       key->class == AQ_ROW_64	 ? 256
		       : key->class == AQ_ROW_32 ? 128
						 : 64,
		       &key->offset))
		return false;
	l->keys[h] = *key;
	l->n_keys++;
	*ret_is_new = true;
	return true;
}

bool aq_pool_value(struct aq_lower *l, enum aq_row_class class, uint64_t value, uint32_t *ret)
{
	struct aq_pool_key key = { .value = value, .class = (uint8_t) class };
	bool is_new;

	if (class != AQ_ROW_64)
		key.value = (uint32_t)value;
	if (!pool_find(l, &key, &is_new))
		return false;
	*ret = key.offset | AQ_OPERAND_IN_POOL;
	if (!is_new)
		return true;
	if (class == AQ_ROW_64)
		for (int k = 0; k < AQ_LANES; k++)
			memcpy(l->f->pool + key.offset + 8 * k, &key.value, 8);
	else
		for (int k = 0; k < (class == AQ_ROW_32 ? AQ_LANES : 1); k++)
			memcpy(l->f->pool + key.offset + 4 * k, &value, 4);
	return true;
}

bool aq_pool_symbol(struct aq_lower *l, enum aq_row_class class, uint32_t symbol, int64_t addend,
		    uint32_t *ret)
{
	struct aq_pool_key key = {
		.value = (uint64_t)addend,
		.symbol_plus1 = symbol + 1,
		.class = (uint8_t) class,
	};
	struct aq_func *f = l->f;
	bool is_new;

	if (!pool_find(l, &key, &is_new))
		return false;
	*ret = key.offset | AQ_OPERAND_IN_POOL;
	if (!is_new)
		return true;
	if (f->n_patches == l->cap_patches) {
		uint32_t cap = l->cap_patches ? l->cap_patches * 2 : 16;
		struct aq_patch *p = realloc(f->patches, cap * sizeof(*p));

		if (!p)
			return aq_lower_no_memory(l);
		f->patches = p;
		l->cap_patches = cap;
	}
	f->patches[f->n_patches++] = (struct aq_patch){
		.offset = key.offset,
		.symbol = symbol,
		.addend = addend,
		.wide = class == AQ_ROW_64,
	};
	return true;
}

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

static void lower_insn(struct aq_lower *l, const struct aq_ptx_insn *in)
{
	static int (*const parts[])(struct aq_lower *) = {
		aq_lower_mov,
		aq_lower_memory,
		aq_lower_control,
		aq_lower_warp,
	};

	l->in = in;
	if (!set_guard(l))
		return;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(parts); k++)
		if (parts[k](l) != 0)
			return;
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

/* Places in a thread's local memory and in the area of parameters. */
struct layout {
	uint64_t local, area;
};

static struct aq_loc formal_loc(struct aq_lower *l, struct aq_ptx_var *v, const int32_t *regs,
				uint32_t k, struct layout *lay)
{
	struct aq_loc loc = { .bytes = (uint32_t)v->size, .kind = AQ_LOC_AREA };

	if (regs && regs[k] >= 0 && (uint32_t)regs[k] < l->pf->n_regs) {
		enum aq_ptx_type type = l->pf->regs[regs[k]].type;

		loc.kind = aq_row_class_of(type) == AQ_ROW_64 ? AQ_LOC_REG64 : AQ_LOC_REG32;
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

static int layout(struct aq_lower *l)
{
	const struct aq_ptx_func *pf = l->pf;
	struct layout lay = { 0, 0 };
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

static int lower_body(struct aq_lower *l)
{
	uint32_t ones;
	int r = aq_flow_init(&l->flow, l->pf);

	if (r == 0)
		r = aq_rows_init(&l->rows, l->pf, &l->flow);
	if (r == 0)
		r = layout(l);
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
