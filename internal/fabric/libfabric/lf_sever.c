//go:build libfabric && cgo && linux

// Closing an endpoint of libfabric's tcp provider in the middle of what arrives ends the process: the one
// read whose answer has come in part is both in the queue of reads and the transfer that is being received, and
// is reported and freed as either (1.17, tcpx_ep_flush_all_queues). It has lost its context by then, as a
// write with data that has come in part never had one, and rxm takes the context for an address. The provider
// itself has no such trouble with connections that break: it takes what is being received first. So connections
// are broken before their endpoint is closed, and the provider finds that out.

#define _GNU_SOURCE
#include "lf_sockets.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// SEVER_LOOKS bounds the looks at what had come when connections were cut, in case the provider has no room for a message among it,
// which is not in the way of a close.
enum { SEVER_LOOKS = 1000, SEVER_BATCH = 64 };

// Who a connection is to.
enum { NOT_OURS, TO_US, TO_PEER };

// belongs says whether a descriptor is a connection to own, where the endpoint listens, or one to its peer.
static int belongs(int fd, const union lf_place *own, const union lf_place *peer)
{
	union lf_place a = {0}, b = {0};
	socklen_t an = sizeof a.room, bn = sizeof b.room;
	if (getpeername(fd, &b.sa, &bn) || getsockname(fd, &a.sa, &an))
		return NOT_OURS; // no socket, or one that is not connected
	return lf_same(&a, own, 1) ? TO_US : lf_same(&b, peer, 0) ? TO_PEER : NOT_OURS;
}

// cut ends the connection of a descriptor, if it is one of the endpoint's, and returns a descriptor of it, or -1.
// It is another one, which copied says and which is to be closed, unless the process has as many as it may. Where the
// peer is, the peer has said. It may name what this process has other connections to: those of other endpoints have
// other names (names.go), and those that Go has made are told by what becomes of them when a program is executed.
static int cut(int fd, const union lf_place *own, const union lf_place *peer, int *copied)
{
	int whose = belongs(fd, own, peer), flags = fcntl(fd, F_GETFD);
	if (whose == NOT_OURS || flags < 0 || (whose == TO_PEER && flags & FD_CLOEXEC))
		return -1;
	// The first may have been closed meanwhile, and be somebody else's now; this one stays what it is. To do without is
	// better than to end the process.
	int held = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	*copied = held >= 0;
	if (!*copied)
		held = fd;
	if (belongs(held, own, peer) != whose) {
		if (*copied)
			close(held);
		return -1;
	}
	shutdown(held, SHUT_RDWR);
	return held;
}

// cuts are the connections that were cut, of the endpoint at own to the one there.
struct cuts {
	union lf_place own, there;
	int fd[LF_CONNS], copied[LF_CONNS], n;
};

// cut_one adds a descriptor's connection to them, if it is one of the endpoint's.
static int cut_one(int fd, void *with)
{
	struct cuts *c = with;
	int copied = 0;
	fd = cut(fd, &c->own, &c->there, &copied);
	if (fd < 0)
		return 0;
	if (c->n < LF_CONNS) {
		c->fd[c->n] = fd;
		c->copied[c->n++] = copied;
	} else if (copied) {
		close(fd);
	}
	return 0;
}

// is reports whether a descriptor is still what it was.
static int is(const struct lf_conn *c)
{
	struct stat s;
	return !fstat(c->fd, &s) && S_ISSOCK(s.st_mode) && s.st_ino == c->inode;
}

// taken reports whether everything that a socket had received was taken from it.
static int taken(int fd)
{
	char c;
	return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

// drain has the provider work until nothing is left that it could report.
static void drain(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry w[SEVER_BATCH];
	struct fi_cq_err_entry x;
	for (int i = 0; i < SEVER_LOOKS; i++) {
		ssize_t n = fi_cq_read(cq, w, SEVER_BATCH);
		if (n == -FI_EAVAIL) {
			memset(&x, 0, sizeof x);
			n = fi_cq_readerr(cq, &x, 0);
		}
		if (n <= 0)
			return;
	}
}

// ends finds out where an endpoint and its peer are. One that has no peer has no connection of its own to anybody.
static int ends(struct fid_ep *ep, struct fid_av *av, fi_addr_t peer, union lf_place *own, union lf_place *there)
{
	size_t len = sizeof there->room;
	if (peer == FI_ADDR_UNSPEC || fi_av_lookup(av, peer, there->bytes, &len))
		memset(there, 0, sizeof *there);
	return lf_place_of(ep, own);
}

void lf_sever(struct fid_ep *ep, struct fid_cq *cq, struct fid_av *av, fi_addr_t peer, const struct lf_conn *conns, int n)
{
	struct cuts c = {.n = 0};
	if (ends(ep, av, peer, &c.own, &c.there))
		return;
	if (n < 0)
		lf_each_fd(cut_one, &c);
	for (int k = 0; k < n; k++)
		if (is(&conns[k]))
			cut_one(conns[k].fd, &c);
	for (int i = 0, left = c.n; left > 0 && i < SEVER_LOOKS; i++) {
		left = 0;
		for (int k = 0; k < c.n; k++)
			left += !taken(c.fd[k]);
		// Of the last look the provider learns that nothing more comes.
		drain(cq);
	}
	for (int k = 0; k < c.n; k++)
		if (c.copied[k])
			close(c.fd[k]);
}

// found are the connections that an endpoint has.
struct found {
	union lf_place own, there;
	struct lf_conn *conns;
	int n;
};

static int find(int fd, void *with)
{
	struct found *f = with;
	int whose = belongs(fd, &f->own, &f->there);
	struct stat s;
	if (whose == NOT_OURS || (whose == TO_PEER && fcntl(fd, F_GETFD) & FD_CLOEXEC) || fstat(fd, &s))
		return 0;
	if (f->n++ == LF_CONNS)
		return 1;
	f->conns[f->n - 1] = (struct lf_conn){.fd = fd, .inode = s.st_ino};
	return 0;
}

int lf_ep_settle(struct lf_ep *e)
{
	struct found f = {.conns = e->conns};
	if (e->listener < 0 || e->settled)
		return 0;
	int rc = lf_gate(e->listener, NULL, 0, 0);
	if (!rc)
		rc = ends(e->ep, e->av, e->peer, &f.own, &f.there);
	if (rc)
		return rc;
	lf_each_fd(find, &f);
	if (f.n > LF_CONNS)
		return -FI_EMFILE;
	e->conns_count = f.n;
	e->settled = 1;
	return 0;
}

int lf_connected(const struct lf_ep *e)
{
	for (int k = 0; k < e->conns_count; k++)
		if (is(&e->conns[k]))
			return 1;
	return 0;
}
