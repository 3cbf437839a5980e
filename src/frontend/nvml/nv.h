/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the NVML front end share: one session of the process with the server, shared by everybody who called nvmlInit, and the
 * snapshot of each card that was taken at its start. What changes is asked for at each call.
 *
 * NVML lists every card of the server: CUDA_VISIBLE_DEVICES is CUDA's affair. Process ids are those of the server's pid namespace.
 */
#pragma once

#include "api/nvml_abi.h"
#include "wire/client.h"
#include "wire/messages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AQ_EXPORT __attribute__((visibility("default")))

struct aq_nv_device {
	uint32_t card; /* index, also on the wire */
	struct aq_rep_card_info info;
};

/* One call of a program, from aq_nv_enter…() to aq_nv_leave(): while it lasts the session stays. */
struct aq_nv_call {
	nvmlReturn_t status; /* NVML_SUCCESS: the session is held, and dev is valid */
	const struct aq_nv_device *dev;
};

/*
 * Every exported function that needs the session begins with one of these, as
 *	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter_device(device);
 * status is UNINITIALIZED without a session, INVALID_ARGUMENT for a handle that is none of ours.
 */
struct aq_nv_call aq_nv_enter(void);
struct aq_nv_call aq_nv_enter_device(nvmlDevice_t device);
void aq_nv_leave(struct aq_nv_call *call);

/* Inside a call. */
unsigned aq_nv_count(void);
const struct aq_nv_device *aq_nv_at(unsigned index);
const struct aq_nv_device *aq_nv_device(nvmlDevice_t device); /* NULL: none of ours */
nvmlDevice_t aq_nv_handle(const struct aq_nv_device *dev);
nvmlReturn_t aq_nv_stat(const struct aq_nv_device *dev, struct aq_rep_card_stat *ret);
int aq_nv_driver_version(void);

/*
 * All processes with a context on the card, as the server lists them. On success the caller frees *ret (malloc; NULL when there are none).
 */
nvmlReturn_t aq_nv_procs(const struct aq_nv_device *dev, struct aq_wire_proc **ret,
			 unsigned *ret_n);

/* The one table from wire status (or -errno of the transport) to NVML's results. */
nvmlReturn_t aq_nv_result(int status);

/* Copy text with its NUL: INVALID_ARGUMENT for NULL, INSUFFICIENT_SIZE when it does not fit. */
nvmlReturn_t aq_nv_text(const char *text, char *buf, unsigned size);

/* "GPU-" and 36 characters. */
#define AQ_NV_UUID_SIZE 41
void aq_nv_uuid(const struct aq_nv_device *dev, char buf[static AQ_NV_UUID_SIZE]);

/*
 * The buffer protocol of lists: *count is what fits, and becomes what there is. SUCCESS: copy `have` entries. INSUFFICIENT_SIZE when they do not
 * fit (also the answer to the question *count = 0), INVALID_ARGUMENT for a NULL where entries would go.
 */
nvmlReturn_t aq_nv_list(unsigned *count, const void *entries, unsigned have);

/* What a structure says about itself in its first word. */
#define AQ_NV_CHECK_VERSION(p, v)                                  \
	((p)->version == AQ_NVML_VERSION(*(p), (v)) ? NVML_SUCCESS \
						    : NVML_ERROR_ARGUMENT_VERSION_MISMATCH)

/* The answer of every refused function: UNINITIALIZED before nvmlInit, then NOT_SUPPORTED. */
nvmlReturn_t aq_nv_refuse(const char *entry);
