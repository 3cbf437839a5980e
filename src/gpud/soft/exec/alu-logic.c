/* SPDX-License-Identifier: Apache-2.0 */
/* Bitwise logic, shifts, moves and selections: and or xor not cnot lop3 shl shr shf prmt mov selp slct. */
#include "gpud/soft/exec/alu.h"

/* On predicates a whole warp is one word. */
#define PRED2(name, expr)                                                           \
	static void name(struct aq_regs *r, const struct aq_insn *i, uint32_t mask) \
	{                                                                           \
		const uint32_t x = *aq_pred(r, i->a), y = *aq_pred(r, i->b);        \
		aq_pred_store(r, i->dst, expr, mask);                               \
	}

#define PRED1(name, expr)                                                           \
	static void name(struct aq_regs *r, const struct aq_insn *i, uint32_t mask) \
	{                                                                           \
		const uint32_t x = *aq_pred(r, i->a);                               \
		aq_pred_store(r, i->dst, expr, mask);                               \
	}

PRED2(and_pred, (x & y))
PRED2(or_pred, x | y)
PRED2(xor_pred, x ^ y)
PRED1(not_pred, ~x)
PRED1(mov_pred, x)

ALU2(and_32, u32, u32, u32, (x & y))
ALU2(and_64, u64, u64, u64, (x & y))
ALU2(or_32, u32, u32, u32, x | y)
ALU2(or_64, u64, u64, u64, x | y)
ALU2(xor_32, u32, u32, u32, x ^ y)
ALU2(xor_64, u64, u64, u64, x ^ y)
ALU1(not_32, u32, u32, ~x)
ALU1(not_64, u64, u64, ~x)
ALU1(cnot_16, u16, u16, x == 0)
ALU1(cnot_32, u32, u32, x == 0)
ALU1(cnot_64, u64, u64, x == 0)
ALU1(mov_32, u32, u32, x)
ALU1(mov_64, u64, u64, x)

/*
 * The result of a truth table of eight bits: bit 4x + 2y + z of it says what becomes of bits x, y, z. Each entry is spread to a word, then three
 * levels of selection by z, y and x leave one.
 */
static void table3(struct aq_regs *r, const struct aq_insn *i, uint32_t *ret)
{
	ALU_SRC(pa, u32, a)
	ALU_SRC(pb, u32, b)
	ALU_SRC(pc, u32, c)
	uint32_t t[8];

	for (int n = 0; n < 8; n++)
		t[n] = i->imm >> n & 1 ? UINT32_MAX : 0;
	AQ_EACH_LANE
	{
		const uint32_t x = pa[l], y = pb[l], z = pc[l];
		const uint32_t t00 = t[0] ^ ((t[0] ^ t[1]) & z), t01 = t[2] ^ ((t[2] ^ t[3]) & z);
		const uint32_t t10 = t[4] ^ ((t[4] ^ t[5]) & z), t11 = t[6] ^ ((t[6] ^ t[7]) & z);
		const uint32_t t0 = t00 ^ ((t00 ^ t01) & y), t1 = t10 ^ ((t10 ^ t11) & y);

		ret[l] = t0 ^ ((t0 ^ t1) & x);
	}
}

static void lop3_32(struct aq_regs *r, const struct aq_insn *i, uint32_t mask)
{
	_Alignas(64) uint32_t t[AQ_LANES];

	table3(r, i, t);
	aq_store32(r, i->dst, t, mask);
}

/* With a predicate: the second destination is (result != 0) OP d. */
static uint32_t lop3_nonzero(struct aq_regs *r, const struct aq_insn *i, uint32_t mask)
{
	_Alignas(64) uint32_t t[AQ_LANES];
	uint32_t set = 0;

	table3(r, i, t);
	for (int l = 0; l < AQ_LANES; l++)
		set |= (uint32_t)(t[l] != 0) << l;
	aq_store32(r, i->dst, t, mask);
	return set;
}

static void lop3_or(struct aq_regs *r, const struct aq_insn *i, uint32_t mask)
{
	const uint32_t q = *aq_pred(r, i->d);

	aq_pred_store(r, i->dst2, lop3_nonzero(r, i, mask) | q, mask);
}

static void lop3_and(struct aq_regs *r, const struct aq_insn *i, uint32_t mask)
{
	const uint32_t q = *aq_pred(r, i->d);

	aq_pred_store(r, i->dst2, lop3_nonzero(r, i, mask) & q, mask);
}

/* Amounts beyond the width shift everything out. */
ALU2(shl_16, u16, u16, u32, (y < 16 ? (uint32_t)x << y : 0))
ALU2(shl_32, u32, u32, u32, (y < 32 ? x << y : 0))
ALU2(shl_64, u64, u64, u32, (y < 64 ? x << y : 0))
ALU2(shr_u16, u16, u16, u32, (y < 16 ? x >> y : 0))
ALU2(shr_u32, u32, u32, u32, (y < 32 ? x >> y : 0))
ALU2(shr_u64, u64, u64, u32, (y < 64 ? x >> y : 0))
ALU2(shr_s16, s16, s16, u32, x >> (y < 15 ? y : 15))
ALU2(shr_s32, s32, s32, u32, x >> (y < 31 ? y : 31))
ALU2(shr_s64, s64, s64, u32, x >> (y < 63 ? y : 63))

