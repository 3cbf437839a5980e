/* SPDX-License-Identifier: Apache-2.0 */
#include "base/size.h"

#include "base/err.h"
#include "base/format.h"
#include "base/macro.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static const struct {
	const char *name;
	unsigned shift;
} units[] = {
	{ "", 20 },   { "k", 10 },   { "ki", 10 },  { "kib", 10 }, { "m", 20 },
	{ "mi", 20 }, { "mib", 20 }, { "g", 30 },   { "gi", 30 },  { "gib", 30 },
	{ "t", 40 },  { "ti", 40 },  { "tib", 40 }, { "b", 0 },
};

static const char *parse_digits(const char *p, uint64_t *ret_value)
{
	uint64_t v = 0;

	for (; *p >= '0' && *p <= '9'; p++) {
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return NULL;
	}
	*ret_value = v;
	return p;
}

int aq_size_parse(const char *text, uint64_t *ret_bytes, struct aq_err *err)
{
	const char *unit;
	uint64_t v;

	if (*text < '0' || *text > '9')
		return aq_err_set(err, -EINVAL, "size \"%s\" does not begin with a digit", text);
	unit = parse_digits(text, &v);
	if (!unit)
		return aq_err_set(err, -ERANGE, "size \"%s\" is too large", text);
	while (*unit == ' ')
		unit++;
	if (strlen(unit) == 2 && strchr("kKmMgGtT", unit[0]) && (unit[1] == 'B' || unit[1] == 'b'))
		return aq_err_set(err, -EINVAL,
				  "size \"%s\": say %ciB (1024-based), %cB is ambiguous", text,
				  unit[0], unit[0]);
	for (size_t i = 0; i < AQ_ARRAY_SIZE(units); i++) {
		if (strcasecmp(unit, units[i].name) != 0)
			continue;
		if (v > UINT64_MAX >> units[i].shift)
			return aq_err_set(err, -ERANGE, "size \"%s\" is too large", text);
		*ret_bytes = v << units[i].shift;
		return 0;
	}
	return aq_err_set(err, -EINVAL,
			  "size \"%s\" has an unknown unit \"%s\"; use MiB, GiB or none (MiB)",
			  text, unit);
}

void aq_size_format(uint64_t bytes, char *buf, size_t buflen)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	uint64_t whole = bytes;
	uint64_t rest = 0;
	size_t u = 0;

	while (whole >= 1024 && u + 1 < AQ_ARRAY_SIZE(names)) {
		rest = whole & 1023;
		whole >>= 10;
		u++;
	}
	if (rest * 10 / 1024)
		(void)aq_format(buf, buflen, "%llu.%llu %s", (unsigned long long)whole,
				(unsigned long long)(rest * 10 / 1024), names[u]);
	else
		(void)aq_format(buf, buflen, "%llu %s", (unsigned long long)whole, names[u]);
}

int aq_uint_parse(const char *text, const char *what, uint64_t max, uint64_t *ret_value,
		  struct aq_err *err)
{
	const char *end;
	uint64_t v;

	if (*text < '0' || *text > '9')
		return aq_err_set(err, -EINVAL, "%s \"%s\" is not a number", what, text);
	end = parse_digits(text, &v);
	if (end && *end)
		return aq_err_set(err, -EINVAL, "%s \"%s\" has \"%s\" behind the number", what,
				  text, end);
	if (!end || v > max)
		return aq_err_set(err, -ERANGE, "%s \"%s\" is above %llu", what, text,
				  (unsigned long long)max);
	*ret_value = v;
	return 0;
}

int aq_percent_parse(const char *text, unsigned *ret_pct, struct aq_err *err)
{
	char digits[8];
	size_t n = strlen(text);
	uint64_t v;
	int rc;

	if (n && text[n - 1] == '%')
		n--;
	if (n >= sizeof(digits))
		return aq_err_set(err, -EINVAL, "percentage \"%s\" is not a number", text);
	memcpy(digits, text, n);
	digits[n] = '\0';
	rc = aq_uint_parse(digits, "percentage", 100, &v, err);
	if (rc < 0)
		return rc;
	*ret_pct = (unsigned)v;
	return 0;
}
