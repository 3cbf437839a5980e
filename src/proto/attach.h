/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a shim and the daemon say to each other on an instance's attach socket, and how the shim finds it.
 *
 * Each instance has a directory with one socket in it: the socket connected to says which instance. The connection is a SOCK_SEQPACKET one: a
 * message is one packet, never more than AQ_ATTACH_MAX bytes. The client speaks first (hello), the daemon answers (welcome, with two
 * memfds: control page, report page), and the connection stays open as long as the process is attached: its end is the client's end.
 *
 * Versions: hello names a range, the welcome the one spoken. A message may be longer than the structure of its version: what is behind it
 * is ignored, so that fields can be added; a shorter one is an error.
 *
 * One process may hold several connections to its instance (one a library); they share one slot. The daemon takes the process of a
 * connection from the kernel, so each process connects by itself: a connection that was inherited over fork() is of no use to the child.
 *
 * When the connection ends and the process does not (the daemon was restarted, the program closed all descriptors), the slot stays the
 * process's. The client connects again with AQ_HELLO_REATTACH, its old slot and epoch, and maps the two new memfds over the old addresses.
 * If the report page is another file than before (fstat), it copies its own accounts from the old page to the new one first. A hello without
 * that flag, while the process has no other connection, says that the process image is new and holds nothing.
 */
#pragma once

#include <stdint.h>

#define AQ_ATTACH_MAGIC	      0x41515141U /* "AQQA" */
#define AQ_ATTACH_VERSION_MIN 1U
#define AQ_ATTACH_VERSION     1U
#define AQ_ATTACH_MAX	      4096U
#define AQ_ATTACH_SOCKET      "attach.sock"	 /* in the instance's directory */
#define AQ_ATTACH_DIR_ENV     "ALIQUOT_VGPU_DIR" /* a locator, not a limit */
#define AQ_ATTACH_DIR \
	"/run/aliquot/vgpu.self" /* where a container finds its own instance mounted */

enum aq_attach_op {
	AQ_ATTACH_HELLO = 1,
	AQ_ATTACH_WELCOME,
	AQ_ATTACH_SETTLE, /* client: a context has been made or destroyed; how much does the driver say I hold? */
	AQ_ATTACH_SETTLED, /* daemon */
};

struct aq_attach_header {
	uint32_t magic;
	uint16_t op;   /* enum aq_attach_op */
	uint16_t size; /* of the whole message */
};

struct aq_attach_hello {
	struct aq_attach_header h;
	uint32_t version_min, version;
	uint32_t pid;		/* as the client sees itself */
	uint32_t pages_version; /* AQ_PAGES_VERSION it was built with */
	char program[32];	/* NUL-terminated; for people */
	uint32_t flags;		/* AQ_HELLO_… */
	uint32_t slot, epoch;	/* with AQ_HELLO_REATTACH: of the last welcome */
	uint32_t reserved;
};

#define AQ_HELLO_REATTACH \
	1U /* this process has been welcomed before, and what it holds counts in `slot` */

/* status: 0, or the negative errno with which the attach is refused; message says why. */
struct aq_attach_welcome {
	struct aq_attach_header h;
	uint32_t version;
	int32_t status;
	uint32_t slot; /* the same one when this process attaches again */
	uint32_t epoch;
	uint32_t control_size, report_size;
	char cuda_provider
		[512]; /* path of the driver library behind the shim, as the client's mount namespace names it */
	char nvml_provider[512];
	char message[240];
};

struct aq_attach_settle {
	struct aq_attach_header h;
	uint32_t card; /* index in the control page */
	uint32_t reserved;
};

/*
 * known: the driver knew the process; then bytes is what it says that the process holds on the card in all, by a reading made after the question.
 * Not known: the driver does not list it (yet), or did not answer within two seconds. One question at a time a connection and card; the daemon
 * answers the latest one only.
 */
struct aq_attach_settled {
	struct aq_attach_header h;
	uint32_t card;
	uint32_t known;
	uint64_t bytes;
};

/*
 * Check a received packet of `len` bytes: magic, op, its size within len and at least that of the op's structure. Returns the op, or -EPROTO.
 * The decoder of both ends; fuzzed.
 */
int aq_attach_check(const void *packet, uint32_t len);
