/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two pages of an instance that the daemon and the shims of its clients share: one layout, one header.
 *
 * The *control page* is written by the daemon and mapped read-only by the clients. The *report page* is written by the clients, one slot
 * each, and by the daemon for slots whose client is dead. The daemon treats what it reads there as foreign input: a client can falsify
 * its own instance's report page and nothing else.
 *
 * Both are memfds, sealed against resizing. No lock lives in them: a process may be killed between any two instructions. A version
 * is changed by anything that an older reader would misunderstand; new fields go into reserved space, zero means "not there".
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define AQ_CONTROL_MAGIC 0x43515141U /* "AQQC" */
#define AQ_REPORT_MAGIC	 0x52515141U /* "AQQR" */
#define AQ_PAGES_VERSION 1U

#define AQ_MAX_CLIENTS	  1024U /* processes attached to one instance */
#define AQ_INSTANCE_CARDS 16U	/* cards of one instance (a group) */
#define AQ_NO_LIMIT	  UINT64_MAX

/* One card of the instance, as the daemon says it. */
struct aq_control_card {
	uint8_t uuid[16];
	_Atomic uint64_t limit_bytes;	/* AQ_NO_LIMIT: none; changes live */
	uint64_t card_bytes;		/* the card's own total */
	_Atomic uint64_t context_bytes; /* learned maximum of what creating a context takes */
	uint8_t reserved[88];
};

struct aq_control_page {
	uint32_t magic;
	uint32_t version;
	uint32_t size; /* of the whole page */
	uint32_t n_cards;
	_Atomic uint32_t epoch;	       /* grows with every restart of the daemon */
	_Atomic uint32_t slots_high;   /* every slot in use is below it; never shrinks */
	_Atomic uint64_t heartbeat_ns; /* CLOCK_MONOTONIC of the daemon's last sign of life */
	char name[64];
	uint8_t reserved[32];
	struct aq_control_card card[AQ_INSTANCE_CARDS];
};

/*
 * What one client holds of one card, in bytes. A reader that must not miss a byte reads pending before used: a client moves bytes from
 * pending to used by adding first and subtracting after.
 */
struct aq_account {
	_Atomic uint64_t pending;  /* asked for, the provider has not answered yet */
	_Atomic uint64_t used;	   /* explicit allocations */
	_Atomic uint64_t overhead; /* contexts, code, stacks: what the driver took on its own */
	_Atomic uint64_t spill;	   /* host memory that stands in for device memory */
};

/* What a client tells about itself; for people, never for decisions. */
struct aq_report_client {
	_Atomic uint64_t refusals;	/* allocations refused by the limit */
	_Atomic uint64_t refused_bytes; /* size of the last one */
	_Atomic uint64_t refused_ns;	/* CLOCK_MONOTONIC of the last one */
	_Atomic uint32_t refused_card;
	_Atomic uint32_t pid;	 /* as the client numbers itself; written last */
	_Atomic uint64_t pid_ns; /* in this pid namespace (its inode number; 0: not known) */
	uint8_t reserved[24];
};

struct aq_report_page {
	uint32_t magic;
	uint32_t version;
	uint32_t size;
	uint32_t reserved[13];
	struct aq_report_client client[AQ_MAX_CLIENTS];
	/* By card, so that the sum over the clients of one card walks over adjacent memory. */
	struct aq_account account[AQ_INSTANCE_CARDS][AQ_MAX_CLIENTS];
};

_Static_assert(sizeof(struct aq_control_card) == 128, "control card");
_Static_assert(offsetof(struct aq_control_page, card) == 128 + 0, "control page");
_Static_assert(sizeof(struct aq_account) == 32, "account");
_Static_assert(sizeof(struct aq_report_client) == 64, "report client");
_Static_assert(offsetof(struct aq_report_page, client) == 64, "report page");
_Static_assert(offsetof(struct aq_report_page, account) == 64 + 64 * AQ_MAX_CLIENTS,
	       "report accounts");
