/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several processes on one card: what one does wrong, or how it dies, is nobody else's business. The program starts itself again in
 * other roles; every role is a process of its own with its own session.
 */
#include "api/cuda_protos.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char ptx[] =
	".version 6.0\n.target sm_70\n.address_size 64\n"
	/* out[i] += 1 for every thread */
	".visible .entry bump(.param .u64 out)\n{\n"
	"	.reg .b32 %r<6>;\n	.reg .b64 %rd<4>;\n"
	"	ld.param.u64 %rd1, [out];\n"
	"	mov.u32 %r1, %ctaid.x;\n	mov.u32 %r2, %ntid.x;\n	mov.u32 %r3, %tid.x;\n"
	"	mad.lo.s32 %r4, %r1, %r2, %r3;\n"
	"	mul.wide.u32 %rd2, %r4, 4;\n	add.s64 %rd3, %rd1, %rd2;\n"
	"	ld.global.u32 %r5, [%rd3];\n	add.u32 %r5, %r5, 1;\n	st.global.u32 [%rd3], %r5;\n"
	"	ret;\n}\n"
	".visible .entry poke(.param .u64 where)\n{\n"
	"	.reg .b32 %r<2>;\n	.reg .b64 %rd<2>;\n"
	"	ld.param.u64 %rd1, [where];\n	mov.u32 %r1, 7;\n	st.global.u32 [%rd1], %r1;\n	ret;\n}\n"
	".visible .entry trapped()\n{\n	trap;\n}\n"
	".visible .entry endless()\n{\n$L: bra $L;\n}\n";

static int failures;

#define CHECK(cond)                                                                      \
	do {                                                                             \
		if (!(cond)) {                                                           \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			failures++;                                                      \
		}                                                                        \
	} while (0)

#define CHECK_RC(call, want)                                                                   \
	do {                                                                                   \
		CUresult rc_ = (call);                                                         \
		if (rc_ != (want)) {                                                           \
			(void)fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, \
				      #call, (int)rc_, (int)(want));                           \
			failures++;                                                            \
		}                                                                              \
	} while (0)

struct card {
	CUcontext ctx;
	CUmodule module;
};

static void open_card(struct card *c)
{
	CUdevice dev;

	CHECK_RC(cuInit(0), CUDA_SUCCESS);
	CHECK_RC(cuDeviceGet(&dev, 0), CUDA_SUCCESS);
	CHECK_RC(cuCtxCreate_v2(&c->ctx, 0, dev), CUDA_SUCCESS);
	CHECK_RC(cuModuleLoadData(&c->module, ptx), CUDA_SUCCESS);
	if (failures)
		exit(1);
}

static CUfunction function(const struct card *c, const char *name)
{
	CUfunction f = NULL;

	CHECK_RC(cuModuleGetFunction(&f, c->module, name), CUDA_SUCCESS);
	return f;
}

static CUresult launch(CUfunction f, unsigned blocks, unsigned threads, CUdeviceptr arg)
{
	void *params[] = { &arg };

	return cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, NULL, params, NULL);
}

static void signal_parent(char c)
{
	if (write(STDOUT_FILENO, &c, 1) != 1)
		exit(1);
}

/* Runs right kernels until its standard input closes; every result must be exact. */
static void role_steady(void)
{
	enum {
		N = 4096
	};
	static uint32_t back[N];
	struct card c;
	CUdeviceptr d;
	CUfunction bump;
	uint32_t rounds = 0;

	open_card(&c);
	bump = function(&c, "bump");
	CHECK_RC(cuMemAlloc_v2(&d, sizeof(back)), CUDA_SUCCESS);
	CHECK_RC(cuMemsetD32_v2(d, 0, N), CUDA_SUCCESS);
	signal_parent('r');
	for (;;) {
		struct timespec pause = { .tv_nsec = 1000000 };
		char end;

		CHECK_RC(launch(bump, N / 128, 128, d), CUDA_SUCCESS);
		rounds++;
		CHECK_RC(cuMemcpyDtoH_v2(back, d, sizeof(back)), CUDA_SUCCESS);
		for (int i = 0; i < N; i++)
			CHECK(back[i] == rounds);
		if (failures)
			exit(1);
		signal_parent('.');
		/* The parent writes a byte for each round it wants, closes to end. */
		if (read(STDIN_FILENO, &end, 1) != 1)
			break;
		(void)nanosleep(&pause, NULL);
	}
	CHECK_RC(cuMemFree_v2(d), CUDA_SUCCESS);
	CHECK_RC(cuCtxDestroy_v2(c.ctx), CUDA_SUCCESS);
}

