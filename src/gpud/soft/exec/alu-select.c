/* SPDX-License-Identifier: Apache-2.0 */
/* The table of arithmetic instructions: finding the handler of one. */
#include "gpud/soft/exec/alu.h"

#include <string.h>

static const struct aq_alu_group *const groups[] = {
	AQ_ISA(aq_alu_groups_int),     AQ_ISA(aq_alu_groups_float),   AQ_ISA(aq_alu_groups_round),
	AQ_ISA(aq_alu_groups_special), AQ_ISA(aq_alu_groups_compare), AQ_ISA(aq_alu_groups_convert),
	AQ_ISA(aq_alu_groups_logic),   AQ_ISA(aq_alu_groups_bits),    AQ_ISA(aq_alu_groups_carry),
};

#define N_GROUPS (sizeof(groups) / sizeof(groups[0]))

/* Does `mod` stand among the alternatives of the segment that begins at *pattern? Moves *pattern behind the segment's dot. */
static bool segment_takes(const char **pattern, const char *mod, bool *ret_optional)
{
	const char *p = *pattern, *m = mod;
	bool found = false;

	*ret_optional = false;
	for (;; p++) {
		if (*p && *p != '/' && *p != '?' && *p != '.') {
			m = m && *m == *p ? m + 1 : NULL;
			continue;
		}
		found |= m && m != mod && !*m;
		if (*p == '?')
			*ret_optional = true;
		else if (*p != '/')
			break;
		m = *p == '/' ? mod : NULL;
	}
	*pattern = *p ? p + 1 : p;
	return found;
}

static bool mods_match(const char *pattern, const struct aq_ptx_insn *in)
{
	unsigned used = 0;

	while (*pattern) {
		const char *mod = used < in->n_mods ? in->mods[used] : NULL;
		bool optional;

		if (segment_takes(&pattern, mod, &optional))
			used++;
		else if (!optional)
			return false;
	}
	return used == in->n_mods;
}

static uint8_t type_of(char letter)
{
	switch (letter) {
	case 'b':
		return AQ_PTX_B8;
	case 'B':
		return AQ_PTX_S8;
	case 'h':
		return AQ_PTX_B16;
	case 'H':
		return AQ_PTX_S16;
	case 'w':
		return AQ_PTX_B32;
	case 'W':
		return AQ_PTX_S32;
	case 'd':
		return AQ_PTX_B64;
	case 'f':
		return AQ_PTX_F32;
	case 'g':
		return AQ_PTX_F64;
	case 'p':
		return AQ_PTX_PRED;
	default:
		return AQ_PTX_NOTYPE;
	}
}

static struct aq_alu_shape shape_of(const char *text)
{
	struct aq_alu_shape s = { .dst2 = AQ_PTX_NOTYPE, .imm_src = -1 };

	for (; *text == '*' || *text == '_'; text++) {
		if (*text == '*')
			s.relaxed = true;
		else
			s.sink_dst = true;
	}
	s.dst = type_of(*text++);
	if (*text == '|') {
		s.dst2 = type_of(text[1]);
		text += 2;
	}
	for (text++; *text && s.n_src < AQ_ALU_MAX_SRC; text++) {
		if (*text == '#') {
			s.imm_src = (int8_t)s.n_src;
			s.src[s.n_src++] = AQ_PTX_B32;
		} else {
			s.src[s.n_src++] = type_of(*text);
		}
	}
	return s;
}

static bool row_fits(const struct aq_alu_row *row, const struct aq_ptx_insn *in)
{
	const bool pair = in->n_operands > 0 && in->operands[0].has_pair;

	return mods_match(row->mods, in) && pair == (strchr(row->shape, '|') != NULL);
}

/* Why a known instruction has no line for these modifiers. */
static const char *why_not(const struct aq_ptx_insn *in)
{
	for (unsigned m = 0; m < in->n_mods; m++)
		if (strstr(in->mods[m], "f16") || strcmp(in->mods[m], "tf32") == 0)
			return "arithmetic in half precision is not supported";
	return "no such combination of modifiers, types and destinations";
}

aq_alu_fn AQ_ISA(aq_alu_select)(const struct aq_ptx_insn *in, struct aq_alu_shape *ret_shape,
				const char **ret_why)
{
	bool known = false;

	for (size_t n = 0; n < N_GROUPS; n++) {
		for (const struct aq_alu_group *g = groups[n]; g->name; g++) {
			if (strcmp(g->name, in->name) != 0)
				continue;
			known = true;
			for (unsigned k = 0; k < g->n_rows; k++) {
				if (!row_fits(&g->rows[k], in))
					continue;
				*ret_shape = shape_of(g->rows[k].shape);
				return g->rows[k].fn;
			}
		}
	}
	*ret_why = known ? why_not(in) : NULL;
	return NULL;
}

bool AQ_ISA(aq_alu_line)(unsigned index, const char **ret_name, const char **ret_mods)
{
	for (size_t n = 0; n < N_GROUPS; n++) {
		for (const struct aq_alu_group *g = groups[n]; g->name; g++) {
			if (index < g->n_rows) {
				*ret_name = g->name;
				*ret_mods = g->rows[index].mods;
				return true;
			}
			index -= g->n_rows;
		}
	}
	return false;
}
