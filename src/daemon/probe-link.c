/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/probe-link.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/macro.h"
#include "daemon/daemon.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define ANSWER_MAX (4U << 20)
#define ANSWER_LIMIT_US \
	5000000ULL /* symbols are read from files; a driver that wakes up takes a second or two */
#define BACKOFF_MIN_US 200000ULL
#define BACKOFF_MAX_US 30000000ULL
#define USAGE_MAX      4096U
#define STUCK_MAX      8U

enum asked {
	NOTHING,
	READING,
	SYMBOLS
};

struct aq_probe {
	struct aqd *d;
	pid_t pid; /* 0: none */
	int sock;
	sd_event_source *io, *timer;
	char *buf; /* ANSWER_MAX */
	size_t have;
	enum asked asked;
	bool read_wanted;
	uint64_t asked_ns;
	uint64_t backoff_us;
	aq_probe_symbols_fn symbols_fn;
	void *symbols_opaque;
	/* status */
	unsigned restarts;
	char error[240];
	pid_t stuck[STUCK_MAX]; /* killed, and still in some call of the driver's */
	unsigned n_stuck;
	bool ok;
	bool processes;
	uint64_t read_ns;
};

static void ask_next(struct aq_probe *p);
static int spawn(struct aq_probe *p);

static void answer_symbols(struct aq_probe *p, const json_t *libraries)
{
	aq_probe_symbols_fn fn = p->symbols_fn;

	p->symbols_fn = NULL;
	if (fn)
		fn(p->symbols_opaque, libraries);
}

/* A process that hangs in the kernel dies when the kernel lets it; we do not wait for that. */
static void reap(struct aq_probe *p)
{
	unsigned left = 0;

	for (unsigned i = 0; i < p->n_stuck; i++) {
		if (waitpid(p->stuck[i], NULL, WNOHANG) == 0)
			p->stuck[left++] = p->stuck[i];
	}
	p->n_stuck = left;
}

static void kill_probe(struct aq_probe *p)
{
	if (p->pid <= 0)
		return;
	(void)kill(p->pid, SIGKILL);
	if (p->n_stuck < STUCK_MAX)
		p->stuck[p->n_stuck++] = p->pid;
	p->pid = 0;
	reap(p);
}

/* After a failure: end what is left of it, and try again later. */
static void fail(struct aq_probe *p, const char *why)
{
	if (strcmp(p->error, why) != 0) {
		(void)snprintf(p->error, sizeof(p->error), "%s", why);
		aqd_printable(p->error);
		aqd_note(p->d, NULL, "the probe failed: %s", p->error);
	}
	p->ok = false;
	p->asked = NOTHING;
	p->have = 0;
	p->io = sd_event_source_disable_unref(p->io);
	if (p->sock >= 0)
		(void)close(aq_take_fd(p->sock));
	kill_probe(p);
	/* Without it there are no cards, and no reading: requests say so, limits hold. */
	p->d->cards_known = true;
	answer_symbols(p, NULL);
	aqd_watchdog_reading(p->d, aq_now_ns(), false, NULL, 0);
	(void)sd_event_source_set_time_relative(p->timer, p->backoff_us);
	(void)sd_event_source_set_enabled(p->timer, SD_EVENT_ONESHOT);
	p->backoff_us = AQ_MIN(p->backoff_us * 2, BACKOFF_MAX_US);
}

static void copy_text(const json_t *object, const char *key, char *buf, size_t size)
{
	const char *text = json_string_value(json_object_get(object, key));

	(void)snprintf(buf, size, "%s", text ? text : "");
}

static uint64_t get_number(const json_t *object, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(object, key));

	return n > 0 ? (uint64_t)n : 0;
}

static void take_cards(struct aq_probe *p, const json_t *list, unsigned *map, size_t max)
{
	struct aqd_card_report cards[AQD_MAX_CARDS];
	unsigned n = 0;
	const json_t *o;
	size_t at;

	json_array_foreach(list, at, o)
	{
		if (n == AQD_MAX_CARDS)
			break;
		copy_text(o, "uuid", cards[n].uuid, sizeof(cards[n].uuid));
		copy_text(o, "name", cards[n].name, sizeof(cards[n].name));
		copy_text(o, "pci", cards[n].pci, sizeof(cards[n].pci));
		cards[n].memory_bytes = get_number(o, "memory_bytes");
		cards[n].reserved_bytes = get_number(o, "reserved_bytes");
		cards[n].used_bytes = get_number(o, "used_bytes");
		n++;
	}
	aqd_cards_update(p->d, cards, n);
	/* The probe counts as the driver does now, the daemon as it saw the cards first. */
	for (unsigned i = 0; i < max; i++) {
		map[i] = UINT32_MAX;
		for (unsigned c = 0; i < n && c < p->d->n_cards; c++) {
			if (strcmp(p->d->cards[c].uuid, cards[i].uuid) == 0)
				map[i] = c;
		}
	}
}

