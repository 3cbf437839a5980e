/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/ptx/parse.h"

#include "base/macro.h"

#include <stdlib.h>
#include <string.h>

/* Line numbers and the like that a debugger would want: "a b c", and after commas "function_name X" and "inlined_at a b c". */
bool aq_ptx_skip_loc(struct aq_ptx_parser *p)
{
	do {
		if (p->tok.kind == AQ_PTX_TOK_IDENT) {
			bool has_label = aq_ptx_is_ident(p, "function_name");

			aq_ptx_next(p);
			if (has_label) {
				int64_t addend = 0;

				if (p->tok.kind != AQ_PTX_TOK_IDENT &&
				    p->tok.kind != AQ_PTX_TOK_DOT)
					return aq_ptx_fail_expected(p, "label");
				aq_ptx_next(p);
				if (!aq_ptx_expr_addend(p, &addend))
					return false;
				continue;
			}
		}
		for (int i = 0; i < 3; i++) {
			if (p->tok.kind != AQ_PTX_TOK_INT)
				return aq_ptx_fail_expected(p, "number in .loc");
			aq_ptx_next(p);
		}
	} while (aq_ptx_accept(p, ','));
	return true;
}

/* .file 1 "name" and, behind commas, time and size. */
bool aq_ptx_skip_file(struct aq_ptx_parser *p)
{
	if (p->tok.kind != AQ_PTX_TOK_INT)
		return aq_ptx_fail_expected(p, "number of the file");
	aq_ptx_next(p);
	if (p->tok.kind != AQ_PTX_TOK_STRING)
		return aq_ptx_fail_expected(p, "name of the file");
	aq_ptx_next(p);
	while (aq_ptx_accept(p, ',')) {
		if (p->tok.kind != AQ_PTX_TOK_INT)
			return aq_ptx_fail_expected(p, "number");
		aq_ptx_next(p);
	}
	return true;
}

/* .section .debug_info { … }: data for debuggers. Other sections are not known. */
bool aq_ptx_skip_section(struct aq_ptx_parser *p)
{
	uint32_t line = p->tok.line;
	unsigned depth = 0;

	if (p->tok.kind != AQ_PTX_TOK_DOT || p->tok.len < 6 ||
	    memcmp(p->tok.text, "debug_", 6) != 0)
		return aq_ptx_fail_expected(p, "name of a .debug_ section");
	aq_ptx_next(p);
	if (!aq_ptx_is_punct(p, '{'))
		return aq_ptx_fail_expected(p, "'{'");
	do {
		if (p->tok.kind == AQ_PTX_TOK_EOF)
			return aq_ptx_fail(p, line, "section does not end");
		if (p->tok.kind == AQ_PTX_TOK_BAD)
			return aq_ptx_fail_expected(p, "data");
		depth += aq_ptx_is_punct(p, '{');
		depth -= aq_ptx_is_punct(p, '}');
		aq_ptx_next(p);
	} while (depth);
	return true;
}

/* Hints to the compiler: "nounroll" and such. */
bool aq_ptx_skip_pragma(struct aq_ptx_parser *p)
{
	do {
		if (p->tok.kind != AQ_PTX_TOK_STRING)
			return aq_ptx_fail_expected(p, "string of .pragma");
		aq_ptx_next(p);
	} while (aq_ptx_accept(p, ','));
	return aq_ptx_expect(p, ';');
}

static struct aq_ptx_label *label_at(const struct aq_ptx_parser *p, uint32_t index)
{
	return (struct aq_ptx_label *)p->body.labels.at + index;
}

