/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/macro.h"
#include "daemon/control.h"
#include "daemon/probe-link.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <time.h>

/* A client whose gate is closed takes the daemon for dead after 100 ms; with nobody attached nobody looks. */
#define BEAT_BUSY_US   25000ULL
#define BEAT_IDLE_US   1000000ULL
#define CARDS_WAIT_US  10000000ULL
#define LISTEN_BACKLOG 512

void aqd_note(struct aqd *d, const char *vgpu, const char *fmt, ...)
{
	struct aqd_event *e = &d->events[d->next_event % AQD_EVENTS];
	struct timespec ts;
	va_list ap;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	*e = (struct aqd_event){
		.id = ++d->next_event,
		.time = (double)ts.tv_sec + (double)ts.tv_nsec / 1e9,
	};
	(void)snprintf(e->vgpu, sizeof(e->vgpu), "%s", vgpu ? vgpu : "");
	va_start(ap, fmt);
	(void)vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	aqd_printable(e->text);
	if (vgpu)
		aq_log_info("vgpu \"%s\": %s", vgpu, e->text);
	else
		aq_log_info("%s", e->text);
}

int aqd_accept(struct aqd *d, int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int rc = -errno;

	if (fd >= 0)
		return fd;
	if (rc != -EMFILE && rc != -ENFILE)
		return rc;
	if (d->spare_fd < 0)
		d->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	/* The peer learns that it cannot be served, instead of waiting in the queue while we spin. */
	if (d->spare_fd >= 0)
		(void)close(d->spare_fd);
	fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		(void)close(fd);
	else
		/* Not even that: the queue stays readable, so at least do not burn a core over it. */
		(void)usleep(1000);
	d->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	aq_log_warning("a connection is refused: %s", strerror(-rc));
	return rc;
}

int aqd_listen(const char *path, int type, mode_t mode, struct aq_err *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	aq_auto_close int fd = -1;

	if (strlen(path) >= sizeof(addr.sun_path))
		return aq_err_set(err, -ENAMETOOLONG,
				  "%s: longer than the %zu bytes of a socket's path", path,
				  sizeof(addr.sun_path) - 1);
	memcpy(addr.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return aq_err_set(err, -errno, "cannot make a socket: %s", strerror(errno));
	if (unlink(path) < 0 && errno != ENOENT)
		return aq_err_set(err, -errno, "cannot replace %s: %s", path, strerror(errno));
	/* The folder decides who reaches it until the mode is set. */
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || chmod(path, mode) < 0 ||
	    listen(fd, LISTEN_BACKLOG) < 0)
		return aq_err_set(err, -errno, "cannot listen at %s: %s", path, strerror(errno));
	return aq_take_fd(fd);
}

int aqd_store_take(struct aqd *d, const char *kind, const char *name)
{
	char full[16 + AQD_NAME_SIZE];

	(void)snprintf(full, sizeof(full), "%s%s%s", kind, name[0] ? "-" : "", name);
	for (unsigned i = 0; i < d->n_stored; i++) {
		if (strcmp(d->stored[i].name, full) == 0)
			return aq_take_fd(d->stored[i].fd);
	}
	return -1;
}

