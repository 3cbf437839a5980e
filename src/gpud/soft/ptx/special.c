/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/ptx/parse.h"

#include "base/macro.h"

#include <string.h>

/* Special registers without the %. Which of them can be read is for lowering to say. */
static const char *const specials[] = {
	"aggr_smem_size",
	"clock",
	"clock64",
	"clock_hi",
	"cluster_ctaid",
	"cluster_ctarank",
	"cluster_nctaid",
	"cluster_nctarank",
	"clusterid",
	"ctaid",
	"current_graph_exec",
	"dynamic_smem_size",
	"globaltimer",
	"globaltimer_hi",
	"globaltimer_lo",
	"gridid",
	"is_explicit_cluster",
	"laneid",
	"lanemask_eq",
	"lanemask_ge",
	"lanemask_gt",
	"lanemask_le",
	"lanemask_lt",
	"nclusterid",
	"nctaid",
	"nsmid",
	"ntid",
	"nwarpid",
	"reserved_smem_offset_begin",
	"reserved_smem_offset_cap",
	"reserved_smem_offset_end",
	"smid",
	"tid",
	"total_smem_size",
	"warpid",
};

/* %envreg0 .. 31, %pm0 .. 7 and %pm0_64 .. 7_64. */
static bool is_numbered(const char *name, size_t len)
{
	if (len > 6 && len <= 8 && memcmp(name, "envreg", 6) == 0) {
		unsigned n = 0;

		for (size_t i = 6; i < len; i++) {
			if (name[i] < '0' || name[i] > '9')
				return false;
			n = n * 10 + (unsigned)(name[i] - '0');
		}
		return n < 32;
	}
	if (len >= 3 && memcmp(name, "pm", 2) == 0 && name[2] >= '0' && name[2] <= '7')
		return len == 3 || (len == 6 && memcmp(name + 3, "_64", 3) == 0);
	return false;
}

bool aq_ptx_special_is(const char *name, size_t len)
{
	if (len < 2 || name[0] != '%')
		return false;
	name++;
	len--;
	for (size_t i = 0; i < AQ_ARRAY_SIZE(specials); i++) {
		if (strlen(specials[i]) == len && memcmp(specials[i], name, len) == 0)
			return true;
	}
	return is_numbered(name, len);
}
