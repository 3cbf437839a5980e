/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The account of an instance's memory on one card. The clients' slots are the only truth; there is no total.
 *
 * A client reserves before it asks the provider, commits when the provider has given, and uncharges after the provider has taken back. So
 * at every instruction a client's slot counts at least what it holds, and a client that is killed leaves its own slot too high at worst, which
 * the daemon settles; it can neither block nor mislead the others.
 *
 * Exactness: two clients that reserve at the same time each write their pending bytes before they read the other's (all sequentially
 * consistent), so at least one of them sees both, whatever the interleaving. Nobody passes the limit by a byte.
 */
#pragma once

#include "shm/pages.h"

#include <stdint.h>

/* One client's view of one card's accounts. Plain pointers into the pages; nothing is owned. */
struct aq_ledger {
	struct aq_account *accounts; /* of all clients: AQ_MAX_CLIENTS entries */
	const _Atomic uint32_t *slots_high;
	const _Atomic uint64_t *limit_bytes;
	uint32_t slot; /* this client's */
};

/*
 * Reserve `bytes` of explicit memory. Returns 0; -ENOMEM when they would pass the limit (nothing is reserved then). While another client's
 * reservation is undecided the answer waits for it, up to a bound; after that the other's bytes count as used.
 */
int aq_ledger_reserve(const struct aq_ledger *l, uint64_t bytes);

/* The provider has given what was reserved. */
void aq_ledger_commit(const struct aq_ledger *l, uint64_t bytes);

/* The provider has refused what was reserved. */
void aq_ledger_withdraw(const struct aq_ledger *l, uint64_t bytes);

/* The provider has taken back what was committed. Never goes below zero: a falsified slot stays a small lie. */
void aq_ledger_uncharge(const struct aq_ledger *l, uint64_t bytes);

/*
 * Set this client's overhead to `bytes` if that is more than it is now: corrected upwards only, whatever the limit says, since the driver
 * has taken it already.
 */
void aq_ledger_raise_overhead(const struct aq_ledger *l, uint64_t bytes);

/* Bytes that all clients together hold or have reserved; saturates at UINT64_MAX when a slot is nonsense. */
uint64_t aq_ledger_usage(const struct aq_ledger *l);

/* What is left below the limit: 0 when shrunk below use, UINT64_MAX without a limit. */
uint64_t aq_ledger_free(const struct aq_ledger *l);
