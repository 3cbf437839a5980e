/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries: code without a context, loaded into each one when it is first needed there.
 *
 * A library keeps a list of places, one for each context it has been loaded into. Places are only ever added and their memory stays until the
 * library is unloaded, so that a launch may walk the list without a lock: a place belongs to a reader when it names the reader's living context.
 * The place of a context that has died is taken over by the next one.
 */
#include "base/cleanup.h"
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <stdlib.h>
#include <string.h>

struct place {
	struct place *next;
	struct aq_fe_ctx *_Atomic ctx; /* written last; NULL: free */
	_Atomic unsigned long long ctx_id;
	struct aq_fe_module *module;
	struct aq_fe_function **func; /* by kernel; NULL where the module has none of that name */
};

struct setting {
	int max_dynamic_shared, carveout; /* INT32_MIN: not set */
	int cache_config;
};

struct aq_fe_kernel {
	struct aq_fe_library *library;
	uint32_t index;
	char *name;
	struct setting setting[AQ_WIRE_MAX_CARDS]; /* by device */
} __attribute__((aligned(16)));

struct aq_fe_library {
	struct aq_list all;
	char *ptx;
	size_t ptx_len;
	struct aq_fe_jit jit; /* options only: its buffers are gone */
	uint32_t n_kernels;
	struct aq_fe_kernel *kernels;
	struct place *_Atomic places;
};

#define UNSET INT32_MIN

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* loading, unloading; before ctx->lock */
static struct aq_list libraries = { &libraries, &libraries };

void aq_fe_library_forked(void)
{
	(void)pthread_mutex_init(&lock, NULL);
	aq_list_init(&libraries);
}

/* ---- in a context ---- */

static struct place *find_place(struct aq_fe_library *lib, struct aq_fe_ctx *ctx)
{
	struct place *p = atomic_load_explicit(&lib->places, memory_order_acquire);

	for (; p; p = p->next)
		if (atomic_load_explicit(&p->ctx, memory_order_acquire) == ctx &&
		    atomic_load_explicit(&p->ctx_id, memory_order_relaxed) == ctx->unique_id)
			return p;
	return NULL;
}

static void apply_settings(struct aq_fe_library *lib, struct place *p, struct aq_fe_ctx *ctx)
{
	for (uint32_t i = 0; i < lib->n_kernels; i++) {
		const struct setting *set = &lib->kernels[i].setting[ctx->dev->ordinal];
		struct aq_fe_function *f = p->func[i];

		if (!f)
			continue;
		if (set->max_dynamic_shared != UNSET)
			(void)aq_fe_function_set_attr(
				f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
				set->max_dynamic_shared);
		if (set->carveout != UNSET)
			atomic_store(&f->carveout, set->carveout);
		if (set->cache_config != UNSET)
			atomic_store(&f->cache_config, set->cache_config);
	}
}

static struct place *free_place_locked(struct aq_fe_library *lib)
{
	struct place *p = atomic_load_explicit(&lib->places, memory_order_relaxed);

	for (; p; p = p->next)
		if (!atomic_load_explicit(&p->ctx, memory_order_relaxed))
			return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->func = calloc(lib->n_kernels + 1, sizeof(struct aq_fe_function *));
	if (!p->func) {
		free(p);
		return NULL;
	}
	p->next = atomic_load_explicit(&lib->places, memory_order_relaxed);
	atomic_store_explicit(&lib->places, p, memory_order_release);
	return p;
}

static CUresult load_into_locked(struct aq_fe_library *lib, struct aq_fe_ctx *ctx,
				 struct aq_fe_jit *jit, struct place **ret)
{
	const struct aq_fe_image image = { .ptx = lib->ptx, .len = lib->ptx_len };
	struct place *p = free_place_locked(lib);
	CUresult rc;

	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = aq_fe_module_load(ctx, &image, jit, &p->module);
	if (rc != CUDA_SUCCESS)
		return rc;
	p->module->of_library = true;
	for (uint32_t i = 0; i < lib->n_kernels; i++) {
		/* The order is that of the text; the name decides. */
		if (i < p->module->n_funcs &&
		    strcmp(p->module->funcs[i].name, lib->kernels[i].name) == 0)
			p->func[i] = &p->module->funcs[i];
		else
			p->func[i] = aq_fe_module_find(p->module, lib->kernels[i].name);
	}
	apply_settings(lib, p, ctx);
	atomic_store_explicit(&p->ctx_id, ctx->unique_id, memory_order_relaxed);
	atomic_store_explicit(&p->ctx, ctx, memory_order_release);
	*ret = p;
	return CUDA_SUCCESS;
}

