/* SPDX-License-Identifier: Apache-2.0 */
/* Branches, calls, ends, barriers, time. */
#include "operations.h"

#include "base/clock.h"
#include "base/macro.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct aq_strbuf text;

/* One result of 32 bits a thread. */
static uint32_t out(unsigned thread)
{
	return (uint32_t)aq_test_words(0)[thread];
}

static void check_all(unsigned n, uint32_t (*want)(uint32_t thread))
{
	for (unsigned t = 0; t < n; t++)
		if (out(t) != want(t))
			fail_msg("thread %u has %u instead of %u\n%s", t, out(t), want(t),
				 aq_strbuf_text(&text));
	aq_strbuf_done(&text);
}

static void kernel(const char *body)
{
	aq_text_begin(&text, ".param .u64 base");
	aq_text_prologue(&text);
	aq_text(&text, ".reg .u32 %%a, %%b, %%c; .reg .pred %%p, %%q;");
	aq_strbuf_printf(&text, "%s\n", body);
	aq_text_end(&text);
}

static uint32_t steps(uint32_t n)
{
	uint32_t k = 0;

	for (n++; n != 1; k++)
		n = n & 1 ? 3 * n + 1 : n / 2;
	return k;
}

/* A loop that every lane leaves at another time, with a branch in it. */
static void test_bra(void **state)
{
	(void)state;
	kernel("add.u32 %a, %gid, 1; mov.u32 %b, 0;\n"
	       "again: setp.eq.u32 %p, %a, 1; @%p bra done;\n"
	       "add.u32 %b, %b, 1; and.b32 %c, %a, 1; setp.ne.u32 %q, %c, 0; @%q bra odd;\n"
	       "shr.u32 %a, %a, 1; bra.uni again;\n"
	       "odd: mad.lo.u32 %a, %a, 3, 1; bra again;\n"
	       "done: st.global.u32 [%at], %b;");
	aq_text_run(&text, 4, 100, NULL);
	check_all(400, steps);
}

static uint32_t picked(uint32_t t)
{
	static const uint32_t values[] = { 100, 200, 100, 300 };

	return values[t % 4] + t;
}

static void test_brx(void **state)
{
	(void)state;
	kernel("and.b32 %a, %gid, 3;\n"
	       "table: .branchtargets one, two, one, three;\n"
	       "brx.idx %a, table;\n"
	       "one: mov.u32 %b, 100; bra join;\n"
	       "two: mov.u32 %b, 200; bra join;\n"
	       "three: mov.u32 %b, 300;\n"
	       "join: add.u32 %b, %b, %gid; st.global.u32 [%at], %b;");
	aq_text_run(&text, 1, 96, NULL);
	check_all(96, picked);
}

static uint32_t called(uint32_t t)
{
	return t & 1 ? 7 * t : t * t + 5;
}

