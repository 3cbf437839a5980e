/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lowered instruction and the register file it works on; the border between lowering (lower*.c) and the arithmetic handlers (alu*.c).
 *
 * Registers are rows of 32 lanes. Integer and float registers of 8, 16 and 32 bits are rows of uint32_t, 64-bit ones rows of uint64_t;
 * a predicate is one uint32_t, bit l for lane l. Bits of a row above the width of an operand's type are unspecified: a handler
 * ignores them in its sources and may leave anything there in its destination. (Where the register is wider than the type, lowering
 * adds what extends it.) f16 lives in 16 low bits, f16x2 in 32; floats are kept as bits.
 *
 * An operand is a byte offset of a row in the current frame, or, with bit 0 set, in the pool of constants, where immediates are
 * broadcast over a row of their own. A handler sees no difference, no negated operands, no width mismatch.
 *
 * Rows are 64-byte aligned. Rows of one instruction are the same row or disjoint, so a handler may read lane l and write lane l in one
 * loop (`#pragma GCC ivdep`), also when destination and source are one row. A destination may be a source of the same instruction; two
 * destinations never are one row.
 */
#pragma once

#include "gpud/soft/ptx/ptx.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define AQ_LANES	   32
#define AQ_FULL_MASK	   0xffffffffu
#define AQ_OPERAND_IN_POOL 1u

struct aq_insn;

/* What an arithmetic instruction can reach of its warp. */
struct aq_regs {
	uint8_t *base[2]; /* [0] the frame's rows, [1] the pool */
	uint32_t cc;	  /* carry flag of each lane, for add.cc and its kind */
};

/* Do what `i` says in the lanes of `mask` (never 0); other lanes of the destination keep their value. */
typedef void (*aq_alu_fn)(struct aq_regs *r, const struct aq_insn *i, uint32_t mask);

enum aq_insn_kind {
	AQ_INSN_ALU = 0, /* fn.alu, falls through */
	AQ_INSN_OP,	 /* fn.op: falls through unless it raised the warp's event flag */
	AQ_INSN_BRA,	 /* to target; known to the runner itself */
};

struct aq_warp;
/* Memory, control and everything else that sees the whole warp. */
typedef void (*aq_op_fn)(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);

struct aq_insn {
	union {
		aq_alu_fn alu;
		aq_op_fn op;
	} fn;
	uint32_t dst,
		dst2; /* rows; dst2 is what stands behind | (a predicate, for setp, lop3, shfl) */
	uint32_t a, b, c, d; /* source rows, in the order of the text */
	uint32_t guard;	     /* predicate row, all ones when there is none */
	uint32_t guard_flip; /* ~0 for @!p */
	uint64_t imm; /* the one source that must be a constant: lop3's table; memory: the offset */
	uint32_t target;	  /* control flow: index of an instruction */
	uint32_t line;		  /* of the text */
	uint8_t kind;		  /* enum aq_insn_kind */
	uint8_t space, size, vec; /* memory */
	uint32_t more;		  /* index into a table of the function: calls, vectors, … */
};

/* What lowering has to know of an instruction to build its operands. */
#define AQ_ALU_MAX_SRC 5

struct aq_alu_shape {
	uint8_t dst; /* enum aq_ptx_type of the destination */
	uint8_t dst2; /* of the second destination behind |, or AQ_PTX_NOTYPE when it cannot have one */
	bool sink_dst; /* `_` is allowed as first destination (then dst is a scratch row) */
	uint8_t n_src; /* sources that must be there */
	uint8_t n_opt; /* further ones that may be; absent ones are rows of zeros (predicates: all ones) */
	uint8_t src[AQ_ALU_MAX_SRC]; /* their types, in the order of the text */
	int8_t imm_src; /* index in src of the one that must be an integer constant and goes to insn.imm, not
			   to a row, or -1; the sources behind it take its place in a, b, c, d */
	bool relaxed; /* registers may be wider than the types (cvt); else they must be of the same size */
};

