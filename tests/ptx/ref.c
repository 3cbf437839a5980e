/* SPDX-License-Identifier: Apache-2.0 */
#include "ref.h"

#include "softfloat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct aq_form_type u32_type = { 'u', 32 }, pred_type = { 'p', 1 };

static bool is(const struct aq_form *f, const char *names)
{
	const size_t n = strlen(f->name);

	for (const char *p = names; *p;) {
		const size_t len = strcspn(p, " ");

		if (len == n && memcmp(p, f->name, n) == 0)
			return true;
		p += len + (p[len] == ' ');
	}
	return false;
}

static bool has(const struct aq_form *f, const char *mod)
{
	return aq_form_has(f, mod);
}

static bool has_bool_op(const struct aq_form *f)
{
	return has(f, "and") || has(f, "or") || has(f, "xor");
}

bool aq_ref_sig(const struct aq_form *f, struct aq_ref_sig *s)
{
	const struct aq_form_type t = f->last;

	memset(s, 0, sizeof(*s));
	s->dst = t;
	for (unsigned k = 0; k < AQ_REF_MAX_SRC; k++)
		s->src[k] = t;
	s->carry = has(f, "cc") || is(f, "addc subc madc");
	if (is(f, "abs neg not cnot mov rcp sqrt rsqrt sin cos lg2 ex2 tanh brev")) {
		s->n_src = 1;
	} else if (is(f, "add sub mul div rem min max and or xor copysign mul24 addc subc")) {
		s->n_src = 2;
	} else if (is(f, "mad mad24 sad fma madc prmt shf")) {
		s->n_src = 3;
	} else if (is(f, "bmsk szext dp4a dp2a fns")) {
		s->n_src = is(f, "bmsk szext") ? 2 : 3;
		s->dst = s->src[0] = s->src[1] = s->src[2] = u32_type;
	} else if (is(f, "popc clz bfind")) {
		s->n_src = 1;
		s->dst = u32_type;
	} else if (is(f, "shl shr bfe bfi")) {
		s->n_src = is(f, "bfi") ? 4 : is(f, "bfe") ? 3 : 2;
		s->src[s->n_src - 1] = u32_type;
		if (s->n_src > 2)
			s->src[s->n_src - 2] = u32_type;
	} else if (is(f, "lop3")) {
		s->n_src = 3;
		s->constant = true;
		if (has_bool_op(f)) {
			s->dst2 = pred_type;
			s->src[s->n_src++] = pred_type;
		}
	} else if (is(f, "selp slct")) {
		s->n_src = 3;
		if (is(f, "slct"))
			s->dst = s->src[0] = s->src[1] = f->prev;
		else
			s->src[2] = pred_type;
	} else if (is(f, "setp set")) {
		s->n_src = 2;
		s->dst = is(f, "set") ? f->prev : pred_type;
		if (f->pair)
			s->dst2 = pred_type;
		if (has_bool_op(f))
			s->src[s->n_src++] = pred_type;
	} else if (is(f, "testp")) {
		s->n_src = 1;
		s->dst = pred_type;
	} else if (is(f, "cvt")) {
		s->n_src = 1;
		s->dst = f->prev;
	} else {
		return false;
	}
	if (has(f, "wide")) {
		s->dst.bits = (uint8_t)(2 * t.bits);
		s->src[2] = s->dst;
	}
	return true;
}

/* --- integers: everything in 128 bits, where nothing here overflows --- */

static uint64_t low(uint64_t v, unsigned bits)
{
	return bits >= 64 ? v : v & ((UINT64_C(1) << bits) - 1);
}

static aq_s128 value(uint64_t v, struct aq_form_type t)
{
	v = low(v, t.bits);
	if (t.kind == 's' && v >> (t.bits - 1) & 1)
		return (aq_s128)v - ((aq_s128)1 << t.bits);
	return v;
}

