/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of a function: rows of constants, each there once. */
#include "gpud/soft/exec/lower.h"

#include "base/macro.h"

#include <stdlib.h>

#define MAX_POOL_BYTES (256ULL * 1024 * 1024)

/* Room for `bytes` at the end of the pool, 64-byte aligned and zero. */
static bool pool_grow(struct aq_lower *l, uint32_t bytes, uint32_t *ret)
{
	struct aq_func *f = l->f;

	bytes = (uint32_t)aq_align_up(bytes, 64);
	if (l->code->pool_bytes + bytes > MAX_POOL_BYTES)
		return aq_lower_refuse(l, "brings one constant too many");
	if (f->pool_bytes + bytes > l->cap_pool) {
		uint32_t cap = l->cap_pool ? l->cap_pool * 2 : 4096;
		uint8_t *pool = aligned_alloc(64, cap);

		if (!pool)
			return aq_lower_no_memory(l);
		if (f->pool_bytes)
			memcpy(pool, f->pool, f->pool_bytes);
		memset(pool + f->pool_bytes, 0, cap - f->pool_bytes);
		free(f->pool);
		f->pool = pool;
		l->cap_pool = cap;
	}
	*ret = f->pool_bytes;
	f->pool_bytes += bytes;
	l->code->pool_bytes += bytes;
	return true;
}

static uint32_t key_hash(const struct aq_pool_key *k)
{
	uint64_t h =
		(k->value ^ ((uint64_t)k->symbol_plus1 << 32) ^ k->class) * 0x9e3779b97f4a7c15ULL;

	return (uint32_t)(h >> 32);
}

static bool keys_grow(struct aq_lower *l)
{
	uint32_t cap = l->cap_keys ? l->cap_keys * 2 : 256;
	struct aq_pool_key *keys = calloc(cap, sizeof(*keys));

	if (!keys)
		return aq_lower_no_memory(l);
	for (uint32_t i = 0; i < l->cap_keys; i++) {
		uint32_t h;

		if (l->keys[i].class == AQ_ROW_NONE)
			continue;
		for (h = key_hash(&l->keys[i]) & (cap - 1); keys[h].class; h = (h + 1) & (cap - 1))
			;
		keys[h] = l->keys[i];
	}
	free(l->keys);
	l->keys = keys;
	l->cap_keys = cap;
	return true;
}

/* The place of `key`, made if it is new. */
static bool pool_find(struct aq_lower *l, struct aq_pool_key *key, bool *ret_is_new)
{
	uint32_t h;

	if (l->n_keys * 2 >= l->cap_keys && !keys_grow(l))
		return false;
	for (h = key_hash(key) & (l->cap_keys - 1); l->keys[h].class;
	     h = (h + 1) & (l->cap_keys - 1)) {
		const struct aq_pool_key *k = &l->keys[h];

		if (k->value == key->value && k->symbol_plus1 == key->symbol_plus1 &&
		    k->class == key->class) {
			key->offset = k->offset;
			*ret_is_new = false;
			return true;
		}
	}
	if (!pool_grow(l,
		       key->class == AQ_ROW_64	 ? 256
		       : key->class == AQ_ROW_32 ? 128
						 : 64,
		       &key->offset))
		return false;
	l->keys[h] = *key;
	l->n_keys++;
	*ret_is_new = true;
	return true;
}

bool aq_pool_value(struct aq_lower *l, enum aq_row_class class, uint64_t value, uint32_t *ret)
{
	struct aq_pool_key key = { .value = value, .class = (uint8_t) class };
	bool is_new;

	if (class != AQ_ROW_64)
		key.value = (uint32_t)value;
	if (!pool_find(l, &key, &is_new))
		return false;
	*ret = key.offset | AQ_OPERAND_IN_POOL;
	if (!is_new)
		return true;
	if (class == AQ_ROW_64)
		for (int k = 0; k < AQ_LANES; k++)
			memcpy(l->f->pool + key.offset + 8 * k, &key.value, 8);
	else
		for (int k = 0; k < (class == AQ_ROW_32 ? AQ_LANES : 1); k++)
			memcpy(l->f->pool + key.offset + 4 * k, &value, 4);
	return true;
}

bool aq_pool_symbol(struct aq_lower *l, enum aq_row_class class, uint32_t symbol, int64_t addend,
		    uint32_t *ret)
{
	struct aq_pool_key key = {
		.value = (uint64_t)addend,
		.symbol_plus1 = symbol + 1,
		.class = (uint8_t) class,
	};
	struct aq_func *f = l->f;
	bool is_new;

	if (!pool_find(l, &key, &is_new))
		return false;
	*ret = key.offset | AQ_OPERAND_IN_POOL;
	if (!is_new)
		return true;
	if (f->n_patches == l->cap_patches) {
		uint32_t cap = l->cap_patches ? l->cap_patches * 2 : 16;
		struct aq_patch *p = realloc(f->patches, cap * sizeof(*p));

		if (!p)
			return aq_lower_no_memory(l);
		f->patches = p;
		l->cap_patches = cap;
	}
	f->patches[f->n_patches++] = (struct aq_patch){
		.offset = key.offset,
		.symbol = symbol,
		.addend = addend,
		.wide = class == AQ_ROW_64,
	};
	return true;
}
