/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How NCCL gets and shares memory: buffers in host memory by cuMemCreate with a NUMA node as their place; buffers of the card handed to the ranks
 * beside it as descriptors over a datagram socket with an abstract name; and, where that is off, IPC handles.
 *
 * A rank is a process of its own: this program again, with its part as argument and a socket to its parent as descriptor 3.
 */
#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE  (8 * MIB)
#define RANKS 3
#define CHUNK (2 * MIB)

static const char *const *self; /* argv */
static char limit_text[32];

/* ---- processes ---- */

struct rank {
	pid_t pid;
	int fd;
};

static struct rank rank_start(const char *part, unsigned number, pid_t group)
{
	struct rank r = { 0 };
	char a[16];
	char b[16];
	int pair[2];

	(void)snprintf(a, sizeof(a), "%u", number);
	(void)snprintf(b, sizeof(b), "%d", (int)group);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	(void)fflush(stdout);
	r.pid = fork();
	if (r.pid == 0) {
		(void)dup2(pair[1], 3);
		(void)execl("/proc/self/exe", self[0], "--limit", limit_text, part, a, b, NULL);
		_exit(127);
	}
	(void)close(pair[1]);
	r.fd = pair[0];
	return r;
}

static void rank_end(struct rank *r)
{
	int status = -1;

	(void)close(r->fd);
	CHECK(waitpid(r->pid, &status, 0) == r->pid);
	CHECK_INT(status, 0);
}

/* One byte each way: the parent's "all are here". Returns false when the other is gone. */
static bool tell(int fd)
{
	char byte = 1;

	return send(fd, &byte, 1, MSG_NOSIGNAL) == 1;
}

static bool await(int fd)
{
	char byte = 0;

	return recv(fd, &byte, 1, MSG_WAITALL) == 1;
}

/* A barrier, from the ranks' side and from the parent's. */
static void meet(void)
{
	CHECK(tell(3));
	CHECK(await(3));
}

static void gather(struct rank *r, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		CHECK(await(r[i].fd));
}

static void release(struct rank *r, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		CHECK(tell(r[i].fd));
}

/* ---- a descriptor over a datagram socket ---- */

static socklen_t name_of(struct sockaddr_un *a, pid_t group, unsigned rank)
{
	int n;

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "aliquot-ranks-%d-%u", (int)group,
		     rank);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int listen_as(pid_t group, unsigned rank)
{
	struct sockaddr_un a;
	socklen_t len = name_of(&a, group, rank);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, len) == 0);
	return fd;
}

