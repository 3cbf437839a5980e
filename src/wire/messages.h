/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between a front end (client) and aliquot-gpud (server). docs/wire.md is the specification; this header is
 * its C form. Everything is little-endian, fixed width, naturally aligned, without padding that the compiler adds.
 *
 * Identifiers (contexts, streams, events, modules, physical allocations) are chosen by the client: no round trip is
 * needed to create an object. They are 1..AQ_WIRE_MAX_ID and unique per kind and session.
 *
 * Device addresses are chosen by the server inside the arena that the client reserved and named in hello. A session has
 * one address space for all its cards and contexts, as unified addressing has.
 *
 * A request is either *sent* (no reply slot; a failure becomes the context's error, see struct aq_wire_shm) or *called* (the
 * answer carries an enum aq_status and the reply structure). An answer may come much later than the request was read
 * (synchronise, host function): the server never blocks the session on it.
 */
#pragma once

#include <stdint.h>

#define AQ_WIRE_MAGIC	    0x57515141U /* "AQQW" */
#define AQ_WIRE_VERSION_MIN 1U
#define AQ_WIRE_VERSION	    1U

#define AQ_WIRE_MAX_ID	    (1U << 20)
#define AQ_WIRE_MAX_CARDS   16U
#define AQ_WIRE_MAX_PAYLOAD (64U * 1024) /* of a request or a reply, header not counted */
#define AQ_WIRE_MAX_INLINE  (48U * 1024) /* data bytes in one WRITE, READ or BLOB_WRITE */
#define AQ_WIRE_ATTRS	    160U	 /* CUdevice_attribute values in the snapshot */
#define AQ_WIRE_NAME	    96U

/*
 * Streams with fixed identifiers, in every context: the legacy default stream. The per-thread default stream is an
 * ordinary blocking stream that the front end creates for each thread and context.
 */
#define AQ_STREAM_LEGACY 0U

/* Status of an answer, and the sticky error of a context. The front end maps them to its API's errors in one table. */
enum aq_status {
	AQ_OK = 0,
	AQ_E_INVALID,	    /* malformed or out of range; a front end bug or a hostile client */
	AQ_E_NO_MEMORY,	    /* the card or the server has not enough */
	AQ_E_NOT_FOUND,	    /* no such object or name */
	AQ_E_NOT_READY,	    /* query: work is still pending */
	AQ_E_NOT_SUPPORTED, /* understood, not offered by this server or card */
	AQ_E_BUSY,	    /* the object is in use */
	AQ_E_PERMISSION,    /* not this session's, or access rights forbid it */
	AQ_E_PTX,	    /* module refused; MODULE_LOG has line and reason */
	AQ_E_NO_SYMBOL,	    /* module refers to something that nobody defines */
	AQ_E_CARD_LOST,	    /* the card is gone */
	AQ_E_CONTEXT_GONE,  /* the context has been destroyed */
	AQ_E_TIMEOUT,
	/* Faults of running work: sticky in the context. */
	AQ_E_ILLEGAL_ADDRESS = 64,
	AQ_E_MISALIGNED,
	AQ_E_ILLEGAL_INSN,  /* also invalid pc */
	AQ_E_ADDRESS_SPACE, /* instruction wants another state space */
	AQ_E_HW_STACK,
	AQ_E_TRAP,
	AQ_E_ASSERT,
	AQ_E_LAUNCH_RESOURCES, /* too many registers, threads or shared bytes */
	AQ_E_LAUNCH_FAILED,    /* anything else */
	AQ_STATUS_COUNT
};

/* What a transport offers; in hello each side names its own, the session uses the intersection. */
enum aq_wire_caps {
	AQ_CAP_SHM = 1U << 0, /* ring and pages in shared memory */
	AQ_CAP_FDS = 1U << 1, /* fds can be passed: sharing of device ranges, export and import */
	AQ_CAP_MANAGED = 1U << 2, /* managed and host memory mapped on both sides */
};

/*
 * Every operation once: X(NAME, name). Requests are struct aq_req_<name>, answers struct aq_rep_<name>; those without
 * fields are empty structures of one reserved word.
 */
