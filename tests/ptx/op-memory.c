/* SPDX-License-Identifier: Apache-2.0 */
/* ld ldu st in every space and width; cvta isspacep; vectors in mov; fences and hints. */
#include "operations.h"

#include "isa.h"
#include "values.h"

#include "base/macro.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define THREADS 64
#define AREA	32 /* bytes of each thread */

/* Places in device memory. */
#define IN     UINT64_C(0x00000) /* what areas are filled with */
#define VALUES UINT64_C(0x10000) /* 4 * 8 bytes a thread: registers to store */
#define OUT    UINT64_C(0x20000) /* 4 * 8 bytes a thread: registers loaded */
#define BACK   UINT64_C(0x30000) /* areas, read back */
#define GLOBAL UINT64_C(0x40000) /* areas of the global space */

static struct aq_strbuf text;
static uint64_t seed;

struct space {
	const char *name;    /* in the instruction */
	const char *declare; /* of the area, in the kernel */
	const char *address; /* sets %area */
	bool writable;
};

static const struct space spaces[] = {
	{ ".global", "", "add.u64 %area, %mine, 0x40000;", true },
	{ "", "", "add.u64 %area, %mine, 0x40000;", true },
	{ ".shared", ".shared .align 16 .b8 mem[2048];",
	  "mov.u64 %area, mem; add.u64 %area, %area, %off;", true },
	{ ".shared::cta", ".shared .align 16 .b8 mem[2048];",
	  "mov.u64 %area, mem; add.u64 %area, %area, %off;", true },
	{ "", ".shared .align 16 .b8 mem[2048];",
	  "mov.u64 %area, mem; add.u64 %area, %area, %off; cvta.shared.u64 %area, %area;", true },
	{ ".local", ".local .align 16 .b8 mem[48];",
	  "mov.u64 %area, mem; add.u64 %area, %area, 16;", true },
	{ "", ".local .align 16 .b8 mem[48];",
	  "mov.u64 %area, mem; cvta.local.u64 %area, %area; add.u64 %area, %area, 16;", true },
	{ ".const", "", "mov.u64 %area, table; add.u64 %area, %area, %off;", false },
	{ "", "", "mov.u64 %area, table; cvta.const.u64 %area, %area; add.u64 %area, %area, %off;",
	  false },
};

static const char *const types[] = {
	"b8",  "u8",  "s8",  "b16", "u16", "s16", "b32",
	"u32", "s32", "b64", "u64", "s64", "f32", "f64",
};

struct access {
	const struct space *space;
	const char *name;
	struct aq_form_type type;
	unsigned vec, reg_bits;
};

static unsigned bytes_of(const struct access *a)
{
	return a->type.bits / 8 * a->vec;
}

/* "{%r0, %r1}" or "%r0", in the registers named by `letter`. */
static const char *vector(const struct access *a, char letter)
{
	static char names[2][64];
	static unsigned next;
	char *s = names[next++ % 2];
	int n = snprintf(s, sizeof(names[0]), a->vec > 1 ? "{" : "");

	for (unsigned k = 0; k < a->vec; k++)
		n += snprintf(s + n, sizeof(names[0]) - (size_t)n, "%s%%%c%u", k ? ", " : "",
			      letter, k);
	(void)snprintf(s + n, sizeof(names[0]) - (size_t)n, a->vec > 1 ? "}" : "");
	return s;
}

static void declare_table(void)
{
	char line[2 * AREA * 6 + 80];
	int n = 0;

	aq_strbuf_printf(&text, ".const .align 16 .b8 table[%u] = {", THREADS * AREA);
	for (unsigned k = 0; k < THREADS * AREA; k++) {
		n += snprintf(line + n, sizeof(line) - (size_t)n, "%s%u", k ? ", " : "",
			      aq_test_device.mem[IN + k]);
		if (k % AREA == AREA - 1) {
			aq_strbuf_printf(&text, "%s\n", line);
			n = 0;
		}
	}
	aq_strbuf_printf(&text, "};\n");
}

/*
 * Each thread fills its area from IN, loads from it (odd threads do not), stores registers from VALUES into it, and reads it
 * back. Registers and area go to OUT and BACK.
 */
