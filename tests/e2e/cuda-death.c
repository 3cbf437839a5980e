/* SPDX-License-Identifier: Apache-2.0 */
/* The server dies: calls fail at once, those that wait included. The program starts servers of its own; see with-gpud.sh for AQ_E2E_SERVER. */
#include "e2e.h"

#include "work.ptx.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N(a) ((int)(sizeof(a) / sizeof((a)[0])))

static char path[128];
static pid_t server;

static void start_server(void)
{
	const char *program = getenv("AQ_E2E_SERVER");
	char *argv[] = { (char *)"aliquot-gpud", (char *)"--socket", path, NULL };

	(void)snprintf(path, sizeof(path), "%s/aliquot-death-%d.sock",
		       getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
	CHECK(program != NULL);
	server = fork();
	if (server == 0) {
		(void)execv(program ? program : "", argv);
		_exit(127);
	}
	for (int i = 0; i < 1000 && access(path, F_OK) != 0; i++)
		(void)usleep(10000);
	CHECK_INT(setenv("ALIQUOT_GPUD", path, 1), 0);
}

static double seconds(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static CUcontext ctx;
static CUdeviceptr flag;
static double came_back;
static CUresult got;

static void *waiter(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(ctx));
	got = cuCtxSynchronize();
	came_back = seconds();
	return NULL;
}

static void calls_fail_at_once(void)
{
	void *params[] = { &flag };
	CUfunction f = NULL;
	CUmodule m = NULL;
	CUdeviceptr p = 0;
	pthread_t t;
	double killed;

	start_server();
	OK(cuInit(0));
	OK(cuCtxCreate_v2(&ctx, 0, 0));
	OK(cuModuleLoadData(&m, work_ptx));
	OK(cuModuleGetFunction(&f, m, "wait_flag"));
	OK(cuMemAlloc_v2(&flag, 4));
	OK(cuMemsetD8_v2(flag, 0, 4));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CHECK_INT(pthread_create(&t, NULL, waiter, NULL), 0);
	(void)usleep(50000);
	killed = seconds();
	CHECK_INT(kill(server, SIGKILL), 0);
	(void)pthread_join(t, NULL);
	CHECK_RC(got, CUDA_ERROR_DEVICE_UNAVAILABLE);
	CHECK(came_back - killed < 2.0);
	CHECK_RC(cuMemAlloc_v2(&p, 16), CUDA_ERROR_DEVICE_UNAVAILABLE);
	CHECK_RC(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
		 CUDA_ERROR_DEVICE_UNAVAILABLE);
	CHECK_RC(cuStreamQuery(NULL), CUDA_ERROR_DEVICE_UNAVAILABLE);
	CHECK_RC(cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
	CHECK_RC(cuCtxDestroy_v2(ctx), CUDA_ERROR_DEVICE_UNAVAILABLE);
	CHECK_INT(waitpid(server, NULL, 0), server);
	(void)unlink(path);
}

static void and_a_child_finds_the_next_one(void)
{
	int status = -1;
	pid_t pid;

	start_server();
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		e2e_failures = 0;
		OK(cuInit(0));
		OK(cuCtxCreate_v2(&ctx, 0, 0));
		OK(cuCtxSynchronize());
		(void)fflush(stdout);
		_exit(e2e_failures != 0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
	CHECK_INT(kill(server, SIGTERM), 0);
	CHECK_INT(waitpid(server, &status, 0), server);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	(void)unlink(path);
}

int main(void)
{
	static const struct e2e_test tests[] = {
		{ "calls fail at once", calls_fail_at_once },
		{ "and a child finds the next one", and_a_child_finds_the_next_one },
	};

	return e2e_run(tests, N(tests));
}
