package client

import (
	"context"
	"errors"
	"slices"

	"github.com/rdmad/rdmad/slots"
)

// Result is the outcome of one request of a batch or a queue.
type Result struct {
	// Answer is in a slice of its own, which is the caller's; nil with an error.
	Answer []byte
	// Err is nil or one of Call's errors.
	Err error
}

// CallBatch sends all requests and waits for all answers. The results are in the order
// of the requests, each with its own outcome. The requests have been copied when
// CallBatch returns. They are executed concurrently, in no order unless Ordered.
//
// The daemon is told of the requests once for all, or whenever the ring is full: a
// batch may have more requests than the ring has slots, and then sends the next as
// earlier ones are answered. When ctx ends, requests that have been answered keep
// their answers, and each of the others has a *DeadlineError that says whether it was
// sent. After a request that cannot be sent for another reason than its size or, with
// NoWait, a full ring, the rest is not tried and has the same error. Requests whose
// node serves the method no more are tried once more, as CallInto does it, unless they
// are Ordered, and then they are sent in the order of the batch. With Idempotent they are
// tried again as that says, when the others have their outcomes.
//
// An error of CallBatch itself means that nothing was sent: ErrClosed, a
// *DeadlineError, or an error of looking the method up again, such as ErrNoService.
func (m *Method) CallBatch(ctx context.Context, reqs [][]byte) ([]Result, error) {
	present(ctx)
	if m.opts.idempotent {
		return m.callBatchAgain(ctx, reqs)
	}
	if !m.conn.gate.enter() {
		return nil, m.closed()
	}
	if err := m.reach(ctx); err != nil {
		m.conn.gate.leave()
		return nil, err
	}
	b := newBatch(m, reqs)
	b.send(ctx, func(int) bool { return true })
	m.conn.gate.leave()
	b.wait(ctx)
	// Ordered ones are not sent again: those behind them may have been executed.
	if m.opts.order == 0 && slices.ContainsFunc(b.results, func(r Result) bool { return refused(r.Err) }) && m.conn.gate.enter() {
		var again []int
		b.send(ctx, func(i int) bool { // where the method is served now
			if !refused(b.results[i].Err) {
				return false
			}
			again = append(again, i)
			return true
		})
		m.conn.gate.leave()
		b.wait(ctx)
		for _, i := range again {
			b.results[i].Err = secondTry(b.results[i].Err)
		}
	}
	return b.results, nil
}

// reach makes sure that there is a route and time to use it.
func (m *Method) reach(ctx context.Context) error {
	if ctx.Err() != nil {
		return m.late(ctx, false)
	}
	if m.conn.ended.Load() {
		return m.closed()
	}
	if m.route.p.Load() != nil {
		return nil
	}
	_, err := m.resolve(ctx, nil, preference{})
	return err
}

// batch is what one goroutine knows of its requests.
type batch struct {
	m       *Method
	eager   *Method // m, but it does not wait for slots
	reqs    [][]byte
	results []Result
	futures []*Future // of the requests without a result
	oldest  int       // the requests before it have no future, or one that is settled
	lanes   []*lane   // where something was published that the daemon was not told of
}

func newBatch(m *Method, reqs [][]byte) *batch {
	return &batch{
		m: m, eager: m.With(NoWait()), reqs: reqs,
		results: make([]Result, len(reqs)), futures: make([]*Future, len(reqs)),
	}
}

// send publishes the requests whose results are chosen. Those that cannot be have
// their results afterwards, the others their futures. The caller holds the gate.
func (b *batch) send(ctx context.Context, chosen func(i int) bool) {
	var lost error
	b.oldest = 0
	for i := range b.reqs {
		if !chosen(i) {
			continue
		}
		err := lost
		if err == nil {
			b.futures[i], err = b.sendOne(ctx, b.reqs[i])
		}
		b.results[i] = Result{Err: err}
		if err != nil && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrBackpressure) {
			lost = err
		}
	}
	b.announce()
}

// fail gives the chosen requests an error.
func (b *batch) fail(chosen func(i int) bool, err error) {
	for i := range b.results {
		if chosen(i) {
			b.results[i] = Result{Err: err}
		}
	}
}

func (b *batch) sendOne(ctx context.Context, req []byte) (*Future, error) {
	if b.m.isLarge(len(req)) {
		b.announce()
		return b.m.sendLarge(ctx, req, &sink{})
	}
	for range maxReroutes {
		d := draft{silent: true}
		if err := b.claim(ctx, len(req), &d); err != nil {
			if b.m.goesInParts(err) {
				b.announce()
				return b.m.sendLarge(ctx, req, &sink{})
			}
			return nil, err
		}
		f, err := b.m.commit(&d, req, &sink{})
		if err == nil {
			if !slices.Contains(b.lanes, d.l) {
				b.lanes = append(b.lanes, d.l)
			}
			return f, nil
		}
		if !errors.Is(err, slots.ErrClosed) {
			return nil, err
		}
		b.m.lost(d.l)
	}
	return nil, b.m.elusive()
}

// claim is Method.claim, but first lets the batch's own requests make room. Nothing
// that was published stays unannounced while it waits, but where the lanes of its way are closed
// under its hands: then until the daemon has found another.
func (b *batch) claim(ctx context.Context, size int, d *draft) error {
	if b.m.route.p.Load() == nil {
		b.announce() // the daemon may take its time to find the new route
	}
	for {
		err := b.eager.claim(ctx, size, d)
		if err == nil || b.m.opts.noWait || !errors.Is(err, ErrBackpressure) {
			return err
		}
		b.announce()
		f := b.firstOpen()
		if f == nil {
			return b.m.claim(ctx, size, d) // others hold the slots
		}
		// This wait notices answers at once, which one for slots does not. It is
		// bounded because others than the oldest may be answered first.
		soon, cancel := context.WithTimeout(ctx, freeSleep)
		b.m.conn.wait.until(soon, f)
		cancel()
	}
}

// firstOpen returns the oldest future without an outcome.
func (b *batch) firstOpen() *Future {
	for ; b.oldest < len(b.futures); b.oldest++ {
		if f := b.futures[b.oldest]; f != nil && !f.settled() {
			return f
		}
	}
	return nil
}

func (b *batch) announce() {
	for _, l := range b.lanes {
		l.announce()
	}
	b.lanes = b.lanes[:0]
}

// wait turns the futures into results.
func (b *batch) wait(ctx context.Context) {
	for i, f := range b.futures {
		if f != nil {
			b.futures[i] = nil
			b.results[i].Answer, b.results[i].Err = f.await(ctx)
		}
	}
}
