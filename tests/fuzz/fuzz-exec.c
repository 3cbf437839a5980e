/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as PTX that is not only parsed: lower it, launch its kernels over a little memory, let them run for a while. */
#include "gpud/soft/exec/exec.h"
#include "gpud/soft/ptx/ptx.h"
#include "util/strbuf.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_VA    0x10000000ULL
#define ARENA_BYTES 65536u
#define MAX_KERNELS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t arena[ARENA_BYTES / 8];

static enum aq_status lookup(void *opaque, uint64_t va, struct aq_view *ret)
{
	(void)opaque;
	if (va < ARENA_VA || va >= ARENA_VA + ARENA_BYTES)
		return AQ_E_ILLEGAL_ADDRESS;
	*ret = (struct aq_view){
		.base = ARENA_VA,
		.end = ARENA_VA + ARENA_BYTES,
		.host = (uint8_t *)arena,
		.writable = true,
	};
	return AQ_OK;
}

/* Addresses for the module's variables, whether or not there is memory behind them; contents only where there is. */
static bool place_symbols(struct aq_code *code, struct aq_strbuf *log)
{
	uint32_t n;
	struct aq_code_symbol *s = aq_code_symbols(code, &n);
	uint64_t at = ARENA_VA;

	for (uint32_t k = 0; k < n; k++) {
		s[k].va = at;
		at += (s[k].size + 255) & ~255ULL;
	}
	if (aq_code_relocate(code, log) < 0)
		return false;
	for (uint32_t k = 0; k < n; k++)
		if (s[k].init && s[k].va - ARENA_VA + s[k].size <= ARENA_BYTES)
			memcpy((uint8_t *)arena + (s[k].va - ARENA_VA), s[k].init, s[k].size);
	return true;
}

static void run_block(struct aq_grid *g, uint64_t index)
{
	struct aq_block *b = aq_block_new(g, index, 0);
	struct aq_run_result r;

	if (!b)
		return;
	for (int k = 0; k < 8; k++)
		if (aq_block_run(b, 300, &r) != AQ_RUN_YIELD)
			break;
	aq_block_free(b);
}

static void launch(struct aq_code *code, uint32_t kernel, const struct aq_mem_map *mem)
{
	const struct aq_code_kernel *k = aq_code_kernel(code, kernel);
	struct aq_launch l = {
		.code = code,
		.kernel = kernel,
		.grid = { 2, 1, 1 },
		.block = { 40, 1, 1 },
		.dyn_shared = 128,
		.mem = mem,
		.stack_bytes = 512,
		.n_sm = 1,
		.clock_khz = 1000000,
	};
	uint64_t *params = calloc(k->param_bytes / 8 + 1, 8);
	struct aq_grid *g;

	if (!params)
		return;
	/* Pointers, wherever the kernel wants one. */
	for (uint32_t n = 0; n < k->param_bytes / 8; n++)
		params[n] = ARENA_VA + 1024 * (n + 1);
	l.params = params;
	for (int a = 0; a < 3; a++)
		if (k->reqntid[a])
			l.block[a] = k->reqntid[a];
	if (aq_grid_new(&l, &g) == AQ_OK) {
		run_block(g, 0);
		run_block(g, 1);
		aq_grid_free(g);
	}
	free(params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct aq_mem_map mem = { .lookup = lookup };
	struct aq_strbuf log = { .max = 1 << 16 };
	struct aq_ptx_module *m = aq_ptx_parse((const char *)data, size, &log);
	struct aq_code *code = m ? aq_code_build(m, 80, &log) : NULL;

	if (m && !code && log.len == 0)
		abort(); /* refused without a word */
	if (code && place_symbols(code, &log))
		for (uint32_t k = 0; k < aq_code_n_kernels(code) && k < MAX_KERNELS; k++)
			launch(code, k, &mem);
	aq_code_free(code);
	aq_strbuf_done(&log);
	return 0;
}
