/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the instance's socket and saying hello on it. */
#pragma once

#include "proto/attach.h"

#include <stdbool.h>
#include <stdint.h>

struct aq_err;

#define AQ_CONNECT_PATH 108

/* What a successful hello gives; all three fds are the caller's. */
struct aq_connected {
	int sock, control, report;
	char path[AQ_CONNECT_PATH]; /* as the kernel names the other end */
	struct aq_attach_welcome welcome;
};

/* How long a first attach may take. */
uint64_t aq_connect_timeout_ns(void);

/* What a process that has been welcomed before says of it. */
struct aq_connect_again {
	uint32_t slot, epoch;
};

/*
 * Connect and be welcomed; `again` is NULL the first time. Where the instance's directory is there but nobody answers, goes on trying
 * until the deadline: the daemon may be starting. Returns 0 or -errno with the reason in err.
 */
int aq_connect(uint64_t deadline_ns, const struct aq_connect_again *again, struct aq_connected *ret,
	       struct aq_err *err);

/* Whether fd is still the connection to `path`, and not something else under its number. */
bool aq_connect_is(int fd, const char *path);
