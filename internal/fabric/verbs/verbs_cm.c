//go:build verbs && cgo && linux

#include "verbs_cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

// result makes a negative errno of librdmacm's -1 with errno.
static int result(int rc)
{
	if (rc >= 0)
		return 0;
	return errno > 0 ? -errno : -EIO;
}

static void to_sockaddr(const struct vs_cm_address *a, struct sockaddr_storage *out)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	memset(out, 0, sizeof *out);
	if (!memcmp(a->ip, mapped, sizeof mapped)) {
		struct sockaddr_in *s = (struct sockaddr_in *)out;
		s->sin_family = AF_INET;
		s->sin_port = htons(a->port);
		memcpy(&s->sin_addr, a->ip + 12, 4);
		return;
	}
	struct sockaddr_in6 *s = (struct sockaddr_in6 *)out;
	s->sin6_family = AF_INET6;
	s->sin6_port = htons(a->port);
	memcpy(&s->sin6_addr, a->ip, 16);
}

int vs_cm_open(struct rdma_event_channel **ch, int *fd)
{
	errno = 0;
	*ch = rdma_create_event_channel();
	if (!*ch)
		return result(-1);
	*fd = (*ch)->fd;
	int rc = vs_nonblocking(*fd);
	if (rc)
		rdma_destroy_event_channel(*ch);
	return rc;
}

int vs_cm_create(struct rdma_event_channel *ch, int traffic_class, struct rdma_cm_id **id)
{
	int rc = result(rdma_create_id(ch, id, NULL, RDMA_PS_TCP));
	if (rc || !traffic_class)
		return rc;
	uint8_t tos = (uint8_t)traffic_class;
	rc = result(rdma_set_option(*id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos));
	if (rc)
		rdma_destroy_id(*id);
	return rc;
}

int vs_cm_bind(struct rdma_cm_id *id, const struct vs_cm_address *a)
{
	struct sockaddr_storage s;
	to_sockaddr(a, &s);
	return result(rdma_bind_addr(id, (struct sockaddr *)&s));
}

int vs_cm_listen(struct rdma_cm_id *id, int backlog, uint16_t *port)
{
	int rc = result(rdma_listen(id, backlog));
	*port = ntohs(rdma_get_src_port(id));
	return rc;
}

int vs_cm_device(struct rdma_cm_id *id, char name[VS_NAME], int *port)
{
	if (!id->verbs)
		return -ENODEV;
	snprintf(name, VS_NAME, "%s", ibv_get_device_name(id->verbs->device));
	*port = id->port_num;
	return 0;
}

int vs_cm_resolve(struct rdma_cm_id *id, const struct vs_cm_address *from, const struct vs_cm_address *to, int timeout_ms)
{
	struct sockaddr_storage s, d;
	to_sockaddr(from, &s);
	to_sockaddr(to, &d);
	return result(rdma_resolve_addr(id, (struct sockaddr *)&s, (struct sockaddr *)&d, timeout_ms));
}

int vs_cm_route(struct rdma_cm_id *id, int timeout_ms) { return result(rdma_resolve_route(id, timeout_ms)); }

int vs_cm_establish(struct rdma_cm_id *id) { return result(rdma_establish(id)); }

int vs_cm_disconnect(struct rdma_cm_id *id) { return result(rdma_disconnect(id)); }

int vs_cm_reject(struct rdma_cm_id *id) { return result(rdma_reject(id, NULL, 0)); }

int vs_cm_destroy(struct rdma_cm_id *id) { return result(rdma_destroy_id(id)); }

static struct rdma_conn_param param(const struct vs_cm_offer *o)
{
	struct rdma_conn_param p = {
		.private_data = o->private_data,
		.private_data_len = sizeof o->private_data,
		.responder_resources = o->responder,
		.initiator_depth = o->initiator,
		.retry_count = o->retry,
		.rnr_retry_count = o->rnr_retry,
		.qp_num = o->qpn,
	};
	return p;
}

int vs_cm_connect(struct rdma_cm_id *id, const struct vs_cm_offer *o)
{
	struct rdma_conn_param p = param(o);
	return result(rdma_connect(id, &p));
}

int vs_cm_accept(struct rdma_cm_id *id, const struct vs_cm_offer *o)
{
	struct rdma_conn_param p = param(o);
	return result(rdma_accept(id, &p));
}

int vs_cm_ready(struct rdma_cm_id *id, struct vs_qp *q, const struct vs_link *l)
{
	struct ibv_qp_attr a;
	int mask = 0;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTR;
	int rc = result(rdma_init_qp_attr(id, &a, &mask));
	if (rc)
		return rc;
	struct vs_link have = *l;
	have.dest_qpn = a.dest_qp_num;
	have.rq_psn = a.rq_psn;
	a.path_mtu = IBV_MTU_256;
	while (a.path_mtu < IBV_MTU_4096 && (256u << a.path_mtu) <= l->mtu)
		a.path_mtu++;
	a.max_dest_rd_atomic = l->max_dest_rd;
	a.min_rnr_timer = l->min_rnr_timer;
	if (a.ah_attr.is_global) {
		if (l->path.traffic_class)
			a.ah_attr.grh.traffic_class = l->path.traffic_class;
		a.ah_attr.grh.hop_limit = l->path.hop_limit;
	}
	// 0 is not to take the place of what the subnet's manager, or the system's default (default_roce_tos), has for the path.
	if (l->path.sl)
		a.ah_attr.sl = l->path.sl;
	rc = vs_code(ibv_modify_qp(q->qp, &a, mask | IBV_QP_MIN_RNR_TIMER));
	if (rc)
		return rc;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTS;
	rc = result(rdma_init_qp_attr(id, &a, &mask));
	if (rc)
		return rc;
	have.sq_psn = a.sq_psn;
	return vs_to_rts(q, &have);
}

int vs_cm_next(struct rdma_event_channel *ch, struct vs_cm_event *out)
{
	struct rdma_cm_event *e;
	errno = 0;
	if (rdma_get_cm_event(ch, &e))
		return errno == EAGAIN ? 0 : result(-1);
	memset(out, 0, sizeof *out);
	out->id = e->id;
	out->type = e->event;
	out->status = e->status;
	// What the peer sent may be padded to the size of the message.
	if (e->param.conn.private_data && e->param.conn.private_data_len >= VS_CM_PRIVATE)
		memcpy(out->private_data, e->param.conn.private_data, VS_CM_PRIVATE);
	int rc = result(rdma_ack_cm_event(e));
	return rc ? rc : 1;
}
