/* SPDX-License-Identifier: Apache-2.0 */
#include "api/nvml_protos.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/macro.h"
#include "frontend/connect.h"
#include "frontend/nvml/nv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * The lock is held for reading by calls that use the session and for writing by nvmlInit and nvmlShutdown, so that a shutdown waits for calls
 * of other threads. refs counts nvmlInit calls.
 */
static struct {
	pthread_rwlock_t lock;
	unsigned refs;
	struct aq_client *client;
	unsigned n_devices;
	struct aq_nv_device device[AQ_WIRE_MAX_CARDS];
} nv = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* A forked child begins without a session: it would share sequence numbers in the ring with its parent. */
static void before_fork(void)
{
	(void)pthread_rwlock_wrlock(&nv.lock);
}

static void after_fork_parent(void)
{
	(void)pthread_rwlock_unlock(&nv.lock);
}

static void after_fork_child(void)
{
	pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;

	nv.lock = fresh;
	nv.refs = 0;
	nv.n_devices = 0;
	/* Its pages are not there in the child; what is left is a little memory and a descriptor. */
	nv.client = NULL;
}

static void watch_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

nvmlReturn_t aq_nv_result(int status)
{
	switch (status) {
	case AQ_OK:
		return NVML_SUCCESS;
	case AQ_E_INVALID:
		return NVML_ERROR_INVALID_ARGUMENT;
	case AQ_E_NO_MEMORY:
	case -ENOMEM:
		return NVML_ERROR_MEMORY;
	case AQ_E_NOT_FOUND:
		return NVML_ERROR_NOT_FOUND;
	case AQ_E_NOT_SUPPORTED:
		return NVML_ERROR_NOT_SUPPORTED;
	case AQ_E_PERMISSION:
	case -EACCES:
	case -EPERM:
		return NVML_ERROR_NO_PERMISSION;
	case AQ_E_BUSY:
		return NVML_ERROR_IN_USE;
	case AQ_E_CARD_LOST:
	case -ECONNRESET:
		return NVML_ERROR_GPU_IS_LOST;
	case AQ_E_TIMEOUT:
	case -ETIMEDOUT:
		return NVML_ERROR_TIMEOUT;
	case -ENOENT:
	case -ECONNREFUSED:
		return NVML_ERROR_DRIVER_NOT_LOADED;
	case -EPROTO:
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

/* With the lock held for writing. */
static nvmlReturn_t connect_locked(void)
{
	struct aq_client *client = NULL;
	int rc = aq_frontend_connect(0, 0, &client, NULL);
	unsigned n;

	if (rc < 0)
		return aq_nv_result(rc);
	n = aq_client_welcome(client)->n_cards;
	for (unsigned i = 0; i < n; i++) {
		struct aq_req_card_info req = { .card = i };

		nv.device[i].card = i;
		rc = AQ_CALL(client, CARD_INFO, card_info, &req, &nv.device[i].info);
		if (rc != AQ_OK) {
			aq_client_close(client);
			return aq_nv_result(rc);
		}
		/* Foreign text: terminated, whatever the server sent. */
		nv.device[i].info.name[sizeof(nv.device[i].info.name) - 1] = '\0';
		nv.device[i].info.serial[sizeof(nv.device[i].info.serial) - 1] = '\0';
		nv.device[i].info.vbios[sizeof(nv.device[i].info.vbios) - 1] = '\0';
	}
	nv.client = client;
	nv.n_devices = n;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
	nvmlReturn_t status = NVML_SUCCESS;

	/* Without cards a session succeeds anyhow, and there is nothing to attach: the flags change nothing. */
	if (flags &
	    ~(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH | NVML_INIT_FLAG_FORCE_INIT))
		return NVML_ERROR_INVALID_ARGUMENT;
	(void)pthread_once(&fork_once, watch_forks);
	(void)pthread_rwlock_wrlock(&nv.lock);
	if (!nv.client)
		status = connect_locked();
	if (status == NVML_SUCCESS)
		nv.refs++;
	(void)pthread_rwlock_unlock(&nv.lock);
	return status;
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t status = NVML_SUCCESS;

	(void)pthread_rwlock_wrlock(&nv.lock);
	if (nv.refs == 0) {
		status = NVML_ERROR_UNINITIALIZED;
	} else if (--nv.refs == 0) {
		aq_client_close(nv.client);
		nv.client = NULL;
		nv.n_devices = 0;
	}
	(void)pthread_rwlock_unlock(&nv.lock);
	return status;
}

struct aq_nv_call aq_nv_enter(void)
{
	struct aq_nv_call call = { .status = NVML_SUCCESS };

	(void)pthread_rwlock_rdlock(&nv.lock);
	if (nv.refs == 0) {
		(void)pthread_rwlock_unlock(&nv.lock);
		call.status = NVML_ERROR_UNINITIALIZED;
	}
	return call;
}

struct aq_nv_call aq_nv_enter_device(nvmlDevice_t device)
{
	struct aq_nv_call call = aq_nv_enter();

	if (call.status != NVML_SUCCESS)
		return call;
	call.dev = aq_nv_device(device);
	if (!call.dev) {
		(void)pthread_rwlock_unlock(&nv.lock);
		call.status = NVML_ERROR_INVALID_ARGUMENT;
	}
	return call;
}

void aq_nv_leave(struct aq_nv_call *call)
{
	if (call->status == NVML_SUCCESS)
		(void)pthread_rwlock_unlock(&nv.lock);
}

unsigned aq_nv_count(void)
{
	return nv.n_devices;
}

const struct aq_nv_device *aq_nv_at(unsigned index)
{
	return index < nv.n_devices ? &nv.device[index] : NULL;
}

/* A handle is the address of our record: it stays the same over shutdown and a new init. */
const struct aq_nv_device *aq_nv_device(nvmlDevice_t device)
{
	uintptr_t offset = (uintptr_t)device - (uintptr_t)nv.device;

	if (offset % sizeof(nv.device[0]) != 0)
		return NULL;
	return offset / sizeof(nv.device[0]) < nv.n_devices
		       ? &nv.device[offset / sizeof(nv.device[0])]
		       : NULL;
}

nvmlDevice_t aq_nv_handle(const struct aq_nv_device *dev)
{
	return (nvmlDevice_t)(uintptr_t)dev;
}

int aq_nv_driver_version(void)
{
	return (int)aq_client_welcome(nv.client)->driver_version;
}

nvmlReturn_t aq_nv_stat(const struct aq_nv_device *dev, struct aq_rep_card_stat *ret)
{
	struct aq_req_card_stat req = { .card = dev->card };

	return aq_nv_result(AQ_CALL(nv.client, CARD_STAT, card_stat, &req, ret));
}

/* One page of the list; the number of entries is checked against what really came. */
static nvmlReturn_t procs_page(const struct aq_nv_device *dev, unsigned first,
			       struct aq_rep_card_procs *rep)
{
	struct aq_req_card_procs req = { .card = dev->card, .first = first };
	struct aq_client_msg msg = { AQ_OP_CARD_PROCS, &req, sizeof(req), NULL, 0 };
	size_t len = 0;
	int rc = aq_client_call(nv.client, &msg, rep, sizeof(*rep), &len);

	if (rc != AQ_OK)
		return aq_nv_result(rc);
	if (len < offsetof(struct aq_rep_card_procs, proc) || rep->n > AQ_WIRE_PROCS_MAX ||
	    len < offsetof(struct aq_rep_card_procs, proc) + rep->n * sizeof(rep->proc[0]))
		return NVML_ERROR_UNKNOWN;
	return NVML_SUCCESS;
}

nvmlReturn_t aq_nv_procs(const struct aq_nv_device *dev, struct aq_wire_proc **ret, unsigned *ret_n)
{
	aq_auto_free struct aq_rep_card_procs *page = malloc(sizeof(*page));
	aq_auto_free struct aq_wire_proc *all = NULL;
	unsigned n = 0;

	if (!page)
		return NVML_ERROR_MEMORY;
	do {
		nvmlReturn_t status = procs_page(dev, n, page);
		struct aq_wire_proc *more;

		if (status != NVML_SUCCESS)
			return status;
		if (page->n == 0)
			break;
		more = realloc(all, (n + page->n) * sizeof(*all));
		if (!more)
			return NVML_ERROR_MEMORY;
		all = more;
		memcpy(&all[n], page->proc, page->n * sizeof(*all));
		n += page->n;
	} while (n < page->total);
	*ret = aq_take_ptr(all);
	*ret_n = n;
	return NVML_SUCCESS;
}

nvmlReturn_t aq_nv_refuse(const char *entry)
{
	aq_auto(aq_nv_leave) struct aq_nv_call call = aq_nv_enter();

	/* Whoever asks for the private tables must be able to tell a library that has none from a card without a feature. */
	if (strcmp(entry, "nvmlInternalGetExportTable") == 0)
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	return call.status == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : call.status;
}
