/* SPDX-License-Identifier: Apache-2.0 */
/* One client: its connection, its thread, its session in the back end. */
#pragma once

#include "gpud/ops.h"

#include <stdbool.h>

struct aq_gpud_session;

/*
 * Begin to serve a fresh connection on a thread of its own. `sock` is taken over, also on failure. `ended` is called once, on that thread, when
 * all is released; then aq_gpud_session_free() may be called from another thread. Returns 0 or -errno.
 */
int aq_gpud_session_start(const struct aq_gpud_backend *backend, int sock,
			  void (*ended)(struct aq_gpud_session *s, void *opaque), void *opaque,
			  struct aq_gpud_session **ret);

/* A descriptor of the connection for watching hang-up (EPOLLRDHUP) only; valid until the free. */
int aq_gpud_session_watch_fd(const struct aq_gpud_session *s);

/* The client has gone, or shall go. From any thread, at any time before the free, more than once. */
void aq_gpud_session_shutdown(struct aq_gpud_session *s);

/* Wait for the thread and free. */
void aq_gpud_session_free(struct aq_gpud_session *s);