#define BOTH(x, y) ((uint64_t)(y) << 32 | (x))

ALU3(shf_l_clamp, u32, u32, u32, u32, BOTH(x, y) << (z < 32 ? z : 32) >> 32)
ALU3(shf_l_wrap, u32, u32, u32, u32, BOTH(x, y) << (z & 31) >> 32)
ALU3(shf_r_clamp, u32, u32, u32, u32, BOTH(x, y) >> (z < 32 ? z : 32))
ALU3(shf_r_wrap, u32, u32, u32, u32, BOTH(x, y) >> (z & 31))

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Byte k of the result is byte FROM(k) of y:x. */
#define PICK(k, from) ((uint32_t)(uint8_t)(BOTH(x, y) >> ((from)*8)) << ((k)*8))
#define PERMUTE(FROM) (PICK(0, FROM(0)) | PICK(1, FROM(1)) | PICK(2, FROM(2)) | PICK(3, FROM(3)))
#define FROM_F4E(k)   ((z & 3) + (k))
#define FROM_B4E(k)   (((z & 3) - (k)) & 7)
#define FROM_RC8(k)   (z & 3)
#define FROM_ECL(k)   ((z & 3) > (k) ? (z & 3) : (k))
#define FROM_ECR(k)   min_u32(z & 3, k)
#define FROM_RC16(k)  ((z & 1) * 2 + ((k)&1))