static aq_s128 clamp(aq_s128 v, struct aq_form_type t)
{
	const aq_s128 min = t.kind == 's' ? -((aq_s128)1 << (t.bits - 1)) : 0;
	const aq_s128 max = ((aq_s128)1 << (t.kind == 's' ? t.bits - 1 : t.bits)) - 1;

	return v < min ? min : v > max ? max : v;
}

static aq_s128 smaller(aq_s128 a, aq_s128 b)
{
	return a < b ? a : b;
}

static aq_s128 larger(aq_s128 a, aq_s128 b)
{
	return a > b ? a : b;
}

static aq_s128 min_max(const struct aq_form *f, aq_s128 a, aq_s128 b)
{
	const aq_s128 v = is(f, "min") ? smaller(a, b) : larger(a, b);

	return has(f, "relu") ? larger(v, 0) : v;
}

static uint64_t packed_halves(const struct aq_form *f, uint64_t a, uint64_t b)
{
	const struct aq_form_type t = { strncmp(f->mods[f->n_mods - 1], "s16", 3) ? 'u' : 's', 16 };
	uint64_t v = 0;

	for (unsigned k = 0; k < 32; k += 16) {
		const aq_s128 x = value(a >> k, t), y = value(b >> k, t);

		v |= low((uint64_t)(is(f, "add") ? x + y : min_max(f, x, y)), 16) << k;
	}
	return v;
}

/* mul mad mul24 mad24 and their .cc: the part of the product that goes on. */
static aq_s128 product(const struct aq_form *f, uint64_t a, uint64_t b)
{
	struct aq_form_type t = f->last, in = t;
	aq_u128 p;

	if (is(f, "mul24 mad24"))
		in.bits = 24;
	p = (aq_u128)value(a, in) * (aq_u128)value(b, in);
	if (has(f, "wide"))
		return (aq_s128)p;
	if (has(f, "hi")) {
		const unsigned by = in.bits == 24 ? 16 : t.bits;

		p = t.kind == 'u' ? p >> by : (aq_u128)((aq_s128)p >> by);
	}
	return value((uint64_t)p, t);
}

static aq_s128 divide(const struct aq_form *f, aq_s128 a, aq_s128 b)
{
	if (b == 0)
		return -1;
	return is(f, "div") ? a / b : a % b;
}

/* Results of the four operations; and the carry that comes out, where a borrow counts as one. */
static uint64_t integer_sum(const struct aq_form *f, const struct aq_ref_lane *l, bool *ret_carry)
{
	const struct aq_form_type t = f->last, plain = { 'u', t.bits };
	const uint64_t *v = l->src;
	const bool chained = is(f, "addc subc madc"), carries = chained || has(f, "cc");
	const aq_s128 in = chained && l->carry_in;
	aq_s128 a, b, r;

	if (is(f, "mul mul24"))
		return (uint64_t)product(f, v[0], v[1]);
	if (is(f, "mad mad24 madc")) {
		a = product(f, v[0], v[1]);
		b = has(f, "wide") ? (aq_s128)v[2] : value(v[2], t);
	} else {
		a = value(v[0], t);
		b = value(v[1], t);
	}
	if (carries) {
		a = value((uint64_t)a, plain);
		b = value((uint64_t)b, plain);
	}
	r = is(f, "sub subc") ? a - b - in : a + b + in;
	if (has(f, "cc"))
		*ret_carry = r < 0 || r >> t.bits;
	return (uint64_t)(has(f, "sat") ? clamp(r, t) : r);
}

static uint64_t count_bits(const struct aq_form *f, uint64_t v)
{
	const unsigned bits = f->last.bits;
	unsigned n = 0;
	int msb = -1;

	v = low(v, bits);
	if (f->last.kind == 's' && v >> (bits - 1))
		v = low(~v, bits);
	for (unsigned k = 0; k < bits; k++) {
		n += v >> k & 1;
		if (v >> k & 1)
			msb = (int)k;
	}
	if (is(f, "popc"))
		return n;
	if (is(f, "clz"))
		return bits - 1 - (unsigned)msb;
	if (msb < 0 || !has(f, "shiftamt"))
		return (uint64_t)(int64_t)msb;
	return bits - 1 - (unsigned)msb;
}

