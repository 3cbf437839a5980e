/* SPDX-License-Identifier: Apache-2.0 */
/* The books of this process on its instance's report page. */
#include "shim/cuda/shim.h"

#include "base/clock.h"
#include "base/macro.h"
#include "core/ledger.h"
#include "shim/log.h"

#include <errno.h>

#define LAZY_SETTLE_NS (100 * AQ_NS_PER_MS)
/* The daemon gives up after two seconds and says so. Code that has been loaded is not worth waiting long: the daemon looks by itself, too. */
#define CONTEXT_TIMEOUT_NS (3 * AQ_NS_PER_S)
#define LAZY_TIMEOUT_NS	   (250 * AQ_NS_PER_MS)

struct aq_ranges aq_held;

static bool is_card(int card)
{
	return card >= 0 && (unsigned)card < AQ_INSTANCE_CARDS;
}

/* Between aq_attach_enter() and leave(): pages and slot are what they are. */
static struct aq_ledger ledger(int card)
{
	struct aq_attachment *a = &aq_attachment_here;

	return (struct aq_ledger){ a->report->account[card], &a->control->slots_high,
				   &a->control->card[card].limit_bytes, atomic_load(&a->slot) };
}

static const struct aq_control_card *control(int card)
{
	return &aq_attachment_here.control->card[card];
}

uint64_t aq_limit(int card)
{
	return is_card(card)
		       ? atomic_load_explicit(&control(card)->limit_bytes, memory_order_relaxed)
		       : 0;
}

uint64_t aq_card_bytes(int card)
{
	uint64_t bytes = is_card(card) ? control(card)->card_bytes : 0;

	return bytes ? bytes : UINT64_MAX;
}

uint64_t aq_context_bytes(int card)
{
	return is_card(card) ? atomic_load(&control(card)->context_bytes) : 0;
}

bool aq_limited(void)
{
	const struct aq_control_page *c = aq_attachment_here.control;

	for (unsigned i = 0; i < AQ_MIN(c->n_cards, AQ_INSTANCE_CARDS); i++)
		if (atomic_load(&c->card[i].limit_bytes) != AQ_NO_LIMIT)
			return true;
	return false;
}

uint64_t aq_free_bytes(int card)
{
	struct aq_ledger l;
	uint64_t bytes;

	if (!is_card(card))
		return 0;
	aq_attach_enter();
	l = ledger(card);
	bytes = aq_ledger_free(&l);
	aq_attach_leave();
	return bytes;
}

int aq_try_reserve(int card, uint64_t bytes)
{
	struct aq_ledger l;
	int rc;

	if (!is_card(card))
		return -ENODEV;
	aq_attach_enter();
	l = ledger(card);
	rc = aq_ledger_reserve(&l, bytes);
	aq_attach_leave();
	return rc;
}

void aq_refused(int card, uint64_t bytes)
{
	struct aq_report_client *c;

	if (!is_card(card))
		return;
	aq_attach_enter();
	c = &aq_attachment_here.report->client[atomic_load(&aq_attachment_here.slot)];
	atomic_store(&c->refused_bytes, bytes);
	atomic_store(&c->refused_ns, aq_now_ns());
	atomic_store(&c->refused_card, (uint32_t)card);
	atomic_fetch_add(&c->refusals, 1);
	aq_attach_leave();
}

