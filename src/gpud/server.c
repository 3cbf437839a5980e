/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/server.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/fd.h"
#include "gpud/session.h"
#include "util/list.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#define LISTEN_BACKLOG 128

/* A session as the loop sees it. */
struct client {
	struct aq_list link;
	struct aq_gpud_server *server;
	struct aq_gpud_session *session;
	sd_event_source *hangup;
	bool ended; /* under server->lock */
};

struct aq_gpud_server {
	struct aq_gpud_backend backend;
	int listen_fd;
	int spare_fd; /* given up to accept, and close, one more connection when there are no descriptors */
	int wake_fd; /* eventfd: a session has ended, or stop */
	sd_event *event;
	sd_event_source *accept_source;
	sd_event_source *wake_source;
	pthread_mutex_t lock;
	struct aq_list clients; /* changed by the loop only, under lock */
	unsigned n_clients;
	bool stop;
};

static void wake(struct aq_gpud_server *s)
{
	uint64_t one = 1;

	/* The counter cannot overflow in practice, and a full one wakes as well. */
	if (write(s->wake_fd, &one, sizeof(one)) < 0)
		aq_log_debug("cannot wake the loop: %s", strerror(errno));
}

/* On the session's thread. */
static void on_ended(struct aq_gpud_session *session, void *opaque)
{
	struct client *c = opaque;
	struct aq_gpud_server *s = c->server;

	(void)session;
	(void)pthread_mutex_lock(&s->lock);
	c->ended = true;
	/* Under the lock: afterwards the server may be gone. */
	wake(s);
	(void)pthread_mutex_unlock(&s->lock);
}

static int on_hangup(sd_event_source *src, int fd, uint32_t revents, void *opaque)
{
	struct client *c = opaque;

	(void)fd;
	(void)revents;
	(void)sd_event_source_set_enabled(src, SD_EVENT_OFF);
	aq_gpud_session_shutdown(c->session);
	return 0;
}

static void client_free(struct client *c)
{
	struct aq_gpud_server *s = c->server;

	c->hangup = sd_event_source_unref(c->hangup);
	aq_gpud_session_free(c->session);
	(void)pthread_mutex_lock(&s->lock);
	aq_list_remove(&c->link);
	s->n_clients--;
	(void)pthread_mutex_unlock(&s->lock);
	free(c);
}

static void reap(struct aq_gpud_server *s, bool all)
{
	struct client *c;
	struct client *tmp;

	aq_list_for_each_safe(c, tmp, &s->clients, link) {
		bool ended;

		(void)pthread_mutex_lock(&s->lock);
		ended = c->ended;
		(void)pthread_mutex_unlock(&s->lock);
		if (ended || all)
			client_free(c);
	}
}

static int on_wake(sd_event_source *src, int fd, uint32_t revents, void *opaque)
{
	struct aq_gpud_server *s = opaque;
	uint64_t count;
	bool stop;

	(void)src;
	(void)revents;
	if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return -errno;
	reap(s, false);
	(void)pthread_mutex_lock(&s->lock);
	stop = s->stop;
	(void)pthread_mutex_unlock(&s->lock);
	return stop ? sd_event_exit(s->event, 0) : 0;
}

/* Serve a new connection, or close it with the cause in the log. */
static void add_client(struct aq_gpud_server *s, int sock)
{
	struct client *c;
	int rc;

	if (s->n_clients >= AQ_GPUD_MAX_SESSIONS) {
		aq_log_warning("connection refused: %u sessions are open", s->n_clients);
		(void)close(sock);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		(void)close(sock);
		return;
	}
	c->server = s;
	(void)pthread_mutex_lock(&s->lock);
	aq_list_push_back(&s->clients, &c->link);
	s->n_clients++;
	(void)pthread_mutex_unlock(&s->lock);
	rc = aq_gpud_session_start(&s->backend, sock, on_ended, c, &c->session);
	if (rc < 0) {
		aq_log_warning("cannot start a session: %s", strerror(-rc));
		client_free(c);
		return;
	}
	rc = sd_event_add_io(s->event, &c->hangup, aq_gpud_session_watch_fd(c->session), EPOLLRDHUP,
			     on_hangup, c);
	if (rc < 0) {
		/* Unwatched, its death would go unseen. */
		aq_log_warning("cannot watch a session: %s", strerror(-rc));
		aq_gpud_session_shutdown(c->session);
	}
}

