/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/names.h"

#include "base/macro.h"

#include <errno.h>
#include <string.h>

static const char *const priorities[] = {
	[AQD_LOW] = "low",
	[AQD_NORMAL] = "normal",
	[AQD_HIGH] = "high",
};

const char *aqd_priority_name(enum aqd_priority p)
{
	return priorities[p];
}

int aqd_priority_parse(const char *text, enum aqd_priority *ret)
{
	*ret = AQD_NORMAL;
	for (unsigned i = 0; text && i < AQ_ARRAY_SIZE(priorities); i++) {
		if (strcmp(priorities[i], text) == 0) {
			*ret = (enum aqd_priority)i;
			return 0;
		}
	}
	return text ? -EINVAL : 0;
}

const char *aqd_errno_name(int code)
{
	const char *name = strerrorname_np(-code);

	return name ? name : "EIO";
}
