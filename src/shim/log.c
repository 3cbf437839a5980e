/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/log.h"

#include "base/format.h"
#include "base/macro.h"

#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

void aq_shim_log(const char *fmt, ...)
{
	static const char prefix[] = "aliquot: ";
	char line[512];
	size_t n = sizeof(prefix) - 1;
	int saved = errno;
	ssize_t written;
	va_list ap;

	__builtin_memcpy(line, prefix, n);
	va_start(ap, fmt);
	n += aq_vformat(line + n, sizeof(line) - n, fmt, ap);
	va_end(ap);
	n = AQ_MIN(n, sizeof(line) - 1);
	line[n++] = '\n';
	/* Whoever closed stderr does not want to know. */
	written = write(STDERR_FILENO, line, n);
	(void)written;
	errno = saved;
}
