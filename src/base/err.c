/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include "base/format.h"

#include <string.h>

int aq_err_set(struct aq_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	err->code = code;
	va_start(ap, fmt);
	(void)aq_vformat(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	return code;
}

int aq_err_prefix(struct aq_err *err, const char *fmt, ...)
{
	char old[sizeof(err->msg)];
	va_list ap;
	size_t n;

	if (!err)
		return 0;
	memcpy(old, err->msg, sizeof(old));
	va_start(ap, fmt);
	n = aq_vformat(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	if (n < sizeof(err->msg))
		(void)aq_format(err->msg + n, sizeof(err->msg) - n, ": %s", old);
	return err->code;
}
