/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the memory files of the front end share: the table of every address the application may name, windows through which the
 * client itself reaches device memory, and the one copy routine below all cuMemcpy entry points.
 *
 * Entries are handed out as copies, never as pointers, so that a free in another thread leaves nothing dangling.
 * Locks, outermost first: the pools' (pool.c), the mapping lock (segment.c), the table's (memory.c).
 */
#pragma once

#include "frontend/cuda/fe.h"
#include "frontend/cuda/rtree.h"

struct aq_fe_advice;
struct aq_fe_phys;
struct aq_fe_pool;

enum aq_fe_range_kind {
	AQ_FE_RANGE_DEVICE = 1U << 0,	  /* cuMemAlloc, cuMemAllocPitch */
	AQ_FE_RANGE_MANAGED = 1U << 1,	  /* cuMemAllocManaged */
	AQ_FE_RANGE_HOST = 1U << 2,	  /* cuMemAllocHost, cuMemHostAlloc */
	AQ_FE_RANGE_REGISTERED = 1U << 3, /* cuMemHostRegister */
	AQ_FE_RANGE_POOL = 1U << 4,	  /* cuMemAllocAsync */
	AQ_FE_RANGE_MAPPING = 1U << 5,	  /* cuMemMap */
	AQ_FE_RANGE_GLOBAL = 1U << 6,	  /* a module's variable */
	AQ_FE_RANGE_IPC = 1U << 7,	  /* cuIpcOpenMemHandle */
};

/* Kinds that the host reaches at the same address, always. */
#define AQ_FE_RANGE_ON_HOST (AQ_FE_RANGE_MANAGED | AQ_FE_RANGE_HOST | AQ_FE_RANGE_REGISTERED)

#define AQ_FE_GRANULARITY (2ULL << 20) /* of virtual memory management */

struct aq_fe_range {
	uint64_t va;
	uint64_t size; /* as the application asked for it */
	enum aq_fe_range_kind kind;
	/* host: CU_MEMHOSTALLOC_* / CU_MEMHOSTREGISTER_*; managed: CU_MEM_ATTACH_* */
	unsigned flags;
	bool sync_memops;
	bool managed_global;
	/* where it was made; NULL for mappings. Not to be followed: it may be gone */
	struct aq_fe_ctx *ctx;
	unsigned long long ctx_uid; /* of that context */
	struct aq_fe_device *dev;   /* NULL: host memory of no card */
	unsigned long long buffer_id;
	struct aq_fe_advice *advice; /* managed; owned by the table */
	struct aq_fe_phys
		*phys;	  /* mapping: holds a reference; to be followed under vmm.c's lock only */
	uint64_t phys_id; /* mapping: never used again */
	unsigned handle_types; /* mapping: what its memory may be exported as */
	bool host_phys;	       /* mapping: of host memory */
	uint32_t access_cards; /* mapping: cards that may reach it, two bits each: read, write */
	uint32_t access_host;  /* mapping: the same two bits for the host */
	struct aq_fe_pool *pool;
	uint64_t seg_serial; /* segment.c: mapping of it that is known to be good; 0 none */
};

/* ---- the table (memory.c) ---- */

/* Enter a range; fills in buffer_id. False: no memory. A stale entry of a context that is gone is replaced. */
bool aq_fe_range_add(struct aq_fe_range *r);

/* The range that holds addr. */
bool aq_fe_range_find(uint64_t addr, struct aq_fe_range *ret);

/* Take out the range that begins at va, if its kind is among `kinds`. */
bool aq_fe_range_take(uint64_t va, unsigned kinds, struct aq_fe_range *ret);

/* Run fn on the entry that holds addr, with the table locked; false when there is none. */
bool aq_fe_range_update(uint64_t addr, void (*fn)(struct aq_fe_range *r, void *arg), void *arg);

/* Whether [va, va + size) touches a range. */
bool aq_fe_range_overlaps(uint64_t va, uint64_t size);

/* Whether the address is in the reservation for device addresses. */
bool aq_fe_in_arena(uint64_t addr);

