/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/ptx/parse.h"

#include "base/macro.h"
#include "util/strbuf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool aq_ptx_fail(struct aq_ptx_parser *p, uint32_t line, const char *fmt, ...)
{
	char msg[256];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	if (p->log)
		aq_strbuf_printf(p->log, "line %u: %s\n", line, msg);
	/* Nothing is read after a failure. */
	p->lex.at = p->lex.end;
	return false;
}

bool aq_ptx_fail_memory(struct aq_ptx_parser *p)
{
	return aq_ptx_fail(p, p->tok.line, "the module needs too much memory");
}

/* A token as a message shows it: short, and printable whatever the input. */
static void show_token(const struct aq_ptx_token *t, char *ret, size_t size)
{
	size_t n = AQ_MIN(t->len, 40u);

	if (t->kind == AQ_PTX_TOK_EOF) {
		(void)snprintf(ret, size, "end of text");
		return;
	}
	if (t->kind == AQ_PTX_TOK_STRING) {
		(void)snprintf(ret, size, "a string");
		return;
	}
	(void)snprintf(ret, size, "'%s%.*s%s'", t->kind == AQ_PTX_TOK_DOT ? "." : "", (int)n,
		       t->text, n < t->len ? "..." : "");
	for (char *c = ret; *c; c++) {
		if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
			*c = '?';
	}
}

bool aq_ptx_fail_expected(struct aq_ptx_parser *p, const char *what)
{
	char found[64];

	show_token(&p->tok, found, sizeof(found));
	if (p->tok.kind == AQ_PTX_TOK_BAD)
		return aq_ptx_fail(p, p->tok.line, "%s%s%s", p->tok.bad, p->tok.len ? ": " : "",
				   p->tok.len ? found : "");
	return aq_ptx_fail(p, p->tok.line, "%s expected, found %s", what, found);
}

void aq_ptx_next(struct aq_ptx_parser *p)
{
	aq_ptx_lex(&p->lex, &p->tok);
}

struct aq_ptx_token aq_ptx_peek(const struct aq_ptx_parser *p)
{
	struct aq_ptx_lexer ahead = p->lex;
	struct aq_ptx_token t;

	aq_ptx_lex(&ahead, &t);
	return t;
}

static bool token_is(const struct aq_ptx_token *t, enum aq_ptx_tok kind, const char *name)
{
	return t->kind == kind && strlen(name) == t->len && memcmp(name, t->text, t->len) == 0;
}

bool aq_ptx_is_punct(const struct aq_ptx_parser *p, char c)
{
	return p->tok.kind == AQ_PTX_TOK_PUNCT && p->tok.punct == c;
}

bool aq_ptx_is_dot(const struct aq_ptx_parser *p, const char *name)
{
	return token_is(&p->tok, AQ_PTX_TOK_DOT, name);
}

bool aq_ptx_is_ident(const struct aq_ptx_parser *p, const char *name)
{
	return token_is(&p->tok, AQ_PTX_TOK_IDENT, name);
}

bool aq_ptx_accept(struct aq_ptx_parser *p, char c)
{
	if (!aq_ptx_is_punct(p, c))
		return false;
	aq_ptx_next(p);
	return true;
}

bool aq_ptx_accept_dot(struct aq_ptx_parser *p, const char *name)
{
	if (!aq_ptx_is_dot(p, name))
		return false;
	aq_ptx_next(p);
	return true;
}

bool aq_ptx_expect(struct aq_ptx_parser *p, char c)
{
	char what[4] = { '\'', c, '\'', '\0' };

	return aq_ptx_accept(p, c) || aq_ptx_fail_expected(p, what);
}

struct aq_ptx_name *aq_ptx_intern(struct aq_ptx_parser *p, const char *text, size_t len)
{
	struct aq_ptx_name *n = aq_strmap_get(&p->names, text, len);

	if (n)
		return n;
	n = aq_arena_alloc(&p->scratch, sizeof(*n));
	if (n)
		n->text = aq_arena_strndup(&p->own->arena, text, len);
	if (!n || !n->text) {
		aq_ptx_fail_memory(p);
		return NULL;
	}
	n->len = (uint32_t)len;
	n->is_special = aq_ptx_special_is(text, len);
	if (aq_strmap_put(&p->names, n->text, len, n) < 0) {
		aq_ptx_fail_memory(p);
		return NULL;
	}
	return n;
}