void aqd_store_keep(const char *kind, const char *name, int fd)
{
	char state[128];

	(void)snprintf(state, sizeof(state), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s-%s", kind, name);
	(void)sd_pid_notify_with_fds(0, 0, state, &fd, 1);
}

void aqd_store_drop(const char *kind, const char *name)
{
	(void)sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s-%s", kind, name);
}

/* What the service manager passed: the control socket by activation, the rest from its store. */
static void take_passed_fds(struct aqd *d)
{
	char **names = NULL;
	int n = sd_listen_fds_with_names(1, &names);

	for (int i = 0; i < n; i++) {
		int fd = SD_LISTEN_FDS_START + i;
		struct aqd_stored *s = &d->stored[d->n_stored];
		bool ours = strncmp(names[i], "report-", 7) == 0 ||
			    strncmp(names[i], "attach-", 7) == 0;

		if (d->n_stored == AQD_STORED || strlen(names[i]) >= sizeof(s->name)) {
			(void)close(fd);
		} else {
			(void)snprintf(s->name, sizeof(s->name), "%s", ours ? names[i] : "control");
			(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
			s->fd = fd;
			d->n_stored++;
		}
		free(names[i]);
	}
	free(names);
}

/* Those of vgpus that are no more. */
static void drop_passed_fds(struct aqd *d)
{
	for (unsigned i = 0; i < d->n_stored; i++) {
		if (d->stored[i].fd < 0)
			continue;
		(void)sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", d->stored[i].name);
		(void)close(aq_take_fd(d->stored[i].fd));
	}
	d->n_stored = 0;
}

static bool anybody_attached(const struct aqd *d)
{
	const struct aqd_instance *i;

	aq_list_for_each(i, &d->instances, link) {
		if (i->n_clients)
			return true;
	}
	return false;
}

static int on_heartbeat(sd_event_source *src, uint64_t usec, void *opaque)
{
	struct aqd *d = opaque;
	uint64_t now = aq_now_ns();
	struct aqd_instance *i;

	(void)usec;
	aq_list_for_each(i, &d->instances, link)
		aqd_instance_beat(i, now);
	(void)sd_event_source_set_time_relative(src,
						anybody_attached(d) ? BEAT_BUSY_US : BEAT_IDLE_US);
	return sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
}

static int make_dir(const char *path, mode_t mode, struct aq_err *err)
{
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return aq_err_set(err, -errno, "cannot make %s: %s", path, strerror(errno));
	/* Whatever the umask is. */
	if (chmod(path, mode) < 0)
		return aq_err_set(err, -errno, "cannot set the mode of %s: %s", path,
				  strerror(errno));
	return 0;
}

/* Somebody else's folder is theirs to change under us. */
static int check_owner(const char *path, struct aq_err *err)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return aq_err_set(err, -errno, "cannot look at %s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return aq_err_set(err, -ENOTDIR, "%s is not a folder", path);
	if (st.st_uid != geteuid())
		return aq_err_set(err, -EPERM, "%s belongs to user %u, not to us", path, st.st_uid);
	return 0;
}

static int make_dirs(struct aqd *d, struct aq_err *err)
{
	char path[PATH_MAX];
	int rc = 0;

	if (mkdir(d->cfg.dir, d->cfg.private_mode ? 0700 : 0755) < 0 && errno != EEXIST)
		return aq_err_set(err, -errno, "cannot make %s: %s", d->cfg.dir, strerror(errno));
	rc = check_owner(d->cfg.dir, err);
	if (rc < 0)
		return rc;
	(void)snprintf(path, sizeof(path), "%s/vgpu", d->cfg.dir);
	/* Passable, not listable: a vgpu's own folder says who enters it. */
	rc = make_dir(path, d->cfg.private_mode ? 0700 : 0711, err);
	if (rc < 0)
		return rc;
	(void)snprintf(path, sizeof(path), "%s/slots", d->cfg.dir);
	rc = make_dir(path, 0700, err);
	if (rc < 0 || !d->cfg.lock_dir[0])
		return rc;
	if (mkdir(d->cfg.lock_dir, 0755) < 0 && errno != EEXIST)
		return aq_err_set(err, -errno, "cannot make %s: %s", d->cfg.lock_dir,
				  strerror(errno));
	return check_owner(d->cfg.lock_dir, err);
}

/* Two daemons in one directory would take each other's sockets away. */
static int lock_dir(struct aqd *d, struct aq_err *err)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/lock", d->cfg.dir);
	d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock_fd < 0)
		return aq_err_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK
			       ? aq_err_set(err, -EBUSY, "another daemon serves %s", d->cfg.dir)
			       : aq_err_set(err, -errno, "cannot lock %s: %s", path,
					    strerror(errno));
	return 0;
}

static int on_signal(sd_event_source *src, const struct signalfd_siginfo *si, void *opaque)
{
	(void)si;
	(void)opaque;
	return sd_event_exit(sd_event_source_get_event(src), 0);
}

