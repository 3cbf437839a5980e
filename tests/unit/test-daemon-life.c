/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon over time: programs that die, daemons that die, what the driver says, and what it does not. */
#include "daemon-harness.h"

#include "base/clock.h"
#include "base/macro.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct daemon d;
static const int64_t mib = 1 << 20;

static int set_up(void **state)
{
	if (start_cards(state) < 0)
		return -1;
	daemon_start(&d, "main", false, NULL);
	grant(&d, "{'op':'create','name':'a','mem_bytes':1073741824,'cards':[{'card':0}]}");
	return 0;
}

static int tear_down(void **state)
{
	daemon_kill(&d, SIGTERM);
	return stop_cards(state);
}

static bool is_frozen(pid_t pid)
{
	char path[64];
	char buf[256] = "";
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, buf, sizeof(buf) - 1) < 0)
		buf[0] = '\0';
	(void)close(fd);
	return strstr(buf, ") T ") != NULL;
}

static bool becomes_frozen(pid_t pid, bool frozen)
{
	for (int i = 0; i < 400 && is_frozen(pid) != frozen; i++)
		(void)usleep(5000);
	return is_frozen(pid) == frozen;
}

static void test_death(void **state)
{
	pid_t one = start_client(&d, "a", 100 * mib, false);
	pid_t two = start_client(&d, "a", 50 * mib, false);
	uint64_t began;

	(void)state;
	assert_int_equal(look(&d, "a", "vgpus/0/clients"), 2);
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/used_bytes"), 150 * mib);
	began = aq_now_ns();
	end(one);
	/* The driver knows nothing of it: a reading is enough. */
	assert_true(wait_for(&d, "a", "vgpus/0/clients", 1, 2000));
	assert_true(aq_now_ns() - began < AQ_NS_PER_S);
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/used_bytes"), 50 * mib);
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/releasing_bytes"), 0);
	end(two);
	assert_true(wait_for(&d, "a", "vgpus/0/clients", 0, 2000));
}

/* A parent that dies and leaves a child with its connection: the process counts, not the descriptor. */
static void test_inherited_connection(void **state)
{
	int fds[2];
	char byte;
	pid_t parent;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	parent = fork();
	if (parent == 0) {
		struct attached a;

		if (attach(&a, &d, "a", NULL) < 0)
			_exit(1);
		if (fork() == 0) {
			struct attached b;

			/* The child is nobody until it attaches for itself; then it has a slot of its own. */
			if (attach(&b, &d, "a", NULL) < 0 || b.w.slot == a.w.slot)
				_exit(1);
			detach(&b);
			(void)!write(fds[1], "", 1);
			(void)usleep(1500000);
			_exit(0);
		}
		for (;;)
			(void)pause();
	}
	assert_int_equal(read(fds[0], &byte, 1), 1);
	assert_int_equal(look(&d, "a", "vgpus/0/clients"), 2);
	end(parent);
	assert_true(wait_for(&d, "a", "vgpus/0/clients", 1, 1000));
	assert_true(wait_for(&d, "a", "vgpus/0/clients", 0, 4000));
	(void)close(fds[0]);
	(void)close(fds[1]);
}

static void test_pending_of_the_dead(void **state)
{
	struct attached a;
	pid_t child;

	(void)state;
	/* While it is listed by the driver its bytes stay: it holds a context there. */
	child = start_client(&d, "a", 64 * mib, true);
	assert_int_equal(attach(&a, &d, "a", NULL), 0);
	for (unsigned s = 0; s < 2; s++) {
		if (s != a.w.slot)
			atomic_store(&a.report->account[0][s].pending, 30 * mib);
	}
	(void)kill(child, SIGKILL);
	/* Settled by the daemon: nobody waits for an answer that never comes. */
	for (int i = 0; i < 200; i++) {
		if (!atomic_load(&a.report->account[0][!a.w.slot].pending))
			break;
		(void)usleep(1000);
	}
	assert_int_equal(atomic_load(&a.report->account[0][!a.w.slot].pending), 0);
	(void)waitpid(child, NULL, 0);
	assert_true(wait_for(&d, "a", "vgpus/0/clients", 1, 3000));
	assert_int_equal(atomic_load(&a.report->account[0][!a.w.slot].used), 0);
	detach(&a);
}

