// The C side of connections by librdmacm; see verbs_shim.h for the conventions. The
// queue pairs are the provider's own, librdmacm only negotiates.
#ifndef RDMAD_VERBS_CM_H
#define RDMAD_VERBS_CM_H

#include "verbs_shim.h"

#include <rdma/rdma_cma.h>

enum { VS_CM_PRIVATE = 40 };

// vs_cm_address is an IP address, IPv4 mapped to IPv6, and a port.
struct vs_cm_address {
	uint8_t ip[16];
	uint16_t port;
};

// vs_cm_offer is what one side proposes to the other.
struct vs_cm_offer {
	uint8_t private_data[VS_CM_PRIVATE];
	uint32_t qpn;
	uint8_t responder, initiator, retry, rnr_retry;
};

struct vs_cm_event {
	struct rdma_cm_id *id;
	uint32_t type;
	int32_t status;
	uint8_t private_data[VS_CM_PRIVATE];
};

int vs_cm_open(struct rdma_event_channel **ch, int *fd);
int vs_cm_create(struct rdma_event_channel *ch, int traffic_class, struct rdma_cm_id **id);
int vs_cm_bind(struct rdma_cm_id *id, const struct vs_cm_address *a);
int vs_cm_listen(struct rdma_cm_id *id, int backlog, uint16_t *port);
// vs_cm_device tells the device and port that the id is bound to.
int vs_cm_device(struct rdma_cm_id *id, char name[VS_NAME], int *port);
int vs_cm_resolve(struct rdma_cm_id *id, const struct vs_cm_address *from, const struct vs_cm_address *to, int timeout_ms);
int vs_cm_route(struct rdma_cm_id *id, int timeout_ms);
int vs_cm_connect(struct rdma_cm_id *id, const struct vs_cm_offer *o);
int vs_cm_accept(struct rdma_cm_id *id, const struct vs_cm_offer *o);
// vs_cm_ready takes the queue pair to RTS, to the peer that the id has negotiated
// with; of l only what librdmacm leaves open is used.
int vs_cm_ready(struct rdma_cm_id *id, struct vs_qp *q, const struct vs_link *l);
int vs_cm_establish(struct rdma_cm_id *id);
int vs_cm_disconnect(struct rdma_cm_id *id);
int vs_cm_reject(struct rdma_cm_id *id);
int vs_cm_destroy(struct rdma_cm_id *id);
// vs_cm_next takes and acknowledges an event and returns 1, or 0 if there is none.
int vs_cm_next(struct rdma_event_channel *ch, struct vs_cm_event *out);

#endif
