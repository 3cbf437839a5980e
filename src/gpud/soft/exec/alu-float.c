/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Float arithmetic rounded to nearest even: add sub mul fma mad div rcp sqrt; and what needs no rounding: abs neg min max copysign testp.
 * The approximations are in alu-special.c.
 */
#include "gpud/soft/exec/alu-float.h"

AQ_ROUNDED_OPS

F32_IO(1, abs_f32, ALU_KEEP, ALU_KEEP, f32_of(f32_bits(x) & ~AQ_F32_SIGN))
F32_IO(1, abs_ftz_f32, f32_flush, ALU_KEEP, f32_of(f32_bits(x) & ~AQ_F32_SIGN))
F64_IO(1, abs_f64, ALU_KEEP, ALU_KEEP, f64_of(f64_bits(x) & ~AQ_F64_SIGN))
F32_IO(1, neg_f32, ALU_KEEP, ALU_KEEP, f32_of(f32_bits(x) ^ AQ_F32_SIGN))
F32_IO(1, neg_ftz_f32, f32_flush, ALU_KEEP, f32_of(f32_bits(x) ^ AQ_F32_SIGN))
F64_IO(1, neg_f64, ALU_KEEP, ALU_KEEP, f64_of(f64_bits(x) ^ AQ_F64_SIGN))

/* The sign of x on y. */
F32_IO(2, copysign_f32, ALU_KEEP, ALU_KEEP,
       f32_of((f32_bits(x) & AQ_F32_SIGN) | (f32_bits(y) & ~AQ_F32_SIGN)))
F64_IO(2, copysign_f64, ALU_KEEP, ALU_KEEP,
       f64_of((f64_bits(x) & AQ_F64_SIGN) | (f64_bits(y) & ~AQ_F64_SIGN)))

/*
 * The number wins against a NaN, -0 is less than +0. Where neither is less, they are equal: or-ing (for the maximum: and-ing) the bits then
 * changes only zeros. A NaN comes out when both are, or (.NaN) when one is.
 */
#define PICK(T, zeros, less, x, y)                            \
	((x) != (x)   ? (y)                                   \
	 : (y) != (y) ? (x)                                   \
	 : less	      ? (x)                                   \
	 : (x) == (y) ? T##_of(T##_bits(x) zeros T##_bits(y)) \
		      : (y))

static inline float min_of(float x, float y)
{
	return PICK(f32, |, (x < y), x, y);
}

static inline float max_of(float x, float y)
{
	return PICK(f32, &, (x > y), x, y);
}

static inline float min_nan(float x, float y)
{
	return x != x || y != y ? f32_of(AQ_F32_NAN) : min_of(x, y);
}

static inline float max_nan(float x, float y)
{
	return x != x || y != y ? f32_of(AQ_F32_NAN) : max_of(x, y);
}

/* .xorsign.abs: magnitudes are compared, the sign is that of the product. */
static inline float magnitude(float v)
{
	return f32_of(f32_bits(v) & ~AQ_F32_SIGN);
}

static inline float with_xor_sign(float v, float x, float y)
{
	return f32_of(f32_bits(v) ^ ((f32_bits(x) ^ f32_bits(y)) & AQ_F32_SIGN));
}

