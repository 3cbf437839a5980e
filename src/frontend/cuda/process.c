/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process as a client of the server: cuInit, fork, the arena.
 *
 * One page that a fork wipes says whether this process has initialised. A child thus finds itself not initialised, whichever way it was
 * forked and whatever locks other threads of the parent held; its own cuInit puts every table back to its first state.
 */
#include "base/err.h"
#include "base/format.h"
#include "base/futex.h"
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA_LARGEST  (1ULL << 40)
#define ARENA_SMALLEST (1ULL << 33)

struct page {
	_Atomic uint32_t live;
	_Atomic uint32_t lock; /* futex word of cuInit: 1 taken */
};

struct aq_fe_process aq_fe;
uint32_t aq_fe_generation;
pthread_mutex_t aq_fe_ctx_lock = PTHREAD_MUTEX_INITIALIZER;
__thread int aq_fe_ptds;
__thread struct aq_fe_thread aq_fe_self;

static struct page *_Atomic page;
static bool was_live; /* not wiped: in a child it tells that there is something to forget */

/*
 * In a child that fork(2) made: let go of the parent's connection, by which the server sees the parent die. Also for kernels that do not wipe
 * pages (before Linux 4.14). A child made in another way keeps the connection until it ends or executes something.
 */
static void in_child(void)
{
	struct page *p = atomic_load(&page);

	if (p) {
		atomic_store(&p->live, 0);
		atomic_store(&p->lock, 0);
	}
	aq_client_abandon(aq_fe.client);
	aq_fe.client = NULL;
}

static struct page *get_page(void)
{
	struct page *p = atomic_load_explicit(&page, memory_order_acquire);
	struct page *none = NULL;
	void *map;

	if (p)
		return p;
	map = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	if (!atomic_compare_exchange_strong(&page, &none, map)) {
		(void)munmap(map, sizeof(*p));
		return none;
	}
	(void)madvise(map, sizeof(*p), MADV_WIPEONFORK);
	(void)pthread_atfork(NULL, NULL, in_child);
	return map;
}

static void init_lock(struct page *p)
{
	while (atomic_exchange_explicit(&p->lock, 1, memory_order_acquire) != 0)
		(void)aq_futex_wait(&p->lock, 1, AQ_NS_PER_MS);
}

static void init_unlock(struct page *p)
{
	atomic_store_explicit(&p->lock, 0, memory_order_release);
	aq_futex_wake(&p->lock, 1);
}

CUresult aq_fe_enter(void)
{
	struct page *p = atomic_load_explicit(&page, memory_order_acquire);

	if (__builtin_expect(!p || !atomic_load_explicit(&p->live, memory_order_acquire), 0))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (__builtin_expect(aq_client_is_dead(aq_fe.client), 0))
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	if (__builtin_expect(aq_fe_self.in_host_func, 0))
		return CUDA_ERROR_NOT_PERMITTED;
	return CUDA_SUCCESS;
}

/* ---- the thread ---- */

static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;
static bool has_thread_key;

static void thread_done(void *arg)
{
	struct aq_fe_thread *t = arg;

	if (aq_fe_enter() == CUDA_SUCCESS && t->generation == aq_fe_generation) {
		aq_fe_thread_streams_done(t);
		aq_fe_thread_stack_done(t);
	}
	free(t->stack);
	t->stack = NULL;
	t->depth = t->cap = 0;
}

static void make_thread_key(void)
{
	has_thread_key = pthread_key_create(&thread_key, thread_done) == 0;
}

void aq_fe_thread_register(void)
{
	struct aq_fe_thread *t = &aq_fe_self;

	if (t->generation == aq_fe_generation)
		return;
	t->depth = 0;
	t->streams = NULL; /* the parent's; a few bytes that nobody frees */
	t->generation = aq_fe_generation;
	(void)pthread_once(&thread_key_once, make_thread_key);
	if (has_thread_key)
		(void)pthread_setspecific(thread_key, t);
}

/* ---- cuInit ---- */

static const char *server_path(char *buf, size_t size)
{
	const char *path = getenv("ALIQUOT_GPUD");
	const char *dir = getenv("XDG_RUNTIME_DIR");

	if (path && *path)
		return path;
	if (dir && *dir) {
		(void)aq_format(buf, size, "%s/aliquot/gpud.sock", dir);
		if (access(buf, F_OK) == 0)
			return buf;
	}
	return "/run/aliquot/gpud.sock";
}

