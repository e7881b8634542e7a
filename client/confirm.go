package client

import "context"

// PostConfirmed sends msg as Post does and returns a future that tells whether it was
// executed: its answer is nil, and its error nil when the handler has returned without
// one, else one of Call's. What the handler answers is dropped, and no room is reserved
// for it: the message takes no more slots than it needs itself, and the text of a
// RemoteError is cut to what these hold.
//
// The message has been copied when PostConfirmed returns; its errors are those of Go.
// ctx bounds the wait for room in the ring, and its deadline travels with the message.
func (m *Method) PostConfirmed(ctx context.Context, msg []byte) (*Future, error) {
	present(ctx)
	if m.opts.idempotent {
		return m.pursue(ctx, msg, &sink{receipt: true})
	}
	if !m.conn.gate.enter() {
		return nil, m.closed()
	}
	f, err := m.send(ctx, msg, &sink{receipt: true})
	m.conn.gate.leave()
	return f, err
}

// PostConfirmed sends msg to target; see Method.PostConfirmed.
func (c *Conn) PostConfirmed(ctx context.Context, target string, msg []byte) (*Future, error) {
	m, err := c.Method(ctx, target)
	if err != nil {
		return nil, err
	}
	return m.PostConfirmed(ctx, msg)
}

// PostTo is PostConfirmed for a queue, which gets the outcome under the tag; see GoTo.
// The result's answer is nil.
func (m *Method) PostTo(ctx context.Context, q *Queue, msg []byte, tag uint64) error {
	return m.sendTo(ctx, q, msg, &sink{queue: q, tag: tag, receipt: true})
}
