/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering of one function: what lower*.c share. */
#pragma once

#include "gpud/soft/exec/code.h"
#include "gpud/soft/exec/flow.h"

#define AQ_N_SCRATCH	  16 /* rows of 64 bits for values between the insns of one instruction */
#define AQ_N_SCRATCH_PRED 4
#define AQ_MAX_ERRORS	  20

struct aq_pool_key {
	uint64_t value;
	uint32_t symbol_plus1; /* value is an addend to this symbol's address */
	uint8_t class;	       /* enum aq_row_class */
	uint32_t offset;
};

struct aq_lower {
	struct aq_code *code;
	struct aq_func *f;
	const struct aq_ptx_func *pf;
	struct aq_strbuf *log;
	uint32_t *n_errors;
	bool failed;
	bool no_memory;
	bool is_kernel;

	struct aq_flow flow;
	struct aq_rows rows;
	uint32_t *block_pc; /* first insn of each block; UINT32_MAX: not laid out yet */
	uint32_t cap_code, cap_pool, cap_calls, cap_switches, cap_patches;

	struct aq_pool_key *keys; /* open hash */
	uint32_t n_keys, cap_keys;

	/* Layout of a frame */
	uint32_t rows64, rows32, scratch, area, preds, scratch_preds;
	uint32_t *
		formal_local; /* of each parameter, then of each return value: place in local memory, if its address
				   is taken, else UINT32_MAX */

	/* The instruction at work */
	const struct aq_ptx_insn *in;
	uint32_t guard, guard_flip;
	uint32_t n_scratch, n_scratch_pred;
};

/* lower.c: refuse the instruction; always false. */
bool aq_lower_refuse(struct aq_lower *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
bool aq_lower_no_memory(struct aq_lower *l);

/* Append an insn with guard and line filled in; NULL: out of memory. */
struct aq_insn *aq_emit(struct aq_lower *l, enum aq_insn_kind kind);
struct aq_insn *aq_emit_op(struct aq_lower *l, aq_op_fn fn);
/* The same, for all lanes of the group whatever the guard says: for values that only this instruction sees. */
struct aq_insn *aq_emit_free(struct aq_lower *l, enum aq_insn_kind kind);

/* Rows */
bool aq_scratch(struct aq_lower *l, uint32_t *ret);
bool aq_scratch_pred(struct aq_lower *l, uint32_t *ret);
bool aq_pool_value(struct aq_lower *l, enum aq_row_class class, uint64_t value, uint32_t *ret);
bool aq_pool_symbol(struct aq_lower *l, enum aq_row_class class, uint32_t symbol, int64_t addend,
		    uint32_t *ret);
uint32_t aq_reg_row(const struct aq_lower *l, int32_t reg, int8_t elem);
/* Type of a register operand, whole or element. */
enum aq_ptx_type aq_reg_type(const struct aq_lower *l, const struct aq_ptx_operand *op);

/* A source of `type`; `relaxed`: registers may be wider. Emits what makes the row first. */
bool aq_src(struct aq_lower *l, const struct aq_ptx_operand *op, enum aq_ptx_type type,
	    bool relaxed, uint32_t *ret);
/* A source register or constant whose row is 32 or 64 bits wide as the register has it (addresses). */
bool aq_src_any(struct aq_lower *l, const struct aq_ptx_operand *op, uint32_t *ret, bool *ret_is64);
bool aq_src_pred(struct aq_lower *l, const struct aq_ptx_operand *op, uint32_t *ret);
/*
 * A destination of `type`. With `relaxed` the register may be wider: *ret is then the row to write, and aq_dst_finish() emits what extends it into
 * the register.
 */
struct aq_dst {
	uint32_t row;	  /* to write */
	uint32_t reg_row; /* of the register */
	enum aq_ptx_type type, reg_type;
};
bool aq_dst(struct aq_lower *l, const struct aq_ptx_operand *op, enum aq_ptx_type type,
	    bool relaxed, bool may_sink, struct aq_dst *ret);
bool aq_dst_finish(struct aq_lower *l, const struct aq_dst *d);
bool aq_dst_row(struct aq_lower *l, const struct aq_ptx_operand *op, enum aq_ptx_type type,
		uint32_t *ret);
bool aq_imm(struct aq_lower *l, const struct aq_ptx_operand *op, uint64_t *ret);

bool aq_has_mod(const struct aq_ptx_insn *in, const char *mod);
/* Index of a parameter (is_ret: of a return value) of this function, or -1. */
int aq_formal_index(const struct aq_lower *l, const struct aq_ptx_var *v, bool *ret_is_ret);

/* What lowers an instruction of this name; false: refused or no memory. */
struct aq_lower_part {
	const char *name;
	bool (*lower)(struct aq_lower *l);
};

/* Each file's instructions, ended by a NULL name. */
extern const struct aq_lower_part aq_lower_memory_parts[];  /* lower-mem.c */
extern const struct aq_lower_part aq_lower_control_parts[]; /* lower-ctl.c */
extern const struct aq_lower_part aq_lower_warp_parts[];    /* lower-warp.c */

/* Names of all instructions that lowering takes in some form, arithmetic ones apart; NULL behind the last. For tests. */
const char *aq_lower_name(unsigned index);

/* Lowers l->in if it is one of its own: 1 done, 0 not mine, -1 refused or no memory. */
int aq_lower_mov(struct aq_lower *l);			    /* lower-mov.c */
bool aq_lower_spill_formals(struct aq_lower *l, bool rets); /* lower-mem.c */
uint32_t aq_target(const struct aq_lower *l, int32_t label);

/* layout.c: places of everything in the frame. 0, -EINVAL with the reason logged, or -ENOMEM. */
int aq_lower_layout(struct aq_lower *l);

/* Lower the body of func into code->funcs. 0, -EINVAL (reasons are in the log) or -ENOMEM. */
int aq_lower_func(struct aq_code *code, uint32_t func, struct aq_strbuf *log, uint32_t *n_errors);

/* special.c: a special register by its name without %; elem as in the operand. 0: there is none. */
unsigned aq_special_find(const char *name, int8_t elem, enum aq_ptx_type *ret_type);
/* The op that fills row dst with special register imm. */
void aq_op_special(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
