/* SPDX-License-Identifier: Apache-2.0 */
/* Random requests, sensible and not, from several clients at once. Nothing may crash, and everything must be given back. */
#include "card-harness.h"

#include "wire/server.h"

static struct harness h;

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* A number as such a field has it: small, or a size, or an address, or nonsense. */
static uint64_t random_word(uint64_t *rng, const struct client *cl)
{
	switch (next_random(rng) % 8) {
	case 0:
		return 1ULL << (next_random(rng) % 64);
	case 1:
		return next_random(rng);
	case 2:
		return (uint64_t)(uintptr_t)cl->arena + next_random(rng) % 64 * AQ_MIB;
	case 3:
		return next_random(rng) % 8 * 2 * AQ_MIB;
	case 4:
		return 256ULL << (next_random(rng) % 8);
	default:
		return next_random(rng) % 5;
	}
}

/* Fill a request with such numbers, 32 bits at a time for the first two words, where identifiers are. */
static void random_request(uint64_t *rng, const struct client *cl, uint8_t *req, size_t len)
{
	for (size_t at = 0; at < len; at += 4) {
		uint64_t w = at < 16 ? next_random(rng) % 4 : random_word(rng, cl);

		memcpy(req + at, &w, AQ_MIN(len - at, at < 16 ? 4U : 8U));
	}
}

/* Waits for nothing that may never come, passes no descriptor. */
static bool is_called(enum aq_op op)
{
	return op == AQ_OP_CTX_CREATE || op == AQ_OP_VA_RESERVE || op == AQ_OP_STREAM_QUERY ||
	       op == AQ_OP_EVENT_QUERY || op == AQ_OP_EVENT_ELAPSED || op == AQ_OP_CARD_STAT ||
	       op == AQ_OP_CARD_PROCS || op == AQ_OP_MEM_FREE || op == AQ_OP_VA_MAP ||
	       op == AQ_OP_FUNC_INFO || op == AQ_OP_GLOBAL_INFO || op == AQ_OP_MODULE_LOG ||
	       op == AQ_OP_MEM_EXPORT || op == AQ_OP_EVENT_EXPORT;
}

static void launch_something(uint64_t *rng, struct client *cl, const uint64_t *va)
{
	static const uint32_t funcs[] = { K_COUNT, K_FAULT, K_SLEEP, K_TOUCH, K_SPIN };
	struct launch l = {
		.ctx = 1 + (uint32_t)(next_random(rng) % 3),
		.stream = (uint32_t)(next_random(rng) % 4),
		.func = funcs[next_random(rng) % AQ_ARRAY_SIZE(funcs)],
		.blocks = 1 + (uint32_t)(next_random(rng) % 10),
		.threads = 1 + (uint32_t)(next_random(rng) % 1024),
		.arg0 = va[next_random(rng) % 4],
	};

	l.module = l.ctx;
	if (l.func == K_SLEEP)
		l.arg0 = next_random(rng) % (2 * AQ_NS_PER_MS);
	else if (l.func == K_SPIN)
		l.arg0 = next_random(rng) % 20000;
	else if (l.func == K_FAULT)
		l.arg0 = next_random(rng) % 16 ? AQ_E_TRAP : AQ_OK;
	(void)launch(cl, &l);
}

/* Something to work with, so that not everything is refused. */
static void make_objects(struct client *cl, uint64_t *va)
{
	for (uint32_t i = 1; i <= 3; i++) {
		(void)ctx_create(cl, i, i % 2);
		(void)module_load(cl, i, i, "fake");
		(void)stream_create(cl, i, i, i == 3 ? AQ_STREAM_NON_BLOCKING : 0);
		(void)event_create(cl, i, i);
		(void)mem_alloc(cl, i, i * 700 * AQ_KIB, &va[i]);
	}
}

static void *monkey(void *arg)
{
	uint64_t rng = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15ULL + 1;
	uint64_t va[4] = { 0 };
	uint8_t req[256];
	struct client cl;

	client_open(&cl, h.path);
	for (int i = 0; i < 6000; i++) {
		enum aq_op op = (enum aq_op)(1 + next_random(&rng) % (AQ_OP_COUNT - 1));
		struct aq_client_msg msg = { op, req, aq_wire_req_size(op), NULL, 0 };

		if (i % 500 == 0)
			make_objects(&cl, va);
		if (next_random(&rng) % 4 == 0)
			launch_something(&rng, &cl, va);
		/* These wait for a descriptor that does not come. */
		if (op == AQ_OP_HOST_REGISTER || op == AQ_OP_PHYS_IMPORT)
			continue;
		random_request(&rng, &cl, req, msg.req_len);
		if (is_called(op))
			(void)aq_client_call(cl.c, &msg, NULL, 0, NULL);
		else
			(void)aq_client_send(cl.c, &msg);
	}
	assert_false(aq_client_is_dead(cl.c));
	client_close(&cl);
	return NULL;
}

static void test_monkeys(void **state)
{
	pthread_t thread[3];
	struct client cl;

	(void)state;
	harness_start(&h, "card-1g", 2);
	for (size_t i = 0; i < AQ_ARRAY_SIZE(thread); i++)
		assert_int_equal(pthread_create(&thread[i], NULL, monkey,
						(void *)(uintptr_t)(i + 1)),
				 0);
	for (size_t i = 0; i < AQ_ARRAY_SIZE(thread); i++)
		(void)pthread_join(thread[i], NULL);
	client_open(&cl, h.path);
	for (int i = 0; i < 5000; i++) {
		if (aq_gpud_server_sessions(h.server) == 1)
			break;
		(void)usleep(1000);
	}
	for (uint32_t i = 0; i < 2; i++) {
		for (int n = 0; n < 5000 && card_stat(&cl, i).memory_used != 16 * AQ_MIB; n++)
			(void)usleep(1000);
		assert_int_equal(card_stat(&cl, i).memory_used, 16 * AQ_MIB);
		assert_int_equal(card_stat(&cl, i).n_contexts, 0);
	}
	client_close(&cl);
	harness_stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_monkeys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
