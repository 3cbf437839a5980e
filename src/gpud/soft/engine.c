/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engines of a card: threads that run blocks, and threads that copy.
 *
 * The card belongs to one context at a time (card->cur), for a slice, if several have running kernels. Inside a context all resident blocks of
 * all running kernels take turns, a quantum each; new blocks become resident as the multiprocessors have room, and every other turn is theirs.
 *
 * Time: a context's own time passes while it has the card and running kernels. A sleeping block wakes, and a kernel's modelled time is
 * over, by that clock, so that a kernel that does nothing but sleep still occupies the card. Modelled time of a kernel = launch_ns of the manners +
 * warp instructions × ns_per_insn / speed; it ends when its blocks have ended and that has passed. One that took longer is late.
 *
 * Threads sleep without a time limit when there is nothing to do.
 */
#include "base/clock.h"
#include "base/macro.h"
#include "gpud/soft/exec/exec.h"
#include "gpud/soft/soft.h"
#include "util/log.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Warp instructions in a quantum: with others waiting for the card, and alone. */
#define QUANTUM_SHARED	4096ULL
#define QUANTUM_ALONE	16384ULL
#define COPY_THREADS	2U
#define MAX_DEBT_SLICES 50ULL
/* How far a submitter goes into its kernel before it leaves it to the crew. */
#define QUANTUM_HELP 512ULL
#define HELP_QUANTA  4U
#define HELP_BLOCKS  2U
/* A kernel that misses its model by less than this and 1/20 is on time. */
#define LATE_NS (100 * AQ_NS_PER_US)

/* A resident block. */
struct resident {
	struct aq_list link; /* in ctx->ready or ctx->sleeping */
	struct aq_kernel *kernel;
	struct aq_block *block; /* NULL until it runs for the first time */
	uint64_t index;
	uint32_t sm;
	uint64_t due_own_ns; /* sleeping: when, in the context's own time */
};

/* The card whose compute crew this thread belongs to. */
static __thread struct aq_card *crew_card;

/* ---- crews ---- */

static int crew_add(struct aq_crew *c, void *(*main)(void *), struct aq_card *card)
{
	sigset_t all;
	sigset_t old;
	int rc;

	if (c->n >= c->max)
		return -EAGAIN;
	/* Signals are the event loop's. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&c->thread[c->n], NULL, main, card);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return -rc;
	c->n++;
	return 0;
}

static void crew_wake(struct aq_crew *c, uint64_t count, void *(*main)(void *),
		      struct aq_card *card)
{
	for (uint64_t missing = count; missing > c->idle && c->n < c->max; missing--) {
		if (crew_add(c, main, card) < 0)
			break; /* the ones there are do the work */
	}
	if (count > 1)
		(void)pthread_cond_broadcast(&c->wake);
	else if (count)
		(void)pthread_cond_signal(&c->wake);
}

/* Sleep until woken, or until `until` if no other sleeper wakes by then. */
static void crew_sleep(struct aq_crew *c, pthread_mutex_t *lock, uint64_t until)
{
	struct timespec ts = { .tv_sec = (time_t)(until / AQ_NS_PER_S),
			       .tv_nsec = (long)(until % AQ_NS_PER_S) };

	c->idle++;
	if (until < c->timer_ns) {
		c->timer_ns = until;
		(void)pthread_cond_timedwait(&c->wake, lock, &ts);
		if (c->timer_ns == until)
			c->timer_ns = UINT64_MAX;
	} else {
		(void)pthread_cond_wait(&c->wake, lock);
	}
	c->idle--;
}

static int crew_init(struct aq_crew *c, unsigned max)
{
	pthread_condattr_t attr;

	c->thread = calloc(max, sizeof(c->thread[0]));
	if (!c->thread)
		return -ENOMEM;
	c->max = max;
	c->timer_ns = UINT64_MAX;
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&c->wake, &attr);
	(void)pthread_condattr_destroy(&attr);
	return 0;
}

static void crew_done(struct aq_crew *c)
{
	if (!c->thread)
		return;
	for (unsigned i = 0; i < c->n; i++)
		(void)pthread_join(c->thread[i], NULL);
	free(c->thread);
	(void)pthread_cond_destroy(&c->wake);
}

/* ---- whose card it is ---- */

