/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/macro.h"
#include "daemon/slots.h"
#include "util/log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Linux 5.1; absent from older headers. */
#ifndef F_SEAL_FUTURE_WRITE
#	define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int check_name(const char *name, struct aq_err *err)
{
	size_t len = strlen(name);

	if (len == 0 || len >= AQD_NAME_SIZE)
		return aq_err_set(err, -EINVAL, "a vgpu's name has 1 to %u characters, not %zu",
				  AQD_NAME_SIZE - 1, len);
	if (name[0] == '.' || name[0] == '-')
		return aq_err_set(err, -EINVAL, "a vgpu's name does not begin with \"%c\"",
				  name[0]);
	for (const char *p = name; *p; p++) {
		if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
			return aq_err_set(
				err, -EINVAL,
				"a vgpu's name has letters, digits, \".\", \"_\" and \"-\" only");
	}
	return 0;
}

struct aqd_instance *aqd_instance_find(struct aqd *d, const char *name)
{
	struct aqd_instance *i;

	aq_list_for_each(i, &d->instances, link) {
		if (strcmp(i->name, name) == 0)
			return i;
	}
	return NULL;
}

static struct aqd_instance *instance_alloc(struct aqd *d)
{
	struct aqd_instance *i = calloc(1, sizeof(*i));

	if (!i)
		return NULL;
	i->d = d;
	i->listen_fd = i->control_fd = i->report_fd = -1;
	aq_list_init(&i->link);
	aq_list_init(&i->clients);
	aq_list_init(&i->greeting);
	return i;
}

void aqd_instance_free(struct aqd_instance *i)
{
	struct aqd_client *c;
	struct aqd_client *ctmp;
	struct aqd_conn *conn;
	struct aqd_conn *tmp;

	if (!i)
		return;
	aq_list_for_each_safe(conn, tmp, &i->greeting, link)
		aqd_conn_free(conn);
	aq_list_for_each_safe(c, ctmp, &i->clients, link)
		aqd_client_free(c);
	i->listen_source = sd_event_source_disable_unref(i->listen_source);
	i->return_source = sd_event_source_disable_unref(i->return_source);
	if (i->listen_fd >= 0)
		(void)close(i->listen_fd);
	if (i->control)
		(void)munmap(i->control, sizeof(*i->control));
	if (i->report)
		(void)munmap(i->report, sizeof(*i->report));
	if (i->control_fd >= 0)
		(void)close(i->control_fd);
	if (i->report_fd >= 0)
		(void)close(i->report_fd);
	aq_slots_close(i->slots);
	if (!aq_list_is_empty(&i->link)) {
		aq_list_remove(&i->link);
		i->d->n_instances--;
	}
	free(i);
}

static void *map_page(int fd, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int make_control_page(struct aqd_instance *i, struct aq_err *err)
{
	struct aq_control_page *page;

	i->control_fd = aq_fd_memfd("aliquot-control", sizeof(*page));
	if (i->control_fd < 0)
		return aq_err_set(err, i->control_fd, "cannot make a control page: %s",
				  strerror(-i->control_fd));
	page = i->control = map_page(i->control_fd, sizeof(*page));
	if (!page)
		return aq_err_set(err, -errno, "cannot map a control page: %s", strerror(errno));
	/* After our own mapping: no other will be writable. */
	if (fcntl(i->control_fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return aq_err_set(err, -errno, "cannot seal a control page (Linux 5.1 can): %s",
				  strerror(errno));
	page->magic = AQ_CONTROL_MAGIC;
	page->version = AQ_PAGES_VERSION;
	page->size = sizeof(*page);
	page->n_cards = i->n_cards;
	memcpy(page->name, i->name, sizeof(page->name));
	for (unsigned k = 0; k < i->n_cards; k++) {
		aqd_uuid_bytes(i->cards[k].uuid, page->card[k].uuid);
		atomic_store(&page->card[k].limit_bytes, i->cards[k].limit_bytes);
	}
	atomic_store(&page->epoch, i->d->epoch);
	atomic_store(&page->heartbeat_ns, aq_now_ns());
	return 0;
}

/* The report page that the daemon before us made, if it is that and nothing else. */
static bool take_stored_report(struct aqd_instance *i)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	aq_auto_close int fd = aqd_store_take(i->d, "report", i->name);
	struct stat st;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) < 0 || st.st_size != sizeof(*i->report) ||
	    st.st_ino != i->slots->report_inode || fcntl(fd, F_GET_SEALS) != seals) {
		aq_log_warning("vgpu \"%s\": the stored report page is not the one it had",
			       i->name);
		return false;
	}
	i->report = map_page(fd, sizeof(*i->report));
	if (!i->report)
		return false;
	i->report_fd = aq_take_fd(fd);
	return true;
}

