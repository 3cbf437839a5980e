/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of arithmetic handlers (alu-*.c) share: the loops over the lanes of a row and the rows of the table by which
 * aq_alu_select() finds a handler.
 *
 * A handler is written as one expression of the sources x, y, z, w of a lane:
 *
 *	ALU2(sub_u32, u32, u32, u32, x - y)
 *
 * The macro makes of it a loop over all 32 lanes, which the compiler turns into vector code; no expression may therefore trap, whatever
 * its sources are. When some lanes are off, the loop works on a scratch row and the active lanes are merged in.
 *
 * Integer expressions must not overflow a signed type: wrapping arithmetic is done unsigned, and 16-bit sources are widened by hand
 * where the promotion to int would overflow.
 */
#pragma once

#include "gpud/soft/exec/insn.h"

#include <stdbool.h>
#include <stdint.h>

/* One line of the table. */
struct aq_alu_row {
	/*
	 * The modifiers it stands for: segments divided by dots, as in the text; "a/b" is either, "a?" may be left out. A modifier of
	 * the instruction belongs to the first segment that takes it.
	 */
	const char *mods;
	/*
	 * Operands: destination, "|" and the second one, ":", sources; b h w d are 8 to 64 bits (B H W: signed), f g are f32 and f64, p is a predicate,
	 * # a constant. Further: "*" in front: registers may be wider; "_" in front: the destination may be a sink. A line with "|" is
	 * only for instructions that have it, one without only for those that have not.
	 */
	const char *shape;
	aq_alu_fn fn;
};

/* The lines of one instruction in one file; several files may have lines for one instruction (add is in alu-int.c and in alu-float.c). */
struct aq_alu_group {
	const char *name;
	const struct aq_alu_row *rows;
	unsigned n_rows;
};

#define AQ_ALU_GROUP(name, rows)                             \
	{                                                    \
		name, rows, sizeof(rows) / sizeof((rows)[0]) \
	}

/* Each file's groups, ended by a NULL name. */
extern const struct aq_alu_group AQ_ISA(aq_alu_groups_int)[];
extern const struct aq_alu_group AQ_ISA(aq_alu_groups_carry)[];
extern const struct aq_alu_group AQ_ISA(aq_alu_groups_bits)[];
extern const struct aq_alu_group AQ_ISA(aq_alu_groups_logic)[];
extern const struct aq_alu_group AQ_ISA(aq_alu_groups_compare)[];
extern const struct aq_alu_group AQ_ISA(aq_alu_groups_convert)[];
extern const struct aq_alu_group AQ_ISA(aq_alu_groups_float)[];
extern const struct aq_alu_group AQ_ISA(aq_alu_groups_round)[];
extern const struct aq_alu_group AQ_ISA(aq_alu_groups_special)[];

/*
 * The table, line by line, for the tests: false when index is behind its end. In all levels of the architecture it is the same.
 */
bool AQ_ISA(aq_alu_line)(unsigned index, const char **ret_name, const char **ret_mods);

/*
 * row_T is what an element of a row of type T is stored as, val_T what an expression sees. Floats are read in place: rows have no
 * type of their own.
 */
typedef uint32_t row_u8, row_s8, row_u16, row_s16, row_u32, row_s32;
typedef uint64_t row_u64, row_s64;
typedef float row_f32 __attribute__((may_alias));
typedef double row_f64 __attribute__((may_alias));
typedef uint8_t val_u8;
typedef int8_t val_s8;
typedef uint16_t val_u16;
typedef int16_t val_s16;
typedef uint32_t val_u32;
typedef int32_t val_s32;
typedef uint64_t val_u64;
typedef int64_t val_s64;
typedef float val_f32;
typedef double val_f64;

/* Lanes do not depend on each other: see the head of insn.h. */
#ifdef __clang__
#	define AQ_EACH_LANE \
		_Pragma("clang loop vectorize(assume_safety)") for (int l = 0; l < AQ_LANES; l++)
