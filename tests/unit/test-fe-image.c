/* SPDX-License-Identifier: Apache-2.0 */
/* Finding PTX in images, the glance at its text, and the compiler's options. */
#include "frontend/cuda/core.h"

#include "base/macro.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIND_PTX 1
#define KIND_ELF 2

#define ENTRY_HEADER 64U

/* A fat binary under construction. */
struct fat {
	uint8_t bytes[4096];
	size_t len;
};

static void put(struct fat *f, size_t at, uint64_t value, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		f->bytes[at + i] = (uint8_t)(value >> (8 * i));
}

static void fat_begin(struct fat *f)
{
	memset(f, 0, sizeof(*f));
	put(f, 0, 0xba55ed50U, 4);
	put(f, 4, 1, 2);
	put(f, 6, 16, 2);
	f->len = 16;
}

static void fat_add(struct fat *f, unsigned kind, unsigned arch, uint64_t flags, const char *text)
{
	size_t size = aq_align_up(strlen(text) + 1, 8);
	size_t at = f->len;

	put(f, at, kind, 2);
	put(f, at + 4, ENTRY_HEADER, 4);
	put(f, at + 8, size, 8);
	put(f, at + 28, arch, 4);
	put(f, at + 40, flags, 8);
	memcpy(f->bytes + at + ENTRY_HEADER, text, strlen(text));
	f->len = at + ENTRY_HEADER + size;
	put(f, 8, f->len - 16, 8);
}

static CUresult find_in(const void *image, size_t len, unsigned sm, struct aq_fe_image *ret)
{
	const char *reason = NULL;
	CUresult rc = aq_fe_image_find(image, len, sm, ret, &reason);

	assert_non_null(reason);
	assert_int_equal(rc == CUDA_SUCCESS, reason[0] == '\0');
	return rc;
}

