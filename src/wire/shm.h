/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a client and the server share: one memfd a session, made by the server, sealed against resizing.
 *
 * Requests go through a byte ring with one consumer; the client's threads take turns by a lock of their own. Answers come in slots: a thread
 * takes a slot, names it in the request and waits on its word. Neither side believes anything it reads here: positions
 * are checked against the ring's size, a request is copied out before it is looked at, lengths are bounded.
 */
#pragma once

#include "wire/messages.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define AQ_WIRE_RING_BYTES  (1U << 20) /* power of two */
#define AQ_WIRE_SLOTS	    64U
#define AQ_WIRE_ERROR_SLOTS 1024U
#define AQ_WIRE_ALIGN	    16U /* messages begin at multiples of it */

/* States of a reply slot. */
enum aq_slot_state {
	AQ_SLOT_FREE = 0,
	AQ_SLOT_WAITING, /* request sent, client spins */
	AQ_SLOT_ASLEEP,	 /* client sleeps on the word: the server must wake it */
	AQ_SLOT_DONE,
};

struct aq_wire_slot {
	_Atomic uint32_t state; /* futex word */
	uint32_t status;	/* enum aq_status */
	uint32_t len;
	uint32_t reserved;
	uint8_t payload[AQ_WIRE_MAX_PAYLOAD];
};

struct aq_wire_ring {
	_Alignas(64) _Atomic uint64_t head; /* written by the client: bytes put in so far */
	_Alignas(64) _Atomic uint64_t tail; /* written by the server: bytes taken out so far */
	_Alignas(64) _Atomic uint32_t
		server_asleep; /* futex word: 1 while the server waits for requests */
	_Alignas(64) _Atomic uint32_t
		client_asleep; /* futex word: 1 while a client thread waits for room */
	_Alignas(64) uint8_t data[AQ_WIRE_RING_BYTES];
};

struct aq_wire_shm {
	uint32_t magic;
	uint32_t version;
	_Atomic uint32_t closed; /* 1: the server has given the session up */
	_Alignas(64) _Atomic uint32_t
		ctx_error[AQ_WIRE_ERROR_SLOTS]; /* enum aq_status, written by the server */
	struct aq_wire_ring ring;
	_Alignas(64) struct aq_wire_slot slot[AQ_WIRE_SLOTS];
};

_Static_assert(sizeof(struct aq_wire_header) == 8, "wire header");
_Static_assert(offsetof(struct aq_wire_slot, payload) == 16, "slot payload");
_Static_assert(offsetof(struct aq_wire_shm, ctx_error) == 64, "error words");
