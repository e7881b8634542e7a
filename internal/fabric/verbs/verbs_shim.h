// The C side of the verbs provider: what cgo cannot reach (static inline functions
// and unions) or should reach once for a whole list. Structures hold plain numbers,
// no pointers, so that Go memory can be passed without copies. Nothing keeps a
// pointer to Go memory after it has returned, except ibv_reg_mr, whose memory the
// caller keeps in place. Functions return 0 or a count, or a negative errno.
#ifndef RDMAD_VERBS_SHIM_H
#define RDMAD_VERBS_SHIM_H

#include <infiniband/verbs.h>
#include <stdint.h>

enum { VS_NAME = 64, VS_MAX_DEVICES = 256, VS_MAX_GIDS = 1024 };

struct vs_name {
	char name[VS_NAME];
	char node[VS_NAME];
};

struct vs_limits {
	uint64_t guid, max_mr_size;
	char firmware[VS_NAME];
	int32_t max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_pd;
	int32_t max_rd_atom, max_init_rd_atom, ports;
	int32_t atomic, atomic_global;
};

struct vs_port {
	uint32_t max_msg;
	int32_t state, link_layer, max_mtu, active_mtu, lid, gids, pkeys;
	int32_t grh_required; // 1: no packets without a global route header
};

struct vs_gid {
	uint8_t gid[16];
	uint32_t index, port, type;
	char netdev[VS_NAME];
};

// vs_path is the way to a peer, for a queue pair or an address handle.
struct vs_path {
	uint8_t gid[16];
	uint16_t dlid;
	uint8_t port, sgid_index, is_global, sl, traffic_class, hop_limit;
};

// vs_link is the rest of what connects a queue pair; mtu is in bytes.
struct vs_link {
	struct vs_path path;
	uint32_t mtu, dest_qpn, rq_psn, sq_psn;
	uint8_t max_dest_rd, max_rd, min_rnr_timer, timeout, retry, rnr_retry;
};

// vs_qp is a queue pair with the arrays that its work requests are built in.
struct vs_qp {
	struct ibv_qp *qp;
	uint32_t sends, recvs, max_inline;
	struct ibv_send_wr *swr;
	struct ibv_recv_wr *rwr;
	struct ibv_sge *ssge, *rsge;
};

// vs_attr is what ibv_query_qp tells; mtu is in bytes, path as in vs_path.
struct vs_attr {
	struct vs_path path;
	uint32_t state, mtu, dest_qpn, rq_psn, sq_psn, access, pkey_index;
	uint32_t flow_label, src_path_bits, static_rate, migration;
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
	uint8_t port, max_dest_rd, max_rd, min_rnr_timer, timeout, retry, rnr_retry, sq_sig_all;
};

enum { VS_WRITE = 1, VS_WRITE_IMM, VS_READ, VS_SEND, VS_CAS, VS_ADD };
enum { VS_SIGNALED = 1, VS_INLINE = 2 };

struct vs_send {
	uint64_t id, addr, remote, compare, swap;
	uint32_t len, lkey, rkey, imm;
	uint8_t op, flags;
};

struct vs_recv {
	uint64_t id, addr;
	uint32_t len, lkey;
};

struct vs_wc {
	uint64_t id;
	uint32_t status, opcode, vendor, len, imm;
};

// vs_event is an asynchronous event; element is a queue pair's number, a port's
// number, or the address of a completion queue.
struct vs_event {
	uint64_t element;
	uint32_t type;
};

// vs_failed returns a negative errno, whatever the library left in errno. vs_code makes
// one of a return value that is 0, -1 with errno, or an errno: libibverbs has all of
// them.
int vs_failed(void);
int vs_code(int rc);
void vs_ah_attr(const struct vs_path *p, struct ibv_ah_attr *a);

// vs_fork_init makes registered memory, huge pages too, safe in a process that forks.
int vs_fork_init(void);
int vs_list(struct vs_name *names, int max);
int vs_open(const char *name, struct ibv_context **ctx);
int vs_query_device(struct ibv_context *ctx, struct vs_limits *out);
int vs_query_port(struct ibv_context *ctx, int port, struct vs_port *out);
int vs_query_gids(struct ibv_context *ctx, struct vs_gid *out, int max);
int vs_query_pkey(struct ibv_context *ctx, int port, int index, uint16_t *pkey);
int vs_nonblocking(int fd);
int vs_async(struct ibv_context *ctx, struct vs_event *out);

int vs_alloc_pd(struct ibv_context *ctx, struct ibv_pd **pd);
int vs_reg_mr(struct ibv_pd *pd, void *addr, uint64_t len, int remote_write, int remote_read, int remote_atomic, struct ibv_mr **mr);

int vs_create_channel(struct ibv_context *ctx, struct ibv_comp_channel **ch);
// vs_create_cq makes a queue whose events come by the completion vector of the given number, from 0.
int vs_create_cq(struct ibv_context *ctx, int depth, struct ibv_comp_channel *ch, int vector, struct ibv_cq **cq);
int vs_resize_cq(struct ibv_cq *cq, int depth);
int vs_poll(struct ibv_cq *cq, struct vs_wc *out, int max);
// vs_arm asks for an event at the next completion, if notify is set, and then polls.
int vs_arm(struct ibv_cq *cq, int notify, struct vs_wc *out, int max);
// vs_cq_event takes one event of the channel and returns 1, or 0 if there is none.
int vs_cq_event(struct ibv_comp_channel *ch);

int vs_create_qp(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t sends, uint32_t recvs, uint32_t max_inline, struct vs_qp **out);
int vs_destroy_qp(struct vs_qp *q);
int vs_to_init(struct vs_qp *q, int port, int pkey_index, int atomics);
int vs_to_rtr(struct vs_qp *q, const struct vs_link *l);
int vs_to_rts(struct vs_qp *q, const struct vs_link *l);
int vs_to_err(struct vs_qp *q);
int vs_query_qp(struct vs_qp *q, struct vs_attr *out);
// vs_post_send posts n work requests and sets posted to how many were taken, which
// is all of them if it returns 0.
int vs_post_send(struct vs_qp *q, const struct vs_send *wrs, int n, int *posted);
int vs_post_recv(struct vs_qp *q, const struct vs_recv *wrs, int n, int *posted);

// vs_ctl is an unreliable datagram queue pair for small messages.
struct vs_ctl;
int vs_ctl_open(struct ibv_context *ctx, int port, int pkey_index, uint32_t qkey, struct vs_ctl **out, uint32_t *qpn, int *fd);
int vs_ctl_close(struct vs_ctl *c);
int vs_ctl_ah(struct vs_ctl *c, const struct vs_path *p, struct ibv_ah **ah);
// vs_ctl_send copies msg and sends it. -EAGAIN: too many are on their way.
int vs_ctl_send(struct vs_ctl *c, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, const void *msg, uint32_t len);
// vs_ctl_recv copies the next message of at most max bytes to out and returns its
// length, or 0 if there is none.
int vs_ctl_recv(struct vs_ctl *c, void *out, uint32_t max);
// vs_ctl_rearm takes back all events and asks for the next one.
int vs_ctl_rearm(struct vs_ctl *c);

#endif
