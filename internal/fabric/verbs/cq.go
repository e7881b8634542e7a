//go:build verbs && cgo && linux

package verbs

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/ledger"
	"github.com/rdmad/rdmad/internal/poller"
)

const (
	// pollBatch is how many completions are fetched with one call into C.
	pollBatch = 256
	// armBatch is how many completions Arm looks for.
	armBatch = 16
)

// cq implements fabric.CQ.
//
// It cannot overflow: every endpoint reserves room for all work requests it may
// have outstanding, and the queue is enlarged before a reservation would not fit.
type cq struct {
	dev    *Device
	lib    *queue
	poller *poller.Poller // nil: polled only

	endpoints *ledger.Members[*Endpoint] // that are not closed
	news      ledger.News[notice]

	mu       sync.Mutex
	closed   bool // guarded by mu, written by the owner only
	reserved int  // room of its endpoints; guarded by mu
	// failed is why the library says nothing of completions any more; guarded by mu, written by the owner only.
	failed error

	// Everything below belongs to the owner of the CQ.

	armed bool // the next completion makes an event
	wcs   []cWC
	// head and tail bound the fetched completions in wcs that were not handled.
	head, tail int
	out        ledger.Delivery
	// ending are endpoints whose connection is gone and whose outstanding work
	// requests are not reported yet.
	ending []*Endpoint
	// woken are endpoints that were activated after something had come for them.
	woken []*Endpoint
	// released is room of ended endpoints whose completions may still be in the
	// queue; it is free once the queue was seen empty.
	released int
	// past is for when others keep the queue from ever being seen empty.
	past  past
	stats CQStats
}

// past is what waits until all completions that were in the queue at one moment have come out of it.
type past struct {
	// left is for how many more completions it waits: there are no more in a queue than it has room for. 0 or less, and waits
	// false, if nothing waits.
	left  int
	waits bool
	// notices, how many of ending, and how much of released, were there at that moment.
	notices []notice
	ending  int
	room    int
}

// CQStats are a queue's counters since it was made.
type CQStats struct {
	// Polls, Arms and EventCalls are calls into C for completions, for arming
	// and for events of the completion channel.
	Polls, Arms, EventCalls uint64
	// Completions is how many completions the device made, Events how many
	// events.
	Completions, Events uint64
	// Resizes is how often the queue was enlarged.
	Resizes uint64
}

// notice is something that another goroutine found out about an endpoint.
type notice struct {
	e      *Endpoint
	why    fabric.Status
	vendor uint32
	end    endKind
}

// endKind says what must happen at the end of a connection.
type endKind uint8

const (
	// endClosed: Close has destroyed the queue pair.
	endClosed endKind = iota
	// endPeer: the peer is gone; the queue pair must be flushed.
	endPeer
	// endRefused: the queue pair has refused a request of the peer, who was told
	// by that.
	endRefused
	// endBroken: the device reports nothing any more.
	endBroken
)

// CreateCQ implements fabric.Device. The depth is a beginning: the queue grows with
// its endpoints as far as the device allows. Queues that can be slept on take the
// completion vectors in turn, so that not one processor is interrupted for all of
// them.
func (d *Device) CreateCQ(depth int, p *poller.Poller) (fabric.CQ, error) {
	if depth < 1 {
		return nil, fabric.ErrInvalid
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fabric.ErrClosed
	}
	vector := 0
	if p != nil {
		vector = d.slept % max(1, vectors(d.ctx))
	}
	depth = min(depth, d.info.Limits.MaxCQE)
	lib, err := createQueue(d.ctx, depth, p != nil, vector)
	if err == nil {
		if fixed := fixedDepth(lib.resize(lib.capacity()), d.info.Limits.MaxCQE); fixed > lib.capacity() {
			if err = lib.destroy(); err != nil {
				return nil, err
			}
			if lib, err = createQueue(d.ctx, fixed, p != nil, vector); err != nil { // rather for few lanes than for none
				lib, err = createQueue(d.ctx, depth, p != nil, vector)
			}
		}
	}
	if err != nil {
		if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EINVAL) {
			err = &LimitError{What: "completion queue", Asked: uint64(depth), Limit: uint64(d.info.Limits.MaxCQE), Err: err}
		}
		return nil, err
	}
	q := &cq{dev: d, lib: lib, poller: p, wcs: make([]cWC, pollBatch), endpoints: ledger.NewMembers[*Endpoint]()}
	if p != nil {
		if err := q.watch(); err != nil {
			return nil, errors.Join(err, q.destroy())
		}
		d.slept++
	}
	d.queues[q] = struct{}{}
	return q, nil
}

