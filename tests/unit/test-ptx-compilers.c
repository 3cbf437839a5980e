/* SPDX-License-Identifier: Apache-2.0 */
/* PTX in the shapes that compilers emit. clang-kernels*.ptx are what clang made of clang-kernels.cu; the others are written in the style of their compiler. */
#include "gpud/soft/ptx/ptx.h"
#include "util/strbuf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct aq_ptx_module *parse_file(const char *name)
{
	struct aq_strbuf path = { 0 }, text = { 0 }, log = { 0 };
	struct aq_ptx_module *m;
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
	m = aq_ptx_parse(text.text, text.len, &log);
	if (!m)
		fail_msg("%s: %s", name, aq_strbuf_text(&log));
	aq_strbuf_done(&path);
	aq_strbuf_done(&text);
	aq_strbuf_done(&log);
	return m;
}

static const struct aq_ptx_func *find_func(const struct aq_ptx_module *m, const char *name)
{
	for (uint32_t i = 0; i < m->n_funcs; i++) {
		if (strcmp(m->funcs[i].name, name) == 0 && !m->funcs[i].is_prototype)
			return &m->funcs[i];
	}
	fail_msg("no function %s", name);
	return NULL;
}

static const struct aq_ptx_var *find_var(const struct aq_ptx_module *m, const char *name)
{
	for (uint32_t i = 0; i < m->n_vars; i++) {
		if (strcmp(m->vars[i]->name, name) == 0)
			return m->vars[i];
	}
	fail_msg("no variable %s", name);
	return NULL;
}

static uint32_t count_insns(const struct aq_ptx_func *f, const char *name)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n_insns; i++)
		n += strcmp(f->insns[i].name, name) == 0;
	return n;
}

/* What holds for any parsed module: indices point somewhere, names are there. */
static void check_operand(const struct aq_ptx_module *m, const struct aq_ptx_func *f,
			  const struct aq_ptx_operand *op)
{
	assert_true(op->reg >= -1 && op->reg < (int32_t)f->n_regs);
	assert_true(op->func >= -1 && op->func < (int32_t)m->n_funcs);
	assert_true(op->label >= -1 && op->label < (int32_t)f->n_labels);
	assert_int_not_equal(op->kind, AQ_PTX_OPERAND_NONE);
	if (op->kind == AQ_PTX_OPERAND_FUNC)
		assert_true(op->func >= 0);
	if (op->kind == AQ_PTX_OPERAND_LABEL)
		assert_true(op->label >= 0);
	if (op->kind == AQ_PTX_OPERAND_REG)
		assert_true(op->reg >= 0);
	for (uint32_t i = 0; i < op->n_sub; i++)
		check_operand(m, f, &op->sub[i]);
}

static void check_module(const struct aq_ptx_module *m)
{
	for (uint32_t k = 0; k < m->n_funcs; k++) {
		const struct aq_ptx_func *f = &m->funcs[k];

		for (uint32_t i = 0; i < f->n_insns; i++) {
			for (int o = 0; o < f->insns[i].n_operands; o++)
				check_operand(m, f, &f->insns[i].operands[o]);
		}
		for (uint32_t i = 0; i < f->n_labels; i++)
			assert_true(f->labels[i].insn <= f->n_insns);
	}
}

static void check_clang(const char *file)
{
	struct aq_ptx_module *m = parse_file(file);
	const struct aq_ptx_func *f;
	const struct aq_ptx_var *v;

	check_module(m);
	assert_int_equal(m->version_major, 7);
	assert_int_equal(m->target, 70);
	assert_int_equal(m->address_size, 64);
	f = find_func(m, "calls");
	assert_true(f->is_entry && f->is_visible && f->has_body);
	assert_int_equal(f->n_params, 4);
	assert_int_equal(f->params[1].size, 16);
	assert_int_equal(f->params[2].offset, 24);
	assert_int_equal(f->params[3].offset, 32);
	assert_int_equal(f->param_bytes, 40);
	assert_int_equal(count_insns(f, "call"), 2);
	f = find_func(m, "inline_assembly");
	assert_int_equal(f->maxntid[0], 128);
	assert_int_equal(f->minnctapersm, 2);
	f = find_func(m, "moved");
	assert_false(f->is_entry);
	assert_int_equal(f->n_rets, 1);
	assert_int_equal(f->rets[0].size, 16);
	v = find_var(m, "functions");
	assert_int_equal(v->n_relocs, 2);
	assert_string_equal(v->relocs[1].name, "less_three");
	v = find_var(m, "links");
	assert_int_equal(v->init[0], 3);
	assert_int_equal(v->relocs[1].offset, 16);
	assert_int_equal(v->relocs[1].addend, 2);
	assert_true(v->relocs[1].generic);
	assert_true(find_var(m, "dynamic")->is_extern);
	assert_int_equal(find_var(m, "counter")->init[0], 5);
	aq_ptx_free(m);
}

static void test_clang(void **state)
{
	(void)state;
	check_clang("clang-kernels.ptx");
}

static void test_clang_debug(void **state)
{
	(void)state;
	check_clang("clang-kernels-debug.ptx");
}

static void test_gcc(void **state)
{
	struct aq_ptx_module *m = parse_file("gcc.ptx");
	const struct aq_ptx_func *f = find_func(m, "reduce");
	const struct aq_ptx_insn *in;
	const struct aq_ptx_label *l;

	(void)state;
	check_module(m);
	assert_int_equal(f->line, 41);
	assert_string_equal(f->params[0].name, "%in_ar0");
	assert_ptr_equal(f->insns[0].operands[1].var, &f->params[0]);
	assert_string_equal(f->rets[0].name, "%value_out");
	/* call (%value_in), %r25, (%out_arg1), $LCT0 */
	for (in = f->insns; strcmp(in->name, "call") != 0; in++)
		;
	assert_int_equal(in->n_operands, 4);
	assert_int_equal(in->operands[3].kind, AQ_PTX_OPERAND_LABEL);
	l = &f->labels[in->operands[3].label];
	assert_string_equal(l->name, "$LCT0");
	assert_int_equal(m->funcs[l->prototype].params[0].type, AQ_PTX_U64);
	assert_true(find_func(m, "abort")->is_extern);
	assert_int_equal(find_var(m, "pair")->relocs[0].addend, 2);
	assert_true(find_var(m, "weak_one")->is_weak);
	f = find_func(m, "main$_omp_fn$0");
	assert_int_equal(f->param_bytes, 24);
	assert_true(f->insns[3].guard_negated);
	aq_ptx_free(m);
}

static void test_later(void **state)
{
	struct aq_ptx_module *m = parse_file("later.ptx");
	const struct aq_ptx_func *f = find_func(m, "add");
	const struct aq_ptx_var *v = find_var(m, "packed");

	(void)state;
	check_module(m);
	assert_true(find_func(m, "__assertfail")->is_noreturn);
	assert_int_equal(v->n_relocs, 1);
	assert_int_equal(v->relocs[0].offset, 1);
	assert_int_equal(v->relocs[0].size, 8);
	assert_int_equal(f->param_bytes, 40);
	assert_int_equal(count_insns(f, "mbarrier"), 3);
	assert_int_equal(f->labels[0].insn + 3, f->labels[2].insn);
	assert_int_equal(f->n_vars, 7);
	aq_ptx_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clang),
		cmocka_unit_test(test_clang_debug),
		cmocka_unit_test(test_gcc),
		cmocka_unit_test(test_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
