/* SPDX-License-Identifier: Apache-2.0 */
/* Reservations, physical memory, mappings, access rights, and memory handed to another process as a file descriptor. */
#include "patterns.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024UL * 1024)
#define G   (2 * MIB) /* granularity */

static CUmemAllocationProp on_card(int handle_types)
{
	return (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .requestedHandleTypes =
					      (CUmemAllocationHandleType)handle_types,
				      .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
}

static CUmemAccessDesc rights(CUmemLocationType type, int id, int flags)
{
	return (CUmemAccessDesc){ { type, id }, (CUmemAccess_flags)flags };
}

static void test_reserve(void)
{
	CUdeviceptr a = 0, b = 0;

	INVALID(cuMemAddressReserve(NULL, G, 0, 0, 0));
	INVALID(cuMemAddressReserve(&a, 0, 0, 0, 0));
	INVALID(cuMemAddressReserve(&a, G + 1, 0, 0, 0));
	INVALID(cuMemAddressReserve(&a, G, 3, 0, 0));
	INVALID(cuMemAddressReserve(&a, G, 0, 0, 1));
	CHECK_RC(cuMemAddressReserve(&a, 1UL << 62, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAddressReserve(&a, 8 * G, 0, 0, 0));
	OK(cuMemAddressReserve(&b, G, 64 * MIB, 0, 0));
	CHECK(a % G == 0 && b % (64 * MIB) == 0);
	INVALID(cuMemAddressFree(a, G));
	INVALID(cuMemAddressFree(a + G, G));
	OK(cuMemAddressFree(a, 8 * G));
	INVALID(cuMemAddressFree(a, 8 * G));
	OK(cuMemAddressFree(b, G));
	INVALID(cuMemAddressFree(0, 0));
}

static void test_create(void)
{
	CUmemAllocationProp prop = on_card(0), seen = { 0 };
	CUmemGenericAllocationHandle h = 0;
	size_t granularity = 0, free0 = 0, free1 = 0, total = 0;

	OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK_INT(granularity, G);
	INVALID(cuMemGetAllocationGranularity(&granularity, NULL,
					      CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	INVALID(cuMemGetAllocationGranularity(&granularity, &prop,
					      (CUmemAllocationGranularity_flags)9));
	OK(cuMemGetInfo_v2(&free0, &total));
	INVALID(cuMemCreate(&h, G + 4096, &prop, 0));
	INVALID(cuMemCreate(&h, 0, &prop, 0));
	INVALID(cuMemCreate(NULL, G, &prop, 0));
	INVALID(cuMemCreate(&h, G, NULL, 0));
	INVALID(cuMemCreate(&h, G, &prop, 1));
	CHECK_RC(cuMemCreate(&h, 1UL << 50, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	prop.location.id = 99;
	CHECK_RC(cuMemCreate(&h, G, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
	prop = on_card(CU_MEM_HANDLE_TYPE_FABRIC);
	CHECK_RC(cuMemCreate(&h, G, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
	prop = on_card(0);
	prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
	INVALID(cuMemCreate(&h, G, &prop, 0));
	prop = on_card(0);
	OK(cuMemCreate(&h, 4 * G, &prop, 0));
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK_INT(free0 - free1, 4 * G);
	OK(cuMemGetAllocationPropertiesFromHandle(&seen, h));
	CHECK(seen.location.type == CU_MEM_LOCATION_TYPE_DEVICE && seen.location.id == 0);
	OK(cuMemRelease(h));
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free0 == free1);
	INVALID(cuMemRelease(h));
	INVALID(cuMemGetAllocationPropertiesFromHandle(&seen, h));
	INVALID(cuMemRelease(0));
	INVALID(cuMemRelease(12345));
}

static void test_map(void)
{
	static unsigned char buf[3 * G], back[3 * G];
	CUmemAllocationProp prop = on_card(0);
	CUmemAccessDesc rw = rights(CU_MEM_LOCATION_TYPE_DEVICE, 0, 3);
	CUmemAccessDesc ro = rights(CU_MEM_LOCATION_TYPE_DEVICE, 0, 1);
	CUmemLocation dev0 = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
	CUmemLocation dev1 = { CU_MEM_LOCATION_TYPE_DEVICE, 1 };
	CUmemGenericAllocationHandle h[2] = { 0 }, again = 0;
	CUdeviceptr va = 0, base = 0;
	unsigned long long flags = 9;
	size_t size = 0, free0 = 0, free1 = 0, total = 0;
	int mapped = 7;

	OK(cuMemGetInfo_v2(&free0, &total));
	OK(cuMemAddressReserve(&va, 4 * G, 0, 0, 0));
	OK(cuMemCreate(&h[0], 2 * G, &prop, 0));
	OK(cuMemCreate(&h[1], G, &prop, 0));
	OK(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, va));
	CHECK_INT(mapped, 0);
	INVALID(cuMemMap(va, G, 0, 0, 0));
	INVALID(cuMemMap(va + 4096, G, 0, h[0], 0));
	INVALID(cuMemMap(va, 3 * G, 0, h[0], 0));
	INVALID(cuMemMap(va, G, 2 * G, h[0], 0));
	INVALID(cuMemMap(va, G, 0, h[0], 1));
	INVALID(cuMemMap(va + 4 * G, G, 0, h[0], 0));
	INVALID(cuMemMap(va + 3 * G, 2 * G, 0, h[0], 0));
	OK(cuMemMap(va, 2 * G, 0, h[0], 0));
	INVALID(cuMemMap(va + G, G, 0, h[1], 0));
	OK(cuMemMap(va + 2 * G, G, 0, h[1], 0));
	OK(cuMemGetAccess(&flags, &dev0, va));
	CHECK_INT(flags, 0);
	INVALID(cuMemcpyHtoD_v2(va, buf, 16));	    /* nobody may yet */
	INVALID(cuMemSetAccess(va, G, &rw, 1));	    /* half of a mapping */
	INVALID(cuMemSetAccess(va, 4 * G, &rw, 1)); /* a hole at the end */
	INVALID(cuMemSetAccess(va, 3 * G, NULL, 1));
	INVALID(cuMemSetAccess(va, 3 * G, &rw, 0));
	OK(cuMemSetAccess(va, 3 * G, &rw, 1));
	OK(cuMemGetAccess(&flags, &dev0, va + G));
	CHECK_INT(flags, 3);
	OK(cuMemGetAccess(&flags, &dev1, va));
	CHECK_INT(flags, 0);

	/* Across two physical allocations, by the ring and by windows. */
	put_pattern(buf, sizeof(buf), 31);
	OK(cuMemcpyHtoD_v2(va, buf, 3 * G));
	OK(cuMemcpyDtoH_v2(back, va, 3 * G));
	CHECK(has_pattern(back, 3 * G, 31));
	memset(back, 0, 64);
	OK(cuMemcpyDtoH_v2(back, va + 2 * G - 30, 64));
	CHECK(memcmp(back, buf + 2 * G - 30, 64) == 0);
	OK(cuMemsetD8_v2(va + 2 * G - 4, 0xaa, 8));
	OK(cuMemcpyDtoH_v2(back, va + 2 * G - 5, 10));
	CHECK(all_bytes(back + 1, 8, 0xaa) && back[0] == buf[2 * G - 5]);
	INVALID(cuMemcpyHtoD_v2(va, buf, 3 * G + 1));
	OK(cuMemGetAddressRange_v2(&base, &size, va + 5));
	CHECK(base == va && size == 2 * G);
	OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, va + 2 * G));
	CHECK_INT(size, 4 * G);

	OK(cuMemSetAccess(va + 2 * G, G, &ro, 1));
	INVALID(cuMemcpyHtoD_v2(va + 2 * G, buf, 16));
	OK(cuMemcpyDtoH_v2(back, va + 2 * G + 8, 16));

	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(va + 7)));
	CHECK(again == h[0]);
	OK(cuMemRelease(again));
	OK(cuMemRelease(h[0]));
	OK(cuMemRelease(h[1]));
	OK(cuMemcpyDtoH_v2(back, va, 16)); /* the mapping keeps it */
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)va));
	OK(cuMemRelease(again));
	INVALID(cuMemFree_v2(va));
	INVALID(cuMemAddressFree(va, 4 * G));
	INVALID(cuMemUnmap(va, G));
	INVALID(cuMemUnmap(va, 4 * G));
	OK(cuMemUnmap(va, 3 * G));
	INVALID(cuMemcpyDtoH_v2(back, va, 16));
	INVALID(cuMemUnmap(va, 3 * G));
	OK(cuMemAddressFree(va, 4 * G));
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free0 == free1);
}

