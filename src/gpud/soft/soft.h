/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of the soft back end and how they are locked.
 *
 * aq_soft.lock holds everything about work: contexts, streams, queues, events, the engines of all cards. One lock for all cards, because a
 * stream of one card may wait for an event of another; it is held for microseconds and never while device code or a copy runs.
 *
 * aq_soft.mem_lock is a leaf: the books of card and host memory, exported memory. aq_aspace.table is a leaf.
 *
 * Tables of identifiers, allocations and the free addresses of a session are touched by its own thread only (the one that reads requests).
 * What workers must see of them is reached through objects under aq_soft.lock.
 */
#pragma once

#include "gpud/ops.h"
#include "gpud/soft/idtab.h"
#include "gpud/soft/profile.h"
#include "gpud/soft/vatab.h"
#include "util/list.h"
#include "util/strbuf.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct aq_block;
struct aq_card;
struct aq_code;
struct aq_code_symbol;
struct aq_grid;
struct aq_mem_map;
struct aq_soft;
struct aq_soft_ctx;
struct aq_soft_session;
struct aq_view;

/* ---- limits on what one client may hold ---- */

#define AQ_SOFT_MAX_CTXS    1024U
#define AQ_SOFT_MAX_ALLOCS  (1U << 20)
#define AQ_SOFT_MAX_STREAMS (1U << 14)
#define AQ_SOFT_MAX_MODULES (1U << 14)
#define AQ_SOFT_MAX_PHYS    (1U << 16)
#define AQ_SOFT_MAX_WAITERS 256U
#define AQ_SOFT_QUEUE	    8192U /* unfinished commands before the session's thread waits */
#define AQ_SOFT_QUEUE_HARD \
	(1U << 20) /* the same while a host function runs: waiting could be for ever */

/* ---- utilisation ---- */

/* Busy time in windows of fixed length: what the last whole one saw is the figure. */
struct aq_util {
	uint64_t window;  /* number of the current window */
	uint64_t cur_ns;  /* busy in it */
	uint64_t last_ns; /* busy in the one before */
	uint64_t total_ns;
};

#define AQ_UTIL_WINDOW_NS (250 * AQ_NS_PER_MS)

void aq_util_add(struct aq_util *u, uint64_t from_ns, uint64_t to_ns);
uint32_t aq_util_pct(struct aq_util *u, uint64_t now_ns);

/* ---- memory segments (memory.c) ---- */

/* A memfd mapped into the server. Addresses of sessions lead here; it lives as long as one does, or a handle. */
struct aq_seg {
	struct aq_soft *soft;
	_Atomic uint32_t refs;
	int fd;
	uint8_t *host;
	uint64_t size;
	struct aq_card *card; /* charged, or NULL: host memory */
	uint64_t charged;
	struct aq_soft_session
		*owner;	      /* whose process is charged; NULL once it has ended; mem_lock */
	struct aq_list owned; /* in owner->segs; mem_lock */
	uint64_t dev, ino;    /* of the memfd */
	bool exported;
	struct aq_list exported_link; /* in soft->exported; mem_lock */
};

/* Returns AQ_OK or AQ_E_NO_MEMORY. card NULL: host memory. */
enum aq_status aq_seg_new(struct aq_soft_session *s, struct aq_card *card, uint64_t size,
			  struct aq_seg **ret);
/* From a client's memfd, made safe first (sealed against shrinking). */
enum aq_status aq_seg_from_fd(struct aq_soft_session *s, int fd, uint64_t size,
			      struct aq_seg **ret);
struct aq_seg *aq_seg_ref(struct aq_seg *seg);
void aq_seg_unref(struct aq_seg *seg);

/* ---- address space (aspace.c) ---- */

enum aq_range_kind {
	AQ_RANGE_PLAIN,	 /* MEM_ALLOC, device: reachable from its card and its peers */
	AQ_RANGE_SHARED, /* host and managed: reachable from every card */
	AQ_RANGE_MAPPED, /* VA_MAP: reachable as VA_ACCESS says */
};

