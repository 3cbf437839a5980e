/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: memfds that stand for memory of a card or of the host. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/macro.h"
#include "gpud/soft/soft.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* How long a look at the machine's free memory is good. */
#define AVAIL_VALID_NS (10 * AQ_NS_PER_MS)
/* Below this, or below 1/32 of the machine, nobody gets new memory. */
#define AVAIL_MIN_KIB (192 * 1024ULL)

/*
 * Card memory takes host memory only where it is touched, so a card may be larger than the machine. Refuse new memory when the machine is really running
 * short, so that a client that fills a card meets "out of memory" and the server does not meet the kernel's killer. mem_lock.
 */
static bool machine_is_short(struct aq_soft *soft)
{
	uint64_t now = aq_now_ns();
	unsigned long long total = 0;
	unsigned long long avail = 0;
	char line[128];
	FILE *f;

	if (now - soft->avail_checked_ns < AVAIL_VALID_NS)
		return soft->avail_low;
	soft->avail_checked_ns = now;
	soft->avail_low = false;
	f = fopen("/proc/meminfo", "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemTotal: %llu", &total) == 1)
			continue;
		if (sscanf(line, "MemAvailable: %llu", &avail) == 1) {
			soft->avail_low = avail < AQ_MAX(AVAIL_MIN_KIB, total / 32);
			break;
		}
	}
	(void)fclose(f);
	return soft->avail_low;
}

static enum aq_status host_charge(struct aq_soft *soft, uint64_t bytes)
{
	enum aq_status status = AQ_E_NO_MEMORY;

	(void)pthread_mutex_lock(&soft->mem_lock);
	if (bytes <= soft->host_limit - soft->host_used) {
		soft->host_used += bytes;
		status = AQ_OK;
	}
	(void)pthread_mutex_unlock(&soft->mem_lock);
	return status;
}

static void uncharge(struct aq_seg *seg)
{
	struct aq_soft *soft = seg->soft;

	(void)pthread_mutex_lock(&soft->mem_lock);
	if (seg->card) {
		seg->card->used_bytes -= seg->charged;
		if (seg->owner)
			seg->owner->usage[seg->card->index].memory_bytes -= seg->charged;
	} else {
		soft->host_used -= seg->charged;
	}
	aq_list_remove(&seg->owned);
	(void)pthread_mutex_unlock(&soft->mem_lock);
}

static void seg_free(struct aq_seg *seg)
{
	if (seg->host)
		(void)munmap(seg->host, seg->size);
	if (seg->fd >= 0)
		(void)close(seg->fd);
	free(seg);
}

/* fd is the segment's: taken over. */
static enum aq_status seg_map(struct aq_soft_session *s, int fd, uint64_t size, struct aq_seg **ret)
{
	struct aq_seg *seg = calloc(1, sizeof(*seg));
	void *map;

	if (!seg) {
		(void)close(fd);
		return AQ_E_NO_MEMORY;
	}
	seg->soft = s->soft;
	seg->refs = 1;
	seg->fd = fd;
	seg->size = size;
	seg->owner = s;
	aq_list_init(&seg->owned);
	aq_list_init(&seg->exported_link);
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED) {
		seg_free(seg);
		return AQ_E_NO_MEMORY;
	}
	seg->host = map;
	*ret = seg;
	return AQ_OK;
}

static enum aq_status seg_make(struct aq_soft_session *s, uint64_t size, struct aq_seg **ret)
{
	int fd = aq_fd_memfd("aliquot-memory", size);

	if (fd < 0)
		return AQ_E_NO_MEMORY;
	/* The fd may go to a client: without seals it could shrink the file under the server's mapping. */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		(void)close(fd);
		return AQ_E_NO_MEMORY;
	}
	return seg_map(s, fd, size, ret);
}

enum aq_status aq_seg_new(struct aq_soft_session *s, struct aq_card *card, uint64_t size,
			  struct aq_seg **ret)
{
	struct aq_soft *soft = s->soft;
	enum aq_status status;
	struct aq_seg *seg;
	bool is_short;

	(void)pthread_mutex_lock(&soft->mem_lock);
	is_short = machine_is_short(soft);
	(void)pthread_mutex_unlock(&soft->mem_lock);
	if (is_short)
		return AQ_E_NO_MEMORY;
	status = card ? aq_card_charge(card, s, size) : host_charge(soft, size);
	if (status != AQ_OK)
		return status;
	status = seg_make(s, size, &seg);
	(void)pthread_mutex_lock(&soft->mem_lock);
	if (status == AQ_OK) {
		seg->card = card;
		seg->charged = size;
		aq_list_push_back(&s->segs, &seg->owned);
	} else if (card) {
		card->used_bytes -= size;
		s->usage[card->index].memory_bytes -= size;
	} else {
		soft->host_used -= size;
	}
	(void)pthread_mutex_unlock(&soft->mem_lock);
	if (status == AQ_OK)
		*ret = seg;
	return status;
}

enum aq_status aq_seg_from_fd(struct aq_soft_session *s, int fd, uint64_t size, struct aq_seg **ret)
{
	enum aq_status status;
	struct statfs fs;
	struct stat st;
	int own;

	/* Not one of huge pages: touching it when there are none left would kill the server. */
	if (fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		return AQ_E_INVALID;
	if (fstat(fd, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size < size)
		return AQ_E_INVALID;
	/* Fails for anything that is not a sealable memfd, and for one that is sealed already: then it must hold what we need. */
	(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
	if (!(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) || fcntl(fd, F_GET_SEALS) < 0)
		return AQ_E_INVALID;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (own < 0)
		return AQ_E_NO_MEMORY;
	status = seg_map(s, own, size, ret);
	if (status != AQ_OK)
		return status;
	(void)pthread_mutex_lock(&s->soft->mem_lock);
	aq_list_push_back(&s->segs, &(*ret)->owned);
	(void)pthread_mutex_unlock(&s->soft->mem_lock);
	return AQ_OK;
}

struct aq_seg *aq_seg_ref(struct aq_seg *seg)
{
	atomic_fetch_add(&seg->refs, 1);
	return seg;
}

void aq_seg_unref(struct aq_seg *seg)
{
	bool last;

	if (!seg)
		return;
	/* Under the lock, since an importer finds the segment in the list of exported ones. */
	(void)pthread_mutex_lock(&seg->soft->mem_lock);
	last = atomic_fetch_sub(&seg->refs, 1) == 1;
	if (last)
		aq_list_remove(&seg->exported_link);
	(void)pthread_mutex_unlock(&seg->soft->mem_lock);
	if (!last)
		return;
	uncharge(seg);
	seg_free(seg);
}
