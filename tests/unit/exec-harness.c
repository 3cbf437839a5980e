/* SPDX-License-Identifier: Apache-2.0 */
#include "exec-harness.h"

#include "base/clock.h"
#include "gpud/soft/ptx/ptx.h"
#include "util/strbuf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define RESIDENT 4

static enum aq_status lookup(void *opaque, uint64_t va, struct aq_view *ret)
{
	struct bench *b = opaque;

	if (va < ARENA_VA || va >= ARENA_VA + b->used)
		return AQ_E_ILLEGAL_ADDRESS;
	*ret = (struct aq_view){
		.base = ARENA_VA,
		.end = ARENA_VA + b->used,
		.host = b->arena,
		.writable = true,
	};
	return AQ_OK;
}

static struct aq_code *build(const char *text, size_t len, struct aq_strbuf *log)
{
	struct aq_ptx_module *m = aq_ptx_parse(text, len, log);

	return m ? aq_code_build(m, 80, log) : NULL;
}

static struct aq_code *build_body(const char *body, struct aq_strbuf *log)
{
	struct aq_strbuf text = { 0 };
	struct aq_code *c;

	aq_strbuf_printf(&text, ".version 7.8\n.target sm_80\n.address_size 64\n%s", body);
	c = build(text.text, text.len, log);
	aq_strbuf_done(&text);
	return c;
}

static void init(struct bench *b, struct aq_code *code, struct aq_strbuf *log)
{
	struct aq_code_symbol *s;
	uint32_t n;

	memset(b, 0, sizeof(*b));
	b->code = code;
	if (!b->code)
		fail_msg("%s", aq_strbuf_text(log));
	b->arena = aligned_alloc(4096, ARENA_BYTES);
	assert_non_null(b->arena);
	memset(b->arena, 0, ARENA_BYTES);
	b->map = (struct aq_mem_map){ .lookup = lookup, .opaque = b };
	b->stack_bytes = 1024;
	s = aq_code_symbols(b->code, &n);
	for (uint32_t k = 0; k < n; k++)
		s[k].va = bench_alloc(b, s[k].size ? s[k].size : 1);
	if (aq_code_relocate(b->code, log) < 0)
		fail_msg("%s", aq_strbuf_text(log));
	for (uint32_t k = 0; k < n; k++)
		if (s[k].init)
			memcpy(bench_host(b, s[k].va), s[k].init, s[k].size);
	aq_strbuf_done(log);
}

void bench_init(struct bench *b, const char *body)
{
	struct aq_strbuf log = { 0 };

	init(b, build_body(body, &log), &log);
}

void bench_init_module(struct bench *b, const char *text, size_t len)
{
	struct aq_strbuf log = { 0 };

	init(b, build(text, len, &log), &log);
}

void bench_done(struct bench *b)
{
	aq_code_free(b->code);
	free(b->arena);
}

char *bench_refusal(const char *body)
{
	struct aq_strbuf log = { 0 };
	struct aq_code *c = build_body(body, &log);

	aq_code_free(c);
	if (c)
		fail_msg("was built: %s", body);
	if (!log.text)
		fail_msg("no reason given");
	return log.text;
}

uint64_t bench_alloc(struct bench *b, size_t bytes)
{
	uint64_t at = b->used;

	b->used += (bytes + 255) & ~255ULL;
	if (b->used > ARENA_BYTES)
		fail_msg("arena is full");
	return ARENA_VA + at;
}

void *bench_host(struct bench *b, uint64_t va)
{
	return b->arena + (va - ARENA_VA);
}

uint64_t bench_symbol(struct bench *b, const char *name)
{
	uint32_t n;
	struct aq_code_symbol *s = aq_code_symbols(b->code, &n);

	for (uint32_t k = 0; k < n; k++)
		if (strcmp(s[k].name, name) == 0)
			return s[k].va;
	fail_msg("no symbol %s", name);
	return 0;
}

static uint32_t find_kernel(struct bench *b, const char *name)
{
	for (uint32_t k = 0; k < aq_code_n_kernels(b->code); k++)
		if (strcmp(aq_code_kernel(b->code, k)->name, name) == 0)
			return k;
	fail_msg("no kernel %s", name);
	return 0;
}

/* One quantum of a resident block. True: it is gone. */
static bool step(struct bench *b, struct aq_block *block, uint64_t *n_runs)
{
	struct aq_run_result r;
	enum aq_run how = aq_block_run(block, 5000, &r);

	b->insns += r.insns;
	b->lane_insns += r.lane_insns;
	if (++*n_runs > (b->max_runs ? b->max_runs : 2000000))
		b->hung = true;
	if (how == AQ_RUN_SLEEP) {
		uint64_t now = aq_now_ns();
		struct timespec ts = { 0 };

		b->n_sleeps++;
		ts.tv_nsec = r.wake_ns > now ? (long)(r.wake_ns - now) % 1000000000 : 0;
		(void)nanosleep(&ts, NULL);
	}
	if (how == AQ_RUN_FAULT)
		b->result = r;
	return how == AQ_RUN_DONE || how == AQ_RUN_FAULT;
}

enum aq_status bench_launch3(struct bench *b, const char *kernel, const uint32_t *grid,
			     const uint32_t *block, uint32_t dyn_shared, const void *params)
{
	struct aq_launch l = {
		.code = b->code,
		.kernel = find_kernel(b, kernel),
		.grid = { grid[0], grid[1], grid[2] },
		.block = { block[0], block[1], block[2] },
		.dyn_shared = dyn_shared,
		.params = params,
		.mem = &b->map,
		.stack_bytes = b->stack_bytes,
		.n_sm = 2,
		.clock_khz = 1000000,
		.id = 77,
	};
	struct aq_block *resident[RESIDENT] = { NULL };
	uint64_t next = 0, n_runs = 0, n_blocks;
	uint32_t n = 0;
	struct aq_grid *g;
	enum aq_status s = aq_grid_new(&l, &g);

	memset(&b->result, 0, sizeof(b->result));
	b->insns = b->lane_insns = b->n_sleeps = 0;
	b->hung = false;
	if (s != AQ_OK)
		return s;
	n_blocks = aq_grid_n_blocks(g);
	while ((next < n_blocks || n > 0) && !b->hung && b->result.fault == AQ_OK) {
		while (n < RESIDENT && next < n_blocks) {
			resident[n] = aq_block_new(g, next, (uint32_t)(next % 2));
			assert_non_null(resident[n++]);
			next++;
		}
		for (uint32_t k = 0; k < n && b->result.fault == AQ_OK; k++)
			if (step(b, resident[k], &n_runs)) {
				aq_block_free(resident[k]);
				resident[k--] = resident[--n];
			}
	}
	for (uint32_t k = 0; k < n; k++)
		aq_block_free(resident[k]);
	aq_grid_free(g);
	return b->result.fault;
}

enum aq_status bench_launch(struct bench *b, const char *kernel, uint32_t grid, uint32_t block,
			    uint32_t dyn_shared, const void *params)
{
	const uint32_t g[3] = { grid, 1, 1 }, n[3] = { block, 1, 1 };

	return bench_launch3(b, kernel, g, n, dyn_shared, params);
}
