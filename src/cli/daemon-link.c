/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon-link.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/macro.h"
#include "cli/keeper.h"
#include "proto/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYSTEM_SOCKET	 AQ_CONTROL_SYSTEM_DIR "/" AQ_CONTROL_SOCKET
#define CARDS_TIMEOUT_NS (15 * AQ_NS_PER_S)
#define END_TIMEOUT_MS	 5000

static const char *set_variable(const char *name)
{
	const char *value = getenv(name);

	return value && value[0] ? value : NULL;
}

static int connect_to(struct aq_daemon *d, const char *path, struct aq_err *err)
{
	int fd;

	if (snprintf(d->socket, sizeof(d->socket), "%s", path) >= (int)sizeof(d->socket))
		return aq_err_set(err, -ENAMETOOLONG, "path of a control socket is too long");
	fd = aq_fd_connect_unix(path);
	if (fd == -EACCES || fd == -EPERM)
		return aq_err_set(err, fd,
				  "%s: no access; root and members of group aliquot have it", path);
	if (fd < 0)
		return aq_err_set(err, fd, "no daemon answers at %s: %s", path, strerror(-fd));
	d->fd = fd;
	return 0;
}

/* Nobody listens, as against: somebody, but not for us. */
static bool nobody(int rc)
{
	return rc == -ENOENT || rc == -ECONNREFUSED || rc == -ENOTDIR;
}

/* The places that are not private. -ENOENT: none. */
static int open_public(struct aq_daemon *d, struct aq_err *err)
{
	const char *named = set_variable("ALIQUOT_DAEMON");
	int rc;

	if (named) {
		rc = connect_to(d, named, err);
		return rc < 0 ? aq_err_prefix(err, "ALIQUOT_DAEMON") : 0;
	}
	if (set_variable("ALIQUOT_GPUD"))
		return -ENOENT;
	rc = connect_to(d, SYSTEM_SOCKET, err);
	return nobody(rc) ? -ENOENT : rc;
}

static int private_socket(struct aq_daemon *d, char *path, size_t size, struct aq_err *err)
{
	int rc = aq_keeper_folder(d->folder, sizeof(d->folder), err);

	d->is_private = true;
	if (rc == 0 && snprintf(path, size, "%s/" AQ_CONTROL_SOCKET, d->folder) >= (int)size)
		rc = aq_err_set(err, -ENAMETOOLONG, "%s is too long", d->folder);
	return rc;
}

int aq_daemon_open(struct aq_daemon *ret, struct aq_err *err)
{
	struct aq_daemon d = AQ_DAEMON_NONE;
	char path[PATH_MAX];
	int rc = open_public(&d, err);

	if (rc == -ENOENT && !set_variable("ALIQUOT_DAEMON")) {
		rc = private_socket(&d, path, sizeof(path), err);
		if (rc == 0)
			rc = connect_to(&d, path, err);
		if (nobody(rc))
			return aq_err_set(err, -ENOENT,
					  "no daemon runs, neither at %s nor at %s%s; "
					  "`aliquot run` and `aliquot create` start a private one",
					  SYSTEM_SOCKET, d.socket,
					  set_variable("ALIQUOT_GPUD")
						  ? " (ALIQUOT_GPUD is set: only the latter counts)"
						  : "");
	}
	if (rc == 0)
		*ret = d;
	return rc;
}

int aq_daemon_open_or_start(struct aq_daemon *ret, struct aq_err *err)
{
	struct aq_daemon d = AQ_DAEMON_NONE;
	char path[PATH_MAX];
	int rc = open_public(&d, err);

	if (rc == -ENOENT && !set_variable("ALIQUOT_DAEMON")) {
		if (err)
			*err = (struct aq_err){ 0 };
		rc = private_socket(&d, path, sizeof(path), err);
		if (rc < 0)
			return rc;
		d.wait_end = true;
		d.users_fd = aq_keeper_hold(d.folder, err);
		if (d.users_fd < 0)
			return d.users_fd;
		rc = aq_keeper_ensure(d.folder, err);
		if (rc == 0)
			rc = connect_to(&d, path, err);
		if (rc < 0)
			aq_keeper_abandon(d.folder, d.users_fd);
	}
	if (rc == 0)
		*ret = d;
	return rc;
}

