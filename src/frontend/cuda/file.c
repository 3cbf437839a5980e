/* SPDX-License-Identifier: Apache-2.0 */
/* Images in files. */
#include "base/cleanup.h"
#include "frontend/cuda/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

CUresult aq_fe_file_read(const char *path, char **ret_data, size_t *ret_len)
{
	aq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	aq_auto_free char *data = NULL;
	struct stat st;
	size_t len = 0;

	if (fd < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return CUDA_ERROR_FILE_NOT_FOUND;
	if (st.st_size <= 0 || (uint64_t)st.st_size > AQ_FE_IMAGE_MAX)
		return CUDA_ERROR_INVALID_IMAGE;
	data = malloc((size_t)st.st_size);
	if (!data)
		return CUDA_ERROR_OUT_OF_MEMORY;
	while (len < (size_t)st.st_size) {
		ssize_t n = read(fd, data + len, (size_t)st.st_size - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return CUDA_ERROR_OPERATING_SYSTEM;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	*ret_data = aq_take_ptr(data);
	*ret_len = len;
	return CUDA_SUCCESS;
}
