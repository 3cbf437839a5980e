/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong PTX: each text is refused with its line and a message that names what is wrong. */
#include "base/macro.h"
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
/* Lines of the body count from 6. */
#define BODY HEAD ".entry k()\n{\n"

static void check_refused(const char *text, size_t len, const char *expected)
{
	struct aq_strbuf log = { 0 };
	struct aq_ptx_module *m = aq_ptx_parse(text, len, &log);

	if (m || strncmp(aq_strbuf_text(&log), expected, strlen(expected)) != 0)
		fail_msg("text:\n%s\nexpected: %s\ngot: %s", text, expected,
			 m ? "success" : aq_strbuf_text(&log));
	/* One line, ended. */
	assert_ptr_equal(strchr(log.text, '\n'), log.text + log.len - 1);
	assert_null(aq_ptx_parse(text, len, NULL));
	aq_strbuf_done(&log);
}

struct wrong {
	const char *text, *expected;
};

static void check_all(const struct wrong *w, size_t n)
{
	for (size_t i = 0; i < n; i++)
		check_refused(w[i].text, strlen(w[i].text), w[i].expected);
}

static void test_module(void **state)
{
	static const struct wrong wrong[] = {
		{ "", "line 1: .version is missing" },
		{ ".target sm_70", "line 1: .version is missing at the beginning" },
		{ ".version 7.0\n", "line 2: .target is missing" },
		{ ".version 7.0\n.global .u32 x;", "line 2: .target is missing before" },
		{ ".version 7", "line 1: version like 7.0 expected, found '7'" },
		{ ".version 3.1\n.target sm_30", "line 1: PTX version 3.1 is not supported" },
		{ ".version 9.0\n.target sm_30", "line 1: PTX version 9.0 is not supported" },
		{ ".version 7.0\n.version 7.0", "line 2: .version is given twice" },
		{ ".version 7.0\n.target sm_70, map_f64_to_f32",
		  "line 2: target option 'map_f64_to_f32' is not supported" },
		{ ".version 7.0\n.target compute_70",
		  "line 2: target option 'compute_70' is not supported" },
		{ HEAD ".address_size 16", "line 4: 32 or 64 expected, found '16'" },
		{ HEAD ".alias a, b;", "line 4: directive '.alias' is not supported" },
		{ HEAD "\n.frobnicate 5;", "line 5: directive '.frobnicate' is not supported" },
		{ HEAD "hello", "line 4: directive expected, found 'hello'" },
		{ HEAD ".section .text { }", "line 4: name of a .debug_ section expected" },
		{ HEAD ".section .debug_info {\n", "line 4: section does not end" },
		{ HEAD ".pragma nounroll;", "line 4: string of .pragma expected" },
		{ HEAD ".reg .b32 r;", "line 4: '.reg' is declared inside functions only" },
		{ HEAD ".local .b32 r;", "line 4: '.local' is declared inside functions only" },
		{ HEAD ".common .shared .b32 r;", "line 4: only .global variables are .common" },
	};

	(void)state;
	check_all(wrong, AQ_ARRAY_SIZE(wrong));
}

static void test_tokens(void **state)
{
	static const struct wrong wrong[] = {
		{ "/* never\nends", "line 1: comment does not end\n" },
		{ HEAD ".file 1 \"abc\n", "line 4: string does not end on its line" },
		{ HEAD "\x01", "line 4: unexpected character: '?'" },
		{ HEAD "\xff\xfe", "line 4: unexpected character: '?'" },
		{ HEAD ".global .u32 x = 0x;", "line 4: number has no digits" },
		{ HEAD ".global .u32 x = 08;", "line 4: malformed number: '0'" },
		{ HEAD ".global .u32 x = 12abc;", "line 4: malformed number" },
		{ HEAD ".global .u32 x = 0f3F80;", "line 4: 0f needs 8 hexadecimal digits" },
		{ HEAD ".global .f32 x = 0f3F8000000;", "line 4: 0f needs 8 hexadecimal digits" },
		{ HEAD ".global .f64 x = 0d3F;", "line 4: 0d needs 16 hexadecimal digits" },
		{ HEAD ".global .f64 x = 1e;", "line 4: exponent without digits" },
		{ HEAD ".global .u64 x = 18446744073709551616;",
		  "line 4: number has no digits or does not fit 64 bits" },
	};

	(void)state;
	check_all(wrong, AQ_ARRAY_SIZE(wrong));
	check_refused(HEAD "a\0b", sizeof(HEAD) + 2, "line 4: directive expected, found 'a'");
	check_refused("\0.version", 9, "line 1: unexpected character");
}

