/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/show.h"

#include "base/size.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

long long aq_show_number(const json_t *object, const char *key)
{
	return (long long)json_integer_value(json_object_get(object, key));
}

const char *aq_show_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "?";
}

const char *aq_show_size(const json_t *object, const char *key, char buf[static 24])
{
	const json_t *v = json_object_get(object, key);

	if (json_is_integer(v) && json_integer_value(v) >= 0)
		aq_size_format((uint64_t)json_integer_value(v), buf, 24);
	else
		(void)snprintf(buf, 24, "?");
	return buf;
}

void aq_show_ago(long long ms, char *buf, size_t size)
{
	if (ms < 10000)
		(void)snprintf(buf, size, "%.1f s", (double)ms / 1000);
	else if (ms < 120000)
		(void)snprintf(buf, size, "%lld s", ms / 1000);
	else if (ms < 7200000)
		(void)snprintf(buf, size, "%lld min", ms / 60000);
	else
		(void)snprintf(buf, size, "%lld h", ms / 3600000);
}

void aq_show_cards(const json_t *cards)
{
	const json_t *c;
	size_t i;

	(void)printf("%3s  %-28s  %10s  %10s  %10s  %10s  %5s\n", "GPU", "NAME", "MEMORY", "USED",
		     "GIVEN", "LEFT", "VGPUS");
	json_array_foreach(cards, i, c)
	{
		char size[4][24];
		const char *blocked = json_string_value(json_object_get(c, "blocked"));

		(void)printf("%3lld  %-28s  %10s  %10s  %10s  %10s  %5lld\n",
			     aq_show_number(c, "index"), aq_show_text(c, "name"),
			     aq_show_size(c, "memory_bytes", size[0]),
			     aq_show_size(c, "used_bytes", size[1]),
			     aq_show_size(c, "given_bytes", size[2]),
			     aq_show_size(c, "free_bytes", size[3]), aq_show_number(c, "vgpus"));
		if (json_is_false(json_object_get(c, "present")))
			(void)printf("     the driver does not show it at present\n");
		if (blocked)
			(void)printf("     not given out: %s\n", blocked);
	}
}

static const char *show_share(const json_t *card, char buf[static 24])
{
	long long pct = aq_show_number(card, "compute_pct");

	if (pct > 0)
		(void)snprintf(buf, 24, "%lld%%", pct);
	else
		(void)snprintf(buf, 24, "-");
	return buf;
}

static void show_vgpu(const json_t *v)
{
	const json_t *cards = json_object_get(v, "cards");
	long long refused = aq_show_number(json_object_get(v, "refusals"), "count");
	const json_t *c;
	size_t k;

	json_array_foreach(cards, k, c)
	{
		char size[4][24];
		char share[24];
		char gpu[24] = "gone";

		if (json_is_integer(json_object_get(c, "card")))
			(void)snprintf(gpu, sizeof(gpu), "%lld", aq_show_number(c, "card"));
		(void)printf("%-16s  %4s  %10s  %10s  %10s  %10s  %7s",
			     k ? "" : aq_show_text(v, "name"), gpu,
			     aq_show_size(c, "limit_bytes", size[0]),
			     aq_show_size(c, "used_bytes", size[1]),
			     aq_show_size(c, "overhead_bytes", size[2]),
			     aq_show_size(c, "free_bytes", size[3]), show_share(c, share));
		if (k == 0)
			(void)printf("  %7lld  %s", refused, aq_show_text(v, "state"));
		(void)printf("\n");
		if (aq_show_number(c, "releasing_bytes"))
			(void)printf("%-16s        %s of ended programs not given back yet\n", "",
				     aq_show_size(c, "releasing_bytes", size[0]));
	}
}

static void show_programs(const json_t *v, bool *first)
{
	const json_t *c;
	size_t i;

	json_array_foreach(json_object_get(v, "clients"), i, c)
	{
		char size[2][24];

		if (*first)
			(void)printf("\n%-16s  %8s  %-20s  %10s  %10s  %s\n", "VGPU", "PID",
				     "PROGRAM", "USED", "OVERHEAD", "STATE");
		*first = false;
		(void)printf("%-16s  %8lld  %-20s  %10s  %10s  %s\n", aq_show_text(v, "name"),
			     aq_show_number(c, "pid"), aq_show_text(c, "program"),
			     aq_show_size(c, "used_bytes", size[0]),
			     aq_show_size(c, "overhead_bytes", size[1]), aq_show_text(c, "state"));
	}
}

void aq_show_vgpus(const json_t *vgpus)
{
	bool first = true;
	const json_t *v;
	size_t i;

	(void)printf("%-16s  %4s  %10s  %10s  %10s  %10s  %7s  %7s  %s\n", "VGPU", "GPU", "LIMIT",
		     "USED", "OVERHEAD", "FREE", "COMPUTE", "REFUSED", "STATE");
	json_array_foreach(vgpus, i, v)
	{
		show_vgpu(v);
	}
	json_array_foreach(vgpus, i, v)
	{
		show_programs(v, &first);
	}
}

void aq_show_strangers(const json_t *strangers)
{
	const json_t *s;
	size_t i;

	if (json_array_size(strangers) == 0)
		return;
	(void)printf("\n%s:\n", "In no vgpu, and on a GPU that is shared out");
	(void)printf("%3s  %8s  %-20s  %10s  %s\n", "GPU", "PID", "PROGRAM", "USED",
		     "WHAT WAS DONE");
	json_array_foreach(strangers, i, s)
	{
		char size[24];

		(void)printf("%3lld  %8lld  %-20s  %10s  %s%s\n", aq_show_number(s, "card"),
			     aq_show_number(s, "pid"), aq_show_text(s, "program"),
			     aq_show_size(s, "bytes", size), aq_show_text(s, "action"),
			     json_is_true(json_object_get(s, "mps")) ? " (an MPS server)" : "");
	}
}

int aq_show_done(const char *verb)
{
	if (fflush(stdout) == 0)
		return AQ_EXIT_OK;
	aq_cli_error("%s: cannot write: %s", verb, strerror(errno));
	return AQ_EXIT_FAILED;
}

int aq_show_json(const char *verb, const json_t *value)
{
	if (!value || json_dumpf(value, stdout, JSON_INDENT(2)) < 0) {
		aq_cli_error("%s: cannot write JSON", verb);
		return AQ_EXIT_FAILED;
	}
	(void)printf("\n");
	return aq_show_done(verb);
}
