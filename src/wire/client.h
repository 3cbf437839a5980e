/* SPDX-License-Identifier: Apache-2.0 */
/* The client's end of a session with aliquot-gpud. Every function may be called from any thread. */
#pragma once

#include "wire/messages.h"

#include <stddef.h>

struct aq_client;
struct aq_err;

/*
 * Connect to the server listening at `path` and exchange hello. The arena [base, base + size) is where device addresses will be; the caller
 * has reserved it. On success the caller owns *ret. Returns 0, -ECONNREFUSED / -ENOENT (nobody there), -EPROTO (versions or nonsense), -ETIMEDOUT.
 */
int aq_client_connect(const char *path, uint64_t arena_base, uint64_t arena_size,
		      struct aq_client **ret, struct aq_err *err);

/* Close and free. No other thread may be in a call. NULL is fine. */
void aq_client_close(struct aq_client *c);

/*
 * The same in a forked child, for the parent's session: what the two share is let go of here and left as it is there. The child has no pages of
 * it (they are not inherited), so nothing is unmapped; locks are not looked at.
 */
void aq_client_abandon(struct aq_client *c);

/* What the server said at the start; valid as long as the client. */
const struct aq_wire_welcome *aq_client_welcome(const struct aq_client *c);

/* One request: the fixed structure and, behind it, data (may be NULL, 0). */
struct aq_client_msg {
	enum aq_op op;
	const void *req;
	size_t req_len;
	const void *data;
	size_t data_len;
};

/*
 * Send without an answer. Blocks while the ring is full. Returns 0, -EMSGSIZE, or -ECONNRESET when the server is gone.
 */
int aq_client_send(struct aq_client *c, const struct aq_client_msg *msg);

/*
 * Send and wait for the answer. At most rep_cap bytes of it are copied to rep; *ret_len (may be NULL) is its whole length. On a status
 * other than AQ_OK rep holds whatever the server sent (usually nothing). Returns the enum aq_status (>= 0), or -ECONNRESET when the server is gone, -EMSGSIZE.
 */
int aq_client_call(struct aq_client *c, const struct aq_client_msg *msg, void *rep, size_t rep_cap,
		   size_t *ret_len);

/*
 * The same for calls that carry an fd: send_fd (-1: none) goes ahead of the request; when ret_fd is not NULL and the answer is AQ_OK, an fd
 * is received behind it (caller closes). Such calls are serialised.
 */
int aq_client_call_fd(struct aq_client *c, const struct aq_client_msg *msg, void *rep,
		      size_t rep_cap, size_t *ret_len, int send_fd, int *ret_fd);

/* The sticky error that the server has put into error slot `slot`; AQ_OK when none. One load. */
enum aq_status aq_client_ctx_error(const struct aq_client *c, uint32_t slot);

/* Whether the server has been found dead. */
int aq_client_is_dead(const struct aq_client *c);

/* AQ_CALL(client, ctx_sync, &req, &rep): the common case, with types checked by name. Yields the status or -errno. */
#define AQ_CALL(client, NAME, name, reqp, repp)                                                    \
	({                                                                                         \
		const struct aq_req_##name *aq_req_ = (reqp);                                      \
		struct aq_rep_##name *aq_rep_ = (repp);                                            \
		struct aq_client_msg aq_msg_ = { AQ_OP_##NAME, aq_req_, sizeof(*aq_req_), NULL,    \
						 0 };                                              \
		aq_client_call((client), &aq_msg_, aq_rep_, aq_rep_ ? sizeof(*aq_rep_) : 0, NULL); \
	})

#define AQ_SEND(client, NAME, name, reqp)                                                       \
	({                                                                                      \
		const struct aq_req_##name *aq_req_ = (reqp);                                   \
		struct aq_client_msg aq_msg_ = { AQ_OP_##NAME, aq_req_, sizeof(*aq_req_), NULL, \
						 0 };                                           \
		aq_client_send((client), &aq_msg_);                                             \
	})
