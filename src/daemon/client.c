/* SPDX-License-Identifier: Apache-2.0 */
/* The attach sockets: who connects, which slot it gets, and when it ends. Everything that comes in here is foreign. */
#include "daemon/daemon.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/macro.h"
#include "daemon/slots.h"
#include "util/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* Linux 6.5; absent from older headers. */
#ifndef SO_PEERPIDFD
#	define SO_PEERPIDFD 77
#endif

/* Somebody may send descriptors along with anything; they are taken only to be closed. */
#define FOREIGN_FDS 16

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t aqd_client_counted(const struct aqd_client *c, unsigned card)
{
	struct aq_account *a = &c->instance->report->account[card][c->slot];
	uint64_t sum = add_saturating(atomic_load(&a->pending), atomic_load(&a->used));

	return add_saturating(sum, atomic_load(&a->overhead));
}

/* Where there is no pidfd to say so. */
static bool is_same_process(const struct aqd_client *c)
{
	struct aqd_process_id id = { 0 };

	return aqd_process_identify(c->pid, &id) == 0 && id.start_time == c->id.start_time;
}

bool aqd_client_signal(const struct aqd_client *c, int sig)
{
	if (c->pidfd >= 0)
		return syscall(SYS_pidfd_send_signal, c->pidfd, sig, NULL, 0) == 0;
	/* Without a pidfd the number is all there is; its start time tells a later process. */
	return is_same_process(c) && kill(c->pid, sig) == 0;
}

static bool is_alive(const struct aqd_client *c)
{
	struct pollfd p = { .fd = c->pidfd, .events = POLLIN };

	if (c->ended_ns)
		return false;
	if (c->pidfd >= 0)
		return poll(&p, 1, 0) == 0;
	return is_same_process(c);
}

static void zero_accounts(struct aqd_instance *i, uint32_t slot)
{
	for (unsigned k = 0; k < i->n_cards; k++) {
		struct aq_account *a = &i->report->account[k][slot];

		atomic_store(&a->pending, 0);
		atomic_store(&a->used, 0);
		atomic_store(&a->overhead, 0);
		atomic_store(&a->spill, 0);
	}
}

void aqd_conn_free(struct aqd_conn *c)
{
	if (!c)
		return;
	if (c->client)
		c->client->n_connections--;
	else
		c->instance->n_greeting--;
	aq_list_remove(&c->link);
	c->source = sd_event_source_disable_unref(c->source);
	c->timer = sd_event_source_disable_unref(c->timer);
	(void)close(c->fd);
	free(c);
}

void aqd_client_free(struct aqd_client *c)
{
	struct aqd_conn *conn;
	struct aqd_conn *tmp;

	if (!c)
		return;
	aq_list_for_each_safe(conn, tmp, &c->connections, link)
		aqd_conn_free(conn);
	c->pidfd_source = sd_event_source_disable_unref(c->pidfd_source);
	if (c->pidfd >= 0)
		(void)close(c->pidfd);
	aq_list_remove(&c->link);
	aq_list_remove(&c->pid_link);
	c->instance->by_slot[c->slot] = NULL;
	c->instance->n_clients--;
	free(c);
}

void aqd_client_release(struct aqd_client *c)
{
	struct aqd_instance *i = c->instance;
	struct aq_report_client *r = &i->report->client[c->slot];

	i->refusals = add_saturating(i->refusals, atomic_load(&r->refusals));
	if (atomic_load(&r->refused_ns) > i->refused_ns &&
	    atomic_load(&r->refused_ns) <= aq_now_ns()) {
		i->refused_ns = atomic_load(&r->refused_ns);
		i->refused_bytes = atomic_load(&r->refused_bytes);
		i->refused_card = atomic_load(&r->refused_card);
	}
	zero_accounts(i, c->slot);
	memset((void *)r, 0, sizeof(*r));
	atomic_store(&i->slots->entry[c->slot].pid, 0);
	aqd_client_free(c);
}

