/* SPDX-License-Identifier: Apache-2.0 */
/* Software cards over the wire, with scripted kernels: memory, copies, streams, events, host functions. */
#include "card-harness.h"

#include "api/cuda_abi.h"
#include "wire/shm.h"

static struct harness h;

static int setup(void **state)
{
	(void)state;
	harness_start(&h, "card-1g", 2);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	harness_stop(&h);
	return 0;
}

/* Clients of the test before end asynchronously. */
static int quiet(void **state)
{
	struct client cl;

	(void)state;
	client_open(&cl, h.path);
	for (int i = 0; i < 5000; i++) {
		if (card_stat(&cl, 0).memory_used == 16 * AQ_MIB &&
		    card_stat(&cl, 1).memory_used == 16 * AQ_MIB)
			break;
		(void)usleep(1000);
	}
	assert_int_equal(card_stat(&cl, 0).memory_used, 16 * AQ_MIB);
	assert_int_equal(card_stat(&cl, 1).memory_used, 16 * AQ_MIB);
	client_close(&cl);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, quiet)

/* Wait until the card's books are as `used` says; clients end asynchronously. */
static void expect_used(struct client *cl, uint32_t card, uint64_t used)
{
	for (int i = 0; i < 2000 && card_stat(cl, card).memory_used != used; i++)
		(void)usleep(1000);
	assert_int_equal(card_stat(cl, card).memory_used, used);
}

static void test_info(void **state)
{
	struct aq_req_card_info req = { .card = 1 };
	struct aq_rep_card_info a = { 0 };
	struct aq_rep_card_info b = { 0 };
	struct client cl;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(aq_client_welcome(cl.c)->n_cards, 2);
	assert_int_equal(AQ_CALL(cl.c, CARD_INFO, card_info, &req, &a), AQ_OK);
	assert_non_null(strstr(a.name, "(software)"));
	assert_int_equal(a.memory_bytes, AQ_GIB);
	assert_int_equal(a.attrs[16], 4);  /* multiprocessors */
	assert_int_equal(a.attrs[75], 8);  /* compute capability */
	assert_int_equal(a.attrs[10], 32); /* warp size */
	req.card = 0;
	assert_int_equal(AQ_CALL(cl.c, CARD_INFO, card_info, &req, &b), AQ_OK);
	assert_memory_not_equal(a.uuid, b.uuid, 16);
	req.card = 2;
	assert_int_equal(AQ_CALL(cl.c, CARD_INFO, card_info, &req, &b), AQ_E_INVALID);
	client_close(&cl);
}

static void test_memory_books(void **state)
{
	struct client cl;
	uint64_t base;
	uint64_t with_ctx;
	uint64_t small[3];
	uint64_t large;

	(void)state;
	client_open(&cl, h.path);
	base = card_stat(&cl, 0).memory_used;
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	with_ctx = card_stat(&cl, 0).memory_used;
	assert_int_equal(with_ctx - base, 16 * AQ_MIB);
	/* Small ones share a slab of 2 MiB. */
	for (int i = 0; i < 3; i++)
		assert_int_equal(mem_alloc(&cl, 1, 1000, &small[i]), AQ_OK);
	assert_int_equal(small[1] - small[0], 1024);
	assert_int_equal(card_stat(&cl, 0).memory_used - with_ctx, 2 * AQ_MIB);
	assert_int_equal(mem_alloc(&cl, 1, 3 * AQ_MIB + 1, &large), AQ_OK);
	assert_int_equal(card_stat(&cl, 0).memory_used - with_ctx, 6 * AQ_MIB);
	assert_int_equal(mem_free(&cl, small[1]), AQ_OK);
	assert_int_equal(mem_free(&cl, small[1]), AQ_E_NOT_FOUND);
	assert_int_equal(mem_free(&cl, small[0] + 1), AQ_E_NOT_FOUND);
	assert_int_equal(mem_alloc(&cl, 1, 1024, &small[1]), AQ_OK);
	assert_int_equal(small[1] - small[0], 1024);
	for (int i = 0; i < 3; i++)
		assert_int_equal(mem_free(&cl, small[i]), AQ_OK);
	assert_int_equal(card_stat(&cl, 0).memory_used - with_ctx, 4 * AQ_MIB);
	assert_int_equal(mem_free(&cl, large), AQ_OK);
	assert_int_equal(card_stat(&cl, 0).memory_used, with_ctx);
	assert_int_equal(mem_alloc(&cl, 1, 5 * AQ_MIB, &large), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 1, 77, &small[0]), AQ_OK);
	assert_int_equal(ctx_destroy(&cl, 1), AQ_OK);
	assert_int_equal(card_stat(&cl, 0).memory_used, base);
	assert_int_equal(mem_free(&cl, large), AQ_E_NOT_FOUND);
	client_close(&cl);
}

static void test_out_of_memory(void **state)
{
	struct client cl;
	struct aq_rep_card_stat st;
	uint64_t va;
	uint64_t all;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	st = card_stat(&cl, 0);
	assert_int_equal(st.memory_free + st.memory_used, AQ_GIB);
	assert_int_equal(mem_alloc(&cl, 1, st.memory_free + 1, &va), AQ_E_NO_MEMORY);
	assert_int_equal(mem_alloc(&cl, 1, st.memory_free, &all), AQ_OK);
	assert_int_equal(card_stat(&cl, 0).memory_free, 0);
	assert_int_equal(mem_alloc(&cl, 1, 1, &va), AQ_E_NO_MEMORY);
	assert_int_equal(ctx_create(&cl, 2, 0), AQ_E_NO_MEMORY);
	/* The other card has its own. */
	assert_int_equal(ctx_create(&cl, 2, 1), AQ_OK);
	assert_int_equal(mem_free(&cl, all), AQ_OK);
	assert_int_equal(card_stat(&cl, 0).memory_free, st.memory_free);
	/* Every 2 MiB of it can be had. */
	for (uint64_t got = 0; got < st.memory_free; got += 2 * AQ_MIB)
		assert_int_equal(mem_alloc(&cl, 1, 2 * AQ_MIB, &va), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 1, 1, &va), AQ_E_NO_MEMORY);
	client_close(&cl);
}