static void make_kernel(const struct access *a)
{
	const char *suffix = a->vec == 1 ? "" : a->vec == 2 ? ".v2" : ".v4";
	const char kind = a->type.kind == 'f' ? 'f' : 'b';
	const unsigned load_at = bytes_of(a) < 16 ? bytes_of(a) : 0, store_at = 16;

	aq_text_begin(&text, NULL);
	if (!a->space->writable)
		declare_table();
	aq_text(&text, ".visible .entry k(.param .u64 base)\n{\n%s", a->space->declare);
	aq_text_prologue(&text);
	aq_text(&text,
		".reg .u64 %%mine, %%area, %%off, %%w; .reg .pred %%on; .reg .%c%u %%r<4>, %%v<4>;",
		kind, a->reg_bits);
	aq_text(&text, "and.b32 %%t32, %%gid, 1;\nsetp.eq.u32 %%on, %%t32, 0;");
	aq_text(&text, "mul.wide.u32 %%off, %%gid, %u;\nadd.u64 %%mine, %%base, %%off;", AREA);
	aq_text(&text, "%s", a->space->address);
	for (unsigned k = 0; a->space->writable && k < AREA; k += 8) {
		aq_text(&text, "ld.global.b64 %%w, [%%mine+%u];", k);
		aq_text(&text, "st%s.b64 [%%area+%u], %%w;", a->space->name, k);
	}
	for (unsigned k = 0; k < a->vec; k++) {
		aq_text(&text, "ld.global.%c%u %%v%u, [%%mine+%llu];", kind, a->reg_bits, k,
			(unsigned long long)(VALUES + 8 * k));
		aq_text(&text, "ld.global.%c%u %%r%u, [%%mine+%llu];", kind, a->reg_bits, k,
			(unsigned long long)(OUT + 8 * k));
	}
	aq_text(&text, "@%%on ld%s%s.%s %s, [%%area+%u];", a->space->name, suffix, a->name,
		vector(a, 'r'), load_at);
	if (a->space->writable)
		aq_text(&text, "@%%on st%s%s.%s [%%area+%u], %s;", a->space->name, suffix, a->name,
			store_at, vector(a, 'v'));
	for (unsigned k = 0; k < a->vec; k++)
		aq_text(&text, "st.global.%c%u [%%mine+%llu], %%r%u;", kind, a->reg_bits,
			(unsigned long long)(OUT + 8 * k), k);
	for (unsigned k = 0; k < AREA; k += 8) {
		aq_text(&text, "ld%s.b64 %%w, [%%area+%u];", a->space->name, k);
		aq_text(&text, "st.global.b64 [%%mine+%llu], %%w;", (unsigned long long)BACK + k);
	}
	aq_text_end(&text);
}

static uint64_t extended(const struct access *a, const uint8_t *at)
{
	uint64_t v = 0;

	memcpy(&v, at, a->type.bits / 8);
	if (a->type.kind == 's' && a->type.bits < 64 && v >> (a->type.bits - 1))
		v |= ~UINT64_C(0) << a->type.bits;
	return a->reg_bits == 64 ? v : v & ((UINT64_C(1) << a->reg_bits) - 1);
}

static void check_access(const struct access *a)
{
	const uint8_t *mem = aq_test_device.mem;
	const unsigned load_at = bytes_of(a) < 16 ? bytes_of(a) : 0;

	for (unsigned t = 0; t < THREADS; t++) {
		const bool on = t % 2 == 0;
		uint8_t area[AREA];

		for (unsigned k = 0; k < a->vec; k++) {
			uint64_t got = 0;
			const uint64_t want =
				on ? extended(a,
					      mem + IN + t * AREA + load_at + k * a->type.bits / 8)
				   : 0x1111111111111111 & (UINT64_MAX >> (64 - a->reg_bits));

			memcpy(&got, mem + OUT + t * AREA + 8 * k, a->reg_bits / 8);
			if (got != want)
				fail_msg("thread %u, element %u: %llx instead of %llx\n%s", t, k,
					 (unsigned long long)got, (unsigned long long)want,
					 aq_strbuf_text(&text));
		}
		memcpy(area, mem + IN + t * AREA, AREA);
		for (unsigned k = 0; on && a->space->writable && k < a->vec; k++)
			memcpy(area + 16 + k * a->type.bits / 8, mem + VALUES + t * AREA + 8 * k,
			       a->type.bits / 8);
		if (memcmp(area, mem + BACK + t * AREA, AREA) != 0)
			fail_msg("thread %u: memory differs\n%s", t, aq_strbuf_text(&text));
	}
}

static void fill(void)
{
	for (uint64_t k = 0; k < THREADS * AREA / 8; k++) {
		aq_test_words(IN)[k] = aq_values_random(&seed);
		aq_test_words(VALUES)[k] = aq_values_random(&seed);
		aq_test_words(OUT)[k] = 0x1111111111111111;
	}
}

/* Every space, type, vector and width of registers that PTX allows together. */
static void test_load_store(void **state)
{
	unsigned n = 0;

	(void)state;
	for (size_t s = 0; s < AQ_ARRAY_SIZE(spaces); s++)
		for (size_t t = 0; t < AQ_ARRAY_SIZE(types); t++)
			for (unsigned vec = 1; vec <= 4; vec *= 2)
				for (unsigned reg = 16; reg <= 64; reg *= 2) {
					const struct access a = { &spaces[s], types[t],
								  aq_form_type(types[t]), vec,
								  reg };

					if (reg < a.type.bits || bytes_of(&a) > 16 ||
					    (a.type.kind == 'f' && reg != a.type.bits))
						continue;
					fill();
					make_kernel(&a);
					aq_text_run(&text, 2, THREADS / 2, NULL);
					check_access(&a);
					n++;
				}
	print_message("# %u combinations\n", n);
	aq_strbuf_done(&text);
}

