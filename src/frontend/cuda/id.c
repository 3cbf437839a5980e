/* SPDX-License-Identifier: Apache-2.0 */
/* Identifiers of wire objects: the lowest free one of each kind, from a bitmap that grows. */
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <stdlib.h>
#include <string.h>

struct id_map {
	pthread_mutex_t lock;
	uint64_t *used; /* bit i of word w: identifier 64 w + i + 1 */
	uint32_t n_words;
	uint32_t first; /* words below have no free bit */
};

static struct id_map maps[AQ_FE_ID_KINDS] = {
	[AQ_FE_ID_CTX] = { .lock = PTHREAD_MUTEX_INITIALIZER },
	[AQ_FE_ID_STREAM] = { .lock = PTHREAD_MUTEX_INITIALIZER },
	[AQ_FE_ID_EVENT] = { .lock = PTHREAD_MUTEX_INITIALIZER },
	[AQ_FE_ID_MODULE] = { .lock = PTHREAD_MUTEX_INITIALIZER },
	[AQ_FE_ID_PHYS] = { .lock = PTHREAD_MUTEX_INITIALIZER },
};

static bool grow(struct id_map *m)
{
	uint32_t n = m->n_words ? m->n_words * 2 : 4;
	uint64_t *used;

	if (n > AQ_WIRE_MAX_ID / 64)
		return false;
	used = realloc(m->used, n * sizeof(*used));
	if (!used)
		return false;
	memset(used + m->n_words, 0, (n - m->n_words) * sizeof(*used));
	m->used = used;
	m->n_words = n;
	return true;
}

uint32_t aq_fe_id_new(enum aq_fe_id_kind kind)
{
	struct id_map *m = &maps[kind];
	uint32_t id = 0;

	(void)pthread_mutex_lock(&m->lock);
	while (m->first < m->n_words && m->used[m->first] == UINT64_MAX)
		m->first++;
	if (m->first < m->n_words || grow(m)) {
		unsigned bit = (unsigned)__builtin_ctzll(~m->used[m->first]);

		m->used[m->first] |= 1ULL << bit;
		id = m->first * 64 + bit + 1;
	}
	(void)pthread_mutex_unlock(&m->lock);
	return id;
}

void aq_fe_id_free(enum aq_fe_id_kind kind, uint32_t id)
{
	struct id_map *m = &maps[kind];
	uint32_t word = (id - 1) / 64;

	if (id == 0)
		return;
	(void)pthread_mutex_lock(&m->lock);
	if (word < m->n_words) {
		m->used[word] &= ~(1ULL << ((id - 1) % 64));
		m->first = AQ_MIN(m->first, word);
	}
	(void)pthread_mutex_unlock(&m->lock);
}

void aq_fe_id_forked(void)
{
	for (int i = 0; i < AQ_FE_ID_KINDS; i++) {
		(void)pthread_mutex_init(&maps[i].lock, NULL);
		if (maps[i].used)
			memset(maps[i].used, 0, maps[i].n_words * sizeof(*maps[i].used));
		maps[i].first = 0;
	}
}
