/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/session.h"

#include "base/err.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DRIVER_VERSION 13000

struct aq_gpud_session {
	const struct aq_gpud_backend *backend;
	pthread_t thread;
	void (*ended)(struct aq_gpud_session *s, void *opaque);
	void *opaque;
	int sock; /* until the handshake takes it over, then -1 */
	int watch; /* the same socket, ours until the free: to see and to cause a hang-up at any time */
	pid_t pid;
	uid_t uid;

	pthread_mutex_t lock; /* what a shutdown from another thread looks at */
	bool stopping;
	struct aq_conn *conn;
	void *inner; /* the back end's session */

	_Alignas(16) uint8_t answer[AQ_WIRE_MAX_PAYLOAD];
};

static void handle(struct aq_gpud_session *s, const struct aq_request *rq)
{
	const struct aq_gpud_ops *ops = s->backend->ops;
	struct aq_gpud_answer ans = { .data = s->answer, .fd = -1 };
	int rc = ops->op[rq->op] ? ops->op[rq->op](s->inner, rq, &ans) : AQ_E_NOT_SUPPORTED;

	if (rc == AQ_GPUD_LATER)
		return;
	if (rq->slot == AQ_WIRE_NO_SLOT) {
		if (rc != AQ_OK)
			ops->failed(s->inner, rq, (enum aq_status)rc);
		return;
	}
	if (rc == AQ_OK && ans.fd >= 0) {
		int sent = aq_conn_send_fd(s->conn, ans.fd);

		/* The client would wait for the fd for ever: it has gone, or does not read. */
		if (sent < 0) {
			aq_log_debug("cannot pass an fd to process %d: %s", (int)s->pid,
				     strerror(-sent));
			aq_gpud_session_shutdown(s);
			return;
		}
	}
	aq_conn_reply(s->conn, rq->slot, (enum aq_status)rc, ans.data, ans.len);
}

static void serve(struct aq_gpud_session *s)
{
	struct aq_request rq;
	struct aq_err err = { 0 };
	int rc;

	while ((rc = aq_conn_next(s->conn, &rq, &err)) > 0)
		handle(s, &rq);
	if (rc < 0)
		aq_log_warning("session of process %d ended: %s", (int)s->pid, err.msg);
}

/* Exchange hello and make the back end's session. Returns 0 or -errno. */
static int begin(struct aq_gpud_session *s)
{
	struct aq_conn_config cfg = {
		.caps = AQ_CAP_SHM | AQ_CAP_FDS | AQ_CAP_MANAGED,
		.n_cards = s->backend->n_cards,
		.driver_version = DRIVER_VERSION,
		.server_name = "aliquot-gpud",
	};
	struct aq_conn *conn = NULL;
	struct aq_gpud_peer peer;
	struct aq_err err = { 0 };
	void *inner = NULL;
	int sock = s->sock;
	int rc;

	s->sock = -1;
	rc = aq_conn_accept(sock, &cfg, &conn, &err);
	if (rc < 0) {
		aq_log_info("no session with process %d: %s", (int)s->pid, err.msg);
		return rc;
	}
	peer = (struct aq_gpud_peer){
		.conn = conn,
		.pid = s->pid,
		.uid = s->uid,
		.name = aq_conn_hello(conn)->name,
		.arena_base = aq_conn_hello(conn)->arena_base,
		.arena_size = aq_conn_hello(conn)->arena_size,
	};
	rc = s->backend->ops->open(s->backend->opaque, &peer, &inner);
	if (rc < 0) {
		aq_log_warning("no session for process %d: %s", (int)s->pid, strerror(-rc));
		aq_conn_shutdown(conn);
		aq_conn_free(conn);
		return rc;
	}
	(void)pthread_mutex_lock(&s->lock);
	s->conn = conn;
	s->inner = inner;
	if (s->stopping)
		aq_conn_shutdown(conn);
	(void)pthread_mutex_unlock(&s->lock);
	return 0;
}

static void *session_main(void *arg)
{
	struct aq_gpud_session *s = arg;

	if (begin(s) == 0) {
		struct aq_conn *conn = s->conn;
		void *inner = s->inner;

		serve(s);
		aq_gpud_session_shutdown(s);
		(void)pthread_mutex_lock(&s->lock);
		s->conn = NULL;
		s->inner = NULL;
		(void)pthread_mutex_unlock(&s->lock);
		s->backend->ops->close(inner);
		aq_conn_free(conn);
	}
	s->ended(s, s->opaque);
	return NULL;
}

int aq_gpud_session_start(const struct aq_gpud_backend *backend, int sock,
			  void (*ended)(struct aq_gpud_session *s, void *opaque), void *opaque,
			  struct aq_gpud_session **ret)
{
	struct aq_gpud_session *s = calloc(1, sizeof(*s));
	struct ucred cred = { .pid = -1, .uid = (uid_t)-1 };
	socklen_t len = sizeof(cred);
	int rc;

	if (!s) {
		(void)close(sock);
		return -ENOMEM;
	}
	s->watch = fcntl(sock, F_DUPFD_CLOEXEC, 3);
	if (s->watch < 0 || getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
		rc = -errno;
		goto fail;
	}
	s->backend = backend;
	s->ended = ended;
	s->opaque = opaque;
	s->sock = sock;
	s->pid = cred.pid;
	s->uid = cred.uid;
	(void)pthread_mutex_init(&s->lock, NULL);
	*ret = s; /* before the thread can call `ended` */
	rc = pthread_create(&s->thread, NULL, session_main, s);
	if (rc) {
		*ret = NULL;
		(void)pthread_mutex_destroy(&s->lock);
		rc = -rc;
		goto fail;
	}
	return 0;
fail:
	if (s->watch >= 0)
		(void)close(s->watch);
	(void)close(sock);
	free(s);
	return rc;
}

int aq_gpud_session_watch_fd(const struct aq_gpud_session *s)
{
	return s->watch;
}

void aq_gpud_session_shutdown(struct aq_gpud_session *s)
{
	(void)pthread_mutex_lock(&s->lock);
	s->stopping = true;
	if (s->conn) {
		aq_conn_shutdown(s->conn);
		s->backend->ops->interrupt(s->inner);
	} else {
		(void)shutdown(s->watch, SHUT_RDWR);
	}
	(void)pthread_mutex_unlock(&s->lock);
}

void aq_gpud_session_free(struct aq_gpud_session *s)
{
	if (!s)
		return;
	(void)pthread_join(s->thread, NULL);
	(void)pthread_mutex_destroy(&s->lock);
	(void)close(s->watch);
	free(s);
}
