/* SPDX-License-Identifier: Apache-2.0 */
/* Integer arithmetic: add sub mul mad mul24 mad24 sad div rem abs neg min max. */
#include "gpud/soft/exec/alu.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

static inline int32_t sat_s32(int64_t v)
{
	return (int32_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v);
}

ALU2(add_16, u16, u16, u16, x + y)
ALU2(add_32, u32, u32, u32, x + y)
ALU2(add_64, u64, u64, u64, x + y)
ALU2(add_sat_s32, s32, s32, s32, sat_s32((int64_t)x + y))
ALU2(add_16x2, u32, u32, u32, ((x + y) & 0xffff) | ((x & 0xffff0000) + (y & 0xffff0000)))

ALU2(sub_16, u16, u16, u16, x - y)
ALU2(sub_32, u32, u32, u32, x - y)
ALU2(sub_64, u64, u64, u64, x - y)
ALU2(sub_sat_s32, s32, s32, s32, sat_s32((int64_t)x - y))

/* Halves of a product; the high ones are arithmetic shifts of signed products. */
#define HI_U16(x, y) ((uint32_t)(x) * (y) >> 16)
#define HI_S16(x, y) ((uint32_t)((int32_t)(x) * (y)) >> 16)
#define HI_U32(x, y) ((uint32_t)((uint64_t)(x) * (y) >> 32))
#define HI_S32(x, y) ((uint32_t)((uint64_t)((int64_t)(x) * (y)) >> 32))
#define HI_U64(x, y) ((uint64_t)((unsigned __int128)(x) * (y) >> 64))
#define HI_S64(x, y) ((uint64_t)((unsigned __int128)((__int128)(x) * (y)) >> 64))

ALU2(mul_lo_16, u16, u16, u16, ((uint32_t)x * y))
ALU2(mul_lo_32, u32, u32, u32, (x * y))
ALU2(mul_lo_64, u64, u64, u64, (x * y))
ALU2(mul_hi_u16, u16, u16, u16, HI_U16(x, y))
ALU2(mul_hi_s16, u16, s16, s16, HI_S16(x, y))
ALU2(mul_hi_u32, u32, u32, u32, HI_U32(x, y))
ALU2(mul_hi_s32, u32, s32, s32, HI_S32(x, y))
ALU2(mul_hi_u64, u64, u64, u64, HI_U64(x, y))
ALU2(mul_hi_s64, u64, s64, s64, HI_S64(x, y))
ALU2(mul_wide_u16, u32, u16, u16, ((uint32_t)x * y))
ALU2(mul_wide_s16, u32, s16, s16, (uint32_t)((int32_t)x *y))
ALU2(mul_wide_u32, u64, u32, u32, (uint64_t)x *y)
ALU2(mul_wide_s32, u64, s32, s32, (uint64_t)((int64_t)x *y))

ALU3(mad_lo_16, u16, u16, u16, u16, ((uint32_t)x * y) + z)
ALU3(mad_lo_32, u32, u32, u32, u32, (x * y) + z)
ALU3(mad_lo_64, u64, u64, u64, u64, (x * y) + z)
ALU3(mad_hi_u16, u16, u16, u16, u16, HI_U16(x, y) + z)
ALU3(mad_hi_s16, u16, s16, s16, u16, HI_S16(x, y) + z)
ALU3(mad_hi_u32, u32, u32, u32, u32, HI_U32(x, y) + z)
ALU3(mad_hi_s32, u32, s32, s32, u32, HI_S32(x, y) + z)
ALU3(mad_hi_u64, u64, u64, u64, u64, HI_U64(x, y) + z)
ALU3(mad_hi_s64, u64, s64, s64, u64, HI_S64(x, y) + z)
ALU3(mad_hi_sat_s32, s32, s32, s32, s32, sat_s32((int64_t)(int32_t)HI_S32(x, y) + z))
ALU3(mad_wide_u16, u32, u16, u16, u32, ((uint32_t)x * y) + z)
ALU3(mad_wide_s16, u32, s16, s16, u32, (uint32_t)((int32_t)x *y) + z)
ALU3(mad_wide_u32, u64, u32, u32, u64, ((uint64_t)x * y) + z)
ALU3(mad_wide_s32, u64, s32, s32, u64, (uint64_t)((int64_t)x *y) + z)

