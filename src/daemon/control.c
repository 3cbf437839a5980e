/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/macro.h"
#include "daemon/daemon.h"
#include "daemon/names.h"
#include "daemon/probe-link.h"
#include "proto/control.h"
#include "util/log.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define MAX_CONNECTIONS	     256U
#define MAX_USER_CONNECTIONS 32U
#define MAX_BOUND	     64U /* vgpus that live as long as one connection */
#define HEAD		     4U

struct connection {
	struct aq_list link;
	struct aq_control_server *server;
	struct aqd_caller caller;
	int fd;
	sd_event_source *source;
	uint8_t in[HEAD + AQ_CONTROL_REQUEST_MAX];
	size_t have;
	uint8_t *out;
	size_t out_len, out_done;
	bool waiting; /* for an answer that comes later */
	bool last;    /* end it after this answer */
	char (*bound)[AQD_NAME_SIZE];
	unsigned n_bound;
};

struct aq_control_server {
	struct aqd *d;
	int listen_fd;
	sd_event_source *source;
	struct aq_list connections;
	unsigned n_connections;
	gid_t group;
	bool has_group;
};

static void unbind_all(struct connection *c)
{
	struct aqd *d = c->server->d;

	for (unsigned k = 0; k < c->n_bound; k++) {
		struct aqd_instance *i = aqd_instance_find(d, c->bound[k]);

		/* Programs in it may go on. */
		if (i && i->ephemeral)
			i->orphaned_ns = 1;
	}
	if (c->n_bound)
		aqd_watchdog_hurry(d);
}

static void connection_free(struct connection *c)
{
	aq_probe_forget(c->server->d->probe, c);
	unbind_all(c);
	c->source = sd_event_source_disable_unref(c->source);
	(void)close(c->fd);
	aq_list_remove(&c->link);
	c->server->n_connections--;
	free(c->out);
	free(c->bound);
	free(c);
}

int aq_control_bind(void *conn, const char *name)
{
	struct connection *c = conn;

	if (!c->bound)
		c->bound = calloc(MAX_BOUND, sizeof(*c->bound));
	if (!c->bound || c->n_bound == MAX_BOUND)
		return -ENOMEM;
	(void)snprintf(c->bound[c->n_bound++], AQD_NAME_SIZE, "%s", name);
	return 0;
}

/* Send what there is to send. False: the connection is gone. */
static bool flush(struct connection *c)
{
	while (c->out_done < c->out_len) {
		ssize_t n = send(c->fd, c->out + c->out_done, c->out_len - c->out_done,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			(void)sd_event_source_set_io_events(c->source, EPOLLOUT);
			return true;
		}
		if (n < 0) {
			connection_free(c);
			return false;
		}
		c->out_done += (size_t)n;
	}
	free(c->out);
	c->out = NULL;
	c->out_len = c->out_done = 0;
	if (c->last) {
		connection_free(c);
		return false;
	}
	(void)sd_event_source_set_io_events(c->source, EPOLLIN);
	return true;
}

static bool queue_answer(struct connection *c, json_t *answer)
{
	aq_auto_free char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
	size_t len = text ? strlen(text) : 0;

	json_decref(answer);
	c->out = text && len <= AQ_CONTROL_ANSWER_MAX ? malloc(HEAD + len) : NULL;
	if (!c->out) {
		aq_log_warning("an answer of %zu bytes cannot be sent", len);
		connection_free(c);
		return false;
	}
	aq_control_frame_put(c->out, (uint32_t)len);
	memcpy(c->out + HEAD, text, len);
	c->out_len = HEAD + len;
	return flush(c);
}

static json_t *refusal(int code, const char *text)
{
	return json_pack("{s:b, s:s, s:s}", "ok", 0, "error", text, "code", aqd_errno_name(code));
}

/* One request out of the buffer. False: the connection is gone. */
static bool serve(struct connection *c, uint32_t len)
{
	json_error_t jerr;
	json_t *request =
		json_loadb((const char *)c->in + HEAD, len, JSON_REJECT_DUPLICATES, &jerr);
	json_t *answer;

	c->have -= HEAD + len;
	memmove(c->in, c->in + HEAD + len, c->have);
	if (!request) {
		char text[240];

		(void)snprintf(text, sizeof(text), "the request is not JSON: %s", jerr.text);
		aqd_printable(text);
		c->last = true;
		return queue_answer(c, refusal(-EINVAL, text));
	}
	c->waiting = true;
	answer = aqd_op(c->server->d, &c->caller, request);
	json_decref(request);
	if (!answer)
		return true;
	c->waiting = false;
	return queue_answer(c, answer);
}

/* Whatever is complete, one answer at a time. */
static void serve_all(struct connection *c)
{
	for (;;) {
		uint32_t len;
		int rc;

		if (c->waiting || c->out_len)
			return;
		rc = aq_control_frame(c->in, c->have, AQ_CONTROL_REQUEST_MAX, &len);
		if (rc == 0)
			return;
		if (rc < 0) {
			c->last = true;
			(void)queue_answer(c,
					   refusal(rc, rc == -EMSGSIZE
							       ? "the request is longer than 64 KiB"
							       : "the request is empty"));
			return;
		}
		if (!serve(c, len))
			return;
	}
}

