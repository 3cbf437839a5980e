/* SPDX-License-Identifier: Apache-2.0 */
#include "gpud/soft/profile.h"

#include "api/cuda_enums.h"
#include "base/err.h"
#include "base/macro.h"
#include "base/size.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * ns_per_insn is an optimistic figure for one core: a kernel whose blocks the machine interprets at least at this pace ends by the model, one that
 * takes longer is counted as late. speed scales it.
 */
#define NS_PER_INSN 40U

static const struct aq_profile profiles[] = {
	{ .name = "card-1g",
	  .memory_bytes = 1 * AQ_GIB,
	  .reserved_bytes = 16 * AQ_MIB,
	  .context_bytes = 16 * AQ_MIB,
	  .sm = 80,
	  .sms = 4,
	  .clock_sm_mhz = 1000,
	  .clock_mem_mhz = 2500,
	  .bus_bits = 64,
	  .l2_bytes = 1 * AQ_MIB,
	  .power_idle_mw = 6000,
	  .power_max_mw = 30000,
	  .speed = 1,
	  .ns_per_insn = NS_PER_INSN,
	  .slice_ns = 2 * AQ_NS_PER_MS },
	{ .name = "card-16g",
	  .memory_bytes = 16 * AQ_GIB,
	  .reserved_bytes = 128 * AQ_MIB,
	  .context_bytes = 64 * AQ_MIB,
	  .sm = 80,
	  .sms = 16,
	  .clock_sm_mhz = 1410,
	  .clock_mem_mhz = 5001,
	  .bus_bits = 256,
	  .l2_bytes = 4 * AQ_MIB,
	  .power_idle_mw = 10000,
	  .power_max_mw = 70000,
	  .speed = 1,
	  .ns_per_insn = NS_PER_INSN,
	  .slice_ns = 2 * AQ_NS_PER_MS },
	{ .name = "card-40g",
	  .memory_bytes = 40 * AQ_GIB,
	  .reserved_bytes = 256 * AQ_MIB,
	  .context_bytes = 160 * AQ_MIB,
	  .sm = 80,
	  .sms = 32,
	  .clock_sm_mhz = 1410,
	  .clock_mem_mhz = 1215,
	  .bus_bits = 5120,
	  .l2_bytes = 40 * AQ_MIB,
	  .power_idle_mw = 40000,
	  .power_max_mw = 400000,
	  .speed = 1,
	  .ns_per_insn = NS_PER_INSN,
	  .slice_ns = 2 * AQ_NS_PER_MS },
	{ .name = "card-80g",
	  .memory_bytes = 80 * AQ_GIB,
	  .reserved_bytes = 512 * AQ_MIB,
	  .context_bytes = 320 * AQ_MIB,
	  .sm = 90,
	  .sms = 64,
	  .clock_sm_mhz = 1410,
	  .clock_mem_mhz = 1593,
	  .bus_bits = 5120,
	  .l2_bytes = 40 * AQ_MIB,
	  .power_idle_mw = 50000,
	  .power_max_mw = 400000,
	  .speed = 1,
	  .ns_per_insn = NS_PER_INSN,
	  .slice_ns = 2 * AQ_NS_PER_MS },
};

const char *aq_profile_name(unsigned n)
{
	return n < AQ_ARRAY_SIZE(profiles) ? profiles[n].name : NULL;
}

static int set_speed(struct aq_profile *p, const char *value, struct aq_err *err)
{
	char *end;
	double d = strtod(value, &end);

	if (end == value || *end || !(d >= 0.0001 && d <= 1000))
		return aq_err_set(err, -ERANGE, "speed \"%s\" is not a number from 0.0001 to 1000",
				  value);
	p->speed = d;
	return 0;
}

static int set_memory(struct aq_profile *p, const char *value, struct aq_err *err)
{
	uint64_t bytes;
	int rc = aq_size_parse(value, &bytes, err);

	if (rc < 0)
		return rc;
	if (bytes < 64 * AQ_MIB || bytes > 1024 * AQ_GIB || bytes % (2 * AQ_MIB))
		return aq_err_set(err, -ERANGE,
				  "memory \"%s\" is not a multiple of 2 MiB from 64 MiB to 1 TiB",
				  value);
	p->memory_bytes = bytes;
	if (p->reserved_bytes > bytes / 8)
		p->reserved_bytes = aq_align_down(bytes / 8, 2 * AQ_MIB);
	if (p->context_bytes > bytes / 16)
		p->context_bytes = aq_align_down(bytes / 16, 2 * AQ_MIB);
	return 0;
}

