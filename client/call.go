package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Call sends req and waits for the answer, which it returns in a new slice. Errors: ErrNoService, ErrTooLarge,
// ErrBackpressure and ErrClosed, ErrDeadline when ctx ends, ErrRemote from the handler, and
// ErrNotExecuted or ErrMaybeExecuted when something was lost. Unless errors.Is says ErrMaybeExecuted or ErrRemote, or
// the answer was too large, nothing was executed; docs/semantics.md has all cases.
func (m *Method) Call(ctx context.Context, req []byte) ([]byte, error) {
	return m.CallInto(ctx, req, nil)
}

var futures = sync.Pool{New: func() any { return new(Future) }}

// CallInto is Call with a buffer: the answer is appended to dst[:0], which
// grows only if it has too little room. req and dst may be the same memory.
// With enough room a call allocates nothing.
//
// If dst is memory of a Region of this connection, an answer that fits no run of slots
// arrives there without a copy. When such a call has failed, dst may still change for a
// moment; once the region is free nothing of it is seen.
//
// A request that is refused because nobody serves the method there any more is
// tried once more where it is served now.
func (m *Method) CallInto(ctx context.Context, req, dst []byte) ([]byte, error) {
	if m.opts.idempotent {
		return m.callAgain(ctx, req, dst)
	}
	answer, err := m.callOnce(ctx, req, dst)
	if refused(err) {
		answer, err = m.callOnce(ctx, req, dst) // the first one's outcome made it forget the route
		return answer, secondTry(err)
	}
	return answer, err
}

// refused reports whether err is the outcome of a request whose node serves the
// method no more. It may be sent again, where the method is served now.
func refused(err error) bool {
	if err == nil {
		return false
	}
	var none *noWayError // which errors.As has allocated: a call that succeeds is not to pay for it
	return errors.Is(err, ErrNoService) && errors.Is(err, ErrNotExecuted) && !errors.As(err, &none)
}

func (m *Method) callOnce(ctx context.Context, req, dst []byte) ([]byte, error) {
	f, err := m.start(ctx, req, dst)
	if err != nil {
		return nil, err
	}
	return f.await(ctx)
}

// Go sends req and returns a future for its answer. ctx bounds the wait for
// room in the ring, and its deadline travels with the request; ending ctx later
// does not cancel the request. The answer is in a new slice. Errors: ErrNoService, ErrTooLarge, ErrBackpressure,
// ErrClosed, ErrNotExecuted and ErrDeadline, of a request that was not sent; what becomes of one that was
// is the future's.
func (m *Method) Go(ctx context.Context, req []byte) (*Future, error) {
	if m.opts.idempotent {
		return m.pursue(ctx, req, &sink{})
	}
	return m.start(ctx, req, nil)
}

// GoInto is Go with a buffer: the answer is appended to dst[:0], which grows only
// if it has too little room. The request has been copied when GoInto returns, but
// dst belongs to the future until its outcome is known. With enough room, and
// with Release, a call allocates nothing.
func (m *Method) GoInto(ctx context.Context, req, dst []byte) (*Future, error) {
	if m.opts.idempotent {
		return m.pursue(ctx, req, &sink{dst: dst})
	}
	return m.start(ctx, req, dst)
}

// Post sends msg one way. It returns when the message has been handed to the
// daemon; whether it is executed remains unknown, and errors show up only in
// the daemons' counters. See PostConfirmed for one whose fate is known. A method with
// Idempotent refuses it with ErrInvalid. Other errors are those of Go: the message was not sent.
func (m *Method) Post(ctx context.Context, msg []byte) error {
	present(ctx)
	if m.opts.idempotent {
		return m.notAgain("a message without an outcome (see PostConfirmed)")
	}
	if !m.conn.gate.enter() {
		return m.closed()
	}
	err := m.post(ctx, msg)
	m.conn.gate.leave() // not deferred: see start
	return err
}

// post is Post for a caller that holds the gate.
func (m *Method) post(ctx context.Context, msg []byte) error {
	for range maxReroutes {
		if m.isLarge(len(msg)) {
			return m.postLarge(ctx, msg)
		}
		d := draft{receipt: true} // no room for an answer
		if err := m.claim(ctx, len(msg), &d); err != nil {
			if m.goesInParts(err) {
				return m.postLarge(ctx, msg)
			}
			return err
		}
		d.h.Kind = slots.KindOneWay
		copy(d.l.ring.Payload(d.u), msg)
		err := d.publish()
		if err == nil && m.conn.ended.Load() && d.l.revoke(d.u) {
			return m.closed() // the daemon ended before it took the message
		}
		if !errors.Is(err, slots.ErrClosed) {
			if err == nil {
				m.lookAgain(d.route)
			}
			return err
		}
		m.lost(d.l)
	}
	return m.elusive()
}

// start claims, writes and publishes a request and returns its future.
func (m *Method) start(ctx context.Context, req, dst []byte) (*Future, error) {
	present(ctx)
	if !m.conn.gate.enter() {
		return nil, m.closed()
	}
	f, err := m.send(ctx, req, &sink{dst: dst})
	m.conn.gate.leave() // not deferred: a deferred call costs as much as a claim
	return f, err
}

// send is start for a caller that holds the gate.
func (m *Method) send(ctx context.Context, req []byte, to *sink) (*Future, error) {
	if m.isLarge(len(req)) {
		return m.sendLarge(ctx, req, to)
	}
	for range maxReroutes {
		d := draft{receipt: to.receipt}
		if err := m.claim(ctx, len(req), &d); err != nil {
			if m.goesInParts(err) {
				return m.sendLarge(ctx, req, to)
			}
			return nil, err
		}
		f, err := m.commit(&d, req, to)
		if err == nil || !errors.Is(err, slots.ErrClosed) {
			return f, err
		}
		m.lost(d.l)
	}
	return nil, m.elusive()
}

