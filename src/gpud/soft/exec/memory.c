/* SPDX-License-Identifier: Apache-2.0 */
/* Where memory is: views of the device, local memory, parameters of calls, kinds of addresses. */
#include "gpud/soft/exec/access.h"
#include "gpud/soft/exec/ops.h"

#include "base/macro.h"

#include <stdlib.h>

const struct aq_view *aq_view_find(struct aq_warp *w, uint64_t va, uint32_t n, bool write)
{
	struct aq_block *b = w->block;
	const struct aq_mem_map *mem = b->grid->launch.mem;
	struct aq_view v = { 0 };

	for (uint32_t k = 0; k < b->n_views; k++) {
		if (!aq_in_view(&b->views[k], va, n) || (write && !b->views[k].writable))
			continue;
		if (k > 0) { /* what was found last stands first */
			v = b->views[k];
			b->views[k] = b->views[0];
			b->views[0] = v;
		}
		return &b->views[0];
	}
	if (mem->lookup(mem->opaque, va, &v) != AQ_OK || !aq_in_view(&v, va, n) ||
	    (write && !v.writable))
		return NULL;
	if (b->n_views < AQ_N_VIEWS)
		b->next_view = b->n_views++;
	else
		b->next_view = 1 + b->next_view % (AQ_N_VIEWS - 1);
	b->views[b->next_view] = b->views[0];
	b->views[0] = v;
	return &b->views[0];
}

uint8_t *aq_global_ptr(struct aq_warp *w, const struct aq_insn *i, uint64_t va, uint32_t n,
		       bool write)
{
	uint8_t *p = aq_global_try(w, va, n, write);

	if (!p)
		aq_warp_fault(w, i, AQ_E_ILLEGAL_ADDRESS, va);
	return p;
}

void aq_lane_addresses(const struct aq_warp *w, const struct aq_insn *i, uint64_t *addr)
{
	lane_addresses(w, i, addr);
}

bool aq_check_aligned(struct aq_warp *w, const struct aq_insn *i, const uint64_t *addr,
		      uint32_t bytes, uint32_t mask)
{
	uint64_t bad = 0;

	for (int l = 0; l < AQ_LANES; l++)
		bad |= addr[l] & -(uint64_t)(mask >> l & 1);
	if (!(bad & (bytes - 1)))
		return true;
	for (uint32_t m = mask; m; m &= m - 1) {
		uint64_t va = addr[__builtin_ctz(m)];

		if (va & (bytes - 1)) {
			aq_warp_fault(w, i, AQ_E_MISALIGNED, va);
			break;
		}
	}
	return false;
}

uint8_t *aq_local_memory(struct aq_warp *w)
{
	if (!w->local)
		w->local = calloc(w->block->grid->local_limit / 4, AQ_LANES * 4);
	return w->local;
}

bool aq_check_local(struct aq_warp *w, const struct aq_insn *i, const uint64_t *addr, uint32_t n,
		    uint32_t mask)
{
	uint32_t limit = w->block->grid->local_limit;

	if (!aq_check_aligned(w, i, addr, n, mask))
		return false;
	for (uint32_t m = mask; m; m &= m - 1) {
		uint64_t a = addr[__builtin_ctz(m)];

		if (a >= limit || limit - a < n) {
			aq_warp_fault(w, i, AQ_E_ILLEGAL_ADDRESS,
				      AQ_WINDOW_BASE(AQ_WINDOW_LOCAL) + a);
			return false;
		}
	}
	if (!aq_local_memory(w)) {
		aq_warp_fault(w, i, AQ_E_NO_MEMORY, 0);
		return false;
	}
	return true;
}

/* Base of the words that a named parameter is in: the frame's area, or local memory at this activation. NULL after a fault. */
static uint8_t *area_base(struct aq_warp *w, const struct aq_insn *i, uint32_t *ret_offset)
{
	uint8_t *local;

	*ret_offset = (uint32_t)i->imm;
	if (i->target)
		return w->r.base[0] + i->target;
	*ret_offset += w->group->frame->local_off;
	local = aq_local_memory(w);
	if (!local)
		aq_warp_fault(w, i, AQ_E_NO_MEMORY, 0);
	return local;
}

