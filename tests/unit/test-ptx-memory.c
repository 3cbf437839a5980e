/* SPDX-License-Identifier: Apache-2.0 */
/* The n-th allocation of the parser fails, for every n: refused with a reason, nothing leaked (the sanitizer says so). */
#include "gpud/soft/ptx/ptx.h"
#include "util/strbuf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The linker sends the parser's allocations here. */
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);

static long left = -1; /* allocations until one fails; negative: none does */

static bool fails(void)
{
	return left >= 0 && left-- == 0;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

static const char text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".global .u32 a = 5, m[2][2] = {{1}, {2, 3}}; .global .u64 q[] = {generic(a)+8, a-4, f};\n"
	".extern .func (.param .b32 r) f (.param .b64 x, .reg .b32 y);\n"
	".visible .entry k(.param .u64 p) .maxntid 128 {\n"
	".reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .pred %p<3>; .shared .b8 s[16];\n"
	"top: setp.ne.s32 %p1|%p2, %r1, 0; @%p1 bra end; mov.b64 {%r2, %r3}, %rd1;\n"
	"{ .param .b64 x; .param .b32 y; proto: .callprototype (.param .b32 _) _ (.param .b64 _);\n"
	"call (y), %rd2, (x), proto; call (y), f, (x, %r1); }\n"
	"T: .branchtargets top, end; brx.idx %r1, T; call later; end: ret; }\n"
	".func later { ret; }\n";

static void test_every_allocation(void **state)
{
	long n;

	(void)state;
	for (n = 0;; n++) {
		struct aq_strbuf log = { 0 };
		struct aq_ptx_module *m;

		aq_strbuf_add(&log, ".", 1); /* the log has its memory by now */
		left = n;
		m = aq_ptx_parse(text, strlen(text), &log);
		if (m) {
			assert_int_equal(left, 0);
			left = -1;
			aq_ptx_free(m);
			aq_strbuf_done(&log);
			break;
		}
		left = -1;
		assert_true(n < 2 || strstr(aq_strbuf_text(&log), "too much memory"));
		aq_strbuf_done(&log);
		assert_true(n < 10000);
	}
	assert_true(n > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_allocation) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
