/* SPDX-License-Identifier: Apache-2.0 */
/* State spaces, widths, atomics, symbols, faults and what is refused. */
#include "exec-harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD(name)                                                                    \
	".visible .entry " name "(.param .u64 p)\n{\n"                                \
	"	.reg .pred %p<16>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>;\n" \
	"	.reg .f32 %f<8>; .reg .f64 %d<8>;\n"                                        \
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
}

/* Each width, signed and not, into registers of its own width and wider ones; whole warps and scattered lanes. */
static void test_widths(void **state)
{
	static const char ptx[] = HEAD(
		"k") "	setp.lt.u32 %p1, %r1, 40; @!%p1 bra END;\n"
		     "	cvt.u64.u32 %rd4, %r1; add.u64 %rd5, %rd1, %rd4; mul.wide.u32 %rd6, %r1, 64;\n"
		     "	add.u64 %rd6, %rd6, %rd1; add.u64 %rd6, %rd6, 4096;\n"
		     "	ld.global.u8 %r2, [%rd5]; st.global.u32 [%rd6], %r2;\n"
		     "	ld.global.s8 %r2, [%rd5]; st.global.u32 [%rd6+4], %r2;\n"
		     "	ld.global.s8 %rd7, [%rd5]; st.global.u64 [%rd6+8], %rd7;\n"
		     "	ld.global.u8 %h1, [%rd5]; cvt.u32.u16 %r2, %h1; st.global.u32 [%rd6+16], %r2;\n"
		     "	ld.global.s8 %h1, [%rd5]; cvt.s32.s16 %r2, %h1; st.global.u32 [%rd6+20], %r2;\n"
		     "	add.u64 %rd5, %rd5, %rd4;\n" /* 2 * tid */
		     "	ld.global.u16 %r2, [%rd5]; st.global.u32 [%rd6+24], %r2;\n"
		     "	ld.global.s16 %rd7, [%rd5]; st.global.u64 [%rd6+32], %rd7;\n"
		     "	ld.global.s32 %rd7, [%rd3]; st.global.u64 [%rd6+40], %rd7;\n"
		     "	ld.global.u32 %rd7, [%rd3]; st.global.u64 [%rd6+48], %rd7;\n"
		     "	ld.global.u8 %r2, [%rd1]; st.global.u8 [%rd6+56], %r2; st.global.u16 [%rd6+58], %rd7;\n"
		     "END:\n" TAIL;
	struct run r;
	const uint8_t *in;

	(void)state;
	run_init(&r, ptx);
	in = (const uint8_t *)r.v;
	for (int k = 0; k < 4096; k++)
		((uint8_t *)r.v)[k] = (uint8_t)(k * 37 + 200);
	run_ok(&r, "k", 64);
	for (int t = 0; t < 40; t++) {
		const uint8_t *out = in + 4096 + 64 * t;
		uint16_t h;
		uint32_t w, u[8];
		int64_t q;

		memcpy(u, out, 32);
		memcpy(&h, in + 2 * t, 2);
		memcpy(&w, in + 4 * t, 4);
		assert_int_equal(u[0], in[t]);
		assert_int_equal((int32_t)u[1], (int8_t)in[t]);
		memcpy(&q, out + 8, 8);
		assert_int_equal(q, (int8_t)in[t]);
		assert_int_equal(u[4], in[t]);
		assert_int_equal((int32_t)u[5], (int8_t)in[t]);
		assert_int_equal(u[6], h);
		memcpy(&q, out + 32, 8);
		assert_int_equal(q, (int16_t)h);
		memcpy(&q, out + 40, 8);
		assert_int_equal(q, (int32_t)w);
		memcpy(&q, out + 48, 8);
		assert_int_equal(q, w);
		assert_int_equal(out[56], in[0]);
		assert_int_equal(out[58] | out[59] << 8, w & 0xffff);
	}
	bench_done(&r.b);
}

