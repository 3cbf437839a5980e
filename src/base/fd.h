/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors: every one is close-on-exec from birth. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A sealable memfd of `size` bytes. Returns the fd (caller closes) or -errno. */
int aq_fd_memfd(const char *name, uint64_t size);

/*
 * Send all of buf with up to one fd (fd < 0: none) on a stream socket. Never raises SIGPIPE. Returns 0 or -errno.
 */
int aq_fd_send(int sock, const void *buf, size_t len, int fd);

/*
 * Receive exactly len bytes and at most one fd (ret_fd may be NULL: then a passed fd is closed). ret_fd is -1 when none came.
 * Returns 0, -ECONNRESET at end of file, -ETIMEDOUT when the socket's receive timeout ran out, or -errno.
 */
int aq_fd_recv(int sock, void *buf, size_t len, int *ret_fd);

/* Connect to a Unix stream socket. Returns the fd (caller closes) or -errno; -ENAMETOOLONG when the path does not fit. */
int aq_fd_connect_unix(const char *path);
