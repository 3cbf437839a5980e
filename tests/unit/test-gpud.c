/* SPDX-License-Identifier: Apache-2.0 */
/* The server as a process: start and end, real kernels, several clients, clients that die. */
#include "card-harness.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char path[64];
static pid_t server = -1;

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry saxpy(.param .u64 x, .param .u64 y) {\n"
	"  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %rd<8>;\n"
	"  ld.param.u64 %rd1, [x];\n  ld.param.u64 %rd2, [y];\n"
	"  mov.u32 %r1, %ctaid.x;\n  mov.u32 %r2, %ntid.x;\n  mov.u32 %r3, %tid.x;\n"
	"  mad.lo.s32 %r4, %r1, %r2, %r3;\n  mul.wide.s32 %rd3, %r4, 4;\n"
	"  cvta.to.global.u64 %rd4, %rd1;\n  cvta.to.global.u64 %rd5, %rd2;\n"
	"  add.s64 %rd6, %rd4, %rd3;\n  add.s64 %rd7, %rd5, %rd3;\n"
	"  ld.global.f32 %f1, [%rd6];\n  ld.global.f32 %f2, [%rd7];\n"
	"  fma.rn.f32 %f3, %f1, 0f40000000, %f2;\n  st.global.f32 [%rd7], %f3;\n  ret;\n}\n"
	".visible .entry spin(.param .u64 x, .param .u64 y) {\n"
	"  .reg .b32 %r<2>;\n  mov.u32 %r1, 0;\nL:\n  add.s32 %r1, %r1, 1;\n  bra L;\n}\n"
	".visible .entry trap(.param .u64 x, .param .u64 y) {\n  trap;\n  ret;\n}\n"
	".visible .entry nap(.param .u64 x, .param .u64 y) {\n"
	"  .reg .b32 %r<3>; .reg .pred %p<2>;\n  mov.u32 %r1, 0;\nL:\n  nanosleep.u32 1000000;\n"
	"  add.s32 %r1, %r1, 1;\n  setp.lt.u32 %p1, %r1, 20;\n  @%p1 bra L;\n  ret;\n}\n";

enum {
	SAXPY,
	SPIN,
	TRAP,
	NAP
};

/* Start a server at `where` with more arguments (NULL-terminated) and wait until it is ready. Returns its pid, or the exit status negated. */
static pid_t start_server(const char *where, char *const more[])
{
	char *args[16] = { (char *)AQ_GPUD_PATH, (char *)"--socket", (char *)where,
			   (char *)"--ready-fd", (char *)"9",	     (char *)"--log-level",
			   (char *)"error" };
	int n = 7;
	int ready[2];
	char byte;
	pid_t pid;

	for (; more && *more; more++)
		args[n++] = *more;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)dup2(ready[1], 9);
		(void)execv(AQ_GPUD_PATH, args);
		_exit(127);
	}
	(void)close(ready[1]);
	if (read(ready[0], &byte, 1) != 1) {
		int status = 0;

		(void)waitpid(pid, &status, 0);
		pid = -WEXITSTATUS(status);
	}
	(void)close(ready[0]);
	return pid;
}

