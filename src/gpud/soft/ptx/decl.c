/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/ptx/parse.h"

#include "base/macro.h"

#include <string.h>

static const char *space_name(enum aq_ptx_space space)
{
	static const char *const names[] = {
		[AQ_PTX_GENERIC] = "generic", [AQ_PTX_REG] = "reg",
		[AQ_PTX_GLOBAL] = "global",   [AQ_PTX_CONST] = "const",
		[AQ_PTX_SHARED] = "shared",   [AQ_PTX_LOCAL] = "local",
		[AQ_PTX_PARAM] = "param",
	};

	return names[space];
}

bool aq_ptx_space_parse(const struct aq_ptx_parser *p, enum aq_ptx_space *ret)
{
	for (int s = AQ_PTX_REG; s <= AQ_PTX_PARAM; s++) {
		if (aq_ptx_is_dot(p, space_name((enum aq_ptx_space)s))) {
			*ret = (enum aq_ptx_space)s;
			return true;
		}
	}
	return false;
}

static bool parse_align(struct aq_ptx_parser *p, uint32_t *ret)
{
	uint32_t line = p->tok.line;
	uint64_t v;

	if (!aq_ptx_expr_int(p, "alignment", 1, 1 << 20, &v))
		return false;
	if (v & (v - 1))
		return aq_ptx_fail(p, line, "alignment %llu is not a power of two",
				   (unsigned long long)v);
	*ret = (uint32_t)v;
	return true;
}

/* .attribute(.managed) */
static bool parse_attributes(struct aq_ptx_parser *p, struct aq_ptx_spec *spec)
{
	if (!aq_ptx_expect(p, '('))
		return false;
	do {
		if (!aq_ptx_accept_dot(p, "managed"))
			return aq_ptx_fail_expected(p, "attribute .managed");
		if (spec->space != AQ_PTX_GLOBAL)
			return aq_ptx_fail(p, spec->line, "only a .global variable is .managed");
		spec->is_managed = true;
	} while (aq_ptx_accept(p, ','));
	return aq_ptx_expect(p, ')');
}

/* What a .ptr parameter points to: a hint that is checked and dropped. */
static bool parse_pointee(struct aq_ptx_parser *p, struct aq_ptx_spec *spec)
{
	enum aq_ptx_space space;
	uint32_t align;

	if (spec->space != AQ_PTX_PARAM)
		return aq_ptx_fail(p, spec->line, "only a .param is a .ptr");
	spec->is_pointer = true;
	if (aq_ptx_space_parse(p, &space))
		aq_ptx_next(p);
	return !aq_ptx_accept_dot(p, "align") || parse_align(p, &align);
}

static bool parse_type(struct aq_ptx_parser *p, struct aq_ptx_spec *spec)
{
	char name[12];

	if (p->tok.len >= sizeof(name))
		return aq_ptx_fail_expected(p, "type");
	memcpy(name, p->tok.text, p->tok.len);
	name[p->tok.len] = '\0';
	if (spec->type != AQ_PTX_NOTYPE || aq_ptx_type_parse(name) == AQ_PTX_NOTYPE)
		return aq_ptx_fail_expected(p, spec->type ? "name" : "type");
	spec->type = aq_ptx_type_parse(name);
	if (spec->type == AQ_PTX_PRED && spec->space != AQ_PTX_REG)
		return aq_ptx_fail(p, p->tok.line, "a predicate is always a register");
	aq_ptx_next(p);
	return true;
}