static void test_variables(void **state)
{
	static const struct wrong wrong[] = {
		{ HEAD ".global x;", "line 4: type expected, found 'x'" },
		{ HEAD ".global .u33 x;", "line 4: type expected, found '.u33'" },
		{ HEAD ".global .u32 .u32 x;", "line 4: name expected, found '.u32'" },
		{ HEAD ".global .pred x;", "line 4: a predicate is always a register" },
		{ HEAD ".global .v4 .f64 x;", "line 4: .v4 .f64 is wider than 16 bytes" },
		{ HEAD ".global .align 3 .b8 x;", "line 4: alignment 3 is not a power of two" },
		{ HEAD ".global .align -4 .b8 x;", "line 4: alignment is not between" },
		{ HEAD ".global .u32 x", "line 4: ';' expected, found end of text" },
		{ HEAD ".global .u32 x[];", "line 4: array 'x' has no size" },
		{ HEAD ".global .u32 x[0];", "line 4: array size is 0" },
		{ HEAD ".global .u32 x[1.5];", "line 4: array size is not an integer" },
		{ HEAD ".global .u32 x[2][];", "line 4: constant expected, found ']'" },
		{ HEAD ".global .u8 x[1024][1024][1025];", "line 4: variable is larger than" },
		{ HEAD ".global .u8 x[0xFFFFFFFFFFFFFFFF];", "line 4: array size is not between" },
		{ HEAD ".global .u8 x[1][1][1][1][1][1][1][1][1];",
		  "line 4: more than 8 dimensions" },
		{ HEAD ".global .u32 x;\n.global .u32 x;",
		  "line 5: 'x' is declared twice, first in line 4" },
		{ HEAD ".extern .global .u32 x;\n.global .u64 x;",
		  "line 5: 'x' is unlike its declaration in line 4" },
		{ HEAD ".func x;\n.global .u64 x;", "line 5: 'x' is declared twice" },
		{ HEAD ".shared .u32 x = 1;", "line 4: a .shared variable takes no initialiser" },
		{ HEAD ".extern .global .u32 x = 1;",
		  "line 4: an .extern variable takes no initialiser" },
		{ HEAD ".global .u32 x[2] = 1;", "line 4: '{' expected, found '1'" },
		{ HEAD ".global .u32 x = {1};", "line 4: braces around the value of a scalar" },
		{ HEAD ".global .u32 x[2] = {1,\n2,\n3};",
		  "line 6: more initialisers than 'x' has elements" },
		{ HEAD ".global .u32 x[2][2] = {{1, 2, 3}};",
		  "line 4: more initialisers than 'x'" },
		{ HEAD ".global .u32 x[2][2] = {1, {2}};",
		  "line 4: brace in the initialiser of 'x' starts no element" },
		{ HEAD ".global .u32 x[1] = {{{1}}};",
		  "line 4: brace in the initialiser of 'x' starts no element" },
		{ HEAD ".global .u32 x = 1.5;",
		  "line 4: floating-point initialiser of a .u32 variable" },
		{ HEAD ".global .f16 x = 1.5;",
		  "line 4: initialiser of a .f16 variable is not supported" },
		{ HEAD ".global .u64 x =\nnobody;",
		  "line 5: 'nobody' in an initialiser is not declared" },
		{ HEAD ".global .u16 x = x;", "line 4: an address does not fit a .u16" },
		{ HEAD ".global .b8 x[2] = {0xFF(x), 0xFF00(x)};",
		  "line 4: masked address of 'x' is not 4 or 8 bytes" },
		{ HEAD ".global .b8 x[4] = {0xFF(x), 0xFF0000(x)};",
		  "line 4: masked addresses are not consecutive" },
		{ HEAD ".global .b8 x[4] = {1/0};", "line 4: division by zero" },
		{ HEAD ".global .b8 x[4] = {\"abc\"};",
		  "line 4: constant expected, found a string" },
		{ HEAD ".shared .attribute(.managed) .u32 x;",
		  "line 4: only a .global variable is .managed" },
		{ HEAD ".global .attribute(.other) .u32 x;",
		  "line 4: attribute .managed expected, found '.other'" },
		{ HEAD ".const[2] .u32 x;", "line 4: type expected, found '['" },
	};

	(void)state;
	check_all(wrong, AQ_ARRAY_SIZE(wrong));
}

