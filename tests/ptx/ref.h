/* SPDX-License-Identifier: Apache-2.0 */
/* What an arithmetic instruction does, written down once more: plainly, one lane at a time. */
#pragma once

#include "isa.h"

#define AQ_REF_MAX_SRC 4

/* Operands of a form. A predicate is 0 or 1, floats are their bits. */
struct aq_ref_sig {
	struct aq_form_type dst, dst2, src[AQ_REF_MAX_SRC];
	unsigned n_src;
	bool constant; /* a constant stands behind the third source (lop3) */
	bool carry;    /* reads or writes the carry flag */
};

/* false: the reference does not know this instruction. */
bool aq_ref_sig(const struct aq_form *f, struct aq_ref_sig *ret);

struct aq_ref_lane {
	uint64_t src[AQ_REF_MAX_SRC]; /* bits above the operand's type are ignored */
	uint32_t constant;
	bool carry_in;
};

/*
 * Are these results what the instruction gives for these sources? Where PTX leaves room (approximations, payloads of NaN), all of it is right. What would
 * have been expected, or something near it, goes to *ret_want.
 */
struct aq_ref_result {
	uint64_t dst, dst2;
	bool carry_out;
};

bool aq_ref_check(const struct aq_form *f, const struct aq_ref_sig *sig,
		  const struct aq_ref_lane *lane, const struct aq_ref_result *got,
		  struct aq_ref_result *ret_want);
