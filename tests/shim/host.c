/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon as small as the attach socket allows, for tests of the stand-ins alone: serves one instance and runs one program in it.
 *
 *   shim-host --shim DIR --provider LIB [options] -- PROGRAM [ARGUMENT...]
 *     --limit BYTES        of each card (none: unlimited)      --cards N       how many of the provider's cards (all)
 *     --context BYTES      learned maximum of a context        --clients N     pretend that so many slots are in use
 *     --overhead BYTES     answer SETTLE: the explicit memory and so much more (else: not known)
 *     --absent             nobody listens                      --late MS       listen only after so long
 *     --nvml-shim DIR, --nvml-provider LIB   the same for NVML
 *     --refuse             welcome nobody                      --print         the accounts at the end, on stderr
 *
 * SIGUSR1 is a restart: connections end, pages are new, the limits the same. SIGUSR2 halves the limits. The program finds the pid in AQ_HOST_PID. Its
 * status is ours.
 */
#include "api/cuda_abi.h"
#include "proto/attach.h"
#include "shm/pages.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_CONNECTIONS 1024

static struct {
	const char *shim, *provider, *nvml_shim, *nvml_provider;
	uint64_t limit, context, overhead;
	unsigned cards, clients, late_ms;
	bool absent, refuse, print, known;
} opt = { .limit = AQ_NO_LIMIT };

static struct {
	char dir[64];
	uint8_t uuid[AQ_INSTANCE_CARDS][16];
	uint64_t card_bytes[AQ_INSTANCE_CARDS];
	unsigned n_cards;
	int listener, control_fd, report_fd;
	struct aq_control_page *control;
	struct aq_report_page *report;
	struct {
		int fd;
		uint32_t pid, slot;
	} c[MAX_CONNECTIONS];
	unsigned n;
	uint32_t epoch;
} host = { .listener = -1 };

static void die(const char *what)
{
	(void)fprintf(stderr, "shim-host: %s: %s\n", what, strerror(errno));
	exit(99);
}

/* The provider's cards, asked in a process of their own: this one must not be a client. */
static void find_cards(void)
{
	int p[2];
	pid_t pid = pipe(p) == 0 ? fork() : -1;

	if (pid < 0)
		die("fork");
	if (pid == 0) {
		int hidden = unsetenv("CUDA_VISIBLE_DEVICES");
		void *lib = hidden ? NULL : dlopen(opt.provider, RTLD_NOW);
		CUresult (*init)(unsigned) = lib ? dlsym(lib, "cuInit") : NULL;
		CUresult (*count)(int *) = lib ? dlsym(lib, "cuDeviceGetCount") : NULL;
		CUresult (*uuid)(CUuuid *, CUdevice) = lib ? dlsym(lib, "cuDeviceGetUuid") : NULL;
		CUresult (*total)(size_t *, CUdevice) =
			lib ? dlsym(lib, "cuDeviceTotalMem_v2") : NULL;
		int n = 0;

		if (!init || !count || !uuid || init(0) || count(&n)) {
			(void)fprintf(stderr, "shim-host: %s\n", lib ? "no cards" : dlerror());
			_exit(1);
		}
		for (int i = 0; i < n; i++) {
			struct {
				CUuuid u;
				size_t bytes;
			} one = { 0 };

			(void)uuid(&one.u, i);
			if (total)
				(void)total(&one.bytes, i);
			(void)!write(p[1], &one, sizeof(one));
		}
		_exit(0);
	}
	(void)close(p[1]);
	for (;;) {
		struct {
			CUuuid u;
			size_t bytes;
		} one;

		if (read(p[0], &one, sizeof(one)) != sizeof(one) ||
		    host.n_cards == AQ_INSTANCE_CARDS)
			break;
		if (opt.cards && host.n_cards == opt.cards)
			continue;
		memcpy(host.uuid[host.n_cards], one.u.bytes, 16);
		host.card_bytes[host.n_cards++] = one.bytes;
	}
	(void)close(p[0]);
	(void)waitpid(pid, NULL, 0);
}

