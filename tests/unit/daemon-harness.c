/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon-harness.h"

#include "api/cuda_abi.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "proto/control.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

char work_dir[40];
int passed_fds[8];
const char *passed_names[8];
int n_passed;

static pid_t server = -1;
static char gpud_socket[64];

/* Start a program that says when it is ready on descriptor 99. Returns its pid; its exit status in *ret_status when it ends first. */
static pid_t start_ready(char *const args[], int *ret_status)
{
	int ready[2];
	char byte;
	pid_t pid;
	ssize_t n;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	(void)fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char text[256] = "";

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < n_passed; i++) {
			(void)dup2(passed_fds[i], 3 + i);
			size_t len = strlen(text);

			(void)snprintf(text + len, sizeof(text) - len, "%s%s", i ? ":" : "",
				       passed_names[i]);
		}
		if (n_passed) {
			char number[16];

			(void)setenv("LISTEN_FDNAMES", text, 1);
			(void)snprintf(number, sizeof(number), "%d", n_passed);
			(void)setenv("LISTEN_FDS", number, 1);
			(void)snprintf(number, sizeof(number), "%d", (int)getpid());
			(void)setenv("LISTEN_PID", number, 1);
		}
		(void)dup2(ready[1], 99);
		(void)execv(args[0], args);
		_exit(127);
	}
	(void)close(ready[1]);
	n = read(ready[0], &byte, 1);
	(void)close(ready[0]);
	*ret_status = 0;
	if (n != 1) {
		assert_int_equal(waitpid(pid, ret_status, 0), pid);
		return 0;
	}
	return pid;
}

int start_cards(void **state)
{
	char *args[] = { (char *)AQ_GPUD_PATH, (char *)"--socket",
			 gpud_socket,	       (char *)"--cards",
			 (char *)"2",	       (char *)"--ready-fd",
			 (char *)"99",	       NULL };
	int status;

	(void)state;
	(void)snprintf(work_dir, sizeof(work_dir), "/tmp/aliquot-test.XXXXXX");
	if (!mkdtemp(work_dir))
		return -1;
	(void)snprintf(gpud_socket, sizeof(gpud_socket), "%s/gpud.sock", work_dir);
	(void)setenv("ALIQUOT_GPUD", gpud_socket, 1);
	server = start_ready(args, &status);
	return server > 0 ? 0 : -1;
}

int stop_cards(void **state)
{
	char command[80];

	(void)state;
	end(server);
	(void)snprintf(command, sizeof(command), "rm -rf %s", work_dir);
	return system(command) == 0 ? 0 : -1; /* NOLINT(cert-env33-c): a fixed command */
}

static pid_t launch(const char *dir, bool system, const char *const more[], int *ret_status)
{
	char locks[64];
	char state[80];
	char *args[40] = { (char *)AQ_DAEMON_PATH,
			   (char *)"--dir",
			   (char *)dir,
			   (char *)"--lock-dir",
			   locks,
			   (char *)"--provider-cuda",
			   (char *)AQ_TEST_LIBCUDA,
			   (char *)"--provider-nvml",
			   (char *)AQ_TEST_LIBNVML,
			   (char *)"--probe",
			   (char *)AQ_PROBE_EXE,
			   (char *)"--ready-fd",
			   (char *)"99",
			   (char *)"--log-level",
			   (char *)"error",
			   (char *)"--poll-ms",
			   (char *)"100" };
	int n = 17;

	(void)snprintf(locks, sizeof(locks), "%s/locks", work_dir);
	(void)snprintf(state, sizeof(state), "%s/state.json", dir);
	if (system) {
		args[n++] = (char *)"--allow-software";
		args[n++] = (char *)"--state";
		args[n++] = state;
	} else {
		args[n++] = (char *)"--private";
	}
	for (; more && *more; more++)
		args[n++] = (char *)*more;
	return start_ready(args, ret_status);
}

static bool is_system; /* of the daemon that was started last */

void daemon_start(struct daemon *d, const char *name, bool system, const char *const more[])
{
	(void)snprintf(d->dir, sizeof(d->dir), "%s/%s", work_dir, name);
	is_system = system;
	daemon_restart(d, more);
}

void daemon_restart(struct daemon *d, const char *const more[])
{
	int status;

	d->pid = launch(d->dir, is_system, more, &status);
	assert_true(d->pid > 0);
	d->control = control_connect(d);
	assert_true(d->control >= 0);
}

