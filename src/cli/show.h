/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon answers, as tables. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/* Missing members show as 0, "?" or "-". */
long long aq_show_number(const json_t *object, const char *key);
const char *aq_show_text(const json_t *object, const char *key);
/* "512 MiB" */
const char *aq_show_size(const json_t *object, const char *key, char buf[static 24]);
/* "3 s", "12 min" of milliseconds. */
void aq_show_ago(long long ms, char *buf, size_t size);

void aq_show_cards(const json_t *cards);
/* With their programs. */
void aq_show_vgpus(const json_t *vgpus);
/* Nothing when there are none. */
void aq_show_strangers(const json_t *strangers);

/* JSON on stdout. Returns the exit status; a failed write is told. */
int aq_show_json(const char *verb, const json_t *value);
/* Flush stdout. Returns the exit status. */
int aq_show_done(const char *verb);
