package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rdmad/rdmad/slots"
)

// Call sends req and waits for the answer, which it returns in a new slice.
func (m *Method) Call(ctx context.Context, req []byte) ([]byte, error) {
	return m.CallInto(ctx, req, nil)
}

var futures = sync.Pool{New: func() any { return new(Future) }}

// CallInto is Call with a buffer: the answer is appended to dst[:0], which
// grows only if it has too little room. req and dst may be the same memory.
// With enough room a call allocates nothing.
func (m *Method) CallInto(ctx context.Context, req, dst []byte) ([]byte, error) {
	f := futures.Get().(*Future)
	if err := m.start(ctx, f, req, dst); err != nil {
		f.recycle()
		return nil, err
	}
	answer, err := f.Wait(ctx)
	if err != nil && !f.settled() {
		if !m.conn.gate.enter() {
			return nil, err
		}
		defer m.conn.gate.leave()
		if !f.cancel() {
			// Given up, but the answer may still come: the future stays
			// behind to receive it and free the slots.
			return nil, err
		}
		err = &DeadlineError{Target: m.name, Cause: context.Cause(ctx)}
	}
	f.recycle()
	return answer, err
}

// Go sends req and returns a future for its answer. ctx bounds the wait for
// room in the ring, and its deadline travels with the request; ending ctx later
// does not cancel the request. The answer is in a new slice.
func (m *Method) Go(ctx context.Context, req []byte) (*Future, error) {
	f := futures.Get().(*Future)
	if err := m.start(ctx, f, req, nil); err != nil {
		f.recycle()
		return nil, err
	}
	return f, nil
}

// Post sends msg one way. It returns when the message has been handed to the
// daemon; whether it is executed remains unknown, and errors show up only in
// the daemons' counters.
func (m *Method) Post(ctx context.Context, msg []byte) error {
	if !m.conn.gate.enter() {
		return m.closed()
	}
	defer m.conn.gate.leave()
	for range maxReroutes {
		l, u, h, err := m.claim(ctx, len(msg))
		if err != nil {
			return err
		}
		h.Kind = slots.KindOneWay
		copy(l.ring.Payload(u), msg)
		h.Encode(l.ring.Header(u))
		if err = l.publish(u); !errors.Is(err, slots.ErrClosed) {
			return err
		}
		m.route.p.Store(nil)
	}
	return fmt.Errorf("client: %s: %w: its lanes close as soon as they open", m.name, ErrNotExecuted)
}

// start claims, writes and publishes a request that f will complete.
func (m *Method) start(ctx context.Context, f *Future, req, dst []byte) error {
	if !m.conn.gate.enter() {
		return m.closed()
	}
	defer m.conn.gate.leave()
	for range maxReroutes {
		l, u, h, err := m.claim(ctx, len(req))
		if err != nil {
			return err
		}
		copy(l.ring.Payload(u), req)
		if err = m.commit(f, l, u, h, dst); !errors.Is(err, slots.ErrClosed) {
			return err
		}
		m.route.p.Store(nil)
	}
	return fmt.Errorf("client: %s: %w: its lanes close as soon as they open", m.name, ErrNotExecuted)
}

// commit publishes the written run u for f.
func (m *Method) commit(f *Future, l *lane, u slots.Run, h slots.Header, dst []byte) error {
	h.Kind = slots.KindRequest
	h.Encode(l.ring.Header(u))
	f.reset(m, l, u, dst)
	l.calls[u.Index].Store(f)
	if err := l.publish(u); err != nil {
		l.calls[u.Index].Store(nil)
		return err
	}
	if m.conn.ended.Load() {
		// The session ended while the request was on its way into the ring;
		// whoever failed all futures may have missed this one.
		m.conn.wait.failAll()
	}
	return nil
}

func (m *Method) closed() error { return fmt.Errorf("client: %s: %w", m.name, ErrClosed) }

// Request is a request that is written in place: Reserve, fill Bytes, Commit.
type Request struct {
	m *Method
	l *lane
	u slots.Run
	h slots.Header
}

// Reserve claims room for a request of n bytes, to be filled in place without a
// copy. Commit or Abort it soon: it holds slots of a ring that is shared with
// other processes, and keeps Close from returning.
func (m *Method) Reserve(ctx context.Context, n int) (*Request, error) {
	if n < 0 {
		return nil, fmt.Errorf("client: %s: %w: a request of %d bytes", m.name, ErrInvalid, n)
	}
	if !m.conn.gate.enter() {
		return nil, m.closed()
	}
	l, u, h, err := m.claim(ctx, n)
	if err != nil {
		m.conn.gate.leave()
		return nil, err
	}
	return &Request{m: m, l: l, u: u, h: h}, nil
}

// Bytes returns the n bytes of the request, in shared memory: write them, do
// not rely on reading them back. Valid until Commit or Abort.
func (r *Request) Bytes() []byte { return r.l.ring.Payload(r.u)[:r.h.Length:r.h.Length] }

// Commit sends the request. On error the request was not sent and its slots are
// free again. A request may be committed or aborted once.
func (r *Request) Commit() (*Future, error) {
	if r.l == nil {
		return nil, fmt.Errorf("client: %s: %w: request was committed or aborted before", r.m.name, ErrInvalid)
	}
	defer r.m.conn.gate.leave()
	f := futures.Get().(*Future)
	err := r.m.commit(f, r.l, r.u, r.h, nil)
	r.l = nil
	if err != nil {
		f.recycle()
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
