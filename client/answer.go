package client

import (
	"context"
	"fmt"
)

// Answer is an answer that is where it has arrived, in memory that is shared with other
// processes, or, of GoInPlace, in memory of this one. It must be released: until then it holds slots of a ring, and keeps
// Conn.Close from returning. It belongs to one goroutine at a time. Copies of an Answer
// are the same answer. The zero Answer has no bytes.
type Answer struct {
	f     *Future
	epoch uint32
}

// Bytes returns the answer, valid until Release; nil after it. It must not be written to.
// Other processes of the domain can change it at any time: copy what you check before
// you check it.
func (a Answer) Bytes() []byte {
	if a.f == nil || a.f.epoch.Load() != a.epoch {
		return nil
	}
	return a.f.res
}

// Release gives the memory back. Again, also of a copy, it does nothing.
func (a Answer) Release() {
	if a.f == nil || !a.f.epoch.CompareAndSwap(a.epoch, a.epoch+1) {
		return
	}
	c := a.f.m.conn
	a.f.letGo()
	c.gate.leave()
}

// CallInPlace is Call, but leaves the answer where it has arrived until Release is called
// on it. Nothing is copied, and in the steady state a call allocates nothing. With an
// error there is nothing to release.
func (m *Method) CallInPlace(ctx context.Context, req []byte) (Answer, error) {
	present(ctx)
	if !m.conn.gate.enter() {
		return Answer{}, m.closed()
	}
	f, err := m.fetch(ctx, req)
	if err != nil {
		m.conn.gate.leave()
		return Answer{}, err
	}
	return Answer{f, f.epoch.Load()}, nil
}

// CallInPlace sends the request, waits for the answer and leaves it where it has arrived;
// see Method.CallInPlace. Neither the request nor the answer is copied. The request is
// used up, as by Commit. It is not tried again: what Commit and Future.Wait return as
// errors this returns.
func (r *Request) CallInPlace(ctx context.Context) (Answer, error) {
	if r.l == nil {
		return Answer{}, r.usedUp()
	}
	m := r.m
	if end := deadline(ctx); end != 0 && (r.h.Deadline == 0 || end < r.h.Deadline) {
		r.h.Deadline = end // who waits has less time than who has reserved
	}
	f, err := m.commit(&r.draft, nil, &sink{inPlace: true})
	r.l = nil
	if err != nil {
		err = fmt.Errorf("client: %s: %w: %w", m.name, ErrNotExecuted, err)
	} else {
		f, err = m.inPlace(ctx, f)
	}
	if err != nil {
		m.conn.gate.leave()
		return Answer{}, err
	}
	return Answer{f, f.epoch.Load()}, nil
}
