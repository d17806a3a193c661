/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Converters of numbers. Sums and products stop at the ends of the 64-bit range instead of wrapping;
 * dividing by zero gives the largest number, its remainder is 0. Workers, no allocation.
 */
#include "expr/expr_priv.h"

enum arith {
	OP_ADD,
	OP_SUB,
	OP_MUL,
	OP_DIV,
	OP_MOD,
	OP_AND,
	OP_OR,
	OP_XOR
};

static int64_t arith(enum arith op, int64_t a, int64_t b)
{
	int64_t r;

	switch (op) {
	case OP_ADD:
		return __builtin_add_overflow(a, b, &r) ? (a < 0 ? INT64_MIN : INT64_MAX) : r;
	case OP_SUB:
		return __builtin_sub_overflow(a, b, &r) ? (a < 0 ? INT64_MIN : INT64_MAX) : r;
	case OP_MUL:
		return __builtin_mul_overflow(a, b, &r)
			       ? ((a < 0) != (b < 0) ? INT64_MIN : INT64_MAX)
			       : r;
	case OP_DIV:
		if (b == 0 || (a == INT64_MIN && b == -1))
			return INT64_MAX;
		return a / b;
	case OP_MOD:
		return b == 0 || b == -1 ? 0 : a % b;
	case OP_AND:
		return a & b;
	case OP_OR:
		return a | b;
	case OP_XOR:
		return a ^ b;
	}
	BUG_ON(true);
}

static int conv_arith(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	int64_t b;
	int r = arg_int(ev, &args[0], &b);

	if (r)
		return r;
	sample_set_int(smp, arith((enum arith)kw, smp->sint, b));
	return 0;
}

enum unary {
	UN_NEG,
	UN_CPL,
	UN_NOT,
	UN_BOOL,
	UN_EVEN,
	UN_ODD
};

static int conv_unary(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	int64_t v = smp->sint;

	switch ((enum unary)kw) {
	case UN_NEG:
		sample_set_int(smp, v == INT64_MIN ? INT64_MAX : -v);
		break;
	case UN_CPL:
		sample_set_int(smp, ~v);
		break;
	case UN_NOT:
		sample_set_bool(smp, v == 0);
		break;
	case UN_BOOL:
		sample_set_bool(smp, v != 0);
		break;
	case UN_EVEN:
		sample_set_bool(smp, (v & 1) == 0);
		break;
	case UN_ODD:
		sample_set_bool(smp, v & 1);
		break;
	}
	return 0;
}

#define AR(n, op, h)	C(n, "value", "x", SINT, SINT, op, conv_arith, NULL, h)
#define UN(n, o, op, h) C(n, "", "", SINT, o, op, conv_unary, NULL, h)
static const struct conv_def convs[] = {
	AR("add", OP_ADD, "plus a number or variable"),
	AR("sub", OP_SUB, "minus a number or variable"),
	AR("mul", OP_MUL, "times a number or variable"),
	AR("div", OP_DIV, "divided by a number or variable"),
	AR("mod", OP_MOD, "remainder of that division"),
	AR("and", OP_AND, "bits of both"),
	AR("or", OP_OR, "bits of either"),
	AR("xor", OP_XOR, "bits of one"),
	UN("neg", SINT, UN_NEG, "the opposite number"),
	UN("cpl", SINT, UN_CPL, "all bits inverted"),
	C("not", "", "", BOOL, BOOL, UN_NOT, conv_unary, NULL, "true when 0 or false"),
	UN("bool", BOOL, UN_BOOL, "false when 0"),
	UN("even", BOOL, UN_EVEN, "is the number even"),
	UN("odd", BOOL, UN_ODD, "is the number odd"),
};

const struct conv_table conv_num_table = { convs, ARRAY_SIZE(convs) };