void aq_engine_account(struct aq_card *card, uint64_t now)
{
	struct aq_soft_ctx *ctx = card->cur;

	if (ctx && ctx->n_kernels && now > card->account_ns) {
		struct aq_soft_usage *u = &ctx->session->usage[card->index];

		ctx->own_ns += now - card->account_ns;
		aq_util_add(&card->busy, card->account_ns, now);
		aq_util_add(&u->busy, card->account_ns, now);
	}
	card->account_ns = AQ_MAX(card->account_ns, now);
}

void aq_engine_copy_busy(struct aq_card *card, int delta, uint64_t now)
{
	if (card->n_copying && now > card->copy_since_ns)
		aq_util_add(&card->copying, card->copy_since_ns, now);
	card->copy_since_ns = AQ_MAX(card->copy_since_ns, now);
	card->n_copying = (uint32_t)((int)card->n_copying + delta);
}

/* The context that has waited longest for the card, or NULL. The one that has it may be anywhere in the list. */
static struct aq_soft_ctx *next_ctx(const struct aq_card *card)
{
	const struct aq_list *l = card->run_ctxs.next;

	if (card->cur && l == &card->cur->run_link)
		l = l->next;
	return l == &card->run_ctxs ? NULL : aq_list_entry(l, struct aq_soft_ctx, run_link);
}

static bool is_contended(const struct aq_card *card)
{
	return next_ctx(card) != NULL;
}

static void *compute_main(void *arg);

/*
 * Give the card to the next context if the current one has used its slice up, or has nothing to do. It keeps the card over the moment between two of its
 * kernels, since that is looked at after the next one has been started.
 */
static void turn(struct aq_card *card, uint64_t now)
{
	struct aq_soft_ctx *next = next_ctx(card);
	uint64_t slice = card->profile.slice_ns;
	uint64_t payment;

	aq_engine_account(card, now);
	if (!next || (card->cur && card->cur->n_kernels && now < card->slice_end_ns))
		return;
	/* What one had too much, since a quantum or the machine took its time, it has less the next times. */
	if (card->cur && card->cur->n_kernels)
		card->cur->debt_ns = AQ_MIN(card->cur->debt_ns + (now - card->slice_end_ns),
					    MAX_DEBT_SLICES * slice);
	payment = AQ_MIN(next->debt_ns, slice - slice / 4);
	next->debt_ns -= payment;
	card->cur = next;
	card->slice_end_ns = now + slice - payment;
	aq_list_remove(&next->run_link);
	aq_list_push_back(&card->run_ctxs, &next->run_link);
	/* Those who found nothing to do in the old context. */
	if (card->compute.idle)
		(void)pthread_cond_broadcast(&card->compute.wake);
}

/* ---- kernels ---- */

uint64_t aq_kernel_capacity(const struct aq_card *card, const struct aq_sm *need)
{
	uint64_t per_sm = AQ_SM_BLOCKS;

	per_sm = AQ_MIN(per_sm, AQ_SM_THREADS / need->threads);
	per_sm = AQ_MIN(per_sm, need->registers ? AQ_SM_REGISTERS / need->registers : per_sm);
	per_sm = AQ_MIN(per_sm, need->shared ? AQ_SM_SHARED / need->shared : per_sm);
	return per_sm * card->profile.sms;
}

static bool has_room(const struct aq_sm *sm, const struct aq_sm *need)
{
	return sm->blocks < AQ_SM_BLOCKS && sm->threads + need->threads <= AQ_SM_THREADS &&
	       sm->registers + need->registers <= AQ_SM_REGISTERS &&
	       sm->shared + need->shared <= AQ_SM_SHARED;
}

static void sm_add(struct aq_sm *sm, const struct aq_sm *need)
{
	sm->blocks++;
	sm->threads += need->threads;
	sm->registers += need->registers;
	sm->shared += need->shared;
}

static void sm_sub(struct aq_sm *sm, const struct aq_sm *need)
{
	sm->blocks--;
	sm->threads -= need->threads;
	sm->registers -= need->registers;
	sm->shared -= need->shared;
}

/* A multiprocessor with room for one more block, taken; or -1. */
static int64_t take_sm(struct aq_soft_ctx *ctx, const struct aq_sm *need)
{
	uint32_t n = ctx->card->profile.sms;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t sm = (ctx->next_sm + i) % n;

		if (has_room(&ctx->sm[sm], need)) {
			ctx->next_sm = (sm + 1) % n;
			sm_add(&ctx->sm[sm], need);
			return sm;
		}
	}
	return -1;
}

