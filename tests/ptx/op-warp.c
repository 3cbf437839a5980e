/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions between the lanes of a warp, with all lanes and with some, together and after they went different ways. */
#include "operations.h"

#include "values.h"

#include "base/macro.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define LANES 32

/* Places in device memory, 8 bytes a lane. */
#define A     UINT64_C(0x0000)
#define B     UINT64_C(0x1000)
#define MASK  UINT64_C(0x2000) /* lane 0: who takes part */
#define OUT   UINT64_C(0x3000)
#define OUT_P UINT64_C(0x4000)

#define NOTHING UINT64_C(0x3333333333333333)

static struct aq_strbuf text;
static uint64_t seed;

/* A mask for the `round`: all, one, alternating, then random ones. */
static uint32_t members_of(unsigned round)
{
	static const uint32_t fixed[] = { 0xffffffff, 1,	  0x80000000,
					  0x55555555, 0x0000ffff, 0xf0f0f0f0 };
	uint32_t m;

	if (round < AQ_ARRAY_SIZE(fixed))
		return fixed[round];
	m = (uint32_t)aq_values_random(&seed);
	return m ? m : 1;
}

/*
 * One instruction with sources %a and %b (64 bits: %a64), predicate %p (bit 0 of a), results %d and %q, run by the lanes of %m. The other
 * lanes skip it by a branch.
 */
static void run(const char *insn, uint32_t members)
{
	aq_test_words(MASK)[0] = members;
	for (unsigned l = 0; l < LANES; l++)
		aq_test_words(OUT)[l] = aq_test_words(OUT_P)[l] = NOTHING;
	aq_text_begin(&text, ".param .u64 base");
	aq_text_prologue(&text);
	aq_text(&text,
		".reg .b32 %%a, %%b, %%m, %%d, %%e; .reg .b64 %%a64; .reg .pred %%p, %%q, %%in;");
	aq_text(&text, "ld.global.b64 %%a64, [%%at+%u];\nld.global.b32 %%a, [%%at+%u];",
		(unsigned)A, (unsigned)A);
	aq_text(&text, "ld.global.b32 %%b, [%%at+%u];\nld.global.b32 %%m, [%%base+%u];",
		(unsigned)B, (unsigned)MASK);
	aq_text(&text, "and.b32 %%e, %%a, 1;\nsetp.ne.u32 %%p, %%e, 0;\nmov.b32 %%d, 0x77;");
	aq_text(&text, "setp.ne.u32 %%q, 0, 0;\nshr.u32 %%e, %%m, %%gid;\nand.b32 %%e, %%e, 1;");
	aq_text(&text, "setp.ne.u32 %%in, %%e, 0;\n@!%%in bra skip;\n%s", insn);
	aq_text(&text, "st.global.b32 [%%at+%u], %%d;\nselp.u32 %%e, 1, 0, %%q;", (unsigned)OUT);
	aq_text(&text, "st.global.b32 [%%at+%u], %%e;\nskip:", (unsigned)OUT_P);
	aq_text_end(&text);
	aq_text_run(&text, 1, LANES, NULL);
}

static void fill(unsigned variety)
{
	for (unsigned l = 0; l < LANES; l++) {
		aq_test_words(A)[l] = aq_values_random(&seed) % variety * UINT64_C(0x100000001) +
				      (variety > 8 ? aq_values_random(&seed) << 32 : 0);
		aq_test_words(B)[l] = aq_values_random(&seed) % 40;
	}
}

static uint32_t out(unsigned lane)
{
	return (uint32_t)aq_test_words(OUT)[lane];
}

static bool out_pred(unsigned lane)
{
	return aq_test_words(OUT_P)[lane] & 1;
}

static void check(unsigned lane, bool ok, const char *what)
{
	if (!ok)
		fail_msg("lane %u: %s; gives %x|%d, members %llx\n%s", lane, what, out(lane),
			 out_pred(lane), (unsigned long long)aq_test_words(MASK)[0],
			 aq_strbuf_text(&text));
}

static void check_skipped(uint32_t members)
{
	for (unsigned l = 0; l < LANES; l++)
		if (!(members >> l & 1))
			check(l, aq_test_words(OUT)[l] == NOTHING, "does not take part");
}

/* The source lane as PTX computes it: c holds the clamp in bits 0 to 4, the segment mask in bits 8 to 12. */
static int source_lane(char mode, unsigned lane, uint32_t b, uint32_t c, bool *ret_inside)
{
	const int clamp = (int)(c & 31), segment = (int)(c >> 8 & 31), by = (int)(b & 31),
		  at = (int)lane;
	const int max = (at & segment) | (clamp & ~segment), min = at & segment;
	int j;

	switch (mode) {
	case 'u':
		j = at - by;
		*ret_inside = j >= max;
		break;
	case 'd':
		j = at + by;
		*ret_inside = j <= max;
		break;
	case 'b':
		j = at ^ by;
		*ret_inside = j <= max;
		break;
	default:
		j = min | (by & ~segment);
		*ret_inside = j <= max;
		break;
	}
	return *ret_inside ? j : at;
}

