/* SPDX-License-Identifier: Apache-2.0 */
/* Running PTX: memory, control flow, barriers, faults. What single arithmetic instructions compute is tested with their handlers. */
#include "exec-harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_saxpy(void **state)
{
	static const char ptx[] =
		".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)\n"
		"{\n"
		"	.reg .pred %p<2>; .reg .f32 %f<5>; .reg .b32 %r<6>; .reg .b64 %rd<8>;\n"
		"	ld.param.u32 %r2, [n];\n"
		"	ld.param.f32 %f1, [a];\n"
		"	ld.param.u64 %rd1, [x];\n"
		"	ld.param.u64 %rd2, [y];\n"
		"	mov.u32 %r3, %ctaid.x;\n"
		"	mov.u32 %r4, %ntid.x;\n"
		"	mov.u32 %r5, %tid.x;\n"
		"	mad.lo.s32 %r1, %r3, %r4, %r5;\n"
		"	setp.ge.s32 %p1, %r1, %r2;\n"
		"	@%p1 bra $done;\n"
		"	cvta.to.global.u64 %rd3, %rd1;\n"
		"	mul.wide.s32 %rd4, %r1, 4;\n"
		"	add.s64 %rd5, %rd3, %rd4;\n"
		"	cvta.to.global.u64 %rd6, %rd2;\n"
		"	add.s64 %rd7, %rd6, %rd4;\n"
		"	ld.global.f32 %f2, [%rd5];\n"
		"	ld.global.f32 %f3, [%rd7];\n"
		"	fma.rn.f32 %f4, %f2, %f1, %f3;\n"
		"	st.global.f32 [%rd7], %f4;\n"
		"$done:\n"
		"	ret;\n"
		"}\n";
	enum {
		N = 10000
	};
	struct bench b;
	float *x, *y;

	(void)state;
	bench_init(&b, ptx);
	struct {
		uint32_t n;
		float a;
		uint64_t x, y;
	} p = { .n = N, .a = 2.5f, .x = bench_alloc(&b, N * 4), .y = bench_alloc(&b, N * 4) };

	x = bench_host(&b, p.x);
	y = bench_host(&b, p.y);
	for (int k = 0; k < N; k++) {
		x[k] = (float)k;
		y[k] = 1;
	}
	assert_int_equal(bench_launch(&b, "saxpy", (N + 255) / 256, 256, 0, &p), AQ_OK);
	for (int k = 0; k < N; k++)
		assert_true(y[k] == 2.5f * (float)k + 1);
	assert_in_range(b.insns, 19 * (N / 32), 22 * (N / 32 + 9));
	bench_done(&b);
}

/* out[i] = f(i) with nested ifs and a loop whose length depends on the lane. */
static void test_divergence(void **state)
{
	static const char ptx[] = ".visible .entry k(.param .u64 out)\n"
				  "{\n"
				  "	.reg .pred %p<5>; .reg .b32 %r<10>; .reg .b64 %rd<4>;\n"
				  "	ld.param.u64 %rd1, [out];\n"
				  "	mov.u32 %r1, %tid.x;\n"
				  "	mov.u32 %r2, 0;\n"
				  "	and.b32 %r3, %r1, 1;\n"
				  "	setp.eq.u32 %p1, %r3, 0;\n"
				  "	@%p1 bra EVEN;\n"
				  "	setp.lt.u32 %p2, %r1, 10;\n"
				  "	@%p2 bra SMALL;\n"
				  "	mov.u32 %r2, 1000;\n"
				  "	bra JOIN;\n"
				  "SMALL:\n"
				  "	mov.u32 %r2, 2000;\n"
				  "	bra JOIN;\n"
				  "EVEN:\n"
				  "	mov.u32 %r4, 0;\n"
				  "LOOP:\n"
				  "	setp.ge.u32 %p3, %r4, %r1;\n"
				  "	@%p3 bra JOIN;\n"
				  "	add.u32 %r2, %r2, %r4;\n"
				  "	add.u32 %r4, %r4, 1;\n"
				  "	bra LOOP;\n"
				  "JOIN:\n"
				  "	activemask.b32 %r5;\n"
				  "	mul.wide.u32 %rd2, %r1, 8;\n"
				  "	add.u64 %rd3, %rd1, %rd2;\n"
				  "	st.global.v2.u32 [%rd3], {%r2, %r5};\n"
				  "	ret;\n"
				  "}\n";
	struct bench b;
	uint64_t out;
	const uint32_t *v;

	(void)state;
	bench_init(&b, ptx);
	out = bench_alloc(&b, 128 * 8);
	v = bench_host(&b, out);
	assert_int_equal(bench_launch(&b, "k", 1, 100, 0, &out), AQ_OK);
	for (uint32_t t = 0; t < 100; t++) {
		uint32_t want = t % 2 ? t < 10 ? 2000 : 1000 : t ? t * (t - 1) / 2 : 0;

		assert_int_equal(v[2 * t], want);
		/* All came together again. */
		assert_int_equal(v[2 * t + 1], t < 96 ? 0xffffffff : 0xf);
	}
	bench_done(&b);
}

