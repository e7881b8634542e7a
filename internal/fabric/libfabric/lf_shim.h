// The C side of the libfabric provider: what cgo cannot reach (static inline functions
// and unions) or should reach once for a whole list. Structures that cross hold plain
// numbers, no pointers to Go memory, and nothing keeps a pointer to Go memory after it
// has returned, except a registration, whose memory the caller keeps in place. Handles
// and the contexts of operations live in C memory. Nothing calls back into Go.
// Functions return 0 or a count, or a negative fi_errno.
#ifndef RDMAD_LIBFABRIC_SHIM_H
#define RDMAD_LIBFABRIC_SHIM_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdint.h>

enum { LF_NAME = 128, LF_ADDR = 192, LF_HELLO = 64, LF_BATCH = 64 };
// LF_RUN is how many operations the library is told at most that more will follow. One that keeps
// them back until there is one that does not say so, and has no room for that one, would keep
// them for ever: so many at a time fit the queue of every provider.
enum { LF_RUN = 16 };
// LF_NOTICES is how many receives for tagged messages an endpoint has that takes notices, and LF_TAGGED how many another one.
// What comes while none is posted waits in the library.
enum { LF_NOTICES = 64, LF_TAGGED = 2, LF_NOTICE_TAG = 0x4e434452, LF_HELLO_TAG = 0x4d434452 };
// LF_LOOKS is how many polls there are for one look at what concerns no operation.
enum { LF_LOOKS = 64 };
// LF_CONNS is how many connections an endpoint may have: there is one, unless others of the peer's node have connected, too.
enum { LF_CONNS = 16 };

// LF_KNOWN is how many nodes may be let in to a control endpoint.
enum { LF_KNOWN = 256 };

// lf_from is an address of IP: one word or four.
struct lf_from {
	uint32_t word[4];
	int32_t words;
};

// lf_query says what to look for; empty strings and zeros leave it open.
struct lf_query {
	char provider[LF_NAME], domain[LF_NAME], node[LF_NAME];
	// need is whether what cannot be used is left out.
	int32_t need, atomics, delivery;
	// notices is whether immediates are to go as messages: see lf_dev.
	int32_t notices;
};

// lf_info describes one fi_info.
struct lf_info {
	char provider[LF_NAME], fabric[LF_NAME], domain[LF_NAME], source[LF_NAME];
	uint64_t caps, mode, max_msg, order, inject, cq_data, key_size, mr_mode, sends, recvs;
	uint32_t format, endpoint, version, control, progress;
};

// lf_dev is an opened fabric and the fi_info that it was opened with.
struct lf_dev {
	struct fi_info *info;
	struct fid_fabric *fabric;
	uint64_t complete; // the flag that makes a completion say that data has landed
	int32_t waits;     // completion queues have a descriptor
	int32_t atomics;   // atomics of 8 bytes work
	int32_t injects;   // small data may be given to the library with the operation
	int32_t batches;   // it may be told that more operations follow
	int32_t hears;     // endpoints need a queue for what concerns no operation
	int32_t sockets;   // connections are sockets of this process that need care: see lf_gate.c and lf_sever.c
	// A write brings no data: its immediate follows it as a message of its own, a notice, which the library
	// promises not to deliver before what was written (FI_ORDER_SAW).
	int32_t notices;
	uint32_t serial; // of the names of endpoints; atomic
};

struct lf_pd {
	struct lf_dev *dev;
	struct fid_domain *domain;
};

struct lf_mr {
	struct fid_mr *mr;
	uint64_t key, desc;
};

// lf_req is what the library may write to while an operation is under way. It comes
// from registered memory: see lf_ep. The rest of it is the shim's own.
struct lf_req {
	struct fi_context2 ctx;
	uint64_t operand, compare; // of atomics; operand also of writes and reads of nothing, and what a notice says
	// With notices: left is how many operations of a work request have not ended, of the two that a write with an
	// immediate is. written is set between them, status once the first has failed then.
	uint32_t left, written, status;
};

