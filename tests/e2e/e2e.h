/* SPDX-License-Identifier: Apache-2.0 */
/* For programs that use the driver API as an application does: named checks, TAP out. */
#pragma once

#include "api/cuda_protos.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct e2e_test {
	const char *name;
	void (*fn)(void);
};

static int e2e_failures; /* in the test that runs */

/* Name of a result for a message. */
static inline const char *e2e_name(CUresult rc)
{
	const char *name = NULL;

	return cuGetErrorName(rc, &name) == CUDA_SUCCESS ? name : "unknown result";
}

#define CHECK(cond)                                                               \
	do {                                                                      \
		if (!(cond)) {                                                    \
			(void)printf("# %s:%d: %s\n", __FILE__, __LINE__, #cond); \
			e2e_failures++;                                           \
		}                                                                 \
	} while (0)

#define CHECK_INT(got, want)                                                                      \
	do {                                                                                      \
		long long got_ = (long long)(got);                                                \
		long long want_ = (long long)(want);                                              \
		if (got_ != want_) {                                                              \
			(void)printf("# %s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, \
				     got_, want_);                                                \
			e2e_failures++;                                                           \
		}                                                                                 \
	} while (0)

#define CHECK_RC(call, want)                                                                   \
	do {                                                                                   \
		CUresult rc_ = (call);                                                         \
		if (rc_ != (want)) {                                                           \
			(void)printf("# %s:%d: %s is %s, not %s\n", __FILE__, __LINE__, #call, \
				     e2e_name(rc_), e2e_name(want));                           \
			e2e_failures++;                                                        \
		}                                                                              \
	} while (0)

#define OK(call) CHECK_RC(call, CUDA_SUCCESS)

/* Run them all in order. Returns the program's exit status. */
static inline int e2e_run(const struct e2e_test *tests, int n)
{
	int failed = 0;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	(void)printf("1..%d\n", n);
	for (int i = 0; i < n; i++) {
		e2e_failures = 0;
		tests[i].fn();
		(void)printf("%sok %d - %s\n", e2e_failures ? "not " : "", i + 1, tests[i].name);
		failed += e2e_failures != 0;
	}
	return failed != 0;
}
