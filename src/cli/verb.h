/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs share that ask the daemon one thing. */
#pragma once

#include "cli/daemon-link.h"

#include <stdbool.h>

/*
 * Options of a verb that has none but --json (ret_json may be NULL: not even that), and from `least` to `most` arguments behind them, which
 * begin at optind. False when they are wrong and that was told.
 */
bool aq_verb_options(const char *verb, int argc, char **argv, bool *ret_json, int least, int most,
		     const char *arguments);

/* After getopt: the number of arguments. `arguments` says what is wanted, for the message. */
bool aq_verb_arguments(const char *verb, int argc, char **argv, int least, int most,
		       const char *arguments);

/* Ask the daemon that is there. Returns its answer, the caller's; NULL when that failed and was told. The request is released. */
json_t *aq_verb_ask(const char *verb, json_t *request);
