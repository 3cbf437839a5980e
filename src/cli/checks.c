/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/checks.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/macro.h"
#include "cli/daemon-link.h"
#include "cli/shim-parts.h"
#include "cli/show.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum state {
	OK,
	WARNING,
	FAILED
};

__attribute__((format(printf, 5, 6))) static void add(json_t *list, enum state state,
						      const char *about, const char *remedy,
						      const char *fmt, ...)
{
	static const char *const names[] = { "ok", "warning", "failed" };
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)json_array_append_new(list,
				    json_pack("{s:s, s:s, s:s, s:s?}", "state", names[state],
					      "about", about, "text", text, "remedy", remedy));
}

static void check_kernel(json_t *list)
{
	struct utsname u;
	unsigned major = 0;
	unsigned minor = 0;

	if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2)
		return;
	if (major < 4 || (major == 4 && minor < 14))
		add(list, FAILED, "kernel", "a kernel from 4.14 on",
		    "Linux %s cannot tell a forked program from its parent", u.release);
	else
		add(list, OK, "kernel", NULL, "Linux %s on %s", u.release, u.machine);
}

static bool check_parts(json_t *list)
{
	struct aq_shim_parts parts;
	struct aq_err err = { 0 };

	if (aq_shim_parts_find(&parts, &err) < 0) {
		add(list, FAILED, "installation", "install Aliquot again", "%s", err.msg);
		return false;
	}
	add(list, OK, "installation", NULL, "stand-in for CUDA: %s", parts.libcuda);
	if (parts.libnvml[0])
		add(list, OK, "installation", NULL, "stand-in for NVML: %s", parts.libnvml);
	else
		add(list, WARNING, "installation",
		    "a version that has it; until then limits hold, but nvidia-smi shows the whole GPU",
		    "there is no stand-in for NVML");
	if (access(parts.daemon, X_OK) == 0)
		add(list, OK, "installation", NULL, "daemon: %s", parts.daemon);
	else
		add(list, FAILED, "installation", "install Aliquot again", "%s cannot be executed",
		    parts.daemon);
	return true;
}

/* Where distributions and container runtimes put the driver. */
static const char *find_driver(char *buf, size_t size)
{
	static const char *const folders[] = { "/usr/lib/x86_64-linux-gnu",
					       "/usr/lib/aarch64-linux-gnu",
					       "/usr/lib64",
					       "/usr/lib",
					       "/usr/local/nvidia/lib64",
					       "/usr/local/cuda/compat",
					       "/run/opengl-driver/lib",
					       "/usr/lib/wsl/lib" };

	for (size_t i = 0; i < AQ_ARRAY_SIZE(folders); i++) {
		(void)snprintf(buf, size, "%s/libcuda.so.1", folders[i]);
		if (access(buf, R_OK) == 0)
			return buf;
	}
	return NULL;
}

static void check_gpus(json_t *list)
{
	const char *gpud = getenv("ALIQUOT_GPUD");
	char path[200];

	if (gpud && gpud[0]) {
		aq_auto_close int fd = aq_fd_connect_unix(gpud);

		if (fd >= 0)
			add(list, OK, "GPUs", NULL, "a GPU server answers at %s", gpud);
		else
			add(list, FAILED, "GPUs", "aliquot soft serve, or unset ALIQUOT_GPUD",
			    "ALIQUOT_GPUD: nobody answers at %s: %s", gpud, strerror(-fd));
		return;
	}
	if (access("/dev/nvidiactl", F_OK) < 0 && access("/dev/dxg", F_OK) < 0) {
		add(list, WARNING, "GPUs",
		    "load NVIDIA's driver, or try without a GPU: aliquot soft -- PROGRAM",
		    "there is no NVIDIA GPU here: no /dev/nvidiactl");
		return;
	}
	if (access("/dev/nvidiactl", F_OK) == 0 && access("/dev/nvidiactl", R_OK | W_OK) < 0)
		add(list, FAILED, "GPUs", "rights to /dev/nvidia* for this user",
		    "this user may not use /dev/nvidiactl");
	if (find_driver(path, sizeof(path)))
		add(list, OK, "GPUs", NULL, "driver library: %s", path);
	else
		add(list, FAILED, "GPUs",
		    "install the driver's libraries, or give aliquotd --provider-cuda FILE",
		    "the driver is loaded, but there is no libcuda.so.1 in the usual folders");
}

static void check_cards(json_t *list, struct aq_daemon *daemon)
{
	struct aq_err err = { 0 };
	json_t *answer = NULL;
	json_t *probe;
	json_t *c;
	size_t i;

	if (aq_daemon_call(daemon, json_pack("{s:s}", "op", "cards"), &answer, &err) < 0) {
		add(list, FAILED, "cards", "aliquot report has the details", "%s", err.msg);
		return;
	}
	probe = json_object_get(answer, "probe");
	if (strcmp(aq_show_text(probe, "state"), "ok") != 0)
		add(list, FAILED, "cards", "nvidia-smi shows whether the driver itself works",
		    "the daemon cannot ask the driver (%s): %s", aq_show_text(probe, "state"),
		    aq_show_text(probe, "error"));
	else if (json_is_false(json_object_get(probe, "processes")))
		add(list, WARNING, "cards", "a daemon with root's rights, outside of containers",
		    "the driver does not say who uses a GPU: programs outside vgpus are not seen");
	json_array_foreach(json_object_get(answer, "cards"), i, c)
	{
		const char *blocked = json_string_value(json_object_get(c, "blocked"));

		if (blocked)
			add(list, WARNING, "cards", NULL, "GPU %lld is not given out: %s",
			    aq_show_number(c, "index"), blocked);
		else
			add(list, OK, "cards", NULL, "GPU %lld: %s", aq_show_number(c, "index"),
			    aq_show_text(c, "name"));
	}
	json_decref(answer);
}

