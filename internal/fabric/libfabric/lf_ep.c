//go:build libfabric && cgo && linux

#include "lf_shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int lf_pd_open(struct lf_dev *d, struct lf_pd **out)
{
	struct lf_pd *p = calloc(1, sizeof *p);
	if (!p)
		return -FI_ENOMEM;
	p->dev = d;
	int rc = fi_domain(d->fabric, d->info, &p->domain, NULL);
	if (rc) {
		free(p);
		return rc;
	}
	*out = p;
	return 0;
}

int lf_pd_close(struct lf_pd *p)
{
	int rc = fi_close(&p->domain->fid);
	if (!rc)
		free(p);
	return rc;
}

static int needs(const struct lf_pd *p, int mode) { return (p->dev->info->domain_attr->mr_mode & mode) != 0; }

// present makes sure that memory has pages, for providers that want them there.
static void present(void *addr, uint64_t len)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)addr & ~(page - 1), to = ((uintptr_t)addr + len + page - 1) & ~(page - 1);
#ifdef MADV_POPULATE_WRITE
	if (!madvise((void *)from, to - from, MADV_POPULATE_WRITE))
		return;
#endif
	// An older kernel. A read is enough for a file in memory, which all large regions are.
	for (uintptr_t at = from; at < to; at += page)
		(void)*(volatile uint8_t *)(at < (uintptr_t)addr ? (uintptr_t)addr : at);
}

static int reg(struct lf_pd *p, void *addr, uint64_t len, uint64_t access, uint64_t key, struct fid_mr **mr)
{
	if (needs(p, FI_MR_ALLOCATED))
		present(addr, len);
	return fi_mr_reg(p->domain, addr, len, access, 0, needs(p, FI_MR_PROV_KEY) ? 0 : key, 0, mr, NULL);
}

int lf_register(struct lf_pd *p, void *addr, uint64_t len, uint64_t access, uint64_t key, struct lf_mr *out)
{
	int rc = reg(p, addr, len, access, key, &out->mr);
	if (rc)
		return rc;
	out->key = fi_mr_key(out->mr);
	out->desc = (uint64_t)(uintptr_t)fi_mr_desc(out->mr);
	return 0;
}

int lf_unregister(struct lf_mr *m) { return fi_close(&m->mr->fid); }

// name_for gives endpoints whose addresses are strings one of their own: the provider shm
// would give the first endpoint of every domain the same.
static struct fi_info *name_for(struct lf_dev *d)
{
	struct fi_info *i = fi_dupinfo(d->info);
	if (!i || i->addr_format != FI_ADDR_STR)
		return i;
	char name[LF_NAME];
	uint32_t serial = __atomic_add_fetch(&d->serial, 1, __ATOMIC_RELAXED);
	// The address of the structure tells devices of a process apart. files.go reads the first two.
	struct stat pids = {0};
	stat("/proc/self/ns/pid", &pids);
	int n = snprintf(name, sizeof name, "fi_shm://rdmad-%llu-%d-%llx-%u", (unsigned long long)pids.st_ino, (int)getpid(),
		(unsigned long long)(uintptr_t)d, serial);
	free(i->src_addr);
	i->src_addr = strdup(name);
	i->src_addrlen = (size_t)n + 1;
	if (i->src_addr)
		return i;
	fi_freeinfo(i);
	return NULL;
}

// furnish allocates and registers what an endpoint's operations need.
static int furnish(struct lf_ep *e, uint64_t key)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t reqs = e->reqs_count * sizeof *e->reqs, messages = (e->tagged + 1) * LF_HELLO;
	// The anchor has a page of its own: a peer may write there.
	e->area_size = (reqs + messages + 2 * page - 1) / page * page;
	e->area = mmap(NULL, e->area_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (e->area == MAP_FAILED) {
		e->area = NULL;
		return -FI_ENOMEM;
	}
	e->reqs = (void *)(e->area + page + messages);
	int rc = reg(e->pd, e->area, page, FI_REMOTE_WRITE | FI_REMOTE_READ, key, &e->anchor);
	if (rc || !needs(e->pd, FI_MR_LOCAL))
		return rc;
	rc = reg(e->pd, e->area + page, e->area_size - page, FI_SEND | FI_RECV | FI_READ | FI_WRITE, key + 1, &e->own);
	if (!rc)
		e->desc = fi_mr_desc(e->own);
	return rc;
}

uint8_t *lf_tagged_room(const struct lf_ep *e, uint32_t i) { return e->area + (size_t)sysconf(_SC_PAGESIZE) + (size_t)i * LF_HELLO; }

// hear gives an endpoint a queue for what concerns no operation.
static int hear(struct lf_pd *p, struct fid_ep *ep, struct fid_eq **eq)
{
	struct fi_eq_attr a = {.size = 16, .flags = FI_WRITE, .wait_obj = FI_WAIT_NONE};
	int rc = fi_eq_open(p->dev->fabric, &a, eq, NULL);
	return rc ? rc : fi_ep_bind(ep, &(*eq)->fid, 0);
}

