/* SPDX-License-Identifier: Apache-2.0 */
#include "isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U	  "u16/u32/u64"
#define S	  "s16/s32/s64"
#define US	  "u16/u32/u64/s16/s32/s64"
#define US_WIDE	  "u16/u32/s16/s32"
#define US_32_64  "u32/u64/s32/s64"
#define B	  "b16/b32/b64"
#define ALL	  "b16/b32/b64/u16/u32/u64/s16/s32/s64/f32/f64"
#define RND	  "rn/rz/rm/rp"
#define CMP	  "eq/ne/lt/le/gt/ge"
#define CMP_FLOAT CMP "/equ/neu/ltu/leu/gtu/geu/num/nan"
#define BOOL	  "and/or/xor?"
#define I	  "u8/u16/u32/u64/s8/s16/s32/s64"
#define IRND	  "rni/rzi/rmi/rpi"

const struct aq_isa_line aq_isa_arithmetic[] = {
	{ "add", US "/u16x2/s16x2" },
	{ "add", "sat.s32" },
	{ "add", "cc." US_32_64 },
	{ "add", RND "?.ftz?.sat?.f32" },
	{ "add", RND "?.f64" },
	{ "sub", US },
	{ "sub", "sat.s32" },
	{ "sub", "cc." US_32_64 },
	{ "sub", RND "?.ftz?.sat?.f32" },
	{ "sub", RND "?.f64" },
	{ "mul", "lo/hi." US },
	{ "mul", "wide." US_WIDE },
	{ "mul", RND "?.ftz?.sat?.f32" },
	{ "mul", RND "?.f64" },
	{ "mad", "lo/hi." US },
	{ "mad", "wide." US_WIDE },
	{ "mad", "hi.sat.s32" },
	{ "mad", "lo/hi.cc." US_32_64 },
	{ "mad", RND ".ftz?.sat?.f32" },
	{ "mad", RND ".f64" },
	{ "addc", "cc?." US_32_64 },
	{ "subc", "cc?." US_32_64 },
	{ "madc", "lo/hi.cc?." US_32_64 },
	{ "fma", RND ".ftz?.sat?.f32" },
	{ "fma", RND ".f64" },
	{ "mul24", "lo/hi.u32/s32" },
	{ "mad24", "lo/hi.u32/s32" },
	{ "mad24", "hi.sat.s32" },
	{ "sad", US },
	{ "div", US },
	{ "div", "approx/full.ftz?.f32" },
	{ "div", RND ".ftz?.f32" },
	{ "div", RND ".f64" },
	{ "rem", US },
	{ "abs", S },
	{ "abs", "ftz?.f32" },
	{ "abs", "f64" },
	{ "neg", S },
	{ "neg", "ftz?.f32" },
	{ "neg", "f64" },
	{ "min", US "/u16x2/s16x2" },
	{ "min", "relu.s32/s16x2" },
	{ "min", "ftz?.NaN?.f32" },
	{ "min", "ftz?.NaN?.xorsign.abs.f32" },
	{ "min", "f64" },
	{ "max", US "/u16x2/s16x2" },
	{ "max", "relu.s32/s16x2" },
	{ "max", "ftz?.NaN?.f32" },
	{ "max", "ftz?.NaN?.xorsign.abs.f32" },
	{ "max", "f64" },
	{ "rcp", "approx.ftz?.f32" },
	{ "rcp", RND ".ftz?.f32" },
	{ "rcp", RND ".f64" },
	{ "rcp", "approx.ftz.f64" },
	{ "sqrt", "approx.ftz?.f32" },
	{ "sqrt", RND ".ftz?.f32" },
	{ "sqrt", RND ".f64" },
	{ "rsqrt", "approx.ftz?.f32/f64" },
	{ "sin", "approx.ftz?.f32" },
	{ "cos", "approx.ftz?.f32" },
	{ "lg2", "approx.ftz?.f32" },
	{ "ex2", "approx.ftz?.f32" },
	{ "tanh", "approx.f32" },
	{ "copysign", "f32/f64" },
	{ "testp", "finite/infinite/number/notanumber/normal/subnormal.f32/f64" },
	{ "popc", "b32/b64" },
	{ "clz", "b32/b64" },
	{ "bfind", "shiftamt?." US_32_64 },
	{ "brev", "b32/b64" },
	{ "bfe", US_32_64 },
	{ "bfi", "b32/b64" },
	{ "bmsk", "clamp/wrap.b32" },
	{ "fns", "b32" },
	{ "szext", "clamp/wrap.u32/s32" },
	{ "dp4a", "u32/s32.u32/s32" },
	{ "dp2a", "lo/hi.u32/s32.u32/s32" },
	{ "and", "pred/" B },
	{ "or", "pred/" B },
	{ "xor", "pred/" B },
	{ "not", "pred/" B },
	{ "cnot", B },
	{ "lop3", "or/and?.b32" },
	{ "shl", B },
	{ "shr", B "/" US },
	{ "shf", "l/r.clamp/wrap.b32" },
	{ "prmt", "b32.f4e/b4e/rc8/ecl/ecr/rc16?" },
	{ "mov", "pred/" ALL },
	{ "selp", ALL },
	{ "slct", ALL ".s32" },
	{ "slct", "ftz?." ALL ".f32" },
	{ "setp", "eq/ne." BOOL "." B },
	{ "setp", CMP "." BOOL "." US },
	{ "setp", "lo/ls/hi/hs." BOOL "." U },
	{ "setp", CMP_FLOAT "." BOOL ".ftz?.f32" },
	{ "setp", CMP_FLOAT "." BOOL ".f64" },
	{ "set", "eq/ne." BOOL ".u32/s32/f32." B },
	{ "set", CMP "." BOOL ".u32/s32/f32." US },
	{ "set", "lo/ls/hi/hs." BOOL ".u32/s32/f32." U },
	{ "set", CMP_FLOAT "." BOOL ".ftz?.u32/s32/f32.f32" },
	{ "set", CMP_FLOAT "." BOOL ".u32/s32/f32.f64" },
	{ "cvt", "sat?." I "." I },
	{ "cvt", IRND ".ftz?.sat?." I ".f32" },
	{ "cvt", IRND ".sat?." I ".f64" },
	{ "cvt", RND ".ftz?.sat?.f32." I },
	{ "cvt", RND ".sat?.f64." I },
	{ "cvt", IRND "?.ftz?.sat?.f32.f32" },
	{ "cvt", IRND "?.sat?.f64.f64" },
	{ "cvt", "ftz?.sat?.f64.f32" },
	{ "cvt", RND ".ftz?.sat?.f32.f64" },
	{ 0 },
};