static void *page(const char *name, size_t size, int *ret_fd)
{
	void *p;

	*ret_fd = memfd_create(name, MFD_CLOEXEC);
	if (*ret_fd < 0 || ftruncate(*ret_fd, (off_t)size) < 0)
		die("memfd");
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void make_pages(void)
{
	host.control = page("control", sizeof(*host.control), &host.control_fd);
	host.report = page("report", sizeof(*host.report), &host.report_fd);
	host.control->magic = AQ_CONTROL_MAGIC;
	host.control->version = host.report->version = AQ_PAGES_VERSION;
	host.report->magic = AQ_REPORT_MAGIC;
	host.control->n_cards = host.n_cards;
	host.control->epoch = ++host.epoch;
	host.control->slots_high = opt.clients;
	for (unsigned i = 0; i < host.n_cards; i++) {
		memcpy(host.control->card[i].uuid, host.uuid[i], 16);
		host.control->card[i].limit_bytes = opt.limit;
		host.control->card[i].card_bytes = host.card_bytes[i];
		host.control->card[i].context_bytes = opt.context;
	}
}

static void listen_at(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/" AQ_ATTACH_SOCKET, host.dir);
	host.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (host.listener < 0 || bind(host.listener, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(host.listener, 512) < 0)
		die("listen");
}

static uint32_t slot_for(uint32_t pid)
{
	bool taken[AQ_MAX_CLIENTS] = { false };

	for (unsigned i = 0; i < host.n; i++) {
		if (host.c[i].pid == pid)
			return host.c[i].slot;
		if (host.c[i].pid)
			taken[host.c[i].slot] = true;
	}
	for (uint32_t i = 0; i < AQ_MAX_CLIENTS; i++)
		if (!taken[i])
			return i;
	return 0;
}

static void welcome(unsigned i, const struct aq_attach_hello *hello)
{
	struct aq_attach_welcome w = { .h = { AQ_ATTACH_MAGIC, AQ_ATTACH_WELCOME, sizeof(w) },
				       .version = AQ_ATTACH_VERSION,
				       .status = opt.refuse ? -EACCES : 0,
				       .epoch = host.epoch,
				       .control_size = sizeof(*host.control),
				       .report_size = sizeof(*host.report) };
	int fds[2] = { host.control_fd, host.report_fd };
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(fds))];
	struct iovec iov = { &w, sizeof(w) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	w.slot = slot_for(hello->pid);
	host.c[i].pid = hello->pid;
	host.c[i].slot = w.slot;
	if (host.control->slots_high <= w.slot)
		host.control->slots_high = w.slot + 1;
	(void)snprintf(w.cuda_provider, sizeof(w.cuda_provider), "%s", opt.provider);
	(void)snprintf(w.nvml_provider, sizeof(w.nvml_provider), "%s",
		       opt.nvml_provider ? opt.nvml_provider : "");
	(void)snprintf(w.message, sizeof(w.message), "not today");
	if (!opt.refuse) {
		struct cmsghdr *c;

		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(fds));
		memcpy(CMSG_DATA(c), fds, sizeof(fds));
	}
	(void)sendmsg(host.c[i].fd, &msg, MSG_NOSIGNAL);
}

static void settle(unsigned i, const struct aq_attach_settle *ask)
{
	const struct aq_account *a =
		&host.report->account[ask->card % AQ_INSTANCE_CARDS][host.c[i].slot];
	struct aq_attach_settled answer = { { AQ_ATTACH_MAGIC, AQ_ATTACH_SETTLED, sizeof(answer) },
					    ask->card,
					    opt.known,
					    a->used + opt.overhead };

	(void)send(host.c[i].fd, &answer, sizeof(answer), MSG_NOSIGNAL);
}

static void drop(unsigned i)
{
	unsigned same = 0;

	(void)close(host.c[i].fd);
	for (unsigned k = 0; k < host.n; k++)
		same += host.c[k].pid == host.c[i].pid;
	/* Its books end with it. */
	for (unsigned card = 0; card < AQ_INSTANCE_CARDS && same == 1 && host.c[i].pid; card++) {
		struct aq_account *a = &host.report->account[card][host.c[i].slot];

		if (opt.print && card < host.n_cards)
			(void)fprintf(
				stderr,
				"shim-host: client %u card %u pending %lu used %lu overhead %lu\n",
				host.c[i].pid, card, a->pending, a->used, a->overhead);
		memset(a, 0, sizeof(*a));
	}
	host.c[i] = host.c[--host.n];
}

static void serve(unsigned i)
{
	_Alignas(8) char packet[AQ_ATTACH_MAX];
	ssize_t n = recv(host.c[i].fd, packet, sizeof(packet), MSG_DONTWAIT);

	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			drop(i);
		return;
	}
	switch (aq_attach_check(packet, (uint32_t)n)) {
	case AQ_ATTACH_HELLO:
		welcome(i, (void *)packet);
		break;
	case AQ_ATTACH_SETTLE:
		settle(i, (void *)packet);
		break;
	default:
		drop(i);
	}
}

static void restart(void)
{
	for (unsigned i = 0; i < host.n; i++)
		(void)close(host.c[i].fd);
	host.n = 0;
	(void)close(host.control_fd);
	(void)close(host.report_fd);
	make_pages();
}