#define MIN_MAX_IN(name, in, op)                                         \
	F32_IO(2, name##_f32, in, f32_nan, op##_of(x, y))                \
	F32_IO(2, name##_nan_f32, in, f32_nan, op##_nan(x, y))           \
	F32_IO(2, name##_xor_f32, in, f32_nan,                           \
	       with_xor_sign(op##_of(magnitude(x), magnitude(y)), x, y)) \
	F32_IO(2, name##_nan_xor_f32, in, f32_nan,                       \
	       with_xor_sign(op##_nan(magnitude(x), magnitude(y)), x, y))

MIN_MAX_IN(min, ALU_KEEP, min)
MIN_MAX_IN(min_ftz, f32_flush, min)
MIN_MAX_IN(max, ALU_KEEP, max)
MIN_MAX_IN(max_ftz, f32_flush, max)

static inline double min_of64(double x, double y)
{
	return PICK(f64, |, (x < y), x, y);
}

static inline double max_of64(double x, double y)
{
	return PICK(f64, &, (x > y), x, y);
}

F64_IO(2, min_f64, ALU_KEEP, ALU_KEEP, min_of64(x, y))
F64_IO(2, max_f64, ALU_KEEP, ALU_KEEP, max_of64(x, y))

/* Properties of a number, from its bits. PTX counts zeros as normal. */
#define TESTP(name, T, W, expr)                                                     \
	static void name(struct aq_regs *r, const struct aq_insn *i, uint32_t mask) \
	{                                                                           \
		ALU_SRC(pa, W, a)                                                   \
		const row_##W inf = AQ_##T##_EXPONENT;                              \
		const row_##W normal = inf & (0 - inf);                             \
		(void)normal;                                                       \
		uint32_t set = 0;                                                   \
		for (int l = 0; l < AQ_LANES; l++) {                                \
			const row_##W m = pa[l] & ~AQ_##T##_SIGN;                   \
			set |= (uint32_t)(expr) << l;                               \
		}                                                                   \
		aq_pred_store(r, i->dst, set, mask);                                \
	}

#define TESTP_OF(name, expr)                      \
	TESTP(testp_##name##_f32, F32, u32, expr) \
	TESTP(testp_##name##_f64, F64, u64, expr)

TESTP_OF(finite, m < inf)
TESTP_OF(infinite, m == inf)
TESTP_OF(number, m <= inf)
TESTP_OF(nan, m > inf)
TESTP_OF(normal, m == 0 || (m >= normal && m < inf))
TESTP_OF(subnormal, m != 0 && m < normal)

/* The rounding of add, sub and mul is to nearest when not given; fma and the others have to say. */
static const struct aq_alu_row add_rows[] = {
	F32_ROWS_SAT("rn?", "f:ff", add),
	F64_ROWS("rn?", "g:gg", add),
};

static const struct aq_alu_row sub_rows[] = {
	F32_ROWS_SAT("rn?", "f:ff", sub),
	F64_ROWS("rn?", "g:gg", sub),
};

static const struct aq_alu_row mul_rows[] = {
	F32_ROWS_SAT("rn?", "f:ff", mul),
	F64_ROWS("rn?", "g:gg", mul),
};

static const struct aq_alu_row fma_rows[] = {
	F32_ROWS_SAT("rn", "f:fff", fma),
	F64_ROWS("rn", "g:ggg", fma),
};

static const struct aq_alu_row div_rows[] = {
	F32_ROWS("rn", "f:ff", div),
	F64_ROWS("rn", "g:gg", div),
};

static const struct aq_alu_row rcp_rows[] = {
	F32_ROWS("rn", "f:f", rcp),
	F64_ROWS("rn", "g:g", rcp),
};

static const struct aq_alu_row sqrt_rows[] = {
	F32_ROWS("rn", "f:f", sqrt),
	F64_ROWS("rn", "g:g", sqrt),
};

static const struct aq_alu_row abs_rows[] = {
	{ "f32", "f:f", abs_f32 },
	{ "ftz.f32", "f:f", abs_ftz_f32 },
	{ "f64", "g:g", abs_f64 },
};

static const struct aq_alu_row neg_rows[] = {
	{ "f32", "f:f", neg_f32 },
	{ "ftz.f32", "f:f", neg_ftz_f32 },
	{ "f64", "g:g", neg_f64 },
};

#define MIN_MAX_ROWS(op)                                                                          \
	{ "f32", "f:ff", op##_f32 }, { "NaN.f32", "f:ff", op##_nan_f32 },                         \
		{ "xorsign.abs.f32", "f:ff", op##_xor_f32 },                                      \
		{ "NaN.xorsign.abs.f32", "f:ff", op##_nan_xor_f32 },                              \
		{ "ftz.f32", "f:ff", op##_ftz_f32 }, { "ftz.NaN.f32", "f:ff", op##_ftz_nan_f32 }, \
		{ "ftz.xorsign.abs.f32", "f:ff", op##_ftz_xor_f32 },                              \
		{ "ftz.NaN.xorsign.abs.f32", "f:ff", op##_ftz_nan_xor_f32 },                      \
	{                                                                                         \
		"f64", "g:gg", op##_f64                                                           \
	}

static const struct aq_alu_row min_rows[] = { MIN_MAX_ROWS(min) };
static const struct aq_alu_row max_rows[] = { MIN_MAX_ROWS(max) };

static const struct aq_alu_row copysign_rows[] = {
	{ "f32", "f:ff", copysign_f32 },
	{ "f64", "g:gg", copysign_f64 },
};

static const struct aq_alu_row testp_rows[] = {
	{ "finite.f32", "p:f", testp_finite_f32 },
	{ "finite.f64", "p:g", testp_finite_f64 },
	{ "infinite.f32", "p:f", testp_infinite_f32 },
	{ "infinite.f64", "p:g", testp_infinite_f64 },
	{ "number.f32", "p:f", testp_number_f32 },
	{ "number.f64", "p:g", testp_number_f64 },
	{ "notanumber.f32", "p:f", testp_nan_f32 },
	{ "notanumber.f64", "p:g", testp_nan_f64 },
	{ "normal.f32", "p:f", testp_normal_f32 },
	{ "normal.f64", "p:g", testp_normal_f64 },
	{ "subnormal.f32", "p:f", testp_subnormal_f32 },
	{ "subnormal.f64", "p:g", testp_subnormal_f64 },
};

const struct aq_alu_group AQ_ISA(aq_alu_groups_float)[] = {
	AQ_ALU_GROUP("add", add_rows),
	AQ_ALU_GROUP("sub", sub_rows),
	AQ_ALU_GROUP("mul", mul_rows),
	AQ_ALU_GROUP("fma", fma_rows),
	AQ_ALU_GROUP("mad", fma_rows),
	AQ_ALU_GROUP("div", div_rows),
	AQ_ALU_GROUP("rcp", rcp_rows),
	AQ_ALU_GROUP("sqrt", sqrt_rows),
	AQ_ALU_GROUP("abs", abs_rows),
	AQ_ALU_GROUP("neg", neg_rows),
	AQ_ALU_GROUP("min", min_rows),
	AQ_ALU_GROUP("max", max_rows),
	AQ_ALU_GROUP("copysign", copysign_rows),
	AQ_ALU_GROUP("testp", testp_rows),
	{ 0 },
};