/* The process is gone, its memory perhaps not yet. */
static void client_ended(struct aqd_client *c)
{
	struct aqd_conn *conn;
	struct aqd_conn *tmp;

	if (c->ended_ns)
		return;
	c->ended_ns = aq_now_ns();
	c->pidfd_source = sd_event_source_disable_unref(c->pidfd_source);
	aq_list_for_each_safe(conn, tmp, &c->connections, link)
		aqd_conn_free(conn);
	/* What it was asking for counts as had: others do not have to wait for an answer that never comes. Added before it is taken away. */
	for (unsigned k = 0; k < c->instance->n_cards; k++) {
		struct aq_account *a = &c->instance->report->account[k][c->slot];
		uint64_t pending = atomic_load(&a->pending);

		if (!pending)
			continue;
		atomic_store(&a->used, add_saturating(atomic_load(&a->used), pending));
		atomic_store(&a->pending, 0);
	}
	aqd_watchdog_hurry(c->instance->d);
}

static int on_pidfd(sd_event_source *src, int fd, uint32_t revents, void *opaque)
{
	(void)src;
	(void)fd;
	(void)revents;
	client_ended(opaque);
	return 0;
}

/* The connection ended, or is no use any more. */
static void conn_lost(struct aqd_conn *conn)
{
	struct aqd_client *c = conn->client;

	aqd_conn_free(conn);
	/* With a pidfd the process's own end counts: it may have closed its descriptors and live on. */
	if (c && !c->n_connections && (c->pidfd < 0 || !is_alive(c)))
		client_ended(c);
}

static struct aq_list *bucket_of(struct aqd *d, pid_t pid)
{
	return &d->by_pid[(unsigned)pid % AQD_PID_BUCKETS];
}

struct aqd_client *aqd_client_by_pid(struct aqd *d, pid_t pid)
{
	struct aqd_client *ended = NULL;
	struct aqd_client *c;

	aq_list_for_each(c, bucket_of(d, pid), pid_link) {
		if (c->pid != pid)
			continue;
		if (!c->ended_ns)
			return c;
		ended = c;
	}
	return ended;
}

static int free_slot(const struct aqd_instance *i, int wanted)
{
	if (wanted >= 0 && wanted < (int)AQ_MAX_CLIENTS && !i->by_slot[wanted])
		return wanted;
	for (unsigned s = 0; s < AQ_MAX_CLIENTS; s++) {
		if (!i->by_slot[s])
			return (int)s;
	}
	return -EUSERS;
}

static struct aqd_client *client_alloc(struct aqd_instance *i, uint32_t slot, pid_t pid)
{
	struct aqd_client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->instance = i;
	c->slot = slot;
	c->pid = pid;
	c->pidfd = -1;
	aq_list_push_back(bucket_of(i->d, pid), &c->pid_link);
	aq_list_init(&c->connections);
	aq_list_push_back(&i->clients, &c->link);
	i->n_clients++;
	i->by_slot[slot] = c;
	/* Before anybody writes to the slot. */
	if (slot >= atomic_load(&i->control->slots_high))
		atomic_store(&i->control->slots_high, slot + 1);
	return c;
}

static int watch_pidfd(struct aqd_client *c)
{
	if (c->pidfd < 0)
		return 0;
	return sd_event_add_io(c->instance->d->event, &c->pidfd_source, c->pidfd, EPOLLIN, on_pidfd,
			       c);
}

int aqd_client_adopt(struct aqd_instance *i, pid_t pid, const struct aqd_process_id *id, uid_t uid,
		     uint32_t slot, const char *program)
{
	struct aqd_client *c = client_alloc(i, slot, pid);

	if (!c)
		return -ENOMEM;
	c->id = *id;
	c->uid = uid;
	(void)snprintf(c->program, sizeof(c->program), "%s", program);
	aqd_printable(c->program);
	c->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	/* In this order: the number cannot change hands while the descriptor is open. */
	if (!is_same_process(c) || watch_pidfd(c) < 0)
		client_ended(c);
	return 0;
}

/* Who is at the other end, as the kernel says. */
struct peer {
	pid_t pid;
	uid_t uid;
	int pidfd; /* -1: none to be had */
	struct aqd_process_id id;
};

