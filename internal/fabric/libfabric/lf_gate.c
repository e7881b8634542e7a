//go:build libfabric && cgo && linux

// Every endpoint of libfabric's tcp provider listens, and takes whoever connects for a peer: in 1.17 a stranger's 72 bytes
// end the process, and connections that say nothing keep their descriptors. So its listening socket has a filter that
// drops what does not come from where the peer is. A peer connects from the address that it listens at, whatever others
// its node has, because the layer rxm binds its sockets to that.

#define _GNU_SOURCE
#include "lf_sockets.h"

#include <errno.h>
#include <linux/filter.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

// The longest filter: one look at each word of an address, and an answer. What is around it takes less than GATE_REST.
enum { GATE_EACH = 9, GATE_REST = 24, GATE_WORDS = 4 };
// Offsets: of the addresses from where headers of IP begin, and of the flags in that of TCP.
enum { IP4_FROM = 12, IP6_FROM = 8, TCP_FLAGS = 13, TCP_SYN = 2, TCP_ACK = 16 };

struct gate {
	struct sock_filter code[LF_KNOWN * GATE_EACH + GATE_REST];
	unsigned short n;
};

static struct sock_filter *add(struct gate *g, int code, uint32_t k, int yes, int no)
{
	g->code[g->n] = (struct sock_filter){.code = (uint16_t)code, .k = k, .jt = (uint8_t)yes, .jf = (uint8_t)no};
	return &g->code[g->n++];
}

static void load(struct gate *g, int size, uint32_t at) { add(g, BPF_LD | size | BPF_ABS, at, 0, 0); }
static void answer(struct gate *g, int pass) { add(g, BPF_RET | BPF_K, pass ? UINT32_MAX : 0, 0, 0); }
static void skip_to_here(struct gate *g, struct sock_filter *jump) { jump->k = (uint32_t)(&g->code[g->n] - jump - 1); }

// build makes the filter: of all others, with knocks, it lets pass what asks for a connection, and none is made before the
// next packet.
static void build(struct gate *g, const struct lf_from *from, int n, int knocks)
{
	g->n = 0;
	load(g, BPF_B, (uint32_t)SKF_NET_OFF);
	add(g, BPF_ALU | BPF_RSH | BPF_K, 4, 0, 0);
	add(g, BPF_JMP | BPF_JEQ | BPF_K, 6, 0, 1);
	struct sock_filter *six = add(g, BPF_JMP | BPF_JA, 0, 0, 0);
	load(g, BPF_W, (uint32_t)(SKF_NET_OFF + IP4_FROM));
	for (int i = 0; i < n; i++)
		if (from[i].words == 1) {
			add(g, BPF_JMP | BPF_JEQ | BPF_K, from[i].word[0], 0, 1);
			answer(g, 1);
		}
	struct sock_filter *others = add(g, BPF_JMP | BPF_JA, 0, 0, 0);
	skip_to_here(g, six);
	for (uint32_t w = 0; w < GATE_WORDS; w++) {
		load(g, BPF_W, (uint32_t)(SKF_NET_OFF + IP6_FROM) + w * sizeof(uint32_t));
		add(g, BPF_ST, w, 0, 0);
	}
	for (int i = 0; i < n; i++)
		if (from[i].words == GATE_WORDS) {
			for (int w = 0; w < GATE_WORDS; w++) {
				add(g, BPF_LD | BPF_MEM, (uint32_t)w, 0, 0);
				add(g, BPF_JMP | BPF_JEQ | BPF_K, from[i].word[w], 0, 2 * (GATE_WORDS - w) - 1);
			}
			answer(g, 1);
		}
	skip_to_here(g, others);
	if (knocks) {
		load(g, BPF_B, TCP_FLAGS);
		add(g, BPF_ALU | BPF_AND | BPF_K, TCP_SYN | TCP_ACK, 0, 0);
		add(g, BPF_JMP | BPF_JEQ | BPF_K, TCP_SYN, 0, 1);
		answer(g, 1);
	}
	answer(g, 0);
}

int lf_gate(int fd, const struct lf_from *from, int n, int knocks)
{
	struct gate g;
	if (fd < 0)
		return 0;
	for (;;) {
		build(&g, from, n, knocks);
		struct sock_fprog p = {.len = g.n, .filter = g.code};
		if (!setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof p))
			return n;
		// The system has a limit (net.core.optmem_max): rather the last ones than none.
		if (errno != ENOMEM || n < 2)
			return -errno;
		from += n - n / 2;
		n /= 2;
	}
}

// Who listens where.
struct listener {
	union lf_place at;
	int fd;
};

static int see(int fd, void *with)
{
	struct listener *l = with;
	union lf_place a = {0};
	int listens = 0;
	socklen_t an = sizeof a.room, n = sizeof listens;
	if (getsockname(fd, &a.sa, &an) || !lf_same(&a, &l->at, 1) || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) || !listens)
		return 0;
	l->fd = fd;
	return 1;
}

int lf_gate_make(struct fid_ep *ep)
{
	struct listener l = {.fd = -1};
	int rc = lf_place_of(ep, &l.at);
	if (rc)
		return rc;
	lf_each_fd(see, &l);
	if (l.fd < 0)
		return -FI_EBADF;
	rc = lf_gate(l.fd, NULL, 0, 1);
	if (rc)
		return rc;
	// Who was faster than the filter is a stranger: nobody has been told of the endpoint yet.
	struct pollfd waiting = {.fd = l.fd, .events = POLLIN};
	while (poll(&waiting, 1, 0) > 0) {
		int early = accept4(l.fd, NULL, NULL, SOCK_CLOEXEC);
		if (early >= 0)
			close(early);
		else if (errno != ECONNABORTED && errno != EAGAIN)
			return -errno;
	}
	return l.fd;
}

int lf_from(const uint8_t *name, uint32_t len, struct lf_from *out)
{
	union lf_place a = {0};
	memcpy(a.bytes, name, len < sizeof a.bytes ? len : sizeof a.bytes);
	memset(out, 0, sizeof *out);
	if (a.sa.sa_family == AF_INET && len >= sizeof a.in) {
		out->words = 1;
		out->word[0] = ntohl(a.in.sin_addr.s_addr);
		return 0;
	}
	if (a.sa.sa_family != AF_INET6 || len < sizeof a.in6)
		return -FI_EINVAL;
	memcpy(out->word, &a.in6.sin6_addr, sizeof out->word);
	out->words = GATE_WORDS;
	for (int w = 0; w < GATE_WORDS; w++)
		out->word[w] = ntohl(out->word[w]);
	if (IN6_IS_ADDR_V4MAPPED(&a.in6.sin6_addr)) {
		out->words = 1; // such packets are those of IPv4
		out->word[0] = out->word[GATE_WORDS - 1];
	}
	return 0;
}
