/* SPDX-License-Identifier: Apache-2.0 */
/* A program that somebody asked us to run: started, told what we are told, and waited for. */
#pragma once

#include <signal.h>
#include <sys/types.h>

/* The signals that a runner must block before it starts anything: those it passes on, and SIGCHLD. */
void aq_program_signals(sigset_t *ret);

/*
 * Start argv[0] with `mask` as its signal mask. Returns its pid, or -1 with the cause printed and *ret_exit the status to end with: 127 not
 * found, 126 not executable, 125 anything else.
 */
pid_t aq_program_start(const char *verb, char **argv, const sigset_t *mask, int *ret_exit);

/*
 * Wait until it has ended, passing signals on. `on_child` (may be NULL) is called when something may have happened to another child. Returns its
 * exit status, 128 + N when signal N ended it.
 */
int aq_program_wait(pid_t pid, const sigset_t *watched, void (*on_child)(void *), void *data);
