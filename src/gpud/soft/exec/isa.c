/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers that fit this machine. */
#include "gpud/soft/exec/insn.h"
#include "gpud/soft/exec/ops.h"

#if defined(__x86_64__)
#	define LEVEL(name) (has_v3() ? name##_v3 : name##_base)

static bool has_v3(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
	       __builtin_cpu_supports("popcnt");
}
#else
#	define LEVEL(name) name##_base
#endif

aq_alu_fn aq_alu_select(const struct aq_ptx_insn *in, struct aq_alu_shape *ret_shape,
			const char **ret_why)
{
	return LEVEL(aq_alu_select)(in, ret_shape, ret_why);
}

aq_op_fn aq_load_select(enum aq_ptx_space space, unsigned size, bool is_signed, bool wide)
{
	return LEVEL(aq_load_select)(space, size, is_signed, wide);
}

aq_op_fn aq_store_select(enum aq_ptx_space space, unsigned size, bool wide)
{
	return LEVEL(aq_store_select)(space, size, wide);
}
