/* SPDX-License-Identifier: Apache-2.0 */
/* What the stand-in libraries tell a person: one line on stderr that names Aliquot, and only when something is wrong. */
#pragma once

/* One write of at most one line; "aliquot: " goes in front. Formats are those of aq_vformat(). errno is left alone. */
void aq_shim_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
