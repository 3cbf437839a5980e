/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every arithmetic instruction in every form that PTX has and the interpreter takes, over operands that are hard, against a reference of
 * its own: first each handler alone, of every level of the architecture that this machine has, then the same in kernels. Half of the runs
 * have lanes switched off, which must keep what they had.
 */
#include "device.h"
#include "gpud/soft/exec/alu.h"
#include "isa.h"
#include "ref.h"
#include "values.h"

#include "base/macro.h"
#include "util/strbuf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_LANES 4096
#define BLOCK	  128
#define SENTINEL  0xa5

typedef aq_alu_fn (*select_fn)(const struct aq_ptx_insn *in, struct aq_alu_shape *ret_shape,
			       const char **ret_why);

/* One form at work. */
struct batch {
	struct aq_form form;
	struct aq_ref_sig sig;
	size_t n;
	struct aq_ref_lane lanes[MAX_LANES];
	struct aq_ref_result results[MAX_LANES];
	bool on[MAX_LANES];
};

static struct batch batch;
static struct aq_device device;
static struct aq_strbuf kernel;
static unsigned n_failures;
static uint64_t seed;

static bool is_wide(struct aq_form_type t)
{
	return t.bits == 64;
}

/* --- operands --- */

/* Pairs of corners where they fit, else corners and random values mixed. */
static uint64_t pick(struct aq_form_type type, size_t lane, unsigned src, unsigned n_src)
{
	size_t corners;

	(void)aq_values_get(type, 0, &seed, &corners);
	if (n_src == 1)
		return aq_values_get(type, lane, &seed, NULL);
	if (n_src == 2 && corners * corners <= batch.n && lane < corners * corners)
		return aq_values_get(type, src ? lane / corners : lane % corners, &seed, NULL);
	if (aq_values_random(&seed) % 8 < 5)
		return aq_values_get(type, aq_values_random(&seed) % corners, &seed, NULL);
	return aq_values_get(type, corners, &seed, NULL);
}

static void make_lanes(struct batch *b)
{
	const char *name = b->form.name;
	const bool many_forms =
		strcmp(name, "setp") == 0 || strcmp(name, "set") == 0 || strcmp(name, "cvt") == 0;

	b->n = many_forms ? 512 : MAX_LANES;
	for (size_t l = 0; l < b->n; l++) {
		struct aq_ref_lane *lane = &b->lanes[l];

		memset(lane, 0, sizeof(*lane));
		for (unsigned k = 0; k < b->sig.n_src; k++)
			lane->src[k] = pick(b->sig.src[k], l, k, b->sig.n_src);
		lane->constant = l % AQ_LANES ? lane[-1].constant : aq_values_random(&seed) & 0xff;
		lane->carry_in = b->sig.carry && aq_values_random(&seed) & 1;
		b->on[l] = l / AQ_LANES % 2 == 0 || aq_values_random(&seed) & 1;
	}
}

static void check_lane(const struct batch *b, size_t l, const char *where)
{
	const struct aq_ref_lane *lane = &b->lanes[l];
	struct aq_ref_result want;

	if (aq_ref_check(&b->form, &b->sig, lane, &b->results[l], &want))
		return;
	if (++n_failures > 20)
		return;
	print_error("%s.%s%s (%s), lane %zu:", b->form.name, b->form.text, b->form.pair ? " |" : "",
		    where, l);
	for (unsigned k = 0; k < b->sig.n_src; k++)
		print_error(" %016llx", (unsigned long long)lane->src[k]);
	if (b->sig.constant)
		print_error(" constant %02x", lane->constant);
	print_error(" carry %d gives %llx|%llx carry %d instead of %llx|%llx carry %d\n",
		    lane->carry_in, (unsigned long long)b->results[l].dst,
		    (unsigned long long)b->results[l].dst2, b->results[l].carry_out,
		    (unsigned long long)want.dst, (unsigned long long)want.dst2, want.carry_out);
}

static void fail_lane(const struct batch *b, size_t l, const char *where, const char *what)
{
	if (++n_failures <= 20)
		print_error("%s.%s (%s), lane %zu: %s\n", b->form.name, b->form.text, where, l,
			    what);
}

