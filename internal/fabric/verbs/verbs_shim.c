//go:build verbs && cgo && linux

#include "verbs_shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int vs_failed(void) { return errno > 0 ? -errno : -EIO; }

int vs_code(int rc)
{
	// Some providers return the negative of an errno, and leave errno as it was.
	if (rc == 0 || rc < -1)
		return rc;
	return rc > 0 ? -rc : vs_failed();
}

int vs_alloc_pd(struct ibv_context *ctx, struct ibv_pd **pd)
{
	errno = 0;
	*pd = ibv_alloc_pd(ctx);
	return *pd ? 0 : vs_failed();
}

int vs_reg_mr(struct ibv_pd *pd, void *addr, uint64_t len, int remote_write, int remote_read, int remote_atomic, struct ibv_mr **mr)
{
	int access = IBV_ACCESS_LOCAL_WRITE;
	if (remote_write)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (remote_read)
		access |= IBV_ACCESS_REMOTE_READ;
	if (remote_atomic)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	errno = 0;
	*mr = ibv_reg_mr(pd, addr, len, access);
	return *mr ? 0 : vs_failed();
}

int vs_create_channel(struct ibv_context *ctx, struct ibv_comp_channel **ch)
{
	errno = 0;
	*ch = ibv_create_comp_channel(ctx);
	if (!*ch)
		return vs_failed();
	int rc = vs_nonblocking((*ch)->fd);
	if (rc && !ibv_destroy_comp_channel(*ch))
		*ch = NULL; // vs_ctl_close would destroy it once more
	return rc;
}

int vs_create_cq(struct ibv_context *ctx, int depth, struct ibv_comp_channel *ch, int vector, struct ibv_cq **cq)
{
	errno = 0;
	*cq = ibv_create_cq(ctx, depth, NULL, ch, vector);
	return *cq ? 0 : vs_failed();
}

int vs_resize_cq(struct ibv_cq *cq, int depth)
{
	errno = 0;
	return vs_code(ibv_resize_cq(cq, depth));
}

int vs_poll(struct ibv_cq *cq, struct vs_wc *out, int max)
{
	struct ibv_wc wc[64];
	int total = 0;
	while (total < max) {
		int want = max - total < 64 ? max - total : 64;
		int n = ibv_poll_cq(cq, want, wc);
		if (n < 0)
			return total ? total : -EIO;
		for (int i = 0; i < n; i++) {
			struct vs_wc *o = &out[total++];
			o->id = wc[i].wr_id;
			o->status = wc[i].status;
			o->opcode = wc[i].opcode;
			o->vendor = wc[i].vendor_err;
			o->len = wc[i].byte_len;
			o->imm = ntohl(wc[i].imm_data);
		}
		if (n < want)
			break;
	}
	return total;
}

int vs_arm(struct ibv_cq *cq, int notify, struct vs_wc *out, int max)
{
	if (notify) {
		int rc = vs_code(ibv_req_notify_cq(cq, 0));
		if (rc)
			return rc;
	}
	return vs_poll(cq, out, max);
}

int vs_cq_event(struct ibv_comp_channel *ch)
{
	struct ibv_cq *cq;
	void *context;
	errno = 0;
	if (ibv_get_cq_event(ch, &cq, &context))
		return errno == EAGAIN ? 0 : vs_failed();
	return 1;
}

int vs_create_qp(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t sends, uint32_t recvs, uint32_t max_inline, struct vs_qp **out)
{
	struct vs_qp *q = calloc(1, sizeof *q);
	if (!q)
		return -ENOMEM;
	q->sends = sends;
	q->recvs = recvs;
	q->swr = calloc(sends, sizeof *q->swr);
	q->ssge = calloc(sends, sizeof *q->ssge);
	q->rwr = calloc(recvs, sizeof *q->rwr);
	q->rsge = calloc(recvs, sizeof *q->rsge);
	int rc = -ENOMEM;
	if (q->swr && q->ssge && q->rwr && q->rsge) {
		struct ibv_qp_init_attr a;
		memset(&a, 0, sizeof a);
		a.send_cq = a.recv_cq = cq;
		a.qp_type = IBV_QPT_RC;
		a.cap.max_send_wr = sends;
		a.cap.max_recv_wr = recvs;
		a.cap.max_send_sge = a.cap.max_recv_sge = 1;
		a.cap.max_inline_data = max_inline;
		errno = 0;
		q->qp = ibv_create_qp(pd, &a);
		rc = q->qp ? 0 : vs_failed();
		q->max_inline = a.cap.max_inline_data;
	}
	if (rc) {
		vs_destroy_qp(q);
		return rc;
	}
	*out = q;
	return 0;
}