/* One physical allocation at two addresses. */
static void test_alias(void)
{
	static unsigned char buf[G];
	CUmemAllocationProp prop = on_card(0);
	CUmemAccessDesc rw = rights(CU_MEM_LOCATION_TYPE_DEVICE, 0, 3);
	CUmemGenericAllocationHandle h = 0;
	CUdeviceptr va = 0;

	OK(cuMemAddressReserve(&va, 4 * G, 0, 0, 0));
	OK(cuMemCreate(&h, 2 * G, &prop, 0));
	OK(cuMemMap(va, 2 * G, 0, h, 0));
	OK(cuMemMap(va + 2 * G, G, G, h, 0)); /* its second half again */
	OK(cuMemSetAccess(va, 3 * G, &rw, 1));
	OK(cuMemsetD8_v2(va, 1, G));
	OK(cuMemsetD8_v2(va + G, 2, G));
	OK(cuMemcpyDtoH_v2(buf, va + 2 * G, G));
	CHECK(all_bytes(buf, G, 2));
	OK(cuMemUnmap(va, 3 * G));
	OK(cuMemRelease(h));
	OK(cuMemAddressFree(va, 4 * G));
}

static void test_host_memory(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_HOST, 77 } };
	CUmemAccessDesc both[] = { rights(CU_MEM_LOCATION_TYPE_DEVICE, 0, 3),
				   rights(CU_MEM_LOCATION_TYPE_HOST, 0, 3) };
	CUmemLocation host = { CU_MEM_LOCATION_TYPE_HOST, 0 };
	CUmemGenericAllocationHandle h = 0;
	unsigned long long flags = 0;
	size_t free0 = 0, free1 = 0, total = 0;
	CUdeviceptr va = 0, card = 0;
	unsigned char *p = NULL;
	unsigned type = 0;

	OK(cuMemGetInfo_v2(&free0, &total));
	OK(cuMemCreate(&h, G, &prop, 0));
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free0 == free1); /* it is no card's */
	OK(cuMemAddressReserve(&va, G, 0, 0, 0));
	OK(cuMemMap(va, G, 0, h, 0));
	OK(cuMemSetAccess(va, G, both, 2));
	OK(cuMemGetAccess(&flags, &host, va));
	CHECK_INT(flags, 3);
	p = (unsigned char *)(uintptr_t)va;
	put_pattern(p, G, 3);
	OK(cuMemAlloc_v2(&card, G));
	OK(cuMemcpyDtoD_v2(card, va, G));
	OK(cuMemsetD8_v2(va, 5, G));
	OK(cuCtxSynchronize());
	CHECK(all_bytes(p, G, 5));
	OK(cuMemcpy(va, card, G));
	OK(cuCtxSynchronize());
	CHECK(has_pattern(p, G, 3));
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va));
	CHECK_INT(type, CU_MEMORYTYPE_HOST);
	OK(cuMemUnmap(va, G));
	OK(cuMemRelease(h));
	OK(cuMemAddressFree(va, G));
	OK(cuMemFree_v2(card));

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	INVALID(cuMemCreate(&h, G, &prop, 0));
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
	INVALID(cuMemCreate(&h, G, &prop, 0));
	prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	prop.location.id = 0;
	OK(cuMemCreate(&h, G, &prop, 0));
	OK(cuMemRelease(h));
	/* The host has no way to a card's memory. */
	prop = on_card(0);
	OK(cuMemCreate(&h, G, &prop, 0));
	OK(cuMemAddressReserve(&va, G, 0, 0, 0));
	OK(cuMemMap(va, G, 0, h, 0));
	CHECK_RC(cuMemSetAccess(va, G, &both[1], 1), CUDA_ERROR_NOT_SUPPORTED);
	OK(cuMemUnmap(va, G));
	OK(cuMemRelease(h));
	OK(cuMemAddressFree(va, G));
}