static uint64_t bit(uint64_t v, unsigned n)
{
	return v >> n & 1;
}

static uint64_t bit_field(const struct aq_form *f, const uint64_t *v)
{
	const unsigned bits = f->last.bits, msb = bits - 1;
	const bool insert = is(f, "bfi");
	const unsigned pos = v[insert ? 2 : 1] & 0xff, len = v[insert ? 3 : 2] & 0xff;
	uint64_t r = 0, sign;

	if (insert) {
		r = low(v[1], bits);
		for (unsigned k = 0; k < len && pos + k <= msb; k++)
			r = (r & ~(UINT64_C(1) << (pos + k))) | bit(v[0], k) << (pos + k);
		return r;
	}
	sign = f->last.kind == 'u' || len == 0
		       ? 0
		       : bit(v[0], pos + len - 1 < msb ? pos + len - 1 : msb);
	for (unsigned k = 0; k <= msb; k++)
		r |= (k < len && pos + k <= msb ? bit(v[0], pos + k) : sign) << k;
	return r;
}

static uint64_t bit_mask(const struct aq_form *f, const uint64_t *v)
{
	const uint32_t pos = has(f, "wrap") ? v[0] & 31 : (uint32_t)v[0];
	const uint32_t len = has(f, "wrap") ? v[1] & 31 : (uint32_t)v[1];
	uint64_t r = 0;

	for (uint64_t k = 0; k < 32; k++)
		if (k >= pos && k < (uint64_t)pos + len)
			r |= UINT64_C(1) << k;
	return r;
}

static uint64_t sign_extend(const struct aq_form *f, const uint64_t *v)
{
	const uint32_t n = has(f, "wrap") ? v[1] & 31 : (uint32_t)v[1];
	uint64_t r = 0;

	if (n == 0)
		return 0;
	for (unsigned k = 0; k < 32; k++)
		r |= (k < n ? bit(v[0], k) : f->last.kind == 's' ? bit(v[0], n - 1) : 0) << k;
	return r;
}

static uint64_t find_nth(const uint64_t *v)
{
	const int64_t offset = (int32_t)v[2];
	const uint32_t base = (uint32_t)v[1];
	int64_t left = offset < 0 ? -offset : offset;

	if (base > 31)
		return 0xffffffff; /* undefined in PTX: we say not found */
	if (offset == 0)
		return bit(v[0], base) ? base : 0xffffffff;
	for (int pos = (int)base; pos >= 0 && pos < 32; pos += offset < 0 ? -1 : 1)
		if (bit(v[0], (unsigned)pos) && --left == 0)
			return (uint64_t)pos;
	return 0xffffffff;
}

static uint64_t dot_product(const struct aq_form *f, const uint64_t *v)
{
	const bool halves = is(f, "dp2a");
	struct aq_form_type a = f->prev, b = f->last;
	aq_s128 r = (aq_s128)low(v[2], 32);

	a.bits = halves ? 16 : 8;
	b.bits = 8;
	for (unsigned k = 0; k < (halves ? 2u : 4u); k++)
		r += value(v[0] >> (k * a.bits), a) *
		     value(v[1] >> (8 * (k + (has(f, "hi") ? 2 : 0))), b);
	return (uint64_t)r;
}

static uint64_t shift(const struct aq_form *f, const uint64_t *v)
{
	const unsigned bits = f->last.bits;
	const uint32_t by = (uint32_t)v[1];
	const aq_s128 a = value(v[0], f->last);

	if (is(f, "shl"))
		return by >= bits ? 0 : (uint64_t)a << by;
	return (uint64_t)(a >> (by > 127 ? 127 : by));
}

