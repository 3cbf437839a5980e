/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the NVML stand-in: how a wrapper begins, how it calls the provider, which cards and processes are the instance's.
 *
 * Handles are the provider's own. What this library adds is which of them are handed out, and what is said about memory, processes and
 * utilisation. It reads the instance's accounts and writes none.
 */
#pragma once

#include "api/nvml_abi.h"
#include "api/nvml_protos.h"
#include "base/macro.h"
#include "shim/attach.h"
#include "shim/nvml/nvml_slots.h"
#include "shim/slots.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define AQ_EXPORT __attribute__((visibility("default")))

#define AQ_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- start.c ---- */

/* How deep this thread is in calls of the provider: its calls into our exports go straight back to it. */
extern __thread unsigned aq_depth __attribute__((visibility("hidden")));

/* The provider's function of that name, typed. A name that it lacks is one that answers NVML_ERROR_FUNCTION_NOT_FOUND. */
#define AQ_REAL(name) \
	((__typeof__(&name))__atomic_load_n(&aq_slots[AQ_SLOT_##name], __ATOMIC_RELAXED))

/* Call a function of the provider. */
#define AQ_CALL_FN(fn, ...)                 \
	({                                  \
		nvmlReturn_t aq_rc_;        \
		aq_depth++;                 \
		aq_rc_ = (fn)(__VA_ARGS__); \
		aq_depth--;                 \
		aq_rc_;                     \
	})
#define AQ_CALL(name, ...) AQ_CALL_FN(AQ_REAL(name), __VA_ARGS__)

/* Whether the library has started in this very process. */
static inline bool aq_started(void)
{
	return atomic_load_explicit(&aq_attach_private->ready, memory_order_acquire);
}

/*
 * Start: attach, load the provider, fill the slots. `init`: this is an initialisation, which tries again what has failed before. Returns
 * NVML_SUCCESS, or what the call that needed it is to return.
 */
nvmlReturn_t aq_start(bool init);

/* Every wrapper begins with this; the arguments are the wrapper's own. */
#define AQ_ENTER(name, ...)                                    \
	do {                                                   \
		if (AQ_UNLIKELY(aq_depth))                     \
			return AQ_REAL(name)(__VA_ARGS__);     \
		if (AQ_UNLIKELY(!aq_started())) {              \
			nvmlReturn_t aq_rc_ = aq_start(false); \
			if (aq_rc_ != NVML_SUCCESS)            \
				return aq_rc_;                 \
		}                                              \
	} while (0)

/* Whether the provider has the name. */
bool aq_offers(unsigned slot);

/* ---- devices.c ---- */

/* Forget which handle is which card: handles count from one initialisation of the provider to the end of it. */
void aq_devices_forget(void);
/* The same, in a process that has just started: nobody holds the lock. */
void aq_devices_reset(void);

/* The instance's card behind a handle. NO_PERMISSION when it is another one's, else what the provider says. */
nvmlReturn_t aq_device_card(nvmlDevice_t device, unsigned *ret_card);

/* ---- memory.c ---- */

/* Whether the instance has a limit on this card; without one the provider's figures stand. */
bool aq_limited(unsigned card);

/* ---- process.c ---- */

/* One process of the instance. */
struct aq_own_process {
	uint32_t pid;
	uint64_t bytes; /* that it has of the card */
};

struct aq_own {
	unsigned n;
	struct aq_own_process p[AQ_MAX_CLIENTS];
};

/*
 * The processes attached to the instance, as this process' pid namespace numbers them; those of other namespaces have no number here and are
 * left out. NULL: no memory. The caller frees it.
 */
struct aq_own *aq_own_read(unsigned card);
const struct aq_own_process *aq_own_find(const struct aq_own *own, uint32_t pid);

/*
 * How NVML answers with a list: *count is what fits, and becomes what there is. SUCCESS: copy `have` entries. INSUFFICIENT_SIZE when they do
 * not fit (also the answer to the question *count = 0), INVALID_ARGUMENT for a NULL where entries would go.
 */
nvmlReturn_t aq_list_answer(unsigned *count, const void *entries, unsigned have);

/*
 * Call `expr`, which asks the provider to fill `list` of *n = cap entries, with ever longer lists until all fit. The list is to be freed whatever
 * comes of it.
 */
#define AQ_FETCH(list, n, expr)                                                               \
	({                                                                                    \
		nvmlReturn_t aq_got_ = NVML_ERROR_INSUFFICIENT_SIZE;                          \
		unsigned aq_cap_ = 64;                                                        \
		for (int aq_try_ = 0; aq_try_ < 6 && aq_got_ == NVML_ERROR_INSUFFICIENT_SIZE; \
		     aq_try_++) {                                                             \
			void *aq_longer_ = realloc(list, aq_cap_ * sizeof(*(list)));          \
			if (!aq_longer_) {                                                    \
				aq_got_ = NVML_ERROR_MEMORY;                                  \
				break;                                                        \
			}                                                                     \
			(list) = aq_longer_;                                                  \
			(n) = aq_cap_;                                                        \
			aq_got_ = (expr);                                                     \
			if (aq_got_ == NVML_SUCCESS && (n) > aq_cap_)                         \
				(n) = aq_cap_;                                                \
			aq_cap_ = AQ_MIN(AQ_MAX((n), aq_cap_), 1U << 16) + 64;                \
		}                                                                             \
		aq_got_;                                                                      \
	})

/* ---- refuse.c: functions without a type in the table ---- */

struct nvmlGpmSample_st;

#pragma GCC visibility push(default)
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned type, unsigned long long since,
				  unsigned *value_type, unsigned *count, void *samples);
nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, void *info);
nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device,
							  nvmlMemory_t *memory);
nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *pids);
nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, void *stats);
nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned *count, void *infos);
nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned *count, unsigned *fps,
				       unsigned *latency);
nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned *count, void *infos);
nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, void *stats);
nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, struct nvmlGpmSample_st *sample);
nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gpu_instance,
				 struct nvmlGpmSample_st *sample);
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
						 nvmlDevice_t *mig);
#pragma GCC visibility pop