// make also closes the gate of what listens, of which it sets listener.
static int make(struct lf_pd *p, int wait, size_t depth, struct fid_cq **cq, struct fid_av **av, struct fid_eq **eq, struct fid_ep **ep, int32_t *listener)
{
	*listener = -1;
	struct fi_cq_attr ca = {.size = depth, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait ? FI_WAIT_FD : FI_WAIT_NONE};
	struct fi_av_attr aa = {.type = p->dev->info->domain_attr->av_type, .count = 64};
	struct fi_info *info = name_for(p->dev);
	if (!info)
		return -FI_ENOMEM;
	int rc = fi_cq_open(p->domain, &ca, cq, NULL);
	if (!rc)
		rc = fi_av_open(p->domain, &aa, av, NULL);
	if (!rc)
		rc = fi_endpoint(p->domain, info, ep, NULL);
	fi_freeinfo(info);
	if (!rc)
		rc = fi_ep_bind(*ep, &(*cq)->fid, FI_TRANSMIT | FI_RECV);
	if (!rc)
		rc = fi_ep_bind(*ep, &(*av)->fid, 0);
	if (!rc && p->dev->hears)
		rc = hear(p, *ep, eq);
	if (!rc)
		rc = fi_enable(*ep);
	if (rc || !p->dev->sockets)
		return rc;
	*listener = lf_gate_make(*ep);
	return *listener < 0 ? *listener : 0;
}

int lf_ep_open(struct lf_pd *p, uint32_t sends, uint32_t recvs, uint32_t serial, int wait, uint64_t key, struct lf_ep **out)
{
	struct lf_ep *e = calloc(1, sizeof *e);
	if (!e)
		return -FI_ENOMEM;
	e->pd = p;
	e->sends = sends;
	e->recvs = recvs;
	e->serial = serial;
	e->tagged = p->dev->notices ? LF_NOTICES : LF_TAGGED;
	e->reqs_count = sends + recvs + 2 + e->tagged;
	size_t depth = (size_t)sends + 2 * (size_t)recvs + 64 + e->tagged;
	if (p->dev->notices) {
		e->reqs_count += sends;
		depth += sends;
	}
	for (e->idle_count = 0; e->idle_count < e->tagged; e->idle_count++)
		e->idle[e->idle_count] = e->idle_count;
	e->fd = -1;
	e->peer = FI_ADDR_UNSPEC;
	int rc = make(p, wait && p->dev->waits, depth, &e->cq, &e->av, &e->eq, &e->ep, &e->listener);
	if (!rc && wait && p->dev->waits)
		rc = fi_control(&e->cq->fid, FI_GETWAIT, &e->fd);
	if (!rc)
		rc = furnish(e, key);
	if (!rc)
		rc = lf_tagged_recv(e);
	if (rc) {
		lf_ep_close(e);
		return rc;
	}
	*out = e;
	return 0;
}

static int shut(struct fid *f) { return f ? fi_close(f) : 0; }

// The endpoint is closed first: from then on nothing of it is under way.
static int unmake(struct fid_cq *cq, struct fid_av *av, struct fid_eq *eq, struct fid_ep *ep)
{
	int a = shut(ep ? &ep->fid : NULL), b = shut(cq ? &cq->fid : NULL), c = shut(av ? &av->fid : NULL), d = shut(eq ? &eq->fid : NULL);
	return a ? a : b ? b : c ? c : d;
}

int lf_ep_close(struct lf_ep *e)
{
	// One that has no peer was never looked at, so that nothing has begun to arrive.
	if (e->pd->dev->sockets && e->ep && e->peer != FI_ADDR_UNSPEC)
		lf_sever(e->ep, e->cq, e->av, e->peer, e->conns, e->settled ? e->conns_count : -1);
	int rc = unmake(e->cq, e->av, e->eq, e->ep);
	int a = shut(e->own ? &e->own->fid : NULL), b = shut(e->anchor ? &e->anchor->fid : NULL);
	rc = rc ? rc : a ? a : b;
	if (rc)
		return rc; // rather a leak than memory that the library may still use
	if (e->area)
		munmap(e->area, e->area_size);
	free(e->near_done);
	free(e);
	return 0;
}

static int name_of(struct fid_ep *ep, uint8_t *out, uint32_t max)
{
	size_t n = max;
	int rc = fi_getname(&ep->fid, out, &n);
	return rc ? rc : (int)n;
}

int lf_ep_name(struct lf_ep *e, uint8_t *out, uint32_t max) { return name_of(e->ep, out, max); }

void lf_ep_anchor(struct lf_ep *e, uint64_t *addr, uint64_t *key)
{
	*addr = needs(e->pd, FI_MR_VIRT_ADDR) ? (uint64_t)(uintptr_t)e->area : 0;
	*key = fi_mr_key(e->anchor);
}