static pid_t start(char **argv)
{
	pid_t pid = fork();
	char path[8400];
	char number[16];

	if (pid != 0)
		return pid;
	(void)snprintf(path, sizeof(path), "%s/libcuda.so.1%s%s%s", opt.shim,
		       opt.nvml_shim ? ":" : "", opt.nvml_shim ? opt.nvml_shim : "",
		       opt.nvml_shim ? "/libnvidia-ml.so.1" : "");
	/* A sanitizer's runtime has to come first; the programs of the tests find the library by its folder then. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	(void)setenv("LD_PRELOAD", path, 1);
#endif
	(void)snprintf(path, sizeof(path), "%s%s%s", opt.shim, opt.nvml_shim ? ":" : "",
		       opt.nvml_shim ? opt.nvml_shim : "");
	(void)setenv("LD_LIBRARY_PATH", path, 1);
	(void)setenv(AQ_ATTACH_DIR_ENV, host.dir, 1);
	(void)snprintf(number, sizeof(number), "%d", (int)getppid());
	(void)setenv("AQ_HOST_PID", number, 1);
	(void)sigprocmask(SIG_SETMASK, &(sigset_t){ 0 }, NULL);
	(void)execvp(argv[0], argv);
	die(argv[0]);
	return -1;
}

/* One round of waiting. Returns false when the program has ended; *ret_status is how. */
static bool turn(int signals, pid_t program, int *ret_status)
{
	struct pollfd p[MAX_CONNECTIONS + 2];
	struct signalfd_siginfo s;
	unsigned n = host.n;

	p[0] = (struct pollfd){ .fd = signals, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = host.listener, .events = POLLIN };
	for (unsigned i = 0; i < n; i++)
		p[i + 2] = (struct pollfd){ .fd = host.c[i].fd, .events = POLLIN };
	if (poll(p, n + 2, -1) < 0)
		return true;
	for (unsigned i = n; i-- > 0;)
		if (p[i + 2].revents)
			serve(i);
	if ((p[1].revents & POLLIN) && host.n < MAX_CONNECTIONS)
		host.c[host.n++].fd = accept4(host.listener, NULL, NULL, SOCK_CLOEXEC);
	if (host.n > n)
		host.c[host.n - 1].pid = 0;
	if (!(p[0].revents & POLLIN) || read(signals, &s, sizeof(s)) != sizeof(s))
		return true;
	if (s.ssi_signo == SIGUSR1)
		restart();
	if (s.ssi_signo == SIGUSR2)
		for (unsigned i = 0; i < host.n_cards; i++)
			host.control->card[i].limit_bytes /= 2;
	if (s.ssi_signo == SIGALRM)
		listen_at();
	return waitpid(program, ret_status, WNOHANG) != program;
}

static char **parse(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];

		if (strcmp(a, "--") == 0)
			return argv + i + 1;
		if (strcmp(a, "--absent") == 0)
			opt.absent = true;
		else if (strcmp(a, "--refuse") == 0)
			opt.refuse = true;
		else if (strcmp(a, "--print") == 0)
			opt.print = true;
		else if (i + 1 >= argc)
			break;
		else if (strcmp(a, "--shim") == 0)
			opt.shim = argv[++i];
		else if (strcmp(a, "--nvml-shim") == 0)
			opt.nvml_shim = argv[++i];
		else if (strcmp(a, "--nvml-provider") == 0)
			opt.nvml_provider = argv[++i];
		else if (strcmp(a, "--provider") == 0)
			opt.provider = argv[++i];
		else if (strcmp(a, "--limit") == 0)
			opt.limit = strtoull(argv[++i], NULL, 0);
		else if (strcmp(a, "--cards") == 0)
			opt.cards = (unsigned)strtoul(argv[++i], NULL, 0);
		else if (strcmp(a, "--context") == 0)
			opt.context = strtoull(argv[++i], NULL, 0);
		else if (strcmp(a, "--clients") == 0)
			opt.clients = (unsigned)strtoul(argv[++i], NULL, 0);
		else if (strcmp(a, "--late") == 0)
			opt.late_ms = (unsigned)strtoul(argv[++i], NULL, 0);
		else if (strcmp(a, "--overhead") == 0) {
			opt.overhead = strtoull(argv[++i], NULL, 0);
			opt.known = true;
		} else
			break;
	}
	(void)fprintf(stderr, "shim-host: see the top of its source\n");
	exit(99);
}

int main(int argc, char **argv)
{
	char **program = parse(argc, argv);
	char path[128];
	sigset_t set;
	int status = 0;
	int signals;
	pid_t pid;

	opt.shim = opt.shim ? realpath(opt.shim, NULL) : NULL;
	opt.nvml_shim = opt.nvml_shim ? realpath(opt.nvml_shim, NULL) : NULL;
	opt.nvml_provider = opt.nvml_provider ? realpath(opt.nvml_provider, NULL) : NULL;
	opt.provider = opt.provider ? realpath(opt.provider, NULL) : NULL;
	if (!opt.shim || !opt.provider)
		die("--shim or --provider");
	find_cards();
	make_pages();
	(void)snprintf(host.dir, sizeof(host.dir), "/tmp/aliquot-shim.XXXXXX");
	if (!mkdtemp(host.dir))
		die("mkdtemp");
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGUSR1);
	(void)sigaddset(&set, SIGUSR2);
	(void)sigaddset(&set, SIGALRM);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (opt.late_ms)
		(void)ualarm(opt.late_ms * 1000, 0);
	else if (!opt.absent)
		listen_at();
	pid = start(program);
	while (turn(signals, pid, &status))
		;
	while (host.n)
		drop(host.n - 1);
	(void)snprintf(path, sizeof(path), "%s/" AQ_ATTACH_SOCKET, host.dir);
	(void)unlink(path);
	(void)rmdir(host.dir);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
