/* SPDX-License-Identifier: Apache-2.0 */
/* atom and red: each operation, type and space, alone on a word and all threads on few words. */
#include "operations.h"

#include "isa.h"
#include "values.h"

#include "base/macro.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define THREADS 128

/* Places in device memory, 8 bytes a thread. */
#define WORDS UINT64_C(0x00000) /* what atomics work on */
#define ARG   UINT64_C(0x10000)
#define SWAP  UINT64_C(0x20000) /* cas: the new value; ARG is what it compares with */
#define OLD   UINT64_C(0x30000)
#define FINAL UINT64_C(0x40000) /* WORDS afterwards, read by the kernel */

static struct aq_strbuf text;
static uint64_t seed;

static const char *const operations[] = {
	"and.b32",  "and.b64", "or.b32",  "or.b64",  "xor.b32", "xor.b64", "exch.b32",
	"exch.b64", "add.u32", "add.s32", "add.u64", "inc.u32", "dec.u32", "min.u32",
	"min.s32",  "min.u64", "min.s64", "max.u32", "max.s32", "max.u64", "max.s64",
	"cas.b16",  "cas.b32", "cas.b64", "add.f32", "add.f64",
};

struct place {
	const char *modifier; /* behind atom */
	const char *setup;    /* %area is the address of this thread's word, or of word gid % 8 */
};

static const struct place places[] = {
	{ ".global", "add.u64 %area, %base, %off;" },
	{ "", "add.u64 %area, %base, %off;" },
	{ ".shared", "mov.u64 %area, mem; add.u64 %area, %area, %off;" },
	{ "", "mov.u64 %area, mem; cvta.shared.u64 %area, %area; add.u64 %area, %area, %off;" },
};

static uint64_t low(uint64_t v, unsigned bits)
{
	return bits == 64 ? v : v & ((UINT64_C(1) << bits) - 1);
}

static uint64_t float_add(uint64_t a, uint64_t b, unsigned bits)
{
	float x, y;
	double p, q;
	uint32_t u;

	if (bits == 32) {
		memcpy(&x, &a, 4);
		memcpy(&y, &b, 4);
		x += y;
		memcpy(&u, &x, 4);
		return u;
	}
	memcpy(&p, &a, 8);
	memcpy(&q, &b, 8);
	p += q;
	memcpy(&a, &p, 8);
	return a;
}

static bool is(const char *op, const char *name)
{
	return strncmp(op, name, strlen(name)) == 0 && op[strlen(name)] == '.';
}

/* What the word becomes. */
static uint64_t applied(const char *op, struct aq_form_type t, uint64_t old, uint64_t arg,
			uint64_t swap)
{
	const uint64_t a = low(old, t.bits), b = low(arg, t.bits),
		       sign = UINT64_C(1) << (t.bits - 1);
	const bool less = t.kind == 's' ? (a ^ sign) < (b ^ sign) : a < b;

	if (is(op, "and"))
		return a & b;
	if (is(op, "or"))
		return a | b;
	if (is(op, "xor"))
		return a ^ b;
	if (is(op, "exch"))
		return b;
	if (is(op, "add"))
		return t.kind == 'f' ? float_add(a, b, t.bits) : low(a + b, t.bits);
	if (is(op, "inc"))
		return a >= b ? 0 : a + 1;
	if (is(op, "dec"))
		return a == 0 || a > b ? b : a - 1;
	if (is(op, "min"))
		return less ? a : b;
	if (is(op, "max"))
		return less ? b : a;
	assert_true(is(op, "cas"));
	return a == b ? low(swap, t.bits) : a;
}

/*
 * The kernel copies WORDS to shared memory where the place is there, does one atomic operation in each thread that is on, and writes the old value
 * and, behind a barrier, all words.
 */
