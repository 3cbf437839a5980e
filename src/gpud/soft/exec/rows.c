/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which registers share a row: liveness over blocks, then one sweep over intervals in the order of the layout. Rows of a class are handed out
 * separately, because a lane's slots in a row of 32 and one of 64 bits are at different places, and a row holds many lanes' values.
 */
#include "gpud/soft/exec/flow.h"

#include "base/macro.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Above this the sets of liveness are not worth their memory: every register gets a row of its own. */
#define MAX_LIVENESS_BYTES (256ULL * 1024 * 1024)
/* Nested loops take a pass each; what needs more than this was not written to be run. */
#define MAX_PASSES 100
#define NONE	   UINT32_MAX

struct live {
	struct aq_rows *rows;
	const struct aq_ptx_func *f;
	const struct aq_flow *fl;
	size_t words;
	uint64_t *gen, *kill, *in, *out;
	uint32_t *start, *end; /* of each element's interval; start NONE: does not occur */
	/* What the visitor does: */
	uint64_t *gen_now, *kill_now; /* liveness of one block, from its start on */
	uint32_t pos;		      /* or interval building */
};

enum aq_row_class aq_row_class_of(enum aq_ptx_type type)
{
	if (type == AQ_PTX_PRED)
		return AQ_ROW_PRED;
	switch (aq_ptx_type_size(type)) {
	case 1:
	case 2:
	case 4:
		return AQ_ROW_32;
	case 8:
		return AQ_ROW_64;
	default:
		return AQ_ROW_BAD;
	}
}

static void touch(struct live *lv, uint32_t v, bool is_def, bool kills)
{
	if (lv->gen_now) {
		uint64_t bit = 1ULL << (v & 63);

		if (!is_def && !(lv->kill_now[v >> 6] & bit))
			lv->gen_now[v >> 6] |= bit;
		if (is_def && kills)
			lv->kill_now[v >> 6] |= bit;
		return;
	}
	uint32_t pos = lv->pos + (is_def ? 1 : 0);

	if (lv->start[v] == NONE || pos < lv->start[v])
		lv->start[v] = pos;
	if (lv->end[v] == NONE || pos > lv->end[v])
		lv->end[v] = pos;
}

static void visit_reg(struct live *lv, int32_t reg, int8_t elem, bool is_def, bool kills)
{
	if (reg < 0 || (uint32_t)reg >= lv->f->n_regs)
		return;
	const struct aq_ptx_reg *r = &lv->f->regs[reg];
	uint32_t first = lv->rows->first[reg];

	if (elem >= 0 && elem < r->vec) {
		touch(lv, first + (uint32_t)elem, is_def, kills);
		return;
	}
	for (uint32_t e = 0; e < r->vec; e++)
		touch(lv, first + e, is_def, kills);
}

static void visit_operand(struct live *lv, const struct aq_ptx_operand *op, bool is_def, bool kills)
{
	if (op->kind == AQ_PTX_OPERAND_REG)
		visit_reg(lv, op->reg, op->elem, is_def, kills);
	else if (op->kind == AQ_PTX_OPERAND_ADDR)
		visit_reg(lv, op->reg, -1, false, false);
	for (uint32_t k = 0; k < op->n_sub; k++)
		visit_operand(lv, &op->sub[k], is_def, kills);
}

/* Uses first, then definitions, as execution has them. */
static void visit_insn(struct live *lv, const struct aq_ptx_insn *in)
{
	bool has_dst = aq_insn_has_dst(in);

	if (in->has_guard)
		visit_reg(lv, in->guard, -1, false, false);
	for (uint8_t k = has_dst; k < in->n_operands; k++)
		visit_operand(lv, &in->operands[k], false, false);
	if (has_dst)
		visit_operand(lv, &in->operands[0], true, !in->has_guard);
}