struct aq_form_type aq_form_type(const char *mod)
{
	struct aq_form_type t = { 0 };
	char *end;
	long bits;

	if (strcmp(mod, "pred") == 0)
		return (struct aq_form_type){ 'p', 1 };
	if (!strchr("usbf", mod[0]))
		return t;
	bits = strtol(mod + 1, &end, 10);
	if (end == mod + 1 || (*end && strcmp(end, "x2") != 0) ||
	    (bits != 8 && bits != 16 && bits != 32 && bits != 64))
		return t;
	t.kind = *end ? 'x' : mod[0];
	t.bits = (uint8_t)(*end ? 2 * bits : bits);
	return t;
}

bool aq_form_has(const struct aq_form *f, const char *mod)
{
	for (unsigned k = 0; k < f->n_mods; k++)
		if (strcmp(f->mods[k], mod) == 0)
			return true;
	return false;
}

void aq_form_init(struct aq_form *f, const char *name, const char *mods)
{
	memset(f, 0, sizeof(*f));
	(void)snprintf(f->name, sizeof(f->name), "%s", name);
	(void)snprintf(f->text, sizeof(f->text), "%s", mods);
	for (const char *p = mods; *p && f->n_mods < AQ_FORM_MODS;) {
		const size_t n = strcspn(p, ".");
		struct aq_form_type t;

		(void)snprintf(f->mods[f->n_mods], sizeof(f->mods[0]), "%.*s", (int)n, p);
		t = aq_form_type(f->mods[f->n_mods++]);
		if (t.kind) {
			f->prev = f->last;
			f->last = t;
		}
		p += n + (p[n] == '.');
	}
}

struct expansion {
	char text[80];
	void (*each)(const char *mods, void *opaque);
	void *opaque;
	unsigned count;
};

static void expand(const char *pattern, size_t len, struct expansion *x)
{
	const size_t segment = strcspn(pattern, ".");
	const char *rest = pattern + segment + (pattern[segment] == '.');

	if (!*pattern) {
		x->text[len] = '\0';
		x->each(x->text, x->opaque);
		x->count++;
		return;
	}
	if (memchr(pattern, '?', segment))
		expand(rest, len, x);
	for (const char *p = pattern; p < pattern + segment;) {
		const size_t n = strcspn(p, "/?.");

		(void)snprintf(x->text + len, sizeof(x->text) - len, "%s%.*s", len ? "." : "",
			       (int)n, p);
		expand(rest, strlen(x->text), x);
		x->text[len] = '\0';
		p += n;
		p += *p == '?';
		p += *p == '/';
	}
}

unsigned aq_pattern_each(const char *pattern, void (*each)(const char *mods, void *opaque),
			 void *opaque)
{
	struct expansion x = { .each = each, .opaque = opaque };

	expand(pattern, 0, &x);
	return x.count;
}