static int on_accept(sd_event_source *src, int fd, uint32_t revents, void *opaque)
{
	struct aq_gpud_server *s = opaque;
	int sock = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

	(void)src;
	(void)revents;
	if (sock >= 0) {
		add_client(s, sock);
		return 0;
	}
	if ((errno == EMFILE || errno == ENFILE) && s->spare_fd >= 0) {
		/* Turn it away, or it would keep the loop busy until a descriptor is free. */
		aq_log_error("connection refused: %s", strerror(errno));
		(void)close(s->spare_fd);
		sock = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		if (sock >= 0)
			(void)close(sock);
		s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	return 0;
}

int aq_gpud_server_new(const struct aq_gpud_backend *backend, int listen_fd,
		       struct aq_gpud_server **ret, struct aq_err *err)
{
	struct aq_gpud_server *s = calloc(1, sizeof(*s));
	int rc = -ENOMEM;

	if (!s) {
		(void)close(listen_fd);
		return aq_err_set(err, rc, "no memory for the server");
	}
	s->backend = *backend;
	s->listen_fd = listen_fd;
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	aq_list_init(&s->clients);
	(void)pthread_mutex_init(&s->lock, NULL);
	if (s->wake_fd < 0 || fcntl(listen_fd, F_SETFL, O_NONBLOCK) < 0)
		rc = -errno;
	else
		rc = sd_event_new(&s->event);
	if (rc >= 0)
		rc = sd_event_add_io(s->event, &s->accept_source, listen_fd, EPOLLIN, on_accept, s);
	if (rc >= 0)
		rc = sd_event_add_io(s->event, &s->wake_source, s->wake_fd, EPOLLIN, on_wake, s);
	if (rc < 0) {
		aq_gpud_server_free(s);
		return aq_err_set(err, rc, "cannot set the event loop up: %s", strerror(-rc));
	}
	*ret = s;
	return 0;
}

int aq_gpud_server_run(struct aq_gpud_server *s, int handle_signals, struct aq_err *err)
{
	int rc = 0;

	if (handle_signals) {
		rc = sd_event_add_signal(s->event, NULL, SIGTERM, NULL, NULL);
		if (rc >= 0)
			rc = sd_event_add_signal(s->event, NULL, SIGINT, NULL, NULL);
	}
	if (rc >= 0)
		rc = sd_event_loop(s->event);
	if (rc < 0)
		return aq_err_set(err, rc, "event loop failed: %s", strerror(-rc));
	return 0;
}

void aq_gpud_server_stop(struct aq_gpud_server *s)
{
	(void)pthread_mutex_lock(&s->lock);
	s->stop = true;
	wake(s);
	(void)pthread_mutex_unlock(&s->lock);
}

void aq_gpud_server_free(struct aq_gpud_server *s)
{
	struct client *c;

	if (!s)
		return;
	/* First all, so that they end side by side. */
	aq_list_for_each(c, &s->clients, link)
		aq_gpud_session_shutdown(c->session);
	reap(s, true);
	(void)sd_event_source_unref(s->accept_source);
	(void)sd_event_source_unref(s->wake_source);
	(void)sd_event_unref(s->event);
	if (s->wake_fd >= 0)
		(void)close(s->wake_fd);
	if (s->spare_fd >= 0)
		(void)close(s->spare_fd);
	(void)close(s->listen_fd);
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

unsigned aq_gpud_server_sessions(struct aq_gpud_server *s)
{
	unsigned n;

	(void)pthread_mutex_lock(&s->lock);
	n = s->n_clients;
	(void)pthread_mutex_unlock(&s->lock);
	return n;
}

int aq_gpud_listen(const char *path, struct aq_err *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	aq_auto_close int fd = -1;
	int probe;
	int rc;

	if (strlen(path) >= sizeof(sa.sun_path))
		return aq_err_set(err, -ENAMETOOLONG, "socket path \"%s\" is longer than %zu bytes",
				  path, sizeof(sa.sun_path) - 1);
	(void)strcpy(sa.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return aq_err_set(err, -errno, "cannot make a socket: %s", strerror(errno));
	probe = aq_fd_connect_unix(path);
	if (probe >= 0) {
		(void)close(probe);
		return aq_err_set(err, -EADDRINUSE, "another server listens at %s", path);
	}
	if (probe == -ECONNREFUSED)
		(void)unlink(path);
	/* Nobody can connect before listen(), so the mode is in force in time. */
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		rc = -errno;
		return aq_err_set(err, rc, "cannot bind %s: %s", path, strerror(-rc));
	}
	if (chmod(path, 0600) < 0 || listen(fd, LISTEN_BACKLOG) < 0) {
		rc = -errno;
		(void)unlink(path);
		return aq_err_set(err, rc, "cannot listen at %s: %s", path, strerror(-rc));
	}
	return aq_take_fd(fd);
}
