/* SPDX-License-Identifier: Apache-2.0 */
/* Counting and finding bits, bit fields, packed dot products: popc clz bfind brev bfe bfi bmsk fns szext dp4a dp2a. */
#include "gpud/soft/exec/alu.h"

ALU1(popc_32, u32, u32, __builtin_popcount(x))
ALU1(popc_64, u32, u64, __builtin_popcountll(x))

#define CLZ32(x) ((x) ? (uint32_t)__builtin_clz(x) : 32u)
#define CLZ64(x) ((x) ? (uint32_t)__builtin_clzll(x) : 64u)

ALU1(clz_32, u32, u32, CLZ32(x))
ALU1(clz_64, u32, u64, CLZ64(x))

/* The highest bit that differs from the sign; all ones (which is 31 - 32 and 63 - 64 as well) when there is none. */
#define NO_SIGN32(x) ((x) ^ (0 - ((x) >> 31)))
#define NO_SIGN64(x) ((x) ^ (0 - ((x) >> 63)))

static inline uint32_t shift_amount(uint32_t clz, uint32_t width)
{
	return clz == width ? UINT32_MAX : clz;
}

ALU1(bfind_u32, u32, u32, 31 - CLZ32(x))
ALU1(bfind_u64, u32, u64, 63 - CLZ64(x))
ALU1(bfind_s32, u32, u32, 31 - CLZ32(NO_SIGN32(x)))
ALU1(bfind_s64, u32, u64, 63 - CLZ64(NO_SIGN64(x)))
ALU1(bfind_shiftamt_u32, u32, u32, shift_amount(CLZ32(x), 32))
ALU1(bfind_shiftamt_u64, u32, u64, shift_amount(CLZ64(x), 64))
ALU1(bfind_shiftamt_s32, u32, u32, shift_amount(CLZ32(NO_SIGN32(x)), 32))
ALU1(bfind_shiftamt_s64, u32, u64, shift_amount(CLZ64(NO_SIGN64(x)), 64))

static inline uint32_t reverse32(uint32_t v)
{
	v = (v >> 1 & 0x55555555) | (v & 0x55555555) << 1;
	v = (v >> 2 & 0x33333333) | (v & 0x33333333) << 2;
	v = (v >> 4 & 0x0f0f0f0f) | (v & 0x0f0f0f0f) << 4;
	v = (v >> 8 & 0x00ff00ff) | (v & 0x00ff00ff) << 8;
	return v >> 16 | v << 16;
}

ALU1(brev_32, u32, u32, reverse32(x))
ALU1(brev_64, u64, u64, (uint64_t)reverse32((uint32_t)x) << 32 | reverse32(x >> 32))

