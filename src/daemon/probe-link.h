/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's end of aliquot-probe: starts it, asks it for readings, and starts it again when it ends, hangs (5 s) or answers nonsense.
 * What it says about cards and processes is handed to aqd_cards_update() and aqd_watchdog_reading().
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct aq_err;
struct aqd;
struct aq_probe;

int aq_probe_start(struct aqd *d, struct aq_probe **ret, struct aq_err *err);
/* NULL is fine. */
void aq_probe_stop(struct aq_probe *p);

/* Ask for a reading; while one is on its way, for another after it. */
void aq_probe_read(struct aq_probe *p);

/* Ask for the drivers' symbols. `fn` is called once, with NULL when the probe fails first. -EBUSY: asked already. */
typedef void (*aq_probe_symbols_fn)(void *opaque, const json_t *libraries);
int aq_probe_symbols(struct aq_probe *p, aq_probe_symbols_fn fn, void *opaque);
/* Whoever asked is gone. */
void aq_probe_forget(struct aq_probe *p, const void *opaque);

struct aq_probe_status {
	const char *state; /* "starting", "ok", "failed" */
	const char *error; /* "" none */
	unsigned restarts;
	uint64_t read_ns; /* of the last reading; 0: none yet */
	bool processes;	  /* the driver says who uses its cards */
	int pid;	  /* 0: not running */
};
void aq_probe_get_status(const struct aq_probe *p, struct aq_probe_status *ret);
