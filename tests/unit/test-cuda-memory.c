/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of the front end's memory: the range tree, the cutting of pools, the layout of arrays. */
#include "base/macro.h"
#include "frontend/cuda/mem.h"
#include "frontend/cuda/suballoc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t seed = 1;

static uint32_t rnd(uint32_t below)
{
	seed = seed * 1664525U + 1013904223U;
	return (seed >> 8) % below;
}

/* ---- range tree ---- */

static void rtree_edges(void **state)
{
	struct aq_rtree t = { 0 };
	struct aq_rnode a = { .va = 100, .size = 10 }, b = { .va = 110, .size = 1 };
	struct aq_rnode empty = { .va = 5 }, wraps = { .va = UINT64_MAX - 4, .size = 6 };
	struct aq_rnode top = { .va = UINT64_MAX - 5, .size = 5 },
			inside = { .va = 105, .size = 1 };

	(void)state;
	assert_null(aq_rtree_find(&t, 0));
	assert_null(aq_rtree_at_or_above(&t, 0));
	assert_false(aq_rtree_insert(&t, &empty));
	assert_false(aq_rtree_insert(&t, &wraps));
	assert_true(aq_rtree_insert(&t, &a));
	assert_true(aq_rtree_insert(&t, &b));
	assert_true(aq_rtree_insert(&t, &top));
	assert_false(aq_rtree_insert(&t, &inside));
	assert_ptr_equal(aq_rtree_find(&t, 109), &a);
	assert_ptr_equal(aq_rtree_find(&t, 110), &b);
	assert_null(aq_rtree_find(&t, 111));
	assert_null(aq_rtree_find(&t, 99));
	assert_ptr_equal(aq_rtree_at_or_above(&t, 0), &a);
	assert_ptr_equal(aq_rtree_at_or_above(&t, 111), &top);
	assert_null(aq_rtree_at_or_above(&t, UINT64_MAX));
	assert_ptr_equal(aq_rtree_overlap(&t, 50, 51), &a);
	assert_null(aq_rtree_overlap(&t, 50, 50));
	assert_null(aq_rtree_overlap(&t, 100, 0));
	aq_rtree_remove(&t, &a);
	assert_null(aq_rtree_find(&t, 100));
	assert_int_equal(t.count, 2);
}

/* Against a plain array of who owns which address. */
static void rtree_random(void **state)
{
	enum {
		SPACE = 2000,
		NODES = 200
	};
	struct aq_rtree t = { 0 };
	static struct aq_rnode node[NODES];
	static struct aq_rnode *owner[SPACE];
	bool in[NODES] = { false };

	(void)state;
	for (int step = 0; step < 20000; step++) {
		unsigned i = rnd(NODES);

		if (in[i]) {
			aq_rtree_remove(&t, &node[i]);
			for (uint64_t at = node[i].va; at < node[i].va + node[i].size; at++)
				owner[at] = NULL;
			in[i] = false;
		} else {
			uint64_t va = rnd(SPACE - 20), size = rnd(20) + 1;
			bool is_free = true;

			for (uint64_t at = va; at < va + size; at++)
				is_free = is_free && !owner[at];
			node[i] = (struct aq_rnode){ .va = va, .size = size };
			assert_int_equal(aq_rtree_insert(&t, &node[i]), is_free);
			for (uint64_t at = va; is_free && at < va + size; at++)
				owner[at] = &node[i];
			in[i] = is_free;
		}
		for (int k = 0; k < 5; k++) {
			uint64_t at = rnd(SPACE), next = at;

			assert_ptr_equal(aq_rtree_find(&t, at), owner[at]);
			while (next < SPACE && !owner[next])
				next++;
			assert_ptr_equal(aq_rtree_at_or_above(&t, at),
					 next < SPACE ? owner[next] : NULL);
		}
	}
}

static unsigned depth_of(const struct aq_rnode *n)
{
	unsigned l = n ? depth_of(n->left) : 0, r = n ? depth_of(n->right) : 0;

	return n ? 1 + AQ_MAX(l, r) : 0;
}

/* Allocations come in order of their addresses: the tree must not become a list. */
static void rtree_is_shallow(void **state)
{
	enum {
		N = 100000
	};
	struct aq_rtree t = { 0 };
	struct aq_rnode *node = calloc(N, sizeof(*node));

	(void)state;
	assert_non_null(node);
	for (uint64_t i = 0; i < N; i++) {
		node[i].va = 0x100000000ULL + i * 256;
		node[i].size = 256;
		assert_true(aq_rtree_insert(&t, &node[i]));
	}
	assert_in_range(depth_of(t.root), 17, 60);
	free(node);
}

