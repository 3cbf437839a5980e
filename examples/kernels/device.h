/* SPDX-License-Identifier: Apache-2.0 */
/* What CUDA sources need of the language when clang compiles them without a toolkit. */
#pragma once
#define __global__	    __attribute__((global))
#define __device__	    __attribute__((device))
#define __shared__	    __attribute__((shared))
#define KERNEL		    extern "C" __global__ void
#define THREAD_X	    __nvvm_read_ptx_sreg_tid_x()
#define THREAD_Y	    __nvvm_read_ptx_sreg_tid_y()
#define BLOCK_X		    __nvvm_read_ptx_sreg_ctaid_x()
#define BLOCK_Y		    __nvvm_read_ptx_sreg_ctaid_y()
#define WIDTH_X		    __nvvm_read_ptx_sreg_ntid_x()
#define GRID_X		    __nvvm_read_ptx_sreg_nctaid_x()
#define BARRIER()	    __syncthreads()
#define ATOMIC_ADD(p, v)    __nvvm_atom_add_gen_i((p), (v))
#define SHUFFLE_DOWN(v, by) __nvvm_shfl_sync_down_f32(0xffffffffu, (v), (by), 31)
