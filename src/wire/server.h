/* SPDX-License-Identifier: Apache-2.0 */
/* The server's end of one session. What it reads is foreign: every length and position is checked before use. */
#pragma once

#include "wire/messages.h"

#include <stddef.h>

struct aq_conn;
struct aq_err;

/* What the server tells every client. */
struct aq_conn_config {
	uint32_t caps;
	uint32_t n_cards;
	uint32_t driver_version;
	const char *server_name;
};

/*
 * Exchange hello on a fresh connection; takes over `sock` (closes it on failure too). Blocks at most 5 s. On success the caller owns *ret.
 * Returns 0, -EPROTO, -ETIMEDOUT, -ECONNRESET, -ENOMEM.
 */
int aq_conn_accept(int sock, const struct aq_conn_config *cfg, struct aq_conn **ret,
		   struct aq_err *err);

/* Free; no other thread uses it any more. NULL is fine. */
void aq_conn_free(struct aq_conn *c);

/* The socket, to watch for hang-up (EPOLLRDHUP) and for the peer's credentials. */
int aq_conn_fd(const struct aq_conn *c);

const struct aq_wire_hello *aq_conn_hello(const struct aq_conn *c);

/* One request, copied out of the ring and checked: op is known, req_len is at least the operation's structure. */
struct aq_request {
	enum aq_op op;
	uint16_t slot;	  /* AQ_WIRE_NO_SLOT: no answer wanted */
	const void *req;  /* the fixed structure, aligned; valid until the next aq_conn_next() */
	const void *data; /* what follows the structure */
	size_t data_len;
};

/*
 * Wait for the next request (one reader thread). Returns 1 with *ret filled, 0 after aq_conn_shutdown(), or -EPROTO with err naming what is
 * wrong: the session must be ended.
 */
int aq_conn_next(struct aq_conn *c, struct aq_request *ret, struct aq_err *err);

/* Make aq_conn_next() return 0, from any thread, and tell the client. */
void aq_conn_shutdown(struct aq_conn *c);

/*
 * Answer slot `slot` from any thread: at most AQ_WIRE_MAX_PAYLOAD bytes. Does nothing for AQ_WIRE_NO_SLOT. A slot is answered once.
 */
void aq_conn_reply(struct aq_conn *c, uint16_t slot, enum aq_status status, const void *rep,
		   size_t len);

/* Pass an fd to the client ahead of an answer; fds keep their order. Returns 0 or -errno. */
int aq_conn_send_fd(struct aq_conn *c, int fd);

/* Take the fd that the client sent ahead of a request. Returns the fd (caller closes), or -errno. Waits at most 1 s. */
int aq_conn_recv_fd(struct aq_conn *c);

/* Set the sticky error of a context for the client to see. `slot` is checked. */
void aq_conn_set_ctx_error(struct aq_conn *c, uint32_t slot, enum aq_status status);

/* Size of an operation's request structure, 0 for an unknown one. The decoder's table; also for the fuzz target. */
size_t aq_wire_req_size(unsigned op);

/* "CTX_CREATE", or "?" */
const char *aq_wire_op_name(unsigned op);
