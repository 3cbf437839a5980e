/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/client.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/macro.h"
#include "wire/shm.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* A waiting thread looks this often whether the server still lives; its death is also seen on the socket at once. */
#define LIVENESS_NS (20 * AQ_NS_PER_MS)
/* How long an answer is awaited awake: a trivial call takes a few microseconds where the server has a core of its own. */
#define SPIN_NS		(5 * AQ_NS_PER_US)
#define HELLO_TIMEOUT_S 5

struct aq_client {
	int sock;
	struct aq_wire_shm *shm;
	size_t shm_size;
	struct aq_wire_welcome welcome;
	_Atomic int dead;
	unsigned spins; /* iterations that take about SPIN_NS; 0 on a machine with one core */
	pthread_mutex_t send_lock;     /* the ring's producer side */
	pthread_mutex_t fd_lock;       /* order of fds on the socket */
	_Atomic uint64_t slots_free;   /* bit i: reply slot i is free */
	_Atomic uint32_t slot_waiters; /* futex word: bumped when a slot is given back */
};

_Static_assert(AQ_WIRE_SLOTS == 64, "the bitmap of slots is one word");

static int check_welcome(struct aq_client *c, int shm_fd, struct aq_err *err)
{
	const struct aq_wire_welcome *w = &c->welcome;
	struct stat st;

	if (w->magic != AQ_WIRE_MAGIC)
		return aq_err_set(err, -EPROTO, "not an Aliquot GPU server (magic 0x%x)", w->magic);
	if (w->status != AQ_OK)
		return aq_err_set(
			err, -EPROTO,
			"server refused the session with status %u (it speaks version %u)",
			w->status, w->version);
	if (w->version < AQ_WIRE_VERSION_MIN || w->version > AQ_WIRE_VERSION)
		return aq_err_set(err, -EPROTO, "server speaks protocol version %u, we %u to %u",
				  w->version, AQ_WIRE_VERSION_MIN, AQ_WIRE_VERSION);
	if (w->n_cards > AQ_WIRE_MAX_CARDS || w->shm_size != sizeof(struct aq_wire_shm))
		return aq_err_set(err, -EPROTO, "server's welcome makes no sense");
	if (shm_fd < 0 || fstat(shm_fd, &st) < 0 || (uint64_t)st.st_size < w->shm_size)
		return aq_err_set(err, -EPROTO, "server sent no usable shared memory");
	return 0;
}

static int hello(struct aq_client *c, uint64_t arena_base, uint64_t arena_size, struct aq_err *err)
{
	struct aq_wire_hello h = {
		.magic = AQ_WIRE_MAGIC,
		.version_min = AQ_WIRE_VERSION_MIN,
		.version = AQ_WIRE_VERSION,
		.caps = AQ_CAP_SHM | AQ_CAP_FDS | AQ_CAP_MANAGED,
		.arena_base = arena_base,
		.arena_size = arena_size,
		.pid = (uint32_t)getpid(),
	};
	struct timeval tv = { .tv_sec = HELLO_TIMEOUT_S };
	aq_auto_close int shm_fd = -1;
	void *map;
	int rc;

	(void)prctl(PR_GET_NAME, h.name);
	if (setsockopt(c->sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) < 0)
		return aq_err_set(err, -errno, "cannot set the socket's timeout");
	rc = aq_fd_send(c->sock, &h, sizeof(h), -1);
	if (rc == 0)
		rc = aq_fd_recv(c->sock, &c->welcome, sizeof(c->welcome), &shm_fd);
	if (rc < 0)
		return aq_err_set(err, rc, "no welcome from the server: %s", strerror(-rc));
	rc = check_welcome(c, shm_fd, err);
	if (rc < 0)
		return rc;
	map = mmap(NULL, sizeof(struct aq_wire_shm), PROT_READ | PROT_WRITE, MAP_SHARED, shm_fd, 0);
	if (map == MAP_FAILED)
		return aq_err_set(err, -errno, "cannot map the server's shared memory");
	/* A forked child starts afresh with a connection of its own; it must not even see this one's pages. */
	(void)madvise(map, sizeof(struct aq_wire_shm), MADV_DONTFORK);
	c->shm = map;
	return 0;
}

static unsigned spins_for(uint64_t ns)
{
	uint64_t t0;
	uint64_t took;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return 0;
	t0 = aq_now_ns();
	for (unsigned i = 0; i < 256; i++)
		aq_cpu_relax();
	took = aq_now_ns() - t0;
	return (unsigned)(ns * 256 / (took ? took : 1)) + 1;
}