static int identify(const struct aqd_conn *conn, struct peer *ret, struct aq_err *err)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	struct pollfd p = { .fd = conn->fd, .events = POLLIN };
	int pidfd = -1;

	if (getsockopt(conn->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return aq_err_set(err, -errno, "the kernel does not say who you are: %s",
				  strerror(errno));
	if (cred.pid <= 0)
		return aq_err_set(
			err, -EACCES,
			"your process is not visible to the daemon (another pid namespace)");
	len = sizeof(pidfd);
	if (getsockopt(conn->fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) < 0) {
		pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
		/* The number may have changed hands before that; then the connection is at its end. */
		if (pidfd >= 0 && poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR))) {
			(void)close(pidfd);
			return aq_err_set(err, -ESRCH, "your process has ended");
		}
	}
	*ret = (struct peer){ .pid = cred.pid, .uid = cred.uid, .pidfd = pidfd };
	(void)aqd_process_identify(cred.pid, &ret->id);
	return 0;
}

/* What hello claims against what the kernel and the instance say. */
static int check_peer(const struct aqd_instance *i, const struct aq_attach_hello *h,
		      const struct peer *peer, struct aq_err *err)
{
	pid_t inner;

	if (h->version_min > AQ_ATTACH_VERSION || h->version < AQ_ATTACH_VERSION_MIN)
		return aq_err_set(
			err, -EPROTONOSUPPORT,
			"the library speaks versions %u to %u of the attach protocol, the daemon %u to %u",
			h->version_min, h->version, AQ_ATTACH_VERSION_MIN, AQ_ATTACH_VERSION);
	if (h->pages_version != AQ_PAGES_VERSION)
		return aq_err_set(err, -EPROTONOSUPPORT,
				  "the library knows version %u of the pages, the daemon makes %u",
				  h->pages_version, AQ_PAGES_VERSION);
	if (!i->access_any && peer->uid != 0 && peer->uid != i->owner && peer->uid != getuid())
		return aq_err_set(err, -EACCES, "vgpu \"%s\" belongs to user %u, you are user %u",
				  i->name, i->owner, peer->uid);
	/* The same number needs no further look. */
	if (h->pid == (uint32_t)peer->pid)
		return 0;
	inner = aqd_process_inner_pid(peer->pid);
	if (inner > 0 && (uint32_t)inner != h->pid)
		return aq_err_set(err, -EACCES,
				  "the library says that it is process %u, the kernel says %d",
				  h->pid, inner);
	return 0;
}

/* The client that this very process is already, or NULL. */
static struct aqd_client *known_client(struct aqd *d, const struct peer *peer)
{
	struct aqd_client *c = aqd_client_by_pid(d, peer->pid);

	if (!c || c->ended_ns)
		return NULL;
	if (is_alive(c) && c->id.start_time == peer->id.start_time)
		return c;
	/* The number has been given to another process; that the first has ended is not noticed yet. */
	client_ended(c);
	return NULL;
}

static void take_program(struct aqd_client *c, const struct aq_attach_hello *h)
{
	memcpy(c->program, h->program, sizeof(c->program));
	c->program[sizeof(c->program) - 1] = '\0';
	aqd_printable(c->program);
}

static void remember(const struct aqd_client *c)
{
	struct aq_slot_entry *e = &c->instance->slots->entry[c->slot];

	e->uid = c->uid;
	e->start_time = c->id.start_time;
	e->image = c->id.image;
	memcpy(e->program, c->program, sizeof(e->program));
	memset(e->used, 0, sizeof(e->used));
	memset(e->overhead, 0, sizeof(e->overhead));
	atomic_store(&e->pid, (uint32_t)c->pid);
}

/* A new client, which takes over peer->pidfd; or NULL. */
static struct aqd_client *new_client(struct aqd_instance *i, const struct aq_attach_hello *h,
				     struct peer *peer, struct aq_err *err)
{
	int wanted = h->flags & AQ_HELLO_REATTACH && h->slot < AQ_MAX_CLIENTS ? (int)h->slot : -1;
	int slot = free_slot(i, wanted);
	struct aqd_client *c;
	int rc;

