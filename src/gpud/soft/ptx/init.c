/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/ptx/parse.h"

#include "base/macro.h"

#include <string.h>

/* An initialiser being read. An array without a size grows with it. */
struct init {
	struct aq_ptx_parser *p;
	struct aq_ptx_var *var;
	uint64_t stride[AQ_PTX_MAX_DIMS +
			2]; /* bytes of one element of each dimension; the last is the scalar's */
	unsigned n_levels;
	uint8_t *bytes;
	uint64_t cap;
	/* 0xFF(x), 0xFF00(x) …: an address byte by byte */
	const char *mask_name;
	int64_t mask_addend;
	bool mask_generic;
	uint64_t mask_offset;
	unsigned mask_done;
};

/* Where the scalar at `at` goes; NULL when there is no room for it (logged). */
static uint8_t *reserve(struct init *in, uint64_t at, uint32_t line)
{
	uint64_t end = at + in->stride[in->n_levels];
	uint64_t cap;
	uint8_t *more;

	if (in->bytes && end <= in->cap)
		return in->bytes + at;
	if (in->var->size) {
		aq_ptx_fail(in->p, line, "more initialisers than '%.80s' has elements",
			    in->var->name);
		return NULL;
	}
	cap = AQ_MAX(AQ_MAX(in->cap * 2, (uint64_t)64), end);
	more = cap <= AQ_PTX_MAX_BYTES ? aq_arena_alloc(&in->p->own->arena, cap) : NULL;
	if (!more) {
		aq_ptx_fail_memory(in->p);
		return NULL;
	}
	if (in->bytes)
		memcpy(more, in->bytes, in->cap);
	in->bytes = more;
	in->cap = cap;
	return more + at;
}

static void put_float(enum aq_ptx_type type, const struct aq_ptx_value *v, uint8_t *to)
{
	double d = aq_ptx_value_double(v);
	float f = (float)d;

	if (type == AQ_PTX_F64)
		memcpy(to, &d, sizeof(d));
	else if (v->kind == AQ_PTX_VALUE_F32)
		memcpy(to, &v->bits, sizeof(f)); /* a NaN keeps its bits */
	else
		memcpy(to, &f, sizeof(f));
}

static bool put_value(struct init *in, const struct aq_ptx_value *v, uint32_t line, uint8_t *to)
{
	unsigned size = aq_ptx_type_size(in->var->type);
	bool is_int = v->kind == AQ_PTX_VALUE_S64 || v->kind == AQ_PTX_VALUE_U64;
	bool is_bits = in->var->type >= AQ_PTX_B8 && in->var->type <= AQ_PTX_B128;
	uint64_t high = v->kind == AQ_PTX_VALUE_S64 && (int64_t)v->bits < 0 ? UINT64_MAX : 0;

	if (in->var->type == AQ_PTX_F32 || in->var->type == AQ_PTX_F64) {
		put_float(in->var->type, v, to);
		return true;
	}
	if (in->var->type >= AQ_PTX_F16)
		return aq_ptx_fail(in->p, line, "initialiser of a .%s variable is not supported",
				   aq_ptx_type_name(in->var->type));
	if (!is_int && !(is_bits && size == (v->kind == AQ_PTX_VALUE_F32 ? 4 : 8)))
		return aq_ptx_fail(in->p, line, "floating-point initialiser of a .%s variable",
				   aq_ptx_type_name(in->var->type));
	/* Devices and the hosts we run on are little-endian. */
	memcpy(to, &v->bits, AQ_MIN(size, 8u));
	if (size > 8)
		memcpy(to + 8, &high, 8);
	return true;
}

