/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private daemon and its keeper: a process of ours that starts aliquotd in a folder, starts it again when it dies, and ends it when nobody
 * needs it any more, which is when no process holds the folder's file of users and the daemon has no vgpu.
 *
 * All locks are flock(2) ones: they go with their holder, however that ends. On "users" a user holds a shared lock, the keeper that is about to end
 * the daemon an exclusive one. On "keeper" the keeper holds an exclusive one as long as it lives. On "start" is held one by who looks whether
 * a keeper must be started. The keeper removes the whole folder; whoever got a lock on a file that is no longer in the folder begins anew.
 */
#pragma once

#include <stddef.h>

struct aq_err;

/* The folder of this user's private daemon for the GPUs that programs use here. 0, or -ENAMETOOLONG. */
int aq_keeper_folder(char *buf, size_t size, struct aq_err *err);

/* Make the folder if need be and hold its file of users. Returns the fd, close-on-exec, which the caller closes to let go; or -errno. */
int aq_keeper_hold(const char *folder, struct aq_err *err);

/*
 * With the users' file held: see to it that the daemon runs. Returns 0 when its control socket answers, or -errno with the daemon's own last words
 * in the message.
 */
int aq_keeper_ensure(const char *folder, struct aq_err *err);

/* Let go of a folder in which no daemon could be started. */
void aq_keeper_abandon(const char *folder, int users_fd);

/* After letting go: wait for a keeper that is about to end, at most so long. */
void aq_keeper_wait_end(const char *folder, unsigned timeout_ms);