static void test_vectors(void **state)
{
	static const char ptx[] = HEAD(
		"k") "	.reg .v4 .b32 %v;\n"
		     "	mul.wide.u32 %rd4, %r1, 16; add.u64 %rd5, %rd1, %rd4;\n"
		     "	ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd5];\n"
		     "	st.global.v4.u32 [%rd5+512], {%r5, %r4, 7, %r2};\n"
		     "	ld.global.v2.u64 {%rd6, _}, [%rd5]; st.global.u64 [%rd5+1024], %rd6;\n"
		     "	mov.b64 {%r6, %r7}, %rd6; st.global.v2.b32 [%rd5+1032], {%r7, %r6};\n"
		     "	mov.b32 {%h1, %h2}, %r2; mov.b32 %r8, {%h2, %h1}; mov.b64 %rd7, {%r8, %r3};\n"
		     "	st.global.b64 [%rd5+1536], %rd7;\n"
		     "	ld.global.v4.u8 {%r9, %r10, %r11, %r12}, [%rd3]; mad.lo.u32 %r9, %r9, 256, %r12;\n"
		     "	st.global.u32 [%rd5+1544], %r9; ld.global.v4.b32 %v, [%rd5]; st.global.b32 [%rd5+1548], %v.z;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	for (uint32_t k = 0; k < 128; k++)
		r.v[k] = k * 0x01020304 + 5;
	run_ok(&r, "k", 32);
	for (uint32_t t = 0; t < 32; t++) {
		const uint32_t *in = r.v + 4 * t, *out = r.v + 128 + 4 * t;
		const uint8_t *bytes = (const uint8_t *)(r.v + t);

		assert_int_equal(out[0], in[3]);
		assert_int_equal(out[1], in[2]);
		assert_int_equal(out[2], 7);
		assert_int_equal(out[3], in[0]);
		out += 128;
		assert_int_equal(out[0], in[0]);
		assert_int_equal(out[1], in[1]);
		assert_int_equal(out[2], in[1]);
		assert_int_equal(out[3], in[0]);
		out += 128;
		assert_int_equal(out[0], in[0] << 16 | in[0] >> 16);
		assert_int_equal(out[1], in[1]);
		assert_int_equal(out[2], bytes[0] * 256 + bytes[3]);
		assert_int_equal(out[3], in[2]);
	}
	bench_done(&r.b);
}

/* One pointer at a time into global, shared, local and constant memory. */
static void test_generic(void **state)
{
	static const char ptx[] =
		".const .align 4 .u32 c[4] = { 11, 22, 33, 44 };\n"
		".global .align 4 .u32 g[4] = { 1, 2, 3, 4 };\n"
		".shared .align 4 .u32 s[32];\n" HEAD(
			"k") "	.local .align 4 .b8 l[16];\n"
			     "	mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2; add.u32 %r4, %r1, 500; st.shared.u32 [%r3], %r4;\n"
			     "	mov.u64 %rd4, l; add.u32 %r5, %r1, 900; st.local.u32 [%rd4+8], %r5;\n"
			     "	cvta.local.u64 %rd5, %rd4; add.u64 %rd5, %rd5, 8;\n"
			     "	cvt.u64.u32 %rd6, %r3; cvta.shared.u64 %rd7, %rd6;\n"
			     "	mov.u64 %rd8, c; cvta.const.u64 %rd8, %rd8; add.u64 %rd8, %rd8, 4;\n"
			     "	mov.u64 %rd9, g; cvta.global.u64 %rd9, %rd9;\n"
			     "	and.b32 %r6, %r1, 3;\n"
			     "	setp.eq.u32 %p1, %r6, 0; selp.b64 %rd10, %rd5, %rd7, %p1;\n"
			     "	setp.eq.u32 %p2, %r6, 2; selp.b64 %rd10, %rd8, %rd10, %p2;\n"
			     "	setp.eq.u32 %p3, %r6, 3; selp.b64 %rd10, %rd9, %rd10, %p3;\n"
			     "	ld.u32 %r7, [%rd10]; st.u32 [%rd3], %r7;\n"
			     "	isspacep.local %p4, %rd10; isspacep.shared %p5, %rd10; isspacep.const %p6, %rd10;\n"
			     "	isspacep.global %p7, %rd10;\n"
			     "	selp.u32 %r8, 1, 0, %p4; selp.u32 %r9, 2, 0, %p5; selp.u32 %r10, 4, 0, %p6;\n"
			     "	selp.u32 %r11, 8, 0, %p7; add.u32 %r8, %r8, %r9; add.u32 %r10, %r10, %r11; add.u32 %r8, %r8, %r10;\n"
			     "	st.global.u32 [%rd3+128], %r8;\n"
			     "	setp.lt.u32 %p8, %r6, 2; @%p8 st.u32 [%rd10], %r1;\n" /* shared and local at once */
			     "	ld.local.u32 %r12, [%rd4+8]; ld.shared.u32 %r13, [%r3]; add.u32 %r12, %r12, %r13;\n"
			     "	st.global.u32 [%rd3+256], %r12;\n"
			     "	cvta.to.shared.u64 %rd11, %rd7; sub.u64 %rd11, %rd11, %rd6; st.global.u32 [%rd3+384], %rd11;\n"
			     "	@%p5 atom.add.u32 %r14, [%rd10], 5; @%p5 ld.shared.u32 %r15, [%r3]; @%p5 st.global.u32 [%rd3+512], %r15;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "k", 32);
	for (uint32_t t = 0; t < 32; t++) {
		static const uint32_t spaces[4] = { 1, 2, 4, 8 };
		const uint32_t want[4] = { t + 900, t + 500, 22, 1 };

		assert_int_equal(r.v[t], want[t % 4]);
		assert_int_equal(r.v[32 + t], spaces[t % 4]);
		assert_int_equal(r.v[64 + t],
				 (t % 4 == 0 ? t : t + 900) + (t % 4 == 1 ? t : t + 500));
		assert_int_equal(r.v[96 + t], 0);
		if (t % 4 == 1)
			assert_int_equal(r.v[128 + t], t + 5);
	}
	bench_done(&r.b);
}