static int set_sms(struct aq_profile *p, const char *value, struct aq_err *err)
{
	uint64_t n;
	int rc = aq_uint_parse(value, "sms", 256, &n, err);

	if (rc < 0)
		return rc;
	if (n == 0)
		return aq_err_set(err, -ERANGE, "a card needs at least one multiprocessor");
	p->sms = (uint32_t)n;
	return 0;
}

/* Code for a later target is refused by a card, as a driver does; so a card can be of any generation whose PTX is understood. */
static int set_sm(struct aq_profile *p, const char *value, struct aq_err *err)
{
	static const uint8_t known[] = { 30, 32, 35, 37, 50, 52, 53, 60, 61,
					 62, 70, 72, 75, 80, 86, 87, 89, 90 };
	uint64_t n;
	int rc = aq_uint_parse(value, "sm", 90, &n, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < sizeof(known); i++) {
		if (known[i] == n) {
			p->sm = (uint32_t)n;
			return 0;
		}
	}
	return aq_err_set(err, -ERANGE, "sm \"%s\" is no compute capability; say 80 for 8.0",
			  value);
}

static int set_option(struct aq_profile *p, const char *option, struct aq_err *err)
{
	static const struct {
		const char *key;
		int (*set)(struct aq_profile *p, const char *value, struct aq_err *err);
	} keys[] = {
		{ "speed=", set_speed },
		{ "memory=", set_memory },
		{ "sms=", set_sms },
		{ "sm=", set_sm },
	};

	for (size_t i = 0; i < AQ_ARRAY_SIZE(keys); i++) {
		size_t len = strlen(keys[i].key);

		if (strncmp(option, keys[i].key, len) == 0)
			return keys[i].set(p, option + len, err);
	}
	return aq_err_set(err, -EINVAL,
			  "profile option \"%s\" is none of speed=, memory=, sms=, sm=", option);
}

static int find(const char *name, struct aq_profile *ret, struct aq_err *err)
{
	for (size_t i = 0; i < AQ_ARRAY_SIZE(profiles); i++) {
		if (strcmp(profiles[i].name, name) == 0) {
			*ret = profiles[i];
			return 0;
		}
	}
	return aq_err_set(err, -ENOENT,
			  "no profile \"%s\"; there are card-1g, card-16g, card-40g, card-80g",
			  name);
}

int aq_profile_parse(const char *text, struct aq_profile *ret, struct aq_err *err)
{
	char copy[256];
	char *rest = copy;
	char *part;
	struct aq_profile p;
	int rc;

	if (strlen(text) >= sizeof(copy))
		return aq_err_set(err, -EINVAL, "profile \"%.32s…\" is too long", text);
	(void)strcpy(copy, text);
	part = strsep(&rest, ",");
	rc = find(part, &p, err);
	while (rc == 0 && (part = strsep(&rest, ",")) != NULL)
		rc = set_option(&p, part, err);
	if (rc < 0)
		return rc;
	*ret = p;
	return 0;
}

#define A(NAME) CU_DEVICE_ATTRIBUTE_##NAME

