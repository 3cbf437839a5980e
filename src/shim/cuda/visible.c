/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA_VISIBLE_DEVICES: the user's list, numbered over the instance's cards, becomes a list of UUIDs for the provider. */
#include "shim/cuda/shim.h"

#include "base/format.h"
#include "base/macro.h"

#include <string.h>

#define UUID_DIGITS 32

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool has_prefix(const char *text, size_t len, const char *prefix)
{
	for (size_t i = 0; i < 4; i++)
		if (i >= len || (text[i] | 0x20) != (prefix[i] | 0x20))
			return false;
	return true;
}

/* Whether the text behind "GPU-" or "MIG-" begins the UUID. */
static bool names_uuid(const char *text, size_t len, const uint8_t *uuid)
{
	unsigned n = 0;

	for (size_t i = 4; i < len; i++) {
		if (text[i] == '-')
			continue;
		if (n == UUID_DIGITS || digit(text[i]) != (uuid[n / 2] >> (n % 2 ? 0 : 4) & 15))
			return false;
		n++;
	}
	return n > 0;
}

/* The card that an entry names; AQ_NO_CARD: none, or more than one. */
static int find(const char *text, size_t len, unsigned n, const uint8_t (*uuid)[16])
{
	unsigned value = 0;
	int found = AQ_NO_CARD;

	if (has_prefix(text, len, "GPU-") || has_prefix(text, len, "MIG-")) {
		for (unsigned i = 0; i < n; i++) {
			if (!names_uuid(text, len, uuid[i]))
				continue;
			if (found != AQ_NO_CARD)
				return AQ_NO_CARD;
			found = (int)i;
		}
		return found;
	}
	if (len == 0 || len > 4)
		return AQ_NO_CARD;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return AQ_NO_CARD;
		value = value * 10 + (unsigned)(text[i] - '0');
	}
	return value < n ? (int)value : AQ_NO_CARD;
}

struct out {
	char *buf;
	size_t size, len;
};

static void put(struct out *o, const uint8_t *u)
{
	size_t at = AQ_MIN(o->len, o->size);

	o->len += aq_format(
		o->buf + at, o->size - at,
		"%sGPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		o->len ? "," : "", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9],
		u[10], u[11], u[12], u[13], u[14], u[15]);
}

size_t aq_visible_value(const char *user, unsigned n, const uint8_t (*uuid)[16], char *buf,
			size_t size)
{
	struct out o = { buf, size, 0 };
	uint64_t taken = 0;

	if (size)
		buf[0] = '\0';
	for (unsigned i = 0; !user && i < n; i++)
		put(&o, uuid[i]);
	/* The driver's rule: the list ends at the first entry that names nothing, or something twice. */
	while (user) {
		size_t len;
		size_t whole;
		int card;

		while (*user == ' ' || *user == '\t')
			user++;
		whole = len = strcspn(user, ",");
		while (len > 0 && (user[len - 1] == ' ' || user[len - 1] == '\t'))
			len--;
		card = find(user, len, n, uuid);
		if (card == AQ_NO_CARD || (taken >> card & 1))
			break;
		taken |= 1ULL << card;
		put(&o, uuid[card]);
		if (user[whole] == '\0')
			break;
		user += whole + 1;
	}
	return o.len;
}
