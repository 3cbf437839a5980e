/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills. Addresses come from clients: each piece is looked up before it is touched, and the address space is given free between pieces, so that
 * memory can be unmapped while a long copy runs.
 */
#include "base/macro.h"
#include "gpud/soft/exec/exec.h"
#include "gpud/soft/soft.h"

#include <stdlib.h>
#include <string.h>

/* So much under one hold of the address space. */
#define PIECE (1 * AQ_MIB)

/* What a copy is doing: the budget until the address space is given free, and the views in use. */
struct mover {
	struct aq_soft_ctx *ctx;
	uint64_t left;
	bool held;
	struct aq_view dst, src;
};

static void hold(struct mover *m)
{
	if (m->held)
		return;
	(void)pthread_rwlock_rdlock(&m->ctx->session->as.in_use);
	m->held = true;
	m->left = PIECE;
	m->dst = m->src = (struct aq_view){ 0 };
}

static void let_go(struct mover *m)
{
	if (m->held)
		(void)pthread_rwlock_unlock(&m->ctx->session->as.in_use);
	m->held = false;
}

/*
 * A pointer to va and how many bytes behind it may be touched. Copies reach the memory of every card, as those of real drivers do.
 */
static enum aq_status resolve(struct mover *m, struct aq_view *v, uint64_t va, bool write,
			      uint8_t **ret, uint64_t *ret_len)
{
	if (va < v->base || va >= v->end) {
		enum aq_status status =
			aq_aspace_lookup(&m->ctx->session->as, va, UINT64_MAX, UINT64_MAX, v);

		if (status != AQ_OK) {
			*v = (struct aq_view){ 0 };
			return status;
		}
	}
	if (write && !v->writable)
		return AQ_E_ILLEGAL_ADDRESS;
	*ret = v->host + (va - v->base);
	*ret_len = v->end - va;
	return AQ_OK;
}

/* Count n bytes; give the address space free when the budget is used up. */
static void spend(struct mover *m, uint64_t n)
{
	/* A row costs something, however short. */
	n += 16;
	m->left -= AQ_MIN(m->left, n);
	if (!m->left)
		let_go(m);
}

static enum aq_status move(struct mover *m, uint64_t dst, uint64_t src, uint64_t size)
{
	while (size) {
		uint8_t *d;
		uint8_t *s;
		uint64_t dlen;
		uint64_t slen;
		uint64_t n;
		enum aq_status status;

		if (m->ctx->failed)
			return AQ_E_CONTEXT_GONE; /* replaced by the context's own error */
		hold(m);
		status = resolve(m, &m->dst, dst, true, &d, &dlen);
		if (status == AQ_OK)
			status = resolve(m, &m->src, src, false, &s, &slen);
		if (status != AQ_OK)
			return status;
		n = AQ_MIN(AQ_MIN(size, m->left), AQ_MIN(dlen, slen));
		memmove(d, s, n);
		dst += n;
		src += n;
		size -= n;
		spend(m, n);
	}
	return AQ_OK;
}

static enum aq_status run_copy(struct mover *m, const struct aq_req_copy *c)
{
	bool rows_touch = c->height == 1 || (c->dst_pitch == c->width && c->src_pitch == c->width);

	for (uint64_t z = 0; z < c->depth; z++) {
		uint64_t dst = c->dst + z * c->dst_slice;
		uint64_t src = c->src + z * c->src_slice;
		enum aq_status status = AQ_OK;

		if (rows_touch)
			status = move(m, dst, src, c->width * c->height);
		for (uint64_t y = 0; !rows_touch && status == AQ_OK && y < c->height; y++)
			status = move(m, dst + y * c->dst_pitch, src + y * c->src_pitch, c->width);
		if (status != AQ_OK)
			return status;
	}
	return AQ_OK;
}

static void put_pattern(uint8_t *d, uint64_t n, uint32_t value, uint32_t element)
{
	if (element == 1) {
		memset(d, (int)(value & 0xff), n);
	} else if (element == 2) {
		uint16_t v = (uint16_t)value;

		for (uint64_t i = 0; i < n; i += 2)
			memcpy(d + i, &v, 2);
	} else {
		for (uint64_t i = 0; i < n; i += 4)
			memcpy(d + i, &value, 4);
	}
}