static int stop_server(pid_t pid)
{
	int status = 0;

	(void)kill(pid, SIGTERM);
	(void)waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int setup(void **state)
{
	char *const more[] = { (char *)"--profile", (char *)"card-1g", (char *)"--cards",
			       (char *)"2", NULL };

	(void)state;
	(void)snprintf(path, sizeof(path), "/tmp/aq-test-gpud-%d.sock", (int)getpid());
	server = start_server(path, more);
	return server > 0 ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return stop_server(server) == 0 && access(path, F_OK) < 0 ? 0 : -1;
}

static uint64_t used(struct client *cl, uint32_t card)
{
	return card_stat(cl, card).memory_used;
}

/* Wait until nothing but the card's own is taken. */
static void expect_quiet(void)
{
	struct client cl;

	client_open(&cl, path);
	for (int i = 0; i < 5000; i++) {
		if (used(&cl, 0) == 16 * AQ_MIB && used(&cl, 1) == 16 * AQ_MIB)
			break;
		(void)usleep(1000);
	}
	assert_int_equal(card_stat(&cl, 0).n_contexts, 0);
	assert_int_equal(used(&cl, 0), 16 * AQ_MIB);
	assert_int_equal(used(&cl, 1), 16 * AQ_MIB);
	client_close(&cl);
}

static int quiet(void **state)
{
	(void)state;
	expect_quiet();
	return 0;
}

static void kernels_ready(struct client *cl)
{
	client_open(cl, path);
	assert_int_equal(ctx_create(cl, 1, 0), AQ_OK);
	assert_int_equal(module_load(cl, 1, 1, ptx), AQ_OK);
}

static void test_start_and_stop(void **state)
{
	char other[80];
	char *const bad[] = { (char *)"--profile", (char *)"card-2g", NULL };
	struct stat st;
	pid_t pid;
	int fd;

	(void)state;
	(void)snprintf(other, sizeof(other), "%s.2", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(start_server(path, NULL), -1);
	assert_int_equal(start_server(other, bad), -2);
	/* What a killed server leaves behind is replaced. */
	pid = start_server(other, NULL);
	assert_true(pid > 0);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	assert_int_equal(access(other, F_OK), 0);
	pid = start_server(other, NULL);
	assert_true(pid > 0);
	fd = aq_fd_connect_unix(other);
	assert_true(fd >= 0);
	/* In the middle of a handshake. */
	assert_int_equal(write(fd, "AQQW", 4), 4);
	assert_int_equal(stop_server(pid), 0);
	assert_int_not_equal(access(other, F_OK), 0);
	(void)close(fd);
}

static void test_saxpy(void **state)
{
	enum {
		N = 4096
	};
	static float x[N];
	static float y[N];
	struct launch l = {
		.ctx = 1, .module = 1, .func = SAXPY, .blocks = N / 256, .threads = 256
	};
	struct client cl;

	(void)state;
	for (int i = 0; i < N; i++) {
		x[i] = (float)i;
		y[i] = 1;
	}
	kernels_ready(&cl);
	assert_int_equal(mem_alloc(&cl, 1, sizeof(x), &l.arg0), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 1, sizeof(y), &l.arg1), AQ_OK);
	mem_write(&cl, 1, 0, l.arg0, x, sizeof(x));
	mem_write(&cl, 1, 0, l.arg1, y, sizeof(y));
	assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(mem_read(&cl, 1, 0, l.arg1, y, sizeof(y)), AQ_OK);
	for (int i = 0; i < N; i++)
		assert_true(y[i] == 2 * (float)i + 1);
	client_close(&cl);
}

static void test_faults(void **state)
{
	struct launch l = { .ctx = 1, .module = 1, .func = TRAP };
	struct client cl;

	(void)state;
	kernels_ready(&cl);
	assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(ctx_sync(&cl, 1), AQ_E_TRAP);
	assert_int_equal(ctx_destroy(&cl, 1), AQ_OK);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(module_load(&cl, 1, 1, ptx), AQ_OK);
	l.func = SAXPY;
	l.arg0 = 0x1000;
	assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(ctx_sync(&cl, 1), AQ_E_ILLEGAL_ADDRESS);
	client_close(&cl);
}

/* nanosleep: 20 ms that cost no CPU but occupy the card. */
static void test_nap(void **state)
{
	struct launch l = { .ctx = 1, .module = 1, .func = NAP };
	struct aq_req_event_elapsed req = { .start = 1, .end = 2 };
	struct aq_rep_event_elapsed rep = { 0 };
	struct client cl;

	(void)state;
	kernels_ready(&cl);
	assert_int_equal(event_create(&cl, 1, 1), AQ_OK);
	assert_int_equal(event_create(&cl, 1, 2), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 0, 1), AQ_OK);
	assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 0, 2), AQ_OK);
	assert_int_equal(event_sync(&cl, 2), AQ_OK);
	assert_int_equal(AQ_CALL(cl.c, EVENT_ELAPSED, event_elapsed, &req, &rep), AQ_OK);
	assert_true(rep.ns >= 20 * (int64_t)AQ_NS_PER_MS);
	client_close(&cl);
}