#define AQ_WIRE_OPS(X)                          \
	X(CARD_INFO, card_info)                 \
	X(CARD_STAT, card_stat)                 \
	X(CARD_PROCS, card_procs)               \
	X(CTX_CREATE, ctx_create)               \
	X(CTX_DESTROY, ctx_destroy)             \
	X(CTX_SYNC, ctx_sync)                   \
	X(CTX_LIMIT, ctx_limit)                 \
	X(CTX_PEER, ctx_peer)                   \
	X(MEM_ALLOC, mem_alloc)                 \
	X(MEM_FREE, mem_free)                   \
	X(MEM_SHARE, mem_share)                 \
	X(MEM_EXPORT, mem_export)               \
	X(MEM_IMPORT, mem_import)               \
	X(HOST_REGISTER, host_register)         \
	X(VA_RESERVE, va_reserve)               \
	X(VA_RELEASE, va_release)               \
	X(PHYS_CREATE, phys_create)             \
	X(PHYS_RELEASE, phys_release)           \
	X(PHYS_EXPORT, phys_export)             \
	X(PHYS_IMPORT, phys_import)             \
	X(VA_MAP, va_map)                       \
	X(VA_UNMAP, va_unmap)                   \
	X(VA_ACCESS, va_access)                 \
	X(STREAM_CREATE, stream_create)         \
	X(STREAM_DESTROY, stream_destroy)       \
	X(STREAM_SYNC, stream_sync)             \
	X(STREAM_QUERY, stream_query)           \
	X(STREAM_WAIT_EVENT, stream_wait_event) \
	X(EVENT_CREATE, event_create)           \
	X(EVENT_DESTROY, event_destroy)         \
	X(EVENT_RECORD, event_record)           \
	X(EVENT_SYNC, event_sync)               \
	X(EVENT_QUERY, event_query)             \
	X(EVENT_ELAPSED, event_elapsed)         \
	X(EVENT_EXPORT, event_export)           \
	X(EVENT_IMPORT, event_import)           \
	X(HOST_FUNC, host_func)                 \
	X(HOST_FUNC_NEXT, host_func_next)       \
	X(HOST_FUNC_DONE, host_func_done)       \
	X(BLOB_WRITE, blob_write)               \
	X(MODULE_LOAD, module_load)             \
	X(MODULE_UNLOAD, module_unload)         \
	X(MODULE_LOG, module_log)               \
	X(FUNC_INFO, func_info)                 \
	X(GLOBAL_INFO, global_info)             \
	X(LAUNCH, launch)                       \
	X(COPY, copy)                           \
	X(FILL, fill)                           \
	X(WRITE, write)                         \
	X(READ, read)                           \
	X(HOST_BEGIN, host_begin)               \
	X(HOST_END, host_end)

enum aq_op {
	AQ_OP_NONE = 0,
#define X(NAME, name) AQ_OP_##NAME,
	AQ_WIRE_OPS(X)
#undef X
	AQ_OP_COUNT
};

/* In front of every request in the ring. */
struct aq_wire_header {
	uint32_t len;  /* payload bytes behind this header, at most AQ_WIRE_MAX_PAYLOAD */
	uint16_t op;   /* enum aq_op */
	uint16_t slot; /* reply slot, or AQ_WIRE_NO_SLOT when no answer is wanted */
};

#define AQ_WIRE_NO_SLOT 0xffffU

/* First message on the socket, from the client. */
struct aq_wire_hello {
	uint32_t magic;
	uint32_t version_min;
	uint32_t version;
	uint32_t caps;
	uint64_t arena_base; /* reserved by the client for device addresses; page aligned */
	uint64_t arena_size;
	uint32_t pid; /* as the client sees itself; informative, the server believes SO_PEERCRED */
	uint32_t reserved;
	char name[32]; /* program name, NUL-terminated */
};

/* The server's answer; the memfd of struct aq_wire_shm comes with it. status != AQ_OK: the connection is closed after it. */
struct aq_wire_welcome {
	uint32_t magic;
	uint32_t version; /* the one spoken from now on */
	uint32_t status;
	uint32_t caps;
	uint32_t n_cards;
	uint32_t driver_version; /* as cuDriverGetVersion says it: 13000 */
	uint64_t shm_size;
	char server[32]; /* server's version text */
};

/* ---- cards ---- */

struct aq_req_card_info {
	uint32_t card;
	uint32_t reserved;
};