static void test_shfl(void **state)
{
	static const char *const modes[] = { "up", "down", "bfly", "idx" };
	static const uint32_t controls[] = { 0x1f, 0, 0x1c1f, 0x1800, 0x181f, 0x1e01, 0x0f };

	(void)state;
	for (size_t m = 0; m < AQ_ARRAY_SIZE(modes); m++)
		for (size_t c = 0; c < AQ_ARRAY_SIZE(controls); c++)
			for (unsigned round = 0; round < 16; round++) {
				const uint32_t members = members_of(round);
				char insn[120];

				fill(1 << 30);
				(void)snprintf(
					insn, sizeof(insn),
					round & 1 ? "shfl.sync.%s.b32 %%d|%%q, %%a, %%b, %u, %%m;"
						  : "shfl.%s.b32 %%d|%%q, %%a, %%b, %u;",
					modes[m], controls[c]);
				run(insn, members);
				check_skipped(members);
				for (unsigned l = 0; l < LANES; l++) {
					bool inside;
					const int j = source_lane(modes[m][0], l,
								  (uint32_t)aq_test_words(B)[l],
								  controls[c], &inside);

					if (!(members >> l & 1))
						continue;
					check(l, out_pred(l) == inside, "predicate");
					/* from a lane that does not take part anything may come */
					if (members >> j & 1)
						check(l, out(l) == (uint32_t)aq_test_words(A)[j],
						      "value");
				}
			}
	/* without a second destination */
	fill(1 << 30);
	run("shfl.sync.idx.b32 %d, %a, 3, 0x1f, 0xffffffff;", 0xffffffff);
	for (unsigned l = 0; l < LANES; l++)
		check(l, out(l) == (uint32_t)aq_test_words(A)[3], "lane 3");
	aq_strbuf_done(&text);
}

static void test_vote(void **state)
{
	static const char *const modes[] = { "all", "any", "uni", "ballot" };

	(void)state;
	for (size_t m = 0; m < AQ_ARRAY_SIZE(modes); m++)
		for (unsigned round = 0; round < 40; round++) {
			const uint32_t members = members_of(round % 12);
			const bool sync = round & 1, negated = round & 2, ballot = m == 3;
			uint32_t votes = 0;
			char insn[100];

			fill(round % 3 == 0 ? 1 : 2);
			if (round % 3 == 1)
				for (unsigned l = 0; l < LANES; l++)
					aq_test_words(A)[l] = 1;
			(void)snprintf(insn, sizeof(insn), "vote.%s%s.%s %s, %s%%p%s;",
				       sync ? "sync." : "", modes[m], ballot ? "b32" : "pred",
				       ballot ? "%d" : "%q", negated ? "!" : "",
				       sync ? ", %m" : "");
			run(insn, members);
			check_skipped(members);
			for (unsigned l = 0; l < LANES; l++)
				votes |= (uint32_t)((aq_test_words(A)[l] & 1) != negated) << l;
			votes &= members;
			for (unsigned l = 0; l < LANES; l++) {
				const bool want = m == 0   ? votes == members
						  : m == 1 ? votes != 0
							   : votes == members || votes == 0;

				if (members >> l & 1)
					check(l, ballot ? out(l) == votes : out_pred(l) == want,
					      "vote");
			}
		}
	aq_strbuf_done(&text);
}

static void test_match(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 48; round++) {
		const uint32_t members = members_of(round % 12);
		const bool all = round & 1, wide = round & 2;
		char insn[80];

		fill(round % 5 ? 4 : 1);
		(void)snprintf(insn, sizeof(insn), "match.%s.sync.%s %%d%s, %s, %%m;",
			       all ? "all" : "any", wide ? "b64" : "b32", all ? "|%q" : "",
			       wide ? "%a64" : "%a");
		run(insn, members);
		check_skipped(members);
		for (unsigned l = 0; l < LANES; l++) {
			uint32_t same = 0;

			for (unsigned k = 0; k < LANES; k++)
				same |= (uint32_t)(aq_test_words(A)[k] == aq_test_words(A)[l]) << k;
			same &= members;
			if (!(members >> l & 1))
				continue;
			if (all)
				check(l,
				      out(l) == (same == members ? members : 0) &&
					      out_pred(l) == (same == members),
				      "match.all");
			else
				check(l, out(l) == same, "match.any");
		}
	}
	aq_strbuf_done(&text);
}

static uint32_t reduced(const char *op, uint32_t x, uint32_t y)
{
	const bool is_signed = strchr(op, 's') != NULL;
	const bool less = is_signed ? (int32_t)x < (int32_t)y : x < y;

	if (strncmp(op, "and", 3) == 0)
		return x & y;
	if (strncmp(op, "or", 2) == 0)
		return x | y;
	if (strncmp(op, "xor", 3) == 0)
		return x ^ y;
	if (strncmp(op, "add", 3) == 0)
		return x + y;
	if (strncmp(op, "min", 3) == 0)
		return less ? x : y;
	return less ? y : x;
}

