/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/variables.h"

#include "base/macro.h"
#include "cli/cli.h"

#include <stdbool.h>
#include <string.h>

extern char **environ;

const struct aq_variable aq_variables[] = {
	{ "ALIQUOT_ATTACH_TIMEOUT_MS", "10000",
	  "how long a program in a vgpu waits for the daemon before it has no GPU" },
	{ "ALIQUOT_DAEMON", "", "control socket of the daemon that the command talks to" },
	{ "ALIQUOT_GPUD", "", "socket of the server of software or remote GPUs" },
	{ "ALIQUOT_SOFT_STRICT", "0",
	  "1: the software card refuses entry points that have no effect there" },
	{ "ALIQUOT_SOFT_VERBOSE", "0",
	  "1: the software card names the entry points without effect" },
	{ "ALIQUOT_VGPU_DIR", "/run/aliquot/vgpu.self",
	  "attach directory of a program's vgpu; aliquot run sets it" },
};

const size_t aq_variables_count = AQ_ARRAY_SIZE(aq_variables);

unsigned aq_variables_warn(const char *verb)
{
	unsigned n = 0;

	for (char **e = environ; *e; e++) {
		size_t len = strcspn(*e, "=");
		bool known = false;

		if (strncmp(*e, "ALIQUOT_", 8) != 0)
			continue;
		for (size_t i = 0; i < aq_variables_count && !known; i++)
			known = strlen(aq_variables[i].name) == len &&
				strncmp(*e, aq_variables[i].name, len) == 0;
		if (known)
			continue;
		n++;
		aq_cli_error("%s: nobody reads %.*s; aliquot config lists what is read", verb,
			     (int)len, *e);
	}
	return n;
}
