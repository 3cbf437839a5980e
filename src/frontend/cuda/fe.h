/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the CUDA front end share: the process, its devices, contexts and streams.
 *
 * Every exported function begins with aq_fe_enter() or aq_fe_enter_ctx(), checks its arguments as the driver does, answers from what the
 * front end knows where that is enough, and otherwise talks to the server through aq_fe_call() / aq_fe_send().
 *
 * Handles that the application sees are addresses of our objects, registered in handle.h; a handle that is not registered under the
 * wanted kind is an error, never a crash.
 */
#pragma once

#include "api/cuda_abi.h"
#include "wire/client.h"
#include "wire/messages.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AQ_EXPORT __attribute__((visibility("default")))

struct aq_fe_ctx;

struct aq_fe_device {
	int ordinal;   /* as the application numbers it, after CUDA_VISIBLE_DEVICES */
	uint32_t card; /* as the server numbers it */
	struct aq_rep_card_info info;
	struct aq_fe_ctx
		*primary; /* made at the first need; lives as long as the process once made */
};

/* The process: made by cuInit, remade in a forked child only to say "not initialised". */
struct aq_fe_process {
	struct aq_client *client;
	uint64_t arena_base, arena_size; /* PROT_NONE reservation for device addresses */
	int n_devices;
	struct aq_fe_device device[AQ_WIRE_MAX_CARDS];
};

struct aq_fe_stream {
	struct aq_fe_ctx *ctx;
	uint32_t id;	/* on the wire; AQ_STREAM_LEGACY for the legacy stream */
	unsigned flags; /* CUstream_flags */
	int priority;
	unsigned long long unique_id; /* cuStreamGetId */
};

struct aq_fe_ctx {
	uint32_t id; /* on the wire; 0 while a primary context is inactive */
	uint32_t error_slot;
	struct aq_fe_device *dev;
	unsigned flags;
	unsigned api_version;
	bool is_primary;
	unsigned primary_refs;
	unsigned long long unique_id; /* cuCtxGetId */
	struct aq_fe_stream legacy;
	pthread_mutex_t lock; /* lists below; never held across a call to the application */
	size_t limit[16];     /* by CUlimit */
};

/* The process after cuInit; only valid behind a successful aq_fe_enter(). */
extern struct aq_fe_process aq_fe;

/* Set by the generated _ptsz and _ptds entry points around the plain one: stream 0 means the thread's own stream. */
extern __thread int aq_fe_ptds;

/* CUDA_SUCCESS, or NOT_INITIALIZED, DEINITIALIZED, DEVICE_UNAVAILABLE (server gone). */
CUresult aq_fe_enter(void);

/* The same, and the calling thread's current context: INVALID_CONTEXT when none, CONTEXT_IS_DESTROYED, or its sticky error. */
CUresult aq_fe_enter_ctx(struct aq_fe_ctx **ret_ctx);

/* The device with this ordinal, or INVALID_DEVICE. Behind aq_fe_enter(). */
CUresult aq_fe_device(CUdevice ordinal, struct aq_fe_device **ret_dev);

/*
 * The stream that a handle means for the calling thread: NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or a created one (INVALID_HANDLE /
 * INVALID_RESOURCE_HANDLE as the driver says it; CONTEXT_IS_DESTROYED). ctx is the current context.
 */
CUresult aq_fe_stream(CUstream handle, struct aq_fe_ctx *ctx, struct aq_fe_stream **ret_stream);

/* The one table from wire status (or -errno of the transport) to CUresult. */
CUresult aq_fe_result(int status);

/* A call or message on the process's connection, mapped through aq_fe_result(). */
#define aq_fe_call(NAME, name, reqp, repp) \
	aq_fe_result(AQ_CALL(aq_fe.client, NAME, name, (reqp), (repp)))
#define aq_fe_send(NAME, name, reqp) aq_fe_result(AQ_SEND(aq_fe.client, NAME, name, (reqp)))

/* Fresh identifier for a client-chosen wire object, 1..AQ_WIRE_MAX_ID; recycled after aq_fe_id_free(). 0: none left. */
enum aq_fe_id_kind {
	AQ_FE_ID_CTX,
	AQ_FE_ID_STREAM,
	AQ_FE_ID_EVENT,
	AQ_FE_ID_MODULE,
	AQ_FE_ID_PHYS,
	AQ_FE_ID_KINDS
};
uint32_t aq_fe_id_new(enum aq_fe_id_kind kind);
void aq_fe_id_free(enum aq_fe_id_kind kind, uint32_t id);

/* One line on stderr, once per entry point: "aliquot: cuFoo is not supported by the software card". Returns NOT_SUPPORTED. */
CUresult aq_fe_refuse(const char *entry);

/* Counts a call that is accepted without effect; a refusal instead when ALIQUOT_SOFT_STRICT=1. */
CUresult aq_fe_accept(const char *entry);

/*
 * memory.c, for everybody else: called when a context is destroyed, so that the range table forgets its memory; after the server has done so.
 */
void aq_fe_memory_ctx_gone(struct aq_fe_ctx *ctx);
/* pool.c: all work of this stream / context submitted so far has completed: stream-ordered frees may be reused elsewhere, pools trimmed. */
void aq_fe_pool_stream_synced(struct aq_fe_stream *stream);
void aq_fe_pool_ctx_synced(struct aq_fe_ctx *ctx);

/* memory.c: register the addresses of a loaded module's variables (kind: module global), and forget them at unload. */
void aq_fe_memory_add_global(struct aq_fe_ctx *ctx, CUdeviceptr va, size_t size, bool is_managed);
void aq_fe_memory_remove_global(CUdeviceptr va);