struct aq_range {
	uint64_t base, end;
	struct aq_seg *seg;
	uint64_t offset; /* of base in the segment */
	enum aq_range_kind kind;
	uint32_t card;	 /* PLAIN */
	uint64_t rights; /* MAPPED: two bits a card; bits 62, 63 for the host */
};

struct aq_aspace {
	pthread_rwlock_t table; /* the table; held for a lookup or a change */
	/*
	 * Held for reading as long as views are in use: during a quantum and during a piece of a copy. Who takes a range out waits here until nobody
	 * can still use it. Writers are preferred, or endless work would starve them.
	 */
	pthread_rwlock_t in_use;
	struct aq_vatab ranges;
	struct aq_vafree free; /* the session's thread only */
};

int aq_aspace_init(struct aq_aspace *as, uint64_t base, uint64_t size);
void aq_aspace_done(struct aq_aspace *as);
/* Takes over `r` (and its reference to the segment) on success. Returns 0, -EEXIST, -ENOMEM. */
int aq_aspace_add(struct aq_aspace *as, struct aq_range *r);
/* Take the range at base out, wait until nobody uses it, release it. False: there is none. */
bool aq_aspace_remove(struct aq_aspace *as, uint64_t base);
/* The range that holds va; only for the session's thread. */
struct aq_range *aq_aspace_find(const struct aq_aspace *as, uint64_t va);
/*
 * The view around va for the cards in `self` (bit mask: what VA_ACCESS must have allowed to one of them), which may reach plain memory of the cards in
 * `peers`. Hold in_use for reading.
 */
enum aq_status aq_aspace_lookup(struct aq_aspace *as, uint64_t va, uint64_t self, uint64_t peers,
				struct aq_view *ret);
/* Set the two bits of `card` (or AQ_CARD_HOST) in a mapped range. */
void aq_aspace_set_rights(struct aq_aspace *as, struct aq_range *r, uint32_t card, uint32_t prot);

/* ---- allocations (memory.c) ---- */

struct aq_slab;

struct aq_alloc {
	uint64_t va, size;
	uint32_t kind;		 /* enum aq_mem_kind */
	struct aq_soft_ctx *ctx; /* freed with it */
	struct aq_list ctx_link;
	struct aq_slab *slab; /* or NULL: the range at va is its own */
	bool registered;      /* the client's own memory */
	bool imported;
	bool internal;	     /* a module's: MEM_FREE does not know it */
	uint64_t range_base; /* of the range that holds it, when it has one of its own */
	struct aq_export *export;
};

/* An entry of soft->exports: what a cookie stands for. */
struct aq_export {
	struct aq_list link; /* mem_lock */
	uint8_t cookie[AQ_WIRE_COOKIE];
	uid_t uid;
	struct aq_seg *seg; /* memory */
	uint64_t offset, size;
	uint32_t card;
	struct aq_event_core *event; /* or event */
};

/* The session's thread. */
enum aq_status aq_mem_alloc(struct aq_soft_ctx *ctx, uint32_t kind, uint64_t size, uint32_t align,
			    struct aq_alloc **ret);
void aq_mem_release(struct aq_soft_session *s, struct aq_alloc *a, struct aq_rep_mem_free *ret);
void aq_mem_release_ctx(struct aq_soft_ctx *ctx);
void aq_mem_session_done(struct aq_soft_session *s);
void aq_vmm_session_done(struct aq_soft_session *s);

struct aq_export *aq_export_new(struct aq_soft_session *s);
void aq_export_free(struct aq_soft *soft, struct aq_export *e);

/* ---- events ---- */