/* Directly and by address, with values in parameters, from lanes that went apart. */
static void test_call(void **state)
{
	static const char functions[] =
		".func (.param .b32 r) square(.param .b32 x, .param .b64 y)\n"
		"{ .reg .u32 %a, %b; .reg .u64 %l; ld.param.u32 %a, [x]; ld.param.u64 %l, [y];\n"
		"cvt.u32.u64 %b, %l; mad.lo.u32 %a, %a, %a, %b; st.param.b32 [r], %a; ret; }\n"
		".func (.reg .u32 %r) seven(.reg .u32 %x)\n{ mul.lo.u32 %r, %x, 7; ret.uni; }\n";

	(void)state;
	aq_text_begin(&text, NULL);
	aq_strbuf_printf(&text, "%s", functions);
	aq_text(&text, ".visible .entry k(.param .u64 base)\n{");
	aq_text_prologue(&text);
	aq_text(&text, ".reg .u32 %%a, %%b; .reg .u64 %%f; .reg .pred %%p;");
	aq_text(&text, "and.b32 %%a, %%gid, 1;\nsetp.ne.u32 %%p, %%a, 0;\n@%%p bra odd;");
	aq_text(&text, "{ .param .b32 px; .param .b64 py; .param .b32 pr; mov.u64 %%f, 5;");
	aq_text(&text, "st.param.b32 [px], %%gid;\nst.param.b64 [py], %%f;");
	aq_text(&text, "call.uni (pr), square, (px, py);\nld.param.b32 %%b, [pr]; }");
	aq_text(&text, "bra join;\nodd: call (%%b), seven, (%%gid);");
	aq_text(&text, "join: st.global.u32 [%%at], %%b;");
	aq_text_end(&text);
	aq_text_run(&text, 2, 64, NULL);
	check_all(128, called);

	aq_text_begin(&text, NULL);
	aq_strbuf_printf(&text, "%s", functions);
	aq_text(&text, ".visible .entry k(.param .u64 base)\n{");
	aq_text_prologue(&text);
	aq_text(&text,
		".reg .u32 %%b; .reg .u64 %%f; .param .b32 px; .param .b64 py; .param .b32 pr;");
	aq_text(&text, "proto: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _);");
	aq_text(&text,
		"mov.u64 %%f, 5;\nst.param.b32 [px], %%gid;\nst.param.b64 [py], %%f;\nmov.u64 %%f, square;");
	aq_text(&text, "call (pr), %%f, (px, py), proto;\nld.param.b32 %%b, [pr];");
	aq_text(&text, "st.global.u32 [%%at], %%b;");
	aq_text_end(&text);
	aq_text_run(&text, 1, 32, NULL);
	for (unsigned t = 0; t < 32; t++)
		assert_int_equal(out(t), t * t + 5);
	aq_strbuf_done(&text);
}

static uint32_t early(uint32_t t)
{
	return t % 3 == 0 ? 11 : t % 3 == 1 ? 22 : 33;
}

static void test_ret_exit(void **state)
{
	(void)state;
	kernel("rem.u32 %a, %gid, 3; mov.u32 %b, 11; st.global.u32 [%at], %b;\n"
	       "setp.eq.u32 %p, %a, 0; @%p exit;\n"
	       "mov.u32 %b, 22; st.global.u32 [%at], %b; setp.eq.u32 %p, %a, 1; @%p ret;\n"
	       "mov.u32 %b, 33; st.global.u32 [%at], %b;");
	aq_text_run(&text, 2, 96, NULL);
	check_all(192, early);
}

static void expect_fault(const char *body, enum aq_status want)
{
	const uint64_t base = AQ_DEVICE_BASE;

	kernel(body);
	assert_int_equal(aq_device_run(&aq_test_device, aq_strbuf_text(&text), 1, 64, &base), want);
	aq_strbuf_done(&text);
}

static void test_trap(void **state)
{
	(void)state;
	expect_fault("setp.eq.u32 %p, %gid, 40; @%p trap;", AQ_E_TRAP);
	expect_fault("brkpt;", AQ_E_TRAP);
	kernel("setp.eq.u32 %p, %gid, 4000; @%p trap; @%p brkpt; mov.u32 %a, 1; st.global.u32 [%at], %a;");
	aq_text_run(&text, 1, 64, NULL);
	assert_int_equal(out(63), 1);
	aq_strbuf_done(&text);
}

#define N_THREADS 192u

static uint32_t from_far(uint32_t t)
{
	return N_THREADS - 1 - t + 1000;
}

/* What one thread writes before the barrier, another in a different warp reads behind it. */
static void test_sync(void **state)
{
	static const char *const forms[] = {
		"bar.sync 0;",	   "bar.sync 3, 192;",
		"barrier.sync 5;", "barrier.cta.sync.aligned 15, 192;",
		"bar.cta.sync 1;", "mov.u32 %c, 7; bar.sync %c;",
	};

	(void)state;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(forms); k++) {
		aq_test_device.quantum = 5 + k;
		memset(aq_test_device.mem, 0, 64 * 1024);
		aq_text_begin(&text, ".param .u64 base");
		aq_text(&text, ".shared .u32 mem[192];");
		aq_text_prologue(&text);
		aq_text(&text, ".reg .u32 %%a, %%b, %%c; .reg .u64 %%s;");
		aq_text(&text,
			"mov.u64 %%s, mem;\nmul.wide.u32 %%t64, %%gid, 4;\nadd.u64 %%s, %%s, %%t64;");
		aq_text(&text, "add.u32 %%a, %%gid, 1000;\nst.shared.u32 [%%s], %%a;\n%s",
			forms[k]);
		aq_text(&text,
			"sub.u32 %%a, 191, %%gid;\nmul.wide.u32 %%t64, %%a, 4;\nmov.u64 %%s, mem;");
		aq_text(&text,
			"add.u64 %%s, %%s, %%t64;\nld.shared.u32 %%b, [%%s];\nst.global.u32 [%%at], %%b;");
		aq_text_end(&text);
		aq_text_run(&text, 1, N_THREADS, NULL);
		check_all(N_THREADS, from_far);
	}
}