static void test_ipc(void **state)
{
	struct aq_req_mem_export ex = { 0 };
	struct aq_rep_mem_export cookie = { 0 };
	struct aq_req_mem_import im = { .ctx = 1 };
	struct aq_rep_mem_import rep = { 0 };
	struct aq_req_event_export eex = { .event = 1 };
	struct aq_rep_event_export ecookie = { 0 };
	struct aq_req_event_import eim = { .ctx = 1, .event = 7 };
	struct client a;
	struct client b;
	uint64_t pad;
	uint64_t va;
	uint64_t before;
	char text[6] = "";

	(void)state;
	client_open(&a, path);
	client_open(&b, path);
	assert_int_equal(ctx_create(&a, 1, 0), AQ_OK);
	assert_int_equal(ctx_create(&b, 1, 0), AQ_OK);
	assert_int_equal(mem_alloc(&a, 1, 300, &pad), AQ_OK);
	assert_int_equal(mem_alloc(&a, 1, 300, &va), AQ_OK);
	before = used(&a, 0);
	mem_write(&a, 1, 0, va, "hello", 6);
	assert_int_equal(ctx_sync(&a, 1), AQ_OK);
	ex.va = va + 10;
	assert_int_equal(AQ_CALL(a.c, MEM_EXPORT, mem_export, &ex, &cookie), AQ_OK);
	assert_int_equal(cookie.offset, 10);
	assert_int_equal(AQ_CALL(b.c, MEM_IMPORT, mem_import, &im, &rep), AQ_E_NOT_FOUND);
	memcpy(im.cookie, cookie.cookie, sizeof(im.cookie));
	assert_int_equal(AQ_CALL(b.c, MEM_IMPORT, mem_import, &im, &rep), AQ_OK);
	assert_int_equal(rep.size, 512);
	assert_int_equal(mem_read(&b, 1, 0, rep.va, text, 6), AQ_OK);
	assert_string_equal(text, "hello");
	/* The exporter pays, once. */
	assert_int_equal(used(&a, 0), before);
	/* Events. */
	assert_int_equal(event_create(&a, 1, 1), AQ_OK);
	assert_int_equal(AQ_CALL(a.c, EVENT_EXPORT, event_export, &eex, &ecookie), AQ_OK);
	memcpy(eim.cookie, ecookie.cookie, sizeof(eim.cookie));
	assert_int_equal(AQ_CALL(b.c, EVENT_IMPORT, event_import, &eim,
				 (struct aq_rep_event_import *)NULL),
			 AQ_OK);
	assert_int_equal(host_func(&a, 1, 0, 1), AQ_OK);
	assert_int_equal(event_record(&a, 1, 0, 1), AQ_OK);
	assert_int_equal(event_query(&b, 7), AQ_E_NOT_READY);
	assert_int_equal(wait_event(&b, 1, 0, 7), AQ_OK);
	assert_int_equal(stream_query(&b, 1, 0), AQ_E_NOT_READY);
	/* The exporter goes in the middle of it: who waits is not left waiting, the memory lives on. */
	client_close(&a);
	assert_int_equal(stream_sync(&b, 1, 0), AQ_OK);
	assert_int_equal(mem_read(&b, 1, 0, rep.va, text, 6), AQ_OK);
	assert_string_equal(text, "hello");
	assert_int_equal(mem_free(&b, rep.va), AQ_OK);
	assert_int_equal(used(&b, 0), 32 * AQ_MIB);
	client_close(&b);
}

static int va_op(struct client *cl, enum aq_op op, const void *req, size_t len, void *rep,
		 size_t rep_len)
{
	struct aq_client_msg msg = { op, req, len, NULL, 0 };

	return aq_client_call(cl->c, &msg, rep, rep_len, NULL);
}

