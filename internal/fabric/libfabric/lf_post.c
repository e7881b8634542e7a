//go:build libfabric && cgo && linux

#include "lf_shim.h"

#include <string.h>

// A write of nothing, whose address means nothing, becomes one of a byte to the peer's anchor, and a read the
// same the other way round. Providers disagree about nothing: efa did not post it at all for some versions,
// and shm never says that it has landed.
ssize_t lf_write(struct lf_ep *e, const struct lf_send *s, struct lf_req *r, uint64_t flags)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)s->addr, .iov_len = s->len};
	struct fi_rma_iov to = {.addr = s->remote, .len = s->len, .key = s->rkey};
	void *desc = (void *)(uintptr_t)s->desc;
	struct fi_msg_rma m = {.msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = e->peer, .rma_iov = &to, .rma_iov_count = 1, .context = r};
	if (s->len == 0) {
		iov.iov_base = &r->operand;
		desc = e->desc;
		to.addr = e->anchor_addr;
		to.key = e->anchor_key;
		iov.iov_len = to.len = 1;
	}
	if (s->op == LF_READ)
		return fi_readmsg(e->ep, &m, flags & ~FI_DELIVERY_COMPLETE & ~FI_TRANSMIT_COMPLETE & ~FI_INJECT);
	if (s->op == LF_WRITE_IMM && !e->pd->dev->notices) {
		m.data = s->imm;
		// Not every provider says how much has come.
		if (e->pd->dev->info->domain_attr->cq_data_size >= 8)
			m.data |= (uint64_t)s->len << 32;
		flags |= FI_REMOTE_CQ_DATA;
	}
	return fi_writemsg(e->ep, &m, flags);
}

static ssize_t atomic_one(struct lf_ep *e, const struct lf_send *s, struct lf_req *r, uint64_t flags)
{
	r->operand = s->swap;
	r->compare = s->compare;
	struct fi_ioc op = {.addr = &r->operand, .count = 1}, old = {.addr = (void *)(uintptr_t)s->addr, .count = 1};
	struct fi_ioc cmp = {.addr = &r->compare, .count = 1};
	struct fi_rma_ioc to = {.addr = s->remote, .count = 1, .key = s->rkey};
	void *own = e->desc, *desc = (void *)(uintptr_t)s->desc;
	struct fi_msg_atomic m = {.msg_iov = &op, .desc = &own, .iov_count = 1, .addr = e->peer, .rma_iov = &to, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = s->op == LF_CAS ? FI_CSWAP : FI_SUM, .context = r};
	flags &= ~(FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE | FI_INJECT);
	if (s->op == LF_CAS)
		return fi_compare_atomicmsg(e->ep, &m, &cmp, &own, 1, &old, &desc, 1, flags);
	return fi_fetch_atomicmsg(e->ep, &m, &old, &desc, 1, flags);
}

static ssize_t send_one(struct lf_ep *e, const struct lf_send *s, struct lf_req *r, uint64_t flags)
{
	struct iovec iov = {.iov_base = s->len ? (void *)(uintptr_t)s->addr : (void *)r, .iov_len = s->len};
	void *desc = s->len ? (void *)(uintptr_t)s->desc : e->desc;
	struct fi_msg m = {.msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = e->peer, .context = r};
	// When a message has landed depends on the peer's receives: its completion says less.
	return fi_sendmsg(e->ep, &m, (flags & ~FI_DELIVERY_COMPLETE) | FI_TRANSMIT_COMPLETE);
}

int lf_post(struct lf_ep *e, const struct lf_send *ring, uint32_t mask, uint32_t from, uint32_t n, int *rc)
{
	const struct lf_dev *d = e->pd->dev;
	// With notices a work request may be two operations.
	uint32_t run = d->notices ? LF_RUN / 2 : LF_RUN;
	*rc = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct lf_send *s = &ring[(from + i) & mask];
		struct lf_req *r = &e->reqs[(from + i) & mask];
		uint64_t flags = FI_COMPLETION | d->complete | (s->flags & LF_INLINE ? FI_INJECT : 0);
		if (i + 1 < n && (i + 1) % run && d->batches)
			flags |= FI_MORE;
		ssize_t err;
		if (s->op == LF_READ && lf_near_read(e, s, r))
			err = 0;
		else if (s->op == LF_WRITE_IMM && d->notices)
			err = lf_notice_write(e, s, r, flags);
		else if (s->op == LF_SEND)
			err = send_one(e, s, r, flags);
		else if (s->op == LF_CAS || s->op == LF_ADD)
			err = atomic_one(e, s, r, flags);
		else
			err = lf_write(e, s, r, flags);
		// One that is not connected has begun to connect anew, with an end that lets nobody in any more.
		if (err == -FI_EAGAIN && e->settled && !lf_connected(e))
			err = -FI_ENOTCONN;
		if (err) {
			*rc = (int)err;
			return (int)i;
		}
		if (s->op != LF_WRITE_IMM && d->notices)
			r->left = 1;
	}
	return (int)n;
}

int lf_recv(struct lf_ep *e, const struct lf_recv *wrs, int n, int *rc)
{
	*rc = 0;
	for (int i = 0; i < n; i++) {
		const struct lf_recv *w = &wrs[i];
		struct lf_req *r = &e->reqs[e->sends + w->index];
		ssize_t err = fi_recv(e->ep, (void *)(uintptr_t)w->addr, w->len, (void *)(uintptr_t)w->desc, FI_ADDR_UNSPEC, r);
		if (err) {
			*rc = (int)err;
			return i;
		}
	}
	return n;
}

