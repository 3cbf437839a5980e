/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who uses a card: processes of the instance and no others. Which those are is what they say about themselves on the instance's report page, what
 * they have is their account there; the provider adds which of them draw or go through MPS.
 */
#include "shim/nvml/shim.h"

#include "base/cleanup.h"
#include "base/macro.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_BYTES UINT64_MAX /* NVML's "the figure is not available" */

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX - 1 : sum;
}

/* One that has ended keeps its account until the driver has taken its memory back; it is no process any more. */
static bool is_gone(uint32_t pid)
{
	int saved = errno;
	bool gone = kill((pid_t)pid, 0) < 0 && errno == ESRCH;

	errno = saved;
	return gone;
}

struct aq_own *aq_own_read(unsigned card)
{
	struct aq_attachment *a = &aq_attachment_here;
	struct aq_own *own = malloc(sizeof(*own));
	uint32_t high;
	uint64_t ns;

	if (!own)
		return NULL;
	own->n = 0;
	aq_attach_enter();
	high = AQ_MIN(atomic_load(&a->control->slots_high), AQ_MAX_CLIENTS);
	ns = atomic_load(&a->report->client[atomic_load(&a->slot)].pid_ns);
	for (uint32_t i = 0; i < high; i++) {
		struct aq_report_client *c = &a->report->client[i];
		struct aq_account *account = &a->report->account[card][i];
		uint32_t pid = atomic_load(&c->pid);

		if (!pid || pid > INT32_MAX || atomic_load(&c->pid_ns) != ns || is_gone(pid))
			continue;
		own->p[own->n++] =
			(struct aq_own_process){ pid,
						 add_saturating(atomic_load(&account->used),
								atomic_load(&account->overhead)) };
	}
	aq_attach_leave();
	return own;
}

const struct aq_own_process *aq_own_find(const struct aq_own *own, uint32_t pid)
{
	for (unsigned i = 0; i < own->n; i++)
		if (own->p[i].pid == pid)
			return &own->p[i];
	return NULL;
}

