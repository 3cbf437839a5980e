/* SPDX-License-Identifier: Apache-2.0 */
/* cvt: between integers, to integers from floats, to floats; conversions with directed rounding are in alu-round.c. */
#include "gpud/soft/exec/alu-float.h"

/* Type and letter of its operand as a destination, capital where the sign goes on above it. */
#define EACH_INTEGER(X, ...)   \
	X(u8, b, __VA_ARGS__)  \
	X(s8, B, __VA_ARGS__)  \
	X(u16, h, __VA_ARGS__) \
	X(s16, H, __VA_ARGS__) \
	X(u32, w, __VA_ARGS__) \
	X(s32, W, __VA_ARGS__) \
	X(u64, d, __VA_ARGS__) \
	X(s64, d, __VA_ARGS__)

/* The same as sources; apart, since a macro does not expand inside itself. */
#define EACH_SOURCE(X, ...)      \
	X(u8, "b", __VA_ARGS__)  \
	X(s8, "b", __VA_ARGS__)  \
	X(u16, "h", __VA_ARGS__) \
	X(s16, "h", __VA_ARGS__) \
	X(u32, "w", __VA_ARGS__) \
	X(s32, "w", __VA_ARGS__) \
	X(u64, "d", __VA_ARGS__) \
	X(s64, "d", __VA_ARGS__)

