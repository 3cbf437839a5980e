/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/attach.h"

#include <errno.h>
#include <string.h>

static uint32_t least_size(unsigned op)
{
	switch (op) {
	case AQ_ATTACH_HELLO:
		return sizeof(struct aq_attach_hello);
	case AQ_ATTACH_WELCOME:
		return sizeof(struct aq_attach_welcome);
	case AQ_ATTACH_SETTLE:
		return sizeof(struct aq_attach_settle);
	case AQ_ATTACH_SETTLED:
		return sizeof(struct aq_attach_settled);
	default:
		return UINT32_MAX;
	}
}

int aq_attach_check(const void *packet, uint32_t len)
{
	struct aq_attach_header h;

	if (len < sizeof(h) || len > AQ_ATTACH_MAX)
		return -EPROTO;
	memcpy(&h, packet, sizeof(h));
	if (h.magic != AQ_ATTACH_MAGIC || h.size > len || h.size < least_size(h.op))
		return -EPROTO;
	return h.op;
}
