/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the just-in-time compiler, and its logs. */
#include "base/format.h"
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <stdarg.h>
#include <string.h>

static unsigned as_unsigned(const void *value)
{
	return (unsigned)(uintptr_t)value;
}

/* Options that are not named are hints to a compiler that makes no such difference. */
static void take_option(struct aq_fe_jit *jit, CUjit_option option, void *value)
{
	switch ((int)option) {
	case CU_JIT_MAX_REGISTERS:
		jit->max_registers = as_unsigned(value);
		break;
	case CU_JIT_THREADS_PER_BLOCK:
		jit->threads_per_block = as_unsigned(value);
		break;
	case CU_JIT_INFO_LOG_BUFFER:
		jit->info_log = value;
		break;
	case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
		jit->info_size = as_unsigned(value);
		break;
	case CU_JIT_ERROR_LOG_BUFFER:
		jit->error_log = value;
		break;
	case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
		jit->error_size = as_unsigned(value);
		break;
	case CU_JIT_OPTIMIZATION_LEVEL:
		jit->opt_level = as_unsigned(value);
		break;
	case CU_JIT_LOG_VERBOSE:
		jit->verbose = as_unsigned(value) != 0;
		break;
	default:
		break;
	}
}

CUresult aq_fe_jit_parse(unsigned n, const CUjit_option *options, void **values,
			 struct aq_fe_jit *ret)
{
	*ret = (struct aq_fe_jit){ .opt_level = 4 };
	if (n > 0 && (!options || !values))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n; i++) {
		if ((unsigned)options[i] >= CU_JIT_NUM_OPTIONS)
			return CUDA_ERROR_INVALID_VALUE;
		take_option(ret, options[i], values[i]);
	}
	if (ret->opt_level > 4)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ret->info_log)
		ret->info_size = 0;
	if (!ret->error_log)
		ret->error_size = 0;
	if (ret->info_size > 0)
		ret->info_log[0] = '\0';
	if (ret->error_size > 0)
		ret->error_log[0] = '\0';
	return CUDA_SUCCESS;
}

void aq_fe_jit_finish(const struct aq_fe_jit *jit, unsigned n, const CUjit_option *options,
		      void **values)
{
	for (unsigned i = 0; i < n; i++) {
		switch ((int)options[i]) {
		case CU_JIT_WALL_TIME:
			memcpy(&values[i], &jit->wall_ms, sizeof(jit->wall_ms));
			break;
		case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
			values[i] = (void *)(uintptr_t)jit->info_used;
			break;
		case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
			values[i] = (void *)(uintptr_t)jit->error_used;
			break;
		default:
			break;
		}
	}
}

void aq_fe_jit_append(struct aq_fe_jit *jit, const char *text, size_t len)
{
	size_t room;

	if (jit->error_size == 0)
		return;
	room = jit->error_size - 1 - jit->error_used;
	len = AQ_MIN(len, room);
	memcpy(jit->error_log + jit->error_used, text, len);
	jit->error_used += len;
	jit->error_log[jit->error_used] = '\0';
}

__attribute__((format(printf, 4, 0))) static size_t append(char *log, size_t size, size_t used,
							   const char *fmt, va_list ap)
{
	if (size == 0)
		return 0;
	used += aq_vformat(log + used, size - used, fmt, ap);
	return AQ_MIN(used, size - 1);
}

void aq_fe_jit_error(struct aq_fe_jit *jit, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	jit->error_used = append(jit->error_log, jit->error_size, jit->error_used, fmt, ap);
	va_end(ap);
}

void aq_fe_jit_info(struct aq_fe_jit *jit, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	jit->info_used = append(jit->info_log, jit->info_size, jit->info_used, fmt, ap);
	va_end(ap);
}
