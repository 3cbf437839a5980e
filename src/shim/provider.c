/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/provider.h"

#include "base/err.h"
#include "shim/libc.h"

#include <errno.h>
#include <link.h>
#include <stdint.h>

/* Start of the loaded image that an address belongs to: enough to tell whether it is our own. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

void *aq_provider_open(const char *path, struct aq_err *err)
{
	int saved = errno;
	void *handle;

	if (path[0] != '/') {
		(void)aq_err_set(err, -EINVAL, "driver library '%s' is not an absolute path", path);
		return NULL;
	}
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		const char *why = dlerror();

		(void)aq_err_set(err, -ELIBACC, "driver library: %s", why ? why : path);
	} else if (((const struct link_map *)handle)->l_addr == (uintptr_t)__ehdr_start) {
		(void)aq_err_set(err, -ELOOP, "driver library %s is this stand-in itself", path);
		handle = NULL;
	}
	errno = saved;
	return handle;
}

size_t aq_provider_resolve(void *handle, const char *const *names, size_t n, void *missing,
			   void **slots)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		void *fn = dlsym(handle, names[i]);

		__atomic_store_n(&slots[i], fn ? fn : missing, __ATOMIC_RELEASE);
		found += fn != NULL;
	}
	(void)dlerror();
	return found;
}
