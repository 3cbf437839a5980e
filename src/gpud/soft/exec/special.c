/* SPDX-License-Identifier: Apache-2.0 */
/* Special registers. */
#include "gpud/soft/exec/lower.h"
#include "gpud/soft/exec/state.h"

#include "base/clock.h"
#include "base/macro.h"

enum special {
	NONE = 0,
	TID, /* four of each: .x .y .z .w */
	NTID = TID + 4,
	CTAID = NTID + 4,
	NCTAID = CTAID + 4,
	ZERO_VECTOR = NCTAID + 4,
	ONE_VECTOR = ZERO_VECTOR + 4,
	LANEID = ONE_VECTOR + 4,
	WARPID,
	NWARPID,
	SMID,
	NSMID,
	GRIDID,
	LANEMASK_EQ,
	LANEMASK_LE,
	LANEMASK_LT,
	LANEMASK_GE,
	LANEMASK_GT,
	CLOCK,
	CLOCK_HI,
	CLOCK64,
	GLOBALTIMER,
	GLOBALTIMER_LO,
	GLOBALTIMER_HI,
	DYNAMIC_SMEM,
	TOTAL_SMEM,
	ZERO,
	ONE,
};

struct name {
	const char *name;
	uint8_t id;
	bool vector, wide;
};

/* A grid without clusters is one of clusters of one block. */
static const struct name names[] = {
	{ "tid", TID, true, false },
	{ "ntid", NTID, true, false },
	{ "ctaid", CTAID, true, false },
	{ "nctaid", NCTAID, true, false },
	{ "clusterid", CTAID, true, false },
	{ "nclusterid", NCTAID, true, false },
	{ "cluster_ctaid", ZERO_VECTOR, true, false },
	{ "cluster_nctaid", ONE_VECTOR, true, false },
	{ "cluster_ctarank", ZERO, false, false },
	{ "cluster_nctarank", ONE, false, false },
	{ "laneid", LANEID, false, false },
	{ "warpid", WARPID, false, false },
	{ "nwarpid", NWARPID, false, false },
	{ "smid", SMID, false, false },
	{ "nsmid", NSMID, false, false },
	{ "gridid", GRIDID, false, true },
	{ "lanemask_eq", LANEMASK_EQ, false, false },
	{ "lanemask_le", LANEMASK_LE, false, false },
	{ "lanemask_lt", LANEMASK_LT, false, false },
	{ "lanemask_ge", LANEMASK_GE, false, false },
	{ "lanemask_gt", LANEMASK_GT, false, false },
	{ "clock", CLOCK, false, false },
	{ "clock_hi", CLOCK_HI, false, false },
	{ "clock64", CLOCK64, false, true },
	{ "globaltimer", GLOBALTIMER, false, true },
	{ "globaltimer_lo", GLOBALTIMER_LO, false, false },
	{ "globaltimer_hi", GLOBALTIMER_HI, false, false },
	{ "dynamic_smem_size", DYNAMIC_SMEM, false, false },
	{ "total_smem_size", TOTAL_SMEM, false, false },
	{ "aggr_smem_size", TOTAL_SMEM, false, false },
};

unsigned aq_special_find(const char *name, int8_t elem, enum aq_ptx_type *ret_type)
{
	for (size_t k = 0; k < AQ_ARRAY_SIZE(names); k++) {
		const struct name *n = &names[k];

		if (strcmp(name, n->name) != 0)
			continue;
		if (n->vector != (elem >= 0) || elem > 3)
			return NONE;
		*ret_type = n->wide ? AQ_PTX_U64 : AQ_PTX_U32;
		return n->id + (unsigned)(elem > 0 ? elem : 0);
	}
	if (strncmp(name, "envreg", 6) == 0 && elem < 0) { /* set by nobody */
		*ret_type = AQ_PTX_U32;
		return ZERO;
	}
	return NONE;
}

static uint64_t cycles(const struct aq_grid *g)
{
	return (uint64_t)((unsigned __int128)aq_now_ns() * g->launch.clock_khz / 1000000);
}

static uint64_t uniform(const struct aq_warp *w, unsigned id)
{
	const struct aq_block *b = w->block;
	const struct aq_grid *g = b->grid;

	if (id >= NTID && id < NTID + 4)
		return id < NTID + 3 ? g->launch.block[id - NTID] : 0;
	if (id >= CTAID && id < CTAID + 4)
		return id < CTAID + 3 ? b->ctaid[id - CTAID] : 0;
	if (id >= NCTAID && id < NCTAID + 4)
		return id < NCTAID + 3 ? g->launch.grid[id - NCTAID] : 0;
	if (id >= ONE_VECTOR && id < ONE_VECTOR + 4)
		return id < ONE_VECTOR + 3;
	switch (id) {
	case WARPID:
		return w->index;
	case NWARPID:
		return 64;
	case SMID:
		return b->smid;
	case NSMID:
		return g->launch.n_sm;
	case GRIDID:
		return g->launch.id;
	case CLOCK:
	case CLOCK64:
		return cycles(g);
	case CLOCK_HI:
		return cycles(g) >> 32;
	case GLOBALTIMER:
	case GLOBALTIMER_LO:
		return aq_now_ns();
	case GLOBALTIMER_HI:
		return aq_now_ns() >> 32;
	case DYNAMIC_SMEM:
		return g->launch.dyn_shared;
	case TOTAL_SMEM:
		return g->shared_bytes;
	case ONE:
		return 1;
	default:
		return 0;
	}
}

static uint32_t lane_mask(unsigned id, unsigned lane)
{
	uint32_t eq = 1u << lane, lt = eq - 1;

	switch (id) {
	case LANEMASK_EQ:
		return eq;
	case LANEMASK_LE:
		return lt | eq;
	case LANEMASK_LT:
		return lt;
	case LANEMASK_GE:
		return ~lt;
	default:
		return ~(lt | eq);
	}
}

void aq_op_special(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	unsigned id = (unsigned)i->imm;
	uint32_t v[AQ_LANES];
	uint64_t wide[AQ_LANES];

	if (id >= TID && id < TID + 3) {
		aq_store32(&w->r, i->dst,
			   w->block->grid->tid + ((size_t)w->index * 3 + id - TID) * AQ_LANES,
			   mask);
		return;
	}
	if (id == LANEID || (id >= LANEMASK_EQ && id <= LANEMASK_GT)) {
		for (unsigned l = 0; l < AQ_LANES; l++)
			v[l] = id == LANEID ? l : lane_mask(id, l);
		aq_store32(&w->r, i->dst, v, mask);
		return;
	}
	wide[0] = id == TID + 3 ? 0 : uniform(w, id);
	if (id == GRIDID || id == CLOCK64 || id == GLOBALTIMER) {
		for (int l = 1; l < AQ_LANES; l++)
			wide[l] = wide[0];
		aq_store64(&w->r, i->dst, wide, mask);
		return;
	}
	for (int l = 0; l < AQ_LANES; l++)
		v[l] = (uint32_t)wide[0];
	aq_store32(&w->r, i->dst, v, mask);
}
