//go:build libfabric && cgo && linux

// Closing an endpoint of libfabric's tcp provider in the middle of what arrives ends the process: the one
// read whose answer has come in part is both in the queue of reads and the transfer that is being received, and
// is reported and freed as either (1.17, tcpx_ep_flush_all_queues). It has lost its context by then, as a
// write with data that has come in part never had one, and rxm takes the context for an address. The provider
// itself has no such trouble with connections that break: it takes what is being received first. So connections
// are broken before their endpoint is closed, and the provider finds that out.

#define _GNU_SOURCE
#include "lf_shim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

// SEVER_HELD is how many sockets are waited for: there is one, unless strangers have connected, too. SEVER_LOOKS
// bounds the looks at what had come by then, in case the provider has no room for a message among it, which is
// not in the way of a close.
enum { SEVER_HELD = 16, SEVER_LOOKS = 1000, SEVER_BATCH = 64 };

union name {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage room;
	uint8_t bytes[LF_ADDR];
};

// matches reports whether a socket's address is the one wanted, which with any may be that of any interface.
static int matches(const union name *a, const union name *want, int any)
{
	if (a->sa.sa_family != want->sa.sa_family)
		return 0;
	if (a->sa.sa_family == AF_INET)
		return a->in.sin_port == want->in.sin_port &&
			((any && want->in.sin_addr.s_addr == htonl(INADDR_ANY)) || a->in.sin_addr.s_addr == want->in.sin_addr.s_addr);
	return a->sa.sa_family == AF_INET6 && a->in6.sin6_port == want->in6.sin6_port &&
		((any && IN6_IS_ADDR_UNSPECIFIED(&want->in6.sin6_addr)) || IN6_ARE_ADDR_EQUAL(&a->in6.sin6_addr, &want->in6.sin6_addr));
}

// Who a connection is to.
enum { NOT_OURS, TO_US, TO_PEER };

// belongs says whether a descriptor is a connection to own, where the endpoint listens, or one to its peer.
static int belongs(int fd, const union name *own, const union name *peer)
{
	union name a = {0}, b = {0};
	socklen_t an = sizeof a.room, bn = sizeof b.room;
	if (getpeername(fd, &b.sa, &bn) || getsockname(fd, &a.sa, &an))
		return NOT_OURS; // no socket, or one that is not connected
	return matches(&a, own, 1) ? TO_US : matches(&b, peer, 0) ? TO_PEER : NOT_OURS;
}

// cut ends the connection of a descriptor, if it is one of the endpoint's, and returns a descriptor of it, or -1.
// It is another one, which copied says and which is to be closed, unless the process has as many as it may. Where the
// peer is, the peer has said. It may name what this process has other connections to: those of other endpoints have
// other names (names.go), and those that Go has made are told by what becomes of them when a program is executed.
static int cut(int fd, const union name *own, const union name *peer, int *copied)
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

// cuts are the connections that were cut.
struct cuts {
	int fd[SEVER_HELD], copied[SEVER_HELD], n;
};

// cut_one adds a descriptor's connection to them, if it is one of the endpoint's.
static void cut_one(struct cuts *c, int fd, const union name *own, const union name *peer)
{
	int copied = 0;
	fd = cut(fd, own, peer, &copied);
	if (fd < 0)
		return;
	if (c->n < SEVER_HELD) {
		c->fd[c->n] = fd;
		c->copied[c->n++] = copied;
	} else if (copied) {
		close(fd);
	}
}

// cut_all looks at all descriptors of the process.
static void cut_all(struct cuts *c, const union name *own, const union name *peer)
{
	DIR *all = opendir("/proc/self/fd");
	if (!all) {
		// If there is no descriptor left nearly all numbers are in use.
		struct rlimit most;
		if (errno == EMFILE && !getrlimit(RLIMIT_NOFILE, &most))
			for (int fd = 0; fd < INT_MAX && (rlim_t)fd < most.rlim_cur; fd++)
				cut_one(c, fd, own, peer);
		return;
	}
	for (struct dirent *d; (d = readdir(all));) {
		int fd = d->d_name[0] == '.' ? -1 : atoi(d->d_name);
		if (fd >= 0 && fd != dirfd(all))
			cut_one(c, fd, own, peer);
	}
	closedir(all);
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
	struct fi_cq_data_entry w[SEVER_BATCH];
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
	union name own = {0}, there = {0};
	size_t len = sizeof own.room;
	if (fi_getname(&ep->fid, own.bytes, &len))
		return;
	len = sizeof there.room;
	// One that has no peer yet is reached by strangers all the same.
	if (peer == FI_ADDR_UNSPEC || fi_av_lookup(av, peer, there.bytes, &len))
		memset(&there, 0, sizeof there);
	struct cuts c = {.n = 0};
	cut_all(&c, &own, &there);
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
