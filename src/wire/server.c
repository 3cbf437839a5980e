/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/server.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/macro.h"
#include "wire/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_TIMEOUT_S 5
#define FD_TIMEOUT_S	1
/* After a request the reader stays awake this long: the next one of a busy client then needs no system call on either side. */
#define SPIN_NS (20 * AQ_NS_PER_US)

struct aq_conn {
	int sock;
	struct aq_wire_shm *shm;
	struct aq_wire_hello hello;
	_Atomic int stopping;
	bool may_spin;
	uint64_t tail; /* ours: never read back from the page */
	/* The request being handled, aligned for its structure. */
	_Alignas(16) uint8_t buf[AQ_WIRE_MAX_PAYLOAD];
};

static int check_hello(const struct aq_wire_hello *h, struct aq_err *err)
{
	if (h->magic != AQ_WIRE_MAGIC)
		return aq_err_set(err, -EPROTO, "hello has magic 0x%x", h->magic);
	if (h->version_min > AQ_WIRE_VERSION || h->version < AQ_WIRE_VERSION_MIN)
		return aq_err_set(err, -EPROTO, "client speaks versions %u to %u, we %u to %u",
				  h->version_min, h->version, AQ_WIRE_VERSION_MIN, AQ_WIRE_VERSION);
	if (h->arena_base % 4096 || h->arena_size % 4096 ||
	    h->arena_base + h->arena_size < h->arena_base)
		return aq_err_set(err, -EPROTO,
				  "client's arena 0x%llx + 0x%llx is no address range",
				  (unsigned long long)h->arena_base,
				  (unsigned long long)h->arena_size);
	if (!(h->caps & AQ_CAP_SHM))
		return aq_err_set(err, -EPROTO, "client does not offer shared memory");
	return 0;
}

static int make_pages(struct aq_conn *c, struct aq_err *err)
{
	aq_auto_close int fd = aq_fd_memfd("aliquot-wire", sizeof(struct aq_wire_shm));
	void *map;

	if (fd < 0)
		return aq_err_set(err, fd, "no memory for a session's pages: %s", strerror(-fd));
	/* Sealed, or the client could shrink it under us and every access would be a SIGBUS. */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return aq_err_set(err, -errno, "cannot seal a session's pages");
	map = mmap(NULL, sizeof(struct aq_wire_shm), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return aq_err_set(err, -errno, "cannot map a session's pages");
	c->shm = map;
	c->shm->magic = AQ_WIRE_MAGIC;
	c->shm->version = AQ_WIRE_VERSION;
	return aq_take_fd(fd);
}

static int set_timeout(int sock, time_t seconds)
{
	struct timeval tv = { .tv_sec = seconds };

	if (setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) < 0 ||
	    setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) < 0)
		return -errno;
	return 0;
}

static int handshake(struct aq_conn *c, const struct aq_conn_config *cfg, struct aq_err *err)
{
	struct aq_wire_welcome w = {
		.magic = AQ_WIRE_MAGIC,
		.version = AQ_WIRE_VERSION,
		.caps = cfg->caps,
		.n_cards = cfg->n_cards,
		.driver_version = cfg->driver_version,
		.shm_size = sizeof(struct aq_wire_shm),
	};
	aq_auto_close int shm_fd = -1;
	int rc = set_timeout(c->sock, HELLO_TIMEOUT_S);

	if (rc < 0)
		return aq_err_set(err, rc, "cannot set the socket's timeout");
	rc = aq_fd_recv(c->sock, &c->hello, sizeof(c->hello), NULL);
	if (rc < 0)
		return aq_err_set(err, rc, "no hello: %s", strerror(-rc));
	c->hello.name[sizeof(c->hello.name) - 1] = '\0';
	(void)snprintf(w.server, sizeof(w.server), "%s", cfg->server_name);
	rc = check_hello(&c->hello, err);
	if (rc < 0) {
		/* The client learns which version we speak. */
		w.status = AQ_E_INVALID;
		(void)aq_fd_send(c->sock, &w, sizeof(w), -1);
		return rc;
	}
	w.version = AQ_MIN(c->hello.version, AQ_WIRE_VERSION);
	w.caps &= c->hello.caps;
	shm_fd = make_pages(c, err);
	if (shm_fd < 0)
		return shm_fd;
	rc = aq_fd_send(c->sock, &w, sizeof(w), shm_fd);
	if (rc < 0)
		return aq_err_set(err, rc, "cannot send the welcome: %s", strerror(-rc));
	return set_timeout(c->sock, FD_TIMEOUT_S);
}