/* 24-bit products of 48 bits: low 32, or bits 47..16. */
#define U24(x)	    ((uint64_t)((x)&0xffffff))
#define S24(x)	    ((int64_t)((int32_t)((uint32_t)(x) << 8) >> 8))
#define LO24(x, y)  ((uint32_t)(U24(x) * U24(y)))
#define LO24S(x, y) ((uint32_t)(S24(x) * S24(y)))
#define HI24(x, y)  ((uint32_t)(U24(x) * U24(y) >> 16))
#define HI24S(x, y) ((uint32_t)((uint64_t)(S24(x) * S24(y)) >> 16))

ALU2(mul24_lo_u32, u32, u32, u32, LO24(x, y))
ALU2(mul24_lo_s32, u32, u32, u32, LO24S(x, y))
ALU2(mul24_hi_u32, u32, u32, u32, HI24(x, y))
ALU2(mul24_hi_s32, u32, u32, u32, HI24S(x, y))
ALU3(mad24_lo_u32, u32, u32, u32, u32, LO24(x, y) + z)
ALU3(mad24_lo_s32, u32, u32, u32, u32, LO24S(x, y) + z)
ALU3(mad24_hi_u32, u32, u32, u32, u32, HI24(x, y) + z)
ALU3(mad24_hi_s32, u32, u32, u32, u32, HI24S(x, y) + z)
ALU3(mad24_hi_sat_s32, s32, u32, u32, s32, sat_s32((int64_t)(int32_t)HI24S(x, y) + z))

ALU3(sad_u16, u16, u16, u16, u16, z + MAX(x, y) - MIN(x, y))
ALU3(sad_s16, u16, s16, s16, u16, z + (x < y ? y - x : x - y))
ALU3(sad_u32, u32, u32, u32, u32, z + (x < y ? y - x : x - y))
ALU3(sad_s32, u32, s32, s32, u32,
     z + (x < y ? (uint32_t)y - (uint32_t)x : (uint32_t)x - (uint32_t)y))
ALU3(sad_u64, u64, u64, u64, u64, z + (x < y ? y - x : x - y))
ALU3(sad_s64, u64, s64, s64, u64,
     z + (x < y ? (uint64_t)y - (uint64_t)x : (uint64_t)x - (uint64_t)y))

/*
 * Division by zero has no defined result in PTX; hardware gives all ones, for the remainder as well. The smallest number by -1 wraps to
 * itself, remainder 0.
 */
#define DIV_U(x, y) ((y) ? (x) / (y) : UINT64_MAX)
#define REM_U(x, y) ((y) ? (x) % (y) : UINT64_MAX)

static inline int32_t div_s(int32_t x, int32_t y)
{
	return y == 0 ? -1 : y == -1 ? (int32_t)(0u - (uint32_t)x) : x / y;
}

static inline int32_t rem_s(int32_t x, int32_t y)
{
	return y == 0 ? -1 : y == -1 ? 0 : x % y;
}

static inline int64_t div_s64_of(int64_t x, int64_t y)
{
	return y == 0 ? -1 : y == -1 ? (int64_t)(0u - (uint64_t)x) : x / y;
}

static inline int64_t rem_s64_of(int64_t x, int64_t y)
{
	return y == 0 ? -1 : y == -1 ? 0 : x % y;
}

ALU2(div_u16, u16, u16, u16, DIV_U((uint32_t)x, (uint32_t)y))
ALU2(div_u32, u32, u32, u32, DIV_U(x, y))
ALU2(div_u64, u64, u64, u64, DIV_U(x, y))
ALU2(div_s16, s16, s16, s16, div_s(x, y))
ALU2(div_s32, s32, s32, s32, div_s(x, y))
ALU2(div_s64, s64, s64, s64, div_s64_of(x, y))
ALU2(rem_u16, u16, u16, u16, REM_U((uint32_t)x, (uint32_t)y))
ALU2(rem_u32, u32, u32, u32, REM_U(x, y))
ALU2(rem_u64, u64, u64, u64, REM_U(x, y))
ALU2(rem_s16, s16, s16, s16, rem_s(x, y))
ALU2(rem_s32, s32, s32, s32, rem_s(x, y))
ALU2(rem_s64, s64, s64, s64, rem_s64_of(x, y))

