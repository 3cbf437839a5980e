/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parsed PTX module: syntax resolved, meaning not yet. The parser knows directives, declarations, types, labels, operands and constant
 * expressions; it does not know instructions: an instruction is a name, its dot-separated modifiers and its operands. Which of them
 * exist is decided by lowering (exec/lower.c), the one place that refuses an unknown instruction.
 *
 * The module owns every string and array that hangs below it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct aq_strbuf;

enum aq_ptx_type {
	AQ_PTX_NOTYPE = 0,
	AQ_PTX_B8,
	AQ_PTX_B16,
	AQ_PTX_B32,
	AQ_PTX_B64,
	AQ_PTX_B128,
	AQ_PTX_U8,
	AQ_PTX_U16,
	AQ_PTX_U32,
	AQ_PTX_U64,
	AQ_PTX_S8,
	AQ_PTX_S16,
	AQ_PTX_S32,
	AQ_PTX_S64,
	AQ_PTX_F16,
	AQ_PTX_F16X2,
	AQ_PTX_BF16,
	AQ_PTX_BF16X2,
	AQ_PTX_F32,
	AQ_PTX_F64,
	AQ_PTX_PRED,
	AQ_PTX_TEXREF,
	AQ_PTX_SAMPLERREF,
	AQ_PTX_SURFREF,
};

/* State spaces. */
enum aq_ptx_space {
	AQ_PTX_GENERIC = 0,
	AQ_PTX_REG,
	AQ_PTX_GLOBAL,
	AQ_PTX_CONST,
	AQ_PTX_SHARED,
	AQ_PTX_LOCAL,
	AQ_PTX_PARAM,
};

/* Size of a type in bytes; 0 for predicates, 8 for opaque references. */
unsigned aq_ptx_type_size(enum aq_ptx_type type);
/* ".f32" without the dot, and back (AQ_PTX_NOTYPE when it is none). */
const char *aq_ptx_type_name(enum aq_ptx_type type);
enum aq_ptx_type aq_ptx_type_parse(const char *name);

/* An address in an initialiser: size bytes at `offset` of the variable take the address of `name` + addend. */
struct aq_ptx_reloc {
	uint64_t offset;
	const char *name; /* variable or function */
	int64_t addend;
	uint8_t size; /* 4 or 8 */
	bool generic; /* generic(name) */
};

/* A variable in global, const, shared, local or param space: of the module, of a function, or a parameter. */
struct aq_ptx_var {
	const char *name;
	enum aq_ptx_space space;
	enum aq_ptx_type type;
	uint8_t vec;	 /* 1, 2 or 4 */
	uint32_t align;	 /* power of two, natural when not given */
	uint64_t size;	 /* bytes; 0 for extern .shared x[] and extern arrays without a size */
	uint64_t offset; /* parameters: place in the parameter block */
	bool is_extern, is_visible, is_weak, is_common, is_managed;
	bool is_pointer; /* .param .ptr */
	uint8_t *init;	 /* size bytes or NULL */
	struct aq_ptx_reloc *relocs;
	uint32_t n_relocs;
	uint32_t line;
};

/* A virtual register; registers of a function are numbered over all its scopes. Those of a range %r<100> exist once they are named. */
struct aq_ptx_reg {
	const char *name;
	enum aq_ptx_type type;
	uint8_t vec; /* .reg .v4 .f32: 4, else 1 */
};

enum aq_ptx_operand_kind {
	AQ_PTX_OPERAND_NONE = 0,
	AQ_PTX_OPERAND_REG, /* reg (index), optional element .x .y .z .w / .r .g .b .a in elem */
	AQ_PTX_OPERAND_IMM, /* imm, or f64 bits: see imm_kind */
	AQ_PTX_OPERAND_SPECIAL, /* name: "tid", elem 0..3 (.x .y .z .w), or -1: "laneid", "clock64", "%" dropped */
	AQ_PTX_OPERAND_VAR,    /* var + addend: the address of a variable in its space */
	AQ_PTX_OPERAND_FUNC,   /* func index, call targets and function addresses */
	AQ_PTX_OPERAND_LABEL,  /* label index */
	AQ_PTX_OPERAND_ADDR,   /* [base + addend]: base is reg, var or nothing */
	AQ_PTX_OPERAND_VECTOR, /* {a, b, c, d}: n_sub operands in sub */
	AQ_PTX_OPERAND_SINK,   /* _ */
	AQ_PTX_OPERAND_LIST,   /* (a, b, c): call arguments and return values, in sub */
	AQ_PTX_OPERAND_TEXADDR, /* [tex, {coordinates}], [tex, sampler, {…}]: in sub, the first a VAR, REG or ADDR */
};

