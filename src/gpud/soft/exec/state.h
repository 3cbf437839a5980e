/* SPDX-License-Identifier: Apache-2.0 */
/* A grid at work: blocks, warps, groups of lanes and frames. */
#pragma once

#include "gpud/soft/exec/code.h"

#include <pthread.h>

#define AQ_MAX_WARPS  32
#define AQ_N_BARRIERS 16
#define AQ_N_VIEWS    8
/* Rows of all frames of a block together: recursion of 1024 diverged threads has to end somewhere. */
#define AQ_MAX_BLOCK_FRAMES (256ULL * 1024 * 1024)

/* An activation of a function by some lanes of a warp. */
struct aq_frame {
	struct aq_frame *up;
	const struct aq_func *func;
	uint8_t *rows;
	size_t cap;	 /* bytes behind rows */
	uint32_t lanes;	 /* that have not returned */
	uint32_t ret_pc; /* in up->func: the call */
	uint32_t depth;
	uint32_t local_off; /* of this activation's variables in each thread's local memory */
};

enum aq_group_state {
	AQ_GROUP_RUN,
	AQ_GROUP_SYNC, /* at a warp-wide instruction that misses lanes */
	AQ_GROUP_BAR,  /* at barrier `bar` of the block */
	AQ_GROUP_SLEEP
};

/* Lanes that go together: same frame, same pc. */
struct aq_group {
	uint32_t mask;
	uint32_t pc;
	struct aq_frame *frame;
	uint32_t late;	/* behind a backward branch: lets groups up to this pc go first; 0: no */
	uint32_t boost; /* goes before all others for so many backward branches */
	uint64_t stamp; /* when it was last chosen */
	uint64_t wake_ns;
	uint32_t sync_mask; /* at bar.warp.sync */
	uint8_t state;
	uint8_t bar;
	bool warp_bar;
};

struct aq_warp {
	struct aq_regs r;
	struct aq_block *block;
	bool event; /* the instruction changed groups or faulted: leave the inner loop */
	uint8_t index;
	uint32_t live; /* lanes that exist and have not exited */
	struct aq_group *group;
	uint32_t n_groups;
	uint32_t spins; /* backward branches since another group had its turn */
	uint64_t stamp;
	struct aq_group groups[AQ_LANES];
	struct aq_frame entry;	/* the kernel's own activation */
	struct aq_frame *spare; /* frames to use again */
	uint8_t *local;		/* words interleaved over lanes; NULL before the first access */
};

struct aq_barrier {
	bool pending;
	uint32_t expected;	  /* threads; 0: all that live */
	uint32_t n_true, n_votes; /* bar.red */
	uint32_t arrived[AQ_MAX_WARPS];
};

struct aq_block {
	struct aq_grid *grid;
	struct aq_block *next_spare;
	uint32_t ctaid[3];
	uint32_t smid;
	uint32_t n_live; /* warps with live lanes */
	uint32_t turn;	 /* the warp whose turn it is */
	uint8_t *shared;
	struct aq_view views[AQ_N_VIEWS]; /* valid during one aq_block_run() */
	uint32_t n_views, next_view;
	uint64_t frame_bytes;
	uint64_t insns, lane_insns;
	enum aq_status fault;
	uint64_t fault_va;
	uint32_t fault_line;
	struct aq_barrier barriers[AQ_N_BARRIERS];
	uint32_t n_warps;
	struct aq_warp *warps;
	void *memory; /* one allocation: warps, their entry rows and shared memory */
};

struct aq_grid {
	struct aq_launch launch;
	const struct aq_code *code;
	const struct aq_kernel *kernel;
	const struct aq_func *func;
	uint8_t *params;
	uint32_t threads, n_warps;
	uint32_t shared_bytes; /* static and dynamic */
	uint32_t local_limit;  /* bytes of local memory of a thread */
	uint64_t n_blocks;
	uint32_t *tid; /* [warp][axis][lane] */
	pthread_mutex_t lock;
	struct aq_block *spare; /* blocks to use again */
};

/* run.c */
void aq_warp_fault(struct aq_warp *w, const struct aq_insn *i, enum aq_status status, uint64_t va);
uint32_t aq_warp_pc(const struct aq_warp *w, const struct aq_insn *i);
/* A new group of `mask`; there is always room, since groups are disjoint. */
struct aq_group *aq_group_add(struct aq_warp *w, uint32_t mask, uint32_t pc,
			      struct aq_frame *frame);
/*
 * The current group is about to act at `i` with the lanes of `mask` only: the others go on behind it, or stay before it, as a group of
 * their own.
 */
void aq_group_split(struct aq_warp *w, const struct aq_insn *i, uint32_t mask, bool rest_stays);
/* Take lanes out of their group and all their frames; barriers may open by that. */
void aq_warp_exit(struct aq_warp *w, uint32_t mask);

/* control.c */
void aq_frame_release(struct aq_warp *w, struct aq_frame *f);
void aq_barriers_check(struct aq_block *b);

/* memory.c. The view that holds [va, va + n), or NULL. Views never move while a block runs. */
const struct aq_view *aq_view_find(struct aq_warp *w, uint64_t va, uint32_t n, bool write);
/* Host address of `n` bytes at a device address, or NULL after a fault. */
uint8_t *aq_global_ptr(struct aq_warp *w, const struct aq_insn *i, uint64_t va, uint32_t n,
		       bool write);
void aq_lane_addresses(const struct aq_warp *w, const struct aq_insn *i, uint64_t *addr);
/* False after a fault. */
bool aq_check_aligned(struct aq_warp *w, const struct aq_insn *i, const uint64_t *addr,
		      uint32_t bytes, uint32_t mask);
/* False after a fault; else every lane's n bytes are inside its thread's local memory, which exists. */
bool aq_check_local(struct aq_warp *w, const struct aq_insn *i, const uint64_t *addr, uint32_t n,
		    uint32_t mask);
/* Zeroed when first used; NULL: out of memory. */
uint8_t *aq_local_memory(struct aq_warp *w);