/* All blocks of a cooperative kernel find room at once, or none does. */
static bool place_all(struct aq_kernel *k)
{
	struct aq_soft_ctx *ctx = k->ctx;
	uint8_t *placement = malloc(k->n_blocks);
	uint64_t n;

	if (!placement)
		return false;
	for (n = 0; n < k->n_blocks; n++) {
		int64_t sm = take_sm(ctx, &k->need);

		if (sm < 0)
			break;
		placement[n] = (uint8_t)sm;
	}
	if (n == k->n_blocks) {
		k->placement = placement;
		return true;
	}
	while (n--)
		sm_sub(&ctx->sm[placement[n]], &k->need);
	free(placement);
	return false;
}

static void insert_by_priority(struct aq_soft_ctx *ctx, struct aq_kernel *k)
{
	struct aq_list *at = ctx->kernels.prev;

	/* Behind those of the same priority; smaller is more urgent. */
	while (at != &ctx->kernels &&
	       aq_list_entry(at, struct aq_kernel, link)->priority > k->priority)
		at = at->prev;
	aq_list_insert_after(at, &k->link);
}

/* A small kernel on an idle card: its submitter may as well begin with it, which saves waking a thread. */
static bool is_for_submitter(const struct aq_card *card, const struct aq_kernel *k)
{
	return k->cmd == card->soft->inline_cmd && k->n_blocks <= HELP_BLOCKS &&
	       card->compute.idle == card->compute.n && aq_list_is_empty(&card->run_ctxs);
}

void aq_engine_start(struct aq_kernel *k)
{
	struct aq_soft_ctx *ctx = k->ctx;
	struct aq_card *card = ctx->card;
	uint64_t now = aq_now_ns();
	uint64_t wanted = k->n_blocks;
	bool by_submitter = is_for_submitter(card, k);

	aq_engine_account(card, now);
	k->start_own_ns = ctx->own_ns;
	insert_by_priority(ctx, k);
	if (ctx->n_kernels++ == 0)
		aq_list_push_back(&card->run_ctxs, &ctx->run_link);
	/* Until now nobody else wanted the card: that was no overrun. */
	if (is_contended(card))
		card->slice_end_ns = AQ_MAX(card->slice_end_ns, now);
	if (by_submitter) {
		card->soft->inline_started = true;
		return;
	}
	/* A worker that got here by ending another kernel goes on with this one. */
	if (crew_card == card)
		wanted--;
	/* Another context's turn comes by the clock: somebody must watch it. */
	if (is_contended(card) && card->compute.timer_ns == UINT64_MAX)
		wanted = AQ_MAX(wanted, 1ULL);
	crew_wake(&card->compute, wanted, compute_main, card);
}

static uint64_t modelled_ns(const struct aq_card *card, const struct aq_kernel *k)
{
	const struct aq_profile *p = &card->profile;

	return p->manners.launch_ns + (uint64_t)((double)k->insns * p->ns_per_insn / p->speed);
}

/* No block is left. Ends the command; aq_soft_pump() must follow. */
static void kernel_end(struct aq_kernel *k, enum aq_status status)
{
	struct aq_soft_ctx *ctx = k->ctx;
	struct aq_card *card = ctx->card;
	uint64_t now = aq_now_ns();
	uint64_t model = modelled_ns(card, k);

	aq_engine_account(card, now);
	aq_list_remove(&k->link);
	if (--ctx->n_kernels == 0) {
		aq_list_remove(&ctx->run_link);
		memset(ctx->sm, 0, card->profile.sms * sizeof(ctx->sm[0]));
		/* The next one's turn: a worker that ends a kernel sees to it itself. */
		if (crew_card != card && is_contended(card))
			crew_wake(&card->compute, 1, compute_main, card);
	}
	if (status == AQ_OK) {
		card->kernels++;
		if (ctx->own_ns - k->start_own_ns > model + model / 20 + LATE_NS)
			card->late++;
	}
	aq_cmd_complete(k->cmd, status);
}

