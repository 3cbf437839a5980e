/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA_VISIBLE_DEVICES and PCI addresses as people write them. */
#include "frontend/cuda/core.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define UUID_DIGITS 32

/* The hexadecimal digits behind "GPU-", dashes dropped. Returns their number, or -1 for anything else. */
static int uuid_digits(const char *text, size_t len, char *ret)
{
	int n = 0;

	if (len < 5 || strncasecmp(text, "GPU-", 4) != 0)
		return -1;
	for (size_t i = 4; i < len; i++) {
		if (text[i] == '-')
			continue;
		if (!isxdigit((unsigned char)text[i]) || n == UUID_DIGITS)
			return -1;
		ret[n++] = (char)tolower((unsigned char)text[i]);
	}
	return n;
}

static bool uuid_begins(const uint8_t *uuid, const char *digits, int n)
{
	static const char hex[] = "0123456789abcdef";

	for (int i = 0; i < n; i++)
		if (digits[i] != hex[uuid[i / 2] >> (i % 2 ? 0 : 4) & 15])
			return false;
	return true;
}

/* The card that one entry names, or -1: none, or more than one. */
static int find_card(const char *text, size_t len, unsigned n, const uint8_t (*uuid)[16])
{
	char digits[UUID_DIGITS];
	int n_digits = uuid_digits(text, len, digits);
	unsigned value = 0;
	int found = -1;

	if (n_digits > 0) {
		for (unsigned i = 0; i < n; i++) {
			if (!uuid_begins(uuid[i], digits, n_digits))
				continue;
			if (found >= 0)
				return -1;
			found = (int)i;
		}
		return found;
	}
	if (len == 0 || len > 4)
		return -1;
	for (size_t i = 0; i < len; i++) {
		if (!isdigit((unsigned char)text[i]))
			return -1;
		value = value * 10 + (unsigned)(text[i] - '0');
	}
	return value < n ? (int)value : -1;
}

unsigned aq_fe_visible(const char *text, unsigned n, const uint8_t (*uuid)[16], uint32_t *ret_cards)
{
	unsigned found = 0;

	if (!text) {
		for (unsigned i = 0; i < n; i++)
			ret_cards[i] = i;
		return n;
	}
	while (found < n) {
		size_t len;
		size_t whole;
		int card;

		while (*text == ' ' || *text == '\t')
			text++;
		whole = len = strcspn(text, ",");
		while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
			len--;
		card = find_card(text, len, n, uuid);
		for (unsigned i = 0; i < found; i++)
			if (card == (int)ret_cards[i])
				card = -1;
		if (card < 0)
			break;
		ret_cards[found++] = (uint32_t)card;
		if (text[whole] == '\0')
			break;
		text += whole + 1;
	}
	return found;
}

static bool hex_field(const char **text, unsigned max_digits, unsigned *ret)
{
	unsigned value = 0;
	unsigned n = 0;

	for (; isxdigit((unsigned char)**text); (*text)++, n++) {
		char c = (char)tolower((unsigned char)**text);

		if (n == max_digits)
			return false;
		value = value << 4 | (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	*ret = value;
	return n > 0;
}

bool aq_fe_pci_parse(const char *text, unsigned *ret_domain, unsigned *ret_bus,
		     unsigned *ret_device)
{
	unsigned field[3];
	unsigned n = 0;
	unsigned function = 0;

	for (;;) {
		if (n == 3 || !hex_field(&text, 8, &field[n]))
			return false;
		n++;
		if (*text != ':')
			break;
		text++;
	}
	if (*text == '.') {
		text++;
		if (!hex_field(&text, 1, &function))
			return false;
	}
	if (*text != '\0' || n < 2)
		return false;
	*ret_domain = n == 3 ? field[0] : 0;
	*ret_bus = field[n - 2];
	*ret_device = field[n - 1];
	return true;
}
