/* SPDX-License-Identifier: Apache-2.0 */
/* A card of the least kind: one stretch of memory, one thread that runs blocks in turn. */
#pragma once

#include "gpud/soft/exec/exec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AQ_DEVICE_BASE	UINT64_C(0x200000000)
#define AQ_DEVICE_BYTES (UINT64_C(4) << 20)

struct aq_device {
	uint8_t *mem; /* AQ_DEVICE_BYTES, at AQ_DEVICE_BASE for kernels */
	struct aq_mem_map map;
	char log[4096];		   /* of the last build that failed */
	struct aq_run_result last; /* of the last block that ran */
	uint64_t lane_insns, insns;
	uint64_t quantum;     /* for aq_block_run(); 0: large */
	uint64_t const_bytes; /* module variables lie at the end of mem */
};

void aq_device_init(struct aq_device *d);
void aq_device_done(struct aq_device *d);

/* NULL when the text is refused; the reason is in d->log. Variables of the module get their places and values. */
struct aq_code *aq_device_build(struct aq_device *d, const char *text);
/* Run kernel 0. All blocks are resident together and take turns. AQ_OK or the fault. */
enum aq_status aq_device_launch(struct aq_device *d, struct aq_code *code, unsigned grid,
				unsigned block, unsigned dyn_shared, const void *params);
/* Both. */
enum aq_status aq_device_run(struct aq_device *d, const char *text, unsigned grid, unsigned block,
			     const void *params);
