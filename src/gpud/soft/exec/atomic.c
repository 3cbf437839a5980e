/* SPDX-License-Identifier: Apache-2.0 */
/* atom and red: one lane after the other, each with the host's own atomics, so that blocks, cards' workers and client processes agree. */
#include "gpud/soft/exec/ops.h"
#include "gpud/soft/exec/state.h"

#define inline_always static inline __attribute__((always_inline))

inline_always uint64_t apply(uint64_t old, uint64_t b, enum aq_atom op, unsigned size)
{
	switch (op) {
	case AQ_ATOM_INC:
		return old >= b ? 0 : old + 1;
	case AQ_ATOM_DEC:
		return old == 0 || old > b ? b : old - 1;
	case AQ_ATOM_MIN:
		return old < b ? old : b;
	case AQ_ATOM_MAX:
		return old > b ? old : b;
	case AQ_ATOM_MINS:
		if (size == 4)
			return (int32_t)old < (int32_t)b ? old : b;
		return (int64_t)old < (int64_t)b ? old : b;
	case AQ_ATOM_MAXS:
		if (size == 4)
			return (int32_t)old > (int32_t)b ? old : b;
		return (int64_t)old > (int64_t)b ? old : b;
	case AQ_ATOM_FADD:
		if (size == 4) {
			uint32_t o = (uint32_t)old, v = (uint32_t)b;
			float x, y;

			memcpy(&x, &o, 4);
			memcpy(&y, &v, 4);
			x += y;
			memcpy(&o, &x, 4);
			return o;
		} else {
			double x, y;

			memcpy(&x, &old, 8);
			memcpy(&y, &b, 8);
			x += y;
			memcpy(&old, &x, 8);
			return old;
		}
	case AQ_ATOM_AND:
	case AQ_ATOM_OR:
	case AQ_ATOM_XOR:
	case AQ_ATOM_EXCH:
	case AQ_ATOM_ADD:
	case AQ_ATOM_CAS:
	default:
		return b;
	}
}

/* What the host can do in one instruction, and a loop of compare and exchange for the rest. */
#define ATOM(type)                                                                                 \
	static type atom_##type(type *p, type b, type c, enum aq_atom op)                          \
	{                                                                                          \
		type old;                                                                          \
                                                                                                   \
		switch (op) {                                                                      \
		case AQ_ATOM_AND:                                                                  \
			return __atomic_fetch_and(p, b, __ATOMIC_SEQ_CST);                         \
		case AQ_ATOM_OR:                                                                   \
			return __atomic_fetch_or(p, b, __ATOMIC_SEQ_CST);                          \
		case AQ_ATOM_XOR:                                                                  \
			return __atomic_fetch_xor(p, b, __ATOMIC_SEQ_CST);                         \
		case AQ_ATOM_ADD:                                                                  \
			return __atomic_fetch_add(p, b, __ATOMIC_SEQ_CST);                         \
		case AQ_ATOM_EXCH:                                                                 \
			return __atomic_exchange_n(p, b, __ATOMIC_SEQ_CST);                        \
		case AQ_ATOM_CAS:                                                                  \
			old = b;                                                                   \
			(void)__atomic_compare_exchange_n(p, &old, c, false, __ATOMIC_SEQ_CST,     \
							  __ATOMIC_SEQ_CST);                       \
			return old;                                                                \
		case AQ_ATOM_INC:                                                                  \
		case AQ_ATOM_DEC:                                                                  \
		case AQ_ATOM_MIN:                                                                  \
		case AQ_ATOM_MAX:                                                                  \
		case AQ_ATOM_MINS:                                                                 \
		case AQ_ATOM_MAXS:                                                                 \
		case AQ_ATOM_FADD:                                                                 \
		default:                                                                           \
			old = __atomic_load_n(p, __ATOMIC_RELAXED);                                \
			while (!__atomic_compare_exchange_n(p, &old,                               \
							    (type)apply(old, b, op, sizeof(type)), \
							    true, __ATOMIC_SEQ_CST,                \
							    __ATOMIC_RELAXED))                     \
				;                                                                  \
			return old;                                                                \
		}                                                                                  \
	}

ATOM(uint16_t)
ATOM(uint32_t)
ATOM(uint64_t)

static uint8_t *atom_ptr(struct aq_warp *w, const struct aq_insn *i, uint64_t va)
{
	uint32_t limit = w->block->grid->shared_bytes;

	if (i->space == AQ_PTX_GENERIC && va >> AQ_WINDOW_SHIFT == AQ_WINDOW_SHARED)
		va -= AQ_WINDOW_BASE(AQ_WINDOW_SHARED);
	else if (i->space == AQ_PTX_GENERIC && va >> AQ_WINDOW_SHIFT == AQ_WINDOW_LOCAL) {
		aq_warp_fault(w, i, AQ_E_ADDRESS_SPACE, va);
		return NULL;
	} else if (i->space != AQ_PTX_SHARED)
		return aq_global_ptr(w, i, va, i->size, true);
	if (va < limit && limit - va >= i->size)
		return w->block->shared + va;
	aq_warp_fault(w, i, AQ_E_ILLEGAL_ADDRESS, AQ_WINDOW_BASE(AQ_WINDOW_SHARED) + va);
	return NULL;
}

static uint64_t atom_lane(uint8_t *p, uint64_t b, uint64_t c, enum aq_atom op, unsigned size)
{
	switch (size) {
	case 2:
		return atom_uint16_t((uint16_t *)(void *)p, (uint16_t)b, (uint16_t)c, op);
	case 4:
		return atom_uint32_t((uint32_t *)(void *)p, (uint32_t)b, (uint32_t)c, op);
	default:
		return atom_uint64_t((uint64_t *)(void *)p, b, c, op);
	}
}

void aq_op_atom(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	uint64_t addr[AQ_LANES], old[AQ_LANES] = { 0 };
	const void *b = aq_row(&w->r, i->b), *c = aq_row(&w->r, i->c);
	bool wide = i->size == 8;
	uint32_t narrow[AQ_LANES];

	aq_lane_addresses(w, i, addr);
	if (!aq_check_aligned(w, i, addr, i->size, mask))
		return;
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);
		uint8_t *p = atom_ptr(w, i, addr[l]);

		if (!p)
			return;
		old[l] = atom_lane(p, wide ? ((const uint64_t *)b)[l] : ((const uint32_t *)b)[l],
				   wide ? ((const uint64_t *)c)[l] : ((const uint32_t *)c)[l],
				   (enum aq_atom)i->vec, i->size);
	}
	if (i->more & AQ_MEM_NO_RESULT)
		return;
	if (wide) {
		aq_store64(&w->r, i->dst, old, mask);
		return;
	}
	for (int l = 0; l < AQ_LANES; l++)
		narrow[l] = (uint32_t)old[l];
	aq_store32(&w->r, i->dst, narrow, mask);
}
