/* SPDX-License-Identifier: Apache-2.0 */
/* The front end's decoder of images: fat binaries as files, and the glance at PTX text. The first byte is the card's compute capability. */
#include "frontend/cuda/core.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool count(void *opaque, const char *name, size_t len)
{
	size_t *n = opaque;

	*n += len + (unsigned char)name[len - 1];
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct aq_fe_image im;
	const char *reason;
	size_t n = 0;

	if (size == 0)
		return 0;
	if (aq_fe_image_find(data + 1, size - 1, data[0], &im, &reason) != CUDA_SUCCESS)
		return 0;
	/* What it found lies inside. */
	if ((const uint8_t *)im.ptx < data + 1 || (const uint8_t *)im.ptx + im.len > data + size)
		abort();
	aq_fe_ptx_kernels(im.ptx, im.len, count, &n);
	(void)aq_fe_ptx_version(im.ptx, im.len);
	(void)aq_fe_ptx_is_specific(im.ptx, im.len);
	return 0;
}
