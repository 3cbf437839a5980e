/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/ptx/ptx.h"

#include "base/macro.h"

#include <string.h>

static const struct {
	char name[12];
	uint8_t size;
} types[] = {
	[AQ_PTX_B8] = { "b8", 1 },	     [AQ_PTX_B16] = { "b16", 2 },
	[AQ_PTX_B32] = { "b32", 4 },	     [AQ_PTX_B64] = { "b64", 8 },
	[AQ_PTX_B128] = { "b128", 16 },	     [AQ_PTX_U8] = { "u8", 1 },
	[AQ_PTX_U16] = { "u16", 2 },	     [AQ_PTX_U32] = { "u32", 4 },
	[AQ_PTX_U64] = { "u64", 8 },	     [AQ_PTX_S8] = { "s8", 1 },
	[AQ_PTX_S16] = { "s16", 2 },	     [AQ_PTX_S32] = { "s32", 4 },
	[AQ_PTX_S64] = { "s64", 8 },	     [AQ_PTX_F16] = { "f16", 2 },
	[AQ_PTX_F16X2] = { "f16x2", 4 },     [AQ_PTX_BF16] = { "bf16", 2 },
	[AQ_PTX_BF16X2] = { "bf16x2", 4 },   [AQ_PTX_F32] = { "f32", 4 },
	[AQ_PTX_F64] = { "f64", 8 },	     [AQ_PTX_PRED] = { "pred", 0 },
	[AQ_PTX_TEXREF] = { "texref", 8 },   [AQ_PTX_SAMPLERREF] = { "samplerref", 8 },
	[AQ_PTX_SURFREF] = { "surfref", 8 },
};

unsigned aq_ptx_type_size(enum aq_ptx_type type)
{
	return (size_t)type < AQ_ARRAY_SIZE(types) ? types[type].size : 0;
}

const char *aq_ptx_type_name(enum aq_ptx_type type)
{
	return (size_t)type < AQ_ARRAY_SIZE(types) ? types[type].name : "";
}

enum aq_ptx_type aq_ptx_type_parse(const char *name)
{
	for (size_t i = 1; i < AQ_ARRAY_SIZE(types); i++) {
		if (strcmp(types[i].name, name) == 0)
			return (enum aq_ptx_type)i;
	}
	return AQ_PTX_NOTYPE;
}
