/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many blocks of a kernel fit on a multiprocessor: what threads, registers, shared memory and the number of blocks allow, by the granularities
 * that hardware of our compute capability has.
 */
#include "base/macro.h"
#include "frontend/cuda/core.h"

#define WARP		 32U
#define REGISTER_GRANULE 256U /* per warp */
#define SHARED_GRANULE	 128U

static unsigned attr(const struct aq_fe_function *f, CUdevice_attribute a)
{
	int value = aq_fe_attr(f->ctx->dev, a);

	return value > 0 ? (unsigned)value : 0;
}

static unsigned by_registers(const struct aq_fe_function *f, unsigned warps)
{
	unsigned per_warp =
		(unsigned)aq_align_up((uint64_t)f->info.registers * WARP, REGISTER_GRANULE);
	unsigned all = attr(f, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);

	return per_warp == 0 ? UINT32_MAX : all / per_warp / warps;
}

static unsigned by_shared(const struct aq_fe_function *f, size_t dynamic_shared)
{
	uint64_t all = attr(f, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
	uint64_t reserved = attr(f, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
	uint64_t block;

	if (dynamic_shared > all)
		return 0;
	block = aq_align_up(reserved + f->info.shared_bytes + dynamic_shared, SHARED_GRANULE);
	return block == 0 ? UINT32_MAX : (unsigned)(all / block);
}

static unsigned shared_limit(const struct aq_fe_function *f)
{
	return AQ_MAX(attr(f, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
		      attr(f, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
}

unsigned aq_fe_occupancy(const struct aq_fe_function *f, unsigned threads, size_t dynamic_shared)
{
	unsigned warps = (threads + WARP - 1) / WARP;
	unsigned n;

	if (threads == 0 || threads > f->info.max_threads ||
	    dynamic_shared + f->info.shared_bytes > shared_limit(f))
		return 0;
	n = attr(f, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / (warps * WARP);
	n = AQ_MIN(n, by_registers(f, warps));
	n = AQ_MIN(n, by_shared(f, dynamic_shared));
	return AQ_MIN(n, attr(f, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
}

static CUresult enter_function(CUfunction handle, struct aq_fe_function **ret)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	return rc == CUDA_SUCCESS ? aq_fe_function(handle, ctx, ret) : rc;
}

AQ_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
	int *blocks, CUfunction handle, int block_size, size_t dynamic_shared, unsigned flags)
{
	struct aq_fe_function *f;
	CUresult rc = enter_function(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!blocks || block_size <= 0 ||
	    (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = (int)aq_fe_occupancy(f, (unsigned)block_size, dynamic_shared);
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle,
							       int block_size,
							       size_t dynamic_shared)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, block_size,
								    dynamic_shared, 0);
}

AQ_EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *min_grid, int *block_size,
							     CUfunction handle,
							     CUoccupancyB2DSize to_dynamic,
							     size_t dynamic_shared, int limit,
							     unsigned flags)
{
	unsigned best_threads = 0;
	unsigned best_block = 0;
	unsigned best_blocks = 0;
	struct aq_fe_function *f;
	unsigned top;
	CUresult rc = enter_function(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!min_grid || !block_size || limit < 0 ||
	    (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))
		return CUDA_ERROR_INVALID_VALUE;
	top = f->info.max_threads;
	if (limit > 0)
		top = AQ_MIN(top, (unsigned)limit);
	/* From the largest block down; a smaller one is better only if more threads run. */
	for (unsigned block = (unsigned)aq_align_up(top, WARP); block >= WARP; block -= WARP) {
		unsigned threads = AQ_MIN(block, top);
		size_t shared = to_dynamic ? to_dynamic((int)threads) : dynamic_shared;
		unsigned blocks = aq_fe_occupancy(f, threads, shared);

		if (blocks * threads > best_threads) {
			best_threads = blocks * threads;
			best_block = threads;
			best_blocks = blocks;
		}
	}
	*block_size = (int)best_block;
	*min_grid = (int)(best_blocks * attr(f, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *min_grid, int *block_size,
						    CUfunction handle,
						    CUoccupancyB2DSize to_dynamic,
						    size_t dynamic_shared, int limit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid, block_size, handle, to_dynamic,
							 dynamic_shared, limit, 0);
}

AQ_EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *ret, CUfunction handle,
							   int blocks, int block_size)
{
	uint64_t all;
	uint64_t used;
	uint64_t share;
	struct aq_fe_function *f;
	CUresult rc = enter_function(handle, &f);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret || blocks <= 0 || block_size <= 0 ||
	    aq_fe_occupancy(f, (unsigned)block_size, 0) < (unsigned)blocks)
		return CUDA_ERROR_INVALID_VALUE;
	all = attr(f, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
	used = attr(f, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK) + f->info.shared_bytes;
	share = aq_align_down(all / (unsigned)blocks, SHARED_GRANULE);
	share = share > used ? share - used : 0;
	*ret = AQ_MIN(share, (uint64_t)shared_limit(f) - f->info.shared_bytes);
	return CUDA_SUCCESS;
}
