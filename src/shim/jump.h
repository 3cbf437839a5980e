/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For generated assembly: exported names that are jumps through their slots, and what a slot holds before the library has started.
 *
 * A lazy slot keeps all registers that can hold arguments, asks aq_slot_start() for the target and jumps there. On the stack nothing moves, so
 * arguments that lie there are found, and the caller's return address is the caller's.
 */
#pragma once

/* clang-format off */
#define AQ_SLOTS_BEGIN .section .data.rel,"aw",%progbits; .p2align 6; .globl aq_slots; .hidden aq_slots; .type aq_slots, %object; aq_slots:
#define AQ_SLOTS_END   .size aq_slots, . - aq_slots
#define AQ_SLOT(index) .quad .Llazy##index
#define AQ_FN(name)    .p2align 4; .globl name; .type name, %function; name:
#define AQ_FN_END(name) .size name, . - name

#if defined(__x86_64__)

#define AQ_JUMP(name, index) AQ_FN(name) .cfi_startproc; endbr64; jmp *aq_slots + 8 * index(%rip); .cfi_endproc; AQ_FN_END(name)
#define AQ_LAZY(index)	     .Llazy##index: endbr64; movl $index, %r11d; jmp .Lstart
#define AQ_CODE_BEGIN                                                                                                          \
	.text; .p2align 4; .type .Lstart, %function; .Lstart:;                                                                  \
	.cfi_startproc; pushq %rbp; .cfi_def_cfa_offset 16; .cfi_offset %rbp, -16; movq %rsp, %rbp; .cfi_def_cfa_register %rbp;     \
	pushq %rdi; pushq %rsi; pushq %rdx; pushq %rcx; pushq %r8; pushq %r9; pushq %rax; pushq %r10;                             \
	subq $128, %rsp;                                                                                                       \
	movups %xmm0, (%rsp); movups %xmm1, 16(%rsp); movups %xmm2, 32(%rsp); movups %xmm3, 48(%rsp);                            \
	movups %xmm4, 64(%rsp); movups %xmm5, 80(%rsp); movups %xmm6, 96(%rsp); movups %xmm7, 112(%rsp);                         \
	movl %r11d, %edi; call aq_slot_start; movq %rax, %r11;                                                                  \
	movups (%rsp), %xmm0; movups 16(%rsp), %xmm1; movups 32(%rsp), %xmm2; movups 48(%rsp), %xmm3;                            \
	movups 64(%rsp), %xmm4; movups 80(%rsp), %xmm5; movups 96(%rsp), %xmm6; movups 112(%rsp), %xmm7;                         \
	addq $128, %rsp;                                                                                                       \
	popq %r10; popq %rax; popq %r9; popq %r8; popq %rcx; popq %rdx; popq %rsi; popq %rdi; popq %rbp;                           \
	.cfi_def_cfa %rsp, 8; jmp *%r11; .cfi_endproc
#define AQ_CODE_END .section .note.GNU-stack,"",%progbits

#elif defined(__aarch64__)

/* hint 34: bti c, a no-operation on older cores. */
#define AQ_JUMP(name, index)                                                                                                   \
	AQ_FN(name) .cfi_startproc; hint 34; adrp x16, aq_slots + 8 * index; add x16, x16, :lo12:aq_slots + 8 * index;              \
	ldr x16, [x16]; br x16; .cfi_endproc; AQ_FN_END(name)
#define AQ_LAZY(index)	     .Llazy##index: hint 34; mov w17, index; b .Lstart
#define AQ_CODE_BEGIN                                                                                                          \
	.text; .p2align 4; .type .Lstart, %function; .Lstart:;                                                                  \
	.cfi_startproc; stp x29, x30, [sp, #-224]!; .cfi_def_cfa_offset 224; .cfi_offset 29, -224; .cfi_offset 30, -216;           \
	mov x29, sp; .cfi_def_cfa_register 29;                                                                                 \
	stp x0, x1, [sp, #16]; stp x2, x3, [sp, #32]; stp x4, x5, [sp, #48]; stp x6, x7, [sp, #64]; str x8, [sp, #80];              \
	stp q0, q1, [sp, #96]; stp q2, q3, [sp, #128]; stp q4, q5, [sp, #160]; stp q6, q7, [sp, #192];                             \
	mov w0, w17; bl aq_slot_start; mov x16, x0;                                                                            \
	ldp q0, q1, [sp, #96]; ldp q2, q3, [sp, #128]; ldp q4, q5, [sp, #160]; ldp q6, q7, [sp, #192];                             \
	ldp x0, x1, [sp, #16]; ldp x2, x3, [sp, #32]; ldp x4, x5, [sp, #48]; ldp x6, x7, [sp, #64]; ldr x8, [sp, #80];              \
	ldp x29, x30, [sp], #224; .cfi_def_cfa 31, 0; br x16; .cfi_endproc
#define AQ_CODE_END .section .note.GNU-stack,"",%progbits

#else
#error "no jumps for this processor yet"
#endif
/* clang-format on */