void aq_op_load_area(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	uint32_t offset;
	const uint8_t *base = area_base(w, i, &offset);
	bool wide = i->more & AQ_MEM_WIDE, is_signed = i->more & AQ_MEM_SIGNED;
	void *rows[4];

	if (!base)
		return;
	if (i->vec == 1 && i->size == 4 && !wide) {
		aq_store32(&w->r, i->dst,
			   (const uint32_t *)(const void *)(base + (size_t)offset * AQ_LANES),
			   mask);
		return;
	}
	load_rows(w, i, rows);
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);

		for (unsigned k = 0; k < i->vec; k++)
			put_lane(rows[k], wide, l,
				 load_words(base, offset + k * i->size, l, i->size, is_signed));
	}
}

void aq_op_store_area(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	uint32_t offset;
	uint8_t *base = area_base(w, i, &offset);
	bool wide = i->more & AQ_MEM_WIDE;
	void *rows[4];

	if (!base)
		return;
	store_rows(w, i, rows);
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);

		for (unsigned k = 0; k < i->vec; k++)
			store_words(base, offset + k * i->size, l, i->size,
				    get_lane(rows[k], wide, l));
	}
}

void aq_op_cvta(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	uint64_t a[AQ_LANES], base = AQ_WINDOW_BASE(i->imm);

	lane_addresses(w, &(struct aq_insn){ .a = i->a, .more = i->more }, a);
	for (int l = 0; l < AQ_LANES; l++)
		a[l] = i->size ? a[l] - base : a[l] + base;
	aq_store64(&w->r, i->dst, a, mask);
}

void aq_op_copy_async(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	const uint64_t *b = aq_row64(&w->r, i->b);
	const uint32_t *have = aq_row32(&w->r, i->c);
	uint64_t to[AQ_LANES], from[AQ_LANES];
	uint32_t limit = w->block->grid->shared_bytes;

	lane_addresses(w, i, to);
	for (int l = 0; l < AQ_LANES; l++)
		from[l] = b[l] + (uint64_t)(int32_t)i->target;
	if (!aq_check_aligned(w, i, to, i->size, mask) ||
	    !aq_check_aligned(w, i, from, i->size, mask))
		return;
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);
		uint32_t n = AQ_MIN(have[l], (uint32_t)i->size);
		const uint8_t *p = NULL;

		if (to[l] >= limit || limit - to[l] < i->size) {
			aq_warp_fault(w, i, AQ_E_ILLEGAL_ADDRESS,
				      AQ_WINDOW_BASE(AQ_WINDOW_SHARED) + to[l]);
			return;
		}
		if (n > 0 && !(p = aq_global_ptr(w, i, from[l], n, false)))
			return;
		if (n > 0)
			memcpy(w->block->shared + to[l], p, n);
		memset(w->block->shared + to[l] + n, 0, i->size - n);
	}
}

static bool is_const(const struct aq_code *code, uint64_t va)
{
	for (uint32_t k = 0; k < code->n_symbols; k++) {
		const struct aq_code_symbol *s = &code->symbols[k];

		if (s->is_const && va >= s->va && va - s->va < s->size)
			return true;
	}
	return false;
}

void aq_op_isspacep(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	uint64_t a[AQ_LANES];
	uint32_t p = 0;

	lane_addresses(w, &(struct aq_insn){ .a = i->a, .more = i->more }, a);
	for (unsigned l = 0; l < AQ_LANES; l++) {
		uint64_t window = a[l] >> AQ_WINDOW_SHIFT;
		bool is = false;

		if (i->space == AQ_PTX_SHARED)
			is = window == AQ_WINDOW_SHARED;
		else if (i->space == AQ_PTX_LOCAL)
			is = window == AQ_WINDOW_LOCAL;
		else if (i->space == AQ_PTX_PARAM)
			is = window == AQ_WINDOW_PARAM;
		else if (window == 0)
			is = is_const(w->block->grid->code, a[l]) == (i->space == AQ_PTX_CONST);
		p |= (uint32_t)is << l;
	}
	aq_pred_store(&w->r, i->dst, p, mask);
}