/* Which of THREADS elements a thread reaches. Neighbours in a row, or all at one place, are what compilers make most. */
enum pattern {
	IN_A_ROW,
	ALL_AT_ONE,
	BACKWARDS,
	SHIFTED, /* in a row but for the last of each warp */
	SWAPPED, /* in pairs, but for the first of each warp */
	ANYWHERE,
	N_PATTERNS
};

static unsigned element_of(enum pattern p, unsigned thread)
{
	switch (p) {
	case IN_A_ROW:
		return thread;
	case ALL_AT_ONE:
		return 5;
	case BACKWARDS:
		return THREADS - 1 - thread;
	case SHIFTED:
		return thread % 32 == 31 ? thread - 31 : thread + 1;
	case SWAPPED:
		return thread % 32 < 2 ? thread : thread ^ 1;
	case ANYWHERE:
	case N_PATTERNS:
	default:
		return thread * 37 % THREADS;
	}
}

#define INDEX	  UINT64_C(0x50000) /* 8 bytes a thread: its element; on */
#define TO	  UINT64_C(0x60000) /* where is stored to */
#define MAX_BYTES (THREADS * 16u)

/* Each thread loads its element of IN into OUT, and stores VALUES into its element of TO; for shared memory, copies of both. */
static void make_pattern_kernel(const struct access *a, bool shared)
{
	const char *suffix = a->vec == 1 ? "" : a->vec == 2 ? ".v2" : ".v4";
	const char kind = a->type.kind == 'f' ? 'f' : 'b';

	aq_text_begin(&text, ".param .u64 base");
	aq_text(&text, ".shared .align 16 .b8 from[%u], to[%u];", MAX_BYTES, MAX_BYTES);
	aq_text_prologue(&text);
	aq_text(&text,
		".reg .u64 %%mine, %%off, %%w, %%from, %%to; .reg .pred %%on; .reg .%c%u %%r<4>, %%v<4>;",
		kind, a->reg_bits);
	aq_text(&text, "mul.wide.u32 %%off, %%gid, %u;\nadd.u64 %%mine, %%base, %%off;", AREA);
	aq_text(&text, "add.u64 %%from, %%base, %llu;\nadd.u64 %%to, %%base, %llu;",
		(unsigned long long)IN, (unsigned long long)TO);
	if (shared) {
		aq_text(&text, "mul.wide.u32 %%off, %%gid, 16;");
		for (unsigned k = 0; k < 4; k++) {
			aq_text(&text, "add.u64 %%t64, %s, %%off;\nld.global.b64 %%w, [%%t64+%u];",
				k & 1 ? "%from" : "%to", k / 2 * 8);
			aq_text(&text, "mov.u64 %%t64, %s;\nadd.u64 %%t64, %%t64, %%off;",
				k & 1 ? "from" : "to");
			aq_text(&text, "st.shared.b64 [%%t64+%u], %%w;", k / 2 * 8);
		}
		aq_text(&text, "bar.sync 0;\nmov.u64 %%from, from;\nmov.u64 %%to, to;");
		if (!*a->space->name)
			aq_text(&text,
				"cvta.shared.u64 %%from, %%from;\ncvta.shared.u64 %%to, %%to;");
	}
	aq_text(&text, "ld.global.u32 %%t32, [%%at+%llu];\nmul.wide.u32 %%off, %%t32, %u;",
		(unsigned long long)INDEX, bytes_of(a));
	aq_text(&text, "ld.global.u32 %%t32, [%%at+%llu];\nsetp.ne.u32 %%on, %%t32, 0;",
		(unsigned long long)INDEX + 4);
	aq_text(&text, "add.u64 %%from, %%from, %%off;\nadd.u64 %%to, %%to, %%off;");
	for (unsigned k = 0; k < a->vec; k++) {
		aq_text(&text, "ld.global.%c%u %%v%u, [%%mine+%llu];", kind, a->reg_bits, k,
			(unsigned long long)(VALUES + 8 * k));
		aq_text(&text, "ld.global.%c%u %%r%u, [%%mine+%llu];", kind, a->reg_bits, k,
			(unsigned long long)(OUT + 8 * k));
	}
	aq_text(&text, "@%%on ld%s%s.%s %s, [%%from];", a->space->name, suffix, a->name,
		vector(a, 'r'));
	aq_text(&text, "@%%on st%s%s.%s [%%to], %s;", a->space->name, suffix, a->name,
		vector(a, 'v'));
	for (unsigned k = 0; k < a->vec; k++)
		aq_text(&text, "st.global.%c%u [%%mine+%llu], %%r%u;", kind, a->reg_bits,
			(unsigned long long)(OUT + 8 * k), k);
	if (shared) {
		aq_text(&text, "bar.sync 0;\nmul.wide.u32 %%off, %%gid, 16;\nmov.u64 %%t64, to;");
		aq_text(&text, "add.u64 %%t64, %%t64, %%off;\nadd.u64 %%to, %%base, %%off;");
		for (unsigned k = 0; k < 16; k += 8)
			aq_text(&text,
				"ld.shared.b64 %%w, [%%t64+%u];\nst.global.b64 [%%to+%llu], %%w;",
				k, (unsigned long long)TO + k);
	}
	aq_text_end(&text);
}

