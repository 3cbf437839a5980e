/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cards a new instance goes to. Pure: the caller brings what is known of the cards and of the request.
 *
 * A card's capacity is its memory less what its driver reserves and less headroom. The sum of the limits of a card's instances stays within
 * capacity × overcommit; the sum of their compute shares within 100 %, for those that ask for one (0 %: memory-only, takes what is left).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct aq_err;

#define AQ_PLACE_CARDS	    16U
#define AQ_PLACE_ANY	    (-1)
#define AQ_OVERCOMMIT_NONE  100U /* percent of capacity */
#define AQ_HEADROOM_DEFAULT (512ULL << 20)

enum aq_placement {
	AQ_PLACE_BINPACK, /* the fullest card that it still fits on: keeps whole cards free for large requests */
	AQ_PLACE_SPREAD, /* the emptiest */
};

struct aq_place_card {
	uint64_t memory_bytes;	 /* the card's total */
	uint64_t reserved_bytes; /* of these, held by its driver */
	uint64_t headroom_bytes;
	uint64_t limits_bytes; /* sum of the limits of its instances */
	unsigned compute_pct;  /* sum of their shares */
	unsigned n_instances;
	unsigned max_instances;
	unsigned
		overcommit_pct; /* of capacity that may be given out; AQ_OVERCOMMIT_NONE when the administrator says nothing */
	bool cordoned; /* takes nothing new */
};

/* One card of a request. */
struct aq_place_want {
	uint64_t mem_bytes; /* > 0 */
	unsigned compute_pct;
	int card; /* index, or AQ_PLACE_ANY */
};

/* What may be given out on a card; 0 when it reserves more than it has. */
uint64_t aq_place_capacity(const struct aq_place_card *card);

/*
 * Choose a different card for each of n_want wants. ret_card[i] is the index for want i. Larger wants choose first, so that the answer does not
 * depend on their order. Returns 0; -EINVAL (a want is malformed, or names a card twice), -ENODEV (it names no card, or more are wanted
 * than there are), -ENOSPC with the card and the missing amount in err.
 */
int aq_place(enum aq_placement how, const struct aq_place_card *cards, unsigned n_cards,
	     const struct aq_place_want *wants, unsigned n_want, unsigned *ret_card,
	     struct aq_err *err);