bool aq_ptx_expect_ident(struct aq_ptx_parser *p, const char *what, struct aq_ptx_name **ret)
{
	struct aq_ptx_name *n;

	if (p->tok.kind != AQ_PTX_TOK_IDENT)
		return aq_ptx_fail_expected(p, what);
	n = aq_ptx_intern(p, p->tok.text, p->tok.len);
	if (!n)
		return false;
	aq_ptx_next(p);
	*ret = n;
	return true;
}

void *aq_ptx_push(struct aq_ptx_parser *p, struct aq_ptx_vec *v, size_t size)
{
	void *ret;

	if (v->n == v->cap) {
		size_t cap = v->cap ? v->cap * 2 : 16;
		size_t more = (cap - v->cap) * size;
		void *at = NULL;

		if (more <= AQ_PTX_MAX_MEMORY - p->vec_bytes)
			at = realloc(v->at, cap * size);
		if (!at) {
			aq_ptx_fail_memory(p);
			return NULL;
		}
		p->vec_bytes += more;
		v->at = at;
		v->cap = cap;
	}
	ret = (char *)v->at + v->n * size;
	memset(ret, 0, size);
	v->n++;
	return ret;
}

void aq_ptx_vec_free(struct aq_ptx_parser *p, struct aq_ptx_vec *v, size_t size)
{
	p->vec_bytes -= v->cap * size;
	free(v->at);
	*v = (struct aq_ptx_vec){ 0 };
}

bool aq_ptx_keep(struct aq_ptx_parser *p, const struct aq_ptx_vec *v, size_t first, size_t size,
		 void *ret_array, uint32_t *ret_n)
{
	size_t n = v->n - first;
	void *copy = NULL;

	if (n) {
		copy = aq_arena_memdup(&p->own->arena, (const char *)v->at + first * size,
				       n * size);
		if (!copy)
			return aq_ptx_fail_memory(p);
	}
	memcpy(ret_array, &copy, sizeof(copy));
	*ret_n = (uint32_t)n;
	return true;
}

bool aq_ptx_scope_open(struct aq_ptx_parser *p)
{
	if (p->depth == AQ_PTX_MAX_DEPTH)
		return aq_ptx_fail(p, p->tok.line, "scopes are nested deeper than %d",
				   AQ_PTX_MAX_DEPTH);
	p->depth++;
	p->scopes[p->depth] = (struct aq_ptx_scope){ .first_pending = p->body.pending.n };
	return true;
}

static void resolve(struct aq_ptx_parser *p, const struct aq_ptx_pending *u, uint32_t label)
{
	if (u->insn >= 0) {
		struct aq_ptx_insn *in = (struct aq_ptx_insn *)p->body.insns.at + u->insn;

		in->operands[u->slot].label = (int32_t)label;
	} else {
		struct aq_ptx_label *l = (struct aq_ptx_label *)p->body.labels.at + u->label;

		l->targets[u->slot] = (int32_t)label;
	}
}

/* Names that this scope's labels explain are done; the rest waits for the scope around it. */
static void resolve_labels(struct aq_ptx_parser *p, const struct aq_ptx_scope *s)
{
	struct aq_ptx_pending *u = p->body.pending.at;
	size_t kept = s->first_pending;

	for (size_t i = s->first_pending; i < p->body.pending.n; i++) {
		const struct aq_ptx_binding *b = u[i].name->top;

		if (!u[i].want_func && b && b->kind == AQ_PTX_BIND_LABEL && b->depth == p->depth)
			resolve(p, &u[i], b->index);
		else
			u[kept++] = u[i];
	}
	p->body.pending.n = kept;
}

bool aq_ptx_scope_close(struct aq_ptx_parser *p)
{
	struct aq_ptx_scope *s = &p->scopes[p->depth];
	struct aq_ptx_binding *b = s->bindings;

	if (s->has_labels)
		resolve_labels(p, s);
	for (; b; b = b->scope_next) {
		if (b->kind == AQ_PTX_BIND_RANGE)
			b->name->ranges = b->outer;
		else
			b->name->top = b->outer;
	}
	p->depth--;
	p->range_depth = AQ_MIN(p->range_depth, p->depth);
	return true;
}

