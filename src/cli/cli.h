/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of aliquot. Data goes to stdout, all else to stderr as "aliquot: what: cause". */
#pragma once

/* Exit statuses; those of `aliquot run` and `aliquot soft -- PROGRAM` are the program's or, for what went wrong before it ran, the last three. */
enum {
	AQ_EXIT_OK = 0,
	AQ_EXIT_FAILED = 1,
	AQ_EXIT_USAGE = 2,
	AQ_EXIT_OWN = 125,
	AQ_EXIT_NOT_EXECUTABLE = 126,
	AQ_EXIT_NOT_FOUND = 127,
};

/* One verb: argv[0] is its name. Returns the exit status. */
typedef int (*aq_verb_fn)(int argc, char **argv);

int aq_cli_config(int argc, char **argv);
int aq_cli_create(int argc, char **argv);
int aq_cli_doctor(int argc, char **argv);
int aq_cli_freeze(int argc, char **argv);
int aq_cli_gpus(int argc, char **argv);
int aq_cli_log(int argc, char **argv);
int aq_cli_ps(int argc, char **argv);
int aq_cli_report(int argc, char **argv);
int aq_cli_rm(int argc, char **argv);
int aq_cli_run(int argc, char **argv);
int aq_cli_set(int argc, char **argv);
int aq_cli_soft(int argc, char **argv);
int aq_cli_thaw(int argc, char **argv);
int aq_cli_why(int argc, char **argv);

/* Without a verb. */
int aq_cli_bare(void);

/* `aliquot soft --coverage` and `aliquot soft serve`. */
int aq_cli_soft_coverage(void);
int aq_cli_soft_serve(int argc, char **argv);

/* "aliquot: <text>" on stderr. */
void aq_cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The line for an option that getopt_long did not take: unknown, or without its argument. Call right behind it. */
void aq_cli_bad_option(const char *verb, int argc, char **argv, int result);