static void test_shared_layout(void **state)
{
	static const char ptx[] =
		".extern .shared .align 16 .b8 dyn[];\n"
		".shared .align 4 .u32 own_a[3];\n"
		".shared .align 8 .u64 common[2];\n"
		".func put(.param .b32 a) { .reg .b32 %r<9>; .reg .b64 %rd<4>; ld.param.u32 %r1, [a];\n"
		"	cvt.u64.u32 %rd1, %r1; st.shared.u64 [common+8], %rd1; mov.u32 %r2, dyn;\n"
		"	st.shared.u32 [%r2+4], %r1; ret; }\n" HEAD(
			"direct") "	mov.u32 %r2, own_a; st.shared.u32 [own_a+8], 5; ld.shared.u32 %r3, [%r2+8];\n"
				  "	mov.u32 %r4, dyn; st.shared.u32 [dyn], %r1; ld.shared.u32 %r5, [%r4];\n"
				  "	st.global.v2.u32 [%rd1], {%r3, %r4}; st.global.u32 [%rd1+8], %r5;\n"
				  "	mov.u32 %r6, %dynamic_smem_size; mov.u32 %r7, %total_smem_size;\n"
				  "	st.global.v2.u32 [%rd1+16], {%r6, %r7};\n" TAIL HEAD(
					  "through") "	st.shared.u32 [own_a+8], 9; { .param .b32 x; st.param.b32 [x], 321; call put, (x); }\n"
						     "	mov.u32 %r4, dyn; ld.shared.u32 %r5, [%r4+4]; ld.shared.u64 %rd5, [common+8];\n"
						     "	ld.shared.u32 %r6, [own_a+8]; st.global.v2.u32 [%rd1], {%r5, %r6}; st.global.u64 [%rd1+8], %rd5;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	assert_int_equal(bench_launch(&r.b, "direct", 1, 1, 64, &r.p), AQ_OK);
	assert_int_equal(r.v[0], 5);
	assert_int_equal(r.v[1], 16);
	assert_int_equal(r.v[2], 0);
	assert_int_equal(r.v[4], 64);
	assert_int_equal(r.v[5], 80);
	assert_int_equal(bench_launch(&r.b, "through", 1, 1, 64, &r.p), AQ_OK);
	assert_int_equal(r.v[0], 321);
	assert_int_equal(r.v[1], 9);
	assert_int_equal(r.v[2], 321);
	/* The launch brings less than the kernel reaches for. */
	assert_int_equal(bench_launch(&r.b, "direct", 1, 1, 0, &r.p), AQ_E_ILLEGAL_ADDRESS);
	assert_int_equal(bench_launch(&r.b, "direct", 1, 1, 300000, &r.p), AQ_E_LAUNCH_RESOURCES);
	bench_done(&r.b);
}