enum aq_fe_rw {
	AQ_FE_READ = 1,
	AQ_FE_WRITE = 2
};

/*
 * Whether ctx's card may access all of [va, va + size): one allocation, or adjacent mappings that it has access to. *ret is the
 * first range. INVALID_VALUE otherwise.
 */
CUresult aq_fe_span_check(struct aq_fe_ctx *ctx, uint64_t va, uint64_t size, enum aq_fe_rw rw,
			  struct aq_fe_range *ret);

/* Allocate on the server and enter into the table. `size` is what the application asked for. */
CUresult aq_fe_mem_new(struct aq_fe_ctx *ctx, enum aq_mem_kind kind, enum aq_fe_range_kind as,
		       uint64_t size, unsigned flags, uint64_t *ret_va);

/*
 * What a free has to wait for: the work of the current context, and of the one that owns the memory. The server unmaps at once, and
 * kernels that still use the memory would fault.
 */
CUresult aq_fe_free_wait(struct aq_fe_ctx *ctx, struct aq_fe_ctx *owner,
			 unsigned long long owner_uid);

/* ---- segments and windows (segment.c) ---- */

/* MEM_ALLOC of managed and host memory comes with an fd: mapped before it returns. */
CUresult aq_fe_seg_alloc(struct aq_fe_ctx *ctx, enum aq_mem_kind kind, uint64_t size,
			 struct aq_rep_mem_alloc *ret);

/* MEM_FREE, and the reservation put back where the segment has gone with it. */
CUresult aq_fe_seg_free(uint64_t va);

/* Forget what is mapped of [va, va + size), in one piece with what it is mapped with: after VA_UNMAP. */
void aq_fe_seg_unmap(uint64_t va, uint64_t size);

/* Map [va, va + size) at its own address for the application: host memory of cuMemCreate, managed variables. `prot` as mmap. */
CUresult aq_fe_seg_map_host(uint64_t va, uint64_t size, int prot);

void aq_fe_seg_ctx_gone(unsigned long long ctx_uid);
void aq_fe_seg_forked(void);

/*
 * The client's own view of device memory. It lies elsewhere than the device address, so that a program that dereferences a device pointer
 * still faults as it does on a real card.
 */
#define AQ_FE_WINDOW_MAX 16

struct aq_fe_pane {
	uint64_t va, size;
	char *at;
	struct aq_fe_seg *seg; /* NULL: memory that is mapped in any case */
};

struct aq_fe_window {
	unsigned n;
	struct aq_fe_pane pane[AQ_FE_WINDOW_MAX];
};

/*
 * Make [va, va + size), which has been checked, reachable by the client's own loads and stores until the window is closed.
 * NOT_SUPPORTED: this session cannot share it; the data then goes through the ring.
 */
CUresult aq_fe_window_open(uint64_t va, uint64_t size, struct aq_fe_window *w);
void aq_fe_window_close(struct aq_fe_window *w);

/* Where va is, and how many bytes from there on are contiguous. va is inside the window. */
char *aq_fe_window_at(const struct aq_fe_window *w, uint64_t va, uint64_t *ret_room);

/* ---- copies (copy.c) ---- */

/* One side of a copy; extents are those of the copy. */
struct aq_fe_side {
	uint64_t addr; /* of the first byte */
	uint64_t pitch, slice;
	bool pageable; /* ordinary host memory: only the client reaches it */
	bool sync;     /* host-reachable or marked so: a synchronous copy has to wait */
};

struct aq_fe_copy {
	struct aq_fe_side dst, src;
	uint64_t width, height, depth;
};

/* What the caller says an address is. */
enum aq_fe_as {
	AQ_FE_AS_HOST,
	AQ_FE_AS_DEVICE,
	AQ_FE_AS_UNIFIED
};

/*
 * Look an address up and check that the copy's extent fits: width bytes in `height` rows and `depth` slices, by s->pitch and s->slice.
 */
CUresult aq_fe_side_check(struct aq_fe_ctx *ctx, struct aq_fe_side *s, enum aq_fe_as as,
			  enum aq_fe_rw rw, uint64_t width, uint64_t height, uint64_t depth);