static CUresult get_place(struct aq_fe_library *lib, struct aq_fe_ctx *ctx, struct place **ret)
{
	struct place *p = find_place(lib, ctx);
	CUresult rc = CUDA_SUCCESS;

	if (!p) {
		struct aq_fe_jit jit = lib->jit;

		(void)pthread_mutex_lock(&lock);
		p = find_place(lib, ctx);
		if (!p)
			rc = load_into_locked(lib, ctx, &jit, &p);
		(void)pthread_mutex_unlock(&lock);
	}
	if (rc == CUDA_SUCCESS)
		*ret = p;
	return rc;
}

void aq_fe_libraries_ctx_gone(struct aq_fe_ctx *ctx)
{
	struct aq_fe_library *lib;

	(void)pthread_mutex_lock(&lock);
	aq_list_for_each(lib, &libraries, all) {
		struct place *p = find_place(lib, ctx);

		/* The module goes with the context's others. */
		if (p)
			atomic_store_explicit(&p->ctx, NULL, memory_order_release);
	}
	(void)pthread_mutex_unlock(&lock);
}

CUresult aq_fe_kernel_function(CUkernel handle, struct aq_fe_ctx *ctx, struct aq_fe_function **ret)
{
	struct aq_fe_kernel *k = aq_fe_handle_get(AQ_FE_KERNEL, handle);
	struct place *p;
	CUresult rc;

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	rc = get_place(k->library, ctx, &p);
	if (rc != CUDA_SUCCESS)
		return rc;
	if (!p->func[k->index])
		return CUDA_ERROR_NOT_FOUND;
	*ret = p->func[k->index];
	return CUDA_SUCCESS;
}

/* ---- loading and unloading ---- */

static void library_free(struct aq_fe_library *lib)
{
	struct place *p = atomic_load(&lib->places);

	while (p) {
		struct place *next = p->next;

		free(p->func);
		free(p);
		p = next;
	}
	for (uint32_t i = 0; i < lib->n_kernels; i++) {
		(void)aq_fe_handle_remove(AQ_FE_KERNEL, &lib->kernels[i]);
		free(lib->kernels[i].name);
	}
	free(lib->kernels);
	free(lib->ptx);
	free(lib);
}

struct names {
	char **name;
	uint32_t n, cap;
	bool failed;
};

static bool add_name(void *opaque, const char *name, size_t len)
{
	struct names *ns = opaque;

	for (uint32_t i = 0; i < ns->n; i++) /* declared, then defined */
		if (strlen(ns->name[i]) == len && memcmp(ns->name[i], name, len) == 0)
			return true;
	if (ns->n == ns->cap) {
		uint32_t cap = ns->cap ? ns->cap * 2 : 16;
		char **more = realloc(ns->name, cap * sizeof(char *));

		if (!more) {
			ns->failed = true;
			return false;
		}
		ns->name = more;
		ns->cap = cap;
	}
	ns->name[ns->n] = strndup(name, len);
	if (!ns->name[ns->n]) {
		ns->failed = true;
		return false;
	}
	ns->n++;
	return true;
}

static bool make_kernels(struct aq_fe_library *lib, struct names *ns)
{
	lib->kernels = aligned_alloc(16, (ns->n + 1) * sizeof(*lib->kernels));
	if (!lib->kernels)
		return false;
	memset(lib->kernels, 0, (ns->n + 1) * sizeof(*lib->kernels));
	for (; lib->n_kernels < ns->n; lib->n_kernels++) {
		struct aq_fe_kernel *k = &lib->kernels[lib->n_kernels];

		if (!aq_fe_handle_add(AQ_FE_KERNEL, k))
			return false;
		k->library = lib;
		k->index = lib->n_kernels;
		k->name = aq_take_ptr(ns->name[lib->n_kernels]);
		for (unsigned d = 0; d < AQ_WIRE_MAX_CARDS; d++)
			k->setting[d] = (struct setting){ UNSET, UNSET, UNSET };
	}
	return true;
}