static unsigned take_usage(const json_t *list, const unsigned *map, struct aqd_usage *usage)
{
	unsigned n = 0;
	const json_t *o;
	size_t at;

	json_array_foreach(list, at, o)
	{
		uint64_t card = get_number(o, "card");
		const json_t *bytes = json_object_get(o, "bytes");

		if (n == USAGE_MAX)
			break;
		if (card >= AQD_MAX_CARDS || map[card] == UINT32_MAX || !get_number(o, "pid"))
			continue;
		usage[n++] = (struct aqd_usage){
			.pid = (pid_t)get_number(o, "pid"),
			.card = map[card],
			.bytes = json_is_integer(bytes) ? (uint64_t)json_integer_value(bytes)
							: UINT64_MAX,
		};
	}
	return n;
}

static void on_reading(struct aq_probe *p, const json_t *root)
{
	static struct aqd_usage usage[USAGE_MAX]; /* one loop, one probe */
	unsigned map[AQD_MAX_CARDS];
	uint64_t began = p->asked_ns;
	unsigned n;

	take_cards(p, json_object_get(root, "cards"), map, AQD_MAX_CARDS);
	n = take_usage(json_object_get(root, "usage"), map, usage);
	p->processes = json_is_true(json_object_get(root, "processes"));
	if (!p->ok && p->restarts)
		aqd_note(p->d, NULL, "the probe works again");
	p->ok = true;
	p->error[0] = '\0';
	p->read_ns = aq_now_ns();
	p->backoff_us = BACKOFF_MIN_US;
	aqd_watchdog_reading(p->d, began, p->processes, usage, n);
}

static void on_answer(struct aq_probe *p, const char *text, size_t len)
{
	json_error_t jerr;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &jerr);
	const char *error = json_string_value(json_object_get(root, "error"));
	enum asked asked = p->asked;

	p->asked = NOTHING;
	if (!json_is_object(root)) {
		fail(p, "its answer is not JSON");
	} else if (error) {
		fail(p, error);
	} else if (asked == NOTHING) {
		fail(p, "it answers what was not asked");
	} else {
		(void)sd_event_source_set_enabled(p->timer, SD_EVENT_OFF);
		if (asked == READING)
			on_reading(p, root);
		else
			answer_symbols(p, json_object_get(root, "libraries"));
		ask_next(p);
	}
	json_decref(root);
}

static int on_io(sd_event_source *src, int fd, uint32_t revents, void *opaque)
{
	struct aq_probe *p = opaque;
	ssize_t n = recv(fd, p->buf + p->have, ANSWER_MAX - p->have, MSG_DONTWAIT);
	char *end;

	(void)src;
	(void)revents;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		fail(p, "it has ended");
		return 0;
	}
	end = memchr(p->buf + p->have, '\n', (size_t)n);
	p->have += (size_t)n;
	if (end) {
		/* One question, one line: nothing follows it. */
		p->have = 0;
		on_answer(p, p->buf, (size_t)(end - p->buf));
	} else if (p->have == ANSWER_MAX) {
		fail(p, "its answer is too long");
	}
	return 0;
}

static int on_timer(sd_event_source *src, uint64_t usec, void *opaque)
{
	struct aq_probe *p = opaque;

	(void)src;
	(void)usec;
	if (p->pid > 0) {
		fail(p, "it does not answer");
		return 0;
	}
	p->restarts++;
	reap(p);
	if (p->n_stuck == STUCK_MAX)
		fail(p, "several of it hang in the driver and cannot be ended");
	else if (spawn(p) < 0)
		fail(p, "it cannot be started");
	else
		ask_next(p);
	return 0;
}

