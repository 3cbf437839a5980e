/* SPDX-License-Identifier: Apache-2.0 */
/* Client and server ends against each other, and the server's end against a client that lies. */
#include "base/cleanup.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/macro.h"
#include "wire/client.h"
#include "wire/server.h"
#include "wire/shm.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static const struct aq_conn_config config = {
	.caps = AQ_CAP_SHM | AQ_CAP_FDS,
	.n_cards = 2,
	.driver_version = 13000,
	.server_name = "test",
};

struct fixture {
	char path[108];
	int listener;
	pthread_t server;
	sem_t accepted; /* conn is set, or will never be */
	struct aq_conn *conn;
	struct aq_client *client;
	_Atomic unsigned sent; /* EVENT_RECORD messages seen */
	int last_rc;
	struct aq_err err;
};

/* Answers like a server would: echoes what a call carries, passes fds, dies on request. */
static void serve_one(struct fixture *f, const struct aq_request *r)
{
	if (r->op == AQ_OP_WRITE) {
		aq_conn_reply(f->conn, r->slot, AQ_OK, r->data, r->data_len);
	} else if (r->op == AQ_OP_EVENT_RECORD) {
		f->sent++;
	} else if (r->op == AQ_OP_EVENT_QUERY) {
		aq_conn_reply(f->conn, r->slot, AQ_E_NOT_READY, NULL, 0);
	} else if (r->op == AQ_OP_PHYS_IMPORT) {
		aq_auto_close int fd = aq_conn_recv_fd(f->conn);
		const struct aq_rep_phys_import rep = { .size = (uint64_t)lseek(fd, 0, SEEK_END) };

		aq_conn_reply(f->conn, r->slot, fd >= 0 ? AQ_OK : AQ_E_INVALID, &rep, sizeof(rep));
	} else if (r->op == AQ_OP_PHYS_EXPORT) {
		aq_auto_close int fd = aq_fd_memfd("export", 8192);

		aq_conn_send_fd(f->conn, fd);
		aq_conn_reply(f->conn, r->slot, AQ_OK, NULL, 0);
	} else if (r->op == AQ_OP_CTX_SYNC) {
		aq_conn_set_ctx_error(f->conn, 3, AQ_E_TRAP);
		aq_conn_reply(f->conn, r->slot, AQ_OK, NULL, 0);
	} else if (r->op == AQ_OP_CTX_DESTROY) {
		aq_conn_shutdown(f->conn);
	}
}

static void *serve(void *arg)
{
	struct fixture *f = arg;
	struct aq_request r;
	int sock = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);

	f->last_rc = aq_conn_accept(sock, &config, &f->conn, &f->err);
	(void)sem_post(&f->accepted);
	if (f->last_rc < 0)
		return NULL;
	while ((f->last_rc = aq_conn_next(f->conn, &r, &f->err)) > 0)
		serve_one(f, &r);
	return NULL;
}

static int listen_at(struct fixture *f)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	(void)snprintf(f->path, sizeof(f->path), "/tmp/test-wire-%d.sock", (int)getpid());
	(void)unlink(f->path);
	memcpy(sa.sun_path, f->path, strlen(f->path) + 1);
	f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(f->listener, (const struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -1;
	return listen(f->listener, 8);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct aq_err err;

	*state = f;
	(void)sem_init(&f->accepted, 0, 0);
	if (listen_at(f) < 0 || pthread_create(&f->server, NULL, serve, f) != 0)
		return -1;
	if (aq_client_connect(f->path, 1ULL << 40, 1ULL << 30, &f->client, &err) < 0)
		return -1;
	return sem_wait(&f->accepted);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	if (f->conn)
		aq_conn_shutdown(f->conn);
	(void)pthread_join(f->server, NULL);
	aq_client_close(f->client);
	aq_conn_free(f->conn);
	(void)close(f->listener);
	(void)unlink(f->path);
	free(f);
	return 0;
}

static void test_hello(void **state)
{
	const struct fixture *f = *state;

	assert_int_equal(aq_client_welcome(f->client)->n_cards, 2);
	assert_int_equal(aq_client_welcome(f->client)->driver_version, 13000);
	assert_int_equal(aq_client_welcome(f->client)->caps, AQ_CAP_SHM | AQ_CAP_FDS);
}

static int echo(struct aq_client *c, const uint8_t *data, size_t len, uint8_t *back,
		size_t *ret_len)
{
	const struct aq_req_write req = { .size = len };
	const struct aq_client_msg msg = { AQ_OP_WRITE, &req, sizeof(req), data, len };

	return aq_client_call(c, &msg, back, len, ret_len);
}

static void test_echo_every_size(void **state)
{
	const struct fixture *f = *state;
	static uint8_t data[AQ_WIRE_MAX_PAYLOAD];
	static uint8_t back[AQ_WIRE_MAX_PAYLOAD];
	size_t max = AQ_WIRE_MAX_PAYLOAD - sizeof(struct aq_req_write);

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + (i >> 8));
	/* Steps that hit every alignment; together many times round the ring. */
	for (size_t len = 0; len <= max; len = len < 64 ? len + 1 : len + 1021) {
		size_t got = 0;

		assert_int_equal(echo(f->client, data, len, back, &got), AQ_OK);
		assert_int_equal(got, len);
		assert_memory_equal(back, data, len);
	}
	assert_int_equal(echo(f->client, data, max + 1, back, NULL), -EMSGSIZE);
}

