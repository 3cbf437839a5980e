/* SPDX-License-Identifier: Apache-2.0 */
/* What a software card is: sizes, not predictions. */
#pragma once

#include "wire/messages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct aq_err;

/*
 * What real cards do and a stand-in forgets. All off by default: these are the places where the engine and the loader already look; profiles that imitate
 * hardware fill them in, and more will come.
 */
struct aq_manners {
	uint32_t launch_ns; /* added to the modelled time of every kernel */
	uint32_t
		queue_depth; /* unfinished commands of a session before its submission blocks; 0: the server's bound */
	uint64_t module_code_bytes; /* taken from the card for each module beside its variables */
};

struct aq_profile {
	char name[32];
	uint64_t memory_bytes;
	uint64_t reserved_bytes; /* held by the card itself */
	uint64_t context_bytes;	 /* taken by each context */
	uint32_t sm;		 /* compute capability: 10 × major + minor */
	uint32_t sms;
	uint32_t clock_sm_mhz, clock_mem_mhz;
	uint32_t bus_bits;
	uint32_t l2_bytes;
	uint32_t power_idle_mw, power_max_mw;
	double speed;	      /* 1: as fast as one core interprets; smaller is slower */
	uint32_t ns_per_insn; /* modelled cost of a warp instruction at speed 1 */
	uint32_t slice_ns;    /* time slice of a context */
	struct aq_manners manners;
};

/*
 * Parse "NAME[,speed=F][,memory=SIZE][,sms=N][,sm=CC]": a profile of the table with its values replaced. Returns 0, -ENOENT (the message lists the
 * names), -EINVAL, -ERANGE.
 */
int aq_profile_parse(const char *text, struct aq_profile *ret, struct aq_err *err);

#define AQ_PROFILE_DEFAULT "card-16g"

/* The n-th name of the table, NULL behind the last. */
const char *aq_profile_name(unsigned n);

/* Limits of a multiprocessor and of a launch. */
#define AQ_SM_THREADS	       2048U
#define AQ_SM_BLOCKS	       32U
#define AQ_SM_REGISTERS	       65536U
#define AQ_SM_SHARED	       (164U * 1024)
#define AQ_BLOCK_THREADS       1024U
#define AQ_BLOCK_SHARED	       (48U * 1024)
#define AQ_BLOCK_SHARED_OPTIN  (163U * 1024)
#define AQ_BLOCK_SHARED_SYSTEM 1024U /* of each block, taken by the card itself */

/* Fill in what CARD_INFO answers for card number `index`; `seed` makes UUIDs of different servers differ. */
void aq_profile_info(const struct aq_profile *p, uint32_t index, uint64_t seed,
		     struct aq_rep_card_info *ret);