void aq_kernel_free(struct aq_kernel *k)
{
	if (!k)
		return;
	aq_grid_free(k->grid);
	if (k->module)
		k->module->refs--;
	free(k->placement);
	free(k);
}

static void resident_free(struct resident *r)
{
	if (r->block)
		aq_block_free(r->block);
	aq_list_remove(&r->link);
	free(r);
}

void aq_engine_abort_ctx(struct aq_soft_ctx *ctx)
{
	struct aq_kernel *k;
	struct aq_kernel *ktmp;
	struct resident *r;
	struct resident *rtmp;

	aq_list_for_each_safe(r, rtmp, &ctx->ready, link)
		resident_free(r);
	aq_list_for_each_safe(r, rtmp, &ctx->sleeping, link)
		resident_free(r);
	aq_list_for_each_safe(k, ktmp, &ctx->kernels, link) {
		k->aborted = true;
		if (!k->running)
			kernel_end(k, ctx->status);
	}
}

/* ---- running ---- */

/* A new block that finds room, or NULL. */
static struct resident *admit(struct aq_soft_ctx *ctx)
{
	struct aq_kernel *k;

	aq_list_for_each(k, &ctx->kernels, link) {
		struct resident *r;
		int64_t sm;

		if (k->aborted || k->next_block >= k->n_blocks)
			continue;
		if (k->cooperative && !k->placement && !place_all(k))
			continue;
		sm = k->cooperative ? k->placement[k->next_block] : take_sm(ctx, &k->need);
		if (sm < 0)
			continue;
		r = calloc(1, sizeof(*r));
		if (!r) {
			if (!k->cooperative)
				sm_sub(&ctx->sm[sm], &k->need);
			return NULL;
		}
		aq_list_init(&r->link);
		r->kernel = k;
		r->index = k->next_block++;
		r->sm = (uint32_t)sm;
		/* Kernels of one priority take turns. */
		aq_list_remove(&k->link);
		insert_by_priority(ctx, k);
		return r;
	}
	return NULL;
}

static struct resident *take_ready(struct aq_soft_ctx *ctx)
{
	struct resident *r;

	if (aq_list_is_empty(&ctx->ready))
		return NULL;
	r = aq_list_entry(ctx->ready.next, struct resident, link);
	aq_list_remove(&r->link);
	return r;
}

static void put_back(struct resident *r)
{
	aq_list_push_front(&r->kernel->ctx->ready, &r->link);
}

static struct resident *take(struct aq_soft_ctx *ctx)
{
	struct resident *r;

	ctx->admit_next = !ctx->admit_next;
	if (ctx->admit_next) {
		r = admit(ctx);
		return r ? r : take_ready(ctx);
	}
	r = take_ready(ctx);
	return r ? r : admit(ctx);
}

static void put_to_sleep(struct aq_soft_ctx *ctx, struct resident *r, uint64_t wake_ns)
{
	struct aq_list *at = ctx->sleeping.prev;
	uint64_t now = aq_now_ns();

	aq_engine_account(ctx->card, now);
	r->due_own_ns = ctx->own_ns + (wake_ns > now ? wake_ns - now : 0);
	while (at != &ctx->sleeping &&
	       aq_list_entry(at, struct resident, link)->due_own_ns > r->due_own_ns)
		at = at->prev;
	aq_list_insert_after(at, &r->link);
}

/* Wake blocks whose time has come. */
static void wake_sleepers(struct aq_soft_ctx *ctx)
{
	while (!aq_list_is_empty(&ctx->sleeping)) {
		struct resident *r = aq_list_entry(ctx->sleeping.next, struct resident, link);

		if (r->due_own_ns > ctx->own_ns)
			return;
		aq_list_remove(&r->link);
		aq_list_push_back(&ctx->ready, &r->link);
	}
}

static bool blocks_done(const struct aq_kernel *k)
{
	return k->done_blocks == k->n_blocks && !k->running;
}

/* End kernels that have done their work and their time. True: at least one; whose card it is may have changed. */
static bool end_kernels(struct aq_soft_ctx *ctx)
{
	struct aq_kernel *k;
	struct aq_kernel *tmp;
	bool any = false;

	aq_list_for_each_safe(k, tmp, &ctx->kernels, link) {
		if (blocks_done(k) && ctx->own_ns - k->start_own_ns >= modelled_ns(ctx->card, k)) {
			kernel_end(k, AQ_OK);
			any = true;
		}
	}
	return any;
}