#else
#	define AQ_EACH_LANE _Pragma("GCC ivdep") for (int l = 0; l < AQ_LANES; l++)
#endif

#define ALU_BEGIN(name, D)                                                                \
	static void name(struct aq_regs *r, const struct aq_insn *i, uint32_t mask)       \
	{                                                                                 \
		_Alignas(64) row_##D scratch[AQ_LANES];                                   \
		row_##D *at = mask == AQ_FULL_MASK ? aq_row(r, i->dst) : (void *)scratch; \
		row_##D *d = __builtin_assume_aligned(at, 64);

#define ALU_SRC(p, T, field) const row_##T *p = aq_row(r, i->field);

#define ALU_END(D)                                                                            \
	if (mask != AQ_FULL_MASK) {                                                           \
		if (sizeof(row_##D) == 8)                                                     \
			aq_store64(r, i->dst, (const uint64_t *)(const void *)scratch, mask); \
		else                                                                          \
			aq_store32(r, i->dst, (const uint32_t *)(const void *)scratch, mask); \
	}                                                                                     \
	}

/* `in` is applied to every source, `out` to the result. */
#define ALU1_IO(name, D, A, in, out, expr)              \
	ALU_BEGIN(name, D)                              \
	ALU_SRC(pa, A, a)                               \
	AQ_EACH_LANE                                    \
	{                                               \
		const val_##A x = (val_##A)(in(pa[l])); \
		d[l] = (row_##D)(val_##D)(out((expr))); \
	}                                               \
	ALU_END(D)

#define ALU2_IO(name, D, A, B, in, out, expr)           \
	ALU_BEGIN(name, D)                              \
	ALU_SRC(pa, A, a)                               \
	ALU_SRC(pb, B, b)                               \
	AQ_EACH_LANE                                    \
	{                                               \
		const val_##A x = (val_##A)(in(pa[l])); \
		const val_##B y = (val_##B)(in(pb[l])); \
		d[l] = (row_##D)(val_##D)(out((expr))); \
	}                                               \
	ALU_END(D)

#define ALU3_IO(name, D, A, B, C, in, out, expr)        \
	ALU_BEGIN(name, D)                              \
	ALU_SRC(pa, A, a)                               \
	ALU_SRC(pb, B, b)                               \
	ALU_SRC(pc, C, c)                               \
	AQ_EACH_LANE                                    \
	{                                               \
		const val_##A x = (val_##A)(in(pa[l])); \
		const val_##B y = (val_##B)(in(pb[l])); \
		const val_##C z = (val_##C)(in(pc[l])); \
		d[l] = (row_##D)(val_##D)(out((expr))); \
	}                                               \
	ALU_END(D)

#define ALU_KEEP(v)		     (v)
#define ALU1(name, D, A, expr)	     ALU1_IO(name, D, A, ALU_KEEP, ALU_KEEP, expr)
#define ALU2(name, D, A, B, expr)    ALU2_IO(name, D, A, B, ALU_KEEP, ALU_KEEP, expr)
#define ALU3(name, D, A, B, C, expr) ALU3_IO(name, D, A, B, C, ALU_KEEP, ALU_KEEP, expr)

#define ALU4(name, D, A, B, C, W, expr)           \
	ALU_BEGIN(name, D)                        \
	ALU_SRC(pa, A, a)                         \
	ALU_SRC(pb, B, b)                         \
	ALU_SRC(pc, C, c)                         \
	ALU_SRC(pd, W, d)                         \
	AQ_EACH_LANE                              \
	{                                         \
		const val_##A x = (val_##A)pa[l]; \
		const val_##B y = (val_##B)pb[l]; \
		const val_##C z = (val_##C)pc[l]; \
		const val_##W w = (val_##W)pd[l]; \
		d[l] = (row_##D)(val_##D)(expr);  \
	}                                         \
	ALU_END(D)