/* Attributes that every software card shares. What is not listed is 0: a feature that the card does not have. */
static const struct {
	uint16_t attr;
	int32_t value;
} common_attrs[] = {
	{ A(MAX_THREADS_PER_BLOCK), AQ_BLOCK_THREADS },
	{ A(MAX_BLOCK_DIM_X), 1024 },
	{ A(MAX_BLOCK_DIM_Y), 1024 },
	{ A(MAX_BLOCK_DIM_Z), 64 },
	{ A(MAX_GRID_DIM_X), 2147483647 },
	{ A(MAX_GRID_DIM_Y), 65535 },
	{ A(MAX_GRID_DIM_Z), 65535 },
	{ A(MAX_SHARED_MEMORY_PER_BLOCK), AQ_BLOCK_SHARED },
	{ A(TOTAL_CONSTANT_MEMORY), 65536 },
	{ A(WARP_SIZE), 32 },
	{ A(MAX_PITCH), 2147483647 },
	{ A(MAX_REGISTERS_PER_BLOCK), AQ_SM_REGISTERS },
	{ A(TEXTURE_ALIGNMENT), 512 },
	{ A(GPU_OVERLAP), 1 },
	{ A(CAN_MAP_HOST_MEMORY), 1 },
	{ A(MAXIMUM_TEXTURE1D_WIDTH), 131072 },
	{ A(MAXIMUM_TEXTURE2D_WIDTH), 131072 },
	{ A(MAXIMUM_TEXTURE2D_HEIGHT), 65536 },
	{ A(MAXIMUM_TEXTURE3D_WIDTH), 16384 },
	{ A(MAXIMUM_TEXTURE3D_HEIGHT), 16384 },
	{ A(MAXIMUM_TEXTURE3D_DEPTH), 16384 },
	{ A(MAXIMUM_TEXTURE2D_LAYERED_WIDTH), 32768 },
	{ A(MAXIMUM_TEXTURE2D_LAYERED_HEIGHT), 32768 },
	{ A(MAXIMUM_TEXTURE2D_LAYERED_LAYERS), 2048 },
	{ A(SURFACE_ALIGNMENT), 512 },
	{ A(CONCURRENT_KERNELS), 1 },
	{ A(ASYNC_ENGINE_COUNT), 2 },
	{ A(UNIFIED_ADDRESSING), 1 },
	{ A(MAX_THREADS_PER_MULTIPROCESSOR), AQ_SM_THREADS },
	{ A(MAXIMUM_TEXTURE1D_LAYERED_WIDTH), 32768 },
	{ A(MAXIMUM_TEXTURE1D_LAYERED_LAYERS), 2048 },
	{ A(MAXIMUM_TEXTURE2D_GATHER_WIDTH), 32768 },
	{ A(MAXIMUM_TEXTURE2D_GATHER_HEIGHT), 32768 },
	{ A(MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE), 8192 },
	{ A(MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE), 8192 },
	{ A(MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE), 32768 },
	{ A(TEXTURE_PITCH_ALIGNMENT), 32 },
	{ A(MAXIMUM_TEXTURECUBEMAP_WIDTH), 32768 },
	{ A(MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH), 32768 },
	{ A(MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS), 2046 },
	{ A(MAXIMUM_SURFACE1D_WIDTH), 32768 },
	{ A(MAXIMUM_SURFACE2D_WIDTH), 131072 },
	{ A(MAXIMUM_SURFACE2D_HEIGHT), 65536 },
	{ A(MAXIMUM_SURFACE3D_WIDTH), 16384 },
	{ A(MAXIMUM_SURFACE3D_HEIGHT), 16384 },
	{ A(MAXIMUM_SURFACE3D_DEPTH), 16384 },
	{ A(MAXIMUM_SURFACE1D_LAYERED_WIDTH), 32768 },
	{ A(MAXIMUM_SURFACE1D_LAYERED_LAYERS), 2048 },
	{ A(MAXIMUM_SURFACE2D_LAYERED_WIDTH), 32768 },
	{ A(MAXIMUM_SURFACE2D_LAYERED_HEIGHT), 32768 },
	{ A(MAXIMUM_SURFACE2D_LAYERED_LAYERS), 2048 },
	{ A(MAXIMUM_SURFACECUBEMAP_WIDTH), 32768 },
	{ A(MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH), 32768 },
	{ A(MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS), 2046 },
	{ A(MAXIMUM_TEXTURE1D_LINEAR_WIDTH), 268435456 },
	{ A(MAXIMUM_TEXTURE2D_LINEAR_WIDTH), 131072 },
	{ A(MAXIMUM_TEXTURE2D_LINEAR_HEIGHT), 65000 },
	{ A(MAXIMUM_TEXTURE2D_LINEAR_PITCH), 2097120 },
	{ A(MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH), 32768 },
	{ A(MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT), 32768 },
	{ A(MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH), 32768 },
	{ A(STREAM_PRIORITIES_SUPPORTED), 1 },
	{ A(GLOBAL_L1_CACHE_SUPPORTED), 1 },
	{ A(LOCAL_L1_CACHE_SUPPORTED), 1 },
	{ A(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR), AQ_SM_SHARED },
	{ A(MAX_REGISTERS_PER_MULTIPROCESSOR), AQ_SM_REGISTERS },
	{ A(MANAGED_MEMORY), 1 },
	{ A(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO), 2 },
	{ A(CONCURRENT_MANAGED_ACCESS), 1 },
	{ A(COMPUTE_PREEMPTION_SUPPORTED), 1 },
	{ A(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM), 1 },
	{ A(COOPERATIVE_LAUNCH), 1 },
	{ A(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), AQ_BLOCK_SHARED_OPTIN },
	{ A(HOST_REGISTER_SUPPORTED), 1 },
	{ A(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1 },
	{ A(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED), 1 },
	{ A(MAX_BLOCKS_PER_MULTIPROCESSOR), AQ_SM_BLOCKS },
	{ A(RESERVED_SHARED_MEMORY_PER_BLOCK), AQ_BLOCK_SHARED_SYSTEM },
	{ A(MEMORY_POOLS_SUPPORTED), 1 },
	{ A(NUMA_ID), -1 },
	{ A(HOST_NUMA_ID), -1 },
	{ A(IPC_EVENT_SUPPORTED), 1 },
};

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static void fill_uuid(uint8_t uuid[16], uint64_t seed, uint32_t index, const char *profile)
{
	uint64_t h = mix(seed ^ mix(index));
	uint64_t half[2];

	for (const char *p = profile; *p; p++)
		h = mix(h ^ (uint8_t)*p);
	half[0] = mix(h);
	half[1] = mix(half[0]);
	memcpy(uuid, half, 16);
	/* Version 8, "custom", of RFC 9562. */
	uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x80);
	uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

void aq_profile_info(const struct aq_profile *p, uint32_t index, uint64_t seed,
		     struct aq_rep_card_info *ret)
{
	memset(ret, 0, sizeof(*ret));
	(void)snprintf(ret->name, sizeof(ret->name), "Aliquot %s (software)", p->name);
	fill_uuid(ret->uuid, seed, index, p->name);
	/* One bus a card. The vendor is the one that monitors look for; no real device has this number. */
	ret->pci_bus = index + 1;
	ret->pci_device_id = 0xa11cU << 16 | 0x10deU;
	ret->pci_subsystem_id = 0xa11cU << 16 | 0x10deU;
	ret->minor = index;
	ret->memory_bytes = p->memory_bytes;
	ret->memory_reserved = p->reserved_bytes;
	ret->context_bytes = p->context_bytes;
	ret->max_clock_sm_mhz = p->clock_sm_mhz;
	ret->max_clock_mem_mhz = p->clock_mem_mhz;
	ret->max_power_mw = p->power_max_mw;
	ret->n_attrs = A(MAX);
	_Static_assert(A(MAX) <= AQ_WIRE_ATTRS, "every attribute fits into the snapshot");
	for (size_t i = 0; i < AQ_ARRAY_SIZE(common_attrs); i++)
		ret->attrs[common_attrs[i].attr] = common_attrs[i].value;
	ret->attrs[A(CLOCK_RATE)] = (int32_t)p->clock_sm_mhz * 1000;
	ret->attrs[A(COMPUTE_CAPABILITY_MAJOR)] = (int32_t)(p->sm / 10);
	ret->attrs[A(COMPUTE_CAPABILITY_MINOR)] = (int32_t)(p->sm % 10);
	ret->attrs[A(MULTIPROCESSOR_COUNT)] = (int32_t)p->sms;
	ret->attrs[A(PCI_BUS_ID)] = (int32_t)ret->pci_bus;
	ret->attrs[A(PCI_DEVICE_ID)] = (int32_t)ret->pci_device;
	ret->attrs[A(PCI_DOMAIN_ID)] = (int32_t)ret->pci_domain;
	ret->attrs[A(MEMORY_CLOCK_RATE)] = (int32_t)p->clock_mem_mhz * 1000;
	ret->attrs[A(GLOBAL_MEMORY_BUS_WIDTH)] = (int32_t)p->bus_bits;
	ret->attrs[A(L2_CACHE_SIZE)] = (int32_t)p->l2_bytes;
	ret->attrs[A(GPU_PCI_DEVICE_ID)] = (int32_t)ret->pci_device_id;
	ret->attrs[A(GPU_PCI_SUBSYSTEM_ID)] = (int32_t)ret->pci_subsystem_id;
	(void)snprintf(ret->profile, sizeof(ret->profile), "%s", p->name);
	(void)snprintf(ret->serial, sizeof(ret->serial), "%08x%04x",
		       (unsigned)(mix(seed) & 0xffffffffU), (unsigned)index);
	(void)snprintf(ret->vbios, sizeof(ret->vbios), "00.00.00.00.00");
}