static void test_many_small(void **state)
{
	enum {
		N = 20000
	};
	static uint64_t va[N];
	struct client cl;
	uint64_t used;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	used = card_stat(&cl, 0).memory_used;
	for (int i = 0; i < N; i++)
		assert_int_equal(mem_alloc(&cl, 1, 1 + (uint64_t)(i * 37 % 2000), &va[i]), AQ_OK);
	for (int i = 0; i < N; i += 2)
		assert_int_equal(mem_free(&cl, va[i]), AQ_OK);
	for (int i = 0; i < N; i += 2)
		assert_int_equal(mem_alloc(&cl, 1, 300, &va[i]), AQ_OK);
	for (int i = 0; i < N; i++)
		assert_int_equal(mem_free(&cl, va[i]), AQ_OK);
	assert_int_equal(card_stat(&cl, 0).memory_used, used);
	client_close(&cl);
}

static void test_contexts_leave_nothing(void **state)
{
	struct client cl;
	uint64_t used;
	uint64_t va;

	(void)state;
	client_open(&cl, h.path);
	used = card_stat(&cl, 0).memory_used;
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(ctx_create(&cl, 1 + (uint32_t)i % 3, 0), AQ_OK);
		assert_int_equal(mem_alloc(&cl, 1 + (uint32_t)i % 3, 4096, &va), AQ_OK);
		assert_int_equal(stream_create(&cl, 1 + (uint32_t)i % 3, 5, 0), AQ_OK);
		assert_int_equal(event_create(&cl, 1 + (uint32_t)i % 3, 6), AQ_OK);
		assert_int_equal(ctx_destroy(&cl, 1 + (uint32_t)i % 3), AQ_OK);
	}
	assert_int_equal(card_stat(&cl, 0).memory_used, used);
	assert_int_equal(card_stat(&cl, 0).n_contexts, 0);
	client_close(&cl);
}

static void test_write_read_copy(void **state)
{
	struct client cl;
	uint8_t data[1000];
	uint8_t back[1000];
	uint64_t a;
	uint64_t b;
	struct aq_req_copy copy = { .ctx = 1, .width = 1000, .height = 1, .depth = 1 };

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 1, 1000, &a), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 1, 4 * AQ_MIB, &b), AQ_OK);
	mem_write(&cl, 1, 0, a, data, sizeof(data));
	copy.src = a;
	copy.dst = b + 3 * AQ_MIB;
	assert_int_equal(AQ_SEND(cl.c, COPY, copy, &copy), 0);
	assert_int_equal(mem_read(&cl, 1, 0, copy.dst, back, sizeof(back)), AQ_OK);
	assert_memory_equal(data, back, sizeof(data));
	/* Bytes that nobody wrote are zero. */
	assert_int_equal(mem_read(&cl, 1, 0, b, back, 8), AQ_OK);
	assert_memory_equal(back, "\0\0\0\0\0\0\0\0", 8);
	client_close(&cl);
}

static void test_copy_3d(void **state)
{
	/* 5 × 4 × 3 bytes out of 8 × 6 per slice, into 7 × 5. */
	struct aq_req_copy copy = { .ctx = 1,
				    .width = 5,
				    .height = 4,
				    .depth = 3,
				    .src_pitch = 8,
				    .src_slice = 48,
				    .dst_pitch = 7,
				    .dst_slice = 35 };
	struct client cl;
	uint8_t src[144];
	uint8_t dst[105];
	uint64_t a;
	uint64_t b;

	(void)state;
	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)(i + 1);
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 1, sizeof(src), &a), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 1, sizeof(dst), &b), AQ_OK);
	mem_write(&cl, 1, 0, a, src, sizeof(src));
	copy.src = a;
	copy.dst = b;
	assert_int_equal(AQ_CALL(cl.c, COPY, copy, &copy, (struct aq_rep_copy *)NULL), AQ_OK);
	assert_int_equal(mem_read(&cl, 1, 0, b, dst, sizeof(dst)), AQ_OK);
	for (int z = 0; z < 3; z++)
		for (int y = 0; y < 5; y++)
			for (int x = 0; x < 7; x++)
				assert_int_equal(dst[z * 35 + y * 7 + x],
						 x < 5 && y < 4 ? src[z * 48 + y * 8 + x] : 0);
	/* Rows that overlap, sizes that wrap. */
	copy.dst_pitch = 4;
	assert_int_equal(AQ_CALL(cl.c, COPY, copy, &copy, (struct aq_rep_copy *)NULL),
			 AQ_E_INVALID);
	copy.dst_pitch = UINT64_MAX / 2;
	assert_int_equal(AQ_CALL(cl.c, COPY, copy, &copy, (struct aq_rep_copy *)NULL),
			 AQ_E_INVALID);
	client_close(&cl);
}

static void fill(struct client *cl, uint64_t dst, uint64_t width, uint64_t height, uint64_t pitch,
		 uint32_t element, uint32_t value, int expect)
{
	struct aq_req_fill req = { .ctx = 1,
				   .dst = dst,
				   .width = width,
				   .height = height,
				   .pitch = pitch,
				   .element = element,
				   .value = value };

	assert_int_equal(AQ_CALL(cl->c, FILL, fill, &req, (struct aq_rep_fill *)NULL), expect);
}

static void test_fill(void **state)
{
	struct client cl;
	uint8_t back[64];
	uint64_t a;
	uint64_t b;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 1, 4096, &a), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 1, 8 * AQ_MIB, &b), AQ_OK);
	fill(&cl, a, 3, 2, 8, 2, 0x1234, AQ_OK);
	assert_int_equal(mem_read(&cl, 1, 0, a, back, 16), AQ_OK);
	assert_memory_equal(back, "\x34\x12\x34\x12\x34\x12\0\0\x34\x12\x34\x12\x34\x12\0\0", 16);
	fill(&cl, b, 2 * AQ_MIB, 1, 0, 4, 0xdeadbeef, AQ_OK);
	assert_int_equal(mem_read(&cl, 1, 0, b + 8 * AQ_MIB - 8, back, 8), AQ_OK);
	assert_memory_equal(back, "\xef\xbe\xad\xde\xef\xbe\xad\xde", 8);
	fill(&cl, a + 1, 3, 1, 0, 2, 0, AQ_E_INVALID);
	fill(&cl, a, 3, 1, 0, 3, 0, AQ_E_INVALID);
	fill(&cl, a, UINT64_MAX / 2, 1, 0, 4, 0, AQ_E_INVALID);
	fill(&cl, a, 0, UINT64_MAX, 0, 4, 0, AQ_OK);
	client_close(&cl);
}

