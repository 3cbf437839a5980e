/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macro.h"
#include "gpud/soft/exec/exec.h"
#include "gpud/soft/soft.h"

#include <errno.h>
#include <stdlib.h>

/* No device address below this: small numbers are offsets from a NULL pointer. */
#define LOWEST_VA (2 * AQ_MIB)

#define RIGHTS_HOST_SHIFT 62U

int aq_aspace_init(struct aq_aspace *as, uint64_t base, uint64_t size)
{
	pthread_rwlockattr_t attr;
	int rc = aq_vafree_init(&as->free, AQ_MAX(base, LOWEST_VA), base + size);

	if (rc < 0)
		return rc;
	(void)pthread_rwlockattr_init(&attr);
	(void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	(void)pthread_rwlock_init(&as->table, &attr);
	(void)pthread_rwlock_init(&as->in_use, &attr);
	(void)pthread_rwlockattr_destroy(&attr);
	return 0;
}

static void range_free(struct aq_range *r)
{
	aq_seg_unref(r->seg);
	free(r);
}

void aq_aspace_done(struct aq_aspace *as)
{
	for (size_t i = 0; i < as->ranges.n; i++)
		range_free(as->ranges.entry[i].object);
	aq_vatab_done(&as->ranges);
	aq_vafree_done(&as->free);
	(void)pthread_rwlock_destroy(&as->table);
	(void)pthread_rwlock_destroy(&as->in_use);
}

int aq_aspace_add(struct aq_aspace *as, struct aq_range *r)
{
	int rc;

	(void)pthread_rwlock_wrlock(&as->table);
	rc = aq_vatab_insert(&as->ranges, r->base, r->end, r);
	(void)pthread_rwlock_unlock(&as->table);
	return rc;
}

bool aq_aspace_remove(struct aq_aspace *as, uint64_t base)
{
	struct aq_range *r;

	(void)pthread_rwlock_wrlock(&as->table);
	r = aq_vatab_remove(&as->ranges, base);
	(void)pthread_rwlock_unlock(&as->table);
	if (!r)
		return false;
	/* Nobody finds it any more; wait for those who found it before. */
	(void)pthread_rwlock_wrlock(&as->in_use);
	(void)pthread_rwlock_unlock(&as->in_use);
	range_free(r);
	return true;
}

struct aq_range *aq_aspace_find(const struct aq_aspace *as, uint64_t va)
{
	struct aq_va_entry *e = aq_vatab_find(&as->ranges, va);

	return e ? e->object : NULL;
}

/* What the cards in `self` may do: bit 0 read, bit 1 write. */
static unsigned mapped_rights(const struct aq_range *r, uint64_t self)
{
	unsigned rights = 0;

	for (unsigned card = 0; card < AQ_WIRE_MAX_CARDS; card++) {
		if (self & (1ULL << card))
			rights |= (unsigned)(r->rights >> (2 * card)) & 3U;
	}
	return rights;
}

enum aq_status aq_aspace_lookup(struct aq_aspace *as, uint64_t va, uint64_t self, uint64_t peers,
				struct aq_view *ret)
{
	enum aq_status status = AQ_E_ILLEGAL_ADDRESS;
	unsigned rights = 3;
	struct aq_range *r;

	(void)pthread_rwlock_rdlock(&as->table);
	r = aq_aspace_find(as, va);
	if (r && r->kind == AQ_RANGE_PLAIN && !(peers & (1ULL << r->card)))
		rights = 0;
	else if (r && r->kind == AQ_RANGE_MAPPED)
		rights = mapped_rights(r, self);
	if (r && (rights & 1U)) {
		ret->base = r->base;
		ret->end = r->end;
		ret->host = r->seg->host + r->offset;
		ret->writable = rights == 3;
		status = AQ_OK;
	}
	(void)pthread_rwlock_unlock(&as->table);
	return status;
}

void aq_aspace_set_rights(struct aq_aspace *as, struct aq_range *r, uint32_t card, uint32_t prot)
{
	unsigned shift = card == AQ_CARD_HOST ? RIGHTS_HOST_SHIFT : 2 * card;

	(void)pthread_rwlock_wrlock(&as->table);
	r->rights = (r->rights & ~(3ULL << shift)) | (uint64_t)(prot & 3U) << shift;
	(void)pthread_rwlock_unlock(&as->table);
	/* A quantum that began with the old rights ends before the caller is answered. */
	(void)pthread_rwlock_wrlock(&as->in_use);
	(void)pthread_rwlock_unlock(&as->in_use);
}
