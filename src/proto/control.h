/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Framing of the control socket: each message is a length (u32, little-endian, without itself) and so many bytes of JSON. A connection
 * carries any number of requests, one answer for each, in order. What the messages say is in docs/control.md.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define AQ_CONTROL_PROTOCOL    1U
#define AQ_CONTROL_SOCKET      "control.sock" /* in the daemon's directory */
#define AQ_CONTROL_SYSTEM_DIR  "/run/aliquot"
#define AQ_CONTROL_REQUEST_MAX (64U << 10)
#define AQ_CONTROL_ANSWER_MAX  (16U << 20)

struct aq_err;

/*
 * Look at the `have` bytes received so far. Returns 1 when a whole message is there (ret_len: the length of its text, which starts at
 * byte 4), 0 when more must come (ret_len: bytes still missing), -EMSGSIZE when it is longer than max, -EPROTO when it is empty.
 */
int aq_control_frame(const void *buf, size_t have, uint32_t max, uint32_t *ret_len);

/* The four bytes before a text of `len` bytes. */
void aq_control_frame_put(uint8_t head[static 4], uint32_t len);

/*
 * Client's side, blocking: send one request and wait for its answer. On success *ret_answer is NUL-terminated and the caller's to
 * free(). Returns 0 or -errno; what the daemon refused is in the answer, not here.
 */
int aq_control_call(int sock, const char *request, char **ret_answer, struct aq_err *err);