/* An element that several threads store to holds what one of them stored. */
static void check_pattern(const struct access *a, enum pattern p)
{
	const uint8_t *mem = aq_test_device.mem;
	const unsigned size = a->type.bits / 8;

	for (unsigned t = 0; t < THREADS; t++) {
		const bool on = aq_test_words(INDEX)[t] >> 32;
		bool stored = false, right = false;

		for (unsigned k = 0; k < a->vec; k++) {
			uint64_t got = 0;
			const uint64_t want =
				on ? extended(a,
					      mem + IN + element_of(p, t) * bytes_of(a) + k * size)
				   : 0x1111111111111111 & (UINT64_MAX >> (64 - a->reg_bits));

			memcpy(&got, mem + OUT + t * AREA + 8 * k, a->reg_bits / 8);
			if (got != want)
				fail_msg(
					"pattern %d, thread %u, element %u: %llx instead of %llx\n%s",
					p, t, k, (unsigned long long)got, (unsigned long long)want,
					aq_strbuf_text(&text));
		}
		/* element t of TO */
		for (unsigned by = 0; by < THREADS; by++) {
			uint8_t value[16];

			if (element_of(p, by) != t || !(aq_test_words(INDEX)[by] >> 32))
				continue;
			for (unsigned k = 0; k < a->vec; k++)
				memcpy(value + k * size, mem + VALUES + by * AREA + 8 * k, size);
			stored = true;
			right |= memcmp(value, mem + TO + t * bytes_of(a), bytes_of(a)) == 0;
		}
		for (unsigned k = 0; k < bytes_of(a) && !stored; k++)
			if (mem[TO + t * bytes_of(a) + k] != 0x44)
				fail_msg("pattern %d: element %u was overwritten\n%s", p, t,
					 aq_strbuf_text(&text));
		if (stored && !right)
			fail_msg("pattern %d: element %u is wrong\n%s", p, t,
				 aq_strbuf_text(&text));
	}
}

static void try_patterns(const struct access *a, bool shared)
{
	make_pattern_kernel(a, shared);
	for (int p = 0; p < N_PATTERNS; p++)
		for (int some = 0; some < 2; some++) {
			fill();
			memset(aq_test_device.mem + TO, 0x44, MAX_BYTES);
			for (unsigned t = 0; t < THREADS; t++)
				aq_test_words(INDEX)[t] = element_of((enum pattern)p, t) |
							  (uint64_t)(!some || t % 3 != 1) << 32;
			aq_text_run(&text, 1, THREADS, NULL);
			check_pattern(a, (enum pattern)p);
		}
}

static void test_patterns(void **state)
{
	static const struct {
		struct space space;
		bool shared;
	} where[] = {
		{ { ".global", NULL, NULL, true }, false },
		{ { "", NULL, NULL, true }, false },
		{ { ".shared", NULL, NULL, true }, true },
		{ { "", NULL, NULL, true }, true },
	};

	(void)state;
	for (size_t s = 0; s < AQ_ARRAY_SIZE(where); s++)
		for (size_t t = 0; t < AQ_ARRAY_SIZE(types); t++)
			for (unsigned vec = 1; vec <= 4; vec *= 2)
				for (unsigned reg = 32; reg <= 64; reg *= 2) {
					const struct access a = { &where[s].space, types[t],
								  aq_form_type(types[t]), vec,
								  reg };

					if (reg < a.type.bits || bytes_of(&a) > 16 ||
					    (a.type.kind == 'f' && reg != a.type.bits))
						continue;
					try_patterns(&a, where[s].shared);
				}
	aq_strbuf_done(&text);
}

