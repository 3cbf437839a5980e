/* SPDX-License-Identifier: Apache-2.0 */
#include "values.h"

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

static const uint64_t integers[] = {
	0,
	1,
	2,
	3,
	7,
	8,
	15,
	16,
	17,
	31,
	32,
	33,
	63,
	64,
	65,
	127,
	128,
	129,
	255,
	256,
	257,
	0x7fff,
	0x8000,
	0xffff,
	0x10000,
	0x7fffff,
	0x800000,
	0xffffff,
	0x1000000,
	0x55555555,
	0x7fffffff,
	0x80000000,
	0x80000001,
	0xfffffffe,
	0xffffffff,
	0x100000000,
	0xffffff80ffffff7f,
	0x7fffffffffffffff,
	0x8000000000000000,
	0x8000000000000001,
	0xaaaaaaaaaaaaaaaa,
	0xfffffffffffffffe,
	0xffffffffffffffff,
	0xffffffffffff8000,
	0xffffffffffff7fff,
	0xffffffff80000000,
	0xffffffff7fffffff,
};

static const uint32_t floats[] = {
	0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00400000,
	0x00800000, 0x80800000, 0x00800001, 0x00ffffff, 0x01000000, 0x3f800000, 0xbf800000,
	0x3f800001, 0x3f7fffff, 0xbf7fffff, 0x3f000000, 0xbf000000, 0x3effffff, 0x3fc00000,
	0x40200000, 0xc0200000, 0x40600000, 0x40490fdb, 0xc0c90fdb, 0x42fe0000, 0x42ff0000,
	0x42ff8000, 0xc3000000, 0xc3004000, 0x437f8000, 0x43800000, 0x46fffe00, 0x477fff00,
	0x477fff80, 0x4affffff, 0x4b000001, 0x4b7fffff, 0x4b800000, 0x4effffff, 0x4f000000,
	0xcf000000, 0xcf000001, 0x4f7fffff, 0x4f800000, 0x5effffff, 0x5f000000, 0xdf000000,
	0x5f7fffff, 0x5f800000, 0x7e800000, 0x7e800001, 0x7f000000, 0x7f7fffff, 0xff7fffff,
	0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff, 0xffa5a5a5,
	0x3dcccccd, 0x0da24260, 0x7149f2ca, 0x41200000, 0xc2b00000, 0x43160000, 0xc3150000,
};

static const uint64_t doubles[] = {
	0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x8000000000000001,
	0x000fffffffffffff, 0x800fffffffffffff, 0x0010000000000000, 0x8010000000000000,
	0x0010000000000001, 0x3ff0000000000000, 0xbff0000000000000, 0x3ff0000000000001,
	0x3fefffffffffffff, 0x3fe0000000000000, 0xbfe0000000000000, 0x3fdfffffffffffff,
	0x3ff8000000000000, 0x4004000000000000, 0xc004000000000000, 0x400c000000000000,
	0x400921fb54442d18, 0x405fdfffffffffff, 0x405fe00000000000, 0xc060100000000000,
	0x406ff00000000000, 0x40dfffe000000000, 0x40effff000000000, 0x41dfffffffdfffff,
	0x41dfffffffe00000, 0x41e0000000000000, 0xc1e0000000000000, 0xc1e0000000200000,
	0x41efffffffefffff, 0x41f0000000000000, 0x432fffffffffffff, 0x4330000000000001,
	0x433fffffffffffff, 0x43dfffffffffffff, 0x43e0000000000000, 0xc3e0000000000000,
	0x43efffffffffffff, 0x43f0000000000000, 0x7fd0000000000000, 0x7fe0000000000001,
	0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
	0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001, 0x7fffffffffffffff,
	0xfff5a5a5a5a5a5a5, 0x3fb999999999999a, 0x36a0000000000000, 0x369fffffffffffff,
	0x380fffffffffffff, 0x3810000000000000, 0x380fffffe0000000, 0x380ffffff0000000,
	0x47efffffe0000000, 0x47efffffefffffff, 0x47effffff0000000, 0x3690000000000000,
	0x36b8000000000000, 0x3ff0000010000000, 0x3ff0000030000000, 0x3ff0000010000001,
};

uint64_t aq_values_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* Half of them of every magnitude, half near to one, so that sums have something in common. */
static uint64_t random_value(struct aq_form_type type, uint64_t *state)
{
	const uint64_t v = aq_values_random(state), how = aq_values_random(state);

	if (type.kind == 'p')
		return v & 1;
	if (type.kind == 'f' && type.bits == 32 && how & 1)
		return (v & 0x807fffff) |
		       (0x3f800000 - 0x08000000 + (how >> 8 & 0x1f) * 0x00800000);
	if (type.kind == 'f' && how & 1)
		return (v & 0x800fffffffffffff) | (0x3ff0000000000000 - 0x0200000000000000 +
						   (how >> 8 & 0x3f) * 0x0010000000000000);
	if (type.kind != 'f' && how & 1)
		return v >> (how >> 8 & 63);
	return v;
}

uint64_t aq_values_get(struct aq_form_type type, size_t index, uint64_t *state, size_t *ret_corners)
{
	const bool is_float = type.kind == 'f';
	size_t n = is_float ? (type.bits == 32 ? N_OF(floats) : N_OF(doubles)) : N_OF(integers);

	if (type.kind == 'p')
		n = 2;
	if (ret_corners)
		*ret_corners = n;
	if (index >= n)
		return random_value(type, state);
	if (type.kind == 'p')
		return index;
	if (!is_float)
		return integers[index];
	return type.bits == 32 ? floats[index] : doubles[index];
}