/* ---- two processes ---- */

static void send_fd(int sock, int fd)
{
	char byte = 1, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	CHECK(sendmsg(sock, &msg, 0) == 1);
}

static int recv_fd(int sock)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	int fd = -1;

	if (recvmsg(sock, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* The importer: maps the memory that comes over descriptor 3, checks it and answers by changing it. */
static int importer(void)
{
	static unsigned char buf[2 * G];
	CUmemAccessDesc rw = rights(CU_MEM_LOCATION_TYPE_DEVICE, 0, 3);
	CUmemAllocationProp seen = { 0 };
	CUmemGenericAllocationHandle h = 0;
	CUdeviceptr va = 0;
	char byte = 0;
	int fd = recv_fd(3);

	(void)open_context(0);
	OK(cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	(void)close(fd);
	OK(cuMemGetAllocationPropertiesFromHandle(&seen, h));
	CHECK(seen.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
	OK(cuMemAddressReserve(&va, 2 * G, 0, 0, 0));
	OK(cuMemMap(va, 2 * G, 0, h, 0));
	OK(cuMemSetAccess(va, 2 * G, &rw, 1));
	OK(cuMemcpyDtoH_v2(buf, va, 2 * G));
	CHECK(has_pattern(buf, 2 * G, 77));
	put_pattern(buf, 2 * G, 78);
	OK(cuMemcpyHtoD_v2(va, buf, 2 * G));
	OK(cuCtxSynchronize());
	byte = (char)(e2e_failures != 0);
	CHECK(write(3, &byte, 1) == 1);
	CHECK(read(3, &byte, 1) == 1); /* the exporter has let go of it */
	OK(cuMemcpyDtoH_v2(buf, va, 2 * G));
	CHECK(has_pattern(buf, 2 * G, 78));
	OK(cuMemUnmap(va, 2 * G));
	OK(cuMemRelease(h));
	return e2e_failures != 0;
}

static void test_export(void)
{
	static unsigned char buf[2 * G];
	CUmemAllocationProp prop = on_card(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CUmemAllocationProp plain = on_card(0);
	CUmemAccessDesc rw = rights(CU_MEM_LOCATION_TYPE_DEVICE, 0, 3);
	CUmemGenericAllocationHandle h = 0, private = 0, twice = 0;
	size_t free0 = 0, free1 = 0, total = 0;
	CUdeviceptr va = 0;
	int pair[2], fd = -1, status = -1;
	char byte = 0;
	pid_t pid = 0;

	OK(cuMemGetInfo_v2(&free0, &total));
	OK(cuMemCreate(&h, 2 * G, &prop, 0));
	OK(cuMemCreate(&private, G, &plain, 0));
	INVALID(cuMemExportToShareableHandle(&fd, private, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					     0));
	INVALID(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_FABRIC, 0));
	INVALID(cuMemExportToShareableHandle(NULL, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	INVALID(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
	OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(fd >= 0);
	OK(cuMemRelease(private));
	OK(cuMemImportFromShareableHandle(&twice, (void *)(uintptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	OK(cuMemRelease(twice));
	INVALID(cuMemImportFromShareableHandle(&twice, (void *)9999,
					       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(cuMemImportFromShareableHandle(&twice, (void *)(uintptr_t)pair[0],
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
	      CUDA_SUCCESS); /* no memory at all */

	OK(cuMemAddressReserve(&va, 2 * G, 0, 0, 0));
	OK(cuMemMap(va, 2 * G, 0, h, 0));
	OK(cuMemSetAccess(va, 2 * G, &rw, 1));
	put_pattern(buf, 2 * G, 77);
	OK(cuMemcpyHtoD_v2(va, buf, 2 * G));
	OK(cuCtxSynchronize());
	pid = fork();
	if (pid == 0) {
		(void)dup2(pair[1], 3);
		(void)execl("/proc/self/exe", "cuda-vmm", "importer", NULL);
		_exit(127);
	}
	(void)close(pair[1]);
	send_fd(pair[0], fd);
	(void)close(fd);
	CHECK(read(pair[0], &byte, 1) == 1);
	CHECK_INT(byte, 0);
	OK(cuMemcpyDtoH_v2(buf, va, 2 * G));
	CHECK(has_pattern(buf, 2 * G, 78));
	OK(cuMemUnmap(va, 2 * G));
	OK(cuMemRelease(h));
	OK(cuMemAddressFree(va, 2 * G));
	OK(cuMemGetInfo_v2(&free1, &total));
	CHECK(free1 < free0); /* the importer still holds it */
	CHECK(write(pair[0], &byte, 1) == 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	for (int i = 0; i < 200; i++) {
		OK(cuMemGetInfo_v2(&free1, &total));
		if (free1 == free0)
			break;
		(void)usleep(10000);
	}
	CHECK(free1 == free0);
	(void)close(pair[0]);
}

static const struct e2e_test tests[] = {
	{ "reserve", test_reserve }, { "create", test_create },		  { "map", test_map },
	{ "alias", test_alias },     { "host-memory", test_host_memory }, { "export", test_export },
};

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "importer") == 0)
		return importer();
	(void)open_context(0);
	return e2e_run(tests, sizeof(tests) / sizeof(tests[0]));
}
