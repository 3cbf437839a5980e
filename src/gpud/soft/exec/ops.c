/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/exec/ops.h"

#include "gpud/soft/exec/state.h"

void aq_alu_low_half(struct aq_regs *r, const struct aq_insn *i, uint32_t mask)
{
	const uint64_t *a = aq_row64(r, i->a);
	uint32_t v[AQ_LANES];

	for (int l = 0; l < AQ_LANES; l++)
		v[l] = (uint32_t)a[l];
	aq_store32(r, i->dst, v, mask);
}

void aq_alu_extend(struct aq_regs *r, const struct aq_insn *i, uint32_t mask)
{
	const uint32_t *a = aq_row32(r, i->a);
	unsigned shift = 64 - 8u * i->size;
	bool is_signed = i->more & AQ_MEM_SIGNED;
	uint64_t v[AQ_LANES];
	uint32_t narrow[AQ_LANES];

	for (int l = 0; l < AQ_LANES; l++) {
		uint64_t x = (uint64_t)a[l] << shift;

		v[l] = is_signed ? (uint64_t)((int64_t)x >> shift) : x >> shift;
	}
	if (i->more & AQ_MEM_WIDE) {
		aq_store64(r, i->dst, v, mask);
		return;
	}
	for (int l = 0; l < AQ_LANES; l++)
		narrow[l] = (uint32_t)v[l];
	aq_store32(r, i->dst, narrow, mask);
}

void aq_alu_not_pred(struct aq_regs *r, const struct aq_insn *i, uint32_t mask)
{
	aq_pred_store(r, i->dst, ~*aq_pred(r, i->a), mask);
}

void aq_alu_pack(struct aq_regs *r, const struct aq_insn *i, uint32_t mask)
{
	const uint32_t from[4] = { i->a, i->b, i->c, i->d };
	unsigned bits = 8u * i->size;
	uint64_t keep = (1ULL << bits) - 1, v[AQ_LANES] = { 0 };
	uint32_t narrow[AQ_LANES];

	for (unsigned k = 0; k < i->vec; k++) {
		const uint32_t *e = aq_row32(r, from[k]);

		for (int l = 0; l < AQ_LANES; l++)
			v[l] |= (e[l] & keep) << (k * bits);
	}
	if (i->more & AQ_MEM_WIDE) {
		aq_store64(r, i->dst, v, mask);
		return;
	}
	for (int l = 0; l < AQ_LANES; l++)
		narrow[l] = (uint32_t)v[l];
	aq_store32(r, i->dst, narrow, mask);
}

void aq_alu_unpack(struct aq_regs *r, const struct aq_insn *i, uint32_t mask)
{
	const uint32_t to[4] = { i->dst, i->dst2, i->c, i->d };
	unsigned bits = 8u * i->size;
	uint64_t keep = (1ULL << bits) - 1, v[AQ_LANES];
	uint32_t e[AQ_LANES];

	/* The source may be one of the destinations. */
	for (int l = 0; l < AQ_LANES; l++)
		v[l] = i->more & AQ_MEM_WIDE ? aq_row64(r, i->a)[l] : aq_row32(r, i->a)[l];
	for (unsigned k = 0; k < i->vec; k++) {
		for (int l = 0; l < AQ_LANES; l++)
			e[l] = (uint32_t)(v[l] >> (k * bits) & keep);
		aq_store32(r, to[k], e, mask);
	}
}

static void store_uniform(struct aq_warp *w, const struct aq_insn *i, uint64_t value, uint32_t mask)
{
	uint64_t wide[AQ_LANES];
	uint32_t narrow[AQ_LANES];

	for (int l = 0; l < AQ_LANES; l++) {
		wide[l] = value;
		narrow[l] = (uint32_t)value;
	}
	if (i->size == 8)
		aq_store64(&w->r, i->dst, wide, mask);
	else
		aq_store32(&w->r, i->dst, narrow, mask);
}

void aq_op_local_address(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	store_uniform(w, i, w->group->frame->local_off + i->imm, mask);
}

void aq_op_dynamic_address(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	store_uniform(w, i, w->block->grid->kernel->dynamic_shared + i->imm, mask);
}

void aq_op_nop(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	(void)w;
	(void)i;
	(void)mask;
}

void aq_op_fence(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	(void)w;
	(void)i;
	(void)mask;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}