/*
 * The handler of an arithmetic instruction and its shape, found by name, modifiers and number of operands. Types .bX, .uX, .sX and .fX of
 * operands are not told apart beyond their size and beyond how an immediate is converted: F32 and F64 sources take floating constants
 * rounded to nearest even and integers converted by value; all others take the integer or the floating constant's bits.
 * NULL: not an arithmetic instruction, or a combination that does not exist or is not supported; then *ret_why is a static text or NULL
 * ("not supported" says it all). ret_shape is untouched on failure.
 *
 * `mov` here is register or immediate to register of one type; vectors, special registers and addresses are lowered elsewhere.
 */
aq_alu_fn aq_alu_select(const struct aq_ptx_insn *in, struct aq_alu_shape *ret_shape,
			const char **ret_why);

/*
 * The handlers are built once for the baseline of the architecture and once for a newer level; aq_alu_select() is a dispatcher (isa.c) that
 * asks the one that fits the machine. So alu*.c define AQ_ISA(aq_alu_select) and wrap every other non-static name in AQ_ISA() as well.
 */
#define AQ_ISA_CAT_(name, suffix) name##_##suffix
#define AQ_ISA_CAT(name, suffix)  AQ_ISA_CAT_(name, suffix)
#ifdef AQ_ISA_SUFFIX
#	define AQ_ISA(name) AQ_ISA_CAT(name, AQ_ISA_SUFFIX)
#else
#	define AQ_ISA(name) AQ_ISA_CAT(name, base)
#endif

aq_alu_fn aq_alu_select_base(const struct aq_ptx_insn *in, struct aq_alu_shape *ret_shape,
			     const char **ret_why);
aq_alu_fn aq_alu_select_v3(const struct aq_ptx_insn *in, struct aq_alu_shape *ret_shape,
			   const char **ret_why);

/* Rows, for reading and writing. */
static inline void *aq_row(const struct aq_regs *r, uint32_t operand)
{
	return __builtin_assume_aligned(r->base[operand & AQ_OPERAND_IN_POOL] +
						(operand & ~AQ_OPERAND_IN_POOL),
					64);
}

static inline uint32_t *aq_row32(const struct aq_regs *r, uint32_t operand)
{
	return (uint32_t *)aq_row(r, operand);
}

static inline uint64_t *aq_row64(const struct aq_regs *r, uint32_t operand)
{
	return (uint64_t *)aq_row(r, operand);
}

/* Predicates are packed, 4 bytes each. */
static inline uint32_t *aq_pred(const struct aq_regs *r, uint32_t operand)
{
	return (uint32_t *)(void *)(r->base[operand & AQ_OPERAND_IN_POOL] +
				    (operand & ~AQ_OPERAND_IN_POOL));
}

static inline void aq_pred_store(const struct aq_regs *r, uint32_t operand, uint32_t value,
				 uint32_t mask)
{
	uint32_t *p = aq_pred(r, operand);

	*p = (*p & ~mask) | (value & mask);
}

/* All 32 results are in v (which may be anything where mask is 0): keep those of mask. v must not overlap the row partially. */
static inline void aq_store32(const struct aq_regs *r, uint32_t operand, const uint32_t *v,
			      uint32_t mask)
{
	uint32_t *d = aq_row32(r, operand);

	if (mask == AQ_FULL_MASK) {
		memcpy(d, v, AQ_LANES * sizeof(*d));
		return;
	}
	for (int l = 0; l < AQ_LANES; l++)
		d[l] = mask >> l & 1 ? v[l] : d[l];
}

static inline void aq_store64(const struct aq_regs *r, uint32_t operand, const uint64_t *v,
			      uint32_t mask)
{
	uint64_t *d = aq_row64(r, operand);

	if (mask == AQ_FULL_MASK) {
		memcpy(d, v, AQ_LANES * sizeof(*d));
		return;
	}
	for (int l = 0; l < AQ_LANES; l++)
		d[l] = mask >> l & 1 ? v[l] : d[l];
}