static void make_kernel(const char *op, struct aq_form_type t, const struct place *p, bool red,
			bool shared_words, bool guarded)
{
	const bool cas = is(op, "cas");

	aq_text_begin(&text, ".param .u64 base");
	aq_text(&text, ".shared .align 8 .b8 mem[%u];", THREADS * 8);
	aq_text_prologue(&text);
	aq_text(&text, ".reg .u64 %%area, %%off, %%sh; .reg .pred %%on; .reg .%c%u %%v, %%s, %%o;",
		t.kind == 'f' ? 'f' : 'b', t.bits);
	aq_text(&text,
		"mov.u64 %%sh, mem;\nmul.wide.u32 %%off, %%gid, 8;\nadd.u64 %%sh, %%sh, %%off;");
	aq_text(&text, "ld.global.b64 %%t64, [%%at];\nst.shared.b64 [%%sh], %%t64;\nbar.sync 0;");
	if (shared_words)
		aq_text(&text, "and.b64 %%off, %%off, 56;");
	aq_text(&text, "%s", p->setup);
	aq_text(&text, "ld.global.b%u %%v, [%%at+%llu];", t.bits, (unsigned long long)ARG);
	aq_text(&text, "ld.global.b%u %%s, [%%at+%llu];", t.bits, (unsigned long long)SWAP);
	aq_text(&text, "ld.global.b%u %%o, [%%at+%llu];", t.bits, (unsigned long long)OLD);
	aq_text(&text, "and.b32 %%t32, %%gid, 3;\nsetp.ne.u32 %%on, %%t32, 1;");
	aq_text(&text, "%s %s%s.%s %s[%%area], %%v%s;", guarded ? "@%on" : "", red ? "red" : "atom",
		p->modifier, op, red ? "" : "%o, ", cas ? ", %s" : "");
	aq_text(&text, "bar.sync 0;");
	aq_text(&text, "st.global.b%u [%%at+%llu], %%o;", t.bits, (unsigned long long)OLD);
	aq_text(&text, "ld.%s.b64 %%t64, [%s];\nst.global.b64 [%%at+%llu], %%t64;",
		strstr(p->setup, "mem") ? "shared" : "global",
		strstr(p->setup, "mem") ? "%sh" : "%at", (unsigned long long)FINAL);
	aq_text_end(&text);
}

static void fill(struct aq_form_type t, bool small)
{
	for (unsigned k = 0; k < THREADS; k++) {
		const uint64_t a = aq_values_random(&seed);

		aq_test_words(WORDS)[k] = aq_values_get(t, a % 40, &seed, NULL);
		/* half of the comparisons of cas succeed */
		aq_test_words(ARG)[k] = a & 0x1000 ? aq_test_words(WORDS)[k]
						   : aq_values_get(t, a >> 16 & 31, &seed, NULL);
		if (t.kind == 'f' && small) {
			const float f = (float)(a >> 20 & 255) - 100;
			const double d = f;

			aq_test_words(WORDS)[k] = aq_test_words(ARG)[k] = 0;
			memcpy(&aq_test_words(ARG)[k],
			       t.bits == 32 ? (const void *)&f : (const void *)&d, t.bits / 8);
		}
		aq_test_words(SWAP)[k] = aq_values_random(&seed);
		aq_test_words(OLD)[k] = 0x2222222222222222;
	}
}

static bool nan_of(uint64_t v, struct aq_form_type t)
{
	if (t.kind != 'f')
		return false;
	return t.bits == 32 ? (v & 0x7fffffff) > 0x7f800000
			    : (v & INT64_MAX) > UINT64_C(0x7ff0000000000000);
}

/* Every thread has a word of its own. */
static void check_alone(const char *op, struct aq_form_type t, bool red, const uint64_t *before)
{
	for (unsigned k = 0; k < THREADS; k++) {
		const bool on = k % 4 != 1;
		const uint64_t was = before[k], got = aq_test_words(FINAL)[k];
		const uint64_t want =
			on ? (low(was, t.bits) ^ was) | applied(op, t, was, aq_test_words(ARG)[k],
								aq_test_words(SWAP)[k])
			   : was;
		const uint64_t old = low(aq_test_words(OLD)[k], t.bits);
		const uint64_t want_old = low(on && !red ? was : 0x2222222222222222, t.bits);

		if ((got != want && !(nan_of(got, t) && nan_of(want, t))) || old != want_old)
			fail_msg("thread %u: %llx and %llx give %llx, old %llx; not %llx\n%s", k,
				 (unsigned long long)was, (unsigned long long)aq_test_words(ARG)[k],
				 (unsigned long long)got, (unsigned long long)old,
				 (unsigned long long)want, aq_strbuf_text(&text));
	}
}

/* 128 threads share 8 words; the result of these does not depend on the order. */
static void check_together(const char *op, struct aq_form_type t, const uint64_t *before)
{
	for (unsigned word = 0; word < 8; word++) {
		uint64_t want = before[word];

		for (unsigned k = word; k < THREADS; k += 8)
			want = (want ^ low(want, t.bits)) |
			       applied(op, t, want, aq_test_words(ARG)[k], 0);
		if (aq_test_words(FINAL)[word] != want)
			fail_msg("word %u is %llx instead of %llx\n%s", word,
				 (unsigned long long)aq_test_words(FINAL)[word],
				 (unsigned long long)want, aq_strbuf_text(&text));
	}
}

static bool order_matters(const char *op)
{
	return is(op, "cas") || is(op, "exch");
}

