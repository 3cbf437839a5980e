/* SPDX-License-Identifier: Apache-2.0 */
/* Basic blocks of a PTX function, the order in which they are laid out, and rows for its registers. */
#pragma once

#include "gpud/soft/ptx/ptx.h"

#include <stdbool.h>
#include <stdint.h>

struct aq_flow_block {
	uint32_t first, end;   /* instructions */
	uint32_t succ, n_succ; /* in aq_flow.succ */
};

struct aq_flow {
	struct aq_flow_block *blocks; /* in the order of the text */
	uint32_t n_blocks;
	uint32_t *block_of; /* of an instruction; [n_insns]: n_blocks */
	uint32_t *succ;
	uint32_t n_succ;
	/*
	 * Layout: reachable blocks so that each loop is contiguous, its header first, and everything else comes behind what leads to it. Lanes
	 * that diverged meet again as early as possible when those with the lowest pc go first.
	 */
	uint32_t *order;
	uint32_t n_order; /* blocks reachable from the start; the rest follows up to n_blocks */
};

enum aq_row_class {
	AQ_ROW_NONE,
	AQ_ROW_32,
	AQ_ROW_64,
	AQ_ROW_PRED,
	AQ_ROW_BAD /* no register can be that */
};

/* Elements of vector registers count as registers of their own: those of register r are first[r] and up. */
struct aq_rows {
	uint32_t *first;
	uint32_t n;		    /* elements */
	uint8_t *class;		    /* enum aq_row_class of each element that occurs */
	uint32_t *row;		    /* number within its class */
	uint32_t count[AQ_ROW_BAD]; /* rows of each class */
};

enum aq_row_class aq_row_class_of(enum aq_ptx_type type);
/* Does the instruction write its first operand? */
bool aq_insn_has_dst(const struct aq_ptx_insn *in);
/* bra and the like: control never goes on behind it. */
bool aq_insn_ends(const struct aq_ptx_insn *in);

/* 0 or -ENOMEM. */
int aq_flow_init(struct aq_flow *fl, const struct aq_ptx_func *f);
void aq_flow_done(struct aq_flow *fl);
int aq_rows_init(struct aq_rows *r, const struct aq_ptx_func *f, const struct aq_flow *fl);
void aq_rows_done(struct aq_rows *r);
