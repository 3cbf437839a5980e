/* SPDX-License-Identifier: Apache-2.0 */
/* Constant expressions: C's operators on signed and unsigned 64-bit integers and on doubles. */
#include "gpud/soft/ptx/parse.h"

#include "base/macro.h"

#include <string.h>

static bool is_float(const struct aq_ptx_value *v)
{
	return v->kind == AQ_PTX_VALUE_F32 || v->kind == AQ_PTX_VALUE_F64;
}

double aq_ptx_value_double(const struct aq_ptx_value *v)
{
	double d;
	float f;
	uint32_t bits = (uint32_t)v->bits;

	switch (v->kind) {
	case AQ_PTX_VALUE_F32:
		memcpy(&f, &bits, sizeof(f));
		return f;
	case AQ_PTX_VALUE_F64:
		memcpy(&d, &v->bits, sizeof(d));
		return d;
	case AQ_PTX_VALUE_S64:
		return (double)(int64_t)v->bits;
	case AQ_PTX_VALUE_U64:
		return (double)v->bits;
	}
	return 0;
}

static struct aq_ptx_value from_double(double d)
{
	struct aq_ptx_value v = { .kind = AQ_PTX_VALUE_F64 };

	memcpy(&v.bits, &d, sizeof(d));
	return v;
}

static struct aq_ptx_value from_bool(bool b)
{
	return (struct aq_ptx_value){ .kind = AQ_PTX_VALUE_S64, .bits = b };
}

static bool is_true(const struct aq_ptx_value *v)
{
	return is_float(v) ? aq_ptx_value_double(v) != 0 : v->bits != 0;
}

static bool ternary(struct aq_ptx_parser *p, struct aq_ptx_value *ret);

/* "(.s64) x", "(.u64) x", "(x)": the parenthesis is taken. */
static bool parenthesised(struct aq_ptx_parser *p, struct aq_ptx_value *ret);

static bool unary(struct aq_ptx_parser *p, struct aq_ptx_value *ret)
{
	uint32_t line = p->tok.line;
	bool ok = true;
	int op = p->tok.kind == AQ_PTX_TOK_PUNCT ? p->tok.punct : 0;

	if (op == '(') {
		aq_ptx_next(p);
		return parenthesised(p, ret);
	}
	if (op == '+' || op == '-' || op == '!' || op == '~') {
		if (p->expr_depth >= AQ_PTX_MAX_DEPTH)
			return aq_ptx_fail(p, line, "expression is nested too deeply");
		aq_ptx_next(p);
		p->expr_depth++;
		ok = unary(p, ret);
		p->expr_depth--;
		if (!ok || op == '+')
			return ok;
		if (op == '!') {
			*ret = from_bool(!is_true(ret));
		} else if (is_float(ret)) {
			if (op == '~')
				return aq_ptx_fail(p, line, "'~' of a floating-point number");
			ret->bits ^= ret->kind == AQ_PTX_VALUE_F32 ? UINT64_C(1) << 31
								   : UINT64_C(1) << 63;
		} else {
			ret->bits = op == '-' ? 0 - ret->bits : ~ret->bits;
		}
		return true;
	}
	if (p->tok.kind == AQ_PTX_TOK_INT) {
		ret->kind = p->tok.is_unsigned ? AQ_PTX_VALUE_U64 : AQ_PTX_VALUE_S64;
		ret->bits = p->tok.bits;
	} else if (p->tok.kind == AQ_PTX_TOK_F32 || p->tok.kind == AQ_PTX_TOK_F64) {
		ret->kind = p->tok.kind == AQ_PTX_TOK_F32 ? AQ_PTX_VALUE_F32 : AQ_PTX_VALUE_F64;
		ret->bits = p->tok.bits;
	} else if (aq_ptx_is_ident(p, "WARP_SZ")) {
		*ret = (struct aq_ptx_value){ .kind = AQ_PTX_VALUE_S64, .bits = 32 };
	} else {
		return aq_ptx_fail_expected(p, "constant");
	}
	aq_ptx_next(p);
	return true;
}

static bool parenthesised(struct aq_ptx_parser *p, struct aq_ptx_value *ret)
{
	bool to_s64 = aq_ptx_is_dot(p, "s64");
	bool to_u64 = aq_ptx_is_dot(p, "u64");
	bool ok;

	if (p->expr_depth >= AQ_PTX_MAX_DEPTH)
		return aq_ptx_fail(p, p->tok.line, "expression is nested too deeply");
	p->expr_depth++;
	if (to_s64 || to_u64) {
		uint32_t line = p->tok.line;

		aq_ptx_next(p);
		ok = aq_ptx_expect(p, ')') && unary(p, ret);
		if (ok && is_float(ret))
			ok = aq_ptx_fail(p, line, "cast of a floating-point number");
		if (ok)
			ret->kind = to_s64 ? AQ_PTX_VALUE_S64 : AQ_PTX_VALUE_U64;
	} else {
		ok = ternary(p, ret) && aq_ptx_expect(p, ')');
	}
	p->expr_depth--;
	return ok;
}