/* name, name + N, generic(name) + N. The name need not be declared yet. */
static bool parse_address(struct init *in, const char **ret_name, int64_t *ret_addend,
			  bool *ret_generic)
{
	struct aq_ptx_parser *p = in->p;
	struct aq_ptx_pending *use;
	struct aq_ptx_name *name;
	uint32_t line = p->tok.line;

	*ret_addend = 0;
	if (!aq_ptx_expect_ident(p, "name", &name))
		return false;
	*ret_generic = strcmp(name->text, "generic") == 0 && aq_ptx_accept(p, '(');
	if (*ret_generic && (!aq_ptx_expect_ident(p, "name", &name) ||
			     !aq_ptx_expr_addend(p, ret_addend) || !aq_ptx_expect(p, ')')))
		return false;
	if (!aq_ptx_expr_addend(p, ret_addend))
		return false;
	use = aq_ptx_push(p, &p->reloc_names, sizeof(*use));
	if (!use)
		return false;
	*use = (struct aq_ptx_pending){ .name = name, .line = line };
	*ret_name = name->text;
	return true;
}

static bool add_reloc(struct init *in, uint64_t at, const char *name, int64_t addend, bool generic,
		      unsigned size)
{
	struct aq_ptx_reloc *r = aq_ptx_push(in->p, &in->p->relocs, sizeof(*r));

	if (!r)
		return false;
	*r = (struct aq_ptx_reloc){ .offset = at,
				    .name = name,
				    .addend = addend,
				    .size = (uint8_t)size,
				    .generic = generic };
	return true;
}

/* Ends a run of masked bytes, which must have been the whole of an address. */
static bool end_mask(struct init *in, uint32_t line)
{
	unsigned done = in->mask_done;

	if (!done)
		return true;
	in->mask_done = 0;
	if (done != 4 && done != 8)
		return aq_ptx_fail(in->p, line,
				   "masked address of '%.80s' is not 4 or 8 bytes in a row",
				   in->mask_name);
	return add_reloc(in, in->mask_offset, in->mask_name, in->mask_addend, in->mask_generic,
			 done);
}

/* 0xFF00(address): one byte of it; the mask is read, the parenthesis is the current token. */
static bool parse_masked(struct init *in, uint64_t at, uint64_t mask, uint32_t line)
{
	struct aq_ptx_parser *p = in->p;
	const char *name;
	int64_t addend;
	bool generic;

	aq_ptx_next(p);
	if (!parse_address(in, &name, &addend, &generic) || !aq_ptx_expect(p, ')'))
		return false;
	if (aq_ptx_type_size(in->var->type) != 1)
		return aq_ptx_fail(p, line, "masked address in elements that are not bytes");
	if (mask == 0xff && !end_mask(in, line))
		return false;
	if (!in->mask_done) {
		in->mask_name = name;
		in->mask_addend = addend;
		in->mask_generic = generic;
		in->mask_offset = at;
	}
	if (in->mask_done == 8 || mask != UINT64_C(0xff) << 8 * in->mask_done ||
	    name != in->mask_name || addend != in->mask_addend || generic != in->mask_generic ||
	    at != in->mask_offset + in->mask_done)
		return aq_ptx_fail(p, line, "masked addresses are not consecutive bytes of one");
	in->mask_done++;
	return true;
}

static bool parse_scalar(struct init *in, uint64_t at)
{
	struct aq_ptx_parser *p = in->p;
	uint32_t line = p->tok.line;
	unsigned size = aq_ptx_type_size(in->var->type);
	uint8_t *to = reserve(in, at, line);
	struct aq_ptx_value v = { 0 };
	const char *name;
	int64_t addend;
	bool generic;

	if (!to)
		return false;
	if (p->tok.kind == AQ_PTX_TOK_IDENT && !aq_ptx_is_ident(p, "WARP_SZ")) {
		if (size != 4 && size != 8)
			return aq_ptx_fail(p, line, "an address does not fit a .%s",
					   aq_ptx_type_name(in->var->type));
		return end_mask(in, line) && parse_address(in, &name, &addend, &generic) &&
		       add_reloc(in, at, name, addend, generic, size);
	}
	if (!aq_ptx_expr(p, &v))
		return false;
	if (aq_ptx_is_punct(p, '('))
		return parse_masked(in, at, v.bits, line);
	return end_mask(in, line) && put_value(in, &v, line, to);
}

