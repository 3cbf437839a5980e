/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Not for what it computes but for the variety of PTX that clang makes of it: clang-kernels.ptx by tools/make-ptx, and clang-kernels-debug.ptx
 * by the same command with -O0 -g --cuda-noopt-device-debug -fdebug-compilation-dir=. instead of -O2.
 */
#define __global__   __attribute__((global))
#define __device__   __attribute__((device))
#define __shared__   __attribute__((shared))
#define __constant__ __attribute__((constant))
#define OUT_OF_LINE  __attribute__((noinline)) __device__

struct linked {
	int a;
	int *p;
	const char *text;
};

struct wide {
	double x;
	char y;
};

struct __attribute__((aligned(16))) four {
	float x, y, z, w;
};

typedef int (*binary_fn)(int);

extern "C" {
__device__ int counter = 5;
__device__ float table[4] = { 1.f, 2.5f, -3.f, 1e-30f };
__device__ double matrix[2][3] = { { 1, 2, 3 }, { 4, 5, 6 } };
__constant__ float coefficients[16];
__device__ const char message[] = "hello";
__device__ struct linked links = { 3, &counter, message + 2 };
extern __shared__ float dynamic[];

OUT_OF_LINE int triple(int a)
{
	return a * 3;
}

OUT_OF_LINE int less_three(int a)
{
	return a - 3;
}

__device__ binary_fn functions[2] = { triple, less_three };

OUT_OF_LINE struct wide moved(struct wide b, int k)
{
	b.x += k;
	return b;
}

__global__ void filter(float *out, const float *in, int n)
{
	__shared__ float tile[256];
	int i = __nvvm_read_ptx_sreg_tid_x() +
		__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x();
	float acc = 0;

	tile[i & 255] = i < n ? in[i] : 0;
	__syncthreads();
	for (int j = 0; j < 256; j++)
		acc = acc * coefficients[j & 15] + tile[j];
	if (i < n)
		out[i] = acc + table[i & 3];
}

__global__ void calls(struct four *v, struct wide b, int k, int *out)
{
	struct wide r = moved(b, k);
	int local[32];

	v[k].x += r.x;
	*out = functions[k & 1](k) + links.a + *links.p;
	for (int i = 0; i < k; i++)
		local[i & 31] = out[i] * i;
	out[1] = local[k & 31];
	v[k + 1] = v[k];
}

__global__ void jumps(int *o, int k)
{
	switch (k) {
	case 0:
		o[0] = 1;
		break;
	case 1:
		o[1] = 7;
		break;
	case 2:
		o[k] = 9;
		break;
	case 3:
		o[8] = k;
		break;
	case 4:
		o[7] = 1;
		break;
	case 5:
		o[k + 3] = 2;
		/* fallthrough */
	case 6:
		o[2] = k;
		break;
	default:
		o[4] = 0;
	}
	dynamic[k] = o[3];
	__syncthreads();
	o[5] = dynamic[k ^ 1];
	__nvvm_atom_add_gen_i(o, 1);
}

__attribute__((launch_bounds(128, 2))) __global__ void inline_assembly(volatile long long *o,
									 double d)
{
	o[0] = d * matrix[1][2];
	asm volatile("{ .reg .pred p; L: setp.eq.s64 p, %0, 3; @!p bra L; }" ::"l"(o[1]));
	asm volatile("{ .reg .pred p; L: setp.eq.s64 p, %0, 3; @!p bra L; }" ::"l"(o[2]));
}
}
