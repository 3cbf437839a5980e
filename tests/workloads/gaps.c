/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a card does and an instance on it should: gaps.c [--limit BYTES] GAP. Each of these holds on a bare card and does not yet at a limit;
 * the status says whether it does.
 */
#include "workload.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static CUdevice dev;
static char limit_text[32];

/* A card takes 4 MiB for a little more than 2 MiB: so many of them fit, and an account that rounds less lets in more. */
static void odd_sizes(void)
{
	size_t at_first = wl_free();
	size_t unit = 4 * MIB;
	unsigned n = 0;
	CUdeviceptr p = 0;

	while (cuMemAlloc_v2(&p, 2 * MIB + 1) == CUDA_SUCCESS)
		n++;
	(void)printf("# %u\n", n);
	CHECK(n <= at_first / unit);
}

#define SIZE (64 * MIB)

static void send_fd(int sock, int fd)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	CHECK(sendmsg(sock, &m, 0) == 1);
}

static int receive_fd(int sock)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	int fd = -1;

	CHECK(recvmsg(sock, &m, MSG_CMSG_CLOEXEC) == 1);
	if (CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static void exporter(void)
{
	CUmemAllocationProp prop = wl_on_card(dev);
	CUmemGenericAllocationHandle h = 0;
	int fd = -1;

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	OK(cuMemCreate(&h, SIZE, &prop, 0));
	OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_fd(3, fd);
	(void)pause();
}

/* Memory of a process that is gone counts as long as another holds it; else one could collect as much as one likes. */
static void exporter_gone(void)
{
	size_t at_first = wl_free();
	CUmemGenericAllocationHandle h = 0;
	CUdeviceptr p = 0;
	int pair[2];
	int fd;
	pid_t pid;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	pid = fork();
	if (pid == 0) {
		(void)dup2(pair[1], 3);
		(void)execl("/proc/self/exe", "gaps", "--limit", limit_text, "exporter", NULL);
		_exit(127);
	}
	fd = receive_fd(pair[0]);
	OK(cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	(void)close(fd);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	(void)sleep(2); /* the daemon has seen it */
	CHECK_RC(cuMemAlloc_v2(&p, at_first - SIZE + MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemRelease(h));
}

int main(int argc, char **argv)
{
	static const struct e2e_test gaps[] = {
		{ "odd-sizes", odd_sizes },
		{ "exporter-gone", exporter_gone },
		{ "exporter", exporter },
	};
	int at = wl_parse(argc, argv);

	(void)snprintf(limit_text, sizeof(limit_text), "%llu", (unsigned long long)wl_limit);
	(void)open_context(0);
	NEED(cuDeviceGet(&dev, 0));
	for (size_t i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++)
		if (argc > at && strcmp(argv[at], gaps[i].name) == 0)
			gaps[i].fn();
	return e2e_failures != 0;
}