enum aq_ptx_imm_kind {
	AQ_PTX_IMM_INT,
	AQ_PTX_IMM_F32,
	AQ_PTX_IMM_F64
};

struct aq_ptx_operand {
	enum aq_ptx_operand_kind kind;
	bool negated;  /* !p, and -reg where PTX allows it */
	int8_t elem;   /* -1: the whole register */
	bool has_pair; /* a|b: the second destination is in sub[0] */
	enum aq_ptx_imm_kind imm_kind;
	int32_t reg;		      /* REG and ADDR with a register base, else -1 */
	int32_t func;		      /* FUNC */
	int32_t label;		      /* LABEL */
	const char *name;	      /* SPECIAL */
	const struct aq_ptx_var *var; /* VAR and ADDR with a variable base, else NULL */
	int64_t addend;
	uint64_t imm; /* integer value, IEEE bits of an f32 (0f…) or an f64 (0d…, decimal) */
	struct aq_ptx_operand *sub;
	uint32_t n_sub;
};

#define AQ_PTX_MAX_MODS	    12
#define AQ_PTX_MAX_OPERANDS 8

struct aq_ptx_insn {
	const char *name; /* "ld", "fma", "setp": without modifiers */
	const char *mods
		[AQ_PTX_MAX_MODS]; /* "global", "v4", "f32": without dots; "shared::cta" as written */
	uint8_t n_mods;
	uint8_t n_operands;
	bool has_guard, guard_negated;
	int32_t guard; /* register index */
	uint32_t line;
	struct aq_ptx_operand operands[AQ_PTX_MAX_OPERANDS];
};

/* A label, and tables that hang at one: .branchtargets, .calltargets and .callprototype declarations. */
struct aq_ptx_label {
	const char *name;
	uint32_t insn;	  /* index of the instruction behind it; == n_insns at the end */
	int32_t *targets; /* .branchtargets: labels; .calltargets: functions */
	uint32_t n_targets;
	int32_t prototype; /* .callprototype: index into func[] of a body-less entry, else -1 */
};

struct aq_ptx_func {
	const char *name;
	bool is_entry, is_visible, is_extern, is_weak, has_body, is_noreturn;
	bool is_prototype; /* a .callprototype: named like its label, never a callee */
	struct aq_ptx_var *
		params; /* .param space, offsets assigned; for .func these may be registers: see param_regs */
	uint32_t n_params;
	struct aq_ptx_var *rets;
	uint32_t n_rets;
	int32_t *
		param_regs; /* .func with .reg parameters: register index per parameter or -1; NULL when none */
	int32_t *ret_regs;
	uint32_t param_bytes;
	struct aq_ptx_reg *regs;
	uint32_t n_regs;
	struct aq_ptx_var **
		vars; /* local, shared and param variables declared inside, all scopes; stable pointers */
	uint32_t n_vars;
	struct aq_ptx_insn *insns;
	uint32_t n_insns;
	struct aq_ptx_label *labels;
	uint32_t n_labels;
	uint32_t maxntid[3], reqntid[3], maxnreg, minnctapersm; /* 0: not given */
	uint32_t line;
};

struct aq_ptx_module {
	unsigned version_major, version_minor;
	unsigned target;	  /* 70 for sm_70; sm_90a: 90 */
	unsigned address_size;	  /* 32 or 64 */
	struct aq_ptx_var **vars; /* module scope; stable pointers */
	uint32_t n_vars;
	struct aq_ptx_func *funcs; /* a declaration and its definition are one entry */
	uint32_t n_funcs;
};

/*
 * Parse `len` bytes of PTX (no final NUL needed; one at the end is ignored). On failure the log gets "line N: …" lines and the result is NULL.
 * Sizes are bounded: text 64 MiB, nesting 256, 1 << 20 registers and instructions per function, variables 1 GiB. Free with aq_ptx_free().
 */
struct aq_ptx_module *aq_ptx_parse(const char *text, size_t len, struct aq_strbuf *log);
void aq_ptx_free(struct aq_ptx_module *m);
