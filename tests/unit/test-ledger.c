/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger: its arithmetic, its exactness under races of threads and processes, and its books after a kill at every instruction. */
#include "core/ledger.h"

#include "base/macro.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* What daemon and clients share, in memory that forked children share too. */
struct pages {
	struct aq_control_page control;
	struct aq_report_page report;
	_Atomic uint64_t provider;	       /* bytes that the pretended provider has given out */
	_Atomic uint64_t peak;		       /* most that it ever had out */
	_Atomic uint64_t held[AQ_MAX_CLIENTS]; /* of these, by whom */
	_Atomic uint32_t go, ready;
};

static int setup(void **state)
{
	struct pages *p =
		mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -1;
	p->control.card[0].limit_bytes = 1000;
	p->control.slots_high = 8;
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	return munmap(*state, sizeof(struct pages));
}

static struct aq_ledger ledger_of(struct pages *p, uint32_t slot)
{
	return (struct aq_ledger){ p->report.account[0], &p->control.slots_high,
				   &p->control.card[0].limit_bytes, slot };
}

static void test_exact_at_the_limit(void **state)
{
	struct aq_ledger a = ledger_of(*state, 0);
	struct aq_ledger b = ledger_of(*state, 7);

	assert_int_equal(aq_ledger_reserve(&a, 600), 0);
	aq_ledger_commit(&a, 600);
	assert_int_equal(aq_ledger_reserve(&b, 401), -ENOMEM);
	assert_int_equal(aq_ledger_reserve(&b, 400), 0);
	aq_ledger_commit(&b, 400);
	assert_int_equal(aq_ledger_reserve(&a, 1), -ENOMEM);
	assert_int_equal(aq_ledger_free(&a), 0);
	aq_ledger_uncharge(&b, 1);
	assert_int_equal(aq_ledger_reserve(&a, 1), 0);
	aq_ledger_withdraw(&a, 1);
	assert_int_equal(aq_ledger_usage(&a), 999);
	assert_int_equal(aq_ledger_free(&b), 1);
}

static void test_sizes_that_wrap(void **state)
{
	struct aq_ledger a = ledger_of(*state, 0);

	assert_int_equal(aq_ledger_reserve(&a, UINT64_MAX), -ENOMEM);
	assert_int_equal(aq_ledger_reserve(&a, 1ULL << 63), -ENOMEM);
	assert_int_equal(aq_ledger_reserve(&a, UINT64_MAX / 2), -ENOMEM);
	assert_int_equal(aq_ledger_usage(&a), 0);
	aq_ledger_uncharge(&a, 5);
	assert_int_equal(aq_ledger_usage(&a), 0);
}

static void test_shrinking_below_use_refuses_and_does_not_underflow(void **state)
{
	struct pages *p = *state;
	struct aq_ledger a = ledger_of(p, 0);

	assert_int_equal(aq_ledger_reserve(&a, 800), 0);
	aq_ledger_commit(&a, 800);
	atomic_store(&p->control.card[0].limit_bytes, 500);
	assert_int_equal(aq_ledger_free(&a), 0);
	assert_int_equal(aq_ledger_reserve(&a, 1), -ENOMEM);
	aq_ledger_uncharge(&a, 800);
	assert_int_equal(aq_ledger_free(&a), 500);
	atomic_store(&p->control.card[0].limit_bytes, AQ_NO_LIMIT);
	assert_int_equal(aq_ledger_reserve(&a, 1ULL << 40), 0);
	assert_int_equal(aq_ledger_free(&a), UINT64_MAX);
}

static void test_overhead_counts_and_only_rises(void **state)
{
	struct aq_ledger a = ledger_of(*state, 0);

	aq_ledger_raise_overhead(&a, 300);
	aq_ledger_raise_overhead(&a, 200);
	assert_int_equal(aq_ledger_usage(&a), 300);
	assert_int_equal(aq_ledger_reserve(&a, 701), -ENOMEM);
	/* Taken by the driver already: counted even beyond the limit. */
	aq_ledger_raise_overhead(&a, 5000);
	assert_int_equal(aq_ledger_free(&a), 0);
}

static void test_a_falsified_slot_does_not_wrap_the_sum(void **state)
{
	struct pages *p = *state;
	struct aq_ledger a = ledger_of(p, 0);

	atomic_store(&p->report.account[0][3].used, UINT64_MAX - 3);
	atomic_store(&p->report.account[0][4].overhead, UINT64_MAX);
	assert_int_equal(aq_ledger_usage(&a), UINT64_MAX);
	assert_int_equal(aq_ledger_reserve(&a, 1), -ENOMEM);
	atomic_store(&p->control.slots_high, UINT32_MAX);
	assert_int_equal(aq_ledger_reserve(&a, 1), -ENOMEM);
}

static void test_a_stuck_reservation_counts_and_does_not_block(void **state)
{
	struct pages *p = *state;
	struct aq_ledger a = ledger_of(p, 0);

	atomic_store(&p->report.account[0][3].pending, 900);
	assert_int_equal(aq_ledger_reserve(&a, 101), -ENOMEM);
	assert_int_equal(aq_ledger_reserve(&a, 100), 0);
}

