/* SPDX-License-Identifier: Apache-2.0 */
/* The machine: versions, processes, and what it has none of. */
#include "api/nvml_protos.h"
#include "base/cleanup.h"
#include "base/format.h"
#include "frontend/nvml/nv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * The series whose interface this library has. There is no driver: the text says so, and its beginning is what programs compare with their
 * minimum.
 */
#define DRIVER_VERSION "580.00 (software)"
#define DRIVER_BRANCH  "r580_00_software"
#define NVML_VERSION   "13.580.00"

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter();

	if (call.status != NVML_SUCCESS)
		return call.status;
	return aq_nv_text(DRIVER_VERSION, version, length);
}

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *info, unsigned length)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter();

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (AQ_NV_CHECK_VERSION(info, 1) != NVML_SUCCESS)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (length > sizeof(info->branch))
		length = sizeof(info->branch);
	return aq_nv_text(DRIVER_BRANCH, info->branch, length);
}

/* NVIDIA documents this one as working before nvmlInit. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
	return aq_nv_text(NVML_VERSION, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter();

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	*version = aq_nv_driver_version();
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
	return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* The path of the program, or, of another user's process, the name that the kernel shows of it. */
static ssize_t program_name(unsigned pid, char *buf, size_t size)
{
	aq_auto_close int fd = -1;
	char path[32];
	ssize_t n;

	(void)aq_format(path, sizeof(path), "/proc/%u/exe", pid);
	n = readlink(path, buf, size);
	if (n > 0)
		return n;
	(void)aq_format(path, sizeof(path), "/proc/%u/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, buf, size);
	if (n < 0)
		return -errno;
	if (n > 0 && buf[n - 1] == '\n')
		n--;
	return n;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter();
	char full[4096];
	ssize_t n;

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!name || length == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	n = program_name(pid, full, sizeof(full));
	if (n == -EACCES || n == -EPERM)
		return NVML_ERROR_NO_PERMISSION;
	if (n < 0)
		return NVML_ERROR_NOT_FOUND;
	/* A longer name is cut, as documented. */
	if ((size_t)n >= length)
		n = (ssize_t)length - 1;
	memcpy(name, full, (size_t)n);
	name[n] = '\0';
	return NVML_SUCCESS;
}

static nvmlReturn_t none_of_these(unsigned *count)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter();

	if (call.status != NVML_SUCCESS)
		return call.status;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	return NVML_SUCCESS;
}

/* Units are chassis of the S-class of 2008. */
nvmlReturn_t nvmlUnitGetCount(unsigned *count)
{
	return none_of_these(count);
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned *count)
{
	return none_of_these(count);
}

nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned *count)
{
	return none_of_these(count);
}
