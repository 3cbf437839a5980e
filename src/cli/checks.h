/* SPDX-License-Identifier: Apache-2.0 */
/* What `aliquot doctor` looks at, which `aliquot report` includes. */
#pragma once

#include <jansson.h>

/*
 * Look at everything. An array of {"state": "ok", "warning" or "failed", "about", "text", "remedy": text or null}, the caller's; NULL without
 * memory.
 */
json_t *aq_checks_run(void);
