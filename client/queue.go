package client

import (
	"context"
	"fmt"
	"iter"
	"sync"
)

// Queue collects the outcomes of requests as they become known, for goroutines that
// keep many requests under way and take the answers in whatever order they come. Its
// methods are safe for concurrent use. It needs no closing.
type Queue struct {
	conn *Conn

	mu sync.Mutex
	// known are outcomes that nobody has taken, from first on.
	known []tagged
	first int
	// open is how many requests were sent whose outcomes nobody has taken.
	open int
	// ready is settled when there is something to look at again; nil if nobody
	// waits.
	ready *Future
}

type tagged struct {
	tag uint64
	Result
}

// NewQueue makes a queue for requests of this connection.
func (c *Conn) NewQueue() *Queue { return &Queue{conn: c} }

// GoTo sends req as Go does; its outcome goes to q under the tag, which is the caller's
// to choose and need not be unique. The request has been copied when GoTo returns; the
// answer is in a slice of its own. An error of GoTo means that the request was not
// sent and that q gets nothing; besides those of Go, ErrInvalid for a queue of another
// connection.
func (m *Method) GoTo(ctx context.Context, q *Queue, req []byte, tag uint64) error {
	return m.sendTo(ctx, q, req, &sink{queue: q, tag: tag})
}

// sendTo sends a request whose outcome goes to q.
func (m *Method) sendTo(ctx context.Context, q *Queue, req []byte, to *sink) error {
	present(ctx)
	if q == nil || q.conn != m.conn {
		return fmt.Errorf("client: %s: %w: a queue of another connection", m.name, ErrInvalid)
	}
	if m.opts.idempotent {
		_, err := m.pursue(ctx, req, to)
		return err
	}
	if !m.conn.gate.enter() {
		return m.closed()
	}
	_, err := m.send(ctx, req, to)
	m.conn.gate.leave()
	return err
}

// Completions yields the outcomes of the requests that were sent with Conn.Queue; see
// Queue.All.
func (c *Conn) Completions(ctx context.Context) iter.Seq2[uint64, Result] {
	return c.Queue().All(ctx)
}

// Queue returns the connection's own queue, for programs that need one only.
func (c *Conn) Queue() *Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue == nil {
		c.queue = c.NewQueue()
	}
	return c.queue
}

// Len returns how many requests have been sent whose outcomes nobody has taken.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open
}

// All yields tags and outcomes in the order in which they become known, and waits for
// more as long as there are requests without one: the loop ends when Len is 0. Its
// body may send further requests to the queue; no lock is held. Of several loops over
// a queue at the same time each outcome goes to one. Answers are the caller's.
//
// When ctx ends the loop ends as well, after the outcomes that are known already; the
// requests go on, and another loop gets the rest. So it does after a break. The end of
// the connection gives every request an outcome.
func (q *Queue) All(ctx context.Context) iter.Seq2[uint64, Result] {
	return func(yield func(uint64, Result) bool) {
		for {
			t, ok, ready := q.take()
			switch {
			case ok:
				if !yield(t.tag, t.Result) {
					return
				}
			case ready == nil || !q.wait(ctx, ready):
				return
			}
		}
	}
}

// take returns an outcome, or else what to wait for, if there is anything.
func (q *Queue) take() (t tagged, ok bool, ready *Future) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.first < len(q.known) {
		t, q.known[q.first] = q.known[q.first], tagged{}
		q.open--
		if q.first++; q.first == len(q.known) {
			q.known, q.first = q.known[:0], 0
		}
		return t, true, nil
	}
	if q.open > 0 && q.ready == nil {
		q.ready = new(Future)
	}
	return t, false, q.ready
}

// wait returns true when ready is settled and false when ctx has ended before.
func (q *Queue) wait(ctx context.Context, ready *Future) bool {
	present(ctx)
	if q.conn.gate.enter() {
		q.conn.wait.until(ctx, ready)
		q.conn.gate.leave()
	} else {
		q.conn.outcome(ctx, ready)
	}
	return ready.settled()
}

// expect counts a request that is about to be sent.
func (q *Queue) expect() {
	q.mu.Lock()
	q.open++
	q.mu.Unlock()
}

// forget takes expect back.
func (q *Queue) forget() {
	q.mu.Lock()
	q.open--
	q.wake()
	q.conn.session.Wake() // a loop that leads, and waits for more, sleeps on the bell
}

// push enters an outcome. The leader calls it: it must not block.
func (q *Queue) push(tag uint64, r Result) {
	q.mu.Lock()
	if q.first > len(q.known)/2 && len(q.known) == cap(q.known) {
		// A queue that is never empty grows no more than its contents ask for.
		n := copy(q.known, q.known[q.first:])
		clear(q.known[n:])
		q.known, q.first = q.known[:n], 0
	}
	q.known = append(q.known, tagged{tag, r})
	q.wake()
}

// wake lets those who wait look again. The caller holds mu, which wake releases.
func (q *Queue) wake() {
	ready := q.ready
	q.ready = nil
	q.mu.Unlock()
	if ready != nil {
		ready.complete(nil, nil)
	}
}
