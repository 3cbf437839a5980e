/* SPDX-License-Identifier: Apache-2.0 */
#include "softfloat.h"

static unsigned top_bit(aq_u128 m)
{
	const uint64_t high = m >> 64;

	return high ? 127 - (unsigned)__builtin_clzll(high) : 63 - (unsigned)__builtin_clzll(m);
}

/* Right shift that keeps a trace of what falls off. */
static aq_u128 shift_jam(aq_u128 m, int by)
{
	if (by <= 0)
		return m;
	if (by > 127)
		return m != 0;
	return m >> by | ((m & (((aq_u128)1 << by) - 1)) != 0);
}

static struct aq_soft normalise(struct aq_soft v, unsigned top)
{
	const int by = (int)top - (int)top_bit(v.m);

	v.m = by >= 0 ? v.m << by : shift_jam(v.m, -by);
	v.e -= by;
	return v;
}

static struct aq_soft special(enum aq_soft_class class, bool neg)
{
	return (struct aq_soft){ .class = class, .neg = neg };
}

struct aq_soft aq_soft_from(uint64_t bits, unsigned width)
{
	const unsigned fraction = width == 32 ? 23 : 52;
	const uint64_t max_exp = width == 32 ? 0xff : 0x7ff;
	const uint64_t exp = bits >> fraction & max_exp;
	const uint64_t frac = bits & ((UINT64_C(1) << fraction) - 1);
	const bool neg = bits >> (width - 1) & 1;
	struct aq_soft v = { .class = AQ_SOFT_FINITE, .neg = neg, .m = frac };

	if (exp == max_exp)
		return special(frac ? AQ_SOFT_NAN : AQ_SOFT_INF, neg);
	if (exp == 0 && frac == 0)
		return special(AQ_SOFT_ZERO, neg);
	if (exp != 0)
		v.m |= (aq_u128)1 << fraction;
	v.e = (exp ? (int)exp : 1) - (int)(max_exp >> 1) - (int)fraction;
	return v;
}

struct aq_soft aq_soft_from_int(aq_s128 i)
{
	const bool neg = i < 0;

	if (i == 0)
		return special(AQ_SOFT_ZERO, false);
	return (struct aq_soft){ AQ_SOFT_FINITE, neg, neg ? -(aq_u128)i : (aq_u128)i, 0 };
}

/* m / 2^by, rounded to an integer. */
static aq_u128 round_shift(aq_u128 m, int by, bool neg, enum aq_soft_mode mode)
{
	aq_u128 q, rest, half;

	if (by <= 0)
		return m << -by;
	if (by > 126) {
		m = m != 0; /* far below one half */
		by = 2;
	}
	q = m >> by;
	rest = m & (((aq_u128)1 << by) - 1);
	half = (aq_u128)1 << (by - 1);
	switch (mode) {
	case AQ_SOFT_RN:
		return q + (rest > half || (rest == half && (q & 1)));
	case AQ_SOFT_RM:
		return q + (neg && rest);
	case AQ_SOFT_RP:
		return q + (!neg && rest);
	case AQ_SOFT_RZ:
	default:
		return q;
	}
}

uint64_t aq_soft_round(struct aq_soft v, enum aq_soft_mode mode, unsigned width)
{
	const unsigned fraction = width == 32 ? 23 : 52;
	const uint64_t max_exp = width == 32 ? 0xff : 0x7ff;
	const int bias = (int)(max_exp >> 1);
	const int lowest = 1 - bias - (int)fraction;
	const uint64_t sign = (uint64_t)v.neg << (width - 1);
	const uint64_t infinity = max_exp << fraction;
	uint64_t mant;
	int unit;

	if (v.class == AQ_SOFT_NAN)
		return (UINT64_C(1) << (width - 1)) - 1;
	if (v.class == AQ_SOFT_INF)
		return sign | infinity;
	if (v.class == AQ_SOFT_ZERO || v.m == 0)
		return sign;
	unit = v.e + (int)top_bit(v.m) - (int)fraction;
	if (unit < lowest)
		unit = lowest;
	mant = (uint64_t)round_shift(v.m, unit - v.e, v.neg, mode);
	if (mant >> (fraction + 1)) {
		mant >>= 1;
		unit++;
	}
	if (!(mant >> fraction))
		return sign | mant;
	if (unit + (int)fraction > bias) {
		const bool away = mode == AQ_SOFT_RN || (mode == AQ_SOFT_RP && !v.neg) ||
				  (mode == AQ_SOFT_RM && v.neg);

		return sign | (away ? infinity : infinity - 1);
	}
	return sign | (uint64_t)(unit + (int)fraction + bias) << fraction |
	       (mant & ((UINT64_C(1) << fraction) - 1));
}