static int make_report_page(struct aqd_instance *i, struct aq_err *err)
{
	struct stat st;

	i->report_fd = aq_fd_memfd("aliquot-report", sizeof(*i->report));
	if (i->report_fd < 0)
		return aq_err_set(err, i->report_fd, "cannot make a report page: %s",
				  strerror(-i->report_fd));
	if (fcntl(i->report_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ||
	    fstat(i->report_fd, &st) < 0)
		return aq_err_set(err, -errno, "cannot seal a report page: %s", strerror(errno));
	i->report = map_page(i->report_fd, sizeof(*i->report));
	if (!i->report)
		return aq_err_set(err, -errno, "cannot map a report page: %s", strerror(errno));
	i->report->magic = AQ_REPORT_MAGIC;
	i->report->version = AQ_PAGES_VERSION;
	i->report->size = sizeof(*i->report);
	i->slots->report_inode = st.st_ino;
	aqd_store_keep("report", i->name, i->report_fd);
	return 0;
}

/* Those of the daemon before us that held slots. `fresh`: the report page is new, so what they held is filled in from the last reading. */
static void adopt_clients(struct aqd_instance *i, bool fresh)
{
	for (uint32_t slot = 0; slot < AQ_MAX_CLIENTS; slot++) {
		struct aq_slot_entry *e = &i->slots->entry[slot];
		pid_t pid = (pid_t)atomic_load(&e->pid);
		struct aqd_process_id id;

		if (pid <= 0) {
			atomic_store(&e->pid, 0);
			continue;
		}
		for (unsigned k = 0; fresh && k < i->n_cards; k++) {
			atomic_store(&i->report->account[k][slot].used, e->used[k]);
			atomic_store(&i->report->account[k][slot].overhead, e->overhead[k]);
		}
		id = (struct aqd_process_id){ .start_time = e->start_time, .image = e->image };
		if (aqd_client_adopt(i, pid, &id, e->uid, slot, e->program) < 0)
			aq_log_warning("vgpu \"%s\": process %d is forgotten: no memory", i->name,
				       pid);
	}
}

static void slots_path(const struct aqd_instance *i, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%s/slots/%s", i->d->cfg.dir, i->name);
}

/* `keep`: a vgpu of the daemon before us, whose programs may be running. */
static int make_pages(struct aqd_instance *i, bool keep, struct aq_err *err)
{
	char path[PATH_MAX];
	bool stored;
	int rc;

	slots_path(i, path, sizeof(path));
	if (!keep)
		(void)unlink(path);
	rc = aq_slots_open(path, &i->slots, err);
	if (rc == 0)
		rc = make_control_page(i, err);
	if (rc < 0)
		return rc;
	i->slots->n_cards = i->n_cards;
	stored = keep && take_stored_report(i);
	if (!stored)
		rc = make_report_page(i, err);
	if (rc == 0 && keep)
		adopt_clients(i, !stored);
	if (rc == 0 && keep && !stored) {
		rc = aqd_client_expect(i);
		if (rc < 0)
			return aq_err_set(err, rc, "cannot wait for its programs: %s",
					  strerror(-rc));
	}
	return rc;
}

/* The folder that containers get mounted: made once, never replaced while the vgpu exists. */
static int make_dir(struct aqd_instance *i, struct aq_err *err)
{
	mode_t mode = i->access_any ? 0755 : 0700;

	if (snprintf(i->dir, sizeof(i->dir), "%s/vgpu/%s", i->d->cfg.dir, i->name) >=
	    (int)sizeof(i->dir))
		return aq_err_set(err, -ENAMETOOLONG,
				  "the path of its attach directory is too long");
	if (mkdir(i->dir, mode) < 0 && errno != EEXIST)
		return aq_err_set(err, -errno, "cannot make %s: %s", i->dir, strerror(errno));
	if (chmod(i->dir, mode) < 0 || (geteuid() == 0 && lchown(i->dir, i->owner, (gid_t)-1) < 0))
		return aq_err_set(err, -errno, "cannot give %s to user %u: %s", i->dir, i->owner,
				  strerror(errno));
	return 0;
}

static void remove_dir(const struct aqd_instance *i)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/" AQ_ATTACH_SOCKET, i->dir);
	(void)unlink(path);
	if (i->dir[0] && rmdir(i->dir) < 0 && errno != ENOENT)
		aq_log_warning("cannot remove %s: %s", i->dir, strerror(errno));
	slots_path(i, path, sizeof(path));
	(void)unlink(path);
	aqd_store_drop("report", i->name);
	aqd_store_drop("attach", i->name);
}

