/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as PTX: parse, look at everything that was made of them, free. */
#include "gpud/soft/ptx/ptx.h"
#include "util/strbuf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static size_t touched; /* so that reads are not optimised away */

static void touch(const char *text)
{
	touched += strlen(text);
}

static void check_operand(const struct aq_ptx_module *m, const struct aq_ptx_func *f,
			  const struct aq_ptx_operand *op)
{
	check(op->kind != AQ_PTX_OPERAND_NONE);
	check(op->reg >= -1 && op->reg < (int32_t)f->n_regs);
	check(op->func >= -1 && op->func < (int32_t)m->n_funcs);
	check(op->label >= -1 && op->label < (int32_t)f->n_labels);
	check(op->elem >= -1 && op->elem < 4);
	check(op->kind != AQ_PTX_OPERAND_REG || op->reg >= 0);
	check(op->kind != AQ_PTX_OPERAND_FUNC || op->func >= 0);
	check(op->kind != AQ_PTX_OPERAND_LABEL || op->label >= 0);
	check(op->kind != AQ_PTX_OPERAND_VAR || op->var);
	if (op->var)
		touch(op->var->name);
	if (op->kind == AQ_PTX_OPERAND_SPECIAL)
		touch(op->name);
	for (uint32_t i = 0; i < op->n_sub; i++)
		check_operand(m, f, &op->sub[i]);
}

static void check_var(const struct aq_ptx_var *v)
{
	touch(v->name);
	check(v->space == AQ_PTX_REG || (v->align && !(v->align & (v->align - 1))));
	if (v->init && v->size)
		touched += (size_t)v->init[0] + v->init[v->size - 1];
	for (uint32_t i = 0; i < v->n_relocs; i++) {
		touch(v->relocs[i].name);
		check(v->relocs[i].offset + v->relocs[i].size <= v->size);
	}
}

static void check_label(const struct aq_ptx_module *m, const struct aq_ptx_func *f,
			const struct aq_ptx_label *l)
{
	touch(l->name);
	check(l->insn <= f->n_insns);
	check(l->prototype >= -1 && l->prototype < (int32_t)m->n_funcs);
	for (uint32_t i = 0; i < l->n_targets; i++)
		check(l->targets[i] >= 0 && (l->targets[i] < (int32_t)f->n_labels ||
					     l->targets[i] < (int32_t)m->n_funcs));
}

static void check_func(const struct aq_ptx_module *m, const struct aq_ptx_func *f)
{
	touch(f->name);
	for (uint32_t i = 0; i < f->n_params; i++) {
		check_var(&f->params[i]);
		check(f->params[i].space == AQ_PTX_REG ||
		      f->params[i].offset + f->params[i].size <= f->param_bytes);
	}
	for (uint32_t i = 0; i < f->n_rets; i++)
		check_var(&f->rets[i]);
	for (uint32_t i = 0; i < f->n_vars; i++)
		check_var(f->vars[i]);
	for (uint32_t i = 0; i < f->n_regs; i++)
		touch(f->regs[i].name);
	for (uint32_t i = 0; i < f->n_labels; i++)
		check_label(m, f, &f->labels[i]);
	for (uint32_t i = 0; i < f->n_insns; i++) {
		const struct aq_ptx_insn *in = &f->insns[i];

		touch(in->name);
		check(!in->has_guard || (in->guard >= 0 && in->guard < (int32_t)f->n_regs));
		for (int k = 0; k < in->n_mods; k++)
			touch(in->mods[k]);
		for (int k = 0; k < in->n_operands; k++)
			check_operand(m, f, &in->operands[k]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct aq_strbuf log = { .max = 65536 };
	struct aq_ptx_module *m = aq_ptx_parse((const char *)data, size, &log);

	/* Refused with a reason, or taken in silence. */
	check(m ? !log.len : log.len > 0);
	if (m) {
		for (uint32_t i = 0; i < m->n_vars; i++)
			check_var(m->vars[i]);
		for (uint32_t i = 0; i < m->n_funcs; i++)
			check_func(m, &m->funcs[i]);
	}
	aq_ptx_free(m);
	aq_strbuf_done(&log);
	return 0;
}
