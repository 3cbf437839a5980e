/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/ptx/parse.h"

#include "base/macro.h"

#include <string.h>

/* Where an operand stands; -1 for one inside another, where a name that is not known yet cannot be patched later. */
struct place {
	int32_t insn;
	uint32_t slot;
	bool is_call; /* parentheses hold lists */
	unsigned nest;
};

static bool parse_operand(struct aq_ptx_parser *p, const struct place *at,
			  struct aq_ptx_operand *op);

static struct aq_ptx_operand blank(enum aq_ptx_operand_kind kind)
{
	return (struct aq_ptx_operand){
		.kind = kind, .elem = -1, .reg = -1, .func = -1, .label = -1
	};
}

/* ".x" and its like behind a register. */
static bool parse_elem(struct aq_ptx_parser *p, struct aq_ptx_operand *op)
{
	static const char names[] = "xyzwrgba";
	const char *at;

	if (p->tok.kind != AQ_PTX_TOK_DOT)
		return true;
	at = p->tok.len == 1 ? strchr(names, p->tok.text[0]) : NULL;
	if (!at)
		return aq_ptx_fail_expected(p, "element .x, .y, .z or .w");
	op->elem = (int8_t)((at - names) % 4);
	aq_ptx_next(p);
	return true;
}

static bool parse_immediate(struct aq_ptx_parser *p, struct aq_ptx_operand *op)
{
	struct aq_ptx_value v = { 0 };

	if (!aq_ptx_expr(p, &v))
		return false;
	*op = blank(AQ_PTX_OPERAND_IMM);
	op->imm = v.bits;
	op->imm_kind = AQ_PTX_IMM_INT;
	if (v.kind == AQ_PTX_VALUE_F32)
		op->imm_kind = AQ_PTX_IMM_F32;
	else if (v.kind == AQ_PTX_VALUE_F64)
		op->imm_kind = AQ_PTX_IMM_F64;
	return true;
}

/* A name that is nothing yet: a label further down, or a function. */
static bool defer(struct aq_ptx_parser *p, const struct place *at, struct aq_ptx_name *name,
		  uint32_t line, struct aq_ptx_operand *op)
{
	struct aq_ptx_pending *u;

	if (name->text[0] == '%' || at->insn < 0)
		return aq_ptx_fail(p, line, "'%.80s' is not declared", name->text);
	u = aq_ptx_push(p, &p->body.pending, sizeof(*u));
	if (!u)
		return false;
	*u = (struct aq_ptx_pending){
		.name = name, .line = line, .insn = at->insn, .slot = at->slot
	};
	*op = blank(AQ_PTX_OPERAND_LABEL);
	return true;
}

static bool parse_name(struct aq_ptx_parser *p, const struct place *at, struct aq_ptx_operand *op)
{
	uint32_t line = p->tok.line;
	struct aq_ptx_binding *b;
	struct aq_ptx_name *name;

	if (!aq_ptx_expect_ident(p, "operand", &name) || !aq_ptx_lookup(p, name, line, &b))
		return false;
	if (!b && name->is_special) {
		*op = blank(AQ_PTX_OPERAND_SPECIAL);
		op->name = name->text + 1;
		return parse_elem(p, op);
	}
	/* A label of this very scope is final; one further out may yet be hidden. */
	if (!b || (b->kind == AQ_PTX_BIND_LABEL && b->depth < p->depth))
		return defer(p, at, name, line, op);
	switch (b->kind) {
	case AQ_PTX_BIND_REG:
		*op = blank(AQ_PTX_OPERAND_REG);
		op->reg = (int32_t)b->index;
		return parse_elem(p, op);
	case AQ_PTX_BIND_VAR:
		*op = blank(AQ_PTX_OPERAND_VAR);
		op->var = b->var;
		return aq_ptx_expr_addend(p, &op->addend);
	case AQ_PTX_BIND_FUNC:
		*op = blank(AQ_PTX_OPERAND_FUNC);
		op->func = (int32_t)b->index;
		return true;
	case AQ_PTX_BIND_LABEL:
		*op = blank(AQ_PTX_OPERAND_LABEL);
		op->label = (int32_t)b->index;
		return true;
	case AQ_PTX_BIND_RANGE:
	default:
		return aq_ptx_fail(p, line, "'%.80s' is not an operand", name->text);
	}
}

/* Operands up to the closing character, which is taken, become op's subs. Operands already on the stack from `first` on come before them. */
static bool parse_subs(struct aq_ptx_parser *p, const struct place *at, char close, size_t first,
		       struct aq_ptx_operand *op)
{
	struct place inner = { .insn = -1, .is_call = false, .nest = at->nest + 1 };