static void test_atomics(void **state)
{
	static const char ptx[] = ".shared .align 8 .u64 s[4];\n" HEAD(
		"k") "	atom.global.add.u32 %r2, [%rd1], 3;\n"
		     "	st.global.u32 [%rd3+1024], %r2;\n"
		     "	atom.global.max.s32 %r3, [%rd1+4], %r1; red.global.min.s32 [%rd1+8], -5;\n"
		     "	atom.global.inc.u32 %r4, [%rd1+12], 9; atom.global.dec.u32 %r4, [%rd1+16], 9;\n"
		     "	red.global.or.b32 [%rd1+20], %r1; red.global.and.b32 [%rd1+24], 0xf0; red.global.xor.b32 [%rd1+28], %r1;\n"
		     "	cvt.rn.f32.u32 %f1, %r1; red.global.add.f32 [%rd1+32], %f1;\n"
		     "	cvt.rn.f64.u32 %d1, %r1; atom.global.add.f64 %d2, [%rd1+40], %d1;\n"
		     "	cvt.u64.u32 %rd4, %r1; atom.global.max.u64 %rd5, [%rd1+48], %rd4;\n"
		     "	atom.global.add.u64 %rd5, [%rd1+56], %rd4;\n"
		     "	setp.eq.u32 %p1, %r1, 0; mov.u32 %r8, s; @%p1 st.shared.u32 [%r8], 0; bar.sync 0;\n"
		     "	atom.shared.add.u32 %r9, [%r8], 1; bar.sync 0; ld.shared.u32 %r10, [%r8]; st.global.u32 [%rd1+64], %r10;\n"
		     "	atom.global.exch.b64 %rd6, [%rd1+72], %rd4; atom.global.cas.b64 %rd6, [%rd1+80], 0, 77;\n"
		     "	atom.acq_rel.gpu.global.add.u32 _, [%rd1+88], 1; atom.global.cas.b16 %h1, [%rd1+98], 0, 5;\n" TAIL;
	struct run r;
	bool seen[256] = { false };
	double d;
	float f;
	uint64_t q;

	(void)state;
	run_init(&r, ptx);
	r.v[6] = 0xff;
	r.v[24] = 0xabcd;
	assert_int_equal(bench_launch(&r.b, "k", 1, 256, 0, &r.p), AQ_OK);
	for (uint32_t t = 0; t < 256; t++) {
		assert_int_equal(r.v[256 + t] % 3, 0);
		assert_false(seen[r.v[256 + t] / 3]);
		seen[r.v[256 + t] / 3] = true;
	}
	assert_int_equal(r.v[0], 768);
	assert_int_equal(r.v[1], 255);
	assert_int_equal((int32_t)r.v[2], -5);
	assert_int_equal(r.v[3], 256 % 10);
	assert_int_equal(r.v[4], (10 - 256 % 10) % 10);
	assert_int_equal(r.v[5], 255);
	assert_int_equal(r.v[6], 0xf0);
	assert_int_equal(r.v[7], 0);
	memcpy(&f, r.v + 8, 4);
	assert_true(f == 255 * 128);
	memcpy(&d, r.v + 10, 8);
	assert_true(d == 255 * 128);
	memcpy(&q, r.v + 12, 8);
	assert_int_equal(q, 255);
	memcpy(&q, r.v + 14, 8);
	assert_int_equal(q, 255 * 128);
	assert_int_equal(r.v[16], 256);
	memcpy(&q, r.v + 18, 8);
	assert_in_range(q, 0, 255);
	assert_int_equal(r.v[20], 77);
	assert_int_equal(r.v[22], 256);
	assert_int_equal(r.v[24], 0x0005abcd);
	bench_done(&r.b);
}

