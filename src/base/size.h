/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and percents as people write them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct aq_err;

/*
 * A memory size: a bare number is MiB; "512MiB", "4GiB", "4Gi", "4g", "128Mi", "16m", "64k". "4GB" and "4MB" are refused with a
 * hint, since people mean different things by them. Returns 0 and the size in bytes, or -EINVAL, -ERANGE.
 */
int aq_size_parse(const char *text, uint64_t *ret_bytes, struct aq_err *err);

/* The size in the largest binary unit that leaves at most one decimal: "1.5 GiB", "512 MiB", "0 B". */
void aq_size_format(uint64_t bytes, char *buf, size_t buflen);

/* A percentage "0".."100", optional '%' behind. Returns 0, or -EINVAL, -ERANGE. */
int aq_percent_parse(const char *text, unsigned *ret_pct, struct aq_err *err);

/* A decimal number without sign. Returns 0, -EINVAL or -ERANGE. `what` names it in the message. */
int aq_uint_parse(const char *text, const char *what, uint64_t max, uint64_t *ret_value,
		  struct aq_err *err);
