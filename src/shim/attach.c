/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/attach.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/format.h"
#include "base/futex.h"
#include "base/macro.h"
#include "shim/connect.h"
#include "shim/libc.h"
#include "shim/log.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#	define MADV_WIPEONFORK 18
#endif

static struct aq_attach_private before; /* nothing happens in it: it says "not attached" */

struct aq_attach_private *aq_attach_private = &before;
struct aq_attachment aq_attachment_here;

/* All below is written under the lock. */
static _Atomic int connection = -1;
static char peer
	[AQ_CONNECT_PATH]; /* where `connection` leads: an application may close it and reuse the number */
static unsigned attach_flags;
static uint32_t epoch;	  /* of the last welcome */
static bool pages_mapped; /* at fixed addresses from then on */

#define CONTROL_BYTES aq_align_up(sizeof(struct aq_control_page), 4096)
#define REPORT_BYTES  aq_align_up(sizeof(struct aq_report_page), 4096)

int aq_attach_prepare(struct aq_err *err)
{
	struct aq_attach_private *old = &before;
	int saved = errno;
	int rc = 0;
	void *page;

	if (__atomic_load_n(&aq_attach_private, __ATOMIC_ACQUIRE) != &before)
		return 0;
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		rc = aq_err_set(err, -errno, "no memory");
	else if (madvise(page, 4096, MADV_WIPEONFORK) < 0)
		rc = aq_err_set(err, -errno, "this kernel cannot tell a forked child (4.14 can)");
	else if (__atomic_compare_exchange_n(&aq_attach_private, &old, page, false,
					     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		page = MAP_FAILED;
	if (page != MAP_FAILED)
		(void)munmap(page, 4096);
	errno = saved;
	return rc;
}

/* In a forked child: nothing of the parent's attachment is ours, not even the connection, whose end must be the parent's end. */
static void drop_inherited(void)
{
	int fd = atomic_exchange(&connection, -1);

	if (fd >= 0 && aq_connect_is(fd, peer))
		(void)close(fd);
}

void aq_attach_wait_moved(void)
{
	while (atomic_load(&aq_attach_private->moving))
		(void)aq_futex_wait(&aq_attach_private->moving, 1, AQ_NS_PER_S);
}

/* From here on nobody writes numbers until they are let go on. */
static void stop_writers(void)
{
	atomic_store(&aq_attach_private->moving, 1);
	while (atomic_load(&aq_attach_private->writers)) {
		struct timespec pause = { .tv_nsec = 10000 };

		(void)nanosleep(&pause, NULL);
	}
}

static void let_writers_go(void)
{
	atomic_store(&aq_attach_private->moving, 0);
	aq_futex_wake(&aq_attach_private->moving, INT32_MAX);
}

/* Carry this process' numbers over to its slot on the new report page: the daemon that gave it starts from nothing. */
static void carry_numbers(struct aq_report_page *to, uint32_t slot)
{
	const struct aq_report_page *from = aq_attachment_here.report;
	uint32_t old = atomic_load(&aq_attachment_here.slot);

	for (unsigned card = 0; card < AQ_INSTANCE_CARDS; card++) {
		const struct aq_account *a = &from->account[card][old];
		struct aq_account *b = &to->account[card][slot];

		atomic_store(&b->pending, atomic_load(&a->pending));
		atomic_store(&b->used, atomic_load(&a->used));
		atomic_store(&b->overhead, atomic_load(&a->overhead));
		atomic_store(&b->spill, atomic_load(&a->spill));
	}
	atomic_store(&to->client[slot].refusals, atomic_load(&from->client[old].refusals));
	atomic_store(&to->client[slot].refused_bytes,
		     atomic_load(&from->client[old].refused_bytes));
	atomic_store(&to->client[slot].refused_ns, atomic_load(&from->client[old].refused_ns));
	atomic_store(&to->client[slot].refused_card, atomic_load(&from->client[old].refused_card));
}

static int map_page(const char *what, int fd, size_t bytes, int prot, uint32_t magic, void *at,
		    void **ret, struct aq_err *err)
{
	const uint32_t *head;
	void *page = mmap(at, bytes, prot, MAP_SHARED | (at ? MAP_FIXED : 0) | MAP_POPULATE, fd, 0);

	if (page == MAP_FAILED)
		return aq_err_set(err, -errno, "cannot map the %s page", what);
	head = page;
	if (head[0] != magic || head[1] != AQ_PAGES_VERSION) {
		if (!at)
			(void)munmap(page, bytes);
		return aq_err_set(err, -EPROTO, "the %s page is of another version", what);
	}
	*ret = page;
	return 0;
}

/* Map the pages of a welcome: anywhere the first time, over the old ones later. The fds stay the caller's. */
static int map_pages(const struct aq_connected *c, bool same_process, struct aq_err *err)
{
	struct aq_attachment *here = &aq_attachment_here;
	void *control = NULL;
	void *report = NULL;
	int rc;

	/* Looked at elsewhere first: what is no page of ours must not replace a good one. */
	rc = map_page("control", c->control, CONTROL_BYTES, PROT_READ, AQ_CONTROL_MAGIC, NULL,
		      &control, err);
	if (rc < 0)
		return rc;
	rc = map_page("report", c->report, REPORT_BYTES, PROT_READ | PROT_WRITE, AQ_REPORT_MAGIC,
		      NULL, &report, err);
	if (rc < 0) {
		(void)munmap(control, CONTROL_BYTES);
		return rc;
	}
	if (!pages_mapped) {
		here->control = control;
		here->report = report;
		atomic_store(&here->slot, c->welcome.slot);
		pages_mapped = true;
		return 0;
	}
	if (same_process)
		stop_writers();
	if (same_process && (attach_flags & AQ_ATTACH_OWNER))
		carry_numbers(report, c->welcome.slot);
	(void)munmap(control, CONTROL_BYTES);
	(void)munmap(report, REPORT_BYTES);
	rc = map_page("control", c->control, CONTROL_BYTES, PROT_READ, AQ_CONTROL_MAGIC,
		      (void *)here->control, &control, err);
	if (rc == 0)
		rc = map_page("report", c->report, REPORT_BYTES, PROT_READ | PROT_WRITE,
			      AQ_REPORT_MAGIC, here->report, &report, err);
	atomic_store(&here->slot, c->welcome.slot);
	if (same_process)
		let_writers_go();
	return rc;
}

/* Which pid namespace the process is in; 0: nobody says. */
static uint64_t pid_namespace(void)
{
	char text[64];
	uint64_t n = 0;
	/* "pid:[NUMBER]" */
	ssize_t len = readlink("/proc/self/ns/pid", text, sizeof(text));

	for (ssize_t i = 0; i < len; i++)
		if (text[i] >= '0' && text[i] <= '9')
			n = n * 10 + (uint64_t)(text[i] - '0');
	return n;
}

/* Tell the others of the instance who has this slot: their process lists show it. */
static void introduce(void)
{
	struct aq_report_client *c =
		&aq_attachment_here.report->client[atomic_load(&aq_attachment_here.slot)];

	atomic_store(&c->pid_ns, pid_namespace());
	atomic_store(&c->pid, (uint32_t)getpid());
}

static int attach_now(bool same_process, uint64_t deadline_ns, struct aq_err *err)
{
	struct aq_connect_again again = { atomic_load(&aq_attachment_here.slot), epoch };
	struct aq_connected c;
	int rc = aq_connect(deadline_ns, same_process ? &again : NULL, &c, err);

	if (rc < 0)
		return rc;
	rc = map_pages(&c, same_process, err);
	(void)close(c.control);
	(void)close(c.report);
	if (rc < 0) {
		(void)close(c.sock);
		return rc;
	}
	introduce();
	memcpy(peer, c.path, sizeof(peer));
	epoch = c.welcome.epoch;
	if (!same_process) {
		(void)aq_format(aq_attachment_here.cuda_provider,
				sizeof(aq_attachment_here.cuda_provider), "%s",
				c.welcome.cuda_provider);
		(void)aq_format(aq_attachment_here.nvml_provider,
				sizeof(aq_attachment_here.nvml_provider), "%s",
				c.welcome.nvml_provider);
	}
	atomic_store(&connection, c.sock);
	return 0;
}

/* The connection is gone: be attached again, however long that takes. The old pages stay good for reading and writing until then. */
static void attach_again(void)
{
	struct timespec pause = { .tv_nsec = 20 * (long)AQ_NS_PER_MS };

	for (;;) {
		struct aq_err err;
		int rc;
		int fd;

		aq_lock(&aq_attach_private->lock);
		aq_lock(&aq_attach_private->settle_lock);
		fd = atomic_exchange(&connection, -1);
		if (fd >= 0 && aq_connect_is(fd, peer))
			(void)close(fd);
		rc = attach_now(true, aq_now_ns() + AQ_NS_PER_S, &err);
		aq_unlock(&aq_attach_private->settle_lock);
		aq_unlock(&aq_attach_private->lock);
		if (rc == 0)
			return;
		(void)nanosleep(&pause, NULL);
		if (pause.tv_nsec < 500 * (long)AQ_NS_PER_MS)
			pause.tv_nsec *= 2;
	}
}

/* Sleeps on the connection until it ends, which is when the daemon has been stopped or restarted. */
static void *watch(void *unused)
{
	(void)unused;
	for (;;) {
		struct pollfd p = { .fd = atomic_load(&connection), .events = POLLRDHUP };

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return NULL;
		if (p.fd < 0 || (p.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)))
			attach_again();
	}
}

static void start_watch(void)
{
	sigset_t all;
	sigset_t old;
	pthread_t thread;

	/* The program's signals are for its own threads. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&thread, NULL, watch, NULL) == 0)
		(void)pthread_detach(thread);
	else
		aq_shim_log("no thread to watch the daemon: a restart of it will go unnoticed");
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

int aq_attach(unsigned flags, struct aq_err *err)
{
	int saved = errno;
	int rc = aq_attach_prepare(err);

	if (rc < 0)
		return rc;
	aq_lock(&aq_attach_private->lock);
	if (!atomic_load(&aq_attach_private->attached)) {
		drop_inherited();
		attach_flags = flags;
		rc = attach_now(false, aq_now_ns() + aq_connect_timeout_ns(), err);
		if (rc == 0) {
			atomic_store(&aq_attach_private->attached, 1);
			start_watch();
		}
	}
	aq_unlock(&aq_attach_private->lock);
	errno = saved;
	return rc;
}

static int settle_locked(uint32_t card, uint64_t timeout_ns, uint64_t *ret_bytes)
{
	struct aq_attach_settle ask = { { AQ_ATTACH_MAGIC, AQ_ATTACH_SETTLE, sizeof(ask) },
					card,
					0 };
	uint64_t deadline = aq_now_ns() + timeout_ns;
	_Alignas(8) char packet[AQ_ATTACH_MAX];
	int fd = atomic_load(&connection);
	ssize_t n;

	if (fd < 0 || !aq_connect_is(fd, peer))
		return -ENOTCONN;
	/* An answer that came too late for the last question. */
	while (recv(fd, packet, sizeof(packet), MSG_DONTWAIT) > 0)
		;
	if (send(fd, &ask, sizeof(ask), MSG_NOSIGNAL) < 0)
		return -errno;
	for (;;) {
		const struct aq_attach_settled *answer = (void *)packet;
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = aq_now_ns();

		if (now >= deadline)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)((deadline - now) / AQ_NS_PER_MS) + 1) <= 0)
			continue;
		n = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);
		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0 && aq_attach_check(packet, (uint32_t)n) == AQ_ATTACH_SETTLED &&
		    answer->card == card) {
			*ret_bytes = answer->bytes;
			return answer->known ? 0 : -ENODATA;
		}
	}
}

int aq_attach_settle(uint32_t card, uint64_t timeout_ns, uint64_t *ret_bytes)
{
	int saved = errno;
	int rc;

	aq_lock(&aq_attach_private->settle_lock);
	rc = settle_locked(card, timeout_ns, ret_bytes);
	aq_unlock(&aq_attach_private->settle_lock);
	errno = saved;
	return rc;
}