/*
 * The inside of a brace at nesting `level`, whose elements are stride[level] bytes. Like C's: an inner brace starts the next element, values
 * without one fill scalar after scalar. *ret_end is the first byte behind what was filled. Recursion is bounded by the dimensions.
 */
static bool parse_list(struct init *in, unsigned level, uint64_t start, uint64_t room,
		       uint64_t *ret_end)
{
	struct aq_ptx_parser *p = in->p;
	uint64_t at = start, end;

	while (!aq_ptx_is_punct(p, '}')) {
		uint32_t line = p->tok.line;

		if (room && at - start >= room)
			return aq_ptx_fail(p, line, "more initialisers than '%.80s' has elements",
					   in->var->name);
		if (aq_ptx_accept(p, '{')) {
			if (level >= in->n_levels || (at - start) % in->stride[level])
				return aq_ptx_fail(
					p, line,
					"brace in the initialiser of '%.80s' starts no element",
					in->var->name);
			if (!parse_list(in, level + 1, at, in->stride[level], &end))
				return false;
			at += in->stride[level];
			if (at > AQ_PTX_MAX_BYTES)
				return aq_ptx_fail_memory(p);
		} else {
			if (!parse_scalar(in, at))
				return false;
			at += in->stride[in->n_levels];
		}
		if (!aq_ptx_accept(p, ','))
			break;
	}
	*ret_end = at;
	return aq_ptx_expect(p, '}');
}

static void set_strides(struct init *in, uint64_t *dims, unsigned n_dims)
{
	if (in->var->vec > 1)
		dims[n_dims++] = in->var->vec;
	in->n_levels = n_dims;
	in->stride[n_dims] = aq_ptx_type_size(in->var->type);
	for (unsigned i = n_dims; i-- > 0;)
		in->stride[i] =
			i + 1 < n_dims ? in->stride[i + 1] * dims[i + 1] : in->stride[n_dims];
}

/* stride[i] is an element of dimension i: the product of the dimensions inside it. */
static bool parse_braced(struct init *in)
{
	struct aq_ptx_parser *p = in->p;
	uint64_t end = 0, whole;

	if (!in->n_levels)
		return aq_ptx_fail(p, p->tok.line, "braces around the value of a scalar");
	aq_ptx_next(p);
	if (!parse_list(in, 0, 0, in->var->size, &end))
		return false;
	if (in->var->size)
		return true;
	whole = (end + in->stride[0] - 1) / in->stride[0] * in->stride[0];
	if (!whole || whole > AQ_PTX_MAX_BYTES)
		return aq_ptx_fail(p, in->var->line, "array '%.80s' has no size", in->var->name);
	if (whole > in->cap) {
		uint8_t *more = aq_arena_alloc(&p->own->arena, whole);

		if (!more)
			return aq_ptx_fail_memory(p);
		if (in->bytes)
			memcpy(more, in->bytes, in->cap);
		in->bytes = more;
	}
	in->var->size = whole;
	return true;
}

bool aq_ptx_init(struct aq_ptx_parser *p, struct aq_ptx_var *var, uint64_t *dims, unsigned n_dims)
{
	struct init in = { .p = p, .var = var };
	uint32_t line = p->tok.line;

	set_strides(&in, dims, n_dims);
	p->relocs.n = 0;
	if (var->size) {
		in.bytes = aq_arena_alloc(&p->own->arena, var->size);
		if (!in.bytes)
			return aq_ptx_fail_memory(p);
		in.cap = var->size;
	}
	if (aq_ptx_is_punct(p, '{')) {
		if (!parse_braced(&in))
			return false;
	} else if (in.n_levels) {
		return aq_ptx_fail_expected(p, "'{'");
	} else if (!parse_scalar(&in, 0)) {
		return false;
	}
	if (!end_mask(&in, line))
		return false;
	var->init = in.bytes;
	return aq_ptx_keep(p, &p->relocs, 0, sizeof(struct aq_ptx_reloc), &var->relocs,
			   &var->n_relocs);
}
