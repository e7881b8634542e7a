//go:build verbs && cgo && linux

#include "verbs_shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// Datagrams. A receive buffer starts with the 40 bytes of the global route header.
enum { CTL_RECVS = 128, CTL_SENDS = 32, CTL_GRH = 40, CTL_SLOT = 128 };

struct vs_ctl {
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem;
	unsigned events;
	int sending, next;
	int port, pkey_index;
	uint32_t qkey;
	// broken: the queue pair is in its error state, as a message could not be
	// sent. A port that is down for a moment is enough.
	int broken;
};

static int ctl_post(struct vs_ctl *c, uint64_t slot)
{
	struct ibv_sge g = { .addr = (uintptr_t)(c->mem + slot * CTL_SLOT), .length = CTL_SLOT, .lkey = c->mr->lkey };
	struct ibv_recv_wr w = { .wr_id = slot, .sg_list = &g, .num_sge = 1 }, *bad;
	return vs_code(ibv_post_recv(c->qp, &w, &bad));
}

// ctl_start brings the queue pair from RESET to the state in which it sends.
static int ctl_start(struct vs_ctl *c)
{
	struct ibv_qp_attr a;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_INIT;
	a.port_num = (uint8_t)c->port;
	a.pkey_index = (uint16_t)c->pkey_index;
	a.qkey = c->qkey;
	int rc = vs_code(ibv_modify_qp(c->qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY));
	for (uint64_t i = 0; !rc && i < CTL_RECVS; i++)
		rc = ctl_post(c, i);
	a.qp_state = IBV_QPS_RTR;
	if (!rc)
		rc = vs_code(ibv_modify_qp(c->qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	if (!rc)
		rc = vs_code(ibv_modify_qp(c->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	if (!rc)
		rc = vs_code(ibv_req_notify_cq(c->cq, 0));
	return rc;
}

// ctl_restart makes a broken queue pair work again, under the same number. What it
// had received and sent is lost; messages are repeated.
static int ctl_restart(struct vs_ctl *c)
{
	struct ibv_qp_attr a;
	struct ibv_wc wc;
	int n;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RESET;
	int rc = vs_code(ibv_modify_qp(c->qp, &a, IBV_QP_STATE));
	if (rc)
		return rc;
	while ((n = ibv_poll_cq(c->cq, 1, &wc)) > 0)
		;
	if (n < 0)
		return -EIO;
	c->sending = c->next = 0;
	rc = ctl_start(c);
	c->broken = rc != 0;
	return rc;
}

int vs_ctl_open(struct ibv_context *ctx, int port, int pkey_index, uint32_t qkey, struct vs_ctl **out, uint32_t *qpn, int *fd)
{
	struct vs_ctl *c = calloc(1, sizeof *c);
	if (!c)
		return -ENOMEM;
	c->port = port;
	c->pkey_index = pkey_index;
	c->qkey = qkey;
	size_t size = (size_t)(CTL_RECVS + CTL_SENDS) * CTL_SLOT;
	int rc = -posix_memalign((void **)&c->mem, 4096, size);
	if (!rc) {
		memset(c->mem, 0, size);
		rc = vs_alloc_pd(ctx, &c->pd);
	}
	if (!rc)
		rc = vs_reg_mr(c->pd, c->mem, size, 0, 0, 0, &c->mr);
	if (!rc)
		rc = vs_create_channel(ctx, &c->ch);
	if (!rc)
		rc = vs_create_cq(ctx, CTL_RECVS + CTL_SENDS, c->ch, 0, &c->cq);
	if (!rc) {
		struct ibv_qp_init_attr a;
		memset(&a, 0, sizeof a);
		a.qp_type = IBV_QPT_UD;
		a.send_cq = a.recv_cq = c->cq;
		a.cap.max_send_wr = CTL_SENDS;
		a.cap.max_recv_wr = CTL_RECVS;
		a.cap.max_send_sge = a.cap.max_recv_sge = 1;
		a.sq_sig_all = 1;
		errno = 0;
		c->qp = ibv_create_qp(c->pd, &a);
		rc = c->qp ? ctl_start(c) : vs_failed();
	}
	if (rc) {
		vs_ctl_close(c);
		return rc;
	}
	*out = c;
	*qpn = c->qp->qp_num;
	*fd = c->ch->fd;
	return 0;
}

int vs_ctl_close(struct vs_ctl *c)
{
	int first = 0, rc = 0;
	if (c->qp && (rc = vs_code(ibv_destroy_qp(c->qp))) && !first)
		first = rc;
	if (c->cq) {
		ibv_ack_cq_events(c->cq, c->events);
		if ((rc = vs_code(ibv_destroy_cq(c->cq))) && !first)
			first = rc;
	}
	if (c->ch && (rc = vs_code(ibv_destroy_comp_channel(c->ch))) && !first)
		first = rc;
	if (c->mr && (rc = vs_code(ibv_dereg_mr(c->mr))) && !first)
		first = rc;
	if (c->pd && (rc = vs_code(ibv_dealloc_pd(c->pd))) && !first)
		first = rc;
	// Memory that the device may still write to must stay.
	if (!first)
		free(c->mem);
	free(c);
	return first;
}

int vs_ctl_ah(struct vs_ctl *c, const struct vs_path *p, struct ibv_ah **ah)
{
	struct ibv_ah_attr a;
	vs_ah_attr(p, &a);
	errno = 0;
	*ah = ibv_create_ah(c->pd, &a);
	return *ah ? 0 : vs_failed();
}

int vs_ctl_send(struct vs_ctl *c, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, const void *msg, uint32_t len)
{
	int rc = c->broken ? ctl_restart(c) : 0;
	if (rc)
		return rc;
	if (c->sending == CTL_SENDS)
		return -EAGAIN;
	if (len > CTL_SLOT)
		return -EMSGSIZE;
	uint64_t slot = (uint64_t)(CTL_RECVS + c->next);
	uint8_t *mem = c->mem + slot * CTL_SLOT;
	memcpy(mem, msg, len);
	struct ibv_sge g = { .addr = (uintptr_t)mem, .length = len, .lkey = c->mr->lkey };
	struct ibv_send_wr w = { .wr_id = slot, .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	w.wr.ud.ah = ah;
	w.wr.ud.remote_qpn = qpn;
	w.wr.ud.remote_qkey = qkey;
	rc = vs_code(ibv_post_send(c->qp, &w, &bad));
	if (!rc) {
		c->sending++;
		c->next = (c->next + 1) % CTL_SENDS;
	}
	return rc;
}

int vs_ctl_recv(struct vs_ctl *c, void *out, uint32_t max)
{
	struct ibv_wc wc;
	memset(out, 0, 1);
	for (;;) {
		int n = ibv_poll_cq(c->cq, 1, &wc);
		if (n < 0)
			return -EIO;
		if (n == 0) {
			// What fails now is tried again at the next message, or event: nobody would listen after an error.
			if (c->broken)
				(void)ctl_restart(c);
			return 0;
		}
		if (wc.wr_id >= CTL_RECVS)
			c->sending--;
		if (wc.status != IBV_WC_SUCCESS)
			c->broken = 1;
		if (wc.status != IBV_WC_SUCCESS || wc.wr_id >= CTL_RECVS)
			continue;
		uint32_t len = 0;
		if (wc.byte_len > CTL_GRH && wc.byte_len - CTL_GRH <= max) {
			len = wc.byte_len - CTL_GRH;
			memcpy(out, c->mem + wc.wr_id * CTL_SLOT + CTL_GRH, len);
		}
		if (ctl_post(c, wc.wr_id))
			c->broken = 1; // until it can be made anew, others take what comes
		// Strangers may send for ever: what is no message is one as well, of one byte.
		return len ? (int)len : 1;
	}
}

int vs_ctl_rearm(struct vs_ctl *c)
{
	int n;
	while ((n = vs_cq_event(c->ch)) > 0) {
		// Acknowledging takes a lock: many at a time, and the rest at the end.
		if (++c->events == 64) {
			ibv_ack_cq_events(c->cq, c->events);
			c->events = 0;
		}
	}
	return n ? n : vs_code(ibv_req_notify_cq(c->cq, 0));
}
