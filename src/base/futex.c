/* SPDX-License-Identifier: Apache-2.0 */
#include "base/futex.h"

#include "base/macro.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int aq_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct timespec ts;
	int saved = errno;
	int rc = 0;

	ts.tv_sec = (time_t)(timeout_ns / AQ_NS_PER_S);
	ts.tv_nsec = (long)(timeout_ns % AQ_NS_PER_S);
	if (syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout_ns == UINT64_MAX ? NULL : &ts,
		    NULL, 0) < 0 &&
	    errno != EAGAIN)
		rc = -errno;
	errno = saved;
	return rc;
}

void aq_futex_wake(_Atomic uint32_t *word, int count)
{
	int saved = errno;

	(void)syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
	errno = saved;
}
