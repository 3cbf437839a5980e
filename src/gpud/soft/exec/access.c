/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and stores of a warp, by state space and width. Built for each level of the architecture, like alu-*.c. */
#include "gpud/soft/exec/access.h"
#include "gpud/soft/exec/ops.h"

/* All 32 elements stand behind each other at p. */
inline_always void load_stride(void *row, const uint8_t *p, unsigned size, bool is_signed,
			       bool wide)
{
	uint64_t v[AQ_LANES];

	if (size == (wide ? 8u : 4u)) {
		memcpy(row, p, (size_t)size * AQ_LANES);
		return;
	}
	for (int l = 0; l < AQ_LANES; l++)
		v[l] = load_element(p + (size_t)l * size, size, is_signed);
	for (unsigned l = 0; l < AQ_LANES; l++)
		put_lane(row, wide, l, v[l]);
}

inline_always void store_stride(const void *row, uint8_t *p, unsigned size, bool wide)
{
	if (size == (wide ? 8u : 4u)) {
		memcpy(p, row, (size_t)size * AQ_LANES);
		return;
	}
	for (unsigned l = 0; l < AQ_LANES; l++)
		store_element(p + (size_t)l * size, size, get_lane(row, wide, l));
}

enum pattern {
	ANY,
	STRIDE, /* each lane its own element, one behind the other */
	SAME
};

/* What the addresses of a whole warp look like. */
inline_always enum pattern pattern_of(const uint64_t *addr, unsigned size)
{
	uint64_t stride = 0, same = 0;

	for (unsigned l = 0; l < AQ_LANES; l++) {
		uint64_t d = addr[l] - addr[0];

		stride |= d ^ ((uint64_t)l * size);
		same |= d;
	}
	return stride == 0 ? STRIDE : same == 0 ? SAME : ANY;
}

inline_always bool aligned(struct aq_warp *w, const struct aq_insn *i, const uint64_t *addr,
			   unsigned size, uint32_t mask)
{
	return (size == 1 && i->vec == 1) || aq_check_aligned(w, i, addr, size * i->vec, mask);
}

/* Host address of n bytes of global or shared memory; NULL: they are not all there, or not in one piece. */
inline_always uint8_t *try_ptr(struct aq_warp *w, uint64_t va, uint32_t n, bool shared, bool write)
{
	uint32_t limit = w->block->grid->shared_bytes;

	if (!shared)
		return aq_global_try(w, va, n, write);
	return va < limit && limit - va >= n ? w->block->shared + va : NULL;
}

/* The same for one lane, for which NULL is a fault. */
inline_always uint8_t *lane_ptr(struct aq_warp *w, const struct aq_insn *i, uint64_t va, uint32_t n,
				bool shared, bool write)
{
	uint8_t *p = try_ptr(w, va, n, shared, write);

	if (__builtin_expect(!p, 0))
		aq_warp_fault(w, i, AQ_E_ILLEGAL_ADDRESS,
			      shared ? AQ_WINDOW_BASE(AQ_WINDOW_SHARED) + va : va);
	return p;
}

inline_always void load_bytes(struct aq_warp *w, const struct aq_insn *i, uint32_t mask,
			      const uint64_t *addr, bool shared, unsigned size, bool is_signed,
			      bool wide)
{
	void *rows[4];
	uint32_t n = size * i->vec;

	if (!aligned(w, i, addr, size, mask))
		return;
	load_rows(w, i, rows);
	if (mask == AQ_FULL_MASK && i->vec == 1 && !(i->more & AQ_MEM_STRONG)) {
		enum pattern pattern = pattern_of(addr, size);
		uint8_t *p;

		if (pattern == STRIDE &&
		    (p = try_ptr(w, addr[0], size * AQ_LANES, shared, false)) != NULL) {
			load_stride(rows[0], p, size, is_signed, wide);
			return;
		}
		if (pattern == SAME) {
			p = lane_ptr(w, i, addr[0], size, shared, false);
			if (!p)
				return;
			uint64_t v = load_element(p, size, is_signed);

			for (unsigned l = 0; l < AQ_LANES; l++)
				put_lane(rows[0], wide, l, v);
			return;
		}
	}
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);
		const uint8_t *p = lane_ptr(w, i, addr[l], n, shared, false);

		if (!p)
			return;
		put_lane(rows[0], wide, l, load_element(p, size, is_signed));
		for (unsigned k = 1; k < i->vec; k++)
			put_lane(rows[k], wide, l, load_element(p + k * size, size, is_signed));
	}
	if (i->more & AQ_MEM_ACQUIRE)
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