int daemon_try(const char *name, const char *const more[])
{
	char dir[64];
	int status;
	pid_t pid;

	(void)snprintf(dir, sizeof(dir), "%s/%s", work_dir, name);
	pid = launch(dir, false, more, &status);
	if (pid > 0) {
		end(pid);
		return 0;
	}
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

void daemon_kill(struct daemon *d, int sig)
{
	int status;

	(void)close(d->control);
	assert_int_equal(kill(d->pid, sig), 0);
	assert_int_equal(waitpid(d->pid, &status, 0), d->pid);
	if (sig == SIGTERM)
		assert_int_equal(status, 0);
}

void end(pid_t pid)
{
	if (pid > 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
}

int control_connect(const struct daemon *d)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/" AQ_CONTROL_SOCKET, d->dir);
	return aq_fd_connect_unix(path);
}

__attribute__((format(printf, 2, 0))) static json_t *ask_v(int sock, const char *fmt, va_list ap)
{
	char text[2048];
	struct aq_err err = { 0 };
	char *answer = NULL;
	json_t *j;

	(void)vsnprintf(text, sizeof(text), fmt, ap);
	for (char *p = text; *p; p++) {
		if (*p == '\'')
			*p = '"';
	}
	if (aq_control_call(sock, text, &answer, &err) < 0)
		return NULL;
	j = json_loads(answer, JSON_REJECT_DUPLICATES, NULL);
	free(answer);
	assert_non_null(j);
	return j;
}

json_t *ask(int sock, const char *fmt, ...)
{
	va_list ap;
	json_t *j;

	va_start(ap, fmt);
	j = ask_v(sock, fmt, ap);
	va_end(ap);
	return j;
}

void grant(const struct daemon *d, const char *fmt, ...)
{
	va_list ap;
	json_t *j;

	va_start(ap, fmt);
	j = ask_v(d->control, fmt, ap);
	va_end(ap);
	assert_non_null(j);
	if (!json_is_true(json_object_get(j, "ok")))
		fail_msg("refused: %s", json_string_value(json_object_get(j, "error")));
	json_decref(j);
}

void refuse(const struct daemon *d, const char *code, const char *fmt, ...)
{
	va_list ap;
	json_t *j;

	va_start(ap, fmt);
	j = ask_v(d->control, fmt, ap);
	va_end(ap);
	assert_non_null(j);
	assert_true(json_is_false(json_object_get(j, "ok")));
	assert_non_null(json_string_value(json_object_get(j, "error")));
	assert_string_equal(json_string_value(json_object_get(j, "code")), code);
	json_decref(j);
}

static json_t *at_path(json_t *j, const char *path)
{
	char buf[128];
	char *save = NULL;

	(void)snprintf(buf, sizeof(buf), "%s", path);
	for (char *p = strtok_r(buf, "/", &save); p && j; p = strtok_r(NULL, "/", &save)) {
		if (json_is_array(j))
			j = json_array_get(j, strtoul(p, NULL, 10));
		else
			j = json_object_get(j, p);
	}
	return j;
}

static json_t *list(const struct daemon *d, const char *vgpu)
{
	json_t *j = vgpu ? ask(d->control, "{'op':'list','name':'%s'}", vgpu)
			 : ask(d->control, "{'op':'list'}");

	assert_non_null(j);
	return j;
}

int64_t look(const struct daemon *d, const char *vgpu, const char *path)
{
	json_t *j = list(d, vgpu);
	json_t *v = at_path(j, path);
	int64_t n = -1;

	if (json_is_integer(v))
		n = json_integer_value(v);
	else if (json_is_array(v))
		n = (int64_t)json_array_size(v);
	json_decref(j);
	return n;
}

const char *look_text(const struct daemon *d, const char *vgpu, const char *path)
{
	static char text[256];
	json_t *j = list(d, vgpu);
	const char *found = json_string_value(at_path(j, path));

	(void)snprintf(text, sizeof(text), "%s", found ? found : "");
	json_decref(j);
	return text;
}

bool wait_for(const struct daemon *d, const char *vgpu, const char *path, int64_t value, int ms)
{
	uint64_t until = aq_now_ns() + (uint64_t)ms * 1000000;

	while (look(d, vgpu, path) != value) {
		if (aq_now_ns() > until)
			return false;
		(void)usleep(5000);
	}
	return true;
}

int attach_connect(const struct daemon *d, const char *vgpu)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct timeval limit = { .tv_sec = 5 };

	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/vgpu/%s/" AQ_ATTACH_SOCKET, d->dir,
		       vgpu);
	(void)setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		int rc = -errno;

		(void)close(sock);
		return rc;
	}
	return sock;
}