static void test_status_comes_back(void **state)
{
	const struct fixture *f = *state;
	const struct aq_req_event_query req = { .event = 1 };

	assert_int_equal(AQ_CALL(f->client, EVENT_QUERY, event_query, &req, NULL), AQ_E_NOT_READY);
}

static void test_sends_keep_their_order_and_number(void **state)
{
	struct fixture *f = *state;
	const struct aq_req_event_record req = { .event = 1 };
	const struct aq_req_event_query query = { .event = 1 };

	for (int i = 0; i < 200000; i++)
		assert_int_equal(AQ_SEND(f->client, EVENT_RECORD, event_record, &req), 0);
	assert_int_equal(AQ_CALL(f->client, EVENT_QUERY, event_query, &query, NULL),
			 AQ_E_NOT_READY);
	assert_int_equal(f->sent, 200000);
}

struct worker {
	const struct fixture *f;
	unsigned seed;
	int failures;
};

static void *echo_many(void *arg)
{
	struct worker *w = arg;
	uint8_t data[2048];
	uint8_t back[2048];

	for (unsigned i = 0; i < 2000; i++) {
		size_t len = (w->seed * 31 + i * 17) % sizeof(data);
		size_t got = 0;

		memset(data, (int)(w->seed + i), len);
		if (echo(w->f->client, data, len, back, &got) != AQ_OK || got != len ||
		    memcmp(data, back, len) != 0)
			w->failures++;
	}
	return NULL;
}

/* More threads than reply slots: some must wait for one. */
static void test_many_threads(void **state)
{
	const struct fixture *f = *state;
	struct worker w[AQ_WIRE_SLOTS + 16];
	pthread_t t[AQ_ARRAY_SIZE(w)];

	for (unsigned i = 0; i < AQ_ARRAY_SIZE(w); i++) {
		w[i] = (struct worker){ f, i, 0 };
		assert_int_equal(pthread_create(&t[i], NULL, echo_many, &w[i]), 0);
	}
	for (unsigned i = 0; i < AQ_ARRAY_SIZE(w); i++) {
		(void)pthread_join(t[i], NULL);
		assert_int_equal(w[i].failures, 0);
	}
}

static void test_fds_both_ways(void **state)
{
	const struct fixture *f = *state;
	const struct aq_req_phys_import import = { .phys = 1 };
	const struct aq_req_phys_export export = { .phys = 1 };
	const struct aq_client_msg import_msg = { AQ_OP_PHYS_IMPORT, &import, sizeof(import), NULL,
						  0 };
	const struct aq_client_msg export_msg = { AQ_OP_PHYS_EXPORT, &export, sizeof(export), NULL,
						  0 };
	struct aq_rep_phys_import rep = { 0 };
	aq_auto_close int mine = aq_fd_memfd("mine", 12345);
	aq_auto_close int theirs = -1;

	assert_int_equal(aq_client_call_fd(f->client, &import_msg, &rep, sizeof(rep), NULL, mine,
					   NULL),
			 AQ_OK);
	assert_int_equal(rep.size, 12345);
	assert_int_equal(aq_client_call_fd(f->client, &export_msg, NULL, 0, NULL, -1, &theirs),
			 AQ_OK);
	assert_int_equal(lseek(theirs, 0, SEEK_END), 8192);
}

static void test_context_error_word(void **state)
{
	const struct fixture *f = *state;
	const struct aq_req_ctx_sync req = { .ctx = 1 };

	assert_int_equal(aq_client_ctx_error(f->client, 3), AQ_OK);
	assert_int_equal(AQ_CALL(f->client, CTX_SYNC, ctx_sync, &req, NULL), AQ_OK);
	assert_int_equal(aq_client_ctx_error(f->client, 3), AQ_E_TRAP);
	assert_int_equal(aq_client_ctx_error(f->client, AQ_WIRE_ERROR_SLOTS), AQ_E_INVALID);
}

static void test_server_death_ends_a_call(void **state)
{
	const struct fixture *f = *state;
	const struct aq_req_ctx_destroy req = { .ctx = 1 };

	assert_int_equal(AQ_CALL(f->client, CTX_DESTROY, ctx_destroy, &req, NULL), -ECONNRESET);
	assert_true(aq_client_is_dead(f->client));
	assert_int_equal(AQ_SEND(f->client, CTX_DESTROY, ctx_destroy, &req), -ECONNRESET);
}

/* ---- a client that lies ---- */