/* One cudaEventRecord: what waits for it, and when it happened. aq_soft.lock. */
struct aq_record {
	uint32_t refs;
	bool done;
	enum aq_status status;
	uint64_t time_ns;
	struct aq_list cmds;	/* WAIT_EVENT commands, by aq_cmd.wait_link */
	struct aq_list waiters; /* struct aq_waiter: EVENT_SYNC */
};

/* What sessions share of an event. */
struct aq_event_core {
	uint32_t refs;
	struct aq_record *record; /* the latest, NULL: never recorded */
};

struct aq_event {
	uint32_t id;
	struct aq_event_core *core;
	struct aq_soft_ctx *ctx; /* NULL once its context is gone */
	struct aq_list ctx_link;
	struct aq_export *export;
};

/* ---- streams and commands (stream.c) ---- */

enum aq_cmd_kind {
	AQ_CMD_KERNEL,
	AQ_CMD_COPY,
	AQ_CMD_FILL,
	AQ_CMD_WRITE,
	AQ_CMD_READ,
	AQ_CMD_RECORD,
	AQ_CMD_WAIT,
	AQ_CMD_HOST_FUNC,
	AQ_CMD_HOST_COPY,
};

struct aq_cmd {
	struct aq_list link; /* in stream->queue */
	struct aq_list
		work; /* in a copy queue, or the session's list of host functions or tickets */
	struct aq_list wait_link;
	enum aq_cmd_kind kind;
	struct aq_stream *stream;
	uint64_t seq;  /* in the context */
	uint16_t slot; /* to answer when done, or AQ_WIRE_NO_SLOT */
	bool started;
	union {
		struct aq_req_copy copy;
		struct aq_req_fill fill;
		struct {
			uint64_t va, size;
			uint8_t *data;
		} rw;
		struct aq_record *record; /* RECORD, WAIT */
		struct {
			uint64_t cookie;
			bool even_after_error;
			bool given; /* the client runs it */
		} host;
		struct {
			uint64_t ticket;
		} host_copy;
		struct aq_kernel *kernel;
	} u;
};

struct aq_stream {
	uint32_t id;
	struct aq_soft_ctx *ctx;
	struct aq_list ctx_link;
	struct aq_list queue; /* unfinished commands, oldest first */
	struct aq_list busy;  /* in ctx->busy while there are any, except the legacy stream */
	struct aq_list kick;  /* in soft->kicked */
	bool legacy, blocking, destroyed;
	int32_t priority;
};

/* An answer that waits for what had been submitted up to seq: to a stream, or to the whole context (stream NULL), or to an event. */
struct aq_waiter {
	struct aq_list link;	     /* in the context's list or the record's */
	struct aq_list session_link; /* in the session's */
	struct aq_soft_session *session;
	struct aq_stream *stream;
	uint64_t seq;
	uint16_t slot;
};

enum aq_limit {
	AQ_LIMIT_STACK,
	AQ_LIMIT_PRINTF,
	AQ_LIMIT_HEAP,
	AQ_LIMITS
};

struct aq_soft_ctx {
	uint32_t id;
	struct aq_soft_session *session;
	struct aq_card *card;
	uint32_t error_slot, flags;
	_Atomic uint64_t peers; /* cards whose memory its kernels reach, itself included */
	uint64_t limit[AQ_LIMITS];
	struct aq_list allocs;	/* session's thread only */
	struct aq_list modules; /* session's thread only */

	/* aq_soft.lock */
	enum aq_status status; /* sticky */
	_Atomic bool failed;   /* status is not AQ_OK: to be seen without the lock */
	bool dying;
	uint64_t seq;
	uint32_t unfinished; /* commands */
	struct aq_stream legacy;
	struct aq_list streams; /* all others */
	struct aq_list busy;	/* of these, those with unfinished commands */
	struct aq_list events;
	struct aq_list waiters;