/* A bad access breaks the context, and only that one. */
static void test_copy_faults(void **state)
{
	struct client cl;
	uint64_t va;
	uint64_t gone;
	uint8_t byte = 1;

	(void)state;
	client_open(&cl, h.path);
	for (uint32_t i = 1; i <= 3; i++)
		assert_int_equal(ctx_create(&cl, i, 0), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 2, 4096, &va), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 3, 4 * AQ_MIB, &gone), AQ_OK);
	assert_int_equal(mem_free(&cl, gone), AQ_OK);
	mem_write(&cl, 1, 0, gone, &byte, 1);
	assert_int_equal(ctx_sync(&cl, 1), AQ_E_ILLEGAL_ADDRESS);
	assert_int_equal(aq_client_ctx_error(cl.c, 1), AQ_E_ILLEGAL_ADDRESS);
	assert_int_equal(mem_read(&cl, 1, 0, va, &byte, 1), AQ_E_ILLEGAL_ADDRESS);
	assert_int_equal(stream_query(&cl, 1, 0), AQ_E_ILLEGAL_ADDRESS);
	assert_int_equal(mem_read(&cl, 2, 0, va, &byte, 1), AQ_OK);
	assert_int_equal(aq_client_ctx_error(cl.c, 2), AQ_OK);
	assert_int_equal(ctx_sync(&cl, 2), AQ_OK);
	/* An address of the client's own is no device address. */
	assert_int_equal(mem_read(&cl, 2, 0, (uint64_t)(uintptr_t)&byte, &byte, 1),
			 AQ_E_ILLEGAL_ADDRESS);
	/* The slot is clean for the next context. */
	assert_int_equal(ctx_destroy(&cl, 1), AQ_OK);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(aq_client_ctx_error(cl.c, 1), AQ_OK);
	client_close(&cl);
}

/* Host memory is mapped on both sides, at the same address. */
static void test_host_memory(void **state)
{
	struct aq_req_mem_alloc req = {
		.ctx = 1, .kind = AQ_MEM_HOST, .size = 100000, .align = 256
	};
	struct aq_client_msg msg = { AQ_OP_MEM_ALLOC, &req, sizeof(req), NULL, 0 };
	struct aq_rep_mem_alloc rep;
	struct client cl;
	uint64_t used;
	int fd = -1;
	uint8_t *p;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	used = card_stat(&cl, 0).memory_used;
	assert_int_equal(aq_client_call_fd(cl.c, &msg, &rep, sizeof(rep), NULL, -1, &fd), AQ_OK);
	assert_int_equal(card_stat(&cl, 0).memory_used, used);
	assert_true(fd >= 0);
	/* Shrinking it would kill the server. */
	assert_true(ftruncate(fd, 0) < 0);
	p = mmap((void *)(uintptr_t)rep.share_va, rep.share_size, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0);
	assert_ptr_equal(p, (void *)(uintptr_t)rep.share_va);
	(void)close(fd);
	p[77] = 99;
	fill(&cl, rep.va + 78, 1, 1, 0, 1, 55, AQ_OK);
	assert_int_equal(p[78], 55);
	{
		uint8_t byte = 0;

		assert_int_equal(mem_read(&cl, 1, 0, rep.va + 77, &byte, 1), AQ_OK);
		assert_int_equal(byte, 99);
	}
	req.kind = AQ_MEM_MANAGED;
	assert_int_equal(aq_client_call_fd(cl.c, &msg, &rep, sizeof(rep), NULL, -1, &fd), AQ_OK);
	(void)close(fd);
	assert_int_equal(card_stat(&cl, 0).memory_used - used, 128 * AQ_KIB);
	client_close(&cl);
}

static void test_share_slab(void **state)
{
	struct aq_req_mem_share req;
	struct aq_client_msg msg = { AQ_OP_MEM_SHARE, &req, sizeof(req), NULL, 0 };
	struct aq_rep_mem_share rep;
	struct aq_rep_mem_free freed;
	struct client cl;
	uint64_t va;
	uint8_t *p;
	int fd;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 1, 512, &va), AQ_OK);
	req.va = va;
	assert_int_equal(aq_client_call_fd(cl.c, &msg, &rep, sizeof(rep), NULL, -1, &fd), AQ_OK);
	assert_int_equal(rep.share_size, 2 * AQ_MIB);
	p = mmap((void *)(uintptr_t)rep.share_va, rep.share_size, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, (off_t)rep.offset);
	assert_true(p != MAP_FAILED);
	(void)close(fd);
	mem_write(&cl, 1, 0, va, "hello", 6);
	assert_int_equal(ctx_sync(&cl, 1), AQ_OK);
	assert_string_equal((char *)(uintptr_t)va, "hello");
	{
		struct aq_req_mem_free f = { .va = va };

		assert_int_equal(AQ_CALL(cl.c, MEM_FREE, mem_free, &f, &freed), AQ_OK);
		assert_int_equal(freed.unmap_va, rep.share_va);
		assert_int_equal(freed.unmap_size, 2 * AQ_MIB);
	}
	client_close(&cl);
}

static int host_register(struct client *cl, void *va, uint64_t size, int fd)
{
	struct aq_req_host_register req = { .ctx = 1, .va = (uint64_t)(uintptr_t)va, .size = size };
	struct aq_client_msg msg = { AQ_OP_HOST_REGISTER, &req, sizeof(req), NULL, 0 };

	return aq_client_call_fd(cl->c, &msg, NULL, 0, NULL, fd, NULL);
}

static void test_host_register(void **state)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int unsealable = memfd_create("test", MFD_CLOEXEC);
	struct client cl;
	uint8_t byte = 0;
	uint8_t *p;

	(void)state;
	assert_int_equal(ftruncate(fd, 8192), 0);
	assert_int_equal(ftruncate(unsealable, 8192), 0);
	p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(host_register(&cl, p, 8192, unsealable), AQ_E_INVALID);
	assert_int_equal(host_register(&cl, p, 16384, fd), AQ_E_INVALID);
	assert_int_equal(host_register(&cl, cl.arena, 8192, fd), AQ_E_INVALID);
	assert_int_equal(host_register(&cl, p, 8192, fd), AQ_OK);
	assert_int_equal(host_register(&cl, p, 8192, fd), AQ_E_INVALID);
	p[5000] = 7;
	assert_int_equal(mem_read(&cl, 1, 0, (uint64_t)(uintptr_t)p + 5000, &byte, 1), AQ_OK);
	assert_int_equal(byte, 7);
	assert_true(ftruncate(fd, 0) < 0);
	assert_int_equal(mem_free(&cl, (uint64_t)(uintptr_t)p), AQ_OK);
	client_close(&cl);
	(void)munmap(p, 8192);
	(void)close(fd);
	(void)close(unsealable);
}