	while (!aq_ptx_is_punct(p, close)) {
		struct aq_ptx_operand sub, *slot;

		if (p->stack.n - first >= AQ_PTX_MAX_SUB)
			return aq_ptx_fail(p, p->tok.line, "more than %d operands in one",
					   AQ_PTX_MAX_SUB);
		if (!parse_operand(p, &inner, &sub))
			return false;
		slot = aq_ptx_push(p, &p->stack, sizeof(*slot));
		if (!slot)
			return false;
		*slot = sub;
		if (!aq_ptx_accept(p, ','))
			break;
	}
	if (!aq_ptx_expect(p, close) ||
	    !aq_ptx_keep(p, &p->stack, first, sizeof(*op), &op->sub, &op->n_sub))
		return false;
	p->stack.n = first;
	return true;
}

/* The inside of a bracket before a comma: register, variable or constant, and what is added to it. */
static bool parse_address(struct aq_ptx_parser *p, struct aq_ptx_operand *op)
{
	struct place nowhere = { .insn = -1 };
	struct aq_ptx_operand base;
	struct aq_ptx_value v = { 0 };
	uint32_t line = p->tok.line;

	*op = blank(AQ_PTX_OPERAND_ADDR);
	if (p->tok.kind != AQ_PTX_TOK_IDENT || aq_ptx_is_ident(p, "WARP_SZ")) {
		if (!aq_ptx_expr(p, &v))
			return false;
		if (v.kind == AQ_PTX_VALUE_F32 || v.kind == AQ_PTX_VALUE_F64)
			return aq_ptx_fail(p, line, "address is a floating-point number");
		op->addend = (int64_t)v.bits;
		return true;
	}
	if (!parse_name(p, &nowhere, &base))
		return false;
	if (base.kind == AQ_PTX_OPERAND_REG) {
		op->reg = base.reg;
		op->elem = base.elem;
	} else if (base.kind == AQ_PTX_OPERAND_VAR) {
		op->var = base.var;
		op->addend = base.addend;
	} else {
		return aq_ptx_fail(p, line, "address is neither register nor variable");
	}
	return aq_ptx_expr_addend(p, &op->addend);
}

/* "[address]", or "[texture, {coordinates}]": the bracket is taken. */
static bool parse_bracket(struct aq_ptx_parser *p, const struct place *at,
			  struct aq_ptx_operand *op)
{
	size_t first = p->stack.n;
	struct aq_ptx_operand base, *slot;

	if (!parse_address(p, &base))
		return false;
	if (!aq_ptx_accept(p, ',')) {
		*op = base;
		return aq_ptx_expect(p, ']');
	}
	if (base.reg >= 0 && !base.addend)
		base.kind = AQ_PTX_OPERAND_REG;
	else if (base.var && !base.addend)
		base.kind = AQ_PTX_OPERAND_VAR;
	*op = blank(AQ_PTX_OPERAND_TEXADDR);
	slot = aq_ptx_push(p, &p->stack, sizeof(*slot));
	if (!slot)
		return false;
	*slot = base;
	return parse_subs(p, at, ']', first, op);
}

/* "!p" and "-r": the sign is the current token, a name behind it. */
static bool parse_negated(struct aq_ptx_parser *p, const struct place *at,
			  struct aq_ptx_operand *op)
{
	struct place inner = { .insn = -1, .nest = at->nest };
	uint32_t line = p->tok.line;

	aq_ptx_next(p);
	if (!parse_name(p, &inner, op))
		return false;
	if (op->kind != AQ_PTX_OPERAND_REG)
		return aq_ptx_fail(p, line, "only a register can be negated");
	op->negated = true;
	return true;
}

static bool is_negated_name(const struct aq_ptx_parser *p)
{
	struct aq_ptx_token ahead;

	if (!aq_ptx_is_punct(p, '!') && !aq_ptx_is_punct(p, '-'))
		return false;
	ahead = aq_ptx_peek(p);
	return ahead.kind == AQ_PTX_TOK_IDENT &&
	       !(ahead.len == 7 && memcmp(ahead.text, "WARP_SZ", 7) == 0);
}

/* "a|b": the second destination. */
static bool parse_pair(struct aq_ptx_parser *p, const struct place *at, struct aq_ptx_operand *op)
{
	struct place inner = { .insn = -1, .nest = at->nest + 1 };
	struct aq_ptx_operand second, *sub;

	if (op->kind != AQ_PTX_OPERAND_REG && op->kind != AQ_PTX_OPERAND_SINK)
		return aq_ptx_fail(p, p->tok.line, "'|' does not follow a register");
	aq_ptx_next(p);
	if (!parse_operand(p, &inner, &second))
		return false;
	if (second.kind != AQ_PTX_OPERAND_REG && second.kind != AQ_PTX_OPERAND_SINK)
		return aq_ptx_fail(p, p->tok.line, "'|' is not followed by a register");
	sub = aq_arena_memdup(&p->own->arena, &second, sizeof(second));
	if (!sub)
		return aq_ptx_fail_memory(p);
	op->sub = sub;
	op->n_sub = 1;
	op->has_pair = true;
	return true;
}

