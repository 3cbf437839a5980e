/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formatting without stdio, locale or allocation, for code that runs inside other people's processes.
 *
 * Understood: %d %i %u %x %c %s %p %% with the lengths l, ll, z, h, hh, a width with optional 0 or - before it, and
 * %.*s / %.Ns. Anything else is copied as it stands, so that a wrong format shows.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

/*
 * Write at most `size` bytes with the final NUL. Returns the length that the whole text has (as snprintf does), so
 * a result >= size says that it was cut. `size` may be 0.
 */
size_t aq_vformat(char *buf, size_t size, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));
size_t aq_format(char *buf, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
