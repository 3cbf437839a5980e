/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/exec/flow.h"

#include "base/macro.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Loops nested deeper than this keep the order of the text. */
#define MAX_LOOP_DEPTH 64

static bool name_is(const struct aq_ptx_insn *in, const char *name)
{
	return strcmp(in->name, name) == 0;
}

bool aq_insn_ends(const struct aq_ptx_insn *in)
{
	return !in->has_guard && (name_is(in, "bra") || name_is(in, "brx") || name_is(in, "ret") ||
				  name_is(in, "exit") || name_is(in, "trap"));
}

bool aq_insn_has_dst(const struct aq_ptx_insn *in)
{
	static const char *const without[] = {
		"st",	    "red",	 "bra",		  "brx",
		"ret",	    "exit",	 "trap",	  "brkpt",
		"prefetch", "prefetchu", "nanosleep",	  "membar",
		"fence",    "discard",	 "applypriority", "griddepcontrol",
		"pmevent",
	};

	if (in->n_operands == 0)
		return false;
	for (size_t i = 0; i < AQ_ARRAY_SIZE(without); i++)
		if (name_is(in, without[i]))
			return false;
	if (name_is(in, "call"))
		return in->operands[0].kind == AQ_PTX_OPERAND_LIST && in->n_operands > 1 &&
		       in->operands[1].kind != AQ_PTX_OPERAND_LIST;
	if (name_is(in, "bar") || name_is(in, "barrier")) {
		for (uint8_t i = 0; i < in->n_mods; i++)
			if (strcmp(in->mods[i], "red") == 0)
				return true;
		return false;
	}
	return true;
}

static bool mark_leader(uint8_t *leader, const struct aq_ptx_func *f, uint32_t insn)
{
	if (insn < f->n_insns)
		leader[insn] = 1;
	return true;
}

static int make_blocks(struct aq_flow *fl, const struct aq_ptx_func *f)
{
	uint8_t *leader = calloc((size_t)f->n_insns + 1, 1);
	uint32_t n = 0;

	fl->block_of = calloc((size_t)f->n_insns + 1, sizeof(*fl->block_of));
	if (!leader || !fl->block_of) {
		free(leader);
		return -ENOMEM;
	}
	(void)mark_leader(leader, f, 0);
	for (uint32_t i = 0; i < f->n_labels; i++)
		(void)mark_leader(leader, f, f->labels[i].insn);
	for (uint32_t i = 0; i < f->n_insns; i++)
		if (aq_insn_ends(&f->insns[i]) || name_is(&f->insns[i], "bra") ||
		    name_is(&f->insns[i], "brx"))
			(void)mark_leader(leader, f, i + 1);
	for (uint32_t i = 0; i < f->n_insns; i++)
		n += leader[i];
	fl->blocks = calloc((size_t)n + 1, sizeof(*fl->blocks));
	fl->order = calloc((size_t)n + 1, sizeof(*fl->order));
	if (!fl->blocks || !fl->order) {
		free(leader);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < f->n_insns; i++) {
		if (leader[i])
			fl->blocks[fl->n_blocks++].first = i;
		fl->blocks[fl->n_blocks - 1].end = i + 1;
		fl->block_of[i] = fl->n_blocks - 1;
	}
	fl->block_of[f->n_insns] = fl->n_blocks;
	free(leader);
	return 0;
}

static uint32_t label_block(const struct aq_flow *fl, const struct aq_ptx_func *f, int32_t label)
{
	return label >= 0 && (uint32_t)label < f->n_labels ? fl->block_of[f->labels[label].insn]
							   : fl->n_blocks;
}

/* Successors of a block, at most `cap` of them into `out`; the one behind it comes last. Returns their number. */
static uint32_t successors(const struct aq_flow *fl, const struct aq_ptx_func *f, uint32_t block,
			   uint32_t *out)
{
	const struct aq_ptx_insn *in = &f->insns[fl->blocks[block].end - 1];
	uint32_t n = 0, to;

	for (uint8_t k = 0; k < in->n_operands; k++) {
		const struct aq_ptx_operand *op = &in->operands[k];

		if (op->kind != AQ_PTX_OPERAND_LABEL || op->label < 0 ||
		    (uint32_t)op->label >= f->n_labels)
			continue;
		if (name_is(in, "bra") && (to = label_block(fl, f, op->label)) < fl->n_blocks) {
			if (out)
				out[n] = to;
			n++;
		} else if (name_is(in, "brx")) {
			const struct aq_ptx_label *table = &f->labels[op->label];

			for (uint32_t t = 0; t < table->n_targets; t++) {
				to = label_block(fl, f, table->targets[t]);
				if (to >= fl->n_blocks)
					continue;
				if (out)
					out[n] = to;
				n++;
			}
		}
	}
	if (!aq_insn_ends(in) && block + 1 < fl->n_blocks) {
		if (out)
			out[n] = block + 1;
		n++;
	}
	return n;
}