static void test_functions(void **state)
{
	static const struct wrong wrong[] = {
		{ HEAD ".entry { }", "line 4: function name expected, found '{'" },
		{ HEAD ".entry k(.param .u32 a", "line 4: ')' expected, found end of text" },
		{ HEAD ".entry k(.u32 a) { }", "line 4: .param or .reg expected, found '.u32'" },
		{ HEAD ".entry k(.reg .u32 a) { }",
		  "line 4: parameters of kernel 'k' are registers" },
		{ HEAD ".entry k(.param .b8 a[40000]) { }",
		  "line 4: kernel 'k' has 40000 bytes of parameters" },
		{ HEAD ".entry k(.param .b8 a[], .param .u32 b) { }",
		  "line 4: parameter 'a' without a size" },
		{ HEAD ".entry k(.param .u32 a, .param .u32 a) { }",
		  "line 4: 'a' is declared twice" },
		{ HEAD ".func f(.param .u32 f) { }",
		  "line 4: a parameter has the name of its function 'f'" },
		{ HEAD ".entry k() .maxntid 0\n{ }", "line 4: block dimension is not between" },
		{ HEAD ".entry k() .maxntid 65536, 2\n{ }",
		  "line 4: block dimensions are too large" },
		{ HEAD ".entry k()\n.reqnctapercluster 2 { }",
		  "line 5: directive '.reqnctapercluster' of a kernel is not supported" },
		{ HEAD ".func f() .maxntid 1 { }",
		  "line 4: body of the function expected, found '.maxntid'" },
		{ HEAD ".func f() { }\n.func f() { }",
		  "line 5: 'f' is defined twice, first in line 4" },
		{ HEAD ".func f(.param .u32 a);\n.func f(.param .u64 a) { }",
		  "line 5: 'f' is unlike its declaration in line 4" },
		{ HEAD ".func f;\n.entry f { }", "line 5: 'f' is unlike its declaration" },
		{ HEAD ".global .u32 f;\n.func f;", "line 5: 'f' is declared twice" },
		{ HEAD ".common .func f;", "line 4: a function is not .common" },
		{ HEAD ".func f",
		  "line 4: ';' or body of the function expected, found end of text" },
	};

	(void)state;
	check_all(wrong, AQ_ARRAY_SIZE(wrong));
}

static void test_bodies(void **state)
{
	static const struct wrong wrong[] = {
		{ BODY, "line 6: instruction or label expected, found end of text" },
		{ BODY "{\nret;\n}", "line 8: instruction or label expected, found end of text" },
		{ BODY "mov.u32 %r1, 5;}", "line 6: '%r1' is not declared" },
		{ BODY ".reg .b32 %r<3>;\nmov.u32 %r3, 5;}", "line 7: '%r3' is not declared" },
		{ BODY ".reg .b32 %r<3>;\nmov.u32 %r01, 5;}", "line 7: '%r01' is not declared" },
		{ BODY ".reg .b32 %r<1048577>;}",
		  "line 6: more than 1048576 registers in a function" },
		{ BODY ".reg .b32 %r<x>;}", "line 6: number of registers expected" },
		{ BODY ".reg .b32 a; .reg .b64 a;}", "line 6: 'a' is declared twice" },
		{ BODY "{ .reg .b32 a; }\nmov.u32 [a], 5;}", "line 7: 'a' is not declared" },
		{ BODY "bra\nnowhere;}", "line 7: 'nowhere' is not defined" },
		{ BODY "{ inner: ret; }\nbra inner;}", "line 7: 'inner' is not defined" },
		{ BODY "a: ret;\na: ret;}", "line 7: 'a' is declared twice" },
		{ BODY "t: .branchtargets a,\nb; a: ret;}", "line 7: label 'b' is not defined" },
		{ BODY "t: .calltargets a; a: ret;}", "line 6: 'a' is not defined" },
		{ BODY ".branchtargets a;}",
		  "line 6: directive '.branchtargets' in a function is not supported" },
		{ BODY ".global .u32 x;}",
		  "line 6: .global and .const variables belong to the module" },
		{ BODY ".reg .b32 r;\n@r ret;}", "line 7: guard 'r' is not a predicate register" },
		{ BODY "@5 ret;}", "line 6: predicate expected, found '5'" },
		{ BODY "ret", "line 6: constant expected, found end of text" },
		{ BODY "ret }", "line 6: constant expected, found '}'" },
		{ BODY "mov.u32 1 2;}", "line 6: ';' expected, found '2'" },
		{ BODY ".reg .v4 .b32 v; mov.b32 v.q, 1;}",
		  "line 6: element .x, .y, .z or .w expected, found '.q'" },
		{ BODY "mov.b32 1, !%tid;}", "line 6: only a register can be negated" },
		{ BODY "mov.b32 5|6|k;}", "line 6: constant expected, found 'k'" },
		{ BODY "mov.b32 k|5;}", "line 6: '|' does not follow a register" },
		{ BODY "ld [k];}", "line 6: address is neither register nor variable" },
		{ BODY "ld [1.0];}", "line 6: address is a floating-point number" },
		{ BODY "ld [1;}", "line 6: ']' expected, found ';'" },
		{ BODY "mov {1, 2;}", "line 6: '}' expected, found ';'" },
		{ BODY "mov {{{{{{{{1}}}}}}}};}", "line 6: operands are nested too deeply" },
		{ BODY "mov 1,2,3,4,5,6,7,8,9;}",
		  "line 6: instruction 'mov' has more than 8 operands" },
		{ BODY "mov.a.b.c.d.e.f.g.h.i.j.k.l.m 1;}",
		  "line 6: instruction 'mov' has more than 12 modifiers" },
		{ BODY ".loc 1 2;}", "line 6: number in .loc expected, found ';'" },
		{ BODY "\n.bogus;}", "line 7: directive '.bogus' in a function is not supported" },
		{ BODY ".shared .u32 x = 5;}", "line 6: a .shared variable takes no initialiser" },
	};

	(void)state;
	check_all(wrong, AQ_ARRAY_SIZE(wrong));
}

