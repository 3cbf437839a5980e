/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/ptx/parse.h"

#include "base/macro.h"

#include <stdlib.h>
#include <string.h>

/* "8.3": read as text, since 7.10 would be above 7.9. */
static bool parse_version(struct aq_ptx_parser *p)
{
	struct aq_ptx_module *m = &p->own->m;
	const char *t = p->tok.text, *end = t + p->tok.len;
	unsigned part[2] = { 0, 0 };
	uint32_t line = p->tok.line;
	int which = 0;

	if (p->has_version)
		return aq_ptx_fail(p, line, ".version is given twice");
	if (p->tok.kind != AQ_PTX_TOK_F64)
		return aq_ptx_fail_expected(p, "version like 7.0");
	for (; t < end; t++) {
		if (*t == '.' && !which)
			which = 1;
		else if (*t < '0' || *t > '9' || part[which] > 99)
			return aq_ptx_fail_expected(p, "version like 7.0");
		else
			part[which] = part[which] * 10 + (unsigned)(*t - '0');
	}
	if (part[0] < 3 || (part[0] == 3 && part[1] < 2) || part[0] > 8)
		return aq_ptx_fail(p, line, "PTX version %u.%u is not supported: 3.2 to 8.x are",
				   part[0], part[1]);
	m->version_major = part[0];
	m->version_minor = part[1];
	p->has_version = true;
	aq_ptx_next(p);
	return true;
}

/* sm_70, sm_90a, sm_100f: the number; 0 when it is none. */
static unsigned parse_sm(const struct aq_ptx_token *t)
{
	unsigned n = 0;
	uint32_t i = 3;

	if (t->len < 5 || t->len > 7 || memcmp(t->text, "sm_", 3) != 0)
		return 0;
	for (; i < t->len && t->text[i] >= '0' && t->text[i] <= '9'; i++)
		n = n * 10 + (unsigned)(t->text[i] - '0');
	if (i + 1 == t->len && (t->text[i] == 'a' || t->text[i] == 'f'))
		i++;
	return i == t->len ? n : 0;
}

static bool parse_target(struct aq_ptx_parser *p)
{
	do {
		unsigned sm = parse_sm(&p->tok);

		if (p->tok.kind != AQ_PTX_TOK_IDENT)
			return aq_ptx_fail_expected(p, "target like sm_70");
		if (sm)
			p->own->m.target = sm;
		else if (!aq_ptx_is_ident(p, "texmode_unified") && !aq_ptx_is_ident(p, "debug") &&
			 !aq_ptx_is_ident(p, "texmode_independent"))
			return aq_ptx_fail(p, p->tok.line, "target option '%.*s' is not supported",
					   (int)AQ_MIN(p->tok.len, 40u), p->tok.text);
		aq_ptx_next(p);
	} while (aq_ptx_accept(p, ','));
	p->has_target = p->own->m.target != 0;
	return true;
}

static bool parse_address_size(struct aq_ptx_parser *p)
{
	if (p->tok.kind != AQ_PTX_TOK_INT || (p->tok.bits != 32 && p->tok.bits != 64))
		return aq_ptx_fail_expected(p, "32 or 64");
	p->own->m.address_size = (unsigned)p->tok.bits;
	aq_ptx_next(p);
	return true;
}

/* .visible, .extern, .weak, .common, then a function or variables. */
static bool parse_declaration(struct aq_ptx_parser *p)
{
	struct aq_ptx_spec spec = { .line = p->tok.line };

	for (;; aq_ptx_next(p)) {
		if (aq_ptx_is_dot(p, "visible"))
			spec.is_visible = true;
		else if (aq_ptx_is_dot(p, "extern"))
			spec.is_extern = true;
		else if (aq_ptx_is_dot(p, "weak"))
			spec.is_weak = true;
		else if (aq_ptx_is_dot(p, "common"))
			spec.is_common = true;
		else
			break;
	}
	if (!p->has_target)
		return aq_ptx_fail(p, p->tok.line,
				   ".target is missing before the first declaration");
	if (aq_ptx_accept_dot(p, "func"))
		return aq_ptx_func(p, false, &spec);
	if (aq_ptx_accept_dot(p, "entry"))
		return aq_ptx_func(p, true, &spec);
	if (!aq_ptx_space_parse(p, &spec.space))
		return aq_ptx_fail_expected(p, "declaration");
	if (spec.space != AQ_PTX_GLOBAL && spec.space != AQ_PTX_CONST &&
	    spec.space != AQ_PTX_SHARED)
		return aq_ptx_fail(p, spec.line, "'.%.*s' is declared inside functions only",
				   (int)p->tok.len, p->tok.text);
	if (spec.is_common && spec.space != AQ_PTX_GLOBAL)
		return aq_ptx_fail(p, spec.line, "only .global variables are .common");
	aq_ptx_next(p);
	return aq_ptx_decl_vars(p, &spec);
}