static uint64_t funnel(const struct aq_form *f, const uint64_t *v)
{
	const unsigned n = has(f, "wrap") ? v[2] & 31 : (unsigned)smaller(low(v[2], 32), 32);
	const aq_u128 both = (aq_u128)low(v[1], 32) << 32 | low(v[0], 32);

	return (uint64_t)(has(f, "l") ? both << n >> 32 : both >> n);
}

/* The bytes that each mode takes, most significant first, as the tables of PTX have them. */
static uint64_t permute(const struct aq_form *f, const uint64_t *v)
{
	static const struct {
		const char *mode;
		uint16_t pick[4];
	} table[] = {
		{ "f4e", { 0x3210, 0x4321, 0x5432, 0x6543 } },
		{ "b4e", { 0x5670, 0x6701, 0x7012, 0x0123 } },
		{ "rc8", { 0x0000, 0x1111, 0x2222, 0x3333 } },
		{ "ecl", { 0x3210, 0x3211, 0x3222, 0x3333 } },
		{ "ecr", { 0x0000, 0x1110, 0x2210, 0x3210 } },
		{ "rc16", { 0x1010, 0x3232, 0x1010, 0x3232 } },
	};
	const uint64_t source = low(v[1], 32) << 32 | low(v[0], 32);
	unsigned pick = v[2] & 0xffff;
	uint64_t r = 0;

	for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++)
		if (has(f, table[k].mode))
			pick = table[k].pick[v[2] & 3];
	for (unsigned k = 0; k < 4; k++) {
		const unsigned nibble = pick >> (4 * k) & 15;
		uint64_t byte = source >> (8 * (nibble & 7)) & 0xff;

		if (nibble & 8)
			byte = byte & 0x80 ? 0xff : 0;
		r |= byte << (8 * k);
	}
	return r;
}

static bool bool_op(const struct aq_form *f, bool t, bool c)
{
	return has(f, "and") ? t && c : has(f, "or") ? t || c : has(f, "xor") ? t != c : t;
}

static uint64_t table3(const uint64_t *v, uint32_t table)
{
	uint64_t r = 0;

	for (unsigned k = 0; k < 32; k++)
		r |= (uint64_t)(table >> (bit(v[0], k) * 4 + bit(v[1], k) * 2 + bit(v[2], k)) & 1)
		     << k;
	return r;
}

/* --- floats --- */

static enum aq_soft_mode mode_of(const struct aq_form *f)
{
	static const char *const names[] = { "rn", "rz", "rm", "rp" };
	static const char *const to_int[] = { "rni", "rzi", "rmi", "rpi" };

	for (int k = 0; k < 4; k++)
		if (has(f, names[k]) || has(f, to_int[k]))
			return (enum aq_soft_mode)k;
	return AQ_SOFT_RN;
}

static bool subnormal(uint64_t v, unsigned bits)
{
	const struct aq_soft s = aq_soft_from(v, bits);

	return s.class == AQ_SOFT_FINITE && s.e == (bits == 32 ? -149 : -1074) &&
	       s.m >> (bits == 32 ? 23 : 52) == 0;
}

static uint64_t flush(const struct aq_form *f, uint64_t v, unsigned bits)
{
	v = low(v, bits);
	return bits == 32 && has(f, "ftz") && subnormal(v, 32) ? v & 0x80000000 : v;
}

static bool is_nan(uint64_t v, unsigned bits)
{
	return aq_soft_from(low(v, bits), bits).class == AQ_SOFT_NAN;
}

static struct aq_soft source(const struct aq_form *f, uint64_t v, struct aq_form_type t)
{
	if (t.kind != 'f')
		return aq_soft_from_int(value(v, t));
	return aq_soft_from(flush(f, v, t.bits), t.bits);
}

