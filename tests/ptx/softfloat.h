/* SPDX-License-Identifier: Apache-2.0 */
/*
 * IEEE 754 arithmetic in integers: what the tests compare the interpreter's floats with. It shares nothing with it, not even the processor's
 * float unit. Slow and plain.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef unsigned __int128 aq_u128;
typedef __int128 aq_s128;

enum aq_soft_class {
	AQ_SOFT_ZERO,
	AQ_SOFT_FINITE,
	AQ_SOFT_INF,
	AQ_SOFT_NAN
};

enum aq_soft_mode {
	AQ_SOFT_RN,
	AQ_SOFT_RZ,
	AQ_SOFT_RM,
	AQ_SOFT_RP
};

/*
 * (-1)^neg * m * 2^e. Where a result is inexact, bit 0 of m is set and stands for what was cut off; it lies far below anything that a
 * format keeps.
 */
struct aq_soft {
	enum aq_soft_class class;
	bool neg;
	aq_u128 m;
	int e;
};

struct aq_soft aq_soft_from(uint64_t bits, unsigned width);
struct aq_soft aq_soft_from_int(aq_s128 v);
/* Round to a format of `width` bits, 32 or 64. NaN gives the format's NaN of all ones without sign. */
uint64_t aq_soft_round(struct aq_soft v, enum aq_soft_mode mode, unsigned width);

/* The mode decides the sign of an exact zero. */
struct aq_soft aq_soft_add(struct aq_soft a, struct aq_soft b, enum aq_soft_mode mode);
struct aq_soft aq_soft_mul(struct aq_soft a, struct aq_soft b);
struct aq_soft aq_soft_div(struct aq_soft a, struct aq_soft b);
struct aq_soft aq_soft_sqrt(struct aq_soft a);
/* To an integral value, in place of its fraction; signs of zeros stay. */
struct aq_soft aq_soft_integral(struct aq_soft a, enum aq_soft_mode mode);
/* A finite integral value, clamped to +-2^100. */
aq_s128 aq_soft_to_int(struct aq_soft a);
