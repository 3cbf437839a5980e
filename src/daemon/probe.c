/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot-probe: looks at the driver so that the daemon does not have to. It loads the vendor's NVML, so it may crash or hang: alone.
 *
 * Reads lines from stdin, answers each with one line of JSON on stdout, ends with its input:
 *   read     the cards, and who uses them
 *   symbols  what the driver's libraries export, against Aliquot's tables
 */
#include "daemon/probe.h"
#include "base/macro.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
	"usage: aliquot-probe --nvml LIBRARY [--cuda LIBRARY]\n"
	"\n"
	"Helper of aliquotd: answers \"read\" and \"symbols\" on stdin with one line of JSON each.\n"
	"\n"
	"  --nvml LIBRARY  libnvidia-ml.so.1 to load\n"
	"  --cuda LIBRARY  libcuda.so.1 whose symbols to compare; it is not loaded\n"
	"  --version       version\n"
	"  --help          this text\n";

struct options {
	const char *nvml, *cuda;
};

/* Returns 0, 1 (done, exit 0) or -2 (usage). */
static int parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "nvml", required_argument, NULL, 'n' },
		{ "cuda", required_argument, NULL, 'c' },
		{ "version", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
			o->nvml = optarg;
			break;
		case 'c':
			o->cuda = optarg;
			break;
		case 'h':
			(void)fputs(usage, stdout);
			return 1;
		case 'V':
			(void)printf("aliquot-probe %s\n", AQ_VERSION);
			return 1;
		default:
			return -2;
		}
	}
	if (optind < argc || !o->nvml) {
		(void)fprintf(stderr, "aliquot-probe: %s\n",
			      o->nvml ? "too many arguments" : "--nvml is missing");
		return -2;
	}
	return 0;
}

static void answer(json_t *object)
{
	if (!object || json_dumpf(object, stdout, JSON_COMPACT) < 0)
		exit(EXIT_FAILURE);
	(void)fputc('\n', stdout);
	if (fflush(stdout) != 0)
		exit(EXIT_FAILURE);
	json_decref(object);
}

static json_t *symbols(const struct options *o)
{
	json_t *list = json_array();

	(void)json_array_append_new(list, aq_probe_compare("cuda", o->cuda));
	(void)json_array_append_new(list, aq_probe_compare("nvml", o->nvml));
	return json_pack("{s:o}", "libraries", list);
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	int rc = parse(&o, argc, argv);
	char line[64];

	if (rc != 0)
		return rc > 0 ? EXIT_SUCCESS : 2;
	/* The stand-ins of an instance would show the instance; what is wanted here is the truth. */
	(void)unsetenv("ALIQUOT_VGPU_DIR");
	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "read\n") == 0)
			answer(aq_probe_read_cards(o.nvml));
		else if (strcmp(line, "symbols\n") == 0)
			answer(symbols(&o));
		else
			answer(json_pack("{s:s}", "error", "the question is not understood"));
	}
	return EXIT_SUCCESS;
}
