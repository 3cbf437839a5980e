/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host functions and stream callbacks. The server says when a stream has come to one; a helper thread, started with the first, runs it and
 * says when it is done. Like the driver's, that thread takes no signal and may not call the driver.
 */
#include "base/macro.h"
#include "frontend/cuda/core.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

struct item {
	struct aq_list all;
	uint64_t cookie;
	struct aq_fe_ctx *ctx;
	CUstream stream; /* as the application named it: what the callback is told */
	CUhostFn fn;
	CUstreamCallback callback;
	void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct aq_list items = { &items, &items };
static uint64_t next_cookie = 1;
static bool has_thread;

static struct item *take(uint64_t cookie)
{
	struct item *found = NULL;
	struct item *it;

	(void)pthread_mutex_lock(&lock);
	aq_list_for_each(it, &items, all) {
		if (it->cookie == cookie) {
			found = it;
			aq_list_remove(&it->all);
			break;
		}
	}
	(void)pthread_mutex_unlock(&lock);
	return found;
}

static void run(const struct aq_rep_host_func_next *next)
{
	struct item *it = take(next->cookie);

	/* None: its context has been destroyed meanwhile. */
	if (!it)
		return;
	aq_fe_self.in_host_func = true;
	if (it->callback)
		it->callback(it->stream, aq_fe_result((int)next->status), it->data);
	else
		it->fn(it->data);
	aq_fe_self.in_host_func = false;
	free(it);
}

static void *helper(void *client)
{
	struct aq_req_host_func_next req = { 0 };
	struct aq_rep_host_func_next next;

	(void)prctl(PR_SET_NAME, "aliquot-host");
	while (AQ_CALL(client, HOST_FUNC_NEXT, host_func_next, &req, &next) == AQ_OK) {
		struct aq_req_host_func_done done = { .cookie = next.cookie };

		run(&next);
		if (AQ_SEND(client, HOST_FUNC_DONE, host_func_done, &done) != 0)
			break;
	}
	return NULL;
}

static bool start_locked(void)
{
	sigset_t all;
	sigset_t old;
	pthread_attr_t attr;
	pthread_t thread;

	if (has_thread)
		return true;
	if (pthread_attr_init(&attr) != 0)
		return false;
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	has_thread = pthread_create(&thread, &attr, helper, aq_fe.client) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return has_thread;
}

static CUresult submit(struct aq_fe_stream *s, const struct item *what)
{
	struct aq_req_host_func req = { .ctx = s->ctx->id,
					.stream = s->id,
					.even_after_error = what->callback != NULL };
	struct item *it = malloc(sizeof(*it));
	CUresult rc;

	if (!it)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*it = *what;
	it->ctx = s->ctx;
	(void)pthread_mutex_lock(&lock);
	if (!start_locked()) {
		(void)pthread_mutex_unlock(&lock);
		free(it);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	req.cookie = it->cookie = next_cookie++;
	aq_list_push_back(&items, &it->all);
	(void)pthread_mutex_unlock(&lock);
	rc = aq_fe_send(HOST_FUNC, host_func, &req);
	if (rc != CUDA_SUCCESS)
		free(take(req.cookie));
	return rc;
}

void aq_fe_hostfunc_ctx_gone(struct aq_fe_ctx *ctx)
{
	struct item *it;
	struct item *next;

	(void)pthread_mutex_lock(&lock);
	aq_list_for_each_safe(it, next, &items, all) {
		if (it->ctx == ctx) {
			aq_list_remove(&it->all);
			free(it);
		}
	}
	(void)pthread_mutex_unlock(&lock);
}

void aq_fe_hostfunc_forked(void)
{
	(void)pthread_mutex_init(&lock, NULL);
	aq_list_init(&items);
	has_thread = false;
}

static CUresult enter(CUstream handle, struct aq_fe_stream **ret)
{
	struct aq_fe_ctx *ctx;
	CUresult rc = aq_fe_enter_ctx(&ctx);

	return rc == CUDA_SUCCESS ? aq_fe_stream(handle, ctx, ret) : rc;
}

AQ_EXPORT CUresult cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *data)
{
	struct item it = { .stream = handle, .fn = fn, .data = data };
	struct aq_fe_stream *s;
	CUresult rc = enter(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	return fn ? submit(s, &it) : CUDA_ERROR_INVALID_VALUE;
}

AQ_EXPORT CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data,
				       unsigned flags)
{
	struct item it = { .stream = handle, .callback = callback, .data = data };
	struct aq_fe_stream *s;
	CUresult rc = enter(handle, &s);

	if (rc != CUDA_SUCCESS)
		return rc;
	return callback && flags == 0 ? submit(s, &it) : CUDA_ERROR_INVALID_VALUE;
}
