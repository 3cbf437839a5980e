/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/ptx/parse.h"

#include "base/macro.h"

#include <stdlib.h>
#include <string.h>

/* Parameters or return values as read, before they find their place in a function. */
struct plist {
	struct aq_ptx_var *vars;
	int32_t *regs; /* -1 for those in .param space; NULL when all are */
	uint32_t n;
	uint32_t bytes;
};

/* A .reg parameter is a register of the function. */
static bool bind_param(struct aq_ptx_parser *p, struct aq_ptx_var *v, struct aq_ptx_name *name,
		       int32_t *ret_reg)
{
	struct aq_ptx_binding *b;
	uint32_t reg;

	*ret_reg = -1;
	if (v->space == AQ_PTX_REG) {
		if (!aq_ptx_new_reg(p, v->name, v->type, v->vec, v->line, &reg))
			return false;
		*ret_reg = (int32_t)reg;
	}
	if (strcmp(v->name, "_") == 0)
		return true;
	b = aq_ptx_bind(p, name, v->space == AQ_PTX_REG ? AQ_PTX_BIND_REG : AQ_PTX_BIND_VAR,
			v->line);
	if (!b)
		return false;
	b->index = (uint32_t)*ret_reg;
	b->var = v; /* moved to the kept array by rebind() */
	return true;
}

static bool parse_param(struct aq_ptx_parser *p, struct aq_ptx_var *var,
			struct aq_ptx_name **ret_name)
{
	struct aq_ptx_spec spec = { .line = p->tok.line };
	uint64_t dims[AQ_PTX_MAX_DIMS + 1] = { 0 };
	unsigned n_dims = 0;

	if (!aq_ptx_space_parse(p, &spec.space) ||
	    (spec.space != AQ_PTX_PARAM && spec.space != AQ_PTX_REG))
		return aq_ptx_fail_expected(p, ".param or .reg");
	aq_ptx_next(p);
	if (!aq_ptx_decl_spec(p, &spec) ||
	    !aq_ptx_decl_name(p, &spec, var, ret_name, dims, &n_dims))
		return false;
	if (n_dims && spec.space == AQ_PTX_REG)
		return aq_ptx_fail(p, var->line, "register '%.80s' is an array", var->name);
	return true;
}

/* Offsets within the parameter block: each at the next multiple of its alignment. */
static bool place_params(struct aq_ptx_parser *p, struct plist *l)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < l->n; i++) {
		struct aq_ptx_var *v = &l->vars[i];

		if (v->space == AQ_PTX_REG)
			continue;
		if (!v->size && i + 1 < l->n)
			return aq_ptx_fail(p, v->line,
					   "parameter '%.80s' without a size is not the last",
					   v->name);
		v->offset = aq_align_up(at, v->align);
		at = v->offset + v->size;
		if (at > AQ_PTX_MAX_BYTES)
			return aq_ptx_fail(p, v->line, "parameters are larger than %llu bytes",
					   (unsigned long long)AQ_PTX_MAX_BYTES);
	}
	l->bytes = (uint32_t)at;
	return true;
}

/* Bindings point at where the parameters were read; let them point at where they stay. */
static void rebind(struct aq_ptx_parser *p, const struct aq_ptx_vec *names, struct plist *l)
{
	struct aq_ptx_name **name = names->at;

	for (uint32_t i = 0; i < names->n; i++) {
		struct aq_ptx_binding *b = name[i]->top;

		if (b && b->kind == AQ_PTX_BIND_VAR && b->depth == p->depth)
			b->var = &l->vars[i];
	}
}

/* "(…)"; names are bound in the current scope. */
static bool parse_plist(struct aq_ptx_parser *p, struct plist *ret)
{
	struct aq_ptx_vec names = { 0 }, regs = { 0 };
	bool any_reg = false, ok = true;
	uint32_t n_regs;

	p->params.n = 0;
	if (!aq_ptx_expect(p, '('))
		return false;
	while (ok && !aq_ptx_is_punct(p, ')')) {
		struct aq_ptx_var *v = aq_ptx_push(p, &p->params, sizeof(*v));
		struct aq_ptx_name **name = aq_ptx_push(p, &names, sizeof(struct aq_ptx_name *));
		int32_t *reg = aq_ptx_push(p, &regs, sizeof(*reg));

		ok = v && name && reg && parse_param(p, v, name) && bind_param(p, v, *name, reg);
		any_reg |= ok && *reg >= 0;
		if (!ok || !aq_ptx_accept(p, ','))
			break;
	}
	ok = ok && aq_ptx_expect(p, ')') &&
	     aq_ptx_keep(p, &p->params, 0, sizeof(struct aq_ptx_var), &ret->vars, &ret->n) &&
	     (!any_reg || aq_ptx_keep(p, &regs, 0, sizeof(int32_t), &ret->regs, &n_regs)) &&
	     place_params(p, ret);
	if (ok)
		rebind(p, &names, ret);
	aq_ptx_vec_free(p, &names, sizeof(struct aq_ptx_name *));
	aq_ptx_vec_free(p, &regs, sizeof(int32_t));
	return ok;
}