/* To the destination: rounded, flushed, saturated. */
static uint64_t deliver(const struct aq_form *f, struct aq_soft v, unsigned bits)
{
	uint64_t r = flush(f, aq_soft_round(v, mode_of(f), bits), bits);

	if (!has(f, "sat"))
		return r;
	if (is_nan(r, bits) || r >> (bits - 1))
		return 0;
	/* Positive floats are ordered as their bits are. */
	return (uint64_t)smaller(r, bits == 32 ? 0x3f800000 : 0x3ff0000000000000);
}

static uint64_t rounded(const struct aq_form *f, const uint64_t *v)
{
	const struct aq_form_type t = f->last;
	const struct aq_soft one = aq_soft_from_int(1);
	const enum aq_soft_mode mode = mode_of(f);
	struct aq_soft a = source(f, v[0], t), r;
	struct aq_soft b = is(f, "rcp sqrt") ? one : source(f, v[1], t);

	if (is(f, "sub"))
		b.neg = !b.neg;
	if (is(f, "add sub"))
		r = aq_soft_add(a, b, mode);
	else if (is(f, "mul"))
		r = aq_soft_mul(a, b);
	else if (is(f, "fma mad"))
		r = aq_soft_add(aq_soft_mul(a, b), source(f, v[2], t), mode);
	else if (is(f, "div"))
		r = aq_soft_div(a, b);
	else if (is(f, "rcp"))
		r = aq_soft_div(one, a);
	else
		r = aq_soft_sqrt(a);
	return deliver(f, r, t.bits);
}

/* Larger keys for larger numbers, -0 below +0. */
static aq_s128 order_key(uint64_t v, unsigned bits)
{
	const uint64_t magnitude = low(v, bits - 1);

	return v >> (bits - 1) & 1 ? -(aq_s128)magnitude - 1 : (aq_s128)magnitude;
}

static uint64_t float_min_max(const struct aq_form *f, const uint64_t *v)
{
	const unsigned bits = f->last.bits;
	const uint64_t sign_bit = UINT64_C(1) << (bits - 1);
	uint64_t a = flush(f, v[0], bits), b = flush(f, v[1], bits), r, sign = 0;
	const bool a_nan = is_nan(a, bits), b_nan = is_nan(b, bits);

	if (has(f, "xorsign")) {
		sign = (a ^ b) & sign_bit;
		a &= ~sign_bit;
		b &= ~sign_bit;
	}
	if ((a_nan && b_nan) || (has(f, "NaN") && (a_nan || b_nan)))
		return sign_bit - 1;
	if (a_nan || b_nan)
		r = a_nan ? b : a;
	else if (is(f, "min"))
		r = order_key(a, bits) < order_key(b, bits) ? a : b;
	else
		r = order_key(a, bits) > order_key(b, bits) ? a : b;
	return r ^ sign;
}

static bool test_property(const struct aq_form *f, uint64_t v)
{
	const unsigned bits = f->last.bits;
	const struct aq_soft s = aq_soft_from(low(v, bits), bits);
	const bool sub = subnormal(low(v, bits), bits);

	if (has(f, "finite"))
		return s.class == AQ_SOFT_FINITE || s.class == AQ_SOFT_ZERO;
	if (has(f, "infinite"))
		return s.class == AQ_SOFT_INF;
	if (has(f, "number"))
		return s.class != AQ_SOFT_NAN;
	if (has(f, "notanumber"))
		return s.class == AQ_SOFT_NAN;
	if (has(f, "subnormal"))
		return sub;
	return s.class == AQ_SOFT_ZERO || (s.class == AQ_SOFT_FINITE && !sub);
}