static enum aq_status fill_row(struct mover *m, const struct aq_req_fill *f, uint64_t dst)
{
	uint64_t size = f->width * f->element;

	while (size) {
		uint8_t *d;
		uint64_t len;
		uint64_t n;
		enum aq_status status;

		if (m->ctx->failed)
			return AQ_E_CONTEXT_GONE;
		hold(m);
		status = resolve(m, &m->dst, dst, true, &d, &len);
		if (status != AQ_OK)
			return status;
		/* Ranges begin and end at multiples of every element size; the budget must too. */
		n = AQ_MIN(AQ_MIN(size, aq_align_up(m->left, 16)), len);
		put_pattern(d, n, f->value, f->element);
		dst += n;
		size -= n;
		spend(m, n);
	}
	return AQ_OK;
}

/* Between memory of the server's and device memory. */
static enum aq_status stage(struct mover *m, uint64_t va, uint8_t *data, uint64_t size, bool in)
{
	while (size) {
		uint8_t *d;
		uint64_t len;
		enum aq_status status;

		hold(m);
		status = resolve(m, &m->dst, va, in, &d, &len);
		if (status != AQ_OK)
			return status;
		len = AQ_MIN(AQ_MIN(size, m->left), len);
		memcpy(in ? d : data, in ? data : d, len);
		va += len;
		data += len;
		size -= len;
		spend(m, len);
	}
	return AQ_OK;
}

enum aq_status aq_copy_in(struct aq_soft_ctx *ctx, uint64_t va, const void *data, uint64_t size)
{
	struct mover m = { .ctx = ctx };
	enum aq_status status = stage(&m, va, (uint8_t *)(uintptr_t)data, size, true);

	let_go(&m);
	return status;
}

enum aq_status aq_copy_run(struct aq_cmd *cmd)
{
	struct mover m = { .ctx = cmd->stream->ctx };
	enum aq_status status = AQ_OK;

	if (cmd->kind == AQ_CMD_COPY) {
		status = run_copy(&m, &cmd->u.copy);
	} else if (cmd->kind == AQ_CMD_FILL) {
		const struct aq_req_fill *f = &cmd->u.fill;

		for (uint64_t y = 0; status == AQ_OK && y < f->height; y++)
			status = fill_row(&m, f, f->dst + y * f->pitch);
	} else {
		status = stage(&m, cmd->u.rw.va, cmd->u.rw.data, cmd->u.rw.size,
			       cmd->kind == AQ_CMD_WRITE);
	}
	let_go(&m);
	return status;
}

void aq_copy_finish(struct aq_cmd *cmd, enum aq_status status)
{
	struct aq_soft_ctx *ctx = cmd->stream->ctx;
	struct aq_soft *soft = ctx->session->soft;

	(void)pthread_mutex_lock(&soft->lock);
	if (status != AQ_OK)
		aq_ctx_fail(ctx, status);
	aq_cmd_complete(cmd, status);
	aq_soft_pump(soft);
	(void)pthread_mutex_unlock(&soft->lock);
}

uint64_t aq_copy_bytes(const struct aq_cmd *cmd)
{
	if (cmd->kind == AQ_CMD_COPY)
		return cmd->u.copy.width * cmd->u.copy.height * cmd->u.copy.depth;
	if (cmd->kind == AQ_CMD_FILL)
		return cmd->u.fill.width * cmd->u.fill.height * cmd->u.fill.element;
	return cmd->u.rw.size;
}

/* ---- messages ---- */

/* n rows (or slices) of `size` bytes, `pitch` apart: the bytes from the first to behind the last, or 0 when that is no sensible layout. */
static uint64_t extent(uint64_t size, uint64_t n, uint64_t pitch)
{
	uint64_t bytes;

	if (n == 1)
		return size;
	if (pitch < size || __builtin_mul_overflow(n - 1, pitch, &bytes) ||
	    __builtin_add_overflow(bytes, size, &bytes))
		return 0;
	return bytes;
}

