/* SPDX-License-Identifier: Apache-2.0 */
#include "base/format.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

struct out {
	char *buf;
	size_t size;
	size_t len;
};

struct spec {
	bool zero;
	bool left;
	size_t width;
	size_t precision; /* SIZE_MAX: none given */
	int longs;	  /* -2 hh, -1 h, 0, 1 l, 2 ll, 3 z */
};

static void put(struct out *o, char c)
{
	if (o->len + 1 < o->size)
		o->buf[o->len] = c;
	o->len++;
}

static void put_padded(struct out *o, const struct spec *s, const char *text, size_t n)
{
	size_t pad = s->width > n ? s->width - n : 0;

	if (!s->left) {
		/* The sign stays before the zeros. */
		if (s->zero && n && *text == '-') {
			put(o, *text++);
			n--;
		}
		for (; pad; pad--)
			put(o, s->zero ? '0' : ' ');
	}
	while (n--)
		put(o, *text++);
	for (; pad; pad--)
		put(o, ' ');
}

static void put_number(struct out *o, const struct spec *s, uint64_t value, bool negative,
		       unsigned base)
{
	char digits[24];
	size_t n = sizeof(digits);

	do {
		digits[--n] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	if (negative)
		digits[--n] = '-';
	put_padded(o, s, digits + n, sizeof(digits) - n);
}

static int64_t take_signed(const struct spec *s, va_list *ap)
{
	switch (s->longs) {
	case 1:
		return va_arg(*ap, long);
	case 2:
		return va_arg(*ap, long long);
	case 3:
		return va_arg(*ap, ssize_t);
	case -1:
		return (short)va_arg(*ap, int);
	case -2:
		return (signed char)va_arg(*ap, int);
	default:
		return va_arg(*ap, int);
	}
}

static uint64_t take_unsigned(const struct spec *s, va_list *ap)
{
	switch (s->longs) {
	case 1:
		return va_arg(*ap, unsigned long);
	case 2:
		return va_arg(*ap, unsigned long long);
	case 3:
		return va_arg(*ap, size_t);
	case -1:
		return (unsigned short)va_arg(*ap, unsigned);
	case -2:
		return (unsigned char)va_arg(*ap, unsigned);
	default:
		return va_arg(*ap, unsigned);
	}
}

static size_t parse_count(const char **fmt, va_list *ap)
{
	size_t n = 0;

	if (**fmt == '*') {
		int given = va_arg(*ap, int);

		(*fmt)++;
		return given > 0 ? (size_t)given : 0;
	}
	for (; **fmt >= '0' && **fmt <= '9'; (*fmt)++)
		n = n * 10 + (size_t)(**fmt - '0');
	return n;
}

static struct spec parse_spec(const char **fmt, va_list *ap)
{
	struct spec s = { .precision = SIZE_MAX };

	for (; **fmt == '0' || **fmt == '-'; (*fmt)++) {
		if (**fmt == '0')
			s.zero = true;
		else
			s.left = true;
	}
	s.width = parse_count(fmt, ap);
	if (**fmt == '.') {
		(*fmt)++;
		s.precision = parse_count(fmt, ap);
	}
	for (;; (*fmt)++) {
		if (**fmt == 'l')
			s.longs++;
		else if (**fmt == 'h')
			s.longs--;
		else if (**fmt == 'z')
			s.longs = 3;
		else
			return s;
	}
}

static void put_string(struct out *o, const struct spec *s, const char *text)
{
	size_t n;

	if (!text)
		text = "(null)";
	n = s->precision == SIZE_MAX ? strlen(text) : strnlen(text, s->precision);
	put_padded(o, s, text, n);
}

size_t aq_vformat(char *buf, size_t size, const char *fmt, va_list ap_in)
{
	struct out o = { buf, size, 0 };
	va_list ap;

	va_copy(ap, ap_in);
	for (; *fmt; fmt++) {
		const char *start = fmt;
		struct spec s;

		if (*fmt != '%') {
			put(&o, *fmt);
			continue;
		}
		fmt++;
		s = parse_spec(&fmt, &ap);
		switch (*fmt) {
		case 'd':
		case 'i': {
			int64_t v = take_signed(&s, &ap);

			put_number(&o, &s, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0, 10);
			break;
		}
		case 'u':
			put_number(&o, &s, take_unsigned(&s, &ap), false, 10);
			break;
		case 'x':
			put_number(&o, &s, take_unsigned(&s, &ap), false, 16);
			break;
		case 'p':
			put(&o, '0');
			put(&o, 'x');
			put_number(&o, &s, (uintptr_t)va_arg(ap, void *), false, 16);
			break;
		case 'c': {
			char c = (char)va_arg(ap, int);

			put_padded(&o, &s, &c, 1);
			break;
		}
		case 's':
			put_string(&o, &s, va_arg(ap, const char *));
			break;
		case '%':
			put(&o, '%');
			break;
		default:
			for (; start <= fmt && *start; start++)
				put(&o, *start);
			if (!*fmt)
				fmt--;
			break;
		}
	}
	va_end(ap);
	if (size)
		buf[o.len < size ? o.len : size - 1] = '\0';
	return o.len;
}

size_t aq_format(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	n = aq_vformat(buf, size, fmt, ap);
	va_end(ap);
	return n;
}
