/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/slots.h"

#include "base/cleanup.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAGIC	0x53515141U /* "AQQS" */
#define VERSION 1U

static void read_boot_id(char buf[static 40])
{
	aq_auto_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	memset(buf, 0, 40);
	if (fd < 0 || read(fd, buf, 36) != 36)
		memset(buf, 0, 40);
}

int aq_slots_open(const char *path, struct aq_slots **ret, struct aq_err *err)
{
	aq_auto_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	char boot_id[40];
	struct aq_slots *s;
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return aq_err_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
	/* With its blocks: a full disk shows here, not as SIGBUS later. */
	if (st.st_size != sizeof(*s) && ftruncate(fd, 0) < 0)
		return aq_err_set(err, -errno, "cannot empty %s: %s", path, strerror(errno));
	rc = posix_fallocate(fd, 0, sizeof(*s));
	if (rc != 0)
		return aq_err_set(err, -rc, "cannot make %s: %s", path, strerror(rc));
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s == MAP_FAILED)
		return aq_err_set(err, -errno, "cannot map %s: %s", path, strerror(errno));
	read_boot_id(boot_id);
	if (s->magic != MAGIC || s->version != VERSION || s->size != sizeof(*s) ||
	    memcmp(s->boot_id, boot_id, sizeof(boot_id)) != 0) {
		memset(s, 0, sizeof(*s));
		s->version = VERSION;
		s->size = sizeof(*s);
		memcpy(s->boot_id, boot_id, sizeof(boot_id));
		s->magic = MAGIC;
	}
	*ret = s;
	return 0;
}

void aq_slots_close(struct aq_slots *s)
{
	if (s)
		(void)munmap(s, sizeof(*s));
}
