/* SPDX-License-Identifier: Apache-2.0 */
/* Code objects: what a module becomes as a whole. */
#include "base/macro.h"
#include "gpud/soft/exec/graph.h"
#include "gpud/soft/exec/lower.h"
#include "util/strbuf.h"
#include "util/strmap.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_FUNCS	65536
#define MAX_PARAM_BYTES 32764

/* Names of symbols and functions, for initialisers: values are pointers into their arrays. */
struct names {
	struct aq_strmap symbols, funcs;
};

static void names_done(struct names *n)
{
	aq_strmap_done(&n->symbols);
	aq_strmap_done(&n->funcs);
}

static int names_init(struct names *n, const struct aq_code *c)
{
	int r = 0;

	*n = (struct names){ 0 };
	for (uint32_t k = 0; k < c->n_symbols && r == 0; k++)
		r = aq_strmap_put(&n->symbols, c->symbols[k].name, strlen(c->symbols[k].name),
				  &c->symbols[k]);
	for (uint32_t k = 0; k < c->ptx->n_funcs && r == 0; k++)
		if (!c->ptx->funcs[k].is_prototype)
			r = aq_strmap_put(&n->funcs, c->ptx->funcs[k].name,
					  strlen(c->ptx->funcs[k].name), &c->ptx->funcs[k]);
	if (r < 0)
		names_done(n);
	return r;
}

/* Functions whose addresses stand in initialisers can be called from anywhere. */
static int scan_initialisers(struct aq_code *c)
{
	struct names names;
	int r = names_init(&names, c);

	if (r < 0)
		return r;
	for (uint32_t k = 0; k < c->n_symbols; k++)
		for (uint32_t n = 0; n < c->symbol_vars[k]->n_relocs; n++) {
			const char *name = c->symbol_vars[k]->relocs[n].name;
			const struct aq_ptx_func *f =
				aq_strmap_get(&names.funcs, name, strlen(name));

			if (f)
				c->funcs[f - c->ptx->funcs].address_taken = true;
		}
	names_done(&names);
	return 0;
}

static bool is_symbol(const struct aq_ptx_var *v)
{
	return v->space == AQ_PTX_GLOBAL || v->space == AQ_PTX_CONST;
}

static bool check_var(const struct aq_ptx_var *v, bool in_func, struct aq_strbuf *log)
{
	if (v->type == AQ_PTX_TEXREF || v->type == AQ_PTX_SURFREF || v->type == AQ_PTX_SAMPLERREF)
		aq_strbuf_printf(log,
				 "line %u: texture and surface references are not supported (%s)\n",
				 v->line, v->name);
	else if (!in_func && (v->space == AQ_PTX_LOCAL || v->space == AQ_PTX_PARAM))
		aq_strbuf_printf(
			log,
			"line %u: variable %s of this state space cannot be outside a function\n",
			v->line, v->name);
	else if (v->is_extern && v->space != AQ_PTX_SHARED)
		aq_strbuf_printf(log, "line %u: unresolved extern variable '%s'\n", v->line,
				 v->name);
	else
		return true;
	return false;
}

static void add_symbol(struct aq_code *c, struct aq_ptx_var *v)
{
	v->offset = c->n_symbols;
	c->symbol_vars[c->n_symbols] = v;
	c->symbols[c->n_symbols++] = (struct aq_code_symbol){
		.name = v->name,
		.size = v->size,
		.align = v->align ? v->align : 1,
		.is_const = v->space == AQ_PTX_CONST,
		.is_visible = v->is_visible || v->is_weak || v->is_common,
		.is_managed = v->is_managed,
		.init = v->init,
	};
}