	/* engine.c */
	struct aq_mem_map *map;
	struct aq_list run_link; /* in card->run_ctxs while it has running kernels */
	struct aq_list kernels;	 /* running, the most urgent first */
	struct aq_list ready;	 /* resident blocks that can run */
	struct aq_list sleeping; /* resident blocks, by due */
	uint32_t n_kernels;
	uint64_t debt_ns; /* by how much it has overrun its slices */
	uint64_t own_ns;  /* time in which it had the card and running kernels */
	bool admit_next;  /* whose turn it is: a new block's or a resident one's */
	struct aq_sm *sm; /* what is resident on each multiprocessor */
	uint32_t next_sm;
};

/* Find the context, or NULL. */
struct aq_soft_ctx *aq_ctx_get(struct aq_soft_session *s, uint32_t id);
/* AQ_OK and the stream of this context, or what is wrong. */
enum aq_status aq_stream_get(struct aq_soft_session *s, uint32_t ctx_id, uint32_t stream_id,
			     struct aq_soft_ctx **ret_ctx, struct aq_stream **ret_stream);
/* Out of the session's stalls: call before a command is made. AQ_OK or AQ_E_NO_MEMORY. No lock held. */
enum aq_status aq_queue_wait(struct aq_soft_session *s);
/*
 * Append a command (taken over). Small copies are carried out on the spot when nothing is in their way. Returns AQ_GPUD_LATER if the slot will be answered
 * at completion, else the status now. No lock held.
 */
int aq_cmd_submit(struct aq_cmd *cmd);
struct aq_cmd *aq_cmd_new(struct aq_stream *st, enum aq_cmd_kind kind, uint16_t slot);
void aq_cmd_free(struct aq_cmd *cmd);
/* A command is done: answer its slot, wake what waited for it, free it. aq_soft.lock; aq_soft_pump() must follow. */
void aq_cmd_complete(struct aq_cmd *cmd, enum aq_status status);
/* Start what has become possible. aq_soft.lock. */
void aq_soft_pump(struct aq_soft *soft);
/* The context is broken from now on; its work is dropped. aq_soft.lock; aq_soft_pump() must follow. */
void aq_ctx_fail(struct aq_soft_ctx *ctx, enum aq_status status);
/* All of it. The session's thread, no lock held. */
void aq_ctx_destroy(struct aq_soft_ctx *ctx);

/* Add an event with this identifier; takes a reference to `core`, or makes one when NULL. Returns 0, -EINVAL, -ENOMEM. */
int aq_event_add(struct aq_soft_ctx *ctx, uint32_t id, struct aq_event_core *core);
/* aq_soft.lock. */
struct aq_event_core *aq_event_core_ref(struct aq_event_core *core);
void aq_event_core_unref(struct aq_event_core *core);
void aq_event_free(struct aq_soft_session *s, struct aq_event *e);

/* A waiter for what has been submitted to the context, or to the stream, so far. Answers at once when that is nothing. aq_soft.lock. */
int aq_ctx_wait(struct aq_soft_ctx *ctx, struct aq_stream *stream, uint16_t slot);
/* Make and file a waiter in `list`; NULL: out of memory. aq_soft.lock. */
struct aq_waiter *aq_waiter_new(struct aq_soft_session *s, struct aq_list *list, uint16_t slot);
void aq_waiter_answer(struct aq_waiter *w, enum aq_status status);
/* Whether the stream has unfinished commands; for the legacy stream, the blocking streams too. aq_soft.lock. */
bool aq_stream_is_busy(const struct aq_stream *st);
void aq_stream_kick(struct aq_stream *st);
/* aq_soft.lock. */
void aq_record_unref(struct aq_record *r);
void aq_record_done(struct aq_record *r, enum aq_status status);
/* A host function's or a host copy's turn has come; and its context is dying. aq_soft.lock. */
void aq_host_start(struct aq_cmd *cmd);
void aq_host_drop(struct aq_soft_ctx *ctx);

/* ---- modules (module.c) ---- */

