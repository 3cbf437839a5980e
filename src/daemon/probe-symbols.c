/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/probe.h"

#include "api/api.h"
#include "base/cleanup.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct image {
	const uint8_t *bytes;
	size_t size;
};

/* The dynamic symbols of a file and their names. Lies in the mapping; everything is checked against its size. */
struct symbols {
	const ElfW(Sym) * sym;
	size_t n;
	const char *names;
	size_t names_size;
};

static const void *part(const struct image *m, uint64_t at, uint64_t size)
{
	return at <= m->size && size <= m->size - at ? m->bytes + at : NULL;
}

static bool find_symbols(const struct image *m, struct symbols *ret)
{
	const ElfW(Ehdr) *eh = part(m, 0, sizeof(*eh));
	const ElfW(Shdr) * sh;

	if (!eh || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0 ||
	    eh->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
	    eh->e_shentsize != sizeof(*sh) || eh->e_shoff % _Alignof(ElfW(Shdr)))
		return false;
	sh = part(m, eh->e_shoff, (uint64_t)eh->e_shnum * sizeof(*sh));
	for (unsigned i = 0; sh && i < eh->e_shnum; i++) {
		const ElfW(Shdr) * str;

		if (sh[i].sh_type != SHT_DYNSYM || sh[i].sh_link >= eh->e_shnum ||
		    sh[i].sh_offset % _Alignof(ElfW(Sym)))
			continue;
		str = &sh[sh[i].sh_link];
		ret->sym = part(m, sh[i].sh_offset, sh[i].sh_size);
		ret->n = sh[i].sh_size / sizeof(*ret->sym);
		ret->names = part(m, str->sh_offset, str->sh_size);
		ret->names_size = str->sh_size;
		return ret->sym && ret->names && ret->names_size &&
		       ret->names[ret->names_size - 1] == '\0';
	}
	return false;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names that the library defines and that begin like the API's; sorted, into names[] of size s->n. */
static size_t collect(const struct symbols *s, const char *prefix, const char **names)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		const char *name;

		if (s->sym[i].st_shndx == SHN_UNDEF || s->sym[i].st_name >= s->names_size)
			continue;
		name = s->names + s->sym[i].st_name;
		if (strncmp(name, prefix, strlen(prefix)) == 0)
			names[n++] = name;
	}
	qsort(names, n, sizeof(*names), by_text);
	return n;
}

static json_t *result(const char *kind, const char *path, size_t known, json_t *missing,
		      json_t *extra, const char *error)
{
	return json_pack("{s:s, s:s?, s:I, s:o, s:o, s:s?}", "kind", kind, "path", path, "known",
			 (json_int_t)known, "missing", missing, "extra", extra, "error", error);
}

/* Both lists are sorted. */
static void diff(const struct aq_api_entry *table, size_t n_table, const char **names, size_t n,
		 json_t *missing, json_t *extra)
{
	size_t t = 0;
	size_t i = 0;

	while (t < n_table || i < n) {
		int order = t == n_table ? 1 : i == n ? -1 : strcmp(table[t].symbol, names[i]);

		if (order < 0)
			(void)json_array_append_new(missing, json_string(table[t].symbol));
		else if (order > 0)
			(void)json_array_append_new(extra, json_string(names[i]));
		t += order <= 0;
		i += order >= 0;
	}
}

json_t *aq_probe_compare(const char *kind, const char *path)
{
	bool cuda = strcmp(kind, "cuda") == 0;
	const struct aq_api_entry *table = cuda ? aq_api_cuda : aq_api_nvml;
	size_t n_table = cuda ? aq_api_cuda_count : aq_api_nvml_count;
	aq_auto_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	aq_auto_free const char **names = NULL;
	struct image m = { 0 };
	struct symbols s = { 0 };
	json_t *missing = json_array();
	json_t *extra = json_array();
	const char *error = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		error = path ? strerror(errno) : "no such library is known";
	} else {
		m.size = (size_t)st.st_size;
		m.bytes = mmap(NULL, m.size ? m.size : 1, PROT_READ, MAP_PRIVATE, fd, 0);
		if (m.bytes == MAP_FAILED)
			error = strerror(errno);
		else if (!find_symbols(&m, &s))
			error = "not a shared library of this machine's kind";
	}
	if (!error) {
		names = calloc(s.n + 1, sizeof(*names));
		if (names)
			diff(table, n_table, names, collect(&s, cuda ? "cu" : "nvml", names),
			     missing, extra);
		else
			error = "no memory";
	}
	return result(kind, path, n_table, missing, extra, error);
}
