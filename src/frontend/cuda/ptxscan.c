/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A glance at PTX text: which version, which target, which kernels. The server's parser decides whether it is right; this is for what the driver
 * answers before any context exists.
 */
#include "frontend/cuda/core.h"

#include <string.h>

struct scan {
	const char *p, *end;
};

static bool is_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '$' || c == '%';
}

static bool at_text(const struct scan *s, const char *text)
{
	size_t n = strlen(text);

	return (size_t)(s->end - s->p) >= n && memcmp(s->p, text, n) == 0;
}

static void skip_past(struct scan *s, const char *text)
{
	while (s->p < s->end && !at_text(s, text))
		s->p++;
	if (s->p < s->end)
		s->p += strlen(text);
}

/* Over one comment, string or blank; false when there is none. */
static bool skip_noise(struct scan *s)
{
	if (s->p == s->end)
		return false;
	if (at_text(s, "//")) {
		skip_past(s, "\n");
	} else if (at_text(s, "/*")) {
		s->p += 2;
		skip_past(s, "*/");
	} else if (*s->p == '"') {
		s->p++;
		skip_past(s, "\"");
	} else if (*s->p == ' ' || (*s->p >= '\t' && *s->p <= '\r')) {
		s->p++;
	} else {
		return false;
	}
	return true;
}

/* The next directive `name` (".entry"); leaves the scan at the word behind it, whose length it returns; 0 at the end. */
static size_t find_directive(struct scan *s, const char *name)
{
	const size_t len = strlen(name);

	while (s->p < s->end) {
		const char *word;

		if (skip_noise(s))
			continue;
		if (*s->p != '.' && !is_name(*s->p)) {
			s->p++;
			continue;
		}
		word = s->p++;
		while (s->p < s->end && is_name(*s->p))
			s->p++;
		if ((size_t)(s->p - word) != len || memcmp(word, name, len) != 0)
			continue;
		while (skip_noise(s))
			;
		word = s->p;
		while (word < s->end && is_name(*word))
			word++;
		if (word > s->p)
			return (size_t)(word - s->p);
	}
	return 0;
}

void aq_fe_ptx_kernels(const char *ptx, size_t len,
		       bool (*fn)(void *opaque, const char *name, size_t name_len), void *opaque)
{
	struct scan s = { ptx, ptx + len };
	size_t n;

	while ((n = find_directive(&s, ".entry")) > 0) {
		if (!fn(opaque, s.p, n))
			return;
		s.p += n;
	}
}

unsigned aq_fe_ptx_version(const char *ptx, size_t len)
{
	struct scan s = { ptx, ptx + len };
	size_t n = find_directive(&s, ".version");
	unsigned major = 0;

	for (; n > 0 && *s.p >= '0' && *s.p <= '9' && major < 1000; n--)
		major = major * 10 + (unsigned)(*s.p++ - '0');
	if (n > 0 || s.end - s.p < 2 || s.p[0] != '.' || s.p[1] < '0' || s.p[1] > '9')
		return 0;
	return major * 10 + (unsigned)(s.p[1] - '0');
}

bool aq_fe_ptx_is_specific(const char *ptx, size_t len)
{
	struct scan s = { ptx, ptx + len };
	size_t n = find_directive(&s, ".target");

	return n > 4 && memcmp(s.p, "sm_", 3) == 0 && (s.p[n - 1] == 'a' || s.p[n - 1] == 'f');
}
