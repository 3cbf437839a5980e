/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of live handles of the process: whatever the application passes is looked up here before it is believed. Lookup takes no system
 * call and no allocation; it is on the launch path.
 */
#pragma once

#include <stdbool.h>

enum aq_fe_kind {
	AQ_FE_CTX = 1,
	AQ_FE_STREAM,
	AQ_FE_EVENT,
	AQ_FE_MODULE,
	AQ_FE_LIBRARY,
	AQ_FE_FUNCTION,
	AQ_FE_KERNEL,
	AQ_FE_ARRAY,
	AQ_FE_MIPMAP,
	AQ_FE_POOL,
	AQ_FE_PHYS,
	AQ_FE_LINK,
};

/* Register an object under its kind. False: out of memory. */
bool aq_fe_handle_add(enum aq_fe_kind kind, void *object);

/* The object if it is registered under this kind, else NULL. NULL in, NULL out. */
void *aq_fe_handle_get(enum aq_fe_kind kind, const void *handle);

/* Forget it; true if it was registered (of two concurrent removers one wins). */
bool aq_fe_handle_remove(enum aq_fe_kind kind, const void *handle);
