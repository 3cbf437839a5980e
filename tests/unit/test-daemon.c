/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon as a process: the control socket, and attaching as friend and as foe. */
#include "daemon-harness.h"

#include "base/fd.h"
#include "base/macro.h"
#include "proto/control.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct daemon d;
static const int64_t mib = 1 << 20;

static int set_up(void **state)
{
	if (start_cards(state) < 0)
		return -1;
	daemon_start(&d, "main", false, NULL);
	return 0;
}

static int tear_down(void **state)
{
	daemon_kill(&d, SIGTERM);
	return stop_cards(state);
}

static void test_cards(void **state)
{
	json_t *j = ask(d.control, "{'op':'cards'}");
	json_t *card = json_array_get(json_object_get(j, "cards"), 1);

	(void)state;
	assert_int_equal(json_array_size(json_object_get(j, "cards")), 2);
	assert_int_equal(json_integer_value(json_object_get(card, "memory_bytes")), 16384 * mib);
	assert_int_equal(json_integer_value(json_object_get(card, "headroom_bytes")), 512 * mib);
	assert_true(json_is_true(json_object_get(card, "software")));
	assert_true(json_is_null(json_object_get(card, "blocked")));
	assert_string_equal(json_string_value(
				    json_object_get(json_object_get(j, "probe"), "state")),
			    "ok");
	json_decref(j);
	j = ask(d.control, "{'op':'version'}");
	assert_int_equal(json_integer_value(json_object_get(j, "pid")), d.pid);
	assert_string_equal(json_string_value(json_object_get(j, "mode")), "private");
	json_decref(j);
}

static void test_create_and_remove(void **state)
{
	(void)state;
	grant(&d, "{'op':'create','name':'a.b-c_1','mem_bytes':1073741824,'compute_pct':30}");
	assert_int_equal(look(&d, "a.b-c_1", "vgpus/0/cards/0/limit_bytes"), 1024 * mib);
	assert_int_equal(look(&d, "a.b-c_1", "vgpus/0/cards/0/compute_pct"), 30);
	assert_string_equal(look_text(&d, "a.b-c_1", "vgpus/0/state"), "ready");
	refuse(&d, "EEXIST", "{'op':'create','name':'a.b-c_1','mem_bytes':1}");
	refuse(&d, "ENOSPC", "{'op':'create','mem_bytes':17179869184}");
	refuse(&d, "ENOSPC", "{'op':'create','mem_bytes':1,'compute_pct':71,'cards':[{'card':0}]}");
	refuse(&d, "EINVAL", "{'op':'create'}");
	refuse(&d, "EINVAL", "{'op':'create','mem_bytes':0}");
	refuse(&d, "EINVAL", "{'op':'create','mem_bytes':1.5}");
	refuse(&d, "EINVAL", "{'op':'create','mem_bytes':1,'mem_byte':1}");
	refuse(&d, "EINVAL", "{'op':'create','mem_bytes':1,'name':'../x'}");
	refuse(&d, "EINVAL", "{'op':'create','mem_bytes':1,'name':''}");
	refuse(&d, "EINVAL", "{'op':'create','mem_bytes':1,'name':7}");
	refuse(&d, "EINVAL", "{'op':'create','mem_bytes':1,'placement':'best'}");
	refuse(&d, "EINVAL", "{'op':'create','mem_bytes':1,'priority':'top'}");
	refuse(&d, "EINVAL", "{'op':'create','mem_bytes':1,'cards':17}");
	refuse(&d, "ENODEV", "{'op':'create','mem_bytes':1,'cards':3}");
	refuse(&d, "ENODEV", "{'op':'create','mem_bytes':1,'cards':[{'card':2}]}");
	refuse(&d, "ENODEV", "{'op':'create','mem_bytes':1,'cards':[{'card':'GPU-zz'}]}");
	refuse(&d, "EINVAL", "{'op':'create','mem_bytes':1,'cards':[{'card':0},{'card':0}]}");
	refuse(&d, "EINVAL", "{'op':'create','mem_bytes':1,'cards':[1]}");
	refuse(&d, "EOPNOTSUPP", "{'op':'burn'}");
	refuse(&d, "EINVAL", "{'po':'burn'}");
	refuse(&d, "EINVAL", "[]");
	refuse(&d, "ENOENT", "{'op':'remove','name':'b'}");
	grant(&d, "{'op':'remove','name':'a.b-c_1'}");
	assert_int_equal(look(&d, NULL, "vgpus"), 0);
}

