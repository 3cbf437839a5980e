/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a context costs and which cards there are. AQ_TEST_FREE: bytes free with one context of 64 MiB (-1: it must not fit); AQ_TEST_CARDS: how many cards the
 * program must see.
 */
#include "e2e/e2e.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

static long long wanted(const char *name, long long otherwise)
{
	const char *text = getenv(name);

	return text ? strtoll(text, NULL, 10) : otherwise;
}

static void test_cards(void)
{
	const char *before = getenv("CUDA_VISIBLE_DEVICES");
	char *copy = before ? strdup(before) : NULL;
	const char *after;
	int n = 0;

	CHECK_RC(cuInit(0), wanted("AQ_TEST_CARDS", 1) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
	after = getenv("CUDA_VISIBLE_DEVICES");
	CHECK((!copy && !after) || (copy && after && strcmp(copy, after) == 0));
	free(copy);
	if (cuDeviceGetCount(&n) == CUDA_SUCCESS)
		CHECK_INT(n, wanted("AQ_TEST_CARDS", 1));
}

static void test_context(void)
{
	long long expect = wanted("AQ_TEST_FREE", 64 << 20);
	CUcontext ctx = NULL;
	CUcontext other = NULL;
	size_t left = 0;

	if (wanted("AQ_TEST_CARDS", 1) == 0)
		return;
	CHECK_RC(cuDevicePrimaryCtxRetain(&ctx, 0),
		 expect < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
	if (expect < 0)
		return;
	OK(cuCtxSetCurrent(ctx));
	OK(cuMemGetInfo_v2(&left, &(size_t){ 0 }));
	CHECK_INT(left, expect);
	/* No second one is made by a second reference. */
	OK(cuDevicePrimaryCtxRetain(&other, 0));
	OK(cuMemGetInfo_v2(&left, &(size_t){ 0 }));
	CHECK_INT(left, expect);
	OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* Forked after cuInit: the driver says no, and what the parent holds is not the child's to lose. */
static void test_fork(void)
{
	CUdeviceptr p = 0;
	size_t before = 0;
	size_t after = 0;
	int status = 0;
	pid_t pid;

	if (wanted("AQ_TEST_FREE", 1) < 0 || wanted("AQ_TEST_CARDS", 1) == 0)
		return;
	OK(cuMemAlloc_v2(&p, 1 << 20));
	OK(cuMemGetInfo_v2(&before, &(size_t){ 0 }));
	pid = fork();
	if (pid == 0) {
		CUdeviceptr q = 0;

		(void)cuMemFree_v2(p);
		_exit(cuMemAlloc_v2(&q, 1 << 20) == CUDA_SUCCESS);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(status, 0);
	OK(cuMemGetInfo_v2(&after, &(size_t){ 0 }));
	CHECK_INT(after, before);
	OK(cuMemFree_v2(p));
}

/* Each card has its own account; what counts is where the memory is, not which context is current. */
static void test_two(void)
{
	CUcontext ctx[2] = { NULL };
	CUdeviceptr p[2] = { 0 };
	CUdeviceptr q = 0;
	CUstream stream = NULL;
	size_t left[2];

	if (wanted("AQ_TEST_CARDS", 1) != 2)
		return;
	for (int i = 0; i < 2; i++) {
		OK(cuCtxCreate_v2(&ctx[i], 0, i));
		OK(cuMemAlloc_v2(&p[i], (size_t)(i + 1) << 24));
	}
	OK(cuStreamCreate(&stream, 0)); /* on the second */
	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(ctx[i]));
		OK(cuMemGetInfo_v2(&left[i], &(size_t){ 0 }));
		CHECK_INT(left[i], (64LL << 20) - ((i + 1LL) << 24));
		CHECK_RC(cuMemAlloc_v2(&q, left[i] + 1), CUDA_ERROR_OUT_OF_MEMORY);
	}
	/* The first card's context is current, the memory comes from the stream's card. */
	OK(cuCtxSetCurrent(ctx[0]));
	OK(cuMemFree_v2(p[1]));
	OK(cuMemAllocAsync(&q, 48 << 20, stream));
	OK(cuMemGetInfo_v2(&left[0], &(size_t){ 0 }));
	CHECK_INT(left[0], 48 << 20);
	OK(cuCtxSetCurrent(ctx[1]));
	OK(cuMemGetInfo_v2(&left[1], &(size_t){ 0 }));
	CHECK(left[1] <= 16 << 20);
	OK(cuMemFreeAsync(q, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemFree_v2(p[0]));
	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(ctx[i]));
		OK(cuMemGetInfo_v2(&left[i], &(size_t){ 0 }));
		CHECK_INT(left[i], 64 << 20);
	}
}

int main(void)
{
	static const struct e2e_test tests[] = { { "cards", test_cards },
						 { "context", test_context },
						 { "fork after init", test_fork },
						 { "two cards", test_two } };

	return e2e_run(tests, 4);
}