static void test_many_deaths(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		pid_t pids[10];

		for (size_t i = 0; i < AQ_ARRAY_SIZE(pids); i++)
			pids[i] = start_client(&d, "a", (uint64_t)mib, false);
		for (size_t i = 0; i < AQ_ARRAY_SIZE(pids); i++)
			end(pids[i]);
	}
	/* This process has a slot too, since it attached once. */
	assert_true(wait_for(&d, "a", "vgpus/0/clients", 1, 3000));
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/used_bytes"), 0);
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/releasing_bytes"), 0);
}

static void test_freeze(void **state)
{
	pid_t child = start_client(&d, "a", 0, false);

	(void)state;
	grant(&d, "{'op':'freeze','name':'a'}");
	assert_true(becomes_frozen(child, true));
	assert_string_equal(look_text(&d, "a", "vgpus/0/state"), "frozen");
	(void)kill(child, SIGCONT);
	/* This process is stopped as well, if it is a client: it is not frozen here, as a stopped test cannot go on. */
	grant(&d, "{'op':'thaw','name':'a'}");
	assert_true(becomes_frozen(child, false));
	end(child);
}

static void test_stranger(void **state)
{
	pid_t child = start_client(&d, NULL, 64 * mib, true);

	(void)state;
	assert_true(wait_for(&d, NULL, "strangers", 1, 1000));
	assert_int_equal(look(&d, NULL, "strangers/0/pid"), child);
	assert_int_equal(look(&d, NULL, "strangers/0/card"), 0);
	assert_true(look(&d, NULL, "strangers/0/bytes") >= 64 * mib);
	assert_string_equal(look_text(&d, NULL, "strangers/0/action"), "reported");
	assert_false(is_frozen(child));
	end(child);
	assert_true(wait_for(&d, NULL, "strangers", 0, 2000));
}

static void test_excess_becomes_overhead(void **state)
{
	pid_t child = start_client(&d, "a", 64 * mib, true);
	int64_t used;

	(void)state;
	/* It counted what it allocated; its context is what it did not. */
	for (int i = 0; i < 600 && look(&d, "a", "vgpus/0/cards/0/overhead_bytes") <= 0; i++)
		(void)usleep(5000);
	assert_true(look(&d, "a", "vgpus/0/cards/0/overhead_bytes") > 0);
	used = look(&d, "a", "vgpus/0/cards/0/used_bytes");
	assert_int_equal(used, 64 * mib);
	assert_int_equal(look(&d, NULL, "strangers"), 0);
	end(child);
	assert_true(wait_for(&d, "a", "vgpus/0/cards/0/releasing_bytes", 0, 3000));
	assert_true(wait_for(&d, "a", "vgpus/0/cards/0/overhead_bytes", 0, 3000));
}

static void test_settle(void **state)
{
	int fds[2];
	uint64_t bytes = 0;
	pid_t child;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	child = fork();
	if (child == 0) {
		struct aq_attach_settle s = { .h = { AQ_ATTACH_MAGIC, AQ_ATTACH_SETTLE,
						     sizeof(s) } };
		struct aq_attach_settled answer;
		struct attached a;
		uint64_t known;

		if (attach(&a, &d, "a", NULL) < 0 || !take_from_card(64 << 20) ||
		    send(a.sock, &s, sizeof(s), 0) != sizeof(s) ||
		    recv(a.sock, &answer, sizeof(answer), 0) != sizeof(answer))
			_exit(1);
		known = answer.known ? answer.bytes : 0;
		(void)!write(fds[1], &known, sizeof(known));
		_exit(0);
	}
	assert_int_equal(read(fds[0], &bytes, sizeof(bytes)), sizeof(bytes));
	assert_true(bytes >= 64 * (uint64_t)mib && bytes < 1024 * (uint64_t)mib);
	(void)waitpid(child, NULL, 0);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

static pid_t probe_of(const struct daemon *of)
{
	char path[64];
	char buf[64] = "";
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)of->pid, (int)of->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, buf, sizeof(buf) - 1) < 0)
		buf[0] = '\0';
	(void)close(fd);
	return (pid_t)strtol(buf, NULL, 10);
}

