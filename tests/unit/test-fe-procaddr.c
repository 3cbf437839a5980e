/* SPDX-License-Identifier: Apache-2.0 */
/* What the library answers without a server: entry points, versions, texts of errors, and that everything else is not initialised. */
#include "api/api.h"
#include "api/cuda_protos.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define PTDS CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

static void *look_up(const char *name, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
	void *fn = (void *)&status;
	CUresult rc = cuGetProcAddress_v2(name, &fn, version, flags, &status);

	assert_int_equal(rc, fn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
	assert_int_equal(status == CU_GET_PROC_ADDRESS_SUCCESS, fn != NULL);
	return fn;
}

static void a_version_chooses_the_variant(void **state)
{
	(void)state;
	assert_ptr_equal(look_up("cuMemAlloc", 2000, 0), cuMemAlloc);
	assert_ptr_equal(look_up("cuMemAlloc", 3010, 0), cuMemAlloc);
	assert_ptr_equal(look_up("cuMemAlloc", 3020, 0), cuMemAlloc_v2);
	assert_ptr_equal(look_up("cuMemAlloc", 13000, 0), cuMemAlloc_v2);
	assert_ptr_equal(look_up("cuCtxCreate", 12040, 0), cuCtxCreate_v3);
	assert_ptr_equal(look_up("cuCtxCreate", 13000, 0), cuCtxCreate_v4);
	assert_ptr_equal(look_up("cuGetProcAddress", 11030, 0), cuGetProcAddress);
	assert_ptr_equal(look_up("cuGetProcAddress", 12000, 0), cuGetProcAddress_v2);
}

static void a_flag_chooses_the_stream(void **state)
{
	(void)state;
	assert_ptr_equal(look_up("cuLaunchKernel", 13000, 0), cuLaunchKernel);
	assert_ptr_equal(look_up("cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM),
			 cuLaunchKernel);
	assert_ptr_equal(look_up("cuLaunchKernel", 13000, PTDS), cuLaunchKernel_ptsz);
	assert_ptr_equal(look_up("cuMemcpyHtoD", 13000, PTDS), cuMemcpyHtoD_v2_ptds);
	assert_ptr_equal(look_up("cuCtxCreate", 13000, PTDS), cuCtxCreate_v4);
	/* Older than the twins. */
	assert_ptr_equal(look_up("cuLaunchKernel", 5000, PTDS), cuLaunchKernel);
}

static void what_is_not_there_says_why(void **state)
{
	CUdriverProcAddressQueryResult status;
	void *fn = NULL;

	(void)state;
	assert_int_equal(cuGetProcAddress_v2("cuNoSuch", &fn, 13000, 0, &status),
			 CUDA_ERROR_NOT_FOUND);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	assert_int_equal(cuGetProcAddress_v2("cuMemAlloc_v2", &fn, 13000, 0, &status),
			 CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cuGetProcAddress_v2("", &fn, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cuGetProcAddress_v2("cuMemAllocAsync", &fn, 11010, 0, &status),
			 CUDA_ERROR_NOT_FOUND);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	assert_int_equal(cuGetProcAddress_v2("cuInit", &fn, -1, 0, &status), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cuGetProcAddress("cuNoSuch", &fn, 13000, 0), CUDA_ERROR_NOT_FOUND);
	assert_null(fn);
	assert_int_equal(cuGetProcAddress("cuInit", &fn, 13000, 0), CUDA_SUCCESS);
	assert_ptr_equal(fn, cuInit);
	assert_int_equal(cuGetProcAddress_v2(NULL, &fn, 13000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuGetProcAddress_v2("cuInit", NULL, 13000, 0, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuGetProcAddress_v2("cuInit", &fn, 13000, 4, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuGetProcAddress_v2("cuInit", &fn, 13000, 3, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuGetProcAddress_v2("cuInit", &fn, 13010, 0, NULL),
			 CUDA_ERROR_INVALID_VALUE);
}

static void every_base_name_is_answered(void **state)
{
	(void)state;
	for (size_t i = 0; i < aq_api_cuda_count; i++) {
		const char *symbol = aq_api_cuda[i].symbol;
		CUdriverProcAddressQueryResult status;
		void *fn;

		/* Whether a symbol is a base name, or not: never a crash, never a pointer without success. */
		(void)cuGetProcAddress_v2(symbol, &fn, 13000, 0, &status);
		assert_int_equal(status == CU_GET_PROC_ADDRESS_SUCCESS, fn != NULL);
	}
}

static void errors_have_names_and_texts(void **state)
{
	const char *text = NULL;

	(void)state;
	assert_int_equal(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
	assert_string_equal(text, "CUDA_ERROR_OUT_OF_MEMORY");
	assert_int_equal(cuGetErrorString(CUDA_SUCCESS, &text), CUDA_SUCCESS);
	assert_string_equal(text, "no error");
	assert_int_equal(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
	assert_null(text);
	assert_int_equal(cuGetErrorString((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
	assert_null(text);
	assert_int_equal(cuGetErrorString(CUDA_SUCCESS, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void some_answer_before_init(void **state)
{
	static const CUuuid id;
	const void *table = &id;
	int version = 0;

	(void)state;
	assert_int_equal(cuDriverGetVersion(&version), CUDA_SUCCESS);
	assert_int_equal(version, 13000);
	assert_int_equal(cuDriverGetVersion(NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
	assert_null(table);
	assert_int_equal(cuGetExportTable(NULL, &id), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuInit(1), CUDA_ERROR_INVALID_VALUE);
}

static void all_else_is_not_initialised(void **state)
{
	CUdeviceptr p = 0;
	CUcontext ctx;
	CUstream s;
	size_t n;
	int i;

	(void)state;
	assert_int_equal(cuDeviceGetCount(&i), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuDeviceGetCount(NULL), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuDeviceGet(NULL, 0), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuCtxCreate_v2(&ctx, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuCtxGetCurrent(&ctx), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuStreamCreate(&s, 0), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuStreamSynchronize(NULL), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
			 CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuLaunchKernelEx(NULL, NULL, NULL, NULL), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuMemAlloc_v2(&p, 16), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuMemFree_v2(0), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuMemGetInfo_v2(&n, &n), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuEventQuery(NULL), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuModuleLoadData(NULL, NULL), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(cuLibraryUnload(NULL), CUDA_ERROR_NOT_INITIALIZED);
}

static void without_a_server_there_is_no_device(void **state)
{
	(void)state;
	(void)setenv("ALIQUOT_GPUD", "/nonexistent/gpud.sock", 1);
	assert_int_equal(cuInit(0), CUDA_ERROR_NO_DEVICE);
	assert_int_equal(cuInit(0), CUDA_ERROR_NO_DEVICE);
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_version_chooses_the_variant),
		cmocka_unit_test(a_flag_chooses_the_stream),
		cmocka_unit_test(what_is_not_there_says_why),
		cmocka_unit_test(every_base_name_is_answered),
		cmocka_unit_test(errors_have_names_and_texts),
		cmocka_unit_test(some_answer_before_init),
		cmocka_unit_test(all_else_is_not_initialised),
		cmocka_unit_test(without_a_server_there_is_no_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