/* Integer to integer: what matters of the destination is its width, unless it saturates. */
#define TO_WIDTH(T, ...)                      \
	ALU1(cvt_32_##T, u32, T, (uint32_t)x) \
	ALU1(cvt_64_##T, u64, T, (uint64_t)x)

EACH_INTEGER(TO_WIDTH)

#define MIN_u8	0
#define MIN_u16 0
#define MIN_u32 0
#define MIN_u64 0
#define MIN_s8	INT8_MIN
#define MIN_s16 INT16_MIN
#define MIN_s32 INT32_MIN
#define MIN_s64 INT64_MIN
#define MAX_u8	UINT8_MAX
#define MAX_u16 UINT16_MAX
#define MAX_u32 UINT32_MAX
#define MAX_u64 UINT64_MAX
#define MAX_s8	INT8_MAX
#define MAX_s16 INT16_MAX
#define MAX_s32 INT32_MAX
#define MAX_s64 INT64_MAX

/* A source of either sign, as the pair of its sign and its value modulo 2^64. */
#define CLAMP(D, ...)                                                                \
	static inline val_##D clamp_##D(bool negative, uint64_t v)                   \
	{                                                                            \
		if (negative)                                                        \
			return (int64_t)v < (int64_t)MIN_##D ? MIN_##D : (val_##D)v; \
		return v > (uint64_t)MAX_##D ? MAX_##D : (val_##D)v;                 \
	}

EACH_INTEGER(CLAMP)

#define NEGATIVE(x) ((x) < 1 && (x) != 0)

#define SATURATE(T, letter, D) ALU1(cvt_sat_##D##_##T, D, T, clamp_##D(NEGATIVE(x), (uint64_t)x))
#define SATURATE_TO(D, ...)    EACH_SOURCE(SATURATE, D)

EACH_INTEGER(SATURATE_TO)

/*
 * Float to integer: rounded to an integer first, then clamped to the type; NaN becomes 0. LIMIT is one more than the largest value,
 * exact in either float type.
 */
#define LIMIT_u8  0x1p8f
#define LIMIT_s8  0x1p7f
#define LIMIT_u16 0x1p16f
#define LIMIT_s16 0x1p15f
#define LIMIT_u32 0x1p32f
#define LIMIT_s32 0x1p31f
#define LIMIT_u64 0x1p64f
#define LIMIT_s64 0x1p63f

#define FROM_FLOAT(D, v)                         \
	((v) >= LIMIT_##D	  ? MAX_##D      \
	 : (v) > (val_f32)MIN_##D ? (val_##D)(v) \
	 : (v) != (v)		  ? 0            \
				  : MIN_##D)

#define FLOAT_TO(D, letter, ...)                   \
	static inline val_##D f32_to_##D(float v)  \
	{                                          \
		return FROM_FLOAT(D, v);           \
	}                                          \
	static inline val_##D f64_to_##D(double v) \
	{                                          \
		return FROM_FLOAT(D, v);           \
	}

EACH_INTEGER(FLOAT_TO)

#define ROUND_TO_INTEGER(D, letter, ...)                                            \
	ALU1(rni_##D##_f32, D, f32, f32_to_##D(__builtin_rintf(x)))                 \
	ALU1(rzi_##D##_f32, D, f32, f32_to_##D(__builtin_truncf(x)))                \
	ALU1(rmi_##D##_f32, D, f32, f32_to_##D(__builtin_floorf(x)))                \
	ALU1(rpi_##D##_f32, D, f32, f32_to_##D(__builtin_ceilf(x)))                 \
	ALU1(rni_##D##_f64, D, f64, f64_to_##D(__builtin_rint(x)))                  \
	ALU1(rzi_##D##_f64, D, f64, f64_to_##D(__builtin_trunc(x)))                 \
	ALU1(rmi_##D##_f64, D, f64, f64_to_##D(__builtin_floor(x)))                 \
	ALU1(rpi_##D##_f64, D, f64, f64_to_##D(__builtin_ceil(x)))                  \
	ALU1(rmi_ftz_##D##_f32, D, f32, f32_to_##D(__builtin_floorf(f32_flush(x)))) \
	ALU1(rpi_ftz_##D##_f32, D, f32, f32_to_##D(__builtin_ceilf(f32_flush(x))))

EACH_INTEGER(ROUND_TO_INTEGER)

/* Integer to float, to nearest. */
#define TO_FLOAT(T, letter, ...)                                      \
	ALU1(cvt_f32_##T, f32, T, (float)x)                           \
	ALU1(cvt_f64_##T, f64, T, (double)x)                          \
	ALU1_IO(cvt_sat_f32_##T, f32, T, ALU_KEEP, f32_sat, (float)x) \
	ALU1_IO(cvt_sat_f64_##T, f64, T, ALU_KEEP, f64_sat, (double)x)

EACH_INTEGER(TO_FLOAT)

/* Float to float: of one size perhaps rounded to an integral value; to the other size. */
#define FLOAT_VARIANTS(name, expr)                                        \
	ALU1_IO(name##_f32, f32, f32, ALU_KEEP, f32_nan, expr)            \
	ALU1_IO(name##_ftz_f32, f32, f32, f32_flush, f32_flush_nan, expr) \
	ALU1_IO(name##_sat_f32, f32, f32, ALU_KEEP, f32_sat, expr)        \
	ALU1_IO(name##_ftz_sat_f32, f32, f32, f32_flush, f32_flush_sat, expr)

#define DOUBLE_VARIANTS(name, expr)                             \
	ALU1_IO(name##_f64, f64, f64, ALU_KEEP, ALU_KEEP, expr) \
	ALU1_IO(name##_sat_f64, f64, f64, ALU_KEEP, f64_sat, expr)

FLOAT_VARIANTS(same, x)
FLOAT_VARIANTS(rni, __builtin_rintf(x))
FLOAT_VARIANTS(rzi, __builtin_truncf(x))
FLOAT_VARIANTS(rmi, __builtin_floorf(x))
FLOAT_VARIANTS(rpi, __builtin_ceilf(x))
DOUBLE_VARIANTS(same, x)
DOUBLE_VARIANTS(rni, __builtin_rint(x))
DOUBLE_VARIANTS(rzi, __builtin_trunc(x))
DOUBLE_VARIANTS(rmi, __builtin_floor(x))
DOUBLE_VARIANTS(rpi, __builtin_ceil(x))

ALU1_IO(cvt_f64_f32, f64, f32, ALU_KEEP, ALU_KEEP, (double)x)
ALU1_IO(cvt_ftz_f64_f32, f64, f32, f32_flush, ALU_KEEP, (double)x)
ALU1_IO(cvt_sat_f64_f32, f64, f32, ALU_KEEP, f64_sat, (double)x)
ALU1_IO(cvt_ftz_sat_f64_f32, f64, f32, f32_flush, f64_sat, (double)x)
ALU1_IO(cvt_f32_f64, f32, f64, ALU_KEEP, f32_nan, (float)x)
ALU1_IO(cvt_ftz_f32_f64, f32, f64, ALU_KEEP, f32_flush_nan, (float)x)
ALU1_IO(cvt_sat_f32_f64, f32, f64, ALU_KEEP, f32_sat, (float)x)
ALU1_IO(cvt_ftz_sat_f32_f64, f32, f64, ALU_KEEP, f32_flush_sat, (float)x)

/* clang-format off */

#define INTEGER_ROWS(T, letter, ...)                 \
	{ "u8." #T, "*b:" letter, cvt_32_##T },      \
	{ "s8." #T, "*B:" letter, cvt_32_##T },      \
	{ "u16." #T, "*h:" letter, cvt_32_##T },     \
	{ "s16." #T, "*H:" letter, cvt_32_##T },     \
	{ "u32." #T, "*w:" letter, cvt_32_##T },     \
	{ "s32." #T, "*W:" letter, cvt_32_##T },     \
	{ "u64/s64." #T, "*d:" letter, cvt_64_##T },

#define SAT_ROW(T, letter, D, to) { "sat." #D "." #T, "*" #to ":" letter, cvt_sat_##D##_##T },
#define SAT_ROWS(D, letter, ...)  EACH_SOURCE(SAT_ROW, D, letter)

/* Saturation is what these do in any case. Flushing matters only where a subnormal would not be rounded to zero anyway. */
#define TO_INTEGER_ROWS(D, letter, ...)                                     \
	{ "rni.ftz?.sat?." #D ".f32", "*" #letter ":f", rni_##D##_f32 },    \
	{ "rzi.ftz?.sat?." #D ".f32", "*" #letter ":f", rzi_##D##_f32 },    \
	{ "rmi.sat?." #D ".f32", "*" #letter ":f", rmi_##D##_f32 },         \
	{ "rpi.sat?." #D ".f32", "*" #letter ":f", rpi_##D##_f32 },         \
	{ "rmi.ftz.sat?." #D ".f32", "*" #letter ":f", rmi_ftz_##D##_f32 }, \
	{ "rpi.ftz.sat?." #D ".f32", "*" #letter ":f", rpi_ftz_##D##_f32 }, \
	{ "rni.sat?." #D ".f64", "*" #letter ":g", rni_##D##_f64 },         \
	{ "rzi.sat?." #D ".f64", "*" #letter ":g", rzi_##D##_f64 },         \
	{ "rmi.sat?." #D ".f64", "*" #letter ":g", rmi_##D##_f64 },         \
	{ "rpi.sat?." #D ".f64", "*" #letter ":g", rpi_##D##_f64 },

/* rnd32 and rnd64: the rounding modes that make no difference, since the conversion is exact. */
#define TO_FLOAT_ROWS(T, letter, rnd32, rnd64)                        \
	{ rnd32 ".ftz?.f32." #T, "*f:" letter, cvt_f32_##T },         \
	{ rnd32 ".ftz?.sat.f32." #T, "*f:" letter, cvt_sat_f32_##T }, \
	{ rnd64 ".f64." #T, "*g:" letter, cvt_f64_##T },              \
	{ rnd64 ".sat.f64." #T, "*g:" letter, cvt_sat_f64_##T },

#define FLOAT_ROWS(rnd, name)                                  \
	{ rnd "f32.f32", "*f:f", name##_f32 },                 \
	{ rnd "ftz.f32.f32", "*f:f", name##_ftz_f32 },         \
	{ rnd "sat.f32.f32", "*f:f", name##_sat_f32 },         \
	{ rnd "ftz.sat.f32.f32", "*f:f", name##_ftz_sat_f32 }, \
	{ rnd "f64.f64", "*g:g", name##_f64 },                 \
	{ rnd "sat.f64.f64", "*g:g", name##_sat_f64 },

#define ANY_ROUNDING "rn/rz/rm/rp"

static const struct aq_alu_row cvt_rows[] = {
	EACH_SOURCE(INTEGER_ROWS)
	EACH_INTEGER(SAT_ROWS)
	EACH_INTEGER(TO_INTEGER_ROWS)
	TO_FLOAT_ROWS(u8, "b", ANY_ROUNDING, ANY_ROUNDING)
	TO_FLOAT_ROWS(s8, "b", ANY_ROUNDING, ANY_ROUNDING)
	TO_FLOAT_ROWS(u16, "h", ANY_ROUNDING, ANY_ROUNDING)
	TO_FLOAT_ROWS(s16, "h", ANY_ROUNDING, ANY_ROUNDING)
	TO_FLOAT_ROWS(u32, "w", "rn", ANY_ROUNDING)
	TO_FLOAT_ROWS(s32, "w", "rn", ANY_ROUNDING)
	TO_FLOAT_ROWS(u64, "d", "rn", "rn")
	TO_FLOAT_ROWS(s64, "d", "rn", "rn")
	FLOAT_ROWS("", same)
	FLOAT_ROWS("rni.", rni)
	FLOAT_ROWS("rzi.", rzi)
	FLOAT_ROWS("rmi.", rmi)
	FLOAT_ROWS("rpi.", rpi)
	{ "f64.f32", "*g:f", cvt_f64_f32 },
	{ "ftz.f64.f32", "*g:f", cvt_ftz_f64_f32 },
	{ "sat.f64.f32", "*g:f", cvt_sat_f64_f32 },
	{ "ftz.sat.f64.f32", "*g:f", cvt_ftz_sat_f64_f32 },
	{ "rn.f32.f64", "*f:g", cvt_f32_f64 },
	{ "rn.ftz.f32.f64", "*f:g", cvt_ftz_f32_f64 },
	{ "rn.sat.f32.f64", "*f:g", cvt_sat_f32_f64 },
	{ "rn.ftz.sat.f32.f64", "*f:g", cvt_ftz_sat_f32_f64 },
};

/* clang-format on */

const struct aq_alu_group AQ_ISA(aq_alu_groups_convert)[] = {
	AQ_ALU_GROUP("cvt", cvt_rows),
	{ 0 },
};