static struct aq_ptx_binding *bind_at(struct aq_ptx_parser *p, struct aq_ptx_name *name,
				      enum aq_ptx_bind_kind kind, uint32_t depth)
{
	struct aq_ptx_binding *b = aq_arena_alloc(&p->scratch, sizeof(*b));
	struct aq_ptx_binding **top = kind == AQ_PTX_BIND_RANGE ? &name->ranges : &name->top;

	if (!b) {
		aq_ptx_fail_memory(p);
		return NULL;
	}
	b->kind = kind;
	b->depth = depth;
	b->name = name;
	b->outer = *top;
	*top = b;
	b->scope_next = p->scopes[depth].bindings;
	p->scopes[depth].bindings = b;
	if (kind == AQ_PTX_BIND_LABEL)
		p->scopes[depth].has_labels = true;
	if (kind == AQ_PTX_BIND_RANGE)
		p->range_depth = AQ_MAX(p->range_depth, depth);
	return b;
}

struct aq_ptx_binding *aq_ptx_bind(struct aq_ptx_parser *p, struct aq_ptx_name *name,
				   enum aq_ptx_bind_kind kind, uint32_t line)
{
	const struct aq_ptx_binding *top = kind == AQ_PTX_BIND_RANGE ? name->ranges : name->top;

	if (top && top->depth == p->depth) {
		aq_ptx_fail(p, line, "'%.80s' is declared twice", name->text);
		return NULL;
	}
	return bind_at(p, name, kind, p->depth);
}

bool aq_ptx_new_reg(struct aq_ptx_parser *p, const char *name, enum aq_ptx_type type, uint8_t vec,
		    uint32_t line, uint32_t *ret)
{
	struct aq_ptx_reg *r;

	if (p->body.regs.n >= AQ_PTX_MAX_REGS)
		return aq_ptx_fail(p, line, "more than %u registers in a function",
				   AQ_PTX_MAX_REGS);
	r = aq_ptx_push(p, &p->body.regs, sizeof(*r));
	if (!r)
		return false;
	*r = (struct aq_ptx_reg){ .name = name, .type = type, .vec = vec };
	*ret = (uint32_t)(p->body.regs.n - 1);
	return true;
}

/*
 * The innermost range that `name` is a member of. "%r12" is one of %r<100> and also of %r1<5>, so every way to cut
 * trailing digits off is looked at.
 */
static struct aq_ptx_binding *find_range(const struct aq_ptx_parser *p,
					 const struct aq_ptx_name *name)
{
	struct aq_ptx_binding *best = NULL;
	uint64_t number = 0, scale = 1;

	for (size_t cut = name->len; cut > 1 && name->len - cut < 7;) {
		char c = name->text[cut - 1];
		const struct aq_ptx_name *base;

		if (c < '0' || c > '9')
			break;
		cut--;
		number += (uint64_t)(c - '0') * scale;
		scale *= 10;
		if (c == '0' && name->len - cut > 1)
			continue;
		base = aq_strmap_get(&p->names, name->text, cut);
		if (base && base->ranges && number < base->ranges->index &&
		    (!best || base->ranges->depth > best->depth))
			best = base->ranges;
	}
	return best;
}

bool aq_ptx_lookup(struct aq_ptx_parser *p, struct aq_ptx_name *name, uint32_t line,
		   struct aq_ptx_binding **ret)
{
	struct aq_ptx_binding *range, *b = name->top;
	uint32_t reg = 0;

	if (b && b->depth >= p->range_depth) {
		*ret = b;
		return true;
	}
	range = find_range(p, name);
	if (!range || (b && b->depth >= range->depth)) {
		*ret = b;
		return true;
	}
	if (!aq_ptx_new_reg(p, name->text, range->type, range->vec, line, &reg))
		return false;
	b = bind_at(p, name, AQ_PTX_BIND_REG, range->depth);
	if (!b)
		return false;
	b->index = reg;
	*ret = b;
	return true;
}