/* --- handlers alone --- */

struct frame {
	_Alignas(64) uint8_t src[AQ_REF_MAX_SRC][256];
	_Alignas(64) uint8_t dst[256];
	_Alignas(64) uint8_t dst2[64];
};

static void insn_of(const struct aq_form *f, struct aq_ptx_insn *in)
{
	memset(in, 0, sizeof(*in));
	in->name = f->name;
	in->n_mods = (uint8_t)f->n_mods;
	for (unsigned k = 0; k < f->n_mods; k++)
		in->mods[k] = f->mods[k];
	in->n_operands = 1;
	in->operands[0].has_pair = f->pair;
}

static void put(uint8_t *row, struct aq_form_type t, unsigned lane, uint64_t v)
{
	uint32_t v32 = (uint32_t)v;

	if (t.kind == 'p') {
		uint32_t word;

		memcpy(&word, row, 4);
		word = (word & ~(1u << lane)) | (uint32_t)(v & 1) << lane;
		memcpy(row, &word, 4);
	} else if (is_wide(t)) {
		memcpy(row + (size_t)8 * lane, &v, 8);
	} else {
		memcpy(row + (size_t)4 * lane, &v32, 4);
	}
}

static uint64_t get(const uint8_t *row, struct aq_form_type t, unsigned lane)
{
	uint64_t v = 0;

	if (t.kind == 'p') {
		memcpy(&v, row, 4);
		return v >> lane & 1;
	}
	memcpy(&v, row + (size_t)(is_wide(t) ? 8 : 4) * lane, is_wide(t) ? 8 : 4);
	return v;
}

static void fill_frame(struct frame *f, const struct batch *b, size_t first, uint32_t *ret_mask,
		       uint32_t *ret_carry)
{
	memset(f, SENTINEL, sizeof(*f));
	*ret_mask = *ret_carry = 0;
	for (unsigned l = 0; l < AQ_LANES; l++) {
		for (unsigned k = 0; k < b->sig.n_src; k++)
			put(f->src[k], b->sig.src[k], l, b->lanes[first + l].src[k]);
		*ret_mask |= (uint32_t)b->on[first + l] << l;
		*ret_carry |= (uint32_t)b->lanes[first + l].carry_in << l;
	}
}

/* What a result is before anything was written. */
static uint64_t sentinel_of(struct aq_form_type t, unsigned lane)
{
	uint8_t row[256];

	memset(row, SENTINEL, sizeof(row));
	return get(row, t, lane);
}

#define AT(member) ((uint32_t)offsetof(struct frame, member))

/* A row of lanes through the handler, checked; once more with the result over the first source. */
static void run_row(struct batch *b, aq_alu_fn fn, size_t first, const char *where)
{
	struct frame f;
	struct aq_regs r = { .base = { (uint8_t *)&f, NULL } };
	struct aq_insn i = { .fn.alu = fn, .dst = AT(dst), .dst2 = AT(dst2) };
	const struct aq_form_type dst = b->sig.dst, dst2 = b->sig.dst2;
	uint32_t mask, carry;

	fill_frame(&f, b, first, &mask, &carry);
	i.a = AT(src[0]);
	i.b = AT(src[1]);
	i.c = AT(src[2]);
	i.d = AT(src[3]);
	i.imm = b->lanes[first].constant;
	r.cc = carry;
	fn(&r, &i, mask);
	for (unsigned l = 0; l < AQ_LANES; l++) {
		struct aq_ref_result *res = &b->results[first + l];

		res->dst = get(f.dst, dst, l);
		res->dst2 = dst2.kind ? get(f.dst2, dst2, l) : 0;
		res->carry_out = r.cc >> l & 1;
		if (mask >> l & 1)
			check_lane(b, first + l, where);
		else if (res->dst != sentinel_of(dst, l) || res->carry_out != (carry >> l & 1))
			fail_lane(b, first + l, where, "is off, but changed");
	}
	if (is_wide(b->sig.src[0]) != is_wide(dst) ||
	    (b->sig.src[0].kind == 'p') != (dst.kind == 'p'))
		return;
	i.dst = i.a;
	r.cc = carry;
	fn(&r, &i, mask);
	for (unsigned l = 0; l < AQ_LANES; l++)
		if (mask >> l & 1 && get(f.src[0], dst, l) != b->results[first + l].dst)
			fail_lane(b, first + l, where, "differs when the result is also a source");
}

