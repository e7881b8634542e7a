//go:build libfabric && cgo && linux

#include "lf_shim.h"

#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIGNALS = 32, MR_MODES = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY };

// Some providers take signals for themselves when the library is first used: shm SIGINT, SIGTERM,
// SIGSEGV and SIGBUS, to unlink its files, psm those of faults, to print where they happened. They do
// so without SA_ONSTACK, which would end a Go program at the first signal. So what is
// installed meanwhile is put back.
static void keep_signals(struct sigaction *before)
{
	for (int s = 1; s < SIGNALS; s++)
		if (sigaction(s, NULL, &before[s]))
			memset(&before[s], 0, sizeof before[s]);
}

static void restore_signals(const struct sigaction *before)
{
	struct sigaction now;
	for (int s = 1; s < SIGNALS; s++)
		if (!sigaction(s, NULL, &now) && (now.sa_handler != before[s].sa_handler || now.sa_flags != before[s].sa_flags))
			sigaction(s, &before[s], NULL);
}

// look returns what a query finds, nothing: -FI_ENODATA.
static int look(const struct lf_query *q, struct fi_info **out)
{
	struct fi_info *hints = fi_allocinfo();
	if (!hints)
		return -FI_ENOMEM;
	if (q->need) {
		hints->ep_attr->type = FI_EP_RDM;
		hints->caps = FI_MSG | FI_TAGGED | FI_RMA | (q->atomics ? FI_ATOMIC : 0);
		hints->domain_attr->mr_mode = MR_MODES;
		hints->domain_attr->threading = FI_THREAD_SAFE;
		hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
		hints->domain_attr->cq_data_size = 4;
		hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
		hints->tx_attr->op_flags = q->delivery ? FI_DELIVERY_COMPLETE : FI_TRANSMIT_COMPLETE;
	} else {
		hints->domain_attr->mr_mode = ~(FI_MR_BASIC | FI_MR_SCALABLE);
	}
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	if (q->provider[0])
		hints->fabric_attr->prov_name = strdup(q->provider);
	if (q->domain[0])
		hints->domain_attr->name = strdup(q->domain);
	int rc = fi_getinfo(FI_VERSION(1, 14), q->node[0] ? q->node : NULL, NULL, q->node[0] ? FI_SOURCE : 0, hints, out);
	fi_freeinfo(hints);
	return rc;
}

static int find(const struct lf_query *q, struct fi_info **out)
{
	struct sigaction before[SIGNALS];
	// Read when the library is first used: an endpoint of rxm gets queues for as many peers. Here it
	// has one, and with the usual 256 some devices cannot make its queues.
	setenv("FI_UNIVERSE_SIZE", "16", 0);
	keep_signals(before);
	int rc = look(q, out);
	restore_signals(before);
	return rc;
}

static void text(char *out, const char *s) { snprintf(out, LF_NAME, "%s", s ? s : ""); }

static void describe(const struct fi_info *i, struct lf_info *o)
{
	memset(o, 0, sizeof *o);
	text(o->provider, i->fabric_attr->prov_name);
	text(o->fabric, i->fabric_attr->name);
	text(o->domain, i->domain_attr->name);
	if (i->src_addr && i->addr_format == FI_ADDR_STR)
		text(o->source, i->src_addr);
	if (i->src_addr && (i->addr_format == FI_SOCKADDR_IN || i->addr_format == FI_SOCKADDR_IN6))
		// Leaves it empty if it fails.
		getnameinfo(i->src_addr, (socklen_t)i->src_addrlen, o->source, LF_NAME, NULL, 0, NI_NUMERICHOST);
	o->caps = i->caps;
	o->mode = i->mode;
	o->max_msg = i->ep_attr->max_msg_size;
	o->order = i->tx_attr->msg_order & i->rx_attr->msg_order;
	o->inject = i->tx_attr->inject_size;
	o->cq_data = i->domain_attr->cq_data_size;
	o->key_size = i->domain_attr->mr_key_size;
	o->mr_mode = (uint64_t)(uint32_t)i->domain_attr->mr_mode;
	o->sends = i->tx_attr->size;
	o->recvs = i->rx_attr->size;
	o->format = i->addr_format;
	o->endpoint = i->ep_attr->type;
	o->version = i->fabric_attr->prov_version;
	o->control = i->domain_attr->control_progress;
	o->progress = i->domain_attr->data_progress;
}

int lf_list(const struct lf_query *q, struct lf_info *out, int max)
{
	struct fi_info *all = NULL;
	int rc = find(q, &all), n = 0;
	if (rc)
		return rc == -FI_ENODATA ? 0 : rc;
	for (struct fi_info *i = all; i && n < max; i = i->next)
		describe(i, &out[n++]);
	fi_freeinfo(all);
	return n;
}

// waits finds out whether completion queues have descriptors to wait for.
static int waits(struct lf_dev *d)
{
	struct fid_domain *domain = NULL;
	struct fid_cq *cq = NULL;
	struct fi_cq_attr a = {.size = 1, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
	int rc = fi_domain(d->fabric, d->info, &domain, NULL);
	if (rc)
		return rc;
	int fd = -1;
	int yes = !fi_cq_open(domain, &a, &cq, NULL) && !fi_control(&cq->fid, FI_GETWAIT, &fd) && fd >= 0;
	if (cq)
		rc = fi_close(&cq->fid);
	int err = fi_close(&domain->fid);
	return rc ? rc : err ? err : yes;
}

int lf_open(const struct lf_query *q, struct lf_dev **out, struct lf_info *info)
{
	struct fi_info *all = NULL;
	int rc = find(q, &all);
	if (rc)
		return rc;
	struct lf_dev *d = calloc(1, sizeof *d);
	if (d)
		d->info = fi_dupinfo(all);
	fi_freeinfo(all);
	if (!d || !d->info) {
		free(d);
		return -FI_ENOMEM;
	}
	d->complete = q->delivery ? FI_DELIVERY_COMPLETE : FI_TRANSMIT_COMPLETE;
	rc = fi_fabric(d->info->fabric_attr, &d->fabric, NULL);
	if (!rc)
		rc = d->waits = waits(d);
	if (rc < 0) {
		lf_close(d);
		return rc;
	}
	describe(d->info, info);
	*out = d;
	return 0;
}

int lf_close(struct lf_dev *d)
{
	int rc = d->fabric ? fi_close(&d->fabric->fid) : 0;
	if (rc)
		return rc;
	fi_freeinfo(d->info);
	free(d);
	return 0;
}
