//go:build libfabric && cgo && linux

#include "lf_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// lf_ctl has buffers for messages, each with its context: the first CTL_IN for those that come, of which the last CTL_TAGGED are for tagged
// ones, that nobody has a reason to send and that the library would keep; the rest for those that go, where the library takes no
// message with the call.
enum { CTL_IN = 34, CTL_TAGGED = 2, CTL_OUT = 32, CTL_BUFS = CTL_IN + CTL_OUT, CTL_MSG = 64 };

struct lf_ctl {
	struct lf_pd *pd;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_eq *eq;
	struct fid_mr *mr;
	void *desc;
	struct ctl_buf {
		struct fi_context2 ctx;
		uint8_t bytes[CTL_MSG];
		struct ctl_buf *next; // in its list
	} *bufs, *idle, *free; // lists of buffers that are not posted, for messages that come and that go
	size_t size;
	int sending; // buffers for messages that go and are posted
	int32_t listener;
	// known are nodes that were peers, the last one last. The last ones of them, as many as let_count, are let in.
	struct lf_from known[LF_KNOWN];
	int known_count, let_count;
};

static void put(struct ctl_buf **list, struct ctl_buf *b)
{
	b->next = *list;
	*list = b;
}

// repost gives idle buffers back to the library, as many as it takes.
static int repost(struct lf_ctl *c)
{
	while (c->idle) {
		struct ctl_buf *b = c->idle;
		ssize_t rc = b < c->bufs + CTL_IN - CTL_TAGGED ? fi_recv(c->ep, b->bytes, CTL_MSG, c->desc, FI_ADDR_UNSPEC, &b->ctx) :
			fi_trecv(c->ep, b->bytes, CTL_MSG, c->desc, FI_ADDR_UNSPEC, 0, UINT64_MAX, &b->ctx);
		if (rc)
			return rc == -FI_EAGAIN ? 0 : (int)rc;
		c->idle = b->next;
	}
	return 0;
}

