//go:build verbs && cgo && linux

#include "verbs_shim.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What devices and their ports are, and what they tell by themselves.

int vs_fork_init(void)
{
	// Old kernels need to be told which pages a child must not share, and then
	// the library has to look up how large they are.
	setenv("RDMAV_HUGEPAGES_SAFE", "1", 0);
	return vs_code(ibv_fork_init());
}

static void name_of(struct ibv_device *d, struct vs_name *out)
{
	memset(out, 0, sizeof *out);
	snprintf(out->name, sizeof out->name, "%s", ibv_get_device_name(d));
	snprintf(out->node, sizeof out->node, "/dev/infiniband/%.40s", d->dev_name);
}

int vs_list(struct vs_name *names, int max)
{
	int n = 0;
	errno = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (!list)
		return vs_failed();
	for (int i = 0; i < n && i < max; i++)
		name_of(list[i], &names[i]);
	ibv_free_device_list(list);
	return n < max ? n : max;
}

int vs_open(const char *name, struct ibv_context **ctx)
{
	int n = 0, rc = -ENODEV;
	errno = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (!list)
		return vs_failed();
	for (int i = 0; i < n; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		errno = 0;
		*ctx = ibv_open_device(list[i]);
		rc = *ctx ? 0 : vs_failed();
		break;
	}
	ibv_free_device_list(list);
	return rc;
}

int vs_query_device(struct ibv_context *ctx, struct vs_limits *out)
{
	struct ibv_device_attr a;
	int rc = vs_code(ibv_query_device(ctx, &a));
	if (rc)
		return rc;
	memset(out, 0, sizeof *out);
	out->guid = be64toh(a.node_guid);
	snprintf(out->firmware, sizeof out->firmware, "%.60s", a.fw_ver);
	out->max_mr_size = a.max_mr_size;
	out->max_qp = a.max_qp;
	out->max_qp_wr = a.max_qp_wr;
	out->max_sge = a.max_sge;
	out->max_cq = a.max_cq;
	out->max_cqe = a.max_cqe;
	out->max_mr = a.max_mr;
	out->max_pd = a.max_pd;
	out->max_rd_atom = a.max_qp_rd_atom;
	out->max_init_rd_atom = a.max_qp_init_rd_atom;
	out->ports = a.phys_port_cnt;
	out->atomic = a.atomic_cap != IBV_ATOMIC_NONE;
	out->atomic_global = a.atomic_cap == IBV_ATOMIC_GLOB;
	return 0;
}

static int mtu_bytes(enum ibv_mtu m) { return m >= IBV_MTU_256 && m <= IBV_MTU_4096 ? 128 << m : 0; }

int vs_query_port(struct ibv_context *ctx, int port, struct vs_port *out)
{
	struct ibv_port_attr a;
	memset(&a, 0, sizeof a);
	int rc = vs_code(ibv_query_port(ctx, port, &a));
	if (rc)
		return rc;
	out->max_msg = a.max_msg_sz;
	out->state = a.state;
	out->link_layer = a.link_layer;
	out->max_mtu = mtu_bytes(a.max_mtu);
	out->active_mtu = mtu_bytes(a.active_mtu);
	out->lid = a.lid;
	out->gids = a.gid_tbl_len;
	out->pkeys = a.pkey_tbl_len;
	out->grh_required = (a.flags & IBV_QPF_GRH_REQUIRED) != 0;
	return 0;
}

int vs_query_gids(struct ibv_context *ctx, struct vs_gid *out, int max)
{
	struct ibv_gid_entry e[VS_MAX_GIDS];
	memset(e, 0, sizeof e);
	ssize_t n = ibv_query_gid_table(ctx, e, VS_MAX_GIDS, 0);
	if (n < 0)
		return (int)n;
	if (n > max)
		n = max;
	for (ssize_t i = 0; i < n; i++) {
		struct vs_gid *g = &out[i];
		memset(g, 0, sizeof *g);
		memcpy(g->gid, e[i].gid.raw, sizeof g->gid);
		g->index = e[i].gid_index;
		g->port = e[i].port_num;
		g->type = e[i].gid_type;
		char dev[IF_NAMESIZE];
		if (e[i].ndev_ifindex && if_indextoname(e[i].ndev_ifindex, dev))
			snprintf(g->netdev, sizeof g->netdev, "%s", dev);
	}
	return (int)n;
}

int vs_query_pkey(struct ibv_context *ctx, int port, int index, uint16_t *pkey)
{
	__be16 k = 0;
	errno = 0;
	int rc = vs_code(ibv_query_pkey(ctx, (uint8_t)port, index, &k));
	*pkey = ntohs(k);
	return rc;
}

int vs_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return vs_failed();
	return 0;
}

int vs_async(struct ibv_context *ctx, struct vs_event *out)
{
	struct ibv_async_event e;
	errno = 0;
	if (ibv_get_async_event(ctx, &e))
		return errno == EAGAIN ? 0 : vs_failed();
	out->type = e.event_type;
	switch (e.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		out->element = e.element.qp->qp_num;
		break;
	case IBV_EVENT_CQ_ERR:
		out->element = (uint64_t)(uintptr_t)e.element.cq;
		break;
	default:
		out->element = (uint64_t)(uint32_t)e.element.port_num;
	}
	ibv_ack_async_event(&e);
	return 1;
}