nvmlReturn_t aq_list_answer(unsigned *count, const void *entries, unsigned have)
{
	unsigned fits;

	if (!count || (*count > 0 && !entries))
		return NVML_ERROR_INVALID_ARGUMENT;
	fits = *count;
	*count = have;
	return fits < have ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* As in nvmlProcessDetailList_t. */
enum list_mode {
	LIST_COMPUTE = 0,
	LIST_GRAPHICS = 1,
	LIST_MPS = 2,
};

typedef nvmlReturn_t (*list_fn)(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos);
typedef nvmlReturn_t (*list_v1_fn)(nvmlDevice_t device, unsigned *count,
				   nvmlProcessInfo_v1_t *infos);

#define PICK(kind)                                                     \
	(aq_offers(AQ_SLOT_nvmlDeviceGet##kind##RunningProcesses_v3)   \
		 ? AQ_REAL(nvmlDeviceGet##kind##RunningProcesses_v3)   \
	 : aq_offers(AQ_SLOT_nvmlDeviceGet##kind##RunningProcesses_v2) \
		 ? AQ_REAL(nvmlDeviceGet##kind##RunningProcesses_v2)   \
		 : NULL)

/* The newest version that the provider has and that tells of parts of cards; NULL: none. */
static list_fn newest(enum list_mode mode)
{
	if (mode == LIST_COMPUTE)
		return PICK(Compute);
	return mode == LIST_GRAPHICS ? PICK(Graphics) : PICK(MPSCompute);
}

static list_v1_fn oldest(enum list_mode mode)
{
	if (mode == LIST_COMPUTE)
		return AQ_REAL(nvmlDeviceGetComputeRunningProcesses);
	return mode == LIST_GRAPHICS ? AQ_REAL(nvmlDeviceGetGraphicsRunningProcesses)
				     : AQ_REAL(nvmlDeviceGetMPSComputeRunningProcesses);
}

/* All that the provider lists, whoever it belongs to. The caller frees *ret. */
static nvmlReturn_t provider_list(enum list_mode mode, nvmlDevice_t device, nvmlProcessInfo_t **ret,
				  unsigned *ret_n)
{
	aq_auto_free nvmlProcessInfo_v1_t *old = NULL;
	list_fn fn = newest(mode);
	list_v1_fn old_fn = oldest(mode);
	unsigned n = 0;
	nvmlReturn_t rc;

	if (fn) {
		rc = AQ_FETCH(*ret, n, AQ_CALL_FN(fn, device, &n, *ret));
		*ret_n = rc == NVML_SUCCESS ? n : 0;
		return rc;
	}
	rc = AQ_FETCH(old, n, AQ_CALL_FN(old_fn, device, &n, old));
	if (rc != NVML_SUCCESS)
		return rc;
	*ret = malloc((n + 1) * sizeof(**ret));
	if (!*ret)
		return NVML_ERROR_MEMORY;
	for (unsigned i = 0; i < n; i++)
		(*ret)[i] = (nvmlProcessInfo_t){ old[i].pid, old[i].usedGpuMemory, NVML_NO_INSTANCE,
						 NVML_NO_INSTANCE };
	*ret_n = n;
	return NVML_SUCCESS;
}

static const nvmlProcessInfo_t *find_listed(const nvmlProcessInfo_t *listed, unsigned n,
					    uint32_t pid)
{
	for (unsigned i = 0; i < n; i++)
		if (listed[i].pid == pid)
			return &listed[i];
	return NULL;
}

/* The instance's processes of that kind on the card. The caller frees *ret. */
static nvmlReturn_t own_list(enum list_mode mode, nvmlDevice_t device, nvmlProcessInfo_t **ret,
			     unsigned *ret_n)
{
	aq_auto_free nvmlProcessInfo_t *listed = NULL;
	aq_auto_free struct aq_own *own = NULL;
	unsigned n_listed = 0;
	unsigned card = 0;
	unsigned n = 0;
	nvmlReturn_t rc = provider_list(mode, device, &listed, &n_listed);

	/* A driver that keeps no figures of processes: the accounts say who computes. */
	if (rc == NVML_ERROR_NOT_SUPPORTED && mode == LIST_COMPUTE)
		rc = NVML_SUCCESS;
	if (rc == NVML_SUCCESS)
		rc = aq_device_card(device, &card);
	if (rc != NVML_SUCCESS)
		return rc;
	own = aq_own_read(card);
	*ret = own ? malloc((own->n + 1) * sizeof(**ret)) : NULL;
	if (!*ret)
		return NVML_ERROR_MEMORY;
	for (unsigned i = 0; i < own->n; i++) {
		const nvmlProcessInfo_t *real = find_listed(listed, n_listed, own->p[i].pid);
		nvmlProcessInfo_t *e = &(*ret)[n];

		if (!real && (mode != LIST_COMPUTE || !own->p[i].bytes))
			continue;
		*e = (nvmlProcessInfo_t){ own->p[i].pid, own->p[i].bytes, NVML_NO_INSTANCE,
					  NVML_NO_INSTANCE };
		if (real) {
			e->gpuInstanceId = real->gpuInstanceId;
			e->computeInstanceId = real->computeInstanceId;
			if (!aq_limited(card) && real->usedGpuMemory != UNKNOWN_BYTES)
				e->usedGpuMemory = real->usedGpuMemory;
		}
		n++;
	}
	*ret_n = n;
	return NVML_SUCCESS;
}

static nvmlReturn_t answer_v1(enum list_mode mode, nvmlDevice_t device, unsigned *count,
			      nvmlProcessInfo_v1_t *infos)
{
	aq_auto_free nvmlProcessInfo_t *own = NULL;
	unsigned n = 0;
	nvmlReturn_t rc = own_list(mode, device, &own, &n);

	if (rc == NVML_SUCCESS)
		rc = aq_list_answer(count, infos, n);
	for (unsigned i = 0; rc == NVML_SUCCESS && i < n; i++)
		infos[i] = (nvmlProcessInfo_v1_t){ own[i].pid, own[i].usedGpuMemory };
	return rc;
}

static nvmlReturn_t answer_v2(enum list_mode mode, nvmlDevice_t device, unsigned *count,
			      nvmlProcessInfo_t *infos)
{
	aq_auto_free nvmlProcessInfo_t *own = NULL;
	unsigned n = 0;
	nvmlReturn_t rc = own_list(mode, device, &own, &n);

	if (rc == NVML_SUCCESS)
		rc = aq_list_answer(count, infos, n);
	if (rc == NVML_SUCCESS && n)
		memcpy(infos, own, n * sizeof(*infos));
	return rc;
}

#define LIST_ENTER(name)                                      \
	do {                                                  \
		AQ_ENTER(name, device, count, infos);         \
		if (!aq_offers(AQ_SLOT_##name))               \
			return NVML_ERROR_FUNCTION_NOT_FOUND; \
	} while (0)

AQ_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
							    nvmlProcessInfo_v1_t *infos)
{
	LIST_ENTER(nvmlDeviceGetComputeRunningProcesses);
	return answer_v1(LIST_COMPUTE, device, count, infos);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
							       nvmlProcessInfo_v2_t *infos)
{
	LIST_ENTER(nvmlDeviceGetComputeRunningProcesses_v2);
	return answer_v2(LIST_COMPUTE, device, count, infos);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
							       nvmlProcessInfo_t *infos)
{
	LIST_ENTER(nvmlDeviceGetComputeRunningProcesses_v3);
	return answer_v2(LIST_COMPUTE, device, count, infos);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned *count,
							     nvmlProcessInfo_v1_t *infos)
{
	LIST_ENTER(nvmlDeviceGetGraphicsRunningProcesses);
	return answer_v1(LIST_GRAPHICS, device, count, infos);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device,
								unsigned *count,
								nvmlProcessInfo_v2_t *infos)
{
	LIST_ENTER(nvmlDeviceGetGraphicsRunningProcesses_v2);
	return answer_v2(LIST_GRAPHICS, device, count, infos);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device,
								unsigned *count,
								nvmlProcessInfo_t *infos)
{
	LIST_ENTER(nvmlDeviceGetGraphicsRunningProcesses_v3);
	return answer_v2(LIST_GRAPHICS, device, count, infos);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
							       nvmlProcessInfo_v1_t *infos)
{
	LIST_ENTER(nvmlDeviceGetMPSComputeRunningProcesses);
	return answer_v1(LIST_MPS, device, count, infos);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device,
								  unsigned *count,
								  nvmlProcessInfo_v2_t *infos)
{
	LIST_ENTER(nvmlDeviceGetMPSComputeRunningProcesses_v2);
	return answer_v2(LIST_MPS, device, count, infos);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
								  unsigned *count,
								  nvmlProcessInfo_t *infos)
{
	LIST_ENTER(nvmlDeviceGetMPSComputeRunningProcesses_v3);
	return answer_v2(LIST_MPS, device, count, infos);
}

/* The version that this one knows; of others it could not tell where the entries are. */
AQ_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
							     nvmlProcessDetailList_t *list)
{
	aq_auto_free nvmlProcessInfo_t *own = NULL;
	unsigned n = 0;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetRunningProcessDetailList, device, list);
	if (!aq_offers(AQ_SLOT_nvmlDeviceGetRunningProcessDetailList))
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	if (!list || list->mode > LIST_MPS)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (list->version != AQ_NVML_VERSION(*list, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	rc = own_list((enum list_mode)list->mode, device, &own, &n);
	if (rc == NVML_SUCCESS)
		rc = aq_list_answer(&list->numProcArrayEntries, list->procArray, n);
	for (unsigned i = 0; rc == NVML_SUCCESS && i < n; i++)
		list->procArray[i] = (nvmlProcessDetail_v1_t){ own[i].pid, own[i].usedGpuMemory,
							       own[i].gpuInstanceId,
							       own[i].computeInstanceId, 0 };
	return rc;
}