bool aq_ptx_decl_spec(struct aq_ptx_parser *p, struct aq_ptx_spec *spec)
{
	bool ok = true;

	spec->vec = 1;
	while (ok && p->tok.kind == AQ_PTX_TOK_DOT) {
		if (aq_ptx_accept_dot(p, "align")) {
			ok = parse_align(p, &spec->align);
		} else if (aq_ptx_accept_dot(p, "v2")) {
			spec->vec = 2;
		} else if (aq_ptx_accept_dot(p, "v4")) {
			spec->vec = 4;
		} else if (aq_ptx_accept_dot(p, "attribute")) {
			ok = parse_attributes(p, spec);
		} else if (aq_ptx_accept_dot(p, "ptr")) {
			ok = parse_pointee(p, spec);
		} else {
			ok = parse_type(p, spec);
		}
	}
	if (!ok)
		return false;
	if (spec->type == AQ_PTX_NOTYPE)
		return aq_ptx_fail_expected(p, "type");
	if (spec->vec * aq_ptx_type_size(spec->type) > 16 ||
	    (spec->vec > 1 && spec->type == AQ_PTX_PRED))
		return aq_ptx_fail(p, spec->line,
				   ".v%u .%s is wider than 16 bytes or has no elements", spec->vec,
				   aq_ptx_type_name(spec->type));
	return true;
}

/* [4][8], [] at most once and first; *ret_bytes is the product with the element's size. */
static bool parse_dims(struct aq_ptx_parser *p, uint64_t *dims, unsigned *ret_n_dims,
		       uint64_t *bytes)
{
	unsigned n = 0;

	while (aq_ptx_is_punct(p, '[')) {
		uint32_t line = p->tok.line;
		uint64_t dim;

		aq_ptx_next(p);
		if (n == AQ_PTX_MAX_DIMS)
			return aq_ptx_fail(p, line, "more than %d dimensions", AQ_PTX_MAX_DIMS);
		if (n == 0 && aq_ptx_accept(p, ']')) {
			dims[n++] = 0;
			continue;
		}
		if (!aq_ptx_expr_int(p, "array size", 0, AQ_PTX_MAX_BYTES, &dim))
			return false;
		if (!dim)
			return aq_ptx_fail(p, line, "array size is 0");
		if (*bytes * dim > AQ_PTX_MAX_BYTES)
			return aq_ptx_fail(p, line, "variable is larger than %llu bytes",
					   (unsigned long long)AQ_PTX_MAX_BYTES);
		*bytes *= dim;
		dims[n++] = dim;
		if (!aq_ptx_expect(p, ']'))
			return false;
	}
	*ret_n_dims = n;
	return true;
}

bool aq_ptx_decl_name(struct aq_ptx_parser *p, const struct aq_ptx_spec *spec,
		      struct aq_ptx_var *var, struct aq_ptx_name **ret_name, uint64_t *dims,
		      unsigned *ret_n_dims)
{
	uint32_t natural = aq_ptx_type_size(spec->type) * spec->vec;
	uint64_t bytes = natural;

	*var = (struct aq_ptx_var){
		.space = spec->space,
		.type = spec->type,
		.vec = spec->vec,
		.align = AQ_MAX(spec->align, natural),
		.is_extern = spec->is_extern,
		.is_visible = spec->is_visible,
		.is_weak = spec->is_weak,
		.is_common = spec->is_common,
		.is_managed = spec->is_managed,
		.is_pointer = spec->is_pointer,
		.line = p->tok.line,
	};
	if (!aq_ptx_expect_ident(p, "name", ret_name))
		return false;
	var->name = (*ret_name)->text;
	if (!parse_dims(p, dims, ret_n_dims, &bytes))
		return false;
	var->size = *ret_n_dims && !dims[0] ? 0 : bytes;
	return true;
}

/* A declaration and a definition of the same module variable become one, in the place of the first. */
static bool merge_var(struct aq_ptx_parser *p, struct aq_ptx_var *old, const struct aq_ptx_var *var)
{
	bool both_common = old->is_common && var->is_common;
	bool both_weak = old->is_weak && var->is_weak;
	bool declared;

	if (!old->is_extern && !var->is_extern && !both_common && !both_weak)
		return aq_ptx_fail(p, var->line, "'%.80s' is declared twice, first in line %u",
				   var->name, old->line);
	if (old->space != var->space || old->type != var->type || old->vec != var->vec ||
	    (old->size && var->size && old->size != var->size))
		return aq_ptx_fail(p, var->line, "'%.80s' is unlike its declaration in line %u",
				   var->name, old->line);
	declared = old->is_visible;
	if (old->is_extern && (!var->is_extern || !old->size))
		*old = *var;
	old->is_visible |= declared || var->is_visible;
	return true;
}