/* Parameters of a kernel: named, with offsets, through a pointer, and by a generic address. */
static void test_param(void **state)
{
	struct {
		uint64_t base;
		uint8_t block[24];
		uint16_t half;
		float number;
	} p = { AQ_DEVICE_BASE,
		{ 1, 2, 3, 0xfc, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0x90 },
		0xbeef,
		1.5f };
	const uint64_t *out = aq_test_words(0);

	(void)state;
	aq_text_begin(
		&text,
		".param .u64 base, .param .align 8 .b8 blk[24], .param .u16 half, .param .f32 num");
	aq_text_prologue(&text);
	aq_text(&text,
		".reg .u64 %%a<8>; .reg .u32 %%w<4>; .reg .u16 %%h; .reg .f32 %%f; .reg .s32 %%s;");
	aq_text(&text, "ld.param.u64 %%a0, [blk+8];\nst.global.u64 [%%base], %%a0;");
	aq_text(&text, "ld.param.s8 %%s, [blk+3];\nst.global.s32 [%%base+8], %%s;");
	aq_text(&text, "ld.param.v2.u32 {%%w0, %%w1}, [blk];\nst.global.u32 [%%base+16], %%w1;");
	aq_text(&text, "ld.param.u16 %%h, [half];\nst.global.u16 [%%base+24], %%h;");
	aq_text(&text, "ld.param.f32 %%f, [num];\nst.global.f32 [%%base+32], %%f;");
	aq_text(&text,
		"mov.b64 %%a1, blk;\nld.param.u8 %%w2, [%%a1+15];\nst.global.u32 [%%base+40], %%w2;");
	aq_text(&text,
		"cvta.param.u64 %%a2, %%a1;\nld.u16 %%h, [%%a2+4];\nst.global.u16 [%%base+48], %%h;");
	aq_text_end(&text);
	aq_text_run(&text, 1, 1, &p);
	assert_int_equal(out[0], 0x900f0e0d0c0b0a09);
	assert_int_equal(out[1], 0xfffffffc);
	assert_int_equal(out[2], 0x08070605);
	assert_int_equal(out[3], 0xbeef);
	assert_int_equal(out[4], 0x3fc00000);
	assert_int_equal(out[5], 0x90);
	assert_int_equal(out[6], 0x0605);
	aq_strbuf_done(&text);
}

/* Modifiers of order and caching change no result of one thread. */
static void test_access_modifiers(void **state)
{
	static const char *const loads[] = {
		"ld.global.ca",
		"ld.global.cg",
		"ld.global.cs",
		"ld.global.lu",
		"ld.global.cv",
		"ld.global.nc",
		"ld.volatile.global",
		"ld.relaxed.gpu.global",
		"ld.acquire.sys.global",
		"ld.weak.global",
		"ldu.global",
		"ld.global.L1::evict_last",
		"ld.global.L2::128B",
		"ld.global.nc.L1::no_allocate",
		"ld.volatile",
		"ld.relaxed.cta",
	};
	static const char *const stores[] = {
		"st.global.wb",		 "st.global.cg",       "st.global.cs",
		"st.global.wt",		 "st.volatile.global", "st.relaxed.gpu.global",
		"st.release.sys.global", "st.weak.global",     "st.volatile",
	};

	(void)state;
	for (size_t k = 0; k < AQ_MAX(AQ_ARRAY_SIZE(loads), AQ_ARRAY_SIZE(stores)); k++) {
		aq_test_words(0)[0] = 1000 + k;
		aq_text_begin(&text, ".param .u64 base");
		aq_text_prologue(&text);
		aq_text(&text, "%s.u32 %%t32, [%%base];", loads[k % AQ_ARRAY_SIZE(loads)]);
		aq_text(&text, "%s.u32 [%%base+8], %%t32;", stores[k % AQ_ARRAY_SIZE(stores)]);
		aq_text_end(&text);
		aq_text_run(&text, 1, 1, NULL);
		assert_int_equal(aq_test_words(0)[1], 1000 + k);
	}
	aq_strbuf_done(&text);
}

/* Faults are told with their address and line, and what cannot be is refused. */
static void test_bad_access(void **state)
{
	static const struct {
		const char *text;
		enum aq_status status;
	} faults[] = {
		{ "ld.global.u32 %t32, [%base+0x7fffff0];", AQ_E_ILLEGAL_ADDRESS },
		{ "ld.u32 %t32, [%base+0x7fffff0];", AQ_E_ILLEGAL_ADDRESS },
		{ "st.global.u32 [%base+0x7fffff0], %t32;", AQ_E_ILLEGAL_ADDRESS },
		{ "mov.u64 %t64, 0; ld.u32 %t32, [%t64];", AQ_E_ILLEGAL_ADDRESS },
		{ "mov.u64 %t64, 0; st.u32 [%t64], %t32;", AQ_E_ILLEGAL_ADDRESS },
		{ "ld.global.u32 %t32, [%base+2];", AQ_E_MISALIGNED },
		{ "ld.global.v2.u32 {%t32, %gid}, [%base+4];", AQ_E_MISALIGNED },
		{ "st.global.u64 [%base+4], %t64;", AQ_E_MISALIGNED },
		{ "atom.global.add.u32 %t32, [%base+2], 1;", AQ_E_MISALIGNED },
	};
	static const char *const refused[] = {
		"ld.global.v4.u64 {%t64, %at, %base, %t64}, [%base];",
		"st.const.u32 [%base], %t32;",
		"st.param.u32 [base], %t32;",
		"ld.global.u32 %t32;",
		"ld.global.f16x3 %t32, [%base];",
		"ld.global.u64 %t32, [%base];",
		"ld.global.v2.u32 {%t32, %t32}, [%base];",
		"ld.global.nosuch.u32 %t32, [%base];",
	};

	(void)state;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(faults); k++) {
		const uint64_t base = AQ_DEVICE_BASE;
		enum aq_status status;

		aq_text_begin(&text, ".param .u64 base");
		aq_text_prologue(&text);
		aq_text(&text, "%s", faults[k].text);
		aq_text_end(&text);
		status = aq_device_run(&aq_test_device, aq_strbuf_text(&text), 1, 1, &base);
		if (status != faults[k].status)
			fail_msg("%s gives %d", faults[k].text, status);
	}
	for (size_t k = 0; k < AQ_ARRAY_SIZE(refused); k++) {
		aq_text_begin(&text, ".param .u64 base");
		aq_text_prologue(&text);
		aq_text(&text, "%s", refused[k]);
		aq_text_end(&text);
		aq_text_refused(&text);
	}
	aq_strbuf_done(&text);
}