static bool number_elements(struct aq_rows *r, const struct aq_ptx_func *f)
{
	uint64_t n = 0;

	r->first = calloc((size_t)f->n_regs + 1, sizeof(*r->first));
	if (!r->first)
		return false;
	for (uint32_t i = 0; i < f->n_regs; i++) {
		r->first[i] = (uint32_t)n;
		n += f->regs[i].vec ? f->regs[i].vec : 1;
	}
	if (n > UINT32_MAX / 2)
		return false;
	r->first[f->n_regs] = r->n = (uint32_t)n;
	r->class = calloc((size_t)n + 1, 1);
	r->row = calloc((size_t)n + 1, sizeof(*r->row));
	return r->class && r->row;
}

static bool solve(struct live *lv)
{
	const struct aq_flow *fl = lv->fl;
	unsigned passes = 0;
	bool changed = true;

	for (uint32_t b = 0; b < fl->n_blocks; b++)
		memcpy(lv->in + b * lv->words, lv->gen + b * lv->words, lv->words * 8);
	while (changed) {
		if (passes++ == MAX_PASSES)
			return false;
		changed = false;
		for (uint32_t k = fl->n_blocks; k-- > 0;) {
			uint32_t b = fl->order[k];
			uint64_t *in = lv->in + b * lv->words, *out = lv->out + b * lv->words;
			const uint64_t *gen = lv->gen + b * lv->words;
			const uint64_t *kill = lv->kill + b * lv->words;

			for (uint32_t e = 0; e < fl->blocks[b].n_succ; e++) {
				uint32_t to = fl->succ[fl->blocks[b].succ + e];
				const uint64_t *from = lv->in + to * lv->words;

				for (size_t w = 0; w < lv->words; w++)
					out[w] |= from[w];
			}
			for (size_t w = 0; w < lv->words; w++) {
				uint64_t v = gen[w] | (out[w] & ~kill[w]);

				changed |= v != in[w];
				in[w] = v;
			}
		}
	}
	return true;
}

/* Stretch the intervals of everything in `set` over `pos`. */
static void stretch(struct live *lv, const uint64_t *set, uint32_t pos)
{
	for (size_t w = 0; w < lv->words; w++)
		for (uint64_t m = set[w]; m; m &= m - 1) {
			uint32_t v = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(m);

			if (lv->start[v] == NONE || pos < lv->start[v])
				lv->start[v] = pos;
			if (lv->end[v] == NONE || pos > lv->end[v])
				lv->end[v] = pos;
		}
}

static int liveness(struct live *lv)
{
	const struct aq_flow *fl = lv->fl;
	size_t set = lv->words * fl->n_blocks;

	lv->gen = calloc(set * 4 + 1, 8);
	if (!lv->gen)
		return -ENOMEM;
	lv->kill = lv->gen + set;
	lv->in = lv->kill + set;
	lv->out = lv->in + set;
	for (uint32_t b = 0; b < fl->n_blocks; b++) {
		lv->gen_now = lv->gen + b * lv->words;
		lv->kill_now = lv->kill + b * lv->words;
		for (uint32_t i = fl->blocks[b].first; i < fl->blocks[b].end; i++)
			visit_insn(lv, &lv->f->insns[i]);
	}
	lv->gen_now = lv->kill_now = NULL;
	if (!solve(lv))
		lv->in = lv->out = NULL;
	return 0;
}

static void intervals(struct live *lv)
{
	const struct aq_flow *fl = lv->fl;
	uint32_t pos = 0;

	for (uint32_t k = 0; k < fl->n_blocks; k++) {
		uint32_t b = fl->order[k];

		if (lv->in)
			stretch(lv, lv->in + b * lv->words, pos);
		for (uint32_t i = fl->blocks[b].first; i < fl->blocks[b].end; i++, pos += 2) {
			lv->pos = pos;
			visit_insn(lv, &lv->f->insns[i]);
		}
		if (lv->out)
			stretch(lv, lv->out + b * lv->words, pos - 1);
	}
	if (!lv->in)
		for (uint32_t v = 0; v < lv->rows->n; v++)
			if (lv->start[v] != NONE) {
				lv->start[v] = 0;
				lv->end[v] = pos;
			}
}

/* Registers that a call fills in and reads: theirs all the time. */
static void pin(struct live *lv, const int32_t *regs, uint32_t n)
{
	for (uint32_t i = 0; regs && i < n; i++) {
		if (regs[i] < 0 || (uint32_t)regs[i] >= lv->f->n_regs)
			continue;
		lv->start[lv->rows->first[regs[i]]] = 0;
		lv->end[lv->rows->first[regs[i]]] = lv->f->n_insns * 2 + 1;
	}
}

