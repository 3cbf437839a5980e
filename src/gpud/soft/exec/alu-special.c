/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The approximations: div.approx div.full rcp.approx sqrt.approx rsqrt sin cos lg2 ex2 tanh. PTX states how far off each may be; the
 * functions of the C library and correctly rounded division and root stay well inside.
 */
#include "gpud/soft/exec/alu-float.h"

/* A divisor this large has a subnormal reciprocal, which div.approx takes as zero. */
static inline float div_approx(float x, float y)
{
	const float magnitude = __builtin_fabsf(y);

	return magnitude > 0x1p126f && magnitude <= 0x1.fffffep127f ? x * __builtin_copysignf(0, y)
								    : x / y;
}

F32_OP(2, div_approx, div_approx(x, y))
F32_OP(2, div_full, x / y)
F32_OP(1, rcp_approx, 1 / x)
F32_OP(1, sqrt_approx, __builtin_sqrtf(x))
F32_OP(1, rsqrt_approx, 1 / __builtin_sqrtf(x))
F64_OP(1, rsqrt_approx, 1 / __builtin_sqrt(x))
F32_OP(1, sin, __builtin_sinf(x))
F32_OP(1, cos, __builtin_cosf(x))
F32_OP(1, lg2, __builtin_log2f(x))
F32_OP(1, ex2, __builtin_exp2f(x))
F32_IO(1, tanh_f32, ALU_KEEP, f32_nan, __builtin_tanhf(x))

/* The gross forms see and give only the upper word of a double: sign, exponent and 20 bits; subnormals are flushed. */
static inline double upper_word(double v)
{
	return f64_flush(f64_of(f64_bits(v) & UINT64_C(0xffffffff00000000)));
}

/* A NaN has to stay one without its lower half. */
static inline double upper_or_nan(double v)
{
	return v == v ? upper_word(v) : f64_of(UINT64_C(0x7fffffff00000000));
}

F64_IO(1, rcp_gross_f64, upper_or_nan, upper_or_nan, 1 / x)
F64_IO(1, rsqrt_gross_f64, upper_or_nan, upper_or_nan, 1 / __builtin_sqrt(x))

static const struct aq_alu_row div_rows[] = {
	F32_ROWS("approx", "f:ff", div_approx),
	F32_ROWS("full", "f:ff", div_full),
};

static const struct aq_alu_row rcp_rows[] = {
	F32_ROWS("approx", "f:f", rcp_approx),
	{ "approx.ftz.f64", "g:g", rcp_gross_f64 },
};

static const struct aq_alu_row sqrt_rows[] = {
	F32_ROWS("approx", "f:f", sqrt_approx),
};

static const struct aq_alu_row rsqrt_rows[] = {
	F32_ROWS("approx", "f:f", rsqrt_approx),
	F64_ROWS("approx", "g:g", rsqrt_approx),
	{ "approx.ftz.f64", "g:g", rsqrt_gross_f64 },
};

static const struct aq_alu_row sin_rows[] = { F32_ROWS("approx", "f:f", sin) };
static const struct aq_alu_row cos_rows[] = { F32_ROWS("approx", "f:f", cos) };
static const struct aq_alu_row lg2_rows[] = { F32_ROWS("approx", "f:f", lg2) };
static const struct aq_alu_row ex2_rows[] = { F32_ROWS("approx", "f:f", ex2) };

static const struct aq_alu_row tanh_rows[] = {
	{ "approx.f32", "f:f", tanh_f32 },
};

const struct aq_alu_group AQ_ISA(aq_alu_groups_special)[] = {
	AQ_ALU_GROUP("div", div_rows),	 AQ_ALU_GROUP("rcp", rcp_rows),
	AQ_ALU_GROUP("sqrt", sqrt_rows), AQ_ALU_GROUP("rsqrt", rsqrt_rows),
	AQ_ALU_GROUP("sin", sin_rows),	 AQ_ALU_GROUP("cos", cos_rows),
	AQ_ALU_GROUP("lg2", lg2_rows),	 AQ_ALU_GROUP("ex2", ex2_rows),
	AQ_ALU_GROUP("tanh", tanh_rows), { 0 },
};