int aq_conn_accept(int sock, const struct aq_conn_config *cfg, struct aq_conn **ret,
		   struct aq_err *err)
{
	struct aq_conn *c = calloc(1, sizeof(*c));
	int rc;

	if (!c) {
		(void)close(sock);
		return aq_err_set(err, -ENOMEM, "no memory for a session");
	}
	c->sock = sock;
	c->may_spin = sysconf(_SC_NPROCESSORS_ONLN) > 1;
	rc = handshake(c, cfg, err);
	if (rc < 0) {
		aq_conn_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

void aq_conn_free(struct aq_conn *c)
{
	if (!c)
		return;
	if (c->shm)
		(void)munmap(c->shm, sizeof(struct aq_wire_shm));
	(void)close(c->sock);
	free(c);
}

int aq_conn_fd(const struct aq_conn *c)
{
	return c->sock;
}

const struct aq_wire_hello *aq_conn_hello(const struct aq_conn *c)
{
	return &c->hello;
}

/* Wait for the head to move. Pairs with post() in client.c. Returns the head, or tail when stopping. */
static uint64_t wait_head(struct aq_conn *c)
{
	struct aq_wire_ring *r = &c->shm->ring;
	uint64_t give_up = 0;

	for (unsigned n = 0; !atomic_load_explicit(&c->stopping, memory_order_acquire); n++) {
		uint64_t head = atomic_load_explicit(&r->head, memory_order_acquire);

		if (head != c->tail)
			return head;
		if (c->may_spin && n % 64 == 0) {
			uint64_t now = aq_now_ns();

			if (!give_up)
				give_up = now + SPIN_NS;
			if (now >= give_up)
				n |= 1U << 31;
		}
		if (c->may_spin && !(n & (1U << 31))) {
			aq_cpu_relax();
			continue;
		}
		atomic_store(&r->server_asleep, 1);
		if (atomic_load(&r->head) == c->tail && !atomic_load(&c->stopping))
			(void)aq_futex_wait(&r->server_asleep, 1, UINT64_MAX);
		atomic_store(&r->server_asleep, 0);
	}
	return c->tail;
}

static void get_bytes(const struct aq_wire_ring *r, uint64_t pos, void *buf, size_t len)
{
	size_t at = pos & (AQ_WIRE_RING_BYTES - 1);
	size_t first = AQ_MIN(len, AQ_WIRE_RING_BYTES - at);

	memcpy(buf, r->data + at, first);
	if (len > first)
		memcpy((char *)buf + first, r->data, len - first);
}

/* Give the room back; a client that waits for it is woken. */
static void advance(struct aq_conn *c, uint64_t by)
{
	struct aq_wire_ring *r = &c->shm->ring;

	c->tail += by;
	atomic_store(&r->tail, c->tail);
	if (atomic_load(&r->client_asleep) && atomic_exchange(&r->client_asleep, 0))
		aq_futex_wake(&r->client_asleep, 1);
}

static int take_message(struct aq_conn *c, uint64_t head, struct aq_request *ret,
			struct aq_err *err)
{
	uint64_t avail = head - c->tail;
	struct aq_wire_header h;
	size_t req_size;
	uint64_t need;

	if (avail > AQ_WIRE_RING_BYTES || avail < AQ_WIRE_ALIGN || avail % AQ_WIRE_ALIGN)
		return aq_err_set(err, -EPROTO, "ring position %llu with %llu taken makes no sense",
				  (unsigned long long)head, (unsigned long long)c->tail);
	get_bytes(&c->shm->ring, c->tail, &h, sizeof(h));
	if (h.len > AQ_WIRE_MAX_PAYLOAD)
		return aq_err_set(err, -EPROTO, "message of %u bytes, at most %u allowed", h.len,
				  AQ_WIRE_MAX_PAYLOAD);
	need = aq_align_up(sizeof(h) + h.len, AQ_WIRE_ALIGN);
	if (need > avail)
		return aq_err_set(err, -EPROTO, "message of %u bytes is not all there", h.len);
	req_size = aq_wire_req_size(h.op);
	if (!req_size)
		return aq_err_set(err, -EPROTO, "unknown operation %u", h.op);
	if (h.len < req_size)
		return aq_err_set(err, -EPROTO, "%s with %u of %zu bytes", aq_wire_op_name(h.op),
				  h.len, req_size);
	if (h.slot != AQ_WIRE_NO_SLOT && h.slot >= AQ_WIRE_SLOTS)
		return aq_err_set(err, -EPROTO, "%s wants its answer in slot %u",
				  aq_wire_op_name(h.op), h.slot);
	get_bytes(&c->shm->ring, c->tail + sizeof(h), c->buf, h.len);
	advance(c, need);
	*ret = (struct aq_request){
		.op = (enum aq_op)h.op,
		.slot = h.slot,
		.req = c->buf,
		.data = c->buf + req_size,
		.data_len = h.len - req_size,
	};
	return 1;
}

int aq_conn_next(struct aq_conn *c, struct aq_request *ret, struct aq_err *err)
{
	uint64_t head = wait_head(c);

	if (atomic_load_explicit(&c->stopping, memory_order_acquire))
		return 0;
	return take_message(c, head, ret, err);
}

void aq_conn_shutdown(struct aq_conn *c)
{
	struct aq_wire_ring *r = &c->shm->ring;

	atomic_store(&c->stopping, 1);
	atomic_store(&c->shm->closed, 1);
	atomic_store(&r->server_asleep, 0);
	aq_futex_wake(&r->server_asleep, INT32_MAX);
	(void)shutdown(c->sock, SHUT_RDWR);
}

void aq_conn_reply(struct aq_conn *c, uint16_t slot, enum aq_status status, const void *rep,
		   size_t len)
{
	struct aq_wire_slot *s;

	if (slot >= AQ_WIRE_SLOTS)
		return;
	s = &c->shm->slot[slot];
	len = AQ_MIN(len, AQ_WIRE_MAX_PAYLOAD);
	if (len)
		memcpy(s->payload, rep, len);
	s->status = status;
	s->len = (uint32_t)len;
	/* Pairs with wait_answer() in client.c. */
	if (atomic_exchange(&s->state, AQ_SLOT_DONE) == AQ_SLOT_ASLEEP)
		aq_futex_wake(&s->state, 1);
}

int aq_conn_send_fd(struct aq_conn *c, int fd)
{
	char byte = 0;

	return aq_fd_send(c->sock, &byte, 1, fd);
}

int aq_conn_recv_fd(struct aq_conn *c)
{
	char byte;
	int fd = -1;
	int rc = aq_fd_recv(c->sock, &byte, 1, &fd);

	if (rc < 0)
		return rc;
	return fd >= 0 ? fd : -EPROTO;
}

void aq_conn_set_ctx_error(struct aq_conn *c, uint32_t slot, enum aq_status status)
{
	if (slot < AQ_WIRE_ERROR_SLOTS)
		atomic_store_explicit(&c->shm->ctx_error[slot], status, memory_order_release);
}
