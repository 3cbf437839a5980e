/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked lists. A list head is an element of its own ring; an element outside any list points to itself. */
#pragma once

#include "base/macro.h"

#include <stdbool.h>

struct aq_list {
	struct aq_list *next, *prev;
};

static inline void aq_list_init(struct aq_list *l)
{
	l->next = l->prev = l;
}

static inline bool aq_list_is_empty(const struct aq_list *l)
{
	return l->next == l;
}

static inline void aq_list_insert_after(struct aq_list *where, struct aq_list *item)
{
	item->next = where->next;
	item->prev = where;
	where->next->prev = item;
	where->next = item;
}

/* As the first or the last element of the list `head`. */
static inline void aq_list_push_front(struct aq_list *head, struct aq_list *item)
{
	aq_list_insert_after(head, item);
}

static inline void aq_list_push_back(struct aq_list *head, struct aq_list *item)
{
	aq_list_insert_after(head->prev, item);
}

/* Take out of whatever list it is in; harmless for one that is in none. */
static inline void aq_list_remove(struct aq_list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	aq_list_init(item);
}

#define aq_list_entry(ptr, type, member) aq_container_of(ptr, type, member)

#define aq_list_for_each(it, head, member)                                  \
	for ((it) = aq_list_entry((head)->next, __typeof__(*(it)), member); \
	     &(it)->member != (head);                                       \
	     (it) = aq_list_entry((it)->member.next, __typeof__(*(it)), member))

/* The current element may be removed. */
#define aq_list_for_each_safe(it, tmp, head, member)                             \
	for ((it) = aq_list_entry((head)->next, __typeof__(*(it)), member),      \
	    (tmp) = aq_list_entry((it)->member.next, __typeof__(*(it)), member); \
	     &(it)->member != (head);                                            \
	     (it) = (tmp), (tmp) = aq_list_entry((tmp)->member.next, __typeof__(*(it)), member))