static int make_edges(struct aq_flow *fl, const struct aq_ptx_func *f)
{
	uint64_t total = 0;

	for (uint32_t b = 0; b < fl->n_blocks; b++)
		total += successors(fl, f, b, NULL);
	if (total > UINT32_MAX / 8)
		return -ENOMEM;
	fl->succ = calloc((size_t)total + 1, sizeof(*fl->succ));
	if (!fl->succ)
		return -ENOMEM;
	for (uint32_t b = 0; b < fl->n_blocks; b++) {
		fl->blocks[b].succ = fl->n_succ;
		fl->blocks[b].n_succ = successors(fl, f, b, fl->succ + fl->n_succ);
		fl->n_succ += fl->blocks[b].n_succ;
	}
	return 0;
}

/* Tarjan's algorithm without recursion over the blocks of one region; regions are nested loops without their headers. */
struct scc {
	const struct aq_flow *fl;
	uint32_t *region; /* of each block; blocks of other regions do not exist for us */
	uint32_t *index, *low, *edge, *stack, *path;
	uint8_t *on_stack;
	uint32_t n_regions;
};

static void scc_open(struct scc *s, uint32_t v, uint32_t *count, uint32_t *n_stack,
		     uint32_t *n_path)
{
	s->index[v] = s->low[v] = ++*count;
	s->edge[v] = 0;
	s->stack[(*n_stack)++] = v;
	s->on_stack[v] = 1;
	s->path[(*n_path)++] = v;
}

/*
 * Components of `region` reachable from `start`, appended to `out` in reverse topological order; sizes[] gets how many blocks each has.
 * Returns the number of components.
 */
static uint32_t scc_run(struct scc *s, uint32_t start, uint32_t region, uint32_t *out,
			uint32_t *n_out, uint32_t *sizes)
{
	uint32_t count = 0, n_stack = 0, n_path = 0, n_comp = 0;

	scc_open(s, start, &count, &n_stack, &n_path);
	while (n_path > 0) {
		uint32_t v = s->path[n_path - 1];
		const struct aq_flow_block *b = &s->fl->blocks[v];

		if (s->edge[v] < b->n_succ) {
			uint32_t to = s->fl->succ[b->succ + s->edge[v]++];

			if (s->region[to] != region)
				continue;
			if (s->index[to] == 0)
				scc_open(s, to, &count, &n_stack, &n_path);
			else if (s->on_stack[to])
				s->low[v] = AQ_MIN(s->low[v], s->index[to]);
			continue;
		}
		n_path--;
		if (n_path > 0)
			s->low[s->path[n_path - 1]] =
				AQ_MIN(s->low[s->path[n_path - 1]], s->low[v]);
		if (s->low[v] == s->index[v]) {
			uint32_t w, size = 0;

			do {
				w = s->stack[--n_stack];
				s->on_stack[w] = 0;
				out[(*n_out)++] = w;
				size++;
			} while (w != v);
			sizes[n_comp++] = size;
		}
	}
	return n_comp;
}

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static int order_region(struct scc *s, struct aq_flow *fl, uint32_t start, uint32_t region,
			uint32_t n_region, unsigned depth);

/* Move the last `len` of old + len entries to the front. */
static int to_front(uint32_t *at, uint32_t old, uint32_t len)
{
	uint32_t *tmp;

	if (old == 0 || len == 0)
		return 0;
	tmp = malloc((size_t)len * sizeof(*tmp));
	if (!tmp)
		return -ENOMEM;
	memcpy(tmp, at + old, len * sizeof(*tmp));
	memmove(at + len, at, old * sizeof(*tmp));
	memcpy(at, tmp, len * sizeof(*tmp));
	free(tmp);
	return 0;
}

