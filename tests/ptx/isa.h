/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions as the tests know them: which forms PTX has, and how a form is spelled out. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define AQ_FORM_MODS 12

struct aq_form_type {
	char kind; /* u s b f, p predicate, x packed halves; 0 none */
	uint8_t bits;
};

/* One instruction with all its modifiers. */
struct aq_form {
	char name[16];
	char text[80]; /* modifiers as in the source: "rn.ftz.f32" */
	char mods[AQ_FORM_MODS][24];
	unsigned n_mods;
	bool pair;			/* with a second destination: a|b */
	struct aq_form_type last, prev; /* the last two modifiers that are types */
};

struct aq_form_type aq_form_type(const char *mod);
bool aq_form_has(const struct aq_form *f, const char *mod);
/* "add" and "rn.f32" */
void aq_form_init(struct aq_form *f, const char *name, const char *mods);

/*
 * All forms that a pattern of modifiers stands for: segments divided by dots, alternatives by slashes, a question mark behind a segment
 * that may be left out. Returns how many.
 */
unsigned aq_pattern_each(const char *pattern, void (*each)(const char *mods, void *opaque),
			 void *opaque);

/* The arithmetic instructions of PTX up to 8.x for integers, f32 and f64; ended by a NULL name. */
struct aq_isa_line {
	const char *name, *pattern;
};
extern const struct aq_isa_line aq_isa_arithmetic[];