int aq_daemon_reopen(struct aq_daemon *d, struct aq_err *err)
{
	char path[PATH_MAX];
	uint64_t deadline = aq_now_ns() + 2 * AQ_NS_PER_S;
	int rc;

	(void)snprintf(path, sizeof(path), "%s", d->socket);
	if (d->fd >= 0)
		(void)close(d->fd);
	d->fd = -1;
	do {
		rc = connect_to(d, path, err);
		if (rc == 0 || !nobody(rc))
			return rc;
		(void)poll(NULL, 0, 25);
	} while (aq_now_ns() < deadline);
	return rc;
}

static int call_once(struct aq_daemon *d, const char *request, json_t **ret_answer,
		     struct aq_err *err)
{
	aq_auto_free char *text = NULL;
	json_error_t where;
	json_t *answer;
	const char *code;
	const char *why;
	int rc = aq_control_call(d->fd, request, &text, err);

	if (rc < 0)
		return rc;
	answer = json_loads(text, 0, &where);
	if (!json_is_object(answer) || !json_is_boolean(json_object_get(answer, "ok"))) {
		json_decref(answer);
		return aq_err_set(err, -EPROTO, "the daemon's answer makes no sense: %s",
				  answer ? "it lacks \"ok\"" : where.text);
	}
	if (json_is_true(json_object_get(answer, "ok"))) {
		*ret_answer = answer;
		return 0;
	}
	code = json_string_value(json_object_get(answer, "code"));
	why = json_string_value(json_object_get(answer, "error"));
	(void)snprintf(d->code, sizeof(d->code), "%s", code ? code : "");
	rc = aq_err_set(err, -EREMOTEIO, "%s", why ? why : "the daemon refuses without a reason");
	json_decref(answer);
	return rc;
}

int aq_daemon_call(struct aq_daemon *d, json_t *request, json_t **ret_answer, struct aq_err *err)
{
	aq_auto_free char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	uint64_t deadline = aq_now_ns() + CARDS_TIMEOUT_NS;
	int rc;

	json_decref(request);
	if (!text)
		return aq_err_set(err, -ENOMEM, "no memory for a request");
	for (;;) {
		d->code[0] = '\0';
		rc = call_once(d, text, ret_answer, err);
		if (rc != -EREMOTEIO || strcmp(d->code, "EAGAIN") != 0 || aq_now_ns() > deadline)
			return rc;
		(void)poll(NULL, 0, 20);
	}
}

/* Whether what the private daemon still has goes by itself, soon. */
static bool about_to_end(struct aq_daemon *d)
{
	json_t *answer = NULL;
	json_t *vgpu;
	size_t i;
	bool soon = true;

	if (d->fd < 0 || aq_daemon_call(d, json_pack("{s:s}", "op", "list"), &answer, NULL) < 0)
		return false;
	json_array_foreach(json_object_get(answer, "vgpus"), i, vgpu)
	{
		const char *state = json_string_value(json_object_get(vgpu, "state"));

		soon = soon && state && strcmp(state, "removing") == 0;
	}
	json_decref(answer);
	return soon;
}

void aq_daemon_close(struct aq_daemon *d)
{
	bool wait = d->is_private && d->wait_end && about_to_end(d);

	if (d->fd >= 0)
		(void)close(d->fd);
	if (d->users_fd >= 0)
		(void)close(d->users_fd);
	if (wait)
		aq_keeper_wait_end(d->folder, END_TIMEOUT_MS);
	d->fd = d->users_fd = -1;
}
