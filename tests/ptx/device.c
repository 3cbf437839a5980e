/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include "base/clock.h"
#include "base/macro.h"
#include "gpud/soft/ptx/ptx.h"
#include "util/strbuf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static enum aq_status lookup(void *opaque, uint64_t va, struct aq_view *ret)
{
	struct aq_device *d = opaque;

	if (va < AQ_DEVICE_BASE || va >= AQ_DEVICE_BASE + AQ_DEVICE_BYTES)
		return AQ_E_ILLEGAL_ADDRESS;
	*ret = (struct aq_view){ AQ_DEVICE_BASE, AQ_DEVICE_BASE + AQ_DEVICE_BYTES, d->mem, true };
	return AQ_OK;
}

void aq_device_init(struct aq_device *d)
{
	memset(d, 0, sizeof(*d));
	d->mem = calloc(1, AQ_DEVICE_BYTES);
	if (!d->mem)
		abort();
	d->map = (struct aq_mem_map){ .lookup = lookup, .opaque = d };
}

void aq_device_done(struct aq_device *d)
{
	free(d->mem);
	memset(d, 0, sizeof(*d));
}

/* Variables go to the end of memory, each where its alignment wants it. */
static bool place_symbols(struct aq_device *d, struct aq_code *code, struct aq_strbuf *log)
{
	uint32_t n;
	struct aq_code_symbol *s = aq_code_symbols(code, &n);
	uint64_t at = AQ_DEVICE_BYTES;

	for (uint32_t k = 0; k < n; k++) {
		at = (at - s[k].size) & ~((uint64_t)(s[k].align ? s[k].align : 1) - 1);
		s[k].va = AQ_DEVICE_BASE + at;
	}
	if (aq_code_relocate(code, log) < 0)
		return false;
	for (uint32_t k = 0; k < n; k++) {
		uint8_t *at_host = d->mem + (s[k].va - AQ_DEVICE_BASE);

		if (s[k].init)
			memcpy(at_host, s[k].init, s[k].size);
		else
			memset(at_host, 0, s[k].size);
	}
	return true;
}

struct aq_code *aq_device_build(struct aq_device *d, const char *text)
{
	struct aq_strbuf log = { 0 };
	struct aq_ptx_module *m = aq_ptx_parse(text, strlen(text), &log);
	struct aq_code *code = m ? aq_code_build(m, 90, &log) : NULL;

	if (code && !place_symbols(d, code, &log)) {
		aq_code_free(code);
		code = NULL;
	}
	(void)snprintf(d->log, sizeof(d->log), "%s", aq_strbuf_text(&log));
	aq_strbuf_done(&log);
	return code;
}

static void sleep_until(uint64_t ns)
{
	const struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* A round in which every block that is left gets its quantum. */
static enum aq_status round_of_blocks(struct aq_device *d, struct aq_block **blocks, uint64_t n,
				      uint64_t *left)
{
	for (uint64_t k = 0; k < n; k++) {
		enum aq_run how;

		if (!blocks[k])
			continue;
		how = aq_block_run(blocks[k], d->quantum ? d->quantum : 1 << 20, &d->last);
		d->lane_insns += d->last.lane_insns;
		d->insns += d->last.insns;
		if (how == AQ_RUN_FAULT)
			return d->last.fault;
		if (how == AQ_RUN_SLEEP && *left == 1)
			sleep_until(d->last.wake_ns);
		if (how != AQ_RUN_DONE)
			continue;
		aq_block_free(blocks[k]);
		blocks[k] = NULL;
		--*left;
	}
	return AQ_OK;
}

enum aq_status aq_device_launch(struct aq_device *d, struct aq_code *code, unsigned grid,
				unsigned block, unsigned dyn_shared, const void *params)
{
	const struct aq_launch l = {
		.code = code,
		.grid = { grid, 1, 1 },
		.block = { block, 1, 1 },
		.dyn_shared = dyn_shared,
		.params = params,
		.mem = &d->map,
		.stack_bytes = 1024,
		.n_sm = 4,
		.clock_khz = 1000000,
		.id = 7,
	};
	struct aq_grid *g;
	struct aq_block **blocks;
	enum aq_status status = aq_grid_new(&l, &g);
	uint64_t n, left;
	const uint64_t deadline = aq_now_ns() + 60 * AQ_NS_PER_S;

	if (status != AQ_OK)
		return status;
	left = n = aq_grid_n_blocks(g);
	blocks = calloc(n, sizeof(struct aq_block *));
	if (!blocks)
		abort();
	for (uint64_t k = 0; k < n; k++)
		if (!(blocks[k] = aq_block_new(g, k, (uint32_t)k % 4)))
			abort();
	while (left && status == AQ_OK) {
		status = round_of_blocks(d, blocks, n, &left);
		if (left && aq_now_ns() > deadline)
			status = AQ_E_TIMEOUT;
	}
	for (uint64_t k = 0; k < n; k++)
		aq_block_free(blocks[k]);
	free(blocks);
	aq_grid_free(g);
	return status;
}

enum aq_status aq_device_run(struct aq_device *d, const char *text, unsigned grid, unsigned block,
			     const void *params)
{
	struct aq_code *code = aq_device_build(d, text);
	enum aq_status status;

	if (!code) {
		(void)fprintf(stderr, "# refused: %s", d->log);
		return AQ_E_INVALID;
	}
	status = aq_device_launch(d, code, grid, block, 0, params);
	aq_code_free(code);
	return status;
}
