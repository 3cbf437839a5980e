/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points that are refused, or accepted without effect: the bodies of the generated stubs. */
#include "base/format.h"
#include "base/macro.h"
#include "frontend/cuda/fe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_NAMES 640U

/* Names are literals of the generated stubs, one address each: the set only grows. */
static const char *_Atomic said[MAX_NAMES];

/* True the first time for each name. */
static bool is_news(const char *entry)
{
	for (unsigned i = 0; i < MAX_NAMES; i++) {
		const char *none = NULL;

		if (atomic_compare_exchange_strong(&said[i], &none, entry))
			return true;
		if (none == entry)
			return false;
	}
	return false;
}

static void say(const char *entry, const char *what)
{
	int saved = errno;
	char line[160];
	size_t n = aq_format(line, sizeof(line), "aliquot: %s %s\n", entry, what);

	n = AQ_MIN(n, sizeof(line) - 1);
	if (write(STDERR_FILENO, line, n) < 0)
		errno = saved;
	errno = saved;
}

CUresult aq_fe_refuse(const char *entry)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	if (is_news(entry))
		say(entry, "is not supported by the software card");
	return CUDA_ERROR_NOT_SUPPORTED;
}

static bool is_set(const char *variable)
{
	const char *value = getenv(variable);

	return value && strcmp(value, "1") == 0;
}

CUresult aq_fe_accept(const char *entry)
{
	CUresult rc = aq_fe_enter();

	if (rc != CUDA_SUCCESS)
		return rc;
	if (is_set("ALIQUOT_SOFT_STRICT"))
		return aq_fe_refuse(entry);
	if (is_set("ALIQUOT_SOFT_VERBOSE") && is_news(entry))
		say(entry, "is accepted without effect by the software card");
	return CUDA_SUCCESS;
}