static void repeat(struct aq_strbuf *b, const char *text, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		aq_strbuf_add(b, text, strlen(text));
}

static void check_repeated(const char *head, const char *unit, unsigned n, const char *expected)
{
	struct aq_strbuf b = { 0 };

	aq_strbuf_add(&b, head, strlen(head));
	repeat(&b, unit, n);
	check_refused(b.text, b.len, expected);
	aq_strbuf_done(&b);
}

static void test_depth_is_bounded(void **state)
{
	(void)state;
	check_repeated(BODY, "{", 100000, "line 6: scopes are nested deeper than 256");
	check_repeated(BODY "mov ", "(", 100000, "line 6: expression is nested too deeply");
	check_repeated(BODY "mov ", "- ", 100000, "line 6: expression is nested too deeply");
	check_repeated(BODY "mov ", "(.s64)", 100000, "line 6: expression is nested too deeply");
	check_repeated(BODY "mov ", "1?", 100000, "line 6: expression is nested too deeply");
	check_repeated(BODY "mov ", "1?1:", 100000, "line 6: expression is nested too deeply");
	check_repeated(BODY "mov ", "{", 100000, "line 6: operands are nested too deeply");
	check_repeated(BODY "call ", "(", 100000, "line 6: expression is nested too deeply");
	check_repeated(BODY "mov ", "[", 100000, "line 6: constant expected");
	check_repeated(HEAD ".global .u32 x[1] = ", "{", 100000,
		       "line 4: brace in the initialiser");
}

/* Cheap to write, large to keep: the module's memory is bounded, and a range of registers costs nothing until one is named. */
static void test_size_is_bounded(void **state)
{
	struct aq_strbuf b = { 0 };
	struct aq_ptx_module *m;

	(void)state;
	check_repeated(BODY "mov {", "1,", 5000, "line 6: more than 4096 operands in one");
	aq_strbuf_add(&b, HEAD, strlen(HEAD));
	for (int i = 0; i < 10000; i++)
		aq_strbuf_printf(&b,
				 ".func f%d { .reg .b32 %%r<1048576>; mov %%r1048575, %%r0; }\n",
				 i);
	m = aq_ptx_parse(b.text, b.len, NULL);
	assert_non_null(m);
	assert_int_equal(m->n_funcs, 10000);
	assert_int_equal(m->funcs[9999].n_regs, 2);
	aq_ptx_free(m);
	aq_strbuf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_module),		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_variables),	cmocka_unit_test(test_functions),
		cmocka_unit_test(test_bodies),		cmocka_unit_test(test_depth_is_bounded),
		cmocka_unit_test(test_size_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