static void send_fd(int sock, pid_t group, unsigned to, int fd)
{
	struct sockaddr_un a;
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	char text[] = "fd";
	struct iovec iov = { text, sizeof(text) };
	struct msghdr m = { .msg_name = &a,
			    .msg_namelen = name_of(&a, group, to),
			    .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	CHECK(sendmsg(sock, &m, 0) == (ssize_t)sizeof(text));
}

static int receive_fd(int sock)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	char text[8];
	struct iovec iov = { text, sizeof(text) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	int fd = -1;

	CHECK(recvmsg(sock, &m, MSG_CMSG_CLOEXEC) > 0);
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	CHECK(fd >= 0);
	return fd;
}

/* ---- buffers ---- */

struct buffer {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr va;
	size_t size;
};

static CUmemAllocationProp place(CUmemLocationType type, int id)
{
	return (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .requestedHandleTypes =
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				      .location = { type, id } };
}

static void buffer_map(struct buffer *b, bool host)
{
	CUmemAccessDesc rights[2] = {
		{ { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE },
		{ { CU_MEM_LOCATION_TYPE_HOST_NUMA, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE },
	};

	OK(cuMemAddressReserve(&b->va, b->size, 0, 0, 0));
	OK(cuMemMap(b->va, b->size, 0, b->handle, 0));
	OK(cuMemSetAccess(b->va, b->size, rights, host ? 2 : 1));
}

static struct buffer buffer_new(CUmemLocationType type, size_t size)
{
	CUmemAllocationProp prop = place(type, 0);
	struct buffer b = { .size = size };
	size_t granularity = 0;

	OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK(granularity && size % granularity == 0);
	OK(cuMemCreate(&b.handle, size, &prop, 0));
	buffer_map(&b, type != CU_MEM_LOCATION_TYPE_DEVICE);
	return b;
}

static struct buffer buffer_import(int fd, size_t size, bool host)
{
	struct buffer b = { .size = size };

	OK(cuMemImportFromShareableHandle(&b.handle, (void *)(uintptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CHECK(close(fd) == 0);
	buffer_map(&b, host);
	return b;
}

static int buffer_export(const struct buffer *b)
{
	int fd = -1;

	OK(cuMemExportToShareableHandle(&fd, b->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					0));
	CHECK(fd >= 0);
	return fd;
}

static void buffer_free(struct buffer *b)
{
	OK(cuMemUnmap(b->va, b->size));
	OK(cuMemRelease(b->handle));
	OK(cuMemAddressFree(b->va, b->size));
}

/* ---- host memory ---- */

/* A proxy thread: it has no context when it allocates. */
static void *proxy(void *arg)
{
	struct buffer *b = arg;
	CUcontext none = NULL;

	OK(cuCtxGetCurrent(&none));
	CHECK(none == NULL);
	*b = buffer_new(CU_MEM_LOCATION_TYPE_HOST_NUMA, SIZE);
	put_pattern((void *)(uintptr_t)b->va, SIZE, 1);
	return NULL;
}

static void test_host(void)
{
	size_t at_first = wl_free();
	CUmemAllocationProp bad = place(CU_MEM_LOCATION_TYPE_HOST_NUMA, 4711);
	CUmemGenericAllocationHandle h = 0;
	static uint8_t back[SIZE];
	struct buffer b = { 0 };
	CUdeviceptr card = 0;
	pthread_t t;
	int node = 99;

	OK(cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
	CHECK_INT(node <= 0, 1); /* -1, no NUMA, is taken for node 0 */
	CHECK_INT(pthread_create(&t, NULL, proxy, &b), 0);
	(void)pthread_join(t, NULL);
	CHECK_INT(wl_free(), at_first);
	/* More of it than a limit allows of the card: it is the host's. */
	if (wl_limit) {
		struct buffer big = buffer_new(CU_MEM_LOCATION_TYPE_HOST_NUMA, wl_limit + 64 * MIB);

		CHECK_INT(wl_free(), at_first);
		buffer_free(&big);
	}
	OK(cuMemAlloc_v2(&card, SIZE));
	OK(cuMemcpyDtoD_v2(card, b.va, SIZE));
	OK(cuMemcpyDtoH_v2(back, card, SIZE));
	CHECK(has_pattern(back, SIZE, 1));
	OK(cuMemsetD8_v2(card, 0x17, SIZE));
	OK(cuMemcpyDtoD_v2(b.va, card, SIZE));
	OK(cuCtxSynchronize());
	CHECK(all_bytes((void *)(uintptr_t)b.va, SIZE, 0x17));
	OK(cuMemFree_v2(card));
	buffer_free(&b);
	CHECK(cuMemCreate(&h, SIZE, &bad, 0) != CUDA_SUCCESS);
	CHECK_INT(wl_free(), at_first);
}

/* A thread without a context gets memory of the card it names, and it is that card's. */
static void *no_context(void *arg)
{
	(void)arg;
	*(struct buffer *)arg = buffer_new(CU_MEM_LOCATION_TYPE_DEVICE, SIZE);
	return NULL;
}

static void test_no_context(void)
{
	size_t at_first = wl_free();
	CUmemAllocationProp prop = place(CU_MEM_LOCATION_TYPE_DEVICE, 77);
	CUmemGenericAllocationHandle h = 0;
	struct buffer b = { 0 };
	pthread_t t;

	CHECK_RC(cuMemCreate(&h, SIZE, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
	CHECK_INT(pthread_create(&t, NULL, no_context, &b), 0);
	(void)pthread_join(t, NULL);
	CHECK_INT(at_first - wl_free(), SIZE);
	wl_stamp(b.va, SIZE, 3);
	CHECK(wl_stamped(b.va, SIZE, 3));
	buffer_free(&b);
	CHECK_INT(wl_free(), at_first);
}

/* What says whether the fabric is there, and what happens to who asks all the same: it must be told so, to try a descriptor. */
static void test_fabric(void)
{
	size_t at_first = wl_free();
	CUmemAllocationProp prop = place(CU_MEM_LOCATION_TYPE_DEVICE, 0);
	CUmemGenericAllocationHandle h = 0;
	int supported = 1;
	CUresult rc;

	OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0));
	CHECK_INT(supported, 0);
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
	rc = cuMemCreate(&h, SIZE, &prop, 0);
	CHECK(rc == CUDA_ERROR_NOT_SUPPORTED || rc == CUDA_ERROR_NOT_PERMITTED);
	CHECK_INT(wl_free(), at_first);
}

/* ---- descriptors from rank to rank ---- */

/* Rank 0 has a buffer of the card and one of the host; rank 1 reads and writes both. */
static int fd_exporter(pid_t group)
{
	int sock = listen_as(group, 0);
	struct buffer b[2] = { buffer_new(CU_MEM_LOCATION_TYPE_DEVICE, SIZE),
			       buffer_new(CU_MEM_LOCATION_TYPE_HOST_NUMA, SIZE) };
	size_t before;

	for (uint32_t i = 0; i < 2; i++)
		wl_stamp(b[i].va, SIZE, i + 1);
	OK(cuCtxSynchronize());
	meet(); /* all sockets and contexts are there */
	before = wl_free();
	meet();
	for (unsigned i = 0; i < 2; i++) {
		int fd = buffer_export(&b[i]);

		send_fd(sock, group, 1, fd);
		CHECK(close(fd) == 0);
	}
	meet(); /* imported and written */
	CHECK_INT(wl_free(), before);
	for (uint32_t i = 0; i < 2; i++) {
		CHECK(wl_stamped(b[i].va, SIZE, i + 11));
		buffer_free(&b[i]);
	}
	meet(); /* the exporter's side is gone; the importer's is not */
	meet();
	(void)close(sock);
	return e2e_failures != 0;
}

static int fd_importer(pid_t group)
{
	int sock = listen_as(group, 1);
	CUmemGenericAllocationHandle h = 0;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct buffer b[2];
	size_t before;

	meet();
	before = wl_free();
	meet();
	CHECK(cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)null,
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
	      CUDA_SUCCESS);
	(void)close(null);
	for (uint32_t i = 0; i < 2; i++) {
		b[i] = buffer_import(receive_fd(sock), SIZE, i == 1);
		CHECK(wl_stamped(b[i].va, SIZE, i + 1));
		wl_stamp(b[i].va, SIZE, i + 11);
	}
	OK(cuCtxSynchronize());
	CHECK_INT(wl_free(), before); /* its exporter has paid */
	meet();
	meet();
	/* Memory lives as long as anybody has it, and counts as long. */
	CHECK_INT(wl_free(), before);
	meet();
	for (uint32_t i = 0; i < 2; i++) {
		CHECK(wl_stamped(b[i].va, SIZE, i + 11));
		buffer_free(&b[i]);
	}
	(void)close(sock);
	return e2e_failures != 0;
}

/* All that the ranks had comes back once they have ended (a daemon may take a moment to see it). */
static void check_returns(size_t at_first)
{
	size_t now = 0;

	for (int i = 0; i < 200 && (now = wl_free()) != at_first; i++)
		(void)usleep(10000);
	CHECK_INT(now, at_first);
}

static void test_descriptors(void)
{
	size_t at_first = wl_free();
	struct rank r[2] = { rank_start("fd-exporter", 0, getpid()),
			     rank_start("fd-importer", 1, getpid()) };

	for (int i = 0; i < 5; i++) {
		gather(r, 2);
		release(r, 2);
	}
	rank_end(&r[0]);
	rank_end(&r[1]);
	check_returns(at_first);
}

/* The exporter is killed: who imported goes on, and nothing stays when all are gone. */
static int victim(pid_t group)
{
	int sock = listen_as(group, 0);
	struct buffer b = buffer_new(CU_MEM_LOCATION_TYPE_DEVICE, SIZE);

	wl_stamp(b.va, SIZE, 5);
	send_fd(sock, group, 1, buffer_export(&b));
	meet();
	(void)pause();
	return 1;
}

static void test_killed(void)
{
	size_t at_first = wl_free();
	int sock = listen_as(getpid(), 1);
	struct rank r = rank_start("victim", 0, getpid());
	struct buffer b = buffer_import(receive_fd(sock), SIZE, false);
	int status = 0;

	CHECK(await(r.fd));
	CHECK(wl_stamped(b.va, SIZE, 5));
	CHECK(kill(r.pid, SIGKILL) == 0);
	CHECK(waitpid(r.pid, &status, 0) == r.pid && WIFSIGNALED(status));
	(void)close(r.fd);
	CHECK(wl_stamped(b.va, SIZE, 5));
	if (!wl_limit) /* whose memory it is in an instance when its exporter is gone is the daemon's to say */
		check_returns(at_first - SIZE);
	wl_stamp(b.va, SIZE, 6);
	CHECK(wl_stamped(b.va, SIZE, 6));
	buffer_free(&b);
	(void)close(sock);
	check_returns(at_first);
}

/* ---- a ring over IPC handles ---- */

/* Each writes its part into its neighbour's buffer, then hands on what it got: in the end all have all. */
static int ring(unsigned me)
{
	const unsigned lazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
	CUipcMemHandle handle;
	CUdeviceptr mine = 0;
	CUdeviceptr next = 0;
	CUstream stream = NULL;
	size_t before;

	meet(); /* all contexts are there */
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&mine, RANKS * CHUNK));
	OK(cuMemsetD8_v2(mine, 0, RANKS * CHUNK));
	wl_stamp(mine + me * CHUNK, CHUNK, me + 1);
	OK(cuCtxSynchronize());
	OK(cuIpcGetMemHandle(&handle, mine));
	CHECK(write(3, &handle, sizeof(handle)) == sizeof(handle));
	CHECK(recv(3, &handle, sizeof(handle), MSG_WAITALL) == sizeof(handle));
	before = wl_free();
	OK(cuIpcOpenMemHandle_v2(&next, handle, lazy));
	CHECK_INT(wl_free(), before);
	meet();
	for (unsigned step = 0; step < RANKS - 1; step++) {
		size_t at = (me + RANKS - step) % RANKS * CHUNK;

		OK(cuMemcpyDtoDAsync_v2(next + at, mine + at, CHUNK, stream));
		OK(cuStreamSynchronize(stream));
		meet();
	}
	for (unsigned i = 0; i < RANKS; i++)
		CHECK(wl_stamped(mine + i * CHUNK, CHUNK, i + 1));
	OK(cuIpcCloseMemHandle(next));
	meet(); /* nobody has anybody's any more */
	OK(cuMemFree_v2(mine));
	OK(cuStreamDestroy_v2(stream));
	return e2e_failures != 0;
}

static void test_ring(void)
{
	size_t at_first = wl_free();
	CUipcMemHandle handle[RANKS];
	struct rank r[RANKS];
	size_t before;

	for (unsigned i = 0; i < RANKS; i++)
		r[i] = rank_start("ring", i, getpid());
	gather(r, RANKS);
	before = wl_free(); /* their contexts cost something, too */
	release(r, RANKS);
	for (unsigned i = 0; i < RANKS; i++)
		CHECK(recv(r[i].fd, &handle[i], sizeof(handle[i]), MSG_WAITALL) ==
		      sizeof(handle[i]));
	CHECK_INT(before - wl_free(), RANKS * RANKS * CHUNK); /* all ranks' buffers count */
	for (unsigned i = 0; i < RANKS; i++)
		CHECK(write(r[i].fd, &handle[(i + 1) % RANKS], sizeof(handle[0])) ==
		      sizeof(handle[0]));
	for (unsigned i = 0; i < RANKS + 1; i++) {
		gather(r, RANKS);
		release(r, RANKS);
	}
	for (unsigned i = 0; i < RANKS; i++)
		rank_end(&r[i]);
	check_returns(at_first);
}

/* Ranks that all take what they can get: together they get what there is, and not a byte more. */
static int greedy(void)
{
	CUmemAllocationProp prop = place(CU_MEM_LOCATION_TYPE_DEVICE, 0);
	CUmemGenericAllocationHandle h = 0;
	unsigned n = 0;
	CUresult rc = CUDA_SUCCESS;

	meet();
	while ((rc = cuMemCreate(&h, CHUNK, &prop, 0)) == CUDA_SUCCESS)
		n++;
	CHECK_RC(rc, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(write(3, &n, sizeof(n)) == sizeof(n));
	CHECK(await(3));
	return e2e_failures != 0;
}

static void test_greedy(void)
{
	size_t at_first = wl_free();
	struct rank r[RANKS];
	unsigned sum = 0;
	size_t before;

	for (unsigned i = 0; i < RANKS; i++)
		r[i] = rank_start("greedy", i, getpid());
	gather(r, RANKS);
	before = wl_free();
	release(r, RANKS);
	for (unsigned i = 0; i < RANKS; i++) {
		unsigned n = 0;

		CHECK(recv(r[i].fd, &n, sizeof(n), MSG_WAITALL) == sizeof(n));
		sum += n;
	}
	CHECK_INT(sum, before / CHUNK);
	CHECK_INT(wl_free(), before % CHUNK);
	release(r, RANKS);
	for (unsigned i = 0; i < RANKS; i++)
		rank_end(&r[i]);
	check_returns(at_first);
}

static int run_part(const char *part, unsigned number, pid_t group)
{
	(void)alarm(60); /* a rank that waits for one that is gone */
	(void)open_context(0);
	if (strcmp(part, "fd-exporter") == 0)
		return fd_exporter(group);
	if (strcmp(part, "fd-importer") == 0)
		return fd_importer(group);
	if (strcmp(part, "victim") == 0)
		return victim(group);
	if (strcmp(part, "ring") == 0)
		return ring(number);
	return greedy();
}

int main(int argc, char **argv)
{
	static const struct e2e_test tests[] = {
		{ "buffers in host memory", test_host },
		{ "memory without a context", test_no_context },
		{ "no fabric", test_fabric },
		{ "descriptors over a socket", test_descriptors },
		{ "an exporter that is killed", test_killed },
		{ "a ring over IPC handles", test_ring },
		{ "ranks that take all", test_greedy },
	};
	int at = wl_parse(argc, argv);

	self = (const char *const *)argv;
	(void)snprintf(limit_text, sizeof(limit_text), "%llu", (unsigned long long)wl_limit);
	if (argc == at + 3)
		return run_part(argv[at], (unsigned)strtoul(argv[at + 1], NULL, 10),
				(int)strtol(argv[at + 2], NULL, 10));
	(void)open_context(0);
	return e2e_run(tests, (int)(sizeof(tests) / sizeof(tests[0])));
}