/* An address of each space, seen by isspacep, there and back through cvta. */
static void test_address_spaces(void **state)
{
	static const char *const names[] = { "global", "shared", "local", "const" };

	(void)state;
	aq_text_begin(&text, NULL);
	aq_text(&text, ".global .u32 g = 5; .const .u32 c = 7;");
	aq_text(&text, ".visible .entry k(.param .u64 base)\n{ .shared .u32 s; .local .u32 l;");
	aq_text_prologue(&text);
	aq_text(&text, ".reg .u64 %%a<4>, %%n<4>; .reg .pred %%p;");
	aq_text(&text, "mov.u64 %%n0, g;\nmov.u64 %%n1, s;\nmov.u64 %%n2, l;\nmov.u64 %%n3, c;");
	for (int k = 0; k < 4; k++) {
		aq_text(&text, "cvta.%s.u64 %%a%d, %%n%d;\ncvta.to.%s.u64 %%t64, %%a%d;", names[k],
			k, k, names[k], k);
		aq_text(&text, "sub.u64 %%t64, %%t64, %%n%d;\nst.global.u64 [%%base+%d], %%t64;", k,
			8 * k);
		for (int j = 0; j < 4; j++) {
			aq_text(&text, "isspacep.%s %%p, %%a%d;\nselp.u32 %%t32, 1, 0, %%p;",
				names[j], k);
			aq_text(&text, "st.global.u32 [%%base+%d], %%t32;", 64 + 8 * (4 * k + j));
		}
	}
	aq_text_end(&text);
	memset(aq_test_words(0), 0xff, 256);
	aq_text_run(&text, 1, 1, NULL);
	for (int k = 0; k < 4; k++) {
		assert_int_equal(aq_test_words(0)[k], 0);
		for (int j = 0; j < 4; j++)
			/* constant memory is part of global memory here and says so too */
			if (!(k == 3 && j == 0) && !(k == 0 && j == 3))
				assert_int_equal((uint32_t)aq_test_words(64)[4 * k + j], k == j);
	}
	aq_strbuf_done(&text);
}

static void test_mov_vectors(void **state)
{
	uint64_t *m = aq_test_words(0);

	(void)state;
	m[0] = 0x8899aabbccddeeff;
	aq_text_begin(&text, ".param .u64 base");
	aq_text_prologue(&text);
	aq_text(&text,
		".reg .b32 %%lo, %%hi; .reg .b16 %%h<4>; .reg .b64 %%d; .reg .b32 %%w; .reg .b8 %%b<4>;");
	aq_text(&text, "ld.global.b64 %%d, [%%base];");
	aq_text(&text,
		"mov.b64 {%%lo, %%hi}, %%d;\nmov.b64 %%d, {%%hi, %%lo};\nst.global.b64 [%%base+8], %%d;");
	aq_text(&text,
		"mov.b64 {%%h0, %%h1, %%h2, %%h3}, %%d;\nmov.b64 %%d, {%%h3, %%h2, %%h1, %%h0};");
	aq_text(&text, "st.global.b64 [%%base+16], %%d;");
	aq_text(&text,
		"mov.b32 {%%h0, %%h1}, %%lo;\nmov.b32 %%w, {%%h1, %%h0};\nst.global.b32 [%%base+24], %%w;");
	aq_text(&text, "mov.b64 {_, %%hi}, %%d;\nst.global.b32 [%%base+32], %%hi;");
	aq_text(&text, "mov.b64 %%d, {%%lo, 7};\nst.global.b64 [%%base+40], %%d;");
	aq_text_end(&text);
	aq_text_run(&text, 1, 1, NULL);
	assert_int_equal(m[1], 0xccddeeff8899aabb);
	assert_int_equal(m[2], 0xaabb8899eeffccdd);
	assert_int_equal(m[3], 0xeeffccdd);
	assert_int_equal(m[4], 0xaabb8899);
	assert_int_equal(m[5], 0x7ccddeeff);
	aq_strbuf_done(&text);
}

