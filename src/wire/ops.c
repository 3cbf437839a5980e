/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operations: what the decoder of both ends knows of each. */
#include "wire/messages.h"
#include "wire/server.h"
#include "wire/shm.h"

#include "base/macro.h"

static const struct {
	const char *name;
	size_t req_size;
} ops[AQ_OP_COUNT] = {
#define X(NAME, name) [AQ_OP_##NAME] = { #NAME, sizeof(struct aq_req_##name) },
	AQ_WIRE_OPS(X)
#undef X
};

/* Both ends must agree on sizes on every architecture: nothing here may need padding at its end. */
#define X(NAME, name)                                                                          \
	_Static_assert(sizeof(struct aq_req_##name) % 8 == 0, #NAME " request");               \
	_Static_assert(sizeof(struct aq_req_##name) <= AQ_WIRE_MAX_PAYLOAD, #NAME " request"); \
	_Static_assert(sizeof(struct aq_rep_##name) % 8 == 0, #NAME " reply");                 \
	_Static_assert(sizeof(struct aq_rep_##name) <= AQ_WIRE_MAX_PAYLOAD, #NAME " reply");
AQ_WIRE_OPS(X)
#undef X

size_t aq_wire_req_size(unsigned op)
{
	return op < AQ_OP_COUNT ? ops[op].req_size : 0;
}

const char *aq_wire_op_name(unsigned op)
{
	return op < AQ_OP_COUNT && ops[op].name ? ops[op].name : "?";
}