/* All that never changes: one snapshot answers every property query. */
struct aq_rep_card_info {
	char name[AQ_WIRE_NAME]; /* ends in "(software)" */
	uint8_t uuid[16];
	uint32_t pci_domain;
	uint32_t pci_bus;
	uint32_t pci_device;
	uint32_t pci_device_id; /* NVML's combined id: device << 16 | vendor */
	uint32_t pci_subsystem_id;
	uint32_t minor;		  /* NVML minor number */
	uint64_t memory_bytes;	  /* total, as cuDeviceTotalMem says it */
	uint64_t memory_reserved; /* held by the card itself, part of the total */
	uint64_t context_bytes;	  /* what one context takes at its creation */
	uint32_t max_clock_sm_mhz;
	uint32_t max_clock_mem_mhz;
	uint32_t max_power_mw;
	uint32_t n_attrs;	      /* valid entries in attrs */
	int32_t attrs[AQ_WIRE_ATTRS]; /* by CUdevice_attribute */
	char profile[32];
	char serial[32];
	char vbios[32];
};

struct aq_req_card_stat {
	uint32_t card;
	uint32_t reserved;
};

/* All that changes. Rates are over the last sampling period (1/6 s .. 1 s). */
struct aq_rep_card_stat {
	uint64_t now_ns; /* CLOCK_MONOTONIC of this answer */
	uint64_t memory_used;
	uint64_t memory_free;
	uint64_t busy_ns; /* time in which at least one kernel ran, since start */
	uint64_t copy_ns; /* time in which a copy engine ran, since start */
	uint64_t kernels; /* completed since start */
	uint64_t late;	  /* of these, ran longer than modelled */
	uint64_t energy_mj;
	uint32_t util_gpu_pct;
	uint32_t util_mem_pct;
	uint32_t clock_sm_mhz;
	uint32_t clock_mem_mhz;
	uint32_t temperature_c;
	uint32_t power_mw;
	uint32_t n_contexts;
	uint32_t n_procs;
};

struct aq_req_card_procs {
	uint32_t card;
	uint32_t first; /* index to begin with, for long lists */
};

#define AQ_WIRE_PROCS_MAX 256U

struct aq_wire_proc {
	uint32_t pid; /* in the server's namespace */
	uint32_t n_contexts;
	uint64_t memory_bytes;
	uint64_t busy_ns;	 /* card time of this process since its start */
	uint64_t sample_time_us; /* CLOCK_REALTIME of the utilisation sample */
	uint32_t util_gpu_pct;
	uint32_t util_mem_pct;
	char name[32];
};

/* Cut behind proc[n]. */
struct aq_rep_card_procs {
	uint32_t total;
	uint32_t n;
	struct aq_wire_proc proc[AQ_WIRE_PROCS_MAX];
};

/* ---- contexts ---- */

struct aq_req_ctx_create {
	uint32_t ctx;
	uint32_t card;
	uint32_t flags; /* CUctx_flags */
	uint32_t
		error_slot; /* index into aq_wire_shm.ctx_error, < AQ_WIRE_ERROR_SLOTS, chosen by the client */
};

struct aq_rep_ctx_create {
	uint64_t memory_bytes; /* taken from the card for it */
};

struct aq_req_ctx_destroy {
	uint32_t ctx; /* memory, streams, events and modules of it go with it */
	uint32_t reserved;
};

struct aq_rep_ctx_destroy {
	uint64_t reserved;
};

/* Answered when all that was submitted to the context before is done, with its sticky error if it has one. */
struct aq_req_ctx_sync {
	uint32_t ctx;
	uint32_t reserved;
};

struct aq_rep_ctx_sync {
	uint64_t reserved;
};

struct aq_req_ctx_limit {
	uint32_t ctx;
	uint32_t limit; /* CUlimit: stack size, printf fifo, malloc heap */
	uint64_t value;
};

struct aq_rep_ctx_limit {
	uint64_t value; /* in force now */
};

struct aq_req_ctx_peer {
	uint32_t ctx;
	uint32_t peer_ctx; /* kernels of ctx may reach memory of peer_ctx's card */
	uint32_t enable;
	uint32_t reserved;
};

struct aq_rep_ctx_peer {
	uint64_t reserved;
};

/* ---- memory ---- */

enum aq_mem_kind {
	AQ_MEM_DEVICE = 0,
	AQ_MEM_MANAGED, /* card memory is charged; mapped at the same address in the client */
	AQ_MEM_HOST, /* host memory that the card reaches; not charged; mapped at the same address in the client */
	AQ_MEM_ARRAY, /* device memory of an array or mipmapped array; layout is the front end's */
};

struct aq_req_mem_alloc {
	uint32_t ctx;
	uint32_t kind;	/* enum aq_mem_kind */
	uint64_t size;	/* bytes, > 0 */
	uint32_t align; /* power of two, 256 .. 2 MiB */
	uint32_t flags;
};

