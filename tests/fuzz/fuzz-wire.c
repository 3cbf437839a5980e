/* SPDX-License-Identifier: Apache-2.0 */
/* The server's decoder of what a client puts into the ring: the input is the ring's content and, first, the head that it claims. */
#include "base/err.h"
#include "base/fd.h"
#include "base/macro.h"
#include "wire/server.h"
#include "wire/shm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct aq_conn_config config = { .caps = AQ_CAP_SHM,
					      .n_cards = 1,
					      .server_name = "fuzz" };

static const struct aq_wire_hello hello = {
	.magic = AQ_WIRE_MAGIC,
	.version_min = AQ_WIRE_VERSION_MIN,
	.version = AQ_WIRE_VERSION,
	.caps = AQ_CAP_SHM,
	.arena_base = 1ULL << 40,
	.arena_size = 1ULL << 30,
};

static struct aq_conn *connect_to(int *ret_sock, struct aq_wire_shm **ret_shm)
{
	struct aq_wire_welcome w;
	struct aq_conn *conn = NULL;
	struct aq_err err;
	int fd = -1;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		abort();
	if (aq_fd_send(sv[0], &hello, sizeof(hello), -1) < 0 ||
	    aq_conn_accept(sv[1], &config, &conn, &err) < 0 ||
	    aq_fd_recv(sv[0], &w, sizeof(w), &fd) < 0)
		abort();
	*ret_shm =
		mmap(NULL, sizeof(struct aq_wire_shm), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*ret_shm == MAP_FAILED)
		abort();
	(void)close(fd);
	*ret_sock = sv[0];
	return conn;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct aq_wire_shm *shm;
	struct aq_request r;
	struct aq_conn *conn;
	uint64_t head = 0;
	int sock;

	if (size < sizeof(head) || size > AQ_WIRE_RING_BYTES)
		return 0;
	memcpy(&head, data, sizeof(head));
	if (head == 0)
		return 0;
	conn = connect_to(&sock, &shm);
	memcpy(shm->ring.data, data + sizeof(head), size - sizeof(head));
	atomic_store(&shm->ring.head, head);
	/* The head stands still, so every message that is accepted brings the end nearer. */
	while (atomic_load(&shm->ring.tail) != head) {
		struct aq_err err;
		uint8_t sum = 0;

		if (aq_conn_next(conn, &r, &err) <= 0)
			break;
		/* All that it says is there must be there. */
		for (size_t i = 0; i < aq_wire_req_size(r.op); i++)
			sum ^= ((const uint8_t *)r.req)[i];
		for (size_t i = 0; i < r.data_len; i++)
			sum ^= ((const uint8_t *)r.data)[i];
		aq_conn_reply(conn, r.slot, AQ_OK, &sum, 1);
	}
	(void)munmap(shm, sizeof(*shm));
	aq_conn_free(conn);
	(void)close(sock);
	return 0;
}
