/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables that Aliquot reads, with defaults and meaning. */
#pragma once

#include <stddef.h>

struct aq_variable {
	const char *name;
	const char *otherwise; /* what holds without it */
	const char *text;
};

extern const struct aq_variable aq_variables[];
extern const size_t aq_variables_count;

/* A line on stderr for each ALIQUOT_… that nobody reads. Returns how many. */
unsigned aq_variables_warn(const char *verb);