static struct aq_fe_library *library_new(const struct aq_fe_image *image,
					 const struct aq_fe_jit *jit)
{
	struct aq_fe_library *lib = aligned_alloc(16, aq_align_up(sizeof(*lib), 16));
	struct names ns = { 0 };
	bool ok;

	if (!lib)
		return NULL;
	memset(lib, 0, sizeof(*lib));
	aq_list_init(&lib->all);
	lib->jit = (struct aq_fe_jit){ .max_registers = jit->max_registers,
				       .opt_level = jit->opt_level };
	lib->ptx = malloc(image->len + 1);
	lib->ptx_len = image->len;
	ok = lib->ptx != NULL;
	if (ok) {
		memcpy(lib->ptx, image->ptx, image->len);
		lib->ptx[image->len] = '\0';
		aq_fe_ptx_kernels(lib->ptx, lib->ptx_len, add_name, &ns);
		ok = !ns.failed && make_kernels(lib, &ns);
	}
	for (uint32_t i = 0; i < ns.n; i++)
		free(ns.name[i]);
	free(ns.name);
	if (ok)
		return lib;
	library_free(lib);
	return NULL;
}

/* One image serves all devices: the PTX that the least of them runs. */
static unsigned least_sm(void)
{
	unsigned sm = UINT32_MAX;

	for (int i = 0; i < aq_fe.n_devices; i++)
		sm = AQ_MIN(sm, aq_fe_sm(&aq_fe.device[i]));
	return sm;
}

/* Into the current context at once, if there is one: so that what is wrong with the code is said here. */
static CUresult load_now(struct aq_fe_library *lib, struct aq_fe_jit *jit)
{
	struct aq_fe_ctx *ctx;
	struct place *p;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc == CUDA_ERROR_INVALID_CONTEXT || rc == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return CUDA_SUCCESS;
	if (rc != CUDA_SUCCESS)
		return rc;
	(void)pthread_mutex_lock(&lock);
	rc = load_into_locked(lib, ctx, jit, &p);
	(void)pthread_mutex_unlock(&lock);
	return rc;
}

/* Unload everywhere and free; the handle has been removed or never was. */
static void library_end(struct aq_fe_library *lib)
{
	(void)pthread_mutex_lock(&lock);
	aq_list_remove(&lib->all);
	for (struct place *p = atomic_load(&lib->places); p; p = p->next)
		if (atomic_load(&p->ctx))
			aq_fe_module_unload(p->module);
	(void)pthread_mutex_unlock(&lock);
	library_free(lib);
}

static CUresult load_image(CUlibrary *ret, const void *code, size_t len, struct aq_fe_jit *jit)
{
	struct aq_fe_library *lib;
	struct aq_fe_image image;
	const char *reason;
	CUresult rc = aq_fe_image_find(code, len, least_sm(), &image, &reason);

	if (rc != CUDA_SUCCESS) {
		aq_fe_jit_error(jit, "error : %s\n", reason);
		return rc;
	}
	lib = library_new(&image, jit);
	if (!lib)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(void)pthread_mutex_lock(&lock);
	aq_list_push_back(&libraries, &lib->all);
	(void)pthread_mutex_unlock(&lock);
	rc = load_now(lib, jit);
	if (rc == CUDA_SUCCESS && !aq_fe_handle_add(AQ_FE_LIBRARY, lib))
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	if (rc != CUDA_SUCCESS) {
		library_end(lib);
		return rc;
	}
	*ret = (CUlibrary)lib;
	return CUDA_SUCCESS;
}

static CUresult load(CUlibrary *ret, const void *code, size_t len, unsigned n_jit,
		     const CUjit_option *jit_options, void **jit_values, unsigned n_options,
		     const CUlibraryOption *options)
{
	struct aq_fe_jit jit;
	CUresult rc;

	if (n_options > 0 && !options)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n_options; i++)
		if ((unsigned)options[i] >= CU_LIBRARY_NUM_OPTIONS ||
		    (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED && len != SIZE_MAX))
			return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_jit_parse(n_jit, jit_options, jit_values, &jit);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = load_image(ret, code, len, &jit);
	aq_fe_jit_finish(&jit, n_jit, jit_options, jit_values);
	return rc;
}