/* ---- races ---- */

static void provider_give(struct pages *p, uint32_t slot, uint64_t bytes)
{
	uint64_t now = atomic_fetch_add(&p->provider, bytes) + bytes;
	uint64_t peak = atomic_load(&p->peak);

	while (peak < now && !atomic_compare_exchange_weak(&p->peak, &peak, now))
		;
	atomic_fetch_add(&p->held[slot], bytes);
}

static void provider_take(struct pages *p, uint32_t slot, uint64_t bytes)
{
	atomic_fetch_sub(&p->held[slot], bytes);
	atomic_fetch_sub(&p->provider, bytes);
}

struct racer {
	struct pages *p;
	uint32_t slot;
};

/* Allocate and free as fast as possible, all near the limit. Begins when everybody is there, or the race is none. */
static void *race(void *arg)
{
	const struct racer *r = arg;
	struct aq_ledger l = ledger_of(r->p, r->slot);
	uint32_t seed = r->slot * 2654435761U + 1;
	uint64_t mine = 0;

	atomic_fetch_add(&r->p->ready, 1);
	while (!atomic_load(&r->p->go))
		(void)sched_yield();
	for (int i = 0; i < 30000; i++) {
		uint64_t bytes = 1 + (seed >> 8) % 400;

		seed = seed * 1664525U + 1013904223U;
		if (mine) {
			provider_take(r->p, r->slot, mine);
			aq_ledger_uncharge(&l, mine);
			mine = 0;
		}
		if (aq_ledger_reserve(&l, bytes) < 0)
			continue;
		if (seed & 0x40000000) {
			aq_ledger_withdraw(&l, bytes);
			continue;
		}
		provider_give(r->p, r->slot, bytes);
		aq_ledger_commit(&l, bytes);
		mine = bytes;
	}
	if (mine) {
		provider_take(r->p, r->slot, mine);
		aq_ledger_uncharge(&l, mine);
	}
	return NULL;
}

static void check_after_race(struct pages *p)
{
	struct aq_ledger l = ledger_of(p, 0);

	assert_in_range(atomic_load(&p->peak), 1, 1000);
	assert_int_equal(aq_ledger_usage(&l), 0);
	assert_int_equal(atomic_load(&p->provider), 0);
}

static void test_threads_never_pass_the_limit(void **state)
{
	struct pages *p = *state;
	struct racer r[8];
	pthread_t t[8];

	for (uint32_t i = 0; i < 8; i++) {
		r[i] = (struct racer){ p, i / 2 }; /* two threads share a slot */
		assert_int_equal(pthread_create(&t[i], NULL, race, &r[i]), 0);
	}
	while (atomic_load(&p->ready) < 8)
		(void)sched_yield();
	atomic_store(&p->go, 1);
	for (uint32_t i = 0; i < 8; i++)
		(void)pthread_join(t[i], NULL);
	check_after_race(p);
}

static void test_processes_never_pass_the_limit(void **state)
{
	struct pages *p = *state;
	pid_t pid[8];

	for (uint32_t i = 0; i < 8; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			struct racer r = { p, i };

			(void)race(&r);
			_exit(75);
		}
	}
	while (atomic_load(&p->ready) < 8)
		(void)sched_yield();
	atomic_store(&p->go, 1);
	for (uint32_t i = 0; i < 8; i++) {
		int status = 0;

		(void)waitpid(pid[i], &status, 0);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 75);
	}
	check_after_race(p);
}

/* ---- killed at every instruction ---- */

/* One life of an allocation. The marks say between which steps the pretended provider holds the bytes. */
static void one_life(struct pages *p, uint32_t slot)
{
	struct aq_ledger l = ledger_of(p, slot);

	if (aq_ledger_reserve(&l, 300) < 0)
		_exit(1);
	atomic_fetch_add(&p->held[slot], 300);
	aq_ledger_commit(&l, 300);
	atomic_fetch_sub(&p->held[slot], 300);
	aq_ledger_uncharge(&l, 300);
	if (aq_ledger_reserve(&l, 200) < 0)
		_exit(1);
	aq_ledger_withdraw(&l, 200);
}

static pid_t start_stepped(struct pages *p, uint32_t slot)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(2);
		(void)raise(SIGSTOP);
		one_life(p, slot);
		_exit(75);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return -1;
	return pid;
}

/* True when the child has ended by itself within the given number of steps. */
static bool step(pid_t pid, unsigned steps)
{
	for (unsigned i = 0; i < steps; i++) {
		int status = 0;

		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) < 0 ||
		    waitpid(pid, &status, 0) != pid)
			return true;
		if (WIFEXITED(status)) {
			assert_true(WEXITSTATUS(status) == 75);
			return true;
		}
	}
	return false;
}