static int insert(struct fid_av *av, const uint8_t *name, uint32_t len, fi_addr_t *out)
{
	// The library does not know how long the address is.
	uint8_t whole[LF_ADDR + 8] = {0};
	if (len > LF_ADDR)
		return -FI_EINVAL;
	memcpy(whole, name, len);
	int n = fi_av_insert(av, whole, 1, out, 0, NULL);
	return n == 1 ? 0 : n < 0 ? n : -FI_EADDRNOTAVAIL;
}

int lf_ep_expect(struct lf_ep *e, const uint8_t *name, uint32_t len)
{
	struct lf_from peer;
	if (e->listener < 0)
		return 0;
	int rc = lf_from(name, len, &peer);
	return rc ? rc : lf_gate(e->listener, &peer, 1, 0);
}

int lf_ep_join(struct lf_ep *e, const uint8_t *name, uint32_t len, uint64_t anchor_addr, uint64_t anchor_key,
	const uint8_t *hello)
{
	memcpy(e->hello, hello, LF_HELLO);
	e->anchor_addr = anchor_addr;
	e->anchor_key = anchor_key;
	int rc = lf_ep_expect(e, name, len);
	if (!rc)
		rc = insert(e->av, name, len, &e->peer);
	if (!rc)
		lf_near_join(e, name, len);
	return rc;
}

int lf_hello_send(struct lf_ep *e, const uint8_t *msg)
{
	uint8_t *g = lf_tagged_room(e, e->tagged);
	memcpy(g, msg, LF_HELLO);
	return (int)fi_tsend(e->ep, g, LF_HELLO, e->desc, e->peer, LF_HELLO_TAG, &e->reqs[e->sends + e->recvs + 1]);
}

struct lf_set *lf_set_new(void) { return calloc(1, sizeof(struct lf_set)); }

int lf_set_add(struct lf_set *s, struct lf_ep *e)
{
	if (s->n == s->cap) {
		int cap = s->cap ? 2 * s->cap : 16;
		struct lf_ep **eps = realloc(s->eps, (size_t)cap * sizeof *eps);
		if (!eps)
			return -FI_ENOMEM;
		s->eps = eps;
		struct fid **fids = realloc(s->fids, (size_t)cap * sizeof *fids);
		if (!fids)
			return -FI_ENOMEM;
		s->fids = fids;
		s->cap = cap;
	}
	s->eps[s->n] = e;
	s->fids[s->n++] = &e->cq->fid;
	return 0;
}

void lf_set_remove(struct lf_set *s, struct lf_ep *e)
{
	for (int i = 0; i < s->n; i++)
		if (s->eps[i] == e) {
			s->n--;
			s->eps[i] = s->eps[s->n];
			s->fids[i] = s->fids[s->n];
			return;
		}
}

void lf_set_free(struct lf_set *s)
{
	free(s->eps);
	free(s->fids);
	free(s);
}

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
	// known are the nodes that are let in: those that were peers, the last one last.
	struct lf_from known[LF_KNOWN];
	int known_count;
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
		rc = make(c->pd, d->waits, 256, &c->cq, &c->av, &c->eq, &c->ep, &c->listener);
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
	if (needs(c->pd, FI_MR_LOCAL)) {
		rc = reg(c->pd, c->bufs, c->size, FI_SEND | FI_RECV, 1, &c->mr);
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
	int rc = c->pd ? unmake(c->cq, c->av, c->eq, c->ep) : 0;
	int a = shut(c->mr ? &c->mr->fid : NULL), b = c->pd ? lf_pd_close(c->pd) : 0;
	rc = rc ? rc : a ? a : b;
	if (rc)
		return rc;
	if (c->bufs)
		munmap(c->bufs, c->size);
	free(c);
	return 0;
}

int lf_ctl_name(struct lf_ctl *c, uint8_t *out, uint32_t max) { return name_of(c->ep, out, max); }

// let_in opens the gate for a node. It stays open: a node whose last connection has ended has something to say still.
static int let_in(struct lf_ctl *c, const uint8_t *name, uint32_t len)
{
	struct lf_from peer;
	int rc = lf_from(name, len, &peer);
	if (rc)
		return rc;
	for (int i = 0; i < c->known_count; i++)
		if (!memcmp(&c->known[i], &peer, sizeof peer))
			return 0;
	if (c->known_count == LF_KNOWN)
		memmove(c->known, c->known + 1, sizeof *c->known * (size_t)--c->known_count);
	c->known[c->known_count++] = peer;
	return lf_gate(c->listener, c->known, c->known_count, 1);
}

int lf_ctl_peer(struct lf_ctl *c, const uint8_t *name, uint32_t len, uint64_t *addr)
{
	int rc = c->listener < 0 ? 0 : let_in(c, name, len);
	return rc ? rc : insert(c->av, name, len, addr);
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
		int rc = repost(c);
		if (rc)
			return rc;
		return len ? (int)len : 1;
	}
}

int lf_ctl_arm(struct lf_ctl *c)
{
	struct fid *f = &c->cq->fid;
	return fi_trywait(c->pd->dev->fabric, &f, 1) == 0;
}