static bool compare(const struct aq_form *f, const uint64_t *v)
{
	static const struct {
		const char *name;
		const char *outcomes; /* those that are true: less, equal, greater, unordered */
	} table[] = {
		{ "eq", "=" },	  { "ne", "<>" },   { "lt", "<" },   { "le", "<=" },
		{ "gt", ">" },	  { "ge", ">=" },   { "lo", "<" },   { "ls", "<=" },
		{ "hi", ">" },	  { "hs", ">=" },   { "equ", "=?" }, { "neu", "<>?" },
		{ "ltu", "<?" },  { "leu", "<=?" }, { "gtu", ">?" }, { "geu", ">=?" },
		{ "num", "<=>" }, { "nan", "?" },
	};
	const struct aq_form_type t = f->last;
	char outcome;

	if (t.kind == 'f') {
		const uint64_t a = flush(f, v[0], t.bits), b = flush(f, v[1], t.bits);
		const aq_s128 x = low(a, t.bits - 1) ? order_key(a, t.bits) : 0;
		const aq_s128 y = low(b, t.bits - 1) ? order_key(b, t.bits) : 0;

		outcome = is_nan(a, t.bits) || is_nan(b, t.bits) ? '?'
			  : x < y				 ? '<'
			  : x > y				 ? '>'
								 : '=';
	} else {
		const aq_s128 x = value(v[0], t), y = value(v[1], t);

		outcome = x < y ? '<' : x > y ? '>' : '=';
	}
	for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++)
		if (strcmp(f->mods[0], table[k].name) == 0)
			return strchr(table[k].outcomes, outcome) != NULL;
	return false;
}

static uint64_t convert(const struct aq_form *f, uint64_t v)
{
	const struct aq_form_type from = f->last, to = f->prev;
	struct aq_soft s;

	if (from.kind != 'f' && to.kind != 'f')
		return (uint64_t)(has(f, "sat") ? clamp(value(v, from), to) : value(v, from));
	s = source(f, v, from);
	if (f->mods[0][0] == 'r' && f->mods[0][2] == 'i')
		s = aq_soft_integral(s, mode_of(f));
	if (to.kind == 'f')
		return deliver(f, s, to.bits);
	return s.class == AQ_SOFT_NAN ? 0 : (uint64_t)clamp(aq_soft_to_int(s), to);
}

/* --- approximations: what PTX promises of them --- */

static long double number(uint64_t v, unsigned bits)
{
	const struct aq_soft s = aq_soft_from(low(v, bits), bits);
	long double r = 0;

	if (s.class == AQ_SOFT_NAN)
		return NAN;
	if (s.class == AQ_SOFT_INF)
		r = INFINITY;
	else if (s.class == AQ_SOFT_FINITE)
		r = ldexpl((long double)(uint64_t)s.m, s.e);
	return s.neg ? -r : r;
}

/* Is v within `ulp` units of the last place, `rel` or `abs` of the exact value? */
static bool near(const struct aq_form *f, long double exact, uint64_t got, unsigned bits,
		 long double ulp, long double rel, long double abs)
{
	const long double max = bits == 32 ? 0x1.fffffep127L : 0x1.fffffffffffffp1023L;
	const long double min_normal = bits == 32 ? 0x1p-126L : 0x1p-1022L;
	const long double v = number(got, bits);
	long double room = abs + rel * fabsl(exact), unit;
	int e = 0;

	if (isnan(exact))
		return bits == 32 ? low(got, 32) == 0x7fffffff : isnan(v);
	if (isnan(v))
		return false;
	if (isinf(exact))
		return v == exact;
	(void)frexpl(exact, &e);
	unit = ldexpl(1, (e < -125 && bits == 32 ? -125 : e) - (bits == 32 ? 24 : 53));
	room += ulp * unit;
	if (isinf(v))
		return fabsl(exact) + room > max && signbit(v) == signbit(exact);
	if (has(f, "ftz") && fabsl(v) < min_normal)
		return v == 0 && fabsl(exact) < min_normal + room;
	/* A zero has the sign of what it stands for. */
	if (exact == 0 && v == 0)
		return signbit(v) == signbit(exact);
	/* Below the normal numbers the spacing is fixed. */
	return fabsl(v - exact) <= room + (fabsl(exact) < min_normal && bits == 32 ? 0x1p-149L : 0);
}

