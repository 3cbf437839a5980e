/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the interpreter is on one core: lane-instructions per second in a loop of f32 FMAs, in a loop of integer instructions, and in one
 * that streams through memory.
 */
#include "ptx/device.h"

#include "base/clock.h"
#include "base/macro.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD \
	".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 base, .param .u32 n)\n{\n"

struct workload {
	const char *name;
	const char *text;
	uint32_t rounds;
};

static const struct workload workloads[] = {
	{
		"f32-fma",
		HEAD
		".reg .f32 %a, %b, %c, %d, %x, %y; .reg .u32 %i, %n, %t; .reg .u64 %p, %o; .reg .pred %q;\n"
		"ld.param.u64 %p, [base]; ld.param.u32 %n, [n]; mov.u32 %t, %tid.x;\n"
		"cvt.rn.f32.u32 %a, %t; mov.f32 %b, %a; mov.f32 %c, %a; mov.f32 %d, %a;\n"
		"mov.f32 %x, 0f3F7FFFEF; mov.f32 %y, 0f3DCCCCCD; mov.u32 %i, 0;\n"
		"loop:\n"
		"fma.rn.f32 %a, %a, %x, %y; fma.rn.f32 %b, %b, %x, %y;\n"
		"fma.rn.f32 %c, %c, %x, %y; fma.rn.f32 %d, %d, %x, %y;\n"
		"fma.rn.f32 %a, %a, %x, %y; fma.rn.f32 %b, %b, %x, %y;\n"
		"fma.rn.f32 %c, %c, %x, %y; fma.rn.f32 %d, %d, %x, %y;\n"
		"add.u32 %i, %i, 1; setp.lt.u32 %q, %i, %n; @%q bra loop;\n"
		"add.f32 %a, %a, %b; add.f32 %c, %c, %d; add.f32 %a, %a, %c;\n"
		"mul.wide.u32 %o, %t, 4; add.u64 %p, %p, %o; st.global.f32 [%p], %a; ret;\n}\n",
		20000,
	},
	{
		"integer",
		HEAD
		".reg .u32 %a, %b, %c, %i, %n, %t; .reg .u64 %p, %o; .reg .pred %q;\n"
		"ld.param.u64 %p, [base]; ld.param.u32 %n, [n]; mov.u32 %t, %tid.x;\n"
		"mov.u32 %a, %t; mov.u32 %b, 12345; mov.u32 %i, 0;\n"
		"loop:\n"
		"mad.lo.u32 %a, %a, 1664525, 1013904223; shr.u32 %c, %a, 13; xor.b32 %b, %b, %c;\n"
		"add.u32 %b, %b, %a; shl.b32 %c, %b, 5; and.b32 %c, %c, %a;\n"
		"max.u32 %b, %b, %c; sub.u32 %a, %a, %b;\n"
		"add.u32 %i, %i, 1; setp.lt.u32 %q, %i, %n; @%q bra loop;\n"
		"add.u32 %a, %a, %b;\n"
		"mul.wide.u32 %o, %t, 4; add.u64 %p, %p, %o; st.global.u32 [%p], %a; ret;\n}\n",
		20000,
	},
	{
		"memory",
		HEAD
		".reg .f32 %x, %y; .reg .u32 %i, %n, %t; .reg .u64 %p, %s, %o; .reg .pred %q;\n"
		"ld.param.u64 %p, [base]; ld.param.u32 %n, [n]; mov.u32 %t, %tid.x; mov.u32 %i, 0;\n"
		"mul.wide.u32 %o, %t, 4; add.u64 %s, %p, %o;\n"
		"loop:\n"
		"ld.global.f32 %x, [%s]; ld.global.f32 %y, [%s+1048576];\n"
		"fma.rn.f32 %y, %x, 0f40000000, %y; st.global.f32 [%s+2097152], %y;\n"
		"add.u64 %s, %s, 1024; and.b64 %s, %s, 0xfffff; add.u64 %s, %s, %p;\n"
		"add.u32 %i, %i, 1; setp.lt.u32 %q, %i, %n; @%q bra loop; ret;\n}\n",
		20000,
	},
};

struct params {
	uint64_t base;
	uint32_t n;
};

/* The best of five runs. */
static double measure(struct aq_device *d, const struct workload *w)
{
	struct aq_code *code = aq_device_build(d, w->text);
	struct params p = { AQ_DEVICE_BASE, w->rounds };
	double best = 0;

	if (!code) {
		(void)fprintf(stderr, "%s: %s", w->name, d->log);
		exit(1);
	}
	for (int run = 0; run < 5; run++) {
		const uint64_t start = aq_now_ns();
		double rate;

		d->lane_insns = 0;
		if (aq_device_launch(d, code, 1, 256, 0, &p) != AQ_OK) {
			(void)fprintf(stderr, "%s: the kernel failed\n", w->name);
			exit(1);
		}
		rate = (double)d->lane_insns * 1e9 / (double)(aq_now_ns() - start);
		best = AQ_MAX(best, rate);
	}
	aq_code_free(code);
	return best;
}

int main(int argc, char **argv)
{
	const bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
	struct aq_device d;

	aq_device_init(&d);
	if (json)
		(void)printf(
			"{\"bench\": \"interpreter\", \"unit\": \"lane-instructions per second and core\", \"results\": {");
	else
		(void)printf("%-10s %22s\n", "loop", "M lane-instructions/s");
	for (size_t k = 0; k < AQ_ARRAY_SIZE(workloads); k++) {
		const double rate = measure(&d, &workloads[k]);

		if (json)
			(void)printf("%s\"%s\": %.0f", k ? ", " : "", workloads[k].name, rate);
		else
			(void)printf("%-10s %22.1f\n", workloads[k].name, rate / 1e6);
	}
	if (json)
		(void)printf("}}\n");
	aq_device_done(&d);
	return 0;
}