/* n ones at the bottom, n up to 64 and beyond. */
static inline uint64_t ones(uint32_t n)
{
	return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/*
 * Position and length of a field are 8 bits wide. 32-bit fields are taken from the zero- or sign-extended source: what lies above bit 31
 * is then what PTX wants to see there.
 */
static inline uint64_t field_u(uint64_t v, uint32_t pos, uint32_t len)
{
	pos &= 0xff;
	return pos > 63 ? 0 : v >> pos & ones(len & 0xff);
}

static inline int64_t field_s(int64_t v, uint32_t pos, uint32_t len)
{
	pos &= 0xff;
	len &= 0xff;
	v >>= pos > 63 ? 63 : pos;
	if (len == 0)
		return 0;
	return len > 63 ? v : (int64_t)((uint64_t)v << (64 - len)) >> (64 - len);
}

static inline uint64_t insert(uint64_t a, uint64_t b, uint32_t pos, uint32_t len, uint32_t width)
{
	uint64_t m = ones(len & 0xff);

	pos &= 0xff;
	if (pos >= width)
		return b;
	return (b & ~(m << pos)) | (a & m) << pos;
}

ALU3(bfe_u32, u32, u32, u32, u32, field_u(x, y, z))
ALU3(bfe_u64, u64, u64, u32, u32, field_u(x, y, z))
ALU3(bfe_s32, u32, s32, u32, u32, field_s(x, y, z))
ALU3(bfe_s64, u64, s64, u32, u32, field_s(x, y, z))
ALU4(bfi_32, u32, u32, u32, u32, u32, insert(x, y, z, w, 32))
ALU4(bfi_64, u64, u64, u64, u32, u32, insert(x, y, z, w, 64))

/* y ones from bit x on. Ones beyond bit 31 fall off. */
static inline uint32_t mask_clamp(uint32_t x, uint32_t y)
{
	return x > 31 ? 0 : (uint32_t)(ones(y) << x);
}

ALU2(bmsk_clamp, u32, u32, u32, mask_clamp(x, y))
ALU2(bmsk_wrap, u32, u32, u32, mask_clamp(x & 31, y & 31))

/* The n-th set bit of v from position base on, upwards for n > 0, downwards for n < 0, base itself for 0. */
static inline uint32_t find_nth(uint32_t v, uint32_t base, int32_t n)
{
	int step = n < 0 ? -1 : 1;
	uint32_t left = n < 0 ? 0u - (uint32_t)n : (uint32_t)n;

	if (base > 31)
		return UINT32_MAX;
	if (n == 0)
		return v >> base & 1 ? base : UINT32_MAX;
	for (int pos = (int)base; pos >= 0 && pos < 32; pos += step)
		if (v >> pos & 1 && --left == 0)
			return (uint32_t)pos;
	return UINT32_MAX;
}

ALU3(fns_32, u32, u32, u32, s32, find_nth(x, y, z))

static inline uint32_t extend_u(uint32_t v, uint32_t n)
{
	return v & (uint32_t)ones(n);
}

static inline uint32_t extend_s(uint32_t v, uint32_t n)
{
	if (n == 0 || n > 31)
		return n ? v : 0;
	return (uint32_t)((int32_t)(v << (32 - n)) >> (32 - n));
}

ALU2(szext_clamp_u32, u32, u32, u32, extend_u(x, y))
ALU2(szext_clamp_s32, u32, u32, u32, extend_s(x, y))
ALU2(szext_wrap_u32, u32, u32, u32, extend_u(x, y & 31))
ALU2(szext_wrap_s32, u32, u32, u32, extend_s(x, y & 31))

/* Element n of a packed word, as a number of 32 bits that wraps. */
#define BYTE_u32(v, n) ((uint32_t)(uint8_t)((v) >> (8 * (n))))
#define BYTE_s32(v, n) ((uint32_t)(int8_t)((v) >> (8 * (n))))
#define HALF_u32(v, n) ((uint32_t)(uint16_t)((v) >> (16 * (n))))
#define HALF_s32(v, n) ((uint32_t)(int16_t)((v) >> (16 * (n))))

#define DOT4(A, B)                                                               \
	(z + BYTE_##A(x, 0) * BYTE_##B(y, 0) + BYTE_##A(x, 1) * BYTE_##B(y, 1) + \
	 BYTE_##A(x, 2) * BYTE_##B(y, 2) + BYTE_##A(x, 3) * BYTE_##B(y, 3))
#define DOT2(A, B, at) (z + HALF_##A(x, 0) * BYTE_##B(y, at) + HALF_##A(x, 1) * BYTE_##B(y, at + 1))

ALU3(dp4a_u32_u32, u32, u32, u32, u32, DOT4(u32, u32))
ALU3(dp4a_u32_s32, u32, u32, u32, u32, DOT4(u32, s32))
ALU3(dp4a_s32_u32, u32, u32, u32, u32, DOT4(s32, u32))
ALU3(dp4a_s32_s32, u32, u32, u32, u32, DOT4(s32, s32))
ALU3(dp2a_lo_u32_u32, u32, u32, u32, u32, DOT2(u32, u32, 0))
ALU3(dp2a_lo_u32_s32, u32, u32, u32, u32, DOT2(u32, s32, 0))
ALU3(dp2a_lo_s32_u32, u32, u32, u32, u32, DOT2(s32, u32, 0))
ALU3(dp2a_lo_s32_s32, u32, u32, u32, u32, DOT2(s32, s32, 0))
ALU3(dp2a_hi_u32_u32, u32, u32, u32, u32, DOT2(u32, u32, 2))
ALU3(dp2a_hi_u32_s32, u32, u32, u32, u32, DOT2(u32, s32, 2))
ALU3(dp2a_hi_s32_u32, u32, u32, u32, u32, DOT2(s32, u32, 2))
ALU3(dp2a_hi_s32_s32, u32, u32, u32, u32, DOT2(s32, s32, 2))

static const struct aq_alu_row popc_rows[] = {
	{ "b32", "w:w", popc_32 },
	{ "b64", "w:d", popc_64 },
};

static const struct aq_alu_row clz_rows[] = {
	{ "b32", "w:w", clz_32 },
	{ "b64", "w:d", clz_64 },
};

static const struct aq_alu_row bfind_rows[] = {
	{ "u32", "w:w", bfind_u32 },
	{ "u64", "w:d", bfind_u64 },
	{ "s32", "w:w", bfind_s32 },
	{ "s64", "w:d", bfind_s64 },
	{ "shiftamt.u32", "w:w", bfind_shiftamt_u32 },
	{ "shiftamt.u64", "w:d", bfind_shiftamt_u64 },
	{ "shiftamt.s32", "w:w", bfind_shiftamt_s32 },
	{ "shiftamt.s64", "w:d", bfind_shiftamt_s64 },
};

static const struct aq_alu_row brev_rows[] = {
	{ "b32", "w:w", brev_32 },
	{ "b64", "d:d", brev_64 },
};

static const struct aq_alu_row bfe_rows[] = {
	{ "u32", "w:www", bfe_u32 },
	{ "u64", "d:dww", bfe_u64 },
	{ "s32", "w:www", bfe_s32 },
	{ "s64", "d:dww", bfe_s64 },
};

static const struct aq_alu_row bfi_rows[] = {
	{ "b32", "w:wwww", bfi_32 },
	{ "b64", "d:ddww", bfi_64 },
};

static const struct aq_alu_row bmsk_rows[] = {
	{ "clamp.b32", "w:ww", bmsk_clamp },
	{ "wrap.b32", "w:ww", bmsk_wrap },
};

static const struct aq_alu_row fns_rows[] = {
	{ "b32", "w:www", fns_32 },
};

static const struct aq_alu_row szext_rows[] = {
	{ "clamp.u32", "w:ww", szext_clamp_u32 },
	{ "clamp.s32", "w:ww", szext_clamp_s32 },
	{ "wrap.u32", "w:ww", szext_wrap_u32 },
	{ "wrap.s32", "w:ww", szext_wrap_s32 },
};

static const struct aq_alu_row dp4a_rows[] = {
	{ "u32.u32", "w:www", dp4a_u32_u32 },
	{ "u32.s32", "w:www", dp4a_u32_s32 },
	{ "s32.u32", "w:www", dp4a_s32_u32 },
	{ "s32.s32", "w:www", dp4a_s32_s32 },
};

static const struct aq_alu_row dp2a_rows[] = {
	{ "lo.u32.u32", "w:www", dp2a_lo_u32_u32 }, { "lo.u32.s32", "w:www", dp2a_lo_u32_s32 },
	{ "lo.s32.u32", "w:www", dp2a_lo_s32_u32 }, { "lo.s32.s32", "w:www", dp2a_lo_s32_s32 },
	{ "hi.u32.u32", "w:www", dp2a_hi_u32_u32 }, { "hi.u32.s32", "w:www", dp2a_hi_u32_s32 },
	{ "hi.s32.u32", "w:www", dp2a_hi_s32_u32 }, { "hi.s32.s32", "w:www", dp2a_hi_s32_s32 },
};

const struct aq_alu_group AQ_ISA(aq_alu_groups_bits)[] = {
	AQ_ALU_GROUP("popc", popc_rows),   AQ_ALU_GROUP("clz", clz_rows),
	AQ_ALU_GROUP("bfind", bfind_rows), AQ_ALU_GROUP("brev", brev_rows),
	AQ_ALU_GROUP("bfe", bfe_rows),	   AQ_ALU_GROUP("bfi", bfi_rows),
	AQ_ALU_GROUP("bmsk", bmsk_rows),   AQ_ALU_GROUP("fns", fns_rows),
	AQ_ALU_GROUP("szext", szext_rows), AQ_ALU_GROUP("dp4a", dp4a_rows),
	AQ_ALU_GROUP("dp2a", dp2a_rows),   { 0 },
};