static int set_up(struct aqd *d, struct aq_err *err)
{
	int rc = make_dirs(d, err);

	if (rc == 0)
		rc = lock_dir(d, err);
	if (rc < 0)
		return rc;
	d->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	rc = sd_event_new(&d->event);
	if (rc >= 0)
		rc = sd_event_add_time_relative(d->event, &d->heartbeat, CLOCK_MONOTONIC,
						BEAT_BUSY_US, 1000, on_heartbeat, d);
	if (rc < 0)
		return aq_err_set(err, rc, "cannot make an event loop: %s", strerror(-rc));
	take_passed_fds(d);
	rc = aqd_state_load(d, err);
	if (rc == 0)
		/* The new epoch is on the disk before any client sees it. */
		rc = aqd_state_save(d, err);
	if (rc == 0)
		rc = aq_probe_start(d, &d->probe, err);
	if (rc == 0)
		rc = aqd_watchdog_start(d, err);
	return rc;
}

int aqd_new(const struct aqd_config *cfg, struct aqd **ret, struct aq_err *err)
{
	struct aqd *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return aq_err_set(err, -ENOMEM, "no memory for the daemon's state");
	d->cfg = *cfg;
	d->spare_fd = -1;
	d->lock_fd = -1;
	aq_list_init(&d->instances);
	for (unsigned k = 0; k < AQD_PID_BUCKETS; k++)
		aq_list_init(&d->by_pid[k]);
	rc = set_up(d, err);
	if (rc < 0) {
		aqd_free(d);
		return rc;
	}
	*ret = d;
	return 0;
}

void aqd_free(struct aqd *d)
{
	struct aqd_instance *i;
	struct aqd_instance *tmp;

	if (!d)
		return;
	aq_control_server_free(d->control);
	aq_list_for_each_safe(i, tmp, &d->instances, link)
		aqd_instance_free(i);
	aq_probe_stop(d->probe);
	d->heartbeat = sd_event_source_disable_unref(d->heartbeat);
	d->watchdog = sd_event_source_disable_unref(d->watchdog);
	d->event = sd_event_unref(d->event);
	for (unsigned k = 0; k < d->n_stored; k++) {
		if (d->stored[k].fd >= 0)
			(void)close(d->stored[k].fd);
	}
	aqd_cards_done(d);
	if (d->spare_fd >= 0)
		(void)close(d->spare_fd);
	if (d->lock_fd >= 0)
		(void)close(d->lock_fd);
	free(d);
}

static void say_ready(struct aqd *d)
{
	(void)sd_notifyf(0, "READY=1\nSTATUS=%u GPUs, %u vgpus", d->n_cards, d->n_instances);
	if (d->cfg.ready_fd < 0)
		return;
	if (write(d->cfg.ready_fd, "\n", 1) != 1)
		aq_log_warning("cannot write to --ready-fd %d: %s", d->cfg.ready_fd,
			       strerror(errno));
	(void)close(aq_take_fd(d->cfg.ready_fd));
}

/* Returns 1 when the loop was told to end meanwhile. */
static int wait_for_cards(struct aqd *d)
{
	uint64_t until = aq_now_ns() + CARDS_WAIT_US * 1000;

	while (!d->cards_known && aq_now_ns() < until) {
		int rc = sd_event_run(d->event, 100000);

		if (rc < 0)
			return rc;
		if (sd_event_get_state(d->event) == SD_EVENT_FINISHED)
			return 1;
	}
	if (!d->cards_known)
		aq_log_warning("the GPUs are not known after 10 s; going on without");
	return 0;
}

int aqd_run(struct aqd *d, struct aq_err *err)
{
	int rc = sd_event_add_signal(d->event, NULL, SIGTERM, on_signal, NULL);

	if (rc >= 0)
		rc = sd_event_add_signal(d->event, NULL, SIGINT, on_signal, NULL);
	if (rc >= 0)
		rc = wait_for_cards(d);
	if (rc < 0)
		return aq_err_set(err, rc, "event loop: %s", strerror(-rc));
	if (rc > 0)
		return 0;
	rc = aq_control_server_start(d, &d->control, err);
	if (rc < 0)
		return rc;
	drop_passed_fds(d);
	say_ready(d);
	(void)sd_event_set_watchdog(d->event, true);
	rc = sd_event_loop(d->event);
	(void)sd_notify(0, "STOPPING=1");
	return rc < 0 ? aq_err_set(err, rc, "event loop: %s", strerror(-rc)) : 0;
}