static CUresult reserve_slowly(int card, uint64_t bytes, int rc)
{
	if (rc == -ENODEV) {
		static _Atomic bool told;

		if (!atomic_exchange(&told, true))
			aq_shim_log("a device that is none of this instance's cards: refused");
		return CUDA_ERROR_NOT_PERMITTED;
	}
	/* Stream-ordered pools give memory back at times that nobody tells. */
	if (aq_pools_settle(card) && aq_try_reserve(card, bytes) == 0)
		return CUDA_SUCCESS;
	if (aq_pools_trim(card) && aq_try_reserve(card, bytes) == 0)
		return CUDA_SUCCESS;
	aq_refused(card, bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult aq_reserve(int card, uint64_t bytes)
{
	int rc = aq_try_reserve(card, bytes);

	return AQ_LIKELY(rc == 0) ? CUDA_SUCCESS : reserve_slowly(card, bytes, rc);
}

void aq_commit(int card, uint64_t bytes)
{
	struct aq_ledger l;

	aq_attach_enter();
	l = ledger(card);
	aq_ledger_commit(&l, bytes);
	aq_attach_leave();
}

void aq_withdraw(int card, uint64_t bytes)
{
	struct aq_ledger l;

	aq_attach_enter();
	l = ledger(card);
	aq_ledger_withdraw(&l, bytes);
	aq_attach_leave();
}

void aq_force(int card, uint64_t bytes)
{
	struct aq_ledger l;

	if (!is_card(card))
		return;
	aq_attach_enter();
	l = ledger(card);
	atomic_fetch_add(&l.accounts[l.slot].used, bytes);
	aq_attach_leave();
}

CUresult aq_adjust(int card, uint64_t reserved, uint64_t size)
{
	CUresult rc = CUDA_SUCCESS;

	if (size > reserved)
		rc = aq_reserve(card, size - reserved);
	else if (size < reserved)
		aq_withdraw(card, reserved - size);
	if (rc != CUDA_SUCCESS)
		aq_withdraw(card, reserved);
	return rc;
}

void aq_uncharge(int card, uint64_t bytes)
{
	struct aq_ledger l;

	if (!is_card(card))
		return;
	aq_attach_enter();
	l = ledger(card);
	aq_ledger_uncharge(&l, bytes);
	aq_attach_leave();
}

static const struct aq_account *own(int card)
{
	return &aq_attachment_here.report->account[card][atomic_load(&aq_attachment_here.slot)];
}

static uint64_t explicit_bytes(int card)
{
	uint64_t bytes;

	aq_attach_enter();
	bytes = atomic_load(&own(card)->pending) + atomic_load(&own(card)->used);
	aq_attach_leave();
	return bytes;
}

static void raise_overhead(int card, uint64_t bytes)
{
	struct aq_ledger l;

	aq_attach_enter();
	l = ledger(card);
	aq_ledger_raise_overhead(&l, bytes);
	aq_attach_leave();
}

void aq_take_overhead(int card, uint64_t bytes)
{
	uint64_t now;

	if (!is_card(card))
		return;
	aq_attach_enter();
	now = atomic_load(&own(card)->overhead);
	aq_attach_leave();
	raise_overhead(card, now + bytes);
}

void aq_settle(int card, enum aq_settle_how how, uint64_t reserved)
{
	uint64_t before;
	uint64_t counted;
	uint64_t bytes = 0;
	int rc;

	if (!is_card(card))
		return;
	before = explicit_bytes(card);
	rc = aq_attach_settle((uint32_t)card,
			      how == AQ_SETTLE_CONTEXT ? CONTEXT_TIMEOUT_NS : LAZY_TIMEOUT_NS,
			      &bytes);
	/* The driver may have looked before or after an allocation that runs meanwhile: what is counted twice would stay overhead for good. */
	counted = AQ_MAX(before, explicit_bytes(card));
	/* What is reserved for the very overhead that is being measured is no allocation. */
	counted -= AQ_MIN(counted, reserved);
	if (rc == 0 && bytes > counted)
		raise_overhead(card, bytes - counted);
	else if (rc < 0 && how == AQ_SETTLE_CONTEXT)
		aq_take_overhead(card, aq_context_bytes(card));
}

void aq_settle_lazily(int card)
{
	static _Atomic uint64_t last[AQ_INSTANCE_CARDS];
	uint64_t now = aq_now_ns();
	uint64_t seen;

	if (!is_card(card))
		return;
	seen = atomic_load(&last[card]);
	if (now - seen < LAZY_SETTLE_NS || !atomic_compare_exchange_strong(&last[card], &seen, now))
		return;
	aq_settle(card, AQ_SETTLE_MEASURE, 0);
}

int aq_hold(uint64_t key, enum aq_range_kind kind, int card, uint64_t size, uint64_t owner)
{
	struct aq_range entry = { .key = key,
				  .size = size,
				  .owner = owner,
				  .kind = (uint16_t)kind,
				  .card = (int16_t)card };
	struct aq_range old;
	bool replaced = false;
	int rc = aq_ranges_insert(&aq_held, &entry, &old, &replaced);

	if (rc < 0) {
		if (size)
			aq_withdraw(card, size);
		return rc;
	}
	if (size)
		aq_commit(card, size);
	/* The provider has given the address again: what was there has gone with its context. */
	if (replaced && old.size)
		aq_uncharge(old.card, old.size);
	return 0;
}
