/* SPDX-License-Identifier: Apache-2.0 */
/* Objects by the identifiers that the client chose, 1..AQ_WIRE_MAX_ID: two levels, so that sparse numbers cost little. */
#pragma once

#include "wire/messages.h"

#include <stdbool.h>
#include <stdint.h>

#define AQ_IDTAB_PAGE 1024U

struct aq_idtab {
	void **page[AQ_WIRE_MAX_ID / AQ_IDTAB_PAGE + 1];
	uint32_t n;
};

void *aq_idtab_get(const struct aq_idtab *t, uint32_t id);
/* The identifier is in range and free. */
bool aq_idtab_is_free(const struct aq_idtab *t, uint32_t id);
/* Returns 0, -EINVAL (out of range or taken), -ENOMEM. */
int aq_idtab_set(struct aq_idtab *t, uint32_t id, void *object);
void aq_idtab_clear(struct aq_idtab *t, uint32_t id);
/* The first used identifier above `after`, 0 when none is left. */
uint32_t aq_idtab_next(const struct aq_idtab *t, uint32_t after);
void aq_idtab_done(struct aq_idtab *t);