static bool parse_operand(struct aq_ptx_parser *p, const struct place *at,
			  struct aq_ptx_operand *op)
{
	size_t first = p->stack.n;
	bool ok;

	if (at->nest > AQ_PTX_MAX_NEST)
		return aq_ptx_fail(p, p->tok.line, "operands are nested too deeply");
	if (aq_ptx_accept(p, '['))
		return parse_bracket(p, at, op);
	if (aq_ptx_accept(p, '{')) {
		*op = blank(AQ_PTX_OPERAND_VECTOR);
		return parse_subs(p, at, '}', first, op);
	}
	if (at->is_call && aq_ptx_accept(p, '(')) {
		*op = blank(AQ_PTX_OPERAND_LIST);
		return parse_subs(p, at, ')', first, op);
	}
	if (aq_ptx_is_ident(p, "_")) {
		aq_ptx_next(p);
		*op = blank(AQ_PTX_OPERAND_SINK);
		ok = true;
	} else if (is_negated_name(p)) {
		ok = parse_negated(p, at, op);
	} else if (p->tok.kind == AQ_PTX_TOK_IDENT && !aq_ptx_is_ident(p, "WARP_SZ")) {
		ok = parse_name(p, at, op);
	} else {
		ok = parse_immediate(p, op);
	}
	return ok && (!aq_ptx_is_punct(p, '|') || parse_pair(p, at, op));
}

/* "@p" and "@!p": the @ is the current token. */
static bool parse_guard(struct aq_ptx_parser *p, struct aq_ptx_insn *in)
{
	const struct aq_ptx_reg *regs;
	struct aq_ptx_binding *b;
	struct aq_ptx_name *name;
	uint32_t line;

	aq_ptx_next(p);
	in->has_guard = true;
	in->guard_negated = aq_ptx_accept(p, '!');
	line = p->tok.line;
	if (!aq_ptx_expect_ident(p, "predicate", &name) || !aq_ptx_lookup(p, name, line, &b))
		return false;
	regs = p->body.regs.at;
	if (!b || b->kind != AQ_PTX_BIND_REG || regs[b->index].type != AQ_PTX_PRED)
		return aq_ptx_fail(p, line, "guard '%.80s' is not a predicate register",
				   name->text);
	in->guard = (int32_t)b->index;
	return true;
}

static bool parse_mods(struct aq_ptx_parser *p, struct aq_ptx_insn *in)
{
	for (; p->tok.kind == AQ_PTX_TOK_DOT; aq_ptx_next(p)) {
		const struct aq_ptx_name *mod;

		if (in->n_mods == AQ_PTX_MAX_MODS)
			return aq_ptx_fail(p, in->line,
					   "instruction '%.40s' has more than %d modifiers",
					   in->name, AQ_PTX_MAX_MODS);
		mod = aq_ptx_intern(p, p->tok.text, p->tok.len);
		if (!mod)
			return false;
		in->mods[in->n_mods++] = mod->text;
	}
	return true;
}

static bool parse_operands(struct aq_ptx_parser *p, struct aq_ptx_insn *in)
{
	struct place at = { .insn = (int32_t)p->body.insns.n,
			    .is_call = strcmp(in->name, "call") == 0 };

	if (aq_ptx_accept(p, ';'))
		return true;
	do {
		if (in->n_operands == AQ_PTX_MAX_OPERANDS)
			return aq_ptx_fail(p, in->line,
					   "instruction '%.40s' has more than %d operands",
					   in->name, AQ_PTX_MAX_OPERANDS);
		at.slot = in->n_operands;
		if (!parse_operand(p, &at, &in->operands[in->n_operands]))
			return false;
		in->n_operands++;
	} while (aq_ptx_accept(p, ','));
	return aq_ptx_expect(p, ';');
}

bool aq_ptx_insn(struct aq_ptx_parser *p)
{
	struct aq_ptx_insn in = { .guard = -1, .line = p->tok.line }, *slot;
	struct aq_ptx_name *name;

	if (p->body.insns.n >= AQ_PTX_MAX_INSNS)
		return aq_ptx_fail(p, in.line, "more than %u instructions in a function",
				   AQ_PTX_MAX_INSNS);
	if (aq_ptx_is_punct(p, '@') && !parse_guard(p, &in))
		return false;
	if (!aq_ptx_expect_ident(p, "instruction", &name))
		return false;
	in.name = name->text;
	if (!parse_mods(p, &in) || !parse_operands(p, &in))
		return false;
	slot = aq_ptx_push(p, &p->body.insns, sizeof(*slot));
	if (!slot)
		return false;
	*slot = in;
	return true;
}