ALU1(abs_s16, u16, s16, x < 0 ? -x : x)
ALU1(abs_s32, u32, u32, x >> 31 ? 0 - x : x)
ALU1(abs_s64, u64, u64, x >> 63 ? 0 - x : x)
ALU1(neg_s16, u16, u16, 0 - x)
ALU1(neg_s32, u32, u32, 0 - x)
ALU1(neg_s64, u64, u64, 0 - x)

/* Both halves at once, each by `op` in the type T; MAX(0, ...) for .relu. */
#define HALVES(T, op, x, y)                       \
	((uint32_t)(uint16_t)op((T)(x), (T)(y)) | \
	 (uint32_t)(uint16_t)op((T)((x) >> 16), (T)((y) >> 16)) << 16)
#define RELU_MIN(a, b) MAX(MIN(a, b), 0)
#define RELU_MAX(a, b) MAX(MAX(a, b), 0)

#define MIN_MAX(name, OP)                                             \
	ALU2(name##_u16, u16, u16, u16, OP(x, y))                     \
	ALU2(name##_s16, s16, s16, s16, OP(x, y))                     \
	ALU2(name##_u32, u32, u32, u32, OP(x, y))                     \
	ALU2(name##_s32, s32, s32, s32, OP(x, y))                     \
	ALU2(name##_u64, u64, u64, u64, OP(x, y))                     \
	ALU2(name##_s64, s64, s64, s64, OP(x, y))                     \
	ALU2(name##_relu_s32, s32, s32, s32, RELU_##OP(x, y))         \
	ALU2(name##_u16x2, u32, u32, u32, HALVES(uint16_t, OP, x, y)) \
	ALU2(name##_s16x2, u32, u32, u32, HALVES(int16_t, OP, x, y))  \
	ALU2(name##_relu_s16x2, u32, u32, u32, HALVES(int16_t, RELU_##OP, x, y))

MIN_MAX(min, MIN)
MIN_MAX(max, MAX)

static const struct aq_alu_row add_rows[] = {
	{ "u16/s16", "h:hh", add_16 },	     { "u32/s32", "w:ww", add_32 },
	{ "u64/s64", "d:dd", add_64 },	     { "sat.s32", "w:ww", add_sat_s32 },
	{ "u16x2/s16x2", "w:ww", add_16x2 },
};

static const struct aq_alu_row sub_rows[] = {
	{ "u16/s16", "h:hh", sub_16 },
	{ "u32/s32", "w:ww", sub_32 },
	{ "u64/s64", "d:dd", sub_64 },
	{ "sat.s32", "w:ww", sub_sat_s32 },
};

static const struct aq_alu_row mul_rows[] = {
	{ "lo.u16/s16", "h:hh", mul_lo_16 },  { "lo.u32/s32", "w:ww", mul_lo_32 },
	{ "lo.u64/s64", "d:dd", mul_lo_64 },  { "hi.u16", "h:hh", mul_hi_u16 },
	{ "hi.s16", "h:hh", mul_hi_s16 },     { "hi.u32", "w:ww", mul_hi_u32 },
	{ "hi.s32", "w:ww", mul_hi_s32 },     { "hi.u64", "d:dd", mul_hi_u64 },
	{ "hi.s64", "d:dd", mul_hi_s64 },     { "wide.u16", "w:hh", mul_wide_u16 },
	{ "wide.s16", "w:hh", mul_wide_s16 }, { "wide.u32", "d:ww", mul_wide_u32 },
	{ "wide.s32", "d:ww", mul_wide_s32 },
};

static const struct aq_alu_row mad_rows[] = {
	{ "lo.u16/s16", "h:hhh", mad_lo_16 },  { "lo.u32/s32", "w:www", mad_lo_32 },
	{ "lo.u64/s64", "d:ddd", mad_lo_64 },  { "hi.u16", "h:hhh", mad_hi_u16 },
	{ "hi.s16", "h:hhh", mad_hi_s16 },     { "hi.u32", "w:www", mad_hi_u32 },
	{ "hi.s32", "w:www", mad_hi_s32 },     { "hi.u64", "d:ddd", mad_hi_u64 },
	{ "hi.s64", "d:ddd", mad_hi_s64 },     { "hi.sat.s32", "w:www", mad_hi_sat_s32 },
	{ "wide.u16", "w:hhw", mad_wide_u16 }, { "wide.s16", "w:hhw", mad_wide_s16 },
	{ "wide.u32", "d:wwd", mad_wide_u32 }, { "wide.s32", "d:wwd", mad_wide_s32 },
};

static const struct aq_alu_row mul24_rows[] = {
	{ "lo.u32", "w:ww", mul24_lo_u32 },
	{ "lo.s32", "w:ww", mul24_lo_s32 },
	{ "hi.u32", "w:ww", mul24_hi_u32 },
	{ "hi.s32", "w:ww", mul24_hi_s32 },
};

static const struct aq_alu_row mad24_rows[] = {
	{ "lo.u32", "w:www", mad24_lo_u32 },	     { "lo.s32", "w:www", mad24_lo_s32 },
	{ "hi.u32", "w:www", mad24_hi_u32 },	     { "hi.s32", "w:www", mad24_hi_s32 },
	{ "hi.sat.s32", "w:www", mad24_hi_sat_s32 },
};

static const struct aq_alu_row sad_rows[] = {
	{ "u16", "h:hhh", sad_u16 }, { "s16", "h:hhh", sad_s16 }, { "u32", "w:www", sad_u32 },
	{ "s32", "w:www", sad_s32 }, { "u64", "d:ddd", sad_u64 }, { "s64", "d:ddd", sad_s64 },
};

#define ROWS_OF_SIX(op)                                                                        \
	{ "u16", "h:hh", op##_u16 }, { "s16", "h:hh", op##_s16 }, { "u32", "w:ww", op##_u32 }, \
		{ "s32", "w:ww", op##_s32 }, { "u64", "d:dd", op##_u64 },                      \
	{                                                                                      \
		"s64", "d:dd", op##_s64                                                        \
	}

#define MIN_MAX_ROWS(op)                                                                         \
	ROWS_OF_SIX(op), { "relu.s32", "w:ww", op##_relu_s32 }, { "u16x2", "w:ww", op##_u16x2 }, \
		{ "s16x2", "w:ww", op##_s16x2 },                                                 \
	{                                                                                        \
		"relu.s16x2", "w:ww", op##_relu_s16x2                                            \
	}

static const struct aq_alu_row div_rows[] = { ROWS_OF_SIX(div) };
static const struct aq_alu_row rem_rows[] = { ROWS_OF_SIX(rem) };
static const struct aq_alu_row min_rows[] = { MIN_MAX_ROWS(min) };
static const struct aq_alu_row max_rows[] = { MIN_MAX_ROWS(max) };

static const struct aq_alu_row abs_rows[] = {
	{ "s16", "h:h", abs_s16 },
	{ "s32", "w:w", abs_s32 },
	{ "s64", "d:d", abs_s64 },
};

static const struct aq_alu_row neg_rows[] = {
	{ "s16", "h:h", neg_s16 },
	{ "s32", "w:w", neg_s32 },
	{ "s64", "d:d", neg_s64 },
};

const struct aq_alu_group AQ_ISA(aq_alu_groups_int)[] = {
	AQ_ALU_GROUP("add", add_rows),	   AQ_ALU_GROUP("sub", sub_rows),
	AQ_ALU_GROUP("mul", mul_rows),	   AQ_ALU_GROUP("mad", mad_rows),
	AQ_ALU_GROUP("mul24", mul24_rows), AQ_ALU_GROUP("mad24", mad24_rows),
	AQ_ALU_GROUP("sad", sad_rows),	   AQ_ALU_GROUP("div", div_rows),
	AQ_ALU_GROUP("rem", rem_rows),	   AQ_ALU_GROUP("abs", abs_rows),
	AQ_ALU_GROUP("neg", neg_rows),	   AQ_ALU_GROUP("min", min_rows),
	AQ_ALU_GROUP("max", max_rows),	   { 0 },
};
