/* SPDX-License-Identifier: Apache-2.0 */
#include "demo.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct demo_driver demo;

static const char *program_name = "demo";
static CUdevice device;
static CUmodule module;
static CUfunction function;

static void load_driver(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		fprintf(stderr,
			"%s: no CUDA driver here (%s); run it on a software card: aliquot soft -- %s\n",
			program_name, dlerror(), program_name);
		exit(1);
	}
#define X(name)                                                                          \
	demo.name = (__typeof__(demo.name))dlsym(lib, #name);                            \
	if (!demo.name) {                                                                \
		fprintf(stderr, "%s: the CUDA driver has no %s\n", program_name, #name); \
		exit(1);                                                                 \
	}
	DEMO_CALLS(X)
#undef X
}

void demo_check(CUresult result, const char *what)
{
	const char *name = NULL;

	if (result == CUDA_SUCCESS)
		return;
	if (demo.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
		name = "an unknown error";
	fprintf(stderr, "%s: %.*s: %s\n", program_name, (int)strcspn(what, "("), what, name);
	exit(1);
}

void demo_open(const char *program, const char *ptx, const char *kernel)
{
	char log[2048] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)sizeof(log) };
	CUcontext context;
	CUresult result;

	program_name = program;
	load_driver();
	DEMO(cuInit(0));
	DEMO(cuDeviceGet(&device, 0));
	DEMO(cuDevicePrimaryCtxRetain(&context, device));
	DEMO(cuCtxSetCurrent(context));
	result = demo.cuModuleLoadDataEx(&module, ptx, 2, options, values);
	if (result != CUDA_SUCCESS && log[0])
		fprintf(stderr, "%s: %s\n", program_name, log);
	demo_check(result, "cuModuleLoadDataEx");
	DEMO(cuModuleGetFunction(&function, module, kernel));
}

void demo_close(void)
{
	DEMO(cuModuleUnload(module));
	DEMO(cuDevicePrimaryCtxRelease_v2(device));
}

CUdeviceptr demo_upload(const void *data, size_t size)
{
	CUdeviceptr to = 0;

	DEMO(cuMemAlloc_v2(&to, size));
	if (data)
		DEMO(cuMemcpyHtoD_v2(to, data, size));
	else
		DEMO(cuMemsetD32_v2(to, 0, size / 4));
	return to;
}

void demo_download(void *data, CUdeviceptr from, size_t size)
{
	DEMO(cuMemcpyDtoH_v2(data, from, size));
	DEMO(cuMemFree_v2(from));
}

double demo_run(const struct demo_grid *grid, void **parameters, unsigned times)
{
	CUevent start;
	CUevent end;
	float ms = 0;

	DEMO(cuEventCreate(&start, CU_EVENT_DEFAULT));
	DEMO(cuEventCreate(&end, CU_EVENT_DEFAULT));
	DEMO(cuEventRecord(start, NULL));
	for (unsigned i = 0; i < times; i++)
		DEMO(cuLaunchKernel(function, grid->blocks_x, grid->blocks_y, 1, grid->threads_x,
				    grid->threads_y, 1, 0, NULL, parameters, NULL));
	DEMO(cuEventRecord(end, NULL));
	DEMO(cuEventSynchronize(end));
	DEMO(cuCtxSynchronize());
	DEMO(cuEventElapsedTime(&ms, start, end));
	DEMO(cuEventDestroy_v2(start));
	DEMO(cuEventDestroy_v2(end));
	return (double)ms / times;
}

unsigned demo_argument(int argc, char **argv, int at, unsigned otherwise)
{
	unsigned long value;
	char *end;

	if (at >= argc)
		return otherwise;
	value = strtoul(argv[at], &end, 10);
	if (!argv[at][0] || *end || value == 0 || value > 1U << 28) {
		fprintf(stderr, "%s: \"%s\" is not a number from 1 to %u\n", argv[0], argv[at],
			1U << 28);
		exit(2);
	}
	return (unsigned)value;
}

unsigned demo_random(void)
{
	static unsigned state = 12345;

	state = state * 1664525U + 1013904223U;
	return state >> 8;
}

void demo_verdict(size_t wrong, const char *format, ...)
{
	char name[100] = "?";
	char figures[160];
	va_list ap;

	DEMO(cuDeviceGetName(name, (int)sizeof(name), device));
	va_start(ap, format);
	(void)vsnprintf(figures, sizeof(figures), format, ap);
	va_end(ap);
	printf("%-10s %-5s  %s, on %s\n", program_name, wrong ? "WRONG" : "right", figures, name);
	if (wrong) {
		fprintf(stderr, "%s: %zu values differ from the processor's\n", program_name,
			wrong);
		exit(1);
	}
}
