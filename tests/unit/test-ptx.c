/* SPDX-License-Identifier: Apache-2.0 */
/* Every construct of PTX on small texts: what a function holds is written back in a notation of the test's own and compared. */
#include "gpud/soft/ptx/ptx.h"
#include "util/strbuf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

static struct aq_ptx_module *parse(const char *text)
{
	struct aq_strbuf log = { 0 };
	struct aq_ptx_module *m = aq_ptx_parse(text, strlen(text), &log);

	if (!m)
		fail_msg("%s", aq_strbuf_text(&log));
	assert_string_equal(aq_strbuf_text(&log), "");
	aq_strbuf_done(&log);
	return m;
}

static void show_operand(struct aq_strbuf *b, const struct aq_ptx_module *m,
			 const struct aq_ptx_func *f, const struct aq_ptx_operand *op);

static void show_subs(struct aq_strbuf *b, const struct aq_ptx_module *m,
		      const struct aq_ptx_func *f, const struct aq_ptx_operand *op,
		      const char *brackets)
{
	aq_strbuf_add(b, brackets, 1);
	for (uint32_t i = 0; i < op->n_sub; i++) {
		if (i)
			aq_strbuf_add(b, ",", 1);
		show_operand(b, m, f, &op->sub[i]);
	}
	aq_strbuf_add(b, brackets + 1, 1);
}

static void show_addend(struct aq_strbuf *b, int64_t addend)
{
	if (addend)
		aq_strbuf_printf(b, "%+lld", (long long)addend);
}

static void show_reg(struct aq_strbuf *b, const struct aq_ptx_func *f,
		     const struct aq_ptx_operand *op)
{
	assert_in_range(op->reg, 0, f->n_regs - 1);
	aq_strbuf_printf(b, "%s%s#%d", op->negated ? "~" : "", f->regs[op->reg].name, op->reg);
	if (op->elem >= 0)
		aq_strbuf_printf(b, ".%d", op->elem);
}

static void show_operand(struct aq_strbuf *b, const struct aq_ptx_module *m,
			 const struct aq_ptx_func *f, const struct aq_ptx_operand *op)
{
	static const char *const imm[] = { "", "f", "d" };

	switch (op->kind) {
	case AQ_PTX_OPERAND_REG:
		show_reg(b, f, op);
		break;
	case AQ_PTX_OPERAND_IMM:
		aq_strbuf_printf(b, op->imm_kind ? "%s%llx" : "%s%lld", imm[op->imm_kind],
				 (long long)op->imm);
		break;
	case AQ_PTX_OPERAND_SPECIAL:
		aq_strbuf_printf(b, "special:%s", op->name);
		if (op->elem >= 0)
			aq_strbuf_printf(b, ".%d", op->elem);
		break;
	case AQ_PTX_OPERAND_VAR:
		aq_strbuf_printf(b, "&%s", op->var->name);
		show_addend(b, op->addend);
		break;
	case AQ_PTX_OPERAND_FUNC:
		aq_strbuf_printf(b, "func:%s", m->funcs[op->func].name);
		break;
	case AQ_PTX_OPERAND_LABEL:
		assert_in_range(op->label, 0, f->n_labels - 1);
		aq_strbuf_printf(b, "label:%s@%u", f->labels[op->label].name,
				 f->labels[op->label].insn);
		break;
	case AQ_PTX_OPERAND_ADDR:
		aq_strbuf_add(b, "[", 1);
		if (op->reg >= 0)
			show_reg(b, f, op);
		else if (op->var)
			aq_strbuf_printf(b, "%s", op->var->name);
		show_addend(b, op->addend);
		aq_strbuf_add(b, "]", 1);
		break;
	case AQ_PTX_OPERAND_VECTOR:
		show_subs(b, m, f, op, "{}");
		break;
	case AQ_PTX_OPERAND_SINK:
		aq_strbuf_add(b, "_", 1);
		break;
	case AQ_PTX_OPERAND_LIST:
		show_subs(b, m, f, op, "()");
		break;
	case AQ_PTX_OPERAND_TEXADDR:
		show_subs(b, m, f, op, "<>");
		break;
	case AQ_PTX_OPERAND_NONE:
	default:
		fail_msg("operand of kind %d", (int)op->kind);
	}
	if (op->has_pair) {
		assert_int_equal(op->n_sub, 1);
		aq_strbuf_add(b, "|", 1);
		show_operand(b, m, f, &op->sub[0]);
	}
}