// fixedDepth is how many completions a queue is to hold from the beginning, where refused says that the device cannot resize
// one: as many as some 300 lanes have. 0: it can.
func fixedDepth(refused error, limit int) int {
	const enough = 1 << 18
	if errors.Is(refused, unix.EOPNOTSUPP) || errors.Is(refused, unix.ENOSYS) {
		return min(enough, limit)
	}
	return 0
}

// watch registers the queue's descriptors with its poller.
func (q *cq) watch() error {
	if err := q.news.Watch(q.poller); err != nil {
		return err
	}
	return q.poller.Add(q.lib.fd(), unix.EPOLLIN, q)
}

// Ready implements poller.Handler: it takes an event off the completion channel.
func (q *cq) Ready(fd int, _ uint32) {
	q.stats.EventCalls++
	ok, err := q.lib.takeEvent()
	switch {
	case err != nil:
		// The device was taken away. Its channel stays ready for ever, and there is nothing more to come by it.
		q.armed = true
		_ = q.poller.Remove(fd)
		q.dev.broken(func(other *cq) bool { return other == q })
	case ok:
		q.stats.Events++
		q.armed = false
	}
}

// Stats returns the counters. It belongs to the owner like Poll.
func (q *cq) Stats() CQStats { return q.stats }

// admit adds an endpoint, whose room must be there.
func (q *cq) admit(e *Endpoint) error {
	if err := q.reserve(e.room); err != nil {
		return err
	}
	err := q.endpoints.Admit(e, func(serial uint32) { e.serial = serial })
	if err != nil {
		q.unreserve(e.room)
	}
	return err
}

// reserve keeps room for the given number of completions.
func (q *cq) reserve(room int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return fabric.ErrClosed
	case q.failed != nil:
		return fmt.Errorf("the completion queue has failed: %w", q.failed)
	}
	if need := q.reserved + room; need > q.lib.capacity() {
		limit := q.dev.info.Limits.MaxCQE
		if need > limit {
			return &LimitError{What: "completion queue for all of its endpoints", Asked: uint64(need), Limit: uint64(limit),
				Hint: "use fewer lanes per agent"}
		}
		if err := q.lib.resize(min(limit, max(need, 2*q.lib.capacity()))); err != nil {
			return &LimitError{What: "completion queue", Asked: uint64(need), Limit: uint64(limit), Err: err}
		}
		if have := q.lib.capacity(); need > have {
			return &LimitError{What: "completion queue, which the device has not resized,", Asked: uint64(need), Limit: uint64(have), Hint: "use fewer lanes per agent"}
		}
		q.stats.Resizes++
	}
	q.reserved += room
	return nil
}

// unreserve makes room free that no completion can need any more.
func (q *cq) unreserve(room int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserved -= room
}

// forget removes an endpoint; its room is free when its completions are gone.
func (q *cq) forget(e *Endpoint) { q.endpoints.Forget(e.serial) }

// notify tells the owner about an endpoint. Any goroutine may call it.
func (q *cq) notify(n notice) { q.news.Put(n) }

// Poll implements fabric.CQ. It is one call into C as long as that returns less
// than what there is room for. A queue that fails says so once, and ends what uses it.
func (q *cq) Poll(c []fabric.Completion) (int, error) {
	if q.closed {
		return 0, fabric.ErrClosed
	}
	if len(c) == 0 {
		return 0, nil
	}
	q.out.Begin(c)
	for _, e := range q.woken {
		e.wake()
	}
	q.woken = q.woken[:0]
	q.handle()
	q.begin()
	released, empty := q.released, false
	var err error
	for q.failed == nil && q.out.Room() > 0 && !empty {
		var got int
		want := min(q.out.Room(), len(q.wcs))
		q.stats.Polls++
		got, err = q.lib.poll(q.wcs[:want])
		if err != nil {
			q.fail(err)
			break
		}
		q.fetched(got)
		q.handle()
		empty = got < want && q.head == q.tail
	}
	if empty {
		q.release(released)
	}
	switch {
	case empty || q.failed != nil:
		q.hear(append(q.past.notices, q.news.Take()...))
		q.finish(len(q.ending))
		q.past = past{}
	case q.past.waits && q.past.left <= 0:
		q.release(q.past.room)
		q.finish(q.past.ending)
		q.hear(q.past.notices)
		q.past = past{}
	}
	return q.out.End(), err
}

