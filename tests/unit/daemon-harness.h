/* SPDX-License-Identifier: Apache-2.0 */
/* For tests that run the daemon as a process, on software cards of its own server. */
#pragma once

#include "proto/attach.h"
#include "shm/pages.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

struct daemon {
	pid_t pid;
	char dir[64];
	int control; /* connected */
};

/* Folder of this test program; a server with two cards runs there. For cmocka's group set-up and tear-down. */
extern char work_dir[40];
int start_cards(void **state);
int stop_cards(void **state);

/* Start a daemon in `work_dir`/name with more arguments (NULL-terminated list; may be NULL); --private unless `system`. */
void daemon_start(struct daemon *d, const char *name, bool system, const char *const more[]);
/* Again in the same folder. */
void daemon_restart(struct daemon *d, const char *const more[]);
void daemon_kill(struct daemon *d, int sig);
/* Arguments of the usual kind; the exit status of a daemon that is expected not to start, 0 when it did start. */
int daemon_try(const char *name, const char *const more[]);
/* Descriptors handed to the next daemon that is started, as a service manager does. */
extern int passed_fds[8];
extern const char *passed_names[8];
extern int n_passed;

int control_connect(const struct daemon *d);
/* One request, printf-like JSON with ' for "; the answer, which the caller releases. */
json_t *ask(int sock, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, and it must be granted or refused with this code. */
void grant(const struct daemon *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void refuse(const struct daemon *d, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Number at a path like "vgpus/0/cards/0/used_bytes" in the answer to `list` of the vgpu; -1: not there. */
int64_t look(const struct daemon *d, const char *vgpu, const char *path);
/* The same, text in a static buffer; "" when not there. */
const char *look_text(const struct daemon *d, const char *vgpu, const char *path);
/* Until it has this value, at most `ms`. */
bool wait_for(const struct daemon *d, const char *vgpu, const char *path, int64_t value, int ms);

/* A client of the attach protocol. */
struct attached {
	int sock;
	struct aq_attach_welcome w;
	int control_fd, report_fd;
	const struct aq_control_page *control;
	struct aq_report_page *report;
};
int attach_connect(const struct daemon *d, const char *vgpu);
struct aq_attach_hello attach_hello(void);
/* Send a hello (NULL: the ordinary one) and take the welcome; pages are mapped when it is a good one. Returns its status, -EPIPE: closed. */
int attach(struct attached *a, const struct daemon *d, const char *vgpu,
	   const struct aq_attach_hello *hello);
void detach(struct attached *a);
struct aq_account *account(const struct attached *a, unsigned card);

/* Take memory of card 0 by the driver API, as a program does. */
bool take_from_card(uint64_t bytes);

/* A child that attaches, counts `bytes` as used, and waits to be killed. `vgpu` NULL: it does not attach. With `allocate` it takes them from the card, too. */
pid_t start_client(const struct daemon *d, const char *vgpu, uint64_t bytes, bool allocate);
void end(pid_t pid);
