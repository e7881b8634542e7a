//go:build libfabric && cgo && linux

#include "lf_shim.h"

#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

// version is that of the library's interface that is asked for. Who asks for less than 1.18 gets no RDMA by
// the device of some adapters of the provider efa, and of others the end of the process.
static uint32_t version(void)
{
	uint32_t least = FI_VERSION(1, 14), most = FI_VERSION(1, 18), has = fi_version();
	return has < least ? least : has > most ? most : has;
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
		hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS | (q->notices ? FI_ORDER_SAW : 0);
		hints->tx_attr->op_flags = q->delivery ? FI_DELIVERY_COMPLETE : FI_TRANSMIT_COMPLETE;
	} else {
		hints->domain_attr->mr_mode = ~(FI_MR_BASIC | FI_MR_SCALABLE);
	}
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	if (q->provider[0])
		hints->fabric_attr->prov_name = strdup(q->provider);
	if (q->domain[0])
		hints->domain_attr->name = strdup(q->domain);
	int rc = fi_getinfo(version(), q->node[0] ? q->node : NULL, NULL, q->node[0] ? FI_SOURCE : 0, hints, out);
	fi_freeinfo(hints);
	return rc;
}

static const char verbs[] = "verbs;ofi_rxm", shared[] = "FI_OFI_RXM_USE_SRX", cached[] = "FI_MR_CACHE_MAX_COUNT";

// used says how the library was first used: 0 not yet, 1 with a cache of registrations, 2 without.
static int used;

// prepare sets what the library and its providers read from the environment, most of it when they are first used,
// unless it is set.
static void prepare(const struct lf_query *q)
{
	// An endpoint of rxm gets queues for as many peers. Here it has one, and with the usual 256 some devices cannot
	// make its queues.
	setenv("FI_UNIVERSE_SIZE", "16", 0);
	// The provider efa would fork to find out whether it may use shared memory between processes of
	// one host, and use it, with what the provider shm has of dangers: see files.go.
	setenv("FI_EFA_ENABLE_SHM_TRANSFER", "0", 0);
	// Over verbs rxm crashes without receives that all queue pairs of an endpoint share. Over tcp it has them anyway.
	setenv(shared, "1", 0);
	// Buffers for messages that nobody has asked for yet, which each endpoint of rxm makes and writes over at once: with
	// the usual 4096 of 16 KiB, and more for what it sends, an endpoint takes 77 MiB. What is written goes past them;
	// messages of the daemon are small, and only the tools of "rdmad perf" send larger ones.
	setenv("FI_OFI_RXM_MSG_RX_SIZE", "256", 0);
	setenv("FI_OFI_RXM_BUFFER_SIZE", "4096", 0);
	// With the cache verbs grants every right to what is registered, and keeps it registered when it is closed.
	if (!q->provider[0] || !strcmp(q->provider, verbs))
		setenv(cached, "0", 0);
	const char *v = getenv(cached);
	int none = 0;
	__atomic_compare_exchange_n(&used, &none, v && !strcmp(v, "0") ? 2 : 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

int lf_shared(void)
{
	const char *v = getenv(shared);
	return !v || !strcasecmp(v, "1") || !strcasecmp(v, "yes") || !strcasecmp(v, "true") || !strcasecmp(v, "on");
}

int lf_cached(void) { return __atomic_load_n(&used, __ATOMIC_SEQ_CST) == 1; }

static int find(const struct lf_query *q, struct fi_info **out)
{
	struct sigaction before[SIGNALS];
	prepare(q);
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

// atomics finds out whether those that are used are there: FI_ATOMIC says that some are.
static int atomics(struct fid_domain *domain)
{
	struct fi_atomic_attr add = {0}, swap = {0};
	return !fi_query_atomic(domain, FI_UINT64, FI_SUM, &add, FI_FETCH_ATOMIC) && add.count >= 1 &&
		!fi_query_atomic(domain, FI_UINT64, FI_CSWAP, &swap, FI_COMPARE_ATOMIC) && swap.count >= 1;
}

// probe finds out whether completion queues have descriptors to wait for, and whether there are atomics.
static int probe(struct lf_dev *d, int want_atomics)
{
	struct fid_domain *domain = NULL;
	struct fid_cq *cq = NULL;
	struct fi_cq_attr a = {.size = 1, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
	int rc = fi_domain(d->fabric, d->info, &domain, NULL);
	if (rc)
		return rc;
	int fd = -1;
	d->waits = !fi_cq_open(domain, &a, &cq, NULL) && !fi_control(&cq->fid, FI_GETWAIT, &fd) && fd >= 0;
	d->atomics = want_atomics && atomics(domain);
	if (cq)
		rc = fi_close(&cq->fid);
	int err = fi_close(&domain->fid);
	return rc ? rc : err;
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
	d->notices = q->notices;
	d->complete = q->delivery ? FI_DELIVERY_COMPLETE : FI_TRANSMIT_COMPLETE;
	int efa = !strcmp(d->info->fabric_attr->prov_name, "efa");
	// It may keep a write until the peer has answered, without a copy, and then, of those that were to be
	// followed by more, forget to tell the device of the last.
	d->injects = d->batches = !efa;
	// It ends the process if something happens that concerns no operation, such as a peer that does not
	// answer the library's own messages, and there is no queue for that. Others have no use for
	// one, and libfabric 1.17's net crashes of it.
	d->hears = efa;
	d->sockets = !strcmp(d->info->fabric_attr->prov_name, "tcp;ofi_rxm");
	rc = fi_fabric(d->info->fabric_attr, &d->fabric, NULL);
	if (!rc)
		rc = probe(d, q->atomics);
	if (rc) {
		lf_close(d);
		return rc;
	}
	describe(d->info, info);
	*out = d;
	return 0;
}

void lf_impose(struct lf_dev *d, uint64_t mr_mode, uint64_t cq_data, int injects, int batches, int hears, int waits)
{
	d->info->domain_attr->mr_mode |= (int)mr_mode;
	if (d->info->domain_attr->cq_data_size > cq_data)
		d->info->domain_attr->cq_data_size = cq_data;
	d->injects = d->injects && injects;
	d->batches = d->batches && batches;
	d->hears = d->hears || hears;
	d->waits = d->waits && waits;
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