struct aq_module {
	uint32_t id;
	struct aq_soft_ctx *ctx;
	struct aq_list link; /* in ctx->modules; session's thread */
	uint32_t refs;	     /* launches and the table; aq_soft.lock */
	struct aq_code *code;
	struct aq_code_symbol **globals; /* the visible ones */
	uint32_t n_globals;
	struct aq_alloc **allocs;
	uint32_t n_allocs;
	uint64_t charged;    /* bytes of card memory in all */
	uint64_t code_bytes; /* of these, for the code */
	bool unloaded;
};

/* Drop what launches no longer use. The session's thread. */
void aq_module_reap(struct aq_soft_ctx *ctx);
/* The context is dying, no launch is left. */
void aq_module_free_all(struct aq_soft_ctx *ctx);

/* ---- copies (copy.c) ---- */

/* Carry out a copy command; no lock held. */
enum aq_status aq_copy_run(struct aq_cmd *cmd);
/* It has been: a failure breaks the context. No lock held. */
void aq_copy_finish(struct aq_cmd *cmd, enum aq_status status);
uint64_t aq_copy_bytes(const struct aq_cmd *cmd);
/* Host to device and back, for module.c. */
enum aq_status aq_copy_in(struct aq_soft_ctx *ctx, uint64_t va, const void *data, uint64_t size);

/* ---- engines (engine.c) ---- */

/* What is resident on one multiprocessor, of one context. */
struct aq_sm {
	uint32_t threads, blocks, registers, shared;
};

struct aq_kernel {
	struct aq_cmd *cmd;
	struct aq_soft_ctx *ctx;
	struct aq_module *module;
	struct aq_grid *grid;
	int32_t priority;
	bool cooperative;
	struct aq_sm need; /* of one block, rounded as hardware does; blocks == 1 */
	uint64_t n_blocks;

	/* aq_soft.lock */
	struct aq_list link; /* in ctx->kernels */
	bool aborted;
	uint64_t next_block, done_blocks;
	uint32_t running; /* blocks on workers right now */
	uint64_t start_own_ns;
	uint64_t insns;
	uint8_t *placement; /* cooperative: the multiprocessor of each block */
};

/* How many blocks of this kernel the card holds at once. */
uint64_t aq_kernel_capacity(const struct aq_card *card, const struct aq_sm *need);
/* Its turn has come. aq_soft.lock. */
void aq_engine_start(struct aq_kernel *k);
/* Be a worker of the card for a moment: after a start that set inline_started. No lock held. */
void aq_engine_help(struct aq_card *card);
/* Its context has failed. aq_soft.lock. */
void aq_engine_abort_ctx(struct aq_soft_ctx *ctx);
void aq_kernel_free(struct aq_kernel *k);
/* Queue a copy for the copy engines. aq_soft.lock. */
void aq_engine_copy(struct aq_card *card, struct aq_cmd *cmd);
/* Book what has passed since the last call. aq_soft.lock. */
void aq_engine_account(struct aq_card *card, uint64_t now);
/* A copy engine begins or ends to be busy. aq_soft.lock. */
void aq_engine_copy_busy(struct aq_card *card, int delta, uint64_t now);

/* How kernels of the context find memory; free() it. */
struct aq_mem_map *aq_launch_map_new(struct aq_soft_ctx *ctx);
int aq_engine_init(struct aq_card *card, unsigned workers);
void aq_engine_stop(struct aq_card *card);
int aq_engine_ctx_init(struct aq_soft_ctx *ctx);
void aq_engine_ctx_done(struct aq_soft_ctx *ctx);

/* ---- cards ---- */

/* A group of threads that sleep until there is work; started at the first need. */
struct aq_crew {
	pthread_cond_t wake;
	pthread_t *thread;
	unsigned n, max, idle;
	uint64_t timer_ns; /* one of the idle ones wakes then; UINT64_MAX: none */
};

struct aq_card {
	struct aq_soft *soft;
	uint32_t index;
	struct aq_profile profile;
	struct aq_rep_card_info info;
	uint64_t start_ns;