/* Up to three numbers of .maxntid and .reqntid. */
static bool parse_ntid(struct aq_ptx_parser *p, uint32_t *dims)
{
	uint64_t product = 1;
	uint32_t line = p->tok.line;

	for (int i = 0; i < 3; i++) {
		uint64_t v;

		dims[i] = 1;
		if (i && !aq_ptx_accept(p, ','))
			continue;
		if (!aq_ptx_expr_int(p, "block dimension", 1, 1 << 16, &v))
			return false;
		dims[i] = (uint32_t)v;
		product *= v;
	}
	return product <= 1 << 16 || aq_ptx_fail(p, line, "block dimensions are too large");
}

static bool parse_count(struct aq_ptx_parser *p, uint32_t *ret)
{
	uint64_t v;

	if (!aq_ptx_expr_int(p, "value of the directive", 1, 1 << 16, &v))
		return false;
	if (ret)
		*ret = (uint32_t)v;
	return true;
}

/* What may stand between the parameters and the body. */
static bool parse_tuning(struct aq_ptx_parser *p, struct aq_ptx_func *f)
{
	bool ok = true;

	while (ok && p->tok.kind == AQ_PTX_TOK_DOT) {
		uint32_t line = p->tok.line;

		if (aq_ptx_accept_dot(p, "noreturn"))
			f->is_noreturn = true;
		else if (aq_ptx_accept_dot(p, "pragma"))
			ok = aq_ptx_skip_pragma(p);
		else if (aq_ptx_accept_dot(p, "abi_preserve") ||
			 aq_ptx_accept_dot(p, "abi_preserve_control"))
			ok = parse_count(p, NULL);
		else if (!f->is_entry)
			ok = aq_ptx_fail_expected(p, "body of the function");
		else if (aq_ptx_accept_dot(p, "maxntid"))
			ok = parse_ntid(p, f->maxntid);
		else if (aq_ptx_accept_dot(p, "reqntid"))
			ok = parse_ntid(p, f->reqntid);
		else if (aq_ptx_accept_dot(p, "maxnreg"))
			ok = parse_count(p, &f->maxnreg);
		else if (aq_ptx_accept_dot(p, "minnctapersm"))
			ok = parse_count(p, &f->minnctapersm);
		else if (aq_ptx_accept_dot(p, "maxnctapersm"))
			ok = parse_count(
				p, NULL); /* the older name's bound; minnctapersm is the promise */
		else
			ok = aq_ptx_fail(p, line, "directive '.%.*s' of a kernel is not supported",
					 (int)AQ_MIN(p->tok.len, 40u), p->tok.text);
	}
	return ok;
}

static bool same_params(const struct aq_ptx_var *a, uint32_t n_a, const struct aq_ptx_var *b,
			uint32_t n_b)
{
	if (n_a != n_b)
		return false;
	for (uint32_t i = 0; i < n_a; i++) {
		if (a[i].size != b[i].size || a[i].space != b[i].space)
			return false;
	}
	return true;
}

static struct aq_ptx_func *func_at(const struct aq_ptx_parser *p, uint32_t index)
{
	return (struct aq_ptx_func *)p->funcs.at + index;
}

/* The function's entry in the module: the one that was declared before, if it agrees, or a new one. */
static bool place_func(struct aq_ptx_parser *p, struct aq_ptx_name *name,
		       const struct aq_ptx_func *f, uint32_t *ret)
{
	struct aq_ptx_binding *b = name->top;
	struct aq_ptx_func *old;
	uint32_t depth = p->depth;

	while (b && b->depth)
		b = b->outer;
	if (b && b->kind == AQ_PTX_BIND_FUNC) {
		old = func_at(p, b->index);
		if (old->is_entry != f->is_entry ||
		    !same_params(old->params, old->n_params, f->params, f->n_params) ||
		    !same_params(old->rets, old->n_rets, f->rets, f->n_rets))
			return aq_ptx_fail(p, f->line,
					   "'%.80s' is unlike its declaration in line %u", f->name,
					   old->line);
		*ret = b->index;
		return true;
	}
	if (b)
		return aq_ptx_fail(p, f->line, "'%.80s' is declared twice", f->name);
	old = aq_ptx_push(p, &p->funcs, sizeof(*old));
	if (!old)
		return false;
	*old = *f;
	old->has_body = false;
	*ret = (uint32_t)(p->funcs.n - 1);
	/* The parameters' scope is open by now, unless their names hide the function's. */
	p->depth = 0;
	b = name->top ? NULL : aq_ptx_bind(p, name, AQ_PTX_BIND_FUNC, f->line);
	p->depth = depth;
	if (!b)
		return aq_ptx_fail(p, f->line, "a parameter has the name of its function '%.80s'",
				   f->name);
	b->index = *ret;
	return true;
}

