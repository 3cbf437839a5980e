/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of one grid on several threads: atomics between them, a lock in device memory, a flag that one block waits for. */
#include "exec-harness.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_WORKERS 4
#define N_BLOCKS  64

struct pool {
	struct aq_grid *grid;
	pthread_barrier_t start;
	uint64_t next; /* block; atomic */
	int n_bad;     /* atomic */
};

static void *worker(void *opaque)
{
	struct pool *p = opaque;
	uint64_t index;

	(void)pthread_barrier_wait(&p->start);
	while ((index = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED)) < N_BLOCKS) {
		struct aq_block *b = aq_block_new(p->grid, index, 0);
		struct aq_run_result r;
		enum aq_run how = AQ_RUN_FAULT;

		for (int k = 0; b && k < 100000; k++) {
			how = aq_block_run(b, 1000, &r);
			if (how != AQ_RUN_YIELD && how != AQ_RUN_SLEEP)
				break;
		}
		if (how != AQ_RUN_DONE)
			__atomic_fetch_add(&p->n_bad, 1, __ATOMIC_RELAXED);
		aq_block_free(b);
	}
	return NULL;
}

static void run(struct bench *b, const uint64_t *params)
{
	const struct aq_launch l = {
		.code = b->code,
		.grid = { N_BLOCKS, 1, 1 },
		.block = { 64, 1, 1 },
		.params = params,
		.mem = &b->map,
		.stack_bytes = 1024,
		.n_sm = 4,
		.clock_khz = 1000000,
	};
	struct pool p = { 0 };
	pthread_t threads[N_WORKERS];

	assert_int_equal(aq_grid_new(&l, &p.grid), AQ_OK);
	assert_int_equal(pthread_barrier_init(&p.start, NULL, N_WORKERS), 0);
	for (int k = 0; k < N_WORKERS; k++)
		assert_int_equal(pthread_create(&threads[k], NULL, worker, &p), 0);
	for (int k = 0; k < N_WORKERS; k++)
		assert_int_equal(pthread_join(threads[k], NULL), 0);
	pthread_barrier_destroy(&p.start);
	aq_grid_free(p.grid);
	assert_int_equal(p.n_bad, 0);
}

/* p[0]: a sum; p[1], p[2]: a lock and what it guards; p[3]: tickets, by which the last block finds that it is. */
static void test_blocks(void **state)
{
	static const char ptx[] =
		".visible .entry k(.param .u64 p)\n{\n"
		"	.reg .pred %p<6>; .reg .b32 %r<12>; .reg .b64 %rd<3>; .shared .align 4 .u32 s;\n"
		"	ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0;\n"
		"	@%p1 st.shared.u32 [s], 0; bar.sync 0; red.shared.add.u32 [s], 1; bar.sync 0;\n"
		"	red.global.add.u32 [%rd1], %r1;\n"
		"	@!%p1 bra END;\n"
		"L:	atom.acquire.gpu.global.cas.b32 %r2, [%rd1+4], 0, 1; setp.ne.u32 %p2, %r2, 0; @%p2 bra L;\n"
		"	ld.volatile.global.u32 %r3, [%rd1+8]; ld.shared.u32 %r4, [s]; add.u32 %r3, %r3, %r4;\n"
		"	st.volatile.global.u32 [%rd1+8], %r3; membar.gl;\n"
		"	atom.release.gpu.global.exch.b32 %r5, [%rd1+4], 0;\n"
		"	atom.global.inc.u32 %r6, [%rd1+12], 1000; setp.ne.u32 %p3, %r6, 63; @%p3 bra END;\n"
		"	ld.volatile.global.u32 %r7, [%rd1+8]; st.global.u32 [%rd1+16], %r7;\n"
		"END:	ret;\n}\n";
	struct bench b;
	uint64_t p;
	const uint32_t *v;

	(void)state;
	bench_init(&b, ptx);
	p = bench_alloc(&b, 64);
	v = bench_host(&b, p);
	run(&b, &p);
	assert_int_equal(v[0], N_BLOCKS * 63 * 32);
	assert_int_equal(v[1], 0);
	assert_int_equal(v[2], N_BLOCKS * 64);
	assert_int_equal(v[3], N_BLOCKS);
	assert_int_equal(v[4], N_BLOCKS * 64);
	bench_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
