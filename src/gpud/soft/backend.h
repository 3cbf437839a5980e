/* SPDX-License-Identifier: Apache-2.0 */
/* Software cards as a back end of the session layer. */
#pragma once

#include "gpud/ops.h"
#include "gpud/soft/profile.h"

struct aq_err;
struct aq_soft;

struct aq_soft_config {
	const struct aq_profile *profiles; /* one a card */
	uint32_t n_cards;		   /* 1 .. AQ_WIRE_MAX_CARDS */
	uint64_t seed;			   /* makes UUIDs of different servers differ */
	uint64_t host_limit; /* bytes of host memory for clients; 0: what the machine has */
	unsigned
		workers; /* interpreting threads a card; 0: one a core, at most one a multiprocessor */
};

/* On success the caller owns *ret. Returns 0, -EINVAL, -ENOMEM. */
int aq_soft_new(const struct aq_soft_config *cfg, struct aq_soft **ret, struct aq_err *err);

/* No session is left. NULL is fine. */
void aq_soft_free(struct aq_soft *s);

struct aq_gpud_backend aq_soft_backend(struct aq_soft *s);