static void text_is_ptx(void **state)
{
	static const char text[] = "\n // c\n.version 7.0\n.target sm_80\n";
	struct aq_fe_image im;

	(void)state;
	assert_int_equal(find_in(text, SIZE_MAX, 80, &im), CUDA_SUCCESS);
	assert_ptr_equal(im.ptx, text);
	assert_int_equal(im.len, strlen(text));
	assert_int_equal(find_in(text, 10, 80, &im), CUDA_SUCCESS);
	assert_int_equal(im.len, 10);
	assert_int_equal(find_in("", SIZE_MAX, 80, &im), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(find_in("hello", SIZE_MAX, 80, &im), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(find_in("\177ELF\2\1\1", SIZE_MAX, 80, &im), CUDA_ERROR_NO_BINARY_FOR_GPU);
	assert_int_equal(find_in("\177EL", 3, 80, &im), CUDA_ERROR_INVALID_IMAGE);
}

static void the_best_entry_wins(void **state)
{
	struct aq_fe_image im;
	struct fat f;

	(void)state;
	fat_begin(&f);
	fat_add(&f, KIND_ELF, 80, 0, "machine code");
	fat_add(&f, KIND_PTX, 50, 0, ".version 7.0 // 50");
	fat_add(&f, KIND_PTX, 75, 0, ".version 7.0 // 75");
	fat_add(&f, KIND_PTX, 70, 0, ".version 7.0 // 70");
	fat_add(&f, KIND_PTX, 90, 0, ".version 7.0 // 90");
	assert_int_equal(find_in(f.bytes, f.len, 80, &im), CUDA_SUCCESS);
	assert_int_equal(im.target, 75);
	assert_int_equal(im.len, strlen(".version 7.0 // 75"));
	assert_memory_equal(im.ptx, ".version 7.0 // 75", im.len);
	assert_int_equal(find_in(f.bytes, f.len, 60, &im), CUDA_SUCCESS);
	assert_int_equal(im.target, 50);
	assert_int_equal(find_in(f.bytes, f.len, 30, &im), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

static void a_specific_target_runs_on_its_card_only(void **state)
{
	static const char text[] = ".version 8.0\n.target sm_90a\n";
	struct aq_fe_image im;
	struct fat f;

	(void)state;
	fat_begin(&f);
	fat_add(&f, KIND_PTX, 90, 0, text);
	assert_int_equal(find_in(f.bytes, f.len, 90, &im), CUDA_SUCCESS);
	assert_int_equal(find_in(f.bytes, f.len, 100, &im), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

static void what_cannot_run_says_why(void **state)
{
	const char *reason;
	struct aq_fe_image im;
	struct fat f;

	(void)state;
	fat_begin(&f);
	assert_int_equal(aq_fe_image_find(f.bytes, f.len, 80, &im, &reason),
			 CUDA_ERROR_NO_BINARY_FOR_GPU);
	assert_non_null(strstr(reason, "no PTX"));
	fat_add(&f, KIND_ELF, 80, 0, "code");
	assert_int_equal(aq_fe_image_find(f.bytes, f.len, 80, &im, &reason),
			 CUDA_ERROR_NO_BINARY_FOR_GPU);
	assert_non_null(strstr(reason, "machine code"));
	fat_add(&f, KIND_PTX, 80, 0x2000, "lz");
	assert_int_equal(aq_fe_image_find(f.bytes, f.len, 80, &im, &reason),
			 CUDA_ERROR_NO_BINARY_FOR_GPU);
	assert_non_null(strstr(reason, "compressed"));
	fat_begin(&f);
	fat_add(&f, KIND_PTX, 80, 0x8000, "zstd");
	assert_int_equal(aq_fe_image_find(f.bytes, f.len, 80, &im, &reason),
			 CUDA_ERROR_NO_BINARY_FOR_GPU);
	assert_non_null(strstr(reason, "compressed"));
}

static void the_wrapper_leads_to_the_fat_binary(void **state)
{
	struct {
		uint32_t magic, version;
		const void *data, *more;
	} w = { 0x466243b1U, 1, NULL, NULL };
	struct aq_fe_image im;
	struct fat f;

	(void)state;
	fat_begin(&f);
	fat_add(&f, KIND_PTX, 80, 0, ".version 7.0");
	assert_int_equal(find_in(&w, SIZE_MAX, 80, &im), CUDA_ERROR_INVALID_IMAGE);
	w.data = f.bytes;
	assert_int_equal(find_in(&w, SIZE_MAX, 80, &im), CUDA_SUCCESS);
	assert_int_equal(im.target, 80);
	assert_int_equal(find_in(&w, sizeof(w), 80, &im), CUDA_ERROR_INVALID_IMAGE);
}

/* Every cut and every single-byte change of a good one: some error or some text, nothing read outside. */
static void damage_is_an_error(void **state)
{
	struct aq_fe_image im;
	const char *reason;
	struct fat f;

	(void)state;
	fat_begin(&f);
	fat_add(&f, KIND_PTX, 70, 0, ".version 7.0");
	fat_add(&f, KIND_PTX, 80, 0, ".version 7.1");
	for (size_t len = 0; len < f.len; len++) {
		uint8_t *exact = malloc(len ? len : 1);

		assert_non_null(exact);
		memcpy(exact, f.bytes, len);
		assert_int_not_equal(aq_fe_image_find(exact, len, 80, &im, &reason), CUDA_SUCCESS);
		free(exact);
	}
	for (size_t at = 0; at < 16 + 2 * ENTRY_HEADER; at++) {
		for (unsigned value = 0; value < 256; value += 5) {
			uint8_t *exact = malloc(f.len);

			assert_non_null(exact);
			memcpy(exact, f.bytes, f.len);
			exact[at] = (uint8_t)value;
			if (aq_fe_image_find(exact, f.len, 80, &im, &reason) == CUDA_SUCCESS) {
				assert_true((const uint8_t *)im.ptx >= exact);
				assert_true((const uint8_t *)im.ptx + im.len <= exact + f.len);
			}
			free(exact);
		}
	}
}

/* ---- the glance ---- */

struct names {
	char text[256];
};

static bool add_name(void *opaque, const char *name, size_t len)
{
	struct names *n = opaque;

	size_t at = strlen(n->text);

	assert_true(at + len + 2 <= sizeof(n->text));
	memcpy(n->text + at, name, len);
	memcpy(n->text + at + len, " ", 2);
	return true;
}

static const char *kernels(const char *ptx)
{
	static struct names n;

	n.text[0] = '\0';
	aq_fe_ptx_kernels(ptx, strlen(ptx), add_name, &n);
	return n.text;
}

static void kernels_are_found(void **state)
{
	(void)state;
	assert_string_equal(kernels(""), "");
	assert_string_equal(kernels(".visible .entry a(.param .u64 p) { ret; }\n.entry _b$1()\n{}"),
			    "a _b$1 ");
	assert_string_equal(kernels("// .entry no\n/* .entry no */ .file 1 \".entry no\"\n"
				    ".entry // c\n /* d */ yes ("),
			    "yes ");
	assert_string_equal(kernels(".entryx a .func b %.entry .entry"), "");
	assert_string_equal(kernels("/* open .entry x"), "");
	assert_string_equal(kernels(".entry"), "");
}

static void versions_and_targets_are_read(void **state)
{
	(void)state;
	assert_int_equal(aq_fe_ptx_version(".version 8.3", 12), 83);
	assert_int_equal(aq_fe_ptx_version("// .version 9.9\n.version 7.0 ", 29), 70);
	assert_int_equal(aq_fe_ptx_version(".version 10.0", 13), 100);
	assert_int_equal(aq_fe_ptx_version(".version 8", 10), 0);
	assert_int_equal(aq_fe_ptx_version(".version x.y", 12), 0);
	assert_int_equal(aq_fe_ptx_version("", 0), 0);
	assert_true(aq_fe_ptx_is_specific(".target sm_90a", 14));
	assert_false(aq_fe_ptx_is_specific(".target sm_90, debug", 20));
}

/* ---- options ---- */

static void logs_stay_in_their_buffers(void **state)
{
	char log[8] = "xxxxxxx";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_WALL_TIME };
	void *values[] = { log, (void *)(uintptr_t)4, NULL };
	struct aq_fe_jit jit;
	float ms;

	(void)state;
	assert_int_equal(aq_fe_jit_parse(3, options, values, &jit), CUDA_SUCCESS);
	assert_int_equal(log[0], '\0');
	aq_fe_jit_error(&jit, "%s", "ab");
	assert_string_equal(log, "ab");
	aq_fe_jit_error(&jit, "%s", "cdef");
	assert_string_equal(log, "abc");
	aq_fe_jit_append(&jit, "g", 1);
	assert_string_equal(log, "abc");
	assert_int_equal(log[4], 'x');
	jit.wall_ms = 1.5F;
	aq_fe_jit_finish(&jit, 3, options, values);
	assert_int_equal((uintptr_t)values[1], 3);
	memcpy(&ms, &values[2], sizeof(ms));
	assert_true(ms > 1.4F && ms < 1.6F);
}

static void options_are_checked(void **state)
{
	CUjit_option unknown = (CUjit_option)CU_JIT_NUM_OPTIONS;
	CUjit_option level = CU_JIT_OPTIMIZATION_LEVEL;
	void *value = (void *)(uintptr_t)5;
	struct aq_fe_jit jit;

	(void)state;
	assert_int_equal(aq_fe_jit_parse(0, NULL, NULL, &jit), CUDA_SUCCESS);
	aq_fe_jit_error(&jit, "%s", "nobody listens");
	assert_int_equal(aq_fe_jit_parse(1, NULL, NULL, &jit), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(aq_fe_jit_parse(1, &unknown, &value, &jit), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(aq_fe_jit_parse(1, &level, &value, &jit), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_is_ptx),
		cmocka_unit_test(the_best_entry_wins),
		cmocka_unit_test(a_specific_target_runs_on_its_card_only),
		cmocka_unit_test(what_cannot_run_says_why),
		cmocka_unit_test(the_wrapper_leads_to_the_fat_binary),
		cmocka_unit_test(damage_is_an_error),
		cmocka_unit_test(kernels_are_found),
		cmocka_unit_test(versions_and_targets_are_read),
		cmocka_unit_test(logs_stay_in_their_buffers),
		cmocka_unit_test(options_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