/*
 * Managed and host memory: an fd follows on the socket (client maps share_size bytes of it at share_va). Device memory: the range may share
 * its segment with other ranges of this session; MEM_SHARE hands the segment out when the client wants to map it.
 */
struct aq_rep_mem_alloc {
	uint64_t va;
	uint64_t size; /* as rounded */
	uint64_t share_va;
	uint64_t share_size;
};

struct aq_req_mem_free {
	uint64_t va; /* as returned by MEM_ALLOC, MEM_IMPORT or given to HOST_REGISTER */
};

/* unmap_size > 0: the segment is gone; a client that mapped it puts its PROT_NONE reservation back. */
struct aq_rep_mem_free {
	uint64_t unmap_va;
	uint64_t unmap_size;
};

struct aq_req_mem_share {
	uint64_t va; /* anywhere in a range of this session */
};

/* The fd of the segment follows on the socket; map share_size bytes from fd offset `offset` at share_va. */
struct aq_rep_mem_share {
	uint64_t share_va;
	uint64_t share_size;
	uint64_t offset;
};

#define AQ_WIRE_COOKIE 48U

struct aq_req_mem_export {
	uint64_t va;
};

struct aq_rep_mem_export {
	uint8_t cookie
		[AQ_WIRE_COOKIE]; /* unguessable; good for any session of this server and user */
	uint64_t offset;	  /* of va in the exported allocation */
};

struct aq_req_mem_import {
	uint32_t ctx;
	uint32_t reserved;
	uint8_t cookie[AQ_WIRE_COOKIE];
};

struct aq_rep_mem_import {
	uint64_t va;
	uint64_t size;
};

/*
 * The client has replaced [va, va + size) by a mapping of the memfd that it sent on the socket before this request;
 * device accesses to these addresses reach it. Outside the arena.
 */
struct aq_req_host_register {
	uint32_t ctx;
	uint32_t flags;
	uint64_t va;
	uint64_t size;
};

struct aq_rep_host_register {
	uint64_t reserved;
};

/* ---- virtual memory management ---- */

struct aq_req_va_reserve {
	uint64_t size; /* multiple of the granularity, 2 MiB */
	uint64_t align;
	uint64_t hint; /* 0: anywhere */
};

struct aq_rep_va_reserve {
	uint64_t va;
};

struct aq_req_va_release {
	uint64_t va;
	uint64_t size;
};

struct aq_rep_va_release {
	uint64_t reserved;
};

struct aq_req_phys_create {
	uint32_t phys;
	uint32_t card; /* AQ_CARD_HOST: host memory, not charged */
	uint64_t size;
};

#define AQ_CARD_HOST 0xffffffffU

struct aq_rep_phys_create {
	uint64_t reserved;
};

/* The memory returns to the card when the handle, every mapping and every importer are gone. */
struct aq_req_phys_release {
	uint32_t phys;
	uint32_t reserved;
};

struct aq_rep_phys_release {
	uint64_t reserved;
};

struct aq_req_phys_export {
	uint32_t phys;
	uint32_t reserved;
};

/* The fd follows on the socket. */
struct aq_rep_phys_export {
	uint64_t size;
};

/* The fd was sent on the socket before this request. */
struct aq_req_phys_import {
	uint32_t phys;
	uint32_t reserved;
};

struct aq_rep_phys_import {
	uint64_t size;
	uint32_t card;
	uint32_t reserved;
};

struct aq_req_va_map {
	uint64_t va;
	uint64_t size;
	uint64_t offset; /* in the physical allocation */
	uint32_t phys;
	uint32_t reserved;
};

struct aq_rep_va_map {
	uint64_t reserved;
};

struct aq_req_va_unmap {
	uint64_t va;
	uint64_t size;
};

struct aq_rep_va_unmap {
	uint64_t reserved;
};

struct aq_req_va_access {
	uint64_t va;
	uint64_t size;
	uint32_t card; /* or AQ_CARD_HOST */
	uint32_t prot; /* 0 none, 1 read, 3 read and write */
};

struct aq_rep_va_access {
	uint64_t reserved;
};

/* ---- streams and events ---- */

enum aq_stream_flags {
	AQ_STREAM_NON_BLOCKING =
		1U << 0, /* does not wait for the legacy stream, nor it for this one */
};

struct aq_req_stream_create {
	uint32_t ctx;
	uint32_t stream;
	uint32_t flags;
	int32_t priority;
};

struct aq_rep_stream_create {
	uint64_t reserved;
};