	if (slot < 0) {
		(void)aq_err_set(err, -EUSERS, "vgpu \"%s\" has %u programs already, the maximum",
				 i->name, AQ_MAX_CLIENTS);
		return NULL;
	}
	c = client_alloc(i, (uint32_t)slot, peer->pid);
	if (!c) {
		(void)aq_err_set(err, -ENOMEM, "the daemon has no memory");
		return NULL;
	}
	zero_accounts(i, c->slot);
	c->uid = peer->uid;
	c->id = peer->id;
	c->pidfd = aq_take_fd(peer->pidfd);
	take_program(c, h);
	rc = watch_pidfd(c);
	if (rc < 0) {
		aqd_client_free(c);
		(void)aq_err_set(err, rc, "the daemon cannot watch your process: %s",
				 strerror(-rc));
		return NULL;
	}
	remember(c);
	return c;
}

/* The client whose hello that is, old or new; or NULL. */
static struct aqd_client *find_client(struct aqd_conn *conn, const struct aq_attach_hello *h,
				      struct peer *peer, struct aq_err *err)
{
	struct aqd_instance *i = conn->instance;
	struct aqd_client *c = known_client(i->d, peer);

	if (c && c->instance != i) {
		if (c->n_connections) {
			(void)aq_err_set(err, -EBUSY, "your process belongs to vgpu \"%s\" already",
					 c->instance->name);
			return NULL;
		}
		/* A new program in the same process: the driver has taken back what the old one had. */
		client_ended(c);
		c = NULL;
	}
	if (!c)
		return new_client(i, h, peer, err);
	if (c->n_connections >= AQD_MAX_CONNECTIONS) {
		(void)aq_err_set(err, -EMFILE, "your process has %u connections already",
				 c->n_connections);
		return NULL;
	}
	/*
	 * A new program in the same process: the driver has taken back what the old one held. Where we cannot see whether it is a new one, the
	 * library's word counts: it falsifies no account but its own.
	 */
	if (!c->n_connections && !(h->flags & AQ_HELLO_REATTACH) &&
	    (c->id.image != peer->id.image || !peer->id.image)) {
		zero_accounts(i, c->slot);
		c->id = peer->id;
		take_program(c, h);
		remember(c);
	}
	return c;
}

/* Never waits: one that does not read its answers loses its connection. */
static int send_packet(int fd, const void *buf, size_t len, const int *fds, unsigned n_fds)
{
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds) {
		struct cmsghdr *cm;

		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, n_fds * sizeof(int));
	}
	return sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static int send_welcome(struct aqd_conn *conn, const struct aqd_client *c, int status,
			const struct aq_err *why)
{
	const struct aqd_config *cfg = &conn->instance->d->cfg;
	int fds[] = { conn->instance->control_fd, conn->instance->report_fd };
	struct aq_attach_welcome w = {
		.h = { AQ_ATTACH_MAGIC, AQ_ATTACH_WELCOME, sizeof(w) },
		.version = AQ_ATTACH_VERSION,
		.status = status,
		.epoch = conn->instance->d->epoch,
	};

	if (!c) {
		(void)snprintf(w.message, sizeof(w.message), "%s", why->msg);
		return send_packet(conn->fd, &w, sizeof(w), NULL, 0);
	}
	w.slot = c->slot;
	w.control_size = sizeof(struct aq_control_page);
	w.report_size = sizeof(struct aq_report_page);
	memcpy(w.cuda_provider, cfg->cuda_provider, sizeof(w.cuda_provider));
	memcpy(w.nvml_provider, cfg->nvml_provider, sizeof(w.nvml_provider));
	return send_packet(conn->fd, &w, sizeof(w), fds, 2);
}

/* Move the connection from the waiting room to its client. */
static void seat(struct aqd_conn *conn, struct aqd_client *c)
{
	aq_list_remove(&conn->link);
	conn->instance->n_greeting--;
	conn->client = c;
	conn->timer = sd_event_source_disable_unref(conn->timer);
	aq_list_push_back(&c->connections, &conn->link);
	c->n_connections++;
}

/* Whoever is refused may try as often as it likes; the log is others', too. */
static void note_refusal(struct aqd_instance *i, pid_t pid, const struct aq_err *err)
{
	uint64_t now = aq_now_ns();

	i->unnoted++;
	if (now - i->noted_ns < AQ_NS_PER_S)
		return;
	aqd_note(i->d, i->name, "process %d refused (%u since the last such line): %s", pid,
		 i->unnoted, err->msg);
	i->noted_ns = now;
	i->unnoted = 0;
}