/* ---- streams ---- */

static void test_host_func_order(void **state)
{
	struct client cl;
	uint8_t byte = 0;
	uint64_t va;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(stream_create(&cl, 1, 1, 0), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 1, 16, &va), AQ_OK);
	assert_int_equal(host_func(&cl, 1, 1, 111), AQ_OK);
	mem_write(&cl, 1, 1, va, "\x05", 1);
	assert_int_equal(stream_query(&cl, 1, 1), AQ_E_NOT_READY);
	assert_int_equal(host_func_next(&cl), 111);
	assert_int_equal(stream_query(&cl, 1, 1), AQ_E_NOT_READY);
	assert_int_equal(host_func_done(&cl, 222), AQ_E_NOT_FOUND);
	assert_int_equal(host_func_done(&cl, 111), AQ_OK);
	assert_int_equal(host_func_done(&cl, 111), AQ_E_NOT_FOUND);
	assert_int_equal(stream_sync(&cl, 1, 1), AQ_OK);
	assert_int_equal(mem_read(&cl, 1, 1, va, &byte, 1), AQ_OK);
	assert_int_equal(byte, 5);
	client_close(&cl);
}

/* A host function that nobody runs blocks its stream: whom else? */
static void test_legacy_order(void **state)
{
	struct client cl;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(stream_create(&cl, 1, 1, 0), AQ_OK);
	assert_int_equal(stream_create(&cl, 1, 2, 0), AQ_OK);
	assert_int_equal(stream_create(&cl, 1, 3, AQ_STREAM_NON_BLOCKING), AQ_OK);
	for (uint32_t i = 0; i <= 3; i++)
		assert_int_equal(event_create(&cl, 1, 10 + i), AQ_OK);
	/* Blocking stream 1 is held up: the legacy stream waits for it, stream 2 for the legacy one, stream 3 for nobody. */
	assert_int_equal(host_func(&cl, 1, 1, 1), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 2, 12), AQ_OK);
	assert_int_equal(event_query(&cl, 12), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 0, 10), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 2, 12), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 3, 13), AQ_OK);
	assert_int_equal(event_query(&cl, 10), AQ_E_NOT_READY);
	assert_int_equal(event_query(&cl, 12), AQ_E_NOT_READY);
	assert_int_equal(event_query(&cl, 13), AQ_OK);
	assert_int_equal(stream_query(&cl, 1, 0), AQ_E_NOT_READY);
	assert_int_equal(stream_sync(&cl, 1, 3), AQ_OK);
	assert_int_equal(host_func_next(&cl), 1);
	assert_int_equal(host_func_done(&cl, 1), AQ_OK);
	assert_int_equal(event_query(&cl, 12), AQ_OK);
	assert_int_equal(event_query(&cl, 10), AQ_OK);
	/* The legacy stream does not wait for the non-blocking one. */
	assert_int_equal(host_func(&cl, 1, 3, 2), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 0, 10), AQ_OK);
	assert_int_equal(event_query(&cl, 10), AQ_OK);
	assert_int_equal(stream_sync(&cl, 1, 0), AQ_OK);
	assert_int_equal(stream_query(&cl, 1, 3), AQ_E_NOT_READY);
	client_close(&cl);
}

static void test_events(void **state)
{
	struct aq_req_event_elapsed req = { .start = 1, .end = 2 };
	struct aq_rep_event_elapsed rep = { 0 };
	struct client cl;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(ctx_create(&cl, 2, 1), AQ_OK);
	assert_int_equal(stream_create(&cl, 1, 1, 0), AQ_OK);
	assert_int_equal(stream_create(&cl, 2, 2, 0), AQ_OK);
	for (uint32_t i = 1; i <= 3; i++)
		assert_int_equal(event_create(&cl, 1, i), AQ_OK);
	assert_int_equal(event_create(&cl, 1, 3), AQ_E_INVALID);
	assert_int_equal(event_query(&cl, 1), AQ_OK);
	assert_int_equal(event_sync(&cl, 1), AQ_OK);
	assert_int_equal(AQ_CALL(cl.c, EVENT_ELAPSED, event_elapsed, &req, &rep), AQ_E_INVALID);
	assert_int_equal(event_record(&cl, 1, 1, 1), AQ_OK);
	assert_int_equal(host_func(&cl, 1, 1, 9), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 1, 2), AQ_OK);
	assert_int_equal(AQ_CALL(cl.c, EVENT_ELAPSED, event_elapsed, &req, &rep), AQ_E_NOT_READY);
	/* A stream of another card waits for it; recording the event again does not let it go. */
	assert_int_equal(wait_event(&cl, 2, 2, 2), AQ_OK);
	assert_int_equal(stream_create(&cl, 1, 3, AQ_STREAM_NON_BLOCKING), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 3, 2), AQ_OK);
	assert_int_equal(event_query(&cl, 2), AQ_OK);
	assert_int_equal(stream_query(&cl, 2, 2), AQ_E_NOT_READY);
	assert_int_equal(host_func_next(&cl), 9);
	(void)usleep(2000);
	assert_int_equal(host_func_done(&cl, 9), AQ_OK);
	assert_int_equal(stream_query(&cl, 2, 2), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 1, 2), AQ_OK);
	assert_int_equal(event_sync(&cl, 2), AQ_OK);
	assert_int_equal(AQ_CALL(cl.c, EVENT_ELAPSED, event_elapsed, &req, &rep), AQ_OK);
	assert_true(rep.ns >= 2000000);
	/* Destroying a stream with work: the work goes on. */
	assert_int_equal(host_func(&cl, 1, 1, 10), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 1, 3), AQ_OK);
	{
		struct aq_req_stream_destroy d = { .ctx = 1, .stream = 1 };

		assert_int_equal(AQ_CALL(cl.c, STREAM_DESTROY, stream_destroy, &d,
					 (struct aq_rep_stream_destroy *)NULL),
				 AQ_OK);
		assert_int_equal(stream_query(&cl, 1, 1), AQ_E_NOT_FOUND);
	}
	assert_int_equal(event_query(&cl, 3), AQ_E_NOT_READY);
	assert_int_equal(host_func_next(&cl), 10);
	assert_int_equal(host_func_done(&cl, 10), AQ_OK);
	assert_int_equal(event_sync(&cl, 3), AQ_OK);
	client_close(&cl);
}

