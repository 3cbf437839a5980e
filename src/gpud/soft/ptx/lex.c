/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/ptx/lex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alpha(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_follow(char c)
{
	return is_alpha(c) || is_digit(c) || c == '_' || c == '$';
}

static char peek(const struct aq_ptx_lexer *l, size_t ahead)
{
	if (ahead >= (size_t)(l->end - l->at))
		return '\0';
	return l->at[ahead];
}

static void skip_line(struct aq_ptx_lexer *l)
{
	const char *nl = memchr(l->at, '\n', (size_t)(l->end - l->at));

	l->at = nl ? nl : l->end;
}

/* False: the comment does not end; the line is the one where it begins. */
static bool skip_block_comment(struct aq_ptx_lexer *l)
{
	uint32_t first = l->line;

	for (l->at += 2; l->at < l->end; l->at++) {
		if (*l->at == '\n')
			l->line++;
		if (*l->at == '*' && peek(l, 1) == '/') {
			l->at += 2;
			return true;
		}
	}
	l->at = l->end;
	l->line = first;
	return false;
}

static bool skip_blanks(struct aq_ptx_lexer *l)
{
	while (l->at < l->end) {
		char c = *l->at;

		if (c == '\n') {
			l->line++;
			l->line_start = true;
			l->at++;
		} else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
			l->at++;
		} else if (c == '/' && peek(l, 1) == '/') {
			skip_line(l);
		} else if (c == '/' && peek(l, 1) == '*') {
			if (!skip_block_comment(l))
				return false;
		} else if ((c == '#' && l->line_start) || (c == '@' && peek(l, 1) == '@')) {
			skip_line(l);
		} else {
			break;
		}
	}
	return true;
}