enum op {
	OP_NONE,
	OP_OROR,
	OP_ANDAND,
	OP_OR,
	OP_XOR,
	OP_AND,
	OP_EQ,
	OP_NE,
	OP_LT,
	OP_LE,
	OP_GT,
	OP_GE,
	OP_SHL,
	OP_SHR,
	OP_ADD,
	OP_SUB,
	OP_MUL,
	OP_DIV,
	OP_REM,
};

static const uint8_t precedence[] = {
	[OP_OROR] = 1, [OP_ANDAND] = 2, [OP_OR] = 3,  [OP_XOR] = 4,  [OP_AND] = 5,  [OP_EQ] = 6,
	[OP_NE] = 6,   [OP_LT] = 7,	[OP_LE] = 7,  [OP_GT] = 7,   [OP_GE] = 7,   [OP_SHL] = 8,
	[OP_SHR] = 8,  [OP_ADD] = 9,	[OP_SUB] = 9, [OP_MUL] = 10, [OP_DIV] = 10, [OP_REM] = 10,
};

static enum op punct_op(char c)
{
	static const char chars[] = "|^&<>+-*/%";
	static const uint8_t ops[] = { OP_OR,  OP_XOR, OP_AND, OP_LT,  OP_GT,
				       OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_REM };
	const char *at = c ? strchr(chars, c) : NULL;

	return at ? (enum op)ops[at - chars] : OP_NONE;
}

static enum op current_op(const struct aq_ptx_parser *p)
{
	switch ((int)p->tok.kind) {
	case AQ_PTX_TOK_SHL:
		return OP_SHL;
	case AQ_PTX_TOK_SHR:
		return OP_SHR;
	case AQ_PTX_TOK_LE:
		return OP_LE;
	case AQ_PTX_TOK_GE:
		return OP_GE;
	case AQ_PTX_TOK_EQ:
		return OP_EQ;
	case AQ_PTX_TOK_NE:
		return OP_NE;
	case AQ_PTX_TOK_ANDAND:
		return OP_ANDAND;
	case AQ_PTX_TOK_OROR:
		return OP_OROR;
	case AQ_PTX_TOK_PUNCT:
		return punct_op(p->tok.punct);
	default:
		return OP_NONE;
	}
}

static bool apply_float(struct aq_ptx_parser *p, enum op op, double a, double b, uint32_t line,
			struct aq_ptx_value *ret)
{
	switch ((int)op) {
	case OP_ADD:
		*ret = from_double(a + b);
		return true;
	case OP_SUB:
		*ret = from_double(a - b);
		return true;
	case OP_MUL:
		*ret = from_double(a * b);
		return true;
	case OP_DIV:
		*ret = from_double(a / b);
		return true;
	case OP_EQ:
		*ret = from_bool(a == b);
		return true;
	case OP_NE:
		*ret = from_bool(a != b);
		return true;
	case OP_LT:
		*ret = from_bool(a < b);
		return true;
	case OP_LE:
		*ret = from_bool(a <= b);
		return true;
	case OP_GT:
		*ret = from_bool(a > b);
		return true;
	case OP_GE:
		*ret = from_bool(a >= b);
		return true;
	default:
		return aq_ptx_fail(p, line, "operator takes no floating-point number");
	}
}

static bool less(uint64_t a, uint64_t b, bool is_unsigned)
{
	return is_unsigned ? a < b : (int64_t)a < (int64_t)b;
}

static uint64_t divide(enum op op, uint64_t a, uint64_t b, bool is_unsigned)
{
	if (is_unsigned)
		return op == OP_DIV ? a / b : a % b;
	if ((int64_t)b == -1)
		return op == OP_DIV ? 0 - a : 0;
	return (uint64_t)(op == OP_DIV ? (int64_t)a / (int64_t)b : (int64_t)a % (int64_t)b);
}

static uint64_t shift_right(uint64_t a, uint64_t by, bool is_unsigned)
{
	uint64_t sign = !is_unsigned && a >> 63 ? UINT64_MAX : 0;

	if (by >= 64)
		return sign;
	return by ? a >> by | sign << (64 - by) : a;
}

