/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/idtab.h"

#include "base/macro.h"

#include <errno.h>
#include <stdlib.h>

void *aq_idtab_get(const struct aq_idtab *t, uint32_t id)
{
	void **page;

	if (id == 0 || id > AQ_WIRE_MAX_ID)
		return NULL;
	page = t->page[id / AQ_IDTAB_PAGE];
	return page ? page[id % AQ_IDTAB_PAGE] : NULL;
}

bool aq_idtab_is_free(const struct aq_idtab *t, uint32_t id)
{
	return id != 0 && id <= AQ_WIRE_MAX_ID && !aq_idtab_get(t, id);
}

int aq_idtab_set(struct aq_idtab *t, uint32_t id, void *object)
{
	void ***page;

	if (!aq_idtab_is_free(t, id))
		return -EINVAL;
	page = &t->page[id / AQ_IDTAB_PAGE];
	if (!*page)
		*page = calloc(AQ_IDTAB_PAGE, sizeof(void *));
	if (!*page)
		return -ENOMEM;
	(*page)[id % AQ_IDTAB_PAGE] = object;
	t->n++;
	return 0;
}

void aq_idtab_clear(struct aq_idtab *t, uint32_t id)
{
	if (!aq_idtab_get(t, id))
		return;
	t->page[id / AQ_IDTAB_PAGE][id % AQ_IDTAB_PAGE] = NULL;
	t->n--;
}

uint32_t aq_idtab_next(const struct aq_idtab *t, uint32_t after)
{
	for (uint32_t id = after + 1; id <= AQ_WIRE_MAX_ID; id++) {
		void **page = t->page[id / AQ_IDTAB_PAGE];

		if (!page)
			id |= AQ_IDTAB_PAGE - 1; /* on to the next page */
		else if (page[id % AQ_IDTAB_PAGE])
			return id;
	}
	return 0;
}

void aq_idtab_done(struct aq_idtab *t)
{
	for (size_t i = 0; i < AQ_ARRAY_SIZE(t->page); i++) {
		free(t->page[i]);
		t->page[i] = NULL;
	}
	t->n = 0;
}