static int collect_symbols(struct aq_code *c, struct aq_strbuf *log)
{
	struct aq_ptx_module *m = c->ptx;
	uint64_t n = m->n_vars;
	bool ok = true;

	for (uint32_t f = 0; f < m->n_funcs; f++)
		n += m->funcs[f].n_vars;
	c->symbols = calloc(n + 1, sizeof(*c->symbols));
	c->symbol_vars = calloc(n + 1, sizeof(struct aq_ptx_var *));
	if (!c->symbols || !c->symbol_vars)
		return -ENOMEM;
	for (uint32_t k = 0; k < m->n_vars; k++) {
		ok &= check_var(m->vars[k], false, log);
		if (is_symbol(m->vars[k]))
			add_symbol(c, m->vars[k]);
	}
	for (uint32_t f = 0; f < m->n_funcs; f++)
		for (uint32_t k = 0; k < m->funcs[f].n_vars; k++) {
			ok &= check_var(m->funcs[f].vars[k], true, log);
			if (is_symbol(m->funcs[f].vars[k]))
				add_symbol(c, m->funcs[f].vars[k]);
		}
	return ok ? 0 : -EINVAL;
}

#define NO_PLACE UINT64_MAX

static void place_shared(struct aq_ptx_var *v, uint64_t *at)
{
	if (v->space != AQ_PTX_SHARED || v->is_extern || v->offset != NO_PLACE)
		return;
	*at = aq_align_up(*at, v->align ? v->align : 1);
	v->offset = *at;
	*at += v->size;
}

static void place_operand(const struct aq_ptx_operand *op, uint64_t *at)
{
	/* The module is ours; only the operand's view of its variable is const. */
	if (op->var)
		place_shared((struct aq_ptx_var *)op->var, at);
	for (uint32_t k = 0; k < op->n_sub; k++)
		place_operand(&op->sub[k], at);
}

static void place_func_vars(const struct aq_ptx_func *f, uint64_t *at)
{
	for (uint32_t n = 0; n < f->n_insns; n++)
		for (uint8_t k = 0; k < f->insns[n].n_operands; k++)
			place_operand(&f->insns[n].operands[k], at);
}

/* Forget where a kernel's own shared variables were; those of all kernels keep their places. */
static void forget_kernel_places(struct aq_code *c)
{
	for (uint32_t k = 0; k < c->ptx->n_vars; k++)
		if (c->ptx->vars[k]->space == AQ_PTX_SHARED)
			c->ptx->vars[k]->offset = c->common_places ? c->common_places[k] : NO_PLACE;
}

static void forget_all_places(struct aq_code *c)
{
	forget_kernel_places(c);
	for (uint32_t f = 0; f < c->ptx->n_funcs; f++)
		for (uint32_t k = 0; k < c->ptx->funcs[f].n_vars; k++)
			if (c->ptx->funcs[f].vars[k]->space == AQ_PTX_SHARED)
				c->ptx->funcs[f].vars[k]->offset = NO_PLACE;
}

/* Shared variables that functions use have one place in all kernels: at the front. */
static int place_common_shared(struct aq_code *c)
{
	uint64_t at = 0, *places = calloc((size_t)c->ptx->n_vars + 1, sizeof(*places));

	if (!places)
		return -ENOMEM;
	forget_all_places(c);
	for (uint32_t f = 0; f < c->ptx->n_funcs; f++)
		if (!c->ptx->funcs[f].is_entry)
			place_func_vars(&c->ptx->funcs[f], &at);
	for (uint32_t k = 0; k < c->ptx->n_vars; k++)
		places[k] = c->ptx->vars[k]->offset;
	c->common_places = places;
	c->common_shared = at > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)at;
	return 0;
}

static bool names_common(const struct aq_code *c, const struct aq_ptx_operand *op)
{
	if (op->var && op->var->space == AQ_PTX_SHARED && !op->var->is_extern &&
	    op->var->offset < c->common_shared)
		return true;
	for (uint32_t k = 0; k < op->n_sub; k++)
		if (names_common(c, &op->sub[k]))
			return true;
	return false;
}