static int ctl_start(struct lf_ctl *c, struct lf_dev *d, int *fd)
{
	int rc = lf_pd_open(d, &c->pd);
	if (!rc)
		rc = lf_make(c->pd, d->waits, 256, &c->cq, &c->av, &c->eq, &c->ep, &c->listener);
	*fd = -1;
	if (!rc && d->waits)
		rc = fi_control(&c->cq->fid, FI_GETWAIT, fd);
	if (rc)
		return rc;
	c->size = CTL_BUFS * sizeof *c->bufs;
	c->bufs = mmap(NULL, c->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (c->bufs == MAP_FAILED) {
		c->bufs = NULL;
		return -FI_ENOMEM;
	}
	if (lf_needs(c->pd, FI_MR_LOCAL)) {
		rc = lf_reg(c->pd, c->bufs, c->size, FI_SEND | FI_RECV, 1, &c->mr);
		if (rc)
			return rc;
		c->desc = fi_mr_desc(c->mr);
	}
	for (int i = 0; i < CTL_BUFS; i++)
		put(i < CTL_IN ? &c->idle : &c->free, &c->bufs[i]);
	return repost(c);
}

int lf_ctl_open(struct lf_dev *d, struct lf_ctl **out, int *fd)
{
	struct lf_ctl *c = calloc(1, sizeof *c);
	if (!c)
		return -FI_ENOMEM;
	int rc = ctl_start(c, d, fd);
	if (rc) {
		lf_ctl_close(c);
		return rc;
	}
	*out = c;
	return 0;
}

int lf_ctl_close(struct lf_ctl *c)
{
	if (c->ep && c->pd->dev->sockets)
		lf_sever(c->ep, c->cq, c->av, FI_ADDR_UNSPEC, NULL, -1);
	int rc = c->pd ? lf_unmake(c->cq, c->av, c->eq, c->ep) : 0;
	int a = lf_shut(c->mr ? &c->mr->fid : NULL), b = c->pd ? lf_pd_close(c->pd) : 0;
	rc = rc ? rc : a ? a : b;
	if (rc)
		return rc;
	if (c->bufs)
		munmap(c->bufs, c->size);
	free(c);
	return 0;
}

int lf_ctl_name(struct lf_ctl *c, uint8_t *out, uint32_t max) { return lf_name_of(c->ep, out, max); }

// let_in opens the gate for a node. It stays open: a node whose last connection has ended has something to say still. If the gate
// cannot be changed, it is as it was.
static int let_in(struct lf_ctl *c, const uint8_t *name, uint32_t len)
{
	struct lf_from next[LF_KNOWN], peer;
	int n = 0, let = 0, rc = lf_from(name, len, &peer);
	if (rc)
		return rc;
	// The last ones stay let in the longest: so it becomes the last one, also if it is known.
	for (int i = 0; i < c->known_count; i++) {
		if (memcmp(&c->known[i], &peer, sizeof peer))
			next[n++] = c->known[i];
		else if (i >= c->known_count - c->let_count)
			let = c->let_count;
	}
	if (n == LF_KNOWN)
		memmove(next, next + 1, sizeof *next * (size_t)--n);
	next[n++] = peer;
	if (!let)
		let = lf_gate(c->listener, next, n, 1);
	if (let < 0)
		return let;
	memcpy(c->known, next, sizeof *next * (size_t)n);
	c->known_count = n;
	c->let_count = let;
	return 0;
}

int lf_ctl_peer(struct lf_ctl *c, const uint8_t *name, uint32_t len, uint64_t *addr)
{
	int rc = c->listener < 0 ? 0 : let_in(c, name, len);
	return rc ? rc : lf_insert(c->av, name, len, addr);
}

void lf_ctl_forget(struct lf_ctl *c, uint64_t addr)
{
	fi_addr_t a = addr;
	fi_av_remove(c->av, &a, 1, 0);
}

int lf_ctl_send(struct lf_ctl *c, uint64_t addr, const uint8_t *msg, uint32_t len)
{
	struct lf_dev *d = c->pd->dev;
	if (d->injects && len <= d->info->tx_attr->inject_size)
		return (int)fi_inject(c->ep, msg, len, addr);
	struct ctl_buf *b = c->free;
	if (len > CTL_MSG)
		return -FI_EMSGSIZE;
	if (!b)
		return -FI_EAGAIN;
	memcpy(b->bytes, msg, len);
	int rc = (int)fi_send(c->ep, b->bytes, len, c->desc, addr, &b->ctx);
	if (rc)
		return rc;
	c->free = b->next;
	c->sending++;
	return 0;
}

int lf_ctl_sending(const struct lf_ctl *c) { return c->sending; }

// unheard drops what concerns no message: endpoints find out for themselves.
static void unheard(struct lf_ctl *c)
{
	uint8_t event[256];
	uint32_t kind;
	struct fi_eq_err_entry x = {0};
	ssize_t n = c->eq ? fi_eq_read(c->eq, &kind, event, sizeof event, 0) : -FI_EAGAIN;
	while (n >= 0 || (n == -FI_EAVAIL && fi_eq_readerr(c->eq, &x, 0) >= 0))
		n = fi_eq_read(c->eq, &kind, event, sizeof event, 0);
}

int lf_ctl_recv(struct lf_ctl *c, uint8_t *out, uint32_t max)
{
	// Strangers may send for ever: what is no message is one as well, of one byte.
	*out = 0;
	for (;;) {
		struct fi_cq_tagged_entry w;
		ssize_t n = fi_cq_read(c->cq, &w, 1);
		struct ctl_buf *b = NULL;
		size_t len = 0;
		if (n == -FI_EAGAIN) {
			unheard(c);
			return repost(c);
		}
		if (n == -FI_EAVAIL) {
			struct fi_cq_err_entry e = {0};
			n = fi_cq_readerr(c->cq, &e, 0);
			if (n == -FI_EAGAIN)
				return 0;
			if (n < 0)
				return (int)n;
			b = e.op_context;
		} else if (n < 0) {
			return (int)n;
		} else {
			if (w.flags & (FI_RECV | FI_SEND))
				b = w.op_context;
			len = w.len < max ? w.len : max;
		}
		if (b < c->bufs || b >= c->bufs + CTL_BUFS)
			return 1; // data that came with a stranger's write, or nothing of ours
		if (b >= c->bufs + CTL_IN) {
			put(&c->free, b);
			c->sending--;
			continue;
		}
		if (b < c->bufs + CTL_IN - CTL_TAGGED)
			memcpy(out, b->bytes, len);
		else
			len = 0;
		put(&c->idle, b);
		// A message that has come is not lost to trouble with the next: that is found again, and told, when there is none.
		int rc = repost(c);
		if (rc && !len)
			return rc;
		return len ? (int)len : 1;
	}
}

int lf_ctl_arm(struct lf_ctl *c)
{
	struct fid *f = &c->cq->fid;
	return fi_trywait(c->pd->dev->fabric, &f, 1) == 0;
}
