/* SPDX-License-Identifier: Apache-2.0 */
#include "util/strmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct aq_strmap_slot {
	const char *key;
	size_t len;
	uint64_t hash;
	void *value; /* NULL: free */
};

static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 p = (unsigned __int128)a * b;

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static uint64_t hash(uint64_t seed, const char *key, size_t len)
{
	uint64_t h = seed ^ (len * 0x9e3779b97f4a7c15ULL);
	uint64_t word;

	for (; len >= 8; key += 8, len -= 8) {
		memcpy(&word, key, 8);
		h = mix(h ^ word ^ 0xa0761d6478bd642fULL, seed | 1) + word;
	}
	word = 0;
	if (len)
		memcpy(&word, key, len);
	h = mix(h ^ word ^ 0xe7037ed1a0b428dbULL, seed | 1) + word;
	return mix(h, 0x8ebc6af09c88c6e3ULL);
}

/* The key's slot, or the free one where it belongs; there is always a free one. */
static struct aq_strmap_slot *find(struct aq_strmap_slot *slots, size_t n_slots, const char *key,
				   size_t len, uint64_t h)
{
	size_t mask = n_slots - 1;

	for (size_t i = h & mask;; i = (i + 1) & mask) {
		struct aq_strmap_slot *s = &slots[i];

		if (!s->value)
			return s;
		if (s->hash == h && s->len == len && memcmp(s->key, key, len) == 0)
			return s;
	}
}

void *aq_strmap_get(const struct aq_strmap *m, const char *key, size_t len)
{
	if (!m->n)
		return NULL;
	return find(m->slots, m->n_slots, key, len, hash(m->seed, key, len))->value;
}

static int grow(struct aq_strmap *m)
{
	size_t n_slots = m->n_slots ? m->n_slots * 2 : 16;
	struct aq_strmap_slot *slots = calloc(n_slots, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	if (!m->n_slots && getrandom(&m->seed, sizeof(m->seed), GRND_NONBLOCK) < 0)
		m->seed = (uint64_t)(uintptr_t)slots * 0x9e3779b97f4a7c15ULL; /* early boot */
	for (size_t i = 0; i < m->n_slots; i++) {
		const struct aq_strmap_slot *s = &m->slots[i];

		if (s->value)
			*find(slots, n_slots, s->key, s->len, s->hash) = *s;
	}
	free(m->slots);
	m->slots = slots;
	m->n_slots = n_slots;
	return 0;
}

int aq_strmap_put(struct aq_strmap *m, const char *key, size_t len, void *value)
{
	struct aq_strmap_slot *s;
	uint64_t h;

	if (m->n >= m->n_slots - m->n_slots / 4) {
		int r = grow(m);

		if (r < 0)
			return r;
	}
	h = hash(m->seed, key, len);
	s = find(m->slots, m->n_slots, key, len, h);
	if (!s->value)
		m->n++;
	*s = (struct aq_strmap_slot){ .key = key, .len = len, .hash = h, .value = value };
	return 0;
}

void aq_strmap_done(struct aq_strmap *m)
{
	free(m->slots);
	*m = (struct aq_strmap){ 0 };
}
