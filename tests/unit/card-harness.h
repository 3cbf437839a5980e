/* SPDX-License-Identifier: Apache-2.0 */
/* A server with software cards inside the test's process, and clients of it. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/macro.h"
#include "gpud/server.h"
#include "gpud/soft/backend.h"
#include "wire/client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA_SIZE (1ULL << 35)

struct harness {
	char path[64];
	struct aq_soft *soft;
	struct aq_gpud_server *server;
	pthread_t thread;
};

static inline void *harness_main(void *arg)
{
	struct harness *h = arg;
	struct aq_err err = { 0 };

	if (aq_gpud_server_run(h->server, 0, &err) < 0)
		(void)fprintf(stderr, "%s\n", err.msg);
	return NULL;
}

static inline void harness_start(struct harness *h, const char *profile, uint32_t n_cards)
{
	struct aq_profile profiles[AQ_WIRE_MAX_CARDS];
	struct aq_soft_config cfg = { .profiles = profiles, .n_cards = n_cards, .workers = 2 };
	struct aq_gpud_backend backend;
	struct aq_err err = { 0 };
	static unsigned count;
	int fd;

	(void)snprintf(h->path, sizeof(h->path), "/tmp/aq-test-card-%d-%u.sock", (int)getpid(),
		       count++);
	(void)unlink(h->path);
	for (uint32_t i = 0; i < n_cards; i++)
		assert_int_equal(aq_profile_parse(profile, &profiles[i], &err), 0);
	assert_int_equal(aq_soft_new(&cfg, &h->soft, &err), 0);
	fd = aq_gpud_listen(h->path, &err);
	assert_true(fd >= 0);
	backend = aq_soft_backend(h->soft);
	assert_int_equal(aq_gpud_server_new(&backend, fd, &h->server, &err), 0);
	assert_int_equal(pthread_create(&h->thread, NULL, harness_main, h), 0);
}

static inline void harness_stop(struct harness *h)
{
	aq_gpud_server_stop(h->server);
	(void)pthread_join(h->thread, NULL);
	aq_gpud_server_free(h->server);
	aq_soft_free(h->soft);
	(void)unlink(h->path);
}

struct client {
	struct aq_client *c;
	uint8_t *arena;
};

static inline void client_open(struct client *cl, const char *path)
{
	struct aq_err err = { 0 };

	cl->arena = mmap(NULL, ARENA_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	assert_true(cl->arena != MAP_FAILED);
	if (aq_client_connect(path, (uint64_t)(uintptr_t)cl->arena, ARENA_SIZE, &cl->c, &err) < 0)
		fail_msg("%s", err.msg);
}

static inline void client_close(struct client *cl)
{
	aq_client_close(cl->c);
	(void)munmap(cl->arena, ARENA_SIZE);
}

static inline int ctx_create(struct client *cl, uint32_t id, uint32_t card)
{
	struct aq_req_ctx_create req = { .ctx = id, .card = card, .error_slot = id };
	struct aq_rep_ctx_create rep;

	return AQ_CALL(cl->c, CTX_CREATE, ctx_create, &req, &rep);
}

static inline int ctx_destroy(struct client *cl, uint32_t id)
{
	struct aq_req_ctx_destroy req = { .ctx = id };

	return AQ_CALL(cl->c, CTX_DESTROY, ctx_destroy, &req, (struct aq_rep_ctx_destroy *)NULL);
}

static inline int ctx_sync(struct client *cl, uint32_t id)
{
	struct aq_req_ctx_sync req = { .ctx = id };

	return AQ_CALL(cl->c, CTX_SYNC, ctx_sync, &req, (struct aq_rep_ctx_sync *)NULL);
}

static inline int mem_alloc(struct client *cl, uint32_t ctx, uint64_t size, uint64_t *ret_va)
{
	struct aq_req_mem_alloc req = { .ctx = ctx, .size = size, .align = 256 };
	struct aq_rep_mem_alloc rep = { 0 };
	int rc = AQ_CALL(cl->c, MEM_ALLOC, mem_alloc, &req, &rep);

	*ret_va = rep.va;
	return rc;
}

static inline int mem_free(struct client *cl, uint64_t va)
{
	struct aq_req_mem_free req = { .va = va };
	struct aq_rep_mem_free rep;

	return AQ_CALL(cl->c, MEM_FREE, mem_free, &req, &rep);
}

static inline struct aq_rep_card_stat card_stat(struct client *cl, uint32_t card)
{
	struct aq_req_card_stat req = { .card = card };
	struct aq_rep_card_stat rep = { 0 };

	assert_int_equal(AQ_CALL(cl->c, CARD_STAT, card_stat, &req, &rep), AQ_OK);
	return rep;
}

static inline int stream_create(struct client *cl, uint32_t ctx, uint32_t id, uint32_t flags)
{
	struct aq_req_stream_create req = { .ctx = ctx, .stream = id, .flags = flags };

	return AQ_CALL(cl->c, STREAM_CREATE, stream_create, &req,
		       (struct aq_rep_stream_create *)NULL);
}

static inline int stream_sync(struct client *cl, uint32_t ctx, uint32_t id)
{
	struct aq_req_stream_sync req = { .ctx = ctx, .stream = id };

	return AQ_CALL(cl->c, STREAM_SYNC, stream_sync, &req, (struct aq_rep_stream_sync *)NULL);
}

static inline int stream_query(struct client *cl, uint32_t ctx, uint32_t id)
{
	struct aq_req_stream_query req = { .ctx = ctx, .stream = id };

	return AQ_CALL(cl->c, STREAM_QUERY, stream_query, &req, (struct aq_rep_stream_query *)NULL);
}

static inline void mem_write(struct client *cl, uint32_t ctx, uint32_t stream, uint64_t va,
			     const void *data, uint64_t size)
{
	struct aq_req_write req = { .ctx = ctx, .stream = stream, .dst = va, .size = size };
	struct aq_client_msg msg = { AQ_OP_WRITE, &req, sizeof(req), data, size };

	assert_int_equal(aq_client_send(cl->c, &msg), 0);
}

static inline int mem_read(struct client *cl, uint32_t ctx, uint32_t stream, uint64_t va,
			   void *data, uint64_t size)
{
	struct aq_req_read req = { .ctx = ctx, .stream = stream, .src = va, .size = size };
	struct aq_client_msg msg = { AQ_OP_READ, &req, sizeof(req), NULL, 0 };

	return aq_client_call(cl->c, &msg, data, size, NULL);
}

static inline int event_create(struct client *cl, uint32_t ctx, uint32_t id)
{
	struct aq_req_event_create req = { .ctx = ctx, .event = id };

	return AQ_CALL(cl->c, EVENT_CREATE, event_create, &req, (struct aq_rep_event_create *)NULL);
}

static inline int event_record(struct client *cl, uint32_t ctx, uint32_t stream, uint32_t id)
{
	struct aq_req_event_record req = { .ctx = ctx, .stream = stream, .event = id };

	return AQ_CALL(cl->c, EVENT_RECORD, event_record, &req, (struct aq_rep_event_record *)NULL);
}

static inline int event_query(struct client *cl, uint32_t id)
{
	struct aq_req_event_query req = { .event = id };

	return AQ_CALL(cl->c, EVENT_QUERY, event_query, &req, (struct aq_rep_event_query *)NULL);
}

static inline int event_sync(struct client *cl, uint32_t id)
{
	struct aq_req_event_sync req = { .event = id };

	return AQ_CALL(cl->c, EVENT_SYNC, event_sync, &req, (struct aq_rep_event_sync *)NULL);
}

static inline int wait_event(struct client *cl, uint32_t ctx, uint32_t stream, uint32_t id)
{
	struct aq_req_stream_wait_event req = { .ctx = ctx, .stream = stream, .event = id };

	return AQ_CALL(cl->c, STREAM_WAIT_EVENT, stream_wait_event, &req,
		       (struct aq_rep_stream_wait_event *)NULL);
}

static inline int host_func(struct client *cl, uint32_t ctx, uint32_t stream, uint64_t cookie)
{
	struct aq_req_host_func req = { .ctx = ctx, .stream = stream, .cookie = cookie };

	return AQ_CALL(cl->c, HOST_FUNC, host_func, &req, (struct aq_rep_host_func *)NULL);
}

/* Wait for the next host function and return its cookie. */
static inline uint64_t host_func_next(struct client *cl)
{
	struct aq_req_host_func_next req = { 0 };
	struct aq_rep_host_func_next rep = { 0 };

	assert_int_equal(AQ_CALL(cl->c, HOST_FUNC_NEXT, host_func_next, &req, &rep), AQ_OK);
	return rep.cookie;
}