static bool parse_body(struct aq_ptx_parser *p, uint32_t index, const struct aq_ptx_func *f)
{
	struct aq_ptx_func *slot = func_at(p, index);
	struct aq_ptx_func was = *slot;

	if (was.has_body)
		return aq_ptx_fail(p, f->line, "'%.80s' is defined twice, first in line %u",
				   f->name, was.line);
	*slot = *f;
	slot->has_body = true;
	slot->is_extern = false;
	slot->is_visible |= was.is_visible;
	slot->is_weak |= was.is_weak;
	slot->is_noreturn |= was.is_noreturn;
	return aq_ptx_body(p, index);
}

static void take_plists(struct aq_ptx_func *f, const struct plist *rets, const struct plist *params)
{
	f->rets = rets->vars;
	f->n_rets = rets->n;
	f->ret_regs = rets->regs;
	f->params = params->vars;
	f->n_params = params->n;
	f->param_regs = params->regs;
	f->param_bytes = params->bytes;
}

/* From the return values on; the parameters' scope is open. */
static bool parse_func(struct aq_ptx_parser *p, struct aq_ptx_func *f)
{
	struct plist rets = { 0 }, params = { 0 };
	struct aq_ptx_name *name;
	uint32_t index = 0;

	if (!f->is_entry && aq_ptx_is_punct(p, '(') && !parse_plist(p, &rets))
		return false;
	if (!aq_ptx_expect_ident(p, "function name", &name))
		return false;
	f->name = name->text;
	if (aq_ptx_is_punct(p, '(') && !parse_plist(p, &params))
		return false;
	take_plists(f, &rets, &params);
	if (f->is_entry && f->param_regs)
		return aq_ptx_fail(p, f->line, "parameters of kernel '%.80s' are registers",
				   f->name);
	if (f->is_entry && f->param_bytes > AQ_PTX_MAX_ENTRY_PARAM_BYTES)
		return aq_ptx_fail(p, f->line,
				   "kernel '%.80s' has %u bytes of parameters; %d are possible",
				   f->name, f->param_bytes, AQ_PTX_MAX_ENTRY_PARAM_BYTES);
	if (!parse_tuning(p, f) || !place_func(p, name, f, &index))
		return false;
	if (aq_ptx_accept(p, ';'))
		return true;
	if (!aq_ptx_is_punct(p, '{'))
		return aq_ptx_fail_expected(p, "';' or body of the function");
	return parse_body(p, index, f);
}

bool aq_ptx_func(struct aq_ptx_parser *p, bool is_entry, const struct aq_ptx_spec *linkage)
{
	struct aq_ptx_func f = {
		.is_entry = is_entry,
		.is_extern = linkage->is_extern,
		.is_visible = linkage->is_visible,
		.is_weak = linkage->is_weak,
		.line = linkage->line,
	};

	if (linkage->is_common)
		return aq_ptx_fail(p, linkage->line, "a function is not .common");
	p->body.regs.n = p->body.vars.n = p->body.insns.n = 0;
	p->body.labels.n = p->body.pending.n = 0;
	p->range_depth = 0;
	return aq_ptx_scope_open(p) && parse_func(p, &f) && aq_ptx_scope_close(p);
}

/* The prototype's own registers are nobody's: they are dropped again. */
static bool parse_prototype(struct aq_ptx_parser *p, struct aq_ptx_func *f)
{
	struct plist rets = { 0 }, params = { 0 };
	struct aq_ptx_name *name;

	if (aq_ptx_is_punct(p, '(') && !parse_plist(p, &rets))
		return false;
	if (!aq_ptx_expect_ident(p, "'_'", &name))
		return false;
	if (aq_ptx_is_punct(p, '(') && !parse_plist(p, &params))
		return false;
	take_plists(f, &rets, &params);
	if (aq_ptx_accept_dot(p, "noreturn"))
		f->is_noreturn = true;
	while (aq_ptx_accept_dot(p, "abi_preserve") ||
	       aq_ptx_accept_dot(p, "abi_preserve_control")) {
		if (!parse_count(p, NULL))
			return false;
	}
	return aq_ptx_expect(p, ';');
}

bool aq_ptx_prototype(struct aq_ptx_parser *p, struct aq_ptx_name *name, int32_t *ret_func)
{
	struct aq_ptx_func f = { .name = name->text, .is_prototype = true, .line = p->tok.line };
	size_t n_regs = p->body.regs.n;
	struct aq_ptx_func *slot;

	if (!aq_ptx_scope_open(p) || !parse_prototype(p, &f) || !aq_ptx_scope_close(p))
		return false;
	p->body.regs.n = n_regs;
	slot = aq_ptx_push(p, &p->funcs, sizeof(*slot));
	if (!slot)
		return false;
	*slot = f;
	*ret_func = (int32_t)(p->funcs.n - 1);
	return true;
}
