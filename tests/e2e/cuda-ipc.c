/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and events handed to another process by handles of 64 bytes. */
#include "patterns.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 300000

struct parcel {
	CUipcMemHandle small, big;
	CUipcEventHandle event;
};

/* The other process, over descriptor 3. */
static int other(void)
{
	static unsigned char buf[SIZE];
	const unsigned lazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
	struct parcel parcel;
	CUdeviceptr small = 0, big = 0, again = 0, base = 0;
	CUstream stream = NULL;
	CUevent event = NULL;
	size_t size = 0;
	char byte = 0;

	CHECK(recv(3, &parcel, sizeof(parcel), MSG_WAITALL) == sizeof(parcel));
	(void)open_context(0);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	INVALID(cuIpcOpenMemHandle_v2(&big, parcel.big, 0));
	INVALID(cuIpcOpenMemHandle_v2(NULL, parcel.big, lazy));
	OK(cuIpcOpenMemHandle_v2(&big, parcel.big, lazy));
	OK(cuIpcOpenMemHandle_v2(&again, parcel.big, lazy));
	CHECK(again == big);
	OK(cuIpcOpenMemHandle(&small, parcel.small, lazy));
	OK(cuIpcOpenEventHandle(&event, parcel.event));
	OK(cuMemGetAddressRange_v2(&base, &size, big + 10));
	CHECK(base == big && size >= SIZE);
	/* The exporter writes behind a host function; its event says when. */
	CHECK_RC(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	CHECK(write(3, &byte, 1) == 1);
	OK(cuStreamWaitEvent(stream, event, 0));
	OK(cuMemcpyDtoHAsync_v2(buf, big, SIZE, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(has_pattern(buf, SIZE, 1));
	OK(cuEventSynchronize(event));
	OK(cuMemcpyDtoH_v2(buf, small, 100));
	CHECK(has_pattern(buf, 100, 2));
	put_pattern(buf, SIZE, 3);
	OK(cuMemcpyHtoD_v2(big, buf, SIZE));
	OK(cuMemsetD8_v2(small, 4, 100));
	OK(cuCtxSynchronize());
	INVALID(cuMemFree_v2(big));
	INVALID(cuIpcCloseMemHandle(big + 1));
	INVALID(cuIpcGetMemHandle(&parcel.big, big));
	OK(cuIpcCloseMemHandle(big));
	OK(cuMemcpyDtoH_v2(buf, big, 16)); /* opened twice */
	OK(cuIpcCloseMemHandle(big));
	INVALID(cuMemcpyDtoH_v2(buf, big, 16));
	INVALID(cuIpcCloseMemHandle(big));
	OK(cuIpcCloseMemHandle(small));
	OK(cuEventDestroy_v2(event));
	parcel.small.reserved[20] = (char)~parcel.small.reserved[20];
	CHECK_RC(cuIpcOpenMemHandle_v2(&small, parcel.small, lazy), CUDA_ERROR_INVALID_HANDLE);
	memset(&parcel, 0, sizeof(parcel));
	CHECK_RC(cuIpcOpenMemHandle_v2(&small, parcel.small, lazy), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuIpcOpenEventHandle(&event, parcel.event), CUDA_ERROR_INVALID_HANDLE);
	byte = (char)(e2e_failures != 0);
	CHECK(write(3, &byte, 1) == 1);
	return e2e_failures != 0;
}

static atomic_int may_go;

static void hold(void *arg)
{
	(void)arg;
	while (!atomic_load(&may_go))
		(void)usleep(1000);
}

static void test_share(void)
{
	static unsigned char buf[SIZE];
	struct parcel parcel;
	CUdeviceptr small = 0, big = 0, managed = 0;
	CUstream stream = NULL;
	CUevent event = NULL, plain = NULL;
	void *host = NULL;
	int pair[2], status = -1;
	char byte = 9;
	pid_t pid = 0;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&small, 100));
	OK(cuMemAlloc_v2(&big, SIZE));
	OK(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	INVALID(cuIpcGetMemHandle(&parcel.small, managed));
	INVALID(cuIpcGetMemHandle(&parcel.small, 0));
	INVALID(cuIpcGetMemHandle(NULL, small));
	CHECK_RC(cuIpcGetEventHandle(&parcel.event, plain), CUDA_ERROR_INVALID_HANDLE);
	CHECK_RC(cuIpcGetEventHandle(&parcel.event, NULL), CUDA_ERROR_INVALID_HANDLE);
	OK(cuIpcGetMemHandle(&parcel.small, small));
	OK(cuIpcGetMemHandle(&parcel.big, big));
	OK(cuIpcGetEventHandle(&parcel.event, event));
	CHECK_RC(cuIpcOpenMemHandle_v2(&managed, parcel.big, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		 CUDA_ERROR_INVALID_CONTEXT); /* one's own */

	put_pattern(buf, 100, 2);
	OK(cuMemcpyHtoD_v2(small, buf, 100));
	OK(cuMemAllocHost_v2(&host, SIZE));
	put_pattern(host, SIZE, 1);
	OK(cuLaunchHostFunc(stream, hold, NULL));
	OK(cuMemcpyHtoDAsync_v2(big, host, SIZE, stream));
	OK(cuEventRecord(event, stream));

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	pid = fork();
	if (pid == 0) {
		(void)dup2(pair[1], 3);
		(void)execl("/proc/self/exe", "cuda-ipc", "other", NULL);
		_exit(127);
	}
	(void)close(pair[1]);
	CHECK(write(pair[0], &parcel, sizeof(parcel)) == sizeof(parcel));
	CHECK(read(pair[0], &byte, 1) == 1);
	atomic_store(&may_go, 1);
	CHECK(read(pair[0], &byte, 1) == 1);
	CHECK_INT(byte, 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	OK(cuMemcpyDtoH_v2(buf, big, SIZE));
	CHECK(has_pattern(buf, SIZE, 3));
	OK(cuMemcpyDtoH_v2(buf, small, 100));
	CHECK(all_bytes(buf, 100, 4));
	OK(cuMemFree_v2(small));
	OK(cuMemFree_v2(big));
	OK(cuMemFreeHost(host));
	(void)close(pair[0]);
}

static const struct e2e_test tests[] = { { "share", test_share } };

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "other") == 0)
		return other();
	(void)open_context(0);
	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