static bool add_var(struct aq_ptx_parser *p, struct aq_ptx_name *name, const struct aq_ptx_var *var)
{
	struct aq_ptx_vec *list = p->depth ? &p->body.vars : &p->vars;
	struct aq_ptx_binding *b;
	struct aq_ptx_var **slot;
	struct aq_ptx_var *v;

	if (!p->depth && name->top && name->top->kind == AQ_PTX_BIND_VAR)
		return merge_var(p, name->top->var, var);
	b = aq_ptx_bind(p, name, AQ_PTX_BIND_VAR, var->line);
	slot = b ? aq_ptx_push(p, list, sizeof(struct aq_ptx_var *)) : NULL;
	if (!slot)
		return false;
	v = aq_arena_memdup(&p->own->arena, var, sizeof(*var));
	if (!v)
		return aq_ptx_fail_memory(p);
	*slot = b->var = v;
	return true;
}

static bool parse_var(struct aq_ptx_parser *p, const struct aq_ptx_spec *spec)
{
	uint64_t dims[AQ_PTX_MAX_DIMS + 1] = { 0 };
	unsigned n_dims = 0;
	struct aq_ptx_name *name;
	struct aq_ptx_var var;

	if (!aq_ptx_decl_name(p, spec, &var, &name, dims, &n_dims))
		return false;
	if (aq_ptx_accept(p, '=')) {
		if (spec->space != AQ_PTX_GLOBAL && spec->space != AQ_PTX_CONST)
			return aq_ptx_fail(p, var.line, "a .%s variable takes no initialiser",
					   space_name(spec->space));
		if (spec->is_extern)
			return aq_ptx_fail(p, var.line, "an .extern variable takes no initialiser");
		if (!aq_ptx_init(p, &var, dims, n_dims))
			return false;
	} else if (!var.size && !spec->is_extern) {
		return aq_ptx_fail(p, var.line, "array '%.80s' has no size", var.name);
	}
	return add_var(p, name, &var);
}

bool aq_ptx_decl_vars(struct aq_ptx_parser *p, struct aq_ptx_spec *spec)
{
	if (!aq_ptx_decl_spec(p, spec))
		return false;
	do {
		if (!parse_var(p, spec))
			return false;
	} while (aq_ptx_accept(p, ','));
	return aq_ptx_expect(p, ';');
}

static bool parse_reg(struct aq_ptx_parser *p, const struct aq_ptx_spec *spec)
{
	uint32_t line = p->tok.line;
	struct aq_ptx_binding *b;
	struct aq_ptx_name *name;
	uint64_t count;

	if (!aq_ptx_expect_ident(p, "register name", &name))
		return false;
	if (!aq_ptx_accept(p, '<')) {
		b = aq_ptx_bind(p, name, AQ_PTX_BIND_REG, line);
		return b && aq_ptx_new_reg(p, name->text, spec->type, spec->vec, line, &b->index);
	}
	/* Not an expression: its end would read as "greater than". */
	if (p->tok.kind != AQ_PTX_TOK_INT)
		return aq_ptx_fail_expected(p, "number of registers");
	count = p->tok.bits;
	if (count > AQ_PTX_MAX_REGS)
		return aq_ptx_fail(p, line, "more than %u registers in a function",
				   AQ_PTX_MAX_REGS);
	aq_ptx_next(p);
	if (!aq_ptx_expect(p, '>'))
		return false;
	b = aq_ptx_bind(p, name, AQ_PTX_BIND_RANGE, line);
	if (!b)
		return false;
	b->type = spec->type;
	b->vec = spec->vec;
	b->index = (uint32_t)count;
	return true;
}

bool aq_ptx_decl_regs(struct aq_ptx_parser *p)
{
	struct aq_ptx_spec spec = { .space = AQ_PTX_REG, .line = p->tok.line };

	if (!aq_ptx_decl_spec(p, &spec))
		return false;
	do {
		if (!parse_reg(p, &spec))
			return false;
	} while (aq_ptx_accept(p, ','));
	return aq_ptx_expect(p, ';');
}