/* A conversion into a wider register extends by the type; from one, it takes the low part. */
static void test_wide_registers(void **state)
{
	static const struct {
		const char *insn;
		uint64_t in, out;
	} cases[] = {
		{ "cvt.s8.s32", 0x1ff, UINT64_MAX },
		{ "cvt.u8.s32", 0x1ff, 0xff },
		{ "cvt.s16.s64", 0x18000, 0xffffffffffff8000 },
		{ "cvt.u16.u64", 0x18000, 0x8000 },
		{ "cvt.s32.s64", 0x180000000, 0xffffffff80000000 },
		{ "cvt.u32.u64", 0x180000000, 0x80000000 },
		{ "cvt.s64.s32", 0x180000000, 0xffffffff80000000 },
		{ "cvt.u64.u8", 0xffffffffffffff80, 0x80 },
		{ "cvt.s64.s8", 0x80, 0xffffffffffffff80 },
		{ "cvt.sat.u8.s64", 300, 255 },
		{ "cvt.sat.s8.s64", (uint64_t)-300, (uint64_t)-128 },
	};

	(void)state;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(cases); k++) {
		aq_test_words(0)[0] = cases[k].in;
		aq_text_begin(&text, ".param .u64 base");
		aq_text_prologue(&text);
		aq_text(&text, ".reg .b64 %%d, %%s;\nld.global.b64 %%s, [%%base];");
		aq_text(&text, "%s %%d, %%s;\nst.global.b64 [%%base+8], %%d;", cases[k].insn);
		aq_text_end(&text);
		aq_text_run(&text, 1, 1, NULL);
		if (aq_test_words(0)[1] != cases[k].out)
			fail_msg("%s of %llx gives %llx", cases[k].insn,
				 (unsigned long long)cases[k].in,
				 (unsigned long long)aq_test_words(0)[1]);
	}
	aq_strbuf_done(&text);
}

/* Constants as operands: as wide and of the kind that the instruction wants. */
static void test_constants(void **state)
{
	static const struct {
		const char *type, *insn;
		uint64_t out;
	} cases[] = {
		{ "u32", "add.u32 %d, 5, -6;", 0xffffffff },
		{ "s32", "add.s32 %d, -7, 0x10;", 9 },
		{ "u64", "add.u64 %d, 0x100000000, -1;", 0xffffffff },
		{ "u16", "add.u16 %d, 0xffff, 2;", 1 },
		{ "f32", "add.f32 %d, 1.0, 2.5;", 0x40600000 },
		{ "f32", "add.f32 %d, 0f3F800000, 0f40200000;", 0x40600000 },
		{ "f32", "mul.f32 %d, 0.1, 1.0;", 0x3dcccccd },
		{ "f64", "add.f64 %d, 0d3FF0000000000000, 2.5;", 0x400c000000000000 },
		{ "f64", "mul.f64 %d, 0.1, 1.0;", 0x3fb999999999999a },
		{ "b32", "mov.b32 %d, 0f3F800000;", 0x3f800000 },
		{ "f32", "mov.f32 %d, 2.0;", 0x40000000 },
		{ "b64", "mov.b64 %d, 0d3FF0000000000000;", 0x3ff0000000000000 },
		{ "u32", "shl.b32 %d, 3, 4;", 48 },
		{ "s64", "mul.wide.s32 %d, -3, 4;", (uint64_t)-12 },
		{ "u32", "lop3.b32 %d, 0xf0, 0xcc, 0xaa, 0x96;", 0x96 },
		{ "u32", "bfe.u32 %d, 0xabcd, 4, 8;", 0xbc },
		{ "u32", "mad.lo.u32 %d, 3, 4, 5;", 17 },
		{ "u32", "mad.lo.u32 %d, (1 << 4) + 2, 2, ~0;", 35 },
	};

	(void)state;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(cases); k++) {
		const unsigned bits = aq_form_type(cases[k].type).bits;

		aq_test_words(0)[0] = 0;
		aq_text_begin(&text, ".param .u64 base");
		aq_text_prologue(&text);
		aq_text(&text, ".reg .%s %%d;\n%s\nst.global.b%u [%%base], %%d;", cases[k].type,
			cases[k].insn, bits);
		aq_text_end(&text);
		aq_text_run(&text, 1, 32, NULL);
		if (aq_test_words(0)[0] != cases[k].out)
			fail_msg("%s gives %llx", cases[k].insn,
				 (unsigned long long)aq_test_words(0)[0]);
	}
	aq_strbuf_done(&text);
}

static void without_effect(const char *const *lines, size_t n)
{
	aq_text_begin(&text, ".param .u64 base");
	aq_text_prologue(&text);
	aq_text(&text, "st.global.u32 [%%at], %%gid;");
	for (size_t k = 0; k < n; k++)
		aq_text(&text, "%s", lines[k]);
	aq_text(&text,
		"ld.global.u32 %%t32, [%%at];\nadd.u32 %%t32, %%t32, 1;\nst.global.u32 [%%at], %%t32;");
	aq_text_end(&text);
	aq_text_run(&text, 1, 64, NULL);
	for (unsigned t = 0; t < 64; t++)
		assert_int_equal(aq_test_words(0)[t], t + 1);
	aq_strbuf_done(&text);
}

