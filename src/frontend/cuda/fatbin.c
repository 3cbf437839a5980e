/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding PTX in what the application calls an image: text, a fat binary, or the wrapper that compilers put around one.
 *
 * The interface gives an address without a length. Nothing is read beyond what earlier, already checked, fields say is there; what a header claims is
 * believed up to AQ_FE_IMAGE_MAX, and where the caller knows the length (a file) no further than that.
 */
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <string.h>

#define WRAPPER_MAGIC 0x466243b1U
#define FAT_MAGIC     0xba55ed50U

enum entry_kind {
	ENTRY_PTX = 1,
	ENTRY_ELF = 2
};

#define ENTRY_COMPRESSED_LZ   0x2000U
#define ENTRY_COMPRESSED_ZSTD 0x8000U

struct wrapper {
	uint32_t magic;
	uint32_t version;
	const void *data;
	const void *more;
};

struct fat_header {
	uint32_t magic;
	uint16_t version;
	uint16_t header_size;
	uint64_t size; /* of all entries behind the header */
};

/* What later versions add to an entry's header is skipped by header_size. */
struct fat_entry {
	uint16_t kind;
	uint16_t version;
	uint32_t header_size;
	uint64_t size; /* payload with padding: the next entry is behind it */
	uint32_t compressed_size;
	uint32_t options_offset;
	uint16_t minor, major;
	uint32_t arch;
	uint32_t name_offset;
	uint32_t name_size;
	uint64_t flags;
};

_Static_assert(sizeof(struct fat_header) == 16, "fat binary header");
_Static_assert(offsetof(struct fat_entry, flags) == 40, "fat binary entry");
#define ENTRY_MIN 48U

static bool begins(const uint8_t *p, size_t len, uint32_t magic)
{
	/* Byte by byte: of a text we may own no more than its first. */
	for (size_t i = 0; i < 4; i++)
		if (i >= len || p[i] != (uint8_t)(magic >> (8 * i)))
			return false;
	return true;
}

static bool is_elf(const uint8_t *p, size_t len)
{
	return begins(p, len, 0x464c457fU);
}

static CUresult fail(const char **ret_reason, CUresult rc, const char *reason)
{
	*ret_reason = reason;
	return rc;
}

/* Targets with a letter behind the number (sm_90a) run on exactly that card. */
static bool runs_on(const char *ptx, size_t len, unsigned target, unsigned sm)
{
	if (target > sm)
		return false;
	return target == sm || !aq_fe_ptx_is_specific(ptx, len);
}

struct search {
	unsigned sm;
	struct aq_fe_image best;
	bool has_best, saw_compressed, saw_elf, saw_later;
};

static void consider(struct search *s, const struct fat_entry *e, const char *payload)
{
	size_t len;

	if (e->kind == ENTRY_ELF)
		s->saw_elf = true;
	if (e->kind != ENTRY_PTX)
		return;
	if (e->flags & (ENTRY_COMPRESSED_LZ | ENTRY_COMPRESSED_ZSTD)) {
		s->saw_compressed = true;
		return;
	}
	len = strnlen(payload, e->size);
	if (!runs_on(payload, len, e->arch, s->sm)) {
		s->saw_later = true;
		return;
	}
	if (s->has_best && e->arch <= s->best.target)
		return;
	s->has_best = true;
	s->best = (struct aq_fe_image){ .ptx = payload, .len = len, .target = e->arch };
}

static CUresult search_fat(const uint8_t *p, size_t len, struct search *s, const char **ret_reason)
{
	struct fat_header h;
	struct fat_entry e;
	size_t end;
	size_t at;

	if (len < sizeof(h))
		return fail(ret_reason, CUDA_ERROR_INVALID_IMAGE, "fat binary is cut short");
	memcpy(&h, p, sizeof(h));
	if (h.header_size < sizeof(h) || h.size > AQ_FE_IMAGE_MAX || h.header_size + h.size > len)
		return fail(ret_reason, CUDA_ERROR_INVALID_IMAGE,
			    "fat binary's header makes no sense");
	end = (size_t)(h.header_size + h.size);
	for (at = h.header_size; end - at >= ENTRY_MIN; at += e.header_size + e.size) {
		memcpy(&e, p + at, ENTRY_MIN);
		if (e.header_size < ENTRY_MIN || e.header_size > end - at ||
		    e.size > end - at - e.header_size)
			return fail(ret_reason, CUDA_ERROR_INVALID_IMAGE,
				    "fat binary's entry does not fit into it");
		consider(s, &e, (const char *)p + at + e.header_size);
	}
	return CUDA_SUCCESS;
}

static CUresult find_in_fat(const uint8_t *p, size_t len, unsigned sm, struct aq_fe_image *ret,
			    const char **ret_reason)
{
	struct search s = { .sm = sm };
	CUresult rc = search_fat(p, len, &s, ret_reason);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (s.has_best) {
		*ret = s.best;
		return CUDA_SUCCESS;
	}
	return fail(ret_reason, CUDA_ERROR_NO_BINARY_FOR_GPU,
		    s.saw_compressed
			    ? "the fat binary's PTX is compressed, which the software card "
			      "does not read: build with -Xfatbin -no-compress"
		    : s.saw_later ? "the fat binary's PTX is for a later compute capability"
		    : s.saw_elf	  ? "the fat binary holds machine code only; the software card "
				    "executes PTX"
				  : "the fat binary holds no PTX");
}

static CUresult find_text(const char *text, size_t len, struct aq_fe_image *ret,
			  const char **ret_reason)
{
	size_t i = 0;

	len = strnlen(text, AQ_MIN(len, AQ_FE_IMAGE_MAX));
	while (i < len && (text[i] == ' ' || (text[i] >= '\t' && text[i] <= '\r')))
		i++;
	if (i == len || (text[i] != '.' && text[i] != '/'))
		return fail(ret_reason, CUDA_ERROR_INVALID_IMAGE,
			    "neither PTX text nor a fat binary");
	*ret = (struct aq_fe_image){ .ptx = text, .len = len };
	return CUDA_SUCCESS;
}

CUresult aq_fe_image_find(const void *image, size_t len, unsigned sm, struct aq_fe_image *ret,
			  const char **ret_reason)
{
	const uint8_t *p = image;

	*ret_reason = "";
	if (is_elf(p, len))
		return fail(ret_reason, CUDA_ERROR_NO_BINARY_FOR_GPU,
			    "the image is machine code (ELF); the software card executes PTX");
	if (begins(p, len, FAT_MAGIC))
		return find_in_fat(p, len, sm, ret, ret_reason);
	if (begins(p, len, WRAPPER_MAGIC)) {
		struct wrapper w;

		if (len != SIZE_MAX) /* its address means nothing in a file */
			return fail(ret_reason, CUDA_ERROR_INVALID_IMAGE,
				    "a fat binary's wrapper is no file");
		memcpy(&w, p, sizeof(w));
		if (!w.data || !begins(w.data, SIZE_MAX, FAT_MAGIC))
			return fail(ret_reason, CUDA_ERROR_INVALID_IMAGE,
				    "the wrapper leads to no fat binary");
		return find_in_fat(w.data, SIZE_MAX, sm, ret, ret_reason);
	}
	return find_text(image, len, ret, ret_reason);
}