static bool is_declaration(const struct aq_ptx_parser *p)
{
	static const char *const words[] = {
		"visible", "extern", "weak", "common", "func", "entry"
	};
	enum aq_ptx_space space;

	for (size_t i = 0; i < AQ_ARRAY_SIZE(words); i++) {
		if (aq_ptx_is_dot(p, words[i]))
			return true;
	}
	return aq_ptx_space_parse(p, &space);
}

static bool parse_directive(struct aq_ptx_parser *p)
{
	if (p->tok.kind != AQ_PTX_TOK_DOT)
		return aq_ptx_fail_expected(p, "directive");
	if (aq_ptx_accept_dot(p, "version"))
		return parse_version(p);
	if (!p->has_version)
		return aq_ptx_fail(p, p->tok.line, ".version is missing at the beginning");
	if (aq_ptx_accept_dot(p, "target"))
		return parse_target(p);
	if (aq_ptx_accept_dot(p, "address_size"))
		return parse_address_size(p);
	if (is_declaration(p))
		return parse_declaration(p);
	if (aq_ptx_accept_dot(p, "file"))
		return aq_ptx_skip_file(p);
	if (aq_ptx_accept_dot(p, "section"))
		return aq_ptx_skip_section(p);
	if (aq_ptx_accept_dot(p, "pragma"))
		return aq_ptx_skip_pragma(p);
	if (aq_ptx_accept_dot(p, "loc"))
		return aq_ptx_skip_loc(p);
	return aq_ptx_fail(p, p->tok.line, "directive '.%.*s' is not supported",
			   (int)AQ_MIN(p->tok.len, 40u), p->tok.text);
}

/* Every name in an initialiser is a variable or a function of the module. */
static bool check_reloc_names(struct aq_ptx_parser *p)
{
	const struct aq_ptx_pending *u = p->reloc_names.at;

	for (size_t i = 0; i < p->reloc_names.n; i++) {
		if (!u[i].name->top)
			return aq_ptx_fail(p, u[i].line,
					   "'%.80s' in an initialiser is not declared",
					   u[i].name->text);
	}
	return true;
}

static bool parse_module(struct aq_ptx_parser *p)
{
	struct aq_ptx_module *m = &p->own->m;

	m->address_size = 32; /* what PTX says when the text does not */
	aq_ptx_next(p);
	while (p->tok.kind != AQ_PTX_TOK_EOF) {
		if (!parse_directive(p))
			return false;
	}
	if (!p->has_version || !p->has_target)
		return aq_ptx_fail(p, p->tok.line, "%s is missing",
				   p->has_version ? ".target" : ".version");
	return check_reloc_names(p) && aq_ptx_resolve_late(p) &&
	       aq_ptx_keep(p, &p->vars, 0, sizeof(struct aq_ptx_var *), &m->vars, &m->n_vars) &&
	       aq_ptx_keep(p, &p->funcs, 0, sizeof(struct aq_ptx_func), &m->funcs, &m->n_funcs);
}

static void parser_done(struct aq_ptx_parser *p)
{
	struct aq_ptx_vec *vecs[] = {
		&p->vars,      &p->funcs,      &p->late,	&p->reloc_names,
		&p->stack,     &p->params,     &p->relocs,	&p->body.regs,
		&p->body.vars, &p->body.insns, &p->body.labels, &p->body.pending,
	};

	for (size_t i = 0; i < AQ_ARRAY_SIZE(vecs); i++)
		free(vecs[i]->at);
	aq_strmap_done(&p->names);
	aq_arena_done(&p->scratch);
	free(p);
}

struct aq_ptx_module *aq_ptx_parse(const char *text, size_t len, struct aq_strbuf *log)
{
	struct aq_ptx_parser *p = calloc(1, sizeof(*p));
	struct aq_ptx_owned *own = calloc(1, sizeof(*own));
	bool ok = false;

	if (p && own) {
		while (len && !text[len - 1])
			len--;
		p->own = own;
		p->log = log;
		own->arena.limit = AQ_PTX_MAX_MEMORY;
		p->scratch.limit = AQ_PTX_MAX_NOTES;
		p->lex = (struct aq_ptx_lexer){ text, text + len, 1, true };
		ok = len <= AQ_PTX_MAX_TEXT
			     ? parse_module(p)
			     : aq_ptx_fail(p, 1, "text is longer than %u bytes", AQ_PTX_MAX_TEXT);
	}
	if (p)
		parser_done(p);
	if (!ok) {
		if (own)
			aq_arena_done(&own->arena);
		free(own);
		return NULL;
	}
	return &own->m;
}

void aq_ptx_free(struct aq_ptx_module *m)
{
	struct aq_ptx_owned *own = (struct aq_ptx_owned *)m;

	if (!m)
		return;
	aq_arena_done(&own->arena);
	free(own);
}