/* Rows in the order of positions: an interval that ended before a position gives its row back there. */
static int sweep(struct live *lv)
{
	uint32_t n_pos = lv->f->n_insns * 2 + 2, n = lv->rows->n;
	uint32_t *starts = malloc((size_t)n_pos * 4), *ends = malloc((size_t)n_pos * 4);
	uint32_t *next_start = malloc((size_t)n * 4 + 4), *next_end = malloc((size_t)n * 4 + 4);
	uint32_t *spare[AQ_ROW_BAD] = { NULL }, n_spare[AQ_ROW_BAD] = { 0 };
	int r = -ENOMEM;

	for (int c = AQ_ROW_32; c < AQ_ROW_BAD; c++)
		if (!(spare[c] = malloc((size_t)n * 4 + 4)))
			goto out;
	if (!starts || !ends || !next_start || !next_end)
		goto out;
	memset(starts, 0xff, (size_t)n_pos * 4);
	memset(ends, 0xff, (size_t)n_pos * 4);
	for (uint32_t v = n; v-- > 0;) {
		if (lv->start[v] == NONE)
			continue;
		next_start[v] = starts[lv->start[v]];
		starts[lv->start[v]] = v;
		next_end[v] = ends[lv->end[v]];
		ends[lv->end[v]] = v;
	}
	for (uint32_t pos = 0; pos < n_pos; pos++) {
		for (uint32_t v = pos ? ends[pos - 1] : NONE; v != NONE; v = next_end[v]) {
			uint8_t c = lv->rows->class[v];

			if (c < AQ_ROW_BAD)
				spare[c][n_spare[c]++] = lv->rows->row[v];
		}
		for (uint32_t v = starts[pos]; v != NONE; v = next_start[v]) {
			uint8_t c = lv->rows->class[v];

			if (c >= AQ_ROW_BAD)
				continue;
			lv->rows->row[v] =
				n_spare[c] ? spare[c][--n_spare[c]] : lv->rows->count[c]++;
		}
	}
	r = 0;
out:
	for (int c = AQ_ROW_32; c < AQ_ROW_BAD; c++)
		free(spare[c]);
	free(starts);
	free(ends);
	free(next_start);
	free(next_end);
	return r;
}

int aq_rows_init(struct aq_rows *r, const struct aq_ptx_func *f, const struct aq_flow *fl)
{
	struct live lv = { .rows = r, .f = f, .fl = fl };
	int ret = -ENOMEM;

	memset(r, 0, sizeof(*r));
	if (!number_elements(r, f))
		goto out;
	lv.words = ((size_t)r->n + 63) / 64;
	lv.start = malloc((size_t)r->n * 4 + 4);
	lv.end = malloc((size_t)r->n * 4 + 4);
	if (!lv.start || !lv.end)
		goto out;
	memset(lv.start, 0xff, (size_t)r->n * 4);
	memset(lv.end, 0xff, (size_t)r->n * 4);
	if ((uint64_t)lv.words * fl->n_blocks * 32 <= MAX_LIVENESS_BYTES) {
		ret = liveness(&lv);
		if (ret < 0)
			goto out;
	}
	intervals(&lv);
	pin(&lv, f->param_regs, f->n_params);
	pin(&lv, f->ret_regs, f->n_rets);
	for (uint32_t i = 0; i < f->n_regs; i++)
		for (uint32_t v = r->first[i]; v < r->first[i + 1]; v++)
			r->class[v] = lv.start[v] == NONE
					      ? AQ_ROW_NONE
					      : (uint8_t)aq_row_class_of(f->regs[i].type);
	ret = sweep(&lv);
out:
	free(lv.gen);
	free(lv.start);
	free(lv.end);
	if (ret < 0)
		aq_rows_done(r);
	return ret;
}

void aq_rows_done(struct aq_rows *r)
{
	free(r->first);
	free(r->class);
	free(r->row);
	memset(r, 0, sizeof(*r));
}
