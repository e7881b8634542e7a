//go:build libfabric && cgo && linux

// What no receive is posted for the library keeps, layer rxm without a bound: a peer that sends and sends would have all of this
// process's memory. So there is a receive for whatever may come. Tagged messages are greetings and notices; who sends others, or
// untagged ones to an end that wants none, is no rdmad, and loses the connection.

#include "lf_shim.h"

#include <string.h>

// States of the trap, the receive for untagged messages that nobody asked for: none is wanted, it is to be posted, it is posted.
enum { NO_TRAP, TRAP_WANTED, TRAP_SET };

static struct lf_req *trap(const struct lf_ep *e) { return &e->reqs[e->sends + e->recvs]; }

// Contexts of tagged messages that come are the last ones.
static uint32_t first(const struct lf_ep *e) { return e->reqs_count - e->tagged; }

static int set_trap(struct lf_ep *e)
{
	if (e->trap != TRAP_WANTED)
		return 0;
	struct lf_req *r = trap(e);
	ssize_t rc = fi_recv(e->ep, &r->operand, sizeof r->operand, e->desc, FI_ADDR_UNSPEC, r);
	if (!rc)
		e->trap = TRAP_SET;
	return rc == -FI_EAGAIN ? 0 : (int)rc;
}

int lf_trap(struct lf_ep *e, int on)
{
	int was = e->trap;
	e->trap = on ? TRAP_WANTED : NO_TRAP;
	if (on)
		return set_trap(e);
	// One that has caught something already says so.
	if (was == TRAP_SET)
		fi_cancel(&e->ep->fid, trap(e));
	return 0;
}

int lf_tagged_recv(struct lf_ep *e)
{
	while (e->idle_count) {
		uint32_t i = e->idle[e->idle_count - 1];
		ssize_t rc = fi_trecv(e->ep, lf_tagged_room(e, i), LF_HELLO, e->desc, FI_ADDR_UNSPEC, 0, UINT64_MAX, &e->reqs[first(e) + i]);
		if (rc)
			return rc == -FI_EAGAIN ? 0 : (int)rc;
		e->idle_count--;
	}
	return set_trap(e);
}

// greets reports whether a message is the peer's greeting. Others of its kind are strangers'.
static int greets(const struct lf_ep *e, const struct lf_wc *o, const uint8_t *room)
{
	return !o->status && o->len == LF_HELLO && !memcmp(room, e->hello, LF_HELLO);
}

int lf_tagged_done(struct lf_ep *e, struct lf_wc *o, uint64_t tag)
{
	if (o->index == e->sends + e->recvs) {
		if (e->trap == NO_TRAP && o->status == FI_ECANCELED)
			return 0;
		o->index = LF_UNASKED;
		return 1;
	}
	if (o->index < first(e) || o->index >= e->reqs_count)
		return 1;
	uint32_t i = o->index - first(e);
	const uint8_t *room = lf_tagged_room(e, i);
	int tells = 1;
	if (tag == LF_NOTICE_TAG && e->pd->dev->notices)
		lf_notice_came(o, room);
	else if (tag != LF_HELLO_TAG)
		o->index = LF_UNASKED;
	else if (greets(e, o, room))
		o->index = e->sends + e->recvs;
	else
		tells = 0;
	e->idle[e->idle_count++] = i;
	lf_tagged_recv(e);
	return tells;
}