#define VA_OP(cl, NAME, name, ...)                                        \
	va_op((cl), AQ_OP_##NAME, &(struct aq_req_##name){ __VA_ARGS__ }, \
	      sizeof(struct aq_req_##name), NULL, 0)

static void test_vmm(void **state)
{
	struct aq_req_va_reserve reserve = { .size = 8 * AQ_MIB };
	struct aq_rep_va_reserve reserved = { 0 };
	struct aq_req_phys_export ex = { .phys = 1 };
	struct aq_client_msg exmsg = { AQ_OP_PHYS_EXPORT, &ex, sizeof(ex), NULL, 0 };
	struct aq_req_phys_import im = { .phys = 9 };
	struct aq_client_msg immsg = { AQ_OP_PHYS_IMPORT, &im, sizeof(im), NULL, 0 };
	struct aq_rep_phys_import imported = { 0 };
	const uint64_t m = 2 * AQ_MIB;
	struct client a;
	struct client b;
	uint64_t va;
	uint64_t vb;
	uint64_t before;
	char text[8] = "";
	int fd = -1;

	(void)state;
	client_open(&a, path);
	client_open(&b, path);
	assert_int_equal(ctx_create(&a, 1, 0), AQ_OK);
	assert_int_equal(ctx_create(&b, 1, 0), AQ_OK);
	before = used(&a, 0);
	assert_int_equal(AQ_CALL(a.c, VA_RESERVE, va_reserve, &reserve, &reserved), AQ_OK);
	va = reserved.va;
	assert_int_equal(AQ_CALL(b.c, VA_RESERVE, va_reserve, &reserve, &reserved), AQ_OK);
	vb = reserved.va;
	assert_int_equal(VA_OP(&a, PHYS_CREATE, phys_create, .phys = 1, .size = 3 * m), AQ_OK);
	assert_int_equal(VA_OP(&a, PHYS_CREATE, phys_create, .phys = 1, .size = m), AQ_E_INVALID);
	assert_int_equal(VA_OP(&a, PHYS_CREATE, phys_create, .phys = 2, .size = m + 1),
			 AQ_E_INVALID);
	assert_int_equal(VA_OP(&a, PHYS_CREATE, phys_create, .phys = 2, .size = 1ULL << 60),
			 AQ_E_NO_MEMORY);
	assert_int_equal(used(&a, 0), before + 3 * m);
	assert_int_equal(VA_OP(&a, VA_MAP, va_map, .va = va, .size = m, .offset = m, .phys = 1),
			 AQ_OK);
	assert_int_equal(VA_OP(&a, VA_MAP, va_map, .va = va, .size = m, .phys = 1), AQ_E_BUSY);
	assert_int_equal(VA_OP(&a, VA_MAP, va_map, .va = va + m, .size = 4 * m, .phys = 1),
			 AQ_E_INVALID);
	assert_int_equal(VA_OP(&a, VA_MAP, va_map, .va = va + 2 * m, .size = m,
			       .offset = UINT64_MAX - m + 1, .phys = 1),
			 AQ_E_INVALID);
	assert_int_equal(VA_OP(&a, VA_ACCESS, va_access, .va = va, .size = 2 * m, .prot = 3),
			 AQ_E_INVALID);
	assert_int_equal(VA_OP(&a, VA_ACCESS, va_access, .va = va, .size = m, .prot = 3), AQ_OK);
	mem_write(&a, 1, 0, va + 100, "shared", 7);
	assert_int_equal(ctx_sync(&a, 1), AQ_OK);
	assert_int_equal(aq_client_call_fd(a.c, &exmsg, NULL, 0, NULL, -1, &fd), AQ_OK);
	assert_int_equal(aq_client_call_fd(b.c, &immsg, &imported, sizeof(imported), NULL, fd,
					   NULL),
			 AQ_OK);
	(void)close(fd);
	assert_int_equal(imported.size, 3 * m);
	assert_int_equal(imported.card, 0);
	assert_int_equal(VA_OP(&b, VA_MAP, va_map, .va = vb, .size = 3 * m, .phys = 9), AQ_OK);
	assert_int_equal(VA_OP(&b, VA_ACCESS, va_access, .va = vb, .size = 3 * m, .prot = 1),
			 AQ_OK);
	assert_int_equal(mem_read(&b, 1, 0, vb + m + 100, text, 7), AQ_OK);
	assert_string_equal(text, "shared");
	/* Everything of the first session goes; the second keeps the memory alive. */
	assert_int_equal(VA_OP(&a, VA_RELEASE, va_release, .va = va, .size = 4 * m), AQ_E_BUSY);
	assert_int_equal(VA_OP(&a, VA_UNMAP, va_unmap, .va = va, .size = m), AQ_OK);
	assert_int_equal(VA_OP(&a, VA_RELEASE, va_release, .va = va, .size = 4 * m), AQ_OK);
	assert_int_equal(VA_OP(&a, PHYS_RELEASE, phys_release, .phys = 1), AQ_OK);
	assert_int_equal(used(&a, 0), before + 3 * m);
	client_close(&a);
	assert_int_equal(VA_OP(&b, PHYS_RELEASE, phys_release, .phys = 9), AQ_OK);
	assert_int_equal(mem_read(&b, 1, 0, vb + m + 100, text, 7), AQ_OK);
	/* Written through a mapping that may only be read: a fault. */
	mem_write(&b, 1, 0, vb, "x", 1);
	assert_int_equal(ctx_sync(&b, 1), AQ_E_ILLEGAL_ADDRESS);
	client_close(&b);
}

/* A descriptor that is no memory of the server's. */
static void test_vmm_foreign_fd(void **state)
{
	struct aq_req_phys_import im = { .phys = 9 };
	struct aq_client_msg immsg = { AQ_OP_PHYS_IMPORT, &im, sizeof(im), NULL, 0 };
	struct client cl;
	int fd = memfd_create("foreign", MFD_CLOEXEC);

	(void)state;
	client_open(&cl, path);
	assert_int_equal(aq_client_call_fd(cl.c, &immsg, NULL, 0, NULL, fd, NULL), AQ_E_NOT_FOUND);
	assert_int_equal(used(&cl, 0), 16 * AQ_MIB);
	(void)close(fd);
	client_close(&cl);
}

/* ---- clients that die ---- */

static const char *const deaths[] = { "endless", "ticket", "hostfunc", "memory", "nap" };

/* The client process: gets itself into a state, says so, and waits for its end. */
static int victim(const char *where, const char *how)
{
	struct aq_req_host_begin begin = { .ctx = 1, .bytes = 1 };
	struct aq_rep_host_begin rep;
	struct launch l = { .ctx = 1, .module = 1, .func = SPIN, .blocks = 40, .threads = 256 };
	struct client cl;
	uint64_t va;

	(void)snprintf(path, sizeof(path), "%s", where);
	kernels_ready(&cl);
	for (int i = 0; i < 20; i++)
		assert_int_equal(mem_alloc(&cl, 1, 1000 + (uint64_t)i * 300000, &va), AQ_OK);
	assert_int_equal(ctx_create(&cl, 2, 1), AQ_OK);
	if (strcmp(how, "endless") == 0) {
		for (int i = 0; i < 10; i++)
			assert_int_equal(launch(&cl, &l), AQ_OK);
	} else if (strcmp(how, "nap") == 0) {
		l.func = NAP;
		for (int i = 0; i < 1000; i++)
			assert_int_equal(launch(&cl, &l), AQ_OK);
	} else if (strcmp(how, "ticket") == 0) {
		assert_int_equal(AQ_CALL(cl.c, HOST_BEGIN, host_begin, &begin, &rep), AQ_OK);
	} else if (strcmp(how, "hostfunc") == 0) {
		assert_int_equal(host_func(&cl, 1, 0, 1), AQ_OK);
		assert_int_equal(host_func(&cl, 1, 0, 2), AQ_OK);
		(void)host_func_next(&cl);
	}
	assert_int_equal(write(STDOUT_FILENO, "\n", 1), 1);
	(void)pause();
	return 0;
}

static pid_t start_victim(const char *how)
{
	int out[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)dup2(out[1], STDOUT_FILENO);
		(void)execl("/proc/self/exe", "test-gpud", "--victim", path, how, (char *)NULL);
		_exit(127);
	}
	(void)close(out[1]);
	assert_int_equal(read(out[0], &byte, 1), 1);
	(void)close(out[0]);
	return pid;
}

static void test_killed_clients(void **state)
{
	(void)state;
	for (size_t i = 0; i < AQ_ARRAY_SIZE(deaths); i++) {
		pid_t pid = start_victim(deaths[i]);

		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
		expect_quiet();
	}
}

/* Its neighbour works on meanwhile. */
static void test_endless_and_saxpy(void **state)
{
	struct launch l = { .ctx = 1, .module = 1, .func = SAXPY, .blocks = 4, .threads = 256 };
	pid_t pid = start_victim("endless");
	struct client cl;
	uint64_t from;

	(void)state;
	kernels_ready(&cl);
	assert_int_equal(mem_alloc(&cl, 1, 4096, &l.arg0), AQ_OK);
	l.arg1 = l.arg0;
	from = aq_now_ns();
	for (int i = 0; i < 20; i++) {
		assert_int_equal(launch(&cl, &l), AQ_OK);
		assert_int_equal(ctx_sync(&cl, 1), AQ_OK);
	}
	assert_true(aq_now_ns() - from < 5 * AQ_NS_PER_S);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	client_close(&cl);
}

/* Two processes that want all of the card get half of it each. */
static void test_fair_slices(void **state)
{
	struct aq_req_card_procs req = { .card = 0 };
	struct aq_client_msg msg = { AQ_OP_CARD_PROCS, &req, sizeof(req), NULL, 0 };
	static struct aq_rep_card_procs before;
	static struct aq_rep_card_procs after;
	pid_t a = start_victim("endless");
	pid_t b = start_victim("endless");
	struct client cl;
	double got[2];

	(void)state;
	client_open(&cl, path);
	assert_int_equal(aq_client_call(cl.c, &msg, &before, sizeof(before), NULL), AQ_OK);
	(void)usleep(1000000);
	assert_int_equal(aq_client_call(cl.c, &msg, &after, sizeof(after), NULL), AQ_OK);
	(void)kill(a, SIGKILL);
	(void)kill(b, SIGKILL);
	(void)waitpid(a, NULL, 0);
	(void)waitpid(b, NULL, 0);
	assert_int_equal(before.n, 2);
	assert_int_equal(after.n, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(before.proc[i].pid, after.proc[i].pid);
		assert_true((pid_t)after.proc[i].pid == a || (pid_t)after.proc[i].pid == b);
		got[i] = (double)(after.proc[i].busy_ns - before.proc[i].busy_ns);
	}
	client_close(&cl);
	assert_true(got[0] / (got[0] + got[1]) > 0.4 && got[0] / (got[0] + got[1]) < 0.6);
}

/* Connections that never say hello, say half of it, or nonsense. */
static void test_bad_hello(void **state)
{
	struct aq_wire_hello hello = { .magic = 0x12345678 };
	struct client cl;
	int fd[40];

	(void)state;
	for (size_t i = 0; i < AQ_ARRAY_SIZE(fd); i++) {
		fd[i] = aq_fd_connect_unix(path);
		assert_true(fd[i] >= 0);
		if (i % 3 == 1)
			(void)aq_fd_send(fd[i], &hello, sizeof(hello) / 2, -1);
		else if (i % 3 == 2)
			(void)aq_fd_send(fd[i], &hello, sizeof(hello), -1);
	}
	client_open(&cl, path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	client_close(&cl);
	for (size_t i = 0; i < AQ_ARRAY_SIZE(fd); i++)
		(void)close(fd[i]);
}

/* Above the limit a connection is closed; below it again, served. */
static void test_too_many(void **state)
{
	enum {
		MORE = 20
	};
	static int fd[AQ_GPUD_MAX_SESSIONS + MORE];
	struct aq_err err = { 0 };
	struct aq_client *c = NULL;
	struct client cl;
	int rc = -1;

	(void)state;
	for (size_t i = 0; i < AQ_ARRAY_SIZE(fd); i++)
		fd[i] = aq_fd_connect_unix(path);
	assert_true(aq_client_connect(path, 0, 0, &c, &err) < 0);
	for (size_t i = 0; i < AQ_ARRAY_SIZE(fd); i++)
		(void)close(fd[i]);
	for (int i = 0; i < 1000 && rc < 0; i++) {
		rc = aq_client_connect(path, 0, 0, &c, &err);
		if (rc < 0)
			(void)usleep(10000);
	}
	assert_int_equal(rc, 0);
	aq_client_close(c);
	client_open(&cl, path);
	client_close(&cl);
}

static unsigned long cpu_ticks(pid_t pid)
{
	unsigned long utime = 0;
	unsigned long stime = 0;
	char name[64];
	FILE *f;

	(void)snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
	f = fopen(name, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f,
				"%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
				&utime, &stime),
			 2);
	(void)fclose(f);
	return utime + stime;
}

/* With a client that does nothing, and after work has been done. */
static void test_idle(void **state)
{
	struct client cl;
	unsigned long ticks;

	(void)state;
	kernels_ready(&cl);
	assert_int_equal(ctx_sync(&cl, 1), AQ_OK);
	(void)usleep(50000);
	ticks = cpu_ticks(server);
	(void)usleep(1000000);
	assert_true(cpu_ticks(server) - ticks <= 1);
	client_close(&cl);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start_and_stop),
		cmocka_unit_test_setup(test_saxpy, quiet),
		cmocka_unit_test_setup(test_faults, quiet),
		cmocka_unit_test_setup(test_nap, quiet),
		cmocka_unit_test_setup(test_ipc, quiet),
		cmocka_unit_test_setup(test_vmm, quiet),
		cmocka_unit_test_setup(test_vmm_foreign_fd, quiet),
		cmocka_unit_test_setup(test_killed_clients, quiet),
		cmocka_unit_test_setup(test_endless_and_saxpy, quiet),
		cmocka_unit_test_setup(test_fair_slices, quiet),
		cmocka_unit_test_setup(test_bad_hello, quiet),
		cmocka_unit_test_setup(test_too_many, quiet),
		cmocka_unit_test_setup(test_idle, quiet),
	};

	if (argc == 4 && strcmp(argv[1], "--victim") == 0)
		return victim(argv[2], argv[3]);
	return cmocka_run_group_tests(tests, setup, teardown);
}