/* Does a kernel itself name a common variable? Asked before its own ones have places. */
static bool kernel_names_common(const struct aq_code *c, const struct aq_ptx_func *pf)
{
	for (uint32_t n = 0; n < pf->n_insns; n++)
		for (uint8_t o = 0; o < pf->insns[n].n_operands; o++)
			if (names_common(c, &pf->insns[n].operands[o]))
				return true;
	return false;
}

static uint32_t registers_of(const struct aq_ptx_func *pf, uint32_t live, uint32_t max_threads)
{
	/* What a compiler would keep to, so that the kernel can be launched with the block it was made for. */
	uint32_t most = AQ_MIN(255u, 65536 / max_threads & ~7u), n = live + 6;

	if (pf->maxnreg)
		most = AQ_MIN(most, AQ_MAX(pf->maxnreg, 16u));
	return AQ_MIN(AQ_MAX(n, 16u), most);
}

static int kernel_params(struct aq_code_kernel *info, const struct aq_ptx_func *pf)
{
	struct aq_wire_param *p = calloc((size_t)pf->n_params + 1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	for (uint32_t k = 0; k < pf->n_params; k++)
		p[k] = (struct aq_wire_param){
			.offset = (uint32_t)pf->params[k].offset,
			.size = (uint32_t)pf->params[k].size,
		};
	info->params = p;
	info->n_params = pf->n_params;
	info->param_bytes = pf->param_bytes;
	return 0;
}

static uint32_t product(const uint32_t *d)
{
	uint64_t n = 1;

	for (int a = 0; a < 3; a++)
		n *= d[a] ? AQ_MIN(d[a], 1025u) : 1;
	return d[0] || d[1] || d[2] ? (uint32_t)AQ_MIN(n, 1024u) : 1024;
}

static int finish_kernel(struct aq_code *c, struct aq_graph *g, struct aq_kernel *k)
{
	const struct aq_ptx_func *pf = &c->ptx->funcs[k->func];
	const uint32_t *threads = pf->reqntid[0] ? pf->reqntid : pf->maxntid;
	struct aq_reach reach;
	int r = kernel_params(&k->info, pf);

	if (r == 0)
		r = aq_graph_reach(g, k->func, &reach);
	if (r < 0)
		return r;
	k->unbounded_stack = reach.unbounded || reach.indirect;
	k->stack_bytes = (uint32_t)AQ_MIN(reach.stack_bytes, (uint64_t)AQ_MAX_LOCAL_BYTES);
	k->info.name = pf->name;
	k->info.max_threads = product(threads);
	memcpy(k->info.reqntid, pf->reqntid, sizeof(k->info.reqntid));
	k->info.registers = registers_of(pf, reach.n_regs, k->info.max_threads);
	k->info.local_bytes = c->funcs[k->func].local_bytes;
	for (uint32_t n = 0; n < c->n_symbols; n++)
		if (c->symbols[n].is_const)
			k->info.const_bytes += (uint32_t)c->symbols[n].size;
	k->info.ptx_version = c->ptx->target;
	k->info.target = c->ptx->target;
	return 0;
}

/* Shared memory of a kernel: what is common if it reaches any of it, its own variables, then the dynamic part. */
static int place_kernel_shared(struct aq_code *c, struct aq_graph *g, struct aq_kernel *k,
			       struct aq_strbuf *log)
{
	const struct aq_ptx_func *pf = &c->ptx->funcs[k->func];
	struct aq_reach reach;
	uint64_t at;
	uint32_t align = 16;
	int r = aq_graph_reach(g, k->func, &reach);

	if (r < 0)
		return r;
	g->work += c->ptx->n_vars;
	forget_kernel_places(c);
	at = reach.common_shared || kernel_names_common(c, pf) ? c->common_shared : 0;
	place_func_vars(pf, &at);
	if (at > AQ_MAX_SHARED_BYTES) {
		aq_strbuf_printf(
			log,
			"line %u: kernel '%s' needs %llu bytes of shared memory, more than %u\n",
			pf->line, pf->name, (unsigned long long)at, AQ_MAX_SHARED_BYTES);
		return -EINVAL;
	}
	k->info.shared_bytes = (uint32_t)at;
	for (uint32_t n = 0; n < c->ptx->n_vars; n++)
		if (c->ptx->vars[n]->space == AQ_PTX_SHARED && c->ptx->vars[n]->is_extern)
			align = AQ_MAX(align, c->ptx->vars[n]->align);
	k->dynamic_shared = (uint32_t)aq_align_up(at, AQ_MIN(align, 1024u));
	for (uint32_t n = 0; n < c->ptx->n_vars; n++)
		if (c->ptx->vars[n]->space == AQ_PTX_SHARED && c->ptx->vars[n]->is_extern)
			c->ptx->vars[n]->offset = k->dynamic_shared;
	return 0;
}

static int lower_all(struct aq_code *c, struct aq_graph *g, struct aq_strbuf *log)
{
	uint32_t n_errors = 0;
	int bad = 0;

	for (uint32_t n = 0; n < c->ptx->n_funcs; n++) {
		int r = 0;

		if (!c->ptx->funcs[n].has_body)
			continue;
		if (c->ptx->funcs[n].is_entry) {
			c->kernels[c->n_kernels].func = n;
			r = place_kernel_shared(c, g, &c->kernels[c->n_kernels++], log);
		}
		if (r == 0)
			r = aq_lower_func(c, n, log, &n_errors);
		if (r == -ENOMEM || r == -E2BIG)
			return r;
		if (r < 0)
			bad = r;
	}
	if (n_errors > AQ_MAX_ERRORS)
		aq_strbuf_printf(log, "%u more errors\n", n_errors - AQ_MAX_ERRORS);
	return bad;
}

static int check_module(const struct aq_ptx_module *m, unsigned sm, struct aq_strbuf *log)
{
	if (m->target > sm) {
		aq_strbuf_printf(log, "the module is for sm_%u; this card is sm_%u\n", m->target,
				 sm);
		return -EINVAL;
	}
	if (m->n_funcs > MAX_FUNCS) {
		aq_strbuf_printf(log, "the module has more than %u functions\n", MAX_FUNCS);
		return -EINVAL;
	}
	for (uint32_t k = 0; k < m->n_funcs; k++)
		if (m->funcs[k].is_entry && m->funcs[k].param_bytes > MAX_PARAM_BYTES) {
			aq_strbuf_printf(
				log, "line %u: kernel '%s' has more than %u bytes of parameters\n",
				m->funcs[k].line, m->funcs[k].name, MAX_PARAM_BYTES);
			return -EINVAL;
		}
	return 0;
}

static int build(struct aq_code *c, struct aq_graph *g, unsigned sm, struct aq_strbuf *log)
{
	const struct aq_ptx_module *m = c->ptx;
	int r = check_module(m, sm, log);

	if (r < 0)
		return r;
	c->funcs = calloc((size_t)m->n_funcs + 1, sizeof(*c->funcs));
	c->kernels = calloc((size_t)m->n_funcs + 1, sizeof(*c->kernels));
	if (!c->funcs || !c->kernels)
		return -ENOMEM;
	r = collect_symbols(c, log);
	if (r == 0)
		r = aq_graph_init(g, c);
	if (r == 0)
		r = scan_initialisers(c);
	if (r == 0)
		r = place_common_shared(c);
	if (r == 0)
		r = lower_all(c, g, log);
	for (uint32_t k = 0; k < c->n_kernels && r == 0; k++)
		r = finish_kernel(c, g, &c->kernels[k]);
	return r;
}

struct aq_code *aq_code_build(struct aq_ptx_module *m, unsigned sm, struct aq_strbuf *log)
{
	struct aq_code *c = calloc(1, sizeof(*c));
	struct aq_graph graph = { 0 };
	int r;

	if (!c) {
		aq_ptx_free(m);
		return NULL;
	}
	c->ptx = m;
	r = build(c, &graph, sm, log);
	aq_graph_done(&graph);
	if (r == 0)
		return c;
	if (r == -E2BIG)
		aq_strbuf_printf(log, "the module's call graph is too large\n");
	if (r == -ENOMEM)
		aq_strbuf_printf(log, "out of memory\n");
	aq_code_free(c);
	return NULL;
}

static void func_done(struct aq_func *f)
{
	for (uint32_t k = 0; k < f->n_calls; k++) {
		free(f->calls[k].args);
		free(f->calls[k].rets);
	}
	for (uint32_t k = 0; k < f->n_switches; k++)
		free(f->switches[k].targets);
	free(f->calls);
	free(f->switches);
	free(f->code);
	free(f->pool);
	free(f->patches);
	free(f->params);
	free(f->rets);
	free(f->callees);
}

void aq_code_free(struct aq_code *c)
{
	if (!c)
		return;
	for (uint32_t n = 0; c->funcs && n < c->ptx->n_funcs; n++)
		func_done(&c->funcs[n]);
	for (uint32_t n = 0; n < c->n_kernels; n++)
		free((void *)c->kernels[n].info.params);
	free(c->funcs);
	free(c->kernels);
	free(c->symbols);
	free(c->symbol_vars);
	free(c->common_places);
	aq_ptx_free(c->ptx);
	free(c);
}

uint32_t aq_code_n_kernels(const struct aq_code *c)
{
	return c->n_kernels;
}

const struct aq_code_kernel *aq_code_kernel(const struct aq_code *c, uint32_t index)
{
	return index < c->n_kernels ? &c->kernels[index].info : NULL;
}

struct aq_code_symbol *aq_code_symbols(struct aq_code *c, uint32_t *ret_n)
{
	*ret_n = c->n_symbols;
	return c->symbols;
}

/* Addresses in the initialiser of a variable. */
static int relocate_var(struct aq_code *c, const struct names *names, struct aq_ptx_var *v,
			struct aq_strbuf *log)
{
	for (uint32_t n = 0; n < v->n_relocs; n++) {
		const struct aq_ptx_reloc *r = &v->relocs[n];
		const struct aq_code_symbol *s =
			aq_strmap_get(&names->symbols, r->name, strlen(r->name));
		const struct aq_ptx_func *f =
			aq_strmap_get(&names->funcs, r->name, strlen(r->name));
		uint64_t value;

		if (!s && (!f || !f->has_body)) {
			aq_strbuf_printf(log, "line %u: initialiser of %s: unresolved '%s'\n",
					 v->line, v->name, r->name);
			return -ENOENT;
		}
		value = s ? s->va : AQ_WINDOW_BASE(AQ_WINDOW_FUNC) | (uint64_t)(f - c->ptx->funcs);
		value += (uint64_t)r->addend;
		if (!v->init || (r->size != 4 && r->size != 8) || r->offset > v->size ||
		    v->size - r->offset < r->size)
			return -EINVAL;
		memcpy(v->init + r->offset, &value, r->size);
	}
	return 0;
}

int aq_code_relocate(struct aq_code *c, struct aq_strbuf *log)
{
	struct names names;
	int r = names_init(&names, c);

	if (r < 0)
		return r;
	for (uint32_t n = 0; n < c->n_symbols && r == 0; n++)
		r = relocate_var(c, &names, c->symbol_vars[n], log);
	names_done(&names);
	if (r < 0)
		return r;
	for (uint32_t n = 0; n < c->ptx->n_funcs; n++) {
		struct aq_func *f = &c->funcs[n];

		for (uint32_t k = 0; k < f->n_patches; k++) {
			const struct aq_patch *p = &f->patches[k];
			uint64_t value = c->symbols[p->symbol].va + (uint64_t)p->addend;

			for (int l = 0; l < AQ_LANES; l++)
				memcpy(f->pool + p->offset + (p->wide ? 8 : 4) * l, &value,
				       p->wide ? 8 : 4);
		}
	}
	return 0;
}
