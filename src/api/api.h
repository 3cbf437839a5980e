/* SPDX-License-Identifier: Apache-2.0 */
/* What gen.py makes of cuda.tbl and nvml.tbl, as C sees it. */
#pragma once

#include <stddef.h>

/* How a front end treats an entry point. */
enum aq_api_status {
	AQ_API_MODELLED, /* answers as the driver does */
	AQ_API_ACCEPTED, /* succeeds without effect; counted */
	AQ_API_REFUSED,	 /* not supported, and says so */
};

enum aq_api_stream {
	AQ_API_PLAIN, /* stream 0 is the legacy default stream */
	AQ_API_PTSZ,  /* stream 0 is the calling thread's own */
	AQ_API_PTDS,  /* the same, where the plain one has no stream argument */
};

/* One exported entry point. */
struct aq_api_entry {
	const char *symbol;
	enum aq_api_status status;
};

/* For programs that only want to know: every name of the library, sorted. No function is referred to. */
extern const struct aq_api_entry aq_api_cuda[];
extern const size_t aq_api_cuda_count;
extern const struct aq_api_entry aq_api_nvml[];
extern const size_t aq_api_nvml_count;

/* One variant of an entry point, as cuGetProcAddress chooses among them. */
struct aq_api_proc {
	const char *base;
	unsigned since; /* CUDA version, 1000 * major + 10 * minor */
	enum aq_api_stream stream;
	enum aq_api_status status;
	const char *symbol;
	void (*fn)(void);
};

/* Only in the CUDA front end: sorted by base, then plain before twins, then since. */
extern const struct aq_api_proc aq_api_procs[];
extern const size_t aq_api_procs_count;
