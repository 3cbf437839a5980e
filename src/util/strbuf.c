/* SPDX-License-Identifier: Apache-2.0 */
#include "util/strbuf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void aq_strbuf_done(struct aq_strbuf *b)
{
	free(b->text);
	*b = (struct aq_strbuf){ .max = b->max };
}

static bool reserve(struct aq_strbuf *b, size_t more)
{
	size_t need = b->len + more + 1;
	size_t cap = b->cap ? b->cap : 64;
	char *text;

	if (need <= b->cap)
		return true;
	while (cap < need)
		cap *= 2;
	text = realloc(b->text, cap);
	if (!text) {
		b->failed = true;
		return false;
	}
	b->text = text;
	b->cap = cap;
	return true;
}

void aq_strbuf_add(struct aq_strbuf *b, const char *text, size_t len)
{
	if (b->max && len > b->max - b->len) {
		len = b->max - b->len;
		b->failed = true;
	}
	if (!reserve(b, len))
		return;
	memcpy(b->text + b->len, text, len);
	b->len += len;
	b->text[b->len] = '\0';
}

void aq_strbuf_printf(struct aq_strbuf *b, const char *fmt, ...)
{
	char small[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(small, sizeof(small), fmt, ap);
	va_end(ap);
	if (n < 0) {
		b->failed = true;
	} else if ((size_t)n < sizeof(small)) {
		aq_strbuf_add(b, small, (size_t)n);
	} else {
		char *large = malloc((size_t)n + 1);

		if (!large) {
			b->failed = true;
			return;
		}
		va_start(ap, fmt);
		(void)vsnprintf(large, (size_t)n + 1, fmt, ap);
		va_end(ap);
		aq_strbuf_add(b, large, (size_t)n);
		free(large);
	}
}

const char *aq_strbuf_text(const struct aq_strbuf *b)
{
	return b->text ? b->text : "";
}