/* Work already submitted still completes. */
struct aq_req_stream_destroy {
	uint32_t ctx;
	uint32_t stream;
};

struct aq_rep_stream_destroy {
	uint64_t reserved;
};

struct aq_req_stream_sync {
	uint32_t ctx;
	uint32_t stream;
};

struct aq_rep_stream_sync {
	uint64_t reserved;
};

/* AQ_OK, AQ_E_NOT_READY or the context's error. */
struct aq_req_stream_query {
	uint32_t ctx;
	uint32_t stream;
};

struct aq_rep_stream_query {
	uint64_t reserved;
};

struct aq_req_stream_wait_event {
	uint32_t ctx;
	uint32_t stream;
	uint32_t event;
	uint32_t reserved;
};

struct aq_rep_stream_wait_event {
	uint64_t reserved;
};

struct aq_req_event_create {
	uint32_t ctx;
	uint32_t event;
	uint32_t flags; /* CUevent_flags */
	uint32_t reserved;
};

struct aq_rep_event_create {
	uint64_t reserved;
};

struct aq_req_event_destroy {
	uint32_t event;
	uint32_t reserved;
};

struct aq_rep_event_destroy {
	uint64_t reserved;
};

struct aq_req_event_record {
	uint32_t ctx;
	uint32_t stream;
	uint32_t event;
	uint32_t reserved;
};

struct aq_rep_event_record {
	uint64_t reserved;
};

/* A never recorded event is complete. */
struct aq_req_event_sync {
	uint32_t event;
	uint32_t reserved;
};

struct aq_rep_event_sync {
	uint64_t reserved;
};

struct aq_req_event_query {
	uint32_t event;
	uint32_t reserved;
};

struct aq_rep_event_query {
	uint64_t reserved;
};

struct aq_req_event_elapsed {
	uint32_t start;
	uint32_t end;
};

/* AQ_E_NOT_READY while one is pending, AQ_E_INVALID when one was never recorded. */
struct aq_rep_event_elapsed {
	int64_t ns;
};

struct aq_req_event_export {
	uint32_t event;
	uint32_t reserved;
};

struct aq_rep_event_export {
	uint8_t cookie[AQ_WIRE_COOKIE];
};

struct aq_req_event_import {
	uint32_t ctx;
	uint32_t event;
	uint8_t cookie[AQ_WIRE_COOKIE];
};

struct aq_rep_event_import {
	uint64_t reserved;
};

/*
 * Host functions: HOST_FUNC is a stream command. When its turn comes the server answers the session's pending HOST_FUNC_NEXT with the
 * cookie, the client runs the function and says HOST_FUNC_DONE; only then does the stream go on. Streams do not wait for each other's.
 */
struct aq_req_host_func {
	uint32_t ctx;
	uint32_t stream;
	uint64_t cookie; /* the client's */
	uint32_t
		even_after_error; /* 1: a stream callback, called with the error; 0: skipped after an error */
	uint32_t reserved;
};

struct aq_rep_host_func {
	uint64_t reserved;
};

struct aq_req_host_func_next {
	uint64_t reserved;
};

struct aq_rep_host_func_next {
	uint64_t cookie;
	uint32_t ctx;
	uint32_t stream;
	uint32_t status; /* the context's error, for stream callbacks */
	uint32_t reserved;
};

struct aq_req_host_func_done {
	uint64_t cookie;
};

struct aq_rep_host_func_done {
	uint64_t reserved;
};

/* ---- modules ---- */

/* Append bytes (behind this structure) to the session's upload buffer; offset 0 begins a new one. At most AQ_WIRE_MAX_BLOB. */
#define AQ_WIRE_MAX_BLOB (64U * 1024 * 1024)

struct aq_req_blob_write {
	uint64_t offset;
};

struct aq_rep_blob_write {
	uint64_t reserved;
};

/* The upload buffer holds `size` bytes of PTX text without final NUL; it is consumed. */
struct aq_req_module_load {
	uint32_t ctx;
	uint32_t module;
	uint64_t size;
	uint32_t max_registers; /* 0: no limit */
	uint32_t opt_level;
	uint32_t flags;
	uint32_t reserved;
};

struct aq_rep_module_load {
	uint32_t n_funcs;      /* kernels, in the order of the text */
	uint32_t n_globals;    /* visible global and constant variables, in the order of the text */
	uint64_t memory_bytes; /* taken from the card for code and variables */
};

struct aq_req_module_unload {
	uint32_t module;
	uint32_t reserved;
};