static void ask(struct aq_probe *p, enum asked what)
{
	const char *line = what == READING ? "read\n" : "symbols\n";

	if (what == READING)
		aqd_watchdog_before(p->d);
	p->asked = what;
	p->asked_ns = aq_now_ns();
	if (send(p->sock, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT) !=
	    (ssize_t)strlen(line)) {
		fail(p, "it takes no question");
		return;
	}
	(void)sd_event_source_set_time_relative(p->timer, ANSWER_LIMIT_US);
	(void)sd_event_source_set_enabled(p->timer, SD_EVENT_ONESHOT);
}

static void ask_next(struct aq_probe *p)
{
	if (p->pid <= 0 || p->asked != NOTHING)
		return;
	if (p->read_wanted) {
		p->read_wanted = false;
		ask(p, READING);
	} else if (p->symbols_fn) {
		ask(p, SYMBOLS);
	}
}

void aq_probe_read(struct aq_probe *p)
{
	if (!p)
		return;
	p->read_wanted = true;
	ask_next(p);
}

int aq_probe_symbols(struct aq_probe *p, aq_probe_symbols_fn fn, void *opaque)
{
	if (p->symbols_fn)
		return -EBUSY;
	if (p->pid <= 0)
		return -EAGAIN;
	p->symbols_fn = fn;
	p->symbols_opaque = opaque;
	ask_next(p);
	return 0;
}

void aq_probe_forget(struct aq_probe *p, const void *opaque)
{
	if (p && p->symbols_opaque == opaque)
		p->symbols_fn = NULL;
}

/* In the child; only what is safe between fork and exec. */
static void become_probe(const struct aq_probe *p, int sock, pid_t parent)
{
	const struct aqd_config *cfg = &p->d->cfg;
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGPIPE, SIG_DFL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	if (dup2(sock, 0) < 0 || dup2(sock, 1) < 0)
		_exit(1);
	(void)execl(cfg->probe, "aliquot-probe", "--nvml", cfg->nvml_provider, "--cuda",
		    cfg->cuda_provider, (char *)NULL);
	_exit(127);
}

static int spawn(struct aq_probe *p)
{
	pid_t parent = getpid();
	int sv[2];
	pid_t pid;
	int rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		return -errno;
	pid = fork();
	if (pid < 0) {
		rc = -errno;
		(void)close(sv[0]);
		(void)close(sv[1]);
		return rc;
	}
	if (pid == 0)
		become_probe(p, sv[1], parent);
	(void)close(sv[1]);
	p->pid = pid;
	p->sock = sv[0];
	rc = sd_event_add_io(p->d->event, &p->io, p->sock, EPOLLIN, on_io, p);
	p->read_wanted = true;
	return rc < 0 ? rc : 0;
}

int aq_probe_start(struct aqd *d, struct aq_probe **ret, struct aq_err *err)
{
	struct aq_probe *p = calloc(1, sizeof(*p));
	int rc = -ENOMEM;

	if (!p)
		return aq_err_set(err, -ENOMEM, "no memory for the probe");
	p->d = d;
	p->sock = -1;
	p->backoff_us = BACKOFF_MIN_US;
	p->buf = malloc(ANSWER_MAX);
	if (p->buf)
		rc = sd_event_add_time_relative(d->event, &p->timer, CLOCK_MONOTONIC,
						ANSWER_LIMIT_US, 10000, on_timer, p);
	if (rc >= 0)
		rc = spawn(p);
	if (rc < 0) {
		aq_probe_stop(p);
		return aq_err_set(err, rc, "cannot start %s: %s", d->cfg.probe, strerror(-rc));
	}
	*ret = p;
	ask_next(p);
	return 0;
}

void aq_probe_stop(struct aq_probe *p)
{
	if (!p)
		return;
	p->io = sd_event_source_disable_unref(p->io);
	p->timer = sd_event_source_disable_unref(p->timer);
	if (p->sock >= 0)
		(void)close(p->sock);
	kill_probe(p);
	free(p->buf);
	free(p);
}

void aq_probe_get_status(const struct aq_probe *p, struct aq_probe_status *ret)
{
	*ret = (struct aq_probe_status){
		.state = p->ok	       ? "ok"
			 : p->error[0] ? "failed"
				       : "starting",
		.error = p->error,
		.restarts = p->restarts,
		.read_ns = p->read_ns,
		.processes = p->processes,
		.pid = p->pid,
	};
}
