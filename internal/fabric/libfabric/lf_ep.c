//go:build libfabric && cgo && linux

#include "lf_parts.h"

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

int lf_needs(const struct lf_pd *p, int mode) { return (p->dev->info->domain_attr->mr_mode & mode) != 0; }

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

int lf_reg(struct lf_pd *p, void *addr, uint64_t len, uint64_t access, uint64_t key, struct fid_mr **mr)
{
	if (lf_needs(p, FI_MR_ALLOCATED))
		present(addr, len);
	return fi_mr_reg(p->domain, addr, len, access, 0, lf_needs(p, FI_MR_PROV_KEY) ? 0 : key, 0, mr, NULL);
}

int lf_register(struct lf_pd *p, void *addr, uint64_t len, uint64_t access, uint64_t key, struct lf_mr *out)
{
	int rc = lf_reg(p, addr, len, access, key, &out->mr);
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
	int rc = lf_reg(e->pd, e->area, page, FI_REMOTE_WRITE | FI_REMOTE_READ, key, &e->anchor);
	if (rc || !lf_needs(e->pd, FI_MR_LOCAL))
		return rc;
	rc = lf_reg(e->pd, e->area + page, e->area_size - page, FI_SEND | FI_RECV | FI_READ | FI_WRITE, key + 1, &e->own);
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

int lf_make(struct lf_pd *p, int wait, size_t depth, struct fid_cq **cq, struct fid_av **av, struct fid_eq **eq, struct fid_ep **ep, int32_t *listener)
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
	int rc = lf_make(p, wait && p->dev->waits, depth, &e->cq, &e->av, &e->eq, &e->ep, &e->listener);
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

int lf_shut(struct fid *f) { return f ? fi_close(f) : 0; }

int lf_unmake(struct fid_cq *cq, struct fid_av *av, struct fid_eq *eq, struct fid_ep *ep)
{
	int a = lf_shut(ep ? &ep->fid : NULL), b = lf_shut(cq ? &cq->fid : NULL), c = lf_shut(av ? &av->fid : NULL), d = lf_shut(eq ? &eq->fid : NULL);
	return a ? a : b ? b : c ? c : d;
}

int lf_ep_close(struct lf_ep *e)
{
	// One that has no peer was never looked at, so that nothing has begun to arrive.
	if (e->pd->dev->sockets && e->ep && e->peer != FI_ADDR_UNSPEC)
		lf_sever(e->ep, e->cq, e->av, e->peer, e->conns, e->settled ? e->conns_count : -1);
	int rc = lf_unmake(e->cq, e->av, e->eq, e->ep);
	int a = lf_shut(e->own ? &e->own->fid : NULL), b = lf_shut(e->anchor ? &e->anchor->fid : NULL);
	rc = rc ? rc : a ? a : b;
	if (rc)
		return rc; // rather a leak than memory that the library may still use
	if (e->area)
		munmap(e->area, e->area_size);
	lf_near_part(e);
	free(e);
	return 0;
}

int lf_name_of(struct fid_ep *ep, uint8_t *out, uint32_t max)
{
	size_t n = max;
	int rc = fi_getname(&ep->fid, out, &n);
	return rc ? rc : (int)n;
}

int lf_ep_name(struct lf_ep *e, uint8_t *out, uint32_t max) { return lf_name_of(e->ep, out, max); }

void lf_ep_anchor(struct lf_ep *e, uint64_t *addr, uint64_t *key)
{
	*addr = lf_needs(e->pd, FI_MR_VIRT_ADDR) ? (uint64_t)(uintptr_t)e->area : 0;
	*key = fi_mr_key(e->anchor);
}

int lf_insert(struct fid_av *av, const uint8_t *name, uint32_t len, fi_addr_t *out)
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
	if (!rc)
		rc = lf_gate(e->listener, &peer, 1, 0);
	return rc < 0 ? rc : 0;
}

int lf_ep_join(struct lf_ep *e, const uint8_t *name, uint32_t len, uint64_t anchor_addr, uint64_t anchor_key,
	const uint8_t *hello)
{
	memcpy(e->hello, hello, LF_HELLO);
	e->anchor_addr = anchor_addr;
	e->anchor_key = anchor_key;
	int rc = lf_ep_expect(e, name, len);
	if (!rc)
		rc = lf_insert(e->av, name, len, &e->peer);
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