static bool apply_int(struct aq_ptx_parser *p, enum op op, const struct aq_ptx_value *x,
		      const struct aq_ptx_value *y, uint32_t line, struct aq_ptx_value *ret)
{
	uint64_t a = x->bits, b = y->bits, v;
	bool uns = x->kind == AQ_PTX_VALUE_U64 || y->kind == AQ_PTX_VALUE_U64;

	switch (op) {
	case OP_ADD:
		v = a + b;
		break;
	case OP_SUB:
		v = a - b;
		break;
	case OP_MUL:
		v = a * b;
		break;
	case OP_DIV:
	case OP_REM:
		if (!b)
			return aq_ptx_fail(p, line, "division by zero in a constant expression");
		v = divide(op, a, b, uns);
		break;
	case OP_SHL:
		v = b < 64 ? a << b : 0;
		uns = x->kind == AQ_PTX_VALUE_U64;
		break;
	case OP_SHR:
		uns = x->kind == AQ_PTX_VALUE_U64;
		v = shift_right(a, b, uns);
		break;
	case OP_AND:
		v = a & b;
		break;
	case OP_OR:
		v = a | b;
		break;
	case OP_XOR:
		v = a ^ b;
		break;
	case OP_EQ:
		*ret = from_bool(a == b);
		return true;
	case OP_NE:
		*ret = from_bool(a != b);
		return true;
	case OP_LT:
		*ret = from_bool(less(a, b, uns));
		return true;
	case OP_LE:
		*ret = from_bool(!less(b, a, uns));
		return true;
	case OP_GT:
		*ret = from_bool(less(b, a, uns));
		return true;
	case OP_GE:
		*ret = from_bool(!less(a, b, uns));
		return true;
	case OP_NONE:
	case OP_OROR:
	case OP_ANDAND:
	default:
		return aq_ptx_fail(p, line, "malformed constant expression");
	}
	*ret = (struct aq_ptx_value){ .kind = uns ? AQ_PTX_VALUE_U64 : AQ_PTX_VALUE_S64,
				      .bits = v };
	return true;
}

/* Operators of at least `min` precedence. Depth: at most one frame for each level of precedence. */
static bool binary(struct aq_ptx_parser *p, unsigned min, struct aq_ptx_value *ret)
{
	if (!unary(p, ret))
		return false;
	for (;;) {
		enum op op = current_op(p);
		uint32_t line = p->tok.line;
		struct aq_ptx_value left = *ret, right = { 0 };

		if (op == OP_NONE || precedence[op] < min)
			return true;
		aq_ptx_next(p);
		if (!binary(p, precedence[op] + 1u, &right))
			return false;
		if (op == OP_OROR) {
			*ret = from_bool(is_true(&left) || is_true(&right));
		} else if (op == OP_ANDAND) {
			*ret = from_bool(is_true(&left) && is_true(&right));
		} else if (is_float(&left) || is_float(&right)) {
			if (!apply_float(p, op, aq_ptx_value_double(&left),
					 aq_ptx_value_double(&right), line, ret))
				return false;
		} else if (!apply_int(p, op, &left, &right, line, ret)) {
			return false;
		}
	}
}

static bool ternary(struct aq_ptx_parser *p, struct aq_ptx_value *ret)
{
	struct aq_ptx_value cond = { 0 }, yes = { 0 }, no = { 0 };
	bool ok;

	if (!binary(p, 1, &cond))
		return false;
	if (!aq_ptx_is_punct(p, '?')) {
		*ret = cond;
		return true;
	}
	if (p->expr_depth >= AQ_PTX_MAX_DEPTH)
		return aq_ptx_fail(p, p->tok.line, "expression is nested too deeply");
	p->expr_depth++;
	aq_ptx_next(p);
	ok = ternary(p, &yes) && aq_ptx_expect(p, ':') && ternary(p, &no);
	p->expr_depth--;
	if (ok)
		*ret = is_true(&cond) ? yes : no;
	return ok;
}

bool aq_ptx_expr(struct aq_ptx_parser *p, struct aq_ptx_value *ret)
{
	return ternary(p, ret);
}

bool aq_ptx_expr_int(struct aq_ptx_parser *p, const char *what, uint64_t min, uint64_t max,
		     uint64_t *ret)
{
	struct aq_ptx_value v = { 0 };
	uint32_t line = p->tok.line;

	if (!ternary(p, &v))
		return false;
	if (is_float(&v))
		return aq_ptx_fail(p, line, "%s is not an integer", what);
	if ((v.kind == AQ_PTX_VALUE_S64 && (int64_t)v.bits < 0) || v.bits < min || v.bits > max)
		return aq_ptx_fail(p, line, "%s is not between %llu and %llu", what,
				   (unsigned long long)min, (unsigned long long)max);
	*ret = v.bits;
	return true;
}

bool aq_ptx_expr_addend(struct aq_ptx_parser *p, int64_t *ret)
{
	uint64_t sum = (uint64_t)*ret;

	while (aq_ptx_is_punct(p, '+') || aq_ptx_is_punct(p, '-')) {
		bool minus = aq_ptx_is_punct(p, '-');
		uint32_t line = p->tok.line;
		struct aq_ptx_value v = { 0 };

		aq_ptx_next(p);
		if (!binary(p, precedence[OP_MUL], &v))
			return false;
		if (is_float(&v))
			return aq_ptx_fail(p, line, "offset is not an integer");
		sum = minus ? sum - v.bits : sum + v.bits;
	}
	*ret = (int64_t)sum;
	return true;
}
