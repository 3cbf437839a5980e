/* SPDX-License-Identifier: Apache-2.0 */
/* Control flow: calls, recursion, tables, barriers, locks inside a warp, warp-wide instructions, sleep. */
#include "exec-harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Kernels of one pointer: in[tid] and out[tid] of 32 bits. %r1 is tid, %rd3 the address of in[tid] and out[tid]. */
#define HEAD(name)                                                                    \
	".visible .entry " name "(.param .u64 p)\n{\n"                                \
	"	.reg .pred %p<16>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .f32 %f<8>;\n" \
	"	ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;\n"  \
	"	add.u64 %rd3, %rd1, %rd2;\n"
#define TAIL "	ret;\n}\n"

struct run {
	struct bench b;
	uint64_t p;
	uint32_t *v;
};

static void run_init(struct run *r, const char *ptx)
{
	bench_init(&r->b, ptx);
	r->p = bench_alloc(&r->b, 4096 * 4);
	r->v = bench_host(&r->b, r->p);
}

static void run_ok(struct run *r, const char *kernel, uint32_t threads)
{
	assert_int_equal(bench_launch(&r->b, kernel, 1, threads, 0, &r->p), AQ_OK);
	assert_false(r->b.hung);
}

static void test_call(void **state)
{
	static const char ptx[] =
		".func (.param .b32 ret) add3(.param .b32 a, .param .b64 b, .param .align 4 .b8 c[8])\n"
		"{\n"
		"	.reg .b32 %r<8>; .reg .b64 %rd<2>;\n"
		"	ld.param.u32 %r1, [a]; ld.param.u64 %rd1, [b]; cvt.u32.u64 %r2, %rd1;\n"
		"	ld.param.u32 %r3, [c]; ld.param.u32 %r4, [c+4];\n"
		"	add.u32 %r5, %r1, %r2; add.u32 %r5, %r5, %r3; add.u32 %r5, %r5, %r4;\n"
		"	st.param.b32 [ret], %r5;\n"
		"	ret;\n"
		"}\n"
		".func (.reg .u32 out) twice(.reg .u32 in)\n"
		"{\n"
		"	add.u32 out, in, in;\n"
		"	ret;\n"
		"}\n" HEAD(
			"k") "	setp.gt.u32 %p1, %r1, 20;\n"
			     "	mov.u32 %r3, 5;\n"
			     "	@%p1 bra SKIP;\n"
			     "	{ .param .b32 p0; .param .b64 p1; .param .align 4 .b8 p2[8]; .param .b32 r0;\n"
			     "	st.param.b32 [p0], %r1; cvt.u64.u32 %rd4, %r1; st.param.b64 [p1], %rd4;\n"
			     "	st.param.b32 [p2], 100; st.param.b32 [p2+4], %r1;\n"
			     "	call.uni (r0), add3, (p0, p1, p2);\n"
			     "	ld.param.b32 %r3, [r0];\n"
			     "	}\n"
			     "	call (%r3), twice, (%r3);\n"
			     "SKIP:\n"
			     "	@!%p1 call (%r3), twice, (%r3);\n"
			     "	st.global.u32 [%rd3], %r3;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "k", 40);
	for (uint32_t t = 0; t < 40; t++)
		assert_int_equal(r.v[t], t > 20 ? 5 : (3 * t + 100) * 4);
	bench_done(&r.b);
}