static uint32_t index_of(const struct lf_ep *e, const void *context, uint64_t flags)
{
	// Of an arrival the context means nothing. A message that has data beside it uses up a receive, and is none.
	if (flags & FI_REMOTE_CQ_DATA && !(flags & (FI_SEND | FI_WRITE | FI_READ | FI_ATOMIC | FI_MSG | FI_TAGGED)))
		return LF_ARRIVED;
	// Of what concerns no operation, too, for some providers.
	uint32_t count = e->reqs_count;
	uintptr_t at = (uintptr_t)context - (uintptr_t)e->reqs;
	return at % sizeof *e->reqs || at / sizeof *e->reqs >= count ? count : (uint32_t)(at / sizeof *e->reqs);
}

// strange fills in a completion for nothing of ours.
static int strange(const struct lf_ep *e, struct lf_wc *o, int status, int vendor)
{
	memset(o, 0, sizeof *o);
	o->serial = e->serial;
	o->index = e->reqs_count;
	o->status = status > 0 ? (uint32_t)status : FI_EOTHER;
	o->vendor = (uint32_t)vendor;
	return 1;
}

// one_error takes a completion with an error from the queue. It returns 0 if there is none, and counts it in
// *total if it is one for the caller.
static int one_error(struct lf_ep *e, struct lf_wc *o, int *total)
{
	struct fi_cq_err_entry x = {0};
	ssize_t n = fi_cq_readerr(e->cq, &x, 0);
	if (n == -FI_EAGAIN)
		return 0;
	if (n < 0) {
		*total += strange(e, o, (int)-n, 0);
		return 1;
	}
	memset(o, 0, sizeof *o);
	o->serial = e->serial;
	o->index = index_of(e, x.op_context, x.flags);
	o->status = x.err > 0 ? (uint32_t)x.err : FI_EOTHER;
	o->vendor = (uint32_t)x.prov_errno;
	o->len = (uint32_t)x.len;
	*total += lf_tagged_done(e, o, x.tag) && lf_notice_done(e, o);
	return 1;
}

// lost describes what went wrong with the endpoint and concerns no operation.
static int lost(struct lf_ep *e, struct lf_wc *o)
{
	uint8_t event[256];
	uint32_t kind;
	ssize_t n;
	// What is not an error needs no answer.
	while ((n = fi_eq_read(e->eq, &kind, event, sizeof event, 0)) >= 0)
		;
	struct fi_eq_err_entry x = {0};
	if (n != -FI_EAVAIL || fi_eq_readerr(e->eq, &x, 0) < 0)
		return 0;
	return strange(e, o, x.err, x.prov_errno);
}

int lf_poll_one(struct lf_ep *e, struct lf_wc *out, int max)
{
	struct fi_cq_tagged_entry w[LF_BATCH];
	int total = 0, rc = lf_tagged_recv(e);
	if (rc && max > 0)
		return strange(e, out, -rc, 0);
	if (e->eq && max > 0 && ++e->looks >= LF_LOOKS) {
		e->looks = 0;
		total = lost(e, out);
	}
	total += lf_near_take(e, out + total, max - total);
	while (total < max) {
		int want = max - total < LF_BATCH ? max - total : LF_BATCH;
		ssize_t n = fi_cq_read(e->cq, w, (size_t)want);
		if (n == -FI_EAGAIN || n == 0)
			break;
		if (n < 0) {
			// Also of a queue that cannot be read at all: readerr says so again.
			if (n == -FI_EAVAIL) {
				if (one_error(e, &out[total], &total))
					continue;
				break;
			}
			total += strange(e, &out[total], (int)-n, 0);
			break;
		}
		for (ssize_t i = 0; i < n; i++) {
			struct lf_wc *o = &out[total];
			o->serial = e->serial;
			o->index = index_of(e, w[i].op_context, w[i].flags);
			o->status = o->vendor = 0;
			o->len = (uint32_t)w[i].len;
			o->data = w[i].data;
			// The library's length is for receives; the write's own, see lf_write, needs room.
			if (o->index == LF_ARRIVED)
				o->len = e->pd->dev->info->domain_attr->cq_data_size >= 8 ? (uint32_t)(w[i].data >> 32) : 0;
			total += lf_tagged_done(e, o, w[i].tag) && lf_notice_done(e, o);
		}
		if (n < want)
			break;
	}
	return total;
}

int lf_poll(struct lf_set *s, struct lf_wc *out, int max)
{
	int total = 0;
	for (int i = 0; i < s->n && total < max; i++) {
		if (s->next >= s->n)
			s->next = 0;
		total += lf_poll_one(s->eps[s->next], out + total, max - total);
		// One that has filled the rest of the room goes on after the others.
		s->next++;
	}
	return total;
}

int lf_arm(struct lf_set *s)
{
	if (s->n == 0)
		return 1;
	for (int i = 0; i < s->n; i++) {
		struct lf_ep *e = s->eps[i];
		// What has come for a receive that is not posted wakes nobody.
		lf_tagged_recv(e);
		if (e->idle_count)
			return 0;
		uint8_t event[256];
		uint32_t kind;
		if (e->near_head != e->near_tail)
			return 0;
		// Nobody would wake for it: the next poll looks.
		if (e->eq && fi_eq_read(e->eq, &kind, event, sizeof event, FI_PEEK) != -FI_EAGAIN) {
			e->looks = LF_LOOKS;
			return 0;
		}
	}
	struct fid_fabric *f = s->eps[0]->pd->dev->fabric;
	return fi_trywait(f, s->fids, s->n) == 0;
}
