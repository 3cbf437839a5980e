/* SPDX-License-Identifier: Apache-2.0 */
/* A growing text. Zero-initialised is empty. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct aq_strbuf {
	char *text; /* NUL-terminated once anything was added, else NULL */
	size_t len;
	size_t cap;
	size_t max;  /* 0: no bound; else what does not fit is dropped */
	bool failed; /* an allocation failed or text was dropped */
};

void aq_strbuf_done(struct aq_strbuf *b);
void aq_strbuf_add(struct aq_strbuf *b, const char *text, size_t len);
void aq_strbuf_printf(struct aq_strbuf *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Never NULL. */
const char *aq_strbuf_text(const struct aq_strbuf *b);