static uint64_t upper(uint64_t v)
{
	v &= UINT64_C(0xffffffff00000000);
	return subnormal(v, 64) ? v & (UINT64_C(1) << 63) : v;
}

static bool check_gross(const struct aq_form *f, uint64_t src, uint64_t got)
{
	const long double x = is_nan(src, 64) ? NAN : number(upper(src), 64);
	const long double exact = is(f, "rcp") ? 1 / x : 1 / sqrtl(x);

	return (uint32_t)got == 0 && near(f, exact, got, 64, 0, 0x1p-19L, 0);
}

static bool check_approx(const struct aq_form *f, const uint64_t *src, uint64_t got)
{
	const unsigned bits = f->last.bits;
	const long double x = number(flush(f, src[0], bits), bits);

	if (bits == 64 && has(f, "ftz"))
		return check_gross(f, src[0], got);
	if (is(f, "div")) {
		const long double y = number(flush(f, src[1], bits), bits);

		if (has(f, "approx") && fabsl(y) > 0x1p126L && !isinf(y))
			return isinf(x) || isnan(x) ? low(got, 32) == 0x7fffffff
						    : low(got, 31) == 0;
		return near(f, x / y, got, 32, 2, 0, 0);
	}
	if (is(f, "rcp"))
		return near(f, 1 / x, got, 32, 1, 0, 0);
	if (is(f, "sqrt"))
		return near(f, sqrtl(x), got, 32, 0, 0x1p-23L, 0);
	if (is(f, "rsqrt"))
		return near(f, 1 / sqrtl(x), got, bits, 0, bits == 32 ? 0x1.12p-23L : 0x1p-51L, 0);
	if (is(f, "sin"))
		return near(f, isinf(x) ? NAN : sinl(x), got, 32, 0, 0, 0x1p-20L);
	if (is(f, "cos"))
		return near(f, isinf(x) ? NAN : cosl(x), got, 32, 0, 0, 0x1p-20L);
	if (is(f, "lg2"))
		return near(f, log2l(x), got, 32, 0, x > 0.5L && x < 2 ? 0 : 0x1p-22L,
			    x > 0.5L && x < 2 ? 0x1p-22L : 0);
	if (is(f, "ex2"))
		return near(f, exp2l(x), got, 32, 2, 0x1p-22L, 0);
	return near(f, tanhl(x), got, 32, 0, 0x1p-11L, 0);
}

/* --- all together --- */

static uint64_t integer(const struct aq_form *f, const struct aq_ref_lane *l, bool *ret_carry)
{
	const struct aq_form_type t = f->last;
	const uint64_t *v = l->src;
	const aq_s128 a = value(v[0], t), b = value(v[1], t);

	if (t.kind == 'x')
		return packed_halves(f, v[0], v[1]);
	if (is(f, "add sub mul mad mul24 mad24 addc subc madc"))
		return integer_sum(f, l, ret_carry);
	if (is(f, "sad"))
		return (uint64_t)(value(v[2], t) + larger(a - b, b - a));
	if (is(f, "div rem"))
		return (uint64_t)divide(f, a, b);
	if (is(f, "min max"))
		return (uint64_t)min_max(f, a, b);
	if (is(f, "abs"))
		return (uint64_t)larger(a, -a);
	if (is(f, "neg"))
		return (uint64_t)-a;
	if (is(f, "popc clz bfind"))
		return count_bits(f, v[0]);
	if (is(f, "brev")) {
		uint64_t r = 0;

		for (unsigned k = 0; k < t.bits; k++)
			r |= bit(v[0], k) << (t.bits - 1 - k);
		return r;
	}
	if (is(f, "bfe bfi"))
		return bit_field(f, v);
	if (is(f, "bmsk"))
		return bit_mask(f, v);
	if (is(f, "szext"))
		return sign_extend(f, v);
	if (is(f, "fns"))
		return find_nth(v);
	if (is(f, "dp4a dp2a"))
		return dot_product(f, v);
	if (is(f, "shl shr"))
		return shift(f, v);
	if (is(f, "shf"))
		return funnel(f, v);
	if (is(f, "prmt"))
		return permute(f, v);
	if (is(f, "and"))
		return v[0] & v[1];
	if (is(f, "or"))
		return v[0] | v[1];
	if (is(f, "xor"))
		return v[0] ^ v[1];
	if (is(f, "not"))
		return ~v[0];
	if (is(f, "cnot"))
		return low(v[0], t.bits) == 0;
	return 0;
}