static CUresult reserve_arena(void)
{
	for (uint64_t size = ARENA_LARGEST; size >= ARENA_SMALLEST; size /= 2) {
		void *map = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				 -1, 0);

		if (map != MAP_FAILED) {
			aq_fe.arena_base = (uint64_t)(uintptr_t)map;
			aq_fe.arena_size = size;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static void say(const char *text)
{
	char line[320];
	size_t n = aq_format(line, sizeof(line), "aliquot: %s\n", text);

	n = AQ_MIN(n, sizeof(line) - 1);
	line[n - 1] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		return;
}

static int by_pci(const void *a, const void *b)
{
	const struct aq_rep_card_info *x = &((const struct aq_fe_device *)a)->info;
	const struct aq_rep_card_info *y = &((const struct aq_fe_device *)b)->info;
	uint64_t kx = (uint64_t)x->pci_domain << 32 | x->pci_bus << 16 | x->pci_device;
	uint64_t ky = (uint64_t)y->pci_domain << 32 | y->pci_bus << 16 | y->pci_device;

	return kx < ky ? -1 : kx > ky;
}

/* All cards of the server in `all`, in the order that the numbers of CUDA_VISIBLE_DEVICES mean. */
static CUresult read_cards(struct aq_fe_device *all, unsigned *ret_n)
{
	unsigned n = aq_client_welcome(aq_fe.client)->n_cards;
	const char *order = getenv("CUDA_DEVICE_ORDER");

	for (unsigned i = 0; i < n; i++) {
		struct aq_req_card_info req = { .card = i };
		CUresult rc;

		all[i] = (struct aq_fe_device){ .card = i };
		rc = aq_fe_call(CARD_INFO, card_info, &req, &all[i].info);
		if (rc != CUDA_SUCCESS)
			return rc;
		all[i].info.name[sizeof(all[i].info.name) - 1] = '\0';
	}
	if (order && strcmp(order, "PCI_BUS_ID") == 0)
		qsort(all, n, sizeof(*all), by_pci);
	*ret_n = n;
	return CUDA_SUCCESS;
}

static CUresult choose_devices(void)
{
	struct aq_fe_device *all = calloc(AQ_WIRE_MAX_CARDS, sizeof(*all));
	uint8_t uuid[AQ_WIRE_MAX_CARDS][16];
	uint32_t cards[AQ_WIRE_MAX_CARDS];
	unsigned n = 0;
	CUresult rc;

	if (!all)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = read_cards(all, &n);
	if (rc == CUDA_SUCCESS) {
		for (unsigned i = 0; i < n; i++)
			memcpy(uuid[i], all[i].info.uuid, sizeof(uuid[i]));
		n = aq_fe_visible(getenv("CUDA_VISIBLE_DEVICES"), n, uuid, cards);
		for (unsigned i = 0; i < n; i++) {
			aq_fe.device[i] = all[cards[i]];
			aq_fe.device[i].ordinal = (int)i;
		}
		aq_fe.n_devices = (int)n;
		if (n == 0)
			rc = CUDA_ERROR_NO_DEVICE;
	}
	free(all);
	return rc;
}

static void forget_parent(void)
{
	if (aq_fe.arena_base)
		(void)munmap((void *)(uintptr_t)aq_fe.arena_base, aq_fe.arena_size);
	aq_client_abandon(aq_fe.client);
	memset(&aq_fe, 0, sizeof(aq_fe));
	(void)pthread_mutex_init(&aq_fe_ctx_lock, NULL);
	aq_fe_handle_forked();
	aq_fe_id_forked();
	aq_fe_ctx_forked();
	aq_fe_stream_forked();
	aq_fe_module_forked();
	aq_fe_library_forked();
	aq_fe_hostfunc_forked();
	aq_fe_memory_forked();
	aq_fe_pool_forked();
	was_live = false;
}

static CUresult connect_locked(void)
{
	struct aq_err err = { 0 };
	char buf[128];
	const char *path = server_path(buf, sizeof(buf));
	CUresult rc = reserve_arena();

	if (rc != CUDA_SUCCESS) {
		say("cannot reserve address space for device memory");
		return rc;
	}
	if (aq_client_connect(path, aq_fe.arena_base, aq_fe.arena_size, &aq_fe.client, &err) < 0) {
		say(err.msg);
		rc = err.code == -EPROTO ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH : CUDA_ERROR_NO_DEVICE;
	} else {
		rc = choose_devices();
	}
	if (rc != CUDA_SUCCESS) {
		aq_client_close(aq_fe.client);
		(void)munmap((void *)(uintptr_t)aq_fe.arena_base, aq_fe.arena_size);
		memset(&aq_fe, 0, sizeof(aq_fe));
	}
	return rc;
}

AQ_EXPORT CUresult cuInit(unsigned flags)
{
	struct page *p = get_page();
	CUresult rc = CUDA_SUCCESS;

	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (atomic_load_explicit(&p->live, memory_order_acquire))
		return CUDA_SUCCESS;
	init_lock(p);
	if (!atomic_load(&p->live)) {
		if (was_live)
			forget_parent();
		rc = connect_locked();
		if (rc == CUDA_SUCCESS) {
			was_live = true;
			aq_fe_generation++;
			atomic_store_explicit(&p->live, 1, memory_order_release);
		}
	}
	init_unlock(p);
	return rc;
}
