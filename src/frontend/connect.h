/* SPDX-License-Identifier: Apache-2.0 */
/* Where the front ends find their server: one rule for CUDA and NVML. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct aq_client;
struct aq_err;

/*
 * The places to look, best first: $ALIQUOT_GPUD alone when it is set (and not empty), else $XDG_RUNTIME_DIR/aliquot/gpud.sock, then
 * /run/aliquot/gpud.sock. A program with raised privileges (AT_SECURE) looks only at the last. Writes the path for `place` 0, 1, … and
 * returns 0; -ENOENT behind the last, -ENAMETOOLONG when buf is too small.
 */
int aq_frontend_socket(unsigned place, char *buf, size_t size);

/*
 * Connect to the first place where a server answers. The arena is as in aq_client_connect(); a client that maps nothing gives 0, 0.
 * Returns 0 with *ret owned by the caller. -ENOENT: nobody listens anywhere. Any other error of a place ends the search: a server that is there
 * but cannot be talked to is to be told, not hidden behind another one.
 */
int aq_frontend_connect(uint64_t arena_base, uint64_t arena_size, struct aq_client **ret,
			struct aq_err *err);