/* ---- suballocator ---- */

#define UNIT 512ULL

static void sub_basics(void **state)
{
	struct aq_suballoc s;
	struct aq_sub_chunk *c = NULL;
	struct aq_sub_block *a = NULL, *b = NULL, *rest = NULL;
	int mark = 0;

	(void)state;
	aq_sub_init(&s);
	assert_null(aq_sub_take(&s, UNIT));
	c = aq_sub_chunk_add(&s, 0x10000, 16 * UNIT, 7);
	assert_non_null(c);
	assert_true(aq_sub_chunk_is_idle(c));
	a = aq_sub_take(&s, 4 * UNIT);
	b = aq_sub_take(&s, 12 * UNIT);
	assert_non_null(a);
	assert_non_null(b);
	assert_null(aq_sub_take(&s, UNIT));
	assert_ptr_equal(aq_sub_find(&s, a->node.va), a);
	assert_null(aq_sub_find(&s, a->node.va + UNIT));

	/* A pending block is neither found nor idle; part of it comes back, the rest stays pending. */
	aq_sub_pend(&s, b, &mark);
	assert_null(aq_sub_find(&s, b->node.va));
	assert_null(aq_sub_take(&s, UNIT));
	assert_true(aq_sub_revive(&s, b, 2 * UNIT, &rest));
	assert_non_null(rest);
	assert_ptr_equal(rest->mark, &mark);
	assert_int_equal(rest->node.size, 10 * UNIT);
	assert_int_equal(rest->node.va, b->node.va + 2 * UNIT);
	assert_ptr_equal(aq_sub_find(&s, b->node.va), b);
	aq_sub_release(&s, rest);
	aq_sub_release(&s, a);
	assert_false(aq_sub_chunk_is_idle(c));
	aq_sub_release(&s, b);
	assert_true(aq_sub_chunk_is_idle(c));
	a = aq_sub_take(&s, 16 * UNIT); /* all joined again */
	assert_non_null(a);
	aq_sub_pend(&s, a, &mark);
	assert_true(aq_sub_revive(&s, a, 16 * UNIT, &rest));
	assert_null(rest);
	assert_int_equal(s.reserved, 16 * UNIT);
	aq_sub_chunk_remove(&s, c);
	assert_int_equal(s.reserved, 0);
	assert_int_equal(s.used.count, 0);
}

/* No two blocks overlap, nothing is lost: against a map of units. */
static void sub_random(void **state)
{
	enum {
		UNITS = 512,
		BLOCKS = 100,
		CHUNKS = 3
	};
	struct aq_suballoc s;
	struct aq_sub_chunk *chunk[CHUNKS];
	struct aq_sub_block *block[BLOCKS] = { NULL };
	static int owner[CHUNKS * UNITS];

	(void)state;
	aq_sub_init(&s);
	for (uint64_t i = 0; i < CHUNKS; i++) {
		chunk[i] = aq_sub_chunk_add(&s, (i + 1) << 32, UNITS * UNIT, i);
		assert_non_null(chunk[i]);
	}
	for (int step = 0; step < 30000; step++) {
		int i = (int)rnd(BLOCKS);
		struct aq_sub_block *b = block[i];
		uint64_t n = rnd(40) + 1;

		if (b) {
			memset(&owner[b->chunk->owner * UNITS + (b->node.va - b->chunk->va) / UNIT],
			       0, b->node.size / UNIT * sizeof(owner[0]));
			aq_sub_release(&s, b);
			block[i] = NULL;
			continue;
		}
		b = block[i] = aq_sub_take(&s, n * UNIT);
		if (!b)
			continue;
		assert_int_equal(b->node.size, n * UNIT);
		assert_true(b->node.va >= b->chunk->va &&
			    b->node.va + b->node.size <= b->chunk->va + UNITS * UNIT);
		for (uint64_t k = 0; k < n; k++) {
			int *o = &owner[b->chunk->owner * UNITS +
					(b->node.va - b->chunk->va) / UNIT + k];

			assert_int_equal(*o, 0);
			*o = i + 1;
		}
	}
	for (int i = 0; i < BLOCKS; i++) {
		if (block[i])
			aq_sub_release(&s, block[i]);
	}
	for (int i = 0; i < CHUNKS; i++) {
		assert_true(aq_sub_chunk_is_idle(chunk[i]));
		aq_sub_chunk_remove(&s, chunk[i]);
	}
}

/* ---- layout ---- */