/* Has the handler's shape the operands that the form has? */
static bool shape_is_right(const struct batch *b, const struct aq_alu_shape *s)
{
	const struct aq_ref_sig *sig = &b->sig;
	bool ok = s->n_src == sig->n_src + sig->constant && s->n_opt == 0 &&
		  s->imm_src == (sig->constant ? 3 : -1) &&
		  s->relaxed == (strcmp(b->form.name, "cvt") == 0);

	for (unsigned k = 0, from = 0; ok && k < sig->n_src; k++, from++) {
		if (s->imm_src == (int)from)
			from++;
		ok = (sig->src[k].kind == 'p') == (s->src[from] == AQ_PTX_PRED) &&
		     (sig->src[k].kind == 'f') ==
			     (s->src[from] == AQ_PTX_F32 || s->src[from] == AQ_PTX_F64) &&
		     aq_ptx_type_size((enum aq_ptx_type)s->src[from]) == sig->src[k].bits / 8;
	}
	return ok && aq_ptx_type_size((enum aq_ptx_type)s->dst) == sig->dst.bits / 8 &&
	       (sig->dst2.kind == 'p') == (s->dst2 == AQ_PTX_PRED);
}

static void run_alone(struct batch *b, select_fn select, const char *where)
{
	struct aq_alu_shape shape;
	struct aq_ptx_insn in;
	const char *why = NULL;
	aq_alu_fn fn;

	insn_of(&b->form, &in);
	fn = select(&in, &shape, &why);
	if (!fn) {
		n_failures++;
		print_error("%s.%s (%s) is not there: %s\n", b->form.name, b->form.text, where,
			    why ? why : "unknown");
		return;
	}
	if (!shape_is_right(b, &shape)) {
		n_failures++;
		print_error("%s.%s (%s) has the wrong operands\n", b->form.name, b->form.text,
			    where);
	}
	for (size_t l = 0; l + AQ_LANES <= b->n; l += AQ_LANES)
		run_row(b, fn, l, where);
}

/* --- in kernels --- */

/* The registers a kernel has for an operand: of its type; for a byte, wider ones, as PTX wants it. */
static const char *reg_type(struct aq_form_type t)
{
	static char names[4][8];
	static unsigned next;
	char *name = names[next++ % 4];

	if (t.kind == 'p')
		return "pred";
	(void)snprintf(name, sizeof(names[0]), "%c%u", t.kind == 'x' ? 'b' : t.kind,
		       t.bits == 8 ? 32u : t.bits);
	return name;
}

static unsigned reg_bits(struct aq_form_type t)
{
	return t.bits == 8 ? 32 : t.bits;
}

static void add(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	aq_strbuf_printf(&kernel, "%s\n", line);
}

/* Arrays of 8 bytes an element: sources, "on", carry; then results, second results, carries. */
enum array {
	ARRAY_ON = AQ_REF_MAX_SRC,
	ARRAY_CARRY,
	ARRAY_DST,
	ARRAY_DST2,
	ARRAY_CARRY_OUT,
	N_ARRAYS
};

#define OFFSET(array) ((unsigned)(array)*MAX_LANES * 8u)

static void add_load(const char *reg, struct aq_form_type t, unsigned array)
{
	if (t.kind == 'p') {
		add("ld.global.u32 %%t, [%%at+%u];", OFFSET(array));
		add("setp.ne.u32 %s, %%t, 0;", reg);
	} else {
		add("ld.global.%s %s, [%%at+%u];", reg_type(t), reg, OFFSET(array));
	}
}

