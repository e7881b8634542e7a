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
#include <unistd.h>

// SEVER_HELD is how many sockets are waited for: there is one, unless others of the peer's node have connected, too. SEVER_LOOKS
// bounds the looks at what had come by then, in case the provider has no room for a message among it, which is
// not in the way of a close.
enum { SEVER_HELD = 16, SEVER_LOOKS = 1000, SEVER_BATCH = 64 };

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
	int fd[SEVER_HELD], copied[SEVER_HELD], n;
};

// cut_one adds a descriptor's connection to them, if it is one of the endpoint's.
static int cut_one(int fd, void *with)
{
	struct cuts *c = with;
	int copied = 0;
	fd = cut(fd, &c->own, &c->there, &copied);
	if (fd < 0)
		return 0;
	if (c->n < SEVER_HELD) {
		c->fd[c->n] = fd;
		c->copied[c->n++] = copied;
	} else if (copied) {
		close(fd);
	}
	return 0;
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

void lf_sever(struct fid_ep *ep, struct fid_cq *cq, struct fid_av *av, fi_addr_t peer)
{
	struct cuts c = {.n = 0};
	if (lf_place_of(ep, &c.own))
		return;
	size_t len = sizeof c.there.room;
	// One that has no peer yet has none of its own to anybody.
	if (peer == FI_ADDR_UNSPEC || fi_av_lookup(av, peer, c.there.bytes, &len))
		memset(&c.there, 0, sizeof c.there);
	lf_each_fd(cut_one, &c);
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