static void test_host_begin_end(void **state)
{
	struct aq_req_host_begin req = { .ctx = 1, .bytes = 100 };
	struct aq_rep_host_begin rep = { 0 };
	struct aq_req_host_end end;
	struct client cl;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(AQ_CALL(cl.c, HOST_BEGIN, host_begin, &req, &rep), AQ_OK);
	assert_int_equal(stream_query(&cl, 1, 0), AQ_E_NOT_READY);
	end.ticket = rep.ticket + 1;
	assert_int_equal(AQ_CALL(cl.c, HOST_END, host_end, &end, (struct aq_rep_host_end *)NULL),
			 AQ_E_NOT_FOUND);
	end.ticket = rep.ticket;
	assert_int_equal(AQ_CALL(cl.c, HOST_END, host_end, &end, (struct aq_rep_host_end *)NULL),
			 AQ_OK);
	assert_int_equal(stream_query(&cl, 1, 0), AQ_OK);
	/* Leave one open. */
	assert_int_equal(AQ_CALL(cl.c, HOST_BEGIN, host_begin, &req, &rep), AQ_OK);
	client_close(&cl);
}

/* ---- kernels ---- */

static void kernels_ready(struct client *cl)
{
	client_open(cl, h.path);
	assert_int_equal(ctx_create(cl, 1, 0), AQ_OK);
	assert_int_equal(module_load(cl, 1, 1, "fake"), AQ_OK);
}

static uint64_t word_at(struct client *cl, uint32_t ctx, uint64_t va)
{
	uint64_t v = 0;

	assert_int_equal(mem_read(cl, ctx, 0, va, &v, 8), AQ_OK);
	return v;
}

static void test_module(void **state)
{
	struct aq_req_func_info freq = { .module = 1, .index = K_TOUCH };
	struct aq_req_global_info greq = { .module = 1 };
	struct {
		struct aq_rep_func_info i;
		struct aq_wire_param p[2];
		char name[32];
	} f = { 0 };
	struct {
		struct aq_rep_global_info i;
		char name[32];
	} g = { 0 };
	struct aq_client_msg fmsg = { AQ_OP_FUNC_INFO, &freq, sizeof(freq), NULL, 0 };
	struct aq_client_msg gmsg = { AQ_OP_GLOBAL_INFO, &greq, sizeof(greq), NULL, 0 };
	struct aq_req_module_log lreq = { 0 };
	struct aq_client_msg lmsg = { AQ_OP_MODULE_LOG, &lreq, sizeof(lreq), NULL, 0 };
	struct aq_req_module_unload unload = { .module = 1 };
	char log[256] = "";
	char text[17] = "";
	struct client cl;
	uint64_t used;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	used = card_stat(&cl, 0).memory_used;
	assert_int_equal(module_load(&cl, 1, 1, "fake"), AQ_OK);
	assert_int_equal(module_load(&cl, 1, 1, "fake"), AQ_E_INVALID);
	assert_int_equal(aq_client_call(cl.c, &fmsg, &f, sizeof(f), NULL), AQ_OK);
	assert_int_equal(f.i.n_params, 2);
	assert_int_equal(f.p[1].offset, 8);
	assert_memory_equal(f.name, "touch", f.i.name_len);
	assert_int_equal(aq_client_call(cl.c, &gmsg, &g, sizeof(g), NULL), AQ_OK);
	assert_memory_equal(g.name, "g", g.i.name_len);
	assert_int_equal(mem_read(&cl, 1, 0, g.i.va, text, 16), AQ_OK);
	assert_string_equal(text, "0123456789abcdef");
	assert_int_equal(mem_free(&cl, g.i.va), AQ_E_NOT_FOUND);
	greq.index = 1;
	assert_int_equal(aq_client_call(cl.c, &gmsg, &g, sizeof(g), NULL), AQ_OK);
	assert_true(g.i.is_managed);
	greq.index = 2;
	assert_int_equal(aq_client_call(cl.c, &gmsg, &g, sizeof(g), NULL), AQ_E_NOT_FOUND);
	assert_int_equal(module_load(&cl, 1, 2, "what"), AQ_E_PTX);
	assert_int_equal(aq_client_call(cl.c, &lmsg, log, sizeof(log) - 1, NULL), AQ_OK);
	assert_non_null(strstr(log + sizeof(struct aq_rep_module_log), "line 1"));
	assert_int_equal(AQ_CALL(cl.c, MODULE_UNLOAD, module_unload, &unload,
				 (struct aq_rep_module_unload *)NULL),
			 AQ_OK);
	assert_int_equal(card_stat(&cl, 0).memory_used, used);
	client_close(&cl);
}

static void test_kernel_count(void **state)
{
	struct launch l = { .ctx = 1, .module = 1, .func = K_COUNT, .blocks = 10000 };
	struct client cl;

	(void)state;
	kernels_ready(&cl);
	assert_int_equal(mem_alloc(&cl, 1, 8, &l.arg0), AQ_OK);
	for (int i = 0; i < 20; i++)
		assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(stream_sync(&cl, 1, 0), AQ_OK);
	assert_int_equal(word_at(&cl, 1, l.arg0), 200000);
	assert_true(card_stat(&cl, 0).kernels >= 20);
	client_close(&cl);
}

