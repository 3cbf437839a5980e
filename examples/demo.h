/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the example programs share: the CUDA driver loaded by its name, as most CUDA programs reach it, and one kernel.
 * They end at the first error with a line that says which call failed and how.
 */
#pragma once

#include "api/cuda_abi.h"
#include "api/cuda_protos.h"

#include <stddef.h>

#define DEMO_CALLS(X)               \
	X(cuInit)                   \
	X(cuGetErrorName)           \
	X(cuDeviceGet)              \
	X(cuDeviceGetName)          \
	X(cuDevicePrimaryCtxRetain) \
	X(cuCtxSetCurrent)          \
	X(cuCtxSynchronize)         \
	X(cuModuleLoadDataEx)       \
	X(cuModuleUnload)           \
	X(cuModuleGetFunction)      \
	X(cuMemAlloc_v2)            \
	X(cuMemFree_v2)             \
	X(cuMemGetInfo_v2)          \
	X(cuMemcpyHtoD_v2)          \
	X(cuMemcpyDtoH_v2)          \
	X(cuMemsetD32_v2)           \
	X(cuLaunchKernel)           \
	X(cuEventCreate)            \
	X(cuEventRecord)            \
	X(cuEventSynchronize)       \
	X(cuEventElapsedTime)       \
	X(cuEventDestroy_v2)        \
	X(cuDevicePrimaryCtxRelease_v2)

/* The driver's functions under their own names: demo.cuInit(0). */
struct demo_driver {
#define X(name) __typeof__(name) *name;
	DEMO_CALLS(X)
#undef X
};

extern struct demo_driver demo;

struct demo_grid {
	unsigned blocks_x, blocks_y;
	unsigned threads_x, threads_y;
};

/* Load the driver, take the first card's primary context and load one kernel from PTX text. */
void demo_open(const char *program, const char *ptx, const char *kernel);

/* Give everything back. */
void demo_close(void);

/* End the program when a call failed; `what` names it. */
void demo_check(CUresult result, const char *what);
#define DEMO(call) demo_check(demo.call, #call)

/* Device memory: with the content of `data`, or zeroed when that is NULL; and what became of it. */
CUdeviceptr demo_upload(const void *data, size_t size);
void demo_download(void *data, CUdeviceptr from, size_t size);

/* Launch the kernel `times` times and wait. Returns the milliseconds of one launch, by the card's clock. */
double demo_run(const struct demo_grid *grid, void **parameters, unsigned times);

/* The number in argv[at], or `otherwise` when there is none. */
unsigned demo_argument(int argc, char **argv, int at, unsigned otherwise);

/* Reproducible numbers. */
unsigned demo_random(void);

/* The result line: verdict and figures. Ends the program when `wrong` is not 0. */
void demo_verdict(size_t wrong, const char *format, ...) __attribute__((format(printf, 2, 3)));