static void add_store(const char *reg, struct aq_form_type t, unsigned array)
{
	if (t.kind == 'p') {
		add("selp.u32 %%t, 1, 0, %s;", reg);
		add("st.global.u32 [%%at+%u], %%t;", OFFSET(array));
	} else {
		add("st.global.b%u [%%at+%u], %s;", reg_bits(t), OFFSET(array), reg);
	}
}

static void add_insn(const struct batch *b, uint32_t constant)
{
	char line[200];
	int n = snprintf(line, sizeof(line), "@%%on %s.%s %%d%s", b->form.name, b->form.text,
			 b->sig.dst2.kind ? "|%e" : "");

	for (unsigned k = 0; k < b->sig.n_src; k++) {
		if (b->sig.constant && k == 3)
			n += snprintf(line + n, sizeof(line) - (size_t)n, ", %u", constant);
		n += snprintf(line + n, sizeof(line) - (size_t)n, ", %%s%u", k);
	}
	if (b->sig.constant && b->sig.n_src == 3)
		n += snprintf(line + n, sizeof(line) - (size_t)n, ", %u", constant);
	add("%s;", line);
}

static void make_kernel(const struct batch *b, uint32_t constant)
{
	const struct aq_ref_sig *sig = &b->sig;
	const struct aq_form_type flag = { 'p', 1 };
	char reg[8];

	aq_strbuf_done(&kernel);
	add(".version 8.6\n.target sm_90\n.address_size 64");
	add(".visible .entry k(.param .u64 base)\n{");
	add(".reg .pred %%on, %%c; .reg .u32 %%t, %%x; .reg .u64 %%at, %%w;");
	add(".reg .%s %%d;", reg_type(sig->dst));
	if (sig->dst2.kind)
		add(".reg .pred %%e;");
	for (unsigned k = 0; k < sig->n_src; k++)
		add(".reg .%s %%s%u;", reg_type(sig->src[k]), k);
	add("mov.u32 %%t, %%ctaid.x;\nmov.u32 %%x, %%ntid.x;\nmul.lo.u32 %%t, %%t, %%x;");
	add("mov.u32 %%x, %%tid.x;\nadd.u32 %%t, %%t, %%x;\nmul.wide.u32 %%w, %%t, 8;");
	add("ld.param.u64 %%at, [base];\nadd.u64 %%at, %%at, %%w;");
	for (unsigned k = 0; k < sig->n_src; k++) {
		(void)snprintf(reg, sizeof(reg), "%%s%u", k);
		add_load(reg, sig->src[k], k);
	}
	add_load("%on", flag, ARRAY_ON);
	add_load("%d", sig->dst, ARRAY_DST);
	if (sig->dst2.kind)
		add_load("%e", flag, ARRAY_DST2);
	if (sig->carry) {
		add("ld.global.u32 %%t, [%%at+%u];", OFFSET(ARRAY_CARRY));
		add("add.cc.u32 %%t, %%t, 0xffffffff;");
	}
	add_insn(b, constant);
	if (sig->carry) {
		add("addc.u32 %%t, 0, 0;");
		add("st.global.u32 [%%at+%u], %%t;", OFFSET(ARRAY_CARRY_OUT));
	}
	add_store("%d", sig->dst, ARRAY_DST);
	if (sig->dst2.kind)
		add_store("%e", flag, ARRAY_DST2);
	add("ret;\n}");
}

static uint64_t *array(unsigned which)
{
	return (uint64_t *)(void *)(device.mem + OFFSET(which));
}

static void fill_device(const struct batch *b)
{
	for (size_t l = 0; l < b->n; l++) {
		for (unsigned k = 0; k < b->sig.n_src; k++)
			array(k)[l] = b->lanes[l].src[k];
		array(ARRAY_ON)[l] = b->on[l];
		array(ARRAY_CARRY)[l] = b->lanes[l].carry_in;
		memset(&array(ARRAY_DST)[l], SENTINEL, 8);
		array(ARRAY_DST2)[l] = 1;
		array(ARRAY_CARRY_OUT)[l] = 0;
	}
}

/* A result in a wider register is extended by its type. */
static uint64_t in_register(uint64_t v, struct aq_form_type t)
{
	if (t.bits != 8)
		return v;
	return t.kind == 's' && v & 0x80 ? v | 0xffffff00 : v;
}