AQ_EXPORT CUresult cuLibraryLoadData(CUlibrary *ret, const void *code, CUjit_option *jit_options,
				     void **jit_values, unsigned n_jit, CUlibraryOption *options,
				     void **values, unsigned n_options)
{
	CUresult rc = aq_fe_enter();

	(void)values;
	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret || !code)
		return CUDA_ERROR_INVALID_VALUE;
	return load(ret, code, SIZE_MAX, n_jit, jit_options, jit_values, n_options, options);
}

AQ_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *ret, const char *path,
					 CUjit_option *jit_options, void **jit_values,
					 unsigned n_jit, CUlibraryOption *options, void **values,
					 unsigned n_options)
{
	CUresult rc = aq_fe_enter();
	char *data;
	size_t len;

	(void)values;
	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret || !path)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_file_read(path, &data, &len);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = load(ret, data, len, n_jit, jit_options, jit_values, n_options, options);
	free(data);
	return rc;
}

AQ_EXPORT CUresult cuLibraryUnload(CUlibrary handle)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!aq_fe_handle_remove(AQ_FE_LIBRARY, handle))
		return CUDA_ERROR_INVALID_HANDLE;
	library_end((struct aq_fe_library *)handle);
	return CUDA_SUCCESS;
}

/* ---- what a library holds ---- */

static CUresult enter_library(CUlibrary handle, struct aq_fe_library **ret)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	*ret = aq_fe_handle_get(AQ_FE_LIBRARY, handle);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

AQ_EXPORT CUresult cuLibraryGetKernel(CUkernel *ret, CUlibrary handle, const char *name)
{
	struct aq_fe_library *lib;
	CUresult rc = enter_library(handle, &lib);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret || !name)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < lib->n_kernels; i++) {
		if (strcmp(lib->kernels[i].name, name) == 0) {
			*ret = (CUkernel)&lib->kernels[i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_NOT_FOUND;
}

AQ_EXPORT CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary handle)
{
	struct aq_fe_library *lib;
	CUresult rc = enter_library(handle, &lib);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = lib->n_kernels;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned n, CUlibrary handle)
{
	struct aq_fe_library *lib;
	CUresult rc = enter_library(handle, &lib);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!kernels || n == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < n && i < lib->n_kernels; i++)
		kernels[i] = (CUkernel)&lib->kernels[i];
	return CUDA_SUCCESS;
}

/* The library's place in the current context. */
static CUresult enter_place(CUlibrary handle, struct place **ret)
{
	struct aq_fe_library *lib;
	struct aq_fe_ctx *ctx;
	CUresult rc = enter_library(handle, &lib);

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_enter_ctx(&ctx);
	return rc == CUDA_SUCCESS ? get_place(lib, ctx, ret) : rc;
}

AQ_EXPORT CUresult cuLibraryGetModule(CUmodule *ret, CUlibrary handle)
{
	struct place *p;
	CUresult rc = enter_place(handle, &p);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUmodule)p->module;
	return CUDA_SUCCESS;
}

static CUresult get_global(CUdeviceptr *dptr, size_t *bytes, CUlibrary handle, const char *name,
			   bool managed)
{
	struct aq_fe_global *g;
	struct place *p;
	CUresult rc = enter_place(handle, &p);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!name || (!dptr && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	g = aq_fe_module_global(p->module, name);
	if (!g || (managed && !g->is_managed))
		return CUDA_ERROR_NOT_FOUND;
	if (dptr)
		*dptr = g->va;
	if (bytes)
		*bytes = g->size;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary handle,
				      const char *name)
{
	return get_global(dptr, bytes, handle, name, false);
}

AQ_EXPORT CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary handle,
				       const char *name)
{
	return get_global(dptr, bytes, handle, name, true);
}

/* ---- kernels ---- */

static CUresult enter_kernel(CUkernel handle, struct aq_fe_kernel **ret)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	*ret = aq_fe_handle_get(AQ_FE_KERNEL, handle);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