static void check_symbols(json_t *list, struct aq_daemon *daemon)
{
	struct aq_err err = { 0 };
	json_t *answer = NULL;
	json_t *l;
	size_t i;

	if (aq_daemon_call(daemon, json_pack("{s:s}", "op", "symbols"), &answer, &err) < 0) {
		add(list, WARNING, "driver", NULL, "its entry points could not be compared: %s",
		    err.msg);
		return;
	}
	json_array_foreach(json_object_get(answer, "libraries"), i, l)
	{
		const char *error = json_string_value(json_object_get(l, "error"));
		size_t missing = json_array_size(json_object_get(l, "missing"));
		size_t extra = json_array_size(json_object_get(l, "extra"));

		if (error)
			add(list, FAILED, "driver", NULL, "%s: %s", aq_show_text(l, "path"), error);
		else if (extra)
			add(list, WARNING, "driver",
			    "a newer Aliquot; until then those that could allocate or launch are "
			    "refused in a limited vgpu",
			    "%s has %zu entry points that this version does not know",
			    aq_show_text(l, "path"), extra);
		else
			add(list, OK, "driver", NULL,
			    "%s: all its entry points are known, %zu known ones it lacks",
			    aq_show_text(l, "path"), missing);
	}
	json_decref(answer);
}

static void check_strangers(json_t *list, struct aq_daemon *daemon)
{
	json_t *answer = NULL;
	json_t *s;
	size_t i;

	if (aq_daemon_call(daemon, json_pack("{s:s}", "op", "list"), &answer, NULL) < 0)
		return;
	json_array_foreach(json_object_get(answer, "strangers"), i, s)
	{
		if (json_is_true(json_object_get(s, "mps")))
			add(list, WARNING, "programs",
			    "end it: echo quit | nvidia-cuda-mps-control",
			    "process %lld is an MPS server: what its clients use is not told apart",
			    aq_show_number(s, "pid"));
		else
			add(list, WARNING, "programs", "start it with aliquot run",
			    "process %lld (%s) uses GPU %lld and is in no vgpu: nothing limits it",
			    aq_show_number(s, "pid"), aq_show_text(s, "program"),
			    aq_show_number(s, "card"));
	}
	json_decref(answer);
}

static void check_daemon(json_t *list)
{
	struct aq_daemon daemon = AQ_DAEMON_NONE;
	struct aq_err err = { 0 };
	json_t *answer = NULL;

	if (aq_daemon_open(&daemon, &err) < 0) {
		bool none = err.code == -ENOENT && !getenv("ALIQUOT_DAEMON");

		add(list, none ? OK : FAILED, "daemon",
		    none ? NULL : "systemctl start aliquotd, or membership in group aliquot", "%s",
		    err.msg);
		return;
	}
	if (aq_daemon_call(&daemon, json_pack("{s:s}", "op", "version"), &answer, &err) < 0) {
		add(list, FAILED, "daemon", "restart the daemon", "%s", err.msg);
	} else {
		const char *version = aq_show_text(answer, "version");

		if (strcmp(version, AQ_VERSION) == 0)
			add(list, OK, "daemon", NULL, "%s daemon %s at %s",
			    aq_show_text(answer, "mode"), version, daemon.socket);
		else
			add(list, WARNING, "daemon", "restart the daemon; programs go on",
			    "the daemon is %s, this command " AQ_VERSION, version);
		check_cards(list, &daemon);
		check_symbols(list, &daemon);
		check_strangers(list, &daemon);
	}
	json_decref(answer);
	aq_daemon_close(&daemon);
}

static void check_environment(json_t *list)
{
	/* Others that stand before the driver: the one that is first decides. */
	static const char *const others[] = { "libvgpu.so", "libcuda-control.so", "libgemhook.so",
					      "libxgpu", "libcgpu" };
	const char *preload = getenv("LD_PRELOAD");
	const char *mps = getenv("CUDA_MPS_PIPE_DIRECTORY");

	for (size_t i = 0; preload && i < AQ_ARRAY_SIZE(others); i++) {
		if (strstr(preload, others[i]))
			add(list, WARNING, "environment", "take it out of LD_PRELOAD",
			    "LD_PRELOAD has %s, which shares GPUs in another way", others[i]);
	}
	if (mps && mps[0])
		add(list, WARNING, "environment", "unset CUDA_MPS_PIPE_DIRECTORY",
		    "CUDA_MPS_PIPE_DIRECTORY is set: programs would use an MPS server, where Aliquot "
		    "does not tell them apart");
	if (access("/etc/ld.so.preload", F_OK) == 0)
		add(list, WARNING, "environment", "look what is in it",
		    "/etc/ld.so.preload loads libraries into every program");
}

json_t *aq_checks_run(void)
{
	json_t *list = json_array();

	check_kernel(list);
	if (check_parts(list)) {
		check_gpus(list);
		check_daemon(list);
	}
	check_environment(list);
	return list;
}
