/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PTX wants around a float operation: subnormals flushed (.ftz), results clamped (.sat), one NaN. And the operations themselves, as
 * macros, since they are compiled twice: in alu-float.c for rounding to nearest, in alu-round.c for the directed modes, where the
 * compiler must not assume a mode.
 */
#pragma once

#include "gpud/soft/exec/alu.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define AQ_F32_SIGN	  0x80000000u
#define AQ_F32_EXPONENT	  0x7f800000u
#define AQ_F32_NAN	  0x7fffffffu
#define AQ_F32_MIN_NORMAL 0x1p-126f
#define AQ_F64_SIGN	  UINT64_C(0x8000000000000000)
#define AQ_F64_EXPONENT	  UINT64_C(0x7ff0000000000000)

static inline uint32_t f32_bits(float v)
{
	uint32_t u;

	memcpy(&u, &v, sizeof(u));
	return u;
}

static inline float f32_of(uint32_t u)
{
	float v;

	memcpy(&v, &u, sizeof(v));
	return v;
}

static inline uint64_t f64_bits(double v)
{
	uint64_t u;

	memcpy(&u, &v, sizeof(u));
	return u;
}

static inline double f64_of(uint64_t u)
{
	double v;

	memcpy(&v, &u, sizeof(v));
	return v;
}

/* A subnormal becomes a zero of its sign. */
static inline float f32_flush(float v)
{
	const uint32_t u = f32_bits(v);

	return f32_of(u & AQ_F32_EXPONENT ? u : u & AQ_F32_SIGN);
}

static inline double f64_flush(double v)
{
	const uint64_t u = f64_bits(v);

	return f64_of(u & AQ_F64_EXPONENT ? u : u & AQ_F64_SIGN);
}

/* Single precision has one NaN as result; double precision keeps what the operands brought. */
static inline float f32_nan(float v)
{
	return v == v ? v : f32_of(AQ_F32_NAN);
}

/* To [0, 1]; NaN becomes +0. */
static inline float f32_sat(float v)
{
	return v > 0 ? (v < 1 ? v : 1) : 0;
}

static inline double f64_sat(double v)
{
	return v > 0 ? (v < 1 ? v : 1) : 0;
}

static inline float f32_flush_nan(float v)
{
	return f32_nan(f32_flush(v));
}

static inline float f32_flush_sat(float v)
{
	return f32_sat(f32_flush(v));
}

/*
 * An operation of N operands in its variants. IO is ALU1_IO..ALU3_IO, F32 and F64 the list of operand types. The suffixes are also those of
 * the names in the tables.
 */
#define F32_LIST1 f32, f32
#define F32_LIST2 f32, f32, f32
#define F32_LIST3 f32, f32, f32, f32
#define F64_LIST1 f64, f64
#define F64_LIST2 f64, f64, f64
#define F64_LIST3 f64, f64, f64, f64

#define F32_IO(N, name, in, out, expr) F32_IO_EXPAND(ALU##N##_IO, name, F32_LIST##N, in, out, expr)
#define F64_IO(N, name, in, out, expr) F32_IO_EXPAND(ALU##N##_IO, name, F64_LIST##N, in, out, expr)
#define F32_IO_EXPAND(io, ...)	       io(__VA_ARGS__)

/* div rcp sqrt: no .sat */
#define F32_OP(N, name, expr)                          \
	F32_IO(N, name##_f32, ALU_KEEP, f32_nan, expr) \
	F32_IO(N, name##_ftz_f32, f32_flush, f32_flush_nan, expr)

#define F32_OP_SAT(N, name, expr)                          \
	F32_OP(N, name, expr)                              \
	F32_IO(N, name##_sat_f32, ALU_KEEP, f32_sat, expr) \
	F32_IO(N, name##_ftz_sat_f32, f32_flush, f32_flush_sat, expr)

#define F64_OP(N, name, expr) F64_IO(N, name##_f64, ALU_KEEP, ALU_KEEP, expr)

/* Everything that PTX rounds as IEEE 754 says. */
#define AQ_ROUNDED_OPS                              \
	F32_OP_SAT(2, add, x + y)                   \
	F32_OP_SAT(2, sub, x - y)                   \
	F32_OP_SAT(2, mul, (x * y))                 \
	F32_OP_SAT(3, fma, __builtin_fmaf(x, y, z)) \
	F32_OP(2, div, x / y)                       \
	F32_OP(1, rcp, 1 / x)                       \
	F32_OP(1, sqrt, __builtin_sqrtf(x))         \
	F64_OP(2, add, x + y)                       \
	F64_OP(2, sub, x - y)                       \
	F64_OP(2, mul, (x * y))                     \
	F64_OP(3, fma, __builtin_fma(x, y, z))      \
	F64_OP(2, div, x / y)                       \
	F64_OP(1, rcp, 1 / x)                       \
	F64_OP(1, sqrt, __builtin_sqrt(x))

/* Their lines; rnd is the text of the rounding modifier, mode what the handler's name has for it. */
#define F32_ROWS(rnd, shape, op)                    \
	{ rnd ".f32", shape, op##_f32 },            \
	{                                           \
		rnd ".ftz.f32", shape, op##_ftz_f32 \
	}

#define F32_ROWS_SAT(rnd, shape, op)                                       \
	F32_ROWS(rnd, shape, op), { rnd ".sat.f32", shape, op##_sat_f32 }, \
	{                                                                  \
		rnd ".ftz.sat.f32", shape, op##_ftz_sat_f32                \
	}

#define F64_ROWS(rnd, shape, op)            \
	{                                   \
		rnd ".f64", shape, op##_f64 \
	}
