/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ledger.h"

#include "base/macro.h"

#include <errno.h>
#include <stdbool.h>

/*
 * How often an undecided reservation of another client is looked at before it counts as used. The other is between two writes of its own and
 * a call of its provider; one that was killed there is settled by the daemon. With the pauses below about 100 µs.
 */
#define MAX_TRIES 64U

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

struct sum {
	uint64_t settled; /* used and overhead, of everybody */
	uint64_t own;	  /* this client's pending */
	uint64_t others;  /* the other clients' pending */
};

static struct sum sum_accounts(const struct aq_ledger *l)
{
	uint32_t high = AQ_MIN(atomic_load(l->slots_high), AQ_MAX_CLIENTS);
	struct sum s = { 0 };

	for (uint32_t i = 0; i < high; i++) {
		struct aq_account *a = &l->accounts[i];
		/* Pending first: see struct aq_account. */
		uint64_t pending = atomic_load(&a->pending);

		s.settled = add_saturating(s.settled, atomic_load(&a->used));
		s.settled = add_saturating(s.settled, atomic_load(&a->overhead));
		if (i == l->slot)
			s.own = pending;
		else
			s.others = add_saturating(s.others, pending);
	}
	return s;
}

static void pause_for(unsigned tries)
{
	for (unsigned i = 0; i < AQ_MIN(1U << AQ_MIN(tries, 7U), 64U); i++)
		aq_cpu_relax();
}

/*
 * One attempt. 0, -ENOMEM, or -EAGAIN: it would fit but for what others have pending. Whatever is not 0 leaves nothing reserved.
 */
static int try_reserve(const struct aq_ledger *l, uint64_t bytes)
{
	struct aq_account *mine = &l->accounts[l->slot];
	uint64_t limit;
	uint64_t least;
	struct sum s;

	atomic_fetch_add(&mine->pending, bytes);
	s = sum_accounts(l);
	limit = atomic_load(l->limit_bytes);
	/* Another thread of this process shows in `own`; it is as undecided as another process. */
	if (add_saturating(add_saturating(s.settled, s.own), s.others) <= limit)
		return 0;
	atomic_fetch_sub(&mine->pending, bytes);
	least = add_saturating(s.settled, bytes);
	return least > limit ? -ENOMEM : -EAGAIN;
}

int aq_ledger_reserve(const struct aq_ledger *l, uint64_t bytes)
{
	int rc = -EAGAIN;

	/* Fits no card; below that, pending cannot wrap. */
	if (bytes > UINT64_MAX / 2)
		return -ENOMEM;
	for (unsigned tries = 0; tries < MAX_TRIES && rc == -EAGAIN; tries++) {
		if (tries)
			pause_for(tries + l->slot % 3);
		rc = try_reserve(l, bytes);
	}
	return rc == -EAGAIN ? -ENOMEM : rc;
}

static void subtract_clamped(_Atomic uint64_t *word, uint64_t bytes)
{
	uint64_t now = atomic_load(word);

	while (!atomic_compare_exchange_weak(word, &now, now > bytes ? now - bytes : 0))
		;
}

void aq_ledger_commit(const struct aq_ledger *l, uint64_t bytes)
{
	struct aq_account *mine = &l->accounts[l->slot];

	/* In this order: between the two the bytes count twice, never not at all. */
	atomic_fetch_add(&mine->used, bytes);
	subtract_clamped(&mine->pending, bytes);
}

void aq_ledger_withdraw(const struct aq_ledger *l, uint64_t bytes)
{
	subtract_clamped(&l->accounts[l->slot].pending, bytes);
}

void aq_ledger_uncharge(const struct aq_ledger *l, uint64_t bytes)
{
	subtract_clamped(&l->accounts[l->slot].used, bytes);
}

void aq_ledger_raise_overhead(const struct aq_ledger *l, uint64_t bytes)
{
	_Atomic uint64_t *word = &l->accounts[l->slot].overhead;
	uint64_t now = atomic_load(word);

	while (now < bytes && !atomic_compare_exchange_weak(word, &now, bytes))
		;
}

uint64_t aq_ledger_usage(const struct aq_ledger *l)
{
	struct sum s = sum_accounts(l);

	return add_saturating(add_saturating(s.settled, s.own), s.others);
}

uint64_t aq_ledger_free(const struct aq_ledger *l)
{
	uint64_t limit = atomic_load(l->limit_bytes);
	uint64_t usage;

	if (limit == AQ_NO_LIMIT)
		return UINT64_MAX;
	usage = aq_ledger_usage(l);
	return usage < limit ? limit - usage : 0;
}
