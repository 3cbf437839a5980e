/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/macro.h"
#include "base/size.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static bool parse_uuid(const char *text, uint8_t ret[static 16])
{
	unsigned n = 0;

	if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
		text += 4;
	for (; *text; text++) {
		int digit = hex_digit(*text);

		if (*text == '-')
			continue;
		if (digit < 0 || n == 32)
			return false;
		ret[n / 2] = (uint8_t)(n % 2 ? ret[n / 2] | digit : digit << 4);
		n++;
	}
	return n == 32;
}

void aqd_uuid_bytes(const char *text, uint8_t ret[static 16])
{
	uint64_t h[2] = { 0xcbf29ce484222325ULL, 0x84222325cbf29ce4ULL };

	if (parse_uuid(text, ret))
		return;
	for (; *text; text++) {
		h[0] = (h[0] ^ (uint8_t)*text) * 0x100000001b3ULL;
		h[1] = (h[1] ^ (uint8_t)*text) * 0x9e3779b97f4a7c15ULL;
	}
	memcpy(ret, h, 16);
}

static struct aqd_card *by_uuid(struct aqd *d, const char *uuid)
{
	for (unsigned i = 0; i < d->n_cards; i++) {
		if (strcmp(d->cards[i].uuid, uuid) == 0)
			return &d->cards[i];
	}
	return NULL;
}

/* Who wrote its process number into the lock file. */
static int holder_of(int fd)
{
	char buf[32] = { 0 };

	return pread(fd, buf, sizeof(buf) - 1, 0) > 0 ? (int)strtol(buf, NULL, 10) : 0;
}

static int say_busy(const struct aqd_card *card, int holder, struct aq_err *err)
{
	return aq_err_set(err, -EBUSY, "GPU %s is managed by another daemon (process %d)",
			  card->uuid, holder);
}

/* Whether a system daemon holds the card, without getting in its way. */
static int check_system_lock(const struct aqd *d, const struct aqd_card *card, struct aq_err *err)
{
	char path[PATH_MAX];

	if (!d->cfg.system_lock_dir || strcmp(d->cfg.system_lock_dir, d->cfg.lock_dir) == 0)
		return 0;
	(void)snprintf(path, sizeof(path), "%s/%s.lock", d->cfg.system_lock_dir, card->uuid);
	aq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_SH | LOCK_NB) < 0)
		return say_busy(card, holder_of(fd), err);
	return 0;
}

int aqd_card_claim(struct aqd *d, struct aqd_card *card, struct aq_err *err)
{
	char path[PATH_MAX];
	char pid[16];
	int rc = check_system_lock(d, card, err);
	int n;

	if (rc < 0 || card->lock_fd >= 0 || !d->cfg.lock_dir[0])
		return rc;
	if (strchr(card->uuid, '/'))
		return aq_err_set(err, -EINVAL, "GPU \"%s\" has a strange UUID", card->uuid);
	(void)snprintf(path, sizeof(path), "%s/%s.lock", d->cfg.lock_dir, card->uuid);
	aq_auto_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (fd < 0)
		return aq_err_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? say_busy(card, holder_of(fd), err)
					    : aq_err_set(err, -errno, "cannot lock %s: %s", path,
							 strerror(errno));
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	/* For the message above only. */
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
		aq_log_debug("cannot write %s: %s", path, strerror(errno));
	card->lock_fd = aq_take_fd(fd);
	return 0;
}

static bool is_used(const struct aqd *d, unsigned card)
{
	const struct aqd_instance *i;

	aq_list_for_each(i, &d->instances, link) {
		for (unsigned k = 0; k < i->n_cards; k++) {
			if (i->cards[k].card == (int)card)
				return true;
		}
	}
	return false;
}

void aqd_card_unclaim(struct aqd *d, unsigned card)
{
	if (!d->cfg.private_mode || d->cards[card].lock_fd < 0 || is_used(d, card))
		return;
	/* The file stays: to remove it would let two daemons lock two files of one name. */
	(void)close(d->cards[card].lock_fd);
	d->cards[card].lock_fd = -1;
}

/* What keeps us from giving out this card. A system daemon takes every card at once, a private one when it needs it. */
static void judge(struct aqd *d, struct aqd_card *card)
{
	struct aq_err err = { 0 };

	card->blocked[0] = '\0';
	if (card->software && !d->cfg.private_mode && !d->cfg.allow_software)
		(void)snprintf(card->blocked, sizeof(card->blocked),
			       "a software card, and --allow-software was not given");
	else if (!d->cfg.private_mode && aqd_card_claim(d, card, &err) < 0)
		(void)snprintf(card->blocked, sizeof(card->blocked), "%.*s",
			       (int)sizeof(card->blocked) - 1, err.msg);
}

