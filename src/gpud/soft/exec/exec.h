/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running PTX: what the card's engine sees of the interpreter. A code object is a lowered module; a grid is one launch of one of its kernels;
 * a block is a resident thread block with all its state, run a quantum at a time by whichever worker thread picks it up, so that
 * blocks of one or many grids progress together. Nothing here starts threads or looks at sockets.
 */
#pragma once

#include "wire/messages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct aq_ptx_module;
struct aq_strbuf;
struct aq_code;
struct aq_grid;
struct aq_block;

/* A stretch of the session's address space: device addresses [base, end) live at host[0 ..]. */
struct aq_view {
	uint64_t base, end;
	uint8_t *host;
	bool writable;
};

/*
 * Where device memory is. lookup fills *ret with the whole range around va that may be reached and returns AQ_OK, or AQ_E_ILLEGAL_ADDRESS. A view stays
 * valid until the engine's call into aq_block_run() returns. Thread-safe.
 */
struct aq_mem_map {
	enum aq_status (*lookup)(void *opaque, uint64_t va, struct aq_view *ret);
	void *opaque;
};

/* Where the loader puts a module's global and constant variables. */
struct aq_code_symbol {
	const char *name;
	uint64_t size;
	uint32_t align;
	bool is_const, is_visible, is_managed;
	uint64_t va;	     /* filled in by the owner before aq_code_relocate() */
	const uint8_t *init; /* size bytes after relocation, or NULL for zeros */
};

struct aq_code_kernel {
	const char *name;
	uint32_t n_params;
	const struct aq_wire_param *params;
	uint32_t param_bytes;
	uint32_t registers;    /* per thread, an estimate of what hardware would take: 16 .. 255 */
	uint32_t shared_bytes; /* static */
	uint32_t local_bytes;  /* per thread */
	uint32_t const_bytes;
	uint32_t max_threads; /* .maxntid / .reqntid product, or 1024 */
	uint32_t reqntid[3];
	uint32_t ptx_version;
	uint32_t target;
};

/*
 * Lower a parsed module: every instruction is resolved to its handler, or refused in the log with line and instruction. Takes ownership of `m` in any case.
 * sm: the card's compute capability (80); a module for a later target is refused. Returns NULL on failure.
 */
struct aq_code *aq_code_build(struct aq_ptx_module *m, unsigned sm, struct aq_strbuf *log);
void aq_code_free(struct aq_code *c); /* no grid of it may be left */

uint32_t aq_code_n_kernels(const struct aq_code *c);
const struct aq_code_kernel *aq_code_kernel(const struct aq_code *c, uint32_t index);
/* All global- and const-space variables of the module, in the order of the text; the owner writes va into them. */
struct aq_code_symbol *aq_code_symbols(struct aq_code *c, uint32_t *ret_n);
/* After every symbol has its va: patch initialisers and instructions. Returns 0 or -errno with the reason logged. */
int aq_code_relocate(struct aq_code *c, struct aq_strbuf *log);

struct aq_launch {
	struct aq_code *code;
	uint32_t kernel;
	uint32_t grid[3], block[3];
	uint32_t dyn_shared;
	const void *params;	      /* param_bytes of the kernel, copied */
	const struct aq_mem_map *mem; /* outlives the grid */
	/* Per thread, for recursion and calls by address; what the text alone tells comes on top. */
	uint64_t stack_bytes;
	uint32_t n_sm;	    /* for %nsmid */
	uint32_t clock_khz; /* rate of %clock64 */
	uint64_t id;	    /* %gridid */
};

/* Returns AQ_OK and a grid, or AQ_E_LAUNCH_RESOURCES, AQ_E_NO_MEMORY. */
enum aq_status aq_grid_new(const struct aq_launch *l, struct aq_grid **ret);
void aq_grid_free(struct aq_grid *g); /* no block of it may be left */
uint64_t aq_grid_n_blocks(const struct aq_grid *g);

/* Make block `index` (linear: x fastest) resident on multiprocessor `smid`. NULL: out of memory. May be called from any thread. */
struct aq_block *aq_block_new(struct aq_grid *g, uint64_t index, uint32_t smid);
void aq_block_free(struct aq_block *b);

enum aq_run {
	AQ_RUN_YIELD, /* the quantum is used up */
	AQ_RUN_SLEEP, /* every warp sleeps or waits; nothing to do before wake_ns */
	AQ_RUN_DONE,
	AQ_RUN_FAULT,
};

struct aq_run_result {
	uint64_t insns;	      /* warp instructions executed in this call */
	uint64_t lane_insns;  /* the same, times active lanes */
	uint64_t wake_ns;     /* SLEEP: CLOCK_MONOTONIC */
	enum aq_status fault; /* FAULT */
	uint64_t fault_va;
	uint32_t fault_line; /* of the PTX text */
};

/*
 * Run the block on the calling thread for about max_insns warp instructions. One thread at a time per block; different blocks run in parallel, global
 * memory atomics are atomic between them.
 */
enum aq_run aq_block_run(struct aq_block *b, uint64_t max_insns, struct aq_run_result *ret);