/* Producers arrive and go on, consumers wait for them. */
static void test_arrive(void **state)
{
	static const char *const forms[] = { "bar", "barrier" };

	(void)state;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(forms); k++) {
		aq_test_device.quantum = 3;
		memset(aq_test_device.mem, 0, 4096);
		aq_text_begin(&text, ".param .u64 base");
		aq_text_prologue(&text);
		aq_text(&text, ".reg .u32 %%a; .reg .pred %%p; .reg .u64 %%s;");
		aq_text(&text, "setp.ge.u32 %%p, %%gid, 32;\n@%%p bra producer;");
		aq_text(&text,
			"%s.sync 2, 64;\nld.global.u32 %%a, [%%at+256];\nst.global.u32 [%%at], %%a;\nbra out;",
			forms[k]);
		aq_text(&text,
			"producer: add.u32 %%a, %%gid, 500;\nst.global.u32 [%%at], %%a;\nmembar.cta;");
		aq_text(&text, "%s.arrive 2, 64;\nout:", forms[k]);
		aq_text_end(&text);
		aq_text_run(&text, 1, 64, NULL);
		for (unsigned t = 0; t < 64; t++)
			assert_int_equal(out(t), (t < 32 ? t + 32 : t) + 500);
	}
	aq_strbuf_done(&text);
}

static void test_reduce(void **state)
{
	static const struct {
		const char *insn;
		uint32_t want;
	} cases[] = {
		{ "setp.lt.u32 %p, %gid, 70; bar.red.popc.u32 %a, 0, %p;", 70 },
		{ "setp.lt.u32 %p, %gid, 70; bar.red.popc.u32 %a, 0, 96, !%p;", 26 },
		{ "setp.lt.u32 %p, %gid, 70; bar.red.and.pred %q, 0, %p; selp.u32 %a, 1, 0, %q;",
		  0 },
		{ "setp.lt.u32 %p, %gid, 96; bar.red.and.pred %q, 0, %p; selp.u32 %a, 1, 0, %q;",
		  1 },
		{ "setp.lt.u32 %p, %gid, 1; barrier.red.or.pred %q, 4, %p; selp.u32 %a, 1, 0, %q;",
		  1 },
		{ "setp.gt.u32 %p, %gid, 95; barrier.cta.red.or.pred %q, 4, 96, %p; selp.u32 %a, 1, 0, %q;",
		  0 },
	};

	(void)state;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(cases); k++) {
		char body[200];

		(void)snprintf(body, sizeof(body), "%s st.global.u32 [%%at], %%a;", cases[k].insn);
		kernel(body);
		aq_text_run(&text, 1, 96, NULL);
		for (unsigned t = 0; t < 96; t++)
			if (out(t) != cases[k].want)
				fail_msg("thread %u has %u after %s", t, out(t), cases[k].insn);
	}
	/* Threads that have left are not asked. */
	kernel("setp.lt.u32 %p, %gid, 70; and.b32 %a, %gid, 3; setp.eq.u32 %q, %a, 1; @%q exit;\n"
	       "bar.red.popc.u32 %a, 0, %p; st.global.u32 [%at], %a;");
	memset(aq_test_device.mem, 0, 4096);
	aq_text_run(&text, 1, 96, NULL);
	for (unsigned t = 0; t < 96; t++)
		assert_int_equal(out(t), t % 4 == 1 ? 0 : 70 - 18);
	aq_strbuf_done(&text);
}