/* A loop whose header is laid out already: its other blocks, as a region of their own. */
static int order_loop(struct scc *s, struct aq_flow *fl, uint32_t head, const uint32_t *members,
		      uint32_t n, unsigned depth)
{
	const struct aq_flow_block *hb = &fl->blocks[head];
	uint32_t inner = ++s->n_regions, base = fl->n_order;

	for (uint32_t k = 0; k < n; k++) {
		s->region[members[k]] = inner;
		s->index[members[k]] = 0;
	}
	s->region[head] = 0;
	for (uint32_t e = 0; e < hb->n_succ; e++) {
		uint32_t to = fl->succ[hb->succ + e], before = fl->n_order;
		int r;

		if (s->region[to] != inner || s->index[to] != 0)
			continue;
		r = order_region(s, fl, to, inner, n, depth + 1);
		/* Nothing found later is reached from what was found before, so it may stand in front, and has to where it leads there. */
		if (r == 0)
			r = to_front(fl->order + base, before - base, fl->n_order - before);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Lay out the part of a region of n_region blocks that `start` reaches. */
static int order_region(struct scc *s, struct aq_flow *fl, uint32_t start, uint32_t region,
			uint32_t n_region, unsigned depth)
{
	uint32_t *comp = malloc(n_region * sizeof(*comp));
	uint32_t *sizes = malloc(n_region * sizeof(*sizes));
	uint32_t n = 0, n_comp;
	int r = 0;

	if (!comp || !sizes) {
		free(comp);
		free(sizes);
		return -ENOMEM;
	}
	n_comp = scc_run(s, start, region, comp, &n, sizes);
	for (uint32_t c = n_comp; c-- > 0 && r == 0;) {
		/* The block through which a component is entered was put on the stack first, so it comes off last. */
		uint32_t size = sizes[c], *members = comp + n - size;

		n -= size;
		fl->order[fl->n_order++] = members[size - 1];
		if (size == 1)
			continue;
		if (depth < MAX_LOOP_DEPTH) {
			r = order_loop(s, fl, members[size - 1], members, size - 1, depth);
			continue;
		}
		qsort(members, size - 1, sizeof(*members), compare_u32);
		memcpy(fl->order + fl->n_order, members, (size - 1) * sizeof(*members));
		fl->n_order += size - 1;
	}
	free(comp);
	free(sizes);
	return r;
}

static int make_order(struct aq_flow *fl)
{
	struct scc s = { .fl = fl, .n_regions = 1 };
	size_t n = (size_t)fl->n_blocks + 1;
	uint32_t *words = calloc(n * 6, sizeof(*words));
	uint8_t *placed = calloc(n, 1);
	int r = -ENOMEM;

	s.on_stack = calloc(n, 1);
	if (words && placed && s.on_stack) {
		s.region = words;
		s.index = words + n;
		s.low = words + 2 * n;
		s.edge = words + 3 * n;
		s.stack = words + 4 * n;
		s.path = words + 5 * n;
		for (uint32_t b = 0; b < fl->n_blocks; b++)
			s.region[b] = 1;
		r = fl->n_blocks ? order_region(&s, fl, 0, 1, fl->n_blocks, 0) : 0;
	}
	if (r == 0) {
		uint32_t k = fl->n_order;

		for (uint32_t i = 0; i < fl->n_order; i++)
			placed[fl->order[i]] = 1;
		for (uint32_t b = 0; b < fl->n_blocks; b++)
			if (!placed[b])
				fl->order[k++] = b;
	}
	free(words);
	free(placed);
	free(s.on_stack);
	return r;
}

int aq_flow_init(struct aq_flow *fl, const struct aq_ptx_func *f)
{
	int r;

	memset(fl, 0, sizeof(*fl));
	r = make_blocks(fl, f);
	if (r == 0)
		r = make_edges(fl, f);
	if (r == 0)
		r = make_order(fl);
	if (r < 0)
		aq_flow_done(fl);
	return r;
}

void aq_flow_done(struct aq_flow *fl)
{
	free(fl->blocks);
	free(fl->block_of);
	free(fl->succ);
	free(fl->order);
	memset(fl, 0, sizeof(*fl));
}