static void check_device(struct batch *b)
{
	const struct aq_form_type dst = b->sig.dst;
	const uint64_t mask = reg_bits(dst) == 64 ? UINT64_MAX : (UINT64_C(1) << reg_bits(dst)) - 1;

	for (size_t l = 0; l < b->n; l++) {
		struct aq_ref_result *r = &b->results[l];
		const uint64_t raw = array(ARRAY_DST)[l] & mask;

		r->dst = dst.bits == 8 ? raw & 0xff : raw;
		r->dst2 = b->sig.dst2.kind ? array(ARRAY_DST2)[l] & 1 : 0;
		r->carry_out = b->sig.carry ? array(ARRAY_CARRY_OUT)[l] & 1 : 0;
		if (b->on[l]) {
			check_lane(b, l, "kernel");
			if (raw != in_register(r->dst, dst))
				fail_lane(b, l, "kernel", "is not extended into its register");
		} else if ((dst.kind == 'p' ? raw != 1
					    : raw != (UINT64_C(0xa5a5a5a5a5a5a5a5) & mask)) ||
			   (b->sig.dst2.kind && !r->dst2) ||
			   (b->sig.carry && r->carry_out != b->lanes[l].carry_in)) {
			fail_lane(b, l, "kernel", "is off, but changed");
		}
	}
}

static void run_kernel(struct batch *b)
{
	const uint64_t base = AQ_DEVICE_BASE;
	const uint32_t constant = b->lanes[0].constant;
	enum aq_status status;

	for (size_t l = 0; l < b->n; l++)
		b->lanes[l].constant = constant;
	make_kernel(b, constant);
	fill_device(b);
	status = aq_device_run(&device, aq_strbuf_text(&kernel), (unsigned)b->n / BLOCK, BLOCK,
			       &base);
	if (status == AQ_OK) {
		check_device(b);
		return;
	}
	n_failures++;
	print_error("%s.%s: kernel ends with status %d\n%s", b->form.name, b->form.text, status,
		    aq_strbuf_text(&kernel));
}

/* --- the tests --- */

static void try_form(const char *mods, const char *name, bool pair)
{
	aq_form_init(&batch.form, name, mods);
	batch.form.pair = pair;
	if (!aq_ref_sig(&batch.form, &batch.sig)) {
		n_failures++;
		print_error("%s.%s has no reference\n", name, mods);
		return;
	}
	make_lanes(&batch);
	run_alone(&batch, aq_alu_select_base, "base");
#ifdef AQ_TEST_V3
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		run_alone(&batch, aq_alu_select_v3, "v3");
#endif
	run_kernel(&batch);
}

static void each_form(const char *mods, void *opaque)
{
	const char *name = opaque;
	const bool lop3_pair = strcmp(name, "lop3") == 0 && strncmp(mods, "b32", 3) != 0;

	try_form(mods, name, lop3_pair);
	if (strcmp(name, "setp") == 0)
		try_form(mods, name, true);
}

static void test_instruction(void **state)
{
	char *name = *state;
	unsigned forms = 0;

	n_failures = 0;
	seed = 1;
	for (const struct aq_isa_line *line = aq_isa_arithmetic; line->name; line++)
		if (strcmp(line->name, name) == 0)
			forms += aq_pattern_each(line->pattern, each_form, name);
	print_message("# %s: %u forms\n", name, forms);
	assert_int_equal(n_failures, 0);
}

/* Sets of "name.mods", to be compared. */
struct set {
	char **names;
	size_t n, cap;
	const char *prefix;
};

static void set_add(const char *mods, void *opaque)
{
	struct set *s = opaque;
	char text[120];

	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 1024;
		s->names = realloc(s->names, s->cap * sizeof(char *));
		if (!s->names)
			abort();
	}
	(void)snprintf(text, sizeof(text), "%s.%s", s->prefix, mods);
	s->names[s->n++] = strdup(text);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void set_finish(struct set *s)
{
	size_t kept = 0;

	qsort(s->names, s->n, sizeof(char *), by_text);
	for (size_t k = 0; k < s->n; k++) {
		if (kept && strcmp(s->names[kept - 1], s->names[k]) == 0)
			free(s->names[k]);
		else
			s->names[kept++] = s->names[k];
	}
	s->n = kept;
}