/* A sleep lasts at least as long as it should, and clocks do not stand still meanwhile. */
static void test_time(void **state)
{
	const uint64_t start = aq_now_ns();
	const uint64_t *m = aq_test_words(0);

	(void)state;
	aq_text_begin(&text, ".param .u64 base");
	aq_text_prologue(&text);
	aq_text(&text, ".reg .u64 %%g0, %%g1, %%c0, %%c1; .reg .u32 %%n;");
	aq_text(&text,
		"mov.u64 %%g0, %%globaltimer;\nmov.u64 %%c0, %%clock64;\nmov.u32 %%n, 400000;");
	aq_text(&text, "nanosleep.u32 %%n;\nnanosleep.u32 400000;");
	aq_text(&text, "mov.u64 %%g1, %%globaltimer;\nmov.u64 %%c1, %%clock64;");
	aq_text(&text, "sub.u64 %%g1, %%g1, %%g0;\nsub.u64 %%c1, %%c1, %%c0;");
	aq_text(&text,
		"st.global.u64 [%%base], %%g0;\nst.global.u64 [%%base+8], %%g1;\nst.global.u64 [%%base+16], %%c1;");
	aq_text_end(&text);
	aq_text_run(&text, 1, 32, NULL);
	assert_true(m[0] >= start && m[0] < aq_now_ns());
	/* PTX lets a sleep be shorter than asked, never longer than twice; ours is not shorter, and the scheduler may make it longer. */
	assert_true(m[1] >= 800000);
	assert_true(m[2] >= 800000);
	aq_strbuf_done(&text);
}

static uint32_t itself(uint32_t t)
{
	return t;
}

static void test_nothing(void **state)
{
	(void)state;
	kernel("griddepcontrol.launch_dependents; griddepcontrol.wait; pmevent 3; pmevent.mask 7;\n"
	       "st.global.u32 [%at], %gid;");
	aq_text_run(&text, 1, 64, NULL);
	check_all(64, itself);
}

/* Guards: an instruction whose predicate is false in every lane does nothing at all, not even fault. */
static void test_guards(void **state)
{
	(void)state;
	kernel("setp.ne.u32 %p, 0, 0; @%p trap; @%p bra never; @%p bar.sync 0; @%p ld.global.u32 %a, [%base+3];\n"
	       "@!%p st.global.u32 [%at], %gid; @%p exit; bra end;\n"
	       "never: trap; end:");
	aq_text_run(&text, 1, 64, NULL);
	check_all(64, itself);
}

static void test_refused(void **state)
{
	static const char *const refused[] = {
		"bra %a;",
		"bra.nosuch end;",
		"bar.sync;",
		"bar.arrive 0;",
		"bar.red.xor.pred %p, 0, %q;",
		"nanosleep.u64 5;",
		"ret 3;",
		"call nowhere, (%a);",
		"wgmma.fence.sync.aligned;",
		"tex.2d.v4.f32.f32 {%a, %a, %a, %a}, [t, {%a, %a}];",
		"nosuch.u32 %a, %b;",
		"add.f16 %a, %a, %b;",
		"mov.u32 %a, %nosuch;",
	};

	(void)state;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(refused); k++) {
		kernel(refused[k]);
		aq_text(&text, "end:");
		aq_text_refused(&text);
	}
	aq_strbuf_done(&text);
}

const struct aq_operation aq_operations_control[] = {
	{ "bra", test_bra },
	{ "brx", test_brx },
	{ "call", test_call },
	{ "ret", test_ret_exit },
	{ "exit", test_ret_exit },
	{ "trap", test_trap },
	{ "brkpt", test_trap },
	{ "bar", test_sync },
	{ "barrier", test_sync },
	{ "bar", test_arrive },
	{ "bar", test_reduce },
	{ "nanosleep", test_time },
	{ "griddepcontrol", test_nothing },
	{ "pmevent", test_nothing },
	{ "guards", test_guards },
	{ "refused", test_refused },
	{ 0 },
};
