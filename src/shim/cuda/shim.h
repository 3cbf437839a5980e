/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the CUDA stand-in: how a wrapper begins, how it calls the provider, what it charges. */
#pragma once

#include "api/cuda_abi.h"
#include "api/cuda_protos.h"
#include "shim/attach.h"
#include "shim/cuda/cuda_slots.h"
#include "shim/cuda/ranges.h"
#include "shim/slots.h"

#define AQ_EXPORT __attribute__((visibility("default")))

#define AQ_LIKELY(x)   __builtin_expect(!!(x), 1)
#define AQ_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- start.c ---- */

/* How deep this thread is in calls of the provider: its calls into our exports go straight back to it. */
extern __thread unsigned aq_depth __attribute__((visibility("hidden")));

/* The provider's function of that name, typed. A name that it lacks is one that answers CUDA_ERROR_NOT_SUPPORTED. */
#define AQ_REAL(name) \
	((__typeof__(&name))__atomic_load_n(&aq_slots[AQ_SLOT_##name], __ATOMIC_RELAXED))

/* Call the provider. */
#define AQ_CALL(name, ...)                           \
	({                                           \
		CUresult aq_rc_;                     \
		aq_depth++;                          \
		aq_rc_ = AQ_REAL(name)(__VA_ARGS__); \
		aq_depth--;                          \
		aq_rc_;                              \
	})

/* Whether the library has started in this very process. */
static inline bool aq_started(void)
{
	return atomic_load_explicit(&aq_attach_private->ready, memory_order_acquire);
}

/*
 * Start: attach, load the provider, fill the slots. `init`: this is an initialisation, which tries again what has failed before. Returns
 * CUDA_SUCCESS, or what the call that needed it is to return.
 */
CUresult aq_start(bool init);

/* Every wrapper begins with this; the arguments are the wrapper's own. */
#define AQ_ENTER(name, ...)                                \
	do {                                               \
		if (AQ_UNLIKELY(aq_depth))                 \
			return AQ_REAL(name)(__VA_ARGS__); \
		if (AQ_UNLIKELY(!aq_started())) {          \
			CUresult aq_rc_ = aq_start(false); \
			if (aq_rc_ != CUDA_SUCCESS)        \
				return aq_rc_;             \
		}                                          \
	} while (0)

/* Whether the provider has the name. */
bool aq_offers(unsigned slot);

/* ---- cards.c ---- */

#define AQ_NO_CARD (-1)

/* Forget which device is which card: before cuInit, and in a forked child. */
void aq_cards_reset(void);
/* That cuInit has been called: likewise. */
void aq_view_reset(void);

/* The card of a device of this process; AQ_NO_CARD when it is none of the instance's. */
int aq_card_of(CUdevice dev);

/* The card of the calling thread's context. CUDA_SUCCESS, or what the provider says when there is none. */
CUresult aq_card_current(int *ret_card);

/* The card on which a stream runs. */
CUresult aq_card_of_stream(CUstream stream, bool per_thread, int *ret_card);

/* How many devices the process sees, and the n-th. 0 before cuInit. */
unsigned aq_cards_devices(void);

/* ---- account.c ---- */

/* Explicit memory. Reserve before the provider is asked; CUDA_ERROR_OUT_OF_MEMORY when it would pass the limit (counted as a refusal). */
CUresult aq_reserve(int card, uint64_t bytes);
/* The same without counting a refusal and without reading pools again: -ENOMEM. For estimates. */
int aq_try_reserve(int card, uint64_t bytes);
void aq_commit(int card, uint64_t bytes);
void aq_withdraw(int card, uint64_t bytes);
void aq_uncharge(int card, uint64_t bytes);
/* `reserved` was a guess, `size` is what it came to: reserve the difference or give it back. Fails as aq_reserve(); then `reserved` is withdrawn. */
CUresult aq_adjust(int card, uint64_t reserved, uint64_t size);
/* Count a refusal for people to see. */
void aq_refused(int card, uint64_t bytes);

/* The card's limit, or AQ_NO_LIMIT. */
uint64_t aq_limit(int card);
/* The card's own size; UINT64_MAX when nobody says. */
uint64_t aq_card_bytes(int card);
/* What the instance may still take of it. */
uint64_t aq_free_bytes(int card);
/* Whether any card of the instance has a limit: then what cannot be accounted is refused. */
bool aq_limited(void);

/* Charge what the provider has taken already, whatever the limit says: new allocations are refused until it fits again. */
void aq_force(int card, uint64_t bytes);

/*
 * Overhead: bring it up to what the driver says; how = AQ_SETTLE_CONTEXT adds the learned maximum when the driver does not know. `reserved` bytes
 * of this process's reservations are for that overhead.
 */
enum aq_settle_how {
	AQ_SETTLE_MEASURE,
	AQ_SETTLE_CONTEXT
};
void aq_settle(int card, enum aq_settle_how how, uint64_t reserved);
/* Measure, but not more often than the driver can answer. */
void aq_settle_lazily(int card);
/* The driver has taken that much on its own account; it was reserved before. */
void aq_take_overhead(int card, uint64_t bytes);
/* Learned maximum of a context on this card. */
uint64_t aq_context_bytes(int card);

/* All that this process holds by address. */
extern struct aq_ranges aq_held;

/*
 * Remember what has just been allocated and commit it. On failure (no memory for our own books) nothing is remembered, the reservation is
 * withdrawn, and the caller has to give the memory back.
 */
int aq_hold(uint64_t key, enum aq_range_kind kind, int card, uint64_t size, uint64_t owner);

/* ---- pools.c ---- */

void aq_pools_reset(void);
/* Read all pools of the card again: what they have given back is uncharged. Returns whether anything was. */
bool aq_pools_settle(int card);
/* The same after they have been made to give back what they keep unused: that must make no other allocation fail. */
bool aq_pools_trim(int card);

/* An allocation that came out of a pool has been freed: later, when its stream gets there. */
void aq_pool_freed(const struct aq_range *entry);
/* Whether pools may have given memory back since they were read, as they do when the process synchronises. */
extern _Atomic uint32_t aq_pools_stale;

/* ---- array.c ---- */

/* A context is gone: its arrays, and whatever else the provider no longer knows. */
void aq_context_gone(CUcontext ctx);

/* ---- vmm.c ---- */

void aq_vmm_reset(void);

/* ---- refuse.c ---- */

/* CUDA_ERROR_NOT_SUPPORTED, and one line naming the function (once each). */
CUresult aq_refuse(unsigned slot, const char *why);
/* While the process has a capture open: an allocation on a capturing stream becomes graph memory, which is not accounted yet, so it is refused. */
CUresult aq_capture_check(CUstream stream, bool per_thread, unsigned slot);
/* Around the provider calls of our own that a capture on some thread may forbid. */
CUstreamCaptureMode aq_capture_relax(void);
void aq_capture_restore(CUstreamCaptureMode mode);

/* ---- visible.c ---- */

/*
 * Write the value of CUDA_VISIBLE_DEVICES that makes a provider show what the user's value (NULL: not set) selects among the instance's
 * cards, by UUID. Returns the length that it needs (as snprintf does).
 */
size_t aq_visible_value(const char *user, unsigned n, const uint8_t (*uuid)[16], char *buf,
			size_t size);
