/* SPDX-License-Identifier: Apache-2.0 */
/* Single accesses of lanes: elements in memory, in rows, and in words interleaved over the lanes. */
#pragma once

#include "gpud/soft/exec/state.h"

#define inline_always static inline __attribute__((always_inline))

/* Is [va, va + n) inside? Views are pages long, so end - n does not wrap. */
inline_always bool aq_in_view(const struct aq_view *v, uint64_t va, uint32_t n)
{
	return va >= v->base && va <= v->end - n;
}

/* Host address of [va, va + n), or NULL. */
inline_always uint8_t *aq_global_try(struct aq_warp *w, uint64_t va, uint32_t n, bool write)
{
	const struct aq_view *v = &w->block->views[0];

	if (w->block->n_views == 0 || !aq_in_view(v, va, n) || (write && !v->writable))
		v = aq_view_find(w, va, n, write);
	return v ? v->host + (va - v->base) : NULL;
}

inline_always void lane_addresses(const struct aq_warp *w, const struct aq_insn *i, uint64_t *addr)
{
	if (i->more & AQ_MEM_ADDR32) {
		const uint32_t *a = aq_row32(&w->r, i->a);
		uint32_t imm = (uint32_t)i->imm;

		for (int l = 0; l < AQ_LANES; l++)
			addr[l] = (uint32_t)(a[l] + imm);
		return;
	}
	const uint64_t *a = aq_row64(&w->r, i->a);

	for (int l = 0; l < AQ_LANES; l++)
		addr[l] = a[l] + i->imm;
}

/* Bytes of an element, extended as the register wants them. */
inline_always uint64_t load_element(const uint8_t *p, unsigned size, bool is_signed)
{
	switch (size) {
	case 1: {
		uint8_t v = __atomic_load_n(p, __ATOMIC_RELAXED);

		return is_signed ? (uint64_t)(int8_t)v : v;
	}
	case 2: {
		uint16_t v = __atomic_load_n((const uint16_t *)(const void *)p, __ATOMIC_RELAXED);

		return is_signed ? (uint64_t)(int16_t)v : v;
	}
	case 4: {
		uint32_t v = __atomic_load_n((const uint32_t *)(const void *)p, __ATOMIC_RELAXED);

		return is_signed ? (uint64_t)(int32_t)v : v;
	}
	default:
		return __atomic_load_n((const uint64_t *)(const void *)p, __ATOMIC_RELAXED);
	}
}

inline_always void store_element(uint8_t *p, unsigned size, uint64_t v)
{
	switch (size) {
	case 1:
		__atomic_store_n(p, (uint8_t)v, __ATOMIC_RELAXED);
		break;
	case 2:
		__atomic_store_n((uint16_t *)(void *)p, (uint16_t)v, __ATOMIC_RELAXED);
		break;
	case 4:
		__atomic_store_n((uint32_t *)(void *)p, (uint32_t)v, __ATOMIC_RELAXED);
		break;
	default:
		__atomic_store_n((uint64_t *)(void *)p, v, __ATOMIC_RELAXED);
		break;
	}
}

inline_always void put_lane(void *row, bool wide, unsigned lane, uint64_t v)
{
	if (wide)
		((uint64_t *)row)[lane] = v;
	else
		((uint32_t *)row)[lane] = (uint32_t)v;
}

inline_always uint64_t get_lane(const void *row, bool wide, unsigned lane)
{
	return wide ? ((const uint64_t *)row)[lane] : ((const uint32_t *)row)[lane];
}

/* Rows of the elements of a load (destinations) or a store (sources). */
inline_always void load_rows(const struct aq_warp *w, const struct aq_insn *i, void **rows)
{
	rows[0] = aq_row(&w->r, i->dst);
	if (i->vec > 1)
		rows[1] = aq_row(&w->r, i->dst2);
	if (i->vec > 2) {
		rows[2] = aq_row(&w->r, i->c);
		rows[3] = aq_row(&w->r, i->d);
	}
}

inline_always void store_rows(const struct aq_warp *w, const struct aq_insn *i, void **rows)
{
	rows[0] = aq_row(&w->r, i->b);
	if (i->vec > 1)
		rows[1] = aq_row(&w->r, i->c);
	if (i->vec > 2) {
		rows[2] = aq_row(&w->r, i->d);
		rows[3] = aq_row(&w->r, i->dst);
	}
}

/* Words interleaved over the lanes: an element of 8 bytes is two words, smaller ones are inside one. */
inline_always uint64_t load_words(const uint8_t *base, uint32_t offset, unsigned lane,
				  unsigned size, bool is_signed)
{
	const uint8_t *p = base + (size_t)(offset >> 2) * (AQ_LANES * 4) + lane * 4 + (offset & 3);
	uint32_t hi;

	if (size < 8)
		return load_element(p, size, is_signed);
	memcpy(&hi, p + AQ_LANES * 4, 4);
	return load_element(p, 4, false) | (uint64_t)hi << 32;
}

inline_always void store_words(uint8_t *base, uint32_t offset, unsigned lane, unsigned size,
			       uint64_t v)
{
	uint8_t *p = base + (size_t)(offset >> 2) * (AQ_LANES * 4) + lane * 4 + (offset & 3);
	uint32_t hi = (uint32_t)(v >> 32);

	if (size < 8) {
		store_element(p, size, v);
		return;
	}
	store_element(p, 4, v);
	memcpy(p + AQ_LANES * 4, &hi, 4);
}
