/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic of several words: add.cc addc sub.cc subc mad.cc madc. The carry of a lane lives in its bit of aq_regs.cc; a subtraction
 * leaves its borrow there. Lanes that are off keep theirs.
 */
#include "gpud/soft/exec/alu.h"

/* d = x OP y OP carry, where CIN says whether there is one; COUT whether the new one is kept. */
#define CARRY(name, T, OP, CIN, COUT, sources, x_of, y_of)              \
	ALU_BEGIN(name, T)                                              \
	sources;                                                        \
	uint32_t out = 0;                                               \
	for (int l = 0; l < AQ_LANES; l++) {                            \
		const val_##T x = x_of, y = y_of;                       \
		const val_##T in = CIN ? r->cc >> l & 1 : 0;            \
		val_##T sum;                                            \
		uint32_t carry = __builtin_##OP##_overflow(x, y, &sum); \
		carry |= __builtin_##OP##_overflow(sum, in, &sum);      \
		d[l] = sum;                                             \
		out |= carry << l;                                      \
	}                                                               \
	if (COUT)                                                       \
		r->cc = (r->cc & ~mask) | (out & mask);                 \
	ALU_END(T)

#define TWO(T)	 ALU_SRC(pa, T, a) ALU_SRC(pb, T, b)
#define THREE(T) TWO(T) ALU_SRC(pc, T, c)

#define HI_u32(x, y) ((uint32_t)((uint64_t)(x) * (y) >> 32))
#define HI_s32(x, y) ((uint32_t)((uint64_t)((int64_t)(int32_t)(x) * (int32_t)(y)) >> 32))
#define HI_u64(x, y) ((uint64_t)((unsigned __int128)(x) * (y) >> 64))
#define HI_s64(x, y) ((uint64_t)((unsigned __int128)((__int128)(int64_t)(x) * (int64_t)(y)) >> 64))

#define OF_WIDTH(T)                                                        \
	CARRY(add_cc_##T, T, add, 0, 1, TWO(T), pa[l], pb[l])              \
	CARRY(addc_##T, T, add, 1, 0, TWO(T), pa[l], pb[l])                \
	CARRY(addc_cc_##T, T, add, 1, 1, TWO(T), pa[l], pb[l])             \
	CARRY(sub_cc_##T, T, sub, 0, 1, TWO(T), pa[l], pb[l])              \
	CARRY(subc_##T, T, sub, 1, 0, TWO(T), pa[l], pb[l])                \
	CARRY(subc_cc_##T, T, sub, 1, 1, TWO(T), pa[l], pb[l])             \
	CARRY(mad_lo_cc_##T, T, add, 0, 1, THREE(T), pa[l] * pb[l], pc[l]) \
	CARRY(madc_lo_##T, T, add, 1, 0, THREE(T), pa[l] * pb[l], pc[l])   \
	CARRY(madc_lo_cc_##T, T, add, 1, 1, THREE(T), pa[l] * pb[l], pc[l])

#define OF_TYPE(T, W)                                                             \
	CARRY(mad_hi_cc_##T, W, add, 0, 1, THREE(W), HI_##T(pa[l], pb[l]), pc[l]) \
	CARRY(madc_hi_##T, W, add, 1, 0, THREE(W), HI_##T(pa[l], pb[l]), pc[l])   \
	CARRY(madc_hi_cc_##T, W, add, 1, 1, THREE(W), HI_##T(pa[l], pb[l]), pc[l])

OF_WIDTH(u32)
OF_WIDTH(u64)
OF_TYPE(u32, u32)
OF_TYPE(s32, u32)
OF_TYPE(u64, u64)
OF_TYPE(s64, u64)

static const struct aq_alu_row add_rows[] = {
	{ "cc.u32/s32", "w:ww", add_cc_u32 },
	{ "cc.u64/s64", "d:dd", add_cc_u64 },
};

static const struct aq_alu_row addc_rows[] = {
	{ "u32/s32", "w:ww", addc_u32 },
	{ "u64/s64", "d:dd", addc_u64 },
	{ "cc.u32/s32", "w:ww", addc_cc_u32 },
	{ "cc.u64/s64", "d:dd", addc_cc_u64 },
};

static const struct aq_alu_row sub_rows[] = {
	{ "cc.u32/s32", "w:ww", sub_cc_u32 },
	{ "cc.u64/s64", "d:dd", sub_cc_u64 },
};

static const struct aq_alu_row subc_rows[] = {
	{ "u32/s32", "w:ww", subc_u32 },
	{ "u64/s64", "d:dd", subc_u64 },
	{ "cc.u32/s32", "w:ww", subc_cc_u32 },
	{ "cc.u64/s64", "d:dd", subc_cc_u64 },
};

static const struct aq_alu_row mad_rows[] = {
	{ "lo.cc.u32/s32", "w:www", mad_lo_cc_u32 }, { "lo.cc.u64/s64", "d:ddd", mad_lo_cc_u64 },
	{ "hi.cc.u32", "w:www", mad_hi_cc_u32 },     { "hi.cc.s32", "w:www", mad_hi_cc_s32 },
	{ "hi.cc.u64", "d:ddd", mad_hi_cc_u64 },     { "hi.cc.s64", "d:ddd", mad_hi_cc_s64 },
};

static const struct aq_alu_row madc_rows[] = {
	{ "lo.u32/s32", "w:www", madc_lo_u32 },	      { "lo.u64/s64", "d:ddd", madc_lo_u64 },
	{ "lo.cc.u32/s32", "w:www", madc_lo_cc_u32 }, { "lo.cc.u64/s64", "d:ddd", madc_lo_cc_u64 },
	{ "hi.u32", "w:www", madc_hi_u32 },	      { "hi.s32", "w:www", madc_hi_s32 },
	{ "hi.u64", "d:ddd", madc_hi_u64 },	      { "hi.s64", "d:ddd", madc_hi_s64 },
	{ "hi.cc.u32", "w:www", madc_hi_cc_u32 },     { "hi.cc.s32", "w:www", madc_hi_cc_s32 },
	{ "hi.cc.u64", "d:ddd", madc_hi_cc_u64 },     { "hi.cc.s64", "d:ddd", madc_hi_cc_s64 },
};

const struct aq_alu_group AQ_ISA(aq_alu_groups_carry)[] = {
	AQ_ALU_GROUP("add", add_rows),
	AQ_ALU_GROUP("addc", addc_rows),
	AQ_ALU_GROUP("sub", sub_rows),
	AQ_ALU_GROUP("subc", subc_rows),
	AQ_ALU_GROUP("mad", mad_rows),
	AQ_ALU_GROUP("madc", madc_rows),
	{ 0 },
};
