package client

import (
	"context"
	"fmt"
)

// Pending is an answer-to-be that is left where it arrives: the future of GoInPlace. It is
// to be waited for, once: until then its answer holds slots of a ring that is shared with
// other processes, or a region of this one if it is a large one, at the latest until Conn.Close.
// When a request of this connection waits for room, answers that have arrived and that nobody has waited
// for yet are copied into memory of this process, so that they are in nobody's way.
// It belongs to one goroutine at a time. Copies of a Pending are the same.
type Pending struct {
	f     *Future
	epoch uint32
}

// GoInPlace sends req as Go does, and leaves the answer where it arrives, as CallInPlace
// does: while there is room nothing is copied, and in the steady state it allocates nothing. The request has been copied when GoInPlace
// returns. Errors are those of Go, and ErrInvalid of a method with Idempotent: use CallInPlace, which waits.
//
// GoInPlace may wait for room, also for that of answers that were waited for and are not released: release them before.
func (m *Method) GoInPlace(ctx context.Context, req []byte) (Pending, error) {
	present(ctx)
	if m.opts.idempotent {
		return Pending{}, m.notAgain("an answer that is left where it arrives (see CallInPlace)")
	}
	if !m.conn.gate.enter() {
		return Pending{}, m.closed()
	}
	f, err := m.send(ctx, req, &sink{inPlace: true, pending: true})
	m.conn.gate.leave() // not deferred: see start
	if err != nil {
		return Pending{}, err
	}
	return Pending{f, f.epoch.Load()}, nil
}

// Ready reports whether the outcome is known, so that Wait does not wait. The answer may have
// arrived and only be noticed by a Wait, of this or another one. It is false once Wait was called.
func (p Pending) Ready() bool { return p.f != nil && p.f.epoch.Load() == p.epoch && p.f.settled() }

// Wait waits for the answer, which must be released. With an error there is nothing to
// release. When ctx ends before the outcome is known the request is given up, as by CallInPlace: it is
// taken back, or its answer dropped, and the error is a *DeadlineError. Other errors are those of Future.Wait.
// After Conn.Close it is ErrMaybeExecuted even if an answer had arrived, because its memory is gone. A second
// Wait, also on a copy of p, is ErrInvalid.
func (p Pending) Wait(ctx context.Context) (Answer, error) {
	present(ctx)
	f := p.f
	if f == nil || !f.epoch.CompareAndSwap(p.epoch, p.epoch+1) {
		return Answer{}, fmt.Errorf("client: %w: an answer that was waited for before, or of no request", ErrInvalid)
	}
	m := f.m
	if !m.conn.gate.enter() {
		return Answer{}, f.tooLate(ctx)
	}
	if _, err := m.inPlace(ctx, f); err != nil {
		m.conn.gate.leave()
		return Answer{}, err
	}
	m.conn.arrived.take(f)
	return Answer{f, p.epoch + 1}, nil
}

// tooLate returns the outcome of a request whose answer can be had no more, because the connection was closed.
func (f *Future) tooLate(ctx context.Context) error {
	f.m.conn.outcome(ctx, f)
	switch {
	case !f.settled():
		return f.m.late(ctx, true)
	case f.err != nil:
		return f.err
	}
	return fmt.Errorf("%s: %w: it was, and its answer was not fetched: %w", f.m.name, ErrMaybeExecuted, f.m.conn.endError())
}