static void test_redux(void **state)
{
	static const char *const ops[] = { "and.b32", "or.b32",	 "xor.b32", "add.u32", "add.s32",
					   "min.u32", "min.s32", "max.u32", "max.s32" };

	(void)state;
	for (size_t m = 0; m < AQ_ARRAY_SIZE(ops); m++)
		for (unsigned round = 0; round < 12; round++) {
			const uint32_t members = members_of(round);
			char insn[80];
			uint32_t want = 0;
			bool first = true;

			fill(1 << 30);
			for (unsigned l = 0; l < LANES; l++)
				aq_test_words(A)[l] = aq_values_random(&seed);
			const char *dot = strchr(ops[m], '.');

			(void)snprintf(insn, sizeof(insn), "redux.sync.%.*s%s %%d, %%a, %%m;",
				       (int)(dot - ops[m]), ops[m], dot);
			run(insn, members);
			check_skipped(members);
			for (unsigned l = 0; l < LANES; l++) {
				if (!(members >> l & 1))
					continue;
				want = first ? (uint32_t)aq_test_words(A)[l]
					     : reduced(ops[m], want, (uint32_t)aq_test_words(A)[l]);
				first = false;
			}
			for (unsigned l = 0; l < LANES; l++)
				if (members >> l & 1)
					check(l, out(l) == want, "reduction");
		}
	aq_strbuf_done(&text);
}

static void test_activemask(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 12; round++) {
		const uint32_t members = members_of(round);

		run("activemask.b32 %d;", members);
		check_skipped(members);
		for (unsigned l = 0; l < LANES; l++)
			if (members >> l & 1)
				check(l, out(l) == members, "lanes together");
	}
	aq_strbuf_done(&text);
}

static void test_elect(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 12; round++) {
		const uint32_t members = members_of(round);
		unsigned leaders = 0;
		uint32_t leader = 0;

		run("elect.sync %d|%q, %m;", members);
		check_skipped(members);
		for (unsigned l = 0; l < LANES; l++)
			if (members >> l & 1 && out_pred(l)) {
				leaders++;
				leader = l;
			}
		assert_int_equal(leaders, 1);
		for (unsigned l = 0; l < LANES; l++)
			if (members >> l & 1)
				check(l, out(l) == leader, "leader");
	}
	aq_strbuf_done(&text);
}

/* Lanes that come on different ways wait for each other, once and in a loop. */
static void test_meeting(void **state)
{
	(void)state;
	fill(1 << 30);
	run("and.b32 %e, %gid, 1; setp.eq.u32 %in, %e, 0; @%in bra even;\n"
	    "mul.lo.u32 %a, %a, 3; bra both;\n"
	    "even: mul.lo.u32 %a, %a, 5;\n"
	    "both: shfl.sync.bfly.b32 %d, %a, 1, 0x1f, 0xffffffff;",
	    0xffffffff);
	for (unsigned l = 0; l < LANES; l++)
		check(l, out(l) == (uint32_t)aq_test_words(A)[l ^ 1] * (l & 1 ? 5u : 3u),
		      "neighbour");
	/* each lane loops as often as its number says before it comes */
	run("mov.u32 %e, 0; mov.b32 %b, %a;\n"
	    "again: setp.eq.u32 %in, %e, %gid; @%in bra out; add.u32 %e, %e, 1; add.u32 %b, %b, 1; bra again;\n"
	    "out: shfl.sync.idx.b32 %d, %b, 31, 0x1f, 0xffffffff;",
	    0xffffffff);
	for (unsigned l = 0; l < LANES; l++)
		check(l, out(l) == (uint32_t)aq_test_words(A)[31] + 31, "last lane");
	aq_strbuf_done(&text);
}

static void test_warp_barrier(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 12; round++) {
		const uint32_t members = members_of(round);

		fill(1 << 30);
		/* each lane leaves its number for the others, then reads what the member before it left */
		run("st.global.u32 [%at+0x5000], %gid;\nbar.warp.sync %m;\n"
		    "sub.u32 %e, %gid, 1; and.b32 %e, %e, 31; mul.wide.u32 %t64, %e, 8;\n"
		    "add.u64 %t64, %t64, %base; ld.global.u32 %d, [%t64+0x5000];",
		    members);
		check_skipped(members);
		for (unsigned l = 0; l < LANES; l++)
			if (members >> l & 1 && members >> ((l - 1) & 31) & 1)
				check(l, out(l) == ((l - 1) & 31), "what the neighbour wrote");
	}
	aq_strbuf_done(&text);
}

const struct aq_operation aq_operations_warp[] = {
	{ "shfl", test_shfl },
	{ "vote", test_vote },
	{ "match", test_match },
	{ "redux", test_redux },
	{ "activemask", test_activemask },
	{ "elect", test_elect },
	{ "shfl", test_meeting },
	{ "bar", test_warp_barrier },
	{ 0 },
};