/* When the current context's next event is due if no block can run now. */
static uint64_t next_event(const struct aq_card *card, uint64_t now)
{
	const struct aq_soft_ctx *ctx = card->cur;
	const struct aq_kernel *k;
	uint64_t when = UINT64_MAX;

	if (!ctx || !ctx->n_kernels)
		return when;
	if (is_contended(card))
		when = card->slice_end_ns;
	if (!aq_list_is_empty(&ctx->sleeping)) {
		const struct resident *r = aq_list_entry(ctx->sleeping.next, struct resident, link);

		when = AQ_MIN(when, now + (r->due_own_ns - AQ_MIN(r->due_own_ns, ctx->own_ns)));
	}
	aq_list_for_each(k, &ctx->kernels, link) {
		uint64_t end = k->start_own_ns + modelled_ns(card, k);

		if (blocks_done(k))
			when = AQ_MIN(when, now + (end - AQ_MIN(end, ctx->own_ns)));
	}
	return when;
}

static void handle_result(struct aq_soft_ctx *ctx, struct resident *r, enum aq_run run,
			  const struct aq_run_result *res)
{
	struct aq_kernel *k = r->kernel;

	if (k->aborted) {
		resident_free(r);
		if (!k->running)
			kernel_end(k, ctx->status);
		return;
	}
	switch (run) {
	case AQ_RUN_YIELD:
		aq_list_push_back(&ctx->ready, &r->link);
		return;
	case AQ_RUN_SLEEP:
		put_to_sleep(ctx, r, res->wake_ns);
		return;
	case AQ_RUN_DONE:
		sm_sub(&ctx->sm[r->sm], &k->need);
		k->done_blocks++;
		resident_free(r);
		return;
	case AQ_RUN_FAULT:
		break;
	}
	aq_log_debug("process %d: kernel fault %u at address 0x%llx, line %u",
		     (int)ctx->session->peer.pid, res->fault, (unsigned long long)res->fault_va,
		     res->fault_line);
	resident_free(r);
	aq_ctx_fail(ctx, res->fault == AQ_OK ? AQ_E_LAUNCH_FAILED : res->fault);
}

/* Run a quantum of the block. The lock is held before and after, not meanwhile. */
static void run_resident(struct aq_card *card, struct resident *r, uint64_t quantum)
{
	struct aq_kernel *k = r->kernel;
	struct aq_soft_ctx *ctx = k->ctx;
	struct aq_aspace *as = &ctx->session->as;
	struct aq_run_result res = { 0 };
	enum aq_run run = AQ_RUN_FAULT;

	k->running++;
	(void)pthread_mutex_unlock(&card->soft->lock);
	if (!r->block)
		r->block = aq_block_new(k->grid, r->index, r->sm);
	if (r->block) {
		(void)pthread_rwlock_rdlock(&as->in_use);
		run = aq_block_run(r->block, quantum, &res);
		(void)pthread_rwlock_unlock(&as->in_use);
	} else {
		res.fault = AQ_E_LAUNCH_RESOURCES;
	}
	(void)pthread_mutex_lock(&card->soft->lock);
	k->running--;
	k->insns += res.insns;
	handle_result(ctx, r, run, &res);
	aq_soft_pump(card->soft);
}

/* See to what is due and take a block that can run, or NULL. */
static struct resident *find_work(struct aq_card *card, uint64_t now)
{
	struct aq_soft_ctx *ctx;

	for (;;) {
		turn(card, now);
		ctx = card->cur;
		if (!ctx || !ctx->n_kernels)
			return NULL;
		wake_sleepers(ctx);
		if (!end_kernels(ctx))
			return take(ctx);
		aq_soft_pump(card->soft);
	}
}

void aq_engine_help(struct aq_card *card)
{
	struct resident *r;

	(void)pthread_mutex_lock(&card->soft->lock);
	crew_card = card;
	for (unsigned i = 0; i < HELP_QUANTA && (r = find_work(card, aq_now_ns())) != NULL; i++)
		run_resident(card, r, QUANTUM_HELP);
	/* The last one may have been the kernel's end. */
	r = find_work(card, aq_now_ns());
	if (r)
		put_back(r);
	crew_card = NULL;
	if (!aq_list_is_empty(&card->run_ctxs))
		crew_wake(&card->compute, HELP_BLOCKS, compute_main, card);
	(void)pthread_mutex_unlock(&card->soft->lock);
}

