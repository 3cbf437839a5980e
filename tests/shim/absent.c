/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose daemon is absent, refuses, or comes late: AQ_TEST_EXPECT says which result its first cuInit is to have. */
#include "e2e/e2e.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static CUresult expected;

static void *call_version(void *ret)
{
	*(CUresult *)ret = cuDriverGetVersion(&(int){ 0 });
	return NULL;
}

static void test_queries(void)
{
	CUresult results[4];
	pthread_t t[4];
	int version = 0;

	for (int i = 0; i < 4; i++)
		CHECK_INT(pthread_create(&t[i], NULL, call_version, &results[i]), 0);
	for (int i = 0; i < 4; i++) {
		(void)pthread_join(t[i], NULL);
		OK(results[i]);
	}
	errno = 4711;
	OK(cuDriverGetVersion(&version));
	CHECK_INT(errno, 4711);
	CHECK(version >= 13000);
}

static void test_init(void)
{
	mode_t mask = umask(027);

	errno = 4711;
	CHECK_RC(cuInit(0), expected);
	CHECK_INT(errno, 4711);
	CHECK_INT(umask(mask), 027);
}

static void test_after(void)
{
	CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
	const char *name = NULL;
	CUdeviceptr p = 0;
	int n = 0;

	OK(cuGetErrorName(CUDA_ERROR_NOT_PERMITTED, &name));
	CHECK(name && strcmp(name, "CUDA_ERROR_NOT_PERMITTED") == 0);
	OK(cuGetProcAddress_v2("cuMemAlloc", (void **)&alloc, 12000, 0, NULL));
	CHECK(alloc == cuMemAlloc_v2);
	if (expected == CUDA_SUCCESS)
		return;
	/* Wrappers and jumps alike. */
	CHECK_RC(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_RC(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_RC(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
		 CUDA_ERROR_NOT_INITIALIZED);
}

int main(void)
{
	static const struct e2e_test tests[] = { { "queries answer", test_queries },
						 { "cuInit", test_init },
						 { "afterwards", test_after } };
	const char *text = getenv("AQ_TEST_EXPECT");

	expected = text ? (CUresult)strtol(text, NULL, 10) : CUDA_SUCCESS;
	return e2e_run(tests, 3);
}
