/* SPDX-License-Identifier: Apache-2.0 */
/* What the front end's files about execution share with each other and not with those about memory. */
#pragma once

#include "frontend/cuda/fe.h"
#include "frontend/cuda/handle.h"

/* ---- the calling thread ---- */

struct aq_fe_thread_stream;

struct aq_fe_thread {
	uint32_t
		generation; /* of the process; another one: all below is a parent's, and forgotten */
	bool in_host_func;  /* the helper thread: calls are not permitted */
	struct aq_fe_ctx **stack; /* stack[depth - 1] is current; each place holds a reference */
	unsigned depth, cap;
	struct aq_fe_thread_stream *streams; /* per-thread default streams, see stream.c */
};

extern __thread struct aq_fe_thread aq_fe_self;

/* Once per thread and process: has the thread's things released at its end. */
void aq_fe_thread_register(void);
void aq_fe_thread_streams_done(struct aq_fe_thread *t);

/* ---- process.c ---- */

/* Grows with each cuInit that makes the process afresh. */
extern uint32_t aq_fe_generation;

/* Protects the birth and death of contexts and what hangs between them; taken before any context's own lock. */
extern pthread_mutex_t aq_fe_ctx_lock;

void aq_fe_handle_forked(void);
void aq_fe_id_forked(void);
void aq_fe_ctx_forked(void);
void aq_fe_stream_forked(void);
void aq_fe_module_forked(void);
void aq_fe_library_forked(void);
void aq_fe_hostfunc_forked(void);

/* ---- devices ---- */

/*
 * Which of n cards a CUDA_VISIBLE_DEVICES text shows, in its order; NULL shows all. The list ends at the first entry that names no card, or one
 * that was named already. Returns how many; ret_cards has room for AQ_WIRE_MAX_CARDS.
 */
unsigned aq_fe_visible(const char *text, unsigned n, const uint8_t (*uuid)[16],
		       uint32_t *ret_cards);

/* "0000:3b:00.0", "3b:00.0", domain and function optional. */
bool aq_fe_pci_parse(const char *text, unsigned *ret_domain, unsigned *ret_bus,
		     unsigned *ret_device);

static inline int aq_fe_attr(const struct aq_fe_device *dev, CUdevice_attribute attr)
{
	return dev->info.attrs[attr];
}