static void test_groups(void **state)
{
	(void)state;
	grant(&d, "{'op':'create','name':'g','cards':[{'card':1,'mem_bytes':1048576},"
		  "{'mem_bytes':2097152,'compute_pct':5}]}");
	assert_int_equal(look(&d, "g", "vgpus/0/cards/0/card"), 1);
	assert_int_equal(look(&d, "g", "vgpus/0/cards/1/card"), 0);
	grant(&d, "{'op':'set','name':'g','card':1,'mem_bytes':4194304}");
	assert_int_equal(look(&d, "g", "vgpus/0/cards/0/limit_bytes"), mib);
	assert_int_equal(look(&d, "g", "vgpus/0/cards/1/limit_bytes"), 4 * mib);
	refuse(&d, "EINVAL", "{'op':'set','name':'g','card':2,'mem_bytes':4194304}");
	refuse(&d, "EINVAL", "{'op':'set','name':'g'}");
	grant(&d, "{'op':'remove','name':'g'}");
	/* Spread: the emptier card. */
	grant(&d, "{'op':'create','name':'s0','mem_bytes':1048576,'cards':[{'card':0}]}");
	grant(&d, "{'op':'create','name':'s1','mem_bytes':1048576,'placement':'spread'}");
	grant(&d, "{'op':'create','name':'s2','mem_bytes':1048576,'cards':2}");
	assert_int_equal(look(&d, "s1", "vgpus/0/cards/0/card"), 1);
	for (int i = 0; i < 3; i++)
		grant(&d, "{'op':'remove','name':'s%d'}", i);
}

static void test_attach(void **state)
{
	struct attached a;
	struct attached b;

	(void)state;
	grant(&d, "{'op':'create','name':'a','mem_bytes':1073741824}");
	assert_int_equal(attach(&a, &d, "a", NULL), 0);
	assert_string_equal(a.w.cuda_provider, AQ_TEST_LIBCUDA);
	assert_string_equal(a.w.nvml_provider, AQ_TEST_LIBNVML);
	assert_int_equal(a.control->magic, AQ_CONTROL_MAGIC);
	assert_int_equal(a.control->n_cards, 1);
	assert_int_equal(a.control->card[0].limit_bytes, 1024 * mib);
	assert_int_equal(a.control->card[0].card_bytes, 16384 * mib);
	assert_int_equal(a.report->magic, AQ_REPORT_MAGIC);
	assert_true(a.control->slots_high > a.w.slot);
	/* Another library of the same process. */
	assert_int_equal(attach(&b, &d, "a", NULL), 0);
	assert_int_equal(a.w.slot, b.w.slot);
	assert_int_equal(look(&d, "a", "vgpus/0/clients"), 1);
	detach(&b);
	/* What it counts is shown, and what it is given is live. */
	atomic_store(&account(&a, 0)->used, 100 * mib);
	atomic_store(&account(&a, 0)->overhead, 7 * mib);
	assert_int_equal(look(&d, "a", "vgpus/0/clients/0/used_bytes"), 100 * mib);
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/overhead_bytes"), 7 * mib);
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/free_bytes"), (1024 - 107) * mib);
	grant(&d, "{'op':'set','name':'a','mem_bytes':1048576}");
	assert_int_equal(a.control->card[0].limit_bytes, mib);
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/free_bytes"), 0);
	refuse(&d, "ENOSPC", "{'op':'set','name':'a','mem_bytes':17179869184}");
	assert_int_equal(a.control->card[0].limit_bytes, mib);
	/* In use: not removed. */
	refuse(&d, "EBUSY", "{'op':'remove','name':'a'}");
	atomic_store(&account(&a, 0)->used, 0);
	atomic_store(&account(&a, 0)->overhead, 0);
	detach(&a);
	/* It lives on, so it is not gone. */
	assert_true(wait_for(&d, "a", "vgpus/0/clients", 1, 1000));
	assert_string_equal(look_text(&d, "a", "vgpus/0/clients/0/state"), "detached");
	refuse(&d, "EBUSY", "{'op':'remove','name':'a'}");
}