/* On failure the caller frees i. */
static int bring_up(struct aqd_instance *i, bool keep, struct aq_err *err)
{
	int rc = make_dir(i, err);

	if (rc == 0)
		rc = make_pages(i, keep, err);
	if (rc == 0)
		rc = aqd_client_listen(i, err);
	if (rc < 0)
		return rc;
	aq_list_push_back(&i->d->instances, &i->link);
	i->d->n_instances++;
	aqd_instance_bind_cards(i);
	return 0;
}

static int place(struct aqd *d, const struct aqd_request *r, struct aqd_instance *i,
		 struct aq_err *err)
{
	struct aq_place_card cards[AQD_MAX_CARDS];
	struct aq_place_want wants[AQ_INSTANCE_CARDS];
	unsigned chosen[AQ_INSTANCE_CARDS];
	int rc;

	if (r->n_wants == 0 || r->n_wants > AQ_INSTANCE_CARDS)
		return aq_err_set(err, -EINVAL, "a vgpu has 1 to %u GPUs, not %u",
				  AQ_INSTANCE_CARDS, r->n_wants);
	if (!d->n_cards)
		return aq_err_set(err, -ENODEV, "there is no GPU");
	for (unsigned k = 0; k < r->n_wants; k++) {
		int c = r->wants[k].card;

		wants[k] = (struct aq_place_want){
			.mem_bytes = r->wants[k].mem_bytes,
			.compute_pct = r->wants[k].compute_pct,
			.card = c,
		};
		if (c >= 0 && c < (int)d->n_cards && !d->cards[c].present)
			return aq_err_set(err, -ENODEV, "GPU %d is gone", c);
		if (c >= 0 && c < (int)d->n_cards && d->cards[c].blocked[0])
			return aq_err_set(err, -EBUSY, "GPU %d is not given out: %s", c,
					  d->cards[c].blocked);
	}
	aqd_cards_for_placement(d, NULL, cards);
	rc = aq_place(r->placement, cards, d->n_cards, wants, r->n_wants, chosen, err);
	if (rc < 0)
		return rc;
	i->n_cards = r->n_wants;
	for (unsigned k = 0; k < r->n_wants; k++) {
		i->cards[k].card = (int)chosen[k];
		i->cards[k].limit_bytes = r->wants[k].mem_bytes;
		i->cards[k].compute_pct = r->wants[k].compute_pct;
		memcpy(i->cards[k].uuid, d->cards[chosen[k]].uuid, sizeof(i->cards[k].uuid));
		rc = aqd_card_claim(d, &d->cards[chosen[k]], err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int choose_name(struct aqd *d, const char *wanted, char *ret, struct aq_err *err)
{
	int rc;

	if (!wanted) {
		do {
			(void)snprintf(ret, AQD_NAME_SIZE, "vgpu-%llu",
				       (unsigned long long)++d->next_default_name);
		} while (aqd_instance_find(d, ret));
		return 0;
	}
	rc = check_name(wanted, err);
	if (rc < 0)
		return rc;
	if (aqd_instance_find(d, wanted))
		return aq_err_set(err, -EEXIST, "there is a vgpu \"%s\" already", wanted);
	(void)snprintf(ret, AQD_NAME_SIZE, "%s", wanted);
	return 0;
}

static void unclaim_all(struct aqd *d)
{
	for (unsigned c = 0; c < d->n_cards; c++)
		aqd_card_unclaim(d, c);
}

int aqd_instance_create(struct aqd *d, const struct aqd_request *r, struct aqd_instance **ret,
			struct aq_err *err)
{
	struct aqd_instance *i;
	int rc;

	if (d->n_instances >= AQD_MAX_INSTANCES)
		return aq_err_set(err, -ENOSPC, "there are %u vgpus already, the daemon's maximum",
				  d->n_instances);
	i = instance_alloc(d);
	if (!i)
		return aq_err_set(err, -ENOMEM, "no memory for a vgpu");
	i->owner = r->owner;
	i->access_any = r->access_any;
	i->ephemeral = r->ephemeral;
	i->priority = r->priority;
	rc = choose_name(d, r->name, i->name, err);
	if (rc == 0)
		rc = place(d, r, i, err);
	if (rc == 0) {
		rc = bring_up(i, false, err);
		if (rc == 0)
			rc = aqd_state_save(d, err);
		if (rc < 0)
			remove_dir(i);
	}
	if (rc < 0) {
		aqd_instance_free(i);
		unclaim_all(d);
		return rc;
	}
	aqd_note(d, i->name, "created: %u GPU%s, %llu MiB, user %u", i->n_cards,
		 i->n_cards == 1 ? "" : "s", (unsigned long long)(i->cards[0].limit_bytes / AQ_MIB),
		 i->owner);
	*ret = i;
	return 0;
}

int aqd_instance_restore(struct aqd *d, const struct aqd_instance *from, struct aq_err *err)
{
	struct aqd_instance *i;
	int rc = check_name(from->name, err);

	if (rc < 0)
		return rc;
	if (aqd_instance_find(d, from->name))
		return aq_err_set(err, -EEXIST, "vgpu \"%s\" is there twice", from->name);
	if (d->n_instances >= AQD_MAX_INSTANCES)
		return aq_err_set(err, -ENOSPC, "more than %u vgpus", AQD_MAX_INSTANCES);
	i = instance_alloc(d);
	if (!i)
		return aq_err_set(err, -ENOMEM, "no memory for a vgpu");
	memcpy(i->name, from->name, sizeof(i->name));
	i->owner = from->owner;
	i->access_any = from->access_any;
	i->priority = from->priority;
	i->frozen = from->frozen;
	i->ephemeral = from->ephemeral;
	/* Whoever made it has lost the connection; its programs may go on. */
	i->orphaned_ns = from->ephemeral ? aq_now_ns() + AQD_ORPHAN_GRACE_NS : 0;
	i->n_cards = from->n_cards;
	memcpy(i->cards, from->cards, sizeof(i->cards));
	for (unsigned k = 0; k < i->n_cards; k++)
		i->cards[k].card = -1;
	rc = bring_up(i, true, err);
	if (rc < 0) {
		(void)aq_err_prefix(err, "vgpu \"%s\"", from->name);
		aqd_instance_free(i);
	}
	return rc;
}

void aqd_instance_bind_cards(struct aqd_instance *i)
{
	struct aqd *d = i->d;

	for (unsigned k = 0; k < i->n_cards; k++) {
		struct aqd_instance_card *ic = &i->cards[k];
		struct aq_err err = { 0 };

		ic->card = -1;
		for (unsigned c = 0; c < d->n_cards; c++) {
			if (strcmp(d->cards[c].uuid, ic->uuid) == 0)
				ic->card = (int)c;
		}
		if (ic->card < 0)
			continue;
		i->control->card[k].card_bytes = d->cards[ic->card].memory_bytes;
		/* It was ours before, so programs run there; say it, and go on. */
		if (d->cards[ic->card].lock_fd < 0 &&
		    aqd_card_claim(d, &d->cards[ic->card], &err) < 0 &&
		    !d->cards[ic->card].blocked[0]) {
			(void)snprintf(d->cards[ic->card].blocked,
				       sizeof(d->cards[ic->card].blocked), "%.159s", err.msg);
			aqd_note(d, i->name, "%s", err.msg);
		}
	}
}

unsigned aqd_instance_living(const struct aqd_instance *i)
{
	const struct aqd_client *c;
	unsigned n = 0;

	aq_list_for_each(c, &i->clients, link)
		n += c->ended_ns == 0;
	return n;
}

/* Whether the changed instance fits where it is. Shrinking always does. */
static int check_change(struct aqd_instance *i, const struct aqd_instance_card *now,
			struct aq_err *err)
{
	struct aq_place_card cards[AQD_MAX_CARDS];

	aqd_cards_for_placement(i->d, i, cards);
	for (unsigned k = 0; k < i->n_cards; k++) {
		struct aq_place_want want = {
			.mem_bytes = now[k].limit_bytes,
			.compute_pct = now[k].compute_pct,
			.card = now[k].card,
		};
		unsigned chosen;
		int rc;

		if (now[k].limit_bytes <= i->cards[k].limit_bytes &&
		    now[k].compute_pct <= i->cards[k].compute_pct)
			continue;
		if (now[k].card < 0)
			return aq_err_set(err, -ENODEV, "GPU %s is not there now", now[k].uuid);
		rc = aq_place(AQ_PLACE_BINPACK, cards, i->d->n_cards, &want, 1, &chosen, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static void swap_cards(struct aqd_instance *i, struct aqd_instance_card *with)
{
	struct aqd_instance_card old[AQ_INSTANCE_CARDS];

	memcpy(old, i->cards, sizeof(old));
	memcpy(i->cards, with, sizeof(old));
	memcpy(with, old, sizeof(old));
}

int aqd_instance_set(struct aqd_instance *i, const struct aqd_change *c, struct aq_err *err)
{
	struct aqd_instance_card cards[AQ_INSTANCE_CARDS];
	enum aqd_priority priority = i->priority;
	int rc;

	memcpy(cards, i->cards, sizeof(cards));
	if (c->set_mem && c->mem_bytes == 0)
		return aq_err_set(err, -EINVAL, "a memory limit of 0 lets nothing run");
	for (unsigned k = 0; k < i->n_cards; k++) {
		if (!(c->mask & 1U << k))
			continue;
		if (c->set_mem)
			cards[k].limit_bytes = c->mem_bytes;
		if (c->compute_pct >= 0)
			cards[k].compute_pct = (unsigned)c->compute_pct;
	}
	rc = check_change(i, cards, err);
	if (rc < 0)
		return rc;
	swap_cards(i, cards);
	if (c->priority >= 0)
		i->priority = (enum aqd_priority)c->priority;
	rc = aqd_state_save(i->d, err);
	if (rc < 0) {
		swap_cards(i, cards);
		i->priority = priority;
		return rc;
	}
	for (unsigned k = 0; k < i->n_cards; k++)
		atomic_store(&i->control->card[k].limit_bytes, i->cards[k].limit_bytes);
	if (c->set_mem)
		aqd_note(i->d, i->name, "memory limit is now %llu MiB",
			 (unsigned long long)(c->mem_bytes / AQ_MIB));
	return 0;
}

static unsigned kill_clients(struct aqd_instance *i)
{
	struct aqd_client *c;
	unsigned n = 0;

	aq_list_for_each(c, &i->clients, link)
		n += c->ended_ns == 0 && aqd_client_signal(c, SIGKILL);
	return n;
}

bool aqd_instance_reap(struct aqd_instance *i)
{
	struct aqd *d = i->d;

	if (i->n_clients || !i->removing)
		return false;
	aqd_note(d, i->name, "removed");
	aqd_instance_free(i);
	unclaim_all(d);
	return true;
}

int aqd_instance_remove(struct aqd_instance *i, bool force, bool *ret_gone, unsigned *ret_killed,
			struct aq_err *err)
{
	unsigned living = aqd_instance_living(i);
	struct aqd_conn *conn;
	struct aqd_conn *tmp;
	bool was = i->removing;
	int rc;

	if (living && !force)
		return aq_err_set(err, -EBUSY,
				  "vgpu \"%s\" has %u program%s attached; force ends %s", i->name,
				  living, living == 1 ? "" : "s", living == 1 ? "it" : "them");
	i->removing = true;
	rc = aqd_state_save(i->d, err);
	if (rc < 0) {
		i->removing = was;
		return rc;
	}
	*ret_killed = kill_clients(i);
	aq_list_for_each_safe(conn, tmp, &i->greeting, link)
		aqd_conn_free(conn);
	i->listen_source = sd_event_source_disable_unref(i->listen_source);
	if (i->listen_fd >= 0)
		(void)close(aq_take_fd(i->listen_fd));
	remove_dir(i);
	if (*ret_killed)
		aqd_note(i->d, i->name, "%u programs killed, as its removal was forced",
			 *ret_killed);
	*ret_gone = aqd_instance_reap(i);
	return 0;
}

int aqd_instance_freeze(struct aqd_instance *i, bool freeze, struct aq_err *err)
{
	struct aqd_client *c;
	bool was = i->frozen;
	unsigned n = 0;
	int rc;

	i->frozen = freeze;
	rc = aqd_state_save(i->d, err);
	if (rc < 0) {
		i->frozen = was;
		return rc;
	}
	aq_list_for_each(c, &i->clients, link)
		n += c->ended_ns == 0 && aqd_client_signal(c, freeze ? SIGSTOP : SIGCONT);
	if (was != freeze)
		aqd_note(i->d, i->name, "%s, %u programs", freeze ? "frozen" : "thawed", n);
	return 0;
}

void aqd_instance_beat(struct aqd_instance *i, uint64_t now_ns)
{
	atomic_store_explicit(&i->control->heartbeat_ns, now_ns, memory_order_relaxed);
}
