/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes in on an attach socket. The input is a row of packets, each after its length (u16): the decoder that both ends use, and the reading of
 * what it lets through.
 */
#include "proto/attach.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint32_t sink;

/* As the daemon and the shim do: copy the structure out, then look at it. */
static void use(int op, const uint8_t *packet)
{
	union {
		struct aq_attach_hello hello;
		struct aq_attach_welcome welcome;
		struct aq_attach_settle settle;
		struct aq_attach_settled settled;
	} m;

	switch (op) {
	case AQ_ATTACH_HELLO:
		memcpy(&m.hello, packet, sizeof(m.hello));
		m.hello.program[sizeof(m.hello.program) - 1] = '\0';
		sink += (uint32_t)strlen(m.hello.program) + m.hello.pid;
		break;
	case AQ_ATTACH_WELCOME:
		memcpy(&m.welcome, packet, sizeof(m.welcome));
		m.welcome.message[sizeof(m.welcome.message) - 1] = '\0';
		sink += (uint32_t)strlen(m.welcome.message) + m.welcome.slot;
		break;
	case AQ_ATTACH_SETTLE:
		memcpy(&m.settle, packet, sizeof(m.settle));
		sink += m.settle.card;
		break;
	case AQ_ATTACH_SETTLED:
		memcpy(&m.settled, packet, sizeof(m.settled));
		sink += (uint32_t)m.settled.bytes;
		break;
	default:
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	while (size >= 2) {
		size_t len = (size_t)data[0] | (size_t)data[1] << 8;
		uint8_t *packet;
		int op;

		data += 2;
		size -= 2;
		if (len > size)
			len = size;
		/* Of its own and exactly as long, so that a sanitizer sees the first byte behind it. */
		packet = malloc(len + !len);
		if (!packet)
			abort();
		memcpy(packet, data, len);
		op = aq_attach_check(packet, (uint32_t)len);
		if (op > 0)
			use(op, packet);
		free(packet);
		data += len;
		size -= len;
	}
	return 0;
}