static void test_pages_are_sealed(void **state)
{
	struct attached a;
	char path[64];
	int fd;

	(void)state;
	assert_int_equal(attach(&a, &d, "a", NULL), 0);
	assert_int_equal(ftruncate(a.control_fd, 0), -1);
	assert_int_equal(ftruncate(a.report_fd, 0), -1);
	assert_int_equal(ftruncate(a.report_fd, 1 << 24), -1);
	assert_int_equal(write(a.control_fd, "x", 1), -1);
	assert_int_equal(fallocate(a.control_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   4096),
			 -1);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a.control_fd, 0),
			 MAP_FAILED);
	assert_int_equal(mprotect((void *)(uintptr_t)a.control, 4096, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(fcntl(a.control_fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	/* Opened anew it is no more writable. */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", a.control_fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		assert_int_equal(write(fd, "x", 1), -1);
		assert_ptr_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
		(void)close(fd);
	}
	detach(&a);
}

static void test_nonsense_in_report(void **state)
{
	struct attached a;

	(void)state;
	assert_int_equal(attach(&a, &d, "a", NULL), 0);
	memset((char *)a.report, 0xff, sizeof(*a.report));
	assert_int_equal(look(&d, "a", "vgpus/0/clients/0/used_bytes"), INT64_MAX);
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/free_bytes"), 0);
	grant(&d, "{'op':'why','name':'a'}");
	grant(&d, "{'op':'report'}");
	memset((char *)a.report, 0, sizeof(*a.report));
	/* The daemon does not care for its own words there. */
	assert_int_equal(look(&d, "a", "vgpus/0/clients/0/used_bytes"), 0);
	detach(&a);
}

static void test_refusals_are_shown(void **state)
{
	struct attached a;
	struct timespec ts;

	(void)state;
	assert_int_equal(attach(&a, &d, "a", NULL), 0);
	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	atomic_store(&a.report->client[a.w.slot].refused_bytes, 5 * mib);
	atomic_store(&a.report->client[a.w.slot].refused_ns,
		     (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec);
	atomic_store(&a.report->client[a.w.slot].refusals, 3);
	assert_int_equal(look(&d, "a", "vgpus/0/refusals/count"), 3);
	assert_int_equal(look(&d, "a", "vgpus/0/refusals/last_bytes"), 5 * mib);
	assert_in_range(look(&d, "a", "vgpus/0/refusals/last_ms"), 0, 5000);
	detach(&a);
}

static void expect_status(const struct aq_attach_hello *h, int status)
{
	struct attached a;

	assert_int_equal(attach(&a, &d, "a", h), status);
	detach(&a);
}

static void test_bad_hello(void **state)
{
	struct aq_attach_hello h = attach_hello();

	(void)state;
	/* Another process's number. */
	h.pid = (uint32_t)getppid();
	expect_status(&h, -EACCES);
	h = attach_hello();
	h.version_min = h.version = 99;
	expect_status(&h, -EPROTONOSUPPORT);
	h = attach_hello();
	h.version = 99;
	expect_status(&h, 0);
	h.pages_version = 2;
	expect_status(&h, -EPROTONOSUPPORT);
	h = attach_hello();
	h.h.magic = 1;
	expect_status(&h, -EPIPE);
	h = attach_hello();
	h.h.op = AQ_ATTACH_SETTLE;
	expect_status(&h, -EPIPE);
	h = attach_hello();
	h.h.size = sizeof(h.h);
	expect_status(&h, -EPIPE);
	h = attach_hello();
	memset(h.program, 0xee, sizeof(h.program));
	h.flags = 0xffffffff;
	h.slot = 0xffffffff;
	expect_status(&h, 0);
	assert_int_equal(look(&d, "a", "vgpus/0/clients"), 1);
}

/* A later version's hello is longer; what is behind is not looked at. */
static void test_longer_hello(void **state)
{
	struct {
		struct aq_attach_hello h;
		char more[512];
	} h = { .h = attach_hello() };
	struct attached a;

	(void)state;
	h.h.h.size = sizeof(h);
	h.h.version = 7;
	memset(h.more, 0x55, sizeof(h.more));
	assert_int_equal(attach(&a, &d, "a", &h.h), 0);
	assert_int_equal(a.w.version, AQ_ATTACH_VERSION);
	detach(&a);
}

static int count_fds(void)
{
	char path[64];
	DIR *dir;
	int n = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)d.pid);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n;
}

static bool fds_settle_at(int most)
{
	for (int i = 0; i < 400; i++) {
		if (count_fds() <= most)
			return true;
		(void)usleep(5000);
	}
	return false;
}

static void send_with_fds(int sock, const void *buf, size_t len)
{
	union {
		char buf[CMSG_SPACE(20 * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.buf,
			      .msg_controllen = sizeof(control.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(20 * sizeof(int));
	(void)sendmsg(sock, &msg, MSG_NOSIGNAL);
}

static void test_floods(void **state)
{
	struct aq_attach_hello h = attach_hello();
	int before = count_fds();
	struct attached a;
	int socks[300];

	(void)state;
	/* Many that say nothing: the oldest make room. */
	for (size_t i = 0; i < AQ_ARRAY_SIZE(socks); i++)
		socks[i] = attach_connect(&d, "a");
	assert_int_equal(attach(&a, &d, "a", NULL), 0);
	assert_true(count_fds() < before + 100);
	detach(&a);
	for (size_t i = 0; i < AQ_ARRAY_SIZE(socks); i++) {
		if (socks[i] >= 0)
			(void)close(socks[i]);
	}
	/* Descriptors that nobody asked for; a packet that is too long; half a message; the same hello again. */
	socks[0] = attach_connect(&d, "a");
	send_with_fds(socks[0], &h, sizeof(h));
	send_with_fds(socks[0], &h, sizeof(h));
	socks[1] = attach_connect(&d, "a");
	{
		char big[2 * AQ_ATTACH_MAX] = { 0 };

		memcpy(big, &h, sizeof(h));
		(void)send(socks[1], big, sizeof(big), MSG_NOSIGNAL);
	}
	socks[2] = attach_connect(&d, "a");
	(void)send(socks[2], &h, 6, MSG_NOSIGNAL);
	grant(&d, "{'op':'version'}");
	for (int i = 0; i < 3; i++) {
		char buf[2048];

		/* A welcome at most, then the end. */
		(void)recv(socks[i], buf, sizeof(buf), 0);
		(void)close(socks[i]);
	}
	assert_true(fds_settle_at(before));
}

static void test_settle_flood(void **state)
{
	struct aq_attach_settle s = { .h = { AQ_ATTACH_MAGIC, AQ_ATTACH_SETTLE, sizeof(s) } };
	struct aq_attach_settled answer;
	struct attached a;

	(void)state;
	assert_int_equal(attach(&a, &d, "a", NULL), 0);
	assert_int_equal(send(a.sock, &s, sizeof(s), 0), sizeof(s));
	assert_int_equal(recv(a.sock, &answer, sizeof(answer), 0), sizeof(answer));
	assert_int_equal(answer.h.op, AQ_ATTACH_SETTLED);
	/* This process has nothing on the card. */
	assert_int_equal(answer.known, 0);
	/* Never reading the answers is its own loss. */
	for (int i = 0; i < 20000; i++)
		(void)send(a.sock, &s, sizeof(s), MSG_DONTWAIT);
	grant(&d, "{'op':'version'}");
	/* A card that the vgpu does not have. */
	s.card = 3;
	while (send(a.sock, &s, sizeof(s), MSG_NOSIGNAL) > 0)
		(void)usleep(100);
	detach(&a);
	grant(&d, "{'op':'version'}");
}

static void test_too_many_connections(void **state)
{
	struct attached a[9];

	(void)state;
	for (int i = 0; i < 8; i++)
		assert_int_equal(attach(&a[i], &d, "a", NULL), 0);
	assert_int_equal(attach(&a[8], &d, "a", NULL), -EMFILE);
	for (int i = 0; i < 8; i++)
		detach(&a[i]);
}

static void test_other_vgpu(void **state)
{
	struct attached a;
	struct attached b;
	struct attached c;

	(void)state;
	grant(&d, "{'op':'create','name':'b','mem_bytes':1073741824}");
	assert_int_equal(attach(&a, &d, "a", NULL), 0);
	assert_int_equal(attach(&b, &d, "b", NULL), -EBUSY);
	detach(&a);
	/* It may change when nothing ties it to the first; no slot is left behind for good. */
	for (int i = 0; i < 100 && attach(&c, &d, "b", NULL) < 0; i++)
		(void)usleep(5000);
	assert_int_equal(look(&d, "b", "vgpus/0/clients"), 1);
	detach(&c);
	assert_true(wait_for(&d, "a", "vgpus/0/clients", 0, 4000));
}

static void test_no_descriptors(void **state)
{
	struct rlimit old;
	struct rlimit tight;
	struct attached a;
	char path[64];
	struct attached b;

	(void)state;
	assert_int_equal(attach(&a, &d, "b", NULL), 0);
	assert_int_equal(prlimit(d.pid, RLIMIT_NOFILE, NULL, &old), 0);
	tight = old;
	/* The next one would be the first too many. */
	tight.rlim_cur = 0;
	do
		(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)d.pid,
			       (int)tight.rlim_cur++);
	while (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
	tight.rlim_cur--;
	assert_int_equal(prlimit(d.pid, RLIMIT_NOFILE, &tight, NULL), 0);
	/* Refused at once, not left waiting; those who are in stay in. */
	assert_int_equal(attach(&b, &d, "b", NULL), -EPIPE);
	refuse(&d, "EMFILE", "{'op':'create','name':'c','mem_bytes':1}");
	grant(&d, "{'op':'list'}");
	assert_int_equal(prlimit(d.pid, RLIMIT_NOFILE, &old, NULL), 0);
	assert_int_equal(attach(&b, &d, "b", NULL), 0);
	assert_int_equal(a.w.slot, b.w.slot);
	detach(&a);
	detach(&b);
	grant(&d, "{'op':'create','name':'c','mem_bytes':1}");
	grant(&d, "{'op':'remove','name':'c'}");
}

static void test_full_disk(void **state)
{
	struct rlimit old;
	struct rlimit none = { .rlim_cur = 0, .rlim_max = RLIM_INFINITY };
	struct attached a;

	(void)state;
	assert_int_equal(attach(&a, &d, "b", NULL), 0);
	assert_int_equal(prlimit(d.pid, RLIMIT_FSIZE, NULL, &old), 0);
	assert_int_equal(prlimit(d.pid, RLIMIT_FSIZE, &none, NULL), 0);
	refuse(&d, "EFBIG", "{'op':'set','name':'b','mem_bytes':1048576}");
	assert_int_equal(a.control->card[0].limit_bytes, 1024 * mib);
	assert_int_equal(look(&d, "b", "vgpus/0/cards/0/limit_bytes"), 1024 * mib);
	refuse(&d, "EFBIG", "{'op':'create','name':'c','mem_bytes':1048576}");
	refuse(&d, "EFBIG", "{'op':'freeze','name':'b'}");
	assert_string_equal(look_text(&d, "b", "vgpus/0/state"), "ready");
	refuse(&d, "EFBIG", "{'op':'remove','name':'b','force':true}");
	assert_int_equal(prlimit(d.pid, RLIMIT_FSIZE, &old, NULL), 0);
	assert_int_equal(look(&d, NULL, "vgpus"), 2);
	grant(&d, "{'op':'set','name':'b','mem_bytes':1048576}");
	assert_int_equal(a.control->card[0].limit_bytes, mib);
	detach(&a);
}

static void test_control_framing(void **state)
{
	uint8_t head[4];
	char text[256];
	json_t *j;
	int sock = control_connect(&d);

	(void)state;
	/* Two requests at once are answered one after the other. */
	{
		const char two[] = "\x10\0\0\0{\"op\":\"version\"}"
				   "\x0e\0\0\0{\"op\":\"cards\"}";
		char *answer = NULL;

		assert_int_equal(aq_fd_send(sock, two, sizeof(two) - 1, -1), 0);
		for (int i = 0; i < 2; i++) {
			uint32_t len;

			assert_int_equal(aq_fd_recv(sock, head, 4, NULL), 0);
			memcpy(&len, head, 4);
			answer = realloc(answer, len);
			assert_int_equal(aq_fd_recv(sock, answer, len, NULL), 0);
			assert_memory_equal(answer, "{\"ok\":true", 10);
		}
		free(answer);
	}
	/* What is not JSON is answered, and ends the connection. */
	j = ask(sock, "what?");
	assert_true(json_is_false(json_object_get(j, "ok")));
	json_decref(j);
	assert_null(ask(sock, "{'op':'version'}"));
	(void)close(sock);
	/* Too long, and empty. */
	for (int i = 0; i < 2; i++) {
		sock = control_connect(&d);
		aq_control_frame_put(head, i ? 0 : AQ_CONTROL_REQUEST_MAX + 1);
		assert_int_equal(aq_fd_send(sock, head, 4, -1), 0);
		assert_int_equal(aq_fd_recv(sock, head, 4, NULL), 0);
		assert_int_equal(aq_fd_recv(sock, text, 10, NULL), 0);
		assert_memory_equal(text, "{\"ok\":fals", 10);
		(void)close(sock);
	}
	/* One that asks and asks and does not read stops being read; the others are served. */
	sock = control_connect(&d);
	for (int i = 0; i < 100000; i++) {
		const char request[] = "\x0f\0\0\0{\"op\":\"report\"}";

		if (send(sock, request, sizeof(request) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
	}
	grant(&d, "{'op':'version'}");
	(void)close(sock);
	grant(&d, "{'op':'version'}");
}

static void test_ephemeral(void **state)
{
	int sock = control_connect(&d);
	json_t *j = ask(sock, "{'op':'create','name':'e','mem_bytes':1,'ephemeral':true}");
	pid_t child;

	(void)state;
	assert_true(json_is_true(json_object_get(j, "ok")));
	json_decref(j);
	child = start_client(&d, "e", 1, false);
	(void)close(sock);
	/* It stays for its program, and goes after it. */
	(void)usleep(300000);
	assert_int_equal(look(&d, "e", "vgpus/0/clients"), 1);
	end(child);
	assert_true(wait_for(&d, "e", "vgpus/0/clients", -1, 3000));
	/* Without a program it goes at once. */
	sock = control_connect(&d);
	json_decref(ask(sock, "{'op':'create','name':'e','mem_bytes':1,'ephemeral':true}"));
	assert_int_equal(look(&d, "e", "vgpus"), 1);
	(void)close(sock);
	assert_true(wait_for(&d, "e", "vgpus", -1, 3000));
}

static void test_log(void **state)
{
	json_t *j = ask(d.control, "{'op':'log','name':'a'}");
	json_t *first = json_array_get(json_object_get(j, "events"), 0);
	json_int_t id = json_integer_value(json_object_get(first, "id"));

	(void)state;
	assert_string_equal(json_string_value(json_object_get(first, "vgpu")), "a");
	assert_non_null(strstr(json_string_value(json_object_get(first, "text")), "created"));
	json_decref(j);
	j = ask(d.control, "{'op':'log','name':'a','after':%lld}", (long long)id);
	first = json_array_get(json_object_get(j, "events"), 0);
	assert_true(json_integer_value(json_object_get(first, "id")) > id);
	json_decref(j);
}

static void test_symbols(void **state)
{
	json_t *j = ask(d.control, "{'op':'symbols'}");
	json_t *libs = json_object_get(j, "libraries");
	json_t *lib;
	size_t i;

	(void)state;
	assert_int_equal(json_array_size(libs), 2);
	json_array_foreach(libs, i, lib)
	{
		assert_true(json_is_null(json_object_get(lib, "error")));
		assert_true(json_integer_value(json_object_get(lib, "known")) > 100);
		assert_int_equal(json_array_size(json_object_get(lib, "missing")), 0);
		assert_int_equal(json_array_size(json_object_get(lib, "extra")), 0);
	}
	json_decref(j);
}

static void test_two_daemons(void **state)
{
	struct daemon other;

	(void)state;
	/* One directory, one daemon. */
	assert_int_equal(daemon_try("main", NULL), 1);
	grant(&d, "{'op':'create','name':'here','mem_bytes':1,'cards':[{'card':0}]}");
	daemon_start(&other, "other", false, NULL);
	/* "a" and "b" are on card 0, so card 0 is taken; card 1 is free for everybody. */
	refuse(&other, "EBUSY", "{'op':'create','name':'x','mem_bytes':1,'cards':[{'card':0}]}");
	grant(&other, "{'op':'create','name':'x','mem_bytes':1,'cards':[{'card':1}]}");
	refuse(&d, "EBUSY", "{'op':'create','name':'y','mem_bytes':1,'cards':[{'card':1}]}");
	grant(&other, "{'op':'remove','name':'x'}");
	grant(&d, "{'op':'create','name':'y','mem_bytes':1,'cards':[{'card':1}]}");
	grant(&d, "{'op':'remove','name':'y'}");
	grant(&d, "{'op':'remove','name':'here'}");
	daemon_kill(&other, SIGTERM);
}

/* ------------------------------------------------------------------------------------------- as a system daemon */

#define STRANGE_UID 54321
#define STRANGE_GID 54321

/* In a child of another user: 0 when `fn` says so. */
static int as_other(gid_t group, int (*fn)(const struct daemon *), const struct daemon *sys)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		gid_t groups[] = { group };

		if (setgroups(group ? 1 : 0, groups) < 0 || setgid(STRANGE_GID) < 0 ||
		    setuid(STRANGE_UID) < 0)
			_exit(100);
		_exit(fn(sys));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int code_of(json_t *j)
{
	const char *code = json_string_value(json_object_get(j, "code"));
	int rc = json_is_true(json_object_get(j, "ok")) ? 0
		 : !code				? 50
		 : strcmp(code, "EACCES") == 0		? 1
		 : strcmp(code, "EDQUOT") == 0		? 2
							: 51;

	json_decref(j);
	return rc;
}

static int member(const struct daemon *sys)
{
	int sock = control_connect(sys);
	struct attached a;

	if (sock < 0)
		return 10;
	if (code_of(ask(sock, "{'op':'create','name':'mine','mem_bytes':1}")) != 0)
		return 11;
	if (code_of(ask(sock, "{'op':'create','name':'more','mem_bytes':1}")) != 2)
		return 12;
	if (code_of(ask(sock, "{'op':'set','name':'root','mem_bytes':1}")) != 1)
		return 13;
	if (code_of(ask(sock, "{'op':'remove','name':'root','force':true}")) != 1)
		return 14;
	if (code_of(ask(sock, "{'op':'list'}")) != 0)
		return 15;
	if (attach(&a, sys, "mine", NULL) != 0)
		return 16;
	detach(&a);
	return attach(&a, sys, "root", NULL) == -EACCES ? 0 : 17;
}

static int outsider(const struct daemon *sys)
{
	struct attached a;

	if (control_connect(sys) != -EACCES)
		return 10;
	if (attach(&a, sys, "root", NULL) != -EACCES)
		return 11;
	/* Made for containers: whoever reaches the folder. */
	return attach(&a, sys, "open", NULL) == 0 ? 0 : 12;
}

static void test_users(void **state)
{
	const struct group *gr = getgrnam("daemon");
	static const char *const more[] = { "--group", "daemon", "--user-vgpus", "1", NULL };
	struct daemon sys;

	(void)state;
	if (geteuid() != 0 || !gr) {
		skip();
		return;
	}
	/* Passable, as /run is. */
	assert_int_equal(chmod(work_dir, 0755), 0);
	daemon_kill(&d, SIGTERM);
	daemon_start(&sys, "system", true, more);
	grant(&sys, "{'op':'create','name':'root','mem_bytes':1}");
	grant(&sys, "{'op':'create','name':'open','mem_bytes':1,'access':'any'}");
	assert_int_equal(as_other(gr->gr_gid, member, &sys), 0);
	assert_int_equal(as_other(0, outsider, &sys), 0);
	daemon_kill(&sys, SIGTERM);
	daemon_start(&d, "main", false, NULL);
	assert_int_equal(chmod(work_dir, 0700), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cards),
		cmocka_unit_test(test_create_and_remove),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_attach),
		cmocka_unit_test(test_pages_are_sealed),
		cmocka_unit_test(test_nonsense_in_report),
		cmocka_unit_test(test_refusals_are_shown),
		cmocka_unit_test(test_bad_hello),
		cmocka_unit_test(test_longer_hello),
		cmocka_unit_test(test_floods),
		cmocka_unit_test(test_settle_flood),
		cmocka_unit_test(test_too_many_connections),
		cmocka_unit_test(test_other_vgpu),
		cmocka_unit_test(test_no_descriptors),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_control_framing),
		cmocka_unit_test(test_ephemeral),
		cmocka_unit_test(test_log),
		cmocka_unit_test(test_symbols),
		cmocka_unit_test(test_two_daemons),
		cmocka_unit_test(test_users),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
