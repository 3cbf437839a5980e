/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error record: what a person will read. Caller-owned, may be NULL, never allocates. The first to detect a
 * failure writes the cause; callers may put the object in front.
 */
#pragma once

#include <stdarg.h>

struct aq_err {
	int code; /* negative errno, 0 when nothing failed */
	char msg[240];
};

/*
 * Record the cause and return `code`, so that `return aq_err_set(err, -EINVAL, …)` reads well. Longer messages are cut.
 * Formats are those of aq_vformat().
 */
int aq_err_set(struct aq_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Put "prefix: " before the message that is already there. Returns the recorded code. */
int aq_err_prefix(struct aq_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