struct aq_rep_module_unload {
	uint64_t reserved;
};

/* The error log of the session's last MODULE_LOAD: text behind the structure, at most AQ_WIRE_MAX_INLINE bytes from `offset` on. */
struct aq_req_module_log {
	uint64_t offset;
};

struct aq_rep_module_log {
	uint64_t total;
	char text[];
};

struct aq_req_func_info {
	uint32_t module;
	uint32_t index; /* < n_funcs */
};

#define AQ_WIRE_PARAMS_MAX 4096U

struct aq_wire_param {
	uint32_t offset;
	uint32_t size;
};

/* Behind it: n_params × struct aq_wire_param, then name_len bytes of name without NUL. */
struct aq_rep_func_info {
	uint32_t n_params;
	uint32_t name_len;
	uint32_t param_bytes;
	uint32_t registers;    /* per thread, modelled */
	uint32_t shared_bytes; /* static */
	uint32_t const_bytes;
	uint32_t local_bytes; /* per thread */
	uint32_t max_threads; /* per block */
	uint32_t
		ptx_version; /* 10 * major + minor of the target, as CU_FUNC_ATTRIBUTE_PTX_VERSION says it */
	uint32_t binary_version;
	uint32_t reqntid[3]; /* 0: none */
	uint32_t reserved;
};

struct aq_req_global_info {
	uint32_t module;
	uint32_t index; /* < n_globals */
};

/* Behind it: name_len bytes of name. */
struct aq_rep_global_info {
	uint64_t va;
	uint64_t size;
	uint32_t is_const;
	uint32_t is_managed;
	uint32_t name_len;
	uint32_t reserved;
};

/* ---- work ---- */

enum aq_launch_flags {
	AQ_LAUNCH_COOPERATIVE = 1U << 0,
};

/* Behind it: param_bytes of parameters laid out as FUNC_INFO says. */
struct aq_req_launch {
	uint32_t ctx;
	uint32_t stream;
	uint32_t module;
	uint32_t func; /* index in the module */
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes; /* dynamic */
	uint32_t flags;
	uint32_t param_bytes;
	int32_t priority; /* of the stream, or the launch attribute's */
};

struct aq_rep_launch {
	uint64_t reserved;
};

/*
 * Between device, managed and host ranges of this session. For rows and slices: `width` bytes by `height` by `depth`; pitches in bytes,
 * ignored where the extent is 1.
 */
struct aq_req_copy {
	uint32_t ctx;
	uint32_t stream;
	uint64_t dst;
	uint64_t src;
	uint64_t width;
	uint64_t height;
	uint64_t depth;
	uint64_t dst_pitch;
	uint64_t dst_slice; /* bytes between slices */
	uint64_t src_pitch;
	uint64_t src_slice;
};

struct aq_rep_copy {
	uint64_t reserved;
};

struct aq_req_fill {
	uint32_t ctx;
	uint32_t stream;
	uint64_t dst;
	uint64_t width;	  /* elements */
	uint64_t height;  /* rows */
	uint64_t pitch;	  /* bytes; ignored when height is 1 */
	uint32_t element; /* bytes: 1, 2 or 4 */
	uint32_t value;
};

struct aq_rep_fill {
	uint64_t reserved;
};

/* Data behind it: `size` bytes, at most AQ_WIRE_MAX_INLINE. In stream order. */
struct aq_req_write {
	uint32_t ctx;
	uint32_t stream;
	uint64_t dst;
	uint64_t size;
};

struct aq_rep_write {
	uint64_t reserved;
};

/* Answered in stream order with `size` bytes, at most AQ_WIRE_MAX_INLINE, as the whole payload. */
struct aq_req_read {
	uint32_t ctx;
	uint32_t stream;
	uint64_t src;
	uint64_t size;
};

struct aq_rep_read {
	uint8_t data[8];
};

/*
 * The client copies by itself between pageable memory and a segment that it has mapped: answered when the stream's earlier work is done and
 * a copy engine is free; the stream goes on after HOST_END (or the client's death). `bytes` and `to_device` feed the cost model.
 */
struct aq_req_host_begin {
	uint32_t ctx;
	uint32_t stream;
	uint64_t bytes;
	uint32_t to_device;
	uint32_t reserved;
};

struct aq_rep_host_begin {
	uint64_t ticket;
};

/* Called when the client must wait for the modelled time of the copy, else sent. */
struct aq_req_host_end {
	uint64_t ticket;
};

struct aq_rep_host_end {
	uint64_t reserved;
};