static void test_probe_dies(void **state)
{
	pid_t probe = probe_of(&d);
	pid_t child = start_client(&d, "a", 64 * mib, false);

	(void)state;
	assert_true(probe > 0);
	(void)kill(probe, SIGKILL);
	for (int i = 0; i < 400 && (probe_of(&d) == probe || !probe_of(&d)); i++)
		(void)usleep(5000);
	assert_true(probe_of(&d) > 0 && probe_of(&d) != probe);
	/* Cards, vgpus and programs are as they were. */
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/used_bytes"), 64 * mib);
	end(child);
	assert_true(wait_for(&d, "a", "vgpus/0/cards/0/used_bytes", 0, 3000));
	grant(&d, "{'op':'create','name':'x','mem_bytes':1}");
	grant(&d, "{'op':'remove','name':'x'}");
}

static void test_forced_removal(void **state)
{
	pid_t child;
	int status;

	(void)state;
	grant(&d, "{'op':'create','name':'f','mem_bytes':1073741824}");
	child = start_client(&d, "f", 64 * mib, true);
	refuse(&d, "EBUSY", "{'op':'remove','name':'f'}");
	grant(&d, "{'op':'remove','name':'f','force':true}");
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_true(wait_for(&d, "f", "vgpus", -1, 3000));
	assert_int_equal(attach_connect(&d, "f"), -ENOENT);
}

/* ------------------------------------------------------------------------------------------- restarts */

static void test_restart(void **state)
{
	struct aq_attach_hello again = attach_hello();
	struct attached a;
	struct attached b;
	uint64_t began;
	uint32_t epoch;
	pid_t child;
	pid_t late;

	(void)state;
	grant(&d, "{'op':'set','name':'a','mem_bytes':536870912}");
	child = start_client(&d, "a", 100 * mib, false);
	assert_int_equal(attach(&a, &d, "a", NULL), 0);
	atomic_store(&account(&a, 0)->used, 10 * mib);
	epoch = a.w.epoch;
	/* Long enough for the watchdog's note of what there is. */
	(void)usleep(500000);
	daemon_kill(&d, SIGKILL);
	assert_int_equal(attach_connect(&d, "a"), -ECONNREFUSED);
	daemon_restart(&d, NULL);
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/limit_bytes"), 512 * mib);
	/* Both are waited for, and count as they did last. */
	assert_int_equal(look(&d, "a", "vgpus/0/clients"), 2);
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/used_bytes"), 110 * mib);
	assert_string_equal(look_text(&d, "a", "vgpus/0/clients/0/state"), "detached");
	/* A new one waits for them, but not for ever: the child never comes back. */
	began = aq_now_ns();
	late = start_client(&d, "a", 0, false);
	assert_true(aq_now_ns() - began > 200 * AQ_NS_PER_MS);
	assert_true(aq_now_ns() - began < 3 * AQ_NS_PER_S);
	end(late);
	again.flags = AQ_HELLO_REATTACH;
	again.slot = a.w.slot;
	again.epoch = epoch;
	assert_int_equal(attach(&b, &d, "a", &again), 0);
	assert_int_equal(b.w.slot, a.w.slot);
	assert_true(b.w.epoch > epoch);
	assert_int_equal(b.control->epoch, b.w.epoch);
	assert_int_equal(b.control->card[0].limit_bytes, 512 * mib);
	assert_int_equal(atomic_load(&account(&b, 0)->used), 10 * mib);
	assert_true(atomic_load(&b.control->slots_high) >= 2);
	/* The old control page is as it was; its heart does not beat. */
	assert_true(a.control->epoch == epoch);
	atomic_store(&account(&b, 0)->used, 0);
	/* The one that does not come back is dead all the same when it dies. */
	end(child);
	assert_true(wait_for(&d, "a", "vgpus/0/cards/0/used_bytes", 0, 3000));
	assert_true(wait_for(&d, "a", "vgpus/0/clients", 1, 3000));
	detach(&a);
	detach(&b);
}