static void expect_sticky(CUresult want)
{
	CUdeviceptr d = 0;
	size_t free_bytes;
	size_t total;

	CHECK_RC(cuMemAlloc_v2(&d, 4096), want);
	CHECK_RC(cuCtxSynchronize(), want);
	CHECK_RC(cuMemGetInfo_v2(&free_bytes, &total), want);
}

static void role_wild_store(void)
{
	struct card c;
	CUdeviceptr d;

	open_card(&c);
	CHECK_RC(cuMemAlloc_v2(&d, 4096), CUDA_SUCCESS);
	CHECK_RC(launch(function(&c, "poke"), 1, 1, d + (1ULL << 36)), CUDA_SUCCESS);
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	expect_sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void role_misaligned_store(void)
{
	struct card c;
	CUdeviceptr d;

	open_card(&c);
	CHECK_RC(cuMemAlloc_v2(&d, 4096), CUDA_SUCCESS);
	CHECK_RC(launch(function(&c, "poke"), 1, 1, d + 2), CUDA_SUCCESS);
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_MISALIGNED_ADDRESS);
	expect_sticky(CUDA_ERROR_MISALIGNED_ADDRESS);
}

/* The fault ends this context; a new one of the same process works. */
static void role_trap(void)
{
	struct card c;
	struct card next;
	CUdeviceptr d;
	uint32_t v = 0;

	open_card(&c);
	CHECK_RC(cuLaunchKernel(function(&c, "trapped"), 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL),
		 CUDA_SUCCESS);
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	expect_sticky(CUDA_ERROR_LAUNCH_FAILED);
	CHECK_RC(cuCtxDestroy_v2(c.ctx), CUDA_SUCCESS);
	open_card(&next);
	CHECK_RC(cuMemAlloc_v2(&d, 4096), CUDA_SUCCESS);
	CHECK_RC(cuMemsetD32_v2(d, 41, 1), CUDA_SUCCESS);
	CHECK_RC(launch(function(&next, "bump"), 1, 1, d), CUDA_SUCCESS);
	CHECK_RC(cuMemcpyDtoH_v2(&v, d, sizeof(v)), CUDA_SUCCESS);
	CHECK(v == 42);
}