static int on_hello(struct aqd_conn *conn, const struct aq_attach_hello *h)
{
	struct aqd_instance *i = conn->instance;
	struct peer peer = { .pidfd = -1 };
	struct aqd_client *c = NULL;
	struct aq_err err = { 0 };
	int rc = identify(conn, &peer, &err);

	if (rc == 0)
		rc = check_peer(i, h, &peer, &err);
	if (rc == 0)
		c = find_client(conn, h, &peer, &err);
	if (peer.pidfd >= 0)
		(void)close(peer.pidfd);
	if (!c) {
		note_refusal(i, peer.pid, &err);
		(void)send_welcome(conn, NULL, err.code, &err);
		return err.code;
	}
	seat(conn, c);
	rc = send_welcome(conn, c, 0, NULL);
	/* It may connect, and is stopped like the others until the thaw. */
	if (rc == 0 && i->frozen)
		(void)aqd_client_signal(c, SIGSTOP);
	return rc;
}

static bool others_are_away(const struct aqd_instance *i)
{
	const struct aqd_client *c;

	if (aq_now_ns() >= i->return_until_ns)
		return false;
	aq_list_for_each(c, &i->clients, link) {
		if (!c->ended_ns && !c->n_connections)
			return true;
	}
	return false;
}

static void let_in(struct aqd_instance *i)
{
	struct aqd_conn *conn;
	struct aqd_conn *tmp;

	i->return_source = sd_event_source_disable_unref(i->return_source);
	aq_list_for_each_safe(conn, tmp, &i->greeting, link) {
		if (conn->held && on_hello(conn, &conn->hello) < 0)
			conn_lost(conn);
	}
}

static int on_return(sd_event_source *src, uint64_t usec, void *opaque)
{
	struct aqd_instance *i = opaque;

	(void)usec;
	if (!others_are_away(i)) {
		let_in(i);
		return 0;
	}
	(void)sd_event_source_set_time_relative(src, AQD_RETURN_US);
	return sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
}

int aqd_client_expect(struct aqd_instance *i)
{
	i->return_until_ns = aq_now_ns() + AQD_RETURN_NS;
	if (!others_are_away(i))
		return 0;
	return sd_event_add_time_relative(i->d->event, &i->return_source, CLOCK_MONOTONIC,
					  AQD_RETURN_US, 1000, on_return, i);
}

static int on_settle(struct aqd_conn *conn, const struct aq_attach_settle *s)
{
	if (s->card >= conn->instance->n_cards)
		return -EPROTO;
	conn->settle[s->card].waiting = true;
	conn->settle[s->card].since_ns = aq_now_ns();
	aqd_watchdog_hurry(conn->instance->d);
	return 0;
}

void aqd_conn_settled(struct aqd_conn *c, unsigned card, bool known, uint64_t bytes)
{
	struct aq_attach_settled s = {
		.h = { AQ_ATTACH_MAGIC, AQ_ATTACH_SETTLED, sizeof(s) },
		.card = card,
		.known = known,
		.bytes = bytes,
	};

	c->settle[card].waiting = false;
	/* A full socket is the client's own doing; what is in it is seen when it is read. */
	(void)send_packet(c->fd, &s, sizeof(s), NULL, 0);
}

/* One packet. Its length, 0 at the end, or -errno. */
static ssize_t receive(int fd, void *buf, size_t size)
{
	union {
		char buf[CMSG_SPACE(FOREIGN_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = buf, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.buf,
			      .msg_controllen = sizeof(control.buf) };
	ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t k = 0; k < count; k++) {
			int got;

			memcpy(&got, CMSG_DATA(c) + k * sizeof(int), sizeof(got));
			(void)close(got);
		}
	}
	return msg.msg_flags & MSG_TRUNC ? -EMSGSIZE : n;
}

