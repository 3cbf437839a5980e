/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/shim-parts.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/macro.h"
#include "cli/card-server.h"
#include "proto/attach.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* "<folder>/<rest>" when that file exists; else "". */
static bool find_file(char *ret, size_t size, const char *folder, const char *rest)
{
	if (snprintf(ret, size, "%s/%s", folder, rest) < (int)size && access(ret, F_OK) == 0)
		return true;
	ret[0] = '\0';
	return false;
}

static bool find_in_build_tree(const char *folder, struct aq_shim_parts *p)
{
	if (!find_file(p->daemon, sizeof(p->daemon), folder, "../daemon/aliquotd") ||
	    !find_file(p->libcuda, sizeof(p->libcuda), folder, "../shim/cuda/libcuda.so.1"))
		return false;
	if (find_file(p->libnvml, sizeof(p->libnvml), folder, "../shim/nvml/libnvidia-ml.so.1"))
		(void)snprintf(p->libdirs, sizeof(p->libdirs), "%s/../shim/cuda:%s/../shim/nvml",
			       folder, folder);
	else
		(void)snprintf(p->libdirs, sizeof(p->libdirs), "%s/../shim/cuda", folder);
	(void)find_file(p->soft_libcuda, sizeof(p->soft_libcuda), folder,
			"../frontend/cuda/libcuda.so.1");
	(void)find_file(p->soft_libnvml, sizeof(p->soft_libnvml), folder,
			"../frontend/nvml/libnvidia-ml.so.1");
	return true;
}

static bool find_installed(const char *folder, struct aq_shim_parts *p)
{
	char root[PATH_MAX];

	if (snprintf(root, sizeof(root), "%s/%s", folder, AQ_BINDIR_UP) >= (int)sizeof(root))
		return false;
	if (!find_file(p->daemon, sizeof(p->daemon), root, AQ_SBINDIR "/aliquotd") &&
	    !find_file(p->daemon, sizeof(p->daemon), folder, "aliquotd"))
		return false;
	(void)find_file(p->probe, sizeof(p->probe), root, AQ_LIBEXECDIR "/aliquot/aliquot-probe");
	if (!find_file(p->libcuda, sizeof(p->libcuda), root, AQ_SHIMDIR "/libcuda.so.1"))
		return false;
	(void)find_file(p->libnvml, sizeof(p->libnvml), root, AQ_SHIMDIR "/libnvidia-ml.so.1");
	(void)find_file(p->soft_libcuda, sizeof(p->soft_libcuda), root, AQ_SOFTDIR "/libcuda.so.1");
	(void)find_file(p->soft_libnvml, sizeof(p->soft_libnvml), root,
			AQ_SOFTDIR "/libnvidia-ml.so.1");
	return snprintf(p->libdirs, sizeof(p->libdirs), "%s/" AQ_SHIMDIR, root) <
	       (int)sizeof(p->libdirs);
}

int aq_shim_parts_find(struct aq_shim_parts *ret, struct aq_err *err)
{
	char folder[PATH_MAX / 2];
	struct aq_shim_parts found = { 0 };
	ssize_t n = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
	char *slash;

	if (n < 0 || (size_t)n >= sizeof(folder) - 1)
		return aq_err_set(err, -ENOENT, "cannot find out where this command lies");
	folder[n] = '\0';
	slash = strrchr(folder, '/');
	if (slash)
		*slash = '\0';
	if (!find_in_build_tree(folder, &found) && !find_installed(folder, &found))
		return aq_err_set(
			err, -ENOENT,
			"aliquotd or the stand-in libcuda.so.1 is missing beside %s/aliquot",
			folder);
	*ret = found;
	return 0;
}

static bool same_file(const char *a, const char *b)
{
	struct stat sa;
	struct stat sb;

	return a[0] && b[0] && stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

/* The folder of a file; "" of "". */
static void folder_of(const char *file, char *ret, size_t size)
{
	char *slash;

	(void)snprintf(ret, size, "%s", file);
	slash = strrchr(ret, '/');
	if (slash)
		*slash = '\0';
}

/* Set a variable that is a list: `first`, then what it held except the `n` of `without`. */
static int set_list(const char *name, const char *separators, const char *first,
		    const char *const *without, size_t n)
{
	const char *old = getenv(name);
	aq_auto_free char *copy = strdup(old ? old : "");
	struct aq_strbuf joined = { 0 };
	char *rest = NULL;
	int rc;

	if (!copy)
		return -ENOMEM;
	if (first[0])
		aq_strbuf_printf(&joined, "%s", first);
	for (char *word = strtok_r(copy, separators, &rest); word;
	     word = strtok_r(NULL, separators, &rest)) {
		bool drop = false;

		for (size_t i = 0; i < n && !drop; i++)
			drop = same_file(word, without[i]);
		if (!drop)
			aq_strbuf_printf(&joined, "%s%s", joined.len ? ":" : "", word);
	}
	if (joined.failed)
		rc = -1;
	else if (joined.len)
		rc = setenv(name, aq_strbuf_text(&joined), 1);
	else
		rc = unsetenv(name);
	aq_strbuf_done(&joined);
	return rc < 0 ? -ENOMEM : 0;
}

int aq_shim_set_environment(const struct aq_shim_parts *p, const char *dir)
{
	char dirs[4][PATH_MAX];
	/* Without a stand-in for NVML the software card's stays where programs find it. */
	const char *files[] = { p->libcuda, p->libnvml, p->soft_libcuda,
				p->libnvml[0] ? p->soft_libnvml : "" };
	const char *folders[] = { dirs[0], dirs[1], dirs[2], dirs[3] };
	char preload[2 * PATH_MAX + 1];
	int rc = setenv(AQ_ATTACH_DIR_ENV, dir, 1) < 0 ? -ENOMEM : 0;

	for (size_t i = 0; i < AQ_ARRAY_SIZE(files); i++)
		folder_of(files[i], dirs[i], sizeof(dirs[i]));
	if (rc == 0)
		rc = set_list("LD_LIBRARY_PATH", ":", p->libdirs, folders, AQ_ARRAY_SIZE(folders));
	if (rc < 0)
		return rc;
	/* A sanitizer's runtime must come first among the libraries. */
	if (!AQ_PRELOAD)
		return set_list("LD_PRELOAD", ": ", "", files, AQ_ARRAY_SIZE(files));
	/* For programs that look elsewhere first: what is loaded already is found by its SONAME. */
	(void)snprintf(preload, sizeof(preload), "%s%s%s", p->libcuda, p->libnvml[0] ? ":" : "",
		       p->libnvml);
	return set_list("LD_PRELOAD", ": ", preload, files, AQ_ARRAY_SIZE(files));
}

int aq_shim_clear_environment(const struct aq_shim_parts *p)
{
	const char *files[] = { p->libcuda, p->libnvml, p->soft_libcuda, p->soft_libnvml };

	(void)unsetenv(AQ_ATTACH_DIR_ENV);
	return set_list("LD_PRELOAD", ": ", "", files, AQ_ARRAY_SIZE(files));
}
