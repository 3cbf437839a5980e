/* SPDX-License-Identifier: Apache-2.0 */
/* Where the stand-in libraries and the daemon lie that belong to this command, and the environment that leads a program to them. */
#pragma once

#include <limits.h>

struct aq_err;

struct aq_shim_parts {
	char daemon[PATH_MAX];
	char probe[PATH_MAX];	/* "": the daemon finds it */
	char libcuda[PATH_MAX]; /* the stand-in */
	char libnvml[PATH_MAX]; /* "": none installed */
	char libdirs[2 * PATH_MAX];
	/* The software card's libraries; "" when they are not installed. */
	char soft_libcuda[PATH_MAX];
	char soft_libnvml[PATH_MAX];
};

/* Returns 0, or -ENOENT with a message that names what is missing. */
int aq_shim_parts_find(struct aq_shim_parts *ret, struct aq_err *err);

/*
 * Set what a program in the vgpu with attach directory `dir` needs: ALIQUOT_VGPU_DIR, and the stand-ins in front in LD_LIBRARY_PATH and
 * LD_PRELOAD. The software card's libraries, which `aliquot soft` puts there, make way: the stand-ins load them. Returns 0 or -ENOMEM.
 */
int aq_shim_set_environment(const struct aq_shim_parts *parts, const char *dir);

/* Take all libraries of ours out of LD_PRELOAD: for the daemon. */
int aq_shim_clear_environment(const struct aq_shim_parts *parts);