inline_always void store_bytes(struct aq_warp *w, const struct aq_insn *i, uint32_t mask,
			       const uint64_t *addr, bool shared, unsigned size, bool wide)
{
	void *rows[4];
	uint32_t n = size * i->vec;

	if (!aligned(w, i, addr, size, mask))
		return;
	store_rows(w, i, rows);
	if (i->more & AQ_MEM_RELEASE)
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (mask == AQ_FULL_MASK && i->vec == 1 && !(i->more & AQ_MEM_STRONG) &&
	    pattern_of(addr, size) == STRIDE) {
		uint8_t *p = try_ptr(w, addr[0], size * AQ_LANES, shared, true);

		if (p) {
			store_stride(rows[0], p, size, wide);
			return;
		}
	}
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);
		uint8_t *p = lane_ptr(w, i, addr[l], n, shared, true);

		if (!p)
			return;
		store_element(p, size, get_lane(rows[0], wide, l));
		for (unsigned k = 1; k < i->vec; k++)
			store_element(p + k * size, size, get_lane(rows[k], wide, l));
	}
}

/*
 * What follows is not built for each width: local memory, parameters, and generic addresses that lead to more than device memory.
 */
static void load_lane(const struct aq_insn *i, void **rows, unsigned lane, const uint8_t *p)
{
	for (unsigned k = 0; k < i->vec; k++)
		put_lane(rows[k], i->more & AQ_MEM_WIDE, lane,
			 load_element(p + k * i->size, i->size, i->more & AQ_MEM_SIGNED));
}

static void load_local_at(struct aq_warp *w, const struct aq_insn *i, uint32_t mask,
			  const uint64_t *addr)
{
	void *rows[4];

	if (!aq_check_local(w, i, addr, i->size * i->vec, mask))
		return;
	load_rows(w, i, rows);
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);

		for (unsigned k = 0; k < i->vec; k++)
			put_lane(rows[k], i->more & AQ_MEM_WIDE, l,
				 load_words(w->local, (uint32_t)addr[l] + k * i->size, l, i->size,
					    i->more & AQ_MEM_SIGNED));
	}
}

static void store_local_at(struct aq_warp *w, const struct aq_insn *i, uint32_t mask,
			   const uint64_t *addr)
{
	void *rows[4];

	if (!aq_check_local(w, i, addr, i->size * i->vec, mask))
		return;
	store_rows(w, i, rows);
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);

		for (unsigned k = 0; k < i->vec; k++)
			store_words(w->local, (uint32_t)addr[l] + k * i->size, l, i->size,
				    get_lane(rows[k], i->more & AQ_MEM_WIDE, l));
	}
}

/* The kernel's parameters: the same bytes for all lanes, mostly at the same address. */
static void load_params_at(struct aq_warp *w, const struct aq_insn *i, uint32_t mask,
			   const uint64_t *addr)
{
	const struct aq_grid *g = w->block->grid;
	uint64_t limit = g->kernel->info.param_bytes;
	uint32_t n = i->size * i->vec;
	void *rows[4];

	if (!aq_check_aligned(w, i, addr, n, mask))
		return;
	load_rows(w, i, rows);
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);

		if (addr[l] >= limit || limit - addr[l] < n) {
			aq_warp_fault(w, i, AQ_E_ILLEGAL_ADDRESS,
				      AQ_WINDOW_BASE(AQ_WINDOW_PARAM) + addr[l]);
			return;
		}
		load_lane(i, rows, l, g->params + addr[l]);
	}
}

static void load_local(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	uint64_t addr[AQ_LANES];

	lane_addresses(w, i, addr);
	load_local_at(w, i, mask, addr);
}

static void store_local(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	uint64_t addr[AQ_LANES];

	lane_addresses(w, i, addr);
	store_local_at(w, i, mask, addr);
}

static void load_param(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	const struct aq_grid *g = w->block->grid;
	uint64_t addr[AQ_LANES], limit = g->kernel->info.param_bytes;
	void *rows[4];

	lane_addresses(w, i, addr);
	if (!(i->a & AQ_OPERAND_IN_POOL) || mask != AQ_FULL_MASK || i->vec != 1 ||
	    addr[0] >= limit || limit - addr[0] < i->size || (addr[0] & (i->size - 1u))) {
		load_params_at(w, i, mask, addr);
		return;
	}
	uint64_t v = load_element(g->params + addr[0], i->size, i->more & AQ_MEM_SIGNED);

	load_rows(w, i, rows);
	for (unsigned l = 0; l < AQ_LANES; l++)
		put_lane(rows[0], i->more & AQ_MEM_WIDE, l, v);
}

