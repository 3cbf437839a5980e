/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions between lanes. With a mask of members they wait: a group that comes with some of them parks at the instruction until the others
 * that still live stand there too. Without one, the lanes that came together are the members.
 */
#include "gpud/soft/exec/ops.h"
#include "gpud/soft/exec/state.h"

/* The other lanes that wait at the same instruction join the current group. */
static uint32_t absorb(struct aq_warp *w, uint32_t pc)
{
	struct aq_group *g = w->group;
	uint32_t joined = 0;

	for (uint32_t k = 0; k < w->n_groups; k++) {
		struct aq_group *o = &w->groups[k];

		if (o == g || o->state != AQ_GROUP_SYNC || o->warp_bar || o->pc != pc ||
		    o->frame != g->frame)
			continue;
		joined |= o->mask;
		o->mask = 0; /* the runner forgets empty groups */
	}
	g->mask |= joined;
	return joined;
}

/*
 * Wait for all members of each lane's mask. Returns the lanes to act for, 0 when the group has been parked. Where it returns lanes, the caller
 * acts; if groups changed, the current one already stands behind the instruction.
 */
static uint32_t gather(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	const uint32_t *members = aq_row32(&w->r, i->d);
	uint32_t pc = aq_warp_pc(w, i), missing = 0, joined;

	if (i->imm)
		return mask;
	if (mask == w->live && w->n_groups == 1)
		return mask;
	for (uint32_t m = mask; m; m &= m - 1)
		missing |= members[__builtin_ctz(m)] & w->live & ~mask;
	if (!missing)
		return mask;
	/* Lanes for which the guard is false go on alone. */
	aq_group_split(w, i, mask, false);
	joined = absorb(w, pc);
	w->event = true;
	missing = 0;
	mask |= joined;
	for (uint32_t m = mask; m; m &= m - 1)
		missing |= members[__builtin_ctz(m)] & w->live & ~mask;
	w->group->pc = pc;
	if (missing) {
		w->group->state = AQ_GROUP_SYNC;
		w->group->warp_bar = false;
		return 0;
	}
	w->group->pc = pc + 1;
	return mask;
}

/* The lanes that count for lane l: the members of its mask that are here, or all that are here. */
static uint32_t members_of(struct aq_warp *w, const struct aq_insn *i, uint32_t mask, unsigned l)
{
	return i->imm ? mask : (aq_row32(&w->r, i->d)[l] | 1u << l) & mask;
}

/*
 * Call `each` for every set of lanes with the same members, with those members; it stores results in the lanes of `set`.
 */
typedef void (*set_fn)(struct aq_warp *w, const struct aq_insn *i, uint32_t set, uint32_t members);

static void for_sets(struct aq_warp *w, const struct aq_insn *i, uint32_t mask, set_fn each)
{
	uint32_t left;

	mask = left = gather(w, i, mask);
	while (left) {
		unsigned first = (unsigned)__builtin_ctz(left);
		uint32_t members = members_of(w, i, mask, first), set = 0;

		for (uint32_t m = left; m; m &= m - 1) {
			unsigned l = (unsigned)__builtin_ctz(m);

			if (members_of(w, i, mask, l) == members)
				set |= 1u << l;
		}
		each(w, i, set, members);
		left &= ~set;
	}
}

static void fill32(struct aq_warp *w, uint32_t row, uint32_t value, uint32_t mask)
{
	uint32_t v[AQ_LANES];

	for (int l = 0; l < AQ_LANES; l++)
		v[l] = value;
	aq_store32(&w->r, row, v, mask);
}

static void vote_set(struct aq_warp *w, const struct aq_insn *i, uint32_t set, uint32_t members)
{
	uint32_t yes = *aq_pred(&w->r, i->a) & members;
	bool result;

	switch ((enum aq_vote)i->size) {
	case AQ_VOTE_ALL:
		result = yes == members;
		break;
	case AQ_VOTE_ANY:
		result = yes != 0;
		break;
	case AQ_VOTE_UNI:
		result = yes == 0 || yes == members;
		break;
	case AQ_VOTE_BALLOT:
	default:
		fill32(w, i->dst, yes, set);
		return;
	}
	aq_pred_store(&w->r, i->dst, result ? AQ_FULL_MASK : 0, set);
}

void aq_op_vote(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	for_sets(w, i, mask, vote_set);
}

void aq_op_activemask(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	fill32(w, i->dst, mask, mask);
}

/* Segments and clamps are PTX's: bits 0-4 of c the clamp, bits 8-12 the mask of the segment. */
static unsigned shfl_source(enum aq_shfl op, unsigned lane, uint32_t b, uint32_t c, bool *ret_in)
{
	unsigned seg = c >> 8 & 31, clamp = c & 31;
	unsigned max = (lane & seg) | (clamp & ~seg), min = lane & seg, j;

	b &= 31;
	switch (op) {
	case AQ_SHFL_UP:
		j = lane - b;
		*ret_in = (int)j >= (int)max;
		break;
	case AQ_SHFL_DOWN:
		j = lane + b;
		*ret_in = j <= max;
		break;
	case AQ_SHFL_BFLY:
		j = lane ^ b;
		*ret_in = j <= max;
		break;
	case AQ_SHFL_IDX:
	default:
		j = min | (b & ~seg);
		*ret_in = j <= max;
		break;
	}
	return *ret_in ? j : lane;
}

