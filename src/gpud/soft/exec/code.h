/* SPDX-License-Identifier: Apache-2.0 */
/* A lowered module: what lowering writes and the runner reads. */
#pragma once

#include "gpud/soft/exec/exec.h"
#include "gpud/soft/exec/insn.h"

/*
 * Generic addresses. Device memory has the addresses of a process (below 2^47); every other space has a window above them, told by the
 * top byte. Functions have tagged numbers that lie in no space.
 */
#define AQ_WINDOW_SHIFT	       56
#define AQ_WINDOW_SHARED       1u
#define AQ_WINDOW_LOCAL	       2u
#define AQ_WINDOW_PARAM	       3u /* the kernel's parameters, read only */
#define AQ_WINDOW_FUNC	       15u
#define AQ_WINDOW_BASE(window) ((uint64_t)(window) << AQ_WINDOW_SHIFT)

#define AQ_MAX_SHARED_BYTES (227u * 1024)
#define AQ_MAX_LOCAL_BYTES  (512u * 1024)
#define AQ_MAX_FRAME_BYTES  (16u * 1024 * 1024)
#define AQ_FRAME_CHARGE	    16 /* bytes of a thread's stack that a call takes besides its variables */

/* Bits of insn.more of memory instructions. */
#define AQ_MEM_SIGNED  0x001u /* extend the sign into the register */
#define AQ_MEM_WIDE    0x002u /* data registers are rows of 64 bits */
#define AQ_MEM_ADDR32  0x004u /* the address register is a row of 32 bits */
#define AQ_MEM_STRONG  0x008u /* each lane's access is single and not to be merged */
#define AQ_MEM_ACQUIRE 0x010u
#define AQ_MEM_RELEASE 0x020u

/* Where a value of a call lives: words interleaved over the lanes, or a register. */
enum aq_loc_kind {
	AQ_LOC_AREA,
	AQ_LOC_REG32,
	AQ_LOC_REG64
};

struct aq_loc {
	uint32_t row; /* operand: the first row, of 32-bit words for an area */
	uint32_t bytes;
	uint8_t kind;
};

struct aq_call {
	int32_t func; /* -1: address in insn.a */
	uint32_t n_args, n_rets;
	struct aq_loc *args, *rets;
};

struct aq_switch {
	uint32_t *targets;
	uint32_t n_targets;
};

/* A row of the pool that takes a variable's address when it is known. */
struct aq_patch {
	uint32_t offset;
	uint32_t symbol;
	int64_t addend;
	bool wide;
};

struct aq_func {
	const struct aq_ptx_func *ptx;
	struct aq_insn *code;
	uint32_t n_code;
	uint8_t *pool;
	uint32_t pool_bytes;
	struct aq_patch *patches;
	uint32_t n_patches;
	struct aq_call *calls;
	uint32_t n_calls;
	struct aq_switch *switches;
	uint32_t n_switches;
	struct aq_loc *params, *rets; /* of a function that can be called */
	uint32_t n_params, n_rets;
	uint32_t frame_bytes; /* rows of one activation */
	uint32_t local_bytes; /* of one activation and thread, multiple of 16 */
	uint32_t n_regs;      /* 32-bit registers live at once, about */

	/* Call graph. */
	int32_t *callees;
	uint32_t n_callees;
	bool calls_indirect, address_taken, uses_common_shared;
};

struct aq_kernel {
	struct aq_code_kernel info;
	uint32_t func;
	uint32_t stack_bytes;	 /* per thread: deepest static chain of calls */
	bool unbounded_stack;	 /* recursion or indirect calls: the launch's stack limit counts */
	uint32_t dynamic_shared; /* where extern shared arrays begin */
};

struct aq_code {
	struct aq_ptx_module *ptx;
	struct aq_func *funcs; /* as in ptx */
	struct aq_kernel *kernels;
	uint32_t n_kernels;
	struct aq_code_symbol *symbols;
	struct aq_ptx_var **symbol_vars;
	uint32_t n_symbols;
	uint64_t pool_bytes; /* of all functions */
	uint64_t *
		common_places; /* of each variable of the module in what functions share between kernels */
	uint32_t common_shared; /* bytes of that */
};
