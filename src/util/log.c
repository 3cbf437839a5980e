/* SPDX-License-Identifier: Apache-2.0 */
#include "util/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char *log_program = "aliquot";
static enum aq_log_level log_level = AQ_LOG_INFO;

void aq_log_init(const char *program, enum aq_log_level level)
{
	log_program = program;
	log_level = level;
}

void aq_log(enum aq_log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n;
	int m;

	if (level > log_level)
		return;
	n = isatty(STDERR_FILENO)
		    ? snprintf(line, sizeof(line), "%s: ", log_program)
		    : snprintf(line, sizeof(line), "<%d>%s: ", (int)level, log_program);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	n += m;
	if ((size_t)n > sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n++] = '\n';
	/* One write, so that lines of several processes do not mix. */
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}