/* Local arrays indexed by a lane's own number, also in a function below, and parameters by address. */
static void test_local(void **state)
{
	static const char ptx[] =
		".func (.param .b32 ret) sum(.param .align 4 .b8 a[16], .param .b32 n)\n"
		"{\n"
		"	.local .align 8 .b8 pad[40]; .reg .b64 %rd<6>; .reg .b32 %r<9>; .reg .pred %p;\n"
		"	mov.b64 %rd1, a; ld.param.u32 %r1, [n]; and.b32 %r1, %r1, 3; mul.wide.u32 %rd2, %r1, 4;\n"
		"	add.u64 %rd3, %rd1, %rd2; ld.local.u32 %r2, [%rd3];\n"
		"	mov.u64 %rd4, pad; st.local.u64 [%rd4+32], %rd2; ld.param.u32 %r3, [a+4];\n"
		"	ld.local.u64 %rd5, [pad+32]; cvt.u32.u64 %r4, %rd5;\n"
		"	add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; st.param.b32 [ret], %r2;\n"
		"	ret;\n"
		"}\n" HEAD(
			"k") "	.local .align 8 .b8 l[64]; mov.u64 %rd4, l; mov.u32 %r2, 0;\n"
			     "L:	mul.wide.u32 %rd5, %r2, 4; add.u64 %rd5, %rd5, %rd4; add.u32 %r3, %r1, %r2;\n"
			     "	st.local.u32 [%rd5], %r3; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 16; @%p1 bra L;\n"
			     "	and.b32 %r4, %r1, 15; mul.wide.u32 %rd6, %r4, 4; add.u64 %rd6, %rd6, %rd4; ld.local.u32 %r5, [%rd6];\n"
			     "	ld.local.u64 %rd7, [l+8]; cvt.u32.u64 %r6, %rd7; add.u32 %r5, %r5, %r6;\n"
			     "	{ .param .align 4 .b8 a[16]; .param .b32 n; .param .b32 x; st.param.b32 [a], 1000;\n"
			     "	st.param.b32 [a+4], 2000; st.param.v2.b32 [a+8], {3000, 4000}; st.param.b32 [n], %r1;\n"
			     "	call (x), sum, (a, n); ld.param.b32 %r7, [x]; }\n"
			     "	add.u32 %r5, %r5, %r7; st.global.u32 [%rd3], %r5; ld.local.u8 %r8, [l+61]; st.global.u32 [%rd3+256], %r8;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "k", 64);
	for (uint32_t t = 0; t < 64; t++) {
		assert_int_equal(r.v[t],
				 t + t % 16 + t + 2 + (t % 4 + 1) * 1000 + 2000 + t % 4 * 4);
		assert_int_equal(r.v[64 + t], 0);
	}
	bench_done(&r.b);
}

static void test_symbols(void **state)
{
	static const char ptx[] =
		".visible .global .align 8 .u64 where[3] = { target+8, generic(other), 0 };\n"
		".visible .global .align 4 .u32 target[4] = { 5, 6, 7, 8 };\n"
		".global .align 4 .b8 other[4] = { 1, 2, 3, 4 };\n"
		".visible .const .align 4 .f32 half = 0.5;\n"
		".visible .global .align 4 .b8 zeros[100];\n" HEAD(
			"k") "	mov.u64 %rd4, where; ld.global.u64 %rd5, [%rd4]; ld.global.u32 %r2, [%rd5];\n"
			     "	ld.global.u64 %rd6, [where+8]; ld.u32 %r3, [%rd6]; ld.const.f32 %f1, [half];\n"
			     "	ld.global.u32 %r4, [target+4]; st.global.v4.b32 [%rd1], {%r2, %r3, %f1, %r4};\n"
			     "	mov.u64 %rd7, target+12; ld.global.u32 %r5, [%rd7]; st.global.u32 [zeros+96], %r5;\n" TAIL;
	struct run r;
	uint32_t *zeros;

	(void)state;
	run_init(&r, ptx);
	run_ok(&r, "k", 1);
	assert_int_equal(r.v[0], 7);
	assert_int_equal(r.v[1], 0x04030201);
	assert_int_equal(r.v[2], 0x3f000000);
	assert_int_equal(r.v[3], 6);
	zeros = bench_host(&r.b, bench_symbol(&r.b, "zeros"));
	assert_int_equal(zeros[24], 8);
	bench_done(&r.b);
}

