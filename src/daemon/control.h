/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket: docs/control.md. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct aq_err;
struct aqd;
struct aqd_instance;
struct aq_control_server;

/* Who asks. */
struct aqd_caller {
	uid_t uid;
	bool full;  /* root, or the daemon's own user */
	void *conn; /* the connection, for what lives as long as it */
};

int aq_control_server_start(struct aqd *d, struct aq_control_server **ret, struct aq_err *err);
/* NULL is fine. */
void aq_control_server_free(struct aq_control_server *s);

/* The answer to `request`; NULL: it comes later by aq_control_answer(). Never fails but by an answer that says so. */
json_t *aqd_op(struct aqd *d, const struct aqd_caller *caller, const json_t *request);

/* Takes over `answer`. */
void aq_control_answer(void *conn, json_t *answer);
/* The vgpu `name` goes when the connection ends. 0 or -ENOMEM. */
int aq_control_bind(void *conn, const char *name);

/* views.c: what is shown. */
json_t *aqd_view_version(const struct aqd *d);
json_t *aqd_view_cards(const struct aqd *d);
json_t *aqd_view_probe(const struct aqd *d);
json_t *aqd_view_instance(const struct aqd_instance *i);
json_t *aqd_view_strangers(const struct aqd *d);
json_t *aqd_view_events(const struct aqd *d, const char *vgpu, uint64_t after);
json_t *aqd_view_options(const struct aqd *d);
json_t *aqd_view_reasons(const struct aqd_instance *i);