struct liar {
	struct aq_conn *conn;
	struct aq_wire_shm *shm;
	int sock;
};

static int start_liar(struct liar *l, const struct aq_wire_hello *h, struct aq_err *err)
{
	struct aq_wire_welcome w;
	aq_auto_close int fd = -1;
	int sv[2];
	int rc;

	*l = (struct liar){ .sock = -1 };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	l->sock = sv[0];
	assert_int_equal(aq_fd_send(sv[0], h, sizeof(*h), -1), 0);
	rc = aq_conn_accept(sv[1], &config, &l->conn, err);
	if (rc < 0)
		return rc;
	assert_int_equal(aq_fd_recv(sv[0], &w, sizeof(w), &fd), 0);
	l->shm = mmap(NULL, sizeof(*l->shm), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(l->shm != MAP_FAILED);
	/* It cannot be cut short under the server. */
	assert_int_equal(ftruncate(fd, 4096), -1);
	return 0;
}

static void stop_liar(struct liar *l)
{
	if (l->shm)
		(void)munmap(l->shm, sizeof(*l->shm));
	aq_conn_free(l->conn);
	(void)close(l->sock);
}

static const struct aq_wire_hello good_hello = {
	.magic = AQ_WIRE_MAGIC,
	.version_min = 1,
	.version = 1,
	.caps = AQ_CAP_SHM,
	.arena_base = 1ULL << 40,
	.arena_size = 1ULL << 30,
};

static void test_bad_hellos_are_refused(void **state)
{
	struct aq_wire_hello h;
	struct aq_err err;
	struct liar l;

	(void)state;
	h = good_hello;
	h.magic = 1;
	assert_int_equal(start_liar(&l, &h, &err), -EPROTO);
	stop_liar(&l);
	h = good_hello;
	h.version_min = 7;
	h.version = 9;
	assert_int_equal(start_liar(&l, &h, &err), -EPROTO);
	assert_non_null(strstr(err.msg, "7 to 9"));
	stop_liar(&l);
	h = good_hello;
	h.arena_size = UINT64_MAX - 4095;
	assert_int_equal(start_liar(&l, &h, &err), -EPROTO);
	stop_liar(&l);
	h = good_hello;
	h.caps = 0;
	assert_int_equal(start_liar(&l, &h, &err), -EPROTO);
	stop_liar(&l);
}

static void expect_refusal(uint64_t head, const struct aq_wire_header *h, const char *why)
{
	struct aq_request r;
	struct aq_err err;
	struct liar l;

	assert_int_equal(start_liar(&l, &good_hello, &err), 0);
	if (h)
		memcpy(l.shm->ring.data, h, sizeof(*h));
	atomic_store(&l.shm->ring.head, head);
	assert_int_equal(aq_conn_next(l.conn, &r, &err), -EPROTO);
	if (!strstr(err.msg, why))
		fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
	stop_liar(&l);
}

static void test_bad_messages_are_refused(void **state)
{
	struct aq_wire_header h = { .len = 16, .op = AQ_OP_CTX_CREATE, .slot = 0 };

	(void)state;
	expect_refusal(UINT64_MAX, NULL, "makes no sense");
	expect_refusal(AQ_WIRE_RING_BYTES + 16, NULL, "makes no sense");
	expect_refusal(17, NULL, "makes no sense");
	h.len = AQ_WIRE_MAX_PAYLOAD + 1;
	expect_refusal(32, &h, "at most");
	h.len = 64;
	expect_refusal(32, &h, "not all there");
	h.len = 8;
	expect_refusal(16, &h, "CTX_CREATE with 8 of 16");
	h.len = 16;
	h.op = AQ_OP_COUNT;
	expect_refusal(32, &h, "unknown operation");
	h.op = 0;
	expect_refusal(32, &h, "unknown operation");
	h.op = AQ_OP_CTX_CREATE;
	h.slot = AQ_WIRE_SLOTS;
	expect_refusal(32, &h, "slot");
}

static void test_shutdown_wakes_the_reader(void **state)
{
	struct aq_request r;
	struct aq_err err;
	struct liar l;

	(void)state;
	assert_int_equal(start_liar(&l, &good_hello, &err), 0);
	aq_conn_shutdown(l.conn);
	assert_int_equal(aq_conn_next(l.conn, &r, &err), 0);
	stop_liar(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hello, setup, teardown),
		cmocka_unit_test_setup_teardown(test_echo_every_size, setup, teardown),
		cmocka_unit_test_setup_teardown(test_status_comes_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sends_keep_their_order_and_number, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_many_threads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fds_both_ways, setup, teardown),
		cmocka_unit_test_setup_teardown(test_context_error_word, setup, teardown),
		cmocka_unit_test_setup_teardown(test_server_death_ends_a_call, setup, teardown),
		cmocka_unit_test(test_bad_hellos_are_refused),
		cmocka_unit_test(test_bad_messages_are_refused),
		cmocka_unit_test(test_shutdown_wakes_the_reader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