static uint64_t floating(const struct aq_form *f, const uint64_t *v)
{
	const unsigned bits = f->last.bits;
	const uint64_t sign_bit = UINT64_C(1) << (bits - 1);

	if (is(f, "abs"))
		return flush(f, v[0], bits) & ~sign_bit;
	if (is(f, "neg"))
		return flush(f, v[0], bits) ^ sign_bit;
	if (is(f, "copysign"))
		return (v[0] & sign_bit) | (v[1] & ~sign_bit);
	if (is(f, "min max"))
		return float_min_max(f, v);
	return rounded(f, v);
}

static bool selects_first(const struct aq_form *f, uint64_t c)
{
	if (is(f, "selp"))
		return c & 1;
	if (f->last.kind == 's')
		return value(c, f->last) >= 0;
	c = flush(f, c, 32);
	return !is_nan(c, 32) && (!(c >> 31) || low(c, 31) == 0);
}

static struct aq_ref_result expected(const struct aq_form *f, const struct aq_ref_sig *sig,
				     const struct aq_ref_lane *l)
{
	struct aq_ref_result r = { .carry_out = l->carry_in };
	const uint64_t *v = l->src;

	if (is(f, "setp set")) {
		const bool t = compare(f, v);

		r.dst = bool_op(f, t, v[2] & 1);
		r.dst2 = bool_op(f, !t, v[2] & 1);
		if (is(f, "set"))
			r.dst = !r.dst ? 0 : f->prev.kind == 'f' ? 0x3f800000 : 0xffffffff;
	} else if (is(f, "testp")) {
		r.dst = test_property(f, v[0]);
	} else if (is(f, "lop3")) {
		r.dst = table3(v, l->constant);
		r.dst2 = bool_op(f, r.dst != 0, v[3] & 1);
	} else if (is(f, "selp slct")) {
		r.dst = selects_first(f, v[2]) ? v[0] : v[1];
	} else if (is(f, "mov")) {
		r.dst = v[0];
	} else if (is(f, "cvt")) {
		r.dst = convert(f, v[0]);
	} else if (f->last.kind == 'f') {
		r.dst = floating(f, v);
	} else {
		r.dst = integer(f, l, &r.carry_out);
	}
	r.dst = low(r.dst, sig->dst.bits);
	return r;
}

/* Of a double, PTX does not say which NaN results; where bits are only moved, it does. */
static bool any_nan(const struct aq_form *f)
{
	return !is(f, "mov selp slct abs neg copysign");
}

bool aq_ref_check(const struct aq_form *f, const struct aq_ref_sig *sig,
		  const struct aq_ref_lane *lane, const struct aq_ref_result *got,
		  struct aq_ref_result *ret_want)
{
	const bool approx = has(f, "approx") || has(f, "full");
	struct aq_ref_result want = { .carry_out = lane->carry_in };

	if (approx) {
		*ret_want = want;
		return check_approx(f, lane->src, got->dst);
	}
	want = expected(f, sig, lane);
	*ret_want = want;
	if (want.carry_out != got->carry_out || (sig->dst2.kind && want.dst2 != got->dst2))
		return false;
	if (sig->dst.kind == 'f' && sig->dst.bits == 64 && any_nan(f) && is_nan(want.dst, 64))
		return is_nan(got->dst, 64);
	return want.dst == low(got->dst, sig->dst.bits);
}