void aq_control_answer(void *conn, json_t *answer)
{
	struct connection *c = conn;

	c->waiting = false;
	if (queue_answer(c, answer))
		serve_all(c);
}

static int on_io(sd_event_source *src, int fd, uint32_t revents, void *opaque)
{
	struct connection *c = opaque;
	ssize_t n;

	(void)src;
	if (revents & EPOLLOUT && c->out_len) {
		if (flush(c))
			serve_all(c);
		return 0;
	}
	/* Full: the next request waits for the answer to this one. A hang-up is seen all the same. */
	if (c->have == sizeof(c->in)) {
		if (revents & (EPOLLHUP | EPOLLERR))
			connection_free(c);
		else
			(void)sd_event_source_set_io_events(c->source, 0);
		return 0;
	}
	n = recv(fd, c->in + c->have, sizeof(c->in) - c->have, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		connection_free(c);
		return 0;
	}
	c->have += (size_t)n;
	serve_all(c);
	return 0;
}

/* Whether the peer is in the group, primarily or besides. */
static bool in_group(int fd, gid_t group, gid_t primary)
{
	gid_t groups[1024];
	socklen_t len = sizeof(groups);

	if (primary == group)
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) < 0)
		return false;
	for (size_t i = 0; i < len / sizeof(groups[0]); i++) {
		if (groups[i] == group)
			return true;
	}
	return false;
}

static bool identify(const struct aq_control_server *s, int fd, struct aqd_caller *ret)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return false;
	ret->uid = cred.uid;
	ret->full = cred.uid == 0 || cred.uid == getuid();
	return ret->full || (s->has_group && in_group(fd, s->group, cred.gid));
}

static unsigned connections_of(const struct aq_control_server *s, uid_t uid)
{
	const struct connection *c;
	unsigned n = 0;

	aq_list_for_each(c, &s->connections, link)
		n += c->caller.uid == uid;
	return n;
}

static int on_connect(sd_event_source *src, int fd, uint32_t revents, void *opaque)
{
	struct aq_control_server *s = opaque;
	struct aqd_caller caller = { 0 };
	struct connection *c;
	int sock = aqd_accept(s->d, fd);

	(void)src;
	(void)revents;
	if (sock < 0)
		return 0;
	if (!identify(s, sock, &caller) || s->n_connections >= MAX_CONNECTIONS ||
	    (caller.uid != 0 && connections_of(s, caller.uid) >= MAX_USER_CONNECTIONS)) {
		aq_log_warning("a control connection of user %u is refused", caller.uid);
		(void)close(sock);
		return 0;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		(void)close(sock);
		return 0;
	}
	c->server = s;
	c->fd = sock;
	c->caller = caller;
	c->caller.conn = c;
	aq_list_push_back(&s->connections, &c->link);
	s->n_connections++;
	if (sd_event_add_io(s->d->event, &c->source, sock, EPOLLIN, on_io, c) < 0)
		connection_free(c);
	return 0;
}

/* The socket from the service manager, or one of our own. */
static int get_socket(struct aq_control_server *s, struct aq_err *err)
{
	char path[PATH_MAX];
	int fd = aqd_store_take(s->d, "control", "");

	if (fd >= 0)
		return fd;
	(void)snprintf(path, sizeof(path), "%s/" AQ_CONTROL_SOCKET, s->d->cfg.dir);
	fd = aqd_listen(path, SOCK_STREAM, s->has_group ? 0660 : 0600, err);
	if (fd >= 0 && s->has_group && lchown(path, (uid_t)-1, s->group) < 0)
		aq_log_warning("cannot give %s to its group: %s", path, strerror(errno));
	return fd;
}

int aq_control_server_start(struct aqd *d, struct aq_control_server **ret, struct aq_err *err)
{
	struct aq_control_server *s = calloc(1, sizeof(*s));
	const struct group *gr = d->cfg.group ? getgrnam(d->cfg.group) : NULL;
	int rc;

	if (!s)
		return aq_err_set(err, -ENOMEM, "no memory for the control socket");
	s->d = d;
	aq_list_init(&s->connections);
	s->has_group = gr != NULL;
	if (gr)
		s->group = gr->gr_gid;
	s->listen_fd = get_socket(s, err);
	if (s->listen_fd < 0) {
		rc = s->listen_fd;
		free(s);
		return rc;
	}
	rc = sd_event_add_io(d->event, &s->source, s->listen_fd, EPOLLIN, on_connect, s);
	if (rc < 0) {
		aq_control_server_free(s);
		return aq_err_set(err, rc, "cannot watch the control socket: %s", strerror(-rc));
	}
	*ret = s;
	return 0;
}

void aq_control_server_free(struct aq_control_server *s)
{
	struct connection *c;
	struct connection *tmp;

	if (!s)
		return;
	aq_list_for_each_safe(c, tmp, &s->connections, link) {
		/* Not the connection ends but the daemon: vgpus stay. */
		c->n_bound = 0;
		connection_free(c);
	}
	s->source = sd_event_source_disable_unref(s->source);
	if (s->listen_fd >= 0)
		(void)close(s->listen_fd);
	free(s);
}