static void test_copy_async(void **state)
{
	static const char ptx[] = ".shared .align 16 .b8 s[1024];\n" HEAD(
		"k") "	mul.wide.u32 %rd4, %r1, 16; add.u64 %rd5, %rd1, %rd4; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 16, %r2;\n"
		     "	cp.async.cg.shared.global [%r3], [%rd5], 16;\n"
		     "	cp.async.ca.shared.global [%r3+512], [%rd5+4], 4, %r1;\n"
		     "	cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all; bar.warp.sync -1;\n"
		     "	ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3]; st.global.v4.u32 [%rd5+1024], {%r7, %r6, %r5, %r4};\n"
		     "	ld.shared.u32 %r8, [%r3+512]; st.global.u32 [%rd3+2048], %r8;\n" TAIL;
	struct run r;

	(void)state;
	run_init(&r, ptx);
	for (uint32_t k = 0; k < 128; k++)
		r.v[k] = 0x01010101 * (k + 1);
	run_ok(&r, "k", 32);
	for (uint32_t t = 0; t < 32; t++) {
		uint32_t have = t < 4 ? t : 4, word = r.v[4 * t + 1];

		for (uint32_t k = 0; k < 4; k++)
			assert_int_equal(r.v[256 + 4 * t + k], r.v[4 * t + 3 - k]);
		assert_int_equal(r.v[512 + t], have == 4 ? word : word & ((1u << 8 * have) - 1));
	}
	bench_done(&r.b);
}

struct fault_case {
	const char *insns;
	enum aq_status fault;
	uint64_t va; /* 0: not looked at */
};

static void test_faults(void **state)
{
	static const struct fault_case cases[] = {
		{ "ld.global.u32 %r2, [0];", AQ_E_ILLEGAL_ADDRESS, 0 },
		{ "mov.u64 %rd4, 0xffffffffffffff00; ld.global.u32 %r2, [%rd4];",
		  AQ_E_ILLEGAL_ADDRESS, 0xffffffffffffff00 },
		{ "mov.u64 %rd4, 0xfffffffffffffffc; ld.global.u32 %r2, [%rd4];",
		  AQ_E_ILLEGAL_ADDRESS, 0xfffffffffffffffc },
		{ "mov.u64 %rd4, 0xfffffffffffffff0; ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd4];",
		  AQ_E_ILLEGAL_ADDRESS, 0xfffffffffffffff0 },
		{ "st.global.u32 [%rd1+0x10000000], %r1;", AQ_E_ILLEGAL_ADDRESS, 0 },
		{ "ld.global.u32 %r2, [%rd1+2];", AQ_E_MISALIGNED, 0 },
		{ "ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd1+8];", AQ_E_MISALIGNED, 0 },
		{ "atom.global.add.u32 %r2, [%rd1+1], 1;", AQ_E_MISALIGNED, 0 },
		{ "red.global.add.u32 [8], 1;", AQ_E_ILLEGAL_ADDRESS, 8 },
		{ "mov.u32 %r2, 1024; ld.shared.u32 %r3, [%r2];", AQ_E_ILLEGAL_ADDRESS, 0 },
		{ "mov.u32 %r2, 0xfffffffc; st.shared.u32 [%r2], %r3;", AQ_E_ILLEGAL_ADDRESS, 0 },
		{ "ld.shared.u32 %r3, [s+61];", AQ_E_MISALIGNED, 0 },
		{ "ld.shared.u64 %rd5, [s+64];", AQ_E_ILLEGAL_ADDRESS, 0 },
		{ "atom.shared.add.u32 %r3, [s+64], 1;", AQ_E_ILLEGAL_ADDRESS, 0 },
		{ "mov.u64 %rd4, 1000000; ld.local.u32 %r3, [%rd4];", AQ_E_ILLEGAL_ADDRESS, 0 },
		{ "mov.u64 %rd4, -4; st.local.u32 [%rd4], %r3;", AQ_E_ILLEGAL_ADDRESS, 0 },
		{ "mov.u64 %rd4, 8; ld.param.u32 %r3, [%rd4];", AQ_E_ILLEGAL_ADDRESS, 0 },
		{ "mov.u64 %rd4, p; ld.param.u32 %r3, [%rd4+6];", AQ_E_MISALIGNED, 0 },
		{ "mov.u64 %rd4, 0x0300000000000000; st.u32 [%rd4], %r1;", AQ_E_ILLEGAL_ADDRESS,
		  0 },
		{ "mov.u64 %rd4, 0x0200000000000000; atom.add.u32 %r2, [%rd4], 1;",
		  AQ_E_ADDRESS_SPACE, 0 },
		{ "mov.u64 %rd4, 0x7700000000000000; ld.u32 %r2, [%rd4];", AQ_E_ILLEGAL_ADDRESS,
		  0x7700000000000000 },
		{ "trap;", AQ_E_TRAP, 0 },
		{ "brkpt;", AQ_E_TRAP, 0 },
		{ "bar.sync 16;", AQ_E_ILLEGAL_INSN, 0 },
		{ "bar.sync 0, 33;", AQ_E_ILLEGAL_INSN, 0 },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		struct run r;
		char ptx[1024];

		(void)snprintf(ptx, sizeof(ptx), ".shared .align 8 .b8 s[64];\n%s%s\n%s", HEAD("k"),
			       cases[k].insns, TAIL);
		run_init(&r, ptx);
		if (bench_launch(&r.b, "k", 2, 64, 0, &r.p) != cases[k].fault)
			fail_msg("%s: fault %d", cases[k].insns, r.b.result.fault);
		/* Three lines stand before the test's own, then a line of the shared variable and the head's six. */
		assert_int_equal(r.b.result.fault_line, 11);
		if (cases[k].va)
			assert_true(r.b.result.fault_va == cases[k].va);
		bench_done(&r.b);
	}
}

