/* SPDX-License-Identifier: Apache-2.0 */
/* A card of one's own for tests of the interpreter: a few ranges of memory, and one launch after another on the calling thread. */
#pragma once

#include "gpud/soft/exec/exec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA_VA    0x100000000ULL
#define ARENA_BYTES (4u << 20)

struct bench {
	struct aq_code *code;
	uint8_t *arena;
	uint64_t used;
	struct aq_mem_map map;
	uint64_t stack_bytes;
	uint64_t max_runs; /* quanta before a launch counts as hung; 0: many */
	/* of the last launch: */
	struct aq_run_result result;
	uint64_t insns, lane_insns;
	uint64_t n_sleeps;
	bool hung;
};

/* Build `body` behind a header (version 7.8, sm_80, 64 bits); fails the test with the log if it cannot be. */
void bench_init(struct bench *b, const char *body);
/* The same with a whole module. */
void bench_init_module(struct bench *b, const char *text, size_t len);
void bench_done(struct bench *b);
/* The log of a build that has to fail. Free it. */
char *bench_refusal(const char *body);

/* Zeroed device memory; its host address by bench_host(). */
uint64_t bench_alloc(struct bench *b, size_t bytes);
void *bench_host(struct bench *b, uint64_t va);
uint64_t bench_symbol(struct bench *b, const char *name);

/* Launch and run to the end. `params` is laid out as the kernel's. Returns AQ_OK or the fault. */
enum aq_status bench_launch(struct bench *b, const char *kernel, uint32_t grid, uint32_t block,
			    uint32_t dyn_shared, const void *params);
enum aq_status bench_launch3(struct bench *b, const char *kernel, const uint32_t *grid,
			     const uint32_t *block, uint32_t dyn_shared, const void *params);
