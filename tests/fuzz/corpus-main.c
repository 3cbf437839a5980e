/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over files, without a fuzzer: "fuzz-X FILE|DIRECTORY…". TAP out, one line a file. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned n_done;
static unsigned n_failed;

static void run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	uint8_t *data = NULL;
	size_t n = 0;

	if (f && fstat(fileno(f), &st) == 0) {
		/* Exactly as large as the input, so that a sanitizer sees the first byte behind it. */
		data = malloc((size_t)st.st_size + !st.st_size);
		if (data)
			n = fread(data, 1, (size_t)st.st_size, f);
	}
	n_done++;
	if (!data || n != (size_t)st.st_size) {
		printf("not ok %u - %s cannot be read\n", n_done, path);
		n_failed++;
	} else {
		(void)LLVMFuzzerTestOneInput(data, n);
		printf("ok %u - %s\n", n_done, path);
	}
	(void)fflush(stdout);
	free(data);
	if (f)
		(void)fclose(f);
}

static int is_file(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static void run_path(const char *path)
{
	struct dirent **names;
	char full[4096];
	int n = scandir(path, &names, is_file, alphasort);

	if (n < 0) {
		run_file(path);
		return;
	}
	for (int i = 0; i < n; i++) {
		(void)snprintf(full, sizeof(full), "%s/%s", path, names[i]->d_name);
		run_file(full);
		free(names[i]);
	}
	free(names);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		run_path(argv[i]);
	printf("1..%u\n", n_done);
	if (!n_done) {
		(void)fprintf(stderr, "%s: no input\n", argv[0]);
		return 2;
	}
	return n_failed ? 1 : 0;
}
