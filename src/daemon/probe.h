/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of aliquot-probe. */
#pragma once

#include <jansson.h>

/* {"cards": […], "usage": […], "processes": bool} or {"error": "…"}. Loads and starts NVML when it has not yet. */
json_t *aq_probe_read_cards(const char *library);

/* One element of "libraries" in docs/control.md. The library is read as a file, not loaded. `path` may be NULL. */
json_t *aq_probe_compare(const char *kind, const char *path);