/* .branchtargets and .calltargets: names that are looked up when the scope, or the module, ends. */
static bool parse_targets(struct aq_ptx_parser *p, uint32_t label, bool are_funcs)
{
	size_t first = p->body.pending.n;
	struct aq_ptx_label *l;
	uint32_t n = 0;

	do {
		struct aq_ptx_pending *u;
		struct aq_ptx_name *name;
		uint32_t line = p->tok.line;

		if (p->body.pending.n >= AQ_PTX_MAX_INSNS)
			return aq_ptx_fail(p, line, "more than %u targets in a function",
					   AQ_PTX_MAX_INSNS);
		u = aq_ptx_push(p, &p->body.pending, sizeof(*u));
		if (!u || !aq_ptx_expect_ident(p, "target", &name))
			return false;
		*u = (struct aq_ptx_pending){
			.name = name,
			.line = line,
			.insn = -1,
			.label = label,
			.slot = n++,
			.want_func = are_funcs,
		};
	} while (aq_ptx_accept(p, ','));
	l = label_at(p, label);
	l->n_targets = (uint32_t)(p->body.pending.n - first);
	l->targets = aq_arena_calloc(&p->own->arena, n, sizeof(*l->targets));
	if (!l->targets)
		return aq_ptx_fail_memory(p);
	return aq_ptx_expect(p, ';');
}

/* "name :" and what may hang there; both tokens are taken. */
static bool parse_label(struct aq_ptx_parser *p, struct aq_ptx_name *name, uint32_t line)
{
	struct aq_ptx_binding *b = aq_ptx_bind(p, name, AQ_PTX_BIND_LABEL, line);
	struct aq_ptx_label *l = b ? aq_ptx_push(p, &p->body.labels, sizeof(*l)) : NULL;
	uint32_t index = (uint32_t)p->body.labels.n - 1;
	int32_t prototype;

	if (!l)
		return false;
	b->index = index;
	*l = (struct aq_ptx_label){
		.name = name->text,
		.insn = (uint32_t)p->body.insns.n,
		.prototype = -1,
	};
	if (aq_ptx_accept_dot(p, "branchtargets"))
		return parse_targets(p, index, false);
	if (aq_ptx_accept_dot(p, "calltargets"))
		return parse_targets(p, index, true);
	if (!aq_ptx_accept_dot(p, "callprototype"))
		return true;
	if (!aq_ptx_prototype(p, name, &prototype))
		return false;
	label_at(p, index)->prototype = prototype;
	return true;
}

static bool parse_directive(struct aq_ptx_parser *p)
{
	struct aq_ptx_spec spec = { .line = p->tok.line };

	if (aq_ptx_accept_dot(p, "reg"))
		return aq_ptx_decl_regs(p);
	if (aq_ptx_space_parse(p, &spec.space)) {
		if (spec.space == AQ_PTX_GLOBAL || spec.space == AQ_PTX_CONST)
			return aq_ptx_fail(
				p, spec.line,
				".global and .const variables belong to the module, not into a function");
		aq_ptx_next(p);
		return aq_ptx_decl_vars(p, &spec);
	}
	if (aq_ptx_accept_dot(p, "loc"))
		return aq_ptx_skip_loc(p);
	if (aq_ptx_accept_dot(p, "pragma"))
		return aq_ptx_skip_pragma(p);
	if (aq_ptx_accept_dot(p, "file"))
		return aq_ptx_skip_file(p);
	return aq_ptx_fail(p, p->tok.line, "directive '.%.*s' in a function is not supported",
			   (int)AQ_MIN(p->tok.len, 40u), p->tok.text);
}

static bool parse_statement(struct aq_ptx_parser *p)
{
	struct aq_ptx_token ahead;
	struct aq_ptx_name *name;
	uint32_t line = p->tok.line;

	if (p->tok.kind == AQ_PTX_TOK_DOT)
		return parse_directive(p);
	if (aq_ptx_accept(p, ';'))
		return true;
	if (aq_ptx_is_punct(p, '@'))
		return aq_ptx_insn(p);
	if (p->tok.kind != AQ_PTX_TOK_IDENT)
		return aq_ptx_fail_expected(p, "instruction or label");
	ahead = aq_ptx_peek(p);
	if (ahead.kind != AQ_PTX_TOK_PUNCT || ahead.punct != ':')
		return aq_ptx_insn(p);
	if (!aq_ptx_expect_ident(p, "label", &name))
		return false;
	aq_ptx_next(p);
	return parse_label(p, name, line);
}

