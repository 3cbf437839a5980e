/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot report`: all that a person who helps would ask for, as one JSON text. */
#include "cli/cli.h"

#include "base/err.h"
#include "cli/checks.h"
#include "cli/show.h"
#include "cli/verb.h"
#include "cli/version.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* What matters for finding libraries and GPUs; nothing else leaves the environment. */
static json_t *environment(void)
{
	static const char *const wanted[] = { "ALIQUOT_", "LD_", "CUDA_", "NVIDIA_",
					      "XDG_RUNTIME_DIR=" };
	json_t *all = json_object();

	for (char **e = environ; *e; e++) {
		const char *value = strchr(*e, '=');
		char name[128];

		for (size_t i = 0; value && i < sizeof(wanted) / sizeof(wanted[0]); i++) {
			if (strncmp(*e, wanted[i], strlen(wanted[i])) != 0 ||
			    (size_t)(value - *e) >= sizeof(name))
				continue;
			(void)snprintf(name, sizeof(name), "%.*s", (int)(value - *e), *e);
			(void)json_object_set_new(all, name, json_string(value + 1));
			break;
		}
	}
	return all;
}

static json_t *system_facts(void)
{
	struct utsname u = { 0 };
	char line[200];
	char name[128] = "";
	FILE *f = fopen("/etc/os-release", "re");

	(void)uname(&u);
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "PRETTY_NAME=\"%127[^\"]\"", name) == 1)
			break;
	}
	if (f)
		(void)fclose(f);
	return json_pack("{s:s, s:s, s:s+, s:i}", "kernel", u.release, "machine", u.machine,
			 "distribution", name, "", "user", (int)geteuid());
}

static json_t *daemon_report(void)
{
	struct aq_daemon daemon = AQ_DAEMON_NONE;
	struct aq_err err = { 0 };
	json_t *answer = NULL;

	if (aq_daemon_open(&daemon, &err) < 0)
		return json_pack("{s:s}", "error", err.msg);
	if (aq_daemon_call(&daemon, json_pack("{s:s}", "op", "report"), &answer, &err) < 0) {
		answer = json_pack("{s:s}", "error", err.msg);
	} else {
		(void)json_object_del(answer, "ok");
		(void)json_object_set_new(answer, "socket", json_string(daemon.socket));
	}
	aq_daemon_close(&daemon);
	return answer;
}

static json_t *make_report(void)
{
	return json_pack("{s:{s:s, s:s, s:s}, s:I, s:o, s:o, s:o, s:o}", "aliquot", "version",
			 AQ_VERSION, "commit", AQ_COMMIT, "compiler", __VERSION__, "time",
			 (json_int_t)time(NULL), "system", system_facts(), "environment",
			 environment(), "checks", aq_checks_run(), "daemon", daemon_report());
}

static int write_file(const char *path, const json_t *report)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int rc;

	if (fd < 0) {
		aq_cli_error("report: %s: %s", path, strerror(errno));
		return AQ_EXIT_FAILED;
	}
	rc = json_dumpfd(report, fd, JSON_INDENT(2));
	if (close(fd) < 0 || rc < 0) {
		aq_cli_error("report: cannot write %s", path);
		return AQ_EXIT_FAILED;
	}
	return AQ_EXIT_OK;
}

int aq_cli_report(int argc, char **argv)
{
	static const struct option options[] = {
		{ "output", required_argument, NULL, 'o' },
		{ 0 },
	};
	const char *output = NULL;
	json_t *report;
	int status;
	int opt;

	optind = 1;
	while ((opt = getopt_long(argc, argv, ":o:", options, NULL)) >= 0) {
		if (opt != 'o') {
			aq_cli_bad_option("report", argc, argv, opt);
			return AQ_EXIT_USAGE;
		}
		output = optarg;
	}
	if (!aq_verb_arguments("report", argc, argv, 0, 0, "[--output FILE]"))
		return AQ_EXIT_USAGE;
	report = make_report();
	if (!report) {
		aq_cli_error("report: no memory");
		return AQ_EXIT_FAILED;
	}
	status = output ? write_file(output, report) : aq_show_json("report", report);
	json_decref(report);
	return status;
}