/* The books as the others see them at this instant. */
static void check_books(struct pages *p, uint32_t slot)
{
	const struct aq_account *a = &p->report.account[0][slot];
	struct aq_ledger other = ledger_of(p, 1 - slot);
	uint64_t counted = a->pending + a->used;

	/* Never less than it holds, never more than twice the largest that it was after. */
	assert_in_range(counted, atomic_load(&p->held[slot]), 600);
	/* Nobody waits for it, and it stands in the way of nothing but its own bytes. */
	assert_int_equal(aq_ledger_reserve(&other, 1000 - counted), 0);
	aq_ledger_withdraw(&other, 1000 - counted);
	assert_int_equal(aq_ledger_reserve(&other, 1001 - counted), -ENOMEM);
}

/* What the daemon does when the client is dead and the provider has let go. */
static void settle(struct pages *p, uint32_t slot)
{
	struct aq_ledger other = ledger_of(p, 1 - slot);

	atomic_store(&p->report.account[0][slot].pending, 0);
	atomic_store(&p->report.account[0][slot].used, 0);
	assert_int_equal(aq_ledger_usage(&other), 0);
	atomic_store(&p->held[slot], 0);
}

static void test_right_at_every_instruction(void **state)
{
	struct pages *p = *state;
	unsigned steps = 0;
	pid_t pid;

	atomic_store(&p->control.slots_high, 2);
	pid = start_stepped(p, 0);
	assert_true(pid > 0);
	for (; !step(pid, 1); steps++)
		check_books(p, 0);
	assert_true(steps > 100);
	assert_int_equal(p->report.account[0][0].used + p->report.account[0][0].pending, 0);
}

static pid_t start_reservation(struct pages *p, uint32_t slot, uint64_t bytes)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		struct aq_ledger l = ledger_of(p, slot);

		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(2);
		(void)raise(SIGSTOP);
		_exit(aq_ledger_reserve(&l, bytes) == 0 ? 75 : 76);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	return pid;
}

static bool was_granted(pid_t pid)
{
	int status = 0;

	(void)ptrace(PTRACE_CONT, pid, NULL, NULL);
	(void)waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 75 || WEXITSTATUS(status) == 76));
	return WEXITSTATUS(status) == 75;
}

/* Through the first attempt to reserve and a little further; what follows are repetitions of it. */
#define RESERVE_STEPS 400

/*
 * A reader of the accounts is stopped at every instruction, and just then its neighbour moves its bytes from pending to used: they must not
 * fall between the two reads.
 */
static void test_a_commit_meets_a_reservation_at_every_instruction(void **state)
{
	struct pages *p = *state;
	struct aq_ledger other = ledger_of(p, 0);

	atomic_store(&p->control.slots_high, 2);
	for (unsigned steps = 0; steps < RESERVE_STEPS; steps++) {
		pid_t pid;

		assert_int_equal(aq_ledger_reserve(&other, 800), 0);
		pid = start_reservation(p, 1, 300);
		assert_false(step(pid, steps));
		aq_ledger_commit(&other, 800);
		assert_false(was_granted(pid));
		aq_ledger_uncharge(&other, 800);
		assert_int_equal(aq_ledger_usage(&other), 0);
	}
}

/* Two reservations that fit only one at a time: whatever the instruction at which the second comes, not both are granted. */
static void test_two_reservations_meet_at_every_instruction(void **state)
{
	struct pages *p = *state;
	struct aq_ledger other = ledger_of(p, 0);
	bool child_won = false;
	bool other_won = false;

	atomic_store(&p->control.slots_high, 2);
	for (unsigned steps = 0; steps < RESERVE_STEPS; steps++) {
		pid_t pid = start_reservation(p, 1, 300);
		bool ended = step(pid, steps);
		bool mine = aq_ledger_reserve(&other, 800) == 0;
		bool its = ended || was_granted(pid);

		assert_false(mine && its);
		other_won |= mine;
		child_won |= its;
		if (mine)
			aq_ledger_withdraw(&other, 800);
		atomic_store(&p->report.account[0][1].pending, 0);
	}
	assert_true(child_won && other_won);
}

/* A life with the client really killed; every 37th instruction, since each kill costs a walk from the start. */
static void test_killed_along_the_path(void **state)
{
	struct pages *p = *state;
	bool ended = false;

	atomic_store(&p->control.slots_high, 2);
	for (unsigned steps = 0; !ended; steps += 37) {
		uint32_t slot = steps % 2;
		pid_t pid = start_stepped(p, slot);

		assert_true(pid > 0);
		ended = step(pid, steps);
		if (!ended) {
			(void)kill(pid, SIGKILL);
			(void)waitpid(pid, NULL, 0);
		}
		check_books(p, slot);
		settle(p, slot);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_exact_at_the_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sizes_that_wrap, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_shrinking_below_use_refuses_and_does_not_underflow, setup, teardown),
		cmocka_unit_test_setup_teardown(test_overhead_counts_and_only_rises, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_falsified_slot_does_not_wrap_the_sum, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_stuck_reservation_counts_and_does_not_block,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_threads_never_pass_the_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_processes_never_pass_the_limit, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_right_at_every_instruction, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_commit_meets_a_reservation_at_every_instruction, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_reservations_meet_at_every_instruction,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed_along_the_path, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
