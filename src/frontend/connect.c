/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/connect.h"

#include "base/err.h"
#include "base/format.h"
#include "wire/client.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/un.h>

int aq_frontend_socket(unsigned place, char *buf, size_t size)
{
	const char *named = secure_getenv("ALIQUOT_GPUD");
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	size_t len;

	if (named && named[0]) {
		if (place > 0)
			return -ENOENT;
		len = aq_format(buf, size, "%s", named);
		return len < size ? 0 : -ENAMETOOLONG;
	}
	/* The user's own directory does not count as a place when there is none. */
	if (!runtime || !runtime[0])
		place++;
	if (place == 0)
		len = aq_format(buf, size, "%s/aliquot/gpud.sock", runtime);
	else if (place == 1)
		len = aq_format(buf, size, "/run/aliquot/gpud.sock");
	else
		return -ENOENT;
	return len < size ? 0 : -ENAMETOOLONG;
}

int aq_frontend_connect(uint64_t arena_base, uint64_t arena_size, struct aq_client **ret,
			struct aq_err *err)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];

	for (unsigned place = 0;; place++) {
		int rc = aq_frontend_socket(place, path, sizeof(path));

		if (rc == -ENOENT)
			return aq_err_set(err, -ENOENT, "no GPU server is running");
		if (rc < 0)
			return aq_err_set(err, rc, "path of the GPU server's socket is too long");
		rc = aq_client_connect(path, arena_base, arena_size, ret, err);
		if (rc == -ENOENT || rc == -ECONNREFUSED)
			continue;
		if (rc < 0)
			(void)aq_err_prefix(err, "%s", path);
		return rc;
	}
}
