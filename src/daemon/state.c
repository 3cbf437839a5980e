/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/macro.h"
#include "daemon/names.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STATE_VERSION 1
#define STATE_MAX     (32U << 20)

static void decref_ptr(json_t **j)
{
	json_decref(*j);
}

static json_t *save_instance(const struct aqd_instance *i)
{
	json_t *cards = json_array();

	for (unsigned k = 0; k < i->n_cards; k++) {
		const struct aqd_instance_card *c = &i->cards[k];

		(void)json_array_append_new(cards,
					    json_pack("{s:s, s:I, s:i}", "uuid", c->uuid,
						      "limit_bytes", (json_int_t)c->limit_bytes,
						      "compute_pct", (int)c->compute_pct));
	}
	return json_pack("{s:s, s:I, s:s, s:s, s:b, s:b, s:o}", "name", i->name, "owner",
			 (json_int_t)i->owner, "access", i->access_any ? "any" : "owner",
			 "priority", aqd_priority_name(i->priority), "frozen", (int)i->frozen,
			 "ephemeral", (int)i->ephemeral, "cards", cards);
}

static json_t *save_all(const struct aqd *d)
{
	const struct aqd_instance *i;
	json_t *list = json_array();

	aq_list_for_each(i, &d->instances, link) {
		if (!i->removing && json_array_append_new(list, save_instance(i)) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return json_pack("{s:i, s:I, s:I, s:o}", "version", STATE_VERSION, "epoch",
			 (json_int_t)d->epoch, "next_name", (json_int_t)d->next_default_name,
			 "vgpus", list);
}

static int write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

/* The name is on the disk only when its folder is. */
static void sync_folder(const char *path)
{
	char folder[PATH_MAX];
	char *slash;

	(void)snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (!slash)
		return;
	*(slash == folder ? slash + 1 : slash) = '\0';
	aq_auto_close int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		(void)fsync(fd);
}

static int write_file(const char *path, const char *text, struct aq_err *err)
{
	char fresh[PATH_MAX];
	int rc;

	(void)snprintf(fresh, sizeof(fresh), "%s.new", path);
	aq_auto_close int fd =
		open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return aq_err_set(err, -errno, "cannot write %s: %s", fresh, strerror(errno));
	rc = write_all(fd, text, strlen(text));
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	if (rc == 0 && rename(fresh, path) < 0)
		rc = -errno;
	if (rc < 0) {
		(void)unlink(fresh);
		return aq_err_set(err, rc, "cannot write %s: %s", path, strerror(-rc));
	}
	sync_folder(path);
	return 0;
}

int aqd_state_save(const struct aqd *d, struct aq_err *err)
{
	aq_auto(decref_ptr) json_t *root = save_all(d);
	aq_auto_free char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;

	if (!text)
		return aq_err_set(err, -ENOMEM, "no memory for the state");
	return write_file(d->cfg.state, text, err);
}

static int load_card(const json_t *o, struct aqd_instance_card *ret)
{
	const char *uuid = json_string_value(json_object_get(o, "uuid"));
	json_int_t limit = json_integer_value(json_object_get(o, "limit_bytes"));
	json_int_t pct = json_integer_value(json_object_get(o, "compute_pct"));

	if (!uuid || !uuid[0] || strlen(uuid) >= sizeof(ret->uuid) || limit <= 0 || pct < 0 ||
	    pct > 100)
		return -EINVAL;
	(void)snprintf(ret->uuid, sizeof(ret->uuid), "%s", uuid);
	ret->limit_bytes = (uint64_t)limit;
	ret->compute_pct = (unsigned)pct;
	return 0;
}

static int load_instance(struct aqd *d, const json_t *o, struct aq_err *err)
{
	const char *name = json_string_value(json_object_get(o, "name"));
	const char *access = json_string_value(json_object_get(o, "access"));
	const json_t *cards = json_object_get(o, "cards");
	aq_auto_free struct aqd_instance *from = calloc(1, sizeof(*from));
	const json_t *c;
	size_t k;

	if (!from)
		return aq_err_set(err, -ENOMEM, "no memory");
	if (!name || strlen(name) >= sizeof(from->name) || json_array_size(cards) == 0 ||
	    json_array_size(cards) > AQ_INSTANCE_CARDS)
		return aq_err_set(err, -EINVAL, "vgpu \"%.63s\": malformed", name ? name : "?");
	(void)snprintf(from->name, sizeof(from->name), "%s", name);
	json_array_foreach(cards, k, c)
	{
		if (load_card(c, &from->cards[k]) < 0)
			return aq_err_set(err, -EINVAL, "vgpu \"%s\": its card %zu is malformed",
					  name, k);
	}
	from->n_cards = (unsigned)json_array_size(cards);
	from->owner = (uid_t)json_integer_value(json_object_get(o, "owner"));
	from->access_any = access && strcmp(access, "any") == 0;
	from->frozen = json_is_true(json_object_get(o, "frozen"));
	from->ephemeral = json_is_true(json_object_get(o, "ephemeral"));
	if (aqd_priority_parse(json_string_value(json_object_get(o, "priority")), &from->priority) <
	    0)
		return aq_err_set(err, -EINVAL, "vgpu \"%s\": unknown priority", name);
	return aqd_instance_restore(d, from, err);
}

static int load_all(struct aqd *d, const json_t *root, struct aq_err *err)
{
	json_int_t version = json_integer_value(json_object_get(root, "version"));
	const json_t *list = json_object_get(root, "vgpus");
	const json_t *o;
	size_t at;

	if (version != STATE_VERSION)
		return aq_err_set(err, -EPROTONOSUPPORT,
				  "it has version %lld, this daemon reads version %d",
				  (long long)version, STATE_VERSION);
	d->epoch = (uint32_t)json_integer_value(json_object_get(root, "epoch")) + 1;
	d->next_default_name = (uint64_t)json_integer_value(json_object_get(root, "next_name"));
	json_array_foreach(list, at, o)
	{
		int rc = load_instance(d, o, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int aqd_state_load(struct aqd *d, struct aq_err *err)
{
	json_error_t jerr;
	struct stat st;
	int rc;

	d->epoch = 1;
	if (stat(d->cfg.state, &st) < 0) {
		if (errno == ENOENT)
			return 0;
		return aq_err_set(err, -errno, "cannot read %s: %s", d->cfg.state, strerror(errno));
	}
	if (st.st_size > STATE_MAX)
		return aq_err_set(err, -EFBIG, "%s is larger than the %u bytes a state has",
				  d->cfg.state, STATE_MAX);
	aq_auto(decref_ptr) json_t *root =
		json_load_file(d->cfg.state, JSON_REJECT_DUPLICATES, &jerr);

	/* Limits are in there. To go on without them would set running programs free. */
	if (!root)
		return aq_err_set(err, -EBADMSG, "%s is damaged, line %d: %s; mend or remove it",
				  d->cfg.state, jerr.line, jerr.text);
	rc = load_all(d, root, err);
	if (rc < 0)
		(void)aq_err_prefix(err, "%s", d->cfg.state);
	return rc;
}
