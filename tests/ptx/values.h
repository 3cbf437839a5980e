/* SPDX-License-Identifier: Apache-2.0 */
/* Operands worth trying: the corners of each type, and random ones between them. */
#pragma once

#include "isa.h"

#include <stddef.h>

/* The generator's state, so that a run can be repeated. */
uint64_t aq_values_random(uint64_t *state);

/*
 * Value `index` of a type: first its corners, then random ones of many magnitudes. ret_corners, if not NULL, gets the number of corners.
 */
uint64_t aq_values_get(struct aq_form_type type, size_t index, uint64_t *state,
		       size_t *ret_corners);