static const char fib_ptx[] =
	".func (.param .b32 ret) fib(.param .b32 n)\n"
	"{\n"
	"	.reg .b32 %r<9>; .reg .pred %p;\n"
	"	ld.param.u32 %r1, [n];\n"
	"	mov.u32 %r7, %r1;\n"
	"	setp.lt.u32 %p, %r1, 2;\n"
	"	@%p bra DONE;\n"
	"	sub.u32 %r2, %r1, 1;\n"
	"	{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), fib, (a);\n"
	"	ld.param.b32 %r3, [b]; }\n"
	"	sub.u32 %r4, %r1, 2;\n"
	"	{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r4; call (b), fib, (a);\n"
	"	ld.param.b32 %r5, [b]; }\n"
	"	add.u32 %r7, %r3, %r5;\n"
	"DONE:\n"
	"	st.param.b32 [ret], %r7;\n"
	"	ret;\n"
	"}\n" HEAD(
		"k") "	{ .param .b32 a; .param .b32 b; and.b32 %r2, %r1, 15;\n"
		     "	st.param.b32 [a], %r2; call (b), fib, (a); ld.param.b32 %r3, [b]; }\n"
		     "	st.global.u32 [%rd3], %r3;\n" TAIL
		     ".func (.param .b32 ret) down(.param .b32 n)\n"
		     "{\n"
		     "	.reg .b32 %r<9>;\n"
		     "	ld.param.u32 %r1, [n];\n"
		     "	{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), down, (a);\n"
		     "	ld.param.b32 %r3, [b]; }\n"
		     "	st.param.b32 [ret], %r3;\n"
		     "	ret;\n"
		     "}\n" HEAD("endless") "	call (%r2), down, (%r1);\n" TAIL;

static void test_recursion(void **state)
{
	struct run r;
	uint32_t fib[16] = { 0, 1 };

	(void)state;
	for (int k = 2; k < 16; k++)
		fib[k] = fib[k - 1] + fib[k - 2];
	run_init(&r, fib_ptx);
	run_ok(&r, "k", 64);
	for (uint32_t t = 0; t < 64; t++)
		assert_int_equal(r.v[t], fib[t & 15]);
	assert_int_equal(bench_launch(&r.b, "endless", 1, 32, 0, &r.p), AQ_E_HW_STACK);
	assert_int_not_equal(r.b.result.fault_line, 0);
	run_ok(&r, "k", 64); /* a code object survives a fault */
	bench_done(&r.b);
}

static void test_indirect_call(void **state)
{
	static const char ptx[] =
		".func (.param .b32 ret) f0(.param .b32 a) { .reg .b32 %r<3>; ld.param.u32 %r1, [a];\n"
		"	add.u32 %r2, %r1, 1; st.param.b32 [ret], %r2; ret; }\n"
		".func (.param .b32 ret) f1(.param .b32 a) { .reg .b32 %r<3>; ld.param.u32 %r1, [a];\n"
		"	mul.lo.u32 %r2, %r1, 3; st.param.b32 [ret], %r2; ret; }\n"
		".global .align 8 .u64 table[2] = { f0, f1 };\n" HEAD(
			"k") "	and.b32 %r2, %r1, 1; mul.wide.u32 %rd5, %r2, 8; mov.u64 %rd6, table;\n"
			     "	add.u64 %rd6, %rd6, %rd5; ld.global.u64 %rd7, [%rd6];\n"
			     "	{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;\n"
			     "proto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
			     "	call (b), %rd7, (a), proto;\n"
			     "	ld.param.b32 %r3, [b]; }\n"
			     "	st.global.u32 [%rd3], %r3;\n" TAIL HEAD(
				     "bad") "	mov.u64 %rd7, 4096;\n"
					    "	{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;\n"
					    "proto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
					    "	call (b), %rd7, (a), proto; }\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "k", 32);
	for (uint32_t t = 0; t < 32; t++)
		assert_int_equal(r.v[t], t & 1 ? t * 3 : t + 1);
	assert_int_equal(bench_launch(&r.b, "bad", 1, 32, 0, &r.p), AQ_E_ILLEGAL_INSN);
	bench_done(&r.b);
}

