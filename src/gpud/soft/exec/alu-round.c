/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is rounded toward zero (.rz), down (.rm) or up (.rp): the operations of alu-float.h and the conversions that lose bits, run with the
 * processor's rounding mode changed. This file is compiled with -frounding-math.
 *
 * The compiler does not know of modes, but it cannot move the work out of its place between the two calls: sources and results are in
 * memory that, for all it knows, fesetround() reads and writes.
 */
#include "gpud/soft/exec/alu-float.h"

#include <fenv.h>

/* Everything else runs, and expects to run, with rounding to nearest. */
static void with_rounding(int mode, aq_alu_fn fn, struct aq_regs *r, const struct aq_insn *i,
			  uint32_t mask)
{
	(void)fesetround(mode);
	fn(r, i, mask);
	(void)fesetround(FE_TONEAREST);
}

#define IN_MODE(prefix, mode, name)                                                            \
	static void prefix##_##name(struct aq_regs *r, const struct aq_insn *i, uint32_t mask) \
	{                                                                                      \
		with_rounding(mode, name, r, i, mask);                                         \
	}

#define DIRECTED(name)                   \
	IN_MODE(rz, FE_TOWARDZERO, name) \
	IN_MODE(rm, FE_DOWNWARD, name)   \
	IN_MODE(rp, FE_UPWARD, name)

AQ_ROUNDED_OPS

#define DIRECTED_ALL(op)       \
	DIRECTED(op##_f32)     \
	DIRECTED(op##_ftz_f32) \
	DIRECTED(op##_f64)

#define DIRECTED_SAT(op)       \
	DIRECTED_ALL(op)       \
	DIRECTED(op##_sat_f32) \
	DIRECTED(op##_ftz_sat_f32)

DIRECTED_SAT(add)
DIRECTED_SAT(sub)
DIRECTED_SAT(mul)
DIRECTED_SAT(fma)
DIRECTED_ALL(div)
DIRECTED_ALL(rcp)
DIRECTED_ALL(sqrt)

/* Results of integers are never subnormal, so .ftz changes nothing there. */
#define FROM_INTEGER(F, T)                                              \
	ALU1(cvt_##F##_##T, F, T, (val_##F)x)                           \
	ALU1_IO(cvt_sat_##F##_##T, F, T, ALU_KEEP, F##_sat, (val_##F)x) \
	DIRECTED(cvt_##F##_##T)                                         \
	DIRECTED(cvt_sat_##F##_##T)

FROM_INTEGER(f32, s32)
FROM_INTEGER(f32, u32)
FROM_INTEGER(f32, s64)
FROM_INTEGER(f32, u64)
FROM_INTEGER(f64, s64)
FROM_INTEGER(f64, u64)

ALU1_IO(cvt_f32_f64, f32, f64, ALU_KEEP, f32_nan, (float)x)
ALU1_IO(cvt_ftz_f32_f64, f32, f64, ALU_KEEP, f32_flush_nan, (float)x)
ALU1_IO(cvt_sat_f32_f64, f32, f64, ALU_KEEP, f32_sat, (float)x)
ALU1_IO(cvt_ftz_sat_f32_f64, f32, f64, ALU_KEEP, f32_flush_sat, (float)x)
DIRECTED(cvt_f32_f64)
DIRECTED(cvt_ftz_f32_f64)
DIRECTED(cvt_sat_f32_f64)
DIRECTED(cvt_ftz_sat_f32_f64)

/* The three modes of one operation. */
#define ROWS_SAT(shape32, shape64, op)                                                  \
	F32_ROWS_SAT("rz", shape32, rz_##op), F32_ROWS_SAT("rm", shape32, rm_##op),     \
		F32_ROWS_SAT("rp", shape32, rp_##op), F64_ROWS("rz", shape64, rz_##op), \
		F64_ROWS("rm", shape64, rm_##op), F64_ROWS("rp", shape64, rp_##op)

#define ROWS(shape32, shape64, op)                                                  \
	F32_ROWS("rz", shape32, rz_##op), F32_ROWS("rm", shape32, rm_##op),         \
		F32_ROWS("rp", shape32, rp_##op), F64_ROWS("rz", shape64, rz_##op), \
		F64_ROWS("rm", shape64, rm_##op), F64_ROWS("rp", shape64, rp_##op)

static const struct aq_alu_row add_rows[] = { ROWS_SAT("f:ff", "g:gg", add) };
static const struct aq_alu_row sub_rows[] = { ROWS_SAT("f:ff", "g:gg", sub) };
static const struct aq_alu_row mul_rows[] = { ROWS_SAT("f:ff", "g:gg", mul) };
static const struct aq_alu_row fma_rows[] = { ROWS_SAT("f:fff", "g:ggg", fma) };
static const struct aq_alu_row div_rows[] = { ROWS("f:ff", "g:gg", div) };
static const struct aq_alu_row rcp_rows[] = { ROWS("f:f", "g:g", rcp) };
static const struct aq_alu_row sqrt_rows[] = { ROWS("f:f", "g:g", sqrt) };

/* clang-format off */
#define CVT_ROWS(rnd, text, shape, op) { #rnd "." text, shape, rnd##_cvt_##op }
/* clang-format on */

#define CVT_ROWS3(text, shape, op) \
	CVT_ROWS(rz, text, shape, op), CVT_ROWS(rm, text, shape, op), CVT_ROWS(rp, text, shape, op)

#define CVT_F32_ROWS(from, letter, T)                       \
	CVT_ROWS3("ftz?.f32." from, "*f:" letter, f32_##T), \
		CVT_ROWS3("ftz?.sat.f32." from, "*f:" letter, sat_f32_##T)

#define CVT_F64_ROWS(from, letter, T)                  \
	CVT_ROWS3("f64." from, "*g:" letter, f64_##T), \
		CVT_ROWS3("sat.f64." from, "*g:" letter, sat_f64_##T)

static const struct aq_alu_row cvt_rows[] = {
	CVT_F32_ROWS("s32", "w", s32),
	CVT_F32_ROWS("u32", "w", u32),
	CVT_F32_ROWS("s64", "d", s64),
	CVT_F32_ROWS("u64", "d", u64),
	CVT_F64_ROWS("s64", "d", s64),
	CVT_F64_ROWS("u64", "d", u64),
	CVT_ROWS3("f32.f64", "*f:g", f32_f64),
	CVT_ROWS3("ftz.f32.f64", "*f:g", ftz_f32_f64),
	CVT_ROWS3("sat.f32.f64", "*f:g", sat_f32_f64),
	CVT_ROWS3("ftz.sat.f32.f64", "*f:g", ftz_sat_f32_f64),
};

const struct aq_alu_group AQ_ISA(aq_alu_groups_round)[] = {
	AQ_ALU_GROUP("add", add_rows), AQ_ALU_GROUP("sub", sub_rows),
	AQ_ALU_GROUP("mul", mul_rows), AQ_ALU_GROUP("fma", fma_rows),
	AQ_ALU_GROUP("mad", fma_rows), AQ_ALU_GROUP("div", div_rows),
	AQ_ALU_GROUP("rcp", rcp_rows), AQ_ALU_GROUP("sqrt", sqrt_rows),
	AQ_ALU_GROUP("cvt", cvt_rows), { 0 },
};
