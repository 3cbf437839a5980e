/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons: setp set. Each comparison is one function that returns a bit for each lane; small ones behind it say what becomes of them. */
#include "gpud/soft/exec/alu-float.h"

#define BITS_OF_LANES                                                                            \
	{                                                                                        \
		1u << 0, 1u << 1, 1u << 2, 1u << 3, 1u << 4, 1u << 5, 1u << 6, 1u << 7, 1u << 8, \
			1u << 9, 1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,     \
			1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22,    \
			1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29,    \
			1u << 30, 1u << 31                                                       \
	}

/* As wide as what is compared, so that the loop has one width: that is what vectorises. */
_Alignas(64) static const uint32_t bit32[AQ_LANES] = BITS_OF_LANES;
_Alignas(64) static const uint64_t bit64[AQ_LANES] = BITS_OF_LANES;

#define COMPARE(name, T, W, in, expr)                                                     \
	static __attribute__((noinline)) uint32_t name(const struct aq_regs *r,           \
						       const struct aq_insn *i)           \
	{                                                                                 \
		ALU_SRC(pa, T, a)                                                         \
		ALU_SRC(pb, T, b)                                                         \
		uint##W##_t set = 0;                                                      \
		AQ_EACH_LANE                                                              \
		{                                                                         \
			const val_##T x = (val_##T)(in(pa[l])), y = (val_##T)(in(pb[l])); \
			set |= (expr) ? bit##W[l] : 0;                                    \
		}                                                                         \
		return (uint32_t)set;                                                     \
	}