static void test_brx(void **state)
{
	static const char ptx[] = HEAD(
		"k") "ts: .branchtargets A, B, C;\n"
		     "	rem.u32 %r2, %r1, 3;\n"
		     "	brx.idx %r2, ts;\n"
		     "A:	mov.u32 %r3, 10; bra J;\n"
		     "B:	mov.u32 %r3, 20; bra J;\n"
		     "C:	mov.u32 %r3, 30;\n"
		     "J:	activemask.b32 %r4; shr.u32 %r4, %r4, 31; add.u32 %r3, %r3, %r4;\n"
		     "	st.global.u32 [%rd3], %r3;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "k", 32);
	for (uint32_t t = 0; t < 32; t++)
		assert_int_equal(r.v[t], (t % 3 + 1) * 10 + 1);
	bench_done(&r.b);
}

/* Every lane takes the lock once: the holder is in the same warp as those that wait. */
static void test_spin_lock(void **state)
{
	static const char ptx[] = HEAD("inside") /* lock, work and release in the loop */
		"	mov.u32 %r2, 0;\n"
		"LOOP:\n"
		"	atom.global.cas.b32 %r3, [%rd1], 0, 1;\n"
		"	setp.ne.u32 %p1, %r3, 0;\n"
		"	@%p1 bra LOOP;\n"
		"	ld.volatile.global.u32 %r4, [%rd1+4]; add.u32 %r4, %r4, 1;\n"
		"	st.volatile.global.u32 [%rd1+4], %r4;\n"
		"	membar.gl;\n"
		"	atom.global.exch.b32 %r5, [%rd1], 0;\n" TAIL HEAD(
			"done") "	mov.u32 %r2, 0;\n"
				"LOOP:\n"
				"	atom.global.cas.b32 %r3, [%rd1], 0, 1;\n"
				"	setp.ne.u32 %p1, %r3, 0;\n"
				"	@%p1 bra NEXT;\n"
				"	ld.volatile.global.u32 %r4, [%rd1+4]; add.u32 %r4, %r4, 1;\n"
				"	st.volatile.global.u32 [%rd1+4], %r4;\n"
				"	membar.gl;\n"
				"	atom.global.exch.b32 %r5, [%rd1], 0;\n"
				"	mov.u32 %r2, 1;\n"
				"NEXT:\n"
				"	setp.eq.u32 %p2, %r2, 0;\n"
				"	@%p2 bra LOOP;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "inside", 128);
	assert_int_equal(r.v[1], 128);
	r.v[1] = 0;
	run_ok(&r, "done", 128);
	assert_int_equal(r.v[1], 128);
	bench_done(&r.b);
}

/*
 * Lanes that wait deep in a call, and ones that wait by a jump through a table, for what a lane still has to do that stands elsewhere.
 */
static void test_waiting_elsewhere(void **state)
{
	static const char ptx[] =
		".func await(.param .b64 a) { .reg .b32 %r<4>; .reg .b64 %rd<3>; .reg .pred %p;\n"
		"	ld.param.u64 %rd1, [a];\n"
		"L:	ld.volatile.u32 %r1, [%rd1]; setp.eq.u32 %p, %r1, 0; @%p bra L; ret; }\n" HEAD(
			"call") "	mov.u32 %r3, 0;\n"
				"AGAIN:	add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %r1; @%p1 bra AGAIN;\n" /* lane by lane */
				"	setp.eq.u32 %p2, %r1, 31; @%p2 bra SET;\n"
				"	{ .param .b64 x; st.param.b64 [x], %rd1; call await, (x); }\n"
				"	bra END;\n"
				"SET:	st.volatile.global.u32 [%rd1], 1;\n"
				"END:	atom.global.add.u32 %r4, [%rd1+4], 1;\n" TAIL HEAD(
					"table") "ts:	.branchtargets WAIT, END;\n"
						 "	setp.eq.u32 %p1, %r1, 5; @%p1 bra SET;\n"
						 "WAIT:	ld.volatile.global.u32 %r2, [%rd1]; brx.idx %r2, ts;\n"
						 "SET:	st.volatile.global.u32 [%rd1], 1;\n"
						 "END:	atom.global.add.u32 %r4, [%rd1+4], 1;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "call", 32);
	assert_int_equal(r.v[1], 32);
	r.v[0] = r.v[1] = 0;
	run_ok(&r, "table", 32);
	assert_int_equal(r.v[1], 32);
	bench_done(&r.b);
}

