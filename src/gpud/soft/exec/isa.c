/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic handlers that fit this machine. */
#include "gpud/soft/exec/insn.h"

aq_alu_fn aq_alu_select(const struct aq_ptx_insn *in, struct aq_alu_shape *ret_shape,
			const char **ret_why)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
		return aq_alu_select_v3(in, ret_shape, ret_why);
#endif
	return aq_alu_select_base(in, ret_shape, ret_why);
}
