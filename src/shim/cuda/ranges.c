/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/cuda/ranges.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_PLACES 128U /* 4 KiB */

static uint64_t hash_of(uint64_t key)
{
	key *= 0x9e3779b97f4a7c15ULL;
	return key ^ key >> 32;
}

static struct aq_range_stripe *stripe_of(struct aq_ranges *r, uint64_t hash)
{
	return &r->stripe[hash >> 58];
}

static struct aq_range *map_places(uint32_t n)
{
	int saved = errno;
	void *p = mmap(NULL, n * sizeof(struct aq_range), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	errno = saved;
	return p == MAP_FAILED ? NULL : p;
}

static void unmap_places(struct aq_range *p, uint32_t n)
{
	int saved = errno;

	(void)munmap(p, n * sizeof(struct aq_range));
	errno = saved;
}

/* The place of a key, or the empty one where it belongs. There always is an empty one. */
static uint32_t place_of(const struct aq_range_stripe *s, uint64_t key)
{
	uint32_t i = (uint32_t)hash_of(key) & s->mask;

	while (s->place[i].key && s->place[i].key != key)
		i = (i + 1) & s->mask;
	return i;
}

static int grow(struct aq_range_stripe *s)
{
	uint32_t old_places = s->place ? s->mask + 1 : 0;
	uint32_t places = old_places ? old_places * 2 : FIRST_PLACES;
	struct aq_range *old = s->place;
	struct aq_range *fresh = map_places(places);

	if (!fresh)
		return -ENOMEM;
	s->place = fresh;
	s->mask = places - 1;
	for (uint32_t i = 0; i < old_places; i++)
		if (old[i].key)
			fresh[place_of(s, old[i].key)] = old[i];
	if (old)
		unmap_places(old, old_places);
	return 0;
}

int aq_ranges_insert(struct aq_ranges *r, const struct aq_range *entry, struct aq_range *ret_old,
		     bool *ret_replaced)
{
	struct aq_range_stripe *s = stripe_of(r, hash_of(entry->key));
	struct aq_range *place;
	int rc = 0;

	*ret_replaced = false;
	aq_lock(&s->lock);
	/* At most two thirds full. */
	if (!s->place || (s->used + 1) * 3 > (s->mask + 1) * 2)
		rc = grow(s);
	if (rc == 0) {
		place = &s->place[place_of(s, entry->key)];
		if (place->key) {
			*ret_old = *place;
			*ret_replaced = true;
		} else {
			s->used++;
		}
		*place = *entry;
	}
	aq_unlock(&s->lock);
	return rc;
}

/* Empty a place and close the gap: what a search would no longer find behind it moves up. No tombstones, so nothing decays. */
static void remove_at(struct aq_range_stripe *s, uint32_t hole)
{
	uint32_t i = hole;

	for (;;) {
		uint32_t home;

		i = (i + 1) & s->mask;
		if (!s->place[i].key)
			break;
		home = (uint32_t)hash_of(s->place[i].key) & s->mask;
		/* It may move into the hole unless its home lies between the hole and where it is. */
		if (((i - home) & s->mask) >= ((i - hole) & s->mask)) {
			s->place[hole] = s->place[i];
			hole = i;
		}
	}
	s->place[hole].key = 0;
	s->used--;
}

bool aq_ranges_take(struct aq_ranges *r, uint64_t key, struct aq_range *ret)
{
	struct aq_range_stripe *s = stripe_of(r, hash_of(key));
	bool found = false;

	aq_lock(&s->lock);
	if (key && s->place) {
		uint32_t i = place_of(s, key);

		if (s->place[i].key) {
			*ret = s->place[i];
			remove_at(s, i);
			found = true;
		}
	}
	aq_unlock(&s->lock);
	return found;
}

bool aq_ranges_find(struct aq_ranges *r, uint64_t key, struct aq_range *ret)
{
	struct aq_range_stripe *s = stripe_of(r, hash_of(key));
	bool found = false;

	aq_lock(&s->lock);
	if (key && s->place) {
		*ret = s->place[place_of(s, key)];
		found = ret->key != 0;
	}
	aq_unlock(&s->lock);
	return found;
}

struct aq_range *aq_ranges_copy(struct aq_ranges *r, unsigned stripe, uint32_t *ret_n)
{
	struct aq_range_stripe *s = &r->stripe[stripe];
	struct aq_range *copy = NULL;
	uint32_t n = 0;

	aq_lock(&s->lock);
	if (s->used)
		copy = map_places(s->used);
	for (uint32_t i = 0; copy && i <= s->mask; i++)
		if (s->place[i].key)
			copy[n++] = s->place[i];
	aq_unlock(&s->lock);
	*ret_n = n;
	return copy;
}

void aq_ranges_drop(struct aq_range *copy, uint32_t n)
{
	if (copy)
		unmap_places(copy, n);
}

uint64_t aq_ranges_count(struct aq_ranges *r)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < AQ_RANGE_STRIPES; i++) {
		aq_lock(&r->stripe[i].lock);
		n += r->stripe[i].used;
		aq_unlock(&r->stripe[i].lock);
	}
	return n;
}

void aq_ranges_reset(struct aq_ranges *r)
{
	for (unsigned i = 0; i < AQ_RANGE_STRIPES; i++)
		if (r->stripe[i].place)
			unmap_places(r->stripe[i].place, r->stripe[i].mask + 1);
	memset(r, 0, sizeof(*r));
}
