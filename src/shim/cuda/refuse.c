/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways to device memory that are not accounted: refused in a limited instance, open in an unlimited one. SECURITY.md has the list. And the
 * captures of streams, because allocations on a capturing stream are one of these ways.
 */
#include "shim/cuda/shim.h"

#include "shim/log.h"

static _Atomic bool captured; /* a capture has been begun at some time */

CUresult aq_refuse(unsigned slot, const char *why)
{
	static _Atomic uint8_t told[AQ_SLOTS];

	if (!atomic_exchange(&told[slot], 1))
		aq_shim_log("%s refused: %s is not accounted yet, and this GPU has a memory limit",
			    aq_slot_names[slot], why);
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult aq_capture_check(CUstream stream, bool per_thread, unsigned slot)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (AQ_LIKELY(!atomic_load(&captured)) || !aq_limited())
		return CUDA_SUCCESS;
	if ((per_thread ? AQ_CALL(cuStreamIsCapturing_ptsz, stream, &status)
			: AQ_CALL(cuStreamIsCapturing, stream, &status)) == CUDA_SUCCESS &&
	    status == CU_STREAM_CAPTURE_STATUS_NONE)
		return CUDA_SUCCESS;
	return aq_refuse(slot, "memory that belongs to a graph");
}

CUstreamCaptureMode aq_capture_relax(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (AQ_UNLIKELY(atomic_load(&captured)))
		(void)AQ_CALL(cuThreadExchangeStreamCaptureMode, &mode);
	return mode;
}

void aq_capture_restore(CUstreamCaptureMode mode)
{
	if (AQ_UNLIKELY(mode != CU_STREAM_CAPTURE_MODE_RELAXED))
		(void)AQ_CALL(cuThreadExchangeStreamCaptureMode, &mode);
}

#define BEGIN_CAPTURE(name, ...)                   \
	do {                                       \
		AQ_ENTER(name, __VA_ARGS__);       \
		atomic_store(&captured, true);     \
		return AQ_CALL(name, __VA_ARGS__); \
	} while (0)

AQ_EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
	BEGIN_CAPTURE(cuStreamBeginCapture, stream);
}

AQ_EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
	BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, stream);
}

AQ_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	BEGIN_CAPTURE(cuStreamBeginCapture_v2, stream, mode);
}

AQ_EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
	BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, stream, mode);
}

AQ_EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
					       const CUgraphNode *nodes,
					       const CUgraphEdgeData *edges, size_t n,
					       CUstreamCaptureMode mode)
{
	BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, stream, graph, nodes, edges, n, mode);
}

AQ_EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
						    const CUgraphNode *nodes,
						    const CUgraphEdgeData *edges, size_t n,
						    CUstreamCaptureMode mode)
{
	BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, stream, graph, nodes, edges, n, mode);
}

#define REFUSE_IF_LIMITED(why, name, ...)                                                          \
	do {                                                                                       \
		AQ_ENTER(name, __VA_ARGS__);                                                       \
		return aq_limited() ? aq_refuse(AQ_SLOT_##name, why) : AQ_CALL(name, __VA_ARGS__); \
	} while (0)

AQ_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph,
					  const CUgraphNode *nodes, size_t n,
					  CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	REFUSE_IF_LIMITED("memory that belongs to a graph", cuGraphAddMemAllocNode, node, graph,
			  nodes, n, params);
}

static bool allocates(const CUgraphNodeParams *params)
{
	return params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
}

AQ_EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
				  size_t n, CUgraphNodeParams *params)
{
	AQ_ENTER(cuGraphAddNode, node, graph, nodes, n, params);
	if (allocates(params) && aq_limited())
		return aq_refuse(AQ_SLOT_cuGraphAddNode, "memory that belongs to a graph");
	return AQ_CALL(cuGraphAddNode, node, graph, nodes, n, params);
}

AQ_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
				     const CUgraphEdgeData *edges, size_t n,
				     CUgraphNodeParams *params)
{
	AQ_ENTER(cuGraphAddNode_v2, node, graph, nodes, edges, n, params);
	if (allocates(params) && aq_limited())
		return aq_refuse(AQ_SLOT_cuGraphAddNode_v2, "memory that belongs to a graph");
	return AQ_CALL(cuGraphAddNode_v2, node, graph, nodes, edges, n, params);
}

AQ_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *ctx, CUdevResourceDesc desc, CUdevice dev,
				    unsigned flags)
{
	REFUSE_IF_LIMITED("a green context", cuGreenCtxCreate, ctx, desc, dev, flags);
}

AQ_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory,
					  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
	REFUSE_IF_LIMITED("memory of another interface", cuImportExternalMemory, memory, desc);
}

AQ_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle,
				     const CUmulticastObjectProp *prop)
{
	REFUSE_IF_LIMITED("a multicast object", cuMulticastCreate, handle, prop);
}

AQ_EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo *info, unsigned n, CUstream stream)
{
	REFUSE_IF_LIMITED("memory mapped into a sparse array", cuMemMapArrayAsync, info, n, stream);
}

AQ_EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *info, unsigned n, CUstream stream)
{
	REFUSE_IF_LIMITED("memory mapped into a sparse array", cuMemMapArrayAsync_ptsz, info, n,
			  stream);
}

AQ_EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t size,
						 CUmemRangeHandleType type,
						 unsigned long long flags)
{
	REFUSE_IF_LIMITED("memory whose descriptor outlives it", cuMemGetHandleForAddressRange,
			  handle, ptr, size, type, flags);
}

AQ_EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	REFUSE_IF_LIMITED("memory of a restored process", cuCheckpointProcessRestore, pid, args);
}
