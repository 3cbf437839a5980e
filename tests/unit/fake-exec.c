/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for the interpreter, so that the engines of a card can be tested with kernels that do exactly what a test needs: see kernels[].
 * The module text is "fake"; anything else is refused with a log.
 */
#include "base/clock.h"
#include "base/macro.h"
#include "gpud/soft/exec/exec.h"
#include "gpud/soft/ptx/ptx.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct aq_code {
	struct aq_code_symbol sym[3];
	uint8_t init[16];
};

struct aq_grid {
	struct aq_launch l;
	uint64_t arg[2];
	uint64_t n;
};

struct aq_block {
	struct aq_grid *grid;
	uint64_t index;
	unsigned runs;
	uint64_t spun; /* warp instructions so far */
};

enum {
	COUNT,
	ENDLESS,
	FAULT,
	SLEEP,
	BARRIER,
	TOUCH,
	SPIN,
	KERNELS
};

static const struct aq_wire_param two_params[2] = { { 0, 8 }, { 8, 8 } };

#define KERNEL(NAME)                                                                  \
	{                                                                             \
		.name = NAME, .n_params = 2, .params = two_params, .param_bytes = 16, \
		.registers = 32, .max_threads = 1024, .ptx_version = 70, .target = 70 \
	}

static const struct aq_code_kernel kernels[KERNELS] = {
	[COUNT] = KERNEL("count"),     /* *arg0 += 1 in each block */
	[ENDLESS] = KERNEL("endless"), /* never ends */
	[FAULT] = KERNEL("fault"),     /* faults with status arg0 */
	[SLEEP] = KERNEL("sleep"),     /* sleeps arg0 ns */
	[BARRIER] = KERNEL("barrier"), /* *arg0 += 1, then waits until it is the number of blocks */
	[TOUCH] = KERNEL("touch"),     /* writes arg1 to *arg0, or faults */
	[SPIN] = KERNEL("spin"),       /* takes arg0 warp instructions of 20 ns */
};

struct aq_ptx_module *aq_ptx_parse(const char *text, size_t len, struct aq_strbuf *log)
{
	if (len == 4 && memcmp(text, "fake", 4) == 0)
		return calloc(1, sizeof(struct aq_ptx_module));
	aq_strbuf_printf(log, "line 1: this is not \"fake\"\n");
	return NULL;
}

void aq_ptx_free(struct aq_ptx_module *m)
{
	free(m);
}

struct aq_code *aq_code_build(struct aq_ptx_module *m, unsigned sm, struct aq_strbuf *log)
{
	struct aq_code *c = calloc(1, sizeof(*c));

	(void)log;
	aq_ptx_free(m);
	if (!c || sm != 80)
		abort();
	memcpy(c->init, "0123456789abcdef", 16);
	c->sym[0] = (struct aq_code_symbol){
		.name = "g", .size = 16, .align = 16, .is_visible = true, .init = c->init
	};
	c->sym[1] = (struct aq_code_symbol){ .name = "hidden", .size = 3, .align = 1 };
	c->sym[2] = (struct aq_code_symbol){
		.name = "m", .size = 8, .align = 8, .is_visible = true, .is_managed = true
	};
	return c;
}

void aq_code_free(struct aq_code *c)
{
	free(c);
}

uint32_t aq_code_n_kernels(const struct aq_code *c)
{
	(void)c;
	return KERNELS;
}

const struct aq_code_kernel *aq_code_kernel(const struct aq_code *c, uint32_t index)
{
	(void)c;
	return &kernels[index];
}

struct aq_code_symbol *aq_code_symbols(struct aq_code *c, uint32_t *ret_n)
{
	*ret_n = 3;
	return c->sym;
}

int aq_code_relocate(struct aq_code *c, struct aq_strbuf *log)
{
	(void)log;
	return c->sym[0].va % 16 || c->sym[2].va % 8 ? -EINVAL : 0;
}

enum aq_status aq_grid_new(const struct aq_launch *l, struct aq_grid **ret)
{
	struct aq_grid *g = calloc(1, sizeof(*g));

	if (!g)
		return AQ_E_NO_MEMORY;
	g->l = *l;
	memcpy(g->arg, l->params, sizeof(g->arg));
	g->n = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
	*ret = g;
	return AQ_OK;
}

void aq_grid_free(struct aq_grid *g)
{
	free(g);
}

uint64_t aq_grid_n_blocks(const struct aq_grid *g)
{
	return g->n;
}

struct aq_block *aq_block_new(struct aq_grid *g, uint64_t index, uint32_t smid)
{
	struct aq_block *b = calloc(1, sizeof(*b));

	if (smid >= g->l.n_sm || index >= g->n)
		abort();
	if (b) {
		b->grid = g;
		b->index = index;
	}
	return b;
}

void aq_block_free(struct aq_block *b)
{
	free(b);
}

static void burn(uint64_t ns)
{
	uint64_t end = aq_now_ns() + ns;

	while (aq_now_ns() < end)
		aq_cpu_relax();
}

static enum aq_run fault(struct aq_run_result *ret, enum aq_status status)
{
	ret->fault = status;
	return AQ_RUN_FAULT;
}

/* The word at arg0, or NULL. */
static _Atomic uint64_t *word(struct aq_block *b)
{
	const struct aq_launch *l = &b->grid->l;
	struct aq_view v;
	uint64_t va = b->grid->arg[0];

	if (l->mem->lookup(l->mem->opaque, va, &v) != AQ_OK || !v.writable || v.end - va < 8)
		return NULL;
	return (void *)(v.host + (va - v.base));
}

static enum aq_run run_spin(struct aq_block *b, uint64_t max_insns, struct aq_run_result *ret)
{
	uint64_t todo = b->grid->arg[0] - b->spun;

	ret->insns = AQ_MIN(todo, max_insns);
	burn(ret->insns * 20);
	b->spun += ret->insns;
	return todo > max_insns ? AQ_RUN_YIELD : AQ_RUN_DONE;
}

enum aq_run aq_block_run(struct aq_block *b, uint64_t max_insns, struct aq_run_result *ret)
{
	_Atomic uint64_t *w;

	*ret = (struct aq_run_result){ .insns = 1 };
	switch (b->grid->l.kernel) {
	case ENDLESS:
		ret->insns = max_insns;
		burn(max_insns * 20);
		return AQ_RUN_YIELD;
	case FAULT:
		return fault(ret, (enum aq_status)b->grid->arg[0]);
	case SLEEP:
		if (b->runs++)
			return AQ_RUN_DONE;
		ret->wake_ns = aq_now_ns() + b->grid->arg[0];
		return AQ_RUN_SLEEP;
	case SPIN:
		return run_spin(b, max_insns, ret);
	default:
		break;
	}
	w = word(b);
	if (!w)
		return fault(ret, AQ_E_ILLEGAL_ADDRESS);
	if (b->grid->l.kernel == TOUCH) {
		atomic_store(w, b->grid->arg[1]);
		return AQ_RUN_DONE;
	}
	if (b->runs++ == 0)
		atomic_fetch_add(w, 1);
	if (b->grid->l.kernel == BARRIER && atomic_load(w) < b->grid->n) {
		burn(2000);
		return AQ_RUN_YIELD;
	}
	return AQ_RUN_DONE;
}
