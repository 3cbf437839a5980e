/* SPDX-License-Identifier: Apache-2.0 */
/* Listening, accepting and ending sessions: one event loop, one thread a session. */
#pragma once

#include "gpud/ops.h"

struct aq_err;
struct aq_gpud_server;

#define AQ_GPUD_MAX_SESSIONS 256U

/*
 * Serve `backend` (outlives the server) on a listening Unix socket, which is taken over. On success the caller owns *ret. Returns 0 or -errno.
 */
int aq_gpud_server_new(const struct aq_gpud_backend *backend, int listen_fd,
		       struct aq_gpud_server **ret, struct aq_err *err);

/*
 * Run until aq_gpud_server_stop() or, if handle_signals is set, SIGTERM or SIGINT (the caller has blocked them in every thread). Returns 0 or -errno.
 */
int aq_gpud_server_run(struct aq_gpud_server *s, int handle_signals, struct aq_err *err);

/* Make the loop return. From any thread. */
void aq_gpud_server_stop(struct aq_gpud_server *s);

/* End every session and free. NULL is fine. */
void aq_gpud_server_free(struct aq_gpud_server *s);

/* Sessions being served, handshakes included. */
unsigned aq_gpud_server_sessions(struct aq_gpud_server *s);

/*
 * A listening Unix socket at `path` with mode 0600. A socket that nobody listens on is replaced. Returns the fd (caller closes), -EADDRINUSE when a
 * server listens there, or -errno.
 */
int aq_gpud_listen(const char *path, struct aq_err *err);
