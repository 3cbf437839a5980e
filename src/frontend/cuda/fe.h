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

#include "api/cuda_protos.h"
#include "util/list.h"
#include "wire/client.h"
#include "wire/messages.h"

#include <pthread.h>
#include <stdatomic.h>
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
	unsigned primary_flags;
};

/* The process: made by cuInit, and made anew when a forked child calls cuInit. */
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
	struct aq_list in_ctx;
	struct aq_fe_stream_attrs *attrs; /* NULL: defaults; see stream_attr.c */
};

struct aq_fe_event {
	struct aq_fe_ctx *ctx;
	uint32_t id;	/* on the wire */
	unsigned flags; /* CUevent_flags */
	bool imported;	/* opened from another process: may have been recorded there */
	_Atomic bool recorded;
	struct aq_list in_ctx;
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
	struct aq_list streams, events, modules;
	size_t limit[16]; /* by CUlimit */
	/* Lifetime: one reference of the living context, one for each place in a thread's stack. See context.c. */
	_Atomic unsigned refs;
	_Atomic bool alive; /* false: destroyed, or a primary context that is inactive */
	unsigned attach_count;
	CUfunc_cache cache_config;
	uint32_t peers; /* bit per ordinal: peer access enabled towards it */
	uint32_t gate_event,
		gate_stream; /* cuCtxWaitEvent, cuCtxRecordEvent: wire objects, 0 none */
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

/*
 * The live context that a handle means: INVALID_CONTEXT when it is none, CONTEXT_IS_DESTROYED for an inactive primary context. NULL means the
 * calling thread's current one. Says nothing about its sticky error.
 */
CUresult aq_fe_ctx_get(CUcontext handle, struct aq_fe_ctx **ret_ctx);

/* The context's sticky error, CONTEXT_IS_DESTROYED, or CUDA_SUCCESS. */
CUresult aq_fe_ctx_status(struct aq_fe_ctx *ctx);

/* The primary context of the device without taking a reference, active or not; NULL: never made. */
struct aq_fe_ctx *aq_fe_primary(struct aq_fe_device *dev);

/*
 * event.c. An event of ctx with a fresh wire identifier, registered as a handle and in ctx's list; nothing is sent: the caller creates or
 * imports it on the server, and frees it if that fails. aq_fe_event_free() sends nothing either.
 */
CUresult aq_fe_event_new(struct aq_fe_ctx *ctx, unsigned flags, struct aq_fe_event **ret_event);
void aq_fe_event_free(struct aq_fe_event *event);
/* INVALID_HANDLE when it is none. */
CUresult aq_fe_event_get(CUevent handle, struct aq_fe_event **ret_event);

/* stream.c: wait until all work of the stream is done; what cuStreamSynchronize does behind its checks. */
CUresult aq_fe_stream_sync(struct aq_fe_stream *stream);

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

/* Accepts a call without effect: told once per entry point when ALIQUOT_SOFT_VERBOSE=1, a refusal instead when ALIQUOT_SOFT_STRICT=1. */
CUresult aq_fe_accept(const char *entry);

/*
 * memory.c, for everybody else: called when a context is destroyed, so that the range table forgets its memory; after the server has done so.
 */
void aq_fe_memory_ctx_gone(struct aq_fe_ctx *ctx);
/* pool.c: all work of this stream / context submitted so far has completed: stream-ordered frees may be reused elsewhere, pools trimmed. */
void aq_fe_pool_stream_synced(struct aq_fe_stream *stream);
void aq_fe_pool_ctx_synced(struct aq_fe_ctx *ctx);
/* pool.c: the stream object is about to be freed (its work goes on); nothing may refer to it any longer. Not called for a dying context's streams. */
void aq_fe_pool_stream_gone(struct aq_fe_stream *stream);

/*
 * A forked child calls cuInit: each file puts its locks and tables back to their first state, without telling the server anything and without
 * unmapping (the arena is unmapped behind it). The memory that old tables take may be freed or left.
 */
void aq_fe_memory_forked(void);
void aq_fe_pool_forked(void);

/* memory.c: register the addresses of a loaded module's variables (kind: module global), and forget them at unload. */
void aq_fe_memory_add_global(struct aq_fe_ctx *ctx, CUdeviceptr va, size_t size, bool is_managed);
void aq_fe_memory_remove_global(CUdeviceptr va);