static void test_fences(void **state)
{
	static const char *const lines[] = {
		"membar.cta;",	      "membar.gl;",	    "membar.sys;",   "fence.sc.gpu;",
		"fence.acq_rel.cta;", "fence.acq_rel.sys;", "fence.sc.cta;", "fence.proxy.alias;",
	};

	(void)state;
	without_effect(lines, AQ_ARRAY_SIZE(lines));
}

static void test_hints(void **state)
{
	static const char *const lines[] = {
		"prefetch.global.L1 [%at];",
		"prefetch.global.L2 [%at];",
		"prefetch.L1 [%at];",
		"prefetchu.L1 [%at];",
		"applypriority.global.L2::evict_normal [%at], 128;",
		"prefetch.global.L2 [%at+0x70000000];",
	};

	(void)state;
	without_effect(lines, AQ_ARRAY_SIZE(lines));
}

static void test_discard(void **state)
{
	(void)state;
	aq_text_begin(&text, ".param .u64 base");
	aq_text_prologue(&text);
	aq_text(&text, "discard.global.L2 [%%base+128], 128;\nst.global.u32 [%%base], 3;");
	aq_text_end(&text);
	aq_text_run(&text, 1, 1, NULL);
	assert_int_equal(aq_test_words(0)[0], 3);
	aq_strbuf_done(&text);
}

/* Copies into shared memory, whole and with a tail of zeros. */
static void test_copy_async(void **state)
{
	static const struct {
		const char *insn;
		unsigned size, have;
	} cases[] = {
		{ "cp.async.ca.shared.global [%s], [%base], 4;", 4, 4 },
		{ "cp.async.ca.shared::cta.global [%s], [%base], 8;", 8, 8 },
		{ "cp.async.cg.shared.global [%s+16], [%base+16], 16;", 16, 16 },
		{ "cp.async.ca.shared.global.L2::128B [%s], [%base], 16;", 16, 16 },
		{ "cp.async.ca.shared.global [%s], [%base], 16, 5;", 16, 5 },
		{ "mov.u32 %t32, 0; cp.async.ca.shared.global [%s], [%base], 8, %t32;", 8, 0 },
		{ "@!%p cp.async.ca.shared.global [%s], [%base], 8; @%p cp.async.ca.shared.global [%s], [%base], 4;",
		  8, 8 },
	};
	uint8_t *mem = aq_test_device.mem;

	(void)state;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(cases); k++) {
		const unsigned at = strstr(cases[k].insn, "+16") ? 16 : 0;
		uint8_t want[32];

		for (unsigned n = 0; n < 32; n++)
			mem[n] = (uint8_t)(100 + n);
		memset(want, 0xee, sizeof(want));
		memset(want + at, 0, cases[k].size);
		memcpy(want + at, mem + at, cases[k].have);
		aq_text_begin(&text, ".param .u64 base");
		aq_text(&text, ".shared .align 16 .b8 mem[32];");
		aq_text_prologue(&text);
		aq_text(&text,
			".reg .u64 %%s; .reg .pred %%p;\nmov.u64 %%s, mem;\nsetp.ne.u32 %%p, 0, 0;");
		for (unsigned n = 0; n < 32; n += 8)
			aq_text(&text,
				"mov.u64 %%t64, 0xeeeeeeeeeeeeeeee;\nst.shared.u64 [%%s+%u], %%t64;",
				n);
		aq_text(&text,
			"%s\ncp.async.commit_group;\ncp.async.wait_group 0;\ncp.async.wait_all;",
			cases[k].insn);
		for (unsigned n = 0; n < 32; n += 8)
			aq_text(&text,
				"ld.shared.u64 %%t64, [%%s+%u];\nst.global.u64 [%%base+%u], %%t64;",
				n, 64 + n);
		aq_text_end(&text);
		aq_text_run(&text, 1, 1, NULL);
		if (memcmp(mem + 64, want, 32) != 0)
			fail_msg("%s copies something else", cases[k].insn);
	}
	aq_strbuf_done(&text);
}

const struct aq_operation aq_operations_memory[] = {
	{ "ld", test_load_store },
	{ "st", test_load_store },
	{ "ld", test_patterns },
	{ "ld", test_param },
	{ "ldu", test_access_modifiers },
	{ "ld", test_bad_access },
	{ "cvta", test_address_spaces },
	{ "isspacep", test_address_spaces },
	{ "mov", test_mov_vectors },
	{ "cvt", test_wide_registers },
	{ "constants", test_constants },
	{ "membar", test_fences },
	{ "fence", test_fences },
	{ "prefetch", test_hints },
	{ "prefetchu", test_hints },
	{ "applypriority", test_hints },
	{ "discard", test_discard },
	{ "cp", test_copy_async },
	{ 0 },
};