static void set_free(struct set *s)
{
	for (size_t k = 0; k < s->n; k++)
		free(s->names[k]);
	free(s->names);
}

/* The forms that the tests know are those that the interpreter takes, no more, no less. */
static void test_forms_are_complete(void **state)
{
	struct set known = { 0 }, taken = { 0 };
	const char *mods;
	size_t a = 0, b = 0;
	unsigned differences = 0;

	(void)state;
	for (const struct aq_isa_line *l = aq_isa_arithmetic; l->name; l++) {
		known.prefix = l->name;
		(void)aq_pattern_each(l->pattern, set_add, &known);
	}
	for (unsigned k = 0; aq_alu_line_base(k, &taken.prefix, &mods); k++)
		(void)aq_pattern_each(mods, set_add, &taken);
	set_finish(&known);
	set_finish(&taken);
	print_message("# %zu forms of arithmetic instructions\n", taken.n);
	while (a < known.n || b < taken.n) {
		const int order = a == known.n	 ? 1
				  : b == taken.n ? -1
						 : strcmp(known.names[a], taken.names[b]);

		if (order < 0)
			print_error("%s is not taken\n", known.names[a]);
		if (order > 0)
			print_error("%s is taken, but not tested\n", taken.names[b]);
		differences += order != 0;
		a += order <= 0;
		b += order >= 0;
	}
	set_free(&known);
	set_free(&taken);
	assert_int_equal(differences, 0);
}

static void test_refusals(void **state)
{
	static const char *const refused[][2] = {
		{ "add", "f16" },	  { "fma", "rn.f16x2" },
		{ "add", "sat.u32" },	  { "fma", "f32" },
		{ "mad", "f32" },	  { "cvt", "s32.f32" },
		{ "cvt", "f32.s32" },	  { "cvt", "rn.f16.f32" },
		{ "cvt", "rn.bf16.f32" }, { "cvt", "f32.f64" },
		{ "div", "f32" },	  { "sin", "f32" },
		{ "setp", "eq" },	  { "setp", "lo.s32" },
		{ "setp", "lt.b32" },	  { "add", "" },
		{ "add", "u32.u32" },	  { "popc", "u32" },
		{ "mul", "u32" },	  { "mul", "wide.u64" },
		{ "and", "u32" },	  { "cvt", "rzi.rn.s32.f32" },
		{ "min", "relu.u32" },	  { "nosuch", "u32" },
	};

	(void)state;
	for (size_t k = 0; k < AQ_ARRAY_SIZE(refused); k++) {
		struct aq_alu_shape shape;
		struct aq_ptx_insn in;
		struct aq_form f;
		const char *why = NULL;

		aq_form_init(&f, refused[k][0], refused[k][1]);
		insn_of(&f, &in);
		if (aq_alu_select_base(&in, &shape, &why))
			fail_msg("%s.%s is taken", f.name, f.text);
	}
}

#define MAX_TESTS 128

int main(void)
{
	struct CMUnitTest tests[MAX_TESTS] = {
		cmocka_unit_test(test_forms_are_complete),
		cmocka_unit_test(test_refusals),
	};
	size_t n = 2;
	int failed;

	for (const struct aq_isa_line *l = aq_isa_arithmetic; l->name; l++) {
		bool seen = false;

		for (size_t k = 2; k < n; k++)
			seen |= strcmp(tests[k].name, l->name) == 0;
		if (seen)
			continue;
		assert_true(n < MAX_TESTS);
		tests[n++] = (struct CMUnitTest){
			.name = l->name,
			.test_func = test_instruction,
			.initial_state = (void *)(uintptr_t)l->name,
		};
	}
	aq_device_init(&device);
	failed = _cmocka_run_group_tests("arithmetic", tests, n, NULL, NULL);
	aq_device_done(&device);
	aq_strbuf_done(&kernel);
	return failed;
}