static void test_death_while_away(void **state)
{
	pid_t child = start_client(&d, "a", 100 * mib, false);

	(void)state;
	(void)usleep(300000);
	daemon_kill(&d, SIGTERM);
	end(child);
	daemon_restart(&d, NULL);
	/* This process alone. */
	assert_true(wait_for(&d, "a", "vgpus/0/clients", 1, 3000));
	assert_int_equal(look(&d, "a", "vgpus/0/cards/0/used_bytes"), 0);
}

static void test_heartbeat(void **state)
{
	struct attached a;
	uint64_t last;

	(void)state;
	assert_int_equal(attach(&a, &d, "a", NULL), 0);
	(void)usleep(1100000);
	for (int i = 0; i < 10; i++) {
		last = atomic_load(&a.control->heartbeat_ns);
		(void)usleep(60000);
		assert_true(atomic_load(&a.control->heartbeat_ns) > last);
	}
	detach(&a);
}

/* A service manager that takes descriptors, and hands them to the next daemon. */
struct manager {
	int sock;
	char path[80];
};

static void manager_start(struct manager *m)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	(void)snprintf(m->path, sizeof(m->path), "%s/notify.sock", work_dir);
	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", m->path);
	m->sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(m->sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(setenv("NOTIFY_SOCKET", m->path, 1), 0);
}

