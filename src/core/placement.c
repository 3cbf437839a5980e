/* SPDX-License-Identifier: Apache-2.0 */
#include "core/placement.h"

#include "base/err.h"
#include "base/macro.h"

#include <errno.h>

uint64_t aq_place_capacity(const struct aq_place_card *card)
{
	uint64_t taken;

	if (__builtin_add_overflow(card->reserved_bytes, card->headroom_bytes, &taken) ||
	    taken >= card->memory_bytes)
		return 0;
	return card->memory_bytes - taken;
}

/* Bytes that may still be given out, overcommit included. */
static uint64_t room(const struct aq_place_card *card)
{
	/* In MiB, or the percentage could overflow; what is cut is less than headroom. */
	uint64_t give = aq_place_capacity(card) / AQ_MIB * card->overcommit_pct / 100 * AQ_MIB;

	/* Without overcommit nothing is cut. */
	if (card->overcommit_pct == AQ_OVERCOMMIT_NONE)
		give = aq_place_capacity(card);
	return give > card->limits_bytes ? give - card->limits_bytes : 0;
}

enum verdict {
	FITS,
	CORDONED,
	FULL_OF_INSTANCES,
	NO_MEMORY,
	NO_COMPUTE
};

static enum verdict judge(const struct aq_place_card *card, const struct aq_place_want *want)
{
	if (card->cordoned)
		return CORDONED;
	if (card->n_instances >= card->max_instances)
		return FULL_OF_INSTANCES;
	if (want->mem_bytes > room(card))
		return NO_MEMORY;
	if (card->compute_pct + want->compute_pct > 100)
		return NO_COMPUTE;
	return FITS;
}

static int explain(const struct aq_place_card *cards, unsigned i, const struct aq_place_want *want,
		   struct aq_err *err)
{
	const struct aq_place_card *card = &cards[i];

	switch (judge(card, want)) {
	case CORDONED:
		return aq_err_set(err, -ENOSPC, "GPU %u is cordoned", i);
	case FULL_OF_INSTANCES:
		return aq_err_set(err, -ENOSPC, "GPU %u has %u vgpus already, its maximum", i,
				  card->n_instances);
	case NO_MEMORY:
		return aq_err_set(err, -ENOSPC,
				  "GPU %u has %llu MiB left to give, %llu MiB are wanted", i,
				  (unsigned long long)(room(card) / AQ_MIB),
				  (unsigned long long)((want->mem_bytes + AQ_MIB - 1) / AQ_MIB));
	case NO_COMPUTE:
		return aq_err_set(err, -ENOSPC,
				  "GPU %u has %u%% of its compute left to give, %u%% are wanted", i,
				  100 - AQ_MIN(card->compute_pct, 100U), want->compute_pct);
	case FITS:
		break;
	}
	return 0;
}

/* Whether a is the better card for this policy; equal ones go to the lower index. */
static bool better(enum aq_placement how, const struct aq_place_card *a,
		   const struct aq_place_card *b)
{
	uint64_t room_a = room(a);
	uint64_t room_b = room(b);

	return how == AQ_PLACE_BINPACK ? room_a < room_b : room_a > room_b;
}

static int choose(enum aq_placement how, const struct aq_place_card *cards, unsigned n_cards,
		  const struct aq_place_want *want, const bool *taken)
{
	int best = -1;

	for (unsigned i = 0; i < n_cards; i++) {
		if (taken[i] || judge(&cards[i], want) != FITS)
			continue;
		if (best < 0 || better(how, &cards[i], &cards[best]))
			best = (int)i;
	}
	return best;
}

static int check_wants(unsigned n_cards, const struct aq_place_want *wants, unsigned n_want,
		       struct aq_err *err)
{
	if (n_want == 0 || n_want > AQ_PLACE_CARDS)
		return aq_err_set(err, -EINVAL, "a vgpu has 1 to %u GPUs, not %u", AQ_PLACE_CARDS,
				  n_want);
	if (n_want > n_cards)
		return aq_err_set(err, -ENODEV, "%u GPUs are wanted, there are %u", n_want,
				  n_cards);
	for (unsigned i = 0; i < n_want; i++) {
		if (wants[i].mem_bytes == 0)
			return aq_err_set(err, -EINVAL, "a memory limit of 0 lets nothing run");
		if (wants[i].compute_pct > 100)
			return aq_err_set(err, -EINVAL, "a compute share of %u%% is above 100%%",
					  wants[i].compute_pct);
		if (wants[i].card != AQ_PLACE_ANY &&
		    (wants[i].card < 0 || (unsigned)wants[i].card >= n_cards))
			return aq_err_set(err, -ENODEV, "there is no GPU %d, only 0 to %u",
					  wants[i].card, n_cards - 1);
	}
	return 0;
}

static int place_named(const struct aq_place_card *cards, const struct aq_place_want *wants,
		       unsigned n_want, bool *taken, unsigned *card_of, struct aq_err *err)
{
	for (unsigned i = 0; i < n_want; i++) {
		unsigned c = (unsigned)wants[i].card;
		int rc;

		if (wants[i].card == AQ_PLACE_ANY)
			continue;
		if (taken[c])
			return aq_err_set(err, -EINVAL, "GPU %u is named twice", c);
		rc = explain(cards, c, &wants[i], err);
		if (rc < 0)
			return rc;
		taken[c] = true;
		card_of[i] = c;
	}
	return 0;
}

/* The largest want that has no card yet, or -1. */
static int next_want(const struct aq_place_want *wants, unsigned n_want, const bool *done)
{
	int best = -1;

	for (unsigned i = 0; i < n_want; i++) {
		if (!done[i] && (best < 0 || wants[i].mem_bytes > wants[best].mem_bytes))
			best = (int)i;
	}
	return best;
}

int aq_place(enum aq_placement how, const struct aq_place_card *cards, unsigned n_cards,
	     const struct aq_place_want *wants, unsigned n_want, unsigned *ret_card,
	     struct aq_err *err)
{
	unsigned card_of[AQ_PLACE_CARDS] = { 0 };
	bool taken[AQ_PLACE_CARDS] = { false };
	bool done[AQ_PLACE_CARDS] = { false };
	int rc;

	n_cards = AQ_MIN(n_cards, AQ_PLACE_CARDS);
	rc = check_wants(n_cards, wants, n_want, err);
	if (rc == 0)
		rc = place_named(cards, wants, n_want, taken, card_of, err);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < n_want; i++)
		done[i] = wants[i].card != AQ_PLACE_ANY;
	for (int w = next_want(wants, n_want, done); w >= 0; w = next_want(wants, n_want, done)) {
		int c = choose(how, cards, n_cards, &wants[w], taken);

		if (c < 0 && n_cards == 1)
			return explain(cards, 0, &wants[w], err);
		if (c < 0)
			return aq_err_set(
				err, -ENOSPC,
				"no GPU has %llu MiB and %u%% of its compute left to give",
				(unsigned long long)((wants[w].mem_bytes + AQ_MIB - 1) / AQ_MIB),
				wants[w].compute_pct);
		taken[c] = true;
		done[w] = true;
		card_of[w] = (unsigned)c;
	}
	for (unsigned i = 0; i < n_want; i++)
		ret_card[i] = card_of[i];
	return 0;
}
