/* SPDX-License-Identifier: Apache-2.0 */
/* Loads, stores, atomics and what else names an address. */
#include "gpud/soft/exec/lower.h"
#include "gpud/soft/exec/ops.h"

#include "base/macro.h"

#include <stdlib.h>

/* What the modifiers of a memory instruction say. */
struct access {
	enum aq_ptx_space space;
	enum aq_ptx_type type;
	uint8_t vec;
	uint32_t flags;
	int op; /* enum aq_atom, or -1 */
	bool fp16;
	bool cache_hint; /* a further operand, the policy, follows */
};

static bool starts(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

static bool mod_space(const char *m, enum aq_ptx_space *ret)
{
	static const struct {
		const char *name;
		enum aq_ptx_space space;
	} spaces[] = {
		{ "global", AQ_PTX_GLOBAL },	  { "const", AQ_PTX_CONST },
		{ "const[0]", AQ_PTX_CONST },	  { "shared", AQ_PTX_SHARED },
		{ "shared::cta", AQ_PTX_SHARED }, { "local", AQ_PTX_LOCAL },
		{ "param", AQ_PTX_PARAM },	  { "param::entry", AQ_PTX_PARAM },
		{ "param::func", AQ_PTX_PARAM },
	};

	for (size_t k = 0; k < AQ_ARRAY_SIZE(spaces); k++)
		if (strcmp(m, spaces[k].name) == 0) {
			*ret = spaces[k].space;
			return true;
		}
	return false;
}

/* Ordering, scope, caching: what they ask for is either given by the machine or of no effect on results. */
static bool mod_order(const char *m, struct access *a)
{
	static const char *const harmless[] = {
		"weak", "cta", "cluster", "gpu", "sys", "ca",	   "cg",    "cs",
		"lu",	"cv",  "nc",	  "wb",	 "wt",	"unified", "noftz",
	};

	for (size_t k = 0; k < AQ_ARRAY_SIZE(harmless); k++)
		if (strcmp(m, harmless[k]) == 0)
			return true;
	if (strcmp(m, "L2::cache_hint") == 0)
		return a->cache_hint = true;
	if (starts(m, "L1::") || starts(m, "L2::"))
		return true;
	if (strcmp(m, "volatile") == 0 || strcmp(m, "relaxed") == 0 || strcmp(m, "mmio") == 0)
		a->flags |= AQ_MEM_STRONG;
	else if (strcmp(m, "acquire") == 0)
		a->flags |= AQ_MEM_STRONG | AQ_MEM_ACQUIRE;
	else if (strcmp(m, "release") == 0)
		a->flags |= AQ_MEM_STRONG | AQ_MEM_RELEASE;
	else if (strcmp(m, "acq_rel") == 0)
		a->flags |= AQ_MEM_STRONG | AQ_MEM_ACQUIRE | AQ_MEM_RELEASE;
	else
		return false;
	return true;
}

static int atom_op(const char *m)
{
	static const struct {
		const char *name;
		int op;
	} ops[] = {
		{ "and", AQ_ATOM_AND },	  { "or", AQ_ATOM_OR },	  { "xor", AQ_ATOM_XOR },
		{ "exch", AQ_ATOM_EXCH }, { "add", AQ_ATOM_ADD }, { "inc", AQ_ATOM_INC },
		{ "dec", AQ_ATOM_DEC },	  { "min", AQ_ATOM_MIN }, { "max", AQ_ATOM_MAX },
		{ "cas", AQ_ATOM_CAS },
	};

	for (size_t k = 0; k < AQ_ARRAY_SIZE(ops); k++)
		if (strcmp(m, ops[k].name) == 0)
			return ops[k].op;
	return -1;
}

static bool parse_access(struct aq_lower *l, bool atomic, struct access *a)
{
	*a = (struct access){ .vec = 1, .op = -1 };
	for (uint8_t k = 0; k < l->in->n_mods; k++) {
		const char *m = l->in->mods[k];
		enum aq_ptx_type type = aq_ptx_type_parse(m);

		if (mod_space(m, &a->space) || mod_order(m, a))
			continue;
		if (atomic && a->op < 0 && (a->op = atom_op(m)) >= 0)
			continue;
		if (!atomic && strcmp(m, "v2") == 0)
			a->vec = 2;
		else if (!atomic && strcmp(m, "v4") == 0)
			a->vec = 4;
		else if (type != AQ_PTX_NOTYPE && a->type == AQ_PTX_NOTYPE)
			a->type = type;
		else
			return aq_lower_refuse(l, "is not supported: modifier .%s", m);
	}
	if (a->type == AQ_PTX_NOTYPE || aq_row_class_of(a->type) == AQ_ROW_BAD ||
	    a->type == AQ_PTX_PRED || aq_ptx_type_size(a->type) * a->vec > 16)
		return aq_lower_refuse(l, "is not supported for its type");
	return true;
}

/* Put base row, its width and the offset of an address operand into *i's fields (a, imm, more). */
struct address {
	uint32_t row;
	uint64_t imm;
	bool is32;
};

static bool lower_address(struct aq_lower *l, const struct aq_ptx_operand *op,
			  enum aq_ptx_space space, struct address *ret)
{
	const struct aq_ptx_operand var = {
		.kind = AQ_PTX_OPERAND_VAR, .elem = -1, .reg = -1, .var = op->var
	};
	const struct aq_ptx_operand reg = { .kind = AQ_PTX_OPERAND_REG,
					    .elem = op->elem,
					    .reg = op->reg };
	bool is64 = true;

	*ret = (struct address){ .imm = (uint64_t)op->addend };
	if (op->kind != AQ_PTX_OPERAND_ADDR)
		return aq_lower_refuse(l, "wants an address in brackets");
	if (op->var) {
		bool global = op->var->space == AQ_PTX_GLOBAL || op->var->space == AQ_PTX_CONST;

		if (space == AQ_PTX_GENERIC ? !global : op->var->space != space)
			return aq_lower_refuse(l, "names %s, which is in another state space",
					       op->var->name);
		return aq_src(l, &var, AQ_PTX_B64, false, &ret->row);
	}
	if (op->reg < 0)
		return aq_pool_value(l, AQ_ROW_64, 0, &ret->row);
	if (!aq_src_any(l, &reg, &ret->row, &is64))
		return false;
	ret->is32 = !is64;
	return true;
}

/* Rows of a vector operand, or of the one register; `type` is that of an element in memory. All must be of one width. */
static bool data_rows(struct aq_lower *l, const struct aq_ptx_operand *op, const struct access *a,
		      bool is_dst, uint32_t *rows, bool *ret_wide)
{
	struct aq_ptx_operand elems[4];
	const struct aq_ptx_operand *list = op;
	int wide = -1;

	if (op->kind == AQ_PTX_OPERAND_VECTOR) {
		if (op->n_sub != a->vec)
			return aq_lower_refuse(l, "has a vector of %u elements", op->n_sub);
		list = op->sub;
	} else if (op->kind == AQ_PTX_OPERAND_REG && op->elem < 0 && op->reg >= 0 &&
		   (uint32_t)op->reg < l->pf->n_regs && l->pf->regs[op->reg].vec > 1) {
		if (l->pf->regs[op->reg].vec != a->vec)
			return aq_lower_refuse(l, "has a vector of %u elements",
					       l->pf->regs[op->reg].vec);
		for (int8_t k = 0; k < a->vec; k++) {
			elems[k] = *op;
			elems[k].elem = k;
		}
		list = elems;
	} else if (a->vec > 1) {
		return aq_lower_refuse(l, "wants a vector");
	}
	for (unsigned k = 0; k < a->vec; k++) {
		enum aq_ptx_type type = aq_reg_type(l, &list[k]);
		bool is_wide;

		if (type == AQ_PTX_NOTYPE) {
			/* Constants and _ adapt to the others. */
			if (wide < 0 && k + 1 < a->vec)
				for (unsigned j = k + 1; j < a->vec && type == AQ_PTX_NOTYPE; j++)
					type = aq_reg_type(l, &list[j]);
			if (wide >= 0)
				type = wide ? AQ_PTX_B64 : AQ_PTX_B32;
			if (type == AQ_PTX_NOTYPE)
				type = aq_row_class_of(a->type) == AQ_ROW_64 ? AQ_PTX_B64 : a->type;
		}
		is_wide = aq_row_class_of(type) == AQ_ROW_64;
		if (wide >= 0 && wide != is_wide)
			return aq_lower_refuse(l, "has registers of different widths in a vector");
		wide = is_wide;
		if (aq_ptx_type_size(type) < aq_ptx_type_size(a->type))
			return aq_lower_refuse(l, "has a register of type .%s, too narrow for .%s",
					       aq_ptx_type_name(type), aq_ptx_type_name(a->type));
		if (list[k].kind == AQ_PTX_OPERAND_IMM && !is_wide)
			type = a->type;
		if (is_dst ? !aq_dst_row(l, &list[k], type, &rows[k])
			   : !aq_src(l, &list[k], type, false, &rows[k]))
			return false;
	}
	for (unsigned k = 0; is_dst && k < a->vec; k++)
		for (unsigned j = 0; j < k; j++)
			if (rows[k] == rows[j])
				return aq_lower_refuse(l, "has the same destination twice");
	*ret_wide = wide > 0;
	return true;
}

static bool is_signed(enum aq_ptx_type t)
{
	return t == AQ_PTX_S8 || t == AQ_PTX_S16 || t == AQ_PTX_S32 || t == AQ_PTX_S64;
}

static void fill_access(struct aq_insn *i, const struct access *a, const struct address *at,
			bool wide)
{
	i->a = at->row;
	i->imm = at->imm;
	i->size = (uint8_t)aq_ptx_type_size(a->type);
	i->vec = a->vec;
	i->space = (uint8_t)a->space;
	i->more = a->flags | (at->is32 ? AQ_MEM_ADDR32 : 0) | (wide ? AQ_MEM_WIDE : 0) |
		  (is_signed(a->type) ? AQ_MEM_SIGNED : 0);
}

/* A parameter of this function or of one of its calls, named: words in the frame, or in local memory if its address is taken. */
static bool named_param(struct aq_lower *l, const struct aq_ptx_operand *op, struct access *a,
			bool is_store)
{
	const struct aq_ptx_var *v = op->var;
	uint32_t rows[4] = { 0 }, local = UINT32_MAX, end;
	const struct aq_ptx_operand *data = &l->in->operands[is_store ? 1 : 0];
	bool wide, is_ret = false;
	int formal = aq_formal_index(l, v, &is_ret);
	struct aq_insn *i;

	end = aq_ptx_type_size(a->type) * a->vec;
	if (v->space != AQ_PTX_PARAM)
		return aq_lower_refuse(l, "names %s, which is in another state space", v->name);
	if (op->addend < 0 || (uint64_t)op->addend + end > v->size)
		return aq_lower_refuse(l, "reaches beyond parameter %s", v->name);
	if (op->addend % aq_ptx_type_size(a->type))
		return aq_lower_refuse(l, "is misaligned in parameter %s", v->name);
	if (!data_rows(l, data, a, !is_store, rows, &wide))
		return false;
	if (formal >= 0)
		local = l->formal_local[(is_ret ? (int)l->pf->n_params : 0) + formal];
	i = aq_emit(l, AQ_INSN_OP);
	if (!i)
		return false;
	if (is_store) {
		i->b = rows[0];
		i->c = rows[1];
		i->d = rows[2];
		i->dst = rows[3];
	} else {
		i->dst = rows[0];
		i->dst2 = rows[1];
		i->c = rows[2];
		i->d = rows[3];
	}
	fill_access(i, a, &(struct address){ .imm = (uint64_t)op->addend }, wide);
	i->fn.op = is_store ? aq_op_store_area : aq_op_load_area;
	if (local != UINT32_MAX)
		i->imm += local;
	else
		i->imm += v->offset;
	/* The area's first row, or 0 for this activation's local memory. */
	i->target = local != UINT32_MAX ? 0 : l->area;
	return true;
}

static bool lower_ldst(struct aq_lower *l, bool is_store)
{
	const struct aq_ptx_insn *in = l->in;
	const struct aq_ptx_operand *at_op, *data;
	struct access a;
	struct address at;
	uint32_t rows[4] = { 0 };
	bool wide;
	struct aq_insn *i;

	if (!parse_access(l, false, &a))
		return false;
	if (in->n_operands != 2u + a.cache_hint)
		return aq_lower_refuse(l, "has %u operands, which is the wrong number",
				       in->n_operands);
	at_op = &in->operands[is_store ? 0 : 1];
	data = &in->operands[is_store ? 1 : 0];
	if (a.space == AQ_PTX_PARAM && !l->is_kernel) {
		if (at_op->kind == AQ_PTX_OPERAND_ADDR && at_op->var)
			return named_param(l, at_op, &a, is_store);
		/* mov gave the address of a parameter in local memory */
		a.space = AQ_PTX_LOCAL;
	} else if (a.space == AQ_PTX_PARAM && at_op->var) {
		bool is_ret;

		if (aq_formal_index(l, at_op->var, &is_ret) < 0)
			return named_param(l, at_op, &a, is_store);
	}
	if (is_store && (a.space == AQ_PTX_CONST || a.space == AQ_PTX_PARAM))
		return aq_lower_refuse(l, "writes to read-only memory");
	if (!lower_address(l, at_op, a.space, &at) ||
	    !data_rows(l, data, &a, !is_store, rows, &wide) || !(i = aq_emit(l, AQ_INSN_OP)))
		return false;
	fill_access(i, &a, &at, wide);
	if (is_store) {
		i->b = rows[0];
		i->c = rows[1];
		i->d = rows[2];
		i->dst = rows[3];
		i->fn.op = aq_store_select(a.space, i->size, wide);
	} else {
		i->dst = rows[0];
		i->dst2 = rows[1];
		i->c = rows[2];
		i->d = rows[3];
		i->fn.op = aq_load_select(a.space, i->size, is_signed(a.type), wide);
	}
	return true;
}

static bool atom_type(struct aq_lower *l, struct access *a)
{
	unsigned size = aq_ptx_type_size(a->type);
	bool sign = is_signed(a->type), is_float = a->type == AQ_PTX_F32 || a->type == AQ_PTX_F64;
	bool plain = a->type == AQ_PTX_U32 || a->type == AQ_PTX_U64 || a->type == AQ_PTX_S32 ||
		     a->type == AQ_PTX_S64;
	bool bits = a->type == AQ_PTX_B32 || a->type == AQ_PTX_B64;

	switch (a->op) {
	case AQ_ATOM_CAS:
		bits |= a->type == AQ_PTX_B16;
		__attribute__((fallthrough));
	case AQ_ATOM_EXCH:
	case AQ_ATOM_AND:
	case AQ_ATOM_OR:
	case AQ_ATOM_XOR:
		if (bits || plain) /* early compilers wrote .u32 */
			return true;
		break;
	case AQ_ATOM_ADD:
		if (is_float)
			a->op = AQ_ATOM_FADD;
		if (is_float || plain)
			return true;
		break;
	case AQ_ATOM_INC:
	case AQ_ATOM_DEC:
		if (a->type == AQ_PTX_U32)
			return true;
		break;
	case AQ_ATOM_MIN:
	case AQ_ATOM_MAX:
		if (plain && sign)
			a->op = a->op == AQ_ATOM_MIN ? AQ_ATOM_MINS : AQ_ATOM_MAXS;
		if (plain)
			return true;
		break;
	default:
		break;
	}
	return aq_lower_refuse(l, "is not supported for .%s (%u bytes)", aq_ptx_type_name(a->type),
			       size);
}

static bool lower_atom(struct aq_lower *l, bool is_red)
{
	const struct aq_ptx_insn *in = l->in;
	const struct aq_ptx_operand *ops = in->operands + (is_red ? 0 : 1);
	struct access a;
	struct address at;
	uint32_t b, c = 0, dst = 0;
	unsigned n;
	struct aq_insn *i;

	if (!parse_access(l, true, &a) || (a.op >= 0 && !atom_type(l, &a)))
		return false;
	n = (is_red ? 2 : 3) + (a.op == AQ_ATOM_CAS) + a.cache_hint;
	if (a.op < 0 || (is_red && (a.op == AQ_ATOM_CAS || a.op == AQ_ATOM_EXCH)))
		return aq_lower_refuse(l, "is not supported");
	if (in->n_operands != n)
		return aq_lower_refuse(l, "has %u operands, which is the wrong number",
				       in->n_operands);
	if (a.space != AQ_PTX_GENERIC && a.space != AQ_PTX_GLOBAL && a.space != AQ_PTX_SHARED)
		return aq_lower_refuse(l, "is not supported in its state space");
	if (!lower_address(l, &ops[0], a.space, &at) || !aq_src(l, &ops[1], a.type, false, &b) ||
	    (a.op == AQ_ATOM_CAS && !aq_src(l, &ops[2], a.type, false, &c)) ||
	    (!is_red && !aq_dst_row(l, &in->operands[0], a.type, &dst)) ||
	    !(i = aq_emit_op(l, aq_op_atom)))
		return false;
	fill_access(i, &a, &at, aq_ptx_type_size(a.type) == 8);
	i->b = b;
	i->c = c;
	i->dst = dst;
	i->vec = (uint8_t)a.op;
	if (is_red)
		i->more |= AQ_MEM_NO_RESULT;
	return true;
}

static uint32_t window_of(enum aq_ptx_space space)
{
	switch (space) {
	case AQ_PTX_SHARED:
		return AQ_WINDOW_SHARED;
	case AQ_PTX_LOCAL:
		return AQ_WINDOW_LOCAL;
	case AQ_PTX_PARAM:
		return AQ_WINDOW_PARAM;
	case AQ_PTX_GENERIC:
	case AQ_PTX_REG:
	case AQ_PTX_GLOBAL:
	case AQ_PTX_CONST:
	default:
		return 0;
	}
}

/* cvta{.to}.space.size d, a: a may also be a variable's name, with an addend. */
static bool lower_cvta(struct aq_lower *l)
{
	const struct aq_ptx_insn *in = l->in;
	enum aq_ptx_space space = AQ_PTX_GENERIC;
	bool to = false, is64 = true, ok = in->n_operands == 2;
	unsigned size = 0;
	uint32_t a, d;
	struct aq_insn *i;

	for (uint8_t k = 0; k < in->n_mods; k++) {
		if (strcmp(in->mods[k], "to") == 0)
			to = true;
		else if (strcmp(in->mods[k], "u64") == 0)
			size = 8;
		else if (strcmp(in->mods[k], "u32") == 0)
			size = 4;
		else
			ok &= mod_space(in->mods[k], &space);
	}
	if (!ok || space == AQ_PTX_GENERIC || size == 0)
		return aq_lower_refuse(l, "is not supported");
	if (size == 4)
		return aq_lower_refuse(l, "is not supported: generic addresses have 64 bits");
	/* A device function's own parameters were moved to local memory when their address was taken. */
	if (space == AQ_PTX_PARAM && !l->is_kernel)
		space = AQ_PTX_LOCAL;
	if (!aq_src_any(l, &in->operands[1], &a, &is64) ||
	    !aq_dst_row(l, &in->operands[0], AQ_PTX_B64, &d) || !(i = aq_emit_op(l, aq_op_cvta)))
		return false;
	i->a = a;
	i->dst = d;
	i->imm = window_of(space);
	i->size = to;
	i->more = is64 ? 0 : AQ_MEM_ADDR32;
	return true;
}

static bool lower_isspacep(struct aq_lower *l)
{
	const struct aq_ptx_insn *in = l->in;
	enum aq_ptx_space space;
	uint32_t a, d;
	bool is64;
	struct aq_insn *i;

	if (in->n_mods != 1 || in->n_operands != 2 || !mod_space(in->mods[0], &space))
		return aq_lower_refuse(l, "is not supported");
	if (!aq_src_any(l, &in->operands[1], &a, &is64) ||
	    !aq_dst_row(l, &in->operands[0], AQ_PTX_PRED, &d) ||
	    !(i = aq_emit_op(l, aq_op_isspacep)))
		return false;
	i->a = a;
	i->dst = d;
	i->space = (uint8_t)space;
	i->more = is64 ? 0 : AQ_MEM_ADDR32;
	return true;
}

/* Fences name an order and a scope, or (membar) a level; all are full fences here. */
static bool lower_fence(struct aq_lower *l)
{
	static const char *const known[] = {
		"cta",	   "gl",	  "sys",	   "cluster",	    "gpu",   "sc",
		"acq_rel", "acquire",	  "release",	   "proxy",	    "alias", "async",
		"global",  "shared::cta", "mbarrier_init", "sync_restrict",
	};

	for (uint8_t k = 0; k < l->in->n_mods; k++) {
		bool ok = starts(l->in->mods[k], "async");

		for (size_t n = 0; n < AQ_ARRAY_SIZE(known) && !ok; n++)
			ok = strcmp(l->in->mods[k], known[n]) == 0;
		if (!ok)
			return aq_lower_refuse(l, "is not supported: modifier .%s", l->in->mods[k]);
	}
	if (l->in->n_operands != 0)
		return aq_lower_refuse(l, "is not supported with operands");
	return aq_emit_op(l, aq_op_fence) != NULL;
}

/* Hints that change no result: an address that cannot be reached is not looked at. */
static bool lower_hint(struct aq_lower *l)
{
	for (uint8_t k = 0; k < l->in->n_mods; k++) {
		enum aq_ptx_space space;

		if (!mod_space(l->in->mods[k], &space) && !starts(l->in->mods[k], "L1") &&
		    !starts(l->in->mods[k], "L2") && strcmp(l->in->mods[k], "tensormap") != 0)
			return aq_lower_refuse(l, "is not supported: modifier .%s", l->in->mods[k]);
	}
	return true;
}

bool aq_lower_spill_formals(struct aq_lower *l, bool rets)
{
	const struct aq_func *f = l->f;
	uint32_t n = rets ? f->n_rets : f->n_params;

	for (uint32_t k = 0; k < n; k++) {
		uint32_t local = l->formal_local[(rets ? f->n_params : 0) + k];
		const struct aq_loc *loc = rets ? &f->rets[k] : &f->params[k];

		if (local == UINT32_MAX || loc->kind != AQ_LOC_AREA)
			continue;
		for (uint32_t word = 0; word < (loc->bytes + 3) / 4; word++) {
			uint32_t area = (loc->row - l->area) / 32 + word * 4;
			struct aq_insn *ld = aq_emit(l, AQ_INSN_OP), *st;

			if (!ld)
				return false;
			ld->fn.op = aq_op_load_area;
			ld->dst = l->scratch;
			ld->imm = rets ? local + word * 4 : area;
			ld->target = rets ? 0 : l->area;
			ld->size = 4;
			ld->vec = 1;
			st = aq_emit(l, AQ_INSN_OP);
			if (!st)
				return false;
			st->fn.op = aq_op_store_area;
			st->b = l->scratch;
			st->imm = rets ? area : local + word * 4;
			st->target = rets ? l->area : 0;
			st->size = 4;
			st->vec = 1;
		}
	}
	return true;
}

/*
 * cp.async.{ca,cg}.shared.global [to], [from], size{, bytes that there are}: done at once, so that its groups have nothing to wait for.
 */
static bool lower_copy_async(struct aq_lower *l)
{
	static const char *const known[] = {
		"async", "ca", "cg", "shared", "shared::cta", "global"
	};
	const struct aq_ptx_insn *in = l->in;
	bool hint = aq_has_mod(in, "L2::cache_hint");
	unsigned n = in->n_operands - hint;
	struct address to, from;
	uint64_t size = 0;
	uint32_t have;
	struct aq_insn *i;

	if (aq_has_mod(in, "commit_group") || aq_has_mod(in, "wait_group") ||
	    aq_has_mod(in, "wait_all"))
		return in->n_mods == 2 ? aq_emit_op(l, aq_op_nop) != NULL
				       : aq_lower_refuse(l, "is not supported");
	for (uint8_t k = 0; k < in->n_mods; k++) {
		bool ok = starts(in->mods[k], "L2::");

		for (size_t j = 0; j < AQ_ARRAY_SIZE(known) && !ok; j++)
			ok = strcmp(in->mods[k], known[j]) == 0;
		if (!ok)
			return aq_lower_refuse(l, "is not supported: modifier .%s", in->mods[k]);
	}
	if (!aq_has_mod(in, "async") || in->n_operands < 3u + hint || n > 4)
		return aq_lower_refuse(l, "is not supported");
	if (!aq_imm(l, &in->operands[2], &size))
		return false;
	if (size != 4 && size != 8 && size != 16)
		return aq_lower_refuse(l, "cannot copy %llu bytes", (unsigned long long)size);
	if (n == 4 && aq_reg_type(l, &in->operands[3]) == AQ_PTX_PRED)
		return aq_lower_refuse(l, "is not supported with a predicate");
	if (!lower_address(l, &in->operands[0], AQ_PTX_SHARED, &to) ||
	    !lower_address(l, &in->operands[1], AQ_PTX_GLOBAL, &from) ||
	    (n == 4 ? !aq_src(l, &in->operands[3], AQ_PTX_U32, false, &have)
		    : !aq_pool_value(l, AQ_ROW_32, size, &have)))
		return false;
	if (from.is32 || (int64_t)from.imm != (int32_t)from.imm)
		return aq_lower_refuse(l, "is not supported with this address");
	i = aq_emit_op(l, aq_op_copy_async);
	if (!i)
		return false;
	i->a = to.row;
	i->imm = to.imm;
	i->more = to.is32 ? AQ_MEM_ADDR32 : 0;
	i->b = from.row;
	i->target = (uint32_t)from.imm;
	i->c = have;
	i->size = (uint8_t)size;
	return true;
}

static bool lower_ld(struct aq_lower *l)
{
	return lower_ldst(l, false);
}

static bool lower_st(struct aq_lower *l)
{
	return lower_ldst(l, true);
}

static bool lower_atom_result(struct aq_lower *l)
{
	return lower_atom(l, false);
}

static bool lower_red(struct aq_lower *l)
{
	return lower_atom(l, true);
}

const struct aq_lower_part aq_lower_memory_parts[] = {
	{ "ld", lower_ld },
	{ "ldu", lower_ld },
	{ "st", lower_st },
	{ "atom", lower_atom_result },
	{ "red", lower_red },
	{ "cp", lower_copy_async },
	{ "cvta", lower_cvta },
	{ "isspacep", lower_isspacep },
	{ "membar", lower_fence },
	{ "fence", lower_fence },
	{ "prefetch", lower_hint },
	{ "prefetchu", lower_hint },
	{ "discard", lower_hint },
	{ "applypriority", lower_hint },
	{ 0 },
};
