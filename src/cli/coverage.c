/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot soft --coverage`: what the software card's libraries do with each entry point, from the tables they are built of. */
#include "cli/cli.h"

#include "api/api.h"
#include "base/macro.h"

#include <stdio.h>

static void print_list(const char *library, const struct aq_api_entry *entries, size_t count,
		       enum aq_api_status status)
{
	for (size_t i = 0; i < count; i++) {
		if (entries[i].status == status)
			(void)printf("  %-16s %s\n", library, entries[i].symbol);
	}
}

static size_t count_of(const struct aq_api_entry *entries, size_t count, enum aq_api_status status)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		n += entries[i].status == status;
	return n;
}

int aq_cli_soft_coverage(void)
{
	static const struct {
		enum aq_api_status status;
		const char *title;
	} lists[] = {
		{ AQ_API_MODELLED, "modelled" },
		{ AQ_API_ACCEPTED, "accepted without effect" },
		{ AQ_API_REFUSED, "refused" },
	};

	for (size_t i = 0; i < AQ_ARRAY_SIZE(lists); i++) {
		enum aq_api_status status = lists[i].status;

		(void)printf("%s%s: %zu of CUDA's %zu, %zu of NVML's %zu\n", i ? "\n" : "",
			     lists[i].title, count_of(aq_api_cuda, aq_api_cuda_count, status),
			     aq_api_cuda_count, count_of(aq_api_nvml, aq_api_nvml_count, status),
			     aq_api_nvml_count);
		print_list("libcuda", aq_api_cuda, aq_api_cuda_count, status);
		print_list("libnvidia-ml", aq_api_nvml, aq_api_nvml_count, status);
	}
	return AQ_EXIT_OK;
}
