/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the PTX parser: its state, and what its files offer each other. A function that returns bool has logged the
 * reason when it returns false; after the first failure parsing ends.
 */
#pragma once

#include "gpud/soft/ptx/lex.h"
#include "gpud/soft/ptx/ptx.h"
#include "util/arena.h"
#include "util/strmap.h"

#define AQ_PTX_MAX_TEXT		     (64u << 20)
#define AQ_PTX_MAX_MEMORY	     ((size_t)1 << 30) /* of the module; of the arrays it grows in */
#define AQ_PTX_MAX_NOTES	     ((size_t)1 << 29)	 /* of names and what they mean */
#define AQ_PTX_MAX_BYTES	     ((uint64_t)1 << 30) /* of a variable */
#define AQ_PTX_MAX_REGS		     (1u << 20)
#define AQ_PTX_MAX_INSNS	     (1u << 20)
#define AQ_PTX_MAX_DEPTH	     256  /* of scopes and of expressions */
#define AQ_PTX_MAX_NEST		     6	  /* of operands in operands */
#define AQ_PTX_MAX_SUB		     4096 /* operands in a vector or list */
#define AQ_PTX_MAX_DIMS		     8	  /* of an array */
#define AQ_PTX_MAX_ENTRY_PARAM_BYTES 32764

struct aq_ptx_name;

enum aq_ptx_bind_kind {
	AQ_PTX_BIND_REG,
	AQ_PTX_BIND_RANGE, /* %r<100>; its registers get their own bindings when they are first named */
	AQ_PTX_BIND_VAR,
	AQ_PTX_BIND_FUNC,
	AQ_PTX_BIND_LABEL,
};

/* What a name means in one scope. */
struct aq_ptx_binding {
	enum aq_ptx_bind_kind kind;
	enum aq_ptx_type type; /* RANGE */
	uint8_t vec;	       /* RANGE */
	uint32_t depth;
	uint32_t index; /* REG, FUNC, LABEL; RANGE: number of registers */
	struct aq_ptx_var *var;
	struct aq_ptx_name *name;
	struct aq_ptx_binding *outer;	   /* the same name further out */
	struct aq_ptx_binding *scope_next; /* others of the same scope */
};

/* An interned string. */
struct aq_ptx_name {
	const char *text;
	uint32_t len;
	bool is_special;	       /* "%tid" and the like */
	struct aq_ptx_binding *top;    /* innermost meaning */
	struct aq_ptx_binding *ranges; /* innermost register range with this name before the < */
};

/* A growing array of the parser's own. */
struct aq_ptx_vec {
	void *at;
	size_t n, cap;
};

/* A name used before its label or function was seen. */
struct aq_ptx_pending {
	const struct aq_ptx_name *name;
	uint32_t line;
	int32_t func; /* module-wide ones */
	int32_t insn; /* that instruction's operand `slot`; -1: target `slot` of label `label` */
	uint32_t label, slot;
	bool want_func; /* .calltargets */
};

struct aq_ptx_scope {
	struct aq_ptx_binding *bindings;
	size_t first_pending;
	bool has_labels;
};

/* The module, and the memory that everything in it lives in. */
struct aq_ptx_owned {
	struct aq_ptx_module m; /* first: what callers hold */
	struct aq_arena arena;
};

/* The function being parsed. */
struct aq_ptx_body {
	struct aq_ptx_vec regs, vars, insns, labels, pending;
};

struct aq_ptx_parser {
	struct aq_ptx_lexer lex;
	struct aq_ptx_token tok; /* the current token */
	struct aq_strbuf *log;
	struct aq_ptx_owned *own;
	struct aq_arena scratch;
	struct aq_strmap names;
	struct aq_ptx_vec vars, funcs;	  /* of the module */
	struct aq_ptx_vec late;		  /* pending calls of functions not seen yet */
	struct aq_ptx_vec reloc_names;	  /* symbols in initialisers, checked at the end */
	struct aq_ptx_vec stack;	  /* operands of open vectors and lists */
	struct aq_ptx_vec params, relocs; /* of the declaration being read */
	struct aq_ptx_body body;
	struct aq_ptx_scope scopes[AQ_PTX_MAX_DEPTH + 1];
	uint32_t depth;	      /* of the current scope; 0 is the module */
	uint32_t range_depth; /* the innermost scope that ever declared a range in this function */
	uint32_t expr_depth;
	size_t vec_bytes; /* of all growing arrays */
	bool has_version, has_target;
};

enum aq_ptx_value_kind {
	AQ_PTX_VALUE_S64,
	AQ_PTX_VALUE_U64,
	AQ_PTX_VALUE_F32,
	AQ_PTX_VALUE_F64,
};

struct aq_ptx_value {
	enum aq_ptx_value_kind kind;
	uint64_t bits;
};

/* What stands before the name in a declaration. */
struct aq_ptx_spec {
	enum aq_ptx_space space;
	enum aq_ptx_type type;
	uint8_t vec;
	uint32_t align; /* 0: natural */
	uint32_t line;
	bool is_extern, is_visible, is_weak, is_common, is_managed, is_pointer;
};