/* Lanes 16 and up wait for what lane 0 writes only after they have been seen waiting. */
static void test_producer_in_warp(void **state)
{
	static const char ptx[] = HEAD("k") "	setp.lt.u32 %p1, %r1, 16;\n"
					    "	@%p1 bra PRODUCE;\n"
					    "WAIT:\n"
					    "	atom.global.add.u32 %r5, [%rd1+4], 1;\n"
					    "	ld.volatile.global.u32 %r2, [%rd1];\n"
					    "	setp.eq.u32 %p2, %r2, 0;\n"
					    "	@%p2 bra WAIT;\n"
					    "	bra END;\n"
					    "PRODUCE:\n"
					    "	ld.volatile.global.u32 %r3, [%rd1+4];\n"
					    "	setp.lt.u32 %p3, %r3, 64;\n"
					    "	@%p3 bra PRODUCE;\n"
					    "	st.volatile.global.u32 [%rd1], 1;\n"
					    "END:\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "k", 32);
	assert_int_equal(r.v[0], 1);
	bench_done(&r.b);
}

static void test_barriers(void **state)
{
	static const char ptx[] =
		".shared .align 4 .u32 s[256];\n" HEAD("reverse") /* some threads left before */
		"	setp.ge.u32 %p1, %r1, 200;\n"
		"	@%p1 bra OUT;\n"
		"	shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2;\n"
		"	st.shared.u32 [%r4], %r1;\n"
		"	barrier.sync 1;\n"
		"	sub.u32 %r5, 199, %r1; shl.b32 %r5, %r5, 2; add.u32 %r5, %r3, %r5;\n"
		"	ld.shared.u32 %r6, [%r5];\n"
		"	st.global.u32 [%rd3], %r6;\n"
		"OUT:\n" TAIL HEAD(
			"red") "	and.b32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 0;\n"
			       "	bar.red.popc.u32 %r3, 0, %p1;\n"
			       "	setp.lt.u32 %p2, %r1, 1000;\n"
			       "	bar.red.and.pred %p3, 2, %p2;\n"
			       "	bar.red.or.pred %p4, 3, 96, !%p2;\n"
			       "	selp.u32 %r4, 1000, 0, %p3; selp.u32 %r5, 5000, 0, %p4;\n"
			       "	add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; st.global.u32 [%rd3], %r3;\n" TAIL
				       HEAD("pair") /* warp 0 produces for warp 1 over named barriers, ten times */
		"	mov.u32 %r9, 0; setp.ge.u32 %p1, %r1, 32; mov.u32 %r8, s; mov.u32 %r7, 0;\n"
		"	@%p1 bra CONSUME;\n"
		"P:	bar.sync 2, 64;\n"
		"	mul.lo.u32 %r2, %r9, 7; st.shared.u32 [%r8], %r2;\n"
		"	bar.arrive 1, 64;\n"
		"	add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 10; @%p2 bra P;\n"
		"	bra OUT;\n"
		"CONSUME:\n"
		"C:	bar.arrive 2, 64;\n"
		"	bar.sync 1, 64;\n"
		"	ld.shared.u32 %r3, [%r8]; add.u32 %r7, %r7, %r3;\n"
		"	add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 10; @%p2 bra C;\n"
		"OUT:	st.global.u32 [%rd3], %r7;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "reverse", 256);
	for (uint32_t t = 0; t < 200; t++)
		assert_int_equal(r.v[t], 199 - t);
	run_ok(&r, "red", 96);
	for (uint32_t t = 0; t < 96; t++)
		assert_int_equal(r.v[t], 1024);
	run_ok(&r, "pair", 64);
	assert_int_equal(r.v[0], 0);
	assert_int_equal(r.v[40], 7 * 45);
	bench_done(&r.b);
}