/* Take what has come; descriptors under their names. */
static void manager_collect(struct manager *m)
{
	static char names[8][80];

	for (;;) {
		union {
			char buf[CMSG_SPACE(4 * sizeof(int))];
			struct cmsghdr align;
		} control;
		char text[512] = "";
		struct iovec iov = { .iov_base = text, .iov_len = sizeof(text) - 1 };
		struct msghdr msg = { .msg_iov = &iov,
				      .msg_iovlen = 1,
				      .msg_control = control.buf,
				      .msg_controllen = sizeof(control.buf) };
		char *name;

		if (recvmsg(m->sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
			return;
		name = strstr(text, "FDNAME=");
		if (!strstr(text, "FDSTORE=1") || !name || !CMSG_FIRSTHDR(&msg))
			continue;
		name += strlen("FDNAME=");
		name[strcspn(name, "\n")] = '\0';
		assert_true(n_passed < 8);
		(void)snprintf(names[n_passed], sizeof(names[0]), "%s", name);
		passed_names[n_passed] = names[n_passed];
		memcpy(&passed_fds[n_passed++], CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	}
}

static void test_stored_descriptors(void **state)
{
	struct manager m;
	struct daemon s;
	struct aq_attach_hello hello = attach_hello();
	pid_t child;
	int waiting;

	(void)state;
	manager_start(&m);
	daemon_start(&s, "stored", false, NULL);
	grant(&s, "{'op':'create','name':'k','mem_bytes':1048576,'cards':[{'card':1}]}");
	/* This process belongs to "a", so a child is the client. */
	child = start_client(&s, "k", 100 * mib, false);
	manager_collect(&m);
	assert_int_equal(n_passed, 2);
	daemon_kill(&s, SIGKILL);
	/* The socket is still open: who connects now waits for the next daemon. */
	waiting = attach_connect(&s, "k");
	assert_true(waiting >= 0);
	daemon_restart(&s, NULL);
	/* Not from the last reading but from the page itself. */
	assert_int_equal(look(&s, "k", "vgpus/0/cards/0/used_bytes"), 100 * mib);
	assert_int_equal(send(waiting, &hello, sizeof(hello), 0), sizeof(hello));
	(void)close(waiting);
	/* A page that is not the one it had is not taken. */
	daemon_kill(&s, SIGKILL);
	for (int i = 0; i < n_passed; i++) {
		if (strncmp(passed_names[i], "report-", 7) == 0) {
			(void)close(passed_fds[i]);
			passed_fds[i] = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
			assert_int_equal(ftruncate(passed_fds[i], sizeof(struct aq_report_page)),
					 0);
		}
	}
	daemon_restart(&s, NULL);
	n_passed = 0;
	assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
	assert_int_equal(look(&s, "k", "vgpus/0/clients/0/pid"), child);
	end(child);
	assert_true(wait_for(&s, "k", "vgpus/0/cards/0/used_bytes", 0, 3000));
	daemon_kill(&s, SIGTERM);
	(void)close(m.sock);
}

static void test_damaged_state(void **state)
{
	struct daemon s;
	char path[128];
	int fd;

	(void)state;
	daemon_start(&s, "damaged", false, NULL);
	grant(&s, "{'op':'create','name':'k','mem_bytes':1048576,'cards':[{'card':1}]}");
	daemon_kill(&s, SIGTERM);
	(void)snprintf(path, sizeof(path), "%s/state.json", s.dir);
	assert_int_equal(truncate(path, 40), 0);
	/* Limits are in there: not to be guessed. */
	assert_int_equal(daemon_try("damaged", NULL), 1);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(daemon_try("damaged", NULL), 0);
	/* Half of a slots file. */
	daemon_restart(&s, NULL);
	grant(&s, "{'op':'create','name':'k','mem_bytes':1048576,'cards':[{'card':1}]}");
	daemon_kill(&s, SIGKILL);
	(void)snprintf(path, sizeof(path), "%s/slots/k", s.dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, 100), 0);
	(void)close(fd);
	daemon_restart(&s, NULL);
	assert_int_equal(look(&s, "k", "vgpus/0/clients"), 0);
	daemon_kill(&s, SIGTERM);
}

static void test_strangers_are_ended(void **state)
{
	static const char *const kill_them[] = { "--strangers", "kill", NULL };
	static const char *const freeze_them[] = { "--strangers", "freeze", NULL };
	struct daemon s;
	pid_t child;
	int status;

	(void)state;
	daemon_start(&s, "strict", false, kill_them);
	child = start_client(&s, NULL, 64 * mib, true);
	/* Card 0 is not this daemon's: not its business. */
	(void)usleep(400000);
	assert_int_equal(waitpid(child, &status, WNOHANG), 0);
	daemon_kill(&d, SIGTERM);
	grant(&s, "{'op':'create','name':'k','mem_bytes':1048576,'cards':[{'card':0}]}");
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	daemon_kill(&s, SIGTERM);
	daemon_restart(&s, freeze_them);
	child = start_client(&s, NULL, 64 * mib, true);
	assert_true(becomes_frozen(child, true));
	assert_true(wait_for(&s, NULL, "strangers", 1, 1000));
	assert_string_equal(look_text(&s, NULL, "strangers/0/action"), "frozen");
	end(child);
	grant(&s, "{'op':'remove','name':'k'}");
	daemon_kill(&s, SIGTERM);
	daemon_start(&d, "main", false, NULL);
}

static void test_no_driver(void **state)
{
	static const char *const none[] = { "--provider-nvml", "/nowhere/libnvidia-ml.so.1", NULL };
	struct daemon s;
	json_t *j;

	(void)state;
	daemon_start(&s, "bare", false, none);
	refuse(&s, "ENODEV", "{'op':'create','mem_bytes':1}");
	j = ask(s.control, "{'op':'cards'}");
	assert_string_equal(json_string_value(
				    json_object_get(json_object_get(j, "probe"), "state")),
			    "failed");
	assert_non_null(
		strstr(json_string_value(json_object_get(json_object_get(j, "probe"), "error")),
		       "/nowhere/"));
	json_decref(j);
	daemon_kill(&s, SIGTERM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_inherited_connection),
		cmocka_unit_test(test_freeze),
		cmocka_unit_test(test_pending_of_the_dead),
		cmocka_unit_test(test_many_deaths),
		cmocka_unit_test(test_stranger),
		cmocka_unit_test(test_excess_becomes_overhead),
		cmocka_unit_test(test_settle),
		cmocka_unit_test(test_probe_dies),
		cmocka_unit_test(test_forced_removal),
		cmocka_unit_test(test_restart),
		cmocka_unit_test(test_death_while_away),
		cmocka_unit_test(test_heartbeat),
		cmocka_unit_test(test_stored_descriptors),
		cmocka_unit_test(test_damaged_state),
		cmocka_unit_test(test_strangers_are_ended),
		cmocka_unit_test(test_no_driver),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
