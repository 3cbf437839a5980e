/* SPDX-License-Identifier: Apache-2.0 */
/* How busy a card is: with the instance's work, as far as the provider tells it apart. */
#include "shim/nvml/shim.h"

#include "base/cleanup.h"
#include "base/macro.h"

#include <stdlib.h>
#include <time.h>

/* Samples of the last second are "now". */
#define RECENT_US 1000000ULL

/* The instance's samples since then, of the processes that have a number here. NOT_FOUND when there are none. The caller frees *ret. */
static nvmlReturn_t own_samples(nvmlDevice_t device, unsigned long long since,
				nvmlProcessUtilizationSample_t **ret, unsigned *ret_n)
{
	aq_auto_free struct aq_own *own = NULL;
	unsigned card = 0;
	unsigned kept = 0;
	unsigned n = 0;
	nvmlReturn_t rc =
		AQ_FETCH(*ret, n,
			 AQ_CALL(nvmlDeviceGetProcessUtilization, device, *ret, &n, since));

	if (rc == NVML_SUCCESS)
		rc = aq_device_card(device, &card);
	if (rc != NVML_SUCCESS)
		return rc;
	own = aq_own_read(card);
	if (!own)
		return NVML_ERROR_MEMORY;
	for (unsigned i = 0; i < n; i++)
		if (aq_own_find(own, (*ret)[i].pid))
			(*ret)[kept++] = (*ret)[i];
	*ret_n = kept;
	return kept ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t ask_infos(nvmlDevice_t device, unsigned long long since,
			      nvmlProcessUtilizationInfo_v1_t *infos, unsigned *n)
{
	nvmlProcessesUtilizationInfo_t list = { AQ_NVML_VERSION(list, 1), *n, since, infos };
	nvmlReturn_t rc = AQ_CALL(nvmlDeviceGetProcessesUtilizationInfo, device, &list);

	*n = list.processSamplesCount;
	return rc;
}

/* The same in the newer form, which knows two engines more. */
static nvmlReturn_t own_infos(nvmlDevice_t device, unsigned long long since,
			      nvmlProcessUtilizationInfo_v1_t **ret, unsigned *ret_n)
{
	aq_auto_free struct aq_own *own = NULL;
	unsigned card = 0;
	unsigned kept = 0;
	unsigned n = 0;
	nvmlReturn_t rc = AQ_FETCH(*ret, n, ask_infos(device, since, *ret, &n));

	if (rc == NVML_SUCCESS)
		rc = aq_device_card(device, &card);
	if (rc != NVML_SUCCESS)
		return rc;
	own = aq_own_read(card);
	if (!own)
		return NVML_ERROR_MEMORY;
	for (unsigned i = 0; i < n; i++)
		if (aq_own_find(own, (*ret)[i].pid))
			(*ret)[kept++] = (*ret)[i];
	*ret_n = kept;
	return kept ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
						       nvmlProcessUtilizationSample_t *utilization,
						       unsigned *count, unsigned long long since)
{
	aq_auto_free nvmlProcessUtilizationSample_t *own = NULL;
	unsigned n = 0;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetProcessUtilization, device, utilization, count, since);
	if (!count)
		return AQ_CALL(nvmlDeviceGetProcessUtilization, device, utilization, NULL, since);
	rc = own_samples(device, since, &own, &n);
	if (rc != NVML_SUCCESS)
		return rc;
	/* Without an array the call asks for its length, whatever *count says. */
	if (!utilization) {
		*count = n;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	rc = aq_list_answer(count, utilization, n);
	for (unsigned i = 0; rc == NVML_SUCCESS && i < n; i++)
		utilization[i] = own[i];
	return rc;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
							     nvmlProcessesUtilizationInfo_t *info)
{
	aq_auto_free nvmlProcessUtilizationInfo_v1_t *own = NULL;
	unsigned n = 0;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetProcessesUtilizationInfo, device, info);
	if (!info)
		return AQ_CALL(nvmlDeviceGetProcessesUtilizationInfo, device, NULL);
	if (info->version != AQ_NVML_VERSION(*info, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	rc = own_infos(device, info->lastSeenTimeStamp, &own, &n);
	if (rc != NVML_SUCCESS)
		return rc;
	if (!info->procUtilArray)
		info->processSamplesCount = 0;
	rc = aq_list_answer(&info->processSamplesCount, info->procUtilArray, n);
	for (unsigned i = 0; rc == NVML_SUCCESS && i < n; i++)
		info->procUtilArray[i] = own[i];
	return rc;
}

/* ---- of the card: the sum over the instance's processes ---- */

struct sums {
	unsigned sm, mem, enc, dec, jpg, ofa;
};

static unsigned long long recent(void)
{
	struct timespec ts = { 0, 0 };

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	return (unsigned long long)ts.tv_sec * 1000000 + (unsigned long long)ts.tv_nsec / 1000 -
	       RECENT_US;
}

static void add_pct(unsigned *sum, unsigned pct)
{
	*sum = AQ_MIN(*sum + AQ_MIN(pct, 100U), 100U);
}

/* One of the two forms that own samples come in; the older one leaves two engines out. */
typedef nvmlReturn_t (*recent_fn)(nvmlDevice_t device, nvmlProcessUtilizationInfo_v1_t **ret,
				  unsigned *ret_n);

static nvmlReturn_t recent_samples(nvmlDevice_t device, nvmlProcessUtilizationInfo_v1_t **ret,
				   unsigned *ret_n)
{
	aq_auto_free nvmlProcessUtilizationSample_t *s = NULL;
	unsigned n = 0;
	nvmlReturn_t rc = own_samples(device, recent(), &s, &n);

	if (rc != NVML_SUCCESS)
		return rc;
	*ret = malloc(n * sizeof(**ret));
	if (!*ret)
		return NVML_ERROR_MEMORY;
	for (unsigned i = 0; i < n; i++)
		(*ret)[i] = (nvmlProcessUtilizationInfo_v1_t){
			.timeStamp = s[i].timeStamp,
			.pid = s[i].pid,
			.smUtil = s[i].smUtil,
			.memUtil = s[i].memUtil,
			.encUtil = s[i].encUtil,
			.decUtil = s[i].decUtil,
		};
	*ret_n = n;
	return NVML_SUCCESS;
}

static nvmlReturn_t recent_infos(nvmlDevice_t device, nvmlProcessUtilizationInfo_v1_t **ret,
				 unsigned *ret_n)
{
	return own_infos(device, recent(), ret, ret_n);
}

/* Whether no later sample of the same process is in the list. */
static bool is_last(const nvmlProcessUtilizationInfo_v1_t *s, unsigned n, unsigned i)
{
	for (unsigned k = 0; k < n; k++)
		if (s[k].pid == s[i].pid && (s[k].timeStamp > s[i].timeStamp ||
					     (s[k].timeStamp == s[i].timeStamp && k > i)))
			return false;
	return true;
}

static nvmlReturn_t sum(nvmlDevice_t device, recent_fn fetch, struct sums *ret)
{
	aq_auto_free nvmlProcessUtilizationInfo_v1_t *s = NULL;
	unsigned n = 0;
	nvmlReturn_t rc = fetch(device, &s, &n);

	*ret = (struct sums){ 0 };
	for (unsigned i = 0; rc == NVML_SUCCESS && i < n; i++) {
		if (!is_last(s, n, i))
			continue;
		add_pct(&ret->sm, s[i].smUtil);
		add_pct(&ret->mem, s[i].memUtil);
		add_pct(&ret->enc, s[i].encUtil);
		add_pct(&ret->dec, s[i].decUtil);
		add_pct(&ret->jpg, s[i].jpgUtil);
		add_pct(&ret->ofa, s[i].ofaUtil);
	}
	/* Nobody of ours has worked. */
	if (rc == NVML_ERROR_NOT_FOUND)
		return NVML_SUCCESS;
	return rc == NVML_ERROR_FUNCTION_NOT_FOUND ? NVML_ERROR_NOT_SUPPORTED : rc;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device,
						     nvmlUtilization_t *utilization)
{
	nvmlUtilization_t real = { 0, 0 };
	struct sums sums;
	unsigned card;
	nvmlReturn_t rc;

	AQ_ENTER(nvmlDeviceGetUtilizationRates, device, utilization);
	rc = AQ_CALL(nvmlDeviceGetUtilizationRates, device, utilization ? &real : NULL);
	if (rc == NVML_SUCCESS)
		rc = utilization ? aq_device_card(device, &card) : NVML_ERROR_INVALID_ARGUMENT;
	if (rc == NVML_SUCCESS && aq_limited(card)) {
		rc = sum(device, recent_samples, &sums);
		real = (nvmlUtilization_t){ sums.sm, sums.mem };
	}
	if (rc == NVML_SUCCESS)
		*utilization = real;
	return rc;
}

/* What the provider has answered for the whole card becomes the instance's part of it. */
static nvmlReturn_t engine(nvmlReturn_t rc, nvmlDevice_t device, recent_fn fetch, size_t field,
			   unsigned *utilization)
{
	struct sums sums = { 0 };
	unsigned card;

	if (rc != NVML_SUCCESS)
		return rc;
	if (!utilization)
		return NVML_ERROR_INVALID_ARGUMENT;
	rc = aq_device_card(device, &card);
	if (rc == NVML_SUCCESS && !aq_limited(card))
		return rc;
	if (rc == NVML_SUCCESS)
		rc = sum(device, fetch, &sums);
	*utilization = rc == NVML_SUCCESS ? *(unsigned *)((char *)&sums + field) : 0;
	return rc;
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *utilization,
						       unsigned *period)
{
	AQ_ENTER(nvmlDeviceGetEncoderUtilization, device, utilization, period);
	return engine(AQ_CALL(nvmlDeviceGetEncoderUtilization, device, utilization, period), device,
		      recent_samples, offsetof(struct sums, enc), utilization);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *utilization,
						       unsigned *period)
{
	AQ_ENTER(nvmlDeviceGetDecoderUtilization, device, utilization, period);
	return engine(AQ_CALL(nvmlDeviceGetDecoderUtilization, device, utilization, period), device,
		      recent_samples, offsetof(struct sums, dec), utilization);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned *utilization,
						   unsigned *period)
{
	AQ_ENTER(nvmlDeviceGetJpgUtilization, device, utilization, period);
	return engine(AQ_CALL(nvmlDeviceGetJpgUtilization, device, utilization, period), device,
		      recent_infos, offsetof(struct sums, jpg), utilization);
}

AQ_EXPORT nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned *utilization,
						   unsigned *period)
{
	AQ_ENTER(nvmlDeviceGetOfaUtilization, device, utilization, period);
	return engine(AQ_CALL(nvmlDeviceGetOfaUtilization, device, utilization, period), device,
		      recent_infos, offsetof(struct sums, ofa), utilization);
}
