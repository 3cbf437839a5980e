/* SPDX-License-Identifier: Apache-2.0 */
/* Who calls whom in a module, and what a kernel reaches by it. */
#pragma once

#include "gpud/soft/exec/code.h"

struct aq_graph_node {
	uint32_t seen;	   /* epoch in which it was reached */
	uint32_t measured; /* epoch in which its stack was */
	bool open;
	uint64_t stack;
};

struct aq_graph {
	struct aq_code *code;
	struct aq_graph_node *nodes; /* of each function */
	uint32_t *todo;
	uint32_t n_todo, epoch;
	uint64_t work; /* steps taken in all: a module may not keep its loader busy for ever */
};

struct aq_reach {
	bool indirect;	      /* calls by address somewhere */
	bool common_shared;   /* some function names shared variables */
	bool unbounded;	      /* recursion */
	uint64_t stack_bytes; /* of the deepest chain of calls, per thread */
	uint32_t n_regs;      /* most of any function */
};

/* Fill in callees and what else struct aq_func has of the call graph. 0 or -ENOMEM. */
int aq_graph_init(struct aq_graph *g, struct aq_code *code);
void aq_graph_done(struct aq_graph *g);
/* 0, or -E2BIG when the module's call graphs have become too much work. */
int aq_graph_reach(struct aq_graph *g, uint32_t func, struct aq_reach *ret);