static inline unsigned aq_fe_sm(const struct aq_fe_device *dev)
{
	return (unsigned)(aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
			  aq_fe_attr(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

/* ---- contexts ---- */

void aq_fe_ctx_ref(struct aq_fe_ctx *ctx);
void aq_fe_ctx_unref(struct aq_fe_ctx *ctx);
void aq_fe_thread_stack_done(struct aq_fe_thread *t);
unsigned long long aq_fe_unique_id(void);

/* Called while a context dies, its server side gone: forget its objects. Behind aq_fe_ctx_lock. */
void aq_fe_streams_ctx_gone(struct aq_fe_ctx *ctx);
void aq_fe_events_ctx_gone(struct aq_fe_ctx *ctx);
void aq_fe_modules_ctx_gone(struct aq_fe_ctx *ctx);
void aq_fe_libraries_ctx_gone(struct aq_fe_ctx *ctx);
void aq_fe_hostfunc_ctx_gone(struct aq_fe_ctx *ctx);

/* ---- streams ---- */

#define AQ_FE_PRIORITY_LEAST	0
#define AQ_FE_PRIORITY_GREATEST (-5)

CUresult aq_fe_stream_new(struct aq_fe_ctx *ctx, unsigned flags, int priority,
			  struct aq_fe_stream **ret);
void aq_fe_stream_attrs_free(struct aq_fe_stream *s);

/* ---- code ---- */

struct aq_fe_module;
struct aq_fe_legacy;

struct aq_fe_function {
	struct aq_fe_module *module;
	struct aq_fe_ctx *ctx;
	uint32_t index;
	bool registered; /* as a handle */
	char *name;
	struct aq_rep_func_info info;
	struct aq_wire_param *params;
	_Atomic int max_dynamic_shared, carveout;
	_Atomic int cache_config;
	struct aq_fe_legacy *legacy; /* see legacy.c; NULL for nearly all */
} __attribute__((aligned(16)));

struct aq_fe_global {
	char *name;
	uint64_t va, size;
	bool is_const, is_managed;
};

struct aq_fe_module {
	struct aq_fe_ctx *ctx;
	uint32_t id;
	bool of_library; /* not to be unloaded by cuModuleUnload() */
	struct aq_list in_ctx;
	uint32_t n_funcs, n_globals;
	struct aq_fe_function *funcs;
	struct aq_fe_global *globals;
};

/* What came with cuModuleLoadDataEx(), cuLibraryLoadData() and cuLinkCreate(). */
struct aq_fe_jit {
	char *info_log, *error_log;
	size_t info_size, error_size;
	size_t info_used, error_used;
	unsigned max_registers, threads_per_block, opt_level;
	bool verbose;
	float wall_ms;
};

CUresult aq_fe_jit_parse(unsigned n, const CUjit_option *options, void **values,
			 struct aq_fe_jit *ret);
/* Write the outputs back into the caller's value slots. */
void aq_fe_jit_finish(const struct aq_fe_jit *jit, unsigned n, const CUjit_option *options,
		      void **values);
/* Text to the error log; cut where the buffer ends. */
void aq_fe_jit_append(struct aq_fe_jit *jit, const char *text, size_t len);
void aq_fe_jit_error(struct aq_fe_jit *jit, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void aq_fe_jit_info(struct aq_fe_jit *jit, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* PTX text inside whatever the application passed. */
struct aq_fe_image {
	const char *ptx; /* not NUL-terminated */
	size_t len;
	unsigned target; /* 80 for sm_80; 0: not looked at */
};

/*
 * Find the PTX for a card of compute capability `sm` (80) in an image: PTX text, a fat binary, or its wrapper. len: bytes at image, or SIZE_MAX when the
 * caller does not know: then the sizes in the headers are believed up to AQ_FE_IMAGE_MAX. Wrappers hold an address: they are taken from memory only, never
 * from a file. Returns INVALID_IMAGE, NO_BINARY_FOR_GPU, or success; *ret_reason is a static text for a log.
 */
#define AQ_FE_IMAGE_MAX (256UL * 1024 * 1024)
CUresult aq_fe_image_find(const void *image, size_t len, unsigned sm, struct aq_fe_image *ret,
			  const char **ret_reason);

/* Names of the kernels in PTX text, in order: calls fn for each until it returns false. A scan, not a parse. */
void aq_fe_ptx_kernels(const char *ptx, size_t len,
		       bool (*fn)(void *opaque, const char *name, size_t name_len), void *opaque);
/* 10 * major + minor of .version; 0 when there is none. */
unsigned aq_fe_ptx_version(const char *ptx, size_t len);
/* Whether .target is one that later cards do not run: sm_90a. */
bool aq_fe_ptx_is_specific(const char *ptx, size_t len);

CUresult aq_fe_file_read(const char *path, char **ret_data, size_t *ret_len);

/* Send PTX to the server for ctx. Takes aq_fe_upload_lock. The module is in ctx's list and registered as a handle. */
CUresult aq_fe_module_load(struct aq_fe_ctx *ctx, const struct aq_fe_image *image,
			   struct aq_fe_jit *jit, struct aq_fe_module **ret);
/* Tell the server and free; of an idle or busy module. */
void aq_fe_module_unload(struct aq_fe_module *m);
struct aq_fe_function *aq_fe_module_find(struct aq_fe_module *m, const char *name);
struct aq_fe_global *aq_fe_module_global(struct aq_fe_module *m, const char *name);

/* The function that a handle means in ctx: a CUfunction, or a CUkernel cast to one. INVALID_HANDLE, or why a library could not be loaded. */
CUresult aq_fe_function(CUfunction handle, struct aq_fe_ctx *ctx, struct aq_fe_function **ret);
/* What a function has before anybody sets anything; info is filled in. */
void aq_fe_function_defaults(struct aq_fe_function *f);
/* Make it a handle, once. */
CUresult aq_fe_function_register(struct aq_fe_function *f);
CUresult aq_fe_function_param(const struct aq_fe_function *f, size_t index, size_t *offset,
			      size_t *size);
CUresult aq_fe_function_attr(const struct aq_fe_function *f, CUfunction_attribute attr, int *ret);
CUresult aq_fe_function_set_attr(struct aq_fe_function *f, CUfunction_attribute attr, int value);
CUresult aq_fe_kernel_function(CUkernel handle, struct aq_fe_ctx *ctx, struct aq_fe_function **ret);

/* Resident blocks of f on one multiprocessor; 0 when one does not fit. */
unsigned aq_fe_occupancy(const struct aq_fe_function *f, unsigned threads, size_t dynamic_shared);
