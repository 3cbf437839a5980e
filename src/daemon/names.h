/* SPDX-License-Identifier: Apache-2.0 */
/* Words for enumerators, in the state file and on the control socket. */
#pragma once

#include "daemon/daemon.h"

const char *aqd_priority_name(enum aqd_priority p);
/* NULL is "normal". 0, or -EINVAL. */
int aqd_priority_parse(const char *text, enum aqd_priority *ret);
/* "EBUSY" for -EBUSY; "EIO" for what has no name. */
const char *aqd_errno_name(int code);