#define COMPARE_EQUAL(T, W)                     \
	COMPARE(eq_##T, T, W, ALU_KEEP, x == y) \
	COMPARE(ne_##T, T, W, ALU_KEEP, x != y)

#define COMPARE_ORDER(T, W)                     \
	COMPARE(lt_##T, T, W, ALU_KEEP, x < y)  \
	COMPARE(le_##T, T, W, ALU_KEEP, x <= y) \
	COMPARE(gt_##T, T, W, ALU_KEEP, x > y)  \
	COMPARE(ge_##T, T, W, ALU_KEEP, x >= y)

/* eq ne lt le gt ge are false when an operand is NaN; the others, which end in u, true. */
#define COMPARE_FLOAT(S, T, W, in)                    \
	COMPARE(eq_##S, T, W, in, x == y)             \
	COMPARE(ne_##S, T, W, in, x<y || x> y)        \
	COMPARE(lt_##S, T, W, in, x < y)              \
	COMPARE(le_##S, T, W, in, x <= y)             \
	COMPARE(gt_##S, T, W, in, x > y)              \
	COMPARE(ge_##S, T, W, in, x >= y)             \
	COMPARE(equ_##S, T, W, in, !(x < y || x > y)) \
	COMPARE(neu_##S, T, W, in, x != y)            \
	COMPARE(ltu_##S, T, W, in, !(x >= y))         \
	COMPARE(leu_##S, T, W, in, !(x > y))          \
	COMPARE(gtu_##S, T, W, in, !(x <= y))         \
	COMPARE(geu_##S, T, W, in, !(x < y))          \
	COMPARE(num_##S, T, W, in, x == x && y == y)  \
	COMPARE(nan_##S, T, W, in, x != x || y != y)

COMPARE_EQUAL(u16, 32)
COMPARE_EQUAL(u32, 32)
COMPARE_EQUAL(u64, 64)
COMPARE_ORDER(u16, 32)
COMPARE_ORDER(s16, 32)
COMPARE_ORDER(u32, 32)
COMPARE_ORDER(s32, 32)
COMPARE_ORDER(u64, 64)
COMPARE_ORDER(s64, 64)
COMPARE_FLOAT(f32, f32, 32, ALU_KEEP)
COMPARE_FLOAT(ftz_f32, f32, 32, f32_flush)
COMPARE_FLOAT(f64, f64, 64, ALU_KEEP)

/* All of them: function, text of the comparison, text of .ftz, text and letter of the operands' type. */
#define EACH_EQUAL(X, T, text, letter)    \
	X(eq_##T, "eq", "", text, letter) \
	X(ne_##T, "ne", "", text, letter)

#define EACH_SIGNED(X, T, text, letter)   \
	X(lt_##T, "lt", "", text, letter) \
	X(le_##T, "le", "", text, letter) \
	X(gt_##T, "gt", "", text, letter) \
	X(ge_##T, "ge", "", text, letter)

#define EACH_UNSIGNED(X, T, text, letter)    \
	X(lt_##T, "lt/lo", "", text, letter) \
	X(le_##T, "le/ls", "", text, letter) \
	X(gt_##T, "gt/hi", "", text, letter) \
	X(ge_##T, "ge/hs", "", text, letter)

#define EACH_FLOAT(X, S, ftz, text, letter)  \
	X(eq_##S, "eq", ftz, text, letter)   \
	X(ne_##S, "ne", ftz, text, letter)   \
	X(lt_##S, "lt", ftz, text, letter)   \
	X(le_##S, "le", ftz, text, letter)   \
	X(gt_##S, "gt", ftz, text, letter)   \
	X(ge_##S, "ge", ftz, text, letter)   \
	X(equ_##S, "equ", ftz, text, letter) \
	X(neu_##S, "neu", ftz, text, letter) \
	X(ltu_##S, "ltu", ftz, text, letter) \
	X(leu_##S, "leu", ftz, text, letter) \
	X(gtu_##S, "gtu", ftz, text, letter) \
	X(geu_##S, "geu", ftz, text, letter) \
	X(num_##S, "num", ftz, text, letter) \
	X(nan_##S, "nan", ftz, text, letter)

#define EACH_COMPARISON(X)                         \
	EACH_EQUAL(X, u16, "b16/u16/s16", "h")     \
	EACH_EQUAL(X, u32, "b32/u32/s32", "w")     \
	EACH_EQUAL(X, u64, "b64/u64/s64", "d")     \
	EACH_UNSIGNED(X, u16, "u16", "h")          \
	EACH_UNSIGNED(X, u32, "u32", "w")          \
	EACH_UNSIGNED(X, u64, "u64", "d")          \
	EACH_SIGNED(X, s16, "s16", "h")            \
	EACH_SIGNED(X, s32, "s32", "w")            \
	EACH_SIGNED(X, s64, "s64", "d")            \
	EACH_FLOAT(X, f32, "", "f32", "f")         \
	EACH_FLOAT(X, ftz_f32, "ftz.", "f32", "f") \
	EACH_FLOAT(X, f64, "", "f64", "g")

/* setp: t OP c into the first predicate, !t OP c into the second. */
#define SETP(name, compare, t_result, not_result)                                                  \
	static void setp##name##compare(struct aq_regs *r, const struct aq_insn *i, uint32_t mask) \
	{                                                                                          \
		const uint32_t t = compare(r, i);                                                  \
		aq_pred_store(r, i->dst, t_result, mask);                                          \
	}                                                                                          \
	static void setp_both##name##compare(struct aq_regs *r, const struct aq_insn *i,           \
					     uint32_t mask)                                        \
	{                                                                                          \
		const uint32_t t = compare(r, i), p = t_result, q = not_result;                    \
		aq_pred_store(r, i->dst, p, mask);                                                 \
		aq_pred_store(r, i->dst2, q, mask);                                                \
	}

#define C *aq_pred(r, i->c)

/* set: all ones or 1.0f where true, else 0. */
static __attribute__((noinline)) void store_true(const struct aq_regs *r, const struct aq_insn *i,
						 uint32_t set, uint32_t one, uint32_t mask)
{
	uint32_t *d = aq_row32(r, i->dst);

	for (int l = 0; l < AQ_LANES; l++)
		d[l] = mask & bit32[l] ? (set & bit32[l] ? one : 0) : d[l];
}

#define ALL_ONES UINT32_MAX
#define ONE_F32	 0x3f800000u

#define SET(name, compare, result)                                                     \
	static void set_int##name##compare(struct aq_regs *r, const struct aq_insn *i, \
					   uint32_t mask)                              \
	{                                                                              \
		const uint32_t t = compare(r, i);                                      \
		store_true(r, i, result, ALL_ONES, mask);                              \
	}                                                                              \
	static void set_f32##name##compare(struct aq_regs *r, const struct aq_insn *i, \
					   uint32_t mask)                              \
	{                                                                              \
		const uint32_t t = compare(r, i);                                      \
		store_true(r, i, result, ONE_F32, mask);                               \
	}

#define HANDLERS(compare, ...)                  \
	SETP(_, compare, t, ~t)                 \
	SETP(_and_, compare, (t & C), (~t & C)) \
	SETP(_or_, compare, (t | C), (~t | C))  \
	SETP(_xor_, compare, (t ^ C), (~t ^ C)) \
	SET(_, compare, t)                      \
	SET(_and_, compare, (t & C))            \
	SET(_or_, compare, (t | C))             \
	SET(_xor_, compare, (t ^ C))

EACH_COMPARISON(HANDLERS)

#define SETP_ROWS(compare, text, ftz, type, letter)                                            \
	{ text "." ftz type, "p:" letter letter, setp_##compare },                             \
		{ text "." ftz type, "_p|p:" letter letter, setp_both_##compare },             \
		{ text ".and." ftz type, "p:" letter letter "p", setp_and_##compare },         \
		{ text ".and." ftz type, "_p|p:" letter letter "p", setp_both_and_##compare }, \
		{ text ".or." ftz type, "p:" letter letter "p", setp_or_##compare },           \
		{ text ".or." ftz type, "_p|p:" letter letter "p", setp_both_or_##compare },   \
		{ text ".xor." ftz type, "p:" letter letter "p", setp_xor_##compare },         \
		{ text ".xor." ftz type, "_p|p:" letter letter "p", setp_both_xor_##compare },

#define SET_ROWS(compare, text, ftz, type, letter)                                                 \
	{ text "." ftz "u32/s32." type, "w:" letter letter, set_int_##compare },                   \
		{ text "." ftz "f32." type, "f:" letter letter, set_f32_##compare },               \
		{ text ".and." ftz "u32/s32." type, "w:" letter letter "p",                        \
		  set_int_and_##compare },                                                         \
		{ text ".and." ftz "f32." type, "f:" letter letter "p", set_f32_and_##compare },   \
		{ text ".or." ftz "u32/s32." type, "w:" letter letter "p", set_int_or_##compare }, \
		{ text ".or." ftz "f32." type, "f:" letter letter "p", set_f32_or_##compare },     \
		{ text ".xor." ftz "u32/s32." type, "w:" letter letter "p",                        \
		  set_int_xor_##compare },                                                         \
		{ text ".xor." ftz "f32." type, "f:" letter letter "p", set_f32_xor_##compare },

static const struct aq_alu_row setp_rows[] = { EACH_COMPARISON(SETP_ROWS) };
static const struct aq_alu_row set_rows[] = { EACH_COMPARISON(SET_ROWS) };

const struct aq_alu_group AQ_ISA(aq_alu_groups_compare)[] = {
	AQ_ALU_GROUP("setp", setp_rows),
	AQ_ALU_GROUP("set", set_rows),
	{ 0 },
};