AQ_EXPORT CUresult cuKernelGetFunction(CUfunction *ret, CUkernel handle)
{
	struct aq_fe_function *f;
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	rc = aq_fe_kernel_function(handle, ctx, &f);
	if (rc == CUDA_SUCCESS)
		rc = aq_fe_function_register(f);
	if (rc == CUDA_SUCCESS)
		*ret = (CUfunction)f;
	return rc;
}

AQ_EXPORT CUresult cuKernelGetLibrary(CUlibrary *ret, CUkernel handle)
{
	struct aq_fe_kernel *k;
	CUresult rc = enter_kernel(handle, &k);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUlibrary)k->library;
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuKernelGetName(const char **ret, CUkernel handle)
{
	struct aq_fe_kernel *k;
	CUresult rc = enter_kernel(handle, &k);

	if (rc == CUDA_SUCCESS && !ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (rc == CUDA_SUCCESS)
		*ret = k->name;
	return rc;
}

/* A context of the device in which to ask about a kernel: the current one, else the primary one. */
static CUresult ctx_of_device(CUdevice ordinal, struct aq_fe_ctx **ret)
{
	struct aq_fe_device *dev;
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_device(ordinal, &dev);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (aq_fe_enter_ctx(&ctx) != CUDA_SUCCESS || ctx->dev != dev)
		ctx = aq_fe_primary(dev);
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret = ctx;
	return aq_fe_ctx_status(ctx);
}

AQ_EXPORT CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attr, CUkernel handle,
					CUdevice ordinal)
{
	struct aq_fe_function *f;
	struct aq_fe_kernel *k;
	struct aq_fe_ctx *ctx;
	CUresult rc = enter_kernel(handle, &k);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	rc = ctx_of_device(ordinal, &ctx);
	if (rc == CUDA_SUCCESS)
		rc = aq_fe_kernel_function(handle, ctx, &f);
	return rc == CUDA_SUCCESS ? aq_fe_function_attr(f, attr, value) : rc;
}

/* Set in every context of the device that the library is loaded into, and in those to come. */
static CUresult set_everywhere(struct aq_fe_kernel *k, CUdevice ordinal, CUfunction_attribute attr,
			       int value)
{
	struct aq_fe_device *dev;
	CUresult rc = aq_fe_device(ordinal, &dev);
	struct setting *set;

	if (rc != CUDA_SUCCESS)
		return rc;
	(void)pthread_mutex_lock(&lock);
	for (struct place *p = atomic_load(&k->library->places); p && rc == CUDA_SUCCESS;
	     p = p->next) {
		struct aq_fe_ctx *ctx = atomic_load(&p->ctx);

		if (ctx && ctx->dev == dev && p->func[k->index])
			rc = aq_fe_function_set_attr(p->func[k->index], attr, value);
	}
	set = &k->setting[ordinal];
	if (rc == CUDA_SUCCESS && attr == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
		set->max_dynamic_shared = value;
	else if (rc == CUDA_SUCCESS)
		set->carveout = value;
	(void)pthread_mutex_unlock(&lock);
	return rc;
}

AQ_EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attr, int value, CUkernel handle,
					CUdevice ordinal)
{
	struct aq_fe_kernel *k;
	CUresult rc = enter_kernel(handle, &k);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (attr >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH &&
	    attr <= CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if ((attr != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0) &&
	    (attr != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT || value < -1 ||
	     value > 100))
		return CUDA_ERROR_INVALID_VALUE;
	return set_everywhere(k, ordinal, attr, value);
}

AQ_EXPORT CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice ordinal)
{
	struct aq_fe_device *dev;
	struct aq_fe_kernel *k;
	CUresult rc = enter_kernel(handle, &k);

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_device(ordinal, &dev);
	if (rc != CUDA_SUCCESS)
		return rc;
	if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&lock);
	k->setting[ordinal].cache_config = (int)config;
	(void)pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

AQ_EXPORT CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *size)
{
	struct aq_fe_function *f;
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	if (rc == CUDA_SUCCESS)
		rc = aq_fe_kernel_function(handle, ctx, &f);
	return rc == CUDA_SUCCESS ? aq_fe_function_param(f, index, offset, size) : rc;
}
