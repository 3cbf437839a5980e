/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/macro.h"
#include "cli/version.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	aq_verb_fn run;
	const char *summary;
} verbs[] = {
	{ "run", aq_cli_run, "run a program in a vgpu" },
	{ "create", aq_cli_create, "make a vgpu that stays" },
	{ "rm", aq_cli_rm, "remove vgpus" },
	{ "ps", aq_cli_ps, "list vgpus and their programs" },
	{ "gpus", aq_cli_gpus, "list GPUs, what they are doing and who uses them" },
	{ "set", aq_cli_set, "change a vgpu's limits while its programs run" },
	{ "why", aq_cli_why, "say what stands in a vgpu's way" },
	{ "log", aq_cli_log, "show what has happened to vgpus" },
	{ "freeze", aq_cli_freeze, "stop the programs of vgpus" },
	{ "thaw", aq_cli_thaw, "let them go on" },
	{ "doctor", aq_cli_doctor, "say what is missing and how to mend it" },
	{ "report", aq_cli_report, "write down what a person who helps would ask for" },
	{ "config", aq_cli_config, "show what can be set, and what holds" },
	{ "soft", aq_cli_soft, "run a program on software cards" },
};

void aq_cli_error(const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	(void)fprintf(stderr, "aliquot: %s\n", line);
}

void aq_cli_bad_option(const char *verb, int argc, char **argv, int result)
{
	/* getopt names a short option in optopt; a long one is the word that it has just passed. */
	const char *word = optind > 0 && optind <= argc ? argv[optind - 1] : "?";

	if (result == ':' && word[0] == '-' && word[1] == '-')
		aq_cli_error("%s: option %s needs a value", verb, word);
	else if (optopt && !(word[0] == '-' && word[1] == '-'))
		aq_cli_error("%s: unknown option -%c", verb, optopt);
	else
		aq_cli_error("%s: unknown option %s", verb, word);
}

static void print_help(FILE *to)
{
	(void)fprintf(to, "usage: aliquot [VERB [ARGUMENT...]]\n\n");
	for (size_t i = 0; i < AQ_ARRAY_SIZE(verbs); i++)
		(void)fprintf(to, "  %-8s %s\n", verbs[i].name, verbs[i].summary);
	(void)fprintf(to, "\n  --version  version, commit, compiler and features\n"
			  "  --help     this text\n\n"
			  "Without a verb: GPUs and vgpus.\n");
}

static void print_version(void)
{
#if defined(__clang__)
	const char *compiler = "clang " __clang_version__;
#else
	const char *compiler = "gcc " __VERSION__;
#endif

	(void)printf("aliquot %s\ncommit %s\ncompiler %s\nfeatures %s\n", AQ_VERSION, AQ_COMMIT,
		     compiler, AQ_FEATURES);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return aq_cli_bare();
	for (size_t i = 0; i < AQ_ARRAY_SIZE(verbs); i++) {
		if (strcmp(argv[1], verbs[i].name) == 0)
			return verbs[i].run(argc - 1, argv + 1);
	}
	if (strcmp(argv[1], "--version") == 0) {
		print_version();
		return AQ_EXIT_OK;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
		print_help(stdout);
		return AQ_EXIT_OK;
	}
	aq_cli_error("%s \"%s\"; aliquot --help lists the verbs",
		     argv[1][0] == '-' ? "unknown option" : "unknown verb", argv[1]);
	return AQ_EXIT_USAGE;
}