	/* mem_lock */
	uint64_t used_bytes;

	/* aq_soft.lock */
	uint32_t n_ctxs;
	bool stop;
	struct aq_crew compute, copy;
	struct aq_list copies;	 /* queued copy commands */
	struct aq_list run_ctxs; /* contexts with running kernels */
	struct aq_soft_ctx *cur; /* the one whose slice it is */
	uint64_t slice_end_ns;
	uint64_t account_ns; /* books are right up to here */
	struct aq_util busy, copying;
	uint32_t n_copying;
	uint64_t copy_since_ns;
	uint64_t kernels, late;
	_Atomic uint64_t grids;
};

/* Take bytes of the card's memory for the session. mem_lock is taken inside. AQ_OK or AQ_E_NO_MEMORY. */
enum aq_status aq_card_charge(struct aq_card *card, struct aq_soft_session *s, uint64_t bytes);
void aq_card_uncharge(struct aq_card *card, struct aq_soft_session *s, uint64_t bytes);

/* A session's share of one card. */
struct aq_soft_usage {
	uint32_t n_ctxs;       /* aq_soft.lock */
	uint64_t memory_bytes; /* mem_lock */
	struct aq_util busy;   /* aq_soft.lock */
};

struct aq_soft_session {
	struct aq_soft *soft;
	struct aq_gpud_peer peer;
	char name[32];
	struct aq_list link; /* in soft->sessions; aq_soft.lock */
	struct aq_aspace as;
	struct aq_soft_usage usage[AQ_WIRE_MAX_CARDS];

	/* The session's thread only. */
	struct aq_idtab ctxs, streams, events, modules, phys;
	struct aq_vatab allocs;			 /* struct aq_alloc */
	struct aq_vatab reservations;		 /* VA_RESERVE */
	struct aq_list slabs[AQ_WIRE_MAX_CARDS]; /* with room */
	struct aq_list full_slabs[AQ_WIRE_MAX_CARDS];
	uint8_t *blob;
	uint64_t blob_size, blob_cap;
	struct aq_strbuf module_log;

	/* mem_lock */
	struct aq_list segs; /* owned */

	/* aq_soft.lock */
	pthread_cond_t changed; /* a command has finished, or interrupt */
	bool interrupted;
	struct aq_list waiters; /* all of them, by session_link */
	uint32_t n_waiters;
	uint32_t unfinished;
	uint32_t host_pending;	   /* commands that wait for the client */
	struct aq_list host_funcs; /* started, by aq_cmd.work */
	struct aq_list tickets;
	uint64_t next_ticket;
	uint16_t next_slots[64]; /* pending HOST_FUNC_NEXT */
	uint32_t n_next_slots;
};

struct aq_soft {
	pthread_mutex_t lock;
	pthread_mutex_t mem_lock;
	struct aq_card *card[AQ_WIRE_MAX_CARDS];
	uint32_t n_cards;
	struct aq_list sessions;
	struct aq_list kicked;
	bool inline_started;
	struct aq_cmd
		*inline_cmd; /* being submitted by the holder of the lock: it will run it itself */
	/* mem_lock */
	struct aq_list exports;	 /* struct aq_export */
	struct aq_list exported; /* struct aq_seg with handles that went out as fds */
	uint64_t host_used, host_limit;
	uint64_t avail_checked_ns;
	bool avail_low;
};

/* The card, or NULL. */
static inline struct aq_card *aq_soft_card(const struct aq_soft *soft, uint32_t index)
{
	return index < soft->n_cards ? soft->card[index] : NULL;
}

/* The operations, one a message: see aq_gpud_op_fn. */
#define X(NAME, name)                                                       \
	int aq_soft_##name(void *session, const struct aq_request *request, \
			   struct aq_gpud_answer *ans);
AQ_WIRE_OPS(X)
#undef X