int aq_client_connect(const char *path, uint64_t arena_base, uint64_t arena_size,
		      struct aq_client **ret, struct aq_err *err)
{
	struct aq_client *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return aq_err_set(err, -ENOMEM, "no memory for a session");
	(void)pthread_mutex_init(&c->send_lock, NULL);
	(void)pthread_mutex_init(&c->fd_lock, NULL);
	atomic_store(&c->slots_free, UINT64_MAX);
	c->spins = spins_for(SPIN_NS);
	c->sock = aq_fd_connect_unix(path);
	if (c->sock < 0)
		rc = aq_err_set(err, c->sock, "cannot connect to %s: %s", path, strerror(-c->sock));
	else
		rc = hello(c, arena_base, arena_size, err);
	if (rc < 0) {
		aq_client_close(c);
		return rc;
	}
	*ret = c;
	return 0;
}

void aq_client_close(struct aq_client *c)
{
	if (!c)
		return;
	if (c->shm)
		(void)munmap(c->shm, sizeof(struct aq_wire_shm));
	if (c->sock >= 0)
		(void)close(c->sock);
	(void)pthread_mutex_destroy(&c->send_lock);
	(void)pthread_mutex_destroy(&c->fd_lock);
	free(c);
}

void aq_client_abandon(struct aq_client *c)
{
	if (!c)
		return;
	(void)close(c->sock);
	free(c);
}

const struct aq_wire_welcome *aq_client_welcome(const struct aq_client *c)
{
	return &c->welcome;
}

int aq_client_is_dead(const struct aq_client *c)
{
	return atomic_load_explicit(&c->dead, memory_order_relaxed);
}

enum aq_status aq_client_ctx_error(const struct aq_client *c, uint32_t slot)
{
	uint32_t status =
		slot < AQ_WIRE_ERROR_SLOTS
			? atomic_load_explicit(&c->shm->ctx_error[slot], memory_order_acquire)
			: AQ_E_INVALID;

	return status < AQ_STATUS_COUNT ? (enum aq_status)status : AQ_E_LAUNCH_FAILED;
}

/* Called from waits only. True when the server has gone: by its word in the page or by the socket. */
static bool server_gone(struct aq_client *c)
{
	struct pollfd p = { .fd = c->sock, .events = POLLRDHUP };
	int saved = errno;

	if (aq_client_is_dead(c))
		return true;
	if (atomic_load_explicit(&c->shm->closed, memory_order_acquire) ||
	    (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL))))
		atomic_store(&c->dead, 1);
	errno = saved;
	return aq_client_is_dead(c);
}

/* Wait until `need` bytes of room are in the ring. Pairs with take_message() in server.c. */
static int wait_room(struct aq_client *c, uint64_t head, uint64_t need)
{
	struct aq_wire_ring *r = &c->shm->ring;

	for (unsigned spin = 0;; spin++) {
		uint64_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);

		/* A server that writes nonsense here harms its own session only: the room is never above the ring. */
		if (head - tail <= AQ_WIRE_RING_BYTES && AQ_WIRE_RING_BYTES - (head - tail) >= need)
			return 0;
		if (spin < c->spins) {
			aq_cpu_relax();
			continue;
		}
		if (server_gone(c))
			return -ECONNRESET;
		atomic_store(&r->client_asleep, 1);
		if (atomic_load(&r->tail) != tail)
			continue;
		(void)aq_futex_wait(&r->client_asleep, 1, LIVENESS_NS);
	}
}

/* Copy into the ring at byte position pos, round its end. */
static uint64_t put_bytes(struct aq_wire_ring *r, uint64_t pos, const void *buf, size_t len)
{
	size_t at = pos & (AQ_WIRE_RING_BYTES - 1);
	size_t first = AQ_MIN(len, AQ_WIRE_RING_BYTES - at);

	if (first)
		memcpy(r->data + at, buf, first);
	if (len > first)
		memcpy(r->data, (const char *)buf + first, len - first);
	return pos + len;
}

static int post(struct aq_client *c, const struct aq_client_msg *msg, uint16_t slot)
{
	struct aq_wire_ring *r = &c->shm->ring;
	struct aq_wire_header h = { .op = (uint16_t)msg->op, .slot = slot };
	uint64_t need;
	uint64_t head;
	uint64_t pos;
	int rc;

	if (msg->req_len + msg->data_len > AQ_WIRE_MAX_PAYLOAD)
		return -EMSGSIZE;
	if (aq_client_is_dead(c))
		return -ECONNRESET;
	h.len = (uint32_t)(msg->req_len + msg->data_len);
	need = aq_align_up(sizeof(h) + h.len, AQ_WIRE_ALIGN);

	(void)pthread_mutex_lock(&c->send_lock);
	head = atomic_load_explicit(&r->head, memory_order_relaxed);
	rc = wait_room(c, head, need);
	if (rc == 0) {
		pos = put_bytes(r, head, &h, sizeof(h));
		pos = put_bytes(r, pos, msg->req, msg->req_len);
		(void)put_bytes(r, pos, msg->data, msg->data_len);
		/*
		 * Sequentially consistent with the server's "asleep = 1, then read head": either it sees this head or we see
		 * that it sleeps.
		 */
		atomic_store(&r->head, head + need);
		if (atomic_load(&r->server_asleep) && atomic_exchange(&r->server_asleep, 0))
			aq_futex_wake(&r->server_asleep, 1);
	}
	(void)pthread_mutex_unlock(&c->send_lock);
	return rc;
}

