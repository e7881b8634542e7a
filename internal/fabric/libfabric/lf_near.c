//go:build libfabric && cgo && linux

// Reads over libfabric's provider shm, which are done here. The provider (1.17, smr_generic_rma) copies the peer's
// memory into this process with the peer's queue locked, all the time that takes: who is killed meanwhile leaves the
// lock behind, and the peer's next look at its queue never returns. The copy itself needs no lock, and
// neither the peer's help nor its leave, but that of the kernel, as the provider's has.

#define _GNU_SOURCE
#include "lf_shim.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

void lf_near_join(struct lf_ep *e, const uint8_t *name, uint32_t len)
{
	char text[LF_ADDR + 1] = {0};
	unsigned long long space;
	int pid;
	struct stat own = {0};
	const struct fi_info *i = e->pd->dev->info;
	if (strcmp(i->fabric_attr->prov_name, "shm") || !(i->domain_attr->mr_mode & FI_MR_VIRT_ADDR) || len > LF_ADDR)
		return;
	memcpy(text, name, len);
	// See name_for. A process of another name space has another number here.
	if (sscanf(text, "fi_shm://rdmad-%llu-%d-", &space, &pid) != 2 || stat("/proc/self/ns/pid", &own) || own.st_ino != space || pid < 1)
		return;
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return;
	e->near_done = calloc(e->sends, sizeof *e->near_done);
	if (!e->near_done) {
		close(fd);
		return;
	}
	e->near_fd = fd;
	e->near = pid;
}

void lf_near_part(struct lf_ep *e)
{
	if (!e->near_done)
		return;
	close(e->near_fd);
	free(e->near_done);
}

// gone reports whether the process has ended. Its number may be another one's since then, so that is asked after each
// copy: what was copied before an answer of "no" was the peer's.
static int gone(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) > 0;
}

// fetch copies n bytes of another process and returns 0 or an errno.
static int fetch(pid_t pid, uint64_t to, uint64_t from, uint64_t n)
{
	while (n > 0) {
		struct iovec here = {.iov_base = (void *)(uintptr_t)to, .iov_len = n}, there = {.iov_base = (void *)(uintptr_t)from, .iov_len = n};
		ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
		if (got <= 0)
			return got ? errno : EFAULT;
		to += (uint64_t)got;
		from += (uint64_t)got;
		n -= (uint64_t)got;
	}
	return 0;
}

int lf_near_read(struct lf_ep *e, const struct lf_send *s, struct lf_req *r)
{
	if (!e->near)
		return 0;
	// A read of nothing only asks whether the peer is there.
	int err = s->len ? fetch(e->near, s->addr, s->remote, s->len) : fetch(e->near, (uint64_t)(uintptr_t)&r->operand, e->anchor_addr, 1);
	if (gone(e->near_fd))
		err = ESRCH;
	if (err == EPERM || err == ENOSYS) {
		e->near = 0; // the provider has another way then
		return 0;
	}
	struct lf_wc *o = &e->near_done[e->near_tail++ % e->sends];
	memset(o, 0, sizeof *o);
	o->serial = e->serial;
	o->index = (uint32_t)(r - e->reqs);
	o->status = err == ESRCH ? FI_ECONNRESET : (uint32_t)err;
	o->len = s->len;
	return 1;
}

int lf_near_take(struct lf_ep *e, struct lf_wc *out, int max)
{
	int n = 0;
	for (; n < max && e->near_head != e->near_tail; n++)
		out[n] = e->near_done[e->near_head++ % e->sends];
	return n;
}