/* A barrier that can never open hangs its grid, and only costs looks now and then. */
static void test_hang(void **state)
{
	static const char ptx[] =
		HEAD("k") "	setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 0, 64;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	r.b.max_runs = 5;
	assert_int_equal(bench_launch(&r.b, "k", 1, 32, 0, &r.p), AQ_OK);
	assert_true(r.b.hung);
	assert_true(r.b.n_sleeps >= 4);
	bench_done(&r.b);
}

static void test_vote(void **state)
{
	static const char ptx[] = HEAD(
		"k") "	and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0;\n"
		     "	vote.sync.ballot.b32 %r3, %p1, 0xffffffff;\n"
		     "	vote.sync.all.pred %p2, %p1, -1; vote.sync.any.pred %p3, %p1, -1;\n"
		     "	vote.sync.uni.pred %p4, %p1, -1; vote.sync.all.pred %p5, !%p1, 0xaaaaaaaa;\n"
		     "	selp.u32 %r4, 1, 0, %p2; selp.u32 %r5, 2, 0, %p3; selp.u32 %r6, 4, 0, %p4;\n"
		     "	add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6;\n"
		     "	st.global.u32 [%rd3], %r3;\n"
		     "	setp.lt.u32 %p6, %r1, 8;\n"
		     "	@%p6 bra LOW;\n"
		     "	bra END;\n"
		     "LOW:	vote.ballot.b32 %r7, %p1; st.global.u32 [%rd3+128], %r7;\n"
		     "END:\n" TAIL HEAD("split") /* lanes come to one vote at different times */
		"	setp.lt.u32 %p1, %r1, 11; mov.u32 %r4, 0;\n"
		"	@!%p1 bra GO;\n"
		"SLOW:	add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 50; @%p3 bra SLOW;\n"
		"	nanosleep.u32 1000;\n"
		"GO:	vote.sync.ballot.b32 %r3, %p1, -1;\n"
		"	st.global.u32 [%rd3], %r3;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "k", 32);
	for (uint32_t t = 0; t < 32; t++)
		assert_int_equal(r.v[t], 0x55555555 + 2);
	for (uint32_t t = 0; t < 8; t++)
		assert_int_equal(r.v[32 + t], 0x55);
	run_ok(&r, "split", 32);
	for (uint32_t t = 0; t < 32; t++)
		assert_int_equal(r.v[t], 0x7ff);
	bench_done(&r.b);
}

