//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/ledger"
	"github.com/rdmad/rdmad/internal/poller"
)

const (
	// pollBatch is how many completions are fetched with one call into C.
	pollBatch = 256
	// A queue that nothing wakes, of a provider without descriptors or while the library has no
	// room for what is posted, sleeps for a part of the time since something came, within
	// bounds: so what comes is late by that part.
	restPart            = 8
	restLeast, restMost = 10 * time.Microsecond, time.Millisecond
)

// cq implements fabric.CQ. A queue of libfabric belongs to a domain, and every protection
// domain here is one: so every endpoint has a queue of its own, and all of them are polled
// with one call into C.
type cq struct {
	dev    *Device
	poller *poller.Poller // nil: polled only
	timer  int            // of rests, -1 without a poller

	endpoints *ledger.Members[*Endpoint] // that are not closed
	news      ledger.News[notice]

	// Everything below belongs to the owner of the CQ.

	closed bool
	set    wireSet // active endpoints
	active int     // endpoints in set
	wcs    []cWC
	// head and tail bound the fetched completions in wcs that were not handled.
	head, tail int
	out        ledger.Delivery
	// ending are endpoints whose connection is gone and whose outstanding work
	// requests are not reported yet.
	ending []*Endpoint
	// woken are endpoints for which something has come that waited for their owner.
	woken []*Endpoint
	// pushing are endpoints with work requests that the library had no room for.
	pushing []*Endpoint
	last    time.Time // something came
}

// notice is something that another goroutine found out about an endpoint.
type notice struct {
	e      *Endpoint
	closed bool // Close has closed the library's endpoint
	own    bool // it has failed here; else its peer is gone, or has failed
	why    fabric.Status
	vendor uint32
}

// CreateCQ implements fabric.Device. The depth does not matter: every endpoint brings its own.
func (d *Device) CreateCQ(depth int, p *poller.Poller) (fabric.CQ, error) {
	if depth < 1 {
		return nil, fabric.ErrInvalid
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fabric.ErrClosed
	}
	q := &cq{dev: d, poller: p, timer: -1, wcs: make([]cWC, pollBatch), endpoints: ledger.NewMembers[*Endpoint]()}
	var err error
	if q.set, err = newWireSet(); err != nil {
		return nil, err
	}
	if p != nil {
		if err := q.watch(); err != nil {
			return nil, errors.Join(err, q.destroy())
		}
	}
	d.queues++
	return q, nil
}

// watch registers the queue's own descriptors with its poller.
func (q *cq) watch() error {
	if err := q.news.Watch(q.poller); err != nil {
		return err
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return err
	}
	q.timer = timer
	// A new time makes a new event: it need not be read.
	return q.poller.Add(q.timer, unix.EPOLLIN|unix.EPOLLET, ledger.WakeUp{})
}

// admit gives an endpoint its serial number.
func (q *cq) admit(e *Endpoint) error {
	return q.endpoints.Admit(e, func(serial uint32) { e.serial = serial })
}

// forget removes an endpoint.
func (q *cq) forget(e *Endpoint) { q.endpoints.Forget(e.serial) }

// join adds an active endpoint to those that are polled.
func (q *cq) join(e *Endpoint) error {
	if e.destroyed {
		return nil
	}
	if err := q.set.add(e.lib); err != nil {
		return err
	}
	q.active++
	e.joined = true
	if fd := e.lib.fd(); q.poller != nil && fd >= 0 {
		if err := q.poller.Add(fd, unix.EPOLLIN, ledger.WakeUp{}); err != nil {
			q.part(e)
			return err
		}
	}
	return nil
}

// part is the opposite of join, for an endpoint whose library's is there. One that has failed before
// it was activated has not joined.
func (q *cq) part(e *Endpoint) {
	if !e.joined {
		return
	}
	e.joined = false
	q.set.remove(e.lib)
	q.active--
	if fd := e.lib.fd(); q.poller != nil && fd >= 0 {
		// It fails only if the descriptor is not there.
		_ = q.poller.Remove(fd)
	}
}

// wake has Poll look at what an endpoint holds back.
func (q *cq) wake(e *Endpoint) {
	if !slices.Contains(q.woken, e) {
		q.woken = append(q.woken, e)
	}
}

// notify tells the owner about an endpoint. Any goroutine may call it.
func (q *cq) notify(n notice) { q.news.Put(n) }