/* Do a checked copy. Returns as CUDA documents for a synchronous or asynchronous call. */
CUresult aq_fe_copy_run(struct aq_fe_stream *stream, struct aq_fe_copy *c, bool async);

/* A copy of `size` bytes in one row: look both sides up, check, run. */
CUresult aq_fe_copy_linear(struct aq_fe_ctx *ctx, struct aq_fe_stream *stream, uint64_t dst,
			   enum aq_fe_as dst_as, uint64_t src, enum aq_fe_as src_as, uint64_t size,
			   bool async);

/* ---- arrays (array.c, layout.c) ---- */

struct aq_fe_array_layout {
	unsigned element; /* bytes: channels x format */
	uint64_t width, height,
		depth; /* elements, rows, slices or layers; 0 as the application gave them */
	uint64_t rows, slices; /* the same, at least 1 */
	uint64_t pitch, slice; /* bytes */
	uint64_t size;
};

struct aq_fe_array {
	uint64_t va; /* of this level */
	struct aq_fe_array_layout layout;
	CUDA_ARRAY3D_DESCRIPTOR desc; /* of this level */
	struct aq_fe_ctx *ctx;
	unsigned long long ctx_uid;
	struct aq_fe_device *dev;
	struct aq_fe_mipmap *mipmap; /* NULL: owns its memory */
	unsigned level;
	struct aq_fe_array *next; /* of the same context */
};

#define AQ_FE_MIP_LEVELS 18 /* of the longest 1-D array */

struct aq_fe_mipmap {
	uint64_t va, size;
	unsigned n_levels;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	struct aq_fe_ctx *ctx;
	unsigned long long ctx_uid;
	struct aq_fe_device *dev;
	struct aq_fe_array *level[AQ_FE_MIP_LEVELS];
	struct aq_fe_mipmap *next;
};

#define AQ_FE_ARRAY_ALIGN 512U

/* Bytes of one channel, 0 for a format that the software card does not have; *ret_channels is 0 when the format does not fix their number. */
unsigned aq_fe_format_bytes(CUarray_format format, unsigned *ret_channels);

/* Check a descriptor and lay it out. INVALID_VALUE or NOT_SUPPORTED. */
CUresult aq_fe_array_layout(const CUDA_ARRAY3D_DESCRIPTOR *desc, struct aq_fe_array_layout *ret);

/* The descriptor of level `level` of a mipmapped array, and how many levels there can be. */
void aq_fe_mip_level(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level,
		     CUDA_ARRAY3D_DESCRIPTOR *ret);
unsigned aq_fe_mip_count(const CUDA_ARRAY3D_DESCRIPTOR *desc);

/* Bytes from the first to behind the last of an extent, all of whose parts are at least 1; false when it does not fit into 64 bits. */
bool aq_fe_extent(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch, uint64_t slice,
		  uint64_t *ret);

void aq_fe_array_ctx_gone(unsigned long long ctx_uid);
void aq_fe_array_forked(void);

/* ---- the rest ---- */

/* host.c: make registered pages ordinary private memory again. */
void aq_fe_host_unpin(uint64_t va, uint64_t size);
void aq_fe_host_forked(void);

void aq_fe_pool_ctx_gone(struct aq_fe_ctx *ctx);

/* Give back what the pools of a card hold unused: before a plain allocation fails. True: there is more room now. */
bool aq_fe_pool_release(const struct aq_fe_device *dev);

/* pool.c: free a stream-ordered allocation that is already out of the table, when everything before has been done. */
CUresult aq_fe_pool_free_now(const struct aq_fe_range *r);

/* vmm.c */
void aq_fe_vmm_forked(void);
bool aq_fe_reservation_find(uint64_t addr, uint64_t *ret_va, uint64_t *ret_size);

/* ipc.c */
void aq_fe_ipc_ctx_gone(unsigned long long ctx_uid);
void aq_fe_ipc_forked(void);

/* advise.c */
struct aq_fe_advice *aq_fe_advice_new(uint64_t va, uint64_t size);
void aq_fe_advice_free(struct aq_fe_advice *a);