/* All blocks that fit are resident together, however long they run. 4 SMs × 32 blocks of 32 threads. */
static void test_co_residency(void **state)
{
	struct launch l = { .ctx = 1, .module = 1, .func = K_BARRIER, .blocks = 128 };
	struct launch m = { .ctx = 1, .stream = 1, .module = 1, .func = K_BARRIER, .blocks = 64 };
	struct client cl;

	(void)state;
	kernels_ready(&cl);
	assert_int_equal(mem_alloc(&cl, 1, 16, &l.arg0), AQ_OK);
	assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(ctx_sync(&cl, 1), AQ_OK);
	/* Cooperative: too many at once are refused, as many as fit are not. */
	l.flags = AQ_LAUNCH_COOPERATIVE;
	l.blocks = 129;
	assert_int_equal(launch(&cl, &l), AQ_E_LAUNCH_RESOURCES);
	l.blocks = 128;
	fill(&cl, l.arg0, 16, 1, 0, 1, 0, AQ_OK);
	assert_int_equal(launch(&cl, &l), AQ_OK);
	/* A second one beside it waits for room instead of blocking both. */
	assert_int_equal(stream_create(&cl, 1, 1, AQ_STREAM_NON_BLOCKING), AQ_OK);
	m.arg0 = l.arg0 + 8;
	m.flags = AQ_LAUNCH_COOPERATIVE;
	assert_int_equal(launch(&cl, &m), AQ_OK);
	assert_int_equal(ctx_sync(&cl, 1), AQ_OK);
	assert_int_equal(word_at(&cl, 1, l.arg0), 128);
	assert_int_equal(word_at(&cl, 1, m.arg0), 64);
	/* Shared memory bounds it too: 3 blocks of 50 KiB fit into one SM. */
	l.shared = 50 * 1024;
	l.blocks = 13;
	assert_int_equal(launch(&cl, &l), AQ_E_LAUNCH_RESOURCES);
	client_close(&cl);
}

static void test_launch_checks(void **state)
{
	struct launch ok = { .ctx = 1, .module = 1, .func = K_SPIN, .arg0 = 1 };
	struct launch l;
	struct client cl;

	(void)state;
	kernels_ready(&cl);
	assert_int_equal(launch(&cl, &ok), AQ_OK);
	l = ok;
	l.threads = 1025;
	assert_int_equal(launch(&cl, &l), AQ_E_INVALID);
	l = ok;
	l.blocks = 0x80000000U;
	assert_int_equal(launch(&cl, &l), AQ_E_INVALID);
	l = ok;
	l.shared = 0xffffffffU;
	assert_int_equal(launch(&cl, &l), AQ_E_LAUNCH_RESOURCES);
	l = ok;
	l.func = 99;
	assert_int_equal(launch(&cl, &l), AQ_E_NOT_FOUND);
	l = ok;
	l.module = 2;
	assert_int_equal(launch(&cl, &l), AQ_E_NOT_FOUND);
	l = ok;
	l.flags = 0x80;
	assert_int_equal(launch(&cl, &l), AQ_E_INVALID);
	assert_int_equal(ctx_sync(&cl, 1), AQ_OK);
	client_close(&cl);
}

static void test_kernel_fault(void **state)
{
	struct launch l = { .ctx = 1, .module = 1, .func = K_FAULT, .arg0 = AQ_E_TRAP };
	struct launch other = { .ctx = 2, .module = 2, .func = K_COUNT, .blocks = 4 };
	struct launch endless = { .ctx = 1, .stream = 1, .module = 1, .func = K_ENDLESS };
	struct aq_req_host_func callback = { .ctx = 1, .even_after_error = 1 };
	struct aq_req_host_func_next next = { 0 };
	struct aq_rep_host_func_next got = { 0 };
	struct client cl;

	(void)state;
	kernels_ready(&cl);
	assert_int_equal(ctx_create(&cl, 2, 0), AQ_OK);
	assert_int_equal(module_load(&cl, 2, 2, "fake"), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 2, 8, &other.arg0), AQ_OK);
	assert_int_equal(stream_create(&cl, 1, 1, AQ_STREAM_NON_BLOCKING), AQ_OK);
	assert_int_equal(event_create(&cl, 1, 1), AQ_OK);
	/* The endless kernel of the same context dies with it, and who waits for it hears of it. */
	assert_int_equal(launch(&cl, &endless), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 1, 1), AQ_OK);
	assert_int_equal(host_func(&cl, 1, 0, 5), AQ_OK);
	assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(host_func_next(&cl), 5);
	assert_int_equal(host_func_done(&cl, 5), AQ_OK);
	assert_int_equal(event_sync(&cl, 1), AQ_E_TRAP);
	assert_int_equal(ctx_sync(&cl, 1), AQ_E_TRAP);
	/* A function is skipped after an error, a callback is not, and hears of it. */
	assert_int_equal(host_func(&cl, 1, 0, 6), AQ_OK);
	assert_int_equal(stream_query(&cl, 1, 0), AQ_E_TRAP);
	callback.cookie = 7;
	assert_int_equal(AQ_SEND(cl.c, HOST_FUNC, host_func, &callback), 0);
	assert_int_equal(AQ_CALL(cl.c, HOST_FUNC_NEXT, host_func_next, &next, &got), AQ_OK);
	assert_int_equal(got.cookie, 7);
	assert_int_equal(got.status, AQ_E_TRAP);
	assert_int_equal(host_func_done(&cl, 7), AQ_OK);
	assert_int_equal(aq_client_ctx_error(cl.c, 1), AQ_E_TRAP);
	assert_int_equal(launch(&cl, &l), AQ_E_TRAP);
	assert_int_equal(launch(&cl, &other), AQ_OK);
	assert_int_equal(ctx_sync(&cl, 2), AQ_OK);
	assert_int_equal(word_at(&cl, 2, other.arg0), 4);
	client_close(&cl);
}

/* Memory of another card is out of reach for kernels until peer access is on. */
static void test_peer(void **state)
{
	struct launch l = { .ctx = 1, .module = 1, .func = K_TOUCH, .arg1 = 42 };
	struct aq_req_ctx_peer peer = { .ctx = 1, .peer_ctx = 2, .enable = 1 };
	struct client cl;
	uint64_t remote;

	(void)state;
	kernels_ready(&cl);
	assert_int_equal(ctx_create(&cl, 2, 1), AQ_OK);
	assert_int_equal(mem_alloc(&cl, 2, 8, &remote), AQ_OK);
	l.arg0 = remote;
	assert_int_equal(AQ_CALL(cl.c, CTX_PEER, ctx_peer, &peer, (struct aq_rep_ctx_peer *)NULL),
			 AQ_OK);
	assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(ctx_sync(&cl, 1), AQ_OK);
	assert_int_equal(word_at(&cl, 2, remote), 42);
	peer.enable = 0;
	assert_int_equal(AQ_CALL(cl.c, CTX_PEER, ctx_peer, &peer, (struct aq_rep_ctx_peer *)NULL),
			 AQ_OK);
	assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(ctx_sync(&cl, 1), AQ_E_ILLEGAL_ADDRESS);
	client_close(&cl);
}

