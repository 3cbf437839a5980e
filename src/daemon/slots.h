/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds which slot of an instance, in a file of the daemon's own that outlives it (a kill included: it is mapped). The next daemon knows
 * from it which processes may come back, and about how much they hold until they do. Nothing in it is ever given to a client.
 */
#pragma once

#include "shm/pages.h"

#include <stdint.h>

struct aq_err;

struct aq_slot_entry {
	_Atomic uint32_t pid; /* 0: free; written last when taken, first when given up */
	uint32_t uid;
	uint64_t start_time;
	uint64_t image; /* see struct aqd_process_id */
	char program[32];
	/* What its accounts were at the last reading of the watchdog: used + pending, and overhead. */
	uint64_t used[AQ_INSTANCE_CARDS];
	uint64_t overhead[AQ_INSTANCE_CARDS];
};

struct aq_slots {
	uint32_t magic;
	uint32_t version;
	uint32_t size;
	uint32_t n_cards;
	uint64_t report_inode; /* of the report page that goes with it */
	char boot_id[40];      /* pids and start times mean something within one boot only */
	struct aq_slot_entry entry[AQ_MAX_CLIENTS];
};

/*
 * Open or make the file `path`. One that is damaged, of another version or of another boot is begun anew. Returns 0 (caller: aq_slots_close())
 * or -errno.
 */
int aq_slots_open(const char *path, struct aq_slots **ret, struct aq_err *err);
void aq_slots_close(struct aq_slots *s);
