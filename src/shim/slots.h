/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One slot for each exported name of a stand-in: where a call of it goes in the end. gen.py makes the tables of cuda.tbl (or nvml.tbl) and the
 * wrappers that the sources define; a name without a wrapper is a jump through its slot.
 *
 * Before the library has started a slot leads to aq_slot_start(), which starts it and goes on to where the call wanted to go.
 */
#pragma once

#include "api/api.h"

#include <stdbool.h>
#include <stddef.h>

extern void *aq_slots[] __attribute__((visibility("hidden")));
extern const char *const aq_slot_names[]; /* as many, and in that order */

/* One variant of an entry point, as cuGetProcAddress chooses among them: sorted by base, then plain before twins, then since. */
struct aq_slot_proc {
	const char *base;
	unsigned since;
	enum aq_api_stream stream;
	bool managed; /* there is a wrapper */
	unsigned slot;
	void (*fn)(void); /* our exported function */
};

extern const struct aq_slot_proc aq_slot_procs[];
extern const size_t aq_slot_procs_count;

/* Called by the code of jump.h with the slot that a call found unfilled. Returns where the call is to go. */
void *aq_slot_start(unsigned slot) __attribute__((visibility("hidden")));
