/* SPDX-License-Identifier: Apache-2.0 */
/* PTX text to tokens. Comments, preprocessor lines and the obsolete @@DWARF lines are skipped here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum aq_ptx_tok {
	AQ_PTX_TOK_EOF,
	AQ_PTX_TOK_IDENT,
	AQ_PTX_TOK_DOT, /* ".name", "shared::cta" and ".2d" too; text is without the dot */
	AQ_PTX_TOK_INT,
	AQ_PTX_TOK_F32, /* 0f3F800000 */
	AQ_PTX_TOK_F64, /* 0d3FF0000000000000, 1.0 */
	AQ_PTX_TOK_STRING,
	AQ_PTX_TOK_PUNCT, /* one character, in punct */
	AQ_PTX_TOK_SHL,
	AQ_PTX_TOK_SHR,
	AQ_PTX_TOK_LE,
	AQ_PTX_TOK_GE,
	AQ_PTX_TOK_EQ,
	AQ_PTX_TOK_NE,
	AQ_PTX_TOK_ANDAND,
	AQ_PTX_TOK_OROR,
	AQ_PTX_TOK_BAD, /* why is in `bad` */
};

struct aq_ptx_token {
	enum aq_ptx_tok kind;
	char punct;
	bool is_unsigned; /* INT with a U, or one too large for a signed 64-bit number */
	uint32_t line;
	uint32_t len;
	const char *text; /* into the source */
	uint64_t bits;
	const char *bad;
};

struct aq_ptx_lexer {
	const char *at, *end;
	uint32_t line;
	bool line_start; /* nothing but blanks so far on this line */
};

void aq_ptx_lex(struct aq_ptx_lexer *l, struct aq_ptx_token *ret);