static void take_over(struct aqd_card *card, const struct aqd_card_report *r)
{
	size_t len = strlen(r->name);
	static const char mark[] = "(software)";

	memcpy(card->name, r->name, sizeof(card->name));
	memcpy(card->pci, r->pci, sizeof(card->pci));
	aqd_printable(card->name);
	aqd_printable(card->pci);
	card->memory_bytes = r->memory_bytes;
	card->reserved_bytes = r->reserved_bytes;
	card->used_bytes = r->used_bytes;
	card->software =
		len >= sizeof(mark) - 1 && strcmp(r->name + len - (sizeof(mark) - 1), mark) == 0;
	card->present = true;
}

void aqd_cards_update(struct aqd *d, const struct aqd_card_report *cards, unsigned n)
{
	struct aqd_instance *i;

	for (unsigned k = 0; k < d->n_cards; k++)
		d->cards[k].present = false;
	for (unsigned k = 0; k < n; k++) {
		struct aqd_card *card = by_uuid(d, cards[k].uuid);

		if (!card) {
			if (d->n_cards == AQD_MAX_CARDS) {
				aq_log_warning("GPU %s is left out: more than %u", cards[k].uuid,
					       AQD_MAX_CARDS);
				continue;
			}
			card = &d->cards[d->n_cards++];
			*card = (struct aqd_card){ .lock_fd = -1 };
			memcpy(card->uuid, cards[k].uuid, sizeof(card->uuid));
			aqd_printable(card->uuid);
			aqd_uuid_bytes(card->uuid, card->uuid_bytes);
			aq_log_info("GPU %u: %s, %s", d->n_cards - 1, cards[k].name, card->uuid);
		}
		take_over(card, &cards[k]);
		judge(d, card);
	}
	d->cards_known = true;
	aq_list_for_each(i, &d->instances, link)
		aqd_instance_bind_cards(i);
}

int aqd_card_find(const struct aqd *d, const char *text, struct aq_err *err)
{
	size_t len = strlen(text);
	int found = -1;
	uint64_t number;

	if (len <= 4 && aq_uint_parse(text, "GPU", 9999, &number, NULL) == 0) {
		if (number < d->n_cards)
			return (int)number;
		return aq_err_set(err, -ENODEV, "there is no GPU %s; there are %u", text,
				  d->n_cards);
	}
	for (unsigned i = 0; len && i < d->n_cards; i++) {
		if (strncmp(d->cards[i].uuid, text, len) != 0)
			continue;
		if (found >= 0)
			return aq_err_set(err, -ENODEV,
					  "several GPUs have a UUID that begins with \"%s\"", text);
		found = (int)i;
	}
	return found >= 0 ? found : aq_err_set(err, -ENODEV, "there is no GPU \"%s\"", text);
}

static uint64_t headroom_of(const struct aqd *d, const struct aqd_card *card)
{
	if (d->cfg.headroom_given)
		return d->cfg.headroom_bytes;
	/* Half of a small card would be too much. */
	return AQ_MIN(AQ_HEADROOM_DEFAULT, aq_align_down(card->memory_bytes / 16, AQ_MIB));
}

void aqd_cards_for_placement(const struct aqd *d, const struct aqd_instance *without,
			     struct aq_place_card *ret)
{
	const struct aqd_instance *i;

	for (unsigned c = 0; c < d->n_cards; c++) {
		const struct aqd_card *card = &d->cards[c];

		ret[c] = (struct aq_place_card){
			.memory_bytes = card->memory_bytes,
			.reserved_bytes = card->reserved_bytes,
			.headroom_bytes = headroom_of(d, card),
			.max_instances = d->cfg.max_instances,
			.overcommit_pct = d->cfg.overcommit_pct,
			.cordoned = !card->present || card->blocked[0],
		};
	}
	aq_list_for_each(i, &d->instances, link) {
		for (unsigned k = 0; k < i->n_cards && i != without; k++) {
			int c = i->cards[k].card;

			if (c < 0)
				continue;
			ret[c].limits_bytes += i->cards[k].limit_bytes;
			ret[c].compute_pct += i->cards[k].compute_pct;
			ret[c].n_instances++;
		}
	}
}

void aqd_cards_done(struct aqd *d)
{
	for (unsigned i = 0; i < d->n_cards; i++) {
		if (d->cards[i].lock_fd >= 0)
			(void)close(d->cards[i].lock_fd);
	}
}