/* C = A * B, 64 x 64, tiles of 16 in static shared memory. */
static void test_tiled_matmul(void **state)
{
	static const char ptx[] =
		".visible .entry mm(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n"
		"{\n"
		"	.reg .pred %p<3>; .reg .b32 %r<30>; .reg .f32 %f<6>; .reg .b64 %rd<16>;\n"
		"	.shared .align 4 .b8 ta[1024];\n"
		"	.shared .align 4 .b8 tb[1024];\n"
		"	ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];\n"
		"	ld.param.u32 %r1, [n];\n"
		"	mov.u32 %r2, %tid.x; mov.u32 %r3, %tid.y;\n"
		"	mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y;\n"
		"	shl.b32 %r6, %r5, 4; add.u32 %r6, %r6, %r3;\n" /* row */
		"	shl.b32 %r7, %r4, 4; add.u32 %r7, %r7, %r2;\n" /* column */
		"	mov.f32 %f1, 0f00000000;\n"
		"	mov.u32 %r8, 0;\n"
		"	shl.b32 %r9, %r3, 4; add.u32 %r9, %r9, %r2; shl.b32 %r9, %r9, 2;\n"
		"	mov.u32 %r10, ta; mov.u32 %r11, tb;\n"
		"	add.u32 %r12, %r10, %r9; add.u32 %r13, %r11, %r9;\n"
		"	shl.b32 %r14, %r3, 6; add.u32 %r14, %r14, %r10;\n" /* row of ta */
		"	shl.b32 %r15, %r2, 2; add.u32 %r15, %r15, %r11;\n" /* column of tb */
		"TILE:\n"
		"	setp.ge.u32 %p1, %r8, %r1;\n"
		"	@%p1 bra DONE;\n"
		"	mad.lo.u32 %r16, %r6, %r1, %r8; add.u32 %r16, %r16, %r2;\n"
		"	mul.wide.u32 %rd4, %r16, 4; add.u64 %rd4, %rd4, %rd1;\n"
		"	ld.global.f32 %f2, [%rd4]; st.shared.f32 [%r12], %f2;\n"
		"	add.u32 %r17, %r8, %r3; mad.lo.u32 %r17, %r17, %r1, %r7;\n"
		"	mul.wide.u32 %rd5, %r17, 4; add.u64 %rd5, %rd5, %rd2;\n"
		"	ld.global.f32 %f3, [%rd5]; st.shared.f32 [%r13], %f3;\n"
		"	bar.sync 0;\n"
		"	mov.u32 %r18, 0; mov.u32 %r19, %r14; mov.u32 %r20, %r15;\n"
		"INNER:\n"
		"	ld.shared.f32 %f4, [%r19]; ld.shared.f32 %f5, [%r20];\n"
		"	fma.rn.f32 %f1, %f4, %f5, %f1;\n"
		"	add.u32 %r19, %r19, 4; add.u32 %r20, %r20, 64; add.u32 %r18, %r18, 1;\n"
		"	setp.lt.u32 %p2, %r18, 16;\n"
		"	@%p2 bra INNER;\n"
		"	bar.sync 0;\n"
		"	add.u32 %r8, %r8, 16;\n"
		"	bra.uni TILE;\n"
		"DONE:\n"
		"	mad.lo.u32 %r21, %r6, %r1, %r7;\n"
		"	mul.wide.u32 %rd6, %r21, 4; add.u64 %rd6, %rd6, %rd3;\n"
		"	st.global.f32 [%rd6], %f1;\n"
		"	ret;\n"
		"}\n";
	enum {
		N = 64
	};
	const uint32_t grid[3] = { N / 16, N / 16, 1 }, block[3] = { 16, 16, 1 };
	struct bench b;
	float *x, *y, *z;

	(void)state;
	bench_init(&b, ptx);
	struct {
		uint64_t a, b, c;
		uint32_t n;
	} p = { .n = N };

	p.a = bench_alloc(&b, N * N * 4);
	p.b = bench_alloc(&b, N * N * 4);
	p.c = bench_alloc(&b, N * N * 4);
	x = bench_host(&b, p.a);
	y = bench_host(&b, p.b);
	z = bench_host(&b, p.c);
	for (int k = 0; k < N * N; k++) {
		x[k] = (float)(k % 13) - 6;
		y[k] = (float)(k % 7) - 3;
	}
	assert_int_equal(bench_launch3(&b, "mm", grid, block, 0, &p), AQ_OK);
	for (int r = 0; r < N; r++)
		for (int c = 0; c < N; c++) {
			float sum = 0;

			for (int k = 0; k < N; k++)
				sum += x[r * N + k] * y[k * N + c];
			assert_true(z[r * N + c] == sum);
		}
	bench_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_saxpy),
		cmocka_unit_test(test_divergence),
		cmocka_unit_test(test_tiled_matmul),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