// begin notes what is to be settled when all that is in the queue now has come out of it, unless it does so for something
// before: a peer that sends without a pause must not put off what all others are told.
func (q *cq) begin() {
	if q.past.waits || !q.news.Some() && len(q.ending) == 0 && q.released == 0 {
		return
	}
	q.past = past{left: q.lib.capacity() + len(q.wcs), waits: true, notices: q.news.Take(), ending: len(q.ending), room: q.released}
}

// fail ends the endpoints of a queue of whose completions nobody will hear, and has it take no new ones: their room in
// it may never be free again.
func (q *cq) fail(err error) {
	q.mu.Lock()
	q.failed = err
	q.mu.Unlock()
	q.dev.broken(func(other *cq) bool { return other == q })
}

// fetched notes that wcs begins with n completions.
func (q *cq) fetched(n int) {
	q.head, q.tail = 0, n
	q.past.left -= n
	q.stats.Completions += uint64(n)
}

// handle turns fetched completions into those of the caller, as many as fit.
func (q *cq) handle() {
	endpoints := q.endpoints.All()
	var e *Endpoint
	for ; q.head < q.tail && q.out.Room() > 0; q.head++ {
		w := &q.wcs[q.head]
		serial := uint32(w.id >> 32)
		if e == nil || e.serial != serial {
			e = endpoints[serial]
		}
		// Completions of a closed endpoint have been reported as flushed.
		if e != nil {
			e.complete(w)
		}
	}
}

// release makes room free that was released before the queue was last seen empty.
func (q *cq) release(room int) {
	if room > 0 {
		q.released -= room
		q.unreserve(room)
	}
}

// hear handles notices. Everything that was known when one was written has been reported before it.
func (q *cq) hear(notices []notice) {
	for _, n := range notices {
		n.e.noticed(n)
	}
}

// finish reports what is left of the first of the ended endpoints, so many, of which nothing more is in the queue.
func (q *cq) finish(n int) {
	if n > 0 {
		q.ending = append(slices.DeleteFunc(q.ending[:n], (*Endpoint).finish), q.ending[n:]...)
	}
}

// Arm implements fabric.CQ. A CQ without a poller cannot be slept on. One that cannot be armed has failed, says so once, and
// can be slept on then: nothing comes from it any more.
func (q *cq) Arm() (bool, error) {
	if q.closed {
		return false, fabric.ErrClosed
	}
	if q.poller == nil {
		return false, fabric.ErrNotSupported
	}
	if q.head < q.tail || q.out.Waiting() || len(q.woken) > 0 || q.news.Some() || q.past.waits || slices.ContainsFunc(q.ending, (*Endpoint).over) {
		return false, nil
	}
	if q.failed != nil {
		return true, nil // notices ring the bell
	}
	q.stats.Arms++
	n, err := q.lib.arm(!q.armed, q.wcs[:armBatch])
	if err != nil {
		q.fail(err)
		return false, err
	}
	q.armed = true
	q.fetched(n)
	// A notice that comes later rings the bell.
	return n == 0 && !q.news.Some(), nil
}

// Close implements fabric.CQ. It also destroys the queue pairs of endpoints that
// are not closed.
func (q *cq) Close() error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return nil
	}
	q.closed = true
	q.mu.Unlock()
	q.endpoints.Close()
	var errs []error
	for _, e := range q.endpoints.All() {
		errs = append(errs, e.Close())
	}
	q.dev.mu.Lock()
	delete(q.dev.queues, q)
	q.dev.mu.Unlock()
	q.ending, q.woken, q.out = nil, nil, ledger.Delivery{}
	return errors.Join(append(errs, q.destroy())...)
}

// destroy releases the queue itself.
func (q *cq) destroy() error {
	errs := []error{q.news.Close()}
	if q.poller != nil {
		errs = append(errs, q.poller.Remove(q.lib.fd()))
	}
	return errors.Join(append(errs, q.lib.destroy())...)
}

var _ fabric.CQ = (*cq)(nil)