/* A large vector goes to the module as it is; the arena frees it. */
static bool keep_insns(struct aq_ptx_parser *p, struct aq_ptx_func *f)
{
	struct aq_ptx_vec *v = &p->body.insns;
	size_t bytes = v->n * sizeof(struct aq_ptx_insn);
	void *fit;

	if (bytes < AQ_MIB)
		return aq_ptx_keep(p, v, 0, sizeof(struct aq_ptx_insn), &f->insns, &f->n_insns);
	fit = realloc(v->at, bytes);
	if (fit)
		v->at = fit;
	if (aq_arena_adopt(&p->own->arena, v->at, bytes) < 0)
		return aq_ptx_fail_memory(p);
	f->insns = v->at;
	f->n_insns = (uint32_t)v->n;
	v->at = NULL;
	aq_ptx_vec_free(p, v, sizeof(struct aq_ptx_insn));
	return true;
}

/* Names that no label explains may be functions further down. */
static bool keep_pending(struct aq_ptx_parser *p, uint32_t func)
{
	const struct aq_ptx_pending *u = p->body.pending.at;

	for (size_t i = 0; i < p->body.pending.n; i++) {
		struct aq_ptx_pending *late;

		if (u[i].insn < 0 && !u[i].want_func)
			return aq_ptx_fail(p, u[i].line, "label '%.80s' is not defined",
					   u[i].name->text);
		late = aq_ptx_push(p, &p->late, sizeof(*late));
		if (!late)
			return false;
		*late = u[i];
		late->func = (int32_t)func;
	}
	return true;
}

bool aq_ptx_body(struct aq_ptx_parser *p, uint32_t func)
{
	uint32_t outside = p->depth;
	struct aq_ptx_func *f;

	do {
		bool ok;

		if (aq_ptx_is_punct(p, '{'))
			ok = aq_ptx_scope_open(p);
		else if (aq_ptx_is_punct(p, '}'))
			ok = aq_ptx_scope_close(p);
		else if (!parse_statement(p))
			return false;
		else
			continue;
		if (!ok)
			return false;
		aq_ptx_next(p);
	} while (p->depth > outside);
	f = (struct aq_ptx_func *)p->funcs.at + func; /* prototypes may have moved it */
	return aq_ptx_keep(p, &p->body.regs, 0, sizeof(struct aq_ptx_reg), &f->regs, &f->n_regs) &&
	       aq_ptx_keep(p, &p->body.vars, 0, sizeof(struct aq_ptx_var *), &f->vars,
			   &f->n_vars) &&
	       aq_ptx_keep(p, &p->body.labels, 0, sizeof(struct aq_ptx_label), &f->labels,
			   &f->n_labels) &&
	       keep_insns(p, f) && keep_pending(p, func);
}

bool aq_ptx_resolve_late(struct aq_ptx_parser *p)
{
	const struct aq_ptx_pending *u = p->late.at;
	const struct aq_ptx_func *funcs = p->funcs.at;

	for (size_t i = 0; i < p->late.n; i++, u++) {
		const struct aq_ptx_binding *b = u->name->top;
		struct aq_ptx_operand *op;

		if (!b || b->kind != AQ_PTX_BIND_FUNC)
			return aq_ptx_fail(p, u->line, "'%.80s' is not defined", u->name->text);
		if (u->insn < 0) {
			funcs[u->func].labels[u->label].targets[u->slot] = (int32_t)b->index;
			continue;
		}
		op = &funcs[u->func].insns[u->insn].operands[u->slot];
		op->kind = AQ_PTX_OPERAND_FUNC;
		op->func = (int32_t)b->index;
	}
	return true;
}
