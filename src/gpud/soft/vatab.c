/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/vatab.h"

#include "base/macro.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

size_t aq_vatab_first(const struct aq_vatab *t, uint64_t va)
{
	size_t lo = 0;
	size_t hi = t->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->entry[mid].end > va)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

struct aq_va_entry *aq_vatab_find(const struct aq_vatab *t, uint64_t va)
{
	size_t i = aq_vatab_first(t, va);

	return i < t->n && t->entry[i].base <= va ? &t->entry[i] : NULL;
}

static int make_room(struct aq_vatab *t)
{
	size_t cap = t->cap ? t->cap * 2 : 16;
	struct aq_va_entry *e;

	if (t->n < t->cap)
		return 0;
	e = realloc(t->entry, cap * sizeof(*e));
	if (!e)
		return -ENOMEM;
	t->entry = e;
	t->cap = cap;
	return 0;
}

int aq_vatab_insert(struct aq_vatab *t, uint64_t base, uint64_t end, void *object)
{
	size_t i = aq_vatab_first(t, base);

	if (base >= end)
		return -EEXIST;
	if (i < t->n && t->entry[i].base < end)
		return -EEXIST;
	if (make_room(t) < 0)
		return -ENOMEM;
	memmove(&t->entry[i + 1], &t->entry[i], (t->n - i) * sizeof(t->entry[0]));
	t->entry[i] = (struct aq_va_entry){ base, end, object };
	t->n++;
	return 0;
}

void *aq_vatab_remove(struct aq_vatab *t, uint64_t base)
{
	size_t i = aq_vatab_first(t, base);
	void *object;

	if (i >= t->n || t->entry[i].base != base)
		return NULL;
	object = t->entry[i].object;
	t->n--;
	memmove(&t->entry[i], &t->entry[i + 1], (t->n - i) * sizeof(t->entry[0]));
	return object;
}

void aq_vatab_done(struct aq_vatab *t)
{
	free(t->entry);
	*t = (struct aq_vatab){ 0 };
}

int aq_vafree_init(struct aq_vafree *f, uint64_t base, uint64_t end)
{
	*f = (struct aq_vafree){ 0 };
	return base < end ? aq_vatab_insert(&f->free, base, end, NULL) : 0;
}

/* Cut [va, va + size) out of extent i, which holds it. */
static int cut(struct aq_vafree *f, size_t i, uint64_t va, uint64_t size)
{
	struct aq_va_entry e = f->free.entry[i];

	/* The extent may become two. The spare entry also covers the split that giving back may need. */
	if (make_room(&f->free) < 0)
		return -ENOMEM;
	(void)aq_vatab_remove(&f->free, e.base);
	if (e.base < va)
		(void)aq_vatab_insert(&f->free, e.base, va, NULL);
	if (va + size < e.end)
		(void)aq_vatab_insert(&f->free, va + size, e.end, NULL);
	return 0;
}

int aq_vafree_take(struct aq_vafree *f, uint64_t size, uint64_t align, uint64_t hint,
		   uint64_t *ret_va)
{
	int rc;

	if (hint && hint % align == 0) {
		size_t i = aq_vatab_first(&f->free, hint);

		if (i < f->free.n && f->free.entry[i].base <= hint &&
		    f->free.entry[i].end - hint >= size) {
			rc = cut(f, i, hint, size);
			if (rc == 0)
				*ret_va = hint;
			return rc;
		}
	}
	for (size_t i = 0; i < f->free.n; i++) {
		const struct aq_va_entry *e = &f->free.entry[i];
		uint64_t va = aq_align_up(e->base, align);

		if (va < e->base || va >= e->end || e->end - va < size)
			continue;
		rc = cut(f, i, va, size);
		if (rc == 0)
			*ret_va = va;
		return rc;
	}
	return -ENOMEM;
}

void aq_vafree_give(struct aq_vafree *f, uint64_t va, uint64_t size)
{
	uint64_t end = va + size;
	size_t i = aq_vatab_first(&f->free, va);

	if (i < f->free.n && f->free.entry[i].base == end) {
		end = f->free.entry[i].end;
		(void)aq_vatab_remove(&f->free, f->free.entry[i].base);
	}
	if (i > 0 && f->free.entry[i - 1].end == va) {
		va = f->free.entry[i - 1].base;
		(void)aq_vatab_remove(&f->free, va);
	}
	/* If there is no memory for the entry, the addresses are lost to this session and nothing else is. */
	(void)aq_vatab_insert(&f->free, va, end, NULL);
}

void aq_vafree_done(struct aq_vafree *f)
{
	aq_vatab_done(&f->free);
}
