package client

import "context"

// CallFunc sends req, waits for the answer and calls f with it, in the memory where
// it arrived: nothing is copied, and no room for it is needed. In the steady state a
// call allocates nothing. CallFunc returns f's error as it is. Without an answer f
// is not called, and the error is one of Call's; a request is tried once more as
// CallInto does it.
//
// The bytes are valid until f returns or panics; f must not write to them. Other
// processes of the domain can change them at any time: f copies what it checks
// before it checks it.
//
// f runs on the caller's goroutine, under no lock. As long as it runs the answer holds
// slots of a ring that is shared with other processes, or a region of this one if it is
// a large one, and keeps Conn.Close from
// returning: f must not call Close, and if it makes other calls to the same node they
// need slots besides. ctx does not interrupt f.
func (m *Method) CallFunc(ctx context.Context, req []byte, f func(answer []byte) error) error {
	if !m.conn.gate.enter() {
		return m.closed()
	}
	defer m.conn.gate.leave()
	a, err := m.fetch(ctx, req)
	if err != nil {
		return err
	}
	defer a.letGo()
	return f(a.res)
}

// fetch sends req, as often as the method may, and returns its future when the answer is
// in the slots. The caller holds the gate until it has let the future go.
func (m *Method) fetch(ctx context.Context, req []byte) (*Future, error) {
	if m.opts.idempotent {
		return m.fetchAgain(ctx, req)
	}
	f, err := m.fetchOnce(ctx, req)
	if refused(err) {
		f, err = m.fetchOnce(ctx, req) // the first one's outcome made it forget the route
		return f, secondTry(err)
	}
	return f, err
}

func (m *Method) fetchOnce(ctx context.Context, req []byte) (*Future, error) {
	f, err := m.send(ctx, req, &sink{inPlace: true})
	if err != nil {
		return nil, err
	}
	return m.inPlace(ctx, f)
}

// inPlace waits for the answer of a future that leaves it in the slots.
func (m *Method) inPlace(ctx context.Context, f *Future) (_ *Future, err error) {
	// Not Wait, which enters the gate once more and fails when it is shut.
	m.conn.wait.until(ctx, f)
	if !f.settled() {
		_, err = f.giveUp(ctx)
	} else if err = f.err; err != nil {
		f.recycle()
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}