void aq_op_shfl(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	const uint32_t *a = aq_row32(&w->r, i->a), *b = aq_row32(&w->r, i->b),
		       *c = aq_row32(&w->r, i->c);
	uint32_t v[AQ_LANES], in = 0;

	mask = gather(w, i, mask);
	if (!mask)
		return;
	for (unsigned l = 0; l < AQ_LANES; l++) {
		bool inside;
		unsigned from = shfl_source((enum aq_shfl)i->size, l, b[l], c[l], &inside);

		v[l] = a[from];
		in |= (uint32_t)inside << l;
	}
	aq_store32(&w->r, i->dst, v, mask);
	aq_pred_store(&w->r, i->dst2, in, mask);
}

static uint64_t match_value(struct aq_warp *w, const struct aq_insn *i, unsigned l)
{
	return i->size == 8 ? aq_row64(&w->r, i->a)[l] : aq_row32(&w->r, i->a)[l];
}

static void match_any_set(struct aq_warp *w, const struct aq_insn *i, uint32_t set,
			  uint32_t members)
{
	uint32_t v[AQ_LANES] = { 0 };

	for (uint32_t m = set; m; m &= m - 1) {
		unsigned l = (unsigned)__builtin_ctz(m);

		for (uint32_t n = members; n; n &= n - 1) {
			unsigned o = (unsigned)__builtin_ctz(n);

			if (match_value(w, i, o) == match_value(w, i, l))
				v[l] |= 1u << o;
		}
	}
	aq_store32(&w->r, i->dst, v, set);
}

void aq_op_match_any(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	for_sets(w, i, mask, match_any_set);
}

static void match_all_set(struct aq_warp *w, const struct aq_insn *i, uint32_t set,
			  uint32_t members)
{
	uint64_t first = match_value(w, i, (unsigned)__builtin_ctz(members));
	bool same = true;

	for (uint32_t n = members; n; n &= n - 1)
		same &= match_value(w, i, (unsigned)__builtin_ctz(n)) == first;
	fill32(w, i->dst, same ? members : 0, set);
	aq_pred_store(&w->r, i->dst2, same ? AQ_FULL_MASK : 0, set);
}

void aq_op_match_all(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	for_sets(w, i, mask, match_all_set);
}

static void redux_set(struct aq_warp *w, const struct aq_insn *i, uint32_t set, uint32_t members)
{
	const uint32_t *a = aq_row32(&w->r, i->a);
	uint32_t v = a[__builtin_ctz(members)];

	for (uint32_t n = members & (members - 1); n; n &= n - 1) {
		uint32_t x = a[__builtin_ctz(n)];

		switch ((enum aq_atom)i->size) {
		case AQ_ATOM_AND:
			v &= x;
			break;
		case AQ_ATOM_OR:
			v |= x;
			break;
		case AQ_ATOM_XOR:
			v ^= x;
			break;
		case AQ_ATOM_ADD:
			v += x;
			break;
		case AQ_ATOM_MIN:
			v = x < v ? x : v;
			break;
		case AQ_ATOM_MAX:
			v = x > v ? x : v;
			break;
		case AQ_ATOM_MINS:
			v = (int32_t)x < (int32_t)v ? x : v;
			break;
		case AQ_ATOM_MAXS:
			v = (int32_t)x > (int32_t)v ? x : v;
			break;
		case AQ_ATOM_EXCH:
		case AQ_ATOM_INC:
		case AQ_ATOM_DEC:
		case AQ_ATOM_CAS:
		case AQ_ATOM_FADD:
		default:
			break;
		}
	}
	fill32(w, i->dst, v, set);
}

void aq_op_redux(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	for_sets(w, i, mask, redux_set);
}

static void elect_set(struct aq_warp *w, const struct aq_insn *i, uint32_t set, uint32_t members)
{
	unsigned leader = (unsigned)__builtin_ctz(members);

	fill32(w, i->dst, leader, set);
	aq_pred_store(&w->r, i->dst2, 1u << leader, set);
}

void aq_op_elect(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	for_sets(w, i, mask, elect_set);
}

/* Lanes may come to a warp's barrier from different places, so what counts is the mask they name. */
void aq_op_warp_bar(struct aq_warp *w, const struct aq_insn *i, uint32_t mask)
{
	const uint32_t *members = aq_row32(&w->r, i->d);
	uint32_t pc = aq_warp_pc(w, i), name = members[__builtin_ctz(mask)], here = 0, same = 0;
	struct aq_group *g;

	for (unsigned l = 0; l < AQ_LANES; l++)
		same |= (uint32_t)(members[l] == name) << l;
	if (mask == w->group->mask && (same & mask) == mask && !(name & w->live & ~mask))
		return;
	aq_group_split(w, i, mask, false);
	if ((same & mask) != mask)
		aq_group_split(w, i, mask & same, true);
	g = w->group;
	w->event = true;
	g->pc = pc;
	g->state = AQ_GROUP_SYNC;
	g->warp_bar = true;
	g->sync_mask = name;
	for (uint32_t k = 0; k < w->n_groups; k++)
		if (w->groups[k].state == AQ_GROUP_SYNC && w->groups[k].warp_bar &&
		    w->groups[k].sync_mask == name)
			here |= w->groups[k].mask;
	if (name & w->live & ~here)
		return;
	for (uint32_t k = 0; k < w->n_groups; k++) {
		struct aq_group *o = &w->groups[k];

		if (o->state == AQ_GROUP_SYNC && o->warp_bar && o->sync_mask == name) {
			o->state = AQ_GROUP_RUN;
			o->warp_bar = false;
			o->pc++;
		}
	}
}
