/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon that this command talks to, and requests to it.
 *
 * Which one: $ALIQUOT_DAEMON, the path of a control socket, alone when it is set. Else the system's, unless $ALIQUOT_GPUD says that programs
 * here use software or remote cards. Else a private one, one for each user and $ALIQUOT_GPUD.
 */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

struct aq_err;

struct aq_daemon {
	int fd; /* -1: not connected */
	char socket[PATH_MAX];
	bool is_private;
	char folder[PATH_MAX]; /* of the private one */
	int users_fd;	       /* holding it keeps the private daemon; -1 */
	bool wait_end; /* aq_daemon_close() waits for a private daemon that nobody needs any more */
	char code[24]; /* errno name of the last refusal; "" */
};

#define AQ_DAEMON_NONE                   \
	{                                \
		.fd = -1, .users_fd = -1 \
	}

/* Connect to the one that is there. Returns 0; -ENOENT: none runs, with a message that says where it was looked for. */
int aq_daemon_open(struct aq_daemon *ret, struct aq_err *err);

/* The same, but start a private one where none runs, and keep it until aq_daemon_close(). */
int aq_daemon_open_or_start(struct aq_daemon *ret, struct aq_err *err);

/* Reconnect to the same daemon, which may have been restarted. Returns 0 or -errno. */
int aq_daemon_reopen(struct aq_daemon *d, struct aq_err *err);

/*
 * One request, which is released, and its answer, the caller's. Waits while the daemon does not know its cards yet. -EREMOTEIO: refused, the message is
 * the daemon's and d->code says what kind.
 */
int aq_daemon_call(struct aq_daemon *d, json_t *request, json_t **ret_answer, struct aq_err *err);

/* Let go; see wait_end. */
void aq_daemon_close(struct aq_daemon *d);