/* The generic form: each nibble of z names a byte, its top bit asks for the byte's sign instead. */
static inline uint32_t permute(uint32_t x, uint32_t y, uint32_t z)
{
	uint32_t v = 0;

	for (int k = 0; k < 4; k++, z >>= 4) {
		const uint8_t byte = (uint8_t)(BOTH(x, y) >> ((z & 7) * 8));

		v |= (uint32_t)(z & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << (k * 8);
	}
	return v;
}

ALU3(prmt_any, u32, u32, u32, u32, permute(x, y, z))
ALU3(prmt_f4e, u32, u32, u32, u32, PERMUTE(FROM_F4E))
ALU3(prmt_b4e, u32, u32, u32, u32, PERMUTE(FROM_B4E))
ALU3(prmt_rc8, u32, u32, u32, u32, PERMUTE(FROM_RC8))
ALU3(prmt_ecl, u32, u32, u32, u32, PERMUTE(FROM_ECL))
ALU3(prmt_ecr, u32, u32, u32, u32, PERMUTE(FROM_ECR))
ALU3(prmt_rc16, u32, u32, u32, u32, PERMUTE(FROM_RC16))

#define SELP(name, T)                               \
	ALU_BEGIN(name, T)                          \
	ALU_SRC(pa, T, a)                           \
	ALU_SRC(pb, T, b)                           \
	const uint32_t p = *aq_pred(r, i->c);       \
	AQ_EACH_LANE                                \
	{                                           \
		const row_##T x = pa[l], y = pb[l]; \
		d[l] = p >> l & 1 ? x : y;          \
	}                                           \
	ALU_END(T)

SELP(selp_32, u32)
SELP(selp_64, u64)

/* A NaN is not >= 0. Flushing a subnormal z to zero matters for negative ones. */
#define MIN_NORMAL 0x1p-126f

ALU3(slct_32_s32, u32, u32, u32, s32, (z >= 0 ? x : y))
ALU3(slct_64_s32, u64, u64, u64, s32, (z >= 0 ? x : y))
ALU3(slct_32_f32, u32, u32, u32, f32, (z >= 0 ? x : y))
ALU3(slct_64_f32, u64, u64, u64, f32, (z >= 0 ? x : y))
ALU3(slct_32_ftz_f32, u32, u32, u32, f32, (z > -MIN_NORMAL ? x : y))
ALU3(slct_64_ftz_f32, u64, u64, u64, f32, (z > -MIN_NORMAL ? x : y))

#define LOGIC_ROWS(op)                                                                         \
	{ "pred", "p:pp", op##_pred }, { "b16", "h:hh", op##_32 }, { "b32", "w:ww", op##_32 }, \
	{                                                                                      \
		"b64", "d:dd", op##_64                                                         \
	}

static const struct aq_alu_row and_rows[] = { LOGIC_ROWS(and) };
static const struct aq_alu_row or_rows[] = { LOGIC_ROWS(or) };
static const struct aq_alu_row xor_rows[] = { LOGIC_ROWS(xor) };

static const struct aq_alu_row not_rows[] = {
	{ "pred", "p:p", not_pred },
	{ "b16", "h:h", not_32 },
	{ "b32", "w:w", not_32 },
	{ "b64", "d:d", not_64 },
};

static const struct aq_alu_row cnot_rows[] = {
	{ "b16", "h:h", cnot_16 },
	{ "b32", "w:w", cnot_32 },
	{ "b64", "d:d", cnot_64 },
};

static const struct aq_alu_row mov_rows[] = {
	{ "pred", "p:p", mov_pred },	  { "b16/u16/s16", "h:h", mov_32 },
	{ "b32/u32/s32", "w:w", mov_32 }, { "f32", "f:f", mov_32 },
	{ "b64/u64/s64", "d:d", mov_64 }, { "f64", "g:g", mov_64 },
};

static const struct aq_alu_row lop3_rows[] = {
	{ "b32", "w:www#", lop3_32 },
	{ "or.b32", "_w|p:www#p", lop3_or },
	{ "and.b32", "_w|p:www#p", lop3_and },
};

static const struct aq_alu_row shl_rows[] = {
	{ "b16", "h:hw", shl_16 },
	{ "b32", "w:ww", shl_32 },
	{ "b64", "d:dw", shl_64 },
};

static const struct aq_alu_row shr_rows[] = {
	{ "b16/u16", "h:hw", shr_u16 }, { "b32/u32", "w:ww", shr_u32 },
	{ "b64/u64", "d:dw", shr_u64 }, { "s16", "h:hw", shr_s16 },
	{ "s32", "w:ww", shr_s32 },	{ "s64", "d:dw", shr_s64 },
};

static const struct aq_alu_row shf_rows[] = {
	{ "l.clamp.b32", "w:www", shf_l_clamp },
	{ "l.wrap.b32", "w:www", shf_l_wrap },
	{ "r.clamp.b32", "w:www", shf_r_clamp },
	{ "r.wrap.b32", "w:www", shf_r_wrap },
};

static const struct aq_alu_row prmt_rows[] = {
	{ "b32", "w:www", prmt_any },	    { "b32.f4e", "w:www", prmt_f4e },
	{ "b32.b4e", "w:www", prmt_b4e },   { "b32.rc8", "w:www", prmt_rc8 },
	{ "b32.ecl", "w:www", prmt_ecl },   { "b32.ecr", "w:www", prmt_ecr },
	{ "b32.rc16", "w:www", prmt_rc16 },
};

static const struct aq_alu_row selp_rows[] = {
	{ "b16/u16/s16", "h:hhp", selp_32 }, { "b32/u32/s32", "w:wwp", selp_32 },
	{ "f32", "f:ffp", selp_32 },	     { "b64/u64/s64", "d:ddp", selp_64 },
	{ "f64", "g:ggp", selp_64 },
};

static const struct aq_alu_row slct_rows[] = {
	{ "b16/u16/s16.s32", "h:hhw", slct_32_s32 },
	{ "b32/u32/s32.s32", "w:www", slct_32_s32 },
	{ "f32.s32", "f:ffw", slct_32_s32 },
	{ "b64/u64/s64.s32", "d:ddw", slct_64_s32 },
	{ "f64.s32", "g:ggw", slct_64_s32 },
	{ "b16/u16/s16.f32", "h:hhf", slct_32_f32 },
	{ "b32/u32/s32.f32", "w:wwf", slct_32_f32 },
	{ "f32.f32", "f:fff", slct_32_f32 },
	{ "b64/u64/s64.f32", "d:ddf", slct_64_f32 },
	{ "f64.f32", "g:ggf", slct_64_f32 },
	{ "ftz.b16/u16/s16.f32", "h:hhf", slct_32_ftz_f32 },
	{ "ftz.b32/u32/s32.f32", "w:wwf", slct_32_ftz_f32 },
	{ "ftz.f32.f32", "f:fff", slct_32_ftz_f32 },
	{ "ftz.b64/u64/s64.f32", "d:ddf", slct_64_ftz_f32 },
	{ "ftz.f64.f32", "g:ggf", slct_64_ftz_f32 },
};

const struct aq_alu_group AQ_ISA(aq_alu_groups_logic)[] = {
	AQ_ALU_GROUP("and", and_rows),	 AQ_ALU_GROUP("or", or_rows),
	AQ_ALU_GROUP("xor", xor_rows),	 AQ_ALU_GROUP("not", not_rows),
	AQ_ALU_GROUP("cnot", cnot_rows), AQ_ALU_GROUP("mov", mov_rows),
	AQ_ALU_GROUP("lop3", lop3_rows), AQ_ALU_GROUP("shl", shl_rows),
	AQ_ALU_GROUP("shr", shr_rows),	 AQ_ALU_GROUP("shf", shf_rows),
	AQ_ALU_GROUP("prmt", prmt_rows), AQ_ALU_GROUP("selp", selp_rows),
	AQ_ALU_GROUP("slct", slct_rows), { 0 },
};