struct aq_attach_hello attach_hello(void)
{
	return (struct aq_attach_hello){
		.h = { AQ_ATTACH_MAGIC, AQ_ATTACH_HELLO, sizeof(struct aq_attach_hello) },
		.version_min = AQ_ATTACH_VERSION_MIN,
		.version = AQ_ATTACH_VERSION,
		.pid = (uint32_t)getpid(),
		.pages_version = AQ_PAGES_VERSION,
		.program = "test",
	};
}

static int take_welcome(struct attached *a)
{
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = &a->w, .iov_len = sizeof(a->w) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.buf,
			      .msg_controllen = sizeof(control.buf) };
	ssize_t n = recvmsg(a->sock, &msg, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	if (n <= 0)
		return -EPIPE;
	if (n != sizeof(a->w) || aq_attach_check(&a->w, (uint32_t)n) != AQ_ATTACH_WELCOME)
		return -EPROTO;
	if (a->w.status < 0)
		return c ? -EPROTO : a->w.status;
	if (!c || c->cmsg_len != CMSG_LEN(2 * sizeof(int)))
		return -EPROTO;
	memcpy(&a->control_fd, CMSG_DATA(c), sizeof(int));
	memcpy(&a->report_fd, CMSG_DATA(c) + sizeof(int), sizeof(int));
	return 0;
}

int attach(struct attached *a, const struct daemon *d, const char *vgpu,
	   const struct aq_attach_hello *hello)
{
	struct aq_attach_hello ordinary = attach_hello();
	int rc;

	*a = (struct attached){ .control_fd = -1, .report_fd = -1 };
	a->sock = attach_connect(d, vgpu);
	if (a->sock < 0)
		return a->sock;
	if (!hello)
		hello = &ordinary;
	if (send(a->sock, hello, hello->h.size, MSG_NOSIGNAL) < 0)
		return -EPIPE;
	rc = take_welcome(a);
	if (rc < 0) {
		detach(a);
		return rc;
	}
	a->control = mmap(NULL, a->w.control_size, PROT_READ, MAP_SHARED, a->control_fd, 0);
	a->report =
		mmap(NULL, a->w.report_size, PROT_READ | PROT_WRITE, MAP_SHARED, a->report_fd, 0);
	return a->control != MAP_FAILED && a->report != MAP_FAILED ? 0 : -ENOMEM;
}

void detach(struct attached *a)
{
	if (a->control)
		(void)munmap((void *)(uintptr_t)a->control, a->w.control_size);
	if (a->report)
		(void)munmap(a->report, a->w.report_size);
	for (int i = 0; i < 3; i++) {
		int fd = i == 0 ? a->sock : i == 1 ? a->control_fd : a->report_fd;

		if (fd >= 0)
			(void)close(fd);
	}
	*a = (struct attached){ .sock = -1, .control_fd = -1, .report_fd = -1 };
}

struct aq_account *account(const struct attached *a, unsigned card)
{
	return &a->report->account[card][a->w.slot];
}

bool take_from_card(uint64_t bytes)
{
	void *lib = dlopen(AQ_TEST_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
	CUresult (*init)(unsigned);
	CUresult (*create)(CUcontext *, unsigned, CUdevice);
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUdeviceptr ptr;
	CUcontext ctx;

	if (!lib)
		return false;
	*(void **)&init = dlsym(lib, "cuInit");
	*(void **)&create = dlsym(lib, "cuCtxCreate_v2");
	*(void **)&alloc = dlsym(lib, "cuMemAlloc_v2");
	return init(0) == CUDA_SUCCESS && create(&ctx, 0, 0) == CUDA_SUCCESS &&
	       alloc(&ptr, (size_t)bytes) == CUDA_SUCCESS;
}

pid_t start_client(const struct daemon *d, const char *vgpu, uint64_t bytes, bool allocate)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct attached a;

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (vgpu && attach(&a, d, vgpu, NULL) < 0)
			_exit(1);
		if (vgpu)
			atomic_store(&account(&a, 0)->used, bytes);
		if (allocate && !take_from_card(bytes))
			_exit(2);
		(void)!write(ready[1], "", 1);
		for (;;)
			(void)pause();
	}
	(void)close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
	return pid;
}
