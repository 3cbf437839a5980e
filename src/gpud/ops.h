/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The border between the session layer, which knows sockets, threads and messages, and a back end, which knows cards. soft/ is
 * one back end; another one may drive real cards.
 */
#pragma once

#include "wire/messages.h"
#include "wire/server.h"

#include <stdint.h>
#include <sys/types.h>

/* Who is at the other end. pid and uid are what the kernel says, name is what the client says. */
struct aq_gpud_peer {
	struct aq_conn *conn; /* outlives the back end's session */
	pid_t pid;
	uid_t uid;
	const char *name;
	uint64_t arena_base, arena_size;
};

/* What an operation answers at once. */
struct aq_gpud_answer {
	uint8_t *data; /* room for AQ_WIRE_MAX_PAYLOAD bytes, aligned for any structure */
	size_t len;    /* bytes to send; 0 on entry */
	int fd; /* passed to the client ahead of the answer when >= 0; borrowed; -1 on entry */
};

/* Returned instead of a status: the back end answers by aq_conn_reply() itself, now or later, from any thread. */
#define AQ_GPUD_LATER (-1)

/*
 * One operation of the protocol. The request's structure is complete; everything in it is the client's word. Called on the session's own
 * thread, never twice at a time for one session. Returns an enum aq_status, or AQ_GPUD_LATER.
 */
typedef int (*aq_gpud_op_fn)(void *session, const struct aq_request *rq,
			     struct aq_gpud_answer *ans);

struct aq_gpud_ops {
	const char *name;
	/* A client has connected. Returns 0 and its session, or -errno. */
	int (*open)(void *backend, const struct aq_gpud_peer *peer, void **ret_session);
	/*
	 * The connection has been shut down, maybe in the middle of anything: stop the session's work and free what it holds. When this returns no thread
	 * uses peer.conn any more. May block for a moment (a quantum of running work).
	 */
	void (*close)(void *session);
	/* The connection is being shut down: operations that block return soon. From any thread, before close(). */
	void (*interrupt)(void *session);
	/* A request without reply slot has failed: nobody will read the status but as its context's error. */
	void (*failed)(void *session, const struct aq_request *rq, enum aq_status status);
	aq_gpud_op_fn op[AQ_OP_COUNT]; /* NULL: not supported */
};

struct aq_gpud_backend {
	const struct aq_gpud_ops *ops;
	void *opaque;
	uint32_t n_cards;
};