static void show_insn(struct aq_strbuf *b, const struct aq_ptx_module *m,
		      const struct aq_ptx_func *f, const struct aq_ptx_insn *in)
{
	if (in->has_guard)
		aq_strbuf_printf(b, "@%s%s#%d ", in->guard_negated ? "!" : "",
				 f->regs[in->guard].name, in->guard);
	aq_strbuf_printf(b, "%s", in->name);
	for (int i = 0; i < in->n_mods; i++)
		aq_strbuf_printf(b, ".%s", in->mods[i]);
	for (int i = 0; i < in->n_operands; i++) {
		aq_strbuf_add(b, i ? ", " : " ", i ? 2 : 1);
		show_operand(b, m, f, &in->operands[i]);
	}
	aq_strbuf_add(b, "\n", 1);
}

static const struct aq_ptx_func *find_func(const struct aq_ptx_module *m, const char *name)
{
	for (uint32_t i = 0; i < m->n_funcs; i++) {
		if (strcmp(m->funcs[i].name, name) == 0)
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

static void check_func(const struct aq_ptx_module *m, const char *name, const char *expected)
{
	const struct aq_ptx_func *f = find_func(m, name);
	struct aq_strbuf b = { 0 };

	for (uint32_t i = 0; i < f->n_insns; i++)
		show_insn(&b, m, f, &f->insns[i]);
	assert_string_equal(aq_strbuf_text(&b), expected);
	aq_strbuf_done(&b);
}

/* The body of a kernel "k" behind HEAD and some module declarations. */
static void check_body(const char *module, const char *body, const char *expected)
{
	struct aq_strbuf text = { 0 };
	struct aq_ptx_module *m;

	aq_strbuf_printf(&text, HEAD "%s\n.visible .entry k()\n{\n%s\n}\n", module, body);
	m = parse(aq_strbuf_text(&text));
	check_func(m, "k", expected);
	aq_ptx_free(m);
	aq_strbuf_done(&text);
}

static void test_header(void **state)
{
	struct aq_ptx_module *m;

	(void)state;
	m = parse(
		"//\n// c\n/* two\nlines */\n.version 8.3\n.target sm_90a, debug\n.address_size 64\n");
	assert_int_equal(m->version_major, 8);
	assert_int_equal(m->version_minor, 3);
	assert_int_equal(m->target, 90);
	assert_int_equal(m->address_size, 64);
	aq_ptx_free(m);
	m = parse(".version 3.2\n.target sm_30, texmode_independent\n");
	assert_int_equal(m->target, 30);
	assert_int_equal(m->address_size, 32);
	aq_ptx_free(m);
}

static void test_trailing_nul(void **state)
{
	static const char text[] = HEAD "\0";
	struct aq_ptx_module *m = aq_ptx_parse(text, sizeof(text), NULL);

	(void)state;
	assert_non_null(m);
	aq_ptx_free(m);
	aq_ptx_free(NULL);
}

static void test_registers(void **state)
{
	(void)state;
	check_body(
		"",
		".reg .pred %p<2>; .reg .b32 %r<3>, a, b1; .reg .v4 .f32 v;\n"
		"mov.b32 %r2, a; mov.b32 a, %r2; mov.f32 b1, v.y; mov.f32 v.w, b1; mov.f32 v.a, b1;"
		"@%p1 mov.b32 %r0, -a; @!%p1 mov.b32 %r0, b1;",
		"mov.b32 %r2#3, a#0\nmov.b32 a#0, %r2#3\nmov.f32 b1#1, v#2.1\nmov.f32 v#2.3, b1#1\n"
		"mov.f32 v#2.3, b1#1\n@%p1#4 mov.b32 %r0#5, ~a#0\n@!%p1#4 mov.b32 %r0#5, b1#1\n");
}

/* %r12 may be number 12 of %r<20> or number 2 of %r1<5>: the innermost declaration wins. */
static void test_register_ranges_overlap(void **state)
{
	(void)state;
	check_body("",
		   ".reg .b32 %r<20>;\n mov.b32 %r12, %r1;\n"
		   "{ .reg .b64 %r1<5>; mov.b64 %r12, %r10; }\n mov.b32 %r12, %r10;\n",
		   "mov.b32 %r12#0, %r1#1\nmov.b64 %r12#2, %r10#3\nmov.b32 %r12#0, %r10#4\n");
}

static void test_scopes_shadow(void **state)
{
	struct aq_ptx_module *m =
		parse(HEAD ".visible .entry k() { .reg .b32 x; .local .b32 l;\n"
			   "{ .reg .f64 x; .local .b64 l; mov.f64 x, x; mov.u64 x, l; }\n"
			   "{ .reg .f32 x; mov.f32 x, x; } mov.b32 x, x; ret; }");
	const struct aq_ptx_func *f = find_func(m, "k");

	(void)state;
	check_func(m, "k",
		   "mov.f64 x#1, x#1\nmov.u64 x#1, &l\nmov.f32 x#2, x#2\nmov.b32 x#0, x#0\nret\n");
	assert_int_equal(f->n_regs, 3);
	assert_int_equal(f->regs[0].type, AQ_PTX_B32);
	assert_int_equal(f->regs[1].type, AQ_PTX_F64);
	assert_int_equal(f->n_vars, 2);
	assert_ptr_equal(f->insns[1].operands[1].var, f->vars[1]);
	aq_ptx_free(m);
}

static void test_labels(void **state)
{
	(void)state;
	check_body(
		"",
		".reg .pred p; top: @p bra.uni end; bra top;\n"
		"{ again: @p bra again; bra end; }\n"
		"{ again: @!p bra again; bra ahead; ahead: }\n end: ret;",
		"@p#0 bra.uni label:end@6\nbra label:top@0\n@p#0 bra label:again@2\nbra label:end@6\n"
		"@!p#0 bra label:again@4\nbra label:ahead@6\nret\n");
}

/* A label of the scope hides one further out, even where it comes later. */
static void test_label_hides(void **state)
{
	(void)state;
	check_body("", "L: { bra L; mov.u32 _, 1; L: ret; } bra L;",
		   "bra label:L@2\nmov.u32 _, 1\nret\nbra label:L@0\n");
}

static void test_branch_targets(void **state)
{
	struct aq_ptx_module *m =
		parse(HEAD ".visible .entry k() { .reg .b32 r;\n"
			   "$T: .branchtargets A,\n B, A;\n brx.idx r, $T; A: ret; B: exit; }");
	const struct aq_ptx_func *f = find_func(m, "k");
	const struct aq_ptx_label *t = &f->labels[0];

	(void)state;
	check_func(m, "k", "brx.idx r#0, label:$T@0\nret\nexit\n");
	assert_int_equal(t->n_targets, 3);
	assert_string_equal(f->labels[t->targets[0]].name, "A");
	assert_string_equal(f->labels[t->targets[1]].name, "B");
	assert_int_equal(f->labels[t->targets[1]].insn, 2);
	assert_int_equal(t->targets[2], t->targets[0]);
	assert_int_equal(t->prototype, -1);
	aq_ptx_free(m);
}

static void test_addresses(void **state)
{
	(void)state;
	check_body(
		".global .align 4 .b8 g[16]; .shared .f32 s;",
		".reg .b64 %rd<2>; .reg .b32 r;\n"
		"ld.u32 r, [%rd1]; ld.u32 r, [%rd1+8]; ld.u32 r, [%rd1+-8]; ld.u32 r, [%rd1 - 4 + 2*3];\n"
		"ld.u32 r, [g]; ld.u32 r, [g+12]; ld.u32 r, [0x10]; ld.u32 r, [16+WARP_SZ];\n"
		"mov.u64 %rd1, g; mov.u64 %rd1, g+4; mov.u64 %rd1, g-(2+2);",
		"ld.u32 r#0, [%rd1#1]\nld.u32 r#0, [%rd1#1+8]\nld.u32 r#0, [%rd1#1-8]\nld.u32 r#0, [%rd1#1+2]\n"
		"ld.u32 r#0, [g]\nld.u32 r#0, [g+12]\nld.u32 r#0, [+16]\nld.u32 r#0, [+48]\n"
		"mov.u64 %rd1#1, &g\nmov.u64 %rd1#1, &g+4\nmov.u64 %rd1#1, &g-4\n");
}

static void test_numbers(void **state)
{
	(void)state;
	check_body(
		"",
		".reg .b32 r; op r, 10, 0x1F, 017, 0b101, 5U, -7, 0xFFFFFFFFFFFFFFFF;\n"
		"op r, 0f3F800000, 0F00000001, 0dBFF0000000000000, 1.5, -2.0, 1e3, 25.E-1;\n"
		"op r, -0f3F800000, WARP_SZ;",
		"op r#0, 10, 31, 15, 5, 5, -7, -1\n"
		"op r#0, f3f800000, f1, dbff0000000000000, d3ff8000000000000, dc000000000000000, "
		"d408f400000000000, d4004000000000000\nop r#0, fbf800000, 32\n");
}

static void test_expressions(void **state)
{
	(void)state;
	check_body(
		"",
		"op 1+2*3, (1+2)*3, 1<<4|1, 7&~2, -8>>1, -8/3, -8 % 3, 0xFFFFFFFFFFFFFFFFU>>60;\n"
		"op 1<2, 2<=1, 3==3, 3!=3, 1&&0, 0||2, !5, 1 ? 10 : 20;\n"
		"op 0?1:0?2:3, (.u64)-1 > 0, (.s64)0xFFFFFFFFFFFFFFFF < 0, 1.0+0.5, 1.0<2.0, 5^1, 10-3-2, 1>0;\n"
		"op 2*(3+(4-1)), +5, - -5, 1<<64, -1>>100, 5>=5, 1.5*2.0/3.0, 1==1==1;",
		"op 7, 9, 17, 5, -4, -2, -2, 15\nop 1, 0, 1, 0, 0, 1, 0, 10\n"
		"op 3, 1, 1, d3ff8000000000000, 1, 4, 5, 1\n"
		"op 12, 5, 5, 0, -1, 1, d3ff0000000000000, 1\n");
}

static void test_operands(void **state)
{
	(void)state;
	check_body(
		".global .texref t; .global .samplerref s;",
		".reg .pred p, q; .reg .b32 %r<5>; .reg .b64 d; .reg .f32 %f<5>;\n"
		"setp.lt.and.s32 p|q, %r1, %r2, !p; setp.eq.s32 p|_, %r1, 0; shfl.sync.idx.b32 %r1|p, %r2, 0, 31, -1;\n"
		"mov.b64 {%r1, _}, d; st.global.v4.u32 [d+16], {%r1, 0, -1, %r2};\n"
		"mov.u32 %r1, %tid.x; mov.u32 %r1, %nctaid.z; mov.u32 %r1, %laneid; mov.u64 d, %clock64;\n"
		"mov.u32 %r1, %envreg31; mov.u32 %r1, %pm3;\n"
		"tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [t, {%r1}]; tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [t, s, {%f1, %f2}];\n"
		"suld.b.1d.b32 %r1, [d, {%r2}]; membar.gl; bar.sync 0;\n"
		"ld.global.L2::128B.relaxed.gpu.shared::cta.b32 %r1, [d];",
		"setp.lt.and.s32 p#0|q#1, %r1#3, %r2#4, ~p#0\nsetp.eq.s32 p#0|_, %r1#3, 0\n"
		"shfl.sync.idx.b32 %r1#3|p#0, %r2#4, 0, 31, -1\n"
		"mov.b64 {%r1#3,_}, d#2\nst.global.v4.u32 [d#2+16], {%r1#3,0,-1,%r2#4}\n"
		"mov.u32 %r1#3, special:tid.0\nmov.u32 %r1#3, special:nctaid.2\nmov.u32 %r1#3, special:laneid\n"
		"mov.u64 d#2, special:clock64\nmov.u32 %r1#3, special:envreg31\nmov.u32 %r1#3, special:pm3\n"
		"tex.1d.v4.f32.s32 {%f1#5,%f2#6,%f3#7,%f4#8}, <&t,{%r1#3}>\n"
		"tex.2d.v4.f32.f32 {%f1#5,%f2#6,%f3#7,%f4#8}, <&t,&s,{%f1#5,%f2#6}>\n"
		"suld.b.1d.b32 %r1#3, <d#2,{%r2#4}>\nmembar.gl\nbar.sync 0\n"
		"ld.global.L2::128B.relaxed.gpu.shared::cta.b32 %r1#3, [d#2]\n");
}

static void test_calls(void **state)
{
	struct aq_ptx_module *m = parse(
		HEAD
		".extern .func (.param .b32 ret) ext (.param .b64 a, .param .b64 b);\n"
		".visible .entry k() { .reg .b64 %rd<3>; .reg .b32 r;\n"
		"{ .param .b64 param0; .param .b64 param1; .param .b32 retval0;\n"
		"call.uni (retval0),\n ext,\n (\n param0,\n param1\n ); }\n"
		"call later, (%rd1, 5); call later2; mov.u64 %rd1, later2;\n"
		"{ .param .b64 p0; .param .b32 retval0;\n"
		"prototype_0 : .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 4 .b8 _[12]) .noreturn;\n"
		"call (retval0), %rd1, (p0), prototype_0; }\n"
		"T: .calltargets ext, later2; call (r), %rd2, (r), T; ret; }\n"
		".func later (.reg .b64 %a, .reg .b32 %b) { ret; }\n"
		".func later2 { call later2; ret; }\n");
	const struct aq_ptx_func *f = find_func(m, "k"), *proto;

	(void)state;
	check_func(m, "k",
		   "call.uni (&retval0), func:ext, (&param0,&param1)\ncall func:later, (%rd1#1,5)\n"
		   "call func:later2\nmov.u64 %rd1#1, func:later2\n"
		   "call (&retval0), %rd1#1, (&p0), label:prototype_0@4\n"
		   "call (r#0), %rd2#2, (r#0), label:T@5\nret\n");
	check_func(m, "later2", "call func:later2\nret\n");
	proto = &m->funcs[f->labels[0].prototype];
	assert_true(proto->is_prototype);
	assert_true(proto->is_noreturn);
	assert_int_equal(proto->n_rets, 1);
	assert_int_equal(proto->n_params, 2);
	assert_int_equal(proto->params[1].offset, 8);
	assert_int_equal(proto->param_bytes, 20);
	assert_string_equal(m->funcs[f->labels[1].targets[1]].name, "later2");
	aq_ptx_free(m);
}

static void test_params(void **state)
{
	struct aq_ptx_module *m = parse(
		HEAD
		".visible .entry k(.param .u8 a, .param .u64 .ptr .global .align 8 b, .param .align 4 .b8 c[6],\n"
		".param .v4 .f32 d, .param .b16 e, .param .u32 .ptr f)\n"
		".maxntid 128, 2, 1\n.minnctapersm 3\n.maxnreg 64\n.reqntid 256\n.pragma \"nounroll\";\n"
		"{ .reg .b64 r; ld.param.u64 r, [b]; ld.param.b16 r, [c+4]; ret; }");
	const struct aq_ptx_func *f = find_func(m, "k");
	static const uint64_t offsets[] = { 0, 8, 16, 32, 48, 52 };

	(void)state;
	assert_true(f->is_entry && f->is_visible && f->has_body);
	assert_int_equal(f->n_params, 6);
	for (int i = 0; i < 6; i++)
		assert_int_equal(f->params[i].offset, offsets[i]);
	assert_int_equal(f->param_bytes, 56);
	assert_int_equal(f->params[2].size, 6);
	assert_true(f->params[1].is_pointer && f->params[5].is_pointer && !f->params[0].is_pointer);
	assert_int_equal(f->maxntid[0] * f->maxntid[1] * f->maxntid[2], 256);
	assert_int_equal(f->reqntid[0], 256);
	assert_int_equal(f->reqntid[2], 1);
	assert_int_equal(f->minnctapersm, 3);
	assert_int_equal(f->maxnreg, 64);
	assert_ptr_equal(f->insns[0].operands[1].var, &f->params[1]);
	assert_null(f->param_regs);
	aq_ptx_free(m);
}

static void test_register_params(void **state)
{
	struct aq_ptx_module *m =
		parse(HEAD ".func (.reg .u32 %r) f (.reg .u32 %a, .param .b32 p, .reg .f64 %d)\n"
			   "{ add.u32 %r, %a, %a; ret; }");
	const struct aq_ptx_func *f = find_func(m, "f");

	(void)state;
	assert_int_equal(f->ret_regs[0], 0);
	assert_int_equal(f->param_regs[0], 1);
	assert_int_equal(f->param_regs[1], -1);
	assert_int_equal(f->param_regs[2], 2);
	assert_int_equal(f->params[0].space, AQ_PTX_REG);
	assert_int_equal(f->regs[2].type, AQ_PTX_F64);
	check_func(m, "f", "add.u32 %r#0, %a#1, %a#1\nret\n");
	aq_ptx_free(m);
}

static void test_declarations_merge(void **state)
{
	struct aq_ptx_module *m =
		parse(HEAD ".visible .func (.param .b32 r) f (.param .b32 x);\n"
			   ".visible .entry k() { call (_), f, (1); ret; }\n"
			   ".func (.param .b32 r) f (.param .b32 y) { ld.param.u32 _, [y]; ret; }\n"
			   ".extern .global .u32 v[]; .visible .global .u32 v[2] = {1, 2};\n"
			   ".weak .func w; .weak .func w { ret; }\n");
	const struct aq_ptx_func *f = find_func(m, "f");

	(void)state;
	assert_int_equal(m->n_funcs, 3);
	assert_true(f->has_body && f->is_visible);
	assert_string_equal(f->params[0].name, "y");
	check_func(m, "k", "call (_), func:f, (1)\nret\n");
	assert_int_equal(m->n_vars, 1);
	assert_int_equal(m->vars[0]->size, 8);
	assert_false(m->vars[0]->is_extern);
	assert_true(find_func(m, "w")->is_weak);
	aq_ptx_free(m);
}

static void test_variables(void **state)
{
	struct aq_ptx_module *m = parse(
		HEAD
		".extern .shared .align 16 .b8 dyn[];\n.common .global .u32 com;\n"
		".global .attribute(.managed) .align 8 .b8 man[24];\n.visible .const .align 4 .b8 c[0x10];\n"
		".global .v4 .f32 v; .weak .global .b16 a, b[3][5]; .extern .global .f64 e;\n");
	const struct aq_ptx_var *v;

	(void)state;
	v = find_var(m, "dyn");
	assert_int_equal(v->space, AQ_PTX_SHARED);
	assert_int_equal(v->align, 16);
	assert_int_equal(v->size, 0);
	assert_true(v->is_extern);
	assert_true(find_var(m, "com")->is_common);
	v = find_var(m, "man");
	assert_true(v->is_managed);
	assert_int_equal(v->size, 24);
	v = find_var(m, "c");
	assert_int_equal(v->space, AQ_PTX_CONST);
	assert_int_equal(v->size, 16);
	assert_true(v->is_visible);
	v = find_var(m, "v");
	assert_int_equal(v->align, 16);
	assert_int_equal(v->vec, 4);
	assert_int_equal(find_var(m, "a")->size, 2);
	assert_int_equal(find_var(m, "b")->size, 30);
	assert_true(find_var(m, "b")->is_weak);
	assert_int_equal(find_var(m, "e")->line, 8);
	assert_null(find_var(m, "e")->init);
	aq_ptx_free(m);
}

static void check_init(const struct aq_ptx_module *m, const char *name, const void *bytes,
		       size_t size)
{
	const struct aq_ptx_var *v = find_var(m, name);

	assert_int_equal(v->size, size);
	assert_non_null(v->init);
	assert_memory_equal(v->init, bytes, size);
}

static void test_initialiser_values(void **state)
{
	struct aq_ptx_module *m = parse(
		HEAD
		".global .u32 a = 5; .global .s16 b = -2; .global .f32 f = 0f3F800000, g = 2.5, h = 3;\n"
		".global .f64 d[2] = {0dC000000000000000, -1.5}; .global .u8 s[] = {104, 105, 0};\n"
		".global .s32 m[2][3] = {{1, 2}, {4, 5, 6}}; .global .s32 n[2][2] = {1, 2, 3};\n"
		".global .v2 .u16 v[2] = {{1, 2}, {3, 4}}; .const .b32 x[3] = {1 << 4, 0f40000000, 0xFFFFFFFF};\n"
		".global .s32 u[][2] = {{1, 2}, {3}, {}}; .global .b8 z[4] = {};\n");

	(void)state;
	check_init(m, "a", &(uint32_t){ 5 }, 4);
	check_init(m, "b", &(int16_t){ -2 }, 2);
	check_init(m, "f", &(float){ 1 }, 4);
	check_init(m, "g", &(float){ 2.5f }, 4);
	check_init(m, "h", &(float){ 3 }, 4);
	check_init(m, "d", (double[]){ -2, -1.5 }, 16);
	check_init(m, "s", "hi", 3);
	check_init(m, "m", (int32_t[]){ 1, 2, 0, 4, 5, 6 }, 24);
	check_init(m, "n", (int32_t[]){ 1, 2, 3, 0 }, 16);
	check_init(m, "v", (uint16_t[]){ 1, 2, 3, 4 }, 8);
	check_init(m, "x", (uint32_t[]){ 16, 0x40000000, 0xffffffff }, 12);
	check_init(m, "u", (int32_t[]){ 1, 2, 3, 0, 0, 0 }, 24);
	check_init(m, "z", "\0\0\0", 4);
	aq_ptx_free(m);
}

static void check_reloc(const struct aq_ptx_var *v, uint32_t i, uint64_t offset, const char *name,
			int64_t addend, bool generic, unsigned size)
{
	assert_true(i < v->n_relocs);
	assert_int_equal(v->relocs[i].offset, offset);
	assert_string_equal(v->relocs[i].name, name);
	assert_int_equal(v->relocs[i].addend, addend);
	assert_int_equal(v->relocs[i].generic, generic);
	assert_int_equal(v->relocs[i].size, size);
}

static void test_relocations(void **state)
{
	struct aq_ptx_module *m = parse(
		HEAD
		".global .u32 a; .global .u64 p = a; .global .u64 q[4] = {generic(a), generic(a)+8, 7, f};\n"
		".global .u32 r[2] = {a-4, generic(a+4)}; .global .b64 self = generic(self);\n"
		".global .b8 packed[9] = {1, 0xFF(generic(a)+2), 0xFF00(generic(a)+2), 0xFF0000(generic(a)+2), 0xFF000000(generic(a)+2),\n"
		"0xFF00000000(generic(a)+2), 0xFF0000000000(generic(a)+2), 0xFF000000000000(generic(a)+2), 0xFF00000000000000(generic(a)+2)};\n"
		".func f { ret; }\n");
	const struct aq_ptx_var *v;

	(void)state;
	check_reloc(find_var(m, "p"), 0, 0, "a", 0, false, 8);
	v = find_var(m, "q");
	assert_int_equal(v->n_relocs, 3);
	check_reloc(v, 0, 0, "a", 0, true, 8);
	check_reloc(v, 1, 8, "a", 8, true, 8);
	check_reloc(v, 2, 24, "f", 0, false, 8);
	assert_int_equal(v->init[16], 7);
	check_reloc(find_var(m, "r"), 0, 0, "a", -4, false, 4);
	check_reloc(find_var(m, "r"), 1, 4, "a", 4, true, 4);
	check_reloc(find_var(m, "self"), 0, 0, "self", 0, true, 8);
	v = find_var(m, "packed");
	assert_int_equal(v->n_relocs, 1);
	check_reloc(v, 0, 1, "a", 2, true, 8);
	aq_ptx_free(m);
}

static void test_debug_information_is_skipped(void **state)
{
	struct aq_ptx_module *m = parse(
		"# 1 \"x.c\"\n" HEAD ".file 1 \"/a \\\" b.cu\", 123, 456\n@@DWARF .byte 1\n"
		".visible .entry k()\n{\n.loc 1 5 0\n$L__tmp0:\n.loc 1 7 3, function_name $L__info_string0+4, inlined_at 1 5 0\n"
		"ret;\n.loc 1 8 0, function_name .debug_str, inlined_at 1 2 3\n.pragma \"nounroll\";\n#line 5\n}\n"
		".section .debug_abbrev\n{\n.b8 1 // c }\n.b8 17, 0\n{ .b8 2 }\n}\n.section .debug_info { .b32 85-4 .b32 .debug_abbrev .b64 $L__tmp0 }\n"
		".section .debug_macinfo\t{\t}\n");

	(void)state;
	check_func(m, "k", "ret\n");
	aq_ptx_free(m);
}

static void test_lines(void **state)
{
	struct aq_ptx_module *m = parse(
		HEAD
		"\n/*\n*/ .visible .entry k()\n{\n.reg .pred p;\n  ret;\n// c\n\n@p\n bra\n x; x: }");
	const struct aq_ptx_func *f = find_func(m, "k");

	(void)state;
	assert_int_equal(f->line, 6);
	assert_int_equal(f->insns[0].line, 9);
	assert_int_equal(f->insns[1].line, 12);
	assert_int_equal(f->labels[0].insn, 2);
	aq_ptx_free(m);
}

static void test_type_names(void **state)
{
	(void)state;
	for (int t = AQ_PTX_B8; t <= AQ_PTX_SURFREF; t++)
		assert_int_equal(aq_ptx_type_parse(aq_ptx_type_name((enum aq_ptx_type)t)), t);
	assert_int_equal(aq_ptx_type_parse("f31"), AQ_PTX_NOTYPE);
	assert_int_equal(aq_ptx_type_size(AQ_PTX_F64), 8);
	assert_int_equal(aq_ptx_type_size(AQ_PTX_PRED), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_trailing_nul),
		cmocka_unit_test(test_registers),
		cmocka_unit_test(test_register_ranges_overlap),
		cmocka_unit_test(test_scopes_shadow),
		cmocka_unit_test(test_labels),
		cmocka_unit_test(test_label_hides),
		cmocka_unit_test(test_branch_targets),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_expressions),
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_params),
		cmocka_unit_test(test_register_params),
		cmocka_unit_test(test_declarations_merge),
		cmocka_unit_test(test_variables),
		cmocka_unit_test(test_initialiser_values),
		cmocka_unit_test(test_relocations),
		cmocka_unit_test(test_debug_information_is_skipped),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_type_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
