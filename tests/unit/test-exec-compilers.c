/* SPDX-License-Identifier: Apache-2.0 */
/* What clang made of data/clang-kernels.cu, optimised and not, computes what its C says. */
#include "exec-harness.h"
#include "util/strbuf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct four {
	float x, y, z, w;
};

static void load(struct bench *b, const char *name)
{
	struct aq_strbuf path = { 0 }, text = { 0 };
	char part[4096];
	size_t n;
	FILE *f;

	aq_strbuf_printf(&path, "%s/%s", AQ_TEST_DATA, name);
	f = fopen(aq_strbuf_text(&path), "rb");
	if (!f)
		fail_msg("%s: cannot be opened", aq_strbuf_text(&path));
	while ((n = fread(part, 1, sizeof(part), f)) > 0)
		aq_strbuf_add(&text, part, n);
	assert_int_equal(fclose(f), 0);
	bench_init_module(b, text.text, text.len);
	aq_strbuf_done(&path);
	aq_strbuf_done(&text);
}

static void run_filter(struct bench *b)
{
	enum {
		N = 300
	};
	struct {
		uint64_t out, in;
		int n;
	} p = { bench_alloc(b, N * 4), bench_alloc(b, N * 4), N };
	float *in = bench_host(b, p.in), *out = bench_host(b, p.out), acc[2] = { 0 };
	float *coefficients = bench_host(b, bench_symbol(b, "coefficients"));
	const float table[4] = { 1.f, 2.5f, -3.f, 1e-30f };

	for (int k = 0; k < 16; k++)
		coefficients[k] = k % 4 == 0 ? 0.5f : 1;
	for (int k = 0; k < N; k++)
		in[k] = (float)(k % 9);
	assert_int_equal(bench_launch(b, "filter", 2, 256, 0, &p), AQ_OK);
	/* Sums of small numbers and halves of them: each step is exact or small against the last. */
	for (int k = 0; k < 512; k++)
		acc[k / 256] = acc[k / 256] * coefficients[k & 15] + (k < N ? in[k] : 0);
	for (int k = 0; k < N; k++)
		assert_float_equal(out[k], acc[k / 256] + table[k & 3], 1e-4f);
}

static void run_calls(struct bench *b, int k)
{
	struct {
		uint64_t v;
		double x;
		char y, pad[7];
		int k;
		uint64_t out;
	} p = { .x = 1.5, .k = k };
	struct four *v;
	int *out, want[40], local[32] = { 0 };

	p.v = bench_alloc(b, 64 * sizeof(*v));
	p.out = bench_alloc(b, 64 * sizeof(*out));
	v = bench_host(b, p.v);
	out = bench_host(b, p.out);
	v[k] = (struct four){ 1, 2, 3, 4 };
	for (int n = 0; n < 40; n++)
		want[n] = out[n] = n * n + 1;
	want[0] = (k & 1 ? k - 3 : k * 3) + 3 + 5;
	for (int n = 0; n < k; n++)
		local[n & 31] = want[n] * n;
	want[1] = local[k & 31];
	assert_int_equal(bench_launch(b, "calls", 1, 1, 0, &p), AQ_OK);
	for (int n = k < 32 ? 2 : 0; n < 40;
	     n++) /* a part of local[] that nobody wrote goes to out[1] */
		assert_int_equal(out[n], want[n]);
	assert_int_equal(out[0], want[0]);
	for (int n = k; n <= k + 1; n++) {
		assert_true(v[n].x == (float)(1 + (1.5 + k)));
		assert_true(v[n].y == 2 && v[n].z == 3 && v[n].w == 4);
	}
}

static void run_jumps(struct bench *b, int k)
{
	struct {
		uint64_t o;
		int k;
	} p = { bench_alloc(b, 16 * 4), k };
	int *o = bench_host(b, p.o), want[16];

	for (int n = 0; n < 16; n++)
		want[n] = o[n] = 100 + n;
	switch (k) {
	case 0:
		want[0] = 1;
		break;
	case 1:
		want[1] = 7;
		break;
	case 2:
		want[2] = 9;
		break;
	case 3:
		want[8] = 3;
		break;
	case 4:
		want[7] = 1;
		break;
	case 5:
		want[8] = 2;
		want[2] = 5;
		break;
	case 6:
		want[2] = 6;
		break;
	default:
		want[4] = 0;
	}
	want[0]++;
	assert_int_equal(bench_launch(b, "jumps", 1, 1, 64, &p), AQ_OK);
	for (int n = 0; n < 16; n++)
		if (n != 5) /* from shared memory that nobody wrote */
			assert_int_equal(o[n], want[n]);
}

static void run_assembly(struct bench *b)
{
	struct {
		uint64_t o;
		double d;
	} p = { bench_alloc(b, 24), 7 };
	int64_t *o = bench_host(b, p.o);

	o[1] = o[2] = 3;
	assert_int_equal(bench_launch(b, "inline_assembly", 1, 128, 0, &p), AQ_OK);
	assert_int_equal(o[0], 42);
}

static void run_all(const char *name)
{
	struct bench b;

	load(&b, name);
	run_filter(&b);
	run_calls(&b, 5);
	run_calls(&b, 33);
	for (int k = 0; k < 9; k++)
		run_jumps(&b, k);
	run_assembly(&b);
	bench_done(&b);
}

static void test_optimised(void **state)
{
	(void)state;
	run_all("clang-kernels.ptx");
}

static void test_debug(void **state)
{
	(void)state;
	run_all("clang-kernels-debug.ptx");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_optimised),
		cmocka_unit_test(test_debug),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