/* An endless kernel has the card for its slices only, and goes with its client. */
static void test_endless_neighbour(void **state)
{
	struct launch endless = { .ctx = 1, .module = 1, .func = K_ENDLESS, .blocks = 8 };
	struct launch l = { .ctx = 1, .module = 1, .func = K_COUNT, .blocks = 10 };
	struct client bad;
	struct client good;
	struct client watch;
	uint64_t used;
	uint64_t from;

	(void)state;
	client_open(&watch, h.path);
	used = card_stat(&watch, 0).memory_used;
	kernels_ready(&bad);
	kernels_ready(&good);
	assert_int_equal(launch(&bad, &endless), AQ_OK);
	assert_int_equal(mem_alloc(&good, 1, 8, &l.arg0), AQ_OK);
	from = aq_now_ns();
	for (int i = 0; i < 10; i++) {
		assert_int_equal(launch(&good, &l), AQ_OK);
		assert_int_equal(ctx_sync(&good, 1), AQ_OK);
	}
	assert_true(aq_now_ns() - from < 2 * AQ_NS_PER_S);
	assert_int_equal(word_at(&good, 1, l.arg0), 100);
	assert_int_equal(card_stat(&watch, 0).n_contexts, 2);
	/* Memory can be freed beside it. */
	assert_int_equal(mem_free(&good, l.arg0), AQ_OK);
	client_close(&bad);
	client_close(&good);
	expect_used(&watch, 0, used);
	assert_int_equal(card_stat(&watch, 0).n_contexts, 0);
	client_close(&watch);
}

/* The work of a context is finished before it goes. */
static void test_destroy_waits(void **state)
{
	struct launch l = { .ctx = 1, .module = 1, .func = K_SLEEP, .arg0 = 20 * AQ_NS_PER_MS };
	struct client cl;
	uint64_t kernels;
	uint64_t from;

	(void)state;
	kernels_ready(&cl);
	kernels = card_stat(&cl, 0).kernels;
	from = aq_now_ns();
	assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(ctx_destroy(&cl, 1), AQ_OK);
	assert_true(aq_now_ns() - from >= 20 * AQ_NS_PER_MS);
	assert_int_equal(card_stat(&cl, 0).kernels, kernels + 1);
	client_close(&cl);
}

/* Two sleepers on one card take turns: both together take twice as long. */
static void test_sleep_occupies(void **state)
{
	struct launch l = { .ctx = 1, .module = 1, .func = K_SLEEP, .arg0 = 40 * AQ_NS_PER_MS };
	struct client a;
	struct client b;
	uint64_t from;
	uint64_t alone;

	(void)state;
	kernels_ready(&a);
	kernels_ready(&b);
	from = aq_now_ns();
	assert_int_equal(launch(&a, &l), AQ_OK);
	assert_int_equal(ctx_sync(&a, 1), AQ_OK);
	alone = aq_now_ns() - from;
	assert_true(alone >= 40 * AQ_NS_PER_MS);
	from = aq_now_ns();
	assert_int_equal(launch(&a, &l), AQ_OK);
	assert_int_equal(launch(&b, &l), AQ_OK);
	assert_int_equal(ctx_sync(&a, 1), AQ_OK);
	assert_int_equal(ctx_sync(&b, 1), AQ_OK);
	assert_true(aq_now_ns() - from >= 80 * AQ_NS_PER_MS);
	client_close(&a);
	client_close(&b);
}

static void test_procs(void **state)
{
	struct launch l = { .ctx = 1, .module = 1, .func = K_SLEEP, .arg0 = 600 * AQ_NS_PER_MS };
	struct aq_req_card_procs req = { .card = 0 };
	struct aq_client_msg msg = { AQ_OP_CARD_PROCS, &req, sizeof(req), NULL, 0 };
	static struct aq_rep_card_procs rep;
	struct aq_rep_card_stat st;
	struct client cl;

	(void)state;
	kernels_ready(&cl);
	assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(ctx_sync(&cl, 1), AQ_OK);
	st = card_stat(&cl, 0);
	assert_true(st.util_gpu_pct >= 90);
	assert_true(st.busy_ns >= 600 * AQ_NS_PER_MS);
	assert_true(st.power_mw > 6000 && st.power_mw <= 30000);
	assert_int_equal(st.n_procs, 1);
	assert_int_equal(aq_client_call(cl.c, &msg, &rep, sizeof(rep), NULL), AQ_OK);
	assert_int_equal(rep.total, 1);
	assert_int_equal(rep.n, 1);
	assert_int_equal(rep.proc[0].pid, getpid());
	assert_true(rep.proc[0].memory_bytes >= 16 * AQ_MIB);
	assert_true(rep.proc[0].util_gpu_pct >= 90);
	client_close(&cl);
}

/* A slow card: the kernel is over when the model says so, by the card's clock, and holds the card until then. */
static void test_model(void **state)
{
	/* 10000 × 40 ns / 0.01 = 40 ms; the machine needs 0.2 ms. */
	struct launch l = { .ctx = 1, .module = 1, .func = K_SPIN, .arg0 = 10000 };
	struct aq_req_event_elapsed req = { .start = 1, .end = 2 };
	struct aq_rep_event_elapsed rep = { 0 };
	struct harness slow;
	struct client cl;

	(void)state;
	harness_start(&slow, "card-1g,speed=0.01", 1);
	client_open(&cl, slow.path);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(module_load(&cl, 1, 1, "fake"), AQ_OK);
	assert_int_equal(event_create(&cl, 1, 1), AQ_OK);
	assert_int_equal(event_create(&cl, 1, 2), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 0, 1), AQ_OK);
	assert_int_equal(launch(&cl, &l), AQ_OK);
	assert_int_equal(event_record(&cl, 1, 0, 2), AQ_OK);
	assert_int_equal(event_sync(&cl, 2), AQ_OK);
	assert_int_equal(AQ_CALL(cl.c, EVENT_ELAPSED, event_elapsed, &req, &rep), AQ_OK);
	assert_true(rep.ns >= 40 * (int64_t)AQ_NS_PER_MS);
	assert_true(card_stat(&cl, 0).busy_ns >= 40 * AQ_NS_PER_MS);
	client_close(&cl);
	harness_stop(&slow);
}

