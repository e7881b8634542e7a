// What endpoints for data (lf_ep.c) and those for what nodes say to each other before (lf_ctl.c) are made of.
#ifndef RDMAD_LIBFABRIC_PARTS_H
#define RDMAD_LIBFABRIC_PARTS_H

#include "lf_shim.h"

// lf_make makes an endpoint and its queues. It also closes the gate of what listens, of which it sets listener.
int lf_make(struct lf_pd *p, int wait, size_t depth, struct fid_cq **cq, struct fid_av **av, struct fid_eq **eq, struct fid_ep **ep, int32_t *listener);
// lf_unmake closes the endpoint first: from then on nothing of it is under way. Each may be NULL.
int lf_unmake(struct fid_cq *cq, struct fid_av *av, struct fid_eq *eq, struct fid_ep *ep);
int lf_shut(struct fid *f);
int lf_name_of(struct fid_ep *ep, uint8_t *out, uint32_t max);
// lf_insert makes an address of a name of len bytes.
int lf_insert(struct fid_av *av, const uint8_t *name, uint32_t len, fi_addr_t *out);
// lf_needs reports whether the provider asks for a mode of registration, and lf_reg registers memory.
int lf_needs(const struct lf_pd *p, int mode);
int lf_reg(struct lf_pd *p, void *addr, uint64_t len, uint64_t access, uint64_t key, struct fid_mr **mr);

#endif
