/* SPDX-License-Identifier: Apache-2.0 */
/* An aliquot-gpud of our own: found, started, waited for, and ended. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct aq_err;

/* Whether LD_PRELOAD is used: a sanitizer's runtime must come first among the libraries; a preloaded library of ours would come before it. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#	define AQ_PRELOAD false
#elif defined(__has_feature)
#	if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#		define AQ_PRELOAD false
#	endif
#endif
#ifndef AQ_PRELOAD
#	define AQ_PRELOAD true
#endif

/* Where the parts are that belong to this command: beside it in a build tree or under one prefix. */
struct aq_parts {
	char gpud[PATH_MAX];
	char libdirs[2 * PATH_MAX]; /* as LD_LIBRARY_PATH has them */
	char libcuda[PATH_MAX];
	char libnvml[PATH_MAX];
};

/* Returns 0, or -ENOENT with a message that names what is missing. */
int aq_parts_find(struct aq_parts *ret, struct aq_err *err);

/*
 * Set what a program needs to find the software cards at `socket`: ALIQUOT_GPUD, LD_LIBRARY_PATH, LD_PRELOAD (behind what is there).
 * Returns 0 or -ENOMEM.
 */
int aq_parts_set_environment(const struct aq_parts *parts, const char *socket);

struct aq_card_server {
	pid_t pid;	       /* 0: not running */
	char folder[PATH_MAX]; /* made by us, "" when the socket's place was given */
	char socket[PATH_MAX];
	int status; /* of waitpid, once it has ended */
};

#define AQ_CARD_PROFILES 16

struct aq_card_options {
	const char *profiles[AQ_CARD_PROFILES]; /* one a card, the last one for the rest */
	size_t n_profiles;			/* 0: the server's default */
	const char *cards;			/* number, as text; NULL: one a profile */
	const char *socket;			/* NULL: in a folder of our own, mode 0700 */
};

/* Add a --profile. False when there are too many. */
bool aq_card_options_add_profile(struct aq_card_options *options, const char *profile);

/*
 * Start the server and wait until it answers. It lives in a process group of its own, so that a terminal's signals do not reach it, and ends
 * with us at the latest. On success the caller calls aq_card_server_stop(). What the server itself found wrong is on stderr already.
 */
int aq_card_server_start(struct aq_card_server *s, const struct aq_parts *parts,
			 const struct aq_card_options *options, struct aq_err *err);

/* End it, if it still runs, and remove our folder. */
void aq_card_server_stop(struct aq_card_server *s);

/* "ended with status 1", "was ended by signal 9 (Killed)" */
void aq_describe_status(int status, char *buf, size_t size);