// lf_ep is an endpoint with its queue, its peer, and the contexts of its operations: first
// those of sends, then of receives, then two of greetings; with notices also those of a notice for each
// send, and of the receives for them.
struct lf_ep {
	struct lf_pd *pd;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_eq *eq;  // of what concerns no operation, or NULL
	struct fid_mr *own; // of reqs and greetings
	void *desc;
	fi_addr_t peer;
	uint64_t anchor_addr, anchor_key; // of the peer: for writes and reads of nothing
	struct lf_req *reqs;
	uint8_t *area;            // this end's anchor, messages, and reqs
	uint8_t hello[LF_HELLO];  // the peer's greeting
	int32_t trap;             // see lf_tagged.c
	size_t area_size;
	struct fid_mr *anchor;
	uint32_t sends, recvs, serial, reqs_count;
	uint32_t tagged;                       // receives for tagged messages, of which
	uint32_t idle[LF_NOTICES], idle_count; // these are not posted
	uint32_t looks; // polls, for LF_LOOKS
	int32_t fd;     // of the queue, -1: none
	int32_t listener; // where it listens, -1: nowhere that needs a gate
	// settled: its connections are these, and there will be no others. See lf_ep_settle.
	int32_t settled, conns_count;
	struct lf_conn {
		int32_t fd;
		uint64_t inode;
	} conns[LF_CONNS];
	// Reads that were done without the library, see lf_near.c: near is the peer's process, or 0, near_fd its pidfd,
	// open as long as there is near_done, a ring of their completions.
	int32_t near, near_fd;
	uint32_t near_head, near_tail;
	struct lf_wc *near_done;
};

enum { LF_WRITE = 1, LF_WRITE_IMM, LF_READ, LF_SEND, LF_CAS, LF_ADD };
enum { LF_INLINE = 1 };

struct lf_send {
	uint64_t addr, desc, remote, rkey, compare, swap;
	uint32_t len, imm;
	uint8_t op, flags;
};

struct lf_recv {
	uint64_t addr, desc;
	uint32_t len, index;
};

// lf_wc is a completion: index is that of the lf_req, one after the last for nothing of ours, LF_ARRIVED
// for data that has come with a write or in a notice, or LF_UNASKED for a message that nobody asked for. Status is 0 or an fi_errno.
enum { LF_ARRIVED = 0xffffffffu, LF_UNASKED = 0xfffffffeu };

struct lf_wc {
	uint64_t data;
	uint32_t serial, index, status, vendor, len;
};

// lf_set is the endpoints that are polled together.
struct lf_set {
	struct lf_ep **eps;
	struct fid **fids;
	int32_t n, cap, next;
};

// lf_list describes what the query finds, and returns how much there is of it.
int lf_list(const struct lf_query *q, struct lf_info *out, int max);
int lf_open(const struct lf_query *q, struct lf_dev **out, struct lf_info *info);
// lf_impose makes a device that has nothing open yet ask for more than its provider does.
void lf_impose(struct lf_dev *d, uint64_t mr_mode, uint64_t cq_data, int injects, int batches, int hears, int waits);
int lf_close(struct lf_dev *d);
// lf_shared returns 1 unless the environment keeps the layer rxm from receives that all queue pairs share.
int lf_shared(void);
// lf_cached returns 1 if the library was first used with a cache of registrations.
int lf_cached(void);

int lf_pd_open(struct lf_dev *d, struct lf_pd **out);
int lf_pd_close(struct lf_pd *p);
// lf_register registers memory; key is what to ask for where the provider does not choose.
int lf_register(struct lf_pd *p, void *addr, uint64_t len, uint64_t access, uint64_t key, struct lf_mr *out);
int lf_unregister(struct lf_mr *m);

int lf_ep_open(struct lf_pd *p, uint32_t sends, uint32_t recvs, uint32_t serial, int wait, uint64_t key, struct lf_ep **out);
int lf_ep_close(struct lf_ep *e);
// lf_sever ends the connections of an endpoint that is about to be closed, and drops what is reported of that: those n, or if n is
// negative all that are found.
void lf_sever(struct fid_ep *ep, struct fid_cq *cq, struct fid_av *av, fi_addr_t peer, const struct lf_conn *conns, int n);
// lf_ep_settle lets nobody in any more, and notes what connections there are. From then on one that breaks is not made again, so that these
// need no looking for when the endpoint is closed. It returns -FI_EMFILE if there are too many.
int lf_ep_settle(struct lf_ep *e);
// lf_connected reports whether one of them is there.
int lf_connected(const struct lf_ep *e);
// lf_gate has a listening socket, if there is one, drop what comes from others than those n; if they are too many for the
// system, than the last of them. With knocks others may ask for a connection as well, and get it if they are among them when
// they ask again: who dials a little early is late by a fifth of a second then, and not by one. It returns how many are let in.
int lf_gate(int fd, const struct lf_from *from, int n, int knocks);
// lf_gate_make closes the gate of a new endpoint to all, and returns the socket that it listens at.
int lf_gate_make(struct fid_ep *ep);
// lf_from takes the address from an endpoint's name.
int lf_from(const uint8_t *name, uint32_t len, struct lf_from *out);
// lf_ep_name writes the endpoint's address and returns its length.
int lf_ep_name(struct lf_ep *e, uint8_t *out, uint32_t max);
// lf_ep_anchor says where a peer's writes and reads of nothing may go.
void lf_ep_anchor(struct lf_ep *e, uint64_t *addr, uint64_t *key);
// lf_ep_expect lets an endpoint's peer in, and nobody else, which lf_ep_join does as well.
int lf_ep_expect(struct lf_ep *e, const uint8_t *name, uint32_t len);
// lf_ep_join makes the peer known. hello is its greeting, of LF_HELLO bytes.
int lf_ep_join(struct lf_ep *e, const uint8_t *name, uint32_t len, uint64_t anchor_addr, uint64_t anchor_key, const uint8_t *hello);
// A greeting is one tagged message. That the peer's has come is told with the index sends + recvs, and that this end's has
// arrived with the one after that.
int lf_hello_send(struct lf_ep *e, const uint8_t *msg);