static inline int host_func_done(struct client *cl, uint64_t cookie)
{
	struct aq_req_host_func_done req = { .cookie = cookie };

	return AQ_CALL(cl->c, HOST_FUNC_DONE, host_func_done, &req,
		       (struct aq_rep_host_func_done *)NULL);
}

static inline int module_load(struct client *cl, uint32_t ctx, uint32_t id, const char *text)
{
	struct aq_req_blob_write blob = { .offset = 0 };
	struct aq_client_msg msg = { AQ_OP_BLOB_WRITE, &blob, sizeof(blob), text, strlen(text) };
	struct aq_req_module_load req = { .ctx = ctx, .module = id, .size = strlen(text) };
	struct aq_rep_module_load rep;

	assert_int_equal(aq_client_call(cl->c, &msg, NULL, 0, NULL), AQ_OK);
	return AQ_CALL(cl->c, MODULE_LOAD, module_load, &req, &rep);
}

/* Kernels of fake-exec.c, in their order. */
enum {
	K_COUNT,
	K_ENDLESS,
	K_FAULT,
	K_SLEEP,
	K_BARRIER,
	K_TOUCH,
	K_SPIN
};

struct launch {
	uint32_t ctx, stream, module, func, blocks, threads, shared, flags;
	uint64_t arg0, arg1;
};

/* Called, to see the status of the submission. */
static inline int launch(struct client *cl, const struct launch *l)
{
	uint64_t args[2] = { l->arg0, l->arg1 };
	struct aq_req_launch req = {
		.ctx = l->ctx,
		.stream = l->stream,
		.module = l->module,
		.func = l->func,
		.grid = { l->blocks ? l->blocks : 1, 1, 1 },
		.block = { l->threads ? l->threads : 32, 1, 1 },
		.shared_bytes = l->shared,
		.flags = l->flags,
		.param_bytes = sizeof(args),
	};
	struct aq_client_msg msg = { AQ_OP_LAUNCH, &req, sizeof(req), args, sizeof(args) };

	return aq_client_call(cl->c, &msg, NULL, 0, NULL);
}