// draft is a request between its claim and its publication.
type draft struct {
	l *lane
	u slots.Run
	h slots.Header
	// route is where the lane is from.
	route *route
	// silent leaves it to the caller to announce the request to the daemon.
	silent bool
	// receipt is sink's.
	receipt bool
	// extra is how many bytes of the message are what goes with it.
	extra int
	// patient: it waits behind those who wait for room already.
	patient bool
	// began is when it began to look for room, if the daemon asks for stamps, else 0.
	began int64
}

// stamp puts into the header when the request was begun and published.
func (d *draft) stamp() {
	if d.began != 0 {
		d.h.Trace = slots.PackStamps(d.began, shm.Nanotime())
	}
}

// commit writes req into the draft's run, publishes it and returns the future of
// its answer, which is not to be used if a queue gets the outcome. An empty req
// leaves what the caller has written.
func (m *Method) commit(d *draft, req []byte, to *sink) (*Future, error) {
	f := futures.Get().(*Future)
	f.reset(m, d, to)
	switch {
	case to.queue != nil:
		to.queue.expect()
	case to.again != nil:
		to.again.began(f)
	}
	d.l.count(f)
	if d.l.occupied(d.u.Index) {
		d.l.evict(d.u.Index)
	}
	if copyFirst {
		copy(d.l.ring.Payload(d.u), req)
	}
	d.l.put(f)
	// The slots are written last: their lines are mostly in another CPU's cache,
	// and every atomic operation waits for the writes before it.
	d.h.Kind = slots.KindRequest
	if d.receipt {
		d.h.Flags |= slots.FlagReceipt
	}
	if !copyFirst && len(req) > 0 {
		copy(d.l.ring.Payload(d.u), req)
	}
	if err := d.publish(); err != nil {
		// If the end of the session has completed it meanwhile, nobody minds, but
		// a queue or a pursuit, which has its outcome then.
		taken := d.l.retract(d.u)
		switch {
		case to.queue == nil && to.again == nil:
			return nil, err
		case !taken:
			return nil, nil
		case to.queue != nil:
			to.queue.forget()
		default:
			to.again.unsent()
		}
		return nil, err
	}
	if m.conn.ended.Load() {
		// The session ended while the request was on its way into the ring;
		// whoever failed all futures may have missed this one.
		m.conn.wait.failAll()
	}
	return f, nil
}

func (m *Method) elusive() error {
	return fmt.Errorf("client: %s: %w: its lanes close as soon as they open", m.name, ErrNotExecuted)
}

func (m *Method) closed() error { return fmt.Errorf("client: %s: %w", m.name, m.conn.endError()) }

// Request is a request that is written in place: Reserve, fill Bytes, Commit. It
// belongs to one goroutine at a time.
type Request struct {
	m *Method
	draft
}

// Reserve claims room for a request of n bytes, to be filled in place without a
// copy. Commit or Abort it soon: it holds slots of a ring that is shared with
// other processes, and keeps Close from returning. A Request that stays in the
// function that reserves it costs no allocation. A method with Idempotent refuses it with
// ErrInvalid: there would be no copy to send again.
func (m *Method) Reserve(ctx context.Context, n int) (*Request, error) {
	// Small enough to be inlined: the request can then be on the caller's stack.
	r := &Request{m: m}
	return r.reserve(ctx, n)
}

// reserve returns r, or nil and an error.
func (r *Request) reserve(ctx context.Context, n int) (*Request, error) {
	present(ctx)
	m := r.m
	if m.opts.idempotent {
		return nil, m.notAgain("a request that is written in its slots")
	}
	if n < 0 {
		return nil, fmt.Errorf("client: %s: %w: a request of %d bytes", m.name, ErrInvalid, n)
	}
	if !m.conn.gate.enter() {
		return nil, m.closed()
	}
	if err := m.claim(ctx, n, &r.draft); err != nil {
		m.conn.gate.leave()
		return nil, err
	}
	return r, nil
}

// Bytes returns the n bytes of the request, in shared memory: write them, do
// not rely on reading them back. Valid until Commit or Abort, and nil afterwards.
func (r *Request) Bytes() []byte {
	if r.l == nil {
		return nil
	}
	n := int(r.h.Length) - r.extra
	return r.l.ring.Payload(r.u)[:n:n]
}

// usedUp is the error of a request that was committed or aborted before.
func (r *Request) usedUp() error {
	return fmt.Errorf("client: %s: %w: request was committed or aborted before", r.m.name, ErrInvalid)
}

// Commit sends the request. On error the request was not sent and its slots are
// free again. Committing again, or after Abort, is ErrInvalid and does nothing.
func (r *Request) Commit() (*Future, error) {
	if r.l == nil {
		return nil, r.usedUp()
	}
	defer r.m.conn.gate.leave()
	f, err := r.m.commit(&r.draft, nil, &sink{})
	r.l = nil
	if err != nil {
		return nil, fmt.Errorf("client: %s: %w: %w", r.m.name, ErrNotExecuted, err)
	}
	return f, nil
}

// Abort gives the room back. Aborting again, or after Commit, does nothing.
func (r *Request) Abort() {
	if r.l == nil {
		return
	}
	defer r.m.conn.gate.leave()
	r.l.abort(r.u)
	r.l = nil
}