static int on_packet(struct aqd_conn *conn, const void *buf, uint32_t len)
{
	struct aq_attach_settle settle;
	struct aq_attach_hello hello;
	int op = aq_attach_check(buf, len);

	if (op == AQ_ATTACH_HELLO && !conn->client && !conn->held) {
		memcpy(&hello, buf, sizeof(hello));
		if (!conn->instance->return_source || hello.flags & AQ_HELLO_REATTACH)
			return on_hello(conn, &hello);
		conn->held = true;
		conn->hello = hello;
		return 0;
	}
	if (op == AQ_ATTACH_SETTLE && conn->client) {
		memcpy(&settle, buf, sizeof(settle));
		return on_settle(conn, &settle);
	}
	return -EPROTO;
}

static int on_readable(sd_event_source *src, int fd, uint32_t revents, void *opaque)
{
	_Alignas(8) char buf[AQ_ATTACH_MAX];
	struct aqd_conn *conn = opaque;
	ssize_t n = receive(fd, buf, sizeof(buf));

	(void)src;
	(void)revents;
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0 || on_packet(conn, buf, (uint32_t)n) < 0)
		conn_lost(conn);
	return 0;
}

static int on_hello_timeout(sd_event_source *src, uint64_t usec, void *opaque)
{
	(void)src;
	(void)usec;
	aqd_conn_free(opaque);
	return 0;
}

static int on_connect(sd_event_source *src, int fd, uint32_t revents, void *opaque)
{
	struct aqd_instance *i = opaque;
	struct aqd_conn *conn;
	int sock = aqd_accept(i->d, fd);
	int rc;

	(void)src;
	(void)revents;
	if (sock < 0)
		return 0;
	/* Who floods shuts out the oldest of its own instance's waiting room. */
	if (i->n_greeting >= AQD_MAX_GREETING)
		aqd_conn_free(aq_list_entry(i->greeting.next, struct aqd_conn, link));
	conn = calloc(1, sizeof(*conn));
	if (!conn) {
		(void)close(sock);
		return 0;
	}
	conn->instance = i;
	conn->fd = sock;
	aq_list_push_back(&i->greeting, &conn->link);
	i->n_greeting++;
	rc = sd_event_add_io(i->d->event, &conn->source, sock, EPOLLIN, on_readable, conn);
	if (rc >= 0)
		rc = sd_event_add_time_relative(i->d->event, &conn->timer, CLOCK_MONOTONIC,
						AQD_HELLO_TIMEOUT_US, 100000, on_hello_timeout,
						conn);
	if (rc < 0) {
		aq_log_warning("vgpu \"%s\": a connection is refused: %s", i->name, strerror(-rc));
		aqd_conn_free(conn);
		return 0;
	}
	/* Its hello mostly is there already. */
	return on_readable(conn->source, sock, EPOLLIN, conn);
}

/* Whether a stored socket is the one that lies in the instance's directory. */
static bool is_listening_at(int fd, const char *path)
{
	struct sockaddr_un_any {
		sa_family_t family;
		char path[108];
	} addr = { 0 };
	socklen_t len = sizeof(addr);

	return getsockname(fd, (struct sockaddr *)&addr, &len) == 0 && addr.family == AF_UNIX &&
	       strncmp(addr.path, path, sizeof(addr.path)) == 0 && access(path, F_OK) == 0;
}

int aqd_client_listen(struct aqd_instance *i, struct aq_err *err)
{
	char path[PATH_MAX];
	int stored = aqd_store_take(i->d, "attach", i->name);
	int rc;

	(void)snprintf(path, sizeof(path), "%s/" AQ_ATTACH_SOCKET, i->dir);
	if (stored >= 0 && is_listening_at(stored, path)) {
		i->listen_fd = stored;
	} else {
		if (stored >= 0)
			(void)close(stored);
		/* The folder says who reaches it, and hello is checked besides. */
		i->listen_fd = aqd_listen(path, SOCK_SEQPACKET, 0666, err);
		if (i->listen_fd < 0)
			return i->listen_fd;
		aqd_store_keep("attach", i->name, i->listen_fd);
	}
	rc = sd_event_add_io(i->d->event, &i->listen_source, i->listen_fd, EPOLLIN, on_connect, i);
	if (rc < 0)
		return aq_err_set(err, rc, "cannot watch %s: %s", path, strerror(-rc));
	/* Attaching is what starting programs wait for. */
	return 0;
}
