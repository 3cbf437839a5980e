/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the instructions that are not arithmetic: they reach memory, other lanes or the flow of control. */
#pragma once

#include "device.h"

#include "util/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

/* A test and the instruction it stands for; several may stand for one. The tables end with a NULL name. */
struct aq_operation {
	const char *name;
	void (*test)(void **state);
};

extern const struct aq_operation aq_operations_memory[];
extern const struct aq_operation aq_operations_atomic[];
extern const struct aq_operation aq_operations_warp[];
extern const struct aq_operation aq_operations_control[];

/* One card for all tests; its memory is zero when a test begins. */
extern struct aq_device aq_test_device;

/* The text of a kernel, written line by line. */
void aq_text_begin(struct aq_strbuf *b, const char *params);
void aq_text(struct aq_strbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void aq_text_end(struct aq_strbuf *b);

/* %gid: this thread among all; %base: the parameter base; %at: base + 8 * gid. Declares %gid, %base, %at and the temporaries %t32 and %t64. */
void aq_text_prologue(struct aq_strbuf *b);

/* Run it, fail the test if it does not end well. */
void aq_text_run(struct aq_strbuf *b, unsigned grid, unsigned block, const void *params);
/* Build must fail. */
void aq_text_refused(struct aq_strbuf *b);

static inline uint64_t *aq_test_words(uint64_t offset)
{
	return (uint64_t *)(void *)(aq_test_device.mem + offset);
}