static CUDA_ARRAY3D_DESCRIPTOR desc(size_t w, size_t h, size_t d, CUarray_format f, unsigned n,
				    unsigned flags)
{
	return (CUDA_ARRAY3D_DESCRIPTOR){ w, h, d, f, n, flags };
}

static void layout_sizes(void **state)
{
	struct aq_fe_array_layout l;
	CUDA_ARRAY3D_DESCRIPTOR d = desc(33, 7, 5, CU_AD_FORMAT_FLOAT, 4, 0);

	(void)state;
	assert_int_equal(aq_fe_array_layout(&d, &l), CUDA_SUCCESS);
	assert_int_equal(l.element, 16);
	assert_true(l.pitch >= 33 * 16 && l.pitch % 32 == 0);
	assert_int_equal(l.slice, l.pitch * 7);
	assert_true(l.size >= l.slice * 5 && l.size % AQ_FE_ARRAY_ALIGN == 0);
	d = desc(100, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0);
	assert_int_equal(aq_fe_array_layout(&d, &l), CUDA_SUCCESS);
	assert_true(l.rows == 1 && l.slices == 1);
	/* The biggest shapes do not wrap. */
	d = desc(16384, 16384, 16384, CU_AD_FORMAT_FLOAT, 4, 0);
	assert_int_equal(aq_fe_array_layout(&d, &l), CUDA_SUCCESS);
	assert_int_equal(l.size, 1ULL << 46);
}

static void layout_formats(void **state)
{
	struct aq_fe_array_layout l;
	CUDA_ARRAY3D_DESCRIPTOR d = desc(8, 8, 0, CU_AD_FORMAT_UNORM_INT16X2, 2, 0);

	(void)state;
	assert_int_equal(aq_fe_array_layout(&d, &l), CUDA_SUCCESS);
	assert_int_equal(l.element, 4);
	d.NumChannels = 4; /* the format says two */
	assert_int_equal(aq_fe_array_layout(&d, &l), CUDA_ERROR_INVALID_VALUE);
	d = desc(8, 8, 0, CU_AD_FORMAT_BC1_UNORM, 1, 0);
	assert_int_equal(aq_fe_array_layout(&d, &l), CUDA_ERROR_NOT_SUPPORTED);
	d = desc(8, 8, 0, (CUarray_format)0, 1, 0);
	assert_int_equal(aq_fe_array_layout(&d, &l), CUDA_ERROR_NOT_SUPPORTED);
}

static void layout_levels(void **state)
{
	CUDA_ARRAY3D_DESCRIPTOR d = desc(100, 30, 9, CU_AD_FORMAT_HALF, 1, 0), level;

	(void)state;
	assert_int_equal(aq_fe_mip_count(&d), 7);
	aq_fe_mip_level(&d, 3, &level);
	assert_true(level.Width == 12 && level.Height == 3 && level.Depth == 1);
	d.Flags = CUDA_ARRAY3D_LAYERED;
	aq_fe_mip_level(&d, 6, &level);
	assert_true(level.Width == 1 && level.Height == 1 && level.Depth == 9);
	d = desc(1, 0, 0, CU_AD_FORMAT_HALF, 1, 0);
	assert_int_equal(aq_fe_mip_count(&d), 1);
	d = desc(131072, 0, 0, CU_AD_FORMAT_HALF, 1, 0);
	assert_int_equal(aq_fe_mip_count(&d), AQ_FE_MIP_LEVELS);
}

static void extents(void **state)
{
	uint64_t n = 0;

	(void)state;
	assert_true(aq_fe_extent(10, 1, 1, 0, 0, &n));
	assert_int_equal(n, 10);
	assert_true(aq_fe_extent(10, 3, 2, 16, 100, &n));
	assert_int_equal(n, 100 + 32 + 10);
	assert_true(aq_fe_extent(UINT64_MAX, 1, 1, UINT64_MAX, UINT64_MAX, &n));
	assert_false(aq_fe_extent(UINT64_MAX, 2, 1, 1, 0, &n));
	assert_false(aq_fe_extent(1, UINT64_MAX, 1, 2, 0, &n));
	assert_false(aq_fe_extent(1, 1, UINT64_MAX, 0, 1ULL << 40, &n));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rtree_edges),	    cmocka_unit_test(rtree_random),
		cmocka_unit_test(rtree_is_shallow), cmocka_unit_test(sub_basics),
		cmocka_unit_test(sub_random),	    cmocka_unit_test(layout_sizes),
		cmocka_unit_test(layout_formats),   cmocka_unit_test(layout_levels),
		cmocka_unit_test(extents),
	};

	return cmocka_run_group_tests_name("cuda-memory", tests, NULL, NULL);
}