int aq_client_send(struct aq_client *c, const struct aq_client_msg *msg)
{
	return post(c, msg, AQ_WIRE_NO_SLOT);
}

static int take_slot(struct aq_client *c)
{
	for (;;) {
		uint32_t seen = atomic_load(&c->slot_waiters);
		uint64_t bits = atomic_load(&c->slots_free);

		while (bits) {
			int i = __builtin_ctzll(bits);

			if (atomic_compare_exchange_weak(&c->slots_free, &bits,
							 bits & ~(1ULL << i)))
				return i;
		}
		if (server_gone(c))
			return -ECONNRESET;
		(void)aq_futex_wait(&c->slot_waiters, seen, LIVENESS_NS);
	}
}

static void give_slot(struct aq_client *c, int i)
{
	bool was_full = atomic_fetch_or(&c->slots_free, 1ULL << i) == 0;

	if (was_full) {
		atomic_fetch_add(&c->slot_waiters, 1);
		aq_futex_wake(&c->slot_waiters, 1);
	}
}

/* Pairs with aq_conn_reply(): the payload is written before the state becomes DONE. */
static int wait_answer(struct aq_client *c, struct aq_wire_slot *s)
{
	for (unsigned spin = 0; spin < c->spins; spin++) {
		if (atomic_load_explicit(&s->state, memory_order_acquire) == AQ_SLOT_DONE)
			return 0;
		aq_cpu_relax();
	}
	for (;;) {
		uint32_t state = AQ_SLOT_WAITING;

		if (!atomic_compare_exchange_strong(&s->state, &state, AQ_SLOT_ASLEEP) &&
		    state == AQ_SLOT_DONE)
			return 0;
		if (aq_futex_wait(&s->state, AQ_SLOT_ASLEEP, LIVENESS_NS) < 0 && server_gone(c) &&
		    atomic_load(&s->state) != AQ_SLOT_DONE)
			return -ECONNRESET;
	}
}

int aq_client_call(struct aq_client *c, const struct aq_client_msg *msg, void *rep, size_t rep_cap,
		   size_t *ret_len)
{
	struct aq_wire_slot *s;
	uint32_t len;
	int i;
	int rc;

	if (aq_client_is_dead(c))
		return -ECONNRESET;
	i = take_slot(c);
	if (i < 0)
		return i;
	s = &c->shm->slot[i];
	atomic_store_explicit(&s->state, AQ_SLOT_WAITING, memory_order_relaxed);
	rc = post(c, msg, (uint16_t)i);
	if (rc == 0)
		rc = wait_answer(c, s);
	if (rc == 0) {
		len = AQ_MIN(s->len, AQ_WIRE_MAX_PAYLOAD);
		rc = s->status < AQ_STATUS_COUNT ? (int)s->status : AQ_E_INVALID;
		if (rep_cap)
			memcpy(rep, s->payload, AQ_MIN(rep_cap, len));
		if (ret_len)
			*ret_len = len;
	}
	/* A slot whose answer never came stays taken: a late answer must not land in somebody else's call. */
	if (rc != -ECONNRESET)
		give_slot(c, i);
	return rc;
}

int aq_client_call_fd(struct aq_client *c, const struct aq_client_msg *msg, void *rep,
		      size_t rep_cap, size_t *ret_len, int send_fd, int *ret_fd)
{
	char byte = 0;
	int rc = 0;

	(void)pthread_mutex_lock(&c->fd_lock);
	if (send_fd >= 0)
		rc = aq_fd_send(c->sock, &byte, 1, send_fd);
	if (rc == 0)
		rc = aq_client_call(c, msg, rep, rep_cap, ret_len);
	if (rc == AQ_OK && ret_fd) {
		int got = aq_fd_recv(c->sock, &byte, 1, ret_fd);

		if (got < 0 || *ret_fd < 0)
			rc = got < 0 ? got : -EPROTO;
	}
	(void)pthread_mutex_unlock(&c->fd_lock);
	return rc;
}