int vs_destroy_qp(struct vs_qp *q)
{
	int rc = q->qp ? vs_code(ibv_destroy_qp(q->qp)) : 0;
	if (rc)
		return rc;
	free(q->swr);
	free(q->ssge);
	free(q->rwr);
	free(q->rsge);
	free(q);
	return 0;
}

int vs_to_init(struct vs_qp *q, int port, int pkey_index, int atomics)
{
	struct ibv_qp_attr a;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_INIT;
	a.port_num = (uint8_t)port;
	a.pkey_index = (uint16_t)pkey_index;
	a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (atomics)
		a.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
	return vs_code(ibv_modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
}

void vs_ah_attr(const struct vs_path *p, struct ibv_ah_attr *a)
{
	memset(a, 0, sizeof *a);
	a->port_num = p->port;
	a->dlid = p->dlid;
	a->sl = p->sl;
	a->is_global = p->is_global;
	if (p->is_global) {
		memcpy(a->grh.dgid.raw, p->gid, sizeof p->gid);
		a->grh.sgid_index = p->sgid_index;
		a->grh.traffic_class = p->traffic_class;
		a->grh.hop_limit = p->hop_limit;
	}
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	enum ibv_mtu m = IBV_MTU_256;
	while (m < IBV_MTU_4096 && (256u << m) <= bytes)
		m++;
	return m;
}

int vs_to_rtr(struct vs_qp *q, const struct vs_link *l)
{
	struct ibv_qp_attr a;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTR;
	vs_ah_attr(&l->path, &a.ah_attr);
	a.path_mtu = mtu_code(l->mtu);
	a.dest_qp_num = l->dest_qpn;
	a.rq_psn = l->rq_psn;
	a.max_dest_rd_atomic = l->max_dest_rd;
	a.min_rnr_timer = l->min_rnr_timer;
	return vs_code(ibv_modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

int vs_to_rts(struct vs_qp *q, const struct vs_link *l)
{
	struct ibv_qp_attr a;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = l->sq_psn;
	a.timeout = l->timeout;
	a.retry_cnt = l->retry;
	a.rnr_retry = l->rnr_retry;
	a.max_rd_atomic = l->max_rd;
	return vs_code(ibv_modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC));
}

int vs_query_qp(struct vs_qp *q, struct vs_attr *out)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr made;
	memset(&a, 0, sizeof a);
	memset(&made, 0, sizeof made);
	memset(out, 0, sizeof *out);
	int rc = vs_code(ibv_query_qp(q->qp, &a,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_PATH_MIG_STATE | IBV_QP_CAP, &made));
	if (rc)
		return rc;
	out->state = a.qp_state;
	out->port = a.port_num;
	out->pkey_index = a.pkey_index;
	out->access = a.qp_access_flags;
	out->mtu = a.path_mtu ? 128u << a.path_mtu : 0;
	out->dest_qpn = a.dest_qp_num;
	out->rq_psn = a.rq_psn;
	out->sq_psn = a.sq_psn;
	out->max_dest_rd = a.max_dest_rd_atomic;
	out->max_rd = a.max_rd_atomic;
	out->min_rnr_timer = a.min_rnr_timer;
	out->timeout = a.timeout;
	out->retry = a.retry_cnt;
	out->rnr_retry = a.rnr_retry;
	out->migration = a.path_mig_state;
	out->path.dlid = a.ah_attr.dlid;
	out->path.port = a.ah_attr.port_num;
	out->path.sl = a.ah_attr.sl;
	out->path.is_global = a.ah_attr.is_global;
	out->src_path_bits = a.ah_attr.src_path_bits;
	out->static_rate = a.ah_attr.static_rate;
	memcpy(out->path.gid, a.ah_attr.grh.dgid.raw, sizeof out->path.gid);
	out->path.sgid_index = a.ah_attr.grh.sgid_index;
	out->path.traffic_class = a.ah_attr.grh.traffic_class;
	out->path.hop_limit = a.ah_attr.grh.hop_limit;
	out->flow_label = a.ah_attr.grh.flow_label;
	out->max_send_wr = made.cap.max_send_wr;
	out->max_recv_wr = made.cap.max_recv_wr;
	out->max_send_sge = made.cap.max_send_sge;
	out->max_recv_sge = made.cap.max_recv_sge;
	out->max_inline = made.cap.max_inline_data;
	out->sq_sig_all = made.sq_sig_all != 0;
	return 0;
}

int vs_to_err(struct vs_qp *q)
{
	struct ibv_qp_attr a;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_ERR;
	return vs_code(ibv_modify_qp(q->qp, &a, IBV_QP_STATE));
}

static const enum ibv_wr_opcode opcodes[] = {
	[VS_WRITE] = IBV_WR_RDMA_WRITE,
	[VS_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[VS_READ] = IBV_WR_RDMA_READ,
	[VS_SEND] = IBV_WR_SEND,
	[VS_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
	[VS_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
};

int vs_post_send(struct vs_qp *q, const struct vs_send *wrs, int n, int *posted)
{
	*posted = 0;
	if (n <= 0 || (uint32_t)n > q->sends)
		return n ? -EINVAL : 0;
	for (int i = 0; i < n; i++) {
		const struct vs_send *s = &wrs[i];
		struct ibv_send_wr *w = &q->swr[i];
		struct ibv_sge *g = &q->ssge[i];
		g->addr = s->addr;
		g->length = s->len;
		g->lkey = s->lkey;
		w->wr_id = s->id;
		w->next = i + 1 < n ? w + 1 : NULL;
		w->sg_list = g;
		w->num_sge = s->len > 0;
		w->opcode = opcodes[s->op];
		w->send_flags = (s->flags & VS_SIGNALED ? IBV_SEND_SIGNALED : 0u) | (s->flags & VS_INLINE ? IBV_SEND_INLINE : 0u);
		w->imm_data = htonl(s->imm);
		if (s->op == VS_CAS || s->op == VS_ADD) {
			w->wr.atomic.remote_addr = s->remote;
			w->wr.atomic.rkey = s->rkey;
			// Fetch-and-add takes its operand where compare-and-swap takes what
			// to compare with.
			w->wr.atomic.compare_add = s->op == VS_ADD ? s->swap : s->compare;
			w->wr.atomic.swap = s->swap;
		} else {
			w->wr.rdma.remote_addr = s->remote;
			w->wr.rdma.rkey = s->rkey;
		}
	}
	struct ibv_send_wr *bad = NULL;
	errno = 0;
	int rc = vs_code(ibv_post_send(q->qp, q->swr, &bad));
	*posted = rc ? (bad ? (int)(bad - q->swr) : 0) : n;
	return rc;
}

int vs_post_recv(struct vs_qp *q, const struct vs_recv *wrs, int n, int *posted)
{
	*posted = 0;
	if (n <= 0 || (uint32_t)n > q->recvs)
		return n ? -EINVAL : 0;
	for (int i = 0; i < n; i++) {
		const struct vs_recv *r = &wrs[i];
		struct ibv_recv_wr *w = &q->rwr[i];
		struct ibv_sge *g = &q->rsge[i];
		g->addr = r->addr;
		g->length = r->len;
		g->lkey = r->lkey;
		w->wr_id = r->id;
		w->next = i + 1 < n ? w + 1 : NULL;
		w->sg_list = g;
		w->num_sge = r->len > 0;
	}
	struct ibv_recv_wr *bad = NULL;
	errno = 0;
	int rc = vs_code(ibv_post_recv(q->qp, q->rwr, &bad));
	*posted = rc ? (bad ? (int)(bad - q->rwr) : 0) : n;
	return rc;
}
