//go:build libfabric && cgo && linux

#include "lf_shim.h"

#include <endian.h>
#include <string.h>

// A notice is what a peer is told of a write in place of the data that the write would bring with it: 8 bytes,
// little endian, the immediate and the length of the write.
enum { NOTICE = sizeof(uint64_t) };

// Contexts of notices that go, one for each send.
static uint32_t going(const struct lf_ep *e) { return e->sends + e->recvs + 2; }

ssize_t lf_notice_write(struct lf_ep *e, const struct lf_send *s, struct lf_req *r, uint64_t flags)
{
	struct lf_req *n = &e->reqs[going(e) + (uint32_t)(r - e->reqs)];
	if (!r->written) {
		ssize_t rc = lf_write(e, s, r, e->pd->dev->batches ? flags | FI_MORE : flags);
		if (rc)
			return rc;
		r->written = 1;
		r->left = 2;
		r->status = 0;
	}
	if (r->status)
		return -(ssize_t)r->status;
	n->operand = htole64((uint64_t)s->len << 32 | s->imm);
	struct iovec iov = {.iov_base = &n->operand, .iov_len = NOTICE};
	struct fi_msg_tagged m = {.msg_iov = &iov, .desc = &e->desc, .iov_count = 1, .addr = e->peer, .tag = LF_NOTICE_TAG, .context = n};
	ssize_t rc = fi_tsendmsg(e->ep, &m, flags & ~FI_INJECT);
	if (!rc)
		r->written = 0;
	return rc;
}

void lf_notice_came(struct lf_wc *o, const uint8_t *room)
{
	uint64_t says;
	o->index = LF_ARRIVED;
	if (!o->status && o->len != NOTICE)
		o->status = FI_EMSGSIZE;
	memcpy(&says, room, sizeof says);
	says = le64toh(says);
	o->data = (uint32_t)says;
	o->len = (uint32_t)(says >> 32);
}

int lf_notice_done(struct lf_ep *e, struct lf_wc *o)
{
	if (!e->pd->dev->notices || o->index >= e->reqs_count)
		return 1;
	if (o->index >= going(e))
		o->index -= going(e);
	if (o->index >= e->sends)
		return 1;
	struct lf_req *r = &e->reqs[o->index];
	if (!r->left)
		return 0; // the other half of one that has failed
	if (!o->status)
		return --r->left == 0;
	if (r->written) {
		// The caller does not know yet that it was taken: the call that goes on with it says so.
		r->left--;
		r->status = o->status;
		return 0;
	}
	r->left = 0;
	return 1;
}
