/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing over words: an object's address with its kind in the low four bits (objects are 16-aligned, as malloc gives them). Readers take no
 * lock: they look, and look again if a writer was at work meanwhile. Tables only ever grow; the one that is replaced stays mapped, since a
 * reader may still be in it, and serves again when a table of its size is rebuilt.
 */
#include "frontend/cuda/handle.h"

#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define KIND_MASK  15UL
#define EMPTY	   0UL
#define DELETED	   1UL /* no object is at address 0 */
#define FIRST_SIZE 256UL

struct table {
	struct table *older; /* smaller ones, kept for slow readers */
	size_t mask;
	_Atomic uintptr_t word[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t sequence; /* odd while a writer moves things */
static struct table *_Atomic current;
static struct table *spare; /* as large as current, or NULL */
static size_t n_live, n_used;

static size_t slot_of(uintptr_t word, size_t mask)
{
	return (size_t)(((uint64_t)word >> 4) * 0x9e3779b97f4a7c15ULL >> 24) & mask;
}

static bool contains(struct table *t, uintptr_t word)
{
	size_t i = slot_of(word, t->mask);

	for (size_t n = 0; n <= t->mask; n++, i = (i + 1) & t->mask) {
		uintptr_t w = atomic_load_explicit(&t->word[i], memory_order_acquire);

		if (w == word)
			return true;
		if (w == EMPTY)
			return false;
	}
	return false;
}

void *aq_fe_handle_get(enum aq_fe_kind kind, const void *handle)
{
	uintptr_t word = (uintptr_t)handle | (uintptr_t)kind;

	if (!handle || ((uintptr_t)handle & KIND_MASK))
		return NULL;
	for (;;) {
		uint32_t before = atomic_load_explicit(&sequence, memory_order_acquire);
		struct table *t = atomic_load_explicit(&current, memory_order_acquire);

		if (t && contains(t, word))
			return (void *)(uintptr_t)handle;
		/* The loads above were acquiring ones: this one comes behind them. */
		if (!(before & 1) &&
		    before == atomic_load_explicit(&sequence, memory_order_relaxed))
			return NULL;
		aq_cpu_relax();
	}
}

static void put(struct table *t, uintptr_t word)
{
	size_t i = slot_of(word, t->mask);

	while (atomic_load_explicit(&t->word[i], memory_order_relaxed) > DELETED)
		i = (i + 1) & t->mask;
	if (atomic_load_explicit(&t->word[i], memory_order_relaxed) == EMPTY)
		n_used++;
	atomic_store_explicit(&t->word[i], word, memory_order_release);
	n_live++;
}

static void copy_live(struct table *to, struct table *from)
{
	n_live = n_used = 0;
	for (size_t i = 0; from && i <= from->mask; i++) {
		uintptr_t w = atomic_load_explicit(&from->word[i], memory_order_relaxed);

		if (w > DELETED)
			put(to, w);
	}
}

/* Make room for one more: at most half of the words may be in use, deleted ones counted. */
static bool reserve_locked(void)
{
	struct table *old = atomic_load_explicit(&current, memory_order_relaxed);
	size_t size = old ? old->mask + 1 : FIRST_SIZE;
	struct table *t = NULL;

	if (old && (n_used + 1) * 2 <= size)
		return true;
	if (old && (n_live + 1) * 4 > size)
		size *= 2;
	if (spare && spare->mask + 1 == size) {
		t = spare;
		spare = NULL;
	}
	if (!t)
		t = malloc(sizeof(*t) + size * sizeof(t->word[0]));
	if (!t)
		return false;
	/* A slow reader of the spare may see it change: the odd sequence makes it look again. */
	atomic_fetch_add_explicit(&sequence, 1, memory_order_acq_rel);
	t->mask = size - 1;
	t->older = old && old->mask == t->mask ? old->older : old;
	for (size_t i = 0; i < size; i++)
		atomic_store_explicit(&t->word[i], EMPTY, memory_order_relaxed);
	copy_live(t, old);
	atomic_store_explicit(&current, t, memory_order_release);
	atomic_fetch_add_explicit(&sequence, 1, memory_order_acq_rel);
	if (old && old->mask == t->mask)
		spare = old;
	return true;
}

bool aq_fe_handle_add(enum aq_fe_kind kind, void *object)
{
	bool ok;

	if (!object || ((uintptr_t)object & KIND_MASK))
		return false;
	(void)pthread_mutex_lock(&lock);
	ok = reserve_locked();
	if (ok)
		put(atomic_load_explicit(&current, memory_order_relaxed),
		    (uintptr_t)object | (uintptr_t)kind);
	(void)pthread_mutex_unlock(&lock);
	return ok;
}

bool aq_fe_handle_remove(enum aq_fe_kind kind, const void *handle)
{
	uintptr_t word = (uintptr_t)handle | (uintptr_t)kind;
	bool found = false;
	struct table *t;

	if (!handle || ((uintptr_t)handle & KIND_MASK))
		return false;
	(void)pthread_mutex_lock(&lock);
	t = atomic_load_explicit(&current, memory_order_relaxed);
	for (size_t n = 0, i = t ? slot_of(word, t->mask) : 0; t && n <= t->mask;
	     n++, i = (i + 1) & t->mask) {
		uintptr_t w = atomic_load_explicit(&t->word[i], memory_order_relaxed);

		if (w == EMPTY)
			break;
		if (w == word) {
			atomic_store_explicit(&t->word[i], DELETED, memory_order_release);
			n_live--;
			found = true;
			break;
		}
	}
	(void)pthread_mutex_unlock(&lock);
	return found;
}

void aq_fe_handle_forked(void)
{
	struct table *t = atomic_load_explicit(&current, memory_order_relaxed);

	(void)pthread_mutex_init(&lock, NULL);
	atomic_store(&sequence, 0);
	for (size_t i = 0; t && i <= t->mask; i++)
		atomic_store_explicit(&t->word[i], EMPTY, memory_order_relaxed);
	n_live = n_used = 0;
}