/* Lanes of `mask` that point into the same window as its first one, with what is left of their addresses. */
static uint32_t same_window(const uint64_t *addr, uint32_t mask, unsigned *ret_window,
			    uint64_t *ret_addr)
{
	uint64_t window = addr[__builtin_ctz(mask)] >> AQ_WINDOW_SHIFT;
	uint32_t same = 0;

	for (unsigned l = 0; l < AQ_LANES; l++) {
		same |= (uint32_t)(addr[l] >> AQ_WINDOW_SHIFT == window) << l;
		ret_addr[l] = addr[l] & ((1ULL << AQ_WINDOW_SHIFT) - 1);
	}
	*ret_window = (unsigned)window;
	return same & mask;
}

static void load_bytes_at(struct aq_warp *w, const struct aq_insn *i, uint32_t mask,
			  const uint64_t *addr, bool shared)
{
	void *rows[4];

	if (!aq_check_aligned(w, i, addr, i->size * i->vec, mask))
		return;
	load_rows(w, i, rows);
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);
		const uint8_t *p = lane_ptr(w, i, addr[l], i->size * i->vec, shared, false);

		if (!p)
			return;
		load_lane(i, rows, l, p);
	}
}

static void store_bytes_at(struct aq_warp *w, const struct aq_insn *i, uint32_t mask,
			   const uint64_t *addr, bool shared)
{
	void *rows[4];

	if (!aq_check_aligned(w, i, addr, i->size * i->vec, mask))
		return;
	store_rows(w, i, rows);
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);
		uint8_t *p = lane_ptr(w, i, addr[l], i->size * i->vec, shared, true);

		if (!p)
			return;
		for (unsigned k = 0; k < i->vec; k++)
			store_element(p + k * i->size, i->size,
				      get_lane(rows[k], i->more & AQ_MEM_WIDE, l));
	}
}

static void load_windows(struct aq_warp *w, const struct aq_insn *i, uint32_t mask,
			 const uint64_t *addr)
{
	uint64_t part[AQ_LANES];

	while (mask && !w->event) {
		unsigned window;
		uint32_t now = same_window(addr, mask, &window, part);

		mask &= ~now;
		if (window == 0 || window == AQ_WINDOW_SHARED)
			load_bytes_at(w, i, now, part, window == AQ_WINDOW_SHARED);
		else if (window == AQ_WINDOW_LOCAL)
			load_local_at(w, i, now, part);
		else if (window == AQ_WINDOW_PARAM)
			load_params_at(w, i, now, part);
		else
			aq_warp_fault(w, i, AQ_E_ILLEGAL_ADDRESS, addr[__builtin_ctz(now)]);
	}
	if (i->more & AQ_MEM_ACQUIRE)
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static void store_windows(struct aq_warp *w, const struct aq_insn *i, uint32_t mask,
			  const uint64_t *addr)
{
	uint64_t part[AQ_LANES];

	if (i->more & AQ_MEM_RELEASE)
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	while (mask && !w->event) {
		unsigned window;
		uint32_t now = same_window(addr, mask, &window, part);

		mask &= ~now;
		if (window == 0 || window == AQ_WINDOW_SHARED)
			store_bytes_at(w, i, now, part, window == AQ_WINDOW_SHARED);
		else if (window == AQ_WINDOW_LOCAL)
			store_local_at(w, i, now, part);
		else
			aq_warp_fault(w, i, AQ_E_ILLEGAL_ADDRESS, addr[__builtin_ctz(now)]);
	}
}

/* Does any lane's address lie above device memory? */
inline_always bool has_window(const uint64_t *addr)
{
	uint64_t high = 0;

	for (int l = 0; l < AQ_LANES; l++)
		high |= addr[l];
	return high >> AQ_WINDOW_SHIFT != 0;
}

/* One handler for each size and register, of device and of shared memory; generic addresses mostly are the former. */
#define LOAD(name, size, sign, wide)                                                               \
	static void load_at_##name(struct aq_warp *w, const struct aq_insn *i, uint32_t mask,      \
				   const uint64_t *addr)                                           \
	{                                                                                          \
		load_bytes(w, i, mask, addr, false, size, sign, wide);                             \
	}                                                                                          \
	static void load_global_##name(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)  \
	{                                                                                          \
		uint64_t addr[AQ_LANES];                                                           \
		lane_addresses(w, i, addr);                                                        \
		load_at_##name(w, i, mask, addr);                                                  \
	}                                                                                          \
	static void load_shared_##name(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)  \
	{                                                                                          \
		uint64_t addr[AQ_LANES];                                                           \
		lane_addresses(w, i, addr);                                                        \
		load_bytes(w, i, mask, addr, true, size, sign, wide);                              \
	}                                                                                          \
	static void load_generic_##name(struct aq_warp *w, const struct aq_insn *i, uint32_t mask) \
	{                                                                                          \
		uint64_t addr[AQ_LANES];                                                           \
		lane_addresses(w, i, addr);                                                        \
		if (has_window(addr))                                                              \
			load_windows(w, i, mask, addr);                                            \
		else                                                                               \
			load_at_##name(w, i, mask, addr);                                          \
	}                                                                                          \
	static const struct handlers load_##name = { load_global_##name, load_shared_##name,       \
						     load_local, load_param,                       \
						     load_generic_##name };

