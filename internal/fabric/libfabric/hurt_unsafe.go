//go:build libfabric && cgo && linux && faultpoints

package libfabric

/*
#include "lf_sockets.h"

// The library's own flag for an error in a queue of events.
enum { LF_EVENT_ERROR = 60 };

static int lf_hurt(struct lf_ep *e, int err, int vendor)
{
	struct fi_eq_err_entry x = {.err = err, .prov_errno = vendor};
	if (!e->eq)
		return -FI_ENOEQ;
	ssize_t n = fi_eq_write(e->eq, FI_NOTIFY, &x, sizeof x, 1ull << LF_EVENT_ERROR);
	return n < 0 ? (int)n : 0;
}

static int lf_notify(struct lf_ep *e)
{
	struct fi_eq_entry x = {0};
	ssize_t n = e->eq ? fi_eq_write(e->eq, FI_NOTIFY, &x, sizeof x, 0) : -FI_ENOEQ;
	return n < 0 ? (int)n : 0;
}

// It borrows the context of the first notice, whose completion is then for nobody.
static int lf_stray(struct lf_ep *e, int len)
{
	struct lf_req *r = &e->reqs[e->sends + e->recvs + 2];
	return (int)fi_tsend(e->ep, r, (size_t)len, e->desc, e->peer, LF_NOTICE_TAG, r);
}

// With the context of a greeting, which nobody waits for.
static int lf_strange(struct lf_ep *e, int len, int data)
{
	struct lf_req *r = &e->reqs[e->sends + e->recvs + 1];
	if (data)
		return (int)fi_tsenddata(e->ep, r, (size_t)len, e->desc, 1, e->peer, LF_HELLO_TAG, r);
	return (int)fi_tsend(e->ep, r, (size_t)len, e->desc, e->peer, LF_HELLO_TAG, r);
}

static int refuse(struct fid *f)
{
	(void)f;
	return -FI_EBUSY;
}

// A registration that cannot be closed, in place of the endpoint's own.
static void lf_cling(struct lf_ep *e, struct fid_mr **kept)
{
	static struct fi_ops ops = {.size = sizeof ops, .close = refuse};
	static struct fid_mr never = {.fid.ops = &ops};
	*kept = e->own;
	e->own = &never;
}

// What else the endpoint has was closed by then.
static int lf_let_go(struct lf_ep *e, struct fid_mr *kept)
{
	e->ep = NULL;
	e->cq = NULL;
	e->av = NULL;
	e->eq = NULL;
	e->anchor = NULL;
	e->own = kept;
	return lf_ep_close(e);
}
*/
import "C"

// hurt has the library say that something went wrong with the endpoint that concerns no operation.
func (w wire) hurt(vendor int) error {
	return call("fi_eq_write", C.lf_hurt(w.e, C.FI_ECONNABORTED, C.int(vendor)))
}

// stray sends a notice of n bytes that no write goes before.
func (w wire) stray(n int) error { return call("fi_tsend", C.lf_stray(w.e, C.int(n))) }

// strange sends what looks like a greeting of n bytes to the end that it was joined with, perhaps with data beside it. It returns
// false if there is no connection yet.
func (w wire) strange(n int, data bool) (bool, error) {
	with := C.int(0)
	if data {
		with = 1
	}
	rc := C.lf_strange(w.e, C.int(n), with)
	if rc == -errAgain {
		return false, nil
	}
	return true, call("fi_tsend", rc)
}

// scans is how often all descriptors of the process were looked at.
func scans() uint64 { return uint64(C.lf_scans) }

// cling has the library refuse to close the endpoint, until what it returns has closed it.
func (w wire) cling() (letGo func() error) {
	var kept *C.struct_fid_mr
	C.lf_cling(w.e, &kept)
	return func() error { return gone(call("fi_close", C.lf_let_go(w.e, kept))) }
}

// notify has the library say something that is no error.
func (w wire) notify() error { return call("fi_eq_write", C.lf_notify(w.e)) }