static void each_operation(bool red)
{
	uint64_t before[THREADS];

	for (size_t k = 0; k < AQ_ARRAY_SIZE(operations); k++)
		for (size_t p = 0; p < AQ_ARRAY_SIZE(places); p++) {
			const char *op = operations[k];
			const struct aq_form_type t = aq_form_type(strchr(op, '.') + 1);

			if (red && order_matters(op))
				continue;
			fill(t, false);
			memcpy(before, aq_test_words(WORDS), sizeof(before));
			make_kernel(op, t, &places[p], red, false, true);
			aq_text_run(&text, 1, THREADS, NULL);
			check_alone(op, t, red, before);
			if (order_matters(op))
				continue;
			fill(t, true);
			/* inc and dec commute only with one bound */
			for (unsigned n = 0; n < THREADS && (is(op, "inc") || is(op, "dec")); n++)
				aq_test_words(ARG)[n] = 5;
			memcpy(before, aq_test_words(WORDS), sizeof(before));
			make_kernel(op, t, &places[p], red, true, false);
			aq_text_run(&text, 1, THREADS, NULL);
			check_together(op, t, before);
		}
	aq_strbuf_done(&text);
}

static void test_atom(void **state)
{
	(void)state;
	each_operation(false);
}

static void test_red(void **state)
{
	(void)state;
	each_operation(true);
}

/* Old values handed out by add are all different: each of a counter's states is seen once, over several blocks. */
static void test_tickets(void **state)
{
	static const char *const forms[] = { "atom.global.add.u32",
					     "atom.relaxed.gpu.global.add.u32",
					     "atom.acq_rel.sys.global.add.u32", "atom.add.u32",
					     "atom.global.gpu.inc.u32" };

	(void)state;
	for (size_t f = 0; f < AQ_ARRAY_SIZE(forms); f++) {
		bool seen[4 * THREADS] = { false };

		memset(aq_test_device.mem, 0, 64);
		aq_test_device.quantum = 7;
		aq_text_begin(&text, ".param .u64 base");
		aq_text_prologue(&text);
		aq_text(&text, "%s %%t32, [%%base], %d;", forms[f],
			strstr(forms[f], "inc") ? -1 : 1);
		aq_text(&text, "st.global.u32 [%%at+64], %%t32;");
		aq_text_end(&text);
		aq_text_run(&text, 4, THREADS, NULL);
		assert_int_equal(aq_test_words(0)[0], 4 * THREADS);
		for (unsigned k = 0; k < 4 * THREADS; k++) {
			const uint64_t ticket = aq_test_words(64)[k];

			assert_true(ticket < 4 * THREADS && !seen[ticket]);
			seen[ticket] = true;
		}
	}
	aq_strbuf_done(&text);
}

/* A sum by compare and swap: every thread tries until it succeeds. */
static void test_cas_loop(void **state)
{
	(void)state;
	aq_text_begin(&text, ".param .u64 base");
	aq_text_prologue(&text);
	aq_text(&text, ".reg .u32 %%old, %%new, %%seen; .reg .pred %%p;");
	aq_text(&text, "ld.global.u32 %%old, [%%base];\nagain:");
	aq_text(&text,
		"add.u32 %%new, %%old, %%gid;\natom.global.cas.b32 %%seen, [%%base], %%old, %%new;");
	aq_text(&text, "setp.ne.u32 %%p, %%seen, %%old;\nmov.u32 %%old, %%seen;\n@%%p bra again;");
	aq_text_end(&text);
	aq_text_run(&text, 3, 96, NULL);
	assert_int_equal(aq_test_words(0)[0], 3 * 96 * (3 * 96 - 1) / 2);
	aq_strbuf_done(&text);
}

static void test_refused(void **state)
{
	static const char *const refused[] = {
		"atom.global.add.s64 %t64, [%base], %t64, 1;",
		"atom.global.inc.s32 %t32, [%base], 1;",
		"atom.global.and.f32 %t32, [%base], 1;",
		"atom.const.add.u32 %t32, [%base], 1;",
		"atom.local.add.u32 %t32, [%base], 1;",
		"red.global.exch.b32 [%base], 1;",
		"red.global.cas.b32 [%base], 1, 2;",
		"atom.global.add.f16x2 %t32, [%base], 1;",
		"atom.global.cas.b32 %t32, [%base], 1;",
		"atom.global.nosuch.b32 %t32, [%base], 1;",
	};

	(void)state;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(refused); k++) {
		aq_text_begin(&text, ".param .u64 base");
		aq_text_prologue(&text);
		aq_text(&text, "%s", refused[k]);
		aq_text_end(&text);
		aq_text_refused(&text);
	}
	aq_strbuf_done(&text);
}

const struct aq_operation aq_operations_atomic[] = {
	{ "atom", test_atom },	   { "red", test_red },	     { "atom", test_tickets },
	{ "atom", test_cas_loop }, { "atom", test_refused }, { 0 },
};
