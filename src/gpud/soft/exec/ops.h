/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of everything that is not arithmetic. Their fields beyond dst, a, b, c, d are said with each. */
#pragma once

#include "gpud/soft/exec/insn.h"

/* ops.c: small things that lowering needs between registers */
void aq_alu_low_half(struct aq_regs *r, const struct aq_insn *i, uint32_t mask); /* 64 to 32 */
/* Extend `size` bytes; more: AQ_MEM_SIGNED, AQ_MEM_WIDE. From a row of 32 bits. */
void aq_alu_extend(struct aq_regs *r, const struct aq_insn *i, uint32_t mask);
void aq_alu_not_pred(struct aq_regs *r, const struct aq_insn *i, uint32_t mask);
/*
 * vec elements to or from one register. size: bytes of an element; more: AQ_MEM_WIDE if the whole has 64 bits. Elements are a, b, c, d (pack) or
 * dst, dst2, c, d (unpack, from a).
 */
void aq_alu_pack(struct aq_regs *r, const struct aq_insn *i, uint32_t mask);
void aq_alu_unpack(struct aq_regs *r, const struct aq_insn *i, uint32_t mask);
/* dst = address of local variable at imm of this activation; of the dynamic shared memory + imm. size: 4 or 8. */
void aq_op_local_address(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
void aq_op_dynamic_address(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
void aq_op_nop(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
void aq_op_fence(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);

/*
 * access.c: handlers by space. a: address (more: AQ_MEM_ADDR32), imm: offset, size, vec, more. Loads write dst, dst2, c, d; stores read
 * b, c, d, dst.
 */
aq_op_fn aq_load_select(enum aq_ptx_space space, unsigned size, bool is_signed, bool wide);
aq_op_fn aq_store_select(enum aq_ptx_space space, unsigned size, bool wide);
/* Those of a level of the architecture: isa.c chooses. */
aq_op_fn aq_load_select_base(enum aq_ptx_space space, unsigned size, bool is_signed, bool wide);
aq_op_fn aq_store_select_base(enum aq_ptx_space space, unsigned size, bool wide);
aq_op_fn aq_load_select_v3(enum aq_ptx_space space, unsigned size, bool is_signed, bool wide);
aq_op_fn aq_store_select_v3(enum aq_ptx_space space, unsigned size, bool wide);
/* memory.c */
/* Parameter areas of calls: imm is the byte offset in the area at row dst2 (load: in row a). Registers as above. */
void aq_op_load_area(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
void aq_op_store_area(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
/* dst (64 bits) = generic address of a in window imm; back, with size 1. Zero-extends a 32-bit a (AQ_MEM_ADDR32). */
void aq_op_cvta(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
/* size bytes to shared memory at a + imm from device memory at b + (int32_t)target; beyond c bytes zeros. */
void aq_op_copy_async(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
/* dst (predicate) = a lies in i->space */
void aq_op_isspacep(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);

/* atomic.c */
enum aq_atom {
	AQ_ATOM_AND,
	AQ_ATOM_OR,
	AQ_ATOM_XOR,
	AQ_ATOM_EXCH,
	AQ_ATOM_ADD,
	AQ_ATOM_INC,
	AQ_ATOM_DEC,
	AQ_ATOM_MIN,
	AQ_ATOM_MAX,
	AQ_ATOM_MINS, /* signed */
	AQ_ATOM_MAXS,
	AQ_ATOM_CAS,
	AQ_ATOM_FADD,
};
/* a: address, imm: offset, b, c: values, vec: enum aq_atom, size: 2, 4 or 8, dst: the old value (not with AQ_MEM_NO_RESULT). */
void aq_op_atom(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
#define AQ_MEM_NO_RESULT 0x100u

/* control.c */
void aq_op_exit(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
void aq_op_ret(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
void aq_op_call(struct aq_warp *w, const struct aq_insn *i,
		uint32_t mask); /* more: in func.calls; a: address */
void aq_op_brx(struct aq_warp *w, const struct aq_insn *i,
	       uint32_t mask); /* more: in func.switches; a: index */
void aq_op_trap(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
void aq_op_nanosleep(struct aq_warp *w, const struct aq_insn *i, uint32_t mask); /* a */
/* a: barrier, b: threads or a row of zeros, c: predicate, dst; size: enum aq_bar */
enum aq_bar {
	AQ_BAR_SYNC,
	AQ_BAR_ARRIVE,
	AQ_BAR_POPC,
	AQ_BAR_AND,
	AQ_BAR_OR
};
void aq_op_bar(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);

/* lanes.c: d: row of member masks; imm 1: without .sync, for the lanes that are here. */
void aq_op_warp_bar(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
void aq_op_activemask(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);
enum aq_vote {
	AQ_VOTE_ALL,
	AQ_VOTE_ANY,
	AQ_VOTE_UNI,
	AQ_VOTE_BALLOT
};
void aq_op_vote(struct aq_warp *w, const struct aq_insn *i,
		uint32_t mask); /* a; size: enum aq_vote */
enum aq_shfl {
	AQ_SHFL_UP,
	AQ_SHFL_DOWN,
	AQ_SHFL_BFLY,
	AQ_SHFL_IDX
};
void aq_op_shfl(struct aq_warp *w, const struct aq_insn *i, uint32_t mask);	 /* a, b, c; size */
void aq_op_match_any(struct aq_warp *w, const struct aq_insn *i, uint32_t mask); /* a; size: 4, 8 */
void aq_op_match_all(struct aq_warp *w, const struct aq_insn *i, uint32_t mask); /* and dst2 */
void aq_op_redux(struct aq_warp *w, const struct aq_insn *i,
		 uint32_t mask); /* a; size: enum aq_atom */
void aq_op_elect(struct aq_warp *w, const struct aq_insn *i, uint32_t mask); /* dst, dst2 */