#define STORE(name, size, wide)                                                                    \
	static void store_at_##name(struct aq_warp *w, const struct aq_insn *i, uint32_t mask,     \
				    const uint64_t *addr)                                          \
	{                                                                                          \
		store_bytes(w, i, mask, addr, false, size, wide);                                  \
	}                                                                                          \
	static void store_global_##name(struct aq_warp *w, const struct aq_insn *i, uint32_t mask) \
	{                                                                                          \
		uint64_t addr[AQ_LANES];                                                           \
		lane_addresses(w, i, addr);                                                        \
		store_at_##name(w, i, mask, addr);                                                 \
	}                                                                                          \
	static void store_shared_##name(struct aq_warp *w, const struct aq_insn *i, uint32_t mask) \
	{                                                                                          \
		uint64_t addr[AQ_LANES];                                                           \
		lane_addresses(w, i, addr);                                                        \
		store_bytes(w, i, mask, addr, true, size, wide);                                   \
	}                                                                                          \
	static void store_generic_##name(struct aq_warp *w, const struct aq_insn *i,               \
					 uint32_t mask)                                            \
	{                                                                                          \
		uint64_t addr[AQ_LANES];                                                           \
		lane_addresses(w, i, addr);                                                        \
		if (has_window(addr))                                                              \
			store_windows(w, i, mask, addr);                                           \
		else                                                                               \
			store_at_##name(w, i, mask, addr);                                         \
	}                                                                                          \
	static const struct handlers store_##name = { store_global_##name, store_shared_##name,    \
						      store_local, NULL, store_generic_##name };

struct handlers {
	aq_op_fn global, shared, local, param, generic;
};

LOAD(u8, 1, false, false)
LOAD(s8, 1, true, false)
LOAD(u16, 2, false, false)
LOAD(s16, 2, true, false)
LOAD(b32, 4, false, false)
LOAD(u8w, 1, false, true)
LOAD(s8w, 1, true, true)
LOAD(u16w, 2, false, true)
LOAD(s16w, 2, true, true)
LOAD(u32w, 4, false, true)
LOAD(s32w, 4, true, true)
LOAD(b64, 8, false, true)
STORE(b8, 1, false)
STORE(b16, 2, false)
STORE(b32, 4, false)
STORE(b8w, 1, true)
STORE(b16w, 2, true)
STORE(b32w, 4, true)
STORE(b64, 8, true)

static aq_op_fn by_space(const struct handlers *h, enum aq_ptx_space space)
{
	switch (space) {
	case AQ_PTX_GLOBAL:
	case AQ_PTX_CONST:
		return h->global;
	case AQ_PTX_SHARED:
		return h->shared;
	case AQ_PTX_LOCAL:
		return h->local;
	case AQ_PTX_PARAM:
		return h->param;
	case AQ_PTX_GENERIC:
	case AQ_PTX_REG:
	default:
		return h->generic;
	}
}

aq_op_fn AQ_ISA(aq_load_select)(enum aq_ptx_space space, unsigned size, bool is_signed, bool wide)
{
	/* [log2 of size][signed][wide] */
	static const struct handlers *const table[4][2][2] = {
		{ { &load_u8, &load_u8w }, { &load_s8, &load_s8w } },
		{ { &load_u16, &load_u16w }, { &load_s16, &load_s16w } },
		{ { &load_b32, &load_u32w }, { &load_b32, &load_s32w } },
		{ { NULL, &load_b64 }, { NULL, &load_b64 } },
	};

	return by_space(table[__builtin_ctz(size)][is_signed][wide], space);
}

aq_op_fn AQ_ISA(aq_store_select)(enum aq_ptx_space space, unsigned size, bool wide)
{
	static const struct handlers *const table[4][2] = {
		{ &store_b8, &store_b8w },
		{ &store_b16, &store_b16w },
		{ &store_b32, &store_b32w },
		{ NULL, &store_b64 },
	};

	return by_space(table[__builtin_ctz(size)][wide], space);
}