static void test_shfl(void **state)
{
	static const char ptx[] = HEAD(
		"sum") "	mov.u32 %r2, %r1;\n"
		       "	shfl.sync.down.b32 %r3, %r2, 16, 31, -1; add.u32 %r2, %r2, %r3;\n"
		       "	shfl.sync.down.b32 %r3, %r2, 8, 31, -1; add.u32 %r2, %r2, %r3;\n"
		       "	shfl.sync.down.b32 %r3, %r2, 4, 31, -1; add.u32 %r2, %r2, %r3;\n"
		       "	shfl.sync.down.b32 %r3, %r2, 2, 31, -1; add.u32 %r2, %r2, %r3;\n"
		       "	shfl.sync.down.b32 %r3, %r2, 1, 31, -1; add.u32 %r2, %r2, %r3;\n"
		       "	shfl.sync.idx.b32 %r2, %r2, 0, 31, -1;\n"
		       "	st.global.u32 [%rd3], %r2;\n" TAIL HEAD("modes") /* segments of 8 */
		"	shfl.sync.up.b32 %r2|%p1, %r1, 3, 0x1800, -1;\n"
		"	selp.u32 %r3, 100, 0, %p1; add.u32 %r2, %r2, %r3; st.global.u32 [%rd3], %r2;\n"
		"	shfl.sync.down.b32 %r2|%p1, %r1, 3, 0x181f, -1;\n"
		"	selp.u32 %r3, 100, 0, %p1; add.u32 %r2, %r2, %r3; st.global.u32 [%rd3+128], %r2;\n"
		"	shfl.sync.bfly.b32 %r2|%p1, %r1, 5, 0x181f, -1;\n"
		"	selp.u32 %r3, 100, 0, %p1; add.u32 %r2, %r2, %r3; st.global.u32 [%rd3+256], %r2;\n"
		"	shfl.idx.b32 %r2|%p1, %r1, 6, 0x181f;\n"
		"	selp.u32 %r3, 100, 0, %p1; add.u32 %r2, %r2, %r3; st.global.u32 [%rd3+384], %r2;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "sum", 32);
	for (uint32_t t = 0; t < 32; t++)
		assert_int_equal(r.v[t], 31 * 16);
	run_ok(&r, "modes", 32);
	for (uint32_t t = 0; t < 32; t++) {
		assert_int_equal(r.v[t], t % 8 >= 3 ? t - 3 + 100 : t);
		assert_int_equal(r.v[32 + t], t % 8 < 5 ? t + 3 + 100 : t);
		assert_int_equal(r.v[64 + t], (t ^ 5) + 100);
		assert_int_equal(r.v[96 + t], (t & ~7u) + 6 + 100);
	}
	bench_done(&r.b);
}

static void test_match_redux(void **state)
{
	static const char ptx[] = HEAD(
		"k") "	and.b32 %r2, %r1, 3; match.any.sync.b32 %r3, %r2, -1; st.global.u32 [%rd3], %r3;\n"
		     "	match.all.sync.b32 %r4|%p1, %r2, %r3;\n" /* each class for itself */
		     "	selp.u32 %r5, 1, 0, %p1; xor.b32 %r4, %r4, %r3; shl.b32 %r4, %r4, 1; or.b32 %r5, %r5, %r4;\n"
		     "	st.global.u32 [%rd3+128], %r5;\n"
		     "	redux.sync.add.u32 %r6, %r1, %r3; st.global.u32 [%rd3+256], %r6;\n"
		     "	sub.u32 %r7, 5, %r1; redux.sync.min.s32 %r8, %r7, -1; st.global.u32 [%rd3+384], %r8;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "k", 32);
	for (uint32_t t = 0; t < 32; t++) {
		assert_int_equal(r.v[t], 0x11111111u << (t & 3));
		assert_int_equal(r.v[32 + t], 1);
		assert_int_equal(r.v[64 + t], 8 * (t & 3) + 112);
		assert_int_equal((int32_t)r.v[96 + t], 5 - 31);
	}
	bench_done(&r.b);
}

/* A warp's barrier is one place for lanes that stand at two. */
static void test_warp_barrier(void **state)
{
	static const char ptx[] =
		HEAD("k") "	setp.lt.u32 %p1, %r1, 16;\n"
			  "	@%p1 bra LOW;\n"
			  "	st.volatile.global.u32 [%rd3], 5;\n"
			  "	bar.warp.sync -1;\n"
			  "	bra END;\n"
			  "LOW:	bar.warp.sync 0xffffffff;\n"
			  "	ld.volatile.global.u32 %r2, [%rd3+64]; st.global.u32 [%rd3], %r2;\n"
			  "END:\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "k", 32);
	for (uint32_t t = 0; t < 32; t++)
		assert_int_equal(r.v[t], 5);
	bench_done(&r.b);
}