static void test_profiles(void **state)
{
	static const char *const bad[] = { "",
					   "card-2g",
					   "card-1g,",
					   "card-1g,speed=0",
					   "card-1g,speed=x",
					   "card-1g,speed=nan",
					   "card-1g,memory=1",
					   "card-1g,memory=5GB",
					   "card-1g,sms=0",
					   "card-1g,sms=257",
					   "card-1g,sm=79",
					   "card-1g,sm=100",
					   "card-1g,colour=red" };
	struct aq_rep_card_info info;
	struct aq_profile p;
	struct aq_err err;

	(void)state;
	for (unsigned i = 0; aq_profile_name(i); i++)
		assert_int_equal(aq_profile_parse(aq_profile_name(i), &p, NULL), 0);
	assert_int_equal(aq_profile_parse("card-40g,sms=2,memory=64,speed=0.5", &p, NULL), 0);
	assert_int_equal(p.sms, 2);
	assert_int_equal(p.memory_bytes, 64 * AQ_MIB);
	assert_true(p.reserved_bytes + p.context_bytes < p.memory_bytes / 2);
	assert_int_equal(aq_profile_parse("card-1g,sm=75", &p, NULL), 0);
	aq_profile_info(&p, 0, 1, &info);
	assert_int_equal(info.attrs[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR], 7);
	assert_int_equal(info.attrs[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR], 5);
	for (size_t i = 0; i < AQ_ARRAY_SIZE(bad); i++) {
		err = (struct aq_err){ 0 };
		assert_true(aq_profile_parse(bad[i], &p, &err) < 0);
		assert_true(err.msg[0] != '\0');
	}
}

/* ---- bad input ---- */

static void test_hostile(void **state)
{
	struct aq_req_mem_alloc alloc = { .ctx = 1, .align = 256 };
	struct aq_rep_mem_alloc rep;
	struct aq_req_copy copy = { .ctx = 1, .height = 1, .depth = 1 };
	struct client cl;
	uint64_t va;

	(void)state;
	client_open(&cl, h.path);
	assert_int_equal(ctx_create(&cl, 0, 0), AQ_E_INVALID);
	assert_int_equal(ctx_create(&cl, AQ_WIRE_MAX_ID + 1, 0), AQ_E_INVALID);
	assert_int_equal(ctx_create(&cl, 1, 2), AQ_E_INVALID);
	assert_int_equal(ctx_sync(&cl, 1), AQ_E_CONTEXT_GONE);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_OK);
	assert_int_equal(ctx_create(&cl, 1, 0), AQ_E_INVALID);
	assert_int_equal(mem_alloc(&cl, 99, 1, &va), AQ_E_CONTEXT_GONE);
	assert_int_equal(mem_alloc(&cl, 1, 0, &va), AQ_E_INVALID);
	assert_int_equal(mem_alloc(&cl, 1, UINT64_MAX, &va), AQ_E_NO_MEMORY);
	assert_int_equal(mem_alloc(&cl, 1, UINT64_MAX - 4096, &va), AQ_E_NO_MEMORY);
	alloc.size = 10;
	alloc.align = 3;
	assert_int_equal(AQ_CALL(cl.c, MEM_ALLOC, mem_alloc, &alloc, &rep), AQ_E_INVALID);
	alloc.align = 256;
	alloc.kind = 77;
	assert_int_equal(AQ_CALL(cl.c, MEM_ALLOC, mem_alloc, &alloc, &rep), AQ_E_INVALID);
	assert_int_equal(mem_free(&cl, UINT64_MAX), AQ_E_NOT_FOUND);
	assert_int_equal(stream_create(&cl, 1, 0, 0), AQ_E_INVALID);
	assert_int_equal(stream_create(&cl, 1, UINT32_MAX, 0), AQ_E_INVALID);
	assert_int_equal(event_record(&cl, 1, 0, 5), AQ_E_NOT_FOUND);
	assert_int_equal(event_query(&cl, UINT32_MAX), AQ_E_NOT_FOUND);
	copy.width = UINT64_MAX;
	copy.src = copy.dst = 1 << 20;
	assert_int_equal(AQ_CALL(cl.c, COPY, copy, &copy, (struct aq_rep_copy *)NULL),
			 AQ_E_INVALID);
	/* Sent: nobody reads the status, so it becomes the context's error. */
	assert_int_equal(AQ_SEND(cl.c, COPY, copy, &copy), 0);
	assert_int_equal(ctx_sync(&cl, 1), AQ_E_INVALID);
	client_close(&cl);
}

/* More unfinished commands than the server takes at once. */
static void test_deep_queue(void **state)
{
	struct launch l = { .ctx = 1, .module = 1, .func = K_COUNT };
	struct client cl;

	(void)state;
	kernels_ready(&cl);
	assert_int_equal(mem_alloc(&cl, 1, 8, &l.arg0), AQ_OK);
	for (int i = 0; i < 30000; i++) {
		uint64_t args[2] = { l.arg0, 0 };
		struct aq_req_launch req = { .ctx = 1,
					     .module = 1,
					     .func = K_COUNT,
					     .grid = { 1, 1, 1 },
					     .block = { 1, 1, 1 },
					     .param_bytes = 16 };
		struct aq_client_msg msg = { AQ_OP_LAUNCH, &req, sizeof(req), args, 16 };

		assert_int_equal(aq_client_send(cl.c, &msg), 0);
	}
	assert_int_equal(ctx_sync(&cl, 1), AQ_OK);
	assert_int_equal(word_at(&cl, 1, l.arg0), 30000);
	client_close(&cl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_info),
		TEST(test_memory_books),
		TEST(test_out_of_memory),
		TEST(test_many_small),
		TEST(test_contexts_leave_nothing),
		TEST(test_write_read_copy),
		TEST(test_copy_3d),
		TEST(test_fill),
		TEST(test_copy_faults),
		TEST(test_host_memory),
		TEST(test_share_slab),
		TEST(test_host_register),
		TEST(test_host_func_order),
		TEST(test_legacy_order),
		TEST(test_events),
		TEST(test_host_begin_end),
		TEST(test_module),
		TEST(test_kernel_count),
		TEST(test_co_residency),
		TEST(test_launch_checks),
		TEST(test_kernel_fault),
		TEST(test_peer),
		TEST(test_endless_neighbour),
		TEST(test_destroy_waits),
		TEST(test_sleep_occupies),
		TEST(test_procs),
		TEST(test_model),
		TEST(test_profiles),
		TEST(test_hostile),
		TEST(test_deep_queue),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
