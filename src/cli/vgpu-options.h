/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say what a new vgpu is: those of `run` and `create`. */
#pragma once

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct aq_err;

#define AQ_VGPU_CARDS 16

struct aq_vgpu_options {
	uint64_t mem_bytes; /* 0: not given */
	int compute_pct;    /* -1: not given */
	unsigned n_cards;   /* --cards; 0: not given */
	unsigned n_named;   /* --card, each a GPU */
	struct {
		const char *name; /* in the arguments */
		uint64_t mem_bytes;
	} named[AQ_VGPU_CARDS];
	const char *priority, *placement;
};

#define AQ_VGPU_OPTIONS_NONE      \
	{                         \
		.compute_pct = -1 \
	}

enum {
	AQ_OPT_MEM = 1000,
	AQ_OPT_COMPUTE,
	AQ_OPT_CARD,
	AQ_OPT_CARDS,
	AQ_OPT_PRIORITY,
	AQ_OPT_PLACEMENT,
};

/* Rows for getopt_long. */
#define AQ_VGPU_LONG_OPTIONS                                              \
	{ "mem", required_argument, NULL, AQ_OPT_MEM },                   \
		{ "compute", required_argument, NULL, AQ_OPT_COMPUTE },   \
		{ "card", required_argument, NULL, AQ_OPT_CARD },         \
		{ "cards", required_argument, NULL, AQ_OPT_CARDS },       \
		{ "priority", required_argument, NULL, AQ_OPT_PRIORITY }, \
	{                                                                 \
		"placement", required_argument, NULL, AQ_OPT_PLACEMENT    \
	}

/* Take one of them. Returns 0; -ENOENT when `opt` is none of them; else the cause in err. Changes `value` (splits it). */
int aq_vgpu_option(struct aq_vgpu_options *o, int opt, char *value, struct aq_err *err);

bool aq_vgpu_options_given(const struct aq_vgpu_options *o);

/* The "create" request; fields may be added to it. NULL with err set when the options contradict each other or lack a limit. */
json_t *aq_vgpu_create_request(const struct aq_vgpu_options *o, const char *name,
			       struct aq_err *err);

/* What of it is recorded but not yet enforced: a line on stderr. */
void aq_vgpu_tell_unenforced(const char *verb, int compute_pct, const char *priority);