/* parser.c: tokens, names, scopes, memory */
bool aq_ptx_fail(struct aq_ptx_parser *p, uint32_t line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
bool aq_ptx_fail_memory(struct aq_ptx_parser *p);
/* "line N: WHAT expected, found TOKEN". */
bool aq_ptx_fail_expected(struct aq_ptx_parser *p, const char *what);
void aq_ptx_next(struct aq_ptx_parser *p);
struct aq_ptx_token aq_ptx_peek(const struct aq_ptx_parser *p);
bool aq_ptx_is_punct(const struct aq_ptx_parser *p, char c);
bool aq_ptx_is_dot(const struct aq_ptx_parser *p, const char *name);
bool aq_ptx_is_ident(const struct aq_ptx_parser *p, const char *name);
/* Take the token if it is the one; else leave it. */
bool aq_ptx_accept(struct aq_ptx_parser *p, char c);
bool aq_ptx_accept_dot(struct aq_ptx_parser *p, const char *name);
bool aq_ptx_expect(struct aq_ptx_parser *p, char c);
/* The name of the current token, interned; NULL when memory is out (logged). */
struct aq_ptx_name *aq_ptx_intern(struct aq_ptx_parser *p, const char *text, size_t len);
bool aq_ptx_expect_ident(struct aq_ptx_parser *p, const char *what, struct aq_ptx_name **ret);
/* One more zeroed element at the end; NULL when memory is out (logged). */
void *aq_ptx_push(struct aq_ptx_parser *p, struct aq_ptx_vec *v, size_t size);
void aq_ptx_vec_free(struct aq_ptx_parser *p, struct aq_ptx_vec *v, size_t size);
/* A copy of elements [first, n) of v in the module's arena. */
bool aq_ptx_keep(struct aq_ptx_parser *p, const struct aq_ptx_vec *v, size_t first, size_t size,
		 void *ret_array, uint32_t *ret_n);
bool aq_ptx_scope_open(struct aq_ptx_parser *p);
bool aq_ptx_scope_close(struct aq_ptx_parser *p);
struct aq_ptx_binding *aq_ptx_bind(struct aq_ptx_parser *p, struct aq_ptx_name *name,
				   enum aq_ptx_bind_kind kind, uint32_t line);
/* What the name means here. A register of a range comes into being by this. *ret is NULL when it means nothing. */
bool aq_ptx_lookup(struct aq_ptx_parser *p, struct aq_ptx_name *name, uint32_t line,
		   struct aq_ptx_binding **ret);
bool aq_ptx_new_reg(struct aq_ptx_parser *p, const char *name, enum aq_ptx_type type, uint8_t vec,
		    uint32_t line, uint32_t *ret);

/* special.c */
bool aq_ptx_special_is(const char *name, size_t len);

/* expr.c: constant expressions */
double aq_ptx_value_double(const struct aq_ptx_value *v);
bool aq_ptx_expr(struct aq_ptx_parser *p, struct aq_ptx_value *ret);
bool aq_ptx_expr_int(struct aq_ptx_parser *p, const char *what, uint64_t min, uint64_t max,
		     uint64_t *ret);
/* Zero or more "+ term" and "- term" behind an address. */
bool aq_ptx_expr_addend(struct aq_ptx_parser *p, int64_t *ret);

/* decl.c: variables, registers */
/* The dotted words between state space and name. */
bool aq_ptx_decl_spec(struct aq_ptx_parser *p, struct aq_ptx_spec *spec);
/* Name and dimensions; dims[] gets at most AQ_PTX_MAX_DIMS of them, unsized as 0. */
bool aq_ptx_decl_name(struct aq_ptx_parser *p, const struct aq_ptx_spec *spec,
		      struct aq_ptx_var *var, struct aq_ptx_name **ret_name, uint64_t *dims,
		      unsigned *ret_n_dims);
/* A whole declaration, the space's token taken, up to and with the semicolon. */
bool aq_ptx_decl_vars(struct aq_ptx_parser *p, struct aq_ptx_spec *spec);
bool aq_ptx_decl_regs(struct aq_ptx_parser *p);
bool aq_ptx_space_parse(const struct aq_ptx_parser *p, enum aq_ptx_space *ret);

/* init.c: initialisers; the current token is the one behind "=" */
bool aq_ptx_init(struct aq_ptx_parser *p, struct aq_ptx_var *var, uint64_t *dims, unsigned n_dims);

/* func.c */
bool aq_ptx_func(struct aq_ptx_parser *p, bool is_entry, const struct aq_ptx_spec *linkage);
/* label: .callprototype …; */
bool aq_ptx_prototype(struct aq_ptx_parser *p, struct aq_ptx_name *name, int32_t *ret_func);

/* body.c: statements */
bool aq_ptx_body(struct aq_ptx_parser *p, uint32_t func);
bool aq_ptx_skip_loc(struct aq_ptx_parser *p);
bool aq_ptx_skip_file(struct aq_ptx_parser *p);
bool aq_ptx_skip_section(struct aq_ptx_parser *p);
bool aq_ptx_skip_pragma(struct aq_ptx_parser *p);
/* What is still pending when a function ends waits for functions of the module. */
bool aq_ptx_resolve_late(struct aq_ptx_parser *p);

/* insn.c: instructions and operands; the current token is the guard's @ or the instruction's name */
bool aq_ptx_insn(struct aq_ptx_parser *p);