// Poll implements fabric.CQ. It is one call into C as long as that returns less
// than what there is room for.
func (q *cq) Poll(c []fabric.Completion) (int, error) {
	if q.closed {
		return 0, fabric.ErrClosed
	}
	if len(c) == 0 {
		return 0, nil
	}
	q.out.Begin(c)
	q.look()
	q.handle()
	for q.out.Room() > 0 {
		want := min(q.out.Room(), len(q.wcs))
		got := q.set.poll(q.wcs[:want])
		q.head, q.tail = 0, got
		q.handle()
		if got < want {
			break
		}
	}
	q.push()
	if q.head == q.tail {
		q.settle()
	}
	n := q.out.End()
	if n > 0 && q.timer >= 0 {
		q.last = time.Now()
	}
	return n, nil
}

// look lets endpoints go on that waited for their owner.
func (q *cq) look() {
	if len(q.woken) == 0 {
		return
	}
	woken := q.woken
	q.woken = nil
	for _, e := range woken {
		e.wake()
	}
}

// push gives the library again what it had no room for.
func (q *cq) push() {
	if len(q.pushing) == 0 {
		return
	}
	pushing := q.pushing
	q.pushing = nil
	for _, e := range pushing {
		e.pushing = false
		e.push()
	}
}

// handle turns fetched completions into those of the caller, as many as fit.
func (q *cq) handle() {
	endpoints := q.endpoints.All()
	for ; q.head < q.tail && q.out.Room() > 0; q.head++ {
		w := &q.wcs[q.head]
		// Completions of a closed endpoint have been reported as flushed.
		if e := endpoints[uint32(w.serial)]; e != nil {
			e.complete(w)
		}
	}
}

// settle handles notices and reports what is left of ended endpoints. There is nothing in wcs. What was known of an endpoint when
// a notice of it was written is reported before it: its own queue is emptied first, whatever comes for others meanwhile.
func (q *cq) settle() {
	for _, n := range q.news.Take() {
		q.exhaust(n.e)
		n.e.noticed(n)
	}
	for _, e := range q.ending {
		e.finish()
	}
	q.ending = q.ending[:0]
}

// emptyLooks is how often a queue must be found empty, one time after the other, to be that: the library's layers of one provider over
// another take in one thing with each look, and that may be a part of what makes a completion.
const emptyLooks = 16

// exhaust handles what is in the queue of an endpoint, if it is polled at all: not more than there can be of its work requests, of
// which there come no more meanwhile, and of immediates that wait for them.
func (q *cq) exhaust(e *Endpoint) {
	left := e.sq.Cap() + e.loud.Cap() + maxEarly
	for empty := 0; e.joined && left > 0 && empty < emptyLooks; {
		got := e.lib.poll(q.wcs)
		for i := range q.wcs[:got] {
			e.complete(&q.wcs[i])
		}
		if left -= got; got == 0 {
			empty++
		} else {
			empty = 0
		}
	}
}

// Arm implements fabric.CQ. A CQ without a poller cannot be slept on. Where the provider has
// no descriptors the sleep has a limit instead, that grows while nothing comes.
func (q *cq) Arm() (bool, error) {
	if q.closed {
		return false, fabric.ErrClosed
	}
	if q.poller == nil {
		return false, fabric.ErrNotSupported
	}
	if q.head < q.tail || q.out.Waiting() || len(q.woken)+len(q.ending) > 0 || q.news.Some() {
		return false, nil
	}
	if q.active > 0 && q.dev.waits {
		if !q.set.arm() {
			return false, nil
		}
	}
	if q.active > 0 && !q.dev.waits || len(q.pushing) > 0 {
		if err := q.restLater(); err != nil {
			return false, err
		}
	}
	// A notice that comes later rings the bell.
	return !q.news.Some(), nil
}

// restLater sets the time at which a sleep ends.
func (q *cq) restLater() error {
	rest := min(max(time.Since(q.last)/restPart, restLeast), restMost)
	t := unix.ItimerSpec{Value: unix.NsecToTimespec(rest.Nanoseconds())}
	return unix.TimerfdSettime(q.timer, 0, &t, nil)
}

// Close implements fabric.CQ. It also closes endpoints that are not closed.
func (q *cq) Close() error {
	if q.closed {
		return nil
	}
	q.closed = true
	q.endpoints.Close()
	var errs []error
	for _, e := range q.endpoints.All() {
		errs = append(errs, e.Close())
	}
	q.dev.mu.Lock()
	q.dev.queues--
	q.dev.mu.Unlock()
	q.ending, q.woken, q.pushing, q.out = nil, nil, nil, ledger.Delivery{}
	return errors.Join(append(errs, q.destroy())...)
}

// destroy releases the queue itself.
func (q *cq) destroy() error {
	errs := []error{q.news.Close()}
	if q.timer >= 0 {
		errs = append(errs, q.poller.Remove(q.timer), unix.Close(q.timer))
	}
	q.set.free()
	return errors.Join(errs...)
}

var _ fabric.CQ = (*cq)(nil)