static int hex_value(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Digits of `base` from the lexer's place on; false when they do not fit 64 bits or there is none. */
static bool lex_digits(struct aq_ptx_lexer *l, unsigned base, uint64_t *ret)
{
	const char *start = l->at;
	uint64_t v = 0;

	for (; l->at < l->end; l->at++) {
		int d = hex_value(*l->at);

		if (d < 0 || (unsigned)d >= base)
			break;
		if (__builtin_mul_overflow(v, base, &v) ||
		    __builtin_add_overflow(v, (uint64_t)d, &v))
			return false;
	}
	*ret = v;
	return l->at > start;
}

static const char *lex_decimal_float(struct aq_ptx_lexer *l, struct aq_ptx_token *t)
{
	const char *start = l->at;
	char copy[128];
	double value;

	while (is_digit(peek(l, 0)))
		l->at++;
	if (peek(l, 0) == '.') {
		l->at++;
		while (is_digit(peek(l, 0)))
			l->at++;
	}
	if (peek(l, 0) == 'e' || peek(l, 0) == 'E') {
		l->at++;
		if (peek(l, 0) == '+' || peek(l, 0) == '-')
			l->at++;
		if (!is_digit(peek(l, 0)))
			return "exponent without digits";
		while (is_digit(peek(l, 0)))
			l->at++;
	}
	if ((size_t)(l->at - start) >= sizeof(copy))
		return "number is too long";
	memcpy(copy, start, (size_t)(l->at - start));
	copy[l->at - start] = '\0';
	value = strtod(copy, NULL);
	memcpy(&t->bits, &value, sizeof(value));
	t->kind = AQ_PTX_TOK_F64;
	return NULL;
}

/* 0f and 0d: the bits of a float, in exactly 8 or 16 hexadecimal digits. */
static const char *lex_float_bits(struct aq_ptx_lexer *l, struct aq_ptx_token *t)
{
	bool wide = peek(l, 1) == 'd' || peek(l, 1) == 'D';
	ptrdiff_t digits = wide ? 16 : 8;
	const char *start;

	l->at += 2;
	start = l->at;
	if (!lex_digits(l, 16, &t->bits) || l->at - start != digits)
		return wide ? "0d needs 16 hexadecimal digits" : "0f needs 8 hexadecimal digits";
	t->kind = wide ? AQ_PTX_TOK_F64 : AQ_PTX_TOK_F32;
	return NULL;
}

static bool is_decimal_float(const struct aq_ptx_lexer *l)
{
	const char *p = l->at;

	while (p < l->end && is_digit(*p))
		p++;
	return p < l->end && (*p == '.' || *p == 'e' || *p == 'E');
}

static const char *lex_number(struct aq_ptx_lexer *l, struct aq_ptx_token *t)
{
	char second = peek(l, 1);
	unsigned base = 10;
	const char *why = NULL;

	t->kind = AQ_PTX_TOK_INT;
	if (l->at[0] == '0' && second && strchr("fFdD", second)) {
		why = lex_float_bits(l, t);
	} else if (l->at[0] == '0' && second && strchr("xXbB", second)) {
		base = second == 'x' || second == 'X' ? 16 : 2;
		l->at += 2;
	} else if (is_decimal_float(l)) {
		why = lex_decimal_float(l, t);
	} else if (l->at[0] == '0') {
		base = 8;
	}
	if (why)
		return why;
	if (t->kind == AQ_PTX_TOK_INT) {
		if (!lex_digits(l, base, &t->bits))
			return "number has no digits or does not fit 64 bits";
		if (peek(l, 0) == 'U') {
			t->is_unsigned = true;
			l->at++;
		} else {
			t->is_unsigned = t->bits > INT64_MAX;
		}
	}
	return is_follow(peek(l, 0)) ? "malformed number" : NULL;
}

static const char *lex_string(struct aq_ptx_lexer *l, struct aq_ptx_token *t)
{
	l->at++;
	t->text = l->at;
	for (; l->at < l->end && *l->at != '\n'; l->at++) {
		if (*l->at == '\\' && l->end - l->at > 1 && l->at[1] != '\n') {
			l->at++;
		} else if (*l->at == '"') {
			t->kind = AQ_PTX_TOK_STRING;
			t->len = (uint32_t)(l->at - t->text);
			l->at++;
			return NULL;
		}
	}
	return "string does not end on its line";
}

/* ".name", with "::" inside where a name goes on behind it. */
static void lex_dotted(struct aq_ptx_lexer *l, struct aq_ptx_token *t)
{
	l->at++;
	t->kind = AQ_PTX_TOK_DOT;
	t->text = l->at;
	for (;;) {
		while (is_follow(peek(l, 0)))
			l->at++;
		if (peek(l, 0) != ':' || peek(l, 1) != ':' || !is_follow(peek(l, 2)))
			break;
		l->at += 2;
	}
	t->len = (uint32_t)(l->at - t->text);
}

static void lex_punct(struct aq_ptx_lexer *l, struct aq_ptx_token *t)
{
	static const struct {
		char text[3];
		enum aq_ptx_tok kind;
	} two[] = {
		{ "<<", AQ_PTX_TOK_SHL },    { ">>", AQ_PTX_TOK_SHR },	{ "<=", AQ_PTX_TOK_LE },
		{ ">=", AQ_PTX_TOK_GE },     { "==", AQ_PTX_TOK_EQ },	{ "!=", AQ_PTX_TOK_NE },
		{ "&&", AQ_PTX_TOK_ANDAND }, { "||", AQ_PTX_TOK_OROR },
	};

	for (size_t i = 0; i < sizeof(two) / sizeof(two[0]); i++) {
		if (l->at[0] == two[i].text[0] && peek(l, 1) == two[i].text[1]) {
			t->kind = two[i].kind;
			l->at += 2;
			t->len = 2;
			return;
		}
	}
	if (*l->at && strchr("()[]{}<>,;:?=!~+-*/%&|^@", *l->at)) {
		t->kind = AQ_PTX_TOK_PUNCT;
		t->punct = *l->at;
	} else {
		t->bad = "unexpected character";
	}
	l->at++;
	t->len = 1;
}

void aq_ptx_lex(struct aq_ptx_lexer *l, struct aq_ptx_token *ret)
{
	const char *start;
	char c;

	*ret = (struct aq_ptx_token){ .kind = AQ_PTX_TOK_BAD, .line = l->line };
	if (!skip_blanks(l)) {
		ret->line = l->line;
		ret->text = l->end;
		ret->bad = "comment does not end";
		return;
	}
	l->line_start = false;
	ret->line = l->line;
	ret->text = start = l->at;
	if (l->at == l->end) {
		ret->kind = AQ_PTX_TOK_EOF;
		return;
	}
	c = *l->at;
	if (is_alpha(c) || ((c == '_' || c == '$' || c == '%') && is_follow(peek(l, 1))) ||
	    c == '_') {
		l->at++;
		while (is_follow(peek(l, 0)))
			l->at++;
		ret->kind = AQ_PTX_TOK_IDENT;
	} else if (is_digit(c)) {
		ret->bad = lex_number(l, ret);
	} else if (c == '.' && is_follow(peek(l, 1))) {
		lex_dotted(l, ret);
		return;
	} else if (c == '"') {
		ret->bad = lex_string(l, ret);
		if (!ret->bad)
			return;
	} else {
		lex_punct(l, ret);
	}
	ret->text = start;
	ret->len = (uint32_t)(l->at - start);
	if (ret->bad)
		ret->kind = AQ_PTX_TOK_BAD;
}