/* What the text asks for and we do not have, or what is wrong with it, is said with line and instruction. */
static void test_refusals(void **state)
{
	static const struct {
		const char *insns, *reason;
	} cases[] = {
		{ "wmma.load.a.sync.row.m16n16k16.shared.f16 {%r1}, [%r2];", "is not supported" },
		{ "frobnicate.u32 %r1, %r2;", "instruction 'frobnicate.u32' is not supported" },
		{ "add.u32 %r1, %r2, %rd1;", "type .b64 where" },
		{ "add.u32 %rd1, %r2, %r1;", "destination of type .b64" },
		{ "add.u32 %r1, %r2;", "wrong number" },
		{ "add.u32 %r1, %r2, %p1;", "where" },
		{ "add.u32 _, %r2, 1;", "destination" },
		{ "ld.global.u32 %h1, [%rd1];", "too narrow" },
		{ "ld.global.foo.u32 %r1, [%rd1];", "modifier .foo" },
		{ "ld.global.u32 %r1, [s];", "another state space" },
		{ "st.const.u32 [%rd1], %r1;", "read-only" },
		{ "ld.global.v4.u64 {%rd1,%rd2,%rd3,%rd4}, [%rd1];", "is not supported" },
		{ "atom.global.add.f16x2 %r1, [%rd1], %r2;", "is not supported" },
		{ "atom.global.frob.u32 %r1, [%rd1], %r2;", "modifier .frob" },
		{ "call nowhere;", "unresolved extern function 'nowhere'" },
		{ "mov.u32 %r1, %pm0;", "special register %pm0" },
		{ "shfl.sync.idx.b64 %rd1, %rd2, 0, 31, -1;", "is not supported" },
		{ "setp.lt.u32 %p1|%p1, %r1, %r2;", "same destination twice" },
		{ "mov.b64 {%r1, %r1}, %rd1;", "same destination twice" },
		{ "@%r1 bra END; END:", "pred" },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		char ptx[1024], *log;

		(void)snprintf(ptx, sizeof(ptx),
			       ".extern .func nowhere;\n.shared .align 8 .b8 s[64];\n%s%s\n%s",
			       HEAD("k"), cases[k].insns, TAIL);
		log = bench_refusal(ptx);
		if (!strstr(log, cases[k].reason) || !strstr(log, "line 12"))
			fail_msg("%s: log is: %s", cases[k].insns, log);
		free(log);
	}
}

static void test_refused_modules(void **state)
{
	static const struct {
		const char *text, *reason;
	} cases[] = {
		{ ".extern .global .u32 elsewhere;\n" HEAD("k") TAIL,
		  "unresolved extern variable 'elsewhere'" },
		{ ".global .texref t;\n" HEAD("k") TAIL, "texture" },
		{ ".shared .align 4 .b8 big[300000];\n" HEAD("k") "mov.u32 %r2, big;\n" TAIL,
		  "shared memory" },
		{ HEAD("k") ".local .align 4 .b8 big[600000]; mov.u64 %rd4, big;\n" TAIL,
		  "local memory" },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		char *log = bench_refusal(cases[k].text);

		if (!strstr(log, cases[k].reason))
			fail_msg("log is: %s", log);
		free(log);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_widths),		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_generic),		cmocka_unit_test(test_shared_layout),
		cmocka_unit_test(test_atomics),		cmocka_unit_test(test_local),
		cmocka_unit_test(test_symbols),		cmocka_unit_test(test_copy_async),
		cmocka_unit_test(test_faults),		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_refused_modules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