static void test_exit_inside(void **state)
{
	static const char ptx[] =
		".func leave(.param .b32 a) { .reg .b32 %r<3>; .reg .pred %p; ld.param.u32 %r1, [a];\n"
		"	setp.lt.u32 %p, %r1, 7; @%p exit; ret; }\n" HEAD(
			"k") "	st.global.u32 [%rd3], 1; { .param .b32 a; st.param.b32 [a], %r1; call leave, (a); }\n"
			     "	vote.sync.ballot.b32 %r2, 1, -1; st.global.u32 [%rd3], %r2;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "k", 32);
	for (uint32_t t = 0; t < 32; t++)
		assert_int_equal(r.v[t], t < 7 ? 1 : 0xffffff80);
	bench_done(&r.b);
}

static void test_specials(void **state)
{
	static const char ptx[] =
		".visible .entry k(.param .u64 p)\n{\n"
		"	.reg .b32 %r<40>; .reg .b64 %rd<9>;\n"
		"	ld.param.u64 %rd1, [p];\n"
		"	mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;\n"
		"	mad.lo.u32 %r4, %r3, %ntid.y, %r2; mad.lo.u32 %r4, %r4, %ntid.x, %r1;\n"
		"	mad.lo.u32 %r5, %ctaid.z, %nctaid.y, %ctaid.y; mad.lo.u32 %r5, %r5, %nctaid.x, %ctaid.x;\n"
		"	mad.lo.u32 %r6, %r5, 24, %r4; mul.wide.u32 %rd2, %r6, 16; add.u64 %rd3, %rd1, %rd2;\n"
		"	mov.u64 %rd4, %gridid; cvt.u32.u64 %r7, %rd4;\n"
		"	mov.u32 %r8, %laneid; mov.u32 %r9, %lanemask_lt;\n"
		"	st.global.v4.u32 [%rd3], {%r6, %r7, %r8, %r9};\n"
		"	ret;\n}\n" HEAD(
			"clock") "	mov.u64 %rd4, %globaltimer; mov.u64 %rd6, %clock64; mov.u32 %r2, %clock;\n"
				 "	nanosleep.u32 200000;\n"
				 "	mov.u64 %rd5, %globaltimer; sub.u64 %rd5, %rd5, %rd4; cvt.u32.u64 %r3, %rd5;\n"
				 "	mov.u64 %rd7, %clock64; sub.u64 %rd7, %rd7, %rd6; cvt.u32.u64 %r4, %rd7;\n"
				 "	st.global.u32 [%rd1], %r3; st.global.u32 [%rd1+4], %r4;\n" TAIL;
	const uint32_t grid[3] = { 2, 3, 2 }, block[3] = { 4, 3, 2 };
	struct run r;

	(void)state;
	run_init(&r, ptx);
	assert_int_equal(bench_launch3(&r.b, "k", grid, block, 0, &r.p), AQ_OK);
	for (uint32_t t = 0; t < 12 * 24; t++) {
		assert_int_equal(r.v[4 * t], t);
		assert_int_equal(r.v[4 * t + 1], 77);
		assert_int_equal(r.v[4 * t + 2], t % 24);
		assert_int_equal(r.v[4 * t + 3], (1u << t % 24) - 1);
	}
	run_ok(&r, "clock", 32);
	assert_in_range(r.v[0], 200000, 2000000000);
	assert_in_range(r.v[1], 200000, 2000000000);
	bench_done(&r.b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_call),
		cmocka_unit_test(test_recursion),
		cmocka_unit_test(test_indirect_call),
		cmocka_unit_test(test_brx),
		cmocka_unit_test(test_spin_lock),
		cmocka_unit_test(test_waiting_elsewhere),
		cmocka_unit_test(test_producer_in_warp),
		cmocka_unit_test(test_barriers),
		cmocka_unit_test(test_hang),
		cmocka_unit_test(test_vote),
		cmocka_unit_test(test_shfl),
		cmocka_unit_test(test_match_redux),
		cmocka_unit_test(test_warp_barrier),
		cmocka_unit_test(test_exit_inside),
		cmocka_unit_test(test_specials),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
