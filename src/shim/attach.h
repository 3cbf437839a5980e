/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Being attached: the connection of this process to the daemon, and the two pages of its instance. One attachment a process and stand-in library; the
 * daemon gives both libraries of a process the same slot.
 *
 * Only the daemon's answer says what the instance may have. Without one there is no attachment, and the caller refuses.
 *
 * A forked child is not attached: aq_attached() is NULL there until it attaches for itself. When the daemon has been restarted, a thread of
 * ours says hello again and maps the new pages over the old addresses; pointers stay good, and numbers that this process wrote move along.
 */
#pragma once

#include "proto/attach.h"
#include "shim/lock.h"
#include "shm/pages.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct aq_err;

struct aq_attachment {
	const struct aq_control_page *control; /* read-only */
	struct aq_report_page *report;
	_Atomic uint32_t
		slot; /* may change with a restart of the daemon; read it inside enter/leave */
	char cuda_provider[512];
	char nvml_provider[512];
};

enum {
	AQ_ATTACH_OWNER =
		1, /* this library writes the slot's accounts: it brings them along after a restart */
};

/*
 * Attach, unless this process is already: looks for the directory, connects, waits at most attach_timeout (10 s; ALIQUOT_ATTACH_TIMEOUT_MS may
 * shorten it) for the answer. Concurrent callers wait for the one that does it. Returns 0 or -errno with the reason in err.
 */
int aq_attach(unsigned flags, struct aq_err *err);

/* What a forked child finds empty: the kernel wipes the page. Locks in it are free there, whoever held them in the parent. */
struct aq_attach_private {
	_Atomic uint32_t attached; /* this very process is */
	_Atomic uint32_t writers;  /* of numbers, just now */
	_Atomic uint32_t moving;   /* numbers move from page to page: no writer may enter */
	_Atomic uint32_t ready;	   /* the library's own: it has started in this very process */
	struct aq_lock lock, settle_lock;
	struct aq_lock start_lock; /* the library's own */
};

extern struct aq_attach_private *aq_attach_private; /* never NULL */
extern struct aq_attachment aq_attachment_here;

/* Make the wiped page. Returns 0 or -errno; needed before start_lock is taken, aq_attach() does it too. */
int aq_attach_prepare(struct aq_err *err);

/* The attachment, or NULL: not attached, or a forked child that has not attached for itself. Costs two loads. */
static inline struct aq_attachment *aq_attached(void)
{
	return atomic_load_explicit(&aq_attach_private->attached, memory_order_acquire)
		       ? &aq_attachment_here
		       : NULL;
}

/* Numbers of this process move from page to page only while nobody writes them: every write stands between these two. Not for long waits. */
void aq_attach_wait_moved(void);

static inline void aq_attach_enter(void)
{
	struct aq_attach_private *p = aq_attach_private;

	for (;;) {
		atomic_fetch_add(&p->writers, 1);
		if (__builtin_expect(!atomic_load(&p->moving), 1))
			return;
		atomic_fetch_sub(&p->writers, 1);
		aq_attach_wait_moved();
	}
}

static inline void aq_attach_leave(void)
{
	atomic_fetch_sub_explicit(&aq_attach_private->writers, 1, memory_order_release);
}

/*
 * Ask the daemon what the driver says that this process holds on a card. Returns 0, -ENODATA when the driver does not know the process, or
 * -errno (no connection, no answer within `timeout_ns`).
 */
int aq_attach_settle(uint32_t card, uint64_t timeout_ns, uint64_t *ret_bytes);