static bool is_layout(uint64_t va, const struct aq_req_copy *c, uint64_t pitch, uint64_t slice)
{
	uint64_t plane = extent(c->width, c->height, pitch);
	uint64_t all = plane ? extent(plane, c->depth, slice) : 0;

	return all && va + all > va;
}

int aq_soft_copy(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_copy *req = request->req;
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	struct aq_cmd *cmd;
	enum aq_status status = aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (status != AQ_OK)
		return (int)status;
	if (!req->width || !req->height || !req->depth)
		return AQ_OK;
	if (!is_layout(req->dst, req, req->dst_pitch, req->dst_slice) ||
	    !is_layout(req->src, req, req->src_pitch, req->src_slice))
		return AQ_E_INVALID;
	status = aq_queue_wait(s);
	if (status != AQ_OK)
		return (int)status;
	cmd = aq_cmd_new(st, AQ_CMD_COPY, request->slot);
	if (!cmd)
		return AQ_E_NO_MEMORY;
	cmd->u.copy = *req;
	return aq_cmd_submit(cmd);
}

int aq_soft_fill(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_fill *req = request->req;
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	struct aq_cmd *cmd;
	uint64_t row;
	uint64_t all;
	enum aq_status status = aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (status != AQ_OK)
		return (int)status;
	if (req->element != 1 && req->element != 2 && req->element != 4)
		return AQ_E_INVALID;
	if (!req->width || !req->height)
		return AQ_OK;
	if (__builtin_mul_overflow(req->width, req->element, &row) || req->dst % req->element ||
	    (req->height > 1 && req->pitch % req->element))
		return AQ_E_INVALID;
	all = extent(row, req->height, req->pitch);
	if (!all || req->dst + all <= req->dst)
		return AQ_E_INVALID;
	status = aq_queue_wait(s);
	if (status != AQ_OK)
		return (int)status;
	cmd = aq_cmd_new(st, AQ_CMD_FILL, request->slot);
	if (!cmd)
		return AQ_E_NO_MEMORY;
	cmd->u.fill = *req;
	return aq_cmd_submit(cmd);
}

/* WRITE and READ. data NULL: room for `size` bytes. */
static int submit_rw(struct aq_stream *st, enum aq_cmd_kind kind, uint16_t slot, uint64_t va,
		     const void *data, uint64_t size)
{
	enum aq_status status = aq_queue_wait(st->ctx->session);
	struct aq_cmd *cmd;

	if (status != AQ_OK)
		return (int)status;
	cmd = aq_cmd_new(st, kind, slot);
	if (cmd)
		cmd->u.rw.data = malloc(size);
	if (!cmd || !cmd->u.rw.data) {
		free(cmd);
		return AQ_E_NO_MEMORY;
	}
	if (data)
		memcpy(cmd->u.rw.data, data, size);
	cmd->u.rw.va = va;
	cmd->u.rw.size = size;
	return aq_cmd_submit(cmd);
}

int aq_soft_write(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_write *req = request->req;
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	enum aq_status status = aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (status != AQ_OK)
		return (int)status;
	if (req->size > AQ_WIRE_MAX_INLINE || req->size > request->data_len)
		return AQ_E_INVALID;
	if (!req->size)
		return AQ_OK;
	return submit_rw(st, AQ_CMD_WRITE, request->slot, req->dst, request->data, req->size);
}

int aq_soft_read(void *session, const struct aq_request *request, struct aq_gpud_answer *ans)
{
	struct aq_soft_session *s = session;
	const struct aq_req_read *req = request->req;
	struct aq_soft_ctx *ctx;
	struct aq_stream *st;
	enum aq_status status = aq_stream_get(s, req->ctx, req->stream, &ctx, &st);

	(void)ans;
	if (status != AQ_OK)
		return (int)status;
	if (req->size > AQ_WIRE_MAX_INLINE)
		return AQ_E_INVALID;
	if (!req->size)
		return AQ_OK;
	return submit_rw(st, AQ_CMD_READ, request->slot, req->src, NULL, req->size);
}