/* Takes memory and the card, and is killed while it holds both. */
static void role_endless(void)
{
	struct card c;
	CUdeviceptr d;

	open_card(&c);
	CHECK_RC(cuMemAlloc_v2(&d, 100 << 20), CUDA_SUCCESS);
	CHECK_RC(cuLaunchKernel(function(&c, "endless"), 64, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL),
		 CUDA_SUCCESS);
	signal_parent('r');
	CHECK_RC(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void role_greedy(void)
{
	CUdeviceptr d[4096];
	CUdeviceptr one;
	struct card c;
	int n = 0;
	CUresult rc = CUDA_SUCCESS;

	open_card(&c);
	for (; n < 4096 && rc == CUDA_SUCCESS; n++)
		rc = cuMemAlloc_v2(&d[n], 64 << 20);
	CHECK(rc == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(n > 2);
	signal_parent('r');
	/* Out of memory is not sticky: after one free, one more fits. */
	CHECK_RC(cuMemFree_v2(d[0]), CUDA_SUCCESS);
	CHECK_RC(cuMemAlloc_v2(&one, 64 << 20), CUDA_SUCCESS);
}

static const struct {
	const char *name;
	void (*run)(void);
} roles[] = {
	{ "steady", role_steady },
	{ "wild-store", role_wild_store },
	{ "misaligned-store", role_misaligned_store },
	{ "trap", role_trap },
	{ "endless", role_endless },
	{ "greedy", role_greedy },
};

/* ---- the parent ---- */

struct child {
	pid_t pid;
	int to, from;
};

static struct child spawn(const char *self, const char *role)
{
	struct child c;
	int in[2];
	int out[2];

	if (pipe(in) < 0 || pipe(out) < 0)
		exit(1);
	c.pid = fork();
	if (c.pid == 0) {
		(void)dup2(in[0], STDIN_FILENO);
		(void)dup2(out[1], STDOUT_FILENO);
		(void)close(in[0]);
		(void)close(in[1]);
		(void)close(out[0]);
		(void)close(out[1]);
		(void)execl(self, self, role, (char *)NULL);
		_exit(127);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	c.to = in[1];
	c.from = out[0];
	return c;
}

static char wait_byte(const struct child *c)
{
	char b = 0;

	return read(c->from, &b, 1) == 1 ? b : 0;
}

static int reap(struct child *c)
{
	int status = -1;

	if (c->to >= 0)
		(void)close(c->to);
	(void)close(c->from);
	(void)waitpid(c->pid, &status, 0);
	return status;
}

/* The steady neighbour does `n` rounds, each checked by itself. */
static void rounds(const struct child *steady, int n)
{
	for (int i = 0; i < n; i++) {
		CHECK(write(steady->to, "g", 1) == 1);
		CHECK(wait_byte(steady) == '.');
	}
}

static size_t free_memory(void)
{
	size_t free_bytes = 0;
	size_t total;

	CHECK_RC(cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
	return free_bytes;
}

static void wait_for_memory(size_t want)
{
	for (int i = 0; i < 2000 && free_memory() != want; i++) {
		struct timespec ms = { .tv_nsec = 1000000 };

		(void)nanosleep(&ms, NULL);
	}
	CHECK(free_memory() == want);
}

static void verdict(int n, const char *what)
{
	static int failures_before;

	(void)printf("%sok %d - %s\n", failures == failures_before ? "" : "not ", n, what);
	failures_before = failures;
}

static void run_faulty(const char *self, const struct child *steady, const char *role)
{
	struct child c = spawn(self, role);

	rounds(steady, 5);
	CHECK(reap(&c) == 0);
	rounds(steady, 5);
}

static int parent(const char *self)
{
	struct child steady;
	struct child c;
	struct card mine;
	size_t before;

	(void)signal(SIGPIPE, SIG_IGN);
	(void)printf("1..6\n");
	(void)fflush(stdout);
	open_card(&mine);
	steady = spawn(self, "steady");
	CHECK(wait_byte(&steady) == 'r');
	CHECK(wait_byte(&steady) == '.');
	before = free_memory();

	run_faulty(self, &steady, "wild-store");
	verdict(1, "a wild store ends the context that made it, alone");
	run_faulty(self, &steady, "misaligned-store");
	verdict(2, "a misaligned store likewise");
	run_faulty(self, &steady, "trap");
	verdict(3, "a trap likewise; a new context of the process works");

	c = spawn(self, "endless");
	CHECK(wait_byte(&c) == 'r');
	rounds(&steady, 20);
	CHECK(before - free_memory() >= 100 << 20);
	(void)kill(c.pid, SIGKILL);
	CHECK(WIFSIGNALED(reap(&c)));
	wait_for_memory(before);
	rounds(&steady, 5);
	verdict(4, "an endless kernel shares the card, and dies with its process");

	c = spawn(self, "greedy");
	CHECK(wait_byte(&c) == 'r');
	rounds(&steady, 5);
	CHECK(reap(&c) == 0);
	wait_for_memory(before);
	verdict(5, "out of memory hits the one who asks; all comes back at its exit");

	(void)close(steady.to);
	steady.to = -1;
	CHECK(reap(&steady) == 0);
	verdict(6, "the steady neighbour was right in every round");
	return failures != 0;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return parent("/proc/self/exe");
	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
		if (strcmp(argv[1], roles[i].name) == 0) {
			roles[i].run();
			return failures != 0;
		}
	}
	return 2;
}
