/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions that reach memory, other lanes or the flow of control; and that every instruction taken has a test. */
#include "operations.h"

#include "gpud/soft/exec/lower.h"
#include "isa.h"

#include "base/macro.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct aq_device aq_test_device;

static const struct aq_operation *const tables[] = {
	aq_operations_memory,
	aq_operations_atomic,
	aq_operations_warp,
	aq_operations_control,
};

void aq_text(struct aq_strbuf *b, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	aq_strbuf_printf(b, "%s\n", line);
}

void aq_text_begin(struct aq_strbuf *b, const char *params)
{
	aq_strbuf_done(b);
	memset(b, 0, sizeof(*b));
	aq_text(b, ".version 8.6\n.target sm_90\n.address_size 64");
	if (params)
		aq_text(b, ".visible .entry k(%s)\n{", params);
}

void aq_text_prologue(struct aq_strbuf *b)
{
	aq_text(b, ".reg .u32 %%gid, %%t32; .reg .u64 %%base, %%at, %%t64;");
	aq_text(b, "mov.u32 %%gid, %%ctaid.x;\nmov.u32 %%t32, %%ntid.x;");
	aq_text(b, "mul.lo.u32 %%gid, %%gid, %%t32;\nmov.u32 %%t32, %%tid.x;");
	aq_text(b, "add.u32 %%gid, %%gid, %%t32;\nld.param.u64 %%base, [base];");
	aq_text(b, "mul.wide.u32 %%at, %%gid, 8;\nadd.u64 %%at, %%at, %%base;");
}

void aq_text_end(struct aq_strbuf *b)
{
	aq_text(b, "ret;\n}");
}

void aq_text_run(struct aq_strbuf *b, unsigned grid, unsigned block, const void *params)
{
	const uint64_t base = AQ_DEVICE_BASE;
	const enum aq_status status = aq_device_run(&aq_test_device, aq_strbuf_text(b), grid, block,
						    params ? params : &base);

	if (status != AQ_OK)
		fail_msg("status %d at line %u of\n%s", status, aq_test_device.last.fault_line,
			 aq_strbuf_text(b));
}

void aq_text_refused(struct aq_strbuf *b)
{
	struct aq_code *code = aq_device_build(&aq_test_device, aq_strbuf_text(b));

	if (!code)
		return;
	aq_code_free(code);
	fail_msg("is taken, but should not:\n%s", aq_strbuf_text(b));
}

static int begin(void **state)
{
	(void)state;
	memset(aq_test_device.mem, 0, AQ_DEVICE_BYTES);
	aq_test_device.quantum = 0;
	return 0;
}

static bool has_test(const char *name)
{
	for (size_t t = 0; t < AQ_ARRAY_SIZE(tables); t++)
		for (const struct aq_operation *op = tables[t]; op->name; op++)
			if (strcmp(op->name, name) == 0)
				return true;
	for (const struct aq_isa_line *l = aq_isa_arithmetic; l->name; l++)
		if (strcmp(l->name, name) == 0)
			return true;
	return false;
}

/* Lowering says which names it takes; arithmetic ones have test-arithmetic.c. */
static void test_every_instruction_has_a_test(void **state)
{
	unsigned without = 0;
	const char *name;

	(void)state;
	for (unsigned k = 0; (name = aq_lower_name(k)); k++) {
		print_message("# takes %s\n", name);
		if (has_test(name))
			continue;
		without++;
		print_error("%s is taken, but no test is named after it\n", name);
	}
	assert_int_equal(without, 0);
}

#define MAX_TESTS 256

int main(void)
{
	struct CMUnitTest tests[MAX_TESTS] = {
		cmocka_unit_test(test_every_instruction_has_a_test),
	};
	size_t n = 1;
	int failed;

	for (size_t t = 0; t < AQ_ARRAY_SIZE(tables); t++)
		for (const struct aq_operation *op = tables[t]; op->name && n < MAX_TESTS; op++)
			tests[n++] = (struct CMUnitTest){ op->name, op->test, begin, NULL, NULL };
	aq_device_init(&aq_test_device);
	failed = _cmocka_run_group_tests("operations", tests, n, NULL, NULL);
	aq_device_done(&aq_test_device);
	return failed;
}