// lf_trap has messages caught that are not tagged and that nobody asked for, until it is told that they are asked for.
int lf_trap(struct lf_ep *e, int on);
// For the other files of the shim. lf_tagged_recv posts the receives that are idle, as many as the library takes.
int lf_tagged_recv(struct lf_ep *e);
// lf_tagged_done handles the completion of such a receive, and of others not, and returns 0 if it is none for the caller.
int lf_tagged_done(struct lf_ep *e, struct lf_wc *o, uint64_t tag);
// lf_tagged_room returns where a receive puts its message, and one after the last where the own greeting is.
uint8_t *lf_tagged_room(const struct lf_ep *e, uint32_t i);

// Notices; for the other files of the shim. lf_notice_came takes one that has come.
void lf_notice_came(struct lf_wc *o, const uint8_t *room);
// lf_notice_write is a write with an immediate: the write, then the notice. With -FI_EAGAIN it may have
// come as far as the write; the next call for the same request goes on from there.
ssize_t lf_notice_write(struct lf_ep *e, const struct lf_send *s, struct lf_req *r, uint64_t flags);
// lf_notice_done handles a completion, and returns 0 if it is none for the caller (yet).
int lf_notice_done(struct lf_ep *e, struct lf_wc *o);
// lf_write posts a write or a read.
ssize_t lf_write(struct lf_ep *e, const struct lf_send *s, struct lf_req *r, uint64_t flags);

// lf_post posts n of the work requests in ring, from position from on, and returns how many
// were taken. rc is 0, -FI_EAGAIN for no room now, or why the next one can never be
// taken.
int lf_post(struct lf_ep *e, const struct lf_send *ring, uint32_t mask, uint32_t from, uint32_t n, int *rc);
int lf_recv(struct lf_ep *e, const struct lf_recv *wrs, int n, int *rc);
// lf_near_join finds out whether the memory of an endpoint's peer can be read without the library, lf_near_read does so,
// or returns 0, lf_near_take moves completions of such reads into out, and lf_near_part gives up what join has.
void lf_near_join(struct lf_ep *e, const uint8_t *name, uint32_t len);
int lf_near_read(struct lf_ep *e, const struct lf_send *s, struct lf_req *r);
int lf_near_take(struct lf_ep *e, struct lf_wc *out, int max);
void lf_near_part(struct lf_ep *e);
// lf_poll moves completions of the endpoints of a set into out, those of each in turn.
int lf_poll(struct lf_set *s, struct lf_wc *out, int max);
int lf_poll_one(struct lf_ep *e, struct lf_wc *out, int max);
// lf_arm returns 1 if all queues of the set may be slept on, else 0.
int lf_arm(struct lf_set *s);

struct lf_set *lf_set_new(void);
int lf_set_add(struct lf_set *s, struct lf_ep *e);
void lf_set_remove(struct lf_set *s, struct lf_ep *e);
void lf_set_free(struct lf_set *s);

// lf_ctl is an endpoint for small messages to and from any others of its kind.
struct lf_ctl;
int lf_ctl_open(struct lf_dev *d, struct lf_ctl **out, int *fd);
int lf_ctl_close(struct lf_ctl *c);
int lf_ctl_name(struct lf_ctl *c, uint8_t *out, uint32_t max);
int lf_ctl_peer(struct lf_ctl *c, const uint8_t *name, uint32_t len, uint64_t *addr);
void lf_ctl_forget(struct lf_ctl *c, uint64_t addr);
// lf_ctl_send returns -FI_EAGAIN while there is no room.
int lf_ctl_send(struct lf_ctl *c, uint64_t addr, const uint8_t *msg, uint32_t len);
// lf_ctl_sending returns how many messages need lf_ctl_recv to be moved on.
int lf_ctl_sending(const struct lf_ctl *c);
// lf_ctl_recv copies the next message to out and returns its length, 0: there is none.
int lf_ctl_recv(struct lf_ctl *c, uint8_t *out, uint32_t max);
// lf_ctl_arm returns 1 if the descriptor may be slept on.
int lf_ctl_arm(struct lf_ctl *c);

#endif
