/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/control.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/fd.h"

#include <errno.h>
#include <string.h>

#define HEAD 4U

static uint32_t get_length(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int aq_control_frame(const void *buf, size_t have, uint32_t max, uint32_t *ret_len)
{
	uint32_t len;

	if (have < HEAD) {
		*ret_len = (uint32_t)(HEAD - have);
		return 0;
	}
	len = get_length(buf);
	if (len == 0)
		return -EPROTO;
	if (len > max)
		return -EMSGSIZE;
	if (have - HEAD < len) {
		*ret_len = (uint32_t)(len - (have - HEAD));
		return 0;
	}
	*ret_len = len;
	return 1;
}

void aq_control_frame_put(uint8_t head[static 4], uint32_t len)
{
	for (unsigned i = 0; i < HEAD; i++)
		head[i] = (uint8_t)(len >> (8 * i));
}

static int receive(int sock, char **ret_answer, struct aq_err *err)
{
	aq_auto_free char *text = NULL;
	uint8_t head[HEAD];
	uint32_t len;
	int rc = aq_fd_recv(sock, head, sizeof(head), NULL);

	if (rc < 0)
		return aq_err_set(err, rc, "the daemon does not answer: %s", strerror(-rc));
	len = get_length(head);
	if (len == 0 || len > AQ_CONTROL_ANSWER_MAX)
		return aq_err_set(err, -EPROTO,
				  "the daemon answers with %u bytes, 1 to %u expected", len,
				  AQ_CONTROL_ANSWER_MAX);
	text = malloc((size_t)len + 1);
	if (!text)
		return aq_err_set(err, -ENOMEM, "no memory for an answer of %u bytes", len);
	rc = aq_fd_recv(sock, text, len, NULL);
	if (rc < 0)
		return aq_err_set(err, rc, "the daemon's answer is cut: %s", strerror(-rc));
	text[len] = '\0';
	*ret_answer = aq_take_ptr(text);
	return 0;
}

int aq_control_call(int sock, const char *request, char **ret_answer, struct aq_err *err)
{
	size_t len = strlen(request);
	uint8_t head[HEAD];
	int rc;

	if (len == 0 || len > AQ_CONTROL_REQUEST_MAX)
		return aq_err_set(err, -EMSGSIZE, "a request of %zu bytes, 1 to %u are allowed",
				  len, AQ_CONTROL_REQUEST_MAX);
	aq_control_frame_put(head, (uint32_t)len);
	rc = aq_fd_send(sock, head, sizeof(head), -1);
	if (rc == 0)
		rc = aq_fd_send(sock, request, len, -1);
	if (rc < 0)
		return aq_err_set(err, rc, "cannot send to the daemon: %s", strerror(-rc));
	return receive(sock, ret_answer, err);
}