static void *compute_main(void *arg)
{
	struct aq_card *card = arg;

	crew_card = card;
	(void)pthread_mutex_lock(&card->soft->lock);
	while (!card->stop) {
		uint64_t now = aq_now_ns();
		struct resident *r = find_work(card, now);

		if (!r) {
			crew_sleep(&card->compute, &card->soft->lock, next_event(card, now));
			continue;
		}
		/* While this one works, another looks after what comes by the clock. */
		if (card->compute.idle && card->compute.timer_ns == UINT64_MAX &&
		    next_event(card, now) != UINT64_MAX)
			(void)pthread_cond_signal(&card->compute.wake);
		run_resident(card, r, is_contended(card) ? QUANTUM_SHARED : QUANTUM_ALONE);
	}
	(void)pthread_mutex_unlock(&card->soft->lock);
	return NULL;
}

/* ---- copy engines ---- */

static void *copy_main(void *arg)
{
	struct aq_card *card = arg;

	(void)pthread_mutex_lock(&card->soft->lock);
	while (!card->stop) {
		struct aq_cmd *cmd;

		if (aq_list_is_empty(&card->copies)) {
			crew_sleep(&card->copy, &card->soft->lock, UINT64_MAX);
			continue;
		}
		cmd = aq_list_entry(card->copies.next, struct aq_cmd, work);
		aq_list_remove(&cmd->work);
		aq_engine_copy_busy(card, 1, aq_now_ns());
		(void)pthread_mutex_unlock(&card->soft->lock);
		aq_copy_finish(cmd, aq_copy_run(cmd));
		(void)pthread_mutex_lock(&card->soft->lock);
		aq_engine_copy_busy(card, -1, aq_now_ns());
	}
	(void)pthread_mutex_unlock(&card->soft->lock);
	return NULL;
}

void aq_engine_copy(struct aq_card *card, struct aq_cmd *cmd)
{
	aq_list_push_back(&card->copies, &cmd->work);
	crew_wake(&card->copy, 1, copy_main, card);
}

/* ---- life ---- */

int aq_engine_init(struct aq_card *card, unsigned workers)
{
	int rc;

	aq_list_init(&card->copies);
	aq_list_init(&card->run_ctxs);
	rc = crew_init(&card->compute, workers);
	if (rc == 0)
		rc = crew_init(&card->copy, COPY_THREADS);
	if (rc < 0)
		return rc;
	/* One of each from the start; a later failure to start more then delays nothing but speed. */
	(void)pthread_mutex_lock(&card->soft->lock);
	rc = crew_add(&card->compute, compute_main, card);
	if (rc == 0)
		rc = crew_add(&card->copy, copy_main, card);
	(void)pthread_mutex_unlock(&card->soft->lock);
	return rc;
}

void aq_engine_stop(struct aq_card *card)
{
	if (!card->compute.thread || !card->copy.thread) {
		crew_done(&card->compute);
		return;
	}
	(void)pthread_mutex_lock(&card->soft->lock);
	card->stop = true;
	(void)pthread_cond_broadcast(&card->compute.wake);
	(void)pthread_cond_broadcast(&card->copy.wake);
	(void)pthread_mutex_unlock(&card->soft->lock);
	crew_done(&card->compute);
	crew_done(&card->copy);
}

int aq_engine_ctx_init(struct aq_soft_ctx *ctx)
{
	aq_list_init(&ctx->run_link);
	aq_list_init(&ctx->kernels);
	aq_list_init(&ctx->ready);
	aq_list_init(&ctx->sleeping);
	ctx->sm = calloc(ctx->card->profile.sms, sizeof(ctx->sm[0]));
	ctx->map = aq_launch_map_new(ctx);
	return ctx->sm && ctx->map ? 0 : -ENOMEM;
}

void aq_engine_ctx_done(struct aq_soft_ctx *ctx)
{
	struct aq_card *card = ctx->card;

	(void)pthread_mutex_lock(&card->soft->lock);
	if (card->cur == ctx)
		card->cur = NULL;
	(void)pthread_mutex_unlock(&card->soft->lock);
	free(ctx->sm);
	free(ctx->map);
}