struct aq_soft aq_soft_add(struct aq_soft a, struct aq_soft b, enum aq_soft_mode mode)
{
	if (a.class == AQ_SOFT_NAN || b.class == AQ_SOFT_NAN)
		return special(AQ_SOFT_NAN, false);
	if (a.class == AQ_SOFT_INF || b.class == AQ_SOFT_INF) {
		if (a.class == b.class && a.neg != b.neg)
			return special(AQ_SOFT_NAN, false);
		return a.class == AQ_SOFT_INF ? a : b;
	}
	if (a.class == AQ_SOFT_ZERO && b.class == AQ_SOFT_ZERO)
		return special(AQ_SOFT_ZERO, a.neg == b.neg ? a.neg : mode == AQ_SOFT_RM);
	if (a.class == AQ_SOFT_ZERO)
		return b;
	if (b.class == AQ_SOFT_ZERO)
		return a;
	a = normalise(a, 125);
	b = normalise(b, 125);
	if (a.e < b.e || (a.e == b.e && a.m < b.m)) {
		const struct aq_soft t = a;

		a = b;
		b = t;
	}
	b.m = shift_jam(b.m, a.e - b.e);
	a.m = a.neg == b.neg ? a.m + b.m : a.m - b.m;
	return a.m ? a : special(AQ_SOFT_ZERO, mode == AQ_SOFT_RM);
}

struct aq_soft aq_soft_mul(struct aq_soft a, struct aq_soft b)
{
	const bool neg = a.neg != b.neg;

	if (a.class == AQ_SOFT_NAN || b.class == AQ_SOFT_NAN ||
	    (a.class == AQ_SOFT_INF && b.class == AQ_SOFT_ZERO) ||
	    (a.class == AQ_SOFT_ZERO && b.class == AQ_SOFT_INF))
		return special(AQ_SOFT_NAN, false);
	if (a.class == AQ_SOFT_INF || b.class == AQ_SOFT_INF)
		return special(AQ_SOFT_INF, neg);
	if (a.class == AQ_SOFT_ZERO || b.class == AQ_SOFT_ZERO)
		return special(AQ_SOFT_ZERO, neg);
	return (struct aq_soft){ AQ_SOFT_FINITE, neg, a.m * b.m, a.e + b.e };
}

struct aq_soft aq_soft_div(struct aq_soft a, struct aq_soft b)
{
	const bool neg = a.neg != b.neg;
	struct aq_soft q = { AQ_SOFT_FINITE, neg, 0, 0 };

	if (a.class == AQ_SOFT_NAN || b.class == AQ_SOFT_NAN ||
	    (a.class == b.class && (a.class == AQ_SOFT_INF || a.class == AQ_SOFT_ZERO)))
		return special(AQ_SOFT_NAN, false);
	if (a.class == AQ_SOFT_INF || b.class == AQ_SOFT_ZERO)
		return special(AQ_SOFT_INF, neg);
	if (a.class == AQ_SOFT_ZERO || b.class == AQ_SOFT_INF)
		return special(AQ_SOFT_ZERO, neg);
	a = normalise(a, 125);
	b = normalise(b, 52);
	q.m = a.m / b.m | (a.m % b.m != 0);
	q.e = a.e - b.e;
	return q;
}

struct aq_soft aq_soft_sqrt(struct aq_soft a)
{
	aq_u128 root = 0;

	if (a.class == AQ_SOFT_NAN || a.class == AQ_SOFT_ZERO)
		return a;
	if (a.neg)
		return special(AQ_SOFT_NAN, false);
	if (a.class == AQ_SOFT_INF)
		return a;
	a = normalise(a, 125);
	if (a.e & 1) {
		a.m >>= 1; /* the lowest bits are zeros */
		a.e++;
	}
	for (int bit = 63; bit >= 0; bit--) {
		const aq_u128 t = root | (aq_u128)1 << bit;

		if (t * t <= a.m)
			root = t;
	}
	/* One more bit of room, so that the trace of the rest is none of the root's own. */
	a.m = root << 1 | (root * root != a.m);
	a.e = a.e / 2 - 1;
	return a;
}

struct aq_soft aq_soft_integral(struct aq_soft a, enum aq_soft_mode mode)
{
	if (a.class != AQ_SOFT_FINITE || a.e >= 0)
		return a;
	a.m = round_shift(a.m, -a.e, a.neg, mode);
	a.e = 0;
	return a.m ? a : special(AQ_SOFT_ZERO, a.neg);
}

aq_s128 aq_soft_to_int(struct aq_soft a)
{
	aq_s128 v;

	if (a.class == AQ_SOFT_ZERO)
		return 0;
	if (a.class == AQ_SOFT_INF || a.e + (int)top_bit(a.m) >= 100)
		v = (aq_s128)1 << 100;
	else
		v = a.e >= 0 ? (aq_s128)(a.m << a.e) : (aq_s128)shift_jam(a.m, -a.e);
	return a.neg ? -v : v;
}
